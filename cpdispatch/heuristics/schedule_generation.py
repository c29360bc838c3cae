"""A serial schedule generation scheme: jobs one after the other, each as early as it fits.

A job's start is the earliest at which all of its units fit beside what was placed before; its units
go to the fullest nodes (best fit). The order of the jobs decides everything.

References
----------
Galleguillos, "Constraint programming-based job dispatching for modern HPC applications", 2020,
algorithm 4. Kolisch, "Serial and parallel resource-constrained project scheduling methods
revisited", EJOR 1996.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray, ranges
from cpdispatch.compile import allocating, kernel
from cpdispatch.decision import NO_START
from cpdispatch.heuristics.profiles.per_class import (
    OVERFLOW,
    Slices,
    Timelines,
    Window,
    copy,
    earliest,
    empty_timelines,
    empty_window,
    hold_power,
    place,
)

_BATCH = 32
"""Jobs that are placed between two questions whether to stop."""
SPARE_COLUMNS = 16
"""Segments that rows can take at first beyond what the longest one has."""


class Jobs(NamedTuple):
    """The jobs of a generator, as the kernels see them; all int64."""

    ask: IntArray
    """Request of a unit, and after it what is taken once if jobs do that, see
    `cpdispatch.heuristics.kernels`; shape (jobs, resources or twice as many)."""
    units: IntArray
    most: IntArray
    """Units that may share a node."""
    duration: IntArray
    watts: IntArray
    """Power that each draws while it runs, shape (jobs, 1)."""
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


# ------------------------------------------------------------------------------- one order


@kernel
def ready_from(jobs: Jobs, j: int, start: IntArray) -> int:
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
    floor = ready_from(jobs, j, start)
    for k in range(p):
        if start[order[k]] > floor and jobs.smaller[j, order[k]]:
            floor = start[order[k]]
    return floor


@kernel
def cost_of(jobs: Jobs, j: int, start: int) -> int:
    """What a start of a job costs."""
    return int(jobs.per_s[j] * max(0, start - jobs.free_until[j]))


@kernel
def put(
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
        lines, window, jobs.ask[j], jobs.units[j], jobs.most[j], jobs.watts[j], jobs.duration[j],
        _floor(jobs, order, p, start), True,
    )  # fmt: skip
    start[j] = begin
    at = place(lines, window, jobs.ask[j], jobs.units[j], jobs.duration[j], begin, slices, at)
    if jobs.watts[j, 0] > 0:
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
        ends[p + 1], _ = put(lines, window, jobs, order, p, start, slices, ends[p])
        if lines.size[OVERFLOW]:
            break


@allocating
def each_earliest(lines: Timelines, window: Window, jobs: Jobs) -> IntArray:
    """Earliest start of each job if there were no other; ``jobs.early`` stays a lower limit."""
    start = np.empty(jobs.units.shape[0], dtype=np.int64)
    for j in range(start.shape[0]):
        start[j], _ = earliest(
            lines, window, jobs.ask[j], jobs.units[j], jobs.most[j], jobs.watts[j],
            jobs.duration[j], jobs.early[j], False,
        )  # fmt: skip
    return start


# -------------------------------------------------------------------------------- the generator


@dataclass(frozen=True, slots=True, eq=False)
class ListSchedule:
    """A start and nodes for every job of a generator."""

    start_s: IntArray
    """Shape (jobs,)."""
    offset: IntArray
    """The entries of job j are ``offset[j]:offset[j + 1]``, shape (jobs + 1,)."""
    node: IntArray
    units: IntArray
    """A node of the system, and how many of the job's units it holds, shape (entries,)."""


class ScheduleGenerator:
    """Makes list schedules: jobs on nodes, in any order of the jobs.

    Parameters
    ----------
    lines : Timelines
        What the nodes have free over time, without the jobs. Every job must fit at some time.
    member : int64 array
        The nodes, in the order that the classes of ``lines`` are slices of.
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
        nodes, columns, resources = self.base.nodes.free.shape
        power = self.base.power.time.shape[1]
        lines = empty_timelines(
            nodes, columns + spare, resources, power + 2 * len(self) if power else 0
        )
        copy(self.base, lines)
        return lines

    def _grow(self) -> None:
        """Make the rows longer: some class has more segments than they can take."""
        spare = 2 * (self._lines.nodes.time.shape[1] - self.base.nodes.time.shape[1])
        self._lines = self._copy(spare)

    def earliest(self) -> IntArray:
        """Earliest start of each job if there were no other, shape (jobs,)."""
        return each_earliest(self.base, self._window, self.jobs)

    def starts(self, order: IntArray) -> IntArray:
        """The starts of the list schedule of an order, shape (jobs,)."""
        return self._place(order, lambda: False)[0]

    def schedule(self, order: IntArray, stop: Callable[[], bool] = lambda: False) -> ListSchedule:
        """The list schedule of an order: each job as early as it fits beside those before it.

        Parameters
        ----------
        stop : callable, optional
            Asked now and then; once it says so, the jobs that are left get `NO_START`.
        """
        start_s, ends = self._place(order, stop)
        return self.listed(order[: len(ends) - 1], start_s, ends, self._slices)

    def listed(
        self, order: IntArray, start_s: IntArray, ends: IntArray, slices: Slices
    ) -> ListSchedule:
        """The schedule of jobs that were placed in an order.

        Parameters
        ----------
        order : int64 array, shape (placed,)
        start_s : int64 array, shape (jobs,)
        ends : int64 array, shape (placed + 1,)
            Where the entries of each of them end in ``slices``, after a 0.
        """
        count, used = np.diff(ends), int(ends[-1])
        nodes = (slices.last - slices.first)[:used]
        node = self.member[ranges(slices.first[:used], nodes)]
        units = np.repeat(slices.units[:used], nodes)
        owner = np.repeat(np.repeat(order, count), nodes)
        by_job = np.argsort(owner, kind="stable")
        offset = np.searchsorted(owner[by_job], np.arange(len(self) + 1))
        return ListSchedule(start_s, offset, node[by_job], units[by_job])

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
