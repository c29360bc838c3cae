"""Planned durations: how long plans and reservations take jobs to last.

A prediction is never changed. Orders of the queue and objectives go by the expected durations;
reservations and plans go by `JobTable.planned_s` and `Running.planned_end_s`, which are set here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.errors import unknown
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column

LIMITS: Mapping[str, Column] = {
    "expected": Column.EXPECTED,
    "upper": Column.UPPER,
    "requested": Column.REQUESTED,
}
"""By name, the column of the queued jobs that holds their planned durations."""


def find(limits: str) -> Column:
    """The column that says how long the queued jobs are planned to last.

    Raises
    ------
    UsageError
        When there are no such limits.
    """
    if limits not in LIMITS:
        raise unknown("limits", limits, LIMITS)
    return LIMITS[limits]


def planned(instance: Instance, limits: str) -> Instance:
    """The instance with the planned durations that these limits say.

    With ``expected`` it is the instance itself: plans use the expected durations of all jobs.
    Otherwise running jobs are planned to end at their requested times, so that a running job that
    outlives its prediction delays no plan. Queued jobs are planned to last for their upper
    durations (``upper``) or for their requested times (``requested``).

    No job is planned to end before its expected end: what is feasible here is feasible in the
    instance itself.
    """
    column = find(limits)
    if column == Column.EXPECTED:
        return instance
    queue = instance.queue
    return _planned_with(instance, np.maximum(queue.expected_s, queue.column(column)))


def cautious(instance: Instance) -> Instance:
    """The instance in which queued jobs are planned to last for their `cautious_s`.

    Running jobs are planned to end at their requested times, as in `planned`.
    """
    return _planned_with(instance, cautious_s(instance.queue.block))


def cautious_s(block: IntArray) -> IntArray:
    """The cautious durations of the jobs of a block, shape (jobs,).

    A cautious duration is half way, in orders of magnitude, from the upper duration to the
    requested time, but never less than the expected duration. Where predictions are good,
    backfilling by the upper durations is better; where they are not, backfilling by the requested
    times is. Cautious durations come close to the better one in both cases, see docs/quality.md.
    """
    half_way_s = wary_s(block[Column.UPPER], block[Column.REQUESTED])
    found: IntArray = np.maximum(block[Column.EXPECTED], half_way_s)
    return found


def wary_s(upper_s: IntArray, requested_s: IntArray) -> IntArray:
    """The geometric mean of upper durations and requested times, rounded down."""
    found: IntArray = np.sqrt(upper_s.astype(np.float64) * requested_s).astype(np.int64)
    return found


def _planned_with(instance: Instance, planned_s: IntArray) -> Instance:
    """The instance with these planned durations of queued jobs; running ones as requested."""
    jobs, dependencies = instance.running.jobs, instance.dependencies
    longest_s = np.maximum(jobs.expected_s, jobs.requested_s)
    running = replace(instance.running, jobs=jobs.planned_with(longest_s))
    return replace(
        instance,
        queue=instance.queue.planned_with(planned_s),
        running=running,
        dependencies=None if dependencies is None else dependencies.ending(running.planned_end_s()),
    )
