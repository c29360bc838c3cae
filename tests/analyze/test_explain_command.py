"""What `cpdispatch explain` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from cpdispatch import cli
from cpdispatch.analyze.explain import as_dict
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import Maintenance, NodeGroup, Partition, System
from cpdispatch.workloads import from_table, prepare
from tests.simulator.cases import workload
from tests.simulator.test_events import DRAIN, UNDRAIN, happen, restartable

POOL = System.pool(4)
ROWS = [(0, 3, 900, 600), (60, 4, 1800, 1200), (120, 2, 3600, 60), (180, 1, 500, 500)]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    simulate(workload(ROWS), POOL, "easy").save(tmp_path / "run")
    return tmp_path / "run"


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_it_says_what_held_a_job_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "explain", folder, "--job", 3)
    assert (code, err) == (0, "")
    for line in (
        "Job 3 waited 29 min under easy (case on 4)",
        "2 units of 1 core each, for 60 min",
        "1 job submitted earlier waited when it was submitted. It started before it.",
        "1 job submitted later started before it: backfilled.",
        "too little core: room for 0 to 1 of its 2 units; 2 jobs ran on it, 1 of them ended;",
        "the dispatcher: the job fit and was not started; the room was free for 80 s, until job 2",
        "It started when job 2 ended on its nodes.",
        "The rest of the schedule is held as it was: every other job keeps its start",
        "Fewer units: no; not even 1 would have fit for 60 min before it started.",
        "    600  8 min  80 s  it ran for 60 s: enough",
    ):
        assert line in out
    assert "\x1b" not in out


def test_a_job_that_did_not_wait_has_nothing_to_explain(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, "explain", folder, "--job", 1)
    assert "Job 1 did not wait" in out
    assert "held it back" not in out
    assert "sooner" not in out


def test_json_has_the_whole_explanation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "explain", folder, "--job", 3, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["errors"] == []
    (only,) = found["explanations"]
    assert (only["run"], only["dispatcher"]) == (str(folder), "easy")
    whole = json.loads(json.dumps(as_dict(Run.load(folder).explain(3))))
    assert {key: only[key] for key in whole} == whole


def test_an_unknown_job_is_one_line_with_ids_near_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "explain", folder, "--job", 30)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "the run has no job 30; ids near it: 2, 3, 4" in err


@pytest.mark.parametrize("arguments", [["--job", "x"], [], ["--job", "1.5"]])
def test_a_job_that_is_no_number_is_an_error(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "explain", folder, *arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_each_run_of_a_folder_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("easy", "fifo"):
        simulate(workload(ROWS), POOL, name).save(tmp_path / name)
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 3)
    assert "under easy" in out
    assert "under fifo" in out


def test_other_causes_have_their_own_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = System("nodes", ("core",), (NodeGroup("node", 4, (1,)),))
    log = workload([(0, 1, 10, 10), (0, 2, 10, 10), (0, 9, 5, 5)], {2: (1, 5)})
    events = happen((12, DRAIN, "0-2"), (40, UNDRAIN, "0-2"))
    made = simulate(log, nodes, "easy", dependencies=True, events=events)
    assert made.verify() == []
    made.save(tmp_path)
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 2)
    assert "job 1, after which it comes, and the think time after its end" in out
    assert "3 nodes out of service" in out
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 3)
    assert "Job 3 never started" in out
    assert "the empty system has room for 4 of its 9 units" in out


def test_a_window_into_which_a_job_would_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maintenance = (Maintenance(nodes="all", from_s=100, length_s=50),)
    nodes = System("nodes", ("core",), (NodeGroup("node", 4, (1,)),), maintenance=maintenance)
    log = workload([(0, 1, 10, 10), (10, 2, 200, 30), (160, 1, 5, 5)])
    made = simulate(log, nodes, "easy")
    assert made.verify() == []
    made.save(tmp_path)
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 2)
    assert "   10  90 s  maintenance from 100 s on, into which it was expected to run" in out
    assert "room for 0 of its 2 units otherwise" in out
    _, out, _ = said(capsys, "status", tmp_path, "--at", 20)
    assert "maintenance into which it was expected to run: room for 0 of 2 units otherwise" in out


def test_what_a_partition_does_not_allow_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = (NodeGroup("gpu", 1, (1, 1)), NodeGroup("cpu", 2, (1, 0)))
    partitions = (Partition("gpu", (0,), limit_s=100), Partition("cpu", (1, 2)))
    system = System("two", ("core", "gpu"), groups, partitions=partitions)
    frame = pd.DataFrame({
        "id": [1, 2, 3], "submit": 0, "runtime": 5, "requested": [50, 200, 50], "units": 1,
        "core": 1, "gpu": [1, 1, 1], "partition": ["gpu", "gpu", "cpu"],
    })  # fmt: skip
    simulate(*prepare(from_table(frame), system), "easy").save(tmp_path)
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 2)
    assert "1 unit of 1 core, 1 gpu, on no node, for 3 min" in out
    assert "never: it asks for 3 min, and may run for 100 s in partition gpu" in out
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 3)
    assert "never: the empty nodes of cpu have room for 0 of its 1 unit" in out


def test_under_a_power_cap_requests_that_would_have_fit_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = System("nodes", ("core",), (NodeGroup("node", 8, (1,)),), watts={"core": 100})
    log = workload([(0, 2, 100, 100), (10, 2, 50, 50), (20, 1, 10, 10)])
    simulate(log, system, "easy", power_cap=300).save(tmp_path)
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 2)
    assert "   10  90 s  the power cap: less was left than the 200 W that it draws" in out
    assert "     30   20 s  1 of 2" in out


def test_a_lost_test_run_is_called_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(0, 3, 100, 100), (0, 4, 50, 50), (1, 1, 200, 40)]
    log = restartable(workload(rows), [0, 0, 1])
    simulate(log, POOL, "easy:test=10", restart_cost_s=30).save(tmp_path)
    _, out, _ = said(capsys, "explain", tmp_path, "--job", 3)
    assert "first tried  in a test run from 1 s to 11 s, when it was stopped, to be queued" in out
    assert "   11  30 s  the clearing of the nodes on which it was stopped" in out


def test_nodes_that_are_switched_off_are_not_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = System(
        "nodes", ("core",), (NodeGroup("node", 4, (1,)),),
        watts={"core": 10}, idle_watts={"node": 5}, wake_s={"node": 120},
    )  # fmt: skip
    log = workload([(0, 1, 200, 100), (2000, 4, 200, 100)])
    made = simulate(log, system, "easy", switch_off_s=60)
    (stretch,) = made.explain(2).stretches
    assert (stretch.from_s, stretch.until_s, stretch.cause) == (2000, 2120, "capacity")
    assert stretch.nodes_out == 4
    made.save(tmp_path)
    _, out, _ = said(capsys, "status", tmp_path, "--at", 2050)
    assert "switched off: nodes 0-3" in out
    assert "core: room for 0 of 4 units" in out
