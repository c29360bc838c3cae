"""Draws of runs on the command line: simulate --shake, and compare."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec
import numpy as np
import pytest

from cpdispatch import cli, difference, verify
from cpdispatch.campaign import Workers
from cpdispatch.experiment import RunSummary, report_of
from cpdispatch.simulator import Run
from cpdispatch.workloads import prepare, read
from cpdispatch.workloads.shake import shaken

CPDISPATCH = [sys.executable, "-m", "cpdispatch"]
JOBS = ["--jobs", "250"]
THREE = ["-d", "easy", "-d", "easy-spf-spf"]
DAY_S = 86_400

MEASURED = {"seconds", "memory_mib_peak"}


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def json(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return msgspec.json.decode(said(capsys, *arguments, "--json"))


def untimed(run: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in run.items() if k not in MEASURED and not k.startswith("decision_ms")}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two bursts a day on four processors for three days, with users."""
    lines = ["; MaxProcs: 4"]
    generator = np.random.default_rng(3)
    bursts = np.sort(generator.integers(0, 1800, (6, 10)), axis=1)
    submit_s = (bursts + DAY_S // 2 * np.arange(6)[:, None]).ravel()
    for k, at_s in enumerate(submit_s.tolist()):
        runtime_s, units = int(generator.integers(1, 4000)), int(generator.integers(1, 5))
        lines.append(
            f"{k + 1} {at_s} -1 {runtime_s} {units} -1 -1 {units} {runtime_s + 60} -1 1 "
            f"{k % 3} 1 -1 1 -1 -1 -1"
        )
    path = tmp_path / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_draws_are_the_same_again_and_on_one_core_and_on_two(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", log, *THREE, "--shake", 3, "--seed", 5]
    out = tmp_path / "out"
    one = json(capsys, *command, "--cores", 1)
    two = json(capsys, *command, "--cores", 2, "--out", out)
    assert list(map(untimed, one["runs"])) == list(map(untimed, two["runs"]))
    assert [(run["dispatcher"], run["draw"], run["seed"]) for run in one["runs"]] == [
        (name, draw, 5 + draw) for name in ("easy", "easy-spf-spf") for draw in range(3)
    ]
    found = sorted(str(path.parent.relative_to(out)) for path in out.rglob("run.json"))
    assert found == [f"{name}/draw-{k}" for name in ("easy-spf-spf", "easy") for k in range(3)]
    workload = read(log)
    for draw in range(3):
        run = Run.load(out / "easy" / f"draw-{draw}")
        assert (run.about["draw"], run.about["seed"]) == (draw, 5 + draw)
        assert run.jobs["submit"].tolist() == shaken(workload, draw).table.submit_s.tolist()
        assert verify.run(run.jobs, run.system) == []
        again = read(out / "easy" / f"draw-{draw}" / "schedule.swf")
        assert again.table.submit_s.tolist() == run.jobs["submit"].tolist()


def test_draw_0_is_the_run_without_draws(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, more in (("plain", []), ("shaken", ["--shake", 2])):
        said(capsys, "simulate", log, "-d", "easy-spf-spf", "--out", tmp_path / name, *more)
    plain = Run.load(tmp_path / "plain")
    first, second = (Run.load(tmp_path / "shaken" / f"draw-{draw}") for draw in range(2))
    assert plain.job_table.equals(first.job_table)
    assert not plain.job_table.equals(second.job_table)
    measured = MEASURED | {"place", "metrics"}
    for about in (plain.about, first.about):
        for key in measured:
            about.pop(key)
    assert plain.about == first.about


def test_without_a_log_the_sample_of_the_seed_is_shaken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    said(capsys, "simulate", *JOBS, "-d", "easy", "--shake", 2, "--seed", 1, "--out", out)
    plain = json(capsys, "simulate", *JOBS, "-d", "easy", "--seed", 1)["runs"][0]
    first, second = (Run.load(out / f"draw-{draw}") for draw in range(2))
    assert first.metrics["bounded_slowdown_mean"] == plain["bounded_slowdown_mean"]
    later_s = second.jobs["submit"] - first.jobs["submit"]
    assert later_s.between(0, 59).all()
    assert later_s.any()


def test_a_table_has_means_and_spreads_and_says_what_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["simulate", *JOBS, *THREE, "-d", "easy-saf-saf", "--shake", 6, "--cores", 1]
    text = said(capsys, *command, "--out", out)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:2] == ["mean ± st. deviation", "of 6 draws easy easy-spf-spf"]
    told = json(capsys, "compare", out)
    values = {
        name: [run["bounded_slowdown_mean"] for run in told["runs"] if run["dispatcher"] == name]
        for name in ("easy", "easy-spf-spf", "easy-saf-saf")
    }
    easy, spf = values["easy"], values["easy-spf-spf"]
    cells = [f"{statistics.mean(of):.2f} ± {statistics.stdev(of):.2f}" for of in values.values()]
    assert f"mean bounded slowdown {cells[0]} {cells[1]}" in lines
    assert f"mean bounded slowdown {cells[2]}" in lines
    expected = str(difference(spf, easy)).replace(" (", " of easy's (", 1)
    assert f"easy-spf-spf: mean bounded slowdown {expected}." in lines
    assert said(capsys, "compare", out) == text


def test_programs_are_told_all_draws_means_and_differences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = json(capsys, "simulate", *JOBS, *THREE, "--shake", 6, "--cores", 1)
    assert set(told) == {"runs", "means", "differences", "warnings", "test_runs", "failures"}
    assert [run["draw"] for run in told["runs"]] == [*range(6)] * 2
    easy, spf = told["means"]
    about = {"workload", "system", "dispatcher", "predictor", "idempotent", "draws", "figures"}
    assert set(spf) == about
    assert (easy["dispatcher"], spf["dispatcher"], spf["draws"]) == ("easy", "easy-spf-spf", 6)
    runs = told["runs"][6:]
    for key in ("bounded_slowdown_mean", "wait_s_mean", "wait_s_max", "utilisation"):
        of = [run[key] for run in runs]
        assert spf["figures"][key] == pytest.approx(
            {"mean": np.mean(of), "spread": np.std(of, ddof=1), "min": min(of), "max": max(of)}
        )
    of = [run["classes"]["short"]["wait_s_mean"] for run in runs]
    assert spf["figures"]["classes.short.wait_s_mean"]["max"] == max(of)
    assert "users.wait_s_mean" in spf["figures"]
    (found,) = told["differences"]
    first = [run["bounded_slowdown_mean"] for run in told["runs"][:6]]
    expected = difference([run["bounded_slowdown_mean"] for run in runs], first)
    for key in ("ratio", "low", "high", "pairs", "over", "says"):
        assert found[key] == pytest.approx(getattr(expected, key))
    assert (found["dispatcher"], found["first"]) == ("easy-spf-spf", "easy")
    assert (found["figure"], found["workload"]) == ("bounded_slowdown_mean", runs[0]["workload"])
    assert found["text"].startswith("easy-spf-spf: mean bounded slowdown ")


def test_runs_with_missing_draws_are_compared_in_those_that_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    said(capsys, "simulate", *JOBS, *THREE, "--shake", 8, "--cores", 1, "--out", out)
    rmtree(out / "easy-spf-spf" / "draw-0")
    rmtree(out / "easy" / "draw-3")
    text = said(capsys, "compare", out)
    joined = " ".join(text.split())
    assert "easy-spf-spf has 7 draws, easy 7: they are compared in the 6 that both have." in joined
    told = json(capsys, "compare", out)
    values = {
        name: {
            run["draw"]: run["bounded_slowdown_mean"]
            for run in told["runs"] if run["dispatcher"] == name
        }
        for name in ("easy", "easy-spf-spf")
    }  # fmt: skip
    both = (1, 2, 4, 5, 6, 7)
    expected = difference(*([values[name][k] for k in both] for name in ("easy-spf-spf", "easy")))
    (found,) = told["differences"]
    assert found["ratio"] == pytest.approx(expected.ratio)
    assert (found["pairs"], found["says"]) == (6, expected.says)
    spf = next(of for of in told["means"] if of["dispatcher"] == "easy-spf-spf")
    assert spf["draws"] == 7
    assert spf["figures"]["bounded_slowdown_mean"]["max"] == max(values["easy-spf-spf"].values())


def test_a_run_without_draws_is_draw_0_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "simulate", *JOBS, "-d", "easy", "--out", tmp_path / "a")
    command = ["simulate", *JOBS, "-d", "easy-spf-spf", "--shake", 6, "--cores", 1]
    said(capsys, *command, "--out", tmp_path / "b")
    text = " ".join(said(capsys, "compare", tmp_path / "a", tmp_path / "b").split())
    assert "easy-spf-spf has 6 draws, easy 1: they are compared in the 1 that both have" in text
    assert "1 week cannot tell a difference from noise" in text
    assert "easy easy-spf-spf of draws one run 6 draws" in text


@pytest.mark.parametrize("folders", ["ab", "ba"])
def test_a_run_beside_the_draws_of_the_same_leaves_these_together(
    folders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "simulate", *JOBS, "-d", "easy", "--out", tmp_path / "a")
    command = ["simulate", *JOBS, *THREE, "--shake", 6, "--cores", 1]
    said(capsys, *command, "--out", tmp_path / "b")
    text = " ".join(said(capsys, "compare", *(tmp_path / name for name in folders)).split())
    heads = {"ab": "one run 6 draws 6 draws", "ba": "6 draws one run 6 draws"}
    assert f"easy easy easy-spf-spf of draws {heads[folders]} jobs" in text
    assert text.count("longest wait") == 1
    assert "easy 1" not in text


def test_one_draw_alone_is_of_the_log_of_a_later_run_with_all_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "simulate", *JOBS, *THREE, "--shake", 2, "--cores", 1, "--out", tmp_path / "a")
    said(capsys, "simulate", *JOBS, "-d", "fifo", "--out", tmp_path / "b")
    folders = [tmp_path / "a" / "easy-spf-spf" / "draw-1", tmp_path / "b", tmp_path / "a" / "easy"]
    text = " ".join(said(capsys, "compare", *folders).split())
    assert "easy-spf-spf fifo easy of draws one run one run 2 draws jobs" in text


