"""Compiled kernels: fitting and placing units on nodes, starting jobs in an order, and sorting.

Everything here works on plain arrays. A job's request is the vector ``ask``: one integer for each
resource type, 0 if a unit needs none. ``free`` is the free capacity, shape (nodes, resources). A
block of jobs is laid out as in `cpdispatch.jobs.Column`; its planned durations come beside it, see
`cpdispatch.jobs.JobTable.planned_s`.

Where jobs take something once, on their first nodes, ``ask`` is twice as long: after what a unit
asks for comes what is taken once, again one integer for each resource type. Of the nodes of a job,
the one that is named first is its first node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import allocating, inlined, kernel
from cpdispatch.jobs import REQUEST, UNITS


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


@inlined
def xorshift(state: np.uint64) -> np.uint64:
    """The next of Marsaglia's numbers of 64 bits: made without a product, which could overflow."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


# ------------------------------------------------------------------------- fitting and placing


@inlined
def room(free: IntArray, node: int, ask: IntArray, most: int) -> int:
    """How many units, ``most`` at most, fit on a node.

    A request below 0 says how many may share a node, see `cpdispatch.access.spread`.
    """
    for r in range(free.shape[1]):
        if ask[r] > 0:
            have = free[node, r]
            if have < ask[r]:
                return 0
            if most * ask[r] > have:
                most = have if ask[r] == 1 else have // ask[r]
        elif ask[r] < 0:
            most = min(most, -ask[r])
    return most


@inlined
def asks_once(ask: IntArray, resources: int) -> bool:
    """Whether a job takes something once."""
    for r in range(resources, ask.shape[0]):  # noqa: SIM110 - numba compiles no generators
        if ask[r] > 0:
            return True
    return False


@inlined
def in_all(ask: IntArray, units: int, r: int, resources: int) -> int:
    """What a job asks for of a resource type in all."""
    total: int = units * ask[r]
    if ask.shape[0] > resources:
        total += ask[resources + r]
    return total


@inlined
def room_on_first(free: IntArray, node: int, ask: IntArray, most: int) -> int:
    """How many units, ``most`` at most, fit on a node beside what the job takes once there."""
    resources = free.shape[1]
    for r in range(resources):
        have = free[node, r] - ask[resources + r]
        if have < 0 < ask[resources + r]:
            return 0
        if ask[r] > 0:
            if have < ask[r]:
                return 0
            if most * ask[r] > have:
                most = have // ask[r]
        elif ask[r] < 0:
            most = min(most, -ask[r])
    return most


@kernel
def rooms_with_first(free: IntArray, ask: IntArray, most: int) -> int:
    """How many units fit, ``most`` at most on each node, beside what the job takes once.

    That is on its first node, which has at least one of the units. 0 where no node can be that.
    """
    total, least = 0, -1
    for node in range(free.shape[0]):
        here = room(free, node, ask, most)
        total += here
        if here > 0:
            on_first = room_on_first(free, node, ask, most)
            if on_first > 0 and (least < 0 or here - on_first < least):
                least = here - on_first
    return total - least if least >= 0 else 0


@kernel
def fits(free: IntArray, ask: IntArray, units: int) -> bool:
    """Whether all units of a job find room."""
    if asks_once(ask, free.shape[1]):
        return bool(rooms_with_first(free, ask, units) >= units)
    left = units
    for node in range(free.shape[0]):
        left -= room(free, node, ask, left)
        if left == 0:
            return True
    return False


@kernel
def pool_has(pool: IntArray, ask: IntArray, units: int) -> bool:
    """Whether the pooled capacity is enough: a quick necessary condition for `fits`."""
    for r in range(pool.shape[0]):  # noqa: SIM110 - numba compiles no generators
        if in_all(ask, units, r, pool.shape[0]) > pool[r]:
            return False
    return True


@kernel
def fullness(free: IntArray, counted: IntArray, node: int) -> float:
    """Sum over the resource types that a node has of free / capacity: small when it is full.

    ``counted`` is the capacity, see `cpdispatch.system.System`.
    """
    total = 0.0
    for r in range(free.shape[1]):
        if counted[node, r] > 0:
            total += free[node, r] / counted[node, r]
    return total


