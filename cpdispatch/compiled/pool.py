"""Dispatching on a processor pool inside a compiled replay."""

from __future__ import annotations

from typing import Any

from cpdispatch.compile import inlined
from cpdispatch.compiled.layout import (
    BACKFILLED,
    DEMAND,
    DUE,
    EXPECTED,
    HELD,
    IN_TURN,
    JOB,
    NEED,
    NEVER,
    START,
    Tables,
)
from cpdispatch.compiled.nodes import expect_ends
from cpdispatch.compiled.queue import is_late
from cpdispatch.compiled.running import begin
from cpdispatch.compiled.test_runs import (
    Tests,
    due_of,
    is_past_tests,
    is_tested_in_turn,
    line_up_newcomers,
    may_be_tested,
    start,
    test,
)
from cpdispatch.heuristics.easy import LEFT


@inlined
def _leaves(tables: Tables, caution: Any, job: int) -> int:
    """How many processors of a pool a job leaves free when it starts."""
    if caution is None:
        return 0
    if not caution.keeps_free:
        return 0
    short = tables.outcome[EXPECTED, job] <= caution.long_s
    late = is_late(tables.jobs, job, tables.state.now, caution.patience)
    wide = tables.jobs[NEED, job] + caution.spare > caution.total
    return 0 if short or late or wide else caution.spare


@inlined
def start_in_turn(tables: Tables, caution: Any, tests: Any, ending: int) -> None:
    """Start jobs in the primary order until one does not fit: the head."""
    place, marks = tables.primary.place, tables.primary.marks
    while marks.head < marks.tail:
        job = place[JOB, marks.head]
        if tables.outcome[START, job] < 0:
            need, testing = place[DEMAND, marks.head], is_tested_in_turn(tests, job)
            if not starts_in_turn(tables, caution, tests, job, need, ending, testing):
                break
        marks.head += 1


@inlined
def starts_in_turn(
    tables: Tables, caution: Any, tests: Any, job: int, need: int, ending: int, testing: bool
) -> bool:
    """Start a job whose turn it is, or its test, if it fits; whether it does."""
    if not testing:
        need += _leaves(tables, caution, job)
    if need > tables.state.free + ending:
        return False
    if tests is None:
        begin(tables, caution, job, IN_TURN)
    elif testing:
        test(tables, tests, job, IN_TURN)
    else:
        start(tables, caution, tests, job, IN_TURN)
    return True


@inlined
def _shadow(tables: Tables, ended: int, free: int, need: int, spare: int) -> tuple[int, int]:
    """Find when a job fits that does not fit now, and how many processors are then left.

    ``spare`` is how many it has to leave free when it starts.
    """
    state, running = tables.state, tables.running
    k = ended
    while k < state.running:
        due = running[DUE, k]
        while k < state.running and running[DUE, k] == due:
            free += running[HELD, k]
            k += 1
        if free >= need + spare:
            return due, free - need
    return NEVER, 0


@inlined
def _start_beside(
    tables: Tables, caution: Any, tests: Any, job: int, testing: bool, ending: int, shadow: int,
    extra: int,
) -> int:  # fmt: skip
    """Start a job, or its test, that fits if it does not delay the one that is blocked.

    See `backfill` for ``shadow`` and ``extra``, and for what is returned.
    """
    need, due = tables.jobs[NEED, job], due_of(tables, caution, tests, job)
    leaves = 0 if testing else _leaves(tables, caution, job)
    if need + leaves > tables.state.free + ending:
        return extra
    if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
        if testing:
            due = tables.state.now + tests.state.length_s + tests.state.restart_cost_s
    if due > shadow:
        if need > extra:
            return extra
        extra -= need
    if tests is None:
        begin(tables, caution, job, BACKFILLED)
    elif testing:
        test(tables, tests, job, BACKFILLED)
    else:
        start(tables, caution, tests, job, BACKFILLED)
    return extra


@inlined
def backfill(
    tables: Tables, caution: Any, tests: Any, blocked: int, ended: int, ending: int, shadow: int,
    extra: int,
) -> int:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    ``shadow`` is when that one starts, -1 if that is not known yet, and ``extra`` how many
    processors are then left. Returns how many of these no job has taken.
    """
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    place, marks = tables.secondary.place, tables.secondary.marks
    who, needs = place[JOB, marks.head : marks.tail], place[DEMAND, marks.head : marks.tail]
    for k in range(who.shape[0]):
        if state.free + ending == 0:
            return extra
        need = needs[k]
        if need > state.free + ending:
            continue
        job = who[k]
        if job == blocked or outcome[START, job] >= 0:
            continue
        if need + _leaves(tables, caution, job) > state.free + ending:
            continue
        if shadow < 0:
            needed, spare = jobs[NEED, blocked], _leaves(tables, caution, blocked)
            shadow, extra = _shadow(tables, ended, state.free + ending, needed, spare)
        extra = _start_beside(tables, caution, tests, job, False, ending, shadow, extra)
    return extra


@inlined
def _test_all(
    tables: Tables, caution: Any, tests: Tests, blocked: int, ending: int, shadow: int, extra: int
) -> int:
    """Test jobs, in the order of tests, as `backfill` starts them."""
    line_up_newcomers(tables, tests, None)
    place, k = tests.order.place, 0
    while k < tests.state.lined_up:
        job = place[JOB, k]
        fits = place[DEMAND, k] <= tables.state.free + ending and job != blocked
        if fits and not is_past_tests(tables, tests, job):
            extra = _start_beside(tables, caution, tests, job, True, ending, shadow, extra)
            if tables.outcome[START, job] >= 0:  # then another one has its place
                continue
        k += 1
    return extra


@inlined
def backfill_and_test(
    tables: Tables, caution: Any, tests: Tests, blocked: int, ended: int, ending: int, serial: int
) -> None:
    """Backfill, and test jobs where they do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch, the same job is blocked and no test
    is expected to end at another time, what could not start then cannot now: a single job submitted
    since is looked at alone. ``serial`` is how many jobs had started before this dispatch.
    """
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    if state.free + ending == 0:
        return
    needed = jobs[NEED, blocked]
    changed = expect_ends(tables, caution, None, tests, blocked)
    same = state.blocked == blocked and ended == 0 and state.next_serial == serial and not changed
    alone = state.submitted_before if same and state.submitted == state.submitted_before + 1 else -1
    state.blocked = blocked
    if alone >= 0 and (outcome[START, alone] >= 0 or jobs[NEED, alone] > state.free):
        return
    spare = _leaves(tables, caution, blocked)
    shadow, extra = _shadow(tables, ended, state.free + ending, needed, spare)
    for testing in (tests.state.way != LEFT, tests.state.way == LEFT):
        if state.free + ending == 0:
            return
        if alone >= 0:
            if outcome[START, alone] < 0 and (not testing or may_be_tested(tables, tests, alone)):
                extra = _start_beside(
                    tables, caution, tests, alone, testing, ending, shadow, extra
                )  # fmt: skip
        elif testing:
            extra = _test_all(tables, caution, tests, blocked, ending, shadow, extra)
        else:
            extra = backfill(tables, caution, tests, blocked, ended, ending, shadow, extra)
