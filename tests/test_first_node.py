"""What jobs take once, on their first nodes: dispatchers, replays, files, and what verify finds."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import dispatch, first_node, solution, verify
from cpdispatch.analyze.explain import explain
from cpdispatch.analyze.metrics import by_class, utilisation
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.dispatch import Dispatcher, Settings, answer_of
from cpdispatch.errors import DecisionError, InputError
from cpdispatch.events import FAIL, MAINTAIN, REPAIR, Event
from cpdispatch.heuristics import kernels
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import Instance, digest, loads, to_json
from cpdispatch.jobs import Column, Workload
from cpdispatch.simulator import Run, Simulation, simulate
from cpdispatch.system import Limit, NodeGroup, System, with_capacity
from cpdispatch.verify.violation import Kind
from cpdispatch.workloads import column_map, from_table, prepare, table
from tests.effort import examples
from tests.oracles.plain_first_node import PlainAsk
from tests.simulator.test_events import changes, failures, of
from tests.strategies import instances, taken_once

FAST = (
    "easy",
    "easy-spf-spf",
    "easy:depth=2",
    "easy:wait=0.6",
    "conservative",
    "fifo",
    "sjf",
    "prb",
)
ALL = (
    *FAST, "best", "conservative:wait=0.6", "hcp", "pcp:model=copies", "pcp:model=counts",
    "pcp:model=boxes", "hyper", *(name for name in dispatch.REGISTRY if name.startswith("thesis-")),
)  # fmt: skip
STRICT = ("fifo", "sjf")
"""Under these no job starts while the first one of the order waits."""
QUICK = Settings(limit_s=0.02)
NOW = 1000
THIN = System("thin", ("core", "mem"), (NodeGroup("n", 3, (4, 16)), NodeGroup("fat", 1, (4, 64))))


def made(name: str) -> Dispatcher:
    return dispatch.make(name, QUICK, warm=dispatch.not_at_all)


def file_of(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Three nodes with 16 of memory, one with 64, 4 cores each; the jobs are queued."""
    job = {"submit": 900, "duration": 60, "units": 4, "unit": [1, 4]}
    return {
        "format": "cpdispatch-instance/2", "time": NOW, "resources": ["core", "mem"],
        "groups": [
            {"name": "n", "nodes": 3, "capacity": [4, 16]},
            {"name": "fat", "nodes": 1, "capacity": [4, 64]},
        ],
        "queue": [job | {"id": 7 + k} | one for k, one in enumerate(jobs)],
    } | more  # fmt: skip


def read(file: dict[str, Any]) -> Instance:
    return loads(json.dumps(file), "file")


def started(file: dict[str, Any], name: str) -> list[dict[int, int] | None]:
    """The nodes of each queued job that starts now, its first one first; None: it waits."""
    problem = read(file)
    decision = answer_of(made(name), problem)
    assert verify.decision(problem, decision) == []
    places = decision.placements.as_dict()
    return [
        places[k] if start == NOW else None for k, start in enumerate(decision.start_s.tolist())
    ]


def jobs_of(**columns: Any) -> Workload:
    count = len(next(iter(columns.values())))
    usual = {"id": range(1, count + 1), "submit": 0, "runtime": 5, "requested": 5, "core": 1}
    return from_table(usual | columns)


def ran(workload: Workload, name: str = "easy", system: System = THIN, **rules: Any) -> Run:
    run = simulate(*prepare(workload, system), made(name), **rules)
    assert run.verify() == []
    return run


# ------------------------------------------------------------------------------- each dispatcher


@pytest.mark.parametrize("name", ALL)
def test_a_job_starts_with_its_first_node_named_first(name: str) -> None:
    (nodes,) = started(file_of({"first": [0, 40]}), name)
    assert nodes is not None
    assert next(iter(nodes)) == 3
    assert sum(nodes.values()) == 4


@pytest.mark.parametrize("name", ALL)
def test_a_job_waits_where_no_node_has_what_it_takes_once(name: str) -> None:
    held = {"id": 1, "start": 990, "duration": 50, "units": 1, "unit": [1, 30], "nodes": {"3": 1}}
    jobs = {"first": [0, 40]}, {"units": 1}
    assert [nodes is not None for nodes in started(file_of(*jobs, running=[held]), name)] == [
        False, name not in STRICT,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_start_that_another_one_makes_impossible_happens_later(name: str) -> None:
    dispatcher = made(name)
    big = {"units": 1, "unit": [1, 30], "duration": 9}
    taken = {"id": 7, "start": NOW, "duration": 9, "units": 1, "unit": [1, 30], "nodes": {"3": 1}}
    jobs = file_of(big, {"first": [0, 40]}, {"units": 1, "unit": [1, 8]})
    found = []
    for file in (
        jobs,
        jobs | {"time": NOW + 1, "queue": jobs["queue"][1:2], "running": [taken]},
        jobs | {"time": NOW + 9, "queue": jobs["queue"][1:2]},
    ):
        problem = read(file)
        decision = answer_of(dispatcher, problem)
        assert verify.decision(problem, decision) == []
        found.append((decision.start_s == problem.now).tolist())
    assert found == [[True, False, name not in STRICT], [False], [True]]


@pytest.mark.parametrize("name", ALL)
def test_nothing_taken_once_is_as_if_nothing_was_said(name: str) -> None:
    told, plain = (read(file_of(first, {"units": 2})) for first in ({"first": [0, 0]}, {}))
    assert digest(told) == digest(plain)
    one, other = (answer_of(made(name), problem) for problem in (told, plain))
    assert one.start_s.tolist() == other.start_s.tolist()
    assert one.placements.as_dict() == other.placements.as_dict()


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=examples(6, least=3), deadline=None)
@given(instances(first=True, dependencies=True, predictions=True, max_nodes=4))
def test_every_decision_and_plan_is_feasible(name: str, problem: Instance) -> None:
    decision = answer_of(made(name), problem)
    assert verify.decision(problem, decision) == []
    answer = solution.from_decision(problem, decision)
    assert verify.solution(problem, answer) == []
    assert solution.loads(solution.to_json(answer)) == answer
    assert_plainly_right(problem, decision)


