from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpdispatch import cli, instance, solution
from cpdispatch.simulate import Run

JOBS = ["--jobs", "300"]
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


def test_a_runs_json_has_every_documented_key(
    log: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (run,) = json(capsysbinary, "simulate", log)["runs"]
    documented = {
        "dispatcher", "predictor", "jobs", "dropped", "wait_s_mean", "wait_s_max",
        "slowdown_mean", "bounded_slowdown_mean", "bounded_slowdown_p95", "utilisation",
        "backfilled", "decision_ms_mean", "decision_ms_p99", "decisions", "seconds",
    }  # fmt: skip
    assert documented <= set(run)
    assert (run["jobs"], run["jobs_never_started"]) == (3, 1)
    assert run["wait_s_mean"] == pytest.approx(7 / 3)


def test_jobs_that_never_fit_are_told_to_people(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, "simulate", log)
    assert "1 jobs never started: they ask for more than the system has" in " ".join(out.split())


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
    code, text, _ = said(capsys, "solve", problem, "--model", "easy", "--out", out)
    assert code == 0
    assert "now" in text
    assert "+50 s  (planned)" in text
    assert said(capsys, "verify", problem, out)[:2] == (0, f"{out}: feasible\n")
    answer = solution.load(out)
    assert {job.id: job.start for job in answer.jobs} == {2: 100, 3: 150}


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


def test_the_other_instances_are_solved_when_one_is_bad(
    problem: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tmp_path / "many"
    many.mkdir()
    (many / "a.json").write_text("{")
    (many / "b.json").write_bytes(problem.read_bytes())
    (many / "c.json").write_bytes(problem.read_bytes().replace(b'"id":3', b'"id":-3'))
    out = tmp_path / "answers"
    arguments = ["solve", many, "--model", "easy", "--out", out]
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
    said(capsys, "solve", problem, "--model", "easy", "--out", out)
    out.write_bytes(out.read_bytes().replace(b'{"1":2}', b'{"0":2}'))
    code, text, _ = said(capsys, "verify", problem, out)
    assert code == 1
    assert "capacity" in text


@pytest.mark.parametrize("what", ["dispatchers", "models", "policies", "predictors", "systems"])
def test_what_can_be_named_is_listed(what: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    entries = json(capsysbinary, "list", what)[what]
    assert len(entries) >= 2
    assert all(entries.values())


def test_instances_are_dumped_on_the_way(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    assert (
        cli.run(["simulate", str(log), "--dump-instances", str(folder), "--dump-every", "1"]) == 0
    )
    dumped = [instance.load(path) for path in sorted(folder.iterdir())]
    assert [i.now for i in dumped if len(i.queue)] == sorted(i.now for i in dumped)
    assert dumped[0].queue.id.tolist() == [1]


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
    options = ["--dependencies", "--starvation", "2s,1min", "--dump-instances", folder]
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
    [("24h,2h", (86400, 7200)), ("90, 30s", (90, 30)), ("5min,0", (300, 0)), ("1m,1m", (60, 60))],
)
def test_a_starvation_bound_is_two_durations(text: str, bound: tuple[int, int]) -> None:
    found = cli.Rules(starvation=text).starvation_bound()
    assert found is not None
    assert (found.threshold_s, found.bound_s) == bound


# --------------------------------------------------------------------------------- campaigns


@pytest.fixture
def logs(log: Path, chain: Path) -> list[Path]:
    return [log, chain]


def untimed(run: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in run.items() if k != "seconds" and not k.startswith("decision_ms")}


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
    assert [line.split() for line in lines].count(["easy", "fifo"]) == 2
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
    assert f" {mean:.2f}\n" in capsysbinary.readouterr().out.decode()


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
        assert done.stderr == (
            "cpdispatch: 1 of 2 tasks failed: eurora-sample, mortals.mortal:Mortal: its worker "
            "was killed 3 times: it may have run out of memory; use fewer cores\n"
        )
    else:
        mortal, easy = msgspec.json.decode(done.stdout)["runs"]
        assert mortal["wait_s_mean"] == easy["wait_s_mean"]


def test_an_interrupted_campaign_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    slow = ["simulate", "-d", "conservative", "-d", "easy:depth=all"]
    slow += ["--jobs", "2000", "--cores", "2", "--json"]
    command = [*CPDISPATCH, *slow, "--out", str(out), "--checkpoint", "1ms"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while running.poll() is None and len(list(out.rglob("checkpoint.pickle"))) < 2:
        os.sched_yield()
    os.killpg(running.pid, signal.SIGINT)
    text, err = running.communicate()
    assert (running.returncode, text) == (130, "")
    assert err == "cpdispatch: interrupted: 0 of 2 tasks are done\n"
    assert len(list(out.rglob("checkpoint.pickle"))) == 2
    done = subprocess.run([*command, "--resume"], capture_output=True, check=True)
    whole = subprocess.run([*CPDISPATCH, *slow], capture_output=True, check=True)
    resumed, plain = (msgspec.json.decode(p.stdout)["runs"] for p in (done, whole))
    assert list(map(untimed, resumed)) == list(map(untimed, plain))
    assert not list(out.rglob("checkpoint.pickle"))


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


BAD = {
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
        lambda log: ["simulate", log, "--starvation", "1e20,5"],
        "1e20,5: whole seconds",
    ),
    "no seeds": (lambda log: ["simulate", log, "--seeds", "0"], "--seeds 0: 1 or more"),
    "less than no cores": (lambda log: ["simulate", log, "--cores", "-2"], "--cores -2: 1 or more"),
    "two logs of one name": (same_name, "two logs are named small"),
    "an unknown dispatcher beside another": (
        lambda log: ["simulate", log, "-d", "easy", "-d", "esy", "--out", log.parent / "out"],
        "did you mean easy",
    ),
    "no jobs": (lambda log: ["simulate", log, "--jobs", "0"], "1 or more"),
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
    "nothing to solve": (lambda log: ["solve"], "needs an instance file"),
    "a folder without instances": (lambda log: ["solve", log.parent], "there is no instance file"),
    "two solutions of one name": (twice, "two instances would have the solution file"),
    "nothing to verify": (lambda log: ["verify"], "INSTANCE SOLUTION or --run DIR"),
    "nothing to compare": (lambda log: ["compare"], "needs the folder"),
    "a folder without a run": (lambda log: ["compare", log.parent], "holds no finished run"),
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


CPDISPATCH = [sys.executable, "-m", "cpdispatch.cli"]


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
    slow = ["simulate", "-d", "conservative", "--jobs", "2000"]
    command = [*CPDISPATCH, *slow, "--out", str(out), "--checkpoint", "1ms"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not (out / "checkpoint.pickle").exists():
        os.sched_yield()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130
    assert "interrupted at" in err.splitlines()[-1]
    done = subprocess.run([*command, "--resume", "--json"], capture_output=True, check=True)
    whole = subprocess.run([*CPDISPATCH, *slow, "--json"], capture_output=True, check=True)
    (resumed,), (plain,) = (msgspec.json.decode(p.stdout)["runs"] for p in (done, whole))
    assert untimed(resumed) == untimed(plain)
    assert Run.load(out).metrics["jobs"] == 2000


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
