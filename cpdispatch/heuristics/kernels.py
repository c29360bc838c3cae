"""Compiled kernels: fitting and placing units on nodes, and the backfilling passes over them.

Everything here works on plain arrays. A job's request is the vector ``ask``: one integer for each
resource type, 0 if a unit needs none. ``free`` is the free capacity, shape (nodes, resources). A
block of jobs is laid out as in `cpdispatch.jobs.Column`; its planned durations come beside it, see
`cpdispatch.jobs.JobTable.planned_s`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import ByteArray, IntArray
from cpdispatch.compile import allocating, inlined, kernel
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.decision import Reason
from cpdispatch.jobs import Column

_UNITS, _REQUEST = int(Column.UNITS), int(Column.REQUEST)
_STARTED, _BACKFILLED = int(Reason.STARTED), int(Reason.BACKFILLED)
_RESERVED, _WAITS, _NEVER = int(Reason.RESERVED), int(Reason.WAITS), int(Reason.NEVER_FITS)


class Placed(NamedTuple):
    """Growing lists of placements: of ``jobs`` jobs, with ``offset[jobs]`` entries in all."""

    jobs: int
    position: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


class Homes(NamedTuple):
    """The nodes of the queued jobs that have just been stopped, see `cpdispatch.instance.Stopped`.

    They are preferred to all other nodes, because there the job goes on.
    """

    of: IntArray
    """Which of the stopped jobs each queued job is, -1 for none; empty when nobody is stopped."""
    start_s: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


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
    short_s: IntArray
    turn: IntArray
    run_turn: IntArray
    run_whole_end: IntArray
    homes: Homes
    bound_s: IntArray


LEFT, BEFORE, TURN = range(3)
"""When tests start: after backfilling, before it, or already while jobs start in order."""


# ------------------------------------------------------------------------- fitting and placing


@inlined
def room(free: IntArray, node: int, ask: IntArray, most: int) -> int:
    """How many units, ``most`` at most, fit on a node.

    A request below 0 says how many may share a node, see `cpdispatch.access.spread`.
    """
    for r in range(ask.shape[0]):
        if ask[r] > 0:
            have = free[node, r]
            if have < ask[r]:
                return 0
            if most * ask[r] > have:
                most = have if ask[r] == 1 else have // ask[r]
        elif ask[r] < 0:
            most = min(most, -ask[r])
    return most


@kernel
def fits(free: IntArray, ask: IntArray, units: int) -> bool:
    """Whether all units of a job find room."""
    left = units
    for node in range(free.shape[0]):
        left -= room(free, node, ask, left)
        if left == 0:
            return True
    return False


@kernel
def pool_has(pool: IntArray, ask: IntArray, units: int) -> bool:
    """Whether the pooled capacity is enough: a quick necessary condition for `fits`."""
    for r in range(ask.shape[0]):  # noqa: SIM110 - numba compiles no generators
        if units * ask[r] > pool[r]:
            return False
    return True


@kernel
def pool_keeps(pool: IntArray, ask: IntArray, units: int, spare: IntArray) -> bool:
    """Whether the pooled capacity is enough, and leaves ``spare`` of what the job asks for."""
    for r in range(ask.shape[0]):
        if ask[r] > 0 and units * ask[r] + spare[r] > pool[r]:
            return False
    return True


@kernel
def fullness(free: IntArray, capacity: IntArray, node: int) -> float:
    """Sum over the resource types that a node has of free / capacity: small when it is full."""
    total = 0.0
    for r in range(free.shape[1]):
        if capacity[node, r] > 0:
            total += free[node, r] / capacity[node, r]
    return total


@allocating
def place(
    free: IntArray,
    capacity: IntArray,
    ask: IntArray,
    units: int,
    best_fit: bool,
    node_out: IntArray,
    units_out: IntArray,
) -> int:
    """Choose nodes for a job that `fits`; return how many entries were written.

    First fit takes nodes by index. Best fit takes the fullest feasible node first, ties by index,
    and as many units there as fit; the fullness of the other nodes does not change by that, and
    neither does their order.
    """
    nodes = free.shape[0]
    left, count = units, 0
    if not best_fit or nodes == 1:
        for node in range(nodes):
            here = room(free, node, ask, left)
            if here > 0:
                node_out[count], units_out[count] = node, here
                count += 1
                left -= here
                if left == 0:
                    break
        return count
    score = np.empty(nodes)
    for node in range(nodes):
        score[node] = fullness(free, capacity, node) if room(free, node, ask, 1) else np.inf
    while left > 0:
        node = int(np.argmin(score))
        here = room(free, node, ask, left)
        node_out[count], units_out[count] = node, here
        count += 1
        left -= here
        score[node] = np.inf
    return count


@kernel
def change(free: IntArray, ask: IntArray, node: IntArray, units: IntArray, sign: int) -> None:
    """Give back (sign 1) or take (sign -1) the capacity of some entries."""
    for k in range(node.shape[0]):
        for r in range(ask.shape[0]):
            free[node[k], r] += sign * units[k] * ask[r]


@kernel
def watts_of(ask: IntArray, units: int, power_unit: IntArray) -> int:
    """Watts that a job draws."""
    total = 0
    for r in range(ask.shape[0]):
        total += ask[r] * power_unit[r]
    return total * units


@allocating
def nothing_placed(jobs: int) -> Placed:
    """Empty lists with room for this number of jobs."""
    empty = np.empty(max(jobs, 1), dtype=np.int64)
    return Placed(
        0, empty, np.zeros(jobs + 1, dtype=np.int64), np.empty_like(empty), np.empty_like(empty)
    )


@allocating
def place_next(
    placed: Placed,
    job: int,
    free: IntArray,
    capacity: IntArray,
    ask: IntArray,
    units: int,
    best: bool,
) -> Placed:
    """Place one more job that `fits` ``free``; its entries are the last ones of the result."""
    count, low = placed.jobs, placed.offset[placed.jobs]
    most = low + min(units, free.shape[0])
    node, units_at = placed.node, placed.units
    if most > node.shape[0]:
        node, units_at = _grown(node, 2 * most), _grown(units_at, 2 * most)
    entries = place(free, capacity, ask, units, best, node[low:], units_at[low:])
    placed.position[count] = job
    placed.offset[count + 1] = low + entries
    return Placed(count + 1, placed.position, placed.offset, node, units_at)


@allocating
def packed(placed: Placed) -> IntArray:
    """Number of jobs, positions, offsets, nodes, units: one array is returned faster than five."""
    jobs = placed.jobs
    entries = placed.offset[jobs]
    flat = np.empty(2 * jobs + 2 + 2 * entries, dtype=np.int64)
    flat[0] = jobs
    for k in range(jobs):
        flat[1 + k] = placed.position[k]
    for k in range(jobs + 1):
        flat[1 + jobs + k] = placed.offset[k]
    for e in range(entries):
        flat[2 * jobs + 2 + e] = placed.node[e]
        flat[2 * jobs + 2 + entries + e] = placed.units[e]
    return flat


@allocating
def _grown(array: IntArray, size: int) -> IntArray:
    larger = np.empty(size, dtype=np.int64)
    for k in range(array.shape[0]):
        larger[k] = array[k]
    return larger


@allocating
def _pool(free: IntArray) -> IntArray:
    total = np.zeros(free.shape[1], dtype=np.int64)
    for node in range(free.shape[0]):
        for r in range(free.shape[1]):
            total[r] += free[node, r]
    return total


# --------------------------------------------------------------------- starting jobs in an order


@allocating
def usable_for(
    free: IntArray,
    until: int,
    change_s: IntArray,
    change_node: IntArray,
    change_capacity: IntArray,
) -> IntArray:
    """What is free at every instant from now until a job that starts now has ended.

    Other jobs that start now are taken to last as long. The changes are those of
    `cpdispatch.heuristics.allocate.changes`.
    """
    if change_s.shape[0] == 0:
        return free
    level, usable = free.copy(), free.copy()
    first = 0
    while first < change_s.shape[0] and change_s[first] < until:
        last = first
        while last < change_s.shape[0] and change_s[last] == change_s[first]:
            for r in range(free.shape[1]):
                level[change_node[last], r] += change_capacity[last, r]
            last += 1
        for k in range(first, last):
            node = change_node[k]
            for r in range(free.shape[1]):
                usable[node, r] = max(min(usable[node, r], level[node, r]), 0)
        first = last
    return usable


@allocating
def start_job(
    placed: Placed,
    job: int,
    usable: IntArray,
    F: IntArray,
    pool: IntArray,
    capacity: IntArray,
    ask: IntArray,
    units: int,
    best_fit: bool,
) -> Placed:
    """Place a job that fits ``usable``, and take its capacity from ``F`` and the pool."""
    placed = place_next(placed, job, usable, capacity, ask, units, best_fit)
    low, high = placed.offset[placed.jobs - 1], placed.offset[placed.jobs]
    change(F, ask, placed.node[low:high], placed.units[low:high], -1)
    pool -= units * ask
    return placed


@allocating
def greedy(
    now: int,
    free: IntArray,
    capacity: IntArray,
    block: IntArray,
    planned_s: IntArray,
    order: IntArray,
    best_fit: bool,
    change_s: IntArray,
    change_node: IntArray,
    change_capacity: IntArray,
    power_unit: IntArray,
    watts_free: int,
) -> Placed:
    """Start each job of ``order`` that fits now; skip the others."""
    F = free.copy()
    pool = _pool(F)
    placed = nothing_placed(order.shape[0])
    for k in range(order.shape[0]):
        j = order[k]
        ask, units = block[_REQUEST:, j], block[_UNITS, j]
        watts = watts_of(ask, units, power_unit)
        if watts > watts_free or not pool_has(pool, ask, units):
            continue
        until = now + planned_s[j]
        usable = usable_for(F, until, change_s, change_node, change_capacity)
        if fits(usable, ask, units):
            placed = start_job(placed, j, usable, F, pool, capacity, ask, units, best_fit)
            watts_free -= watts
    return placed


@allocating
def each_fits(
    now: int,
    free: IntArray,
    block: IntArray,
    planned_s: IntArray,
    change_s: IntArray,
    change_node: IntArray,
    change_capacity: IntArray,
    power_unit: IntArray,
    watts_free: int,
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each job, whether it alone fits."""
    answer = np.zeros(block.shape[1], dtype=np.bool_)
    pool = _pool(free)
    for j in range(block.shape[1]):
        ask, units = block[_REQUEST:, j], block[_UNITS, j]
        if pool_has(pool, ask, units) and watts_of(ask, units, power_unit) <= watts_free:
            until = now + planned_s[j]
            usable = usable_for(free, until, change_s, change_node, change_capacity)
            answer[j] = fits(usable, ask, units)
    return answer


