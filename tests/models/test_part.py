"""Which jobs are planned, the parts they fall into, and the problems that a part's jobs pose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import solution, verify
from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START, Certificate, Decision, Placements
from cpdispatch.heuristics.allocate import fits_now
from cpdispatch.heuristics.priority_rule import reasons
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.heuristics.schedule_input import held_in
from cpdispatch.instance import NO_LATEST_S, Instance
from cpdispatch.models import part as part_module
from cpdispatch.models.engine import slowdown_priority
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.objective import OBJECTIVES, of
from cpdispatch.models.part import Part, Selection, parts_of, predecessors_first, select
from cpdispatch.models.timing import After
from tests.effort import examples
from tests.models.cases import EXAMPLES, WATTS, job, queued, running
from tests.models.exhaustive import possible
from tests.strategies import (
    Timetable,
    before,
    depending,
    instance_files,
    place,
    predicted,
    read,
)

ALL = 10**9
"""With so many reserved ones, all jobs are planned that can run."""

SECONDS = 500
"""By then everything has ended in the instances of these tests."""

many = settings(max_examples=EXAMPLES)

# ---------------------------------------------------------------------------------------- cases


@st.composite
def crowds(
    draw: st.DrawFn, most: int = 6, max_nodes: int = 5, predictions: bool = False, **limits: Any
) -> Instance:
    """Instances of jobs that mostly can run and are in each other's way; some come after others."""
    file = draw(instance_files(max_nodes=max_nodes, max_jobs=1, max_running=3, **limits))
    for id in range(200, 200 + draw(st.integers(1, most))):
        capacity = draw(st.sampled_from(file["groups"]))["capacity"]
        unit = [draw(st.integers(0, n)) for n in capacity]
        if max(unit) == 0:
            unit = capacity
        told = {"submit": draw(st.integers(0, file["time"])), "ewt": draw(st.integers(1, 9))}
        units, duration = draw(st.integers(1, 3)), draw(st.integers(1, 9))
        file["queue"].append(job(id, duration, units, *unit, **told))
    if draw(st.booleans()):
        draw(depending(file["time"], [job["id"] for job in file["running"]], file["queue"]))
    if predictions:
        draw(predicted(file["running"], file["queue"]))
    return read(file)


