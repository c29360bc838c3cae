"""Nodes that fail and come back while a simulation runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli, verify
from cpdispatch.data import Moment
from cpdispatch.errors import DecisionError, InterruptedRunError, UsageError
from cpdispatch.events import (
    CAPACITY,
    DRAIN,
    FAIL,
    JOIN,
    LEAVE,
    MAINTAIN,
    REPAIR,
    UNDRAIN,
    CapacityRow,
    Checkpoints,
    Event,
    Events,
    Row,
    WindowRow,
    read,
)
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator import Run, Watch, simulate
from cpdispatch.simulator.replay import finished
from cpdispatch.simulator.saved import CHECKPOINT
from cpdispatch.system import NodeGroup, System
from cpdispatch.verify import Kind
from cpdispatch.workloads import prepare
from cpdispatch.workloads.table import from_table
from tests.effort import examples
from tests.oracles.plain_events import expected_everywhere, replay
from tests.simulator.cases import Row as JobRow
from tests.simulator.cases import on_nodes, starting, two_nodes, workload
from tests.strategies import systems, workloads

FOUR = System("four", ("core",), (NodeGroup("node", 4, (1,)),))


def happen(*rows: tuple[int, str, str], requeue: str = "") -> Events:
    return Events(
        ("case.csv",), tuple(Row(k + 2, *row) for k, row in enumerate(rows)), requeue=requeue
    )


def of(events: list[Event], requeue: str = "") -> Events:
    rows: list[Row] = []
    for k, e in enumerate(events):
        row = (k + 2, e.time_s, e.kind, " ".join(map(str, e.nodes)))
        if e.kind == MAINTAIN:
            rows.append(WindowRow(*row, e.until_s, e.known_s))
        else:
            rows.append(CapacityRow(*row, e.capacity) if e.kind == CAPACITY else Row(*row))
    return Events(("case.csv",), tuple(rows), requeue=requeue)


def restartable(log: Workload, which: list[int]) -> Workload:
    columns = list(log.table.columns)
    columns[Column.RESTARTABLE] = np.array(which, dtype=np.int64)
    return replace(log, table=JobTable(columns))


def run(rows: list[JobRow], events: Events, dispatcher: str = "easy", **how: Any) -> Run:
    made = simulate(workload(rows), FOUR, dispatcher, events=events, **how)
    assert made.verify() == []
    return made


def times(made: Run) -> list[tuple[int, int]]:
    return list(zip(made.jobs["start"].tolist(), made.jobs["end"].tolist(), strict=True))


def attempts(made: Run) -> list[tuple[int, int, int]]:
    table = made.attempt_table
    assert table is not None
    return [tuple(row[name] for name in ("id", "start", "end")) for row in table.to_pylist()]


# ------------------------------------------------------------------------ what happens to jobs


def test_a_job_whose_node_fails_is_queued_again_and_its_work_is_lost() -> None:
    made = run([(0, 2, 100, 50), (0, 1, 100, 30)], happen((20, FAIL, "1"), (200, REPAIR, "1")))
    # Job 1 holds the nodes 0 and 1, job 2 the node 2: 0 and 3 are free when node 1 fails.
    assert attempts(made) == [(1, 0, 20)]
    assert times(made) == [(20, 70), (0, 30)]
    assert made.jobs["nodes"].tolist()[0] == [0, 3]
    assert made.jobs["requeued"].tolist() == [1, 0]
    assert made.metrics["requeues"] == 1
    assert made.metrics["failed"] == 0
    assert made.metrics["node_failures"] == 1
    assert made.metrics["wasted_processor_s"] == 2 * 20
    assert made.metrics["wasted_share"] == pytest.approx(40 / (40 + 100 + 30))
    assert made.about["compiled"] is False


def test_events_after_the_end_of_the_last_job_are_counted() -> None:
    happened, late = (20, FAIL, "1"), (200, REPAIR, "1")
    rows = [(0, 2, 100, 50), (0, 1, 100, 30)]
    assert run(rows, happen(happened)).about["notes"] == {}
    notes = run(rows, happen(happened, late, (300, FAIL, "1"))).about["notes"]
    assert notes == {"ignored: events after the end of the last job": 2}


def test_events_before_the_first_submission_are_counted() -> None:
    events = happen((100, FAIL, "1"), (200, REPAIR, "1"), (1010, DRAIN, "2"))
    made = run([(1000, 1, 10, 10), (1005, 1, 30, 30)], events)
    notes = {"events before the first submission, on the clock of the log": 2}
    assert made.about["notes"] == notes


def test_a_job_that_may_not_be_queued_again_ends_as_failed_and_is_counted() -> None:
    log = restartable(workload([(0, 1, 100, 50), (0, 1, 100, 50)]), [0, 1])
    made = simulate(log, FOUR, "easy", events=happen((20, FAIL, "0-1"), (30, REPAIR, "0-1")))
    assert made.verify() == []
    assert times(made) == [(0, 20), (20, 70)]
    assert made.jobs["failed"].tolist() == [True, False]
    assert made.jobs["killed"].tolist() == [False, False]
    assert made.metrics["failed"] == 1
    assert made.metrics["requeues"] == 1
    assert made.metrics["wasted_processor_s"] == 20 + 20
    assert made.metrics["utilisation"] == pytest.approx(50 / (4 * 70))


@pytest.mark.parametrize(("requeue", "failed"), [("all", 0), ("none", 2), ("restartable", 1)])
def test_who_is_queued_again_can_be_chosen(requeue: str, failed: int) -> None:
    log = restartable(workload([(0, 1, 100, 50), (0, 1, 100, 50)]), [0, 1])
    events = happen((20, FAIL, "0 1"), (30, REPAIR, "0 1"), requeue=requeue)
    made = simulate(log, FOUR, "easy", events=events)
    assert made.verify() == []
    assert made.metrics["failed"] == failed


def test_a_job_is_queued_again_five_times_and_then_ends_as_failed() -> None:
    rows = [
        (t, kind, "all") for k in range(7) for t, kind in ((10 * k + 5, FAIL), (10 * k + 6, REPAIR))
    ]
    made = run([(0, 4, 100, 50)], happen(*rows))
    assert [end for _, _, end in attempts(made)] == [5, 15, 25, 35, 45]
    assert times(made) == [(46, 55)]
    assert made.jobs["failed"].tolist() == [True]


def test_explain_says_that_a_job_ended_as_failed_and_which_attempt_came_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        (t, kind, "all") for k in range(6) for t, kind in ((10 * k + 5, FAIL), (10 * k + 6, REPAIR))
    ]
    finished(run([(0, 4, 100, 50)], happen(*events)), tmp_path)
    assert cli.run(["explain", str(tmp_path), "--job", "1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "at 55 s, after 9 s, as failed: it was stopped and not queued again" in told
    assert told.count("first tried") == 1
    assert told.count("then tried") == 4


def test_a_job_that_ends_as_its_node_fails_has_ended() -> None:
    for trigger in ("instant", "event"):
        made = run([(0, 4, 50, 20), (20, 2, 50, 5)], happen((20, FAIL, "0")), trigger=trigger)
        assert times(made) == [(0, 20), (20, 25)], trigger
        assert attempts(made) == []


def test_a_job_too_wide_for_what_is_in_service_waits_for_the_repair() -> None:
    rows = [(0, 1, 10, 10), (5, 4, 10, 10), (6, 1, 100, 100)]
    made = run(rows, happen((2, FAIL, "3"), (40, REPAIR, "3")))
    # It blocks nobody while a node is down: when it is up again, job 3 is in the way.
    assert times(made) == [(0, 10), (106, 116), (6, 106)]


def test_jobs_whose_nodes_never_come_back_are_counted() -> None:
    made = run([(0, 1, 10, 10), (5, 4, 10, 10)], happen((2, FAIL, "3")))
    assert times(made) == [(0, 10), (-1, -1)]
    assert made.jobs["reason"].tolist() == ["started", "waits"]
    assert made.metrics["jobs_never_started"] == 1


def test_a_drained_node_takes_no_new_job_and_the_one_on_it_ends() -> None:
    rows = [(0, 1, 50, 50), (5, 4, 10, 10), (6, 3, 10, 10), (60, 4, 10, 10)]
    course = happen((2, DRAIN, "0"), (70, UNDRAIN, "0"))
    for dispatcher in ("easy", "conservative", "prb", "hcp"):
        made = run(rows, course, dispatcher)
        assert times(made) == [(0, 50), (70, 80), (6, 16), (80, 90)], dispatcher
        assert attempts(made) == []
        assert made.metrics["node_failures"] == 0


def test_a_drained_node_may_fail_and_stays_drained_when_it_is_repaired() -> None:
    course = happen((2, DRAIN, "all"), (20, FAIL, "0"), (30, REPAIR, "0"), (40, UNDRAIN, "all"))
    made = run([(0, 1, 50, 50)], course)
    assert attempts(made) == [(1, 0, 20)]
    assert times(made) == [(40, 90)]


def test_nodes_join_and_leave_for_good() -> None:
    course = happen((20, JOIN, "3"), (30, LEAVE, "0-1"))
    rows = [(0, 3, 10, 10), (12, 4, 5, 5), (21, 1, 50, 50), (26, 2, 20, 20), (31, 2, 5, 5),
            (32, 3, 1, 1)]  # fmt: skip
    for dispatcher in ("easy", "conservative", "prb", "hcp"):
        made = run(rows, course, dispatcher)
        # Job 2 waits for the node that comes; job 3 ends on one that has left; job 6 is too wide.
        assert times(made) == [(0, 10), (20, 25), (25, 75), (26, 46), (46, 51), (-1, -1)]
        assert made.jobs["nodes"].tolist()[2:5] == [[0], [1, 2], [2, 3]]
        assert attempts(made) == []


def test_a_node_that_joins_first_is_not_there_before(tmp_path: Path) -> None:
    made = run([(0, 1, 10, 10), (20, 1, 10, 10)], happen((15, JOIN, "3"), (18, LEAVE, "0")))
    assert made.jobs["nodes"].tolist() == [[0], [1]]
    assert made.happened == (
        Event(0, LEAVE, (3,)), Event(15, JOIN, (3,)), Event(18, LEAVE, (0,)),
    )  # fmt: skip
    spoiled(made, Kind.DOWN, job_table=poked(made.job_table, "nodes", 0, [3]))
    spoiled(made, Kind.DOWN, job_table=poked(made.job_table, "nodes", 1, [0]))
    finished(made, tmp_path)
    assert Run.load(tmp_path).verify() == []
    again = run([(0, 1, 10, 10), (20, 1, 10, 10)], read(str(tmp_path / "events.csv")))
    assert again.happened == made.happened


GPUS = System("gpus", ("core", "gpu"), (NodeGroup("node", 2, (4, 2)),))


def resized(*rows: tuple[int, str, dict[str, int]]) -> Events:
    return Events(
        ("case.csv",),
        tuple(
            CapacityRow(k + 2, at, CAPACITY, nodes, tuple(has.items()))
            for k, (at, nodes, has) in enumerate(rows)
        ),
    )


def on_gpus(rows: list[tuple[int, int, int, int]]) -> Workload:
    """Jobs of one unit: submission, runtime, cores, GPUs."""
    log, _ = prepare(from_table({
        "id": np.arange(1, len(rows) + 1), "units": 1,
        **{name: np.array([row[k] for row in rows])
           for k, name in enumerate(("submit", "runtime", "core", "gpu"))},
    }), GPUS)  # fmt: skip
    return log


def test_a_gpu_that_fails_stops_the_job_that_has_no_room_any_more(tmp_path: Path) -> None:
    log = on_gpus([(0, 100, 1, 1), (1, 100, 1, 1), (2, 100, 1, 2), (3, 10, 1, 0)])
    events = resized((50, "0", {"gpu": 1}), (90, "0", {"gpu": 2}))
    made = simulate(log, GPUS, "easy", events=events)
    # On node 0 the job that started first stays, the other one waits for a GPU.
    assert attempts(made) == [(2, 1, 50)]
    assert times(made) == [(0, 100), (90, 190), (2, 102), (3, 13)]
    assert made.verify() == []
    spoiled(
        made, Kind.CAPACITY, job_table=poked(poked(made.job_table, "start", 1, 60), "end", 1, 160)
    )
    happened = made.happened or ()
    spoiled(made, Kind.RESTART, happened=happened[1:])
    spoiled(
        made, Kind.RESTART, happened=(replace(happened[0], capacity=(("gpu", 2),)), happened[1])
    )
    found = made.explain(2).stretches
    assert {kind for stretch in found for kind in stretch.lacking} <= {"gpu"}
    finished(made, tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.happened == made.happened
    assert loaded.verify() == []
    again = simulate(log, GPUS, "easy", events=read(str(tmp_path / "events.csv")))
    assert again.job_table.equals(made.job_table)


def test_a_job_that_asks_for_what_is_gone_waits_and_blocks_nobody() -> None:
    log = on_gpus([(0, 100, 1, 2), (5, 10, 4, 0), (6, 10, 4, 0)])
    for dispatcher in ("easy", "conservative", "hcp:limit=0.05"):
        events = resized((0, "0-1", {"gpu": 1}), (60, "1", {"gpu": 2}))
        made = simulate(log, GPUS, dispatcher, events=events)
        assert times(made) == [(60, 160), (5, 15), (6, 16)], dispatcher
        assert made.verify() == []
    stays = simulate(log, GPUS, "easy", events=resized((0, "0-1", {"gpu": 1})))
    assert stays.jobs["start"].tolist()[0] == -1
    assert stays.verify() == []
    spoiled(stays, Kind.NEVER_STARTED, happened=())


def test_the_checker_reports_a_stop_that_the_lost_capacity_did_not_need() -> None:
    log = on_gpus([(0, 100, 1, 1), (1, 100, 1, 1)])
    made = simulate(log, GPUS, "easy", events=resized((50, "0", {"gpu": 0})))
    assert len(attempts(made)) == 2
    half = replace((made.happened or ())[0], capacity=(("gpu", 1),))
    spoiled(made, Kind.RESTART, happened=(half,))


def saving(events: Events, every_s: int, cost_s: int = 0) -> Events:
    return replace(events, checkpoints=Checkpoints(every_s, cost_s))


def test_explain_says_the_wait_of_the_figures_and_what_checkpoints_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run([(0, 4, 100, 100)], saving(happen((70, FAIL, "0"), (90, REPAIR, "0")), 30))
    assert attempts(made) == [(1, 0, 70)]
    found = made.explain(1)
    assert (found.start_s, found.saved_s, found.wait_s) == (90, 60, 30)
    assert found.wait_s == made.metrics["wait_s_mean"]
    finished(made, tmp_path)
    assert cli.run(["explain", str(tmp_path), "--job", "1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Job 1 waited 30 s" in told
    assert "60 s of that by its checkpoints" in told
    assert "started at 90 s, 90 s later" in told


def test_what_checkpoints_kept_of_a_job_that_fails_in_the_end_is_wait(tmp_path: Path) -> None:
    rows = [
        row for k in range(6) for row in ((100 * k + 70, FAIL, "0"), (100 * k + 80, REPAIR, "0"))
    ]
    made = run([(0, 4, 1000, 1000)], saving(happen(*rows), 30))
    assert made.attempt_table is not None
    assert made.attempt_table.column("saved_s").to_pylist() == [60, 90, 90, 90, 90]
    assert times(made) == [(480, 570)]
    assert made.jobs["failed"].tolist() == [True]
    assert made.metrics["wait_s_mean"] == 480
    assert made.metrics["slowdown_mean"] == (480 + 90) / 90
    assert made.metrics["wasted_processor_s"] == 4 * (70 + 4 * 90 + 90)
    found = made.explain(1)
    assert (found.wait_s, found.saved_s, found.failed) == (480, 0, True)
    finished(made, tmp_path)
    assert Run.load(tmp_path).verify() == []


@pytest.mark.parametrize(("cost_s", "lasts_s"), [(0, 100), (1, 104)])
def test_the_time_limit_of_a_partition_is_that_without_checkpoints(
    cost_s: int, lasts_s: int
) -> None:
    system = two_nodes(
        partitions=[
            {"name": "short", "nodes": "0", "limit_s": 100, "tier": 2},
            {"name": "long", "nodes": "1"},
        ]
    )
    jobs, system = on_nodes(
        system, submit=[0], runtime=100, requested=100, units=1, partition=["short,long"]
    )
    fail = happen((1000, FAIL, "0"), (1100, REPAIR, "0"))
    made = simulate(jobs, system, "easy", events=saving(fail, 20, cost_s))
    assert times(made) == [(0, lasts_s)]
    assert made.verify() == []


def test_a_job_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    rows, fail = [(0, 1, 100, 100)], happen((60, FAIL, "0"), (70, REPAIR, "0"))
    free = run(rows, saving(fail, 25))
    # 50 s are kept, 10 s are lost, and 50 s are left.
    assert attempts(free) == [(1, 0, 60)]
    assert times(free) == [(60, 110)]
    assert free.metrics["wasted_processor_s"] == 10
    assert free.metrics["wait_s_mean"] == 10
    assert free.metrics["utilisation"] == pytest.approx(100 / (4 * 110))
    # Four of the five parts of 20 s are followed by a checkpoint of 5 s: 120 s in all.
    made = run(rows, saving(fail, 20, 5), kill_at_limit=True)
    assert times(made) == [(60, 130)]
    assert made.jobs["runtime_s"].tolist() == [120]
    assert made.metrics["wasted_processor_s"] == 10
    spoiled(made, Kind.RESTART, attempt_table=poked(made.attempt_table, "saved_s", 0, 25))
    spoiled(made, Kind.DURATION, job_table=poked(made.job_table, "end", 0, 129))
    about = made.about["events"] | {"checkpoints": {"every_s": 30, "cost_s": 5}}
    spoiled(made, Kind.RESTART, about=made.about | {"events": about})
    finished(made, tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.verify() == []
    assert loaded.metrics == pytest.approx(made.metrics, nan_ok=True)


def test_what_a_job_kept_is_lost_when_it_ends_as_failed() -> None:
    rows = [
        (t, kind, "all") for k in range(6) for t, kind in ((10 * k + 8, FAIL), (10 * k + 9, REPAIR))
    ]
    made = run([(0, 4, 100, 60)], saving(happen(*rows), 5))
    assert made.jobs["failed"].tolist() == [True]
    assert made.metrics["wasted_processor_s"] == 4 * (8 + 5 * 9)


@pytest.mark.parametrize("trigger", ["instant", "event"])
@settings(max_examples=examples(25), deadline=None)
@given(st.data(), st.integers(1, 20), st.integers(0, 4), st.booleans())
def test_every_schedule_with_checkpoints_is_sound(
    trigger: str, data: st.DataObject, every_s: int, cost_s: int, limit: bool
) -> None:
    log, system, events, requeue = data.draw(cases())
    dispatcher = data.draw(st.sampled_from(["easy", "conservative", "best", "sjf"]))
    made = simulate(
        log, system, dispatcher, predictor="walltime", trigger=trigger, kill_at_limit=limit,
        events=saving(of(events, requeue), every_s, cost_s),
    )  # fmt: skip
    assert made.verify() == []


@settings(max_examples=examples(50), deadline=None)
@given(st.data(), st.integers(1, 20), st.integers(0, 4))
def test_easy_with_checkpoints_is_its_plain_twin(
    data: st.DataObject, every_s: int, cost_s: int
) -> None:
    log, system, events, requeue = data.draw(cases())
    made = simulate(log, system, "easy", events=saving(of(events, requeue), every_s, cost_s))
    choice = verify.Service((), None, requeue).may_requeue(log.table.restartable == 1)  # type: ignore[arg-type]
    twin = replay(log, system, events, choice.tolist(), (every_s, cost_s))
    found = made.jobs[["start", "end", "requeued"]].to_numpy().T.tolist()
    assert found == expected_everywhere(twin).tolist()


def test_the_checker_reports_a_start_on_a_drained_node() -> None:
    made = run([(0, 4, 10, 10), (5, 1, 10, 10)], happen((2, DRAIN, "0-1"), (50, UNDRAIN, "0-1")))
    assert made.jobs["nodes"].tolist()[1] == [2]
    spoiled(made, Kind.DOWN, job_table=poked(made.job_table, "nodes", 1, [1]))
    happened = made.happened or ()
    spoiled(made, Kind.DOWN, happened=(replace(happened[0], nodes=(2,)), *happened[1:]))


def test_strict_orders_stay_strict_while_a_node_is_down() -> None:
    rows = [(0, 1, 10, 10), (5, 4, 10, 10), (6, 1, 5, 5)]
    made = run(rows, happen((2, FAIL, "3"), (40, REPAIR, "3")), "fifo")
    assert times(made) == [(0, 10), (40, 50), (50, 55)]


def test_a_job_that_comes_after_a_failed_one_may_start() -> None:
    log = workload([(0, 1, 100, 50), (0, 1, 5, 5)], after={2: (1, 3)})
    events = happen((20, FAIL, "0"), requeue="none")
    for trigger in ("instant", "event"):
        made = simulate(log, FOUR, "easy", dependencies=True, events=events, trigger=trigger)
        assert times(made) == [(0, 20), (23, 28)], trigger
        assert made.verify() == []


def test_a_drawn_failure_depends_on_the_seed_and_the_node_alone() -> None:
    spec = "weibull:mtbf=100s,shape=0.7,repair=20s"
    rows = [(k, 1, 30, 30) for k in range(0, 300, 10)]
    one, again = (run(rows, read(spec)) for _ in range(2))
    assert one.happened == again.happened
    assert one.job_table.equals(again.job_table)
    assert one.metrics["node_failures"] > 5
    first = {n: [e.time_s for e in one.happened or () if e.nodes == (n,)][:1] for n in range(4)}
    system = replace(FOUR, groups=(NodeGroup("node", 4, (1,)), NodeGroup("more", 2, (1,))))
    wide = simulate(workload(rows), system, "easy", events=spec)
    assert {
        n: [e.time_s for e in wide.happened or () if e.nodes == (n,)][:1] for n in range(4)
    } == first


def test_times_between_drawn_failures_have_the_mean_that_was_asked_for() -> None:
    from cpdispatch.simulator.course import Course

    for spec in ("weibull:mtbf=1000s,shape=0.7,repair=10s", "exponential:mtbf=1000s,repair=10s"):
        course = Course(read(spec), replace(FOUR, groups=(NodeGroup("n", 50, (1,)),)), 3, 0)
        up: dict[int, int] = dict.fromkeys(range(50), 0)
        lasted = []
        while len(lasted) < 20_000:
            event = course.take()
            if event.kind == FAIL:
                lasted.append(event.time_s - up[event.nodes[0]])
            else:
                up[event.nodes[0]] = event.time_s
        assert np.mean(lasted) == pytest.approx(1000, rel=0.05), spec


def test_a_run_in_which_nothing_can_start_any_more_ends() -> None:
    spec = "exponential:mtbf=1s,repair=1000s"
    made = run([(0, 4, 10, 10), (0, 1, 10, 5)], read(spec))
    assert made.metrics["jobs_never_started"] >= 1


class Tick:
    """Additional data that changes every second."""

    name = "tick"

    def value(self, moment: Moment) -> int:
        return moment.now_s

    def next_s(self, now_s: int) -> int:
        return now_s + 1


FLAPPING = [(7 + k, REPAIR if k % 2 else FAIL, "3") for k in range(40)]


@pytest.mark.parametrize(
    ("flapping", "how"), [(FLAPPING, {}), ([], {"data": [Tick()]})], ids=["events", "data"]
)
@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_is_not_given_up_while_a_repair_is_to_come(
    flapping: list[tuple[int, str, str]], how: dict[str, Any], trigger: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("cpdispatch.simulator.simulation._PATIENCE", 10)
    events = happen((5, FAIL, "0"), *flapping, (60, REPAIR, "0"))
    made = run([(6, 4, 10, 10)], events, trigger=trigger, **how)
    assert times(made) == [(60, 70)]


def test_a_job_that_no_event_to_come_lets_start_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cpdispatch.simulator.simulation._PATIENCE", 10)
    events = happen((5, FAIL, "0"), (60, FAIL, "1"))
    made = run([(6, 4, 10, 10)], events, data=[Tick()])
    assert made.jobs["reason"].tolist() == ["waits"]
    assert made.happened is not None
    assert len(made.happened) == 2


# ------------------------------------------------------------------ every schedule, every rule


@st.composite
def failures(draw: st.DrawFn, nodes: int, last_s: int = 80) -> list[Event]:
    """Nodes that fail, are drained or leave, and come back, in order; some never do."""
    found = []
    for node in range(nodes):
        for begins, ends, most in ((FAIL, REPAIR, 6), (DRAIN, UNDRAIN, 3), (LEAVE, JOIN, 2)):
            at = sorted(draw(st.sets(st.integers(0, last_s), max_size=most)))
            found += [Event(t, ends if k % 2 else begins, (node,)) for k, t in enumerate(at)]
    return sorted(found, key=lambda event: event.time_s)


@st.composite
def changes(draw: st.DrawFn, system: System, last_s: int = 80) -> list[Event]:
    """Nodes that lose resources and get some back, in order; none loses all."""
    found = []
    for node in range(system.nodes):
        has = system.capacity[node].tolist()
        for at in sorted(draw(st.sets(st.integers(0, last_s), max_size=3))):
            amounts = [draw(st.integers(0, most)) for most in has]
            if not any(amounts):
                amounts = has
            pairs = tuple(zip(system.resources, amounts, strict=True))
            if any(amounts):
                found.append(Event(at, CAPACITY, (node,), capacity=pairs))
    return sorted(found, key=lambda event: event.time_s)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System, list[Event], str]:
    system = draw(systems())
    log = draw(workloads(system))
    happens = draw(failures(system.nodes)) + draw(changes(system))
    happens.sort(key=lambda event: event.time_s)
    which = draw(st.lists(st.integers(0, 1), min_size=len(log), max_size=len(log)))
    return (
        restartable(log, which), system, happens,
        draw(st.sampled_from(["", "all", "none", "restartable"])),
    )  # fmt: skip


RULES = ["easy", "easy-spf-saf", "easy:depth=2", "easy:allocate=best-fit", "conservative", "fifo",
         "sjf", "prb", "best", "easy:wait=0.5", "reject"]  # fmt: skip


def test_waits_are_bounded_where_no_node_has_a_processor_at_first() -> None:
    log = on_gpus([(0, 5, 0, 1), (0, 5, 1, 0)])
    events = resized((0, "0-1", {"core": 0}), (20, "0-1", {"core": 4}))
    made = simulate(log, GPUS, "easy-saf-saf:wait=0.6", events=events)
    assert made.verify() == []
    assert times(made) == [(0, 5), (20, 25)]


@pytest.mark.parametrize("trigger", ["instant", "event"])
@pytest.mark.parametrize("dispatcher", RULES)
@settings(max_examples=examples(25), deadline=None)
@given(cases(), st.booleans())
def test_every_schedule_with_failures_is_sound(
    dispatcher: str, trigger: str, case: tuple[Workload, System, list[Event], str], limit: bool
) -> None:
    log, system, events, requeue = case
    made = simulate(
        log, system, dispatcher, predictor="walltime", events=of(events, requeue), trigger=trigger,
        kill_at_limit=limit,
    )  # fmt: skip
    assert made.verify() == []
    jobs = made.jobs
    known = (jobs["end"] >= 0) | jobs["reason"].isin(["never_fits", "waits", "rejected"])
    assert known.all()


@pytest.mark.parametrize(
    "dispatcher", ["hcp:limit=0.05", "pcp:limit=0.05", "thesis-pcp1:limit=0.05"]
)
@settings(max_examples=examples(6), deadline=None)
@given(cases())
def test_models_take_part(dispatcher: str, case: tuple[Workload, System, list[Event], str]) -> None:
    log, system, events, requeue = case
    assert simulate(log, system, dispatcher, events=of(events, requeue)).verify() == []


@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_easy_with_failures_is_its_plain_twin_job_by_job(
    case: tuple[Workload, System, list[Event], str],
) -> None:
    log, system, events, requeue = case
    made = simulate(log, system, "easy", events=of(events, requeue))
    choice = verify.Service((), None, requeue).may_requeue(log.table.restartable == 1)  # type: ignore[arg-type]
    twin = replay(log, system, events, choice.tolist())
    assert made.jobs[["start", "end", "requeued"]].to_numpy().T.tolist() == (
        expected_everywhere(twin).tolist()
    )
    assert made.jobs["failed"].tolist() == [job.failed for job in twin]
    lost = [(job.row, start, end) for job in twin for start, end, _ in job.lost]
    assert attempts(made) == lost
    nodes = [
        dict(zip(n, u, strict=True))
        for n, u in zip(made.jobs["nodes"], made.jobs["node_units"], strict=True)
    ]
    assert nodes == [dict(sorted(job.nodes.items())) for job in twin]


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.integers(0, 10))
def test_conservative_keeps_its_promises_until_a_node_is_lost(
    case: tuple[Workload, System, list[Event], str], slack: int
) -> None:
    log, system, events, requeue = case
    log = replace(log, runtime_s=np.minimum(log.runtime_s, log.table.requested_s))
    promised: dict[int, int] = {}
    lost = (FAIL, DRAIN, LEAVE, CAPACITY)
    first_s = min((e.time_s for e in events if e.kind in lost), default=2**62)

    class Noted:
        name = "noted"

        def __init__(self) -> None:
            from cpdispatch.dispatch import make

            self.inner = make("conservative")

        def dispatch(self, instance: Any) -> Any:
            decision = self.inner.dispatch(instance)
            for id, start_s in zip(
                instance.queue.id.tolist(), decision.start_s.tolist(), strict=True
            ):
                if instance.now < first_s and start_s >= 0:
                    assert start_s <= promised.get(id, start_s)
                    promised[id] = start_s
            return decision

    made = simulate(log, system, Noted(), events=of(events, requeue))
    starts = dict(zip(made.jobs["id"].tolist(), made.jobs["start"].tolist(), strict=True))
    for id, start_s in promised.items():
        if start_s < first_s and start_s < 2**61:
            began = [s for job, s, _ in attempts(made) if job == id]
            assert min([*began, *([starts[id]] * (not began))]) <= start_s


# ------------------------------------------------------------------------ interrupted and saved


@pytest.mark.parametrize("events", ["weibull:mtbf=600s,shape=0.7,repair=2min", "file"])
@pytest.mark.parametrize("decisions", [1, 40, 150])
def test_a_run_with_events_is_resumed_to_the_same_bytes(
    tmp_path: Path, events: str, decisions: int
) -> None:
    log = workload([(7 * k, 1 + k % 4, 100, 20 + 31 * k % 90) for k in range(120)])
    if events == "file":
        file = tmp_path / "events.csv"
        rows = ["100,fail,1,", "150,repair,1,", "400,fail,0 2-3,", "460,repair,0 2-3,"]
        rows += ["500,capacity,1,core=1"]
        file.write_text("\n".join(["time,kind,nodes,capacity", *rows]))
        events = str(file)
    how: dict[str, Any] = {"events": read(events, checkpoints="every=30s,cost=2s")}
    whole = simulate(log, FOUR, "conservative", **how)
    finished(whole, tmp_path / "whole")
    folder = tmp_path / "parts"
    count = iter(range(decisions))
    stopped = Watch(folder=folder, stop=lambda: next(count, None) is None)
    with pytest.raises(InterruptedRunError):
        simulate(log, FOUR, "conservative", watch=stopped, **how)
    assert (folder / CHECKPOINT).exists()
    with pytest.raises(UsageError, match="its events"):
        simulate(log, FOUR, "conservative", watch=Watch(folder=folder, resume=True))
    resumed = simulate(log, FOUR, "conservative", watch=Watch(folder=folder, resume=True), **how)
    finished(resumed, folder)
    for name in ("jobs.parquet", "attempts.parquet", "events.csv", "schedule.swf"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    loaded = Run.load(folder)
    assert loaded.happened == whole.happened
    assert loaded.metrics["wasted_processor_s"] == whole.metrics["wasted_processor_s"]
    assert loaded.verify() == []


def test_what_happened_can_be_given_to_another_run(tmp_path: Path) -> None:
    rows = [(k, 1 + k % 3, 60, 40) for k in range(0, 400, 8)]
    drawn = run(rows, read("exponential:mtbf=200s,repair=30s"))
    finished(drawn, tmp_path)
    again = run(rows, read(str(tmp_path / "events.csv")))
    assert again.job_table.equals(drawn.job_table)


# ------------------------------------------------------------------------------ the checker


def spoiled(made: Run, kind: Kind, **changes: Any) -> None:
    assert made.verify() == []
    found = replace(made, **changes).verify()
    assert kind in {violation.kind for violation in found}, found


SOUND = [(0, 2, 100, 50), (0, 1, 100, 30), (0, 1, 40, 40)]
COURSE = happen((20, FAIL, "1"), (25, REPAIR, "1"), (60, FAIL, "3"))


def poked(table: Any, name: str, row: int, value: Any) -> Any:
    column = table.column(name).to_pylist()
    column[row] = value
    import pyarrow as pa

    return table.set_column(
        table.column_names.index(name), name, pa.array(column, table.column(name).type)
    )


def test_the_checker_reports_a_job_on_a_node_that_is_down() -> None:
    made = run(SOUND, COURSE)
    assert attempts(made) == [(1, 0, 20)]
    jobs = made.job_table
    # Job 1 runs again from 25 on; at 22 its node 1 was down.
    start = jobs.column("start").to_pylist()[0]
    assert start == 25
    moved = poked(poked(jobs, "start", 0, 22), "end", 0, 72)
    spoiled(made, Kind.DOWN, job_table=moved)
    happened = made.happened or ()
    spoiled(made, Kind.DOWN, happened=(happened[0], *happened[2:]))
    earlier = replace(happened[0], time_s=19)
    spoiled(made, Kind.DOWN, happened=(earlier, *happened[1:]))


def test_the_checker_reports_a_stop_without_a_failure_and_one_too_many() -> None:
    made = run(SOUND, COURSE)
    happened, table = made.happened or (), made.attempt_table
    assert table is not None
    spoiled(made, Kind.RESTART, happened=happened[2:])
    spoiled(made, Kind.RESTART, attempt_table=table.slice(0, 0))
    spoiled(made, Kind.RESTART, job_table=poked(made.job_table, "requeued", 1, 1))
    spoiled(made, Kind.RESTART, about=made.about | {"events": {"requeue": "none"}})
    spoiled(made, Kind.EARLY_START, attempt_table=poked(table, "start", 0, -5))
    spoiled(made, Kind.EARLY_START, attempt_table=poked(table, "end", 0, 26))
    spoiled(made, Kind.DURATION, attempt_table=poked(poked(table, "end", 0, 0), "start", 0, 20))
    spoiled(made, Kind.UNITS, attempt_table=poked(table, "node_units", 0, [1, 2]))
    spoiled(made, Kind.CAPACITY, attempt_table=poked(table, "nodes", 0, [1, 2]))


def test_the_checker_reports_a_job_that_ends_as_failed_and_should_not() -> None:
    made = run(SOUND, replace(COURSE, requeue="none"))
    assert made.jobs["failed"].tolist() == [True, False, False]
    spoiled(made, Kind.DURATION, job_table=poked(made.job_table, "failed", 0, False))
    spoiled(made, Kind.RESTART, about=made.about | {"events": {"requeue": "all"}})
    spoiled(made, Kind.RESTART, job_table=poked(made.job_table, "end", 0, 19))
    spoiled(made, Kind.RESTART, happened=(made.happened or ())[2:])


def test_the_checker_reports_that_an_earlier_job_was_stopped_for_a_lack_and_a_later_one_not() -> (
    None
):
    log = on_gpus([(0, 60, 1, 1), (5, 60, 1, 1), (6, 100, 1, 2)])
    made = simulate(log, GPUS, "easy", events=resized((10, "0", {"gpu": 1})))
    assert attempts(made) == [(2, 5, 10)]
    assert times(made) == [(0, 60), (60, 120), (6, 106)]
    assert made.verify() == []
    attempt: Any = made.attempt_table
    for name, value in (("id", 1), ("start", 0)):
        attempt = poked(attempt, name, 0, value)
    table = made.job_table
    for name, values in (("start", (65, 5)), ("end", (125, 65)), ("requeued", (1, 0))):
        for row, value in enumerate(values):
            table = poked(table, name, row, value)
    spoiled(made, Kind.RESTART, job_table=table, attempt_table=attempt)


def test_the_checker_reports_an_attempt_that_starts_before_what_it_comes_after_has_ended() -> None:
    rows = [(0, 1, 15, 15), (0, 1, 20, 20)]
    log = workload(rows, {2: (1, 0)})
    made = simulate(log, FOUR, "easy", events=happen((20, FAIL, "0")), dependencies=True)
    assert attempts(made) == [(2, 15, 20)]
    assert made.verify() == []
    spoiled(made, Kind.DEPENDENCY, attempt_table=poked(made.attempt_table, "start", 0, 14))
    log = workload([(0, 1, 8, 8), (0, 1, 100, 50), (9, 4, 5, 5)], {2: (1, 0)})
    made = simulate(
        restartable(log, [0, 1, 0]), FOUR, "easy-spf-spf:test=4,tests=turn", dependencies=True
    )
    assert made.jobs["lost_start"].tolist() == [-1, 8, -1]
    assert made.verify() == []
    table = poked(made.job_table, "lost_start", 1, 7)
    spoiled(made, Kind.DEPENDENCY, job_table=poked(table, "lost_end", 1, 11))


def test_the_checker_reports_a_job_that_waits_in_the_end_though_its_nodes_are_there() -> None:
    made = run([(0, 1, 10, 10), (5, 4, 10, 10)], happen((2, FAIL, "3")))
    back = (*(made.happened or ()), Event(40, REPAIR, (3,)))
    spoiled(made, Kind.NEVER_STARTED, happened=back)


# ------------------------------------------------------------------------------- what is refused


def test_a_dispatcher_that_uses_a_node_that_is_down_is_told_so() -> None:
    class Careless:
        name = "careless"

        def dispatch(self, instance: Any) -> Any:
            return starting(instance, [0], {0: 1})

    with pytest.raises(DecisionError, match="down"):
        simulate(workload([(5, 1, 9, 9)]), FOUR, Careless(), events=happen((2, FAIL, "0")))
