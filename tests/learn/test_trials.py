from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.errors import InputError
from cpdispatch.learn import trials
from tests.effort import examples
from tests.learn import trial_twin

MACHINE = 8
job = st.tuples(st.integers(1, 60), st.integers(1, MACHINE), st.integers(0, 80))


def columns(jobs: list[trial_twin.Job]) -> list[np.ndarray]:
    return [np.array(column, dtype=np.int64) for column in zip(*jobs, strict=True)]


@settings(max_examples=examples(200))
@given(st.lists(job, min_size=3, max_size=14), st.integers(0, 6), st.integers(0, 99), st.booleans())
def test_sums_over_random_orders_are_those_of_the_plain_twin(
    jobs: list[trial_twin.Job], running: int, seed: int, published: bool
) -> None:
    running = min(running, len(jobs) - 1)
    total, first = trials.sample(running, MACHINE, *columns(jobs), 20, seed, published=published)
    wanted, times = trial_twin.sums(jobs, running, MACHINE, 20, seed, published)
    assert first.tolist() == times
    assert total.tolist() == pytest.approx(wanted, rel=1e-12)


def test_a_job_that_has_not_arrived_holds_up_those_behind_it() -> None:
    jobs = [(10, 1, 0), (10, 1, 100), (10, 1, 0)]
    total, first = trials.sample(1, MACHINE, *columns(jobs), 20, 1)
    late_first, late_last = total / first
    assert late_first == (1.0 + 11.0) / 2
    assert late_last == 1.0


def test_orders_are_uniform_unless_they_are_drawn_as_published() -> None:
    jobs = [(1, 1, 0)] * 32
    _, uniform = trials.sample(0, MACHINE, *columns(jobs), 200_000, 1)
    _, published = trials.sample(0, MACHINE, *columns(jobs), 200_000, 1, published=True)
    assert uniform / 200_000 == pytest.approx(1 / 32, abs=0.002)
    assert published[1] / 200_000 == pytest.approx(0.042, abs=0.002)
    assert published[31] / 200_000 == pytest.approx(0.0234, abs=0.002)


def test_the_best_first_job_has_the_smallest_score() -> None:
    jobs = [(1_000, 8, 0), (10, 8, 0), (500, 8, 0)]
    found = trials.scores(*trials.sample(0, MACHINE, *columns(jobs), 6_000, 1))
    assert found.argmin() == 1
    assert found.argmax() == 0
    assert found.sum() == pytest.approx(1)


def test_scores_are_free_of_how_often_a_job_came_first_and_published_ones_are_not() -> None:
    total, first = np.array([30.0, 10.0, 0.0]), np.array([3, 1, 0])
    assert trials.scores(total, first).tolist() == pytest.approx([1 / 3] * 3)
    assert trials.scores(total, first, published=True).tolist() == [0.75, 0.25, 0.0]


def test_a_job_larger_than_the_machine_is_an_error() -> None:
    with pytest.raises(InputError, match="a job needs 9 processors of 8"):
        trials.sample(0, MACHINE, *columns([(1, 9, 0), (1, 1, 0)]), 5, 0)