@pytest.mark.parametrize("name", ["hcp", "pcp:model=copies", "pcp:model=counts", "pcp:model=boxes"])
@settings(max_examples=examples(20, least=3), deadline=None)
@given(instances(first=True, starvation=True, dependencies=True, max_nodes=4))
def test_a_starvation_bound_is_kept(name: str, problem: Instance) -> None:
    decision = answer_of(made(name), problem)
    assert verify.decision(problem, decision) == []
    assert verify.solution(problem, solution.from_decision(problem, decision)) == []


def assert_plainly_right(problem: Instance, decision: Decision) -> None:
    """Add up what the jobs that start hold, node by node."""
    left, names = problem.free.copy(), problem.system.resources
    for position, nodes in decision.placements.as_dict().items():
        if decision.start_s[position] != problem.now:
            continue
        asked = dict(zip(names, problem.queue[position].request, strict=True))
        for k, (node, units) in enumerate(nodes.items()):
            for name in (name for name in names if not name.startswith("first@")):
                left[node, names.index(name)] -= units * asked[name]
                left[node, names.index(name)] -= asked.get(f"first@{name}", 0) * (k == 0)
    assert (left >= 0).all()


@pytest.mark.parametrize("name", FAST)
@settings(max_examples=examples(40), deadline=None)
@given(taken_once())
def test_every_replay_is_feasible_and_starts_all_that_fits(
    name: str, case: tuple[Workload, System]
) -> None:
    run = simulate(*case, made(name), compiled=False)
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "backfilled", "late", "never_fits"}


def needs_for(name: str) -> None:
    """Skip a test whose dispatcher or predictor learns, where what that takes is not there."""
    if name in ("best", "class"):
        pytest.importorskip("sklearn")


@pytest.mark.parametrize("name", [name for name in ALL if name not in FAST])
@settings(max_examples=examples(5, least=2), deadline=None)
@given(taken_once(max_jobs=8))
def test_models_replay_such_jobs(name: str, case: tuple[Workload, System]) -> None:
    needs_for(name)
    run = simulate(*case, made(name), compiled=False)
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "backfilled", "late", "never_fits"}


COMPILED = (
    "easy", "easy:allocate=best-fit", "easy-spf-spf:threshold=20s", "easy-saf-saf:wait=0.6",
    "easy:test=3s", "easy:test=3s,tests=turn", "easy:limits=upper,wait=0.6", "easy:depth=2",
    "conservative", "conservative:allocate=best-fit", "fifo", "best", "best:keep=0.3,long=2s",
    "best:allocate=best-fit,test=3s", "reject",
)  # fmt: skip
"""Compiled replays, each with a rule of its own that what is taken once has to do with."""


@pytest.mark.parametrize("name", COMPILED)
@settings(max_examples=examples(30), deadline=None)
@given(
    case=taken_once(restartable=True), trigger=st.sampled_from(["instant", "event"]),
    predictor=st.sampled_from(["walltime", "actual", "last2"]),
)  # fmt: skip
def test_compiled_replays_do_the_same(
    name: str, case: tuple[Workload, System], trigger: str, predictor: str
) -> None:
    rules: dict[str, Any] = {"trigger": trigger, "predictor": predictor}
    run, other = (simulate(*case, made(name), compiled=each, **rules) for each in (True, False))
    assert run.about["compiled"] or trigger == "event"
    assert not other.about["compiled"]
    assert run.verify() == []
    for column in run.jobs.columns:
        assert repr(run.jobs[column].tolist()) == repr(other.jobs[column].tolist()), column


@pytest.mark.parametrize("name", ["easy", "conservative", "easy:wait=0.6"])
@pytest.mark.parametrize(
    "rules",
    [
        {"trigger": "event"},
        {"kill_at_limit": True, "predictor": "last2"},
        {"dependencies": True, "correction": "incremental"},
        {"idempotent": True, "predictor": "class", "restart_cost_s": 2},
    ],
)
@settings(max_examples=examples(20), deadline=None)
@given(case=taken_once())
def test_replays_under_other_rules(
    name: str, rules: dict[str, Any], case: tuple[Workload, System]
) -> None:
    needs_for(rules.get("predictor", ""))
    if rules.get("dependencies"):
        workload, _ = case
        preceding = np.where(workload.table.id % 3 == 2, workload.table.id - 1, -1)
        case = replace(workload, preceding=preceding, think_s=np.full(len(workload), 2)), case[1]
    run = simulate(*case, made(name), **rules)
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "backfilled", "late", "never_fits"}


