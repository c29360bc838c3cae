"""Compiled schedules on the nodes: each job's earliest start alone, and all jobs in an order."""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import kernel
from cpdispatch.heuristics.kernels import Placed, nothing_placed, place_next
from cpdispatch.heuristics.plan import Profile, earliest, hold
from cpdispatch.jobs import Column

_UNITS, _EXPECTED, _REQUEST = int(Column.UNITS), int(Column.EXPECTED), int(Column.REQUEST)
_FOREVER = int(np.iinfo(np.int64).max)
SPLITS = 2
"""Segments that a job adds to a profile at most: one begins at its start, one at its end."""


@kernel
def each_earliest(profile: Profile, block: IntArray, watts: IntArray) -> IntArray:
    """Earliest start of each job if it were alone, shape (jobs,).

    Parameters
    ----------
    profile : Profile
        Its last segment must have room for each job.
    block : int64 array
        The jobs, laid out as in `cpdispatch.jobs.Column`.
    watts : int64 array, shape (jobs,)
    """
    jobs = block.shape[1]
    start = np.empty(jobs, dtype=np.int64)
    M = np.empty(profile.free.shape[1:], dtype=np.int64)
    for j in range(jobs):
        ask, units, duration = block[_REQUEST:, j], block[_UNITS, j], block[_EXPECTED, j]
        start[j] = earliest(profile, ask, units, watts[j], duration, _FOREVER, M)
    return start


@kernel
def schedule_in_order(
    profile: Profile, capacity: IntArray, block: IntArray, watts: IntArray, order: IntArray
) -> tuple[IntArray, Placed]:
    """Each job in turn as early as it fits, on the fullest nodes that can hold it.

    Schedule or postpone: no job is delayed by one that comes after it in ``order``.

    Parameters
    ----------
    profile : Profile
        Taken apart in the course; its last segment must have room for each job, and its arrays
        for `SPLITS` more segments a job.
    capacity : int64 array, shape (nodes, resources)
        What the nodes are made of: how full they are is measured against it.
    block, watts : int64 arrays
        The jobs, as for `each_earliest`.
    order : int64 array, shape (jobs,)

    Returns
    -------
    start : int64 array, shape (jobs,)
    placed : Placed
        One entry list a job, in the order of ``order``.

    References
    ----------
    Galleguillos, "Constraint programming-based job dispatching for modern HPC applications",
    2020, algorithm 4: the placement of a job's units.
    """
    start = np.empty(block.shape[1], dtype=np.int64)
    M = np.empty(capacity.shape, dtype=np.int64)
    placed = nothing_placed(order.shape[0])
    for k in range(order.shape[0]):
        j = order[k]
        ask, units, duration = block[_REQUEST:, j], block[_UNITS, j], block[_EXPECTED, j]
        begin = earliest(profile, ask, units, watts[j], duration, _FOREVER, M)
        placed = place_next(placed, j, M, capacity, ask, units, True)
        entries = slice(placed.offset[k], placed.offset[k + 1])
        node, count = placed.node[entries], placed.units[entries]
        hold(profile, begin, begin + duration, ask, node, count, watts[j], -1)
        start[j] = begin
    return start, placed
