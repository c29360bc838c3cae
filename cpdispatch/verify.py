"""The independent checker: what is wrong with a decision, a plan, or a whole simulated schedule.

It is written from the rules alone and shares no code with what it checks: it imports the data
types and NumPy, no solver, kernel, model, heuristic or simulator. Every function returns a list of
`Violation`; an empty list is the statement that there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from operator import gt
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import NO_START, Decision, Placements
from cpdispatch.errors import InputError, UsageError
from cpdispatch.instance import NO_NODES, Instance, Running, digest
from cpdispatch.jobs import Column, JobTable
from cpdispatch.solution import STATUSES, Solution, SolvedJob
from cpdispatch.system import System

if TYPE_CHECKING:
    import pandas as pd


class Kind(StrEnum):
    """Which rule a violation breaks."""

    SHAPE = "shape"
    """The arrays of a decision do not belong together."""
    DIGEST = "digest"
    """A solution is of another instance."""
    UNKNOWN_JOB = "unknown job"
    """A job is named that the instance does not have."""
    RUNNING_JOB = "running job"
    """A running job is planned again."""
    REPEATED_JOB = "repeated job"
    """A job is named, or placed, twice."""
    MISSING_JOB = "missing job"
    """A queued job is not named."""
    EARLY_START = "early start"
    """A job starts before the instance's time, or before it was submitted."""
    PLACEMENT = "placement"
    """A job that starts has no nodes, or one that does not start has some."""
    UNITS = "units"
    """The units on the nodes are not the job's units, or a count is not positive."""
    NODE = "node"
    """A node does not exist, or a job names it twice."""
    DOWN = "down"
    """A node that is out of service is used."""
    CAPACITY = "capacity"
    """A node holds more of a resource than it has."""
    POOL = "pool"
    """Jobs planned without nodes need more than the whole system has left."""
    RESERVATION = "reservation"
    """Reserved capacity is used."""
    POWER = "power"
    """The power cap is exceeded."""
    DEPENDENCY = "dependency"
    """A job starts before the jobs that it comes after have ended, or before its earliest start."""
    STARVATION = "starvation"
    """A starved job is planned later than its bound though it could start earlier."""
    OBJECTIVE = "objective"
    """The objective is unknown, or there is none for a value."""
    VALUE = "value"
    """The stated value is not the objective of the plan."""
    BOUND = "bound"
    """The stated lower bound lies above the value."""
    STATUS = "status"
    """The status is unknown, or optimality is claimed with a gap."""
    DURATION = "duration"
    """A job did not run for its runtime, or was not cut at its limit."""
    NEVER_STARTED = "never started"
    """A job was left out though it could have been started."""
    MORE = "more"
    """How many violations are not listed."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: which, and in words the job, node, resource, time, found and allowed."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


# --------------------------------------------------------------------------------- a decision


def decision(instance: Instance, decision: Decision) -> list[Violation]:
    """What is wrong with a dispatcher's answer.

    The jobs that start now must fit into the free capacity, all together, on nodes in service, and
    leave alone what is reserved during their expected durations; placements of planned jobs must
    be sound in themselves. It is called at every dispatch: in the usual case, without
    reservations and power cap, it looks only at the entries of the jobs that start. No job, started
    or planned, comes before those that it depends on; the starvation bound holds for a plan that
    has an objective: the reservations of a queue rule are forecasts.
    """
    start_s, places, now = decision.start_s, decision.placements, instance.now
    positions, offset = places.position.tolist(), places.offset.tolist()
    if wrong := _misshapen(len(instance.queue), decision, offset):
        return [Violation(Kind.SHAPE, wrong)]
    planned = (start_s != NO_START).nonzero()[0]
    if not len(planned) and not positions:
        return []
    found: list[Violation] = []
    times = start_s[planned].tolist()
    if times and min(times) < now:
        found += _early(instance, start_s)
    starting = [k for k, time in zip(planned.tolist(), times, strict=True) if time == now]
    if not starting and not positions and _is_plain(instance):
        return found
    if len(positions) != len(starting) or set(positions) != set(starting):
        found += _astray(instance, decision, starting)
        places = _select(places, start_s, now)
        positions, offset = places.position.tolist(), places.offset.tolist()
    node, units = places.node.tolist(), places.units.tolist()
    nodes, down = len(instance.free), frozenset(instance.down.tolist())
    sound: list[_Start] = []
    for position, (low, high) in zip(positions, pairwise(offset), strict=True):
        job = instance.queue.block[:, position].tolist()
        here, there = node[low:high], units[low:high]
        if wrongs := _misplaced(job[0], here, there, job[2], nodes, down):
            found += wrongs
        else:
            sound.append((position, job, here, there))
    if instance.dependencies is not None:
        ahead = start_s.tolist()
        found += _depending(instance, {k: s for k, s in enumerate(ahead) if s != NO_START})
    if instance.reservations or instance.power is not None:
        found += _over_time(instance, [_planned(instance, *start) for start in sound])
    else:
        found += _overfull(instance, sound)
    if instance.starvation is not None and decision.certificate.objective and not found:
        found += _starving(instance, _whole_plan(instance, decision))
    return found


def _is_plain(instance: Instance) -> bool:
    """Whether only jobs that start now can break a rule: nothing else holds of planned ones."""
    return (
        instance.dependencies is None
        and instance.starvation is None
        and instance.power is None
        and not instance.reservations
    )


_Start: TypeAlias = tuple[int, list[int], list[int], list[int]]
"""A job that starts: queue position, column of the job block, nodes, units on each."""


def _misshapen(jobs: int, decision: Decision, offset: list[int]) -> str:
    """Whether a decision's arrays belong together; empty when they do."""
    places = decision.placements
    entries = len(places.node)
    if decision.start_s.shape != (jobs,) or decision.reason.shape != (jobs,):
        for name, array in (("start_s", decision.start_s), ("reason", decision.reason)):
            if array.shape != (jobs,):
                return f"{name} has shape {array.shape}, the queue has {jobs} jobs"
    if entries != len(places.units):
        return f"{entries} nodes, {len(places.units)} counts of units"
    if len(offset) != len(places.position) + 1:
        return f"{len(offset)} offsets for {len(places.position)} placed jobs"
    if offset[0] != 0 or offset[-1] != entries or offset != sorted(offset):
        return f"offsets do not rise from 0 to {entries}, the number of entries"
    return ""


def _early(instance: Instance, start_s: IntArray) -> Iterable[Violation]:
    for position in ((start_s < instance.now) & (start_s != NO_START)).nonzero()[0].tolist():
        yield _early_start(instance, position, int(start_s[position]))


def _early_start(instance: Instance, position: int, start_s: int) -> Violation:
    id, submit_s = int(instance.queue.id[position]), int(instance.queue.submit_s[position])
    text = f"job {id} starts at {start_s}, allowed from {max(instance.now, submit_s)} on"
    return Violation(Kind.EARLY_START, text)


def _select(places: Placements, start_s: IntArray, now: int) -> Placements:
    """The placements of the jobs that start now."""
    inside = (places.position >= 0) & (places.position < len(start_s))
    position = np.where(inside, places.position, 0)
    which = inside & (start_s[position] == now)
    sizes = np.diff(places.offset)
    entry = np.repeat(which, sizes)
    offset = np.concatenate(([0], np.cumsum(sizes[which])))
    return Placements(places.position[which], offset, places.node[entry], places.units[entry])


