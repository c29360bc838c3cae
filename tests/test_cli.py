from __future__ import annotations

import ctypes
import errno
import fcntl
import gzip
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpdispatch import cli, instance, solution, verify
from cpdispatch.campaign import local
from cpdispatch.cli import options, output, signals
from cpdispatch.cli.options import ReplayOptions
from cpdispatch.simulator import Run

JOBS = ["--jobs", "300"]
MEASURED = {"seconds", "memory_mib_peak"}
LOG = """; MaxProcs: 4
1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1
2 3 -1 10 4 -1 -1 4 20 -1 1 2 1 -1 1 -1 -1 -1
3 5 -1 4 1 -1 -1 1 5 -1 1 2 1 -1 1 -1 -1 -1
4 6 -1 4 9 -1 -1 9 5 -1 1 2 1 -1 1 -1 -1 -1
"""
INSTANCE = {
    "format": "cpdispatch-instance/1", "time": 100, "resources": ["core", "gpu"],
    "groups": [{"name": "a", "nodes": 2, "capacity": [4, 1]}],
    "running": [{"id": 1, "start": 90, "duration": 30, "units": 1, "unit": [4, 0],
                 "nodes": {"0": 1}}],
    "queue": [{"id": 2, "submit": 95, "duration": 50, "units": 2, "unit": [2, 0]},
              {"id": 3, "submit": 96, "duration": 9, "units": 2, "unit": [1, 1]}],
}  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(LOG)
    return path


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_bytes(msgspec.json.encode(INSTANCE))
    return path


def test_names_and_locales_that_few_have(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "simulate", log, "-d", "easy", "--out", "[o]x")[0] == 0
    code, out, err = said(capsys, "compare", "[o]x")
    assert (code, err) == (0, "")
    assert "easy" in out
    done = subprocess.run(
        [*CPDISPATCH, "simulate", str(log), "-d", "easy", "--shake", "2", "--cores", "1"],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True,
    )  # fmt: skip
    assert rb"s \xb1 " in done.stdout


