"""A decision: what is wrong with a dispatcher's answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from operator import gt
from typing import TypeAlias

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import (
    NO_BOUND,
    NO_START,
    OF_STARTS,
    Decision,
    Placements,
    Reason,
    wrong_type,
)
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column
from cpdispatch.verify.dependencies import depending
from cpdispatch.verify.once import held, pairs
from cpdispatch.verify.placement import early_start, misplaced
from cpdispatch.verify.plan import Planned, hold, over_time
from cpdispatch.verify.restarts import killed, left_s, wrong_bounds
from cpdispatch.verify.starvation import starving
from cpdispatch.verify.violation import Kind, Violation, jobs_text, place_text

_FIRST, _LAST = int(min(Reason)), int(max(Reason))


def decision(instance: Instance, decision: Decision, *, stated: bool = True) -> list[Violation]:
    """What is wrong with a dispatcher's answer.

    The jobs that start now must fit into the free capacity, all together, on nodes in service, and
    leave alone what is reserved during their expected durations; placements of planned jobs must
    be sound in themselves. It is called at every dispatch: in the usual case, without
    reservations and power cap, it looks only at the entries of the jobs that start. No job, started
    or planned, comes before those that it depends on; the starvation bound holds for a plan that
    has an objective: the reservations of a queue rule are forecasts. Only jobs that may be
    restarted start with a bound. Where killing a stopped job takes time, its nodes are busy. If all
    that holds, no reason may say the contrary of whether its job starts.

    The bound is that of the instance, or the one that the decision states itself. Without
    ``stated`` the latter is not looked at: a dispatcher that changes the instance, asks another
    one, and passes its answer on states what holds of the changed instance.
    """
    if wrong := _misshapen(len(instance.queue), decision):
        return [Violation(Kind.SHAPE, wrong)]
    if not stated and decision.certificate.starvation is not None:
        decision = replace(decision, certificate=replace(decision.certificate, starvation=None))
    return _infeasible(instance, decision) or _contradicted(instance, decision)


def _infeasible(instance: Instance, decision: Decision) -> list[Violation]:
    """Which rules a decision breaks whose arrays belong together, whatever its reasons are."""
    start_s, places, now = decision.start_s, decision.placements, instance.now
    positions, offset = places.position.tolist(), places.offset.tolist()
    found: list[Violation] = []
    if decision.bound_s is not None:
        bounded = (decision.bound_s != NO_BOUND).nonzero()[0].tolist()
        bounds = {k: int(decision.bound_s[k]) for k in bounded}
        found += wrong_bounds(instance, dict(enumerate(start_s.tolist())), bounds)
    planned = (start_s != NO_START).nonzero()[0]
    if not len(planned) and not positions:
        return found
    times = start_s[planned].tolist()
    if times and min(times) < now:
        found += _early(instance, start_s)
    starting = [k for k, time in zip(planned.tolist(), times, strict=True) if time == now]
    plain = _is_plain(instance) and decision.certificate.starvation is None
    if not starting and not positions and plain:
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
        if decision.bound_s is not None and (bound_s := int(decision.bound_s[position])):
            job[Column.EXPECTED] = bound_s + instance.restart_cost_s
        here, there = node[low:high], units[low:high]
        if instance.stopped is not None:
            held = dict(zip(here, there, strict=True))
            if (more_s := left_s(instance, position, now, held)) is not None:
                job[Column.EXPECTED] = more_s
        request = job[Column.REQUEST :]
        if wrongs := misplaced(job[0], here, there, job[2], request, nodes, down):
            found += wrongs
        else:
            sound.append((position, job, here, there))
    if instance.dependencies is not None:
        ahead = {k: s for k, s in enumerate(start_s.tolist()) if s != NO_START}
        found += depending(instance, ahead, [_planned(instance, *start) for start in sound])
    clearing: list[Planned] = []
    if instance.stopped is not None:
        placed = {k: dict(zip(here, there, strict=True)) for k, _, here, there in sound}
        again, busy = killed(instance, dict.fromkeys(placed, now), placed)
        found += again
        for position, held in busy.items():
            job = instance.queue.block[:, position].tolist()
            job[Column.EXPECTED] = instance.restart_cost_s
            sound.append((position, job, list(held), list(held.values())))
            clearing.append(hold(position, job, now, held))
    if instance.reservations or instance.power is not None:
        found += over_time(instance, [_planned(instance, *start) for start in sound])
    else:
        found += _overfull(instance, sound)
    bound = decision.certificate.starvation or instance.starvation
    if bound is not None and decision.certificate.objective and not found:
        found += starving(
            replace(instance, starvation=bound), _whole_plan(instance, decision), clearing
        )
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


def _misshapen(jobs: int, decision: Decision) -> str:
    """What is wrong with a decision's arrays, each and together; empty when they are right."""
    if not isinstance(decision, Decision):
        return f"a Decision is needed, not {type(decision).__name__}"
    if (wrong := wrong_type(decision)) is not None:
        part, found, needed = wrong
        return f"{part} must be {needed}, not {found}"
    places = decision.placements
    entries, offset = len(places.node), places.offset.tolist()
    if decision.start_s.shape != (jobs,) or decision.reason.shape != (jobs,):
        for name, array in (("start_s", decision.start_s), ("reason", decision.reason)):
            if array.shape != (jobs,):
                return f"{name} has shape {array.shape}, the queue has {jobs} jobs"
    if decision.bound_s is not None and decision.bound_s.shape != (jobs,):
        return f"bound_s has shape {decision.bound_s.shape}, the queue has {jobs} jobs"
    if entries != len(places.units):
        return f"{entries} nodes, {len(places.units)} counts of units"
    if len(offset) != len(places.position) + 1:
        return f"{len(offset)} offsets for {len(places.position)} placed jobs"
    if offset[0] != 0 or offset[-1] != entries or offset != sorted(offset):
        return f"offsets do not rise from 0 to {entries}, the number of entries"
    return ""


