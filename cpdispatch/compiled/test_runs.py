"""Test runs inside a compiled replay of EASY on a processor pool, see `heuristics.test_runs`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled import fields
from cpdispatch.compiled.fields import Record
from cpdispatch.compiled.layout import (
    DEMAND,
    DURATION_BITS,
    EXPECTED,
    JOB,
    LIMIT,
    NEED,
    REQUESTED,
    RUNTIME,
    START,
    SUBMIT,
    TIER,
    Tables,
)
from cpdispatch.compiled.queue import goes_before, is_late
from cpdispatch.compiled.running import (
    begin,
    begin_until,
    lasts,
)
from cpdispatch.heuristics.easy import TURN
from cpdispatch.heuristics.policies import Policy, risk_of
from cpdispatch.heuristics.test_runs import LENGTHS_MIN, UNKNOWN_PROBABILITY, WAYS

_UNKNOWN_ROOT = float(np.sqrt(UNKNOWN_PROBABILITY))
_FCFS, _SPF, _RISK = int(Policy.FCFS), int(Policy.SPF), int(Policy.RISK)


class TestState(Record):
    """The scalars of the test runs."""

    length_s: int
    """How long a test lasts. Constant."""
    way: int
    """When tests come: `easy.LEFT` and what follows it there, or `IN_FRONT`. Constant."""
    stopped: int
    """How many jobs have outlived their tests since the last dispatch, which says what becomes of
    them: the length of the list in the row `STOPPED`."""
    tested: int
    """How many jobs are under test, or are being cleared off: the length of the row `TESTED`."""
    asks: bool
    """Whether the loop is left to ask how long jobs last that have outlived tests. Constant."""
    restart_cost_s: int
    """How long it takes to clear the nodes of a killed job. Constant."""
    requeued: int
    """How many jobs are to be put into the queue again: the length of the row `REQUEUED`."""


# Rows of `Tests.table`.
TO_COME, TESTING, STOPPED_START, STOPPED_REASON, RESULT = range(5)
"""Of each job: whether it has a test to come; whether it is under test, or its nodes are being
cleared (`UNDER_TEST`, `CLEARING`, else 0); if it has just been stopped, when it had started, else
-1, and why; what became of its test (`NO_TEST` and what follows it there)."""
LOST_START, LOST_END, FIRST_EXPECTED, ID, UPPER_AGAIN = range(5, 10)
"""Of each job: start and end of the attempt that was killed, else -1; if it has been stopped, what
was expected at its submission, else 0; its id; its upper duration if it starts anew."""
STOPPED_ENTRY, STOPPED_ENTRIES, MOVED = range(10, 13)
"""Of each job, on nodes: where the placement of the attempt that was stopped begins, and how many
entries it has; whether the decision that could have let it go on has started it elsewhere."""
STOPPED, TESTED, REQUEUED = range(13, 16)
"""Lists of jobs: those that have just been stopped, those that are under test or whose nodes are
being cleared, and those that are to be put into the queue again. `TestState` has their lengths."""

IN_FRONT = 3
"""When tests come that have places of their own in the queue, beside `easy.LEFT` and so on."""

UNDER_TEST, CLEARING = 1, 2
"""What `TESTING` says of a job where it is not 0."""

NO_TEST, ENDED, WENT_ON, KILLED = range(4)
"""What became of a test, as `cpdispatch.simulator.records.Test` has it."""


class Tests(NamedTuple):
    """The test runs of a replay."""

    state: TestState
    table: IntArray
    """Rows from `TO_COME` on, shape (rows, jobs). Up to date between two kernels. This file and
    `stopped` write it, and `nodes.begin_on` the row `MOVED`."""
    chosen: IntArray
    """The jobs that may be tested, in their order, as `choose` has listed them last."""
    key: FloatArray
    """The keys of their tests, by which they are ordered."""


def tests_of(
    id: IntArray, restartable: IntArray, requested_s: IntArray, test_s: int, when: str, asks: bool,
    cost_s: int,
) -> Tests:  # fmt: skip
    """No job tested yet."""
    count = len(restartable)
    table = np.zeros((REQUEUED + 1, count), dtype=np.int64)
    table[ID] = id
    table[TO_COME] = (restartable > 0) & (requested_s > LENGTHS_MIN * test_s)
    table[[STOPPED_START, LOST_START, LOST_END]] = -1
    way = IN_FRONT if when == "first" else WAYS[when]
    state = fields.fresh(TestState, length_s=test_s, way=way, asks=asks, restart_cost_s=cost_s)
    return Tests(state, table, np.empty(count, dtype=np.int64), np.empty(count))


def starts_anew(tests: Tests) -> IntArray:
    """The jobs that were killed and start anew: the cost of a restart is added to their times."""
    return np.flatnonzero((tests.table[RESULT] == KILLED) & (tests.table[TESTING] != CLEARING))


@inlined
def test(tables: Tables, tests: Any, job: int, reason: int) -> None:
    """Start a job with the length of a test as its bound."""
    state, jobs = tables.state, tables.jobs
    table, length = tests.table, tests.state.length_s
    table[TO_COME, job], table[TESTING, job], table[RESULT, job] = 0, UNDER_TEST, ENDED
    table[TESTED, tests.state.tested] = job
    tests.state.tested += 1
    end = state.now + min(length, jobs[RUNTIME, job])
    due = state.now + length + tests.state.restart_cost_s
    begin_until(tables, job, reason, due, end)


@inlined
def no_test_any_more(tests: Tests, job: int) -> None:
    """Take note that a job is not under test, or not any more."""
    table = tests.table
    if not table[TESTING, job]:
        return
    table[TESTING, job] = 0
    tests.state.tested -= 1
    last, k = table[TESTED, tests.state.tested], 0
    while table[TESTED, k] != job:
        k += 1
    table[TESTED, k] = last


@inlined
def due_of(tables: Tables, caution: Any, tests: Any, job: int) -> int:
    """When a waiting job ends as expected if it starts now. One that was stopped goes on."""
    since = tables.state.now
    if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
        if tests.table[STOPPED_START, job] >= 0:
            since = tests.table[STOPPED_START, job]
    return int(since + lasts(tables, caution, job))


@inlined
def _goes_on(tables: Tables, tests: Tests, job: int, blocked: int) -> bool:
    """Whether a job under test goes on for sure before another starts, see `Turns`."""
    state, jobs, rule = tables.state, tables.jobs, tables.primary.rule
    late = is_late(jobs, job, state.now, rule.threshold)
    if late != is_late(jobs, blocked, state.now, rule.threshold):
        return bool(late)
    if not late and state.tiered and jobs[TIER, job] != jobs[TIER, blocked]:
        return bool(jobs[TIER, job] > jobs[TIER, blocked])
    if not late and rule.policy != _FCFS:
        return False
    if jobs[SUBMIT, job] != jobs[SUBMIT, blocked]:
        return bool(jobs[SUBMIT, job] < jobs[SUBMIT, blocked])
    return bool(tests.table[ID, job] < tests.table[ID, blocked])


@inlined
def due_under_test(tables: Tables, caution: Any, tests: Tests, job: int, blocked: int) -> int:
    """When a job under test ends, as the reservation of the blocked job counts it."""
    outcome, length, cost = tables.outcome, tests.state.length_s, tests.state.restart_cost_s
    due = outcome[START, job] + length + cost
    if _goes_on(tables, tests, job, blocked):
        clearing = tests.table[TESTING, job] == CLEARING
        since, whole_s = outcome[START, job], lasts(tables, caution, job)
        if clearing:
            since += length
        if caution is not None:  # noqa: SIM102 - numba drops only what stands alone
            if since < tables.state.now:
                whole_s = outcome[LIMIT, job]
        due = due + whole_s + cost if clearing else max(due, since + whole_s)
    return int(due)


@inlined
def start(tables: Tables, caution: Any, tests: Any, job: int, reason: int) -> None:
    """Start a job in full. One that has just been stopped ends as if it had never been."""
    if tests is None or tests.table[STOPPED_START, job] < 0:
        begin(tables, caution, job, reason)
    else:
        end = tests.table[STOPPED_START, job] + tables.jobs[RUNTIME, job]
        begin_until(tables, job, reason, due_of(tables, caution, tests, job), end)


@inlined
def is_tested_in_turn(tests: Any, job: int) -> bool:
    """Whether a job whose turn it is is tested instead of started in full."""
    if tests is None:
        return False
    return bool(tests.state.way == TURN and tests.table[TO_COME, job])


@inlined
def may_be_tested(tables: Tables, tests: Tests, job: int) -> bool:
    """Whether a job waits that may be tested now."""
    if tables.outcome[START, job] >= 0 or not tests.table[TO_COME, job]:
        return False
    in_any_case = tests.state.way == TURN
    threshold = tables.primary.rule.threshold
    return bool(in_any_case or not is_late(tables.jobs, job, tables.state.now, threshold))


@inlined
def choose(tables: Tables, tests: Tests, blocked: int, limit: int, longest: Any) -> int:
    """List the waiting jobs that may be tested, in order, and return how many there are.

    The queue itself says what a job needs: most jobs are passed over without another look. Without
    ``longest`` that is a number of processors, at most ``limit``; else the job's kind, see
    `nodes.demand_of`, and ``longest`` is how long one of each kind may take, at least ``limit``.
    """
    state, outcome, primary = tables.state, tables.outcome, tables.primary
    table, way, count = tests.table, tests.state.way, 0
    for k in range(primary.marks.head, primary.marks.tail):
        job, demand = primary.place[JOB, k], primary.place[DEMAND, k]
        if longest is None:  # noqa: SIM108 - numba drops only what stands alone
            fits = demand <= limit
        else:
            fits = longest[demand >> DURATION_BITS] >= limit
        if not fits or outcome[START, job] >= 0 or not table[TO_COME, job] or job == blocked:
            continue
        if way != TURN and is_late(tables.jobs, job, state.now, primary.rule.threshold):
            continue
        key, i = _key_of(tables, tests, job), count
        while i > 0 and goes_before(tables, key, job, tests.key[i - 1], tests.chosen[i - 1]):
            tests.key[i], tests.chosen[i] = tests.key[i - 1], tests.chosen[i - 1]
            i -= 1
        tests.key[i], tests.chosen[i] = key, job
        count += 1
    return count


@inlined
def _key_of(tables: Tables, tests: Tests, job: int) -> float:
    """The key by which tests are ordered."""
    length, expected = tests.state.length_s, tables.outcome[EXPECTED, job]
    root = _UNKNOWN_ROOT
    if expected < tables.jobs[REQUESTED, job]:
        root = np.sqrt(length / (length + float(max(expected, 1))))
    return length / root


@inlined
def bring_first(tables: Tables, tests: Tests, low: int, count: int) -> None:
    """Bring the first test in order, of those listed from a place on, to that place.

    A dispatch starts few tests: most of the list is never put in order.
    """
    key, chosen, first = tests.key, tests.chosen, low
    for k in range(low + 1, count):
        if goes_before(tables, key[k], chosen[k], key[first], chosen[first]):
            first = k
    if low < count:
        key[low], key[first] = key[first], key[low]
        chosen[low], chosen[first] = chosen[first], chosen[low]


@kernel
def place_in_front(tables: Tables, tests: Tests) -> tuple[int, bool]:
    """List the tests that have places in the queue, see `heuristics.test_runs.primary`.

    Returns how many there are, and whether their keys can be compared with those of the queue: then
    they are keys of its order, else tests come before all jobs of their tier that are not late.
    The first in order comes first, see `bring_first`.
    """
    primary, count = tables.primary, 0
    policy = primary.rule.policy
    by_length = policy in (_SPF, _RISK)
    for k in range(primary.marks.head, primary.marks.tail):
        job = primary.place[JOB, k]
        if not may_be_tested(tables, tests, job):
            continue
        key = _key_of(tables, tests, job)
        if by_length:
            key = np.rint(key)
        if policy == _RISK:
            need = float(max(tables.jobs[NEED, job], 1))
            key = risk_of(primary.weights, key, need, int(key))
        tests.key[count], tests.chosen[count] = key, job
        count += 1
    bring_first(tables, tests, 0, count)
    return count, by_length
