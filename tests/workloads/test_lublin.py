from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.errors import UsageError
from cpdispatch.jobs import Column, Workload
from cpdispatch.workloads import read
from cpdispatch.workloads.lublin import ALL, BATCH, INTERACTIVE, generate, weights


def powers(workload: Workload) -> Any:
    units = workload.table.units
    return (units > 1) & (units & (units - 1) == 0)


@given(st.integers(1, 60), st.integers(0, 5), st.sampled_from([8, 100, 256, 5000]),
       st.sampled_from(["all", "batch", "interactive", "both"]),
       st.sampled_from([None, 0.1, 0.9, 3.0]))  # fmt: skip
def test_every_job_fits_the_machine_and_the_same_seed_makes_the_same_jobs(
    jobs: int, seed: int, processors: int, kind: str, load: float | None
) -> None:
    one, again = (
        generate(jobs, seed, processors=processors, kind=kind, load=load) for _ in range(2)
    )
    assert len(one) == jobs
    assert np.array_equal(one.table.block, again.table.block)
    assert np.array_equal(one.runtime_s, again.runtime_s)
    assert one.table.units.min() >= 1
    assert one.table.units.max() <= processors
    assert one.runtime_s.min() >= 1
    assert one.runtime_s.max() <= exp(12)
    assert np.array_equal(one.table.requested_s, one.runtime_s)


def test_another_seed_makes_other_jobs() -> None:
    one, other = (generate(50, seed) for seed in (0, 1))
    assert not np.array_equal(one.table.submit_s, other.table.submit_s)


@pytest.mark.parametrize(
    ("kind", "given"), [("all", ALL), ("batch", BATCH), ("interactive", INTERACTIVE)]
)
def test_the_shares_of_the_sizes_are_the_published_ones(kind: str, given: Any) -> None:
    workload = generate(40_000, processors=128, kind=kind)
    assert np.mean(workload.table.units == 1) == pytest.approx(given.serial, abs=0.03)
    # Other parallel jobs have a size that is a power of two now and then, small ones above all.
    assert given.power_of_two - 0.02 < np.mean(powers(workload)) < given.power_of_two + 0.1
    assert workload.table.units.max() == round(128 / 2**given.size_high_below)


def test_larger_jobs_run_longer() -> None:
    workload = generate(20_000)
    large = workload.table.units > 32
    assert np.median(workload.runtime_s[large]) > 5 * np.median(workload.runtime_s[~large])


def test_the_weights_of_an_exponential_cycle_are_those_of_the_closed_form() -> None:
    found = weights((1.0, 10.0))
    number = np.array([*range(49, 59), *range(11, 49)])  # from midnight, the day begins at 11
    wanted = np.exp(-(number - 0.5) / 10) - np.exp(-(number + 0.5) / 10)
    assert found == pytest.approx(wanted / wanted.mean())


