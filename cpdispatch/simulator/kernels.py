"""Compiled kernels of the simulated cluster: its arrays changed, copied, and decisions applied.

A job is a column. Queued and running ones have a block, see `cpdispatch.jobs.Column`, and hidden
rows beside it that no snapshot holds: ``queue_hidden`` the job's row in the workload and the number
of its queue; ``run_hidden`` the row, the steps of corrections so far, and the real end. ``times``
of the running jobs are start, expected end, whether it is overdue, and the bound of the start.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import ByteArray, IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.compiled.correction import MINIMAL, corrected
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.decision import Reason
from cpdispatch.jobs import Column
from cpdispatch.simulator.records import NOT_STARTED as _NOT_STARTED
from cpdispatch.simulator.records import note_starts

ROW, QUEUE_CODE = 0, 1
STEP, REAL_END = 1, 2
_SUBMIT, _UNITS, _REQUESTED = int(Column.SUBMIT), int(Column.UNITS), int(Column.REQUESTED)
_EXPECTED, _UPPER = int(Column.EXPECTED), int(Column.UPPER)
_EWT, _REQUEST = int(Column.EWT), int(Column.REQUEST)
_RESERVED, _REJECTED = int(Reason.RESERVED), int(Reason.REJECTED)
NEVER = int(np.iinfo(np.int64).max)
UNSOUND = -1


@kernel
def correct(
    now: int, correction: int, block: IntArray, times: IntArray, hidden: IntArray, count: int
) -> int:
    """Give running jobs that outlived their expected end a new one, later than ``now``.

    See `corrected`. A job that really ends now is left alone. Returns the earliest expected end.
    """
    earliest = NEVER
    for i in range(count):
        if times[1, i] <= now < hidden[REAL_END, i]:
            limit = times[0, i] + block[_REQUESTED, i]
            if correction == MINIMAL or limit <= now:
                times[2, i] = 1
            times[1, i], hidden[STEP, i] = corrected(
                now, correction, times[1, i], limit, hidden[STEP, i]
            )
        earliest = min(earliest, times[1, i])
    return earliest


@kernel
def begin(
    now: int,
    queue: IntArray,
    queue_hidden: IntArray,
    run: IntArray,
    times: IntArray,
    run_hidden: IntArray,
    running: int,
    offset: IntArray,
    entries: IntArray,
    free: IntArray,
    position: IntArray,
    real_end: IntArray,
    placed_offset: IntArray,
    placed_node: IntArray,
    placed_units: IntArray,
    wait_sum: IntArray,
    wait_count: IntArray,
) -> int:
    """Move the jobs at these queue positions to the running ones and take their capacity.

    Returns the earliest of their expected ends.
    """
    earliest = NEVER
    for k in range(position.shape[0]):
        j = position[k]
        i = running + k
        for row in range(run.shape[0]):
            run[row, i] = queue[row, j]
        times[0, i], times[1, i] = now, now + queue[_EXPECTED, j]
        times[2, i] = times[3, i] = 0
        earliest = min(earliest, times[1, i])
        run_hidden[ROW, i], run_hidden[STEP, i] = queue_hidden[ROW, j], 0
        run_hidden[REAL_END, i] = real_end[k]
        low = offset[i]
        count = placed_offset[k + 1] - placed_offset[k]
        for e in range(count):
            node = placed_node[placed_offset[k] + e]
            many = placed_units[placed_offset[k] + e]
            entries[0, low + e], entries[1, low + e] = node, many
            for r in range(free.shape[1]):
                free[node, r] -= many * queue[_REQUEST + r, j]
        offset[i + 1] = low + count
        code = queue_hidden[QUEUE_CODE, j]
        wait_sum[code] += now - queue[_SUBMIT, j]
        wait_count[code] += 1
    return earliest


@kernel
def leave(queue: IntArray, queue_hidden: IntArray, queued: int, gone: IntArray) -> int:
    """Close the gaps that the jobs at these ascending positions leave; return how many remain.

    Row by row, because rows are contiguous: six times as fast as job by job.
    """
    for rows in (queue, queue_hidden):
        for r in range(rows.shape[0]):
            to, k = int(gone[0]), 0
            for j in range(gone[0], queued):
                if k < gone.shape[0] and gone[k] == j:
                    k += 1
                else:
                    rows[r, to] = rows[r, j]
                    to += 1
    return queued - int(gone.shape[0])


@kernel
def end(
    row: int,
    run: IntArray,
    times: IntArray,
    run_hidden: IntArray,
    running: int,
    offset: IntArray,
    entries: IntArray,
    free: IntArray,
) -> None:
    """Give back the capacity of the running job of this workload row and close its gap."""
    i = 0
    while run_hidden[ROW, i] != row:
        i += 1
    low, high = offset[i], offset[i + 1]
    for e in range(low, high):
        for r in range(free.shape[1]):
            free[entries[0, e], r] += entries[1, e] * run[_REQUEST + r, i]
    length, total = high - low, offset[running]
    for e in range(high, total):
        entries[0, e - length], entries[1, e - length] = entries[0, e], entries[1, e]
    for rows in (run, times, run_hidden):
        for r in range(rows.shape[0]):
            for k in range(i, running - 1):
                rows[r, k] = rows[r, k + 1]
    for k in range(i, running - 1):
        offset[k + 1] = offset[k + 2] - length


@kernel
def state_waits(
    queue: IntArray,
    queue_hidden: IntArray,
    queued: int,
    stated: IntArray,
    wait_sum: IntArray,
    wait_count: IntArray,
    ewt: IntArray,
) -> None:
    """Write the expected wait of each queue, and of each queued job, in seconds.

    It is what the site states, or else the mean so far, 1 s or more.
    """
    for code in range(ewt.shape[0]):
        mean = wait_sum[code] // max(wait_count[code], 1)
        ewt[code] = stated[code] if stated[code] > 0 else max(mean, 1)
    for j in range(queued):
        queue[_EWT, j] = ewt[queue_hidden[QUEUE_CODE, j]]


@kernel
def enter(
    queue: IntArray,
    queue_hidden: IntArray,
    at: int,
    column: IntArray,
    row: int,
    code: int,
    expected_s: int,
    upper_s: int,
    ewt: IntArray,
) -> None:
    """Write a job into the queue at this position."""
    for r in range(queue.shape[0]):
        queue[r, at] = column[r]
    queue[_EXPECTED, at], queue[_UPPER, at], queue[_EWT, at] = expected_s, upper_s, ewt[code]
    queue_hidden[ROW, at], queue_hidden[QUEUE_CODE, at] = row, code


@kernel
def copy_queue(queue: IntArray, out: IntArray) -> None:
    """Copy the queued jobs."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[r, j] = queue[r, j]


