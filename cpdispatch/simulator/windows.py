"""Replays of logs of which only a window is in memory at a time; results are written as they come.

The schedule is that of a compiled replay of the whole log, job by job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch import dispatch, predict
from cpdispatch.arrays import IntArray, ranges
from cpdispatch.compiled import layout
from cpdispatch.compiled.memory import BEFOREHAND, take
from cpdispatch.compiled.replay import Replay, Replays
from cpdispatch.compiled.window import go_on, staying
from cpdispatch.decision import Reason
from cpdispatch.dispatch import DEFAULTS, Settings
from cpdispatch.errors import InputError, InterruptedRunError, UsageError
from cpdispatch.files import writing
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import JobTable, Workload
from cpdispatch.predict import Predictor, memory_of
from cpdispatch.simulator import arrow
from cpdispatch.simulator.compiled import as_known, replayable
from cpdispatch.simulator.records import NOT_STARTED, Records
from cpdispatch.simulator.replay import SWITCH_OFF, Fingerprint, about_run, without_priority
from cpdispatch.simulator.run import Run, write_schedule
from cpdispatch.simulator.saved import DECISIONS, JOBS, SCHEDULE
from cpdispatch.simulator.tables import Done, decision_table, job_table
from cpdispatch.system import USUAL_TIER, System, system_as_dict
from cpdispatch.workloads import swf

if TYPE_CHECKING:
    import pyarrow as pa

_EVENTS = 1 << 16


def simulate(
    parts: Iterable[tuple[Workload, System]],
    folder: Path,
    dispatcher: str = "easy",
    *,
    predictor: str | None = None,
    trigger: str = "instant",
    correction: str = "minimal",
    kill_at_limit: bool = False,
    settings: Settings = DEFAULTS,
    place: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Replay a log by parts, and write the run's folder meanwhile.

    Parameters
    ----------
    parts : iterable of (Workload, System)
        Parts of one log in order, each fitted to the same system, see
        `cpdispatch.workloads.prepare`.
    folder : Path
        Where the run is kept, see `Run.save`.
    dispatcher : str
        One of the backfilling family with at most one reservation, without test runs and a bound
        on waits.
    predictor : str, optional
        One that knows durations beforehand: ``walltime`` or ``actual``.
    trigger, correction, kill_at_limit, settings
        See `cpdispatch.simulator.simulate`.
    place : int
        Which of the runs it is that were made together.
    stop : callable
        Asked now and then; when true, `InterruptedRunError` is raised, and nothing is kept.

    Returns
    -------
    Run
        With only the columns that metrics need; `Run.load` reads all of it.

    Raises
    ------
    UsageError
        When the dispatcher or the predictor needs the whole log.
    """
    rules = {"trigger": trigger, "correction": correction, "kill_at_limit": bool(kill_at_limit)}
    made, windows = _begun(parts, dispatcher, predictor, rules, settings, stop)
    with _Folder(folder) as files:
        for done in windows.go():
            files.add(done)
    first, notes = windows.first, dict(windows.notes)
    if not windows.prioritised:
        notes |= without_priority(made, windows.jobs)
    general = (
        dict.fromkeys(("starvation", "events", SWITCH_OFF))
        | {"data": ()}
        | dict.fromkeys(("dependencies", "idempotent"), False)
    )
    names = {"dispatcher": made.name, "predictor": windows.predictor.name, "restart_cost_s": 0}
    names |= dispatch.said_in_file(dispatcher)
    about = about_run(first, windows.system, names | rules | general, settings) | {
        "workload_sha256": str(windows.fingerprint), "notes": notes,
        "restartable": 0, "restarts": False, "compiled": True, "promises": False,
        "seconds": windows.seconds, "place": place, "draw": 0,
        **dispatch.rule_of(made, windows.tiered),
    }  # fmt: skip
    return _figures(folder, about)


def check(
    parts: Iterable[tuple[Workload, System]],
    dispatcher: str,
    predictor: str | None,
    rules: dict[str, Any],
    settings: Settings,
) -> None:
    """Raise now what would be wrong with a replay; no more than the first part is read.

    ``rules`` are ``trigger``, ``correction`` and ``kill_at_limit``, see `simulate`.
    """
    _, begun = _begun(parts, dispatcher, predictor, rules, settings, lambda: False)
    begun.prepared(begun.first)


def _begun(
    parts: Iterable[tuple[Workload, System]], dispatcher: str, predictor: str | None,
    rules: dict[str, Any], settings: Settings, stop: Callable[[], bool],
) -> tuple[dispatch.Dispatcher, _Windows]:  # fmt: skip
    """The dispatcher, and its replay before the first event."""
    made = dispatch.make(dispatcher, settings, warm=dispatch.not_at_all)
    rule = _by_windows(made, rules["trigger"], rules["correction"])
    named = predictor or dispatch.predictor_of(made)
    return made, _Windows(parts, rule, named, settings, rules, stop)


