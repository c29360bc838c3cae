"""Compiled planning over a profile of free capacity: reservations of any depth, kept as promises.

The profile is a list of segments, each with the capacity that is free from its time until the next
segment's; the last one never ends. It starts from the running jobs' planned ends and the system's
reservations; every job that is placed takes its capacity for its planned duration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import ByteArray, IntArray
from cpdispatch.compile import kernel
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.decision import Reason
from cpdispatch.heuristics.kernels import (
    Homes,
    Placed,
    change,
    fits,
    is_home_free,
    nothing_placed,
    place_at_home,
    place_next,
    pool_has,
    watts_of,
)
from cpdispatch.jobs import Column

_UNITS, _EXPECTED, _REQUEST = int(Column.UNITS), int(Column.EXPECTED), int(Column.REQUEST)
_STARTED, _BACKFILLED = int(Reason.STARTED), int(Reason.BACKFILLED)
_RESERVED, _WAITS, _NEVER = int(Reason.RESERVED), int(Reason.WAITS), int(Reason.NEVER_FITS)
# A job splits two segments at most when its promise is checked, when it is moved, when it is placed
# anew and when its promise is made longer for a test. Slots that are not needed are never touched,
# so they cost no memory.
_SPLITS = 8
_FOREVER = int(np.iinfo(np.int64).max)


class Profile(NamedTuple):
    """Segments in order of time; ``slot`` says where each one's capacity is kept.

    Inserting a segment moves two integers a later segment, never a matrix.
    """

    size: IntArray
    """Number of segments, shape (1,)."""
    time: IntArray
    slot: IntArray
    free: IntArray
    """Free capacity by slot, shape (slots, nodes, resources)."""
    pool: IntArray
    """The same summed over the nodes, shape (slots, resources)."""
    watts: IntArray


class Promises(NamedTuple):
    """Planned starts that were promised, `NO_START` for the other jobs, and where."""

    start: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


@kernel
def split(profile: Profile, time: int) -> int:
    """Index of the segment that begins at ``time``, made if need be."""
    size = profile.size[0]
    at = int(np.searchsorted(profile.time[:size], time))
    if at < size and profile.time[at] == time:
        return at
    for k in range(size, at, -1):
        profile.time[k] = profile.time[k - 1]
        profile.slot[k] = profile.slot[k - 1]
    before = profile.slot[at - 1]
    profile.time[at] = time
    profile.slot[at] = size
    profile.free[size] = profile.free[before]
    profile.pool[size] = profile.pool[before]
    profile.watts[size] = profile.watts[before]
    profile.size[0] = size + 1
    return at


@kernel
def hold(
    profile: Profile,
    start: int,
    end: int,
    ask: IntArray,
    node: IntArray,
    units: IntArray,
    watts: int,
    sign: int,
) -> None:
    """Take (sign -1) or give back (sign 1) a job's capacity from ``start`` to ``end``."""
    first = split(profile, start)
    last = split(profile, end)
    total = units.sum()
    for k in range(first, last):
        slot = profile.slot[k]
        change(profile.free[slot], ask, node, units, sign)
        profile.pool[slot] += sign * total * ask
        profile.watts[slot] += sign * watts


@kernel
def hold_plan(
    profile: Profile,
    until: int,
    block: IntArray,
    planned_s: IntArray,
    start: IntArray,
    position: IntArray,
    offset: IntArray,
    node: IntArray,
    units: IntArray,
    power_unit: IntArray,
) -> None:
    """Take what planned jobs hold until then; the profile has room for them.

    The last four but one say where the jobs at some positions of the block are placed, see
    `cpdispatch.decision.Placements`.
    """
    for k in range(position.shape[0]):
        j = position[k]
        if start[j] < until:
            ask, entries = block[_REQUEST:, j], slice(offset[k], offset[k + 1])
            end = min(start[j] + planned_s[j], until)
            watts = watts_of(ask, block[_UNITS, j], power_unit)
            hold(profile, start[j], end, ask, node[entries], units[entries], watts, -1)


