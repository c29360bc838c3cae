"""Results of replays: kept line by line, and put together for tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.scripts import script

results = script("benchmarks/results.py")


@dataclass(frozen=True, slots=True)
class Case:
    log: str
    draw: int


def square(factor: int, case: Case) -> dict[str, float]:
    return {"square": factor * float(case.draw**2)}


CASES = [Case("KTH", draw) for draw in range(3)]


def made(path: Path) -> dict[Case, dict[str, float]]:
    found = results.Results(path, Case, dict[str, float])
    found.make(CASES, square, {"factor": 2}, 1)
    return found  # type: ignore[no-any-return]


def test_what_is_in_the_file_is_not_done_again_and_what_was_cut_short_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "folder" / "results.jsonl"
    first = made(path)
    assert first == {case: square(2, case) for case in CASES}
    assert "3/3" in capsys.readouterr().err
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    assert made(path) == first
    told = capsys.readouterr().err
    assert f"{path}:3 is left out" in told
    assert "1/1" in told
    assert results.Results(path, Case, dict[str, float]) == first


def test_rows_of_the_same_case_are_replaced() -> None:
    before = "log,draw,figure\nKTH,0,1\nCTC,0,2\n"
    after = results.merged(before, ["log", "draw", "figure"], [["KTH", "0", "3"]], 2)
    assert after == "log,draw,figure\nKTH,0,3\nCTC,0,2\n"
    sorted_ = results.merged(before, ["log", "draw", "figure"], [], 2, lambda row: row[0])
    assert sorted_ == "log,draw,figure\nCTC,0,2\nKTH,0,1\n"


def test_a_table_without_rows_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "DATA", tmp_path)
    results.write("made", [["a"], ["1"]])
    results.write("made", [["a"]])
    assert (tmp_path / "made.csv").read_text() == "a\n1\n"


def test_the_mean_of_ratios_is_geometric() -> None:
    pytest.importorskip("scipy", reason="intervals need scipy, which the extra learn brings")
    assert results.geometric(np.array([0.5])) == ["0.500"] * 3
    # Logs -3, -2 and -1 of base 2: mean -2, and 4.303, Student's t of 2 degrees of freedom, times
    # 1 / sqrt(3) to either side.
    assert results.geometric(np.array([0.125, 0.25, 0.5])) == ["0.250", "0.045", "1.399"]
