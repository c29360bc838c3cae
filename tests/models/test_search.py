from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.models import budget, search
from cpdispatch.models.budget import Budget
from cpdispatch.models.search import FIRST_SHARE, SEARCHES, FalseAnswerError, Outcome, Search


class OneNumber:
    """Minimise a number between 3 and 9."""

    def __init__(self, least: int = 3) -> None:
        self.model = cp_model.CpModel()
        self.number = self.model.new_int_var(least, 9, "")
        self.model.minimize(self.number)
        self.hints: list[int] = []

    def hint(self, plan: IntArray) -> None:
        self.hints += plan.tolist()

    def read(self, solver: Any) -> IntArray:
        return np.array([solver.value(self.number)])


class Infeasible(OneNumber):
    def __init__(self) -> None:
        super().__init__()
        self.model.add(self.number > 9)


class Scripted:
    """Stands in for the solver: gives the answers of a script, (status, bound, value) each."""

    def __init__(self, script: list[tuple[Any, float, int]]) -> None:
        self.script = script
        self.parameters: list[SimpleNamespace] = []

    def __call__(self) -> SimpleNamespace:
        status, bound, value = self.script[min(len(self.parameters), len(self.script) - 1)]
        given = SimpleNamespace()
        self.parameters.append(given)
        return SimpleNamespace(
            parameters=given,
            solve=lambda model: status,
            stop_search=lambda: None,
            best_objective_bound=bound,
            value=lambda variable: value,
        )

    @property
    def limits(self) -> list[float]:
        return [given.max_deterministic_time for given in self.parameters]


NOTHING = (cp_model.UNKNOWN, 0.0, 0)


def below(best: int) -> Any:
    """A judge that knows a plan of this value, and remembers better ones."""
    known = [best]

    def judge(plan: IntArray) -> bool:
        if plan[0] >= known[0]:
            return False
        known[0] = int(plan[0])
        return True

    return judge


def run(searcher: Search, model: type[OneNumber] = OneNumber, limit_s: float = 8.0) -> Outcome:
    return searcher.run(model, Budget(limit_s, live=True), below(9), b"key")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*script: tuple[Any, float, int]) -> Scripted:
        solver = Scripted(list(script))
        monkeypatch.setattr(cp_model, "CpSolver", solver)
        return solver

    return use


def test_a_proof_ends_the_search_with_its_bound() -> None:
    assert run(Search()) == Outcome("optimal", 3)


def test_rounding_in_the_solver_does_not_raise_its_bound(scripted: Any) -> None:
    scripted((cp_model.OPTIMAL, 66000000.00000001, 7))
    assert run(Search()).bound == 66000000


def test_one_worker_a_seed_and_both_limits_make_the_answer_reproducible(scripted: Any) -> None:
    solver = scripted((cp_model.OPTIMAL, 3.0, 3))
    run(Search(seed=7))
    (given,) = solver.parameters
    assert (given.num_workers, given.random_seed) == (1, 7)
    assert given.max_deterministic_time == FIRST_SHARE * 8 * search.DETERMINISTIC_PER_S
    assert 0 < given.max_time_in_seconds < 8


def test_the_limit_is_doubled_while_there_is_no_solution(scripted: Any) -> None:
    solver = scripted(NOTHING)
    outcome = run(Search())
    first = FIRST_SHARE * 8 * search.DETERMINISTIC_PER_S
    assert len(solver.limits) == SEARCHES
    assert solver.limits == [first * 2**k for k in range(len(solver.limits))]
    assert sum(solver.limits) <= 8 * search.DETERMINISTIC_PER_S
    assert outcome == Outcome("unsolved", limit_hit=True)


def test_all_searches_together_stay_within_the_budget(scripted: Any) -> None:
    solver = scripted(*((cp_model.FEASIBLE, 1.0, 8 - k) for k in range(99)))
    run(Search())
    assert sum(solver.limits) <= 8 * search.DETERMINISTIC_PER_S


def test_there_is_no_restart_after_k_fruitless_searches(scripted: Any) -> None:
    solver = scripted(NOTHING)
    run(Search(fruitless=2))
    assert len(solver.limits) == 2


def test_a_search_that_finds_nothing_better_is_as_fruitless_as_one_without_a_solution(
    scripted: Any,
) -> None:
    solver = scripted((cp_model.FEASIBLE, 4.0, 9), NOTHING)
    assert run(Search(fruitless=2)) == Outcome("feasible", 4, limit_hit=True)
    assert len(solver.limits) == 2


