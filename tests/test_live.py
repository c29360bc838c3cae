"""What running simulations tell of themselves, and the commands that show it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli
from cpdispatch.analyze.moment import Moment, moment
from cpdispatch.cli import output, watch
from cpdispatch.errors import InputError, InterruptedRunError
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Watch, live, simulate
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.simulator.live import STATUS, Live
from cpdispatch.simulator.replay import finished, so_far
from cpdispatch.simulator.saved import CHECKPOINT
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import NAMED, Limit, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import EURORA, generate
from cpdispatch.workloads.restarts import mark
from tests.effort import examples
from tests.simulator.cases import workload
from tests.strategies import systems, workloads

POOL = System.pool(4)
ROWS = [(0, 3, 900, 600), (60, 4, 1800, 1200), (120, 2, 3600, 60), (180, 1, 500, 500)]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file written whenever it can be."""
    monkeypatch.setattr(live, "EVERY_S", 0.0)


def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **how: Any) -> list[Live]:
    """All that a replay of a few jobs writes."""
    found = []

    def written(path: Path, content: bytes) -> None:
        assert path == tmp_path / STATUS
        path.write_bytes(content)
        read = live.read(path)
        assert read is not None
        found.append(read)

    monkeypatch.setattr(live, "write_bytes", written)
    monkeypatch.setattr("cpdispatch.simulator.replay._MOMENT_S", 0.0)
    monkeypatch.setattr("cpdispatch.simulator.replay._EVERY", 1)
    simulate(workload(ROWS), POOL, "easy", watch=Watch(status=tmp_path / STATUS), **how)
    return found


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_simulation_tells_what_it_is_at(
    compiled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = told(monkeypatch, tmp_path, compiled=compiled)
    assert len(found) > 3
    assert [each.over for each in found] == [False] * (len(found) - 1) + [True]
    assert [each.time_s for each in found] == sorted(each.time_s for each in found)
    last = found[-1]
    assert (last.workload, last.system, last.dispatcher, last.jobs) == ("case", "4", "easy", 4)
    assert (last.share, last.pid, last.host) == (1.0, os.getpid(), socket.gethostname())
    assert last.left_s == 0
    run = simulate(workload(ROWS), POOL, "easy")
    for each in found[:-1]:
        if each.dispatches:
            there = moment(run.occupancy, each.time_s)
            assert (each.queue, each.running) == (len(there.waiting), len(there.running))
            assert each.use == there.use
            expected = run.decisions[run.decisions["time"] <= each.time_s].tail(live.LAST)
            numbers = [(d.time_s, d.queue, d.started) for d in each.last]
            columns = (expected[name].tolist() for name in ("time", "queue", "started"))
            assert numbers == list(zip(*columns, strict=True))
            assert all((d.ms is None) == compiled for d in each.last)


@settings(max_examples=examples(60), deadline=None)
@given(systems(max_nodes=4).flatmap(lambda s: st.tuples(st.just(s), workloads(s, max_jobs=12))))
def test_both_loops_tell_what_the_schedule_says_of_every_instant(
    case: tuple[System, Workload],
) -> None:
    system, log = case
    run = simulate(log, system, "easy", compiled=False)
    schedule = run.occupancy
    seen: list[live.Now] = []

    def look(simulation: Simulation | CompiledSimulation) -> None:
        now = simulation.at_present
        if now is not None and now.dispatches:
            seen.append(now)

    for compiled in (False, True):
        replay_all(log, system, compiled, look)
    for now in seen:
        there = moment(schedule, now.time_s)
        assert now.running == len(there.running)
        assert live.use_of(system, now.held) == there.use
    assert run.verify() == []


def replay_all(log: Workload, system: System, compiled: bool, look: Any) -> None:
    """Go through a simulation one instant after the other."""
    from cpdispatch import dispatch
    from cpdispatch.dispatch import DEFAULTS
    from cpdispatch.simulator import replay

    rules = {"trigger": "instant", "correction": "minimal", "kill_at_limit": False}
    general: dict[str, Any] = {
        "dependencies": False, "starvation": None, "idempotent": False, "restart_cost_s": 0,
        "events": None, "data": (), "power_cap": None, "energy_price": None,
        "switch_off_s": None,
    }  # fmt: skip
    made, _ = replay._begun(log, system, "easy", None, rules, general, DEFAULTS, compiled)
    simulation = made.simulation
    if isinstance(simulation, CompiledSimulation):
        while not simulation.go(1):
            look(simulation)
        return
    while (instance := simulation.advance()) is not None:
        simulation.apply(dispatch.answer_of(made.dispatcher, instance))
        look(simulation)


@pytest.mark.usefixtures("eager")
def test_the_file_goes_when_the_run_is_saved(tmp_path: Path) -> None:
    run = simulate(workload(ROWS), POOL, "easy", watch=Watch(status=tmp_path / STATUS))
    assert (tmp_path / STATUS).exists()
    finished(run, tmp_path)
    assert not (tmp_path / STATUS).exists()


# ------------------------------------------------------------------------------ the commands


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a simulation that is half done, by this very process."""
    monkeypatch.setenv("COLUMNS", "100")
    write(tmp_path / STATUS)
    return tmp_path


def write(path: Path, **other: Any) -> Live:
    """A file as a simulation writes it."""
    now = live.Now(
        120,
        2,
        1,
        3,
        np.array([[3]]),
        (live.Dispatched(60, 1, 0, None), live.Dispatched(120, 2, 0, 1.5)),
    )
    telling = live.Telling(path, {"workload": "case", "dispatcher": "easy", "seed": 0}, POOL, 1_000)
    telling.tell(now, 0.25, 30.0)
    found = live.read(path)
    assert found is not None
    found = replace(found, **other)
    path.write_bytes(msgspec.json.encode(found))
    return found


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_watch_shows_a_simulation_once(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "watch", running, "--once")
    assert (code, err) == (0, "")
    for text in (
        "easy (case on 4)",
        "[#####               ] 25%, 30 s so far, 90 s left",
        "simulated time 120 s; 8 jobs a second; 2 waiting, 1 running, 3 decisions",
        "pool   core      [###############     ]  75%  3 of 4",
        "60 s                   1        0    -",
        "120 s                  2        0  1.5",
    ):
        assert text in out
    assert "\x1b" not in out


def test_watch_tells_programs(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "watch", running, "--json")
    found = json.loads(out)
    assert found["finished"] == []
    assert found["running"][str(running)]["queue"] == 2


def test_watch_ends_when_the_run_is_saved(
    running: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "BEAT_S", 0.0)
    monkeypatch.setattr(watch, "NEXT_S", 0.0)

    def slept(_: float) -> None:
        finished(simulate(workload(ROWS), POOL, "easy"), running)

    monkeypatch.setattr(watch.time, "sleep", slept)
    code, out, err = said(capsys, "watch", running)
    assert code == 0
    assert "1 finished" in out.splitlines()[-1]
    assert err == ("easy, case: 25% of 1,000 jobs, at 120 s, 2 waiting, 1 running, 90 s left\n")


def test_watch_waits_for_the_next_run_of_a_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two runs, no file says that one goes on."""
    monkeypatch.setattr(output, "BEAT_S", 0.0)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    first, second = tmp_path / "a" / STATUS, tmp_path / "b" / STATUS
    write(first, pid=child.pid)
    turns = iter(
        [
            lambda: write(first, pid=child.pid, over=True),
            first.unlink,
            lambda: write(second, pid=child.pid, dispatcher="fifo"),
            second.unlink,
            lambda: child.communicate(b"\n"),
        ]
    )
    monkeypatch.setattr(watch.time, "sleep", lambda _: next(turns)())
    code, _, err = said(capsys, "watch", tmp_path)
    assert (code, next(turns, None)) == (0, None)
    assert [line.partition(",")[0] for line in err.splitlines()] == ["easy", "fifo"]


def test_a_process_that_is_gone_is_told_and_not_waited_for(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    write(running / STATUS, pid=child.pid)
    code, out, _ = said(capsys, "watch", running)
    assert code == 0
    assert "stopped: simulate --resume goes on from its checkpoint" in out
    assert "30 s so far\n" in out


def test_runs_that_were_interrupted_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They left no status, and the folder was said to hold no simulation."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / CHECKPOINT).touch()
    text = "2 stopped: simulate --resume goes on from checkpoints\n"
    assert said(capsys, "watch", tmp_path) == (0, text, "")
    write(tmp_path / "b" / STATUS)
    found = json.loads(said(capsys, "watch", tmp_path, "--json")[1])
    assert (list(found["running"]), found["stopped"]) == (
        [str(tmp_path / "b")], [str(tmp_path / "a")],
    )  # fmt: skip


def test_silence_is_told(running: Path) -> None:
    found = write(running / STATUS, written_at=time.time() - 240)
    assert watch.silence(found) == "no news for 4 min"
    assert watch.silence(replace(found, written_at=time.time())) == ""


def test_several_simulations_have_a_row_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("easy", "hcp"):
        write(tmp_path / name / STATUS, dispatcher=name)
    _, out, _ = said(capsys, "watch", tmp_path, "--once")
    assert "easy, case  [##        ]  25%   120        2        1     75%  90 s" in out
    assert "hcp, case   [##        ]  25%" in out


def test_a_folder_without_simulations_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, "watch", tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        f"cpdispatch: {tmp_path}: holds no simulation; name the folder that simulate was given as "
        "--out, once it has started\n"
    )


def test_a_damaged_file_is_an_error(running: Path) -> None:
    (running / STATUS).write_text("{}")
    with pytest.raises(InputError, match="status of a simulation"):
        live.read(running / STATUS)


@pytest.mark.parametrize("how", [["--once"], []])
def test_watch_names_a_damaged_file_once_and_shows_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    how: list[str],
) -> None:  # fmt: skip
    """It ended at the first damaged file and showed nothing."""
    looks = iter([None, None])

    def slept(_: float) -> None:
        if next(looks, 0) == 0:
            (tmp_path / "a" / STATUS).unlink()

    monkeypatch.setattr(watch.time, "sleep", slept)
    write(tmp_path / "a" / STATUS)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / STATUS).write_text("{bad")
    code, out, err = said(capsys, "watch", tmp_path, *how)
    assert code == 2
    assert "easy (case on 4)" in out
    assert [str(tmp_path / "b" / STATUS) in line for line in err.splitlines()].count(True) == 1
    if how:
        code, out, _ = said(capsys, "watch", tmp_path, "--json")
        found = json.loads(out)
        assert (code, list(found["running"])) == (2, [str(tmp_path / "a")])
        assert [each["file"] for each in found["errors"]] == [str(tmp_path / "b" / STATUS)]


