from __future__ import annotations

import math
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from cpdispatch.analyze import compare, draws
from cpdispatch.analyze.compare.rows import heading_of

CLASSES = {
    name: {"jobs": 10, "wait_s_mean": 600.0, "wait_s_max": 900.0, "bounded_slowdown_mean": 2.0}
    for name in ("short", "medium", "long")
}
WIDTHS = dict(zip(("narrow", "middle", "wide"), CLASSES.values(), strict=True))


def unrelated(
    dispatcher: str, slowdown: float, users: draws.Waits | None = None, **more: Any
) -> compare.Row:
    about = {
        "dispatcher": dispatcher,
        "predictor": "walltime",
        "workload": "KTH",
        "system": {"name": "100"},
        "notes": {"dropped: size unknown": 3, "repaired: id": 1},
        "seconds": 1.5,
        **more,
    }
    figures = {"jobs": 5, "bounded_slowdown_mean": slowdown, "wait_s_mean": 100 * slowdown}
    return {
        **compare.row(about, figures),
        "kind": compare.kind_of(about),
        "seed": 0,
        "draw": 0,
        "submissions": "as they are",
        "classes": CLASSES,
        "widths": WIDTHS,
        "waits_of_users": users or {},
        "weeks": {0: (5, slowdown)},
        "restarts_of_users": {},
    }


def runs(*rows: compare.Row) -> list[compare.Row]:
    return compare.related(rows)


def named(*slowdowns: float) -> list[compare.Row]:
    return runs(*(unrelated(name, value) for name, value in zip("abc", slowdowns, strict=False)))


def test_a_winner_that_starts_fewer_jobs_is_said_to_leave_them_out() -> None:
    few = {**unrelated("a", 2), "jobs_never_started": 46}
    rows = runs(few, {**unrelated("b", 8), "jobs_never_started": 0})
    assert compare.verdict(rows) == (
        "a has the lowest mean bounded slowdown; b's, the next, is 300.0% higher. But under a 46 "
        "jobs never start, 0 under b: its mean is of other jobs."
    )


def with_waits(row: compare.Row, *, longest_s: float | None = None, **classes: Any) -> compare.Row:
    """The row with other mean waits, or (jobs, mean wait), of classes, and a longest wait."""
    changed: dict[str, Any] = {"classes": {**CLASSES}, "widths": {**WIDTHS}}
    for name, wait in classes.items():
        jobs, wait_s = wait if isinstance(wait, tuple) else (10, wait)
        of = changed["classes" if name in CLASSES else "widths"]
        of[name] = {**of[name], "jobs": jobs, "wait_s_mean": wait_s}
    longest = {} if longest_s is None else {"wait_s_max": longest_s}
    return {**row, **changed, **longest}


