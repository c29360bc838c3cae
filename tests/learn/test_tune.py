from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpdispatch import dispatch
from cpdispatch.analyze import look
from cpdispatch.analyze.difference import quotients
from cpdispatch.errors import UsageError
from cpdispatch.heuristics.policies import NO_THRESHOLD
from cpdispatch.learn import pictures
from cpdispatch.learn.measure import Meter
from cpdispatch.learn.results import save
from cpdispatch.learn.tune import (
    BASELINE,
    SEVEN,
    TWELVE,
    Candidate,
    Tuning,
    best_of,
    deciles,
    tune,
)  # fmt: skip
from cpdispatch.learn.weeks import halves, made_up
from cpdispatch.system import NodeGroup, System
from tests.learn.cases import FOUR, HERE, ONE, WEEK_S, bursts

SMALL = Tuning(("fcfs", "spf", "lpf"), (NO_THRESHOLD, 10_000), weeks=3)


def test_seven_orders_make_49_pairs_and_twelve_144() -> None:
    for orders, pairs in ((SEVEN, 49), (TWELVE, 144)):
        candidates = Tuning(orders, (NO_THRESHOLD,)).candidates
        assert len(candidates) == len(set(candidates)) == pairs
        assert candidates[0] == BASELINE


def test_the_baseline_is_tried_even_when_nobody_asks_for_it() -> None:
    assert Tuning(("spf",), (3_600,)).candidates == [BASELINE, Candidate("spf", "spf", 3_600)]


def test_the_planted_optimum_is_picked() -> None:
    # Bursts on one processor: shortest first has the least mean wait of all orders.
    found = tune(bursts(4), ONE, SMALL, HERE)
    assert (found.picked.primary, found.picked.threshold_s) == ("spf", NO_THRESHOLD)
    test = found.summary["test"]
    assert test["wait_s_mean_relative"] < 0.8
    assert (
        test["wait_s_mean_relative"]
        == found.pairs.query(
            "half == 'test' and primary == 'spf' and threshold_s == -1"
        ).wait_s_mean_relative.min()
    )


def test_a_pick_keeps_to_the_longest_wait_that_is_allowed() -> None:
    mean = np.array([[10.0, 100, 5], [2, 300, 1], [4, 150, 3], [6, 90, 1]])
    assert [best_of(replace(SMALL, max_wait=limit), mean) for limit in (None, 2, 1.5, 1)] == [
        1, 2, 2, 3,
    ]  # fmt: skip
    assert best_of(replace(SMALL, objective="slowdown"), mean) == 1
    assert best_of(replace(SMALL, objective="slowdown", max_wait=2.5), mean) == 3


def test_the_table_has_every_pair_with_every_threshold_on_both_halves() -> None:
    found = tune(bursts(4), ONE, SMALL, HERE)
    assert len(found.pairs) == 2 * 9 * 2
    assert found.pairs.groupby("half").size().to_dict() == {"train": 18, "test": 18}
    base = found.pairs.query("primary == 'fcfs' and backfill == 'fcfs' and threshold_s == -1")
    assert (base.filter(like="relative") == 1).all(axis=None)


def test_the_verdict_says_what_the_picked_orders_bring_on_test_weeks() -> None:
    found = tune(bursts(4), ONE, SMALL, HERE)
    weeks = made_up(halves(bursts(4))["test"], 3, 1)
    waits = [
        [Meter(week, ONE).measure(of.dispatcher)[0] for week in weeks]
        for of in (found.picked, BASELINE)
    ]
    share = np.sum(waits[0]) / np.sum(waits[1])
    better = sum(mine < easy for mine, easy in zip(*waits, strict=True))
    assert (found.better, found.summary["better_weeks"]) == (better, better)
    assert found.verdict == (
        f"On test weeks, EASY-{found.picked} has {share:.2f} times the mean wait of "
        f"EASY-FCFS-FCFS, and less of it in {better} of 3."
    )


def test_the_verdict_says_that_the_limit_of_the_longest_wait_is_broken_on_test_weeks() -> None:
    found = tune(bursts(4), ONE, replace(SMALL, max_wait=1.1), HERE)
    for longest, broken in ((1.902, True), (1.1, False)):
        told = replace(
            found,
            picked=Candidate("spf", "spf", NO_THRESHOLD),
            pairs=found.pairs.assign(wait_s_max_relative=longest),
        ).verdict
        assert told.startswith("--max-wait 1.1 does not hold on test weeks: the longest") == broken
        assert ("1.902 times that of EASY-FCFS-FCFS. On test weeks" in told) == broken


@pytest.mark.parametrize(("share", "better"), [(1.03, 3), (0.9, 1), (1.0, 0)])
def test_what_brings_nothing_on_test_weeks_is_not_recommended(share: float, better: int) -> None:
    found = tune(bursts(4), ONE, SMALL, HERE)
    pairs = found.pairs.assign(wait_s_mean_relative=share)
    told = replace(found, pairs=pairs, better=better).verdict
    assert told.endswith(
        f"of it in {better} of 3. What is best on the training weeks brings nothing here: keep "
        "EASY-FCFS-FCFS."
    )
    assert (
        replace(found, picked=BASELINE).verdict == "EASY-FCFS-FCFS is best on the training weeks."
    )


