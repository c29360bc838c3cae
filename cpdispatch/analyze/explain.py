"""Why a job waited in a schedule, and what would have let it start sooner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from cpdispatch.access import is_place, is_whole
from cpdispatch.analyze.metrics import kept_s
from cpdispatch.analyze.occupancy import (
    BACKFILLED,
    LATE,
    NEVER,
    NEVER_FITS,
    REJECTED,
    UNTOLD,
    Holds,
    Occupancy,
    Room,
    by_stretch,
)
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import UsageError
from cpdispatch.system import is_own, room_beside_once, room_in

COMBINATION = "a free node combination"
"""What is lacking when there is enough of each resource type, but not together on nodes."""
NEAR = 3
"""How many ids are shown when a job is not found."""

JOB, LIMIT, CAPACITY, MAINTENANCE, ORDER = "job", "limit", "capacity", "maintenance", "order"
"""What holds a job back: a job before it, a limit, what is taken, maintenance that is announced, or
the dispatcher's choice.
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time in which one thing held the job back."""

    from_s: int
    until_s: int
    cause: str
    """``job`` (the job that it comes after has not ended, or its think time has not passed),
    ``limit`` (a limit, a licence, its array or the power cap had no room, or its time had not
    come), ``capacity`` (the job did not fit beside what ran), ``maintenance`` (it did, and was
    expected to run into a window that was known on too many of the free nodes), or ``order`` (it
    did, and the dispatcher did not start it: it started others first, or kept the room for one).
    """
    lacking: tuple[str, ...]
    """With ``capacity``, the resource types of which too little was free at each instant, or
    `COMBINATION`; with ``limit``, what had no room, in words.
    """
    room_min: int
    room_max: int
    """For how many of the job's units there was room, at the instants of the stretch; the number of
    its units at most. With ``maintenance``, beside the nodes on which it would run into a window.
    """
    ran: int
    """How many other jobs held something of what was lacking, with ``order`` anything, at some time
    of the stretch.
    """
    ended: int
    """How many of these ended within the stretch, or at its end."""
    overtook: int
    """How many jobs that were submitted later than this one started within the stretch."""
    started_ahead: int
    """How many jobs that were submitted earlier started within the stretch."""
    preferred: int
    """How many jobs of a higher priority of the site started within the stretch."""
    higher: int
    """How many jobs of a higher tier of partitions started within the stretch."""
    ahead: int
    """How many jobs that were submitted earlier waited at the beginning of the stretch."""
    nodes_out: int
    """How many nodes were down, drained or switched off at the beginning."""
    fits_for_s: int | None = None
    """With ``order``, for how long the job's units were free from the beginning of the stretch on,
    all other jobs as they were: at most as long as the job needs. Else None.
    """
    then: tuple[int, ...] = ()
    """With ``order``, the jobs that started at the end of that time, by id."""
    window_s: int | None = None
    """With ``maintenance``, when the first of the windows begins that are in the way at the
    beginning of the stretch. Else None.
    """


@dataclass(frozen=True, slots=True)
class Fewer:
    """At a time, a number of units would have fit for as long as the job needs."""

    at_s: int
    units: int


@dataclass(frozen=True, slots=True)
class Shorter:
    """At a time, all units of the job would have fit for so many seconds."""

    at_s: int
    fits_s: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waited, and what would have let it start sooner.

    All times are seconds on the clock of the log.
    """

    job: int
    """Its id."""
    units: int
    request: tuple[tuple[str, int], ...]
    """What each unit asks of each resource type of which it asks something."""
    requested_s: int
    expected_s: int
    """The requested time, and what the predictor said."""
    needs_s: int
    """For how long the job must have its units: the requested time, or how long it ran if that is
    longer.
    """
    submit_s: int
    start_s: int | None
    end_s: int | None
    ran_s: int | None
    wait_s: int | None
    """None for a job that never started. The wait is as in the figures of the run: without the
    time in which it did what its checkpoints kept.
    """
    saved_s: int
    """How long it did what its checkpoints kept of the earlier attempts, see `metrics.kept_s`."""
    failed: bool
    """Whether it ended as failed: it was stopped, as by a node that failed, and not queued again.
    """
    reason: str
    """Why it started, or never did, in the words of the table of jobs."""
    after_job: int | None
    """The job that it comes after, where that kept it back for a time."""
    attempts: tuple[tuple[int, int], ...]
    """Start and stop of earlier attempts at it that were killed."""
    tests: tuple[bool, ...]
    """Which of these were test runs."""
    promised_at_s: int | None
    promised_s: int | None
    """When the dispatcher first promised it a later start, and that start; None where it did not.
    """
    promises_known: bool
    """Whether the run recorded promises."""
    waiting_at_submit: int
    """How many jobs that were submitted earlier waited when the job was submitted."""
    first_of_those: int
    """How many of them started before it."""
    overtook: int
    """How many jobs that were submitted later started before it."""
    overtook_backfilled: int
    overtook_late: int
    overtook_untold: int
    """How many of those were backfilled, or were started since they had waited too long, or for a
    reason that a record of another system does not tell.

    The others came before it in the order of the dispatcher.
    """
    decisions: int
    """How many dispatches there were while it waited."""
    stretches: tuple[Stretch, ...]
    """Its waiting, without gaps except for the earlier attempts."""
    freed_by: tuple[int, ...]
    """The jobs that ended as it started, on its nodes, and whose capacity it needed: by id.

    Empty when the last stretch is not one of ``capacity``.
    """
    fewer: tuple[Fewer, ...]
    """With fewer units, all other jobs as they were: the most that would have fit at the first
    instant, and then each instant from which more fit than at any before it. The last one has all
    units if the job would have fit as it was.
    """
    shorter: tuple[Shorter, ...]
    """With all units and a shorter requested time, in the same way: the first instant from which
    the units fit at all, and then each from which they fit for longer.
    """
    most_units: int
    """How many of its units the empty system has room for, its own number at most."""


