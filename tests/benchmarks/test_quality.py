from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch.errors import UsageError
from cpdispatch.workloads.shake import shaken
from tests.scripts import script

ROOT = Path(__file__).resolve().parents[2]
KTH = "KTH-SP2-1996-2"


bench = script("benchmarks/quality.py")
ONE = bench.Figures(
    jobs=10, slowdown=20.0, first_half=10.0, second_half=30.0, per_processor=2.0,
    wait_s_mean=600.0, wait_s_max=7200.0, killed=0, restarts=0, wasted_s=0.0, seconds=1.0,
    decision_ms=0.1, error_s=60.0, under=0.25, over=0.5, close=0.75,
)  # fmt: skip


@pytest.mark.log
def test_a_run_keeps_its_results_and_goes_on_where_it_ended(
    trace: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(trace(KTH).parent), "--out", str(tmp_path), "--jobs", "200", "--logs", "KTH",
        "--part", "predictors", "--workers", "1", "--only", "easy(-fcfs-spf)? (last2|actual)",
    ]  # fmt: skip
    assert bench.main(arguments) == 0
    told = capsys.readouterr()
    assert f"{KTH},easy-fcfs-spf,last2,,instant,0,200,0," in told.out

    path = tmp_path / "results.jsonl"
    every = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(every[:-1]) + every[-1][:20])
    assert bench.main(arguments) == 0
    again = capsys.readouterr()
    assert again.out.count("\n") == told.out.count("\n")
    assert "1/1" in again.err
    assert len(path.read_bytes().splitlines()) == len(every) + 1  # and the one that was cut


@pytest.mark.log
def test_a_case_that_fails_is_told_and_the_others_are_kept(
    trace: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(log: Any, case: Any) -> Any:
        assert case.predictor != "last2", "no luck"
        return ONE

    monkeypatch.setattr(bench, "measure", measure)
    arguments = [
        str(trace(KTH).parent), "--out", str(tmp_path), "--jobs", "200", "--logs", "KTH",
        "--part", "predictors", "--workers", "1", "--only", "easy-fcfs-spf",
    ]  # fmt: skip
    assert bench.main(arguments) == 1
    told = capsys.readouterr()
    assert f"{KTH} 0+200 easy-fcfs-spf last2: AssertionError: no luck" in told.err
    assert f"{KTH},easy-fcfs-spf,profile,,instant,0,10,0,20.0," in told.out


def test_figures_are_those_of_the_jobs_in_order_of_submission() -> None:
    workload, system = bench.find("eurora-seed-0", Path())
    workload = workload.take(np.arange(301))
    run = bench.simulate(workload, system, "easy", predictor="actual")
    found = bench.figures(run)
    assert found.slowdown == pytest.approx(run.metrics["bounded_slowdown_mean"])
    assert (found.first_half * 150 + found.second_half * 151) / 301 == pytest.approx(found.slowdown)
    capped = np.minimum(workload.runtime_s, workload.table.requested_s)
    assert found.error_s == pytest.approx(np.abs(capped - workload.runtime_s).mean())
    assert found.over == 0
    assert sum(of["jobs"] for of in found.classes.values()) == 2 * 301


def test_small_and_large_jobs_are_told_apart_by_the_median_runtime() -> None:
    workload, system = bench.find("eurora-seed-0", Path())
    run = bench.simulate(workload.take(np.arange(301)), system, "easy")
    found = bench.figures(run).by_divider
    runtime_s = np.sort(workload.runtime_s[:301])
    assert found["small"]["jobs"] == np.count_nonzero(runtime_s <= runtime_s[150])
    assert found["small"]["jobs"] + found["large"]["jobs"] == 301
    mean = sum(of["jobs"] * of["bounded slowdown"] for of in found.values()) / 301
    assert mean == pytest.approx(run.metrics["bounded_slowdown_mean"])
    case = bench.Case(KTH, bench.SMALL, "class", idempotent=True, draw=3)
    easy = bench.Case(KTH, "easy", "walltime", draw=3)
    results = {case: replace(ONE, by_divider=found, restarts=4), easy: ONE}
    (row,) = bench.small_rows(results, None)
    assert row[:5] == [KTH, bench.SMALL, "class", "3", "20.0"]
    assert (row[5], row[-1]) == (f"{found['small']['bounded slowdown']:.1f}", "4")


def test_the_part_of_a_log_that_is_run_begins_where_its_jobs_wait() -> None:
    workload, system = bench.find("eurora-seed-0", Path())
    whole, part = (
        bench.measure((workload, system), bench.Case("", "easy", "walltime", 100, first))
        for first in (0, 700)
    )
    expected = bench.simulate(workload.take(np.arange(700, 800)), system, "easy").metrics
    assert part.slowdown == pytest.approx(expected["bounded_slowdown_mean"])
    assert part.slowdown != pytest.approx(whole.slowdown)


def test_a_draw_is_measured_on_shifted_submissions() -> None:
    log = bench.find("eurora-seed-0", Path())
    of = [bench.measure(log, bench.Case("", "easy", "walltime", 500, draw=k)) for k in range(3)]
    first, system = log[0].take(np.arange(500)), log[1]
    for draw, found in enumerate(of):
        again = bench.simulate(shaken(first, draw), system, "easy").metrics
        assert found.slowdown == pytest.approx(again["bounded_slowdown_mean"])
    assert len({found.slowdown for found in of}) == 3


def test_our_versions_are_beside_what_was_published() -> None:
    case = bench.Case(KTH, "easy-fcfs-spf", "eloss", trigger="event")
    rows = list(bench.published_rows({case: replace(ONE, slowdown=61.7)}, None))
    assert rows == [[KTH, "eloss", "51.4", "61.7"]]


def test_classes_are_pooled_over_seeds_and_told_relative_to_requested_times() -> None:
    def of(slowdown: float, jobs: int) -> Any:
        each = {"jobs": jobs, "slowdown": slowdown, "bounded slowdown": 1.0, "wait, min": 0.0}
        return replace(ONE, classes={"short": each})

    results = {
        case: of(2.0 + seed * (case.predictor == "walltime"), 10 * (1 + seed))
        for seed, log in enumerate(bench.EURORA)
        for case in bench.thesis(log, 1500)
        if case.dispatcher == bench.BY_CLASS[0]
    }
    (row,) = (row for row in bench.class_rows(results, None) if row[2:4] == ["short", "slowdown"])
    assert row[4:] == ["60", "3.33", "-40", "-40", "-40"]


def test_the_files_of_the_documentation_have_the_columns_that_are_written() -> None:
    for name, (head, _) in bench.files({}, None).items():
        assert (bench.DATA / f"{name}.csv").read_text().splitlines()[0] == ",".join(head)


def test_a_log_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="KHT"):
        bench.main([".", "--out", ".", "--logs", "KHT"])
