"""The problem that the pure CP models share: which jobs, what every node has free, complete plans.

References
----------
Galleguillos, "Constraint programming-based job dispatching for modern HPC applications", 2020,
chapters 5 and 6.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.heuristics import plan as planning
from cpdispatch.heuristics.allocate import fits_now, holds, power_unit
from cpdispatch.heuristics.priority_rule import waiting_priority
from cpdispatch.heuristics.priority_search import PrioritySearch, jobs_of
from cpdispatch.heuristics.timelines import POWER, of_profile
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable
from cpdispatch.models import objective as objectives
from cpdispatch.models.hcp import Variant, slowdown_priority
from cpdispatch.models.objective import Cost, Weights
from cpdispatch.models.search import Values

# -------------------------------------------------------------------------------- the problem


class After(NamedTuple):
    """A job starts ``think_s`` seconds after the end of another one, or later."""

    job: int
    before: int
    think_s: int


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The data of a model: its jobs, and what they may use of each node over time.

    Attributes
    ----------
    position : int64 array, shape (jobs,)
        Queue position of each job; jobs are in the order of priority, highest first.
    jobs : JobTable
        The jobs at these positions.
    watts : int64 array, shape (jobs,)
        Power that each draws while it runs; zeros without a cap.
    since_s : int64 array, shape (segments,)
        Ascending; the first is the instance's ``now``. The last segment has no end.
    free : int64 array, shape (segments, nodes, resources)
        Capacity free from ``since_s[k]`` until the next segment. Nothing runs and nothing is
        reserved in the last one: it has the capacity of the nodes in service.
    watts_free : int64 array, shape (segments,)
        Power left under the cap.
    resources : tuple of int
        The resource types that are constrained.
    cost : Cost
        What to minimise, exactly.
    weights : Weights
        The same in integers.
    early_s, latest_s : int64 array, shape (jobs,), optional
        The first and the last start that each job may have, whatever the others do.
    after : tuple of After
        Which jobs come after which.
    room : int64 array, shape (jobs, nodes)
        ``p[i, n]``: how many units of each job the node can hold when it is empty.

    Raises
    ------
    ValueError
        When a job does not even fit the last segment.
    """

    position: IntArray
    jobs: JobTable
    watts: IntArray
    since_s: IntArray
    free: IntArray
    watts_free: IntArray
    resources: tuple[int, ...]
    cost: Cost
    weights: Weights
    early_s: IntArray | None = None
    latest_s: IntArray | None = None
    after: tuple[After, ...] = ()
    room: IntArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", room(self.capacity, self.jobs))
        fits = (self.room.sum(axis=1) >= self.jobs.units) & (self.watts <= self.watts_free[-1])
        if not fits.all():
            raise ValueError(f"jobs {self.jobs.id[~fits].tolist()} do not fit the empty nodes")

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
            + self.jobs.expected_s.sum()
            + sum(after.think_s for after in self.after)
        )

    def sum(self, start_s: IntArray) -> int:
        """The weighted sum that the solver minimises."""
        return int((self.weights.per_s * np.maximum(start_s - self.cost.free_until_s, 0)).sum())

    def earliest(self) -> IntArray:
        """Earliest start of each job if it were alone, shape (jobs,)."""
        return self._search().earliest()

    def latest(self, start_s: IntArray) -> IntArray:
        """Starts beyond which a job alone would make any plan worse than this one."""
        earliest = self.earliest()
        slack = self.sum(start_s) - self.sum(earliest)
        free = np.maximum(earliest, self.cost.free_until_s)
        late = free + slack // np.maximum(self.weights.per_s, 1)
        last = self.horizon_s - self.jobs.expected_s
        return np.where(self.weights.per_s > 0, np.minimum(late, last), last)

    def schedule(self, order: IntArray) -> Plan:
        """A complete plan: each job in turn as early as it fits, its units by best fit."""
        found = self._search().schedule(order)
        units = np.zeros_like(self.room)
        units[np.repeat(np.arange(len(order)), np.diff(found.offset)), found.node] = found.units
        return Plan(found.start_s, units)

    def key(self) -> bytes:
        """What tells this problem from others, whenever it is posed."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (
            self.since_s - self.now, self.free, self.watts_free, self.jobs.units,
            self.jobs.request, self.jobs.expected_s, self.watts,
            self.cost.free_until_s - self.now, self.weights.per_s,
            *(given - self.now for given in (self.early_s, self.latest_s) if given is not None),
            np.array(self.after, dtype=np.int64),
        ):  # fmt: skip
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()

    def _search(self) -> PrioritySearch:
        lines = of_profile(self.since_s, self.free)
        if self.watts.any():
            lines.size[POWER] = len(self.since_s)
            lines = lines._replace(power_time=self.since_s, power_free=self.watts_free)
        early_s = np.full(len(self.jobs), self.now) if self.early_s is None else self.early_s
        return PrioritySearch(
            lines,
            np.arange(self.free.shape[1]),
            jobs_of(
                self.jobs, self.watts, early_s, self.cost.free_until_s, self.weights.per_s,
                [(after.job, after.before, after.think_s) for after in self.after],
            ),
        )  # fmt: skip


def room(capacity: IntArray, jobs: JobTable) -> IntArray:
    """How many units of each job each node can hold, the job's own number at most.

    Parameters
    ----------
    capacity : int64 array, shape (nodes, resources)
    jobs : JobTable

    Returns
    -------
    int64 array, shape (jobs, nodes)
    """
    most = np.repeat(jobs.units[:, None], len(capacity), axis=1)
    for resource, asked in enumerate(jobs.request.T):
        some = asked > 0
        here = capacity[:, resource] // asked[some, None]
        most[some] = np.minimum(most[some], here)
    return most


# ------------------------------------------------------------------- from an instance to a problem


def select(instance: Instance, variant: Variant, m: int) -> IntArray:
    """Queue positions of the model's jobs by priority, highest first.

    With the variant's filter, of the jobs that alone fit what is free now the first ``m``; without
    it, all that fit the nodes in service when they are empty, and come after no other job.
    """
    queue = instance.queue
    if len(queue) == 0:
        return np.empty(0, dtype=np.int64)
    if variant.filtered:
        possible = fits_now(instance)
    else:
        capacity = instance.system.capacity.copy()
        capacity[instance.down] = 0
        possible = room(capacity, queue).sum(axis=1) >= queue.units
        if instance.power is not None:
            possible &= instance.job_power(queue) <= instance.power.cap
        possible &= instance.eligible()
    order = slowdown_priority(instance) if variant.by_slowdown else waiting_priority(instance)
    chosen = order[possible[order]]
    return chosen[:m] if variant.filtered else chosen


def pose(instance: Instance, chosen: IntArray, variant: Variant, objective: str) -> Problem:
    """The problem of the jobs at these queue positions, one at least.

    Running jobs hold their nodes until their expected end; overdue ones are taken as ended by the
    variants that have that flaw. Nodes that are down have nothing, and no node has less than
    nothing where a reservation and a job meet.
    """
    running = instance.running
    end_s = running.end_s
    if not variant.overdue_run_on:
        end_s = sealed(np.where(running.overdue == 1, instance.now, end_s))
    hold_start, hold_node, hold_capacity = holds(instance)
    hold_end = [r.end_s for r in instance.reservations for _ in r.nodes]
    profile = planning.expected_profile(
        instance.now, instance.system.capacity, instance.down, 0,
        running.jobs.block, end_s, running.offset, running.node, running.units,
        hold_start, sealed(np.array(hold_end, dtype=np.int64)), hold_node, hold_capacity,
        power_unit(instance), instance.power_free(),
    )  # fmt: skip
    jobs = instance.queue.take(chosen)
    resources = list(range(jobs.request.shape[1]))
    if variant.filtered:
        resources = [resource for resource in resources if jobs.request[:, resource].any()]
    cost = objectives.of(objective, instance.queue).take(chosen)
    latest_s = int(profile.time[-1] + jobs.expected_s.sum())
    return Problem(
        chosen, jobs, instance.job_power(jobs),
        profile.time, profile.free, np.maximum(profile.watts, 0),
        tuple(resources), cost, cost.weights(latest_s),
    )  # fmt: skip


# --------------------------------------------------------------------------------- complete plans


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A start, and nodes, for every job of a problem.

    Attributes
    ----------
    start_s : int64 array, shape (jobs,)
    units : int64 array, shape (jobs, nodes)
        Units of each job on each node.
    """

    start_s: IntArray
    units: IntArray

    def check(self, problem: Problem) -> str:
        """What is wrong with the plan; empty when it solves the problem."""
        start_s, units, jobs = self.start_s, self.units, problem.jobs
        if start_s.shape != jobs.units.shape or units.shape != problem.room.shape:
            return f"{start_s.shape} starts, {units.shape} units for {problem.room.shape}"
        end_s = start_s + jobs.expected_s
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
        instants = np.union1d(problem.since_s, start_s)
        segment = np.searchsorted(problem.since_s, instants, side="right") - 1
        runs = (start_s <= instants[:, None]) & (instants[:, None] < end_s)
        runs = runs.astype(np.int64)
        used = units.any(axis=0)
        amount = units[:, used, None] * jobs.request[:, None, :]
        held = runs @ amount.reshape(len(jobs), -1)
        if (held > problem.free[segment][:, used].reshape(len(instants), -1)).any():
            return "a node holds more than it has"
        if (runs @ problem.watts > problem.watts_free[segment]).any():
            return "the power cap is exceeded"
        return ""


