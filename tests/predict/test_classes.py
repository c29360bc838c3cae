from __future__ import annotations

import copy
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import predict, verify
from cpdispatch.errors import UsageError
from cpdispatch.jobs import UNKNOWN, Job
from cpdispatch.predict import Bounding, classes
from cpdispatch.predict.classes import (
    CALENDAR,
    FEATURES,
    Classes,
    Tally,
    grown_together,
    share_of_small,
    total,
    train,
)
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from cpdispatch.workloads import read
from cpdispatch.workloads.fit import fit
from tests.simulator.cases import workload

HOUR_S = 3600


def job(id: int, submit_s: int, user: int, units: int = 1, requested_s: int = 8 * HOUR_S) -> Job:
    return Job(
        id, submit_s, units, (1,), requested_s, requested_s, requested_s, 1, user, -1, -1, -1, -1
    )


def submitted(number: int) -> tuple[Job, int]:
    """A job an hour: of users 1 and 2 in turn, small ones and large ones; no two run as long."""
    user = 1 + number % 2
    return job(number, number * HOUR_S, user), number % 60 + (60 if user == 1 else 6000)


def taught(hours: int, predictor: Classes | None = None) -> Classes:
    known = Classes() if predictor is None else predictor
    for number in range(hours):
        asked, runtime_s = submitted(number)
        known.predict(asked, asked.submit_s)
        known.learn(asked, runtime_s)
    return known


@pytest.fixture(scope="module")
def fortnight() -> Classes:
    pytest.importorskip("sklearn")
    return taught(14 * 24 + 5)


NEXT_S = 15 * 24 * HOUR_S


def test_until_a_week_has_passed_every_job_is_expected_to_take_its_requested_time() -> None:
    known = taught(7 * 24 - 5)
    asked = job(10**6, NEXT_S, 1)
    assert known.predict(asked, NEXT_S) == asked.requested_s
    assert known.bound(asked) is None
    assert known.weeks == {}
    assert known.importance == {}


def test_the_last_jobs_may_all_be_large() -> None:
    pytest.importorskip("sklearn")
    known = taught(7 * 24 - 10, Classes(window=8))
    for number in range(7 * 24 - 10, 7 * 24 + 20):
        known.learn(job(number, number * HOUR_S, 2), 6000)
    assert known._forest is None


@pytest.mark.parametrize("seed", [500_000_000, 2**31 - 1])
def test_every_seed_grows_forests(seed: int) -> None:
    pytest.importorskip("sklearn")
    assert taught(14 * 24 + 5, Classes(seed=seed))._forest is not None


def test_small_jobs_are_expected_to_take_the_divider_and_large_ones_their_requested_time(
    fortnight: Classes,
) -> None:
    known = copy.deepcopy(fortnight)
    small, large = job(10**6, NEXT_S, 1), job(10**6 + 1, NEXT_S, 2)
    assert isinstance(known, Bounding)
    assert 60 <= known.divider_s < 6000
    assert known.predict(small, NEXT_S) == known.bound(small) == known.divider_s
    assert known.predict(large, NEXT_S) == large.requested_s
    assert known.bound(large) is None


def test_a_small_job_is_expected_to_end_before_its_requested_time(fortnight: Classes) -> None:
    known = copy.deepcopy(fortnight)
    brief = job(10**6, NEXT_S, 1, requested_s=known.divider_s)
    assert known.predict(brief, NEXT_S) == known.divider_s - 1
    assert known.bound(brief) == known.divider_s


def test_a_job_keeps_the_class_and_the_bound_of_its_submission(fortnight: Classes) -> None:
    known = copy.deepcopy(fortnight)
    asked = job(10**6, NEXT_S, 1)
    known.predict(asked, NEXT_S)
    before = known.bound(asked)
    for number in range(200):
        known.learn(job(2 * 10**6 + number, NEXT_S, 1), 5000)
    assert known.divider_s != before
    assert known.bound(asked) == before


def test_asking_changes_no_answer(fortnight: Classes) -> None:
    quiet, curious = copy.deepcopy(fortnight), copy.deepcopy(fortnight)
    for number in range(14 * 24 + 5, 25 * 24):
        asked, runtime_s = submitted(number)
        answers = [
            *[curious.predict(asked, asked.submit_s) for _ in range(3)],
            quiet.predict(asked, asked.submit_s),
        ]
        assert len(set(answers)) == 1
        for other in (number - 1, number + 1):
            curious.predict(submitted(other)[0], asked.submit_s)
        for known in (quiet, curious):
            known.learn(asked, runtime_s)
    assert np.array_equal(quiet._features, curious._features)


