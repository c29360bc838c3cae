"""Lower bounds of the weighted sum of the starts, over all plans of some jobs on the nodes.

A plan of the nodes keeps many pooled capacities at every instant: each resource of all nodes, each
resource of the nodes that some jobs are confined to, the number of units of a shape that fit into
what the nodes have free, the power cap. `families` collects them; from these alone, `area` bounds
the weighted sum in closed form and `priced` by prices of the capacities over time.

All of it holds for every plan: any set of capacities, of jobs or of prices gives a valid bound, and
rounding is paid for (see `_gain` and `_slip`). What is chosen well only makes the bound better.

References
----------
Eastman, Even, Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", Management
Science 11, 1964. Goemans, "Improved approximation algorithms for scheduling with release dates",
SODA 1997: mean busy times. Fekete, Schepers, "New classes of fast lower bounds for bin packing
problems", Mathematical Programming 91, 2001: dual feasible functions. Van den Akker, Hurkens,
Savelsbergh, "Time-indexed formulations for machine scheduling problems: column generation",
INFORMS Journal on Computing 12, 2000. Held, Wolfe, Crowder, "Validation of subgradient
optimization", Mathematical Programming 6, 1974.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import kernel
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable
from cpdispatch.models.objective import Weights

BoolArray: TypeAlias = NDArray[np.bool_]

SETS_MAX = 6
"""Sets of nodes that are told apart, all of them together included."""
SHAPES_MAX = 12
"""Unit requests that are counted as shapes: those that ask for most in all."""
BUNDLES_MAX = 4
"""Sizes of bundles that are counted for each capacity."""
BUNDLES_FEW = 4
"""Bundles are counted where fewer than this fit at some time: what is cut off is large there."""
SUMS_MAX = 4096
"""Largest capacity of which all possible uses are enumerated."""
PARTS_MAX = 3
"""Disjoint sets of jobs whose bounds are added up."""
CELLS = 64
"""Intervals of time that have a price each."""
ROUNDS = 100
"""Rounds in which the prices are improved: most of the way to the best ones."""
FOREVER_S = 2**62
"""A start that no plan reaches, seconds."""

_TIME_MAX = 2.0**50  # times below are exact as doubles, with a bit to spare
_EXACT_MAX = 2**53
_EPSILON = 2.0**-52  # twice the largest relative error of one rounding

# -------------------------------------------------------------------------- pooled capacities


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """Families of jobs that share a capacity, one row each.

    In every plan on the nodes, at every instant and in every row, the demands of the jobs that run
    add up to no more than what is free.

    Attributes
    ----------
    name : tuple of str
        What each capacity is.
    since_s : int64 array, shape (segments,)
        Ascending; the first is the instance's ``now``. The last segment has no end.
    free : int64 array, shape (families, segments)
        Free from ``since_s[k]`` until the next segment.
    demand : int64 array, shape (families, jobs)
        What each job takes while it runs, in the same unit; 0 of a capacity that it does not share.
    """

    name: tuple[str, ...]
    since_s: IntArray
    free: IntArray
    demand: IntArray

    def __len__(self) -> int:
        return len(self.name)

    def take(self, rows: Sequence[int]) -> Families:
        """Some of the families."""
        some = np.array(rows, dtype=np.int64)
        names = tuple(self.name[k] for k in rows)
        return Families(names, self.since_s, self.free[some], self.demand[some])


def families(instance: Instance, chosen: IntArray, without: BoolArray | None = None) -> Families:
    """The capacities that the jobs at these queue positions share and that can be short.

    Running jobs hold theirs until their expected end. Nodes that are down have none, and no node
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
    without : bool array, shape (running,), optional
        Running jobs to be taken as ended.
    """
    if len(chosen) == 0:
        none = np.empty((0, 0), dtype=np.int64)
        return Families((), np.array([instance.now]), none.reshape(0, 1), none)
    jobs = instance.queue.take(chosen)
    capacity = instance.system.capacity.copy()
    capacity[instance.down] = 0
    name, shape, where, among = _shapes(instance, capacity, jobs)
    demand = np.multiply(_demands(jobs.request, jobs.units, shape), among, order="C")
    since, change, left = _changes(instance, capacity, without)
    free = _over_time(left, instance.system.group_of, shape, where, len(since), *change)
    if instance.power is not None:
        name.append("power")
        demand = np.vstack((demand, instance.job_power(jobs)))
        free = np.vstack((free, _power_over_time(instance, since, without)))
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
    system, request = instance.system, jobs.request
    first, of = _distinct(list(request.T))
    asked = request[first]
    usable = _usable_groups(instance, asked)
    share = (asked / np.maximum(capacity.max(axis=0), 1)).max(axis=1)
    work = np.bincount(of, jobs.units * jobs.expected_s.astype(np.float64), len(first)) * share
    by_work = np.argsort(-work, kind="stable").tolist()
    every = np.ones((1, len(system.groups)), dtype=np.bool_)
    sets = np.concatenate((every, usable[by_work]))
    sets = sets[np.sort(_distinct(list(sets.T))[0])[:SETS_MAX]]
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
    first, of = _distinct(list(kinds.T.astype(np.int64)))
    shapes += [asked[of == kind].min(axis=0) for kind in range(len(first))]
    at = {shape.tobytes(): shape for shape in shapes}
    return list(at.values())


def _distinct(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
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
    instance: Instance, capacity: IntArray, without: BoolArray | None
) -> tuple[IntArray, tuple[IntArray, IntArray, IntArray], IntArray]:
    """When what is free changes, the changes in order, and what is left on each node now.

    A change is the segment, the node, and the amount of each resource. What is left may be below
    0 where a reservation and a job meet, and is never above 0 on a node that is down.
    """
    running, now = instance.running, instance.now
    counted = np.ones(len(running), dtype=np.bool_) if without is None else ~without
    owner = np.repeat(np.arange(len(running)), np.diff(running.offset))
    some = counted[owner]
    owner, node = owner[some], running.node[some]
    amount = running.jobs.request[owner] * running.units[some, None]
    left = capacity.copy()
    np.subtract.at(left, node, amount)
    times, nodes, amounts = [running.end_s[owner]], [node], [amount]
    for reservation in instance.reservations:
        at = np.array(reservation.nodes, dtype=np.int64)
        held = np.repeat(np.array([reservation.capacity], dtype=np.int64), len(at), axis=0)
        for time, back in ((reservation.start_s, -held), (reservation.end_s, held)):
            if time <= now:
                left[at] += back
            else:
                times.append(np.full(len(at), time))
                nodes.append(at)
                amounts.append(back)
    when, where = np.concatenate(times), np.concatenate(nodes)
    since = np.unique(np.concatenate(([now], when, running.end_s[counted])))
    order = np.lexsort((where, when))
    segment = np.searchsorted(since, when[order])
    return since, (segment, where[order], np.concatenate(amounts)[order]), left


def _power_over_time(instance: Instance, since: IntArray, without: BoolArray | None) -> IntArray:
    """Watts left under the cap in each segment, not below 0."""
    assert instance.power is not None
    running = instance.running
    draws = instance.job_power(running.jobs)
    if without is not None:
        draws = np.where(without, 0, draws)
    last = len(since) - 1
    back = np.zeros(len(since), dtype=np.int64)
    np.add.at(back, np.minimum(np.searchsorted(since, running.end_s), last), draws)
    left: IntArray = instance.power.cap - draws.sum() + np.cumsum(back)
    return np.maximum(left, 0)


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


# ---------------------------------------------------------------------------- the bounds


def per_job(weights: Weights, free_until_s: IntArray, earliest_s: IntArray) -> int:
    """The sum when every job starts as early as it could alone.

    Parameters
    ----------
    free_until_s, earliest_s : int64 array, shape (jobs,)
        The latest start of each job that costs nothing; its earliest start.
    """
    late_s = np.maximum(earliest_s - free_until_s, 0)
    if float(weights.per_s.astype(np.float64) @ late_s.astype(np.float64)) < FOREVER_S:
        return int((weights.per_s * late_s).sum())
    return sum(w * t for w, t in zip(weights.per_s.tolist(), late_s.tolist(), strict=True))


def area(
    families: Families,
    jobs: JobTable,
    weights: Weights,
    free_until_s: IntArray,
    earliest_s: IntArray,
) -> int:
    """Lower bound of ``sum(per_s * max(0, start - free_until_s))`` by mean busy times.

    A job that takes D of a capacity for d seconds from s on uses it at ``s + d / 2`` in the mean.
    Let the jobs of a family use it as a fluid: at any rate, with interruptions, not before their
    earliest starts. The weighted sum of the mean times of use is then least when, at every
    instant, all that is free goes to the job with the largest weight for its area, ``w / (D d)``,
    of those released and not done; so ``sum(w s)`` is no less than that minus ``sum(w d / 2)``.

    A term ``w (s - free_until_s)`` may fall below 0, the cost does not: such jobs are left out of
    their family and pay for their earliest start, as all jobs outside the family do. Bounds of
    families without a common job add up: the best one, then the best for the jobs it leaves.

    Parameters
    ----------
    families : Families
        Of these jobs.
    jobs : JobTable
    weights : Weights
    free_until_s : int64 array, shape (jobs,)
        The latest start of each job that costs nothing.
    earliest_s : int64 array, shape (jobs,)
        A time before which no plan starts the job.

    Returns
    -------
    int
        Never less than `per_job`.

    References
    ----------
    Eastman, Even, Isaacs 1964; Goemans 1997, lemma 2: see the module.
    """
    classes, _ = _classes(families, jobs, weights, free_until_s, earliest_s)
    parts = _partition(families, classes)
    least = per_job(weights, free_until_s, earliest_s)
    return least + sum(_up(part.gain) for part in parts)


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """What prices of the capacities say of all plans.

    Attributes
    ----------
    sum : int
        No plan has a smaller weighted sum.
    latest_s : int64 array, shape (jobs,)
        A plan whose weighted sum is ``upper`` or less starts no job later.
    start_s : int64 array, shape (jobs,)
        Where the prices would have the jobs start, in the mean of all rounds: an order of the jobs
        that is worth a try.
    """

    sum: int
    latest_s: IntArray
    start_s: IntArray


def priced(
    families: Families,
    jobs: JobTable,
    weights: Weights,
    free_until_s: IntArray,
    earliest_s: IntArray,
    upper: int,
    rounds: int = ROUNDS,
) -> Priced:
    """Lower bound of the weighted sum by prices, all families at once; `area` if that is larger.

    Let every job pay for what it takes of each capacity at each instant, and give back what all
    that is free is worth. At prices of 0 or more no plan gains by that, so no plan has a smaller
    sum than when each job chooses its start by itself, for the least of cost and price. Prices
    are raised where the jobs then want more than there is and lowered where they want less; they
    begin as those of the fluid of `area`, and change at `CELLS` times only, which lie where those
    fall. The best prices give the bound of the time-indexed linear program on these capacities.

    A job that starts so late that it alone exceeds its least cost by more than the bound lies below
    ``upper`` is in no plan that good.

    Parameters
    ----------
    families, jobs, weights, free_until_s, earliest_s
        As for `area`.
    upper : int
        Weighted sum of a known plan.
    rounds : int
        How often the prices are changed; each time costs 1 to 2 microseconds a class of like jobs.

    References
    ----------
    Van den Akker, Hurkens, Savelsbergh 2000; Held, Wolfe, Crowder 1974: see the module.
    """
    least = per_job(weights, free_until_s, earliest_s)
    classes, of = _classes(families, jobs, weights, free_until_s, earliest_s)
    parts = _partition(families, classes)
    closed = least + sum(_up(part.gain) for part in parts)
    unknown = Priced(closed, np.full(len(of), FOREVER_S), earliest_s)
    if len(families) == 0:
        return unknown
    lines = _lines(families, classes, parts)
    grid = _grid(families, classes, parts, lines)
    if grid[-1] > _TIME_MAX:
        return unknown
    now = int(families.since_s[0])
    supply = _supply(_from_now(families), _not_below(families.free), grid)
    first = _first_prices(families, parts, lines, grid)
    prices, start = _climb(grid, supply, first, classes, float(upper - least), rounds)
    value, slip = _value(grid, supply, prices, classes)
    slack = max(float(upper - least) - value, 0.0) + 4 * slip
    latest = _latest(grid, prices, classes, slack)
    latest_s = np.minimum(np.floor(latest * (1 + _EPSILON) + 1e-6), FOREVER_S - abs(now))
    return Priced(
        max(closed, least + _up(value - slip)),
        np.maximum(latest_s.astype(np.int64)[of] + now, earliest_s),
        np.rint(start).astype(np.int64)[of] + now,
    )


def _up(gain: float) -> int:
    """A bound of an integer, from one that is none."""
    return max(int(np.ceil(gain)), 0)


# -------------------------------------------------------------------------- classes of like jobs


class _Classes(NamedTuple):
    """Jobs that are alike in all that counts, as one. Times are seconds from now; all exact."""

    demand: FloatArray
    """Of one job, shape (families, classes); the rest have shape (classes,)."""
    duration: FloatArray
    weight: FloatArray
    """Of one job."""
    release: FloatArray
    free_until: FloatArray
    """Not before the release: what a job pays at its release already is added elsewhere."""
    jobs: FloatArray
    """How many there are."""


def _classes(
    families: Families,
    jobs: JobTable,
    weights: Weights,
    free_until_s: IntArray,
    earliest_s: IntArray,
) -> tuple[_Classes, IntArray]:
    """The classes, and which one each job belongs to."""
    release = np.maximum(earliest_s - families.since_s[0], 0)
    free_until = np.maximum(free_until_s - families.since_s[0], release)
    facts = [jobs.expected_s, weights.per_s, release, free_until]
    first, of = _distinct([*jobs.request.T, jobs.units, *facts])
    demand = families.demand[:, first].astype(np.float64)
    duration, weight, begins, ends = (fact[first].astype(np.float64) for fact in facts)
    number = np.bincount(of, minlength=len(first)).astype(np.float64)
    return _Classes(demand, duration, weight, begins, ends, number), of


def _from_now(families: Families) -> FloatArray:
    since: FloatArray = (families.since_s - families.since_s[0]).astype(np.float64)
    return since


def _not_below(free: IntArray) -> FloatArray:
    """Capacities as doubles, none of them less."""
    nearest = free.astype(np.float64)
    if free.size and free.max() > _EXACT_MAX:
        nearest = np.nextafter(nearest, np.inf)
    return nearest


# ----------------------------------------------------------------------- areas and mean busy times


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A family, the classes of jobs that it bounds, and by how much in all."""

    row: int
    taken: BoolArray
    gain: float


