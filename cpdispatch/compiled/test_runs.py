"""Test runs inside a compiled replay of EASY on a processor pool, see `heuristics.test_runs`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BEFORE,
    BY_SERIAL,
    CLEARED,
    COMPLETED,
    DUE_OF,
    EXPECTED,
    FIRST_SIZE,
    FREE,
    HEAP_END,
    HEAP_SERIAL,
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
    WHO,
    WIDE,
)
from cpdispatch.compiled.queue import insert, is_late, lasting_key, shortened, without_started
from cpdispatch.compiled.running import (
    begin,
    begin_until,
    lasts,
    leave,
    place_of,
    pop,
    push,
    run_until,
)
from cpdispatch.heuristics.kernels import TURN
from cpdispatch.heuristics.policies import Policy
from cpdispatch.heuristics.test_runs import LENGTHS_MIN, UNKNOWN_PROBABILITY, WAYS

_FCFS = int(Policy.FCFS)

# Scalars: how long a test lasts, when tests come (see `kernels.LEFT`), how many jobs have been
# stopped since the last dispatch, how many are under test or cleared, whether the loop is left to
# ask how long jobs last that have outlived their tests, how long it takes to clear the nodes of a
# killed job, and how many jobs are to be put into the queue again.
LENGTH, WAY, STOPPED, TESTED, ASKS, COST, WAITING = range(7)

# What becomes of each job: whether it has a test to come; whether it is under test, or its nodes
# are being cleared (`UNDER_TEST`, `CLEARING`); when it started, and why, if it has just been
# stopped (else -1); what became of its test; the attempt that was killed; what was expected at its
# submission, if it has been stopped (else 0); its id; its upper duration if it starts anew. Then
# the jobs that have just been stopped, those under test or cleared, and those that are to be put
# into the queue again.
TO_COME, TESTING, BEGAN, BECAUSE, FATE, LOST_START, LOST_END, SAID, ID, UPPER_AGAIN = range(10)
LIST, UNDER, AGAIN = range(10, 13)

UNDER_TEST, CLEARING = 1, 2
"""What `TESTING` says of a job where it is not 0."""

NO_TEST, ENDED, WENT_ON, KILLED = range(4)
"""What became of a test, as `cpdispatch.simulator.records.Test` has it."""


class Trials(NamedTuple):
    """The test runs of a replay."""

    rule: IntArray
    of: IntArray
    """Rows from `TO_COME` on, shape (rows, jobs)."""
    chosen: IntArray
    """Room for the jobs that may be tested, and for the keys of their tests."""
    key: FloatArray


def trials_of(
    id: IntArray, restartable: IntArray, requested_s: IntArray, test_s: int, tests: str,
    asks: bool, cost_s: int,
) -> Trials:  # fmt: skip
    """No job tested yet."""
    jobs = len(restartable)
    of = np.zeros((AGAIN + 1, jobs), dtype=np.int64)
    of[ID] = id
    of[TO_COME] = (restartable > 0) & (requested_s > LENGTHS_MIN * test_s)
    of[[BEGAN, LOST_START, LOST_END]] = -1
    rule = np.array([test_s, WAYS[tests], 0, 0, asks, cost_s, 0], dtype=np.int64)
    return Trials(rule, of, np.empty(jobs, dtype=np.int64), np.empty(jobs))


def starts_anew(trials: Trials) -> IntArray:
    """The jobs that have been killed and wait, run or ran anew, by what a restart costs longer."""
    return np.flatnonzero((trials.of[FATE] == KILLED) & (trials.of[TESTING] != CLEARING))


@inlined
def test(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, trials: Any, job: int,
    reason: int,
) -> None:  # fmt: skip
    """Start a job with the length of a test as its bound."""
    of, length = trials.of, trials.rule[LENGTH]
    of[TO_COME, job], of[TESTING, job], of[FATE, job] = 0, UNDER_TEST, ENDED
    of[UNDER, trials.rule[TESTED]] = job
    trials.rule[TESTED] += 1
    end = at[NOW] + min(length, given[RUNTIME, job])
    due = at[NOW] + length + trials.rule[COST]
    begin_until(at, given, fate, run, job, reason, due, end)


@inlined
def no_test_any_more(trials: Trials, job: int) -> None:
    """Take note that a job is not under test, or not any more."""
    of = trials.of
    if not of[TESTING, job]:
        return
    of[TESTING, job] = 0
    trials.rule[TESTED] -= 1
    last, k = of[UNDER, trials.rule[TESTED]], 0
    while of[UNDER, k] != job:
        k += 1
    of[UNDER, k] = last


@inlined
def due_of(at: IntArray, fate: IntArray, care: Any, trials: Any, job: int) -> int:
    """When a waiting job ends as expected if it starts now. One that was stopped goes on."""
    since = at[NOW]
    if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
        if trials.of[BEGAN, job] >= 0:
            since = trials.of[BEGAN, job]
    return int(since + lasts(at, fate, care, job))


@inlined
def _goes_on(
    at: IntArray, given: IntArray, trials: Trials, rule: IntArray, job: int, blocked: int
) -> bool:
    """Whether a job under test goes on for sure before another starts, see `Turns`."""
    late = is_late(given, job, at[NOW], rule[THRESHOLD], rule[WIDE])
    if late != is_late(given, blocked, at[NOW], rule[THRESHOLD], rule[WIDE]):
        return bool(late)
    if not late and rule[PRIMARY] != _FCFS:
        return False
    if given[SUBMIT, job] != given[SUBMIT, blocked]:
        return bool(given[SUBMIT, job] < given[SUBMIT, blocked])
    return bool(trials.of[ID, job] < trials.of[ID, blocked])


@inlined
def expect_ends(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Trials,
    rule: IntArray, blocked: int,
) -> None:  # fmt: skip
    """Expect the ends of the jobs under test as the reservation of the blocked job counts them."""
    length, cost = trials.rule[LENGTH], trials.rule[COST]
    for k in range(trials.rule[TESTED]):
        job = trials.of[UNDER, k]
        due = fate[START, job] + length + cost
        if _goes_on(at, given, trials, rule, job, blocked):
            clearing = trials.of[TESTING, job] == CLEARING
            since, whole_s = fate[START, job], lasts(at, fate, care, job)
            if clearing:
                since += length
            if care is not None:  # noqa: SIM102 - numba drops only what stands alone
                if since < at[NOW]:
                    whole_s = fate[LIMIT, job]
            due = due + whole_s + cost if clearing else max(due, since + whole_s)
        if due != fate[DUE_OF, job]:
            leave(run, at[RUNNING], place_of(run, at[RUNNING], job, fate[DUE_OF, job]))
            run_until(run, fate, at[RUNNING] - 1, job, given[NEED, job], due)


@inlined
def start(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Any,
    job: int, reason: int,
) -> None:  # fmt: skip
    """Start a job in full. One that has just been stopped ends as if it had never been."""
    if trials is None or trials.of[BEGAN, job] < 0:
        begin(at, given, fate, run, care, job, reason)
    else:
        end = trials.of[BEGAN, job] + given[RUNTIME, job]
        begin_until(at, given, fate, run, job, reason, due_of(at, fate, care, trials, job), end)


@inlined
def is_tested_in_turn(trials: Any, job: int) -> bool:
    """Whether a job whose turn it is is tested instead of started in full."""
    if trials is None:
        return False
    return bool(trials.rule[WAY] == TURN and trials.of[TO_COME, job])


@inlined
def start_in_turn_or_test(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Any,
    job: int, reason: int,
) -> None:  # fmt: skip
    """Start a job whose turn it is: as a test where those come first and it has one to come."""
    if trials is None:
        begin(at, given, fate, run, care, job, reason)
    elif is_tested_in_turn(trials, job):
        test(at, given, fate, run, trials, job, reason)
    else:
        start(at, given, fate, run, care, trials, job, reason)


@inlined
def _release(at: IntArray, given: IntArray, fate: IntArray, run: IntArray, job: int) -> None:
    """Take a job out of the running ones, and give back what it holds."""
    leave(run, at[RUNNING], place_of(run, at[RUNNING], job, fate[DUE_OF, job]))
    at[RUNNING] -= 1
    at[FREE] += given[NEED, job]


@inlined
def outlives(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Trials
) -> bool:
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
    _release(at, given, fate, run, job)
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
    second_weights: FloatArray, own_first: Any, own_second: Any, care: Any, trials: Trials,
    shadow: Any,
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
        key = 0.0
        if not rule[PRIMARY_CHANGES]:
            key = lasting_key(at, given, fate, rule[PRIMARY], first_weights, job, own_first, care)
            if job < at[LATE]:
                key = -np.inf
        insert(first, first_key, 0, at[FIRST_SIZE], key, job, given[NEED, job])
        at[FIRST_SIZE] += 1
        if not rule[SAME]:
            key = 0.0
            if not rule[SECONDARY_CHANGES]:
                key = lasting_key(
                    at, given, fate, rule[SECONDARY], second_weights, job, own_second, care
                )
            insert(second, second_key, 0, at[SECOND_SIZE], key, job, given[NEED, job])
            at[SECOND_SIZE] += 1
        at[QUEUED] += 1
    trials.rule[WAITING] = 0


@kernel
def takes_back(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, trials: Trials, serial: int
) -> bool:
    """Take a decision back that kills jobs whose nodes it takes to be free, though that takes time.

    Starts from a serial number on are taken back, and the killed jobs hold their nodes until these
    are cleared. Returns whether another decision is needed.
    """
    of, cost, found = trials.of, trials.rule[COST], False
    if cost == 0:
        return False
    for k in range(trials.rule[STOPPED]):
        if fate[START, of[LIST, k]] < 0:
            of[TESTING, of[LIST, k]] = CLEARING
            found = True
    if not found:
        return False
    for number in range(serial, at[SERIAL]):
        job = run[BY_SERIAL, number]
        _release(at, given, fate, run, job)
        fate[START, job], fate[REASON, job] = -1, WAITS
        if of[TESTING, job]:
            no_test_any_more(trials, job)
            of[TO_COME, job], of[FATE, job] = 1, NO_TEST
    left = 0
    for k in range(at[PENDING]):
        if run[HEAP_SERIAL, k] < serial:
            push(run, left, run[HEAP_END, k], run[HEAP_SERIAL, k])
            left += 1
    at[SERIAL], at[PENDING] = serial, left
    for k in range(trials.rule[STOPPED]):
        job = of[LIST, k]
        if of[TESTING, job] != CLEARING or fate[START, job] >= 0:
            continue
        fate[START, job] = of[BEGAN, job]
        of[UNDER, trials.rule[TESTED]] = job
        trials.rule[TESTED] += 1
        run_until(run, fate, at[RUNNING], job, given[NEED, job], at[NOW] + cost)
        at[RUNNING] += 1
        at[FREE] -= given[NEED, job]
    return True


@inlined
def is_killed(fate: IntArray, trials: Trials, job: int) -> bool:
    """Whether a decision has killed a job that had just been stopped."""
    return bool(fate[START, job] < 0 or trials.of[TESTING, job] == CLEARING)


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
        of[BEGAN, job] = -1


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


@kernel
def choose(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, trials: Trials, blocked: int,
    room: int, rule: IntArray,
) -> int:  # fmt: skip
    """List the waiting jobs that may be tested and fit into so many processors, in order."""
    count, of, length = 0, trials.of, trials.rule[LENGTH]
    for k in range(at[FIRST_SIZE]):
        job = first[WHO, k]
        if fate[START, job] >= 0 or not of[TO_COME, job] or given[NEED, job] > room:
            continue
        late = is_late(given, job, at[NOW], rule[THRESHOLD], rule[WIDE])
        if (late and trials.rule[WAY] != TURN) or job == blocked:
            continue
        chance = UNKNOWN_PROBABILITY
        if fate[EXPECTED, job] < given[REQUESTED, job]:
            chance = length / (length + float(max(fate[EXPECTED, job], 1)))
        key = length / np.sqrt(chance)
        i = count
        while i > 0 and (
            trials.key[i - 1] > key or (trials.key[i - 1] == key and trials.chosen[i - 1] > job)
        ):
            trials.key[i], trials.chosen[i] = trials.key[i - 1], trials.chosen[i - 1]
            i -= 1
        trials.key[i], trials.chosen[i] = key, job
        count += 1
    return count
