"""The running jobs of a compiled replay, by expected end, and the completions to come."""

from __future__ import annotations

from typing import Any

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined
from cpdispatch.compiled.correction import corrected
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    COMPLETED,
    CORRECTED,
    DUE,
    END,
    EXPECTED,
    EXPECTED_END,
    HEAP_END,
    HEAP_SERIAL,
    HELD,
    JOB,
    NEED,
    REASON,
    REQUESTED,
    RUNTIME,
    START,
    STARTED_BEFORE,
    Tables,
)
from cpdispatch.compiled.memory import Memory, remember


@inlined
def _copy(running: IntArray, place: int, to: int) -> None:
    running[JOB, to], running[DUE, to] = running[JOB, place], running[DUE, place]
    running[HELD, to] = running[HELD, place]


@inlined
def run_until(
    running: IntArray, outcome: IntArray, size: int, job: int, need: int, due: int
) -> None:
    """Insert a running job by its expected end."""
    k = size
    while k > 0 and running[DUE, k - 1] > due:
        _copy(running, k - 1, k)
        k -= 1
    running[JOB, k], running[DUE, k], running[HELD, k] = job, due, need
    outcome[EXPECTED_END, job] = due


@inlined
def leave(running: IntArray, size: int, place: int) -> None:
    """Close the gap of the running job at a place."""
    for i in range(place, size - 1):
        _copy(running, i + 1, i)


@inlined
def expect_end(tables: Tables, job: int, due: int) -> None:
    """Expect a running job to end at another time."""
    outcome, running, count = tables.outcome, tables.running, tables.state.running
    leave(running, count, place_of(running, count, job, outcome[EXPECTED_END, job]))
    run_until(running, outcome, count - 1, job, tables.jobs[NEED, job], due)


@inlined
def place_of(running: IntArray, size: int, job: int, due: int) -> int:
    """Where a job with this expected end is among the running ones."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if running[DUE, middle] < due:
            low = middle + 1
        else:
            high = middle
    while running[JOB, low] != job:
        low += 1
    return low


@inlined
def lift(running: IntArray, place: int, end: int, serial: int) -> None:
    """Write a completion into the heap, at a place or as far above it as it belongs.

    Where the place is the heap's size, that adds the completion.
    """
    k = place
    while k > 0:
        up = (k - 1) // 2
        above = running[HEAP_END, up]
        if above < end or (above == end and running[HEAP_SERIAL, up] < serial):
            break
        running[HEAP_END, k], running[HEAP_SERIAL, k] = above, running[HEAP_SERIAL, up]
        k = up
    running[HEAP_END, k], running[HEAP_SERIAL, k] = end, serial


@inlined
def pop(running: IntArray, size: int) -> int:
    """Take the first completion off the heap; its serial number."""
    top = running[HEAP_SERIAL, 0]
    size -= 1
    end, serial = running[HEAP_END, size], running[HEAP_SERIAL, size]
    k = 0
    while 2 * k + 1 < size:
        down = 2 * k + 1
        below = running[HEAP_END, down]
        if down + 1 < size:
            other = running[HEAP_END, down + 1]
            if other < below or (
                other == below and running[HEAP_SERIAL, down + 1] < running[HEAP_SERIAL, down]
            ):
                down, below = down + 1, other
        if end < below or (end == below and serial < running[HEAP_SERIAL, down]):
            break
        running[HEAP_END, k], running[HEAP_SERIAL, k] = below, running[HEAP_SERIAL, down]
        k = down
    running[HEAP_END, k], running[HEAP_SERIAL, k] = end, serial
    return int(top)


@inlined
def correct(tables: Tables) -> tuple[int, int]:
    """Correct expected ends that have passed.

    Returns how many jobs end now as expected, which a dispatch counts as ended, and their
    processors; they come first in ``running``.
    """
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    now = state.now
    ended = ending = k = 0
    while k < state.running and running[DUE, k] <= now:
        job, due = running[JOB, k], running[DUE, k]
        start = outcome[START, job]
        if start + jobs[RUNTIME, job] <= now:
            for i in range(k, ended, -1):
                _copy(running, i - 1, i)
            running[JOB, ended], running[DUE, ended] = job, due
            running[HELD, ended] = jobs[NEED, job]
            ending += jobs[NEED, job]
            ended, k = ended + 1, k + 1
            continue
        limit = start + jobs[REQUESTED, job]
        later, outcome[CORRECTED, job] = corrected(
            now, tables.rule.correction, due, limit, outcome[CORRECTED, job]
        )
        state.blocked = -1
        if due <= state.shadow_time < later:
            state.ahead_job = -1
        if later == now + 1:  # all others end later: it may stay where it is
            running[DUE, k] = outcome[EXPECTED_END, job] = later
            k += 1
        else:
            leave(running, state.running, k)
            run_until(running, outcome, state.running - 1, job, jobs[NEED, job], later)
    return ended, ending


@inlined
def lasts(tables: Tables, caution: Any, job: int) -> int:
    """How long a job is taken to last if it starts now."""
    if caution is None:
        return int(tables.outcome[EXPECTED, job])
    return int(tables.outcome[tables.state.duration_row, job])


@inlined
def begin(tables: Tables, caution: Any, job: int, reason: int) -> None:
    """Start a job: it holds its processors until it ends."""
    now = tables.state.now
    due, end = now + lasts(tables, caution, job), now + tables.jobs[RUNTIME, job]
    begin_until(tables, job, reason, due, end)


@inlined
def begin_until(tables: Tables, job: int, reason: int, due: int, end: int) -> None:
    """Start a job that is expected to end when it is due, and ends at its end."""
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    need = jobs[NEED, job]
    outcome[START, job], outcome[REASON, job] = state.now, reason
    run_until(running, outcome, state.running, job, need, due)
    state.running += 1
    running[BY_SERIAL, state.next_serial] = job
    lift(running, state.pending, end, state.next_serial)
    state.next_serial += 1
    state.pending += 1
    state.free -= need


@inlined
def release(tables: Tables, job: int) -> None:
    """Take a job out of the running ones, and give back its processors."""
    state, outcome, running = tables.state, tables.outcome, tables.running
    leave(running, state.running, place_of(running, state.running, job, outcome[EXPECTED_END, job]))
    state.running -= 1
    state.free += tables.jobs[NEED, job]


@inlined
def complete(tables: Tables, memory: Memory) -> int:
    """End the job whose completion comes first; which one."""
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    job = running[BY_SERIAL, pop(running, state.pending)]
    state.pending -= 1
    release(tables, job)
    outcome[END, job] = state.now
    if running.shape[0] > STARTED_BEFORE:
        count = state.next_serial - state.pending - 1
        running[COMPLETED, count], running[STARTED_BEFORE, count] = job, state.next_serial
    remember(memory, job, jobs[RUNTIME, job])
    return int(job)
