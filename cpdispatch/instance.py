"""One dispatch problem: the snapshot that a dispatcher answers, and the files it travels in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import msgspec
import numpy as np

from cpdispatch.arrays import BoolArray, IntArray, sealed
from cpdispatch.errors import InputError
from cpdispatch.files import json_lines, parse_json, read_text, write_bytes
from cpdispatch.jobs import JobTable, job_block
from cpdispatch.system import LIMIT, NodeGroup, System

FORMAT = "cpdispatch-instance/1"
NO_LATEST_S = 2**62
"""The latest start of a job that no starvation bound holds: later than any time."""
WATTS_WITHOUT_CAP = 2**61
"""What is left where no cap is on the power: more than any job draws."""


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The running jobs, in the order in which they started.

    Attributes
    ----------
    jobs : JobTable
    start_s : int64 array, shape (running,)
        When each started.
    end_s : int64 array, shape (running,)
        Its expected end as it stands now: always later than the instance's ``now``.
    overdue : int64 array, shape (running,)
        1 when the job has outlived the duration that was expected of it, else 0.
    offset : int64 array, shape (running + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, units : int64 array, shape (entries,)
        A node and the number of the job's units there.
    """

    jobs: JobTable
    start_s: IntArray
    end_s: IntArray
    overdue: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray

    def __len__(self) -> int:
        return len(self.start_s)

    def usage(self, nodes: int) -> IntArray:
        """What the running jobs hold, shape (nodes, resources)."""
        held = np.zeros((nodes, self.jobs.request.shape[1]), dtype=np.int64)
        owner = np.repeat(np.arange(len(self)), np.diff(self.offset))
        np.add.at(held, self.node, self.jobs.request[owner] * self.units[:, None])
        return held


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
        now : int
        end_s : int64 array, shape (running,)
            Expected ends of the running jobs.
        stated_s, think_s : int64 array, shape (queued,)
        after, after_running : int64 array, shape (2, pairs)
            Queue positions, ascending, over those of the predecessors: in the queue, among the
            running jobs.
        """
        queued = np.arange(len(stated_s) + 1)
        stated_s = sealed(np.maximum(stated_s, now))
        return cls(
            stated_s,
            sealed(np.searchsorted(after[0], queued)),
            sealed(after[1]),
            sealed(think_s),
            stated_s,
            sealed(np.searchsorted(after_running[0], queued)),
            sealed(after_running[1]),
        ).ending(end_s)

    def ending(self, end_s: IntArray) -> Dependencies:
        """The same where these are the expected ends of the running jobs, shape (running,)."""
        earliest_s = self.stated_s.copy()
        owner = np.repeat(np.arange(len(earliest_s)), np.diff(self.running_offset))
        ready_s = end_s[self.running_position] + self.think_s[owner]
        np.maximum.at(earliest_s, owner, ready_s)
        return replace(self, earliest_s=sealed(earliest_s))


@dataclass(frozen=True, slots=True)
class Starvation:
    """How long a job may be kept waiting by jobs that have waited less.

    A queued job that has waited longer than the threshold is starved. No plan starts it later than
    the bound, counted from when it became starved, though it could start earlier beside the
    running jobs, the reservations and the other starved jobs, if all of these last until their
    requested times.

    Attributes
    ----------
    threshold_s, bound_s : int
    """

    threshold_s: int
    bound_s: int


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An immutable snapshot of the cluster: the whole of what a dispatcher may know.

    Attributes
    ----------
    now : int
        Seconds.
    system : System
    free : int64 array, shape (nodes, resources)
        Capacity free at ``now``: running jobs, down nodes and reservations in force taken out.
    queue : JobTable
        The queued jobs, sorted by submission, then id.
    running : Running
    down : int64 array
        Nodes out of service.
    reservations : tuple of Reservation
    power : Power or None
    dependencies : Dependencies or None
        None when any queued job may start as soon as it fits.
    starvation : Starvation or None

    Raises
    ------
    InputError
        When a reservation, the power cap or the starvation bound is none; the field is named.
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

    def __post_init__(self) -> None:
        if self.reservations or self.power is not None or self.starvation is not None:
            _Check("instance").rules(self)

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
        if self.starvation is None:
            return np.zeros(len(self.queue), dtype=np.bool_)
        starved: BoolArray = self.now - self.queue.submit_s > self.starvation.threshold_s
        return starved

    def latest_s(self) -> IntArray:
        """Latest start by the starvation bound, shape (queued,); `NO_LATEST_S` if not starved."""
        if self.starvation is None:
            return np.full(len(self.queue), NO_LATEST_S, dtype=np.int64)
        due_s = self.queue.submit_s + self.starvation.threshold_s + self.starvation.bound_s
        return np.where(self.starved(), np.maximum(due_s, self.now), NO_LATEST_S)

    def job_power(self, jobs: JobTable) -> IntArray:
        """Watts that each job draws while it runs, shape (jobs,); zeros without a cap."""
        if self.power is None:
            return np.zeros(len(jobs), dtype=np.int64)
        return jobs.units * (jobs.request @ np.array(self.power.unit, dtype=np.int64))

    def power_free(self) -> int:
        """Watts left under the cap now; a number that no job reaches without a cap."""
        if self.power is None:
            return WATTS_WITHOUT_CAP
        return self.power.cap - int(self.job_power(self.running.jobs).sum())


NO_NODES: IntArray = sealed(np.empty(0, dtype=np.int64))


def free_capacity(
    system: System,
    running: Running,
    down: IntArray,
    reservations: tuple[Reservation, ...],
    now: int,
) -> IntArray:
    """Capacity free at ``now``, shape (nodes, resources), never below 0."""
    free = system.capacity - running.usage(system.nodes)
    for reservation in reservations:
        if reservation.start_s <= now < reservation.end_s:
            free[list(reservation.nodes)] -= np.array(reservation.capacity, dtype=np.int64)
    free[down] = 0
    return sealed(np.maximum(free, 0))


# ---------------------------------------------------------------------------------- the files


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    nodes: int
    capacity: list[int]


class _RunningJob(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: int
    start: int
    duration: int
    units: int
    unit: list[int]
    nodes: dict[str, int]
    submit: int | None = None
    user: str = ""
    queue: str = ""
    requested: int | None = None


class _QueuedJob(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: int
    submit: int
    duration: int
    units: int
    unit: list[int]
    user: str = ""
    queue: str = ""
    ewt: int = 1
    requested: int | None = None
    upper: int | None = None
    after: list[int] = []
    think: int = 0
    earliest: int | None = None


class _Reservation(msgspec.Struct, forbid_unknown_fields=True):
    start: int
    duration: int
    nodes: list[int]
    capacity: list[int]


class _Power(msgspec.Struct, forbid_unknown_fields=True):
    cap: int
    unit: list[int]


class _Starvation(msgspec.Struct, forbid_unknown_fields=True):
    threshold: int
    bound: int


class _File(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    format: str
    time: int
    resources: list[str]
    groups: list[_Group]
    down: list[int] = []
    running: list[_RunningJob] = []
    queue: list[_QueuedJob] = []
    reservations: list[_Reservation] = []
    power: _Power | None = None
    starvation: _Starvation | None = None


def load(path: str | os.PathLike[str]) -> Instance:
    """Read an instance file (JSON, optionally packed).

    Raises
    ------
    InputError
        When it cannot be read, has an unknown key or resource, or describes an impossible state;
        the message has the path of the key and what was found there.
    """
    return loads(read_text(path), path)


def loads(content: bytes | str, name: str | os.PathLike[str] = "<instance>") -> Instance:
    """Read an instance from the content of a file, see `load`."""
    read = parse_json(content, _File, "an instance file", name, FORMAT)
    return _Check(name).instance(read)


def is_number(text: str) -> bool:
    """Whether a key is a node's number as it is written by the package: "7", not "07" or "²"."""
    return text.isascii() and text.isdigit() and len(text) < 16 and str(int(text)) == text