def test_what_a_job_is_taken_for_depends_on_jobs_that_have_ended_alone() -> None:
    pytest.importorskip("sklearn")
    known, deaf = taught(8 * 24), taught(8 * 24)
    for number in range(50):
        known.predict(job(10**6 + number, NEXT_S, 3), NEXT_S)
    asked = job(2 * 10**6, NEXT_S, 3)
    assert known._look_at(asked).features.tolist() == deaf._look_at(asked).features.tolist()


def test_the_history_of_a_user_is_the_last_three_classes_and_the_share_of_small() -> None:
    known = Classes()
    for number, runtime_s in enumerate((100, 50, 200, 300, 10)):
        known.learn(job(number, 0, 1), runtime_s)
    known.learn(job(5, 0, 2), 1)
    features = dict(zip(FEATURES, known._look_at(job(6, 0, 1)).features.tolist(), strict=True))
    of_processors = [v for name, v in features.items() if name.endswith("same processors")]
    # Dividers: 100, 50, 100, 100, 100.
    assert of_processors == pytest.approx([1.0, 0.0, 0.0, 3 / 5])
    others = known._look_at(job(7, 0, 1, units=2)).features.tolist()
    assert others[4:8] == [-1.0] * 4
    assert others[8:12] == pytest.approx([1.0, 0.0, 0.0, 3 / 5])


def test_a_job_without_a_user_has_no_history(fortnight: Classes) -> None:
    known = copy.deepcopy(fortnight)
    for number in range(5):
        known.learn(job(10**6 + number, NEXT_S, UNKNOWN), 60)
    asked = job(10**6 + 9, NEXT_S, UNKNOWN)
    assert known._look_at(asked).features[4:].tolist() == [-1.0] * 12
    assert known.predict(asked, NEXT_S) in (known.divider_s, asked.requested_s)


def test_the_exported_forest_votes_as_scikit_learns_does() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(5)
    features = rng.integers(-1, 9, (600, len(FEATURES))).astype(np.float32)
    small = features[:, 0] + rng.integers(0, 4, 600) > 6
    forest = grown_together([train((features, small), seed) for seed in (3, 4)])
    theirs = [
        ensemble.RandomForestClassifier(
            classes._TREES, min_samples_leaf=classes._LEAF, random_state=seed
        )
        .fit(features, small)
        .predict_proba(features)[:, 1]
        for seed in (3, 4)
    ]
    ours = [share_of_small(forest, row) for row in features]
    assert ours == pytest.approx(np.mean(theirs, axis=0).tolist())
    assert sum(forest.importance) == pytest.approx(1.0)
    assert int(forest.importance.argmax()) == 0


def test_jobs_of_one_class_alone_make_no_forest() -> None:
    known = Classes()
    for number in range(9 * 24):
        known.learn(job(number, number * HOUR_S, 1), 0)
    asked = job(10**6, NEXT_S, 1)
    assert known.predict(asked, NEXT_S) == asked.requested_s


def test_a_copy_or_a_pickle_goes_on_as_the_original_and_the_seed_decides(
    fortnight: Classes,
) -> None:
    twins = [copy.deepcopy(fortnight) for _ in range(2)]
    twins.append(pickle.loads(pickle.dumps(fortnight)))
    answers = []
    for known in twins:
        taught(30, known)
        answers.append([known.predict(*probe) for probe in probes()])
        assert known._forest is not None
    assert answers[0] == answers[1] == answers[2]
    other = taught(14 * 24 + 5, Classes(seed=1))
    assert other._forest is not None
    assert fortnight._forest is not None
    assert not np.array_equal(other._forest.importance, fortnight._forest.importance)


def test_with_fewer_votes_more_jobs_are_small(fortnight: Classes) -> None:
    eager, strict = copy.deepcopy(fortnight), copy.deepcopy(fortnight)
    eager.votes, strict.votes = 0.0, 1.0
    some, many, none = (
        {asked.id for asked, _ in probes() if known.bound(asked) is not None}
        for known in (fortnight, eager, strict)
    )
    assert some <= many
    assert len(many) > 20
    assert not none


def probes() -> list[tuple[Job, int]]:
    return [(job(10**6 + n, NEXT_S + n * HOUR_S, 1 + n % 3, 1 + n % 2), NEXT_S) for n in range(40)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 600_000), min_size=1, max_size=40))
