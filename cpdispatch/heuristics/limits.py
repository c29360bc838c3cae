"""How long jobs are taken to last: as predicted, or with care."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.errors import unknown
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable

LIMITS: Mapping[str, Column] = {
    "expected": Column.EXPECTED,
    "upper": Column.UPPER,
    "requested": Column.REQUESTED,
}
"""What the queued jobs are taken to last, by name: a column of theirs."""


def find(limits: str) -> Column:
    """The column that says how long the queued jobs are taken to last.

    Raises
    ------
    UsageError
        When there are no such limits.
    """
    if limits not in LIMITS:
        raise unknown("limits", limits, LIMITS)
    return LIMITS[limits]


def limited(instance: Instance, limits: str) -> Instance:
    """An instance in which jobs are expected to last as long as these limits say.

    With ``expected`` it is the instance itself: predictions limit everything. Else running jobs end
    at their requested times, so that plans do not rest on predictions of what holds the nodes now:
    a job that outlives its own delays nobody twice. Queued ones last as long as they probably may
    (``upper``), or until their requested times too (``requested``).

    No job ends earlier than in the instance itself: what is feasible here is feasible there.
    """
    column = find(limits)
    if column == Column.EXPECTED:
        return instance
    queue, running, given = instance.queue, instance.running, instance.dependencies
    block = queue.block.copy()
    block[Column.EXPECTED] = np.maximum(queue.expected_s, block[column])
    end_s = running.requested_end_s()
    if running.bound_s is not None:
        runs = running.jobs.block.copy()
        runs[Column.EXPECTED] = np.maximum(running.jobs.expected_s, running.jobs.requested_s)
        running = replace(running, jobs=JobTable(runs, running.jobs.labels))
    return replace(
        instance,
        queue=JobTable(block, queue.labels),
        running=replace(running, end_s=end_s),
        dependencies=None if given is None else given.ending(end_s),
    )


def cautious(instance: Instance) -> Instance:
    """An instance in which queued jobs may last longer than they probably may.

    Each may last for the geometric mean of what it will probably not exceed and of its requested
    time, rounded down, but not less than expected. Backfilling by the one serves where predictions
    are good, by the other where they are not; this is next to the better one in both cases, see
    docs/quality.md.
    """
    queue = instance.queue
    block = queue.block.copy()
    block[Column.UPPER] = np.maximum(queue.expected_s, wary_s(queue.upper_s, queue.requested_s))
    return replace(instance, queue=JobTable(block, queue.labels))


def wary_s(upper_s: IntArray, requested_s: IntArray) -> IntArray:
    """The geometric mean of upper durations and requested times, rounded down."""
    found: IntArray = np.sqrt(upper_s.astype(np.float64) * requested_s).astype(np.int64)
    return found