class _Check:
    """Turns a parsed file into an `Instance`, naming the path of whatever is wrong in it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def need(self, good: bool, field: str, value: object, problem: str, advice: str = "") -> None:
        if not good:
            raise InputError(problem, file=self.path, field=field, value=value, advice=advice)

    def number(self, value: int, field: str, least: int = -LIMIT) -> None:
        problem = "negative" if least == 0 else f"must be {least} or more"
        self.need(value >= least, field, value, problem)
        self.need(value <= LIMIT, field, value, f"must be {LIMIT} or less")

    def vector(self, values: Sequence[int], field: str, resources: int) -> None:
        found = list(values)
        self.need(
            len(values) == resources, field, found, f"one number for each of {resources} resources"
        )
        self.need(min(values) >= 0, field, found, "negative", "write 0 or more")
        self.need(max(values) <= LIMIT, field, found, f"must be {LIMIT} or less")

    def instance(self, read: _File) -> Instance:
        self.number(read.time, "time", 0)
        system = self.system(read)
        nodes, kinds = system.nodes, len(system.resources)
        for k, node in enumerate(read.down):
            self.need(0 <= node < nodes, f"down[{k}]", node, f"nodes are numbered 0 to {nodes - 1}")
        down = sealed(np.array(sorted(set(read.down)), dtype=np.int64))
        reservations = tuple(
            Reservation(r.start, r.duration, tuple(r.nodes), tuple(r.capacity))
            for r in read.reservations
        )
        self.reservations(reservations, nodes, kinds)
        power, starvation = None, None
        if read.power is not None:
            power = Power(read.power.cap, tuple(read.power.unit))
        self.power(power, kinds)
        if read.starvation is not None:
            starvation = Starvation(read.starvation.threshold, read.starvation.bound)
        self.starvation(starvation)
        jobs: list[_QueuedJob | _RunningJob] = [*read.queue, *read.running]
        names = _names([(job.user, job.queue) for job in jobs])
        running = self.running(read, system, names)
        queue = self.queue(read, kinds, names, {job.id for job in read.running})
        if power is not None:
            self.draws(jobs, power)
        free = free_capacity(system, running, down, reservations, read.time)
        return Instance(
            read.time, system, free, queue, running, down, reservations, power,
            self.dependencies(read, queue, running), starvation,
        )  # fmt: skip

    def rules(self, instance: Instance) -> None:
        """What an instance holds beside jobs and nodes."""
        self.reservations(instance.reservations, *instance.system.capacity.shape)
        self.power(instance.power, len(instance.system.resources))
        self.starvation(instance.starvation)

    def power(self, power: Power | None, kinds: int) -> None:
        if power is not None:
            self.number(power.cap, "power.cap", 0)
            self.vector(power.unit, "power.unit", kinds)

    def starvation(self, starvation: Starvation | None) -> None:
        if starvation is not None:
            self.number(starvation.threshold_s, "starvation.threshold", 0)
            self.number(starvation.bound_s, "starvation.bound", 0)

    def dependencies(self, read: _File, queue: JobTable, running: Running) -> Dependencies | None:
        """What the jobs' `after`, `think` and `earliest` say; None when they say nothing."""
        queued = {id: position for position, id in enumerate(queue.id.tolist())}
        started = {id: position for position, id in enumerate(running.jobs.id.tolist())}
        stated_s = np.full(len(queue), read.time, dtype=np.int64)
        think_s = np.zeros(len(queue), dtype=np.int64)
        pairs: list[tuple[int, int]] = []
        pairs_running: list[tuple[int, int]] = []
        for k, job in enumerate(read.queue):
            if not job.after and job.think == 0 and job.earliest is None:
                continue
            self.dependent(job, f"queue[{k}]", queued, started)
            own = queued[job.id]
            pairs += [(own, queued[id]) for id in job.after if id in queued]
            pairs_running += [(own, started[id]) for id in job.after if id in started]
            think_s[own] = job.think
            if job.earliest is not None:
                stated_s[own] = max(job.earliest, read.time)
        if not pairs and not pairs_running and (stated_s == read.time).all():
            return None
        self.no_cycle(read.queue)
        return Dependencies.of(
            read.time, running.end_s, stated_s, think_s, _columns(pairs), _columns(pairs_running)
        )

    def dependent(
        self, job: _QueuedJob, field: str, queued: dict[int, int], started: dict[int, int]
    ) -> None:
        for i, id in enumerate(job.after):
            where = f"{field}.after[{i}]"
            self.need(
                id in queued or id in started, where, id, "no queued or running job has this id",
                "leave out a job that has ended, and state what is left of its think time as "
                "earliest",
            )  # fmt: skip
            self.need(id != job.id, where, id, "a job cannot come after itself", "leave it out")
        twice = len(set(job.after)) < len(job.after)
        self.need(not twice, f"{field}.after", job.after, "a job is named twice")
        self.number(job.think, f"{field}.think", 0)
        self.need(
            bool(job.after) or job.think == 0, f"{field}.think", job.think,
            "counts from the ends of the jobs in after, which names none",
            "name them, or state the time as earliest",
        )  # fmt: skip
        if job.earliest is not None:
            self.number(job.earliest, f"{field}.earliest")

    def no_cycle(self, queue: list[_QueuedJob]) -> None:
        try:
            TopologicalSorter({job.id: job.after for job in queue if job.after}).prepare()
        except CycleError as error:
            circle: list[int] = error.args[1]
            k = next(k for k, job in enumerate(queue) if job.id == circle[0])
            self.need(
                False, f"queue[{k}].after", circle, "jobs that wait for each other in a circle",
                "take one of them out of the other's after",
            )  # fmt: skip

    def draws(self, jobs: list[_QueuedJob | _RunningJob], power: Power) -> None:
        for job in jobs:
            watts = job.units * sum(n * w for n, w in zip(job.unit, power.unit, strict=True))
            problem = f"job {job.id} would draw {watts} W"
            self.need(watts <= LIMIT, "power.unit", list(power.unit), problem)

    def system(self, read: _File) -> System:
        self.need(bool(read.resources), "resources", [], "a system needs a resource type")
        for k, group in enumerate(read.groups):
            self.vector(group.capacity, f"groups[{k}].capacity", len(read.resources))
        groups = tuple(NodeGroup(g.name, g.nodes, tuple(g.capacity)) for g in read.groups)
        try:
            return System(Path(self.path).name.split(".")[0], tuple(read.resources), groups)
        except InputError as error:
            raise InputError(str(error), file=self.path) from error

    def reservations(self, reservations: tuple[Reservation, ...], nodes: int, kinds: int) -> None:
        for index, given in enumerate(reservations):
            field, named = f"reservations[{index}]", list(given.nodes)
            self.number(given.start_s, f"{field}.start")
            self.number(given.duration_s, f"{field}.duration", 1)
            self.need(
                bool(named), f"{field}.nodes", named, "a reservation needs a node or more",
                "name its nodes, or leave the reservation out",
            )  # fmt: skip
            k = next((k for k, node in enumerate(named) if not 0 <= node < nodes), 0)
            self.need(
                0 <= named[k] < nodes, f"{field}.nodes[{k}]", named[k],
                f"nodes are numbered 0 to {nodes - 1}",
            )  # fmt: skip
            once = len(set(named)) == len(named)
            self.need(once, f"{field}.nodes", named, "a node is named twice")
            self.vector(given.capacity, f"{field}.capacity", kinds)

    def job(self, job: _QueuedJob | _RunningJob, field: str, kinds: int, seen: set[int]) -> None:
        self.need(job.id not in seen, f"{field}.id", job.id, "another job has this id")
        seen.add(job.id)
        self.number(job.id, f"{field}.id", 0)
        self.number(job.units, f"{field}.units", 1)
        self.number(job.duration, f"{field}.duration", 1)
        if job.submit is not None:
            self.number(job.submit, f"{field}.submit")
        self.vector(job.unit, f"{field}.unit", kinds)
        most = LIMIT // job.units
        self.need(max(job.unit) <= most, f"{field}.unit", job.unit, f"x {job.units}: too much")
        self.need(max(job.unit) > 0, f"{field}.unit", job.unit, "asks for nothing")

    def requested(self, job: _QueuedJob | _RunningJob, field: str) -> int:
        if job.requested is None:
            return job.duration
        self.number(job.requested, f"{field}.requested", job.duration)
        return job.requested

    def upper(self, job: _QueuedJob, field: str) -> int:
        requested = self.requested(job, field)
        if job.upper is None:
            return requested
        self.number(job.upper, f"{field}.upper", job.duration)
        most = f"must be {requested} or less, the requested time"
        self.need(job.upper <= requested, f"{field}.upper", job.upper, most)
        return job.upper

    def running(self, read: _File, system: System, names: _Names) -> Running:
        jobs = sorted(read.running, key=lambda job: (job.start, job.id))
        index = {id(job): k for k, job in enumerate(read.running)}
        seen: set[int] = set()
        entries: list[list[tuple[int, int]]] = []
        requested: list[int] = []
        for job in jobs:
            field = f"running[{index[id(job)]}]"
            self.job(job, field, len(system.resources), seen)
            self.number(job.start, f"{field}.start")
            self.need(job.start <= read.time, f"{field}.start", job.start, "starts in the future")
            entries.append(self.placement(job, field, system.nodes))
            requested.append(self.requested(job, field))
        start = np.array([job.start for job in jobs], dtype=np.int64)
        duration = np.array([job.duration for job in jobs], dtype=np.int64)
        end = start + duration
        offset = np.cumsum([0, *(len(entry) for entry in entries)], dtype=np.int64)
        running = Running(
            JobTable(
                job_block(
                    id=[job.id for job in jobs],
                    submit_s=[job.start if job.submit is None else job.submit for job in jobs],
                    units=[job.units for job in jobs],
                    requested_s=requested,
                    expected_s=duration,
                    request=np.array([job.unit for job in jobs]).reshape(-1, len(system.resources)),
                    user=[names.user[job.user] for job in jobs],
                    queue=[names.queue[job.queue] for job in jobs],
                ),
                names.labels,
            ),
            sealed(start),
            sealed(np.maximum(end, read.time + 1)),
            sealed((end <= read.time).astype(np.int64)),
            sealed(offset),
            sealed(np.array([n for entry in entries for n, _ in entry], dtype=np.int64)),
            sealed(np.array([u for entry in entries for _, u in entry], dtype=np.int64)),
        )
        over = running.usage(system.nodes) > system.capacity
        if over.any():
            node, kind = (int(axis[0]) for axis in np.nonzero(over))
            held = int(running.usage(system.nodes)[node, kind])
            what = f"overlap: they hold more {system.resources[kind]} than node {node} has"
            self.need(False, "running", held, what)
        return running

    def placement(self, job: _RunningJob, field: str, nodes: int) -> list[tuple[int, int]]:
        entries = []
        for name, units in job.nodes.items():
            where = f"{field}.nodes.{name}"
            known = is_number(name) and int(name) < nodes
            self.need(known, where, name, f"no such node, 0 to {nodes - 1}")
            self.need(units > 0, where, units, "must be 1 or more units")
            entries.append((int(name), units))
        placed = sum(units for _, units in entries)
        self.need(placed == job.units, f"{field}.nodes", placed, f"the job has {job.units} units")
        return sorted(entries)

    def queue(self, read: _File, kinds: int, names: _Names, seen: set[int]) -> JobTable:
        requested: dict[int, int] = {}
        upper: dict[int, int] = {}
        for k, job in enumerate(read.queue):
            self.job(job, f"queue[{k}]", kinds, seen)
            self.need(job.submit <= read.time, f"queue[{k}].submit", job.submit, "in the future")
            self.number(job.ewt, f"queue[{k}].ewt", 1)
            requested[job.id] = self.requested(job, f"queue[{k}]")
            upper[job.id] = self.upper(job, f"queue[{k}]")
        jobs = sorted(read.queue, key=lambda job: (job.submit, job.id))
        return JobTable(
            job_block(
                id=[job.id for job in jobs],
                submit_s=[job.submit for job in jobs],
                units=[job.units for job in jobs],
                requested_s=[requested[job.id] for job in jobs],
                expected_s=[job.duration for job in jobs],
                upper_s=[upper[job.id] for job in jobs],
                request=np.array([job.unit for job in jobs]).reshape(-1, kinds),
                ewt_s=[job.ewt for job in jobs],
                user=[names.user[job.user] for job in jobs],
                queue=[names.queue[job.queue] for job in jobs],
            ),
            names.labels,
        )