# ------------------------------------------------------------------------------- EASY


@allocating
def _reserve(
    now: int,
    free: IntArray,
    watts_free: int,
    job_ask: IntArray,
    job_units: int,
    job_watts: int,
    job_spare: IntArray,
    job: int,
    block: IntArray,
    planned_s: IntArray,
    due: IntArray,
    placed: Placed,
    run_block: IntArray,
    run_end: IntArray,
    offset: IntArray,
    node: IntArray,
    units: IntArray,
    power_unit: IntArray,
    testing: Testing | None,
) -> tuple[int, IntArray, int]:
    """Shadow time of a job that does not fit now, and what will be free then.

    At each planned end of a running job, and of those ``placed`` in this pass, its capacity is
    added to a copy of ``free``, until the job fits. Tests of jobs whose turn comes before end when
    those do, see `test_runs.Turns`. Returns (shadow time, free capacity, free watts) at that
    instant; shadow time -1 when it never fits.
    """
    running = run_end.shape[0]
    end = np.empty(running + placed.jobs, dtype=np.int64)
    for k in range(running):
        end[k] = run_end[k]
    for k in range(placed.jobs):
        end[running + k] = due[placed.position[k]]
    if testing is not None:
        short_s, turn, run_turn = testing.short_s, testing.turn, testing.run_turn
        whole_end = testing.run_whole_end
        for k in range(running):
            if run_turn[k] < turn[job]:
                end[k] = whole_end[k]
        for k in range(placed.jobs):
            j = placed.position[k]
            if testing.way == TURN and short_s[j] != planned_s[j]:
                tested = now + short_s[j]
                end[running + k] = max(due[j], tested) if turn[j] < turn[job] else tested
    L = free.copy()
    pool = _pool(L)
    by_end = np.argsort(end, kind="mergesort")
    for k in range(by_end.shape[0]):
        i = by_end[k]
        if i < running:
            ask, many = run_block[_REQUEST:, i], run_block[_UNITS, i]
            low, high = offset[i], offset[i + 1]
            change(L, ask, node[low:high], units[low:high], 1)
        else:
            j = placed.position[i - running]
            ask, many = block[_REQUEST:, j], block[_UNITS, j]
            low, high = placed.offset[i - running], placed.offset[i - running + 1]
            change(L, ask, placed.node[low:high], placed.units[low:high], 1)
        pool += ask * many
        watts_free += watts_of(ask, many, power_unit)
        if k + 1 < by_end.shape[0] and end[by_end[k + 1]] == end[i]:
            continue
        enough = job_watts <= watts_free and pool_keeps(pool, job_ask, job_units, job_spare)
        if enough and fits(L, job_ask, job_units):
            return end[i], L, watts_free
    return -1, L, watts_free