@kernel
def holdable(
    profile: Profile,
    start: int,
    end: int,
    ask: IntArray,
    node: IntArray,
    units: IntArray,
    watts: int,
) -> bool:
    """Whether those very nodes have the capacity from ``start`` to ``end``."""
    first = split(profile, start)
    last = split(profile, end)
    for k in range(first, last):
        slot = profile.slot[k]
        if watts > profile.watts[slot]:
            return False
        for e in range(node.shape[0]):
            for r in range(ask.shape[0]):
                if units[e] * ask[r] > profile.free[slot, node[e], r]:
                    return False
    return True


@kernel
def earliest(
    profile: Profile, ask: IntArray, units: int, watts: int, duration: int, latest: int, M: IntArray
) -> int:
    """First instant, ``latest`` at most, from which a job fits for its whole duration; else -1.

    ``M`` becomes the elementwise minimum of the free capacity over that time.
    """
    size = profile.size[0]
    k = looked = 0
    while k < size and profile.time[k] <= latest:
        end = profile.time[k] + duration
        last = looked = max(looked, k)
        while last < size and profile.time[last] < end:
            slot = profile.slot[last]
            if watts > profile.watts[slot] or not pool_has(profile.pool[slot], ask, units):
                break
            if not fits(profile.free[slot], ask, units):
                break
            last += 1
        looked = last
        if last < size and profile.time[last] < end:
            k = last + 1  # no start whose time takes in this segment is any good
            continue
        M[:] = profile.free[profile.slot[k]]
        fitting = True
        for later in range(k + 1, last):
            lower(M, profile.free[profile.slot[later]])
            fitting = fits(M, ask, units)
            if not fitting:
                break
        if fitting:
            return int(profile.time[k])
        k += 1
    return -1


@kernel
def lower(M: IntArray, free: IntArray) -> None:
    """Make ``M`` the elementwise minimum of both."""
    for node in range(M.shape[0]):
        for r in range(M.shape[1]):
            M[node, r] = min(M[node, r], free[node, r])


@kernel
def left_until(profile: Profile, until: int) -> tuple[IntArray, int]:
    """What is free on each node, and in watts, at every instant from now until then."""
    M = profile.free[profile.slot[0]].copy()
    watts = profile.watts[profile.slot[0]]
    for k in range(1, profile.size[0]):
        if profile.time[k] >= until:
            break
        lower(M, profile.free[profile.slot[k]])
        watts = min(watts, profile.watts[profile.slot[k]])
    return M, watts


@kernel
def expected_profile(
    now: int,
    capacity: IntArray,
    down: IntArray,
    jobs: int,
    run_block: IntArray,
    run_end: IntArray,
    offset: IntArray,
    node: IntArray,
    units: IntArray,
    hold_start: IntArray,
    hold_end: IntArray,
    hold_node: IntArray,
    hold_capacity: IntArray,
    power_unit: IntArray,
    watts_free: int,
) -> Profile:
    """The profile of running jobs and reservations, with room for the plans of ``jobs`` more."""
    running, holds = run_end.shape[0], hold_start.shape[0]
    instants = np.empty(1 + running + 2 * holds, dtype=np.int64)
    instants[0] = now
    instants[1 : 1 + running] = run_end
    instants[1 + running : 1 + running + holds] = np.maximum(hold_start, now)
    instants[1 + running + holds :] = np.maximum(hold_end, now)
    instants = np.unique(instants)
    size, slots = instants.shape[0], instants.shape[0] + _SPLITS * jobs
    nodes, kinds = capacity.shape
    profile = Profile(
        np.full(1, size),
        np.empty(slots, dtype=np.int64),
        np.empty(slots, dtype=np.int64),
        np.empty((slots, nodes, kinds), dtype=np.int64),
        np.empty((slots, kinds), dtype=np.int64),
        np.empty(slots, dtype=np.int64),
    )
    left = capacity.copy()
    for i in range(running):
        entries = slice(offset[i], offset[i + 1])
        change(left, run_block[_REQUEST:, i], node[entries], units[entries], -1)
    by_end = np.argsort(run_end, kind="mergesort")
    ended = 0
    for k in range(size):
        time = instants[k]
        while ended < running and run_end[by_end[ended]] <= time:
            i = by_end[ended]
            ask, entries = run_block[_REQUEST:, i], slice(offset[i], offset[i + 1])
            change(left, ask, node[entries], units[entries], 1)
            watts_free += watts_of(ask, run_block[_UNITS, i], power_unit)
            ended += 1
        profile.time[k], profile.slot[k], profile.watts[k] = time, k, watts_free
        here = profile.free[k]
        here[:] = left
        for h in range(holds):
            if hold_start[h] <= time < hold_end[h]:
                here[hold_node[h]] -= hold_capacity[h]
        for d in range(down.shape[0]):
            here[down[d]] = 0
        here[:] = np.maximum(here, 0)
        profile.pool[k] = here.sum(axis=0)
    return profile


