from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.analyze import metrics
from cpdispatch.analyze.metrics import ScheduleColumns
from cpdispatch.system import LIMIT


def schedule(rows: list[tuple[int, int, int, int]], capacity: int = 10) -> ScheduleColumns:
    """Jobs of (submission, start, end, processors)."""
    submit, start, end, units = (np.array(c, dtype=np.int64) for c in zip(*rows, strict=True))
    return ScheduleColumns(
        submit,
        start,
        end,
        units,
        np.ones((len(rows), 1), dtype=np.int64),
        np.zeros(len(rows), dtype=np.bool_),
        np.array([capacity], dtype=np.int64),
    )


# Waits 0, 90 and 30 s; runtimes 100, 5 and 0 s; 2, 4 and 1 processors.
THREE = schedule([(0, 0, 100, 2), (10, 100, 105, 4), (20, 50, 50, 1)])


def test_wait_and_runtime_are_differences_of_times() -> None:
    assert metrics.wait_s(THREE).tolist() == [0, 90, 30]
    assert metrics.runtime_s(THREE).tolist() == [100, 5, 0]


def test_slowdown_counts_a_runtime_of_zero_as_a_second() -> None:
    assert metrics.slowdown(THREE).tolist() == [1, 19, 31]


def test_bounded_slowdown_is_bounded_at_ten_seconds_and_at_one() -> None:
    assert metrics.bounded_slowdown(THREE).tolist() == [1, 9.5, 3]


def test_per_processor_bounded_slowdown_divides_by_the_processors() -> None:
    assert metrics.per_processor_bounded_slowdown(THREE).tolist() == [1, 95 / 40, 3]


def test_utilisation_is_the_share_of_capacity_held_over_the_makespan() -> None:
    assert metrics.makespan_s(THREE) == 105
    assert metrics.utilisation(THREE).tolist() == [pytest.approx((200 + 20) / 1050)]


def test_each_type_that_the_system_has_by_itself_has_a_utilisation() -> None:
    two = replace(
        THREE, request=np.array([[1, 2, 1], [1, 0, 1], [1, 0, 1]]),
        capacity=np.array([10, 8, LIMIT]), resources=("core", "gpu", "core@fat"),
    )  # fmt: skip
    found = metrics.summary(two, np.empty(0))
    shares = {name: share for name, share in found.items() if name.startswith("utilisation")}
    assert shares == {
        "utilisation": pytest.approx(220 / 1050), "utilisation_gpu": pytest.approx(400 / 840)
    }  # fmt: skip
    some = two.take(np.array([False, True, True]))
    assert metrics.summary(some, np.empty(0))["utilisation_gpu"] == 0


def test_utilisation_is_a_share_where_the_capacity_has_no_end() -> None:
    long = replace(THREE, end_s=THREE.end_s + 100_000, capacity=np.array([LIMIT]))
    assert metrics.utilisation(long)[0] == pytest.approx(0, abs=1e-6)


def test_throughput_is_jobs_an_hour() -> None:
    assert metrics.throughput_per_h(THREE) == pytest.approx(3 * 3600 / 105)


def test_the_queue_is_counted_to_the_second() -> None:
    # One job waits from 10 s on, two from 20 s, one from 50 s to 100 s.
    assert metrics.queue_length_mean(THREE) == pytest.approx((10 * 1 + 30 * 2 + 50 * 1) / 100)
    assert metrics.queue_length_max(THREE) == 2


times = st.tuples(st.integers(0, 9), st.integers(0, 9), st.just(0), st.just(1))


@given(st.lists(times, min_size=1, max_size=9))
def test_mean_and_maximum_of_the_queue_are_those_of_its_length(waits: list[Any]) -> None:
    jobs = schedule([(submit, submit + wait, end, units) for submit, wait, end, units in waits])
    length = [sum(begin <= t < begin + wait for begin, wait, *_ in waits) for t in range(20)]
    span_s = jobs.start_s.max() - jobs.submit_s.min()
    assert metrics.queue_length_mean(jobs) == sum(length) / max(span_s, 1)
    assert metrics.queue_length_max(jobs) == max(length)


def test_classes_are_cut_at_one_and_five_hours() -> None:
    h = 3600
    jobs = schedule([(0, 0, h - 1, 1), (0, 0, h, 1), (0, 0, 5 * h, 1), (0, 0, 5 * h + 1, 1)])
    counted = {name: row["jobs"] for name, row in metrics.by_class(jobs).items()}
    assert counted == {"short": 1, "medium": 2, "long": 1}


def test_figures_by_class_are_means_over_the_jobs_that_started() -> None:
    h = 3600
    jobs = schedule(
        [(0, 30, 40, 1), (0, 90, 100, 1), (5, 5 + 6 * h, 5 + 12 * h, 1), (0, -1, -1, 1)]
    )
    found = metrics.by_class(jobs)
    assert found["short"] == {
        "jobs": 2, "wait_s_mean": 60, "wait_s_max": 90, "bounded_slowdown_mean": 7,
    }  # fmt: skip
    assert found["long"] == {
        "jobs": 1, "wait_s_mean": 6 * h, "wait_s_max": 6 * h, "bounded_slowdown_mean": 2,
    }  # fmt: skip
    assert found["medium"]["jobs"] == 0
    assert math.isnan(found["medium"]["wait_s_mean"])
    assert math.isnan(found["medium"]["wait_s_max"])


