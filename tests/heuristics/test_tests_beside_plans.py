"""Test runs beside a plan: conservative backfilling, and every depth above 1."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.decision import NO_START, Decision
from cpdispatch.errors import UsageError
from cpdispatch.heuristics import plan
from cpdispatch.heuristics.backfill import ALL, Backfill
from cpdispatch.heuristics.policies import find
from cpdispatch.heuristics.test_runs import candidates, going_on
from cpdispatch.instance import Instance
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.simulator.run import Run
from cpdispatch.system import System
from cpdispatch.workloads.restarts import mark
from tests.effort import examples
from tests.heuristics.test_test_runs import POOL, Promises, cases, cold, tried
from tests.oracles import plain_tests
from tests.simulator.cases import on_nodes, workload
from tests.strategies import Plan, instances

depths = st.sampled_from([2, 3, ALL])


def which(decision: Decision) -> list[int]:
    """The queue positions of the jobs that a decision tests."""
    return [] if decision.bound_s is None else np.flatnonzero(decision.bound_s).tolist()


def plan_of(decision: Decision, but: list[int]) -> Plan:
    places = decision.placements.as_dict()
    starts = enumerate(decision.start_s.tolist())
    return {k: (s, places[k]) for k, s in starts if s != NO_START and k not in but}


@settings(max_examples=examples(700), deadline=None)
@given(
    instances(restarts=True), st.sampled_from([1, 2, ALL]), st.integers(1, 5), st.booleans(),
    st.sampled_from(["fcfs", "saf"]),
)  # fmt: skip
def test_tests_are_the_plain_twins_and_move_no_planned_start(
    instance: Instance, depth: int, test_s: int, best_fit: bool, order: str
) -> None:
    if depth == 1 and not instance.reservations and not len(instance.down):
        depth = 2
    without = Backfill(find(order), find(order), depth=depth, best_fit=best_fit)
    with_tests = replace(without, test_s=test_s)
    plain, decision = without.dispatch(instance), with_tests.dispatch(instance)
    assert verify.decision(instance, decision) == []
    tested = which(decision)
    plan = plan_of(plain, [])
    assert plan_of(decision, tested) == {k: at for k, at in plan.items() if k not in tested}
    late = np.zeros(len(instance.queue), dtype=np.bool_)
    may = candidates(instance, test_s, late, 0).tolist()
    promised = depth > 1
    twin = plain_tests.beside(instance, plan, may, test_s, best_fit, promised)
    places = decision.placements.as_dict()
    assert {k: places[k] for k in tested} == twin


@settings(max_examples=examples(400), deadline=None)
@given(instances(restarts=True), depths, st.booleans())
def test_a_stopped_job_goes_on_if_it_can(instance: Instance, depth: int, best_fit: bool) -> None:
    decision = Backfill(depth=depth, best_fit=best_fit).dispatch(instance)
    assert verify.decision(instance, decision) == []
    if instance.stopped is None:
        return
    stays = going_on(instance, decision.start_s, decision.placements)
    for position, (_, home) in instance.stopped.held().items():
        if position in stays:
            continue
        if instance.restart_cost_s:
            assert decision.start_s[position] == NO_START
        elif decision.start_s[position] == instance.now:
            others = plan_of(decision, [position])
            table = plain_tests.planned(instance, others)
            asks = np.array(instance.queue[position].request)
            lasts_s = instance.queue[position].expected_s
            free = table.free[:lasts_s].min(axis=0)
            assert any((units * asks > free[node]).any() for node, units in home.items())


@settings(max_examples=examples(300), deadline=None)
@given(
    st.booleans().flatmap(lambda pool: cases(pool, upper_bounds=True)), depths,
    st.integers(1, 6), st.sampled_from([0, 3]), st.booleans(),
    st.sampled_from([("fcfs", "fcfs"), ("saf", "spf")]), st.sampled_from(["instant", "event"]),
)  # fmt: skip
def test_no_promised_start_moves_later(
    case: tuple[Workload, System], depth: int, test_s: int, cost_s: int, best_fit: bool,
    orders: tuple[str, str], trigger: str,
) -> None:  # fmt: skip
    primary, secondary = map(find, orders)
    follows = Promises(Backfill(primary, secondary, depth=depth, best_fit=best_fit, test_s=test_s))
    assert simulate(*case, follows, restart_cost_s=cost_s, trigger=trigger).verify() == []


@pytest.mark.parametrize(
    ("columns", "cost_s", "name", "starts"),
    [
        (
            {
                "submit": [0, 0, 5, 5, 25], "units": [2, 1, 3, 3, 1],
                "requested": [20, 30, 20, 20, 30], "runtime": [10, 30, 20, 20, 15],
                "restartable": [1, 0, 1, 1, 1],
            },
            0, "easy:depth=3,test=5,threshold=20", [0, 0, 30, 50, 70],
        ),
        (
            {
                "submit": [0, 0, 0, 5, 5, 8, 10], "units": [1, 1, 2, 3, 1, 1, 2],
                "requested": [10, 20, 20, 20, 60, 60, 60],
                "runtime": [10, 20, 20, 10, 60, 60, 60], "restartable": [1, 0, 1, 0, 1, 1, 0],
            },
            5, "easy:depth=2,test=5", [0, 0, 10, 30, 40, 40, 100],
        ),
    ],
    ids=["a test", "clearing"],
)  # fmt: skip
@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_promises_hold_in_a_second_in_which_a_test_or_the_clearing_after_it_ends(
    columns: dict[str, list[int]], cost_s: int, name: str, starts: list[int], trigger: str
) -> None:
    """In the same second another job ends, which is an event of its own."""
    case = on_nodes(System.pool(3), **columns)
    run = simulate(*case, name, trigger=trigger, restart_cost_s=cost_s)
    assert run.verify() == []
    assert run.jobs["start"].tolist() == starts


# Job 1 holds 3 of 4 processors until 100; job 2 needs all of them: its promise. Jobs 3 and 4 are
# promised starts after it, one after the other.
QUEUED = [(0, 3, 100, 100), (1, 4, 50, 50), (2, 1, 500, 30), (3, 4, 20, 20)]


def conservative(test_s: int) -> Backfill:
    return Backfill(depth=ALL, test_s=test_s)


def test_a_job_with_a_promise_is_tested_and_keeps_it() -> None:
    run = tried(QUEUED, conservative(10))
    assert run.jobs["start"].tolist() == [0, 100, 150, 180]
    assert run.jobs["test"].tolist() == ["none", "none", "killed", "none"]
    assert run.jobs["lost_end"].tolist() == [-1, -1, 12, -1]
    run = tried(QUEUED, conservative(30))
    assert run.jobs["start"].tolist() == [0, 100, 2, 150]
    assert run.jobs["test"].tolist() == ["none", "none", "ended", "none"]
    # While its nodes are cleared its promise is kept, and is longer by that.
    run = tried([*QUEUED, (13, 4, 20, 20)], conservative(10), restart_cost_s=5)
    assert run.jobs["start"].tolist() == [0, 100, 150, 185, 205]


@settings(max_examples=examples(40), deadline=None)
@given(cases(pool=False), st.sampled_from([2, ALL]), st.sampled_from([0, 2]), st.integers(0, 4))
def test_a_profile_that_has_to_grow_leads_to_the_same_plans(
    case: tuple[Workload, System], depth: int, test_s: int, cost_s: int
) -> None:
    cost_s = cost_s if test_s else 0
    runs = []
    for room in (plan.ROOM_AT_FIRST, 0):
        with patch.object(plan, "ROOM_AT_FIRST", room):
            made = Backfill(depth=depth, test_s=test_s)
            runs.append(simulate(*case, made, restart_cost_s=cost_s, compiled=False))
    assert runs[0].job_table.equals(runs[1].job_table)
    assert runs[1].verify() == []


def test_no_test_lasts_beyond_a_planned_start() -> None:
    """Job 2 is to start at 100, and the third job is submitted at 2."""
    assert makes_one(98, 0)
    assert not makes_one(99, 0)
    assert makes_one(93, 5)
    assert not makes_one(94, 5)


def makes_one(test_s: int, cost_s: int) -> bool:
    log = mark(workload([*QUEUED[:2], (2, 1, 500, 400), QUEUED[3]]), 1.0)
    run = simulate(log, POOL, conservative(test_s), restart_cost_s=cost_s)
    assert run.verify() == []
    return bool((fates(run) != "none").any())


def fates(run: Run) -> np.ndarray:
    return run.jobs.get("test", np.full(len(run.jobs), "none"))


def test_names_and_what_is_wrong_with_them() -> None:
    made = dispatch.make("conservative:test=2min", warm=cold)
    assert isinstance(made, Backfill)
    assert (made.depth, made.test_s, made.tests) == (ALL, 120, "left")
    dispatch.make("easy:depth=3,test=60,tests=left", warm=cold)
    for name, problem in (
        ("conservative:test=120,tests=turn", "tests=turn: where more than one start is promised"),
        ("easy:depth=2,test=120,tests=backfill", "leave tests out, or write tests=left"),
        ("easy:depth=0,test=120", "depth=1 or more, and not depth=0"),
    ):
        with pytest.raises(UsageError, match=problem):
            dispatch.make(name, warm=cold)


def test_they_are_made_in_the_general_loop() -> None:
    run = tried(QUEUED, conservative(10))
    assert not run.about["compiled"]
    none = simulate(mark(workload(QUEUED), 0.0), POOL, conservative(10))
    assert none.about["compiled"]