def _partition(families: Families, classes: _Classes) -> list[_Part]:
    """Families without a common job, each the best one for the jobs that are left."""
    since, free = _from_now(families), _not_below(families.free)
    left = np.ones(len(classes.jobs), dtype=np.bool_)
    parts: list[_Part] = []
    while len(parts) < PARTS_MAX and left.any():
        row, gain, taken = _best_family(since, free, classes, left)
        if gain <= 0:
            break
        parts.append(_Part(int(row), taken, float(gain)))
        left &= ~taken
    return parts


def _lines(families: Families, classes: _Classes, parts: list[_Part]) -> list[_Line]:
    """What the fluid of each part would pay over time."""
    since, free = _from_now(families), _not_below(families.free)
    return [_line(since, free[part.row], classes, part.row, part.taken) for part in parts]


def _first_prices(
    families: Families, parts: list[_Part], lines: list[_Line], grid: FloatArray
) -> FloatArray:
    """What the fluids would pay, in the mean of each cell; shape (families, cells)."""
    prices = np.zeros((len(families), len(grid) - 1))
    for part, line in zip(parts, lines, strict=True):
        prices[part.row] += _mean(grid, line)
    return prices


def _grid(
    families: Families, classes: _Classes, parts: list[_Part], lines: list[_Line]
) -> FloatArray:
    """Times at which prices may change, whole seconds from now; the first is 0.

    A price that falls at the rate p where c is free loses about ``c p`` times the square of a
    cell's width by being constant in it, so half of the cells are laid out evenly by the integral
    of ``sqrt(c p)``; the other half by the logarithm of time.
    """
    since = _from_now(families)
    served = max([float(since[-1])] + [float(line.end[-1]) for line in lines])
    end = np.ceil(served + classes.duration.max())
    scale = classes.duration.min() / 4
    sides = [side for line in lines for side in (line.begin, line.end)]
    evenly = np.geomspace(scale, end, 2 * CELLS)
    times = np.unique(np.concatenate(([0.0, end], evenly, since[since < end], *sides)))
    middle, width = (times[1:] + times[:-1]) / 2, np.diff(times)
    loss = np.zeros(len(width))
    for part, line in zip(parts, lines, strict=True):
        free = families.free[part.row][np.searchsorted(since, middle, side="right") - 1]
        loss += np.sqrt(_fall(line, middle) * free) * width
    share = np.diff(np.log(times + scale))
    share /= share.sum()
    if loss.any():
        share += loss / loss.sum()
    passed = np.append(0.0, np.cumsum(share))
    cuts = np.interp(np.linspace(0.0, passed[-1], CELLS + 1), passed, times)
    return np.unique(np.append(np.rint(cuts), (0.0, end)))


