"""Predictions inside compiled replays: runtimes remembered by key, or values known beforehand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.compile import kernel
from cpdispatch.jobs import UNKNOWN

GIVEN, MEAN_OF_TWO, FIRST_MATCH = 0, 1, 2
_NOTHING = -1


class Memory(NamedTuple):
    """What a predictor of this kind knows at a moment of a replay."""

    kind: int
    given: IntArray
    """Prediction of each job, shape (jobs,), where it is known beforehand."""
    key: IntArray
    """Keys of each job in the order in which they are tried, shape (keys, jobs); -1 for none."""
    last: IntArray
    """Runtime of the job that ended last under each key; -1 for none."""
    before: IntArray
    """Runtime of the one before it."""


def given(seconds: IntArray) -> Memory:
    """Predictions that are known beforehand, such as requested times."""
    none = np.empty(0, dtype=np.int64)
    return Memory(GIVEN, _known(seconds), none.reshape(0, 0), none, none.copy())


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
    return Memory(kind, _known(np.empty(0, dtype=np.int64)), np.stack(keys), none, none.copy())


def take(memory: Memory, rows: IntArray | slice) -> Memory:
    """The memory of these jobs alone."""
    given = _known(memory.given[rows]) if memory.kind == GIVEN else memory.given
    key = memory.key if memory.kind == GIVEN else np.ascontiguousarray(memory.key[:, rows])
    return memory._replace(given=given, key=key)


def _known(seconds: IntArray) -> IntArray:
    """Predictions as kernels take them, read-only: one compilation serves all kinds of memory."""
    return sealed(np.ascontiguousarray(seconds)[:])


@kernel
def expect(memory: Memory, job: int, requested: int) -> int:
    """Expected duration of a job at its submission: 1 s or more, the requested time at most."""
    seconds = requested
    if memory.kind == GIVEN:
        seconds = memory.given[job]
    else:
        for k in range(memory.key.shape[0]):
            key = memory.key[k, job]
            if key < 0 or memory.last[key] < 0:
                continue
            if memory.kind == FIRST_MATCH:
                seconds = memory.last[key]
                break
            if memory.before[key] >= 0:
                seconds = (memory.last[key] + memory.before[key]) // 2
    return max(1, min(seconds, requested))


@kernel
def remember(memory: Memory, job: int, runtime: int) -> None:
    """Take note of the runtime of a job that has just ended."""
    for k in range(memory.key.shape[0]):
        key = memory.key[k, job]
        if key >= 0:
            memory.before[key] = memory.last[key]
            memory.last[key] = runtime