def _by_windows(made: dispatch.Dispatcher, trigger: str, correction: str) -> Backfill | Reject:
    """The dispatcher, if it needs no more than a window of the log."""
    if correction == "refresh":
        raise UsageError(
            "correction refresh asks the predictor while jobs run, and replays by windows ask "
            "none: leave --window out, or name another --correction"
        )
    if isinstance(made, Backfill | Reject) and (
        isinstance(made, Reject) or (made.depth <= 1 and not made.test_s)
    ):
        if replayable(made, trigger):
            return made
        if replayable(made, "instant"):
            raise UsageError(
                f"dispatcher {made.name} cannot be replayed by windows with the trigger event: "
                "leave --window or limits= out, or use --trigger instant"
            )
    raise UsageError(
        f"dispatcher {made.name} cannot be replayed by windows: those that can are of the "
        "backfilling family, with at most one reservation, and without test runs and a bound on "
        "waits; leave --window out, or name such a one, for example easy-saf-saf"
    )


class _Part:
    """A part of the log of which some jobs have not ended yet, and what became of the others."""

    def __init__(self, workload: Workload, system: System) -> None:
        self.workload = workload
        self.fits = np.flatnonzero(system_fits(system, workload.table))
        self.left = len(self.fits)
        jobs = len(workload)
        self.reason = np.full(jobs, Reason.NEVER_FITS, dtype=np.int8)
        self.reason[self.fits] = Reason.WAITS
        unknown = np.full((3, jobs), NOT_STARTED, dtype=np.int64)
        self.start_s, self.end_s, self.expected_s = unknown
        self._first, self._count = np.zeros((2, jobs), dtype=np.int64)
        self._entries = 0
        self._nodes: list[NDArray[Any]] = []
        self._units: list[NDArray[Any]] = []

    def ended(self, rows: IntArray, replay: Replay, jobs: IntArray) -> None:
        """Take note of what became of jobs of a replay, which are these rows of the part."""
        outcome, nodes = replay.tables.outcome, replay.nodes
        self.left -= len(rows)
        self.start_s[rows] = outcome[layout.START, jobs]
        self.end_s[rows] = outcome[layout.END, jobs]
        self.expected_s[rows] = outcome[layout.EXPECTED, jobs]
        self.reason[rows] = outcome[layout.REASON, jobs]
        started = outcome[layout.START, jobs] >= 0
        rows, jobs = rows[started], jobs[started]
        if nodes is None:
            count = np.ones(len(jobs), dtype=np.int64)
            node, units = np.zeros_like(jobs), replay.tables.jobs[layout.UNITS, jobs]
        else:
            count = outcome[layout.ENTRIES, jobs]
            pick = ranges(outcome[layout.FIRST_ENTRY, jobs], count)
            node, units = nodes.node[pick], nodes.units[pick]
        self._first[rows], self._count[rows] = self._entries + np.cumsum(count) - count, count
        self._entries += len(node)
        self._nodes.append(node.astype(np.int32))
        self._units.append(units.astype(np.int32))

    def records(self, kill_at_limit: bool) -> Records:
        """What became of the jobs."""
        found, table = Records(self.workload), self.workload.table
        if kill_at_limit:
            np.greater(self.workload.runtime_s, table.requested_s, out=found.killed)
        found.start_s, found.end_s = self.start_s, self.end_s
        found.expected_s, found.reason = self.expected_s, self.reason
        none = [np.empty(0, dtype=np.int32)]
        node, units = np.concatenate(none + self._nodes), np.concatenate(none + self._units)
        found.all_placed(slice(None), self._first, self._count, node, units)
        return found


