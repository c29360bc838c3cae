"""Test runs beside the plans of the engine, and the jobs that were stopped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import dispatch, solution, verify
from cpdispatch.bounded import Bounded
from cpdispatch.decision import NO_START
from cpdispatch.errors import UsageError
from cpdispatch.heuristics.test_runs import candidates, going_on
from cpdispatch.instance import Instance
from cpdispatch.models.budget import Budget
from cpdispatch.models.engine import Engine
from cpdispatch.models.hyper import Hyper
from cpdispatch.simulator import simulate
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads.restarts import mark
from tests.heuristics.test_test_runs import POOL, cold, crowd
from tests.heuristics.test_tests_beside_plans import plan_of, which
from tests.models.cases import EXAMPLES
from tests.oracles import plain_tests
from tests.simulator.cases import workload
from tests.strategies import instances, lasting, read

NODES = System("two", ("core",), (NodeGroup("n", 2, (2,)),), 2)


@settings(max_examples=10 * EXAMPLES, deadline=None)
@given(
    instances(restarts=True, starvation=True, predictions=True, dependencies=True),
    st.integers(1, 5), st.sampled_from(["upper", "expected"]), st.sampled_from([0, 1, 9]),
)  # fmt: skip
def test_tests_are_the_plain_twins_and_move_no_planned_start(
    instance: Instance, test_s: int, limits: str, reserve: int
) -> None:
    engine = Engine("hcp", cp=False, limits=limits, reserve=reserve)
    # The clock must not end one search sooner than the other: the plans are made once.
    budget = Budget(60.0, live=False, work_s=0.05)
    planned = engine.planned(instance)
    answers = engine.answers(planned, budget)
    plain, decision = (
        one.decision(planned, answers, budget) for one in (engine, replace(engine, test_s=test_s))
    )
    for found in (plain, decision):
        assert verify.decision(instance, found) == []
        answer = solution.from_decision(instance, found)
        assert verify.solution(instance, answer) == []
    tested, plan = which(decision), plan_of(plain, [])
    assert plan_of(decision, tested) == {k: at for k, at in plan.items() if k not in tested}
    may = candidates(instance, test_s, instance.starved(), 0).tolist()
    assert not instance.starved()[tested].any()
    assert instance.eligible()[tested].all()
    seen = lasting(instance, "requested" if instance.overdue().any() else limits)
    twin = plain_tests.beside(seen, plan, may, test_s, True, False)
    places = decision.placements.as_dict()
    assert {k: places[k] for k in tested} == twin
    assert (decision.certificate.bound is None) >= bool(tested)


@settings(max_examples=10 * EXAMPLES, deadline=None)
@given(instances(restarts=True, predictions=True, reservations=False, power=False))
def test_a_stopped_job_goes_on_where_the_plan_of_the_others_leaves_its_nodes(
    instance: Instance,
) -> None:
    decision = Engine("hcp", limit_s=0.05, cp=False).dispatch(instance)
    assert verify.decision(instance, decision) == []
    if instance.stopped is None:
        return
    stays = going_on(instance, decision.start_s, decision.placements)
    seen, held = lasting(instance, "upper"), instance.stopped.held()
    plan = plan_of(decision, [])
    for position, (_, home) in held.items():
        others = {k: at for k, at in plan.items() if k != position}
        table = plain_tests.planned(seen, others, 100)
        if instance.restart_cost_s:
            for other in held.keys() - stays - {position}:
                nodes, cost_s = held[other][1], instance.restart_cost_s
                plain_tests.hold(seen, table, other, nodes, 0, cost_s)
        asks = np.array(instance.queue[position].request)
        free = table.free[: seen.queue[position].expected_s].min(axis=0)
        could = all((units * asks <= free[node]).all() for node, units in home.items())
        if position in stays:
            assert could
        elif instance.restart_cost_s:
            assert decision.start_s[position] == NO_START
        elif len(held) == 1:
            assert not could


def beside_a_wide_job(**more: object) -> Instance:
    """Job 2 waits for all 4 processors at 100 s; job 3 asks for more time than there is."""
    return read(
        {"format": "cpdispatch-instance/2", "time": 60, "resources": ["core"],
         "groups": [{"name": "one", "nodes": 1, "capacity": [4]}],
         "running": [{"id": 1, "start": 0, "duration": 100, "units": 3, "unit": [1],
                      "nodes": {"0": 3}}],
         "queue": [{"id": 2, "submit": 1, "duration": 50, "units": 4, "unit": [1]},
                   {"id": 3, "submit": 10, "duration": 500, "units": 1, "unit": [1],
                    "restartable": True, **more}]}
    )  # fmt: skip


@pytest.mark.parametrize("model", ["hcp", "pcp:model=counts", "hyper"])
def test_every_model_tests(model: str) -> None:
    for test_s, start_s in ((40, 60), (41, 150)):
        given = {"test_s": test_s, "limit_s": 0.2, "reserve": 2}
        engine = Hyper(0.2, settings=given) if model == "hyper" else Engine(model, **given)
        instance = beside_a_wide_job()
        decision = engine.dispatch(instance)
        assert verify.decision(instance, decision) == []
        assert decision.start_s.tolist() == [100, start_s]
        bounds = None if decision.bound_s is None else decision.bound_s.tolist()
        assert bounds == ([0, 40] if test_s == 40 else None)


def test_a_job_that_is_stopped_is_killed_where_it_would_delay_and_goes_on_where_not() -> None:
    engine = Engine("hcp", limit_s=0.1, test_s=20)
    for duration, start_s in ((41, 150), (40, 60)):
        instance = beside_a_wide_job(duration=duration, stopped={"start": 40, "nodes": {"0": 1}})
        decision = engine.dispatch(instance)
        assert verify.decision(instance, decision) == []
        # Its reservation stands. That job 3 is planned at all is up to the selection.
        assert decision.start_s[0] == 100
        assert decision.start_s[1] == start_s
        assert decision.bound_s is None


def test_a_starved_job_that_was_stopped_leaves_no_place_to_one_that_is_planned_later() -> None:
    """Job 1 was tested on node 1, and is planned on node 0, which is fuller and which 2 needs."""
    instance = read(
        {"format": "cpdispatch-instance/2", "time": 100, "resources": ["core", "mem"],
         "groups": [{"name": "a", "nodes": 1, "capacity": [2, 2]},
                    {"name": "b", "nodes": 1, "capacity": [4, 1]}],
         "starvation": {"threshold": 10, "bound": 10},
         "running": [{"id": 9, "start": 50, "duration": 500, "units": 1, "unit": [1, 0],
                      "nodes": {"0": 1}}],
         "queue": [{"id": 1, "submit": 0, "duration": 50, "units": 1, "unit": [1, 0],
                    "restartable": True, "stopped": {"start": 90, "nodes": {"1": 1}}},
                   {"id": 2, "submit": 1, "duration": 50, "units": 1, "unit": [1, 2]}]}
    )  # fmt: skip
    decision = Engine("hcp", limit_s=0.2, cp=False).dispatch(instance)
    assert verify.decision(instance, decision) == []


@pytest.mark.parametrize("cost_s", [0, 3])
@pytest.mark.parametrize(
    "name", ["hcp:m=20,limit=0.05,cp=off,test=9", "hcp:test=9,wait=off,cp=off"]
)
def test_whole_replays(name: str, cost_s: int) -> None:
    log = mark(workload(crowd()), 1.0)
    for system in (POOL, NODES):
        run = simulate(log, system, dispatch.make(name), restart_cost_s=cost_s)
        assert run.verify() == []
        assert {"ended", "killed"} <= set(run.jobs["test"])


def test_names_and_what_is_wrong_with_them() -> None:
    made = dispatch.make("pcp:test=2min,tests=left", warm=cold)
    assert isinstance(made, Bounded)
    assert made.test_s == 120
    made = dispatch.make("hyper:test=60", warm=cold)
    assert isinstance(made, Bounded)
    assert made.test_s == 60
    for name, problem in (
        ("hcp:test=120,tests=turn", "left is needed: with a plan, test runs come after all starts"),
        ("thesis-hcp:test=120", "has no parameter 'test'"),
    ):
        with pytest.raises(UsageError, match=problem):
            dispatch.make(name, warm=cold)
