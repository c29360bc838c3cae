from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cpdispatch import dispatch
from cpdispatch.errors import UsageError
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from cpdispatch.workloads.restarts import mark
from cpdispatch.workloads.shake import shaken
from tests.heuristics.test_test_runs import crowd
from tests.scripts import script
from tests.simulator.cases import workload

pytest.importorskip("scipy", reason="its intervals need scipy, which the extra learn brings")

ROOT = Path(__file__).resolve().parents[2]

bench = script("benchmarks/test_runs.py")


def kept(path: Path) -> Any:
    """The results in a file."""
    return bench.Results(path, bench.Case, bench.Figures)


CROWD = workload(crowd()), System.pool(4)
ONE = bench.Figures(
    jobs=100, slowdown=10.0, wait_s_mean=600.0, wait_s_max=7200, wait_s_long=300.0, decisions=9,
    seconds=1.0, wait_s_class={"short": 100.0, "medium": 200.0},
)  # fmt: skip


@pytest.mark.log
def test_a_run_keeps_its_results_and_goes_on_where_it_ended(
    trace: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "runs.jsonl", tmp_path / "test_runs.csv"
    table.write_text(",".join(bench.HEAD) + "\nother,0,easy,own,1,0,3" + "," * 11 + "\n")
    arguments = [
        str(trace("KTH-SP2-1996-2").parent), "--out", str(out), "--write", str(table),
        "--logs", "KTH", "--part", "cuts", "--sizes", "1024", "--only", "cut [05] of 1024 easy",
    ]  # fmt: skip
    assert bench.main([*arguments, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert not out.exists()
    assert bench.main(arguments) == 0
    told = capsys.readouterr().err
    assert f"{len(listed)}/{len(listed)} " in told
    every = out.read_bytes().splitlines(keepends=True)
    assert [str(case) for case in kept(out)] == listed
    out.write_bytes(b"".join(every[:-1]) + every[-1][:20])
    before = table.read_text()
    assert bench.main(arguments) == 0
    assert "1/1 " in capsys.readouterr().err
    assert len(kept(out)) == len(every)
    assert table.read_text() == before
    rows = list(csv.DictReader(before.splitlines()))
    assert rows[0]["log"] == "KTH"
    assert {row["log"] for row in rows} == {"KTH", bench.CUTS, "other"}
    (tests,) = (r for r in rows if (r["log"], r["dispatcher"]) == ("KTH", "easy:test=120"))
    assert (tests["size"], tests["draws"], tests["slowdown"]) == ("1024", "2", "")
    assert float(tests["relative"]) < 1
    assert float(tests["kills_percent"]) > 0


@pytest.mark.log
def test_a_case_that_fails_is_told_and_the_others_are_kept(
    trace: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(log: Any, case: Any) -> Any:
        assert "test=" not in case.dispatcher, "no luck"
        return ONE

    monkeypatch.setattr(bench, "measure", measure)
    out = tmp_path / "runs.jsonl"
    arguments = [
        str(trace("KTH-SP2-1996-2").parent), "--out", str(out), "--logs", "KTH", "--draws", "1",
        "--write", str(tmp_path / "table.csv"), "--part", "whole", "--only", " easy",
    ]  # fmt: skip
    assert bench.main(arguments) == 1
    assert "KTH easy:test=120 draw 0: AssertionError: no luck" in capsys.readouterr().err
    assert list(kept(out)) == [bench.Case("KTH", "easy")]


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="KHT"):
        bench.main([".", "--out", str(tmp_path / "x"), "--logs", "KHT"])


def test_a_case_is_replayed_with_its_draw_its_share_and_its_cost() -> None:
    log, system = CROWD
    base = bench.Case("crowd", "easy:test=9", draw=2)
    for case in (base, replace(base, restartable=0.5), replace(base, restart_cost_s=3)):
        run = simulate(
            mark(shaken(log, 2), case.restartable, 2), system, case.dispatcher,
            restart_cost_s=case.restart_cost_s,
        )  # fmt: skip
        assert run.verify() == []
        found = bench.measure(CROWD, case)
        assert found.slowdown == run.metrics["bounded_slowdown_mean"]
        assert (found.tests, found.killed) == (
            run.metrics["tests"], run.metrics["tests_killed"],
        )  # fmt: skip
        assert found.lost == run.metrics["wasted_share"] > 0
        assert found.wait_s_long is None
        assert found.wait_s_class == {"short": run.metrics["wait_s_mean"]}
    plain = bench.measure(CROWD, base.easy)
    assert (plain.tests, plain.killed, plain.lost) == (0, 0, 0)


def test_a_draw_of_a_generated_load_is_another_load() -> None:
    log = bench.find("eurora", Path())
    with mock.patch.object(bench, "LOAD_JOBS", 200):
        waits = [bench.measure(log, bench.Case("eurora", "easy", k)).wait_s_mean for k in (0, 1)]
    assert waits[0] != waits[1]


def test_every_case_has_its_easy_and_a_dispatcher_that_can_be_made() -> None:
    found = [
        case
        for name in dict.fromkeys((*bench.LOGS, *bench.LOADS, *bench.untuned.LOGS))
        for case in bench.cases(name, bench.PARTS, 2, lambda: 5000, bench.untuned.SIZES)
    ]
    assert {case.easy for case in found} <= set(found)
    for name in {case.dispatcher for case in found}:
        dispatch.make(name, warm=dispatch.not_at_all)
    whole = {case for case in found if case.log == "KTH" and not case.size and case.draw == 1}
    assert {case.restartable for case in whole} == {1, 0.5, 0.2}
    assert {case.restart_cost_s for case in whole} == {0, 30, 120}
    plain = {case for case in whole if case.restartable == 1 and not case.restart_cost_s}
    assert {case.dispatcher for case in plain} >= {
        "easy", "easy:test=120", "easy:test=120,tests=backfill", "easy:test=120,tests=turn",
        "best:test=off", "best:test=300", "best:test=300,tests=backfill",
        "best:test=300,tests=turn",
        "easy:test=30", "best:test=1800",
    }  # fmt: skip
    assert bench.Case("KTH", "best:test=off", 1, "actual") in plain


def test_rows_are_means_over_draws_with_an_interval_relative_to_the_same_draw_of_easy() -> None:
    results = {}
    for draw, (easy, tests) in enumerate([(10.0, 5.0), (20.0, 5.0), (40.0, 20.0), (1.0, None)]):
        case = bench.Case("KTH", "easy", draw)
        results[case] = replace(ONE, slowdown=easy)
        if tests is not None:
            results[replace(case, dispatcher="easy:test=120")] = replace(
                ONE, slowdown=tests, wait_s_max=3600 * (draw + 1), wait_s_long=330.0, tests=9,
                killed=10 * draw, lost=0.01, wait_s_class={"short": 90.0, "medium": 250.0},
            )  # fmt: skip
    lonely = bench.Case("CTC", "best:test=off")
    _, row = bench.rows(results | {lonely: ONE})
    found = dict(zip(bench.HEAD, row, strict=True))
    assert row[: bench.KEYS] == ["KTH", "0", "easy:test=120", "own", "1", "0"]
    assert (found["draws"], found["slowdown"]) == ("3", "10.0")
    half = 4.303 * 75**0.5 / 3**0.5  # Student's t of 2 degrees of freedom, 97.5 %
    assert found["slowdown_low"] == f"{10 - half:.1f}"
    assert found["slowdown_high"] == f"{10 + half:.1f}"
    assert found["relative"] == f"{(0.5 * 0.25 * 0.5) ** (1 / 3):.3f}"
    logs = [math.log(0.5), math.log(0.25), math.log(0.5)]
    centre = sum(logs) / 3
    spread = (sum((value - centre) ** 2 for value in logs) / 2) ** 0.5
    assert float(found["relative_high"]) == pytest.approx(
        math.exp(centre + 4.3027 * spread / 3**0.5), abs=0.001
    )
    assert (found["wait_max"], found["wait_long"]) == ("1.00", "1.10")
    assert found["wait_class"] == "1.25"
    assert (found["kills_percent"], found["lost_percent"]) == ("10.00", "1.00")


def test_cuts_are_put_together_and_those_without_waits_are_left_out() -> None:
    results = {}
    for log, waits_s in (("KTH", 7200), ("CTC", 7200), ("NASA", 599)):
        case = bench.Case(log, "easy", size=1024)
        results[case] = replace(ONE, wait_s_max=waits_s)
        results[replace(case, dispatcher="best")] = replace(ONE, slowdown=5.0, wait_s_long=None)
    rows = [dict(zip(bench.HEAD, row, strict=True)) for row in bench.rows(results)]
    best = {row["log"]: row for row in rows if row["dispatcher"] == "best"}
    assert set(best) == {"KTH", "CTC", bench.CUTS}
    assert best[bench.CUTS]["draws"] == "2"
    assert (best["KTH"]["relative"], best["KTH"]["relative_low"]) == ("0.500", "")
    assert (best["KTH"]["slowdown"], best["KTH"]["wait_long"]) == ("", "")


def test_the_file_of_the_documentation_has_the_columns_that_are_written() -> None:
    assert bench.CSV.read_text().splitlines()[0] == ",".join(bench.HEAD)


def test_the_table_of_replays_gives_back_what_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = {
        bench.Case("KTH", "easy", 3): ONE,
        bench.Case("KTH", "best:test=300,tests=turn", 3, restartable=0.2, restart_cost_s=30): (
            replace(ONE, wait_s_long=None, tests=7, killed=2, lost=0.25)
        ),
        bench.Case("CTC", "easy", size=1024, cut=5, predictor="actual"): ONE,
    }
    monkeypatch.setattr("results.DATA", tmp_path)
    bench.keep(bench.REPLAYS, [bench.REPLAYS_HEAD, *bench.replays(done)])
    assert dict(bench.earlier()) == done


def test_a_row_of_more_draws_stays() -> None:
    head, row = ",".join(bench.HEAD), ["KTH", "0", "easy", "own", "1", "0"]
    rest = [""] * (len(bench.HEAD) - bench.KEYS - 1)
    text = head + "\n" + ",".join([*row, "3", *rest]) + "\n"
    new = [[*row, "2", *rest], [*row[:2], "best", *row[3:], "2", *rest]]
    assert list(bench.not_fewer(text, iter(new))) == new[1:]
    assert list(bench.not_fewer(text, iter([[*row, "3", *rest]])))
