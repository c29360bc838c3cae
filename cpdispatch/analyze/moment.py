"""One moment of a schedule: what ran where, what waited and why, and how much was in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cpdispatch.analyze.explain import (
    CAPACITY,
    COMBINATION,
    JOB,
    LIMIT,
    MAINTENANCE,
    ORDER,
    leave_telling,
    parts_of,
    ready_s,
)
from cpdispatch.analyze.occupancy import (
    FOREVER,
    NEVER,
    NEVER_FITS,
    REJECTED,
    Occupancy,
)
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import UsageError
from cpdispatch.system import System, is_own, room_in


@dataclass(frozen=True, slots=True)
class Running:
    """A job that held nodes."""

    job: int
    units: int
    start_s: int
    """Of the attempt that ran then."""
    end_s: int | None
    """None in a run that is not over, where the job still runs."""
    nodes: tuple[tuple[int, int], ...]
    """Each node, and how many of the units were there."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waited."""

    job: int
    units: int
    requested_s: int
    submit_s: int
    start_s: int | None
    """When it started at last; None where it has not, or never did."""
    cause: str
    """``job``, ``limit``, ``capacity``, ``maintenance`` or ``order``, as in
    `cpdispatch.analyze.explain.Stretch`.
    """
    lacking: tuple[str, ...]
    """With ``capacity``, the resource types of which too little was free; with ``limit``, what had
    no room.
    """
    room: int
    """For how many of its units there was room."""


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a resource type was held on the nodes of a group."""

    group: str
    resource: str
    held: int
    total: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What a system was like after the dispatch of an instant."""

    at_s: int
    running: tuple[Running, ...]
    waiting: tuple[Waiting, ...]
    """In the order of submission."""
    use: tuple[Use, ...]
    """By group, and by resource type of which the group has some."""
    down: tuple[int, ...]
    drained: tuple[int, ...]
    """Nodes out of service."""
    off: tuple[int, ...] = ()
    """Nodes that are switched off, or are on their way back."""


def moment(
    schedule: Occupancy,
    at_s: int,
    until_s: int | None = None,
    said: Callable[[int], str] = "{} s".format,
) -> Moment:
    """What a schedule was like at a time.

    Parameters
    ----------
    at_s : int
        Seconds on the clock of the log. Jobs that start then run, and those that end then do not.
    until_s : int, optional
        Until when a run that is not over is known.
    said : function, optional
        How errors name a time.

    Raises
    ------
    UsageError
        When the time is before the first submission or after what is known.
    """
    t = schedule
    first_s = int(t.submit_s.min())
    last_s, so_far = (t.last_s - 1, "") if until_s is None else (until_s, " so far")
    if not first_s <= at_s <= last_s:
        raise UsageError(
            f"time {said(at_s)} is outside of the run: it goes from {said(first_s)} to "
            f"{said(last_s)}{so_far}"
        )
    holds = t.during(at_s, at_s + 1)
    held = np.zeros_like(t.system.capacity)
    np.add.at(held, holds.node, t.amount(holds))
    down, drained = (np.unique(outages.at(at_s)) for outages in (t.down, t.drained))
    there = t.system.capacity.copy()
    if (less := t.lacking) is not None:
        now = (less.begin_s <= at_s) & (at_s < less.end_s)
        there[less.node[now]] -= less.amount[now]
    free = np.maximum(there - held, 0)
    off = np.unique(t.off.at(at_s))
    free[down] = free[drained] = free[off] = 0
    running = []
    for row in np.unique(holds.row).tolist():
        mine = (holds.row == row).nonzero()[0]
        places = zip(holds.node[mine].tolist(), holds.units[mine].tolist(), strict=True)
        start_s, end_s = holds.start_s.item(mine[0]), holds.end_s.item(mine[0])
        ended = None if end_s == FOREVER else end_s
        running.append(Running(t.id.item(row), t.units.item(row), start_s, ended, tuple(places)))
    waiting = [
        _waiting(t, row, at_s, free)
        for row in _rows_waiting(t, at_s, holds.row).nonzero()[0].tolist()
    ]
    return Moment(
        at_s, tuple(running), tuple(waiting), use_of(t.system, held), tuple(down.tolist()),
        tuple(drained.tolist()), tuple(off.tolist()),
    )  # fmt: skip


def _rows_waiting(t: Occupancy, at_s: int, running: IntArray) -> BoolArray:
    """Which jobs are submitted, have not started for the last time, and do not run."""
    found: BoolArray = (t.submit_s <= at_s) & ~t.because(NEVER_FITS, REJECTED)
    found &= (t.start_s == NEVER) | (t.start_s > at_s)
    found[running] = False
    return found


def _waiting(t: Occupancy, row: int, at_s: int, free: IntArray) -> Waiting:
    units, request = t.units.item(row), t.request[row]
    room, lacking = _room(request, units, free), tuple[str, ...]()
    limits = [why for from_s, until_s, why in t.held_back(row) if from_s <= at_s < until_s]
    if limits:
        cause, lacking = LIMIT, tuple(limits)
    elif at_s < ready_s(t, row):
        cause = JOB
    elif room >= units:
        room = _room(request, units, _beside_windows(t, row, at_s, free))
        cause = ORDER if room >= units else MAINTENANCE
    else:
        cause = CAPACITY
        lacking = _lacking(t.system.resources, request, units, free) or (COMBINATION,)
    start_s = t.start_s.item(row)
    return Waiting(
        t.id.item(row), units, t.requested_s.item(row), t.submit_s.item(row),
        None if start_s == NEVER else start_s, cause, lacking, room,
    )  # fmt: skip


def _beside_windows(t: Occupancy, row: int, at_s: int, free: IntArray) -> IntArray:
    """What is free on nodes on which a job is not expected to run into a window."""
    expected_s = t.expected_s.item(row) if t.expected_s[row] >= 0 else t.requested_s.item(row)
    ahead = t.announced.ahead(at_s, max(expected_s, 1))
    if not ahead.any():
        return free
    clear = free.copy()
    clear[t.announced.node[ahead]] = 0
    return clear


def _room(request: IntArray, units: int, free: IntArray) -> int:
    """For how many of a job's units there is room; ``free`` has shape (nodes, resources)."""
    return min(int(room_in(free, request, units).sum()), units)


def _lacking(
    resources: Sequence[str], request: IntArray, units: int, free: IntArray
) -> tuple[str, ...]:
    """The resource types of which too little is free for so many units."""
    short = np.zeros(len(resources), dtype=np.bool_)
    for kind, part in parts_of(resources, request):
        short[kind] = _room(part, units, free) < units
    leave_telling(resources, request, short)
    return tuple(resources[kind] for kind in short.nonzero()[0].tolist())


def use_of(system: System, held: IntArray) -> tuple[Use, ...]:
    """What is held by group and resource type; ``held`` has shape (nodes, resources).

    Types that stand for where jobs may run are left out.
    """
    found = []
    for number, group in enumerate(system.groups):
        of_group = held[system.group_of == number].sum(axis=0).tolist()
        for name, one, amount in zip(system.resources, group.capacity, of_group, strict=True):
            if one and is_own(name):
                found.append(Use(group.name, name, amount, one * group.nodes))
    return tuple(found)
