"""Planned durations: how long jobs are taken to last where something is planned beside them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.errors import UsageError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.limits import LIMITS, cautious, planned
from cpdispatch.instance import Instance, loads, to_json
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.simulator.replay import Watch
from cpdispatch.system import System
from tests.best.test_best import Guess, cases
from tests.effort import examples
from tests.strategies import EMPTY, instances, lasting

every_limits = st.sampled_from(sorted(LIMITS))


def ends(instance: Instance) -> tuple[dict[int, int], dict[int, int]]:
    """Planned durations of the queued jobs and planned ends of the running ones, by id."""
    queue, running = instance.queue, instance.running
    return (
        dict(zip(queue.id.tolist(), queue.planned_s.tolist(), strict=True)),
        dict(zip(running.jobs.id.tolist(), running.planned_end_s().tolist(), strict=True)),
    )


def assert_not_changed(seen: Instance, instance: Instance) -> None:
    """Every prediction of the one is that of the other."""
    assert (seen.queue.block == instance.queue.block).all()
    assert (seen.running.jobs.block == instance.running.jobs.block).all()
    assert seen.running.end_s.tolist() == instance.running.end_s.tolist()


@given(instances(dependencies=True, predictions=True), every_limits)
def test_jobs_last_as_long_as_in_a_file_that_says_so(instance: Instance, limits: str) -> None:
    seen, file = planned(instance, limits), lasting(instance, limits)
    assert ends(seen) == ends(file)
    assert seen.earliest_s().tolist() == file.earliest_s().tolist()
    assert seen.eligible().tolist() == file.eligible().tolist() == instance.eligible().tolist()
    assert_not_changed(seen, instance)


@given(instances(dependencies=True, predictions=True), every_limits, st.data())
def test_some_of_the_jobs_keep_their_planned_durations(
    instance: Instance, limits: str, data: st.DataObject
) -> None:
    queue = planned(instance, limits).queue
    order = data.draw(st.permutations(range(len(queue))))
    some = np.array(order[: data.draw(st.integers(0, len(queue)))], dtype=np.int64)
    for jobs in (queue.take(some), pickle.loads(pickle.dumps(queue)).take(some)):
        assert jobs.planned_s.tolist() == queue.planned_s[some].tolist()
        assert jobs.expected_s.tolist() == queue.expected_s[some].tolist()


@given(instances(dependencies=True, predictions=True))
def test_no_job_ends_earlier_the_more_care_is_taken(instance: Instance) -> None:
    naive, upper, requested = (planned(instance, limits) for limits in LIMITS)
    assert naive is instance
    assert (naive.queue.planned_s == instance.queue.expected_s).all()
    assert (naive.queue.planned_s <= upper.queue.planned_s).all()
    assert (upper.queue.planned_s <= requested.queue.planned_s).all()
    assert (naive.running.planned_end_s() == instance.running.end_s).all()
    assert (naive.running.planned_end_s() <= upper.running.planned_end_s()).all()
    assert (upper.running.planned_end_s() == requested.running.planned_end_s()).all()
    assert (naive.earliest_s() <= upper.earliest_s()).all()


@given(instances(dependencies=True), every_limits)
def test_nothing_changes_where_jobs_are_expected_to_last_as_long_as_they_ask_for(
    instance: Instance, limits: str
) -> None:
    seen = planned(instance, limits)
    assert ends(seen) == ends(instance)
    assert seen.earliest_s().tolist() == instance.earliest_s().tolist()
    assert to_json(seen) == to_json(instance)


@given(instances(dependencies=True, predictions=True))
def test_with_caution_jobs_may_last_longer_but_not_than_requested(instance: Instance) -> None:
    seen = cautious(instance)
    queue, planned_s = instance.queue, seen.queue.planned_s
    assert (queue.upper_s <= planned_s).all()
    assert (planned_s <= queue.requested_s).all()
    assert (planned_s**2 <= queue.upper_s * queue.requested_s).all()
    assert ((planned_s + 1) ** 2 > queue.upper_s * queue.requested_s).all()
    assert ends(seen)[1] == ends(planned(instance, "requested"))[1]
    assert_not_changed(seen, instance)


def test_unknown_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown limits 'upr'; did you mean upper"):
        planned(EMPTY, "upr")


@settings(max_examples=examples(60))
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
            assert ends(planned(again, limits)) == ends(planned(instance, limits))