class _Windows:
    """A replay by windows: the jobs that wait or run, the next part, and the first job after it."""

    def __init__(
        self, parts: Iterable[tuple[Workload, System]], rule: Backfill | Reject, predictor: str,
        settings: Settings, rules: dict[str, Any], stop: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._parts = iter(parts)
        self._stop = stop
        self._rule, self._rules = rule, rules
        self._open: deque[_Part] = deque()
        self._times: list[IntArray] = []
        self._counts: list[NDArray[np.int32]] = []
        self.notes: dict[str, int] = {}
        self.jobs, self.prioritised, self.tiered = 0, False, False
        """How many jobs have been read, and whether one had a priority, or a tier of its own."""
        self.seconds = 0.0
        """How long the replay took so far, without reading and writing."""
        self.first, self.system = next(self._parts)
        self.fingerprint = Fingerprint(self.first)
        self.predictor: Predictor = predict.make(predictor, self.first, settings.seed)
        memory = memory_of(self.predictor, self.first)
        if memory is None or memory.kind != BEFOREHAND:
            raise UsageError(
                f"predictor {self.predictor.name} cannot be replayed by windows, which ask none: "
                "name walltime or actual, or leave --window out"
            )
        if self.system.limits:
            raise UsageError(
                f"system {self.system.name} has limits, which no replay by windows keeps: leave "
                "--window out, or the system's limits"
            )

    def go(self) -> Iterator[Done]:
        """Replay to the end; the parts of the log in order, each once all its jobs have ended."""
        none = np.empty(0, dtype=np.int64)
        window = _Window(self.first, [], none, none)
        coming = self._read()
        part = next(coming, None)
        while part is not None:
            # Parts of which no job fits are not replayed.
            after, between = next(coming, None), []
            while after is not None and not len(after.fits):
                between.append(after)
                after = next(coming, None)
            self._open.extend([part, *between])
            if len(part.fits):
                window = self._replay(window, part, after)
            yield from self._ended()
            part = after
        assert not self._open, "a replay is over when all jobs have ended"

    def _read(self) -> Iterator[_Part]:
        """The parts, as they are needed."""
        for workload, system in chain([(self.first, self.system)], self._parts):
            if system_as_dict(system) != system_as_dict(self.system):
                raise InputError(
                    "its parts need different systems: each is fitted to what its own jobs ask "
                    "for, and some ask for other partitions than those of the first",
                    file=workload.name, advice="give a larger --window, or leave it out",
                )  # fmt: skip
            self.fingerprint.add(workload)
            self.jobs += len(workload)
            self.prioritised |= bool(workload.table.priority.any())
            self.tiered |= bool((workload.table.tier != USUAL_TIER).any())
            for note, count in workload.notes.items():
                self.notes[note] = self.notes.get(note, 0) + count
            yield _Part(workload, system)

    def _replay(self, before: _Window, part: _Part, after: _Part | None) -> _Window:
        """Replay until the first job of the next part is submitted, or to the end.

        The results of the jobs are written into their parts.
        """
        window = before.and_then(part, after)
        replay = window.replay = self._fresh(window.workload)
        if before.replay is not None:
            go_on(before.replay, replay, before.stay)
        last = len(window.rows)
        replay.tables.state.predicted = last
        replay.go(0)  # compiles, before the clock runs
        began, going = perf_counter(), True
        while going:
            if self._stop():
                raise InterruptedRunError("interrupted; a replay by windows begins anew")
            going = replay.go(_EVENTS) == layout.USED_UP
        self.seconds += perf_counter() - began
        count = int(replay.tables.state.dispatches)
        self._times.append(replay.dispatches.time_s[:count].copy())
        self._counts.append(replay.dispatches.counts[:, :count].copy())
        if after is not None:
            window.stay = staying(replay)
        ended = np.ones(last, dtype=np.bool_)
        ended[window.stay] = False
        for number, of in enumerate(window.parts):
            jobs = np.flatnonzero(ended & (window.part == number))
            if len(jobs):
                of.ended(window.rows[jobs], replay, jobs)
        return window

    def prepared(self, workload: Workload) -> Replays:
        """What replays of a part of the log have in common."""
        runtime_s = workload.runtime_s
        if self._rules["kill_at_limit"]:
            runtime_s = np.minimum(runtime_s, workload.table.requested_s)
        prepared = Replays(as_known(self.predictor, workload), self.system, runtime_s)
        if not prepared.is_pool and self.system.capacity.size == 1:
            raise InputError(
                "a job asks for no processor, which no replay by windows on a single pool takes",
                file=workload.name, advice="leave --window out",
            )  # fmt: skip
        return prepared

    def _fresh(self, workload: Workload) -> Replay:
        """A replay of a window that has not begun."""
        memory, prepared = memory_of(self.predictor, workload), self.prepared(workload)
        assert memory is not None
        return Replay(
            prepared, self._rule, take(memory, prepared.rows), recorded=True,
            trigger=self._rules["trigger"], correction=self._rules["correction"],
        )  # fmt: skip

    def _ended(self) -> Iterator[Done]:
        """The parts that come next in the log and have ended; the dispatches go with the first."""
        while self._open and not self._open[0].left:
            part = self._open.popleft()
            records = part.records(self._rules["kill_at_limit"])
            none = np.empty((3, 0), dtype=np.int32)
            times = np.concatenate([np.empty(0, dtype=np.int64), *self._times])
            records.replayed(self._rule.name, times, np.concatenate([none, *self._counts], axis=1))
            self._times.clear()
            self._counts.clear()
            yield Done(part.workload, self.system, records)


@dataclass(slots=True)
class _Window:
    """Jobs that are replayed together.

    These are the jobs that have not ended yet, the jobs of a part, and the first job of the next
    part. The last one is there so that its submission is known.
    """

    workload: Workload
    parts: list[_Part]
    """The parts that they are of."""
    part: IntArray
    """Of which of these each job is."""
    rows: IntArray
    """Which of its jobs."""
    replay: Replay | None = None
    stay: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The jobs that wait or run when the window is used up."""

    def and_then(self, part: _Part, after: _Part | None) -> _Window:
        """The next window."""
        left = [of for of in self.parts if of.left]
        number = np.array([left.index(of) if of.left else -1 for of in self.parts], dtype=np.int64)
        workloads = [self.workload.take(self.stay)] if len(self.stay) else []
        workloads.append(part.workload.take(part.fits))
        if after is not None:
            workloads.append(after.workload.take(after.fits[:1]))
        return _Window(
            _joined(workloads),
            [*left, part],
            np.concatenate((number[self.part[self.stay]], np.full(len(part.fits), len(left)))),
            np.concatenate((self.rows[self.stay], part.fits)),
        )


def _joined(workloads: list[Workload]) -> Workload:
    """One workload of several, of which only the jobs and their runtimes count."""
    if len(workloads) == 1:
        return workloads[0]
    block = np.concatenate([workload.table.block for workload in workloads], axis=1)
    runtime_s = np.concatenate([workload.runtime_s for workload in workloads])
    none = np.broadcast_to(np.int64(-1), len(runtime_s))
    return replace(
        workloads[0], table=JobTable(block, workloads[0].table.labels), runtime_s=runtime_s,
        preceding=none, think_s=none,
    )  # fmt: skip


class _Folder:
    """The files of a run that grow with its jobs; they take their places when all is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._tables: dict[str, Any] = {}
        self._schedule: Any = None

    def __enter__(self) -> _Folder:
        self._streams = {  # Arrow takes no path that is not UTF-8
            name: self._stack.enter_context(writing(self._folder / name))
            for name in (JOBS, DECISIONS)
        }
        self._schedule = self._stack.enter_context(writing(self._folder / SCHEDULE))
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            for table in self._tables.values():
                table.close()
        finally:
            self._stack.__exit__(*error)

    def add(self, done: Done) -> None:
        """Write what became of the next jobs."""
        jobs = job_table(done)
        if not self._tables:
            self._schedule.write(swf.header_of_schedule(done.workload, done.system))
        write_schedule(self._schedule, done.workload, jobs)
        self._write(JOBS, jobs)
        self._write(DECISIONS, decision_table(done))

    def _write(self, name: str, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        if name not in self._tables:
            self._tables[name] = pq.ParquetWriter(
                self._streams[name], table.schema, compression="zstd", write_page_checksum=True
            )
        self._tables[name].write_table(table, row_group_size=arrow.PART)


_NEEDED = ("submit", "start", "end", "units", "reason", "user")
_OF_ENERGY = ("nodes", "node_units")
"""What energy figures need beside, where the system says what it draws."""


def _figures(folder: Path, about: dict[str, Any]) -> Run:
    """The run with what metrics need of its tables; it is told of in the folder, at last."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.default_memory_pool().release_unused()
    requests = [f"request_{name}" for name in about["system"]["resources"]]
    names = [*_NEEDED, *(_OF_ENERGY if about["system"].get("watts") else ()), *requests]
    columns = [_narrow(folder / JOBS, name) for name in names]
    with (folder / DECISIONS).open("rb") as file:
        decisions = pq.read_table(file, columns=[])
    run = Run(about, pa.Table.from_arrays(columns, names), decisions)
    run.save_about(folder)
    return run


def _narrow(path: Path, name: str) -> Any:
    """A column of a table, read by parts; whole numbers of four bytes where they fit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as content, pq.ParquetFile(content) as file:
        groups = range(file.num_row_groups)
        parts = (file.read_row_group(k, [name], use_threads=False).column(0) for k in groups)
        if not pa.types.is_integer(file.schema_arrow.field(name).type):
            return pa.chunked_array([chunk for part in parts for chunk in part.chunks])
        column: NDArray[Any] = np.empty(file.metadata.num_rows, dtype=np.int32)
        small, begin = np.iinfo(np.int32), 0
        for part in map(arrow.array, parts):
            if part.min() < small.min or part.max() > small.max:
                column = column.astype(np.int64, copy=False)
            column[begin : begin + len(part)] = part
            begin += len(part)
    return arrow.numbers(column)
