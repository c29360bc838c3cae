"""The queue of a compiled replay: sorted by keys that last, or that are computed anew.

Late jobs have the least key and come first; then jobs of higher tiers, whatever their keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
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
    Marks,
    QueueRule,
    State,
    Threshold,
)
from cpdispatch.heuristics.policies import FIRST_KEY, NO_THRESHOLD, Policy, key_of, risk_of

_RISK, _PRIORITY = int(Policy.RISK), int(Policy.PRIORITY)


@inlined
def goes_before(
    state: State, jobs: IntArray, key: float, job: int, other_key: float, other: int
) -> bool:
    """Whether a job comes before another in a queue: it is late, of a higher tier, by its key."""
    if state.tiered and key != -np.inf and other_key != -np.inf:
        tier, other_tier = jobs[TIER, job], jobs[TIER, other]
        if tier != other_tier:
            return bool(tier > other_tier)
    return bool(key < other_key or (key == other_key and job < other))


@inlined
def insert(
    state: State, jobs: IntArray, queue: IntArray, keys: FloatArray, low: int, size: int,
    key: float, job: int, need: int,
) -> None:  # fmt: skip
    """Put a job where it belongs."""
    high, tiered = size, state.tiered
    while low < high:
        middle = (low + high) // 2
        if tiered:  # else it is what `goes_before` says of jobs of one tier, sooner
            before = goes_before(state, jobs, keys[middle], queue[JOB, middle], key, job)
        else:
            before = keys[middle] < key or (keys[middle] == key and queue[JOB, middle] < job)
        if before:
            low = middle + 1
        else:
            high = middle
    for k in range(size, low, -1):
        queue[JOB, k] = queue[JOB, k - 1]
        queue[DEMAND, k] = queue[DEMAND, k - 1]
        keys[k] = keys[k - 1]
    queue[JOB, low], queue[DEMAND, low], keys[low] = job, need, key


@inlined
def key_under(
    state: State, jobs: IntArray, outcome: IntArray, order: QueueRule, weights: FloatArray,
    job: int, own: Any,
) -> float:  # fmt: skip
    """Key of a job under a policy now."""
    state.current_job = job
    if order.policy == _PRIORITY:
        return -float(jobs[PRIORITY, job])
    expected, need = float(outcome[EXPECTED, job]), float(max(jobs[NEED, job], 1))
    submit, requested = jobs[SUBMIT, job], jobs[REQUESTED, job]
    key = key_of(order.policy, weights, state.now, submit, expected, need, requested, own)
    if np.isnan(key):
        raise ValueError("returned nan")
    return max(key, FIRST_KEY)


@kernel
def sort_anew(
    state: State, jobs: IntArray, outcome: IntArray, queue: IntArray, keys: FloatArray,
    marks: Marks, order: QueueRule, weights: FloatArray, own: Any,
) -> None:  # fmt: skip
    """Compute keys anew and sort."""
    without_started(outcome, queue, keys, marks)
    now, size = state.now, marks.tail
    for k in range(size):
        job = queue[JOB, k]
        late = is_late(jobs, job, now, order.threshold)
        keys[k] = -np.inf if late else key_under(state, jobs, outcome, order, weights, job, own)
    _sort(state, jobs, queue, keys, 0, size)


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
def let_late_ones_first_now(
    state: State, jobs: IntArray, outcome: IntArray, queue: IntArray, keys: FloatArray,
    marks: Marks, order: QueueRule, weights: FloatArray, own: Any, caution: Any,
) -> bool:  # fmt: skip
    """Move jobs that are late now to the front of a queue with lasting keys, others back.

    The threshold may have become longer. Returns whether any job has moved.
    """
    low = marks.head
    moved, size, now = False, marks.tail, state.now
    for k in range(low, size):
        job = queue[JOB, k]
        if outcome[START, job] >= 0:
            continue
        late = is_late(jobs, job, now, order.threshold)
        if late != (keys[k] == -np.inf):
            moved = True
            keys[k] = -np.inf
            if not late:
                keys[k] = lasting_key(state, jobs, outcome, order, weights, job, own, caution)
        if not late:
            after = late_after(jobs, job, order.threshold)
            state.none_late_until = min(state.none_late_until, after)
    if moved:
        _sort(state, jobs, queue, keys, low, size)
    return moved


@inlined
def lasting_key(
    state: State, jobs: IntArray, outcome: IntArray, order: QueueRule, weights: FloatArray,
    job: int, own: Any, caution: Any,
) -> float:  # fmt: skip
    """Key of a job under a policy by which keys do not change."""
    if caution is not None and order.policy == _RISK:
        return _risk_under(jobs, outcome, weights, job)
    return key_under(state, jobs, outcome, order, weights, job, own)


@inlined
def _risk_under(jobs: IntArray, outcome: IntArray, weights: FloatArray, job: int) -> float:
    expected, need = float(outcome[EXPECTED, job]), float(max(jobs[NEED, job], 1))
    return risk_of(weights, expected, need, outcome[UPPER, job])


@inlined
def _sort(
    state: State, jobs: IntArray, queue: IntArray, keys: FloatArray, low: int, size: int
) -> None:
    """Sort what is between two places by insertion: the order hardly changes."""
    tiered = state.tiered
    for k in range(low + 1, size):
        job, need, key = queue[JOB, k], queue[DEMAND, k], keys[k]
        i = k
        while i > low and (
            goes_before(state, jobs, key, job, keys[i - 1], queue[JOB, i - 1])
            if tiered
            else keys[i - 1] > key or (keys[i - 1] == key and queue[JOB, i - 1] > job)
        ):
            queue[JOB, i], queue[DEMAND, i] = queue[JOB, i - 1], queue[DEMAND, i - 1]
            keys[i] = keys[i - 1]
            i -= 1
        queue[JOB, i], queue[DEMAND, i], keys[i] = job, need, key


@kernel
def without_started(outcome: IntArray, queue: IntArray, keys: FloatArray, marks: Marks) -> None:
    """Close the gaps of the jobs that have started."""
    to = 0
    for k in range(marks.tail):
        job = queue[JOB, k]
        if outcome[START, job] < 0:
            queue[JOB, to], queue[DEMAND, to], keys[to] = job, queue[DEMAND, k], keys[k]
            to += 1
    marks.tail = to
    marks.head = 0


@inlined
def tidy(state: State, outcome: IntArray, queue: IntArray, keys: FloatArray, marks: Marks) -> None:
    """Close the gaps once a fifth of a queue is gaps."""
    if 4 * marks.tail > 5 * state.queued + 128:
        without_started(outcome, queue, keys, marks)


@kernel
def let_late_ones_first(
    state: State, jobs: IntArray, outcome: IntArray, queue: IntArray, keys: FloatArray,
    marks: Marks, threshold_s: int,
) -> bool:  # fmt: skip
    """Move jobs that have passed the threshold to the front of a queue with lasting keys.

    Returns whether there were any.
    """
    moved = False
    while (
        marks.first_on_time < state.submitted
        and state.now - jobs[SUBMIT, marks.first_on_time] > threshold_s
    ):
        job = marks.first_on_time
        marks.first_on_time += 1
        if outcome[START, job] >= 0:
            continue
        k = marks.head
        while queue[JOB, k] != job:
            k += 1
        size, demand = marks.tail - 1, queue[DEMAND, k]
        for i in range(k, size):
            queue[JOB, i], queue[DEMAND, i] = queue[JOB, i + 1], queue[DEMAND, i + 1]
            keys[i] = keys[i + 1]
        insert(state, jobs, queue, keys, marks.head, size, -np.inf, job, demand)
        moved = True
    return moved


@inlined
def enqueue(
    state: State, jobs: IntArray, outcome: IntArray, queue: IntArray, keys: FloatArray, job: int,
    demand: int, marks: Marks, order: QueueRule, weights: FloatArray, own: Any, caution: Any,
) -> None:  # fmt: skip
    """Put a job into a queue; keys that change are computed when they are needed.

    A job that was behind a gate may have passed the threshold there.
    """
    size = marks.tail
    marks.tail += 1
    if order.changes:
        queue[JOB, size], queue[DEMAND, size] = job, demand
    else:
        key = lasting_key(state, jobs, outcome, order, weights, job, own, caution)
        if job < marks.first_on_time:
            key = -np.inf
        low = marks.head
        insert(state, jobs, queue, keys, low, size, key, job, demand)
