"""A feasible answer is clean; each way of spoiling it is reported by its name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.instance import Instance, digest
from cpdispatch.solution import Solution, SolvedJob
from cpdispatch.system import System
from cpdispatch.verify import Kind, Violation
from tests.effort import examples
from tests.strategies import Plan, planned_instances, read, schedules

File: TypeAlias = dict[str, Any]


def kinds(found: Iterable[Violation]) -> set[Kind]:
    return {violation.kind for violation in found}


def claim(file: File, plan: Plan) -> tuple[Instance, Solution]:
    """The instance of a file, and a plan for it as a solution that states the truth."""
    instance = read(file)
    value = float(
        verify.objective_value(instance, "slowdown", {k: s for k, (s, _) in plan.items()})
    )
    jobs = tuple(
        SolvedJob(id, plan[k][0], plan[k][1]) if k in plan else SolvedJob(id, None, None, "waits")
        for k, id in enumerate(instance.queue.id.tolist())
    )
    sha256 = digest(instance)
    return instance, Solution(
        sha256, "pcp", "feasible", "slowdown", value, value / 2, 1.0, 9.0, jobs
    )


def answer(file: File, plan: Plan, planned: bool = True) -> tuple[Instance, Decision]:
    """A plan as a dispatcher's decision, with or without the nodes of later starts."""
    instance = read(file)
    start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
    for k, (start, _) in plan.items():
        start_s[k] = start
    reason = np.full(len(start_s), Reason.WAITS, dtype=np.int8)
    reason[start_s == instance.now] = Reason.STARTED
    places = {k: nodes for k, (start, nodes) in plan.items() if planned or start == instance.now}
    return instance, Decision(start_s, reason, Placements.of(places), Certificate("test"))


def job_entry(file: File, position: int) -> dict[str, Any]:
    """The job at a queue position, in the file."""
    id = int(read(file).queue.id[position])
    found: dict[str, Any] = next(job for job in file["queue"] if job["id"] == id)
    return found


def capacity(file: File, node: int) -> list[int]:
    values: list[int] = read(file).system.capacity[node].tolist()
    return values


def victim(data: st.DataObject, file: File, plan: Plan, now: bool = False) -> int:
    """A job of the plan; when it matters, one that starts now."""
    return data.draw(
        st.sampled_from([k for k, (s, _) in plan.items() if not now or s == file["time"]]),
        label="victim",
    )


# ------------------------------------------------ ways to spoil the instance under a good plan


