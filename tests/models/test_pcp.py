from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch import solution, verify
from cpdispatch.decision import NO_START, Decision, Reason
from cpdispatch.errors import UsageError
from cpdispatch.instance import Instance
from cpdispatch.models import hcp, pcp
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.pcp import VARIANTS, Pcp, PcpModel, make_pcp
from cpdispatch.models.problem import Plan, Problem, select
from cpdispatch.models.search import Stopwatch
from tests.models.cases import (
    EXAMPLES,
    RESERVED,
    WATTS,
    Broken,
    Where,
    accepts,
    alone,
    crowd,
    crowded,
    in_pieces,
    job,
    optimum,
    problem_of,
    queued,
    running,
    solver,
    without_overdue,
)
from tests.models.exhaustive import best_plan, possible
from tests.strategies import instances

small = instances(max_nodes=3, max_jobs=5, max_running=3)
names = st.sampled_from(sorted(VARIANTS))
objectives = st.sampled_from(["slowdown", "bounded_slowdown"])

# ------------------------------------------------------------------------ constraint families


def fix(model: Any, position: int, nodes: dict[int, int]) -> None:
    for node, copies in model.present[position].items():
        model.model.add(sum(copies) == nodes.get(node, 0))


def only(family: str, instance: Instance, *wheres: Where | None) -> bool:
    """Whether one family of constraints, without the other, allows the jobs to be there."""
    (other,) = {"_alternative", "_within_node"} - {family}
    return accepts(alone(PcpModel, family, other)(problem_of(instance)), fix, *wheres)


def allowed(instance: Instance, *wheres: Where | None) -> bool:
    return accepts(PcpModel(problem_of(instance)), fix, *wheres)


PAIR = queued(job(1, 5, 2, 3, 0), job(2, 5, 1, 3, 0))


def test_units_that_are_not_given_are_placed_somehow() -> None:
    assert only("_alternative", PAIR, None, None)


@pytest.mark.parametrize("nodes", [{0: 1}, {}], ids=["one", "none"])
def test_units_are_not_left_out(nodes: dict[int, int]) -> None:
    assert not only("_alternative", PAIR, (100, nodes))


def test_as_many_copies_are_present_as_there_are_units() -> None:
    assert only("_alternative", PAIR, (100, {0: 1, 1: 1}), (100, {0: 1}))


def test_there_are_as_many_copies_as_a_node_could_hold() -> None:
    model = PcpModel(problem_of(queued(job(1, 5, 3, 2, 0), job(2, 5, 1, 1, 1))))
    assert [{n: len(c) for n, c in here.items()} for here in model.present] == [
        {0: 2, 1: 2}, {0: 1, 1: 1}
    ]  # fmt: skip


def test_a_node_that_is_never_short_constrains_nothing() -> None:
    assert only("_within_node", PAIR, (100, {0: 1}), (100, {1: 1}))


def test_a_node_that_is_exceeded_is_refused() -> None:
    assert not only("_within_node", PAIR, (100, {0: 1}), (104, {0: 1}))
    units = queued(job(1, 5, 3, 1, 0), job(2, 5, 1, 2, 0))
    assert not only("_within_node", units, (100, {0: 3}), (104, {0: 1}))


def test_a_node_that_is_just_enough_is_accepted() -> None:
    assert only("_within_node", PAIR, (100, {0: 1}), (105, {0: 1}))
    units = queued(job(1, 5, 3, 1, 0), job(2, 5, 1, 2, 0))
    assert only("_within_node", units, (100, {0: 2, 1: 1}), (104, {0: 1}))


def test_nodes_are_shared_with_running_jobs_until_their_end() -> None:
    held = queued(job(1, 5, 1, 4, 0), running=[running(9, 10, [1, 0], 0)])
    assert allowed(held, (100, {1: 1}))
    assert not allowed(held, (104, {0: 1}))
    assert allowed(held, (105, {0: 1}))


def test_nodes_are_left_to_their_reservations() -> None:
    reserved = queued(job(1, 9, 1, 4, 0), job(2, 2, 1, 1, 0), reservations=RESERVED)
    assert allowed(reserved, (105, {1: 1}))
    assert not allowed(reserved, (102, {0: 1}))
    assert allowed(reserved, (101, {0: 1}))