@kernel
def copy_running(
    now: int,
    correction: int,
    next_end: int,
    run: IntArray,
    times: IntArray,
    run_hidden: IntArray,
    running: int,
    offset: IntArray,
    entries: IntArray,
    free: IntArray,
    out: IntArray,
) -> int:
    """Copy free capacity and running jobs, one after the other, expected ends corrected before.

    ``out`` gets what is free, the block of the running jobs, their times, offsets and entries.
    Returns the earliest expected end; nothing is copied if it is not later than ``now``.
    """
    if next_end <= now:
        next_end = correct(now, correction, run, times, run_hidden, running)
        if next_end <= now:
            return next_end
    at = 0
    for node in range(free.shape[0]):
        for r in range(free.shape[1]):
            out[at] = free[node, r]
            at += 1
    for rows in (run, times):
        for r in range(rows.shape[0]):
            for i in range(running):
                out[at + i] = rows[r, i]
            at += running
    for i in range(running + 1):
        out[at + i] = offset[i]
    at += running + 1
    for r in range(2):
        for e in range(offset[running]):
            out[at + e] = entries[r, e]
        at += offset[running]
    return next_end


@allocating
def is_sound(
    now: int,
    queue: IntArray,
    free: IntArray,
    start: IntArray,
    reason: IntArray,
    position: IntArray,
    offset: IntArray,
    node: IntArray,
    units: IntArray,
) -> bool:
    """Whether a decision is plain, and `cpdispatch.verify` would find nothing wrong with it.

    It is plain if it refuses no job and places only jobs that start now, each with as many units
    on a node as fit there. Then, where nothing but
    free capacity binds it, it is right if those are placed that start now, on nodes that differ,
    with all their units, and fit what is free together, and no job starts in the past.
    """
    jobs, placed = start.shape[0], position.shape[0]
    starting = 0
    for j in range(jobs):
        if reason[j] == _REJECTED or (start[j] < now and start[j] != _NO_START):
            return False
        starting += start[j] == now
    if starting != placed or offset[0] != 0 or offset[placed] != node.shape[0]:
        return False
    if not placed:
        return True
    left, last = free.copy(), np.full(free.shape[0], -1, dtype=np.int64)
    is_placed = np.zeros(jobs, dtype=np.bool_)
    for k in range(placed):
        j, low, high = position[k], offset[k], offset[k + 1]
        if j < 0 or j >= jobs or start[j] != now or is_placed[j]:
            return False
        if low >= high or high > node.shape[0]:
            return False
        is_placed[j] = True
        wanted = queue[_UNITS, j]
        for e in range(low, high):
            there = node[e]
            if there < 0 or there >= free.shape[0] or last[there] == k:
                return False
            if units[e] < 1 or units[e] > wanted:
                return False
            last[there] = k
            wanted -= units[e]
            for r in range(free.shape[1]):
                asked = queue[_REQUEST + r, j]
                left[there, r] -= units[e] * asked
                if asked < 0 or left[there, r] < 0:
                    return False
        if wanted:
            return False
    return True


