"""The rehearsal of past jobs gives what the simulator makes of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.best import Best
from cpdispatch.heuristics.limits import wary_s
from cpdispatch.heuristics.rehearsal import Past, Rules, easy, rehearse
from cpdispatch.jobs import Job, JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import System

TOTAL = 8


class Told:
    """Predicts what it was told."""

    name = "told"

    def __init__(self, past: Past) -> None:
        self.past = past

    def predict(self, job: Job, now: int) -> float:
        return int(self.past.expected_s[job.id])

    def upper(self, job: Job, now: int) -> float:
        return int(self.past.upper_s[job.id])

    def learn(self, job: Job, runtime_s: int) -> None:
        pass


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
    submit, processors, first, second, third, runtime = np.array(sorted(rows), dtype=np.int64).T
    expected, upper, requested = np.sort(np.stack([first, second, third]), axis=0)
    return Past(submit, processors, requested, expected, upper, runtime)


def simulated(past: Past, dispatcher: Best | str) -> IntArray:
    count = len(past.submit_s)
    block = job_block(
        id=range(count), submit_s=past.submit_s, units=past.processors,
        requested_s=past.requested_s, request=[[1]] * count,
    )  # fmt: skip
    unknown = np.full(count, -1, dtype=np.int64)
    workload = Workload("past", ("core",), JobTable(block), past.runtime_s, unknown, unknown.copy())
    predictor = "walltime" if isinstance(dispatcher, str) else Told(past)
    run = simulate(workload, System.pool(TOTAL), dispatcher, predictor=predictor)
    return run.job_table["start"].to_numpy()


@given(
    pasts(), st.integers(1, 60), st.integers(0, 30), st.integers(0, 30),
    st.sampled_from([0.0, 0.25, 0.5]), st.sampled_from([0.0, 0.25, 1.0]),
)  # fmt: skip
def test_a_rehearsal_gives_the_starts_of_the_simulation(
    past: Past, threshold_s: int, more_s: int, long_s: int, keep: float, width: float
) -> None:
    rules = Rules(threshold_s, threshold_s + more_s, long_s, keep, width)
    best = Best(*rules[:3], keep=keep, width=width)
    seen = past._replace(upper_s=wary_s(past.upper_s, past.requested_s))
    assert rehearse(seen, TOTAL, rules).tolist() == simulated(past, best).tolist()


@given(pasts())
def test_easy_is_rehearsed_too(past: Past) -> None:
    assert easy(past, TOTAL).tolist() == simulated(past, "easy").tolist()
