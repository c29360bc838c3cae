"""One dispatch problem: the snapshot of the cluster that a dispatcher answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from cpdispatch import access
from cpdispatch.access.spread import LIMIT_TYPE
from cpdispatch.arrays import BoolArray, IntArray, sealed
from cpdispatch.errors import InputError
from cpdispatch.frozen import quick, unfinished
from cpdispatch.jobs import Column, JobTable, Starvation, largest_share
from cpdispatch.system import LIMIT, System

NO_LATEST_S = 2**62
"""The latest start of a job that no starvation bound holds: later than any time."""
WATTS_WITHOUT_CAP = 2**61
"""What is left where no cap is on the power: more than any job draws."""


@quick
@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The running jobs, in the order in which they started.

    Attributes
    ----------
    start_s : int64 array, shape (running,)
        When each started.
    end_s : int64 array, shape (running,)
        Its expected end as it stands now: always later than the instance's ``now``.
    overdue : int64 array, shape (running,)
        1 when the job has outlived the duration that was expected of it, else 0.
    offset : int64 array, shape (running + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, units : int64 array, shape (entries,)
        A node and the number of the job's units there. The first entry of a job is its first node.
    bound_s : int64 array, shape (running,), or None
        How long each job may run before it is stopped, see `Stopped`; 0 for jobs that run until
        they end. Where a job has one, its expected end is when its nodes are free if it is
        killed then. A job that is being killed keeps its bound; its expected duration ends with
        its next run. None when no job has one.
    """

    jobs: JobTable
    start_s: IntArray
    end_s: IntArray
    overdue: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray
    bound_s: IntArray | None = None

    def __len__(self) -> int:
        return len(self.start_s)

    def planned_end_s(self) -> IntArray:
        """When plans take the jobs to end, shape (running,); no planned end is before the expected.

        They are the expected ends unless there are planned durations, see `JobTable.planned_s`.
        """
        if self.jobs.planned_as_expected:
            return self.end_s
        return self._end_s(self.jobs.planned_s)

    def whole_end_s(self) -> IntArray:
        """The planned ends if no job is stopped at its bound, shape (running,)."""
        end_s = self.planned_end_s()
        if self.bound_s is None:
            return end_s
        whole_s = np.maximum(end_s, self.start_s + self.jobs.planned_s)
        return sealed(np.where(self.bound_s > 0, whole_s, end_s))

    def requested_end_s(self) -> IntArray:
        """The ends by the requested times, and by the bounds; none is before the expected end."""
        return self._end_s(self.jobs.requested_s)

    def _end_s(self, duration_s: IntArray) -> IntArray:
        """The ends after these durations, and by the bounds; none is before the expected end."""
        end_s = np.maximum(self.end_s, self.start_s + duration_s)
        return sealed(
            end_s if self.bound_s is None else np.where(self.bound_s > 0, self.end_s, end_s)
        )

    def usage(self, nodes: int) -> IntArray:
        """What the running jobs hold, shape (nodes, resources)."""
        held = np.zeros((nodes, self.jobs.request.shape[1]), dtype=np.int64)
        owner = np.repeat(np.arange(len(self)), np.diff(self.offset))
        np.add.at(held, self.node, self.jobs.request[owner] * self.units[:, None])
        return held


