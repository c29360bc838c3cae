from __future__ import annotations

import argparse
from typing import Any

import pytest

from tests.scripts import script

pytest.importorskip("scipy", reason="its intervals need scipy, which the extra learn brings")
untuned = script("benchmarks/untuned.py")
BEST, EASY, REAL, REQUESTED, RULES = (
    getattr(untuned, name) for name in ("BEST", "EASY", "REAL", "REQUESTED", "RULES")
)


def results(slowdowns: dict[str, list[float]], waits: dict[str, list[int]]) -> Any:
    """Replays of one log's cuts of ten jobs."""
    return {
        untuned.Case("KTH", 10, cut, name): untuned.Figures(
            10, slowdown, waits[name][cut], 1.0, 100, 0.2
        )
        for name, of in slowdowns.items()
        for cut, slowdown in enumerate(of)
    }


FOUND = results(
    {EASY: [10, 20, 9], RULES[0]: [5, 40, 1], BEST: [2.5, 10, 1]},
    {EASY: [1000, 2000, 599], RULES[0]: [1000, 2000, 9999], BEST: [1300, 2800, 9999]},
)


def test_cuts_are_relative_to_easy_on_the_same_cut_where_anybody_waits() -> None:
    found = {(row[0], row[1], row[2]): row[3:] for row in untuned.rows(FOUND)}
    assert len(found) == 6
    rule, best = found["KTH", "10", RULES[0]], found["all", "all", BEST]
    assert (rule[:2], rule[4:7]) == (["2", "1.000"], ["1.00", "1.00", "0"])
    # 2.5 / 10 and 10 / 20: the geometric mean of 0.25 and 0.5; 1.3 itself is not above the bound.
    assert best[:2] == ["2", "0.354"]
    assert best[5:] == ["1.40", "1", "2.000"]


def test_best_is_measured_against_each_rule() -> None:
    found = {(log, rule): figures for log, rule, *figures in untuned.best_rows(FOUND)}
    assert set(found) == {("KTH", RULES[0]), ("all", RULES[0])}
    assert found["KTH", RULES[0]][:2] == ["2", "0.354"]


def test_real_runtimes_are_measured_against_requested_times() -> None:
    known = results(
        {EASY: [10, 20, 9], REQUESTED: [8, 10, 9], REAL: [2, 10, 1]},
        {EASY: [1000, 2000, 599], REQUESTED: [1301, 2800, 599], REAL: [1300, 2700, 599]},
    )
    found = {(log, size): figures for log, size, *figures in untuned.known_rows(known)}
    assert len(found) == 4
    # 8 / 10 and 10 / 20, then 2 / 10 and 10 / 20, then 2 / 8 and 10 / 10.
    cuts, plain, _, _, plain_above, real, _, _, above, ratio, _, _, higher = found["KTH", "all"]
    assert (cuts, plain, plain_above) == ("2", "0.632", "2")
    assert (real, above, ratio, higher) == ("0.316", "1", "0.500", "0")
    assert not list(untuned.rows(known))


def test_sizes_are_jobs_or_all() -> None:
    assert [untuned.size_of(text) for text in ("1024", "all")] == [1024, 0]
    for text in ("0", "-1", "1k", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="whole logs"):
            untuned.size_of(text)