def _columns(pairs: list[tuple[int, int]]) -> IntArray:
    """Pairs, sorted, as two rows."""
    return np.ascontiguousarray(np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T)


@dataclass(frozen=True, slots=True)
class _Names:
    """Numbers for the users' and queues' names of a file; no name is -1."""

    user: dict[str, int]
    queue: dict[str, int]

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        return {"user": tuple(self.user)[1:], "queue": tuple(self.queue)[1:]}


def _names(pairs: list[tuple[str, str]]) -> _Names:
    def number(names: list[str]) -> dict[str, int]:
        return {"": -1, **{name: k for k, name in enumerate(sorted(set(names) - {""}))}}

    return _Names(number([user for user, _ in pairs]), number([queue for _, queue in pairs]))


def to_json(instance: Instance) -> bytes:
    """The canonical content of an instance's file: equal instances give equal bytes.

    Jobs that were submitted, or started, at the same time stand in the order of their ids.
    """
    running, system, queue = instance.running, instance.system, instance.queue
    started = np.lexsort((running.jobs.id, running.start_s)).tolist()
    submitted = np.lexsort((queue.id, queue.submit_s)).tolist()
    file = _File(
        format=FORMAT,
        time=instance.now,
        resources=list(system.resources),
        groups=[_Group(g.name, g.nodes, list(g.capacity)) for g in system.groups],
        down=instance.down.tolist(),
        running=[_running_file(running, k) for k in started],
        queue=[_queued_file(instance, k) for k in submitted],
        reservations=[
            _Reservation(r.start_s, r.duration_s, list(r.nodes), list(r.capacity))
            for r in instance.reservations
        ],
        power=None
        if instance.power is None
        else _Power(instance.power.cap, list(instance.power.unit)),
        starvation=None
        if instance.starvation is None
        else _Starvation(instance.starvation.threshold_s, instance.starvation.bound_s),
    )  # fmt: skip
    return json_lines(msgspec.to_builtins(file))