class _Line(NamedTuple):
    """A price over time, in pieces in which it falls evenly; 0 outside them."""

    begin: FloatArray
    end: FloatArray
    high: FloatArray
    low: FloatArray


def _fall(line: _Line, times: FloatArray) -> FloatArray:
    """How fast a price falls at some times, for each second."""
    piece = np.minimum(np.searchsorted(line.end, times), len(line.end) - 1)
    length = line.end[piece] - line.begin[piece]
    within = (line.begin[piece] <= times) & (times <= line.end[piece]) & (length > 0)
    drop = line.high[piece] - line.low[piece]
    return np.where(within, drop / np.where(within, length, 1.0), 0.0)


# ---------------------------------------------------------------------- kernels: pooled capacities


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


@kernel
def _demands(request: IntArray, units: IntArray, shape: IntArray) -> IntArray:
    """What each job's units count in each shape, shape (rows, jobs)."""
    demand = np.empty((shape.shape[0], units.shape[0]), dtype=np.int64)
    for k in range(shape.shape[0]):
        for j in range(units.shape[0]):
            demand[k, j] = units[j] * _room(request[j], shape[k])
    return demand


@kernel
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
        if n > 0 and group_of[n] == group_of[n - 1] and (left[n] == left[n - 1]).all():
            here[n] = here[n - 1]
        else:
            for k in range(rows):
                if where[k, group_of[n]]:
                    here[n, k] = _room(left[n], shape[k])
        total += here[n]
    e = 0
    for s in range(segments):
        while e < segment.shape[0] and segment[e] == s:
            n = node[e]
            left[n] += amount[e]
            e += 1
            if e < segment.shape[0] and segment[e] == s and node[e] == n:
                continue
            for k in range(rows):
                if where[k, group_of[n]]:
                    total[k] -= here[n, k]
                    here[n, k] = _room(left[n], shape[k])
                    total[k] += here[n, k]
        free[:, s] = total
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