@kernel
def _put(
    profile: Profile,
    placed: Placed,
    job: int,
    begin: int,
    M: IntArray,
    capacity: IntArray,
    block: IntArray,
    planned_s: IntArray,
    watts: int,
    best_fit: bool,
    homes: Homes,
) -> Placed:
    """Place a job that fits ``M`` from ``begin`` on, and hold its capacity.

    One that has just been stopped and would start now goes on where it is, if it can.
    """
    ask = block[_REQUEST:, job]
    if begin == profile.time[0] and is_home_free(M, ask, homes, job):
        placed = place_at_home(placed, job, homes)
    else:
        placed = place_next(placed, job, M, capacity, ask, block[_UNITS, job], best_fit)
    entries = slice(placed.offset[placed.jobs - 1], placed.offset[placed.jobs])
    end = begin + planned_s[job]
    hold(profile, begin, end, ask, placed.node[entries], placed.units[entries], watts, -1)
    return placed


@kernel
def _recalled(
    now: int,
    profile: Profile,
    block: IntArray,
    planned_s: IntArray,
    watts: IntArray,
    promises: Promises,
    start: IntArray,
) -> None:
    """Put promises in place, the earliest first; one that has become impossible is forgotten."""
    by_start = np.argsort(promises.start, kind="mergesort")
    for k in range(by_start.shape[0]):
        j = by_start[k]
        if promises.start[j] == _NO_START:
            continue
        begin = max(promises.start[j], now)
        end = begin + planned_s[j]
        entries = slice(promises.offset[j], promises.offset[j + 1])
        ask, node, units = block[_REQUEST:, j], promises.node[entries], promises.units[entries]
        if holdable(profile, begin, end, ask, node, units, watts[j]):
            hold(profile, begin, end, ask, node, units, watts[j], -1)
            start[j] = begin


@kernel
def _compressed(
    profile: Profile,
    capacity: IntArray,
    block: IntArray,
    planned_s: IntArray,
    watts: IntArray,
    primary: IntArray,
    best_fit: bool,
    promises: Promises,
    start: IntArray,
    placed: Placed,
    homes: Homes,
) -> Placed:
    """Move promised jobs earlier where capacity was freed, one by one, all others in place.

    One that has just been stopped, and may start now as promised, is placed anew.
    """
    M = np.empty(capacity.shape, dtype=np.int64)
    for k in range(primary.shape[0]):
        j = primary[k]
        if start[j] == _NO_START:
            continue
        ask, need, lasts = block[_REQUEST:, j], block[_UNITS, j], planned_s[j]
        entries = slice(promises.offset[j], promises.offset[j + 1])
        node, units = promises.node[entries], promises.units[entries]
        hold(profile, start[j], start[j] + lasts, ask, node, units, watts[j], 1)
        anew = homes.of.shape[0] > 0 and homes.of[j] >= 0 and start[j] == profile.time[0]
        latest = start[j] if anew else start[j] - 1
        begin = earliest(profile, ask, need, watts[j], lasts, latest, M)
        if begin >= 0:
            start[j] = begin
            placed = _put(
                profile, placed, j, begin, M, capacity, block, planned_s, watts[j], best_fit, homes
            )
        else:
            hold(profile, start[j], start[j] + lasts, ask, node, units, watts[j], -1)
            placed = _keep(placed, j, node, units)
    return placed


