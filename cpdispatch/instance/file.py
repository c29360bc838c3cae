"""Instance files: an instance as JSON, read, written, and named by its digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from cpdispatch.access import SPREAD
from cpdispatch.access.spread import LIMIT_TYPE
from cpdispatch.arrays import IntArray, in_rows, sealed
from cpdispatch.errors import InputError
from cpdispatch.files import json_lines, parse_json, read_text, write_bytes
from cpdispatch.instance import wishes
from cpdispatch.instance.snapshot import (
    Check,
    Dependencies,
    Instance,
    LeftOut,
    Power,
    Reservation,
    Running,
    Stopped,
    free_capacity,
    held_by,
)
from cpdispatch.jobs import PRIORITY_MAX, Job, JobTable, Starvation, job_block
from cpdispatch.system import FIRST, LIMIT, TIER_MAX, USUAL_TIER, NodeGroup, PartitionFile, System

FORMAT = "cpdispatch-instance/1"
FORMAT_OF_RESTARTS = "cpdispatch-instance/2"
"""Of an instance with jobs that may be restarted or have priorities, and of a file that says where
jobs may run.

All other instances are written in the first format.
"""


class _Group(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    nodes: int
    capacity: list[int]
    features: list[str] = []


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
    restartable: bool = False
    bound: int = 0
    exclusive: bool = False
    tier: int = USUAL_TIER
    first: list[int] = []
    first_node: int | None = None


class _Stopped(msgspec.Struct, forbid_unknown_fields=True):
    start: int
    nodes: dict[str, int]


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
    restartable: bool = False
    stopped: _Stopped | None = None
    partition: str = ""
    features: str = ""
    nodelist: str = ""
    exclude: str = ""
    exclusive: bool = False
    units_per_node_max: int | None = None
    units_per_node: int | None = None
    units_per_node_min: int | None = None
    nodes_min: int | None = None
    nodes_max: int | None = None
    node: list[int] = []
    priority: int = 0
    tier: int = USUAL_TIER
    hold: bool = False
    first: list[int] = []


class _Reservation(msgspec.Struct, forbid_unknown_fields=True):
    start: int
    duration: int
    nodes: list[int]
    capacity: list[int]


class _Power(msgspec.Struct, forbid_unknown_fields=True):
    cap: int
    unit: list[int]


class _Starvation(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    threshold: int
    bound: int
    wide: int = 0


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
    restart_cost: int = 0
    data: dict[str, Any] = {}
    data_left_out: dict[str, str] = {}
    partitions: list[PartitionFile] = []


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
    read = parse_json(content, _File, "an instance file", name, (FORMAT, FORMAT_OF_RESTARTS))
    instance = _FileCheck(name).instance(read)
    wished, once = wishes.stated(read), _FileCheck(name).asks_once(read)
    if wished:
        read = _placed(read, wished, name, instance.system.name)
    if once:
        read = _with_types_taken_once(read)
    return _FileCheck(name).instance(read) if wished or once else instance


def _placed(
    read: _File, wished: list[tuple[str, object]], name: str | os.PathLike[str], system: str
) -> _File:
    """The file in which resource types say where jobs may run."""
    lowering = wishes.Lowering(name)
    for field, value in wished:
        lowering.need(
            read.format == FORMAT_OF_RESTARTS, field, value,
            f"the format {FORMAT} does not say where jobs may run",
            f"state {FORMAT_OF_RESTARTS!r} as format",
        )  # fmt: skip
    return lowering.lowered(read, system)


def _with_types_taken_once(read: _File) -> _File:
    """The file with a resource type for each one of which a job takes an amount on its first node.

    What a job of one unit takes there is a part of the unit.
    """
    jobs: list[_QueuedJob | _RunningJob] = [*read.queue, *read.running]
    kinds = sorted({k for job in jobs if job.units > 1 for k, n in enumerate(job.first) if n})
    none = [0] * len(kinds)

    def unit(job: _QueuedJob | _RunningJob) -> list[int]:
        if job.units == 1:
            return [*(a + b for a, b in zip_longest(job.unit, job.first, fillvalue=0)), *none]
        return [*job.unit, *(job.first[k] if job.first else 0 for k in kinds)]

    power = read.power
    return replace(
        read,
        resources=[*read.resources, *(f"{FIRST}{read.resources[k]}" for k in kinds)],
        groups=[replace(g, capacity=[*g.capacity, *(LIMIT for _ in kinds)]) for g in read.groups],
        queue=[replace(job, unit=unit(job), first=[]) for job in read.queue],
        running=[replace(job, unit=unit(job), first=[]) for job in read.running],
        reservations=[replace(r, capacity=[*r.capacity, *none]) for r in read.reservations],
        power=None if power is None else replace(power, unit=[*power.unit, *none]),
    )


def is_number(text: str) -> bool:
    """Whether a key is a node's number as it is written by the package: "7", not "07" or "²"."""
    return text.isascii() and text.isdigit() and len(text) < 16 and str(int(text)) == text


