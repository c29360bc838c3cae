"""A finished simulation: tables of jobs and dispatches, metrics, and the folder it is kept in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from cpdispatch import access, verify
from cpdispatch.analyze import metrics as figures
from cpdispatch.analyze.energy import Drawn, Off, watts_of
from cpdispatch.analyze.energy import summary as energy_summary
from cpdispatch.analyze.explain import Explanation, explain
from cpdispatch.analyze.metrics import ScheduleColumns
from cpdispatch.analyze.moment import Moment, moment
from cpdispatch.analyze.occupancy import (
    FOREVER,
    NEVER,
    NEVER_FITS,
    NO_ATTEMPTS,
    NO_OUTAGES,
    REJECTED,
    Attempts,
    Behind,
    Lacking,
    Occupancy,
    Outages,
    by_stretch,
)
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import Reason
from cpdispatch.energy import ENERGY_PRICE, POWER_CAP, Steps, of_told
from cpdispatch.errors import InputError
from cpdispatch.events import FAIL, Event, as_csv
from cpdispatch.events import load as load_events
from cpdispatch.files import parse_json, read_parquet, read_text, replacing, write_bytes, writing
from cpdispatch.jobs import LABELLED, SPREADS, TERMS, UNKNOWN, WISHES, Column, Workload
from cpdispatch.simulator import arrow
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.simulator.kept_back import being_cleared, kept_back
from cpdispatch.simulator.records import NOT_STARTED, Records, Test
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import (
    LIMIT,
    USUAL_TIER,
    System,
    SystemFile,
    from_file,
    system_as_dict,
)
from cpdispatch.verify import Service, Told
from cpdispatch.verify.limits import limited
from cpdispatch.verify.service import Lacks, Spans, downtimes, drains, lacks
from cpdispatch.workloads import swf

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

JOBS, DECISIONS, ABOUT, SCHEDULE = "jobs.parquet", "decisions.parquet", "run.json", "schedule.swf"
ATTEMPTS, EVENTS, PROMISES = "attempts.parquet", "events.csv", "promises.parquet"
SWITCHED = "switched.parquet"
FILES = (JOBS, DECISIONS, ABOUT, SCHEDULE, ATTEMPTS, EVENTS, PROMISES, SWITCHED)
SWF_FAILED, SWF_COMPLETED, SWF_CANCELLED = 0, 1, 5


@dataclass(frozen=True, eq=False)
class Run:
    """The outcome of replaying one workload through one dispatcher.

    Attributes
    ----------
    about : dict
        What was run: versions, arguments, system, checksum of the log, what reading dropped.
    job_table : pyarrow.Table
        One row a job: id, submit, start, end (s; -1 when it never started), units, nodes,
        node_units, requested_s, runtime_s, expected_s, killed, reason, and the per-unit requests;
        preceding and think_s when the run honoured dependencies; when jobs could be restarted,
        lost_start, lost_end, lost_nodes and lost_node_units, of the attempt that was killed for a
        restart (-1: none), restartable unless all were, and test, what became of the test run
        (none, ended, went_on or killed), when a job was tested; when nodes could fail, requeued,
        how often it was queued again because one failed, and failed, whether it ended so; energy_j
        (J), lost attempts included, where the system says what it draws.
    decision_table : pyarrow.Table
        One row a dispatch: time, queue, running, started, model, status, objective, bound, gap,
        ms and the phases in ms.
    workload : Workload or None
        What was replayed, fitted to the system; None for a run that was loaded from its folder.
    attempt_table : pyarrow.Table or None
        One row for each time a job was queued again because a node failed: id, start and end (s)
        of what was lost, nodes and node_units; with checkpoints saved_s, what they kept of it; when
        jobs could be restarted, test, whether it was a test run; None where nodes could not fail.
    happened : tuple of Event, or None
        What happened to the system, in order; None where nothing could.
    promise_table : pyarrow.Table or None
        One row for each job that was promised a later start: id, at (s, when it first was) and
        start (s, the first one that it was promised). None where promises are not recorded, as in
        compiled replays.
    switched_table : pyarrow.Table or None
        One row for each time that a node was switched off: node, off, wake and on (s): when it was
        switched off and on, and was back; -1 for what did not happen. None where none could be.
    """

    about: dict[str, Any]
    job_table: pa.Table
    decision_table: pa.Table
    workload: Workload | None = None
    attempt_table: pa.Table | None = None
    happened: tuple[Event, ...] | None = None
    promise_table: pa.Table | None = None
    switched_table: pa.Table | None = None

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """The table of jobs as a DataFrame; node lists stay in Arrow's form."""
        return _frame(self.job_table)

    @cached_property
    def decisions(self) -> pd.DataFrame:
        """The table of dispatches as a DataFrame."""
        return _frame(self.decision_table)

    @property
    def system(self) -> System:
        """The system that was simulated."""
        return from_file(msgspec.convert(self.about["system"], SystemFile))

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics of `cpdispatch.analyze.metrics.summary`."""
        if self.about.get("compiled"):
            # Only the whole replay was timed.
            seconds = self.about["seconds"] - self.about.get("predictor_seconds", 0.0)
            found = figures.summary(self.schedule(), np.empty(0))
            found["decisions"] = self.decision_table.num_rows
            if found["decisions"]:
                found["decision_ms_mean"] = seconds / found["decisions"] * 1e3
        else:
            ms = arrow.array(self.decision_table.column("ms"))
            found = figures.summary(self.schedule(), ms)
        if self.happened is not None:
            found["node_failures"] = sum(len(e.nodes) for e in self.happened if e.kind == FAIL)
        return found | self._energy()

    @property
    def restarts(self) -> bool:
        """Whether jobs could be restarted."""
        about = self.about
        return _with_restarts(
            about.get("restarts"), about.get("restartable", 0), about.get("idempotent", False),
            self.happened is not None,
        )  # fmt: skip

    def verify(self) -> list[verify.Violation]:
        """What is wrong with the schedule, see `cpdispatch.verify.run`."""
        return verify.run(
            self.jobs,
            self.system,
            dependencies=self.about.get("dependencies", False),
            restarts=self.restarts,
            restart_cost_s=self.about.get("restart_cost_s", 0),
            decisions=self.decisions,
            wait=self.about.get("wait"),
            service=self._service(),
            power_cap=self.about.get(POWER_CAP),
            switched=None if self.switched_table is None else _frame(self.switched_table),
            switch_off_s=self.about.get("switch_off_s"),
            told=self._told(),
            promised=None if self.promise_table is None else _frame(self.promise_table),
            kill_at_limit=None if "recorded" in self.about else self.about.get("kill_at_limit"),
        )

    def _told(self) -> Told:
        """What the checker needs to know of how the run was made."""
        about = self.about
        rule: dict[str, Any] = about.get("rule") or {}
        switched = about.get("switch_off_s") is not None
        known = self.happened is None and not switched and not about.get("data")
        told = [about.get(name) or [] for name in (POWER_CAP, ENERGY_PRICE)]
        return Told(
            by_event=about.get("trigger") == "event",
            idempotent=bool(about.get("idempotent")),
            test_s=about.get("test_s", 0),
            changes_s=[int(time) for steps in told for time, _ in steps] if known else None,
            recorded="recorded" in about,
            ours=bool(about.get("compiled") or rule or about.get("wait")),
            first_come=bool(rule.get("first_come")) and not about.get("wait"),
            keeps_promises=bool(rule.get("keeps_promises")),
            strict=bool(rule.get("strict")),
            order="" if about.get("starvation") else rule.get("order") or "",
            rejects=not (rule or about.get("wait")),
        )

    def _energy(self) -> dict[str, float]:
        """What the system drew, where it says what it draws."""
        if not self.system.watts:
            return {}
        first_s = int(arrow.array(self.job_table.column("submit")).min())
        cap, price = (of_told(name, self.about.get(name)) for name in (POWER_CAP, ENERGY_PRICE))
        off = None
        if (table := self.switched_table) is not None:
            off = Off(*(arrow.array(table.column(name)) for name in SWITCHES))
        return energy_summary(self.drawn(), first_s, self.system, cap, price, off)

    def drawn(self) -> Drawn:
        """What jobs drew and when, attempts that were lost among them."""
        table, lost = self.job_table, self._lost()
        start_s, end_s = (arrow.array(table.column(name)) for name in ("start", "end"))
        ran = (start_s >= 0).nonzero()[0]
        again = (lost.start_s >= 0).nonzero()[0]
        system = self.system
        request = np.stack(
            [arrow.array(table.column(f"request_{k}")) for k in system.resources], axis=1
        )
        final = _attempts(table, np.arange(table.num_rows), "")
        watts = [
            watts_of(system, request[part.row], part.offset, part.node, part.units)
            for part in (final, lost)
        ]
        return Drawn(
            np.concatenate((ran, lost.row[again])),
            np.concatenate((start_s[ran], lost.start_s[again])),
            np.concatenate((np.where(end_s < 0, FOREVER, end_s)[ran], lost.end_s[again])),
            np.concatenate((watts[0][ran], watts[1][again])),
        )

    def _service(self) -> Service | None:
        """What the checker needs to know of a system to which things happened."""
        if self.happened is None or self.attempt_table is None:
            return None
        told = self.about["events"]
        attempts = _frame(self.attempt_table)
        return Service(self.happened, attempts, told["requeue"], told.get("checkpoints"))

    def by_class(self) -> dict[str, dict[str, float]]:
        """Figures of short, medium and long jobs, see `metrics.by_class`."""
        return figures.by_class(self.schedule())

    def by_width(self) -> dict[str, dict[str, float]]:
        """The same of narrow, middle and wide jobs, by the share of the system that they hold."""
        return figures.by_width(self.schedule())

    def by_user(self) -> dict[str, dict[str, float]]:
        """Figures of each user that the log names, see `metrics.by_user`."""
        return figures.by_user(self.schedule(), *arrow.coded(self.job_table.column("user")))

    def by_week(self) -> dict[int, dict[str, float]]:
        """Figures by week of submission, see `metrics.by_week`."""
        return figures.by_week(self.schedule())

    def schedule(self) -> ScheduleColumns:
        """The columns that metrics are computed from."""
        table, kinds = self.job_table, self.about["system"]["resources"]
        submit, start, end, units = (
            arrow.array(table.column(name)) for name in ("submit", "start", "end", "units")
        )
        return ScheduleColumns(
            submit_s=submit,
            start_s=start,
            end_s=end,
            units=units,
            request=np.stack(
                [arrow.array(table.column(f"request_{kind}")) for kind in kinds], axis=1
            ),
            backfilled=arrow.is_text(table.column("reason"), Reason.BACKFILLED.name.lower()),
            capacity=access.total(self.system),
            lost_s=self._lost_s(),
            saved_s=self._saved_s(),
            requeued=None if self.happened is None else arrow.array(table.column("requeued")),
            failed=None if self.happened is None else arrow.array(table.column("failed")),
            test=self._test(),
        )

    def _test(self) -> NDArray[np.object_] | None:
        """What became of the test run of each job; None where no job was tested."""
        if "test" not in self.job_table.column_names:
            return None
        codes, names = arrow.coded(self.job_table.column("test"))
        found: NDArray[np.object_] = np.array(names, dtype=object)[codes]
        return found

    def explain(self, job: int) -> Explanation:
        """Why a job waited, by its id, see `cpdispatch.analyze.explain.explain`."""
        t = self.occupancy
        until_s = np.where(t.start_s == NEVER, t.last_s, t.start_s)
        return explain(self._under_cap((t.id == job).nonzero()[0], t.submit_s, until_s), job)

    def moment(
        self, at_s: int, until_s: int | None = None, said: Callable[[int], str] = "{} s".format
    ) -> Moment:
        """What ran at a time and why jobs waited, see `cpdispatch.analyze.moment.moment`."""
        t = self.occupancy
        waits = (t.submit_s <= at_s) & ((t.start_s == NEVER) | (t.start_s > at_s))
        always = np.full(len(t.id), at_s)
        schedule = self._under_cap(waits.nonzero()[0], always, always + 1)
        return moment(schedule, at_s, until_s, said)

    def _under_cap(self, rows: IntArray, from_s: IntArray, until_s: IntArray) -> Occupancy:
        """The schedule, with when the cap kept some jobs back within a span of time of each."""
        cap, t = of_told(POWER_CAP, self.about.get(POWER_CAP)), self.occupancy
        if cap is None:
            return t
        columns = (t.behind.row.tolist(), t.behind.from_s.tolist(), t.behind.until_s.tolist())
        spans = [*zip(*columns, t.behind.why, strict=True)]
        spans += self._without_power(rows, from_s, until_s, cap)
        spans.sort()
        row, begin_s, end_s = np.array([span[:3] for span in spans], np.int64).reshape(-1, 3).T
        return replace(t, behind=Behind(row, begin_s, end_s, [span[3] for span in spans]))

    def _without_power(
        self, rows: IntArray, from_s: IntArray, until_s: IntArray, cap: Steps
    ) -> Iterator[tuple[int, int, int, str]]:
        """When the cap left less than a job draws, as long as a queued job might run from then on.

        Rows of `Behind`: the job's row, from when to when, and what it lacked, in words. A job
        that something else kept from the queue waited for that.
        """
        t = self.occupancy
        times, level = self.drawn().level()
        for row in rows.tolist():
            watts = int(t.units[row] * (t.request[row] @ np.array(self.system.unit_watts)))
            requested_s, begin_s, end_s = (int(of[row]) for of in (t.requested_s, from_s, until_s))
            gates = t.behind.of(row)
            changes = np.array([*cap.time_s, *(s for gate in gates for s in gate[:2])], np.int64)
            low, high = np.searchsorted(times, (begin_s, end_s)).tolist()
            decided = t.decision_s if len(cap.time_s) > 1 else t.decision_s[:0]
            steps_s = np.array(cap.time_s) - requested_s + 1
            instants = np.concatenate(([begin_s], times[low:high], changes, steps_s, decided))
            instants = np.unique(instants[(begin_s <= instants) & (instants < end_s)])
            if not len(instants):
                continue
            at = np.searchsorted(times, instants, side="right")
            used = np.concatenate(([0], level))[at] + self.system.idle_total
            short = np.zeros(len(instants), dtype=np.int64)
            ahead: list[tuple[int, IntArray | int]] = [(1, requested_s)]
            if len(cap.time_s) > 1:
                since_s, longest_s = self._longest_queued
                longest = np.append(longest_s, 0)[since_s.searchsorted(instants, "right") - 1]
                ahead.insert(0, (2, np.maximum(longest, requested_s)))
            for code, ahead_s in ahead:
                least = map(cap.least, instants.tolist(), (instants + ahead_s).tolist())
                short[used + watts > np.array(list(least))] = code
            for gate_s, open_s, _ in gates:
                short[(gate_s <= instants) & (instants < open_s)] = 0
            left = f"less was left than the {watts:,} W that it draws"
            why = "", f"the power cap: {left}", f"the power cap to come: {left}"
            ends = np.append(instants[1:], end_s)
            for first, after in by_stretch(short):
                if first < after and short[first]:
                    yield row, int(instants[first]), int(ends[after - 1]), why[short[first]]

    @cached_property
    def _longest_queued(self) -> tuple[IntArray, IntArray]:
        """Times, and the longest request in the queue from each on, seconds; shape (times,)."""
        t = self.occupancy
        out: dict[int, list[tuple[int, int]]] = {}
        lost = (t.lost.start_s != NEVER).nonzero()[0]
        for rows, from_s, until_s in (
            (t.behind.row, t.behind.from_s, t.behind.until_s),
            (t.lost.row[lost], t.lost.start_s[lost] + 1, t.lost.end_s[lost]),
        ):
            for row, *span in np.stack((rows, from_s, until_s), axis=1).tolist():
                out.setdefault(row, []).append((span[0], span[1]))
        spans = []
        end_s = np.where(t.start_s == NEVER, t.last_s, t.start_s) + 1  # queued as it starts, too
        for row in (~t.because(NEVER_FITS, REJECTED)).nonzero()[0].tolist():
            begin, longest = int(t.submit_s[row]), int(t.requested_s[row])
            for from_s, until_s in sorted(out.get(row, [])):
                spans.append((begin, from_s, longest))
                begin = max(begin, until_s)
            spans.append((begin, int(end_s[row]), longest))
        spans = sorted(span for span in spans if span[0] < span[1])
        times = sorted({time_s for span in spans for time_s in span[:2]})
        coming, found = iter([*spans, (FOREVER, FOREVER, 0)]), []
        queued: list[tuple[int, int]] = []
        begin, until_s, longest = next(coming)
        for time_s in times:
            while begin <= time_s:
                heappush(queued, (-longest, until_s))
                begin, until_s, longest = next(coming)
            while queued and queued[0][1] <= time_s:
                heappop(queued)
            found.append(-queued[0][0] if queued else 0)
        return np.array(times, dtype=np.int64), np.array(found, dtype=np.int64)

    @cached_property
    def occupancy(self) -> Occupancy:
        """The schedule as what was held when, see `cpdispatch.analyze.occupancy.Occupancy`."""
        table, kinds = self.job_table, self.system.resources
        names = ("id", "submit", "start", "end", "units", "requested_s", "expected_s")
        columns = {name: arrow.array(table.column(name)) for name in names}
        depends = "preceding" in table.column_names
        promised_at_s, promised_s = self._promises(columns["id"])
        happened = () if self.happened is None else self.happened
        reason, reasons = arrow.coded(table.column("reason"))
        final = _attempts(table, np.arange(table.num_rows), "")
        lost = self._lost()
        lost_test = self._lost_test(len(lost.row))
        running = (columns["start"] >= 0) & (columns["end"] < 0)  # in a run that is not over
        end_s = np.where(running, FOREVER, columns["end"])
        schedule = Occupancy(
            system=self.system,
            id=columns["id"],
            submit_s=columns["submit"],
            start_s=columns["start"],
            end_s=end_s,
            units=columns["units"],
            requested_s=columns["requested_s"],
            expected_s=columns["expected_s"],
            request=np.stack([arrow.array(table.column(f"request_{k}")) for k in kinds], axis=1),
            reason=reason,
            reasons=reasons,
            final=replace(final, end_s=end_s),
            lost=lost,
            lost_stop_s=self._lost_stop_s(lost, lost_test),
            lost_test=lost_test,
            preceding=arrow.array(table.column("preceding")) if depends else None,
            think_s=arrow.array(table.column("think_s")) if depends else None,
            down=_outages(downtimes(happened)),
            drained=_outages(drains(happened)),
            off=self._off(),
            lacking=_lacking(lacks(happened, self.system)),
            promised_at_s=promised_at_s,
            promised_s=promised_s,
            decision_s=arrow.array(self.decision_table.column("time")),
            saved_s=self._saved_s(),
            failed=None if self.happened is None else arrow.array(table.column("failed")),
            priority=arrow.array(table.column("priority"))
            if "priority" in table.column_names
            else None,
            tier=arrow.array(table.column("tier")) if "tier" in table.column_names else None,
        )
        if not limited(self.jobs, self.system):
            return replace(schedule, behind=being_cleared(lost, schedule.lost_stop_s))
        by_event = self.about.get("trigger") == "event"
        stopped = self._stopped_by_nodes()
        behind = kept_back(self.jobs, self.system, stopped, schedule.last_s, by_event=by_event)
        return replace(schedule, behind=behind)

    def _off(self) -> Outages:
        """When nodes were switched off, until they were back."""
        if self.switched_table is None:
            return NO_OUTAGES
        columns = (arrow.array(self.switched_table.column(name)) for name in ("node", "off", "on"))
        node, off_s, on_s = columns
        return Outages(node, off_s, np.where(on_s < 0, FOREVER, on_s))

    def _lost(self) -> Attempts:
        """The attempts at jobs that were killed, or that a failed node ended."""
        found = NO_ATTEMPTS
        if self.restarts:
            found = _attempts(self.job_table, np.arange(self.job_table.num_rows), "lost_")
        return found.and_(self._stopped_by_nodes())

    def _stopped_by_nodes(self) -> Attempts:
        """The attempts that a failed node ended, of jobs that were queued again."""
        if self.attempt_table is None:
            return NO_ATTEMPTS
        rows = self._rows(arrow.array(self.attempt_table.column("id")))
        return _attempts(self.attempt_table, rows, "")

    def _lost_test(self, attempts: int) -> BoolArray:
        """Which attempts of `_lost` were test runs, shape (attempts,)."""
        found = np.zeros(attempts, dtype=np.bool_)
        if "test" in self.job_table.column_names:
            killed = arrow.is_text(self.job_table.column("test"), "killed")
            found[: len(killed)] = killed
        table = self.attempt_table
        if table is not None and "test" in table.column_names:
            found[attempts - table.num_rows :] = table.column("test").to_pylist()
        return found

    def _lost_stop_s(self, lost: Attempts, test: BoolArray) -> IntArray:
        """When the attempts of `_lost` were stopped, shape (attempts,): the end is that of the
        clearing of their nodes, which a failure of one of them cuts short.
        """
        kills = self.job_table.num_rows if self.restarts else 0
        stop_s = lost.end_s.copy()
        stop_s[:kills] -= self.about.get("restart_cost_s", 0)
        np.maximum(stop_s, lost.start_s, out=stop_s)
        if test_s := self.about.get("test_s", 0):
            over_s = np.minimum(lost.start_s + test_s, lost.end_s)
            stop_s[:kills] = np.where(test, over_s, stop_s)[:kills]
        return stop_s

    def _rows(self, ids: IntArray) -> IntArray:
        """The rows of the table of jobs that have these ids."""
        known = arrow.array(self.job_table.column("id"))
        by_id = np.argsort(known, kind="stable")
        found: IntArray = by_id[np.searchsorted(known[by_id], ids)]
        return found

    def _promises(self, ids: IntArray) -> tuple[IntArray, IntArray] | tuple[None, None]:
        """When each job was first promised a later start, and which; None where none is known."""
        if self.promise_table is None:
            return None, None
        found = np.full((2, len(ids)), NEVER, dtype=np.int64)
        rows = self._rows(arrow.array(self.promise_table.column("id")))
        for row, name in zip(found, ("at", "start"), strict=True):
            row[rows] = arrow.array(self.promise_table.column(name))
        return found[0], found[1]

    def _lost_s(self) -> IntArray | None:
        """Time on the nodes of each job's lost attempts; None where there can be none."""
        table = self.job_table
        lost_s = np.zeros(table.num_rows, dtype=np.int64)
        if self.restarts:
            start_s, end_s = (arrow.array(table.column(f"lost_{at}")) for at in ("start", "end"))
            lost_s += end_s - start_s
        if self.attempt_table is None:
            return lost_s if self.restarts else None
        which, start_s, end_s = (
            arrow.array(self.attempt_table.column(name)) for name in ("id", "start", "end")
        )
        np.add.at(lost_s, self._rows(which), end_s - start_s)
        saved_s = self._saved_s()
        return lost_s if saved_s is None else lost_s - saved_s

    def _saved_s(self) -> IntArray | None:
        """What checkpoints have kept of each job's earlier runs; None without checkpoints."""
        table = self.attempt_table
        if table is None or "saved_s" not in table.column_names:
            return None
        saved_s = np.zeros(self.job_table.num_rows, dtype=np.int64)
        rows = self._rows(arrow.array(table.column("id")))
        np.add.at(saved_s, rows, arrow.array(table.column("saved_s")))
        return saved_s

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the run's files into a folder, each one atomically; run.json comes last."""
        import pyarrow.parquet as pq

        folder = Path(folder)
        tables = {JOBS: self.job_table, DECISIONS: self.decision_table}
        if self.attempt_table is not None and self.happened is not None:
            tables[ATTEMPTS] = self.attempt_table
            write_bytes(folder / EVENTS, as_csv(self.happened))
        if self.promise_table is not None:
            tables[PROMISES] = self.promise_table
        if self.switched_table is not None:
            tables[SWITCHED] = self.switched_table
        for name, table in tables.items():
            with replacing(folder / name) as temporary:
                pq.write_table(table, temporary, compression="zstd", row_group_size=arrow.PART)
        if self.workload is not None:
            self._write_swf(self.workload, folder / SCHEDULE)
        self.save_about(folder)

    def save_about(self, folder: Path) -> None:
        """Write run.json into the folder that the run is kept in, atomically."""
        classes, widths = self.by_class(), self.by_width()
        about = {**self.about, "metrics": self.metrics, "classes": classes, "widths": widths}
        write_bytes(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about), indent=1))

    def _write_swf(self, workload: Workload, path: Path) -> None:
        with writing(path) as stream:
            stream.write(swf.header_of(workload))
            write_schedule(stream, workload, self.job_table)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run:
        """Read a run's folder.

        Raises
        ------
        InputError
            When the folder holds no finished run or a file in it is damaged.
        """
        folder = Path(folder)
        known, about = _read_about(folder)
        jobs = _read_table(folder / JOBS, _job_columns(known))
        decisions = _read_table(folder / DECISIONS, _DECISION_COLUMNS)
        promises = attempts = happened = switched = None
        if known.switch_off_s is not None:
            switched = _read_table(folder / SWITCHED, dict.fromkeys(SWITCHES, "whole number"))
        if known.promises:
            promises = _read_beside(folder / PROMISES, _PROMISE_COLUMNS, jobs)
        if known.events is not None:
            saved = {} if known.events.checkpoints is None else {"saved_s": "whole number"}
            saved |= {"test": "truth value"} if known.restarts else {}
            attempts = _read_beside(folder / ATTEMPTS, _ATTEMPT_COLUMNS | saved, jobs)
            happened = tuple(load_events(folder / EVENTS, from_file(known.system)))
        return cls(about, jobs, decisions, None, attempts, happened, promises, switched)


