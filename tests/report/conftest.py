from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cpdispatch import cli
from cpdispatch.simulator import Run

WEEK_S = 7 * 24 * 3600


def write_log(path: Path, jobs: int = 160, seed: int = 1) -> Path:
    """A log of eight weeks with a crowd of jobs of three users at the start of each."""
    random = np.random.default_rng(seed)
    submit = np.sort(random.integers(0, 8, jobs) * WEEK_S + random.integers(0, 1800, jobs))
    lines = ["; MaxProcs: 8"]
    for k in range(jobs):
        runtime, size = int(random.integers(5, 7000)), int(random.integers(1, 9))
        lines.append(
            f"{k + 1} {submit[k]} -1 {runtime} {size} -1 -1 {size} {2 * runtime} -1 1 "
            f"{1 + k % 3} 1 -1 -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one log on a pool under three dispatchers, one of them with measured decisions."""
    place = tmp_path_factory.mktemp("report")
    log = write_log(place / "small.swf")
    dispatchers = ["-d", "easy", "-d", "easy-saf-saf", "-d", "hcp:limit=0.05"]
    assert cli.run(["simulate", str(log), *dispatchers, "--out", str(place / "runs")]) == 0
    return place / "runs"


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on nodes that fail, of which jobs go on from checkpoints in one and end in the other."""
    place = tmp_path_factory.mktemp("broken")
    log = write_log(place / "small.swf", 60)
    (place / "four.toml").write_text(
        'resources = ["core"]\n[[groups]]\nname = "all"\nnodes = 4\ncapacity = [2]\n'
    )
    command = ["simulate", str(log), "--system", str(place / "four.toml"), "--cores", "1"]
    command += ["--events", "exponential:mtbf=4h,repair=20min"]
    for name, more in (("kept", ["--checkpoints", "every=5min,cost=10s"]),
                       ("ended", ["--requeue", "none"])):  # fmt: skip
        assert cli.run([*command, *more, "--out", str(place / name)]) == 0
        assert Run.load(place / name).verify() == []
    return place


@pytest.fixture(scope="session")
def page(folder: Path) -> Path:
    """The page about these runs."""
    path = folder.parent / "report.html"
    assert cli.run(["report", str(folder), "--out", str(path)]) == 0
    return path
