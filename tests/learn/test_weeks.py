from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cpdispatch.errors import InputError
from cpdispatch.jobs import Column
from cpdispatch.learn.weeks import consecutive, halves, made_up, rebased, with_jobs
from cpdispatch.system import System
from cpdispatch.workloads.clock import DAY_S
from tests.learn.cases import WEEK_S, bursts, workload


def test_a_log_is_split_at_its_temporal_midpoint() -> None:
    log = workload([7, 8, WEEK_S - 9, WEEK_S + 6, WEEK_S + 7, 2 * WEEK_S + 7], 1, 5, [5] * 6)
    parts = halves(log)
    assert parts["train"].table.submit_s.tolist() == [7, 8, WEEK_S - 9, WEEK_S + 6]
    assert parts["test"].table.submit_s.tolist() == [WEEK_S + 7, 2 * WEEK_S + 7]


def test_a_log_shorter_than_two_weeks_cannot_be_split() -> None:
    log = workload([0, 2 * WEEK_S - 1], 1, 5, [5, 5])
    with pytest.raises(InputError, match=r"case: the log spans 14\.0 days: a week to learn on"):
        halves(log)


@pytest.mark.parametrize(("half", "busy_s"), [("second", 0), ("first", 19 * WEEK_S)])
def test_a_log_with_a_hole_says_which_half_has_too_few_days(half: str, busy_s: int) -> None:
    first_s = [0, 20 * WEEK_S, *(busy_s + day * DAY_S for day in range(15))]
    log = workload(sorted(first_s), 1, 5, [5] * 17)
    with pytest.raises(InputError, match=rf"its {half} half are submitted within \d+\.\d days: a"):
        halves(log)


def test_weeks_are_on_a_clock_that_starts_with_their_first_job() -> None:
    found = consecutive(bursts(3))
    assert len(found) == 3
    assert all(week.table.submit_s[0] == 0 for week in found)
    assert sum(len(week) for week in found) == len(bursts(3))


def test_a_week_in_which_no_job_fits_is_left_out() -> None:
    log = workload([7, WEEK_S + 7, 2 * WEEK_S + 7, 3 * WEEK_S + 7], [1, 9, 1, 1], 5, [5] * 4)
    weeks = consecutive(log)
    assert len(weeks) == 3
    found = with_jobs(weeks, System.pool(4))
    assert [week.table.id.tolist() for week in found] == [[1], [3]]
    assert with_jobs([], System.pool(4)) == []
    with pytest.raises(InputError, match="no job of it fits the system"):
        with_jobs(weeks[1:2], System.pool(4))


def test_made_up_weeks_hold_of_each_user_one_of_that_users_weeks() -> None:
    log = bursts(4)
    runtimes = {
        (user, week): sorted(
            log.runtime_s[
                (log.table.column(Column.USER) == user) & (log.table.submit_s // WEEK_S == week)
            ].tolist()
        )
        for user in range(3)
        for week in range(4)
    }
    for made in made_up(log, 5, seed=3):
        assert made.table.submit_s.min() >= 0
        assert made.table.submit_s.max() < WEEK_S
        for user in range(3):
            own = sorted(made.runtime_s[made.table.column(Column.USER) == user].tolist())
            assert own in [runtimes[user, week] for week in range(4)]


def test_the_same_seed_makes_the_same_weeks_and_another_does_not() -> None:
    def drawn(seed: int) -> list[list[int]]:
        return [week.runtime_s.tolist() for week in made_up(bursts(4), 3, seed)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_rebasing_changes_nothing_but_the_submissions() -> None:
    log = bursts(1)
    moved = rebased(log, 100)
    assert (moved.table.submit_s == log.table.submit_s - 100).all()
    others = [row for row in range(log.table.block.shape[0]) if row != 1]
    assert np.array_equal(moved.table.block[others], log.table.block[others])


def test_begin_times_are_rebased_with_the_submissions() -> None:
    log = bursts(1)
    begin_s = np.where(np.arange(len(log)) % 2, -1, log.table.submit_s + 50)
    moved = rebased(replace(log, begin_s=begin_s), 100)
    assert moved.begin_s is not None
    assert moved.begin_s.tolist() == np.where(begin_s < 0, -1, begin_s - 100).tolist()
