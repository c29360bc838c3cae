"""Dispatching on a processor pool inside a compiled replay."""

from __future__ import annotations

from typing import Any

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BACKFILLED,
    BLOCKED,
    DUE,
    EXPECTED,
    FIRST_SIZE,
    FREE,
    HEAD,
    HELD,
    IN_TURN,
    KEEPS,
    LONG,
    NEED,
    NEVER,
    NEXT,
    NOW,
    PATIENCE,
    RUNNING,
    SEEN,
    SERIAL,
    SPARE,
    START,
    TOTAL,
    WANTS,
    WHO,
    WIDE_ONES,
)
from cpdispatch.compiled.queue import is_late
from cpdispatch.compiled.running import begin
from cpdispatch.compiled.test_runs import (
    COST,
    LENGTH,
    WAY,
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
def _leaves(at: IntArray, given: IntArray, fate: IntArray, care: Any, job: int) -> int:
    """How many processors of a pool a job leaves free when it starts."""
    if care is None:
        return 0
    if not care[KEEPS]:
        return 0
    short = fate[EXPECTED, job] <= care[LONG]
    late = is_late(given, job, at[NOW], care[PATIENCE], care[WIDE_ONES])
    wide = given[NEED, job] + care[SPARE] > care[TOTAL]
    return 0 if short or late or wide else care[SPARE]


@inlined
def start_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Any,
    first: IntArray, ending: int,
) -> None:  # fmt: skip
    """Start jobs in the primary order until one does not fit: the head."""
    while at[HEAD] < at[FIRST_SIZE]:
        job = first[WHO, at[HEAD]]
        if fate[START, job] < 0:
            need, testing = first[WANTS, at[HEAD]], is_tested_in_turn(trials, job)
            if not starts_in_turn(
                at, given, fate, run, care, trials, job, need, ending, testing
            ):  # fmt: skip
                break
        at[HEAD] += 1


@inlined
def starts_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Any,
    job: int, need: int, ending: int, testing: bool,
) -> bool:  # fmt: skip
    """Start a job whose turn it is, or its test, if it fits; whether it does."""
    if not testing:
        need += _leaves(at, given, fate, care, job)
    if need > at[FREE] + ending:
        return False
    if trials is None:
        begin(at, given, fate, run, care, job, IN_TURN)
    elif testing:
        test(at, given, fate, run, trials, job, IN_TURN)
    else:
        start(at, given, fate, run, care, trials, job, IN_TURN)
    return True


@inlined
def _shadow(
    at: IntArray, run: IntArray, ended: int, free: int, need: int, spare: int
) -> tuple[int, int]:
    """When a job that does not fit beside what it leaves free will, and what is then left."""
    k = ended
    while k < at[RUNNING]:
        due = run[DUE, k]
        while k < at[RUNNING] and run[DUE, k] == due:
            free += run[HELD, k]
            k += 1
        if free >= need + spare:
            return due, free - need
    return NEVER, 0


@inlined
def backfill(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Any,
    queue: IntArray, size: int, blocked: int, ended: int, ending: int, shadow: int, extra: int,
) -> int:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    ``shadow`` is when that one starts, -1 when it has not been found out yet, and ``extra`` what is
    then left. Returns what is left afterwards.
    """
    for k in range(size):
        if at[FREE] + ending == 0:
            return extra
        need = queue[WANTS, k]
        if need > at[FREE] + ending:
            continue
        job = queue[WHO, k]
        if job == blocked or fate[START, job] >= 0:
            continue
        if need + _leaves(at, given, fate, care, job) > at[FREE] + ending:
            continue
        if shadow < 0:
            wanted, spare = given[NEED, blocked], _leaves(at, given, fate, care, blocked)
            shadow, extra = _shadow(at, run, ended, at[FREE] + ending, wanted, spare)
        if due_of(at, fate, care, trials, job) > shadow:
            if need > extra:
                continue
            extra -= need
        start(at, given, fate, run, care, trials, job, BACKFILLED)
    return extra


@inlined
def _delays(
    at: IntArray, fate: IntArray, care: Any, trials: Trials, job: int, testing: bool, shadow: int
) -> bool:
    """Whether a job, or its test, still runs when the one that is blocked is to start."""
    if testing:
        return bool(at[NOW] + trials.rule[LENGTH] + trials.rule[COST] > shadow)
    return due_of(at, fate, care, trials, job) > shadow


@kernel
def backfill_and_test(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Trials,
    first: IntArray, queue: IntArray, size: int, blocked: int, ended: int, ending: int,
    rule: IntArray, serial: int,
) -> None:  # fmt: skip
    """Backfill, and test jobs where they do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch, the same job is blocked and no test
    is expected to end at another time, what could not start then cannot now: a single job submitted
    since is looked at alone. ``serial`` is how many jobs had started before this dispatch.
    """
    if at[FREE] + ending == 0:
        return
    wanted = given[NEED, blocked]
    changed = expect_ends(at, given, fate, run, care, trials, rule, blocked)
    same = at[BLOCKED] == blocked and ended == 0 and at[SERIAL] == serial and not changed
    alone = at[SEEN] if same and at[NEXT] == at[SEEN] + 1 else -1
    at[BLOCKED] = blocked
    if alone >= 0 and (fate[START, alone] >= 0 or given[NEED, alone] > at[FREE]):
        return
    spare = _leaves(at, given, fate, care, blocked)
    shadow, extra = _shadow(at, run, ended, at[FREE] + ending, wanted, spare)
    for testing in (trials.rule[WAY] != LEFT, trials.rule[WAY] == LEFT):
        count = 1
        if alone < 0 and not testing:
            extra = backfill(
                at, given, fate, run, care, trials, queue, size, blocked, ended, ending, shadow,
                extra,
            )  # fmt: skip
            continue
        if alone < 0:
            room = at[FREE] + ending
            count = choose(at, given, fate, first, None, trials, blocked, room, rule)
        elif testing and not may_be_tested(at, given, fate, trials, alone, rule):
            continue
        for k in range(count):
            job = trials.chosen[k] if alone < 0 else alone
            need = given[NEED, job]
            leaves = 0 if testing else _leaves(at, given, fate, care, job)
            if fate[START, job] >= 0 or need + leaves > at[FREE] + ending:
                continue
            if _delays(at, fate, care, trials, job, testing, shadow):
                if need > extra:
                    continue
                extra -= need
            if testing:
                test(at, given, fate, run, trials, job, BACKFILLED)
            else:
                start(at, given, fate, run, care, trials, job, BACKFILLED)
