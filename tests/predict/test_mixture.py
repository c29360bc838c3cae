"""The mixture believes its predictor as far as that has been right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.jobs import UNKNOWN, Job, Workload
from cpdispatch.predict.conformance import RULES, check, drive, events, sample
from cpdispatch.predict.forest import FEWEST
from cpdispatch.predict.guard import Guard
from cpdispatch.predict.last import Last2
from cpdispatch.predict.mixture import SOURCES, UPPER_SOURCES, Mixture, Weights
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.best.test_best import Guess, cases
from tests.effort import examples

JOB = Job(
    id=1, submit_s=0, units=1, request=(1,), requested_s=3600, expected_s=3600, upper_s=3600,
    ewt_s=1, user=UNKNOWN, group=-1, queue=-1, executable=-1, partition=-1,
)  # fmt: skip
REQUESTED, SHARE, LAST, PREDICTOR = range(len(SOURCES))


class Says:
    """Predicts what a function says; it states an upper duration 1.5 times as long."""

    name = "says"

    def __init__(self, said: Callable[[Job], float]) -> None:
        self.said = said

    def predict(self, job: Job, now: int) -> float:
        return self.said(job)

    def upper(self, job: Job, now: int) -> float:
        return 1.5 * self.said(job)

    def learn(self, job: Job, runtime_s: int) -> None:
        pass


def lie(job: Job) -> float:
    """A duration that has nothing to do with the job's."""
    return 10.0 ** (1 + job.id * 7 % 4)


def nobody(number: int) -> int:
    return UNKNOWN


def one_of_five(number: int) -> int:
    return number % 5


def jobs(count: int, first: int = 0, user: Callable[[int], int] = nobody) -> list[tuple[Job, int]]:
    """Jobs and their runtimes, which are between 10 s and 10 hours and have no order."""
    draw = np.random.default_rng(first)
    runtime_s = np.exp(draw.uniform(np.log(10), np.log(36_000), count)).astype(int).tolist()
    return [
        (replace(JOB, id=id, submit_s=10**6 * id, requested_s=runtime, user=user(id)), runtime)
        for id, runtime in enumerate(runtime_s, first)
    ]


def teach(mixture: Mixture, taught: list[tuple[Job, int]]) -> None:
    for job, runtime_s in taught:
        mixture.predict(job, job.submit_s)
        mixture.upper(job, job.submit_s)
        mixture.learn(job, runtime_s)


def asked(mixture: Mixture, some: list[tuple[Job, int]]) -> tuple[list[float], list[float]]:
    """Expected and upper durations, seconds."""
    return (
        [mixture.predict(job, job.submit_s) for job, _ in some],
        [mixture.upper(job, job.submit_s) for job, _ in some],
    )


def test_until_some_jobs_have_ended_it_says_the_requested_time() -> None:
    mixture = Mixture(Says(lambda job: 100))
    some = [(replace(job, requested_s=5000), 100) for job, _ in jobs(FEWEST)]
    teach(mixture, some[:-1])
    assert asked(mixture, [(JOB, 0)]) == ([3600], [3600])
    teach(mixture, some[-1:])
    assert mixture.predict(JOB, 0) < 110


@pytest.mark.parametrize("user", [nobody, one_of_five])
def test_with_exact_requests_the_order_is_theirs_and_they_are_certain(
    user: Callable[[int], int],
) -> None:
    mixture, later = Mixture(Says(lie)), jobs(100, 10_000, user)
    requested_s = np.array([job.requested_s for job, _ in later])
    teach(mixture, jobs(FEWEST, user=user))
    expected_s, upper_s = (np.array(each) for each in asked(mixture, later))
    np.testing.assert_allclose(expected_s, requested_s, rtol=0.02, atol=1)
    np.testing.assert_allclose(upper_s, requested_s, rtol=0.02, atol=1)
    teach(mixture, jobs(1500, 20_000, user))
    expected_s, upper_s = (np.array(each) for each in asked(mixture, later))
    np.testing.assert_allclose(expected_s, requested_s, rtol=1e-5, atol=0.5)
    np.testing.assert_allclose(upper_s, requested_s, rtol=1e-5, atol=0.5)


def loose(some: list[tuple[Job, int]]) -> list[tuple[Job, int]]:
    """The same jobs, which request 10 hours and something."""
    return [(replace(job, requested_s=36_000 + job.id % 7), runtime) for job, runtime in some]


