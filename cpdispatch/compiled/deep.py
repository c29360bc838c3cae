"""Reservations for more than one job inside a compiled replay: hybrid and conservative."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import kernel
from cpdispatch.compiled.layout import (
    COUNT,
    DUE,
    FIRST,
    JOB,
    WHO,
    State,
)
from cpdispatch.compiled.nodes import Nodes, give_back
from cpdispatch.compiled.running import begin
from cpdispatch.decision import NO_START as _NO_START
from cpdispatch.heuristics import plan
from cpdispatch.heuristics.kernels import Homes
from cpdispatch.heuristics.profiles.per_node import NodeProfile, expected_profile
from cpdispatch.jobs import Column

_EXPECTED_ROW, _REQUEST_ROW = int(Column.EXPECTED), int(Column.REQUEST)


class Deep(NamedTuple):
    """What is promised, and what planning needs of the jobs."""

    block: IntArray
    """The jobs' block, see `cpdispatch.jobs.Column`."""
    promise: IntArray
    """Promised start of each job, and its first entry and how many; shape (3, jobs)."""
    node: IntArray
    units: IntArray
    """Entries of the promises."""


def deep_of(block: IntArray, entries: int) -> Deep:
    """Nothing promised yet."""
    jobs = block.shape[1]
    promise = np.empty((3, jobs), dtype=np.int64)
    promise[0], promise[2] = _NO_START, 0
    room = (np.empty(entries, dtype=np.int64) for _ in range(2))
    return Deep(block, promise, *room)


@kernel
def _gathered(deep: Deep, fate: IntArray, jobs: IntArray, lasts: int) -> IntArray:
    """The block of some jobs; row ``lasts`` says how long they are taken to last."""
    block = np.empty((deep.block.shape[0], jobs.shape[0]), dtype=np.int64)
    for r in range(block.shape[0]):
        for k in range(jobs.shape[0]):
            block[r, k] = deep.block[r, jobs[k]]
    for k in range(jobs.shape[0]):
        block[_EXPECTED_ROW, k] = fate[lasts, jobs[k]]
    return block


@kernel
def _entries(
    first: IntArray, count: IntArray, node: IntArray, units: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Offset, node and units of runs of entries, put one after the other."""
    offset = np.zeros(first.shape[0] + 1, dtype=np.int64)
    for k in range(first.shape[0]):
        offset[k + 1] = offset[k] + count[k]
    to_node = np.empty(offset[-1], dtype=np.int64)
    to_units = np.empty(offset[-1], dtype=np.int64)
    for k in range(first.shape[0]):
        for e in range(count[k]):
            to_node[offset[k] + e] = node[first[k] + e]
            to_units[offset[k] + e] = units[first[k] + e]
    return offset, to_node, to_units


@kernel
def _profile(
    state: State, fate: IntArray, run: IntArray, nodes: Nodes, deep: Deep, queued: int, ended: int
) -> NodeProfile:
    """Free capacity over time as the running jobs' expected ends have it."""
    jobs = run[JOB, ended : state.running].copy()
    offset, node, units = _entries(fate[FIRST][jobs], fate[COUNT][jobs], nodes.node, nodes.units)
    none = np.empty(0, dtype=np.int64)
    kinds = nodes.capacity.shape[1]
    return expected_profile(
        state.now, nodes.capacity, none, queued, _gathered(deep, fate, jobs, state.duration_row),
        run[DUE, ended : state.running].copy(), offset, node, units,
        none, none, none, np.empty((0, kinds), dtype=np.int64),
        np.zeros(kinds, dtype=np.int64), 0,
    )  # fmt: skip


@kernel
def _positions(waiting: IntArray, queue: IntArray) -> IntArray:
    """Where the jobs of a queue are in the order of submission."""
    return np.searchsorted(waiting, queue[WHO, : waiting.shape[0]].copy())


@kernel
def dispatch_deep(
    state: State, given: IntArray, fate: IntArray, run: IntArray, first: IntArray, second: IntArray,
    nodes: Nodes, deep: Deep, caution: Any, depth: int, best_fit: bool, ended: int,
) -> None:  # fmt: skip
    """One pass with promises, see `cpdispatch.heuristics.plan.plan`."""
    now, queued, none = state.now, state.queued, np.empty(0, dtype=np.int64)
    waiting = np.sort(first[WHO, :queued].copy())
    offset, node, units = _entries(
        deep.promise[1][waiting], deep.promise[2][waiting], deep.node, deep.units
    )
    start, reason, placed = plan.plan(
        now,
        _profile(state, fate, run, nodes, deep, queued, ended),
        nodes.capacity,
        _gathered(deep, fate, waiting, state.duration_row),
        _positions(waiting, first),
        _positions(waiting, second),
        depth,
        best_fit,
        plan.Promises(deep.promise[0][waiting], offset, node, units),
        np.zeros(nodes.capacity.shape[1], dtype=np.int64),
        Homes(none, none, none, none, none),
    )
    used = 0
    deep.promise[0][waiting] = _NO_START
    deep.promise[2][waiting] = 0
    for k in range(placed.jobs):
        job = waiting[placed.position[k]]
        low, high = placed.offset[k], placed.offset[k + 1]
        count = high - low
        if start[placed.position[k]] == now:
            at_entry = state.entries
            for e in range(count):
                nodes.node[at_entry + e] = placed.node[low + e]
                nodes.units[at_entry + e] = placed.units[low + e]
            fate[FIRST, job], fate[COUNT, job] = at_entry, count
            state.entries += count
            give_back(state, fate, given, nodes, job, -1)
            begin(state, given, fate, run, caution, job, reason[placed.position[k]])
        else:
            deep.promise[0, job] = start[placed.position[k]]
            deep.promise[1, job], deep.promise[2, job] = used, count
            for e in range(count):
                deep.node[used + e] = placed.node[low + e]
                deep.units[used + e] = placed.units[low + e]
            used += count
