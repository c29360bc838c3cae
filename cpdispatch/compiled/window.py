"""From one window of a log to the next, in a compiled replay of which only a window is in memory.

Jobs that wait or run when a window is used up are the first ones of the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compiled.layout import (
    BY_SERIAL,
    COUNT,
    DUE,
    ENTRIES,
    FIRST,
    FIRST_SIZE,
    FREE,
    HEAP_END,
    HEAP_SERIAL,
    HELD,
    JOB,
    KIND,
    LASTS,
    LATE,
    NEXT,
    NOW,
    OLDEST,
    PENDING,
    QUEUED,
    RUNNING,
    SECOND_SIZE,
    SEEN,
    SERIAL,
    START,
    WANTS,
    WHO,
    State,
)
from cpdispatch.compiled.nodes import Nodes, count_waiting, wanted_all
from cpdispatch.compiled.replay import Replay

_STAYS = (NOW, QUEUED, RUNNING, PENDING, FREE, LASTS)


def staying(replay: Replay) -> IntArray:
    """The jobs that wait or run, in ascending order."""
    state, at = replay.state, replay.state.at
    queued = state.first[WHO, : at[FIRST_SIZE]]
    waiting = queued[state.fate[START, queued] < 0]
    return np.sort(np.concatenate((waiting, state.run[JOB, : at[RUNNING]])))


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
    state, to = old.state, new.state
    number = np.full(state.given.shape[1], -1, dtype=np.int64)
    number[jobs] = np.arange(len(jobs))
    at = to.at
    at[list(_STAYS)] = state.at[list(_STAYS)]
    at[NEXT], at[SERIAL] = len(jobs), state.at[PENDING]
    at[[LATE, OLDEST, SEEN]] = np.searchsorted(jobs, state.at[[LATE, OLDEST, SEEN]])
    to.fate[:, : len(jobs)] = state.fate[:, jobs]
    _run_on(state, to, number)
    _queue_on(state, to, number)
    if old.nodes is not None and new.nodes is not None:
        _hold_on(old.nodes, new.nodes, to)


def _run_on(state: State, to: State, number: IntArray) -> None:
    """Take over the running jobs, and number the completions to come anew, in their order."""
    running, pending = int(state.at[RUNNING]), int(state.at[PENDING])
    to.run[JOB, :running] = number[state.run[JOB, :running]]
    to.run[[DUE, HELD], :running] = state.run[[DUE, HELD], :running]
    serial = state.run[HEAP_SERIAL, :pending]
    in_order = np.sort(serial)
    to.run[HEAP_END, :pending] = state.run[HEAP_END, :pending]
    to.run[HEAP_SERIAL, :pending] = np.searchsorted(in_order, serial)
    to.run[BY_SERIAL, :pending] = number[state.run[BY_SERIAL, in_order]]


def _queue_on(state: State, to: State, number: IntArray) -> None:
    """Take over the waiting jobs, in their order."""
    for queue, keys, size_at, into, into_keys in (
        (state.first, state.first_key, FIRST_SIZE, to.first, to.first_key),
        (state.second, state.second_key, SECOND_SIZE, to.second, to.second_key),
    ):
        size = int(state.at[size_at])
        waits = state.fate[START, queue[WHO, :size]] < 0
        count = int(np.count_nonzero(waits))
        into[WHO, :count] = number[queue[WHO, :size][waits]]
        into[WANTS, :count] = queue[WANTS, :size][waits]
        into_keys[:count] = keys[:size][waits]
        to.at[size_at] = count


def _hold_on(was: Nodes, nodes: Nodes, state: State) -> None:
    """Take over what is free and who holds what, and count anew who waits for what."""
    at, fate, given = state.at, state.fate, state.given
    nodes.free[:], nodes.pool[:] = was.free, was.pool
    running = state.run[JOB, : at[RUNNING]]
    count = fate[COUNT, running]
    first = np.cumsum(count) - count
    pick = np.repeat(fate[FIRST, running] - first, count) + np.arange(count.sum())
    nodes.node[: len(pick)], nodes.units[: len(pick)] = was.node[pick], was.units[pick]
    fate[FIRST, running], at[ENTRIES] = first, len(pick)
    queues: list[tuple[Any, int]] = [(state.first, FIRST_SIZE), (state.second, SECOND_SIZE)]
    for queue, size_at in queues:
        job = queue[WHO, : at[size_at]]
        kind, lasts_s = given[KIND, job], fate[at[LASTS], job]
        queue[WANTS, : at[size_at]] = wanted_all(kind, lasts_s)
        if size_at == FIRST_SIZE:
            count_waiting(nodes, kind, lasts_s)