@dataclass
class Greedy:
    """A user's own: starts whatever fits, by submission, and knows nothing of first nodes."""

    name: str = "greedy"

    def order(self, instance: Instance) -> list[int]:
        found: list[int] = np.flatnonzero(instance.eligible()).tolist()
        return found

    def dispatch(self, instance: Instance) -> Decision:
        left, places = instance.free.copy(), {}
        for k in self.order(instance):
            asked, nodes = instance.queue.request[k], {}
            most = min([int(instance.queue.units[k]), *(-asked[asked < 0]).tolist()])
            for node, row in enumerate(left):
                some = asked > 0
                room = min(int((row[some] // asked[some]).min()), most)
                units = min(room, int(instance.queue.units[k]) - sum(nodes.values()))
                if units > 0:
                    nodes[node] = units
            if sum(nodes.values()) == instance.queue.units[k]:
                places[k] = nodes
                for node, units in nodes.items():
                    left[node] -= units * np.maximum(asked, 0)
        start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
        reason = np.full(len(instance.queue), Reason.WAITS, dtype=np.int8)
        start_s[list(places)], reason[list(places)] = instance.now, Reason.STARTED
        return Decision(start_s, reason, Placements.of(places), Certificate(self.name))


@settings(max_examples=examples(40), deadline=None)
@given(taken_once())
def test_a_dispatcher_of_the_user_s_own_need_not_know_of_it(case: tuple[Workload, System]) -> None:
    run = simulate(*case, Greedy())
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "never_fits"}


@pytest.mark.parametrize("once", [False, True])
def test_a_replay_compiles_what_such_jobs_need_before_its_first_decision(
    once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[Instance] = []
    monkeypatch.setattr(dispatch.toys, "play", lambda make, played: met.extend(played))
    jobs = jobs_of(units=[2], mem=[4], **({"first_mem": [8]} if once else {}))
    simulate(*prepare(jobs, THIN), "easy", compiled=False)
    assert met
    assert any(instance.system.once for instance in met) == once


def test_a_dispatcher_that_says_so_is_shown_what_is_taken_once() -> None:
    @dataclass
    class Knowing(Greedy):
        takes_first = True

        def dispatch(self, instance: Instance) -> Decision:
            names = instance.system.resources
            seen.append(instance.queue.request[0, names.index("first@mem")])
            return made("easy").dispatch(instance)

    seen: list[int] = []
    answer_of(Knowing(), read(file_of({"first": [0, 40]})))
    assert seen == [40]


def test_a_wrong_answer_is_an_error_that_names_the_dispatcher() -> None:
    class Wrong(Greedy):
        def dispatch(self, instance: Instance) -> Decision:
            answer = super().dispatch(instance)
            return replace(answer, placements=Placements.of({0: {0: 9}}))

    with pytest.raises(DecisionError, match="greedy answered with an infeasible decision"):
        answer_of(Wrong(), read(file_of({"first": [0, 40]})))


# -------------------------------------------------------------------------------- one placement


def placeable(free: Any, ask: first_node.Ask) -> bool:
    """Whether some units on each node are a place for a job, by trying all of them."""
    limits = (-ask.unit[ask.unit < 0]).tolist()
    for units in product(*(range(ask.units + 1) for _ in free)):
        if sum(units) != ask.units or any(max(units) > limit for limit in limits):
            continue
        left = free - np.array(units)[:, None] * np.maximum(ask.unit, 0)
        if (left >= 0).all() and any(
            units[node] and (left[node] >= ask.first).all() for node in range(len(free))
        ):
            return True
    return False


rows = st.lists(st.integers(0, 6), min_size=2, max_size=2)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(rows, min_size=1, max_size=4), rows.filter(any), rows, st.integers(2, 4),
    st.integers(0, 2),
)  # fmt: skip
def test_a_job_is_placed_if_any_way_to_place_it_exists(
    free: list[list[int]], unit: list[int], first: list[int], units: int, limit: int
) -> None:
    left = np.array([[*row, 0] for row in free])
    ask = first_node.Ask(np.array([*unit, -limit]), np.array([*first, 0]), units)
    found = ask.place(left, np.full_like(left, 6))
    assert (found is not None) == placeable(left, ask)
    if found is not None:
        assert sum(found.values()) == units
        assert (not limit) or max(found.values()) <= limit
        for k, (node, many) in enumerate(found.items()):
            left[node] -= many * np.maximum(ask.unit, 0) + (k == 0) * ask.first
        assert (left >= 0).all()


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(rows, min_size=1, max_size=4), rows.filter(any), rows, st.integers(2, 4),
    st.integers(0, 2),
)  # fmt: skip
def test_kernels_place_a_job_as_their_plain_twin_does(
    free: list[list[int]], unit: list[int], first: list[int], units: int, limit: int
) -> None:
    left = np.array([[*row, 90] for row in free])
    counted = np.full_like(left, 6) * [1, 1, 0]
    ask = PlainAsk(np.array([*unit, -limit]), np.array([*first, 0]), units)
    both = ask.row
    found = ask.place(left, counted)
    assert kernels.fits(left, both, units) == (found is not None)
    assert first_node.Ask(ask.unit, ask.first, units).place(left, counted) == found
    if found is None:
        return
    node, many = np.empty((2, len(left)), dtype=np.int64)
    count = kernels.place(left, counted, both, units, True, node, many)
    chosen = dict(zip(node[:count].tolist(), many[:count].tolist(), strict=True))
    if any(first):
        assert list(chosen.items()) == list(found.items())
    # By first fit the first node that can be the first one is, and the others follow.
    count = kernels.place(left, counted, both, units, False, node, many)
    if any(first):
        assert node[0] == np.argmax(ask.firsts(left))
    assert (np.diff(node[1:count]) > 0).all()
    after = left.copy()
    kernels.change(after, both, node[:count], many[:count], -1)
    assert (after[:, :2] >= 0).all()
    held = left.sum(axis=0) - after.sum(axis=0)
    assert held[:2].tolist() == (units * np.array(unit) + first).tolist()
    kernels.change(after, both, node[:count], many[:count], 1)
    assert after.tolist() == left.tolist()


@pytest.mark.parametrize("name", ["easy", "conservative", "prb", "hcp", "greedy"])
def test_two_jobs_do_not_take_the_same(name: str) -> None:
    for amount, starts in ((30, [True, False, False]), (24, [True, True, False])):
        problem = read(file_of(*({"first": [0, amount], "units": 2} for _ in range(3))))
        decision = answer_of(Greedy() if name == "greedy" else made(name), problem)
        assert verify.decision(problem, decision) == []
        assert (decision.start_s == NOW).tolist() == starts


def test_the_fullest_node_that_can_be_the_first_one_is() -> None:
    ask = first_node.Ask(np.array([1]), np.array([2]), 3)
    free = np.array([[8], [3], [4], [2]])
    assert ask.place(free, np.full_like(free, 8)) == {1: 1, 3: 2}


# -------------------------------------------------------------------------------------- progress


def stream(**more: Any) -> Workload:
    """A job that takes 40 once, and small ones that keep taking the memory of the only fat node."""
    small = 60
    columns: dict[str, Any] = {
        "submit": [0, 0, 1, *range(2, 2 + small)], "runtime": [3, 4, 20, *[5] * small],
        "requested": [3, 4, 20, *[5] * small], "units": [1, 1, 2, *[1] * small],
        "mem": [40, 30, 4, *[30] * small], "first_mem": [0, 0, 40, *[0] * small],
    }  # fmt: skip
    return jobs_of(**columns | more)


@pytest.mark.parametrize(
    "name",
    ["easy", "easy-spf-spf:wait=0.6", "conservative", "best", "hcp", "pcp", "easy:wait=0.6"],
)
def test_small_jobs_cannot_keep_the_first_node_from_a_job_for_ever(name: str) -> None:
    needs_for(name)
    fat = System("fat", ("core", "mem"), (NodeGroup("fat", 1, (8, 64)), NodeGroup("n", 2, (1, 16))))
    run = ran(stream(), name, fat)
    start_s = run.jobs["start"].tolist()
    assert start_s[2] <= 16, start_s
    assert next(iter(run.jobs["nodes"][2])) == 0


@pytest.mark.parametrize("name", ["easy", "conservative", "best", "hcp"])
def test_a_job_whose_units_may_not_share_a_node_starts_too(name: str) -> None:
    needs_for(name)
    fat = System("fat", ("core", "mem"), (NodeGroup("fat", 1, (8, 64)), NodeGroup("n", 3, (1, 16))))
    small = 80
    log = jobs_of(
        submit=[*range(9), 9, *range(10, 10 + small)], runtime=9, requested=9,
        units=[*[1] * 9, 2, *[1] * small], mem=[*[12] * 9, 4, *[12] * small],
        first_mem=[*[0] * 9, 40, *[0] * small], units_per_node_max=[*[0] * 9, 1, *[0] * small],
    )  # fmt: skip
    run = ran(log, name, fat)
    assert run.jobs["start"][9] <= 40, run.jobs["start"].tolist()


def test_the_start_of_a_job_that_waits_for_its_first_node_never_moves_later() -> None:
    running = [
        {"id": k, "start": 900, "duration": 100 + end, "units": 1, "unit": [1, 30],
         "nodes": {"3": 1}} for k, end in ((1, 30), (2, 50))
    ]  # fmt: skip
    file = file_of({"first": [0, 30]}, *({"units": 1, "unit": [1, 30]} for _ in range(3)))
    problem = read(file | {"running": running})
    asked = first_node._Asked(problem)
    (held,) = asked.shown.reservations
    assert (held.start_s, held.nodes, held.capacity) == (NOW + 30, (3,), (1, 34))
    assert asked.shown.queue.units.tolist() == [3, 1, 1, 1]
    assert [nodes is not None for nodes in started(file | {"running": running}, "easy")] == [
        False, False, False, False,
    ]  # fmt: skip


def test_nothing_is_reserved_where_another_job_was_first() -> None:
    jobs = {"units": 1}, {"first": [0, 30]}
    assert first_node._Asked(read(file_of(*jobs))).shown.reservations == ()
    assert len(first_node._Asked(read(file_of(*jobs[::-1]))).shown.reservations) == 1


@dataclass
class Strict(Greedy):
    """A user's own that starts one job at a time: the shortest one, or none."""

    name: str = "strict"

    def order(self, instance: Instance) -> list[int]:
        shortest = int(np.argmin(instance.queue.expected_s))
        return [shortest] if instance.eligible()[shortest] else []


@settings(max_examples=examples(40), deadline=None)
@given(taken_once())
def test_a_strict_order_of_the_user_s_own_comes_to_an_end(case: tuple[Workload, System]) -> None:
    run = simulate(*case, Strict())
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "never_fits"}