@dataclass(frozen=True, slots=True, eq=False)
class Stopped:
    """The queued jobs whose bounded start is over: each still holds its nodes, which count as free.

    A decision that starts such a job now on just these nodes lets it go on as if it had never been
    stopped. Any other decision kills it: its work is lost, and it runs anew when it starts.

    Attributes
    ----------
    position : int64 array, shape (stopped,)
        Queue positions, ascending.
    start_s : int64 array, shape (stopped,)
        When each started.
    offset : int64 array, shape (stopped + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, units : int64 array, shape (entries,)
        A node and the number of the job's units there; nodes ascend within a job.
    """

    position: IntArray
    start_s: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray

    @classmethod
    def of(cls, held: Mapping[int, tuple[int, Mapping[int, int]]]) -> Stopped:
        """From the start and the units by node of each job, by queue position."""
        position = sorted(held)
        entries = [sorted(held[k][1].items()) for k in position]
        return cls(
            sealed(np.array(position, dtype=np.int64)),
            sealed(np.array([held[k][0] for k in position], dtype=np.int64)),
            sealed(np.cumsum([0, *map(len, entries)], dtype=np.int64)),
            sealed(np.array([node for job in entries for node, _ in job], dtype=np.int64)),
            sealed(np.array([units for job in entries for _, units in job], dtype=np.int64)),
        )

    def held(self) -> dict[int, tuple[int, dict[int, int]]]:
        """The start of each job and its units by node, by queue position."""
        node, units, offset = self.node.tolist(), self.units.tolist(), self.offset.tolist()
        return {
            position: (start_s, dict(zip(node[low:high], units[low:high], strict=True)))
            for position, start_s, low, high in zip(
                self.position.tolist(), self.start_s.tolist(), offset, offset[1:], strict=False
            )
        }

    def among(self, positions: IntArray) -> Stopped | None:
        """Those of the jobs at these ascending queue positions, by their places among these."""
        held, places = self.held(), np.searchsorted(positions, self.position)
        kept = {
            int(place): held[position]
            for place, position in zip(places.tolist(), self.position.tolist(), strict=True)
            if place < len(positions) and positions[place] == position
        }
        return Stopped.of(kept) if kept else None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Capacity held from ``start_s`` for ``duration_s`` seconds on each of ``nodes``."""

    start_s: int
    duration_s: int
    nodes: tuple[int, ...]
    capacity: tuple[int, ...]

    @property
    def end_s(self) -> int:
        """First second at which the capacity is back."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True)
class Power:
    """A cap on the power of all running jobs.

    Attributes
    ----------
    cap : int
        Watts that the running jobs may draw together.
    unit : tuple of int
        Watts that one unit of each resource type draws while a job holds it.
    """

    cap: int
    unit: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dependencies:
    """Which queued jobs come after others, and which may not start before a time.

    The k-th queued job starts at ``earliest_s[k]`` or later, and ``think_s[k]`` seconds or more
    after the end of every queued job at ``position[offset[k]:offset[k + 1]]``.

    Attributes
    ----------
    earliest_s : int64 array, shape (queued,)
        Lower bound of each start as it is known now, never before the instance's ``now``: the
        stated earliest start, and the expected ends of the running predecessors plus think time.
    offset : int64 array, shape (queued + 1,)
        The k-th job's queued predecessors are ``position[offset[k]:offset[k + 1]]``.
    position : int64 array, shape (entries,)
        Queue positions of the predecessors that are queued themselves.
    think_s : int64 array, shape (queued,)
        Seconds between the latest end of a job's predecessors and its start.
    stated_s : int64 array, shape (queued,)
        The earliest start that the instance states; its ``now`` where it states none.
    running_offset : int64 array, shape (queued + 1,)
    running_position : int64 array, shape (running entries,)
        The predecessors that run, as positions among the running jobs; ``earliest_s`` has them.
    """

    earliest_s: IntArray
    offset: IntArray
    position: IntArray
    think_s: IntArray
    stated_s: IntArray
    running_offset: IntArray
    running_position: IntArray

    @classmethod
    def of(
        cls,
        now: int,
        end_s: IntArray,
        stated_s: IntArray,
        think_s: IntArray,
        after: IntArray,
        after_running: IntArray,
    ) -> Dependencies:
        """From pairs of a job and a predecessor.

        Parameters
        ----------
        end_s : int64 array, shape (running,)
            Expected ends of the running jobs.
        stated_s, think_s : int64 array, shape (queued,)
        after, after_running : int64 array, shape (2, pairs)
            Queue positions over those of the predecessors: in the queue, among the running jobs.

        Raises
        ------
        InputError
            When one of the positions is that of no job; the pair is named.
        """
        check, queued_jobs = Check("dependencies"), len(stated_s)
        for name, pairs, of in (
            ("after", after, queued_jobs), ("after_running", after_running, len(end_s))
        ):  # fmt: skip
            check.positions(pairs[0], f"{name}[0]", queued_jobs)
            check.positions(pairs[1], f"{name}[1]", of)
        (job, before), (starts, runs) = (
            [row[pairs[0].argsort(kind="stable")] for row in pairs]
            for pairs in (after, after_running)
        )
        queued = np.arange(len(stated_s) + 1)
        stated_s = sealed(np.maximum(stated_s, now))
        return cls(
            stated_s,
            sealed(np.searchsorted(job, queued)),
            sealed(before),
            sealed(think_s),
            stated_s,
            sealed(np.searchsorted(starts, queued)),
            sealed(runs),
        ).ending(end_s)

    def ending(self, end_s: IntArray) -> Dependencies:
        """The same where the running jobs are taken to end then, shape (running,)."""
        earliest_s = self.stated_s.copy()
        owner = np.repeat(np.arange(len(earliest_s)), np.diff(self.running_offset))
        ready_s = end_s[self.running_position] + self.think_s[owner]
        np.maximum.at(earliest_s, owner, ready_s)
        return replace(self, earliest_s=sealed(earliest_s))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """In place of a value of additional data that an instance file could not hold.

    Attributes
    ----------
    kind : str
        The type of the value.
    """

    kind: str