@kernel
def is_home_free(usable: IntArray, ask: IntArray, homes: Homes, job: int) -> bool:
    """Whether a job has just been stopped and its nodes still have room for it."""
    if homes.of.shape[0] == 0 or homes.of[job] < 0:
        return False
    for e in range(homes.offset[homes.of[job]], homes.offset[homes.of[job] + 1]):
        for r in range(ask.shape[0]):
            if homes.units[e] * ask[r] > max(usable[homes.node[e], r], 0):
                return False
    return True


@allocating
def place_at_home(placed: Placed, job: int, homes: Homes) -> Placed:
    """Place a job that has just been stopped on its own nodes."""
    first, low = homes.offset[homes.of[job]], placed.offset[placed.jobs]
    entries = homes.offset[homes.of[job] + 1] - first
    node, units_at = placed.node, placed.units
    if low + entries > node.shape[0]:
        node, units_at = _grown(node, 2 * (low + entries)), _grown(units_at, 2 * (low + entries))
    for e in range(entries):
        node[low + e], units_at[low + e] = homes.node[first + e], homes.units[first + e]
    placed.position[placed.jobs] = job
    placed.offset[placed.jobs + 1] = low + entries
    return Placed(placed.jobs + 1, placed.position, placed.offset, node, units_at)


@allocating
def _start(
    now: int,
    placed: Placed,
    job: int,
    usable: IntArray,
    F: IntArray,
    pool: IntArray,
    capacity: IntArray,
    ask: IntArray,
    units: int,
    best_fit: bool,
    due: IntArray,
    testing: Testing | None,
) -> Placed:
    """Start a job that fits ``usable``: on its own nodes if it was stopped there, else anywhere."""
    if testing is not None:
        homes = testing.homes
        if is_home_free(usable, ask, homes, job):
            placed = place_at_home(placed, job, homes)
            low, high = placed.offset[placed.jobs - 1], placed.offset[placed.jobs]
            change(F, ask, placed.node[low:high], placed.units[low:high], -1)
            pool -= units * ask
            due[job] = max(due[job] - (now - homes.start_s[homes.of[job]]), now + 1)
            return placed
    return start_job(placed, job, usable, F, pool, capacity, ask, units, best_fit)


