from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch.adapters import accasim
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.dispatch import Settings
from cpdispatch.errors import DecisionError, InputError, UsageError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.simulator import simulate
from cpdispatch.system import NAMED, NodeGroup, System
from cpdispatch.workloads.generate import eurora_sample
from tests.scripts import ROOT, WITH_TESTS

needs_accasim = pytest.mark.skipif(
    find_spec("accasim") is None, reason="AccaSim is not installed: pip install '.[accasim]'"
)

ONE_NODE = System("one", ("core",), (NodeGroup("one", 1, (4,)),))
LIKE_NODES = System("like", ("core", "mem"), (NodeGroup("thin", 8, (4, 8)),))
INSIDE = f"{WITH_TESTS}from tests.adapters.inside import main; main(*sys.argv[1:])"
LIMIT_S = 20.0  # 50 times what it takes: a wall clock that ends a search makes two runs differ


def crowded(jobs: int = 200, seed: int = 0) -> Workload:
    """Jobs of every awkward kind: they outlive their requests, come and end at the same instants,
    begin at 0, ask for no memory, and their ids do not rise. Jobs for which the whole system is
    too small come at instants of their own: a dispatch there changes the schedule of easy.
    """
    draw = np.random.default_rng(seed)
    units, memory = draw.integers(1, 7, jobs), draw.integers(0, 9, jobs)
    units[draw.choice(jobs, jobs // 5, replace=False)] = 33
    requested = 10 * draw.integers(1, 30, jobs)
    submit = np.sort(10 * draw.integers(0, 3 * jobs, jobs)) + 3 * (units == 33)
    submit[0] = 0
    order = np.argsort(submit, kind="stable")
    block = job_block(
        id=draw.permutation(jobs) + 1,
        submit_s=submit[order],
        units=units[order],
        requested_s=requested,
        request=np.stack([draw.integers(1, 5, jobs), memory], axis=1),
        queue=draw.integers(0, 3, jobs),
    )
    runtime = np.maximum(1, requested * draw.choice([0.1, 0.5, 1.0, 1.7, 3.0], jobs)).astype(int)
    none = np.full(jobs, -1, dtype=np.int64)
    labels = {"queue": ("short", "long", "free")}
    return Workload("crowded", ("core", "mem"), JobTable(block, labels), runtime, none, none.copy())


def in_turn(rows: list[tuple[int, int]]) -> Workload:
    """Jobs of (submission, runtime), each as large as the one node of `ONE_NODE`."""
    submit, runtime = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    ids = np.arange(1, len(rows) + 1)
    block = job_block(id=ids, submit_s=submit, units=1, requested_s=50, request=[[4]] * len(rows))
    none = np.full(len(rows), -1, dtype=np.int64)
    return Workload("in turn", ("core",), JobTable(block), runtime, none, none.copy())


def case(workload: Workload, system: System, dispatcher: str) -> dict[str, Any]:
    """What `inside` needs to let AccaSim simulate the same."""
    table = workload.table
    return {
        "system": {
            "groups": {
                group.name: dict(zip(system.resources, group.capacity, strict=True))
                for group in system.groups
            },
            "resources": {group.name: group.nodes for group in system.groups},
        },
        "jobs": [
            {
                "job_id": job.id,
                "queued_time": job.submit_s,
                "duration": int(workload.runtime_s[row]),
                "expected_duration": job.requested_s,
                "requested_nodes": job.units,
                "requested_resources": dict(zip(system.resources, job.request, strict=True)),
                "queue": table.label("queue", row),
            }
            for row, job in enumerate(table)
        ],
        "dispatcher": dispatcher,
        "limit_s": LIMIT_S,
    }


def by_accasim(
    workload: Workload, system: System, dispatcher: str, folder: Path
) -> tuple[list[Any], int]:
    """Start, end and nodes of each job by AccaSim, and how many it rejected."""
    (folder / "case.json").write_text(json.dumps(case(workload, system, dispatcher)))
    done = subprocess.run(
        [sys.executable, "-c", INSIDE, folder / "case.json", folder / "said.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads((folder / "said.json").read_text())
    return said["ended"], said["rejected"]


def by_us(workload: Workload, system: System, dispatcher: str) -> tuple[list[Any], int]:
    """The same by our own simulator."""
    run = simulate(workload, system, dispatcher, settings=Settings(limit_s=LIMIT_S))
    ran = run.jobs[run.jobs["start"] >= 0]
    ended = sorted(
        [
            int(job.id),
            int(job.start),
            int(job.end),
            sorted([int(n), int(u)] for n, u in zip(job.nodes, job.node_units, strict=True)),
        ]
        for job in ran.itertuples()
    )
    return ended, len(run.jobs) - len(ran)


@needs_accasim
@pytest.mark.parametrize("dispatcher", ["easy", "easy-saf-spf", "fifo", "prb", "hcp:m=10"])
@pytest.mark.parametrize("system", ["like", "eurora"])
def test_accasim_and_our_simulator_give_the_same_starts_and_nodes(
    system: str, dispatcher: str, tmp_path: Path
) -> None:
    # Each decision on a full queue costs hcp a third of a second: fewer jobs tell as much.
    is_model = dispatcher.startswith("hcp")
    if system == "like":
        machine, workload = LIKE_NODES, crowded(20 if is_model else 200)
    else:
        machine, workload = NAMED["eurora"], eurora_sample(75 if is_model else 300, seed=1)
    assert by_accasim(workload, machine, dispatcher, tmp_path) == by_us(
        workload, machine, dispatcher
    )


@needs_accasim
def test_after_a_job_without_runtime_accasim_dispatches_again_only_at_its_next_event(
    tmp_path: Path,
) -> None:
    workload = in_turn([(10, 0), (10, 5), (100, 5)])
    ours, _ = by_us(workload, ONE_NODE, "easy")
    theirs, _ = by_accasim(workload, ONE_NODE, "easy", tmp_path)
    assert [start for _, start, _, _ in ours] == [10, 10, 100]
    assert [start for _, start, _, _ in theirs] == [10, 100, 105]


@needs_accasim
def test_the_example_runs_its_jobs_in_accasim_s_loop_and_leaves_no_file(tmp_path: Path) -> None:
    script = ROOT / "examples" / "accasim_loop.py"
    done = subprocess.run(
        [sys.executable, script, "--dispatcher", "easy-saf-spf", "--jobs", "60"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "Dispathing method: cpdispatch-easy-saf-spf" in said
    assert "Total jobs: 60" in said
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------- call by call, in this process


@dataclass
class Recorder:
    """A dispatcher that keeps what it was asked, and answers as another one or as it is told."""

    answer: Decision | None = None
    name: str = "recorder"
    seen: list[Instance] = field(default_factory=list)

    def dispatch(self, instance: Instance) -> Decision:
        self.seen.append(instance)
        return Backfill().dispatch(instance) if self.answer is None else self.answer


def told(jobs: int, reason: Reason, places: Mapping[int, Mapping[int, int]]) -> Decision:
    """A decision that starts the placed jobs at 10, with one reason for all others."""
    start = np.full(jobs, NO_START, dtype=np.int64)
    start[list(places)] = 10
    reasons = np.full(jobs, reason, dtype=np.int8)
    reasons[list(places)] = Reason.STARTED
    return Decision(start, reasons, Placements.of(places), Certificate("told"))


class Cluster:
    """AccaSim's own resource manager, jobs and scheduler, without its loop: two unlike nodes."""

    def __init__(self, dispatcher: object, **options: Any) -> None:
        resources = accasim.imported("base.resource_manager_class")
        self.manager = resources.ResourceManager(
            resources.Resources({"a": {"core": 4}, "b": {"core": 4, "gpu": 2}}, {"a": 1, "b": 1})
        )
        self.scheduler = accasim.scheduler(dispatcher, **options)  # type: ignore[arg-type]
        self.scheduler.set_resource_manager(self.manager)
        self.events: dict[str, Any] = {}
        self.queue: list[str] = []

    def submit(self, id: str, now: int, cores: int, expected: int = 50, **more: Any) -> None:
        event = accasim.imported("base.event_class").Event

        def never(self: Any) -> int:
            raise AssertionError("the real runtime was read")

        blind = type("Job", (event,), {"duration": property(never, lambda self, value: None)})
        job = blind(id, now, None, 1, {"core": cores})
        for name, value in {"expected_duration": expected, **more}.items():
            setattr(job, name, value)
        self.events[id] = job
        self.queue.append(id)

    def call(self, now: int) -> tuple[list[Any], list[str]]:
        """Ask the scheduler, and do what it says as AccaSim does."""
        plan, rejected = self.scheduler.schedule(now, self.events, self.queue)
        assert sorted([id for _, id, _ in plan] + rejected) == sorted(self.queue)
        for _, id, nodes in plan:
            if nodes:
                assert self.manager.allocate_event(self.events[id], nodes) == (True, "OK")
                self.events[id].start_time, self.events[id].assigned_nodes = now, nodes
        for id in rejected:
            del self.events[id]
        self.queue = [id for _, id, nodes in plan if not nodes]
        return plan, rejected

    def end(self, id: str) -> None:
        self.manager.remove_event(id)
        del self.events[id]


@needs_accasim
def test_the_snapshot_holds_what_accasim_knows_and_overdue_jobs_end_a_second_from_now() -> None:
    dispatcher = Recorder()
    cluster = Cluster(dispatcher)
    cluster.submit("7", 10, 3, expected=5, user_id="ann")
    cluster.submit("8", 10, 2, user_id=0)
    cluster.call(10)
    cluster.submit("nine", 20, 4)
    cluster.call(20)
    last = dispatcher.seen[-1]
    assert last.system.resources == ("core", "gpu")
    assert last.system.capacity.tolist() == [[4, 0], [4, 2]]
    assert last.free.tolist() == [[1, 0], [2, 2]]
    assert last.running.jobs.id.tolist() == [7, 8]
    assert [last.running.jobs.label("user", k) for k in (0, 1)] == ["ann", "0"]
    assert last.running.start_s.tolist() == [10, 10]
    assert last.running.end_s.tolist() == [21, 60]
    assert last.running.overdue.tolist() == [1, 0]
    assert last.running.node.tolist() == [0, 1]
    assert last.queue.id.tolist() == [accasim.NAMED_FROM]
    assert last.queue.submit_s.tolist() == [20]


@needs_accasim
def test_a_name_that_is_no_number_keeps_the_number_it_was_given() -> None:
    dispatcher = Recorder()
    cluster = Cluster(dispatcher)
    for id in ("b", "a", "07", "7"):
        cluster.submit(id, 10, 4)
    cluster.call(10)
    cluster.end("b")
    cluster.call(20)
    first = accasim.NAMED_FROM
    assert [seen.queue.id.tolist() for seen in dispatcher.seen] == [
        [first, first + 1, first + 2, 7],
        [first + 2, 7],
    ]


@needs_accasim
def test_there_is_no_dispatch_where_nothing_happened() -> None:
    dispatcher = Recorder()
    cluster = Cluster(dispatcher)
    for id in ("1", "2", "3"):
        cluster.submit(id, 10, 4)
    cluster.call(10)
    assert cluster.call(15) == ([(None, "3", [])], [])
    cluster.submit("4", 16, 5)
    assert cluster.call(16) == ([(None, "3", [])], ["4"])
    assert [seen.now for seen in dispatcher.seen] == [10]
    cluster.end("2")
    assert cluster.call(20)[0] == [(20, "3", ["node_2"])]


@needs_accasim
def test_nodes_out_of_service_are_down_and_a_change_of_them_is_dispatched() -> None:
    dispatcher = Recorder()
    cluster = Cluster(dispatcher)
    status = cluster.manager.system_resources()._resources_status
    status["node_1"] = 0
    cluster.submit("1", 10, 4)
    cluster.submit("2", 10, 4)
    assert cluster.call(10)[0] == [(10, "1", ["node_2"]), (None, "2", [])]
    assert dispatcher.seen[0].down.tolist() == [0]
    assert dispatcher.seen[0].free.tolist() == [[0, 0], [4, 2]]
    status["node_1"] = 1
    assert cluster.call(12)[0] == [(12, "2", ["node_1"])]


@needs_accasim
def test_waits_by_queue_are_stated_or_the_mean_so_far() -> None:
    dispatcher = Recorder()
    cluster = Cluster(dispatcher, expected_wait_s={"fast": 30})
    for id, queue in (("1", "slow"), ("2", "slow"), ("3", "slow"), ("4", "slow"), ("5", "fast")):
        cluster.submit(id, 10, 4, queue=queue)
    cluster.call(10)
    cluster.end("1")
    cluster.call(31)
    cluster.end("2")
    cluster.call(40)
    assert dispatcher.seen[0].queue.ewt_s.tolist() == [1, 1, 1, 1, 30]
    assert dispatcher.seen[1].queue.ewt_s.tolist() == [1, 1, 30]
    assert dispatcher.seen[2].queue.ewt_s.tolist() == [(0 + 0 + 21) // 3, 30]


@needs_accasim
@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.NEVER_FITS])
def test_refused_jobs_are_rejected_and_the_others_start_unit_by_unit(reason: Reason) -> None:
    cluster = Cluster(Recorder(told(2, reason, {1: {1: 1}})))
    cluster.submit("1", 10, 1)
    cluster.submit("2", 10, 1)
    assert cluster.call(10) == ([(10, "2", ["node_2"])], ["1"])


@needs_accasim
def test_an_infeasible_decision_is_not_passed_on() -> None:
    cluster = Cluster(Recorder(told(1, Reason.STARTED, {0: {5: 1}})))
    cluster.submit("1", 10, 1)
    with pytest.raises(DecisionError, match=r"recorder answered .* at time 10: node: .* node 5"):
        cluster.call(10)


@needs_accasim
def test_jobs_left_on_an_idle_system_for_ever_are_an_error_and_no_endless_loop() -> None:
    cluster = Cluster(Recorder(told(1, Reason.WAITS, {})))
    cluster.submit("1", 10, 1)
    cluster.call(10)
    with pytest.raises(DecisionError, match="recorder leaves 1 jobs waiting on an idle system"):
        cluster.call(11)


@needs_accasim
def test_jobs_wait_for_nodes_that_are_out_of_service() -> None:
    cluster = Cluster(Recorder())
    status = cluster.manager.system_resources()._resources_status
    status.update(node_1=0, node_2=0)
    cluster.submit("1", 10, 4)
    for now in (10, 11, 12):  # second by second, as nothing else is to come
        assert cluster.call(now) == ([(None, "1", [])], [])
    status["node_2"] = 1
    assert cluster.call(13)[0] == [(13, "1", ["node_2"])]


@needs_accasim
def test_an_error_of_a_dispatcher_of_ones_own_names_it_and_the_time() -> None:
    class Broken:
        name = "broken"

        def dispatch(self, instance: Instance) -> Decision:
            raise KeyError("x")

    cluster = Cluster(Broken())
    cluster.submit("1", 10, 1)
    with pytest.raises(DecisionError, match=r"dispatcher broken raised KeyError.* at time 10"):
        cluster.call(10)


@needs_accasim
@pytest.mark.parametrize(("cores", "expected", "name"), [
    (-1, 5, "requested_resources"), (1, -1, "expected_duration"),
])  # fmt: skip
def test_a_job_with_unknown_numbers_is_named_with_the_field(
    cores: int, expected: int, name: str
) -> None:
    cluster = Cluster("easy")
    cluster.submit("12", 10, cores, expected=expected)
    with pytest.raises(InputError, match=rf"AccaSim's job 12: field {name}: .* \(found -1\)"):
        cluster.call(10)


@needs_accasim
def test_a_job_that_asks_for_what_the_system_does_not_have_is_named() -> None:
    cluster = Cluster("easy")
    cluster.submit("13", 20, 1)
    cluster.events["13"].requested_resources["fpga"] = 2
    with pytest.raises(InputError, match=r"job 13: field requested_resources: the system has no f"):
        cluster.call(20)


@needs_accasim
def test_the_sites_priority_of_a_job_is_heeded_where_its_reader_gave_one() -> None:
    cluster = Cluster("easy:primary=priority")
    for id, priority in (("1", 0), ("2", 5), ("3", 9)):
        cluster.submit(id, 10, 4, priority=priority)
    assert [id for _, id, nodes in cluster.call(10)[0] if nodes] == ["3", "2"]
    cluster.submit("4", 20, 4, priority=-1)
    with pytest.raises(InputError, match="AccaSim's job 4: field priority"):
        cluster.call(20)


@needs_accasim
@pytest.mark.parametrize(
    ("name", "value"),
    [("features", "a100"), ("exclusive", True), ("licences", "matlab"), ("begin", 70),
     ("array_limit", 2), ("nodes_min", 2), ("hold", True), ("first_gpu", 1), ("node_core", 1)],
)  # fmt: skip
def test_what_accasim_could_not_keep_to_is_refused(name: str, value: object) -> None:
    cluster = Cluster("easy")
    cluster.submit("12", 10, 1, **{name: value})
    with pytest.raises(InputError, match=rf"job 12: field {name}: AccaSim does not know it"):
        cluster.call(10)


@needs_accasim
def test_the_missing_alias_is_there_only_during_the_import() -> None:
    import collections

    accasim.imported("base.simulator_class")
    assert not hasattr(collections, "Mapping")


def test_without_accasim_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("accasim", "accasim.base", "accasim.base.scheduler_class"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"pip install 'cpdispatch\[accasim\]'"):
        accasim.scheduler("easy")


@pytest.mark.parametrize("name", ["easy:test=120", "conservative:test=9", "best:test=60"])
def test_a_dispatcher_that_makes_test_runs_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="makes test runs, and AccaSim cannot kill a job"):
        accasim.scheduler(name)