@kernel
def _usable(demand: IntArray, most: int) -> IntArray:
    """For each capacity up to ``most``, the largest sum of demands that it can hold.

    Parameters
    ----------
    demand : int64 array
        Ascending, 1 or more each.
    """
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


@kernel
def _tighten(demand: IntArray, free: IntArray) -> None:
    """Divide each row by what all of its demands share; lower its capacity to what can be used."""
    for k in range(demand.shape[0]):
        divisor = _divisor(demand[k])
        if divisor == 0:
            continue
        demand[k] //= divisor
        free[k] //= divisor
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


@kernel
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


# ---------------------------------------------------------------- kernels: areas, mean busy times


class _Fluid(NamedTuple):
    """A family's jobs as a fluid; times in ticks, a power of two of which make a second.

    Ticks are whole and below 2^51: sums and differences of times have no error.
    """

    since: FloatArray
    free: FloatArray
    tick: float
    """Ticks in a second."""
    member: IntArray
    """Class of each of the fluid's jobs."""
    area: FloatArray
    ratio: FloatArray
    """Weight for the area of one job in seconds."""
    release: FloatArray


class _Run(NamedTuple):
    """What a fluid does: pieces of time, the job that each goes to, and each job's cost."""

    begin: FloatArray
    end: FloatArray
    job: IntArray
    cost: FloatArray
    """Weight times mean busy time, twice, in ticks; shape (jobs,)."""