def test_a_job_that_needs_what_is_reserved_comes_after_the_one_for_which_it_is() -> None:
    whole = {"units": 16, "unit": [1, 1], "duration": 5}
    running = [{"id": 1, "start": 900, "duration": 110, "units": 16, "unit": [1, 1],
                "nodes": {"0": 4, "1": 4, "2": 4, "3": 4}}]  # fmt: skip
    shown = first_node._Asked(read(file_of({"first": [0, 30]}, whole, running=running))).shown
    assert shown.queue.tier.tolist() == [65533, 1]


# --------------------------------------------------------------------------- what is held, and when


def test_what_first_nodes_hold_comes_back_with_their_jobs() -> None:
    running = {"id": 1, "start": 990, "duration": 50, "units": 2, "unit": [1, 4], "first": [0, 40],
               "first_node": 3, "nodes": {"0": 1, "3": 1}}  # fmt: skip
    problem = read(file_of({"first": [0, 40]}, running=[running]))
    assert problem.free[:, :2].tolist() == [[3, 12], [4, 16], [4, 16], [3, 20]]
    assert problem.running.node.tolist() == [3, 0]
    shown = first_node._Asked(problem).shown
    assert shown.system.resources == ("core", "mem")
    assert shown.running.jobs.id.tolist() == [1, -3]
    assert shown.running.end_s.tolist() == [NOW + 40] * 2
    assert (shown.running.usage(4)[3]).tolist() == [1, 44]