def shown(rows: list[compare.Row], width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    for table in compare.tables(rows, width):
        console.print(table)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def line_of(text: str, heading: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.strip().startswith(heading))
    return line.strip().removeprefix(heading).split()


def said(*rows: compare.Row) -> list[str]:
    return [warning["text"] for warning in compare.warnings(runs(*rows))]


def test_each_run_is_a_column_with_its_figures() -> None:
    lines = shown(runs(unrelated("easy", 92.6876), unrelated("fifo", 1000))).splitlines()
    assert lines[0].split() == ["easy", "fifo"]
    assert ["mean", "bounded", "slowdown", "92.69", "1,000.00"] in [line.split() for line in lines]


def test_runs_with_and_without_dependencies_are_told_apart_and_not_judged() -> None:
    rows = runs(unrelated("easy", 5, dependencies=True), unrelated("easy", 2))
    lines = shown(rows).splitlines()
    heads = [["easy"], ["KTH", "easy"], ["100", "KTH"], ["dependencies", "100"]]
    assert [line.split() for line in lines[:4]] == heads
    assert compare.verdict(rows) == ""
    assert [row["first"] for row in rows] == [None, None]
    rows = runs(unrelated("easy", 5, dependencies=True), unrelated("fifo", 9, dependencies=True))
    assert compare.verdict(rows) != ""


def test_a_figure_that_a_run_lacks_is_a_dash() -> None:
    lines = shown(runs(unrelated("easy", 1))).splitlines()
    assert ["longest", "wait", "-"] in [line.split() for line in lines]


def test_runs_that_do_not_fit_a_line_go_into_further_tables() -> None:
    rows = runs(*(unrelated(f"easy-policy-{k}", k + 1) for k in range(9)))
    text = shown(rows)
    assert all(f"easy-policy-{k}" in text for k in range(9))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert len(compare.tables(rows, 80)) == 5


def test_predictor_and_workload_are_told_where_they_differ() -> None:
    rows = runs(unrelated("easy", 1), unrelated("easy", 2, predictor="actual"))
    assert "actual" in shown(rows)
    assert "KTH" not in shown(rows)
    assert rows[1]["first"] == "easy (walltime)"
    assert compare.verdict(rows).startswith("easy (walltime) has the lowest")
    assert "CTC" in shown(runs(unrelated("easy", 1), unrelated("easy", 2, workload="CTC")))


@pytest.mark.parametrize(
    ("slowdowns", "sentence"),
    [
        ([10, 5, 8], "b has the lowest mean bounded slowdown, 50.0% below a's."),
        ([10, 5, 4], "c has the lowest mean bounded slowdown, 60.0% below a's."),
        ([5, 10, 8], "a has the lowest mean bounded slowdown; c's, the next, is 60.0% higher."),
        ([5, 5], "a and b have the same mean bounded slowdown."),
        ([5], ""),
    ],
)
def test_the_verdict_says_who_wins(slowdowns: list[float], sentence: str) -> None:
    assert compare.verdict(named(*slowdowns)) == sentence


def test_files_of_the_same_name_are_told_apart_by_what_they_said() -> None:
    said = {"dispatcher": "easy", "primary": "spf"}
    rows = runs(
        unrelated("p.toml", 2.0, dispatcher_file=said),
        unrelated("p.toml", 3.0, dispatcher_file=said | {"primary": "laf", "threshold": 9}),
        unrelated("easy", 4.0),
    )
    first, second, third = (heading_of(row, rows) for row in rows)
    assert first == "p.toml\nprimary=spf\nthreshold=none"
    assert second == "p.toml\nprimary=laf\nthreshold=9"
    assert third == "easy"
    assert heading_of(rows[0], rows[::2]) == "p.toml"


def test_runs_of_different_logs_have_no_winner() -> None:
    rows = runs(unrelated("a", 1), unrelated("b", 2, workload="CTC"))
    assert compare.verdict(rows) == ""
    assert compare.warnings(rows) == []


# ------------------------------------------------------------------------ against the first run


def test_waits_stand_beside_those_of_the_first_run() -> None:
    easy = with_waits(unrelated("easy", 4), longest_s=5000, long=7200)
    hcp = with_waits(unrelated("hcp", 2), longest_s=20_000, long=15_480, short=60)
    first, run = runs(easy, hcp)
    assert (first["first"], first["users"], first["classes"]) == (None, None, easy["classes"])
    assert run["first"] == "easy"
    assert (run["wait_s_mean_first"], run["wait_s_mean_times"]) == (400, 0.5)
    assert (run["wait_s_max_first"], run["wait_s_max_times"]) == (5000, 4)
    assert run["classes"]["long"] == {
        "jobs": 10, "wait_s_mean": 15_480, "bounded_slowdown_mean": 2,
        "wait_s_mean_first": 7200, "wait_s_mean_times": 2.15,
        "wait_s_max": 900, "wait_s_max_first": 900, "wait_s_max_times": 1,
    }  # fmt: skip
    text = shown([first, run])
    assert line_of(text, "mean wait") == ["7", "min", "3", "min", "x0.50"]
    assert line_of(text, "short jobs (< 1 h)") == ["10", "min", "60", "s", "x0.10"]
    assert line_of(text, "medium jobs (1-5 h)") == ["10", "min", "10", "min", "x1.00"]
    assert line_of(text, "long jobs (> 5 h)") == ["2", "h", "00", "4", "h", "18", "x2.15"]
    assert line_of(text, "longest wait") == ["83", "min", "5", "h", "33", "x4.00"]
    assert compare.legend([first, run]) == ["x2.00: twice as long as under easy."]


def test_a_run_by_itself_has_waits_and_nothing_beside_them() -> None:
    (row,) = runs(with_waits(unrelated("easy", 4, {"ann": (99, 5.0, 5.0)}), long=7200))
    assert line_of(shown([row]), "long jobs (> 5 h)") == ["2", "h", "00"]
    assert "users" not in shown([row])
    assert compare.legend([row]) == compare.warnings([row]) == []


def test_the_mean_wait_of_no_jobs_is_a_dash_and_no_wait_is_no_multiple_of_none() -> None:
    easy = with_waits(unrelated("easy", 4), long=(0, math.nan), short=0)
    hcp = with_waits(unrelated("hcp", 4), long=(0, math.nan), short=30)
    text = shown(runs(easy, hcp))
    assert line_of(text, "long jobs (> 5 h)") == ["-", "-"]
    assert line_of(text, "short jobs (< 1 h)") == ["0", "s", "30", "s"]


def test_three_runs_fit_eighty_columns() -> None:
    rows = [
        with_waits(unrelated(name, 2, {"ann": (10, wait, wait)}), longest_s=wait, long=wait)
        for name, wait in (("easy", 60 * 86_400), ("fifo", 990 * 86_400), ("hcp", 99 * 86_400))
    ]
    text = shown(runs(*rows))
    assert len(compare.tables(runs(*rows), 80)) == 1
    assert max(len(line) for line in text.splitlines()) <= 80
    assert line_of(text, "longest wait") == [
        *["60", "d", "0", "h"], *["990", "d", "0", "h", "x16"], *["99", "d", "0", "h", "x1.65"],
    ]  # fmt: skip


def test_the_users_that_lose_most_are_the_tenth_whose_mean_wait_grows_most() -> None:
    # 11 users count, so 2 lose most: ann by 900 s, and ben by 300 s rather than bob, by name.
    before = {f"u{k}": (10.0, 100.0, 200.0) for k in range(8)}
    before |= {"ann": (20.0, 100.0, 400.0), "bob": (10.0, 0.0, 0.0), "ben": (10.0, 500.0, 500.0)}
    now = {**before, "ann": (18.0, 1000.0, 1600.0), "bob": (10.0, 300.0, 300.0)}
    now["ben"] = (10.0, 800.0, 900.0)
    before["few"] = (9.0, 1.0, 1.0)
    now |= {"few": (9.0, 9e9, 9e9), "new": (99.0, 9e9, 9e9)}
    assert compare.losers(now, before) == {
        "counted": 11, "losing": 2, "wait_s_mean": 900, "wait_s_mean_first": 300,
        "wait_s_mean_times": 3,
        "each": [
            {"user": "ann", "jobs": 18, "wait_s_mean": 1000, "wait_s_mean_first": 100,
             "wait_s_mean_times": 10, "wait_s_max": 1600, "wait_s_max_first": 400,
             "wait_s_max_times": 4},
            {"user": "ben", "jobs": 10, "wait_s_mean": 800, "wait_s_mean_first": 500,
             "wait_s_mean_times": 1.6, "wait_s_max": 900, "wait_s_max_first": 500,
             "wait_s_max_times": 1.8},
        ],
    }  # fmt: skip
    rows = [unrelated("easy", 3, before), unrelated("hcp", 2, now)]
    assert line_of(shown(runs(*rows)), "users that lose most") == ["15", "min", "x3.00"]
    assert said(*rows) == [
        "hcp: the 2 users that lose most wait 3.0 times as long as under easy "
        "(15 min instead of 5 min)."
    ]
    assert len(compare.legend(runs(*rows))) == 2


def test_users_who_lose_by_chance_alone_are_within_noise() -> None:
    noise, above = np.random.default_rng(1), 0
    for _ in range(20):
        usual_s = np.exp(noise.normal(6, 1, 60))

        def draw(usual_s: Any = usual_s) -> dict[str, tuple[float, float, float]]:
            waits_s = usual_s * np.exp(noise.normal(0, 0.3, 60))
            return {f"u{k}": (20.0, wait_s, 0.0) for k, wait_s in enumerate(waits_s.tolist())}

        apart = [(draw(), draw()) for _ in range(10)]
        over_all = (draws.waits_of_users(list(of)) for of in zip(*apart, strict=True))
        found = compare.losers(*over_all, apart)
        assert found is not None
        above += found["wait_s_mean_times_low"] > 1
    assert above <= 3  # 12 of them where the users are those of the same draws


def test_a_user_whose_jobs_hardly_start_under_one_of_two_runs_is_not_counted() -> None:
    assert compare.losers({"ann": (9, 900.0, 900.0)}, {"ann": (10, 5.0, 5.0)}) is None
    assert compare.losers({"ann": (10, 900.0, 900.0)}, {"ann": (9, 5.0, 5.0)}) is None
    assert compare.losers({"ann": (10, 900.0, 900.0)}, {}) is None


def test_one_user_may_lose_and_may_have_waited_for_nothing_before() -> None:
    rows = [
        unrelated(name, 3, {"ann": (10, wait_s, wait_s)})
        for name, wait_s in (("easy", 0.0), ("hcp", 61.0))
    ]
    assert said(*rows) == [
        "hcp: the user that loses most waits longer than under easy (61 s instead of 0 s)."
    ]


def test_without_users_there_is_a_dash() -> None:
    rows = runs(unrelated("easy", 3), unrelated("hcp", 3))
    assert line_of(shown(rows), "users that lose most") == ["-"]
    assert len(compare.legend(rows)) == 1


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({"long": 11_760}, {"long": 25_320},
         "long jobs wait 2.2 times as long as under easy (7 h 02 instead of 3 h 16)."),
        ({"medium": 6000}, {"medium": 6601},
         "medium jobs wait 1.1 times as long as under easy (110 min instead of 100 min)."),
        ({"short": 2}, {"short": 86},
         "short jobs wait 43 times as long as under easy (86 s instead of 2 s)."),
        ({"wide": 3600}, {"wide": 7200},
         "wide jobs (> 1/8 of the system) wait 2.0 times as long as under easy "
         "(2 h 00 instead of 60 min)."),
        ({"narrow": 10}, {"narrow": 70}, None),
        ({"middle": (10, 10)}, {"middle": (9, 9e9)}, None),
        ({"longest_s": 7200}, {"longest_s": 14_400},
         "the longest wait is 2.0 times as long as under easy (4 h 00 instead of 2 h 00)."),
        ({"medium": 6000}, {"medium": 6600}, None),
        ({"short": 10}, {"short": 70}, None),
        ({"short": (10, 10)}, {"short": (9, 9e9)}, None),
        ({"short": (9, 10)}, {"short": (10, 9e9)}, None),
        ({"longest_s": 5}, {"longest_s": 65}, None),
        ({"longest_s": 10_000}, {"longest_s": 11_000}, None),
        ({"long": (0, math.nan)}, {"long": (0, math.nan)}, None),
    ],
)  # fmt: skip
def test_growth_of_a_wait_by_a_tenth_and_a_minute_is_told(
    before: dict[str, Any], now: dict[str, Any], text: str | None
) -> None:
    easy, hcp = with_waits(unrelated("easy", 3), **before), with_waits(unrelated("b", 3), **now)
    assert said(easy, hcp) == ([] if text is None else [f"b: {text}"])