@allocating
def _in_turn(
    now: int,
    first: int,
    primary: IntArray,
    F: IntArray,
    pool: IntArray,
    watts_free: int,
    capacity: IntArray,
    block: IntArray,
    best_fit: bool,
    spare: IntArray,
    power_unit: IntArray,
    start: IntArray,
    reason: ByteArray,
    placed: Placed,
    due: IntArray,
    testing: Testing | None,
) -> tuple[int, Placed, int]:
    """Start jobs in the primary order, from place ``first`` on, until one does not fit now.

    Returns the place of that job in the order (the number of jobs if all fit), the placements, and
    the free watts. Jobs that do not even fit the empty system are skipped.
    """
    for k in range(first, primary.shape[0]):
        j = primary[k]
        ask, units = block[_REQUEST:, j], block[_UNITS, j]
        watts = watts_of(ask, units, power_unit)
        enough = watts <= watts_free and pool_keeps(pool, ask, units, spare[j])
        if enough and fits(F, ask, units):
            placed = _start(
                now, placed, j, F, F, pool, capacity, ask, units, best_fit, due, testing
            )
            watts_free -= watts
            start[j], reason[j] = now, _STARTED
        elif fits(capacity, ask, units):
            return k, placed, watts_free
        else:
            reason[j] = _NEVER
    return primary.shape[0], placed, watts_free