def test_a_predictor_that_is_right_is_believed() -> None:
    truth = {job.id: runtime for job, runtime in jobs(FEWEST) + jobs(100, 10_000)}
    mixture, later = Mixture(Says(lambda job: truth[job.id])), loose(jobs(100, 10_000))
    teach(mixture, loose(jobs(FEWEST)))
    expected_s, upper_s = (np.array(each) for each in asked(mixture, later))
    runtime_s = np.array([runtime for _, runtime in later])
    np.testing.assert_allclose(expected_s, runtime_s, rtol=0.02, atol=1)
    assert (upper_s < 1.1 * runtime_s).all()


def test_a_predictor_that_lies_is_outweighed_within_fifty_jobs() -> None:
    some = [(job, 60 * 5**job.user) for job, _ in loose(jobs(50, user=one_of_five))]
    mixture = Mixture(Says(lie))
    teach(mixture, some)
    assert mixture.weights.shares()[PREDICTOR] < 0.01
    assert mixture.upper_weights.shares()[-1] < 0.1


def test_a_predictor_that_begins_to_lie_is_outweighed_although_it_was_right_for_long() -> None:
    truth = {job.id: runtime for job, runtime in jobs(5000)}
    mixture = Mixture(Says(lambda job: truth.get(job.id, lie(job))))
    teach(mixture, loose(jobs(5000)))
    assert mixture.weights.shares()[PREDICTOR] > 0.99
    teach(mixture, jobs(600, 20_000))
    assert mixture.weights.shares()[PREDICTOR] < 0.01


