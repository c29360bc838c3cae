"""From one window of a log to the next, in a compiled replay of which only a window is in memory.

Jobs that wait or run when a window is used up are the first ones of the next.
"""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import IntArray, ranges
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    DEMAND,
    DUE,
    ENTRIES,
    FIRST_ENTRY,
    HEAP_END,
    HEAP_SERIAL,
    HELD,
    JOB,
    KIND,
    START,
    Tables,
    queues,
)
from cpdispatch.compiled.nodes import Nodes, count_waiting, demands_of
from cpdispatch.compiled.replay import Replay

_STAYS = ("now", "queued", "running", "pending", "free", "duration_row")


def staying(replay: Replay) -> IntArray:
    """The jobs that wait or run, in ascending order."""
    tables, state = replay.tables, replay.tables.state
    queued = tables.primary.place[JOB, : tables.primary.marks.tail]
    waiting = queued[tables.outcome[START, queued] < 0]
    return np.sort(np.concatenate((waiting, tables.running[JOB, : state.running])))


def go_on(old: Replay, new: Replay, stay: IntArray) -> None:
    """Have a fresh replay go on from where another has come to.

    What a replay keeps only to be faster is found out anew.

    Parameters
    ----------
    old : Replay
        Of at most one reservation, without test runs, bound on waits or predictor that learns.
    new : Replay
        By the same rules. Its first jobs are those that stay.
    stay : int64 array
        Which jobs of the old one stay, see `staying`.
    """
    tables, to = old.tables, new.tables
    was, state = tables.state, to.state
    number = np.full(tables.jobs.shape[1], -1, dtype=np.int64)
    number[stay] = np.arange(len(stay))
    for name in _STAYS:
        setattr(state, name, getattr(was, name))
    state.submitted, state.next_serial = len(stay), was.pending
    state.oldest_waiting = int(np.searchsorted(stay, was.oldest_waiting))
    state.submitted_before = int(np.searchsorted(stay, was.submitted_before))
    first_on_time = np.searchsorted(stay, tables.primary.marks.first_on_time)
    to.primary.marks.first_on_time = int(first_on_time)
    to.outcome[:, : len(stay)] = tables.outcome[:, stay]
    _run_on(tables, to, number)
    _queue_on(tables, to, number)
    if old.nodes is not None and new.nodes is not None:
        _hold_on(old.nodes, new.nodes, to)


def _run_on(tables: Tables, to: Tables, number: IntArray) -> None:
    """Take over the running jobs, and number the completions to come anew, in their order."""
    run_count, pending_count = int(tables.state.running), int(tables.state.pending)
    to.running[JOB, :run_count] = number[tables.running[JOB, :run_count]]
    to.running[[DUE, HELD], :run_count] = tables.running[[DUE, HELD], :run_count]
    serial = tables.running[HEAP_SERIAL, :pending_count]
    in_order = np.sort(serial)
    to.running[HEAP_END, :pending_count] = tables.running[HEAP_END, :pending_count]
    to.running[HEAP_SERIAL, :pending_count] = np.searchsorted(in_order, serial)
    to.running[BY_SERIAL, :pending_count] = number[tables.running[BY_SERIAL, in_order]]


def _queue_on(tables: Tables, to: Tables, number: IntArray) -> None:
    """Take over the waiting jobs, in their order."""
    for queue, into in zip(queues(tables), queues(to), strict=True):
        size = int(queue.marks.tail)
        place = queue.place[:, :size]
        waits = tables.outcome[START, place[JOB]] < 0
        count = int(np.count_nonzero(waits))
        into.place[JOB, :count] = number[place[JOB][waits]]
        into.place[DEMAND, :count] = place[DEMAND][waits]
        into.key[:count] = queue.key[:size][waits]
        into.marks.tail = count


def _hold_on(was: Nodes, nodes: Nodes, tables: Tables) -> None:
    """Take over what is free and who holds what, and count anew who waits for what."""
    state, outcome, jobs = tables.state, tables.outcome, tables.jobs
    nodes.free[:], nodes.pool[:] = was.free, was.pool
    running = tables.running[JOB, : state.running]
    count = outcome[ENTRIES, running]
    pick = ranges(outcome[FIRST_ENTRY, running], count)
    nodes.node[: len(pick)], nodes.units[: len(pick)] = was.node[pick], was.units[pick]
    outcome[FIRST_ENTRY, running], state.entries = np.cumsum(count) - count, len(pick)
    for queue in queues(tables):
        size = int(queue.marks.tail)
        job = queue.place[JOB, :size]
        kind, lasts_s = jobs[KIND, job], outcome[state.duration_row, job]
        queue.place[DEMAND, :size] = demands_of(kind, lasts_s)
    count_waiting(nodes, kind, lasts_s)
