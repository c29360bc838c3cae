"""The objectives: exact values, and integer weights for the solvers.

Every one of them charges a job ``floor + rate * max(0, start - free_until)``: nothing beyond the
floor up to a start that is soon enough, and from there on a constant rate per second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START
from cpdispatch.errors import unknown
from cpdispatch.jobs import TAU_S, JobTable

_SMALLEST_WEIGHT = 10**6
# A double holds every integer up to 2^53: the solver reports its bounds as doubles.
_LARGEST_SUM = 2**52
_LARGEST_INT64 = 2**62  # below it a sum of products cannot overflow, whatever floats round


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The objective in integers, as the searches minimise it.

    Job i costs ``per_s[i]`` for each second that it starts after ``free_until_s[i]``.
    """

    per_s: IntArray
    """``scale`` times each job's rate, rounded down, shape (jobs,)."""
    scale: int | Fraction
    free_until_s: IntArray
    """Shape (jobs,)."""

    def take(self, positions: IntArray) -> Weights:
        """The weights of the jobs at these positions."""
        return Weights(self.per_s[positions], self.scale, self.free_until_s[positions])

    def each(self, start_s: IntArray) -> IntArray:
        """What each job costs with these starts, shape (jobs,)."""
        costs: IntArray = self.per_s * np.maximum(start_s - self.free_until_s, 0)
        return costs

    def sum(self, start_s: IntArray) -> int:
        """The weighted sum that the searches minimise; exact even beyond 64 bits."""
        late_s = np.maximum(start_s - self.free_until_s, 0)
        if float(self.per_s.astype(np.float64) @ late_s.astype(np.float64)) < _LARGEST_INT64:
            return int((self.per_s * late_s).sum())
        return sum(w * t for w, t in zip(self.per_s.tolist(), late_s.tolist(), strict=True))

    def latest(self, earliest_s: IntArray, most: int, last_s: IntArray) -> IntArray:
        """The last start of each job with which the weighted sum can still be ``most``.

        Parameters
        ----------
        earliest_s : int64 array, shape (jobs,)
            The first start that each job could have.
        last_s : int64 array, shape (jobs,)
            The answer for a job without a weight.
        """
        slack = most - self.sum(earliest_s)
        late_s = np.maximum(earliest_s, self.free_until_s) + slack // np.maximum(self.per_s, 1)
        return np.where(self.per_s > 0, late_s, last_s)


