"""What jobs held of a system over a whole schedule, and what room they left on its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cpdispatch.analyze.energy import Drawn
from cpdispatch.arrays import BoolArray, IntArray, ranges
from cpdispatch.energy import Steps
from cpdispatch.system import System, room_beside_once, room_in

_TABLES = 2
"""For so many requests it is kept how much room each node has."""
NEVER = -1
FOREVER = 2**62
BACKFILLED, LATE, NEVER_FITS, REJECTED = "backfilled", "late", "never_fits", "rejected"
UNTOLD = "unknown"
"""Reasons of starts, and of jobs that leave the queue without one."""


@dataclass(frozen=True, slots=True, eq=False)
class Holds:
    """What was held of nodes, one entry an attempt at a job and node."""

    row: IntArray
    """The job's row in the schedule, shape (entries,)."""
    node: IntArray
    units: IntArray
    """Shape (entries,)."""
    start_s: IntArray
    end_s: IntArray
    """The node is held from the start on and is free again at the end, shape (entries,)."""
    first: IntArray
    """1 for the first node of an attempt, else 0, shape (entries,)."""

    def take(self, which: BoolArray | IntArray) -> Holds:
        """Some of the entries."""
        columns = (self.row, self.node, self.units, self.start_s, self.end_s, self.first)
        return Holds(*(column[which] for column in columns))


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """Attempts at jobs, each with its nodes."""

    row: IntArray
    """The job's row in the schedule, shape (attempts,)."""
    start_s: IntArray
    end_s: IntArray
    """Shape (attempts,)."""
    offset: IntArray
    """The k-th attempt's entries are ``offset[k]:offset[k + 1]``, shape (attempts + 1,)."""
    node: IntArray
    units: IntArray
    """Shape (entries,)."""

    def and_(self, more: Attempts) -> Attempts:
        """Both together."""
        return Attempts(
            np.concatenate((self.row, more.row)),
            np.concatenate((self.start_s, more.start_s)),
            np.concatenate((self.end_s, more.end_s)),
            np.concatenate((self.offset, self.offset[-1] + more.offset[1:])),
            np.concatenate((self.node, more.node)),
            np.concatenate((self.units, more.units)),
        )

    def during(self, begin_s: int, end_s: int) -> Holds:
        """What is held at some time in [begin, end), whole attempts."""
        meets = (self.start_s < end_s) & (self.end_s > np.maximum(begin_s, self.start_s))
        which = meets.nonzero()[0]
        count = self.offset[which + 1] - self.offset[which]
        attempt = np.repeat(which, count)
        entry = ranges(self.offset[which], count)
        node, units = (part[entry].astype(np.int64) for part in (self.node, self.units))
        return Holds(
            self.row[attempt], node, units, self.start_s[attempt], self.end_s[attempt],
            (entry == self.offset[attempt]).astype(np.int64),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """When nodes were out of service; arrays of shape (outages,)."""

    node: IntArray
    begin_s: IntArray
    end_s: IntArray
    """`FOREVER` is the end of those that had none."""

    def at(self, time_s: int) -> IntArray:
        """The nodes that are out of service at a time."""
        found: IntArray = self.node[(self.begin_s <= time_s) & (time_s < self.end_s)]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Lacking(Outages):
    """What nodes lacked of their capacity, and when."""

    amount: IntArray
    """Shape (spans, resources)."""


@dataclass(frozen=True, slots=True, eq=False)
class Announced(Outages):
    """Maintenance windows that are known before they begin, one entry a node."""

    known_s: IntArray
    """From when on each is known, shape (windows,)."""

    def of(self, node: int) -> Announced:
        """Those of a node."""
        mine = self.node == node
        return Announced(
            *(each[mine] for each in (self.node, self.begin_s, self.end_s, self.known_s))
        )

    def ahead(self, time_s: int | IntArray, for_s: int) -> BoolArray:
        """Which of them a job would run into that is started at a time for so long."""
        found: BoolArray = (self.known_s <= time_s) & (time_s < self.begin_s)
        return found & (self.begin_s < time_s + for_s)


@dataclass(frozen=True, slots=True, eq=False)
class Behind:
    """When jobs were kept from the queue that the dispatcher saw; arrays of shape (spans,)."""

    row: IntArray
    from_s: IntArray
    until_s: IntArray
    """Of the table of jobs, ascending; a job may have several spans, one after the other."""
    why: Sequence[str]
    """What had no room for the job, in words."""

    def of(self, row: int) -> list[tuple[int, int, str]]:
        """The spans of a job."""
        low, high = np.searchsorted(self.row, (row, row + 1)).tolist()
        return [(int(self.from_s[k]), int(self.until_s[k]), self.why[k]) for k in range(low, high)]


_NONE = np.zeros(0, dtype=np.int64)
NOBODY_BEHIND = Behind(_NONE, _NONE, _NONE, ())
NO_OUTAGES = Outages(*np.zeros((3, 0), dtype=np.int64))
NOTHING_ANNOUNCED = Announced(*np.zeros((4, 0), dtype=np.int64))
NO_ATTEMPTS = Attempts(_NONE, _NONE, _NONE, np.zeros(1, dtype=np.int64), _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class PowerLeft:
    """What a power cap leaves."""

    drawn: Drawn
    """What jobs drew, attempts that were lost among them."""
    cap: Steps
    idle_watts: int
    """What the nodes draw by themselves."""

    def beside(self, row: int, begin_s: int) -> tuple[IntArray, IntArray]:
        """What is left beside the other jobs: times from ``begin_s`` on, and the watts from each.

        Shape (times,).
        """
        times, level = self.drawn.take(self.drawn.row != row).level()
        found = np.unique(np.concatenate(([begin_s], times, self.cap.time_s)).astype(np.int64))
        found = found[found >= begin_s]
        used = np.append(0, level)[np.searchsorted(times, found, side="right")]
        most = np.array([self.cap.at(time) for time in found.tolist()], dtype=np.int64)
        return found, most - used - self.idle_watts


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """A whole schedule: what each job asked for, and what was held when."""

    system: System
    id: IntArray
    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    units: IntArray
    requested_s: IntArray
    expected_s: IntArray
    """In the order of submission, shape (jobs,).

    Start and end are those of the last attempt, `NEVER` where there was none. The end is `FOREVER`
    where it is not known yet.
    """
    request: IntArray
    """Of each unit, shape (jobs, resources)."""
    reason: NDArray[np.int32]
    """Why it started, or never did, shape (jobs,): index of the word in ``reasons``."""
    reasons: Sequence[str]
    """Words of the table of jobs, such as `BACKFILLED`."""
    final: Attempts
    """One a job, in their order: that of ``start_s`` and ``end_s``."""
    lost: Attempts = NO_ATTEMPTS
    """Those that were killed, until their nodes were clear, or that a failed node ended."""
    lost_stop_s: IntArray = field(default_factory=lambda: _NONE)
    """When each of ``lost`` was stopped, its end or before it, shape (attempts,)."""
    lost_test: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Which of ``lost`` were test runs, shape (attempts,)."""
    preceding: IntArray | None = None
    think_s: IntArray | None = None
    """The job to wait for and the seconds after its end, where dependencies were honoured, shape
    (jobs,).
    """
    down: Outages = NO_OUTAGES
    drained: Outages = NO_OUTAGES
    """When nodes were down, and nothing ran there; and when they were drained: what ran there went
    on, and nothing started.
    """
    off: Outages = NO_OUTAGES
    """When nodes were switched off, until they were back."""
    lacking: Lacking | None = None
    """What nodes lacked of their capacity, and when; None where no capacity changed."""
    promised_at_s: IntArray | None = None
    promised_s: IntArray | None = None
    """When a job was first promised a later start, and that start, shape (jobs,); `NEVER` for none.

    None where promises were not recorded.
    """
    decision_s: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """When dispatches were made, shape (decisions,)."""
    announced: Announced = NOTHING_ANNOUNCED
    """Maintenance windows: no job starts on a node that is expected to run into one."""
    behind: Behind = NOBODY_BEHIND
    """When jobs were kept back by a limit, until a time, or while their nodes were cleared."""
    powerless: Behind = NOBODY_BEHIND
    """When a power cap kept jobs back, of those that were looked at."""
    power_left: PowerLeft | None = None
    """What a power cap left; None where there was none, or no job was looked at."""
    saved_s: IntArray | None = None
    """How long each job did what its checkpoints kept of lost attempts, shape (jobs,); None
    without checkpoints.
    """
    failed: BoolArray | None = None
    """Which jobs ended as failed, where events happened to the system, shape (jobs,)."""
    priority: IntArray | None = None
    """The site's, where jobs have one, shape (jobs,)."""
    tier: IntArray | None = None
    """The highest of their partitions, where the system's partitions have several, shape (jobs,).
    """

    @property
    def takes_no_job(self) -> Outages:
        """When nothing could start on nodes, though they were not down."""
        both = self.drained, self.off
        names = ("node", "begin_s", "end_s")
        return Outages(*(np.concatenate([getattr(out, n) for out in both]) for n in names))

    @property
    def last_s(self) -> int:
        """A time after all that happened."""
        outages = [time for out in (self.down, self.drained) for time in (out.begin_s, out.end_s)]
        if self.lacking is not None:
            outages += [self.lacking.begin_s, self.lacking.end_s]
        times = [self.end_s, self.lost.end_s, self.submit_s, self.decision_s, *outages]
        return max(int(time[time < FOREVER].max(initial=0)) for time in times) + 1

    def held_back(self, row: int) -> list[tuple[int, int, str]]:
        """When a job was kept back by a limit or the power cap: from when, until when and why."""
        return sorted(self.behind.of(row) + self.powerless.of(row))

    def because(self, *reasons: str) -> BoolArray:
        """Which jobs started, or never did, for one of these reasons; shape (jobs,)."""
        codes = [code for code, name in enumerate(self.reasons) if name in reasons]
        found: BoolArray = np.isin(self.reason, codes)
        return found

    def during(self, begin_s: int, end_s: int) -> Holds:
        """What is held at some time in [begin, end), of all attempts."""
        final, lost = (part.during(begin_s, end_s) for part in (self.final, self.lost))
        names = ("row", "node", "units", "start_s", "end_s", "first")
        return Holds(*(np.concatenate([getattr(part, n) for part in (final, lost)]) for n in names))

    def amount(self, holds: Holds) -> IntArray:
        """What each entry holds, shape (entries, resources)."""
        request = self.request[holds.row]
        amount: IntArray = holds.units[:, None] * request
        for once, of in self.system.once:
            amount[:, of] += holds.first * request[:, once]
            amount[:, once] = 0
        return amount

    def asks(self, row: int) -> IntArray:
        """What a unit of a job asks for, and after it what the job takes once if it does that.

        Shape (resources,), or twice as many.
        """
        unit, first = self.request[row].copy(), np.zeros_like(self.request[row])
        for once, of in self.system.once:
            first[of], unit[once] = unit[once], 0
        return np.concatenate((unit, first)) if first.any() else unit


class Room:
    """Room for units of a job beside what others hold, over a span of time.

    A window [from, until) has room for a unit on a node when the node has what the unit asks for
    through all of it. Nodes that are down have nothing, those that lack a part of their capacity
    have the rest. On nodes that are drained no window begins. All units together draw no more than
    a power cap leaves. What a job takes once has room beside a unit on the first of its nodes.

    Parameters
    ----------
    schedule : Occupancy
    row : int
        The job's.
    holds : Holds
        What others hold.
    begin_s, end_s : int
        The span; windows lie in it.
    """

    def __init__(
        self, schedule: Occupancy, row: int, holds: Holds, begin_s: int, end_s: int
    ) -> None:
        system, down, lacking = schedule.system, schedule.down, schedule.lacking
        drained, announced = schedule.takes_no_job, schedule.announced
        self._drained = drained
        self._announced = announced
        self.begin_s, self.end_s = begin_s, end_s
        none = down.node[:0]
        lacks = Lacking(none, none, none, system.capacity[:0]) if lacking is None else lacking
        out = (down.begin_s < end_s) & (down.end_s > begin_s)
        less = (lacks.begin_s < end_s) & (lacks.end_s > begin_s)
        node = np.concatenate((holds.node, down.node[out], lacks.node[less]))
        held = schedule.amount(holds)
        amount = np.concatenate((held, system.capacity[down.node[out]], lacks.amount[less]))
        start_s = np.concatenate((holds.start_s, down.begin_s[out], lacks.begin_s[less]))
        stop_s = np.concatenate((holds.end_s, down.end_s[out], lacks.end_s[less]))
        start_s, stop_s = start_s.clip(begin_s, end_s), stop_s.clip(begin_s, end_s)
        apart = np.concatenate((drained.node, announced.node))
        self._nodes = _Level.of(system, node, amount, start_s, stop_s, begin_s, apart)
        self._power: _Level | None = None
        self._kinds = kinds = len(system.resources)
        self._watts = schedule.asks(row).reshape(-1, kinds) @ np.array(system.unit_watts)
        """Of a unit, and of what is taken once if anything is."""
        powered_s = none
        if schedule.power_left is not None and self._watts.any():
            powered_s, watts = schedule.power_left.beside(row, begin_s)
            self._power = _Level(0, powered_s, np.maximum(watts, 0)[:, None])
        sudden = np.concatenate((holds.start_s, down.begin_s, lacks.begin_s, powered_s))
        freed = np.concatenate((holds.end_s, down.end_s, drained.end_s, lacks.end_s, powered_s))
        both = np.concatenate((sudden, freed, drained.begin_s))
        self.changes_s = np.unique(both[(begin_s < both) & (both < end_s)])
        """When anything changes inside the span."""
        self.freed_s = np.unique(freed[(begin_s < freed) & (freed < end_s)])
        """When there is more room."""

    def fits(
        self,
        request: IntArray,
        from_s: IntArray,
        until_s: IntArray,
        most: int,
        expected_s: int = 0,
    ) -> IntArray:
        """How many units of a request fit through each window, ``most`` at most.

        Parameters
        ----------
        request : int64 array, shape (resources,), or twice as many
            See `Occupancy.asks`. If something is taken once, no unit fits where that does not.
        from_s, until_s : int64 array, shape (windows,)
            ``until_s`` is greater.
        expected_s : int
            Without nodes on which a job that is expected to run for so long would run into a
            maintenance window.

        Returns
        -------
        int64 array, shape (windows,)
        """
        found, lost = np.zeros(len(from_s), dtype=np.int64), np.full(len(from_s), FOREVER)
        unit = request[: self._kinds]
        for level in self._nodes:
            out = np.zeros(len(from_s), dtype=np.bool_)
            if level.node in self._drained.node:
                out |= self._is_drained(level.node, from_s)
            if expected_s and level.node in self._announced.node:
                out |= self._runs_into(level.node, from_s, expected_s)
            room = np.where(out, 0, level.least(unit, from_s, until_s, most))
            found += level.nodes * room
            if len(request) > len(unit):
                on_first = np.where(out, 0, level.least(request, from_s, until_s, most))
                lost = np.where(on_first > 0, np.minimum(lost, room - on_first), lost)
        if len(request) > len(unit):
            found = np.maximum(found - lost, 0)
        if self._power is not None:
            powered = self._power.least(self._watts, from_s, until_s, most)
            found = np.minimum(found, powered)
        return np.minimum(found, most)

    def _runs_into(self, node: int, time_s: IntArray, expected_s: int) -> BoolArray:
        windows = self._announced.of(node).ahead(time_s[:, None], expected_s)
        return np.asarray(windows.any(axis=1), dtype=np.bool_)

    def _is_drained(self, node: int, time_s: IntArray) -> BoolArray:
        here = (self._drained.node == node).nonzero()[0].tolist()
        found = np.zeros(len(time_s), dtype=np.bool_)
        for k in here:
            found |= (self._drained.begin_s[k] <= time_s) & (time_s < self._drained.end_s[k])
        return found

    def longest(self, request: IntArray, from_s: IntArray, units: int, most_s: int) -> IntArray:
        """For how long so many units fit from each time on, ``most_s`` at most; 0 if not at all.

        Parameters
        ----------
        request : int64 array, shape (resources,), or twice as many
            See `Occupancy.asks`.
        from_s : int64 array, shape (windows,)
            ``from_s + most_s`` lies in the span.

        Returns
        -------
        int64 array, shape (windows,)
            Seconds.
        """
        found = np.zeros(len(from_s), dtype=np.int64)
        which = (self.fits(request, from_s, from_s + 1, units) >= units).nonzero()[0]
        begin_s = from_s[which]
        stops = np.append(self.changes_s, self.end_s)
        # The window up to stops[low] is known to fit, and so is none beyond stops[high].
        low = np.searchsorted(stops, begin_s, side="right")
        high = np.searchsorted(stops, begin_s + most_s, side="left")
        while (low < high).any():
            middle = (low + high + 1) // 2
            until_s = np.minimum(stops[np.minimum(middle, len(stops) - 1)], begin_s + most_s)
            fits = self.fits(request, begin_s, until_s, units) >= units
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        found[which] = np.minimum(stops[np.minimum(low, len(stops) - 1)] - begin_s, most_s)
        return found


class _Level:
    """What is free on a node over time, or on each of several on which nothing is held.

    Attributes
    ----------
    node : int
        The node, or the first one of those.
    nodes : int
        How many they are.
    """

    def __init__(self, node: int, time_s: IntArray, free: IntArray, nodes: int = 1) -> None:
        self.node = node
        self.nodes = nodes
        self._time_s = time_s
        self._free = free
        self._tables: dict[bytes, list[IntArray]] = {}

    @classmethod
    def of(
        cls, system: System, node: IntArray, amount: IntArray,
        start_s: IntArray, stop_s: IntArray, begin_s: int, apart: IntArray,
    ) -> list[_Level]:  # fmt: skip
        """The levels of all nodes, from what is held of them in a span; those ``apart`` alone."""
        place = np.concatenate((node, node))
        time_s = np.concatenate((start_s, stop_s))
        order = np.lexsort((time_s, place))
        place, time_s = place[order], time_s[order]
        held = np.cumsum(np.concatenate((amount, -amount))[order], axis=0)
        last = np.append((np.diff(place) != 0) | (np.diff(time_s) != 0), True)[: len(place)]
        place, time_s, held = place[last], time_s[last], held[last]
        alone = np.unique(np.concatenate((place, apart)))
        cuts = np.append(np.searchsorted(place, alone), len(place)).tolist()
        found = []
        for here, low, high in zip(alone.tolist(), cuts[:-1], cuts[1:], strict=True):
            # Nothing is held any more at the last time of the node before, where the sum is 0.
            capacity = system.capacity[here]
            times, free = time_s[low:high], np.maximum(capacity - held[low:high], 0)
            if low == high or time_s[low] > begin_s:
                times, free = np.append(begin_s, times), np.concatenate((capacity[None], free))
            found.append(cls(here, times, free))
        idle = np.setdiff1d(np.arange(system.nodes), alone)
        for group in np.unique(system.group_of[idle]).tolist():
            here = idle[system.group_of[idle] == group]
            free = system.capacity[here[:1]]
            found.append(cls(int(here[0]), np.array([begin_s]), free, len(here)))
        return found

    def least(self, request: IntArray, from_s: IntArray, until_s: IntArray, most: int) -> IntArray:
        """How many units fit through each window."""
        table = self._table(request, most)
        low = np.searchsorted(self._time_s, from_s, side="right") - 1
        high = np.searchsorted(self._time_s, until_s, side="left")
        height = np.frexp((high - low).astype(np.float64))[1] - 1
        found = np.empty(len(low), dtype=np.int64)
        for k in np.unique(height).tolist():
            here = height == k
            found[here] = np.minimum(table[k][low[here]], table[k][high[here] - (1 << k)])
        return found

    def _table(self, request: IntArray, most: int) -> list[IntArray]:
        """Least room of 1, 2, 4, ... times in a row, for windows of any length."""
        key = request.tobytes() + most.to_bytes(8, "little")
        if key in self._tables:
            return self._tables[key]
        kinds = self._free.shape[1]
        if len(request) > kinds:
            room = room_beside_once(self._free, request[:kinds], request[kinds:], most)
        else:
            room = room_in(self._free, request, most)
        least = [room]
        while 2 ** len(least) <= len(room):
            before, width = least[-1], 2 ** (len(least) - 1)
            least.append(np.minimum(before[:-width], before[width:]))
        if len(self._tables) == _TABLES:
            self._tables.clear()
        self._tables[key] = least
        return least


def by_stretch(state: IntArray) -> Iterator[tuple[int, int]]:
    """First and one past the last position of each run of equal values."""
    cuts = np.append(0, (np.diff(state) != 0).nonzero()[0] + 1).tolist()
    yield from zip(cuts, [*cuts[1:], len(state)], strict=True)