def _astray(instance: Instance, decision: Decision, starting: list[int]) -> list[Violation]:
    """Placements beside those of the jobs that start: wrong ones, and planned ones."""
    places, start_s, ids = decision.placements, decision.start_s, instance.queue.id
    position, found = places.position, []
    inside = (position >= 0) & (position < len(start_s))
    for outside in position[~inside].tolist():
        text = f"a placement is for position {outside}, the queue has {len(start_s)} jobs"
        found.append(Violation(Kind.UNKNOWN_JOB, text))
    known, times = np.unique(position[inside], return_counts=True)
    found += [
        Violation(Kind.REPEATED_JOB, f"job {ids[twice]} is placed more than once")
        for twice in known[times > 1].tolist()
    ]
    found += [
        Violation(Kind.PLACEMENT, f"job {ids[idle]} has nodes and does not start")
        for idle in known[start_s[known] == NO_START].tolist()
    ]
    for bare in sorted(set(starting).difference(known.tolist())):
        text = f"job {ids[bare]} starts at {start_s[bare]} and has no nodes"
        found.append(Violation(Kind.PLACEMENT, text))
    later = inside.copy()
    later[inside] = start_s[position[inside]] > instance.now
    return found + _planned_amiss(instance, places, later)


def _planned_amiss(instance: Instance, places: Placements, later: BoolArray) -> list[Violation]:
    """What is wrong in the placements of planned jobs; only suspects are looked at one by one."""
    sizes = np.diff(places.offset)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    nodes = len(instance.free)
    bad = (places.units <= 0) | (places.node < 0) | (places.node >= nodes)
    bad |= np.isin(places.node, instance.down)
    suspect = np.bincount(owner[bad], minlength=len(sizes)) > 0
    pair = np.stack((owner, places.node))[:, ~bad]
    once, times = np.unique(pair, axis=1, return_counts=True)
    suspect[once[0, times > 1]] = True
    total = np.concatenate(([0], np.cumsum(places.units)))
    placed = total[places.offset[1:]] - total[places.offset[:-1]]
    suspect[later] |= placed[later] != instance.queue.units[places.position[later]]
    found: list[Violation] = []
    down = frozenset(instance.down.tolist())
    for k in (suspect & later).nonzero()[0].tolist():
        low, high = int(places.offset[k]), int(places.offset[k + 1])
        here, there = places.node[low:high].tolist(), places.units[low:high].tolist()
        job = instance.queue[int(places.position[k])]
        found += _misplaced(job.id, here, there, job.units, nodes, down)
    return found


def _misplaced(
    id: int, here: list[int], there: list[int], wanted: int, nodes: int, down: frozenset[int]
) -> list[Violation]:
    """What is wrong with one job's nodes (``here``) and its units on them (``there``)."""
    if (
        here
        and sum(there) == wanted
        and min(there) > 0
        and min(here) >= 0
        and max(here) < nodes
        and len(set(here)) == len(here)
        and down.isdisjoint(here)
    ):
        return []
    found = []
    if sum(there) != wanted:
        text = f"job {id} has {sum(there)} units on its nodes, it asks for {wanted}"
        found.append(Violation(Kind.UNITS, text))
    for node, units in zip(here, there, strict=True):
        if units <= 0:
            text = f"job {id} has {units} units on node {node}, at least 1 is allowed"
            found.append(Violation(Kind.UNITS, text))
        if not 0 <= node < nodes:
            text = f"job {id} uses node {node}, nodes are numbered 0 to {nodes - 1}"
            found.append(Violation(Kind.NODE, text))
        elif node in down:
            text = f"job {id} uses node {node}, which is out of service"
            found.append(Violation(Kind.DOWN, text))
    for node, times in Counter(here).items():
        if times > 1:
            found.append(Violation(Kind.NODE, f"job {id} names node {node} {times} times"))
    if not here and wanted == 0:
        found.append(Violation(Kind.PLACEMENT, f"job {id} starts and has no nodes"))
    return found


def _overfull(instance: Instance, starts: list[_Start]) -> list[Violation]:
    """Nodes on which the jobs that start now need more than is free."""
    first = int(Column.REQUEST)
    used: dict[int, list[int]] = {}
    for _, job, here, there in starts:
        request = job[first:]
        for node, units in zip(here, there, strict=True):
            row = used.get(node)
            if row is None:
                used[node] = [units * n for n in request]
            else:
                used[node] = [held + units * n for held, n in zip(row, request, strict=True)]
    found = []
    frees = instance.free[list(used)].tolist() if used else []
    for (node, row), free in zip(used.items(), frees, strict=True):
        if not any(map(gt, row, free)):
            continue
        for r, (need, have) in enumerate(zip(row, free, strict=True)):
            if need > have:
                who = [job[0] for _, job, here, _ in starts if node in here and job[first + r]]
                place = _place(instance.system, node, r, instance.now)
                text = f"{place}: {need} needed by {_jobs(who)}, {have} free"
                found.append(Violation(Kind.CAPACITY, text))
    return found


def _place(system: System, node: int, resource: int, time: int) -> str:
    group = system.groups[system.group_of[node]].name
    return f"node {node} ({group}), {system.resources[resource]} at {time}"


def _jobs(ids: Iterable[int], most: int = 5) -> str:
    listed = sorted(set(ids))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"job{'s' * (len(listed) > 1)} " + ", ".join(map(str, listed[:most])) + more


# ------------------------------------------------------------------------------ levels over time


class _Sweep:
    """What intervals [start, end) hold together at each place, after every change.

    Parameters
    ----------
    place : int64 array, shape (intervals,)
    times : int64 array
        All instants at which something may change, ascending.
    begin, end : int64 array, shape (intervals,)
        Indices into ``times``; ``end`` is not before ``begin``.

    Attributes
    ----------
    place, time : int64 array, shape (changes,)
        Every place and instant at which something changed there, by place, then time. Levels are
        taken after all changes of an instant: what ends there is given back first.
    """

    def __init__(self, place: IntArray, times: IntArray, begin: IntArray, end: IntArray) -> None:
        # One integer for place and instant sorts several times faster than two keys.
        key = np.concatenate((place, place)) * len(times) + np.concatenate((begin, end))
        self._order = np.argsort(key)
        key = key[self._order]
        self._last = np.append(key[1:] != key[:-1], len(key) > 0).nonzero()[0]
        self.place, instant = np.divmod(key[self._last], max(len(times), 1))
        self.time = times[instant]

    @classmethod
    def of(cls, place: IntArray, start_s: IntArray, end_s: IntArray) -> _Sweep:
        """From intervals in seconds."""
        times, instant = np.unique(np.concatenate((start_s, end_s)), return_inverse=True)
        return cls(place, times, instant[: len(start_s)], instant[len(start_s) :])

    def level(self, amount: IntArray) -> IntArray:
        """What is held when each interval holds its ``amount``, shape (changes,).

        Every interval gives back what it took, so the sum is 0 where one place ends and the next
        begins.
        """
        level = np.concatenate((amount, -amount))[self._order]
        np.cumsum(level, out=level)
        return level[self._last]

    def firsts(self, bad: BoolArray) -> IntArray:
        """The first bad change of each place."""
        rows = bad.nonzero()[0]
        return rows[np.unique(self.place[rows], return_index=True)[1]]


