"""From one window of a log to the next, in a compiled replay of which only a window is in memory.

Jobs that wait or run when a window is used up are the first ones of the next.
"""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    COUNT,
    DUE,
    FIRST,
    HEAP_END,
    HEAP_SERIAL,
    HELD,
    JOB,
    KIND,
    START,
    WANTS,
    WHO,
    Tables,
)
from cpdispatch.compiled.nodes import Nodes, count_waiting, wanted_all
from cpdispatch.compiled.replay import Replay

_STAYS = ("now", "queued", "running", "pending", "free", "duration_row")


def staying(replay: Replay) -> IntArray:
    """The jobs that wait or run, in ascending order."""
    tables, state = replay.tables, replay.tables.state
    queued = tables.first[WHO, : state.primary.tail]
    waiting = queued[tables.fate[START, queued] < 0]
    return np.sort(np.concatenate((waiting, tables.run[JOB, : state.running])))


def go_on(old: Replay, new: Replay, jobs: IntArray) -> None:
    """Have a fresh replay go on from where another has come to.

    What a replay keeps only to be faster is found out anew.

    Parameters
    ----------
    old : Replay
        Of at most one reservation, without test runs, bound on waits or predictor that learns.
    new : Replay
        By the same rules. Its first jobs are those that stay.
    jobs : int64 array
        Which jobs of the old one stay, see `staying`.
    """
    tables, to = old.tables, new.tables
    was, state = tables.state, to.state
    number = np.full(tables.given.shape[1], -1, dtype=np.int64)
    number[jobs] = np.arange(len(jobs))
    for name in _STAYS:
        setattr(state, name, getattr(was, name))
    state.submitted, state.next_serial = len(jobs), was.pending
    state.oldest_waiting = int(np.searchsorted(jobs, was.oldest_waiting))
    state.submitted_before = int(np.searchsorted(jobs, was.submitted_before))
    first_on_time = np.searchsorted(jobs, was.primary.first_on_time)
    state.primary.first_on_time = int(first_on_time)
    to.fate[:, : len(jobs)] = tables.fate[:, jobs]
    _run_on(tables, to, number)
    _queue_on(tables, to, number)
    if old.nodes is not None and new.nodes is not None:
        _hold_on(old.nodes, new.nodes, to)


def _run_on(tables: Tables, to: Tables, number: IntArray) -> None:
    """Take over the running jobs, and number the completions to come anew, in their order."""
    running, pending = int(tables.state.running), int(tables.state.pending)
    to.run[JOB, :running] = number[tables.run[JOB, :running]]
    to.run[[DUE, HELD], :running] = tables.run[[DUE, HELD], :running]
    serial = tables.run[HEAP_SERIAL, :pending]
    in_order = np.sort(serial)
    to.run[HEAP_END, :pending] = tables.run[HEAP_END, :pending]
    to.run[HEAP_SERIAL, :pending] = np.searchsorted(in_order, serial)
    to.run[BY_SERIAL, :pending] = number[tables.run[BY_SERIAL, in_order]]


def _queue_on(tables: Tables, to: Tables, number: IntArray) -> None:
    """Take over the waiting jobs, in their order."""
    was, now = tables.state, to.state
    for queue, keys, marks, into, into_keys, into_marks in (
        (tables.first, tables.first_key, was.primary, to.first, to.first_key, now.primary),
        (tables.second, tables.second_key, was.secondary, to.second, to.second_key, now.secondary),
    ):
        size = int(marks.tail)
        waits = tables.fate[START, queue[WHO, :size]] < 0
        count = int(np.count_nonzero(waits))
        into[WHO, :count] = number[queue[WHO, :size][waits]]
        into[WANTS, :count] = queue[WANTS, :size][waits]
        into_keys[:count] = keys[:size][waits]
        into_marks.tail = count


def _hold_on(was: Nodes, nodes: Nodes, tables: Tables) -> None:
    """Take over what is free and who holds what, and count anew who waits for what."""
    state, fate, given = tables.state, tables.fate, tables.given
    nodes.free[:], nodes.pool[:] = was.free, was.pool
    running = tables.run[JOB, : state.running]
    count = fate[COUNT, running]
    first = np.cumsum(count) - count
    pick = np.repeat(fate[FIRST, running] - first, count) + np.arange(count.sum())
    nodes.node[: len(pick)], nodes.units[: len(pick)] = was.node[pick], was.units[pick]
    fate[FIRST, running], state.entries = first, len(pick)
    for queue, size in (
        (tables.second, int(state.secondary.tail)),
        (tables.first, int(state.primary.tail)),
    ):
        job = queue[WHO, :size]
        kind, lasts_s = given[KIND, job], fate[state.duration_row, job]
        queue[WANTS, :size] = wanted_all(kind, lasts_s)
    count_waiting(nodes, kind, lasts_s)
