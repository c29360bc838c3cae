"""What is learned from public logs has the shape of what was published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cma")
pytest.importorskip("statsmodels")

from cpdispatch.heuristics.policies import NO_THRESHOLD
from cpdispatch.jobs import Workload
from cpdispatch.learn.mixed import Mixing, learn
from cpdispatch.learn.regress import Regression, regress
from cpdispatch.learn.tune import Tuning, tune
from cpdispatch.system import System
from cpdispatch.workloads import read
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.lublin import generate
from tests.learn.cases import HERE

Trace = Callable[[str], Path]
pytestmark = pytest.mark.log
KTH, LUBLIN = System.pool(100), System.pool(256)


def kth(trace: Trace) -> Workload:
    return fit(read(trace("KTH-SP2-1996-2.1-cln"), "strong"), KTH)


def test_reordering_halves_the_wait_and_a_threshold_bounds_the_longest(trace: Trace) -> None:
    tuning = Tuning(("fcfs", "spf", "saf", "laf"), (NO_THRESHOLD, 72_000), weeks=10)
    found = tune(kth(trace), KTH, tuning, HERE)
    assert found.picked.primary in ("saf", "spf")
    assert found.summary["test"]["wait_s_mean_relative"] < 0.75
    rows = found.pairs[(found.pairs.half == "test") & (found.pairs.primary == "saf")]
    longest = rows.groupby("threshold_s").wait_s_max_relative.mean()
    assert longest[72_000] < longest[-1]


def test_the_best_mixed_policy_moves_from_week_to_week(trace: Trace) -> None:
    found = learn(kth(trace), KTH, Mixing(evaluations=100, weeks=6), HERE).summary
    sums = found["sum"]
    assert sums["hindsight"] < 0.9 * sums["pure"]
    assert sums["hindsight"] < 0.7 * sums["previous"]
    assert found["weight_moved_mean"] > 0.5


def test_the_published_linear_fit_is_reproduced_with_the_published_shuffle(trace: Trace) -> None:
    log = fit(read(trace("lublin_256")), LUBLIN)
    tests = [fit(generate(1_500, seed), LUBLIN) for seed in (1, 2)]

    def found(published: bool) -> tuple[dict[str, float], dict[str, float], float]:
        # As published, a score counts how often a job came first too: that takes more orders.
        orders = 20_000 if published else 3_000
        regression = Regression(pairs=300, orders=orders, published_shuffle=published)
        linear = regress(log, LUBLIN, tests[:1], regression, HERE).fits["lin"]
        return dict(linear.coefficients), dict(linear.inflation), linear.absolute_error_mean

    coefficients, inflation, error = found(published=True)
    published = {"1": 3.24e-2, "p": 1.15e-7, "q": 2.61e-5, "r": -1.57e-7}
    for term, value in published.items():
        assert coefficients[term] == pytest.approx(value, rel=0.5), term
    assert error == pytest.approx(4.52e-3, rel=0.1)
    assert inflation == pytest.approx({"p": 1.3, "q": 1.3, "r": 1.2}, abs=0.1)
    # Much of the published r, and of the error, comes from the shuffle.
    uniform, _, smaller = found(published=False)
    assert abs(uniform["r"]) < 0.6 * abs(coefficients["r"])
    assert smaller < 0.7 * error


def test_the_learned_linear_policy_is_as_good_as_smallest_area_first(trace: Trace) -> None:
    tests = [fit(generate(1_500, seed), LUBLIN) for seed in range(1, 6)]
    log = fit(generate(10_000, 0), LUBLIN)
    means = regress(log, LUBLIN, tests, Regression(orders=2_000), HERE).means
    relative = means[means["backfill"] == "easy"].set_index("policy").relative
    assert relative["lin (learned)"] < 0.5
    assert relative["lin (learned)"] < 2 * relative["saf"]
    assert np.isfinite(relative).all()