@dataclass(frozen=True, slots=True)
class _Planned:
    """A job of a plan; ``nodes`` is None when it was planned on the pooled capacity."""

    position: int
    id: int
    start_s: int
    end_s: int
    units: int
    request: list[int]
    nodes: dict[int, int] | None


def _planned(
    instance: Instance, position: int, job: list[int], here: list[int], there: list[int]
) -> _Planned:
    nodes = dict(zip(here, there, strict=True))
    return _hold(position, job, instance.now, nodes)


def _hold(position: int, job: list[int], start_s: int, nodes: dict[int, int] | None) -> _Planned:
    """What a queued job, given as its column of the job block, holds from its start on."""
    end_s, request = start_s + job[Column.EXPECTED], job[Column.REQUEST :]
    return _Planned(position, job[0], start_s, end_s, job[Column.UNITS], request, nodes)


@dataclass(frozen=True, slots=True)
class _Held:
    """Entries of capacity held on nodes over time; ``id`` is -1 for a reservation."""

    id: IntArray
    node: IntArray
    start_s: IntArray
    end_s: IntArray
    amount: IntArray  # shape (entries, resources)

    def __add__(self, other: _Held) -> _Held:
        return _Held(
            np.concatenate((self.id, other.id)),
            np.concatenate((self.node, other.node)),
            np.concatenate((self.start_s, other.start_s)),
            np.concatenate((self.end_s, other.end_s)),
            np.concatenate((self.amount, other.amount)),
        )

    def who(self, node: int, time: int, resource: int) -> str:
        """The jobs, and reservations, that hold a resource of a node at an instant."""
        on = (self.node == node) & (self.start_s <= time) & (time < self.end_s)
        ids = self.id[on & (self.amount[:, resource] > 0)].tolist()
        jobs = [id for id in ids if id >= 0]
        parts = [_jobs(jobs)] if jobs else []
        return " and ".join(parts + ["a reservation"] * (len(jobs) < len(ids)))


def _held(rows: list[tuple[int, int, int, int, list[int]]], resources: int) -> _Held:
    """From rows of id, node, start, end, amounts."""
    table = np.array([[*row[:4], *row[4]] for row in rows], dtype=np.int64)
    table = table.reshape(-1, 4 + resources)
    return _Held(table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4:])


def _held_by_running(running: Running, now: int) -> _Held:
    """An overdue job is expected to end one second from now."""
    owner = np.repeat(np.arange(len(running)), np.diff(running.offset))
    return _Held(
        running.jobs.id[owner],
        running.node,
        np.full(len(owner), now, dtype=np.int64),
        np.maximum(running.end_s, now + 1)[owner],
        running.jobs.request[owner] * running.units[:, None],
    )


def _over_time(instance: Instance, plan: list[_Planned]) -> list[Violation]:
    """Capacity, reservations and power at every instant from now on.

    What the running jobs and the reservations do to each other is a fact of life: only instants
    at which jobs of the plan take part are violations.
    """
    if not plan:
        return []
    resources = len(instance.system.resources)
    own = _held(
        [
            (job.id, node, job.start_s, job.end_s, [units * n for n in job.request])
            for job in plan
            for node, units in (job.nodes or {}).items()
        ],
        resources,
    )
    reserved = _held(
        [
            (-1, node, r.start_s, r.end_s, list(r.capacity))
            for r in instance.reservations
            for node in r.nodes
        ],
        resources,
    )
    held = _held_by_running(instance.running, instance.now)
    found = _on_nodes(instance, own, held, reserved)
    if any(job.nodes is None for job in plan):
        found += _in_pool(instance, plan, held + reserved)
    if instance.power is not None:
        found += _power(instance, plan)
    return found


def _on_nodes(instance: Instance, own: _Held, held: _Held, reserved: _Held) -> list[Violation]:
    """Nodes on which something of the plan, and all together, is more than the node has."""
    entries = own + reserved + held
    sweep = _Sweep.of(entries.node, entries.start_s, entries.end_s)
    ours, kept = len(own.id), len(own.id) + len(reserved.id)
    found = []
    for r in range(entries.amount.shape[1]):
        amount = entries.amount[:, r]
        level = sweep.level(amount)
        index = np.arange(len(amount))
        of_plan = sweep.level(np.where(index < ours, amount, 0))
        of_reservations = sweep.level(np.where((ours <= index) & (index < kept), amount, 0))
        allowed = instance.system.capacity[sweep.place, r]
        for k in sweep.firsts((of_plan > 0) & (level > allowed)).tolist():
            over = int(level[k]) - int(allowed[k])
            kind = Kind.RESERVATION if over <= of_reservations[k] else Kind.CAPACITY
            node, time = int(sweep.place[k]), int(sweep.time[k])
            text = (
                f"{_place(instance.system, node, r, time)}: {level[k]} held by "
                f"{entries.who(node, time, r)}, {allowed[k]} allowed"
            )
            found.append(Violation(kind, text))
    return found


def _in_pool(instance: Instance, plan: list[_Planned], held: _Held) -> list[Violation]:
    """Instants at which the plan needs more than is free on all nodes in service together."""
    capacity = instance.system.capacity.copy()
    capacity[instance.down] = 0
    sweep = _Sweep.of(held.node, held.start_s, held.end_s)
    found = []
    for r, name in enumerate(instance.system.resources):
        change = _taken(sweep, held.amount[:, r], capacity[:, r])
        needs = [(job.start_s, job.end_s, job.units * job.request[r], job) for job in plan]
        start_s, end_s, need = (
            np.array(c, dtype=np.int64) for c in zip(*(row[:3] for row in needs), strict=True)
        )
        bare = np.array([row[3].nodes is None for row in needs])
        times, instant = np.unique(
            np.concatenate((sweep.time, start_s, end_s)), return_inverse=True
        )
        all_change, bare_change = (np.zeros(len(times), dtype=np.int64) for _ in range(2))
        np.add.at(all_change, instant, np.concatenate((change, need, -need)))
        need = np.where(bare, need, 0)
        np.add.at(bare_change, instant, np.concatenate((0 * change, need, -need)))
        total, pool = np.cumsum(all_change), int(capacity[:, r].sum())
        for k in ((total > pool) & (np.cumsum(bare_change) > 0)).nonzero()[0][:1].tolist():
            time = int(times[k])
            who = [row[3].id for row in needs if row[0] <= time < row[1] and row[2]]
            text = f"{name} at {time}: {total[k]} held in all, with {_jobs(who)}, {pool} in service"
            found.append(Violation(Kind.POOL, text))
    return found


def _taken(sweep: _Sweep, amount: IntArray, capacity: IntArray) -> IntArray:
    """What each change of a sweep over nodes takes from the pool of them all.

    A node that is held beyond its capacity takes no more than that.
    """
    level = np.minimum(sweep.level(amount), capacity[sweep.place])
    new = np.append(True, sweep.place[1:] != sweep.place[:-1])[: len(sweep.place)]
    return level - np.where(new, 0, np.append(0, level[:-1])[: len(level)])