@kernel
def plan(
    now: int,
    profile: Profile,
    capacity: IntArray,
    block: IntArray,
    primary: IntArray,
    secondary: IntArray,
    depth: int,
    best_fit: bool,
    promises: Promises,
    power_unit: IntArray,
    homes: Homes,
    planned_s: IntArray | None = None,
) -> tuple[IntArray, ByteArray, Placed]:
    """One pass with reservations for the first ``depth`` jobs that cannot start.

    Jobs last for their planned durations, shape (jobs,); without them, for the expected ones.

    The orders say which jobs of the ``block`` are planned. For the others their promises are kept,
    where they are possible, and that is all. With a depth of 0 the first job that cannot start ends
    the pass.

    Promises made before are put in place first, then moved earlier one by one in the primary order
    where capacity was freed. One that the running jobs have made impossible by outliving
    their planned ends is made anew. Returns start, reason, and the placements of all that start
    now or are promised.
    """
    jobs = block.shape[1]
    start = np.full(jobs, _NO_START, dtype=np.int64)
    reason = np.full(jobs, _WAITS, dtype=np.int8)
    watts = np.empty(jobs, dtype=np.int64)
    for j in range(jobs):
        watts[j] = watts_of(block[_REQUEST:, j], block[_UNITS, j], power_unit)
    lasting = block[_EXPECTED] if planned_s is None else planned_s
    _recalled(now, profile, block, lasting, watts, promises, start)
    placed = _compressed(
        profile, capacity, block, lasting, watts, primary, best_fit, promises, start,
        nothing_placed(jobs), homes,
    )  # fmt: skip
    promised = (start > now).sum()
    M = np.empty(capacity.shape, dtype=np.int64)
    strict = depth == 0
    for turn in range(1 if strict else 2):
        order = primary if turn == 0 else secondary
        for k in range(order.shape[0]):
            j = order[k]
            if start[j] != _NO_START or reason[j] == _NEVER:
                continue
            if turn == 0 and promised >= depth and not strict:
                break
            ask, need = block[_REQUEST:, j], block[_UNITS, j]
            latest = _FOREVER if turn == 0 and not strict else now
            begin = earliest(profile, ask, need, watts[j], lasting[j], latest, M)
            if begin >= 0:
                start[j] = begin
                placed = _put(
                    profile, placed, j, begin, M, capacity, block, lasting, watts[j], best_fit,
                    homes,
                )  # fmt: skip
                promised += begin > now
            elif turn == 0 and not fits(capacity, ask, need):
                reason[j] = _NEVER
            elif strict:
                break
    _give_reasons(now, primary, start, reason)
    return start, reason, placed


@kernel
def _give_reasons(now: int, primary: IntArray, start: IntArray, reason: ByteArray) -> None:
    """Started in its turn or ahead of a job that waits, reserved, or waiting."""
    ahead = False
    for k in range(primary.shape[0]):
        j = primary[k]
        if start[j] == now:
            reason[j] = _BACKFILLED if ahead else _STARTED
        elif reason[j] != _NEVER:
            ahead = True
            if start[j] != _NO_START:
                reason[j] = _RESERVED


@kernel
def _keep(placed: Placed, job: int, node: IntArray, units: IntArray) -> Placed:
    """Add a job with the nodes that it was promised."""
    count, low = placed.jobs, placed.offset[placed.jobs]
    high = low + node.shape[0]
    node_out, units_out = placed.node, placed.units
    if high > node_out.shape[0]:
        node_out = np.concatenate((node_out, np.empty(high, dtype=np.int64)))
        units_out = np.concatenate((units_out, np.empty(high, dtype=np.int64)))
    node_out[low:high] = node
    units_out[low:high] = units
    placed.position[count] = job
    placed.offset[count + 1] = high
    return Placed(count + 1, placed.position, placed.offset, node_out, units_out)
