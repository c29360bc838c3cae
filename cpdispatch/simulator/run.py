"""A finished simulation: tables of jobs and dispatches, metrics, and the folder it is kept in."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from cpdispatch import access, verify
from cpdispatch.analyze import metrics as figures
from cpdispatch.analyze.energy import Drawn, Off, watts_of
from cpdispatch.analyze.energy import summary as energy_summary
from cpdispatch.analyze.explain import Explanation, explain, row_of
from cpdispatch.analyze.metrics import ScheduleColumns
from cpdispatch.analyze.moment import Moment, moment
from cpdispatch.analyze.occupancy import (
    FOREVER,
    NEVER,
    NO_ATTEMPTS,
    NO_OUTAGES,
    Announced,
    Attempts,
    Lacking,
    Occupancy,
    Outages,
)
from cpdispatch.analyze.under_cap import UnderCap
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import UNTOLD, Reason
from cpdispatch.energy import ENERGY_PRICE, POWER_CAP, of_told
from cpdispatch.events import FAIL, MAINTAIN, Event, WindowRow, as_csv, with_maintenance
from cpdispatch.events import load as load_events
from cpdispatch.files import write_bytes, writing
from cpdispatch.jobs import UNKNOWN, Workload
from cpdispatch.simulator import arrow
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.simulator.kept_back import being_cleared, kept_back
from cpdispatch.simulator.saved import (
    ABOUT,
    ATTEMPT_COLUMNS,
    ATTEMPTS,
    DECISION_COLUMNS,
    DECISIONS,
    EVENTS,
    JOBS,
    PROMISE_COLUMNS,
    PROMISES,
    SCHEDULE,
    SWITCHED,
    SWITCHES,
    job_columns,
    read_about,
    read_beside,
    read_table,
    with_restarts,
)
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.simulator.tables import (
    attempt_table,
    decision_table,
    job_table,
    promise_table,
    switched_table,
)
from cpdispatch.system import System, SystemFile, from_file, system_as_dict
from cpdispatch.verify import Service, Told
from cpdispatch.verify.limits import limited
from cpdispatch.verify.service import Lacks, Spans, downtimes, drains, lacks
from cpdispatch.workloads import swf

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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
        reason = self.job_table.column("reason")
        for figure, why in (
            ("jobs_never_fit", Reason.NEVER_FITS),
            ("jobs_refused", Reason.REJECTED),
        ):
            found[figure] = int(arrow.is_text(reason, why.name.lower()).sum())
        return found | self._energy()

    @property
    def restarts(self) -> bool:
        """Whether jobs could be restarted."""
        about = self.about
        return with_restarts(
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
            off = Off(*arrow.arrays(table, *SWITCHES))
        return energy_summary(self.drawn(), first_s, self.system, cap, price, off)

    def drawn(self) -> Drawn:
        """What jobs drew and when, attempts that were lost among them."""
        table, lost = self.job_table, self._lost()
        start_s, end_s = arrow.arrays(table, "start", "end")
        ran = (start_s >= 0).nonzero()[0]
        again = (lost.start_s >= 0).nonzero()[0]
        system, request = self.system, self._request()
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

    def jobs_started(self) -> str:
        """A checksum of the numbers of the jobs that started; empty after a replay by windows."""
        if "id" not in self.job_table.column_names:
            return ""
        number, start_s = (arrow.array(self.job_table.column(name)) for name in ("id", "start"))
        return sha256(np.sort(number[start_s >= 0]).tobytes()).hexdigest()

    def schedule(self) -> ScheduleColumns:
        """The columns that metrics are computed from."""
        table = self.job_table
        submit, start, end, units = arrow.arrays(table, "submit", "start", "end", "units")
        reason = table.column("reason")
        untold = arrow.is_text(reason, UNTOLD).any()
        return ScheduleColumns(
            submit_s=submit,
            start_s=start,
            end_s=end,
            units=units,
            request=self._request(),
            backfilled=None if untold else arrow.is_text(reason, Reason.BACKFILLED.name.lower()),
            capacity=access.total(self.system),
            lost_s=self._lost_s(),
            saved_s=self._kept_s(),
            requeued=None if self.happened is None else arrow.array(table.column("requeued")),
            failed=self._failed(),
            test=self._test(),
            once=self.system.once,
            resources=self.system.resources,
        )

    def _column(self, name: str) -> IntArray | None:
        """A column of the table of jobs; None where it has none of that name."""
        there = name in self.job_table.column_names
        return arrow.array(self.job_table.column(name)) if there else None

    def _request(self) -> IntArray:
        """What a unit of each job asks for, shape (jobs, resources)."""
        names = (f"request_{kind}" for kind in self.system.resources)
        return np.stack([*arrow.arrays(self.job_table, *names)], axis=1)

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
        row = np.array([row_of(t, job)])
        return explain(self._under_cap(row, t.submit_s, until_s), job)

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
        """The schedule, with when a power cap kept these jobs back, see `UnderCap.kept_back`."""
        return self.occupancy if self._cap is None else self._cap.kept_back(rows, from_s, until_s)

    @cached_property
    def _cap(self) -> UnderCap | None:
        """The schedule under its power cap; None where there was none."""
        cap = of_told(POWER_CAP, self.about.get(POWER_CAP))
        return None if cap is None else UnderCap(self.occupancy, self.drawn(), cap)

    @cached_property
    def occupancy(self) -> Occupancy:
        """The schedule as what was held when, see `cpdispatch.analyze.occupancy.Occupancy`."""
        table = self.job_table
        names = ("id", "submit", "start", "end", "units", "requested_s", "expected_s")
        columns = dict(zip(names, arrow.arrays(table, *names), strict=True))
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
            request=self._request(),
            reason=reason,
            reasons=reasons,
            final=replace(final, end_s=end_s),
            lost=lost,
            lost_stop_s=self._lost_stop_s(lost, lost_test),
            lost_test=lost_test,
            preceding=self._column("preceding"),
            think_s=self._column("think_s"),
            down=_outages(downtimes(happened)),
            drained=_outages(drains(happened)),
            off=self._off(),
            announced=self._announced(columns["submit"]),
            lacking=_lacking(lacks(happened, self.system)),
            promised_at_s=promised_at_s,
            promised_s=promised_s,
            decision_s=arrow.array(self.decision_table.column("time")),
            saved_s=self._saved_s(),
            failed=self._failed(),
            priority=self._column("priority"),
            tier=self._column("tier"),
        )
        if not limited(self.jobs, self.system):
            return replace(schedule, behind=being_cleared(lost, schedule.lost_stop_s))
        by_event = self.about.get("trigger") == "event"
        stopped = self._stopped_by_nodes()
        happened_s = {time for each in happened for time in (each.time_s, *each.turns)}
        behind = kept_back(
            self.jobs, self.system, stopped, schedule.last_s, by_event=by_event,
            happened_s=happened_s,
        )  # fmt: skip
        return replace(schedule, behind=behind)

    def _announced(self, submit_s: IntArray) -> Announced:
        """The maintenance windows: those that came, and those of the system."""
        events = with_maintenance(None, self.system, submit_s)
        found = [
            (node, row.time_s, row.until_s, row.known_s)
            for row in (() if events is None else events.rows)
            if isinstance(row, WindowRow)
            for node in self.system.named_nodes(row.nodes)
        ]
        found += [
            (node, came.time_s, came.until_s, came.known_s)
            for came in self.happened or ()
            if came.kind == MAINTAIN
            for node in came.nodes
        ]
        return Announced(*np.array(sorted(set(found)), dtype=np.int64).reshape(-1, 4).T)

    def _off(self) -> Outages:
        """When nodes were switched off, until they were back."""
        if self.switched_table is None:
            return NO_OUTAGES
        node, off_s, on_s = arrow.arrays(self.switched_table, "node", "off", "on")
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
        which, *promised = arrow.arrays(self.promise_table, "id", "at", "start")
        found[:, self._rows(which)] = promised
        return found[0], found[1]

    def _lost_s(self) -> IntArray | None:
        """Time on the nodes of each job's lost attempts; None where there can be none."""
        table = self.job_table
        lost_s = np.zeros(table.num_rows, dtype=np.int64)
        if self.restarts:
            start_s, end_s = arrow.arrays(table, "lost_start", "lost_end")
            lost_s += end_s - start_s
        if self.attempt_table is None:
            return lost_s if self.restarts else None
        which, start_s, end_s = arrow.arrays(self.attempt_table, "id", "start", "end")
        np.add.at(lost_s, self._rows(which), end_s - start_s)
        kept_s = self._kept_s()
        return lost_s if kept_s is None else lost_s - kept_s

    def _failed(self) -> NDArray[np.bool_] | None:
        """Which jobs ended as failed; None where nothing happened to the system."""
        return None if self.happened is None else arrow.array(self.job_table.column("failed"))

    def _kept_s(self) -> IntArray | None:
        """What checkpoints have kept of each job in the end; None without checkpoints."""
        saved_s = self._saved_s()
        return None if saved_s is None else figures.kept_s(saved_s, self._failed())

    def _saved_s(self) -> IntArray | None:
        """What checkpoints have kept of each job's earlier runs; None without checkpoints."""
        table = self.attempt_table
        if table is None or "saved_s" not in table.column_names:
            return None
        saved_s = np.zeros(self.job_table.num_rows, dtype=np.int64)
        which, kept_s = arrow.arrays(table, "id", "saved_s")
        np.add.at(saved_s, self._rows(which), kept_s)
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
            with writing(folder / name) as stream:  # Arrow takes no path that is not UTF-8
                pq.write_table(
                    table, stream, compression="zstd", row_group_size=arrow.PART,
                    write_page_checksum=True,
                )  # fmt: skip
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
            stream.write(swf.header_of_schedule(workload, self.system))
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
        known, about = read_about(folder)
        jobs = read_table(folder / JOBS, job_columns(known))
        decisions = read_table(folder / DECISIONS, DECISION_COLUMNS)
        promises = attempts = happened = switched = None
        if known.switch_off_s is not None:
            switched = read_table(folder / SWITCHED, dict.fromkeys(SWITCHES, "whole number"))
        if known.promises:
            promises = read_beside(folder / PROMISES, PROMISE_COLUMNS, jobs)
        if known.events is not None:
            saved = {} if known.events.checkpoints is None else {"saved_s": "whole number"}
            saved |= {"test": "truth value"} if known.restarts else {}
            attempts = read_beside(folder / ATTEMPTS, ATTEMPT_COLUMNS | saved, jobs)
            happened = tuple(load_events(folder / EVENTS, from_file(known.system)))
        return cls(about, jobs, decisions, None, attempts, happened, promises, switched)