def _power(instance: Instance, plan: list[_Planned]) -> list[Violation]:
    assert instance.power is not None
    running, now, unit = instance.running, instance.now, instance.power.unit
    ours = np.array(
        [job.units * sum(n * w for n, w in zip(job.request, unit, strict=True)) for job in plan],
        dtype=np.int64,
    )
    theirs = instance.job_power(running.jobs)
    start_s = np.array([job.start_s for job in plan] + [now] * len(theirs), dtype=np.int64)
    ours_end_s = np.array([job.end_s for job in plan], dtype=np.int64)
    end_s = np.concatenate((ours_end_s, np.maximum(running.end_s, now + 1)))
    sweep = _Sweep.of(np.zeros(len(start_s), dtype=np.int64), start_s, end_s)
    total = sweep.level(np.concatenate((ours, theirs)))
    of_plan = sweep.level(np.concatenate((ours, np.zeros_like(theirs))))
    found = []
    for k in sweep.firsts((of_plan > 0) & (total > instance.power.cap)).tolist():
        time = int(sweep.time[k])
        who = [job.id for job in plan if job.start_s <= time < job.end_s]
        text = f"at {time}: {total[k]} W drawn, with {_jobs(who)}, {instance.power.cap} W allowed"
        found.append(Violation(Kind.POWER, text))
    return found


# ---------------------------------------------------------------- dependencies and starvation


def _depending(instance: Instance, starts: Mapping[int, int]) -> list[Violation]:
    """Starts, by queue position, before the jobs that they come after have ended."""
    given, ids = instance.dependencies, instance.queue.id
    assert given is not None
    found = []
    for position, start_s in starts.items():
        name = f"job {ids[position]} starts at {start_s}"
        if start_s < (stated_s := int(given.stated_s[position])) and stated_s > instance.now:
            found.append(Violation(Kind.DEPENDENCY, f"{name}, allowed from {stated_s} on"))
        think_s = int(given.think_s[position])
        for before, end_s in _ends_before(instance, starts, position):
            if end_s is None:
                text = f"{name}, and job {before}, after which it comes, has no start"
                found.append(Violation(Kind.DEPENDENCY, text))
            elif start_s < end_s + think_s:
                found.append(Violation(Kind.DEPENDENCY, _too_soon(name, before, end_s, think_s)))
    return found


def _too_soon(name: str, before: int, end_s: int, think_s: int) -> str:
    thinks = f", think time {think_s} s" if think_s else ""
    return f"{name}, allowed from {end_s + think_s} on: job {before} ends at {end_s}{thinks}"


def _ends_before(
    instance: Instance, starts: Mapping[int, int], position: int
) -> Iterable[tuple[int, int | None]]:
    """Each job that a queued one comes after, and its end as expected; None without a start."""
    given, queue, running = instance.dependencies, instance.queue, instance.running
    assert given is not None
    first, last = int(given.running_offset[position]), int(given.running_offset[position + 1])
    for k in given.running_position[first:last].tolist():
        yield int(running.jobs.id[k]), max(int(running.end_s[k]), instance.now + 1)
    for k in given.position[given.offset[position] : given.offset[position + 1]].tolist():
        planned = k in starts
        yield int(queue.id[k]), starts[k] + int(queue.expected_s[k]) if planned else None


def _whole_plan(instance: Instance, decision: Decision) -> list[_Planned]:
    """What each job of a sound decision holds that has a start, now or later."""
    places = decision.placements.as_dict()
    return [
        _hold(position, instance.queue.block[:, position].tolist(), start_s, places.get(position))
        for position, start_s in enumerate(decision.start_s.tolist())
        if start_s != NO_START
    ]


def _starving(instance: Instance, plan: list[_Planned]) -> list[Violation]:
    """Starved jobs that a plan starts after their bound though they could start earlier.

    They could if every job lasted until its requested time: a plan may take jobs to last as long
    as is expected, as they may, or anything between, and is blamed for none of it.
    """
    rule, now = instance.starvation, instance.now
    assert rule is not None
    submit_s = instance.queue.submit_s.tolist()
    starts = {job.position: job.start_s for job in plan}
    instance = _lasting(instance)
    lasts_s = instance.queue.expected_s.tolist()
    starved = [
        replace(job, end_s=job.start_s + lasts_s[job.position])
        for job in plan
        if now - submit_s[job.position] > rule.threshold_s
    ]
    due = {j.position: submit_s[j.position] + rule.threshold_s + rule.bound_s for j in starved}
    late = [job for job in starved if job.start_s > max(due[job.position], now)]
    beside = _Beside(instance, starved) if late else None
    found = []
    for job in late:
        assert beside is not None
        due_s = max(due[job.position], now)
        could_s = beside.earliest(job, _released(instance, starts, job.position))
        if could_s is not None:
            text = (
                f"job {job.id}, submitted at {submit_s[job.position]}, is planned at "
                f"{job.start_s}, allowed until {due_s}; it could start at {could_s}"
            )
            found.append(Violation(Kind.STARVATION, text))
    return found


def _lasting(instance: Instance) -> Instance:
    """The instance in which every job is expected to last until its requested time."""
    queue, running = instance.queue, instance.running
    block = queue.block.copy()
    block[Column.EXPECTED] = np.maximum(queue.expected_s, queue.requested_s)
    end_s = np.maximum(running.end_s, running.start_s + running.jobs.requested_s)
    return replace(
        instance, queue=JobTable(block, queue.labels), running=replace(running, end_s=end_s)
    )


def _released(instance: Instance, starts: Mapping[int, int], position: int) -> int:
    """From when on the jobs that a queued one comes after let it start."""
    if instance.dependencies is None:
        return instance.now
    given, times = instance.dependencies, [instance.now]
    times.append(int(given.stated_s[position]))
    for _, end_s in _ends_before(instance, starts, position):
        if end_s is not None:
            times.append(end_s + int(given.think_s[position]))
    return max(times)


