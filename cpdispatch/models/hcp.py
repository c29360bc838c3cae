"""HCP, the hybrid dispatcher: a pooled schedule by CP-SAT, then best-fit allocation.

References
----------
Bartolini, Borghesi, Bridi, Lombardi, Milano, "Proactive workload dispatching on the EURORA
supercomputer", CP 2014. Galleguillos, "Constraint programming-based job dispatching for modern HPC
applications", 2020, chapters 5 and 6.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch import toys
from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START, Certificate, Decision
from cpdispatch.errors import UsageError
from cpdispatch.heuristics.allocate import fits_empty, fits_now, start_in_order
from cpdispatch.heuristics.priority_rule import reasons, waiting_priority
from cpdispatch.instance import Instance
from cpdispatch.models import objective as objectives
from cpdispatch.models import pooled
from cpdispatch.models.objective import Cost, Weights
from cpdispatch.models.pooled import Pool
from cpdispatch.models.search import FalseAnswerError, Search, Stopwatch, Values

EXHAUST_STEPS = 200_000
"""Work of the exhaustive search before CP-SAT: about a millisecond, enough for 8 jobs or so."""

TOLERANCE = 1e-4
"""Relative gap at or below which the search ends."""

OPTIMAL_GAP = 1e-6
"""Relative gap that the rounding of weights may leave to a proven optimum."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What tells the variants of HCP apart.

    Attributes
    ----------
    name : str
    objective : str
        Used unless another is asked for.
    filtered : bool
        Jobs that do not fit now stay out of the model, and so do resources that nobody asks for; a
        model proven infeasible is not searched again.
    overdue_run_on : bool
        An overdue running job lasts 1 more second; without this, the thesis' flaw: the
        model takes it as already ended. The allocation knows better in either case.
    by_slowdown : bool
        Jobs are taken by slowdown; without this, by wait relative to what is usual in their queue.
    fruitless : int or None
        Searches without a solution after which there is no restart.
    """

    name: str
    objective: str
    filtered: bool
    overdue_run_on: bool
    by_slowdown: bool
    fruitless: int | None


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("hcp", "ewt_weighted", False, False, False, None),
        Variant("hcp1", "ewt_weighted", True, False, False, 3),
        Variant("hcp2", "ewt_weighted", True, True, False, 3),
        Variant("hcp3", "slowdown", True, True, True, 3),
    )
}
"""The variants by name, each the one before it with something more."""


@dataclass(frozen=True, slots=True)
class Hcp:
    """Plans on the pooled capacity, then finds nodes for what the plan starts now.

    The jobs beyond the first ``m`` by priority are not in the model: the original fixes them
    at the end of the horizon, where they neither take capacity nor change the best plan.

    Parameters
    ----------
    variant : Variant
    limit_s : float
        Budget of a decision, everything included, seconds.
    m : int
        Jobs in the model, at most.
    seed : int
    objective : str
        The variant's own when empty.
    name : str
        Name in tables; the variant's own when empty.

    Examples
    --------
    >>> Hcp(VARIANTS["hcp2"]).objective
    'ewt_weighted'
    """

    variant: Variant = VARIANTS["hcp3"]
    limit_s: float = 1.0
    m: int = 100
    seed: int = 0
    objective: str = ""
    name: str = ""
    _search: Search = field(init=False, repr=False, compare=False)

    keeps_starvation_bound: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", self.objective or self.variant.objective)
        object.__setattr__(self, "name", self.name or self.variant.name)
        search = Search(self.seed, self.variant.fruitless, self.variant.filtered)
        object.__setattr__(self, "_search", search)
        objectives.find(self.objective)

    @property
    def faults(self) -> Counter[str]:
        """What went wrong in or around the solver so far, and how often."""
        return self._search.faults

    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where; plan the others of the model."""
        watch = Stopwatch(self.limit_s)
        chosen = self.select(instance)
        watch.lap("select")
        plan = self.plan(instance, chosen, watch)
        placements = start_in_order(instance, chosen[plan.start_s == instance.now])
        watch.lap("allocate")
        start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
        later = plan.start_s > instance.now
        start_s[chosen[later]] = plan.start_s[later]
        start_s[placements.position] = instance.now
        reason = reasons(instance, np.arange(len(start_s)), start_s)
        whole = np.count_nonzero(start_s != NO_START) == len(chosen)
        value = objectives.of(self.objective, instance.queue).value(start_s)
        certificate = self._certificate(plan, value, whole, watch)
        return Decision(start_s, reason, placements, certificate)

    # ------------------------------------------------------------------- what goes into the model

    def select(self, instance: Instance) -> IntArray:
        """Queue positions of the model's jobs by priority, highest first: ``m`` at most."""
        if len(instance.queue) == 0:
            return np.empty(0, dtype=np.int64)
        if self.variant.filtered:
            possible = fits_now(instance)
        else:
            within = pooled.demand(instance, instance.queue) <= pooled.capacity(instance)
            possible = within.all(axis=1) & fits_empty(instance) & instance.eligible()
        if not possible.any():
            return np.empty(0, dtype=np.int64)
        order = (
            slowdown_priority(instance) if self.variant.by_slowdown else waiting_priority(instance)
        )
        return order[possible[order]][: self.m]

    def pool(self, instance: Instance, chosen: IntArray) -> Pool:
        """The pooled problem of the jobs at these queue positions."""
        ended = None if self.variant.overdue_run_on else instance.running.overdue.astype(np.bool_)
        profile = pooled.profile(instance, ended)
        jobs = instance.queue.take(chosen)
        demand = pooled.demand(instance, jobs)
        pool = Pool(profile.since_s, profile.free, demand, jobs.expected_s)
        return pool.where_short() if self.variant.filtered else pool

    # ------------------------------------------------------------------------------- solving it

    def plan(self, instance: Instance, chosen: IntArray, watch: Stopwatch) -> Plan:
        """The best plan of the pool, for the jobs at these positions, that the budget allows.

        All jobs now if they fit; else the priority search, the exhaustion of what follows from it
        for a millisecond, and CP-SAT if there is still something to find.
        """
        at_once = np.full(len(chosen), instance.now, dtype=np.int64)
        if len(chosen) == 0:
            return Plan(at_once, "optimal", 0.0)
        cost = objectives.of(self.objective, instance.queue).take(chosen)
        pool = self.pool(instance, chosen)
        if pool.holds(at_once):
            watch.lap("incumbent")
            return Plan(at_once, "optimal", cost.value(at_once))
        problem = Problem(pool, cost, cost.weights(pool.horizon_s))
        start_s = problem.incumbent()
        watch.lap("incumbent")
        start_s, proven = problem.exhaust(start_s)
        watch.lap("exhaust")
        plan = Plan(start_s, "optimal" if proven else "feasible", problem.bound(start_s, proven))
        if proven or cost.value(start_s) - plan.bound <= TOLERANCE * cost.value(start_s):
            return plan
        return self._search_on(problem, start_s, watch)

    def _search_on(self, problem: Problem, start_s: IntArray, watch: Stopwatch) -> Plan:
        """What CP-SAT makes of a complete plan: never a worse one."""
        best, best_sum = start_s, problem.sum(start_s)

        def judge(found: IntArray) -> bool:
            nonlocal best, best_sum
            if found.max() > problem.pool.horizon_s or not problem.pool.holds(found):
                raise FalseAnswerError("the plan exceeds the pool or the horizon")
            if problem.sum(found) >= best_sum:
                return False
            best, best_sum = found, problem.sum(found)
            return True

        def build() -> PooledModel:
            model = PooledModel(problem, start_s)
            watch.lap("build")
            return model

        outcome = self._search.run(build, watch, judge, problem.key())
        watch.lap("solve")
        least = problem.sum(problem.pool.earliest())
        status, stated = outcome.status, outcome.bound
        if status not in ("optimal", "feasible") or stated is None or stated > best_sum:
            status, stated = "heuristic", least
        bound = problem.cost.bound(max(least, stated), problem.weights)
        return Plan(best, status, bound, outcome.limit_hit)

    def _certificate(self, plan: Plan, value: float, whole: bool, watch: Stopwatch) -> Certificate:
        """What is known of a decision that has the ``whole`` plan, or lacks jobs without nodes."""
        bound = min(plan.bound, value) if whole else None
        proven = bound is not None and value - bound <= OPTIMAL_GAP * max(1.0, value)
        status = "feasible" if plan.status == "optimal" and not proven else plan.status
        watch.lap("answer")
        return Certificate(
            self.variant.name, self.objective, status, value, bound,
            watch.phases_ms, plan.limit_hit,
        )  # fmt: skip


