"""The exact value of a plan, as a fraction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from cpdispatch.errors import UsageError
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column

TAU_S = 10
"""Durations below this count as this long in the bounded objectives, seconds."""


OBJECTIVES = (
    "ewt_excess",
    "ewt_weighted",
    "wait",
    "slowdown",
    "bounded_slowdown",
    "pp_slowdown",
    "priority_wait",
    "priority_slowdown",
)
"""The objectives that a value can be of."""


def _term(
    objective: str, wait: int, d: int, ewt: int, ewt_max: int, p: int, priority: int
) -> tuple[int, int]:
    """A job's term of an objective as numerator and denominator.

    ``d`` is its expected duration, ``ewt`` its queue's expected wait, ``ewt_max`` the largest of
    all queued jobs, ``p`` its processors: units times the first resource type's request. A priority
    counts as 1 at least. ``p`` times the duration counts as 2^62 at most.
    """
    at_least = max(d, TAU_S)
    p = min(p, 2**62 // at_least)
    match objective:
        case "ewt_excess":
            return max(0, wait - ewt), ewt
        case "ewt_weighted":
            return ewt_max * wait, ewt
        case "wait":
            return wait, 1
        case "slowdown":
            return wait + d, d
        case "bounded_slowdown":
            return max(wait + d, at_least), at_least
        case "pp_slowdown":
            return max(wait + d, p * at_least), p * at_least
        case "priority_wait":
            return max(priority, 1) * wait, 1
        case _:  # priority_slowdown
            return max(priority, 1) * wait, d


def objective_value(instance: Instance, objective: str, starts: Mapping[int, int]) -> Fraction:
    """The exact objective of a plan, over the jobs that have a start.

    Parameters
    ----------
    objective : str
        A name in `OBJECTIVES`.
    starts : mapping of int to int
        Start in seconds by position in the queue.

    Raises
    ------
    UsageError
        When the objective is unknown, or a position is not in the queue.
    """
    if objective not in OBJECTIVES:
        raise UsageError(f"unknown objective {objective!r}, one of {', '.join(OBJECTIVES)}")
    queued = len(instance.queue)
    ewt_max = max(instance.queue.ewt_s.tolist(), default=1)
    numerators: Counter[int] = Counter()
    for position, start_s in starts.items():
        if not 0 <= position < queued:
            raise UsageError(f"starts: there is no position {position} in a queue of {queued} jobs")
        job = instance.queue.block[:, position].tolist()
        processors = max(1, job[Column.UNITS] * job[Column.REQUEST])
        wait, ewt = start_s - job[Column.SUBMIT], job[Column.EWT]
        over, under = _term(
            objective, wait, job[Column.EXPECTED], ewt, ewt_max, processors, job[Column.PRIORITY]
        )
        numerators[under] += over
    # Added in pairs: denominators grow long, and late is cheaper than early.
    sums = [Fraction(over, under) for under, over in numerators.items()]
    while len(sums) > 1:
        sums = [sum(sums[k : k + 2], Fraction(0)) for k in range(0, len(sums), 2)]
    return sums[0] if sums else Fraction(0)
