"""A whole simulated schedule, as flat arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.events import CAPACITY, FAIL, MAINTAIN
from cpdispatch.system import System
from cpdispatch.verify.levels import Sweep, units_that_fit
from cpdispatch.verify.service import (
    REQUEUES,
    Outages,
    at_failure,
    downtimes,
    drains,
    lacks,
    left_at_last,
    reaching_into_windows,
)
from cpdispatch.verify.violation import Kind, Violation, jobs_text, place_text, too_soon_text

_LACK = -(2**62)
"""In place of the id of a job: capacity that a node lacks for a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What became of every job of a simulation, as flat arrays.

    Attributes
    ----------
    id, submit_s, start_s, end_s, units, requested_s, runtime_s : int64 array, shape (jobs,)
        ``start_s`` and ``end_s`` are -1 for a job that was never started.
    killed : bool array, shape (jobs,)
        Whether the job was cut at its requested time.
    never_fits : bool array, shape (jobs,)
        Whether the job was left out because it asks for more than the whole system has.
    rejected : bool array, shape (jobs,)
        Whether the dispatcher refused the job.
    request : int64 array, shape (jobs, resources)
        Per-unit requests.
    offset : int64 array, shape (jobs + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, node_units : int64 array, shape (entries,)
        A node and the number of the job's units there.
    preceding, think_s : int64 array, shape (jobs,), or None
        The predecessor of each job, and the seconds between the end of the predecessor and the
        start of the job; -1 for no predecessor. None if the run did not honour dependencies.
    lost : Attempts, or None
        The attempts that were killed for a restart; None when jobs could not be restarted.
    outages : Outages, or None
        What happened to the system; None when nothing could.
    beyond : bool array, shape (jobs,), or None
        Whether the job by itself asks for more than a limit of the system allows, or draws more
        than the least power cap; None without either.
    """

    id: IntArray
    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    units: IntArray
    requested_s: IntArray
    runtime_s: IntArray
    killed: BoolArray
    never_fits: BoolArray
    rejected: BoolArray
    request: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray
    preceding: IntArray | None = None
    think_s: IntArray | None = None
    lost: Attempts | None = None
    outages: Outages | None = None
    beyond: BoolArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """The attempts at the jobs of a schedule that were killed for a restart, one a job at most.

    Attributes
    ----------
    start_s, end_s : int64 array, shape (jobs,)
        -1 for none.
    offset, node, node_units : int64 array
        As in `Schedule`.
    restartable : bool array, shape (jobs,)
        Which jobs could be restarted.
    cost_s : int
        How long the nodes of a killed job stay busy, up to ``end_s``, and so much longer the
        job runs when it starts again.
    """

    start_s: IntArray
    end_s: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray
    restartable: BoolArray
    cost_s: int = 0


class _Findings:
    """Violations as they are found: the first few of each kind, and how many there were."""

    EACH = 8  # with the 12 kinds that a schedule can break: at most 100 lines

    def __init__(self) -> None:
        self.listed: list[Violation] = []
        self.count: Counter[Kind] = Counter()

    def add(self, kind: Kind, rows: IntArray, text: Callable[[int], str]) -> None:
        room = max(0, self.EACH - self.count[kind])
        self.listed += [Violation(kind, text(row)) for row in rows[:room].tolist()]
        self.count[kind] += len(rows)

    def all(self) -> list[Violation]:
        left = {kind: count - self.EACH for kind, count in self.count.items()}
        more = ", ".join(f"{n:,} more of {kind}" for kind, n in left.items() if n > 0)
        return self.listed + ([Violation(Kind.MORE, more)] if more else [])


def schedule(table: Schedule, system: System) -> list[Violation]:
    """What is wrong with a whole schedule given as flat arrays, see `run`.

    A job starts no earlier than it was submitted; it runs for its runtime, or was killed at its
    requested time; its units are all placed, on nodes that exist; at every instant every node
    holds no more of any resource than it has; and a job that never started fits no empty system.
    Where the run honoured dependencies, a job starts after the end, and the think time, of the one
    that it comes after, if that one stands before it in the table and ran. Where jobs could be
    restarted, an attempt that was killed is one at a job that may be, lies between its submission
    and its start, is shorter than its runtime, and holds its nodes as any job does; where
    killing takes time, until that is over, and the job runs so much longer afterwards. Where events
    happened to the system, no node is used while it is down or maintained, and no job starts on
    one that is drained or not in the system, or is expected to run into maintenance that was known.
    A node that lacks a part of its capacity holds no more than the rest; a job that was stopped for
    that had no room beside those that started before it. A job that ran on a node that failed, or
    whose maintenance began, was stopped at that very time: it was queued again if it could be, or
    else ended. Where nodes of a killed job were being cleared, that was over then.
    """
    found = _Findings()
    _lives(table, found)
    _left_out(table, system, found)
    if table.preceding is not None and table.think_s is not None:
        _in_sequence(table, table.preceding, table.think_s, found)
    if table.lost is not None:
        _restarts(table, table.lost, found)
    if table.outages is not None:
        _stopped(table, table.outages, found)
        _requeued(table, table.outages, found)
        _at_failures(table, table.outages, found)
    if table.lost is not None:
        table = _with_killed(table, table.lost)
    if table.outages is not None:
        table = _with_stopped(table, table.outages)
    owner = np.repeat(np.arange(len(table.id)), np.diff(table.offset))
    sound = _places(table, owner, system, found)
    if not sound.all():
        owner = owner[sound]
        table = replace(table, node=table.node[sound], node_units=table.node_units[sound])
    if table.outages is not None:
        _in_service(table, owner, table.outages, found)
        _stops_needed(table, owner, table.outages, system, found)
        table, owner = _with_lacks(table, owner, table.outages, system)
    _levels(table, owner, system, found)
    return found.all()


def _lives(table: Schedule, found: _Findings) -> None:
    """Times of each job that started."""
    t = table
    ids = np.sort(t.id)
    twice = np.unique(ids[1:][ids[1:] == ids[:-1]])
    found.add(Kind.REPEATED_JOB, twice, lambda job: f"job {job} is in the table twice")
    ran = t.start_s >= 0
    found.add(
        Kind.EARLY_START,
        (ran & (t.start_s < t.submit_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts at {t.start_s[k]}, submitted at {t.submit_s[k]}",
    )
    lasted = t.end_s - t.start_s
    if t.lost is not None:
        lasted = lasted - np.where(t.lost.start_s >= 0, t.lost.cost_s, 0)
    if t.outages is not None:
        lasted = lasted + t.outages.kept_s()
    cut = t.killed & (t.requested_s < t.runtime_s)
    amiss = lasted != np.where(t.killed, t.requested_s, t.runtime_s)
    if t.outages is not None:
        amiss &= ~t.outages.failed
    found.add(
        Kind.DURATION,
        (ran & (amiss | (t.killed & ~cut))).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} runs from {t.start_s[k]} to {t.end_s[k]}: {lasted[k]} s, runtime "
            f"{t.runtime_s[k]} s"
            + ", checkpoints of earlier runs included" * bool(t.outages and t.outages.period_s)
            + f", killed at a limit of {t.requested_s[k]} s" * bool(t.killed[k])
        ),
    )


def _restarts(table: Schedule, lost: Attempts, found: _Findings) -> None:
    """Times of each attempt that was killed."""
    t = table
    tried = lost.start_s >= 0
    found.add(
        Kind.PLACEMENT,
        (~tried & ((lost.end_s >= 0) | (np.diff(lost.offset) > 0))).nonzero()[0],
        lambda k: f"job {t.id[k]} was never restarted, and its first attempt has an end or nodes",
    )
    found.add(
        Kind.EARLY_START,
        (tried & (lost.start_s < t.submit_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts at {lost.start_s[k]}, submitted at {t.submit_s[k]}",
    )
    found.add(
        Kind.EARLY_START,
        (tried & (t.start_s >= 0) & (t.start_s < lost.end_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts again at {t.start_s[k]}, killed at {lost.end_s[k]}",
    )
    found.add(
        Kind.RESTART,
        (tried & ~lost.restartable).nonzero()[0],
        lambda k: f"job {t.id[k]} is killed at {lost.end_s[k]} and may not be restarted",
    )
    lasted = lost.end_s - lost.start_s - lost.cost_s
    runs = np.where(t.killed, t.requested_s, t.runtime_s)
    least_s = np.zeros_like(lasted)
    if t.outages is not None:
        owner = np.repeat(np.arange(len(t.id)), np.diff(lost.offset))
        cut = at_failure(t.outages.happened, lost.node, lost.end_s[owner])
        least_s[owner[cut]] = -lost.cost_s
    found.add(
        Kind.DURATION,
        (tried & ((lasted < least_s) | (lasted >= runs))).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} runs from {lost.start_s[k]} to {lost.end_s[k]}, when it is killed for "
            f"a restart: {lasted[k]} s, it ends by itself after {runs[k]} s"
        ),
    )


def _with_killed(table: Schedule, lost: Attempts) -> Schedule:
    """The schedule with the attempts that were killed for a restart as further jobs of it."""
    tried = lost.start_s >= 0
    held = np.repeat(tried, np.diff(lost.offset))
    return _with_attempts(
        table, tried.nonzero()[0], lost.start_s[tried], lost.end_s[tried],
        np.diff(lost.offset)[tried], lost.node[held], lost.node_units[held],
    )  # fmt: skip


def _with_stopped(table: Schedule, outages: Outages) -> Schedule:
    """The schedule with the attempts that failed nodes ended as further jobs of it."""
    o = outages
    return _with_attempts(
        table, o.row, o.start_s, o.end_s, np.diff(o.offset), o.node, o.node_units
    )  # fmt: skip


def _with_attempts(
    table: Schedule, row: IntArray, start_s: IntArray, end_s: IntArray, lengths: IntArray,
    node: IntArray, node_units: IntArray,
) -> Schedule:  # fmt: skip
    """The schedule with attempts as further jobs of it: ``lengths`` counts the entries of each."""
    again = np.concatenate((np.arange(len(table.id)), row))
    return replace(
        table,
        id=table.id[again],
        start_s=np.concatenate((table.start_s, start_s)),
        end_s=np.concatenate((table.end_s, end_s)),
        units=table.units[again],
        requested_s=table.requested_s[again],
        request=table.request[again],
        offset=np.concatenate(([0], np.cumsum(np.concatenate((np.diff(table.offset), lengths))))),
        node=np.concatenate((table.node, node)),
        node_units=np.concatenate((table.node_units, node_units)),
    )


def _tried(table: Schedule) -> IntArray:
    """The rows of the jobs of which an attempt was killed for a restart, ascending."""
    none = np.zeros(0, dtype=np.int64)
    return none if table.lost is None else (table.lost.start_s >= 0).nonzero()[0]


def _killed_times(table: Schedule) -> tuple[IntArray, IntArray, int]:
    """Start and end of the attempt at each job that was killed for a restart, and what it cost."""
    if table.lost is None:
        none = np.full(len(table.id), -1, dtype=np.int64)
        return none, none, 0
    return table.lost.start_s, table.lost.end_s, table.lost.cost_s


def _attempt(outages: Outages, table: Schedule, k: int) -> str:
    return f"job {table.id[outages.row[k]]} runs from {outages.start_s[k]} to {outages.end_s[k]}"


def _stopped(table: Schedule, outages: Outages, found: _Findings) -> None:
    """Times of each attempt that a failed node ended."""
    t, o, attempt = table, outages, partial(_attempt, outages, table)
    tried_s, free_s, cost_s = _killed_times(t)
    anew = (tried_s >= 0)[o.row] & (o.start_s >= free_s[o.row])
    runs = np.where(t.killed, t.requested_s, t.runtime_s)[o.row] - o.kept_before_s()
    runs += cost_s * anew

    found.add(
        Kind.EARLY_START,
        (o.start_s < t.submit_s[o.row]).nonzero()[0],
        lambda k: f"{attempt(k)}, submitted at {t.submit_s[o.row[k]]}",
    )
    by_time = np.lexsort((o.start_s, o.row))
    before, after = by_time[:-1], by_time[1:]
    early = (o.row[before] == o.row[after]) & (o.start_s[after] < o.end_s[before])
    found.add(
        Kind.EARLY_START,
        after[early],
        lambda k: f"{attempt(k)}, before its attempt before that has ended",
    )
    found.add(
        Kind.EARLY_START,
        ((tried_s >= 0)[o.row] & ~anew & (tried_s[o.row] < o.end_s)).nonzero()[0],
        lambda k: (
            f"{attempt(k)}, and from {tried_s[o.row[k]]} to {free_s[o.row[k]]}, when it is killed "
            "for a restart"
        ),
    )
    last_s = np.zeros(len(t.id), dtype=np.int64)
    np.maximum.at(last_s, o.row, o.end_s)
    found.add(
        Kind.EARLY_START,
        ((t.start_s >= 0) & (t.start_s < last_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts again at {t.start_s[k]}, stopped at {last_s[k]}",
    )
    lasted = o.end_s - o.start_s
    found.add(
        Kind.DURATION,
        ((lasted < 0) | (lasted >= runs)).nonzero()[0],
        lambda k: f"{attempt(k)}, when a node fails: it ends by itself after {runs[k]} s",
    )
    kept = lasted // o.period_s * o.period_s if o.period_s else np.zeros_like(lasted)
    found.add(
        Kind.RESTART,
        (o.saved_s != kept).nonzero()[0],
        lambda k: f"{attempt(k)}: {o.saved_s[k]} s of it are kept, {kept[k]} s by its checkpoints",
    )


def _requeued(table: Schedule, outages: Outages, found: _Findings) -> None:
    """How often each job was queued again because a node failed, and which jobs end as failed."""
    t, o = table, outages
    times = np.bincount(o.row, minlength=len(t.id))
    found.add(
        Kind.RESTART,
        (times != o.requeued).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} was queued again {o.requeued[k]} times by the table of jobs, and has "
            f"{times[k]} attempts"
        ),
    )
    found.add(
        Kind.RESTART,
        (times > np.where(o.may_requeue, REQUEUES, 0)).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} is queued again {times[k]} times, allowed "
            f"{REQUEUES if o.may_requeue[k] else 0}"
        ),
    )
    tried_s, _, cost_s = _killed_times(t)
    of_job = np.where(t.killed, t.requested_s, t.runtime_s) - o.kept_s() + cost_s * (tried_s >= 0)
    ran_s = t.end_s - t.start_s
    wrong = (t.start_s < 0) | t.killed | (ran_s < 0) | (ran_s >= of_job)
    found.add(
        Kind.DURATION,
        (o.failed & wrong).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} ends as failed and runs from {t.start_s[k]} to {t.end_s[k]}: "
            f"{ran_s[k]} s, it ends by itself after {of_job[k]} s"
        ),
    )
    found.add(
        Kind.RESTART,
        (o.failed & o.may_requeue & (times < REQUEUES)).nonzero()[0],
        lambda k: f"job {t.id[k]} ends as failed and could have been queued again",
    )


def _at_failures(table: Schedule, outages: Outages, found: _Findings) -> None:
    """Whether a node failed when an attempt was stopped, and when a job ended as failed."""
    t, o, attempt = table, outages, partial(_attempt, outages, table)
    owner = np.repeat(np.arange(len(o.row)), np.diff(o.offset))
    stopped = np.zeros(len(o.row), dtype=np.bool_)
    stopped[owner[at_failure(o.happened, o.node, o.end_s[owner])]] = True
    found.add(
        Kind.RESTART,
        (~stopped).nonzero()[0],
        lambda k: f"{attempt(k)} and is queued again, and none of its nodes failed then",
    )
    owner = np.repeat(np.arange(len(t.id)), np.diff(t.offset))
    ended = np.zeros(len(t.id), dtype=np.bool_)
    ended[owner[at_failure(o.happened, t.node, t.end_s[owner])]] = True
    found.add(
        Kind.RESTART,
        (o.failed & ~ended).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} ends as failed at {t.end_s[k]}, and none of its nodes failed then"
        ),
    )


def _in_service(table: Schedule, owner: IntArray, outages: Outages, found: _Findings) -> None:
    """No job is on a node while it is down, or starts there while it takes none."""
    t, start_s, end_s = table, table.start_s[owner], table.end_s[owner]
    down = downtimes(outages.happened)
    met = down.meeting(t.node, start_s, end_s)
    found.add(
        Kind.DOWN,
        (met >= 0).nonzero()[0],
        lambda e: (
            f"job {t.id[owner[e]]} is on node {t.node[e]} from {start_s[e]} to {end_s[e]}: the "
            f"node is down from {down.begin_s[met[e]]} on"
        ),
    )
    o, lost = outages, _tried(table)
    left_s = o.expected_s - o.kept_s(), o.expected_s[lost], o.expected_s[o.row] - o.kept_before_s()
    expected_s = np.maximum(np.concatenate(left_s), 1)
    in_turn = np.ones(len(o.tested), dtype=np.bool_)
    in_turn[lost] = False
    # A test ends before the window, or is stopped by it; the table does not say its length.
    expected_s[np.concatenate((o.tested & in_turn, o.tested[lost], o.test))] = 0
    expected_s = expected_s[owner]
    into = reaching_into_windows(o.happened, t.node, start_s, start_s + expected_s)
    found.add(
        Kind.RESERVATION,
        (into >= 0).nonzero()[0],
        lambda e: (
            f"job {t.id[owner[e]]} starts on node {t.node[e]} at {start_s[e]}, expected to run "
            f"{expected_s[e]} s: the node is maintained from {o.happened[into[e]].time_s} on, "
            f"known since {o.happened[into[e]].known_s}"
        ),
    )
    drained = drains(outages.happened)
    entered = drained.meeting(t.node, start_s, start_s)
    found.add(
        Kind.DOWN,
        (entered >= 0).nonzero()[0],
        lambda e: (
            f"job {t.id[owner[e]]} starts on node {t.node[e]} at {start_s[e]}: the node takes "
            f"no new job from {drained.begin_s[entered[e]]} on"
        ),
    )


def _stops_needed(
    table: Schedule, owner: IntArray, outages: Outages, system: System, found: _Findings
) -> None:
    """A job that was stopped as nodes lost capacity had no room left beside those before it."""
    t, o = table, outages
    changes = [event for event in o.happened if event.kind == CAPACITY]
    if not changes:
        return
    stopped = np.zeros(len(t.id), dtype=np.bool_)
    stopped[: len(o.failed)] = o.failed
    stopped[len(stopped) - len(o.row) :] = True
    by_failure = np.zeros(len(stopped), dtype=np.bool_)
    end_s, start_s = t.end_s[owner], t.start_s[owner]
    by_failure[owner[at_failure(o.happened, t.node, end_s, (FAIL, MAINTAIN))]] = True
    capacity, unneeded = system.capacity.copy(), []
    for time_s in sorted({event.time_s for event in changes}):
        nodes: list[int] = []
        for event in changes:
            if event.time_s == time_s:
                nodes += event.nodes
                for name, amount in event.capacity:
                    capacity[list(event.nodes), system.resource(name)] = amount
        there = np.isin(t.node, nodes) & (start_s < time_s) & (end_s >= time_s)
        stops = there & stopped[owner] & (end_s == time_s)
        for k in np.unique(owner[stops & ~by_failure[owner]]).tolist():
            stays = there & (owner != k) & ((end_s > time_s) | (stops & (start_s <= t.start_s[k])))
            held = np.zeros_like(capacity)
            counted = (stays | (there & (owner == k))).nonzero()[0]
            amount = t.request[owner[counted]] * t.node_units[counted, None]
            np.add.at(held, t.node[counted], amount)
            mine = t.node[there & (owner == k)]
            if (held[mine] <= capacity[mine]).all():
                unneeded.append(k)
    found.add(
        Kind.RESTART,
        np.array(unneeded, dtype=np.int64),
        lambda k: (
            f"job {t.id[k]} is stopped at {t.end_s[k]} as its nodes lose capacity, and they had "
            "room for it"
        ),
    )


def _with_lacks(
    table: Schedule, owner: IntArray, outages: Outages, system: System
) -> tuple[Schedule, IntArray]:
    """The schedule with what nodes lacked as further jobs, of id `_LACK`, and the entries' jobs."""
    t, lacking = table, lacks(outages.happened, system)
    count = len(lacking.of.node)
    if not count:
        return table, owner
    end_s = np.minimum(lacking.of.end_s, max(int(t.end_s.max()), int(lacking.of.begin_s.max())) + 1)
    one = np.ones(count, dtype=np.int64)
    return replace(
        t,
        id=np.concatenate((t.id, _LACK * one)),
        start_s=np.concatenate((t.start_s, lacking.of.begin_s)),
        end_s=np.concatenate((t.end_s, end_s)),
        request=np.concatenate((t.request, lacking.amount)),
        node=np.concatenate((t.node, lacking.of.node)),
        node_units=np.concatenate((t.node_units, one)),
    ), np.concatenate((owner, len(t.id) + np.arange(count)))


def _waits_for_service(
    table: Schedule, waits: BoolArray, outages: Outages, system: System
) -> BoolArray:
    """Which of the jobs that wait in the end do so because of nodes that did not come back.

    One that does not fit the others does. If there is one, it may keep those back that do.
    """
    t, capacity = table, left_at_last(outages.happened, system)
    rows = waits.nonzero()[0].tolist()
    fits = [units_that_fit(capacity, t.request[k]) >= t.units[k] for k in rows]
    return waits if not all(fits) else np.zeros_like(waits)


def _left_out(table: Schedule, system: System, found: _Findings) -> None:
    """Jobs that never started: they fit no empty system, or the dispatcher refused them."""
    t = table
    out = t.start_s < 0
    found.add(
        Kind.PLACEMENT,
        (out & ((t.end_s >= 0) | (np.diff(t.offset) > 0))).nonzero()[0],
        lambda k: f"job {t.id[k]} never started and has an end or nodes",
    )
    waits = out & ~t.never_fits & ~t.rejected
    if t.beyond is not None:
        waits &= ~t.beyond
    if t.outages is not None and waits.any():
        waits &= ~_waits_for_service(t, waits, t.outages, system)
    found.add(
        Kind.NEVER_STARTED,
        waits.nonzero()[0],
        lambda k: f"job {t.id[k]} never started though it could have been",
    )
    claims = out & t.never_fits
    claimed = (claims if t.beyond is None else claims & ~t.beyond).nonzero()[0]
    if not len(claimed):
        return
    asked, which = np.unique(
        np.column_stack((t.units, t.request))[claimed], axis=0, return_inverse=True
    )
    room = np.array([units_that_fit(system.capacity, row[1:]) for row in asked])
    fits = (room >= asked[:, 0])[which.reshape(-1)]
    found.add(
        Kind.NEVER_STARTED,
        claimed[fits],
        lambda k: f"job {t.id[k]} never started as one that never fits, and it fits",
    )


def _in_sequence(table: Schedule, preceding: IntArray, think_s: IntArray, found: _Findings) -> None:
    """Jobs that come after another one: it has ended before them, or could never run."""
    t, think_s = table, np.maximum(think_s, 0)
    by_id = np.argsort(t.id, kind="stable")
    at = np.minimum(np.searchsorted(t.id[by_id], preceding), len(t.id) - 1)
    row = by_id[at]
    after = (t.start_s >= 0) & (preceding >= 0) & (t.id[row] == preceding)
    after &= row < np.arange(len(row))
    ran = t.start_s[row] >= 0
    found.add(
        Kind.DEPENDENCY,
        (after & ran & (t.start_s < t.end_s[row] + think_s)).nonzero()[0],
        lambda k: too_soon_text(
            f"job {t.id[k]} starts at {t.start_s[k]}",
            int(preceding[k]),
            int(t.end_s[row[k]]),
            int(think_s[k]),
        ),
    )
    found.add(
        Kind.DEPENDENCY,
        (after & ~ran & ~t.never_fits[row] & ~t.rejected[row]).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} starts at {t.start_s[k]}, and job {preceding[k]}, after which it "
            "comes, never started"
        ),
    )