def write_schedule(stream: BinaryIO, workload: Workload, table: pa.Table) -> None:
    """Write the jobs of a workload as lines of SWF, as the table of jobs says that they ran."""
    start, end, submit = (arrow.array(table.column(name)) for name in ("start", "end", "submit"))
    started, killed = start >= 0, arrow.array(table.column("killed"))
    status = np.where(started & ~killed, SWF_COMPLETED, SWF_CANCELLED)
    if "failed" in table.column_names:
        status[arrow.array(table.column("failed"))] = SWF_FAILED
    swf.write_jobs(
        stream,
        workload,
        wait_s=np.where(started, start - submit, UNKNOWN),
        runtime_s=np.where(started, end - start, UNKNOWN),
        status=status,
    )


class _Wait(msgspec.Struct):
    """By what waits were bounded, see `cpdispatch.bounded.Bounded.rules`."""

    in_turn_after: int
    wide: int
    first_after: int | None


class _Rule(msgspec.Struct):
    """What is certain of a queue rule, see `cpdispatch.dispatch.rule_of`."""

    first_come: bool
    keeps_promises: bool
    strict: bool = False
    order: str = ""


class _Checkpoints(msgspec.Struct):
    """Checkpoints that jobs wrote, see `cpdispatch.events.Checkpoints`."""

    every_s: int
    cost_s: int