class _Beside:
    """What running jobs, reservations and the plans of some jobs leave free, from change to change.

    A job that was planned on the pooled capacity takes its part of that, and of no node: on which
    ones it would lie, nobody has said.
    """

    def __init__(self, instance: Instance, plan: list[_Planned]) -> None:
        self.instance = instance
        kinds = len(instance.system.resources)
        rows = [
            (job.position, node, job.start_s, job.end_s, [units * n for n in job.request])
            for job in plan
            for node, units in (job.nodes or {}).items()
        ]
        rows += [
            (-1, node, r.start_s, r.end_s, list(r.capacity))
            for r in instance.reservations
            for node in r.nodes
        ]
        running = _held_by_running(instance.running, instance.now)
        self.held = _held(rows, kinds) + replace(running, id=np.full_like(running.id, -1))
        self.capacity = instance.system.capacity.copy()
        self.capacity[instance.down] = 0
        start_s, end_s = (
            np.array([getattr(job, name) for job in plan], dtype=np.int64)
            for name in ("start_s", "end_s")
        )
        ends_s = np.maximum(instance.running.end_s, instance.now + 1)
        changes = (self.held.start_s, self.held.end_s, ends_s, start_s, end_s, [instance.now])
        self.times = np.unique(np.concatenate(changes))
        self.planned = np.zeros((len(self.times), kinds), dtype=np.int64)
        for job in plan:
            if job.nodes is None:
                self.planned[self.during(job)] += job.units * np.array(job.request)
        self.pool = self._pool() - self.planned
        self.watts = self._watts(plan)

    def during(self, job: _Planned) -> BoolArray:
        """The instants at which a planned job runs."""
        inside: BoolArray = (job.start_s <= self.times) & (self.times < job.end_s)
        return inside

    def _pool(self) -> IntArray:
        """What the nodes in service have left together, shape (instants, resources)."""
        sweep = _Sweep.of(self.held.node, self.held.start_s, self.held.end_s)
        instant = np.searchsorted(self.times, sweep.time)
        taken = np.zeros((len(self.times), self.capacity.shape[1]), dtype=np.int64)
        for r in range(self.capacity.shape[1]):
            change = _taken(sweep, self.held.amount[:, r], self.capacity[:, r])
            np.add.at(taken[:, r], instant, change)
        pool: IntArray = self.capacity.sum(axis=0) - np.cumsum(taken, axis=0)
        return pool

    def _watts(self, plan: list[_Planned]) -> IntArray:
        """What is left under the power cap, shape (instants,)."""
        if self.instance.power is None:
            return np.zeros(len(self.times), dtype=np.int64)
        left = np.full(len(self.times), self.instance.power.cap, dtype=np.int64)
        running = self.instance.running
        draws, ends_s = self.instance.job_power(running.jobs), running.end_s
        for watts, end_s in zip(draws.tolist(), ends_s.tolist(), strict=True):
            left[self.times < max(end_s, self.instance.now + 1)] -= watts
        for job in plan:
            left[self.during(job)] -= self.draw(job)
        return left

    def draw(self, job: _Planned) -> int:
        """Watts that a job draws; 0 without a cap."""
        if self.instance.power is None:
            return 0
        unit = self.instance.power.unit
        return job.units * sum(n * w for n, w in zip(job.request, unit, strict=True))

    def earliest(self, job: _Planned, first_s: int) -> int | None:
        """First instant from ``first_s`` on, and before its own start, at which a job would fit.

        The job is one of the plan; its own part of it counts as free.
        """
        inside = (self.times > first_s) & (self.times < job.start_s)
        begins = np.concatenate(([first_s], self.times[inside]))
        begins = begins[begins < job.start_s]
        low = np.searchsorted(self.times, begins, side="right") - 1
        high = np.searchsorted(self.times, begins + job.end_s - job.start_s)
        need, own = job.units * np.array(job.request), self.during(job)
        left = self.pool + own[:, None] * need
        tight = ((left < need) & (need > 0)).any(axis=1)
        if watts := self.draw(job):
            tight |= self.watts + own * watts < watts
        before = np.concatenate(([0], np.cumsum(tight)))
        closed = -1
        for k in (before[low] == before[high]).nonzero()[0].tolist():
            if low[k] > closed:
                closed = self._closed(job, int(low[k]), int(high[k]))
                if closed < low[k]:
                    return int(begins[k])
        return None

    def _closed(self, job: _Planned, low: int, high: int) -> int:
        """The instant from which on there are no nodes for a job up to the last of these; else -1.

        It rules out every start up to then that takes in the last instant, too.
        """
        least, need = self.capacity, job.units * np.array(job.request)
        pooled = self.planned.copy()
        if job.nodes is None:
            pooled[self.during(job)] -= need
        for k in reversed(range(low, high)):
            time, held = self.times[k], self.held
            on = (held.start_s <= time) & (time < held.end_s) & (held.id != job.position)
            free = self.capacity.copy()
            np.subtract.at(free, held.node[on], held.amount[on])
            free = np.maximum(free, 0)
            least = np.minimum(least, free)
            lacks = (free.sum(axis=0) - pooled[k] < need) & (need > 0)
            if lacks.any() or _room(least, np.array(job.request)) < job.units:
                return k
        return -1


# --------------------------------------------------------------------------------- a solution


def solution(instance: Instance, solution: Solution) -> list[Violation]:
    """What is wrong with a plan and with what it claims.

    Every queued job is named once; every start is allowed, and after the jobs that it depends on;
    at every instant from now on the running jobs, the reservations and the plan fit each node
    (jobs planned without nodes: the system as a whole) and the power cap; a plan that has an
    objective starts no starved job later than its bound though it could start earlier; value,
    bound and status are what they are said to be.
    """
    found: list[Violation] = []
    if solution.instance != (of := digest(instance)):
        text = f"the solution is of {solution.instance[:12]}..., this instance is {of[:12]}..."
        found.append(Violation(Kind.DIGEST, text))
    ids = instance.queue.id.tolist()
    positions = {id: position for position, id in enumerate(ids)}
    running = frozenset(instance.running.jobs.id.tolist())
    starts: dict[int, int] = {}
    plan: list[_Planned] = []
    for job in solution.jobs:
        if job.id in running:
            found.append(Violation(Kind.RUNNING_JOB, f"job {job.id} is running already"))
        elif job.id not in positions:
            found.append(Violation(Kind.UNKNOWN_JOB, f"job {job.id} is not in the queue"))
        else:
            position = positions[job.id]
            if job.start is not None:
                starts.setdefault(position, job.start)
            wrong, planned = _solved(instance, position, job)
            found += wrong
            plan += planned
    times = Counter(job.id for job in solution.jobs)
    for id in times:
        if times[id] > 1:
            found.append(Violation(Kind.REPEATED_JOB, f"job {id} is named {times[id]} times"))
    for id in ids:
        if id not in times:
            found.append(Violation(Kind.MISSING_JOB, f"queued job {id} is not named"))
    found += _over_time(instance, plan)
    if instance.dependencies is not None:
        found += _depending(instance, starts)
    if instance.starvation is not None and solution.objective:
        found += _starving(instance, plan)
    return found + _claims(instance, solution, starts)


def _solved(
    instance: Instance, position: int, job: SolvedJob
) -> tuple[list[Violation], list[_Planned]]:
    """What is wrong with one job of a plan; what it holds when nothing is."""
    column = instance.queue.block[:, position].tolist()
    if job.start is None:
        text = f"job {job.id} has nodes and does not start"
        return ([Violation(Kind.PLACEMENT, text)] if job.nodes else []), []
    found = []
    if job.start < max(instance.now, column[Column.SUBMIT]):
        found.append(_early_start(instance, position, job.start))
    if job.nodes is not None:
        here, there = list(job.nodes), list(job.nodes.values())
        nodes, down = len(instance.free), frozenset(instance.down.tolist())
        found += _misplaced(job.id, here, there, column[Column.UNITS], nodes, down)
    elif job.start <= instance.now:
        text = f"job {job.id} starts at {job.start} and has no nodes"
        found.append(Violation(Kind.PLACEMENT, text))
    if found:
        return found, []
    nodes_of = None if job.nodes is None else dict(job.nodes)
    return [], [_hold(position, column, job.start, nodes_of)]


