from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cpdispatch import cli
from cpdispatch.analyze import plots
from cpdispatch.analyze.plots import PlottedWorkload
from cpdispatch.cli.lublin import lublin_jobs
from cpdispatch.jobs import Workload
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads import lublin, read, slots, swf

GPUS = ["--system", "eurora", "--accelerators", "gpu=0.4", "--performance", "core=1,gpu=20"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    swf.write(lublin.generate(3000, request_factor=2), path)
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence that a bad command line gets."""
    code, out, err = said(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("cpdispatch: ")
    assert err.count("\n") == 1
    return err


def same(one: Workload, other: Workload) -> bool:
    return all(
        np.array_equal(a, b)
        for a, b in (
            (one.table.submit_s, other.table.submit_s),
            (one.table.units, other.table.units),
            (one.table.requested_s, other.table.requested_s),
            (one.runtime_s, other.runtime_s),
        )
    )


@pytest.mark.parametrize("name", ["new.swf", "new.swf.xz", "new.csv.gz", "new.parquet"])
def test_a_workload_like_a_logs_is_made_and_read_back(
    log: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / name
    code, text, err = said(capsys, "generate", log, "--jobs", 500, "--out", out, "--seed", 3)
    assert (code, err) == (0, "")
    assert f"{out}: 500 jobs in " in " ".join(text.split())
    made = slots.generate(slots.fit(read(log)), System.pool(256), 500, 3)
    assert same(read(out), made)


def test_what_is_made_is_told_as_one_json_object(
    log: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = tmp_path / "new.csv"
    arguments = ["generate", log, "--jobs", 400, "--out", out, "--load", 0.7, "--json", *GPUS]
    assert cli.run([str(argument) for argument in arguments]) == 0
    printed = capsysbinary.readouterr().out
    assert printed.count(b"\n") == 1
    told = msgspec.json.decode(printed)
    assert (told["out"], told["jobs"], told["seed"]) == (str(out), 400, 0)
    assert told["load"] == pytest.approx(0.7, rel=0.05)
    made = read(out)
    assert told["asking"]["gpu"] == np.mean(made.table.request[:, made.resources.index("gpu")] > 0)
    assert told["asking"]["gpu"] == pytest.approx(0.4, abs=0.1)
    assert told["days"] == np.ptp(made.table.submit_s) / 86_400


def test_accelerators_cannot_be_told_in_swf(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new.swf"
    err = refused(capsys, "generate", log, "--jobs", 100, "--out", out, *GPUS)
    assert "SWF has no field for gpu, which jobs ask for: write .csv or .parquet" in err
    assert not out.exists()


def test_what_swf_has_no_field_for_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {
        "restartable": "1", "priority": "5", "features": "ib", "nodelist": "2", "exclude": "3",
        "exclusive": "1", "units_per_node": "1", "units_per_node_min": "1",
        "units_per_node_max": "1", "nodes_min": "1", "nodes_max": "1", "node_core": "1",
        "begin": "900000", "licences": "matlab", "array": "7", "array_limit": "1", "mem": "5",
    }  # fmt: skip
    log, out = tmp_path / "log.csv", tmp_path / "new.swf"
    for name, value in asked.items():
        jobs = "".join(f"{k},{k * 200_000},60,1,1,{value}\n" for k in range(1, 5))
        log.write_text(f"id,submit,runtime,units,core,{name}\n{jobs}")
        err = refused(capsys, "resample", log, "--weeks", 1, "--out", out)
        assert f"SWF has no field for {name}" in err
        assert not out.exists()


def test_a_made_workload_can_be_simulated_on_the_system_that_it_was_made_for(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new.parquet"
    limits = ["--request-limits", "core=1..4,mem=0..2"]
    assert said(capsys, "generate", log, "--jobs", 100, "--out", out, *GPUS, *limits)[0] == 0
    assert read(out).table.request[:, 0].max() == 4
    code, text, _ = said(capsys, "simulate", out, "--system", "eurora", "-d", "easy")
    assert code == 0
    assert "mean bounded slowdown" in text
    assert "never" not in text


def test_a_saved_model_makes_what_the_log_does(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, first, second = (tmp_path / name for name in ("m.json.gz", "a.swf", "b.swf"))
    made = ["--jobs", 200, "--system", 256]
    assert said(capsys, "generate", log, *made, "--out", first, "--save-model", model)[0] == 0
    assert said(capsys, "generate", model, *made, "--out", second)[0] == 0
    assert first.read_bytes() == second.read_bytes()
    err = refused(capsys, "generate", model, "--jobs", 5, "--out", second)
    assert "does not say how large its machine is: give --system" in err
    err = refused(capsys, "generate", model, *made, "--out", second, "--filter", "strong")
    assert "--filter is for a log; a saved model was learned from a filtered one" in err


def test_a_slower_logs_machine_makes_less_work(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = []
    for given in ("core=10", "core=5"):
        out = tmp_path / "new.swf"
        rates = ["--performance", "core=10", "--log-performance", given]
        assert said(capsys, "generate", log, "--jobs", 400, "--out", out, *rates)[0] == 0
        work.append(int(read(out).runtime_s.sum()))
    assert work[1] == pytest.approx(work[0] / 2, rel=0.02)


def test_processors_of_the_lublin_model_are_cores_whatever_else_a_machine_has() -> None:
    machine = System("x", ("gpu", "core"), (NodeGroup("g", 16, (1, 32)),))
    made = lublin_jobs(machine, 200, 0)
    cores = made.table.units * made.table.request[:, made.resources.index("core")]
    assert 16 < cores.max() <= machine.processors


def test_jobs_of_the_lublin_model_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new.swf.zst"
    options = ["--kind", "both", "--load", 0.6, "--system", 128, "--request-factor", 2]
    assert said(capsys, "generate", "lublin", "--jobs", 300, "--out", out, *options)[0] == 0
    made = read(out)
    assert same(made, lublin.generate(300, processors=128, kind="both", load=0.6, request_factor=2))
    assert made.processors == 128


def test_weeks_are_resampled(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new.csv"
    code, text, _ = said(capsys, "resample", log, "--weeks", 3, "--out", out, "--seed", 1)
    assert code == 0
    assert "user unknown, resampled as one user: " in text
    made = read(out)
    assert 14 * 86_400 < made.table.submit_s[-1] < 21 * 86_400
    assert set(made.runtime_s.tolist()) <= set(read(log).runtime_s.tolist())


@pytest.mark.parametrize("command", [["generate", "--jobs", "300"], ["resample", "--weeks", "2"]])
@pytest.mark.parametrize("extension", ["png", "svg"])
def test_a_picture_of_both_workloads_is_drawn(
    command: list[str],
    extension: str,
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"new.{extension}"
    code, _, _ = said(capsys, *command, log, "--out", tmp_path / "new.swf", "--plot", picture)
    assert code == 0
    content = picture.read_bytes()
    assert len(content) > 20_000
    assert {"png": b"\x89PNG", "svg": b"<svg"}[extension] in content[:1000]


@pytest.mark.parametrize("rates", ["core=1,gpu=20", "core=10,gpu=200"])
def test_work_that_is_drawn_and_told_is_that_of_all_units(
    rates: str,
    log: Path,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[PlottedWorkload] = []
    monkeypatch.setattr(plots, "workloads", lambda _, plotted: drawn.extend(plotted))
    out = tmp_path / "new.csv"
    options = ["--jobs", "3000", "--system", "eurora", "--accelerators", "gpu=0.6"]
    options += ["--performance", rates, "--plot", str(tmp_path / "new.png"), "--json"]
    assert cli.run(["generate", str(log), *options, "--out", str(out)]) == 0
    told = msgspec.json.decode(capsysbinary.readouterr().out)
    source, made = read(log), read(out)
    core, gpu = (made.table.request[:, made.resources.index(name)] for name in ("core", "gpu"))
    expected = made.table.units * (core + 20 * gpu) * made.runtime_s
    assert drawn[1].work_core_s == pytest.approx(expected)
    assert drawn[0].work_core_s == pytest.approx(source.table.units * source.runtime_s)
    assert told["work_core_s_mean"] == pytest.approx(expected.mean())


def test_the_distribution_of_work_is_drawn_from_edge_to_edge_also_of_one_job() -> None:
    pyplot = pytest.importorskip("matplotlib.figure")
    when = np.ones(24), np.ones(7), np.ones(12)
    one = PlottedWorkload("one", *when, np.array([5000.0]))
    two = PlottedWorkload("two", *when, np.array([50.0, 80, 90_000]))
    axis = pyplot.Figure().subplots()
    plots._distribution(axis, [one, two])
    left, right = axis.get_xlim()
    assert left == 1
    assert right > 90_000
    (filled,), (line,) = axis.collections, axis.lines
    corners = filled.get_paths()[0].vertices.tolist()
    assert [5000, 100] in corners
    assert [right, 100] in corners
    steps = [[1, 0], [50, 100 / 3], [80, 200 / 3], [90_000, 100], [right, 100]]
    assert line.get_xydata() == pytest.approx(np.array(steps))


def test_a_missing_matplotlib_is_told_before_there_is_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out = tmp_path / "new.swf"
    picture = ["--plot", tmp_path / "new.png"]
    err = refused(capsys, "generate", "lublin", "--jobs", 10, "--out", out, *picture)
    assert "pip install 'cpdispatch[plot]'" in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "LOG", "--jobs", "0"], "jobs 0: a whole number, 1 or more, is needed"),
        (["generate", "lublin", "--jobs", "0"], "jobs 0"),
        (["resample", "LOG", "--weeks", "0"], "weeks 0: a whole number, 1 or more, is needed"),
        (["generate", "LOG", "--jobs", "9", "--load", "0"], "load 0: a number above 0"),
        (["generate", "LOG", "--jobs", "9", "--seed", "-1"], "--seed: a whole number from 0"),
        (["generate", "lublin", "--jobs", "9", "--request-factor", "nan"], "request factor nan: a"),
        (["generate", "lublinn", "--jobs", "9"], "unknown model 'lublinn'; did you mean lublin?"),
        (["generate", "LOG", "--jobs", "9", "--save-model", "m.txt"], "m.txt: unknown extension"),
        (["generate", "LOG", "--jobs", "9", "--performance", "core=0"], "numbers above 0 are"),
        (["generate", "LOG", "--jobs", "9", "--out", "new.txt"], "new.txt: unknown extension"),
        (["generate", "LOG", "--jobs", "9", "--out", "new.parquet.gz"], "unknown extension"),
        (["generate", "LOG", "--jobs", "9", "--plot", "new.bmp"], "pictures are .svg, .pdf, .png"),
        (["generate", "none.swf", "--jobs", "9"], "none.swf: no such file"),
        (["generate", "LOG", "--jobs", "9", "--kind", "batch"], "are for lublin, not for"),
        (
            ["generate", "lublin", "--jobs", "9", "--request-limits", "core=1..2"],
            "--request-limits is for",
        ),
        (["generate", "lublin", "--jobs", "9", "--save-model", "m.json"], "--save-model is for"),
        (["generate", "lublin", "--jobs", "9", "--filter", "strong"], "--filter is for jobs like"),
        (["generate", "LOG", "--jobs", "9", "--request-limits", "core=a..b"], "NAME=LEAST..MOST"),
        (
            ["generate", "LOG", "--jobs", "9", "--request-limits", "core"],
            "--request-limits: 'core' is not of the form parameter=value",
        ),
        (["generate", "LOG", "--jobs", "9", "--performance", "core=x"], "NAME=NUMBER"),
        (["generate", "LOG", "--jobs", "9", "--performance", "core=1,core=2"], "given twice"),
        (["generate", "LOG", "--jobs", "9", "--system", "moon"], "unknown system 'moon'"),
        (["resample", "SHORT", "--weeks", "2"], "shorter than a week"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_writes_nothing(
    arguments: list[str],
    message: str,
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    swf.write(lublin.generate(20), "short.swf")
    before = sorted(tmp_path.iterdir())
    places = {"LOG": str(log), "SHORT": "short.swf"}
    given = [places.get(argument, argument) for argument in arguments]
    if "--out" not in given:
        given += ["--out", "new.swf"]
    assert message in refused(capsys, *given)
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_cannot_be_written_is_told(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(capsys, "resample", log, "--weeks", 1, "--out", log / "new.swf")
    assert "cannot be written" in err


def test_the_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; from cpdispatch import cli; cli.run(['--help']);"
        "assert not {'numpy', 'numba', 'ortools', 'pandas', 'msgspec'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "generate" in done.stdout
    assert "resample" in done.stdout


def test_every_option_of_the_commands_has_its_line_of_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in ("generate", "resample"):
        code, out, _ = said(capsys, command, "--help")
        assert code == 0
        for option in ("--out", "--seed", "--plot", "--json"):
            assert option in out


def test_jobs_that_come_at_once_have_no_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--jobs", 1, "--load", 0.9, "--out", tmp_path / "new.csv"]
    text = said(capsys, "generate", "lublin", *options)[1]
    assert ": 1 job in 0.0 days, " in text
    assert "load" not in text
