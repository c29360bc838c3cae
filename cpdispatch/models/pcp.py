"""PCP, the pure CP dispatcher: every unit finds its node in the model itself.

`PcpModel` is the formulation of pcp to pcp3; those of pcp4 and pcp5 have files of their own. `Pcp`
is the dispatcher of all of them, bare: the incumbent, the model, the thesis' search control.

References
----------
Bartolini, Borghesi, Bridi, Lombardi, Milano, "Proactive workload dispatching on the EURORA
supercomputer", CP 2014. Galleguillos, "Constraint programming-based job dispatching for modern HPC
applications", 2020, chapters 2.3, 5 and 6.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from cpdispatch import toys
from cpdispatch.decision import NO_START, Certificate, Decision, Placements
from cpdispatch.errors import UsageError
from cpdispatch.heuristics.priority_rule import reasons
from cpdispatch.instance import Instance
from cpdispatch.models import objective as objectives
from cpdispatch.models.hcp import OPTIMAL_GAP, Variant
from cpdispatch.models.moves import NodeModel
from cpdispatch.models.pcp4 import Pcp4Model
from cpdispatch.models.pcp5 import Pcp5Model
from cpdispatch.models.problem import Plan, Problem, Timing, pose, select
from cpdispatch.models.search import (
    DETERMINISTIC_PER_S,
    FalseAnswerError,
    Search,
    Stopwatch,
    Values,
)

PARTS_PER_S = 100_000
"""Parts of a model that a second of budget allows: larger models are not even built."""

PARTS_PER_DETERMINISTIC_S = 250
"""Parts of a model with which a second is sure to hold 1 of CP-SAT's deterministic time.

A model of so many times the parts gets through so many times less. Measured on models of 520 to
25,000 parts, one worker, OR-Tools 9.15: deterministic time per second times parts was 245 to 820,
median 450; that of small models is limited as that of pooled ones.
"""

# --------------------------------------------------------------------------------- the model


class PcpModel:
    """Variables: the start of each job, and for each unit that a node could hold a copy of it.

    A copy is an optional interval that shares the start of its job.

    Parameters
    ----------
    problem : Problem
    plan : Plan, optional
        A complete plan, which the solver starts from; it looks for none that is worse.
    """

    lossless = True

    def __init__(self, problem: Problem, plan: Plan | None = None) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.timing = Timing(self.model, problem, plan)
        self.present = [self._copies_of(job) for job in range(len(problem.jobs))]
        self.copies = [self._intervals_of(job) for job in range(len(problem.jobs))]
        for job in range(len(problem.jobs)):
            self._alternative(job)
        for resource in problem.resources:
            for node in np.nonzero(problem.capacity[:, resource])[0].tolist():
                self._within_node(node, resource)
        self.timing.within_power()
        self.timing.minimise()
        self.timing.search_by_priority()
        if plan is not None:
            self.hint(plan)

    @staticmethod
    def size(problem: Problem) -> int:
        """How many parts the model of a problem has, of those that there are most of."""
        held = np.count_nonzero(problem.jobs.request[:, problem.resources], axis=1)
        return int((problem.room.sum(axis=1) * (2 + held)).sum())

    # ------------------------------------------------------------------------------- variables

    def _copies_of(self, job: int) -> dict[int, list[cp_model.IntVar]]:
        """Of a job, by node: whether each of the p[i, n] units that it could hold is there."""
        room = self.problem.room[job]
        return {
            node: [self.model.new_bool_var("") for _ in range(room[node])]
            for node in np.nonzero(room)[0].tolist()
        }

    def _intervals_of(self, job: int) -> dict[int, list[cp_model.IntervalVar]]:
        """The interval of each copy: it begins with its job."""
        start, duration = self.timing.starts[job], int(self.problem.jobs.expected_s[job])
        new_interval = self.model.new_optional_fixed_size_interval_var
        return {
            node: [new_interval(start, duration, present, "") for present in here]
            for node, here in self.present[job].items()
        }

    # ----------------------------------------------------------------------------- constraints

    def _alternative(self, job: int) -> None:
        """As many copies are present as the job has units."""
        copies = [present for here in self.present[job].values() for present in here]
        self.model.add(cp_model.LinearExpr.sum(copies) == int(self.problem.jobs.units[job]))

    def _within_node(self, node: int, resource: int) -> None:
        """At no instant do the copies hold more of a resource than a node has free."""
        free = self.problem.free[:, node, resource]
        intervals, demands = self.timing.held(free)
        asked = self.problem.jobs.request[:, resource].tolist()
        for copies, unit in zip(self.copies, asked, strict=True):
            if unit > 0 and node in copies:
                intervals += copies[node]
                demands += [unit] * len(copies[node])
        self.model.add_cumulative(intervals, demands, int(free[-1]))

    # --------------------------------------------------------------------------- hint and result

    def hint(self, plan: Plan) -> None:
        """Begin the next search with this plan: a value for every variable."""
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        self.timing.hint(plan.start_s)
        for present, units in zip(self.present, plan.units, strict=True):
            for node, here in present.items():
                for count, copy in enumerate(here):
                    self.model.add_hint(copy, bool(count < units[node]))

    def read(self, solver: Values) -> Plan:
        """The starts and nodes that a solver has found."""
        units = np.zeros_like(self.problem.room)
        for job, present in enumerate(self.present):
            for node, here in present.items():
                units[job, node] = sum(solver.value(copy) for copy in here)
        return Plan(self.timing.read(solver), units)


# --------------------------------------------------------------------------------- the variants


@dataclass(frozen=True, slots=True)
class PcpVariant(Variant):
    """A variant of PCP, with its formulation; the rest is as for HCP's."""

    formulation: type[NodeModel]