def test_the_divider_is_the_median_of_all_runtimes_to_a_hundredth(runtimes: list[int]) -> None:
    known = Classes()
    for number, runtime_s in enumerate(runtimes):
        known.learn(job(number, 0, 1), runtime_s)
        median = sorted(runtimes[: number + 1])[number // 2]
        assert max(median, 1) <= known.divider_s <= 1.01 * max(median, 1)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "WINDOW", 50)
    monkeypatch.setattr(classes, "REMEMBERED", 20)
    known = Classes()
    for number in range(300):
        known.predict(job(number, 0, number), 0)
        known.learn(job(number + 1000, 0, number), 1000 - number)
    assert len(known._asked) == 20
    assert [len(of_key) for of_key in known._histories] == [20, 20, 20]
    assert known._features.shape == (50, len(FEATURES))


def test_a_week_tells_how_its_jobs_were_classified(fortnight: Classes) -> None:
    first, *others = fortnight.weeks.values()
    assert min(fortnight.weeks) == 1
    assert first.jobs + sum(week.jobs for week in others) == total(fortnight.weeks.values()).jobs
    # The last jobs of user 1 are all among the small ones, and his alone.
    assert total(fortnight.weeks.values()).accuracy > 0.95
    tally = Tally(9, small_as_small=6, large_as_small=2, small_as_large=1, large_as_large=11)
    assert (tally.jobs, tally.accuracy) == (20, 0.85)
    assert (tally.precision, tally.recall) == (6 / 8, 6 / 7)
    assert tally.large_taken_for_small == 0.1
    assert math.isnan(Tally().accuracy)
    assert sum(fortnight.importance.values()) == pytest.approx(1.0)
    assert set(fortnight.importance) == set(FEATURES)


def test_the_report_has_all_weeks_and_the_features_by_importance(fortnight: Classes) -> None:
    weeks, features = fortnight.report().values()
    assert (weeks[0]["week"], weeks[0]["divider s"]) == ("all", None)
    assert weeks[-1]["divider s"] == max(fortnight.weeks.items())[1].divider_s
    assert weeks[0]["jobs"] == sum(tally.jobs for tally in fortnight.weeks.values())
    assert [row["accuracy"] for row in weeks[1:]] == [
        tally.accuracy for _, tally in sorted(fortnight.weeks.items())
    ]
    shares = [row["importance"] for row in features]
    assert shares == sorted(fortnight.importance.values(), reverse=True)
    assert Classes().report() == {"classes by week": [], "features": []}


def test_the_clairvoyant_classifier_takes_each_job_for_what_it_is_by_the_divider() -> None:
    runtimes_s = [100, 50, 200, 101, 100]
    known = Classes(runtimes_s=dict(enumerate(runtimes_s)))
    told = []
    for number, runtime_s in enumerate(runtimes_s):
        asked = job(number, number, 1)
        told.append((known.divider_s, known.predict(asked, number), known.bound(asked)))
        known.learn(asked, runtime_s)
    requested_s = 8 * HOUR_S
    # Before a job has ended there is no divider. The median of what has ended is 100, 50, 100, 100.
    assert told[0] == (0, requested_s, None)
    for (divider_s, expected_s, bound_s), small in zip(
        told[1:], [True, False, False, True], strict=True
    ):
        assert (expected_s, bound_s) == ((divider_s, divider_s) if small else (requested_s, None))
    week = total(known.weeks.values())
    assert (week.jobs, week.accuracy, week.large_taken_for_small) == (4, 1.0, 0.0)
    assert known.importance == {}
    assert Classes(runtimes_s={0: 0}).bound(job(0, 0, 1)) is None


def test_the_clairvoyant_classifier_needs_no_library_and_kills_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    log = workload([(n * 7, 1, 500, 1 + n * 37 % 90) for n in range(80)])
    known = predict.make("class:clairvoyant=on", log)
    assert known.name == "class:clairvoyant=on"
    run = simulate(
        log, System.pool(2), "easy-small+spf-small+spf", predictor=known, idempotent=True
    )
    assert verify.run(run.jobs, System.pool(2)) == []
    assert isinstance(known, Classes)
    found = total(known.weeks.values())
    assert found.small_as_small > 10
    assert found.large_as_large > 10
    assert run.jobs.lost_start is None or not (run.jobs.lost_start >= 0).any()