def test_the_table_of_waits_has_classes_and_users_beside_those_under_the_first_run() -> None:
    before = {f"u{k:03}": (10.0, 60.0, 120.0) for k in range(120)}
    now = {user: (10.0, 60.0 + 60 * k, 240.0) for k, user in enumerate(before)}
    easy = with_waits(unrelated("easy", 4, before), longest_s=3600)
    hcp = with_waits(unrelated("hcp", 2, now), longest_s=9000, wide=1800, long=(0, math.nan))
    rows = runs(easy, hcp)
    (table,) = compare.waits_tables(rows)
    console = Console(file=StringIO(), width=80)
    console.print(table)
    text = str(console.file.getvalue())  # type: ignore[attr-defined]
    assert text.splitlines()[0].strip() == "Waits under hcp instead of easy"
    assert max(len(line) for line in text.splitlines()) <= 80
    lines = {line.split("  ")[0]: line.split()[1:] for line in text.splitlines()[3:]}
    assert [*lines] == [
        "all jobs", "short (< 1 h)", "medium (1-5 h)", "long (> 5 h)", "narrow (<= 1/32)",
        "middle (<= 1/8)", "wide (> 1/8)", *(f"user u{119 - k:03}" for k in range(10)),
    ]  # fmt: skip
    assert " ".join(lines["all jobs"]) == "jobs 5 3 min 7 min x0.50 2 h 30 60 min x2.50"
    assert " ".join(lines["wide (> 1/8)"]) == ("(> 1/8) 10 30 min 10 min x3.00 15 min 15 min x1.00")
    assert " ".join(lines["long (> 5 h)"][3:5]) == "0 -"
    assert " ".join(lines["user u119"]) == "u119 10 2 h 00 60 s x120 4 min 2 min x2.00"
    assert len(rows[1]["users"]["each"]) == 12
    assert compare.waits_tables(runs(easy)) == []


