"""Replays by windows against those of the whole log: the same jobs, dispatches and figures."""

from __future__ import annotations

import gzip
import lzma
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cpdispatch import cli
from cpdispatch.compiled.replay import Replay
from cpdispatch.errors import InputError, InterruptedRunError
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate, windows
from cpdispatch.system import System
from cpdispatch.workloads import prepare, swf
from tests.effort import examples
from tests.strategies import systems, workloads

RULES = st.fixed_dictionaries(
    {
        "dispatcher": st.sampled_from(
            [
                "easy", "easy-saf-spf:threshold=5,allocate=best-fit", "easy-wfp3-lexp",
                "easy-spf-fcfs:depth=0", "reject",
            ]
        ),
        "trigger": st.sampled_from(["instant", "event"]),
        "correction": st.sampled_from(["minimal", "incremental"]),
        "kill_at_limit": st.booleans(),
        "predictor": st.sampled_from(["walltime", "actual"]),
    }
)  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System]:
    system = System.pool(draw(st.integers(1, 9))) if draw(st.booleans()) else draw(systems())
    return draw(workloads(system, max_jobs=30, tiers=True)), system


def parts(workload: Workload, system: System, jobs: int) -> Iterator[tuple[Workload, System]]:
    for begin in range(0, len(workload), jobs):
        yield workload.take(np.arange(begin, min(begin + jobs, len(workload)))), system


def figures(run: Run) -> str:
    """But for the times; as text, in which one NaN is like another."""
    return str({name: value for name, value in run.metrics.items() if "_ms_" not in name})


def assert_same(found: Run, folder: Path, whole: Run) -> None:
    saved = Run.load(folder)
    assert saved.job_table.to_pydict() == whole.job_table.to_pydict()
    told = ["time", "queue", "running", "started", "model", "status"]
    decisions = [run.decision_table.select(told).to_pydict() for run in (saved, whole)]
    assert decisions[0] == decisions[1]
    assert figures(found) == figures(saved) == figures(whole)
    for name in ("workload_sha256", "notes", "dispatcher", "predictor", "system", "compiled"):
        assert saved.about[name] == whole.about[name]
    assert saved.verify() == []


@settings(max_examples=examples(80))
@given(cases(), st.integers(1, 12), RULES)
def test_the_run_is_that_of_the_whole_log(
    case: tuple[Workload, System], jobs: int, rules: dict[str, Any]
) -> None:
    workload, system = case
    assume(system.capacity.size > 1 or bool((workload.table.request > 0).all()))
    whole = simulate(workload, system, **rules)
    assert whole.about["compiled"]
    with TemporaryDirectory() as folder:
        path = Path(folder)
        assert_same(windows.simulate(parts(*case, jobs), path, **rules), path, whole)


def test_energy_figures_are_those_of_the_whole_log(tmp_path: Path) -> None:
    log, system = tmp_path / "a.swf", tmp_path / "four.toml"
    log.write_text(LOG)
    system.write_text(
        'resources = ["core"]\nwatts = {core = 10}\nidle_watts = {old = 3}\n'
        "[group_watts.new]\ncore = 7\n"
        '[[groups]]\nname = "old"\nnodes = 1\ncapacity = [1]\n'
        '[[groups]]\nname = "new"\nnodes = 3\ncapacity = [1]\n'
    )
    ask = ["simulate", str(log), "--system", str(system), "-d", "easy", "--out"]
    assert cli.run([*ask, str(tmp_path / "w"), "--window", "4"]) == 0
    assert cli.run([*ask, str(tmp_path / "p")]) == 0
    by_windows, whole = (Run.load(tmp_path / name) for name in "wp")
    assert_same(by_windows, tmp_path / "w", whole)
    assert by_windows.about["metrics"]["energy_kwh"] == whole.metrics["energy_kwh"] > 0


def test_the_seconds_of_a_replay_leave_compiling_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.swf"
    log.write_text(LOG)
    did: list[str | int] = []
    go = Replay.go

    def watched(replay: Replay, events: int) -> int:
        did.append(events)
        return go(replay, events)

    def clock() -> float:
        did.append("clock")
        return 0.0

    monkeypatch.setattr(Replay, "go", watched)
    monkeypatch.setattr(windows, "perf_counter", clock)
    windows.simulate((prepare(part) for part in swf.parts(log, 20)), tmp_path / "out")
    assert did[:2] == [0, "clock"]


