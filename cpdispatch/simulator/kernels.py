"""Compiled kernels of the simulated cluster: its memory changed, looked at, and decisions applied.

The cluster is one array of integers, the *memory*: so a kernel takes one array and not fifteen.
`Memory` says what its parts hold. A job is a column. Queued and running ones have a block, see
`cpdispatch.jobs.Column`, and hidden rows beside it that no snapshot holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import ByteArray, IntArray
from cpdispatch.compile import allocating, inlined, kernel, merged
from cpdispatch.compiled.correction import MINIMAL, corrected
from cpdispatch.decision import HEAD as _HEAD_OF_DECISION
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.decision import OF_STARTS, Reason
from cpdispatch.instance.snapshot import HEAD as _HEAD_OF_INSTANCE
from cpdispatch.jobs import Column
from cpdispatch.simulator.records import (
    COUNT,
    END_S,
    EXPECTED_S,
    FIRST,
    PROMISED_AT_S,
    PROMISED_S,
    START_S,
)
from cpdispatch.simulator.records import NOT_STARTED as _NOT_STARTED

ROW, QUEUE_CODE = 0, 1
STEP, REAL_END = 1, 2
STATED, WAIT_SUM, WAIT_COUNT, EWT = range(4)
AT_S, MADE, OF_ROW, KIND = range(4)
END, BEGIN, WAKE = range(3)
"""A job ends or is stopped; a job may start from now on; there is a dispatch and nothing else."""
(
    NOW, QUEUED, RUNNING, NEXT, NEXT_END, EVENTS, EVENTS_MADE, WAITS_ARE_OLD,
    ROWS, NODES, RESOURCES, QUEUES, QUEUE_ROOM, RUN_ROOM, ENTRY_ROOM, EVENT_ROOM,
) = range(16)  # fmt: skip
"""The marks at the head of the memory: the clock; how many jobs are queued and run, and have been
submitted; a time before which no expected end comes; how many entries the agenda has and has had;
whether jobs have started since expected waits were written; then sizes."""
MARKS = 16
_SUBMIT, _UNITS, _REQUESTED = int(Column.SUBMIT), int(Column.UNITS), int(Column.REQUESTED)
_EXPECTED, _UPPER = int(Column.EXPECTED), int(Column.UPPER)
_EWT, _REQUEST = int(Column.EWT), int(Column.REQUEST)
_RESERVED, _REJECTED = int(Reason.RESERVED), int(Reason.REJECTED)
_REASONS = len(Reason)
_OF_STARTS = tuple(map(int, OF_STARTS))
NEVER = int(np.iinfo(np.int64).max)
UNSOUND, FULL, OVER, NEXT_PART = -1, -2, -3, -4
"""What a kernel says instead: a decision is not sound; the memory has too little room; the log is
done; the next part of the log is needed."""


class Memory(NamedTuple):
    """The parts of the memory."""

    marks: IntArray
    free: IntArray
    """What is free, shape (nodes, resources)."""
    waits: IntArray
    """Of each queue, the wait that the site states, sum and number of waits so far, and the one
    that is expected; shape (4, queues)."""
    queue: IntArray
    """The block of the queued jobs, by workload row."""
    queue_hidden: IntArray
    """Row in the workload, number of the queue."""
    run: IntArray
    """The block of the running jobs, in the order in which they started."""
    times: IntArray
    """Start, expected end, whether it is overdue, and the bound of the start."""
    run_hidden: IntArray
    """Row in the workload, steps of corrections so far, real end."""
    offset: IntArray
    entries: IntArray
    """Nodes and units of the running jobs; the k-th one's are ``offset[k]:offset[k + 1]``."""
    events: IntArray
    """The agenda, a heap: time, number of the entry, row, kind; shape (room, 4)."""