def test_jobs_that_never_start_pay_too() -> None:
    easy = {**unrelated("easy", 3), "jobs_never_started": 2}
    other = {**unrelated("b", 1), "jobs_never_started": 1002}
    assert said(easy, other) == ["b: 1,002 jobs never start, 2 under easy."]
    one = unrelated("easy", 9), {**unrelated("b", 8), "jobs_never_started": 1}
    assert said(*one) == ["b: 1 job never starts, 0 under easy."]
    for mean, told in ((0.3, "0.3"), (36.0, "36"), (1 / 30, "less than 0.1")):
        over_draws = unrelated("easy", 9), {**unrelated("b", 8), "jobs_never_started": mean}
        assert said(*over_draws) == [f"b: {told} jobs never start, 0 under easy."]
    assert compare.verdict(runs(easy, other)).endswith("but others pay: jobs that never start.")
    assert said(other, easy) == said(easy, {**easy, "dispatcher": "b"}) == []


def test_no_dispatcher_is_praised_without_those_who_pay() -> None:
    easy = with_waits(unrelated("easy", 4, {"ann": (10, 5.0, 5.0)}), longest_s=9000)
    hcp = unrelated("hcp", 1, {"ann": (10, 500.0, 500.0)})
    hcp = with_waits(hcp, short=7, medium=9000, long=9000, longest_s=90_000)
    assert compare.verdict(runs(easy, hcp)) == (
        "hcp has the lowest mean bounded slowdown, 75.0% below easy's, but others pay: medium "
        "jobs, long jobs, the user that loses most, the longest wait."
    )
    assert [warning["who"] for warning in compare.warnings(runs(easy, hcp))] == [
        "medium jobs", "long jobs", "the user that loses most", "the longest wait",
    ]  # fmt: skip
    # Whoever is named first is what the others are measured against.
    assert compare.verdict(runs(hcp, easy)) == (
        "hcp has the lowest mean bounded slowdown; easy's, the next, is 300.0% higher."
    )


