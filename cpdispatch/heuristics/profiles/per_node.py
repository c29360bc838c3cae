"""What every node has free over time, with segments that all nodes have in common: kernels.

The profile starts from the ends of running jobs and the system's reservations. It has kernels of
its own: on rows of `cpdispatch.heuristics.profiles.profile`, conservative backfilling took up to
10 % longer with 1,000 queued jobs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.heuristics.kernels import ascending, change, fits, in_all, pool_has, watts_of
from cpdispatch.jobs import REQUEST, UNITS

# A job splits two segments at most when its promise is checked, when it is moved, when it is placed
# anew and when its promise is made longer for a test. Slots that are not needed are never touched,
# so they cost no memory.
_SPLITS = 8


class NodeProfile(NamedTuple):
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


@kernel
def _split(profile: NodeProfile, time: int) -> int:
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
    _copy(profile.free[before], profile.free[size])
    for r in range(profile.pool.shape[1]):
        profile.pool[size, r] = profile.pool[before, r]
    profile.watts[size] = profile.watts[before]
    profile.size[0] = size + 1
    return at


@allocating
def with_room(profile: NodeProfile, jobs: int) -> NodeProfile:
    """The profile with room for the plans of ``jobs`` more: itself, or one twice as long."""
    size, slots = profile.size[0], profile.time.shape[0]
    if size + _SPLITS * jobs <= slots:
        return profile
    slots = 2 * slots + _SPLITS * jobs
    nodes, kinds = profile.free.shape[1:]
    longer = NodeProfile(
        profile.size,
        np.empty(slots, dtype=np.int64),
        np.empty(slots, dtype=np.int64),
        np.empty((slots, nodes, kinds), dtype=np.int64),
        np.empty((slots, kinds), dtype=np.int64),
        np.empty(slots, dtype=np.int64),
    )
    for k in range(size):
        longer.time[k], longer.slot[k] = profile.time[k], profile.slot[k]
        longer.watts[k] = profile.watts[k]
        _copy(profile.free[k], longer.free[k])
        for r in range(kinds):
            longer.pool[k, r] = profile.pool[k, r]
    return longer


@kernel
def hold(
    profile: NodeProfile,
    start: int,
    end: int,
    ask: IntArray,
    node: IntArray,
    units: IntArray,
    watts: int,
    sign: int,
) -> None:
    """Take (sign -1) or give back (sign 1) a job's capacity from ``start`` to ``end``."""
    first = _split(profile, start)
    last = _split(profile, end)
    total = units.sum()
    for k in range(first, last):
        slot = profile.slot[k]
        change(profile.free[slot], ask, node, units, sign)
        for r in range(profile.pool.shape[1]):
            profile.pool[slot, r] += sign * in_all(ask, total, r, profile.pool.shape[1])
        profile.watts[slot] += sign * watts


@kernel
def hold_plan(
    profile: NodeProfile,
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
            ask, entries = block[REQUEST:, j], slice(offset[k], offset[k + 1])
            end = min(start[j] + planned_s[j], until)
            watts = watts_of(ask, block[UNITS, j], power_unit)
            hold(profile, start[j], end, ask, node[entries], units[entries], watts, -1)


@kernel
def holdable(
    profile: NodeProfile,
    start: int,
    end: int,
    ask: IntArray,
    node: IntArray,
    units: IntArray,
    watts: int,
) -> bool:
    """Whether those very nodes have the capacity from ``start`` to ``end``."""
    first = _split(profile, start)
    last = _split(profile, end)
    for k in range(first, last):
        slot = profile.slot[k]
        if watts > profile.watts[slot]:
            return False
        for e in range(node.shape[0]):
            for r in range(profile.pool.shape[1]):
                need = units[e] * ask[r]
                if e == 0 and ask.shape[0] > profile.pool.shape[1]:
                    need += ask[profile.pool.shape[1] + r]
                if need > profile.free[slot, node[e], r]:
                    return False
    return True


@kernel
def earliest(
    profile: NodeProfile,
    ask: IntArray,
    units: int,
    watts: int,
    duration: int,
    latest: int,
    M: IntArray,
    floor: int = 0,
) -> int:
    """First instant, ``latest`` at most, from which a job fits for its whole duration; else -1.

    ``M`` becomes the elementwise minimum of the free capacity over that time. It is known that the
    job does not fit from any instant before ``floor``.
    """
    size = profile.size[0]
    k = looked = int(np.searchsorted(profile.time[:size], floor))
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
        _copy(profile.free[profile.slot[k]], M)
        fitting = True
        for later in range(k + 1, last):
            _lower(M, profile.free[profile.slot[later]])
            fitting = fits(M, ask, units)
            if not fitting:
                break
        if fitting:
            return int(profile.time[k])
        # Not even the last of these segments hold the job together: no start before them is good.
        k = later
        _copy(profile.free[profile.slot[k]], M)
        while fits(M, ask, units):
            k -= 1
            _lower(M, profile.free[profile.slot[k]])
        k += 1
    return -1


@kernel
def _copy(free: IntArray, to: IntArray) -> None:
    for node in range(free.shape[0]):
        for r in range(free.shape[1]):
            to[node, r] = free[node, r]


@kernel
def _lower(M: IntArray, free: IntArray) -> None:
    """Make ``M`` the elementwise minimum of both."""
    for node in range(M.shape[0]):
        for r in range(M.shape[1]):
            M[node, r] = min(M[node, r], free[node, r])


@allocating
def left_until(profile: NodeProfile, until: int) -> tuple[IntArray, int]:
    """What is free on each node, and in watts, at every instant from now until then."""
    M = profile.free[profile.slot[0]].copy()
    watts = profile.watts[profile.slot[0]]
    for k in range(1, profile.size[0]):
        if profile.time[k] >= until:
            break
        _lower(M, profile.free[profile.slot[k]])
        watts = min(watts, profile.watts[profile.slot[k]])
    return M, watts


@allocating
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
) -> NodeProfile:
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
    profile = NodeProfile(
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
        change(left, run_block[REQUEST:, i], node[entries], units[entries], -1)
    by_end = ascending(run_end)
    ended = 0
    for k in range(size):
        time = instants[k]
        while ended < running and run_end[by_end[ended]] <= time:
            i = by_end[ended]
            ask, entries = run_block[REQUEST:, i], slice(offset[i], offset[i + 1])
            change(left, ask, node[entries], units[entries], 1)
            watts_free += watts_of(ask, run_block[UNITS, i], power_unit)
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
