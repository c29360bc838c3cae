from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import pytest

from cpdispatch.analyze import compare, draws
from cpdispatch.analyze.difference import difference

NONE = {
    "jobs": 0, "wait_s_mean": math.nan, "wait_s_max": math.nan, "bounded_slowdown_mean": math.nan,
}  # fmt: skip


def row(
    dispatcher: str, draw: int, slowdown: float, *, seed: int | None = None,
    long_s: float = 600.0, longest_s: float = 9000.0, ann_s: float = 60.0,
    weeks: dict[int, tuple[float, float]] | None = None,
) -> draws.Row:  # fmt: skip
    about = {
        "dispatcher": dispatcher, "predictor": "walltime", "workload": "KTH",
        "system": {"name": "100"}, "notes": {}, "seconds": 1.0,
    }  # fmt: skip
    figures = {
        "jobs": 20, "bounded_slowdown_mean": slowdown, "wait_s_mean": 100 * slowdown,
        "wait_s_max": longest_s,
    }  # fmt: skip
    long = {
        "jobs": 20, "wait_s_mean": long_s, "wait_s_max": longest_s, "bounded_slowdown_mean": 2.0,
    }  # fmt: skip
    return {
        **compare.row(about, figures),
        "kind": compare.kind_of(about),
        "seed": draw if seed is None else seed,
        "draw": draw,
        "submissions": f"draw {draw}",
        "classes": {"short": NONE, "medium": NONE, "long": long},
        "widths": {"narrow": {**long, "wait_s_mean": 600.0}, "middle": NONE, "wide": NONE},
        "waits_of_users": {"ann": (20, ann_s, 2 * ann_s)},
        "restarts_of_users": {"ann": (20, 0.5)},
        "weeks": weeks or {},
    }


def of_draws(dispatcher: str, slowdowns: Sequence[float], **each: Sequence[float]) -> draws.Row:
    return draws.merged([
        row(dispatcher, draw, slowdown, **{key: of[draw] for key, of in each.items()})  # type: ignore[arg-type]
        for draw, slowdown in enumerate(slowdowns)
    ])  # fmt: skip


def test_merged_runs_have_the_mean_and_the_spread_of_each_figure() -> None:
    found = of_draws("easy", [1, 2, 6], long_s=[10, 20, 60])
    assert (found["draws"], found["bounded_slowdown_mean"], found["jobs"]) == (3, 3, 20)
    assert found["figures"]["bounded_slowdown_mean"] == {
        "mean": 3, "spread": stdev([1, 2, 6]), "min": 1, "max": 6,
    }  # fmt: skip
    assert found["figures"]["classes.long.wait_s_mean"]["mean"] == 30
    assert found["figures"]["jobs"]["spread"] == 0
    assert not {"seed", "draw", "classes.short.wait_s_mean"} & set(found["figures"])


def test_what_is_restarted_of_a_user_is_over_the_jobs_of_all_draws() -> None:
    of = [{"ann": (30, 0.5), "bob": (100, 0.0)}, {"ann": (10, 0.9), "bob": (300, 0.0)}]
    rows = [row("a", k, 1) | {"restarts_of_users": each} for k, each in enumerate(of)]
    (found,) = compare.related([draws.merged(rows)])
    assert found["restarted_often"] == {
        "user": "ann", "jobs": 20, "restarts": pytest.approx(12), "share": pytest.approx(0.6),
        "share_of_all": pytest.approx(12 / 220),
    }  # fmt: skip
    assert "restart_cost_s" not in draws.merged(rows)["figures"]


def test_runs_are_lists_of_draws_or_of_seeds_with_none_twice() -> None:
    of = [row("a", draw, 1) for draw in range(3)]
    again = row("a", 0, 1)
    assert draws.layers(of) == [of]
    assert draws.layers([again, *of]) == [[again], of]
    assert draws.layers([*of, again]) == [of, [again]]
    assert draws.layers([*of[:2], *of]) == [of[:2], of]
    seeds = [row("a", 0, 1, seed=seed) for seed in range(2)]
    assert draws.layers(seeds) == [seeds]
    assert draws.layers([seeds[0], *seeds]) == [seeds[:1], seeds]
    assert draws.merged(seeds)["seeds"] == 2


def test_pairs_are_the_runs_of_the_same_submissions() -> None:
    easy = of_draws("easy", [1, 2, 3, 4])
    other = draws.merged([row("a", draw, 10.0 * draw) for draw in (3, 1, 7)])
    found = draws.pairs(other, easy)
    assert [(a["draw"], b["draw"]) for a, b in found] == [(3, 3), (1, 1)]
    run, first = draws.in_common(other, easy)
    assert (run["bounded_slowdown_mean"], first["bounded_slowdown_mean"]) == (20, 3)
    assert draws.pairs(row("a", 9, 1), easy) == []
    apart = compare.related([easy, {**draws.merged([row("a", 8, 1), row("a", 9, 1)])}])
    assert compare.legend(apart)[1] == (
        "a has 2 draws, easy 4: they have none in common, so each figure is of other draws."
    )


