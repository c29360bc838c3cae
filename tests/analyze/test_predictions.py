from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.analyze import predictions
from cpdispatch.analyze.predictions import RATIOS, Predictions
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.simulator.cases import workload


def said(rows: list[tuple[int, int]]) -> Predictions:
    """Jobs of (prediction, runtime)."""
    expected_s, runtime_s = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return Predictions(expected_s, runtime_s)


# Errors 0, 50, -100, 25; ratios 1, 0.5, 2, 0.75.
FOUR = said([(100, 100), (100, 50), (100, 200), (100, 75)])


def test_the_measures_are_those_worked_out_by_hand() -> None:
    assert predictions.accuracy(FOUR) == {
        "jobs": 4,
        "absolute_error_s_mean": 175 / 4,
        "error_s_mean": -25 / 4,
        "under_share": 1 / 4,
        "over_share": 2 / 4,
        "within_share": 2 / 4,
        "log_ratio_absolute_median": pytest.approx((math.log(2) - math.log(0.75)) / 2),
    }


@pytest.mark.parametrize(("runtime_s", "right"), [(74, 0), (75, 1), (125, 1), (126, 0)])
def test_a_prediction_is_right_from_three_to_five_quarters(runtime_s: int, right: int) -> None:
    assert predictions.accuracy(said([(100, runtime_s)]))["within_share"] == right


def test_classes_are_by_runtime_and_an_empty_one_has_no_figures() -> None:
    found = predictions.accuracy_by_class(said([(9, 3599), (7200, 3600), (9, 18_000)]))
    assert [found[name]["jobs"] for name in ("all", "short", "medium", "long")] == [3, 1, 2, 0]
    assert found["medium"]["error_s_mean"] == (3600 - 17_991) / 2
    assert all(math.isnan(value) for key, value in found["long"].items() if key != "jobs")


def test_jobs_that_never_started_or_were_killed_are_not_counted() -> None:
    jobs = pd.DataFrame(
        {
            "start": [10, -1, 10, 20],
            "end": [40, -1, 90, 20],
            "expected_s": [20, 7, 80, 1],
            "killed": [False, False, True, False],
        }
    )
    found = Predictions.of(jobs)
    assert found.error_s.tolist() == [-10, 0]  # a runtime of 0 counts as the second predicted
    assert found.killed == 1


def test_jobs_that_ended_with_a_node_are_not_counted() -> None:
    jobs = pd.DataFrame(
        {"start": [10, 10], "end": [40, 90], "expected_s": 20, "killed": False,
         "failed": [False, True]}
    )  # fmt: skip
    found = Predictions.of(jobs)
    assert found.runtime_s.tolist() == [30]
    assert found.killed == 1


def test_predictions_of_a_run_are_those_made_at_submission() -> None:
    rows = [(0, 4, 100, 7), (1, 2, 50, 80), (2, 1, 30, 30), (3, 9, 5, 5)]
    jobs = simulate(workload(rows), System.pool(4), kill_at_limit=True).jobs
    found = Predictions.of(jobs)
    assert found.expected_s.tolist() == [100, 30]
    assert found.runtime_s.tolist() == [7, 30]
    assert found.killed == 1


def test_the_distribution_jumps_where_predictions_are_exact() -> None:
    share = predictions.share_up_to(said([(7, 7), (1000, 1), (1, 10**6), (3, 3)]))
    assert RATIOS[300] == 1
    assert share[[0, 299, 300, 600]].tolist() == [0.25, 0.25, 0.75, 0.75]
    assert np.isnan(predictions.share_up_to(said([]))).all()


SECONDS = st.integers(1, 2**31 - 1)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40))
def test_the_measures_are_those_of_a_plain_twin(rows: list[tuple[int, int]]) -> None:
    jobs, found = len(rows), predictions.accuracy(said(rows))
    ratios = [p / e for e, p in rows]
    twin = {
        "jobs": jobs,
        "absolute_error_s_mean": sum(abs(e - p) for e, p in rows) / jobs,
        "error_s_mean": sum(e - p for e, p in rows) / jobs,
        "under_share": sum(e < p for e, p in rows) / jobs,
        "over_share": sum(e > p for e, p in rows) / jobs,
        "within_share": sum(0.75 <= ratio <= 1.25 for ratio in ratios) / jobs,
        "log_ratio_absolute_median": statistics.median(abs(math.log(r)) for r in ratios),
    }
    assert found == pytest.approx(twin)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40))
def test_classes_share_out_the_jobs_and_the_distribution_grows(
    rows: list[tuple[int, int]],
) -> None:
    everybody, *classes = predictions.accuracy_by_class(said(rows)).values()
    assert sum(c["jobs"] for c in classes) == everybody["jobs"] == len(rows)
    summed = sum(c["jobs"] * c["error_s_mean"] for c in classes if c["jobs"])
    assert summed == pytest.approx(len(rows) * everybody["error_s_mean"], abs=1e-3)
    share = predictions.share_up_to(said(rows))
    at = np.searchsorted(RATIOS, 1.0)
    assert (np.diff(share) >= 0).all()
    assert share[at] == pytest.approx(1 - everybody["under_share"])
