from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.arrays import IntArray
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.decision import Reason
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.instance import NO_NODES, Instance, Running, Starvation
from cpdispatch.jobs import Job, JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.strategies import instances, systems, workloads

NOW = 1_000_000


def table(*jobs: tuple[int, int, int, int, int]) -> JobTable:
    """Jobs of (submission, processors, requested time, expected duration, upper duration)."""
    submit, units, requested, expected, upper = np.array(jobs, dtype=np.int64).reshape(-1, 5).T
    return JobTable(
        job_block(
            id=np.arange(len(jobs)),
            submit_s=submit,
            units=units,
            requested_s=requested,
            expected_s=expected,
            upper_s=upper,
            request=np.ones((len(jobs), 1), dtype=np.int64),
        )
    )


def moment(
    processors: int,
    queue: list[tuple[int, int, int, int, int]],
    running: list[tuple[int, int, int, int, int]] = (),  # type: ignore[assignment]
) -> Instance:
    """A pool at `NOW`; running jobs started at their submission."""
    jobs, system = table(*running), System.pool(processors)
    count = len(running)
    starts = jobs.submit_s.copy()
    free = system.capacity - jobs.units.sum()
    zeros: IntArray = np.zeros(count, dtype=np.int64)
    ends = np.maximum(starts + jobs.expected_s, NOW + 1)
    runs = Running(jobs, starts, ends, zeros, np.arange(count + 1), zeros, jobs.units.copy())
    return Instance(NOW, system, free, table(*queue), runs, NO_NODES)


def bounded(instance: Instance, threshold_s: int, wide: int = 0) -> Instance:
    """An instance in which a job that has waited longer is starved, and at once overdue."""
    return replace(instance, starvation=Starvation(threshold_s, 0, wide))


def starting(best: Best, instance: Instance) -> list[int]:
    decision = best.dispatch(instance)
    assert verify.decision(instance, decision) == []
    return np.flatnonzero(decision.start_s == NOW).tolist()


def test_what_is_short_for_sure_comes_before_what_may_be_short() -> None:
    may_be, is_short = (NOW, 2, 900, 100, 900), (NOW, 2, 900, 120, 130)
    assert starting(Best(), moment(2, [may_be, is_short])) == [1]


def test_with_a_width_the_narrow_one_of_two_equally_long_comes_first() -> None:
    wide, narrow = (NOW, 3, 900, 100, 100), (NOW, 1, 900, 100, 100)
    assert starting(Best(width=0.25), moment(3, [wide, narrow])) == [1]
    assert starting(Best(width=0), moment(3, [wide, narrow])) == [0]
    assert starting(Best(), moment(3, [wide, narrow])) == [1]


def test_who_has_waited_beyond_the_threshold_comes_first() -> None:
    long, short = (NOW - 101, 2, 900, 900, 900), (NOW, 2, 9, 9, 9)
    assert starting(Best(), bounded(moment(2, [long, short]), 101)) == [1]
    assert starting(Best(), bounded(moment(2, [long, short]), 100)) == [0]
    # It asks for the whole system: two thirds of the threshold are cut away.
    assert starting(Best(), bounded(moment(2, [long, short]), 300, wide=667)) == [0]
    assert starting(Best(), bounded(moment(3, [long, (NOW, 3, 9, 9, 9)]), 300, wide=667)) == [1]


def test_a_reservation_rests_on_requested_times_and_backfilling_on_half_way_to_them() -> None:
    # The running job is expected to end at once, but may hold its processor for 500 s.
    running = [(NOW - 10, 1, 510, 11, 11)]
    head = (NOW, 2, 10, 10, 10)
    fits = (NOW, 1, 2_500, 50, 100)
    outlives = (NOW, 1, 2_520, 50, 100)
    assert starting(Best(), moment(2, [head, fits], running)) == [1]
    assert starting(Best(), moment(2, [head, outlives], running)) == []


def test_once_a_job_has_waited_too_long_nothing_is_backfilled_but_by_its_requested_time() -> None:
    running = [(NOW - 10, 1, 510, 11, 11)]
    head, fits = (NOW - 101, 2, 10, 10, 10), (NOW, 1, 2_500, 50, 100)
    instance = moment(2, [head, fits], running)
    assert starting(Best(), bounded(instance, 101)) == [1]
    assert starting(Best(), bounded(instance, 100)) == []