class _Events(msgspec.Struct):
    """What happened to the system, see `cpdispatch.events.Events.told`."""

    sha256: str
    requeue: str
    checkpoints: _Checkpoints | None = None


class _Bound(msgspec.Struct):
    """The starvation bound of every decision, see `cpdispatch.instance.Starvation`."""

    threshold_s: int
    bound_s: int
    wide: int = 0


_Told = Annotated[list[tuple[int, float]], msgspec.Meta(min_length=1)]
"""The times and values of a quantity, see `energy.Steps.told`."""


class _About(msgspec.Struct):
    """What others read of run.json; what else it tells is theirs who look at it."""

    workload: str
    dispatcher: str
    predictor: str
    system: SystemFile
    notes: dict[str, int]
    seconds: float
    kill_at_limit: bool | None = None
    dependencies: bool = False
    idempotent: bool = False
    restartable: int = 0
    restarts: bool | None = None
    restart_cost_s: int = 0
    test_s: int = 0
    compiled: bool = False
    workload_sha256: str | None = None
    began_s: int | None = None
    seed: int = 0
    draw: int = 0
    place: int | None = None
    wait: _Wait | None = None
    events: _Events | None = None
    promises: bool = False
    rule: _Rule | None = None
    starvation: _Bound | None = None
    switch_off_s: int | None = None
    power_cap: _Told | None = None
    energy_price: _Told | None = None
    memory_mib_peak: float | None = None


