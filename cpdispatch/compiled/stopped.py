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
    BLOCKED,
    BY_SERIAL,
    CLEARED,
    COMPLETED,
    COUNT,
    DUE_OF,
    ENTRIES,
    EXPECTED,
    FIRST,
    FIRST_SIZE,
    FREE,
    HEAP_END,
    HEAP_SERIAL,
    KIND,
    LATE,
    LIMIT,
    NEED,
    NONE_LATE,
    NOW,
    OLDEST,
    PENDING,
    PRIMARY,
    PRIMARY_CHANGES,
    QUEUED,
    REASON,
    REQUESTED,
    RUNNING,
    RUNTIME,
    SAME,
    SECOND_SIZE,
    SECONDARY,
    SECONDARY_CHANGES,
    SERIAL,
    SHARE,
    START,
    SUBMIT,
    THRESHOLD,
    UPPER,
    WAITS,
    WIDE,
)
from cpdispatch.compiled.nodes import give_back, take_anew, wait, waits_no_more, wanted
from cpdispatch.compiled.queue import insert, lasting_key, shortened, without_started
from cpdispatch.compiled.running import lasts, leave, place_of, pop, push, run_until
from cpdispatch.compiled.test_runs import (
    AGAIN,
    BECAUSE,
    BEGAN,
    CLEARING,
    COST,
    FATE,
    KILLED,
    LENGTH,
    LIST,
    LOST_COUNT,
    LOST_END,
    LOST_FIRST,
    LOST_START,
    MOVED,
    NO_TEST,
    SAID,
    STOPPED,
    TESTED,
    TESTING,
    TO_COME,
    UNDER,
    UPPER_AGAIN,
    WAITING,
    WENT_ON,
    Trials,
    due_of,
    no_test_any_more,
)


@inlined
def _release(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Any, job: int
) -> None:
    """Take a job out of the running ones, and give back what it holds."""
    leave(run, at[RUNNING], place_of(run, at[RUNNING], job, fate[DUE_OF, job]))
    at[RUNNING] -= 1
    at[FREE] += given[NEED, job]
    if nodes is not None:
        give_back(at, fate, given, nodes, job, 1)


@inlined
def outlives(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Any, care: Any,
    trials: Trials,
) -> bool:  # fmt: skip
    """Deal with the next completion if it ends no job; whether it does not.

    The test of a job is over, and it still runs, or the nodes of a killed one have been cleared. It
    is to be put into the queue.
    """
    of, length, cost = trials.of, trials.rule[LENGTH], trials.rule[COST]
    job = run[BY_SERIAL, run[HEAP_SERIAL, 0]]
    cleared = job < 0
    if cleared:
        job = -1 - job
    elif not of[TESTING, job] or given[RUNTIME, job] <= length:
        return False
    pop(run, at[PENDING])
    at[PENDING] -= 1
    _release(at, given, fate, run, nodes, job)
    if run.shape[0] > BEFORE:
        count = at[SERIAL] - at[PENDING] - 1
        run[COMPLETED, count], run[BEFORE, count] = CLEARED if cleared else -1 - job, at[SERIAL]
    at[OLDEST] = min(at[OLDEST], job)
    no_test_any_more(trials, job)
    of[AGAIN, trials.rule[WAITING]] = job
    trials.rule[WAITING] += 1
    if cleared:
        given[REQUESTED, job] += cost
        given[RUNTIME, job] += cost
        fate[EXPECTED, job] += cost
        if care is not None:
            fate[UPPER, job] = of[UPPER_AGAIN, job]
            fate[LIMIT, job] += cost
        return True
    of[BEGAN, job], of[BECAUSE, job] = fate[START, job], fate[REASON, job]
    of[LOST_FIRST, job], of[LOST_COUNT, job] = fate[FIRST, job], fate[COUNT, job]
    of[LIST, trials.rule[STOPPED]] = job
    trials.rule[STOPPED] += 1
    of[SAID, job] = fate[EXPECTED, job]
    if fate[EXPECTED, job] <= length:
        fate[EXPECTED, job] = given[REQUESTED, job]
    if care is not None:
        of[UPPER_AGAIN, job] = fate[UPPER, job] + cost
    return True


@kernel
def wait_again(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, first_key: FloatArray,
    second: IntArray, second_key: FloatArray, rule: IntArray, first_weights: FloatArray,
    second_weights: FloatArray, own_first: Any, own_second: Any, nodes: Any, care: Any,
    trials: Trials, shadow: Any,
) -> None:  # fmt: skip
    """Put the jobs into the queue that are to be there again."""
    # The gaps that they left when they started are closed before they are in the queue again.
    without_started(at, fate, first, first_key, FIRST_SIZE)
    if not rule[SAME]:
        without_started(at, fate, second, second_key, SECOND_SIZE)
    for k in range(trials.rule[WAITING]):
        job = trials.of[AGAIN, k]
        fate[START, job], fate[REASON, job] = -1, WAITS
        if care is not None:
            fate[UPPER, job] = max(fate[UPPER, job], fate[EXPECTED, job])
        if shadow is not None:
            due = given[SUBMIT, job] + shortened(rule[THRESHOLD], rule[WIDE], given[SHARE, job])
            at[NONE_LATE] = min(at[NONE_LATE], due)
        if nodes is None:
            wants = given[NEED, job]
        else:
            duration = max(due_of(at, fate, care, trials, job) - at[NOW], 1)
            wants = wanted(given[KIND, job], duration)
            wait(nodes, given[KIND, job], duration)
        key = 0.0
        if not rule[PRIMARY_CHANGES]:
            key = lasting_key(at, given, fate, rule[PRIMARY], first_weights, job, own_first, care)
            if job < at[LATE]:
                key = -np.inf
        insert(at, given, first, first_key, 0, at[FIRST_SIZE], key, job, wants)
        at[FIRST_SIZE] += 1
        if not rule[SAME]:
            key = 0.0
            if not rule[SECONDARY_CHANGES]:
                key = lasting_key(
                    at, given, fate, rule[SECONDARY], second_weights, job, own_second, care
                )
            insert(at, given, second, second_key, 0, at[SECOND_SIZE], key, job, wants)
            at[SECOND_SIZE] += 1
        at[QUEUED] += 1
    trials.rule[WAITING] = 0