@kernel
def _fluid(
    since: FloatArray, free: FloatArray, classes: _Classes, row: int, on: BoolArray
) -> _Fluid:
    """The fluid of some classes of jobs in a family; without jobs when time would be too long."""
    demand = classes.demand[row]
    some = on & (demand > 0) & (classes.weight > 0)
    (member,) = np.nonzero(some)
    area = demand[member] * classes.duration[member]
    ratio = classes.weight[member] / area
    area *= classes.jobs[member]
    release = classes.release[member]
    end = _TIME_MAX
    if member.shape[0] > 0 and free[-1] > 0:
        end = max(since[-1], release.max()) + area.sum() / free[-1]
    if not end < _TIME_MAX:
        member = member[:0]
    tick = 2.0 ** np.floor(50.0 - np.log2(end + 1.0))
    return _Fluid(since * tick, free, tick, member, area * tick, ratio, release * tick)


@kernel
def _flow(fluid: _Fluid) -> _Run:
    """At every instant all that is free goes to the released job with the largest ratio.

    Rounding: each job is first given less area than it has by more than all roundings of what is
    left of it together, and the part of a tick at its end is dropped. What is processed is then
    no more than its area, and the cost of a fluid with less to process is no larger.
    """
    jobs, segments = fluid.member.shape[0], fluid.since.shape[0]
    left = fluid.area * (1.0 - 4.0 * (2 * jobs + segments) * _EPSILON)
    by_ratio = np.argsort(-fluid.ratio[:jobs])
    by_release = np.argsort(fluid.release[:jobs])
    rank = np.empty(jobs, dtype=np.int64)
    rank[by_ratio] = np.arange(jobs)
    size = 2 * jobs + segments
    begin, end = np.empty(size), np.empty(size)
    job = np.empty(size, dtype=np.int64)
    cost = np.zeros(jobs)
    ready = [0 for _ in range(0)]
    pieces, k, coming, time = 0, 0, 0, 0.0
    while True:
        while coming < jobs and fluid.release[by_release[coming]] <= time:
            heapq.heappush(ready, rank[by_release[coming]])
            coming += 1
        if len(ready) == 0:
            if coming == jobs:
                return _Run(begin[:pieces], end[:pieces], job[:pieces], cost)
            time = fluid.release[by_release[coming]]
        else:
            until = np.inf
            if coming < jobs:
                until = fluid.release[by_release[coming]]
            if k + 1 < segments:
                until = min(until, fluid.since[k + 1])
            if fluid.free[k] > 0:
                j = by_ratio[ready[0]]
                done = time + np.floor(left[j] / fluid.free[k])
                if done <= until:
                    until = done
                    heapq.heappop(ready)
                else:
                    left[j] -= fluid.free[k] * (until - time)
                cost[j] += fluid.ratio[j] * (fluid.free[k] * ((until - time) * (time + until)))
                begin[pieces], end[pieces], job[pieces] = time, until, j
                pieces += 1
            time = until
        while k + 1 < segments and fluid.since[k + 1] <= time:
            k += 1


