"""The checks of a whole simulated schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.events import CAPACITY, FAIL, MAINTAIN
from cpdispatch.system import System
from cpdispatch.verify.attempts import (
    check_failures,
    check_killed,
    check_requeued,
    check_stopped,
    killed_rows,
    with_killed,
    with_stopped,
)
from cpdispatch.verify.levels import Around, Sweep, fit_empty
from cpdispatch.verify.once import fits as fits_with_first
from cpdispatch.verify.service import (
    Outages,
    at_failure,
    downtimes,
    drains,
    lacks,
    left_at_last,
    reaching_into_windows,
)
from cpdispatch.verify.tables import Findings, Schedule
from cpdispatch.verify.violation import Kind, Violation, jobs_text, place_text, too_soon_text

_LACK = -(2**62)
"""In place of the id of a job: capacity that a node lacks for a time."""


def schedule(table: Schedule, system: System, *, brief: bool = True) -> list[Violation]:
    """What is wrong with a whole schedule given as flat arrays, see `run`.

    A job starts no earlier than it was submitted; it runs for its runtime, or was killed at its
    requested time; where it is known whether jobs are killed, all that would run longer are, or
    none is; its reason is one of jobs that start; its units are all placed, on nodes that
    exist; at every instant every node holds no more of any resource than it has; and a job that
    never started fits no empty system. Where the run honoured dependencies, a job starts after the
    end, and the think time, of the one that it comes after, if that one stands before it in the
    table and ran. Where jobs could be restarted, an attempt that was killed is one at a job that
    may be, lies between its submission and its start, is shorter than its runtime, and holds its
    nodes as any job does; where killing takes time, until that is over, and the job runs so much
    longer afterwards. Where events happened to the system, no node is used while it is down or
    maintained, and no job starts on one that is drained or not in the system, or is expected to run
    into maintenance that was known. A node that lacks a part of its capacity holds no more than the
    rest; a job that was stopped for that had no room beside those that started before it. A job
    that ran on a node that failed, or whose maintenance began, was stopped at that very time: it
    was queued again if it could be, or else ended. Where nodes of a killed job were being cleared,
    that was over then.

    ``brief`` is whether jobs that end in the second in which they start had room, too.
    """
    found = Findings()
    _lives(table, found)
    _requests(table, system, found)
    _left_out(table, system, found)
    if table.preceding is not None and table.think_s is not None:
        _in_sequence(table, table.preceding, table.think_s, found)
    if table.lost is not None:
        check_killed(table, table.lost, found)
    if table.outages is not None:
        check_stopped(table, table.outages, found)
        check_requeued(table, table.outages, found)
        check_failures(table, table.outages, found)
    if table.lost is not None:
        table = with_killed(table, table.lost)
    if table.outages is not None:
        table = with_stopped(table, table.outages)
    owner = np.repeat(np.arange(len(table.id)), np.diff(table.offset))
    sound, passing = _places(table, owner, system, found)
    brief_ones = _some(table, passing)
    entries = owner[passing]
    if not sound.all():
        owner, table = owner[sound], _some(table, sound)
    if table.outages is not None:
        _in_service(table, owner, table.outages, found)
        _stops_needed(table, owner, table.outages, system, found)
        table, owner = _with_lacks(table, owner, table.outages, system)
    _levels(table, owner, system, found)
    if brief and len(entries):
        _passing(table, owner, brief_ones, entries, system, found)
    return found.all()


def _some(table: Schedule, which: BoolArray) -> Schedule:
    """The schedule with some of its entries, whose jobs are to be known."""
    head = None if table.head is None else table.head[which]
    return replace(table, node=table.node[which], node_units=table.node_units[which], head=head)


def _lives(table: Schedule, found: Findings) -> None:
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
    found.add(
        Kind.REASON,
        (ran & ~t.of_start).nonzero()[0],
        lambda k: f"job {t.id[k]} starts at {t.start_s[k]} and has the reason {t.reason[k]}",
    )
    lasted = t.end_s - t.start_s
    if t.lost is not None:
        lasted = lasted - np.where(t.lost.start_s >= 0, t.lost.cost_s, 0)
    if t.outages is not None:
        lasted = lasted + t.outages.kept_s()
    over = t.requested_s < t.runtime_s
    due = over & (t.killed if t.kills is None else t.kills)
    amiss = (lasted != np.where(t.killed, t.requested_s, t.runtime_s)) | (due & ~t.killed)
    if t.outages is not None:
        amiss &= ~t.outages.failed
    found.add(
        Kind.DURATION,
        (ran & (amiss | (t.killed & ~due))).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} runs from {t.start_s[k]} to {t.end_s[k]}: {lasted[k]} s, runtime "
            f"{t.runtime_s[k]} s"
            + ", checkpoints of earlier runs included" * bool(t.outages and t.outages.period_s)
            + f", killed at a limit of {t.requested_s[k]} s" * bool(t.killed[k])
            + ", where no job is killed" * bool(t.killed[k] and t.kills is False)
            + f", not killed at its limit of {t.requested_s[k]} s"
            * bool(due[k] and not t.killed[k])
        ),
    )


def _in_service(table: Schedule, owner: IntArray, outages: Outages, found: Findings) -> None:
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
    o, lost = outages, killed_rows(table)
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
    table: Schedule, owner: IntArray, outages: Outages, system: System, found: Findings
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
    tests = t.lost is not None
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
            stays = there & (owner != k) & ((end_s > time_s) | stops)
            # One that waits after its test is gone through after all that run.
            stays &= (start_s <= t.start_s[k]) | (tests & ~stops)
            held = np.zeros_like(capacity)
            counted = (stays | (there & (owner == k))).nonzero()[0]
            amount = t.request[owner[counted]] * t.node_units[counted, None]
            if t.once is not None and t.head is not None:
                amount += t.once[owner[counted]] * t.head[counted, None]
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
        once=None if t.once is None else np.concatenate((t.once, 0 * lacking.amount)),
        head=None if t.head is None else np.concatenate((t.head, 0 * one)),
    ), np.concatenate((owner, len(t.id) + np.arange(count)))


def _waits_for_service(
    table: Schedule, waits: BoolArray, outages: Outages, system: System
) -> BoolArray:
    """Which of the jobs that wait in the end do so because of nodes that did not come back.

    One that does not fit the others does. If there is one, it may keep those back that do.
    """
    t, capacity = table, left_at_last(outages.happened, system)
    rows = waits.nonzero()[0].tolist()
    fits = fit_beside_nothing(t, capacity, np.array(rows, dtype=np.int64))
    return waits if not fits.all() else np.zeros_like(waits)


def _left_out(table: Schedule, system: System, found: Findings) -> None:
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
    fits = fit_beside_nothing(t, system.capacity, claimed)
    found.add(
        Kind.NEVER_STARTED,
        claimed[fits],
        lambda k: f"job {t.id[k]} never started as one that never fits, and it fits",
    )


def fit_beside_nothing(table: Schedule, capacity: IntArray, rows: IntArray) -> BoolArray:
    """Which jobs, given by their rows, fit nodes when nothing else is there, shape (rows,)."""
    t = table
    found = fit_empty(capacity, t.units[rows], t.request[rows])
    if t.once is not None:
        for k in (found & t.once[rows].any(axis=1)).nonzero()[0].tolist():
            row = rows[k]
            found[k] = fits_with_first(capacity, int(t.units[row]), t.request[row], t.once[row])
    return found


def _in_sequence(table: Schedule, preceding: IntArray, think_s: IntArray, found: Findings) -> None:
    """Jobs that come after another one: it has ended before them, or could never run.

    Attempts that were killed or stopped begin no earlier than last ones do.
    """
    t, think_s = table, np.maximum(think_s, 0)
    by_id = np.argsort(t.id, kind="stable")
    at = np.minimum(np.searchsorted(t.id[by_id], preceding), len(t.id) - 1)
    row = by_id[at]
    first_s = np.where(t.start_s < 0, np.iinfo(np.int64).max, t.start_s)
    if t.lost is not None:
        first_s = np.where(t.lost.start_s < 0, first_s, np.minimum(first_s, t.lost.start_s))
    if t.outages is not None:
        np.minimum.at(first_s, t.outages.row, t.outages.start_s)
    after = (first_s < np.iinfo(np.int64).max) & (preceding >= 0) & (t.id[row] == preceding)
    after &= row < np.arange(len(row))
    ran = t.start_s[row] >= 0
    found.add(
        Kind.DEPENDENCY,
        (after & ran & (first_s < t.end_s[row] + think_s)).nonzero()[0],
        lambda k: too_soon_text(
            f"job {t.id[k]} starts at {first_s[k]}",
            int(preceding[k]),
            int(t.end_s[row[k]]),
            int(think_s[k]),
        ),
    )
    found.add(
        Kind.DEPENDENCY,
        (after & ~ran & ~t.never_fits[row] & ~t.rejected[row]).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} starts at {first_s[k]}, and job {preceding[k]}, after which it "
            "comes, never started"
        ),
    )


def _requests(table: Schedule, system: System, found: Findings) -> None:
    """What each job asks for: at least one unit of something.

    A number below 0 says how many units may share a node, of a type of which no node has any.
    """
    t = table
    found.add(
        Kind.UNITS,
        (t.units <= 0).nonzero()[0],
        lambda k: f"job {t.id[k]} asks for {t.units[k]} units",
    )
    below = (t.request < 0) & (system.total > 0)
    found.add(
        Kind.UNITS,
        np.flatnonzero(np.any(below, axis=1) | (t.request.max(axis=1) <= 0)),
        lambda k: (
            f"job {t.id[k]} asks for "
            + ", ".join(
                f"{n} {name}" for name, n in zip(system.resources, t.request[k], strict=True)
            )
            + " a unit"
        ),
    )


def _places(
    table: Schedule, owner: IntArray, system: System, found: Findings
) -> tuple[BoolArray, BoolArray]:
    """Nodes and units of each job; returns which entries are sound enough to be added up.

    Those that last, and those that end in the second in which they start.
    """
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
    passing = (t.start_s >= 0) & (t.end_s == t.start_s)
    return known & lasting[owner], known & passing[owner]


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
        amount = t.held(owner, r)[entry]
        np.negative(amount, out=amount, where=~begins)
        np.cumsum(amount, out=amount)
        capacity = system.capacity[:, r]
        if amount.max() > capacity.min() and (amount > capacity[event]).any():
            return False
    return True


def _levels(table: Schedule, owner: IntArray, system: System, found: Findings) -> None:
    """Every node and resource at every instant."""
    t = table
    if _holds_no_more(t, owner, system):
        return
    times = np.unique(np.concatenate((t.start_s, t.end_s)))
    begin, end = np.searchsorted(times, t.start_s)[owner], np.searchsorted(times, t.end_s)[owner]
    sweep = Sweep(t.node, times, begin, end)
    del begin, end
    for r in range(len(system.resources)):
        amount = t.held(owner, r)
        level = sweep.level(amount)
        allowed = system.capacity[:, r][sweep.place]

        def text(k: int, r: int = r, level: IntArray = level, amount: IntArray = amount) -> str:
            node, time = int(sweep.place[k]), int(sweep.time[k])
            here, some = owner[t.node == node], amount[t.node == node] > 0
            on = (t.start_s[here] <= time) & (time < t.end_s[here]) & some
            here = here[on]
            lacking = int(t.request[here[t.id[here] == _LACK], r].sum())
            return (
                f"{place_text(system, node, r, time)}: {level[k] - lacking} held by "
                f"{jobs_text(t.id[here[t.id[here] != _LACK]].tolist())}, "
                f"{system.capacity[node, r] - lacking} allowed"
            )

        found.add(Kind.CAPACITY, sweep.firsts(level > allowed), text)


def _passing(
    table: Schedule, owner: IntArray, brief: Schedule, row: IntArray, system: System,
    found: Findings,
) -> None:  # fmt: skip
    """Jobs that end in the second in which they start: they fit beside what was there all along.

    What starts or ends in the same second may have come after them, or have been gone.

    Parameters
    ----------
    brief : Schedule
        With the entries of these jobs.
    row : int64 array, shape (its entries,)
        Whose they are.
    """
    t, node = table, brief.node
    around = Around(t.node, t.start_s[owner], t.end_s[owner], node, t.start_s[row])
    for r, name in enumerate(system.resources):
        held, own = around.level(t.held(owner, r)), brief.held(row, r)
        found.add(
            Kind.CAPACITY,
            ((own > 0) & (held + own > system.capacity[node, r])).nonzero()[0],
            lambda e, name=name, r=r, held=held, own=own: (  # type: ignore[misc]
                f"job {t.id[row[e]]} starts and ends on node {node[e]} at {t.start_s[row[e]]} with "
                f"{own[e]} {name}: {held[e]} are held, "
                f"{system.capacity[node[e], r]} allowed"
            ),
        )
