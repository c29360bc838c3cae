"""The dissertation's variants: what goes into each, and that what each answers is sound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch import solution, verify
from cpdispatch.decision import NO_START, Decision, Reason
from cpdispatch.dispatch import make
from cpdispatch.errors import UsageError
from cpdispatch.instance import Instance
from cpdispatch.models import pooled_model, thesis
from cpdispatch.models.budget import Budget
from cpdispatch.models.copies import CopiesModel
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.search import CLOCK_ENDED, FIRST_SHARE, SEARCHES
from cpdispatch.models.thesis import VARIANTS, Thesis, pose_on_pool
from tests.effort import examples
from tests.models.cases import (
    EXAMPLES,
    WATTS,
    Broken,
    crowded,
    job,
    problem_of,
    queued,
    running,
    without_overdue,
)
from tests.models.cases import crowd as crowd_of
from tests.models.exhaustive import best_plan, possible
from tests.models.pool_twin import best_value, best_value_of_all_starts
from tests.strategies import instances

small = instances(max_nodes=3, max_jobs=5, max_running=3)
HCP = [name for name, variant in VARIANTS.items() if variant.on_pool]
PCP = [name for name, variant in VARIANTS.items() if not variant.on_pool]
hcp_names, pcp_names = st.sampled_from(HCP), st.sampled_from(PCP)
every_objective = st.sampled_from(sorted(OBJECTIVES))
every_variant = pytest.mark.parametrize("name", VARIANTS)
every_pcp = pytest.mark.parametrize("name", PCP)


def crowd(name: str = "thesis-hcp3") -> Instance:
    """More jobs than exhaustion can order, each of which fits now, with nothing left over."""
    return crowd_of(30 if VARIANTS[name].on_pool else 14)


def variant(name: str, **settings: Any) -> Thesis:
    return Thesis(VARIANTS[name], **settings)


def select(instance: Instance, name: str, m: int | None = 100) -> list[int]:
    return thesis.select(instance, VARIANTS[name], m).tolist()


def clock(limit_s: float) -> Budget:
    return Budget(limit_s, live=True)


def starts(instance: Instance, decision: Decision) -> dict[int, int]:
    """Start by job id, of the jobs that have one."""
    pairs = zip(instance.queue.id.tolist(), decision.start_s.tolist(), strict=True)
    return {id: start for id, start in pairs if start != NO_START}


def sound(instance: Instance, decision: Decision) -> bool:
    wrong = verify.decision(instance, decision)
    return wrong + verify.solution(instance, solution.from_decision(instance, decision)) == []


@pytest.fixture
def only_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """No exhaustion of the pool: whatever is not certain goes to CP-SAT."""
    monkeypatch.setattr(pooled_model, "EXHAUST_STEPS", 0)


# ------------------------------------------------------------------------ what goes into a model


@pytest.mark.parametrize("family", ["thesis-hcp", "thesis-pcp"])
def test_the_originals_take_all_jobs_and_their_variants_those_that_fit_now(family: str) -> None:
    instance = queued(job(1, 5, 2, 4, 0), job(2, 6, 1, 4, 0), running=[running(9, 20, [3, 0], 0)])
    assert sorted(select(instance, family)) == [0, 1]
    others = [name for name in VARIANTS if name.startswith(family) and name != family]
    assert [select(instance, name) for name in others] == [[1]] * len(others)


@every_variant
def test_the_originals_plan_any_number_of_jobs_and_their_variants_a_hundred(name: str) -> None:
    jobs = 103
    instance = queued(
        *(job(k, 5, 1, 1, 0) for k in range(jobs)),
        groups=[{"name": "a", "nodes": 1, "capacity": [2, 0]}],
    )
    one = variant(name)
    assert len(select(instance, name, one.m)) == (jobs if name.endswith("p") else 100)
    decision = variant(name, m=3, limit_s=0.05).dispatch(instance)
    assert len(starts(instance, decision)) == 3


@every_variant
def test_a_job_that_no_nodes_in_service_hold_is_left_out(name: str) -> None:
    instance = queued(job(1, 5, 3, 4, 0), job(2, 5, 2, 4, 0), job(3, 5, 1, 4, 0), down=[1])
    assert select(instance, name) == [2]


@every_variant
def test_a_job_that_draws_more_than_the_cap_is_left_out(name: str) -> None:
    assert select(queued(job(1, 5, 1, 3, 1), job(2, 5, 1, 2, 1), power=WATTS), name) == [1]


@every_variant
def test_jobs_are_taken_by_slowdown_where_that_is_minimised_else_by_their_queues(name: str) -> None:
    instance = queued(job(1, 50, 1, 1, 0, ewt=2), job(2, 5, 1, 1, 0, ewt=9))
    by_slowdown = name[-1] in "345"
    assert select(instance, name) == ([1, 0] if by_slowdown else [0, 1])
    assert variant(name).objective.startswith("slowdown" if by_slowdown else "ewt_")


@every_variant
def test_equal_priorities_go_to_the_smaller_demand_times_duration(name: str) -> None:
    """Both jobs come now: their slowdowns and their waits are the same."""
    rows = [job(1, 5, 1, 3, 0, submit=100), job(2, 5, 1, 1, 0, submit=100)]
    assert select(queued(*rows), name) == [1, 0]


@given(small)
def test_the_original_takes_exactly_the_jobs_that_fit_the_empty_nodes(instance: Instance) -> None:
    assert sorted(select(instance, "thesis-pcp", None)) == possible(instance)


@given(small, st.sampled_from(["thesis-pcp2", "thesis-pcp3"]))
def test_every_filtered_job_could_start_now(instance: Instance, name: str) -> None:
    for position in select(instance, name):
        assert problem_of(instance, chosen=[position]).earliest_s.tolist() == [instance.now]


def free_at_first(instance: Instance, name: str) -> int:
    """Cores free of the nodes at first, as a variant's model has it."""
    chosen = np.arange(len(instance.queue))
    if VARIANTS[name].on_pool:
        return int(pose_on_pool(instance, chosen, VARIANTS[name], "wait").pool.free[0, 0])
    return int(problem_of(instance, name).free[0, :, 0].sum())