def test_watch_of_a_damaged_file_alone_says_no_more_than_that(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (running / STATUS).write_text("{bad")
    code, out, err = said(capsys, "watch", running, "--once")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_simulate_says_something_every_half_minute_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(output, "BEAT_S", 0.0)
    log = tmp_path / "log.csv"
    log.write_text("id,submit,runtime,units,core\n1,0,5,1,1\n2,1,5,1,1\n")
    for more in ([], ["--watch"]):
        code, out, err = said(capsys, "simulate", log, "--system", "1", "-d", "easy", *more)
        assert code == 0
        assert "jobs" in out
        assert "easy: 100%" in err
        assert "\x1b" not in out + err


def test_it_is_not_said_more_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 10.0, 29.9, 30.0, 30.0, 31.0, 60.0, 60.0])
    monkeypatch.setattr(output, "monotonic", lambda: next(clock))
    beat = output.Heartbeat()
    for k in range(5):
        beat.say(lambda k=k: str(k))  # type: ignore[misc]
    assert capsys.readouterr().err == "2\n4\n"


def test_status_shows_a_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    simulate(workload(ROWS), POOL, "easy").save(tmp_path)
    code, out, err = said(capsys, "status", tmp_path, "--at", 700)
    assert (code, err) == (0, "")
    for text in (
        "easy (case on 4) at 700 s: 1 running, 1 waiting",
        "pool   core      [####################]  100%  4 of 4",
        "  2      680     1880      4  0",
        "  3      2     10 min       1880  core: room for 0 of 2 units",
    ):
        assert text in out
    _, out, _ = said(capsys, "status", tmp_path, "--at", 700, "--json")
    (only,) = json.loads(out)["moments"]
    assert only["moment"]["running"][0]["job"] == 2
    code, out, err = said(capsys, "status", tmp_path, "--at", 9_999)
    assert (code, out) == (2, "")
    assert "time 9999 s is outside of the run: it goes from 0 s to" in err