# ------------------------------------------------------------------ what all the models begin with


class Timing:
    """When the jobs run: the start and the interval of each, and what their starts cost.

    Times are counted from now.

    Parameters
    ----------
    model : CpModel
        To which all this is added.
    problem : Problem
    plan : Plan, optional
        A known plan: no start is allowed that would make any plan worse than it.
    """

    def __init__(self, model: cp_model.CpModel, problem: Problem, plan: Plan | None) -> None:
        self.model, self.problem = model, problem
        latest = problem.horizon_s - problem.jobs.expected_s
        if plan is not None:
            latest = np.maximum(problem.latest(plan.start_s), plan.start_s)
        if problem.latest_s is not None:
            latest = np.minimum(latest, problem.latest_s)
        first, last = problem.earliest() - problem.now, latest - problem.now
        self.starts = [
            model.new_int_var(low, high, "")
            for low, high in zip(first.tolist(), last.tolist(), strict=True)
        ]
        self.intervals = [
            model.new_fixed_size_interval_var(start, duration, "")
            for start, duration in zip(self.starts, problem.jobs.expected_s.tolist(), strict=True)
        ]
        self.late: list[cp_model.IntVar] = []
        for after in problem.after:
            self._comes_after(after)

    def _comes_after(self, after: After) -> None:
        """A job starts once another has ended and the time to think is over."""
        duration = int(self.problem.jobs.expected_s[after.before])
        end = self.starts[after.before] + duration
        self.model.add(self.starts[after.job] >= end + after.think_s)

    def held(self, free: IntArray) -> tuple[list[cp_model.IntervalVar], list[int]]:
        """What running jobs and reservations hold of something, as intervals and demands.

        Parameters
        ----------
        free : int64 array, shape (segments,)
            What is free of it; in the last segment, all.
        """
        intervals, demands = [], []
        for begin, end, demand in levels(self.problem, free):
            intervals.append(self.model.new_fixed_size_interval_var(begin, end - begin, ""))
            demands.append(demand)
        return intervals, demands

    def within_power(self) -> None:
        """At no instant do the jobs draw more than is left under the power cap."""
        problem = self.problem
        if problem.watts.any():
            intervals, demands = self.held(problem.watts_free)
            self.model.add_cumulative(
                intervals + self.intervals,
                demands + problem.watts.tolist(),
                int(problem.watts_free[-1]),
            )

    def minimise(self) -> None:
        """The weighted sum of how late each job starts: after its last start that costs nothing."""
        problem, terms, constant = self.problem, [], 0
        free_until = (problem.cost.free_until_s - problem.now).tolist()
        weights = problem.weights.per_s.tolist()
        for start, free, weight in zip(self.starts, free_until, weights, strict=True):
            if free <= 0:
                terms.append(start)
                constant -= weight * free
            else:
                late = self.model.new_int_var(0, problem.horizon_s - problem.now, "")
                self.model.add(late >= start - free)
                self.late.append(late)
                terms.append(late)
        self.model.minimize(cp_model.LinearExpr.weighted_sum(terms, weights) + constant)

    def search_by_priority(self) -> None:
        """Schedule or postpone: the earliest-startable job first, ties by priority."""
        self.model.add_decision_strategy(
            self.starts, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE
        )

    def hint(self, start_s: IntArray) -> None:
        """Hint every variable of this part."""
        now, free_until = self.problem.now, self.problem.cost.free_until_s
        late = np.maximum(start_s - free_until, 0)[free_until > now]
        values = [*(start_s - now).tolist(), *late.tolist()]
        for variable, value in zip(self.starts + self.late, values, strict=True):
            self.model.add_hint(variable, value)

    def read(self, solver: Values) -> IntArray:
        """The starts that a solver has found, shape (jobs,)."""
        values = [solver.value(start) for start in self.starts]
        return np.array(values, dtype=np.int64) + self.problem.now


def levels(problem: Problem, free: IntArray) -> list[tuple[int, int, int]]:
    """Begin and end, counted from now, and amount of what is held, for each level that it has.

    Parameters
    ----------
    free : int64 array, shape (segments,)
        What is free; in the last segment, all.
    """
    steps = np.append(True, free[1:] != free[:-1])
    since = (problem.since_s[steps] - problem.now).tolist()
    held = (free[-1] - free[steps]).tolist()
    rows = zip(since[:-1], since[1:], held[:-1], strict=True)
    return [row for row in rows if row[2] > 0]