NOW, QUEUED, RUNNING, ENTRIES, NODES, RESOURCES, ROWS, PLANNED, ENDS = range(9)
HEAD = 9
"""The numbers at the head of a flat instance: the time, six sizes, and where two rows begin.

After the head come what is free, the block of the queue, that of the running jobs, their starts,
expected ends, whether they are overdue, and their bounds, 0 for none; then their offsets, nodes and
units. `PLANNED` is where the planned durations of the queue begin, `ENDS` where the planned ends of
the running jobs do: among the rows before, or else behind them.
"""


class _Flat:
    """An instance as one array of integers, and what it lacks; made when it is asked for."""

    __slots__ = ("flat", "labels")

    flat: IntArray
    """The numbers, see `HEAD`: kernels take one array in a tenth of the time that many take."""
    labels: Mapping[str, tuple[str, ...]]
    """Names behind numbers, see `JobTable`."""


@quick
@dataclass(frozen=True, slots=True, eq=False)
class Instance(_Flat):
    """An immutable snapshot of the cluster: the whole of what a dispatcher may know.

    It keeps a copy of each array that is not read-only, so the caller may go on to change his own.

    Attributes
    ----------
    now : int
        Seconds.
    free : int64 array, shape (nodes, resources)
        Capacity free at ``now``: running jobs, down nodes and reservations in force taken out.
    queue : JobTable
        The queued jobs, sorted by submission, then id.
    down : int64 array
        Nodes out of service.
    dependencies : Dependencies or None
        None when any queued job may start as soon as it fits.
    stopped : Stopped or None
        None when no job's bounded start is over just now.
    restart_cost_s : int
        How long the nodes of a job that is killed stay busy. Its next start is later.
    data : mapping of str to object
        The value of each of the additional data by name, see `cpdispatch.data.AdditionalData`.
    came_s : int64 array, shape (2, jobs), or None
        The ids of the queued jobs, and since when each has waited for nodes alone: it was in the
        queue, what it depends on was over, and the system had what it asks for. A job that is
        queued again after a test run or a restart may have waited since before that. Jobs that are
        not in the queue are not looked at. None where nobody knows.

    Raises
    ------
    InputError
        When a part is not what it should be: of another class or shape, a number out of its range,
        a node or a job that is not there, jobs that wait for each other; the field is named.
    """

    now: int
    system: System
    free: IntArray
    queue: JobTable
    running: Running
    down: IntArray
    reservations: tuple[Reservation, ...] = ()
    power: Power | None = None
    dependencies: Dependencies | None = None
    starvation: Starvation | None = None
    stopped: Stopped | None = None
    restart_cost_s: int = 0
    data: Mapping[str, object] = field(default_factory=dict)
    came_s: IntArray | None = None

    def __post_init__(self) -> None:
        check = Check("instance")
        check.kinds(self)
        check.number(self.now, "now", 0)
        check.number(self.restart_cost_s, "restart_cost_s", 0)
        check.nodes(self.free, self.down, self.system)
        rows = Column.REQUEST + len(self.system.resources)
        if not self.queue.checked or len(self.queue.columns) != rows:
            check.queued(self.queue, self.system)
        check.running_jobs(self.running, self.system, self.now)
        came_s = self.came_s
        if came_s is not None:
            table = isinstance(came_s, np.ndarray) and came_s.ndim == 2
            check.integers(came_s, "came_s", (2, came_s.shape[1] if table else len(self.queue)))
        if self.reservations or self.power is not None or self.starvation is not None:
            check.rules(self)
        if self.dependencies is not None:
            check.comes_after(self.dependencies, len(self.queue), len(self.running))
        if self.stopped is not None:
            check.holds(self.stopped, self.queue, self.system.nodes)
        for name in ("free", "queue", "running", "down", "dependencies", "stopped", "came_s"):
            part = getattr(self, name)
            if (own := _own(part)) is not part:
                object.__setattr__(self, name, own)

    def earliest_s(self) -> IntArray:
        """Lower bound of each start as it is known now, shape (queued,); ``now`` for most."""
        if self.dependencies is None:
            return np.full(len(self.queue), self.now, dtype=np.int64)
        return self.dependencies.earliest_s

    def eligible(self) -> BoolArray:
        """Whether each queued job may start now as far as it depends on others, shape (queued,)."""
        if self.dependencies is None:
            return np.ones(len(self.queue), dtype=np.bool_)
        after_none: BoolArray = np.diff(self.dependencies.offset) == 0
        return after_none & (self.dependencies.earliest_s <= self.now)

    def starved(self) -> BoolArray:
        """Whether each queued job has waited beyond the starvation threshold, shape (queued,)."""
        return self.starved_among(self.queue)

    def starved_among(self, jobs: JobTable) -> BoolArray:
        """Whether these jobs, queued or running, were submitted before the starvation threshold."""
        if self.starvation is None:
            return np.zeros(len(jobs), dtype=np.bool_)
        share = largest_share(jobs, self.total)
        threshold_s = self.starvation.shortened_s(self.starvation.threshold_s, share)
        starved: BoolArray = self.now - jobs.submit_s > threshold_s
        return starved

    def overdue(self) -> BoolArray:
        """Whether each queued job has waited beyond the starvation bound, shape (queued,)."""
        if self.starvation is None:
            return np.zeros(len(self.queue), dtype=np.bool_)
        overdue: BoolArray = self.now > self._due_s()
        return overdue

    def _due_s(self) -> IntArray:
        """Submission, threshold and bound, shape (queued,)."""
        assert self.starvation is not None
        whole_s = self.starvation.threshold_s + self.starvation.bound_s
        share = largest_share(self.queue, self.total)
        due_s: IntArray = self.queue.submit_s + self.starvation.shortened_s(whole_s, share)
        return due_s

    @property
    def total(self) -> IntArray:
        """What the system has, of which jobs ask for a share, see `cpdispatch.access.total`."""
        return access.total(self.system)

    def latest_s(self) -> IntArray:
        """Latest start by the starvation bound, shape (queued,); `NO_LATEST_S` if not starved."""
        if self.starvation is None:
            return np.full(len(self.queue), NO_LATEST_S, dtype=np.int64)
        return np.where(self.starved(), np.maximum(self._due_s(), self.now), NO_LATEST_S)

    def job_power(self, jobs: JobTable) -> IntArray:
        """Watts that each job draws while it runs, shape (jobs,); zeros without a cap."""
        if self.power is None:
            return np.zeros(len(jobs), dtype=np.int64)
        unit, request = np.array(self.power.unit, dtype=np.int64), jobs.request
        drawn: IntArray = jobs.units * (request @ unit)
        for once, of in self.system.once:
            drawn += request[:, once] * (unit[of] - jobs.units * unit[once])
        return drawn

    def power_free(self) -> int:
        """Watts left under the cap now; a number that no job reaches without a cap."""
        if self.power is None:
            return WATTS_WITHOUT_CAP
        return self.power.cap - int(self.job_power(self.running.jobs).sum())


