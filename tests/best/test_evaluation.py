"""Parameters are chosen by what they would have made of the jobs that ended last."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.arrays import IntArray
from cpdispatch.best import Best, evaluation
from cpdispatch.best.ended import Ended
from cpdispatch.best.evaluation import Evaluation, OnPool, Parameters, sizes
from cpdispatch.instance import NO_NODES, Instance, Running, Stopped
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.best.test_best import Guess, cases
from tests.simulator.cases import starting

TOTAL = 4
FIRST = Parameters(threshold_s=1_000, strict_s=1_100, long_s=10**6, keep=0.0, width=0.25)
NOBODY: list[int] = []


def jobs(ids: list[int], submit_s: int = 0, units: int = 1, expected_s: int = 10) -> JobTable:
    count = len(ids)
    return JobTable(
        job_block(
            id=ids,
            submit_s=[submit_s] * count,
            units=[units] * count,
            requested_s=[100] * count,
            expected_s=[expected_s] * count,
            upper_s=[20] * count,
            request=np.ones((count, 1), dtype=np.int64),
        )
    )


def moment(now: int, queue: JobTable, running: list[int]) -> Instance:
    count, system = len(running), System.pool(TOTAL)
    zeros = np.zeros(count, dtype=np.int64)
    runs = Running(
        jobs(running), zeros, zeros + now + 1, zeros, np.arange(count + 1), zeros, zeros + 1
    )
    return Instance(now, system, system.capacity - count, queue, runs, NO_NODES)


def begin(ended: Ended, instance: Instance, count: int) -> None:
    """Tell of the first so many queued jobs as starting now."""
    ended.started(instance, starting(instance, range(count), {0: 1}))


@pytest.mark.parametrize(
    ("before_s", "now", "runtime_s"), [(7, 9, 9), (7, 10, 10), (7, 30, 10), (12, 30, 12)]
)
def test_a_job_that_runs_no_more_ended_when_expected_or_as_near_to_that_as_can_be(
    before_s: int, now: int, runtime_s: int
) -> None:
    ended, queue = Ended(), jobs([5])
    ended.look(moment(0, queue, NOBODY))
    begin(ended, moment(0, queue, NOBODY), 1)
    ended.look(moment(before_s, queue, [5]))
    assert len(ended) == 0
    ended.look(moment(now, queue, NOBODY))
    assert [column.tolist() for column in known(ended)] == [[5], [0], [runtime_s]]


def test_the_last_ones_come_by_submission() -> None:
    ended = Ended()
    for id, submit_s in ((1, 30), (2, 20), (3, 10), (4, 10)):
        begin(ended, moment(50 * id, jobs([id], submit_s), NOBODY), 1)
        ended.look(moment(50 * id + 40, jobs([]), NOBODY))
    assert known(ended)[0].tolist() == [3, 4, 2, 1]


def test_a_stopped_job_has_not_ended_and_a_killed_one_begins_anew() -> None:
    for goes_on in (True, False):
        ended, queue = Ended(), jobs([5])
        begin(ended, moment(0, queue, NOBODY), 1)
        halted = replace(moment(3, queue, NOBODY), stopped=Stopped.of({0: (0, {0: 1})}))
        ended.look(halted)
        assert len(ended) == 0
        ended.started(halted, starting(halted, [0] * goes_on, {0: 1}))
        if not goes_on:
            begin(ended, moment(4, queue, NOBODY), 1)
        ended.look(moment(12, queue, NOBODY))
        assert known(ended)[2].tolist() == [10 if goes_on else 8]


def known(ended: Ended) -> tuple[IntArray, IntArray, IntArray]:
    """Ids, submissions and runtimes."""
    table, runtime_s = ended.jobs()
    return table.id, table.submit_s, runtime_s


def test_jobs_that_end_between_the_same_two_decisions_are_forgotten_by_identifier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = Ended()
    ended._ended = type(ended._ended)(maxlen=2)
    begin(ended, moment(0, jobs([4096, 1, 8]), NOBODY), 3)
    ended.look(moment(9, jobs([]), NOBODY))
    assert sorted(known(ended)[0].tolist()) == [8, 4096]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs are enough, and candidates are evaluated often."""
    monkeypatch.setattr(evaluation, "EVERY_S", 50)
    monkeypatch.setattr(evaluation, "FEWEST", 5)


Lived = tuple[Evaluation, Ended]
CAPACITY = np.array([TOTAL])


def lived(first: Parameters, count: int, wide_every: int) -> Lived:
    """Knows `count` jobs that ended, some of which are as wide as the pool."""
    found, ended = Evaluation(first), Ended()
    found.step(0, CAPACITY, ended)
    for id in range(count):
        wide = id % wide_every == 0
        queue = jobs([id], submit_s=id, units=TOTAL if wide else 1, expected_s=1 if wide else 20)
        begin(ended, moment(id, queue, NOBODY), 1)
    ended.look(moment(49, jobs([]), NOBODY))
    assert len(ended) == count
    return found, ended


