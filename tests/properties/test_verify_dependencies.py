"""The checker on plans of jobs that depend on each other, and of jobs that starve."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import Decision
from cpdispatch.instance import Instance
from cpdispatch.solution import Solution
from cpdispatch.verify import Kind
from tests.effort import examples
from tests.properties.test_verify_mutations import File, answer, claim, job_entry, kinds, victim
from tests.strategies import Plan, before, lasting, place, planned_instances, read

depending = planned_instances(dependencies=True, predictions=True)
starving = planned_instances(dependencies=True, starvation=True)
predicted = planned_instances(dependencies=True, starvation=True, predictions=True)


def for_an_objective(decision: Decision) -> Decision:
    return replace(decision, certificate=replace(decision.certificate, objective="slowdown"))


@given(predicted)
def test_a_plan_that_honours_dependencies_and_starved_jobs_is_clean(
    case: tuple[File, Plan],
) -> None:
    assert verify.solution(*claim(*case)) == []


@given(predicted)
def test_a_decision_that_does_so_is_clean(case: tuple[File, Plan]) -> None:
    instance, decision = answer(*case)
    assert verify.decision(instance, for_an_objective(decision)) == []


@given(depending, st.booleans())
def test_a_decision_may_plan_later_starts_without_nodes(
    case: tuple[File, Plan], planned: bool
) -> None:
    assert verify.decision(*answer(*case, planned)) == []


# --------------------------------------------------------- jobs that suddenly depend on others


def state_a_later_start(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    job_entry(file, k)["earliest"] = plan[k][0] + data.draw(st.integers(1, 5))


def after_one_without_a_start(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    job = job_entry(file, k)
    file["queue"].append({**job, "id": 1000, "submit": file["time"], "after": [], "think": 0})
    job["after"] = [*job.get("after", []), 1000]


def after_one_that_ends_too_late(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    after_one_without_a_start(data, file, plan, k)
    start = data.draw(st.integers(file["time"], plan[k][0]))
    last = len(file["queue"]) - 1  # the newest job stands last in the queue
    plan[last] = (start, plan[k][1])
    job = job_entry(file, k)
    think = plan[k][0] - (start + job["duration"]) + data.draw(st.integers(1, 5))
    job["think"] = max(job.get("think", 0), think)


def after_a_running_one(data: st.DataObject, file: File, plan: Plan, k: int) -> None:
    if not file["running"]:
        one = [1] * len(file["resources"])
        file["groups"].append({"name": "far", "nodes": 1, "capacity": one})
        node = str(read(file).system.nodes - 1)
        file["running"] = [{"id": 9, "start": file["time"], "duration": 5, "units": 1,
                            "unit": one, "nodes": {node: 1}}]  # fmt: skip
    running = data.draw(st.sampled_from(file["running"]))
    end = max(running["start"] + running["duration"], file["time"] + 1)
    job = job_entry(file, k)
    job["after"] = sorted({*job.get("after", []), running["id"]})
    think = plan[k][0] - end + data.draw(st.integers(1, 5))
    job["think"] = max(job.get("think", 0), think)


Wait: TypeAlias = Callable[[st.DataObject, File, Plan, int], None]
WAITS: list[Wait] = [
    state_a_later_start,
    after_one_without_a_start,
    after_one_that_ends_too_late,
    after_a_running_one,
]


@pytest.mark.parametrize("wait", WAITS)
@settings(max_examples=examples(60))
@given(depending, st.data())
def test_a_start_that_comes_too_soon_is_reported(
    wait: Wait, case: tuple[File, Plan], data: st.DataObject
) -> None:
    file, plan = copy.deepcopy(case[0]), dict(case[1])
    wait(data, file, plan, victim(data, file, plan))
    assert Kind.DEPENDENCY in kinds(verify.solution(*claim(file, plan)))
    assert Kind.DEPENDENCY in kinds(verify.decision(*answer(file, plan)))


# ----------------------------------------------- any plan of starved jobs, against a dense count


@st.composite
def delayed_plans(draw: st.DrawFn) -> tuple[Instance, Solution]:
    """Plans of which some jobs were put off, or planned without nodes, or left out."""
    file, plan = draw(
        planned_instances(dependencies=True, starvation=True, predictions=True, max_jobs=8)
    )
    file["starvation"]["threshold"] = draw(st.integers(0, 30))
    made: Plan = {}
    bare = set()
    for k, (start, nodes) in plan.items():
        kind = draw(st.integers(0, 5))
        if kind:
            made[k] = (start + draw(st.integers(1, 20)) * (kind > 2), nodes)
        if kind == 5:
            bare.add(k)
    instance, solution = claim(file, made)
    jobs = [replace(job, nodes=None) if k in bare else job for k, job in enumerate(solution.jobs)]
    return instance, replace(solution, jobs=tuple(jobs))


def could_start(instance: Instance, solution: Solution, k: int) -> int | None:
    """Second by second: when a starved job could start, before it is planned to.

    All jobs last until their requested times: the nodes may then be held more than once.
    """
    instance = lasting(instance, "requested")
    now, seconds, system = instance.now, 600, instance.system
    taken = np.zeros((seconds, system.nodes, len(system.resources)), dtype=np.int64)
    pooled = np.zeros((seconds, len(system.resources)), dtype=np.int64)
    watts = np.zeros(seconds, dtype=np.int64)
    running, queue = instance.running, instance.queue
    draws = instance.job_power(running.jobs)
    ends = {int(running.jobs.id[i]): int(running.end_s[i]) for i in range(len(running))}
    for i in range(len(running)):
        span = slice(0, int(running.end_s[i]) - now)
        watts[span] += draws[i]
        for e in range(int(running.offset[i]), int(running.offset[i + 1])):
            taken[span, running.node[e]] += running.units[e] * running.jobs.request[i]
    for r in instance.reservations:
        span = slice(max(0, r.start_s - now), max(0, r.end_s - now))
        taken[span, list(r.nodes)] += np.array(r.capacity)
    draws = instance.job_power(queue)
    for other, job in enumerate(solution.jobs):
        if job.start is None or other == k or not instance.starved()[other]:
            continue
        span = slice(job.start - now, job.start - now + int(queue.expected_s[other]))
        watts[span] += draws[other]
        for node, units in (job.nodes or {}).items():
            taken[span, node] += units * queue.request[other]
        if job.nodes is None:
            pooled[span] += queue.units[other] * queue.request[other]
    free = np.maximum(system.capacity - taken, 0)
    free[:, instance.down] = 0
    first, planned = now, solution.jobs[k].start
    assert planned is not None
    if instance.dependencies is not None:
        first = int(instance.dependencies.earliest_s[k])
        for p in before(instance, k):
            start = solution.jobs[p].start
            if start is not None:
                end = start + int(queue.expected_s[p])
                first = max(first, end + int(instance.dependencies.think_s[k]))
    assert all(end > now for end in ends.values())
    request, units = queue.request[k].tolist(), int(queue.units[k])
    need = units * queue.request[k]
    for t in range(first - now, planned - now):
        window = slice(t, t + int(queue.expected_s[k]))
        left = free[window].sum(axis=1) - pooled[window]
        if ((left < need) & (need > 0)).any():
            continue
        cap = 10**9 if instance.power is None or not draws[k] else instance.power.cap
        if (watts[window] + draws[k] > cap).any():
            continue
        if place(free[window].min(axis=0), request, units):
            return t + now
    return None


def dense_verdict(instance: Instance, solution: Solution) -> list[str]:
    """Starved jobs that are planned too late, and when they could start."""
    assert instance.starvation is not None
    threshold, bound = instance.starvation.threshold_s, instance.starvation.bound_s
    found = []
    for k, job in enumerate(solution.jobs):
        submit = int(instance.queue.submit_s[k])
        if job.start is None or instance.now - submit <= threshold:
            continue
        if job.start > max(submit + threshold + bound, instance.now):
            could = could_start(instance, solution, k)
            found += [] if could is None else [f"job {job.id} {could}"]
    return found


@settings(max_examples=examples(400))
@given(delayed_plans())
def test_the_verdict_on_starved_jobs_is_that_of_counting_every_second(
    case: tuple[Instance, Solution],
) -> None:
    found = [v.text for v in verify.solution(*case) if v.kind is Kind.STARVATION]
    told = [f"{text.split(',')[0]} {text.split()[-1]}" for text in found]
    assert told == dense_verdict(*case)


@settings(max_examples=examples(100))
@given(starving, st.data())
def test_a_starved_job_put_off_beyond_its_bound_is_reported(
    case: tuple[File, Plan], data: st.DataObject
) -> None:
    file, plan = case[0], dict(case[1])
    instance = read(file)
    starved = [k for k in plan if instance.starved()[k]]
    if not starved:
        return
    k = data.draw(st.sampled_from(starved))
    late = max(plan[k][0], int(instance.latest_s()[k])) + data.draw(st.integers(1, 9))
    plan[k] = (late, plan[k][1])
    assert Kind.STARVATION in kinds(verify.solution(*claim(file, plan)))
    instance, decision = answer(file, plan)
    found = kinds(verify.decision(instance, for_an_objective(decision)))
    assert found & {Kind.STARVATION, Kind.DEPENDENCY}
    assert Kind.STARVATION not in kinds(verify.decision(instance, decision))
