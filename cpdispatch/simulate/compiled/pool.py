"""Dispatching on a processor pool inside a compiled replay."""

from __future__ import annotations

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined
from cpdispatch.simulate.compiled.layout import (
    BACKFILLED,
    DUE,
    EXPECTED,
    FREE,
    HELD,
    IN_TURN,
    NEED,
    NEVER,
    NOW,
    QUEUED,
    RUNNING,
    START,
    WANTS,
    WHO,
)
from cpdispatch.simulate.compiled.running import begin


@inlined
def start_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, first: IntArray, ending: int
) -> int:
    """Start jobs in the primary order until one does not fit; how many started."""
    head = 0
    while head < at[QUEUED] and first[WANTS, head] <= at[FREE] + ending:
        begin(at, given, fate, run, first[WHO, head], IN_TURN)
        head += 1
    return head


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
    blocked: int, ended: int, ending: int,
) -> None:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked."""
    now, shadow, extra = at[NOW], -1, 0
    for k in range(at[QUEUED]):
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