def open_memory(memory: IntArray) -> Memory:
    """The parts of the memory."""
    marks = memory[:MARKS]
    rows, nodes, resources, queues = marks[ROWS], marks[NODES], marks[RESOURCES], marks[QUEUES]
    queued, running, held = marks[QUEUE_ROOM], marks[RUN_ROOM], marks[ENTRY_ROOM]
    waits = MARKS + nodes * resources
    queue = waits + 4 * queues
    queue_hidden = queue + rows * queued
    run = queue_hidden + 2 * queued
    times = run + rows * running
    run_hidden = times + 4 * running
    offset = run_hidden + 3 * running
    entries = offset + running + 1
    events = entries + 2 * held
    return Memory(
        marks,
        memory[MARKS:waits].reshape(nodes, resources),
        memory[waits:queue].reshape(4, queues),
        memory[queue:queue_hidden].reshape(rows, queued),
        memory[queue_hidden:run].reshape(2, queued),
        memory[run:times].reshape(rows, running),
        memory[times:run_hidden].reshape(4, running),
        memory[run_hidden:offset].reshape(3, running),
        memory[offset:entries],
        memory[entries:events].reshape(2, held),
        memory[events:].reshape(marks[EVENT_ROOM], 4),
    )


opened = merged(open_memory)


def memory_size(marks: IntArray) -> int:
    """How many numbers a memory of such sizes has."""
    rows, nodes, resources, queues, queued, running, held, events = marks[ROWS:MARKS].tolist()
    of_jobs = (rows + 2) * queued + (rows + 8) * running + 1
    return int(MARKS + nodes * resources + 4 * queues + of_jobs + 2 * held + 4 * events)


# ---------------------------------------------------------------------------------- the agenda


@inlined
def _is_before(events: IntArray, a: int, b: int) -> bool:
    """Whether an entry of the agenda comes before another: earlier, or made before."""
    if events[a, AT_S] != events[b, AT_S]:
        return bool(events[a, AT_S] < events[b, AT_S])
    return bool(events[a, MADE] < events[b, MADE])


@inlined
def _swap(events: IntArray, a: int, b: int) -> None:
    for k in range(4):
        events[a, k], events[b, k] = events[b, k], events[a, k]


@kernel
def _sink(events: IntArray, at: int, size: int) -> None:
    """Let an entry of the heap sink to its place."""
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _is_before(events, below + 1, below):
            below += 1
        if _is_before(events, at, below):
            return
        _swap(events, at, below)
        at = below