def test_a_better_plan_is_searched_on_from_and_forgives_fruitless_searches(scripted: Any) -> None:
    solver = scripted(NOTHING, (cp_model.FEASIBLE, 4.0, 8), NOTHING, (cp_model.FEASIBLE, 2.0, 7))
    model = OneNumber()
    outcome = Search(fruitless=2).run(lambda: model, Budget(8.0, live=True), below(9), b"key")
    assert model.hints == [8, 7]
    assert outcome == Outcome("feasible", 4, limit_hit=True)
    assert len(solver.limits) == 4


def test_a_spent_budget_allows_no_search(scripted: Any) -> None:
    solver = scripted(NOTHING)
    assert run(Search(), limit_s=0.0).status == "unsolved"
    assert solver.limits == []


def test_a_solver_that_forgets_its_limit_is_stopped_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped, waited = threading.Event(), list[bool]()
    forgetful = SimpleNamespace(
        parameters=SimpleNamespace(),
        solve=lambda model: waited.append(stopped.wait(60)),
        stop_search=stopped.set,
    )
    monkeypatch.setattr(cp_model, "CpSolver", lambda: forgetful)
    searcher = Search()
    assert run(searcher, limit_s=0.05) == Outcome("unsolved", limit_hit=True)
    assert searcher.faults == {search.CLOCK_ENDED: 1}
    assert stopped.is_set()
    assert waited in ([], [True])  # at any rate not until it gave up by itself


def test_an_interrupt_stops_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    waiting = SimpleNamespace(
        parameters=SimpleNamespace(), solve=lambda model: stopped.wait(60), stop_search=stopped.set
    )

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cp_model, "CpSolver", lambda: waiting)
    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(Search())
    assert stopped.is_set()


def test_a_model_proven_infeasible_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = Search()
    assert run(searcher, Infeasible).status == "infeasible"
    monkeypatch.setattr(cp_model, "CpSolver", None)
    assert run(searcher, Infeasible) == Outcome("infeasible")


def test_other_models_are_searched_after_an_infeasible_one() -> None:
    searcher = Search()
    run(searcher, Infeasible)
    assert searcher.run(OneNumber, Budget(8.0, live=True), below(9), b"other").status == "optimal"


def test_without_memory_an_infeasible_model_is_searched_again(scripted: Any) -> None:
    solver = scripted((cp_model.INFEASIBLE, 0.0, 0))
    searcher = Search(remembers=False)
    run(searcher)
    run(searcher)
    assert len(solver.limits) == 2


def test_the_memory_is_bounded(scripted: Any) -> None:
    scripted((cp_model.INFEASIBLE, 0.0, 0))
    searcher = Search()
    for k in range(search._REMEMBERED + 5):
        searcher.run(OneNumber, Budget(8.0, live=True), below(9), str(k).encode())
    assert len(searcher._infeasible) == search._REMEMBERED


def test_an_error_of_the_solver_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(cp_model, "CpSolver", broken)
    assert run(Search()) == Outcome("failed")


def test_an_answer_that_is_no_number_is_an_outcome(scripted: Any) -> None:
    scripted((cp_model.FEASIBLE, float("nan"), 5))
    assert run(Search()) == Outcome("failed")


def test_a_false_answer_is_an_outcome() -> None:
    def judge(plan: IntArray) -> bool:
        raise FalseAnswerError

    assert Search().run(OneNumber, Budget(8.0, live=True), judge, b"key") == Outcome("failed")


def test_the_phases_add_up_what_each_lap_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 3.5, 3.5])
    monkeypatch.setattr(budget, "perf_counter", lambda: next(clock))
    one = Budget(10.0, live=True)
    for phase in ("a", "b", "a"):
        one.lap(phase)
    assert one.phases_ms == {"a": 1500.0, "b": 2000.0}
    assert one.left_s == pytest.approx(6.5 - budget.RESERVE_S)


def test_a_clock_that_ends_just_before_a_search_makes_no_model_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = Budget(8.0, live=True)
    monkeypatch.setattr(Budget, "over", False)
    monkeypatch.setattr(Budget, "clock_s", -1e-6)
    searcher, plans = Search(), list[IntArray]()

    def judge(plan: IntArray) -> bool:
        plans.append(plan)
        return True

    assert searcher.run(OneNumber, budget, judge, b"key") == Outcome("unsolved", limit_hit=True)
    assert not plans
    assert not any("raised" in fault for fault in searcher.faults)


def test_what_an_invalid_model_has_for_values_is_not_read(scripted: Any) -> None:
    scripted((cp_model.MODEL_INVALID, 0.0, 3))
    searcher = Search()
    assert run(searcher) == Outcome("failed")
    assert searcher.faults == {"a model raised FalseAnswerError": 1}