@kernel
def _gain(
    since: FloatArray,
    free: FloatArray,
    classes: _Classes,
    row: int,
    on: BoolArray,
    enough: float,
    taken: BoolArray,
) -> float:
    """By how much a family raises the sum over what its jobs pay at their releases.

    Without classes whose terms are below 0: what is left of the others' terms by that is no more
    than it was, so their sum now says whether it can be ``enough``. The classes that count are
    marked in ``taken``.

    Rounding: every summand of a cost is 0 or more and has a few roundings, as has the sum; so has
    what is taken from it. Both are charged more than that.
    """
    best, some = 0.0, on.copy()
    while True:
        fluid = _fluid(since, free, classes, row, some)
        run = _flow(fluid)
        jobs = fluid.member.shape[0]
        to_s = 0.5 / fluid.tick / fluid.tick
        gain, size, hopeful, dropped = 0.0, 0.0, 0.0, False
        for i in range(jobs):
            j = fluid.member[i]
            weight = classes.weight[j] * classes.jobs[j]
            used = run.cost[i] * to_s
            paid = weight * (classes.duration[j] / 2 + classes.free_until[j])
            gain += used - paid
            size += used + paid
            if used > paid:
                hopeful += used - paid
            else:
                some[j] = False
                dropped = True
        gain -= (run.begin.shape[0] + jobs + 32) * _EPSILON * size
        if gain > best:
            best = gain
            taken[:] = False
            taken[fluid.member] = True
        if not dropped or hopeful <= max(best, enough):
            return best


@kernel
def _best_family(
    since: FloatArray, free: FloatArray, classes: _Classes, on: BoolArray
) -> tuple[int, float, BoolArray]:
    """The family with the largest gain, that gain, and the classes that it counts."""
    best, gain = 0, 0.0
    taken, best_taken = np.zeros_like(on), np.zeros_like(on)
    for row in range(free.shape[0]):
        here = _gain(since, free[row], classes, row, on, gain, taken)
        if here > gain:
            best, gain = row, here
            best_taken[:] = taken
    return best, gain, best_taken


@kernel
def _line(since: FloatArray, free: FloatArray, classes: _Classes, row: int, on: BoolArray) -> _Line:
    """The price of a family's capacity at which its fluid is what every job would choose.

    While a job is served the price falls by the job's ratio a second, to 0 at the end or where
    nothing is left to serve; it is the same line whenever the job is served.
    """
    fluid = _fluid(since, free, classes, row, on)
    run = _flow(fluid)
    pieces = run.begin.shape[0]
    begin, end = run.begin / fluid.tick, run.end / fluid.tick
    high, low = np.empty(pieces), np.empty(pieces)
    level = np.full(fluid.member.shape[0], -1.0)
    after = 0.0
    for i in range(pieces - 1, -1, -1):
        j = run.job[i]
        k = np.searchsorted(since, end[i], side="right") - 1
        if i + 1 < pieces and begin[i + 1] > end[i] and free[k] > 0:
            after = 0.0  # something was free, but nothing was there to be served
        if level[j] < 0:
            level[j] = after + fluid.ratio[j] * end[i]
        high[i] = max(level[j] - fluid.ratio[j] * begin[i], 0.0)
        low[i] = max(level[j] - fluid.ratio[j] * end[i], 0.0)
        after = high[i]
    return _Line(begin, end, high, low)


