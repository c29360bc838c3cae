"""Test runs inside a compiled replay of EASY on a processor pool, see `heuristics.test_runs`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled import fields
from cpdispatch.compiled.fields import Record
from cpdispatch.compiled.layout import (
    DUE_OF,
    EXPECTED,
    LIMIT,
    NEED,
    NEVER,
    REQUESTED,
    RUNTIME,
    START,
    SUBMIT,
    TIER,
    WANTS,
    WHO,
    Rule,
    State,
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


class TestState(Record):
    """The scalars of the test runs."""

    length_s: int
    """How long a test lasts. Constant."""
    way: int
    """When tests come: `kernels.LEFT` and what follows it there, or `IN_FRONT`. Constant."""
    stopped: int
    """How many jobs have outlived their tests since the last dispatch, which says what becomes of
    them: the length of the list in the row `LIST`."""
    tested: int
    """How many jobs are under test, or are being cleared off: the length of the row `UNDER`."""
    asks: bool
    """Whether the loop is left to ask how long jobs last that have outlived tests. Constant."""
    restart_cost_s: int
    """How long it takes to clear the nodes of a killed job. Constant."""
    requeued: int
    """How many jobs are to be put into the queue again: the length of the row `AGAIN`."""


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

    state: TestState
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
    state = fields.fresh(TestState, length_s=test_s, way=way, asks=asks, restart_cost_s=cost_s)
    return Trials(state, of, np.empty(jobs, dtype=np.int64), np.empty(jobs))


def starts_anew(trials: Trials) -> IntArray:
    """The jobs that have been killed and wait, run or ran anew, by what a restart costs longer."""
    return np.flatnonzero((trials.of[FATE] == KILLED) & (trials.of[TESTING] != CLEARING))


@inlined
def test(
    state: State, given: IntArray, fate: IntArray, run: IntArray, trials: Any, job: int,
    reason: int,
) -> None:  # fmt: skip
    """Start a job with the length of a test as its bound."""
    of, length = trials.of, trials.state.length_s
    of[TO_COME, job], of[TESTING, job], of[FATE, job] = 0, UNDER_TEST, ENDED
    of[UNDER, trials.state.tested] = job
    trials.state.tested += 1
    end = state.now + min(length, given[RUNTIME, job])
    due = state.now + length + trials.state.restart_cost_s
    begin_until(state, given, fate, run, job, reason, due, end)


@inlined
def no_test_any_more(trials: Trials, job: int) -> None:
    """Take note that a job is not under test, or not any more."""
    of = trials.of
    if not of[TESTING, job]:
        return
    of[TESTING, job] = 0
    trials.state.tested -= 1
    last, k = of[UNDER, trials.state.tested], 0
    while of[UNDER, k] != job:
        k += 1
    of[UNDER, k] = last


@inlined
def due_of(state: State, fate: IntArray, caution: Any, trials: Any, job: int) -> int:
    """When a waiting job ends as expected if it starts now. One that was stopped goes on."""
    since = state.now
    if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
        if trials.of[BEGAN, job] >= 0:
            since = trials.of[BEGAN, job]
    return int(since + lasts(state, fate, caution, job))


@inlined
def _goes_on(
    state: State, given: IntArray, trials: Trials, rule: Rule, job: int, blocked: int
) -> bool:
    """Whether a job under test goes on for sure before another starts, see `Turns`."""
    late = is_late(given, job, state.now, rule.primary.threshold)
    if late != is_late(given, blocked, state.now, rule.primary.threshold):
        return bool(late)
    if not late and state.tiered and given[TIER, job] != given[TIER, blocked]:
        return bool(given[TIER, job] > given[TIER, blocked])
    if not late and rule.primary.policy != _FCFS:
        return False
    if given[SUBMIT, job] != given[SUBMIT, blocked]:
        return bool(given[SUBMIT, job] < given[SUBMIT, blocked])
    return bool(trials.of[ID, job] < trials.of[ID, blocked])


@inlined
def expect_ends(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Trials,
    rule: Rule, blocked: int,
) -> bool:  # fmt: skip
    """Expect the ends of the jobs under test as the reservation of the blocked job counts them.

    Returns whether any is expected at another time than before.
    """
    length, cost, changed = trials.state.length_s, trials.state.restart_cost_s, False
    for k in range(trials.state.tested):
        job = trials.of[UNDER, k]
        due = fate[START, job] + length + cost
        if _goes_on(state, given, trials, rule, job, blocked):
            clearing = trials.of[TESTING, job] == CLEARING
            since, whole_s = fate[START, job], lasts(state, fate, caution, job)
            if clearing:
                since += length
            if caution is not None:  # noqa: SIM102 - numba drops only what stands alone
                if since < state.now:
                    whole_s = fate[LIMIT, job]
            due = due + whole_s + cost if clearing else max(due, since + whole_s)
        if due != fate[DUE_OF, job]:
            leave(run, state.running, place_of(run, state.running, job, fate[DUE_OF, job]))
            run_until(run, fate, state.running - 1, job, given[NEED, job], due)
            changed = True
    return changed


@inlined
def start(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Any,
    job: int, reason: int,
) -> None:  # fmt: skip
    """Start a job in full. One that has just been stopped ends as if it had never been."""
    if trials is None or trials.of[BEGAN, job] < 0:
        begin(state, given, fate, run, caution, job, reason)
    else:
        end = trials.of[BEGAN, job] + given[RUNTIME, job]
        begin_until(
            state, given, fate, run, job, reason, due_of(state, fate, caution, trials, job), end
        )


@inlined
def is_tested_in_turn(trials: Any, job: int) -> bool:
    """Whether a job whose turn it is is tested instead of started in full."""
    if trials is None:
        return False
    return bool(trials.state.way == TURN and trials.of[TO_COME, job])


@inlined
def may_be_tested(
    state: State, given: IntArray, fate: IntArray, trials: Trials, job: int, rule: Rule
) -> bool:
    """Whether a job waits that may be tested now."""
    if fate[START, job] >= 0 or not trials.of[TO_COME, job]:
        return False
    in_any_case = trials.state.way == TURN
    return bool(in_any_case or not is_late(given, job, state.now, rule.primary.threshold))


@kernel
def choose(
    state: State, given: IntArray, fate: IntArray, first: IntArray, nodes: Any, trials: Trials,
    blocked: int, room: int, rule: Rule,
) -> int:  # fmt: skip
    """List the waiting jobs that may be tested and fit into so many processors, in order.

    ``nodes`` is None on a pool, where the queue itself says how many processors a job needs: most
    jobs are passed over without another look. Arrays are taken out of ``trials`` once, not for each
    job, since that counts references.
    """
    of, way, length, count = trials.of, trials.state.way, trials.state.length_s, 0
    for k in range(state.primary.tail):
        job = first[WHO, k]
        if nodes is None:  # noqa: SIM108 - numba drops only what stands alone
            need = first[WANTS, k]
        else:
            need = given[NEED, job]
        if need > room or fate[START, job] >= 0 or not of[TO_COME, job] or job == blocked:
            continue
        if way != TURN and is_late(given, job, state.now, rule.primary.threshold):
            continue
        chance = UNKNOWN_PROBABILITY
        if fate[EXPECTED, job] < given[REQUESTED, job]:
            chance = length / (length + float(max(fate[EXPECTED, job], 1)))
        _choose(state, given, trials, count, length / np.sqrt(chance), job)
        count += 1
    return count


@inlined
def _choose(
    state: State, given: IntArray, trials: Trials, count: int, key: float, job: int
) -> None:
    """Put a job where it belongs by its tier and key among so many."""
    i = count
    while i > 0 and goes_before(state, given, key, job, trials.key[i - 1], trials.chosen[i - 1]):
        trials.key[i], trials.chosen[i] = trials.key[i - 1], trials.chosen[i - 1]
        i -= 1
    trials.key[i], trials.chosen[i] = key, job


@kernel
def place_in_front(
    state: State, given: IntArray, fate: IntArray, first: IntArray, trials: Trials,
    rule: Rule, weights: FloatArray,
) -> tuple[int, bool]:  # fmt: skip
    """List the tests by their places in the order of the queue, see `heuristics.test_runs.first`.

    Returns how many there are, and whether their keys can be compared with those of the queue: then
    they are keys of its order, else tests come before all jobs of their tier that are not late.
    """
    count = choose(state, given, fate, first, None, trials, -1, NEVER, rule)
    by_length = rule.primary.policy == _SPF or rule.primary.policy == _RISK
    if by_length:
        for k in range(count):
            job, key = trials.chosen[k], np.rint(trials.key[k])
            if rule.primary.policy == _RISK:
                key = risk_of(weights, key, float(max(given[NEED, job], 1)), int(key))
            _choose(state, given, trials, k, key, job)
    return count, by_length