@pytest.mark.parametrize("option", ["--watch", "--plot"])
def test_folders_that_last_as_long_as_a_command_are_swept_if_it_is_killed(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = subprocess.run(
        [sys.executable, "-c", f"""if True:
            import os, sys, tempfile
            from cpdispatch.cli.simulate import _removed_folder
            tempfile.tempdir = {str(tmp_path)!r}
            print(_removed_folder({option!r}, None, ""), flush=True)
            os.kill(os.getpid(), 9)"""],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert Path(made.stdout.strip()).is_dir()
    local.sweep()
    assert not list(tmp_path.iterdir())


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def json(capsysbinary: pytest.CaptureFixture[bytes], *arguments: object) -> Any:
    assert cli.run([*(str(argument) for argument in arguments), "--json"]) == 0
    out = capsysbinary.readouterr().out
    assert out.count(b"\n") == 1
    return msgspec.json.decode(out)


def test_without_a_log_the_sample_is_replayed_and_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = said(capsys, "simulate", *JOBS, "-d", "easy", "-d", "easy-saf-spf")
    assert code == 0
    assert out.splitlines()[0].split() == ["easy", "easy-saf-spf"]
    assert "mean bounded slowdown" in out


@pytest.mark.parametrize("jobs", [30, 5_001])
def test_without_a_log_as_many_jobs_are_generated_as_are_wanted(
    jobs: int, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (run,) = json(capsysbinary, "simulate", "--jobs", str(jobs), "-d", "easy")["runs"]
    assert run["jobs"] == jobs


def test_a_runs_json_has_every_documented_key(
    log: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (run,) = json(capsysbinary, "simulate", log)["runs"]
    documented = {
        "dispatcher", "predictor", "jobs", "dropped", "wait_s_mean", "wait_s_max",
        "slowdown_mean", "bounded_slowdown_mean", "bounded_slowdown_p95", "utilisation",
        "backfilled", "decision_ms_mean", "decision_ms_p99", "decisions", "seconds",
        "classes", "users", "first",
    }  # fmt: skip
    assert documented <= set(run)
    assert (run["jobs"], run["jobs_never_started"]) == (3, 1)
    assert run["wait_s_mean"] == pytest.approx(7 / 3)


def test_jobs_that_never_fit_are_told_to_people(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, "simulate", log)
    assert "1 job never started: it asks for more than the system has" in " ".join(out.split())


def test_a_saved_run_verifies_and_compares(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert said(capsys, "simulate", log, "-d", "easy", "-d", "fifo", "--out", out)[0] == 0
    code, text, _ = said(capsys, "verify", "--run", out)
    assert (code, text.count(": feasible")) == (0, 2)
    code, text, _ = said(capsys, "compare", out / "easy", out / "fifo")
    assert code == 0
    assert text.splitlines()[0].split() == ["easy", "fifo"]


def test_a_tampered_run_is_found_out(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    said(capsys, "simulate", log, "--out", tmp_path / "out")
    path = tmp_path / "out" / "jobs.parquet"
    jobs = pq.read_table(path)
    start = jobs.column("start").to_pylist()
    at = jobs.column_names.index("start")
    pq.write_table(jobs.set_column(at, "start", pa.array([0, 3, *start[2:]])), path)
    code, text, _ = said(capsys, "verify", "--run", tmp_path / "out")
    assert code == 1
    assert "NOT feasible" in text
    assert "node 0" in text


def test_an_instance_is_solved_verified_and_told(
    problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answer.json"
    code, text, _ = said(capsys, "solve", problem, "-d", "easy", "--out", out)
    assert code == 0
    assert "now" in text
    assert "+50 s  (planned)" in text
    assert said(capsys, "verify", problem, out)[:2] == (0, f"{out}: feasible\n")
    answer = solution.load(out)
    assert {job.id: job.start for job in answer.jobs} == {2: 100, 3: 150}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (
            "TooEarly",
            "too early answered with an infeasible decision at time 100: early start: job",
        ),
        ("Leaves", "dispatcher leaves raised SystemExit: 0 (own_parts.py:"),
    ],
)
def test_an_answer_of_a_dispatcher_of_ones_own_is_verified_before_it_is_shown(
    name: str, what: str, problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "solve", problem, "-d", f"tests.own_parts:{name}")
    assert (code, out) == (2, "")
    assert err.startswith(f"cpdispatch: {what}")


@pytest.mark.parametrize(
    ("name", "limit_ms"),
    [
        ("hcp", 200), ("hcp:limit=0.05", 50), ("hcp:limit=40ms,wait=0.8", 40), ("hyper", 200),
        ("thesis-hcp1:limit=0.1", 100), ("easy", None), ("best", None),
        ("tests.own_parts:Mine", None),
    ],
)  # fmt: skip
def test_a_solution_says_the_limit_that_its_dispatcher_had(
    name: str, limit_ms: float | None, problem: Path, tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    out = tmp_path / "answer.json"
    more = ["--limit", "0.2s", "--out", out]
    (answer,) = json(capsysbinary, "solve", problem, "-d", name, *more)["solutions"]
    assert answer["limit_ms"] == solution.load(out).limit_ms == limit_ms


def test_a_dispatcher_that_fails_in_each_draw_keeps_no_other_from_its_runs(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, own = tmp_path / "out", "tests.own_parts:TooEarly"
    command = ["simulate", log, "-d", own, "-d", "easy", "--shake", 22, "--cores", 1, "--out", out]
    code, told, err = said(capsys, *command)
    assert code == 2
    assert "22 of 44 tasks failed" in err
    assert "not begun" not in err
    assert "easy" in told
    assert len(list(out.glob("easy/*/run.json"))) == 22


def test_a_dispatcher_that_calls_exit_hides_no_other(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "tests.own_parts:Leaves"
    code, out, err = said(capsys, "simulate", log, "-d", "easy", "-d", own, "--cores", 1)
    assert code == 2
    assert "easy" in out
    assert "1 of 2 tasks failed" in err
    assert "dispatcher leaves raised SystemExit: 0 (own_parts.py:" in err


def test_a_folder_of_instances_is_solved_into_a_folder(
    problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = tmp_path / "many" / "inner"
    inner.mkdir(parents=True)
    for name in ("one.json", "two.json", "old.solution.json", "best_known.json"):
        (inner / name).write_bytes(problem.read_bytes())
    out = tmp_path / "answers"
    code, text, _ = said(capsys, "solve", tmp_path / "many", "--model", "easy", "--out", out)
    assert (code, len(text.splitlines())) == (0, 2)
    assert sorted(p.name for p in out.iterdir()) == ["one.solution.json", "two.solution.json"]
    assert said(capsys, "verify", inner / "one.json", out / "one.solution.json")[0] == 0


def test_a_name_of_an_earlier_version_is_told_once_and_results_have_today_s(
    log: Path, problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = (
        "cpdispatch: dispatcher hcp3 is now called hcp; the old name will go with the next release"
    )
    options = ["-d", "hcp3:limit=0.5", "-d", "easy", "--out", tmp_path / "out", "--json"]
    code, text, err = said(capsys, "simulate", log, *options)
    assert (code, err.splitlines().count(told)) == (0, 1)
    assert [run["dispatcher"] for run in msgspec.json.decode(text)["runs"]] == [
        "hcp:limit=0.5", "easy"
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["easy", "hcp_limit_0.5"]
    again = tmp_path / "again.json"
    again.write_bytes(problem.read_bytes())
    code, _, err = said(capsys, "solve", problem, again, "--model", "hcp3")
    assert (code, err.splitlines().count(told)) == (0, 1)
    code, _, err = said(capsys, "simulate", log, "-d", "hcp3", "-d", "hcp")
    assert code == 2
    assert "the same dispatcher is named twice" in err


def test_the_other_instances_are_solved_when_one_is_bad(
    problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tmp_path / "many"
    many.mkdir()
    (many / "a.json").write_text("{")
    (many / "b.json").write_bytes(problem.read_bytes())
    (many / "c.json").write_bytes(problem.read_bytes().replace(b'"id":3', b'"id":-3'))
    out = tmp_path / "answers"
    arguments = ["solve", many, "-d", "easy", "--out", out]
    code, text, err = said(capsys, *arguments)
    assert code == 2
    assert [line.split(":")[0] for line in text.splitlines()] == [str(many / "b.json")]
    assert [line.split(": ")[1].removesuffix(":1") for line in err.splitlines()] == [
        str(many / "a.json"), str(many / "c.json"),
    ]  # fmt: skip
    assert [path.name for path in out.iterdir()] == ["b.solution.json"]
    code, text, err = said(capsys, *arguments, "--json")
    told = msgspec.json.decode(text)
    assert code == 2
    assert [row["file"] for row in told["solutions"]] == [str(many / "b.json")]
    assert [row["file"] for row in told["errors"]] == [str(many / "a.json"), str(many / "c.json")]
    assert [f"cpdispatch: {row['error']}" for row in told["errors"]] == err.splitlines()


@pytest.mark.parametrize("damage", ["run.json", "jobs.parquet", "decisions.parquet"])
def test_the_other_runs_are_verified_and_compared_when_one_is_damaged(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    out = tmp_path / "out"
    assert said(capsys, "simulate", log, "-d", "easy", "-d", "fifo", "--out", out)[0] == 0
    bad = out / "easy" / damage
    bad.write_bytes(bad.read_bytes()[:60])
    for arguments in (["verify", "--run", out], ["compare", out], ["compare", *out.iterdir()]):
        code, text, err = said(capsys, *arguments)
        assert code == 2
        assert "fifo" in text
        assert "easy" not in text
        assert err.startswith(f"cpdispatch: {bad}: ")
        assert err.count("\n") == 1
    told = msgspec.json.decode(said(capsys, "verify", "--run", out, "--json")[1])
    assert (told["feasible"], told["violations"]) == (False, {str(out / "fifo"): []})
    assert [row["file"] for row in told["errors"]] == [str(out / "easy")]
    told = msgspec.json.decode(said(capsys, "compare", out, "--json")[1])
    assert [run["dispatcher"] for run in told["runs"]] == ["fifo"]
    assert [row["file"] for row in told["errors"]] == [str(out / "easy")]


def test_a_wrong_solution_is_found_out(
    problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "answer.json"
    said(capsys, "solve", problem, "-d", "easy", "--out", out)
    out.write_bytes(out.read_bytes().replace(b'{"1":2}', b'{"0":2}'))
    code, text, _ = said(capsys, "verify", problem, out)
    assert code == 1
    assert "capacity" in text


@pytest.mark.parametrize("what", ["dispatchers", "models", "policies", "predictors", "systems"])
def test_what_can_be_named_is_listed(what: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    entries = json(capsysbinary, "list", what)[what]
    assert len(entries) >= 2
    assert all(entries.values())


@pytest.mark.parametrize(
    ("what", "parameters"),
    [("dispatchers", "[limit, m, objective]"), ("predictors", "[votes, window, calendar,")],
)
def test_a_list_names_the_parameters(
    what: str, parameters: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = said(capsys, "list", what)
    assert code == 0
    assert parameters in " ".join(text.split())


def test_instances_are_dumped_on_the_way(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    assert (
        cli.run(["simulate", str(log), "--dump-instances", str(folder), "--dump-every", "1"]) == 0
    )
    dumped = [instance.load(path) for path in sorted(folder.iterdir())]
    assert [i.now for i in dumped if len(i.queue)] == sorted(i.now for i in dumped)
    assert dumped[0].queue.id.tolist() == [1]


def test_a_run_too_short_for_a_dump_says_so(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "simulate", log, "--dump-instances", tmp_path / "dumps")
    assert code == 0
    assert "no instance of easy was dumped: it made 5 decisions, and one in 100 is dumped" in err
    command = ["simulate", log, "-d", "easy", "--out", tmp_path / "out"]
    assert said(capsys, *command)[0] == 0
    dumps = ("--dump-instances", tmp_path / "dumps", "--dump-every", 1)
    code, _, err = said(capsys, *command, "--resume", *dumps)
    assert code == 0
    assert "no instance of a run of easy was dumped that was finished before" in err
    assert not (tmp_path / "dumps").exists()


CHAIN = """; MaxProcs: 4
1 0 -1 10 2 -1 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1
2 3 -1 10 1 -1 -1 1 20 -1 1 2 1 -1 1 -1 1 5
3 4 -1 4 1 -1 -1 1 5 -1 1 2 1 -1 1 -1 2 -1
4 5 -1 4 1 -1 -1 1 5 -1 1 2 1 -1 1 -1 99 8
5 6 -1 4 1 -1 -1 1 5 -1 1 2 1 -1 1 -1 6 8
6 7 -1 9 1 -1 -1 1 9 -1 1 2 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.swf"
    path.write_text(CHAIN)
    return path


def test_a_log_s_dependencies_are_honoured_told_and_verified_only_on_request(
    chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code, text, _ = said(capsys, "simulate", chain, "--dependencies", "--out", out)
    assert code == 0
    assert "chain: ignored: preceding job is not in the log: 1" in text
    assert "chain: ignored: preceding job stands no earlier in the log: 1" in text
    run = Run.load(out)
    assert run.jobs["start"].tolist() == [0, 15, 25, 5, 6, 9]
    assert run.about["dependencies"] is True
    assert said(capsys, "verify", "--run", out)[:2] == (0, f"{out}: feasible\n")
    free = tmp_path / "free"
    code, text, _ = said(capsys, "simulate", chain, "--out", free)
    assert (code, "ignored" in text) == (0, False)
    run = Run.load(free)
    assert run.jobs["start"].tolist() == [0, 3, 4, 8, 10, 10]
    assert run.about["dependencies"] is False
    assert not {"preceding", "think_s"} & set(run.jobs.columns)
    assert said(capsys, "verify", "--run", free)[0] == 0
    _, text, _ = said(capsys, "compare", out, free)
    assert text.splitlines()[3].split() == ["dependencies", "4"]


def test_a_start_before_its_predecessor_s_end_and_think_time_is_found_out(
    chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pandas as pd

    out = tmp_path / "out"
    said(capsys, "simulate", chain, "--dependencies", "--out", out)
    jobs = pd.read_parquet(out / "jobs.parquet")
    jobs.loc[jobs["id"] == 2, ["start", "end"]] = [14, 24]
    jobs.to_parquet(out / "jobs.parquet")
    code, text, _ = said(capsys, "verify", "--run", out)
    assert code == 1
    assert text.splitlines() == [
        "dependency: job 2 starts at 14, allowed from 15 on: job 1 ends at 10, think time 5 s",
        f"{out}: NOT feasible",
    ]


def test_dumped_instances_carry_dependencies_and_the_starvation_bound(
    chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dumps"
    options = [
        "-d",
        "hcp",
        "--dependencies",
        "--starvation",
        "2s,1min",
        "--dump-instances",
        folder,
    ]
    assert said(capsys, "simulate", chain, *options, "--dump-every", 1)[0] == 0
    dumped = {i.now: i for i in (instance.load(path) for path in folder.iterdir())}
    assert all(i.starvation == instance.Starvation(2, 60) for i in dumped.values())
    queue = msgspec.json.decode(instance.to_json(dumped[4]))["queue"]
    assert [(job["after"], job.get("think")) for job in queue] == [([1], 5), ([2], None)]
    assert dumped[6].starved().tolist() == [True, False, False]
    assert "earliest" not in msgspec.json.decode(instance.to_json(dumped[4]))["queue"][0]
    queue = msgspec.json.decode(instance.to_json(dumped[10]))["queue"]
    assert queue[0]["earliest"] == 15


@pytest.mark.parametrize(
    ("text", "bound"),
    [("24h,2h", (86400, 7200)), ("90s, 30s", (90, 30)), ("5min,0", (300, 0)), ("1m,1m", (60, 60))],
)
def test_a_starvation_bound_is_two_durations(text: str, bound: tuple[int, int]) -> None:
    found = ReplayOptions(starvation=text).starvation_bound()
    assert found is not None
    assert (found.threshold_s, found.bound_s) == bound


# --------------------------------------------------------------------------------- who pays

# On one processor: user 2 submits ten jobs of 20,000 s, then user 1 ten of 3,000 s, all at once.
# fifo: they wait 90,000 s and 213,500 s in the mean; sjf: 120,000 s and 13,500 s.
QUEUE = "; MaxProcs: 1\n" + "".join(
    f"{k} 0 -1 {20_000 if k <= 10 else 3000} 1 -1 -1 1 20000 -1 1 {2 if k <= 10 else 1} "
    "1 -1 1 -1 -1 -1\n"
    for k in range(1, 21)
)
PAYS = [
    "sjf: long jobs wait 1.3 times as long as under fifo (33 h 20 instead of 25 h 00).",
    "sjf: the user that loses most waits 1.3 times as long as under fifo (33 h 20 instead of "
    "25 h 00).",
]


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    path = tmp_path / "queue.swf"
    path.write_text(QUEUE)
    return path


FIFO_SJF = ["-d", "fifo", "-d", "sjf", "--predict", "actual", "--cores", 1]


@pytest.mark.parametrize("seeds", [1, 2])
def test_who_waits_longer_is_printed(
    seeds: int, queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code, text, _ = said(capsys, "simulate", queue, *FIFO_SJF, "--seeds", seeds, "--out", out)
    assert code == 0
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "short jobs (< 1 h) 2 d 11 h 3 h 45 x0.06" in lines
    assert "medium jobs (1-5 h) - -" in lines
    assert "long jobs (> 5 h) 25 h 00 33 h 20 x1.33" in lines
    assert "users that lose most 33 h 20 x1.33" in lines
    assert "longest wait 2 d 15 h 2 d 10 h x0.93" in lines
    assert "below fifo's, but others pay: long jobs, the user that loses most." in " ".join(lines)
    assert [line for line in text.splitlines() if line.startswith("sjf: ")] == PAYS
    assert said(capsys, "compare", out)[1] == text
    code, verified, _ = said(capsys, "verify", "--run", out)
    assert (code, verified.count(": feasible")) == (0, 2 * seeds)


def test_compare_shows_the_waits_of_each_class_when_it_is_asked_to(
    queue: Path,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    assert cli.run(["simulate", str(queue), *map(str, FIFO_SJF), "--out", str(out)]) == 0
    capsysbinary.readouterr()
    assert cli.run(["compare", str(out)]) == 0
    short = capsysbinary.readouterr().out.decode().splitlines()
    assert cli.run(["compare", str(out), "--waits"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert set(short) <= set(lines)
    more = [" ".join(line.split()) for line in lines if line not in short]
    assert more[0] == "Waits under sjf instead of fifo"
    assert "narrow (<= 1/32) 0 - - - -" in more
    assert "wide (> 1/8) 20 18 h 32 42 h 09 x0.44 2 d 10 h 2 d 15 h x0.93" in more
    assert "user 2 10 33 h 20 25 h 00 x1.33 2 d 10 h 2 d 2 h x1.17" in more
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.run(["compare", str(out), "--waits"]) == 0
    narrow = capsysbinary.readouterr().out.decode().splitlines()
    assert set(lines) - set(short) - {""} <= set(narrow), "cells are folded or cut"
    monkeypatch.delenv("COLUMNS")
    _, sjf = json(capsysbinary, "compare", out)["runs"]
    assert sjf["widths"]["wide"]["wait_s_mean_times"] == pytest.approx(66_750 / 151_750)
    assert [user["user"] for user in sjf["users"]["each"]] == ["2"]
    of_width = msgspec.json.decode((out / "sjf" / "run.json").read_bytes())["widths"]
    assert of_width["wide"]["wait_s_max"] == sjf["widths"]["wide"]["wait_s_max"] == 210_000


def test_json_tells_who_waits_longer(
    queue: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    told = json(capsysbinary, "simulate", queue, *FIFO_SJF)
    assert [warning["text"] for warning in told["warnings"]] == PAYS
    assert told["warnings"][0] == {
        "workload": "queue", "dispatcher": "sjf", "who": "long jobs", "text": PAYS[0],
    }  # fmt: skip
    fifo, sjf = told["runs"]
    assert (fifo["first"], fifo["users"], sjf["first"]) == (None, None, "fifo")
    assert fifo["classes"]["medium"]["wait_s_mean"] is None
    assert sjf["classes"]["long"] == {
        "jobs": 10, "wait_s_mean": 120_000, "bounded_slowdown_mean": 7,
        "wait_s_mean_first": 90_000, "wait_s_mean_times": pytest.approx(4 / 3),
        "wait_s_max": 210_000, "wait_s_max_first": 180_000,
        "wait_s_max_times": pytest.approx(7 / 6),
    }  # fmt: skip
    (user,) = sjf["users"].pop("each")
    assert sjf["users"] == {
        "counted": 2, "losing": 1, "wait_s_mean": 120_000, "wait_s_mean_first": 90_000,
        "wait_s_mean_times": pytest.approx(4 / 3),
    }  # fmt: skip
    del sjf["classes"]["long"]["bounded_slowdown_mean"]
    assert user == {"user": "2", **sjf["classes"]["long"]}
    assert sjf["wait_s_mean_first"] == (90_000 + 213_500) / 2


def test_each_log_has_its_own_warnings_and_one_without_users_a_dash(
    queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = tmp_path / "nobody.swf"
    nobody.write_text(QUEUE.replace(" 1 2 1 -1", " 1 -1 1 -1").replace(" 1 1 1 -1", " 1 -1 1 -1"))
    _, text, _ = said(capsys, "simulate", queue, nobody, *FIFO_SJF)
    first, second = text.split("nobody on 1\n")
    assert [line for line in first.splitlines() if line.startswith("sjf: ")] == PAYS
    assert [line for line in second.splitlines() if line.startswith("sjf: ")] == PAYS[:1]
    assert "Users that lose most:" in first
    assert "Users that lose most:" not in second
    (line,) = (line for line in second.splitlines() if "users that lose most" in line)
    assert line.split()[-1] == "-"


def headings(capsys: pytest.CaptureFixture[str], *folders: Path) -> list[str]:
    code, text, _ = said(capsys, "compare", *folders)
    assert code == 0
    return text.splitlines()[0].split()


def test_the_runs_of_a_folder_are_compared_in_the_order_in_which_they_were_named(
    queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["simulate", queue, "--cores", 1, "--out", out]
    names = ["-d", "sjf", "-d", "fifo", "-d", "easy"]
    assert said(capsys, *options, *names)[0] == 0
    assert headings(capsys, out) == ["sjf", "fifo", "easy"]
    assert headings(capsys, out / "easy", out) == ["easy", "sjf", "fifo"]
    tables = {path: path.stat().st_ino for path in out.rglob("*.parquet")}
    again = ["-d", "fifo", "-d", "easy", "-d", "sjf"]
    assert said(capsys, *options, *again, "--resume")[0] == 0
    assert headings(capsys, out) == ["fifo", "easy", "sjf"]
    assert {path: path.stat().st_ino for path in tables} == tables
    assert said(capsys, "verify", "--run", out)[0] == 0


def test_runs_of_two_logs_of_one_name_are_not_compared(
    queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    said(capsys, "simulate", queue, "-d", "easy", "--out", first)
    queue.write_text("".join(queue.read_text().splitlines(keepends=True)[:-1]))
    said(capsys, "simulate", queue, "-d", "fifo", "--out", second)
    code, text, _ = said(capsys, "compare", first, second)
    assert code == 0
    titles = [line for line in text.splitlines() if ", jobs " in line]
    assert [title.split(", jobs ")[0] for title in titles] == [f"{queue.stem} on 1"] * 2
    assert "lowest mean bounded slowdown" not in text


def test_draws_of_two_commands_in_one_folder_are_not_mixed(
    queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for jobs in (3, 4):
        out = tmp_path / "out" / str(jobs)
        said(
            capsys, "simulate", queue, "-d", "easy", "--jobs", jobs, "--shake", 3, "--cores", 1,
            "--out", out,
        )  # fmt: skip
    code, text, _ = said(capsys, "compare", tmp_path / "out")
    assert code == 0
    assert [line.split() for line in text.splitlines() if line.startswith("jobs ")][::2] == [
        ["jobs", "3"],
        ["jobs", "4"],
    ]


def test_runs_that_an_earlier_version_saved_are_measured_against_easy(
    queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    names = ["-d", "conservative", "-d", "easy", "-d", "sjf"]
    said(capsys, "simulate", queue, *names, "--predict", "actual", "--cores", 1, "--out", out)
    for path in out.rglob("run.json"):
        about = msgspec.json.decode(path.read_bytes())
        del about["place"], about["classes"]
        path.write_bytes(msgspec.json.encode(about))
    assert headings(capsys, out) == ["easy", "conservative", "sjf"]
    _, text, _ = said(capsys, "compare", out)
    assert [line.replace("easy", "fifo") for line in text.splitlines() if "sjf: " in line] == PAYS


@pytest.mark.parametrize("left", ["checkpoint.pickle", "decisions.parquet"])
@pytest.mark.parametrize("command", ["compare", "verify", "explain"])
def test_a_run_that_is_not_over_beside_others_is_said_to_be_left_out(
    command: str, left: str, queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    names = ["-d", "easy", "-d", "fifo", "-d", "sjf"]
    said(capsys, "simulate", queue, *names, "--cores", 1, "--out", out)
    for path in (out / "fifo").iterdir():
        path.unlink()
    (out / "fifo" / left).touch()
    more = {"compare": [out], "verify": ["--run", out], "explain": [out, "--job", 1]}
    code, text, err = said(capsys, command, *more[command])
    assert code == 0
    assert "sjf" in text
    assert err == (
        f"cpdispatch: {out / 'fifo'}: left out, as the run is not over; if it was stopped, go on "
        "with it by --resume\n"
    )


# --------------------------------------------------------------------------------- campaigns


@pytest.fixture
def logs(log: Path, chain: Path) -> list[Path]:
    return [log, chain]


def untimed(run: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in run.items() if k not in MEASURED and not k.startswith("decision_ms")}


def test_logs_under_dispatchers_with_seeds_are_the_same_runs_on_one_core_and_on_two(
    logs: list[Path], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    all_of_them = ["simulate", *logs, "-d", "easy", "-d", "fifo", "--seeds", 2, "--seed", 5]
    one = json(capsysbinary, *all_of_them, "--cores", 1)["runs"]
    assert [(run["workload"], run["dispatcher"], run["seed"]) for run in one] == [
        (log.stem, name, seed) for log in logs for name in ("easy", "fifo") for seed in (5, 6)
    ]
    out = tmp_path / "out"
    two = json(capsysbinary, *all_of_them, "--cores", 2, "--out", out)["runs"]
    assert list(map(untimed, two)) == list(map(untimed, one))
    assert sorted(str(path.parent.relative_to(out)) for path in out.rglob("run.json")) == sorted(
        f"{log.stem}/{name}/seed-{seed}"
        for log in logs for name in ("easy", "fifo") for seed in (5, 6)
    )  # fmt: skip
    compared = json(capsysbinary, "compare", out)["runs"]
    assert sorted(map(str, map(untimed, compared))) == sorted(map(str, map(untimed, one)))


def test_a_campaign_is_told_a_table_a_log_with_the_mean_over_the_seeds(
    logs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["-d", "easy", "-d", "fifo", "--seeds", 2, "--cores", 1]
    code, out, err = said(capsys, "simulate", *logs, *options)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line for line in lines if " on " in line] == ["small on 4", "chain on 4"]
    assert [line.split() for line in lines].count(["of", "2", "seeds", "easy", "fifo"]) == 2
    assert lines.count("Each figure is the mean of 2 runs, one a seed.") == 2


def test_a_seed_draws_its_own_sample_and_the_mean_is_over_both(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    first, second = json(capsysbinary, "simulate", *JOBS, "-d", "easy", "--seeds", 2, "--cores", 1)[
        "runs"
    ]
    (other,) = json(capsysbinary, "simulate", *JOBS, "-d", "easy", "--seed", 1)["runs"]
    assert untimed(second) == untimed(other)
    assert cli.run(["simulate", *JOBS, "-d", "easy", "--seeds", "2", "--cores", "1"]) == 0
    mean = (first["bounded_slowdown_mean"] + second["bounded_slowdown_mean"]) / 2
    deviation = abs(first["bounded_slowdown_mean"] - mean) * 2**0.5
    assert f" {mean:.2f} ± {deviation:.2f}\n" in capsysbinary.readouterr().out.decode()


def test_the_dumps_of_runs_side_by_side_are_told_apart(
    logs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "dumps"
    options = ["--dump-instances", dumps, "--dump-every", 1, "--cores", 1]
    assert said(capsys, "simulate", *logs, *options)[0] == 0
    assert {path.parent.name for path in dumps.rglob("*.gz")} == {"small", "chain"}


MORTAL = """
import os, signal
from pathlib import Path
from cpdispatch.dispatch import make
class Mortal:
    name = "mortals.mortal:Mortal"
    def __init__(self):
        self.easy, self.calls = make("easy"), 0
    def dispatch(self, instance):
        self.calls += 1
        marker = Path(os.environ["MARKER"])
        if self.calls == 300 and (MODE == "always" or not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.easy.dispatch(instance)
"""


@pytest.mark.parametrize("mode", ["once", "always"])
def test_a_killed_run_of_a_campaign_is_done_again_and_named_if_that_is_of_no_use(
    mode: str, tmp_path: Path
) -> None:
    (tmp_path / "mortals").mkdir()
    (tmp_path / "mortals" / "mortal.py").write_text(MORTAL.replace("MODE", repr(mode)))
    out = tmp_path / "out"
    command = [*CPDISPATCH, "simulate", *JOBS, "--cores", "2", "--json", "--out", str(out)]
    command += ["-d", "mortals.mortal:Mortal", "-d", "easy"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MARKER": str(tmp_path / "marker")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert Run.load(out / "easy").metrics["jobs"] == 300
    if mode == "always":
        assert done.returncode == 2
        told = msgspec.json.decode(done.stdout)
        assert [run["dispatcher"] for run in told["runs"]] == ["easy"]
        assert list(told["failed"]) == ["eurora-sample, mortals.mortal:Mortal"]
        assert done.stderr.splitlines()[-1] == (  # before it, how much is done, each half minute
            "cpdispatch: 1 of 2 tasks failed: eurora-sample, mortals.mortal:Mortal: its worker "
            "was killed 3 times: it may have run out of memory; use fewer cores"
        )
    else:
        mortal, easy = msgspec.json.decode(done.stdout)["runs"]
        assert mortal["wait_s_mean"] == easy["wait_s_mean"]


def test_an_interrupted_campaign_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    slow = ["simulate", "-d", "conservative", "-d", "easy:depth=all"]
    slow += ["--jobs", "1000", "--cores", "2", "--json"]
    command = [*CPDISPATCH, *slow, "--out", str(out), "--checkpoint", "1ms"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while running.poll() is None and not list(out.rglob("checkpoint.pickle")):
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGINT)
    text, err = running.communicate()
    assert (running.returncode, text) == (130, "")
    # One of them may be done by now, or not yet begun.
    told = re.fullmatch(
        rf"cpdispatch: interrupted: ([01]) of 2 tasks are done; what was done is saved in {out}: "
        "add --resume to the same command to go on from there",
        err.splitlines()[-1],
    )
    assert told
    assert 1 - int(told[1]) <= len(list(out.rglob("checkpoint.pickle"))) <= 2 - int(told[1])
    rarely = [*command[:-1], "1min", "--resume"]
    done = subprocess.run(rarely, capture_output=True, check=True)
    whole = subprocess.run([*CPDISPATCH, *slow], capture_output=True, check=True)
    resumed, plain = (msgspec.json.decode(p.stdout)["runs"] for p in (done, whole))
    assert list(map(untimed, resumed)) == list(map(untimed, plain))
    assert not list(out.rglob("checkpoint.pickle"))


FAILING = """
from cpdispatch.dispatch import make
class Failing:
    name = "of_my_own.failing:Failing"
    def dispatch(self, instance):
        raise ZeroDivisionError("no way")
"""


@pytest.mark.parametrize("cores", [1, 2])
def test_a_failed_run_hides_no_other(
    cores: int, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:  # fmt: skip
    (tmp_path / "of_my_own").mkdir()
    (tmp_path / "of_my_own" / "failing.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = ["-d", "easy", "-d", "of_my_own.failing:Failing", "-d", "fifo"]
    command = ["simulate", str(log), *names, "--cores", str(cores)]
    assert cli.run(command) == 2
    out, err = (text.decode() for text in capsysbinary.readouterr())
    assert "easy" in out
    assert "fifo" in out
    assert "Failing" not in out
    raised = "dispatcher of_my_own.failing:Failing raised ZeroDivisionError: no way"
    failed = f"1 of 3 tasks failed: small, of_my_own.failing:Failing: {raised}"
    assert err.startswith(f"cpdispatch: {failed}")
    assert cli.run([*command, "--json"]) == 2
    told = msgspec.json.decode(capsysbinary.readouterr().out)
    assert [run["dispatcher"] for run in told["runs"]] == ["easy", "fifo"]
    (problem,) = told["failed"].values()
    assert problem.startswith(raised)


def test_a_resumed_campaign_makes_only_the_runs_that_are_missing(
    logs: list[Path], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = tmp_path / "out"
    options = [*logs, "-d", "easy", "-d", "fifo", "--cores", 1, "--out", out]
    json(capsysbinary, "simulate", *options)
    gone = out / "chain" / "fifo" / "run.json"
    kept = {path: path.stat().st_ino for path in out.rglob("*.parquet") if "fifo" not in str(path)}
    gone.unlink()
    runs = json(capsysbinary, "simulate", *options, "--resume")["runs"]
    assert len(runs) == 4
    assert gone.exists()
    assert {path: path.stat().st_ino for path in kept} == kept


def same_name(log: Path) -> list[object]:
    other = log.parent / "other" / log.name
    other.parent.mkdir()
    other.write_text(LOG)
    return ["simulate", log, other]


def same_folder(log: Path) -> list[object]:
    others = [log.with_name(name) for name in ("my log.swf", "my_log.swf")]
    for other in others:
        other.write_text(LOG)
    return ["simulate", *others]


def twice(log: Path) -> list[object]:
    files = [log.parent / folder / "same.json" for folder in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(msgspec.json.encode(INSTANCE))
    return ["solve", *files, "--out", log.parent / "out"]


def cut_short(log: Path) -> list[object]:
    path = log.with_suffix(".swf.gz")
    path.write_bytes(gzip.compress(log.read_bytes() * 50)[:-20])
    return ["simulate", path]


def in_use(log: Path) -> list[object]:
    out = log.parent / "out"
    cli.run(["simulate", str(log), "--out", str(out)])
    return ["simulate", log, "--out", out]


def about_a_list(log: Path) -> list[object]:
    out = log.parent / "out"
    cli.run(["simulate", str(log), "--out", str(out)])
    (out / "run.json").write_text("[1]")
    return ["compare", out]


def not_over(log: Path) -> list[object]:
    out = log.parent / "out" / "easy"
    out.mkdir(parents=True)
    (out / "checkpoint.pickle").touch()
    return ["verify", "--run", out.parent]


def empty(log: Path) -> list[object]:
    log.write_text("; MaxProcs: 4\n")
    return ["simulate", log]


def changed(field: str, value: object) -> Any:
    def make(log: Path) -> list[object]:
        data = msgspec.json.decode(msgspec.json.encode(INSTANCE))
        keys = field.split(".")
        target = data
        for key in keys[:-1]:
            target = target[int(key) if key.isdigit() else key]
        target[int(keys[-1]) if keys[-1].isdigit() else keys[-1]] = value
        path = log.with_name("bad.json")
        path.write_bytes(msgspec.json.encode(data))
        return ["solve", path]

    return make


def instance_as_log(log: Path) -> list[object]:
    log.write_bytes(msgspec.json.encode(INSTANCE))
    return ["simulate", log]


def log_as_policy(log: Path) -> list[object]:
    path = log.with_suffix(".toml")
    path.write_text(LOG)
    return ["simulate", log, "-d", path]


def again(*more: str) -> Callable[[Path], list[object]]:
    """Replace a finished run by one with further options."""

    def make(log: Path) -> list[object]:
        command = ["simulate", log, "-d", "easy", "--out", log.parent / "out"]
        assert cli.run([str(word) for word in command]) == 0
        return [*command, "--overwrite", *more]

    return make


OWN = [f"tests.own_parts:{name}" for name in ("Mine", "Mine2", "Says", "SaysHalf")]
THESIS = ["-d", "thesis-hcp"]
BAD = {
    "a price of energy that nothing draws": (again("--energy-price", "0.3"), "add watts to"),
    "a predictor that cannot be asked again": (
        again("--correction", "refresh"),
        "predictor walltime cannot be asked about running jobs",
    ),
    "windows for a rule that needs the log beside one that does not": (
        again("--window", "2", "-d", "hcp"),
        "hcp cannot be replayed by windows",
    ),
    "windows for a predictor that learns": (
        again("--window", "2", "--predict", "last2"),
        "predictor last2 cannot be replayed by windows",
    ),
    "windows beside a run of another level": (
        again("--window", "2", "-d", "fifo"),
        "there is a run in .*out, and this command would make one in",
    ),
    "a dispatcher twice by windows": (
        again("--window", "2", "-d", "easy"),
        "the same dispatcher is named twice: easy",
    ),
    "two dispatchers of one name": (
        lambda log: ["simulate", log, "-d", OWN[0], "-d", OWN[1]],
        "dispatchers tests.own_parts:Mine and .*Mine2 both have the name 'mine'",
    ),
    "two predictors of one name": (
        lambda log: ["predict", log, "-p", OWN[2], "-p", OWN[3]],
        "predictors tests.own_parts:Says and .*SaysHalf both have the name 'says'",
    ),
    "pictures in capitals": (
        lambda log: ["simulate", log, "--plot", log.parent / "runs.PDF"],
        "runs.PDF: write .pdf in lower case",
    ),
    "weeks in the place of their log": (
        lambda log: ["resample", log, "--weeks", "1", "--out", log],
        "--out .*small.swf: this would replace its own input",
    ),
    "jobs in the place of their log": (
        lambda log: ["generate", log, "--jobs", "9", "--out", log],
        "--out .*small.swf: this would replace its own input",
    ),
    "a table in the place of its log": (
        lambda log: ["whatif", log, "--system", "4", "--system", "5", "--csv", log],
        "--csv .*small.swf: this would replace its own input",
    ),
    "a solution in the place of its instance": (
        lambda log: [*changed("now", 0)(log), "--out", log.parent / "bad.json"],
        "--out .*bad.json: this would replace its own input",
    ),
    "an empty log": (empty, "small.swf: .*no job"),
    "a log that is cut short": (cut_short, "small.swf.gz: the gz data is damaged or cut short"),
    "a folder as a log": (lambda log: ["simulate", log.parent], "this is a directory"),
    "no such log": (lambda log: ["simulate", "nowhere.swf"], "nowhere.swf: no such file"),
    "an unknown dispatcher": (lambda log: ["simulate", log, "-d", "esy"], "did you mean easy"),
    "an unknown predictor": (lambda log: ["simulate", log, "--predict", "act"], "mean actual"),
    "an unknown system": (
        lambda log: ["simulate", log, "--system", "euora"],
        "did you mean eurora",
    ),
    "no processors": (lambda log: ["simulate", log, "--system", "0"], "must be 1 or more"),
    "a folder in use": (in_use, "holds another run: add --resume"),
    "resume without a folder": (lambda log: ["simulate", log, "--resume"], "need --out"),
    "resume and overwrite": (
        lambda log: ["simulate", log, "--out", log.parent, "--resume", "--overwrite"],
        "--resume and --overwrite cannot be combined: give --resume to go on",
    ),
    "a limit that is none": (lambda log: ["simulate", log, "--limit", "soon"], "not a duration"),
    "a bound without a threshold": (
        lambda log: ["simulate", log, "--starvation", "24h"],
        "THRESHOLD,BOUND, for example 24h,2h",
    ),
    "a bound that is no time": (
        lambda log: ["simulate", log, "--starvation", "24h,soon"],
        "'soon' is not a duration",
    ),
    "a bound of half a second": (
        lambda log: ["simulate", log, "--starvation", "24h,500ms"],
        "24h,500ms: whole seconds",
    ),
    "an endless threshold": (
        lambda log: ["simulate", log, "--starvation", "1e20s,5s"],
        "1e20s,5s: whole seconds",
    ),
    "a bound that binds nobody": (
        lambda log: ["simulate", log, "-d", "easy", "--starvation", "24h,2h"],
        "binds the plans of models, and easy is none.*threshold=24h",
    ),
    "a bound that a bare model breaks": (
        lambda log: ["simulate", log, "-d", "thesis-pcp3", "--starvation", "24h,2h"],
        "dispatcher thesis-pcp3 knows no starvation bound",
    ),
    "a limit without a unit": (
        lambda log: ["simulate", log, "--limit", "500"],
        "'500' has no unit: write 500s or 500ms",
    ),
    "checkpoints nowhere": (
        lambda log: ["simulate", log, "--checkpoint", "5s"],
        "--checkpoint needs --out",
    ),
    "dumping every so many nowhere": (
        lambda log: ["simulate", log, "--dump-every", "5"],
        "--dump-every needs --dump-instances",
    ),
    "no seeds": (
        lambda log: ["simulate", log, "--seeds", "0"],
        "--seeds 0: a whole number of draws, 1",
    ),
    "more seeds than anybody means": (
        lambda log: ["simulate", "--seeds", "10001"],
        "--seeds 10001: a whole number of draws, 10000 at",
    ),
    "more jobs than can be made": (
        lambda log: ["simulate", "--jobs", "50000001"],
        "jobs 50000001: a whole number, 50000000 at most",
    ),
    "a number of too many digits": (
        lambda log: ["simulate", log, "--jobs", "9" * 19],
        "--jobs: a whole number of 18 digits at most is needed",
    ),
    "a number with an underscore": (
        lambda log: ["simulate", log, "--jobs", "1_000"],
        r"a whole number is needed \(found '1_000",
    ),
    "a restart that costs too much": (
        lambda log: ["simulate", log, "--restartable", "all", "--restart-cost", "1e300s"],
        "--restart-cost 1e300s: too long",
    ),
    "restarts of no job": (
        lambda log: ["simulate", log, "-d", "easy", "--idempotent", "--restartable", "none"],
        "--idempotent and --restartable none: no job may be restarted; say which may",
    ),
    "a checkpoint that never comes": (
        lambda log: [
            "simulate",
            log,
            "--events",
            "exponential:mtbf=9h,repair=1h",
            "--checkpoints",
            "every=1e300h",
        ],
        "every=1e300h: '1e300h' is too long",
    ),
    "a negative seed": (
        lambda log: ["simulate", log, "-d", "best", "--seed", "-1"],
        "--seed: a whole number from 0 to 2000000000 is needed .found -1",
    ),
    "a seed that is too large": (
        lambda log: ["simulate", log, "--seed", "3000000000"],
        "(found 3000000000)",
    ),
    "less than no cores": (lambda log: ["simulate", log, "--cores", "-2"], "--cores -2: 1 or more"),
    "two logs of one name": (same_name, "two logs are named small"),
    "two logs of one folder": (
        same_folder,
        "the results of the logs my log and my_log would have the same folder, my_log",
    ),
    "an unknown dispatcher beside another": (
        lambda log: ["simulate", log, "-d", "easy", "-d", "esy", "--out", log.parent / "out"],
        "did you mean easy",
    ),
    "no jobs": (lambda log: ["simulate", log, "--jobs", "0"], "1 or more"),
    "a filter of generated jobs": (
        lambda log: ["simulate", "--filter", "strong"],
        "--filter strong is for logs, not for the generated jobs: name a log, or leave it out",
    ),
    "a filter of generated jobs to predict": (
        lambda log: ["predict", "--filter", "strong"],
        "--filter strong is for logs, not for the generated jobs",
    ),
    "a date without a clock": (lambda log: ["simulate", log, "--from", "2020-01-01"], "UnixStart"),
    "a date that is none": (lambda log: ["simulate", log, "--from", "may"], "2026-01-31"),
    "a dispatcher twice": (lambda log: ["simulate", log, "-d", "easy", "-d", "easy"], "twice"),
    "an unknown option": (lambda log: ["simulate", log, "--sytem", "4"], "--sytem"),
    "an unknown command": (lambda log: ["simulat", log], "simulat"),
    "an unknown resource": (changed("queue.0.unit", [1, 1, 1]), r"field queue\[0\].unit"),
    "a negative capacity": (changed("groups.0.capacity", [-4, 1]), r"groups\[0\].capacity.*-4"),
    "a node that is none": (changed("running.0.nodes", {"7": 1}), r"running\[0\].nodes.*'?7"),
    "overlapping running jobs": (changed("running.0.unit", [5, 0]), "overlap"),
    "an unknown key": (changed("colour", "red"), "colour"),
    "a reservation of no nodes": (
        changed("reservations", [{"start": 99, "duration": 5, "nodes": [], "capacity": [1, 0]}]),
        r"field reservations\[0\].nodes: a reservation needs a node or more \(found \[\]\)",
    ),
    "an instance whose bound a bare model breaks": (
        lambda log: changed("starvation", {"threshold": 2, "bound": 60})(log) + THESIS,
        "bad.json: field starvation: thesis-hcp knows no starvation bound; use hcp or pcp",
    ),
    "a log as an instance": (lambda log: ["solve", log], "it looks like a log in SWF"),
    "an instance as a log": (instance_as_log, "not a log in SWF; it looks like JSON"),
    "a log as a system": (
        lambda log: ["simulate", log, "--system", log],
        "looks like a log in SWF",
    ),
    "a log as a solution": (lambda log: ["verify", log, log], "it looks like a log in SWF"),
    "a log as a dispatcher": (
        log_as_policy,
        "it looks like a log in SWF; a dispatcher file is TOML",
    ),
    "half a draw": (
        lambda log: ["simulate", log, "--shake", "1.5"],
        r"Invalid value for --shake: a whole number is needed \(found '1.5'\)",
    ),
    "half a job": (lambda log: ["simulate", log, "--jobs", "0.5"], "for --jobs: a whole number"),
    "nothing to solve": (lambda log: ["solve"], "needs an instance file"),
    "a folder without instances": (lambda log: ["solve", log.parent], "there is no instance file"),
    "two solutions of one name": (twice, "two instances would have the solution file"),
    "nothing to verify": (lambda log: ["verify"], "INSTANCE SOLUTION or --run DIR"),
    "nothing to compare": (lambda log: ["compare"], "needs the folder"),
    "a run.json that is none": (
        about_a_list,
        r"run\.json: not the run\.json of a run: expected keys with values, found a list",
    ),
    "a folder without a run": (
        lambda log: ["compare", log.parent],
        r"holds no finished run \(run.json is missing\); name the folder that simulate was given",
    ),
    "a run that is not over": (
        not_over,
        r"no finished run \(run.json is missing\); the run in it is not over: .* by --resume",
    ),
    "a value that begins with a dash": (
        lambda log: ["simulate", log, "--limit", "-5s"],
        "-5s looks like an option; write --limit=-5s",
    ),
    "a path of a system that is not there": (
        lambda log: ["simulate", log, "--system", log.parent / "system.jsn"],
        r"system\.jsn: no such file",
    ),
    "a folder that is not there": (
        lambda log: ["compare", log.parent / "runz"],
        "runz: no such folder; name the folder that simulate was given as --out",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    case: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    make, complaint = BAD[case]
    arguments = make(log)
    capsys.readouterr()
    before = sorted(log.parent.rglob("*"))
    code, out, err = said(capsys, *arguments)
    assert code == 2, err
    assert out == ""
    assert err.startswith("cpdispatch: ")
    assert err.count("\n") == 1
    assert re.search(complaint, err), err
    assert sorted(log.parent.rglob("*")) == before


CPDISPATCH = [sys.executable, "-m", "cpdispatch"]


def test_json_is_there_as_soon_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        output.print_json({"cycle": 1})
        assert (tmp_path / "out").read_text() == '{"cycle":1}\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_full_disk_under_standard_output_is_one_clear_line() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [*CPDISPATCH, "list", "dispatchers"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    says = b"cpdispatch: standard output cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (2, says)


def test_too_little_memory_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def generate(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("cpdispatch.workloads.lublin.generate", generate)
    assert cli.run(["generate", "lublin", "--jobs", "9", "--out", str(tmp_path / "new.swf")]) == 2
    said = "there is not enough memory (Unable to allocate 7 TiB): ask for less, or for fewer jobs"
    assert capsys.readouterr().err == f"cpdispatch: {said}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", "NAME"], ["simulate", "NAME.swf"], ["simulate", "LOG", "--system", "NAME"],
        ["simulate", "LOG", "--out", "NAME"],
        ["simulate", "LOG", "--power-cap", "NAME"], ["compare", "NAME"], ["solve", "NAME"],
        ["verify", "--run", "NAME"], ["generate", "lublin", "--jobs", "5", "--out", "NAME.swf"],
    ],
)  # fmt: skip
def test_a_name_that_no_file_can_have_is_one_clear_line(
    command: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part.replace("NAME", "n" * 300).replace("LOG", str(log)) for part in command]
    assert cli.run(given) == 2
    said = capsys.readouterr().err
    assert said.startswith("cpdispatch: ")
    assert "n: " in said or "n.swf: " in said
    assert said.endswith("File name too long\n")
    assert said.count("\n") == 1


def test_a_folder_that_may_not_be_looked_into_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exists(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", exists)
        assert cli.run(["simulate", "--system", "closed"]) == 2
    assert capsys.readouterr().err == "cpdispatch: closed: Permission denied\n"


def test_a_full_disk_is_one_clear_line_and_leaves_nothing_half_written(
    log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
    code = limited + "from cpdispatch.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, "simulate", log, "--out", out],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert [path.name for path in out.iterdir()] == []


def test_an_interrupted_run_says_so_saves_itself_and_resumes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    slow = ["simulate", "-d", "conservative", "--jobs", "1200"]
    command = [*CPDISPATCH, *slow, "--out", str(out), "--checkpoint", "1ms"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not (out / "checkpoint.pickle").exists():
        time.sleep(0.005)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130
    assert "interrupted at" in err.splitlines()[-1]
    done = subprocess.run([*command, "--resume", "--json"], capture_output=True, check=True)
    whole = subprocess.run([*CPDISPATCH, *slow, "--json"], capture_output=True, check=True)
    (resumed,), (plain,) = (msgspec.json.decode(p.stdout)["runs"] for p in (done, whole))
    assert untimed(resumed) == untimed(plain)
    assert Run.load(out).metrics["jobs"] == 1200


SIGNALLED = """
import os, signal
from cpdispatch.dispatch import make
class Signalled:
    name = "signals.signalled:Signalled"
    calls = 0
    def __init__(self):
        self.easy = make("easy")
    def dispatch(self, instance):
        Signalled.calls += 1
        if Signalled.calls in CALLS:
            for _ in range(2):  # the second is the same wish, sent twice
                os.kill(os.getpid(), NUMBER)
        return self.easy.dispatch(instance)
"""
ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.fixture
def signalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """A dispatcher that has a signal sent to its process, at some of its decisions."""
    folder = tmp_path / "code" / "signals"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(folder.parent)

    def make(number: int, *calls: int) -> str:
        code = SIGNALLED.replace("NUMBER", str(int(number))).replace("CALLS", str(calls))
        (folder / "signalled.py").write_text(code)
        return "signals.signalled:Signalled"

    yield make
    for name in ("signals", "signals.signalled"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_signal_saves_the_run_and_says_how_it_goes_on(
    number: int, code: int, signalled: Callable[..., str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "out"
    command = ["simulate", *JOBS, "-d", signalled(number, 50), "--out", out]
    before = signal.getsignal(number)
    assert said(capsys, *command) == (code, "", (
        f"cpdispatch: interrupted at 17% of the log; what was done is saved in {out}: add "
        "--resume to the same command to go on from there\n"
    ))  # fmt: skip
    assert signal.getsignal(number) == before
    assert {path.name for path in out.iterdir()} == {"checkpoint.pickle", "log.pickle"}
    assert said(capsys, *command, "--resume")[0] == 0
    run = Run.load(out)
    assert verify.run(run.jobs, run.system) == []
    plain = tmp_path / "plain"
    assert said(capsys, "simulate", *JOBS, "-d", "easy", "--out", plain)[0] == 0
    assert run.job_table.equals(Run.load(plain).job_table)


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_signal_to_a_run_without_a_folder_says_that_nothing_was_saved(
    number: int, code: int, signalled: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys, "simulate", *JOBS, "-d", signalled(number, 50)) == (code, "", (
        "cpdispatch: interrupted at 17% of the log; nothing was saved, because there was no --out\n"
    ))  # fmt: skip


@pytest.mark.parametrize("out", [[], ["--out"]])
def test_a_signal_to_a_comparison_of_predictors_says_how_it_goes_on(
    out: list[str], signalled: Callable[..., str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if out:
        pytest.importorskip("matplotlib")
    folder = [*out, tmp_path / "out"][: 2 * len(out)]
    command = ["predict", *JOBS, "-p", "walltime", "-p", "last2", "--cores", 1]
    code, _, err = said(capsys, *command, "-d", signalled(signal.SIGTERM, 700), *folder)
    kept = "nothing was saved, because there was no --out"
    if out:
        kept = f"what was done is saved in {tmp_path / 'out'}: the same command goes on from there"
    assert (code, err) == (143, f"cpdispatch: interrupted: 1 of 2 tasks are done; {kept}\n")


def test_a_signal_to_solve_leaves_whole_solutions(
    problem: Path, signalled: Callable[..., str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, out = tmp_path / "problems", tmp_path / "out"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.json").write_bytes(problem.read_bytes())
    model = signalled(signal.SIGTERM, 2)
    code, _, err = said(capsys, "solve", folder, "--dispatcher", model, "--out", out)
    assert (code, err) == (143, (
        "cpdispatch: interrupted: 2 of 3 instances are looked at; the solutions so far are in "
        f"{out}; give the same command again to solve all instances\n"
    ))  # fmt: skip
    assert sorted(path.name for path in out.iterdir()) == ["a.solution.json", "b.solution.json"]
    answer = solution.load(out / "b.solution.json")
    assert verify.solution(instance.load(problem), answer) == []


STUCK = """
import os, signal, sys
class Stuck:
    name = "stucks.stuck:Stuck"
    def dispatch(self, instance):
        if instance.now > 1000:
            print("at it", flush=True)
            while True:
                signal.pause()
        from cpdispatch.dispatch import make
        return make("easy").dispatch(instance)
"""


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_second_signal_a_second_later_ends_a_run_at_once(
    number: int, code: int, tmp_path: Path
) -> None:
    (tmp_path / "stucks").mkdir()
    (tmp_path / "stucks" / "stuck.py").write_text(STUCK)
    command = [
        *CPDISPATCH,
        "simulate",
        *JOBS,
        "-d",
        "stucks.stuck:Stuck",
        "--out",
        str(tmp_path / "out"),
    ]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "at it\n"
    running.send_signal(number)
    time.sleep(signals.ONCE_S + 0.5)
    assert running.poll() is None
    running.send_signal(number)
    _, err = running.communicate()
    assert running.returncode == code
    assert err.splitlines()[-1] == "cpdispatch: interrupted"


def test_a_run_saves_itself_when_its_terminal_is_gone(tmp_path: Path) -> None:
    (tmp_path / "stucks").mkdir()
    (tmp_path / "stucks" / "stuck.py").write_text(
        STUCK.replace("while True:", "while os.isatty(0):").replace("signal.pause()", "pass")
    )
    out = tmp_path / "out"
    command = [*CPDISPATCH, "simulate", *JOBS, "-d", "stucks.stuck:Stuck", "--out", str(out)]
    outer, inner = os.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(inner, termios.TIOCSCTTY, 0)

    running = subprocess.Popen(
        command, cwd=tmp_path, stdin=inner, stdout=inner, stderr=inner, preexec_fn=take_terminal
    )
    os.close(inner)
    seen = b""
    while b"at it" not in seen:
        seen += os.read(outer, 1024)
    os.close(outer)
    assert running.wait() == 129
    assert {path.name for path in out.iterdir()} == {"checkpoint.pickle", "log.pickle"}


@pytest.mark.parametrize("names", [["-d", "easy"], ["-d", "easy", "-d", "fifo"]])
def test_a_terminal_sees_what_is_read_and_how_far_the_runs_are(names: list[str], log: Path) -> None:
    import pty

    terminal, behind = pty.openpty()
    command = subprocess.Popen(
        [*CPDISPATCH, "simulate", log, *names], stdout=subprocess.DEVNULL, stderr=behind,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(behind)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    assert command.wait() == 0
    assert f"reading {log}".encode()[:60] in shown
    assert b"starting" in shown
    assert b"checking names" in shown
    assert b"100 %" in shown
    assert b"so far" in shown


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.stoppable("kept") as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_help_and_version_need_no_heavy_library() -> None:
    heavy = ["numba", "ortools", "pandas", "pyarrow", "networkx"]
    code = (
        "import sys; from cpdispatch import cli\n"
        "for words in (['--help'], ['--version'], ['simulate', '--help']):\n"
        "    cli.run(words)\n"
        f"print('HEAVY', [name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_a_rule_needs_no_solver(log: Path) -> None:
    code = (
        "import sys; from cpdispatch import cli\n"
        f"cli.run(['simulate', {str(log)!r}, '-d', 'easy', '--cores', '1'])\n"
        "print('SOLVER', 'ortools' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "SOLVER False"


@pytest.mark.parametrize("many", ["--shake", "--seeds"])
def test_overwriting_leaves_nothing_of_the_earlier_runs(
    many: str, log: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = tmp_path / "runs"
    command = ["simulate", str(log), "-d", "easy", "-d", "conservative", "--out", str(out)]
    failing = tmp_path / "events.csv"
    failing.write_text("time,kind,nodes\n1,fail,0\n2,repair,0\n")
    assert cli.run([*command, many, "4", "--events", str(failing)]) == 0
    (out / "easy" / "draw-notes").mkdir()
    assert cli.run([*command, many, "3", "--overwrite"]) == 0
    made = {path.parent.name for path in out.glob("easy/*/run.json")}
    assert len(made) == 3
    assert {path.name for path in (out / "easy").iterdir()} == made | {"draw-notes"}
    left = {path.name for path in out.glob("*/*/*")}
    assert not left & {"events.csv", "attempts.parquet"}
    capsysbinary.readouterr()
    assert len(json(capsysbinary, "compare", str(out))["runs"]) == 6


@pytest.mark.parametrize(
    ("first", "then", "there", "planned"),
    [
        (["-d", "easy"], ["-d", "easy", "-d", "sjf"], "out", "out/easy"),
        (["-d", "easy", "-d", "sjf"], ["-d", "easy"], "out/easy", "out"),
        (
            ["-d", "easy", "-d", "sjf"], ["-d", "easy", "-d", "sjf", "--seeds", "2"],
            "out/easy", "out/easy/seed-0",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--resume", "--overwrite", "--json"])
def test_runs_of_other_levels_are_not_mixed(
    log: Path, capsys: pytest.CaptureFixture[str],
    first: list[str], then: list[str], there: str, planned: str, option: str,
) -> None:  # fmt: skip
    out = log.parent / "out"
    assert said(capsys, "simulate", log, *first, "--out", out, "--cores", "1")[0] == 0
    code, _, err = said(capsys, "simulate", log, *then, "--out", out, "--cores", "1", option)
    assert code == 2
    assert f"there is a run in {log.parent / there}, and this command would make one in" in err
    assert str(log.parent / planned) in err


def test_another_run_in_the_folder_is_told_by_the_name_of_what_differs(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", log.parent / "out")
    assert said(capsys, "simulate", log, "-d", "easy", *out)[0] == 0
    for more, says in (
        (["--kill-at-limit"], "its kill at limit is False, not True"),
        (["--limit", "2s"], "its limit is 1.0, not 2.0"),
        (["--jobs", "2"], "its jobs are others (another log, or another part of it)"),
    ):
        _, _, err = said(capsys, "simulate", log, "-d", "easy", *out, "--resume", *more)
        assert says in err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_a_call_from_c_ends_the_command_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []

    def lost(*_: object) -> int:
        called.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        return 0

    read = options.LogOptions.read

    def reading(self: options.LogOptions, *how: Any) -> object:
        values = (ctypes.c_int * 2)(2, 1)
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lost)
        ctypes.CDLL(None).qsort(values, 2, ctypes.sizeof(ctypes.c_int), compare)
        return read(self, *how)

    monkeypatch.setattr(options.LogOptions, "read", reading)
    code = cli.run(["simulate", "--jobs", "20", "-d", "easy"])
    assert called
    assert code == 128 + signal.SIGINT
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["log [of] kth", "log:x:", "log[1-10]"])
def test_names_with_brackets_and_colons_are_printed_as_they_are(
    log: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = log.with_name(f"{name}.swf"), log.parent / "out"
    log.rename(path)
    assert said(capsys, "simulate", path, "-d", "easy", "--out", out)[0] == 0
    for command in (["compare"], ["status", "--at", "5"], ["explain", "--job", "1"]):
        code, printed, _ = said(capsys, *command[:1], out, *command[1:])
        assert code == 0
        assert (f"({name} on" in printed) == (command[0] != "compare")
    code, printed, _ = said(capsys, "generate", "lublin", "--jobs", "3", "--out", f"{out}[b].swf")
    assert (code, printed.startswith(f"{out}[b].swf: 3 jobs in")) == (0, True)


def test_a_terminal_breaks_sentences_between_words(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    for terminal, lines in ((True, ["one two", "three"]), (False, ["one two three"])):
        console = Console(width=9, force_terminal=terminal, color_system=None)
        output.print_sentence(console, "one two three")
        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == lines


def test_commands_to_copy_have_names_with_spaces_in_quotes() -> None:
    assert output.command_line("verify", "--run", Path("a b")) == "cpdispatch verify --run 'a b'"