def test_runs_are_measured_against_the_first_that_started_jobs_with_the_same_seed() -> None:
    reject = {**unrelated("reject", 1), "jobs": 0, "seed": 0}
    del reject["bounded_slowdown_mean"]
    seeds = [{**unrelated("easy", 4, predictor="actual"), "seed": seed} for seed in (0, 1)]
    late = [{**unrelated("hcp", 2), "wait_s_mean": 10, "seed": seed} for seed in (0, 1, 2)]
    seeds[1]["wait_s_mean"] = 40
    rows = runs(reject, *seeds, *late)
    assert [row["first"] for row in rows[:2]] == ["easy", None]
    assert [row["wait_s_mean_first"] for row in rows[3:]] == [400, 40, 400]
    rows = runs(reject, seeds[0], late[0])
    assert compare.verdict(rows).endswith("50.0% below easy's.")


def test_a_run_under_other_rules_is_no_seed_of_the_first() -> None:
    capped: dict[str, Any] = {"power_cap": [[0, 5000.0]]}
    plain = unrelated("easy", 10)
    others = unrelated("easy", 20, **capped), unrelated("spf", 15, **capped)
    rows = runs(plain, *({**row, "seed": 1} for row in others))
    assert [row["first"] for row in rows] == [None, *["easy (no power cap)"] * 2]
    for rules in (capped, {"restart_cost_s": 9}, {"dispatcher_file": {"primary": "spf"}}):
        other = {**unrelated("easy", 20, **rules), "seed": 1}
        assert [row["first"] is None for row in runs(plain, other)] == [True, False]
    tested = {**with_kills(15, 1, 0.1), "rules": others[0]["rules"]}
    assert told_of(plain, tested) == []