def test_all_users_are_told_as_those_that_lose_most() -> None:
    easy = of_draws("easy", [1, 2, 3, 4, 5, 6, 7])
    other = draws.merged([row("a", draw, 1, ann_s=90 + 9 * draw) for draw in (7, 3, 1, 2, 4, 5, 6)])
    (worst,) = compare.related([easy, other])[1]["users"]["each"]
    (user,) = (of for of in compare.users_beside(other, easy) if of["user"] == worst["user"])
    assert "wait_s_mean_times_low" in user
    assert user == {key: worst[key] for key in user}


def test_waits_are_measured_in_the_draws_that_both_have() -> None:
    easy = of_draws("easy", [1, 2, 3, 4])
    other = draws.merged([row("a", draw, 10.0 * draw) for draw in (3, 1, 7)])
    _, run = compare.related([easy, other])
    assert run["paired"] == {"own": 3, "first": 4, "common": 2}
    assert (run["wait_s_mean_first"], run["wait_s_mean_times"]) == (300, 2000 / 300)
    assert run["wait_s_mean"] == pytest.approx(100 * mean([30, 10, 70]))
    assert compare.legend([_, run])[1] == (
        "a has 3 draws, easy 4: they are compared in the 2 that both have."
    )
    _, one = compare.related([easy, row("a", 3, 30.0)])
    assert compare.legend([_, one])[1].startswith("a has 1 draw, easy 4: ")


EASY = [10.0, 11, 9, 10, 12, 10]


def test_quotients_have_the_interval_of_the_pairs_and_brackets_within_noise() -> None:
    a = of_draws("a", [5, 6, 4, 5, 6, 5], longest_s=[8000, 9900, 9100, 8800, 9500, 9200],
                 long_s=[900] * 6, ann_s=[50, 70, 61, 59, 60, 63])  # fmt: skip
    first, run = compare.related([of_draws("easy", EASY), a])
    expected = difference([8000, 9900, 9100, 8800, 9500, 9200], [9000] * 6)
    assert (run["wait_s_max_times_low"], run["wait_s_max_times_high"]) == (
        expected.low,
        expected.high,
    )
    assert run["difference"] == difference([5, 6, 4, 5, 6, 5], EASY)
    assert run["classes"]["long"]["wait_s_mean_times_low"] == 1.5
    assert run["users"]["wait_s_mean_times_low"] == 50 / 60
    assert run["figures"]["users.wait_s_mean"]["max"] == 70
    (ann,) = run["users"]["each"]
    assert ann["wait_s_max"] == pytest.approx(2 * ann["wait_s_mean"])
    assert ann["wait_s_max_times_low"] == 50 / 60
    assert run["widths"]["narrow"]["wait_s_max_times_low"] == expected.low
    assert run["figures"]["widths.narrow.wait_s_max"]["max"] == 9900
    (table,) = compare.tables([first, run], 100)
    cells = list(table.columns[-1].cells)
    texts = dict(zip(map(str, table.columns[0].cells), map(str, cells), strict=True))
    assert texts["longest wait"] == "(x1.01)"
    assert texts["  users that lose most"] == "(x1.01)"
    assert texts["  long jobs (> 5 h)"] == "x1.50"
    assert str(table.columns[0].header) == "mean ± st. deviation\nof 6 draws"
    assert "(x2.00): within noise" in compare.legend([first, run])[1]


def test_who_pays_is_said_only_where_it_is_more_than_noise() -> None:
    noisy = [1000, 90_000, 1000, 1000, 1000, 1000]
    a = of_draws("a", [5] * 6, longest_s=noisy, long_s=[900, 880, 920, 900, 910, 890])
    rows = compare.related([of_draws("easy", EASY), a])
    assert rows[1]["wait_s_max_times"] > compare.GROWTH
    assert [warning["text"] for warning in compare.warnings(rows)] == [
        "a: long jobs wait 1.5 times as long as under easy (15 min instead of 10 min; x1.47 to "
        "x1.53)."
    ]
    assert compare.verdict(rows).endswith("but others pay: long jobs.")


def test_a_quotient_by_draws_without_waits_has_no_upper_end() -> None:
    easy = of_draws("easy", EASY, long_s=[0, 0, 0, 0, 0, 600])
    a = of_draws("a", [5] * 6, long_s=[900] * 6)
    assert said(easy, a) == [
        "a: long jobs wait 9.0 times as long as under easy (15 min instead of 100 s; x1.50 or "
        "more)."
    ]


def said(*rows: draws.Row) -> list[str]:
    return [warning["text"] for warning in compare.warnings(compare.related(rows))]


