from __future__ import annotations

import csv
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import cli
from cpdispatch.analyze import power
from cpdispatch.errors import InputError, UsageError

ROOT = Path(__file__).resolve().parents[2]
with mock.patch.object(sys, "path", [str(ROOT / "benchmarks"), *sys.path]):
    bench: Any = import_module("power")

MINUTES = np.arange(60.0)


def kind(means: Any) -> str:
    return power.judge(np.asarray(means, dtype=np.float64), 300).kind


def test_minutes_are_means_and_gaps_are_bridged() -> None:
    time_s = np.array([1000.0, 1059, 1060, 1240, 1299])
    watts = np.array([100.0, 200, 160, 400, 500])
    means = [150, 160, 770 / 3, 1060 / 3, 450]
    assert power.minute_means(time_s, watts).tolist() == pytest.approx(means)
    assert power.minute_means(time_s[::-1], watts[::-1]).tolist() == pytest.approx(
        power.minute_means(time_s, watts).tolist()
    )
    assert len(power.minute_means(np.empty(0), np.empty(0))) == 0


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 500)), min_size=1, max_size=80),
    st.integers(0, 4),
)
def test_minute_means_are_those_of_a_plain_loop(samples: list[tuple[int, int]], trim: int) -> None:
    first = min(at for at, _ in samples)
    minutes: list[float | None] = []
    for k in range((max(at for at, _ in samples) - first) // 60 + 1):
        inside = [watts for at, watts in samples if (at - first) // 60 == k]
        minutes.append(sum(inside) / len(inside) if inside else None)
    for k, value in enumerate(minutes):
        if value is None:
            before = max(j for j in range(k) if minutes[j] is not None)
            after = min(j for j in range(k, len(minutes)) if isinstance(minutes[j], float))
            low, high = minutes[before], minutes[after]
            assert low is not None
            assert high is not None
            minutes[k] = low + (high - low) * (k - before) / (after - before)
    time_s, watts = np.array(samples, dtype=np.float64).T
    assert power.minute_means(time_s, watts).tolist() == pytest.approx(minutes)
    assert len(power.prepared(time_s, watts, trim)) == max(len(minutes) - 2 * trim, 0)


def test_outliers_go_and_what_is_beside_them_stays() -> None:
    means = np.full(40, 200.0)
    means[7], means[20] = 900, 0
    means[21:] += np.tile([1.0, -1], 10)[:19]
    found = power.without_outliers(means)
    assert found[7] == 200
    assert found[[6, 8]].tolist() == [200, 200]
    assert found[20] == 0  # beside 900, 0 is not far out
    assert power.without_outliers(np.empty(0)).tolist() == []


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        (np.full(60, 250.0), "constant"),
        (250 + 29 * np.where(MINUTES % 2, 1, -1), "constant"),
        (250 + 60 * np.sin(2 * np.pi * MINUTES / 10), "periodic"),
        (250 + 60 * np.where(MINUTES % 6 < 3, 1, -1), "periodic"),
        (100 + 3 * MINUTES, "changing"),
        (np.where(MINUTES < 30, 150, 300), "changing"),
        (250 + 60 * np.random.default_rng(0).normal(size=60), "irregular"),
        (np.full(11, 250.0), "short"),
        ([], "short"),
    ],
)
def test_each_kind(means: Any, expected: str) -> None:
    assert kind(means) == expected


@pytest.mark.parametrize("every", [2.5, 4, 7, 10])
def test_the_period_is_found(every: float) -> None:
    means = 250 + 60 * np.sin(2 * np.pi * MINUTES / every)
    assert power.period(means) == pytest.approx(every, rel=0.1)
    assert power.judge(means, 300).period_min == power.period(means)


def test_two_swings_are_no_period() -> None:
    assert np.isnan(power.period(np.sin(2 * np.pi * MINUTES / 30)))
    assert np.isnan(power.period(np.zeros(60)))


def test_noise_has_a_period_in_one_profile_of_a_hundred_at_most() -> None:
    rng = np.random.default_rng(4)
    found = [not np.isnan(power.period(rng.normal(size=45 + k % 30))) for k in range(2000)]
    assert 0 < sum(found) <= 2000 * power.CHANCE


def test_the_range_is_that_of_all_jobs_unless_it_is_given() -> None:
    wave = 200 + 20 * np.sin(2 * np.pi * MINUTES / 10)
    alone, range_w = power.judge_all({"a": wave})
    assert (alone["a"].kind, range_w) == ("periodic", pytest.approx(np.ptp(wave)))
    among, range_w = power.judge_all({"a": wave, "b": np.full(60, 400.0), "c": np.empty(0)})
    assert (among["a"].kind, among["c"].kind) == ("constant", "short")
    assert power.judge_all({"a": wave}, 300)[0]["a"].kind == "constant"
    with pytest.raises(UsageError, match=r"draw the same.*for example --range 250"):
        power.judge_all({"a": np.full(60, 400.0)})
    with pytest.raises(UsageError, match=r"no job has a minute left.*--trim 0"):
        power.judge_all({"a": np.empty(0)})
    with pytest.raises(UsageError, match="a range of -1 W"):
        power.judge_all({"a": wave}, -1)


def test_generated_profiles_are_taken_for_what_they_are() -> None:
    found = bench.confusion(60, seed=5)
    assert list(found) == list(power.KINDS[:-1])
    for name, said in found.items():
        assert said.total() == 60
        assert said[name] >= 52, (name, said)


