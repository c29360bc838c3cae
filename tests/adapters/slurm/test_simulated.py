"""What the benchmark of a Slurm under an accelerated clock counts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import slurm_simulated


def test_a_schedule_over_the_machine_is_seen() -> None:
    jobs = [(0, 60, 10, 60), (0, 60, 10, 60)]
    assert slurm_simulated.violations([0, 10], [10, 20], jobs) == 0
    assert slurm_simulated.violations([0, 9], [10, 19], jobs) == 1


def test_starts_are_compared_by_time_and_order() -> None:
    assert slurm_simulated.difference([0, 5, 9], [0, 9, 5]) == (8 / 3, 4, 1 / 3)
