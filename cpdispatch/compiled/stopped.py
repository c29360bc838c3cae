"""What becomes of jobs whose tests are over inside a compiled replay.

They go on, or are killed and wait again. See `heuristics.test_runs`.
"""

from __future__ import annotations

from typing import Any

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    CLEARED,
    COMPLETED,
    ENTRIES,
    EXPECTED,
    FIRST_ENTRY,
    HEAP_END,
    HEAP_SERIAL,
    KIND,
    LIMIT,
    NEED,
    REASON,
    REQUESTED,
    RUNTIME,
    START,
    STARTED_BEFORE,
    UPPER,
    WAITS,
    Tables,
)
from cpdispatch.compiled.nodes import end, hold, take_anew, wait, waits_no_more
from cpdispatch.compiled.running import lasts, lift, pop, release, run_until
from cpdispatch.compiled.test_runs import (
    CLEARING,
    FIRST_EXPECTED,
    KILLED,
    LOST_END,
    LOST_START,
    MOVED,
    NO_TEST,
    REQUEUED,
    RESULT,
    STOPPED,
    STOPPED_ENTRIES,
    STOPPED_ENTRY,
    STOPPED_REASON,
    STOPPED_START,
    TESTED,
    TESTING,
    TO_COME,
    UPPER_AGAIN,
    WENT_ON,
    Tests,
    line_up,
    no_test_any_more,
)


@inlined
def _release(tables: Tables, nodes: Any, job: int) -> None:
    """Take a job out of the running ones, and give back what it holds."""
    release(tables, job)
    if nodes is not None:
        end(tables, nodes, job)


@inlined
def outlives(tables: Tables, nodes: Any, caution: Any, tests: Tests) -> bool:
    """Deal with the next completion if it ends no job; whether it does not.

    The test of a job is over, and it still runs, or the nodes of a killed one have been cleared. It
    is to be put into the queue.
    """
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    table, length, cost = tests.table, tests.state.length_s, tests.state.restart_cost_s
    job = running[BY_SERIAL, running[HEAP_SERIAL, 0]]
    cleared = job < 0
    if cleared:
        job = -1 - job
    elif not table[TESTING, job] or jobs[RUNTIME, job] <= length:
        return False
    pop(running, state.pending)
    state.pending -= 1
    _release(tables, nodes, job)
    if running.shape[0] > STARTED_BEFORE:
        count = state.next_serial - state.pending - 1
        running[COMPLETED, count] = CLEARED if cleared else -1 - job
        running[STARTED_BEFORE, count] = state.next_serial
    state.oldest_waiting = min(state.oldest_waiting, job)
    no_test_any_more(tests, job)
    table[REQUEUED, tests.state.requeued] = job
    tests.state.requeued += 1
    if cleared:
        jobs[REQUESTED, job] += cost
        jobs[RUNTIME, job] += cost
        outcome[EXPECTED, job] += cost
        if caution is not None:
            outcome[UPPER, job] = table[UPPER_AGAIN, job]
            outcome[LIMIT, job] += cost
        return True
    table[STOPPED_START, job] = outcome[START, job]
    table[STOPPED_REASON, job] = outcome[REASON, job]
    table[STOPPED_ENTRY, job] = outcome[FIRST_ENTRY, job]
    table[STOPPED_ENTRIES, job] = outcome[ENTRIES, job]
    table[STOPPED, tests.state.stopped] = job
    tests.state.stopped += 1
    table[FIRST_EXPECTED, job] = outcome[EXPECTED, job]
    if outcome[EXPECTED, job] <= length:
        outcome[EXPECTED, job] = jobs[REQUESTED, job]
    if caution is not None:
        table[UPPER_AGAIN, job] = outcome[UPPER, job] + cost
    return True