# ------------------------------------------------------------------------------ files and command


def samples(**changes: Any) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frames = []
    for name in bench.KINDS:
        time_s, watts = bench.profile(name, rng)
        frames.append(pd.DataFrame({"job": name, "time": time_s, "watts": watts.round(1)}))
    return pd.concat(frames, ignore_index=True).assign(**changes)


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = cli.run(["power", "classify", *map(str, arguments)])
    out = capsys.readouterr()
    assert bool(code) == bool(out.err)
    return out.out + out.err


def test_the_command_on_csv_parquet_and_dates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, packed, dated = (tmp_path / name for name in ("a.csv", "a.parquet", "dated.csv"))
    samples().to_csv(path, index=False)
    renamed = {"job": "JobID", "time": "when", "watts": "P"}
    samples().rename(columns=renamed).to_parquet(packed, index=False)
    when = pd.to_datetime(samples()["time"], unit="s", utc=True)
    samples(time=when.dt.strftime("%Y-%m-%dT%H:%M:%S+00:00")).to_csv(dated, index=False)
    out = tmp_path / "kinds.csv"
    shown = said(capsys, path, "--range", 300, "--out", out)
    assert "measured by a range of 300.0 W\n" in shown
    assert f"wrote {out}" in shown
    rows = list(csv.DictReader(out.open()))
    assert [(row["job"], row["kind"]) for row in rows] == [(name, name) for name in bench.KINDS]
    assert all(bool(row["period_min"]) == (row["kind"] == "periodic") for row in rows)
    first = json.loads(said(capsys, path, "--range", 300, "--json"))
    assert first["kinds"] == {**dict.fromkeys(bench.KINDS, 1), "short": 0}
    columns = ("--job", "JobID", "--time", "when", "--watts", "P")
    assert json.loads(said(capsys, packed, *columns, "--range", 300, "--json")) == first
    assert json.loads(said(capsys, dated, "--range", 300, "--json"))["jobs"] == first["jobs"]
    local = samples(time=when.dt.tz_convert("Europe/Berlin"))
    local.set_index("job").to_parquet(packed)
    assert json.loads(said(capsys, packed, "--range", 300, "--json"))["jobs"] == first["jobs"]
    assert "from the lowest to the highest minute of these jobs" in said(capsys, path)


def test_names_of_jobs_are_as_they_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, path = ["1.1", "1.10", "007", "7", "1e3", "NA", "null"], tmp_path / "a.csv"
    rows = [f"{name},{60 * k},90" for k in range(20) for name in names]
    path.write_text("\n".join(["job,time,watts", *rows]))
    assert [*json.loads(said(capsys, path, "--range", 300, "--json"))["jobs"]] == names


def test_a_picture_of_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "a.csv", tmp_path / "kinds.svg"
    samples().to_csv(path, index=False)
    said(capsys, path, "--range", 300, "--plot", picture)
    drawn = picture.read_bytes()
    said(capsys, path, "--range", 300, "--plot", picture)
    assert drawn.startswith(b"<?xml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "job,time,watts\n1,0,90\n1,10,much\n",
            "a.csv:3: field watts: not a number of watts, 0 or ",
        ),
        ("job,time,watts\n1,0,-90\n", "a.csv:2: field watts: not a number of watts"),
        ("job,time,watts\n1,0,inf\n", "a.csv:2: field watts: not a number of watts"),
        ("job,time,watts\n1,noon,90\n", "a.csv:2: field time: not a time"),
        ("job,time,watts\n1,0,90\n,10,90\n", "a.csv:3: field job: no job"),
        ("id,time,watts\n1,0,90\n", "field job: the column is missing; the columns are id, time"),
        ("job;time;watts\n1;0;90\n", "separate cells by commas, and not by ';'"),
        ("", "a.csv: cannot be read as a table"),
        ("job,time,watts\n", "a.csv: the table has no row; write one sample a row"),
        (
            "job,time,watts\n1,0,90\n1,10,\n",
            "a.csv:3: field watts: not a number of watts, 0 or more (found '')",
        ),
        ("job,time,watts\n1,0,90\n1,1e300,90\n", "a.csv:3: field time: beyond the year 9999"),
        ("job,time,watts\n1,0,9\n1,10,9\n1,2026-01-01,9\n", "a.csv:4: field time: not a time"),
        ("job,time,watts\n1,0,9\n2,1e10,9\n1,1e10,9\n", "a.csv:4: field time: more than 3650 days"),
    ],
)
def test_bad_tables_are_named_by_their_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        power.read(path)
    assert problem in str(error.value)


def test_samples_that_are_too_far_apart_are_refused_as_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "samples.csv"
    frame = samples()
    frame["time"] *= 1000
    frame.to_csv(path, index=False)
    says = "field time: the samples of a job are .* s apart, .*: divide milliseconds by 1000"
    with pytest.raises(InputError, match=says):
        power.read(path)


def test_bad_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    samples().to_csv(path, index=False)
    assert "--trim -1: a number of minutes, 0 or more" in said(capsys, path, "--trim", -1)
    assert "for --trim: a whole number is needed" in said(capsys, path, "--trim", 1.5)
    assert "this would replace its own input" in said(capsys, path, "--out", path)
    assert "tables are .csv or .parquet" in said(capsys, path, "--out", tmp_path / "a.txt")
    assert "unknown extension; pictures are" in said(capsys, path, "--plot", tmp_path / "a.txt")
    assert "a range of 0 W" in said(capsys, path, "--range", 0)
