from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch.instance import Instance
from cpdispatch.models.boxes import NUMBERS_PER_PART, Axis, Box, BoxesModel, pack
from cpdispatch.models.node_problem import NodeProblem
from tests.effort import examples
from tests.models.cases import (
    EXAMPLES,
    RESERVED,
    WATTS,
    Form,
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
)
from tests.models.exhaustive import best_plan, possible
from tests.strategies import Plan

FAMILIES = "_disjoint", "_on_one_node", "_units_ascending"


def fix(model: Any, position: int, nodes: dict[int, int]) -> None:
    """Put a job's units on the nodes: on the first of its axes, in the order of the nodes."""
    units = np.nonzero(model.owner == position)[0].tolist()
    axis = model._first_axis()[position]
    where = [node for node in sorted(nodes) for _ in range(nodes[node])]
    if model.is_first[units[0]]:  # which is not held to the order of the others
        head = next(iter(nodes))
        where.remove(head)
        where.insert(0, head)
    for unit, node in zip(units, where, strict=True):
        bottom, first = model.bottoms[axis][unit], int(model.axes[axis].first[node])
        model.model.add(bottom >= first)
        model.model.add(bottom < int(model.axes[axis].end[node]))


FORM = Form(BoxesModel, FAMILIES, fix)
only, allowed = FORM.only, FORM.allowed


# ------------------------------------------------------------------------ constraint families


def positions(instance: Instance, axis: int, position: int) -> list[int]:
    """The domain of where the first unit of a job may begin on an axis, as lows and highs."""
    model = BoxesModel(problem_of(instance))
    unit = int(np.nonzero(model.owner == position)[0][0])
    return list(model.model.proto.variables[model.bottoms[axis][unit].index].domain)


def test_a_box_as_small_as_can_be_lies_anywhere() -> None:
    assert positions(queued(job(1, 5, 1, 1, 0)), 0, 0) == [0, 7]


def test_a_box_does_not_reach_across_two_nodes() -> None:
    two = queued(job(1, 5, 1, 3, 0), job(2, 5, 1, 2, 0))
    assert positions(two, 0, 0) == [0, 1, 4, 5]
    assert positions(two, 0, 1) == [0, 2, 4, 6]


def test_a_box_may_fill_a_node() -> None:
    two = queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 1, 0))
    assert positions(two, 0, 0) == [0, 0, 4, 4]


def test_boxes_do_not_lie_on_nodes_that_lack_what_the_job_asks_for() -> None:
    groups = [{"name": "a", "nodes": 1, "capacity": [4, 0]},
              {"name": "b", "nodes": 1, "capacity": [4, 1]}]  # fmt: skip
    assert positions(queued(job(1, 5, 1, 3, 1), job(2, 5, 1, 1, 0), groups=groups), 0, 0) == [4, 5]
    assert positions(queued(job(1, 5, 1, 1, 0), down=[0]), 0, 0) == [0, 3]


PAIR = queued(job(1, 5, 2, 3, 0), job(2, 5, 1, 3, 0))


def test_boxes_on_other_nodes_may_overlap_in_time() -> None:
    assert only("_disjoint", queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 4, 0)), (100, {0: 1}),
                (100, {1: 1}))  # fmt: skip


def test_boxes_on_a_node_do_not_overlap() -> None:
    assert not only("_disjoint", PAIR, (100, {0: 1, 1: 1}), (104, {0: 1}))
    assert not only("_disjoint", PAIR, (100, {0: 2}), None)


def test_boxes_on_a_node_may_follow_or_stand_beside_each_other() -> None:
    assert only("_disjoint", PAIR, (100, {0: 1, 1: 1}), (105, {0: 1}))
    assert only("_disjoint", queued(job(1, 5, 3, 1, 0), job(2, 5, 1, 1, 0)), (100, {0: 3}),
                (102, {0: 1}))  # fmt: skip


BOTH = queued(job(1, 5, 1, 2, 1), job(2, 5, 1, 4, 0))


