from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch.instance import Instance
from cpdispatch.models.copies import CopiesModel
from tests.models.cases import (
    EXAMPLES,
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
    solver,
    without_overdue,
)
from tests.models.exhaustive import best_plan, possible

objectives = st.sampled_from(["slowdown", "bounded_slowdown"])

# ------------------------------------------------------------------------ constraint families


def fix(model: Any, position: int, nodes: dict[int, int]) -> None:
    for node, copies in model.present[position].items():
        model.model.add(sum(copies) == nodes.get(node, 0))
    head_of(model, position, nodes)


FORM = Form(CopiesModel, ("_alternative", "_within_node"), fix)
only, allowed = FORM.only, FORM.allowed


PAIR = queued(job(1, 5, 2, 3, 0), job(2, 5, 1, 3, 0))


def test_units_that_are_not_given_are_placed_somehow() -> None:
    assert only("_alternative", PAIR, None, None)


@pytest.mark.parametrize("nodes", [{0: 1}, {}], ids=["one", "none"])
def test_units_are_not_left_out(nodes: dict[int, int]) -> None:
    assert not only("_alternative", PAIR, (100, nodes))


def test_as_many_copies_are_present_as_there_are_units() -> None:
    assert only("_alternative", PAIR, (100, {0: 1, 1: 1}), (100, {0: 1}))


def test_there_are_as_many_copies_as_a_node_could_hold() -> None:
    model = CopiesModel(problem_of(queued(job(1, 5, 3, 2, 0), job(2, 5, 1, 1, 1))))
    assert [{n: len(c) for n, c in here.items()} for here in model.present] == [
        {0: 2, 1: 2}, {0: 1, 1: 1}
    ]  # fmt: skip


def test_nodes_that_are_down_hold_nothing() -> None:
    assert list(CopiesModel(problem_of(queued(job(1, 5, 1, 4, 0), down=[1]))).present[0]) == [0]


def test_capacity_may_be_held_in_pieces() -> None:
    problem, plan = in_pieces()
    wheres = [(int(start), {0: 1}) for start in plan.start_s]
    assert accepts(CopiesModel(problem), fix, *wheres)


@pytest.mark.parametrize("first", [False, True])
def test_the_hint_is_complete_and_sound(first: bool) -> None:
    problem = problem_of(crowd(first=first), "thesis-pcp", "slowdown")
    plan = problem.schedule(np.arange(len(problem.jobs)))
    model, one = CopiesModel(problem, plan), solver()
    hinted = sorted(model.model.proto.solution_hint.vars)
    assert hinted == list(range(len(model.model.proto.variables)))
    one.parameters.fix_variables_to_their_hinted_value = True
    assert one.solve(model.model) == cp_model.OPTIMAL
    assert (model.read(one).units == plan.units).all()


# --------------------------------------------------------------------------------- optimality


@pytest.mark.parametrize("name", ["thesis-pcp", "thesis-pcp1"])
@settings(max_examples=EXAMPLES)
@given(crowded() | crowded(first=True), objectives)
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
    assert optimum(CopiesModel(problem, plan)) == pytest.approx(float(best[0]), rel=1e-6)
