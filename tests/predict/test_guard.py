from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cpdispatch.jobs import Job
from cpdispatch.predict import Tables, guard
from cpdispatch.predict.guard import Guard
from cpdispatch.simulator import simulate
from cpdispatch.system import LIMIT, System
from tests.simulator.cases import play, workload

ROWS = [(0, 4, 100, 7), (1, 2, 50, 80), (2, 1, 30, 30)]


class Says:
    """Answers with what a function says, and has nothing to learn."""

    name = "odd"

    def __init__(self, say: Callable[[], Any]) -> None:
        self.say = say

    def predict(self, job: Job, now: int) -> float:
        answer: float = self.say()
        return answer

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""


def fail() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("say", "fault"),
    [
        (fail, "raised ZeroDivisionError"),
        (lambda: math.nan, "NaN"),
        (lambda: math.inf, "infinity"),
        (lambda: -1, "negative"),
        (lambda: None, "no number"),
        (lambda: "7", "no number"),
        (lambda: 1j, "no number"),
        (lambda: True, "no number"),
        (lambda: np.bool_(True), "no number"),
    ],
)
def test_the_requested_time_takes_the_place_of_a_faulty_answer(
    say: Callable[[], Any], fault: str
) -> None:
    sim, _ = play(ROWS, predictor=Says(say))
    assert sim.records.expected_s.tolist() == [100, 50, 30]
    ((kind, count),) = sim.notes.items()
    assert fault in kind
    assert "odd" in kind
    assert count == 3


@pytest.mark.parametrize(
    ("say", "seconds"),
    [(0, 1), (0.3, 1), (12.9, 12), (np.int64(12), 12), (np.float32(12), 12), (10**400, 100)],
)
def test_finite_answers_are_capped_without_a_fault(say: Any, seconds: int) -> None:
    guarded = Guard(Says(lambda: say))
    assert guarded.predict(workload(ROWS).table[0], 0) == seconds
    assert not guarded.faults


def test_a_predictor_that_cannot_learn_is_counted_and_goes_on_predicting() -> None:
    class Dull(Says):
        def learn(self, job: Job, runtime_s: int) -> None:
            raise ValueError

    sim, _ = play(ROWS, predictor=Dull(lambda: 5))
    assert sim.records.expected_s.tolist() == [5, 5, 5]
    ((fault, count),) = sim.notes.items()
    assert fault.startswith("predictor odd, learn raised ValueError (test_guard.py:")
    assert count == 3


def test_the_first_message_of_an_error_is_told_with_its_line() -> None:
    answers = iter((ZeroDivisionError("first"), ZeroDivisionError("second"), SystemExit(0)))

    def ends() -> None:
        raise next(answers)

    sim, _ = play(ROWS, predictor=Says(ends))
    (first, twice), (leaves, once) = sim.notes.items()
    assert "predict raised ZeroDivisionError: first (test_guard.py:" in first
    assert "predict raised SystemExit: 0 (test_guard.py:" in leaves
    assert (twice, once) == (2, 1)


@pytest.mark.parametrize(("live", "said"), [(True, [5, 5, 5, 100, 100]), (False, [5] * 5)])
def test_a_predictor_that_is_slow_too_often_is_asked_no_more_where_a_cluster_waits(
    monkeypatch: pytest.MonkeyPatch, live: bool, said: list[int]
) -> None:
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(guard, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(guard, "MOST_SLOW_CALLS", 3)
    guarded = Guard(Says(lambda: 5), live=live)
    job = workload(ROWS).table[0]
    assert [guarded.predict(job, 0) for _ in range(5)] == said
    assert guarded.faults == {"predictor odd, predict took longer than 1 s": 3 if live else 5}


@pytest.mark.parametrize(
    ("seconds", "slow"), [([0.5, 1.4, 9], 1), ([0.5, 0.5, 1.4], 0), ([3, 0, 0, 0, 2], 1)]
)
def test_learning_is_slow_when_it_is_so_on_average(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], slow: int
) -> None:
    clock = iter([each for took in seconds for each in (0, took)])
    monkeypatch.setattr(guard, "perf_counter", lambda: next(clock))
    guarded = Guard(Says(lambda: 5))
    for _ in seconds:
        guarded.learn(workload(ROWS).table[0], 7)
    assert guarded.faults.total() == slow