@dataclass(frozen=True, slots=True, eq=False)
class Cost:
    """An objective for the jobs of one table, each rate an exact fraction."""

    floor: int
    """What a job costs at least."""
    free_until_s: IntArray
    """The latest start at which each job costs no more than the floor, shape (jobs,)."""
    numerator: IntArray
    denominator: IntArray
    """Each job's cost per second from then on, shape (jobs,)."""

    def take(self, positions: IntArray) -> Cost:
        """The objective of the jobs at these positions."""
        return Cost(
            self.floor,
            self.free_until_s[positions],
            self.numerator[positions],
            self.denominator[positions],
        )

    def value(self, start_s: IntArray) -> float:
        """The objective over all jobs with a start: the float nearest to the exact sum."""
        (planned,) = np.nonzero(start_s != NO_START)
        late_s = np.maximum(start_s[planned] - self.free_until_s[planned], 0)
        by_denominator: dict[int, int] = {}
        for late, up, down in zip(
            late_s.tolist(),
            self.numerator[planned].tolist(),
            self.denominator[planned].tolist(),
            strict=True,
        ):
            by_denominator[down] = by_denominator.get(down, 0) + late * up
        # Rounded down in units of 2^-128, each by less than one; exactly only if that matters,
        # since the common denominator of a thousand durations has thousands of digits.
        low = sum((part << 128) // down for down, part in by_denominator.items())
        low += (self.floor * len(planned)) << 128
        nearest = low / (1 << 128)
        if nearest == (low + len(by_denominator)) / (1 << 128):
            return nearest
        common = math.lcm(*by_denominator)
        total = sum(part * (common // down) for down, part in by_denominator.items())
        return (total + self.floor * len(planned) * common) / common

    def weights(self, latest_s: int) -> Weights:
        """Integer weights whose sum over starts up to ``latest_s`` stays far below 2^62.

        The smallest weight is 10^6, so that rounding changes no cost by more than one part in a
        million. Where the largest sum calls for it, weights are smaller, and some may be 0.
        """
        rates = list(zip(self.numerator.tolist(), self.denominator.tolist(), strict=True))
        if not rates:
            return Weights(np.empty(0, dtype=np.int64), 1, self.free_until_s)
        span_s = max(latest_s - int(self.free_until_s.min()), 1)
        smallest = min(up / down for up, down in rates)
        largest_sum = span_s * sum(up / down for up, down in rates)
        scale: int | Fraction = int(min(_SMALLEST_WEIGHT / smallest, _LARGEST_SUM / largest_sum))
        if scale < 1:
            scale = Fraction(1, math.ceil(largest_sum / _LARGEST_SUM))
        per_s = [up * scale // down for up, down in rates]
        return Weights(np.array(per_s, dtype=np.int64), scale, self.free_until_s)

    def bound(self, scaled: int, weights: Weights) -> float:
        """A lower bound of the objective over all jobs, from one of the weighted sum.

        Weights are rounded down and so is this: the bound stays valid.
        """
        exact = Fraction(scaled, weights.scale) + self.floor * len(self.numerator)
        nearest = float(exact)
        return nearest if nearest <= exact else math.nextafter(nearest, -math.inf)


def of(name: str, jobs: JobTable) -> Cost:
    """The objective of this name for these jobs.

    Raises
    ------
    UsageError
        When there is no such objective.
    """
    return find(name)(jobs)


def find(name: str) -> Callable[[JobTable], Cost]:
    """What builds the objective of this name for a table of jobs.

    Raises
    ------
    UsageError
        When there is no such objective.
    """
    if name not in OBJECTIVES:
        raise unknown("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def processors(jobs: JobTable) -> IntArray:
    """Units times the request of the first resource type, at least 1; shape (jobs,)."""
    pooled: IntArray = np.maximum(jobs.units * jobs.request[:, 0], 1)
    return pooled


def _ewt_excess(jobs: JobTable) -> Cost:
    """max(0, (s - q - ewt) / ewt), of the original PCP."""
    return Cost(0, jobs.submit_s + jobs.ewt_s, _ones(jobs), jobs.ewt_s)


def _ewt_weighted(jobs: JobTable) -> Cost:
    """max(ewt) / ewt * (s - q), of the original HCP."""
    return Cost(0, jobs.submit_s, _ones(jobs) * jobs.ewt_s.max(initial=1), jobs.ewt_s)


def _wait(jobs: JobTable) -> Cost:
    """The plain wait, s - q."""
    return Cost(0, jobs.submit_s, _ones(jobs), _ones(jobs))


def _slowdown(jobs: JobTable) -> Cost:
    """(s - q + d) / d = 1 + (s - q) / d."""
    return Cost(1, jobs.submit_s, _ones(jobs), jobs.expected_s)


def _bounded_slowdown(jobs: JobTable) -> Cost:
    """max(1, (s - q + d) / max(d, tau))."""
    bounded = np.maximum(jobs.expected_s, TAU_S)
    return Cost(1, jobs.submit_s + bounded - jobs.expected_s, _ones(jobs), bounded)


def _pp_slowdown(jobs: JobTable) -> Cost:
    """max(1, (s - q + d) / (p max(d, tau))), p the processors; the divisor is 2^62 at most."""
    at_least = np.maximum(jobs.expected_s, TAU_S)
    bounded = np.minimum(processors(jobs), _LARGEST_INT64 // at_least) * at_least
    return Cost(1, jobs.submit_s + bounded - jobs.expected_s, _ones(jobs), bounded)


def _priority_wait(jobs: JobTable) -> Cost:
    """W (s - q), w the site's priority, 1 at least."""
    return Cost(0, jobs.submit_s, np.maximum(jobs.priority, 1), _ones(jobs))


def _priority_slowdown(jobs: JobTable) -> Cost:
    """W (s - q) / d: by how much the slowdown exceeds 1, by priority."""
    return Cost(0, jobs.submit_s, np.maximum(jobs.priority, 1), jobs.expected_s)


def _ones(jobs: JobTable) -> IntArray:
    return np.ones(len(jobs), dtype=np.int64)


BY_EXPECTED_WAIT = frozenset({"ewt_excess", "ewt_weighted"})
"""The objectives that measure a job's wait by the expected wait of its queue."""

BY_PRIORITY = frozenset({"priority_wait", "priority_slowdown"})
"""The objectives that weigh jobs by the site's priority."""

OBJECTIVES: Mapping[str, Callable[[JobTable], Cost]] = {
    "ewt_excess": _ewt_excess,
    "ewt_weighted": _ewt_weighted,
    "wait": _wait,
    "slowdown": _slowdown,
    "bounded_slowdown": _bounded_slowdown,
    "pp_slowdown": _pp_slowdown,
    "priority_wait": _priority_wait,
    "priority_slowdown": _priority_slowdown,
}
"""The objectives by name."""
