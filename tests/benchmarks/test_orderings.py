from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from cpdispatch.system import System
from tests.scripts import script
from tests.simulator.cases import workload

ROOT = Path(__file__).resolve().parents[2]
KTH = "KTH-SP2-1996-2"


bench = script("benchmarks/orderings.py")


def test_a_week_is_replayed_by_itself_and_jobs_that_cross_its_end_are_read_in_three_ways() -> None:
    week_s, system = bench.WEEK_S, System.pool(1)
    # Each job: submission, processors, requested time, runtime.
    jobs = workload([
        (week_s - 1000, 1, 100, 100), (week_s - 1000, 1, 1000, 1000), (week_s - 999, 1, 1000, 1000),
        (3 * week_s, 1, 10, 10),
    ])  # fmt: skip
    first, last = bench.weeks_of(jobs, 4, system)
    assert [len(first.jobs), len(last.jobs)] == [3, 1]
    assert first.ends.tolist() == [True, True, False]
    (left_out, not_counted, counted), _ = first.means(bench.dispatcher("fcfs", "fcfs", 0))
    assert left_out == not_counted == pytest.approx((1 + 1.1) / 2)
    assert counted == pytest.approx((1 + 1.1 + 2.099) / 3)
    # Last come, first served: the job that crosses the end is before one that does not.
    (left_out, not_counted, _), _ = first.means(bench.dispatcher("lcfs", "lcfs", 0))
    assert left_out == pytest.approx((1 + 1.1) / 2)
    assert not_counted == pytest.approx((1 + 2.1) / 2)
    assert len(bench.weeks_of(jobs, 3, system)) == 1


def test_a_larger_tau_makes_short_jobs_less_slow() -> None:
    jobs = workload([(0, 1, 30, 30), (0, 1, 30, 30)])
    (week,) = bench.weeks_of(jobs, 1, System.pool(1))
    means = week.means(bench.dispatcher("fcfs", "fcfs", 0))
    assert bench.TAUS_S == (10, 60)
    assert means[:, 2].tolist() == [1.5, 1.0]


@pytest.mark.log
def test_published_sums_of_weeks_come_out(
    trace: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Zrigui's thesis on KTH, with tau = 60 s: within 3 %."""
    arguments = ["--logs", "KTH", "--primary", "fcfs", "lexp", "--backfill", "spf"]
    assert bench.main([str(trace(KTH).parent), *arguments, "--filter", "drop"]) == 0
    weeks, _ = capsys.readouterr().out.split("\n\n", 1)
    found = [row for row in csv.DictReader(weeks.splitlines()) if row["tau_s"] == "60"]
    assert len(found) == 6
    for row in found:
        assert float(row["counted"]) == pytest.approx(float(row["published"]), rel=0.03)
