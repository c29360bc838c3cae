"""Rules are chosen by what they would have made of the jobs that ended last."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.arrays import IntArray
from cpdispatch.heuristics import hindsight
from cpdispatch.heuristics.best import Best
from cpdispatch.heuristics.ended import Ended
from cpdispatch.heuristics.hindsight import Hindsight, sizes
from cpdispatch.heuristics.rehearsal import Rules
from cpdispatch.instance import NO_NODES, Instance, Running
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.heuristics.test_best import Guess, cases

TOTAL = 4
FIRST = Rules(threshold_s=1_000, strict_s=1_100, long_s=10**6, keep=0.0, width=0.25)
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


@pytest.mark.parametrize(
    ("before_s", "now", "runtime_s"), [(7, 9, 9), (7, 10, 10), (7, 30, 10), (12, 30, 12)]
)
def test_a_job_that_runs_no_more_ended_when_expected_or_as_near_to_that_as_can_be(
    before_s: int, now: int, runtime_s: int
) -> None:
    ended, queue = Ended(), jobs([5])
    ended.look(moment(0, queue, NOBODY))
    ended.started(moment(0, queue, NOBODY), np.array([0]))
    ended.look(moment(before_s, queue, [5]))
    assert len(ended) == 0
    ended.look(moment(now, queue, NOBODY))
    assert [column.tolist() for column in known(ended)] == [[5], [0], [runtime_s]]


def test_the_last_ones_come_by_submission() -> None:
    ended = Ended()
    for id, submit_s in ((1, 30), (2, 20), (3, 10), (4, 10)):
        ended.started(moment(50 * id, jobs([id], submit_s), NOBODY), np.array([0]))
        ended.look(moment(50 * id + 40, jobs([]), NOBODY))
    assert known(ended)[0].tolist() == [3, 4, 2, 1]
    assert ended.last(2)[0].id.tolist() == [3, 4]


def known(ended: Ended) -> tuple[IntArray, IntArray, IntArray]:
    """Ids, submissions and runtimes."""
    table, runtime_s = ended.last(99)
    return table.id, table.submit_s, runtime_s


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs are enough, and are thought over often."""
    monkeypatch.setattr(hindsight, "EVERY_S", 50)
    monkeypatch.setattr(hindsight, "FEWEST", 5)


Lived = tuple[Hindsight, Ended]


def lived(first: Rules, count: int, wide_every: int) -> Lived:
    """Knows `count` jobs that ended, some of which are as wide as the pool and never fit."""
    hindsight, ended = Hindsight(first), Ended()
    hindsight.look(moment(0, jobs([]), NOBODY), ended)
    for id in range(count):
        wide = id % wide_every == 0
        queue = jobs([id], submit_s=id, units=TOTAL if wide else 1, expected_s=1 if wide else 20)
        ended.started(moment(id, queue, NOBODY), np.array([0]))
    ended.look(moment(49, jobs([]), NOBODY))
    assert len(ended) == count
    return hindsight, ended


def think(lived: Lived) -> int:
    """Let it look at instances until it has thought; how often it had to."""
    hindsight, ended = lived
    looks = 1
    hindsight.look(moment(50, jobs([]), NOBODY), ended)
    while hindsight._past is not None:
        hindsight.look(moment(50 + looks, jobs([]), NOBODY), ended)
        looks += 1
    return looks


@pytest.mark.usefixtures("soon")
def test_one_rehearsal_a_decision_and_the_best_rules_win() -> None:
    first = FIRST._replace(threshold_s=10, strict_s=20)
    life = lived(first, 30, 3)
    assert think(life) == 1 + 1 + 2 * len(hindsight.THRESHOLDS) + 1
    felt = life[0]._felt
    assert len(felt) == 2 * len(hindsight.THRESHOLDS)
    assert felt[life[0].rules] <= felt[first]
    assert life[0].rules == first or felt[life[0].rules] < hindsight.BETTER * felt[first]


@pytest.mark.usefixtures("soon")
def test_no_threshold_is_tried_beyond_the_longest_wait_under_easy() -> None:
    life = lived(FIRST, 30, 3)
    assert think(life) == 1 + 1 + 2 + 1
    assert {rules.threshold_s for rules in life[0]._felt} == {FIRST.threshold_s}


@pytest.mark.usefixtures("soon")
def test_longer_waits_under_easy_are_not_forgotten() -> None:
    life = lived(FIRST, 30, 3)
    life[0]._most_s = 3_000
    think(life)
    assert {rules.threshold_s for rules in life[0]._felt} == {1_000, 1_500, 2_250}


@pytest.mark.usefixtures("soon")
def test_rules_change_for_a_gain_and_not_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_s(past: object, total: int, rules: Rules) -> object:
        return np.arange(30) + (0 if rules.width == hindsight.WIDTH else 100)

    monkeypatch.setattr(hindsight, "rehearse", start_s)
    life = lived(FIRST, 30, 3)
    think(life)
    assert life[0].rules.width == hindsight.WIDTH
    monkeypatch.setattr(hindsight, "BETTER", 0.0)
    life = lived(FIRST, 30, 3)
    think(life)
    assert life[0].rules == FIRST


@pytest.mark.usefixtures("soon")
def test_rules_under_which_a_job_waits_too_long_are_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_s(past: object, total: int, rules: Rules) -> object:
        wait_s = np.full(30, 100)
        if rules != FIRST:
            wait_s[:] = 0
            wait_s[7] = 1_351
        return np.arange(30) + wait_s

    monkeypatch.setattr(hindsight, "rehearse", start_s)
    life = lived(FIRST, 30, 3)
    think(life)
    assert life[0].rules == FIRST


@pytest.mark.usefixtures("soon")
def test_too_few_jobs_teach_nothing() -> None:
    life = lived(FIRST, 4, 3)
    assert think(life) == 1
    assert life[0].rules == FIRST


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
        patched.setattr(hindsight, "EVERY_S", 4)
        patched.setattr(hindsight, "FEWEST", 2)
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