def test_a_long_job_leaves_room_for_short_ones() -> None:
    long, short = (NOW, 70, 9_999, 9_999, 9_999), (NOW, 20, 90, 90, 90)
    roomy, busy = Best(long_s=5_000, keep=0.25), (NOW - 10, 6, 510, 510, 510)
    assert starting(roomy, moment(100, [long], [busy])) == []
    assert starting(roomy, moment(100, [short], [busy])) == [0]
    assert starting(roomy, moment(101, [long], [busy])) == [0]
    assert starting(Best(long_s=9_999, keep=0.25), moment(100, [long], [busy])) == [0]


def test_room_is_not_asked_of_the_wide_and_the_late() -> None:
    wide, late = (NOW, 90, 9_999, 9_999, 9_999), (NOW - 200, 80, 9_999, 9_999, 9_999)
    assert starting(Best(long_s=5_000, keep=0.15), moment(100, [wide])) == [0]
    roomy = Best(long_s=5_000, keep=0.25)
    assert starting(roomy, moment(110, [late], [(NOW - 10, 6, 510, 510, 510)])) == []
    assert starting(roomy, bounded(moment(110, [late], [(NOW - 10, 6, 510, 510, 510)]), 100)) == [0]


def test_a_long_job_that_has_to_leave_room_is_reserved_the_moment_when_it_can() -> None:
    running = [(NOW - 10, 20, 510, 510, 510)]
    long = (NOW, 60, 9_999, 9_999, 9_999)
    instance = moment(100, [long], running)
    decision = Best(long_s=5_000, keep=0.25).dispatch(instance)
    assert decision.reason.tolist() == [Reason.RESERVED]
    assert decision.start_s.tolist() == [NOW + 500]


def test_with_limits_by_requested_times_predictions_order_the_queue_and_limit_nothing() -> None:
    running = [(NOW - 10, 1, 510, 11, 11)]
    first, second = (NOW - 1, 2, 900, 20, 900), (NOW, 2, 900, 10, 900)
    fits, outlives = (NOW, 1, 500, 400, 500), (NOW, 1, 501, 400, 501)
    easy = dispatch.make("easy-spf-spf:limits=requested")
    for narrow, started in ((fits, [2]), (outlives, [])):
        decision = easy.dispatch(moment(2, [first, second, narrow], running))
        assert np.flatnonzero(decision.start_s == NOW).tolist() == started
        assert decision.start_s[1] == NOW + 500


def test_it_brings_its_own_predictor() -> None:
    assert dispatch.predictor_of(dispatch.make("best")) == "mixture"
    assert dispatch.predictor_of(dispatch.make("easy")) == "walltime"


@given(instances(predictions=True))
def test_every_answer_is_feasible(instance: Instance) -> None:
    assert verify.decision(instance, Best(keep=0.3, long_s=4).dispatch(instance)) == []


class Guess:
    """Predicts what it likes, the same for the same job."""

    name = "guess"

    def predict(self, job: Job, now: int) -> float:
        return 1 + job.id * 7 % 11

    def upper(self, job: Job, now: int) -> float:
        return 1 + job.id * 5 % 13

    def learn(self, job: Job, runtime_s: int) -> None:
        pass


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System]:
    system = draw(systems(max_nodes=5))
    return draw(workloads(system)), system


@given(cases(), st.booleans(), st.sampled_from(["instant", "event"]), st.integers(1, 1000))
def test_every_schedule_is_feasible_and_whole(
    case: tuple[Workload, System], best_fit: bool, trigger: str, in_turn_after: int
) -> None:
    best = Bounded(Best(long_s=4, keep=0.3, best_fit=best_fit), WaitBound(in_turn_after))
    run = simulate(*case, best, predictor=Guess(), trigger=trigger)
    assert verify.run(run.jobs, case[1]) == []
    reasons: Any = run.job_table["reason"].to_pylist()
    assert set(reasons) <= {"started", "backfilled", "late", "never_fits"}
