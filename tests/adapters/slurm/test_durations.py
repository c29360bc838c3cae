"""Durations of a live Slurm's jobs: predicted at submission, learned from ends."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cpdispatch import cli, dispatch
from cpdispatch.adapters.slurm import accounting
from cpdispatch.adapters.slurm import durations as of_slurm
from cpdispatch.adapters.slurm.cluster import job_of, read
from cpdispatch.adapters.slurm.drive import Driver
from cpdispatch.adapters.slurm.durations import NAME, Durations
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.adapters.slurm.watch import watch
from cpdispatch.errors import UsageError
from cpdispatch.jobs import Job
from tests.adapters.slurm.recorded import Recorded
from tests.adapters.slurm.test_recorded import of_recording, served

SACCT = """\
JobID|Submit|Start|End|ElapsedRaw|State|Timelimit|ReqTRES|User|Account|QOS|Partition|JobName
1001|2026-01-05T10:00:00|2026-01-05T10:01:00|2026-01-05T10:02:40|100|COMPLETED|01:00:00|\
cpu=4,mem=1000M,node=1|nobody|a|normal|main|wrap
1002|2026-01-05T10:01:30|2026-01-05T10:03:00|2026-01-05T10:08:00|300|FAILED|01:00:00|\
cpu=4,mem=1000M,node=1|nobody|a|normal|main|wrap
1003|2026-01-05T10:08:00|2026-01-05T10:30:01|2026-01-05T10:30:41|40|TIMEOUT|00:01:00|\
cpu=4,mem=1000M,node=1|nobody|a|normal|main|wrap
1004|2026-01-05T10:31:00|Unknown|Unknown|0|PENDING|01:00:00|cpu=1,node=1|nobody|a|normal|main|x
"""


class Spy:
    """Says what it was told last, and writes down who told what."""

    name = "spy"

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []
        self.last_s = 1_000_000

    def predict(self, job: Job, now: int) -> float:
        self.heard.append(("predict", job.id, now))
        return self.last_s

    def learn(self, job: Job, runtime_s: int) -> None:
        self.heard.append(("learn", job.id, runtime_s))
        self.last_s = runtime_s


@pytest.fixture
def slurm() -> Recorded:
    return Recorded.load()


def predicted(folder: Path, history: Path | None = None, name: str = "last2") -> Durations:
    given = [str(history)] if history is not None else []
    return Durations(name, 0, folder, accounting.history(given).records)


def dumped(folder: Path, text: str = SACCT) -> Path:
    path = folder / "sacct.psv"
    path.write_text(text)
    return path


def spied(made: Durations) -> Spy:
    spy = made._guard.predictor
    assert isinstance(spy, Spy)
    return spy


def test_history_is_told_in_the_order_of_time(slurm: Recorded, tmp_path: Path) -> None:
    made = predicted(tmp_path, dumped(tmp_path), "tests.adapters.slurm.test_durations:Spy")
    made.see(read(slurm))
    begin = [(what, id) for what, id, _ in spied(made).heard[:6]]
    # The second was submitted before the first had ended.
    assert begin == [
        ("predict", 1), ("predict", 2), ("learn", 1), ("learn", 2), ("predict", 3), ("learn", 3),
    ]  # fmt: skip
    quality = made.quality
    assert (quality.jobs, quality.under, quality.requested_under) == (3, 0, 0)
    assert quality.error_s == (3600 - 100) + (3600 - 300) + (60 - 40)
    assert quality.requested_error_s == quality.error_s


def test_what_ends_after_now_is_not_learned(slurm: Recorded, tmp_path: Path) -> None:
    made = predicted(tmp_path, dumped(tmp_path, SACCT.replace("2026-", "2027-")))
    made.see(read(slurm))
    assert made.quality.jobs == 0


def test_ends_are_learned_once_and_show_in_what_is_decided(slurm: Recorded, tmp_path: Path) -> None:
    made = predicted(tmp_path, name="tests.adapters.slurm.test_durations:Spy")
    driver = Driver(slurm, dispatch.make("easy"), tmp_path, Rules(), made)
    for _ in range(40):
        driver.cycle()
        slurm.step()
    learned = [id for what, id, _ in spied(made).heard if what == "learn"]
    ended = [row for row in slurm.data["jobs"] if row["job_state"] == "COMPLETED"]
    assert len(learned) == len(set(learned)) == len(ended) > 10
    assert made.quality.jobs == len(ended)
    # One that has ended may be asked about, by the shadow simulation: it is not learned again.
    said = [made.of(job_of(row), 60) for row in ended]
    driver.cycle()
    assert made.quality.jobs == len(ended)
    assert said == [made.of(job_of(row), 60) for row in ended]
    # A new job is expected to last as long as the last one did; its limit is known beside that.
    slurm.data["jobs"].append(slurm.row(4) | {"job_id": 300, "submit_time": slurm.now_s(),
                                              "priority": 7, "admin_comment": ""})  # fmt: skip
    queue = watch(slurm, dispatch.make("easy"), Rules(), made).instance.queue
    position = queue.id.tolist().index(300)
    assert queue.expected_s[position] == spied(made).last_s < queue.requested_s[position]


def test_a_running_job_that_outlives_its_prediction_is_corrected(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = predicted(tmp_path, name="tests.adapters.slurm.test_durations:Spy")
    made.see(read(slurm))
    spied(made).last_s = 5
    row = slurm.row(9) | {"job_id": 400, "job_state": "RUNNING", "start_time": slurm.now_s()}
    row["job_resources"] = slurm.row(1)["job_resources"]
    slurm.data["jobs"].append(row)
    ends = []
    for step_s in (0, 4, 60, 200):
        slurm.data["now_s"] += step_s
        running = watch(slurm, dispatch.make("easy"), Rules(), made).instance.running
        position = running.jobs.id.tolist().index(400)
        ends.append(int(running.end_s[position] - running.start_s[position]))
        assert running.jobs.requested_s[position] == slurm.row(9)["time_limit"] * 60
    assert ends == [5, 5, 65, 300]  # the last one is its limit


def test_a_restart_knows_what_was_known(slurm: Recorded, tmp_path: Path) -> None:
    def run(folder: Path, restarts: bool) -> tuple[Any, ...]:
        site, made = Recorded(slurm.data), predicted(folder, name="profile")
        driver = Driver(site, dispatch.make("easy"), folder, Rules(), made)
        for cycle in range(12):
            driver.cycle()
            site.step()
            if restarts and cycle % 3 == 0:
                made.save()
                made = predicted(folder, name="profile")
                driver = Driver(site, dispatch.make("easy"), folder, Rules(), made)
        made.see(read(site))
        made.save()
        said = {key: (each.past.expected_s, each.past.upper_s) for key, each in made._open.items()}
        return made.quality, said, sorted(site.began)

    whole = run(tmp_path / "whole", False)
    assert whole[0].jobs > 5
    assert run(tmp_path / "parts", True) == whole


def test_what_was_said_of_a_job_holds_after_a_restart(slurm: Recorded, tmp_path: Path) -> None:
    made = predicted(tmp_path)
    made.see(read(slurm))
    text = (tmp_path / NAME).read_text()
    kept = json.loads(text)
    for past in kept["jobs"]:
        past["expected_s"] = 77
    (tmp_path / NAME).write_text(json.dumps(kept))
    for name, expected_s in (("last2", 77), ("walltime", 300)):
        again = predicted(tmp_path, name=name)
        again.see(read(slurm))
        assert again._open["9"].past.expected_s == expected_s


def test_a_job_that_the_accounting_knows_and_slurm_shows_is_learned_once(
    slurm: Recorded, tmp_path: Path
) -> None:
    end_s = slurm.now_s()
    slurm.row(9).update(job_state="COMPLETED", start_time=end_s - 100, end_time=end_s,
                        submit_time=end_s - 100, nodes="n09")  # fmt: skip
    # 40 s of the time it was suspended.
    line = f"9|{end_s - 100}|{end_s - 100}|{end_s}|60|COMPLETED|01:00:00|cpu=1,node=1|u|a|q|main|x"
    dump = dumped(tmp_path, SACCT.splitlines()[0] + "\n" + line + "\n")
    made = predicted(tmp_path, dump)
    made.see(read(slurm))
    assert (made.quality.jobs, made.quality.error_s) == (1, 3600 - 60)


def test_a_file_that_is_damaged_is_named_and_set_aside(slurm: Recorded, tmp_path: Path) -> None:
    for number, content in enumerate(("{", '{"format": "other/1", "jobs": []}'), start=1):
        (tmp_path / NAME).write_text(content)
        made = predicted(tmp_path)
        made.see(read(slurm))
        (told,) = made.told
        assert f"{NAME}: " in told
        assert (tmp_path / f"{NAME}.damaged-{number}").read_text() == content
        assert json.loads((tmp_path / NAME).read_text())["format"] == of_slurm.FORMAT


def test_nothing_is_written_before_the_file_was_read(tmp_path: Path) -> None:
    predicted(tmp_path).save()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["actual", "class:clairvoyant=on"])
def test_a_predictor_that_knows_the_future_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runtimes of a live cluster are not known"):
        predicted(tmp_path, name=name)


def test_a_job_that_slurm_queues_again_is_one_job(slurm: Recorded, tmp_path: Path) -> None:
    made = predicted(tmp_path)
    row = slurm.row(1)
    for state, changes in (
        ("RUNNING", {}), ("PENDING", {"submit_time": slurm.now_s(), "start_time": 0}),
        ("RUNNING", {"start_time": slurm.now_s() + 10}),
        ("COMPLETED", {"end_time": slurm.now_s() + 30}), ("COMPLETED", {}),
    ):  # fmt: skip
        slurm.data["now_s"] += 10
        row.update({"job_state": state, **changes})
        made.see(read(slurm))
    assert made.quality.jobs == 1
    made.save()
    (ended,) = [p for p in json.loads((tmp_path / NAME).read_text())["jobs"] if p.get("end_s")]
    assert ended["end_s"] - ended["start_s"] == 20


def test_watch_tells_how_good_predictions_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["slurm", "watch", "--socket", str(tmp_path / "s"), "--cycles", "1", "--state",
             str(tmp_path / "state"), "--predict", "last2", "--history",
             str(dumped(tmp_path))]  # fmt: skip
    with served(tmp_path / "s", of_recording):
        assert cli.run(given) == 0
        text = capsys.readouterr().out
        (tmp_path / "state" / NAME).write_text("[")
        assert cli.run([*given, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "durations by last2: 3 jobs ended; mean absolute error 2,273 s, 0.0%" in text
    assert "requested times: 2,273 s, 0.0%" in text
    assert json.loads(out)["durations"]["jobs"] == 3
    assert f"{NAME}: not durations of jobs" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--history", "x"], "name a predictor"),
        (["--predict", "last2", "--history", "/no/such"], "no such file"),
        (["--predict", "lst2"], "did you mean last2"),
        (["--predict", "actual"], "runtimes of a live cluster are not known"),
        (["--predict", "last2", "--history", "sacct"], "--history sacct: no accounting"),
    ],
)
def test_wrong_options_of_predictions_are_named(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sacct_of(tmp_path, monkeypatch, "echo no accounting >&2; exit 1")
    assert cli.run(["slurm", "watch", "--socket", str(tmp_path), *given]) == 2
    assert said in capsys.readouterr().err


def sacct_of(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let this script stand for sacct."""
    path = folder / "sacct"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_sacct_is_asked_for_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = dumped(tmp_path)
    sacct_of(tmp_path, monkeypatch, f'echo "$TZ $*" > {tmp_path}/asked; cat {dump}')
    records = accounting.history(["sacct"]).records
    assert [record.job_id for record in records] == ["1001", "1002", "1003", "1004"]
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("UTC --allusers")
    assert "--starttime=now-30days" in asked
    assert isinstance(records[0].labels, Mapping)