@allocating
def settle(
    now: int,
    flat: IntArray,
    placed: int,
    placed_entries: int,
    seen_free: IntArray,
    queue: IntArray,
    queue_hidden: IntArray,
    queued: int,
    run: IntArray,
    times: IntArray,
    run_hidden: IntArray,
    running: int,
    offset: IntArray,
    entries: IntArray,
    free: IntArray,
    wait_sum: IntArray,
    wait_count: IntArray,
    runtime_s: IntArray,
    start_s: IntArray,
    reason: ByteArray,
    first: IntArray,
    count: IntArray,
    promised: IntArray,
    recorded_node: NDArray[np.int32],
    recorded_units: NDArray[np.int32],
    used: int,
) -> int:
    """Apply a decision and record it, if it `is_sound`; the earliest expected end of what starts.

    ``flat`` has starts and reasons of the queued jobs, then positions, offsets, nodes and units of
    the placed ones. Once applied, it has the workload rows of those that start, and their real
    ends in place of the reasons. ``seen_free`` is what the dispatcher saw. The last arrays are
    those of the records, of which ``used`` entries are in use. Nothing is changed, and `UNSOUND`
    returned, if the decision is not sound.
    """
    at = 2 * queued
    start, why = flat[:queued], flat[queued:at]
    position, placed_offset = flat[at : at + placed], flat[at + placed : at + 2 * placed + 1]
    at += 2 * placed + 1
    node = flat[at : at + placed_entries]
    units = flat[at + placed_entries : at + 2 * placed_entries]
    if not is_sound(now, queue, seen_free, start, why, position, placed_offset, node, units):
        return UNSOUND
    for j in range(queued):
        if why[j] == _RESERVED and start[j] > now:
            row = queue_hidden[ROW, j]
            if promised[1, row] == _NOT_STARTED:
                promised[0, row], promised[1, row] = now, start[j]
    rows, real_end = np.empty(placed, dtype=np.int64), np.empty(placed, dtype=np.int64)
    for k in range(placed):
        rows[k] = queue_hidden[ROW, position[k]]
        real_end[k] = now + runtime_s[rows[k]]
        reason[rows[k]] = why[position[k]]
    earliest = begin(
        now, queue, queue_hidden, run, times, run_hidden, running, offset, entries, free,
        position, real_end, placed_offset, node, units, wait_sum, wait_count,
    )  # fmt: skip
    if placed:
        note_starts(now, used, rows, placed_offset, start_s, first, count)
        for e in range(placed_entries):
            recorded_node[used + e], recorded_units[used + e] = node[e], units[e]
        gone, k = np.empty(placed, dtype=np.int64), 0
        for j in range(queued):
            if start[j] == now:
                gone[k] = j
                k += 1
        leave(queue, queue_hidden, queued, gone)
        for k in range(placed):
            flat[k], flat[queued + k] = rows[k], real_end[k]
    return earliest