def test_jobs_that_never_fit_are_counted_before_the_replay() -> None:
    run = ran(jobs_of(units=[2, 2], mem=[4, 4], first_mem=[61, 60]))
    assert run.jobs["reason"].tolist() == ["never_fits", "started"]


def test_a_run_keeps_the_first_node_first_and_saves_and_resumes(tmp_path: Path) -> None:
    workload, machine = prepare(stream(), THIN)
    simulation = Simulation(workload, machine)
    easy, count = made("easy"), 0
    while (instance := simulation.advance()) is not None:
        simulation.apply(answer_of(easy, instance))
        count += 1
        if count % 7 == 0:
            simulation, easy = pickle.loads(pickle.dumps((simulation, easy)))
    run = simulate(workload, machine, made("easy"))
    assert simulation.records.start_s.tolist() == run.jobs["start"].tolist()
    run.save(tmp_path)
    again = Run.load(tmp_path)
    assert again.verify() == []
    assert next(iter(again.jobs["nodes"][2])) == 3


@pytest.mark.parametrize("name", ["easy", "conservative", "fifo", "hcp"])
@settings(max_examples=examples(20, least=6), deadline=None)
@given(taken_once(), st.data(), st.sampled_from(["", "all", "none"]))
def test_nodes_may_fail_and_lose_capacity(
    name: str, case: tuple[Workload, System], data: Any, requeue: str
) -> None:
    own = [k for k, name in enumerate(case[1].resources) if "@" not in name]
    names = tuple(case[1].resources[k] for k in own)
    plain = with_capacity(case[1], case[1].capacity[:, own], names)
    happens = data.draw(failures(plain.nodes)) + data.draw(changes(plain))
    for node in data.draw(st.sets(st.integers(0, plain.nodes - 1), max_size=2)):
        begin_s = data.draw(st.integers(5, 60))
        happens.append(Event(begin_s, MAINTAIN, (node,), begin_s + 9, begin_s - 5))
    happens.sort(key=lambda event: event.time_s)
    run = simulate(*case, made(name), events=of(happens, requeue))
    assert run.verify() == []


@pytest.mark.parametrize("name", ["easy:test=3s", "conservative:test=3s", "hcp:test=3s"])
@settings(max_examples=examples(20, least=6), deadline=None)
@given(taken_once(), st.data(), st.sampled_from([0, 2]))
def test_other_jobs_may_be_tested(
    name: str, case: tuple[Workload, System], data: Any, cost_s: int
) -> None:
    workload, machine = case
    flags = data.draw(st.lists(st.integers(0, 1), min_size=len(workload), max_size=len(workload)))
    table = workload.table.having(Column.RESTARTABLE, np.array(flags, dtype=np.int64))
    run = simulate(replace(workload, table=table), machine, made(name), restart_cost_s=cost_s)
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "backfilled", "late", "never_fits"}


@settings(max_examples=examples(20), deadline=None)
@given(taken_once(upper_bounds=True), st.integers(0, 60))
def test_a_power_cap_and_energy_count_what_is_taken_once(
    case: tuple[Workload, System], cap: int
) -> None:
    workload, machine = case
    drawing = replace(machine, watts={name: 3 for name in machine.resources if "@" not in name})
    for rules in ({}, {"power_cap": cap}):
        run = simulate(workload, drawing, made("easy"), **rules)
        assert run.verify() == []


def test_a_job_that_takes_more_power_on_its_first_node_than_there_is_waits() -> None:
    for cap, starts in ((56, True), (55, False)):
        file = file_of({"first": [0, 40]}, power={"cap": cap, "unit": [0, 1]})
        (nodes,) = started(file, "easy")
        assert (nodes is not None) == starts


def test_limits_count_what_is_taken_once() -> None:
    machine = replace(THIN, limits=(Limit(60, "mem"),))
    run = ran(jobs_of(units=[2, 2, 2], mem=[2, 2, 2], first_mem=[30, 30, 57]), system=machine)
    assert run.jobs["start"].tolist() == [0, 5, -1]
    nodes, units = [[3, 0], [3, 1], None], [[1, 1], [1, 1], None]
    moved = run.jobs.assign(start=[0, 0, -1], end=[5, 5, -1], nodes=nodes, node_units=units)
    assert Kind.LIMIT in {found.kind for found in verify.run(moved, run.system)}


def test_utilisation_and_energy_count_what_is_taken_once() -> None:
    machine = replace(THIN, watts={"mem": 2})
    run = ran(jobs_of(units=[2], mem=[4], first_mem=[40]), system=machine)
    assert utilisation(run.schedule())[1] == pytest.approx(48 / 112)
    assert run.jobs["energy_j"].tolist() == [5 * 2 * 48]
    used = {(use.group, use.resource): use.held for use in run.moment(1).use}
    assert used["fat", "mem"] == 48  # both units and the amount


