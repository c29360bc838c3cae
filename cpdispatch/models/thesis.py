"""The dissertation's HCP and PCP and their variants, with its search control and its limits.

HCP plans on the pooled capacity of all nodes, and a best-fit allocation then finds nodes for the
jobs that the plan starts now. In PCP the model itself finds the nodes. Here every model begins with
a complete list schedule: CP-SAT finds no first plan of such models within the time limit.

References
----------
Bartolini, Borghesi, Bridi, Lombardi, Milano, "Proactive workload dispatching on the EURORA
supercomputer", CP 2014. Galleguillos, "Constraint programming-based job dispatching for modern HPC
applications", 2020, chapters 2.3, 5 and 6.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import NO_START, Decision, Placements
from cpdispatch.garbage import no_collection
from cpdispatch.heuristics.allocate import fits_now, free_over_time, start_in_order, system_fits
from cpdispatch.heuristics.eligible import cleared_first
from cpdispatch.heuristics.priority_rule import highest_first, reasons, waiting_priority
from cpdispatch.heuristics.profiles.per_node import NodeProfile
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column
from cpdispatch.models import objective as objectives
from cpdispatch.models import pooled
from cpdispatch.models.boxes import BoxesModel
from cpdispatch.models.budget import Budget
from cpdispatch.models.certificate import Result, certify
from cpdispatch.models.copies import CopiesModel
from cpdispatch.models.counts import CountsModel
from cpdispatch.models.node_problem import NodePlan, NodeProblem, asked_of, own_limits
from cpdispatch.models.objective import Cost
from cpdispatch.models.part import could_run
from cpdispatch.models.pooled import Pool
from cpdispatch.models.pooled_model import PooledModel, PooledProblem
from cpdispatch.models.search import (
    DETERMINISTIC_PER_S,
    FalseAnswerError,
    Formulation,
    PlanT,
    Search,
)
from cpdispatch.models.timing import TimedProblem
from cpdispatch.terms import apart

PARTS_PER_S = 100_000
"""Parts of a model that a second of budget allows: larger models are not even built."""

PARTS_PER_DETERMINISTIC_S = 250
"""Parts of a model with which a second is sure to hold 1 of CP-SAT's deterministic time.

A model with twice the parts gets through half as much in a second. This was measured on models on
the nodes with 520 to 25,000 parts, one worker, OR-Tools 9.15: deterministic time per second times
parts was 245 to 820, median 450. Small models are limited as pooled models are.
"""


# --------------------------------------------------------------------------------- the variants


@dataclass(frozen=True, slots=True)
class Variant:
    """The properties in which the variants differ."""

    name: str
    formulation: type[Formulation[Any]]
    objective: str
    """Used unless another is asked for."""
    m: int = 100
    """Jobs in the model, at most."""
    filtered: bool = True
    """Jobs that do not fit now stay out of the model, and so do resources that nobody asks for; a
    model proven infeasible is not searched again.
    """
    overdue_run_on: bool = True
    """An overdue running job lasts 1 more second; without this, the dissertation's flaw: the model
    takes it as already ended. The allocation knows better in either case.
    """
    fruitless: int | None = 3
    """Fruitless searches after which there is no restart."""

    @property
    def on_pool(self) -> bool:
        """Whether it plans on the pooled capacity: HCP, not PCP."""
        return self.formulation is PooledModel


JOBS_MOST = 1000
"""Jobs in the models that have no bound of their own, at most.

