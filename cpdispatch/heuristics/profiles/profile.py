"""The resource profile: what is free over time, in rows of segments; compiled kernels.

What looks up and splits a segment is compiled into its callers: as calls, both made the branch and
bound of `cpdispatch.models.pooled` 30 % slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import allocating, inlined, kernel

FOREVER = int(np.iinfo(np.int64).max // 2)


class Profile(NamedTuple):
    """Rows of segments, changed in place. Every row begins at the same time and never ends.

    A row has room for some columns. Kernels that begin segments do not check that they suffice.
    """

    segments: IntArray
    """Number of segments of each row, shape (rows,)."""
    time: IntArray
    """Begin of each segment, shape (rows, columns); ascending."""
    free: IntArray
    """Free capacity until the next segment begins, shape (rows, columns, amounts)."""


@allocating
def empty(rows: int, columns: int, amounts: int) -> Profile:
    """A profile whose rows have no segment yet."""
    return Profile(
        np.zeros(rows, dtype=np.int64),
        np.empty((rows, columns), dtype=np.int64),
        np.empty((rows, columns, amounts), dtype=np.int64),
    )


def one_row(time: IntArray, free: IntArray) -> Profile:
    """A profile of one row, which shares these arrays.

    Parameters
    ----------
    time : int64 array, shape (segments,)
    free : int64 array, shape (segments, amounts)
    """
    return Profile(np.array([len(time)]), time[None], free[None])


def times(profile: Profile, row: int) -> IntArray:
    """When the segments of a row begin."""
    return profile.time[row, : profile.segments[row]]


def sampled(profile: Profile, row: int, time: IntArray) -> IntArray:
    """What a row has free at some instants, shape (instants, amounts)."""
    segment = np.searchsorted(times(profile, row), time, side="right") - 1
    free: IntArray = profile.free[row, segment]
    return free


@kernel
def copy_row(source: Profile, c: int, target: Profile, d: int) -> None:
    """Make a row of the target equal to one of the source."""
    target.segments[d] = source.segments[c]
    for k in range(source.segments[c]):
        target.time[d, k] = source.time[c, k]
        for r in range(source.free.shape[2]):
            target.free[d, k, r] = source.free[c, k, r]


@inlined
def segment_at(time: IntArray, segments: int, at: int) -> int:
    """The segment of a row that an instant lies in: the last one that begins no later."""
    low, high = 0, segments
    while high - low > 1:
        middle = (low + high) // 2
        if time[middle] <= at:
            low = middle
        else:
            high = middle
    return low


@inlined
def split(profile: Profile, row: int, at: int) -> int:
    """The segment of a row that begins at an instant; it is made if there is none."""
    time, free, segments = profile.time[row], profile.free[row], profile.segments[row]
    k = segment_at(time, segments, at)
    if time[k] == at:
        return k
    for i in range(segments, k, -1):
        time[i] = time[i - 1]
        for r in range(free.shape[1]):
            free[i, r] = free[i - 1, r]
    time[k + 1] = at
    profile.segments[row] = segments + 1
    return k + 1


@kernel
def hold(profile: Profile, row: int, start: int, end: int, ask: IntArray, units: int) -> None:
    """Take some units of a request out of a row over [start, end)."""
    first = split(profile, row, start)
    last = split(profile, row, end)
    free = profile.free[row]
    for k in range(first, last):
        for r in range(free.shape[1]):
            free[k, r] -= units * ask[r]


@kernel
def earliest(
    profile: Profile, row: int, ask: IntArray, duration: int, not_before: int
) -> tuple[int, int]:
    """First start, ``not_before`` at the earliest, from which a row has room for a whole duration.

    Returns it, `FOREVER` if there is none, and the work, in segments looked at.
    """
    time, free, segments = profile.time[row], profile.free[row], profile.segments[row]
    k = segment_at(time, segments, not_before)
    start, looked = not_before, 1
    while True:
        enough = True
        for r in range(ask.shape[0]):
            if free[k, r] < ask[r]:
                enough = False
                break
        k += 1
        looked += 1
        if not enough:
            start = time[k] if k < segments else FOREVER
        if k == segments or time[k] >= start + duration:
            return start, looked
