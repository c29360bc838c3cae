"""Pooled capacities that every plan of some jobs keeps: what the lower bounds are computed from.

Each resource of all nodes, each resource of the nodes that some jobs are confined to, the number of
units of a shape that fit into what the nodes have free, bundles of units, the power cap.

References
----------
Fekete, Schepers, "New classes of fast lower bounds for bin packing problems", Mathematical
Programming 91, 2001: dual feasible functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.heuristics.schedule_input import Held, held_in, power_left
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable
from cpdispatch.terms import apart

SETS_MAX = 6
"""The most sets of nodes that are distinguished, the set of all nodes included."""
SHAPES_MAX = 12
"""Unit requests that are counted as shapes: those that ask for most in all."""
BUNDLES_MAX = 4
"""Sizes of bundles that are counted for each capacity."""
BUNDLES_FEW = 4
"""Bundles are counted where fewer than this fit at some time: what is cut off is large there."""
SUMS_MAX = 4096
"""Largest capacity of which all possible uses are enumerated."""


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """Families of jobs that share a capacity, one row each.

    In every plan on the nodes, at every instant and in every row, the demands of the jobs that run
    add up to no more than what is free.
    """

    name: tuple[str, ...]
    """What each capacity is."""
    since_s: IntArray
    """Ascending, shape (segments,); the first is the instance's ``now``.

    The last segment has no end.
    """
    free: IntArray
    """Free from ``since_s[k]`` until the next segment, shape (families, segments)."""
    demand: IntArray
    """What each job takes while it runs, in the same unit, shape (families, jobs); 0 of a capacity
    that it does not share.
    """

    def __len__(self) -> int:
        return len(self.name)

    def beside(self, fixed: BoolArray, start_s: IntArray, duration_s: IntArray) -> Families:
        """What is left beside jobs whose starts are known; they demand nothing then.

        Parameters
        ----------
        fixed : bool array, shape (jobs,)
        start_s, duration_s : int64 array, shape (jobs,)
        """
        if not fixed.any():
            return self
        begin_s = start_s[fixed]
        end_s = begin_s + duration_s[fixed]
        since_s = np.unique(np.concatenate((self.since_s, begin_s, end_s)))
        runs = (begin_s[:, None] <= since_s) & (since_s < end_s[:, None])
        free = self.free[:, np.searchsorted(self.since_s, since_s, side="right") - 1]
        free = np.maximum(free - self.demand[:, fixed] @ runs.astype(np.int64), 0)
        demand = np.where(fixed, 0, self.demand)
        name, free, demand = _short(list(self.name), free, demand)
        return Families(tuple(name), since_s, free, demand)


def families(instance: Instance, chosen: IntArray) -> Families:
    """The capacities that the jobs at these queue positions share and that can be short.

    Running jobs hold theirs until their planned end. Nodes that are down have none, and no node
    has less than none where a reservation and a job meet.

    Three kinds of demand and capacity, each valid for any placement of units on nodes:

    - A resource, of all nodes or of a set of them that some jobs cannot leave.
    - Units of a shape u. A node with ``free`` has room for ``min(free[r] // u[r])`` of them; a unit
      that asks for a counts ``min(a[r] // u[r])``, over the resources r that u has. Rounding down
      is superadditive, so the units that a node holds never count more than its room: a dual
      feasible function that sees all resources at once. What is free in pieces too small, or of
      another resource than the one that is short, does not count.
    - Bundles of k units, the same function once more: a job that takes d of a capacity c counts
      ``d // k`` of ``c // k``.

    Then each capacity is lowered to the largest sum of demands that it can hold.

    Parameters
    ----------
    chosen : int64 array, shape (jobs,)
        Jobs that fit the empty nodes in service.
    """
    taken = instance.queue.take(chosen)
    units, first = apart(instance.system, taken.block)
    jobs = taken.asking(units)
    if not jobs.request.any():
        none = np.empty((0, len(chosen)), dtype=np.int64)
        return Families((), np.array([instance.now]), np.empty((0, 1), dtype=np.int64), none)
    capacity = instance.system.capacity.copy()
    capacity[instance.down] = 0
    name, shape, where, among = _shapes(instance, capacity, jobs)
    counts = _demands(jobs.request, jobs.units, shape)
    if len(first):  # of a resource type alone
        counts += np.where(shape.sum(axis=1) == 1, shape.T, 0).T @ first
    demand = np.multiply(counts, among, order="C")
    held = held_in(instance)
    since, change, left = _changes(instance.now, held, capacity)
    free = _over_time(left, instance.system.group_of, shape, where, len(since), *change)
    if instance.power is not None:
        name.append("power")
        demand = np.vstack((demand, instance.job_power(taken)))
        free = np.vstack((free, power_left(instance.power, held, since)))
    _tighten(demand, free)
    name, free, demand = _short(name, free, demand)
    row, size = _bundles(demand, free)
    fewer, less = demand[row] // size[:, None], free[row] // size[:, None]
    _tighten(fewer, less)
    name += [f"{name[k]} by {n}" for k, n in zip(row.tolist(), size.tolist(), strict=True)]
    name, free, demand = _short(name, np.vstack((free, less)), np.vstack((demand, fewer)))
    return Families(tuple(name), since, free, demand)


def _shapes(
    instance: Instance, capacity: IntArray, jobs: JobTable
) -> tuple[list[str], IntArray, BoolArray, BoolArray]:
    """What is counted: names, shapes, on which groups of nodes, and which jobs are held to those.

    A resource alone is the shape of one unit of it. Bool arrays of shape (rows, groups) and
    (rows, jobs).
    """
    system, request = instance.system, np.maximum(jobs.request, 0)
    first, of = distinct(list(request.T))
    asked = request[first]
    usable = _usable_groups(instance, asked)
    share = (asked / np.maximum(capacity.max(axis=0), 1)).max(axis=1)
    work = np.bincount(of, jobs.units * jobs.planned_s.astype(np.float64), len(first)) * share
    by_work = np.argsort(-work, kind="stable").tolist()
    every = np.ones((1, len(system.groups)), dtype=np.bool_)
    sets = np.concatenate((every, usable[by_work]))
    sets = sets[np.sort(distinct(list(sets.T))[0])[:SETS_MAX]]
    units = np.eye(len(system.resources), dtype=np.int64)
    names, shapes, where = [], [], []
    for some in sets:
        there = "+".join(system.groups[group].name for group in np.nonzero(some)[0])
        for resource in np.nonzero(request.any(axis=0))[0].tolist():
            names.append(system.resources[resource] + ("" if some.all() else f" of {there}"))
            shapes.append(units[resource])
            where.append(some)
    for shape in _common(asked, by_work):
        parts = zip(shape.tolist(), system.resources, strict=True)
        names.append("units of " + " ".join(f"{n} {kind}" for n, kind in parts if n))
        shapes.append(shape)
        where.append(sets[0])
    on = np.array(where)
    outside = (usable[:, None, :] & ~on).any(axis=2)
    return names, np.array(shapes), on, ~outside[of].T


def _usable_groups(instance: Instance, asked: IntArray) -> BoolArray:
    """Which groups have a node in service that can hold a unit, shape (requests, groups)."""
    system = instance.system
    up = np.ones(system.nodes, dtype=np.bool_)
    up[instance.down] = False
    in_service = np.bincount(system.group_of, up, len(system.groups)) > 0
    empty = np.array([group.capacity for group in system.groups], dtype=np.int64)
    usable: BoolArray = (asked[:, None, :] <= empty).all(axis=2) & in_service
    return usable


def _common(asked: IntArray, by_work: list[int]) -> list[IntArray]:
    """Unit requests to count: the weightiest, and the least of those for the same resources."""
    shapes = [asked[k] for k in by_work[:SHAPES_MAX]]
    kinds = asked > 0
    first, of = distinct(list(kinds.T.astype(np.int64)))
    shapes += [asked[of == kind].min(axis=0) for kind in range(len(first))]
    at = {shape.tobytes(): shape for shape in shapes if shape.any()}
    return list(at.values())


def distinct(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Of the rows that these columns make: where each first one is, and which each row is like."""
    order = np.lexsort(columns)
    new = np.zeros(len(order), dtype=np.bool_)
    new[:1] = True
    for column in columns:
        here = column[order]
        new[1:] |= here[1:] != here[:-1]
    of = np.empty(len(order), dtype=np.int64)
    of[order] = np.cumsum(new) - 1
    return order[new], of


def _changes(
    now: int, held: Held, capacity: IntArray
) -> tuple[IntArray, tuple[IntArray, IntArray, IntArray], IntArray]:
    """The times at which free capacity changes, the changes, and what is free on each node now.

    A change is the segment, the node, and the amount of each resource. Free capacity may be below
    0 where a reservation and a job meet, and is never above 0 on a node that is down.
    """
    later, left = held.start_s > now, capacity.copy()
    np.subtract.at(left, held.node[~later], held.amount[~later])
    when = np.concatenate((held.start_s[later], held.end_s))
    where = np.concatenate((held.node[later], held.node))
    amount = np.concatenate((-held.amount[later], held.amount))
    since = np.unique(np.concatenate(([now], when, held.power_end_s)))
    order = np.lexsort((where, when))
    return since, (np.searchsorted(since, when[order]), where[order], amount[order]), left


def _short(
    name: list[str], free: IntArray, demand: IntArray
) -> tuple[list[str], IntArray, IntArray]:
    """The capacities of which there is not always enough for all jobs at once.

    Of those with the same demands, one is left that has the least of all.
    """
    at: dict[bytes, int] = {}
    for row in np.nonzero(demand.sum(axis=1) > free.min(axis=1))[0].tolist():
        first = at.setdefault(demand[row].tobytes(), row)
        np.minimum(free[first], free[row], out=free[first])
    rows = list(at.values())
    return [name[k] for k in rows], free[rows], demand[rows]


# ------------------------------------------------------------------------------- kernels


@kernel
def _room(free: IntArray, shape: IntArray) -> int:
    """How many units of a shape fit; none where less than nothing is free."""
    most = -1
    for r in range(shape.shape[0]):
        if shape[r] > 0:
            if free[r] < shape[r]:
                return 0
            here = free[r] // shape[r] if shape[r] > 1 else free[r]
            if most < 0 or here < most:
                most = here
    return most


@allocating
def _demands(request: IntArray, units: IntArray, shape: IntArray) -> IntArray:
    """What each job's units count in each shape, shape (rows, jobs)."""
    demand = np.empty((shape.shape[0], units.shape[0]), dtype=np.int64)
    for k in range(shape.shape[0]):
        for j in range(units.shape[0]):
            demand[k, j] = units[j] * _room(request[j], shape[k])
    return demand


@allocating
def _over_time(
    left: IntArray,
    group_of: IntArray,
    shape: IntArray,
    where: BoolArray,
    segments: int,
    segment: IntArray,
    node: IntArray,
    amount: IntArray,
) -> IntArray:
    """Room for each shape on its nodes in each segment, shape (rows, segments).

    ``left`` is changed in the course: only nodes on which something changes are looked at again.
    """
    rows = shape.shape[0]
    here = np.zeros((left.shape[0], rows), dtype=np.int64)
    total = np.zeros(rows, dtype=np.int64)
    free = np.empty((rows, segments), dtype=np.int64)
    for n in range(left.shape[0]):
        same = n > 0 and group_of[n] == group_of[n - 1]
        if same:
            for r in range(left.shape[1]):
                same = same and left[n, r] == left[n - 1, r]
        for k in range(rows):
            if same:
                here[n, k] = here[n - 1, k]
            elif where[k, group_of[n]]:
                here[n, k] = _room(left[n], shape[k])
            total[k] += here[n, k]
    e = 0
    for s in range(segments):
        while e < segment.shape[0] and segment[e] == s:
            n = node[e]
            for r in range(left.shape[1]):
                left[n, r] += amount[e, r]
            e += 1
            if e < segment.shape[0] and segment[e] == s and node[e] == n:
                continue
            for k in range(rows):
                if where[k, group_of[n]]:
                    total[k] -= here[n, k]
                    here[n, k] = _room(left[n], shape[k])
                    total[k] += here[n, k]
        for k in range(rows):
            free[k, s] = total[k]
    return free


@kernel
def _divisor(demand: IntArray) -> int:
    """Greatest common divisor of the demands; 0 when there are none."""
    divisor = 0
    for j in range(demand.shape[0]):
        a, b = divisor, demand[j]
        while b:
            a, b = b, a % b
        divisor = a
    return divisor


@allocating
def _usable(demand: IntArray, most: int) -> IntArray:
    """For each capacity up to ``most``, the largest sum of ascending demands that it can hold."""
    reached = np.zeros(most + 1, dtype=np.bool_)
    reached[0] = True
    j = 0
    while j < demand.shape[0]:
        value, equal = demand[j], 0
        while j < demand.shape[0] and demand[j] == value:
            equal += 1
            j += 1
        # So many equal ones as 1, 2, 4, ... at once.
        part = 1
        while equal > 0:
            step = min(part, equal) * value
            for v in range(most, step - 1, -1):
                if reached[v - step]:
                    reached[v] = True
            equal -= part
            part *= 2
    usable = np.empty(most + 1, dtype=np.int64)
    last = 0
    for v in range(most + 1):
        if reached[v]:
            last = v
        usable[v] = last
    return usable


@allocating
def _tighten(demand: IntArray, free: IntArray) -> None:
    """Divide each row by what all of its demands share; lower its capacity to what can be used."""
    for k in range(demand.shape[0]):
        divisor = _divisor(demand[k])
        if divisor == 0:
            continue
        for j in range(demand.shape[1]):
            demand[k, j] //= divisor
        for s in range(free.shape[1]):
            free[k, s] //= divisor
        ascending = np.sort(demand[k][demand[k] > 0])
        total, gapless = 0, True
        for value in ascending:
            gapless = gapless and value <= total + 1
            total += value
        most = min(free[k].max(), total)
        if not gapless and most <= SUMS_MAX:
            usable = _usable(ascending, most)
            for s in range(free.shape[1]):
                free[k, s] = usable[min(free[k, s], most)]


@allocating
def _bundles(demand: IntArray, free: IntArray) -> tuple[IntArray, IntArray]:
    """Rows and sizes of the bundles that are worth counting: large for what is free some time."""
    row = np.empty(demand.shape[0] * BUNDLES_MAX, dtype=np.int64)
    size = np.empty(demand.shape[0] * BUNDLES_MAX, dtype=np.int64)
    found = 0
    for k in range(demand.shape[0]):
        least, last, count = free[k].min(), 0, 0
        for value in np.sort(demand[k])[::-1]:
            if count == BUNDLES_MAX or value <= 1 or value * BUNDLES_FEW <= least:
                break
            if value != last:
                row[found], size[found] = k, value
                found += 1
                count += 1
            last = value
    return row[:found], size[:found]