def slowdown_priority(instance: Instance) -> IntArray:
    """Queue positions by slowdown (wait + d) / d, highest first, then by submission."""
    queue = instance.queue
    return np.argsort(-((instance.now - queue.submit_s) / queue.expected_s), kind="stable")


# --------------------------------------------------------------------------------- the plan


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Starts on the pool, and what is known of them.

    Attributes
    ----------
    start_s : int64 array, shape (jobs of the model,)
    status : str
        ``optimal``, ``feasible`` or ``heuristic``.
    bound : float
        Lower bound of the objective over the model's jobs.
    limit_hit : bool
    """

    start_s: IntArray
    status: str
    bound: float
    limit_hit: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A pool, its jobs by priority, and what to minimise, exactly and in integers."""

    pool: Pool
    cost: Cost
    weights: Weights

    def sum(self, start_s: IntArray) -> int:
        """The weighted sum that the solvers minimise."""
        return int((self.weights.per_s * np.maximum(start_s - self.cost.free_until_s, 0)).sum())

    def incumbent(self) -> IntArray:
        """The best of the priority search's plans: by priority, shortest first, dearest first."""
        per_s, duration_s = self.weights.per_s, self.pool.duration_s
        orders = (
            np.arange(len(duration_s)),
            np.argsort(duration_s, kind="stable"),
            np.argsort(-per_s, kind="stable"),
        )
        return min((self.pool.schedule(order) for order in orders), key=self.sum)

    def exhaust(self, start_s: IntArray) -> tuple[IntArray, bool]:
        """The best plan within `EXHAUST_STEPS`, and whether it is proven best."""
        return self.pool.improve(start_s, self.cost.free_until_s, self.weights.per_s, EXHAUST_STEPS)

    def bound(self, start_s: IntArray, proven: bool) -> float:
        """Lower bound: the plan's own sum if it is proven best, else each job's earliest start."""
        least = self.sum(start_s if proven else self.pool.earliest())
        return self.cost.bound(least, self.weights)

    def latest(self, start_s: IntArray) -> IntArray:
        """Starts beyond which a job alone would make any plan worse than this one."""
        earliest = self.pool.earliest()
        slack = self.sum(start_s) - self.sum(earliest)
        free = np.maximum(earliest, self.cost.free_until_s)
        late = free + slack // np.maximum(self.weights.per_s, 1)
        return np.where(self.weights.per_s > 0, late, self.pool.horizon_s)

    def key(self) -> bytes:
        """What tells this problem from others, whenever it is posed."""
        pool, digest = self.pool, hashlib.blake2b(digest_size=16)
        for array in (
            pool.since_s - pool.now, pool.free, pool.demand, pool.duration_s,
            self.cost.free_until_s - pool.now, self.weights.per_s,
        ):  # fmt: skip
            digest.update(array.tobytes())
        return digest.digest()


