"""What Slurm did, saved as a run: from accounting and the log of a driver, without daemons."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cpdispatch import cli, dispatch
from cpdispatch.adapters.slurm.cluster import read
from cpdispatch.adapters.slurm.drive import Driver
from cpdispatch.adapters.slurm.picture import take
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.simulator import Run
from tests.adapters.slurm.jobs import accounting
from tests.adapters.slurm.recorded import Recorded

NODES = "".join(
    f"NodeName=n{k} CPUTot=8 RealMemory=16000 Partitions=main State=IDLE\n" for k in range(1, 5)
)
COLUMNS = (
    "JobID|Submit|Eligible|Start|End|State|Timelimit|AllocTRES|NodeList|Partition|Flags|Priority"
)


def job(id: object, submit: int, start: int, end: int, nodes: str = "n1", **more: object) -> str:
    """A line of sacct; times are seconds after 1,000,000."""
    times = {"Submit": submit, "Eligible": submit, "Start": start, "End": end}
    row = {name: 1_000_000 + at for name, at in times.items()} | {
        "JobID": id, "State": "COMPLETED", "Timelimit": "00:10:00", "AllocTRES": "cpu=2,node=1",
        "NodeList": nodes, "Partition": "main", "Flags": "SchedMain", "Priority": 9,
    }  # fmt: skip
    return "|".join(str((row | more)[name]) for name in COLUMNS.split("|"))


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Run]:
    """The run of these lines of sacct, and of these cycles."""

    def make(*lines: str, log: list[dict[str, Any]] | None = None, json_text: str = "") -> Run:
        text = "\n".join([COLUMNS, *lines]) + "\n"
        (tmp_path / "sacct.psv").write_text(json_text or text)
        (tmp_path / "nodes.txt").write_text(NODES)
        given = ["--history", tmp_path / "sacct.psv", "--system", tmp_path / "nodes.txt"]
        if log is not None:
            (tmp_path / "log").write_text("".join(json.dumps(line) + "\n" for line in log))
            given += ["--log", tmp_path / "log"]
        given += ["--out", tmp_path / "run", "--overwrite"]
        assert cli.run(["slurm", "record", *map(str, given)]) == 0
        run = Run.load(tmp_path / "run")
        assert run.verify() == []
        return run

    return make


def notes(run: Run) -> dict[str, int]:
    found: dict[str, int] = run.about["notes"]
    return found


# ------------------------------------------------------------------------------ a driven cluster


@pytest.mark.parametrize("name", ["easy", "hcp"])
def test_what_was_driven_is_a_run_that_stands_beside_simulations(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("bokeh")
    slurm = Recorded.load()
    (tmp_path / "state").mkdir()
    driver = Driver(slurm, dispatch.make(name), tmp_path / "state", Rules())
    with (tmp_path / "log").open("w") as log:
        for _ in range(60):
            log.write(json.dumps(dataclasses.asdict(driver.cycle())) + "\n")
            slurm.step()
    (tmp_path / "sacct").write_text(accounting(slurm.jobs()))
    cluster = {"nodes": slurm.nodes(), "partitions": slurm.partitions()}
    (tmp_path / "nodes.json").write_text(json.dumps(cluster))
    out = tmp_path / "driven"
    paths = {"history": "sacct", "system": "nodes.json", "log": "log"}
    given = [f"--{option}={tmp_path / path}" for option, path in paths.items()]
    asked = ["slurm", "record", *given, "--out", str(out)]
    assert cli.run([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    run = Run.load(out)
    assert run.verify() == []
    assert told["dispatcher"] == run.about["dispatcher"] == f"{name} (driven)"
    assert told["left_out"] == {"still pending when the records were taken": 2}
    assert told["notes"]["jobs that the driver released"] == len(driver_released(tmp_path / "log"))
    assert told["read"] == len(run.jobs) + sum(told["left_out"].values())
    keys = extra(out, "job_id")
    assert len(set(keys.values()) & set(slurm.began)) == len(keys) - 3
    names = table(out / "nodes.csv", "name")
    for id, nodes, start, submit in run.jobs[["id", "nodes", "start", "submit"]].to_numpy():
        # Three ran when the records of this cluster begin.
        if keys[id] in slurm.began:
            assert [names[node] for node in nodes] == slurm.began[keys[id]]
        assert start >= submit
    assert run.decisions["started"].sum() == len(driver_released(tmp_path / "log"))
    assert run.promise_table is not None
    assert set(run.promise_table.column("id").to_pylist()) <= set(run.jobs["id"])
    # Beside what others would have done with the same jobs.
    simulated = tmp_path / "simulated"
    workload, system = str(out / "workload.csv"), str(out / "system.json")
    simulate = ["simulate", workload, "--system", system, "-d", "easy", "-d", "sjf"]
    assert cli.run([*simulate, "--out", str(simulated)]) == 0
    page = tmp_path / "page.html"
    runs = [str(out), str(simulated)]
    assert cli.run(["report", *runs, "--out", str(page)]) == 0
    assert f"{name} (driven) is no simulation: Slurm recorded it." in page.read_text()
    assert cli.run(["compare", *runs]) == 0
    assert f"{name} (driven)" in capsys.readouterr().out
    some = run.jobs.sort_values("start").iloc[-1]
    assert cli.run(["explain", "--run", str(out), "--job", str(some.id)]) == 0
    assert cli.run(["status", str(out), "--at", str(some.start)]) == 0
    assert cli.run(["verify", "--run", str(out)]) == 0
    capsys.readouterr()
    assert cli.run(asked) == 2
    assert "is not empty: add --overwrite" in capsys.readouterr().err


def driver_released(log: Path) -> set[str]:
    return {key for line in log.read_text().splitlines() for key in json.loads(line)["released"]}


def table(path: Path, column: str) -> list[Any]:
    import pandas as pd

    found: list[Any] = pd.read_csv(path, dtype={column: str})[column].tolist()
    return found


def extra(folder: Path, column: str) -> dict[int, str]:
    ids = table(folder / "extra.csv", "id")
    return dict(zip(map(int, ids), table(folder / "extra.csv", column), strict=True))


def test_a_cycle_tells_what_is_decided_for_the_first_time(tmp_path: Path) -> None:
    slurm = Recorded.load()
    driver = Driver(slurm, dispatch.make("easy"), tmp_path, Rules())
    first, second = driver.cycle(), driver.cycle()
    ready = {job.key for job in take(read(Recorded.load()), lambda job: job.marked).jobs}
    # One comes after a job that runs, one begins in an hour; tasks wait for others of their array.
    assert {"8", "13"} <= ready
    assert set(first.entered) == ready - {"8", "13"}
    assert not set(second.entered) & set(first.entered)
    assert first.dispatcher == "easy"
    assert first.decision["model"] == "easy"
    assert first.decision["ms"] > 0
    assert set(first.reasons) <= set(first.released)
    assert all(start_s > first.now_s for start_s in first.promised.values())
    assert not set(first.promised) & set(first.released)


# --------------------------------------------------------------------------- Slurm by itself


def test_without_a_log_all_is_slurms_own(saved: Callable[..., Run]) -> None:
    run = saved(
        job(1, 0, 5, 65), job(2, 1, 7, 20, "n[2-3]", AllocTRES="cpu=8,node=2"),
        job(3, 2, 8, 9, Flags="SchedBackfill,StartRecieved"), job(4, 3, 9, 10, State="RUNNING"),
    )  # fmt: skip
    assert run.about["dispatcher"] == "slurm"
    assert (run.jobs["start"] - run.jobs["submit"]).tolist() == [5, 6, 6]
    assert (run.jobs["end"] - run.jobs["start"]).tolist() == [60, 13, 1]
    assert [list(nodes) for nodes in run.jobs["nodes"]] == [[0], [1, 2], [0]]
    assert run.jobs["reason"].tolist() == ["started", "started", "backfilled"]
    assert notes(run) == {"left out: still running when the records were taken": 1}
    assert len(run.decisions) == 0
    assert run.metrics["wait_s_mean"] == pytest.approx(17 / 3)


def test_without_flags_it_is_not_known_which_jobs_were_backfilled(
    saved: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [job(k, k, 60 - 10 * k, 900, Flags="", AllocTRES="cpu=8,node=1", NodeList=f"n{k}")
             for k in (1, 2, 3)]  # fmt: skip
    run = saved(*lines)
    assert run.jobs["reason"].tolist() == ["unknown"] * 3
    assert "backfilled" not in run.metrics
    assert notes(run) == {
        "jobs that may have been backfilled: the records have no Flags": 3,
        "run longer than they request": 3,
    }
    assert cli.run(["compare", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert " ".join(
        next(line for line in said.splitlines() if "jobs backfilled" in line).split()
    ) == ("jobs backfilled -")
    assert cli.run(["explain", str(tmp_path / "run"), "--job", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not recorded: Slurm's records have no promises" in said
    assert "49 s later, for a reason that is not recorded" in said
    assert (
        "2 jobs submitted later started before it: all for reasons that are not recorded." in said
    )
    assert "backfilled" in saved(*lines, job(4, 5, 6, 7, "n4")).metrics  # some have flags


def test_backfilled_jobs_are_known_in_json_too(saved: Callable[..., Run]) -> None:
    def row(id: int, flag: str) -> dict[str, Any]:
        parts = {"cpu": 2, "node": 1}
        tres = [{"type": kind, "name": "", "count": count} for kind, count in parts.items()]
        return {
            "job_id": id, "nodes": f"n{id}", "partition": "main", "flags": [flag, "START_RECEIVED"],
            "state": {"current": ["COMPLETED"]}, "tres": {"allocated": tres},
            "time": {"submission": 10, "start": 20, "end": 30, "elapsed": 10, "limit": 60},
        }  # fmt: skip

    rows = [row(1, "STARTED_ON_SCHEDULE"), row(2, "STARTED_ON_BACKFILL")]
    run = saved(json_text=json.dumps({"jobs": rows}))
    assert run.jobs["reason"].tolist() == ["started", "backfilled"]


def test_jobs_without_a_place_are_counted_by_the_reason(saved: Callable[..., Run]) -> None:
    whole = {"AllocTRES": "cpu=8,node=1"}
    run = saved(
        job(1, 0, 5, 65, **whole), job(2, 1, 10, 20), job(3, 2, 65, 70, **whole),
        job(4, 3, 9, 10, "n9"), job(5, 4, 9, 10, "n[2"), job(6, 5, 9, 9), job(7, 6, 9, 12, "n3"),
    )  # fmt: skip
    assert run.jobs["id"].tolist() == [1, 3, 6, 7]
    assert notes(run) == {
        "left out: nodes are not told, or the system has none of that name": 2,
        "left out: no room on its nodes beside the others, as the system is now": 1,
    }


def test_cpus_that_are_not_split_evenly_lie_where_room_is_left(saved: Callable[..., Run]) -> None:
    run = saved(
        job(1, 0, 5, 65, "n1", AllocTRES="cpu=5,node=1"),
        # 7 CPUs on two nodes, of which the first has 3 free, and later 2.
        job(2, 0, 6, 60, "n[1-2]", AllocTRES="cpu=7,node=2"),
        job(3, 0, 20, 30, "n1", AllocTRES="cpu=1,node=1"),
    )  # fmt: skip
    assert run.jobs["units"].tolist() == [1, 7, 1]
    assert [list(units) for units in run.jobs["node_units"]] == [[1], [2, 5], [1]]
    assert notes(run)["jobs whose CPUs are not split evenly: how they were split is not told"] == 1


def test_an_attempt_that_was_queued_again_is_kept_if_a_run_can_hold_it(
    saved: Callable[..., Run],
) -> None:
    again = {"State": "REQUEUED"}
    run = saved(
        job(1, 0, 5, 15, **again), job(1, 15, 20, 25, **again), job(1, 25, 40, 60),
        job(2, 0, 5, 50, "n2", **again), job(2, 50, 60, 61, "n3"),
    )  # fmt: skip
    assert run.jobs[["submit", "start"]].to_numpy().tolist() == [
        [1_000_000, 1_000_040], [1_000_000, 1_000_060],
    ]  # fmt: skip
    assert run.jobs["lost_start"].tolist() == [1_000_020, -1]
    assert run.jobs["lost_end"].tolist() == [1_000_025, -1]
    # The first of two, and one that ran longer than the last.
    (kept,) = (many for what, many in notes(run).items() if what.startswith("earlier attempts"))
    assert kept == 2
    assert run.metrics["restarts"] == 1


# --------------------------------------------------------------------------- the log of a driver


def cycle(now: int, *released: str, **more: object) -> dict[str, Any]:
    made = {"ms": 2.5, "model": "best", "status": "optimal", "value": 4.0, "bound": 3.0}
    return {
        "now_s": 1_000_000 + now, "running": 1, "waiting": 2, "dispatcher": "best",
        "released": {key: ["n1"] for key in released}, "decision": made, **more,
    }  # fmt: skip


def test_a_held_job_may_start_in_a_replay_when_the_driver_first_found_it_ready(
    saved: Callable[..., Run],
) -> None:
    held = {"Eligible": 1_000_500}
    run = saved(
        job(1, 0, 501, 510, **held),
        job(2, 0, 501, 510, **held),
        job(3, 0, 501, 510, **held),
        log=[
            cycle(1, entered=["1"], promised={"2": 1_000_700}),
            cycle(300, entered=["2"], promised={"2": 1_000_800}),
            cycle(500, "1", "2", reasons={"2": "late"}, expected_s={"2": 33}),
            # Of other jobs, before and after these.
            cycle(-900, "1", dispatcher="hcp"),
            cycle(900, "2", dispatcher="easy"),
        ],
    )
    assert run.about["dispatcher"] == "best (driven)"
    assert run.jobs["begin"].tolist() == [-1, 1_000_300, 1_000_500]
    assert run.jobs["reason"].tolist() == ["started", "late", "started"]
    assert run.jobs["expected_s"].tolist() == [600, 33, 600]
    assert run.jobs["priority"].tolist() == [0, 0, 9]
    assert notes(run) == {
        "jobs that the driver released": 2, "jobs that Slurm started by itself": 1,
    }  # fmt: skip
    assert run.promise_table is not None
    assert run.promise_table.to_pylist() == [{"id": 2, "at": 1_000_001, "start": 1_000_700}]
    assert run.decisions["queue"].tolist() == [2, 2, 4]
    assert run.decisions["started"].tolist() == [0, 0, 2]
    assert run.decisions["ms"].tolist() == [2.5] * 3
    assert run.decisions["gap"].tolist() == [0.25] * 3
    assert run.about["seconds"] == pytest.approx(0.0075)


def test_a_job_that_was_handed_back_may_start_when_the_driver_first_found_it_ready(
    saved: Callable[..., Run],
) -> None:
    run = saved(
        job(1, 0, 501, 510, Eligible=1_000_500),
        job(2, 0, 501, 510, Eligible=1_000_200),
        log=[cycle(100, entered=["1"]), cycle(300, entered=["2"]), cycle(400)],
    )
    assert run.jobs["begin"].tolist() == [1_000_100, 1_000_200]
    assert run.jobs["priority"].tolist() == [9, 9]


def test_what_became_of_test_runs_is_told(saved: Callable[..., Run]) -> None:
    run = saved(
        job(1, 0, 5, 10, State="REQUEUED"), job(1, 10, 140, 200), job(2, 0, 5, 90, "n2"),
        job(3, 0, 5, 7, "n3"), job(4, 0, 5, 90, "n4"),
        log=[
            cycle(-1, dispatcher="hcp"),  # just before the first job came
            cycle(4, "1", "2", "3", "4", tests={"1": 5, "2": 5, "3": 5}),
            cycle(10, went_on=["2"]), cycle(139, "1"),
        ],
    )  # fmt: skip
    assert run.jobs["test"].tolist() == ["killed", "went_on", "ended", "none"]
    assert run.about["test_s"] == 5
    assert run.about["dispatcher"] == "best (driven)"
    assert run.metrics["tests"] == 3


@pytest.mark.parametrize(
    "then", [{"retracted": ["1"]}, {"kept": {"1": "JobHeldUser"}}, {"stopped": ["1"]}],
    ids=lambda then: next(iter(then)),
)  # fmt: skip
def test_a_release_that_was_taken_back_starts_no_job(
    then: dict[str, Any], saved: Callable[..., Run]
) -> None:
    decided = {"ms": 1.0, "model": "easy", "status": "heuristic"}
    released: dict[str, Any] = {
        "entered": ["1"], "released": {"1": ["n1"]}, "tests": {"1": 120},
        "reasons": {"1": "late"}, "expected_s": {"1": 60},
    }  # fmt: skip
    log = [
        {"now_s": 1_000_000 + at, "dispatcher": "easy", "decision": decided} | more
        for at, more in ((10, released), (45, then | {"waiting": 1}))
    ]
    run = saved(job(1, 5, 5000, 5050, Flags="SchedBackfill"), log=log)
    (row,) = run.jobs.itertuples()
    assert row.reason == "backfilled"  # by Slurm itself
    assert row.expected_s == row.requested_s == 600
    assert "jobs that the driver released" not in notes(run)
    # It was started by the release if that was before it was taken back.
    run = saved(job(1, 5, 40, 5050), log=log)
    (row,) = run.jobs.itertuples()
    assert row.reason == "late"
    assert notes(run)["jobs that the driver released"] == 1
    if "retracted" in then:  # or when it was about to be, as the next cycle says
        log.append({"now_s": 1_000_055, "dispatcher": "easy", "started": {"1": ["n1"]}})
        run = saved(job(1, 5, 46, 5050), log=log)
        assert run.jobs["reason"].tolist() == ["late"]
        assert notes(run)["jobs that the driver released"] == 1


def test_lines_of_the_log_that_are_not_used_are_counted(
    saved: Callable[..., Run], tmp_path: Path
) -> None:
    lines = [
        cycle(1, "1", dispatcher="easy"), cycle(2, "2", dispatcher="easy", dry_run=True),
        {"failed": "Slurm is away"}, cycle(3, "9"),
    ]  # fmt: skip
    run = saved(job(1, 0, 5, 10), job(2, 0, 5, 10), log=lines)
    assert run.about["dispatcher"] == "easy then best (driven)"
    assert notes(run)["lines of the log that a dry run wrote: not used"] == 1
    assert notes(run)["jobs that the driver released"] == 1
    text = (tmp_path / "log").read_text()
    (tmp_path / "log").write_text(text + text[:40])
    given = [f"--history={tmp_path}/sacct.psv", f"--system={tmp_path}/nodes.txt"]
    given += [f"--log={tmp_path}/log", f"--out={tmp_path}/other"]
    assert cli.run(["slurm", "record", *given]) == 0
    assert (
        notes(Run.load(tmp_path / "other"))["lines of the log that cannot be read: not used"] == 1
    )


# ------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"history": "missing"}, "missing: no such file"),
        ({"history": "nodes.txt"}, "not what `sacct -P` prints"),
        ({"system": "sacct.psv"}, "describes no node"),
        ({"system": "partition.txt"}, "describes no node"),
        ({"log": "missing"}, "missing: no such file"),
        ({"log": "nodes.txt"}, "no line of it is one of slurm drive"),
        ({"log": "late"}, "--log: it is of another time than the jobs, 2001-09-"),
        ({"zone": "Mars"}, "no such time zone"),
        ({"days": "3"}, "--days 3: a number of days, 1 or more, for --history sacct"),
        ({"history": "elsewhere.psv"}, "no job is left of 1 (nodes are not told"),
        ({"out": "nodes.txt"}, "is a file: --out needs a folder"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_run(
    given: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "sacct.psv": f"{COLUMNS}\n{job(1, 0, 5, 9)}\n", "nodes.txt": NODES,
        "elsewhere.psv": f"{COLUMNS}\n{job(1, 0, 5, 9, 'n77')}\n",
        "partition.txt": "PartitionName=main\n   MaxTime=UNLIMITED\n",
        "late": '{"now_s": 1000036000, "dispatcher": "easy"}\n',
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = {"history": "sacct.psv", "system": "nodes.txt", "out": "run"} | given
    plain = ("zone", "days")
    arguments = [f"--{k}={v if k in plain else tmp_path / v}" for k, v in options.items()]
    assert cli.run(["slurm", "record", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert not (tmp_path / "run").exists()


def test_sacct_and_scontrol_are_asked_where_no_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sacct.psv").write_text(f"{COLUMNS}\n{job(1, 0, 5, 9)}\n".replace("|", "@@"))
    (tmp_path / "nodes.txt").write_text(NODES)
    shown = {
        "node": f"cat {tmp_path}/nodes.txt",
        "partition": "echo PartitionName=main MaxTime=UNLIMITED",
        "licenses": "echo No licenses configured in Slurm.",
        "config": "echo Configuration data as of now",
    }
    cases = "".join(f"{what}) {script};; " for what, script in shown.items())
    for name, script in (
        ("sacct", f'echo "$*" > {tmp_path}/asked; cat {tmp_path}/sacct.psv'),
        ("scontrol", f'case "$2" in {cases}esac'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert cli.run(["slurm", "record", "--days", "7", "--out", str(tmp_path / "run")]) == 0
    assert "decided by: slurm" in capsys.readouterr().out
    asked = (tmp_path / "asked").read_text()
    assert "--starttime=now-7days" in asked
    assert "AllocTRES" in asked
    assert Run.load(tmp_path / "run").jobs["id"].tolist() == [1]
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    assert cli.run(["slurm", "record", "--out", str(tmp_path / "other")]) == 2
    assert "scontrol show node: no controller; name files" in capsys.readouterr().err
