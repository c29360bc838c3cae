"""Dispatching on nodes with several resources inside a compiled replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import inlined, kernel
from cpdispatch.compiled.layout import (
    BACKFILLED,
    BY_SERIAL,
    DEMAND,
    DUE,
    DURATION_BITS,
    ENTRIES,
    EXPECTED,
    EXPECTED_END,
    FIRST_ENTRY,
    IN_TURN,
    JOB,
    KIND,
    LIMIT,
    NEED,
    NEVER,
    RUNTIME,
    SHAPE,
    START,
    UNITS,
    Queue,
    State,
    Tables,
)
from cpdispatch.compiled.queue import is_late
from cpdispatch.compiled.running import begin_until, expect_end, lasts
from cpdispatch.compiled.test_runs import (
    MOVED,
    STOPPED_START,
    TESTED,
    TESTING,
    Tests,
    due_of,
    due_under_test,
    is_past_tests,
    is_tested_in_turn,
    leave_line,
    line_up_newcomers,
    may_be_tested,
    test,
)
from cpdispatch.heuristics.easy import LEFT
from cpdispatch.heuristics.kernels import (
    asks_once,
    in_all,
    place,
    pool_has,
    room,
    room_on_first,
    rooms_with_first,
)

_SHAPE, _UNITS, _WAITING, _LEAST, _LONGEST, _LISTED = range(6)
"""Rows of `Nodes.kinds`."""
_ENDLESS = (1 << DURATION_BITS) - 1
"""This duration in what a queue holds of a job, see `demand_of`, marks one that has started."""
_INT32_MAX = int(np.iinfo(np.int32).max)
_LOG = 1 << 12
"""Changes of nodes that are remembered, a power of two."""


class Nodes(NamedTuple):
    """What a replay on nodes keeps beside its `State`."""

    capacity: IntArray
    """Shape (nodes, resources). Constant."""
    counted: IntArray
    """See `cpdispatch.system.System`. Constant."""
    free: IntArray
    """What is free on each node, shape (nodes, resources). `give_back` alone writes it, at each
    start and each end; a dispatch lends the jobs that end now as expected, see `lend`."""
    pool: IntArray
    """The sum of ``free`` over the nodes, shape (resources,)."""
    asks: IntArray
    """Requests of a unit, and after them what is taken once if jobs do that, see
    `cpdispatch.heuristics.kernels`; shape (shapes, resources or twice as many). Constant."""
    most: IntArray
    """The most units that a job of each shape has. Constant."""
    node: IntArray
    units: IntArray
    """Entries of placements in the order of the starts, ``state.entries`` of them: which node, and
    how many units there. Those of ended jobs stay. int32, where the largest job allows it."""
    log: IntArray
    """The nodes whose free capacity changed last: a ring, into which ``state.node_changes``
    points."""
    room: IntArray
    """Units of each shape that fit on each node, shape (shapes, nodes). Up to date once `rooms_of`
    has been asked for the shape."""
    rooms: IntArray
    """The sum of ``room`` over the nodes, shape (shapes,). Less than that where something is taken
    once: see `rooms_with_first`."""
    lost: IntArray
    """How many units of each shape fewer fit on each node if it is the first one, `NEVER` if it
    cannot be that; shape (shapes, nodes), or (0, nodes) where nothing is taken once."""
    sums: IntArray
    """The sum of ``room``, and the least of ``lost``, of each shape, shape (2, shapes). Up to date
    with ``rooms``, where something is taken once."""
    known: IntArray
    """How many changes of nodes are taken into ``room`` and ``rooms`` of each shape; -1 before
    they are first needed."""
    ahead: IntArray
    """What is free on each node at the shadow time: what the running jobs leave that are expected
    to end later. Up to date while ``state.ahead_job`` is a job. `_reserve` makes it, and
    `_look_ahead` changes it."""
    ahead_pool: IntArray
    """The sum of ``ahead`` over the nodes."""
    ahead_room: IntArray
    """Units of the job that is blocked that fit ``ahead`` on each node."""
    kept_node: IntArray
    kept_units: IntArray
    """Entries of the placement that the reserved job takes at the shadow time, its first node
    first. Written with ``beside``."""
    kept: IntArray
    """Units of the job that is blocked that are reserved on each node at the shadow time. Written
    with ``beside``."""
    beside: IntArray
    """What is free on each node now and, beside the reserved job, at the shadow time: the
    elementwise minimum, and 0 on nodes that are not among ``beside_nodes``. Up to date if
    ``state.beside_known``. `_compare` makes it, and `_start_beside` changes it."""
    beside_pool: IntArray
    """What ``beside`` summed up to when it was made: an upper bound on its sum since then."""
    beside_nodes: IntArray
    """How many nodes had anything of the ``common`` resource type free when ``beside`` was made,
    and which: all nodes where there is no such type."""
    beside_rooms: IntArray
    """Units of each shape that fit ``beside``, and the value of ``state.beside_changes`` when they
    were counted, shape (2, shapes)."""
    common: int
    """A resource type that every job asks for, -1 if there is none. Constant."""
    kinds: IntArray
    """Of each kind of jobs, shape (6, kinds): its shape and its units (constant); how many of it
    wait; a lower bound on their durations; how long one of it may take to start in this dispatch,
    -1 if none may; where it is in ``waiting``. See `_SHAPE` and what follows it there."""
    waiting: IntArray
    """How many kinds have jobs that wait, and which."""
    open: IntArray
    """How many kinds have jobs that may start in this dispatch, and which, see `_open_kinds`."""
    spare: IntArray
    """What a long job leaves free of the whole system when it starts, shape (resources,).
    Constant."""
    most_sparing: IntArray
    """The most that a job can ask for and leave ``spare`` free, shape (resources,). Constant."""


def nodes_of(
    capacity: IntArray,
    counted: IntArray,
    asks: IntArray,
    kinds: IntArray,
    entries: int,
    spare: IntArray,
) -> Nodes:
    """An empty system; of room for entries and shapes only what is used costs memory."""
    shapes, count = len(asks), len(capacity)
    most = np.zeros(shapes, dtype=np.int64)
    np.maximum.at(most, kinds[_SHAPE], kinds[_UNITS])
    entry: Any = np.int32 if most.max(initial=0) <= _INT32_MAX else np.int64
    common = np.flatnonzero((asks[:, : capacity.shape[1]] > 0).all(axis=0))
    return Nodes(
        capacity,
        counted,
        capacity.copy(),
        capacity.sum(axis=0),
        asks,
        most,
        np.empty(entries, dtype=entry),
        np.empty(entries, dtype=entry),
        np.empty(_LOG, dtype=np.int64),
        np.empty((shapes, count), dtype=np.int64),
        np.zeros(shapes, dtype=np.int64),
        np.empty((shapes * (asks.shape[1] > capacity.shape[1]), count), dtype=np.int64),
        np.zeros((2, shapes), dtype=np.int64),
        np.full(shapes, -1, dtype=np.int64),
        np.empty_like(capacity),
        np.empty(capacity.shape[1], dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.empty(count, dtype=np.int64),
        np.zeros_like(capacity),
        np.empty(capacity.shape[1], dtype=np.int64),
        np.zeros(count + 1, dtype=np.int64),
        np.full((2, shapes), -1, dtype=np.int64),
        int(common[0]) if len(common) else -1,
        np.concatenate((kinds, np.zeros((4, kinds.shape[1]), dtype=np.int64))),
        np.zeros(kinds.shape[1] + 1, dtype=np.int64),
        np.zeros(kinds.shape[1] + 1, dtype=np.int64),
        spare,
        capacity.sum(axis=0) - spare,
    )


@inlined
def demand_of(kind: int, duration: int) -> int:
    """What a queue holds of a waiting job: its kind and how long it lasts, in one number."""
    return (kind << DURATION_BITS) | min(duration, _ENDLESS - 1)


def demands_of(kind: IntArray, duration: IntArray) -> IntArray:
    """The same of many jobs."""
    return (kind << DURATION_BITS) | np.minimum(duration, _ENDLESS - 1)


def count_waiting(nodes: Nodes, kind: IntArray, duration: IntArray) -> None:
    """Count jobs among the waiting ones of their kinds, of which none has waited so far."""
    least = np.full(nodes.kinds.shape[1], _ENDLESS)
    np.minimum.at(least, kind, duration)
    nodes.kinds[_LEAST] = least
    nodes.kinds[_WAITING] = np.bincount(kind, minlength=nodes.kinds.shape[1])
    list_waiting(nodes)


def list_waiting(nodes: Nodes) -> None:
    """List the kinds that have jobs that wait."""
    which = np.flatnonzero(nodes.kinds[_WAITING])
    nodes.waiting[0], nodes.waiting[1 : len(which) + 1] = len(which), which
    nodes.kinds[_LISTED, which] = np.arange(1, len(which) + 1)


@inlined
def wait(nodes: Nodes, kind: int, duration: int) -> None:
    """Count a job that takes so long among the waiting ones of its kind."""
    kinds, waiting = nodes.kinds, nodes.waiting
    if kinds[_WAITING, kind] == 0:
        waiting[0] += 1
        waiting[waiting[0]], kinds[_LISTED, kind] = kind, waiting[0]
        kinds[_LEAST, kind] = duration
    kinds[_LEAST, kind] = min(kinds[_LEAST, kind], duration)
    kinds[_WAITING, kind] += 1


@inlined
def waits_no_more(nodes: Nodes, kind: int) -> None:
    """Count a job no longer among the waiting ones of its kind."""
    kinds, waiting = nodes.kinds, nodes.waiting
    kinds[_WAITING, kind] -= 1
    if kinds[_WAITING, kind] == 0:
        last, place = waiting[waiting[0]], kinds[_LISTED, kind]
        waiting[place], kinds[_LISTED, last] = last, place
        waiting[0] -= 1
        kinds[_LONGEST, kind] = -1


@kernel
def take_anew(tables: Tables, caution: Any, nodes: Nodes, tests: Any, queue: Queue) -> None:
    """Write into a queue how long its waiting jobs are taken to last from now on."""
    place, kinds = queue.place, nodes.kinds
    for k in range(queue.marks.tail):
        job = place[JOB, k]
        if tables.outcome[START, job] < 0:
            kind = tables.jobs[KIND, job]
            duration = due_of(tables, caution, tests, job) - tables.state.now
            place[DEMAND, k] = demand_of(kind, max(duration, 1))
            kinds[_LEAST, kind] = min(kinds[_LEAST, kind], max(duration, 1))


@inlined
def give_back(tables: Tables, nodes: Nodes, job: int, sign: int) -> None:
    """Give back (sign 1) or take (sign -1) what a job holds."""
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    free, node, units, log = nodes.free, nodes.node, nodes.units, nodes.log
    ask, pool = nodes.asks[jobs[SHAPE, job]], nodes.pool
    low, resources = outcome[FIRST_ENTRY, job], pool.shape[0]
    for e in range(low, low + outcome[ENTRIES, job]):
        log[state.node_changes & (_LOG - 1)] = node[e]
        state.node_changes += 1
        for r in range(resources):
            free[node[e], r] += sign * units[e] * ask[r]
    if ask.shape[0] > resources:
        for r in range(resources):
            free[node[low], r] += sign * ask[resources + r]
    for r in range(resources):
        pool[r] += sign * in_all(ask, jobs[UNITS, job], r, resources)


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
def _lost_on_first(free: IntArray, node: int, ask: IntArray, here: int) -> int:
    """How many of the units that fit on a node do not if it is the first one."""
    on_first = room_on_first(free, node, ask, here) if here > 0 else 0
    return here - on_first if on_first > 0 else NEVER


@kernel
def _count_rooms_with_first(state: State, nodes: Nodes, shape: int) -> None:
    """The same where jobs take something once: beside that, see `rooms_with_first`."""
    free, row, lost, log = nodes.free, nodes.room[shape], nodes.lost[shape], nodes.log
    ask, most = nodes.asks[shape], nodes.most[shape]
    changes, since = state.node_changes, nodes.known[shape]
    total, least = nodes.sums[0, shape], nodes.sums[1, shape]
    anew = since < 0 or changes - since > min(_LOG, row.shape[0])
    if anew:
        total, least = 0, NEVER
        for node in range(row.shape[0]):
            row[node] = room(free, node, ask, most)
            lost[node] = _lost_on_first(free, node, ask, row[node])
            total += row[node]
            least = min(least, lost[node])
    else:
        for k in range(since, changes):
            node = log[k & (_LOG - 1)]
            here = room(free, node, ask, most)
            less = _lost_on_first(free, node, ask, here)
            anew = anew or (lost[node] == least and less > least)
            total += here - row[node]
            row[node], lost[node] = here, less
            least = min(least, less)
        if anew:
            least = NEVER
            for node in range(row.shape[0]):
                least = min(least, lost[node])
    nodes.sums[0, shape], nodes.sums[1, shape] = total, least
    nodes.rooms[shape] = max(total - least, 0)
    nodes.known[shape] = changes


@inlined
def rooms_of(state: State, nodes: Nodes, shape: int) -> int:
    """How many units of a shape fit what is free."""
    if nodes.known[shape] != state.node_changes:
        if nodes.lost.shape[0] > 0:
            _count_rooms_with_first(state, nodes, shape)
        else:
            _count_rooms(
                state, nodes.free, nodes.room[shape], nodes.rooms, nodes.known, nodes.log,
                nodes.asks[shape], nodes.most[shape], shape,
            )  # fmt: skip
    return int(nodes.rooms[shape])


@inlined
def _look_ahead(tables: Tables, nodes: Nodes, job: int, sign: int) -> None:
    """Give back (sign 1) or take (sign -1) what a job holds, at the shadow time."""
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    ahead, row, node, units = nodes.ahead, nodes.ahead_room, nodes.node, nodes.units
    shape = jobs[SHAPE, state.ahead_job]
    asks, ask, most = nodes.asks, nodes.asks[shape], nodes.most[shape]
    low, resources = outcome[FIRST_ENTRY, job], ahead.shape[1]
    for r in range(resources):
        nodes.ahead_pool[r] += sign * in_all(asks[jobs[SHAPE, job]], jobs[UNITS, job], r, resources)
    if asks.shape[1] > resources:
        for r in range(resources):
            ahead[node[low], r] += sign * asks[jobs[SHAPE, job], resources + r]
    for e in range(low, low + outcome[ENTRIES, job]):
        for r in range(resources):
            ahead[node[e], r] += sign * units[e] * asks[jobs[SHAPE, job], r]
        here = room(ahead, node[e], ask, most)
        state.ahead_rooms += here - row[node[e]]
        row[node[e]] = here


@inlined
def end(tables: Tables, nodes: Nodes, job: int) -> None:
    """Give back what a job that has ended held."""
    state, due = tables.state, tables.outcome[EXPECTED_END, job]
    give_back(tables, nodes, job, 1)
    if state.ahead_job >= 0 and due >= state.shadow_time:
        state.shadow_may_be_sooner = True
        if due > state.shadow_time:
            _look_ahead(tables, nodes, job, 1)


@inlined
def lend(tables: Tables, nodes: Nodes, ended: int, sign: int) -> None:
    """Give back (sign 1) or take again (sign -1) what the jobs hold that end now as expected."""
    for k in range(ended):
        give_back(tables, nodes, tables.running[JOB, k], sign)


@inlined
def job_fits(tables: Tables, nodes: Nodes, job: int) -> bool:
    """Whether a job fits what is free."""
    jobs = tables.jobs
    return jobs[NEED, job] <= nodes.pool[0] and bool(
        rooms_of(tables.state, nodes, jobs[SHAPE, job]) >= jobs[UNITS, job]
    )


@inlined
def leaves_room(tables: Tables, caution: Any, nodes: Nodes, pool: IntArray, job: int) -> bool:
    """Whether a job leaves enough free when it starts, if so much of the whole system is free."""
    if caution is None:
        return True
    if not caution.keeps_free:
        return True
    jobs = tables.jobs
    ask, units = nodes.asks[jobs[SHAPE, job]], jobs[UNITS, job]
    has_to = tables.outcome[EXPECTED, job] > caution.long_s
    has_to = has_to and not is_late(jobs, job, tables.state.now, caution.patience)
    enough = True
    for r in range(pool.shape[0]):
        need = in_all(ask, units, r, pool.shape[0])
        has_to = has_to and need <= nodes.most_sparing[r]
        enough = enough and (need == 0 or need + nodes.spare[r] <= pool[r])
    return enough or not has_to


@inlined
def hold(tables: Tables, nodes: Nodes, job: int, due: int) -> None:
    """Take what a job holds until it is due."""
    give_back(tables, nodes, job, -1)
    if tables.state.ahead_job >= 0 and due > tables.state.shadow_time:
        _look_ahead(tables, nodes, job, -1)


@inlined
def _expect_end(tables: Tables, nodes: Any, job: int, due: int) -> None:
    """Expect a running job to end at another time; ``nodes`` is None on a pool."""
    state, before = tables.state, tables.outcome[EXPECTED_END, job]
    expect_end(tables, job, due)
    if nodes is not None and state.ahead_job >= 0:
        if before <= state.shadow_time < due:
            _look_ahead(tables, nodes, job, -1)
        elif due <= state.shadow_time < before:
            _look_ahead(tables, nodes, job, 1)
        if due < state.shadow_time <= before:
            state.shadow_may_be_sooner = True


@inlined
def expect_ends(tables: Tables, caution: Any, nodes: Any, tests: Tests, blocked: int) -> bool:
    """Expect the ends of the jobs under test as the reservation of the blocked job counts them.

    Returns whether any is expected at another time than before.
    """
    changed = False
    for k in range(tests.state.tested):
        job = tests.table[TESTED, k]
        due = due_under_test(tables, caution, tests, job, blocked)
        if due != tables.outcome[EXPECTED_END, job]:
            _expect_end(tables, nodes, job, due)
            changed = True
    return changed


@inlined
def settle(tables: Tables, nodes: Any, tests: Any, serial: int) -> None:
    """Expect the jobs that have just started to end at their requested times, but not the tests.

    These jobs have the serial numbers from ``serial`` on.
    """
    state, outcome = tables.state, tables.outcome
    for number in range(serial, state.next_serial):
        job = tables.running[BY_SERIAL, number]
        if tests is not None:  # noqa: SIM102 - numba drops only what stands alone
            if tests.table[TESTING, job]:
                continue
        due = outcome[START, job] + outcome[LIMIT, job]
        if due > outcome[EXPECTED_END, job]:
            _expect_end(tables, nodes, job, due)


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
def _put(tables: Tables, nodes: Nodes, outlives: bool, job: int) -> None:
    """Take nodes for a job that fits ``free``, or if it outlives the shadow time ``beside``."""
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    low, shape, units = state.entries, jobs[SHAPE, job], jobs[UNITS, job]
    node, many = nodes.node[low:], nodes.units[low:]
    best_fit = tables.rule.best_fit
    if outlives or best_fit or asks_once(nodes.asks[shape], nodes.free.shape[1]):
        usable = nodes.beside if outlives else nodes.free
        count = place(usable, nodes.counted, nodes.asks[shape], units, best_fit, node, many)
    else:
        count = first_fit(nodes.room[shape], units, node, many)
    outcome[FIRST_ENTRY, job], outcome[ENTRIES, job] = low, count
    state.entries = low + count


@inlined
def _is_home_free(
    usable: IntArray, jobs: IntArray, outcome: IntArray, nodes: Nodes, tests: Tests, job: int
) -> bool:
    """Whether a job has just been stopped and can go on where it is."""
    if tests.table[STOPPED_START, job] < 0:
        return False
    ask, low = nodes.asks[jobs[SHAPE, job]], outcome[FIRST_ENTRY, job]
    for e in range(low, low + outcome[ENTRIES, job]):
        for r in range(usable.shape[1]):
            if nodes.units[e] * ask[r] > usable[nodes.node[e], r]:
                return False
    return True


@kernel
def begin_on(
    tables: Tables, caution: Any, nodes: Nodes, tests: Any, outlives: bool, job: int, reason: int,
    testing: bool,
) -> None:  # fmt: skip
    """Start a job, or its test, that fits ``free``, or if it outlives the shadow time ``beside``.

    One that has just been stopped goes on where it is, if it can go on there.
    """
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    since, due = state.now, state.now + lasts(tables, caution, job)
    stays = False
    if tests is not None:
        usable = nodes.beside if outlives else nodes.free
        stays = _is_home_free(usable, jobs, outcome, nodes, tests, job)
        if stays:
            since = tests.table[STOPPED_START, job]
            due = max(since + lasts(tables, caution, job), state.now + 1)
        elif testing:
            due = state.now + tests.state.length_s + tests.state.restart_cost_s
        elif tests.table[STOPPED_START, job] >= 0:
            tests.table[MOVED, job] = 1
    if not stays:
        _put(tables, nodes, outlives, job)
    waits_no_more(nodes, jobs[KIND, job])
    hold(tables, nodes, job, due)
    end = since + jobs[RUNTIME, job]
    if tests is None:
        begin_until(tables, job, reason, due, end)
    elif testing:
        test(tables, tests, job, reason)
    else:
        leave_line(tests, job)
        begin_until(tables, job, reason, due, end)


@inlined
def start_in_turn(tables: Tables, caution: Any, nodes: Nodes, tests: Any) -> None:
    """Start jobs in the primary order until one does not fit: the head."""
    place, marks = tables.primary.place, tables.primary.marks
    while marks.head < marks.tail:
        job = place[JOB, marks.head]
        if tables.outcome[START, job] < 0:
            testing = is_tested_in_turn(tests, job)
            if not starts_in_turn(tables, caution, nodes, tests, job, testing):
                break
        marks.head += 1


@inlined
def starts_in_turn(
    tables: Tables, caution: Any, nodes: Nodes, tests: Any, job: int, testing: bool
) -> bool:
    """Start a job whose turn it is, or its test, if it fits; whether it does."""
    fits = job_fits(tables, nodes, job)
    if fits and not testing:
        fits = leaves_room(tables, caution, nodes, nodes.pool, job)
    if fits:
        begin_on(tables, caution, nodes, tests, False, job, IN_TURN, testing)
        tables.state.blocked = -1
    return bool(fits)


@inlined
def _fits_ahead(tables: Tables, caution: Any, nodes: Nodes, job: int) -> bool:
    """Whether the job that is blocked may start at the shadow time."""
    jobs = tables.jobs
    fits = tables.state.ahead_rooms >= jobs[UNITS, job]
    ask = nodes.asks[jobs[SHAPE, job]]
    if fits and asks_once(ask, nodes.ahead.shape[1]):
        fits = rooms_with_first(nodes.ahead, ask, jobs[UNITS, job]) >= jobs[UNITS, job]
    return bool(fits) and leaves_room(tables, caution, nodes, nodes.ahead_pool, job)


@kernel
def _reserve(tables: Tables, caution: Any, nodes: Nodes, ended: int) -> None:
    """Bring the shadow time of the job that is blocked up to date.

    The capacity at that time changes only by jobs that outlive it, so it is kept from dispatch to
    dispatch, and the time is moved from where it was: back only if something was given back by
    a job that was expected to end then or later.
    """
    state, jobs, running = tables.state, tables.jobs, tables.running
    state.shadow_time_known, state.beside_known = True, False
    job = state.blocked
    if state.ahead_job != job:
        shape = jobs[SHAPE, job]
        state.ahead_job, state.shadow_time, state.shadow_may_be_sooner = job, state.now, False
        state.ahead_rooms = rooms_of(state, nodes, shape)
        if asks_once(nodes.asks[shape], nodes.free.shape[1]):
            state.ahead_rooms = nodes.sums[0, shape]
        for node in range(nodes.free.shape[0]):
            nodes.ahead_room[node] = nodes.room[shape, node]
            for r in range(nodes.free.shape[1]):
                nodes.ahead[node, r] = nodes.free[node, r]
        for r in range(nodes.pool.shape[0]):
            nodes.ahead_pool[r] = nodes.pool[r]
    k = int(np.searchsorted(running[DUE, : state.running], state.shadow_time, side="right"))
    while not _fits_ahead(tables, caution, nodes, job) and k < state.running:
        state.shadow_time, state.shadow_may_be_sooner = running[DUE, k], False
        while k < state.running and running[DUE, k] == state.shadow_time:
            _look_ahead(tables, nodes, running[JOB, k], 1)
            k += 1
    while state.shadow_may_be_sooner and k > ended:
        due, last = running[DUE, k - 1], k
        fits = True
        while fits and k > ended and running[DUE, k - 1] == due:
            k -= 1
            _look_ahead(tables, nodes, running[JOB, k], -1)
            fits = _fits_ahead(tables, caution, nodes, job)
        if not fits:
            state.shadow_time, state.shadow_may_be_sooner = due, False
            for back in range(k, last):
                _look_ahead(tables, nodes, running[JOB, back], 1)
    state.shadow_may_be_sooner = False


@inlined
def _compare_on(
    free: IntArray, ahead: IntArray, beside: IntArray, ask: IntArray, kept: IntArray, here: int
) -> None:
    """Compute what a node has free both now and, beside that job, at the shadow time.

    What the job takes once is left out.
    """
    for r in range(free.shape[1]):
        beside[here, r] = min(free[here, r], ahead[here, r] - kept[here] * ask[r])


@inlined
def _compare_on_first(
    free: IntArray, ahead: IntArray, beside: IntArray, ask: IntArray, kept: IntArray, here: int
) -> None:
    """The same of the first node of that job, if it takes something once there."""
    for r in range(ask.shape[0] - free.shape[1]):
        held = kept[here] * ask[r] + ask[free.shape[1] + r]
        beside[here, r] = min(free[here, r], ahead[here, r] - held)


@kernel
def _compare(tables: Tables, nodes: Nodes) -> None:
    """Compute what is free both now and, beside the job that is blocked, at the shadow time."""
    state, jobs = tables.state, tables.jobs
    free, ahead, beside, row = nodes.free, nodes.ahead, nodes.beside, nodes.ahead_room
    ask, units = nodes.asks[jobs[SHAPE, state.blocked]], jobs[UNITS, state.blocked]
    kept, pool, node, many = nodes.kept, nodes.beside_pool, nodes.kept_node, nodes.kept_units
    beside_nodes, common = nodes.beside_nodes, nodes.common
    if tables.rule.best_fit or asks_once(ask, free.shape[1]):
        count = place(ahead, nodes.counted, ask, units, tables.rule.best_fit, node, many)
    else:
        count = first_fit(row, units, node, many)
    state.beside_changes += 1
    kept[:] = 0
    for k in range(count):
        kept[node[k]] = many[k]
    for k in range(1, beside_nodes[0] + 1):  # on all others nothing is free
        for r in range(free.shape[1]):
            beside[beside_nodes[k], r] = 0
    found = 0
    for here in range(free.shape[0]):
        if common < 0 or free[here, common] > 0:
            found += 1
            beside_nodes[found] = here
    beside_nodes[0] = found
    pool[:] = 0
    for k in range(1, found + 1):
        here = beside_nodes[k]
        _compare_on(free, ahead, beside, ask, kept, here)
        if here == node[0]:
            _compare_on_first(free, ahead, beside, ask, kept, here)
        for r in range(free.shape[1]):
            pool[r] += beside[here, r]


@kernel
def _count_beside(beside: IntArray, beside_nodes: IntArray, ask: IntArray, most: int) -> int:
    """How many units of a shape fit beside the reserved job."""
    total, least, once = 0, NEVER, ask.shape[0] > beside.shape[1]
    for k in range(1, beside_nodes[0] + 1):
        here = room(beside, beside_nodes[k], ask, most)
        total += here
        if once:
            least = min(least, _lost_on_first(beside, beside_nodes[k], ask, here))
    return max(total - least, 0) if once else total


@inlined
def _fits_beside(tables: Tables, nodes: Nodes, shape: int, units: int) -> bool:
    """Whether a job that outlives the shadow time fits beside the reserved one."""
    state = tables.state
    if not state.beside_known:
        state.beside_known = True
        _compare(tables, nodes)
    beside_rooms, ask = nodes.beside_rooms, nodes.asks[shape]
    if beside_rooms[1, shape] != state.beside_changes:
        if not pool_has(nodes.beside_pool, ask, units):
            return False
        beside_rooms[0, shape] = _count_beside(
            nodes.beside, nodes.beside_nodes, ask, nodes.most[shape]
        )
        beside_rooms[1, shape] = state.beside_changes
    return bool(beside_rooms[0, shape] >= units)


@kernel
def _open_kinds(tables: Tables, caution: Any, nodes: Nodes, ended: int, test_s: int) -> None:
    """Find how long a job of each open kind may last to be started, and close what has no room.

    A kind of which none may start has no room, or only longer jobs than fit before the shadow time:
    it stays closed for the rest of the dispatch, and is passed over. ``test_s`` is how long a test
    takes, 0 if there are to be none: where tests may start, a kind stays open, too.
    """
    state, kinds, which = tables.state, nodes.kinds, nodes.open
    rooms, known, pool = nodes.rooms, nodes.known, nodes.pool
    before, which[0] = which[0], 0
    for k in range(1, before + 1):
        kind = which[k]
        kinds[_LONGEST, kind] = -1
        if kinds[_WAITING, kind] == 0:
            continue
        shape, units = kinds[_SHAPE, kind], kinds[_UNITS, kind]
        if known[shape] != state.node_changes:
            if units * nodes.asks[shape, 0] > pool[0]:
                continue
            rooms_of(state, nodes, shape)
        if rooms[shape] < units:
            continue
        if not state.shadow_time_known:
            _reserve(tables, caution, nodes, ended)
        longest = state.shadow_time - state.now
        if _fits_beside(tables, nodes, shape, units):
            longest = _ENDLESS
        if longest >= kinds[_LEAST, kind] or 0 < test_s <= longest:
            kinds[_LONGEST, kind] = min(longest, _ENDLESS - 1)
            which[0] += 1
            which[which[0]] = kind


@inlined
def _open_waiting_kinds(
    tables: Tables, caution: Any, nodes: Nodes, ended: int, test_s: int
) -> None:
    """Open all kinds that have room, see `_open_kinds`."""
    for k in range(nodes.waiting[0] + 1):
        nodes.open[k] = nodes.waiting[k]
    _open_kinds(tables, caution, nodes, ended, test_s)


@kernel
def _next(place: IntArray, longest: IntArray, k: int, size: int) -> int:
    """Where in a queue, from a place on, the next job is that may start."""
    while k < size:
        demand = place[DEMAND, k]
        if demand & _ENDLESS <= longest[demand >> DURATION_BITS]:
            break
        k += 1
    return k


@kernel
def _note_least(place: IntArray, kinds: IntArray, which: IntArray, low: int, size: int) -> None:
    """Note the least expected duration of the open kinds."""
    for k in range(1, which[0] + 1):
        kinds[_LEAST, which[k]] = _ENDLESS
    for k in range(low, size):
        kind, expected = place[DEMAND, k] >> DURATION_BITS, place[DEMAND, k] & _ENDLESS
        if kinds[_LONGEST, kind] >= 0 and expected < kinds[_LEAST, kind]:
            kinds[_LEAST, kind] = expected


@kernel
def _start_beside(
    tables: Tables, caution: Any, nodes: Nodes, tests: Any, job: int, ended: int, testing: bool
) -> None:
    """Start a job, or its test, that fits now if it does not delay the one that is blocked."""
    state, jobs, outcome = tables.state, tables.jobs, tables.outcome
    shape, units = jobs[SHAPE, job], jobs[UNITS, job]
    if rooms_of(state, nodes, shape) < units:
        return
    if not testing and not leaves_room(tables, caution, nodes, nodes.pool, job):
        return
    if not state.shadow_time_known:
        _reserve(tables, caution, nodes, ended)
    due = state.now + lasts(tables, caution, job)
    if tests is not None:
        if testing:
            due = state.now + tests.state.length_s + tests.state.restart_cost_s
        elif _is_home_free(nodes.free, jobs, outcome, nodes, tests, job):
            due = due_of(tables, caution, tests, job)
    outlives = due > state.shadow_time
    if outlives and not _fits_beside(tables, nodes, shape, units):
        return
    begin_on(tables, caution, nodes, tests, outlives, job, BACKFILLED, testing)
    if state.beside_known:
        state.beside_changes += 1
        ask, low = nodes.asks[jobs[SHAPE, state.blocked]], outcome[FIRST_ENTRY, job]
        for e in range(low, low + outcome[ENTRIES, job]):
            here = nodes.node[e]
            _compare_on(nodes.free, nodes.ahead, nodes.beside, ask, nodes.kept, here)
            if here == nodes.kept_node[0]:
                _compare_on_first(nodes.free, nodes.ahead, nodes.beside, ask, nodes.kept, here)


@kernel
def backfill(tables: Tables, caution: Any, nodes: Nodes, blocked: int, ended: int) -> None:
    """Start, in the secondary order, jobs that fit and do not delay the one that is blocked.

    While nothing has ended or started since the last dispatch and the same job is blocked, those
    that could not start then cannot now: a single one submitted since is looked at alone.
    """
    state = tables.state
    if state.blocked == blocked and ended == 0:
        if state.submitted == state.submitted_before + 1:
            job = state.submitted_before
            if tables.outcome[START, job] < 0:  # else it is behind a gate
                _start_beside(tables, caution, nodes, None, job, ended, False)
            return
    else:
        state.blocked, state.shadow_time_known = blocked, False
    _open_waiting_kinds(tables, caution, nodes, ended, 0)
    _backfill_all(tables, caution, nodes, None, ended)


@kernel
def _backfill_all(tables: Tables, caution: Any, nodes: Nodes, tests: Any, ended: int) -> None:
    """Go through the open kinds of jobs as long as there are some."""
    kinds, longest, which = nodes.kinds, nodes.kinds[_LONGEST], nodes.open
    place, marks = tables.secondary.place, tables.secondary.marks
    k = marks.head
    while which[0] > 0:
        k = _next(place, longest, k, marks.tail)
        if k == marks.tail:
            _note_least(place, kinds, which, marks.head, marks.tail)
            return
        job = place[JOB, k]
        if tables.outcome[START, job] < 0 and job != tables.state.blocked:
            _start_beside(tables, caution, nodes, tests, job, ended, False)
            _open_kinds(tables, caution, nodes, ended, 0)
        if tables.outcome[START, job] >= 0:
            place[DEMAND, k] |= _ENDLESS
        k += 1


@kernel
def _test_all(
    tables: Tables, caution: Any, nodes: Nodes, tests: Tests, blocked: int, test_s: int
) -> None:
    """Test jobs of the open kinds as long as there are some."""
    if nodes.open[0] == 0:
        return
    line_up_newcomers(tables, tests, nodes)
    longest, place, k = nodes.kinds[_LONGEST], tests.order.place, 0
    while k < tests.state.lined_up:
        job = place[JOB, k]
        fits = longest[place[DEMAND, k]] >= test_s and job != blocked
        if fits and not is_past_tests(tables, tests, job):
            _start_beside(tables, caution, nodes, tests, job, 0, True)
            if tables.outcome[START, job] >= 0:  # then another one has its place
                _open_kinds(tables, caution, nodes, 0, test_s)
                if nodes.open[0] == 0:
                    return
                continue
        k += 1


@kernel
def backfill_and_test(
    tables: Tables, caution: Any, nodes: Nodes, tests: Tests, blocked: int
) -> None:
    """Backfill, and test jobs where they do not delay the one that is blocked.

    A single job that has been submitted is looked at alone where `backfill` does so, if besides no
    test is expected to end at another time.
    """
    state, common = tables.state, nodes.common
    if common >= 0 and nodes.pool[common] == 0:
        return
    changed = expect_ends(tables, caution, nodes, tests, blocked)
    alone = -1
    if changed or state.blocked != blocked:
        state.blocked, state.shadow_time_known = blocked, False
    elif state.submitted == state.submitted_before + 1:
        alone = state.submitted_before
    test_s, opened = tests.state.length_s + tests.state.restart_cost_s, False
    for testing in (tests.state.way != LEFT, tests.state.way == LEFT):
        if alone >= 0:
            if testing and not may_be_tested(tables, tests, alone):
                continue
            if tables.outcome[START, alone] < 0:
                _start_beside(tables, caution, nodes, tests, alone, 0, testing)
            continue
        if testing or not opened:
            _open_waiting_kinds(tables, caution, nodes, 0, test_s if testing else 0)
            opened = True
        if testing:
            _test_all(tables, caution, nodes, tests, blocked, test_s)
        else:
            _backfill_all(tables, caution, nodes, tests, 0)
