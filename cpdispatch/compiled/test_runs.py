"""Test runs inside a compiled replay of EASY, see `heuristics.test_runs`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled import fields
from cpdispatch.compiled.fields import Record
from cpdispatch.compiled.layout import (
    DEMAND,
    EXPECTED,
    JOB,
    KIND,
    LIMIT,
    NEED,
    REQUESTED,
    RUNTIME,
    START,
    TIER,
    Line,
    Tables,
)
from cpdispatch.compiled.queue import insert, is_late
from cpdispatch.compiled.running import begin, begin_until, lasts
from cpdispatch.heuristics.easy import TURN
from cpdispatch.heuristics.policies import Policy, risk_of
from cpdispatch.heuristics.test_runs import LENGTHS_MIN, UNKNOWN_PROBABILITY, WAYS

_UNKNOWN_ROOT = float(np.sqrt(UNKNOWN_PROBABILITY))
_FCFS, _RISK = int(Policy.FCFS), int(Policy.RISK)


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
    newcomers: int
    """How many jobs have come into the queue with tests to come, and are not lined up yet or have
    started meanwhile: the length of the row `NEWCOMERS`."""
    lined_up: int
    """How many jobs `Tests.order` has."""
    by_key: bool
    """Whether tests have places of their own among durations, see `Tests.front`. Constant."""


# Rows of `Tests.table`.
TO_COME, TESTING, STOPPED_START, STOPPED_REASON, RESULT = range(5)
"""Of each job: whether it has a test to come (`NOT_IN_LINE`, `IN_LINE`, else 0); whether it is
under test, or its nodes are being cleared (`UNDER_TEST`, `CLEARING`, else 0); if it has just been
stopped, when it had started, else -1, and why; what became of its test (`NO_TEST` and what follows
it there)."""
LOST_START, LOST_END, FIRST_EXPECTED, UPPER_AGAIN = range(5, 9)
"""Of each job: start and end of the attempt that was killed, else -1; if it has been stopped, what
was expected at its submission, else 0; its upper duration if it starts anew."""
STOPPED_ENTRY, STOPPED_ENTRIES, MOVED = range(9, 12)
"""Of each job, on nodes: where the placement of the attempt that was stopped begins, and how many
entries it has; whether the decision that could have let it go on has started it elsewhere."""
STOPPED, TESTED, REQUEUED, NEWCOMERS = range(12, 16)
"""Lists of jobs: those that have just been stopped, those that are under test or whose nodes are
being cleared, those that are to be put into the queue again, and those that have come into it with
tests to come. `TestState` has their lengths."""

IN_FRONT = 3
"""When tests come that have places of their own in the queue, beside `easy.LEFT` and so on."""

NOT_IN_LINE, IN_LINE = 1, 2
"""What `TO_COME` says of a job that has a test to come: whether `Tests.order` has it. A job that
starts in full keeps its test to come, and is not in line."""

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
    order: Line
    """Waiting jobs that have tests to come, in the order of tests: all of them once
    `line_up_newcomers` has been asked. `place` has of each the job, and as demand its processors
    on a pool, its kind on nodes. `line_up` and `leave_line` write it."""
    front: Line
    """The same jobs as `heuristics.test_runs.first` places their tests: by other keys if these are
    durations (``state.by_key``), else ``order`` itself."""


def tests_of(
    restartable: IntArray, requested_s: IntArray, test_s: int, when: str, asks: bool,
    cost_s: int, policy: Policy,
) -> Tests:  # fmt: skip
    """No job tested yet. ``policy`` is that of the primary queue."""
    count = len(restartable)
    table = np.zeros((NEWCOMERS + 1, count), dtype=np.int64)
    table[TO_COME] = (restartable > 0) & (requested_s > LENGTHS_MIN * test_s)
    table[[STOPPED_START, LOST_START, LOST_END]] = -1
    way = IN_FRONT if when == "first" else WAYS[when]
    state = fields.fresh(
        TestState, length_s=test_s, way=way, asks=asks, restart_cost_s=cost_s,
        by_key=way == IN_FRONT and policy in (Policy.SPF, Policy.RISK),
    )  # fmt: skip
    order = _line(count)
    return Tests(state, table, order, _line(count) if state.by_key else order)


def _line(count: int) -> Line:
    """Nobody in line."""
    return Line(np.empty((2, count), dtype=np.int64), np.empty(count))


def starts_anew(tests: Tests) -> IntArray:
    """The jobs that were killed and start anew: the cost of a restart is added to their times."""
    return np.flatnonzero((tests.table[RESULT] == KILLED) & (tests.table[TESTING] != CLEARING))


@inlined
def test(tables: Tables, tests: Any, job: int, reason: int) -> None:
    """Start a job with the length of a test as its bound."""
    state, jobs = tables.state, tables.jobs
    table, length = tests.table, tests.state.length_s
    leave_line(tests, job)
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
def _goes_on(tables: Tables, job: int, blocked: int) -> bool:
    """Whether a job under test goes on for sure before another starts, see `Turns`."""
    state, jobs, rule = tables.state, tables.jobs, tables.primary.rule
    late = is_late(jobs, job, state.now, rule.threshold)
    if late != is_late(jobs, blocked, state.now, rule.threshold):
        return bool(late)
    if not late and state.tiered and jobs[TIER, job] != jobs[TIER, blocked]:
        return bool(jobs[TIER, job] > jobs[TIER, blocked])
    if not late and rule.policy != _FCFS:
        return False
    return bool(job < blocked)


@inlined
def due_under_test(tables: Tables, caution: Any, tests: Tests, job: int, blocked: int) -> int:
    """When a job under test ends, as the reservation of the blocked job counts it."""
    outcome, length, cost = tables.outcome, tests.state.length_s, tests.state.restart_cost_s
    due = outcome[START, job] + length + cost
    if _goes_on(tables, job, blocked):
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
    if tests is None:
        begin(tables, caution, job, reason)
    elif tests.table[STOPPED_START, job] < 0:
        leave_line(tests, job)
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
def is_past_tests(tables: Tables, tests: Tests, job: int) -> bool:
    """Whether a job that waits is late, so that it is not tested."""
    late = is_late(tables.jobs, job, tables.state.now, tables.primary.rule.threshold)
    return bool(late and tests.state.way != TURN)


@inlined
def may_be_tested(tables: Tables, tests: Tests, job: int) -> bool:
    """Whether a job waits that may be tested now."""
    if tables.outcome[START, job] >= 0 or not tests.table[TO_COME, job]:
        return False
    return not is_past_tests(tables, tests, job)


@inlined
def note_newcomer(tests: Tests, job: int) -> None:
    """Take note of a job that has come into the queue, if it has a test to come.

    Most jobs start before they have to be lined up.
    """
    if tests.table[TO_COME, job]:
        tests.table[NEWCOMERS, tests.state.newcomers] = job
        tests.state.newcomers += 1


@inlined
def line_up_newcomers(tables: Tables, tests: Tests, nodes: Any) -> None:
    """Bring `Tests.order` up to date."""
    for k in range(tests.state.newcomers):
        job = tests.table[NEWCOMERS, k]
        if tables.outcome[START, job] < 0 and tests.table[TO_COME, job] == NOT_IN_LINE:
            line_up(tables, tests, nodes, job)
    tests.state.newcomers = 0


@kernel
def line_up(tables: Tables, tests: Tests, nodes: Any, job: int) -> None:
    """Put a waiting job where it belongs among those with tests to come."""
    state, jobs, primary = tests.state, tables.jobs, tables.primary
    tests.table[TO_COME, job] = IN_LINE
    demand = jobs[NEED, job] if nodes is None else jobs[KIND, job]
    length, expected, root = state.length_s, tables.outcome[EXPECTED, job], _UNKNOWN_ROOT
    if expected < jobs[REQUESTED, job]:
        root = np.sqrt(length / (length + float(max(expected, 1))))
    key = length / root
    insert(tables, tests.order, 0, state.lined_up, key, job, demand)
    if state.by_key:
        key = np.rint(key)
        if primary.rule.policy == _RISK:
            need = float(max(jobs[NEED, job], 1))
            key = risk_of(primary.weights, key, need, int(key))
        insert(tables, tests.front, 0, state.lined_up, key, job, demand)
    state.lined_up += 1


@inlined
def leave_line(tests: Tests, job: int) -> None:
    """Take a job that starts out of the line of those with tests to come, if it is there."""
    if tests.table[TO_COME, job] == IN_LINE:
        tests.table[TO_COME, job] = NOT_IN_LINE
        _take_out(tests.order, tests.state.lined_up, job)
        if tests.state.by_key:
            _take_out(tests.front, tests.state.lined_up, job)
        tests.state.lined_up -= 1


@inlined
def _take_out(line: Line, size: int, job: int) -> None:
    """Take a job out of the ``size`` ones of a line."""
    place, key, k = line.place, line.key, 0
    while place[JOB, k] != job:
        k += 1
    for i in range(k, size - 1):
        place[JOB, i], place[DEMAND, i] = place[JOB, i + 1], place[DEMAND, i + 1]
        key[i] = key[i + 1]


@kernel
def line_up_anew(tables: Tables, tests: Tests, nodes: Any) -> None:
    """Line up the jobs that had been in line when a replay was saved."""
    tests.state.lined_up = 0
    for job in range(tables.state.submitted):
        if tests.table[TO_COME, job] == IN_LINE:
            line_up(tables, tests, nodes, job)