@every_variant
def test_the_flaw_with_overdue_jobs_is_that_of_the_first_two(name: str) -> None:
    overdue = [running(9, 2, [4, 1], 0)]
    instance = queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 0), running=overdue)
    flawed = name[-1] in "p1"
    assert free_at_first(instance, name) == (8 if flawed else 4)


@pytest.mark.parametrize("name", ["thesis-pcp", "thesis-pcp1", "thesis-pcp2"])
def test_no_plan_has_the_nodes_of_an_overdue_job_before_its_expected_end(name: str) -> None:
    """On the other node, neither job fits."""
    filled = running(8, 1000, [1, 1], 1, start=99)
    instance = queued(
        job(1, 5, 1, 1, 1), job(2, 6, 1, 4, 0), running=[running(9, 2, [3, 0], 0), filled]
    )
    later = replace(instance.running, end_s=np.array([160, instance.running.end_s[1]]))
    instance = replace(instance, running=later)
    decision = variant(name, objective="wait").dispatch(instance)
    assert verify.solution(instance, solution.from_decision(instance, decision)) == []


@every_variant
def test_a_resource_that_nobody_asks_for_is_constrained_only_in_the_originals(name: str) -> None:
    instance = queued(job(1, 5, 2, 4, 0), job(2, 5, 2, 4, 0))
    if VARIANTS[name].on_pool:
        pool = pose_on_pool(instance, np.arange(2), VARIANTS[name], "wait").pool
        resources = pool.free.shape[1]
    else:
        resources = len(problem_of(instance, name).resources)
    assert resources == (2 if name.endswith("p") else 1)


# --------------------------------------------------------------------------------- optimality


def planned(instance: Instance, name: str, objective: str, limit_s: float = 1.0) -> Any:
    """The jobs of a variant of HCP, and its plan of the pool with its result."""
    one = variant(name, limit_s=limit_s, objective=objective)
    chosen = thesis.select(instance, one.variant, one.m)
    problem = pose_on_pool(instance, chosen, one.variant, objective)
    return (chosen.tolist(), problem, *one.solve(problem, clock(limit_s)))