def test_a_winner_within_noise_is_said_to_be_that() -> None:
    rows = compare.related([of_draws("easy", EASY), of_draws("a", [9, 12, 8, 11, 11, 10])])
    assert compare.verdict(rows) == (
        "a has the lowest mean bounded slowdown, 1.6% below easy's, which is within noise."
    )
    rows = compare.related([of_draws("easy", EASY), of_draws("a", [11, 10, 10, 10, 12, 11])])
    assert compare.verdict(rows).endswith("a's, the next, is 3.2% higher, which is within noise.")
    late = of_draws("a", [9, 12, 8, 11, 11, 10], long_s=[900] * 6)
    assert compare.verdict(compare.related([of_draws("easy", EASY), late])).endswith(
        "below easy's, which is within noise; others pay: long jobs."
    )
    (told,) = compare.differences(rows)
    assert told["text"].startswith("a: mean bounded slowdown 1.03 of easy's (")
    assert told["text"].endswith(" in 6 draws): within noise.")


def test_a_winner_is_who_does_best_in_the_draws_that_both_have() -> None:
    hard = [100, 100, 100, 100]
    easy, other = of_draws("easy", [*EASY, *hard]), of_draws("a", [1.2 * of for of in EASY])
    rows = compare.related([easy, other])
    assert rows[1]["bounded_slowdown_mean"] < rows[0]["bounded_slowdown_mean"]
    assert compare.verdict(rows) == (
        "easy has the lowest mean bounded slowdown; a's, the next, is 20.0% higher."
    )
    (told,) = compare.differences(rows)
    assert told["text"].startswith("a: mean bounded slowdown 1.20 of easy's (")
    third = of_draws("b", [0.9 * of for of in [*EASY, *hard]])
    assert compare.verdict(compare.related([easy, other, third])) == (
        "b has the lowest mean bounded slowdown, 10.0% below easy's."
    )
    tests = {"tests": 5, "tests_killed": 1, "test_s": 120, "wasted_share": 0.01}
    tested = draws.merged([
        row("easy:test=120", draw, 1.2 * of) | tests for draw, of in enumerate(EASY)
    ])  # fmt: skip
    (told,) = compare.test_runs(compare.related([easy, tested]))
    assert told["bounded_slowdown_mean_without"] == pytest.approx(mean(EASY))
    assert told["bounded_slowdown_mean"] == pytest.approx(1.2 * mean(EASY))
    assert "the mean bounded slowdown rises from" in told["text"]


def test_the_same_in_all_draws_is_the_same() -> None:
    rows = compare.related([of_draws("easy", EASY), of_draws("a", EASY)])
    (told,) = compare.differences(rows)
    assert told["text"] == "a: mean bounded slowdown the same as easy's in 6 draws."
    assert compare.advice(rows) == []


def weekly(*means: float, jobs: float = 10) -> dict[int, tuple[float, float]]:
    return {week: (jobs + week, mean) for week, mean in enumerate(means)}


def test_over_weeks_a_mean_counts_as_often_as_the_week_has_jobs_under_the_first_run() -> None:
    a, b = weekly(1, 2, 3, 4, 5, 6, 7, jobs=5), weekly(2, 2, 6, 5, 9, 9, 9)
    first, run = compare.related([row("easy", 0, 6, weeks=b), row("a", 0, 4, weeks=a)])
    assert first["difference"] is None
    jobs = [10 + week for week in range(7)]
    expected = difference(
        [k * of[1] for k, of in zip(jobs, a.values(), strict=True)],
        [k * of[1] for k, of in zip(jobs, b.values(), strict=True)],
        "weeks",
    )
    assert run["difference"] == expected


def test_weeks_in_which_one_of_the_two_starts_no_job_are_left_out() -> None:
    a, b = weekly(*[1.0] * 7), weekly(*[2.0] * 9)
    del b[3]
    _, run = compare.related([row("easy", 0, 6, weeks=b), row("a", 0, 4, weeks=a)])
    assert (run["difference"].pairs, run["difference"].ratio) == (6, 0.5)


def test_fewer_than_six_weeks_need_draws() -> None:
    few: dict[str, Any] = {"weeks": weekly(1, 1)}
    rows = compare.related([row("easy", 0, 6, **few), row("a", 0, 4, **few), row("b", 0, 4, **few)])
    assert compare.advice(rows) == [
        "2 weeks cannot tell a difference from noise: that takes 6 weeks, or draws (simulate "
        "--shake 10)."
    ]


def test_a_run_of_which_no_job_started_differs_by_nothing_that_can_be_said() -> None:
    idle = row("a", 0, 4)
    del idle["bounded_slowdown_mean"], idle["wait_s_mean"], idle["wait_s_max"]
    rows = compare.related([row("easy", 0, 6), idle])
    assert rows[1]["difference"] is None
    assert compare.differences(rows) == compare.advice(rows) == []