@kernel
def takes_back(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, first: IntArray,
    second: IntArray, rule: IntArray, nodes: Any, care: Any, trials: Trials, serial: int,
    entries: int,
) -> bool:  # fmt: skip
    """Take a decision back that kills jobs whose nodes it takes to be free, though that takes time.

    Starts from a serial number on are taken back, and their entries, and the killed jobs hold their
    nodes until these are cleared. Returns whether another decision is needed.
    """
    of, cost, found = trials.of, trials.rule[COST], False
    if cost == 0:
        return False
    for k in range(trials.rule[STOPPED]):
        job = of[LIST, k]
        if fate[START, job] < 0:
            of[MOVED, job] = 1
        if of[MOVED, job]:
            found = True
    if not found:
        return False
    for number in range(serial, at[SERIAL]):
        job = run[BY_SERIAL, number]
        _release(at, given, fate, run, nodes, job)
        fate[START, job], fate[REASON, job] = -1, WAITS
        if of[BEGAN, job] >= 0:
            fate[FIRST, job], fate[COUNT, job] = of[LOST_FIRST, job], of[LOST_COUNT, job]
        if of[TESTING, job]:
            no_test_any_more(trials, job)
            of[TO_COME, job], of[FATE, job] = 1, NO_TEST
        if nodes is not None:
            wait(nodes, given[KIND, job], lasts(at, fate, care, job))
    left = 0
    for k in range(at[PENDING]):
        if run[HEAP_SERIAL, k] < serial:
            push(run, left, run[HEAP_END, k], run[HEAP_SERIAL, k])
            left += 1
    at[SERIAL], at[PENDING], at[ENTRIES], at[BLOCKED] = serial, left, entries, -1
    for k in range(trials.rule[STOPPED]):
        job = of[LIST, k]
        if not of[MOVED, job]:
            continue
        of[MOVED, job], of[TESTING, job] = 0, CLEARING
        fate[START, job] = of[BEGAN, job]
        of[UNDER, trials.rule[TESTED]] = job
        trials.rule[TESTED] += 1
        run_until(run, fate, at[RUNNING], job, given[NEED, job], at[NOW] + cost)
        at[RUNNING] += 1
        at[FREE] -= given[NEED, job]
        if nodes is not None:
            give_back(at, fate, given, nodes, job, -1)
            waits_no_more(nodes, given[KIND, job])
    if nodes is not None:
        take_anew(at, given, fate, care, nodes, trials, first, at[FIRST_SIZE])
        if not rule[SAME]:
            take_anew(at, given, fate, care, nodes, trials, second, at[SECOND_SIZE])
    return True


@inlined
def is_killed(fate: IntArray, trials: Trials, job: int) -> bool:
    """Whether a decision has killed a job that had just been stopped."""
    here = fate[START, job] >= 0 and not trials.of[MOVED, job]
    return bool(not here or trials.of[TESTING, job] == CLEARING)


@inlined
def settle(at: IntArray, fate: IntArray, trials: Trials) -> None:
    """After a decision: the stopped jobs that it started go on, the others are killed."""
    of = trials.of
    for k in range(trials.rule[STOPPED]):
        job = of[LIST, k]
        began = of[BEGAN, job]
        if is_killed(fate, trials, job):
            of[FATE, job] = KILLED
            of[LOST_START, job], of[LOST_END, job] = began, at[NOW] + trials.rule[COST]
        else:
            of[FATE, job] = WENT_ON
            fate[START, job], fate[REASON, job] = began, of[BECAUSE, job]
        of[BEGAN, job], of[MOVED, job] = -1, 0


@inlined
def clear(at: IntArray, run: IntArray, trials: Trials) -> None:
    """After a decision: jobs that were killed leave the queue until their nodes are cleared."""
    for k in range(trials.rule[STOPPED]):
        job = trials.of[LIST, k]
        if trials.of[TESTING, job] == CLEARING:
            run[BY_SERIAL, at[SERIAL]] = -1 - job
            push(run, at[PENDING], at[NOW] + trials.rule[COST], at[SERIAL])
            at[SERIAL] += 1
            at[PENDING] += 1
            at[QUEUED] -= 1
    trials.rule[STOPPED] = 0
