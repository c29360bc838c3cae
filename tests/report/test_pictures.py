"""Pictures of runs: what they draw is what the schedule says."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import cli, verify
from cpdispatch.analyze import look
from cpdispatch.cli.runs import side_by_side
from cpdispatch.errors import UsageError
from cpdispatch.experiment import RunSummary
from cpdispatch.report import Shown, pictures
from cpdispatch.simulator import Run

rc_context = pytest.importorskip("matplotlib").rc_context

LOG = "id,submit,runtime,requested,units,core,user\n" + "".join(
    f"{k},{k * 5},{20 + k * 37 % 50},100,{1 + k % 5},1,{k % 3}\n" for k in range(1, 61)
)
OF_ANY = {"queue", "queue_box"}
OF_STARTED = OF_ANY | {
    "utilisation", "wait_ecdf", "slowdown_ecdf", "wait_box", "slowdown_box", "waits", "jobs",
}  # fmt: skip
COMPARED = OF_STARTED | {"ratios"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a small log on a pool of eight cores."""
    place = tmp_path_factory.mktemp("pictures")
    (place / "small.csv").write_text(LOG)
    assert simulate(place / "small.csv", "-d", "easy", "-d", "sjf", "--out", place / "runs") == 0
    for name in ("easy", "sjf"):
        run = Run.load(place / "runs" / name)
        assert verify.run(run.jobs, run.system) == []
    return place / "runs"


@pytest.fixture(scope="module")
def shown(runs: Path) -> list[Shown]:
    return [Shown(name, Run.load(runs / name), ()) for name in ("easy", "sjf")]


def simulate(log: Path, *more: object) -> int:
    return cli.run(["simulate", str(log), "--system", "8", *map(str, more), "--cores", "1"])


def names(folder: Path) -> set[str]:
    for path in folder.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    return {path.stem for path in folder.iterdir()}


