"""Starts with a bound: a job that outlives it goes on, or is killed and waits again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import NO_BOUND, NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.errors import DecisionError, UsageError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import Instance, loads, to_json
from cpdispatch.jobs import Job
from cpdispatch.simulator import Run, Simulation, Watch, simulate
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads.restarts import mark
from tests.effort import examples
from tests.simulator.cases import Row, workload

POOL = System.pool(4)
NODES = System("two", ("core",), (NodeGroup("n", 2, (2,)),), 2)


@dataclass
class Scripted:
    """Starts jobs as a script says: at a time, by id, units by node; some with a bound."""

    script: dict[int, dict[int, dict[int, int]]]
    bound_s: dict[int, int]
    name: str = "scripted"
    seen: list[Instance] = field(default_factory=list)

    def dispatch(self, instance: Instance) -> Decision:
        self.seen.append(instance)
        ids = instance.queue.id.tolist()
        now = self.script.get(instance.now, {})
        places = {ids.index(id): nodes for id, nodes in now.items()}
        start = np.full(len(ids), NO_START, dtype=np.int64)
        bound = np.full(len(ids), NO_BOUND, dtype=np.int64)
        start[list(places)] = instance.now
        held = {} if instance.stopped is None else instance.stopped.held()
        for position in places:
            if position not in held:
                bound[position] = self.bound_s.pop(ids[position], NO_BOUND)
        reason = np.where(start >= 0, Reason.STARTED, Reason.WAITS).astype(np.int8)
        return Decision(start, reason, Placements.of(places), Certificate(self.name), bound)


def bounding_run(
    rows: list[Row], script: dict[int, dict[int, dict[int, int]]], bound_s: dict[int, int],
    system: System = POOL, share: float = 1.0, **how: Any,
) -> tuple[Run, list[Instance]]:  # fmt: skip
    dispatcher = Scripted(script, bound_s)
    run = simulate(mark(workload(rows), share), system, dispatcher, **how)
    return run, dispatcher.seen


def test_a_stopped_job_is_queued_with_its_nodes_free_and_goes_on_as_if_nothing_had_been() -> None:
    run, seen = bounding_run([(0, 3, 100, 50)], {0: {1: {0: 3}}, 10: {1: {0: 3}}}, {1: 10})
    first, then = seen
    assert first.stopped is None
    assert then.now == 10
    assert then.queue.id.tolist() == [1]
    assert then.free.tolist() == [[4]]
    assert len(then.running) == 0
    assert then.stopped is not None
    assert then.stopped.held() == {0: (0, {0: 3})}
    assert then.queue.requested_s.tolist() == [100]
    assert run.jobs["start"].tolist() == [0]
    assert run.jobs["end"].tolist() == [50]
    assert run.jobs["lost_start"].tolist() == [-1]
    assert run.jobs["test"].tolist() == ["went_on"]
    assert run.verify() == []


def test_a_stopped_job_that_does_not_start_is_killed_and_waits_again() -> None:
    script = {0: {1: {0: 3}, 2: {0: 1}}, 10: {}, 30: {1: {0: 3}}}
    run, seen = bounding_run([(0, 3, 100, 50), (0, 1, 30, 30)], script, {1: 10})
    assert run.jobs["start"].tolist() == [30, 0]
    assert run.jobs["end"].tolist() == [80, 30]
    assert run.jobs["lost_start"].tolist() == [0, -1]
    assert run.jobs["lost_end"].tolist() == [10, -1]
    assert [list(nodes) for nodes in run.jobs["lost_nodes"]] == [[0], []]
    assert run.jobs["test"].tolist() == ["killed", "none"]
    assert seen[-1].queue.restartable.tolist() == [0]
    assert seen[-1].stopped is None
    assert run.metrics["restarts"] == 1
    assert run.metrics["wasted_processor_s"] == 30
    assert run.verify() == []


def test_a_job_that_ends_by_its_bound_is_not_stopped() -> None:
    run, seen = bounding_run([(0, 3, 100, 10)], {0: {1: {0: 3}}}, {1: 10})
    assert len(seen) == 1
    assert run.jobs["test"].tolist() == ["ended"]
    assert run.jobs["end"].tolist() == [10]


def test_while_it_runs_it_is_taken_to_end_at_its_bound() -> None:
    script = {0: {1: {0: 3}}, 4: {}, 10: {1: {0: 3}}, 12: {}, 50: {2: {0: 1}, 3: {0: 1}}}
    run, seen = bounding_run([(0, 3, 100, 50), (4, 1, 5, 5), (12, 1, 5, 5)], script, {1: 10})
    bounded, going_on = seen[1].running, seen[3].running
    assert bounded.end_s.tolist() == [10]
    assert bounded.requested_end_s().tolist() == [10]
    assert bounded.whole_end_s().tolist() == [100]
    assert bounded.bound_s is not None
    assert bounded.bound_s.tolist() == [10]
    again = loads(to_json(seen[1])).running
    assert again.bound_s is not None
    assert (again.bound_s.tolist(), again.whole_end_s().tolist()) == ([10], [100])
    assert bounded.jobs.restartable.tolist() == [1]
    assert going_on.start_s.tolist() == [0]
    assert going_on.end_s.tolist() == [100]
    assert going_on.bound_s is None
    assert going_on.jobs.requested_s.tolist() == [100]
    assert run.verify() == []


def test_a_job_that_starts_on_other_nodes_is_killed() -> None:
    script = {0: {1: {0: 2}}, 10: {1: {1: 2}}}
    run, _ = bounding_run([(0, 2, 100, 50)], script, {1: 10}, NODES)
    assert run.jobs["start"].tolist() == [10]
    assert run.jobs["lost_end"].tolist() == [10]
    assert [list(nodes) for nodes in run.jobs["nodes"]] == [[1]]
    assert run.jobs["test"].tolist() == ["killed"]
    assert run.verify() == []


def test_others_may_take_the_nodes_of_a_job_that_is_killed() -> None:
    script = {0: {1: {0: 3}}, 10: {2: {0: 4}}, 15: {1: {0: 3}}}
    run, _ = bounding_run([(0, 3, 100, 50), (5, 4, 5, 5)], script, {1: 10})
    assert run.jobs["start"].tolist() == [15, 10]
    assert run.verify() == []


def test_where_killing_takes_time_the_nodes_are_busy_and_the_next_run_is_longer() -> None:
    script = {0: {1: {0: 3}}, 10: {2: {0: 1}}, 20: {1: {0: 3}}, 77: {3: {0: 4}}}
    rows = [(0, 3, 100, 50), (5, 1, 10, 10), (14, 4, 5, 5)]
    run, seen = bounding_run(rows, script, {1: 10}, restart_cost_s=7)
    busy = next(instance for instance in seen if instance.now == 14)
    assert busy.queue.id.tolist() == [3]
    assert busy.running.jobs.id.tolist() == [1, 2]
    assert busy.running.end_s.tolist() == [17, 20]
    assert busy.running.requested_end_s().tolist() == [17, 20]
    assert busy.running.whole_end_s().tolist() == [124, 20]  # it is to start anew
    assert {instance.restart_cost_s for instance in seen} == {7}
    assert seen[1].running.end_s.tolist() == [17]
    again = next(instance for instance in seen if instance.now == 17)
    assert again.queue.id.tolist() == [1, 3]
    assert again.queue.restartable.tolist() == [0, 1]
    assert run.jobs["lost_end"].tolist() == [17, -1, -1]
    assert run.verify() == []


def test_nodes_that_are_still_busy_cannot_be_used() -> None:
    with pytest.raises(DecisionError, match="6 needed by jobs 1, 2, 4 free"):
        bounding_run(
            [(0, 3, 100, 50), (5, 3, 10, 10)], {0: {1: {0: 3}}, 10: {2: {0: 3}}}, {1: 10},
            restart_cost_s=7,
        )  # fmt: skip


def test_a_job_that_may_not_be_restarted_has_no_bound() -> None:
    with pytest.raises(DecisionError, match="bound of 10 s and may not be restarted"):
        bounding_run([(0, 3, 100, 50)], {0: {1: {0: 3}}}, {1: 10}, share=0.0)


@pytest.mark.parametrize("cost", [-1, 1.5, float("nan"), "5", None, True, 2**70])
def test_a_cost_is_a_whole_number_of_seconds(cost: Any) -> None:
    with pytest.raises(UsageError, match=r"^restart_cost_s .*: a whole number of seconds, "):
        simulate(workload([(0, 3, 100, 50)]), POOL, restart_cost_s=cost)
    with pytest.raises(UsageError, match=r"^restart_cost_s .*: a whole number of seconds, "):
        Simulation(workload([(0, 3, 100, 50)]), POOL, restart_cost_s=cost)


def test_a_cost_may_be_a_number_of_numpy(tmp_path: Path) -> None:
    run = simulate(workload([(0, 3, 100, 50)]), POOL, restart_cost_s=np.int64(3))
    run.save(tmp_path)
    assert Run.load(tmp_path).about["restart_cost_s"] == 3


class Watches:
    """A predictor that is told of everything, and asked again."""

    name = "watches"

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def predict(self, job: Job, now: int) -> float:
        return 6

    def refresh(self, job: Job, elapsed_s: int) -> float:
        self.heard.append(("refresh", job.id, elapsed_s))
        return elapsed_s + 20

    def start(self, job: Job, now: int) -> None:
        self.heard.append(("start", job.id, now))

    def restart(self, job: Job, now: int) -> None:
        self.heard.append(("restart", job.id, now))

    def learn(self, job: Job, runtime_s: int) -> None:
        self.heard.append(("learn", job.id, runtime_s))


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_is_known_after_a_test_goes_to_the_predictor(goes_on: bool) -> None:
    predictor = Watches()
    script = {0: {1: {0: 3}, 2: {0: 1}}, 10: {1: {0: 3}} if goes_on else {}, 12: {1: {0: 3}}}
    if goes_on:
        del script[12]
    _, seen = bounding_run(
        [(0, 3, 100, 50), (0, 1, 12, 12)], script, {1: 10}, predictor=predictor,
        correction="requested",
    )  # fmt: skip
    stopped = next(instance for instance in seen if instance.now == 10)
    assert stopped.queue.expected_s.tolist() == [30]
    assert predictor.heard[:3] == [("start", 1, 0), ("start", 2, 0), ("refresh", 1, 10)]
    assert (("restart", 1, 10) in predictor.heard) is not goes_on
    assert predictor.heard.count(("start", 1, 12)) == 1 - goes_on


@dataclass
class Anyhow:
    """EASY that bounds starts and lets stopped jobs go on as a random generator says."""

    seed: int
    name: str = "anyhow"

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)

    def dispatch(self, instance: Instance) -> Decision:
        stopped = {} if instance.stopped is None else instance.stopped.held()
        held = {k: nodes for k, (_, nodes) in stopped.items()}
        stays = {k: nodes for k, nodes in held.items() if self.draw.random() < 0.5}
        left = instance.free.copy()
        for k, nodes in held.items():
            if k in stays or instance.restart_cost_s:
                for node, units in nodes.items():
                    left[node] -= units * instance.queue.request[k]
        places = dict(stays)
        for k in range(len(instance.queue)):
            gone = k in held and instance.restart_cost_s
            if k in places or gone or self.draw.random() < 0.3:
                continue
            nodes, wanted = {}, int(instance.queue.units[k])
            for node in range(len(left)):
                room = min(wanted - sum(nodes.values()), int(left[node, 0]))
                if room > 0:
                    nodes[node] = room
            if sum(nodes.values()) == wanted:
                places[k] = nodes
                for node, units in nodes.items():
                    left[node] -= units * instance.queue.request[k]
        jobs = len(instance.queue)
        start = np.full(jobs, NO_START, dtype=np.int64)
        start[list(places)] = instance.now
        bound = np.where(
            (start == instance.now) & (instance.queue.restartable == 1),
            self.draw.integers(0, 12, jobs), NO_BOUND,
        )  # fmt: skip
        bound[list(held)] = NO_BOUND
        closing = held and instance.restart_cost_s
        if not places and not len(instance.running) and not closing:
            return Backfill().dispatch(instance)  # or nothing would ever happen again
        reason = np.where(start >= 0, Reason.STARTED, Reason.WAITS).astype(np.int8)
        return Decision(start, reason, Placements.of(places), Certificate(self.name), bound)


rows = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 4), st.integers(1, 40), st.integers(1, 60)),
    min_size=1, max_size=20,
).map(sorted)  # fmt: skip


@settings(deadline=None, max_examples=examples(300))
@given(
    rows, st.integers(0, 99), st.sampled_from([0, 0, 3]), st.sampled_from(["instant", "event"]),
    st.booleans(), st.sampled_from([POOL, NODES]), st.sampled_from([0.5, 1.0]),
    st.sampled_from(["minimal", "incremental", "requested"]),
)  # fmt: skip
def test_whatever_a_dispatcher_bounds_the_schedule_is_sound(
    jobs: list[Row], seed: int, cost_s: int, trigger: str, kill_at_limit: bool, system: System,
    share: float, correction: str,
) -> None:  # fmt: skip
    log = mark(workload(jobs), share, seed)
    held: dict[int, int] = {}

    def look(instance: Instance) -> None:
        usage = instance.running.usage(system.nodes)
        assert (system.capacity - usage == instance.free).all()
        assert (instance.running.end_s > instance.now).all()
        assert not set(instance.queue.id.tolist()) & set(instance.running.jobs.id.tolist())
        held[instance.now] = 0 if instance.stopped is None else len(instance.stopped.position)

    run = simulate(
        log, system, Anyhow(seed), trigger=trigger, correction=correction, predictor="last2",
        kill_at_limit=kill_at_limit, restart_cost_s=cost_s, watch=Watch(seen=look),
    )  # fmt: skip
    assert run.verify() == []
    table = run.jobs
    if run.restarts:
        lost = table["lost_start"] >= 0
        assert ((table.get("test", "none") == "killed") == lost).all()
        assert not (lost & (log.table.restartable == 0)).any()
        assert (
            (table["lost_end"] - table["lost_start"])[lost].between(cost_s + 1, cost_s + 12).all()
        )


SOUND = [(0, 3, 100, 50), (0, 1, 100, 9), (3, 2, 5, 5)]


@pytest.mark.parametrize(
    ("change", "cost_s", "complaint"),
    [
        ({"restartable": False}, 7, "restart: job 1 is killed at 17 and may not be restarted"),
        ({"lost_end": 16}, 17, "killed for a restart: -1 s"),
        ({}, 0, "job 1 runs from 22 to 79: 57 s, runtime 50 s"),
        ({"end": 78}, 7, "job 1 runs from 22 to 78: 49 s, runtime 50 s"),
        ({}, 7, ""),
    ],
)
def test_a_run_that_cannot_have_been_is_found(
    change: dict[str, Any], cost_s: int, complaint: str
) -> None:
    script = {0: {1: {0: 3}, 2: {0: 1}}, 17: {3: {0: 2}}, 22: {1: {0: 3}}}
    run, _ = bounding_run(SOUND, script, {1: 10}, restart_cost_s=7)
    jobs = run.jobs.copy()
    assert jobs["start"].tolist() == [22, 0, 17]
    for name, value in change.items():
        jobs.loc[:, name] = jobs.get(name, True)
        jobs.at[0, name] = value
    found = verify.run(jobs, POOL, restarts=True, restart_cost_s=cost_s)
    assert any(complaint in str(violation) for violation in found) if complaint else found == []


@settings(deadline=None, max_examples=examples(200))
@given(
    rows, st.integers(1, 9), st.sampled_from(["left", "backfill", "turn"]),
    st.sampled_from([0, 3]), st.sampled_from(["instant", "event"]), st.integers(0, 9),
    st.sampled_from([POOL, NODES]),
)  # fmt: skip
def test_a_job_waits_for_the_end_of_one_that_is_tested_before_it(
    jobs: list[Row], test_s: int, tests: str, cost_s: int, trigger: str, think_s: int,
    system: System,
) -> None:  # fmt: skip
    after = {id: (id - 1, think_s * (id % 2)) for id in range(2, len(jobs) + 1, 2)}
    run = simulate(
        mark(workload(jobs, after), 1.0), system, Backfill(test_s=test_s, tests=tests),
        restart_cost_s=cost_s, trigger=trigger, dependencies=True,
    )  # fmt: skip
    assert run.verify() == []
