"""Test runs inside a compiled replay of EASY on a processor pool, see `heuristics.test_runs`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    DUE_OF,
    EXPECTED,
    FIRST_SIZE,
    LIMIT,
    NEED,
    NEVER,
    NOW,
    PRIMARY,
    REQUESTED,
    RUNNING,
    RUNTIME,
    START,
    SUBMIT,
    THRESHOLD,
    TIER,
    TIERED,
    WANTS,
    WHO,
    WIDE,
)
from cpdispatch.compiled.queue import goes_before, is_late
from cpdispatch.compiled.running import (
    begin,
    begin_until,
    lasts,
    leave,
    place_of,
    run_until,
)
from cpdispatch.heuristics.kernels import TURN
from cpdispatch.heuristics.policies import Policy, risk_of
from cpdispatch.heuristics.test_runs import LENGTHS_MIN, UNKNOWN_PROBABILITY, WAYS

_FCFS, _SPF, _RISK = int(Policy.FCFS), int(Policy.SPF), int(Policy.RISK)

# Scalars: how long a test lasts, when tests come (see `kernels.LEFT`), how many jobs have been
# stopped since the last dispatch, how many are under test or cleared, whether the loop is left to
# ask how long jobs last that have outlived their tests, how long it takes to clear the nodes of a
# killed job, and how many jobs are to be put into the queue again.
LENGTH, WAY, STOPPED, TESTED, ASKS, COST, WAITING = range(7)

# What becomes of each job: whether it has a test to come; whether it is under test, or its nodes
# are being cleared (`UNDER_TEST`, `CLEARING`); when it started, and why, if it has just been
# stopped (else -1); what became of its test; the attempt that was killed; what was expected at its
# submission, if it has been stopped (else 0); its id; its upper duration if it starts anew; on
# nodes, the entries of the attempt that was stopped, and whether it has been started elsewhere by
# the very decision that could have let it go on. Then the jobs that have just been stopped, those
# under test or cleared, and those that are to be put into the queue again.
TO_COME, TESTING, BEGAN, BECAUSE, FATE, LOST_START, LOST_END, SAID, ID, UPPER_AGAIN = range(10)
LOST_FIRST, LOST_COUNT, MOVED = range(10, 13)
LIST, UNDER, AGAIN = range(13, 16)

IN_FRONT = 3
"""When tests come that have places of their own in the queue, beside `kernels.LEFT` and so on."""

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
    way = IN_FRONT if tests == "first" else WAYS[tests]
    rule = np.array([test_s, way, 0, 0, asks, cost_s, 0], dtype=np.int64)
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
    if not late and at[TIERED] and given[TIER, job] != given[TIER, blocked]:
        return bool(given[TIER, job] > given[TIER, blocked])
    if not late and rule[PRIMARY] != _FCFS:
        return False
    if given[SUBMIT, job] != given[SUBMIT, blocked]:
        return bool(given[SUBMIT, job] < given[SUBMIT, blocked])
    return bool(trials.of[ID, job] < trials.of[ID, blocked])


@inlined
def expect_ends(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Trials,
    rule: IntArray, blocked: int,
) -> bool:  # fmt: skip
    """Expect the ends of the jobs under test as the reservation of the blocked job counts them.

    Returns whether any is expected at another time than before.
    """
    length, cost, changed = trials.rule[LENGTH], trials.rule[COST], False
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
            changed = True
    return changed


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
def may_be_tested(
    at: IntArray, given: IntArray, fate: IntArray, trials: Trials, job: int, rule: IntArray
) -> bool:
    """Whether a job waits that may be tested now."""
    if fate[START, job] >= 0 or not trials.of[TO_COME, job]:
        return False
    in_any_case = trials.rule[WAY] == TURN
    return bool(in_any_case or not is_late(given, job, at[NOW], rule[THRESHOLD], rule[WIDE]))


@kernel
def choose(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, nodes: Any, trials: Trials,
    blocked: int, room: int, rule: IntArray,
) -> int:  # fmt: skip
    """List the waiting jobs that may be tested and fit into so many processors, in order.

    ``nodes`` is None on a pool, where the queue itself says how many processors a job needs: most
    jobs are passed over without another look. Arrays are taken out of ``trials`` once, not for each
    job, since that counts references.
    """
    of, way, length, count = trials.of, trials.rule[WAY], trials.rule[LENGTH], 0
    for k in range(at[FIRST_SIZE]):
        job = first[WHO, k]
        if nodes is None:  # noqa: SIM108 - numba drops only what stands alone
            need = first[WANTS, k]
        else:
            need = given[NEED, job]
        if need > room or fate[START, job] >= 0 or not of[TO_COME, job] or job == blocked:
            continue
        if way != TURN and is_late(given, job, at[NOW], rule[THRESHOLD], rule[WIDE]):
            continue
        chance = UNKNOWN_PROBABILITY
        if fate[EXPECTED, job] < given[REQUESTED, job]:
            chance = length / (length + float(max(fate[EXPECTED, job], 1)))
        _choose(at, given, trials, count, length / np.sqrt(chance), job)
        count += 1
    return count


@inlined
def _choose(
    at: IntArray, given: IntArray, trials: Trials, count: int, key: float, job: int
) -> None:
    """Put a job where it belongs by its tier and key among so many."""
    i = count
    while i > 0 and goes_before(at, given, key, job, trials.key[i - 1], trials.chosen[i - 1]):
        trials.key[i], trials.chosen[i] = trials.key[i - 1], trials.chosen[i - 1]
        i -= 1
    trials.key[i], trials.chosen[i] = key, job


@kernel
def place_in_front(
    at: IntArray, given: IntArray, fate: IntArray, first: IntArray, trials: Trials,
    rule: IntArray, weights: FloatArray,
) -> tuple[int, bool]:  # fmt: skip
    """List the tests by their places in the order of the queue, see `heuristics.test_runs.first`.

    Returns how many there are, and whether their keys can be compared with those of the queue: then
    they are keys of its order, else tests come before all jobs of their tier that are not late.
    """
    count = choose(at, given, fate, first, None, trials, -1, NEVER, rule)
    by_length = rule[PRIMARY] == _SPF or rule[PRIMARY] == _RISK
    if by_length:
        for k in range(count):
            job, key = trials.chosen[k], np.rint(trials.key[k])
            if rule[PRIMARY] == _RISK:
                key = risk_of(weights, key, float(max(given[NEED, job], 1)), int(key))
            _choose(at, given, trials, k, key, job)
    return count, by_length
