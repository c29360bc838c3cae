"""Times of runs: dates where the log says when it began, in what is asked and what is answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cpdispatch import cli, verify
from cpdispatch.simulator import Run

ROWS = """\
1 0 -1 600 1 -1 -1 1 600 -1 1 -1 -1 -1 -1 -1 -1 -1
2 60 -1 300 1 -1 -1 1 300 -1 1 -1 -1 -1 -1 -1 -1 -1
"""
AT_2026 = 1_767_225_600


def replayed(folder: Path, header: str, rows: str = ROWS) -> Path:
    (folder / "small.swf").write_text(f"; MaxProcs: 1\n{header}\n{rows}")
    out = folder / "run"
    assert cli.run(["simulate", str(folder / "small.swf"), "-d", "easy", "--out", str(out)]) == 0
    run = Run.load(out)
    assert verify.run(run.jobs, run.system) == []
    return out


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.run(list(map(str, arguments)))
    return code, *capsys.readouterr()


def test_dates_are_taken_and_shown_where_the_log_says_when_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = replayed(tmp_path, f"; UnixStartTime: {AT_2026}")
    code, by_date, _ = said(capsys, "status", run, "--at", "2026-01-01T00:01:40")
    assert code == 0
    assert "at 2026-01-01T00:01:40 UTC (100 s): 1 running, 1 waiting" in by_date
    assert "2026-01-01T00:00:00  2026-01-01T00:10:00" in by_date
    assert said(capsys, "status", run, "--at", "100") == (0, by_date, "")
    _, found, _ = said(capsys, "explain", run, "--job", "2")
    assert "at 2026-01-01T00:01:00 UTC (60 s)" in found
    assert "2026-01-01T00:01:00  9 min" in found
    _, printed, _ = said(capsys, "status", run, "--at", "2026-01-01T01:01:40+01:00", "--json")
    (moment,) = json.loads(printed)["moments"]
    assert (moment["began_s"], moment["moment"]["at_s"]) == (AT_2026, 100)
    _, printed, _ = said(capsys, "explain", run, "--job", "2", "--json")
    assert json.loads(printed)["explanations"][0]["began_s"] == AT_2026
    code, _, error = said(capsys, "status", run, "--at", "2027-01-01")
    assert code == 2
    assert "goes from 2026-01-01T00:00:00 UTC (0 s) to 2026-01-01T00:15:00 UTC (900 s)" in error


def test_a_log_that_counts_seconds_since_1970_has_dates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ROWS.replace("1 0 ", f"1 {AT_2026} ").replace("2 60 ", f"2 {AT_2026 + 60} ")
    run = replayed(tmp_path, "", rows)
    _, found, _ = said(capsys, "status", run, "--at", "2026-01-01T00:01:40")
    assert "at 2026-01-01T00:01:40 UTC: 1 running" in found


@pytest.mark.parametrize("header", ["", "; UnixStartTime: 0", "; UnixStartTime: 1'000"])
def test_a_log_without_a_date_has_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str
) -> None:
    run = replayed(tmp_path, header)
    _, found, _ = said(capsys, "status", run, "--at", "100")
    assert "at 100 s: 1 running" in found
    assert "since s" in found
    code, _, error = said(capsys, "status", run, "--at", "2026-01-01")
    assert code == 2
    assert "the run does not say when its log began" in error


def test_each_run_that_does_not_have_what_is_asked_for_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rows in (("a", ROWS), ("b", ROWS.split("\n")[0] + "\n")):
        (tmp_path / name).mkdir()
        replayed(tmp_path / name, "", rows)
    for command, key in (
        (("status", "--at", "800"), "moments"),
        (("explain", "--job", "2"), "explanations"),
    ):
        code, out, error = said(capsys, command[0], tmp_path, *command[1:], "--json")
        found = json.loads(out)
        assert code == 2
        assert [Path(each["run"]).parent.name for each in found[key]] == ["a"]
        (refused,) = found["errors"]
        assert Path(refused["file"]) == tmp_path / "b" / "run"
        assert refused["error"] in error


def test_what_is_no_time_is_answered_with_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = replayed(tmp_path, f"; UnixStartTime: {AT_2026}")
    code, _, error = said(capsys, "status", run, "--at", "noon")
    assert code == 2
    assert "--at 'noon': write seconds on the clock of the log, as 86400, or a date (UTC)" in error