def test_nodes_that_are_down_hold_nothing() -> None:
    assert list(PcpModel(problem_of(queued(job(1, 5, 1, 4, 0), down=[1]))).present[0]) == [0]


def test_the_power_cap_is_kept() -> None:
    two = queued(job(1, 5, 1, 2, 1), job(2, 5, 1, 1, 0), power=WATTS)
    assert allowed(two, None, None)
    assert not allowed(two, (100, {0: 1}), (104, {1: 1}))
    assert allowed(two, (100, {0: 1}), (105, {1: 1}))


def test_capacity_may_be_held_in_pieces() -> None:
    problem, plan = in_pieces()
    wheres = [(int(start), {0: 1}) for start in plan.start_s]
    assert accepts(PcpModel(problem), fix, *wheres)


def test_the_hint_is_complete_and_sound() -> None:
    problem = problem_of(crowd(), "pcp", "slowdown")
    plan = problem.schedule(np.arange(len(problem.jobs)))
    model, one = PcpModel(problem, plan), solver()
    hinted = sorted(model.model.proto.solution_hint.vars)
    assert hinted == list(range(len(model.model.proto.variables)))
    one.parameters.fix_variables_to_their_hinted_value = True
    assert one.solve(model.model) == cp_model.OPTIMAL
    assert (model.read(one).units == plan.units).all()


# --------------------------------------------------------------------------------- optimality


@pytest.mark.parametrize("name", ["pcp", "pcp1"])
@settings(max_examples=EXAMPLES)
@given(crowded(), objectives)
def test_the_best_plan_is_that_of_the_exhaustive_twin(
    name: str, instance: Instance, objective: str
) -> None:
    instance = without_overdue(instance)
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    problem = problem_of(instance, name, objective, chosen)
    plan = problem.schedule(np.arange(len(chosen)))
    assert optimum(PcpModel(problem, plan)) == pytest.approx(float(best[0]), rel=1e-6)


@settings(max_examples=EXAMPLES)
@given(crowded(), objectives)
def test_the_optimum_of_the_pool_is_never_above_that_of_the_nodes(
    instance: Instance, objective: str
) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    dispatcher = hcp.Hcp(hcp.VARIANTS["hcp3"], objective=objective)
    found = dispatcher.plan(instance, np.array(chosen), Stopwatch(5.0))
    starts = dict(zip(chosen, found.start_s.tolist(), strict=True))
    value = float(verify.objective_value(instance, objective, starts))
    assert found.bound <= float(best[0]) * (1 + 1e-9)
    assert value <= float(best[0]) * (1 + hcp.TOLERANCE)


@settings(max_examples=EXAMPLES)
@given(crowded(), names, objectives)
def test_the_dispatcher_proves_what_the_twin_says(
    instance: Instance, name: str, objective: str
) -> None:
    instance = without_overdue(instance)
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    dispatcher = Pcp(VARIANTS[name], limit_s=20.0, objective=objective)
    problem = problem_of(instance, name, objective, chosen)
    plan, found = dispatcher.solve(problem, Stopwatch(20.0))
    value = problem.cost.value(plan.start_s)
    assert plan.check(problem) == ""
    assert found.bound <= float(best[0]) * (1 + 1e-9)
    assert found.status in ("optimal", "heuristic")
    if name != "pcp5":
        assert found.status == "optimal"
        assert value == pytest.approx(float(best[0]), rel=1e-6)
        assert found.bound == pytest.approx(float(best[0]), rel=2e-6)


# ------------------------------------------------------------------------------ whole decisions


def starts(instance: Instance, decision: Decision) -> dict[int, int]:
    """Start by job id, of the jobs that have one."""
    pairs = zip(instance.queue.id.tolist(), decision.start_s.tolist(), strict=True)
    return {id: start for id, start in pairs if start != NO_START}


def sound(instance: Instance, decision: Decision) -> bool:
    wrong = verify.decision(instance, decision)
    return wrong + verify.solution(instance, solution.from_decision(instance, decision)) == []