def _own(part: Any) -> Any:
    """The part of an instance as a copy that nobody writes into; itself where that is so already.

    Kernels are compiled for arrays that are read-only and contiguous. A decision on others would
    have to wait for the compiler.
    """
    if isinstance(part, np.ndarray):
        flags = part.flags
        return part if flags.c_contiguous and not flags.writeable else sealed(part.copy("C"))
    if isinstance(part, JobTable):
        return part.contiguous()
    if not isinstance(part, Running | Dependencies | Stopped):
        return part
    changed = {
        name: own
        for name in part.__dataclass_fields__
        if (own := _own(given := getattr(part, name))) is not given
    }
    return replace(part, **changed) if changed else part


def _free(instance: Instance) -> IntArray:
    flat = instance.flat
    nodes, resources = flat[NODES : RESOURCES + 1].tolist()
    return sealed(flat[HEAD : HEAD + nodes * resources].reshape(nodes, resources))


def _queue(instance: Instance) -> JobTable:
    flat = instance.flat
    _, queued, _, _, nodes, resources, rows, *_ = flat[:HEAD].tolist()
    at = HEAD + nodes * resources
    queue = JobTable(flat[at : at + rows * queued].reshape(rows, queued), instance.labels)
    queue.checked = True
    return queue


def _running(instance: Instance) -> Running:
    flat = instance.flat
    _, queued, running, entries, nodes, resources, rows, *_ = flat[:HEAD].tolist()
    at = HEAD + nodes * resources + rows * queued
    block = flat[at : at + rows * running].reshape(rows, running)
    at += rows * running
    times = sealed(flat[at : at + 4 * running].reshape(4, running))
    at += 4 * running
    places = sealed(flat[at : at + running + 1 + 2 * entries])
    return Running(
        JobTable(block, instance.labels), times[0], times[1], times[2], places[: running + 1],
        places[running + 1 : running + 1 + entries], places[running + 1 + entries :],
        times[3] if times[3].any() else None,
    )  # fmt: skip


