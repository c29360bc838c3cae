from __future__ import annotations

from dataclasses import replace

import pytest

from cpdispatch.errors import InputError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import find, mix
from cpdispatch.learn.measure import MEASURES, Meter
from cpdispatch.simulator import simulate
from tests.learn.cases import FOUR, ONE, bursts, workload


@pytest.mark.parametrize("primary", ["fcfs", "spf", "lexp", "lin"])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("threshold_s", [3_600, 2**63 - 1])
def test_measures_are_those_of_a_simulation(primary: str, depth: int, threshold_s: int) -> None:
    log = bursts(1, 4)
    log = replace(log, runtime_s=log.runtime_s // 3)
    dispatcher = Backfill(find(primary), find("saf"), threshold_s, depth)
    told = simulate(log, FOUR, dispatcher).metrics
    measured = Meter(log, FOUR).measure(dispatcher)
    assert measured.tolist() == pytest.approx([told[name] for name in MEASURES], rel=1e-12)


def test_a_mixed_policy_is_measured_as_it_is_simulated() -> None:
    log = bursts(1, 4)
    order = mix({"wait": -1.0, "area": 0.3, "expansion": 20.0})
    told = simulate(log, FOUR, Backfill(order, order)).metrics
    measured = Meter(log, FOUR).measure(Backfill(order, order))
    assert measured.tolist() == pytest.approx([told[name] for name in MEASURES], rel=1e-12)


def test_a_job_that_never_fits_does_not_count() -> None:
    log = workload([0, 0, 1], [1, 9, 1], 100, [100, 100, 100])
    assert Meter(log, ONE).starts(Backfill()).tolist() == [0, -1, 100]
    assert Meter(log, ONE).measure(Backfill())[0] == 99 / 2


def test_a_log_of_which_no_job_fits_is_an_error() -> None:
    log = workload([0], [9], 100, [100])
    with pytest.raises(InputError, match="case: no job of it fits the system"):
        Meter(log, ONE).measure(Backfill())