class _FileCheck(Check):
    """Turns a parsed file into an `Instance`, naming the path of whatever is wrong in it."""

    def instance(self, read: _File) -> Instance:
        self.number(read.time, "time", 0)
        self.number(read.restart_cost, "restart_cost", 0)
        system = self.system(read)
        nodes, kinds = system.nodes, len(system.resources)
        self.numbered(read.down, "down", nodes)
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
            starvation = Starvation(*msgspec.structs.astuple(read.starvation))
        self.starvation(starvation)
        jobs: list[_QueuedJob | _RunningJob] = [*read.queue, *read.running]
        names = _names([(job.user, job.queue) for job in jobs])
        running = self.running(read, system, names)
        queue = self.queue(read, kinds, names, {job.id for job in read.running})
        if power is not None:
            self.draws(jobs, power)
        free = free_capacity(system, running, down, reservations, read.time)
        stopped = self.stopped(read, queue, system, free)
        return Instance(
            read.time, system, free, queue, running, down, reservations, power,
            self.dependencies(read, queue, running), starvation, stopped, read.restart_cost,
            read.data | {name: LeftOut(kind) for name, kind in read.data_left_out.items()},
        )  # fmt: skip

    def asks_once(self, read: _File) -> bool:
        """Whether a job takes something once on its first node; refuses what cannot be taken so."""
        found, kinds = False, len(read.resources)
        for name in ("queue", "running"):
            jobs: Sequence[_QueuedJob | _RunningJob] = getattr(read, name)
            for k, job in enumerate(jobs):
                field, node = f"{name}[{k}]", getattr(job, "first_node", None)
                if job.first:
                    found = True
                    self.need(
                        read.format == FORMAT_OF_RESTARTS, f"{field}.first", job.first,
                        f"the format {FORMAT} has no first nodes",
                        f"state {FORMAT_OF_RESTARTS!r} as format",
                    )  # fmt: skip
                    self.vector(job.first, f"{field}.first", kinds)
                    self.need(
                        not job.restartable, f"{field}.restartable", job.restartable,
                        "a job that takes something on its first node cannot be restarted",
                        "leave it out",
                    )  # fmt: skip
                if isinstance(job, _RunningJob):
                    self.need(
                        bool(job.first) or node is None, f"{field}.first_node", node,
                        "the job takes nothing on a first node",
                        f"state {field}.first, or leave first_node out",
                    )  # fmt: skip
                    several = bool(job.first) and len(job.nodes) > 1
                    self.need(
                        str(node) in job.nodes if several or node is not None else True,
                        f"{field}.first_node", node, f"none of its nodes: {', '.join(job.nodes)}",
                        "state on which of its nodes the job holds what it takes once",
                    )  # fmt: skip
        return found

    def stopped(
        self, read: _File, queue: JobTable, system: System, free: IntArray
    ) -> Stopped | None:
        """What the jobs' `stopped` say; None when they say nothing."""
        fields: list[tuple[str, int]] = [("restart_cost", read.restart_cost)]
        fields += [(f"queue[{k}].restartable", job.restartable) for k, job in enumerate(read.queue)]
        fields += [
            (f"running[{k}].restartable", job.restartable) for k, job in enumerate(read.running)
        ]
        fields += [(f"running[{k}].bound", job.bound) for k, job in enumerate(read.running)]
        for field, value in fields:
            self.need(
                read.format == FORMAT_OF_RESTARTS or not value, field, value,
                f"the format {FORMAT} has no restarts", f"state {FORMAT_OF_RESTARTS!r} as format",
            )  # fmt: skip
        position = {id: k for k, id in enumerate(queue.id.tolist())}
        held: dict[int, tuple[int, dict[int, int]]] = {}
        left = free.copy()
        for k, job in enumerate(read.queue):
            if job.stopped is None:
                continue
            field = f"queue[{k}].stopped"
            advice = f"set restartable, or leave {field} out"
            self.need(job.restartable, field, job.id, "the job may not be restarted", advice)
            self.number(job.stopped.start, f"{field}.start", job.submit)
            self.need(
                job.stopped.start < read.time, f"{field}.start", job.stopped.start,
                "starts in the future", f"give a time before {read.time}, that of the instance",
            )  # fmt: skip
            entries = self.placement(job.stopped.nodes, job.units, field, system.nodes)
            for node, units in entries:
                left[node] -= units * np.array(job.unit, dtype=np.int64)
                enough = bool((left[node] >= 0).all())
                self.need(
                    enough, f"{field}.nodes.{node}", units, "the node has less that counts as free"
                )
            held[position[job.id]] = job.stopped.start, dict(entries)
        return Stopped.of(held) if held else None

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
            read.time, running.end_s, stated_s, think_s, in_rows(pairs), in_rows(pairs_running)
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
            problem = f"job {job.id} would draw {watts} W, and {LIMIT} W at most can be counted"
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

    def job(self, job: _QueuedJob | _RunningJob, field: str, kinds: int, seen: set[int]) -> None:
        self.need(job.id not in seen, f"{field}.id", job.id, "another job has this id")
        seen.add(job.id)
        self.number(job.id, f"{field}.id", 0)
        self.number(job.units, f"{field}.units", 1)
        self.number(job.duration, f"{field}.duration", 1)
        if job.submit is not None:
            self.number(job.submit, f"{field}.submit")
        self.vector(job.unit, f"{field}.unit", kinds)
        self.need(
            max(job.unit) <= LIMIT // job.units, f"{field}.unit", job.unit,
            f"{job.units} units of it are more than {LIMIT}",
        )  # fmt: skip
        self.need(
            max(job.unit) > 0, f"{field}.unit", job.unit, "asks for nothing",
            "state 1 or more of a resource type",
        )  # fmt: skip

    def past(self, time: int, field: str, now: int, problem: str) -> None:
        advice = f"give a time no later than {now}, that of the instance"
        self.need(time <= now, field, time, problem, advice)

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
            self.past(job.start, f"{field}.start", read.time, "starts in the future")
            placed = self.placement(job.nodes, job.units, field, system.nodes)
            entries.append(sorted(placed, key=lambda entry: entry[0] != job.first_node))
            requested.append(self.requested(job, field))
            self.number(job.bound, f"{field}.bound", 0)
            self.tier(job.tier, f"{field}.tier", read.format)
        start = np.array([job.start for job in jobs], dtype=np.int64)
        duration = np.array([job.duration for job in jobs], dtype=np.int64)
        bound = np.array([job.bound for job in jobs], dtype=np.int64)
        end = start + np.where(bound > 0, bound + read.restart_cost, duration)
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
                    restartable=[job.restartable for job in jobs],
                    tier=[job.tier for job in jobs],
                ),
                names.labels,
            ),
            sealed(start),
            sealed(np.maximum(end, read.time + 1)),
            sealed((end <= read.time).astype(np.int64)),
            sealed(offset),
            sealed(np.array([n for entry in entries for n, _ in entry], dtype=np.int64)),
            sealed(np.array([u for entry in entries for _, u in entry], dtype=np.int64)),
            sealed(bound) if bound.any() else None,
        )
        usage = held_by(system, running)
        over = usage > system.capacity
        if over.any():
            node, kind = (int(axis[0]) for axis in np.nonzero(over))
            held = int(usage[node, kind])
            last = [job for job in jobs if str(node) in job.nodes][-1]
            self.need(
                False, "running", held,
                f"overlap: they hold more {system.resources[kind]} than node {node} has, "
                f"{system.capacity[node, kind]}",
                f"job {last.id} is the last one that started there",
            )  # fmt: skip
        return running

    def placement(
        self, units_of: dict[str, int], wanted: int, field: str, nodes: int
    ) -> list[tuple[int, int]]:
        entries = []
        for name, units in units_of.items():
            where = f"{field}.nodes.{name}"
            known = is_number(name) and int(name) < nodes
            self.need(known, where, name, "no such node", f"write a number from 0 to {nodes - 1}")
            self.need(units > 0, where, units, "must be 1 or more units")
            entries.append((int(name), units))
        placed = sum(units for _, units in entries)
        self.need(
            placed == wanted, f"{field}.nodes", placed,
            f"the job has {wanted} unit{'s' * (wanted != 1)}", "state the nodes of all of them",
        )  # fmt: skip
        return sorted(entries)

    def queue(self, read: _File, kinds: int, names: _Names, seen: set[int]) -> JobTable:
        requested: dict[int, int] = {}
        upper: dict[int, int] = {}
        for k, job in enumerate(read.queue):
            self.job(job, f"queue[{k}]", kinds, seen)
            self.past(job.submit, f"queue[{k}].submit", read.time, "in the future")
            self.number(job.ewt, f"queue[{k}].ewt", 1)
            self.priority(job.priority, f"queue[{k}].priority", read.format)
            self.tier(job.tier, f"queue[{k}].tier", read.format)
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
                restartable=[job.restartable for job in jobs],
                priority=[job.priority for job in jobs],
                tier=[job.tier for job in jobs],
            ),
            names.labels,
        )

    def tier(self, value: int, field: str, format: str) -> None:
        self.need(
            format == FORMAT_OF_RESTARTS or value == USUAL_TIER, field, value,
            f"the format {FORMAT} has no tiers", f"state {FORMAT_OF_RESTARTS!r} as format",
        )  # fmt: skip
        self.number(value, field, 0)
        self.need(value <= TIER_MAX, field, value, f"must be {TIER_MAX} or less")

    def priority(self, value: int, field: str, format: str) -> None:
        self.need(
            format == FORMAT_OF_RESTARTS or not value, field, value,
            f"the format {FORMAT} has no priorities", f"state {FORMAT_OF_RESTARTS!r} as format",
        )  # fmt: skip
        self.number(value, field, 0)
        self.need(value <= PRIORITY_MAX, field, value, f"must be {PRIORITY_MAX} or less")


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
    types = _Types(instance)
    started = np.lexsort((running.jobs.id, running.start_s)).tolist()
    submitted = np.lexsort((queue.id, queue.submit_s)).tolist()
    held = {} if instance.stopped is None else instance.stopped.held()
    restarts = bool(queue.restartable.any() or running.jobs.restartable.any())
    tiers = np.concatenate((queue.tier, running.jobs.tier))
    ordered = bool(queue.priority.any() or (tiers != USUAL_TIER).any())
    once = bool(instance.system.once) and any(map(types.first, (*queue, *running.jobs)))
    second = restarts or instance.restart_cost_s > 0 or ordered or once
    data, left_out = _data_file(instance.data)
    file = _File(
        format=FORMAT_OF_RESTARTS if second else FORMAT,
        time=instance.now,
        resources=types.names,
        groups=[
            _Group(g.name, g.nodes, types.of(g.capacity, types.limit.values()))
            for g in system.groups
        ],
        down=instance.down.tolist(),
        running=[_running_file(running, k, types) for k in started],
        queue=[_queued_file(instance, k, held, types) for k in submitted],
        reservations=[
            _Reservation(r.start_s, r.duration_s, list(r.nodes), types.of(r.capacity))
            for r in instance.reservations
        ],
        power=None
        if instance.power is None
        else _Power(instance.power.cap, types.of(instance.power.unit)),
        starvation=None
        if instance.starvation is None
        else _Starvation(*astuple(instance.starvation)),
        restart_cost=instance.restart_cost_s,
        data=data,
        data_left_out=left_out,
    )  # fmt: skip
    return json_lines(msgspec.to_builtins(file))


