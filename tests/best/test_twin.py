"""`best` in the general loop and in compiled replays against its plain twin, job by job."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.best.test_best import Guess, cases
from tests.effort import examples
from tests.oracles import plain_best
from tests.oracles.plain_best import Parameters


def predicted(workload: Workload) -> list[tuple[int, int]]:
    """What `Guess` says of the jobs, as the simulator understands it."""
    guess, found = Guess(), []
    for job in workload.table:
        most = max(1, job.requested_s)
        expected, upper = (
            max(1, min(int(said), most))
            for said in (guess.predict(job, job.submit_s), guess.upper(job, job.submit_s))
        )
        found.append((expected, max(expected, upper)))
    return found


parameters = st.builds(
    Parameters, st.integers(0, 12), st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0, 200, 600, 1000]),
    st.sampled_from([0, 700, 1000]),
)  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=examples(200))
@given(cases(), parameters, st.booleans())
def test_the_schedule_is_the_plain_twins(
    compiled: bool, case: tuple[Workload, System], parameters: Parameters, best_fit: bool
) -> None:
    workload, system = case
    best: Best | Bounded = Best(*parameters[:3], best_fit=best_fit)
    if parameters.in_turn_after:
        best = Bounded(best, WaitBound(parameters.in_turn_after, parameters.wide))
    run = simulate(*case, best, predictor=Guess(), compiled=compiled)
    assert run.about["compiled"] == compiled
    assert verify.run(run.jobs, system) == []
    twin = plain_best.replay(workload, system, parameters, predicted(workload), best_fit)
    starts = run.job_table["start"].to_pylist()
    placed = [
        dict(zip(nodes or [], units or [], strict=True))
        for nodes, units in zip(*(run.job_table[name].to_pylist() for name in NODES), strict=True)
    ]
    assert {row: (starts[row], placed[row]) for row in twin} == twin


NODES = ("nodes", "node_units")
