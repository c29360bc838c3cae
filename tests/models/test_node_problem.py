from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch import solution, verify
from cpdispatch.decision import NO_START, Certificate, Decision, Reason
from cpdispatch.instance import Instance
from cpdispatch.models.node_problem import NodePlan, NodeProblem, room
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.thesis import placements
from cpdispatch.models.timing import Timing
from tests.effort import examples
from tests.models.cases import (
    RESERVED,
    WATTS,
    crowd,
    crowded,
    job,
    plan_of,
    problem_of,
    queued,
    running,
    solver,
)
from tests.models.exhaustive import possible, second_by_second
from tests.strategies import Timetable, instances

small = instances(max_nodes=3, max_jobs=5, max_running=3)


# ---------------------------------------------------------------------------------- its data


@given(small)
def test_the_profile_is_what_every_node_has_free_at_every_second(instance: Instance) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    problem, table = problem_of(instance, chosen=chosen), Timetable(instance, 80)
    at = np.searchsorted(problem.since_s, instance.now + np.arange(80), side="right") - 1
    assert (problem.free[at] == table.free).all()
    if instance.power is not None:
        assert (problem.watts_free[at] == np.maximum(table.power, 0)).all()


def test_room_is_the_least_of_what_each_resource_allows_and_of_the_units() -> None:
    instance = queued(job(1, 5, 3, 2, 0), job(2, 5, 1, 1, 0), job(3, 5, 2, 1, 1), down=[1])
    jobs = instance.queue
    assert room(instance.system.capacity, jobs).tolist() == [[2, 2], [1, 1], [1, 1]]


def test_a_job_that_fits_no_empty_node_makes_no_problem() -> None:
    with pytest.raises(ValueError, match=r"jobs \[1\] do not fit"):
        problem_of(queued(job(1, 5, 3, 4, 0)))


def test_problems_have_the_same_key_only_when_they_are_the_same() -> None:
    shapes = job(1, 5, 2, 4, 0), job(2, 7, 1, 4, 0)
    first, again = problem_of(queued(*shapes)), problem_of(queued(*shapes))
    other = problem_of(queued(*shapes, running=[running(9, 10, [1, 0], 0)]))
    assert first.key() == again.key()
    assert first.key() != other.key()


# ----------------------------------------------------------------------------- its schedules


@given(small, st.randoms(use_true_random=False), st.sampled_from(sorted(OBJECTIVES)))
def test_schedules_are_plans_and_no_start_is_beyond_its_latest(
    instance: Instance, random: Any, objective: str
) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    problem = problem_of(instance, "thesis-pcp3", objective, chosen)
    order = list(range(len(chosen)))
    random.shuffle(order)
    plan = problem.schedule(np.array(order))
    assert plan.check(problem) == ""
    assert (problem.earliest_s <= plan.start_s).all()
    assert (plan.start_s <= problem.window(plan.start_s)[1]).all()


@given(small)
def test_the_first_job_of_an_order_starts_as_early_as_if_it_were_alone(instance: Instance) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    problem = problem_of(instance, chosen=chosen)
    for first in range(len(chosen)):
        order = [first, *(k for k in range(len(chosen)) if k != first)]
        assert problem.schedule(np.array(order)).start_s[first] == problem.earliest_s[first]
        alone = second_by_second(instance, [chosen[first]], "wait")
        assert alone is not None
        submit = int(instance.queue.submit_s[chosen[first]])
        assert alone == problem.earliest_s[first] - submit


def test_units_go_to_the_fullest_nodes_that_can_hold_them() -> None:
    instance = queued(job(1, 5, 2, 1, 0), running=[running(9, 20, [2, 0], 1)])
    assert problem_of(instance).schedule(np.array([0])).units.tolist() == [[0, 2]]


# -------------------------------------------------------------------------------- its plans

TWO = queued(job(1, 5, 2, 2, 0), job(2, 7, 1, 4, 0))


def check(instance: Instance, *wheres: tuple[int, dict[int, int]]) -> str:
    problem = problem_of(instance)
    return plan_of(problem, *wheres).check(problem)


def test_a_plan_that_keeps_to_everything_is_sound() -> None:
    assert check(TWO, (100, {0: 1, 1: 1}), (105, {1: 1})) == ""


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ((99, {0: 2}), (100, {1: 1}), "past"),
        ((100, {0: 2}), (106, {1: 1}), "horizon"),
        ((100, {0: 1}), (100, {1: 1}), "units"),
        ((100, {0: 3, 1: -1}), (100, {1: 1}), "units"),
        ((100, {0: 1, 1: 1}), (104, {1: 1}), "node holds more"),
    ],
)
def test_a_plan_that_is_none_is_found_out(first: Any, second: Any, wrong: str) -> None:
    assert wrong in check(TWO, first, second)