class _Types:
    """The resource types of a file. Each job whose units on a node are limited has one of its own.

    A request below 0 says the limit elsewhere, see `cpdispatch.access.spread`. Of ``spread@77``,
    each node has as many as units of job 77 may share it. What is taken once is in the field
    ``first``; of a job of one unit, it is a part of that.
    """

    def __init__(self, instance: Instance) -> None:
        names, asked = instance.system.resources, instance.queue.request
        at = instance.system.resource(LIMIT_TYPE)
        self._once = {of: once for once, of in instance.system.once}
        away = {at, *self._once.values()}
        self._kept = [k for k in range(len(names)) if k not in away]
        limits = -asked[:, [at] * (at >= 0)].sum(axis=1)
        self.limit = {k: limit for k, limit in enumerate(limits.tolist()) if limit}
        """The limit of each such job, by its position in the queue."""
        own = [f"{SPREAD}@{id}" for id in instance.queue.id[list(self.limit)].tolist()]
        self.names = [*(names[k] for k in self._kept), *own]

    def of(self, amounts: Sequence[int], own: Iterable[int] = ()) -> list[int]:
        """Amounts of the system's types as those of the file's; ``own`` ones are 0 otherwise."""
        more = list(own) or [0] * len(self.limit)
        return [*(amounts[k] for k in self._kept), *more]

    def unit(self, job: Job, own: Iterable[int] = ()) -> list[int]:
        """What each unit of a job asks for."""
        unit = list(job.request)
        for of, once in self._once.items() if job.units == 1 else ():
            unit[of] += unit[once]
        return self.of(unit, own)

    def first(self, job: Job) -> list[int]:
        """What a job takes once, on its first node; empty where that is nothing."""
        if job.units == 1 or not any(job.request[once] for once in self._once.values()):
            return []
        amounts = [job.request[self._once[k]] if k in self._once else 0 for k in self._kept]
        return [*amounts, *(0 for _ in self.limit)]