def test_status_of_a_run_without_a_checkpoint_says_so(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, "status", running, "--at", 1)
    assert code == 2
    assert "is not finished and has no checkpoint yet" in err
    assert "cpdispatch watch" in err


def random_log(jobs: int) -> Workload:
    """Jobs for 16 processors, more than these can take."""
    rng = np.random.default_rng(7)
    submit = np.sort(rng.integers(0, jobs * 100, jobs)).tolist()
    units, requested = rng.integers(1, 12, jobs).tolist(), rng.integers(60, 1_000, jobs).tolist()
    runtime = [int(rng.integers(1, most + 1)) for most in requested]
    return workload(list(zip(submit, units, requested, runtime, strict=True)))


def stopped(log: Workload, system: System, folder: Path, after: int, **how: Any) -> bool:
    """Whether a replay was stopped after so many looks, with a checkpoint in the folder."""
    looks = iter(range(after))
    try:
        simulate(log, system, watch=Watch(folder=folder, stop=lambda: next(looks, -1) < 0), **how)
    except InterruptedRunError:
        return True
    return False


@pytest.mark.parametrize(
    "how",
    [
        {"dispatcher": "easy"},
        {"dispatcher": "easy", "compiled": False},
        {"dispatcher": "easy:test=120", "correction": "requested"},
        {"dispatcher": "easy:test=120", "compiled": False},
        {"dispatcher": "conservative"},
        {"dispatcher": "best", "predictor": "last2"},
        {"dispatcher": "prb"},
        {"dispatcher": "easy", "events": "exponential:mtbf=1d,repair=1h"},
        {"dispatcher": "easy-saf-saf", "trigger": "event", "predictor": "last2"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", ["pool", "nodes", "limits"])
def test_what_a_checkpoint_knows_is_what_the_finished_run_says(
    shape: str, how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpdispatch.simulator.replay._MOMENT_S", 0.0)
    monkeypatch.setattr("cpdispatch.simulator.replay._EVERY", 1)
    if shape != "nodes" and "events" in how:
        pytest.skip("a failure of the only node would stop all jobs at once")
    system, log = System.pool(16), random_log(120)
    if shape == "nodes":
        log, system = prepare(generate(EURORA, 120, 4, 2.0), NAMED["eurora"])
    if shape == "limits":
        system = replace(system, limits=(Limit(3, per="user"),))
    log = mark(log, 0.7) if "test" in how["dispatcher"] else log
    whole = simulate(log, system, **how)
    decisions = len(whole.decisions)
    for after in (1, decisions // 3, decisions - 2):
        folder = tmp_path / str(after)
        folder.mkdir()
        assert stopped(log, system, folder, after, **how)
        run, until_s = so_far(folder)
        submits = log.table.submit_s[log.table.submit_s <= until_s]
        times = np.unique(np.append(np.linspace(submits[0], until_s, 7).astype(int), submits[-3:]))
        if how.get("trigger") == "event":  # that second may not be over yet
            times = times[times < until_s]
        started = whole.job_table.column("start").to_pylist()
        later = {job + 1 for job, start_s in enumerate(started) if start_s > until_s}
        for at_s in times.tolist():
            found = moment(run.occupancy, at_s, until_s)
            assert found == known(moment(whole.occupancy, at_s), found, later, until_s)


def known(whole: Moment, found: Moment, later: set[int], until_s: int) -> Moment:
    """A moment of a run that is over, as it can be known at a time before.

    Of jobs that start ``later`` an attempt may be known that was for nothing.
    """
    running = [
        replace(job, end_s=None if job.end_s is None or job.end_s > until_s else job.end_s)
        for job in whole.running
    ]
    attempt_s = {job.job: job.start_s for job in found.waiting}
    waiting = [
        replace(job, start_s=attempt_s.get(job.job)) if job.job in later else job
        for job in whole.waiting
    ]
    return replace(whole, running=tuple(running), waiting=tuple(waiting))


def test_status_shows_a_run_that_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert stopped(workload(ROWS), POOL, tmp_path, 3, dispatcher="easy", compiled=False)
    code, out, err = said(capsys, "status", tmp_path, "--at", 130)
    assert (code, err) == (0, "")
    for text in (
        "easy (case on 4) at 130 s: 1 running, 2 waiting",
        "Not finished; its last checkpoint is at 180 s.",
        "  1        0        -      3  0",
        "  2      4       70 s    not yet  core: room for 1 of 4 units",
    ):
        assert text in out
    _, out, _ = said(capsys, "status", tmp_path, "--at", 130, "--json")
    (only,) = json.loads(out)["moments"]
    assert (only["known_until_s"], only["moment"]["running"][0]["end_s"]) == (180, None)
    code, out, err = said(capsys, "status", tmp_path, "--at", 181)
    assert (code, out) == (2, "")
    assert "time 181 s is outside of the run: it goes from 0 s to 180 s so far" in err
    (tmp_path / "checkpoint.pickle").write_bytes(b"nonsense")
    code, _, err = said(capsys, "status", tmp_path, "--at", 130)
    assert code == 2
    assert "checkpoint.pickle: is damaged" in err