@pytest.mark.parametrize("capacity", [96, 100, 80_640])
def test_widths_are_shares_of_the_system_by_what_a_job_holds_most_of(capacity: int) -> None:
    counts = [1, capacity // 32, capacity // 32 + 1, capacity // 8, capacity // 8 + 1, capacity]
    jobs = schedule([(0, k, k + 9, units) for k, units in enumerate(counts)], capacity)
    found = metrics.by_width(jobs)
    assert {name: row["jobs"] for name, row in found.items()} == dict.fromkeys(found, 2)
    assert [row["wait_s_max"] for row in found.values()] == [1, 3, 5]
    # A tenth of the processors, but half of the memory; never started jobs are left out.
    both = ScheduleColumns(
        np.zeros(2, dtype=np.int64), np.array([7, -1]), np.array([9, -1]),
        np.array([1, 1]), np.array([[10, 32], [10, 32]]), np.zeros(2, dtype=np.bool_),
        np.array([100, 64]),
    )  # fmt: skip
    assert metrics.share(both).tolist() == [0.5, 0.5]
    assert {name: row["jobs"] for name, row in metrics.by_width(both).items()} == {
        "narrow": 0, "middle": 0, "wide": 1,
    }  # fmt: skip


@pytest.mark.parametrize("part", [1, 2, 1 << 16])
def test_figures_by_user_are_means_over_that_users_jobs(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_PART", part)
    rows = metrics.by_user(THREE, np.array([0, 2, 0]), ["ann", "nobody", "bob"])
    assert rows == {
        "ann": {"jobs": 2, "wait_s_mean": 15.0, "wait_s_max": 30, "bounded_slowdown_mean": 2.0},
        "bob": {"jobs": 1, "wait_s_mean": 90.0, "wait_s_max": 90, "bounded_slowdown_mean": 9.5},
    }


def test_figures_by_user_leave_out_unknown_users_and_jobs_that_never_started() -> None:
    jobs = schedule([(0, 0, 100, 2), (10, -1, -1, 4), (20, 50, 50, 1), (20, -1, -1, 1)])
    rows = metrics.by_user(jobs, np.array([0, 0, -1, 1]), ["ann", "bob"])
    assert rows == {
        "ann": {"jobs": 1, "wait_s_mean": 0.0, "wait_s_max": 0, "bounded_slowdown_mean": 1.0}
    }


@pytest.mark.parametrize("part", [1, 2, 1 << 16])
def test_restarts_and_lost_work_are_counted_by_user_and_class_where_jobs_may_be_restarted(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_PART", part)
    jobs = schedule([(0, 30, 40, 2), (0, 90, 100, 3), (5, 50, 9000, 1), (0, 7, 9, 5)])
    lost = replace(jobs, lost_s=np.array([20, 30, 0, 40]))
    rows = metrics.by_user(lost, np.array([1, 1, 0, -1]), ["ann", "bob"])
    assert (rows["ann"]["restarts"], rows["ann"]["wasted_processor_s"]) == (0, 0)
    assert (rows["bob"]["restarts"], rows["bob"]["wasted_processor_s"]) == (2, 130)
    classes = metrics.by_class(lost)
    assert {name: row["restarts"] for name, row in classes.items()} == {
        "short": 3, "medium": 0, "long": 0,
    }  # fmt: skip
    assert classes["short"]["wasted_processor_s"] == 330
    assert "restarts" not in metrics.by_class(jobs)["short"]


def test_the_summary_leaves_out_jobs_that_never_started_and_counts_them() -> None:
    left_out = schedule([(0, 0, 100, 2), (10, -1, -1, 4)])
    figures = metrics.summary(left_out, np.array([1.0, 3.0]))
    assert figures["jobs"] == 1
    assert figures["jobs_never_started"] == 1
    assert figures["wait_s_mean"] == 0
    assert figures["decision_ms_mean"] == 2


def test_the_summary_of_nothing_started_has_no_made_up_figures() -> None:
    figures = metrics.summary(schedule([(0, -1, -1, 1)]), np.array([]))
    assert figures == {"jobs": 0, "jobs_never_started": 1, "decisions": 0}


def test_a_job_belongs_to_the_week_of_its_submission() -> None:
    week_s = metrics.WEEK_S
    rows = [(50, 60, 70, 1), (49 + week_s, week_s + 49, week_s + 149, 1)]
    rows.append((50 + week_s, 140 + week_s, 150 + week_s, 1))
    found = metrics.by_week(schedule([*rows, (50 + 9 * week_s, -1, -1, 1)]))
    assert found == {
        0: {"jobs": 2, "wait_s_mean": 5, "wait_s_max": 10, "bounded_slowdown_mean": 1.5},
        1: {"jobs": 1, "wait_s_mean": 90, "wait_s_max": 90, "bounded_slowdown_mean": 10},
    }


def test_weeks_far_apart_take_no_memory() -> None:
    far_s = 2**52
    found = metrics.by_week(schedule([(0, 0, 5, 1), (far_s, far_s, far_s + 5, 1)]))
    assert list(found) == [0, far_s // metrics.WEEK_S]
