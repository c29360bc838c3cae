"""Dispatching on nodes with several resources inside a compiled replay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import kernel
from cpdispatch.heuristics.kernels import change, fits, place, room
from cpdispatch.simulate.compiled.layout import (
    BACKFILLED,
    BLOCKED,
    CHANGES,
    COMPARED,
    COUNT,
    DISPATCHES,
    DUE,
    ENTRIES,
    EXPECTED,
    FIRST,
    IN_TURN,
    JOB,
    NEED,
    NEVER,
    NEXT,
    NOW,
    QUEUED,
    RUNNING,
    SEEN,
    SHADOW,
    SHAPE,
    START,
    UNITS,
    WANTS,
    WHO,
)
from cpdispatch.simulate.compiled.running import begin

_PLENTY = 1 << 40
"""More units than any node holds."""

_LOG = 1 << 12
"""Changes of nodes that are remembered, a power of two."""


class Nodes(NamedTuple):
    """What a replay on nodes keeps beside its `State`."""

    capacity: IntArray
    free: IntArray
    """Shape (nodes, resources), like the capacity."""
    pool: IntArray
    """The same summed over the nodes, shape (resources,)."""
    asks: IntArray
    """Requests of a unit, shape (shapes, resources)."""
    node: IntArray
    units: IntArray
    """Entries of placements in the order of the starts."""
    log: IntArray
    """Nodes whose free capacity changed last: a ring."""
    room: IntArray
    """Units of each shape that fit on each node, shape (shapes, nodes)."""
    rooms: IntArray
    """The same summed over the nodes."""
    known: IntArray
    """Changes that these two rows of a shape take in, -1 before they are first needed."""
    later: IntArray
    """What the reserved job leaves free at its start."""
    later_room: IntArray
    """Units of the reserved job that fit there on each node."""
    both: IntArray
    """The elementwise minimum of ``free`` and ``later``."""
    misfit: IntArray
    """Fewest units of each shape that are known not to fit ``both``, and at which dispatch."""


def nodes_of(capacity: IntArray, asks: IntArray, entries: int) -> Nodes:
    """An empty system; of room for entries and shapes only what is used costs memory."""
    shapes, count = len(asks), len(capacity)
    return Nodes(
        capacity,
        capacity.copy(),
        capacity.sum(axis=0),
        asks,
        np.empty(entries, dtype=np.int64),
        np.empty(entries, dtype=np.int64),
        np.empty(_LOG, dtype=np.int64),
        np.empty((shapes, count), dtype=np.int64),
        np.zeros(shapes, dtype=np.int64),
        np.full(shapes, -1, dtype=np.int64),
        np.empty_like(capacity),
        np.empty(count, dtype=np.int64),
        np.empty_like(capacity),
        np.full((2, shapes), -1, dtype=np.int64),
    )


@kernel
def give_back(
    at: IntArray, fate: IntArray, given: IntArray, nodes: Nodes, job: int, sign: int
) -> None:
    """Give back (sign 1) or take (sign -1) what a job holds."""
    free, node, units, log = nodes.free, nodes.node, nodes.units, nodes.log
    ask, pool = nodes.asks[given[SHAPE, job]], nodes.pool
    low = fate[FIRST, job]
    for e in range(low, low + fate[COUNT, job]):
        log[at[CHANGES] & (_LOG - 1)] = node[e]
        at[CHANGES] += 1
        for r in range(ask.shape[0]):
            free[node[e], r] += sign * units[e] * ask[r]
    for r in range(ask.shape[0]):
        pool[r] += sign * given[UNITS, job] * ask[r]


@kernel
def rooms_of(at: IntArray, nodes: Nodes, shape: int) -> int:
    """How many units of a shape fit what is free: only nodes that changed are looked at."""
    free, row, ask = nodes.free, nodes.room[shape], nodes.asks[shape]
    total, changes = nodes.rooms[shape], at[CHANGES]
    since = nodes.known[shape]
    if since < 0 or changes - since > min(_LOG, row.shape[0]):
        total = 0
        for node in range(row.shape[0]):
            row[node] = room(free, node, ask, _PLENTY)
            total += row[node]
    else:
        log = nodes.log
        for k in range(since, changes):
            node = log[k & (_LOG - 1)]
            here = room(free, node, ask, _PLENTY)
            total += here - row[node]
            row[node] = here
    nodes.rooms[shape], nodes.known[shape] = total, changes
    return int(total)


@kernel
def lend(
    at: IntArray, fate: IntArray, given: IntArray, run: IntArray, nodes: Nodes, ended: int,
    sign: int,
) -> None:  # fmt: skip
    """Count the jobs that end now as ended, for one dispatch."""
    for k in range(ended):
        give_back(at, fate, given, nodes, run[JOB, k], sign)


@kernel
def job_fits(at: IntArray, given: IntArray, nodes: Nodes, job: int) -> bool:
    """Whether a job fits what is free."""
    return given[NEED, job] <= nodes.pool[0] and bool(
        rooms_of(at, nodes, given[SHAPE, job]) >= given[UNITS, job]
    )


@kernel
def first_fit(row: IntArray, units: int, node_out: IntArray, units_out: IntArray) -> int:
    """Nodes by index for units of which a row says how many fit; how many entries there are."""
    count = 0
    for node in range(row.shape[0]):
        if row[node] > 0:
            here = min(row[node], units)
            node_out[count], units_out[count] = node, here
            count += 1
            units -= here
            if units == 0:
                break
    return count


@kernel
def begin_on(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes, outlives: bool,
    job: int, reason: int, best_fit: bool,
) -> None:  # fmt: skip
    """Start a job that fits ``free``, or if it outlives the shadow time ``both``."""
    low, shape, units = at[ENTRIES], given[SHAPE, job], given[UNITS, job]
    node, many = nodes.node[low:], nodes.units[low:]
    if outlives or best_fit:
        usable = nodes.both if outlives else nodes.free
        count = place(usable, nodes.capacity, nodes.asks[shape], units, best_fit, node, many)
    else:
        count = first_fit(nodes.room[shape], units, node, many)
    fate[FIRST, job], fate[COUNT, job] = low, count
    at[ENTRIES] = low + count
    give_back(at, fate, given, nodes, job, -1)
    begin(at, given, fate, run, job, reason)


@kernel
def start_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, first: IntArray, nodes: Nodes,
    best_fit: bool,
) -> int:  # fmt: skip
    """Start jobs in the primary order until one does not fit; how many started."""
    head = 0
    while head < at[QUEUED] and job_fits(at, given, nodes, first[WHO, head]):
        begin_on(at, given, fate, run, nodes, False, first[WHO, head], IN_TURN, best_fit)
        head += 1
    return head


@kernel
def _reserve(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes,
    job: int, ended: int, best_fit: bool,
) -> int:  # fmt: skip
    """Shadow time of a job that does not fit; ``nodes.later`` becomes what it then leaves free."""
    shape, units = given[SHAPE, job], given[UNITS, job]
    total = rooms_of(at, nodes, shape)
    later, row, ask = nodes.later, nodes.later_room, nodes.asks[shape]
    later[:] = nodes.free
    row[:] = nodes.room[shape]
    shadow, k = NEVER, ended
    while total < units and k < at[RUNNING]:
        shadow = run[DUE, k]
        while k < at[RUNNING] and run[DUE, k] == shadow:
            total += _add(given, fate, nodes, run[JOB, k], ask)
            k += 1
    node, many = np.empty_like(row), np.empty_like(row)
    if best_fit:
        count = place(later, nodes.capacity, ask, units, best_fit, node, many)
    else:
        count = first_fit(row, units, node, many)
    change(later, ask, node[:count], many[:count], -1)
    return shadow


@kernel
def _add(given: IntArray, fate: IntArray, nodes: Nodes, job: int, wanted: IntArray) -> int:
    """Add what a job holds to ``later``; how many more units of a request fit there."""
    later, row, node, units = nodes.later, nodes.later_room, nodes.node, nodes.units
    ask = nodes.asks[given[SHAPE, job]]
    more, low = 0, fate[FIRST, job]
    for e in range(low, low + fate[COUNT, job]):
        for r in range(ask.shape[0]):
            later[node[e], r] += units[e] * ask[r]
        here = room(later, node[e], wanted, _PLENTY)
        more += here - row[node[e]]
        row[node[e]] = here
    return more


@kernel
def _fits_both(at: IntArray, nodes: Nodes, shape: int, units: int) -> bool:
    """Whether a job that outlives the shadow time fits beside the reserved one."""
    if not at[COMPARED]:
        at[COMPARED] = 1
        nodes.both[:] = np.minimum(nodes.free, nodes.later)
    misfit = nodes.misfit
    if misfit[1, shape] == at[DISPATCHES] and units >= misfit[0, shape]:
        return False
    if fits(nodes.both, nodes.asks[shape], units):
        return True
    misfit[0, shape], misfit[1, shape] = units, at[DISPATCHES]
    return False


@kernel
def _start_beside(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes,
    job: int, ended: int, best_fit: bool,
) -> None:  # fmt: skip
    """Start a job that fits now if it does not delay the one that is blocked."""
    shape, units = given[SHAPE, job], given[UNITS, job]
    if rooms_of(at, nodes, shape) < units:
        return
    if at[SHADOW] < 0:
        at[SHADOW] = _reserve(at, given, fate, run, nodes, at[BLOCKED], ended, best_fit)
        at[COMPARED] = 0
    outlives = at[NOW] + fate[EXPECTED, job] > at[SHADOW]
    if outlives and not _fits_both(at, nodes, shape, units):
        return
    begin_on(at, given, fate, run, nodes, outlives, job, BACKFILLED, best_fit)
    free, later, both, node = nodes.free, nodes.later, nodes.both, nodes.node
    low, high = fate[FIRST, job], at[ENTRIES]
    if outlives:
        change(later, nodes.asks[shape], node[low:high], nodes.units[low:high], -1)
    if at[COMPARED]:
        for e in range(low, high):
            for r in range(free.shape[1]):
                both[node[e], r] = min(free[node[e], r], later[node[e], r])


@kernel
def backfill(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, queue: IntArray, nodes: Nodes,
    blocked: int, ended: int, best_fit: bool,
) -> None:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch and the same job is blocked, those
    that could not start then cannot now: only jobs submitted since are looked at.
    """
    pool, rooms, known, misfit = nodes.pool, nodes.rooms, nodes.known, nodes.misfit
    now, seen = at[NOW], 0
    if at[BLOCKED] == blocked and ended == 0:
        seen = at[SEEN]
        if at[NEXT] == seen + 1:
            _start_beside(at, given, fate, run, nodes, seen, ended, best_fit)
            return
    else:
        at[BLOCKED], at[SHADOW] = blocked, -1
    for k in range(at[QUEUED]):
        job = queue[WHO, k]
        if queue[WANTS, k] > pool[0] or job < seen or job == blocked or fate[START, job] >= 0:
            continue
        # What was found out about a shape settles most jobs without a call.
        shape, units = given[SHAPE, job], given[UNITS, job]
        if known[shape] == at[CHANGES] and rooms[shape] < units:
            continue
        outlives = at[SHADOW] >= 0 and now + fate[EXPECTED, job] > at[SHADOW]
        if outlives and misfit[1, shape] == at[DISPATCHES] and units >= misfit[0, shape]:
            continue
        _start_beside(at, given, fate, run, nodes, job, ended, best_fit)
