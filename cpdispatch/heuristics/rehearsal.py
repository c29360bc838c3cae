"""What `best` would have made of jobs that have ended: a replay of them on a pool."""

from __future__ import annotations

from functools import cache
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import kernel

_NEVER = int(np.iinfo(np.int64).max)


class Rules(NamedTuple):
    """How `cpdispatch.heuristics.best.Best` orders, backfills and keeps room; see there."""

    threshold_s: int
    strict_s: int
    long_s: int
    keep: float
    width: float


class Past(NamedTuple):
    """Jobs that have ended, by submission; arrays of shape (jobs,), times in seconds."""

    submit_s: IntArray
    processors: IntArray
    requested_s: IntArray
    expected_s: IntArray
    upper_s: IntArray
    runtime_s: IntArray


def index(
    expected_s: IntArray, upper_s: IntArray, processors: IntArray, width: float
) -> FloatArray:
    """What jobs are taken in the order of, the lowest first: sqrt(m u) q^width."""
    found: FloatArray = np.sqrt(expected_s.astype(np.float64) * upper_s) * processors**width
    return found


def rehearse(past: Past, total: int, rules: Rules) -> IntArray:
    """When each job would have started under some rules, on a pool of so many processors.

    This is what a simulation with ``trigger="instant"`` gives, if predictions are the same.

    Returns
    -------
    int64 array, shape (jobs,)
    """
    key = index(past.expected_s, past.upper_s, past.processors, rules.width)
    spare = int(rules.keep * total)
    leaves = (past.expected_s > rules.long_s) & (past.processors + spare <= total)
    found: IntArray = _replay(
        past,
        past.upper_s,
        key,
        np.where(leaves, spare, 0),
        total,
        rules.threshold_s,
        rules.strict_s,
    )
    return found


def easy(past: Past, total: int) -> IntArray:
    """When each job would have started under EASY backfilling by requested times."""
    zeros = np.zeros(len(past.submit_s), dtype=np.int64)
    key = zeros.astype(np.float64)
    found: IntArray = _replay(past, past.requested_s, key, zeros, total, _NEVER, _NEVER)
    return found


@cache
def warm_up() -> None:
    """Compile what is needed, or load it from the cache, so that no decision has to."""
    none = np.zeros(1, dtype=np.int64)
    easy(Past(none, none + 1, none + 1, none + 1, none + 1, none), 1)


@kernel
def _replay(
    past: Past,
    backfill_s: IntArray,
    key: FloatArray,
    spare: IntArray,
    total: int,
    threshold_s: int,
    strict_s: int,
) -> IntArray:
    jobs = len(key)
    start_s = np.full(jobs, -1, dtype=np.int64)
    end_s = np.empty(jobs, dtype=np.int64)
    ends = [(_NEVER, -1)]
    running, queue, order = np.empty((3, jobs), dtype=np.int64)
    active = waiting = submitted = 0
    free = total
    while submitted < jobs or active > 0:
        now = ends[0][0]
        if submitted < jobs:
            now = min(now, past.submit_s[submitted])
        while ends[0][0] == now:
            job = heappop(ends)[1]
            free += past.processors[job]
            active = _remove(running, active, job)
        while submitted < jobs and past.submit_s[submitted] == now:
            waiting = _insert(queue, waiting, submitted, key)
            submitted += 1
        late, longest_s = _order(now, past.submit_s, queue, waiting, threshold_s, order)
        limit_s = past.requested_s if longest_s > strict_s else backfill_s
        reserved = False
        shadow, extra = _NEVER, 0
        for k in range(waiting):
            if free == 0:
                break
            job = order[k]
            ask, kept = past.processors[job], 0 if k < late else spare[job]
            fits = ask + kept <= free
            if not reserved and not fits:
                reserved = True
                shadow, extra = _reserve(
                    now, past, limit_s, running, active, start_s, free, ask, kept
                )
            elif fits:
                outlives = now + limit_s[job] > shadow
                if outlives and ask > extra:
                    continue
                extra -= ask * outlives
                free -= ask
                start_s[job] = now
                heappush(ends, (now + past.runtime_s[job], job))
                end_s[job] = now + past.requested_s[job]
                active = _insert(running, active, job, end_s)
        waiting = _waiting(queue, waiting, start_s)
    return start_s


@kernel
def _remove(jobs: IntArray, count: int, job: int) -> int:
    k = 0
    while jobs[k] != job:
        k += 1
    jobs[k : count - 1] = jobs[k + 1 : count].copy()
    return count - 1


@kernel
def _insert(jobs: IntArray, count: int, job: int, key: FloatArray | IntArray) -> int:
    """Put a job behind all whose key is not higher."""
    k = count
    while k > 0 and key[jobs[k - 1]] > key[job]:
        jobs[k] = jobs[k - 1]
        k -= 1
    jobs[k] = job
    return count + 1


@kernel
def _order(
    now: int,
    submit_s: IntArray,
    queue: IntArray,
    waiting: int,
    threshold_s: int,
    order: IntArray,
) -> tuple[int, int]:
    """Write the order of the queue: late jobs by submission, then the others as they stand.

    Returns how many are late, and the longest wait so far.
    """
    late = longest_s = 0
    for k in range(waiting):
        waited_s = now - submit_s[queue[k]]
        longest_s = max(longest_s, waited_s)
        if waited_s > threshold_s:
            order[late] = queue[k]
            late += 1
    order[:late].sort()
    at = late
    for k in range(waiting):
        if now - submit_s[queue[k]] <= threshold_s:
            order[at] = queue[k]
            at += 1
    return late, longest_s


@kernel
def _reserve(
    now: int,
    past: Past,
    limit_s: IntArray,
    running: IntArray,
    active: int,
    start_s: IntArray,
    free: int,
    ask: int,
    kept: int,
) -> tuple[int, int]:
    """The shadow time of a job, and the processors that it leaves free then.

    Running jobs are taken to end at their requested times; those that start now, at their limits.
    """
    end_s, held = np.empty((2, active), dtype=np.int64)
    for k in range(active):
        job = running[k]
        last_s = limit_s[job] if start_s[job] == now else past.requested_s[job]
        end, at = max(start_s[job] + last_s, now + 1), k
        while at > 0 and end_s[at - 1] > end:
            end_s[at], held[at] = end_s[at - 1], held[at - 1]
            at -= 1
        end_s[at], held[at] = end, past.processors[job]
    for k in range(active):
        free += held[k]
        if free >= ask + kept and (k + 1 == active or end_s[k + 1] > end_s[k]):
            return end_s[k], free - ask
    return _NEVER, 0


@kernel
def _waiting(queue: IntArray, waiting: int, start_s: IntArray) -> int:
    """Leave out of the queue what has started; returns how many wait on."""
    kept = 0
    for k in range(waiting):
        if start_s[queue[k]] < 0:
            queue[kept] = queue[k]
            kept += 1
    return kept