def _claims(instance: Instance, solution: Solution, starts: Mapping[int, int]) -> list[Violation]:
    """Whether objective, value, bound and status agree with each other and with the plan."""
    found = []
    value, bound, name = solution.value, solution.bound, solution.objective
    if solution.status not in STATUSES:
        text = f"{solution.status!r} is not one of {', '.join(STATUSES)}"
        found.append(Violation(Kind.STATUS, text))
    if (name and name not in OBJECTIVES) or (not name and value is not None):
        text = f"{name!r} is not one of {', '.join(OBJECTIVES)}"
        found.append(Violation(Kind.OBJECTIVE, text))
    elif value is not None:
        exact = float(objective_value(instance, name, starts))
        # Negated, so that a value that is no number is a violation too.
        if not abs(value - exact) <= 1e-9 * max(1.0, abs(exact)):
            found.append(Violation(Kind.VALUE, f"{name} of the plan is {exact}, stated {value}"))
    if bound is not None and value is not None:
        if not bound <= value + 1e-9 * max(1.0, abs(value)):
            text = f"the lower bound {bound} lies above the value {value}"
            found.append(Violation(Kind.BOUND, text))
        elif solution.status == "optimal" and value - bound > 1e-6 * max(1.0, abs(value)):
            text = f"optimal, with a bound of {bound} below the value {value}"
            found.append(Violation(Kind.STATUS, text))
    elif bound is not None and solution.status == "optimal":
        found.append(Violation(Kind.STATUS, "optimal, with a bound and without a value"))
    return found


TAU_S = 10
"""Durations below this count as this long in the bounded objectives, seconds."""


OBJECTIVES = (
    "ewt_excess",
    "ewt_weighted",
    "wait",
    "slowdown",
    "bounded_slowdown",
    "pp_slowdown",
)
"""The objectives that a value can be of."""


def _term(objective: str, wait: int, d: int, ewt: int, ewt_max: int, p: int) -> tuple[int, int]:
    """A job's term of an objective as numerator and denominator.

    ``d`` is its expected duration, ``ewt`` its queue's expected wait, ``ewt_max`` the largest of
    all queued jobs, ``p`` its processors: units times the first resource type's request.
    """
    at_least = max(d, TAU_S)
    match objective:
        case "ewt_excess":
            return max(0, wait - ewt), ewt
        case "ewt_weighted":
            return ewt_max * wait, ewt
        case "wait":
            return wait, 1
        case "slowdown":
            return wait + d, d
        case "bounded_slowdown":
            return max(wait + d, at_least), at_least
        case "pp_slowdown":
            return max(wait + d, p * at_least), p * at_least
        case _:
            raise UsageError(f"unknown objective {objective!r}, one of {', '.join(OBJECTIVES)}")


def objective_value(instance: Instance, objective: str, starts: Mapping[int, int]) -> Fraction:
    """The exact objective of a plan, over the jobs that have a start.

    Parameters
    ----------
    instance : Instance
    objective : str
        A name in `OBJECTIVES`.
    starts : mapping of int to int
        Start in seconds by position in the queue.

    Raises
    ------
    UsageError
        When the objective is unknown.
    """
    ewt_max = max(instance.queue.ewt_s.tolist(), default=1)
    numerators: Counter[int] = Counter()
    for position, start_s in starts.items():
        job = instance.queue.block[:, position].tolist()
        processors = max(1, job[Column.UNITS] * job[Column.REQUEST])
        wait, ewt = start_s - job[Column.SUBMIT], job[Column.EWT]
        over, under = _term(objective, wait, job[Column.EXPECTED], ewt, ewt_max, processors)
        numerators[under] += over
    # Added in pairs: denominators grow long, and late is cheaper than early.
    sums = [Fraction(over, under) for under, over in numerators.items()]
    while len(sums) > 1:
        sums = [sum(sums[k : k + 2], Fraction(0)) for k in range(0, len(sums), 2)]
    return sums[0] if sums else Fraction(0)