def _flattened(instance: Instance) -> IntArray:
    """The flat array of an instance that was made of others."""
    queue, running, free = instance.queue, instance.running, instance.free
    block, run_block = queue.block, running.jobs.block
    (rows, queued), ran = block.shape, len(running)
    bound_s = np.zeros(ran, dtype=np.int64) if running.bound_s is None else running.bound_s
    parts = [
        free.ravel(), block.ravel(), run_block.ravel(), running.start_s, running.end_s,
        running.overdue, bound_s, running.offset, running.node, running.units,
    ]  # fmt: skip
    planned = HEAD + free.size + int(Column.EXPECTED) * queued
    ends = HEAD + free.size + rows * (queued + ran) + ran
    if not queue.planned_as_expected:
        planned = HEAD + sum(map(len, parts))
        parts.append(queue.planned_s)
    if not running.jobs.planned_as_expected:
        ends = HEAD + sum(map(len, parts))
        parts.append(running.planned_end_s())
    head = (instance.now, queued, ran, len(running.node), *free.shape, rows, planned, ends)
    flat: IntArray = np.concatenate((np.array(head, dtype=np.int64), *parts))
    return flat


_MADE = {
    "free": _free, "queue": _queue, "running": _running, "flat": _flattened,
    "labels": lambda instance: instance.queue.labels,
}  # fmt: skip
of_flat = unfinished(
    Instance, "flat", "labels", "now", "system", "down", "reservations", "power", "dependencies",
    "starvation", "stopped", "restart_cost_s", "data", "came_s",
    made=_MADE,
)  # fmt: skip
"""Makes an instance of a flat one, that nobody writes into any more, and of what that lacks."""

NO_NODES: IntArray = sealed(np.empty(0, dtype=np.int64))


def held_by(system: System, running: Running) -> IntArray:
    """What running jobs hold on nodes of a system, shape (nodes, resources).

    A resource type that is taken once is not held itself: what it is an amount of is, on the node
    that the job's entries name first.
    """
    held = running.usage(system.nodes)
    first_node = running.node[running.offset[:-1]]
    for once, of in system.once:
        held[:, once] = 0
        np.add.at(held[:, of], first_node, running.jobs.request[:, once])
    return held


def free_capacity(
    system: System,
    running: Running,
    down: IntArray,
    reservations: tuple[Reservation, ...],
    now: int,
) -> IntArray:
    """Capacity free at ``now``, shape (nodes, resources), never below 0."""
    free = system.capacity - held_by(system, running)
    for reservation in reservations:
        if reservation.start_s <= now < reservation.end_s:
            free[list(reservation.nodes)] -= np.array(reservation.capacity, dtype=np.int64)
    free[down] = 0
    return sealed(np.maximum(free, 0))


_LEAST = (
    ("units", Column.UNITS, 1), ("requested_s", Column.REQUESTED, 0),
    ("expected_s", Column.EXPECTED, 1), ("upper_s", Column.UPPER, 1), ("ewt_s", Column.EWT, 1),
)  # fmt: skip
"""The least values of the columns of queued jobs, by the names of these."""

_NONE = type(None)
_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("system", System), ("queue", JobTable), ("running", Running),
    ("reservations", (tuple, list)), ("power", (Power, _NONE)),
    ("dependencies", (Dependencies, _NONE)), ("starvation", (Starvation, _NONE)),
    ("stopped", (Stopped, _NONE)), ("data", Mapping),
)  # fmt: skip
"""The classes of the parts of an instance, by their names."""


