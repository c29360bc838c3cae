"""Each way of spoiling what a saved run says beside its schedule is reported by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import dispatch
from cpdispatch.decision import Decision
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import Limit, NodeGroup, System
from cpdispatch.verify import Kind
from cpdispatch.workloads.restarts import mark
from tests.effort import examples
from tests.simulator.cases import workload
from tests.simulator.test_events import poked

POOL = System.pool(4)
ROWS = [
    (0, 3, 900, 600), (60, 4, 1800, 1200), (120, 2, 3600, 60), (180, 1, 500, 500), (190, 1, 50, 50),
]  # fmt: skip
"""The last two are backfilled: they end before the second one can start."""
LATE = [(0, 4, 1000, 1000), (10, 4, 100, 100), (20, 1, 900, 900), *[(30, 1, 9, 9)] * 8]
TESTS = [(k, 1 + k % 3, 40 + 5 * k, 3 + 7 * k % 60) for k in range(40)]


def made(name: str) -> Run:
    if name == "plain":
        return simulate(workload(ROWS), POOL, "easy")
    if name == "general":
        return simulate(workload(ROWS), POOL, "conservative", compiled=False)
    if name == "late":
        return simulate(workload(LATE), POOL, "easy-sqf-sqf:wait=0.1")
    log, cost_s = mark(workload(TESTS), 0.8), 2 * name.endswith("cost")
    return simulate(log, POOL, "easy:test=4,tests=turn", restart_cost_s=cost_s)


NAMES = ["plain", "general", "late", "tests", "tests at a cost"]
RUNS: dict[str, Run] = {}
"""Each is made once."""


def run_of(name: str) -> Run:
    if name not in RUNS:
        RUNS[name] = made(name)
        assert RUNS[name].verify() == []
    return RUNS[name]


def kinds(run: Run) -> set[Kind]:
    return {violation.kind for violation in run.verify()}


def row_at(run: Run, time_s: int) -> int:
    return int(run.decision_table.column("time").to_pylist().index(time_s))


def without(table: Any, row: int) -> Any:
    return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


# ------------------------------------------------------------------------------- dispatches


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_each_number_of_a_dispatch_that_is_another_is_reported(
    name: str, data: st.DataObject
) -> None:
    run = run_of(name)
    column = data.draw(st.sampled_from(["time", "queue", "running", "started"]))
    row = data.draw(st.integers(0, run.decision_table.num_rows - 1))
    by = data.draw(st.sampled_from([-1, 1, 7]))
    value = run.decision_table.column(column).to_pylist()[row] + by
    spoiled = replace(run, decision_table=poked(run.decision_table, column, row, value))
    assert Kind.DECISION in kinds(spoiled)


@pytest.mark.parametrize("name", NAMES)
def test_a_dispatch_that_is_left_out_twice_there_or_moved_is_reported(name: str) -> None:
    run = run_of(name)
    table = run.decision_table
    for row in range(table.num_rows):
        assert Kind.DECISION in kinds(replace(run, decision_table=without(table, row)))
        more = pa.concat_tables([table.slice(0, row + 1), table.slice(row)])
        again = table.column("started").to_pylist()[row] > 0
        assert not again or Kind.DECISION in kinds(replace(run, decision_table=more))
    order = np.arange(table.num_rows)[::-1]
    assert Kind.DECISION in kinds(replace(run, decision_table=table.take(order)))


def test_dispatches_under_limits_are_judged_by_the_most_that_could_be_queued() -> None:
    system = replace(POOL, limits=(Limit(2),))
    run = simulate(workload(ROWS), system, "easy")
    assert run.verify() == []
    table = run.decision_table
    for column, value in (("queue", 9), ("running", 3), ("started", 2)):
        assert Kind.DECISION in kinds(replace(run, decision_table=poked(table, column, 1, value)))


def test_jobs_of_no_runtime_and_several_decisions_of_a_second_are_true() -> None:
    rows = sorted([(0, 4, 0, 5), (0, 4, 0, 0), (7, 4, 0, 0), (7, 5, 3, 3), (7, 1, 3, 3)] * 3)
    for trigger in ("instant", "event"):
        for rule in ("easy", "easy-spf-spf", "fifo", "reject"):
            for compiled in (True, False):
                run = simulate(workload(rows), POOL, rule, trigger=trigger, compiled=compiled)
                assert run.verify() == []


# -------------------------------------------------------------------------------- promises


def test_promises_are_held_against_the_jobs() -> None:
    run = run_of("general")
    table: Any = run.promise_table
    assert table.to_pylist()[0] == {"id": 2, "at": 60, "start": 900}
    assert run.jobs["start"][1] == 680
    for column, value, kind in (
        ("id", 77, Kind.UNKNOWN_JOB), ("id", 3, Kind.PROMISE), ("at", 61, Kind.PROMISE),
        ("at", 0, Kind.PROMISE), ("at", 680, Kind.PROMISE), ("start", 60, Kind.PROMISE),
        ("start", 679, Kind.PROMISE),
    ):  # fmt: skip
        assert kind in kinds(replace(run, promise_table=poked(table, column, 0, value))), value


def test_a_promise_may_be_broken_where_it_is_not_certain_to_be_kept() -> None:
    """EASY makes its one reservation anew; and a job that runs on takes the place of others."""
    run = simulate(workload(ROWS), POOL, "easy", compiled=False)
    assert run.verify() == []
    table: Any = run.promise_table
    assert replace(run, promise_table=poked(table, "start", 0, 100)).verify() == []
    rows = [(0, 3, 100, 600), *ROWS[1:]]
    run = simulate(workload(rows), POOL, "conservative", compiled=False)
    assert run.promise_table.to_pylist()[0]["start"] < run.jobs["start"][1]  # type: ignore[union-attr]
    assert run.verify() == []


# -------------------------------------------------------------------------------- test runs


@pytest.mark.parametrize("name", ["tests", "tests at a cost"])
def test_results_of_test_runs_are_held_against_the_attempts(name: str) -> None:
    run = run_of(name)
    results = run.jobs["test"].tolist()
    assert set(results) == {"none", "ended", "went_on", "killed"}
    short = (run.jobs["end"] - run.jobs["start"] <= 4).tolist()
    for row, result in enumerate(results):
        for other in ("none", "ended", "went_on", "killed", "beauty"):
            # The attempts alone do not tell whether a job that was not killed was tested.
            alike = {"none", "ended"} if short[row] else {"none", "went_on"}
            if other == result or {result, other} == alike:
                continue
            spoiled = replace(run, job_table=poked(run.job_table, "test", row, other))
            assert Kind.TEST in kinds(spoiled), (row, result, other)
    row = results.index("went_on")
    spoiled = replace(run, job_table=poked(run.job_table, "test", row, "none"))
    assert Kind.DECISION in kinds(spoiled)  # nothing happened when its test was over


@pytest.mark.parametrize("requested_s", [8, 9])
def test_a_job_is_tested_only_if_it_asks_for_more_than_two_tests(requested_s: int) -> None:
    run = run_of("tests")
    row = run.jobs["test"].tolist().index("went_on")
    spoiled = poked(run.job_table, "requested_s", row, requested_s)
    spoiled = poked(spoiled, "expected_s", row, requested_s)
    assert (Kind.TEST in kinds(replace(run, job_table=spoiled))) == (requested_s == 8)


# -------------------------------------------------------------------------------- durations


def test_no_job_is_expected_to_run_longer_than_it_requests() -> None:
    run = simulate(workload([(0, 4, 0, 90), (0, 4, 50, 90), (1, 4, 9, 0)]), POOL, "easy")
    assert run.jobs["expected_s"].tolist() == [1, 50, 9]
    assert run.verify() == []
    spoiled = replace(run, job_table=poked(run.job_table, "expected_s", 1, 51))
    assert [str(found) for found in spoiled.verify()] == [
        "duration: job 2 is expected to run 51 s and requests 50 s"
    ]


@pytest.mark.parametrize("predictor", ["walltime", "actual"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_run_is_judged_by_whether_it_says_that_jobs_were_killed(
    predictor: str, compiled: bool
) -> None:
    log = workload([(0, 4, 50, 90), (0, 4, 90, 50), (0, 4, 50, 50), (0, 1, 90, 0)])
    for kills in (True, False):
        run = simulate(
            log, POOL, "easy", predictor=predictor, kill_at_limit=kills, compiled=compiled
        )
        assert run.verify() == []
        assert kinds(replace(run, about=run.about | {"kill_at_limit": not kills})) == {
            Kind.DURATION
        }
        earlier = {key: value for key, value in run.about.items() if key != "kill_at_limit"}
        assert replace(run, about=earlier).verify() == []


# ---------------------------------------------------------------------------------- reasons


def swapped(name: str, row: int, reason: str) -> set[Kind]:
    run = run_of(name)
    assert run.job_table.column("reason").to_pylist()[row] != reason
    return kinds(replace(run, job_table=poked(run.job_table, "reason", row, reason)))


def test_reasons_are_held_against_who_waited() -> None:
    for name in ("plain", "general"):
        reasons = run_of(name).jobs["reason"].tolist()
        assert reasons == ["started", "started", "started", "backfilled", "backfilled"]
        for row, reason in enumerate(reasons):
            other = {"started": "backfilled", "backfilled": "started"}[reason]
            assert swapped(name, row, other) == {Kind.REASON}
            assert swapped(name, row, "late") == {Kind.REASON}


def test_a_late_job_has_waited_longer_than_the_threshold_and_no_other_starts_in_its_turn() -> None:
    reasons = run_of("late").jobs["reason"].tolist()
    assert {"started", "late"} <= set(reasons)
    for row, reason in enumerate(reasons):
        if reason in ("started", "late"):
            other = {"started": "late", "late": "started"}[reason]
            assert swapped("late", row, other) == {Kind.REASON}


@pytest.mark.parametrize("order", ["fifo", "sjf", "easy:depth=0"])
def test_no_job_is_backfilled_under_a_strict_order(order: str) -> None:
    strict = simulate(workload(ROWS), POOL, order)
    assert strict.verify() == []
    run = run_of("plain")
    told = replace(run, about=run.about | {"rule": strict.about["rule"]})
    assert kinds(told) == {Kind.REASON}


def test_a_job_is_not_backfilled_where_no_other_waits() -> None:
    run = simulate(workload([(0, 1, 9, 9), (3, 1, 9, 9)]), POOL, "easy-spf-spf")
    spoiled = replace(run, job_table=poked(run.job_table, "reason", 1, "backfilled"))
    assert kinds(spoiled) == {Kind.REASON}


def test_reasons_of_a_dispatcher_of_ones_own_are_its_own() -> None:
    run = run_of("plain")
    about = {name: value for name, value in run.about.items() if name != "rule"}
    about["compiled"] = False
    table = poked(run.job_table, "reason", 0, "late")
    assert replace(run, about=about, job_table=table).verify() == []


def test_a_run_of_an_earlier_version_is_judged_by_what_it_tells(tmp_path: Path) -> None:
    run = run_of("general")
    about = {name: value for name, value in run.about.items() if name != "rule"}
    replace(run, about=about).save(tmp_path)
    loaded = Run.load(tmp_path)
    assert loaded.verify() == []
    table: Any = loaded.promise_table
    assert replace(loaded, promise_table=poked(table, "start", 0, 100)).verify() == []


def test_turns_are_not_by_submission_where_jobs_have_tiers() -> None:
    log = workload([(0, 4, 5, 5), (1, 4, 5, 5), (2, 4, 5, 5)])
    block = log.table.block.copy()
    block[Column.TIER] = [1, 1, 9]
    run = simulate(replace(log, table=JobTable(block, log.table.labels)), POOL, "easy")
    assert run.jobs["start"].tolist() == [0, 10, 5]
    assert run.verify() == []


def test_under_a_cap_no_decision_is_due_when_a_job_comes_that_fits_no_system() -> None:
    system = replace(POOL, watts={"core": 1})
    log = workload([(0, 4, 9, 9), (1, 4, 9, 9), (2, 5, 9, 9)])
    run = simulate(log, system, "easy", power_cap=4, kill_at_limit=True)
    assert run.jobs["reason"].tolist() == ["started", "started", "never_fits"]
    assert run.verify() == []


def test_why_a_job_never_started_is_held_against_the_dispatcher_and_the_system() -> None:
    log = workload([(0, 4, 100, 100), (5, 4, 10, 10), (6, 5, 10, 10)])
    run = simulate(log, replace(POOL, limits=(Limit(4, of="core"),)), "easy")
    assert run.jobs["reason"].tolist() == ["started", "started", "never_fits"]
    assert run.verify() == []
    for reason in ("rejected", "started", "backfilled", "late", "waits"):
        table = poked(run.job_table, "reason", 2, reason)
        assert Kind.REASON in kinds(replace(run, job_table=table)), reason
    # One that fits, and that no dispatcher of queue rules would refuse.
    kept: Any = run.decision_table.slice(0, 2)
    table = run.job_table
    for name, value in (("start", -1), ("end", -1), ("nodes", []), ("node_units", [])):
        table = poked(table, name, 1, value)
    table = poked(table, "reason", 1, "rejected")
    left_out = replace(run, job_table=table, decision_table=kept)
    assert kinds(left_out) == {Kind.REASON, Kind.NEVER_STARTED}
    refused = simulate(log, POOL, "reject")
    assert refused.jobs["reason"].tolist() == ["rejected", "rejected", "never_fits"]
    assert refused.verify() == []


def test_a_dispatcher_of_ones_own_that_has_another_inside_may_reject() -> None:
    class Mine:
        name = "mine"
        inner = dispatch.make("easy")

        def dispatch(self, instance: Instance) -> Decision:
            return dispatch.make("reject").dispatch(instance)

    run = simulate(workload(ROWS), POOL, Mine())
    assert set(run.jobs["reason"]) == {"rejected"}
    assert run.verify() == []


@pytest.mark.parametrize(("order", "other"), [("sjf", "ljf"), ("ljf", "sjf")])
def test_jobs_start_by_their_expected_durations_under_such_an_order(order: str, other: str) -> None:
    log = workload([(0, 4, 10, 10), (1, 4, 5, 5), (2, 4, 7, 7), (2, 4, 7, 7), (3, 5, 1, 1)])
    run, contrary = simulate(log, POOL, order), simulate(log, POOL, other)
    assert run.verify() == contrary.verify() == []
    told = replace(contrary, about=contrary.about | {"rule": run.about["rule"]})
    assert kinds(told) == {Kind.REASON}
    # One that passes another, which is not called backfilled.
    length_s = 5 if order == "ljf" else 7
    log = workload([(0, 2, 10, 10), (1, 4, 6, 6), (2, 2, length_s, length_s)])
    strict, passing = simulate(log, POOL, order), simulate(log, POOL, "easy")
    assert strict.verify() == passing.verify() == []
    assert passing.jobs["start"].tolist() == [0, 10, 2]
    table = poked(passing.job_table, "reason", 2, "started")
    told = replace(passing, job_table=table, about=passing.about | {"rule": strict.about["rule"]})
    assert kinds(told) == {Kind.REASON}


def test_an_order_by_durations_is_told_where_nothing_else_plays_a_part() -> None:
    for name, order in (
        ("sjf", "shortest"), ("ljf", "longest"), ("easy-spf-fcfs:depth=0", "shortest"),
        ("sjf:threshold=9", ""), ("easy-spf-spf", ""), ("fifo", ""),
    ):  # fmt: skip
        log = workload([(0, 4, 10, 10), (1, 4, 10, 10), (2, 4, 7, 7), (3, 4, 3, 3)])
        run = simulate(log, POOL, name)
        assert run.about["rule"].get("order", "") == order, name
        assert run.verify() == [], name


def test_reasons_of_the_priority_rule_are_held_against_who_waited() -> None:
    run = simulate(workload([(0, 4, 10, 10), (1, 4, 5, 5)]), POOL, "prb")
    assert run.verify() == []
    for reason in ("late", "backfilled"):
        table = poked(run.job_table, "reason", 1, reason)
        assert kinds(replace(run, job_table=table)) == {Kind.REASON}


def test_no_wait_under_easy_is_longer_than_the_time_since_the_first_submission() -> None:
    run = run_of("late")
    table = run.decision_table
    last = table.num_rows - 1
    since_s = table.column("time").to_pylist()[last] - min(run.jobs["submit"])
    for wait_s, wrong in ((since_s, False), (since_s + 1, True)):
        more = replace(run, decision_table=poked(table, "easy_wait", last, wait_s))
        assert (Kind.LATE in kinds(more)) == wrong


def test_a_job_that_started_was_expected_to_run_for_a_second_or_more() -> None:
    run = simulate(workload([(0, 4, 0, 0), (0, 5, 1, 1)]), POOL, "easy", predictor="actual")
    assert run.jobs["expected_s"].tolist() == [1, -1]
    assert run.verify() == []
    for expected_s in (0, -5):
        spoiled = replace(run, job_table=poked(run.job_table, "expected_s", 0, expected_s))
        assert kinds(spoiled) == {Kind.DURATION}


def test_a_second_has_a_further_decision_only_after_a_job_that_ended_in_it() -> None:
    log = workload([(0, 4, 10, 10), (5, 4, 10, 10), (10, 4, 10, 0), (10, 4, 10, 10)])
    run = simulate(log, POOL, "easy-spf-spf", predictor="actual")
    assert run.verify() == []
    table = run.decision_table
    assert table.column("time").to_pylist() == [0, 5, 10, 10, 20]
    assert table.column("started").to_pylist() == [1, 0, 1, 1, 1]
    for row in range(table.num_rows):
        # Nobody waits any more after the last one.
        twice = poked(
            pa.concat_tables([table.slice(0, row + 1), table.slice(row)]), "started", row, 0
        )
        queue = table.column("queue").to_pylist()[row]
        assert Kind.DECISION in kinds(replace(run, decision_table=twice)), (row, queue)


def test_nodes_are_switched_off_when_they_are_due_and_not_while_a_job_waits() -> None:
    system = System(
        "case", ("core",), (NodeGroup("a", 3, (1,)),), watts={"core": 2}, idle_watts={"a": 5},
        off_watts={"a": 1}, wake_s={"a": 5},
    )  # fmt: skip
    log = workload([(0, 1, 10, 10), (40, 1, 10, 10), (41, 3, 10, 10), (100, 1, 5, 5)])
    run = simulate(log, system, "fifo", switch_off_s=20)
    assert run.verify() == []
    table: Any = run.switched_table
    assert table.to_pylist()[2] == {"node": 0, "off": 30, "wake": 40, "on": 45}
    for row in range(2, table.num_rows):
        assert kinds(replace(run, switched_table=without(table, row))) == {Kind.DOWN}, row
    later = poked(table, "off", 2, 31)
    assert kinds(replace(run, switched_table=later)) == {Kind.DOWN}
    log = workload([(0, 1, 100, 100), (1, 3, 100, 100), (2, 1, 100, 100)])
    run = simulate(log, system, "fifo", switch_off_s=20)
    assert run.verify() == []
    table = run.switched_table
    names = ("node", "off", "wake", "on")
    more = pa.table([[2], [30], [40], [45]], names=names).cast(table.schema)
    spoiled = replace(run, switched_table=pa.concat_tables([more, table]))
    assert [str(found) for found in spoiled.verify()] == [
        "down: node 2 is switched off at 30, when a job waits"
    ]