@kernel
def _first_node(
    free: IntArray, counted: IntArray, ask: IntArray, units: int, best_fit: bool
) -> int:
    """The first node of a job that `fits` and takes something once, see `choose`."""
    total = 0
    for node in range(free.shape[0]):
        total += room(free, node, ask, units)
    found, least = -1, np.inf
    for node in range(free.shape[0]):
        on_first = room_on_first(free, node, ask, units)
        if on_first > 0 and total - room(free, node, ask, units) + on_first >= units:
            if not best_fit:
                return node
            score = fullness(free, counted, node)
            if score < least:
                found, least = node, score
    return found


@kernel
def _choose_with_first(
    free: IntArray, counted: IntArray, ask: IntArray, units: int, best_fit: bool,
    score: FloatArray, node_out: IntArray, units_out: IntArray,
) -> int:  # fmt: skip
    """`choose` for a job that takes something once."""
    nodes, first = free.shape[0], _first_node(free, counted, ask, units, best_fit)
    node_out[0], units_out[0] = first, room_on_first(free, first, ask, units)
    left, count = units - units_out[0], 1
    if best_fit:
        for node in range(nodes):
            usable = node != first and room(free, node, ask, 1) > 0
            score[node] = fullness(free, counted, node) if usable else np.inf
    node = 0
    while left > 0:
        if best_fit:
            node = int(np.argmin(score))
            score[node] = np.inf
        here = 0 if node == first else room(free, node, ask, left)
        if here > 0:
            node_out[count], units_out[count] = node, here
            count += 1
            left -= here
        node += 1
    return count


@kernel
def choose(
    free: IntArray,
    counted: IntArray,
    ask: IntArray,
    units: int,
    best_fit: bool,
    score: FloatArray,
    node_out: IntArray,
    units_out: IntArray,
) -> int:
    """Choose nodes for a job that `fits`; return how many entries were written.

    First fit takes nodes by index. Best fit takes the fullest feasible node first, ties by index,
    and as many units there as fit; the fullness of the other nodes does not change by that, and
    neither does their order. It writes over ``score``, shape (nodes,).

    Of a job that takes something once, the first node is chosen first, in the same order, of those
    that leave room for the rest.
    """
    if asks_once(ask, free.shape[1]):
        return _choose_with_first(free, counted, ask, units, best_fit, score, node_out, units_out)
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
    for node in range(nodes):
        score[node] = fullness(free, counted, node) if room(free, node, ask, 1) else np.inf
    while left > 0:
        node = int(np.argmin(score))
        here = room(free, node, ask, left)
        node_out[count], units_out[count] = node, here
        count += 1
        left -= here
        score[node] = np.inf
    return count


@allocating
def place(
    free: IntArray,
    counted: IntArray,
    ask: IntArray,
    units: int,
    best_fit: bool,
    node_out: IntArray,
    units_out: IntArray,
) -> int:
    """Choose nodes for a job as `choose` does."""
    score = np.empty(free.shape[0] if best_fit else 0)
    return choose(free, counted, ask, units, best_fit, score, node_out, units_out)


@kernel
def change(free: IntArray, ask: IntArray, node: IntArray, units: IntArray, sign: int) -> None:
    """Give back (sign 1) or take (sign -1) the capacity of some entries."""
    resources = free.shape[1]
    for k in range(node.shape[0]):
        for r in range(resources):
            free[node[k], r] += sign * units[k] * ask[r]
    if ask.shape[0] > resources and node.shape[0] > 0:
        for r in range(resources):
            free[node[0], r] += sign * ask[resources + r]


@kernel
def watts_of(ask: IntArray, units: int, power_unit: IntArray) -> int:
    """Watts that a job draws."""
    total = 0
    for r in range(power_unit.shape[0]):
        total += in_all(ask, units, r, power_unit.shape[0]) * power_unit[r]
    return total


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
    counted: IntArray,
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
    entries = place(free, counted, ask, units, best, node[low:], units_at[low:])
    placed.position[count] = job
    placed.offset[count + 1] = low + entries
    return Placed(count + 1, placed.position, placed.offset, node, units_at)