def test_the_notes_say_once_what_was_dropped_and_what_never_started() -> None:
    rows = named(1, 2)
    rows[1]["jobs_never_started"] = 7
    lines = compare.notes(rows)
    assert lines[:2] == ["KTH: dropped: size unknown: 3", "KTH: repaired: id: 1"]
    assert lines[2].startswith("KTH, b: 7 jobs never started: they ask")
    rows[1]["jobs_never_started"] = 36.42857
    assert compare.notes(rows)[2].startswith("KTH, b: 36.4 jobs never started")  # of several draws
    rows[1]["jobs_never_started"] = 36.0
    assert compare.notes(rows)[2].startswith("KTH, b: 36 jobs never started")
    rows[1]["jobs_never_started"] = 7
    rows[1]["repaired"] = {"never runs: draws more than the power cap leaves": 6}
    assert compare.notes(rows)[-1].startswith("KTH, b: 1 other never started: it asks")
    rows[1]["events"] = "some"
    assert compare.notes(rows)[-1].endswith("left it out, or too few nodes were in service")
    rows[1]["jobs_never_started"] = 6
    assert not any("never started" in line for line in compare.notes(rows))


@pytest.mark.parametrize(
    ("never", "misfits", "refused", "said"),
    [
        (27, 27, 0, "21 others never started: they ask for more than the system has, or than "
                    "a partition allows"),
        (8, 6, 2, "2 others never started: the dispatcher refused them"),
        (7, 6, 0, "1 other never started: it still waited at the end"),
        (9, 7, 1, "3 others never started: they ask for more than the system has, or than "
                  "a partition allows, or the dispatcher refused them, or they still waited at the "
                  "end"),
    ],
)  # fmt: skip
def test_the_notes_name_the_reasons_that_there_are(
    never: int, misfits: int, refused: int, said: str
) -> None:
    rows = named(1)
    rows[0] |= {"jobs_never_started": never, "jobs_never_fit": misfits, "jobs_refused": refused}
    rows[0]["repaired"] = {"never runs: asks for more than a limit allows": 6}
    assert compare.notes(rows)[-1] == f"KTH, a: {said}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "2 h 00"), (3 * 3600, "3 h 00"),
     (86400 * 3 + 7200, "3 d 2 h")],
)  # fmt: skip
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert compare.duration(seconds) == text


# -------------------------------------------------------------------------------------- test runs


def with_kills(
    slowdown: float,
    killed: int,
    lost: float,
    name: str = "easy:test=120",
    test_s: int = 120,
    **users: Any,
) -> compare.Row:
    """A run of 1,000 jobs with test runs; of each user the jobs, and the share restarted."""
    row = unrelated(name, slowdown)
    counts = {"jobs": 1000, "tests": 500, "tests_killed": killed, "wasted_share": lost}
    return {**row, **counts, "test_s": test_s, "restarts_of_users": users}


def told_of(*rows: compare.Row) -> list[str]:
    return [told["text"] for told in compare.test_runs(runs(*rows))]


def test_what_test_runs_bring_and_cost_is_told_in_a_few_sentences() -> None:
    assert told_of(unrelated("easy", 91.84), with_kills(70.1, 110, 0.0021)) == [
        "With test runs of 2 min (easy:test=120) the mean bounded slowdown falls from 91.8 to "
        "70.1. 1 job in 9 is stopped once, in the test run, and started again later. 0.2% of the "
        "work is lost."
    ]


@pytest.mark.parametrize(
    ("slowdown", "killed", "lost", "sentences"),
    [
        (95, 110, 0.0021, ["rises from 91.8 to 95.0."]),
        (91.83, 110, 0.0021, ["slowdown stays at 91.8."]),
        (70, 430, 0.0021, ["43% of the jobs are stopped once, in the test run,"]),
        (70, 200, 0.0021, ["1 job in 5 is stopped once"]),
        (70, 1, 0.0004, ["1 job in 1,000 is stopped once", "Less than 0.1% of the work is lost."]),
        (70, 0, 0.0, ["No job is stopped in its test run."]),
    ],
)
def test_few_and_many_kills_read_well(
    slowdown: float, killed: int, lost: float, sentences: list[str]
) -> None:
    (text,) = told_of(unrelated("easy", 91.84), with_kills(slowdown, killed, lost))
    assert all(sentence in text for sentence in sentences)
    assert ("work is lost" in text) == (killed > 0)


