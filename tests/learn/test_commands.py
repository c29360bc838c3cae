from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cma")
pytest.importorskip("statsmodels")
pytest.importorskip("matplotlib")

from cpdispatch.cli import run
from cpdispatch.cli.output import BAD_INPUT, DONE
from cpdispatch.jobs import Column
from cpdispatch.learn import tune
from cpdispatch.learn.weeks import consecutive, halves
from cpdispatch.workloads import swf
from tests.learn.cases import WEEK_S, bursts

TUNE = ("tune", "LOG", "--weeks", "2", "--policies", "fcfs,spf", "--thresholds", "none,2h")
MIXED = ("learn", "mixed", "LOG", "--evaluations", "14")
REGRESS = (
    "learn", "regress", "LOG", "--pairs", "6", "--orders", "50", "--running", "3", "--queued", "8",
    "--tests", "1",
)  # fmt: skip
FILES = {TUNE: "policy.toml", MIXED: "policy.toml", REGRESS: "lin.toml"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "bursts.swf"
    swf.write(bursts(4, 4), path)
    return path


def call(log: Path, command: tuple[str, ...], *more: str) -> int:
    given = [str(log) if word == "LOG" else word for word in command]
    return run([*given, "--system", "4", "--cores", "1", *more])


@pytest.mark.parametrize("command", FILES, ids=lambda words: " ".join(words[:2]))
def test_what_is_learned_can_be_simulated(
    command: tuple[str, ...], log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert call(log, command, "--out", str(out)) == DONE
    assert str(out) in capsys.readouterr().out.replace("\n", "")
    policy = str(out / FILES[command])
    assert run(["simulate", str(log), "--system", "4", "-d", policy, "--json"]) == DONE
    (told,) = json.loads(capsys.readouterr().out)["runs"]
    assert told["dispatcher"] == policy


@pytest.mark.parametrize("command", FILES, ids=lambda words: " ".join(words[:2]))
def test_json_is_one_object_and_the_same_for_the_same_seed(
    command: tuple[str, ...], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for seed in ("1", "1", "2"):
        assert call(log, command, "--seed", seed, "--json") == DONE
        told.append(json.loads(capsys.readouterr().out))
        told[-1].pop("orders_per_s", None)
    assert told[0] == told[1] != told[2]
    assert told[0]["log"] == "bursts"


@pytest.mark.parametrize("command", [TUNE, MIXED], ids=lambda words: " ".join(words[:2]))
def test_jobs_of_an_incomplete_last_week_are_told(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = bursts(4, 4)
    submit_s = jobs.table.submit_s - jobs.table.submit_s[0]
    jobs = jobs.take(np.flatnonzero(submit_s < 3.6 * WEEK_S))
    parts = halves(jobs)
    lost = {half: len(part) - sum(map(len, consecutive(part))) for half, part in parts.items()}
    assert min(lost.values()) > 1
    path = tmp_path / "short.swf"
    swf.write(jobs, path)
    assert call(path, command) == DONE
    told = capsys.readouterr().out
    for half, name in (("train", "training"), ("test", "test")):
        what = f"left out: submitted in an incomplete last week of the {name} half"
        assert f"{what}: {lost[half]} jobs" in told
    assert call(path, command, "--json") == DONE
    assert json.loads(capsys.readouterr().out)["left_out"] == lost


def test_the_same_command_goes_on_and_another_one_is_refused(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "out"))
    assert call(log, TUNE, *out) == DONE
    first = capsys.readouterr().out
    assert call(log, TUNE, *out) == DONE
    assert capsys.readouterr().out == first
    assert call(log, TUNE, *out, "--objective", "slowdown") == DONE  # only picks anew
    capsys.readouterr()
    assert call(log, TUNE, *out, "--seed", "3") == BAD_INPUT
    assert "belongs to another campaign: its seed is 0, not 3" in capsys.readouterr().err
    words = [str(log) if word == "LOG" else word for word in (*TUNE, *out)]
    assert run([*words, "--system", "5", "--cores", "1"]) == BAD_INPUT
    assert "its system is" in capsys.readouterr().err


def test_a_week_that_fails_is_told_with_where_the_others_are_kept(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, calls = tune._measured, []

    def failing_once(common: object, week: object) -> object:
        calls.append(week)
        if len(calls) == 2:
            raise ZeroDivisionError("no way")
        return measured(common, week)  # type: ignore[arg-type]

    failing_once.__module__, failing_once.__qualname__ = measured.__module__, measured.__qualname__
    monkeypatch.setattr(tune, "_measured", failing_once)
    out = tmp_path / "out"
    assert call(log, TUNE, "--out", str(out)) == BAD_INPUT
    err = capsys.readouterr().err
    assert "1 of 4 tasks failed: tune-00001: ZeroDivisionError: no way" in err
    assert f"what was done is saved in {out}: the same command goes on from there" in err
    assert call(log, TUNE, "--out", str(out)) == DONE
    assert len(calls) == 5


def test_a_week_without_a_job_that_fits_is_not_compared(tmp_path: Path) -> None:
    weeks = bursts(6, 4)
    week = (weeks.table.submit_s - weeks.table.submit_s[0]) // WEEK_S
    units = np.where(week == 3, 64, weeks.table.units)
    path = tmp_path / "weeks.swf"
    swf.write(replace(weeks, table=weeks.table.having(Column.UNITS, units)), path)
    assert call(path, (*REGRESS[:-1], "3")) == DONE


def test_lublin_is_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--pairs", "4", "--orders", "20", "--tests", "1", "--jobs", "200", "--cores", "1")
    assert run(["learn", "regress", "lublin", *small, "--json"]) == DONE
    told = json.loads(capsys.readouterr().out)
    assert told["log"] == "lublin-256"
    assert told["samples"] == 4 * 32


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("tune", "LOG", "--weeks", "0"), "--weeks 0: a whole number, 1 or more, is needed"),
        (("tune", "LOG", "--policies", "saff"), "unknown policy 'saff'; did you mean saf?"),
        (("tune", "LOG", "--thresholds", "1.5s"), "threshold 1.5s: whole seconds are needed"),
        (("tune", "LOG", "--thresholds", "20"), "no unit: write 20s, or use min, h or d"),
        (("tune", "LOG", "--thresholds", "soon"), "'soon' is not a duration"),
        (("tune", "LOG", "--thresholds", "none,5h,5h"), "--thresholds names 5h twice"),
        (("tune", "LOG", "--policies", "spf,FCFS,fcfs"), "--policies names fcfs twice"),
        (("tune", "LOG", "--jobs", "9"), "the log spans 0.0 days: a week to learn on"),
        (
            ("learn", "mixed", "LOG", "--evaluations", "0"),
            "--evaluations 0: a whole number, 13",
        ),
        (
            ("learn", "regress", "LOG", "--tests", "0"),
            "--tests 0: a whole number, 1 or more",
        ),
        (
            ("learn", "regress", "LOG", "--pairs", "0"),
            "--pairs 0: a whole number, 1 or more",
        ),
        (("learn", "regress", "LOG", "--pairs", "10000001"), "whole number, 10000000 at most"),
        (
            ("learn", "regress", "LOG", "--tests", "1001"),
            "--tests 1001: a whole number, 1000",
        ),
        (
            (*REGRESS[:5], "--orders", "1", *REGRESS[7:]),
            "are equal, so that nothing can be learned from them: try more than 1 orders or 6",
        ),
        (("tune", "lublin", "--filter", "strong"), "are for logs, not for lublin"),
        (("tune", "lublin", "--jobs", "0"), "jobs 0: a whole number, 1 or more, is needed"),
        (("learn", "mixed", "none.swf"), "none.swf: no such file"),
    ],
)
def test_what_cannot_be_learned_is_one_clear_error(
    command: tuple[str, ...], message: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(log, command) == BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cpdispatch: ")
    assert message in line


def test_pictures_that_cannot_be_drawn_are_told_before_the_work(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert call(log, TUNE, "--out", str(tmp_path / "out")) == BAD_INPUT
    assert "pip install 'cpdispatch[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
