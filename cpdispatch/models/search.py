"""Search control of the CP-SAT models: budgets, restarts, and answers that are not taken on trust.

References
----------
Galleguillos, "Constraint programming-based job dispatching for modern HPC applications", 2020,
chapters 5 and 6: a search lasts delta and is restarted with twice that while it has no solution.
Here also while it finds better ones, which it is restarted from.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, TypeVar

from ortools.sat.python import cp_model
from ortools.sat.python import cp_model_helper as cp_sat

DETERMINISTIC_PER_S = 0.1
"""CP-SAT's deterministic time that a second of wall clock is sure to hold.

Measured on pooled models of 9 to 100 jobs, one worker, OR-Tools 9.15: 0.25 to 1.9 per processor
second, median 0.5, after some 40 ms at the start of each search that it hardly counts. With this
the deterministic limit ends the searches before the wall clock does even where a solver gets no
more than half a processor.
"""

FIRST_SHARE = 0.05
"""The first delta as a share of the budget, unless a dispatcher has its own."""

RESERVE_S = 0.005
"""Kept back from the solver for what comes after it: decoding, allocation, checking."""

CLOCK_ENDED = "decisions that the clock ended: they depend on the speed of the machine"
"""What the faults of a dispatcher call them."""

_REMEMBERED = 1000
_log = logging.getLogger(__name__)


class FalseAnswerError(Exception):
    """The solver stated something that is not so."""


Plan = TypeVar("Plan")


class Values(Protocol):
    """What a plan is read from: a solver, or the answer of one."""

    def value(self, variable: cp_model.IntVar) -> int:
        """What a variable has become."""
        ...


class Formulation(Protocol[Plan]):
    """A CP-SAT model that can be given a plan as a hint, and that a plan can be read from."""

    @property
    def model(self) -> cp_model.CpModel:
        """The model; its objective is to be minimised and integer."""
        ...

    def hint(self, plan: Plan) -> None:
        """Replace the hint, for every variable of the model."""
        ...

    def read(self, solver: Values) -> Plan:
        """The plan that a solver has found."""
        ...


class Stopwatch:
    """The budget of one decision, and the wall time of its phases.

    Parameters
    ----------
    limit_s : float
        Budget from now on, seconds.
    """

    __slots__ = ("_began", "_lap", "limit_s", "phases_ms")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.phases_ms: dict[str, float] = {}
        self._began = self._lap = perf_counter()

    def lap(self, phase: str) -> None:
        """Charge the time since the last lap to a phase."""
        now = perf_counter()
        self.phases_ms[phase] = self.phases_ms.get(phase, 0.0) + (now - self._lap) * 1e3
        self._lap = now

    @property
    def left_s(self) -> float:
        """What the solver may still use, seconds; below 0 when that is spent."""
        return self._began + self.limit_s - RESERVE_S - perf_counter()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found out; its plans went to the judge.

    Attributes
    ----------
    status : str
        ``optimal``, ``feasible``, ``infeasible``, ``unsolved`` (no solution in time) or ``failed``
        (an error, or a false answer).
    bound : int or None
        Proven lower bound of the model's objective.
    limit_hit : bool
        Whether a time limit, deterministic or wall, ended it.
    """

    status: str
    bound: int | None = None
    limit_hit: bool = False


