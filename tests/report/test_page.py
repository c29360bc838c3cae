from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import cli
from cpdispatch.analyze import compare, metrics
from cpdispatch.analyze.compare import duration
from cpdispatch.arrays import IntArray
from cpdispatch.cli.runs import beside_best
from cpdispatch.experiment import RunSummary, tables
from cpdispatch.report import Shown, plots
from cpdispatch.report.columns import packed
from cpdispatch.report.page import file_of, verdict
from cpdispatch.report.plots import time_by_queue
from cpdispatch.report.words import line_of, longer
from cpdispatch.simulator import Run
from tests.report.conftest import write_log

pytest.importorskip("bokeh", reason="Bokeh is not installed", exc_type=ImportError)

NAMES = ("easy", "easy-saf-saf", "hcp:limit=0.05")


def unpacked(directory: list[list[Any]], text: str) -> dict[str, IntArray]:
    """The plain twin of what the page does with its columns."""
    flat, at, found = zlib.decompress(base64.b64decode(text)), 0, {}
    for name, length, width in directory:
        total, column = 0, []
        for k in range(length):
            coded = int.from_bytes(bytes(flat[at + p * length + k] for p in range(width)), "little")
            total += -(coded + 1) // 2 if coded % 2 else coded // 2
            column.append(total)
        at += length * width
        found[name] = np.array(column, dtype=np.int64)
    assert at == len(flat)
    return found


def inside(page: Path) -> tuple[dict[str, Any], dict[str, IntArray], str]:
    """What the page knows, its columns, and its text without scripts and tags."""
    html = page.read_text(encoding="utf-8")
    about = re.search(r'id="about">(.*?)</script>', html, re.DOTALL)
    data = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert about is not None
    assert data is not None
    found = json.loads(about[1])
    body = html[html.index("<body>") : html.index("<script>")]
    return (
        found,
        unpacked(found["columns"], data[1]),
        unescape(" ".join(re.sub("<[^>]*>", " ", body).split())),
    )


def runs(folder: Path) -> list[Run]:
    return [Run.load(folder / name) for name in ("easy", "easy-saf-saf", "hcp_limit_0.05")]


def test_packed_columns_unpack_to_the_same() -> None:
    columns = {
        "a": np.array([0, -5, 7, 2**52, -(2**52)]),
        "none": np.array([], dtype=np.int64),
        "same": np.full(9, 3),
    }
    found = unpacked(*packed(columns))
    assert {name: column.tolist() for name, column in found.items()} == {
        name: column.tolist() for name, column in columns.items()
    }


def test_the_columns_of_the_page_are_those_of_the_runs(page: Path, folder: Path) -> None:
    about, columns, _ = inside(page)
    assert about["names"] == list(NAMES)
    for number, run in enumerate(runs(folder)):
        schedule = run.schedule()
        assert columns[f"{number}/wait"].tolist() == metrics.wait_s(schedule).tolist()
        assert columns[f"{number}/runtime"].tolist() == metrics.runtime_s(schedule).tolist()
        reasons = [about["reasons"][code] for code in columns[f"{number}/reason"]]
        assert reasons == run.jobs["reason"].tolist()
        lanes = np.add.reduceat(
            columns[f"{number}/run_length"],
            np.cumsum([0, *columns[f"{number}/run_count"][:-1]]),
        )
        assert sorted(lanes) == sorted(schedule.units)


LANES = """[...runs[0].bars.start].flatMap((start, k) => { const b = runs[0].bars;
return Array.from({ length: b.offset[k + 1] - b.offset[k] }, (_, r) => b.offset[k] + r)
.map((r) => [start, b.end[k], b.first[r], b.first[r] + b.length[r]]); })"""