# --------------------------------------------------------------------------------- the model


class PooledModel:
    """HCP's model: data, variables, constraints, objective, hint. Times are counted from now.

    Parameters
    ----------
    problem : Problem
        Its jobs are in the order of priority.
    plan : int64 array, shape (jobs,)
        A complete plan, which the solver starts from; it looks for none that is worse.
    """

    def __init__(self, problem: Problem, plan: IntArray) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.starts = self._start_times(np.maximum(problem.latest(plan), plan))
        self.intervals = [
            self.model.new_fixed_size_interval_var(start, duration, "")
            for start, duration in zip(self.starts, problem.pool.duration_s.tolist(), strict=True)
        ]
        self.late: list[cp_model.IntVar] = []
        for resource in range(problem.pool.free.shape[1]):
            self._within_pool(resource)
        self._minimise()
        self._search_by_priority()
        self.hint(plan)

    def _start_times(self, latest_s: IntArray) -> list[cp_model.IntVar]:
        """Each job starts when the pool can first take it, or later, up to its latest start."""
        pool = self.problem.pool
        first, last = (pool.earliest() - pool.now).tolist(), (latest_s - pool.now).tolist()
        return [
            self.model.new_int_var(low, high, "") for low, high in zip(first, last, strict=True)
        ]

    def _within_pool(self, resource: int) -> None:
        """At no instant do the jobs hold more of a resource than the pool has free then."""
        pool = self.problem.pool
        capacity = int(pool.free[:, resource].max())
        intervals, demands = self._held(resource, capacity)
        for interval, demand in zip(self.intervals, pool.demand[:, resource].tolist(), strict=True):
            if demand > 0:
                intervals.append(interval)
                demands.append(demand)
        self.model.add_cumulative(intervals, demands, capacity)

    def _held(self, resource: int, capacity: int) -> tuple[list[cp_model.IntervalVar], list[int]]:
        """Running jobs and reservations as fixed intervals, one for each level that they hold."""
        pool = self.problem.pool
        free = pool.free[:, resource]
        steps = np.append(True, free[1:] != free[:-1])
        since = (pool.since_s[steps] - pool.now).tolist()
        held = (capacity - free[steps]).tolist()
        # The last level holds from then on: it is 0, for a pool without running jobs is largest.
        intervals, demands = [], []
        for begin, end, demand in zip(since[:-1], since[1:], held[:-1], strict=True):
            if demand > 0:
                intervals.append(self.model.new_fixed_size_interval_var(begin, end - begin, ""))
                demands.append(demand)
        return intervals, demands

    def _minimise(self) -> None:
        """The weighted sum of how late each job starts: after its last start that costs nothing."""
        problem = self.problem
        free_until = (problem.cost.free_until_s - problem.pool.now).tolist()
        weights, terms, constant = problem.weights.per_s.tolist(), [], 0
        for start, free, weight in zip(self.starts, free_until, weights, strict=True):
            if free <= 0:
                terms.append(start)
                constant -= weight * free
            else:
                late = self.model.new_int_var(0, problem.pool.horizon_s - problem.pool.now, "")
                self.model.add(late >= start - free)
                self.late.append(late)
                terms.append(late)
        self.model.minimize(cp_model.LinearExpr.weighted_sum(terms, weights) + constant)

    def _search_by_priority(self) -> None:
        """Schedule or postpone: the earliest-startable job first, ties by priority."""
        self.model.add_decision_strategy(
            self.starts, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE
        )

    def hint(self, plan: IntArray) -> None:
        """Begin the next search with this plan: a value for every variable."""
        now, free_until = self.problem.pool.now, self.problem.cost.free_until_s
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        for start, value in zip(self.starts, (plan - now).tolist(), strict=True):
            self.model.add_hint(start, value)
        late = np.maximum(plan - free_until, 0)[free_until > now]
        for variable, value in zip(self.late, late.tolist(), strict=True):
            self.model.add_hint(variable, value)

    def read(self, solver: Values) -> IntArray:
        """The starts that a solver has found."""
        values = [solver.value(start) for start in self.starts]
        return np.array(values, dtype=np.int64) + self.problem.pool.now


# ------------------------------------------------------------------------------ putting it together


def make_hcp(
    variant: str, *, limit_s: float = 1.0, m: int = 100, seed: int = 0, objective: str = ""
) -> Hcp:
    """The dispatcher of a name in `VARIANTS`; for the rest see `Hcp`.

    Raises
    ------
    UsageError
        When there is no such variant or objective.
    """
    if variant not in VARIANTS:
        raise UsageError(f"unknown variant {variant!r} (one of {', '.join(VARIANTS)})")
    _warm_up(variant)
    return Hcp(VARIANTS[variant], limit_s, m, seed, objective)


@functools.cache
def _warm_up(variant: str) -> None:
    """Load the compiled kernels and the solver, so that no decision's budget pays for it."""
    toys.play(partial(Hcp, VARIANTS[variant]))