def test_a_folder_whose_name_is_no_utf_8_holds_a_run(tmp_path: Path) -> None:
    log, folder = tmp_path / "log.swf", tmp_path / os.fsdecode(b"b\xe4d")
    log.write_text("; MaxProcs: 2\n" + "".join(line(id, id) for id in range(1, 30)))
    run = windows.simulate((prepare(part) for part in swf.parts(log, 20)), folder)
    assert Run.load(folder).metrics == run.metrics


@pytest.mark.log
@pytest.mark.parametrize(
    ("name", "system", "dispatcher", "window"),
    [("KTH-SP2-1996-2.1-cln", "100", "easy-saf-saf:threshold=72000", "15000"),
     ("HPC2N-2002-2.2-cln", "seth", "easy", "50000")],
)  # fmt: skip
def test_a_real_log_in_a_file_is_replayed_by_windows(
    name: str, system: str, dispatcher: str, window: str, trace: Callable[[str], Path],
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log, out, whole = trace(name), tmp_path / "out", tmp_path / "whole"
    ask = ["simulate", str(log), "--system", system, "-d", dispatcher]
    assert cli.run([*ask, "--window", window, "--out", str(out)]) == 0
    by_windows = capsys.readouterr().out
    assert cli.run([*ask, "--out", str(whole)]) == 0
    without_times = [line.split("ms a decision")[0] for line in by_windows.splitlines()]
    assert without_times[:12] == [
        line.split("ms a decision")[0] for line in capsys.readouterr().out.splitlines()
    ][:12]  # fmt: skip
    assert (out / "schedule.swf").read_bytes() == (whole / "schedule.swf").read_bytes()
    assert_same(Run.load(out), out, Run.load(whole))


def line(id: int, submit: int, runtime: int = 5, size: int = 1) -> str:
    return f"{id} {submit} -1 {runtime} {size} -1 -1 {size} 10 -1 1 1 1 1 1 1 -1 -1\n"


LOG = "; MaxProcs: 2\n" + "".join(line(k, 3 * k) for k in range(1, 11))


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress),
     (".zst", zstandard.ZstdCompressor().compress)],
)  # fmt: skip
def test_parts_of_a_packed_log_are_those_of_the_plain_one(
    suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    log = tmp_path / f"a.swf{suffix}"
    log.write_bytes(pack(b"\xef\xbb\xbf" + LOG.replace("\n", "\r\n").encode()))
    found = list(swf.parts(log, 4))
    assert [part.table.id.tolist() for part in found] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert {part.processors for part in found} == {2}
    assert {part.header for part in found} == {("; MaxProcs: 2",)}
    if suffix:
        log.write_bytes(pack(LOG.encode())[:-7])
        with pytest.raises(InputError, match="damaged or cut short"):
            list(swf.parts(log, 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOG + line(11, 2), "submit time: job 11 is out of order.*read it as a whole"),
        (LOG + line(3, 90), "job number: job 3 is out of order.*sort the log"),
        (LOG + "11 x -1 5 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n", r"swf:12: field 2 \(submit"),
        (LOG + "1 2 3\n", "swf:12: .*18 fields, this one has 3"),
        (LOG + "\0\n", "swf:12: .*zero byte"),
        ("; MaxProcs: 2\n", "the log has no job"),
        ("", "the log has no job"),
        ("PAR1", "a Parquet table"),
    ],
)
def test_what_cannot_be_read_by_parts_is_said(text: str, message: str, tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    log.write_text(text)
    with pytest.raises(InputError) as error:
        list(swf.parts(log, 4))
    assert re.search(message, str(error.value), re.DOTALL), str(error.value)


def test_parts_without_a_job_that_can_run_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    none = "".join(line(k, 3 * k, runtime=-1) for k in range(4, 8))
    large = "".join(line(k, 3 * k, size=9) for k in range(8, 12))
    few = [line(k, 3 * k) for k in (1, 2, 3, 12, 13)]
    log.write_text("; MaxProcs: 2\n" + "".join(few[:3]) + none + large + "".join(few[3:]))
    found = windows.simulate((prepare(part) for part in swf.parts(log, 4)), tmp_path / "out")
    assert_same(found, tmp_path / "out", simulate(*prepare(log), "easy"))
    assert found.metrics["jobs"] == 5
    assert found.metrics["jobs_never_started"] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-d", "easy:wait=0.5"], "easy:wait=0.5 cannot be replayed by windows"),
        (["-d", "conservative"], "conservative cannot be replayed by windows"),
        (
            ["-d", "easy:limits=requested", "--trigger", "event"],
            "limits=requested cannot be replayed by windows with the trigger event: .* --trigger",
        ),
        (["--correction", "refresh"], "correction refresh asks the predictor .* another"),
        (["--predict", "last2"], "predictor last2 cannot be replayed by windows"),
        (
            ["--predict", "tests.predict.test_predict:HalfWalltime"],
            "predictor walltime cannot be replayed by windows",
        ),
        (["--jobs", "5"], "--jobs and --window cannot be combined"),
        (["--from", "2000-01-01"], "--from and --window cannot be combined"),
        (["--restartable", "all"], "--restartable and --window"),
        (["--events", "weibull:mtbf=30d,repair=1h"], "--events and --window"),
        (["--resume"], "--resume and --window"),
        (["--shake", "2"], "--window makes one replay"),
    ],
)
def test_what_needs_the_whole_log_is_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "a.swf", tmp_path / "out"
    log.write_text(LOG)
    assert cli.run(["simulate", str(log), "--window", "4", "--out", str(out), *options]) == 2
    assert re.search(message, capsys.readouterr().err.replace("\n", " "))
    assert not out.exists() or not list(out.iterdir())