# -------------------------------------------------------------------------- a whole schedule


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What became of every job of a simulation, as flat arrays.

    Attributes
    ----------
    id, submit_s, start_s, end_s, units, requested_s, runtime_s : int64 array, shape (jobs,)
        ``start_s`` and ``end_s`` are -1 for a job that was never started.
    killed : bool array, shape (jobs,)
        Whether the job was cut at its requested time.
    never_fits : bool array, shape (jobs,)
        Whether the job was left out because it asks for more than the whole system has.
    rejected : bool array, shape (jobs,)
        Whether the dispatcher refused the job.
    request : int64 array, shape (jobs, resources)
        Per-unit requests.
    offset : int64 array, shape (jobs + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, node_units : int64 array, shape (entries,)
        A node and the number of the job's units there.
    preceding, think_s : int64 array, shape (jobs,), or None
        The job that each comes after, and the seconds between that one's end and its start; -1
        when there is none. None when the run did not honour them.
    lost : Attempts, or None
        The attempts that were killed for a restart; None when jobs could not be restarted.
    """

    id: IntArray
    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    units: IntArray
    requested_s: IntArray
    runtime_s: IntArray
    killed: BoolArray
    never_fits: BoolArray
    rejected: BoolArray
    request: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray
    preceding: IntArray | None = None
    think_s: IntArray | None = None
    lost: Attempts | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """The attempts at the jobs of a schedule that were killed for a restart, one a job at most.

    Attributes
    ----------
    start_s, end_s : int64 array, shape (jobs,)
        -1 for none.
    offset, node, node_units : int64 array
        As in `Schedule`.
    """

    start_s: IntArray
    end_s: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray


class _Findings:
    """Violations as they are found: the first few of each kind, and how many there were."""

    EACH = 9  # with the 9 kinds that a schedule can break: at most 100 lines

    def __init__(self) -> None:
        self.listed: list[Violation] = []
        self.count: Counter[Kind] = Counter()

    def add(self, kind: Kind, rows: IntArray, text: Callable[[int], str]) -> None:
        room = max(0, self.EACH - self.count[kind])
        self.listed += [Violation(kind, text(row)) for row in rows[:room].tolist()]
        self.count[kind] += len(rows)

    def all(self) -> list[Violation]:
        left = {kind: count - self.EACH for kind, count in self.count.items()}
        more = ", ".join(f"{n:,} more of {kind}" for kind, n in left.items() if n > 0)
        return self.listed + ([Violation(Kind.MORE, more)] if more else [])


def run(
    jobs: pd.DataFrame, system: System, *, dependencies: bool = False, idempotent: bool = False
) -> list[Violation]:
    """What is wrong with a whole simulated schedule.

    Parameters
    ----------
    jobs : DataFrame
        One row a job: ``id``, ``submit``, ``start`` and ``end`` in seconds (-1: never started),
        ``units``, ``requested_s``, ``runtime_s``, ``killed``, ``reason``, the per-unit
        ``request_<resource>`` of each of the system's resource types, and the lists ``nodes`` and
        ``node_units``.
    system : System
        The machine on which it ran.
    dependencies : bool
        Whether the run honoured dependencies, which the columns ``preceding`` and ``think_s`` hold.
    idempotent : bool
        Whether jobs could be restarted: the columns ``lost_start``, ``lost_end``, ``lost_nodes``
        and ``lost_node_units`` hold the attempts that were killed.

    Returns
    -------
    list of Violation
        At most 100; the last one says how many more there are.

    Raises
    ------
    InputError
        When a column is missing or cannot be read.
    """
    needed = [
        "id", "submit", "start", "end", "units", "requested_s", "runtime_s", "killed", "reason",
        *(f"request_{name}" for name in system.resources), "nodes", "node_units",
        *(("preceding", "think_s") if dependencies else ()),
        *(("lost_start", "lost_end", "lost_nodes", "lost_node_units") if idempotent else ()),
    ]  # fmt: skip
    for name in needed:
        if name not in jobs.columns:
            raise InputError("the table of jobs lacks this column", field=name)
    offset, node, units = _entries(jobs, "nodes", "node_units")
    request = np.stack([_numbers(jobs[f"request_{name}"]) for name in system.resources], axis=1)
    table = Schedule(
        id=_numbers(jobs["id"]),
        submit_s=_numbers(jobs["submit"]),
        start_s=_numbers(jobs["start"]),
        end_s=_numbers(jobs["end"]),
        units=_numbers(jobs["units"]),
        requested_s=_numbers(jobs["requested_s"]),
        runtime_s=_numbers(jobs["runtime_s"]),
        killed=jobs["killed"].to_numpy(dtype=np.bool_),
        never_fits=(jobs["reason"] == "never_fits").to_numpy(dtype=np.bool_, na_value=False),
        rejected=(jobs["reason"] == "rejected").to_numpy(dtype=np.bool_, na_value=False),
        request=request,
        offset=offset,
        node=node,
        node_units=units,
        preceding=_numbers(jobs["preceding"]) if dependencies else None,
        think_s=_numbers(jobs["think_s"]) if dependencies else None,
        lost=Attempts(
            _numbers(jobs["lost_start"]),
            _numbers(jobs["lost_end"]),
            *_entries(jobs, "lost_nodes", "lost_node_units"),
        )
        if idempotent
        else None,
    )
    return schedule(table, system)


def _entries(jobs: pd.DataFrame, nodes: str, units: str) -> tuple[IntArray, IntArray, IntArray]:
    """Offset, nodes and units of two columns of lists, which are of the same lengths."""
    lengths, node = _flat(jobs[nodes])
    unit_lengths, of_node = _flat(jobs[units])
    for row in (lengths != unit_lengths).nonzero()[0][:1].tolist():
        raise InputError(
            f"job {jobs['id'].iloc[row]} has {lengths[row]} nodes",
            field=units,
            value=int(unit_lengths[row]),
            advice="there is one number of units for each node",
        )
    return np.concatenate(([0], np.cumsum(lengths))), node, of_node


def _numbers(column: pd.Series[Any]) -> IntArray:
    """A column of whole numbers; what is missing is -1."""
    try:
        return np.asarray(column.fillna(-1).to_numpy(dtype=np.int64), dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise InputError(f"not whole numbers: {error}", field=str(column.name)) from error


def _flat(column: pd.Series[Any]) -> tuple[IntArray, IntArray]:
    """Length of every list of a column, and all their items."""
    if hasattr(column.dtype, "pyarrow_dtype"):
        return _numbers(column.list.len().fillna(0)), _numbers(column.list.flatten())
    lists: list[Any] = [() if row is None or isinstance(row, float) else row for row in column]
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    items = [np.asarray(row, dtype=np.int64) for row in lists if len(row)]
    return lengths, np.concatenate([NO_NODES, *items])


def schedule(table: Schedule, system: System) -> list[Violation]:
    """What is wrong with a whole schedule given as flat arrays, see `run`.

    A job starts no earlier than it was submitted; it runs for its runtime, or was killed at its
    requested time; its units are all placed, on nodes that exist; at every instant every node
    holds no more of any resource than it has; and a job that never started fits no empty system.
    Where the run honoured dependencies, a job starts after the end, and the think time, of the one
    that it comes after, if that one stands before it in the table and ran. Where jobs could be
    restarted, an attempt that was killed lies between the job's submission and its start, is
    shorter than its runtime, and holds its nodes as any job does.
    """
    found = _Findings()
    _lives(table, found)
    _left_out(table, system, found)
    if table.preceding is not None and table.think_s is not None:
        _in_sequence(table, table.preceding, table.think_s, found)
    if table.lost is not None:
        _restarts(table, table.lost, found)
        table = _with_attempts(table, table.lost)
    owner = np.repeat(np.arange(len(table.id)), np.diff(table.offset))
    sound = _places(table, owner, system, found)
    if not sound.all():
        owner = owner[sound]
        table = replace(table, node=table.node[sound], node_units=table.node_units[sound])
    _levels(table, owner, system, found)
    return found.all()


def _lives(table: Schedule, found: _Findings) -> None:
    """Times of each job that started."""
    t = table
    ids = np.sort(t.id)
    twice = np.unique(ids[1:][ids[1:] == ids[:-1]])
    found.add(Kind.REPEATED_JOB, twice, lambda job: f"job {job} is in the table twice")
    ran = t.start_s >= 0
    found.add(
        Kind.EARLY_START,
        (ran & (t.start_s < t.submit_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts at {t.start_s[k]}, submitted at {t.submit_s[k]}",
    )
    lasted = t.end_s - t.start_s
    cut = t.killed & (t.requested_s < t.runtime_s)
    amiss = lasted != np.where(t.killed, t.requested_s, t.runtime_s)
    found.add(
        Kind.DURATION,
        (ran & (amiss | (t.killed & ~cut))).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} runs from {t.start_s[k]} to {t.end_s[k]}: {lasted[k]} s, runtime "
            f"{t.runtime_s[k]} s"
            + f", killed at a limit of {t.requested_s[k]} s"
            * bool(t.killed[k])
        ),
    )


def _restarts(table: Schedule, lost: Attempts, found: _Findings) -> None:
    """Times of each attempt that was killed."""
    t = table
    tried = lost.start_s >= 0
    found.add(
        Kind.PLACEMENT,
        (~tried & ((lost.end_s >= 0) | (np.diff(lost.offset) > 0))).nonzero()[0],
        lambda k: f"job {t.id[k]} was never restarted, and its first attempt has an end or nodes",
    )
    found.add(
        Kind.EARLY_START,
        (tried & (lost.start_s < t.submit_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts at {lost.start_s[k]}, submitted at {t.submit_s[k]}",
    )
    found.add(
        Kind.EARLY_START,
        (tried & (t.start_s >= 0) & (t.start_s < lost.end_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts again at {t.start_s[k]}, killed at {lost.end_s[k]}",
    )
    lasted = lost.end_s - lost.start_s
    runs = np.where(t.killed, t.requested_s, t.runtime_s)
    found.add(
        Kind.DURATION,
        (tried & ((lasted < 0) | (lasted >= runs))).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} runs from {lost.start_s[k]} to {lost.end_s[k]}, when it is killed for "
            f"a restart: {lasted[k]} s, it ends by itself after {runs[k]} s"
        ),
    )


def _with_attempts(table: Schedule, lost: Attempts) -> Schedule:
    """The schedule with the attempts that were killed as further jobs of it."""
    tried = lost.start_s >= 0
    again = np.concatenate((np.arange(len(tried)), tried.nonzero()[0]))
    held = np.repeat(tried, np.diff(lost.offset))
    lengths = np.concatenate((np.diff(table.offset), np.diff(lost.offset)[tried]))
    return replace(
        table,
        id=table.id[again],
        start_s=np.concatenate((table.start_s, lost.start_s[tried])),
        end_s=np.concatenate((table.end_s, lost.end_s[tried])),
        units=table.units[again],
        request=table.request[again],
        offset=np.concatenate(([0], np.cumsum(lengths))),
        node=np.concatenate((table.node, lost.node[held])),
        node_units=np.concatenate((table.node_units, lost.node_units[held])),
    )


def _left_out(table: Schedule, system: System, found: _Findings) -> None:
    """Jobs that never started: they fit no empty system, or the dispatcher refused them."""
    t = table
    out = t.start_s < 0
    found.add(
        Kind.PLACEMENT,
        (out & ((t.end_s >= 0) | (np.diff(t.offset) > 0))).nonzero()[0],
        lambda k: f"job {t.id[k]} never started and has an end or nodes",
    )
    found.add(
        Kind.NEVER_STARTED,
        (out & ~t.never_fits & ~t.rejected).nonzero()[0],
        lambda k: f"job {t.id[k]} never started though it could have been",
    )
    claimed = (out & t.never_fits).nonzero()[0]
    if not len(claimed):
        return
    asked, which = np.unique(
        np.column_stack((t.units, t.request))[claimed], axis=0, return_inverse=True
    )
    room = np.array([_room(system.capacity, row[1:]) for row in asked])
    fits = (room >= asked[:, 0])[which.reshape(-1)]
    found.add(
        Kind.NEVER_STARTED,
        claimed[fits],
        lambda k: f"job {t.id[k]} never started as one that never fits, and it fits",
    )


def _in_sequence(table: Schedule, preceding: IntArray, think_s: IntArray, found: _Findings) -> None:
    """Jobs that come after another one: it has ended before them, or could never run."""
    t, think_s = table, np.maximum(think_s, 0)
    by_id = np.argsort(t.id, kind="stable")
    at = np.minimum(np.searchsorted(t.id[by_id], preceding), len(t.id) - 1)
    row = by_id[at]
    after = (t.start_s >= 0) & (preceding >= 0) & (t.id[row] == preceding)
    after &= row < np.arange(len(row))
    ran = t.start_s[row] >= 0
    found.add(
        Kind.DEPENDENCY,
        (after & ran & (t.start_s < t.end_s[row] + think_s)).nonzero()[0],
        lambda k: _too_soon(
            f"job {t.id[k]} starts at {t.start_s[k]}",
            int(preceding[k]),
            int(t.end_s[row[k]]),
            int(think_s[k]),
        ),
    )
    found.add(
        Kind.DEPENDENCY,
        (after & ~ran & ~t.never_fits[row] & ~t.rejected[row]).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} starts at {t.start_s[k]}, and job {preceding[k]}, after which it "
            "comes, never started"
        ),
    )


def _room(capacity: IntArray, request: IntArray) -> int:
    """How many units of a request fit into what the nodes have, shape (nodes, resources)."""
    asked = request > 0
    if not asked.any():
        return int(np.iinfo(np.int64).max)
    return int((capacity[:, asked] // request[asked]).min(axis=1).sum())


def _places(table: Schedule, owner: IntArray, system: System, found: _Findings) -> BoolArray:
    """Nodes and units of each job; returns which entries are sound enough to be added up."""
    t = table
    total = np.concatenate(([0], np.cumsum(t.node_units)))
    placed = total[t.offset[1:]] - total[t.offset[:-1]]
    found.add(
        Kind.UNITS,
        ((t.start_s >= 0) & (placed != t.units)).nonzero()[0],
        lambda k: f"job {t.id[k]} has {placed[k]} units on its nodes, it asks for {t.units[k]}",
    )
    empty = t.node_units <= 0
    found.add(
        Kind.UNITS,
        empty.nonzero()[0],
        lambda e: f"job {t.id[owner[e]]} has {t.node_units[e]} units on node {t.node[e]}",
    )
    unknown = (t.node < 0) | (t.node >= system.nodes)
    found.add(
        Kind.NODE,
        unknown.nonzero()[0],
        lambda e: (
            f"job {t.id[owner[e]]} ran on node {t.node[e]}, nodes are numbered 0 to "
            f"{system.nodes - 1}"
        ),
    )
    known = ~unknown
    pair = np.sort(owner[known] * system.nodes + t.node[known])
    twice = np.unique(pair[1:][pair[1:] == pair[:-1]])
    found.add(
        Kind.NODE,
        twice,
        lambda p: f"job {t.id[p // system.nodes]} names node {p % system.nodes} twice",
    )
    lasting = (t.start_s >= 0) & (t.end_s > t.start_s)
    return known & lasting[owner]


def _holds_no_more(table: Schedule, owner: IntArray, system: System) -> bool:
    """Whether it is certain that no node ever holds more than it has.

    A tenth of the work of finding out where it does. Starts and ends are sorted as one integer
    each: node, time, whether it is a start, entry. Ends come before starts of the same instant, so
    that the level after each start is at most the one after all changes of that instant.
    """
    t, entries = table, len(table.node)
    if not entries:
        return True
    origin = t.start_s.min()
    of_entry, of_time = entries.bit_length(), int(t.end_s.max() - origin).bit_length()
    if of_entry + 1 + of_time + system.nodes.bit_length() > 63:
        return False
    events = np.empty((2, entries), dtype=np.int64)
    for row, time_s in enumerate((t.end_s, t.start_s)):
        events[row] = t.node
        events[row] <<= of_time
        events[row] += (time_s - origin)[owner]
        events[row] <<= 1
        events[row] += row
        events[row] <<= of_entry
        events[row] += np.arange(entries)
    event = events.reshape(-1)
    event.sort()
    entry = event & ((1 << of_entry) - 1)
    event >>= of_entry
    begins = (event & 1).astype(np.bool_)
    event >>= 1 + of_time
    for r in range(len(system.resources)):
        amount = (t.request[:, r][owner] * t.node_units)[entry]
        np.negative(amount, out=amount, where=~begins)
        np.cumsum(amount, out=amount)
        capacity = system.capacity[:, r]
        if amount.max() > capacity.min() and (amount > capacity[event]).any():
            return False
    return True


def _levels(table: Schedule, owner: IntArray, system: System, found: _Findings) -> None:
    """Every node and resource at every instant."""
    t = table
    if _holds_no_more(t, owner, system):
        return
    times = np.unique(np.concatenate((t.start_s, t.end_s)))
    begin, end = np.searchsorted(times, t.start_s)[owner], np.searchsorted(times, t.end_s)[owner]
    sweep = _Sweep(t.node, times, begin, end)
    del begin, end
    for r in range(len(system.resources)):
        amount = t.request[:, r][owner] * t.node_units
        level = sweep.level(amount)
        allowed = system.capacity[:, r][sweep.place]

        def text(k: int, r: int = r, level: IntArray = level) -> str:
            node, time = int(sweep.place[k]), int(sweep.time[k])
            here = owner[t.node == node]
            on = (t.start_s[here] <= time) & (time < t.end_s[here]) & (t.request[here, r] > 0)
            return (
                f"{_place(system, node, r, time)}: {level[k]} held by "
                f"{_jobs(t.id[here[on]].tolist())}, {system.capacity[node, r]} allowed"
            )

        found.add(Kind.CAPACITY, sweep.firsts(level > allowed), text)
