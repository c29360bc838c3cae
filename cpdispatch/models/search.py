"""The dissertation's search control: restarts with longer limits, and answers that are checked.

References
----------
Galleguillos, "Constraint programming-based job dispatching for modern HPC applications", 2020,
chapters 5 and 6: a search lasts delta. While it has no solution it is restarted, and delta is
doubled up to delta_max. The variants after the first give up after k = 3 fruitless searches.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ortools.sat.python import cp_model
from ortools.sat.python import cp_model_helper as cp_sat

from cpdispatch.models.budget import Budget

if TYPE_CHECKING:
    from cpdispatch.models.timing import Timing

DETERMINISTIC_PER_S = 0.1
"""CP-SAT's deterministic time that a second of wall clock is sure to hold.

Measured on pooled models of 9 to 100 jobs, one worker, OR-Tools 9.15: 0.25 to 1.9 per processor
second, median 0.5, after some 40 ms at the start of each search that it hardly counts. With this
the deterministic limit ends the searches before the wall clock does even where a solver gets no
more than half a processor.
"""

FIRST_SHARE, SEARCHES = 0.05, 4
"""The first delta as a share of the budget, and how many searches there are at most.

Delta is doubled after each search, so that delta_max is 0.4 of the budget, and all searches
together last for at most 0.75 of the budget.
"""

LATE_S = 0.005
"""How long CP-SAT is waited for after the time is over, seconds."""

CLOCK_ENDED = "decisions that the clock ended: they depend on the speed of the machine"
"""What the faults of a dispatcher call them."""

_REMEMBERED = 1000
_log = logging.getLogger(__name__)


class FalseAnswerError(Exception):
    """The solver stated something that is not so."""


class BuildEndedError(Exception):
    """The time was over before a model was complete."""


ItemT = TypeVar("ItemT")


def never() -> bool:
    """Whether the time is over, where nobody looks at the clock."""
    return False


def in_time(items: Iterable[ItemT], over: Callable[[], bool]) -> Iterator[ItemT]:
    """The items, while there is time.

    Raises
    ------
    BuildEndedError
        When the time is over before all of them were taken.
    """
    for item in items:
        if over():
            raise BuildEndedError
        yield item


PlanT = TypeVar("PlanT")


class Values(Protocol):
    """What a plan is read from: a solver, or the answer of one."""

    def value(self, variable: cp_model.IntVar) -> int:
        """What a variable has become."""


class Formulation(Protocol[PlanT]):
    """A CP-SAT model that can be given a plan as a hint, and that a plan can be read from.

    Building it ends with `BuildEndedError` when ``over`` says that the time is over.
    """

    timing: Timing
    """When the jobs run."""
    freed_s: ClassVar[float]
    """How long reading a plan from the model and freeing it take at most, for each of its parts,
    seconds.
    """

    def __init__(self, problem: Any, plan: PlanT, over: Callable[[], bool] = never) -> None: ...

    @staticmethod
    def size(problem: Any) -> int:
        """How many parts the model of a problem has; building it takes time by that."""

    @property
    def lossless(self) -> bool:
        """Whether every plan of the problem is one of the model: its bounds are the problem's."""

    @property
    def model(self) -> cp_model.CpModel:
        """The model; its objective is to be minimised and integer."""

    def hint(self, plan: PlanT) -> None:
        """Replace the hint, for every variable of the model."""

    def read(self, solver: Values) -> PlanT:
        """The plan that a solver has found."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found out; its plans went to the judge."""

    status: str
    """``optimal``, ``feasible``, ``infeasible``, ``unsolved`` (no solution in time) or ``failed``
    (an error, or a false answer).
    """
    bound: int | None = None
    """Proven lower bound of the model's objective."""
    limit_hit: bool = False
    """Whether a time limit, deterministic or wall, ended it."""