def test_the_header_may_be_longer_than_a_window(tmp_path: Path) -> None:
    log, out = tmp_path / "a.swf", tmp_path / "out"
    log.write_text("; Version: 2\n; UnixStartTime: 843480031\n\n  ; Note: long\n" + LOG)
    assert [len(part) for part in swf.parts(log, 1)] == [1] * 10
    assert cli.run(["simulate", str(log), "--window", "2", "-d", "easy", "--out", str(out)]) == 0
    run = Run.load(out)
    assert run.about["began_s"] == 843_480_031
    text = (out / "schedule.swf").read_text()
    assert "; MaxProcs: 2\n" in text
    assert "; Note: long\n" in text


def test_a_run_by_windows_tells_what_others_tell(tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    log.write_text(LOG)
    ask = ["simulate", str(log), "-d", "easy", "--predict", "actual", "--out"]
    assert cli.run([*ask, str(tmp_path / "w"), "--window", "4"]) == 0
    assert cli.run([*ask, str(tmp_path / "p")]) == 0
    by_windows, whole = (Run.load(tmp_path / name).about for name in "wp")
    assert set(whole) - set(by_windows) <= {"predictor_seconds"}


def test_a_log_without_priorities_is_told_to_whom_it_matters(tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    log.write_text(LOG)
    ask = ["simulate", str(log), "-d", "easy-priority-priority", "--out"]
    assert cli.run([*ask, str(tmp_path / "w"), "--window", "4"]) == 0
    assert cli.run([*ask, str(tmp_path / "p")]) == 0
    by_windows, whole = (Run.load(tmp_path / name).about["notes"] for name in "wp")
    assert by_windows == whole
    assert list(whole.values()) == [10]


def test_a_folder_in_use_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "a.swf", tmp_path / "out"
    log.write_text(LOG)
    ask = ["simulate", str(log), "--window", "4", "-d", "easy", "--out", str(out)]
    assert cli.run(ask) == 0
    capsys.readouterr()
    assert cli.run(ask) == 2
    says = capsys.readouterr().err.replace("\n", " ")
    assert "holds another run: add --overwrite to replace it" in says
    assert "--resume" not in says


def test_what_is_refused_is_refused_before_another_run_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out, system = tmp_path / "a.swf", tmp_path / "out", tmp_path / "limited.toml"
    log.write_text(LOG)
    system.write_text(
        'resources = ["core"]\n[[groups]]\nname = "a"\nnodes = 1\ncapacity = [2]\n'
        '[[limits]]\nof = "jobs"\nmost = 5\nper = "user"\n'
    )
    ask = ["simulate", str(log), "--window", "4", "-d", "easy", "--out", str(out), "--overwrite"]
    assert cli.run(ask) == 0
    there = {path.name for path in out.iterdir()}
    assert cli.run([*ask, "--system", str(system)]) == 2
    assert "system limited has limits" in capsys.readouterr().err
    assert {path.name for path in out.iterdir()} == there


def test_an_interrupted_replay_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "a.swf"
    log.write_text(LOG)
    given = (prepare(part) for part in swf.parts(log, 4))
    with pytest.raises(InterruptedRunError):
        windows.simulate(given, tmp_path / "out", stop=lambda: True)
    assert list((tmp_path / "out").iterdir()) == []
