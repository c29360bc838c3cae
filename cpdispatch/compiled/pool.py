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
    NEED,
    NEVER,
    NOW,
    RUNNING,
    START,
    WANTS,
    WHO,
)
from cpdispatch.compiled.running import begin


@inlined
def start_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, first: IntArray, ending: int
) -> None:
    """Start jobs in the primary order until one does not fit: the head."""
    while at[HEAD] < at[FIRST_SIZE]:
        job = first[WHO, at[HEAD]]
        if fate[START, job] < 0:
            if first[WANTS, at[HEAD]] > at[FREE] + ending:
                break
            begin(at, given, fate, run, job, IN_TURN)
        at[HEAD] += 1


@inlined
def _shadow(at: IntArray, run: IntArray, ended: int, free: int, need: int) -> tuple[int, int]:
    """When a job that does not fit will, and what it will then leave free."""
    k = ended
    while k < at[RUNNING]:
        due = run[DUE, k]
        while k < at[RUNNING] and run[DUE, k] == due:
            free += run[HELD, k]
            k += 1
        if free >= need:
            return due, free - need
    return NEVER, 0


@inlined
def backfill(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, queue: IntArray,
    size: int, blocked: int, ended: int, ending: int,
) -> None:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked."""
    now, shadow, extra = at[NOW], -1, 0
    for k in range(size):
        if at[FREE] + ending == 0:
            return
        need = queue[WANTS, k]
        if need > at[FREE] + ending:
            continue
        job = queue[WHO, k]
        if job == blocked or fate[START, job] >= 0:
            continue
        if shadow < 0:
            wanted = given[NEED, blocked]
            shadow, extra = _shadow(at, run, ended, at[FREE] + ending, wanted)
        if now + fate[EXPECTED, job] > shadow:
            if need > extra:
                continue
            extra -= need
        begin(at, given, fate, run, job, BACKFILLED)