def _data_file(data: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of additional data as JSON gives them back, and the types of the others."""
    held: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, value in sorted(data.items()):
        if isinstance(value, LeftOut):
            left_out[name] = value.kind
            continue
        try:
            _need_json(value)
            content = msgspec.json.encode(value, enc_hook=_of_numpy, order="deterministic")
            held[name] = msgspec.json.decode(content)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
            left_out[name] = type(value).__name__
    return held, left_out


def _need_json(value: Any) -> None:
    """Raise where JSON gives a value back as another one; arrays, tuples and NaN may be others."""
    if isinstance(value, np.ndarray | np.generic) and not np.ma.isMaskedArray(value):
        value = value.tolist()
    if isinstance(value, list | tuple):
        for each in value:
            _need_json(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise TypeError("a key that is no text")
            _need_json(each)
    elif not (value is None or isinstance(value, str | int | float)):
        raise TypeError("nothing that JSON holds")


def _of_numpy(value: object) -> object:
    """An array as a list, a number of NumPy's as a number."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is nothing that JSON holds")


def _queued_file(
    instance: Instance, k: int, held: Mapping[int, tuple[int, Mapping[int, int]]], types: _Types
) -> _QueuedJob:
    job, given = instance.queue[k], instance.dependencies
    file = _QueuedJob(
        job.id, job.submit_s, job.expected_s, job.units,
        types.unit(job, (int(k == limited) for limited in types.limit)),
        instance.queue.label("user", k), instance.queue.label("queue", k), job.ewt_s,
        _unless(job.expected_s, job.requested_s), _unless(job.requested_s, job.upper_s),
    )  # fmt: skip
    if given is not None:
        queued = given.position[given.offset[k] : given.offset[k + 1]]
        started = given.running_position[given.running_offset[k] : given.running_offset[k + 1]]
        ids = (instance.queue.id[queued], instance.running.jobs.id[started])
        file.after = sorted(np.concatenate(ids).tolist())
        file.think = int(given.think_s[k]) if file.after else 0
        if given.stated_s[k] > instance.now:
            file.earliest = int(given.stated_s[k])
    file.restartable = bool(job.restartable)
    file.priority, file.tier = job.priority, job.tier
    file.first = types.first(job)
    if k in held:
        start, nodes = held[k]
        file.stopped = _Stopped(start, {str(node): units for node, units in nodes.items()})
    return file


def _running_file(running: Running, k: int, types: _Types) -> _RunningJob:
    job = running.jobs[k]
    low, high = int(running.offset[k]), int(running.offset[k + 1])
    nodes = zip(running.node[low:high].tolist(), running.units[low:high].tolist(), strict=True)
    start, end = int(running.start_s[k]), int(running.end_s[k])
    bound = 0 if running.bound_s is None else int(running.bound_s[k])
    duration = job.expected_s if running.overdue[k] or bound else end - start
    first = types.first(job)
    return _RunningJob(
        job.id, start, duration, job.units, types.unit(job),
        {str(node): units for node, units in sorted(nodes)}, job.submit_s,
        running.jobs.label("user", k), running.jobs.label("queue", k),
        _unless(duration, job.requested_s), bool(job.restartable), bound, tier=job.tier,
        first=first, first_node=int(running.node[low]) if first else None,
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