def test_work_that_is_lost_without_test_runs_is_not_laid_to_them() -> None:
    failing = {"node_failures": 9, "requeues": 4, "failed": 0, "wasted_processor_s": 7200.0}
    easy = unrelated("easy", 90) | failing | {"wasted_share": 0.427}
    tested = with_kills(70, 110, 0.439) | failing
    (text,) = told_of(easy, tested)
    assert text.endswith("later. 43.9% of the work is lost, 42.7% without test runs.")
    without, beside = (told["text"] for told in compare.failures(runs(easy, tested)))
    assert without.endswith("2 processor hours are lost, 42.7% of the work.")
    assert beside.endswith("43.9% of the work, those of test runs among them.")


def test_who_waits_longer_with_test_runs_is_told_beside_the_same_dispatcher_without() -> None:
    first = with_waits(unrelated("first", 50), medium=1)
    easy = with_waits(unrelated("easy", 90), medium=7200, longest_s=9000)
    slow = with_waits(with_kills(70, 110, 0.002), medium=9000, longest_s=9100)
    (text,) = told_of(first, easy, slow)
    assert text.endswith("lost. These waits grow by more than 10%: medium jobs (x1.25).")
    long = with_waits(with_kills(70, 110, 0.002), medium=7300, longest_s=18_000)
    (text,) = told_of(first, easy, long)
    assert text.endswith("lost. These waits grow by more than 10%: the longest wait (x2.00).")
    (row,) = compare.test_runs(runs(first, easy, long))
    assert row["longer"] == [{"who": "the longest wait", "times": 2}]
    (text,) = told_of(easy, with_waits(with_kills(70, 1, 0.1), medium=7200, long=0, longest_s=9000))
    assert text.endswith("of the work is lost.")
    none = with_waits(unrelated("easy", 90), medium=0)
    (text,) = told_of(none, with_waits(with_kills(70, 1, 0.1), medium=90))
    assert text.endswith("grow by more than 10%: medium jobs (from 0).")


def test_test_runs_are_told_beside_a_run_that_differs_by_them_alone() -> None:
    easy, other = unrelated("easy", 90), unrelated("easy:threshold=9", 80)
    assert told_of(other, with_kills(70, 1, 0.1)) == []
    assert told_of(unrelated("easy", 90, predictor="actual"), with_kills(70, 1, 0.1)) == []
    assert told_of(easy, {**with_kills(70, 1, 0.1), "tests": 0}) == []
    (text,) = told_of(
        easy, other, with_kills(70, 1, 0.1, "easy:tests=turn,threshold=9,test=5min", 300)
    )
    assert "With test runs of 5 min (easy:tests=turn,threshold=9,test=5min)" in text
    assert "from 80.0 to 70.0" in text
    another = {**easy, "submissions": "shifted", "bounded_slowdown_mean": 85}
    shifted = {**with_kills(70, 1, 0.1), "submissions": "shifted"}
    (text,) = told_of(easy, another, shifted)
    assert "from 85.0 to 70.0" in text


def test_parameters_that_the_run_without_test_runs_lacks_are_named() -> None:
    easy, waits = unrelated("easy", 90), unrelated("easy:wait=0.8", 88)
    bounded = with_kills(20, 300, 0.01, "easy:test=120,tests=first,wait=0.8")
    (text,) = told_of(easy, bounded)
    assert text.startswith(
        "With test runs of 2 min and wait=0.8 (easy:test=120,tests=first,wait=0.8) the mean "
        "bounded slowdown falls from 90.0 to 20.0. "
    )
    (row,) = compare.test_runs(runs(easy, bounded))
    assert (row["without"], row["more"]) == ("easy", ["wait=0.8"])
    (row,) = compare.test_runs(runs(easy, waits, bounded))
    assert (row["without"], row["more"]) == ("easy:wait=0.8", [])
    for peer in (unrelated("easy:wait=0.9", 90), unrelated("easy-spf-spf", 90)):
        assert told_of(peer, bounded) == []


def test_a_user_whose_jobs_are_restarted_often_is_named() -> None:
    users = {"ann": (900, 0.05), "bob": (60, 0.5), "eve": (30, 0.9), "tim": (9, 1.0)}
    mean = (45 + 30 + 27 + 9) / 999
    assert compare.restarted_often(users) == {
        "user": "bob", "jobs": 60, "restarts": 30, "share": 0.5,
        "share_of_all": pytest.approx(mean),
    }  # fmt: skip
    (text,) = told_of(unrelated("easy", 90), with_kills(70, 111, 0.002, **users))
    assert text.endswith(
        "User bob is stopped more often than others: 30 of 60 jobs (50%; of all jobs 11%)."
    )
    assert compare.restarted_often({"ann": (900, 0.5), "bob": (60, 0.7)}) is None
    assert compare.restarted_often({"tim": (9, 1.0), "ann": (900, 0.0)}) is None
    assert compare.restarted_often({}) is None


