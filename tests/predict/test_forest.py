from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("sklearn")

from cpdispatch import predict
from cpdispatch.errors import UsageError
from cpdispatch.jobs import Job
from cpdispatch.predict import Cautious, Refreshing, Restarting, Watching
from cpdispatch.predict import forest as module
from cpdispatch.predict.forest import FEWEST, Errors, Forest
from cpdispatch.simulator import Simulation, simulate
from cpdispatch.system import System
from cpdispatch.workloads import lublin, read
from cpdispatch.workloads.fit import fit

JOB = Job(
    id=1, submit_s=0, units=4, request=(2,), requested_s=10_000, expected_s=10_000,
    upper_s=10_000, ewt_s=1, user=7, group=-1, queue=2, executable=5, partition=-1,
)  # fmt: skip
DAY_S = 86_400


def job(**values: Any) -> Job:
    return replace(JOB, **values)


def taught(jobs: int = 2 * FEWEST, **settings: Any) -> Forest:
    """A forest that has seen users 0 to 3, whose jobs run some 10, 100, 1000, 10,000 s."""
    forest, draw = Forest(**settings), np.random.default_rng(1)
    for id in range(jobs):
        one = job(id=id, submit_s=20_000 * id, user=id % 4)
        forest.predict(one, one.submit_s)
        forest.start(one, one.submit_s)
        forest.learn(one, int(10 ** (1 + id % 4) * draw.uniform(0.5, 1)))
    return forest


FOREST = taught()
LATER_S = 20_000 * 2 * FEWEST


def test_it_keeps_to_all_protocols() -> None:
    assert all(isinstance(FOREST, each) for each in (Watching, Restarting, Refreshing, Cautious))


@pytest.mark.parametrize("user", range(4))
def test_users_are_told_apart(user: int) -> None:
    one = job(id=10**6 + user, submit_s=LATER_S, user=user)
    most_s = 10 ** (1 + user)
    assert most_s / 2 <= FOREST.predict(one, LATER_S) <= FOREST.upper(one, LATER_S) <= 1.3 * most_s


def test_a_job_that_is_killed_counts_among_the_queued_ones_again() -> None:
    forest, one = Forest(), job(id=1, submit_s=0)
    forest.predict(one, 0)
    user = forest._histories.get((0, one.user))
    for _ in range(2):
        forest.start(one, 5)
        assert (user.queued, user.running) == (0, 1)
        forest.restart(one, 9)
        assert (user.queued, user.running) == (1, 0)
    forest.restart(one, 9)
    forest.start(one, 20)
    forest.learn(one, 30)
    assert (user.queued, user.running, user.end_s) == (0, 0, 50)


def test_a_job_that_leaves_counts_no_more() -> None:
    forest, waits, runs = Forest(), job(id=1, submit_s=0), job(id=2, submit_s=0)
    for one in (waits, runs):
        forest.predict(one, 0)
    forest.start(runs, 5)
    user = forest._histories.get((0, runs.user))
    assert (user.queued, user.running) == (1, 1)
    for one in (waits, runs, runs):
        forest.leave(one)
    assert (user.queued, user.running, len(forest._asked)) == (0, 0, 0)


def test_everything_is_the_requested_time_before_enough_jobs_have_ended() -> None:
    forest, one = taught(FEWEST - 1), job(id=10**6, submit_s=LATER_S)
    said = forest.predict(one, LATER_S), forest.upper(one, LATER_S), forest.refresh(one, 5)
    assert said == (10_000, 10_000, 10_000)


