"""Reservations for more than one job inside a compiled replay: hybrid and conservative."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import ByteArray, IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.compiled.layout import (
    DUE,
    ENTRIES,
    FIRST_ENTRY,
    JOB,
    Queue,
    Tables,
)
from cpdispatch.compiled.nodes import Nodes, give_back
from cpdispatch.compiled.running import begin
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.heuristics import plan
from cpdispatch.heuristics.kernels import Homes, Placed
from cpdispatch.heuristics.profiles.per_node import NodeProfile, expected_profile
from cpdispatch.jobs import Column

_EXPECTED_ROW = int(Column.EXPECTED)
_PROMISED, _FIRST, _COUNT = range(3)
"""Rows of `Deep.promise`."""


class Deep(NamedTuple):
    """What is promised, and what planning needs of the jobs. `dispatch_deep` writes it."""

    block: IntArray
    """The jobs' block, see `cpdispatch.jobs.Column`. Constant."""
    promise: IntArray
    """Of each waiting job: its promised start, `NO_START` if there is none; where its placement
    begins in ``node``, and how many entries it has. Shape (3, jobs)."""
    node: IntArray
    units: IntArray
    """Entries of the promises of the last dispatch: which node, and how many units there."""


def deep_of(block: IntArray, entries: int) -> Deep:
    """Nothing promised yet."""
    jobs = block.shape[1]
    promise = np.empty((3, jobs), dtype=np.int64)
    promise[_PROMISED], promise[_COUNT] = _NO_START, 0
    room = (np.empty(entries, dtype=np.int64) for _ in range(2))
    return Deep(block, promise, *room)


@allocating
def _gathered(deep: Deep, outcome: IntArray, chosen: IntArray, lasts: int) -> IntArray:
    """The block of some jobs; row ``lasts`` says how long they are taken to last."""
    block = np.empty((deep.block.shape[0], chosen.shape[0]), dtype=np.int64)
    for r in range(block.shape[0]):
        for k in range(chosen.shape[0]):
            block[r, k] = deep.block[r, chosen[k]]
    for k in range(chosen.shape[0]):
        block[_EXPECTED_ROW, k] = outcome[lasts, chosen[k]]
    return block


@allocating
def _entries(
    low: IntArray, count: IntArray, node: IntArray, units: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Offset, node and units of runs of entries, put one after the other."""
    offset = np.zeros(low.shape[0] + 1, dtype=np.int64)
    for k in range(low.shape[0]):
        offset[k + 1] = offset[k] + count[k]
    to_node = np.empty(offset[-1], dtype=np.int64)
    to_units = np.empty(offset[-1], dtype=np.int64)
    for k in range(low.shape[0]):
        for e in range(count[k]):
            to_node[offset[k] + e] = node[low[k] + e]
            to_units[offset[k] + e] = units[low[k] + e]
    return offset, to_node, to_units


@allocating
def _profile(tables: Tables, nodes: Nodes, deep: Deep, queued: int, ended: int) -> NodeProfile:
    """Free capacity over time as the running jobs' expected ends have it."""
    state, outcome, running = tables.state, tables.outcome, tables.running
    chosen = running[JOB, ended : state.running].copy()
    offset, node, units = _entries(
        outcome[FIRST_ENTRY][chosen], outcome[ENTRIES][chosen], nodes.node, nodes.units
    )
    none = np.empty(0, dtype=np.int64)
    kinds = nodes.capacity.shape[1]
    return expected_profile(
        state.now, nodes.capacity, none, min(queued, plan.ROOM_AT_FIRST),
        _gathered(deep, outcome, chosen, state.duration_row),
        running[DUE, ended : state.running].copy(), offset, node, units, none, none, none,
        np.empty((0, kinds), dtype=np.int64), np.zeros(kinds, dtype=np.int64), 0,
    )  # fmt: skip


@allocating
def _positions(waiting: IntArray, queue: Queue) -> IntArray:
    """Where the jobs of a queue are in the order of submission."""
    return np.searchsorted(waiting, queue.place[JOB, : waiting.shape[0]].copy())


@allocating
def dispatch_deep(tables: Tables, nodes: Nodes, deep: Deep, caution: Any, ended: int) -> None:
    """One pass with promises, see `cpdispatch.heuristics.plan.plan`."""
    state = tables.state
    queued, none = state.queued, np.empty(0, dtype=np.int64)
    waiting = np.sort(tables.primary.place[JOB, :queued].copy())
    offset, node, units = _entries(
        deep.promise[_FIRST][waiting], deep.promise[_COUNT][waiting], deep.node, deep.units
    )
    start, reason, placed, _ = plan.plan(
        state.now, _profile(tables, nodes, deep, queued, ended), nodes.capacity, nodes.counted,
        _gathered(deep, tables.outcome, waiting, state.duration_row),
        _positions(waiting, tables.primary), _positions(waiting, tables.secondary),
        tables.rule.depth, tables.rule.best_fit,
        plan.Promises(deep.promise[_PROMISED][waiting], offset, node, units),
        np.zeros(nodes.capacity.shape[1], dtype=np.int64), Homes(none, none, none, none, none),
    )  # fmt: skip
    _carry_out(tables, nodes, deep, caution, waiting, start, reason, placed)


@kernel
def _carry_out(
    tables: Tables, nodes: Nodes, deep: Deep, caution: Any, waiting: IntArray, start: IntArray,
    reason: ByteArray, placed: Placed,
) -> None:  # fmt: skip
    """Start what a plan starts now, and keep what it promises. It counts no references."""
    state, outcome, promise, used = tables.state, tables.outcome, deep.promise, 0
    for job in waiting:
        promise[_PROMISED, job], promise[_COUNT, job] = _NO_START, 0
    for k in range(placed.jobs):
        position = placed.position[k]
        job, low = waiting[position], placed.offset[k]
        count = placed.offset[k + 1] - low
        if start[position] == state.now:
            at_entry = state.entries
            for e in range(count):
                nodes.node[at_entry + e] = placed.node[low + e]
                nodes.units[at_entry + e] = placed.units[low + e]
            outcome[FIRST_ENTRY, job], outcome[ENTRIES, job] = at_entry, count
            state.entries += count
            give_back(tables, nodes, job, -1)
            begin(tables, caution, job, reason[position])
        else:
            promise[_PROMISED, job] = start[position]
            promise[_FIRST, job], promise[_COUNT, job] = used, count
            for e in range(count):
                deep.node[used + e] = placed.node[low + e]
                deep.units[used + e] = placed.units[low + e]
            used += count
