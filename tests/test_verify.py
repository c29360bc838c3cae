"""The checker on cases that can be counted by hand."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cpdispatch import verify
from cpdispatch.access.spread import LIMIT_TYPE
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.errors import InputError, UsageError
from cpdispatch.instance import FORMAT, FORMAT_OF_RESTARTS, Instance, digest, to_json
from cpdispatch.jobs import Column, JobTable
from cpdispatch.solution import Solution, SolvedJob
from cpdispatch.system import Limit, NodeGroup, System
from cpdispatch.verify import Kind
from tests.strategies import read


def instance(**changes: Any) -> Instance:
    """Two nodes with 4 cores and 2 GPUs, one with 8 cores; three queued jobs; one running."""
    file: dict[str, Any] = {
        "format": FORMAT, "time": 100, "resources": ["core", "gpu"],
        "groups": [{"name": "gpu", "nodes": 2, "capacity": [4, 2]},
                   {"name": "fat", "nodes": 1, "capacity": [8, 0]}],
        "running": [{"id": 1, "start": 90, "duration": 30, "units": 1, "unit": [4, 0],
                     "nodes": {"0": 1}}],
        "queue": [{"id": 7, "submit": 80, "duration": 40, "units": 2, "unit": [2, 1], "ewt": 10},
                  {"id": 8, "submit": 90, "duration": 4, "units": 1, "unit": [8, 0], "ewt": 20},
                  {"id": 9, "submit": 95, "duration": 20, "units": 3, "unit": [0, 1], "ewt": 2}],
    }  # fmt: skip
    return read(file | changes)


def solution(on: Instance, *jobs: SolvedJob, **fields: Any) -> Solution:
    named = {job.id for job in jobs}
    rest = [SolvedJob(id, None) for id in on.queue.id.tolist() if id not in named]
    plain = Solution(digest(on), "pcp", "feasible", "", None, None, 1.0, None, (*jobs, *rest))
    return replace(plain, **fields)


def texts(found: list[verify.Violation]) -> list[str]:
    return [str(violation) for violation in found]


def test_the_checker_imports_nothing_that_it_checks() -> None:
    nodes = [
        node
        for path in Path(verify.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    ours = {name.split(".")[1] for name in imported if name.startswith("cpdispatch.")} - {"verify"}
    data = {"arrays", "decision", "errors", "events", "instance", "jobs", "solution", "system"}
    assert ours == data
    assert not {"numba", "ortools"} & imported


def test_a_good_plan_with_a_job_on_the_pool_is_clean() -> None:
    on = instance()
    good = solution(
        on, SolvedJob(7, 100, {1: 2}), SolvedJob(8, 100, {2: 1}), SolvedJob(9, 140, None)
    )
    assert verify.solution(on, good) == []


def test_a_capacity_violation_names_job_node_resource_time_found_and_allowed() -> None:
    on = instance()
    bad = solution(on, SolvedJob(7, 119, {0: 2}))
    assert texts(verify.solution(on, bad)) == [
        "capacity: node 0 (gpu), core at 119: 8 held by jobs 1, 7, 4 allowed"
    ]


@pytest.mark.parametrize("number", [-1, 7, 99])
def test_a_reason_that_does_not_exist_is_reported(number: int) -> None:
    job = {"id": 4, "submit": 0, "duration": 9, "units": 1, "unit": [1, 0]}
    problem = instance(queue=[job])
    decision = Decision(
        np.array([NO_START]), np.array([number], dtype=np.int8), Placements.of({}),
        Certificate("mine"),
    )  # fmt: skip
    (found,) = verify.decision(problem, decision)
    assert found.kind == Kind.REASON
    assert f"job 4 has the reason {number}" in str(found)


def test_capacity_given_back_at_an_instant_can_be_taken_at_that_instant() -> None:
    on = instance()
    assert verify.solution(on, solution(on, SolvedJob(7, 120, {0: 2}))) == []


def test_an_overdue_job_is_expected_to_end_one_second_from_now() -> None:
    late = {"id": 1, "start": 10, "duration": 5, "units": 1, "unit": [4, 0], "nodes": {"0": 1}}
    on = instance(running=[late])
    assert verify.solution(on, solution(on, SolvedJob(7, 101, {0: 2}))) == []
    found = verify.solution(on, solution(on, SolvedJob(7, 100, {0: 2})))
    assert [violation.kind for violation in found] == [Kind.CAPACITY]


def test_a_running_job_on_reserved_capacity_is_no_violation_of_the_plan() -> None:
    reservation = {"start": 105, "duration": 60, "nodes": [0], "capacity": [4, 2]}
    on = instance(reservations=[reservation])
    assert verify.solution(on, solution(on, SolvedJob(8, 100, {2: 1}))) == []
    found = verify.solution(on, solution(on, SolvedJob(9, 100, {0: 2, 1: 1})))
    assert texts(found) == [
        "reservation: node 0 (gpu), gpu at 105: 4 held by job 9 and a reservation, 2 allowed"
    ]


def test_a_job_that_ends_when_a_reservation_begins_is_clean() -> None:
    on = instance(reservations=[{"start": 120, "duration": 9, "nodes": [1], "capacity": [4, 2]}])
    assert verify.solution(on, solution(on, SolvedJob(9, 100, {0: 2, 1: 1}))) == []


def test_a_reservation_larger_than_its_node_takes_no_more_than_the_node_from_the_pool() -> None:
    block = {"start": 130, "duration": 60, "nodes": [2], "capacity": [99, 0]}
    on = instance(reservations=[block])
    assert verify.solution(on, solution(on, SolvedJob(7, 130, None))) == []
    found = verify.solution(on, solution(on, SolvedJob(7, 130, None), SolvedJob(8, 135, None)))
    assert texts(found) == ["pool: core at 135: 20 held in all, with jobs 7, 8, 16 in service"]


def test_nodes_out_of_service_are_not_in_the_pool() -> None:
    on = instance(down=[1])
    found = verify.solution(on, solution(on, SolvedJob(9, 130, None)))
    assert [violation.kind for violation in found] == [Kind.POOL]


def test_the_power_of_running_jobs_counts_until_their_expected_end() -> None:
    power = {"cap": 40, "unit": [5, 10]}
    on = instance(power=power)
    found = verify.solution(on, solution(on, SolvedJob(7, 119, {1: 2})))
    assert texts(found) == ["power: at 119: 60 W drawn, with job 7, 40 W allowed"]
    assert verify.solution(on, solution(on, SolvedJob(7, 120, {1: 2}))) == []


def test_running_jobs_above_the_power_cap_are_no_violation_of_the_plan() -> None:
    on = instance(power={"cap": 19, "unit": [5, 0]})
    assert verify.solution(on, solution(on, SolvedJob(9, 100, {0: 2, 1: 1}))) == []


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        # waits 20, 30 and 45 s; durations 40, 4 and 20 s; ewt 10, 20 and 2 s
        ("ewt_excess", Fraction(1) + Fraction(1, 2) + Fraction(43, 2)),
        ("ewt_weighted", Fraction(40) + Fraction(30) + Fraction(450)),
        ("wait", Fraction(95)),
        ("slowdown", Fraction(60, 40) + Fraction(34, 4) + Fraction(65, 20)),
        ("bounded_slowdown", Fraction(60, 40) + Fraction(34, 10) + Fraction(65, 20)),
        # processors: 2 units x 2 cores; 1 x 8; 3 x 0, which counts as 1
        ("pp_slowdown", Fraction(1) + Fraction(1) + Fraction(65, 20)),
    ],
)
def test_each_objective_has_the_value_of_its_formula(objective: str, value: Fraction) -> None:
    on, starts = instance(), {0: 100, 1: 120, 2: 140}
    assert verify.objective_value(on, objective, starts) == value
    jobs = SolvedJob(7, 100, {1: 2}), SolvedJob(8, 120, {2: 1}), SolvedJob(9, 140, {0: 1, 1: 2})
    good = solution(on, *jobs, objective=objective, value=float(value), bound=float(value))
    assert verify.solution(on, replace(good, status="optimal")) == []


def test_a_status_says_no_more_than_the_plan() -> None:
    on = instance()
    jobs = SolvedJob(7, 100, {1: 2}), SolvedJob(8, 100, {2: 1}), SolvedJob(9, 140, None)
    good = solution(on, *jobs, objective="wait", value=75.0, bound=75.0, status="pooled-optimal")
    assert verify.solution(on, good) == []
    for wrong, text in (
        (
            {"status": "optimal"},
            "optimal, with job 9 planned without nodes: that is pooled-optimal",
        ),
        ({"bound": None}, "pooled-optimal, without a bound"),
        ({"value": None}, "pooled-optimal, without a value"),
        ({"objective": "", "value": None}, "pooled-optimal, without a value"),
        ({"status": "infeasible"}, "infeasible, with starts of 3 jobs: that is no plan"),
        ({"status": "unsolved"}, "unsolved, with starts of 3 jobs: that is no plan"),
    ):
        assert texts(verify.solution(on, replace(good, **wrong))) == [f"status: {text}"]
    for status in ("infeasible", "unsolved"):
        assert verify.solution(on, solution(on, status=status)) == []


def test_jobs_without_a_start_do_not_count_towards_the_value() -> None:
    assert verify.objective_value(instance(), "wait", {1: 100}) == 10
    assert verify.objective_value(instance(), "wait", {}) == 0


def test_the_largest_expected_wait_is_that_of_all_queued_jobs() -> None:
    assert verify.objective_value(instance(), "ewt_weighted", {0: 100}) == 40


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown objective 'beauty'"):
        verify.objective_value(instance(), "beauty", {0: 100})


def test_an_unknown_objective_of_no_job_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown objective 'foo'"):
        verify.objective_value(instance(), "foo", {})


@pytest.mark.parametrize("position", [-1, 3])
def test_a_start_of_no_job_of_the_queue_is_refused(position: int) -> None:
    with pytest.raises(UsageError, match=f"no position {position} in a queue of 3 jobs"):
        verify.objective_value(instance(), "wait", {position: 100})


def test_what_is_no_decision_is_told_in_words() -> None:
    found = verify.decision(instance(), None)  # type: ignore[arg-type]
    assert texts(found) == ["shape: a Decision is needed, not NoneType"]


def test_the_value_of_ten_thousand_jobs_is_exact() -> None:
    queue = [
        {"id": k, "submit": 0, "duration": 1 + k % 997, "units": 1, "unit": [1, 0]}
        for k in range(10_000)
    ]
    on = instance(queue=queue, running=[])
    duration = on.queue.expected_s.tolist()
    numerators: dict[int, int] = {}
    for d in duration:
        numerators[d] = numerators.get(d, 0) + 100 + d
    exact = sum((Fraction(n, d) for d, n in numerators.items()), Fraction(0))
    assert verify.objective_value(on, "slowdown", dict.fromkeys(range(10_000), 100)) == exact


def test_a_decision_on_free_capacity_names_who_needs_what() -> None:
    on = instance()
    places = Placements.of({0: {1: 2}, 2: {1: 3}})
    start_s = np.array([100, -1, 100])
    found = verify.decision(on, Decision(start_s, np.zeros(3, np.int8), places, Certificate("x")))
    assert texts(found) == ["capacity: node 1 (gpu), gpu at 100: 5 needed by jobs 7, 9, 2 free"]


def test_a_decision_for_an_empty_queue_is_clean() -> None:
    on = instance(queue=[])
    empty = np.empty(0, dtype=np.int64)
    nothing = Decision(empty, empty.astype(np.int8), Placements.of({}), Certificate("x"))
    assert verify.decision(on, nothing) == []


def test_a_placement_for_an_empty_queue_is_reported() -> None:
    one = np.array([1])
    places = Placements(np.array([0]), np.array([0, 1]), one, one)
    none = Decision(one[:0], one[:0].astype(np.int8), places, Certificate("x"))
    assert texts(verify.decision(instance(queue=[]), none)) == [
        "unknown job: a placement is for position 0, the queue has 0 jobs"
    ]


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"reservations": [{"start": 999, "duration": 9, "nodes": [2], "capacity": [8, 0]}]},
        {"power": {"cap": 999, "unit": [1, 0]}},
    ],
)
@pytest.mark.parametrize("start", [100, 130])
def test_more_units_than_may_share_a_node_are_found_whatever_else_holds(
    rules: dict[str, Any], start: int
) -> None:
    job = {"id": 7, "submit": 80, "duration": 40, "units": 4, "unit": [1, 0]}
    plain = instance(resources=["core", LIMIT_TYPE], queue=[job], running=[], groups=[
        {"name": "n", "nodes": 3, "capacity": [8, 0]}
    ], **rules)  # fmt: skip
    block = plain.queue.block.copy()
    block[Column.REQUEST + 1] = -2
    on = replace(plain, queue=JobTable(block))
    start_s, reason = (
        np.array([start]),
        np.array([Reason.STARTED if start == 100 else Reason.WAITS]),
    )
    for nodes, says in (
        ({0: 2, 2: 2}, []),
        ({0: 1, 2: 3}, ["spread: job 7 has 3 units on node 2, 2 may share one"]),
    ):
        decision = Decision(
            start_s, reason.astype(np.int8), Placements.of({0: nodes}), Certificate("x")
        )
        assert texts(verify.decision(on, decision)) == says
        assert texts(verify.solution(on, solution(on, SolvedJob(7, start, nodes)))) == says


@pytest.mark.parametrize("start", [100, 130])
def test_a_job_s_units_on_one_node_are_one_entry_now_and_later(start: int) -> None:
    on = instance()
    places = Placements(np.array([0]), np.array([0, 2]), np.array([1, 1]), np.array([1, 1]))
    start_s = np.array([start, -1, -1])
    found = verify.decision(on, Decision(start_s, np.zeros(3, np.int8), places, Certificate("x")))
    assert texts(found) == ["node: job 7 names node 1 2 times"]


def halted(cost_s: int) -> Instance:
    """Jobs 7 and 9 may be restarted; job 7 has been stopped on node 1."""
    on = instance()
    queue = [
        {"id": 7, "submit": 80, "duration": 40, "units": 2, "unit": [2, 1], "restartable": True,
         "stopped": {"start": 90, "nodes": {"1": 2}}},
        {"id": 9, "submit": 95, "duration": 20, "units": 2, "unit": [2, 0], "restartable": True},
        {"id": 10, "submit": 95, "duration": 20, "units": 2, "unit": [2, 0]},
    ]  # fmt: skip
    more = {"format": FORMAT_OF_RESTARTS, "queue": queue, "restart_cost": cost_s}
    return read(json.loads(to_json(on)) | more)


def deciding(
    on: Instance, places: dict[int, dict[int, int]], bound_s: list[int] | None = None
) -> list[str]:
    start = np.full(len(on.queue), -1, dtype=np.int64)
    start[list(places)] = on.now
    reason = np.where(start == on.now, Reason.STARTED, Reason.WAITS).astype(np.int8)
    decision = Decision(
        start, reason, Placements.of(places), Certificate("test"),
        None if bound_s is None else np.array(bound_s),
    )  # fmt: skip
    return texts(verify.decision(on, decision))


def test_only_a_start_of_a_job_that_may_be_restarted_has_a_bound() -> None:
    on = halted(0)
    assert deciding(on, {0: {1: 2}, 1: {2: 2}}, [0, 5, 0]) == []
    assert deciding(on, {0: {1: 2}}, [5, 0, 0]) == [
        "restart: job 7 has a bound of 5 s and has been stopped once"
    ]
    assert deciding(on, {2: {2: 2}}, [0, 0, 5]) == [
        "restart: job 10 has a bound of 5 s and may not be restarted"
    ]
    assert deciding(on, {}, [0, 5, 0]) == [
        "restart: job 9 has a bound of 5 s and does not start now"
    ]
    assert deciding(on, {1: {2: 2}}, [0, -5, 0]) == [
        "restart: job 9 has a bound of -5 s, at least 1 s is allowed"
    ]
    assert "bound_s has shape (2,)" in deciding(on, {}, [0, 5])[0]
    found = verify.solution(on, solution(on, SolvedJob(9, 100, {1: 2}, bound=0)))
    assert texts(found) == ["restart: job 9 has a bound of 0 s, at least 1 s is allowed"]


def test_the_nodes_of_a_stopped_job_are_free_and_busy_where_killing_it_takes_time() -> None:
    for cost_s in (0, 30):
        assert deciding(halted(cost_s), {0: {1: 2}}) == []
        assert deciding(halted(cost_s), {2: {2: 2}}) == []
    assert deciding(halted(0), {1: {1: 2}, 0: {2: 2}}) != []  # node 2 has no GPU
    assert deciding(halted(0), {1: {1: 2}}) == []
    assert deciding(halted(30), {1: {1: 2}}) == [
        "capacity: node 1 (gpu), core at 100: 8 needed by jobs 7, 9, 4 free"
    ]


def test_a_job_that_is_being_killed_does_not_start_elsewhere() -> None:
    def moved(cost_s: int) -> list[str]:
        on = halted(cost_s)
        queue = json.loads(to_json(on))["queue"]
        queue[0] |= {"unit": [1, 0]}
        on = read(json.loads(to_json(on)) | {"queue": queue})
        return deciding(on, {0: {2: 2}})

    assert moved(0) == []
    assert moved(30) == [
        "restart: job 7 is killed and starts elsewhere at 100, allowed from 130 on"
    ]


@pytest.mark.parametrize(
    ("start", "reason", "text"),
    [
        (100, Reason.REJECTED, "starts now and has the reason rejected"),
        (100, Reason.NEVER_FITS, "starts now and has the reason never_fits"),
        (100, Reason.WAITS, "starts now and has the reason waits"),
        (100, Reason.RESERVED, "starts now and has the reason reserved"),
        (100, 9, "starts now and has the reason 9"),
        (NO_START, Reason.STARTED, "does not start now and has the reason started"),
        (130, Reason.LATE, "does not start now and has the reason late"),
    ],
)
def test_a_reason_does_not_say_the_contrary_of_the_start(
    start: int, reason: int, text: str
) -> None:
    on = instance()
    start_s = np.array([start, NO_START, NO_START])
    reasons = np.array([reason, Reason.WAITS, Reason.RESERVED], dtype=np.int8)
    places = Placements.of({0: {1: 2}} if start == on.now else {})
    found = verify.decision(on, Decision(start_s, reasons, places, Certificate("x")))
    allowed = "started, backfilled, late are for jobs that start now, and for no others"
    assert texts(found) == [f"reason: job 7 {text}: {allowed}"]


def test_arrays_of_a_decision_that_hold_no_whole_numbers_are_reported() -> None:
    on, start_s, waits = instance(), np.full(3, NO_START), np.full(3, Reason.WAITS, dtype=np.int8)
    right = Decision(start_s, waits, Placements.of({}), Certificate("x"))
    assert verify.decision(on, right) == []
    whole = "must be a one-dimensional int64 array, not"
    for part, value, found in (
        ("start_s", np.full(3, np.nan), "a 1-dimensional float64 array"),
        ("start_s", np.full(3, 0.4), "a 1-dimensional float64 array"),
        ("bound_s", np.full(3, 1.5), "a 1-dimensional float64 array"),
        ("bound_s", [0, 0, 0], "list"),
    ):
        wrong = replace(right, **{part: value})
        assert texts(verify.decision(on, wrong)) == [f"shape: {part} {whole} {found}"]


def test_offsets_that_fall_are_reported() -> None:
    on = instance()
    places = Placements(
        np.array([0, 1, 2]), np.array([0, 3, 1, 3]), np.array([1, 1, 2]), np.array([1, 1, 1])
    )
    start_s = np.array([100, 100, 100])
    found = verify.decision(on, Decision(start_s, np.zeros(3, np.int8), places, Certificate("x")))
    assert texts(found) == ["shape: offsets do not rise from 0 to 3, the number of entries"]


# ------------------------------------------------------------- dependencies and starvation

AFTER = {"id": 7, "submit": 80, "duration": 40, "units": 2, "unit": [2, 1], "after": [8, 1]}
OTHER = {"id": 8, "submit": 90, "duration": 4, "units": 1, "unit": [8, 0]}
TINY = {"id": 9, "submit": 95, "duration": 20, "units": 1, "unit": [0, 1], "earliest": 110}


def test_a_job_starts_after_the_ends_of_a_running_and_a_planned_job_and_its_think_time() -> None:
    on = instance(queue=[AFTER | {"think": 15}, OTHER, TINY])
    # Job 1 is expected to end at 120, job 8 to end at 104 or 129.
    good = [SolvedJob(8, 100, {2: 1}), SolvedJob(7, 135, {1: 2}), SolvedJob(9, 110, {0: 1})]
    assert verify.solution(on, solution(on, *good)) == []
    bad = [SolvedJob(8, 125, {2: 1}), SolvedJob(7, 134, {1: 2}), SolvedJob(9, 109, {0: 1})]
    assert texts(verify.solution(on, solution(on, *bad))) == [
        "dependency: job 7 starts at 134, allowed from 135 on: job 1 ends at 120, think time 15 s",
        "dependency: job 7 starts at 134, allowed from 144 on: job 8 ends at 129, think time 15 s",
        "dependency: job 9 starts at 109, allowed from 110 on",
    ]


def test_a_job_starts_after_the_end_of_a_stopped_one_that_goes_on() -> None:
    # Job 7 has run for 10 of its 40 s on node 1; elsewhere it starts anew.
    file = json.loads(to_json(halted(0)))
    file["queue"][2]["after"] = [7]
    on = read(file | {"running": []})
    for node, end in ((1, 130), (0, 140)):
        for start in (end, end - 1):
            early = f"job 10 starts at {start}, allowed from {end} on: job 7 ends at {end}"
            says = [] if start == end else [f"dependency: {early}"]
            jobs = SolvedJob(7, 100, {node: 2}), SolvedJob(10, start, {2: 2})
            assert texts(verify.solution(on, solution(on, *jobs))) == says
            reason = np.array([Reason.STARTED, Reason.WAITS, Reason.WAITS], dtype=np.int8)
            places, start_s = Placements.of({0: {node: 2}}), np.array([100, NO_START, start])
            decision = Decision(start_s, reason, places, Certificate("x"))
            assert texts(verify.decision(on, decision)) == says


def test_a_job_after_one_without_a_start_has_none_either() -> None:
    on = instance(queue=[AFTER | {"after": [8]}, OTHER])
    found = verify.solution(on, solution(on, SolvedJob(7, 200, {1: 2})))
    text = "dependency: job 7 starts at 200, and job 8, after which it comes, has no start"
    assert texts(found) == [text]
    decision = Decision(
        np.array([100, -1]), np.zeros(2, np.int8), Placements.of({0: {1: 2}}), Certificate("x")
    )
    assert texts(verify.decision(on, decision)) == [text.replace("200", "100")]


def test_an_overdue_job_keeps_back_the_one_after_it() -> None:
    late = {"id": 1, "start": 10, "duration": 5, "units": 1, "unit": [4, 0], "nodes": {"0": 1}}
    on = instance(running=[late], queue=[AFTER | {"after": [1]}])
    assert verify.solution(on, solution(on, SolvedJob(7, 101, {1: 2}))) == []
    found = verify.solution(on, solution(on, SolvedJob(7, 100, {1: 2})))
    assert texts(found) == [
        "dependency: job 7 starts at 100, allowed from 101 on: job 1 ends at 101"
    ]


STARVED = {"starvation": {"threshold": 15, "bound": 20}}


def plan(on: Instance, *jobs: SolvedJob) -> Solution:
    """A solution that has an objective, and its value."""
    positions = {id: position for position, id in enumerate(on.queue.id.tolist())}
    starts = {positions[job.id]: job.start for job in jobs if job.start is not None}
    value = float(verify.objective_value(on, "wait", starts))
    return solution(on, *jobs, objective="wait", value=value)


def test_a_starved_job_planned_late_though_it_could_start_is_reported_with_its_times() -> None:
    # Job 7 is starved, its bound is 80 + 15 + 20; jobs 8 and 9 are not.
    on = instance(**STARVED)
    free = SolvedJob(8, 100, {2: 1}), SolvedJob(9, 156, {0: 1, 1: 2})
    assert verify.solution(on, plan(on, SolvedJob(7, 115, {1: 2}), *free)) == []
    found = verify.solution(on, plan(on, SolvedJob(7, 116, {1: 2}), *free))
    assert texts(found) == [
        "starvation: job 7, submitted at 80, is planned at 116, allowed until 115; it could "
        "start at 100"
    ]


def test_jobs_that_are_not_starved_are_no_excuse_and_those_that_are_starved_are() -> None:
    on = instance(**STARVED)
    first = SolvedJob(9, 100, {0: 1, 1: 2}), SolvedJob(7, 120, {1: 2})
    assert [v.kind for v in verify.solution(on, plan(on, *first))] == [Kind.STARVATION]
    all_starved = instance(starvation={"threshold": 4, "bound": 0})
    assert verify.solution(all_starved, plan(all_starved, *first)) == []


@pytest.mark.parametrize(
    ("excuse", "start"),
    [
        ({"reservations": [{"start": 130, "duration": 20, "nodes": [0, 1], "capacity": [4, 2]}]},
         150),
        ({"down": [1], "queue": [AFTER | {"after": [], "unit": [4, 1], "units": 1}]}, 120),
        ({"power": {"cap": 40, "unit": [5, 10]}}, 120),
        ({"queue": [AFTER | {"after": [1], "think": 9}]}, 129),
        ({"queue": [AFTER | {"after": [], "earliest": 140}]}, 140),
        ({"queue": [AFTER | {"after": [8]}, OTHER]}, 154),
    ],
)  # fmt: skip
def test_a_starved_job_may_be_late_on_account_of_what_no_plan_can_change(
    excuse: dict[str, Any], start: int
) -> None:
    on = instance(**STARVED | excuse)
    node = 0 if "down" in excuse else 1
    units = int(on.queue.units[0])
    others = [SolvedJob(8, 150, {2: 1})] if 8 in on.queue.id and start == 154 else []
    assert verify.solution(on, plan(on, SolvedJob(7, start, {node: units}), *others)) == []
    found = verify.solution(on, plan(on, SolvedJob(7, start + 1, {node: units}), *others))
    assert [v.kind for v in found] == [Kind.STARVATION]
    assert found[0].text.endswith(f"it could start at {start}")


def test_a_starved_job_planned_on_the_pool_is_judged_on_the_pool() -> None:
    on = instance(starvation={"threshold": 0, "bound": 0}, running=[])
    # The pool has 4 GPUs: jobs 7 (2 GPUs) and 9 (3 GPUs) cannot run together.
    late = SolvedJob(7, 140, None)
    good = plan(on, SolvedJob(9, 120, None), SolvedJob(8, 100, {2: 1}), late)
    assert texts(verify.solution(on, good)) == [
        "starvation: job 9, submitted at 95, is planned at 120, allowed until 100; it could "
        "start at 100"
    ]
    assert (
        verify.solution(on, plan(on, SolvedJob(9, 100, {0: 1, 1: 2}), replace(late, start=120)))
        == []
    )


def test_a_job_of_a_partition_asks_for_a_share_of_the_whole_system() -> None:
    # For a quarter of the cores, which is half of those of the partition.
    groups = [{"name": "gpu", "nodes": 2, "capacity": [4, 4]},
              {"name": "fat", "nodes": 1, "capacity": [8, 0]}]  # fmt: skip
    job = {"id": 7, "submit": 80, "duration": 40, "units": 1, "unit": [4, 4]}
    bound = {"threshold": 30, "bound": 0, "wide": 1000}
    on = instance(resources=["core", "core@gpu"], groups=groups, queue=[job], starvation=bound)
    assert verify.solution(on, plan(on, SolvedJob(7, 130, {1: 1}))) == []
    assert on.starved().tolist() == [False]
    later = replace(on, now=103)
    assert later.starved().tolist() == [True]
    found = verify.solution(later, plan(later, SolvedJob(7, 130, {1: 1})))
    assert [v.kind for v in found] == [Kind.STARVATION]


def test_what_a_queue_rule_reserves_is_a_forecast_and_no_plan() -> None:
    on = instance(**STARVED)
    rule = solution(on, SolvedJob(7, 120, {1: 2}))
    assert verify.solution(on, rule) == []
    start_s, waits = np.array([120, -1, -1]), np.full(3, Reason.WAITS, np.int8)
    decision = Decision(start_s, waits, Placements.of({}), Certificate("easy"))
    assert verify.decision(on, decision) == []
    model = replace(decision, certificate=Certificate("pcp", "wait"))
    assert [v.kind for v in verify.decision(on, model)] == [Kind.STARVATION]


# ------------------------------------------------------------------------------ schedules

SYSTEM = System("two", ("core", "gpu"), (NodeGroup("a", 2, (4, 1)),))


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    plain = {
        "submit": 0, "start": 0, "end": 10, "units": 1, "requested_s": 20, "runtime_s": 10,
        "killed": False, "reason": "started", "request_core": 1, "request_gpu": 0, "nodes": [0],
        "node_units": [1],
    }  # fmt: skip
    return pd.DataFrame([plain | {"id": k} | row for k, row in enumerate(rows)])


def test_jobs_that_take_turns_on_a_node_are_clean() -> None:
    turns = [{"request_core": 4}, {"request_core": 4, "start": 10, "end": 20}]
    assert verify.run(table(turns), SYSTEM) == []


def test_an_overfull_node_of_a_schedule_names_jobs_resource_and_time() -> None:
    jobs = table([{"request_core": 3}, {"request_core": 3, "start": 9, "end": 19}])
    assert texts(verify.run(jobs, SYSTEM)) == [
        "capacity: node 0 (a), core at 9: 6 held by jobs 0, 1, 4 allowed"
    ]


def test_a_killed_job_ends_at_its_limit() -> None:
    cut = {"killed": True, "runtime_s": 90, "requested_s": 10}
    assert verify.run(table([cut]), SYSTEM) == []
    found = verify.run(table([cut | {"requested_s": 11}]), SYSTEM)
    assert texts(found) == [
        "duration: job 0 runs from 0 to 10: 10 s, runtime 90 s, killed at a limit of 11 s"
    ]


def test_jobs_are_killed_at_their_limits_where_that_is_the_rule_and_nowhere_else() -> None:
    cut = {"killed": True, "runtime_s": 90, "requested_s": 10}
    long = {"id": 1, "start": 10, "end": 100, "runtime_s": 90, "requested_s": 10}
    jobs = table([cut, long])
    assert verify.run(jobs, SYSTEM) == []
    assert texts(verify.run(jobs, SYSTEM, kill_at_limit=True)) == [
        "duration: job 1 runs from 10 to 100: 90 s, runtime 90 s, not killed at its limit of 10 s"
    ]
    assert texts(verify.run(jobs, SYSTEM, kill_at_limit=False)) == [
        "duration: job 0 runs from 0 to 10: 10 s, runtime 90 s, killed at a limit of 10 s, where "
        "no job is killed"
    ]


def found_in(jobs: pd.DataFrame, system: System | None = None) -> set[Kind]:
    return {violation.kind for violation in verify.run(jobs, system or SYSTEM)}


def test_a_job_without_runtime_fits_beside_what_is_there_before_and_after() -> None:
    full = {"request_core": 4}
    brief = {"request_core": 4, "start": 5, "end": 5, "runtime_s": 0}
    assert texts(verify.run(table([full, brief]), SYSTEM)) == [
        "capacity: job 1 starts and ends on node 0 at 5 with 4 core: 4 are held, 4 allowed"
    ]
    # In the second of a start or an end, or of each other, there is another decision.
    for at_s in (0, 10):
        moved = brief | {"start": at_s, "end": at_s}
        assert verify.run(table([full, moved, moved]), SYSTEM) == []
    assert verify.run(table([full, brief | {"nodes": [1]}]), SYSTEM) == []
    assert Kind.CAPACITY in found_in(table([brief | {"units": 2, "node_units": [2]}]))


def test_a_job_without_runtime_keeps_to_whole_nodes_and_to_limits() -> None:
    brief = {"start": 5, "end": 5, "runtime_s": 0}
    for alone in ([1, 0], [0, 1]):
        jobs = table([{}, brief]).assign(exclusive=alone)
        assert found_in(jobs) == {Kind.ACCESS}
        assert found_in(jobs.assign(nodes=[[0], [1]])) == set()
        assert found_in(jobs.assign(start=[0, 10], end=[10, 10])) == set()
    twice = table([brief | {"units": 2, "node_units": [2]}]).assign(exclusive=1)
    assert found_in(twice) == {Kind.ACCESS}
    jobs = table([{}, brief]).assign(user=["a", "a"], licences="m", array="x", array_limit=1)
    elsewhere = {"start": [0, 10], "end": [10, 10]}
    for system, named in (
        (replace(SYSTEM, limits=(Limit(1, per="user"),)), jobs.drop(columns=["array_limit"])),
        (replace(SYSTEM, licences={"m": 1}), jobs.drop(columns=["array_limit"])),
        (SYSTEM, jobs.drop(columns=["licences"])),
    ):
        assert found_in(named, system) == {Kind.LIMIT}
        assert found_in(named.assign(**elsewhere), system) == set()


OUT = {"start": -1, "end": -1, "nodes": None, "node_units": None, "reason": "never_fits"}


def test_only_a_job_that_fits_no_empty_system_may_be_left_out() -> None:
    too_wide = OUT | {"units": 3, "request_gpu": 1}
    assert verify.run(table([{}, too_wide]), SYSTEM) == []
    assert texts(verify.run(table([{}, OUT, OUT | {"reason": "waits"}]), SYSTEM)) == [
        "never started: job 2 never started though it could have been",
        "never started: job 1 never started as one that never fits, and it fits",
    ]


def test_a_job_that_the_dispatcher_refused_may_be_left_out() -> None:
    assert verify.run(table([{}, OUT | {"reason": "rejected"}]), SYSTEM) == []


@pytest.mark.parametrize("reason", ["rejected", "never_fits", "waits", "reserved", "strated"])
def test_a_job_that_ran_has_a_reason_of_those_that_start(reason: str) -> None:
    assert texts(verify.run(table([{}, {"reason": reason, "nodes": [1]}]), SYSTEM)) == [
        f"reason: job 1 starts at 0 and has the reason {reason}"
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"request_core": -3}, "asks for -3 core, 0 gpu a unit"),
        ({"request_core": 0}, "asks for 0 core, 0 gpu a unit"),
        ({"units": 0, "nodes": None, "node_units": None}, "asks for 0 units"),
    ],
)
def test_a_job_asks_for_something(row: dict[str, Any], text: str) -> None:
    """Else it would give other jobs room on its nodes."""
    assert texts(verify.run(table([{"request_core": 4}, row]), SYSTEM)) == [f"units: job 1 {text}"]


SEQUENCE = {"preceding": -1, "think_s": -1}


def in_sequence(*rows: dict[str, Any]) -> list[str]:
    return texts(verify.run(table([SEQUENCE | row for row in rows]), SYSTEM, dependencies=True))


def test_a_job_starts_when_the_one_before_it_has_ended_and_its_think_time_has_passed() -> None:
    after = {"preceding": 0, "think_s": 5, "start": 15, "end": 25}
    assert in_sequence({}, after, after | {"start": 10, "end": 20, "think_s": -1}) == []
    assert in_sequence({}, after | {"start": 14, "end": 24}) == [
        "dependency: job 1 starts at 14, allowed from 15 on: job 0 ends at 10, think time 5 s"
    ]
    assert in_sequence({}, after | {"start": 9, "end": 19, "think_s": 0}) == [
        "dependency: job 1 starts at 9, allowed from 10 on: job 0 ends at 10"
    ]


def test_a_job_before_another_counts_only_if_it_stands_before_it_and_could_run() -> None:
    after = {"preceding": 0, "start": 3, "end": 13}
    assert in_sequence({}, after | {"preceding": 99}, after | {"preceding": 2}) == []
    assert in_sequence(after | {"preceding": 1}, {}) == []
    for reason in ("never_fits", "rejected"):
        assert in_sequence(OUT | {"units": 99, "reason": reason}, after) == []
    assert in_sequence(OUT | {"reason": "waits"}, after) == [
        "never started: job 0 never started though it could have been",
        "dependency: job 1 starts at 3, and job 0, after which it comes, never started",
    ]


def test_dependencies_count_only_in_a_run_that_honoured_them() -> None:
    early = table([SEQUENCE, SEQUENCE | {"preceding": 0}])
    assert verify.run(early, SYSTEM) == []
    assert len(verify.run(early, SYSTEM, dependencies=True)) == 1
    with pytest.raises(InputError, match="field think_s: the table of jobs lacks this column"):
        verify.run(early.drop(columns="think_s"), SYSTEM, dependencies=True)


def test_at_most_a_hundred_violations_are_listed_and_the_rest_is_counted() -> None:
    rows = [{"end": 11, "submit": 5, "units": 9, "nodes": [7], "node_units": [0]}] * 50
    found = verify.run(table(rows), SYSTEM)
    assert len(found) <= 100
    assert found[-1].kind is Kind.MORE
    assert found[-1].text == (
        "42 more of early start, 42 more of duration, 92 more of units, 42 more of node"
    )


def test_what_is_not_listed_of_the_rules_beside_capacity_is_counted_too() -> None:
    system = System(
        "many", ("core", "gpu"), (NodeGroup("a", 20, (4, 1)),), watts={"core": 10},
        wake_s={"a": 5}, limits=(Limit(0, per="user"),),
    )  # fmt: skip
    rows = [{"nodes": [k], "user": k} for k in range(15)]
    asked = {
        "energy_j": (7, "energy"), "nodelist": ("19", "access"), "units_per_node": (2, "spread"),
        "tier": (9, "access"), "begin": (5, "early start"),
    }  # fmt: skip
    for name, (value, kind) in asked.items():
        jobs = table([row | {name: value, "together": 1} for row in rows])
        found = verify.run(jobs, replace(system, limits=()))
        assert {str(one.kind) for one in found[:-1]} == {kind}
        assert (len(found), str(found[-1])) == (9, f"more: 7 more of {kind}")
    for rule in ({"limits": system.limits}, {"limits": (), "power_cap": [[0, 0.0]]}):
        cap = rule.pop("power_cap", None)
        spread_out = table([row | {"start": k, "end": k + 10} for k, row in enumerate(rows)])
        found = verify.run(spread_out, replace(system, **rule), power_cap=cap)
        assert len(found) == 9
        assert found[-1].kind is Kind.MORE
    never = {"node": range(15), "off": 0, "wake": -1, "on": -1}
    found = verify.run(
        table(rows), replace(system, limits=(), wake_s={}), switched=pd.DataFrame(never)
    )
    assert [str(found[-1]), len(found)] == ["more: 7 more of down", 9]


def test_a_job_without_runtime_does_not_start_before_its_begin_time_either() -> None:
    for end in (5, 6):
        jobs = table([{"start": 5, "end": end, "runtime_s": end - 5, "begin": 100}])
        assert texts(verify.run(jobs, SYSTEM)) == [
            "early start: job 0 starts at 5, it may from 100 on"
        ]
    assert verify.run(table([{"start": 5, "end": 15, "begin": None}]), SYSTEM) == []


def test_a_decision_in_the_second_of_another_says_nothing_of_who_was_passed_over() -> None:
    # Job 0 starts in the first decision at 100, which did not look at waits.
    whole = {"units": 2, "request_core": 4, "nodes": [0, 1], "node_units": [1, 1]}
    jobs = table([
        whole | {"submit": 90, "start": 100, "end": 110},
        whole | {"submit": 0, "start": 110, "end": 120},
    ])  # fmt: skip
    rules = {"in_turn_after": 600, "wide": 0, "first_after": 1000}
    for times, says in (([100, 100, 110], 0), ([99, 100, 110], 1)):
        decisions = pd.DataFrame({"time": times, "easy_wait": [None, 10.0, 10.0]})
        assert len(verify.run(jobs, SYSTEM, decisions=decisions, wait=rules)) == says


def test_a_schedule_saved_as_parquet_is_read_in_every_form_that_pandas_gives_it(
    tmp_path: Path,
) -> None:
    jobs = table([{"units": 3, "nodes": [0, 1], "node_units": [1, 2]}, OUT | {"units": 99}, {}])
    jobs.to_parquet(tmp_path / "jobs.parquet")
    for backend in ({}, {"dtype_backend": "pyarrow"}, {"dtype_backend": "numpy_nullable"}):
        again = pd.read_parquet(tmp_path / "jobs.parquet", **backend)
        assert verify.run(again, SYSTEM) == []
        assert len(verify.run(again.assign(units=[4, 99, 1]), SYSTEM)) == 1


@pytest.mark.parametrize("unset", [None, pd.NA, 0, False, float("nan")])
def test_a_job_that_takes_no_node_whole_may_say_so_in_many_ways(unset: Any) -> None:
    assert verify.run(table([{"exclusive": unset}] * 2), SYSTEM) == []
    (found,) = verify.run(table([{"exclusive": unset}, {"exclusive": True}]), SYSTEM)
    assert found.kind is Kind.ACCESS


def test_a_missing_end_may_be_written_as_missing() -> None:
    jobs = table([{}, OUT | {"units": 99}])
    missing = jobs.assign(end=pd.array([10, None], dtype="Int64"))
    assert verify.run(missing, SYSTEM) == []


def test_a_table_that_lacks_a_column_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="field request_gpu: the table of jobs lacks this column"):
        verify.run(table([{}]).drop(columns="request_gpu"), SYSTEM)
    service = verify.Service((), pd.DataFrame({"id": [], "start": [], "end": [], "nodes": []}))
    served = table([{"requeued": 0, "failed": False}])
    named, off = pd.DataFrame({"id": [0], "at": [0]}), pd.DataFrame({"node": [1]})
    for field, of, given, rest in (
        ("together", "jobs", table([{"units_per_node": 1}]), {}),
        ("array", "jobs", table([{"array_limit": 1}]), {}),
        ("expected_s", "jobs", served, {"service": service}),
        ("node_units", "attempts", served.assign(expected_s=10), {"service": service}),
        ("start", "promises", table([{}]), {"promised": named, "told": verify.Told()}),
        ("off", "nodes that were off", table([{}]), {"switched": off}),
    ):
        with pytest.raises(InputError, match=f"{field}: the table of {of} lacks this column"):
            verify.run(given, SYSTEM, **rest)


def test_a_column_of_words_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="field submit: not whole numbers"):
        verify.run(table([{"submit": "soon"}]), SYSTEM)


def test_nodes_without_their_units_are_refused() -> None:
    with pytest.raises(InputError, match="field node_units: job 0 has 2 nodes"):
        verify.run(table([{"nodes": [0, 1]}]), SYSTEM)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({0: {0.5: 1}}, "node: must be a whole number (found 0.5)"),
        ({0: {0: 1.5}}, "units: must be a whole number (found 1.5)"),
        ({0: {0: 2}, 1: {float("nan"): 1}}, "node: must be a whole number (found nan)"),
        ({"a": {0: 1}}, "position: must be a whole number (found 'a')"),
    ],
)
def test_a_place_that_is_no_whole_number_is_refused_and_not_cut_off(
    places: Any, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        Placements.of(places)
    assert str(refused.value) == f"placements: field {message}"


def test_places_may_be_given_in_numbers_of_numpy() -> None:
    given: Any = {np.int64(3): {np.int32(2): np.int64(4)}}
    places = Placements.of(given)
    assert places.as_dict() == {3: {2: 4}}
    assert places.node.dtype == np.int64
