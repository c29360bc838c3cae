"""Dispatching on nodes with several resources inside a compiled replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BACKFILLED,
    BY_SERIAL,
    COUNT,
    DUE,
    DUE_OF,
    EXPECTED,
    FIRST,
    IN_TURN,
    JOB,
    KIND,
    LIMIT,
    NEED,
    RUNTIME,
    SHAPE,
    START,
    UNITS,
    WANTS,
    WHO,
    Rule,
    State,
)
from cpdispatch.compiled.queue import is_late
from cpdispatch.compiled.running import begin_until, lasts, leave, place_of, run_until
from cpdispatch.compiled.test_runs import (
    BEGAN,
    MOVED,
    TESTING,
    Trials,
    choose,
    due_of,
    expect_ends,
    is_tested_in_turn,
    may_be_tested,
    test,
)
from cpdispatch.heuristics.kernels import LEFT, place, pool_has, room

_WAITING, _LEAST, _LONGEST = 2, 3, 4
_BITS = 40
"""Bits for the duration in what a queue holds of a job, see `wanted`."""
_ENDLESS = (1 << _BITS) - 1
"""This duration there marks a job that has started."""
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
    ahead_pool: IntArray
    """The same summed over the nodes."""
    ahead_room: IntArray
    """Units of it that fit there on each node."""
    kept: IntArray
    """Units of it that it will have on each node."""
    both: IntArray
    """What is free now and, beside that job, at its shadow time: the elementwise minimum."""
    both_pool: IntArray
    """No less than its sum over the nodes."""
    some: IntArray
    """How many nodes, and which, were of use to any job when ``both`` was made."""
    beside: IntArray
    """Units of each shape that fit ``both``, and after which change of it they were counted."""
    common: int
    """A type of resource that every job asks for, -1 if there is none."""
    kinds: IntArray
    """Shape and units of each kind of jobs, how many of it wait, a lower bound on their expected
    durations, and how long one of it may take to start in this dispatch, -1 if none may; shape
    (5, kinds)."""
    spare: IntArray
    """What a long job leaves free of the whole system when it starts, shape (resources,)."""
    most_beside: IntArray
    """What a job that leaves this free asks for at most, shape (resources,)."""


def nodes_of(
    capacity: IntArray, asks: IntArray, kinds: IntArray, entries: int, spare: IntArray
) -> Nodes:
    """An empty system; of room for entries and shapes only what is used costs memory."""
    shapes, count = len(asks), len(capacity)
    most = np.zeros(shapes, dtype=np.int64)
    np.maximum.at(most, kinds[0], kinds[1])
    entry: Any = np.int32 if most.max(initial=0) <= _INT32_MAX else np.int64
    common = np.flatnonzero((asks > 0).all(axis=0))
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
        np.empty(capacity.shape[1], dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.empty_like(capacity),
        np.empty(capacity.shape[1], dtype=np.int64),
        np.empty(count + 1, dtype=np.int64),
        np.full((2, shapes), -1, dtype=np.int64),
        int(common[0]) if len(common) else -1,
        np.concatenate((kinds, np.zeros((3, kinds.shape[1]), dtype=np.int64))),
        spare,
        capacity.sum(axis=0) - spare,
    )


@inlined
def wanted(kind: int, duration: int) -> int:
    """What a queue holds of a waiting job: its kind and how long it lasts, in one number."""
    return (kind << _BITS) | min(duration, _ENDLESS - 1)


def wanted_all(kind: IntArray, duration: IntArray) -> IntArray:
    """The same of many jobs."""
    return (kind << _BITS) | np.minimum(duration, _ENDLESS - 1)


def count_waiting(nodes: Nodes, kind: IntArray, duration: IntArray) -> None:
    """Count jobs among the waiting ones of their kinds, of which none has waited so far."""
    least = np.full(nodes.kinds.shape[1], _ENDLESS)
    np.minimum.at(least, kind, duration)
    nodes.kinds[_LEAST] = least
    nodes.kinds[_WAITING] = np.bincount(kind, minlength=nodes.kinds.shape[1])


@inlined
def wait(nodes: Nodes, kind: int, duration: int) -> None:
    """Count a job that takes so long among the waiting ones of its kind."""
    kinds = nodes.kinds
    if kinds[_WAITING, kind] == 0 or duration < kinds[_LEAST, kind]:
        kinds[_LEAST, kind] = duration
    kinds[_WAITING, kind] += 1


@inlined
def waits_no_more(nodes: Nodes, kind: int) -> None:
    """Count a job no longer among the waiting ones of its kind."""
    nodes.kinds[_WAITING, kind] -= 1


@kernel
def take_anew(
    state: State, given: IntArray, fate: IntArray, caution: Any, nodes: Nodes, trials: Any,
    queue: IntArray, size: int,
) -> None:  # fmt: skip
    """Note anew how long the waiting jobs of a queue take from now on."""
    kinds = nodes.kinds
    for k in range(size):
        job = queue[WHO, k]
        if fate[START, job] < 0:
            kind, duration = given[KIND, job], due_of(state, fate, caution, trials, job) - state.now
            queue[WANTS, k] = wanted(kind, max(duration, 1))
            kinds[_LEAST, kind] = min(kinds[_LEAST, kind], max(duration, 1))


@inlined
def give_back(
    state: State, fate: IntArray, given: IntArray, nodes: Nodes, job: int, sign: int
) -> None:
    """Give back (sign 1) or take (sign -1) what a job holds."""
    free, node, units, log = nodes.free, nodes.node, nodes.units, nodes.log
    ask, pool = nodes.asks[given[SHAPE, job]], nodes.pool
    low = fate[FIRST, job]
    for e in range(low, low + fate[COUNT, job]):
        log[state.node_changes & (_LOG - 1)] = node[e]
        state.node_changes += 1
        for r in range(ask.shape[0]):
            free[node[e], r] += sign * units[e] * ask[r]
    for r in range(ask.shape[0]):
        pool[r] += sign * given[UNITS, job] * ask[r]


@kernel
def _count_rooms(
    state: State, free: IntArray, row: IntArray, rooms: IntArray, known: IntArray, log: IntArray,
    ask: IntArray, most: int, shape: int,
) -> None:  # fmt: skip
    """Count how many units of a shape fit what is free: only nodes that changed are looked at."""
    total, changes, since = rooms[shape], state.node_changes, known[shape]
    if since < 0 or changes - since > min(_LOG, row.shape[0]):
        total = 0
        for node in range(row.shape[0]):
            row[node] = room(free, node, ask, most)
            total += row[node]
    else:
        for k in range(since, changes):
            node = log[k & (_LOG - 1)]
            here = room(free, node, ask, most)
            total += here - row[node]
            row[node] = here
    rooms[shape], known[shape] = total, changes


@inlined
def rooms_of(state: State, nodes: Nodes, shape: int) -> int:
    """How many units of a shape fit what is free."""
    if nodes.known[shape] != state.node_changes:
        _count_rooms(
            state, nodes.free, nodes.room[shape], nodes.rooms, nodes.known, nodes.log,
            nodes.asks[shape], nodes.most[shape], shape,
        )  # fmt: skip
    return int(nodes.rooms[shape])


@inlined
def _look_ahead(
    state: State, fate: IntArray, given: IntArray, nodes: Nodes, job: int, sign: int
) -> None:
    """Give back or take what a job holds of the capacity at the shadow time."""
    ahead, row, node, units = nodes.ahead, nodes.ahead_room, nodes.node, nodes.units
    shape = given[SHAPE, state.ahead_job]
    asks, wanted, most = nodes.asks, nodes.asks[shape], nodes.most[shape]
    low = fate[FIRST, job]
    for r in range(asks.shape[1]):
        nodes.ahead_pool[r] += sign * given[UNITS, job] * asks[given[SHAPE, job], r]
    for e in range(low, low + fate[COUNT, job]):
        for r in range(asks.shape[1]):
            ahead[node[e], r] += sign * units[e] * asks[given[SHAPE, job], r]
        here = room(ahead, node[e], wanted, most)
        state.ahead_rooms += here - row[node[e]]
        row[node[e]] = here


@inlined
def end(state: State, fate: IntArray, given: IntArray, nodes: Nodes, job: int) -> None:
    """Give back what a job that has ended held."""
    give_back(state, fate, given, nodes, job, 1)
    if state.ahead_job >= 0 and fate[DUE_OF, job] >= state.shadow_time:
        state.shadow_may_be_sooner = True
        if fate[DUE_OF, job] > state.shadow_time:
            _look_ahead(state, fate, given, nodes, job, 1)


@inlined
def lend(
    state: State, fate: IntArray, given: IntArray, run: IntArray, nodes: Nodes, ended: int,
    sign: int,
) -> None:  # fmt: skip
    """Count the jobs that end now as ended, for one dispatch."""
    for k in range(ended):
        give_back(state, fate, given, nodes, run[JOB, k], sign)


@inlined
def job_fits(state: State, given: IntArray, nodes: Nodes, job: int) -> bool:
    """Whether a job fits what is free."""
    return given[NEED, job] <= nodes.pool[0] and bool(
        rooms_of(state, nodes, given[SHAPE, job]) >= given[UNITS, job]
    )


@inlined
def leaves_room(
    state: State, given: IntArray, fate: IntArray, caution: Any, nodes: Nodes, pool: IntArray,
    job: int,
) -> bool:  # fmt: skip
    """Whether a job leaves free what it has to, where so much is free of the whole system."""
    if caution is None:
        return True
    if not caution.keeps_free:
        return True
    ask, units = nodes.asks[given[SHAPE, job]], given[UNITS, job]
    has_to = fate[EXPECTED, job] > caution.long_s
    has_to = has_to and not is_late(given, job, state.now, caution.patience)
    enough = True
    for r in range(ask.shape[0]):
        has_to = has_to and units * ask[r] <= nodes.most_beside[r]
        enough = enough and (ask[r] == 0 or units * ask[r] + nodes.spare[r] <= pool[r])
    return enough or not has_to


@inlined
def settle(
    state: State, given: IntArray, fate: IntArray, run: IntArray, nodes: Any, trials: Any,
    serial: int,
) -> None:  # fmt: skip
    """Take the jobs that have just started, from a serial number on, to end as requested.

    Tests end after their length.
    """
    for number in range(serial, state.next_serial):
        job = run[BY_SERIAL, number]
        if trials is not None:  # noqa: SIM102 - numba drops only what stands alone
            if trials.of[TESTING, job]:
                continue
        before, due = fate[DUE_OF, job], fate[START, job] + fate[LIMIT, job]
        if due > before:
            leave(run, state.running, place_of(run, state.running, job, before))
            run_until(run, fate, state.running - 1, job, given[NEED, job], due)
            if nodes is not None and state.ahead_job >= 0 and before <= state.shadow_time < due:
                _look_ahead(state, fate, given, nodes, job, -1)


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


@inlined
def _put(
    state: State, given: IntArray, fate: IntArray, nodes: Nodes, outlives: bool, job: int,
    best_fit: bool,
) -> None:  # fmt: skip
    """Take nodes for a job that fits ``free``, or if it outlives the shadow time ``both``."""
    low, shape, units = state.entries, given[SHAPE, job], given[UNITS, job]
    node, many = nodes.node[low:], nodes.units[low:]
    if outlives or best_fit:
        usable = nodes.both if outlives else nodes.free
        count = place(usable, nodes.capacity, nodes.asks[shape], units, best_fit, node, many)
    else:
        count = first_fit(nodes.room[shape], units, node, many)
    fate[FIRST, job], fate[COUNT, job] = low, count
    state.entries = low + count


@inlined
def _is_home_free(
    usable: IntArray, given: IntArray, fate: IntArray, nodes: Nodes, trials: Trials, job: int
) -> bool:
    """Whether a job has just been stopped and can go on where it is."""
    if trials.of[BEGAN, job] < 0:
        return False
    ask, low = nodes.asks[given[SHAPE, job]], fate[FIRST, job]
    for e in range(low, low + fate[COUNT, job]):
        for r in range(ask.shape[0]):
            if nodes.units[e] * ask[r] > usable[nodes.node[e], r]:
                return False
    return True


@kernel
def begin_on(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, nodes: Nodes,
    trials: Any, outlives: bool, job: int, reason: int, best_fit: bool, testing: bool,
) -> None:  # fmt: skip
    """Start a job, or its test, that fits ``free``, or if it outlives the shadow time ``both``.

    One that has just been stopped goes on where it is, if it can go on there.
    """
    since, due = state.now, state.now + lasts(state, fate, caution, job)
    stays = False
    if trials is not None:
        usable = nodes.both if outlives else nodes.free
        stays = _is_home_free(usable, given, fate, nodes, trials, job)
        if stays:
            since = trials.of[BEGAN, job]
            due = max(since + lasts(state, fate, caution, job), state.now + 1)
        elif testing:
            due = state.now + trials.state.length_s + trials.state.restart_cost_s
        elif trials.of[BEGAN, job] >= 0:
            trials.of[MOVED, job] = 1
    if not stays:
        _put(state, given, fate, nodes, outlives, job, best_fit)
    waits_no_more(nodes, given[KIND, job])
    give_back(state, fate, given, nodes, job, -1)
    if state.ahead_job >= 0 and due > state.shadow_time:
        _look_ahead(state, fate, given, nodes, job, -1)
    end = since + given[RUNTIME, job]
    if trials is None:
        begin_until(state, given, fate, run, job, reason, due, end)
    elif testing:
        test(state, given, fate, run, trials, job, reason)
    else:
        begin_until(state, given, fate, run, job, reason, due, end)


@inlined
def start_in_turn(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, first: IntArray,
    nodes: Nodes, trials: Any, best_fit: bool,
) -> None:  # fmt: skip
    """Start jobs in the primary order until one does not fit: the head."""
    while state.primary.head < state.primary.tail:
        job = first[WHO, state.primary.head]
        if fate[START, job] < 0:
            testing = is_tested_in_turn(trials, job)
            if not starts_in_turn(
                state, given, fate, run, caution, nodes, trials, job, best_fit, testing
            ):
                break
        state.primary.head += 1


@inlined
def starts_in_turn(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, nodes: Nodes,
    trials: Any, job: int, best_fit: bool, testing: bool,
) -> bool:  # fmt: skip
    """Start a job whose turn it is, or its test, if it fits; whether it does."""
    fits = job_fits(state, given, nodes, job)
    if fits and not testing:
        fits = leaves_room(state, given, fate, caution, nodes, nodes.pool, job)
    if fits:
        begin_on(
            state, given, fate, run, caution, nodes, trials, False, job, IN_TURN, best_fit, testing
        )  # fmt: skip
        state.blocked = -1
    return bool(fits)


@inlined
def _fits_ahead(
    state: State, given: IntArray, fate: IntArray, caution: Any, nodes: Nodes, job: int
) -> bool:
    """Whether the job that is blocked may start at the shadow time."""
    fits = state.ahead_rooms >= given[UNITS, job]
    return bool(fits) and leaves_room(state, given, fate, caution, nodes, nodes.ahead_pool, job)


@kernel
def _reserve(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, nodes: Nodes,
    ended: int,
) -> None:  # fmt: skip
    """Bring the shadow time of the job that is blocked up to date.

    The capacity at that time changes only by jobs that outlive it, so it is kept from dispatch to
    dispatch, and the time is moved from where it was: back only if something was given back by
    a job that was expected to end then or later.
    """
    state.shadow_time_known, state.both_known = True, False
    job = state.blocked
    if state.ahead_job != job:
        shape = given[SHAPE, job]
        state.ahead_job, state.shadow_time, state.shadow_may_be_sooner = job, state.now, False
        state.ahead_rooms = rooms_of(state, nodes, shape)
        for node in range(nodes.free.shape[0]):
            nodes.ahead_room[node] = nodes.room[shape, node]
            for r in range(nodes.free.shape[1]):
                nodes.ahead[node, r] = nodes.free[node, r]
        for r in range(nodes.pool.shape[0]):
            nodes.ahead_pool[r] = nodes.pool[r]
    k = int(np.searchsorted(run[DUE, : state.running], state.shadow_time, side="right"))
    while not _fits_ahead(state, given, fate, caution, nodes, job) and k < state.running:
        state.shadow_time, state.shadow_may_be_sooner = run[DUE, k], False
        while k < state.running and run[DUE, k] == state.shadow_time:
            _look_ahead(state, fate, given, nodes, run[JOB, k], 1)
            k += 1
    while state.shadow_may_be_sooner and k > ended:
        due, last = run[DUE, k - 1], k
        fits = True
        while fits and k > ended and run[DUE, k - 1] == due:
            k -= 1
            _look_ahead(state, fate, given, nodes, run[JOB, k], -1)
            fits = _fits_ahead(state, given, fate, caution, nodes, job)
        if not fits:
            state.shadow_time, state.shadow_may_be_sooner = due, False
            for back in range(k, last):
                _look_ahead(state, fate, given, nodes, run[JOB, back], 1)
    state.shadow_may_be_sooner = False


@inlined
def _compare_on(
    free: IntArray, ahead: IntArray, both: IntArray, ask: IntArray, kept: IntArray, here: int
) -> None:
    """What a node has free both now and at the shadow time beside the job that is blocked."""
    for r in range(free.shape[1]):
        both[here, r] = min(free[here, r], ahead[here, r] - kept[here] * ask[r])


@kernel
def _compare(state: State, given: IntArray, nodes: Nodes, best_fit: bool) -> None:
    """What is free both now and beside the job that is blocked, once that starts."""
    free, ahead, both, row = nodes.free, nodes.ahead, nodes.both, nodes.ahead_room
    ask, units = nodes.asks[given[SHAPE, state.blocked]], given[UNITS, state.blocked]
    kept, pool, some, common = nodes.kept, nodes.both_pool, nodes.some, nodes.common
    node, many = np.empty_like(row), np.empty_like(row)
    if best_fit:
        count = place(ahead, nodes.capacity, ask, units, best_fit, node, many)
    else:
        count = first_fit(row, units, node, many)
    state.both_changes += 1
    kept[:] = 0
    for k in range(count):
        kept[node[k]] = many[k]
    both[:] = 0
    pool[:] = some[0] = 0
    for here in range(free.shape[0]):
        if common < 0 or free[here, common] > 0:
            _compare_on(free, ahead, both, ask, kept, here)
            some[0] += 1
            some[some[0]] = here
            for r in range(free.shape[1]):
                pool[r] += both[here, r]


@kernel
def _count_beside(both: IntArray, some: IntArray, ask: IntArray, most: int) -> int:
    """How many units of a shape fit beside the reserved job."""
    total = 0
    for k in range(1, some[0] + 1):
        total += room(both, some[k], ask, most)
    return total


@inlined
def _fits_both(
    state: State, given: IntArray, nodes: Nodes, shape: int, units: int, best_fit: bool
) -> bool:
    """Whether a job that outlives the shadow time fits beside the reserved one."""
    if not state.both_known:
        state.both_known = True
        _compare(state, given, nodes, best_fit)
    beside, ask = nodes.beside, nodes.asks[shape]
    if beside[1, shape] != state.both_changes:
        if not pool_has(nodes.both_pool, ask, units):
            return False
        beside[0, shape] = _count_beside(nodes.both, nodes.some, ask, nodes.most[shape])
        beside[1, shape] = state.both_changes
    return bool(beside[0, shape] >= units)


@kernel
def _open_kinds(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, nodes: Nodes,
    ended: int, best_fit: bool,
) -> int:  # fmt: skip
    """How long a job of each kind may take to start; of how many kinds one may.

    A kind of which none may has no room, or only longer jobs than fit before the shadow time: it
    stays closed for the rest of the dispatch, and is passed over.
    """
    kinds, rooms, known, pool = nodes.kinds, nodes.rooms, nodes.known, nodes.pool
    count = 0
    for kind in range(kinds.shape[1]):
        if kinds[_LONGEST, kind] < 0:
            continue
        kinds[_LONGEST, kind] = -1
        if kinds[_WAITING, kind] == 0:
            continue
        shape, units = kinds[0, kind], kinds[1, kind]
        if known[shape] != state.node_changes:
            if units * nodes.asks[shape, 0] > pool[0]:
                continue
            rooms_of(state, nodes, shape)
        if rooms[shape] < units:
            continue
        if not state.shadow_time_known:
            _reserve(state, given, fate, run, caution, nodes, ended)
        longest = state.shadow_time - state.now
        if _fits_both(state, given, nodes, shape, units, best_fit):
            longest = _ENDLESS
        if longest >= kinds[_LEAST, kind]:
            kinds[_LONGEST, kind] = min(longest, _ENDLESS - 1)
            count += 1
    return count


@kernel
def _next(queue: IntArray, longest: IntArray, k: int, size: int) -> int:
    """Where in a queue, from a place on, the next job is that may start."""
    while k < size:
        wants = queue[WANTS, k]
        if wants & _ENDLESS <= longest[wants >> _BITS]:
            break
        k += 1
    return k


@kernel
def _note_least(queue: IntArray, kinds: IntArray, low: int, size: int) -> None:
    """Note the least expected duration of the open kinds."""
    for kind in range(kinds.shape[1]):
        if kinds[_LONGEST, kind] >= 0:
            kinds[_LEAST, kind] = _ENDLESS
    for k in range(low, size):
        kind, expected = queue[WANTS, k] >> _BITS, queue[WANTS, k] & _ENDLESS
        if kinds[_LONGEST, kind] >= 0 and expected < kinds[_LEAST, kind]:
            kinds[_LEAST, kind] = expected


@kernel
def _start_beside(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, nodes: Nodes,
    trials: Any, job: int, ended: int, best_fit: bool, testing: bool,
) -> None:  # fmt: skip
    """Start a job, or its test, that fits now if it does not delay the one that is blocked."""
    shape, units = given[SHAPE, job], given[UNITS, job]
    if rooms_of(state, nodes, shape) < units:
        return
    if not testing and not leaves_room(state, given, fate, caution, nodes, nodes.pool, job):
        return
    if not state.shadow_time_known:
        _reserve(state, given, fate, run, caution, nodes, ended)
    due = state.now + lasts(state, fate, caution, job)
    if trials is not None:
        if testing:
            due = state.now + trials.state.length_s + trials.state.restart_cost_s
        elif _is_home_free(nodes.free, given, fate, nodes, trials, job):
            due = due_of(state, fate, caution, trials, job)
    outlives = due > state.shadow_time
    if outlives and not _fits_both(state, given, nodes, shape, units, best_fit):
        return
    begin_on(
        state, given, fate, run, caution, nodes, trials, outlives, job, BACKFILLED, best_fit,
        testing
    )  # fmt: skip
    if state.both_known:
        state.both_changes += 1
        ask = nodes.asks[given[SHAPE, state.blocked]]
        for e in range(fate[FIRST, job], state.entries):
            _compare_on(nodes.free, nodes.ahead, nodes.both, ask, nodes.kept, nodes.node[e])


@kernel
def backfill(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, queue: IntArray,
    nodes: Nodes, low: int, size: int, blocked: int, ended: int, best_fit: bool,
) -> None:  # fmt: skip
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch and the same job is blocked, those
    that could not start then cannot now: a single one submitted since is looked at alone.
    """
    if state.blocked == blocked and ended == 0:
        if state.submitted == state.submitted_before + 1:
            if fate[START, state.submitted_before] < 0:  # else it is behind a gate
                _start_beside(
                    state, given, fate, run, caution, nodes, None, state.submitted_before, ended,
                    best_fit, False
                )  # fmt: skip
            return
    else:
        state.blocked, state.shadow_time_known = blocked, False
    _backfill_all(state, given, fate, run, caution, queue, nodes, None, low, size, ended, best_fit)