def _queued_file(instance: Instance, k: int) -> _QueuedJob:
    job, given = instance.queue[k], instance.dependencies
    file = _QueuedJob(
        job.id, job.submit_s, job.expected_s, job.units, list(job.request),
        instance.queue.label("user", k), instance.queue.label("queue", k), job.ewt_s,
        _unless(job.expected_s, job.requested_s), _unless(job.requested_s, job.upper_s),
    )  # fmt: skip
    if given is not None:
        queued = given.position[given.offset[k] : given.offset[k + 1]]
        started = given.running_position[given.running_offset[k] : given.running_offset[k + 1]]
        ids = (instance.queue.id[queued], instance.running.jobs.id[started])
        file.after = sorted(np.concatenate(ids).tolist())
        file.think = int(given.think_s[k])
        if given.stated_s[k] > instance.now:
            file.earliest = int(given.stated_s[k])
    return file


def _running_file(running: Running, k: int) -> _RunningJob:
    job = running.jobs[k]
    low, high = int(running.offset[k]), int(running.offset[k + 1])
    nodes = zip(running.node[low:high].tolist(), running.units[low:high].tolist(), strict=True)
    start, end = int(running.start_s[k]), int(running.end_s[k])
    duration = job.expected_s if running.overdue[k] else end - start
    return _RunningJob(
        job.id, start, duration, job.units, list(job.request),
        {str(node): units for node, units in sorted(nodes)}, job.submit_s,
        running.jobs.label("user", k), running.jobs.label("queue", k),
        _unless(duration, job.requested_s),
    )  # fmt: skip


def _unless(left_out: int, value: int) -> int | None:
    """A value for a file, unless it is the one that it is taken to be when it is left out."""
    return None if value == left_out else value


def dump(instance: Instance, path: str | os.PathLike[str]) -> None:
    """Write an instance file, packed when its name ends in .gz, .xz or .zst."""
    write_bytes(path, to_json(instance))


def digest(instance: Instance) -> str:
    """SHA-256 of the canonical instance: what a solution file names its instance by."""
    return hashlib.sha256(to_json(instance)).hexdigest()
