"""An off-line evaluation gives what the simulator makes of the same jobs and predictions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.arrays import IntArray
from cpdispatch.best import Best
from cpdispatch.best.evaluation import OnPool, Parameters
from cpdispatch.heuristics.limits import wary_s
from cpdispatch.jobs import Column, Job, JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import System

TOTAL = 8


class Recorded:
    """Predicts what is recorded in a table of jobs."""

    name = "recorded"

    def __init__(self, jobs: JobTable) -> None:
        self.jobs = jobs

    def predict(self, job: Job, now: int) -> float:
        return int(self.jobs.expected_s[job.id])

    def upper(self, job: Job, now: int) -> float:
        return int(self.jobs.upper_s[job.id])

    def learn(self, job: Job, runtime_s: int) -> None:
        pass


Past = tuple[JobTable, IntArray]


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    times = st.integers(1, 40)
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(1, TOTAL), times, times, times,
                      st.integers(0, 50)),
            min_size=1, max_size=25,
        )
    )  # fmt: skip
    submit, units, first, second, third, runtime = np.array(sorted(rows), dtype=np.int64).T
    expected, upper, requested = np.sort(np.stack([first, second, third]), axis=0)
    block = job_block(
        id=range(len(rows)), submit_s=submit, units=units, requested_s=requested,
        expected_s=expected, upper_s=upper, request=[[1]] * len(rows),
    )  # fmt: skip
    return JobTable(block), runtime


def simulated(past: Past, dispatcher: Best | str) -> IntArray:
    """How long the jobs wait in the general loop."""
    jobs, runtime_s = past
    unknown = np.full(len(jobs), -1, dtype=np.int64)
    workload = Workload("past", ("core",), jobs, runtime_s, unknown, unknown.copy())
    predictor = "walltime" if isinstance(dispatcher, str) else Recorded(jobs)
    run = simulate(
        workload, System.pool(TOTAL), dispatcher, predictor=predictor, compiled=False
    )  # fmt: skip
    return run.job_table["start"].to_numpy() - jobs.submit_s


def cautious(past: Past) -> OnPool:
    """The jobs as `best` remembers them."""
    jobs, runtime_s = past
    block = jobs.block.copy()
    block[Column.UPPER] = wary_s(jobs.upper_s, jobs.requested_s)
    return OnPool(JobTable(block), runtime_s, TOTAL, jobs.units)


@given(
    pasts(), st.integers(1, 60), st.integers(0, 30), st.integers(0, 30),
    st.sampled_from([0.0, 0.25, 0.5]), st.sampled_from([0.0, 0.25, 1.0]),
)  # fmt: skip
def test_an_evaluation_gives_the_waits_of_the_simulation(
    past: Past, threshold_s: int, more_s: int, long_s: int, keep: float, width: float
) -> None:
    parameters = Parameters(threshold_s, threshold_s + more_s, long_s, keep, width)
    best = Best(*parameters[:3], keep=keep, width=width, adapt=False)
    assert cautious(past).wait_s(parameters).tolist() == simulated(past, best).tolist()


@given(pasts())
def test_easy_is_evaluated_too(past: Past) -> None:
    assert cautious(past).wait_s(None).tolist() == simulated(past, "easy").tolist()
