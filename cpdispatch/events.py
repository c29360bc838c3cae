"""What happens to a system while it runs: nodes fail, are drained, lose resources, come back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.durations import plain_seconds
from cpdispatch.errors import InputError, UsageError, nearest, unknown
from cpdispatch.files import csv_of, csv_rows, other_commas
from cpdispatch.jobs import Column, Workload
from cpdispatch.parameters import count_of, pairs, values
from cpdispatch.system import LIMIT, System, is_own, ranges_of

FAIL, REPAIR, DRAIN, UNDRAIN = "fail", "repair", "drain", "undrain"
MAINTAIN, LEAVE, JOIN = "maintain", "leave", "join"
CAPACITY = "capacity"
KINDS = (FAIL, REPAIR, DRAIN, UNDRAIN, LEAVE, JOIN, MAINTAIN, CAPACITY)
"""What a row of a file of events can say."""
_ENDS = {FAIL: REPAIR, DRAIN: UNDRAIN, LEAVE: JOIN}
"""What takes a node out of service, and what brings it back; the three are apart."""
_STATES = {FAIL: "down", DRAIN: "drained", LEAVE: "out of the system"}
COLUMNS = ("time", "kind", "nodes")
OF_WINDOWS = ("until", "known")
"""Columns that only maintenance windows need."""
OF_CAPACITY = ("capacity",)
"""The column that only changes of capacity need."""
_MORE = (*OF_WINDOWS, *OF_CAPACITY)
REQUEUES = ("all", "restartable", "none")
"""Which jobs are queued again when their node fails."""
REQUEUES_MAX = 5
"""How often a job is queued again; when its node fails once more, it ends as failed."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to nodes."""

    time_s: int
    kind: str
    """One of `KINDS`."""
    nodes: tuple[int, ...]
    """Ascending."""
    until_s: int = 0
    """When a maintenance window is over; 0 for anything else."""
    known_s: int = 0
    """From when on a maintenance window is known; 0 for anything else."""
    capacity: tuple[tuple[str, int], ...] = ()
    """How much each of the nodes has of a resource type from then on, where its capacity changes;
    empty for anything else.
    """

    @property
    def turns(self) -> list[int]:
        """When it becomes known, where that is after the beginning of time, and is over."""
        return [at_s for at_s in (self.known_s, self.until_s) if at_s > 0]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a file of events, whose nodes are not looked up yet."""

    line: int
    time_s: int
    kind: str
    nodes: str


@dataclass(frozen=True, slots=True)
class WindowRow(Row):
    """A line of a file of events that is a maintenance window."""

    until_s: int
    known_s: int


@dataclass(frozen=True, slots=True)
class CapacityRow(Row):
    """A line of a file of events that changes what nodes have."""

    capacity: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """Failures that are drawn: a node runs for a random time, fails, and is back after a while."""

    name: str
    """The distribution of the time from a repair to the next failure."""
    mtbf_s: int
    """Its mean."""
    shape: float
    """Of the Weibull distribution; 1 for the exponential one."""
    repair_s: int
    """How long a node is down."""
    group: str = ""
    """The group of nodes; empty for all."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints that jobs write, from which they go on when they are queued again."""

    every_s: int
    """How long a job works from one to the next."""
    cost_s: int = 0
    """How long writing one takes; the job does not work meanwhile."""

    def with_cost(self, runtime_s: IntArray) -> IntArray:
        """How long jobs of these durations take with their checkpoints: none is made at the end."""
        found: IntArray = runtime_s + self.cost_s * ((np.maximum(runtime_s, 1) - 1) // self.every_s)
        return found

    def within(self, workload: Workload) -> Workload:
        """The workload whose jobs run, and may run, for so much longer as checkpoints take."""
        requested_s = self.with_cost(workload.table.requested_s)
        table = workload.table.having(Column.REQUESTED, requested_s)
        return replace(workload, table=table, runtime_s=self.with_cost(workload.runtime_s))

    def saved_s(self, ran_s: int) -> int:
        """How much of what a job has run is kept by its last checkpoint, seconds."""
        return ran_s - ran_s % (self.every_s + self.cost_s)


@dataclass(frozen=True, slots=True)
class Events:
    """What is to happen, before it is known to which system."""

    given: tuple[str, ...]
    """As on the command line: a file, or a distribution."""
    rows: tuple[Row, ...] = ()
    """Of the file."""
    draws: tuple[Draw, ...] = ()
    requeue: str = ""
    """Which jobs are queued again when their node fails, of `REQUEUES`; empty for those that may be
    restarted, or all where none may.
    """
    checkpoints: Checkpoints | None = None
    """None where jobs that are queued again start from nothing."""

    def told(self) -> dict[str, object]:
        """What a run tells of them: what was given, and what its results depend on."""
        digest = hashlib.sha256(repr((self.rows, self.draws)).encode()).hexdigest()
        found: dict[str, object] = {
            "given": list(self.given), "sha256": digest, "requeue": self.requeue
        }  # fmt: skip
        if self.checkpoints is not None:
            found["checkpoints"] = asdict(self.checkpoints)
        return found

    @property
    def file(self) -> str:
        """The file that the rows were read from."""
        return next((text for text in self.given if not _is_draw(text)), "<events>")

    def trace(self, system: System) -> list[Event]:
        """The events of the file, by time; a node that joins first leaves at time 0.

        Raises
        ------
        InputError
            When a node is none of the system's, fails while it is down, or is repaired while it
            is up; the same of a drain and its end; when two maintenance windows of a node meet;
            when a node would have more than the system says, or nothing.
        """
        joining = self._joining(system)
        out = {(LEAVE, node): 0 for node in joining}
        until_s: dict[int, int] = {}
        capacity, changed_s = system.capacity.copy(), np.full(system.nodes, -1)
        found = [Event(0, LEAVE, joining)] if joining else []
        for row in self.rows:
            nodes = _nodes(row.nodes, system, self.file, row.line)
            if isinstance(row, WindowRow):
                self._no_window(row, nodes, until_s, system)
                found.append(Event(row.time_s, row.kind, nodes, row.until_s, row.known_s))
                continue
            if isinstance(row, CapacityRow):
                self._resize(row, nodes, system, capacity, changed_s)
                found.append(Event(row.time_s, row.kind, nodes, capacity=row.capacity))
                continue
            for node in nodes:
                self._follow(row, node, out)
            found.append(Event(row.time_s, row.kind, nodes))
        return found

    def _joining(self, system: System) -> tuple[int, ...]:
        """The nodes that join before they leave: they are not there in the beginning."""
        first: dict[int, Row] = {}
        for row in self.rows:
            if row.kind in (LEAVE, JOIN):
                for node in _nodes(row.nodes, system, self.file, row.line):
                    first.setdefault(node, row)
        late = (node for node, row in first.items() if row.kind == JOIN and row.time_s > 0)
        return tuple(sorted(late))

    def _no_window(
        self, row: WindowRow, nodes: Iterable[int], until_s: dict[int, int], system: System
    ) -> None:
        """Note until when nodes are maintained, which they are not yet."""
        for node in nodes:
            if until_s.get(node, row.time_s) > row.time_s:
                raise InputError(
                    f"node {node} is maintained until {until_s[node]} already",
                    file=self.file if row.line else f"system {system.name}",
                    line=row.line or None, field="time", value=row.time_s,
                    advice="write one window for both, or a later time",
                )  # fmt: skip
            until_s[node] = row.until_s

    def _resize(
        self, row: CapacityRow, nodes: Sequence[int], system: System, capacity: IntArray,
        changed_s: IntArray,
    ) -> None:  # fmt: skip
        """Note what nodes have from then on, and that their capacity changed then."""
        wrong = partial(InputError, file=self.file, line=row.line)
        of_capacity = partial(wrong, field="capacity")
        own = [name for name in system.resources if is_own(name)]
        for name, amount in row.capacity:
            text = f"{name}={amount}"
            if name not in own:
                raise of_capacity(
                    f"system {system.name} has no such resource type{nearest(name, own)}",
                    value=text, advice=f"one of {', '.join(own)}",
                )  # fmt: skip
            kind = system.resource(name)
            for node in nodes:
                most = int(system.capacity[node, kind])
                if amount > most:
                    raise of_capacity(
                        f"node {node} has {most} {name} by the system's file", value=text,
                        advice="write this or less: the system's file states the most that is "
                        "ever there",
                    )  # fmt: skip
                capacity[node, kind] = amount
        for node in nodes:
            if not any(capacity[node, system.resource(name)] for name in own):
                has = " ".join(f"{name}={amount}" for name, amount in row.capacity)
                raise of_capacity(
                    f"node {node} has nothing left", value=has,
                    advice=f"write {FAIL} or {LEAVE} as kind",
                )  # fmt: skip
            if changed_s[node] == row.time_s:
                raise wrong(
                    f"the capacity of node {node} changes twice in the same second", field="time",
                    value=row.time_s, advice="write one row with all that changes",
                )  # fmt: skip
            changed_s[node] = row.time_s

    def _follow(self, row: Row, node: int, out: dict[tuple[str, int], int]) -> None:
        """Note what happens to a node; ``out`` has since when each one is down, or drained."""

        def wrong(problem: str, advice: str) -> InputError:
            return InputError(
                problem, file=self.file, line=row.line, field="kind", value=row.kind, advice=advice
            )

        if row.kind in _ENDS:
            state, ends = _STATES[row.kind], _ENDS[row.kind]
            if (row.kind, node) in out:
                raise wrong(
                    f"node {node} is {state} since {out[row.kind, node]}",
                    f"write its {ends} before, or leave the row out",
                )
            out[row.kind, node] = row.time_s
            return
        begins = next(kind for kind, ends in _ENDS.items() if ends == row.kind)
        if (begins, node) not in out:
            raise wrong(
                f"node {node} is not {_STATES[begins]}", f"write a row with {begins} before it"
            )
        if out.pop((begins, node)) == row.time_s:
            raise wrong(
                f"node {node} has {begins} and {row.kind} in the same second",
                "write a later time, or leave both rows out",
            )

    def drawn(self, system: System) -> dict[int, Draw]:
        """How the failures of each node are drawn.

        Raises
        ------
        UsageError
            When a group is none of the system's, a node is meant twice, or there is one node only.
        """
        found: dict[int, Draw] = {}
        names = [group.site_name for group in system.groups]
        for draw in self.draws:
            if draw.group and draw.group not in names:
                raise UsageError(
                    f"--events {draw.name}, group={draw.group}: system {system.name} has no group "
                    f"of this name{nearest(draw.group, names)} (it has: "
                    f"{', '.join(dict.fromkeys(names))})"
                )
            if system.nodes == 1:
                raise UsageError(
                    f"--events {draw.name}: system {system.name} is one node, so that a failure "
                    "would stop all jobs at once: name a system of several nodes, as a file "
                    "(--system machine.toml)"
                )
            for node, group in enumerate(system.group_of.tolist()):
                if draw.group in ("", names[group]):
                    if node in found:
                        raise UsageError(
                            f"--events {draw.name}: failures of the group {names[group]} are drawn "
                            "twice: name another group in each"
                        )
                    found[node] = draw
        return found

    def within(self, workload: Workload) -> Workload:
        """The workload as it is replayed: jobs take longer where they write checkpoints."""
        return workload if self.checkpoints is None else self.checkpoints.within(workload)

    def requeues(self, workload: Workload) -> BoolArray:
        """Which jobs are queued again when a node fails under them, shape (jobs,).

        Without a choice those that may be restarted; all, where none may.
        """
        restartable: BoolArray = workload.table.restartable == 1
        if self.requeue == "restartable" or (not self.requeue and restartable.any()):
            return restartable
        return np.full(len(workload), self.requeue != "none")

    def check(self, system: System) -> None:
        """Raise now what would be wrong in a run on this system.

        Raises
        ------
        UsageError, InputError
        """
        if not self.given and not system.maintenance:
            option = f"--requeue {self.requeue}" if self.requeue else "--checkpoints"
            raise UsageError(
                f"{option} needs --events or a system with maintenance: without them no node fails"
            )
        self.trace(system)
        self.drawn(system)


# ------------------------------------------------------------------------------- the command line


def read(given: str | Iterable[str], requeue: str = "", checkpoints: str | None = None) -> Events:
    """Read events.

    Parameters
    ----------
    given : str or several
        A CSV file with the columns ``time``, ``kind`` and ``nodes``, for maintenance windows
        also ``until`` and ``known``, for changes of capacity also ``capacity``; and distributions:
        ``weibull:mtbf=30d,shape=0.7,repair=4h`` or ``exponential:mtbf=30d,repair=4h``, each also
        with the ``group`` of nodes.
    requeue : str
        See `Events`.
    checkpoints : str, optional
        As ``every=1h,cost=2min``; the cost may be left out.

    Raises
    ------
    UsageError
        On a distribution or checkpoints that are none, or two files.
    InputError
        When a row of the file is wrong.
    """
    found = (given,) if isinstance(given, str | Path) else given
    if not isinstance(found, Iterable) or not all(isinstance(t, str | Path) for t in found):
        raise UsageError(f"events {given!r}: names of files and of distributions are needed")
    given = tuple(map(str, found))
    if requeue and requeue not in REQUEUES:
        raise UsageError(
            f"unknown choice of jobs to queue again {requeue!r}{nearest(requeue, REQUEUES)} "
            f"(one of {', '.join(REQUEUES)})"
        )
    files = [text for text in given if not _is_draw(text)]
    if len(files) > 1:
        raise UsageError(
            f"--events names two files, {files[0]} and {files[1]}: write all events into one"
        )
    for text in files:
        name, _, parameters = text.partition(":")
        if "=" in parameters and not Path(text).exists():
            raise unknown("distribution of failures", name, _DRAWS)
    draws = tuple(_draw(text) for text in given if _is_draw(text))
    rows = tuple(row for file in files for row in _rows(file))
    for row in rows if draws else ():
        if row.kind in (FAIL, REPAIR):
            raise InputError(
                "failures are drawn, too",
                file=files[0], line=row.line, field="kind", value=row.kind,
                advice="write all failures into the file, or draw all of them",
            )  # fmt: skip
    saved = None if checkpoints is None else _checkpoints(checkpoints)
    if saved is not None and requeue == "none":
        raise UsageError(
            "--checkpoints and --requeue none: no job may be restarted, so none goes on from a "
            "checkpoint; leave one of them out"
        )
    return Events(given, rows, draws, requeue, saved)


def with_maintenance(events: Events | None, system: System, submit_s: IntArray) -> Events | None:
    """Events with the windows of the system's maintenance that matter for a log.

    Without those that the events have already.

    Parameters
    ----------
    events : Events or None
        What happens beside them.
    submit_s : int64 array, shape (jobs,)
        Ascending: windows that are over at the first submission are left out, and those that begin
        after the last one.

    Returns
    -------
    Events or None
        None where there are none.
    """
    rows: list[WindowRow] = []
    first_s, last_s = int(submit_s[0]), int(submit_s[-1])
    for window in system.maintenance:
        every_s = window.every_s or last_s + 1  # after a single window none begins in time
        over = max((first_s - window.from_s - window.length_s) // every_s + 1, 0)
        for begin_s in range(window.from_s + over * every_s, last_s + 1, every_s):
            known_s = 0 if window.known_s is None else max(begin_s - window.known_s, 0)
            until_s = begin_s + window.length_s
            rows.append(WindowRow(0, begin_s, MAINTAIN, window.nodes, until_s, known_s))
    found = Events(()) if events is None else events
    stated = {
        (row.time_s, row.until_s, _nodes(row.nodes, system, found.file, row.line))
        for row in found.rows
        if isinstance(row, WindowRow)
    }
    rows = [w for w in rows if (w.time_s, w.until_s, system.named_nodes(w.nodes)) not in stated]
    if not rows:
        return events
    every = sorted((*found.rows, *rows), key=lambda row: row.time_s)
    named = () if any(not _is_draw(text) for text in found.given) else (f"system {system.name}",)
    return replace(found, given=(*found.given, *named), rows=tuple(every))


def _checkpoints(text: str) -> Checkpoints:
    what = "--checkpoints"
    found = values(what, pairs(what, text), {"every": _seconds, "cost": _seconds})
    if "every" not in found:
        raise UsageError(f"{what} {text}: every is missing; write it as every=1h,cost=2min")
    return Checkpoints(found["every"], found.get("cost", 0))


def _is_draw(text: str) -> bool:
    return text.partition(":")[0] in _DRAWS


def _seconds(value: str, least_s: int = 60) -> int:
    try:
        return plain_seconds(value, least_s)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _shape(value: str) -> float:
    found = float(value)
    if not 0.1 <= found <= 10:
        raise ValueError("a number from 0.1 to 10 is needed")
    return found


_PARAMETERS: Mapping[str, Callable[[str], object]] = {
    "mtbf": partial(_seconds, least_s=3600), "repair": _seconds, "group": str
}  # fmt: skip
_DRAWS: Mapping[str, Mapping[str, Callable[[str], object]]] = {
    "weibull": {**_PARAMETERS, "shape": _shape},
    "exponential": _PARAMETERS,
}
"""Distributions of the time between failures, and their parameters."""


def _draw(text: str) -> Draw:
    name, _, rest = text.partition(":")
    what = f"--events {name}"
    found = values(what, pairs(what, rest), _DRAWS[name])
    missing = [key for key in _DRAWS[name] if key not in found and key != "group"]
    if missing:
        raise UsageError(
            f"--events {text}: {missing[0]} is missing; write it as "
            f"{name}:mtbf=30d,{'shape=0.7,' if 'shape' in _DRAWS[name] else ''}repair=4h"
        )
    return Draw(
        name, found["mtbf"], found.get("shape", 1.0), found["repair"], found.get("group", "")
    )


# ------------------------------------------------------------------------------- files


def _rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a file of events."""
    lines = csv_rows(path, "several nodes in a cell have spaces between them")
    _, names = next(lines)
    _check_header(names, path)
    found: list[Row] = []
    for line, cells in lines:
        found.append(_row(cells, names, line, partial(InputError, file=path, line=line)))
        if len(found) > 1 and found[-1].time_s < found[-2].time_s:
            raise InputError(
                f"the time is before that of the row above, {found[-2].time_s}",
                file=path, line=line, field="time", value=found[-1].time_s,
                advice="sort the rows by time",
            )  # fmt: skip
    return found


def _check_header(names: list[str], path: str | os.PathLike[str]) -> None:
    for name in COLUMNS:
        if names.count(name) != 1:
            problem = "the table lacks the column or has it twice"
            advice = other_commas(names) or f"the first line is {','.join(COLUMNS)}"
            raise InputError(problem, file=path, line=1, field=name, advice=advice)
    for name in names:
        if name not in (*COLUMNS, *_MORE) or names.count(name) > 1:
            advice = f"leave it out: the columns are {', '.join((*COLUMNS, *_MORE))}"
            hint = nearest(name, [*COLUMNS, *_MORE])
            raise InputError(f"unknown column{hint}", file=path, line=1, value=name, advice=advice)


def _row(cells: list[str], names: list[str], line: int, wrong: partial[InputError]) -> Row:
    """A line of the table; ``wrong`` is the error in it, to be said what it is."""
    cell = dict(zip(names, cells, strict=True))
    kind = cell["kind"]
    if kind not in KINDS:
        raise wrong(
            f"unknown kind{nearest(kind, KINDS)}", field="kind", value=kind,
            advice=f"write {', '.join(KINDS[:-1])} or {KINDS[-1]}",
        )  # fmt: skip
    time_s = _time(cell["time"], "time", wrong)
    for fields, of_kind, what in (
        (OF_WINDOWS, MAINTAIN, "maintenance windows"),
        (OF_CAPACITY, CAPACITY, "changes of capacity"),
    ):
        for field in fields if kind != of_kind else ():
            if cell.get(field):
                raise wrong(
                    f"only {what} have this", field=field, value=cell[field],
                    advice=f"leave it empty, or write {of_kind} as kind",
                )  # fmt: skip
    if kind == MAINTAIN:
        until_s, known_s = _window(time_s, cell, wrong)
        return WindowRow(line, time_s, kind, cell["nodes"], until_s, known_s)
    if kind == CAPACITY:
        return CapacityRow(line, time_s, kind, cell["nodes"], _has(cell.get("capacity", ""), wrong))
    return Row(line, time_s, kind, cell["nodes"])


def _has(text: str, wrong: partial[InputError]) -> tuple[tuple[str, int], ...]:
    """What nodes have from now on, as ``gpu=1 mem=32``."""
    wrong = partial(wrong, field="capacity", value=text)
    found: dict[str, int] = {}
    for part in text.split():
        name, _, amount = part.partition("=")
        many = count_of(amount)
        if not name or many is None or many > LIMIT:
            break
        if name in found:
            raise wrong(f"{name} is named twice", advice="write each resource type once")
        found[name] = many
    else:
        if found:
            return tuple(found.items())
    raise wrong(
        "a change of capacity needs what the nodes have from then on",
        advice="write it as gpu=1 mem=32, whole numbers",
    )


def _window(time_s: int, cell: Mapping[str, str], wrong: partial[InputError]) -> tuple[int, int]:
    """When a maintenance window ends, and from when on it is known: always, if it is not said."""
    until = cell.get("until", "")
    if not until:
        raise wrong(
            "a maintenance window needs its end", field="until", value=until,
            advice="write when the nodes are back, in the column until",
        )  # fmt: skip
    until_s = _time(until, "until", wrong)
    known_s = _time(cell["known"], "known", wrong) if cell.get("known") else 0
    problem = f"the window begins at {time_s}"
    if until_s <= time_s:
        raise wrong(problem, field="until", value=until_s, advice="write a later time")
    if known_s > time_s:
        raise wrong(problem, field="known", value=known_s, advice="write this time or less")
    return until_s, known_s


def _time(text: str, field: str, wrong: partial[InputError]) -> int:
    """Seconds on the clock of the log."""
    advice = "write whole seconds on the clock of the log"
    wrong = partial(wrong, field=field, value=text, advice=advice)
    try:
        found = int(text)
    except ValueError:
        raise wrong("not a whole number") from None
    if found < 0:
        raise wrong("negative")
    if found > LIMIT:
        raise wrong(f"must be {LIMIT} or less")
    return found


def _nodes(text: str, system: System, path: str | os.PathLike[str], line: int) -> tuple[int, ...]:
    """The nodes that a cell means, see `cpdispatch.system.System.named_nodes`."""
    try:
        return system.named_nodes(text)
    except InputError as error:
        raise InputError(str(error), file=path, line=line) from error


def as_csv(events: Iterable[Event]) -> bytes:
    """Events as a file of them."""
    events = list(events)
    windows = any(event.kind == MAINTAIN for event in events)
    changes = any(event.kind == CAPACITY for event in events)
    rows: list[list[object]] = [[*COLUMNS, *OF_WINDOWS * windows, *OF_CAPACITY * changes]]
    for event in events:
        row: list[object] = [event.time_s, event.kind, ranges_of(event.nodes)]
        if windows:
            row += [event.until_s, event.known_s] if event.kind == MAINTAIN else ["", ""]
        if changes:
            row.append(" ".join(f"{name}={amount}" for name, amount in event.capacity))
        rows.append(row)
    return csv_of(rows)


def load(path: str | os.PathLike[str], system: System) -> list[Event]:
    """The events of a file, as they happened to a system; their order is not judged.

    Raises
    ------
    InputError
        When the file holds none.
    """
    found = []
    for row in _rows(path):
        times = (row.until_s, row.known_s) if isinstance(row, WindowRow) else ()
        event = Event(row.time_s, row.kind, _nodes(row.nodes, system, path, row.line), *times)
        has = row.capacity if isinstance(row, CapacityRow) else ()
        found.append(replace(event, capacity=has))
    return found