def test_lost_work_counts_what_is_taken_once() -> None:
    workload = jobs_of(units=[2, 1], core=[1, 2], first_core=[2, 0])
    run = ran(workload, events=of([Event(3, FAIL, (0,)), Event(4, REPAIR, (0,))], "all"))
    assert run.jobs["requeued"].tolist() == [1, 0]
    assert run.metrics["wasted_processor_s"] == 3 * 4
    assert run.metrics["wasted_share"] == pytest.approx(12 / (12 + 5 * (4 + 2)))
    assert run.metrics["utilisation"] == pytest.approx(5 * (4 + 2) / (16 * 8))
    assert by_class(run.schedule())["short"]["wasted_processor_s"] == 3 * 4


# --------------------------------------------------------------------- what cannot be had, is said


def test_the_node_is_switched_on_that_a_job_needs_as_its_first_one() -> None:
    machine = replace(
        THIN, idle_watts={"n": 1, "fat": 1}, watts={"core": 1}, wake_s={"n": 5, "fat": 5}
    )
    log = jobs_of(submit=[0, 100], units=[1, 2], mem=[4, 4], first_mem=[0, 40])
    run = ran(log, "easy", machine, switch_off_s=5)
    assert run.jobs["start"].tolist() == [0, 105]
    assert run.jobs["nodes"][1][0] == 3
    assert run.switched_table is not None
    spells = run.switched_table.to_pandas()
    assert spells.loc[spells["wake"] == 100, "node"].tolist() == [3]


@settings(max_examples=examples(40), deadline=None)
@given(taken_once(), st.sampled_from(["easy", "conservative", "prb", "fifo"]))
def test_nodes_may_be_switched_off(case: tuple[Workload, System], name: str) -> None:
    workload, machine = case
    names = {group.site_name: 3 for group in machine.groups}
    machine = replace(machine, wake_s=names, idle_watts=names)
    run = simulate(workload, machine, made(name), switch_off_s=4)
    assert run.verify() == []
    assert set(run.jobs["reason"]) <= {"started", "backfilled", "late", "never_fits"}


def test_a_job_with_a_first_node_is_not_tested() -> None:
    log = jobs_of(units=[2, 2], mem=[4, 4], first_mem=[40, 0], runtime=500, requested=900,
                  restartable=[1, 1])  # fmt: skip
    run = ran(log, "easy:test=30s")
    assert run.jobs["restartable"].tolist() == [False, True]


# ---------------------------------------------------------------------------- what verify finds


def test_verify_finds_a_first_node_that_is_moved_or_dropped() -> None:
    run = ran(jobs_of(units=[2], mem=[4], first_mem=[40]))
    jobs = run.jobs
    assert next(iter(jobs["nodes"][0])) == 3
    moved = jobs.assign(nodes=[[3, 0]], node_units=[[1, 1]])
    assert verify.run(moved, run.system) == []
    moved = moved.assign(nodes=[[0, 3]])
    (found,) = verify.run(moved, run.system)
    assert found.kind is Kind.CAPACITY
    assert str(found) == "capacity: node 0 (n), mem at 0: 44 held by job 1, 16 allowed"
    more = moved.assign(**{"request_first@mem": [61]}, nodes=[[3, 0]])
    assert Kind.CAPACITY in {found.kind for found in verify.run(more, run.system)}
    left_out = jobs.assign(**{"request_first@mem": [61]})
    never = ("start", [-1]), ("end", [-1]), ("reason", ["never_fits"]), ("nodes", [None])
    for name, first in (*never, ("node_units", [None])):
        left_out[name] = first
    assert verify.run(left_out, run.system) == []
    left_out["request_first@mem"] = jobs["request_first@mem"]
    assert {found.kind for found in verify.run(left_out, run.system)} == {Kind.NEVER_STARTED}


@pytest.mark.parametrize("ends", [50, 100])
def test_verify_finds_a_late_job_that_was_passed_over_if_its_first_node_had_room(ends: int) -> None:
    # On the fat node the job that runs holds 30 of 64, and the late one needs 44.
    held = {"units": 2, "request_mem": 4, "request_first@mem": 26, "nodes": [3, 0]}
    late = {"units": 2, "request_mem": 4, "request_first@mem": 40, "nodes": [3, 0]}
    small = {"units": 1, "request_mem": 4, "request_first@mem": 0, "nodes": [1]}
    jobs = pd.DataFrame([
        {"id": k, "submit": 0, "start": start, "end": end, "requested_s": end - start,
         "runtime_s": end - start, "killed": False, "request_core": 1, "reason": "started",
         "node_units": [1] * job["units"]} | job
        for k, (job, start, end) in enumerate(
            [(held, 0, ends), (late, 150, 160), (small, 60, 90)]
        )
    ])  # fmt: skip
    _, system = prepare(jobs_of(units=[2], mem=[4], first_mem=[40]), THIN)
    decisions = pd.DataFrame({"time": [0, 60], "easy_wait": [0, 50]})
    rule = {"in_turn_after": 600, "wide": 0, "first_after": 1000}
    found = verify.run(jobs, system, decisions=decisions, wait=rule)
    assert [each.kind for each in found] == [Kind.LATE] * (ends == 50)


@pytest.mark.parametrize(("ends", "found"), [(10, "it could start at 1010"), (20, None)])
def test_verify_finds_a_starved_job_that_is_late_if_its_first_node_had_room(
    ends: int, found: str | None
) -> None:
    held = {"id": 1, "start": 900, "duration": 100 + ends, "units": 2, "unit": [1, 4],
            "first": [0, 26], "first_node": 3, "nodes": {"3": 1, "0": 1}}  # fmt: skip
    late = {"submit": 0, "units": 2, "first": [0, 40]}
    rule = {"threshold": 100, "bound": 100}
    problem = read(file_of(late, running=[held], starvation=rule))
    start_s, reason = np.array([NOW + 20]), np.array([Reason.RESERVED], dtype=np.int8)
    value = float(verify.objective_value(problem, "wait", {0: NOW + 20}))
    said = Certificate("mine", "wait", value=value)
    plan = Decision(start_s, reason, Placements.of({0: {3: 1, 1: 1}}), said)
    violations = verify.decision(problem, plan)
    assert [each.kind for each in violations] == [Kind.STARVATION] * (found is not None)
    assert found is None or found in violations[0].text


