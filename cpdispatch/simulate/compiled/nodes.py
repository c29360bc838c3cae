"""Dispatching on nodes with several resources inside a compiled replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import kernel
from cpdispatch.heuristics.kernels import change, fits, place, pool_has, room
from cpdispatch.simulate.compiled.layout import (
    AHEAD_JOB,
    AHEAD_ROOMS,
    BACKFILLED,
    BLOCKED,
    CHANGES,
    COMPARED,
    COUNT,
    DISPATCHES,
    DUE,
    DUE_OF,
    ENTRIES,
    EXPECTED,
    FIRST,
    FIRST_SIZE,
    HEAD,
    IN_TURN,
    JOB,
    KIND,
    NEED,
    NEVER,
    NEXT,
    NOW,
    RESERVED,
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

_WAITING, _LEAST, _OPEN = 2, 3, 4
_INT32_MAX = int(np.iinfo(np.int32).max)
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
    most: IntArray
    """The most units that a job of each shape has."""
    node: IntArray
    units: IntArray
    """Entries of placements in the order of the starts: of int32, where the largest job allows."""
    log: IntArray
    """Nodes whose free capacity changed last: a ring."""
    room: IntArray
    """Units of each shape that fit on each node, shape (shapes, nodes)."""
    rooms: IntArray
    """The same summed over the nodes."""
    known: IntArray
    """Changes that these two rows of a shape take in, -1 before they are first needed."""
    ahead: IntArray
    """What is free at the shadow time of the job that is blocked."""
    ahead_room: IntArray
    """Units of it that fit there on each node."""
    later: IntArray
    """The same capacity without what that job will take."""
    both: IntArray
    """The elementwise minimum of ``free`` and ``later``."""
    both_pool: IntArray
    """No less than its sum over the nodes."""
    some: IntArray
    """How many nodes, and which, had any of the first resource when ``both`` was made."""
    misfit: IntArray
    """Fewest units of each shape that are known not to fit ``both``, and at which dispatch."""
    kinds: IntArray
    """Shape and units of each kind of jobs, how many of it wait, a lower bound on their expected
    durations, and whether one of it may start in this dispatch; shape (5, kinds)."""


def nodes_of(capacity: IntArray, asks: IntArray, kinds: IntArray, entries: int) -> Nodes:
    """An empty system; of room for entries and shapes only what is used costs memory."""
    shapes, count = len(asks), len(capacity)
    most = np.zeros(shapes, dtype=np.int64)
    np.maximum.at(most, kinds[0], kinds[1])
    entry: Any = np.int32 if most.max(initial=0) <= _INT32_MAX else np.int64
    return Nodes(
        capacity,
        capacity.copy(),
        capacity.sum(axis=0),
        asks,
        most,
        np.empty(entries, dtype=entry),
        np.empty(entries, dtype=entry),
        np.empty(_LOG, dtype=np.int64),
        np.empty((shapes, count), dtype=np.int64),
        np.zeros(shapes, dtype=np.int64),
        np.full(shapes, -1, dtype=np.int64),
        np.empty_like(capacity),
        np.empty(count, dtype=np.int64),
        np.empty_like(capacity),
        np.empty_like(capacity),
        np.empty(capacity.shape[1], dtype=np.int64),
        np.empty(count + 1, dtype=np.int64),
        np.full((2, shapes), -1, dtype=np.int64),
        np.concatenate((kinds, np.zeros((3, kinds.shape[1]), dtype=np.int64))),
    )


@kernel
def wait(given: IntArray, fate: IntArray, nodes: Nodes, job: int) -> None:
    """Count a job that has been submitted among the waiting ones of its kind."""
    kinds, kind, expected = nodes.kinds, given[KIND, job], fate[EXPECTED, job]
    if kinds[_WAITING, kind] == 0 or expected < kinds[_LEAST, kind]:
        kinds[_LEAST, kind] = expected
    kinds[_WAITING, kind] += 1


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
    total, changes, most = nodes.rooms[shape], at[CHANGES], nodes.most[shape]
    since = nodes.known[shape]
    if since < 0 or changes - since > min(_LOG, row.shape[0]):
        total = 0
        for node in range(row.shape[0]):
            row[node] = room(free, node, ask, most)
            total += row[node]
    else:
        log = nodes.log
        for k in range(since, changes):
            node = log[k & (_LOG - 1)]
            here = room(free, node, ask, most)
            total += here - row[node]
            row[node] = here
    nodes.rooms[shape], nodes.known[shape] = total, changes
    return int(total)


@kernel
def _look_ahead(
    at: IntArray, fate: IntArray, given: IntArray, nodes: Nodes, job: int, sign: int
) -> None:
    """Give back or take what a job holds of the capacity at the shadow time."""
    ahead, row, node, units = nodes.ahead, nodes.ahead_room, nodes.node, nodes.units
    shape = given[SHAPE, at[AHEAD_JOB]]
    ask, wanted, most = nodes.asks[given[SHAPE, job]], nodes.asks[shape], nodes.most[shape]
    low = fate[FIRST, job]
    for e in range(low, low + fate[COUNT, job]):
        for r in range(ask.shape[0]):
            ahead[node[e], r] += sign * units[e] * ask[r]
        here = room(ahead, node[e], wanted, most)
        at[AHEAD_ROOMS] += here - row[node[e]]
        row[node[e]] = here


@kernel
def end(at: IntArray, fate: IntArray, given: IntArray, nodes: Nodes, job: int) -> None:
    """Give back what a job that has ended held."""
    give_back(at, fate, given, nodes, job, 1)
    if at[AHEAD_JOB] >= 0 and fate[DUE_OF, job] > at[SHADOW]:
        _look_ahead(at, fate, given, nodes, job, 1)


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
    nodes.kinds[_WAITING, given[KIND, job]] -= 1
    give_back(at, fate, given, nodes, job, -1)
    if at[AHEAD_JOB] >= 0 and at[NOW] + fate[EXPECTED, job] > at[SHADOW]:
        _look_ahead(at, fate, given, nodes, job, -1)
    begin(at, given, fate, run, job, reason)


@kernel
def start_in_turn(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, first: IntArray, nodes: Nodes,
    best_fit: bool,
) -> None:  # fmt: skip
    """Start jobs in the primary order until one does not fit: the head."""
    while at[HEAD] < at[FIRST_SIZE]:
        job = first[WHO, at[HEAD]]
        if fate[START, job] < 0:
            if not job_fits(at, given, nodes, job):
                break
            begin_on(at, given, fate, run, nodes, False, job, IN_TURN, best_fit)
            at[BLOCKED] = -1
        at[HEAD] += 1


@kernel
def _reserve_anew(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes, ended: int
) -> None:
    """Find the shadow time of the job that is blocked from what is free now on."""
    job = at[BLOCKED]
    shape, units = given[SHAPE, job], given[UNITS, job]
    ahead, row, ask, pool = nodes.ahead, nodes.ahead_room, nodes.asks[shape], nodes.pool.copy()
    node, many = nodes.node, nodes.units
    ahead[:] = nodes.free
    at[AHEAD_JOB], k = job, ended
    while k < at[RUNNING] and not pool_has(pool, ask, units):
        at[SHADOW] = run[DUE, k]
        while k < at[RUNNING] and run[DUE, k] == at[SHADOW]:
            other = run[JOB, k]
            held = nodes.asks[given[SHAPE, other]]
            low, high = fate[FIRST, other], fate[FIRST, other] + fate[COUNT, other]
            change(ahead, held, node[low:high], many[low:high], 1)
            pool += given[UNITS, other] * held
            k += 1
    at[AHEAD_ROOMS] = 0
    for here in range(row.shape[0]):
        row[here] = room(ahead, here, ask, nodes.most[shape])
        at[AHEAD_ROOMS] += row[here]


@kernel
def _reserve(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes, ended: int
) -> None:
    """Bring the shadow time of the job that is blocked up to date.

    The capacity at that time changes only by jobs that outlive it, so it is kept from dispatch to
    dispatch, and the time is moved from where it was.
    """
    if at[RESERVED]:
        return
    at[RESERVED], at[COMPARED] = 1, 0
    if at[AHEAD_JOB] != at[BLOCKED]:
        at[SHADOW] = at[NOW]
        _reserve_anew(at, given, fate, run, nodes, ended)
    units = given[UNITS, at[BLOCKED]]
    k = int(np.searchsorted(run[DUE, : at[RUNNING]], at[SHADOW], side="right"))
    while at[AHEAD_ROOMS] < units and k < at[RUNNING]:
        at[SHADOW] = run[DUE, k]
        while k < at[RUNNING] and run[DUE, k] == at[SHADOW]:
            _look_ahead(at, fate, given, nodes, run[JOB, k], 1)
            k += 1
    while k > ended:
        due, last = run[DUE, k - 1], k
        while k > ended and run[DUE, k - 1] == due:
            k -= 1
            _look_ahead(at, fate, given, nodes, run[JOB, k], -1)
        if at[AHEAD_ROOMS] < units:
            at[SHADOW] = due
            for back in range(k, last):
                _look_ahead(at, fate, given, nodes, run[JOB, back], 1)
            return


@kernel
def _compare(at: IntArray, given: IntArray, nodes: Nodes, best_fit: bool) -> None:
    """What is free both now and beside the job that is blocked, once that starts."""
    free, later, both, row = nodes.free, nodes.later, nodes.both, nodes.ahead_room
    shape, units = given[SHAPE, at[BLOCKED]], given[UNITS, at[BLOCKED]]
    node, many = np.empty_like(row), np.empty_like(row)
    if best_fit:
        ask = nodes.asks[shape]
        count = place(nodes.ahead, nodes.capacity, ask, units, best_fit, node, many)
    else:
        count = first_fit(row, units, node, many)
    later[:] = nodes.ahead
    change(later, nodes.asks[shape], node[:count], many[:count], -1)
    pool, some = nodes.both_pool, nodes.some
    pool[:] = some[0] = 0
    for here in range(free.shape[0]):
        for r in range(free.shape[1]):
            both[here, r] = min(free[here, r], later[here, r])
            pool[r] += both[here, r]
        if both[here, 0] > 0:
            some[0] += 1
            some[some[0]] = here


@kernel
def _fits_both(
    at: IntArray, given: IntArray, nodes: Nodes, shape: int, units: int, best_fit: bool
) -> bool:
    """Whether a job that outlives the shadow time fits beside the reserved one."""
    if not at[COMPARED]:
        at[COMPARED] = 1
        _compare(at, given, nodes, best_fit)
    misfit = nodes.misfit
    if misfit[1, shape] == at[DISPATCHES] and units >= misfit[0, shape]:
        return False
    ask = nodes.asks[shape]
    if pool_has(nodes.both_pool, ask, units):
        if ask[0] == 0:
            if fits(nodes.both, ask, units):
                return True
        else:
            both, some, left = nodes.both, nodes.some, units
            for k in range(1, some[0] + 1):
                left -= room(both, some[k], ask, left)
                if left == 0:
                    return True
    misfit[0, shape], misfit[1, shape] = units, at[DISPATCHES]
    return False


@kernel
def _open_kinds(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes, ended: int,
    best_fit: bool,
) -> int:  # fmt: skip
    """Mark the kinds of which a job may start; how many jobs of them wait."""
    kinds, rooms, known, pool = nodes.kinds, nodes.rooms, nodes.known, nodes.pool
    jobs = 0
    for kind in range(kinds.shape[1]):
        kinds[_OPEN, kind] = 0
        if kinds[_WAITING, kind] == 0:
            continue
        shape, units = kinds[0, kind], kinds[1, kind]
        if known[shape] != at[CHANGES]:
            if units * nodes.asks[shape, 0] > pool[0]:
                continue
            rooms_of(at, nodes, shape)
        if rooms[shape] < units:
            continue
        _reserve(at, given, fate, run, nodes, ended)
        in_time = at[NOW] + kinds[_LEAST, kind] <= at[SHADOW]
        if in_time or _fits_both(at, given, nodes, shape, units, best_fit):
            kinds[_OPEN, kind] = 1
            jobs += kinds[_WAITING, kind]
    return jobs


@kernel
def _start_beside(
    at: IntArray, given: IntArray, fate: IntArray, run: IntArray, nodes: Nodes,
    job: int, ended: int, best_fit: bool,
) -> None:  # fmt: skip
    """Start a job that fits now if it does not delay the one that is blocked."""
    shape, units = given[SHAPE, job], given[UNITS, job]
    if rooms_of(at, nodes, shape) < units:
        return
    _reserve(at, given, fate, run, nodes, ended)
    outlives = at[NOW] + fate[EXPECTED, job] > at[SHADOW]
    if outlives and not _fits_both(at, given, nodes, shape, units, best_fit):
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
    size: int, blocked: int, ended: int, best_fit: bool,
) -> None:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch and the same job is blocked, those
    that could not start then cannot now: a single one submitted since is looked at alone.
    """
    if at[BLOCKED] == blocked and ended == 0:
        if at[NEXT] == at[SEEN] + 1:
            _start_beside(at, given, fate, run, nodes, at[SEEN], ended, best_fit)
            return
    else:
        at[BLOCKED], at[RESERVED] = blocked, 0
    left = _open_kinds(at, given, fate, run, nodes, ended, best_fit)
    kinds, rooms, known, misfit = nodes.kinds, nodes.rooms, nodes.known, nodes.misfit
    for kind in range(kinds.shape[1] if left > 0 else 0):
        if kinds[_OPEN, kind]:
            kinds[_LEAST, kind] = NEVER
    for k in range(size if left > 0 else 0):
        kind = queue[WANTS, k]
        if not kinds[_OPEN, kind]:
            continue
        job = queue[WHO, k]
        if fate[START, job] >= 0:
            continue
        left -= 1
        expected = fate[EXPECTED, job]
        kinds[_LEAST, kind] = min(kinds[_LEAST, kind], expected)
        # What was found out about a shape settles most jobs without a call.
        shape, units = kinds[0, kind], kinds[1, kind]
        full = known[shape] == at[CHANGES] and rooms[shape] < units
        outlives = at[NOW] + expected > at[SHADOW]
        if outlives and misfit[1, shape] == at[DISPATCHES] and units >= misfit[0, shape]:
            full = True
        if job != blocked and not full:
            _start_beside(at, given, fate, run, nodes, job, ended, best_fit)
        if left == 0:
            return
