"""A search over the orders of a serial schedule generation scheme.

It moves one job or exchanges two, and places anew only from the first position that changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray, UintArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.decision import NO_START
from cpdispatch.heuristics.kernels import xorshift
from cpdispatch.heuristics.profiles.per_class import (
    OVERFLOW,
    Slices,
    Timelines,
    Window,
    copy,
    room_for_states,
    size_bytes,
    state,
)
from cpdispatch.heuristics.schedule_generation import Jobs, ScheduleGenerator, cost_of, put
from cpdispatch.instance import NO_LATEST_S

NEVER = int(np.iinfo(np.int64).max)
BEHIND = 8
"""Positions with the same jobs in which a patient try may still become the cheaper order."""
PATIENT = 4
"""One in so many tries is patient; the others have to gain with every job that they place."""
LATE = 1 << 61
"""The cost of an order in which a job starts after its last start: more than any other cost."""
TRAIL_BYTES = 1 << 24
"""What a search through orders may use to keep states: it keeps as many as that holds.

Four times as much brings a tenth of a percent on a thousand jobs; but where a system first hands
out that memory it takes 50 ms, which is beyond the limit of a decision that has no more.
"""


class Trail(NamedTuple):
    """The state of a search before each position that is a multiple of the stride."""

    lines: Timelines
    """Every array with one dimension more in front: the position over the stride."""
    cost: IntArray
    entries: IntArray


# ------------------------------------------------------------------------------------ kernels


@allocating
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
    latest: IntArray,
    limit: int,
    kept_start: IntArray,
    gains_from: int,
    keep: bool,
) -> tuple[int, int]:
    """Place the jobs of an order from the last kept state before position ``begin`` on.

    Returns the cost of the whole order and the work. The cost is `LATE` or more where a job starts
    after its ``latest`` start. An order is given up, and its cost is stated as ``limit``, as soon
    as it costs at least ``limit``, or if at position ``gains_from`` or a later one the jobs placed
    so far cost no less than with their ``kept_start``, those of the kept order: it hardly becomes
    the better one then. With ``keep`` the order is never given up, and replaces the kept order.
    """
    jobs_left = order.shape[0]
    k = begin // stride
    copy(state(trail.lines, k), lines)
    cost, at, work = trail.cost[k], trail.entries[k], lines.size[0]
    rest = gain = 0
    for p in range(k * stride, jobs_left):
        rest += least[order[p]]
    for p in range(k * stride, jobs_left):
        if keep and p % stride == 0 and p > begin:
            copy(lines, state(trail.lines, p // stride))
            work += lines.size[0]
            trail.cost[p // stride], trail.entries[p // stride] = cost, at
        j = order[p]
        at, looked = put(lines, window, jobs, order, p, start, slices, at)
        if lines.size[OVERFLOW]:
            return limit, work
        work += looked
        cost_here = cost_of(jobs, j, start[j])
        cost += cost_here
        if start[j] > latest[j]:
            cost = max(cost, LATE)
        rest -= least[j]
        if not keep:
            gain += cost_of(jobs, j, kept_start[j]) - cost_here
            if cost + rest >= limit or (p >= gains_from and gain <= 0):
                return limit, work
    return cost, work


@kernel
def _random(state: UintArray, below: int) -> int:
    """A number from 0 to ``below`` - 1."""
    state[0] = xorshift(state[0])
    return int((state[0] >> np.uint64(11)) % np.uint64(below))


@kernel
def _keeps_precedence(jobs: Jobs, order: IntArray, low: int, high: int) -> bool:
    """Whether no job at the positions low to high stands before a predecessor of its own."""
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
    """Exchange the jobs at two positions, or move the job at one position to the other."""
    j = order[source]
    if swap:
        order[source] = order[target]
    elif source < target:
        for p in range(source, target):
            order[p] = order[p + 1]
    else:
        for p in range(source, target, -1):
            order[p] = order[p - 1]
    order[target] = j


@kernel
def _draw(order: IntArray, locked: int, state: UintArray) -> tuple[int, int]:
    """Two positions, near ones more often than far ones."""
    p = locked + _random(state, order.shape[0] - locked)
    reach = 1 + _random(state, min(order.shape[0] - locked, 2 << _random(state, 7)))
    q = p - reach if _random(state, 2) == 0 else p + reach
    return p, min(max(q, locked), order.shape[0] - 1)


@allocating
def shuffle(jobs: Jobs, order: IntArray, locked: int, state: UintArray, moves: int) -> None:
    """Move some jobs at random."""
    if order.shape[0] <= locked:
        return
    for _ in range(moves):
        p, q = _draw(order, locked, state)
        kept = order.copy()
        _move(order, p, q, _random(state, 2) == 0)
        if not _keeps_precedence(jobs, order, min(p, q), max(p, q)):
            for r in range(order.shape[0]):
                order[r] = kept[r]


@allocating
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
    latest: IntArray,
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
    latest : int64 array, shape (jobs,)
        Last start that each job may have.
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
        p, q = _draw(order, locked, state)
        steps -= 1
        idle += 1
        low, high = min(p, q), max(p, q)
        _move(trial, p, q, _random(state, 2) == 0)
        taken = False
        if p != q and _keeps_precedence(jobs, trial, low, high):
            gains_from = high + BEHIND if _random(state, PATIENT) == 0 else low
            found, work = resume(
                trail, stride, low, lines, window, jobs, trial, trial_start, slices, least,
                latest, cost, start, gains_from, False,
            )  # fmt: skip
            steps -= work
            taken = found < cost and not lines.size[OVERFLOW]
            if taken:
                idle = 0
                for r in range(low, high + 1):
                    order[r] = trial[r]
                cost, work = resume(
                    trail, stride, low, lines, window, jobs, order, start, slices, least,
                    latest, NEVER, start, 0, True,
                )  # fmt: skip
                steps -= work
            if lines.size[OVERFLOW]:
                break
        if not taken:
            for r in range(low, high + 1):
                trial[r] = order[r]
        for j in range(start.shape[0]):
            trial_start[j] = start[j]
    return cost, steps, idle


# --------------------------------------------------------------------------------- the search


class OrderSearch:
    """Local search over orders, for list schedules that cost less.

    Parameters
    ----------
    order : int64 array, shape (jobs,)
        To begin with; every job comes after its predecessors, and none starts after its last start
        even if the jobs with one come first.
    locked : int
        The jobs at so many positions in front stay there.
    least : int64 array, shape (jobs,)
        What each job costs at least.
    latest_s : int64 array, shape (jobs,), optional
        Last start that each job may have. Where it has one, it comes after no other job.

    Attributes
    ----------
    best : int64 array, shape (jobs,)
    cost : int
        Of the current order.
    idle : int
        Orders tried since a better one than the current one was found.
    """

    def __init__(
        self,
        search: ScheduleGenerator,
        order: IntArray,
        least: IntArray,
        locked: int = 0,
        seed: int = 0,
        latest_s: IntArray | None = None,
    ) -> None:
        self._search, self._least, self._locked = search, least, locked
        self._random = np.array([0x9E3779B97F4A7C15 ^ (seed + 1)], dtype=np.uint64)
        if latest_s is None:
            latest_s = np.full(len(search), NO_LATEST_S, dtype=np.int64)
        self._latest_s = latest_s
        self._limited = order[latest_s[order] < NO_LATEST_S]
        self.best_cost = NEVER
        self._keep_states()
        self.restart(order)

    def _keep_states(self) -> None:
        """Make room for the states on the way through an order."""
        lines, jobs = self._search._lines, len(self._search)
        self._stride = max(1, -(-jobs // max(1, TRAIL_BYTES // size_bytes(lines))))
        kept = max(1, -(-jobs // self._stride))
        self._trail = Trail(
            room_for_states(lines, kept),
            np.zeros(kept, dtype=np.int64),
            np.zeros(kept, dtype=np.int64),
        )
        copy(self._search.base, state(self._trail.lines, 0))

    def restart(self, order: IntArray) -> None:
        """Go on from another order; the best one is kept.

        Where a job would start too late, those with a last start come first.
        """
        self.idle = 0
        self._order = np.array(order)
        self._follow()
        if self.cost >= LATE:
            rest = order[~np.isin(order, self._limited)]
            self._order = np.concatenate((self._limited, rest))
            self._follow()
        self._remember()

    def _follow(self) -> None:
        """Place the current order anew, and keep the states on the way."""
        search = self._search
        self._start = np.full(len(search), NO_START, dtype=np.int64)
        while True:
            if search._lines.nodes.time.shape[1] != self._trail.lines.nodes.time.shape[2]:
                self._keep_states()
            self.cost, _ = resume(
                self._trail, self._stride, 0, search._lines, search._window, search.jobs,
                self._order, self._start, search._slices, self._least, self._latest_s, NEVER,
                self._start, 0, True,
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
        if search._lines.nodes.time.shape[1] != self._trail.lines.nodes.time.shape[2]:
            self._follow()  # the states no longer take what the rows do
        while steps > 0:
            before = self.cost
            self.cost, steps, idle = improve(
                self._trail, self._stride, search._lines, search._window, search.jobs,
                self._order, self._start, search._slices, self._least, self._latest_s,
                self._locked, self._random, self.cost, steps,
            )  # fmt: skip
            self.idle = idle if self.cost < before else self.idle + idle
            if search._lines.size[OVERFLOW]:
                search._grow()
                self._follow()
        self._remember()
        return steps