def test_runs_whose_restarts_take_other_times_are_told_apart() -> None:
    rows = runs(unrelated("easy", 5), unrelated("easy", 2, restart_cost_s=30))
    assert shown(rows).splitlines()[1].split() == ["restart", "0", "s", "restart", "30", "s"]
    assert rows[1]["first"] == "easy (restart 0 s)"


def test_runs_with_other_events_are_told_apart_in_words() -> None:
    told = {"given": ["a.csv"], "sha256": "d7bcea20" + 56 * "4", "requeue": "all"}
    rows = runs(
        unrelated("easy", 5),
        unrelated("easy", 5, events=told),
        unrelated("easy", 5, events=told | {"checkpoints": {"every_s": 10_800, "cost_s": 120}}),
    )
    first, second, third = (heading_of(row, rows).split("\n")[3:] for row in rows)
    assert first == ["no events", "no checkpoints"]
    assert second == ["events d7bcea20", "requeue all", "no checkpoints"]
    assert third == ["events d7bcea20", "requeue all", "checkpoints every 3 h 00, 2 min each"]
    assert heading_of(rows[0], rows[:1]) == "easy"


@pytest.mark.parametrize(
    ("rule", "words", "others"),
    [
        ({"kill_at_limit": True}, "killed at limit", "not killed at limit"),
        ({"correction": "refresh"}, "correction refresh", "correction minimal"),
        ({"trigger": "event"}, "trigger event", "trigger instant"),
        ({"power_cap": [[0, 1300]]}, "power cap 1,300 W", "no power cap"),
        (
            {"power_cap": [[0, 1300], [60, 900.5]]},
            "power cap 900.5 to 1,300 W, 2 steps",
            "no power cap",
        ),
        ({"switch_off_s": 600}, "switch-off 10 min", "no switch-off"),
        (
            {"starvation": {"threshold_s": 86400, "bound_s": 7200, "wide": 0}},
            "starvation 24 h 00, 2 h 00",
            "no starvation bound",
        ),
        ({"restartable": 5}, "all restartable", "no restarts"),
        ({"restartable": 2}, "2 jobs restartable", "no restarts"),
    ],
)
def test_runs_under_other_rules_are_told_apart(
    rule: dict[str, Any], words: str, others: str
) -> None:
    rows = runs(unrelated("easy", 5, **rule), unrelated("easy", 2))
    assert [heading_of(row, rows) for row in rows] == [f"easy\n{words}", f"easy\n{others}"]
    assert rows[1]["first"] == f"easy ({words})"
    same = runs(*(unrelated(name, 5, **rule) for name in ("easy", "fifo")))
    assert [heading_of(row, same) for row in same] == ["easy", "fifo"]


def test_idempotent_runs_need_no_word_of_restarts() -> None:
    rows = runs(unrelated("easy", 5, idempotent=True, restartable=5), unrelated("easy", 2))
    assert [heading_of(row, rows) for row in rows] == ["easy\nidempotent", "easy"]


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ((9.4, 3.5, 2.5), "Nodes fail 9 times under easy. Jobs are stopped 6 times: queued again "
         "4 times, ended as failed 2 times."),
        ((3, 3.6, 3.6), "Jobs are stopped 7 times: queued again 3 times, ended as failed 4 times."),
        ((0.3, 0.3, 0), "Nodes fail less than once under easy. Jobs are stopped less than once: "
         "queued again 0 times, ended as failed 0 times."),
        ((1, 1, 0), "Nodes fail once under easy. Jobs are stopped once: queued again once, ended "
         "as failed 0 times."),
        ((2, 0, 0), "Nodes fail 2 times under easy. No job runs on one of them then."),
    ],
)  # fmt: skip
def test_how_often_jobs_are_stopped_adds_up_also_in_the_mean(
    figures: tuple[float, float, float], says: str
) -> None:
    counted = dict(zip(("node_failures", "requeues", "failed"), figures, strict=True))
    run = unrelated("easy", 2.0) | counted | {"wasted_processor_s": 3600.0, "wasted_share": 0.1}
    (told,) = compare.failures([run])
    assert says in told["text"]
