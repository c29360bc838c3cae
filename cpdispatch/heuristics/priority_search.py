"""The priority search: jobs one after the other, each as early as it fits; and a search for orders.

Serial schedule generation: a job's start is the earliest at which all of its units fit beside what
was placed before; its units go to the fullest nodes (best fit). The order decides everything, and
`improve` searches through orders, placing anew only from the first position that changed.

References
----------
Galleguillos, "Constraint programming-based job dispatching for modern HPC applications", 2020,
algorithm 4. Kolisch, "Serial and parallel resource-constrained project scheduling methods
revisited", EJOR 1996.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray, UintArray
from cpdispatch.compile import kernel
from cpdispatch.decision import NO_START
from cpdispatch.heuristics.timelines import (
    OVERFLOW,
    POWER,
    Slices,
    Timelines,
    Window,
    classes_of,
    copy,
    earliest,
    empty_timelines,
    empty_window,
    hold_power,
    joined,
    of_nodes,
    place,
)
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable

NEVER = int(np.iinfo(np.int64).max)
BEHIND = 8
"""Positions for which an order that has become dearer may recover."""


class Jobs(NamedTuple):
    """The jobs of a search, as the kernels see them; all int64."""

    ask: IntArray
    """Request of a unit, shape (jobs, resources)."""
    units: IntArray
    duration: IntArray
    watts: IntArray
    early: IntArray
    """No job starts before this, whatever the others do."""
    free_until: IntArray
    """A start costs ``per_s`` for each second after this."""
    per_s: IntArray
    think: IntArray
    """Seconds between the end of each predecessor and the start, shape (pairs,)."""
    after_offset: IntArray
    """Predecessors of job j: ``after[after_offset[j]:after_offset[j + 1]]``."""
    after: IntArray
    smaller: BoolArray
    """Whether job i, with nothing to wait for, asks for no more than job j; shape (j, i)."""


class Trail(NamedTuple):
    """The state of a search before each position that is a multiple of the stride."""

    lines: Timelines
    """Every array with one dimension more in front: the position over the stride."""
    cost: IntArray
    entries: IntArray
    so_far: IntArray
    """What the jobs at the first k positions cost, shape (jobs + 1,)."""


# ------------------------------------------------------------------------------- one order


@kernel
def _ready(jobs: Jobs, j: int, start: IntArray) -> int:
    """Earliest start of a job after its predecessors, which have starts already."""
    ready = int(jobs.early[j])
    for k in range(jobs.after_offset[j], jobs.after_offset[j + 1]):
        before = jobs.after[k]
        ready = max(ready, start[before] + jobs.duration[before] + jobs.think[k])
    return ready


@kernel
def _floor(jobs: Jobs, order: IntArray, p: int, start: IntArray) -> int:
    """What the job at a position cannot start before, going by the jobs before it.

    Capacity only gets less: where a smaller job found no room, there is none for a larger one.
    """
    j = order[p]
    floor = _ready(jobs, j, start)
    for k in range(p):
        if start[order[k]] > floor and jobs.smaller[j, order[k]]:
            floor = start[order[k]]
    return floor


@kernel
def _cost(jobs: Jobs, j: int, start: int) -> int:
    return int(jobs.per_s[j] * max(0, start - jobs.free_until[j]))


@kernel
def _put(
    lines: Timelines,
    window: Window,
    jobs: Jobs,
    order: IntArray,
    p: int,
    start: IntArray,
    slices: Slices,
    at: int,
) -> tuple[int, int]:
    """Place the job at a position as early as it fits; return the end of its entries, and work."""
    j = order[p]
    begin, looked = earliest(
        lines, window, jobs.ask[j], jobs.units[j], jobs.watts[j], jobs.duration[j],
        _floor(jobs, order, p, start), True,
    )  # fmt: skip
    start[j] = begin
    at = place(lines, window, jobs.ask[j], jobs.units[j], jobs.duration[j], begin, slices, at)
    if jobs.watts[j] > 0:
        hold_power(lines, begin, begin + jobs.duration[j], jobs.watts[j])
    return at, looked


@kernel
def schedule(
    lines: Timelines,
    window: Window,
    jobs: Jobs,
    order: IntArray,
    begin: int,
    end: int,
    start: IntArray,
    slices: Slices,
    ends: IntArray,
) -> None:
    """Place the jobs at positions ``begin`` to ``end`` - 1 of an order, after those before them.

    ``start``, ``slices``, and in ``ends`` where the entries of each position end, are written.
    Stops early when a row of ``lines`` is too short, which then says so.
    """
    for p in range(begin, end):
        ends[p + 1], _ = _put(lines, window, jobs, order, p, start, slices, ends[p])
        if lines.size[OVERFLOW]:
            break


@kernel
def each_earliest(lines: Timelines, window: Window, jobs: Jobs) -> IntArray:
    """Earliest start of each job if there were no other; ``jobs.early`` stays a lower limit."""
    start = np.empty(jobs.units.shape[0], dtype=np.int64)
    for j in range(start.shape[0]):
        start[j], _ = earliest(
            lines, window, jobs.ask[j], jobs.units[j], jobs.watts[j], jobs.duration[j],
            jobs.early[j], False,
        )  # fmt: skip
    return start


# ------------------------------------------------------------------------- a search for orders


@kernel
def at_position(trail: Trail, k: int) -> Timelines:
    """The k-th of the kept states: timelines that are changed in place, too."""
    lines = trail.lines
    return Timelines(
        lines.size[k], lines.first[k], lines.last[k], lines.segments[k], lines.capacity[k],
        lines.time[k], lines.free[k], lines.power_time[k], lines.power_free[k],
    )  # fmt: skip


@kernel
def resume(
    trail: Trail,
    stride: int,
    begin: int,
    lines: Timelines,
    window: Window,
    jobs: Jobs,
    order: IntArray,
    start: IntArray,
    slices: Slices,
    least: IntArray,
    limit: int,
    same_from: int,
    keep: bool,
) -> tuple[int, int]:
    """Place the jobs of an order from the last kept state before position ``begin`` on.

    Returns the cost of the whole order and the work. The order is given up, and ``limit`` is
    returned, as soon as it must cost that, or costs no less than the kept one up to a position
    well behind ``same_from``, from which on both have the same jobs: what it lost until then it
    hardly gets back. With ``keep`` it is not given up but takes the kept one's place.
    """
    jobs_left = order.shape[0]
    k = begin // stride
    copy(at_position(trail, k), lines)
    cost, at, work = trail.cost[k], trail.entries[k], lines.size[0]
    rest = 0
    for p in range(k * stride, jobs_left):
        rest += least[order[p]]
    for p in range(k * stride, jobs_left):
        if keep and p % stride == 0 and p > begin:
            copy(lines, at_position(trail, p // stride))
            work += lines.size[0]
            trail.cost[p // stride], trail.entries[p // stride] = cost, at
        j = order[p]
        at, looked = _put(lines, window, jobs, order, p, start, slices, at)
        if lines.size[OVERFLOW]:
            return limit, work
        work += looked
        cost += _cost(jobs, j, start[j])
        rest -= least[j]
        if keep:
            trail.so_far[p + 1] = cost
        elif cost + rest >= limit or (p >= same_from + BEHIND and cost >= trail.so_far[p + 1]):
            return limit, work
    return cost, work


@kernel
def _random(state: UintArray, below: int) -> int:
    """A number from 0 to ``below`` - 1 (Marsaglia's xorshift of 64 bits)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int((x >> np.uint64(11)) % np.uint64(below))


@kernel
def _in_turn(jobs: Jobs, order: IntArray, low: int, high: int) -> bool:
    """Whether no job at positions low to high comes before a predecessor that is there too."""
    if jobs.after.shape[0] == 0:
        return True
    for p in range(low, high + 1):
        j = order[p]
        for k in range(jobs.after_offset[j], jobs.after_offset[j + 1]):
            for q in range(p + 1, high + 1):
                if order[q] == jobs.after[k]:
                    return False
    return True


@kernel
def _move(order: IntArray, source: int, target: int, swap: bool) -> None:
    """Exchange two positions, or take what is at one out and put it in at the other."""
    j = order[source]
    if swap:
        order[source] = order[target]
    elif source < target:
        order[source:target] = order[source + 1 : target + 1].copy()
    else:
        order[target + 1 : source + 1] = order[target:source].copy()
    order[target] = j


@kernel
def _draw(jobs: Jobs, order: IntArray, locked: int, state: UintArray) -> tuple[int, int]:
    """Two positions, near ones more often than far ones."""
    p = locked + _random(state, order.shape[0] - locked)
    reach = 1 + _random(state, min(order.shape[0] - locked, 2 << _random(state, 7)))
    q = p - reach if _random(state, 2) == 0 else p + reach
    return p, min(max(q, locked), order.shape[0] - 1)


@kernel
def shuffle(jobs: Jobs, order: IntArray, locked: int, state: UintArray, moves: int) -> None:
    """Move some jobs at random."""
    if order.shape[0] <= locked:
        return
    for _ in range(moves):
        p, q = _draw(jobs, order, locked, state)
        kept = order.copy()
        _move(order, p, q, _random(state, 2) == 0)
        if not _in_turn(jobs, order, min(p, q), max(p, q)):
            order[:] = kept


@kernel
def improve(
    trail: Trail,
    stride: int,
    lines: Timelines,
    window: Window,
    jobs: Jobs,
    order: IntArray,
    start: IntArray,
    slices: Slices,
    least: IntArray,
    locked: int,
    state: UintArray,
    cost: int,
    steps: int,
) -> tuple[int, int, int]:
    """Search through orders by moving one job or exchanging two, if that costs less.

    Parameters
    ----------
    trail, order, start
        Those of the current order, whose ``cost`` is given; they are kept up to date.
    least : int64 array, shape (jobs,)
        What each job costs at least.
    locked : int
        The jobs at so many positions in front stay there.
    state : uint64 array, shape (1,)
        Of the random numbers.
    steps : int
        Limit of the work, in windows looked at.

    Returns
    -------
    cost : int
    steps : int
        What is left of them, not above 0 but when a row was too short.
    idle : int
        Orders tried since one was taken, or since the beginning.
    """
    trial, trial_start = order.copy(), start.copy()
    idle = 0
    while steps > 0:
        p, q = _draw(jobs, order, locked, state)
        steps -= 1
        idle += 1
        low, high = min(p, q), max(p, q)
        _move(trial, p, q, _random(state, 2) == 0)
        taken = False
        if p != q and _in_turn(jobs, trial, low, high):
            found, work = resume(
                trail, stride, low, lines, window, jobs, trial, trial_start, slices, least,
                cost, high, False,
            )  # fmt: skip
            steps -= work
            taken = found < cost and not lines.size[OVERFLOW]
            if taken:
                idle = 0
                order[low : high + 1] = trial[low : high + 1]
                cost, work = resume(
                    trail, stride, low, lines, window, jobs, order, start, slices, least,
                    NEVER, 0, True,
                )  # fmt: skip
                steps -= work
            if lines.size[OVERFLOW]:
                break
        if not taken:
            trial[low : high + 1] = order[low : high + 1]
        trial_start[:] = start
    return cost, steps, idle


# ----------------------------------------------------------------------------- the search itself


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A start and nodes for every job of a search.

    Attributes
    ----------
    start_s : int64 array, shape (jobs,)
    offset : int64 array, shape (jobs + 1,)
        The entries of job j are ``offset[j]:offset[j + 1]``.
    node, units : int64 array, shape (entries,)
        A node of the system, and how many of the job's units it holds.
    """

    start_s: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray


class PrioritySearch:
    """Schedules jobs on nodes in any order, and looks for good orders.

    Parameters
    ----------
    lines : Timelines
        What the nodes have free over time, without the jobs. Every job must fit at some time.
    member : int64 array
        The nodes, in the order that the classes of ``lines`` are slices of.
    jobs : Jobs
    """

    def __init__(self, lines: Timelines, member: IntArray, jobs: Jobs) -> None:
        self.base, self.member, self.jobs = lines, member, jobs
        entries = int(np.minimum(jobs.units, len(member)).sum())
        self._slices = Slices(*(np.empty(entries, dtype=np.int64) for _ in Slices._fields))
        self._window = empty_window(len(member))
        self._lines = self._copy(SPARE_COLUMNS)

    def __len__(self) -> int:
        return len(self.jobs.units)

    def _copy(self, spare: int) -> Timelines:
        """The base with longer rows."""
        nodes, columns, resources = self.base.free.shape
        power = self.base.power_time.shape[0]
        lines = empty_timelines(
            nodes, columns + spare, resources, power + 2 * len(self) if power else 0
        )
        copy(self.base, lines)
        return lines

    def _grow(self) -> None:
        """Make the rows longer: some class has more segments than they can take."""
        spare = 2 * (self._lines.time.shape[1] - self.base.time.shape[1])
        self._lines = self._copy(spare)

    def earliest(self) -> IntArray:
        """Earliest start of each job if there were no other, shape (jobs,)."""
        return each_earliest(self.base, self._window, self.jobs)

    def cost(self, start_s: IntArray) -> int:
        """The weighted sum that the search minimises."""
        jobs = self.jobs
        return int((jobs.per_s * np.maximum(start_s - jobs.free_until, 0)).sum())

    def starts(self, order: IntArray) -> IntArray:
        """Each job in turn as early as it fits: the starts, shape (jobs,)."""
        return self._place(order, lambda: False)[0]

    def schedule(self, order: IntArray, stop: Callable[[], bool] = lambda: False) -> Schedule:
        """Each job in turn as early as it fits: starts and nodes.

        Parameters
        ----------
        stop : callable, optional
            Asked now and then; once it says so, the jobs that are left get `NO_START`.
        """
        start_s, ends = self._place(order, stop)
        order = order[: len(ends) - 1]
        slices, count = self._slices, np.diff(ends)
        used = int(ends[-1])
        nodes = (slices.last - slices.first)[:used]
        within = np.arange(nodes.sum()) - np.repeat(np.cumsum(nodes) - nodes, nodes)
        node = self.member[np.repeat(slices.first[:used], nodes) + within]
        units = np.repeat(slices.units[:used], nodes)
        owner = np.repeat(np.repeat(order, count), nodes)
        by_job = np.argsort(owner, kind="stable")
        offset = np.searchsorted(owner[by_job], np.arange(len(self) + 1))
        return Schedule(start_s, offset, node[by_job], units[by_job])

    def _place(self, order: IntArray, stop: Callable[[], bool]) -> tuple[IntArray, IntArray]:
        """Starts, and where the entries of each position that was placed end."""
        start_s = np.full(len(self), NO_START)
        ends = np.zeros(len(self) + 1, dtype=np.int64)
        copy(self.base, self._lines)
        done = 0
        while done < len(order) and not (done and stop()):
            end = min(done + _BATCH, len(order))
            schedule(
                self._lines, self._window, self.jobs, order, done, end, start_s, self._slices, ends
            )
            if self._lines.size[OVERFLOW]:
                self._grow()
                start_s[:] = NO_START
                end = 0
            done = end
        return start_s, ends[: done + 1]


_BATCH = 32
"""Jobs that are placed between two questions whether to stop."""


SPARE_COLUMNS = 16
"""Segments that rows can take at first beyond what the longest one has."""


TRAIL_BYTES = 1 << 26
"""What a search through orders may use to keep states: it keeps as many as that holds."""


class OrderSearch:
    """Looks for orders of a priority search that cost less, as long as it is told to.

    Parameters
    ----------
    search : PrioritySearch
    order : int64 array, shape (jobs,)
        To begin with; every job comes after its predecessors.
    locked : int
        The jobs at so many positions in front stay there.
    least : int64 array, shape (jobs,)
        What each job costs at least.
    seed : int

    Attributes
    ----------
    best : int64 array, shape (jobs,)
    best_cost : int
    cost : int
        Of the current order.
    idle : int
        Orders tried since a better one than the current one was found.
    """

    def __init__(
        self,
        search: PrioritySearch,
        order: IntArray,
        least: IntArray,
        locked: int = 0,
        seed: int = 0,
    ) -> None:
        self._search, self._least, self._locked = search, least, locked
        self._random = np.array([0x9E3779B97F4A7C15 ^ (seed + 1)], dtype=np.uint64)
        self.best_cost = NEVER
        self._keep_states()
        self.restart(order)

    def _keep_states(self) -> None:
        """Make room for the states on the way through an order."""
        lines, jobs = self._search._lines, len(self._search)
        size = sum(array.nbytes for array in lines)
        self._stride = max(1, -(-jobs // max(1, TRAIL_BYTES // size)))
        kept = max(1, -(-jobs // self._stride))
        self._trail = Trail(
            Timelines(*(np.empty((kept, *array.shape), dtype=np.int64) for array in lines)),
            np.zeros(kept, dtype=np.int64),
            np.zeros(kept, dtype=np.int64),
            np.zeros(jobs + 1, dtype=np.int64),
        )
        copy(self._search.base, at_position(self._trail, 0))

    def restart(self, order: IntArray) -> None:
        """Go on from another order; the best one is kept."""
        self.idle = 0
        self._order = np.array(order)
        self._follow()
        self._remember()

    def _follow(self) -> None:
        """Place the current order anew, and keep the states on the way."""
        search = self._search
        self._start = np.full(len(search), NO_START, dtype=np.int64)
        while True:
            if search._lines.time.shape[1] != self._trail.lines.time.shape[2]:
                self._keep_states()
            self.cost, _ = resume(
                self._trail, self._stride, 0, search._lines, search._window, search.jobs,
                self._order, self._start, search._slices, self._least, NEVER, 0, True,
            )  # fmt: skip
            if not search._lines.size[OVERFLOW]:
                break
            search._grow()

    def _remember(self) -> None:
        """Make the current order the best one if it is."""
        if self.cost < self.best_cost:
            self.best, self.best_cost = self._order.copy(), self.cost

    def kick(self, moves: int) -> None:
        """Go on from the best order after some moves at random."""
        order = self.best.copy()
        shuffle(self._search.jobs, order, self._locked, self._random, moves)
        self.restart(order)

    def run(self, steps: int) -> int:
        """Search on; returns how many steps were not used: 0 or a little less.

        When there is nothing to move all of them count as used, and as orders tried in vain.

        Parameters
        ----------
        steps : int
            Windows to look at, one class of nodes for one job and start each.
        """
        search = self._search
        if len(self._order) - self._locked < 2:  # there is nothing to move
            self.idle, steps = self.idle + steps, 0
        if search._lines.time.shape[1] != self._trail.lines.time.shape[2]:
            self._follow()  # the states no longer take what the rows do
        while steps > 0:
            before = self.cost
            self.cost, steps, idle = improve(
                self._trail, self._stride, search._lines, search._window, search.jobs,
                self._order, self._start, search._slices, self._least, self._locked,
                self._random, self.cost, steps,
            )  # fmt: skip
            self.idle = idle if self.cost < before else self.idle + idle
            if search._lines.size[OVERFLOW]:
                search._grow()
                self._follow()
        self._remember()
        return steps


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is held of nodes, and of the power, from a start to an end.

    Attributes
    ----------
    start_s, end_s, node : int64 array, shape (entries,)
    amount : int64 array, shape (entries, resources)
    power_start_s, power_end_s, watts : int64 array, shape (jobs,)
    """

    start_s: IntArray
    end_s: IntArray
    node: IntArray
    amount: IntArray
    power_start_s: IntArray
    power_end_s: IntArray
    watts: IntArray

    def and_(self, more: Held) -> Held:
        """Both together."""
        both = ((getattr(self, name), getattr(more, name)) for name in self.__slots__)
        return Held(*(np.concatenate(pair) for pair in both))


def held_in(instance: Instance) -> Held:
    """What running jobs hold until their expected ends, and reservations while they last."""
    now, running = instance.now, instance.running
    owner = np.repeat(np.arange(len(running)), np.diff(running.offset))
    reserved = np.array(
        [
            (max(r.start_s, now), max(r.end_s, now), node, *r.capacity)
            for r in instance.reservations
            for node in r.nodes
        ],
        dtype=np.int64,
    ).reshape(-1, 3 + len(instance.system.resources))
    return Held(
        np.concatenate((np.full(len(owner), now), reserved[:, 0])),
        np.concatenate((running.end_s[owner], reserved[:, 1])),
        np.concatenate((running.node, reserved[:, 2])),
        np.concatenate((running.jobs.request[owner] * running.units[:, None], reserved[:, 3:])),
        np.full(len(running), now),
        running.end_s,
        instance.job_power(running.jobs),
    )


def timelines(instance: Instance, nodes: IntArray, held: Held) -> tuple[Timelines, IntArray]:
    """What these nodes have free from now on, and the nodes again; see `PrioritySearch`."""
    longest = int(np.bincount(held.node).max(initial=0))
    lines = of_nodes(
        instance.now, instance.system.capacity, nodes, 2 * longest + 3,
        held.start_s, held.end_s, held.node, held.amount,
    )  # fmt: skip
    member, begin = classes_of(lines)
    return _with_power(instance, joined(lines, member, begin), held), nodes[member]


def _with_power(instance: Instance, lines: Timelines, held: Held) -> Timelines:
    """The timelines with what is left under the power cap, where there is one."""
    if instance.power is None:
        return lines
    start_s, end_s = held.power_start_s, held.power_end_s
    time = np.unique(np.concatenate((start_s, end_s, [instance.now])))
    runs = (start_s <= time[:, None]) & (time[:, None] < end_s)
    lines.size[POWER] = len(time)
    free = instance.power.cap - runs.astype(np.int64) @ held.watts
    return lines._replace(power_time=time, power_free=np.maximum(free, 0))


def jobs_of(
    table: JobTable,
    watts: IntArray,
    early_s: IntArray,
    free_until_s: IntArray,
    per_s: IntArray,
    after: Sequence[tuple[int, int, int]] = (),
) -> Jobs:
    """Jobs as a search takes them.

    Parameters
    ----------
    watts : int64 array, shape (jobs,)
        Power that each draws while it runs.
    early_s : int64 array, shape (jobs,)
        The first start that each may have.
    free_until_s, per_s : int64 array, shape (jobs,)
        The weighted sum to minimise: ``per_s * max(0, start - free_until_s)``.
    after : sequence of (job, predecessor, seconds)
        The job starts so many seconds after the predecessor's end, or later.
    """
    pairs = np.array(sorted(after), dtype=np.int64).reshape(-1, 3)
    free = early_s == early_s.min(initial=NEVER)
    free[pairs[:, 0]] = False
    return Jobs(
        np.array(table.request, order="C"),
        np.array(table.units),
        np.array(table.expected_s),
        np.array(watts),
        np.array(early_s),
        np.array(free_until_s),
        np.array(per_s),
        pairs[:, 2].copy(),
        np.searchsorted(pairs[:, 0], np.arange(len(table) + 1)),
        pairs[:, 1].copy(),
        _smaller(table) & free,
    )


def _smaller(jobs: JobTable) -> BoolArray:
    """For each pair of jobs, whether the second asks for no more than the first, for no longer."""
    smaller = jobs.units <= jobs.units[:, None]
    smaller &= jobs.expected_s <= jobs.expected_s[:, None]
    for asked in jobs.request.T:
        smaller &= asked <= asked[:, None]
    return smaller
