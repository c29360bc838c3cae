"""Capacities and bounds that hold for all plans of a part that cost no more than a known plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.models.bounds import area, priced
from cpdispatch.models.certificate import TOLERANCE
from cpdispatch.models.families import Families, families
from cpdispatch.models.part import Part
from cpdispatch.models.pooled import Pool
from cpdispatch.models.pooled_model import EXHAUST_STEPS

PRICE_ROUNDS = 50
"""Rounds of the search for prices of the capacity, a bound: 1 or 2 us each for a kind of jobs."""

EXHAUST_JOBS = 20
"""Jobs up to which the best plan of the pool may be found within `EXHAUST_STEPS`."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Bounds on all plans of a part that cost no more than a known plan.

    They start a job at its promised time where there is no other choice, see `Part.latest_s`.
    """

    families: Families
    """Capacities that they keep, beside the jobs whose starts are known."""
    earliest_s: IntArray
    latest_s: IntArray
    """None of them starts a job before the one or after the other, shape (jobs,)."""
    least: int
    """None of them costs less."""
    priced_s: IntArray
    """Where prices of the capacities would have the jobs start: an order worth a try."""


def pool_of(given: Families, duration_s: IntArray) -> Pool:
    """The pool whose resources are these capacities."""
    return Pool(given.since_s, given.free.T, given.demand.T, duration_s)


def relax(part: Part, start_s: IntArray, rounds: int = PRICE_ROUNDS) -> Known:
    """Bounds by areas, prices, and a millisecond of exhausting the pooled capacities.

    Parameters
    ----------
    start_s : int64 array, shape (jobs,)
        Of the plan at hand. When it is proven best, the other bounds are not computed.
    rounds : int
        How often prices are changed.
    """
    weights, duration_s = part.weights, part.jobs.planned_s
    upper = weights.sum(start_s)
    fixed = part.earliest_s == part.latest_s
    given = families(part.instance, part.position).beside(fixed, part.earliest_s, duration_s)
    pool = pool_of(given, duration_s)
    earliest_s, latest_s = np.maximum(part.earliest_s, pool.earliest()), part.latest_s
    limits = part.jobs, weights, earliest_s
    least, priced_s = area(given, *limits), earliest_s
    if upper - least > TOLERANCE * upper:
        prices = priced(given, *limits, upper, rounds)
        least, latest_s = max(least, prices.sum), np.minimum(latest_s, prices.latest_s)
        priced_s = prices.start_s
    movable = np.flatnonzero(~fixed)
    if upper - least > TOLERANCE * upper and len(movable) <= EXHAUST_JOBS:
        mine = weights.take(movable)
        best_s, proven = pool.take(movable).improve(
            start_s[movable], mine, EXHAUST_STEPS, part.alike[movable]
        )
        if proven:
            least = max(least, mine.sum(best_s) + int(weights.each(earliest_s)[fixed].sum()))
    return Known(given, earliest_s, latest_s, least, priced_s)
