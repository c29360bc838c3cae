"""Compiled planning over a resource profile: reservations of any depth, kept as promises.

The profile starts from the running jobs' planned ends and the system's reservations; every job
that is placed takes its capacity for its planned duration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import ByteArray, IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.decision import BACKFILLED, NEVER_FITS, RESERVED, STARTED, WAITS
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.heuristics.kernels import (
    Homes,
    Placed,
    ascending,
    fits,
    is_home_free,
    nothing_placed,
    place_at_home,
    place_next,
    watts_of,
)
from cpdispatch.heuristics.profiles.per_node import (
    NodeProfile,
    earliest,
    hold,
    holdable,
    with_room,
)
from cpdispatch.jobs import EXPECTED, REQUEST, UNITS

_FOREVER = int(np.iinfo(np.int64).max)
ROOM_AT_FIRST = 64
"""Jobs for which a profile has room at first: a matrix of all nodes for each would be too large."""


class Promises(NamedTuple):
    """The promised starts, `NO_START` for jobs without a promise, and the promised nodes."""

    start: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


@allocating
def _put(
    profile: NodeProfile,
    placed: Placed,
    job: int,
    begin: int,
    M: IntArray,
    counted: IntArray,
    block: IntArray,
    planned_s: IntArray,
    watts: int,
    best_fit: bool,
    homes: Homes,
) -> Placed:
    """Place a job that fits ``M`` from ``begin`` on, and hold its capacity.

    A job that has just been stopped and would start now goes on where it is, if it can.
    """
    ask = block[REQUEST:, job]
    if begin == profile.time[0] and is_home_free(M, ask, homes, job):
        placed = place_at_home(placed, job, homes)
    else:
        placed = place_next(placed, job, M, counted, ask, block[UNITS, job], best_fit)
    entries = slice(placed.offset[placed.jobs - 1], placed.offset[placed.jobs])
    end = begin + planned_s[job]
    hold(profile, begin, end, ask, placed.node[entries], placed.units[entries], watts, -1)
    return placed


@allocating
def _recalled(
    now: int,
    profile: NodeProfile,
    block: IntArray,
    planned_s: IntArray,
    watts: IntArray,
    promises: Promises,
    start: IntArray,
) -> NodeProfile:
    """Hold the promised capacity, the earliest promise first; drop promises that are impossible."""
    by_start = ascending(promises.start)
    for k in range(by_start.shape[0]):
        j = by_start[k]
        if promises.start[j] == _NO_START:
            continue
        profile = with_room(profile, 1)
        begin = max(promises.start[j], now)
        end = begin + planned_s[j]
        entries = slice(promises.offset[j], promises.offset[j + 1])
        ask, node, units = block[REQUEST:, j], promises.node[entries], promises.units[entries]
        if holdable(profile, begin, end, ask, node, units, watts[j]):
            hold(profile, begin, end, ask, node, units, watts[j], -1)
            start[j] = begin
    return profile


@allocating
def _compressed(
    profile: NodeProfile,
    counted: IntArray,
    block: IntArray,
    planned_s: IntArray,
    watts: IntArray,
    primary: IntArray,
    best_fit: bool,
    promises: Promises,
    start: IntArray,
    placed: Placed,
    homes: Homes,
) -> tuple[NodeProfile, Placed]:
    """Move promised jobs earlier where capacity was freed, one by one; the others stay in place.

    A job that has just been stopped and may start now as promised is placed anew.
    """
    M = np.empty(counted.shape, dtype=np.int64)
    before = start.copy()
    for k in range(primary.shape[0]):
        j = primary[k]
        if start[j] == _NO_START:
            continue
        profile = with_room(profile, 1)
        floor = _floor_of_promised(block, planned_s, watts, primary, k, start, before)
        ask, need, lasts = block[REQUEST:, j], block[UNITS, j], planned_s[j]
        entries = slice(promises.offset[j], promises.offset[j + 1])
        node, units = promises.node[entries], promises.units[entries]
        hold(profile, start[j], start[j] + lasts, ask, node, units, watts[j], 1)
        anew = homes.of.shape[0] > 0 and homes.of[j] >= 0 and start[j] == profile.time[0]
        latest = start[j] if anew else start[j] - 1
        begin = earliest(profile, ask, need, watts[j], lasts, latest, M, floor)
        if begin >= 0:
            start[j] = begin
            placed = _put(
                profile, placed, j, begin, M, counted, block, planned_s, watts[j], best_fit, homes
            )
        else:
            hold(profile, start[j], start[j] + lasts, ask, node, units, watts[j], -1)
            placed = _keep(placed, j, node, units)
    return profile, placed


@kernel
def _floor(
    block: IntArray,
    planned_s: IntArray,
    watts: IntArray,
    order: IntArray,
    at: int,
    start: IntArray,
    placed: ByteArray,
) -> int:
    """What the job at a position of an order cannot start before, going by those ``placed`` so far.

    In a pass capacity only gets less: where a job found no room that asks for no more, for no
    longer, there is none.
    """
    j, floor = order[at], 0
    for k in range(at):
        i = order[k]
        if placed[i] and start[i] > floor and _asks_no_more(block, planned_s, watts, i, j):
            floor = start[i]
    return floor


@kernel
def _floor_of_promised(
    block: IntArray,
    planned_s: IntArray,
    watts: IntArray,
    order: IntArray,
    at: int,
    start: IntArray,
    before: IntArray,
) -> int:
    """What a promised job cannot start before, going by those that were gone through before it.

    As in `_floor`, if it ends before the place that it has itself, and before the places that jobs
    have left since: ``before`` has the starts that were promised.
    """
    j, floor = order[at], 0
    unchanged = before[j]
    for k in range(at - 1, -1, -1):
        i = order[k]
        if start[i] == _NO_START:
            continue
        most = unchanged - planned_s[j] + 1
        if most <= floor:
            break
        if start[i] > floor and _asks_no_more(block, planned_s, watts, i, j):
            floor = min(start[i], most)
        if start[i] < before[i]:
            unchanged = min(unchanged, before[i])
    return floor


@kernel
def _asks_no_more(block: IntArray, planned_s: IntArray, watts: IntArray, i: int, j: int) -> bool:
    """Whether job i fits wherever job j does."""
    if planned_s[i] > planned_s[j] or watts[i] > watts[j] or block[UNITS, i] > block[UNITS, j]:
        return False
    for r in range(REQUEST, block.shape[0]):
        mine, other = block[r, i], block[r, j]
        # Below 0 it is how many units may share a node.
        if mine > max(other, 0) or (mine < 0 and (other >= 0 or mine > other)):
            return False
    return True


@allocating
def plan(
    now: int,
    profile: NodeProfile,
    capacity: IntArray,
    counted: IntArray,
    block: IntArray,
    primary: IntArray,
    secondary: IntArray,
    depth: int,
    best_fit: bool,
    promises: Promises,
    power_unit: IntArray,
    homes: Homes,
    planned_s: IntArray | None = None,
) -> tuple[IntArray, ByteArray, Placed, NodeProfile]:
    """One pass with reservations for the first ``depth`` jobs that cannot start.

    Jobs last for their planned durations, shape (jobs,); without them, for the expected ones.

    ``counted`` is as in `cpdispatch.system.System`. The orders say which jobs of the ``block`` are
    planned. For the others their promises are kept, where they are possible, and that is all. With
    a depth of 0 the first job that cannot start ends the pass.

    Promises made before are put in place first, then moved earlier one by one in the primary order
    where capacity was freed. One that the running jobs have made impossible by outliving
    their planned ends is made anew. Returns start, reason, the placements of all that start now or
    are promised, and the profile with them.
    """
    jobs = block.shape[1]
    start = np.full(jobs, _NO_START, dtype=np.int64)
    reason = np.full(jobs, WAITS, dtype=np.int8)
    watts = np.empty(jobs, dtype=np.int64)
    for j in range(jobs):
        watts[j] = watts_of(block[REQUEST:, j], block[UNITS, j], power_unit)
    lasting = block[EXPECTED] if planned_s is None else planned_s
    profile = _recalled(now, profile, block, lasting, watts, promises, start)
    profile, placed = _compressed(
        profile, counted, block, lasting, watts, primary, best_fit, promises, start,
        nothing_placed(jobs), homes,
    )  # fmt: skip
    promised = (start > now).sum()
    newly = np.zeros(jobs, dtype=np.int8)
    M = np.empty(capacity.shape, dtype=np.int64)
    strict = depth == 0
    for turn in range(1 if strict else 2):
        order = primary if turn == 0 else secondary
        for k in range(order.shape[0]):
            j = order[k]
            if start[j] != _NO_START or reason[j] == NEVER_FITS:
                continue
            if turn == 0 and promised >= depth and not strict:
                break
            ask, need = block[REQUEST:, j], block[UNITS, j]
            latest = _FOREVER if turn == 0 and not strict else now
            floor = 0
            if turn == 0:
                floor = _floor(block, lasting, watts, order, k, start, newly)
            begin = earliest(profile, ask, need, watts[j], lasting[j], latest, M, floor)
            if begin >= 0:
                start[j], newly[j] = begin, 1
                profile = with_room(profile, 1)
                placed = _put(
                    profile, placed, j, begin, M, counted, block, lasting, watts[j], best_fit,
                    homes,
                )  # fmt: skip
                promised += begin > now
            elif turn == 0 and not fits(capacity, ask, need):
                reason[j] = NEVER_FITS
            elif strict:
                break
    _give_reasons(now, primary, start, reason)
    return start, reason, placed, profile


@kernel
def _give_reasons(now: int, primary: IntArray, start: IntArray, reason: ByteArray) -> None:
    """The reason of a job: started, backfilled, reserved, or waiting."""
    ahead = False
    for k in range(primary.shape[0]):
        j = primary[k]
        if start[j] == now:
            reason[j] = BACKFILLED if ahead else STARTED
        elif reason[j] != NEVER_FITS:
            ahead = True
            if start[j] != _NO_START:
                reason[j] = RESERVED


@allocating
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
