from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.errors import UsageError
from cpdispatch.jobs import Column, Workload
from cpdispatch.simulator import simulate
from cpdispatch.workloads import prepare
from cpdispatch.workloads.shake import SHIFT_S, shaken
from tests.workloads.cases import log


@st.composite
def logs(draw: st.DrawFn) -> Workload:
    jobs = draw(st.integers(1, 40))
    submit = st.lists(st.integers(0, 300), min_size=jobs, max_size=jobs)
    return log(sorted(draw(submit)), 7, range(1, jobs + 1))


@given(logs(), st.integers(1, 2**32))
def test_a_draw_shifts_submissions_and_nothing_else(workload: Workload, draw: int) -> None:
    found = shaken(workload, draw)
    later_s = found.table.submit_s - workload.table.submit_s
    assert later_s.min() >= 0
    assert later_s.max() < SHIFT_S
    for column in set(range(len(workload.table.columns))) - {int(Column.SUBMIT)}:
        assert (found.table.column(column) == workload.table.column(column)).all()
    assert found.table.labels is workload.table.labels
    for name in ("name", "runtime_s", "preceding", "think_s", "notes", "header"):
        assert getattr(found, name) is getattr(workload, name)


@given(logs(), st.integers(1, 99))
def test_the_shifts_are_those_of_a_generator_that_the_draw_seeds(
    workload: Workload, draw: int
) -> None:
    generator = np.random.default_rng(draw)
    shifted = [int(at) + int(generator.integers(0, 60)) for at in workload.table.submit_s]
    assert shaken(workload, draw).table.submit_s.tolist() == sorted(shifted)


def test_the_draws_of_earlier_versions_stay_what_they_are() -> None:
    workload = log([0, 10, 20, 30, 500, 500])
    assert shaken(workload, 1).table.submit_s.tolist() == [28, 40, 65, 87, 502, 508]
    assert shaken(workload, 2).table.submit_s.tolist() == [25, 26, 47, 50, 524, 548]


def test_draw_0_is_the_log_as_it_is_and_others_share_its_memory() -> None:
    workload = log(range(50))
    assert shaken(workload, 0) is workload
    other = shaken(workload, 3)
    assert np.shares_memory(other.table.requested_s, workload.table.requested_s)
    assert not np.shares_memory(other.table.submit_s, workload.table.submit_s)
    for draw in (-1, 1.5):
        with pytest.raises(UsageError, match=rf"draw {draw}: a whole number, 0 or more"):
            shaken(workload, draw)  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_draw_can_be_replayed_and_its_schedule_is_feasible(compiled: bool) -> None:
    workload, system = prepare(log(range(0, 900, 15), 1, range(60, 120)), "3")
    run = simulate(shaken(workload, 5), system, "easy-spf-spf", compiled=compiled)
    assert verify.run(run.jobs, run.system) == []
