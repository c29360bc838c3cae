"""What the benchmark of a Slurm under an accelerated clock counts."""

from __future__ import annotations

from pathlib import Path

from tests.scripts import script

slurm_simulated = script("benchmarks/slurm_simulated.py")


def test_a_schedule_over_the_machine_is_seen() -> None:
    jobs = [(0, 60, 10, 60), (0, 60, 10, 60)]
    assert slurm_simulated.violations([0, 10], [10, 20], jobs) == 0
    assert slurm_simulated.violations([0, 9], [10, 19], jobs) == 1


def test_starts_are_compared_by_time_and_order() -> None:
    assert slurm_simulated.difference([0, 5, 9], [0, 9, 5]) == (8 / 3, 4, 1 / 3)


def test_a_job_that_was_queued_again_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    assert slurm_simulated.records(path) == {}
    path.write_text("JobId=1 JobState=NODE_FAIL\nJobId=2 JobState=COMPLETED\nJobId=1 JobState=X\n")
    found = slurm_simulated.records(path)
    assert {job: row["JobState"] for job, row in found.items()} == {1: "X", 2: "COMPLETED"}


def test_the_jobs_of_some_days_of_a_log_begin_at_zero_and_have_limits_in_minutes(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.swf"
    rest = " -1 1 1 1 -1 -1 -1 -1 -1\n"
    log.write_text(
        "; MaxProcs: 100\n"
        f"1 50 -1 60 2 -1 -1 2 90{rest}"  # before
        f"2 100 -1 70 2 -1 -1 4 61{rest}"
        f"3 160 -1 500 2 -1 -1 -1 120{rest}"  # ran longer than it may
        f"4 170 -1 30 101 -1 -1 101 120{rest}"  # too wide
        f"5 200 -1 60 2 -1 -1 2 90{rest}"  # after
    )
    assert slurm_simulated.logged(log, 100, 200) == [(0, 4, 70, 120), (60, 2, 120, 120)]


def test_waits_and_slowdowns_are_those_of_the_log() -> None:
    found = slurm_simulated.quality([0, 25], [(0, 1, 100, 120), (5, 1, 5, 60)])
    assert found == {"wait_s": 10, "wait_s_max": 20, "slowdown": (1 + 2.5) / 2}
