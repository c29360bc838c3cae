"""What becomes of jobs whose tests are over inside a compiled replay.

They go on, or are killed and wait again. See `heuristics.test_runs`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BEFORE,
    BY_SERIAL,
    CLEARED,
    COMPLETED,
    COUNT,
    DUE_OF,
    EXPECTED,
    FIRST,
    HEAP_END,
    HEAP_SERIAL,
    KIND,
    LIMIT,
    NEED,
    REASON,
    REQUESTED,
    RUNTIME,
    START,
    UPPER,
    WAITS,
    Rule,
    State,
)
from cpdispatch.compiled.nodes import give_back, take_anew, wait, waits_no_more, wanted
from cpdispatch.compiled.queue import insert, lasting_key, late_after, without_started
from cpdispatch.compiled.running import lasts, leave, place_of, pop, push, run_until
from cpdispatch.compiled.test_runs import (
    AGAIN,
    BECAUSE,
    BEGAN,
    CLEARING,
    FATE,
    KILLED,
    LIST,
    LOST_COUNT,
    LOST_END,
    LOST_FIRST,
    LOST_START,
    MOVED,
    NO_TEST,
    SAID,
    TESTING,
    TO_COME,
    UNDER,
    UPPER_AGAIN,
    WENT_ON,
    Trials,
    due_of,
    no_test_any_more,
)


@inlined
def _release(
    state: State, given: IntArray, fate: IntArray, run: IntArray, nodes: Any, job: int
) -> None:
    """Take a job out of the running ones, and give back what it holds."""
    leave(run, state.running, place_of(run, state.running, job, fate[DUE_OF, job]))
    state.running -= 1
    state.free += given[NEED, job]
    if nodes is not None:
        give_back(state, fate, given, nodes, job, 1)


@inlined
def outlives(
    state: State, given: IntArray, fate: IntArray, run: IntArray, nodes: Any, caution: Any,
    trials: Trials,
) -> bool:  # fmt: skip
    """Deal with the next completion if it ends no job; whether it does not.

    The test of a job is over, and it still runs, or the nodes of a killed one have been cleared. It
    is to be put into the queue.
    """
    of, length, cost = trials.of, trials.state.length_s, trials.state.restart_cost_s
    job = run[BY_SERIAL, run[HEAP_SERIAL, 0]]
    cleared = job < 0
    if cleared:
        job = -1 - job
    elif not of[TESTING, job] or given[RUNTIME, job] <= length:
        return False
    pop(run, state.pending)
    state.pending -= 1
    _release(state, given, fate, run, nodes, job)
    if run.shape[0] > BEFORE:
        count = state.next_serial - state.pending - 1
        run[COMPLETED, count], run[BEFORE, count] = (
            CLEARED if cleared else -1 - job,
            state.next_serial,
        )
    state.oldest_waiting = min(state.oldest_waiting, job)
    no_test_any_more(trials, job)
    of[AGAIN, trials.state.requeued] = job
    trials.state.requeued += 1
    if cleared:
        given[REQUESTED, job] += cost
        given[RUNTIME, job] += cost
        fate[EXPECTED, job] += cost
        if caution is not None:
            fate[UPPER, job] = of[UPPER_AGAIN, job]
            fate[LIMIT, job] += cost
        return True
    of[BEGAN, job], of[BECAUSE, job] = fate[START, job], fate[REASON, job]
    of[LOST_FIRST, job], of[LOST_COUNT, job] = fate[FIRST, job], fate[COUNT, job]
    of[LIST, trials.state.stopped] = job
    trials.state.stopped += 1
    of[SAID, job] = fate[EXPECTED, job]
    if fate[EXPECTED, job] <= length:
        fate[EXPECTED, job] = given[REQUESTED, job]
    if caution is not None:
        of[UPPER_AGAIN, job] = fate[UPPER, job] + cost
    return True


@kernel
def wait_again(
    state: State, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, rule: Rule, first_weights: FloatArray,
    second_weights: FloatArray, own_first: Any, own_second: Any, nodes: Any, caution: Any,
    trials: Trials, shadow: Any,
) -> None:  # fmt: skip
    """Put the jobs into the queue that are to be there again."""
    # The gaps that they left when they started are closed before they are in the queue again.
    without_started(fate, first, first_key, state.primary)
    if not rule.one_queue:
        without_started(fate, second, second_key, state.secondary)
    for k in range(trials.state.requeued):
        job = trials.of[AGAIN, k]
        fate[START, job], fate[REASON, job] = -1, WAITS
        if caution is not None:
            fate[UPPER, job] = max(fate[UPPER, job], fate[EXPECTED, job])
        if shadow is not None:
            after = late_after(given, job, rule.primary.threshold)
            state.none_late_until = min(state.none_late_until, after)
        if nodes is None:
            wants = given[NEED, job]
        else:
            duration = max(due_of(state, fate, caution, trials, job) - state.now, 1)
            wants = wanted(given[KIND, job], duration)
            wait(nodes, given[KIND, job], duration)
        key = 0.0
        if not rule.primary.changes:
            key = lasting_key(
                state, given, fate, rule.primary, first_weights, job, own_first, caution
            )
            if job < state.primary.first_on_time:
                key = -np.inf
        insert(state, given, first, first_key, 0, state.primary.tail, key, job, wants)
        state.primary.tail += 1
        if not rule.one_queue:
            key = 0.0
            if not rule.secondary.changes:
                key = lasting_key(
                    state, given, fate, rule.secondary, second_weights, job, own_second, caution
                )
            insert(state, given, second, second_key, 0, state.secondary.tail, key, job, wants)
            state.secondary.tail += 1
        state.queued += 1
    trials.state.requeued = 0


@kernel
def takes_back(
    state: State, given: IntArray, fate: IntArray, run: IntArray, first: IntArray,
    second: IntArray, rule: Rule, nodes: Any, caution: Any, trials: Trials, serial: int,
    entries: int,
) -> bool:  # fmt: skip
    """Take a decision back that kills jobs whose nodes it takes to be free, though that takes time.

    Starts from a serial number on are taken back, and their entries, and the killed jobs hold their
    nodes until these are cleared. Returns whether another decision is needed.
    """
    of, cost, found = trials.of, trials.state.restart_cost_s, False
    if cost == 0:
        return False
    for k in range(trials.state.stopped):
        job = of[LIST, k]
        if fate[START, job] < 0:
            of[MOVED, job] = 1
        if of[MOVED, job]:
            found = True
    if not found:
        return False
    for number in range(serial, state.next_serial):
        job = run[BY_SERIAL, number]
        _release(state, given, fate, run, nodes, job)
        fate[START, job], fate[REASON, job] = -1, WAITS
        if of[BEGAN, job] >= 0:
            fate[FIRST, job], fate[COUNT, job] = of[LOST_FIRST, job], of[LOST_COUNT, job]
        if of[TESTING, job]:
            no_test_any_more(trials, job)
            of[TO_COME, job], of[FATE, job] = 1, NO_TEST
        if nodes is not None:
            wait(nodes, given[KIND, job], lasts(state, fate, caution, job))
    left = 0
    for k in range(state.pending):
        if run[HEAP_SERIAL, k] < serial:
            push(run, left, run[HEAP_END, k], run[HEAP_SERIAL, k])
            left += 1
    state.next_serial, state.pending, state.entries, state.blocked = serial, left, entries, -1
    for k in range(trials.state.stopped):
        job = of[LIST, k]
        if not of[MOVED, job]:
            continue
        of[MOVED, job], of[TESTING, job] = 0, CLEARING
        fate[START, job] = of[BEGAN, job]
        of[UNDER, trials.state.tested] = job
        trials.state.tested += 1
        run_until(run, fate, state.running, job, given[NEED, job], state.now + cost)
        state.running += 1
        state.free -= given[NEED, job]
        if nodes is not None:
            give_back(state, fate, given, nodes, job, -1)
            waits_no_more(nodes, given[KIND, job])
    if nodes is not None:
        take_anew(state, given, fate, caution, nodes, trials, first, state.primary.tail)
        if not rule.one_queue:
            take_anew(state, given, fate, caution, nodes, trials, second, state.secondary.tail)
    return True


@inlined
def is_killed(fate: IntArray, trials: Trials, job: int) -> bool:
    """Whether a decision has killed a job that had just been stopped."""
    here = fate[START, job] >= 0 and not trials.of[MOVED, job]
    return bool(not here or trials.of[TESTING, job] == CLEARING)


@inlined
def settle(state: State, fate: IntArray, trials: Trials) -> None:
    """After a decision: the stopped jobs that it started go on, the others are killed."""
    of = trials.of
    for k in range(trials.state.stopped):
        job = of[LIST, k]
        began = of[BEGAN, job]
        if is_killed(fate, trials, job):
            of[FATE, job] = KILLED
            of[LOST_START, job], of[LOST_END, job] = began, state.now + trials.state.restart_cost_s
        else:
            of[FATE, job] = WENT_ON
            fate[START, job], fate[REASON, job] = began, of[BECAUSE, job]
        of[BEGAN, job], of[MOVED, job] = -1, 0


@inlined
def clear(state: State, run: IntArray, trials: Trials) -> None:
    """After a decision: jobs that were killed leave the queue until their nodes are cleared."""
    for k in range(trials.state.stopped):
        job = trials.of[LIST, k]
        if trials.of[TESTING, job] == CLEARING:
            run[BY_SERIAL, state.next_serial] = -1 - job
            push(run, state.pending, state.now + trials.state.restart_cost_s, state.next_serial)
            state.next_serial += 1
            state.pending += 1
            state.queued -= 1
    trials.state.stopped = 0
