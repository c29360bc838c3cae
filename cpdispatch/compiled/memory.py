"""Predictions inside compiled replays: runtimes remembered by key, or values known beforehand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray, sealed_view
from cpdispatch.compile import kernel
from cpdispatch.jobs import UNKNOWN

BEFOREHAND, MEAN_OF_TWO, FIRST_MATCH, UNLESS_USED_UP = range(4)
SHARE_OF = 1_000_000
USED_UP = 3 * 800_000
"""Sum of three shares of requested times, in millionths, from which on these are used up."""
_NOTHING = -1


class Memory(NamedTuple):
    """What a predictor of this kind knows at a moment of a replay."""

    kind: int
    seconds: IntArray
    """Prediction of each job, shape (jobs,), where it is known beforehand; `UNLESS_USED_UP`: its
    requested time."""
    key: IntArray
    """Keys of each job in the order in which they are tried, shape (keys, jobs); -1 for none.
    `UNLESS_USED_UP`: the last row is the first of the two keys under which the shares of requested
    times are that the user's jobs ran for, in millionths: the last two, and the one before them."""
    last: IntArray
    """Runtime of the job that ended last under each key; -1 for none."""
    before: IntArray
    """Runtime of the one before it."""


def beforehand(seconds: IntArray) -> Memory:
    """Predictions that are known beforehand, such as requested times."""
    none = np.empty(0, dtype=np.int64)
    return Memory(BEFOREHAND, sealed_view(seconds), none.reshape(0, 0), none, none.copy())


def by_key(kind: int, columns: list[list[IntArray]], known: IntArray) -> Memory:
    """A memory whose n-th key of a job is its values in the n-th group of columns.

    Parameters
    ----------
    kind : int
        `MEAN_OF_TWO` of the last runtimes under the first key, or the last runtime under the
        `FIRST_MATCH` of the keys.
    columns : list of list of int array, shape (jobs,)
    known : bool array, shape (jobs,)
        Which jobs have keys at all.
    """
    keys, total = [], 0
    for group in columns:
        _, codes = np.unique(np.stack(group), axis=1, return_inverse=True)
        keys.append(np.where(known, codes.reshape(-1) + total, UNKNOWN))
        total += int(codes.max(initial=-1)) + 1
    none = np.full(total, _NOTHING, dtype=np.int64)
    return Memory(kind, sealed_view(np.empty(0, dtype=np.int64)), np.stack(keys), none, none.copy())


def unless_used_up(matches: Memory, user: IntArray, requested_s: IntArray) -> Memory:
    """A memory of first matches that holds users to requested times that they use up.

    Parameters
    ----------
    user, requested_s : int array, shape (jobs,)
        Whose each job is, -1 for nobody's, and what it requests.
    """
    _, codes = np.unique(user, return_inverse=True)
    total = len(matches.last)
    key = np.where(user != UNKNOWN, total + 2 * codes.reshape(-1), UNKNOWN)
    none = np.full(total + 2 * int(codes.max(initial=-1) + 1), _NOTHING, dtype=np.int64)
    return Memory(
        UNLESS_USED_UP,
        sealed_view(requested_s),
        np.concatenate((matches.key, [key])),
        none,
        none.copy(),
    )


def take(memory: Memory, rows: IntArray | slice) -> Memory:
    """The memory of these jobs alone."""
    seconds = sealed_view(memory.seconds[rows]) if len(memory.seconds) else memory.seconds
    key = np.ascontiguousarray(memory.key[:, rows]) if memory.key.size else memory.key
    return memory._replace(seconds=seconds, key=key)


@kernel
def expect(memory: Memory, job: int, requested: int) -> int:
    """Expected duration of a job at its submission: 1 s or more, the requested time at most."""
    seconds, keys = requested, memory.key.shape[0]
    if memory.kind == UNLESS_USED_UP:
        keys -= 1
        user = memory.key[keys, job]
        three = user >= 0 and memory.last[user + 1] >= 0
        if three and memory.last[user] + memory.before[user] + memory.last[user + 1] >= USED_UP:
            return max(1, requested)
    if memory.kind == BEFOREHAND:
        seconds = memory.seconds[job]
    else:
        for k in range(keys):
            key = memory.key[k, job]
            if key < 0 or memory.last[key] < 0:
                continue
            if memory.kind != MEAN_OF_TWO:
                seconds = memory.last[key]
                break
            if memory.before[key] >= 0:
                seconds = (memory.last[key] + memory.before[key]) // 2
    return max(1, min(seconds, requested))


@kernel
def remember(memory: Memory, job: int, runtime: int) -> None:
    """Take note of the runtime of a job that has just ended."""
    keys = memory.key.shape[0]
    for k in range(keys):
        key = memory.key[k, job]
        if key >= 0:
            if memory.kind == UNLESS_USED_UP and k == keys - 1:
                memory.last[key + 1] = memory.before[key]
                runtime = runtime * SHARE_OF // max(1, memory.seconds[job])
            memory.before[key] = memory.last[key]
            memory.last[key] = runtime