@settings(max_examples=100)
@given(st.one_of(small, crowded()), names, st.sampled_from(sorted(OBJECTIVES)), st.integers(1, 5))
def test_decisions_and_their_certificates_pass_the_independent_checker(
    instance: Instance, name: str, objective: str, m: int
) -> None:
    decision = Pcp(VARIANTS[name], m=m, objective=objective).dispatch(instance)
    assert sound(instance, decision)
    assert decision.certificate.model == name
    assert decision.certificate.objective == objective


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    instance = crowd(14)
    first, second = (Pcp(VARIANTS[name], limit_s=4.0, seed=3).dispatch(instance) for _ in range(2))
    assert first.certificate.phases_ms["solve"] > 0
    assert first.start_s.tolist() == second.start_s.tolist()
    assert first.placements.as_dict() == second.placements.as_dict()
    assert first.certificate.bound == second.certificate.bound


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_solver_never_makes_the_plan_worse(name: str) -> None:
    instance, dispatcher = crowd(14), Pcp(VARIANTS[name])
    problem = problem_of(instance, name, dispatcher.objective)
    incumbent = problem.schedule(np.arange(len(problem.jobs)))
    plan, found = dispatcher.solve(problem, Stopwatch(1.0))
    assert found.bound <= problem.cost.value(plan.start_s)
    assert problem.sum(plan.start_s) <= problem.sum(incumbent.start_s)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_the_solver_improves_on_a_poor_order(name: str) -> None:
    """The job with the highest priority by either rule is the one that is best run last."""
    instance = queued(job(1, 60, 2, 4, 0, ewt=1), *(job(k, 3, 2, 4, 0, submit=99, ewt=9)
                                                    for k in range(2, 5)))  # fmt: skip
    decision = Pcp(VARIANTS[name], objective="wait").dispatch(instance)
    assert starts(instance, decision)[1] == 109
    assert decision.certificate.status == "optimal"


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_jobs_that_all_fit_start_now_and_that_is_optimal(name: str) -> None:
    decision = Pcp(VARIANTS[name]).dispatch(queued(job(1, 5, 1, 4, 0), job(2, 9, 1, 2, 1)))
    assert decision.start_s.tolist() == [100, 100]
    assert decision.reason.tolist() == [Reason.STARTED, Reason.STARTED]
    assert decision.certificate.status == "optimal"
    assert "solve" not in decision.certificate.phases_ms


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_an_empty_queue_gives_an_empty_decision(name: str) -> None:
    decision = Pcp(VARIANTS[name]).dispatch(queued())
    assert len(decision.start_s) == len(decision.reason) == len(decision.placements) == 0


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_job_that_fits_no_empty_node_is_left_out_and_named(name: str) -> None:
    decision = Pcp(VARIANTS[name]).dispatch(queued(job(1, 5, 1, 5, 0), job(2, 5, 1, 4, 0)))
    assert decision.start_s.tolist() == [NO_START, 100]
    assert decision.reason.tolist() == [Reason.NEVER_FITS, Reason.STARTED]


def test_planned_jobs_have_their_nodes_too() -> None:
    instance = queued(job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0))
    decision = Pcp().dispatch(instance)
    assert starts(instance, decision) == {1: 105, 2: 100}
    assert decision.reason.tolist() == [Reason.WAITS, Reason.BACKFILLED]
    assert decision.placements.as_dict()[0] == {0: 1, 1: 1}


def test_a_job_that_the_flaw_starts_on_nodes_that_are_not_free_waits() -> None:
    decision = Pcp(VARIANTS["pcp"], objective="wait").dispatch(
        queued(job(1, 5, 2, 4, 0), running=[running(9, 2, [1, 0], 0)])
    )
    assert decision.start_s.tolist() == [NO_START]
    assert decision.reason.tolist() == [Reason.WAITS]
    assert decision.certificate.bound is None
    assert decision.certificate.status == "feasible"


def test_without_the_flaw_the_job_is_planned_for_the_next_second() -> None:
    instance = queued(job(1, 5, 2, 4, 0), running=[running(9, 2, [1, 0], 0)])
    problem = problem_of(instance, "pcp2")
    assert problem.schedule(np.array([0])).start_s.tolist() == [101]


@given(small, st.sampled_from(["pcp", "pcp1"]))
def test_only_overdue_jobs_make_a_flawed_plan_impossible(instance: Instance, name: str) -> None:
    instance = without_overdue(instance)
    chosen = possible(instance)
    if chosen:
        problem = problem_of(instance, name, chosen=chosen)
        plan = problem.schedule(np.arange(len(chosen)))
        assert pcp.startable(instance, problem, plan).all()