For longer queues such a model is too large to be searched, and its list schedules alone take longer
than a decision may.
"""
_ORIGINAL: Mapping[str, Any] = {
    "m": JOBS_MOST, "filtered": False, "overdue_run_on": False, "fruitless": None
}  # fmt: skip
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("thesis-hcp", PooledModel, "ewt_weighted", **_ORIGINAL),
        Variant("thesis-hcp1", PooledModel, "ewt_weighted", overdue_run_on=False),
        Variant("thesis-hcp2", PooledModel, "ewt_weighted"),
        Variant("thesis-hcp3", PooledModel, "slowdown"),
        Variant("thesis-pcp", CopiesModel, "ewt_excess", **_ORIGINAL),
        Variant("thesis-pcp1", CopiesModel, "ewt_excess", overdue_run_on=False),
        Variant("thesis-pcp2", CopiesModel, "ewt_excess"),
        Variant("thesis-pcp3", CopiesModel, "slowdown"),
        Variant("thesis-pcp4", CountsModel, "slowdown"),
        Variant("thesis-pcp5", BoxesModel, "slowdown"),
    )
}
"""The variants by name, each the one before it with something more."""


# ---------------------------------------------------------------------------------- the problem


class Posed(TimedProblem, Protocol[PlanT]):
    """A problem, on the pool or on the nodes, whose plans are of type PlanT."""

    @property
    def cost(self) -> Cost:
        """What to minimise, exactly."""

    @property
    def earliest_s(self) -> IntArray:
        """Earliest start of each job if it were alone, shape (jobs,)."""

    def first_plan(self) -> tuple[PlanT, bool]:
        """A complete plan, and whether it is proven best."""

    def sum_of(self, plan: PlanT) -> int:
        """The weighted sum of a plan."""

    def wrong(self, plan: PlanT) -> str:
        """Why a plan is not feasible; empty if it is."""

    def key(self) -> bytes:
        """What tells this problem from others."""


def select(instance: Instance, variant: Variant, m: int | None) -> IntArray:
    """Queue positions of the model's jobs by priority, highest first; ``m`` at most.

    Priority is the slowdown (wait + d) / d for the variants that minimise it, else the wait by what
    is expected in the queue; ties as in `highest_first`.

    With the variant's filter, the jobs that alone fit what is free now; without it, all that fit
    the nodes in service, or the pool, when they are empty, and come after no other job.
    """
    queue = instance.queue
    if variant.filtered:
        possible = fits_now(instance)
    elif variant.on_pool:
        within = pooled.demand(instance, queue) <= pooled.capacity(instance)
        fits = system_fits(instance.system, queue, instance.power)
        possible = within.all(axis=1) & fits & instance.eligible()
    else:
        possible = could_run(instance) & instance.eligible()
    if variant.objective == "slowdown":
        order = highest_first(instance, (instance.now - queue.submit_s) / queue.expected_s)
    else:
        order = waiting_priority(instance)
    return order[possible[order]][:m]


def pose_on_pool(
    instance: Instance, chosen: IntArray, variant: Variant, objective: str
) -> PooledProblem:
    """The problem of the jobs at these queue positions, one at least, on the pool."""
    jobs = instance.queue.take(chosen)
    free = pooled.free_capacity(instance, _expected(instance, variant))
    pool = Pool(*free, pooled.demand(instance, jobs), jobs.expected_s)
    if variant.filtered:
        pool = pool.where_short()
    cost = objectives.of(objective, instance.queue).take(chosen)
    return PooledProblem(pool, cost, cost.weights(pool.horizon_s))


def pose_on_nodes(
    instance: Instance, chosen: IntArray, variant: Variant, objective: str
) -> NodeProblem:
    """The problem of the jobs at these queue positions, one at least, on the nodes.

    Nodes that are down have nothing, and no node has less than nothing where a reservation and a
    job meet.
    """
    profile = _expected(instance, variant)
    taken = instance.queue.take(chosen)
    units, once = apart(instance.system, taken.block)
    jobs, first, free = own_limits(
        instance.system, taken.asking(units), once.T if once.any() else None, profile.free
    )
    resources = tuple(range(jobs.request.shape[1]))
    if variant.filtered:
        resources = asked_of(jobs, first)
    cost = objectives.of(objective, instance.queue).take(chosen)
    since_s = profile.time
    latest_s = int(since_s[-1] + jobs.expected_s.sum())
    return NodeProblem(
        chosen, jobs, instance.job_power(taken),
        since_s, free, np.maximum(profile.watts, 0),
        resources, cost, cost.weights(latest_s), first=first,
    )  # fmt: skip


def _expected(instance: Instance, variant: Variant) -> NodeProfile:
    """What is free over time if running jobs hold their nodes until their expected end.

    Overdue ones are taken as ended by the variants that have that flaw.
    """
    end_s = instance.running.end_s
    if not variant.overdue_run_on:
        end_s = np.where(instance.running.overdue == 1, instance.now, end_s)
    return free_over_time(instance, 0, end_s)


# ------------------------------------------------------------------------------- the dispatcher

_WARMING_S = 0.2
"""Budget of a decision on a toy, seconds."""


@dataclass(frozen=True, slots=True)
class Thesis:
    """Plans the model's jobs; those that the plan starts now are dispatched.

    Examples
    --------
    >>> Thesis(VARIANTS["thesis-pcp4"]).objective
    'slowdown'
    """

    variant: Variant
    limit_s: float = 1.0
    """Budget of a decision, everything included, seconds."""
    m: int | None = None
    """Jobs in the model, at most; the variant's own when None.

    The others stay in the queue: the original fixes them at the end of the horizon, where they do
    not change the best plan.
    """
    seed: int = 0
    objective: str = ""
    """The variant's own when empty."""
    name: str = ""
    """Name in tables; the variant's own when empty."""
    _search: Search = field(init=False, repr=False, compare=False)

    keeps_starvation_bound: ClassVar[bool] = False
    takes_first: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", self.variant.m if self.m is None else self.m)
        object.__setattr__(self, "objective", self.objective or self.variant.objective)
        object.__setattr__(self, "name", self.name or self.variant.name)
        search = Search(self.seed, self.variant.fruitless, self.variant.filtered)
        object.__setattr__(self, "_search", search)
        objectives.find(self.objective)

    @property
    def faults(self) -> Counter[str]:
        """Faults of the solver and its process so far, with their numbers."""
        return self._search.faults

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile all that decisions on such instances call, or load it from the cache."""
        _warm_up(self.variant, self.objective, *instances)

    @no_collection()
    @cleared_first
    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where; plan the others of the model."""
        budget = Budget(self.limit_s, live=True)
        chosen = select(instance, self.variant, self.m)
        budget.lap("select")
        start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
        if len(chosen) == 0:
            places, whole, placed = Placements.of({}), True, True
            result = Result("optimal", 0.0)
        elif self.variant.on_pool:
            pooled_problem = pose_on_pool(instance, chosen, self.variant, self.objective)
            planned_s, result = self.solve(pooled_problem, budget)
            places = start_in_order(instance, chosen[planned_s == instance.now])
            later = planned_s > instance.now
            start_s[chosen[later]] = planned_s[later]
            start_s[places.position] = instance.now
            whole = bool((start_s[chosen] != NO_START).all())
            placed = not later.any()
        else:
            problem = pose_on_nodes(instance, chosen, self.variant, self.objective)
            plan, result = self.solve(problem, budget)
            kept = startable(instance, problem, plan)
            if not self.variant.overdue_run_on:
                kept &= after_overdue(instance, plan)
            start_s[chosen[kept]] = plan.start_s[kept]
            places, whole, placed = placements(problem, plan, kept), bool(kept.all()), True
        reason = reasons(instance, np.arange(len(start_s)), start_s)
        value = objectives.of(self.objective, instance.queue).value(start_s)
        certificate = certify(
            self.variant.name, self.objective, value, result, budget, whole=whole, placed=placed
        )
        return Decision(start_s, reason, places, certificate)

    def _search_anyway(self, instance: Instance) -> None:
        """Search for a plan even if the first one is proven to be the best, as on most toys."""
        chosen, budget = select(instance, self.variant, self.m), Budget(self.limit_s, live=True)
        pose = pose_on_pool if self.variant.on_pool else pose_on_nodes
        problem: Posed[Any] = pose(instance, chosen, self.variant, self.objective)
        self._search_on(problem, problem.first_plan()[0], 1, budget)

    def solve(self, problem: Posed[PlanT], budget: Budget) -> tuple[PlanT, Result]:
        """The best plan that is found within the budget, with its bound."""
        plan, proven = problem.first_plan()
        bound = problem.cost.value(problem.earliest_s)
        budget.lap("incumbent")
        if proven:
            stated = problem.cost.bound(problem.sum_of(plan), problem.weights)
            return plan, Result("optimal", max(bound, stated))
        parts = self.variant.formulation.size(problem)
        if parts > PARTS_PER_S * self.limit_s:
            return plan, Result("heuristic", bound, limit_hit=True)
        budget.keep(parts * self.variant.formulation.freed_s)
        return self._search_on(problem, plan, parts, budget)

    def _search_on(
        self, problem: Posed[PlanT], plan: PlanT, parts: int, budget: Budget
    ) -> tuple[PlanT, Result]:
        """The plan that CP-SAT finds from a complete plan; it is never worse."""
        best, best_sum, lossless = plan, problem.sum_of(plan), True

        def build() -> Formulation[PlanT]:
            nonlocal lossless
            model = self.variant.formulation(problem, plan, lambda: budget.over)
            lossless = model.lossless
            budget.lap("build")
            return model

        def judge(found: PlanT) -> bool:
            nonlocal best, best_sum
            if wrong := problem.wrong(found):
                raise FalseAnswerError(wrong)
            if problem.sum_of(found) >= best_sum:
                return False
            best, best_sum = found, problem.sum_of(found)
            return True

        per_s = min(DETERMINISTIC_PER_S, PARTS_PER_DETERMINISTIC_S / parts)
        outcome = self._search.run(build, budget, judge, problem.key(), per_s)
        budget.lap("solve")
        bound, status = problem.cost.value(problem.earliest_s), outcome.status
        if outcome.bound is None or outcome.bound > best_sum:
            status = "heuristic"
        elif lossless:
            bound = max(bound, problem.cost.bound(outcome.bound, problem.weights))
        return best, Result(status, bound, outcome.limit_hit)


