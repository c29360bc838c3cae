"""Scripts of benchmarks/ that are given something wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import ROOT


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("energy.py there-is-none.swf", "energy: there-is-none.swf: "),
        ("energy.py there-is-none.swf --workers 0", "--workers: 0: a whole number, 1 or more"),
        ("hyper_prior.py . --out prior.json", "hyper_prior: .: holds no file *.json.gz"),
        ("hyper_prior.py none --out prior.json", "argument folder: none: there is no such folder"),
        ("dumps.py table none . --name x", "dumps: .: Is a directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(line: str, problem: str, tmp_path: Path) -> None:
    name, *arguments = line.split()
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name, *arguments],
        capture_output=True, text=True, cwd=tmp_path, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
    )  # fmt: skip
    assert done.returncode == 2
    assert problem in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