SWITCHES = ("node", "off", "wake", "on")
"""The columns of the table of nodes that were switched off."""

_ATTEMPT_COLUMNS = dict.fromkeys(("id", "start", "end"), "whole number") | dict.fromkeys(
    ("nodes", "node_units"), "list of whole numbers"
)


_PROMISE_COLUMNS = dict.fromkeys(("id", "at", "start"), "whole number")
_DECISION_COLUMNS = dict.fromkeys(("time", "queue", "running", "started"), "whole number") | {
    "ms": "number"
}


def _outages(found: Spans) -> Outages:
    """When nodes were out of service."""
    return Outages(found.node, found.begin_s, np.minimum(found.end_s, FOREVER))


def _lacking(found: Lacks) -> Lacking | None:
    """What nodes lacked of their capacity."""
    if not len(found.amount):
        return None
    of = _outages(found.of)
    return Lacking(of.node, of.begin_s, of.end_s, found.amount)


def _attempts(table: pa.Table, rows: IntArray, prefix: str) -> Attempts:
    """The attempts of a table, whose columns have names with this prefix."""
    start_s, end_s = (arrow.array(table.column(f"{prefix}{at}")) for at in ("start", "end"))
    offset, node = arrow.flat(table.column(f"{prefix}nodes"))
    _, units = arrow.flat(table.column(f"{prefix}node_units"))
    return Attempts(rows, start_s, end_s, offset, node, units)