class Check:
    """Refuses what cannot be part of an instance, and names the file and the field of it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def kinds(self, instance: Instance) -> None:
        """The parts of an instance by their classes."""
        for name, kind in _KINDS:
            part = getattr(instance, name)
            self.kind(part, kind, name)
        for k, reservation in enumerate(instance.reservations):
            self.kind(reservation, Reservation, f"reservations[{k}]")

    def kind(self, part: object, kind: type | tuple[type, ...], field: str) -> None:
        """A part of one of these classes."""
        if not isinstance(part, kind):
            classes = kind if isinstance(kind, tuple) else (kind,)
            names = " or ".join("None" if c is type(None) else c.__name__ for c in classes)
            found = "None" if part is None else f"a {type(part).__name__}"
            advice = "give a dictionary" if kind is Mapping else f"make a {classes[0].__name__}"
            problem = f"expected {names}, found {found}"
            raise InputError(problem, file=self.path, field=field, advice=advice)

    def need(self, good: bool, field: str, value: object, problem: str, advice: str = "") -> None:
        """Raise an `InputError` that names the field and its value, unless it is good."""
        if not good:
            raise InputError(problem, file=self.path, field=field, value=value, advice=advice)

    def number(self, value: int, field: str, least: int = -LIMIT) -> None:
        """A number that lies in the range that the package can count in."""
        whole = isinstance(value, int | np.integer)
        self.need(whole, field, value, "must be a whole number")
        problem = "negative" if least == 0 else f"must be {least} or more"
        self.need(value >= least, field, value, problem)
        self.need(value <= LIMIT, field, value, f"must be {LIMIT} or less")

    def vector(self, values: Sequence[int], field: str, resources: int) -> None:
        """Amounts, one for each resource type."""
        found = list(values)
        whole = all(isinstance(value, int | np.integer) for value in found)
        self.need(whole, field, found, "must be whole numbers")
        self.need(
            len(values) == resources, field, found, f"one number for each of {resources} resources"
        )
        self.need(min(values) >= 0, field, found, "negative", "write 0 or more")
        self.need(max(values) <= LIMIT, field, found, f"must be {LIMIT} or less")

    def nodes(self, free: IntArray, down: IntArray, system: System) -> None:
        """What is free, and the nodes out of service, as arrays."""
        self.integers(free, "free", system.capacity.shape)
        self.integers(down, "down", (np.size(down),))
        if len(down):
            named = down.tolist()
            self.numbered(named, "down", system.nodes)
            self.need(len(set(named)) == len(named), "down", named, "a node is named twice")
            for k, r in np.argwhere(free[down])[:1].tolist():
                where, problem = f"free[{named[k]}, {r}]", "a node that is down has nothing free"
                self.need(False, where, int(free[named[k], r]), problem, "set it to 0")
        # As numbers without a sign, those below 0 are beyond any capacity.
        if (free.view(np.uint64) <= system.capacity.view(np.uint64)).all():
            return
        wrong = (free < 0) | (free > system.capacity)
        wrong[:, np.array(system.resources) == LIMIT_TYPE] = False  # requests of it are below 0
        for n, r in np.argwhere(wrong)[:1].tolist():
            self.need(
                False, f"free[{n}, {r}]", int(free[n, r]),
                f"a node with {system.capacity[n, r]} {system.resources[r]} has from 0 to "
                f"{system.capacity[n, r]} of them free",
            )  # fmt: skip

    def queued(self, jobs: JobTable, system: System) -> None:
        """The jobs of the queue."""
        block = self.block(jobs, "queue", system)
        for name, column, least in _LEAST:
            row = block[column]
            for k in ((row < least) | (row > LIMIT)).nonzero()[0][:1].tolist():
                self.number(int(row[k]), f"queue.{name}[{k}]", least)
        ids, seen = block[Column.ID].tolist(), set[int]()
        for k, id in enumerate(ids if len(set(ids)) < len(ids) else ()):
            self.need(id not in seen, f"queue.id[{k}]", id, "another job of the queue has this id")
            seen.add(id)
        jobs.checked = True

    def block(self, jobs: JobTable, field: str, system: System) -> IntArray:
        """The block of a table of jobs, with a row for each column and each resource type."""
        block, kinds = jobs.block, len(system.resources)
        self.integers(block, f"{field}.block", (Column.REQUEST + kinds, *block.shape[-1:]))
        asked = block[Column.REQUEST :]
        if asked.size and np.minimum.reduce(asked, axis=None) < 0:
            wrong = asked < 0
            wrong[np.array(system.resources) == LIMIT_TYPE] = False
            for r, k in np.argwhere(wrong)[:1].tolist():
                self.number(int(asked[r, k]), f"{field}.request[{k}, {r}]", 0)
        return block

    def running_jobs(self, running: Running, system: System, now: int) -> None:
        """The arrays of the running jobs."""
        block = running.jobs.block
        if block.size or block.dtype != np.int64:  # a table of no job may have any rows
            self.block(running.jobs, "running.jobs", system)
        jobs, node, nodes = len(running.jobs), running.node, system.nodes
        for name in ("start_s", "end_s", "overdue"):
            self.integers(getattr(running, name), f"running.{name}", (jobs,))
        if running.bound_s is not None:
            self.integers(running.bound_s, "running.bound_s", (jobs,))
        self.integers(running.offset, "running.offset", (jobs + 1,))
        self.integers(node, "running.node", (np.size(node),))
        self.integers(running.units, "running.units", node.shape)
        if not jobs:
            return
        if np.minimum.reduce(running.end_s) <= now:
            k = int(running.end_s.argmin())
            self.need(
                False, f"running.end_s[{k}]", int(running.end_s[k]),
                f"a running job is expected to end after now, {now}",
                "give a job that has outlived its expected end a new one, such as 1 s from now",
            )  # fmt: skip
        if np.maximum.reduce(running.start_s) > now:
            k = int(running.start_s.argmax())
            problem = f"a running job has started by now, {now}"
            self.need(False, f"running.start_s[{k}]", int(running.start_s[k]), problem)
        offset = running.offset
        right = offset[0] == 0 and offset[-1] == len(node) and (offset[1:] > offset[:-1]).all()
        self.need(
            bool(right), "running.offset", running.offset.tolist(),
            f"it ascends from 0 to the {len(node)} entries of node, one or more for each job",
        )  # fmt: skip
        if np.minimum.reduce(node) < 0 or np.maximum.reduce(node) >= nodes:
            self.numbered(node.tolist(), "running.node", nodes)
        if np.minimum.reduce(running.units) < 1:
            k = int(running.units.argmin())
            self.number(int(running.units[k]), f"running.units[{k}]", 1)

    def integers(self, array: object, field: str, shape: tuple[int, ...]) -> None:
        """An array of whole numbers of this shape."""
        if not isinstance(array, np.ndarray):
            found: object = array
        elif array.dtype != np.int64:
            found = str(array.dtype)
        elif array.shape != shape:
            found = array.shape
        else:
            return
        self.need(False, field, found, f"an int64 array of shape {shape} is needed")

    def numbers(self, row: IntArray, field: str) -> None:
        """Numbers from 0 to what the package can count."""
        for k in ((row < 0) | (row > LIMIT)).nonzero()[0][:1].tolist():
            self.number(int(row[k]), f"{field}[{k}]", 0)

    def numbered(self, nodes: Sequence[int], field: str, of: int) -> None:
        """Numbers of nodes, of which there are so many."""
        for k, node in enumerate(nodes):
            self.need(0 <= node < of, f"{field}[{k}]", node, f"nodes are numbered 0 to {of - 1}")

    def comes_after(self, found: Dependencies, queued: int, running: int) -> None:
        """Which queued jobs come after others."""
        for name in ("earliest_s", "think_s", "stated_s"):
            self.integers(getattr(found, name), f"dependencies.{name}", (queued,))
        for name in ("think_s", "stated_s"):
            self.numbers(getattr(found, name), f"dependencies.{name}")
        for name, of in (("", queued), ("running_", running)):
            offset, position = (getattr(found, f"{name}{part}") for part in ("offset", "position"))
            field = f"dependencies.{name}"
            self.integers(position, f"{field}position", (np.size(position),))
            self.offset(offset, f"{field}offset", queued, len(position))
            if len(position):
                self.positions(position, f"{field}position", of)
        owner = np.repeat(np.arange(queued), np.diff(found.offset))
        if (owner <= found.position).any():
            self.no_circle(found)

    def no_circle(self, found: Dependencies) -> None:
        """No job waits for itself."""
        cuts = found.offset.tolist()
        after = {k: found.position[cuts[k] : cuts[k + 1]].tolist() for k in range(len(cuts) - 1)}
        try:
            TopologicalSorter(after).prepare()
        except CycleError as error:
            self.need(
                False, "dependencies.position", error.args[1],
                "queued jobs that wait for each other in a circle",
            )  # fmt: skip

    def holds(self, found: Stopped, jobs: JobTable, nodes: int) -> None:
        """The queued jobs whose bounded start is over."""
        count = np.size(found.position)
        self.integers(found.position, "stopped.position", (count,))
        self.integers(found.start_s, "stopped.start_s", (count,))
        self.integers(found.node, "stopped.node", (np.size(found.node),))
        self.integers(found.units, "stopped.units", found.node.shape)
        self.offset(found.offset, "stopped.offset", count, len(found.node))
        if count:
            self.positions(found.position, "stopped.position", len(jobs))
        ascends = bool((np.diff(found.position) > 0).all())
        self.need(ascends, "stopped.position", found.position.tolist(), "must ascend")
        self.numbered(found.node.tolist(), "stopped.node", nodes)
        for k, units in enumerate(found.units.tolist()):
            self.number(units, f"stopped.units[{k}]", 1)
        owner = np.repeat(np.arange(count), np.diff(found.offset))
        held = np.bincount(owner, weights=found.units, minlength=count).astype(np.int64)
        for k, (position, units) in enumerate(zip(found.position.tolist(), held, strict=True)):
            self.need(
                units == jobs.units[position], "stopped.units", int(units),
                f"job {jobs.id[position]} holds all of its {jobs.units[position]} units",
                f"see entries {found.offset[k]} to {found.offset[k + 1]}",
            )  # fmt: skip

    def offset(self, offset: IntArray, field: str, owners: int, entries: int) -> None:
        """Where the entries of each owner begin."""
        self.integers(offset, field, (owners + 1,))
        right = offset[0] == 0 and offset[-1] == entries and (np.diff(offset) >= 0).all()
        problem = f"it ascends from 0 to the {entries} entries"
        self.need(bool(right), field, offset.tolist(), problem)

    def positions(self, positions: IntArray, field: str, of: int) -> None:
        """Positions of jobs, of which there are so many."""
        for k in ((positions < 0) | (positions >= of)).nonzero()[0][:1].tolist():
            jobs = f"jobs are numbered 0 to {of - 1}" if of else "there is no such job"
            self.need(False, f"{field}[{k}]", int(positions[k]), jobs)

    def rules(self, instance: Instance) -> None:
        """What an instance holds beside jobs and nodes."""
        self.reservations(instance.reservations, *instance.system.capacity.shape)
        self.power(instance.power, len(instance.system.resources))
        self.starvation(instance.starvation)

    def power(self, power: Power | None, kinds: int) -> None:
        """The cap on the power."""
        if power is not None:
            self.number(power.cap, "power.cap", 0)
            self.vector(power.unit, "power.unit", kinds)

    def starvation(self, starvation: Starvation | None) -> None:
        """The starvation bound."""
        if starvation is not None:
            self.number(starvation.threshold_s, "starvation.threshold", 0)
            self.number(starvation.bound_s, "starvation.bound", 0)
            self.number(starvation.wide, "starvation.wide", 0)
            few = starvation.wide <= 1000
            self.need(few, "starvation.wide", starvation.wide, "must be 1000 or less")

    def reservations(self, reservations: tuple[Reservation, ...], nodes: int, kinds: int) -> None:
        """Reservations: their times, nodes and capacities."""
        for index, given in enumerate(reservations):
            field, named = f"reservations[{index}]", list(given.nodes)
            self.number(given.start_s, f"{field}.start")
            self.number(given.duration_s, f"{field}.duration", 1)
            self.need(
                bool(named), f"{field}.nodes", named, "a reservation needs a node or more",
                "name its nodes, or leave the reservation out",
            )  # fmt: skip
            self.numbered(named, f"{field}.nodes", nodes)
            once = len(set(named)) == len(named)
            self.need(once, f"{field}.nodes", named, "a node is named twice")
            self.vector(given.capacity, f"{field}.capacity", kinds)
