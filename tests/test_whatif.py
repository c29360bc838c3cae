"""The same log on other systems: how they are made, what is measured against what."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cpdispatch import cli, verify
from cpdispatch.analyze.compare import duration
from cpdispatch.cli.output import table_of
from cpdispatch.errors import UsageError
from cpdispatch.experiment import RunSummary, whatif
from cpdispatch.experiment.runs import safe
from cpdispatch.report.whatif import never_started, sentences
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import Limit, Maintenance, NodeGroup, Partition, System
from cpdispatch.workloads import prepare, read

LOG = "id,submit,runtime,requested,units,core,user\n" + "".join(
    f"{k},{k * 5},{20 + k * 37 % 50},100,{1 + k % 5},1,{k % 3}\n" for k in range(1, 61)
)
FAILS = "tests.own_parts:FailsOnEight"
TWO = System("two", ("core", "gpu"), (NodeGroup("a", 10, (4, 0)), NodeGroup("b", 3, (8, 2))))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text(LOG)
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.run(["whatif", *map(str, arguments), "--cores", "1"])
    out, err = capsys.readouterr()
    return code, out, err


def test_groups_get_more_or_fewer_nodes_and_pools_more_or_less_capacity() -> None:
    for change, nodes in ((0.2, (12, 4)), (-0.5, (5, 2)), (1, (20, 6)), (-0.99, (1, 1))):
        found = whatif.scaled(TWO, change)
        assert tuple(group.nodes for group in found.groups) == nodes
        assert [group.capacity for group in found.groups] == [(4, 0), (8, 2)]
    assert whatif.scaled(System.pool(100), -0.1).groups[0].capacity == (90,)
    assert whatif.scaled(TWO, 0.2).name == "two +20%"
    assert whatif.scaled(System.pool(1000), 0.001).name == "1000 +0.1%"


def test_what_cannot_be_scaled_is_refused() -> None:
    for change, problem in ((-1, "nothing would be left"), (0.01, "stay as it is"), (0, "stay as")):
        for system in (TWO, System.pool(4)):
            with pytest.raises(UsageError, match=problem):
                whatif.scaled(system, change)
    parted = replace(TWO, partitions=(Partition("some", tuple(range(5))),))
    with pytest.raises(UsageError, match="partition some of two has some nodes of a group alone"):
        whatif.scaled(parted, 0.5)
    kept = replace(TWO, maintenance=(Maintenance(nodes="0-3", from_s=9, length_s=5),))
    with pytest.raises(UsageError, match="a maintenance window of two has some nodes of a"):
        whatif.scaled(kept, 0.5)


def test_partitions_and_windows_of_whole_groups_grow_with_them() -> None:
    system = replace(
        TWO,
        partitions=(Partition("all", tuple(range(13))), Partition("last", (10, 11, 12))),
        maintenance=(Maintenance(nodes="10 11 12", from_s=9, length_s=5),),
    )
    found = whatif.scaled(system, 1)
    assert [each.nodes for each in found.partitions] == [tuple(range(26)), tuple(range(20, 26))]
    assert found.named_nodes(found.maintenance[0].nodes) == tuple(range(20, 26))


def test_changes_are_of_the_first_system_that_is_named(log: Path) -> None:
    def names(*given: str) -> list[str]:
        raw = read(log)
        return [each.name for each in whatif.alternatives(raw, given)]

    assert names("8", "+50%", "6", "-50%") == ["8", "8 +50%", "6", "8 -50%"]
    assert names("+50%", "8") == ["8", "8 +50%"]
    for given in ([], ["8"], ["8", "8"]):
        with pytest.raises(UsageError, match="name another system"):
            names("8", *given[1:])


def test_jobs_may_be_kept_to_nodes_and_spread(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    path.write_text(
        "id,submit,runtime,requested,units,core,units_per_node,features,partition\n"
        "1,0,10,20,4,1,2,ib,\n2,0,10,20,4,1,2,,\n"
    )
    system = tmp_path / "four.json"
    group = {"name": "n", "nodes": 4, "capacity": [4], "features": ["ib"]}
    other = group | {"name": "m", "features": []}
    text: dict[str, Any] = {"resources": ["core"], "groups": [group, other]}
    system.write_text(json.dumps(text))
    raw = read(path)
    more, limit = whatif.alternatives(raw, [str(system), "+50%", "jobs=1"])[1:]
    assert more.system.nodes == 12
    assert limit.system.limits == (Limit(1),)
    for each in (more, limit):
        assert not simulate(each.workload, each.system, "easy").verify()
    parts = [{"name": "all", "nodes": "all"}]
    system.write_text(json.dumps(text | {"partitions": parts}))
    path.write_text(path.read_text().replace(",\n", ",all\n"))
    (limit,) = whatif.alternatives(read(path), [str(system), "core per user=3"])[1:]
    assert not simulate(limit.workload, limit.system, "easy").verify()


def test_the_figures_are_those_of_the_runs(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    arguments = (
        log, "--system", "8", "--system", "-25%", "-d", "easy", "-d", "sjf", "--out",
        tmp_path / "out", "--csv", table, "--json",
    )  # fmt: skip
    code, out, _ = said(capsys, *arguments)
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(out)["rows"]
    assert [(row["system"], row["capacity"], row["dispatcher"]) for row in rows] == [
        ("8", 8, "easy"), ("8", 8, "sjf"), ("8 -25%", 6, "easy"), ("8 -25%", 6, "sjf"),
    ]  # fmt: skip
    for row in rows:
        run = simulate(*prepare(read(log), str(row["capacity"])), row["dispatcher"])
        for name in whatif.FIGURES:
            assert row[name] == run.metrics[name]
        saved = Run.load(tmp_path / "out" / safe(row["system"]) / row["dispatcher"] / "draw-0")
        assert verify.run(saved.jobs, saved.system) == []
    assert rows[2]["wait_ratio"] == rows[2]["wait_s_mean"] / rows[0]["wait_s_mean"]
    assert rows[3]["slowdown_ratio"] == pytest.approx(
        rows[3]["bounded_slowdown_mean"] / rows[1]["bounded_slowdown_mean"]
    )
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["wait_s_mean"]) for row in written] == [row["wait_s_mean"] for row in rows]
    assert said(capsys, *arguments)[1] == out  # nothing is run again


def test_where_other_jobs_start_no_ratio_says_that_waits_are_shorter(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    given = (log, "--system", "8", "--system", "-50%", "--page", page)
    first, half = json.loads(said(capsys, *given, "--json")[1])["rows"]
    assert half["jobs_never_started"] == sum(k % 5 == 4 for k in range(1, 61))
    assert (half["wait_ratio"], half["slowdown_ratio"]) == (None, None)
    assert (first["wait_ratio"], first["slowdown_ratio"]) == (1, 1)
    text = page.read_text()
    assert (
        "<p>On 8 -50%, the means under easy are of other jobs than on 8, so they have no ratio: "
        "12 jobs never started, there 0. A job waits" in text
    )
    assert 'class="better"' not in text
    assert 'class="worse"' not in text
    for told in (text, said(capsys, *given)[1]):
        assert "8 -50%: 12 jobs never started; the figures are of the others." in told


def test_as_many_other_jobs_have_no_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, page, given = tmp_path / "log.csv", tmp_path / "page.html", []
    log.write_text(
        "id,submit,runtime,requested,units,core\n"
        "1,0,100,100,1,8\n2,0,100,100,5,4\n3,1,100,100,4,4\n4,2,100,100,4,4\n"
    )
    for name, nodes, cores in (("wide", 2, 8), ("many", 5, 4)):
        system = {"resources": ["core"], "groups": [
            {"name": "n", "nodes": nodes, "capacity": [cores]}]}  # fmt: skip
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(system))
        given += ["--system", path]
    first, other = json.loads(said(capsys, log, *given, "--page", page, "--json")[1])["rows"]
    assert (first["jobs_never_started"], other["jobs_never_started"]) == (1, 1)
    assert (first["same_jobs"], first["wait_ratio"]) == (True, 1)
    assert other["wait_s_mean"] > 0
    assert (other["same_jobs"], other["wait_ratio"], other["slowdown_ratio"]) == (False, None, None)
    assert (
        "<p>On many, the means under easy are of other jobs than on wide, so they have no ratio: "
        "1 job never started, there 1. A job waits" in page.read_text()
    )


def test_the_first_system_beside_itself_is_no_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "id,submit,runtime,requested,units,core,user\n"
        "1,1000,40,60,4,1,a\n2,1070,40,60,4,1,a\n3,100000,40,60,4,1,a\n4,100038,40,60,1,1,a\n"
    )  # in some draws nobody waits
    given = (log, "--system", "6", "--system", "4", "--shake", 10, "--json")
    first, _ = json.loads(said(capsys, *given)[1])["rows"]
    assert first["wait_s_mean"] > 0
    assert [first[f"wait_ratio{end}"] for end in ("", "_low", "_high")] == [1, 1, 1]


def test_draws_have_a_spread(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, log, "--system", "8", "--system", "10", "--shake", 3, "--json")
    rows = json.loads(out)["rows"]
    assert [row["runs"] for row in rows] == [3, 3]
    assert all(row["wait_s_mean_spread"] > 0 for row in rows)
    assert " ± " in said(capsys, log, "--system", "8", "--system", "10", "--shake", 3)[1]


def test_no_figure_is_folded(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (log, "--system", "8", "--system", "jobs=2", "--shake", 2, "-d", "easy-spf-spf")
    monkeypatch.setenv("COLUMNS", "200")
    wide = said(capsys, *arguments)[1].splitlines()
    monkeypatch.setenv("COLUMNS", "50")
    narrow = said(capsys, *arguments)[1].splitlines()
    assert [line.split() for line in narrow[:5]] == [line.split() for line in wide[:5]]


def test_what_the_first_system_lacks_has_no_ratio(log: Path) -> None:
    found = whatif.alternatives(read(log), ["8", "6"])
    other = found[1]
    run = simulate(other.workload, other.system, "easy")
    (row,) = whatif.rows_of(found, [[], [RunSummary.of(run)]])
    assert (row["system"], row["wait_ratio"], row["slowdown_ratio"]) == ("6", None, None)


def test_a_page_and_a_table_are_two_files(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "w.html"
    given = (log, "--system", "8", "--system", "-50%", "--page", page)
    assert "name the same file" in said(capsys, *given, "--csv", page)[2]
    page.write_text("mine")
    assert "this file is no page" in said(capsys, *given)[2]


def test_runs_that_are_made_again_leave_nothing_of_earlier_ones(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    given = (log, "--system", "8", "--system", "6", "--out", out)
    assert said(capsys, *given, "--shake", "3")[0] == 0
    assert said(capsys, *given, "--shake", "2", "--limit", "2s", "--overwrite")[0] == 0
    for system in ("8", "6"):
        assert {path.name for path in (out / system / "easy").iterdir()} == {"draw-0", "draw-1"}


def test_the_page_says_what_the_table_says(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    given = (log, "--system", "8", "--system", "-25%", "--page", page)
    assert f"wrote {page}" in said(capsys, *given)[1]
    _, out, _ = said(capsys, *given, "--json")
    first, less = json.loads(out)["rows"]
    text = page.read_text()
    assert "<!--" not in text
    assert "http" not in text.replace("http-equiv", "")
    told = duration(less["wait_s_mean"]), duration(first["wait_s_mean"])
    assert (
        f"On 8 -25%, jobs wait {less['wait_ratio']:.2f} times as long under easy in the mean: "
        f"{told[0]} instead of {told[1]}." in text
    )
    assert f'<span class="worse">x{less["slowdown_ratio"]:.2f}</span>' in text
    assert '<span class="">x1.00</span>' in text
    share = 100 * first["wait_s_mean"] / less["wait_s_mean"]
    assert f'{told[1]}<div class="bar" aria-hidden="true" style="width:{share:.1f}%">' in text


def test_where_the_first_system_fails_the_page_takes_no_other_for_it(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    given = (log, "-d", FAILS, "--system", "8", "--system", "6", "--system", "9", "--page", page)
    assert said(capsys, *given)[0] == 2
    text = unescape(page.read_text())
    assert "The same log on 8, 6, 9; ratios are to 8." in text
    assert "<p>No dispatcher has runs in which jobs started on 8 and on another system" in text
    assert f"<li>small, {FAILS} on 8 failed: dispatcher fails on eight raised" in text


def test_figures_are_of_the_draws_that_did_not_fail_on_one_of_the_systems(log: Path) -> None:
    first_runs, other_runs = [], []
    for draw, jobs in enumerate((60, 50, 40)):
        found = whatif.alternatives(read(log), ["8", "10"], jobs=jobs)
        for each, runs in zip(found, (first_runs, other_runs), strict=True):
            run = simulate(each.workload, each.system, "easy")
            runs.append(RunSummary.of(replace(run, about=run.about | {"draw": draw})))
    first, other = whatif.rows_of(found, [first_runs[1:], other_runs])
    assert (first["runs"], other["runs"]) == (2, 2)
    assert other["wait_s_mean"] == sum(run.metrics["wait_s_mean"] for run in other_runs[1:]) / 2
    assert other["wait_ratio"] == pytest.approx(other["wait_s_mean"] / first["wait_s_mean"])


def test_a_ratio_within_noise_is_in_brackets_and_has_no_colour(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    limit = "core per user=5"
    given = (log, "--system", "8", "--system", limit, "--shake", 6, "--page", page)
    _, row = json.loads(said(capsys, *given, "--json")[1])["rows"]
    assert row["wait_ratio_low"] < 1 < row["wait_ratio_high"]
    told, text = f"(x{row['wait_ratio']:.2f})", page.read_text()
    assert f'<span class="">{told}</span>' in text
    assert ", which is within noise." in text
    assert '<span class="">x1.00</span>' in text
    assert f"{duration(row['wait_s_max'])} ± {duration(row['wait_s_max_spread'])}" in text
    assert f"{row['utilisation']:.1%} ± {row['utilisation_spread']:.1%}" in text
    printed = said(capsys, *given)[1]
    for each in (text, printed):
        assert "(x2.00): within noise: the 95 % interval over the draws includes x1." in each
    assert told in printed


def test_a_system_on_which_a_dispatcher_fails_leaves_the_others(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (log, "-d", FAILS, "--system", "10", "--system", "8", "--system", "9")
    code, out, err = said(capsys, *given, "--csv", tmp_path / "w.csv", "--json")
    assert code == 2
    printed = json.loads(out)
    assert [row["system"] for row in printed["rows"]] == ["10", "9"]
    assert list(printed["failed"]) == [f"small, {FAILS} on 8"]
    assert printed["files"] == [str(tmp_path / "w.csv")]
    assert len((tmp_path / "w.csv").read_text().splitlines()) == 3
    assert f"1 of 3 tasks failed: small, {FAILS} on 8: dispatcher fails on eight raised" in err


def test_a_dispatcher_or_draw_that_is_added_makes_no_run_again(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = (log, "--system", "8", "--system", "9", "--out", tmp_path / "out"), []
    for more in ((), ("-d", "easy", "-d", "sjf"), ("-d", "easy", "--shake", "2")):
        assert said(capsys, *given, *more)[0] == 0
        runs = (tmp_path / "out").glob("**/run.json")
        out.append({str(path.parent.relative_to(tmp_path / "out")) for path in runs})
        easy = tmp_path / "out" / "8" / "easy" / "draw-0" / "jobs.parquet"
        out.append({easy.stat().st_mtime_ns})
    assert out[0] == {"8/easy/draw-0", "9/easy/draw-0"}
    assert out[4] - out[2] == {"8/easy/draw-1", "9/easy/draw-1"}
    assert out[1] == out[3] == out[5]


def test_the_capacity_is_of_the_resource_in_the_heading(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, resources, capacity in (("a", "core,mem", [8, 64]), ("b", "mem,core", [100, 6])):
        system = {"resources": resources.split(","), "groups": [
            {"name": "n", "nodes": 1, "capacity": capacity}]}  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(system))
    given = [part for name in "ab" for part in ("--system", tmp_path / f"{name}.json")]
    _, out, _ = said(capsys, log, *given, "--json")
    assert [row["capacity"] for row in json.loads(out)["rows"]] == [8, 6]


def test_what_the_page_says_where_nobody_waits_or_starts() -> None:
    def row(system: str, wait_s: float | None, ratio: float | None) -> dict[str, Any]:
        return {
            "system": system, "dispatcher": "easy", "predictor": "walltime",
            "wait_s_mean": wait_s, "wait_ratio": ratio, "wait_ratio_low": None,
            "wait_ratio_high": None, "jobs_never_started": 0, "same_jobs": True,
        }  # fmt: skip

    for first_s, other_s, ratio, says in (
        (0.0, 0.0, None, "On b, jobs wait the same under easy in the mean: 0 s instead of 0 s."),
        (0.0, 9.0, None, "On b, jobs wait longer under easy in the mean: 9 s instead of 0 s."),
        (6.0, 9.0, 1.5, "On b, jobs wait 1.50 times as long under easy in the mean: 9 s instead"),
        (0.0, None, None, "No dispatcher has runs in which jobs started on a and on another"),
        (5.0, 6.0, None, "No dispatcher has runs in which jobs started on a and on another"),
    ):
        (said,) = sentences([row("a", first_s, ratio and 1.0), row("b", other_s, ratio)], "a")
        assert said.startswith(says)


def test_the_jobs_that_never_started_are_counted_over_draws() -> None:
    rows = [
        {"system": name, "jobs_never_started": many}
        for name, many in (("a", 0), ("b", 0.4), ("c", 1.0), ("d", 12.0), ("d", 9.0), ("e", None))
    ]
    assert never_started(rows) == [
        f"{told} never started; the figures are of the others."
        for told in ("b: 0.4 jobs", "c: 1 job", "d: 12 jobs")
    ]


def test_the_rules_of_the_replay_are_those_of_simulate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, machine, happens = (tmp_path / name for name in ("after.csv", "two.toml", "fails.csv"))
    head, *rows = LOG.splitlines()
    after = ["preceding,think", *(f"{k // 3 * 2},{k % 2 * 9}" for k in range(len(rows)))]
    path.write_text("".join(f"{a},{b}\n" for a, b in zip([head, *rows], after, strict=True)))
    machine.write_text('resources = ["core"]\n[[groups]]\nname = "a"\nnodes = 4\ncapacity = [2]\n')
    happens.write_text("time,kind,nodes\n60,fail,0-1\n300,repair,0-1\n")
    for options in (
        ("--dependencies",),
        ("--kill-at-limit", "--trigger", "event", "--predict", "last2"),
        ("--events", happens, "--requeue", "none"),
        ("--restartable", "0.5", "--seed", "3", "-d", "easy:test=30s", "--restart-cost", "5s"),
        ("--jobs", "20"),
    ):
        given = (path, "--system", machine, "--system", "+50%", "--json")
        code, out, _ = said(capsys, *given, *options)
        assert code == 0
        row = json.loads(out)["rows"][0]
        asked = ["simulate", path, "--system", machine, "--json", *options]
        assert cli.run([*map(str, asked), "--cores", "1"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert {name: row[name] for name in whatif.FIGURES} == {
            name: run[name] for name in whatif.FIGURES
        }


def test_a_part_of_the_log_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, day_s = tmp_path / "dated.csv", 86_400
    submits = [1_700_000_000 + k * day_s // 4 for k in range(20)]
    path.write_text("id,submit,runtime,requested,units,core\n" + "".join(
        f"{k},{submit},3600,3600,1,1\n" for k, submit in enumerate(submits, start=1)
    ))  # fmt: skip
    dates = ("--from", "2023-11-16", "--to", "2023-11-18")
    runs = tmp_path / "runs"
    given = (path, "--system", "8", "--system", "9", "--out", runs, *dates)
    assert said(capsys, *given)[0] == 0
    found = [Run.load(runs / of / "easy" / "draw-0") for of in "89"]
    assert [len(run.jobs) for run in found] == [8, 8]


def test_what_is_wrong_is_said(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, says in (
        (("--system", "nowhere"), "unknown system 'nowhere'"),
        (("--system", "+20"), "unknown system '+20'"),
        (("--system", "8", "--system", "9", "-d", "esay"), "did you mean easy"),
        (("--system", "8", "--system", "9", "--shake", "0"), "a whole number of draws, 1 or more"),
        (("--system", "8", "--system", "9", "--overwrite"), "--overwrite needs --out"),
        (("--system", "8", "--system", "9", "--dependencies"), "leave --dependencies out"),
        (("--system", "8", "--system", "9", "--restart-cost", "5s"), "no job may be restarted"),
        (("--system", "8", "--system", "9", "--restartable", "which"), "which"),
        (
            ("--system", "8", "--system", "9", "--events", "exponential:mtbf=1d,repair=1h"),
            "system 8 is one node",
        ),
    ):
        code, _, err = said(capsys, log, *given)
        assert code == 2
        assert says in err


def test_a_limit_is_set_replaced_and_removed() -> None:
    base = replace(TWO, limits=(Limit(9, "core", "user"),))
    for text, limits, name in (
        ("jobs=3", (*base.limits, Limit(3)), "two, at most 3 jobs"),
        ("core per user = 4", (Limit(4, "core", "user"),), "two, at most 4 core per user"),
        ("core per user=none", (), "two, no limit on core per user"),
        (
            "gpu per user ann=1", (*base.limits, Limit(1, "gpu", "user", "ann")),
            "two, at most 1 gpu for user ann",
        ),
    ):  # fmt: skip
        found = whatif.limit_of(text)
        assert found is not None
        changed = whatif.limited(base, *found)
        assert (changed.limits, changed.name) == (limits, name)
    for text, problem in (
        ("core per user=9", "has the limit"),
        ("gpu=none", r"has no limit on gpu \(it has: at most 9 core per user\)"),
    ):
        found = whatif.limit_of(text)
        assert found is not None
        with pytest.raises(UsageError, match=problem):
            whatif.limited(base, *found)
    assert [whatif.limit_of(text) for text in ("128", "+20%", "a=b.toml", "core=")] == [None] * 4


def test_a_changed_limit_is_kept_and_its_figures_are_those_of_the_run(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = 'resources = ["core"]\ngroups = [{name = "a", nodes = 8, capacity = [1]}]\n'
    (tmp_path / "mine.toml").write_text(system)
    chosen = ("--system", tmp_path / "mine.toml", "--system", "jobs per user=1")
    code, out, _ = said(capsys, log, *chosen, "--out", tmp_path / "out", "--json")
    assert code == 0
    free, limited = json.loads(out)["rows"]
    assert limited["system"] == f"{free['system']}, at most 1 job per user"
    run = Run.load(tmp_path / "out" / safe(limited["system"]) / "easy" / "draw-0")
    assert run.verify() == []
    assert run.metrics["wait_s_mean"] == limited["wait_s_mean"] > free["wait_s_mean"]
    jobs = run.jobs.sort_values("start")
    for _, of_user in jobs.groupby("user"):
        assert (of_user.start.to_numpy()[1:] >= of_user.end.to_numpy()[:-1]).all()


def test_a_limit_on_what_there_is_not_is_an_error(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(capsys, log, "--system", "8", "--system", "gpu per user=1")
    assert code == 2
    assert "there is nothing of this name to count" in " ".join(err.split())


def test_a_narrow_terminal_cuts_no_name() -> None:
    table = table_of("", ("dispatcher",), ("utilisation",))
    table.add_row("easy-spf-spf:wait=0.8", "66.7%")
    told = StringIO()
    Console(file=told, width=20).print(table)
    assert "…" not in told.getvalue()
    names = (line.split("  ")[0] for line in told.getvalue().splitlines()[1:])
    assert "easy-spf-spf:wait=0.8" in "".join(name.strip() for name in names)