def _read_beside(path: Path, columns: dict[str, str], jobs: pa.Table) -> pa.Table:
    """A table of a run that names jobs of the table of jobs."""
    found = _read_table(path, columns)
    if not np.isin(arrow.array(found.column("id")), arrow.array(jobs.column("id"))).all():
        problem = "the table of jobs lacks a job that is named here"
        advice = "make the run again with --overwrite"
        raise InputError(problem, file=path, field="id", advice=advice)
    return found


def _with_restarts(restarts: bool | None, restartable: int, idempotent: bool, events: bool) -> bool:
    """Whether a run's jobs could be restarted.

    Earlier versions did not say it: where events happened, no job could be. The first ones said
    ``idempotent`` alone.
    """
    return not events and (restartable > 0 or idempotent) if restarts is None else restarts


def _job_columns(about: _About) -> dict[str, str]:
    """The columns that a table of jobs needs, and what each holds."""
    numbers = ["id", "submit", "start", "end", "units", "requested_s", "runtime_s", "expected_s"]
    numbers += [f"request_{name}" for name in about.system.resources]
    numbers += ["preceding", "think_s"] * about.dependencies
    events = about.events is not None
    restarts = _with_restarts(about.restarts, about.restartable, about.idempotent, events)
    numbers += ["lost_start", "lost_end"] * restarts
    numbers += ["requeued"] * (about.events is not None)
    lists = ["nodes", "node_units", *["lost_nodes", "lost_node_units"] * restarts]
    kinds = dict.fromkeys(numbers, "whole number") | dict.fromkeys(lists, "list of whole numbers")
    flags = dict.fromkeys(["killed", *["failed"] * (about.events is not None)], "truth value")
    return {**kinds, **flags, "reason": "text", "user": "name or number"}