def startable(instance: Instance, problem: NodeProblem, plan: NodePlan) -> BoolArray:
    """Which jobs' starts are possible, shape (jobs,).

    A model that takes overdue jobs as ended starts others on nodes that are not free: in the order
    of priority, those wait.
    """
    left, watts_left = instance.free.copy(), instance.power_free()
    block, first = apart(instance.system, instance.queue.block)
    kept = np.ones(len(plan.start_s), dtype=np.bool_)
    for job in np.nonzero(plan.start_s == instance.now)[0].tolist():
        (nodes,) = np.nonzero(plan.units[job])
        position = problem.position[job]
        need = plan.units[job, nodes, None] * block[Column.REQUEST :, position]
        if plan.head is not None and len(first):
            need[nodes == plan.head[job]] += first[:, position]
        watts = int(problem.watts[job])
        kept[job] = (need <= left[nodes]).all() and (watts == 0 or watts <= watts_left)
        if kept[job]:
            left[nodes] -= need
            watts_left -= watts
    return kept


def after_overdue(instance: Instance, plan: NodePlan) -> BoolArray:
    """Which jobs start now, or when the overdue jobs on their nodes are expected to have ended.

    A model that takes overdue jobs as ended does not know when that is: after a second, but for
    some corrections of expected durations.
    """
    running = instance.running
    owner = np.repeat(np.arange(len(running)), np.diff(running.offset))
    overdue = running.overdue[owner] == 1
    end_s = np.zeros(plan.units.shape[1], dtype=np.int64)
    np.maximum.at(end_s, running.node[overdue], running.end_s[owner[overdue]])
    last_s = np.where(plan.units > 0, end_s, 0).max(axis=1, initial=0)
    after: BoolArray = (plan.start_s == instance.now) | (plan.start_s >= last_s)
    return after


def placements(problem: NodeProblem, plan: NodePlan, kept: BoolArray) -> Placements:
    """Nodes of the kept jobs of a plan."""
    found: dict[int, dict[int, int]] = {int(problem.position[k]): {} for k in kept.nonzero()[0]}
    for job, node in np.column_stack(plan.entries()).tolist():
        if kept[job]:
            found[int(problem.position[job])][node] = int(plan.units[job, node])
    return Placements.of(found)


@functools.cache
def _warm_up(variant: Variant, objective: str, *instances: Instance) -> None:
    """Have a throw-away decide and search, once for each kind of dispatcher in a process."""
    other = Thesis(variant, _WARMING_S, objective=objective)
    for instance in instances:
        other.dispatch(instance)
        other._search_anyway(instance)