def test_plans_respect_running_jobs_reservations_and_power() -> None:
    held = queued(job(1, 5, 1, 4, 0), running=[running(9, 10, [1, 0], 0)])
    assert "node" in check(held, (104, {0: 1}))
    assert check(held, (105, {0: 1})) == ""
    reserved = queued(job(1, 5, 1, 4, 0), reservations=RESERVED)
    assert "node" in check(reserved, (106, {0: 1}))
    assert check(reserved, (105, {0: 1})) == ""
    capped = queued(job(1, 5, 1, 2, 1), job(2, 5, 1, 1, 0), power=WATTS)
    assert "power" in check(capped, (100, {0: 1}), (104, {1: 1}))
    assert check(capped, (100, {0: 1}), (105, {1: 1})) == ""


def test_a_plan_of_another_shape_is_none() -> None:
    assert "1,)" in NodePlan(np.array([100]), np.array([[1, 1]])).check(problem_of(TWO))


@given(crowded(), st.data())
def test_plans_are_sound_exactly_when_the_independent_checker_says_so(
    instance: Instance, data: st.DataObject
) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    problem = problem_of(instance, chosen=chosen)
    plan = problem.schedule(np.arange(len(chosen)))
    which = data.draw(st.integers(0, len(chosen) - 1))
    last = problem.horizon_s - int(problem.jobs.expected_s[which])
    plan.start_s[which] = data.draw(st.integers(instance.now, last))
    start_s = np.full(len(instance.queue), NO_START)
    start_s[problem.position] = plan.start_s
    decision = Decision(
        start_s,
        np.full(len(start_s), Reason.WAITS, dtype=np.int8),
        placements(problem, plan, np.ones(len(chosen), dtype=np.bool_)),
        Certificate("plan"),
    )
    wrong = verify.solution(instance, solution.from_decision(instance, decision))
    assert (plan.check(problem) == "") == (wrong == [])


# ---------------------------------------------------------------------- what all models begin with


def timed(instance: Instance, start_s: int | None = None) -> tuple[int, NodeProblem]:
    """The solver's verdict on starts alone, the first of which may be given."""
    problem, model = problem_of(instance), cp_model.CpModel()
    timing = Timing(model, problem, None)
    timing.within(problem.watts_free, problem.watts)
    timing.minimise()
    if start_s is not None:
        model.add(timing.starts[0] == start_s - problem.now)
    return int(solver().solve(model)), problem


ONE = queued(job(1, 5, 1, 4, 0), running=[running(9, 10, [1, 0], 0), running(8, 12, [1, 0], 1)])


def test_a_start_that_nothing_is_asked_of_is_allowed() -> None:
    assert timed(ONE)[0] == cp_model.OPTIMAL


@pytest.mark.parametrize("start_s", [99, 104, 108])
def test_a_start_before_the_earliest_or_beyond_the_horizon_is_refused(start_s: int) -> None:
    assert timed(ONE, start_s)[0] == cp_model.INFEASIBLE


@pytest.mark.parametrize("start_s", [105, 107])
def test_a_start_from_the_earliest_to_the_horizon_is_allowed(start_s: int) -> None:
    assert timed(ONE, start_s)[0] == cp_model.OPTIMAL


CAPPED = job(1, 5, 1, 2, 1), job(2, 5, 1, 1, 0)


@pytest.mark.parametrize(
    ("apart_s", "cap", "allowed"), [(0, 7, True), (4, 6, False), (5, 6, True)],
    ids=["never reached", "exceeded", "one by one"],
)  # fmt: skip
def test_the_power_cap_limits_what_jobs_draw_together(
    apart_s: int, cap: int, allowed: bool
) -> None:
    problem, model = problem_of(queued(*CAPPED, power=WATTS | {"cap": cap})), cp_model.CpModel()
    timing = Timing(model, problem, None)
    timing.within(problem.watts_free, problem.watts)
    model.add(timing.starts[0] == 0)
    model.add(timing.starts[1] == apart_s)
    assert (solver().solve(model) == cp_model.OPTIMAL) == allowed


@settings(max_examples=examples(30))
@given(small, st.sampled_from(sorted(OBJECTIVES)))
def test_what_is_minimised_is_the_weighted_sum(instance: Instance, objective: str) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    problem, model = problem_of(instance, "thesis-pcp3", objective, chosen), cp_model.CpModel()
    timing, one = Timing(model, problem, None), solver()
    timing.minimise()
    assert one.solve(model) == cp_model.OPTIMAL
    assert round(one.objective_value) == problem.weights.sum(timing.read(one))
    assert problem.weights.sum(timing.read(one)) == problem.weights.sum(problem.earliest_s)


def test_no_start_is_allowed_that_makes_any_plan_worse_than_the_known_one() -> None:
    problem = problem_of(crowd(), "thesis-pcp3", "slowdown")
    plan = problem.schedule(np.arange(len(problem.jobs)))
    model = cp_model.CpModel()
    timing = Timing(model, problem, plan.start_s)
    latest = problem.window(plan.start_s)[1] - problem.now
    bounds = [list(model.proto.variables[start.index].domain)[-1] for start in timing.starts]
    assert bounds == latest.tolist()