@kernel
def _mean(grid: FloatArray, line: _Line) -> FloatArray:
    """The mean price in each cell of the grid."""
    cells = grid.shape[0] - 1
    mean = np.zeros(cells)
    for i in range(line.begin.shape[0]):
        length = line.end[i] - line.begin[i]
        if length <= 0:
            continue
        k = np.searchsorted(grid, line.begin[i], side="right") - 1
        while k < cells and grid[k] < line.end[i]:
            a, b = max(line.begin[i], grid[k]), min(line.end[i], grid[k + 1])
            middle = ((a + b) / 2 - line.begin[i]) / length
            mean[k] += (b - a) * (line.high[i] + (line.low[i] - line.high[i]) * middle)
            k += 1
    return mean / (grid[1:] - grid[:-1])


# ------------------------------------------------------------------------------- kernels: prices


@kernel
def _supply(since: FloatArray, free: FloatArray, grid: FloatArray) -> FloatArray:
    """What is free in each cell in all, rounded up; shape (families, cells)."""
    families, cells = free.shape[0], grid.shape[0] - 1
    supply = np.zeros((families, cells))
    s = 0
    for k in range(cells):
        time = grid[k]
        while time < grid[k + 1]:
            while s + 1 < since.shape[0] and since[s + 1] <= time:
                s += 1
            until = grid[k + 1]
            if s + 1 < since.shape[0]:
                until = min(until, since[s + 1])
            for c in range(families):
                supply[c, k] += free[c, s] * (until - time)
            time = until
    supply *= 1.0 + (since.shape[0] + 4) * _EPSILON
    return supply


@kernel
def _dear(prices: FloatArray) -> IntArray:
    """The families with a price above 0 at some time."""
    dear = np.empty(prices.shape[0], dtype=np.int64)
    found = 0
    for c in range(prices.shape[0]):
        if prices[c].max() > 0:
            dear[found] = c
            found += 1
    return dear[:found]


@kernel
def _price_of(
    prices: FloatArray, dear: IntArray, classes: _Classes, j: int, price: FloatArray
) -> None:
    """What a job pays a second in each cell, into ``price``."""
    price[:] = 0.0
    for c in dear:
        demand = classes.demand[c, j]
        if demand > 0:
            for k in range(prices.shape[1]):
                price[k] += demand * prices[c, k]


@kernel
def _cheapest(
    grid: FloatArray, price: FloatArray, classes: _Classes, j: int, ceiling: float
) -> tuple[float, float, float, float]:
    """The start of a job with the least of cost and price.

    Both change evenly between the starts at which the job begins, ends or begins to cost at an
    edge of the grid: the least is at one of these.

    Returns
    -------
    least, at : float
        The least of cost and price, and the first start that has it.
    size : float
        Sum of the absolute values of all that was added up.
    last : float
        The last start that costs no more than ``ceiling``; -1 when there is none.
    """
    cells = price.shape[0]
    weight, free_until = classes.weight[j], classes.free_until[j]
    start, end = classes.release[j], classes.release[j] + classes.duration[j]
    a = min(np.searchsorted(grid, start, side="right") - 1, cells)
    b, time, value = a, start, 0.0
    while b < cells and grid[b + 1] <= end:
        value += price[b] * (grid[b + 1] - time)
        time = grid[b + 1]
        b += 1
    if b < cells:
        value += price[b] * (end - time)
    least, at, size, last = value, start, value, -1.0
    while a < cells:
        step = grid[a + 1] - start
        gain, loss = 0.0, price[a]
        if b < cells:
            step = min(step, grid[b + 1] - end)
            gain = price[b]
        if start < free_until:
            step = min(step, free_until - start)
        else:
            gain += weight
        if value <= ceiling:
            last = start + step
            if step * (gain - loss) > ceiling - value:
                last = start + (ceiling - value) / (gain - loss)
        value += step * (gain - loss)
        size += step * (gain + loss)
        start += step
        end += step
        if start >= grid[a + 1]:
            a += 1
        if b < cells and end >= grid[b + 1]:
            b += 1
        if value < least:
            least, at = value, start
    if value <= ceiling:
        last = np.inf
        if weight > 0:
            last = max(start, free_until) + (ceiling - value) / weight
    return least, at, size, last


@kernel
def _slip(families: int, cells: int, classes: int) -> float:
    """The largest error of a value for its size, the sum of the absolute values of its summands.

    No summand goes through more roundings than that: in its price at most one for each family, in
    its job's walk over the grid four for each of at most three edges a cell, in the sum over the
    jobs and in that over all prices one for each summand, and a few besides.
    """
    return (families * cells + 2 * families + 12 * cells + classes + 64) * _EPSILON