def test_jobs_arrive_in_proportion_to_the_weights_of_the_half_hours() -> None:
    # Frequent jobs with even gaps: what is left is the cycle.
    even = replace(ALL, gap=(400.0, 0.01))
    submit_s = generate(60_000, streams={"": even}).table.submit_s
    whole = submit_s < submit_s[-1] // 86_400 * 86_400
    slots = np.bincount(submit_s[whole] % 86_400 // 1800, minlength=48)
    assert slots / slots.mean() == pytest.approx(weights(ALL.cycle), rel=0.1, abs=0.02)


def test_the_time_between_jobs_has_the_shape_of_all_hours() -> None:
    rush = replace(ALL, gap=(500.0, 0.01), gap_rush_to_all=1.0)
    spans = [
        generate(4000, streams={"": given}).table.submit_s[-1]
        for given in (rush, replace(rush, gap_rush_to_all=1.2))
    ]
    assert np.log(spans[1] / spans[0]) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("load", [0.2, 0.8, 1.5])
@pytest.mark.parametrize("kind", ["all", "both"])
def test_the_offered_load_is_what_was_asked_for(load: float, kind: str) -> None:
    workload = generate(3000, load=load, kind=kind)
    work = float(workload.table.units @ workload.runtime_s)
    assert work / (256 * workload.table.submit_s[-1]) == pytest.approx(load, rel=0.001)


def test_a_load_changes_nothing_but_the_arrivals() -> None:
    free, scaled = generate(500), generate(500, load=0.5)
    assert np.array_equal(free.table.units, scaled.table.units)
    assert np.array_equal(free.runtime_s, scaled.runtime_s)


def test_both_kinds_come_in_streams_of_their_own() -> None:
    workload = generate(20_000, kind="both")
    queue = workload.table.column(Column.QUEUE)
    assert workload.table.labels["queue"] == ("interactive", "batch")
    runtimes = [np.median(workload.runtime_s[queue == number]) for number in (0, 1)]
    assert runtimes[0] < 60 < 300 < runtimes[1]
    assert np.mean(queue == 0) > 0.5


def test_requested_times_are_a_multiple_of_the_runtimes_rounded_up() -> None:
    workload = generate(100, request_factor=1.5)
    assert np.array_equal(workload.table.requested_s, -(-workload.runtime_s * 3 // 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, "jobs 0"),
        ({"jobs": 1, "seed": -1}, "seed -1"),
        ({"jobs": 1, "load": 0.0}, "load 0:"),
        ({"jobs": 1, "load": float("nan")}, "load nan"),
        ({"jobs": 1, "request_factor": 0.5}, "request factor 0.5"),
        ({"jobs": 1, "request_factor": float("inf")}, "factor inf: a number from 1 to 1000"),
        ({"jobs": 1, "request_factor": float("nan")}, "factor nan: a number from 1 to 1000"),
        ({"jobs": 1, "request_factor": 1e12}, r"request factor 1e\+12: a number from 1 to 1000"),
        ({"jobs": 1, "processors": 4}, "4 processors: the model is for 8"),
        ({"jobs": 1, "kind": "batches"}, "unknown kind 'batches'; did you mean batch"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        generate(**arguments)


@pytest.mark.parametrize("load", [1e-9, 1e-320])
def test_a_load_that_takes_for_ever_is_refused(load: float) -> None:
    with pytest.raises(
        UsageError, match=r"9 jobs at \S+ a day would take longer than 400,000 days:"
    ):
        generate(9, load=load)


@pytest.mark.log
def test_the_authors_own_sample_has_the_same_distributions(trace: Callable[[str], Path]) -> None:
    """Their program cuts arrivals to whole seconds job by job, so its clock runs 1.4 h ahead of its
    cycle by the end: hours are compared with a tolerance that allows for that."""
    theirs = read(trace("lublin_256"))
    ours = generate(100_000, seed=3)
    assert np.mean(powers(ours)) == pytest.approx(np.mean(powers(theirs)), abs=0.02)
    for size in (1, 2, 4, 8, 16, 32, 64, 128):
        shares = [np.mean(workload.table.units <= size) for workload in (theirs, ours)]
        assert shares[0] == pytest.approx(shares[1], abs=0.02)
    for column in (
        lambda w: w.runtime_s,
        lambda w: np.diff(w.table.submit_s),
    ):
        steps = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95]
        wanted = np.quantile(column(theirs), steps)
        assert np.quantile(column(ours), steps) == pytest.approx(wanted, rel=0.15, abs=2)
    assert ours.runtime_s.mean() == pytest.approx(theirs.runtime_s.mean(), rel=0.03)
    hours = [
        np.bincount(w.table.submit_s // 3600 % 24, minlength=24) / len(w) for w in (theirs, ours)
    ]
    assert np.abs(hours[0] - hours[1]).max() < 0.02
    assert np.abs(hours[0] - hours[1]).sum() < 0.2


@pytest.mark.parametrize("jobs", [50, 300])
@pytest.mark.parametrize("seed", [1, 3])
def test_the_load_is_that_over_the_span_of_the_submissions(jobs: int, seed: int) -> None:
    made = generate(jobs, seed, processors=256, load=0.9)
    work = int(made.table.units @ made.runtime_s)
    assert work / (256 * np.ptp(made.table.submit_s)) == pytest.approx(0.9, rel=1e-3)