@settings(max_examples=examples(200))
@given(small, hcp_names, every_objective, st.booleans())
def test_the_pooled_plan_is_the_best_of_all_orders(
    instance: Instance, name: str, objective: str, exhaust: bool
) -> None:
    if not VARIANTS[name].overdue_run_on:
        instance = without_overdue(instance)
    if not select(instance, name):
        return
    with pytest.MonkeyPatch.context() as patch:
        if not exhaust:
            patch.setattr(pooled_model, "EXHAUST_STEPS", 0)
        chosen, _, start_s, result = planned(instance, name, objective, 20.0)
    pairs = dict(zip(chosen, start_s.tolist(), strict=True))
    value = float(verify.objective_value(instance, objective, pairs))
    best = float(best_value(instance, chosen, objective))
    assert result.status == "optimal"
    assert value == pytest.approx(best, rel=1e-6)
    assert result.bound == pytest.approx(best, rel=2e-6)
    assert result.bound <= value


@settings(max_examples=examples(30))
@given(instances(max_nodes=2, max_jobs=2, max_running=1, reservations=False), hcp_names)
def test_the_best_of_all_orders_is_the_best_of_all_starts(instance: Instance, name: str) -> None:
    chosen = select(without_overdue(instance), name)
    if chosen:
        assert best_value(instance, chosen, "slowdown") == best_value_of_all_starts(
            instance, chosen, "slowdown", 40
        )


@settings(max_examples=EXAMPLES)
@given(crowded(), st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_the_optimum_of_the_pool_is_never_above_that_of_the_nodes(
    instance: Instance, objective: str
) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    one = variant("thesis-hcp3", limit_s=5.0, objective=objective)
    problem = pose_on_pool(instance, np.array(chosen), one.variant, objective)
    start_s, result = one.solve(problem, clock(5.0))
    pairs = dict(zip(chosen, start_s.tolist(), strict=True))
    assert result.bound <= float(best[0]) * (1 + 1e-9)
    assert float(verify.objective_value(instance, objective, pairs)) <= float(best[0]) * (1 + 1e-6)


@settings(max_examples=EXAMPLES)
@given(crowded(), pcp_names, st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_pcp_proves_what_the_twin_says(instance: Instance, name: str, objective: str) -> None:
    instance = without_overdue(instance)
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    problem = problem_of(instance, name, objective, chosen)
    plan, found = variant(name, limit_s=20.0, objective=objective).solve(problem, clock(20.0))
    value = problem.cost.value(plan.start_s)
    assert plan.check(problem) == ""
    assert found.bound <= float(best[0]) * (1 + 1e-9)
    assert found.status in ("optimal", "heuristic")
    if name != "thesis-pcp5":
        assert found.status == "optimal"
        assert value == pytest.approx(float(best[0]), rel=1e-6)
        assert found.bound == pytest.approx(float(best[0]), rel=2e-6)


# ------------------------------------------------------------------------------ whole decisions


@settings(max_examples=examples(200))
@given(
    st.one_of(small, crowded()), st.sampled_from(sorted(VARIANTS)), every_objective,
    st.integers(1, 5),
)  # fmt: skip
def test_decisions_and_their_certificates_pass_the_independent_checker(
    instance: Instance, name: str, objective: str, m: int
) -> None:
    decision = variant(name, m=m, objective=objective).dispatch(instance)
    assert sound(instance, decision)
    assert decision.certificate.model == name
    assert decision.certificate.objective == objective
    assert decision.certificate.regime == "deterministic"


@every_variant
def test_the_same_seed_gives_the_same_answer(name: str) -> None:
    instance = crowd(name)
    first, second = (variant(name, limit_s=2.0, seed=3).dispatch(instance) for _ in range(2))
    assert first.certificate.phases_ms["solve"] > 0
    assert first.start_s.tolist() == second.start_s.tolist()
    assert first.placements.as_dict() == second.placements.as_dict()
    assert first.certificate.bound == second.certificate.bound


@every_pcp
def test_the_solver_never_makes_the_plan_worse(name: str) -> None:
    one = variant(name)
    problem = problem_of(crowd(name), name, one.objective)
    incumbent, _ = problem.first_plan()
    plan, found = one.solve(problem, clock(1.0))
    assert found.bound <= problem.cost.value(plan.start_s)
    assert problem.sum_of(plan) <= problem.sum_of(incumbent)


def test_the_solver_never_makes_the_plan_of_the_pool_worse() -> None:
    _, problem, start_s, found = planned(crowd(), "thesis-hcp3", "slowdown", 2.0)
    value = problem.cost.value(start_s)
    assert problem.wrong(start_s) == ""
    assert found.bound <= value <= problem.cost.value(problem.incumbent())


@every_pcp
def test_the_solver_improves_on_a_poor_order(name: str) -> None:
    """The job with the highest priority by either rule is the one that is best run last."""
    instance = queued(job(1, 60, 2, 4, 0, ewt=1), *(job(k, 3, 2, 4, 0, submit=99, ewt=9)
                                                    for k in range(2, 5)))  # fmt: skip
    decision = variant(name, objective="wait").dispatch(instance)
    assert starts(instance, decision)[1] == 109
    assert decision.certificate.status == "optimal"


@every_variant
def test_a_plan_of_the_pool_is_optimal_only_where_all_of_its_jobs_have_nodes(name: str) -> None:
    """The wide job would fit the pool at once, but no node: it starts when a node is empty."""
    on_pool = VARIANTS[name].on_pool
    now = job(1, 5, 1, 4, 0), job(2, 5, 1, 4, 0)
    assert variant(name).dispatch(queued(*now)).certificate.status == "optimal"
    decision = variant(name).dispatch(queued(*now, job(3, 9, 2, 4, 0)))
    assert sound(queued(*now, job(3, 9, 2, 4, 0)), decision)
    assert decision.start_s.max() > 100
    assert decision.certificate.status == ("pooled-optimal" if on_pool else "optimal")


@every_variant
def test_jobs_that_all_fit_start_now_and_that_is_optimal(name: str) -> None:
    decision = variant(name).dispatch(queued(job(1, 5, 1, 4, 0), job(2, 9, 1, 2, 1)))
    assert decision.start_s.tolist() == [100, 100]
    assert decision.reason.tolist() == [Reason.STARTED, Reason.STARTED]
    assert decision.certificate.status == "optimal"
    assert decision.certificate.gap == 0
    assert "solve" not in decision.certificate.phases_ms


@every_variant
def test_an_empty_queue_gives_an_empty_decision(name: str) -> None:
    decision = variant(name).dispatch(queued())
    assert len(decision.start_s) == len(decision.reason) == len(decision.placements) == 0
    assert decision.certificate.status == "optimal"


@pytest.mark.parametrize("name", ["thesis-hcp3", "thesis-pcp3"])
def test_a_planned_job_waits_and_one_that_overtakes_it_is_backfilled(name: str) -> None:
    instance = queued(job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0))
    decision = variant(name).dispatch(instance)
    assert starts(instance, decision) == {1: 105, 2: 100}
    assert decision.reason.tolist() == [Reason.WAITS, Reason.BACKFILLED]


def test_planned_jobs_of_pcp_have_their_nodes_too() -> None:
    decision = variant("thesis-pcp3").dispatch(queued(job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0)))
    assert decision.placements.as_dict()[0] == {0: 1, 1: 1}


