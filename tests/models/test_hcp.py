from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch import instance as instances_module
from cpdispatch import solution, verify
from cpdispatch.decision import NO_START, Decision, Reason
from cpdispatch.dispatch import make
from cpdispatch.errors import UsageError
from cpdispatch.instance import Instance
from cpdispatch.models import hcp, objective
from cpdispatch.models.hcp import VARIANTS, Hcp, Plan, PooledModel, Problem, make_hcp
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.search import Stopwatch
from tests.models.pool_twin import best_value, best_value_of_all_starts
from tests.strategies import instances, read

small = instances(max_nodes=3, max_jobs=5, max_running=3)
names = st.sampled_from(sorted(VARIANTS))

NODES: dict[str, Any] = {
    "format": "cpdispatch-instance/1", "time": 100, "resources": ["core", "gpu"],
    "groups": [{"name": "a", "nodes": 2, "capacity": [4, 1]}],
}  # fmt: skip


def job(id: int, duration: int, units: int, *unit: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "submit": 0, "duration": duration, "units": units, "unit": unit, **more}


def running(id: int, duration: int, unit: list[int], node: int, start: int = 95) -> dict[str, Any]:
    return {"id": id, "start": start, "duration": duration, "units": 1, "unit": unit,
            "nodes": {str(node): 1}}  # fmt: skip


def queued(*jobs: dict[str, Any], **more: Any) -> Instance:
    return read(NODES | {"queue": list(jobs)} | more)


def starts(instance: Instance, decision: Decision) -> dict[int, int]:
    """Start by job id, of the jobs that have one."""
    pairs = zip(instance.queue.id.tolist(), decision.start_s.tolist(), strict=True)
    return {id: start for id, start in pairs if start != NO_START}


def plan(dispatcher: Hcp, instance: Instance) -> Plan:
    return dispatcher.plan(instance, dispatcher.select(instance), Stopwatch(dispatcher.limit_s))


def crowd(jobs: int = 30) -> Instance:
    """More jobs than exhaustion can order, each of which fits now, with nothing left over."""
    shapes = [job(k, 3 + 7 * k % 23, 1 + k % 2, 1 + k % 4, 0) for k in range(jobs)]
    return queued(*shapes, running=[running(900, 9, [1, 0], 0), running(901, 14, [2, 0], 1)])