def test_unknown_variants_and_objectives_are_refused() -> None:
    assert make_pcp("pcp4", objective="wait", m=7).m == 7
    with pytest.raises(UsageError, match="pcp9"):
        make_pcp("pcp9")
    with pytest.raises(UsageError, match="happiness"):
        make_pcp("pcp3", objective="happiness")


# ------------------------------------------------------------------------- when the solver fails


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
def test_a_solver_that_fails_or_lies_costs_no_decision(
    monkeypatch: pytest.MonkeyPatch, name: str, status: Any, bound: float, value: int
) -> None:
    instance = crowd()
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(status, bound, value))
    decision = Pcp(VARIANTS[name]).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert len(decision.placements) > 0
    assert sound(instance, decision)


def crowded_problem(name: str) -> tuple[Pcp, Problem, Plan]:
    dispatcher = Pcp(VARIANTS[name], objective="wait")
    problem = problem_of(crowd(), name, "wait")
    return dispatcher, problem, problem.schedule(np.arange(len(problem.jobs)))


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_bound_above_the_plan_is_not_believed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    dispatcher, problem, incumbent = crowded_problem(name)
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.OPTIMAL, 2.0**50, 0))
    monkeypatch.setattr(VARIANTS[name].formulation, "read", lambda self, solver: incumbent)
    plan, found = dispatcher.solve(problem, Stopwatch(1.0))
    assert found.status == "heuristic"
    assert found.bound <= problem.cost.value(problem.earliest())
    assert plan.start_s.tolist() == incumbent.start_s.tolist()


def test_a_plan_of_the_solver_that_is_no_better_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatcher, problem, incumbent = crowded_problem("pcp3")
    one_by_one = problem.since_s[-1] + np.cumsum(problem.jobs.expected_s) - problem.jobs.expected_s
    worse = Plan(one_by_one, incumbent.units)
    assert worse.check(problem) == ""
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.FEASIBLE, 0.0, 0))
    monkeypatch.setattr(PcpModel, "read", lambda self, solver: worse)
    plan, found = dispatcher.solve(problem, Stopwatch(1.0))
    assert plan.start_s.tolist() == incumbent.start_s.tolist()
    assert found.status == "feasible"


def test_a_bound_of_boxes_in_one_piece_is_not_one_of_the_problem() -> None:
    dispatcher = Pcp(VARIANTS["pcp5"], limit_s=20.0, objective="wait")
    problem = problem_of(queued(*(job(k, 3 + k, 1, 3 - k % 2, 0) for k in range(5))), "pcp5")
    _, found = dispatcher.solve(problem, Stopwatch(20.0))
    assert found.status == "optimal"
    assert found.bound == problem.cost.bound(problem.sum(problem.earliest()), problem.weights)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_budget_that_is_spent_gives_the_heuristic_answer(name: str) -> None:
    instance = crowd()
    decision = Pcp(VARIANTS[name], limit_s=1e-6).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert sound(instance, decision)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_there_is_one_search_whose_deterministic_limit_falls_with_the_size_of_the_model(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    solvers: list[Broken] = []

    def make() -> Broken:
        solvers.append(Broken(cp_model.UNKNOWN, 0.0, 0))
        return solvers[-1]

    monkeypatch.setattr(cp_model, "CpSolver", make)
    instance = crowd(60)
    Pcp(VARIANTS[name], limit_s=2.0).dispatch(instance)
    problem = problem_of(instance, name, chosen=select(instance, VARIANTS[name], 100).tolist())
    parts = VARIANTS[name].formulation.size(problem)
    assert parts > 100
    (one,) = solvers
    monkeypatch.setattr(pcp, "PARTS_PER_DETERMINISTIC_S", 1)
    Pcp(VARIANTS[name], limit_s=2.0).dispatch(instance)
    limits = [each.parameters.max_deterministic_time for each in (one, solvers[1])]
    assert limits == pytest.approx([2.0 * min(0.1, 250 / parts), 2.0 / parts])


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_model_too_large_for_the_budget_is_not_built(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    instance = crowd()
    monkeypatch.setattr(pcp, "PARTS_PER_S", 1)
    decision = Pcp(VARIANTS[name]).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert "build" not in decision.certificate.phases_ms
    assert sound(instance, decision)
