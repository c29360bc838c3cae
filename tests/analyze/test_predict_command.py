from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpdispatch.cli import run
from cpdispatch.cli.output import BAD_INPUT, DONE
from cpdispatch.errors import UsageError
from cpdispatch.jobs import Job
from cpdispatch.predict import PREDICTORS, Entry, Tables

# Job, submission, wait, runtime, processors, CPU, memory, processors, requested time, memory,
# status, user; 60 and 5 are submitted after 1 to 40 have ended.
LOG = """; MaxProcs: 4
1 0 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1
2 10 -1 300 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1
3 1000 -1 200 1 -1 -1 1 900 -1 1 1 1 -1 1 -1 -1 -1
4 1001 -1 7 9 -1 -1 9 900 -1 1 1 1 -1 1 -1 -1 -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.swf"
    path.write_text(LOG)
    return path


def call(*arguments: object) -> int:
    return run(["predict", *map(str, arguments), "--cores", "1"])


Told = Callable[..., Any]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """The one JSON object of a command line."""

    def told(*arguments: object) -> Any:
        assert call(*arguments, "--json") == DONE
        return json.loads(capsys.readouterr().out)

    return told


def of(told: Any, name: str) -> Any:
    """What is told of a predictor."""
    (row,) = [row for row in told["predictors"] if row["predictor"] == name]
    return row


class Odd:
    """Fails when asked, and has a table of its own."""

    name = "odd"

    def predict(self, job: Job, now: int) -> float:
        raise ZeroDivisionError

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""

    def report(self) -> Tables:
        """One table."""
        rows: list[dict[str, float | int | str | None]] = [
            {"week": "first", "jobs": 1234, "accuracy": 0.5},
            {"week": "second", "jobs": 0, "accuracy": None},
        ]
        return {"by week": rows}


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PREDICTORS, "odd", Entry("odd", lambda workload, seed: Odd()))  # type: ignore[arg-type]


def test_all_predictors_are_compared_by_what_was_worked_out_by_hand(log: Path, told: Told) -> None:
    found = told(log)
    told_of = {row["predictor"] for row in found["predictors"]}
    assert told_of | set(found["left_out"]) == set(PREDICTORS)
    assert {"walltime", "last2", "profile", "confident", "eloss", "actual"} <= told_of
    # Requested 200, 200, 900 for 100, 300, 200; job 2 starts at 100 and job 3 at 1000.
    accuracy = of(found, "walltime")["accuracy"]["all"]
    assert accuracy["absolute_error_s_mean"] == (100 + 100 + 700) / 3
    assert accuracy["error_s_mean"] == (100 - 100 + 700) / 3
    assert (accuracy["under_share"], accuracy["within_share"]) == (1 / 3, 0)
    # The user's last two runtimes are 100 and 300 when job 3 is submitted.
    assert of(found, "last2")["accuracy"]["short"]["error_s_mean"] == 0
    assert of(found, "actual")["accuracy"]["all"]["absolute_error_s_mean"] == 100 / 3
    assert found["limits"] == {
        "jobs that ran longer than they requested, which is the most that is predicted": 1
    }
    for row in found["predictors"]:
        assert (row["jobs"], row["jobs_never_started"], row["jobs_killed"]) == (3, 1, 0)
        assert (row["wait_s_mean"], row["wait_s_max"]) == (30, 90)
        assert row["classes"]["all"]["bounded_slowdown_mean"] == pytest.approx((1 + 1.3 + 1) / 3)
        assert row["accuracy"]["long"]["error_s_mean"] is None
    spent_us = {name: of(found, name)["prediction_us"] for name in ("eloss", "last2")}
    assert spent_us["eloss"] > 0
    assert spent_us["last2"] is None  # replayed in compiled code


def test_killed_jobs_are_counted_apart(
    log: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    row = of(told(log, "--kill-at-limit", "-p", "walltime"), "walltime")
    assert row["jobs_killed"] == 1
    assert row["accuracy"]["all"]["jobs"] == 2
    assert row["jobs"] == 3
    assert call(log, "--kill-at-limit", "-p", "walltime") == DONE
    note = "jobs ended before they were done, not among the above: 1"
    assert note in capsys.readouterr().out


def test_the_generated_sample_is_the_log_that_there_always_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("--jobs", 200, "-p", "walltime", "-p", "profile") == DONE
    out = capsys.readouterr().out
    assert [line.split()[:2] for line in out.splitlines()].count(["profile", "200"]) == 1
    for heading in ("medium, 1-5 h", "within", "|log|", "longest wait", "utilisation"):
        assert heading in out


@pytest.mark.parametrize(
    ("field", "value"), [(3, 0), (8, -1), (11, -1)], ids=["no runtime", "no request", "no user"]
)
def test_logs_that_lack_something_are_compared_and_it_is_told(
    field: int, value: int, tmp_path: Path, told: Told
) -> None:
    rows = [line.split() for line in LOG.splitlines()[1:]]
    for row in rows:
        row[field] = str(value)
    path = tmp_path / "lacking.swf"
    path.write_text("; MaxProcs: 4\n" + "\n".join(" ".join(row) for row in rows) + "\n")
    found = told(path)
    errors = {
        row["predictor"]: row["accuracy"]["all"]["absolute_error_s_mean"]
        for row in found["predictors"]
    }
    if field == 3:
        assert errors["actual"] == 0
    elif field == 8:
        assert errors["walltime"] == errors["actual"] == 0
        note = "repaired: requested time missing, the runtime stands in"
        assert of(found, "walltime")["repaired"] == {note: 4}
    else:
        assert found["limits"]["jobs without a user, whose past is unknown"] == 4
        assert errors["last2"] == errors["profile"] == errors["walltime"] == 300


def test_a_log_without_a_job_that_can_run_has_no_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.swf"
    path.write_text("; MaxProcs: 2\n" + LOG.splitlines()[1] + "\n")
    assert call(path) == DONE
    out = capsys.readouterr().out
    assert "walltime 0 - - - - - - -" in " ".join(out.split())
    assert "1 job never started" in out


def test_a_fault_is_told_once_and_a_predictors_own_tables_are_shown(
    odd: None, log: Path, capsys: pytest.CaptureFixture[str], told: Told
) -> None:
    assert call(log, "-p", "odd", "-p", "walltime") == DONE
    out = capsys.readouterr().out
    assert out.count("predictor odd, predict raised ZeroDivisionError (test_predict_command") == 1
    assert "): 3\n" in out
    assert "odd: by week" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["first", "1,234", "0.5"] in rows
    assert ["second", "0", "-"] in rows
    found = told(log, "-p", "odd", "-p", "walltime")
    assert of(found, "odd")["report"] == Odd().report()
    assert of(found, "odd")["accuracy"] == of(found, "walltime")["accuracy"]


def test_a_predictor_that_cannot_be_made_is_left_out_unless_it_is_asked_for(
    log: Path,
    told: Told,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(workload: object, seed: int) -> Any:
        raise UsageError("this needs a forest")

    monkeypatch.setitem(PREDICTORS, "needy", Entry("needs a forest", make))  # type: ignore[arg-type]
    found = told(log)
    assert found["left_out"]["needy"] == "this needs a forest"
    assert of(found, "actual")["jobs"] == 3
    assert call(log) == DONE
    assert "needy is left out: this needs a forest" in capsys.readouterr().out
    assert call(log, "-p", "needy") == BAD_INPUT
    assert capsys.readouterr().err == "cpdispatch: this needs a forest\n"


def test_tables_and_pictures_are_kept(
    odd: None, log: Path, tmp_path: Path, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    found = told(log, "-p", "odd", "-p", "last2", "--out", out)
    assert found.pop("out") == str(out)
    assert json.loads((out / "predictions.json").read_text()) == found
    with (out / "accuracy.csv").open() as file:
        rows = {(row["predictor"], row["class"]): row for row in csv.DictReader(file)}
    assert len(rows) == 8
    kept = rows["last2", "all"]["absolute_error_s_mean"]
    assert float(kept) == of(found, "last2")["accuracy"]["all"]["absolute_error_s_mean"]
    with (out / "ratios.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert last == {"ratio": "1000.0", "odd": "1.0", "last2": "1.0"}
    assert (out / "odd-by_week.csv").read_text().splitlines()[1] == "first,1234,0.5"
    for name in ("ratios", "errors", "slowdowns"):
        content = (out / f"{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000
    again = told(log, "-p", "odd", "-p", "last2", "--out", out)
    assert again["predictors"] == found["predictors"]  # even the seconds: nothing was replayed
    assert call(log, "-p", "last2", "--out", out) == BAD_INPUT
    assert "belongs to another campaign" in capsys.readouterr().err


class Ending:
    """Ends its replay, and the process in which that is made."""

    name = "ending"

    def predict(self, job: Job, now: int) -> float:
        os._exit(3)

    def learn(self, job: Job, runtime_s: int) -> None:
        pass


def test_a_predictor_whose_replay_fails_hides_no_other(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    ending = f"{__name__}:Ending"
    names = ["-p", "last2", "-p", ending, "-p", "walltime"]
    command = ["predict", str(log), *names, "--cores", "2"]
    assert run([*command, "--out", str(tmp_path / "out")]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert "last2" in out
    assert "walltime" in out
    assert "ending" not in out
    assert err.startswith(f"cpdispatch: 1 of 3 tasks failed: {ending}: ")
    with (tmp_path / "out" / "schedule.csv").open() as file:
        assert [row["predictor"] for row in csv.DictReader(file)] == ["last2", "walltime"]
    assert run([*command, "--json"]) == BAD_INPUT
    told = json.loads(capsys.readouterr().out)
    assert [row["predictor"] for row in told["predictors"]] == ["last2", "walltime"]
    assert list(told["failed"]) == [ending]


def test_pictures_are_drawn_where_there_are_no_figures(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    path = tmp_path / "large.swf"
    path.write_text("; MaxProcs: 2\n" + LOG.splitlines()[1] + "\n")
    assert call(path, "--out", out) == DONE
    assert (out / "slowdowns.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_matplotlib_is_told_before_the_work(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert call(log, "--out", tmp_path / "out") == BAD_INPUT
    assert "pip install 'cpdispatch[plot]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["LOG", "-p", "profil"], "unknown predictor 'profil'; did you mean profile?"),
        (["LOG", "-p", "last2", "-p", "last2"], "the same predictor is named twice"),
        (["LOG", "-d", "esy"], "unknown dispatcher 'esy'; did you mean easy?"),
        (["LOG", "--correction", "late"], 'Invalid value "late" for --correction'),
        (["LOG", "--correction", "refresh", "-p", "last2"], "last2 cannot be asked about running"),
        (["EMPTY"], "empty.swf"),
        (["none.swf"], "none.swf: no such file"),
        (["LOG", "--jobs", "0"], "--jobs 0: a whole number, 1 or more, is needed"),
        (["LOG", "--out", "LOG"], "tiny.swf"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: list[str],
    message: str,
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--out" in arguments:
        pytest.importorskip("matplotlib")
    (tmp_path / "empty.swf").write_text("; MaxProcs: 4\n")
    places = {"LOG": str(log), "EMPTY": str(tmp_path / "empty.swf")}
    assert call(*[places.get(argument, argument) for argument in arguments]) == BAD_INPUT
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert (out, line[:12]) == ("", "cpdispatch: ")
    assert message in line