def _read_table(path: Path, columns: dict[str, str]) -> pa.Table:
    """A table of a run, each of whose columns holds what it has to, on every row."""
    again = "make the run again with --overwrite"
    table = read_parquet(path).replace_schema_metadata(None)
    for name, kind in columns.items():
        if table.column_names.count(name) != 1:
            problem = "the table lacks the column or has it twice"
            raise InputError(problem, file=path, field=name, advice=again)
        column = table.column(name)
        if not _holds(column, kind):
            problem = f"the column needs a {kind} on each row"
            raise InputError(problem, file=path, field=name, advice=again)
        nodes = name.removesuffix("node_units") + "nodes"
        if name.endswith("node_units") and not _as_long(column, table.column(nodes)):
            problem = f"the lists of some rows are not as long as those of {nodes}"
            raise InputError(problem, file=path, field=name, advice=again)
    return table


def _as_long(one: pa.ChunkedArray[Any], other: pa.ChunkedArray[Any]) -> bool:
    """Whether the lists of two columns have the same lengths."""
    (first, _), (second, _) = arrow.flat(one), arrow.flat(other)
    return np.array_equal(first, second)


def _holds(column: pa.ChunkedArray[Any], kind: str) -> bool:
    """Whether a column is of a kind, and its numbers are some that can be counted with.

    A name or a number may be unknown; all else is stated on every row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    held = column.type
    if kind == "name or number":
        held = held.value_type if pa.types.is_dictionary(held) else held
        return pa.types.is_string(held) or pa.types.is_integer(held)
    if column.null_count:
        return False
    if kind == "truth value":
        return pa.types.is_boolean(held)
    if kind == "text":
        held = held.value_type if pa.types.is_dictionary(held) else held
        return pa.types.is_string(held) or pa.types.is_large_string(held)
    if kind == "number":
        return pa.types.is_floating(held)
    if kind == "list of whole numbers":
        if not (pa.types.is_list(held) or pa.types.is_large_list(held)):
            return False
        return _holds(cast("pa.ChunkedArray[Any]", pc.list_flatten(column)), "whole number")
    if not pa.types.is_integer(held):
        return False
    least, most = pc.min(column).as_py(), pc.max(column).as_py()
    return least is None or bool(least >= -LIMIT and most <= LIMIT)


def about_of(folder: Path) -> dict[str, Any]:
    """The content of run.json in the folder of a run, see `Run`.

    Raises
    ------
    InputError
        When the folder holds no finished run or what it says is damaged.
    """
    return _read_about(folder)[1]


def _read_about(folder: Path) -> tuple[_About, dict[str, Any]]:
    """The checked fields of run.json, and its whole content."""
    path = folder / ABOUT
    if not path.exists():
        raise InputError(
            f"holds no finished run ({ABOUT} is missing)" if folder.exists() else "no such folder",
            file=folder, advice="name the folder that simulate was given as --out",
        )  # fmt: skip
    content = read_text(path)
    known = parse_json(content, _About, f"the {ABOUT} of a run", path)
    try:
        from_file(known.system)
    except InputError as error:
        raise InputError(str(error), file=path) from error
    about: dict[str, Any] = msgspec.json.decode(content)
    about["system"].setdefault("name", known.system.name)
    return known, about


class Recorded(Protocol):
    """What the tables of a run are made of."""

    @property
    def workload(self) -> Workload:
        """The jobs."""
        ...

    @property
    def system(self) -> System:
        """Where they ran."""
        ...

    @property
    def records(self) -> Records:
        """What became of them."""
        ...

    @property
    def dependencies(self) -> bool:
        """Whether they waited for the jobs that they depend on."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """Jobs that have all ended, and the dispatches among them: what tables are made of."""

    workload: Workload
    system: System
    records: Records
    dependencies: bool = False


def run_of(simulation: Simulation | CompiledSimulation, about: dict[str, Any]) -> Run:
    """The run that a simulation has recorded."""
    return Run(
        {
            **about,
            "system": system_as_dict(simulation.system),
            "promises": not isinstance(simulation, CompiledSimulation),
        },
        job_table(simulation),
        decision_table(simulation),
        simulation.workload,
        *_of_events(simulation),
        None if isinstance(simulation, CompiledSimulation) else promise_table(simulation),
        _switched_table(simulation),
    )


def _switched_table(simulation: Simulation | CompiledSimulation) -> pa.Table | None:
    """Each time that a node was off; None where none could be."""
    import pyarrow as pa

    if isinstance(simulation, CompiledSimulation) or simulation.switched is None:
        return None
    rows = np.array(simulation.switched, dtype=np.int64).reshape(-1, len(SWITCHES)).T
    columns: dict[str, Any] = {
        name: arrow.numbers(row) for name, row in zip(SWITCHES, rows, strict=True)
    }
    return pa.table(columns)


def _of_events(
    simulation: Simulation | CompiledSimulation,
) -> tuple[pa.Table | None, tuple[Event, ...] | None]:
    """The attempts that node failures ended, and what happened; nothing where nothing can."""
    import pyarrow as pa

    if isinstance(simulation, CompiledSimulation) or simulation.happened is None:
        return None, None
    row, (start_s, end_s, saved_s, test), (offset, node, units) = simulation.records.attempts()
    columns: dict[str, Any] = {
        "id": arrow.numbers(simulation.workload.table.id[row]),
        "start": arrow.numbers(start_s),
        "end": arrow.numbers(end_s),
        "nodes": arrow.lists(offset, node),
        "node_units": arrow.lists(offset, units),
    }
    if simulation.checkpoints:
        columns["saved_s"] = arrow.numbers(saved_s)
    if simulation.workload.table.restartable.any():
        columns["test"] = arrow.flags(test == 1)
    return pa.table(columns), tuple(simulation.happened)


def promise_table(simulation: Recorded) -> pa.Table:
    """The first promise to each job that was given one, see `Run`."""
    import pyarrow as pa

    records = simulation.records
    rows = (records.promised_s[1] != NOT_STARTED).nonzero()[0]
    columns: dict[str, Any] = {
        "id": arrow.numbers(simulation.workload.table.id[rows]),
        "at": arrow.numbers(records.promised_s[0, rows]),
        "start": arrow.numbers(records.promised_s[1, rows]),
    }
    return pa.table(columns)


def job_table(simulation: Recorded) -> pa.Table:
    """One row a job, see `Run`."""
    import pyarrow as pa

    table, records = simulation.workload.table, simulation.records
    offset, node, units = records.placements()
    columns: dict[str, Any] = {
        "id": arrow.numbers(table.id),
        "submit": arrow.numbers(table.submit_s),
        "start": arrow.numbers(records.start_s),
        "end": arrow.numbers(records.end_s),
        "units": arrow.numbers(table.units),
        "nodes": arrow.lists(offset, node),
        "node_units": arrow.lists(offset, units),
        "requested_s": arrow.numbers(table.requested_s),
        "runtime_s": arrow.numbers(simulation.workload.runtime_s),
        "expected_s": arrow.numbers(records.expected_s),
        "killed": arrow.flags(records.killed & (records.start_s >= 0)),
        "reason": arrow.texts(records.reason, [reason.name.lower() for reason in Reason]),
    }
    if simulation.dependencies:
        columns["preceding"] = arrow.numbers(simulation.workload.preceding)
        columns["think_s"] = arrow.numbers(simulation.workload.think_s)
    if len(records.failed):
        columns["requeued"] = arrow.numbers(records.requeued)
        columns["failed"] = arrow.flags(records.failed)
    restartable = table.restartable == 1
    if not restartable.all() and (len(records.failed) or restartable.any()):
        columns["restartable"] = arrow.flags(restartable)
    if restartable.any():
        offset, node, units = records.lost_placements()
        if records.test.any():
            columns["test"] = arrow.texts(records.test, [test.name.lower() for test in Test])
        columns["lost_start"] = arrow.numbers(records.lost_start_s)
        columns["lost_end"] = arrow.numbers(records.lost_end_s)
        columns["lost_nodes"] = arrow.lists(offset, node)
        columns["lost_node_units"] = arrow.lists(offset, units)
    for kind, name in enumerate(simulation.system.resources):
        columns[f"request_{name}"] = arrow.numbers(table.column(Column.REQUEST + kind))
    if simulation.system.watts:
        columns["energy_j"] = arrow.numbers(_joules(simulation))
    for name in LABELLED:
        codes, labels = table.column(Column[name.upper()]), table.labels.get(name)
        columns[name] = arrow.numbers(codes) if labels is None else arrow.texts(codes, labels)
    columns["priority"] = arrow.numbers(table.priority)
    if any(partition.tier != USUAL_TIER for partition in simulation.system.partitions):
        columns["tier"] = arrow.numbers(np.ascontiguousarray(table.tier))
    workload = simulation.workload
    for name in WISHES:
        if any(getattr(access, name) for access in workload.access):
            columns[name] = arrow.texts(*workload.asked(name))
    if (exclusive := workload.exclusive()).any():
        columns["exclusive"] = arrow.flags(exclusive == 1)
    if workload.together is not None:
        columns["together"] = arrow.numbers(workload.together)
        for name in SPREADS:
            if (asked := workload.spreads(name)).any():
                columns[name] = arrow.numbers(np.ascontiguousarray(asked))
    if workload.begin_s is not None:
        columns["begin"] = arrow.numbers(workload.begin_s)
    for name in TERMS:
        if any(getattr(terms, name) for terms in workload.terms):
            columns[name] = arrow.texts(*workload.asked(name))
    if (limit := workload.array_limit()).any():
        columns["array_limit"] = arrow.numbers(np.ascontiguousarray(limit))
    return pa.table(columns)


def _joules(simulation: Recorded) -> IntArray:
    """What each job drew, attempts that were lost among it."""
    records, system = simulation.records, simulation.system
    request = simulation.workload.table.request
    ran_s = np.where(records.start_s >= 0, records.end_s - records.start_s, 0)
    found: IntArray = ran_s * watts_of(system, request, *records.placements())
    if len(records.lost_start_s):
        lost_s = records.lost_end_s - records.lost_start_s
        found += lost_s * watts_of(system, request, *records.lost_placements())
    row, (start_s, end_s, *_), placements = records.attempts()
    np.add.at(found, row, (end_s - start_s) * watts_of(system, request[row], *placements))
    return found


def decision_table(simulation: Recorded) -> pa.Table:
    """One row a dispatch, see `Run`."""
    import pyarrow as pa

    numbers, texts, limit_hit = simulation.records.decisions()
    columns = {name: arrow.texts(codes, names) for name, (codes, names) in texts.items()}
    columns |= {name: arrow.numbers(column) for name, column in numbers.items()}
    return pa.table(columns | {"limit_hit": arrow.flags(limit_hit)})


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    def keep(kind: pa.DataType) -> pd.ArrowDtype | None:
        return pd.ArrowDtype(kind) if pa.types.is_nested(kind) else None

    frame: pd.DataFrame = table.to_pandas(types_mapper=keep)
    return frame