def in_node(page: Path, *expressions: str) -> list[Any]:
    """What the scripts of the page find, without its pictures."""
    if (node := shutil.which("node")) is None:
        pytest.skip("there is no Node.js on this machine")
    html = page.read_text(encoding="utf-8")
    texts = {
        name: re.findall(f'id="{name}">(.*?)</script>', html, re.DOTALL)[0]
        for name in ("about", "data")
    }
    program = (
        f"globalThis.document = {{getElementById: (id) => ({{textContent: {texts}[id]}})}};"
        + file_of("data.js").replace('"use strict";', "")
        + file_of("page.js").replace('"use strict";', "").split("async function start()")[0]
        + "unpackColumns(about.columns, element('data').textContent).then((found) => {"
        f"columns = found; prepare(); console.log(JSON.stringify([{', '.join(expressions)}])); }})"
    )
    told = subprocess.run([node, "-"], input=program, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(told.stdout)
    return found


@pytest.mark.parametrize("name", ["kept", "ended"])
def test_the_scripts_draw_each_attempt_at_its_time(broken: Path, tmp_path: Path, name: str) -> None:
    page = tmp_path / "page.html"
    assert cli.run(["report", str(broken / name), "--out", str(page)]) == 0
    run = Run.load(broken / name)
    names = ("start", "end", "used", "slow")
    start, end, used, slow, lanes = in_node(page, *(f"[...runs[0].{of}]" for of in names), LANES)
    jobs, begin = run.jobs, int(run.jobs["submit"].min())
    assert start == (jobs["start"] - begin).tolist()
    assert end == (jobs["end"] - begin).tolist()
    assert used == (jobs["end"].where(~jobs["failed"], jobs["start"]) - begin).tolist()
    assert slow == metrics.bounded_slowdown(run.schedule()).tolist()
    attempts = [] if run.attempt_table is None else run.attempt_table.to_pylist()
    spans = [*zip(jobs["start"], jobs["end"], strict=True)]
    spans += [(row["start"], row["end"]) for row in attempts]
    assert {(a + begin, b + begin) for a, b, *_ in lanes} == set(spans)
    assert len(attempts) > 10 or name == "ended"
    for (a, b, low, high), (c, d, below, above) in itertools.combinations(lanes, 2):
        assert b <= c or d <= a or high <= below or above <= low


def test_a_curve_steps_between_the_middles_of_its_parts(folder: Path) -> None:
    shown = [Shown("easy", Run.load(folder / "easy"), ())]
    for name in ("queue", "use"):
        plot, _ = plots.all_of(shown)[name]
        assert [drawn.glyph.mode for drawn in plot.renderers] == ["center"]


def test_figures_of_the_page_are_those_of_compare(
    page: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, text = inside(page)
    slowdowns = " ".join(f"{run.metrics['bounded_slowdown_mean']:,.2f}" for run in runs(folder))
    assert f"mean bounded slowdown {slowdowns} 95th" in text
    assert cli.run(["compare", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["warnings"]
    for warning in report["warnings"]:
        assert warning["text"] in text
    for row in report["runs"][1:]:
        of = row["widths"]["wide"]
        assert f"wide (> 1/8) {of['jobs']}" in text
        assert f"{of['wait_s_mean_times']:,.2f}" in text
    assert "user 1" in text


def test_what_is_said_of_the_best_run_is_the_difference_of_compare(folder: Path) -> None:
    easy, saf, _ = map(RunSummary.of, runs(folder))
    ((_, beside_saf),) = tables([saf, easy])
    over = beside_saf[1]["difference"]
    assert over.pairs == 8
    said = verdict(beside_saf)
    assert f"{over.ratio:.2f} times that of easy-saf-saf" in said
    assert f"{over.low:.2f} to {over.high:.2f} times, paired over 8 weeks of submission" in said
    assert ("cannot be told apart" in said) is (not over.stands)
    ((_, same),) = tables([easy])
    assert verdict(same).startswith("The mean bounded slowdown under easy is")


def test_runs_that_differ_by_chance_cannot_be_told_apart() -> None:
    from cpdispatch.analyze.difference import difference

    over = difference([9, 12, 9, 12, 9, 12, 10], [10, 10, 10, 10, 10, 10, 10], "weeks")
    assert over.says == "within noise"
    about = {"idempotent": False, "predictor": "walltime", "workload": "log", "system": "8"}
    best = {"dispatcher": "a", "bounded_slowdown_mean": 10.0, "difference": None, **about}
    other = {"dispatcher": "b", "bounded_slowdown_mean": 10.4, "difference": over, **about}
    said = verdict([best, other])
    assert said.startswith("a has the lower mean bounded slowdown, 10.00, but maybe by chance. ")
    assert "more than noise" not in said


def test_runs_with_the_same_mean_have_no_winner() -> None:
    about = {"idempotent": False, "predictor": "walltime", "workload": "log", "system": "8"}
    one, two = (
        {"dispatcher": name, "bounded_slowdown_mean": 1.0, "difference": None, **about}
        for name in ("a", "b")
    )
    assert verdict([one, two]).startswith("a and b have the same mean bounded slowdown, 1.00. ")


@pytest.mark.parametrize("users", [[-1, -1, -1], [-1, 7, 3]])
def test_nobody_is_no_user(tmp_path: Path, users: list[int]) -> None:
    log = tmp_path / "small.csv"
    rows = "".join(f"{k},{k},9,9,1,1,{user}\n" for k, user in enumerate(users, start=1))
    log.write_text(f"id,submit,runtime,requested,units,core,user\n{rows}")
    command = ["simulate", str(log), "--system", "8", "--out", str(tmp_path / "runs")]
    assert cli.run(command) == 0
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    about, columns, _ = inside(tmp_path / "page.html")
    named = [about["users"][code] if code >= 0 else "-1" for code in columns["user"].tolist()]
    assert named == [str(user) for user in users]
    assert "-1" not in about["users"]


def test_what_a_run_lacks_is_said_and_not_drawn(page: Path, folder: Path, tmp_path: Path) -> None:
    about, _, _ = inside(page)
    assert about["plots"]["decisions"]["item"] is not None
    assert "easy and easy-saf-saf have none" in about["plots"]["decisions"]["told"]
    assert about["plots"]["gap"]["item"] is not None
    out = tmp_path / "one.html"
    assert cli.run(["report", str(folder / "easy"), "--out", str(out)]) == 0
    about, _, text = inside(out)
    for name, reason in {
        "decisions": "Only whole replays were timed",
        "steps": "only CP dispatchers",
        "gap": "No decision of these runs has a proven bound",
        "users": "There is one run only",
    }.items():
        assert about["plots"][name]["item"] is None
        assert reason in about["plots"][name]["told"]
    assert "nothing to compare it with" in text


def test_times_of_decisions_are_by_the_length_of_the_queue() -> None:
    lengths, times = time_by_queue(
        np.array([1.0, 3.0, 10.0, 20.0, 30.0]), np.array([0.0, 1.0, 3.0, 4.0, 4.0])
    )
    assert lengths.tolist() == [1, 4]
    assert times[:, 0].tolist() == [2.0, 20.0]
    assert times[:, 2].tolist() == [3.0, 30.0]


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    log = write_log(tmp_path / "<script>alert(1)<!--DATA-->.swf", 20)
    out = tmp_path / "out.html"
    assert cli.run(["simulate", str(log), "--out", str(tmp_path / "runs")]) == 0
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert "<script>alert" not in out.read_text(encoding="utf-8")
    assert inside(out)[1]["id"].tolist() == list(range(1, 21))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.run(["report", *map(str, arguments)]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("cpdispatch: ")
    assert "Traceback" not in said
    return said


def test_a_page_replaces_no_file_of_a_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "run.json"
    kept.write_bytes((folder / "easy" / "run.json").read_bytes())
    assert "this file is no page" in refused(capsys, folder, "--out", kept)
    assert kept.read_bytes() == (folder / "easy" / "run.json").read_bytes()
    page = tmp_path / "page.html"
    for _ in range(2):  # a page may replace one
        assert cli.run(["report", str(folder / "easy"), "--out", str(page)]) == 0


def test_runs_of_different_logs_or_systems_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_log(tmp_path / "other.swf", 20)
    assert cli.run(["simulate", str(other), "--out", str(tmp_path / "other")]) == 0
    capsys.readouterr()
    out = tmp_path / "page.html"
    said = refused(capsys, folder / "easy", tmp_path / "other", "--out", out)
    assert "differ by their log: small and other" in said
    log = folder.parent / "small.swf"
    of_nine = tmp_path / "nine"
    assert cli.run(["simulate", str(log), "--system", "9", "--out", str(of_nine)]) == 0
    capsys.readouterr()
    assert "differ by their system: 8 and 9" in refused(
        capsys, folder / "easy", of_nine, "--out", out
    )
    changed = write_log(tmp_path / "small.swf", 30)
    again = ["simulate", str(changed), "-d", "sjf", "--out", str(tmp_path / "changed")]
    assert cli.run(again) == 0
    capsys.readouterr()
    assert "have other jobs" in refused(capsys, folder / "easy", tmp_path / "changed", "--out", out)
    assert not out.exists()


def test_what_is_no_run_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert "needs the folder of a run" in refused(capsys, "--out", out)
    assert "no such folder" in refused(capsys, tmp_path / "nowhere", "--out", out)
    assert not out.exists()
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "easy" / "jobs.parquet").write_bytes(b"")
    assert "jobs.parquet" in refused(capsys, damaged, "--out", out)
    assert inside(out)[0]["names"] == list(NAMES[1:])


def test_runs_with_two_limits_are_on_one_page(folder: Path, tmp_path: Path) -> None:
    log, page = folder.parent / "small.swf", tmp_path / "page.html"
    given = ["simulate", str(log), "-d", "easy", "--limit", "2s", "--out", str(tmp_path / "runs")]
    assert cli.run(given) == 0
    both = [str(folder / "easy"), str(tmp_path / "runs")]
    assert cli.run(["report", *both, "--out", str(page)]) == 0
    assert inside(page)[0]["names"] == ["easy (limit 1 s)", "easy (limit 2 s)"]


def test_a_page_over_draws_says_so(tmp_path: Path) -> None:
    log = write_log(tmp_path / "small.swf", 60)
    made = ["-d", "easy", "-d", "easy-saf-saf", "--shake", "6", "--cores", "1"]
    assert cli.run(["simulate", str(log), *made, "--out", str(tmp_path / "runs")]) == 0
    out = tmp_path / "page.html"
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    about, _, text = inside(out)
    assert about["names"] == ["easy", "easy-saf-saf"]
    assert "6 draws" in text
    assert "Figures of the runs: mean ± st. deviation of 6 draws" in text
    assert re.search(r"mean bounded slowdown [\d.]+ ± [\d.]+ [\d.]+ ± [\d.]+ ", text)
    assert "The other pictures are of one run of each, on the same jobs." in text


def test_runs_with_other_draws_are_told_as_compare_tells_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, page = tmp_path / "runs", tmp_path / "page.html"
    log = write_log(tmp_path / "small.swf", 80)
    made = ["-d", "easy", "-d", "easy-saf-saf", "--shake", "8", "--cores", "1"]
    assert cli.run(["simulate", str(log), *made, "--out", str(runs)]) == 0
    for draw in (0, 3):
        shutil.rmtree(runs / "easy-saf-saf" / f"draw-{draw}")
    assert cli.run(["report", str(runs), "--out", str(page)]) == 0
    about, columns, text = inside(page)
    submitted = Run.load(runs / "easy" / "draw-1").jobs["submit"]
    assert columns["submit"].tolist() == (submitted - about["begin"]).tolist()
    capsys.readouterr()
    assert cli.run(["compare", str(runs)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "8 draws: the log with submissions up to 59 s later and other seeds; the first" in printed
    )
    assert "6 draws: the log with submissions up to 59 s later and other seeds. " in printed + " "
    paired = "easy-saf-saf has 6 draws, easy 8: they are compared in the 6 that both have."
    assert paired in text
    assert paired in printed
    both = [
        [Run.load(runs / name / f"draw-{k}") for k in (1, 2, 4, 5, 6, 7)]
        for name in ("easy", "easy-saf-saf")
    ]
    easy, saf = (np.mean([run.metrics["wait_s_mean"] for run in of]) for of in both)
    assert f" {duration(saf)} {duration(easy)} " in text.split("all jobs")[1]
    slowdown = [np.mean([run.metrics["bounded_slowdown_mean"] for run in of]) for of in both]
    told = f"Under easy it is {slowdown[0]:,.2f} instead of {slowdown[1]:,.2f} in the draws that"
    assert told in text
    user = [np.mean([run.by_user()["1"]["wait_s_mean"] for run in of]) for of in both]
    assert f" {duration(user[1])} {duration(user[0])} " in text.split("user 1")[1]


def test_the_winner_over_draws_is_that_of_compare(folder: Path) -> None:
    def draws_of(run: Run, *slowdowns: float) -> list[RunSummary]:
        one = RunSummary.of(run)
        return [
            replace(
                one,
                about=one.about | {"draw": draw, "workload_sha256": f"{draw}"},
                metrics=one.metrics | {"bounded_slowdown_mean": slowdown},
            )
            for draw, slowdown in enumerate(slowdowns)
        ]

    easy, saf, _ = runs(folder)
    for first, other, paired in (
        (draws_of(easy, *[10] * 6, 100), draws_of(saf, *[11] * 6), "1.10"),
        (draws_of(easy, *[10] * 6, 100), draws_of(saf, *[10.01] * 6), "1.0010"),
    ):
        summaries = [*first, *other]
        ((_, rows),) = tables(summaries)
        assert compare.verdict(rows).startswith("easy has the lowest mean bounded slowdown")
        said = verdict(beside_best(summaries, rows))
        assert said.startswith("easy has the lowest mean bounded slowdown: 22.86. ")
        assert (
            f"it is {10 * float(paired):.2f} instead of 10.00 in the draws that both have: "
            f"{paired} times that of easy, with 95 % confidence {paired} to {paired} times"
        ) in said


def test_waits_beside_the_first_run_are_of_the_draws_that_both_have() -> None:
    figures = {
        "jobs": 20, "wait_s_mean": 900.0, "wait_s_mean_first": 100.0, "wait_s_mean_times": 0.5,
        "wait_s_mean_times_low": 0.4, "wait_s_mean_times_high": 0.6,
    }  # fmt: skip
    cells = "<td>20</td><td>50 s</td><td>100 s</td>"
    assert f'{cells}<td><span class="better">x0.50</span></td>' in line_of("all jobs", figures)
    figures["wait_s_mean_times_high"] = 1.1
    assert f'{cells}<td><span class="">(x0.50)</span></td>' in line_of("all jobs", figures)
    figures |= {"wait_s_mean_times": 1.001, "wait_s_mean_times_low": 1.0005}
    assert '<td><span class="">x1.00</span></td>' in line_of("all jobs", figures)


def test_a_page_whose_first_run_starts_nothing_says_so(tmp_path: Path) -> None:
    log, page = write_log(tmp_path / "small.swf", 20), tmp_path / "page.html"
    given = ["-d", "reject", "-d", "easy", "--cores", "1", "--out", str(tmp_path / "runs")]
    assert cli.run(["simulate", str(log), *given]) == 0
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(page)]) == 0
    about, _, text = inside(page)
    assert "No job started under reject, so no wait can be longer." in text
    assert "No known user has jobs that started under both" in text
    told = "No job of a known user started under reject, so waits of users cannot be compared."
    assert about["plots"]["users"]["told"] == told


def test_a_job_that_is_refused_does_not_wait(tmp_path: Path) -> None:
    log, page = write_log(tmp_path / "small.swf", 20), tmp_path / "page.html"
    assert cli.run(["simulate", str(log), "-d", "reject", "--out", str(tmp_path / "runs")]) == 0
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(page)]) == 0
    submitted, queued, used = in_node(
        page, "[...columns.submit]", "[...runs[0].queued]", "[...runs[0].used]"
    )
    assert queued == submitted
    assert used == submitted


def test_what_is_seen_of_longer_waits_has_its_limits(folder: Path) -> None:
    easy = RunSummary.of(runs(folder)[0])
    ((_, rows),) = tables([easy, replace(easy, about=easy.about | {"dispatcher": "same"})])
    assert longer(rows) == (
        "<p>No class of 10 jobs or more is seen to wait longer than under easy by more than a "
        "tenth and 60 s.</p>"
    )


def test_lost_attempts_and_groups_of_nodes_are_in_the_page(tmp_path: Path) -> None:
    log = write_log(tmp_path / "small.swf", 60)
    system = tmp_path / "two.toml"
    system.write_text(
        'resources = ["core", "gpu"]\nwatts = {core = 1000}\n'
        '[[groups]]\nname = "thin"\nnodes = 3\ncapacity = [2, 0]\n'
        '[[groups]]\nname = "fat"\nnodes = 1\ncapacity = [4, 1]\n'
    )
    made = ["--system", str(system), "--events", "exponential:mtbf=2d,repair=1h"]
    assert cli.run(["simulate", str(log), *made, "--out", str(tmp_path / "runs")]) == 0
    out = tmp_path / "page.html"
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    run = Run.load(tmp_path / "runs")
    assert run.attempt_table is not None
    attempts = run.attempt_table.to_pylist()
    assert attempts
    about, columns, text = inside(out)
    told = {"failures of nodes": "node_failures", "queued again": "requeues", "kWh": "energy_kwh"}
    for heading, key in told.items():
        assert f"{heading} {run.metrics[key]:,.0f} " in text
    summary = out.read_text(encoding="utf-8").split("In short</h2>")[1].split("</section>")[0]
    assert f"{run.metrics['node_failures']:,.0f}" in summary
    assert [group["nodes"] for group in about["groups"]] == [3, 1]
    begin = about["begin"]
    ids = columns["id"][columns["0/attempt_job"]]
    start = columns["0/attempt_start"] + begin
    end = start + columns["0/attempt_runtime"]
    assert list(zip(ids, start, end, strict=True)) == [
        (row["id"], row["start"], row["end"]) for row in attempts
    ]
    fat = [
        sum(units for node, units in zip(row["nodes"], row["node_units"], strict=True) if node == 3)
        for row in run.job_table.to_pylist()
    ]
    assert columns["0/group_1"].tolist() == fat
    assert (columns["0/group_0"] + columns["0/group_1"]).tolist() == columns["units"].tolist()
    assert len(columns["0/run_count"]) == 60 + len(attempts)


def test_a_missing_library_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    said = refused(capsys, folder)
    assert said.endswith(
        "this needs bokeh, which is not installed: pip install 'cpdispatch[report]'"
    )


def test_a_run_beside_draws_one_of_which_is_the_same_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, runs = tmp_path / "log.csv", tmp_path / "runs"
    rows = "".join(f"{k},{10 * k},50,60,{1 + k % 3},1\n" for k in range(1, 20))
    log.write_text("id,submit,runtime,requested,units,core\n" + rows)
    command = ["simulate", str(log), "--system", "4", "-d", "easy"]
    assert cli.run([*command, "--shake", "2", "--out", str(runs / "draws")]) == 0
    assert cli.run([*command, "--out", str(runs / "alone")]) == 0
    capsys.readouterr()
    assert cli.run(["report", str(runs), "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert "easy is there twice" in said
    assert "name only one of the folders that hold it" in said
