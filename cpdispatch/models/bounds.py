"""Lower bounds of the weighted sum of the starts, over all plans of some jobs on the nodes.

A plan of the nodes keeps many pooled capacities at every instant, which
`cpdispatch.models.families` collects; from these alone, `area` bounds the weighted sum in closed
form and `priced` by prices of the capacities over time.

All of it holds for every plan: any set of capacities, of jobs or of prices gives a valid bound, and
rounding is paid for (see `_gain` and `cpdispatch.models.prices.value_of`). What is chosen well only
makes the bound better.

References
----------
Eastman, Even, Isaacs, "Bounds for the optimal scheduling of n jobs on m processors", Management
Science 11, 1964. Goemans, "Improved approximation algorithms for scheduling with release dates",
SODA 1997: mean busy times.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.compile import allocating
from cpdispatch.jobs import JobTable
from cpdispatch.models.families import Families, distinct
from cpdispatch.models.objective import Weights
from cpdispatch.models.prices import EPSILON, Classes, climb, latest_of, supply_of, value_of

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


# ---------------------------------------------------------------------------- the bounds


def area(
    families: Families,
    jobs: JobTable,
    weights: Weights,
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
    earliest_s : int64 array, shape (jobs,)
        A time before which no plan starts the job.

    Returns
    -------
    int
        Never less than the sum of the jobs' costs at their earliest starts.

    References
    ----------
    Eastman, Even, Isaacs 1964; Goemans 1997, lemma 2: see the module.
    """
    classes, _ = _classes(families, jobs, weights, earliest_s)
    parts = _partition(families, classes)
    least = weights.sum(earliest_s)
    return least + sum(_up(part.gain) for part in parts)


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """What prices of the capacities say of all plans."""

    sum: int
    """No plan has a smaller weighted sum."""
    latest_s: IntArray
    """A plan whose weighted sum is ``upper`` or less starts no job later, shape (jobs,)."""
    start_s: IntArray
    """Where the prices would have the jobs start, in the mean of all rounds, shape (jobs,): an
    order of the jobs that is worth a try.
    """


def priced(
    families: Families,
    jobs: JobTable,
    weights: Weights,
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
    families, jobs, weights, earliest_s
        As for `area`.
    upper : int
        Weighted sum of a known plan.
    rounds : int
        How often the prices are changed; each time costs 1 to 2 microseconds a class of like jobs.

    References
    ----------
    Van den Akker, Hurkens, Savelsbergh 2000; Held, Wolfe, Crowder 1974: see the module.
    """
    least = weights.sum(earliest_s)
    classes, of = _classes(families, jobs, weights, earliest_s)
    parts = _partition(families, classes)
    closed = least + sum(_up(part.gain) for part in parts)
    unknown = Priced(closed, np.full(len(of), FOREVER_S), earliest_s)
    if len(families) == 0:
        return unknown
    since, free = _from_now(families), _not_below(families.free)
    lines = [_line(since, free[part.row], classes, part.row, part.taken) for part in parts]
    grid = _grid(families, classes, parts, lines)
    if grid[-1] > _TIME_MAX:
        return unknown
    now = int(families.since_s[0])
    supply = supply_of(since, free, grid)
    first = _first_prices(families, parts, lines, grid)
    prices, start = climb(grid, supply, first, classes, float(upper - least), rounds)
    value, slip = value_of(grid, supply, prices, classes)
    slack = max(float(upper - least) - value, 0.0) + 4 * slip
    latest = latest_of(grid, prices, classes, slack)
    latest_s = np.minimum(np.floor(latest * (1 + EPSILON) + 1e-6), FOREVER_S - abs(now))
    return Priced(
        max(closed, least + _up(value - slip)),
        np.maximum(latest_s.astype(np.int64)[of] + now, earliest_s),
        np.rint(start).astype(np.int64)[of] + now,
    )


def _up(gain: float) -> int:
    """Round a lower bound on an integer up."""
    return max(int(np.ceil(gain)), 0)


# -------------------------------------------------------------------------- classes of like jobs


def _classes(
    families: Families,
    jobs: JobTable,
    weights: Weights,
    earliest_s: IntArray,
) -> tuple[Classes, IntArray]:
    """The classes, and which one each job belongs to."""
    release = np.maximum(earliest_s - families.since_s[0], 0)
    free_until = np.maximum(weights.free_until_s - families.since_s[0], release)
    facts = [jobs.planned_s, weights.per_s, release, free_until]
    first, of = distinct([*families.demand, *facts])
    demand = families.demand[:, first].astype(np.float64, order="C")
    duration, weight, begins, ends = (fact[first].astype(np.float64) for fact in facts)
    number = np.bincount(of, minlength=len(first)).astype(np.float64)
    return Classes(demand, duration, weight, begins, ends, number), of


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


def _partition(families: Families, classes: Classes) -> list[_Part]:
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


def _first_prices(
    families: Families, parts: list[_Part], lines: list[_Line], grid: FloatArray
) -> FloatArray:
    """What the fluids would pay, in the mean of each cell; shape (families, cells)."""
    prices = np.zeros((len(families), len(grid) - 1))
    for part, line in zip(parts, lines, strict=True):
        prices[part.row] += _mean(grid, line)
    return prices


def _grid(
    families: Families, classes: Classes, parts: list[_Part], lines: list[_Line]
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


@allocating
def _fluid(
    since: FloatArray, free: FloatArray, classes: Classes, row: int, on: BoolArray
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


@allocating
def _flow(fluid: _Fluid) -> _Run:
    """At every instant all that is free goes to the released job with the largest ratio.

    Rounding: each job is first given less area than it has by more than all roundings of what is
    left of it together, and the part of a tick at its end is dropped. What is processed is then
    no more than its area, and the cost of a fluid with less to process is no larger.
    """
    jobs, segments = fluid.member.shape[0], fluid.since.shape[0]
    left = fluid.area * (1.0 - 4.0 * (2 * jobs + segments) * EPSILON)
    by_ratio = np.argsort(-fluid.ratio[:jobs])
    by_release = np.argsort(fluid.release[:jobs])
    rank = np.empty(jobs, dtype=np.int64)
    for k in range(jobs):
        rank[by_ratio[k]] = k
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


@allocating
def _gain(
    since: FloatArray,
    free: FloatArray,
    classes: Classes,
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
        gain -= (run.begin.shape[0] + jobs + 32) * EPSILON * size
        if gain > best:
            best = gain
            taken[:] = False
            for j in fluid.member:
                taken[j] = True
        if not dropped or hopeful <= max(best, enough):
            return best


@allocating
def _best_family(
    since: FloatArray, free: FloatArray, classes: Classes, on: BoolArray
) -> tuple[int, float, BoolArray]:
    """The family with the largest gain, that gain, and the classes that it counts."""
    best, gain = 0, 0.0
    taken, best_taken = np.zeros_like(on), np.zeros_like(on)
    for row in range(free.shape[0]):
        here = _gain(since, free[row], classes, row, on, gain, taken)
        if here > gain:
            best, gain = row, here
            best_taken, taken = taken, best_taken
    return best, gain, best_taken


@allocating
def _line(since: FloatArray, free: FloatArray, classes: Classes, row: int, on: BoolArray) -> _Line:
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


@allocating
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
