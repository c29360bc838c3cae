"""Jobs that have ended are dispatched anew as the simulator would."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch
from cpdispatch.analyze.metrics import bounded_slowdown
from cpdispatch.decision import Decision
from cpdispatch.heuristics.best import Best
from cpdispatch.heuristics.trial import Trial
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.heuristics.test_best import Guess, cases


def predicted(workload: Workload) -> JobTable:
    """The jobs as `Guess` predicts them, within their requested times."""
    block, guess = workload.table.block.copy(), Guess()
    for job in workload.table:
        at = int(np.flatnonzero(block[Column.ID] == job.id)[0])
        expected_s, upper_s = guess.predict(job, 0), guess.upper(job, 0)
        block[Column.EXPECTED, at] = min(expected_s, job.requested_s)
        block[Column.UPPER, at] = min(max(expected_s, upper_s), job.requested_s)
    return JobTable(block)


CONTENDERS = {
    "easy": lambda: dispatch.make("easy"),
    "naive": lambda: dispatch.make("easy-saf-spf:limits=upper"),
    "best": lambda: Best(threshold_s=9, strict_s=12, long_s=4, keep=0.3, adapt=False),
}


@given(cases(), st.sampled_from(sorted(CONTENDERS)))
def test_a_trial_gives_the_starts_of_the_simulation(
    case: tuple[Workload, System], name: str
) -> None:
    workload, system = case
    run = simulate(*case, CONTENDERS[name](), predictor=Guess())
    reasons = np.array(run.job_table["reason"].to_pylist())
    fits = np.flatnonzero(reasons != "never_fits")
    jobs, runtime_s = predicted(workload).take(fits), workload.runtime_s[fits]
    trial = Trial(CONTENDERS[name](), system, jobs, runtime_s)
    while trial.step():
        pass
    assert trial.start_s.tolist() == run.job_table["start"].to_numpy()[fits].tolist()
    assert (trial._free == system.capacity).all()
    if len(fits):
        assert trial.slowdown() == pytest.approx(bounded_slowdown(run.schedule())[fits].mean())


class Lazy:
    """Starts nothing."""

    def dispatch(self, instance: Instance) -> Decision:
        decision = dispatch.make("easy").dispatch(instance)
        return replace(decision, start_s=np.full_like(decision.start_s, -1))


def test_who_starts_no_job_has_an_infinite_slowdown() -> None:
    from tests.heuristics.test_hindsight import TOTAL, jobs

    trial = Trial(Lazy(), System.pool(TOTAL), jobs([1, 2]), np.array([5, 5]))
    assert trial.step()
    assert not trial.step()
    assert trial.slowdown() == inf