def evaluate(lived: Lived) -> int:
    """Take steps until a choice has been made; how many it took."""
    found, ended = lived
    assert found.next_s == 50
    steps = 1
    found.step(50, CAPACITY, ended)
    while found.next_s < 0:
        found.step(50 + steps, CAPACITY, ended)
        steps += 1
    assert found.next_s == 100
    return steps


@pytest.mark.usefixtures("soon")
def test_one_replay_a_decision_and_the_best_candidate_wins() -> None:
    first = FIRST._replace(threshold_s=10, strict_s=20)
    life = lived(first, 30, 3)
    assert evaluate(life) == 1 + 1 + 2 * len(evaluation.THRESHOLDS) + 1
    slowdowns = life[0]._slowdowns
    assert len(slowdowns) == 2 * len(evaluation.THRESHOLDS)
    chosen = life[0].parameters
    assert slowdowns[chosen] <= slowdowns[first]
    assert chosen == first or slowdowns[chosen] < evaluation.BETTER * slowdowns[first]


@pytest.mark.usefixtures("soon")
def test_no_threshold_is_tried_beyond_the_longest_wait_under_easy() -> None:
    life = lived(FIRST, 30, 3)
    assert evaluate(life) == 1 + 1 + 2 + 1
    assert {each.threshold_s for each in life[0]._slowdowns} == {FIRST.threshold_s}


@pytest.mark.usefixtures("soon")
def test_longer_waits_under_easy_are_not_forgotten() -> None:
    life = lived(FIRST, 30, 3)
    life[0]._threshold_s_max = 3_000
    evaluate(life)
    assert {each.threshold_s for each in life[0]._slowdowns} == {1_000, 1_500, 2_250}


def waiting(monkeypatch: pytest.MonkeyPatch, first_s: int, others_s: list[int]) -> None:
    """Let jobs wait so long under the first parameters, and so long with the other width."""

    def wait_s(on_pool: OnPool, parameters: Parameters | None) -> IntArray:
        wide = parameters is not None and parameters.width == evaluation.WIDTH
        return np.array(others_s if wide else [first_s] * 30)

    monkeypatch.setattr(OnPool, "wait_s", wait_s)


@pytest.mark.usefixtures("soon")
def test_parameters_change_for_a_gain_and_not_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(monkeypatch, 100, [0] * 30)
    life = lived(FIRST, 30, 3)
    evaluate(life)
    assert life[0].parameters.width == evaluation.WIDTH
    monkeypatch.setattr(evaluation, "BETTER", 0.0)
    life = lived(FIRST, 30, 3)
    evaluate(life)
    assert life[0].parameters == FIRST


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("longest_s", "taken"), [(1_350, True), (1_351, False)])
def test_a_candidate_under_which_a_job_waits_too_long_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, longest_s: int, taken: bool
) -> None:
    waiting(monkeypatch, 1_000, [longest_s, *[0] * 29])
    life = lived(FIRST, 30, 3)
    evaluate(life)
    assert (life[0].parameters != FIRST) == taken


@pytest.mark.usefixtures("soon")
def test_too_few_jobs_teach_nothing() -> None:
    life = lived(FIRST, 4, 3)
    assert evaluate(life) == 1
    assert life[0].parameters == FIRST


def test_a_job_is_worth_the_processors_of_what_it_asks_most_of() -> None:
    table = JobTable(
        job_block(
            id=range(3), submit_s=0, units=[1, 2, 3], requested_s=9,
            request=[[4, 0, 0], [1, 1, 0], [0, 0, 1]],
        )
    )  # fmt: skip
    assert sizes(table, np.array([64, 8, 0])).tolist() == [4, 16, 64]


@given(cases(), st.integers(1, 20))
def test_every_schedule_is_feasible_and_the_same_again(
    case: tuple[Workload, System], threshold_s: int
) -> None:
    def run() -> object:
        best = Best(threshold_s=threshold_s, strict_s=threshold_s + 5, long_s=4, keep=0.3)
        return simulate(*case, best, predictor=Guess())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluation, "EVERY_S", 4)
        patched.setattr(evaluation, "FEWEST", 2)
        one, two = run(), run()
    assert verify.run(one.jobs, case[1]) == []
    assert one.job_table.equals(two.job_table)


def test_what_is_known_is_kept_in_checkpoints() -> None:
    ended = lived(FIRST, 3, 2)[1]
    again = pickle.loads(pickle.dumps(ended))
    assert [c.tolist() for c in known(again)] == [c.tolist() for c in known(ended)]


def test_it_can_be_switched_off() -> None:
    assert dispatch.make("best").adapt
    assert not dispatch.make("best:adapt=off").adapt
