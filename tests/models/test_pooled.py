from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.allocate import free_over_time
from cpdispatch.instance import Instance
from cpdispatch.models import pooled
from cpdispatch.models.objective import Weights
from cpdispatch.models.pooled import Pool
from tests.models.pool_twin import free_by_second, horizon, left_shifted
from tests.strategies import instances, read

FILE: dict[str, Any] = {
    "format": "cpdispatch-instance/1", "time": 100, "resources": ["core", "gpu"],
    "groups": [{"name": "a", "nodes": 2, "capacity": [4, 1]}],
    "running": [
        {"id": 1, "start": 90, "duration": 15, "units": 2, "unit": [1, 0],
         "nodes": {"0": 1, "1": 1}},
        {"id": 2, "start": 90, "duration": 5, "units": 1, "unit": [2, 1], "nodes": {"1": 1}},
    ],
}  # fmt: skip


def free_capacity(instance: Instance, end_s: IntArray | None = None) -> tuple[IntArray, IntArray]:
    ends = instance.running.end_s if end_s is None else end_s
    return pooled.free_capacity(instance, free_over_time(instance, 0, ends))


def pool_of(instance: Instance) -> Pool:
    """All queued jobs that the pool can take at all."""
    since_s, free = free_capacity(instance)
    demand = pooled.demand(instance, instance.queue)
    fits = (demand <= free[-1]).all(axis=1)
    return Pool(since_s, free, demand[fits], instance.queue.expected_s[fits])


def possible(instance: Instance) -> list[int]:
    demand = pooled.demand(instance, instance.queue)
    return (demand <= pooled.capacity(instance)).all(axis=1).nonzero()[0].tolist()


def levels(instance: Instance, seconds: int) -> np.ndarray[Any, Any]:
    """The profile at each second."""
    since_s, free = free_capacity(instance)
    at = np.searchsorted(since_s, instance.now + np.arange(seconds), side="right") - 1
    return free[at]


@given(instances(max_jobs=1))
def test_the_profile_is_what_is_free_at_every_second(instance: Instance) -> None:
    assert (levels(instance, 80) == free_by_second(instance, 80)).all()


@given(instances(max_jobs=1))
def test_the_last_segment_has_the_whole_capacity(instance: Instance) -> None:
    assert (free_capacity(instance)[1][-1] == pooled.capacity(instance)).all()


def test_running_jobs_hold_their_part_of_the_pool_until_their_expected_end() -> None:
    since_s, free = free_capacity(read(FILE))
    assert since_s.tolist() == [100, 101, 105]
    assert free.tolist() == [[4, 1], [6, 2], [8, 2]]


def test_a_job_taken_as_ended_holds_nothing() -> None:
    since_s, free = free_capacity(read(FILE), np.array([105, 100]))
    assert since_s.tolist() == [100, 105]
    assert free.tolist() == [[6, 2], [8, 2]]


def test_a_node_that_is_down_is_out_of_the_pool_with_what_runs_on_it() -> None:
    _, free = free_capacity(read(FILE | {"down": [1]}))
    assert free.tolist() == [[3, 1], [3, 1], [4, 1]]


def test_a_reservation_takes_its_nodes_capacity_for_its_time() -> None:
    reservation = {"start": 110, "duration": 5, "nodes": [0], "capacity": [3, 1]}
    assert levels(read(FILE | {"reservations": [reservation]}), 16)[[9, 10, 14, 15]].tolist() == [
        [8, 2], [5, 1], [5, 1], [8, 2]
    ]  # fmt: skip


def test_a_reservation_never_takes_more_than_its_node_has_left() -> None:
    reservation = {"start": 100, "duration": 3, "nodes": [0], "capacity": [4, 1]}
    _, free = free_capacity(read(FILE | {"reservations": [reservation]}))
    assert free[0].tolist() == [1, 0]


def test_the_power_cap_is_one_more_resource() -> None:
    _, free = free_capacity(read(FILE | {"power": {"cap": 9, "unit": [1, 2]}}))
    assert free[:, -1].tolist() == [3, 7, 9]


@given(instances(max_jobs=5, max_nodes=3), st.randoms(use_true_random=False))
def test_a_list_schedule_takes_the_earliest_startable_job_of_the_first_order(
    instance: Instance, random: Any
) -> None:
    pool = pool_of(instance)
    jobs = possible(instance)
    order = list(range(len(jobs)))
    random.shuffle(order)
    left, done = order.copy(), []
    while left:
        starts = {k: left_shifted(instance, [jobs[i] for i in [*done, k]])[jobs[k]] for k in left}
        done.append(min(left, key=lambda k: starts[k]))
        left.remove(done[-1])
    expected = left_shifted(instance, [jobs[k] for k in done])
    found = pool.schedule(np.array(order, dtype=np.int64))
    assert {jobs[k]: start for k, start in enumerate(found.tolist())} == expected


@given(instances(max_jobs=5, max_nodes=3))
def test_list_schedules_hold_and_earlier_ones_than_the_earliest_do_not(
    instance: Instance,
) -> None:
    pool = pool_of(instance)
    jobs = len(pool.duration_s)
    start_s = pool.schedule(np.arange(jobs))
    assert pool.holds(start_s)
    assert (start_s >= pool.earliest()).all()
    for k in range(jobs):
        alone = left_shifted(instance, [possible(instance)[k]])
        assert list(alone.values()) == [pool.earliest()[k]]


@given(instances(max_jobs=4, max_nodes=3), st.data())
def test_a_plan_holds_when_the_pool_is_enough_at_every_second(
    instance: Instance, data: st.DataObject
) -> None:
    pool, jobs = pool_of(instance), possible(instance)
    offsets = data.draw(st.lists(st.integers(0, 30), min_size=len(jobs), max_size=len(jobs)))
    left = free_by_second(instance, horizon(instance))
    for k, t in enumerate(offsets):
        left[t : t + pool.duration_s[k]] -= pool.demand[k]
    assert pool.holds(instance.now + np.array(offsets, dtype=np.int64)) == (left >= 0).all()


def test_no_plan_holds_that_starts_in_the_past() -> None:
    job = {"id": 7, "submit": 0, "duration": 5, "units": 1, "unit": [1, 0]}
    pool = pool_of(read(FILE | {"queue": [job]}))
    assert pool.holds(np.array([100]))
    assert not pool.holds(np.array([99]))


def test_resources_of_which_there_is_always_enough_are_left_out() -> None:
    job = {"id": 7, "submit": 0, "duration": 5, "units": 1, "unit": [5, 1]}
    pool = pool_of(read(FILE | {"queue": [job]}))
    assert pool.free.shape[1] == 2
    assert pool.where_short().free[:, 0].tolist() == [4, 6, 8]
    assert pool.where_short().demand.tolist() == [[5]]


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_an_exhaustion_cut_short_keeps_the_plan_that_it_was_given_or_a_better_one(
    steps: int,
) -> None:
    queue = [
        {"id": 7 + k, "submit": 0, "duration": d, "units": 1, "unit": [8, 0]}
        for k, d in enumerate((9, 5, 2))
    ]
    pool = pool_of(read(FILE | {"queue": queue}))
    given_s = pool.schedule(np.arange(3))
    ones = np.ones(3, dtype=np.int64)
    weights = Weights(ones, 1, ones)
    found, proven = pool.improve(given_s, weights, steps)
    assert pool.holds(found)
    assert found.sum() <= given_s.sum()
    assert not proven
    assert pool.improve(given_s, weights, 1000)[0].tolist() == [112, 107, 105]
