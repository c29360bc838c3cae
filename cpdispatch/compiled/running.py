"""The running jobs of a compiled replay, by expected end, and the completions to come."""

from __future__ import annotations

from typing import Any

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined
from cpdispatch.compiled.correction import corrected
from cpdispatch.compiled.layout import (
    BEFORE,
    BY_SERIAL,
    COMPLETED,
    DUE,
    DUE_OF,
    END,
    EXPECTED,
    HEAP_END,
    HEAP_SERIAL,
    HELD,
    JOB,
    NEED,
    REASON,
    REQUESTED,
    RUNTIME,
    START,
    STEP,
    State,
)
from cpdispatch.compiled.memory import Memory, remember


@inlined
def _copy(run: IntArray, place: int, to: int) -> None:
    run[JOB, to], run[DUE, to], run[HELD, to] = run[JOB, place], run[DUE, place], run[HELD, place]


@inlined
def run_until(run: IntArray, fate: IntArray, size: int, job: int, need: int, due: int) -> None:
    """Insert a running job by its expected end."""
    k = size
    while k > 0 and run[DUE, k - 1] > due:
        _copy(run, k - 1, k)
        k -= 1
    run[JOB, k], run[DUE, k], run[HELD, k] = job, due, need
    fate[DUE_OF, job] = due


@inlined
def leave(run: IntArray, size: int, place: int) -> None:
    """Close the gap of the running job at a place."""
    for i in range(place, size - 1):
        _copy(run, i + 1, i)


@inlined
def place_of(run: IntArray, size: int, job: int, due: int) -> int:
    """Where a job with this expected end is among the running ones."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if run[DUE, middle] < due:
            low = middle + 1
        else:
            high = middle
    while run[JOB, low] != job:
        low += 1
    return low


@inlined
def push(run: IntArray, size: int, end: int, serial: int) -> None:
    """Add a completion to the heap."""
    k = size
    while k > 0:
        up = (k - 1) // 2
        above = run[HEAP_END, up]
        if above < end or (above == end and run[HEAP_SERIAL, up] < serial):
            break
        run[HEAP_END, k], run[HEAP_SERIAL, k] = above, run[HEAP_SERIAL, up]
        k = up
    run[HEAP_END, k], run[HEAP_SERIAL, k] = end, serial


@inlined
def pop(run: IntArray, size: int) -> int:
    """Take the first completion off the heap; its serial number."""
    top = run[HEAP_SERIAL, 0]
    size -= 1
    end, serial = run[HEAP_END, size], run[HEAP_SERIAL, size]
    k = 0
    while 2 * k + 1 < size:
        down = 2 * k + 1
        below = run[HEAP_END, down]
        if down + 1 < size:
            other = run[HEAP_END, down + 1]
            if other < below or (
                other == below and run[HEAP_SERIAL, down + 1] < run[HEAP_SERIAL, down]
            ):
                down, below = down + 1, other
        if end < below or (end == below and serial < run[HEAP_SERIAL, down]):
            break
        run[HEAP_END, k], run[HEAP_SERIAL, k] = below, run[HEAP_SERIAL, down]
        k = down
    run[HEAP_END, k], run[HEAP_SERIAL, k] = end, serial
    return int(top)


@inlined
def correct(
    state: State, given: IntArray, fate: IntArray, run: IntArray, correction: int
) -> tuple[int, int]:
    """Correct expected ends that have passed.

    Returns how many jobs end now as expected, which a dispatch counts as ended, and their
    processors; they come first in ``run``.
    """
    now = state.now
    ended = ending = k = 0
    while k < state.running and run[DUE, k] <= now:
        job, due = run[JOB, k], run[DUE, k]
        start = fate[START, job]
        if start + given[RUNTIME, job] <= now:
            for i in range(k, ended, -1):
                _copy(run, i - 1, i)
            run[JOB, ended], run[DUE, ended], run[HELD, ended] = job, due, given[NEED, job]
            ending += given[NEED, job]
            ended, k = ended + 1, k + 1
            continue
        limit = start + given[REQUESTED, job]
        later, fate[STEP, job] = corrected(now, correction, due, limit, fate[STEP, job])
        state.blocked = -1
        if due <= state.shadow_time < later:
            state.ahead_job = -1
        if later == now + 1:  # all others end later: it may stay where it is
            run[DUE, k] = fate[DUE_OF, job] = later
            k += 1
        else:
            leave(run, state.running, k)
            run_until(run, fate, state.running - 1, job, given[NEED, job], later)
    return ended, ending


@inlined
def lasts(state: State, fate: IntArray, caution: Any, job: int) -> int:
    """How long a job is taken to last if it starts now."""
    if caution is None:
        return int(fate[EXPECTED, job])
    return int(fate[state.duration_row, job])


@inlined
def begin(
    state: State,
    given: IntArray,
    fate: IntArray,
    run: IntArray,
    caution: Any,
    job: int,
    reason: int,
) -> None:
    """Start a job: it holds its processors until it ends."""
    due, end = state.now + lasts(state, fate, caution, job), state.now + given[RUNTIME, job]
    begin_until(state, given, fate, run, job, reason, due, end)


@inlined
def begin_until(
    state: State, given: IntArray, fate: IntArray, run: IntArray, job: int, reason: int, due: int,
    end: int,
) -> None:  # fmt: skip
    """Start a job that is expected to end when it is due, and ends at its end."""
    need = given[NEED, job]
    fate[START, job], fate[REASON, job] = state.now, reason
    run_until(run, fate, state.running, job, need, due)
    state.running += 1
    run[BY_SERIAL, state.next_serial] = job
    push(run, state.pending, end, state.next_serial)
    state.next_serial += 1
    state.pending += 1
    state.free -= need


@inlined
def complete(state: State, given: IntArray, fate: IntArray, run: IntArray, memory: Memory) -> int:
    """End the job whose completion comes first; which one."""
    job = run[BY_SERIAL, pop(run, state.pending)]
    state.pending -= 1
    leave(run, state.running, place_of(run, state.running, job, fate[DUE_OF, job]))
    state.running -= 1
    state.free += given[NEED, job]
    fate[END, job] = state.now
    if run.shape[0] > BEFORE:
        count = state.next_serial - state.pending - 1
        run[COMPLETED, count], run[BEFORE, count] = job, state.next_serial
    remember(memory, job, given[RUNTIME, job])
    return int(job)
