"""Why a job waits, in words for people."""

from __future__ import annotations

import numpy as np

from cpdispatch.access import HELD, NO_NODE, NOWHERE, WHOLE, said, wished
from cpdispatch.arrays import IntArray
from cpdispatch.decision import Decision, Placements, Reason
from cpdispatch.instance import Instance
from cpdispatch.system import is_own, room_in
from cpdispatch.terms import held_at


def explain(instance: Instance, decision: Decision, position: int) -> str:
    """Why a job does not start now, in words for people.

    Parameters
    ----------
    decision : Decision
        The answer in which the job does not start at the instance's time.
    position : int
        The job's position in the queue.

    Returns
    -------
    str
        ``waits for gpu`` (what is short once the decision's jobs have started: resource types,
        power, a free combination of them on a node, capacity that a reservation is about to take,
        or only its turn, and behind how many jobs of a higher tier), ``waits for job 12`` that it
        comes after, ``waits until 1200`` for its earliest start, ``reserved from 1200``, ``refused
        by the dispatcher``, ``does not fit the system: ...``, or ``does not fit the power cap:
        ...``.
    """
    return explain_waiting(instance, decision, position, left_free(instance, decision))


def explain_waiting(instance: Instance, decision: Decision, position: int, left: IntArray) -> str:
    """Why a job does not start now, given what `left_free` says of the decision."""
    start = int(decision.start_s[position])
    if start == instance.now:
        late = decision.reason[position] == Reason.LATE
        return "starts now, in front of the others: has waited too long" if late else "starts now"
    system, job = instance.system, instance.queue[position]
    reason = decision.reason[position]
    request = np.array(job.request, dtype=np.int64)
    watts = int(instance.job_power(instance.queue)[position])
    beyond = instance.power is not None and watts > instance.power.cap
    if reason == Reason.NEVER_FITS and not (
        beyond and _fits(instance.system.capacity, request, job.units)
    ):
        if HELD in system.resources and job.request[system.resource(HELD)]:
            return "is held"
        wants = [(name, n) for name, n in zip(system.resources, job.request, strict=True) if n]
        if NOWHERE in wished([name for name, n in wants if n > 0]):
            return NO_NODE
        # Of whole nodes, a job that shares its nodes asks for as much as it uses.
        shares = {f"{name}@{WHOLE}" for name, n in wants if is_own(name)}
        asked = ", ".join(
            f"{n} {said(name)}" if n > 0 else f"at most {-n} on a node"
            for name, n in wants
            if name not in shares or n != dict(wants)[name.partition("@")[0]]
        )
        return f"does not fit the system: asks for {job.units} x ({asked})"
    if reason == Reason.RESERVED and start > instance.now:
        return f"reserved from {start}"
    if reason == Reason.REJECTED:
        return "refused by the dispatcher"
    if instance.power is not None and beyond:
        return f"does not fit the power cap: draws {watts} W, the cap is {instance.power.cap} W"
    if kept_back := _kept_back(instance, position):
        return f"waits {kept_back}"
    request[[once for once, _ in system.once]] = 0
    drawn = instance.job_power(instance.queue)[decision.start_s == instance.now]
    power_left = instance.power_free() - int(drawn.sum())
    if not _fits(left, request, job.units):
        one_by_one = np.diag(np.maximum(request, 0))
        short = [
            said(name)
            for name, alone in zip(system.resources, one_by_one, strict=True)
            if not _fits(left, alone, job.units)
        ] or ["a free node combination"]
        if watts > power_left:
            short.append("power")
        return f"waits for {' and '.join(short)}"
    if short := _lacking_once(instance, left, position):
        return f"waits for {' and '.join(short)}"
    if watts > power_left:
        return f"waits for power: draws {watts} W, {max(power_left, 0)} W of the cap are left"
    kept = _kept(instance, decision, left, instance.now + job.expected_s)
    if not _fits(kept, request, job.units) or _lacking_once(instance, kept, position):
        return "waits for a reservation to end"
    waits = decision.start_s != instance.now
    higher = int(np.count_nonzero(waits & (instance.queue.tier > job.tier)))
    behind = f", behind {higher} of a higher tier" if higher else ""
    return f"waits for its turn{behind}"


def _kept_back(instance: Instance, position: int) -> str:
    """For which jobs, or until when, a job must wait whatever is free; empty if it need not."""
    given = instance.dependencies
    if given is None:
        return ""
    running = slice(given.running_offset[position], given.running_offset[position + 1])
    queued = slice(given.offset[position], given.offset[position + 1])
    ids = instance.running.jobs.id[given.running_position[running]].tolist()
    ids += instance.queue.id[given.position[queued]].tolist()
    if ids:
        return f"for job{'s' * (len(ids) > 1)} {', '.join(map(str, sorted(ids)))}"
    earliest_s = int(given.earliest_s[position])
    return f"until {earliest_s}" if earliest_s > instance.now else ""


def _fits(free: IntArray, request: IntArray, units: int) -> bool:
    """Whether so many units find room, each whole on one node."""
    return int(room_in(free, request, units).sum()) >= units


def _lacking_once(instance: Instance, left: IntArray, position: int) -> list[str]:
    """What no node has for a job beside one unit, of what it takes once; empty if one has all."""
    asked, taken = instance.queue.request[position], instance.system.once
    beside = [left[:, of] - np.maximum(asked[of], 0) for _, of in taken]
    lacks = [free < asked[once] for free, (once, _) in zip(beside, taken, strict=True)]
    if not np.all(np.any(lacks, axis=0)) or not asked[[once for once, _ in taken]].any():
        return []
    names = [said(instance.system.resources[once]) for once, _ in taken]
    short = [name for name, none in zip(names, lacks, strict=True) if none.all()]
    return short or ["a first node with all that it takes there"]


def _starting(instance: Instance, decision: Decision) -> tuple[IntArray, IntArray, IntArray]:
    """Queue position, node and amounts of every entry of a job that starts now."""
    places: Placements = decision.placements
    jobs = instance.queue.take(places.position)
    of, held = held_at(instance.system, jobs, places.offset, places.units)
    owner = places.position[of]
    now = decision.start_s[owner] == instance.now
    return owner[now], places.node[now], held[now]


def left_free(instance: Instance, decision: Decision) -> IntArray:
    """Capacity left once the decision's jobs have started, shape (nodes, resources)."""
    _, node, held = _starting(instance, decision)
    left = instance.free.copy()
    np.subtract.at(left, node, held)
    return left


def _kept(instance: Instance, decision: Decision, left: IntArray, end_s: int) -> IntArray:
    """What of ``left`` stays free until ``end_s`` when coming reservations are honoured."""
    kept, queue, running = left.copy(), instance.queue, instance.running
    owner, starting, taken = _starting(instance, decision)
    holder, held = held_at(instance.system, running.jobs, running.offset, running.units)
    for time in sorted({r.start_s for r in instance.reservations}):
        if not instance.now < time < end_s:
            continue
        free = instance.system.capacity.copy()
        free[instance.down] = 0
        for r in instance.reservations:
            if r.start_s <= time < r.end_s:
                free[list(r.nodes)] -= np.array(r.capacity, dtype=np.int64)
        on = running.end_s[holder] > time
        np.subtract.at(free, running.node[on], held[on])
        on = instance.now + queue.expected_s[owner] > time
        np.subtract.at(free, starting[on], taken[on])
        np.minimum(kept, free, out=kept)
    return kept