def explain(schedule: Occupancy, job: int) -> Explanation:
    """Say why a job waited in a schedule, and what would have let it start sooner.

    The rest of the schedule is held as it was: every other job keeps its start, its end and its
    nodes. How the dispatcher would have answered another request is not asked.

    Parameters
    ----------
    job : int
        The job's id.

    Raises
    ------
    UsageError
        When the schedule has no such job.
    """
    found = _Case.of(schedule, row_of(schedule, job))
    t, row = schedule, found.row
    waits = [stretch for span in found.spans for stretch in _stretches(found, *span)]
    fewer, shorter = _sooner(found) if found.spans else ((), ())
    started = found.started
    end_s = int(t.end_s[row]) if started else None
    ahead, later = found.ahead(found.submit_s), found.later
    first = (t.start_s[ahead] != NEVER) & (t.start_s[ahead] < found.start_s)
    promised = NEVER if t.promised_s is None else int(t.promised_s[row])
    saved_s = 0 if t.saved_s is None else int(kept_s(t.saved_s, t.failed)[row])
    return Explanation(
        job=job,
        units=int(t.units[row]),
        request=tuple(
            (name, int(asked))
            for name, asked in zip(t.system.resources, t.request[row].tolist(), strict=True)
            if asked
        ),
        requested_s=int(t.requested_s[row]),
        expected_s=int(t.expected_s[row]),
        needs_s=found.needs_s,
        submit_s=found.submit_s,
        start_s=found.start_s if started else None,
        end_s=end_s,
        ran_s=found.ran_s if started else None,
        wait_s=found.start_s - found.submit_s - saved_s if started else None,
        saved_s=saved_s,
        failed=t.failed is not None and bool(t.failed[row]),
        reason=t.reasons[t.reason[row]],
        after_job=int(t.preceding[row])
        if t.preceding is not None and found.ready_s > found.submit_s
        else None,
        attempts=found.attempts,
        tests=found.tests,
        promised_at_s=None if t.promised_at_s is None or promised == NEVER
        else int(t.promised_at_s[row]),
        promised_s=None if promised == NEVER else promised,
        promises_known=t.promised_s is not None,
        waiting_at_submit=len(ahead),
        first_of_those=int(first.sum()),
        overtook=len(later),
        overtook_backfilled=int(t.because(BACKFILLED)[later].sum()),
        overtook_late=int(t.because(LATE)[later].sum()),
        overtook_untold=int(t.because(UNTOLD)[later].sum()),
        decisions=sum(
            int(np.subtract(*np.searchsorted(t.decision_s, (until_s, from_s))))
            for from_s, until_s in found.spans
        ),
        stretches=tuple(waits),
        freed_by=_freed_by(found) if waits and waits[-1].cause == CAPACITY and started else (),
        fewer=fewer,
        shorter=shorter,
        most_units=_most_units(found),
    )  # fmt: skip