def _contradicted(instance: Instance, decision: Decision) -> list[Violation]:
    """Reasons that do not exist, of waiting jobs that start now, of starting ones that do not."""
    reason, found = decision.reason, []
    starts, told = decision.start_s == instance.now, np.zeros(len(reason), dtype=np.bool_)
    for of_start in OF_STARTS:
        told |= reason == of_start
    none = (reason < _FIRST) | (reason > _LAST)
    for position in (none & ~starts).nonzero()[0].tolist():
        text = (
            f"job {instance.queue.id[position]} has the reason {reason[position]}: those that "
            f"there are have the numbers {_FIRST} to {_LAST}"
        )
        found.append(Violation(Kind.REASON, text))
    for position in (starts != told).nonzero()[0].tolist():
        does = "starts now" if starts[position] else "does not start now"
        text = (
            f"job {instance.queue.id[position]} {does} and has the reason "
            f"{_name(int(reason[position]))}: {', '.join(map(_name, OF_STARTS))} are for jobs that "
            "start now, and for no others"
        )
        found.append(Violation(Kind.REASON, text))
    return found


def _name(reason: int) -> str:
    """What a reason is called; one that does not exist, by its number."""
    return Reason(reason).name.lower() if reason in list(Reason) else str(reason)


def _early(instance: Instance, start_s: IntArray) -> Iterable[Violation]:
    for position in ((start_s < instance.now) & (start_s != NO_START)).nonzero()[0].tolist():
        yield early_start(instance, position, int(start_s[position]))


def _select(places: Placements, start_s: IntArray, now: int) -> Placements:
    """The placements of the jobs that start now."""
    inside = (places.position >= 0) & (places.position < len(start_s))
    which = inside.copy()
    which[inside] = start_s[places.position[inside]] == now
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
    nodes, most = len(instance.free), np.zeros_like(sizes)
    most[later] = -instance.queue.request[places.position[later]].min(axis=1)
    bad = (places.units <= 0) | (places.node < 0) | (places.node >= nodes)
    bad |= (most[owner] > 0) & (places.units > most[owner])
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
        found += misplaced(job.id, here, there, job.units, job.request, nodes, down)
    return found


def _overfull(instance: Instance, starts: list[_Start]) -> list[Violation]:
    """Nodes on which the jobs that start now need more than is free."""
    first, once = int(Column.REQUEST), pairs(instance.system.resources)
    used: dict[int, list[int]] = {}
    for _, job, here, there in starts:
        request = job[first:]
        for node, units in zip(here, there, strict=True):
            row = used.get(node)
            if once:
                taken = held(once, request, units, node == here[0])
                used[node] = [a + b for a, b in zip(row or [0] * len(taken), taken, strict=True)]
            elif row is None:
                used[node] = [units * n for n in request]
            else:
                used[node] = [has + units * n for has, n in zip(row, request, strict=True)]
    found = []
    frees = instance.free[list(used)].tolist() if used else []
    for (node, row), free in zip(used.items(), frees, strict=True):
        if not any(map(gt, row, free)):
            continue
        for r, (need, have) in enumerate(zip(row, free, strict=True)):
            if need > have:
                kinds = [r, *(k for k, of in once if of == r)]
                who = [
                    job[0]
                    for _, job, here, _ in starts
                    if node in here and any(job[first + k] for k in kinds)
                ]
                place = place_text(instance.system, node, r, instance.now)
                text = f"{place}: {need} needed by {jobs_text(who)}, {have} free"
                found.append(Violation(Kind.CAPACITY, text))
    return found


def _planned(
    instance: Instance, position: int, job: list[int], here: list[int], there: list[int]
) -> Planned:
    nodes = dict(zip(here, there, strict=True))
    return hold(position, job, instance.now, nodes)


def _whole_plan(instance: Instance, decision: Decision) -> list[Planned]:
    """What each job of a sound decision holds that has a start, now or later."""
    places = decision.placements.as_dict()
    return [
        hold(position, instance.queue.block[:, position].tolist(), start_s, places.get(position))
        for position, start_s in enumerate(decision.start_s.tolist())
        if start_s != NO_START
    ]
