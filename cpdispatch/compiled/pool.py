"""Dispatching on a processor pool inside a compiled replay."""

from __future__ import annotations

from typing import Any

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BACKFILLED,
    DUE,
    EXPECTED,
    HELD,
    IN_TURN,
    NEED,
    NEVER,
    START,
    WANTS,
    WHO,
    Rule,
    State,
)
from cpdispatch.compiled.queue import is_late
from cpdispatch.compiled.running import begin
from cpdispatch.compiled.test_runs import (
    Trials,
    choose,
    due_of,
    expect_ends,
    is_tested_in_turn,
    may_be_tested,
    start,
    test,
)
from cpdispatch.heuristics.kernels import LEFT


@inlined
def _leaves(state: State, given: IntArray, fate: IntArray, caution: Any, job: int) -> int:
    """How many processors of a pool a job leaves free when it starts."""
    if caution is None:
        return 0
    if not caution.keeps_free:
        return 0
    short = fate[EXPECTED, job] <= caution.long_s
    late = is_late(given, job, state.now, caution.patience)
    wide = given[NEED, job] + caution.spare > caution.total
    return 0 if short or late or wide else caution.spare


@inlined
def start_in_turn(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Any,
    first: IntArray, ending: int,
) -> None:  # fmt: skip
    """Start jobs in the primary order until one does not fit: the head."""
    while state.primary.head < state.primary.tail:
        job = first[WHO, state.primary.head]
        if fate[START, job] < 0:
            need, testing = first[WANTS, state.primary.head], is_tested_in_turn(trials, job)
            if not starts_in_turn(
                state, given, fate, run, caution, trials, job, need, ending, testing
            ):  # fmt: skip
                break
        state.primary.head += 1


@inlined
def starts_in_turn(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Any,
    job: int, need: int, ending: int, testing: bool,
) -> bool:  # fmt: skip
    """Start a job whose turn it is, or its test, if it fits; whether it does."""
    if not testing:
        need += _leaves(state, given, fate, caution, job)
    if need > state.free + ending:
        return False
    if trials is None:
        begin(state, given, fate, run, caution, job, IN_TURN)
    elif testing:
        test(state, given, fate, run, trials, job, IN_TURN)
    else:
        start(state, given, fate, run, caution, trials, job, IN_TURN)
    return True


@inlined
def _shadow(
    state: State, run: IntArray, ended: int, free: int, need: int, spare: int
) -> tuple[int, int]:
    """When a job that does not fit beside what it leaves free will, and what is then left."""
    k = ended
    while k < state.running:
        due = run[DUE, k]
        while k < state.running and run[DUE, k] == due:
            free += run[HELD, k]
            k += 1
        if free >= need + spare:
            return due, free - need
    return NEVER, 0


@inlined
def backfill(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Any,
    queue: IntArray, size: int, blocked: int, ended: int, ending: int, shadow: int, extra: int,
) -> int:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    ``shadow`` is when that one starts, -1 when it has not been found out yet, and ``extra`` what is
    then left. Returns what is left afterwards.
    """
    for k in range(size):
        if state.free + ending == 0:
            return extra
        need = queue[WANTS, k]
        if need > state.free + ending:
            continue
        job = queue[WHO, k]
        if job == blocked or fate[START, job] >= 0:
            continue
        if need + _leaves(state, given, fate, caution, job) > state.free + ending:
            continue
        if shadow < 0:
            wanted, spare = given[NEED, blocked], _leaves(state, given, fate, caution, blocked)
            shadow, extra = _shadow(state, run, ended, state.free + ending, wanted, spare)
        if due_of(state, fate, caution, trials, job) > shadow:
            if need > extra:
                continue
            extra -= need
        start(state, given, fate, run, caution, trials, job, BACKFILLED)
    return extra


@inlined
def _delays(
    state: State, fate: IntArray, caution: Any, trials: Trials, job: int, testing: bool, shadow: int
) -> bool:
    """Whether a job, or its test, still runs when the one that is blocked is to start."""
    if testing:
        return bool(state.now + trials.state.length_s + trials.state.restart_cost_s > shadow)
    return due_of(state, fate, caution, trials, job) > shadow


@kernel
def backfill_and_test(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Trials,
    first: IntArray, queue: IntArray, size: int, blocked: int, ended: int, ending: int,
    rule: Rule, serial: int,
) -> None:  # fmt: skip
    """Backfill, and test jobs where they do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch, the same job is blocked and no test
    is expected to end at another time, what could not start then cannot now: a single job submitted
    since is looked at alone. ``serial`` is how many jobs had started before this dispatch.
    """
    if state.free + ending == 0:
        return
    wanted = given[NEED, blocked]
    changed = expect_ends(state, given, fate, run, caution, trials, rule, blocked)
    same = state.blocked == blocked and ended == 0 and state.next_serial == serial and not changed
    alone = state.submitted_before if same and state.submitted == state.submitted_before + 1 else -1
    state.blocked = blocked
    if alone >= 0 and (fate[START, alone] >= 0 or given[NEED, alone] > state.free):
        return
    spare = _leaves(state, given, fate, caution, blocked)
    shadow, extra = _shadow(state, run, ended, state.free + ending, wanted, spare)
    for testing in (trials.state.way != LEFT, trials.state.way == LEFT):
        count = 1
        if alone < 0 and not testing:
            extra = backfill(
                state, given, fate, run, caution, trials, queue, size, blocked, ended, ending,
                shadow, extra,
            )  # fmt: skip
            continue
        if alone < 0:
            room = state.free + ending
            count = choose(state, given, fate, first, None, trials, blocked, room, rule)
        elif testing and not may_be_tested(state, given, fate, trials, alone, rule):
            continue
        for k in range(count):
            job = trials.chosen[k] if alone < 0 else alone
            need = given[NEED, job]
            leaves = 0 if testing else _leaves(state, given, fate, caution, job)
            if fate[START, job] >= 0 or need + leaves > state.free + ending:
                continue
            if _delays(state, fate, caution, trials, job, testing, shadow):
                if need > extra:
                    continue
                extra -= need
            if testing:
                test(state, given, fate, run, trials, job, BACKFILLED)
            else:
                start(state, given, fate, run, caution, trials, job, BACKFILLED)
