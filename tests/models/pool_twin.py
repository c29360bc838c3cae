"""The pooled problem second by second: slow, plain, and written without the package's pool."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from cpdispatch import verify
from cpdispatch.arrays import IntArray
from cpdispatch.instance import Instance
from tests.strategies import LONGEST_S, Timetable


def free_by_second(instance: Instance, seconds: int) -> IntArray:
    """What the pool has free at each second from now on; power last where it is capped."""
    table = Timetable(instance, seconds)
    free = table.free.sum(axis=1)
    if instance.power is None:
        return free
    return np.column_stack((free, np.maximum(table.power, 0)))


def demands(instance: Instance) -> list[IntArray]:
    """What each queued job holds of the pool."""
    watts = instance.job_power(instance.queue).tolist()
    return [
        np.array([job.units * r for r in job.request] + [w] * (instance.power is not None))
        for job, w in zip(instance.queue, watts, strict=True)
    ]


def horizon(instance: Instance) -> int:
    """Seconds by which everything can have ended: running jobs, reservations, then all jobs."""
    ends = [*instance.running.end_s.tolist(), *(r.end_s for r in instance.reservations)]
    last = max([instance.now, *ends]) - instance.now
    return 60 + last + int(instance.queue.expected_s.sum())


def left_shifted(instance: Instance, order: Sequence[int]) -> dict[int, int]:
    """Each job in turn at the first second from which the pool can hold it."""
    free, demand = free_by_second(instance, horizon(instance)), demands(instance)
    starts = {}
    for position in order:
        duration = instance.queue[position].expected_s
        for t in range(len(free) - duration):
            if (free[t : t + duration] >= demand[position]).all():
                free[t : t + duration] -= demand[position]
                starts[position] = instance.now + t
                break
    return starts


def best_value(instance: Instance, chosen: Sequence[int], objective: str) -> Fraction:
    """The least value of any plan of these jobs: some order's left-shifted plan has it."""
    return min(
        verify.objective_value(instance, objective, left_shifted(instance, order))
        for order in permutations(chosen)
    )


def best_value_of_all_starts(
    instance: Instance, chosen: Sequence[int], objective: str, latest: int
) -> Fraction:
    """The least value by trying every combination of starts: for two jobs or so."""
    free, demand = free_by_second(instance, latest + LONGEST_S + 1), demands(instance)
    values = []
    for offsets in product(range(latest + 1), repeat=len(chosen)):
        left = free.copy()
        for position, t in zip(chosen, offsets, strict=True):
            left[t : t + instance.queue[position].expected_s] -= demand[position]
        if (left >= 0).all():
            starts = {p: instance.now + t for p, t in zip(chosen, offsets, strict=True)}
            values.append(verify.objective_value(instance, objective, starts))
    return min(values)
