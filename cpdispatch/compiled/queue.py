"""The queue of a compiled replay: sorted by keys that last, or that are computed anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    CURRENT,
    EXPECTED,
    FIRST_SIZE,
    HEAD,
    LATE,
    NEED,
    NEXT,
    NOW,
    QUEUED,
    REQUESTED,
    START,
    SUBMIT,
    UPPER,
    WANTS,
    WHO,
)
from cpdispatch.heuristics.policies import NO_THRESHOLD, Policy, key_of, risk_of

_RISK = int(Policy.RISK)


@inlined
def insert(
    queue: IntArray, keys: FloatArray, low: int, size: int, key: float, job: int, need: int
) -> None:
    """Put a job where (key, job) belongs."""
    high = size
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
def key_under(
    at: IntArray, given: IntArray, fate: IntArray, policy: int, weights: FloatArray, job: int,
    own: Any,
) -> float:  # fmt: skip
    """Key of a job under a policy now."""
    at[CURRENT] = job
    expected, need = float(fate[EXPECTED, job]), float(max(given[NEED, job], 1))
    submit, requested = given[SUBMIT, job], given[REQUESTED, job]
    key = key_of(policy, weights, at[NOW], submit, expected, need, requested, own)
    if np.isnan(key):
        raise ValueError("returned nan")
    return key


@kernel
def sort_anew(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    policy: int, weights: FloatArray, threshold_s: int, own: Any, size_at: int,
) -> None:  # fmt: skip
    """Compute keys anew and sort."""
    without_started(at, fate, queue, keys, size_at)
    now, size = at[NOW], at[size_at]
    for k in range(size):
        job = queue[WHO, k]
        late = threshold_s != NO_THRESHOLD and now - given[SUBMIT, job] > threshold_s
        keys[k] = -np.inf if late else key_under(at, given, fate, policy, weights, job, own)
    _sort(queue, keys, size)


@kernel
def sort_by_risk(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    weights: FloatArray, threshold_s: int,
) -> None:  # fmt: skip
    """Sort the first queue by other weights of the risk and another threshold."""
    without_started(at, fate, queue, keys, FIRST_SIZE)
    for k in range(at[FIRST_SIZE]):
        job = queue[WHO, k]
        late = at[NOW] - given[SUBMIT, job] > threshold_s
        keys[k] = -np.inf if late else _risk_under(given, fate, weights, job)
    _sort(queue, keys, at[FIRST_SIZE])


@inlined
def _risk_under(given: IntArray, fate: IntArray, weights: FloatArray, job: int) -> float:
    expected, need = float(fate[EXPECTED, job]), float(max(given[NEED, job], 1))
    return risk_of(weights, expected, need, fate[UPPER, job])


@inlined
def _sort(queue: IntArray, keys: FloatArray, size: int) -> None:
    """Sort by insertion: the order hardly changes."""
    for k in range(1, size):
        job, need, key = queue[WHO, k], queue[WANTS, k], keys[k]
        i = k
        while i > 0 and (keys[i - 1] > key or (keys[i - 1] == key and queue[WHO, i - 1] > job)):
            queue[WHO, i], queue[WANTS, i] = queue[WHO, i - 1], queue[WANTS, i - 1]
            keys[i] = keys[i - 1]
            i -= 1
        queue[WHO, i], queue[WANTS, i], keys[i] = job, need, key


@kernel
def without_started(
    at: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray, size_at: int
) -> None:
    """Close the gaps of the jobs that have started."""
    to = 0
    for k in range(at[size_at]):
        job = queue[WHO, k]
        if fate[START, job] < 0:
            queue[WHO, to], queue[WANTS, to], keys[to] = job, queue[WANTS, k], keys[k]
            to += 1
    at[size_at] = to
    if size_at == FIRST_SIZE:
        at[HEAD] = 0


@inlined
def tidy(at: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray, size_at: int) -> None:
    """Close the gaps once a fifth of a queue is gaps."""
    if 4 * at[size_at] > 5 * at[QUEUED] + 128:
        without_started(at, fate, queue, keys, size_at)


@kernel
def let_late_ones_first(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    threshold_s: int,
) -> bool:  # fmt: skip
    """Move jobs that have passed the threshold to the front of a queue with lasting keys.

    Returns whether there were any.
    """
    moved = False
    while at[LATE] < at[NEXT] and at[NOW] - given[SUBMIT, at[LATE]] > threshold_s:
        job = at[LATE]
        at[LATE] += 1
        if fate[START, job] >= 0:
            continue
        k = at[HEAD]
        while queue[WHO, k] != job:
            k += 1
        size, wants = at[FIRST_SIZE] - 1, queue[WANTS, k]
        for i in range(k, size):
            queue[WHO, i], queue[WANTS, i] = queue[WHO, i + 1], queue[WANTS, i + 1]
            keys[i] = keys[i + 1]
        insert(queue, keys, at[HEAD], size, -np.inf, job, wants)
        moved = True
    return moved


@inlined
def enqueue(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray, job: int,
    policy: int, weights: FloatArray, changes: int, own: Any, size_at: int, wants: int, care: Any,
) -> None:  # fmt: skip
    """Put a job into a queue; keys that change are computed when they are needed."""
    size = at[size_at]
    at[size_at] += 1
    if changes:
        queue[WHO, size], queue[WANTS, size] = job, wants
    else:
        if care is not None and policy == _RISK:
            key = _risk_under(given, fate, weights, job)
        else:
            key = key_under(at, given, fate, policy, weights, job, own)
        low = at[HEAD] if size_at == FIRST_SIZE else 0
        insert(queue, keys, low, size, key, job, wants)
