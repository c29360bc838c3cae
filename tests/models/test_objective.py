from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import NO_START
from cpdispatch.errors import UsageError
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable, job_block
from cpdispatch.models import objective
from cpdispatch.models.objective import OBJECTIVES
from tests.strategies import instances

names = st.sampled_from(sorted(OBJECTIVES))


def table(*rows: tuple[int, int, int, int]) -> JobTable:
    """Jobs of submission, duration, cores, expected wait."""
    submit, duration, cores, ewt = zip(*rows, strict=True)
    return JobTable(
        job_block(
            id=range(len(rows)), submit_s=submit, units=1, requested_s=duration,
            request=np.array(cores)[:, None], ewt_s=ewt,
        )
    )  # fmt: skip


JOBS = table((0, 4, 2, 10), (5, 100, 1, 40))
STARTS = np.array([8, 45])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ewt_excess", 0),
        ("ewt_weighted", 4 * 8 + 40),
        ("wait", 48),
        ("slowdown", 4.4),
        ("bounded_slowdown", 2.6),
        ("pp_slowdown", 2.4),
        ("priority_wait", 48),
        ("priority_slowdown", 2.4),
    ],
)
def test_each_objective_has_the_value_of_its_formula(name: str, value: float) -> None:
    assert objective.of(name, JOBS).value(STARTS) == value


@given(instances(max_jobs=6), names, st.data())
def test_the_value_is_the_exact_sum_rounded_once(
    instance: Instance, name: str, data: st.DataObject
) -> None:
    jobs = len(instance.queue)
    later = st.integers(instance.now, instance.now + 10**6) | st.just(NO_START)
    start_s = np.array(data.draw(st.lists(later, min_size=jobs, max_size=jobs)), dtype=np.int64)
    starts = {k: start for k, start in enumerate(start_s.tolist()) if start != NO_START}
    exact = verify.objective_value(instance, name, starts)
    assert objective.of(name, instance.queue).value(start_s) == float(exact)


@given(instances(max_jobs=6), st.sampled_from(["priority_wait", "priority_slowdown"]), st.data())
def test_the_sites_priority_is_a_weight_of_1_at_least(
    instance: Instance, name: str, data: st.DataObject
) -> None:
    jobs = len(instance.queue)
    several = st.lists(st.sampled_from([0, 1, 2, 7, 2**32 - 1]), min_size=jobs, max_size=jobs)
    block = instance.queue.block.copy()
    block[Column.PRIORITY] = priority = np.array(data.draw(several), dtype=np.int64)
    problem = replace(instance, queue=JobTable(block, instance.queue.labels))
    start_s = instance.now + np.arange(jobs) * 3
    exact = verify.objective_value(problem, name, dict(enumerate(start_s.tolist())))
    assert objective.of(name, problem.queue).value(start_s) == float(exact)
    wait_s = (start_s - problem.queue.submit_s).tolist()
    under = problem.queue.expected_s.tolist() if name == "priority_slowdown" else [1] * jobs
    weights = [max(w, 1) for w in priority.tolist()]
    plain = sum(
        (Fraction(w * s, d) for w, s, d in zip(weights, wait_s, under, strict=True)), Fraction(0)
    )
    assert exact == plain


def test_the_value_is_exact_where_a_sum_of_floats_is_not() -> None:
    jobs = table(*((0, 10 + k, 1, 1) for k in range(900)))
    starts = np.arange(900) * 7 + 1
    exact = sum(Fraction(start, 10 + k) + 1 for k, start in enumerate(starts.tolist()))
    assert objective.of("slowdown", jobs).value(starts) == float(exact)


def test_jobs_without_a_start_cost_nothing() -> None:
    assert objective.of("slowdown", JOBS).value(np.array([8, NO_START])) == 3


def test_the_largest_expected_wait_is_that_of_the_whole_queue() -> None:
    cost = objective.of("ewt_weighted", JOBS).take(np.array([0]))
    assert cost.value(np.array([8])) == 4 * 8


@given(instances(max_jobs=6), names, st.integers(1, 10**9), st.data())
def test_the_weighted_sum_is_the_objective_up_to_a_millionth(
    instance: Instance, name: str, horizon: int, data: st.DataObject
) -> None:
    jobs = len(instance.queue)
    later = st.integers(instance.now, instance.now + min(horizon, 10**5))
    start_s = np.array(data.draw(st.lists(later, min_size=jobs, max_size=jobs)), dtype=np.int64)
    cost = objective.of(name, instance.queue)
    weights = cost.weights(instance.now + horizon)
    scaled = int((weights.per_s * np.maximum(start_s - cost.free_until_s, 0)).sum())
    value, bound = cost.value(start_s), cost.bound(scaled, weights)
    assert bound <= value
    assert value - bound <= 2e-6 * max(1.0, value)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**7), st.integers(1, 10**4),
                       st.integers(1, 10**6)), min_size=1, max_size=30),
    names,
    st.integers(1, 10**10),
)  # fmt: skip
def test_the_largest_weighted_sum_stays_far_below_what_a_solver_can_hold(
    rows: list[tuple[int, int, int, int]], name: str, horizon: int
) -> None:
    jobs = table(*rows)
    cost = objective.of(name, jobs)
    latest = 10**6 + horizon
    weights = cost.weights(latest)
    largest = sum(
        weight * max(latest - free, 0)
        for weight, free in zip(weights.per_s.tolist(), cost.free_until_s.tolist(), strict=True)
    )
    assert 0 <= largest <= 2**53
    assert weights.per_s.min() >= 0


def test_the_highest_priorities_over_years_stay_below_what_a_solver_can_hold() -> None:
    block = table(*((0, 86_400, 1, 1),) * 1000).block.copy()
    block[Column.PRIORITY] = 2**32 - 1 - np.arange(1000)
    cost = objective.of("priority_wait", JobTable(block, {}))
    start_s = np.arange(1000) * 86_400
    weights = cost.weights(int(start_s[-1]))
    assert weights.scale < 1
    assert weights.per_s.min() > 0
    assert weights.sum(np.full(1000, start_s[-1])) <= 2**53
    value, bound = cost.value(start_s), cost.bound(weights.sum(start_s), weights)
    assert value * (1 - 1e-3) <= bound <= value


@pytest.mark.parametrize("memory", [2**44, 2**48])
def test_any_amount_of_the_first_resource_type_has_a_slowdown_per_processor(memory: int) -> None:
    jobs = table((0, 2**20, memory, 1), (0, 2**48, memory, 1), (0, 20, 2, 1))
    cost, start_s = objective.of("pp_slowdown", jobs), np.array([9, 10**6, 60])
    assert (cost.denominator > 0).all()
    assert cost.value(start_s) == 4
    weights = cost.weights(10**9)
    assert cost.bound(weights.sum(start_s), weights) <= 4


@given(instances(max_jobs=6), names)
def test_a_job_costs_no_more_than_the_floor_up_to_its_last_free_start(
    instance: Instance, name: str
) -> None:
    cost = objective.of(name, instance.queue)
    jobs = len(instance.queue)
    assert cost.value(cost.free_until_s) == cost.floor * jobs
    if jobs:
        assert cost.value(cost.free_until_s + 1) > cost.floor * jobs


def test_an_unknown_objective_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean slowdown"):
        objective.of("slowdwn", JOBS)


def test_an_empty_table_has_the_value_0_and_no_weights() -> None:
    cost = objective.of("ewt_weighted", JOBS.take(np.array([], dtype=np.int64)))
    assert cost.value(np.array([], dtype=np.int64)) == 0
    assert len(cost.weights(100).per_s) == 0