@dataclass(slots=True)
class Search:
    """Runs models, one search after the other, with limits and memory."""

    seed: int = 0
    fruitless: int | None = None
    """Fruitless searches after which there is no restart; None: `SEARCHES` are made in any case."""
    remembers: bool = True
    """Whether a model proven infeasible is not searched again."""
    faults: Counter[str] = field(default_factory=Counter, repr=False)
    """Errors in or around the solver, and searches that the clock ended, so far."""
    _infeasible: dict[bytes, None] = field(default_factory=dict, repr=False)

    def run(
        self,
        build: Callable[[], Formulation[PlanT]],
        budget: Budget,
        judge: Callable[[PlanT], bool],
        key: bytes,
        deterministic_per_s: float = DETERMINISTIC_PER_S,
    ) -> Outcome:
        """Search until there is a proof, or until there are no more restarts.

        A search is fruitless if it finds no better plan than the best one known. The models begin
        with a complete plan, so that this is what the dissertation's search without a solution is.

        Parameters
        ----------
        build : callable
            Makes the model; not called for one that is known to be infeasible.
        budget : Budget
            Whose clock ends the search.
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
            outcome = self._restarts(build(), budget, judge, deterministic_per_s)
        except BuildEndedError:
            self.faults[CLOCK_ENDED] += 1
            return Outcome("unsolved", limit_hit=True)
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
        model: Formulation[PlanT],
        budget: Budget,
        judge: Callable[[PlanT], bool],
        deterministic_per_s: float,
    ) -> Outcome:
        fruitless = 0
        bound: int | None = None
        for delta_s in (budget.limit_s * FIRST_SHARE * 2**k for k in range(SEARCHES)):
            if fruitless == self.fruitless or budget.over:
                break
            solver = self._solver(delta_s * deterministic_per_s, budget.clock_s)
            status = _answer(solver, model.model, budget.clock_s + LATE_S)
            if status in (None, cp_model.FEASIBLE, cp_model.UNKNOWN) and budget.over:
                self.faults[CLOCK_ENDED] += 1
            if status is None:
                break
            if status == cp_model.INFEASIBLE:
                return Outcome("infeasible")
            fruitless += 1
            if status == cp_model.UNKNOWN:
                continue
            if status not in (cp_model.FEASIBLE, cp_model.OPTIMAL):
                # Such an answer has no values, and the solver reads what it never wrote.
                raise FalseAnswerError(f"the solver answers with {status.name}")
            proven = whole(solver.best_objective_bound)
            bound = proven if bound is None else max(bound, proven)
            plan = model.read(solver)
            better = judge(plan)
            if status == cp_model.OPTIMAL:
                return Outcome("optimal", bound)
            if better:
                fruitless = 0
                model.hint(plan)
        return Outcome("unsolved" if bound is None else "feasible", bound, limit_hit=True)

    def _solver(self, deterministic: float, left_s: float) -> cp_model.CpSolver:
        solver = cp_model.CpSolver()
        configure(solver.parameters, self.seed, deterministic, left_s)
        return solver


def _answer(
    solver: cp_model.CpSolver, model: cp_model.CpModel, wait_s: float
) -> cp_model.CpSolverStatus | None:
    """What a solver says of a model; None when it says nothing in time.

    CP-SAT looks at the clock between the steps of its work, some of which take a tenth of a second
    on models of boxes. It is stopped then, and ends in the background as soon as it looks.
    """
    thread = ThreadPoolExecutor(1)
    try:
        return thread.submit(solver.solve, model).result(max(wait_s, 0.0))
    except TimeoutError:
        return None
    finally:
        solver.stop_search()  # also after a Ctrl-C
        thread.shutdown(wait=False)


def configure(given: cp_sat.SatParameters, seed: int, deterministic: float, left_s: float) -> None:
    """Make the settings that paid on the pooled models: one worker, quick restarts.

    Parameters
    ----------
    given : SatParameters
        Changed.
    deterministic : float
        Limit of CP-SAT's deterministic time.
    left_s : float
        Limit of the time on the clock, seconds.
    """
    given.num_workers = 1
    given.random_seed = seed
    given.max_deterministic_time = deterministic
    given.max_time_in_seconds = max(left_s, 0.0)  # below 0, the model would count as invalid
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