def test_a_forest_grows_when_enough_jobs_have_ended_and_then_every_week(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown: list[int] = []

    def grow(features: Any, runtime_s: Any, seed: int) -> Any:
        grown.append(len(runtime_s))
        return FOREST._trees

    forest = Forest()
    monkeypatch.setattr(module, "grow", grow)
    for id in range(FEWEST + 15):
        one = job(id=id, submit_s=id * DAY_S)
        forest.predict(one, one.submit_s)
        forest.learn(one, 10)
    assert grown == [FEWEST, FEWEST + 7, FEWEST + 14]


@given(st.integers(0, 10**6), st.integers(0, 4))
def test_a_refreshed_duration_is_longer_than_what_has_elapsed(elapsed_s: int, user: int) -> None:
    one = job(id=10**6 + user, submit_s=LATER_S, user=user)
    assert FOREST.refresh(one, elapsed_s) > elapsed_s
    assert FOREST.refresh(one, elapsed_s) <= FOREST.refresh(one, elapsed_s + 1)
    assert FOREST.refresh(one, elapsed_s) <= FOREST.refresh_upper(one, elapsed_s)


def test_a_running_job_is_expected_to_be_as_long_as_the_longer_ones_like_it() -> None:
    forest = taught()
    one = job(id=10**6, submit_s=LATER_S, user=2)
    median_s = forest.predict(one, LATER_S)
    longer_s = forest.refresh(one, int(median_s))
    assert median_s < longer_s <= 1000


def test_a_job_longer_than_all_like_it_is_expected_to_use_its_requested_time() -> None:
    one = job(id=10**6, submit_s=LATER_S, user=0)
    assert FOREST.refresh(one, 9_999) == 10_000
    assert FOREST.refresh(one, 12_000) == 12_001
    assert FOREST.refresh_upper(one, 9_999) == 10_000
    assert FOREST.refresh_upper(one, 12_000) == 12_001


def test_a_job_that_waits_is_told_anew_by_what_has_ended_since() -> None:
    forest = taught()
    one = job(id=10**6, submit_s=LATER_S, user=99)
    at_first = forest.predict(one, LATER_S)
    others = [replace(one, id=one.id + k, submit_s=LATER_S) for k in range(1, 30)]
    for other in others:
        forest.predict(other, LATER_S)
        forest.start(other, LATER_S)
    for other in others:
        forest.learn(other, 9_000)
    assert forest.predict(one, LATER_S) == at_first
    assert forest.predict(one, LATER_S + 9_000) > 10 * at_first
    at_submission, now = (forest._now(one, LATER_S + later_s) for later_s in (0, 9_000))
    assert at_submission[7:10].tolist() == now[7:10].tolist() == [20, 0, 0]
    assert now[10:].tolist() != at_submission[10:].tolist()


def test_jobs_are_counted_as_queued_and_running_until_they_end_or_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OPEN", 3)
    forest = Forest()
    history = []
    for id in range(5):
        forest.predict(job(id=id), 0)
        forest.predict(job(id=id), 5)
        forest.start(job(id=id), 8) if id % 2 else None
        one = forest._histories.get((0, JOB.user))
        assert one is not None
        history.append((one.queued, one.running))
    assert history == [(1, 0), (1, 1), (2, 1), (1, 2), (2, 1)]
    for id in (2, 3, 4):
        forest.learn(job(id=id), 9)
        forest.predict(job(id=id), 99)
    assert (one.queued, one.running, one.jobs) == (0, 0, 3)


def test_its_features_are_those_of_the_submission_when_it_learns() -> None:
    forest = Forest()
    forest.predict(job(), 0)
    asked = forest._asked.get(1)
    assert asked is not None
    features = asked.features.copy()
    forest.predict(job(id=2), 0)
    forest.learn(job(id=2), 30)
    forest.learn(job(), 40)
    ended = forest._ended.get(1)
    assert ended is not None
    np.testing.assert_array_equal(ended.features, features)
    assert features[7:10].tolist() == [20, 0, 0]
    assert ended.runtime_s == 40


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60), st.floats(0.05, 0.95))
def test_errors_are_those_of_the_jobs_that_ended_last(errors: list[float], level: float) -> None:
    known = Errors()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCORES", 20)
        for error in errors:
            known.add(error)
    assert known.ascending == sorted(errors[-20:])
    share = np.mean(np.array(errors[-20:]) <= known.quantile(level))
    rank_exists = level * (len(known.ascending) + 1) <= len(known.ascending)
    assert share >= level if rank_exists else known.quantile(level) == 0


def test_the_upper_quantile_is_moved_by_how_far_the_last_jobs_were_beyond_it() -> None:
    forest = taught()
    one = job(id=10**6, submit_s=LATER_S, user=2)
    before = forest.upper(one, LATER_S)
    corrected = forest._errors.quantile(forest.level)
    for _ in range(module.SCORES):
        forest._errors.add(log(3))
    assert forest.upper(one, LATER_S) == pytest.approx(3 * before / exp(corrected))


@pytest.mark.parametrize("level", [0.0, 1.0, 1.7])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        Forest(level=level)


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UsageError, match=r"needs sklearn, .* pip install 'cpdispatch\[learn\]'"):
        Forest()


def test_nothing_is_imported_or_compiled_until_a_replay_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown: list[int] = []
    monkeypatch.setattr(module, "grow", lambda some, runtimes, seed: grown.append(seed))
    monkeypatch.setattr(module, "quantiles", lambda *given: None)
    made = predict.make("mixture", lublin.generate(2, 0), 5)
    assert grown == []
    predict.warm_up(made)
    assert grown == [5]


class Watched(Forest):
    """Keeps what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.median_s: dict[int, float] = {}
        self.upper_s: dict[int, float] = {}

    def predict(self, job: Job, now: int) -> float:
        self.median_s[job.id] = super().predict(job, now)
        self.upper_s[job.id] = super().upper(job, now)
        return self.median_s[job.id]


@pytest.mark.log
def test_on_a_log_the_upper_quantile_holds_and_the_median_beats_the_users_last_two(
    trace: Callable[[str], Path],
) -> None:
    system, said = System.pool(100), Watched()
    whole = fit(read(trace("KTH-SP2-1996-2"), "strong"), system)
    log = whole.take(np.arange(6_000))
    runs = [
        simulate(log, system, "easy-fcfs-spf", predictor=each, correction="incremental")
        for each in (said, "last2")
    ]
    upper_s, median_s = (
        np.array([by_id[id] for id in log.table.id.tolist()])
        for by_id in (said.upper_s, said.median_s)
    )
    late = slice(1000, None)
    assert 0.57 <= np.mean(log.runtime_s[late] <= upper_s[late]) <= 0.63
    errors = [np.abs(run.jobs["expected_s"] - log.runtime_s).mean() for run in runs]
    assert errors[0] < 0.95 * errors[1]
    assert (upper_s >= median_s).all()


@pytest.mark.parametrize("compiled", [True, False])
def test_what_it_calls_is_compiled_before_a_replay_begins(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, system = fit(lublin.generate(10, 0, processors=8), System.pool(8)), System.pool(8)
    warm: list[Forest] = []
    monkeypatch.setattr(Forest, "warm_up", lambda forest: warm.append(forest))
    simulate(workload, system, "easy", predictor="forest", compiled=compiled)
    Simulation(workload, system, predictor="forest")
    assert len(warm) == 2
