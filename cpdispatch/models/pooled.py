"""The pooled relaxation: all nodes' capacity as one pool that changes over time.

A plan of the pool may not be a plan of the nodes, where free capacity lies in pieces; every plan
of the nodes is one of the pool, so the pool's best value is a lower bound of theirs. Power, where
it is capped, is one more resource of the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.heuristics.profiles.per_node import NodeProfile
from cpdispatch.heuristics.profiles.profile import (
    Profile,
    copy_row,
    earliest,
    empty,
    hold,
)
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable
from cpdispatch.models.objective import Weights
from cpdispatch.terms import asked_in_all


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Jobs to be scheduled on a pool; each must fit what is free in the last segment."""

    since_s: IntArray
    """Ascending, shape (segments,); the first is the instance's ``now``.

    The last segment has no end.
    """
    free: IntArray
    """Free capacity from ``since_s[k]`` until the next segment, shape (segments, resources).

    A power cap is one column more.
    """
    demand: IntArray
    """What each job holds while it runs, shape (jobs, resources): all of its units together."""
    duration_s: IntArray
    """Shape (jobs,)."""

    def __post_init__(self) -> None:
        # A kernel is compiled for each kind of array (layout, read-only): one kind is enough.
        for name in ("since_s", "free", "demand", "duration_s"):
            object.__setattr__(self, name, np.array(getattr(self, name), order="C"))

    @property
    def now(self) -> int:
        """The instance's time."""
        return int(self.since_s[0])

    @property
    def horizon_s(self) -> int:
        """A time by which every job can have ended, whatever their order."""
        return int(self.since_s[-1] + self.duration_s.sum())

    def where_short(self) -> Pool:
        """The same without the resources of which there is always enough for all jobs at once."""
        short = self.demand.sum(axis=0) > self.free.min(axis=0)
        return Pool(self.since_s, self.free[:, short], self.demand[:, short], self.duration_s)

    def take(self, jobs: IntArray) -> Pool:
        """The pool with some of the jobs."""
        return Pool(self.since_s, self.free, self.demand[jobs], self.duration_s[jobs])

    def earliest(self) -> IntArray:
        """Earliest start of each job if it were alone, shape (jobs,)."""
        return _each_earliest(self.since_s, self.free, self.demand, self.duration_s)

    def schedule(self, order: IntArray) -> IntArray:
        """Starts of the list schedule of an order: schedule or postpone, shape (jobs,).

        The earliest-startable job is scheduled first, the one that comes first in ``order`` among
        equals; the starts of the others are postponed as far as that calls for.

        References
        ----------
        Galleguillos, "Constraint programming-based job dispatching for modern HPC applications",
        2020, algorithm 4.
        """
        return _schedule(self.since_s, self.free, self.demand, self.duration_s, order)

    def holds(self, start_s: IntArray) -> bool:
        """Whether these starts keep within the pool at every instant."""
        return bool(_holds(self.since_s, self.free, self.demand, self.duration_s, start_s))

    def improve(
        self, start_s: IntArray, weights: Weights, steps: int, alike: IntArray | None = None
    ) -> tuple[IntArray, bool]:
        """The best starts by exhaustion, beginning with these, and whether they are proven best.

        Parameters
        ----------
        weights : Weights
            What to minimise.
        steps : int
            Limit of the work: segments of a profile that are looked at.
        alike : int64 array, shape (jobs,), optional
            The same for jobs that may change places in any plan.
        """
        jobs = len(start_s)
        of = np.arange(jobs) if alike is None else alike
        same = of[:, None] == of
        before = np.where(np.tri(jobs, k=-1, dtype=np.bool_) & same, np.arange(jobs), -1)
        best, proven = _improve(
            self.since_s, self.free, self.demand, self.duration_s,
            np.array(weights.free_until_s), weights.per_s, before.max(axis=1, initial=-1), start_s,
            steps,
        )  # fmt: skip
        return best, bool(proven)