@pytest.mark.parametrize(
    ("day", "expected"),
    [("2024-02-29", (29, 9, 2, 1)), ("2025-12-31", (31, 1, 12, 4)), ("1970-07-01", (1, 27, 7, 3))],
)
def test_the_calendar_is_that_of_the_submission_on_the_wall(
    day: str, expected: tuple[int, ...]
) -> None:
    start_s = int(np.datetime64(day, "s").astype(np.int64))
    known = Classes(calendar_s=start_s - 10 * HOUR_S)
    assert known.features == (*FEATURES, *CALENDAR)
    for submit_s in (10 * HOUR_S, 34 * HOUR_S - 1):
        asked = known._look_at(job(1, submit_s, 1)).features.tolist()
        assert tuple(map(int, asked[len(FEATURES) :])) == expected
    assert known._look_at(job(1, 34 * HOUR_S, 1)).features[-4:].tolist() != list(expected)
    for absurd_s in (-(10**15), 10**15):
        assert len(known._look_at(job(1, absurd_s, 1)).features) == len(known.features)


def test_the_calendar_begins_where_the_header_of_the_log_says() -> None:
    pytest.importorskip("sklearn")
    log = replace(
        workload([(5, 1, 9, 9)]),
        header=("; UnixStartTime: 1700000000", "; TimeZoneString: Europe/Stockholm"),
    )
    known = predict.make("class:calendar=on", log)
    assert isinstance(known, Classes)
    assert known.calendar_s == 1_700_000_000 + HOUR_S


def test_a_forest_is_trained_on_the_jobs_of_the_window() -> None:
    pytest.importorskip("sklearn")
    lessons: dict[int | None, int] = {}
    for window in (40, 300, None):
        known = Classes(window=window)
        for number in range(14 * 24 + 5):
            asked, runtime_s = submitted(number)
            known.predict(asked, asked.submit_s)
            known.learn(asked, runtime_s)
            if known._lesson is not None:
                lessons[window] = len(known._lesson[1])
        runtimes_s = [runtime_s for _, runtime_s in map(submitted, range(14 * 24 + 5))]
        if window is not None:
            assert sorted(known._runtime_s.tolist()) == sorted(runtimes_s[-window:])
    # The second training, at the end of the second week.
    assert lessons == {40: 40, 300: 300, None: lessons[None]}
    assert lessons[None] > 300


def test_all_past_weeks_are_as_many_jobs_as_the_log_has() -> None:
    pytest.importorskip("sklearn")
    log = workload([(n, 1, 9, 9) for n in range(12)])
    sizes = {
        name: len(made._runtime_s)
        for name in ("class", "class:window=5", "class:window=all")
        if isinstance(made := predict.make(name, log), Classes)
    }
    assert sizes == {"class": classes.WINDOW, "class:window=5": 5, "class:window=all": 12}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("class:vote=0.1", "predictor class has no parameter 'vote'; did you mean votes"),
        ("class:votes=1", "predictor class, votes=1: a share of the votes, 0 or more and below 1"),
        ("class:votes=nan", "a share of the votes"),
        ("class:votes=few", "a share of the votes"),
        ("class:window=0", "a number of jobs, 1 or more, or all, is needed"),
        ("class:window=some", "a number of jobs, 1 or more, or all, is needed"),
        ("class:calendar=yes", "predictor class, calendar=yes: on or off is needed"),
        ("class:clairvoyant", "predictor class:clairvoyant: 'clairvoyant' is not of the form"),
        ("class:window=1,window=2", "the parameter window is given twice"),
        ("clas:window=2", "unknown predictor 'clas'; did you mean class"),
        ("last2:window=2", "predictor last2 has no parameter 'window' .it has: none"),
    ],
)
def test_a_wrong_parameter_is_one_clear_error(name: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        predict.make(name, workload([(0, 1, 5, 5)]))


def test_fewer_votes_come_from_the_name() -> None:
    pytest.importorskip("sklearn")
    made = predict.make("class:votes=0.1", workload([(0, 1, 5, 5)]), 7)
    assert isinstance(made, Classes)
    assert (made.votes, made.seed, made.name) == (0.1, 7, "class:votes=0.1")


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UsageError, match=r"needs sklearn.*cpdispatch\[learn\]"):
        predict.make("class", workload([(0, 1, 5, 5)]))


@pytest.mark.log
def test_on_kth_five_jobs_in_six_are_classified_rightly(trace: Callable[[str], Path]) -> None:
    pytest.importorskip("sklearn")
    log = fit(read(trace("KTH-SP2-1996-2"), "strong", 100), System.pool(100), None)
    part = log.take(np.arange(6000))
    known = Classes()
    simulate(part, System.pool(100), "easy", predictor=known)
    found = total(known.weeks.values())
    assert found.jobs > 5000
    assert found.accuracy > 0.8
    assert found.precision > 0.75