VARIANTS: Mapping[str, PcpVariant] = {
    variant.name: variant
    for variant in (
        PcpVariant("pcp", "ewt_excess", False, False, False, None, PcpModel),
        PcpVariant("pcp1", "ewt_excess", True, False, False, 3, PcpModel),
        PcpVariant("pcp2", "ewt_excess", True, True, False, 3, PcpModel),
        PcpVariant("pcp3", "slowdown", True, True, True, 3, PcpModel),
        PcpVariant("pcp4", "slowdown", True, True, True, 3, Pcp4Model),
        PcpVariant("pcp5", "slowdown", True, True, True, 3, Pcp5Model),
    )
}
"""The variants by name, each the one before it with something more."""


# ------------------------------------------------------------------------------- the dispatcher


@dataclass(frozen=True, slots=True)
class Pcp:
    """Plans the model's jobs on the nodes; those that the plan starts now are dispatched.

    Parameters
    ----------
    variant : PcpVariant
    limit_s : float
        Budget of a decision, everything included, seconds.
    m : int
        Jobs in the model, at most; the original takes all.
    seed : int
    objective : str
        The variant's own when empty.
    name : str
        Name in tables; the variant's own when empty.

    Examples
    --------
    >>> Pcp(VARIANTS["pcp4"]).objective
    'slowdown'
    """

    variant: PcpVariant = VARIANTS["pcp3"]
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
        # A first search that is cut short ends with the plan it began with: no time for a proof.
        search = Search(self.seed, self.variant.fruitless, self.variant.filtered, 1.0)
        object.__setattr__(self, "_search", search)
        objectives.find(self.objective)

    @property
    def faults(self) -> Counter[str]:
        """What went wrong in or around the solver so far, and how often."""
        return self._search.faults

    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where; plan the others of the model."""
        watch = Stopwatch(self.limit_s)
        chosen = select(instance, self.variant, self.m)
        watch.lap("select")
        start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
        if len(chosen) == 0:
            found, places, whole = Found("optimal", 0.0), Placements.of({}), True
        else:
            problem = pose(instance, chosen, self.variant, self.objective)
            plan, found = self.solve(problem, watch)
            kept = startable(instance, problem, plan)
            start_s[chosen[kept]] = plan.start_s[kept]
            places, whole = placements(problem, plan, kept), bool(kept.all())
        reason = reasons(instance, np.arange(len(start_s)), start_s)
        value = objectives.of(self.objective, instance.queue).value(start_s)
        certificate = self._certificate(found, value, whole, watch)
        return Decision(start_s, reason, places, certificate)

    def solve(self, problem: Problem, watch: Stopwatch) -> tuple[Plan, Found]:
        """The best plan that the budget allows, and what is known of it."""
        plan = problem.schedule(np.arange(len(problem.jobs)))
        least = problem.sum(problem.earliest())
        watch.lap("incumbent")
        bound = problem.cost.bound(least, problem.weights)
        if problem.sum(plan.start_s) == least:
            return plan, Found("optimal", bound)
        if self.variant.formulation.size(problem) > PARTS_PER_S * self.limit_s:
            return plan, Found("heuristic", bound, limit_hit=True)
        return self._search_on(problem, plan, least, watch)

    def _search_on(
        self, problem: Problem, plan: Plan, least: int, watch: Stopwatch
    ) -> tuple[Plan, Found]:
        """What CP-SAT makes of a complete plan: never a worse one."""
        best, best_sum, lossless = plan, problem.sum(plan.start_s), True

        def build() -> NodeModel:
            nonlocal lossless
            model = self.variant.formulation(problem, plan)
            lossless = model.lossless
            watch.lap("build")
            return model

        def judge(found: Plan) -> bool:
            nonlocal best, best_sum
            if wrong := found.check(problem):
                raise FalseAnswerError(wrong)
            if problem.sum(found.start_s) >= best_sum:
                return False
            best, best_sum = found, problem.sum(found.start_s)
            return True

        parts = self.variant.formulation.size(problem)
        per_s = min(DETERMINISTIC_PER_S, PARTS_PER_DETERMINISTIC_S / parts)
        outcome = self._search.run(build, watch, judge, problem.key(), per_s)
        watch.lap("solve")
        status, stated = outcome.status, outcome.bound
        if status not in ("optimal", "feasible") or stated is None or stated > best_sum:
            status, stated = "heuristic", least
        elif not lossless:
            stated = least
        bound = problem.cost.bound(max(least, stated), problem.weights)
        return best, Found(status, bound, outcome.limit_hit)

    def _certificate(
        self, found: Found, value: float, whole: bool, watch: Stopwatch
    ) -> Certificate:
        """What is known of a decision that has the ``whole`` plan, or lacks jobs that wait."""
        bound = min(found.bound, value) if whole else None
        proven = bound is not None and value - bound <= OPTIMAL_GAP * max(1.0, value)
        status = "feasible" if found.status == "optimal" and not proven else found.status
        watch.lap("answer")
        return Certificate(
            self.variant.name, self.objective, status, value, bound,
            watch.phases_ms, found.limit_hit,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a plan.

    Attributes
    ----------
    status : str
        ``optimal``, ``feasible`` or ``heuristic``.
    bound : float
        Lower bound of the objective over the model's jobs.
    limit_hit : bool
    """

    status: str
    bound: float
    limit_hit: bool = False


