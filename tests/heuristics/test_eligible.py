"""Heuristics and jobs that depend on others: such a job waits, and holds back nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from cpdispatch import dispatch, verify
from cpdispatch.decision import NO_START, Reason
from cpdispatch.heuristics.allocate import fits_now, start_in_order
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import FORMAT, Instance
from tests.strategies import instances, read

RULES = [
    "easy",
    "easy-saf-spf",
    "easy:depth=3,threshold=5",
    "easy:allocate=best-fit",
    "conservative",
    "fifo",
    "sjf",
    "ljf",
    "prb",
    "prb:allocate=best-fit",
]


def four_cores(*queue: dict[str, Any], **changes: Any) -> Instance:
    """Node of 4 cores on which job 1 holds 3 until 150; each queued job asks for 1 for 10 s."""
    plain = {"submit": 90, "duration": 10, "units": 1, "unit": [1]}
    file = {
        "format": FORMAT, "time": 100, "resources": ["core"],
        "groups": [{"name": "a", "nodes": 1, "capacity": [4]}],
        "running": [{"id": 1, "start": 90, "duration": 60, "units": 3, "unit": [1],
                     "nodes": {"0": 3}}],
        "queue": [plain | {"id": 7 + k} | job for k, job in enumerate(queue)],
    }  # fmt: skip
    return read(file | changes)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("waits", [{"after": [8]}, {"after": [1]}, {"earliest": 101}])
def test_a_job_that_depends_on_another_waits_and_holds_back_nobody(
    rule: str, waits: dict[str, Any]
) -> None:
    # Without the dependency job 7 would be first in every order.
    first = {"submit": 10, "duration": 10, "ewt": 1}
    instance = four_cores(first | waits, {"submit": 90, "duration": 10, "ewt": 1})
    decision = dispatch.make(rule).dispatch(instance)
    assert decision.start_s.tolist() == [NO_START, 100]
    assert decision.reason.tolist() == [Reason.WAITS, Reason.STARTED]
    assert decision.placements.as_dict() == {1: {0: 1}}
    freed = four_cores(first, {"submit": 90, "duration": 10, "ewt": 1})
    assert dispatch.make(rule).dispatch(freed).start_s[0] == 100


@pytest.mark.parametrize("rule", RULES)
def test_a_job_whose_time_has_come_starts(rule: str) -> None:
    instance = four_cores({"earliest": 100}, {"after": [7]})
    assert dispatch.make(rule).dispatch(instance).start_s.tolist() == [100, NO_START]


@pytest.mark.parametrize("rule", RULES)
@given(instance=instances(dependencies=True, starvation=True))
def test_a_rule_answers_as_if_only_the_eligible_jobs_were_there(
    rule: str, instance: Instance
) -> None:
    decision = dispatch.make(rule).dispatch(instance)
    assert verify.decision(instance, decision) == []
    eligible = np.flatnonzero(instance.eligible())
    waits = np.flatnonzero(~instance.eligible())
    assert (decision.start_s[waits] == NO_START).all()
    assert (decision.reason[waits] == Reason.WAITS).all()
    alone = Instance(
        instance.now, instance.system, instance.free, instance.queue.take(eligible),
        instance.running, instance.down, instance.reservations, instance.power,
    )  # fmt: skip
    other = dispatch.make(rule).dispatch(alone)
    assert decision.start_s[eligible].tolist() == other.start_s.tolist()
    assert decision.reason[eligible].tolist() == other.reason.tolist()
    places = {int(eligible[k]): nodes for k, nodes in other.placements.as_dict().items()}
    assert decision.placements.as_dict() == places


def test_conservative_backfilling_keeps_its_promises_beside_jobs_that_wait() -> None:
    rule = Backfill(depth=99)
    waits, wide, long = {"after": [1]}, {"units": 4}, {"duration": 60}
    early = rule.dispatch(four_cores(waits, wide, long))
    assert early.start_s.tolist() == [NO_START, 150, 160]
    later = rule.dispatch(four_cores(waits, wide, long, time=101))
    assert later.start_s.tolist() == [NO_START, 150, 160]
    assert later.reason.tolist() == [Reason.WAITS, Reason.RESERVED, Reason.RESERVED]


def test_only_eligible_jobs_fit_now_and_are_started_in_order() -> None:
    instance = four_cores({"after": [8]}, {}, {"earliest": 120}, {})
    assert fits_now(instance).tolist() == [False, True, False, True]
    order = np.array([2, 0, 3, 1], dtype=np.int64)
    assert start_in_order(instance, order).as_dict() == {3: {0: 1}}
    free = four_cores({}, {}, {}, {})
    assert fits_now(free).tolist() == [True] * 4
    assert start_in_order(free, order).as_dict() == {2: {0: 1}}


def test_without_dependencies_the_instance_itself_is_dispatched() -> None:
    seen = []

    class Watched(Backfill):
        def _plan(self, instance: Instance, *rest: Any) -> Any:
            seen.append(instance)
            return super()._plan(instance, *rest)

    instance = four_cores({})
    Watched(depth=2).dispatch(instance)
    assert seen == [instance]