@every_variant
@pytest.mark.parametrize(("units", "cores"), [(3, 4), (1, 5)], ids=["the pool", "no node"])
def test_a_job_that_fits_no_empty_system_is_left_out_and_named(
    name: str, units: int, cores: int
) -> None:
    instance = queued(job(1, 5, units, cores, 0), job(2, 5, 1, 4, 0))
    decision = variant(name).dispatch(instance)
    assert decision.start_s.tolist() == [NO_START, 100]
    assert decision.reason.tolist() == [Reason.NEVER_FITS, Reason.STARTED]


def test_a_job_that_the_pool_starts_and_that_finds_no_nodes_waits() -> None:
    held = [running(8, 20, [2, 0], 0), running(9, 20, [2, 0], 1)]
    instance = queued(job(1, 5, 1, 3, 0), job(2, 5, 1, 1, 0, ewt=9), running=held)
    decision = variant("thesis-hcp").dispatch(instance)
    assert decision.start_s.tolist() == [NO_START, 100]
    assert decision.reason.tolist() == [Reason.WAITS, Reason.BACKFILLED]
    assert decision.certificate.bound is None
    assert decision.certificate.status == "feasible"


def test_a_job_that_the_flaw_starts_on_nodes_that_are_not_free_waits() -> None:
    decision = variant("thesis-pcp", objective="wait").dispatch(
        queued(job(1, 5, 2, 4, 0), running=[running(9, 2, [1, 0], 0)])
    )
    assert decision.start_s.tolist() == [NO_START]
    assert decision.reason.tolist() == [Reason.WAITS]
    assert decision.certificate.bound is None
    assert decision.certificate.status == "feasible"


