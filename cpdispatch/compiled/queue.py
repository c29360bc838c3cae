"""The queue of a compiled replay: sorted by keys that last, or that are computed anew.

Late jobs have the least key and come first; then jobs of higher tiers, whatever their keys.
"""

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
    NONE_LATE,
    NOW,
    PRIORITY,
    QUEUED,
    REQUESTED,
    SHARE,
    START,
    SUBMIT,
    TIER,
    TIERED,
    UPPER,
    WANTS,
    WHO,
)
from cpdispatch.heuristics.policies import FIRST_KEY, NO_THRESHOLD, Policy, key_of, risk_of

_RISK, _PRIORITY = int(Policy.RISK), int(Policy.PRIORITY)


@inlined
def goes_before(
    at: IntArray, given: IntArray, key: float, job: int, other_key: float, other: int
) -> bool:
    """Whether a job comes before another in a queue: it is late, of a higher tier, by its key."""
    if at[TIERED] and key != -np.inf and other_key != -np.inf:
        tier, other_tier = given[TIER, job], given[TIER, other]
        if tier != other_tier:
            return bool(tier > other_tier)
    return bool(key < other_key or (key == other_key and job < other))


@inlined
def insert(
    at: IntArray, given: IntArray, queue: IntArray, keys: FloatArray, low: int, size: int,
    key: float, job: int, need: int,
) -> None:  # fmt: skip
    """Put a job where it belongs."""
    high, tiered = size, at[TIERED] != 0
    while low < high:
        middle = (low + high) // 2
        if tiered:  # else it is what `goes_before` says of jobs of one tier, sooner
            before = goes_before(at, given, keys[middle], queue[WHO, middle], key, job)
        else:
            before = keys[middle] < key or (keys[middle] == key and queue[WHO, middle] < job)
        if before:
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
    if policy == _PRIORITY:
        return -float(given[PRIORITY, job])
    expected, need = float(fate[EXPECTED, job]), float(max(given[NEED, job], 1))
    submit, requested = given[SUBMIT, job], given[REQUESTED, job]
    key = key_of(policy, weights, at[NOW], submit, expected, need, requested, own)
    if np.isnan(key):
        raise ValueError("returned nan")
    return max(key, FIRST_KEY)


@kernel
def sort_anew(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    policy: int, weights: FloatArray, threshold_s: int, wide: int, own: Any, size_at: int,
) -> None:  # fmt: skip
    """Compute keys anew and sort."""
    without_started(at, fate, queue, keys, size_at)
    now, size = at[NOW], at[size_at]
    for k in range(size):
        job = queue[WHO, k]
        late = is_late(given, job, now, threshold_s, wide)
        keys[k] = -np.inf if late else key_under(at, given, fate, policy, weights, job, own)
    _sort(at, given, queue, keys, 0, size)


@inlined
def shortened(seconds: int, wide: int, share: int) -> int:
    """A threshold for a job that asks for a share of the system, see `Starvation.shortened_s`."""
    return seconds * (1000 - wide * share // 1000) // 1000


@inlined
def is_late(given: IntArray, job: int, now: int, threshold_s: int, wide: int) -> bool:
    """Whether a job has passed a threshold."""
    if threshold_s == NO_THRESHOLD:
        return False
    return bool(now - given[SUBMIT, job] > shortened(threshold_s, wide, given[SHARE, job]))


@kernel
def let_late_ones_first_now(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray,
    policy: int, weights: FloatArray, threshold_s: int, wide: int, own: Any, care: Any,
    size_at: int,
) -> bool:  # fmt: skip
    """Move jobs that are late now to the front of a queue with lasting keys, others back.

    The threshold may have become longer. Returns whether any job has moved.
    """
    low = at[HEAD] if size_at == FIRST_SIZE else 0
    moved, size, now = False, at[size_at], at[NOW]
    for k in range(low, size):
        job = queue[WHO, k]
        if fate[START, job] >= 0:
            continue
        late = is_late(given, job, now, threshold_s, wide)
        if late != (keys[k] == -np.inf):
            moved = True
            keys[k] = -np.inf
            if not late:
                keys[k] = lasting_key(at, given, fate, policy, weights, job, own, care)
        if not late:
            due = given[SUBMIT, job] + shortened(threshold_s, wide, given[SHARE, job])
            at[NONE_LATE] = min(at[NONE_LATE], due)
    if moved:
        _sort(at, given, queue, keys, low, size)
    return moved


@inlined
def lasting_key(
    at: IntArray, given: IntArray, fate: IntArray, policy: int, weights: FloatArray, job: int,
    own: Any, care: Any,
) -> float:  # fmt: skip
    """Key of a job under a policy by which keys do not change."""
    if care is not None and policy == _RISK:
        return _risk_under(given, fate, weights, job)
    return key_under(at, given, fate, policy, weights, job, own)


@inlined
def _risk_under(given: IntArray, fate: IntArray, weights: FloatArray, job: int) -> float:
    expected, need = float(fate[EXPECTED, job]), float(max(given[NEED, job], 1))
    return risk_of(weights, expected, need, fate[UPPER, job])


@inlined
def _sort(
    at: IntArray, given: IntArray, queue: IntArray, keys: FloatArray, low: int, size: int
) -> None:
    """Sort what is between two places by insertion: the order hardly changes."""
    tiered = at[TIERED] != 0
    for k in range(low + 1, size):
        job, need, key = queue[WHO, k], queue[WANTS, k], keys[k]
        i = k
        while i > low and (
            goes_before(at, given, key, job, keys[i - 1], queue[WHO, i - 1])
            if tiered
            else keys[i - 1] > key or (keys[i - 1] == key and queue[WHO, i - 1] > job)
        ):
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
        insert(at, given, queue, keys, at[HEAD], size, -np.inf, job, wants)
        moved = True
    return moved


@inlined
def enqueue(
    at: IntArray, given: IntArray, fate: IntArray, queue: IntArray, keys: FloatArray, job: int,
    policy: int, weights: FloatArray, changes: int, own: Any, size_at: int, wants: int, care: Any,
) -> None:  # fmt: skip
    """Put a job into a queue; keys that change are computed when they are needed.

    A job that was behind a gate may have passed the threshold there.
    """
    size = at[size_at]
    at[size_at] += 1
    if changes:
        queue[WHO, size], queue[WANTS, size] = job, wants
    else:
        key = lasting_key(at, given, fate, policy, weights, job, own, care)
        if size_at == FIRST_SIZE and job < at[LATE]:
            key = -np.inf
        low = at[HEAD] if size_at == FIRST_SIZE else 0
        insert(at, given, queue, keys, low, size, key, job, wants)