def test_each_half_is_told_of_weeks_of_its_own() -> None:
    log = bursts(4)
    found = tune(log, ONE, SMALL, HERE)
    for number, half in enumerate(("train", "test")):
        weeks = made_up(halves(log)[half], 3, number)
        waits = [Meter(week, ONE).measure(BASELINE.dispatcher)[0] for week in weeks]
        told = found.pairs.query(
            "half == @half and primary == 'fcfs' and backfill == 'fcfs' and threshold_s == -1"
        )
        assert told.wait_s_mean.tolist() == pytest.approx([np.mean(waits)])


def test_the_same_seed_finds_the_same() -> None:
    first, second = (tune(bursts(4, 4), FOUR, SMALL, HERE) for _ in range(2))
    assert first.pairs.equals(second.pairs)
    assert first.deciles.equals(second.deciles)
    other = tune(bursts(4, 4), FOUR, Tuning(SMALL.policies, SMALL.thresholds_s, 3, seed=1), HERE)
    assert not first.pairs.equals(other.pairs)


def test_deciles_are_values_that_occur() -> None:
    values = np.arange(10, 0, -1, dtype=np.float64)
    assert deciles(values).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert deciles(np.array([1.0, np.inf])).tolist() == [1.0] * 5 + [np.inf] * 4


def test_a_week_without_waits_has_a_relative_measure_all_the_same() -> None:
    found = quotients(np.array([2.0, 0.0, 3.0]), np.array([4.0, 0.0, 0.0]), nothing=1.0)
    assert found.tolist() == [0.5, 1.0, np.inf]


def test_deciles_tell_of_the_picked_orders_at_every_threshold() -> None:
    found = tune(bursts(4), ONE, SMALL, HERE)
    assert len(found.deciles) == 2 * 2 * 3 * 9
    for _, group in found.deciles.groupby(["half", "threshold_s", "measure"]):
        assert group.relative.is_monotonic_increasing


def test_a_pool_and_the_same_machine_as_nodes_measure_the_same() -> None:
    week = bursts(1, 4)
    nodes = System("nodes", ("core",), (NodeGroup("n", 4, (1,)),))
    for candidate in (BASELINE, Candidate("lexp", "saf", 3_600)):
        measured = [Meter(week, system).measure(candidate.dispatcher) for system in (FOUR, nodes)]
        assert measured[0].tolist() == measured[1].tolist()


def test_results_are_saved(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = tune(bursts(4), ONE, SMALL, HERE)
    save(found, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "pairs.csv", "deciles.csv", "tune.json", "policy.toml", "pairs.svg", "thresholds.svg"
    }  # fmt: skip
    assert json.loads((tmp_path / "tune.json").read_text())["primary"] == "spf"
    made = dispatch.make(str(tmp_path / "policy.toml"))
    assert made.primary == found.picked.dispatcher.primary  # type: ignore[attr-defined]
    assert (tmp_path / "pairs.svg").read_bytes().startswith(b"<?xml")


def test_the_baseline_may_be_best_without_being_among_the_orders(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    # Longest first is worse than submission order.
    for thresholds_s in ((10_000,), (NO_THRESHOLD,)):
        found = tune(bursts(4), ONE, Tuning(("lpf",), thresholds_s, weeks=2), HERE)
        assert found.picked == BASELINE
        assert set(found.deciles.threshold_s) == {-1}
        save(found, tmp_path)


def test_only_weeks_that_were_made_are_counted() -> None:
    log = bursts(16)
    in_fourth = (log.table.submit_s // WEEK_S) % 4 == 0
    seldom = log.take(np.flatnonzero(in_fourth))
    found = tune(seldom, ONE, replace(SMALL, weeks=20), HERE)
    assert found.weeks == len(made_up(halves(seldom)["test"], 20, 1)) < 20
    assert f" of {found.weeks}." in found.verdict


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weeks": 0}, "--weeks 0: a whole number, 1 or more"),
        ({"policies": ()}, "--policies: one or more"),
        ({"policies": ("spff",)}, "unknown policy 'spff'; did you mean spf"),
        ({"thresholds_s": ()}, "--thresholds: one or more"),
        ({"thresholds_s": (0,)}, "--thresholds 0: a whole number, 1 or more"),
        ({"objective": "size"}, "unknown objective 'size'"),
        ({"max_wait": 0.9}, "--max-wait 0.9: 1 or more"),
        ({"max_wait": float("nan")}, "--max-wait nan: 1 or more"),
        ({"seed": -1}, "--seed -1: a whole number, 0 or more"),
    ],
)
def test_settings_that_mean_nothing_are_errors(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Tuning(**settings)


def test_the_title_above_both_heat_maps_is_within_the_figure() -> None:
    rc_context = pytest.importorskip("matplotlib").rc_context
    tuning = Tuning(("fcfs", "spf", "saf"), (200_000,), 2, objective="slowdown")
    found = replace(tune(bursts(4), ONE, tuning, HERE), log="KTH-SP2-1996-2.1-cln")
    with rc_context(look._LOOK):
        figure = pictures.pairs(found)
        figure.draw_without_rendering()
    title = figure._suptitle.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= figure.bbox.width
    assert title.y0 > max(axes.get_window_extent().y1 for axes in figure.axes)
