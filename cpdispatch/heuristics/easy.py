"""The EASY pass, compiled: jobs start in order, one that does not fit is reserved, others backfill.

It makes no arrays: all that it writes into is given to it, so that nothing has to be counted. What
blocks and capacities are, see `cpdispatch.heuristics.kernels`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import BoolArray, ByteArray, FloatArray, IntArray
from cpdispatch.compile import allocating, inlined, kernel, merged
from cpdispatch.decision import BACKFILLED, NEVER_FITS, RESERVED, STARTED, WAITS
from cpdispatch.decision import HEAD as _HEAD_OF_DECISION
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.heuristics.kernels import (
    Homes,
    change,
    choose,
    fits,
    go_home,
    in_all,
    is_home_free,
    pool_has,
    watts_of,
)
from cpdispatch.heuristics.policies import NO_THRESHOLD, rank
from cpdispatch.instance.snapshot import (
    ENDS,
    ENTRIES,
    HEAD,
    NODES,
    NOW,
    PLANNED,
    QUEUED,
    RESOURCES,
    ROWS,
    RUNNING,
)
from cpdispatch.jobs import EXPECTED, REQUEST, REQUESTED, UNITS


class NoRoom(Exception):  # noqa: N818 - it asks for longer lists, and is no error
    """The lists of placements are too short."""


class Testing(NamedTuple):
    """What a pass needs to know of test runs, and where it says which starts are tests.

    Attributes
    ----------
    way : int
        `LEFT`, `BEFORE` or `TURN`.
    test_s : int
        How long a test lasts, seconds.
    tests : int64 array, shape (tests,)
        The jobs that may be tested, in the order of tests. They leave nothing free.
    leaves : bool array, shape (jobs,)
        Which jobs have to leave capacity free when they start in their turn.
    short_s : int64 array, shape (jobs,)
        The planned durations, but for jobs that may be tested how long their tests hold nodes.
    turn, run_turn, run_whole_end : int64 array, shapes (jobs,), (running,) and (running,)
        See `test_runs.Turns`.
    homes : Homes
    bound_s : int64 array, shape (jobs,)
        Zeros before the pass. After it, the length of a test for each job that is tested.
    """

    way: int
    test_s: int
    tests: IntArray
    leaves: BoolArray
    short_s: IntArray
    turn: IntArray
    run_turn: IntArray
    run_whole_end: IntArray
    homes: Homes
    bound_s: IntArray


class Placing(NamedTuple):
    """The placements so far: of ``many[0]`` jobs, with ``offset[many[0]]`` entries in all."""

    many: IntArray
    position: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


class Pass(NamedTuple):
    """What all parts of a pass look at or write into, see `easy`."""

    now: int
    F: IntArray
    """What is free on each node now."""
    pool: IntArray
    """The sum of ``F`` over the nodes."""
    capacity: IntArray
    counted: IntArray
    block: IntArray
    best_fit: bool
    score: FloatArray
    spare: IntArray
    power_unit: IntArray
    start: IntArray
    reason: ByteArray
    due: IntArray
    """When each job ends as planned if it starts now."""
    placed: Placing


LEFT, BEFORE, TURN = range(3)
"""When tests start: after backfilling, before it, or already while jobs start in order."""


# ----------------------------------------------------------------------------- fitting, placing


@inlined
def _keeps(pool: IntArray, ask: IntArray, units: int, spare: IntArray, leaves: bool) -> bool:
    """Whether the pooled capacity is enough, and ``spare`` is left of what a job asks for.

    That only a job which ``leaves`` something has to see to.
    """
    if not pool_has(pool, ask, units):
        return False
    if leaves:
        for r in range(pool.shape[0]):
            need = in_all(ask, units, r, pool.shape[0])
            if need > 0 and need + spare[r] > pool[r]:
                return False
    return True


@inlined
def _sum(free: IntArray, pool: IntArray) -> None:
    """Write the pooled capacity of all nodes."""
    for r in range(pool.shape[0]):
        pool[r] = 0
    for node in range(free.shape[0]):
        for r in range(pool.shape[0]):
            pool[r] += free[node, r]


@kernel
def _start(
    of: Pass, job: int, usable: IntArray, ask: IntArray, units: int, testing: Testing | None
) -> None:
    """Start a job that fits ``usable``: on its own nodes if it was stopped there, else anywhere."""
    F, pool, placed, due = of.F, of.pool, of.placed, of.due
    count = placed.many[0]
    low = placed.offset[count]
    node, units_at = placed.node[low:], placed.units[low:]
    if min(units, F.shape[0]) > node.shape[0]:
        raise NoRoom("too many entries")
    if testing is not None and is_home_free(usable, ask, testing.homes, job):
        homes = testing.homes
        entries = go_home(job, homes, node, units_at)
        due[job] = max(due[job] - (of.now - homes.start_s[homes.of[job]]), of.now + 1)
    else:
        entries = choose(usable, of.counted, ask, units, of.best_fit, of.score, node, units_at)
    placed.position[count], placed.offset[count + 1] = job, low + entries
    placed.many[0] = count + 1
    change(F, ask, node[:entries], units_at[:entries], -1)
    for r in range(pool.shape[0]):
        pool[r] -= in_all(ask, units, r, pool.shape[0])


# --------------------------------------------------------------------------------- the parts


@kernel
def _in_turn(
    of: Pass, first: int, primary: IntArray, watts_free: int, leaves: BoolArray,
    testing: Testing | None,
) -> tuple[int, int]:  # fmt: skip
    """Start jobs in the primary order, from place ``first`` on, until one does not fit now.

    Returns the place of that job in the order (the number of jobs if all fit), and the free watts.
    Jobs that do not even fit the empty system are skipped.
    """
    for k in range(first, primary.shape[0]):
        j = primary[k]
        ask, units = of.block[REQUEST:, j], of.block[UNITS, j]
        watts = watts_of(ask, units, of.power_unit)
        enough = watts <= watts_free and _keeps(of.pool, ask, units, of.spare, leaves[j])
        if enough and fits(of.F, ask, units):
            _start(of, j, of.F, ask, units, testing)
            watts_free -= watts
            of.start[j], of.reason[j] = of.now, STARTED
        elif fits(of.capacity, ask, units):
            return k, watts_free
        else:
            of.reason[j] = NEVER_FITS
    return primary.shape[0], watts_free


@inlined
def _sift(heap: IntArray, end: IntArray, at: int, size: int) -> None:
    """Let an entry of a heap, the one with the least end first, sink to its place."""
    entry = heap[at]
    below = 2 * at + 1
    while below < size:
        if below + 1 < size and end[heap[below + 1]] < end[heap[below]]:
            below += 1
        if end[heap[below]] >= end[entry]:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = entry


@kernel
def _write_ends(
    of: Pass, job: int, planned_s: IntArray, run_end: IntArray, testing: Testing | None,
    end: IntArray,
) -> None:  # fmt: skip
    """Write when running jobs, and then those ``placed`` in this pass, give back what they hold.

    Tests of jobs whose turn comes before end when those do, see `test_runs.Turns`.
    """
    running, placed, due = run_end.shape[0], of.placed, of.due
    for k in range(running):
        end[k] = run_end[k]
    for k in range(placed.many[0]):
        end[running + k] = due[placed.position[k]]
    if testing is not None:
        short_s, turn, run_turn = testing.short_s, testing.turn, testing.run_turn
        for k in range(running):
            if run_turn[k] < turn[job]:
                end[k] = testing.run_whole_end[k]
        for k in range(placed.many[0]):
            j = placed.position[k]
            if testing.way == TURN and short_s[j] != planned_s[j]:
                tested = of.now + short_s[j]
                end[running + k] = max(due[j], tested) if turn[j] < turn[job] else tested


@kernel
def _reserve(
    of: Pass, watts_free: int, job: int, job_watts: int, planned_s: IntArray, leaves: bool,
    run_block: IntArray, run_end: IntArray, offset: IntArray, node: IntArray, units: IntArray,
    testing: Testing | None, L: IntArray, pool: IntArray, end: IntArray, heap: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Shadow time of a job that does not fit now, and the free watts then.

    At each planned end of a running job, and of those ``placed`` in this pass, its capacity is
    added to ``L``, a copy of what is free now, until the job fits. The shadow time is -1 when it
    never does. The last arrays are written over: ``L``, its sum, the ends, and jobs by them.
    """
    F, block, placed, running = of.F, of.block, of.placed, run_end.shape[0]
    job_ask, job_units, left = block[REQUEST:, job], block[UNITS, job], running + placed.many[0]
    _write_ends(of, job, planned_s, run_end, testing, end)
    for i in range(left):
        heap[i] = i
    for i in range(left // 2 - 1, -1, -1):
        _sift(heap, end, i, left)
    for n in range(F.shape[0]):
        for r in range(F.shape[1]):
            L[n, r] = F[n, r]
    _sum(L, pool)
    while left:
        i = heap[0]
        left -= 1
        heap[0] = heap[left]
        _sift(heap, end, 0, left)
        if i < running:
            ask, many = run_block[REQUEST:, i], run_block[UNITS, i]
            low, high = offset[i], offset[i + 1]
            change(L, ask, node[low:high], units[low:high], 1)
        else:
            j = placed.position[i - running]
            ask, many = block[REQUEST:, j], block[UNITS, j]
            low, high = placed.offset[i - running], placed.offset[i - running + 1]
            change(L, ask, placed.node[low:high], placed.units[low:high], 1)
        for r in range(pool.shape[0]):
            pool[r] += in_all(ask, many, r, pool.shape[0])
        watts_free += watts_of(ask, many, of.power_unit)
        if left and end[heap[0]] == end[i]:
            continue
        enough = job_watts <= watts_free and _keeps(pool, job_ask, job_units, of.spare, leaves)
        if enough and fits(L, job_ask, job_units):
            return end[i], watts_free
    return -1, watts_free


@kernel
def _backfill(
    of: Pass, shadow: int, secondary: IntArray, L: IntArray, M: IntArray, watts_free: int,
    watts_then: int, planned_s: IntArray, leaves: BoolArray, testing: Testing | None,
    are_tests: bool,
) -> tuple[int, int]:  # fmt: skip
    """Start, in the secondary order, waiting jobs that do not delay the reserved one.

    ``L`` is what the reserved job leaves free at its ``shadow`` time; ``M`` is written over. Jobs
    that start as tests leave nothing free. Returns the watts that are left now and then.
    """
    now, F, placed, reason = of.now, of.F, of.placed, of.reason
    for n in range(F.shape[0]):
        for r in range(F.shape[1]):
            M[n, r] = min(F[n, r], L[n, r])
    for k in range(secondary.shape[0]):
        j = secondary[k]
        if reason[j] != WAITS:
            continue
        ask, units = of.block[REQUEST:, j], of.block[UNITS, j]
        watts = watts_of(ask, units, of.power_unit)
        leaving = leaves[j] and not are_tests
        if watts > watts_free or not _keeps(of.pool, ask, units, of.spare, leaving):
            continue
        outlives = now + planned_s[j] > shadow
        if testing is not None and outlives and is_home_free(F, ask, testing.homes, j):
            homes = testing.homes
            outlives = homes.start_s[homes.of[j]] + planned_s[j] > shadow
        usable = M if outlives else F
        if (outlives and watts > watts_then) or not fits(usable, ask, units):
            continue
        _start(of, j, usable, ask, units, testing)
        watts_free -= watts
        count = placed.many[0]
        low, high = placed.offset[count - 1], placed.offset[count]
        if outlives:
            change(L, ask, placed.node[low:high], placed.units[low:high], -1)
            watts_then -= watts
        for e in range(low, high):
            for r in range(F.shape[1]):
                M[placed.node[e], r] = min(F[placed.node[e], r], L[placed.node[e], r])
        of.start[j], reason[j] = now, BACKFILLED
        if testing is not None and are_tests:
            testing.bound_s[j] = testing.test_s
    return watts_free, watts_then


# ---------------------------------------------------------------------------------- the pass


@inlined
def scratch_size(jobs: int, running: int, nodes: int, resources: int) -> int:
    """How many numbers a pass writes over."""
    return 1 + 3 * jobs + 2 * running + 2 * nodes + (3 * nodes + 2) * resources


@kernel
def easy(
    now: int,
    free: IntArray,
    capacity: IntArray,
    counted: IntArray,
    block: IntArray,
    planned_s: IntArray,
    primary: IntArray,
    secondary: IntArray,
    depth: int,
    best_fit: bool,
    run_block: IntArray,
    run_end: IntArray,
    offset: IntArray,
    node: IntArray,
    units: IntArray,
    power_unit: IntArray,
    watts_free: int,
    spare: IntArray,
    leaves: BoolArray,
    testing: Testing | None,
    reason: ByteArray,
    found: IntArray,
    scratch: IntArray,
    score: FloatArray,
) -> int:
    """One pass with a reservation depth of 0 (none, strict order) or 1 (EASY).

    Finds the start of each job (now, the shadow time for the reserved one, or none), its reason,
    and the placements of the jobs that start now. Returns how many of these there are.

    Parameters
    ----------
    counted : int64 array, shape (nodes, resources)
        See `cpdispatch.system.System`.
    primary : int64 array, shape (orders,)
        The jobs that may start, in the primary order.
    spare : int64 array, shape (resources,)
        What some jobs, as far as they ask for the resource at all, leave free when they start.
    leaves : bool array, shape (jobs,)
        Which jobs these are.
    testing : Testing or None
        None where no job may be tested, and none has just been stopped.
    reason : int8 array, shape (jobs,)
        Gets the reasons.
    found : int64 array
        Gets the starts, then positions and offsets of the placed jobs, with room for all jobs, then
        nodes and units, with equal room.
    scratch, score
        Written over; shapes (`scratch_size`,), and (nodes,) with best fit.

    Raises
    ------
    NoRoom
        When there is too little room for nodes and units.
    """
    jobs, nodes, resources = block.shape[1], free.shape[0], free.shape[1]
    size = nodes * resources
    F = scratch[:size].reshape(nodes, resources)
    L = scratch[size : 2 * size].reshape(nodes, resources)
    M = scratch[2 * size : 3 * size].reshape(nodes, resources)
    at = 3 * size + 1
    pool, pool_then = scratch[at : at + resources], scratch[at + resources : at + 2 * resources]
    at += 2 * resources
    held_node, held_units = scratch[at : at + nodes], scratch[at + nodes : at + 2 * nodes]
    at += 2 * nodes
    due, ends = scratch[at : at + jobs], (scratch.shape[0] - at - jobs) // 2
    at += jobs
    end, heap = scratch[at : at + ends], scratch[at + ends :]
    start, low = found[:jobs], 3 * jobs + 1
    middle = (found.shape[0] + low) // 2
    placed = Placing(
        scratch[3 * size : at], found[jobs : 2 * jobs], found[2 * jobs : low], found[low:middle],
        found[middle:],
    )  # fmt: skip
    for n in range(nodes):
        for r in range(resources):
            F[n, r] = free[n, r]
    placed.many[0] = placed.offset[0] = 0
    for j in range(jobs):
        start[j], reason[j], due[j] = _NO_START, WAITS, now + planned_s[j]
    _sum(F, pool)
    of = Pass(
        now, F, pool, capacity, counted, block, best_fit, score, spare, power_unit, start, reason,
        due, placed,
    )  # fmt: skip
    in_turn = leaves if testing is None else testing.leaves
    blocked, shadow, head, watts, watts_then = 0, -1, 0, 0, 0
    while shadow < 0:
        blocked, watts_free = _in_turn(of, blocked, primary, watts_free, in_turn, testing)
        if blocked == primary.shape[0] or depth == 0:
            break
        head = primary[blocked]
        watts = watts_of(block[REQUEST:, head], block[UNITS, head], power_unit)
        shadow, watts_then = _reserve(
            of, watts_free, head, watts, planned_s, leaves[head], run_block, run_end, offset, node,
            units, testing, L, pool_then, end, heap,
        )  # fmt: skip
        if shadow < 0:
            blocked += 1
    if testing is not None and testing.way == TURN:
        for k in range(testing.tests.shape[0]):
            if start[testing.tests[k]] == now:
                testing.bound_s[testing.tests[k]] = testing.test_s
    if shadow < 0:
        return int(placed.many[0])
    start[head], reason[head] = shadow, RESERVED
    ask = block[REQUEST:, head]
    held = choose(L, counted, ask, block[UNITS, head], best_fit, score, held_node, held_units)
    change(L, ask, held_node[:held], held_units[:held], -1)
    watts_then -= watts
    if testing is not None and testing.way != LEFT:
        watts_free, watts_then = _backfill(
            of, shadow, testing.tests, L, M, watts_free, watts_then, testing.short_s, leaves,
            testing, True,
        )  # fmt: skip
    watts_free, watts_then = _backfill(
        of, shadow, secondary, L, M, watts_free, watts_then, planned_s, leaves, testing, False
    )
    if testing is not None and testing.way == LEFT:
        watts_free, watts_then = _backfill(
            of, shadow, testing.tests, L, M, watts_free, watts_then, testing.short_s, leaves,
            testing, True,
        )  # fmt: skip
    return int(placed.many[0])


# --------------------------------------------------------------------------- on a flat instance


class Flat(NamedTuple):
    """The parts of a flat instance, see `cpdispatch.instance.snapshot.HEAD`."""

    now: int
    free: IntArray
    block: IntArray
    planned_s: IntArray
    run_block: IntArray
    times: IntArray
    run_end: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


@merged
def parts_of(flat: IntArray) -> Flat:
    """The parts of a flat instance."""
    queued, running, entries = flat[QUEUED], flat[RUNNING], flat[ENTRIES]
    nodes, resources, rows = flat[NODES], flat[RESOURCES], flat[ROWS]
    queue = HEAD + nodes * resources
    run = queue + rows * queued
    times = run + rows * running
    offset = times + 4 * running
    node = offset + running + 1
    return Flat(
        flat[NOW],
        flat[HEAD:queue].reshape(nodes, resources),
        flat[queue:run].reshape(rows, queued),
        flat[flat[PLANNED] : flat[PLANNED] + queued],
        flat[run:times].reshape(rows, running),
        flat[times:offset].reshape(4, running),
        flat[flat[ENDS] : flat[ENDS] + running],
        flat[offset:node],
        flat[node : node + entries],
        flat[node + entries : node + 2 * entries],
    )


@kernel
def _plan(of: Flat, limits: int, planned_s: IntArray, run_end: IntArray) -> None:
    """Write planned durations and ends, see `cpdispatch.heuristics.limits.planned`."""
    block, run, times = of.block, of.run_block, of.times
    for j in range(block.shape[1]):
        planned_s[j] = of.planned_s[j]
        if limits != EXPECTED:
            planned_s[j] = max(block[EXPECTED, j], block[limits, j])
    for k in range(run.shape[1]):
        run_end[k] = of.run_end[k]
        if limits != EXPECTED:
            longest = max(run[EXPECTED, k], run[REQUESTED, k])
            run_end[k] = times[1, k] if times[3, k] > 0 else max(times[1, k], times[0, k] + longest)


@allocating
def easy_of_flat(
    flat: IntArray,
    capacity: IntArray,
    counted: IntArray,
    primary: int,
    weights: FloatArray,
    threshold_s: int,
    secondary: int,
    weights_then: FloatArray,
    one_order: bool,
    depth: int,
    best_fit: bool,
    limits: int,
    power_unit: IntArray,
    watts_free: int,
    room: int,
) -> IntArray:
    """A pass over a flat instance, in the orders of two policies: the flat decision.

    See `easy` and `cpdispatch.heuristics.policies.Order.rank`. With ``one_order``, the secondary
    order is the primary one. ``limits`` is the column of the planned durations, see
    `cpdispatch.heuristics.limits`; ``room`` is the room for nodes and units.
    """
    of = parts_of(flat)
    jobs, running = of.block.shape[1], of.run_block.shape[1]
    nodes, resources = of.free.shape
    expected = of.block[EXPECTED]
    order = rank(primary, weights, of.now, of.block, expected, threshold_s)
    other = order
    if not one_order:
        other = rank(secondary, weights_then, of.now, of.block, expected, NO_THRESHOLD)
    planned_s, run_end = np.empty(jobs, dtype=np.int64), np.empty(running, dtype=np.int64)
    _plan(of, limits, planned_s, run_end)
    reason = np.empty(jobs, dtype=np.int8)
    found = np.empty(3 * jobs + 1 + 2 * room, dtype=np.int64)
    placed = easy(
        of.now, of.free, capacity, counted, of.block, planned_s, order, other, depth, best_fit,
        of.run_block, run_end, of.offset, of.node, of.units, power_unit, watts_free,
        np.zeros(resources, dtype=np.int64), np.zeros(jobs, dtype=np.bool_), None, reason, found,
        np.empty(scratch_size(jobs, running, nodes, resources), dtype=np.int64),
        np.empty(nodes if best_fit else 0),
    )  # fmt: skip
    entries = found[2 * jobs + placed]
    decision = np.empty(_HEAD_OF_DECISION + 2 * (jobs + placed + entries) + 1, dtype=np.int64)
    decision[0], decision[1] = jobs, placed
    at = _HEAD_OF_DECISION
    for j in range(jobs):
        decision[at + j], decision[at + jobs + j] = found[j], reason[j]
    at += 2 * jobs
    for k in range(placed):
        decision[at + k] = found[jobs + k]
    at += placed
    for k in range(placed + 1):
        decision[at + k] = found[2 * jobs + k]
    at += placed + 1
    for e in range(entries):
        decision[at + e] = found[3 * jobs + 1 + e]
        decision[at + entries + e] = found[3 * jobs + 1 + room + e]
    return decision
