from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.instance import Instance
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.pooled_model import PooledModel, PooledProblem
from cpdispatch.models.thesis import VARIANTS, pose_on_pool, select
from tests.models.cases import RESERVED, WATTS, job, queued, running
from tests.strategies import instances

small = instances(max_nodes=3, max_jobs=5, max_running=3)


def pooled_problem(
    instance: Instance, name: str, objective: str, chosen: IntArray | None = None
) -> PooledProblem:
    """The problem of these jobs, those that the variant selects by default."""
    variant = VARIANTS[name]
    jobs = select(instance, variant, variant.m) if chosen is None else chosen
    return pose_on_pool(instance, jobs, variant, objective)


# ------------------------------------------------------------------------ constraint families


def outcome(instance: Instance, fixed: dict[int, int]) -> int:
    """The solver's verdict on the pooled model when some jobs' starts are given, by position."""
    problem = pooled_problem(instance, "thesis-hcp2", "wait", np.arange(len(instance.queue)))
    model = PooledModel(problem, problem.horizon_s - problem.duration_s)
    model.model.clear_hints()  # type: ignore[no-untyped-call]
    for position, start in fixed.items():
        model.model.add(model.timing.starts[position] == start - instance.now)
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


def test_reservations_that_leave_enough_constrain_nothing() -> None:
    assert feasible(queued(job(1, 15, 1, 4, 0), reservations=RESERVED), 100)


def test_reservations_are_not_overlapped_in_the_pool() -> None:
    assert not feasible(queued(job(1, 15, 2, 4, 0), reservations=RESERVED), 100)


def test_reservations_leave_the_time_before_and_after_them() -> None:
    two = queued(job(1, 10, 2, 4, 0), job(2, 10, 2, 4, 0), reservations=RESERVED)
    assert feasible(two, 100, 120)


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


# ------------------------------------------------------------------------------- its objective


def test_the_solver_charges_nothing_before_a_job_is_late() -> None:
    instance = queued(job(1, 50, 2, 4, 0, ewt=300), job(2, 40, 2, 4, 0, ewt=90))
    problem = pooled_problem(instance, "thesis-hcp3", "ewt_excess")
    model, solver = PooledModel(problem, problem.incumbent()), cp_model.CpSolver()
    assert solver.solve(model.model) == cp_model.OPTIMAL
    start_s = model.read(solver)
    assert start_s.max() == 140
    assert solver.objective_value == pytest.approx(problem.weights.sum(start_s))


@given(small, st.sampled_from(sorted(OBJECTIVES)))
def test_a_job_alone_makes_a_plan_worse_just_beyond_its_latest_start(
    instance: Instance, objective: str
) -> None:
    if len(select(instance, VARIANTS["thesis-hcp3"], 100)) == 0:
        return
    problem = pooled_problem(instance, "thesis-hcp3", objective)
    start_s = problem.incumbent()
    earliest_s, latest_s = problem.window(start_s)
    for k in range(len(start_s)):
        alone_s = earliest_s.copy()
        alone_s[k] = latest_s[k]
        assert problem.weights.sum(alone_s) <= problem.weights.sum(start_s)
        alone_s[k] = latest_s[k] + 1
        assert problem.weights.sum(alone_s) > problem.weights.sum(start_s)
