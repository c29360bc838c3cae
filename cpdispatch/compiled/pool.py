"""Dispatching on a processor pool inside a compiled replay."""

from __future__ import annotations

from typing import Any

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BACKFILLED,
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
    NOW,
    PATIENCE,
    RUNNING,
    SPARE,
    START,
    TOTAL,
    WANTS,
    WHO,
    WIDE_ONES,
)
from cpdispatch.compiled.queue import is_late
from cpdispatch.compiled.test_runs import (
    COST,
    LENGTH,
    WAY,
    Trials,
    choose,
    due_of,
    expect_ends,
    is_tested_in_turn,
    start,
    start_in_turn_or_test,
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
            need = first[WANTS, at[HEAD]]
            if not is_tested_in_turn(trials, job):
                need += _leaves(at, given, fate, care, job)
            if need > at[FREE] + ending:
                break
            start_in_turn_or_test(at, given, fate, run, care, trials, job, IN_TURN)
        at[HEAD] += 1


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


@kernel
def backfill_and_test(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, care: Any, trials: Trials,
    first: IntArray, queue: IntArray, size: int, blocked: int, ended: int, ending: int,
    rule: IntArray,
) -> None:  # fmt: skip
    """Backfill, and test jobs where they do not delay the one that is blocked."""
    if at[FREE] + ending == 0:
        return
    length, wanted = trials.rule[LENGTH], given[NEED, blocked]
    expect_ends(at, given, fate, run, care, trials, rule, blocked)
    spare = _leaves(at, given, fate, care, blocked)
    shadow, extra = _shadow(at, run, ended, at[FREE] + ending, wanted, spare)
    for testing in (trials.rule[WAY] != LEFT, trials.rule[WAY] == LEFT):
        if not testing:
            extra = backfill(
                at, given, fate, run, care, trials, queue, size, blocked, ended, ending, shadow,
                extra,
            )  # fmt: skip
            continue
        room = at[FREE] + ending
        for k in range(choose(at, given, fate, first, trials, blocked, room, rule)):
            job = trials.chosen[k]
            need = given[NEED, job]
            if need > at[FREE] + ending:
                continue
            if at[NOW] + length + trials.rule[COST] > shadow:
                if need > extra:
                    continue
                extra -= need
            test(at, given, fate, run, trials, job, BACKFILLED)