def _places(table: Schedule, owner: IntArray, system: System, found: _Findings) -> BoolArray:
    """Nodes and units of each job; returns which entries are sound enough to be added up."""
    t = table
    total = np.concatenate(([0], np.cumsum(t.node_units)))
    placed = total[t.offset[1:]] - total[t.offset[:-1]]
    found.add(
        Kind.UNITS,
        ((t.start_s >= 0) & (placed != t.units)).nonzero()[0],
        lambda k: f"job {t.id[k]} has {placed[k]} units on its nodes, it asks for {t.units[k]}",
    )
    empty = t.node_units <= 0
    found.add(
        Kind.UNITS,
        empty.nonzero()[0],
        lambda e: f"job {t.id[owner[e]]} has {t.node_units[e]} units on node {t.node[e]}",
    )
    unknown = (t.node < 0) | (t.node >= system.nodes)
    found.add(
        Kind.NODE,
        unknown.nonzero()[0],
        lambda e: (
            f"job {t.id[owner[e]]} ran on node {t.node[e]}, nodes are numbered 0 to "
            f"{system.nodes - 1}"
        ),
    )
    known = ~unknown
    pair = np.sort(owner[known] * system.nodes + t.node[known])
    twice = np.unique(pair[1:][pair[1:] == pair[:-1]])
    found.add(
        Kind.NODE,
        twice,
        lambda p: f"job {t.id[p // system.nodes]} names node {p % system.nodes} twice",
    )
    lasting = (t.start_s >= 0) & (t.end_s > t.start_s)
    return known & lasting[owner]