@st.composite
def between_reservations(draw: st.DrawFn) -> Instance:
    """Instances with several reservations of the same nodes, some in force, beside running jobs."""
    nodes = draw(st.integers(1, 2))
    seconds, cores = st.integers(1, 12), st.integers(1, 4)
    which = st.lists(st.integers(0, nodes - 1), min_size=1, max_size=nodes, unique=True)
    reserved = [
        {"start": 95 + draw(seconds), "duration": 5 + draw(seconds), "nodes": draw(which),
         "capacity": [draw(cores), 0]}
        for _ in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    return queued(
        *(job(k, draw(seconds), draw(st.integers(1, 2)), draw(cores), 0) for k in range(4)),
        running=[
            running(900 + k, 5 + draw(seconds), [draw(cores), 0], k)
            for k in range(draw(st.integers(0, nodes)))
        ],
        reservations=reserved,
        groups=[{"name": "a", "nodes": nodes, "capacity": [9, 1]}],
    )


@settings(max_examples=examples(300))
@given(st.one_of(crowds(), between_reservations()))
def test_a_job_fits_now_if_it_could_start_now_alone(instance: Instance) -> None:
    draws = instance.job_power(instance.queue).tolist()
    for k, asks in enumerate(instance.queue):
        times = Timetable(instance, SECONDS)
        times.power = np.maximum(times.power, 0)
        found = times.earliest(list(asks.request), asks.units, asks.expected_s, draws[k])
        could = found is not None and found[0] == instance.now and bool(instance.eligible()[k])
        assert fits_now(instance)[k] == could


def test_a_reservation_that_has_ended_gives_nothing_back_before_one_that_is_to_come() -> None:
    reserved = [
        {"start": start, "duration": 5, "nodes": [0], "capacity": [4, 1]} for start in (80, 105)
    ]
    one_node = [{"name": "a", "nodes": 1, "capacity": [4, 1]}]
    instance = queued(
        job(1, 6, 1, 4, 0), job(2, 5, 1, 4, 0), reservations=reserved, groups=one_node
    )
    assert fits_now(instance).tolist() == [False, True]


def selected(instance: Instance, m: int = 1000, reserve: int = ALL) -> Selection:
    return select(instance, slowdown_priority(instance), m, reserve)


def parts(instance: Instance, objective: str = "slowdown", reserve: int = ALL) -> list[Part]:
    chosen = selected(instance, reserve=reserve)
    return parts_of(instance, chosen, of(objective, instance.queue), held_in(instance))


def only(instance: Instance, objective: str = "slowdown", reserve: int = ALL) -> Part:
    """The one part that there is."""
    (part,) = parts(instance, objective, reserve)
    return part


@st.composite
def scheduled(draw: st.DrawFn, **limits: Any) -> tuple[Part, ListSchedule]:
    """A part and the schedule of some order."""
    objective = draw(st.sampled_from(sorted(OBJECTIVES)))
    found = parts(draw(crowds(**limits).filter(parts)), objective)
    part = draw(st.sampled_from(found))
    return part, schedule_of(part, draw(st.permutations(range(len(part)))))


def schedule_of(part: Part, order: Sequence[int] | None = None) -> ListSchedule:
    """Each job in turn as early as it fits, the locked ones first."""
    if order is None:
        return part.generator.schedule(part.first_order)
    return part.generator.schedule(part.feasible_order(np.array(order)))


def places(schedule: ListSchedule) -> list[dict[int, int]]:
    """Units by node of each job."""
    node, units = schedule.node.tolist(), schedule.units.tolist()
    return [
        dict(zip(node[low:high], units[low:high], strict=True))
        for low, high in zip(schedule.offset[:-1], schedule.offset[1:], strict=True)
    ]


def decision_of(instance: Instance, found: Iterable[tuple[Part, ListSchedule]]) -> Decision:
    """What the schedules of all parts amount to."""
    start_s, nodes = np.full(len(instance.queue), NO_START), dict[int, dict[int, int]]()
    for part, schedule in found:
        start_s[part.position] = schedule.start_s
        nodes |= dict(zip(part.position.tolist(), places(schedule), strict=True))
    reason = reasons(instance, np.arange(len(start_s)), start_s)
    return Decision(start_s, reason, Placements.of(nodes), Certificate("parts", "wait"))


def wrong(instance: Instance, decision: Decision) -> list[verify.Violation]:
    """What the checker finds wrong with a decision, and with the plan that it tells."""
    told = solution.from_decision(instance, decision)
    return verify.decision(instance, decision) + verify.solution(instance, told)


def alone(instance: Instance, position: int) -> int:
    """When a job could start if there were no other, by the tests' own placer."""
    job, watts = instance.queue[position], int(instance.job_power(instance.queue)[position])
    table = Timetable(instance, SECONDS)
    # A job that draws nothing may run where the cap is exceeded already.
    table.power = np.maximum(table.power, 0)
    first = int(instance.earliest_s()[position]) - instance.now
    found = table.earliest(list(job.request), job.units, job.expected_s, watts, first)
    assert found is not None
    return found[0]


def starts_now(instance: Instance, position: int) -> bool:
    return not before(instance, position) and alone(instance, position) == instance.now


# -------------------------------------------------------------------------- which jobs are planned


@many
@given(crowds(reservations=False), st.integers(0, 4), st.integers(0, 3), st.randoms())
def test_the_first_that_fit_now_are_planned_and_the_first_that_do_not(
    instance: Instance, m: int, reserve: int, random: Any
) -> None:
    order = list(range(len(instance.queue)))
    random.shuffle(order)
    reserve = min(reserve, len(order) - 1)
    found = select(instance, np.array(order), m, reserve)
    able = [k for k in order if k in possible(instance)]
    now = [k for k in able if starts_now(instance, k)]
    eligible = instance.eligible()
    later = [k for k in able if k not in now and eligible[k]]
    assert found.position.tolist() == [k for k in order if k in now[:m] or k in later[:reserve]]
    assert found.first.tolist() == later[: min(reserve, 1)]


@many
@given(crowds())
def test_without_reserved_ones_the_planned_jobs_can_start_now(instance: Instance) -> None:
    found = selected(instance, reserve=0)
    assert all(starts_now(instance, k) for k in found.position.tolist())
    assert len(found.first) == 0


@many
@given(crowds(starvation=True))
def test_everything_that_can_run_is_planned_when_all_are_reserved(instance: Instance) -> None:
    planned, starved = selected(instance).position.tolist(), instance.starved().tolist()
    able = set(possible(instance))
    late = {k for k in able if starved[k] and before(instance, k)}
    while orphans := {k for k in able - late if not set(before(instance, k)) <= able - late}:
        able -= orphans
    assert set(planned) == able - late


@many
@given(crowds(starvation=True), st.integers(0, 2), st.integers(0, 2))
def test_starved_jobs_that_wait_for_no_other_are_planned_and_come_first(
    instance: Instance, m: int, reserve: int
) -> None:
    found, starved = selected(instance, m, reserve), instance.starved()
    free = [k for k in possible(instance) if starved[k] and not before(instance, k)]
    assert set(free) <= set(found.position.tolist())
    assert found.first[: len(free)].tolist() == free
    assert len(found.first) <= len(free) + 1


@many
@given(crowds(most=9, starvation=True), st.integers(0, 3), st.integers(0, 2))
def test_of_many_starved_jobs_those_that_do_not_fit_are_planned_by_submission(
    instance: Instance, m: int, most: int
) -> None:
    starved, able = instance.starved(), possible(instance)
    free = [k for k in able if starved[k] and not before(instance, k)]
    order = slowdown_priority(instance).tolist()
    now = [k for k in order if k in able and starts_now(instance, k)]
    now = sorted(now, key=lambda k: not starved[k])[:m]
    with patch.object(part_module, "STARVED_MOST", most):
        found = selected(instance, m, 0)
    late = [k for k in free if k in free[:most] or k in now]
    assert found.position.tolist() == [k for k in order if k in late or k in now]
    assert found.first.tolist() == late


@many
@given(crowds(starvation=True), st.integers(0, 3), st.integers(0, 3))
def test_no_job_is_planned_without_those_that_it_comes_after(
    instance: Instance, m: int, reserve: int
) -> None:
    planned = selected(instance, m, reserve).position.tolist()
    assert len(set(planned)) == len(planned)
    for position in planned:
        assert set(before(instance, position)) <= set(planned)


def test_a_job_that_nodes_in_service_cannot_hold_is_not_planned() -> None:
    jobs = [job(1, 5, 2, 4, 0), job(2, 5, 1, 4, 0)]
    assert selected(queued(*jobs)).position.tolist() == [0, 1]
    assert selected(queued(*jobs, down=[0])).position.tolist() == [1]
    assert selected(queued(*jobs, power={"cap": 4, "unit": [1, 0]})).position.tolist() == [1]


def test_jobs_that_come_after_one_that_is_not_planned_are_not_either() -> None:
    chain = [job(1, 5, 1, 1, 0, after=[2]), job(2, 5, 1, 1, 0, after=[3]),
             job(3, 5, 1, 1, 0, after=[4]), job(4, 5, 1, 5, 0), job(5, 5, 1, 1, 0)]  # fmt: skip
    assert selected(queued(*chain)).position.tolist() == [4]


def test_the_first_reserved_job_comes_first_unless_it_is_starved() -> None:
    held = [running(9, 20, [1, 0], 0)]
    jobs = [job(1, 5, 1, 1, 0), job(2, 5, 2, 4, 0), job(3, 9, 2, 4, 0)]
    assert selected(queued(*jobs, running=held), reserve=0).first.tolist() == []
    assert selected(queued(*jobs, running=held), reserve=1).first.tolist() == [1]
    assert selected(queued(*jobs, running=held), reserve=2).first.tolist() == [1]
    starving = {"threshold": 50, "bound": 9}
    starved = queued(*jobs, running=held, starvation=starving)
    assert selected(starved, reserve=1).first.tolist() == [0, 1, 2]


def test_the_first_reserved_job_is_one_that_comes_after_no_queued_job() -> None:
    jobs = [job(1, 50, 1, 1, 0), job(2, 1, 1, 1, 0, after=[1]), job(3, 9, 2, 4, 0)]
    instance = queued(*jobs, running=[running(9, 20, [1, 0], 0)])
    assert slowdown_priority(instance).tolist() == [1, 2, 0]
    assert selected(instance).first.tolist() == [2]
    starved = queued(*jobs, job(4, 5, 2, 4, 0, submit=99), running=[running(9, 20, [1, 0], 0)],
                     starvation={"threshold": 50, "bound": 9})  # fmt: skip
    assert selected(starved).first.tolist() == [0, 2]


def test_a_job_that_waits_for_another_is_not_kept_a_place() -> None:
    jobs = [job(1, 5, 1, 1, 0), job(2, 5, 1, 1, 0, after=[1]), job(3, 5, 1, 1, 0, after=[1])]
    assert selected(queued(*jobs), reserve=2).position.tolist() == [0]
    assert selected(queued(*jobs), reserve=3).position.tolist() == [0, 1, 2]
    assert selected(queued(*jobs), reserve=3).first.tolist() == []


def test_of_an_empty_queue_nothing_is_planned() -> None:
    assert len(selected(queued()).position) == 0
    assert parts(queued()) == []


# -------------------------------------------------------------------------------- the parts

TWO: dict[str, Any] = {
    "groups": [{"name": "a", "nodes": 2, "capacity": [4, 0]},
               {"name": "b", "nodes": 3, "capacity": [4, 2]}],
}  # fmt: skip
"""Two groups; jobs that ask for a GPU use the second."""

ON_A, ON_B = job(1, 5, 2, 4, 0), job(2, 5, 1, 1, 1)


def split(*jobs: dict[str, Any], **more: Any) -> list[tuple[list[int], list[int]]]:
    """Ids of the jobs and numbers of the nodes of each part."""
    found = parts(queued(*jobs, **(TWO | more)))
    return [(part.jobs.id.tolist(), part.nodes.tolist()) for part in found]


def test_jobs_that_could_use_the_same_nodes_are_one_part() -> None:
    assert split(ON_A, ON_B) == [([1, 2], [0, 1, 2, 3, 4])]
    assert split(ON_B, job(3, 5, 1, 0, 2)) == [([2, 3], [2, 3, 4])]


ONE_EACH: dict[str, Any] = {
    "groups": [{"name": "a", "nodes": 2, "capacity": [4, 0]},
               {"name": "b", "nodes": 3, "capacity": [0, 2]}],
}  # fmt: skip
"""Two groups that no job could use both of."""

CORES, GPUS = job(1, 5, 2, 4, 0), job(2, 5, 2, 0, 2)


def test_jobs_on_nodes_of_their_own_are_parts_of_their_own() -> None:
    assert split(CORES, GPUS, **ONE_EACH) == [([1], [0, 1]), ([2], [2, 3, 4])]


def test_nodes_out_of_service_belong_to_no_part() -> None:
    assert split(CORES, job(2, 5, 1, 0, 2), down=[3], **ONE_EACH) == [([1], [0, 1]), ([2], [2, 4])]


def test_parts_come_by_the_priority_of_their_first_job() -> None:
    urgent = job(3, 1, 1, 0, 1)
    found = split(CORES, GPUS, urgent, **ONE_EACH)
    assert found == [([3, 2], [2, 3, 4]), ([1], [0, 1])]


def test_a_power_cap_joins_all_jobs() -> None:
    found = split(CORES, GPUS, power=WATTS | {"cap": 99}, **ONE_EACH)
    assert found == [([1, 2], [0, 1, 2, 3, 4])]


def test_jobs_that_come_after_one_another_are_one_part() -> None:
    after = job(3, 5, 1, 0, 1, after=[1])
    assert split(CORES, after, **ONE_EACH) == [([1, 3], [0, 1, 2, 3, 4])]


@many
@given(crowds(starvation=True), st.sampled_from(sorted(OBJECTIVES)))
def test_parts_share_neither_jobs_nor_nodes_and_lack_none(
    instance: Instance, objective: str
) -> None:
    chosen = selected(instance)
    found = parts_of(instance, chosen, of(objective, instance.queue), held_in(instance))
    jobs = [position for part in found for position in part.position.tolist()]
    assert sorted(jobs) == sorted(chosen.position.tolist())
    if instance.power is not None:
        assert len(found) <= 1
    nodes = [node for part in found for node in part.nodes.tolist()]
    assert len(set(nodes)) == len(nodes)
    assert set(nodes).isdisjoint(instance.down.tolist())
    capacity, rank = instance.system.capacity, chosen.position.tolist()
    for part in found:
        mine = set(part.position.tolist())
        assert part.position.tolist() == [k for k in rank if k in mine]
        for position in mine:
            assert set(before(instance, position)) <= mine
            request = list(instance.queue[position].request)
            could = {k for k in range(len(capacity)) if place(capacity[[k]], request, 1)}
            assert could - set(instance.down.tolist()) <= set(part.nodes.tolist())


@many
@given(crowds(starvation=True))
def test_in_the_first_order_come_the_locked_jobs_then_the_others_by_priority(
    instance: Instance,
) -> None:
    chosen = selected(instance)
    for part in parts(instance):
        order = part.position[part.first_order].tolist()
        first = [k for k in chosen.first.tolist() if k in part.position]
        assert order[: part.locked] == first
        for place_, position in enumerate(order):
            assert set(before(instance, position)) <= set(order[:place_])
        # One that comes before another of higher priority is needed first, or the other cannot be.
        for place_, position in enumerate(order[part.locked :], part.locked):
            able = [k for k in order[place_:] if set(before(instance, k)) <= set(order[:place_])]
            assert position == min(able, key=part.position.tolist().index)


@many
@given(crowds(starvation=True))
def test_the_schedules_of_all_parts_are_one_decision(instance: Instance) -> None:
    found = [(part, schedule_of(part)) for part in parts(instance)]
    assert wrong(instance, decision_of(instance, found)) == []


@many
@given(crowds(), st.sampled_from(sorted(OBJECTIVES)))
def test_the_costs_of_all_parts_add_up_to_that_of_the_decision(
    instance: Instance, objective: str
) -> None:
    found = [(part, schedule_of(part)) for part in parts(instance, objective)]
    decision = decision_of(instance, found)
    starts = {k: int(s) for k, s in enumerate(decision.start_s) if s != NO_START}
    exact = verify.objective_value(instance, objective, starts)
    value = sum(part.cost.value(schedule.start_s) for part, schedule in found)
    assert value == pytest.approx(float(exact), rel=1e-12)
    for part, schedule in found:
        least = part.cost.bound(part.weights.sum(schedule.start_s), part.weights)
        assert least == pytest.approx(part.cost.value(schedule.start_s), rel=1e-5)


def test_an_order_is_changed_only_where_a_job_comes_too_early() -> None:
    order = np.array([3, 0, 2, 1])
    assert predecessors_first(order, []).tolist() == [3, 0, 2, 1]
    assert predecessors_first(order, [After(1, 0, 0)]).tolist() == [3, 0, 2, 1]
    assert predecessors_first(order, [After(3, 2, 0)]).tolist() == [0, 2, 3, 1]
    assert predecessors_first(order, [After(3, 1, 0), After(0, 3, 0)]).tolist() == [2, 1, 3, 0]


# ------------------------------------------------------------------------------ the latest starts


@many
@given(crowds(max_nodes=3), st.integers(1, 3))
def test_the_first_reserved_job_may_start_when_it_could_alone_and_no_later(
    instance: Instance, reserve: int
) -> None:
    chosen = selected(instance, reserve=reserve)
    first = chosen.first.tolist()
    for part in parts(instance, reserve=reserve):
        for k, position in enumerate(part.position.tolist()):
            if position not in first:
                assert part.latest_s[k] == NO_LATEST_S
                continue
            assert part.latest_s[k] == alone(instance, position)


STARVING: dict[str, Any] = {
    "running": [running(90, 8, [4, 0], 1), running(91, 200, [0, 1], 1)],
    "starvation": {"threshold": 40, "bound": 23},
}
"""The second node's cores are free from 103 on, its GPU is not."""


def starving(*more: dict[str, Any], **settings: Any) -> Part:
    """Two starved jobs: the first on time up to 103; the other, late, has but the first node."""
    jobs = [job(1, 20, 1, 4, 0, submit=40), job(2, 20, 1, 4, 1, submit=50)]
    return only(queued(*jobs, *more, **(STARVING | settings)))


def test_a_starved_job_has_its_bound_or_the_start_that_it_has_at_best() -> None:
    part = starving(job(3, 10, 1, 4, 0, submit=99))
    assert dict(zip(part.jobs.id.tolist(), part.latest_s.tolist(), strict=True)) == {
        1: 103, 2: 120, 3: NO_LATEST_S
    }  # fmt: skip


def test_starved_jobs_stay_where_they_are_if_one_of_them_is_late() -> None:
    third = job(3, 10, 1, 4, 0, submit=99)
    part = starving(third)
    assert part.jobs.id[part.settled].tolist() == [1, 2]
    bound = {"threshold": 40, "bound": 30}
    assert not starving(third, starvation=bound).settled.any()


# ---------------------------------------------------------------------------- some jobs set free


class Posed:
    """Some jobs of a schedule set free on nodes that they use and some others."""

    def __init__(self, part: Part, schedule: ListSchedule, free: IntArray, nodes: IntArray) -> None:
        self.part, self.schedule, self.free, self.offered = part, schedule, free, nodes
        self.problem, self.plan, self.nodes = part.pose(schedule, free, nodes)

    @property
    def fixed(self) -> list[int]:
        return [k for k in range(len(self.part)) if k not in self.free]

    def merged(self, plan: NodePlan) -> ListSchedule:
        return self.part.merged(self.schedule, self.free, plan, self.nodes)

    def table(self) -> Timetable:
        """What the running jobs, the reservations and the jobs that stay leave at every second."""
        part, table = self.part, Timetable(self.part.instance, SECONDS)
        nodes = places(self.schedule)
        for k in self.fixed:
            begin = int(self.schedule.start_s[k]) - part.instance.now
            end = begin + int(part.jobs.expected_s[k])
            table.power[begin:end] -= part.watts[k]
            for node, units in nodes[k].items():
                table.free[begin:end, node] -= units * part.jobs.request[k]
        return table


@st.composite
def posed(draw: st.DrawFn, **limits: Any) -> Posed:
    part, schedule = draw(scheduled(**limits))
    chosen = draw(st.sets(st.sampled_from(range(len(part))), min_size=1))
    free = np.array(sorted(chosen))
    used = {node for k in chosen for node in places(schedule)[k]}
    others = sorted(set(part.nodes.tolist()) - used)
    more = draw(st.sets(st.sampled_from(others))) if others else set()
    return Posed(part, schedule, free, np.array(sorted(used | more)))


@many
@given(posed())
def test_the_plan_that_there_is_solves_the_posed_problem(case: Posed) -> None:
    assert case.plan.check(case.problem) == ""
    start_s, alike = case.schedule.start_s[case.free], case.part.alike[case.free].tolist()
    for kind in set(alike):
        mine = [k for k, other in enumerate(alike) if other == kind]
        assert case.plan.start_s[mine].tolist() == sorted(start_s[mine].tolist())
    assert case.problem.weights.sum(start_s) == case.part.weights.take(case.free).sum(start_s)


@many
@given(posed())
def test_the_same_plan_put_back_is_the_same_schedule(case: Posed) -> None:
    merged = case.merged(case.plan)
    rows = [
        sorted(
            (kind, start, sorted(where.items()))
            for kind, start, where in zip(
                case.part.alike.tolist(), one.start_s.tolist(), places(one), strict=True
            )
        )
        for one in (merged, case.schedule)
    ]
    assert rows[0] == rows[1]


@settings(max_examples=3 * EXAMPLES)
@given(posed(starvation=True), st.randoms())
def test_what_solves_the_posed_problem_solves_the_instance(case: Posed, random: Any) -> None:
    part, problem = case.part, case.problem
    if part.settled[case.free].any():
        return
    order = list(range(len(case.free)))
    random.shuffle(order)
    plan = problem.schedule(predecessors_first(np.array(order), problem.after))
    if plan.check(problem) == "":
        merged = case.merged(plan)
        assert wrong(part.instance, decision_of(part.instance, [(part, merged)])) == []
        change = problem.weights.sum(plan.start_s) - problem.weights.sum(case.plan.start_s)
        assert part.weights.sum(merged.start_s) == part.weights.sum(case.schedule.start_s) + change


@many
@given(posed())
def test_the_posed_nodes_have_what_the_jobs_that_stay_leave_at_every_second(case: Posed) -> None:
    problem, table = case.problem, case.table()
    seconds = np.arange(SECONDS) + case.part.instance.now
    segment = np.searchsorted(problem.since_s, seconds, side="right") - 1
    assert problem.since_s[0] == case.part.instance.now
    assert (problem.free[segment] == table.free[:, case.nodes]).all()
    if case.part.instance.power is not None:
        assert (problem.watts_free[segment] == np.maximum(table.power, 0)).all()
    assert problem.watts.tolist() == case.part.watts[case.free].tolist()


@many
@given(posed())
def test_of_like_nodes_there_are_as_many_as_the_jobs_could_use_with_those_in_use(
    case: Posed,
) -> None:
    assert set(case.nodes.tolist()) <= set(case.offered.tolist())
    assert len(set(case.nodes.tolist())) == len(case.nodes)
    used = {node for k in case.free for node in places(case.schedule)[k]}
    assert used <= set(case.nodes.tolist())
    table, capacity = case.table(), case.part.instance.system.capacity
    alike: dict[bytes, list[int]] = {}
    for node in case.offered.tolist():
        alike.setdefault(capacity[node].tobytes() + table.free[:, node].tobytes(), []).append(node)
    most = int(case.part.jobs.units[case.free].sum())
    for nodes in alike.values():
        assert len(set(nodes) & set(case.nodes.tolist())) == min(len(nodes), most)


@many
@given(posed(starvation=True))
def test_the_limits_of_a_free_job_are_its_own_and_those_of_the_jobs_that_stay(case: Posed) -> None:
    part, problem, start_s = case.part, case.problem, case.schedule.start_s.tolist()
    instance, position = part.instance, part.position.tolist()
    given_ = instance.dependencies
    think_s = np.zeros(len(instance.queue), dtype=int) if given_ is None else given_.think_s
    lasts = part.jobs.expected_s.tolist()
    pairs = [
        (k, position.index(p)) for k in range(len(part)) for p in before(instance, position[k])
    ]
    assert problem.early_s is not None
    assert problem.latest_s is not None
    free = case.free.tolist()
    for row, k in enumerate(free):
        early = [int(instance.earliest_s()[position[k]])]
        late = [int(part.latest_s[k])]
        for after, first in pairs:
            think = int(think_s[position[after]])
            if after == k and first not in free:
                early.append(start_s[first] + lasts[first] + think)
            if first == k and after not in free:
                late.append(start_s[after] - think - lasts[first])
        assert (problem.early_s[row], problem.latest_s[row]) == (max(early), min(late))
    within = {
        After(free.index(after), free.index(first), int(think_s[position[after]]))
        for after, first in pairs if after in free and first in free
    }  # fmt: skip
    assert set(problem.after) == within


def test_a_job_between_two_that_stay_keeps_its_distance_to_both() -> None:
    part = only(
        queued(job(1, 5, 1, 1, 0), job(2, 5, 1, 1, 0, after=[1], think=3),
               job(3, 5, 1, 1, 0, after=[2], think=4))
    )  # fmt: skip
    schedule = schedule_of(part)
    (second,) = np.flatnonzero(part.jobs.id == 2)
    assert schedule.start_s[second] == 108
    problem = Posed(part, schedule, np.array([second]), part.nodes).problem
    assert problem.early_s is not None
    assert problem.latest_s is not None
    assert (problem.early_s.tolist(), problem.latest_s.tolist()) == ([108], [108])
    assert problem.after == ()


def test_two_free_jobs_keep_their_distance_to_each_other() -> None:
    part = only(queued(job(1, 5, 1, 1, 0), job(2, 5, 1, 1, 0, after=[1], think=3)))
    assert [row[2] for row in problem_of_all(part).after] == [3]


def test_many_like_nodes_are_but_as_many_as_the_jobs_have_units() -> None:
    crowd = {"groups": [{"name": "a", "nodes": 50, "capacity": [4, 1]}]}
    part = only(queued(job(1, 5, 2, 4, 0), job(2, 5, 1, 4, 1), **crowd))
    assert problem_of_all(part).room.shape == (2, 3)


def problem_of_all(part: Part) -> NodeProblem:
    return Posed(part, schedule_of(part), np.arange(len(part)), part.nodes).problem