def on(node: int, instance: Instance, family: str = "_on_one_node") -> bool:
    """Whether the first job may have its cores on node 0 and its GPU on this one."""
    others = [other for other in FAMILIES if other != family]
    model = alone(BoxesModel, family, *others)(problem_of(instance))
    model.model.add(model.bottoms[1][0] == node)
    return accepts(model, fix, (100, {0: 1}))


def test_a_unit_of_one_resource_needs_no_node_of_its_own() -> None:
    assert BoxesModel(problem_of(PAIR)).nodes == {}
    assert list(BoxesModel(problem_of(BOTH)).nodes) == [0]


def test_a_unit_does_not_have_its_boxes_on_two_nodes() -> None:
    assert not on(1, BOTH)
    assert on(1, BOTH, "_disjoint")


def test_a_unit_has_its_boxes_on_one_node() -> None:
    assert on(0, BOTH)


def ascending(instance: Instance, *bottoms: int) -> bool:
    """Whether the first job's units may stand there on its first axis."""
    model = alone(BoxesModel, "_units_ascending", "_disjoint", "_on_one_node")(problem_of(instance))
    for unit, bottom in enumerate(bottoms):
        model.model.add(model.bottoms[0][unit] == bottom)
    return solver().solve(model.model) == cp_model.OPTIMAL


THREE = queued(job(1, 5, 3, 2, 0), job(2, 5, 1, 1, 0))


def test_a_unit_alone_stands_anywhere() -> None:
    assert all(ascending(queued(job(1, 5, 1, 1, 0)), bottom) for bottom in range(8))


def test_units_that_could_change_places_do_not() -> None:
    assert not ascending(THREE, 2, 0, 4)
    assert not ascending(THREE, 0, 1, 4)


def test_the_units_of_a_job_ascend() -> None:
    assert ascending(THREE, 0, 2, 4)
    assert ascending(THREE, 2, 4, 6)


def test_nodes_are_shared_with_running_jobs_until_their_end() -> None:
    held = queued(job(1, 5, 1, 4, 0), job(2, 5, 1, 3, 0), running=[running(9, 10, [1, 0], 0)])
    assert allowed(held, (100, {1: 1}), (100, {0: 1}))
    assert not allowed(held, (104, {0: 1}), None)
    assert allowed(held, (105, {0: 1}), (100, {0: 1}))


def test_nodes_are_left_to_their_reservations() -> None:
    reserved = queued(job(1, 9, 1, 4, 0), job(2, 2, 1, 1, 0), reservations=RESERVED)
    assert allowed(reserved, (105, {1: 1}), None)
    assert not allowed(reserved, (102, {0: 1}), None)
    assert allowed(reserved, (101, {0: 1}), None)


def test_the_power_cap_is_kept() -> None:
    two = queued(job(1, 5, 1, 2, 1), job(2, 5, 1, 1, 0), power=WATTS)
    assert allowed(two, None, None)
    assert not allowed(two, (100, {0: 1}), (104, {1: 1}))
    assert allowed(two, (100, {0: 1}), (105, {1: 1}))


def test_the_model_does_not_grow_with_the_nodes() -> None:
    def variables(nodes: int) -> int:
        groups = {"groups": [{"name": "a", "nodes": nodes, "capacity": [4, 1]}]}
        problem = problem_of(queued(job(1, 5, 2, 2, 1), job(2, 5, 1, 3, 0), **groups))
        return len(BoxesModel(problem).model.proto.variables)

    assert variables(2) == variables(50)


# --------------------------------------------------------------------------------- optimality


def packs(boxes: list[Box], capacity: int) -> bool:
    """Whether boxes of fixed times find positions without overlap: tries all."""
    placed: list[tuple[Box, int]] = []

    def apart(box: Box, bottom: int, other: Box, other_bottom: int) -> bool:
        if box.end <= other.begin or other.end <= box.begin:
            return True
        return bottom + box.height <= other_bottom or other_bottom + other.height <= bottom

    def rest(k: int) -> bool:
        if k == len(boxes):
            return True
        for bottom in range(capacity - boxes[k].height + 1):
            if all(apart(boxes[k], bottom, *other) for other in placed):
                placed.append((boxes[k], bottom))
                if rest(k + 1):
                    return True
                placed.pop()
        return False

    return rest(0)


