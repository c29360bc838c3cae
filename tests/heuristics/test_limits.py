"""How long jobs are taken to last: instances as dispatchers see them when they take care."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.errors import UsageError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.limits import LIMITS, cautious, limited
from cpdispatch.instance import Instance, loads, to_json
from cpdispatch.jobs import Column, Workload
from cpdispatch.simulator import simulate
from cpdispatch.simulator.replay import Watch
from cpdispatch.system import System
from tests.best.test_best import Guess, cases
from tests.strategies import EMPTY, instances, lasting

every_limits = st.sampled_from(sorted(LIMITS))


def ends(instance: Instance) -> tuple[dict[int, int], dict[int, int]]:
    """Durations of the queued jobs and ends of the running ones, by id."""
    queue, running = instance.queue, instance.running
    return (
        dict(zip(queue.id.tolist(), queue.expected_s.tolist(), strict=True)),
        dict(zip(running.jobs.id.tolist(), running.end_s.tolist(), strict=True)),
    )


@given(instances(dependencies=True, predictions=True), every_limits)
def test_jobs_last_as_long_as_in_a_file_that_says_so(instance: Instance, limits: str) -> None:
    seen, told = limited(instance, limits), lasting(instance, limits)
    assert ends(seen) == ends(told)
    assert seen.earliest_s().tolist() == told.earliest_s().tolist()
    assert seen.eligible().tolist() == told.eligible().tolist() == instance.eligible().tolist()


@given(instances(dependencies=True, predictions=True))
def test_no_job_ends_earlier_the_more_care_is_taken(instance: Instance) -> None:
    naive, upper, requested = (limited(instance, limits) for limits in LIMITS)
    assert naive is instance
    assert (naive.queue.expected_s <= upper.queue.expected_s).all()
    assert (upper.queue.expected_s <= requested.queue.expected_s).all()
    assert (naive.running.end_s <= upper.running.end_s).all()
    assert (upper.running.end_s == requested.running.end_s).all()
    assert (naive.earliest_s() <= upper.earliest_s()).all()


@given(instances(dependencies=True), every_limits)
def test_nothing_changes_where_jobs_are_expected_to_last_as_long_as_they_ask_for(
    instance: Instance, limits: str
) -> None:
    assert to_json(limited(instance, limits)) == to_json(instance)


@given(instances(dependencies=True, predictions=True))
def test_with_caution_jobs_may_last_longer_but_not_than_requested(instance: Instance) -> None:
    seen = cautious(instance)
    given, upper_s = instance.queue, seen.queue.upper_s
    assert (given.upper_s <= upper_s).all()
    assert (upper_s <= given.requested_s).all()
    assert (upper_s**2 <= given.upper_s * given.requested_s).all()
    assert ((upper_s + 1) ** 2 > given.upper_s * given.requested_s).all()
    again = seen.queue.block.copy()
    again[Column.UPPER] = given.upper_s
    assert (again == given.block).all()


def test_unknown_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown limits 'upr'; did you mean upper"):
        limited(EMPTY, "upr")


@settings(max_examples=60)
@given(cases(), st.sampled_from(["minimal", "incremental", "requested"]), st.booleans())
def test_a_dumped_instance_says_how_long_jobs_may_last_as_the_simulation_did(
    case: tuple[Workload, System], correction: str, kill_at_limit: bool
) -> None:
    met: list[Instance] = []
    simulate(
        *case, Backfill(), predictor=Guess(), correction=correction, kill_at_limit=kill_at_limit,
        watch=Watch(seen=met.append),
    )  # fmt: skip
    for instance in met:
        content = to_json(instance)
        again = loads(content)
        assert to_json(again) == content
        for limits in LIMITS:
            assert ends(limited(again, limits)) == ends(limited(instance, limits))