@dataclass(slots=True)
class Search:
    """Runs models, one search after the other, with limits and memory.

    Attributes
    ----------
    seed : int
    fruitless : int or None
        Searches without a solution after which there is no restart; None: only delta's doubling
        up to the end of the budget ends them.
    remembers : bool
        Whether a model proven infeasible is not searched again.
    first_share : float
        The first delta as a share of the budget; 1: there is one search.
    faults : Counter of str
        Errors in or around the solver, and searches that the clock ended, so far.
    """

    seed: int = 0
    fruitless: int | None = None
    remembers: bool = True
    first_share: float = FIRST_SHARE
    faults: Counter[str] = field(default_factory=Counter, repr=False)
    _infeasible: dict[bytes, None] = field(default_factory=dict, repr=False)

    def run(
        self,
        build: Callable[[], Formulation[Plan]],
        watch: Stopwatch,
        judge: Callable[[Plan], bool],
        key: bytes,
        deterministic_per_s: float = DETERMINISTIC_PER_S,
    ) -> Outcome:
        """Search until proof, until a search brings nothing better, or until the budget ends.

        Parameters
        ----------
        build : callable
            Makes the model; not called for one that is known to be infeasible.
        judge : callable
            Takes each plan; says whether it is better than all it knew, and raises
            `FalseAnswerError` when it is no plan.
        key : bytes
            What the model is known by, for the memory of infeasible ones.
        deterministic_per_s : float
            CP-SAT's deterministic time that a second is sure to hold with this model.

        Notes
        -----
        One worker, a fixed seed and deterministic limits, whose sum stays within the budget: the
        same answer every time, unless a machine is so slow that the wall clock ends the search.
        """
        if key in self._infeasible:
            return Outcome("infeasible")
        try:
            outcome = self._restarts(build(), watch, judge, deterministic_per_s)
        except Exception as error:
            # Whatever goes wrong in or around the solver must not cost the decision.
            self.faults[f"a model raised {type(error).__name__}"] += 1
            _log.warning("a model raised an error", exc_info=True)
            return Outcome("failed")
        if self.remembers and outcome.status == "infeasible":
            self._infeasible[key] = None
            if len(self._infeasible) > _REMEMBERED:
                del self._infeasible[next(iter(self._infeasible))]
        return outcome

    def _restarts(
        self,
        model: Formulation[Plan],
        watch: Stopwatch,
        judge: Callable[[Plan], bool],
        deterministic_per_s: float,
    ) -> Outcome:
        delta_s, spent_s, barren = watch.limit_s * self.first_share, 0.0, 0
        bound: int | None = None
        while spent_s + delta_s <= watch.limit_s and watch.left_s > 0:
            solver = self._solver(delta_s * deterministic_per_s, watch.left_s)
            spent_s, delta_s = spent_s + delta_s, 2 * delta_s
            status = solver.solve(model.model)
            if status in (cp_model.FEASIBLE, cp_model.UNKNOWN) and watch.left_s <= 0:
                self.faults[CLOCK_ENDED] += 1
            if status == cp_model.INFEASIBLE:
                return Outcome("infeasible")
            if status == cp_model.UNKNOWN:
                barren += 1
                if bound is not None or barren == self.fruitless:
                    break
                continue
            # A model that is invalid has no bound, and asking for it raises.
            proven = whole(solver.best_objective_bound)
            bound = proven if bound is None else max(bound, proven)
            plan = model.read(solver)
            better = judge(plan)
            if status == cp_model.OPTIMAL:
                return Outcome("optimal", bound)
            if not better:
                break
            model.hint(plan)
        return Outcome("unsolved" if bound is None else "feasible", bound, limit_hit=True)

    def _solver(self, deterministic: float, left_s: float) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        configure(solver.parameters, self.seed, deterministic, left_s)
        return solver


def configure(given: cp_sat.SatParameters, seed: int, deterministic: float, left_s: float) -> None:
    """Make the settings that paid on the pooled models: one worker, quick restarts.

    Parameters
    ----------
    given : SatParameters
        Changed.
    seed : int
    deterministic : float
        Limit of CP-SAT's deterministic time.
    left_s : float
        Limit of the time on the clock, seconds.
    """
    given.num_workers = 1
    given.random_seed = seed
    given.max_deterministic_time = deterministic
    given.max_time_in_seconds = left_s
    given.search_branching = cp_model.PORTFOLIO_WITH_QUICK_RESTART_SEARCH
    given.linearization_level = 0
    given.cp_model_probing_level = 0
    given.symmetry_level = 0
    given.catch_sigint_signal = False  # else Ctrl-C would end Python without a KeyboardInterrupt


def whole(bound: float) -> int:
    """The integer lower bound that a reported one amounts to.

    The solver scales its objective: 66 comes back as 66.00000000000001, which must not become 67.
    """
    return math.ceil(bound - 1e-6 - 1e-12 * abs(bound))