def ask_for_too_much(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    node = data.draw(st.sampled_from(list(plan[k][1])))
    r = data.draw(st.integers(0, len(file["resources"]) - 1))
    job_entry(file, k)["unit"][r] = capacity(file, node)[r] + 1


def reserve_its_node(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    start, nodes = plan[k]
    second = data.draw(st.integers(start, start + job_entry(file, k)["duration"] - 1))
    node = data.draw(st.sampled_from(list(nodes)))
    block = {"start": second, "duration": 3, "nodes": [node], "capacity": capacity(file, node)}
    file["reservations"] = [*file.get("reservations", []), block]


def forbid_all_power(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    file["power"] = {"cap": 0, "unit": [1] * len(file["resources"])}


def take_its_node_down(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    file["down"] = [data.draw(st.sampled_from(list(plan[k][1])))]


SPOILED_INSTANCE: dict[Kind, Callable[[st.DataObject, File, Plan, int], None]] = {
    Kind.CAPACITY: ask_for_too_much,
    Kind.RESERVATION: reserve_its_node,
    Kind.POWER: forbid_all_power,
    Kind.DOWN: take_its_node_down,
}

# ------------------------------------------------------------------------- a solution


def change(solution: Solution, k: int, **fields: Any) -> Solution:
    jobs = list(solution.jobs)
    jobs[k] = replace(jobs[k], **fields)
    return replace(solution, jobs=tuple(jobs))


Spoiler: TypeAlias = Callable[[st.DataObject, Instance, Solution, int], Solution]

SPOILED_SOLUTION: list[tuple[str, Kind, Spoiler]] = [
    ("digest", Kind.DIGEST, lambda d, i, s, k: replace(s, instance="0" * 64)),
    ("objective", Kind.OBJECTIVE, lambda d, i, s, k: replace(s, objective="beauty")),
    ("no objective", Kind.OBJECTIVE, lambda d, i, s, k: replace(s, objective="")),
    ("value", Kind.VALUE, lambda d, i, s, k: replace(s, value=s.value * (1 + 1e-7))),
    ("no number", Kind.VALUE, lambda d, i, s, k: replace(s, value=float("nan"))),
    ("bound", Kind.BOUND, lambda d, i, s, k: replace(s, bound=s.value * (1 + 1e-7))),
    ("status", Kind.STATUS, lambda d, i, s, k: replace(s, status="perfect")),
    ("optimal", Kind.STATUS, lambda d, i, s, k: replace(s, status="optimal")),
    ("no value", Kind.STATUS, lambda d, i, s, k: replace(s, status="optimal", value=None)),
    ("no bound", Kind.STATUS, lambda d, i, s, k: replace(s, status="optimal", bound=None)),
    ("infeasible", Kind.STATUS, lambda d, i, s, k: replace(s, status="infeasible")),
    ("unsolved", Kind.STATUS, lambda d, i, s, k: replace(s, status="unsolved")),
    (
        "unknown job",
        Kind.UNKNOWN_JOB,
        lambda d, i, s, k: replace(s, jobs=(*s.jobs, SolvedJob(12345, None))),
    ),
    (
        "repeated job",
        Kind.REPEATED_JOB,
        lambda d, i, s, k: replace(s, jobs=(*s.jobs, s.jobs[k])),
    ),
    (
        "missing job",
        Kind.MISSING_JOB,
        lambda d, i, s, k: replace(s, jobs=s.jobs[:k] + s.jobs[k + 1 :]),
    ),
    (
        "early",
        Kind.EARLY_START,
        lambda d, i, s, k: change(s, k, start=i.now - d.draw(st.integers(1, 9))),
    ),
    ("no nodes now", Kind.PLACEMENT, lambda d, i, s, k: change(s, k, start=i.now, nodes=None)),
    ("no start", Kind.PLACEMENT, lambda d, i, s, k: change(s, k, start=None)),
    ("one unit more", Kind.UNITS, lambda d, i, s, k: change(s, k, nodes=more(s.jobs[k], 1))),
    ("one unit less", Kind.UNITS, lambda d, i, s, k: change(s, k, nodes=more(s.jobs[k], -1))),
    ("no unit", Kind.UNITS, lambda d, i, s, k: change(s, k, nodes={**s.jobs[k].nodes, 0: 0})),
    ("no node", Kind.NODE, lambda d, i, s, k: change(s, k, nodes={i.system.nodes: 1})),
    ("node -1", Kind.NODE, lambda d, i, s, k: change(s, k, nodes={-1: 1})),
]


def more(job: SolvedJob, units: int) -> dict[int, int]:
    assert job.nodes is not None
    first, *rest = job.nodes.items()
    return {first[0]: first[1] + units, **dict(rest)}


@given(planned_instances())
def test_a_feasible_plan_is_clean(case: tuple[File, Plan]) -> None:
    assert verify.solution(*claim(*case)) == []


@given(planned_instances())
def test_later_starts_may_be_planned_without_nodes(case: tuple[File, Plan]) -> None:
    instance, solution = claim(*case)
    jobs = tuple(
        replace(job, nodes=None) if job.start is not None and job.start > instance.now else job
        for job in solution.jobs
    )
    assert verify.solution(instance, replace(solution, jobs=jobs)) == []


@pytest.mark.parametrize(("name", "kind", "spoil"), SPOILED_SOLUTION, ids=lambda x: str(x)[:20])
@settings(max_examples=examples(40))
@given(planned_instances(), st.data())
def test_each_spoiled_solution_is_reported_by_its_kind(
    name: str, kind: Kind, spoil: Spoiler, case: tuple[File, Plan], data: st.DataObject
) -> None:
    instance, solution = claim(*case)
    spoiled = spoil(data, instance, solution, victim(data, *case))
    assert kind in kinds(verify.solution(instance, spoiled))


@pytest.mark.parametrize("kind", SPOILED_INSTANCE)
@settings(max_examples=examples(60))
@given(planned_instances(), st.data())
def test_a_plan_for_a_world_that_changed_is_reported(
    kind: Kind, case: tuple[File, Plan], data: st.DataObject
) -> None:
    file, plan = copy.deepcopy(case[0]), case[1]
    SPOILED_INSTANCE[kind](data, file, plan, victim(data, file, plan))
    if kind is Kind.DOWN:
        file["running"] = []
    assert kind in kinds(verify.solution(*claim(file, plan)))


@settings(max_examples=examples(60))
@given(planned_instances(), st.data())
def test_more_than_the_whole_system_has_is_reported(
    case: tuple[File, Plan], data: st.DataObject
) -> None:
    file, plan = copy.deepcopy(case[0]), case[1]
    k = victim(data, file, plan)
    r = data.draw(st.integers(0, len(file["resources"]) - 1))
    job_entry(file, k)["unit"][r] = int(read(file).system.total[r]) + 1
    instance, solution = claim(file, plan)
    solution = change(solution, k, start=instance.now + 1, nodes=None)
    assert Kind.POOL in kinds(verify.solution(instance, solution))


@settings(max_examples=examples(60))
@given(planned_instances())
def test_a_running_job_must_not_be_planned(case: tuple[File, Plan]) -> None:
    instance, solution = claim(*case)
    for id in instance.running.jobs.id.tolist():
        touched = replace(solution, jobs=(*solution.jobs, SolvedJob(id, instance.now, {0: 1})))
        assert Kind.RUNNING_JOB in kinds(verify.solution(instance, touched))


# ------------------------------------------------------------ any plan, against a dense count


@st.composite
def any_plans(draw: st.DrawFn) -> tuple[Instance, Solution]:
    """Plans whose units are right and whose starts are allowed, on whatever nodes."""
    file, plan = draw(planned_instances())
    instance = read(file)
    up = sorted(set(range(instance.system.nodes)) - set(instance.down.tolist()))
    made: Plan = dict(plan)
    bare = set()
    for k, job in enumerate(instance.queue):
        if not up or draw(st.booleans()):
            continue
        nodes: dict[int, int] = {}
        for _ in range(job.units):
            node = draw(st.sampled_from(up))
            nodes[node] = nodes.get(node, 0) + 1
        made[k] = (instance.now + draw(st.integers(0, 25)), nodes)
        if made[k][0] > instance.now and draw(st.booleans()):
            bare.add(k)
    instance, solution = claim(file, made)
    jobs = [replace(job, nodes=None) if k in bare else job for k, job in enumerate(solution.jobs)]
    return instance, replace(solution, jobs=tuple(jobs))


def dense_verdict(instance: Instance, solution: Solution) -> set[Kind]:
    """Second by second: is a node, the pool or the power cap overrun, with the plan's part?"""
    seconds, system, found = 400, instance.system, set()
    shape = (seconds, system.nodes, len(system.resources))
    own, others, pooled = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    watts, own_watts = np.zeros(seconds, dtype=np.int64), np.zeros(seconds, dtype=np.int64)
    running = instance.running
    draws = instance.job_power(running.jobs)
    for k in range(len(running)):
        span = slice(0, max(1, int(running.end_s[k]) - instance.now))
        watts[span] += draws[k]
        for e in range(int(running.offset[k]), int(running.offset[k + 1])):
            others[span, running.node[e]] += running.units[e] * running.jobs.request[k]
    for r in instance.reservations:
        span = slice(max(0, r.start_s - instance.now), max(0, r.end_s - instance.now))
        for node in r.nodes:
            others[span, node] += np.array(r.capacity)
    draws = instance.job_power(instance.queue)
    for k, job in enumerate(solution.jobs):
        if job.start is None:
            continue
        low, (asked, length) = job.start - instance.now, (
            instance.queue.request[k], int(instance.queue.expected_s[k])
        )  # fmt: skip
        own_watts[low : low + length] += draws[k]
        if job.nodes is None:
            pooled[low : low + length, 0] += int(instance.queue.units[k]) * asked
        for node, units in (job.nodes or {}).items():
            own[low : low + length, node] += units * asked
    if ((own > 0) & (own + others > system.capacity)).any():
        found.add(Kind.CAPACITY)
    capacity = system.capacity.copy()
    capacity[instance.down] = 0
    left = (capacity - np.minimum(others, capacity) - own - pooled).sum(axis=1)
    if ((left < 0) & (pooled.sum(axis=1) > 0)).any():
        found.add(Kind.POOL)
    if (
        instance.power is not None
        and ((own_watts > 0) & (own_watts + watts > instance.power.cap)).any()
    ):
        found.add(Kind.POWER)
    return found


@settings(max_examples=examples(300))
@given(any_plans())
def test_the_verdict_on_any_plan_is_that_of_counting_every_second(
    case: tuple[Instance, Solution],
) -> None:
    found = kinds(verify.solution(*case))
    # Counting cannot tell who is to blame: a reservation's share is capacity to it.
    folded = {Kind.CAPACITY if kind is Kind.RESERVATION else kind for kind in found}
    assert folded == dense_verdict(*case)


# -------------------------------------------------------------------------- a decision


@given(planned_instances(), st.booleans())
def test_a_feasible_decision_is_clean(case: tuple[File, Plan], planned: bool) -> None:
    assert verify.decision(*answer(*case, planned)) == []


@given(planned_instances(reservations=False, power=False))
def test_a_decision_that_starts_only_what_starts_now_is_clean(case: tuple[File, Plan]) -> None:
    file, plan = case
    now = {k: v for k, v in plan.items() if v[0] == file["time"]}
    assert verify.decision(*answer(file, now)) == []


@pytest.mark.parametrize("kind", SPOILED_INSTANCE)
@settings(max_examples=examples(60))
@given(planned_instances(), st.data())
def test_a_decision_for_a_world_that_changed_is_reported(
    kind: Kind, case: tuple[File, Plan], data: st.DataObject
) -> None:
    file, plan = copy.deepcopy(case[0]), case[1]
    SPOILED_INSTANCE[kind](data, file, plan, victim(data, file, plan, now=True))
    if kind is Kind.DOWN:
        file["running"] = []
    assert kind in kinds(verify.decision(*answer(file, plan)))


@settings(max_examples=examples(60))
@given(planned_instances(reservations=False, power=False), st.data())
def test_more_than_is_free_now_is_reported_without_reservations(
    case: tuple[File, Plan], data: st.DataObject
) -> None:
    file, plan = copy.deepcopy(case[0]), case[1]
    ask_for_too_much(data, file, plan, victim(data, file, plan, now=True))
    assert Kind.CAPACITY in kinds(verify.decision(*answer(file, plan)))


def with_places(decision: Decision, **fields: Any) -> Decision:
    return replace(decision, placements=replace(decision.placements, **fields))


def first_unit(decision: Decision, k: int) -> int:
    """Index of the first entry of the job at a queue position."""
    places = decision.placements
    return int(places.offset[places.position.tolist().index(k)])


def poke(array: Any, index: int, value: int) -> Any:
    changed = np.array(array)
    changed[index] = value
    return changed


def drop(decision: Decision, k: int) -> Decision:
    places = decision.placements.as_dict()
    del places[k]
    return replace(decision, placements=Placements.of(places))


def twice(decision: Decision, k: int) -> Decision:
    p = decision.placements
    nodes = p.as_dict()[k]
    return with_places(
        decision,
        position=np.append(p.position, k),
        offset=np.append(p.offset, len(p.node) + len(nodes)),
        node=np.append(p.node, list(nodes)),
        units=np.append(p.units, list(nodes.values())),
    )


def node_named_twice(decision: Decision, k: int) -> Decision:
    """The job's first entry again, as an entry of its own."""
    p, at = decision.placements, first_unit(decision, k)
    later = (p.offset > at).astype(np.int64)
    return with_places(
        decision,
        offset=p.offset + later,
        node=np.insert(p.node, at, p.node[at]),
        units=np.insert(p.units, at, p.units[at]),
    )


DecisionSpoiler: TypeAlias = Callable[[Instance, Decision, int], Decision]

SPOILED_DECISION: list[tuple[str, Kind, DecisionSpoiler]] = [
    ("starts", Kind.SHAPE, lambda i, d, k: replace(d, start_s=np.append(d.start_s, NO_START))),
    ("reasons", Kind.SHAPE, lambda i, d, k: replace(d, reason=d.reason[:-1])),
    ("units", Kind.SHAPE, lambda i, d, k: with_places(d, units=d.placements.units[:-1])),
    ("offsets", Kind.SHAPE, lambda i, d, k: with_places(d, offset=d.placements.offset[:-1])),
    ("last", Kind.SHAPE, lambda i, d, k: with_places(d, offset=poke(d.placements.offset, -1, 99))),
    ("early", Kind.EARLY_START, lambda i, d, k: replace(d, start_s=poke(d.start_s, k, i.now - 1))),
    ("below", Kind.EARLY_START, lambda i, d, k: replace(d, start_s=poke(d.start_s, k, -2))),
    ("bare", Kind.PLACEMENT, lambda i, d, k: drop(d, k)),
    ("idle", Kind.PLACEMENT, lambda i, d, k: replace(d, start_s=poke(d.start_s, k, NO_START))),
    (
        "position",
        Kind.UNKNOWN_JOB,
        lambda i, d, k: with_places(d, position=poke(d.placements.position, -1, len(i.queue))),
    ),
    (
        "position -1",
        Kind.UNKNOWN_JOB,
        lambda i, d, k: with_places(d, position=poke(d.placements.position, -1, -1)),
    ),
    ("twice", Kind.REPEATED_JOB, lambda i, d, k: twice(d, k)),
    (
        "more units",
        Kind.UNITS,
        lambda i, d, k: with_places(d, units=poke(d.placements.units, first_unit(d, k), 7)),
    ),
    (
        "no units",
        Kind.UNITS,
        lambda i, d, k: with_places(d, units=poke(d.placements.units, first_unit(d, k), 0)),
    ),
    (
        "no node",
        Kind.NODE,
        lambda i, d, k: with_places(
            d, node=poke(d.placements.node, first_unit(d, k), i.system.nodes)
        ),
    ),
    (
        "node -1",
        Kind.NODE,
        lambda i, d, k: with_places(d, node=poke(d.placements.node, first_unit(d, k), -1)),
    ),
    ("node twice", Kind.NODE, lambda i, d, k: node_named_twice(d, k)),
    (
        "reason",
        Kind.REASON,
        lambda i, d, k: replace(d, reason=poke(d.reason, k, int(Reason.REJECTED))),
    ),
]


@pytest.mark.parametrize(("name", "kind", "spoil"), SPOILED_DECISION, ids=lambda x: str(x)[:20])
@settings(max_examples=examples(40))
@given(planned_instances(), st.data())
def test_each_spoiled_decision_is_reported_by_its_kind(
    name: str, kind: Kind, spoil: DecisionSpoiler, case: tuple[File, Plan], data: st.DataObject
) -> None:
    instance, decision = answer(*case)
    # Any job of the plan: what is planned for later must be sound too.
    now = name in {"bare", "reason"}
    spoiled = spoil(instance, decision, victim(data, *case, now=now))
    assert kind in kinds(verify.decision(instance, spoiled))


# -------------------------------------------------------------------- a whole schedule


def edit(jobs: pd.DataFrame, row: int, **fields: Any) -> pd.DataFrame:
    changed = jobs.copy()
    for name, value in fields.items():
        column = changed[name].astype(object).tolist()
        column[row] = value
        changed[name] = pd.Series(column, dtype=jobs[name].dtype)
    return changed


RunSpoiler: TypeAlias = Callable[[pd.DataFrame, System, int], pd.DataFrame]

SPOILED_RUN: list[tuple[str, Kind, RunSpoiler]] = [
    ("again", Kind.REPEATED_JOB, lambda j, s, k: pd.concat([j, j.iloc[[k]]], ignore_index=True)),
    ("early", Kind.EARLY_START, lambda j, s, k: edit(j, k, submit=j.start[k] + 1)),
    ("longer", Kind.DURATION, lambda j, s, k: edit(j, k, end=j.end[k] + 1)),
    ("shorter", Kind.DURATION, lambda j, s, k: edit(j, k, end=j.start[k] - 1)),
    (
        "killed in time",
        Kind.DURATION,
        lambda j, s, k: edit(j, k, killed=True, runtime_s=j.end[k] - j.start[k],
                             requested_s=j.end[k] - j.start[k]),
    ),
    (
        "killed late",
        Kind.DURATION,
        lambda j, s, k: edit(j, k, killed=True, runtime_s=99, requested_s=98),
    ),
    ("reason", Kind.REASON, lambda j, s, k: edit(j, k, reason="rejected")),
    ("units", Kind.UNITS, lambda j, s, k: edit(j, k, units=j.units[k] + 1)),
    (
        "no units",
        Kind.UNITS,
        lambda j, s, k: edit(j, k, node_units=poke(j.node_units[k], 0, 0)),
    ),
    ("no node", Kind.NODE, lambda j, s, k: edit(j, k, nodes=poke(j.nodes[k], 0, s.nodes))),
    ("node -1", Kind.NODE, lambda j, s, k: edit(j, k, nodes=poke(j.nodes[k], 0, -1))),
    (
        "node twice",
        Kind.NODE,
        lambda j, s, k: edit(j, k, nodes=np.append(j.nodes[k], j.nodes[k][0]),
                             node_units=np.append(j.node_units[k], 1)),
    ),
    ("bare", Kind.UNITS, lambda j, s, k: edit(j, k, nodes=None, node_units=None)),
    ("left out", Kind.NEVER_STARTED, lambda j, s, k: left_out(j, k, "waits")),
    ("never fits", Kind.NEVER_STARTED, lambda j, s, k: left_out(j, k, "never_fits")),
    ("end of none", Kind.PLACEMENT, lambda j, s, k: edit(j, k, start=-1)),
    (
        "capacity",
        Kind.CAPACITY,
        lambda j, s, k: edit(j, k, request_core=s.capacity[j.nodes[k][0], 0] + 1),
    ),
]  # fmt: skip


def left_out(jobs: pd.DataFrame, row: int, reason: str) -> pd.DataFrame:
    return edit(jobs, row, start=-1, end=-1, nodes=None, node_units=None, reason=reason)


@given(schedules())
def test_a_feasible_schedule_is_clean(case: tuple[pd.DataFrame, System]) -> None:
    assert verify.run(*case) == []


@pytest.mark.parametrize(("name", "kind", "spoil"), SPOILED_RUN, ids=lambda x: str(x)[:20])
@settings(max_examples=examples(40))
@given(schedules(), st.data())
def test_each_spoiled_schedule_is_reported_by_its_kind(
    name: str,
    kind: Kind,
    spoil: RunSpoiler,
    case: tuple[pd.DataFrame, System],
    data: st.DataObject,
) -> None:
    jobs, system = case
    ran = jobs.index[(jobs.start >= 0) & (jobs.end > jobs.start)].tolist()
    spoiled = spoil(jobs, system, data.draw(st.sampled_from(ran)))
    assert kind in kinds(verify.run(spoiled, system))


@settings(max_examples=examples(100))
@given(schedules(), st.data())
def test_capacity_of_any_schedule_is_judged_as_by_counting_every_second(
    case: tuple[pd.DataFrame, System], data: st.DataObject
) -> None:
    jobs, system = case
    shift = [data.draw(st.integers(0, 6)) if start >= 0 else 0 for start in jobs.start]
    jobs = jobs.assign(start=jobs.start + shift, end=jobs.end + shift)
    brief = {int(row.id): int(row.start) for row in jobs.itertuples() if 0 <= row.start == row.end}
    held = np.zeros((500, system.nodes, len(system.resources)), dtype=np.int64)
    # What a job that ends in the second in which it starts meets, and what it takes.
    met = {id: np.zeros_like(held[0]) for id in brief}
    for row in jobs.itertuples():
        request = np.array([getattr(row, f"request_{name}") for name in system.resources])
        if row.nodes is not None:
            for node, units in zip(row.nodes, row.node_units, strict=True):
                held[row.start : row.end, node] += units * request
                for id, at_s in brief.items():
                    if id == row.id or row.start < at_s < row.end:
                        met[id][node] += units * request
    overrun = bool((held > system.capacity).any())
    for row in jobs.itertuples():
        if row.id in brief:
            request = np.array([getattr(row, f"request_{name}") for name in system.resources])
            asks = np.zeros(held[0].shape, dtype=np.bool_)
            asks[list(row.nodes)] = request > 0
            overrun |= bool((asks & (met[row.id] > system.capacity)).any())
    assert (Kind.CAPACITY in kinds(verify.run(jobs, system))) == overrun


def test_every_kind_of_violation_has_an_injection() -> None:
    injected = {kind for _, kind, _ in [*SPOILED_SOLUTION, *SPOILED_DECISION, *SPOILED_RUN]}
    # The last ones are in files of their own.
    elsewhere = {Kind.POOL, Kind.RUNNING_JOB, Kind.MORE, Kind.DEPENDENCY, Kind.STARVATION}
    elsewhere |= {Kind.LATE, Kind.RESTART, Kind.ACCESS, Kind.LIMIT, Kind.SPREAD, Kind.ENERGY}
    elsewhere |= {Kind.DECISION, Kind.PROMISE, Kind.TEST}
    assert injected | set(SPOILED_INSTANCE) | elsewhere == set(Kind)