@kernel
def _value(
    grid: FloatArray, supply: FloatArray, prices: FloatArray, classes: _Classes
) -> tuple[float, float]:
    """The bound that some prices give, over what all jobs pay at their releases; and its error."""
    price, dear = np.empty(prices.shape[1]), _dear(prices)
    worth = (prices * supply).sum()
    value, size = -worth, worth
    for j in range(classes.jobs.shape[0]):
        _price_of(prices, dear, classes, j, price)
        least, _, here, _ = _cheapest(grid, price, classes, j, -1.0)
        value += classes.jobs[j] * least
        size += classes.jobs[j] * here
    return value, size * _slip(prices.shape[0], prices.shape[1], classes.jobs.shape[0])


@kernel
def _latest(grid: FloatArray, prices: FloatArray, classes: _Classes, slack: float) -> FloatArray:
    """The last start of each class that exceeds its least cost by no more than the slack."""
    price, dear = np.empty(prices.shape[1]), _dear(prices)
    latest = np.empty(classes.jobs.shape[0])
    for j in range(classes.jobs.shape[0]):
        _price_of(prices, dear, classes, j, price)
        least = _cheapest(grid, price, classes, j, -1.0)[0]
        latest[j] = _cheapest(grid, price, classes, j, least + slack)[3]
    return latest


@kernel
def _wanted(
    grid: FloatArray,
    prices: FloatArray,
    classes: _Classes,
    excess: FloatArray,
    start: FloatArray,
) -> float:
    """Each job at its cheapest start: what they pay in all, the start of each, what they use.

    What is used in each cell is added to ``excess``.
    """
    cells = prices.shape[1]
    price, dear = np.empty(cells), _dear(prices)
    paid = 0.0
    for j in range(classes.jobs.shape[0]):
        _price_of(prices, dear, classes, j, price)
        least, at, _, _ = _cheapest(grid, price, classes, j, -1.0)
        paid += classes.jobs[j] * least
        start[j] = at
        end = at + classes.duration[j]
        k = np.searchsorted(grid, at, side="right") - 1
        while k < cells and grid[k] < end:
            time = classes.jobs[j] * (min(grid[k + 1], end) - max(grid[k], at))
            for c in range(prices.shape[0]):
                if classes.demand[c, j] > 0:
                    excess[c, k] += classes.demand[c, j] * time
            k += 1
    return paid


@kernel
def _scale(grid: FloatArray, supply: FloatArray, classes: _Classes) -> FloatArray:
    """How far each price moves for an excess: as far as for another that is as large a part."""
    scale = np.empty(supply.shape)
    for c in range(supply.shape[0]):
        largest = classes.demand[c].max()
        for k in range(supply.shape[1]):
            width = grid[k + 1] - grid[k]
            level = max(supply[c, k] / width, largest)
            scale[c, k] = 1.0 / (width * level * level)
    return scale


@kernel
def _climb(
    grid: FloatArray,
    supply: FloatArray,
    prices: FloatArray,
    classes: _Classes,
    target: float,
    rounds: int,
) -> tuple[FloatArray, FloatArray]:
    """Improve prices by subgradients that keep their direction; the best, and the mean starts.

    Steps are as long as would lead to the target if the value went on like that, times a factor
    that shrinks after fruitless rounds.

    References
    ----------
    Camerini, Fratta, Maffioli, "On improving relaxation methods by modified gradient techniques",
    Mathematical Programming Study 3, 1975.
    """
    best, best_prices, prices = -np.inf, prices.copy(), prices.copy()
    scale = _scale(grid, supply, classes)
    excess, direction = np.empty(supply.shape), np.zeros(supply.shape)
    start, mean = classes.release.copy(), classes.release.copy()
    factor, fruitless, patience = 0.2, 0, max(3, rounds // 20)
    for turn in range(rounds):
        excess[:] = -supply
        value = _wanted(grid, prices, classes, excess, start) - (prices * supply).sum()
        mean += (start - mean) * max(0.1, 1.0 / (turn + 1))
        fruitless += 1
        if value > best:
            best, fruitless = value, 0
            best_prices[:] = prices
        elif fruitless == patience:
            factor, fruitless = 0.7 * factor, 0
        if best >= target:
            break
        direction = excess + 0.9 * direction
        for c in range(supply.shape[0]):
            for k in range(supply.shape[1]):
                # A price of 0 cannot fall.
                excess[c, k] = direction[c, k]
                if prices[c, k] <= 0 and direction[c, k] < 0:
                    excess[c, k] = 0.0
        length = (excess * excess * scale).sum()
        if length <= 0:
            break
        prices = np.maximum(prices + factor * (target - value) / length * (excess * scale), 0.0)
    return best_prices, mean