def test_where_nobody_is_known_requests_keep_their_order() -> None:
    mixture, later = Mixture(Says(lambda job: job.requested_s)), jobs(100, 10_000)
    teach(mixture, [(job, 1 + runtime // (2 + job.id % 3)) for job, runtime in jobs(FEWEST)])
    by_request = np.argsort([job.requested_s for job, _ in later])
    for said in asked(mixture, later):
        assert (np.diff(np.array(said)[by_request]) >= 0).all()


def test_a_users_share_of_requested_times_is_the_users_own() -> None:
    mixture, (job, _) = Mixture(Says(lie)), jobs(1, 10_000)[0]
    tenth_or_all = [
        (replace(job, user=job.id % 2), runtime if job.id % 2 else -(-runtime // 10))
        for job, runtime in jobs(FEWEST)
    ]
    teach(mixture, tenth_or_all)
    one = replace(job, requested_s=10_000)
    frugal, exact = (mixture.predict(replace(one, user=user), 0) for user in (0, 1))
    assert frugal < 2_000 < 5_000 < exact


def test_jobs_without_a_user_have_the_share_of_all_jobs_and_are_not_one_user() -> None:
    mixture, (job, runtime_s) = Mixture(Says(lie)), jobs(1, 10_000)[0]
    one = replace(job, requested_s=10_000)
    tenth = [(replace(each, requested_s=10 * runtime), runtime) for each, runtime in jobs(FEWEST)]
    teach(mixture, tenth)
    before_s = mixture.predict(one, 0)
    assert 900 < before_s < 1_100
    teach(mixture, [(job, runtime_s)])  # the requested time is exact for once
    assert before_s < mixture.predict(one, 0) < 1.2 * before_s


def test_the_upper_duration_is_kept_to_by_about_six_jobs_of_ten() -> None:
    draw = np.random.default_rng(0)
    mixture = Mixture(Last2())
    some = [
        (replace(job, requested_s=50_000), int(300 * draw.lognormal())) for job, _ in jobs(1500)
    ]
    teach(mixture, some[:1000])
    kept = 0
    for job, runtime_s in some[1000:]:
        kept += runtime_s <= mixture.upper(job, job.submit_s)
        teach(mixture, [(job, runtime_s)])
    assert 0.58 < kept / 500 < 0.68


def test_what_counts_is_what_was_said_at_the_submission() -> None:
    said = [100.0]
    mixture = Mixture(Says(lambda job: said[0]))
    mixture.predict(JOB, JOB.submit_s)
    said[0] = 3600.0
    mixture.predict(JOB, JOB.submit_s + 500)
    mixture.learn(JOB, 3600)
    assert mixture.weights.losses[PREDICTOR] > 10 > 1 > mixture.weights.losses[REQUESTED]


def test_a_job_that_it_was_not_asked_about_changes_no_weight() -> None:
    mixture = Mixture(Says(lie))
    mixture.learn(JOB, 10)
    assert mixture.weights == Weights.of(len(SOURCES))


def test_jobs_of_a_few_seconds_are_alike() -> None:
    mixture = Mixture(Says(lambda job: 1))
    mixture.predict(JOB, JOB.submit_s)
    mixture.learn(JOB, 9)
    assert mixture.weights.losses[PREDICTOR] < 1 < mixture.weights.losses[REQUESTED]


def test_users_whose_jobs_last_equally_long_are_known_by_their_last_two() -> None:
    mixture = Mixture(Says(lie))
    some = [
        (replace(job, requested_s=runtime + 5_000), 50 * 9**job.user)
        for job, runtime in jobs(FEWEST, user=one_of_five)
    ]
    teach(mixture, some)
    assert mixture.weights.shares()[LAST] > 0.7


class Hears(Says):
    """Hears of starts and ends, and is asked about jobs that run."""

    def __init__(self) -> None:
        super().__init__(lie)
        self.started: list[tuple[int, int]] = []
        self.learned: list[tuple[int, int]] = []

    def learn(self, job: Job, runtime_s: int) -> None:
        self.learned.append((job.id, runtime_s))

    def start(self, job: Job, now: int) -> None:
        self.started.append((job.id, now))

    def refresh(self, job: Job, elapsed_s: int) -> float:
        return 2 * elapsed_s

    def refresh_upper(self, job: Job, elapsed_s: int) -> float:
        return 3 * elapsed_s


def test_its_predictor_hears_of_starts_and_ends_and_is_asked_about_jobs_that_run() -> None:
    hears = Hears()
    mixture = Mixture(hears)
    mixture.start(JOB, 5)
    mixture.learn(JOB, 7)
    assert (hears.started, hears.learned) == ([(JOB.id, 5)], [(JOB.id, 7)])
    assert (mixture.refresh(JOB, 50), mixture.refresh_upper(JOB, 50)) == (100, 150)
    alone = Mixture(Says(lie))
    alone.start(JOB, 5)
    assert alone.refresh(JOB, 50) == alone.refresh_upper(JOB, 50) == JOB.requested_s


def test_what_a_job_does_not_exceed_is_asked_anew_when_it_has_outlived_a_test() -> None:
    assert Guard(Mixture(Hears())).outlived(JOB, 50, 60, 70) == (100, 150)
    asked_once = Guard(Says(lie))
    assert asked_once.outlived(JOB, 50, 60, 70) == (60, 70)
    assert asked_once.outlived(JOB, 65, 60, 70) == (JOB.requested_s, JOB.requested_s)


@pytest.mark.parametrize("predictor", [Mixture(Last2()), Mixture(Says(lie))])
def test_its_report_says_what_each_source_weighs(predictor: Mixture) -> None:
    teach(predictor, jobs(20))
    report: dict[str, Any] = predictor.report()
    rows, uppers = report.values()
    name = predictor.predictor.name
    assert [row["source"] for row in rows] == [*SOURCES[:-1], name]
    assert [row["source"] for row in uppers] == [*UPPER_SOURCES[:-1], name][: len(uppers)]
    for table in (rows, uppers):
        assert sum(row["weight"] for row in table) == pytest.approx(1)


@pytest.mark.parametrize("rule", RULES)
def test_it_conforms_around_a_predictor_that_states_no_upper_duration(rule: str) -> None:
    check(lambda workload: Mixture(Last2()), rule)


def test_it_says_at_least_a_second_and_no_more_than_requested() -> None:
    log = sample()
    mixture = Mixture(Last2())
    drive(mixture, log, events(log))
    for job in log.table:
        for now in (job.submit_s, job.submit_s + 100):
            assert 1 <= mixture.predict(job, now) <= mixture.upper(job, now) <= job.requested_s


@pytest.mark.parametrize("inner", [Guess, Last2])
@settings(max_examples=examples(60))
@given(case=cases(), correction=st.sampled_from(["minimal", "incremental"]))
def test_compiled_replays_are_those_of_the_general_loop(
    inner: Callable[[], Any], case: tuple[Workload, System], correction: str
) -> None:
    first, second = (
        simulate(
            *case, Bounded(Best(long_s=4, keep=0.3)), predictor=Mixture(inner()),
            correction=correction, compiled=compiled,
        )
        for compiled in (True, False)
    )  # fmt: skip
    assert (first.about["compiled"], second.about["compiled"]) == (True, False)
    assert verify.run(first.jobs, case[1]) == []
    for column in ("start", "end", "expected_s"):
        assert first.job_table[column].to_pylist() == second.job_table[column].to_pylist()