def test_few_draws_of_a_short_log_claim_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "simulate", *JOBS, *THREE, "--shake", 3, "--cores", 1)
    joined = " ".join(text.split())
    assert "3 draws cannot tell a difference from noise: that takes 6 draws." in joined
    assert "lower." not in joined
    assert "higher." not in joined


@pytest.fixture
def weeks(tmp_path: Path) -> Path:
    """Eight weeks: on each day a long job, and short jobs that come just after it."""
    lines, number = ["; MaxProcs: 2"], 0
    for day in range(56):
        for later_s, runtime_s in [
            (0, 5000 + 60 * day),
            *((9 + k, 60) for k in range(day % 5)),
        ] * 2:
            number += 1
            lines.append(
                f"{number} {day * DAY_S + later_s} -1 {runtime_s} 2 -1 -1 2 {runtime_s} -1 1 1 1 "
                "-1 1 -1 -1 -1"
            )
    path = tmp_path / "weeks.swf"
    lines[1:] = sorted(lines[1:], key=lambda line: int(line.split()[1]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_one_replay_of_many_weeks_is_compared_week_by_week(
    weeks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    text = said(capsys, "simulate", weeks, "-d", "fifo", "-d", "sjf", "--cores", 1, "--out", out)
    fifo, sjf = (Run.load(out / name) for name in ("fifo", "sjf"))
    sums = []
    for run in (sjf, fifo):
        of = [0.0] * 8
        for job in run.jobs.itertuples():
            wait_s, runtime_s = job.start - job.submit, job.end - job.start
            week = (job.submit - run.jobs["submit"].min()) // (7 * DAY_S)
            of[week] += max(1, (wait_s + runtime_s) / max(runtime_s, 10))
        sums.append(of)
    expected = difference(*sums, "weeks")
    assert expected.says == "lower"
    assert expected.ratio == pytest.approx(
        sjf.metrics["bounded_slowdown_mean"] / fifo.metrics["bounded_slowdown_mean"]
    )
    assert f"sjf: mean bounded slowdown {expected}.".replace(" (", " of fifo's (", 1) in text
    assert said(capsys, "compare", out) == text


def test_each_log_has_differences_of_its_own(
    log: Path, weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", log, weeks, "-d", "fifo", "-d", "sjf", "--shake", 6, "--cores", 1]
    told = json(capsys, *command)
    assert [(of["workload"], of["dispatcher"], of["first"]) for of in told["differences"]] == [
        ("small", "sjf", "fifo"), ("weeks", "sjf", "fifo"),
    ]  # fmt: skip
    assert [(of["workload"], of["draws"]) for of in told["means"]] == [
        ("small", 6), ("small", 6), ("weeks", 6), ("weeks", 6),
    ]  # fmt: skip
    text = said(capsys, *command)
    for of in told["differences"]:
        assert of["text"] in text


def test_few_draws_of_many_weeks_are_compared_over_the_weeks(
    weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", weeks, "-d", "fifo", "-d", "sjf", "--shake", 2, "--cores", 1]
    (found,) = json(capsys, *command)["differences"]
    assert (found["pairs"], found["over"], found["says"]) == (8, "weeks", "lower")


def test_seeds_of_one_log_are_no_draws(weeks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", weeks, "-d", "fifo", "-d", "sjf", "--seeds", 7, "--cores", 1]
    (found,) = json(capsys, *command)["differences"]
    assert (found["pairs"], found["over"]) == (8, "weeks")


def test_samples_of_many_seeds_are_draws(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json(capsys, "simulate", *JOBS, *THREE, "--seeds", 6, "--cores", 1)["differences"]
    assert (found["pairs"], found["over"]) == (6, "draws")


def test_more_draws_are_added_and_only_missing_ones_are_made(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["simulate", log, *THREE, "--cores", 1, "--out", out]
    said(capsys, *command, "--shake", 3)
    kept = {path: path.stat().st_ino for path in out.rglob("*.parquet")}
    gone = out / "easy" / "draw-1" / "run.json"
    gone.unlink()
    runs = json(capsys, *command, "--shake", 4, "--resume")["runs"]
    assert gone.exists()
    assert all(
        path.stat().st_ino == number
        for path, number in kept.items() if path.parent != gone.parent
    )  # fmt: skip
    whole = json(capsys, "simulate", log, *THREE, "--cores", 1, "--shake", 4)["runs"]
    assert list(map(untimed, runs)) == list(map(untimed, whole))


def test_a_draw_is_not_resumed_as_another(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["simulate", log, "-d", "easy", "--cores", 1, "--out", out, "--shake", 3]
    said(capsys, *command)
    (out / "draw-1").rename(out / "aside")
    (out / "draw-2").rename(out / "draw-1")
    assert cli.run([*map(str, command), "--resume"]) == 2
    _, err = capsys.readouterr()
    assert "belongs to another run: its seed is 2, not 1" in err


def test_an_interrupted_shake_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    slow = ["simulate", "-d", "conservative", "--jobs", "800", "--shake", "3"]
    slow += ["--cores", "2", "--json"]
    command = [*CPDISPATCH, *slow, "--out", str(out), "--checkpoint", "1ms"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    # On a busy machine no two of the three may be under way at once.
    while running.poll() is None and not list(out.rglob("checkpoint.pickle")):
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGINT)
    text, err = running.communicate()
    assert (running.returncode, text) == (130, "")
    assert "add --resume to the same command" in err
    rarely = [*command[:-1], "1min", "--resume"]
    done = subprocess.run(rarely, capture_output=True, check=True)
    whole = subprocess.run([*CPDISPATCH, *slow], capture_output=True, check=True)
    resumed, plain = (msgspec.json.decode(p.stdout)["runs"] for p in (done, whole))
    assert list(map(untimed, resumed)) == list(map(untimed, plain))
    assert not list(out.rglob("checkpoint.pickle"))


def test_what_workers_elsewhere_send_is_saved_as_the_draw_that_it_is(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cpdispatch.experiment import runs

    # Workers that do not find the sign cannot write into the folders, and send whole runs.
    monkeypatch.setattr(runs, "_sign", lambda plans: nullcontext(tmp_path / "nowhere"))
    found = runs.Experiment([prepare(log)], ["easy"], [0], draws=2)
    plans = found.plans(runs.RunPlan("", rules={}, folder=tmp_path / "out"))
    _, failure = found.run(plans, Workers(1), lambda done, of: None, lambda: False)
    assert failure is None
    for draw in range(2):
        folder = tmp_path / "out" / f"draw-{draw}"
        run, schedule = Run.load(folder), read(folder / "schedule.swf")
        assert run.about["draw"] == draw
        assert schedule.table.submit_s.tolist() == run.jobs["submit"].tolist()
    assert read(log).table.submit_s.tolist() != run.jobs["submit"].tolist()


def test_the_dumps_of_draws_are_told_apart(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "dumps"
    command = ["simulate", log, "-d", "easy", "--shake", 2, "--cores", 1]
    said(capsys, *command, "--dump-instances", dumps, "--dump-every", 20)
    assert {path.parent.name for path in dumps.rglob("*.gz")} == {"draw-0", "draw-1"}


def test_jobs_that_come_after_others_do_so_in_every_draw(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chained = []
    for line in log.read_text().splitlines():
        fields = line.split()
        if fields[0] != ";" and int(fields[0]) % 10 > 1:
            fields[16:] = [str(int(fields[0]) - 1), "300"]
        chained.append(" ".join(fields))
    log.write_text("\n".join(chained) + "\n")
    out = tmp_path / "out"
    command = ["simulate", log, "-d", "easy", "--dependencies", "--shake", 3, "--cores", 1]
    said(capsys, *command, "--out", out)
    assert said(capsys, "verify", "--run", out).count(": feasible") == 3
    for draw in range(3):
        jobs = Run.load(out / f"draw-{draw}").jobs.set_index("id")
        after = jobs[jobs["preceding"] > 0]
        assert len(after) == 48
        ended = jobs["end"].loc[after["preceding"]].to_numpy()
        assert (after["start"].to_numpy() >= ended + 300).all()


def test_runs_made_in_python_are_paired_by_their_submissions() -> None:
    import cpdispatch as cpd

    workload, system = cpd.prepare(cpd.eurora_sample(200), "eurora")
    draws = [cpd.shaken(workload, draw) for draw in range(6)]
    easy, spf = (
        [cpd.simulate(of, system, name) for of in draws] for name in ("easy", "easy-spf-spf")
    )
    values = [[run.metrics["bounded_slowdown_mean"] for run in runs] for runs in (spf, easy)]
    by_hand = cpd.difference(*values)
    numbered = [
        replace(run, about=run.about | {"draw": draw})
        for runs in (easy, spf) for draw, run in enumerate(runs)
    ]  # fmt: skip
    (told,) = report_of([RunSummary.of(run) for run in numbered])["differences"]
    assert (told["ratio"], told["says"]) == (pytest.approx(by_hand.ratio), by_hand.says)


@pytest.mark.parametrize(("field", "value"), [("draw", "3"), ("workload_sha256", [1])])
def test_a_run_whose_draw_or_checksum_is_damaged_is_refused(
    field: str, value: object, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    said(capsys, "simulate", log, "-d", "easy", "--out", out)
    about = msgspec.json.decode((out / "run.json").read_bytes())
    (out / "run.json").write_bytes(msgspec.json.encode(about | {field: value}))
    assert cli.run(["compare", str(out)]) == 2
    _, err = capsys.readouterr()
    assert err.startswith(f"cpdispatch: {out / 'run.json'}")
    assert f"field {field}: " in err


Made = Callable[[Path], list[object]]
BAD: dict[str, tuple[Made, str]] = {
    "none": (lambda log: ["simulate", log, "--shake", "0"], "--shake 0: a whole number"),
    "fewer than none": (
        lambda log: ["simulate", log, "--shake", "-1"],
        "--shake -1: a whole number",
    ),
    "text": (lambda log: ["simulate", log, "--shake", "some"], "--shake"),
    "without a log": (
        lambda log: ["simulate", "--shake", "0"],
        "--shake 0: a whole number of draws",
    ),
    "with seeds": (
        lambda log: ["simulate", log, "--shake", "4", "--seeds", "2"],
        "--seeds 2 and --shake 4 cannot be combined: each draw",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_numbers_of_draws_are_one_clear_line(
    case: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, complaint = BAD[case]
    assert cli.run([str(argument) for argument in made(log)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("cpdispatch: ")
    assert complaint in err