def test_verify_finds_a_job_of_no_second_whose_first_node_has_too_little() -> None:
    run = ran(jobs_of(units=[2, 1], mem=[4, 40], first_mem=[40, 0], runtime=[0, 5], submit=[1, 0]))
    table = run.jobs.sort_values("id")
    table = table.assign(start=[1, 0], end=[1, 5], nodes=[[3, 0], [3]], node_units=[[1, 1], [1]])
    found = verify.run(table, run.system)
    assert [str(one.kind) for one in found] == ["capacity"]
    assert "with 44 mem: 40 are held, 64 allowed" in found[0].text


@pytest.mark.parametrize("position", [0, 1])
def test_verify_finds_a_decision_whose_first_node_has_too_little(position: int) -> None:
    problem = read(file_of({"first": [0, 40]}))
    answer = answer_of(made("easy"), problem)
    order = ({3: 1, 0: 3}, {0: 3, 3: 1})[position]
    given_ = replace(answer, placements=Placements.of({0: order}))
    found = [str(one) for one in verify.decision(problem, given_)]
    says = "capacity: node 0 (n), mem at 1000: 52 needed by job 7, 16 free"
    assert found == [[], [says]][position]
    plan = solution.from_decision(problem, given_)
    assert len(verify.solution(problem, plan)) == position
    assert solution.explain(problem, replace(answer, start_s=answer.start_s * 0 - 1), 0) == (
        "waits for its turn"
    )


def test_a_solution_says_why_a_job_waits() -> None:
    held = {"id": 1, "start": 990, "duration": 50, "units": 1, "unit": [1, 30], "nodes": {"3": 1}}
    problem = read(file_of({"first": [0, 40]}, running=[held]))
    (job,) = solution.from_decision(problem, answer_of(made("prb"), problem)).jobs
    assert job.reason == "waits for mem on its first node"


def test_a_solution_says_that_a_reservation_takes_what_is_asked_of_the_first_node() -> None:
    holds = {"start": NOW + 10, "duration": 50, "nodes": [3], "capacity": [0, 30]}
    problem = read(file_of({"first": [0, 40]}, reservations=[holds]))
    answer = answer_of(made("easy"), problem)
    assert solution.explain(problem, answer, 0) == f"reserved from {NOW + 60}"
    waits_ = np.full(1, int(Reason.WAITS), dtype=np.int8)
    held_back = replace(answer, start_s=np.array([NO_START]), reason=waits_)
    assert solution.explain(problem, held_back, 0) == "waits for a reservation to end"


def test_explain_says_that_the_cap_leaves_less_than_a_job_draws_with_what_it_takes_once() -> None:
    system = replace(THIN, watts={"mem": 1})
    workload = jobs_of(units=[2, 1], mem=[4, 40], first_mem=[40, 0], submit=[1, 0])
    run = ran(workload, system=system, power_cap=60)
    assert run.jobs["start"].tolist() == [0, 5]  # by submission
    (stretch,) = run.explain(1).stretches
    assert "less was left than the 48 W that it draws" in str(stretch)


# --------------------------------------------------------------------------------------- files


@settings(max_examples=examples(100), deadline=None)
@given(instances(first=True, dependencies=True))
def test_an_instance_is_read_as_it_was_written(problem: Instance) -> None:
    again = loads(to_json(problem))
    assert to_json(again) == to_json(problem)
    assert again.free[:, : len(again.system.resources)].shape == again.free.shape
    for k, job in enumerate(problem.running.jobs):
        low = problem.running.offset[k]
        if any(job.request[once] for once, _ in problem.system.once):
            assert again.running.node[low] == problem.running.node[low]


def test_what_a_file_cannot_say_is_refused() -> None:
    run = {"id": 1, "start": 990, "duration": 50, "units": 2, "unit": [1, 4],
           "nodes": {"0": 1, "3": 1}, "first": [0, 2]}  # fmt: skip
    for file, says in (
        (file_of({"first": [1]}), r"queue\[0\].first: one number for each of 2 resources"),
        (file_of({"first": [0, -1]}), r"queue\[0\].first"),
        (file_of({"first": [0, 1], "restartable": True}), "cannot be restarted"),
        (file_of({"first": [0, 1]}, format="cpdispatch-instance/1"), "has no first nodes"),
        (file_of(running=[run]), r"running\[0\].first_node"),
        (file_of(running=[run | {"first_node": 1}]), r"none of its nodes: 0, 3"),
        (file_of(running=[run | {"first_node": 0, "first": []}]), "takes nothing on a first node"),
        (file_of(running=[run | {"first_node": 0, "first": [0, 40]}]), "overlap"),
    ):
        with pytest.raises(InputError, match=says):
            read(file)
    assert read(file_of(running=[run | {"first_node": 3}])).running.node.tolist() == [3, 0]


def test_where_jobs_may_run_and_what_they_take_once_go_together() -> None:
    file = file_of(
        {"first": [0, 8], "nodelist": "0-1"}, {"first": [2, 0], "units_per_node": 2},
        {"first": [0, 8], "units": 2, "units_per_node_max": 1, "exclusive": True},
    )  # fmt: skip
    problem = read(file)
    assert to_json(loads(to_json(problem))) == to_json(problem)
    for name in ("easy", "pcp:model=counts", "hcp"):
        nodes = started(file, name)
        assert nodes[0] is not None
        assert set(nodes[0]) <= {0, 1}
        assert nodes[1] is not None
        assert set(nodes[1].values()) == {1}


