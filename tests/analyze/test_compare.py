from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from cpdispatch.analyze import compare


def run(dispatcher: str, slowdown: float, **more: Any) -> compare.Row:
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
    return compare.row(about, figures)


def shown(rows: list[compare.Row], width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    for table in compare.tables(rows, width):
        console.print(table)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_each_run_is_a_column_with_its_figures() -> None:
    lines = shown([run("easy", 92.6876), run("fifo", 1000)]).splitlines()
    assert lines[0].split() == ["easy", "fifo"]
    assert ["mean", "bounded", "slowdown", "92.69", "1,000.00"] in [line.split() for line in lines]


def test_runs_with_and_without_dependencies_are_told_apart_and_not_judged() -> None:
    rows = [run("easy", 5, dependencies=True), run("easy", 2)]
    lines = shown(rows).splitlines()
    heads = [["easy"], ["KTH", "easy"], ["100", "KTH"], ["dependencies", "100"]]
    assert [line.split() for line in lines[:4]] == heads
    assert compare.verdict(rows) == ""
    assert compare.verdict([rows[0], run("fifo", 9, dependencies=True)]) != ""


def test_a_figure_that_a_run_lacks_is_a_dash() -> None:
    lines = shown([run("easy", 1)]).splitlines()
    assert ["longest", "wait", "-"] in [line.split() for line in lines]


def test_runs_that_do_not_fit_a_line_go_into_further_tables() -> None:
    rows = [run(f"easy-policy-{k}", k + 1) for k in range(9)]
    text = shown(rows)
    assert all(f"easy-policy-{k}" in text for k in range(9))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert len(compare.tables(rows, 80)) == 3


def test_predictor_and_workload_are_told_where_they_differ() -> None:
    text = shown([run("easy", 1), run("easy", 2, predictor="actual")])
    assert "actual" in text
    assert "KTH" not in text
    assert "CTC" in shown([run("easy", 1), run("easy", 2, workload="CTC")])


@pytest.mark.parametrize(
    ("slowdowns", "sentence"),
    [
        ([10, 5, 8], "b has the lowest mean bounded slowdown, 50.0% below a's."),
        ([5, 10, 8], "a has the lowest mean bounded slowdown, 37.5% below c's."),
        ([5, 5], "a and b have the same mean bounded slowdown."),
        ([5], ""),
    ],
)
def test_the_verdict_says_who_wins(slowdowns: list[float], sentence: str) -> None:
    rows = [run(name, value) for name, value in zip("abc", slowdowns, strict=False)]
    assert compare.verdict(rows) == sentence


def test_runs_of_different_logs_have_no_winner() -> None:
    assert compare.verdict([run("a", 1), run("b", 2, workload="CTC")]) == ""


def test_the_notes_say_once_what_was_dropped_and_what_never_started() -> None:
    rows = [run("easy", 1), run("fifo", 2)]
    rows[1]["jobs_never_started"] = 7
    lines = compare.notes(rows)
    assert lines[:2] == ["KTH: dropped: size unknown: 3", "KTH: repaired: id: 1"]
    assert lines[2].startswith("KTH, fifo: 7 jobs never started")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "2 h 00"), (3 * 3600, "3 h 00"),
     (86400 * 3 + 7200, "3 d 2 h")],
)  # fmt: skip
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert compare.duration(seconds) == text