def test_compare_draws_what_runs_have_and_says_what_is_lacking(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steps.svg").write_text("of earlier runs")
    assert cli.run(["compare", str(runs), "--plot", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert names(tmp_path) == COMPARED
    assert f"{tmp_path}: {len(COMPARED)} pictures" in out
    assert "No decisions.svg: replays in compiled code are timed as a whole." in out
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert cli.run(["compare", str(runs), "--plot", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {Path(path).stem for path in told["pictures"]} == COMPARED
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_names_are_drawn_and_printed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log, named = Path("sm[a]ll.csv"), ["a$_{x$.toml", "b[red]$x^2$.toml"]
    log.write_text(LOG)
    for name in named:
        Path(name).write_text('dispatcher = "sjf"\n')
    given = [part for name in named for part in ("-d", name)]
    assert simulate(log, "-d", "easy", *given, "--plot", "plot") == 0
    out = capsys.readouterr().out
    assert names(Path("plot")) == COMPARED
    for name in named:
        assert name in out
        assert f"<!-- {name} -->" in Path("plot", "wait_ecdf.svg").read_text()


def test_a_dispatcher_in_this_folder_has_no_hidden_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.csv").write_text(LOG)
    Path("mine.toml").write_text('dispatcher = "sjf"\n')
    assert simulate(Path("small.csv"), "-d", "easy", "-d", "./mine.toml", "--out", "runs") == 0
    assert {path.name for path in Path("runs").iterdir()} == {"easy", "_mine.toml"}


def test_a_dispatcher_is_drawn_beside_what_its_file_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.csv").write_text(LOG)
    for rule in ("easy", "sjf"):
        Path("mine.toml").write_text(f'dispatcher = "{rule}"\n')
        assert simulate(Path("small.csv"), "-d", "mine.toml", "--out", f"runs/{rule}") == 0
    assert cli.run(["compare", "runs", "--plot", "plot"]) == 0
    picture = Path("plot", "wait_ecdf.svg").read_text()
    for rule in ("easy", "sjf"):
        assert f"<!-- mine.toml (dispatcher={rule}) -->" in picture


def test_runs_of_other_rules_are_drawn_and_those_of_other_jobs_compared_all_the_same(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, easy = runs.parent / "small.csv", runs / "easy"
    assert simulate(log, "--kill-at-limit", "--out", tmp_path / "killed") == 0
    assert simulate(log, "--jobs", 30, "--out", tmp_path / "less") == 0
    capsys.readouterr()
    plot = tmp_path / "plot"
    assert cli.run(["compare", str(easy), str(tmp_path / "killed"), "--plot", str(plot)]) == 0
    assert names(plot) == COMPARED
    assert "<!-- easy (killed at limit) -->" in (plot / "wait_ecdf.svg").read_text()
    capsys.readouterr()
    assert cli.run(["compare", str(easy), str(tmp_path / "less"), "--plot", str(plot)]) == 2
    said = capsys.readouterr()
    assert said.out.count("mean bounded slowdown") >= 2
    assert "some are of other jobs" in said.err


def test_measured_decisions_are_drawn(folder: Path, tmp_path: Path) -> None:
    assert cli.run(["compare", str(folder), "--plot", str(tmp_path)]) == 0
    assert names(tmp_path) == COMPARED | {"decisions", "steps"}


def test_simulate_draws_without_saving_each_log_in_its_folder(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        (tmp_path / name).write_text(LOG)
    plot = tmp_path / "plot"
    assert simulate(tmp_path / "one.csv", tmp_path / "two.csv", "--plot", plot) == 0
    assert {path.name for path in plot.iterdir()} == {"1-one-8", "2-two-8"}
    assert names(plot / "1-one-8") == names(plot / "2-two-8") == OF_STARTED
    assert {path.name for path in tmp_path.iterdir()} == {"one.csv", "two.csv", "plot"}


def test_a_log_of_which_nothing_starts(tmp_path: Path) -> None:
    log = tmp_path / "wide.csv"
    log.write_text("id,submit,runtime,requested,units,core,user\n1,0,9,9,9,1,0\n")
    assert simulate(log, "--plot", tmp_path / "plot") == 0
    assert names(tmp_path / "plot") == OF_ANY


def test_a_first_run_that_starts_nothing_leaves_out_what_is_beside_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("-d", "reject", "-d", "easy", "--plot", tmp_path / "plot", "--json")
    assert simulate(runs.parent / "small.csv", *given) == 0
    assert names(tmp_path / "plot") == OF_STARTED - {"jobs"}
    lacking = json.loads(capsys.readouterr().out)["lacking"]
    assert "No jobs.svg: no job started under reject." in lacking
    assert "No ratios.svg: no job started under reject." in lacking


def test_users_and_waits_are_of_all_draws(runs: Path, tmp_path: Path) -> None:
    assert simulate(runs.parent / "small.csv", "--shake", 2, "--out", tmp_path) == 0
    draws = [Run.load(tmp_path / f"draw-{k}") for k in range(2)]
    summaries = [RunSummary.of(run) for run in draws]
    ((of,), _) = side_by_side(summaries, {summaries[0].kind: draws[0]})
    of_draws = [run.by_user()["1"] for run in draws]
    assert of_draws[0]["wait_s_mean"] != of_draws[1]["wait_s_mean"]
    mean_s = sum(user["wait_s_mean"] * user["jobs"] for user in of_draws) / 40
    (user,) = (user for user in of.users if user["user"] == "1")
    assert (user["jobs"], user["wait_s_mean"]) == pytest.approx((20, mean_s))


def drawn(axis: Any) -> list[Any]:
    return [patch.get_data() for patch in axis.patches]


def test_curves_over_time_are_means_of_the_schedule(shown: list[Shown]) -> None:
    held = drawn(pictures.utilisation(shown).axes[0])
    waiting = drawn(pictures.queue(shown).axes[0])
    ends_s = [int(of.run.schedule().end_s.max()) for of in shown]
    begin_s, many = int(shown[0].run.schedule().submit_s.min()), 0
    for of, use, queue in zip(shown, held, waiting, strict=True):
        schedule = of.run.schedule()
        edges = np.round(use.edges * _unit(use.edges, max(ends_s) - begin_s)).astype(int) + begin_s
        assert (edges[0], edges[-1]) == (begin_s, max(ends_s))
        for low, high, share, length in zip(
            edges[:-1], edges[1:], use.values, queue.values, strict=True
        ):
            cores = jobs = 0
            for second in range(low, high):
                runs = (schedule.start_s <= second) & (second < schedule.end_s)
                cores += int(schedule.units[runs].sum())
                jobs += int(((schedule.submit_s <= second) & (second < schedule.start_s)).sum())
            assert share == pytest.approx(100 * cores / (high - low) / 8)
            assert length == pytest.approx(jobs / (high - low))
            many += 1
    assert many > 100


def test_the_curve_of_use_has_the_last_attempts_of_jobs_that_ended(broken: Path) -> None:
    for name in ("kept", "ended"):
        run = Run.load(broken / name)
        (use,) = drawn(pictures.utilisation([Shown(name, run, ())]).axes[0])
        table = run.jobs[~run.jobs["failed"]]
        core_s = int(((table["end"] - table["start"]) * table["units"]).sum())
        span_s = int(run.jobs["end"].max() - run.jobs["submit"].min())
        edges_s = use.edges * span_s / float(use.edges[-1])
        assert use.values @ np.diff(edges_s) / 100 * 8 == pytest.approx(core_s)
        assert (use.values <= 100).all()
        assert run.jobs["failed"].any() == (name == "ended")


def _unit(edges: Any, span_s: int) -> int:
    return round(span_s / float(edges[-1]))


def test_percentiles_of_the_queue_are_over_time(shown: list[Shown]) -> None:
    axis = pictures.queue_box(shown).axes[0]
    for number, of in enumerate(shown):
        schedule = of.run.schedule()
        seconds = np.arange(schedule.submit_s.min(), schedule.end_s.max() + 1)[:, None]
        length = ((schedule.submit_s <= seconds) & (seconds < schedule.start_s)).sum(axis=1)
        line, median, mean = axis.lines[3 * number : 3 * number + 3]
        expected = np.quantile(length, (0.05, 0.95), method="inverted_cdf")
        assert np.allclose(line.get_xdata(), expected)
        assert median.get_xdata()[0] == np.quantile(length, 0.5, method="inverted_cdf")
        assert mean.get_xdata()[0] == pytest.approx(length.mean())


def test_a_job_that_is_refused_does_not_wait(tmp_path: Path) -> None:
    log = tmp_path / "wide.csv"
    rows = [f"{k},0,20,20,{8 + k},1,0" for k in range(3)]
    log.write_text("\n".join([LOG.splitlines()[0], *rows]) + "\n")
    assert simulate(log, "--out", tmp_path / "run") == 0
    of = [Shown("easy", Run.load(tmp_path / "run"), ())]
    (waiting,) = drawn(pictures.queue(of).axes[0])
    assert not waiting.values.any()
    assert pictures.queue_box(of).axes[0].lines[2].get_xdata()[0] == 0


def test_ratios_are_to_the_first_run(shown: list[Shown]) -> None:
    rows = [of.run.metrics for of in shown]
    figure = pictures.ratios(shown, rows)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "mean wait"
    ratios = figure.axes[0].lines[0].get_xdata()
    assert ratios[0] == rows[1]["wait_s_mean"] / rows[0]["wait_s_mean"]
    assert ratios[2] == rows[1]["bounded_slowdown_mean"] / rows[0]["bounded_slowdown_mean"]
    low, high = figure.axes[0].get_xlim()
    assert low <= min(ratios) <= max(ratios) <= high


def test_deciles_are_drawn_of_ten_draws_or_more(shown: list[Shown]) -> None:
    draws = [{"wait_s_mean": 3600.0 * k, "wait_s_max": 259_200.0 * k} for k in range(1, 12)]
    few, many = (pictures.waits(shown[:1], [draws[:n]]).axes[0].lines for n in (9, 11))
    assert (len(few), len(many)) == (1, 3)
    assert list(many[1].get_xdata()) == [2, 10]
    assert list(many[2].get_ydata()) == [6, 30]


def test_what_cannot_be_drawn_is_said_before_there_is_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "small.csv"
    log.write_text(LOG)
    assert simulate(log, "--plot", log) == 2
    assert "this is a file; name a folder, or a name that ends in .svg" in capsys.readouterr().err
    assert simulate(log, "--plot", tmp_path / "runs.jpg") == 2
    assert "runs.jpg: pictures are .svg, .pdf, .png; name a folder" in capsys.readouterr().err
    assert simulate(log, *(f"-deasy:threshold={k}" for k in range(9)), "--plot", tmp_path) == 2
    assert "9 runs: pictures show 8 at most" in capsys.readouterr().err
    with pytest.raises(UsageError, match="8 at most"):
        pictures.check(9)


@pytest.mark.parametrize(("suffix", "begins"), [(".pdf", b"%PDF-"), (".png", b"\x89PNG")])
def test_a_name_with_a_suffix_gives_files_of_that_format(
    runs: Path, tmp_path: Path, suffix: str, begins: bytes
) -> None:
    kept = []
    for _ in range(2):
        assert cli.run(["compare", str(runs), "--plot", str(tmp_path / f"of{suffix}")]) == 0
        found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert set(found) == {f"of-{name}{suffix}" for name in COMPARED}
        assert all(content.startswith(begins) for content in found.values())
        kept.append(found)
    assert kept[0] == kept[1]  # the same runs give the same files


def test_each_of_many_runs_has_its_own_panel_and_strip(shown: list[Shown]) -> None:
    many = [Shown(f"{of.name} {k}", of.run, ()) for k in range(2) for of in shown]
    few = [
        [patch.get_data().values for patch in make(shown).axes[0].patches]
        for make in (pictures.queue, pictures.utilisation)
    ]
    figure = pictures.queue(many)
    assert len(figure.axes) == len(many)
    for number, axis in enumerate(figure.axes):
        assert axis.get_title(loc="left") == many[number].name
        *grey, own = (patch.get_data().values for patch in axis.patches)
        np.testing.assert_array_equal(own, few[0][number % 2])
        for other, values in enumerate(grey):
            np.testing.assert_array_equal(values, few[0][other % 2])
    strips = pictures.utilisation(many).axes[0].collections[0].get_array()
    np.testing.assert_array_equal(strips, np.array(few[1] * 2))


def test_no_name_of_a_run_is_cut_by_the_edge_of_a_picture(shown: list[Shown]) -> None:
    names = ["easy-lexp-saf:wait=0.5,x=1h"[:k] for k in range(3, 28)]
    for name in (*names, "n" * 90):
        runs = [Shown(f"{name}{k}", shown[k % 2].run, ()) for k in range(4)]
        with rc_context(look._LOOK):
            figure = pictures.wait_ecdf(runs)
            figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width, name
        axes = figure.axes[0].get_window_extent()
        assert axes.y1 < box.y0 < box.y1 <= figure.bbox.height, name
