"""Test runs, kills by a predictor and their cost, while nodes fail, are drained and come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.errors import InterruptedRunError, UsageError
from cpdispatch.events import (
    CAPACITY,
    DRAIN,
    FAIL,
    MAINTAIN,
    REPAIR,
    UNDRAIN,
    CapacityRow,
    Checkpoints,
    Event,
    Events,
    Row,
    WindowRow,
)
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator import Run, Watch, simulate
from cpdispatch.simulator.replay import finished
from cpdispatch.system import System
from cpdispatch.verify import Kind, Service
from tests.effort import examples
from tests.simulator.cases import Row as JobRow
from tests.simulator.cases import workload
from tests.simulator.test_events import (
    FOUR,
    GPUS,
    attempts,
    changes,
    failures,
    happen,
    on_gpus,
    resized,
    restartable,
    times,
)
from tests.simulator.test_restart import Judge
from tests.strategies import systems, workloads

BLOCKER: list[JobRow] = [(0, 3, 100, 100), (0, 4, 50, 50)]
"""On four nodes: three are taken for 100 s, and all four are reserved from then on."""


def run(rows: list[JobRow], events: Events, dispatcher: str = "easy:test=10", **how: Any) -> Run:
    """All jobs but the blockers may be tested, where nothing else fits."""
    which = [int(k >= len(BLOCKER)) for k in range(len(rows))]
    made = simulate(restartable(workload(rows), which), FOUR, dispatcher, events=events, **how)
    assert made.verify() == []
    return made


def lost(made: Run) -> list[tuple[int, int]]:
    return list(zip(made.jobs["lost_start"].tolist(), made.jobs["lost_end"].tolist(), strict=True))


# ------------------------------------------------------------------------ what becomes of a test


def test_a_test_goes_on_and_is_killed_beside_events_as_without() -> None:
    quiet = happen((500, FAIL, "0"))
    made = run([*BLOCKER, (1, 1, 200, 5), (1, 1, 200, 40)], quiet)
    assert made.jobs["test"].tolist() == ["none", "none", "ended", "killed"]
    assert times(made)[2] == (1, 6)
    assert lost(made)[3] == (6, 16)
    assert times(made)[3] == (150, 190)


def test_a_test_whose_node_fails_counts_as_none_and_the_job_is_tested_again() -> None:
    made = run([*BLOCKER, (1, 1, 200, 8)], happen((5, FAIL, "3"), (20, REPAIR, "3")))
    assert attempts(made) == [(3, 1, 5)]
    assert made.attempt_table is not None
    assert made.attempt_table["test"].to_pylist() == [True]
    assert made.jobs["test"].tolist() == ["none", "none", "ended"]
    assert times(made)[2] == (20, 28)
    assert made.jobs["requeued"].tolist() == [0, 0, 1]


def test_a_node_that_fails_as_the_test_is_over_stops_it() -> None:
    made = run([*BLOCKER, (1, 1, 200, 40)], happen((11, FAIL, "3"), (30, REPAIR, "3")))
    assert attempts(made) == [(3, 1, 11)]
    assert lost(made)[2] == (30, 40)  # tested again, and killed
    assert made.jobs["test"].tolist() == ["none", "none", "killed"]


def test_a_job_under_test_that_may_not_be_queued_again_ends_as_failed() -> None:
    events = happen((11, FAIL, "3"), requeue="none")
    made = run([*BLOCKER, (1, 1, 200, 40)], events)
    assert made.jobs["failed"].tolist() == [False, False, True]
    assert times(made)[2] == (1, 11)
    assert made.jobs["test"].tolist() == ["none", "none", "ended"]


def test_a_job_under_test_on_a_drained_node_is_killed_when_its_test_is_over() -> None:
    """Without the drain it would go on: the node is free until all four are reserved."""
    rows = [(0, 3, 100, 100), (2, 4, 50, 50), (3, 1, 90, 40)]
    log = restartable(workload(rows), [0, 0, 1])
    tests = "easy:test=10,tests=turn"
    quiet, drained = happen((999, FAIL, "0")), happen((5, DRAIN, "3"))
    goes_on = simulate(log, FOUR, tests, events=quiet)
    stops = simulate(log, FOUR, tests, events=drained)
    assert (goes_on.verify(), stops.verify()) == ([], [])
    assert goes_on.jobs["test"].tolist()[2] == "went_on"
    assert stops.jobs["test"].tolist()[2] == "killed"
    assert lost(stops)[2] == (3, 13)


def test_nobody_is_asked_when_the_only_job_in_the_queue_is_killed() -> None:
    """Its node is drained when its test is over, and clearing it takes time."""
    log = restartable(workload([(0, 1, 1000, 500), (1000, 1, 50, 10)]), [1, 1])
    queues: list[int] = []
    watch = Watch(seen=lambda instance: queues.append(len(instance.queue)))
    made = simulate(
        log, FOUR, "easy:test=60,tests=first", events=happen((60, DRAIN, "0"), (70, UNDRAIN, "0")),
        restart_cost_s=30, watch=watch,
    )  # fmt: skip
    assert made.verify() == []
    assert lost(made) == [(0, 90), (-1, -1)]
    assert min(queues) == 1


def test_clearing_nodes_is_over_when_one_of_them_fails() -> None:
    events = happen((14, FAIL, "3"), (60, REPAIR, "3"))
    made = run([*BLOCKER, (1, 1, 200, 40)], events, restart_cost_s=30)
    assert lost(made)[2] == (1, 14)  # stopped at 11, cleared until 41 without the failure
    assert attempts(made) == []
    assert made.jobs["start"].tolist()[2] == 150
    assert made.jobs["end"].tolist()[2] == 150 + 40 + 30


def test_a_window_stops_a_test_and_a_killed_job_may_be_queued_again_beside_failures() -> None:
    window = Events(("case.csv",), (WindowRow(2, 8, MAINTAIN, "3", 20, 8),))
    made = run([*BLOCKER, (1, 1, 200, 40)], window)
    assert attempts(made) == [(3, 1, 8)]
    assert lost(made)[2] == (20, 30)


def test_a_stopped_job_that_has_no_room_any_more_is_taken_as_failed() -> None:
    log = on_gpus([(0, 100, 3, 0), (0, 300, 4, 0), (0, 50, 4, 2), (1, 150, 1, 1)])
    events = resized((11, "0", {"gpu": 0}), (30, "0", {"gpu": 2}))
    log = restartable(log, [0, 0, 0, 1])
    made = simulate(log, GPUS, "easy:test=10", events=events)
    assert made.verify() == []
    assert attempts(made) == [(4, 1, 11)]
    assert lost(made)[3] == (30, 40)


def test_a_job_that_was_misjudged_may_lose_a_node_before_and_after() -> None:
    log = workload([(0, 2, 100, 50)])
    events = happen((5, FAIL, "0"), (6, REPAIR, "0"), (40, FAIL, "0"), (50, REPAIR, "0"))
    made = simulate(log, FOUR, "easy", predictor=Judge(), idempotent=True, events=events,
                    restart_cost_s=3)  # fmt: skip
    assert made.verify() == []
    assert attempts(made) == [(1, 0, 5), (1, 18, 40)]
    assert lost(made) == [(5, 18)]
    assert times(made) == [(40, 93)]
    assert made.metrics["restarts"] == 1
    assert made.metrics["wasted_processor_s"] == 2 * (5 + 13 + 22)


# -------------------------------------------------------------------------------- at random


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System, Events]:
    """Failures, drains, lost capacity and windows; most jobs may be restarted, and ask for long."""
    system = draw(systems(max_nodes=3, max_resources=2))
    log = draw(workloads(system, tiers=True))
    jobs = len(log)
    which = draw(st.lists(st.sampled_from([0, 1, 1, 1]), min_size=jobs, max_size=jobs))
    more = draw(st.lists(st.integers(0, 40), min_size=jobs, max_size=jobs))
    columns = list(log.table.columns)
    for column in (Column.REQUESTED, Column.EXPECTED, Column.UPPER):
        columns[column] = columns[column] + np.array(more)
    log = replace(log, table=JobTable(columns))
    rows: list[Row] = []
    happens: list[Event] = draw(failures(system.nodes, 60))
    if draw(st.booleans()):
        happens += draw(changes(system, 60))
    for e in happens:
        row = (2, e.time_s, e.kind, " ".join(map(str, e.nodes)))
        rows.append(CapacityRow(*row, e.capacity) if e.kind == CAPACITY else Row(*row))
    for node in range(system.nodes):
        at = sorted(draw(st.sets(st.integers(0, 60), max_size=2)))
        if len(at) == 2:
            known_s = draw(st.integers(0, at[0]))
            rows.append(WindowRow(2, at[0], MAINTAIN, str(node), at[1], known_s))
    rows.sort(key=lambda row: row.time_s)
    requeue = draw(st.sampled_from(["", "all", "none", "restartable"]))
    return restartable(log, which), system, Events(("case.csv",), tuple(rows), requeue=requeue)


RULES = [
    "easy:test=2", "easy:test=3,tests=backfill", "easy:test=2,tests=turn",
    "easy-spf-saf:test=2,tests=first", "easy-saf-saf:test=3,wait=0.6", "conservative:test=2",
    "easy:test=2,depth=2,allocate=best-fit", "best:test=2", "prb", "reject",
]  # fmt: skip


@pytest.mark.parametrize("dispatcher", RULES)
@settings(max_examples=examples(40), deadline=None)
@given(
    cases(), st.sampled_from([0, 0, 1, 4]), st.sampled_from(["instant", "event"]), st.booleans(),
    st.sampled_from(["walltime", "last2", "actual"]),
)  # fmt: skip
def test_every_schedule_with_tests_and_failures_is_sound(
    dispatcher: str, case: tuple[Workload, System, Events], cost_s: int, trigger: str, limit: bool,
    predictor: str,
) -> None:  # fmt: skip
    log, system, events = case
    made = simulate(
        log, system, dispatcher, events=events, trigger=trigger, kill_at_limit=limit,
        restart_cost_s=cost_s, predictor=predictor,
    )  # fmt: skip
    assert made.verify() == []
    known = (made.jobs["end"] >= 0) | made.jobs["reason"].isin(["never_fits", "waits", "rejected"])
    assert known.all()


@settings(max_examples=examples(80), deadline=None)
@given(
    cases(), st.sampled_from([0, 3]), st.sampled_from(["instant", "event"]), st.integers(1, 9),
    st.sampled_from(["easy", "conservative", "fifo"]),
)  # fmt: skip
def test_every_schedule_with_misjudged_jobs_and_failures_is_sound(
    case: tuple[Workload, System, Events], cost_s: int, trigger: str, bound_s: int, dispatcher: str
) -> None:
    log, system, events = case
    made = simulate(
        log, system, dispatcher, predictor=Judge(bound_s), idempotent=True, events=events,
        trigger=trigger, restart_cost_s=cost_s,
    )  # fmt: skip
    assert made.verify() == []


@pytest.mark.parametrize("dispatcher", ["hcp:limit=0.05,test=2", "pcp:limit=0.05,test=2"])
@settings(max_examples=examples(6), deadline=None)
@given(cases(), st.sampled_from([0, 3]))
def test_models_take_part(
    dispatcher: str, case: tuple[Workload, System, Events], cost_s: int
) -> None:
    log, system, events = case
    made = simulate(log, system, dispatcher, events=events, restart_cost_s=cost_s)
    assert made.verify() == []


@settings(max_examples=examples(40), deadline=None)
@given(cases(), st.sampled_from([0, 3]))
def test_without_failures_events_change_no_test(
    case: tuple[Workload, System, Events], cost_s: int
) -> None:
    """The general loop with an event that comes after all, against the one without."""
    log, system, _ = case
    late = happen((10**6, FAIL, "0"))
    plain, beside = (
        simulate(log, system, "easy:test=2", events=events, restart_cost_s=cost_s, compiled=False)
        for events in (None, late)
    )
    for name in ("start", "end", "test", "lost_start", "lost_end"):
        if name in plain.jobs:
            assert plain.jobs[name].tolist() == beside.jobs[name].tolist()


# --------------------------------------------------------------------------- saved, and checked


def test_a_run_is_saved_resumed_and_checked_from_its_files(tmp_path: Path) -> None:
    rows = [(k, 1 + k % 3, 40 + 5 * k, 3 + 7 * k % 60) for k in range(40)]
    log = restartable(workload(rows), [1] * 40)
    events = happen((20, FAIL, "1"), (40, REPAIR, "1"), (60, DRAIN, "2"), (75, FAIL, "3"),
                    (90, REPAIR, "3"))  # fmt: skip
    how: dict[str, Any] = {"events": events, "restart_cost_s": 2}
    made = simulate(log, FOUR, "easy:test=4,tests=turn", **how)
    assert made.verify() == []
    assert {"killed", "went_on"} <= set(made.jobs["test"])
    assert len(attempts(made)) > 0
    folder, calls = tmp_path / "stopped", iter(range(10**6))
    watch = Watch(folder=folder, resume=True, stop=lambda: next(calls) == 12)
    folder.mkdir()
    with pytest.raises(InterruptedRunError):
        simulate(log, FOUR, "easy:test=4,tests=turn", watch=watch, **how)
    again = simulate(
        log, FOUR, "easy:test=4,tests=turn", watch=Watch(folder=folder, resume=True), **how
    )
    finished(again, folder)
    loaded = Run.load(folder)
    assert loaded.job_table.equals(made.job_table)
    assert loaded.attempt_table is not None
    assert loaded.attempt_table.equals(made.attempt_table)
    assert loaded.verify() == []
    lost_s = (made.jobs["lost_end"] - made.jobs["lost_start"]).sum()
    lost_s += sum(end - start for _, start, end in attempts(made))
    assert loaded._lost_s() is not None
    assert loaded._lost_s().sum() == lost_s  # type: ignore[union-attr]
    assert loaded.explain(5).job == 5
    found = loaded._lost()
    tried = (found.start_s >= 0).nonzero()[0].tolist()
    units = [int(found.units[found.offset[k] : found.offset[k + 1]].sum()) for k in tried]
    assert units == loaded.jobs["units"].to_numpy()[found.row[tried]].tolist()


def spoiled(made: Run, kind: Kind, attempts: Any = None, **columns: list[Any]) -> None:
    """What the checker says of a run whose tables hold something else."""
    jobs = made.jobs.assign(**columns)
    table = made.attempt_table
    assert table is not None
    frame = table.to_pandas() if attempts is None else attempts
    told = made.about["events"]
    found = verify.run(
        jobs, made.system, restarts=True, restart_cost_s=made.about["restart_cost_s"],
        service=Service(made.happened or (), frame, told["requeue"]),
    )  # fmt: skip
    assert kind in {violation.kind for violation in found}, found


def test_the_checker_reports_what_a_kill_and_a_failure_cannot_both_be() -> None:
    rows = [*BLOCKER, (1, 1, 200, 40)]
    events = happen((11, FAIL, "3"), (30, REPAIR, "3"))
    made = run(rows, events)
    assert (attempts(made), lost(made)[2]) == ([(3, 1, 11)], (30, 40))
    jobs = made.jobs
    spoiled(made, Kind.EARLY_START, lost_start=[-1, -1, 8], lost_end=[-1, -1, 18])  # both at once
    spoiled(made, Kind.RESTART, restartable=[False, False, False])
    spoiled(made, Kind.DOWN, lost_start=[-1, -1, 20])  # before the repair
    spoiled(made, Kind.DURATION, lost_end=[-1, -1, 80])  # beyond its runtime
    spoiled(made, Kind.EARLY_START, start=[*jobs["start"][:2], 35], end=[*jobs["end"][:2], 75])
    table = made.attempt_table
    assert table is not None
    early = table.to_pandas().assign(end=[9])
    spoiled(made, Kind.RESTART, early)  # no node failed then


def test_the_checker_knows_when_clearing_may_be_over_sooner() -> None:
    made = run([*BLOCKER, (1, 1, 200, 40)], happen((14, FAIL, "3"), (60, REPAIR, "3")),
               restart_cost_s=30)  # fmt: skip
    assert lost(made)[2] == (1, 14)
    spoiled(made, Kind.DURATION, lost_end=[-1, -1, 13])  # nothing failed then
    spoiled(made, Kind.DOWN, lost_end=[-1, -1, 41])  # the node is down
    spoiled(made, Kind.DURATION, end=[*made.jobs["end"][:2], 190])  # without what it cost


# -------------------------------------------------------------------------------- what is refused


def test_checkpoints_exclude_tests_and_restarts() -> None:
    log = restartable(workload([(0, 1, 100, 10)]), [1])
    events = replace(happen((2, FAIL, "3")), checkpoints=Checkpoints(5, 1))
    with pytest.raises(UsageError, match="where jobs write checkpoints"):
        simulate(log, FOUR, "easy:test=5", events=events)
    for how in ({"idempotent": True, "predictor": Judge()}, {"restart_cost_s": 5}):
        with pytest.raises(UsageError, match="checkpoints exclude"):
            simulate(log, FOUR, "easy", events=events, **how)  # type: ignore[arg-type]


def test_best_tests_where_nodes_fail() -> None:
    rows = [(k, 1 + k % 2, 900 + 40 * k, 5 + 9 * (k % 60)) for k in range(40)]
    log, quiet = restartable(workload(rows), [1] * 40), happen((5000, FAIL, "0"))
    made = simulate(log, FOUR, "best", predictor="walltime", events=quiet)
    without = simulate(log, FOUR, "best:test=off", predictor="walltime", events=quiet)
    assert made.verify() == []
    assert made.about["test_s"] == 300
    assert "test" in made.jobs
    assert not made.jobs["start"].equals(without.jobs["start"])