@kernel
def _backfill_all(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, queue: IntArray,
    nodes: Nodes, trials: Any, low: int, size: int, ended: int, best_fit: bool,
) -> None:  # fmt: skip
    """Go through the kinds of jobs that have room as long as there are some."""
    kinds, longest = nodes.kinds, nodes.kinds[_LONGEST]
    longest[:] = 0
    left, k = _open_kinds(state, given, fate, run, caution, nodes, ended, best_fit), low
    while left > 0:
        k = _next(queue, longest, k, size)
        if k == size:
            _note_least(queue, kinds, low, size)
            return
        job = queue[WHO, k]
        if fate[START, job] < 0 and job != state.blocked:
            _start_beside(
                state, given, fate, run, caution, nodes, trials, job, ended, best_fit, False
            )
            left = _open_kinds(state, given, fate, run, caution, nodes, ended, best_fit)
        if fate[START, job] >= 0:
            queue[WANTS, k] |= _ENDLESS
        k += 1


@kernel
def backfill_and_test(
    state: State, given: IntArray, fate: IntArray, run: IntArray, caution: Any, trials: Trials,
    first: IntArray, queue: IntArray, nodes: Nodes, low: int, size: int, blocked: int,
    best_fit: bool, rule: Rule,
) -> None:  # fmt: skip
    """Backfill, and test jobs where they do not delay the one that is blocked.

    A single job that has been submitted is looked at alone where `backfill` does so, if besides no
    test is expected to end at another time.
    """
    changed = expect_ends(state, given, fate, run, caution, trials, rule, blocked)
    alone = -1
    if changed or state.blocked != blocked:
        state.blocked, state.shadow_time_known, state.ahead_job = blocked, False, -1
    elif state.submitted == state.submitted_before + 1:
        alone = state.submitted_before
    for testing in (trials.state.way != LEFT, trials.state.way == LEFT):
        if alone >= 0:
            if testing and not may_be_tested(state, given, fate, trials, alone, rule):
                continue
            if fate[START, alone] < 0:
                _start_beside(
                    state, given, fate, run, caution, nodes, trials, alone, 0, best_fit, testing
                )  # fmt: skip
        elif testing:
            room = nodes.pool[0]
            for k in range(choose(state, given, fate, first, nodes, trials, blocked, room, rule)):
                job = trials.chosen[k]
                _start_beside(
                    state, given, fate, run, caution, nodes, trials, job, 0, best_fit, True
                )
        else:
            _backfill_all(
                state, given, fate, run, caution, queue, nodes, trials, low, size, 0, best_fit
            )  # fmt: skip