def startable(instance: Instance, problem: Problem, plan: Plan) -> NDArray[np.bool_]:
    """Which jobs' starts are possible, shape (jobs,).

    A model that takes overdue jobs as ended starts others on nodes that are not free: in the order
    of priority, those wait. By the time of any later start, overdue jobs are expected to be gone.
    """
    left, watts_left = instance.free.copy(), instance.power_free()
    kept = np.ones(len(plan.start_s), dtype=np.bool_)
    for job in np.nonzero(plan.start_s == instance.now)[0].tolist():
        (nodes,) = np.nonzero(plan.units[job])
        need = plan.units[job, nodes, None] * problem.jobs.request[job]
        watts = int(problem.watts[job])
        kept[job] = (need <= left[nodes]).all() and (watts == 0 or watts <= watts_left)
        if kept[job]:
            left[nodes] -= need
            watts_left -= watts
    return kept


def placements(problem: Problem, plan: Plan, kept: NDArray[np.bool_]) -> Placements:
    """Nodes of the kept jobs of a plan."""
    return Placements.of(
        {
            int(problem.position[job]): {
                node: int(plan.units[job, node]) for node in np.nonzero(plan.units[job])[0].tolist()
            }
            for job in np.nonzero(kept)[0].tolist()
        }
    )


# ------------------------------------------------------------------------------ putting it together


def make_pcp(
    variant: str, *, limit_s: float = 1.0, m: int = 100, seed: int = 0, objective: str = ""
) -> Pcp:
    """The dispatcher of a name in `VARIANTS`; for the rest see `Pcp`.

    Raises
    ------
    UsageError
        When there is no such variant or objective.
    """
    if variant not in VARIANTS:
        raise UsageError(f"unknown variant {variant!r} (one of {', '.join(VARIANTS)})")
    _warm_up(variant)
    return Pcp(VARIANTS[variant], limit_s, m, seed, objective)


@functools.cache
def _warm_up(variant: str) -> None:
    """Load the compiled kernels and the solver, so that no decision's budget pays for it."""
    toys.play(partial(Pcp, VARIANTS[variant]))