@inlined
def takes_back(
    tables: Tables, nodes: Any, caution: Any, tests: Tests, serial: int, entries: int
) -> bool:
    """Take back a decision that kills jobs and uses their nodes at once, if clearing takes time.

    The starts from a serial number on are taken back, and their entries. The killed jobs hold their
    nodes until these are cleared. Returns whether another decision is needed.
    """
    state, jobs, outcome, running = tables.state, tables.jobs, tables.outcome, tables.running
    table, cost, found = tests.table, tests.state.restart_cost_s, False
    if cost == 0:
        return False
    for k in range(tests.state.stopped):
        job = table[STOPPED, k]
        if outcome[START, job] < 0:
            table[MOVED, job] = 1
        if table[MOVED, job]:
            found = True
    if not found:
        return False
    for number in range(serial, state.next_serial):
        job = running[BY_SERIAL, number]
        _release(tables, nodes, job)
        outcome[START, job], outcome[REASON, job] = -1, WAITS
        if table[STOPPED_START, job] >= 0:
            outcome[FIRST_ENTRY, job] = table[STOPPED_ENTRY, job]
            outcome[ENTRIES, job] = table[STOPPED_ENTRIES, job]
        if table[TESTING, job]:
            no_test_any_more(tests, job)
            table[TO_COME, job], table[RESULT, job] = 1, NO_TEST
        if table[TO_COME, job]:
            line_up(tables, tests, nodes, job)
        if nodes is not None:
            wait(nodes, jobs[KIND, job], lasts(tables, caution, job))
    left = 0
    for k in range(state.pending):
        if running[HEAP_SERIAL, k] < serial:
            lift(running, left, running[HEAP_END, k], running[HEAP_SERIAL, k])
            left += 1
    state.next_serial, state.pending, state.entries, state.blocked = serial, left, entries, -1
    for k in range(tests.state.stopped):
        job = table[STOPPED, k]
        if not table[MOVED, job]:
            continue
        table[MOVED, job], table[TESTING, job] = 0, CLEARING
        outcome[START, job] = table[STOPPED_START, job]
        table[TESTED, tests.state.tested] = job
        tests.state.tested += 1
        due = state.now + cost
        run_until(running, outcome, state.running, job, jobs[NEED, job], due)
        state.running += 1
        state.free -= jobs[NEED, job]
        if nodes is not None:
            hold(tables, nodes, job, due)
            waits_no_more(nodes, jobs[KIND, job])
    if nodes is not None:
        take_anew(tables, caution, nodes, tests, tables.primary)
        if not tables.rule.one_queue:
            take_anew(tables, caution, nodes, tests, tables.secondary)
    return True


@inlined
def is_killed(outcome: IntArray, tests: Tests, job: int) -> bool:
    """Whether a decision has killed a job that had just been stopped."""
    here = outcome[START, job] >= 0 and not tests.table[MOVED, job]
    return bool(not here or tests.table[TESTING, job] == CLEARING)


@inlined
def settle(tables: Tables, tests: Tests) -> None:
    """After a decision: the stopped jobs that it started go on, the others are killed."""
    state, outcome = tables.state, tables.outcome
    table = tests.table
    for k in range(tests.state.stopped):
        job = table[STOPPED, k]
        began = table[STOPPED_START, job]
        if is_killed(outcome, tests, job):
            table[RESULT, job] = KILLED
            table[LOST_START, job], table[LOST_END, job] = (
                began,
                state.now + tests.state.restart_cost_s,
            )
        else:
            table[RESULT, job] = WENT_ON
            outcome[START, job], outcome[REASON, job] = began, table[STOPPED_REASON, job]
        table[STOPPED_START, job], table[MOVED, job] = -1, 0


@inlined
def clear(tables: Tables, tests: Tests) -> None:
    """After a decision: jobs that were killed leave the queue until their nodes are cleared."""
    state, running = tables.state, tables.running
    for k in range(tests.state.stopped):
        job = tests.table[STOPPED, k]
        if tests.table[TESTING, job] == CLEARING:
            running[BY_SERIAL, state.next_serial] = -1 - job
            lift(running, state.pending, state.now + tests.state.restart_cost_s, state.next_serial)
            state.next_serial += 1
            state.pending += 1
            state.queued -= 1
    tests.state.stopped = 0