def in_one_piece(instance: Instance, problem: NodeProblem, plan: Plan) -> bool:
    """Whether every unit, and whatever is held already, can be in one piece."""
    for resource in np.nonzero(problem.jobs.request.any(axis=0))[0].tolist():
        axis = Axis.of(problem, resource)
        for node in range(instance.system.nodes):
            boxes = axis.held(problem, node)
            for job_index, position in enumerate(problem.position.tolist()):
                start, nodes = plan[position]
                end = start + int(problem.jobs.expected_s[job_index])
                box = Box(start - problem.now, end - problem.now, int(axis.height[job_index]))
                boxes += [box] * nodes.get(node, 0) if box.height else []
            if not packs(boxes, int(axis.end[node] - axis.first[node])):
                return False
    return True


@settings(max_examples=EXAMPLES)
@given(crowded(first=True), st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_no_plan_with_first_nodes_is_better_than_that_of_the_exhaustive_twin(
    instance: Instance, objective: str
) -> None:
    chosen = possible(instance)
    if chosen:
        best = best_plan(instance, chosen, objective)
        assert best is not None
        problem = problem_of(instance, "thesis-pcp5", objective, chosen)
        plan = problem.schedule(np.arange(len(chosen)))
        assert optimum(BoxesModel(problem, plan)) >= float(best[0]) * (1 - 1e-6)


@settings(max_examples=EXAMPLES)
@given(crowded(), st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_the_best_plan_is_that_of_the_exhaustive_twin(instance: Instance, objective: str) -> None:
    """Of all plans if it is in one piece or the model is lossless; else no worse than in pieces.

    The twin tries plans in which no job could start earlier. Of those in one piece, the best is a
    plan of the model, which may have a better one: where a job could start earlier in pieces.
    """
    chosen = possible(instance)
    if not chosen:
        return
    problem = problem_of(instance, "thesis-pcp5", objective, chosen)
    plan = problem.schedule(np.arange(len(chosen)))
    model = BoxesModel(problem, plan)
    best = best_plan(instance, chosen, objective)
    assert best is not None
    found = optimum(model)
    assert found >= float(best[0]) * (1 - 1e-6)
    if model.lossless:
        assert found == pytest.approx(float(best[0]), rel=1e-6)
    elif not in_one_piece(instance, problem, best[1]):
        best = best_plan(instance, chosen, objective,
                         lambda plan: in_one_piece(instance, problem, plan))  # fmt: skip
    if best is not None:
        assert found <= float(best[0]) * (1 + 1e-6)


def test_a_plan_that_holds_a_node_in_pieces_is_not_among_the_models() -> None:
    problem, plan = in_pieces()
    assert plan.check(problem) == ""
    wheres = [(int(start), {0: 1}) for start in plan.start_s]
    assert not BoxesModel(problem).lossless
    assert not accepts(BoxesModel(problem), fix, *wheres)
    assert accepts(BoxesModel(problem), fix, None, *wheres[1:])


def test_units_of_equal_height_lose_no_plan() -> None:
    equal = BoxesModel(problem_of(queued(job(1, 5, 2, 2, 0), job(2, 5, 1, 2, 1))))
    assert equal.lossless
    assert [axis.end.tolist() for axis in equal.axes] == [[2, 4], [1, 2]]
    assert BoxesModel(problem_of(PAIR)).lossless
    assert not BoxesModel(problem_of(BOTH)).lossless


def test_what_is_held_is_cut_into_boxes_of_constant_height() -> None:
    held = [running(8, 10, [1, 0], 0), running(9, 15, [2, 0], 0)]
    later = [{"start": 112, "duration": 8, "nodes": [0], "capacity": [3, 0]}]
    instance = queued(job(1, 5, 1, 1, 0), job(2, 5, 1, 2, 0), running=held, reservations=later)
    problem = problem_of(instance)
    axis = Axis.of(problem, 0)
    assert sorted(axis.held(problem, 0), key=str) == [Box(0, 10, 2), Box(0, 5, 1), Box(12, 20, 3)]
    assert axis.held(problem, 1) == []
    rows = Axis.of(problem_of(instance, chosen=[0]), 0).held(problem, 0)
    assert rows.count(Box(12, 20, 1)) == 3


# --------------------------------------------------------------------------------------- hints


@pytest.mark.parametrize("busy", [0, 1])
@pytest.mark.parametrize("nodes", [2, 200, 2000])
def test_the_size_of_a_model_counts_what_grows_with_the_number_of_nodes(
    nodes: int, busy: int
) -> None:
    """Numbers in domains and tables, and boxes of what runs."""
    held = [running(900 + node, 9, [1, 0], node) for node in range(busy * nodes)]
    groups = [{"name": "a", "nodes": nodes, "capacity": [4, 2]}]
    problem = problem_of(
        queued(job(1, 5, 2, 2, 2), job(2, 7, 2, 3, 0), running=held, groups=groups)
    )
    proto = BoxesModel(problem).model.proto
    numbers = sum(len(variable.domain) for variable in proto.variables)
    numbers += sum(len(each.element.exprs) for each in proto.constraints)
    size = BoxesModel.size(problem)
    assert size >= len(proto.variables)
    assert size >= numbers / NUMBERS_PER_PART / 2


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(1, 3)), max_size=6))
def test_packed_boxes_do_not_overlap(rows: list[tuple[int, int, int]]) -> None:
    boxes = [Box(begin, begin + length, height) for begin, length, height in rows]
    capacity = max(
        (sum(b.height for b in boxes if b.begin <= t < b.end) for t in range(12)), default=0
    )
    bottoms = pack(boxes, capacity)
    for k, box in enumerate(boxes):
        assert 0 <= bottoms[k] <= capacity - box.height
        for other, bottom in zip(boxes[:k], bottoms, strict=False):
            apart = box.end <= other.begin or other.end <= box.begin
            assert apart or bottoms[k] + box.height <= bottom or bottom + other.height <= bottoms[k]