def row_of(schedule: Occupancy, job: int) -> int:
    """The row of a job in a schedule.

    Raises
    ------
    UsageError
        When there is none; it names ids that are near.
    """
    if isinstance(job, bool) or not isinstance(job, int | np.integer):
        raise UsageError(f"job {job!r}: the id of a job, a whole number, is needed")
    found = (schedule.id == job).nonzero()[0]
    if len(found):
        return int(found[0])
    distance = np.abs(schedule.id - job)
    near = np.sort(schedule.id[np.argsort(distance, kind="stable")[:NEAR]]).tolist()
    raise UsageError(
        f"the run has no job {job}; ids near it: {', '.join(map(str, near))} "
        f"(it has {len(schedule.id):,} jobs, {schedule.id.min()} to {schedule.id.max()})"
    )


class _Case(NamedTuple):
    """A job, when it waited, and what others held then and for as long as it needs afterwards."""

    schedule: Occupancy
    row: int
    submit_s: int
    start_s: int
    """Its last start; of a job that never started, a time after the last event."""
    started: bool
    ran_s: int
    needs_s: int
    ready_s: int
    """From when on it need not wait for the job that it comes after."""
    attempts: tuple[tuple[int, int], ...]
    tests: tuple[bool, ...]
    spans: tuple[tuple[int, int], ...]
    """When it waited: [from, until)."""
    holds: Holds
    """What other jobs hold from its submission on until it would have ended at the latest."""
    room: Room
    earlier: IntArray
    """The rows of jobs that were submitted before it and started after its submission, or never."""
    later: IntArray
    """The rows of jobs that were submitted after it and started before it."""

    @classmethod
    def of(cls, t: Occupancy, row: int) -> _Case:
        started = int(t.start_s[row]) != NEVER
        submit_s = int(t.submit_s[row])
        gone = t.because(NEVER_FITS, REJECTED)
        start_s = int(t.start_s[row]) if started else submit_s if gone[row] else t.last_s
        ran_s = int(t.end_s[row]) - start_s if started else 0
        needs_s = max(int(t.requested_s[row]), ran_s, 1)
        mine = ((t.lost.row == row) & (t.lost.start_s != NEVER)).nonzero()[0]
        mine = mine[np.argsort(t.lost.start_s[mine])]
        attempts = tuple(
            zip(t.lost.start_s[mine].tolist(), t.lost_stop_s[mine].tolist(), strict=True)
        )
        begins = [submit_s, *(end for _, end in attempts)]
        ends = [*(start for start, _ in attempts), start_s]
        spans = tuple((a, b) for a, b in zip(begins, ends, strict=True) if a < b)
        horizon_s = start_s + needs_s
        holds = t.during(submit_s, horizon_s)
        holds = holds.take(holds.row != row)
        room = Room(t, row, holds, submit_s, horizon_s)
        ready = min(ready_s(t, row), start_s)
        open_ = (t.start_s[:row] == NEVER) | (t.start_s[:row] > submit_s)
        before = (t.start_s[row + 1 :] != NEVER) & (t.start_s[row + 1 :] < start_s)
        return cls(
            t, row, submit_s, start_s, started, ran_s, needs_s, ready, attempts,
            tuple(t.lost_test[mine].tolist()), spans, holds, room,
            (open_ & ~gone[:row]).nonzero()[0], row + 1 + before.nonzero()[0],
        )  # fmt: skip

    @property
    def asks(self) -> IntArray:
        """What each of its units asks for, and what it takes once, see `Occupancy.asks`."""
        return self.schedule.asks(self.row)

    @property
    def request(self) -> IntArray:
        """What each of its units asks for, shape (resources,)."""
        return self.asks[: len(self.schedule.system.resources)]

    @property
    def units(self) -> int:
        return int(self.schedule.units[self.row])

    def expected_s(self, time_s: int) -> int:
        """For how long it was expected to run from a time on, without what checkpoints kept."""
        t = self.schedule
        found = int(t.expected_s[self.row])
        found = int(t.requested_s[self.row]) if found < 0 else found
        if t.saved_s is not None and self.attempts and time_s >= self.attempts[-1][1]:
            found -= int(t.saved_s[self.row])
        return max(found, 1)

    def ahead(self, time_s: int) -> IntArray:
        """The rows of jobs submitted before it that wait after the dispatch at a time."""
        t = self.schedule
        waits = (t.start_s[self.earlier] == NEVER) | (t.start_s[self.earlier] > time_s)
        rows = self.earlier[waits]
        tried = (t.lost.start_s <= time_s) & (time_s < t.lost.end_s)
        found: IntArray = rows[~np.isin(rows, t.lost.row[tried])] if tried.any() else rows
        return found


