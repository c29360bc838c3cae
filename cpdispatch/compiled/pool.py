"""Dispatching on a processor pool inside a compiled replay."""

from __future__ import annotations

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined
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
    LASTS,
    LONG,
    NEED,
    NEVER,
    NOW,
    RUNNING,
    SPARE,
    START,
    SUBMIT,
    THRESHOLD,
    TOTAL,
    WANTS,
    WHO,
)
from cpdispatch.compiled.running import begin


@inlined
def _leaves(at: IntArray, given: IntArray, fate: IntArray, rule: IntArray, job: int) -> int:
    """How many processors of a pool a job leaves free when it starts."""
    short = fate[EXPECTED, job] <= rule[LONG]
    late = at[NOW] - given[SUBMIT, job] > rule[THRESHOLD]
    wide = given[NEED, job] + rule[SPARE] > rule[TOTAL]
    return 0 if short or late or wide else rule[SPARE]


@inlined
def start_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, rule: IntArray,
    first: IntArray, ending: int,
) -> None:  # fmt: skip
    """Start jobs in the primary order until one does not fit: the head."""
    keeps = rule[KEEPS] != 0
    while at[HEAD] < at[FIRST_SIZE]:
        job = first[WHO, at[HEAD]]
        if fate[START, job] < 0:
            need = first[WANTS, at[HEAD]]
            if keeps:
                need += _leaves(at, given, fate, rule, job)
            if need > at[FREE] + ending:
                break
            begin(at, given, fate, run, job, IN_TURN)
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
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, rule: IntArray,
    queue: IntArray, size: int, blocked: int, ended: int, ending: int,
) -> None:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked."""
    now, shadow, extra = at[NOW], -1, 0
    lasts, keeps = at[LASTS], rule[KEEPS] != 0
    for k in range(size):
        if at[FREE] + ending == 0:
            return
        need = queue[WANTS, k]
        if need > at[FREE] + ending:
            continue
        job = queue[WHO, k]
        if job == blocked or fate[START, job] >= 0:
            continue
        if keeps:
            spare = _leaves(at, given, fate, rule, job)
            if need + spare > at[FREE] + ending:
                continue
        if shadow < 0:
            wanted, spare = given[NEED, blocked], 0
            if keeps:
                spare = _leaves(at, given, fate, rule, blocked)
            shadow, extra = _shadow(at, run, ended, at[FREE] + ending, wanted, spare)
        if now + fate[lasts, job] > shadow:
            if need > extra:
                continue
            extra -= need
        begin(at, given, fate, run, job, BACKFILLED)
