"""A live Slurm under an accelerated clock."""

from __future__ import annotations

import shutil
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.adapters.slurm.cluster import missing

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import slurm_simulated

LACKING = missing() or ("" if shutil.which("faketime") else "no faketime: install faketime")


@pytest.mark.skipif(bool(LACKING), reason=LACKING)
def test_a_cluster_under_a_fast_clock_runs_jobs_as_long_as_they_ask() -> None:
    jobs = [(0, 100, 60, 120), (1, 60, 60, 120), (2, 60, 60, 120)]
    found = slurm_simulated.run(60, jobs)
    assert found["states"] == ["COMPLETED"]
    assert found["violations"] == 0
    # No two of them fit beside each other, and all clocks agree to a second of real time.
    assert all(-1 <= longer_s <= 60 for longer_s in found["longer_s"])
    starts = found["start_s"]
    assert all(b >= a + 59 for a, b in pairwise(starts))


def test_a_schedule_over_the_machine_is_seen() -> None:
    jobs = [(0, 60, 10, 60), (0, 60, 10, 60)]
    assert slurm_simulated.violations([0, 10], [10, 20], jobs) == 0
    assert slurm_simulated.violations([0, 9], [10, 19], jobs) == 1


def test_starts_are_compared_by_time_and_order() -> None:
    assert slurm_simulated.difference([0, 5, 9], [0, 9, 5]) == (8 / 3, 4, 1 / 3)


@pytest.mark.skipif(bool(LACKING), reason=LACKING)
def test_all_programs_of_a_cluster_share_one_clock() -> None:
    with slurm_simulated.cluster(60) as slurm:
        before_s = slurm.now_s()
        time.sleep(0.5)
        assert slurm.now_s() - before_s >= 30
