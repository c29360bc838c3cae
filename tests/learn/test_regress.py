from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpdispatch.errors import InputError, UsageError

pytest.importorskip("statsmodels")

from cpdispatch import dispatch
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.learn import pictures
from cpdispatch.learn.fit import FORMS
from cpdispatch.learn.measure import MEASURES, Meter
from cpdispatch.learn.regress import Regression, regress
from cpdispatch.learn.results import save
from cpdispatch.system import System
from tests.learn.cases import FOUR, HERE, bursts, workload

SMALL = Regression(pairs=12, orders=200, running=3, queued=8)


def test_scores_of_each_pair_add_up_to_one() -> None:
    found = regress(bursts(2, 4), FOUR, [bursts(1, 4, 9)], SMALL, HERE)
    assert len(found.samples) == 12 * 8
    assert found.samples.groupby("pair").score.sum().tolist() == pytest.approx([1] * 12)


def test_jobs_of_a_pair_follow_each_other_in_the_log_and_count_from_its_first() -> None:
    log = workload(np.arange(40) * 10 + 7, 1, 5, np.arange(1, 41))
    regression = Regression(pairs=5, orders=5, running=3, queued=4)
    found = regress(log, FOUR, [log], regression, HERE).samples
    for _, pair in found.groupby("pair"):
        assert np.diff(pair.p).tolist() == [1, 1, 1]
        assert pair.r.tolist() == [30, 40, 50, 60]


def test_short_jobs_are_learned_to_go_first_in_bursts() -> None:
    found = regress(bursts(2, 1), System.pool(1), [bursts(1, 1, 9)], SMALL, HERE)
    assert found.fits["lin"].coefficients["p"] > 0


def test_policies_are_compared_with_and_without_backfilling() -> None:
    test = bursts(1, 4, 9)
    found = regress(bursts(2, 4), FOUR, [test, bursts(1, 4, 8)], SMALL, HERE)
    rows = found.comparison
    assert len(rows) == 2 * 2 * (4 + 2 * len(FORMS))
    assert (rows[rows.policy == "fcfs"].relative == 1).all()
    order = found.fits["lin"].order
    wanted = Meter(test, FOUR).measure(Backfill(order, order, depth=0))
    told = rows.query("workload == 1 and backfill == 'none' and policy == 'lin (learned)'")
    column = MEASURES.index("bounded_slowdown_mean")
    assert told.bounded_slowdown_mean.tolist() == [pytest.approx(wanted[column])]


def test_the_same_seed_finds_the_same_and_another_does_not() -> None:
    def scores(seed: int, published: bool = False) -> list[float]:
        drawn = Regression(4, 50, 3, 8, published, seed)
        return regress(bursts(2, 4), FOUR, [bursts(1, 4)], drawn, HERE).samples.score.tolist()

    assert scores(1) == scores(1)
    assert scores(1) != scores(2)
    assert scores(1) != scores(1, published=True)


def test_jobs_larger_than_the_machine_are_in_no_pair() -> None:
    log = workload(np.arange(12), [1, 9] * 6, 5, [5] * 12)
    found = regress(log, FOUR, [log], Regression(3, 5, 2, 4), HERE)
    assert set(found.samples.q) == {1}


def test_forms_with_more_terms_than_samples_are_left_out() -> None:
    found = regress(bursts(2, 4), FOUR, [bursts(1, 4)], Regression(1, 5, 3, 10), HERE)
    assert list(found.fits) == ["lin", "qdr"]


def test_results_are_saved(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = regress(bursts(2, 4), FOUR, [bursts(1, 4, 9)], SMALL, HERE)
    save(found, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "samples.csv", "coefficients.csv", "comparison.csv", "regress.json", "scores.svg",
        "comparison.svg", "deviations.svg", "maps.svg", "lin.toml", "qdr.toml",
        "cub.toml", "qua.toml",
    }  # fmt: skip
    for form in FORMS:
        made = dispatch.make(str(tmp_path / f"{form}.toml"))
        assert made.primary == found.fits[form].order  # type: ignore[attr-defined]


def test_pictures_of_the_fits_show_what_the_forms_say() -> None:
    pytest.importorskip("matplotlib")
    found = regress(bursts(2, 4), FOUR, [bursts(1, 4, 9)], SMALL, HERE)
    rows = found.samples
    linear = found.fits["lin"].coefficients

    def score(p: float, q: float, r: float) -> float:
        return linear["1"] + linear["p"] * p + linear["q"] * q + linear["r"] * r

    axes = pictures.maps(found).axes[0]
    corners, values = axes.collections[0].get_coordinates(), axes.collections[0].get_array()
    for i, j in ((0, 0), (7, 40), (79, 79)):
        p, q = corners[i, j]
        expected = score(p, q, float(rows.r.median()))
        assert values.reshape(80, 80)[i, j] == pytest.approx(expected)
    off = [score(row.p, row.q, row.r) - row.score for row in rows.itertuples()]
    axes = pictures.deviations(found).axes[0]
    x, y = axes.lines[0].get_data()
    first = [o for o, s in zip(off, rows.score, strict=True) if s < np.quantile(rows.score, 0.05)]
    assert y[0] == pytest.approx(np.median(first))
    assert x[0] == pytest.approx(rows.score[rows.score < np.quantile(rows.score, 0.05)].mean())


def test_a_score_that_is_the_same_everywhere_is_drawn_without_lines() -> None:
    pytest.importorskip("matplotlib")
    found = regress(bursts(2, 4), FOUR, [bursts(1, 4, 9)], SMALL, HERE)
    same = {form: replace(one, coefficients=dict.fromkeys(one.coefficients, 0.0))
            for form, one in found.fits.items()}  # fmt: skip
    assert len(pictures.maps(replace(found, fits=same)).axes) == 2 * len(same)


def test_a_log_with_fewer_jobs_than_a_pair_is_an_error() -> None:
    log = workload([0, 1, 2], 1, 5, [5] * 3)
    with pytest.raises(InputError, match="3 jobs are too few for a pair of 16 running and 32"):
        regress(log, FOUR, [log], Regression(), HERE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": 0}, "--pairs 0: a whole number, 1 or more"),
        ({"orders": 0}, "--orders 0: a whole number, 1 or more"),
        ({"running": -1}, "--running -1: a whole number, 0 or more"),
        ({"queued": 1}, "--queued 1: a whole number, 2 or more"),
        ({"seed": -1}, "--seed -1: a whole number, 0 or more"),
    ],
)
def test_settings_that_mean_nothing_are_errors(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Regression(**settings)


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "statsmodels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(UsageError, match=r"needs statsmodels, .* 'cpdispatch\[learn\]'"):
        regress(bursts(2), FOUR, [bursts(1)], SMALL, HERE)