def demand(instance: Instance, jobs: JobTable) -> IntArray:
    """What each job takes of the pool; power last where it is capped."""
    pooled = np.maximum(asked_in_all(instance.system, jobs), 0)
    if instance.power is None:
        return pooled
    return np.column_stack((pooled, instance.job_power(jobs)))


def capacity(instance: Instance) -> IntArray:
    """What the pool has when nothing runs or is reserved; power last where it is capped."""
    total = instance.system.total - instance.system.capacity[instance.down].sum(axis=0)
    return total if instance.power is None else np.append(total, instance.power.cap)


def free_capacity(instance: Instance, profile: NodeProfile) -> tuple[IntArray, IntArray]:
    """When what the pool has free changes, and what it has from then on: see `Pool`.

    Parameters
    ----------
    profile : NodeProfile
        What each node has free over time, without the queued jobs and without room for them.
    """
    if instance.power is None:
        return profile.time, profile.pool
    return profile.time, np.column_stack((profile.pool, np.maximum(profile.watts, 0)))


# ------------------------------------------------------------------------------- kernels


@allocating
def _rows(since: IntArray, free: IntArray, rows: int, jobs: int) -> Profile:
    """A profile whose rows can take two more segments for each job; the first is the pool's."""
    profile = empty(rows, since.shape[0] + 2 * jobs, free.shape[1])
    profile.segments[0] = since.shape[0]
    for k in range(since.shape[0]):
        profile.time[0, k] = since[k]
        for r in range(free.shape[1]):
            profile.free[0, k, r] = free[k, r]
    return profile


@allocating
def _each_earliest(
    since: IntArray, free: IntArray, demand: IntArray, duration: IntArray
) -> IntArray:
    profile = _rows(since, free, 1, 0)
    start = np.empty(duration.shape[0], dtype=np.int64)
    for j in range(duration.shape[0]):
        start[j], _ = earliest(profile, 0, demand[j], duration[j], since[0])
    return start


@allocating
def _schedule(
    since: IntArray, free: IntArray, demand: IntArray, duration: IntArray, order: IntArray
) -> IntArray:
    jobs = duration.shape[0]
    left = _rows(since, free, 1, jobs)
    start = np.full(jobs, since[0])
    todo = order.copy()
    for count in range(jobs, 0, -1):
        # A start computed earlier can only have grown: the first that does not grow is the least.
        while True:
            first = 0
            for k in range(1, count):
                if start[todo[k]] < start[todo[first]]:
                    first = k
            j = todo[first]
            found, _ = earliest(left, 0, demand[j], duration[j], start[j])
            if found == start[j]:
                break
            start[j] = found
        hold(left, 0, start[j], start[j] + duration[j], demand[j], 1)
        for k in range(first, count - 1):
            todo[k] = todo[k + 1]
    return start


@allocating
def _holds(
    since: IntArray, free: IntArray, demand: IntArray, duration: IntArray, start: IntArray
) -> bool:
    jobs = duration.shape[0]
    left = _rows(since, free, 1, jobs)
    for j in range(jobs):
        if start[j] < since[0]:
            return False
        hold(left, 0, start[j], start[j] + duration[j], demand[j], 1)
    for k in range(left.segments[0]):
        for r in range(left.free.shape[2]):
            if left.free[0, k, r] < 0:
                return False
    return True


class _Tree(NamedTuple):
    """The path of the branch and bound, one row a depth; at depth k, k jobs have a start."""

    profile: Profile
    """What the jobs with a start leave free."""
    early: IntArray
    """Earliest start of each job that has none yet."""
    cutoff: IntArray
    """Some job could be run whole before this: none of the others need start any later."""
    cost: IntArray
    next: IntArray
    """The next job to try."""
    last: IntArray
    """The job that was started last."""
    start: IntArray
    """Start of each job that has one, else -1; shape (jobs,)."""


