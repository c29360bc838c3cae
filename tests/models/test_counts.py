from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch.instance import Instance
from cpdispatch.models.counts import CountsModel
from tests.models.cases import (
    EXAMPLES,
    RESERVED,
    Form,
    accepts,
    crowd,
    crowded,
    head_of,
    in_pieces,
    job,
    optimum,
    problem_of,
    queued,
    running,
    solver,
)
from tests.models.exhaustive import best_plan, possible

FAMILIES = (
    "_all_placed", "_within_system", "_within_system_mirrored", "_disjoint", "_within_node",
)  # fmt: skip


def fix(model: Any, position: int, nodes: dict[int, int]) -> None:
    for node, variable in model.placed[position].items():
        model.model.add(variable == nodes.get(node, 0))
    head_of(model, position, nodes)


FORM = Form(CountsModel, FAMILIES, fix)
only, allowed = FORM.only, FORM.allowed


# ------------------------------------------------------------------------ constraint families


PAIR = queued(job(1, 5, 2, 3, 0), job(2, 5, 1, 3, 0))


def test_units_that_are_not_given_are_placed_somehow() -> None:
    assert only("_all_placed", PAIR, None, None)


@pytest.mark.parametrize("nodes", [{0: 1}, {}], ids=["one", "none"])
def test_units_are_not_left_out(nodes: dict[int, int]) -> None:
    assert not only("_all_placed", PAIR, (100, nodes))


def test_all_units_are_placed() -> None:
    assert only("_all_placed", PAIR, (100, {0: 1, 1: 1}), (100, {0: 1}))


RELAXED = ["_within_system", "_within_system_mirrored"]


@pytest.mark.parametrize("family", RELAXED)
def test_a_system_that_is_never_short_constrains_nothing(family: str) -> None:
    assert only(family, queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 4, 0)), (100, {}), (100, {}))


@pytest.mark.parametrize("family", RELAXED)
def test_a_system_that_is_exceeded_is_refused(family: str) -> None:
    assert not only(family, PAIR, (100, {}), (104, {}))
    held = queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 0), running=[running(9, 10, [1, 0], 0)])
    assert not only(family, held, (105, {}), (102, {}))
    assert not only(family, held, (105, {}), (106, {}))


@pytest.mark.parametrize("family", RELAXED)
def test_a_system_that_is_just_enough_is_accepted(family: str) -> None:
    assert only(family, PAIR, (100, {}), (105, {}))
    held = queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 0), running=[running(9, 10, [1, 0], 0)])
    assert only(family, held, (105, {}), (100, {}))


@pytest.mark.parametrize("family", RELAXED)
def test_the_system_as_a_whole_does_not_see_that_capacity_lies_in_pieces(family: str) -> None:
    pieces = queued(job(1, 5, 2, 3, 0), job(2, 5, 1, 2, 0))
    assert only(family, pieces, (100, {}), (100, {}))
    assert not allowed(pieces, (100, {0: 1, 1: 1}), (100, {0: 1}))


@pytest.mark.parametrize("family", RELAXED)
def test_the_system_as_a_whole_respects_reservations(family: str) -> None:
    reserved = queued(job(1, 5, 2, 4, 0), job(2, 9, 1, 1, 0), reservations=RESERVED)
    assert not only(family, reserved, (107, {}), None)
    assert only(family, reserved, (105, {}), None)


def test_jobs_that_fit_beside_each_other_may_overlap() -> None:
    assert only("_disjoint", queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 4, 0)), (100, {}), (102, {}))


@pytest.mark.parametrize("units", [1, 2])
def test_jobs_that_together_ask_for_more_than_the_system_has_do_not_overlap(units: int) -> None:
    """One of them asks for more than half, the other for more (2 units) or less (1)."""
    two = queued(job(1, 5, 2, 3, 0), job(2, 5, units, 3, 0))
    assert not only("_disjoint", two, (100, {}), (102, {}))


@pytest.mark.parametrize("units", [1, 2])
def test_jobs_that_together_ask_for_more_than_the_system_has_may_follow_each_other(
    units: int,
) -> None:
    two = queued(job(1, 5, 2, 3, 0), job(2, 5, units, 3, 0))
    assert only("_disjoint", two, (100, {}), (105, {}))


def test_small_jobs_are_kept_apart_from_the_large_one_and_not_from_each_other() -> None:
    three = queued(job(1, 5, 2, 3, 0), job(2, 5, 1, 3, 0), job(3, 5, 1, 4, 0))
    assert only("_disjoint", three, (100, {}), (105, {}), (106, {}))
    assert not only("_disjoint", three, (100, {}), (105, {}), (104, {}))


def test_nodes_that_are_down_hold_nothing() -> None:
    assert list(CountsModel(problem_of(queued(job(1, 5, 1, 4, 0), down=[1]))).placed[0]) == [0]


# --------------------------------------------------------------------------------- optimality


@settings(max_examples=EXAMPLES)
@given(crowded() | crowded(first=True), st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_the_best_plan_is_that_of_the_exhaustive_twin(instance: Instance, objective: str) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    problem = problem_of(instance, "thesis-pcp4", objective, chosen)
    plan = problem.schedule(np.arange(len(chosen)))
    assert optimum(CountsModel(problem, plan)) == pytest.approx(float(best[0]), rel=1e-6)


@pytest.mark.parametrize("first", [False, True])
def test_the_hint_is_complete_and_sound(first: bool) -> None:
    problem = problem_of(crowd(first=first), "thesis-pcp4", "slowdown")
    plan = problem.schedule(np.arange(len(problem.jobs)))
    model = CountsModel(problem, plan)
    assert sorted(model.model.proto.solution_hint.vars) == list(
        range(len(model.model.proto.variables))
    )
    one = solver()
    one.parameters.fix_variables_to_their_hinted_value = True
    assert one.solve(model.model) == cp_model.OPTIMAL
    assert model.read(one).start_s.tolist() == plan.start_s.tolist()
    assert (model.read(one).units == plan.units).all()


def test_capacity_may_be_held_in_pieces() -> None:
    problem, plan = in_pieces()
    assert plan.check(problem) == ""
    wheres = [(int(start), {0: 1}) for start in plan.start_s]
    assert accepts(CountsModel(problem), fix, *wheres)


def test_the_search_finds_the_plan_that_the_solver_denies_with_linearization() -> None:
    """OR-Tools 9.15 calls this infeasible by default: the search control has to keep it from it."""
    overdue = [running(8, 1, [2, 0], 0), running(9, 1, [2, 0], 0)]
    reserved = [{"start": 95, "duration": 9, "nodes": [1, 2], "capacity": [4, 1]}]
    three = {"groups": [{"name": "a", "nodes": 3, "capacity": [4, 1]}]}
    instance = queued(job(1, 2, 1, 2, 0), job(2, 1, 2, 2, 0), running=overdue,
                      reservations=reserved, **three)  # fmt: skip
    problem = problem_of(instance, "thesis-pcp4", "slowdown")
    model = CountsModel(problem, problem.schedule(np.arange(2)))
    one = solver()
    assert one.solve(model.model) == cp_model.OPTIMAL
    assert model.read(one).start_s.tolist() == [102, 101]
