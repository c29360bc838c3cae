"""Why a job of a live Slurm waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cpdispatch import cli, dispatch
from cpdispatch.adapters.slurm.explain import explain
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.errors import UsageError
from tests.adapters.slurm.recorded import Recorded
from tests.adapters.slurm.test_recorded import of_recording, served


@pytest.fixture
def slurm() -> Recorded:
    return Recorded.load()


def why(slurm: Recorded, job: str, **rules: str) -> str:
    told = explain(slurm, dispatch.make("easy"), Rules(**rules), job)  # type: ignore[arg-type]
    assert slurm.changes == []
    return "\n".join(told)


def test_a_job_that_waits_is_told_who_is_on_its_nodes(slurm: Recorded) -> None:
    # Node 4 is a running job's alone; 5 to 16 are somebody's that Slurm names no job for.
    for node in slurm.data["nodes"][4:]:
        node.update(alloc_cpus=15, alloc_memory=63_000)
    text = why(slurm, "11")
    assert "Job 11 of nobody has waited 0 s in main." in text
    assert "It asks for 2 nodes, each with all CPUs and 500 MB." in text
    assert "easy does not start it now: waits for whole nodes." in text
    assert "Before it in the order of submission: 5, 6, 8, 9 and 10." in text
    assert "allowed: 16; n16 cannot be used now; with room now: 0." in text
    assert "Job 3 is on n04; it is expected to end at " in text
    assert "Job 1 is on n01 and n02; " in text


def test_a_job_whose_room_goes_to_others_is_told_to_whom(slurm: Recorded) -> None:
    slurm.data["reservations"] = []
    for node in slurm.data["nodes"][1:14]:
        node.update(alloc_cpus=16, alloc_memory=64_000)
    slurm.data["nodes"][0].update(alloc_cpus=0, alloc_memory=0, gres_used="gpu:0")
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] in (5, 10, 14)]
    first, last = slurm.row(5), slurm.row(14)
    first.update(tres_req_str="cpu=16,node=1", tasks_per_node=0, memory_per_node=500)
    last.update(tres_req_str="cpu=16,node=1", memory_per_node=500, excluded_nodes="n[01-04]")
    first["excluded_nodes"] = "n[01-04]"  # where the third one starts
    text = why(slurm, "14")
    assert "with room now: 1." in text
    assert "Room on n15 goes to jobs that would start now: 5." in text
    assert "easy would start it now on n15: in its turn." in why(slurm, "5")


def test_a_job_that_the_driver_has_held_again_is_said_to_be_so(slurm: Recorded) -> None:
    assert "held it again" not in why(slurm, "5")
    slurm.row(5)["state_reason"] = "JobHeldAdmin"
    assert "The driver has held it again, as it did not start, and releases it later." in why(
        slurm, "5"
    )


def test_a_job_that_was_left_to_slurm_is_said_to_be_so(slurm: Recorded) -> None:
    slurm.row(5).update(priority=1, state_reason="Resources")
    text = why(slurm, "5")
    assert "left it to Slurm: it could not be driven, or Slurm did not start it on nodes" in text
    assert "Slurm's own reason is Resources." in text


def test_a_task_that_an_array_does_not_have_is_no_job(slurm: Recorded) -> None:
    assert slurm.row(7)["array_task_string"].startswith("0-5")
    with pytest.raises(UsageError, match="shows no such job"):
        why(slurm, "7_99")


def test_jobs_that_no_dispatcher_is_asked_about(slurm: Recorded) -> None:
    slurm.row(14).update(partition="closed")
    slurm.row(10)["dependency"] = "singleton"
    slurm.row(9).update(job_state="FAILED", start_time=1, end_time=2)
    assert "Job 1 of nobody runs since " in why(slurm, "1")
    assert " on n01, n02." in why(slurm, "1")
    assert "is held by its user, or by an operator (JobHeldUser)" in why(slurm, "4")
    assert "would be left to Slurm: asks for licenses" in why(slurm, "12")
    assert "waits for its dependency to be met: singleton" in why(slurm, "10")
    assert "Slurm's own reason is JobHeldUser." in why(slurm, "10")
    assert "has ended: failed." in why(slurm, "9")
    assert "partition closed may be down" in why(slurm, "14")
    assert "in the partition main, which is not asked about" in why(slurm, "5", partition="small")
    assert why(slurm, "7").startswith("Job 7_0 of nobody")
    assert why(slurm, "7_1").startswith("Job 7_1 of nobody")
    with pytest.raises(UsageError, match="--job 999: Slurm shows no such job"):
        why(slurm, "999")


def test_slurm_explain_prints_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["slurm", "explain", "--socket", str(tmp_path / "s"), "--job"]
    with served(tmp_path / "s", of_recording):
        assert cli.run([*given, "8"]) == 0
        text = capsys.readouterr().out
        assert cli.run([*given, "8", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert cli.run([*given, "999"]) == 2
    assert "easy does not start it now: waits for job 3." in text
    assert told == {"job": "8", "why": text.splitlines()}
    for option in ("--predict", "--history", "--every", "--cycles"):
        assert cli.run([*given, "8", option, "1"]) == 2
        assert f"Unknown option: {option}" in capsys.readouterr().err