def ready_s(t: Occupancy, row: int) -> int:
    """From when on a job need not wait for the one that it comes after."""
    submit_s = int(t.submit_s[row])
    if t.preceding is None or t.think_s is None or t.preceding[row] < 0:
        return submit_s
    before = (t.id[:row] == t.preceding[row]).nonzero()[0]
    if not len(before):
        return submit_s
    if t.end_s[before[0]] == NEVER:
        refused = t.because(NEVER_FITS, REJECTED)[before[0]]
        return submit_s if refused else t.last_s
    return max(submit_s, int(t.end_s[before[0]]) + max(int(t.think_s[row]), 0))


def _stretches(case: _Case, from_s: int, until_s: int) -> list[Stretch]:
    """What held the job back in a span of its waiting, one cause after the other."""
    t, room, units = case.schedule, case.room, case.units
    found: list[Stretch] = []
    for begin_s, end_s, why in t.held_back(case.row):
        low, high = max(begin_s, from_s), min(end_s, until_s)
        if low < high:
            found += _stretches(case, from_s, low)
            none = np.zeros(1, dtype=np.int64)
            found.append(_stretch(case, low, high, LIMIT, (why,), none))
            from_s = high
    if from_s < case.ready_s:
        blocked_s = min(case.ready_s, until_s)
        found.append(_stretch(case, from_s, blocked_s, JOB, (), np.zeros(1, dtype=np.int64)))
        from_s = blocked_s
    if from_s == until_s:
        return found
    expected_s, announced = case.expected_s(from_s), t.announced
    changes = [room.changes_s, announced.known_s, announced.begin_s - expected_s + 1]
    changes_s = np.unique(np.concatenate([*changes, announced.begin_s]))
    time_s = np.append(from_s, changes_s[(from_s < changes_s) & (changes_s < until_s)])
    fits = room.fits(case.asks, time_s, time_s + 1, units)
    clear = fits
    if len(announced.node):
        clear = room.fits(case.asks, time_s, time_s + 1, units, expected_s)
    short = np.zeros((len(time_s), len(t.system.resources)), dtype=np.bool_)
    for kind, part in parts_of(t.system.resources, case.request):
        short[:, kind] = room.fits(part, time_s, time_s + 1, units) < units
    for once, part in _parts_taken_once(case):
        short[:, once] = room.fits(part, time_s, time_s + 1, units) < units
    leave_telling(t.system.resources, case.request, short)
    for once, of in t.system.once:
        short[:, once] &= ~short[:, of]
    # 0: it fits; 1: it does not, though enough is free of each; else a bit for each that is short.
    state = np.where(fits < units, 1, 0) + short @ (2 << np.arange(short.shape[1]))
    state[(state == 0) & (clear < units)] = -1
    parts = list(by_stretch(state))
    fitting = np.array([first for first, _ in parts if state[first] == 0], dtype=np.int64)
    lasts_s = room.longest(case.asks, time_s[fitting], units, case.needs_s)
    fits_for_s = dict(zip(fitting.tolist(), lasts_s.tolist(), strict=True))
    for first, after in parts:
        end_s = int(time_s[after]) if after < len(time_s) else until_s
        lacking = tuple(name for k, name in enumerate(t.system.resources) if short[first, k])
        cause = ORDER if first in fits_for_s else CAPACITY
        if state[first] < 0:
            cause = MAINTENANCE
        if cause == CAPACITY and not lacking:
            lacking = (COMBINATION,)
        span = int(time_s[first]), end_s
        rooms = (clear if cause == MAINTENANCE else fits)[first:after]
        found.append(_stretch(case, *span, cause, lacking, rooms, fits_for_s.get(first)))
    return found


