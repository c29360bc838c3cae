"""The queue of a compiled replay: sorted by keys that last, or that are computed anew.

Late jobs have the least key and come first; then jobs of higher tiers, whatever their keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    DEMAND,
    EXPECTED,
    JOB,
    NEED,
    PRIORITY,
    REQUESTED,
    SHARE,
    START,
    SUBMIT,
    TIER,
    UPPER,
    Line,
    Queue,
    Tables,
    Threshold,
)
from cpdispatch.heuristics.policies import FIRST_KEY, NO_THRESHOLD, Policy, key_of, risk_of

_RISK, _PRIORITY = int(Policy.RISK), int(Policy.PRIORITY)


@inlined
def goes_before(tables: Tables, key: float, job: int, other_key: float, other: int) -> bool:
    """Whether a job comes before another in a queue: it is late, of a higher tier, by its key."""
    if tables.state.tiered and key != -np.inf and other_key != -np.inf:
        tier, other_tier = tables.jobs[TIER, job], tables.jobs[TIER, other]
        if tier != other_tier:
            return bool(tier > other_tier)
    return bool(key < other_key or (key == other_key and job < other))


@inlined
def insert(
    tables: Tables, queue: Queue | Line, low: int, size: int, key: float, job: int, demand: int
) -> None:
    """Put a job where it belongs among those from a place on."""
    place, keys = queue.place, queue.key
    high, tiered = size, tables.state.tiered
    while low < high:
        middle = (low + high) // 2
        if tiered:  # else it is what `goes_before` says of jobs of one tier, sooner
            before = goes_before(tables, keys[middle], place[JOB, middle], key, job)
        else:
            before = keys[middle] < key or (keys[middle] == key and place[JOB, middle] < job)
        if before:
            low = middle + 1
        else:
            high = middle
    for k in range(size, low, -1):
        place[JOB, k] = place[JOB, k - 1]
        place[DEMAND, k] = place[DEMAND, k - 1]
        keys[k] = keys[k - 1]
    place[JOB, low], place[DEMAND, low], keys[low] = job, demand, key


@inlined
def key_under(tables: Tables, queue: Queue, job: int, own: Any) -> float:
    """Key of a job under the policy of a queue now."""
    state, jobs = tables.state, tables.jobs
    state.current_job = job
    if queue.rule.policy == _PRIORITY:
        return -float(jobs[PRIORITY, job])
    expected, need = float(tables.outcome[EXPECTED, job]), float(max(jobs[NEED, job], 1))
    submit, requested = jobs[SUBMIT, job], jobs[REQUESTED, job]
    policy, weights = queue.rule.policy, queue.weights
    key = key_of(policy, weights, state.now, submit, expected, need, requested, own)
    if np.isnan(key):
        raise ValueError("returned nan")
    return max(key, FIRST_KEY)


@kernel
def sort_anew(tables: Tables, queue: Queue, own: Any) -> None:
    """Compute keys anew and sort."""
    without_started(tables, queue)
    now, size, threshold = tables.state.now, queue.marks.tail, queue.rule.threshold
    for k in range(size):
        job = queue.place[JOB, k]
        late = is_late(tables.jobs, job, now, threshold)
        queue.key[k] = -np.inf if late else key_under(tables, queue, job, own)
    _sort(tables, queue, 0, size)


@inlined
def late_after(jobs: IntArray, job: int, threshold: Threshold) -> int:
    """The time after which a job is late. A wide job is late sooner."""
    shorter = 1000 - threshold.wide * jobs[SHARE, job] // 1000
    return int(jobs[SUBMIT, job] + threshold.seconds * shorter // 1000)


@inlined
def is_late(jobs: IntArray, job: int, now: int, threshold: Threshold) -> bool:
    """Whether a job has passed a threshold."""
    if threshold.seconds == NO_THRESHOLD:
        return False
    return bool(now > late_after(jobs, job, threshold))


@kernel
def let_late_ones_first_now(tables: Tables, queue: Queue, own: Any, caution: Any) -> bool:
    """Move jobs that are late now to the front of a queue with lasting keys, others back.

    The threshold may have become longer. Returns whether any job has moved.
    """
    state, jobs, keys, threshold = tables.state, tables.jobs, queue.key, queue.rule.threshold
    low, size = queue.marks.head, queue.marks.tail
    moved = False
    for k in range(low, size):
        job = queue.place[JOB, k]
        if tables.outcome[START, job] >= 0:
            continue
        late = is_late(jobs, job, state.now, threshold)
        if late != (keys[k] == -np.inf):
            moved = True
            keys[k] = -np.inf if late else lasting_key(tables, queue, job, own, caution)
        if not late:
            state.none_late_until = min(state.none_late_until, late_after(jobs, job, threshold))
    if moved:
        _sort(tables, queue, low, size)
    return moved


@inlined
def lasting_key(tables: Tables, queue: Queue, job: int, own: Any, caution: Any) -> float:
    """Key of a job under a policy by which keys do not change."""
    if caution is not None and queue.rule.policy == _RISK:
        return _risk_under(tables, queue, job)
    return key_under(tables, queue, job, own)


@inlined
def _risk_under(tables: Tables, queue: Queue, job: int) -> float:
    outcome = tables.outcome
    expected, need = float(outcome[EXPECTED, job]), float(max(tables.jobs[NEED, job], 1))
    return risk_of(queue.weights, expected, need, outcome[UPPER, job])


@inlined
def _sort(tables: Tables, queue: Queue, low: int, size: int) -> None:
    """Sort what is between two places by insertion: the order hardly changes."""
    place, keys, tiered = queue.place, queue.key, tables.state.tiered
    for k in range(low + 1, size):
        job, demand, key = place[JOB, k], place[DEMAND, k], keys[k]
        i = k
        while i > low and (
            goes_before(tables, key, job, keys[i - 1], place[JOB, i - 1])
            if tiered
            else keys[i - 1] > key or (keys[i - 1] == key and place[JOB, i - 1] > job)
        ):
            place[JOB, i], place[DEMAND, i] = place[JOB, i - 1], place[DEMAND, i - 1]
            keys[i] = keys[i - 1]
            i -= 1
        place[JOB, i], place[DEMAND, i], keys[i] = job, demand, key


@inlined
def without_started(tables: Tables, queue: Queue) -> None:
    """Close the gaps of the jobs that have started."""
    place, keys, to = queue.place, queue.key, 0
    for k in range(queue.marks.tail):
        job = place[JOB, k]
        if tables.outcome[START, job] < 0:
            place[JOB, to], place[DEMAND, to], keys[to] = job, place[DEMAND, k], keys[k]
            to += 1
    queue.marks.tail = to
    queue.marks.head = 0


@inlined
def tidy(tables: Tables, queue: Queue) -> None:
    """Close the gaps once a fifth of a queue is gaps."""
    if 4 * queue.marks.tail > 5 * tables.state.queued + 128:
        without_started(tables, queue)


@kernel
def let_late_ones_first(tables: Tables, queue: Queue) -> bool:
    """Move jobs that have passed a fixed threshold to the front of a queue with lasting keys.

    Returns whether there were any.
    """
    state, place, keys, marks = tables.state, queue.place, queue.key, queue.marks
    moved = False
    while (
        marks.first_on_time < state.submitted
        and state.now - tables.jobs[SUBMIT, marks.first_on_time] > queue.rule.threshold.seconds
    ):
        job = marks.first_on_time
        marks.first_on_time += 1
        if tables.outcome[START, job] >= 0:
            continue
        k = marks.head
        while place[JOB, k] != job:
            k += 1
        size, demand = marks.tail - 1, place[DEMAND, k]
        for i in range(k, size):
            place[JOB, i], place[DEMAND, i] = place[JOB, i + 1], place[DEMAND, i + 1]
            keys[i] = keys[i + 1]
        insert(tables, queue, marks.head, size, -np.inf, job, demand)
        moved = True
    return moved


@inlined
def enqueue(tables: Tables, queue: Queue, job: int, demand: int, own: Any, caution: Any) -> None:
    """Put a job into a queue; keys that change are computed when they are needed.

    A job that was behind a gate may have passed the threshold there.
    """
    marks = queue.marks
    size = marks.tail
    marks.tail += 1
    if queue.rule.changes:
        queue.place[JOB, size], queue.place[DEMAND, size] = job, demand
    else:
        key = lasting_key(tables, queue, job, own, caution)
        if job < marks.first_on_time:
            key = -np.inf
        insert(tables, queue, marks.head, size, key, job, demand)