@settings(max_examples=examples(60), deadline=None)
@given(taken_once())
def test_explain_says_second_by_second_whether_a_job_fits(case: tuple[Workload, System]) -> None:
    run = simulate(*case, made("fifo"), compiled=False)
    schedule, kinds = run.occupancy, len(run.system.resources)
    for row in np.flatnonzero(schedule.start_s > schedule.submit_s).tolist():
        asks, none = schedule.asks(row), np.zeros(kinds, dtype=np.int64)
        first = asks[kinds:] if len(asks) > kinds else none
        ask = PlainAsk(asks[:kinds], first, int(schedule.units[row]))
        for stretch in explain(schedule, int(schedule.id[row])).stretches:
            for second in range(stretch.from_s, stretch.until_s):
                holds = schedule.during(second, second + 1)
                holds = holds.take(holds.row != row)
                free = run.system.capacity.copy()
                np.subtract.at(free, holds.node, schedule.amount(holds))
                assert bool(ask.firsts(free).any()) == (stretch.cause == "order")
                for once, kind in run.system.once:
                    if run.system.resources[once] in stretch.lacking:
                        unit = np.where(np.arange(kinds) == kind, ask.unit, 0)
                        amount = np.where(np.arange(kinds) == kind, first, 0)
                        alone = PlainAsk(unit, amount, ask.units)
                        assert alone.room(free).sum() >= ask.units
                        assert not alone.firsts(free).any()


def test_columns_of_tables_state_what_is_taken_once(tmp_path: Path) -> None:
    workload = jobs_of(units=[2, 1], mem_gb=[4, 4], first_mem_gb=[40, 8])
    assert workload.resources == ("core", "mem", "first_mem")
    table.write(workload, tmp_path / "jobs.csv")
    assert "first_mem_gb" in (tmp_path / "jobs.csv").read_text()
    kept, machine = prepare(str(tmp_path / "jobs.csv"), replace(THIN, memory_unit_kb=1024**2))
    assert machine.resources == ("core", "mem", "first@mem")
    assert kept.table.request.tolist() == [[1, 4, 40], [1, 12, 0]]
    assert prepare(jobs_of(units=[2], mem=[4], first_mem=[0]), THIN)[1].once == ()
    with pytest.raises(InputError, match="jobs ask for gpu, and the system thin has none"):
        prepare(jobs_of(units=[2], first_gpu=[1]), THIN)
    header = "id,submit,runtime,units,core,"
    for names, message in (
        ("first_", r"jobs\.csv:1: field first_: names no resource type"),
        ("node_first_core", r":1: field node_first_core: names no resource type; .*as node_core"),
        (
            "mem,first_mem_gb",
            r":1: field first_mem_gb: memory is .* two units, as mem and as mem_gb",
        ),
        ("mem_gb,first_mem", r":1: field first_mem: memory is stated in two units"),
        ("node_mem,first_mem_mb", r"field first_mem_mb: memory is stated in two units"),
    ):
        (tmp_path / "jobs.csv").write_text(header + names + "\n")
        with pytest.raises(InputError, match=message):
            table.read(tmp_path / "jobs.csv")


MAP = """
columns = {id = "n", submit = "t", runtime = "r", units = "u"}
resources = {core = {column = "c"}, mem = {column = "m", unit = "mb"}}
first = {mem = {column = "f", unit = "gb"}}
"""


def test_a_column_map_states_what_is_taken_once(tmp_path: Path) -> None:
    jobs, form = tmp_path / "jobs.csv", tmp_path / "map.toml"
    jobs.write_text("n,t,r,u,c,m,f\n1,0,9,2,1,100,2\n2,0,9,2,1,100,\n")
    form.write_text(MAP)
    found = column_map.read(jobs, str(form))
    assert found.workload.resources == ("core", "mem", "first_mem")
    assert found.workload.table.request.tolist() == [[1, 100, 2048], [1, 100, 0]]
    assert found.system.resources == ("core", "mem")
    assert found.system.total.tolist() == [4, 2448]
    run = simulate(*prepare(found.workload, found.system), made("easy"))
    assert run.verify() == []
    assert run.jobs["start"].tolist() == [0, 0]
    form.write_text(MAP.replace('column = "f"', 'column = "f", each = "job"'))
    with pytest.raises(InputError, match=r"first\.mem\.each"):
        column_map.read(jobs, str(form))


def test_a_system_needs_what_it_has_an_amount_of() -> None:
    with pytest.raises(InputError, match="stands for a resource type that there is not"):
        System("odd", ("core", "first@mem"), (NodeGroup("n", 1, (1, 1)),))


def test_a_learner_s_environment_keeps_to_first_nodes() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    del gymnasium
    from cpdispatch.rl import Dispatch

    workload, _ = prepare(stream(), THIN)
    env = Dispatch(stream(), THIN, jobs=len(workload))
    env.reset(seed=1, options={"first": 0})
    over = False
    while not over:
        _, _, over, _, info = env.step(0)
    assert info["metrics"]["jobs"] == len(workload)


def test_backfilling_remembers_promises_though_starts_do_not_happen() -> None:
    easy = made("conservative")
    assert isinstance(easy, Backfill)
    file = file_of({"first": [0, 40]}, {"first": [0, 40], "units": 3}, {"units": 3})
    for time in (NOW, NOW + 1, NOW + 2):
        problem = read(file | {"time": time})
        assert verify.decision(problem, answer_of(easy, problem)) == []
