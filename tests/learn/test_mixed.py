from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from cpdispatch.errors import UsageError

pytest.importorskip("cma")

from cpdispatch import dispatch
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import FEATURES, find
from cpdispatch.learn.measure import Meter
from cpdispatch.learn.mixed import (
    PURE,
    Mixing,
    corner,
    feature_scale,
    learn,
    minimise,
    order_of,
)  # fmt: skip
from cpdispatch.learn.results import save
from cpdispatch.learn.weeks import consecutive, halves
from tests.learn.cases import FOUR, HERE, ONE, bursts

SHORT = Mixing(evaluations=30)


@pytest.mark.parametrize("name", PURE)
def test_a_corner_is_the_pure_order(name: str) -> None:
    week = bursts(1, 4)
    scale = np.array([2.0, 300.0, 7.0, 11.0, 0.3, 900.0])
    mixed, pure = order_of(corner(name), scale), find(name)
    meter = Meter(week, FOUR)
    found = [meter.starts(Backfill(order, order)).tolist() for order in (mixed, pure)]
    assert found[0] == found[1]


def test_the_search_finds_a_planted_optimum() -> None:
    planted = np.array([0.3, -0.2, -0.25, 0.05, 0.1, 0.1])

    def worth(weights: np.ndarray) -> float:
        return float(np.abs(weights / np.abs(weights).sum() - planted).sum())

    best, value = minimise(worth, [corner(name) for name in PURE], 3_000, seed=1)
    assert value == pytest.approx(worth(best), abs=1e-9)
    assert value < 0.02
    assert np.abs(best).sum() == pytest.approx(1)


def test_the_search_takes_as_many_evaluations_as_it_is_given() -> None:
    calls = 0

    def worth(weights: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return float(weights @ weights)

    minimise(worth, [corner(name) for name in PURE], 29, seed=0)
    assert calls == 29


def test_the_search_leaves_the_global_generator_alone() -> None:
    np.random.seed(5)
    wanted = np.random.random()
    np.random.seed(5)
    minimise(lambda weights: float(weights[0]), [corner("saf")], 20, seed=0)
    assert np.random.random() == wanted


def test_features_are_measured_in_their_standard_deviations() -> None:
    weeks = consecutive(bursts(2, 4))
    scale = feature_scale(weeks, FOUR)
    units = np.concatenate([week.table.units for week in weeks])
    area = np.concatenate([week.table.units * week.runtime_s for week in weeks])
    assert scale[0] == pytest.approx(units.std())
    assert scale[5] == pytest.approx(area.std())
    assert (feature_scale(consecutive(bursts(2)), ONE)[0]) == 1.0  # all ask for one processor


def test_hindsight_is_as_good_as_every_pure_order_and_alike_weeks_leave_nothing_to_learn() -> None:
    found = learn(bursts(4, 4, alike=True), FOUR, SHORT, HERE)
    weeks = found.weeks
    assert (weeks.hindsight <= weeks.pure).all()
    assert (weeks.pure == weeks[list(PURE)].min(axis=1)).all()
    # The search of each week has a seed of its own.
    assert weeks.previous.to_numpy() == pytest.approx(weeks.hindsight.to_numpy(), rel=0.2)
    assert np.abs(found.weights[list(FEATURES)]).sum(axis=1).tolist() == pytest.approx([1] * 3)


def test_weeks_are_told_with_the_weights_that_the_table_has() -> None:
    log = bursts(4, 4)
    found = learn(log, FOUR, SHORT, HERE)
    parts = halves(log)
    assert found.scale.tolist() == feature_scale(consecutive(parts["train"]), FOUR).tolist()
    best = found.weights[list(FEATURES)].to_numpy()
    for number, week in enumerate(consecutive(parts["test"])):
        meter = Meter(week, FOUR)
        chosen = {"previous": best[number], "hindsight": best[number + 1], "trained": found.trained}
        for mode, weights in chosen.items():
            order = order_of(weights, found.scale)
            wanted = meter.measure(Backfill(order, order))[2]
            assert found.weeks[mode][number] == pytest.approx(wanted), mode
    assert (found.weeks.hindsight <= found.weeks.pure).all()
    last = Meter(consecutive(parts["train"])[-1], FOUR)
    worth = [
        last.measure(Backfill(order, order))[2]
        for order in [order_of(best[0], found.scale), *map(find, PURE)]
    ]
    assert worth[0] == min(worth)


def test_weights_are_of_the_features_in_their_units() -> None:
    scale = np.array([2.0, 300.0, 7.0, 11.0, 0.3, 900.0])
    found = order_of(np.array([1.0, -3.0, 0.0, 0.0, 0.0, 4.0]), scale)
    assert found.weights == pytest.approx((1 / 16, -3 / 2400, 0, 0, 0, 4 / 7200))


def test_the_planted_optimum_is_found() -> None:
    # Bursts on one processor: shortest first has the least mean wait of all orders.
    found = learn(bursts(4), ONE, Mixing(evaluations=20, objective="wait"), HERE)
    assert found.weeks.trained.to_numpy() == pytest.approx(found.weeks.spf.to_numpy())
    assert found.summary["sum"]["trained"] < 0.8 * found.summary["sum"]["fcfs"]


def test_the_same_seed_finds_the_same_and_another_does_not() -> None:
    first, second, other = (
        learn(bursts(3, 4), FOUR, Mixing(evaluations=40, seed=seed), HERE) for seed in (1, 1, 2)
    )
    assert first.weights.equals(second.weights)
    assert first.weeks.equals(second.weeks)
    assert first.trained.tolist() == second.trained.tolist()
    assert not first.weights.equals(other.weights)


def test_weeks_are_those_beside_the_midpoint() -> None:
    found = learn(bursts(6), ONE, Mixing(evaluations=13, weeks=1), HERE)
    assert len(found.weeks) == 1
    assert found.weights.week.tolist() == [0, 1]


def test_the_policy_file_gives_the_learned_schedule(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = learn(bursts(4, 4), FOUR, SHORT, HERE)
    save(found, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "weeks.csv", "weights.csv", "mixed.json", "policy.toml", "weeks.svg", "weights.svg"
    }  # fmt: skip
    made = dispatch.make(str(tmp_path / "policy.toml"))
    assert made.primary == made.secondary == found.policy.primary  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluations": 12}, "--evaluations 12: a whole number, 13 or more"),
        ({"weeks": 0}, "--weeks 0: a whole number, 1 or more"),
        ({"threshold_s": 0}, "--threshold 0: a whole number, 1 or more"),
        ({"seed": -1}, "--seed -1: a whole number, 0 or more"),
        ({"backfill": "saff"}, "unknown policy 'saff'; did you mean saf"),
        ({"objective": "size"}, "unknown objective 'size'"),
    ],
)
def test_settings_that_mean_nothing_are_errors(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Mixing(**settings)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(UsageError, match=r"needs cma, .* pip install 'cpdispatch\[learn\]'"):
        learn(bursts(3), ONE, SHORT, HERE)