@kernel
def _push(m: Memory, at_s: int, row: int, kind: int) -> None:
    """Make an entry; there has to be room for it."""
    events, at = m.events, m.marks[EVENTS]
    events[at, AT_S], events[at, MADE] = at_s, m.marks[EVENTS_MADE]
    events[at, OF_ROW], events[at, KIND] = row, kind
    m.marks[EVENTS] += 1
    m.marks[EVENTS_MADE] += 1
    while at and _is_before(events, at, (at - 1) // 2):
        _swap(events, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def _pop(m: Memory) -> tuple[int, int]:
    """Take out the next entry: its row and kind."""
    events, last = m.events, m.marks[EVENTS] - 1
    row, kind = events[0, OF_ROW], events[0, KIND]
    _swap(events, 0, last)
    m.marks[EVENTS] = last
    _sink(events, 0, last)
    return row, kind


@kernel
def push(memory: IntArray, at_s: int, row: int, kind: int) -> None:
    """Make an entry of the agenda; there has to be room for it."""
    _push(opened(memory), at_s, row, kind)


@kernel
def pop(memory: IntArray) -> tuple[int, int]:
    """Take out the next entry of the agenda: its row and kind."""
    return _pop(opened(memory))


@kernel
def forget(memory: IntArray, row: int) -> None:
    """Take out all entries of the agenda about a job."""
    m = opened(memory)
    events, kept = m.events, 0
    for at in range(m.marks[EVENTS]):
        if events[at, OF_ROW] != row:
            for k in range(4):
                events[kept, k] = events[at, k]
            kept += 1
    m.marks[EVENTS] = kept
    for at in range(kept // 2 - 1, -1, -1):
        _sink(events, at, kept)


# ------------------------------------------------------------------------- jobs come, run, go


@kernel
def _enter(m: Memory, column: IntArray, row: int, code: int, expected_s: int, upper_s: int) -> None:
    """Write a job into the queue: behind all jobs that have a lower workload row."""
    queue, hidden, at = m.queue, m.queue_hidden, m.marks[QUEUED]
    while at and hidden[ROW, at - 1] > row:
        for r in range(queue.shape[0]):
            queue[r, at] = queue[r, at - 1]
        for r in range(2):
            hidden[r, at] = hidden[r, at - 1]
        at -= 1
    for r in range(queue.shape[0]):
        queue[r, at] = column[r]
    queue[_EXPECTED, at], queue[_UPPER, at] = expected_s, upper_s
    queue[_EWT, at] = m.waits[EWT, code]
    hidden[ROW, at], hidden[QUEUE_CODE, at] = row, code
    m.marks[QUEUED] += 1


@kernel
def enter(
    memory: IntArray, column: IntArray, row: int, code: int, expected_s: int, upper_s: int
) -> None:
    """Write a job into the queue; there has to be room for it."""
    _enter(opened(memory), column, row, code, expected_s, upper_s)


@kernel
def _begin(
    m: Memory,
    now: int,
    position: IntArray,
    real_end: IntArray,
    placed_offset: IntArray,
    placed_node: IntArray,
    placed_units: IntArray,
) -> None:
    """Move the jobs at these queue positions to the running ones and take their capacity."""
    queue, run, times, hidden = m.queue, m.run, m.times, m.run_hidden
    offset, entries, free = m.offset, m.entries, m.free
    for k in range(position.shape[0]):
        j = position[k]
        i = m.marks[RUNNING] + k
        for row in range(run.shape[0]):
            run[row, i] = queue[row, j]
        times[0, i], times[1, i] = now, now + queue[_EXPECTED, j]
        times[2, i] = times[3, i] = 0
        m.marks[NEXT_END] = min(m.marks[NEXT_END], times[1, i])
        hidden[ROW, i], hidden[STEP, i] = m.queue_hidden[ROW, j], 0
        hidden[REAL_END, i] = real_end[k]
        low = offset[i]
        count = placed_offset[k + 1] - placed_offset[k]
        for e in range(count):
            node = placed_node[placed_offset[k] + e]
            many = placed_units[placed_offset[k] + e]
            entries[0, low + e], entries[1, low + e] = node, many
            for r in range(free.shape[1]):
                free[node, r] -= many * queue[_REQUEST + r, j]
        offset[i + 1] = low + count
        code = m.queue_hidden[QUEUE_CODE, j]
        m.waits[WAIT_SUM, code] += now - queue[_SUBMIT, j]
        m.waits[WAIT_COUNT, code] += 1
    m.marks[RUNNING] += position.shape[0]
    m.marks[WAITS_ARE_OLD] = 1


@kernel
def begin(memory: IntArray, now: int, flat: IntArray, placed: int) -> None:
    """Let queued jobs run; there has to be room for them. They stay in the queue until `leave`.

    ``flat`` has their positions, real ends and offsets, and nodes and units.
    """
    at = 3 * placed + 1
    middle = (at + flat.shape[0]) // 2
    _begin(
        opened(memory), now, flat[:placed], flat[placed : 2 * placed], flat[2 * placed : at],
        flat[at:middle], flat[middle:],
    )  # fmt: skip


@kernel
def _leave(m: Memory, gone: IntArray) -> None:
    """Close the gaps that the jobs at these ascending queue positions leave.

    Row by row, because rows are contiguous: six times as fast as job by job.
    """
    queued = m.marks[QUEUED]
    for rows in (m.queue, m.queue_hidden):
        for r in range(rows.shape[0]):
            to, k = int(gone[0]), 0
            for j in range(gone[0], queued):
                if k < gone.shape[0] and gone[k] == j:
                    k += 1
                else:
                    rows[r, to] = rows[r, j]
                    to += 1
    m.marks[QUEUED] = queued - gone.shape[0]


@kernel
def leave(memory: IntArray, gone: IntArray) -> None:
    """Take the jobs at these ascending positions, one or more, out of the queue."""
    _leave(opened(memory), gone)


@kernel
def _end(m: Memory, row: int) -> None:
    """Give back the capacity of the running job of this workload row and close its gap."""
    run, hidden, offset, entries, free = m.run, m.run_hidden, m.offset, m.entries, m.free
    i, running = 0, m.marks[RUNNING]
    while hidden[ROW, i] != row:
        i += 1
    low, high = offset[i], offset[i + 1]
    for e in range(low, high):
        for r in range(free.shape[1]):
            free[entries[0, e], r] += entries[1, e] * run[_REQUEST + r, i]
    length, total = high - low, offset[running]
    for e in range(high, total):
        entries[0, e - length], entries[1, e - length] = entries[0, e], entries[1, e]
    for rows in (run, m.times, hidden):
        for r in range(rows.shape[0]):
            for k in range(i, running - 1):
                rows[r, k] = rows[r, k + 1]
    for k in range(i, running - 1):
        offset[k + 1] = offset[k + 2] - length
    m.marks[RUNNING] = running - 1


@kernel
def end(memory: IntArray, row: int) -> None:
    """End the running job of this workload row."""
    _end(opened(memory), row)


# ---------------------------------------------------------------------------------- looking


@kernel
def _correct(m: Memory, now: int, correction: int) -> None:
    """Give running jobs that outlived their expected end a new one, later than ``now``.

    See `corrected`. A job that really ends now is left alone.
    """
    earliest, times, hidden = NEVER, m.times, m.run_hidden
    for i in range(m.marks[RUNNING]):
        if times[1, i] <= now < hidden[REAL_END, i]:
            limit = times[0, i] + m.run[_REQUESTED, i]
            if correction == MINIMAL or limit <= now:
                times[2, i] = 1
            times[1, i], hidden[STEP, i] = corrected(
                now, correction, times[1, i], limit, hidden[STEP, i]
            )
        earliest = min(earliest, times[1, i])
    m.marks[NEXT_END] = earliest


@kernel
def _state_waits(m: Memory) -> None:
    """Write the expected wait of each queue, and of each queued job, in seconds.

    It is what the site states, or else the mean so far, 1 s or more.
    """
    waits = m.waits
    for code in range(waits.shape[1]):
        mean = waits[WAIT_SUM, code] // max(waits[WAIT_COUNT, code], 1)
        stated = waits[STATED, code]
        waits[EWT, code] = stated if stated > 0 else max(mean, 1)
    for j in range(m.marks[QUEUED]):
        m.queue[_EWT, j] = waits[EWT, m.queue_hidden[QUEUE_CODE, j]]
    m.marks[WAITS_ARE_OLD] = 0


@kernel
def _write_free(m: Memory, now: int, free: IntArray) -> None:
    """Write what is free at this instant: what jobs hold that end now is."""
    running, offset, entries = m.run, m.offset, m.entries
    for node in range(free.shape[0]):
        for r in range(free.shape[1]):
            free[node, r] = m.free[node, r]
    if m.marks[NEXT_END] > now:
        return
    for i in range(m.marks[RUNNING]):
        if m.times[1, i] <= now:
            for e in range(offset[i], offset[i + 1]):
                for r in range(free.shape[1]):
                    free[entries[0, e], r] += entries[1, e] * running[_REQUEST + r, i]


@allocating
def _look(m: Memory, now: int, correction: int) -> IntArray:
    """A flat instance, see `cpdispatch.instance.snapshot.HEAD`; expected ends corrected before.

    Jobs that end at this very instant, just as expected, count as ended: only the trigger
    ``event`` dispatches while there are any.
    """
    marks, free, times = m.marks, m.free, m.times
    if marks[WAITS_ARE_OLD]:
        _state_waits(m)
    if marks[NEXT_END] <= now:
        _correct(m, now, correction)
    rows, queued, running = marks[ROWS], marks[QUEUED], marks[RUNNING]
    ran, entries = running, m.offset[running]
    if marks[NEXT_END] <= now:
        for i in range(running):
            if times[1, i] <= now:
                ran -= 1
                entries -= m.offset[i + 1] - m.offset[i]
    size, at = free.shape[0] * free.shape[1], _HEAD_OF_INSTANCE
    flat = np.empty(at + size + rows * (queued + ran) + 5 * ran + 1 + 2 * entries, np.int64)
    flat[0], flat[1], flat[2], flat[3] = now, queued, ran, entries
    flat[4], flat[5], flat[6] = free.shape[0], free.shape[1], rows
    flat[7] = at + size + _EXPECTED * queued
    flat[8] = at + size + rows * (queued + ran) + ran
    _write_free(m, now, flat[at : at + size].reshape(free.shape))
    at += size
    for r in range(rows):
        for j in range(queued):
            flat[at + j] = m.queue[r, j]
        at += queued
    if ran == running:
        for part in (m.run, times):
            for r in range(part.shape[0]):
                for i in range(running):
                    flat[at + i] = part[r, i]
                at += running
        for i in range(running + 1):
            flat[at + i] = m.offset[i]
        at += running + 1
        for r in range(2):
            for e in range(entries):
                flat[at + e] = m.entries[r, e]
            at += entries
        return flat
    for part in (m.run, times):
        for r in range(part.shape[0]):
            for i in range(running):
                if times[1, i] > now:
                    flat[at] = part[r, i]
                    at += 1
    node = at + ran + 1
    flat[at] = 0
    for i in range(running):
        low, high = m.offset[i], m.offset[i + 1]
        if times[1, i] > now:
            flat[at + 1] = flat[at] + high - low
            at += 1
            for e in range(low, high):
                flat[node], flat[node + entries] = m.entries[0, e], m.entries[1, e]
                node += 1
    return flat


@allocating
def look(memory: IntArray, now: int, correction: int) -> IntArray:
    """A flat instance of what there is now."""
    return _look(opened(memory), now, correction)


@allocating
def go_on(
    memory: IntArray, coming: IntArray, first: int, correction: int, table: IntArray
) -> IntArray:
    """Go on to the next instant at which jobs wait: a flat instance of it.

    All completions of an instant come before its submissions. ``coming`` are jobs that are not
    submitted yet, from the ``first`` one on, shape (jobs, 2 + rows of a block): workload row,
    number of the queue, and column. Of the last one only the submission is looked at; after the
    last one of the log, it is `NEVER`. ``table`` is that of the records. Instead of an instance,
    an array of one number says why there is none: `FULL`, `OVER` or `NEXT_PART`.
    """
    m = opened(memory)
    marks, last = m.marks, coming.shape[0] - 1
    at = marks[NEXT] - first
    while True:
        submit = coming[at, 2 + _SUBMIT]
        if at == last and submit != NEVER:
            return np.full(1, NEXT_PART, dtype=np.int64)
        now = min(submit, m.events[0, AT_S]) if marks[EVENTS] else submit
        if now == NEVER:
            return np.full(1, OVER, dtype=np.int64)
        marks[NOW] = now
        while marks[EVENTS] and m.events[0, AT_S] == now:
            row, _ = _pop(m)
            _end(m, row)
            table[END_S, row] = now
        while coming[at, 2 + _SUBMIT] == now:
            if at == last:
                return np.full(1, NEXT_PART, dtype=np.int64)
            if marks[QUEUED] == marks[QUEUE_ROOM]:
                return np.full(1, FULL, dtype=np.int64)
            row, column = coming[at, 0], coming[at, 2:]
            table[EXPECTED_S, row] = column[_EXPECTED]
            _enter(m, column, row, coming[at, 1], column[_EXPECTED], column[_UPPER])
            at += 1
            marks[NEXT] += 1
        if marks[QUEUED]:
            return _look(m, now, correction)


# ------------------------------------------------------------------------------- decisions


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
    with all their units, and fit what is free together, no job starts in the past, and just those
    that start now have a reason of such jobs.
    """
    jobs, placed = start.shape[0], position.shape[0]
    starting = 0
    for j in range(jobs):
        if reason[j] == _REJECTED or (start[j] < now and start[j] != _NO_START):
            return False
        if reason[j] < 0 or reason[j] >= _REASONS:
            return False
        if (start[j] == now) != (reason[j] in _OF_STARTS):
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
    memory: IntArray,
    now: int,
    decision: IntArray,
    runtime_s: IntArray,
    bound_s: IntArray,
    table: IntArray,
    reason: ByteArray,
    recorded_node: NDArray[np.int32],
    recorded_units: NDArray[np.int32],
    used: int,
) -> int:
    """Apply a flat decision and record it, if it `is_sound`.

    Returns how many jobs start. Nothing is changed, and `UNSOUND` returned, if the decision is not
    sound; if there is too little room for what it starts, `FULL`.

    Parameters
    ----------
    runtime_s, bound_s : int64 array, shape (jobs,)
        How long each job of the workload runs, and after how long a predictor's bound ends it;
        the latter is empty where there are none.
    table, reason, recorded_node, recorded_units
        Those of the records, whose entries of placements have ``used`` in use.
    """
    m = opened(memory)
    marks, hidden = m.marks, m.queue_hidden
    queued, placed, at = decision[0], decision[1], _HEAD_OF_DECISION
    places = at + 2 * queued
    node_at = places + 2 * placed + 1
    entries = (decision.shape[0] - node_at) // 2
    if queued != marks[QUEUED]:
        return UNSOUND
    start, why = decision[at : at + queued], decision[at + queued : places]
    position, offset = decision[places : places + placed], decision[places + placed : node_at]
    node = decision[node_at : node_at + entries]
    units = decision[node_at + entries : node_at + 2 * entries]
    free = np.empty(m.free.shape, dtype=np.int64)
    _write_free(m, now, free)
    if not is_sound(now, m.queue, free, start, why, position, offset, node, units):
        return UNSOUND
    if placed and (
        marks[RUNNING] + placed > marks[RUN_ROOM]
        or m.offset[marks[RUNNING]] + entries > marks[ENTRY_ROOM]
        or marks[EVENTS] + placed > marks[EVENT_ROOM]
        or used + entries > recorded_node.shape[0]
    ):
        return FULL
    for j in range(queued):
        if why[j] == _RESERVED and start[j] > now:
            row = hidden[ROW, j]
            if table[PROMISED_S, row] == _NOT_STARTED:
                table[PROMISED_AT_S, row], table[PROMISED_S, row] = now, start[j]
    if not placed:
        return 0
    real_end = np.empty(placed, dtype=np.int64)
    for k in range(placed):
        row = hidden[ROW, position[k]]
        real_end[k] = now + runtime_s[row]
        ends = real_end[k]
        if bound_s.shape[0] and bound_s[row] < runtime_s[row]:
            ends = now + bound_s[row]
        _push(m, ends, row, END)
        reason[row], table[START_S, row] = why[position[k]], now
        table[FIRST, row], table[COUNT, row] = used + offset[k], offset[k + 1] - offset[k]
    for e in range(entries):
        recorded_node[used + e], recorded_units[used + e] = node[e], units[e]
    _begin(m, now, position, real_end, offset, node, units)
    gone, k = np.empty(placed, dtype=np.int64), 0
    for j in range(queued):
        if start[j] == now:
            gone[k] = j
            k += 1
    _leave(m, gone)
    return int(placed)
