"""Experiments from a file: every combination is run once, and what is wrong is named."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import cli, verify
from cpdispatch.cli.runs import first_of_each
from cpdispatch.errors import InputError
from cpdispatch.experiment import RunSummary
from cpdispatch.experiment import file as files
from cpdispatch.experiment.memory import PeakMemory
from cpdispatch.simulator import Run
from cpdispatch.workloads import lublin

ROOT = Path(__file__).resolve().parents[1]
LOG = "id,submit,runtime,requested,units,core,user\n" + "".join(
    f"{k},{k * 7},{20 + k * 37 % 50},100,{1 + k % 4},1,{k % 3}\n" for k in range(1, 41)
)
FORM = """
dispatchers = ["easy", "sjf"]
predictors = ["", "last2"]
draws = 2
[[logs]]
file = "small.csv"
system = "4"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "small.csv").write_text(LOG)
    (tmp_path / "e.toml").write_text(FORM)
    return tmp_path / "e.toml"


def ran(path: Path, *options: str) -> int:
    out = path.parent / "out"
    return cli.run(["experiment", str(path), "--out", str(out), "--cores", "1", *options])


def results(path: Path) -> list[dict[str, str]]:
    with (path.parent / "out" / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def folders(path: Path) -> list[str]:
    out = path.parent / "out"
    return sorted(str(run.parent.relative_to(out)) for run in out.glob("**/run.json"))


def test_every_combination_is_run_and_saved(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(path, "--json") == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert folders(path) == sorted(
        f"small/{name}/draw-{draw}"
        for name in ("easy", "easy,last2", "sjf", "sjf,last2")
        for draw in (0, 1)
    )
    for folder in folders(path):
        run = Run.load(path.parent / "out" / folder)
        assert verify.run(run.jobs, run.system) == []
    rows = results(path)
    assert [(row["dispatcher"], row["predictor"], row["runs"]) for row in rows] == [
        ("easy", "walltime", "2"), ("sjf", "walltime", "2"), ("easy", "last2", "2"),
        ("sjf", "last2", "2"),
    ]  # fmt: skip
    for row, means in zip(rows, printed["means"], strict=True):
        for kind in ("mean", "spread", "min", "max"):
            figure = means["figures"]["bounded_slowdown_mean"][kind]
            assert float(row[f"bounded_slowdown_mean_{kind}"]) == figure
    runs = [run for run in printed["runs"] if run["dispatcher"] == "sjf"]
    of_sjf = [run["wait_s_mean"] for run in runs if run["predictor"] == "walltime"]
    assert float(rows[1]["wait_s_mean_mean"]) == pytest.approx(sum(of_sjf) / 2)


def test_only_what_was_added_is_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(path) == 0
    out = path.parent / "out"
    before = {
        folder: (out / folder / "jobs.parquet").stat().st_mtime_ns for folder in folders(path)
    }
    path.write_text(FORM.replace('["easy", "sjf"]', '["ljf", "easy", "sjf"]').replace("= 2", "= 3"))
    assert ran(path) == 0
    assert len(folders(path)) == 18
    for folder, written in before.items():
        assert (out / folder / "jobs.parquet").stat().st_mtime_ns == written
    assert [row["dispatcher"] for row in results(path)] == ["ljf", "easy", "sjf"] * 2
    assert "Figures of all runs" in capsys.readouterr().out


def test_another_log_in_the_same_place_is_refused_and_replaced(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(FORM.replace("draws = 2", "").replace('"", "last2"', '""'))
    assert ran(path) == 0
    (path.parent / "small.csv").write_text(LOG.replace("1,7,", "1,6,"))
    assert ran(path) == 2
    assert "belongs to another run" in capsys.readouterr().err
    assert ran(path, "--overwrite") == 0


def test_results_have_no_times_of_decisions(path: Path) -> None:
    path.write_text(FORM.replace('"sjf"', '"easy:wait=1"') + '[rules]\ntrigger = "event"\n')
    assert ran(path) == 0
    assert not [name for row in results(path) for name in row if "_ms_" in name]


def test_results_of_one_draw_have_the_columns_of_several(path: Path) -> None:
    form = FORM.replace('"", "last2"', '""').replace('"4"', '"4"\nrestartable = "all"')
    found = []
    for draws in (1, 2):
        path.write_text(form.replace("draws = 2", f"draws = {draws}"))
        assert ran(path) == 0
        found.append(results(path)[1])
    assert list(found[0]) == list(found[1])
    assert float(found[0]["users.wait_s_mean_mean"]) >= 0


def test_results_of_runs_that_are_refused_stay(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path.parent / "other.csv").write_text(LOG)
    form = 'dispatchers = ["easy"]\n' + "".join(
        f'[[logs]]\nfile = "{name}.csv"\nsystem = "4"\njobs = 30\n' for name in ("small", "other")
    )
    path.write_text(form)
    assert ran(path, "--json") == 0
    before = (path.parent / "out" / "results.csv").read_bytes()
    path.write_text(form.replace("30", "20", 1))
    capsys.readouterr()
    assert ran(path, "--json") == 2
    said = capsys.readouterr()
    assert "results.csv and what is beside it stay as they are" in said.err
    printed = json.loads(said.out)
    assert [run["workload"] for run in printed["runs"]] == ["other"]
    assert printed["files"] == []
    assert (path.parent / "out" / "results.csv").read_bytes() == before


def test_a_single_run_has_no_spread(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(FORM.replace("draws = 2", "").replace('"", "last2"', '""'))
    assert ran(path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "that takes 6 weeks, or draws (draws = 10 in e.toml)." in said
    row = results(path)[0]
    assert row["runs"] == "1"
    assert row["wait_s_mean_spread"] == ""
    assert row["wait_s_mean_mean"] == row["wait_s_mean_min"] == row["wait_s_mean_max"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("draws", "drews", "field drews: not an experiment: unknown key (found 2); did you mean"),
        ("draws = 2", 'trigger = "event"', "(found 'event'); it belongs into rules"),
        ("[[logs]]", "[[logs]]\ndraws = 2", "field logs[0].draws: not an experiment: unknown key"),
        ("= 2", '= "x"', "field draws: not an experiment: expected a whole number (found 'x')"),
        ("= 2", "= [2]", "expected a whole number, found a list"),
        ("[[logs]]", "[logs]", "expected a list, found keys with values; write [[logs]] instead"),
        (
            '["easy", "sjf"]',
            '["easy", 3]',
            "field dispatchers[1]: not an experiment: expected text",
        ),
        (
            "draws = 2",
            "seed = -1",
            "field seed: 0 or more is needed, 2147473647 at most",
        ),
        ("[[logs]]", "[[logs]]\njobs = 0", "field logs, the 1.: jobs: 1 or more are needed"),
        ("= 2", "= 0", "field draws: 1 or more is needed, 10000 at most (found 0)"),
        ("= 2", "= 10001", "field draws: 1 or more is needed, 10000 at most (found 10001)"),
        ("draws = 2", 'limit = "abc"', "field limit: 'abc' is not a duration"),
        ('["easy", "sjf"]', "[]", "field dispatchers: one or more are needed"),
        ('file = "small.csv"', "", "field logs, the 1.: a log has either a file or the name"),
        ('system = "4"', 'archive = "kth"', "field logs, the 1.: a log has either"),
        (
            "[[logs]]",
            "[[logs]]\nfilter = 'weak'",
            "expected one of all, drop, strong (found 'weak')",
        ),
        ("[[logs]]", "[[logs]]\nmodel = 'lublin'", "field logs, the 1.: a log has either"),
        ("[[logs]]", "[[logs]]\ndraws_by = 'resample'", "with draws_by resample, weeks says"),
        ("[[logs]]", "[[logs]]\ndraws_by = 'generate'", "with draws_by generate, jobs says"),
        ("[[logs]]", "[[logs]]\nweeks = 3", "weeks means nothing with draws_by shake"),
        ('file = "small.csv"', "model = 'lublin'", "with model lublin, jobs says how many"),
    ],
)
def test_a_wrong_key_or_value_is_named(path: Path, old: str, new: str, says: str) -> None:
    path.write_text(FORM.replace(old, new))
    with pytest.raises(InputError) as caught:
        files.load(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("small.csv", "none.csv", "none.csv: no such file"),
        ('system = "4"', 'system = "4x"', "unknown system '4x'"),
        ('system = "4"', 'system = "4"\nfrom = "2026-13-01"', "2026-13-01"),
        ('file = "small.csv"', "model = 'eurora'\njobs = 1", "jobs 1: a whole number, 2 or more"),
        ('file = "small.csv"', "archive = 'kht'", "unknown log 'kht'; did you mean kth?"),
    ],
)
def test_a_log_that_cannot_be_read_or_made_is_named(
    path: Path, old: str, new: str, says: str
) -> None:
    path.write_text(FORM.replace(old, new))
    with pytest.raises(InputError) as caught:
        files.parts(files.load(path), path, path.parent / "out")
    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{path}: field logs, the 1.: ")


def test_dependencies_are_refused_only_where_no_log_has_any(path: Path) -> None:
    made = '[[logs]]\nmodel = "lublin"\njobs = 5\n[rules]\ndependencies = true\n'
    path.write_text(FORM + made)
    with pytest.raises(InputError) as caught:
        files.parts(files.load(path), path, path.parent / "out")
    assert str(caught.value) == (
        f"{path}: field rules.dependencies: no job of small, lublin-256 comes after another one: "
        "leave dependencies out"
    )
    head, *jobs = LOG.splitlines()
    after = [f"{job},{1 if job.startswith('2,') else -1},0" for job in jobs]
    (path.parent / "small.csv").write_text("\n".join([f"{head},preceding,think", *after, ""]))
    parts = files.parts(files.load(path), path, path.parent / "out")
    assert len(parts) == 4


def test_a_system_file_is_beside_the_experiments(path: Path) -> None:
    system = 'resources = ["core"]\ngroups = [{name = "a", nodes = 4, capacity = [1]}]\n'
    (path.parent / "mine.toml").write_text(system)
    path.write_text(FORM.replace('"4"', '"mine.toml"'))
    ((part, *_),) = [files.parts(files.load(path), path, path.parent / "out")]
    assert part.experiment.logs[0][1].nodes == 4


def test_names_are_checked_before_anything_runs(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for old, new, says in (
        ("sjf", "sjg", "e.toml: field dispatchers, the 2.: "), ("sjf", "sjg", "did you mean sjf"),
        ("last2", "lost2", "e.toml: field predictors, the 2.: unknown predictor"),
        ("small.csv", "smal.csv", "no such file"),
    ):  # fmt: skip
        path.write_text(FORM.replace(old, new))
        assert ran(path) == 2
        assert says in capsys.readouterr().err
        assert folders(path) == []


def test_nothing_is_removed_before_all_is_checked(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    path.write_text(FORM.replace('"", "last2"', '"class"').replace("draws = 2", ""))
    assert ran(path) == 0
    before = folders(path)
    path.write_text(
        FORM.replace('"", "last2"', '"class", "walltime"').replace("draws = 2", "")
        + "[rules]\nidempotent = true\n"
    )
    assert ran(path, "--overwrite") == 2
    assert "predictor walltime bounds no job" in " ".join(capsys.readouterr().err.split())
    assert folders(path) == before


def test_a_log_on_which_a_dispatcher_fails_leaves_the_others(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path.parent / "other.csv").write_text(LOG)
    path.write_text(
        'dispatchers = ["tests.own_parts:FailsOnEight"]\n'
        '[[logs]]\nfile = "small.csv"\nsystem = "8"\n'
        '[[logs]]\nfile = "other.csv"\nsystem = "4"\n'
    )
    assert ran(path, "--json") == 2
    out, err = capsys.readouterr()
    key = "small, tests.own_parts:FailsOnEight"
    assert f"1 of 2 tasks failed: {key}: dispatcher fails on eight raised" in err
    assert list(json.loads(out)["failed"]) == [key]
    assert [row["workload"] for row in results(path)] == ["other"]


def test_failures_under_each_predictor_are_told(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(FORM.replace('"sjf"', '"tests.own_parts:FailsOnEight"').replace('"4"', '"8"'))
    assert ran(path, "--json") == 2
    failed = json.loads(capsys.readouterr().out)["failed"]
    name = "small, tests.own_parts:FailsOnEight"
    assert sorted(failed) == [
        f"{name} with last2, draw 0", f"{name} with last2, draw 1", f"{name}, draw 0",
        f"{name}, draw 1",
    ]  # fmt: skip


def test_predictors_of_one_name_are_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("tests.own_parts:Says", "tests.own_parts:SaysHalf")
    path.write_text(FORM.replace('"", "last2"', f'"{own[0]}", "{own[1]}"'))
    assert ran(path) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"field predictors: the predictors {own[0]} and {own[1]} both have the name" in said
    assert folders(path) == []


def test_no_run_is_made_twice_for_two_names_of_a_predictor(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(FORM.replace('"", "last2"', '"", "walltime", "last2"'))
    assert ran(path) == 0
    kinds = [(row["dispatcher"], row["predictor"]) for row in results(path)]
    names = ("easy", "sjf")
    assert kinds == [(name, of) for of in ("walltime", "last2") for name in names]
    path.write_text(FORM.replace('"", "last2"', '"last2", "last2"'))
    capsys.readouterr()
    assert ran(path) == 2
    assert "field predictors: the same predictor is named twice" in capsys.readouterr().err


def test_each_draw_of_samples_has_jobs_of_its_own(path: Path) -> None:
    days = "id,submit,runtime,requested,units,core,user\n" + "".join(
        f"{k},{k * 13_000},{20 + k * 37 % 50},100,{1 + k % 4},1,{k % 3}\n" for k in range(120)
    )
    (path.parent / "long.csv").write_text(days)
    path.write_text(
        FORM.replace('predictors = ["", "last2"]', "seed = 3")
        + "".join(
            f"[[logs]]\n{form}\n"
            for form in (
                'file = "long.csv"\nsystem = "4"\ndraws_by = "resample"\nweeks = 2',
                'file = "long.csv"\nsystem = "4"\ndraws_by = "generate"\njobs = 15\nload = 0.9',
                'model = "lublin"\nsystem = "8"\njobs = 12',
                'model = "eurora"\njobs = 14',
            )
        )
    )
    assert ran(path) == 0
    out = path.parent / "out"
    names = ["small", "long-resampled", "long-like", "lublin-8", "eurora-sample"]
    assert folders(path) == sorted(
        f"{log}/{name}/draw-{draw}" for log in names for name in ("easy", "sjf") for draw in (0, 1)
    )
    for log in names:
        of = {
            (name, draw): Run.load(out / log / name / f"draw-{draw}")
            for name in ("easy", "sjf") for draw in (0, 1)
        }  # fmt: skip
        for run in of.values():
            assert verify.run(run.jobs, run.system) == []
        submitted = {key: run.jobs["submit"].tolist() for key, run in of.items()}
        assert submitted["easy", 0] == submitted["sjf", 0] != submitted["easy", 1]
        assert {run.about["draw"] for run in of.values()} == ({0, 1} if log == "small" else {0})
        assert [of["easy", draw].about["seed"] for draw in (0, 1)] == [3, 4]
    samples = lublin.generate(12, 4, processors=8)
    made = Run.load(out / "lublin-8" / "sjf" / "draw-1").jobs["submit"].tolist()
    assert made == samples.table.submit_s.tolist()
    assert [(row["workload"], row["runs"]) for row in results(path)] == [
        (name, "2") for name in names for _ in range(2)
    ]
    places = [Run.load(out / folder).about["place"] for folder in folders(path)]
    assert sorted(places) == list(range(20))


def test_two_logs_of_one_name_are_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(FORM + '[[logs]]\nmodel = "lublin"\njobs = 9\n' * 2)
    assert ran(path) == 2
    assert "two logs are named lublin-256" in " ".join(capsys.readouterr().err.split())


def test_the_memory_of_each_run_is_in_the_results(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(FORM.replace('"", "last2"', '""'))
    assert ran(path, "--json") == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    if PeakMemory().mib() is None:
        assert all("memory_mib_peak" not in run for run in told)
        return
    peaks = [run["memory_mib_peak"] for run in told if run["dispatcher"] == "easy"]
    assert len(peaks) == 2
    assert float(results(path)[0]["memory_mib_peak_max"]) == max(peaks)
    assert float(results(path)[0]["memory_mib_peak_mean"]) == pytest.approx(sum(peaks) / 2)
    assert ran(path, "--json") == 0  # what was saved stays
    assert json.loads(capsys.readouterr().out)["runs"] == told


def test_peak_memory_is_of_the_work_alone() -> None:
    before = PeakMemory().mib()
    if before is None:
        pytest.skip("this system does not forget the peak of a process")
    peak = PeakMemory()
    held = np.ones(16_000_000)
    with_it = peak.mib()
    del held
    after = PeakMemory().mib()
    assert with_it is not None
    assert after is not None
    assert with_it - before > 100  # the array has 122 MiB
    assert with_it - after > 100


def test_pictures_and_a_page_for_each_log(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("bokeh")
    path.write_text(
        FORM.replace('"", "last2"', '""') + '[[logs]]\nmodel = "lublin"\nsystem = "8"\njobs = 9\n'
    )
    assert ran(path, "--plot", "--page") == 0
    out = path.parent / "out"
    for place in ("1-small-4", "2-lublin-8-8"):
        assert (out / "pictures" / place / "waits.svg").exists()
        assert "easy" in (out / f"report-{place}.html").read_text()
    told = " ".join(capsys.readouterr().out.split())
    assert "report-2-lublin-8-8.html: a page about the runs; open it in a browser" in told


def test_pictures_and_pages_of_another_set_of_logs_are_removed(path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("bokeh")
    one = FORM.replace('"", "last2"', '""').replace("draws = 2", "")
    two = one + '[[logs]]\nmodel = "lublin"\nsystem = "8"\njobs = 9\n'
    (path.parent / "out").mkdir()
    mine = [path.parent / "out" / name for name in ("report-old.html", "report-2024-mine.html")]
    mine.append(path.parent / "out" / "pictures" / "kept" / "waits.svg")
    mine[-1].parent.mkdir(parents=True)
    for file in mine:
        file.write_text("mine")
    for form, pages, pictures in (
        (one, {"report.html"}, {"."}),
        (two, {"report-1-small-4.html", "report-2-lublin-8-8.html"}, {"1-small-4", "2-lublin-8-8"}),
        (one, {"report.html"}, {"."}),
    ):
        path.write_text(form)
        assert ran(path) == 0  # which leaves pages and pictures as they are
        assert ran(path, "--plot", "--page") == 0
        out = path.parent / "out"
        assert {file.read_text() for file in mine} == {"mine"}
        assert {file.name for file in {*out.glob("*.html")}.difference(mine)} == pages
        drawn = {file.parent for file in {*out.glob("pictures/**/*.svg")}.difference(mine)}
        assert {str(folder.relative_to(out / "pictures")) for folder in drawn} == pictures


def test_copies_of_pictures_and_pages_stay_whatever_their_names(path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("bokeh")
    path.write_text(FORM.replace('"", "last2"', '""').replace("draws = 2", ""))
    assert ran(path, "--plot", "--page") == 0
    out = path.parent / "out"
    copies = []
    for name in ("2026-11-29", "1-small-5", "mine"):
        copies += [out / f"report-{name}.html", out / "pictures" / name / "waits.svg"]
        shutil.copy(out / "report.html", copies[-2])
        copies[-1].parent.mkdir()
        shutil.copy(out / "pictures" / "waits.svg", copies[-1])
    assert ran(path, "--plot", "--page") == 0
    assert all(copy.exists() for copy in copies)


def test_runs_that_were_refused_are_not_drawn(path: Path) -> None:
    pytest.importorskip("matplotlib")
    form = FORM.replace('"", "last2"', '""').replace("draws = 2", "")
    path.write_text(form.replace(', "sjf"', ""))
    assert ran(path) == 0
    (path.parent / "small.csv").write_text(LOG.replace("1,7,", "1,6,"))
    path.write_text(form)
    assert ran(path, "--plot") == 2
    out = path.parent / "out"
    summaries = [RunSummary.of(Run.load(out / "small" / "sjf" / "draw-0"))]
    runs = [out / "small" / name / "draw-0" for name in ("easy", "sjf")]
    assert [run.about["dispatcher"] for run in first_of_each(runs, summaries).values()] == ["sjf"]
    again = {**summaries[0].about, "dispatcher": "easy", "workload_sha256": "of other jobs"}
    assert not first_of_each(runs, [replace(summaries[0], about=again)])


def test_combinations_that_are_left_out_are_no_runs_of_a_page(path: Path) -> None:
    pytest.importorskip("bokeh")
    names = '"easy", "sjf", "easy-fcfs-spf", "ljf"'
    form = FORM.replace('"easy", "sjf"', names).replace('"", "last2"', '"", "walltime"')
    path.write_text(form.replace("draws = 2", ""))
    assert ran(path, "--page") == 0
    assert len(folders(path)) in (4, 5)


def test_too_many_runs_for_a_page_are_refused_before_any(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("bokeh")
    path.write_text(FORM.replace('"last2"', '"last2", "profile", "actual"'))
    assert ran(path, "--page") == 2
    assert "8 runs of each log: a page shows 6 at most" in " ".join(capsys.readouterr().err.split())
    assert folders(path) == []


def test_the_example_runs(tmp_path: Path) -> None:
    file = ROOT / "examples" / "experiment.toml"
    parts = files.parts(files.load(file), file, tmp_path)
    assert sum(len(part.plans) for part in parts) == 18


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ('file = "small.csv"\nsystem = "4"', "3 draws: the log with submissions up to 59 s later"),
        ('model = "lublin"\njobs = 30', "3 draws: the jobs of each are made with a seed"),
    ],
)
def test_draws_are_called_so_also_where_their_jobs_are_made(
    log: str, says: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = FORM.replace("draws = 2", "draws = 3").replace('"", "last2"', '""')
    path.write_text(form.replace('file = "small.csv"\nsystem = "4"', log))
    assert ran(path) == 0
    said = capsys.readouterr().out
    assert "of 3 draws " in said
    assert says in said
    assert "seeds " not in said.replace("other seeds", "")
