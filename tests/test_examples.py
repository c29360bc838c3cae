"""The examples run, and print what they printed when they were written."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
PRINTED = {
    "own_loop.py --jobs 6": """
       0 s  job    1  started     nodes {0: 2, 1: 2}
      59 s  job    2  started     nodes {2: 2, 3: 2}
      83 s  job    3  started     nodes {4: 2, 5: 2}
     115 s  job    4  started     nodes {0: 1, 1: 1}
     167 s  job    5  started     nodes {4: 2, 5: 2}
     173 s  job    6  started     nodes {6: 2, 7: 2}
""",
    "own_dispatcher.py": """
          easy: mean bounded slowdown     2.41
smallest-first: mean bounded slowdown     1.70
""",
    "own_data.py": """
      easy: hottest node at a start  79.9 C, mean wait  153.5 s
cool-first: hottest node at a start  70.0 C, mean wait  320.1 s
""",
    "failure_aware.py": """
         easy: 25.9% of the work lost
failure-aware: 20.7% of the work lost
""",
    "cheap_hours.py": """
hcp:wait=off,limit=0.2: 451 kWh of jobs, cost 177, mean wait 4 min
           cheap-hours: 451 kWh of jobs, cost 167, mean wait 80 min
""",
    "own_predictor.py": """
       walltime: mean bounded slowdown     2.28
longest-of-five: mean bounded slowdown     2.25
""",
}
"""What each command prints."""


@pytest.mark.parametrize("command", PRINTED)
def test_an_example_prints_what_is_written_here(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [file, *arguments])
    runpy.run_path(str(FOLDER / file), run_name="__main__")
    assert capsys.readouterr().out == PRINTED[command].removeprefix("\n")


ELSEWHERE = {"accasim_loop.py", "learn_to_dispatch.py"}
"""Examples that need an extra: run by the tests of what they show."""


def test_every_example_is_run_here_or_by_the_tests_of_what_it_shows() -> None:
    run = {command.split()[0] for command in PRINTED}
    assert {path.name for path in FOLDER.glob("*.py")} == run | ELSEWHERE
