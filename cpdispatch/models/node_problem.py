"""A problem on the nodes: its jobs, what every node has free over time, and complete plans."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cpdispatch.access.spread import LIMIT_TYPE, most_on_a_node
from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.profiles.per_class import of_common_times
from cpdispatch.heuristics.profiles.profile import one_row
from cpdispatch.heuristics.schedule_generation import ScheduleGenerator
from cpdispatch.heuristics.schedule_input import jobs_of
from cpdispatch.jobs import Column, JobTable
from cpdispatch.models.objective import Cost, Weights
from cpdispatch.models.timing import After
from cpdispatch.system import System

# -------------------------------------------------------------------------------- the problem


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """The data of a model: its jobs, and the capacity of each node over time.

    Raises
    ------
    ValueError
        When a job does not even fit the last segment.
    """

    position: IntArray
    """Queue position of each job, shape (jobs,); jobs are in the order of priority, highest first.
    """
    jobs: JobTable
    """The jobs at these positions."""
    watts: IntArray
    """Power that each draws while it runs, shape (jobs,); zeros without a cap."""
    since_s: IntArray
    """Ascending, shape (segments,); the first is the instance's ``now``.

    The last segment has no end.
    """
    free: IntArray
    """Capacity free from ``since_s[k]`` until the next segment, shape (segments, nodes, resources).

    Nothing runs and nothing is reserved in the last one: it has the capacity of the nodes in
    service.
    """
    watts_free: IntArray
    """Power left under the cap, shape (segments,)."""
    resources: tuple[int, ...]
    """The resource types that are constrained."""
    cost: Cost
    """What to minimise, exactly."""
    weights: Weights
    """The same in integers."""
    early_s: IntArray | None = None
    latest_s: IntArray | None = None
    """The first and the last start that each job may have, whatever the others do, shape (jobs,).
    """
    after: tuple[After, ...] = ()
    """Which jobs come after which."""
    alike: IntArray | None = None
    """The same for jobs that may change places in any plan, shape (jobs,); models keep them in
    their order.
    """
    first: IntArray | None = None
    """What each job takes once, on its first node, shape (jobs, resources); None if nothing."""
    room: IntArray = field(init=False)
    """``p[i, n]``, shape (jobs, nodes): how many units of each job the node can hold when it is
    empty.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", room(self.capacity, self.jobs))
        left = self.room.sum(axis=1)
        for job in self.with_first.tolist():
            on_first = self.room_on_first(job)
            lost = self.room[job] - on_first
            left[job] -= lost[on_first > 0].min(initial=left[job])
        fits = (left >= self.jobs.units) & (self.watts <= self.watts_free[-1])
        if not fits.all():
            raise ValueError(f"jobs {self.jobs.id[~fits].tolist()} do not fit the empty nodes")

    @cached_property
    def with_first(self) -> IntArray:
        """The jobs that take something once."""
        none = np.empty(0, dtype=np.int64)
        return none if self.first is None else np.flatnonzero(self.first.any(axis=1))

    def once(self, resource: int) -> IntArray:
        """What each job takes once of a resource type, shape (jobs,)."""
        none = np.zeros(len(self.jobs), dtype=np.int64)
        return none if self.first is None else self.first[:, resource]

    def room_on_first(self, job: int) -> IntArray:
        """How many units each node can hold as the first one of a job, shape (nodes,)."""
        assert self.first is not None
        left = self.capacity - self.first[job]
        found = room(np.maximum(left, 0), self.jobs.take(np.array([job])))[0]
        return np.where((left < 0).any(axis=1), 0, np.minimum(found, self.room[job]))

    @property
    def duration_s(self) -> IntArray:
        """Planned duration of each job, shape (jobs,)."""
        return self.jobs.planned_s

    @property
    def now(self) -> int:
        """The instance's time."""
        return int(self.since_s[0])

    @property
    def capacity(self) -> IntArray:
        """Capacity of the nodes in service, shape (nodes, resources)."""
        return np.asarray(self.free[-1], dtype=np.int64)

    @property
    def horizon_s(self) -> int:
        """A time by which every job can have ended, whatever their order."""
        return int(
            max(self.since_s[-1], 0 if self.early_s is None else self.early_s.max())
            + self.duration_s.sum()
            + sum(after.think_s for after in self.after)
        )

    @cached_property
    def earliest_s(self) -> IntArray:
        """Earliest start of each job if it were alone, shape (jobs,)."""
        return self._generator.earliest()

    def window(self, start_s: IntArray | None) -> tuple[IntArray, IntArray]:
        """The first and the last start of each job, shape (jobs,) each.

        Parameters
        ----------
        start_s : int64 array, shape (jobs,), optional
            Starts of a known plan: a later start of a job alone makes any plan worse than it.
        """
        last_s = self.horizon_s - self.duration_s
        if start_s is not None:
            late_s = self.weights.latest(self.earliest_s, self.weights.sum(start_s), last_s)
            last_s = np.maximum(np.minimum(late_s, last_s), start_s)
        if self.latest_s is not None:
            last_s = np.minimum(last_s, self.latest_s)
        return self.earliest_s, last_s

    def schedule(self, order: IntArray) -> NodePlan:
        """A complete plan: one job after the other as early as it fits, its units by best fit."""
        found = self._generator.schedule(order)
        return self.plan_of(found.start_s, found.offset, found.node, found.units)

    def plan_of(
        self, start_s: IntArray, offset: IntArray, node: IntArray, units: IntArray
    ) -> NodePlan:
        """The plan of entries as those of a `ListSchedule`."""
        on = np.zeros_like(self.room)
        on[np.repeat(np.arange(len(start_s)), np.diff(offset)), node] = units
        if not len(self.with_first):
            return NodePlan(start_s, on)
        head = np.full(len(start_s), -1)
        head[self.with_first] = node[offset[self.with_first]]
        return NodePlan(start_s, on, head)

    def first_plan(self) -> tuple[NodePlan, bool]:
        """The plan of the jobs by priority, and whether it is proven best: each job is earliest."""
        plan = self.schedule(np.arange(len(self.jobs)))
        return plan, self.sum_of(plan) == self.weights.sum(self.earliest_s)

    def sum_of(self, plan: NodePlan) -> int:
        """The weighted sum that the searches minimise."""
        return self.weights.sum(plan.start_s)

    def wrong(self, plan: NodePlan) -> str:
        """What is wrong with a plan; empty when it solves the problem."""
        return plan.check(self)

    def key(self) -> bytes:
        """What tells this problem from others, whenever it is posed."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (
            self.since_s - self.now, self.free, self.watts_free, self.jobs.units,
            self.jobs.request, self.duration_s, self.watts,
            self.weights.free_until_s - self.now, self.weights.per_s,
            *(given - self.now for given in (self.early_s, self.latest_s) if given is not None),
            *(() if self.first is None else (self.first,)),
            np.array(self.after, dtype=np.int64),
        ):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()

    @cached_property
    def _generator(self) -> ScheduleGenerator:
        lines = of_common_times(self.since_s, self.free)
        if self.watts.any():
            lines = lines._replace(power=one_row(self.since_s, self.watts_free[:, None]))
        early_s = np.full(len(self.jobs), self.now) if self.early_s is None else self.early_s
        return ScheduleGenerator(
            lines,
            np.arange(self.free.shape[1]),
            jobs_of(
                self.jobs, self.watts, early_s, self.weights.free_until_s, self.weights.per_s,
                [(after.job, after.before, after.think_s) for after in self.after],
                self.first,
            ),
        )  # fmt: skip


def room(capacity: IntArray, jobs: JobTable) -> IntArray:
    """How many units of each job each node can hold, as many at most as may share a node.

    Parameters
    ----------
    capacity : int64 array, shape (nodes, resources)

    Returns
    -------
    int64 array, shape (jobs, nodes)
    """
    most = np.repeat(most_on_a_node(jobs)[:, None], len(capacity), axis=1)
    for resource, asked in enumerate(jobs.request.T):
        some = asked > 0
        here = capacity[:, resource] // asked[some, None]
        most[some] = np.minimum(most[some], here)
    return most


def asked_of(jobs: JobTable, first: IntArray | None) -> tuple[int, ...]:
    """The resource types that jobs ask for, or take something of once."""
    asked = jobs.request.any(axis=0)
    if first is not None:
        asked = asked | first.any(axis=0)
    return tuple(np.flatnonzero(asked).tolist())


def own_limits(
    system: System, jobs: JobTable, first: IntArray | None, free: IntArray
) -> tuple[JobTable, IntArray | None, IntArray]:
    """Limits on the units of a job on a node as resource types, of which each job has its own.

    So a model that respects capacity keeps them. Requests below 0 say them otherwise, see
    `cpdispatch.access.spread`. Nothing is taken once of these types.

    Parameters
    ----------
    first : int64 array, shape (jobs, resources), or None
        What each job takes once.
    free : int64 array, shape (segments, nodes, resources)
    """
    at = system.resource(LIMIT_TYPE)
    if at < 0:
        return jobs, first, free
    limit = -jobs.request[:, at]
    own = np.flatnonzero(limit)
    asked = (np.arange(len(jobs)) == own[:, None]).astype(np.int64)
    block = np.concatenate([np.delete(jobs.block, Column.REQUEST + at, axis=0), asked])
    most = np.broadcast_to(limit[own], (*free.shape[:2], len(own)))
    free = np.concatenate([np.delete(free, at, axis=2), most], axis=2)
    if first is not None:
        none = np.zeros((len(jobs), len(own)), dtype=np.int64)
        first = np.hstack([np.delete(first, at, axis=1), none])
    return jobs.asking(block), first, free


# --------------------------------------------------------------------------------- complete plans


@dataclass(frozen=True, slots=True, eq=False)
class NodePlan:
    """A start, and nodes, for every job of a problem."""

    start_s: IntArray
    """Shape (jobs,)."""
    units: IntArray
    """Units of each job on each node, shape (jobs, nodes)."""
    head: IntArray | None = None
    """The first node of each job that takes something once, -1 of the others, shape (jobs,)."""

    def take(self, jobs: IntArray) -> NodePlan:
        """The plan in which each job has the place of the one that is named instead of it."""
        head = None if self.head is None else self.head[jobs]
        return NodePlan(self.start_s[jobs], self.units[jobs], head)

    def entries(self) -> tuple[IntArray, IntArray]:
        """Job and node wherever a job has units: by job, its first node first."""
        job, node = np.nonzero(self.units)
        if self.head is not None:
            order = np.lexsort((node != self.head[job], job))
            job, node = job[order], node[order]
        return job, node

    def check(self, problem: NodeProblem) -> str:
        """What is wrong with the plan; empty when it solves the problem."""
        start_s, units, jobs = self.start_s, self.units, problem.jobs
        if start_s.shape != jobs.units.shape or units.shape != problem.room.shape:
            return f"{start_s.shape} starts, {units.shape} units for {problem.room.shape}"
        end_s = start_s + problem.duration_s
        if (start_s < problem.now).any() or (end_s > problem.horizon_s).any():
            return "a job starts in the past or ends beyond the horizon"
        if problem.early_s is not None and (start_s < problem.early_s).any():
            return "a job starts before it may"
        if problem.latest_s is not None and (start_s > problem.latest_s).any():
            return "a job starts after it must"
        if any(start_s[a.job] < end_s[a.before] + a.think_s for a in problem.after):
            return "a job starts before another that it comes after has ended"
        if (units < 0).any() or (units.sum(axis=1) != jobs.units).any():
            return "a job has not as many units as it asks for"
        first, head = problem.with_first, self.head
        if len(first) and (
            head is None or (head[first] < 0).any() or not units[first, head[first]].all()
        ):
            return "a job has no unit on its first node"
        instants = np.union1d(problem.since_s, start_s)
        segment = np.searchsorted(problem.since_s, instants, side="right") - 1
        runs = (start_s <= instants[:, None]) & (instants[:, None] < end_s)
        runs = runs.astype(np.int64)
        used = units.any(axis=0)
        amount = units[:, used, None] * jobs.request[:, None, :]
        if problem.first is not None and head is not None:
            amount[first, (np.cumsum(used) - 1)[head[first]]] += problem.first[first]
        held = runs @ amount.reshape(len(jobs), -1)
        if (held > problem.free[segment][:, used].reshape(len(instants), -1)).any():
            return "a node holds more than it has"
        if (runs @ problem.watts > problem.watts_free[segment]).any():
            return "the power cap is exceeded"
        return ""