def _holds_no_more(table: Schedule, owner: IntArray, system: System) -> bool:
    """Whether it is certain that no node ever holds more than it has.

    A tenth of the work of finding out where it does. Starts and ends are sorted as one integer
    each: node, time, whether it is a start, entry. Ends come before starts of the same instant, so
    that the level after each start is at most the one after all changes of that instant.
    """
    t, entries = table, len(table.node)
    if not entries:
        return True
    origin = t.start_s.min()
    of_entry, of_time = entries.bit_length(), int(t.end_s.max() - origin).bit_length()
    if of_entry + 1 + of_time + system.nodes.bit_length() > 63:
        return False
    events = np.empty((2, entries), dtype=np.int64)
    for row, time_s in enumerate((t.end_s, t.start_s)):
        events[row] = t.node
        events[row] <<= of_time
        events[row] += (time_s - origin)[owner]
        events[row] <<= 1
        events[row] += row
        events[row] <<= of_entry
        events[row] += np.arange(entries)
    event = events.reshape(-1)
    event.sort()
    entry = event & ((1 << of_entry) - 1)
    event >>= of_entry
    begins = (event & 1).astype(np.bool_)
    event >>= 1 + of_time
    for r in range(len(system.resources)):
        amount = (t.request[:, r][owner] * t.node_units)[entry]
        np.negative(amount, out=amount, where=~begins)
        np.cumsum(amount, out=amount)
        capacity = system.capacity[:, r]
        if amount.max() > capacity.min() and (amount > capacity[event]).any():
            return False
    return True