@allocating
def _backfill(
    now: int,
    shadow: int,
    secondary: IntArray,
    F: IntArray,
    L: IntArray,
    pool: IntArray,
    watts_free: int,
    watts_then: int,
    capacity: IntArray,
    block: IntArray,
    planned_s: IntArray,
    best_fit: bool,
    spare: IntArray,
    power_unit: IntArray,
    start: IntArray,
    reason: ByteArray,
    placed: Placed,
    due: IntArray,
    testing: Testing | None,
) -> tuple[Placed, int, int]:
    """Start, in the secondary order, waiting jobs that do not delay the reserved one.

    ``L`` is what the reserved job leaves free at its ``shadow`` time. Returns the placements, and
    the watts that are left now and then.
    """
    M = np.minimum(F, L)
    for k in range(secondary.shape[0]):
        j = secondary[k]
        if reason[j] != _WAITS:
            continue
        ask, units = block[_REQUEST:, j], block[_UNITS, j]
        watts = watts_of(ask, units, power_unit)
        if watts > watts_free or not pool_keeps(pool, ask, units, spare[j]):
            continue
        outlives = now + planned_s[j] > shadow
        if testing is not None and outlives and is_home_free(F, ask, testing.homes, j):
            homes = testing.homes
            outlives = homes.start_s[homes.of[j]] + planned_s[j] > shadow
        usable = M if outlives else F
        if (outlives and watts > watts_then) or not fits(usable, ask, units):
            continue
        placed = _start(
            now, placed, j, usable, F, pool, capacity, ask, units, best_fit, due, testing
        )
        watts_free -= watts
        low, high = placed.offset[placed.jobs - 1], placed.offset[placed.jobs]
        if outlives:
            change(L, ask, placed.node[low:high], placed.units[low:high], -1)
            watts_then -= watts
        for e in range(low, high):
            for r in range(F.shape[1]):
                M[placed.node[e], r] = min(F[placed.node[e], r], L[placed.node[e], r])
        start[j], reason[j] = now, _BACKFILLED
    return placed, watts_free, watts_then