def parts_of(resources: Sequence[str], request: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Each resource type that a job asks for, and the request by which its lack is judged.

    A type of some nodes is judged with the own types that it is made of, and one of whole nodes
    with the types of the nodes that the job may use. Any other is judged alone.
    """
    places = np.array([is_place(name) for name in resources], dtype=np.bool_)
    for kind in (request > 0).nonzero()[0].tolist():
        name, judged = resources[kind], np.zeros(len(resources), dtype=np.bool_)
        if is_whole(name):
            judged[:] = places
        elif places[kind]:
            judged[:] = [name.startswith(f"{own}@") for own in resources]
        judged[kind] = True
        yield kind, np.where(judged, request, 0)


def _parts_taken_once(case: _Case) -> Iterator[tuple[int, IntArray]]:
    """Each resource type that a job takes once, and the request by which its lack is judged.

    That is beside a unit, which asks for nothing else.
    """
    asks, resources = case.asks, len(case.schedule.system.resources)
    for once, of in case.schedule.system.once if len(asks) > resources else ():
        if asks[resources + of]:
            part = np.zeros_like(asks)
            part[[of, resources + of]] = asks[[of, resources + of]]
            yield once, part


def leave_telling(resources: Sequence[str], request: IntArray, short: BoolArray) -> None:
    """Of types that are short, leave those that say the most, in place; shape (..., types).

    Cores on some nodes say more than whole nodes, and both say more than cores. To a job that does
    not ask for whole nodes, those that others hold whole are cores that are not free.
    """
    own = {name: k for k, name in enumerate(resources) if is_own(name) and request[k] > 0}
    for kind, name in enumerate(resources):
        base = [own[_base(name)]] if _base(name) in own else list(own.values())
        if is_whole(name) and request[kind] <= request[base].sum():
            short[..., base] |= short[..., kind, np.newaxis]
            short[..., kind] = False
    for test, others in ((is_place, (is_whole, is_own)), (is_whole, (is_own,))):
        for kind, name in enumerate(resources):
            if not test(name):
                continue
            for other, its_name in enumerate(resources):
                if any(less(its_name) for less in others) and _base(its_name) == _base(name):
                    short[..., other] &= ~short[..., kind]


def _base(name: str) -> str:
    return name.partition("@")[0]


def _stretch(
    case: _Case,
    from_s: int,
    until_s: int,
    cause: str,
    lacking: tuple[str, ...],
    room: IntArray,
    fits_for_s: int | None = None,
) -> Stretch:
    """One stretch, with what ran, ended and started in it."""
    t, holds = case.schedule, case.holds
    there = (holds.start_s < until_s) & (holds.end_s > np.maximum(from_s, holds.start_s))
    there &= _on(t, holds, lacking, case.request)
    ended = there & (holds.end_s <= until_s)
    earlier_s, later_s = t.start_s[case.earlier], t.start_s[case.later]
    out = np.concatenate([outages.at(from_s) for outages in (t.down, t.takes_no_job)])
    then, window_s = _ids(t, holds.row[:0]), None
    if cause == MAINTENANCE:
        window_s = int(
            t.announced.begin_s[t.announced.ahead(from_s, case.expected_s(from_s))].min()
        )
    if fits_for_s is not None and fits_for_s < case.needs_s:
        then = _ids(t, holds.row[holds.start_s == from_s + fits_for_s])
    return Stretch(
        from_s=from_s,
        until_s=until_s,
        cause=cause,
        lacking=lacking,
        room_min=int(room.min()),
        room_max=int(room.max()),
        ran=len(np.unique(holds.row[there])),
        ended=len(np.unique(holds.row[ended])),
        overtook=int(((from_s <= later_s) & (later_s < until_s)).sum()),
        started_ahead=int(((from_s <= earlier_s) & (earlier_s < until_s)).sum()),
        preferred=_started_above(case, t.priority, from_s, until_s),
        higher=_started_above(case, t.tier, from_s, until_s),
        ahead=len(case.ahead(from_s)),
        nodes_out=len(np.unique(out)),
        fits_for_s=fits_for_s,
        then=then,
        window_s=window_s,
    )


def _on(t: Occupancy, holds: Holds, lacking: Sequence[str], request: IntArray) -> BoolArray:
    """Which entries hold something of what is lacking; or else of what a request asks for.

    Of a type of some nodes, those are the entries on them.
    """
    of_once = dict(t.system.once)
    kinds = [of_once.get(k, k) for k, name in enumerate(t.system.resources) if name in lacking]
    if not kinds:
        kinds = (request > 0).nonzero()[0].tolist()
    held = t.amount(holds)[:, kinds] > 0
    for column, kind in enumerate(kinds):
        if is_place(t.system.resources[kind]):
            held[:, column] = t.system.capacity[holds.node, kind] > 0
    return np.asarray(held.any(axis=1), dtype=np.bool_)


def _started_above(case: _Case, rank: IntArray | None, from_s: int, until_s: int) -> int:
    """How many jobs of a higher priority, or tier, started in a stretch; shape (jobs,)."""
    t = case.schedule
    if rank is None:
        return 0
    higher = rank > rank[case.row]
    return int((higher & (from_s <= t.start_s) & (t.start_s < until_s)).sum())


def _ids(t: Occupancy, rows: IntArray) -> tuple[int, ...]:
    """The ids of jobs, each once, in the order of submission."""
    return tuple(t.id[np.unique(rows)].tolist())


def _freed_by(case: _Case) -> tuple[int, ...]:
    """The jobs that ended when this one started, on nodes where it runs, by id."""
    t, holds = case.schedule, case.holds
    mine = t.final.node[t.final.offset[case.row] : t.final.offset[case.row + 1]]
    ended = (holds.end_s == case.start_s) & (holds.start_s < case.start_s)
    asked = case.asks.reshape(-1, len(case.request)).any(axis=0)
    shared = (t.amount(holds)[:, asked] > 0).any(axis=1)
    return _ids(t, holds.row[ended & shared & np.isin(holds.node, mine)])


def _sooner(case: _Case) -> tuple[tuple[Fewer, ...], tuple[Shorter, ...]]:
    """What would have fit earlier, from each instant of its last wait at which room came free."""
    room, units = case.room, case.units
    let_in_s = [until_s for _, until_s, _ in case.schedule.behind.of(case.row)]
    queued_again_s = [end_s for _, end_s in case.attempts]
    first_s = max(case.ready_s, *queued_again_s, *let_in_s, case.submit_s)
    if first_s >= case.start_s:
        return (), ()
    freed = room.freed_s[(first_s < room.freed_s) & (room.freed_s < case.start_s)]
    at_s = np.append(first_s, freed)
    fits = room.fits(case.asks, at_s, at_s + case.needs_s, units)
    fits_s = room.longest(case.asks, at_s, units, case.needs_s)
    fewer = [Fewer(int(at_s[0]), int(fits[0]))]
    fewer += [Fewer(int(at_s[k]), int(fits[k])) for k in _records(fits) if k]
    shorter = [Shorter(int(at_s[k]), int(fits_s[k])) for k in _records(fits_s) if fits_s[k]]
    return tuple(fewer), tuple(shorter)


def _records(values: IntArray) -> list[int]:
    """The positions of values that are greater than all before them."""
    best = np.maximum.accumulate(values)
    found: list[int] = (np.append(True, best[1:] > best[:-1])).nonzero()[0].tolist()
    return found


def _most_units(case: _Case) -> int:
    capacity = case.schedule.system.capacity
    of_node, first = room_in(capacity, case.request, case.units), case.asks[len(case.request) :]
    lost = 0
    if len(first):
        on_first = room_beside_once(capacity, case.request, first, case.units)
        lost = (of_node - on_first)[on_first > 0].min(initial=of_node.sum())
    return min(int(of_node.sum() - lost), case.units)


def as_dict(found: Explanation) -> dict[str, Any]:
    """An explanation as what JSON knows: numbers, texts, lists and objects."""
    made = asdict(found)
    made["request"] = dict(found.request)
    return made
