"""EASY backfilling on a pool beside the real schedule: how long would the jobs have waited?

It is told what a dispatcher knows:

- A job that has ended in reality runs as long here.
- Any other job is taken to run for its requested time, times the square root of the share that jobs
  use of their requested times. The root makes it longer: jobs that have not started yet are longer
  than those that have. The share is the work of all jobs so far, running ones included, divided by
  the work that the ended ones requested, since long jobs end last.
- A job that runs longer than that in reality is taken to run twice as long as it has run so far, up
  to its requested time. From then on it is taken to end within a second.

EASY decides whenever a job ends here, and at each decision in reality.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.compile import allocating, inlined, kernel
from cpdispatch.compiled import fields
from cpdispatch.compiled.correction import MINIMAL
from cpdispatch.compiled.fields import Record
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    CORRECTED,
    DEMAND,
    END,
    EXPECTED,
    HEAP_END,
    HEAP_SERIAL,
    JOB,
    NEED,
    NEVER,
    REQUESTED,
    RUNTIME,
    START,
    SUBMIT,
    Marks,
    Queue,
    QueueRule,
    Rule,
    State,
    Tables,
)
from cpdispatch.compiled.pool import backfill, start_in_turn
from cpdispatch.compiled.queue import without_started
from cpdispatch.compiled.running import correct, lift, pop, release

REAL_START, KNOWN, NUMBER = range(4, 7)
"""Rows of `Shadow.jobs`, beyond the first ones of `layout.Tables.jobs`. Of each job: its start in
reality, -1 before; whether its runtime is known; its number, by which others call it. Numbers
ascend."""


class Totals(Record):
    """What is summed up over the jobs so far."""

    longest_wait_s: int
    """The longest wait here. It never falls."""
    work_done: int
    """Processors times seconds of the jobs that have ended in reality."""
    work_requested: int
    """The same by their requested times."""
    ends_told: int
    """How many ends in reality `ends` was told of."""


FIRST_ROOM = 1 << 12
"""Room for so many jobs at first."""
_AT_FIRST_S, _USED = 3600, 0.3
"""Before any job has ended, an hour of the machine counts as work that used such a share."""


class Shadow(NamedTuple):
    """The jobs that wait or run here, and some that have ended."""

    tables: Tables
    totals: Totals


def fresh(processors: int, room: int = 0) -> Shadow:
    """A shadow that knows no jobs, with room for so many; `FIRST_ROOM` when 0."""
    room = room or FIRST_ROOM
    requested = _AT_FIRST_S * processors
    totals = fields.fresh(Totals, work_requested=requested, work_done=int(_USED * requested))
    queue = Queue(
        np.zeros((DEMAND + 1, room), dtype=np.int64),
        np.zeros(room),
        fields.fresh(Marks),
        fields.fresh(QueueRule),
        np.zeros(0),
    )
    tables = Tables(
        fields.fresh(State, free=processors, blocked=-1, ahead_job=-1),
        fields.fresh(Rule, one_queue=True, correction=MINIMAL),
        np.zeros((NUMBER + 1, room), dtype=np.int64),
        np.zeros((CORRECTED + 1, room), dtype=np.int64),
        queue,
        queue,
        np.zeros((BY_SERIAL + 1, room), dtype=np.int64),
    )
    return Shadow(tables, totals)


def grown(shadow: Shadow, more: int) -> Shadow:
    """The same with room for so many more jobs, and at least twice as much."""
    larger = fresh(0, 2 * (shadow.tables.jobs.shape[1] + more))
    for mine, theirs in zip(_arrays(larger), _arrays(shadow), strict=True):
        mine[..., : theirs.shape[-1]] = theirs
    for record, other in zip(_records(larger), _records(shadow), strict=True):
        fields.assign(record, other)
    return larger


def _records(shadow: Shadow) -> tuple[Record, ...]:
    """The records that change."""
    return shadow.tables.state, shadow.tables.primary.marks, shadow.totals


def _arrays(shadow: Shadow) -> tuple[NDArray[Any], ...]:
    """The arrays that change. All keys are 0."""
    tables = shadow.tables
    return tables.jobs, tables.outcome, tables.primary.place, tables.running


def used(shadow: Shadow) -> list[list[list[int]]]:
    """All of it as lists of rows, without the columns that nothing is in; see `restored`."""
    state, tail = shadow.tables.state, shadow.tables.primary.marks.tail
    columns = int(max(state.submitted, state.next_serial, state.pending, state.running, tail))
    arrays = (array[:, :columns].tolist() for array in _arrays(shadow))
    return [*([fields.flat(record)] for record in _records(shadow)), *arrays]


def restored(parts: list[list[list[int]]]) -> Shadow:
    """A shadow of what `used` gave.

    Raises
    ------
    ValueError
        When it is of another shape.
    """
    columns = len(parts[-1][0]) if parts and parts[-1] else 0
    shadow = fresh(0, max(2 * columns, FIRST_ROOM))
    mine: tuple[Any, ...] = (*_records(shadow), *_arrays(shadow))
    for each, rows in zip(mine, parts, strict=True):
        if isinstance(each, Record):
            fields.refill(each, rows[0])
        else:
            each[..., :columns] = np.array(rows).reshape(*each.shape[:-1], columns)
    return shadow


@inlined
def _slot(shadow: Shadow, number: int) -> int:
    """Where the job of a number is; -1 when it has ended here and was forgotten."""
    jobs, count = shadow.tables.jobs, shadow.tables.state.submitted
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if jobs[NUMBER, middle] < number:
            low = middle + 1
        else:
            high = middle
    found = low < count and jobs[NUMBER, low] == number
    return low if found else -1


@inlined
def has_room(shadow: Shadow, more: int) -> bool:
    """Whether so many more jobs can be submitted, once those are forgotten that have ended."""
    if shadow.tables.state.submitted + more <= shadow.tables.jobs.shape[1]:
        return True
    return _has_room_without_ended(shadow, more)


@allocating
def _has_room_without_ended(shadow: Shadow, more: int) -> bool:
    """Forget the jobs that have ended; whether there is room now, and some to spare."""
    tables = shadow.tables
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    place, room = tables.primary.place, jobs.shape[1]
    without_started(tables, tables.primary)
    kept = np.full(state.submitted, -1, dtype=np.int64)
    to = 0
    for job in range(state.submitted):
        if outcome[END, job] < 0:
            kept[job] = to
            for row in range(jobs.shape[0]):
                jobs[row, to] = jobs[row, job]
            for row in range(outcome.shape[0]):
                outcome[row, to] = outcome[row, job]
            to += 1
    state.submitted_before -= state.submitted - to
    state.submitted = to
    for k in range(tables.primary.marks.tail):
        place[JOB, k] = kept[place[JOB, k]]
    for k in range(state.running):
        running[JOB, k] = kept[running[JOB, k]]
    serials = np.sort(running[HEAP_SERIAL, : state.pending])
    for k in range(state.pending):
        running[HEAP_SERIAL, k] = np.searchsorted(serials, running[HEAP_SERIAL, k])
    for k in range(state.pending):
        running[BY_SERIAL, k] = kept[running[BY_SERIAL, serials[k]]]
    state.next_serial = state.pending
    return bool(2 * (state.submitted + more) <= room)


@inlined
def submit(shadow: Shadow, number: int, submit_s: int, need: int, requested: int) -> None:
    """Take note of a job, which queues from the time up to which is followed next.

    There must be room for it.
    """
    tables = shadow.tables
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    job = state.submitted
    state.submitted += 1
    jobs[NUMBER, job], jobs[SUBMIT, job] = number, submit_s
    jobs[NEED, job], jobs[REQUESTED, job] = need, requested
    jobs[RUNTIME, job] = requested
    jobs[REAL_START, job], jobs[KNOWN, job] = -1, 0
    outcome[EXPECTED, job] = requested
    outcome[START, job] = outcome[END, job] = -1
    outcome[CORRECTED, job] = 0


@kernel
def submit_all(
    shadow: Shadow, first: int, submit_s: IntArray, need: IntArray, requested: IntArray
) -> None:
    """Take note of jobs that are numbered from ``first`` on, see `submit`."""
    for k in range(submit_s.shape[0]):
        submit(shadow, first + k, submit_s[k], need[k], requested[k])


@inlined
def starts(shadow: Shadow, number: int, start_s: int) -> None:
    """Take note of when a job started in reality; -1: it waits again."""
    job = _slot(shadow, number)
    if job >= 0:
        shadow.tables.jobs[REAL_START, job] = start_s


@inlined
def ends(shadow: Shadow, number: int, runtime: int, need: int, requested: int) -> None:
    """Take note of how long a job ran in reality."""
    totals = shadow.totals
    totals.ends_told += 1
    totals.work_done += need * runtime
    totals.work_requested += need * requested
    forget(shadow, number, runtime)


@inlined
def forget(shadow: Shadow, number: int, runtime: int) -> None:
    """Let a job run no longer than this."""
    tables = shadow.tables
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    job = _slot(shadow, number)
    if job < 0:
        return
    before = jobs[RUNTIME, job]
    jobs[KNOWN, job], jobs[RUNTIME, job] = 1, runtime
    if outcome[START, job] < 0 or outcome[END, job] >= 0 or runtime >= before:
        return
    k = 0
    while running[BY_SERIAL, running[HEAP_SERIAL, k]] != job:
        k += 1
    end = max(outcome[START, job] + runtime, state.now)
    lift(running, k, end, running[HEAP_SERIAL, k])


@kernel
def withdraw(shadow: Shadow, number: int) -> None:
    """Take note that a job has left the queue: it holds nothing here any more."""
    forget(shadow, number, 1)


def warm_up() -> None:
    """Compile what follows EASY on line, or load it from the cache."""
    shadow = fresh(1)
    if has_room(shadow, 2):
        submit_all(shadow, 0, *(sealed(np.array(each)) for each in ([0, 0], [1, 1], [1, 1])))
    follow(shadow, 0, 0)
    starts(shadow, 0, 0)
    ends(shadow, 0, 1, 1, 1)
    withdraw(shadow, 1)


@inlined
def _runs_longer(shadow: Shadow, job: int, ran: int, until: int) -> int:
    """How long a job runs that was taken to end now, if that is longer; else 0."""
    jobs = shadow.tables.jobs
    if jobs[KNOWN, job]:
        longer = jobs[RUNTIME, job]
    elif jobs[REAL_START, job] >= 0:
        real = until - jobs[REAL_START, job]
        longer = max(min(2 * real, jobs[REQUESTED, job]), real + 1) if real >= ran else 0
    else:
        longer = 0
    return longer if longer > ran else 0


@inlined
def _queue_new(shadow: Shadow, work: int) -> None:
    """Let the jobs queue that were submitted, and say how long they are taken to run."""
    state, jobs, totals = shadow.tables.state, shadow.tables.jobs, shadow.totals
    place, marks = shadow.tables.primary.place, shadow.tables.primary.marks
    share = min(1.0, (totals.work_done + work) / totals.work_requested) ** 0.5
    while state.submitted_before < state.submitted:
        job = state.submitted_before
        place[JOB, marks.tail], place[DEMAND, marks.tail] = job, jobs[NEED, job]
        if not jobs[KNOWN, job]:
            jobs[RUNTIME, job] = max(1, int(jobs[REQUESTED, job] * share))
        marks.tail += 1
        state.submitted_before += 1


@kernel
def follow(shadow: Shadow, until: int, work: int) -> int:
    """Go on until a time; the longest wait so far, also of the jobs that wait then.

    ``work`` is the work so far of the jobs that run in reality, processors times seconds.
    """
    tables, totals = shadow.tables, shadow.totals
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    place, marks = tables.primary.place, tables.primary.marks
    now = -1
    while now < until:
        now = min(running[HEAP_END, 0] if state.pending > 0 else NEVER, until)
        state.now = now
        decides = now == until
        while state.pending > 0 and running[HEAP_END, 0] <= now:
            serial = pop(running, state.pending)
            state.pending -= 1
            job = running[BY_SERIAL, serial]
            longer = _runs_longer(shadow, job, now - outcome[START, job], until)
            if longer > 0:
                jobs[RUNTIME, job] = longer
                lift(running, state.pending, outcome[START, job] + longer, serial)
                state.pending += 1
                continue
            release(tables, job)
            outcome[END, job] = now
            decides = True
        if not decides:
            continue
        if now == until:
            _queue_new(shadow, work)
        serial = state.next_serial
        gone, ending = correct(tables)
        start_in_turn(tables, None, None, ending)
        if marks.head < marks.tail:
            backfill(tables, None, None, place[JOB, marks.head], gone, ending, -1, 0)
        for k in range(serial, state.next_serial):
            wait_s = now - jobs[SUBMIT, running[BY_SERIAL, k]]
            totals.longest_wait_s = max(totals.longest_wait_s, wait_s)
        if state.next_serial > serial:
            without_started(tables, tables.primary)
    if marks.head < marks.tail:
        wait_s = until - jobs[SUBMIT, place[JOB, marks.head]]
        totals.longest_wait_s = max(totals.longest_wait_s, wait_s)
    return int(totals.longest_wait_s)
