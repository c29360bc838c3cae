from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import UNKNOWN, Column, Workload
from cpdispatch.workloads import from_table, read
from cpdispatch.workloads.clock import by_day, slot_of, wall_s, weekday_of
from cpdispatch.workloads.resample import resample, weeks
from tests.workloads.cases import DAY_S, HOUR_S, STOCKHOLM, WEEK_S, log


@st.composite
def logs(draw: st.DrawFn) -> Workload:
    """Logs of up to four whole weeks whose runtimes tell their jobs apart."""
    jobs = draw(st.integers(1, 30))
    span_s = draw(st.integers(1, 4)) * WEEK_S
    submit = sorted(
        [*draw(st.lists(st.integers(0, span_s - 1), min_size=jobs, max_size=jobs)), 0, span_s - 1]
    )
    users = st.lists(st.integers(-1, 3), min_size=jobs + 2, max_size=jobs + 2)
    return log(submit, draw(users), range(1, jobs + 3))


def groups(workload: Workload) -> dict[tuple[int, int], Counter[tuple[int, int, int]]]:
    """What each user submits in each week: offsets in the week, runtimes, requested times."""
    table = workload.table
    found: dict[tuple[int, int], Counter[tuple[int, int, int]]] = {}
    for job, runtime_s in zip(table, workload.runtime_s.tolist(), strict=True):
        key = (job.user, job.submit_s // WEEK_S)
        what = (job.submit_s % WEEK_S, runtime_s, job.requested_s)
        found.setdefault(key, Counter())[what] += 1
    return found


@given(logs(), st.integers(1, 6), st.integers(0, 9), st.sampled_from(["log", "always"]))
def test_every_week_of_a_user_is_a_whole_week_of_that_user(
    workload: Workload, count: int, seed: int, presence: str
) -> None:
    try:
        made = resample(workload, count, seed, presence)  # type: ignore[arg-type]
    except InputError as error:
        assert "no user was active" in str(error)  # noqa: PT017
        return
    real = groups(workload)
    for (user, week), jobs in groups(made).items():
        assert 0 <= week < count
        assert jobs in [given for (whose, _), given in real.items() if whose == user]
    assert made.table.id.tolist() == list(range(1, len(made) + 1))
    assert np.all(np.diff(made.table.submit_s) >= 0)
    assert np.all(made.preceding == UNKNOWN)
    assert np.all(made.think_s == UNKNOWN)


@given(logs(), st.integers(0, 9))
def test_the_same_seed_draws_the_same_weeks(workload: Workload, seed: int) -> None:
    one, again = (resample(workload, 5, seed, "always") for _ in range(2))
    assert np.array_equal(one.table.block, again.table.block)
    assert np.array_equal(one.runtime_s, again.runtime_s)


def test_another_seed_draws_other_weeks() -> None:
    workload = log([k * WEEK_S + HOUR_S for k in range(30)] + [30 * WEEK_S - 1], 1, range(1, 32))
    one, other = (resample(workload, 20, seed).runtime_s.tolist() for seed in (0, 1))
    assert one != other


def test_users_are_drawn_independently_of_each_other() -> None:
    submit = np.repeat(np.arange(4) * WEEK_S, 2)
    submit[-2:] += 6 * DAY_S
    workload = log(submit.tolist(), [1, 2] * 4, range(1, 9))
    made = resample(workload, 60)
    source = (made.runtime_s - 1) // 2
    week = made.table.submit_s // WEEK_S
    user = made.table.column(Column.USER)
    pairs = {
        (int(source[(user == 1) & (week == k)][0]), int(source[(user == 2) & (week == k)][0]))
        for k in range(60)
    }
    assert len(pairs) > 10


def test_a_user_is_there_as_often_as_in_the_log_or_always() -> None:
    # User 1 is active in weeks 1 and 2 of 8, user 2 in the first and the last.
    submit = [HOUR_S, WEEK_S, 2 * WEEK_S, 8 * WEEK_S - 1]
    workload = log(submit, [2, 1, 1, 2])
    as_often = resample(workload, 2000, presence="log")
    always = resample(workload, 2000, presence="always")
    for made, share in ((as_often, 0.25), (always, 1.0)):
        jobs = np.count_nonzero(made.table.column(Column.USER) == 1)
        assert jobs / 2000 == pytest.approx(share, abs=0.03)
    # The span of user 2 is the whole log, of which he submits in two weeks.
    jobs = np.count_nonzero(always.table.column(Column.USER) == 2)
    assert jobs / 2000 == pytest.approx(0.25, abs=0.03)


def test_a_log_without_users_is_resampled_by_whole_weeks() -> None:
    workload = log([0, HOUR_S, WEEK_S, WEEK_S + DAY_S, 3 * WEEK_S - 1], UNKNOWN, range(1, 6))
    made = resample(workload, 50)
    assert made.notes == {"user unknown, resampled as one user": 5}
    weeks_made = groups(made)
    assert len(weeks_made) == 50
    assert all(jobs in groups(workload).values() for jobs in weeks_made.values())


def test_an_incomplete_last_week_is_left_out_and_counted() -> None:
    workload = log([0, 6 * DAY_S, WEEK_S, WEEK_S + 5 * DAY_S], 1)
    assert [len(week) for week in weeks(workload)] == [2]
    made = resample(workload, 3)
    assert len(made) == 6
    assert made.notes == {"left out: submitted in an incomplete last week": 2}


def test_quiet_weeks_before_an_incomplete_one_are_weeks_of_the_log() -> None:
    # Five weeks are covered, jobs are in the first of them only.
    made = resample(log([0, 6 * DAY_S, 5 * WEEK_S + 1], 1), 2000)
    assert len(made) / 2 / 2000 == pytest.approx(1 / 5, abs=0.03)


def test_a_last_week_with_a_job_on_its_last_day_counts() -> None:
    workload = log([10 * HOUR_S, 6 * DAY_S, WEEK_S, WEEK_S + 6 * DAY_S], 1)
    assert [len(week) for week in weeks(workload)] == [2, 2]


def test_weeks_begin_at_local_midnight_before_the_first_job() -> None:
    # The first job is at 14:00:31, so that the week ends ten hours short of 7 days later.
    split = 7 * DAY_S - 14 * HOUR_S - 31
    workload = log([0, split - 1, split, split + 6 * DAY_S], 1, header=STOCKHOLM)
    found = weeks(workload)
    assert [week.table.submit_s.tolist() for week in found] == [
        [0, split - 1],
        [split, split + 6 * DAY_S],
    ]
    assert [week.name for week in found] == ["small-week-1", "small-week-2"]
    assert found[0].table.id.tolist() == [101, 102]
    assert found[0].preceding.tolist() == [7, 7]


def test_weeks_without_jobs_are_left_out() -> None:
    workload = log([0, 3 * WEEK_S, 4 * WEEK_S - 1])
    assert [week.name for week in weeks(workload)] == ["small-week-1", "small-week-4"]


@given(logs())
def test_the_weeks_of_a_log_of_whole_weeks_are_all_its_jobs(workload: Workload) -> None:
    found = weeks(workload)
    assert sum(len(week) for week in found) == len(workload)
    for week in found:
        assert len(set((week.table.submit_s // WEEK_S).tolist())) == 1


def test_jobs_keep_their_local_hour_across_summer_time() -> None:
    # Nine o'clock on Mondays, from September to February.
    first = 7 * DAY_S - 5 * HOUR_S - 31
    monday = [first + k * WEEK_S + (HOUR_S if k >= 4 else 0) for k in range(20)]
    workload = log([*monday, monday[-1] + 6 * DAY_S], 1, header=STOCKHOLM)
    assert set((wall_s(workload) % DAY_S).tolist()) == {9 * HOUR_S}
    made = wall_s(resample(workload, 40))
    assert set((made % DAY_S).tolist()) == {9 * HOUR_S}
    assert set(weekday_of(made).tolist()) == {0, 6}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weeks": 0}, "weeks 0: a whole number, 1 or more"),
        ({"weeks": 10**9}, "weeks 1000000000"),
        ({"weeks": 90_000}, "weeks 90000: with 900 users, 55,555 can be made"),
        ({"weeks": 1, "seed": -1}, "seed -1"),
        ({"weeks": 1, "presence": "never"}, "presence 'never': one of log, always"),
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, object], message: str) -> None:
    workload = log([*range(900), WEEK_S - 1], [*range(900), 0])
    with pytest.raises(UsageError, match=message):
        resample(workload, **arguments)  # type: ignore[arg-type]


def test_a_log_shorter_than_a_week_is_refused() -> None:
    for act in (weeks, lambda workload: resample(workload, 1)):
        with pytest.raises(
            InputError, match=r"small: the log spans 5\.0 days, shorter than a week"
        ):
            act(log([0, 5 * DAY_S]))


def test_weeks_in_which_nobody_is_active_are_an_error() -> None:
    workload = log([0, 400 * WEEK_S - 1], [1, 2])
    with pytest.raises(InputError, match="no user was active in the 1 weeks that were drawn"):
        resample(workload, 1)


@given(logs(), st.integers(1, 6), st.integers(0, 9))
def test_every_column_of_a_job_is_drawn_with_it(workload: Workload, count: int, seed: int) -> None:
    # Runtimes tell the jobs apart, and so does all that they say.
    number, none = workload.runtime_s, UNKNOWN
    frame = {
        "id": workload.table.id, "submit": workload.table.submit_s, "runtime": number,
        "units": 16, "core": 1, "user": workload.table.column(Column.USER),
        "features": [f"f{k}" for k in number], "nodelist": [f"n{k}" for k in number],
        "exclusive": number % 2, "licences": [f"matlab:{k}" for k in number],
        "units_per_node": number % 4 * 4,
        "begin": np.where(number % 3 == 0, none, workload.table.submit_s + number),
    }  # fmt: skip
    try:
        made = resample(from_table(frame), count, seed)
    except InputError as error:
        assert "no user was active" in str(error)  # noqa: PT017
        return
    number = made.runtime_s
    features, nodes = made.asked("features"), made.asked("nodelist")
    licences = made.asked("licences")
    for k, own in enumerate(number.tolist()):
        assert features[1][features[0][k]] == f"f{own}"
        assert nodes[1][nodes[0][k]] == f"n{own}"
        assert licences[1][licences[0][k]] == f"matlab:{own}"
    assert np.array_equal(made.exclusive(), number % 2)
    assert np.array_equal(made.spreads("units_per_node"), number % 4 * 4)
    later_s = np.where(number % 3 == 0, none, made.table.submit_s + number)
    assert made.begin_s is None or np.array_equal(made.begin_s, later_s)


def test_tasks_of_an_array_are_an_array_of_their_own_in_each_week() -> None:
    frame = {
        "id": [1, 2, 3], "submit": [0, 0, 6 * DAY_S], "runtime": [1, 1, 2], "units": 1, "core": 1,
        "array": ["7", "7", None], "array_limit": [1, 1, 0],
    }  # fmt: skip
    made = resample(from_table(frame), 2)
    of, names = made.asked("array")
    assert [names[k] for k in of] == ["7-week-1", "7-week-1", "", "7-week-2", "7-week-2", ""]
    assert made.array_limit().tolist() == [1, 1, 0, 1, 1, 0]


@pytest.mark.log
def test_a_resampled_log_has_the_load_and_the_rhythm_of_the_log(
    trace: Callable[[str], Path],
) -> None:
    workload = read(trace("KTH-SP2-1996-2"))
    made = resample(workload, 500, seed=1)
    per_week = [len(w) / (np.ptp(w.table.submit_s) / WEEK_S) for w in (workload, made)]
    assert per_week[1] == pytest.approx(per_week[0], rel=0.03)
    area = [float(w.table.units @ w.runtime_s) / np.ptp(w.table.submit_s) for w in (workload, made)]
    assert area[1] == pytest.approx(area[0], rel=0.05)
    hours = [np.bincount(slot_of(wall_s(w)) // 2, minlength=24) / len(w) for w in (workload, made)]
    assert np.abs(hours[1] - hours[0]).max() < 0.004
    days = [by_day(wall_s(w), weekday_of, 7) for w in (workload, made)]
    assert np.abs(days[1] - days[0]).max() < 0.08
    assert len(weeks(workload)) == 48
