"""Prices of pooled capacities over time: a Lagrangian lower bound, and how prices are improved.

References
----------
Van den Akker, Hurkens, Savelsbergh, "Time-indexed formulations for machine scheduling problems:
column generation", INFORMS Journal on Computing 12, 2000. Held, Wolfe, Crowder, "Validation of
subgradient optimization", Mathematical Programming 6, 1974.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import allocating, kernel

EPSILON = 2.0**-52
"""Twice the largest relative error of one rounding."""


class Classes(NamedTuple):
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


@allocating
def supply_of(since: FloatArray, free: FloatArray, grid: FloatArray) -> FloatArray:
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
    supply *= 1.0 + (since.shape[0] + 4) * EPSILON
    return supply


@allocating
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
    prices: FloatArray, dear: IntArray, classes: Classes, j: int, price: FloatArray
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
    grid: FloatArray, price: FloatArray, classes: Classes, j: int, ceiling: float
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
    return (families * cells + 2 * families + 12 * cells + classes + 64) * EPSILON


@allocating
def value_of(
    grid: FloatArray, supply: FloatArray, prices: FloatArray, classes: Classes
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


@allocating
def latest_of(grid: FloatArray, prices: FloatArray, classes: Classes, slack: float) -> FloatArray:
    """The last start of each class that exceeds its least cost by no more than the slack."""
    price, dear = np.empty(prices.shape[1]), _dear(prices)
    latest = np.empty(classes.jobs.shape[0])
    for j in range(classes.jobs.shape[0]):
        _price_of(prices, dear, classes, j, price)
        least = _cheapest(grid, price, classes, j, -1.0)[0]
        latest[j] = _cheapest(grid, price, classes, j, least + slack)[3]
    return latest


@allocating
def _wanted(
    grid: FloatArray,
    prices: FloatArray,
    classes: Classes,
    excess: FloatArray,
    start: FloatArray,
) -> float:
    """Put each job at its cheapest start, and return what all jobs pay together.

    The starts are written into ``start``, and the use of each cell is added to ``excess``.
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


@allocating
def _scale(grid: FloatArray, supply: FloatArray, classes: Classes) -> FloatArray:
    """How far each price moves for an excess: as far as for another that is as large a part."""
    scale = np.empty(supply.shape)
    for c in range(supply.shape[0]):
        largest = classes.demand[c].max()
        for k in range(supply.shape[1]):
            width = grid[k + 1] - grid[k]
            level = max(supply[c, k] / width, largest)
            scale[c, k] = 1.0 / (width * level * level)
    return scale


@allocating
def climb(
    grid: FloatArray,
    supply: FloatArray,
    prices: FloatArray,
    classes: Classes,
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
        for c in range(supply.shape[0]):
            for k in range(supply.shape[1]):
                excess[c, k] = -supply[c, k]
        value = _wanted(grid, prices, classes, excess, start) - (prices * supply).sum()
        mean += (start - mean) * max(0.1, 1.0 / (turn + 1))
        fruitless += 1
        if value > best:
            best, fruitless = value, 0
            best_prices = prices
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