def test_without_the_flaw_the_job_is_planned_for_the_next_second() -> None:
    instance = queued(job(1, 5, 2, 4, 0), running=[running(9, 2, [1, 0], 0)])
    problem = problem_of(instance, "thesis-pcp2")
    assert problem.schedule(np.array([0])).start_s.tolist() == [101]


@given(small, st.sampled_from(["thesis-pcp", "thesis-pcp1"]))
def test_only_overdue_jobs_make_a_flawed_plan_impossible(instance: Instance, name: str) -> None:
    instance = without_overdue(instance)
    chosen = possible(instance)
    if chosen:
        problem = problem_of(instance, name, chosen=chosen)
        plan = problem.schedule(np.arange(len(chosen)))
        assert thesis.startable(instance, problem, plan).all()


@every_variant
def test_the_registry_makes_each_variant_under_the_name_that_the_user_gave(name: str) -> None:
    made = make(f"{name}:limit=0.5,m=7,objective=wait")
    assert made.name == f"{name}:limit=0.5,m=7,objective=wait"
    decision = made.dispatch(queued(job(1, 5, 1, 1, 0)))
    assert (decision.certificate.model, decision.certificate.objective) == (name, "wait")


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(UsageError, match="happiness"):
        Thesis(VARIANTS["thesis-hcp3"], objective="happiness")


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
@every_variant
@pytest.mark.usefixtures("only_solver")
def test_a_solver_that_fails_or_lies_costs_no_decision(
    monkeypatch: pytest.MonkeyPatch, name: str, status: Any, bound: float, value: int
) -> None:
    instance = crowd(name)
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(status, bound, value))
    decision = variant(name).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert len(decision.placements) > 0
    assert sound(instance, decision)


@pytest.mark.usefixtures("only_solver")
def test_a_bound_above_the_plan_of_the_pool_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = queued(*(job(k, 5 + k, 2, 4, 0) for k in range(4)))
    _, problem, best_s, _ = planned(instance, "thesis-hcp3", "slowdown")
    ends = np.cumsum([0, 5, 6, 7]).tolist()
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.OPTIMAL, 2.0**50, *ends))
    _, _, _, found = planned(instance, "thesis-hcp3", "slowdown")
    assert found.status == "heuristic"
    assert found.bound <= problem.cost.value(best_s)


@pytest.mark.parametrize("far", [False, True], ids=["worse", "so far off that sums overflow"])
@pytest.mark.usefixtures("only_solver")
def test_a_plan_of_the_pool_that_is_no_better_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    instance = crowd()
    _, problem, _, _ = planned(instance, "thesis-hcp3", "slowdown")
    first = 2**63 // int(problem.weights.per_s.sum()) if far else 20
    ends = (first + np.cumsum(problem.duration_s) - problem.duration_s).tolist()
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.FEASIBLE, 0.0, *ends))
    _, _, start_s, found = planned(instance, "thesis-hcp3", "slowdown")
    assert start_s.tolist() == problem.incumbent().tolist()
    assert found.status == ("heuristic" if far else "feasible")


def crowded_problem(name: str) -> tuple[Thesis, NodeProblem, NodePlan]:
    problem = problem_of(crowd(name), name, "wait")
    return variant(name, objective="wait"), problem, problem.first_plan()[0]


@every_pcp
def test_a_bound_above_the_plan_is_not_believed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    one, problem, incumbent = crowded_problem(name)
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.OPTIMAL, 2.0**50, 0))
    monkeypatch.setattr(VARIANTS[name].formulation, "read", lambda self, solver: incumbent)
    plan, found = one.solve(problem, clock(1.0))
    assert found.status == "heuristic"
    assert found.bound == problem.cost.value(problem.earliest_s)
    assert plan.start_s.tolist() == incumbent.start_s.tolist()