def write_schedule(stream: BinaryIO, workload: Workload, table: pa.Table) -> None:
    """Write the jobs of a workload as lines of SWF, as the table of jobs says that they ran."""
    start, end, submit = arrow.arrays(table, "start", "end", "submit")
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
    start_s, end_s = arrow.arrays(table, f"{prefix}start", f"{prefix}end")
    offset, node = arrow.flat(table.column(f"{prefix}nodes"))
    _, units = arrow.flat(table.column(f"{prefix}node_units"))
    return Attempts(rows, start_s, end_s, offset, node, units)


def run_of(simulation: Simulation | CompiledSimulation, about: dict[str, Any]) -> Run:
    """The run that a simulation has recorded."""
    promises = attempts = happened = switched = None
    if not isinstance(simulation, CompiledSimulation):
        promises = promise_table(simulation)
        if simulation.happened is not None:
            attempts, happened = attempt_table(simulation), tuple(simulation.happened)
        if simulation.switched is not None:
            switched = switched_table(simulation.switched)
    return Run(
        about | {"system": system_as_dict(simulation.system), "promises": promises is not None},
        job_table(simulation),
        decision_table(simulation),
        simulation.workload,
        attempts,
        happened,
        promises,
        switched,
    )


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    def keep(kind: pa.DataType) -> pd.ArrowDtype | None:
        return pd.ArrowDtype(kind) if pa.types.is_nested(kind) else None

    frame: pd.DataFrame = table.to_pandas(types_mapper=keep)
    return frame
