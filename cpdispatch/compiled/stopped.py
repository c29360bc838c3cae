"""What becomes of jobs whose tests are over inside a compiled replay.

They go on, or are killed and wait again. See `heuristics.test_runs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    CLEARED,
    COMPLETED,
    ENTRIES,
    EXPECTED,
    EXPECTED_END,
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
    Rule,
    State,
)
from cpdispatch.compiled.nodes import demand_of, give_back, take_anew, wait, waits_no_more
from cpdispatch.compiled.queue import insert, lasting_key, late_after, without_started
from cpdispatch.compiled.running import lasts, leave, place_of, pop, push, run_until
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
    due_of,
    no_test_any_more,
)


@inlined
def _release(
    state: State, jobs: IntArray, outcome: IntArray, running: IntArray, nodes: Any, job: int
) -> None:
    """Take a job out of the running ones, and give back what it holds."""
    leave(running, state.running, place_of(running, state.running, job, outcome[EXPECTED_END, job]))
    state.running -= 1
    state.free += jobs[NEED, job]
    if nodes is not None:
        give_back(state, outcome, jobs, nodes, job, 1)


@inlined
def outlives(
    state: State, jobs: IntArray, outcome: IntArray, running: IntArray, nodes: Any, caution: Any,
    tests: Tests,
) -> bool:  # fmt: skip
    """Deal with the next completion if it ends no job; whether it does not.

    The test of a job is over, and it still runs, or the nodes of a killed one have been cleared. It
    is to be put into the queue.
    """
    table, length, cost = tests.table, tests.state.length_s, tests.state.restart_cost_s
    job = running[BY_SERIAL, running[HEAP_SERIAL, 0]]
    cleared = job < 0
    if cleared:
        job = -1 - job
    elif not table[TESTING, job] or jobs[RUNTIME, job] <= length:
        return False
    pop(running, state.pending)
    state.pending -= 1
    _release(state, jobs, outcome, running, nodes, job)
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


@kernel
def wait_again(
    state: State, jobs: IntArray, outcome: IntArray, primary: IntArray, primary_key: FloatArray,
    secondary: IntArray, secondary_key: FloatArray, rule: Rule, primary_weights: FloatArray,
    secondary_weights: FloatArray, own_primary: Any, own_secondary: Any, nodes: Any, caution: Any,
    tests: Tests, shadow: Any,
) -> None:  # fmt: skip
    """Put the jobs into the queue that are to be there again."""
    # The gaps that they left when they started are closed before they are in the queue again.
    without_started(outcome, primary, primary_key, state.primary)
    if not rule.one_queue:
        without_started(outcome, secondary, secondary_key, state.secondary)
    for k in range(tests.state.requeued):
        job = tests.table[REQUEUED, k]
        outcome[START, job], outcome[REASON, job] = -1, WAITS
        if caution is not None:
            outcome[UPPER, job] = max(outcome[UPPER, job], outcome[EXPECTED, job])
        if shadow is not None:
            after = late_after(jobs, job, rule.primary.threshold)
            state.none_late_until = min(state.none_late_until, after)
        if nodes is None:
            demand = jobs[NEED, job]
        else:
            duration = max(due_of(state, outcome, caution, tests, job) - state.now, 1)
            demand = demand_of(jobs[KIND, job], duration)
            wait(nodes, jobs[KIND, job], duration)
        key = 0.0
        if not rule.primary.changes:
            key = lasting_key(
                state, jobs, outcome, rule.primary, primary_weights, job, own_primary, caution
            )
            if job < state.primary.first_on_time:
                key = -np.inf
        insert(state, jobs, primary, primary_key, 0, state.primary.tail, key, job, demand)
        state.primary.tail += 1
        if not rule.one_queue:
            key = 0.0
            if not rule.secondary.changes:
                key = lasting_key(
                    state, jobs, outcome, rule.secondary, secondary_weights, job, own_secondary,
                    caution,
                )  # fmt: skip
            insert(state, jobs, secondary, secondary_key, 0, state.secondary.tail, key, job, demand)
            state.secondary.tail += 1
        state.queued += 1
    tests.state.requeued = 0


@kernel
def takes_back(
    state: State, jobs: IntArray, outcome: IntArray, running: IntArray, primary: IntArray,
    secondary: IntArray, rule: Rule, nodes: Any, caution: Any, tests: Tests, serial: int,
    entries: int,
) -> bool:  # fmt: skip
    """Take back a decision that kills jobs and uses their nodes at once, if clearing takes time.

    The starts from a serial number on are taken back, and their entries. The killed jobs hold their
    nodes until these are cleared. Returns whether another decision is needed.
    """
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
        _release(state, jobs, outcome, running, nodes, job)
        outcome[START, job], outcome[REASON, job] = -1, WAITS
        if table[STOPPED_START, job] >= 0:
            outcome[FIRST_ENTRY, job] = table[STOPPED_ENTRY, job]
            outcome[ENTRIES, job] = table[STOPPED_ENTRIES, job]
        if table[TESTING, job]:
            no_test_any_more(tests, job)
            table[TO_COME, job], table[RESULT, job] = 1, NO_TEST
        if nodes is not None:
            wait(nodes, jobs[KIND, job], lasts(state, outcome, caution, job))
    left = 0
    for k in range(state.pending):
        if running[HEAP_SERIAL, k] < serial:
            push(running, left, running[HEAP_END, k], running[HEAP_SERIAL, k])
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
        run_until(running, outcome, state.running, job, jobs[NEED, job], state.now + cost)
        state.running += 1
        state.free -= jobs[NEED, job]
        if nodes is not None:
            give_back(state, outcome, jobs, nodes, job, -1)
            waits_no_more(nodes, jobs[KIND, job])
    if nodes is not None:
        take_anew(state, jobs, outcome, caution, nodes, tests, primary, state.primary.tail)
        if not rule.one_queue:
            take_anew(state, jobs, outcome, caution, nodes, tests, secondary, state.secondary.tail)
    return True


@inlined
def is_killed(outcome: IntArray, tests: Tests, job: int) -> bool:
    """Whether a decision has killed a job that had just been stopped."""
    here = outcome[START, job] >= 0 and not tests.table[MOVED, job]
    return bool(not here or tests.table[TESTING, job] == CLEARING)


@inlined
def settle(state: State, outcome: IntArray, tests: Tests) -> None:
    """After a decision: the stopped jobs that it started go on, the others are killed."""
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
def clear(state: State, running: IntArray, tests: Tests) -> None:
    """After a decision: jobs that were killed leave the queue until their nodes are cleared."""
    for k in range(tests.state.stopped):
        job = tests.table[STOPPED, k]
        if tests.table[TESTING, job] == CLEARING:
            running[BY_SERIAL, state.next_serial] = -1 - job
            push(running, state.pending, state.now + tests.state.restart_cost_s, state.next_serial)
            state.next_serial += 1
            state.pending += 1
            state.queued -= 1
    tests.state.stopped = 0