def test_a_plan_of_the_solver_that_is_no_better_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, problem, incumbent = crowded_problem("thesis-pcp3")
    one_by_one = problem.since_s[-1] + np.cumsum(problem.jobs.expected_s) - problem.jobs.expected_s
    worse = NodePlan(one_by_one, incumbent.units)
    assert worse.check(problem) == ""
    monkeypatch.setattr(cp_model, "CpSolver", lambda: Broken(cp_model.FEASIBLE, 0.0, 0))
    monkeypatch.setattr(CopiesModel, "read", lambda self, solver: worse)
    plan, found = one.solve(problem, clock(1.0))
    assert plan.start_s.tolist() == incumbent.start_s.tolist()
    assert found.status == "feasible"


def test_a_bound_of_boxes_in_one_piece_is_not_one_of_the_problem() -> None:
    instance = queued(*(job(k, 3 + k, 1, 3 - k % 2, 0) for k in range(5)))
    problem = problem_of(instance, "thesis-pcp5")
    one = variant("thesis-pcp5", limit_s=20.0, objective="wait")
    _, found = one.solve(problem, clock(20.0))
    assert found.status == "optimal"
    assert found.bound == problem.cost.value(problem.earliest_s)


@every_variant
@pytest.mark.usefixtures("only_solver")
def test_a_budget_that_is_spent_gives_the_heuristic_answer(name: str) -> None:
    instance = crowd(name)
    decision = variant(name, limit_s=1e-6).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert sound(instance, decision)


@every_variant
@pytest.mark.usefixtures("only_solver")
def test_searches_grow_and_all_variants_but_the_originals_give_up_after_three_in_vain(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    solvers: list[Broken] = []

    def make() -> Broken:
        solvers.append(Broken(cp_model.UNKNOWN, 0.0, 0))
        return solvers[-1]

    monkeypatch.setattr(cp_model, "CpSolver", make)
    variant(name, limit_s=20.0).dispatch(crowd(name))
    limits = [each.parameters.max_deterministic_time for each in solvers]
    assert len(limits) == (SEARCHES if name.endswith("p") else 3)
    assert limits == pytest.approx([limits[0] * 2**k for k in range(len(limits))])


@every_variant
@pytest.mark.usefixtures("only_solver")
def test_the_deterministic_limit_falls_with_the_size_of_the_model(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    solvers: list[Broken] = []

    def make() -> Broken:
        solvers.append(Broken(cp_model.UNKNOWN, 0.0, 0))
        return solvers[-1]

    monkeypatch.setattr(cp_model, "CpSolver", make)
    sizes: list[int] = []
    size = VARIANTS[name].formulation.size

    def told(problem: Any) -> int:
        sizes.append(size(problem))
        return sizes[-1]

    monkeypatch.setattr(VARIANTS[name].formulation, "size", told)
    for limit_per_part in (250, 1):
        monkeypatch.setattr(thesis, "PARTS_PER_DETERMINISTIC_S", limit_per_part)
        solvers.clear()
        variant(name, limit_s=2.0).dispatch(crowd(name))
        first_s = 2.0 * FIRST_SHARE * min(0.1, limit_per_part / sizes[-1])
        assert solvers[0].parameters.max_deterministic_time == pytest.approx(first_s)


@every_variant
@pytest.mark.usefixtures("only_solver")
def test_a_model_is_not_built_to_its_end_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    built: list[bool] = []
    formulation = VARIANTS[name].formulation
    instance, make = crowd(name), formulation.__init__

    def late(model: Any, problem: Any, plan: Any, over: Any) -> None:
        assert not over()
        make(model, problem, plan, lambda: True)
        built.append(True)

    monkeypatch.setattr(formulation, "__init__", late)
    one = variant(name)
    decision = one.dispatch(instance)
    assert built == []
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert one.faults == {CLOCK_ENDED: 1}
    assert sound(instance, decision)


@every_variant
@pytest.mark.usefixtures("only_solver")
def test_a_model_too_large_for_the_budget_is_not_built(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    instance = crowd(name)
    monkeypatch.setattr(thesis, "PARTS_PER_S", 1)
    decision = variant(name).dispatch(instance)
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert "build" not in decision.certificate.phases_ms
    assert sound(instance, decision)


@every_variant
@pytest.mark.usefixtures("only_solver")
def test_the_time_that_freeing_a_model_takes_is_not_searched(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    instance, formulation = crowd(name), VARIANTS[name].formulation
    monkeypatch.setattr(formulation, "freed_s", 3600.0)
    decision = variant(name).dispatch(instance)
    assert decision.certificate.limit_hit
    assert sound(instance, decision)