@allocating
def _root(since: IntArray, free: IntArray, jobs: int) -> _Tree:
    depths = jobs + 1
    return _Tree(
        _rows(since, free, depths, jobs),
        np.full((depths, jobs), since[0]),
        np.zeros(depths, dtype=np.int64),
        np.zeros(depths, dtype=np.int64),
        np.zeros(depths, dtype=np.int64),
        np.full(depths, -1),
        np.full(jobs, -1),
    )


@kernel
def _look(
    tree: _Tree,
    depth: int,
    demand: IntArray,
    duration: IntArray,
    free_until: IntArray,
    per_s: IntArray,
) -> tuple[int, int]:
    """Lower bound of all plans below a node, and the segments looked at."""
    bound, steps = tree.cost[depth], 1
    tree.next[depth] = 0
    tree.cutoff[depth] = np.iinfo(np.int64).max
    for j in range(duration.shape[0]):
        if tree.start[j] < 0:
            found, looked = earliest(
                tree.profile, depth, demand[j], duration[j], tree.early[depth, j]
            )
            steps += looked
            tree.early[depth, j] = found
            tree.cutoff[depth] = min(tree.cutoff[depth], found + duration[j])
            bound += per_s[j] * max(0, found - free_until[j])
    return bound, steps


@kernel
def _choose(tree: _Tree, depth: int, before: IntArray) -> int:
    """The next job to start below a node, or the number of jobs when all were tried."""
    last, jobs = tree.last[depth], len(tree.start)
    for j in range(tree.next[depth], jobs):
        early = tree.early[depth, j]
        if tree.start[j] >= 0 or early >= tree.cutoff[depth]:
            continue
        if before[j] >= 0 and tree.start[before[j]] < 0:
            continue
        if last < 0 or j > last or early > tree.start[last]:
            return j
    return jobs


@kernel
def _descend(
    tree: _Tree,
    depth: int,
    job: int,
    demand: IntArray,
    duration: IntArray,
    free_until: IntArray,
    per_s: IntArray,
) -> None:
    """Start a job as early as it can; the others start no earlier."""
    begin = tree.early[depth, job]
    tree.start[job] = begin
    tree.last[depth + 1] = job
    copy_row(tree.profile, depth, tree.profile, depth + 1)
    hold(tree.profile, depth + 1, begin, begin + duration[job], demand[job], 1)
    tree.cost[depth + 1] = tree.cost[depth] + per_s[job] * max(0, begin - free_until[job])
    for j in range(duration.shape[0]):
        tree.early[depth + 1, j] = max(tree.early[depth, j], begin)


@allocating
def _improve(
    since: IntArray,
    free: IntArray,
    demand: IntArray,
    duration: IntArray,
    free_until: IntArray,
    per_s: IntArray,
    before: IntArray,
    incumbent: IntArray,
    steps: int,
) -> tuple[IntArray, bool]:
    """Depth-first branch and bound over the jobs in the order of their starts.

    Some best plan has every job at its earliest start given those that start before it. At each
    depth the next job starts no earlier than the last one, jobs with the same start come by index,
    and none starts once another could have been run whole before it: each plan is seen once. Of
    jobs that are alike none starts before the last one with a smaller index, ``before``.
    """
    jobs = duration.shape[0]
    tree = _root(since, free, jobs)
    best = incumbent.copy()
    best_cost = 0
    for j in range(jobs):
        best_cost += per_s[j] * max(0, incumbent[j] - free_until[j])
    depth, entered = 0, True
    while depth >= 0:
        if entered:
            entered = False
            bound, looked = _look(tree, depth, demand, duration, free_until, per_s)
            steps -= looked
            if steps < 0:
                return best, False
            if bound >= best_cost:
                tree.next[depth] = jobs
            elif depth == jobs:
                best_cost = bound
                for j in range(jobs):
                    best[j] = tree.start[j]
        j = _choose(tree, depth, before)
        if j == jobs:
            if depth > 0:
                tree.start[tree.last[depth]] = -1
            depth -= 1
            continue
        tree.next[depth] = j + 1
        _descend(tree, depth, j, demand, duration, free_until, per_s)
        depth += 1
        entered = True
    return best, True