@allocating
def _test(
    now: int,
    shadow: int,
    F: IntArray,
    L: IntArray,
    pool: IntArray,
    watts_free: int,
    watts_then: int,
    capacity: IntArray,
    block: IntArray,
    best_fit: bool,
    spare: IntArray,
    power_unit: IntArray,
    start: IntArray,
    reason: ByteArray,
    placed: Placed,
    due: IntArray,
    testing: Testing,
) -> tuple[Placed, int, int]:
    """Start tests as `_backfill` starts jobs; they leave nothing free."""
    before = placed.jobs
    placed, watts_free, watts_then = _backfill(
        now, shadow, testing.tests, F, L, pool, watts_free, watts_then,
        capacity, block, testing.short_s, best_fit, np.zeros_like(spare), power_unit, start,
        reason, placed, due, testing,
    )  # fmt: skip
    testing.bound_s[placed.position[before : placed.jobs]] = testing.test_s
    return placed, watts_free, watts_then


@allocating
def easy(
    now: int,
    free: IntArray,
    capacity: IntArray,
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
    testing: Testing | None,
    start: IntArray,
    reason: ByteArray,
) -> IntArray:
    """One pass with a reservation depth of 0 (none, strict order) or 1 (EASY).

    Writes the start of each job (now, the shadow time for the reserved one, or none) and its
    reason. Returns the placements of the jobs that start now, see `packed`.

    Parameters
    ----------
    primary : int64 array, shape (orders,)
        The jobs that may start, in the primary order.
    spare : int64 array, shape (jobs, resources)
        What each job, if it asks for the resource at all, has to leave free when it starts.
    testing : Testing or None
        None where no job may be tested, and none has just been stopped.
    """
    jobs = block.shape[1]
    for j in range(jobs):
        start[j], reason[j] = _NO_START, _WAITS
    due = now + planned_s
    placed = nothing_placed(jobs)
    F = free.copy()
    pool = _pool(F)
    leaves = spare
    if testing is not None and testing.way == TURN:
        leaves = spare.copy()
        leaves[testing.tests] = 0
    blocked, shadow = 0, -1
    while shadow < 0:
        blocked, placed, watts_free = _in_turn(
            now, blocked, primary, F, pool, watts_free,
            capacity, block, best_fit, leaves, power_unit, start, reason, placed, due, testing,
        )  # fmt: skip
        if blocked == primary.shape[0] or depth == 0:
            break
        head = primary[blocked]
        ask, need = block[_REQUEST:, head], block[_UNITS, head]
        watts = watts_of(ask, need, power_unit)
        shadow, L, watts_then = _reserve(
            now, F, watts_free, ask, need, watts, spare[head], head, block, planned_s, due, placed,
            run_block, run_end, offset, node, units, power_unit, testing,
        )  # fmt: skip
        if shadow < 0:
            blocked += 1
    if testing is not None and testing.way == TURN:
        for k in range(testing.tests.shape[0]):
            if start[testing.tests[k]] == now:
                testing.bound_s[testing.tests[k]] = testing.test_s
    if shadow < 0:
        return packed(placed)
    start[head], reason[head] = shadow, _RESERVED
    held = place_next(nothing_placed(1), 0, L, capacity, ask, need, best_fit)
    change(L, ask, held.node[: held.offset[1]], held.units[: held.offset[1]], -1)
    watts_then -= watts
    if testing is not None and testing.way != LEFT:
        placed, watts_free, watts_then = _test(
            now, shadow, F, L, pool, watts_free, watts_then,
            capacity, block, best_fit, spare, power_unit, start, reason, placed, due, testing,
        )  # fmt: skip
    placed, watts_free, watts_then = _backfill(
        now, shadow, secondary, F, L, pool, watts_free, watts_then,
        capacity, block, planned_s, best_fit, spare, power_unit, start, reason, placed, due,
        testing,
    )  # fmt: skip
    if testing is not None and testing.way == LEFT:
        placed, watts_free, watts_then = _test(
            now, shadow, F, L, pool, watts_free, watts_then,
            capacity, block, best_fit, spare, power_unit, start, reason, placed, due, testing,
        )  # fmt: skip
    return packed(placed)
