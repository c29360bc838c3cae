"""The queue of a compiled replay: sorted by keys that last, or that are computed anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.heuristics.policies import NO_THRESHOLD, key_of
from cpdispatch.simulate.compiled.layout import (
    CURRENT,
    EXPECTED,
    LATE,
    NEED,
    NEXT,
    NOW,
    QUEUED,
    START,
    SUBMIT,
    WANTS,
    WHO,
)


@inlined
def insert(queue: IntArray, keys: FloatArray, size: int, key: float, job: int, need: int) -> None:
    """Put a job where (key, job) belongs."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key or (keys[middle] == key and queue[WHO, middle] < job):
            low = middle + 1
        else:
            high = middle
    for k in range(size, low, -1):
        queue[WHO, k] = queue[WHO, k - 1]
        queue[WANTS, k] = queue[WANTS, k - 1]
        keys[k] = keys[k - 1]
    queue[WHO, low], queue[WANTS, low], keys[low] = job, need, key


@inlined
def _key(
    at: IntArray, given: IntArray, fate: IntArray, policy: int, weights: FloatArray, job: int,
    own: Any,
) -> float:  # fmt: skip
    at[CURRENT] = job
    expected, need = float(fate[EXPECTED, job]), float(max(given[NEED, job], 1))
    key = key_of(policy, weights, at[NOW], given[SUBMIT, job], expected, need, own)
    if np.isnan(key):
        raise ValueError("returned nan")
    return key


@kernel
def sort_anew(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    policy: int, weights: FloatArray, threshold_s: int, own: Any,
) -> None:  # fmt: skip
    """Compute keys anew and sort by insertion: the order hardly changes between two dispatches."""
    now, size = at[NOW], at[QUEUED]
    for k in range(size):
        job = queue[WHO, k]
        late = threshold_s != NO_THRESHOLD and now - given[SUBMIT, job] > threshold_s
        keys[k] = -np.inf if late else _key(at, given, fate, policy, weights, job, own)
    for k in range(1, size):
        job, need, key = queue[WHO, k], queue[WANTS, k], keys[k]
        i = k
        while i > 0 and (keys[i - 1] > key or (keys[i - 1] == key and queue[WHO, i - 1] > job)):
            queue[WHO, i], queue[WANTS, i] = queue[WHO, i - 1], queue[WANTS, i - 1]
            keys[i] = keys[i - 1]
            i -= 1
        queue[WHO, i], queue[WANTS, i], keys[i] = job, need, key


@inlined
def without_started(fate: IntArray, queue: IntArray, keys: FloatArray, size: int) -> None:
    """Close the gaps of the jobs that have started."""
    to = 0
    for k in range(size):
        job = queue[WHO, k]
        if fate[START, job] < 0:
            queue[WHO, to], queue[WANTS, to], keys[to] = job, queue[WANTS, k], keys[k]
            to += 1


@kernel
def let_late_ones_first(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    threshold_s: int,
) -> None:  # fmt: skip
    """Move jobs that have passed the threshold to the front of a queue with lasting keys."""
    while at[LATE] < at[NEXT] and at[NOW] - given[SUBMIT, at[LATE]] > threshold_s:
        job = at[LATE]
        at[LATE] += 1
        if fate[START, job] >= 0:
            continue
        k = 0
        while queue[WHO, k] != job:
            k += 1
        for i in range(k, at[QUEUED] - 1):
            queue[WHO, i], queue[WANTS, i] = queue[WHO, i + 1], queue[WANTS, i + 1]
            keys[i] = keys[i + 1]
        insert(queue, keys, at[QUEUED] - 1, -np.inf, job, given[NEED, job])


@inlined
def enqueue(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray, job: int,
    policy: int, weights: FloatArray, changes: int, own: Any,
) -> None:  # fmt: skip
    """Put a job into a queue; keys that change are computed when they are needed."""
    size = at[QUEUED]
    if changes:
        queue[WHO, size], queue[WANTS, size] = job, given[NEED, job]
    else:
        key = _key(at, given, fate, policy, weights, job, own)
        insert(queue, keys, size, key, job, given[NEED, job])