@pytest.fixture
def only_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exhaustion and no tolerance: whatever is not certain goes to CP-SAT."""
    monkeypatch.setattr(hcp, "EXHAUST_STEPS", 0)
    monkeypatch.setattr(hcp, "TOLERANCE", -1.0)


# ------------------------------------------------------------------------ constraint families


def outcome(instance: Instance, fixed: dict[int, int]) -> int:
    """The solver's verdict on the pooled model when some jobs' starts are given, by position."""
    dispatcher = Hcp(VARIANTS["hcp2"])
    chosen = np.arange(len(instance.queue))
    cost = objective.of("wait", instance.queue)
    pool = dispatcher.pool(instance, chosen)
    problem = Problem(pool, cost, cost.weights(pool.horizon_s))
    last = pool.horizon_s - pool.duration_s
    model = PooledModel(problem, last)
    model.model.clear_hints()
    for position, start in fixed.items():
        model.model.add(model.starts[position] == start - instance.now)
    return int(cp_model.CpSolver().solve(model.model))


def feasible(instance: Instance, *start_s: int) -> bool:
    return outcome(instance, dict(enumerate(start_s))) == cp_model.OPTIMAL


def test_start_times_without_anything_else_are_free() -> None:
    assert feasible(queued(job(1, 5, 1, 1, 0)), 100)


def test_start_times_in_the_past_are_refused() -> None:
    assert not feasible(queued(job(1, 5, 1, 1, 0)), 99)


def test_start_times_from_now_to_the_horizon_are_allowed() -> None:
    two = queued(job(1, 5, 2, 4, 0), job(2, 7, 2, 4, 0))
    assert feasible(two, 107, 100)
    assert feasible(two, 100, 105)


def test_a_pool_that_is_never_short_constrains_nothing() -> None:
    assert feasible(queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 4, 1)), 100, 100)


def test_a_pool_that_is_exceeded_is_refused() -> None:
    assert not feasible(queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 0)), 100, 104)


def test_a_pool_that_is_just_enough_is_accepted() -> None:
    assert feasible(queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 0)), 100, 105)


def test_running_jobs_that_leave_enough_constrain_nothing() -> None:
    held = [running(9, 10, [1, 0], 0)]
    assert feasible(queued(job(1, 5, 1, 4, 0), running=held), 100)


def test_running_jobs_are_not_overlapped_in_the_pool() -> None:
    held = [running(9, 10, [1, 0], 0)]
    assert not feasible(queued(job(1, 5, 2, 4, 0), running=held), 104)


def test_running_jobs_give_back_the_pool_at_their_end() -> None:
    held = [running(9, 10, [1, 0], 0)]
    assert feasible(queued(job(1, 5, 2, 4, 0), running=held), 105)


RESERVED = [{"start": 110, "duration": 10, "nodes": [0], "capacity": [4, 1]}]


def test_reservations_that_leave_enough_constrain_nothing() -> None:
    assert feasible(queued(job(1, 15, 1, 4, 0), reservations=RESERVED), 100)


def test_reservations_are_not_overlapped_in_the_pool() -> None:
    assert not feasible(queued(job(1, 15, 2, 4, 0), reservations=RESERVED), 100)


def test_reservations_leave_the_time_before_and_after_them() -> None:
    two = queued(job(1, 10, 2, 4, 0), job(2, 10, 2, 4, 0), reservations=RESERVED)
    assert feasible(two, 100, 120)


WATTS = {"cap": 6, "unit": [1, 4]}


def test_a_power_cap_that_is_never_reached_constrains_nothing() -> None:
    assert feasible(queued(job(1, 5, 1, 1, 0), job(2, 5, 1, 1, 0), power=WATTS), 100, 100)


def test_a_power_cap_is_not_exceeded() -> None:
    assert not feasible(queued(job(1, 5, 1, 2, 1), job(2, 5, 1, 1, 0), power=WATTS), 100, 102)


def test_a_power_cap_may_be_reached() -> None:
    assert feasible(queued(job(1, 5, 1, 1, 1), job(2, 5, 1, 1, 0), power=WATTS), 100, 102)


def test_nodes_that_are_down_are_not_part_of_the_pool() -> None:
    assert feasible(queued(job(1, 5, 1, 4, 0), down=[1]), 100)
    assert not feasible(queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 1, 0), down=[1]), 100, 100)
    assert feasible(queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 1, 0), down=[1]), 100, 105)


# --------------------------------------------------------------------------------- optimality


@given(small, names, st.sampled_from(sorted(OBJECTIVES)))
def test_the_pooled_plan_is_the_best_of_all_orders(
    instance: Instance, name: str, objective_name: str
) -> None:
    dispatcher = Hcp(VARIANTS[name], objective=objective_name)
    if not dispatcher.variant.overdue_run_on:
        instance = without_overdue(instance)
    chosen = dispatcher.select(instance).tolist()
    found = plan(dispatcher, instance)
    pairs = dict(zip(chosen, found.start_s.tolist(), strict=True))
    value = verify.objective_value(instance, objective_name, pairs)
    assert found.status == "optimal" or value - found.bound <= hcp.TOLERANCE * value
    assert value <= best_value(instance, chosen, objective_name) + hcp.TOLERANCE * value
    assert found.bound <= value + 1e-9


@settings(max_examples=200)
@given(small, names, st.sampled_from(sorted(OBJECTIVES)))
def test_the_solver_alone_finds_the_same_optimum(
    instance: Instance, name: str, objective_name: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hcp, "EXHAUST_STEPS", 0)
        patch.setattr(hcp, "TOLERANCE", -1.0)
        dispatcher = Hcp(VARIANTS[name], limit_s=20.0, objective=objective_name)
        if not dispatcher.variant.overdue_run_on:
            instance = without_overdue(instance)
        found = plan(dispatcher, instance)
    chosen = dispatcher.select(instance).tolist()
    pairs = dict(zip(chosen, found.start_s.tolist(), strict=True))
    value = float(verify.objective_value(instance, objective_name, pairs))
    best = float(best_value(instance, chosen, objective_name))
    assert found.status == "optimal" or found.bound == value == 0
    assert value == pytest.approx(best, rel=1e-6)
    assert found.bound == pytest.approx(best, rel=2e-6)


@settings(max_examples=30)
@given(instances(max_nodes=2, max_jobs=2, max_running=1, reservations=False), names)
def test_the_best_of_all_orders_is_the_best_of_all_starts(instance: Instance, name: str) -> None:
    chosen = Hcp(VARIANTS[name]).select(without_overdue(instance)).tolist()
    if chosen:
        assert best_value(instance, chosen, "slowdown") == best_value_of_all_starts(
            instance, chosen, "slowdown", 40
        )


def without_overdue(instance: Instance) -> Instance:
    """The instance whose overdue jobs have just ended."""
    over = instance.running.jobs.id[instance.running.overdue.astype(bool)].tolist()
    file = json.loads(instances_module.to_json(instance))
    file["running"] = [row for row in file.get("running", []) if row["id"] not in over]
    return read(file)


@pytest.mark.usefixtures("only_solver")
def test_the_solver_charges_nothing_before_a_job_is_late() -> None:
    instance = queued(job(1, 50, 2, 4, 0, ewt=300), job(2, 40, 2, 4, 0, ewt=90))
    dispatcher = Hcp(limit_s=20.0, objective="ewt_excess")
    start_s = plan(dispatcher, instance).start_s
    problem, solver = problem_of(dispatcher, instance), cp_model.CpSolver()
    assert start_s.max() == 140
    assert solver.solve(PooledModel(problem, start_s).model) == cp_model.OPTIMAL
    assert solver.objective_value == pytest.approx(problem.sum(start_s))


# ------------------------------------------------------------------------------ whole decisions


@given(small, names, st.sampled_from(sorted(OBJECTIVES)), st.integers(1, 5))
def test_decisions_and_their_certificates_pass_the_independent_checker(
    instance: Instance, name: str, objective_name: str, m: int
) -> None:
    decision = Hcp(VARIANTS[name], m=m, objective=objective_name).dispatch(instance)
    assert verify.decision(instance, decision) == []
    assert verify.solution(instance, solution.from_decision(instance, decision)) == []
    assert decision.certificate.model == name
    assert decision.certificate.objective == objective_name


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    instance = crowd()
    first, second = (Hcp(VARIANTS[name], limit_s=5.0, seed=3).dispatch(instance) for _ in range(2))
    assert first.certificate.phases_ms["solve"] > 0
    assert first.start_s.tolist() == second.start_s.tolist()
    assert first.placements.as_dict() == second.placements.as_dict()
    assert first.certificate.bound == second.certificate.bound


def test_the_solver_never_makes_the_plan_worse() -> None:
    dispatcher, instance = Hcp(limit_s=2.0), crowd()
    problem = problem_of(dispatcher, instance)
    found = plan(dispatcher, instance)
    value = problem.cost.value(found.start_s)
    assert problem.pool.holds(found.start_s)
    assert found.bound <= value <= problem.cost.value(problem.incumbent())


def test_jobs_that_all_fit_start_now_and_that_is_optimal() -> None:
    decision = Hcp().dispatch(queued(job(1, 5, 1, 4, 0), job(2, 9, 1, 2, 1)))
    assert decision.start_s.tolist() == [100, 100]
    assert decision.reason.tolist() == [Reason.STARTED, Reason.STARTED]
    assert decision.certificate.status == "optimal"
    assert decision.certificate.gap == 0
    assert "solve" not in decision.certificate.phases_ms


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_an_empty_queue_gives_an_empty_decision(name: str) -> None:
    decision = Hcp(VARIANTS[name]).dispatch(queued())
    assert len(decision.start_s) == len(decision.reason) == len(decision.placements) == 0


def test_a_planned_job_waits_and_one_that_overtakes_it_is_backfilled() -> None:
    instance = queued(job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0))
    decision = Hcp().dispatch(instance)
    assert starts(instance, decision) == {1: 105, 2: 100}
    assert decision.reason.tolist() == [Reason.WAITS, Reason.BACKFILLED]
    assert list(decision.placements.as_dict()) == [1]


@pytest.mark.parametrize("name", sorted(VARIANTS))
@pytest.mark.parametrize(("units", "cores"), [(3, 4), (1, 5)], ids=["the pool", "no node"])
def test_a_job_that_fits_no_empty_system_is_left_out_and_named(
    name: str, units: int, cores: int
) -> None:
    instance = queued(job(1, 5, units, cores, 0), job(2, 5, 1, 4, 0))
    decision = Hcp(VARIANTS[name]).dispatch(instance)
    assert decision.start_s.tolist() == [NO_START, 100]
    assert decision.reason.tolist() == [Reason.NEVER_FITS, Reason.STARTED]


def test_a_job_that_the_pool_starts_and_that_finds_no_nodes_waits() -> None:
    held = [running(8, 20, [2, 0], 0), running(9, 20, [2, 0], 1)]
    instance = queued(job(1, 5, 1, 3, 0), job(2, 5, 1, 1, 0), running=held)
    decision = Hcp(VARIANTS["hcp"]).dispatch(instance)
    assert decision.start_s.tolist() == [NO_START, 100]
    assert decision.reason.tolist() == [Reason.WAITS, Reason.BACKFILLED]
    assert decision.certificate.bound is None
    assert decision.certificate.status == "feasible"


# ------------------------------------------------------------------------------- the variants


BLOCKED = {"running": [running(9, 20, [3, 0], 0)]}


def test_hcp_plans_jobs_that_do_not_fit_now_and_hcp1_leaves_them_in_the_queue() -> None:
    instance = queued(job(1, 5, 2, 4, 0), job(2, 6, 1, 4, 0), **BLOCKED)
    assert starts(instance, Hcp(VARIANTS["hcp"]).dispatch(instance)) == {1: 115, 2: 100}
    assert starts(instance, Hcp(VARIANTS["hcp1"]).dispatch(instance)) == {2: 100}


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_jobs_beyond_the_first_m_by_priority_are_not_in_the_model(name: str) -> None:
    instance = queued(*(job(k, 5 + k, 1, 1, 0) for k in range(5)))
    decision = Hcp(VARIANTS[name], m=2).dispatch(instance)
    assert sorted(starts(instance, decision)) == [0, 1]


def test_the_flaw_with_overdue_jobs_is_that_of_hcp_and_hcp1_alone() -> None:
    overdue = [running(9, 2, [4, 1], 0)]
    instance = queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 0), running=overdue)
    free = {
        name: Hcp(variant).pool(instance, np.arange(2)).free[0, 0]
        for name, variant in VARIANTS.items()
    }
    assert free == {"hcp": 8, "hcp1": 8, "hcp2": 4, "hcp3": 4}


def test_hcp1_has_no_constraint_for_a_resource_that_nobody_asks_for() -> None:
    instance = queued(job(1, 5, 2, 4, 0), job(2, 5, 2, 4, 0))
    assert Hcp(VARIANTS["hcp"]).pool(instance, np.arange(2)).free.shape[1] == 2
    assert Hcp(VARIANTS["hcp1"]).pool(instance, np.arange(2)).free.shape[1] == 1


def test_hcp2_takes_jobs_by_their_wait_relative_to_their_queue_and_hcp3_by_slowdown() -> None:
    instance = queued(job(1, 50, 1, 1, 0, ewt=2), job(2, 5, 1, 1, 0, ewt=9))
    assert Hcp(VARIANTS["hcp2"]).select(instance).tolist() == [0, 1]
    assert Hcp(VARIANTS["hcp3"]).select(instance).tolist() == [1, 0]


def test_equal_priorities_go_to_the_smaller_demand_times_duration() -> None:
    instance = queued(job(1, 50, 1, 1, 0), job(2, 5, 1, 1, 0))
    assert Hcp(VARIANTS["hcp1"]).select(instance).tolist() == [1, 0]


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_registry_makes_each_variant_under_the_name_that_the_user_gave(name: str) -> None:
    made = make(f"{name}:limit=0.5,m=7,objective=wait")
    assert made.name == f"{name}:limit=0.5,m=7,objective=wait"
    decision = made.dispatch(queued(job(1, 5, 1, 1, 0)))
    assert (decision.certificate.model, decision.certificate.objective) == (name, "wait")


def test_unknown_variants_and_objectives_are_refused() -> None:
    with pytest.raises(UsageError, match="hcp9"):
        make_hcp("hcp9")
    with pytest.raises(UsageError, match="happiness"):
        make_hcp("hcp3", objective="happiness")


# ------------------------------------------------------------------------- when the solver fails


class Broken:
    """A solver that says something: a status, a bound, and values for the variables in turn."""

    def __init__(self, status: Any, bound: float, *values: int) -> None:
        self.status, self.best_objective_bound = status, bound
        self.values: Iterator[int] = cycle(values)
        self.parameters = type("Parameters", (), {})()

    def solve(self, model: cp_model.CpModel) -> Any:
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    def value(self, variable: cp_model.IntVar) -> int:
        return next(self.values)


@pytest.mark.parametrize(
    ("status", "bound", "value"),
    [
        (RuntimeError("crash"), 0.0, 0),
        (cp_model.UNKNOWN, 0.0, 0),
        (cp_model.INFEASIBLE, 0.0, 0),
        (cp_model.OPTIMAL, 0.0, 0),
        (cp_model.FEASIBLE, 0.0, -50),
        (cp_model.FEASIBLE, 0.0, 10**15),
        (cp_model.FEASIBLE, float("inf"), 200),
        (cp_model.FEASIBLE, 1e18, 0),
    ],
    ids=["raises", "unknown", "infeasible", "overfull", "past", "never", "no bound", "false bound"],
)  # fmt: skip
@pytest.mark.parametrize("name", sorted(VARIANTS))
@pytest.mark.usefixtures("only_solver")
def test_a_solver_that_fails_or_lies_costs_no_decision(
    monkeypatch: pytest.MonkeyPatch, name: str, status: Any, bound: float, value: int
) -> None:
    instance = crowd()
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(status, bound, value))
    decision = Hcp(VARIANTS[name]).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert len(decision.placements) > 0
    assert verify.decision(instance, decision) == []
    assert verify.solution(instance, solution.from_decision(instance, decision)) == []


@pytest.mark.usefixtures("only_solver")
def test_a_bound_above_the_plan_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, dispatcher = queued(*(job(k, 5 + k, 2, 4, 0) for k in range(4))), Hcp()
    true = plan(dispatcher, instance)
    one_after_the_other = np.cumsum([0, 5, 6, 7]).tolist()
    monkeypatch.setattr(
        cp_model, "CpSolver", lambda: Broken(cp_model.OPTIMAL, 2.0**50, *one_after_the_other)
    )
    found = plan(dispatcher, instance)
    assert found.status == "heuristic"
    assert found.bound <= objective.of("slowdown", instance.queue).value(true.start_s)


def problem_of(dispatcher: Hcp, instance: Instance) -> Problem:
    chosen = dispatcher.select(instance)
    cost = objective.of(dispatcher.objective, instance.queue).take(chosen)
    pool = dispatcher.pool(instance, chosen)
    return Problem(pool, cost, cost.weights(pool.horizon_s))


@pytest.mark.parametrize("far", [False, True], ids=["worse", "so far off that sums overflow"])
@pytest.mark.usefixtures("only_solver")
def test_a_plan_of_the_solver_that_is_no_better_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    dispatcher, instance = Hcp(), crowd()
    problem = problem_of(dispatcher, instance)
    first = 2**63 // int(problem.weights.per_s.sum()) if far else 20
    one_by_one = (first + np.cumsum(problem.pool.duration_s) - problem.pool.duration_s).tolist()
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.FEASIBLE, 0.0, *one_by_one))
    found = plan(dispatcher, instance)
    assert found.start_s.tolist() == problem.incumbent().tolist()
    assert found.status == ("heuristic" if far else "feasible")


@given(small, st.sampled_from(sorted(OBJECTIVES)))
def test_a_job_alone_makes_a_plan_worse_just_beyond_its_latest_start(
    instance: Instance, objective_name: str
) -> None:
    dispatcher = Hcp(objective=objective_name)
    if len(dispatcher.select(instance)) == 0:
        return
    problem = problem_of(dispatcher, instance)
    start_s = problem.incumbent()
    for k, latest in enumerate(problem.latest(start_s).tolist()):
        alone = problem.pool.earliest()
        alone[k] = latest
        assert problem.sum(alone) <= problem.sum(start_s)
        alone[k] = latest + 1
        assert problem.sum(alone) > problem.sum(start_s)


def test_a_budget_that_is_spent_gives_the_heuristic_answer() -> None:
    instance = crowd()
    decision = Hcp(limit_s=1e-6).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert verify.decision(instance, decision) == []