@allocating
def ascending(values: IntArray | FloatArray) -> IntArray:
    """Positions of values from the least on, equal ones as they come.

    numba keeps no sort of its own: each process that compiles a function with one in it would
    compile that one, too.
    """
    return np.argsort(values, kind="mergesort")


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


@kernel
def is_home_free(usable: IntArray, ask: IntArray, homes: Homes, job: int) -> bool:
    """Whether a job has just been stopped and its nodes still have room for it."""
    if homes.of.shape[0] == 0 or homes.of[job] < 0:
        return False
    for e in range(homes.offset[homes.of[job]], homes.offset[homes.of[job] + 1]):
        for r in range(usable.shape[1]):
            if homes.units[e] * ask[r] > max(usable[homes.node[e], r], 0):
                return False
    return True


@kernel
def go_home(job: int, homes: Homes, node_out: IntArray, units_out: IntArray) -> int:
    """Choose its own nodes for a job that was stopped; return how many entries were written."""
    first = homes.offset[homes.of[job]]
    entries = homes.offset[homes.of[job] + 1] - first
    for e in range(entries):
        node_out[e], units_out[e] = homes.node[first + e], homes.units[first + e]
    return int(entries)


@allocating
def place_at_home(placed: Placed, job: int, homes: Homes) -> Placed:
    """Place a job that has just been stopped on its own nodes."""
    first, low = homes.offset[homes.of[job]], placed.offset[placed.jobs]
    entries = homes.offset[homes.of[job] + 1] - first
    node, units_at = placed.node, placed.units
    if low + entries > node.shape[0]:
        node, units_at = _grown(node, 2 * (low + entries)), _grown(units_at, 2 * (low + entries))
    go_home(job, homes, node[low:], units_at[low:])
    placed.position[placed.jobs] = job
    placed.offset[placed.jobs + 1] = low + entries
    return Placed(placed.jobs + 1, placed.position, placed.offset, node, units_at)


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
    _pass_changes(level, usable, 0, until, change_s, change_node, change_capacity)
    return usable


@kernel
def _pass_changes(
    level: IntArray,
    usable: IntArray,
    first: int,
    until: int,
    change_s: IntArray,
    change_node: IntArray,
    change_capacity: IntArray,
) -> int:
    """Go through the changes from the ``first`` one to an instant; the first one after that.

    ``level`` is what is free then, ``usable`` what was free at every instant up to then.
    """
    while first < change_s.shape[0] and change_s[first] < until:
        last = first
        while last < change_s.shape[0] and change_s[last] == change_s[first]:
            for r in range(level.shape[1]):
                level[change_node[last], r] += change_capacity[last, r]
            last += 1
        for k in range(first, last):
            node = change_node[k]
            for r in range(level.shape[1]):
                usable[node, r] = max(min(usable[node, r], level[node, r]), 0)
        first = last
    return first


@allocating
def greedy(
    now: int,
    free: IntArray,
    counted: IntArray,
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
        ask, units = block[REQUEST:, j], block[UNITS, j]
        watts = watts_of(ask, units, power_unit)
        if watts > watts_free or not pool_has(pool, ask, units):
            continue
        until = now + planned_s[j]
        usable = usable_for(F, until, change_s, change_node, change_capacity)
        if fits(usable, ask, units):
            placed = place_next(placed, j, usable, counted, ask, units, best_fit)
            low, high = placed.offset[placed.jobs - 1], placed.offset[placed.jobs]
            change(F, ask, placed.node[low:high], placed.units[low:high], -1)
            for r in range(pool.shape[0]):
                pool[r] -= in_all(ask, units, r, pool.shape[0])
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
    pool, level, usable, first = _pool(free), free.copy(), free.copy(), 0
    by_duration = ascending(planned_s)
    for k in range(by_duration.shape[0]):
        j = by_duration[k]
        ask, units = block[REQUEST:, j], block[UNITS, j]
        if pool_has(pool, ask, units) and watts_of(ask, units, power_unit) <= watts_free:
            until = now + planned_s[j]
            first = _pass_changes(
                level, usable, first, until, change_s, change_node, change_capacity
            )
            answer[j] = fits(usable, ask, units)
    return answer