def test_boxes_that_cannot_be_packed_are_given_up_on() -> None:
    assert len(pack([Box(0, 2, 2), Box(1, 3, 2)], 3)) == 2


def test_wide_nodes_with_many_boxes_are_given_up_on_soon() -> None:
    compared: list[int] = []

    class Height(int):
        def __add__(self, other: int) -> int:
            compared.append(other)
            return int(self) + other

        __radd__ = __add__

    boxes = [Box(k % 9, 10 + k % 7, Height(1 + 997 * k % 4001)) for k in range(300)]
    assert len(pack(boxes, 80_640)) == 300
    assert len(compared) < 300_000


@settings(max_examples=EXAMPLES)
@given(crowded())
def test_the_hint_is_complete_and_sound(instance: Instance) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    problem = problem_of(instance, "thesis-pcp5", "slowdown", chosen)
    plan = problem.schedule(np.arange(len(chosen)))
    model = BoxesModel(problem, plan)
    hinted = sorted(model.model.proto.solution_hint.vars)
    assert hinted == list(range(len(model.model.proto.variables)))
    places = {
        position: (int(start), {n: int(u) for n, u in enumerate(units) if u})
        for position, start, units in zip(chosen, plan.start_s, plan.units, strict=True)
    }
    if in_one_piece(instance, problem, places):
        one = solver()
        one.parameters.fix_variables_to_their_hinted_value = True
        assert one.solve(model.model) == cp_model.OPTIMAL
        assert model.read(one).start_s.tolist() == plan.start_s.tolist()
        assert (model.read(one).units == plan.units).all()


def test_the_hint_of_a_larger_plan_is_sound() -> None:
    problem = problem_of(crowd(), "thesis-pcp5", "slowdown")
    plan = problem.schedule(np.arange(len(problem.jobs)))
    model, one = BoxesModel(problem, plan), solver()
    one.parameters.fix_variables_to_their_hinted_value = True
    assert one.solve(model.model) == cp_model.OPTIMAL
