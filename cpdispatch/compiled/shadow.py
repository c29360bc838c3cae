"""EASY backfilling on a pool beside the real schedule: how long would the jobs have waited?

It knows what a dispatcher knows. A job that has ended in reality runs as long here. Any other is
taken to run half way, in orders of magnitude, from the share of its requested time that jobs use on
average to all of it: what has not started is longer than what has. That share is the work of all
jobs so far, those that run now included, over what the ended ones asked for: long jobs end last. A
job that runs for longer than that in reality is taken to run as long again, up to its requested
time, and from then on to end within a second. EASY decides whenever a job ends here, and at each
decision in reality.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.correction import MINIMAL
from cpdispatch.compiled.layout import (
    AHEAD_JOB,
    BLOCKED,
    BY_SERIAL,
    DUE_OF,
    END,
    EXPECTED,
    FIRST_SIZE,
    FREE,
    HEAD,
    HEAP_END,
    HEAP_SERIAL,
    JOB,
    NEED,
    NEVER,
    NEXT,
    NOW,
    PENDING,
    REQUESTED,
    RUNNING,
    RUNTIME,
    SCALARS,
    SEEN,
    SERIAL,
    START,
    STEP,
    SUBMIT,
    WANTS,
    WHO,
)
from cpdispatch.compiled.pool import backfill, start_in_turn
from cpdispatch.compiled.queue import without_started
from cpdispatch.compiled.running import correct, leave, place_of, pop, push

# Rows of ``given`` beyond those of a replay: when the job started in reality, -1 until then;
# whether its runtime is known; its number, by which others call it: numbers ascend.
REAL, KNOWN, NUMBER = range(4, 7)

# The longest wait so far; the work of the jobs that have ended in reality, processors times
# seconds, and what it was by their requested times; ends that have been told.
LONGEST, WORKED, ASKED, TOLD = range(4)

FIRST_ROOM = 1 << 12
_AT_FIRST_S, _USED = 3600, 0.3
"""Before any job has ended, an hour of the machine counts as work that used such a share."""


class Shadow(NamedTuple):
    """The jobs that wait or run here, and some that have ended; arrays as in `layout.State`."""

    at: IntArray
    given: IntArray
    fate: IntArray
    first: IntArray
    first_key: FloatArray
    run: IntArray
    book: IntArray


def fresh(processors: int, room: int = 0) -> Shadow:
    """A shadow that knows no jobs, with room for so many; `FIRST_ROOM` when 0."""
    room = room or FIRST_ROOM
    at = np.zeros(SCALARS, dtype=np.int64)
    at[FREE], at[BLOCKED], at[AHEAD_JOB] = processors, -1, -1
    book = np.zeros(TOLD + 1, dtype=np.int64)
    book[ASKED] = _AT_FIRST_S * processors
    book[WORKED] = int(_USED * book[ASKED])
    return Shadow(
        at,
        np.zeros((NUMBER + 1, room), dtype=np.int64),
        np.zeros((STEP + 1, room), dtype=np.int64),
        np.zeros((WANTS + 1, room), dtype=np.int64),
        np.zeros(room),
        np.zeros((BY_SERIAL + 1, room), dtype=np.int64),
        book,
    )


def grown(shadow: Shadow, jobs: int) -> Shadow:
    """The same with room for so many more jobs, and at least twice as much."""
    larger = fresh(0, 2 * (shadow.first_key.size + jobs))
    for mine, theirs in zip(larger, shadow, strict=True):
        mine[..., : theirs.shape[-1]] = theirs
    return larger


def used(shadow: Shadow) -> list[list[list[float]]]:
    """The arrays as lists of rows, without the columns that nothing is in; see `restored`."""
    at = shadow.at
    columns = int(max(at[NEXT], at[SERIAL], at[PENDING], at[RUNNING], at[FIRST_SIZE]))
    whole = (shadow.at, shadow.book)
    return [
        np.atleast_2d(array if any(array is each for each in whole) else array[..., :columns])
        .tolist()
        for array in shadow
    ]  # fmt: skip


def restored(arrays: list[list[list[float]]]) -> Shadow:
    """A shadow of what `used` gave.

    Raises
    ------
    ValueError
        When the arrays are not of these shapes.
    """
    columns = len(arrays[1][0]) if len(arrays) > 1 and arrays[1] else 0
    shadow = fresh(0, max(2 * columns, FIRST_ROOM))
    for mine, rows in zip(shadow, arrays, strict=True):
        given = np.array(rows)
        if mine is shadow.at or mine is shadow.book:
            mine[:] = given.reshape(mine.shape)
        else:
            mine[..., :columns] = given.reshape(*mine.shape[:-1], columns)
    return shadow


@inlined
def _slot(shadow: Shadow, number: int) -> int:
    """Where the job of a number is; -1 when it has ended here and was forgotten."""
    low, high = 0, shadow.at[NEXT]
    while low < high:
        middle = (low + high) // 2
        if shadow.given[NUMBER, middle] < number:
            low = middle + 1
        else:
            high = middle
    found = low < shadow.at[NEXT] and shadow.given[NUMBER, low] == number
    return low if found else -1


@kernel
def has_room(shadow: Shadow, jobs: int) -> bool:
    """Whether so many more jobs can be submitted, once those are forgotten that have ended."""
    at, given, fate, first, run = shadow.at, shadow.given, shadow.fate, shadow.first, shadow.run
    room = shadow.first_key.size
    if at[NEXT] + jobs <= room:
        return True
    without_started(at, fate, first, shadow.first_key, FIRST_SIZE)
    kept = np.full(at[NEXT], -1, dtype=np.int64)
    to = 0
    for job in range(at[NEXT]):
        if fate[END, job] < 0:
            kept[job] = to
            for row in range(given.shape[0]):
                given[row, to] = given[row, job]
            for row in range(fate.shape[0]):
                fate[row, to] = fate[row, job]
            to += 1
    at[SEEN] -= at[NEXT] - to
    at[NEXT] = to
    for k in range(at[FIRST_SIZE]):
        first[WHO, k] = kept[first[WHO, k]]
    for k in range(at[RUNNING]):
        run[JOB, k] = kept[run[JOB, k]]
    serials = np.sort(run[HEAP_SERIAL, : at[PENDING]])
    for k in range(at[PENDING]):
        run[HEAP_SERIAL, k] = np.searchsorted(serials, run[HEAP_SERIAL, k])
    for k in range(at[PENDING]):
        run[BY_SERIAL, k] = kept[run[BY_SERIAL, serials[k]]]
    at[SERIAL] = at[PENDING]
    return bool(2 * (at[NEXT] + jobs) <= room)


@kernel
def submit(shadow: Shadow, number: int, submit_s: int, need: int, requested: int) -> None:
    """Take note of a job, which queues from the time up to which is followed next.

    There must be room for it.
    """
    at, given, fate = shadow.at, shadow.given, shadow.fate
    job = at[NEXT]
    at[NEXT] += 1
    given[NUMBER, job], given[SUBMIT, job] = number, submit_s
    given[NEED, job], given[REQUESTED, job] = need, requested
    given[RUNTIME, job] = requested
    given[REAL, job], given[KNOWN, job] = -1, 0
    fate[EXPECTED, job] = requested
    fate[START, job] = fate[END, job] = -1
    fate[STEP, job] = 0


@kernel
def starts(shadow: Shadow, number: int, start_s: int) -> None:
    """Take note of when a job started in reality; -1: it waits again."""
    job = _slot(shadow, number)
    if job >= 0:
        shadow.given[REAL, job] = start_s


@kernel
def ends(shadow: Shadow, number: int, runtime: int, need: int, requested: int) -> None:
    """Take note of how long a job ran in reality."""
    book = shadow.book
    book[TOLD] += 1
    book[WORKED] += need * runtime
    book[ASKED] += need * requested
    forget(shadow, number, runtime)


@inlined
def forget(shadow: Shadow, number: int, runtime: int) -> None:
    """Let a job run no longer than this."""
    at, given, fate, run = shadow.at, shadow.given, shadow.fate, shadow.run
    job = _slot(shadow, number)
    if job < 0:
        return
    before = given[RUNTIME, job]
    given[KNOWN, job], given[RUNTIME, job] = 1, runtime
    if fate[START, job] < 0 or fate[END, job] >= 0 or runtime >= before:
        return
    k = 0
    while run[BY_SERIAL, run[HEAP_SERIAL, k]] != job:
        k += 1
    serial, end = run[HEAP_SERIAL, k], max(fate[START, job] + runtime, at[NOW])
    while k > 0:
        up = (k - 1) // 2
        above = run[HEAP_END, up]
        if above < end or (above == end and run[HEAP_SERIAL, up] < serial):
            break
        run[HEAP_END, k], run[HEAP_SERIAL, k] = above, run[HEAP_SERIAL, up]
        k = up
    run[HEAP_END, k], run[HEAP_SERIAL, k] = end, serial


@kernel
def withdraw(shadow: Shadow, number: int) -> None:
    """Take note that a job has left the queue: it holds nothing here any more."""
    forget(shadow, number, 1)


def warm_up() -> None:
    """Compile what follows EASY on line, or load it from the cache."""
    shadow = fresh(1)
    if has_room(shadow, 2):
        submit(shadow, 0, 0, 1, 1)
        submit(shadow, 1, 0, 1, 1)
    follow(shadow, 0, 0)
    starts(shadow, 0, 0)
    ends(shadow, 0, 1, 1, 1)
    withdraw(shadow, 1)


@inlined
def _runs_longer(shadow: Shadow, job: int, ran: int, until: int) -> int:
    """How long a job runs that was taken to end now, if that is longer; else 0."""
    given = shadow.given
    if given[KNOWN, job]:
        longer = given[RUNTIME, job]
    elif given[REAL, job] >= 0:
        real = until - given[REAL, job]
        longer = max(min(2 * real, given[REQUESTED, job]), real + 1) if real >= ran else 0
    else:
        longer = 0
    return longer if longer > ran else 0


@inlined
def _queue_new(shadow: Shadow, running: int) -> None:
    """Let the jobs queue that were submitted, and say how long they are taken to run."""
    at, given, first, book = shadow.at, shadow.given, shadow.first, shadow.book
    share = min(1.0, (book[WORKED] + running) / book[ASKED]) ** 0.5
    while at[SEEN] < at[NEXT]:
        place, job = at[FIRST_SIZE], at[SEEN]
        first[WHO, place], first[WANTS, place] = job, given[NEED, job]
        if not given[KNOWN, job]:
            given[RUNTIME, job] = max(1, int(given[REQUESTED, job] * share))
        at[FIRST_SIZE] += 1
        at[SEEN] += 1


@kernel
def follow(shadow: Shadow, until: int, running: int) -> int:
    """Go on until a time; the longest wait so far, also of the jobs that wait then.

    ``running`` is the work so far of the jobs that run in reality, processors times seconds.
    """
    at, given, fate = shadow.at, shadow.given, shadow.fate
    first, run, book = shadow.first, shadow.run, shadow.book
    now = -1
    while now < until:
        now = min(run[HEAP_END, 0] if at[PENDING] > 0 else NEVER, until)
        at[NOW] = now
        decides = now == until
        while at[PENDING] > 0 and run[HEAP_END, 0] <= now:
            serial = pop(run, at[PENDING])
            at[PENDING] -= 1
            job = run[BY_SERIAL, serial]
            longer = _runs_longer(shadow, job, now - fate[START, job], until)
            if longer > 0:
                given[RUNTIME, job] = longer
                push(run, at[PENDING], fate[START, job] + longer, serial)
                at[PENDING] += 1
                continue
            leave(run, at[RUNNING], place_of(run, at[RUNNING], job, fate[DUE_OF, job]))
            at[RUNNING] -= 1
            at[FREE] += given[NEED, job]
            fate[END, job] = now
            decides = True
        if not decides:
            continue
        if now == until:
            _queue_new(shadow, running)
        serial = at[SERIAL]
        gone, ending = correct(at, given, fate, run, MINIMAL)
        start_in_turn(at, given, fate, run, None, None, first, ending)
        if at[HEAD] < at[FIRST_SIZE]:
            blocked = first[WHO, at[HEAD]]
            backfill(
                at, given, fate, run, None, None, first, at[FIRST_SIZE], blocked, gone, ending, -1,
                0,
            )  # fmt: skip
        for k in range(serial, at[SERIAL]):
            book[LONGEST] = max(book[LONGEST], now - given[SUBMIT, run[BY_SERIAL, k]])
        if at[SERIAL] > serial:
            without_started(at, fate, first, shadow.first_key, FIRST_SIZE)
    if at[HEAD] < at[FIRST_SIZE]:
        book[LONGEST] = max(book[LONGEST], until - given[SUBMIT, first[WHO, at[HEAD]]])
    return int(book[LONGEST])