def _levels(table: Schedule, owner: IntArray, system: System, found: _Findings) -> None:
    """Every node and resource at every instant."""
    t = table
    if _holds_no_more(t, owner, system):
        return
    times = np.unique(np.concatenate((t.start_s, t.end_s)))
    begin, end = np.searchsorted(times, t.start_s)[owner], np.searchsorted(times, t.end_s)[owner]
    sweep = Sweep(t.node, times, begin, end)
    del begin, end
    for r in range(len(system.resources)):
        amount = t.request[:, r][owner] * t.node_units
        level = sweep.level(amount)
        allowed = system.capacity[:, r][sweep.place]

        def text(k: int, r: int = r, level: IntArray = level) -> str:
            node, time = int(sweep.place[k]), int(sweep.time[k])
            here = owner[t.node == node]
            on = (t.start_s[here] <= time) & (time < t.end_s[here]) & (t.request[here, r] > 0)
            here = here[on]
            lacking = int(t.request[here[t.id[here] == _LACK], r].sum())
            return (
                f"{place_text(system, node, r, time)}: {level[k] - lacking} held by "
                f"{jobs_text(t.id[here[t.id[here] != _LACK]].tolist())}, "
                f"{system.capacity[node, r] - lacking} allowed"
            )

        found.add(Kind.CAPACITY, sweep.firsts(level > allowed), text)