def test_a_bound_is_the_requested_time_where_the_predictor_has_none() -> None:
    class Bounds(Says):
        def upper(self, job: Job, now: int) -> float:
            return 2 * job.requested_s if now else 17.5

    job = workload(ROWS).table[0]
    assert Guard(Says(lambda: 5)).upper(job, 0) == 100
    assert [Guard(Bounds(lambda: 5)).upper(job, now) for now in (0, 1)] == [17, 100]


@pytest.mark.parametrize(
    ("say", "bound_s", "fault"),
    [
        (lambda: None, None, ""),
        (lambda: 70, 70, ""),
        (lambda: np.int64(0), 1, ""),
        (lambda: 2**63, LIMIT, ""),
        (lambda: np.int64(-7), None, "bound answered with a negative number"),
        (lambda: True, None, "bound answered with no whole number"),
        (lambda: 7.5, None, "bound answered with no whole number"),
        (fail, None, "bound raised ZeroDivisionError"),
    ],
)
def test_a_faulty_bound_restarts_no_job(
    say: Callable[[], Any], bound_s: int | None, fault: str
) -> None:
    class Bounds(Says):
        def bound(self, job: Job) -> int | None:
            answer: int | None = say()
            return answer

    guarded = Guard(Bounds(lambda: 5))
    assert guarded.bound(workload(ROWS).table[0]) == bound_s
    assert len(guarded.faults) == bool(fault)
    assert all(found.startswith(f"predictor odd, {fault}") for found in guarded.faults)


def test_faults_are_shown_with_the_run() -> None:
    run = simulate(workload(ROWS), System.pool(4), predictor=Says(fail))
    ((fault, count),) = run.about["notes"].items()
    assert fault.startswith("predictor odd, predict raised ZeroDivisionError (test_guard.py:")
    assert count == 3


class Tells(Says):
    """Has tables of its own, or what it says are such."""

    def __init__(self, say: Callable[[], Any]) -> None:
        super().__init__(lambda: 5)
        self.tell = say

    def report(self) -> Tables:
        tables: Tables = self.tell()
        return tables


def test_tables_of_a_predictor_are_kept_with_the_run() -> None:
    tables = {"by week": [{"week": 1, "accuracy": 0.5, "best": None, "worst": "none"}]}
    run = simulate(workload(ROWS), System.pool(4), predictor=Tells(lambda: tables))
    assert run.about["predictor_report"] == tables
    assert run.about["notes"] == {}


def test_numbers_of_numpy_in_a_table_are_kept_as_those_of_python() -> None:
    row = {"week": np.int64(1), "accuracy": np.float64(0.5), "best": np.float32(2), "worst": None}
    guarded = Guard(Tells(lambda: {"by week": [row]}))
    (kept,) = guarded.report()["by week"]
    assert kept == {"week": 1, "accuracy": 0.5, "best": 2.0, "worst": None}
    assert [type(value) for value in kept.values()] == [int, float, float, type(None)]
    assert not guarded.faults


@pytest.mark.parametrize("tables", [None, [1], {"a": 3}, {"a": [{"b": object()}]}, {1: []}])
def test_a_report_that_is_no_tables_is_a_fault(tables: Any) -> None:
    run = simulate(workload(ROWS), System.pool(4), predictor=Tells(lambda: tables))
    assert "predictor_report" not in run.about
    ((fault, count),) = run.about["notes"].items()
    assert "report answered with no tables" in fault
    assert count == 1


def test_a_report_that_fails_is_a_fault() -> None:
    guarded = Guard(Tells(fail))
    assert guarded.report() == {}
    ((fault, count),) = guarded.faults.items()
    assert fault.startswith("predictor odd, report raised ZeroDivisionError (test_guard.py:")
    assert count == 1


def test_the_time_of_all_calls_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.25, 1.0, 1.5])
    monkeypatch.setattr(guard, "perf_counter", lambda: next(clock))
    guarded, job = Guard(Says(lambda: 5)), workload(ROWS).table[0]
    guarded.predict(job, 0)
    guarded.learn(job, 5)
    assert guarded.seconds == 0.75
