"""List schedules against their plain twin, the checker, and brute force; the search over orders.

Kernels do not notice when they leave an array: results that do not fit each other show it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cpdispatch import solution, verify
from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.heuristics import order_search, postpone_search, schedule_generation
from cpdispatch.heuristics.order_search import (
    BEHIND,
    LATE,
    NEVER,
    OrderSearch,
    resume,
    shuffle,
)
from cpdispatch.heuristics.postpone_search import PostponeSearch
from cpdispatch.heuristics.profiles.per_class import CLASSES, Timelines, size_bytes, state
from cpdispatch.heuristics.profiles.profile import Profile
from cpdispatch.heuristics.schedule_generation import ListSchedule, ScheduleGenerator
from cpdispatch.heuristics.schedule_input import Held, held_in, jobs_of, timelines
from cpdispatch.instance import NO_LATEST_S, Instance, to_json
from cpdispatch.terms import apart
from tests.models.cases import EXAMPLES, job, queued, running
from tests.models.exhaustive import need, possible, ways
from tests.oracles.schedule_twin import Plan, planned
from tests.strategies import Timetable, before, depending, instance_files, read, release

# ---------------------------------------------------------------------------------------- cases


@dataclass(frozen=True, eq=False, repr=False)
class Case:
    """Queued jobs that can all run, a search over them, and an order that keeps to who is after."""

    instance: Instance
    position: list[int]
    search: ScheduleGenerator
    order: IntArray

    def __repr__(self) -> str:
        jobs = self.search.jobs
        told = {"queue": self.queue(self.order), "free_until": jobs.free_until, "per": jobs.per_s}
        return f"{to_json(self.instance).decode()}{told}"

    def again(self, **changes: Any) -> ScheduleGenerator:
        """A search of its own over the same jobs, with something different about them."""
        return ScheduleGenerator(
            self.search.base, self.search.member, self.search.jobs._replace(**changes)
        )

    def queue(self, order: Sequence[int] | IntArray) -> list[int]:
        """Queue positions of the jobs in an order."""
        return [self.position[k] for k in order]

    @property
    def least(self) -> IntArray:
        jobs = self.search.jobs
        late_s: IntArray = np.maximum(self.search.earliest() - jobs.free_until, 0)
        return jobs.per_s * late_s

    def orders(self, **settings: Any) -> OrderSearch:
        """A search for orders that begins with the case's."""
        return OrderSearch(self.search, self.order, self.least, **settings)


def cost(search: ScheduleGenerator, start_s: IntArray) -> int:
    """The weighted sum of how late the jobs start."""
    jobs = search.jobs
    return int((jobs.per_s * np.maximum(start_s - jobs.free_until, 0)).sum())


def in_service(instance: Instance) -> IntArray:
    return np.setdiff1d(np.arange(instance.system.nodes), instance.down)


def runnable(instance: Instance) -> list[int]:
    """Positions of the jobs that can run on empty nodes, and so can all that they come after."""
    chosen = possible(instance)
    while True:
        kept = [k for k in chosen if set(before(instance, k)) <= set(chosen)]
        if kept == chosen:
            return kept
        chosen = kept


def after_predecessors(instance: Instance, order: Sequence[int]) -> list[int]:
    """The order with jobs that come too early for those before them put off."""
    left, turn = list(order), list[int]()
    while left:
        turn.append(next(k for k in left if not set(before(instance, k)) & set(left)))
        left.remove(turn[-1])
    return turn


def case_of(
    instance: Instance,
    order: Sequence[int] | None = None,
    per_s: Sequence[int] = (),
    free_until_s: Sequence[int] = (),
) -> Case:
    """The case of an instance; the order is one of queue positions."""
    position = runnable(instance)
    chosen = np.array(position, dtype=np.int64)
    number = {k: n for n, k in enumerate(position)}
    nodes = in_service(instance)
    lines, member = timelines(instance, nodes, held_in(instance))
    asked, given = instance.queue.take(chosen), instance.dependencies
    units, first = apart(instance.system, asked.block)
    table = asked.asking(units)
    jobs = jobs_of(
        table,
        instance.job_power(asked),
        instance.earliest_s()[chosen],
        np.array(free_until_s or [instance.now] * len(position), dtype=np.int64),
        np.array(per_s or [1] * len(position), dtype=np.int64),
        [
            (number[k], number[other], int(given.think_s[k]))
            for k in position
            for other in before(instance, k)
            if given is not None
        ],
        first.T,
    )
    turn = after_predecessors(
        instance, position if order is None else [k for k in order if k in number]
    )
    rank = np.array([number[k] for k in turn], dtype=np.int64)
    return Case(instance, position, ScheduleGenerator(lines, member, jobs), rank)


@st.composite
def crowds(draw: st.DrawFn, most: int = 9, dependencies: bool = True, first: bool = False) -> Case:
    """Many jobs on few nodes, most of which can run; in a random order.

    With ``first``, some of them take something once.
    """
    file = draw(instance_files(max_nodes=6, max_jobs=2))
    for id in range(200, 200 + draw(st.integers(most // 2, most - 2))):
        capacity = draw(st.sampled_from(file["groups"]))["capacity"]
        unit = [draw(st.integers(0, n)) for n in capacity]
        if max(unit) == 0:
            unit = capacity
        units, duration = draw(st.integers(1, 4)), draw(st.integers(1, 9))
        file["queue"].append(job(id, duration, units, *unit, submit=draw(st.integers(0, 9))))
        if first and units > 1 and draw(st.booleans()):
            once = [draw(st.integers(0, n)) for n in capacity]
            file["queue"][-1]["first"] = once
            file["format"] = "cpdispatch-instance/2"
    if dependencies:
        draw(depending(file["time"], [job["id"] for job in file["running"]], file["queue"]))
    instance = read(file)
    jobs = len(runnable(instance))
    assume(jobs > 0)
    return case_of(
        instance,
        draw(st.permutations(range(len(instance.queue)))),
        draw(st.lists(st.integers(0, 5), min_size=jobs, max_size=jobs)),
        [instance.now + draw(st.integers(-5, 20)) for _ in range(jobs)],
    )


def places(schedule: ListSchedule) -> list[dict[int, int]]:
    """Units by node of each job."""
    entries = list(zip(schedule.node.tolist(), schedule.units.tolist(), strict=True))
    found = []
    for low, high in zip(schedule.offset[:-1], schedule.offset[1:], strict=True):
        found.append(dict(entries[low:high]))
        assert len(found[-1]) == high - low, "a node twice"
    assert schedule.offset[0] == 0
    assert schedule.offset[-1] == len(entries)
    return found


def plan_of(case: Case, schedule: ListSchedule) -> Plan:
    """A schedule by queue positions, without the jobs that have no start."""
    starts = schedule.start_s.tolist()
    rows = zip(case.position, starts, places(schedule), strict=True)
    return {position: (start, nodes) for position, start, nodes in rows if start != NO_START}


def decision_of(case: Case, schedule: ListSchedule) -> Decision:
    plan = plan_of(case, schedule)
    start_s = np.full(len(case.instance.queue), NO_START)
    start_s[list(plan)] = [start for start, _ in plan.values()]
    reason = np.where(start_s == NO_START, Reason.WAITS, Reason.RESERVED).astype(np.int8)
    reason[start_s == case.instance.now] = Reason.STARTED
    placements = Placements.of({position: nodes for position, (_, nodes) in plan.items()})
    return Decision(start_s, reason, placements, Certificate("priority"))


@contextmanager
def setting(**values: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            module = order_search if hasattr(order_search, name) else schedule_generation
            patch.setattr(module, name, value)
        yield


many = settings(max_examples=EXAMPLES)
fewer = settings(max_examples=max(1, EXAMPLES // 2))


# ------------------------------------------------------------------------------- one order


@many
@given(crowds() | crowds(first=True))
def test_starts_and_nodes_are_those_of_the_plain_twin(case: Case) -> None:
    expected = planned(case.instance, in_service(case.instance).tolist(), case.queue(case.order))
    found = plan_of(case, case.search.schedule(case.order))
    assert found == expected
    for position in found if case.instance.system.once else ():
        assert next(iter(found[position][1])) == next(iter(expected[position][1]))


@many
@given(crowds() | crowds(first=True))
def test_the_checker_finds_nothing_wrong_with_a_schedule(case: Case) -> None:
    verified(case, case.search.schedule(case.order))


def verified(case: Case, schedule: ListSchedule) -> None:
    """The checker finds nothing wrong with a schedule of all jobs."""
    decision = decision_of(case, schedule)
    assert verify.decision(case.instance, decision) == []
    solved = solution.from_decision(case.instance, decision)
    assert sum(row.start is not None for row in solved.jobs) == len(case.order)
    assert verify.solution(case.instance, solved) == []


class Seconds(Timetable):
    """What is free at every second beside the jobs that were put there."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.watts = instance.job_power(instance.queue).tolist()
        self.ways = [list(ways(instance, job)) for job in instance.queue]
        super().__init__(instance, 100 + 34 * (len(instance.queue) + 1))

    def fits(self, position: int, start: int) -> bool:
        job, t = self.instance.queue[position], start - self.now
        least = self.free[t : t + job.expected_s].min(axis=0)
        fits = any(
            (need(self.instance, job, where) <= least[list(where)]).all()
            for where in self.ways[position]
        )
        watts = self.watts[position]
        enough = watts == 0 or self.power[t : t + job.expected_s].min() >= watts
        return bool(fits and enough)

    def put(self, position: int, start: int, nodes: dict[int, int]) -> None:
        job, t = self.instance.queue[position], start - self.now
        self.free[t : t + job.expected_s, list(nodes)] -= need(self.instance, job, nodes)
        self.power[t : t + job.expected_s] -= self.watts[position]


@many
@given(crowds(most=6) | crowds(most=6, first=True))
def test_each_job_starts_at_the_first_second_that_those_before_it_leave_it(case: Case) -> None:
    instance, table = case.instance, Seconds(case.instance)
    plan = plan_of(case, case.search.schedule(case.order))
    for position in case.queue(case.order):
        start, nodes = plan[position]
        seconds = range(release(instance, plan, position), start + 1)
        assert [second for second in seconds if table.fits(position, second)] == [start]
        table.put(position, start, nodes)


@many
@given(crowds() | crowds(first=True))
def test_the_earliest_start_is_that_of_the_job_alone(case: Case) -> None:
    instance, earliest_s = case.instance, case.search.earliest().tolist()
    for k, position in enumerate(case.position):
        table, early_s = Seconds(instance), int(instance.earliest_s()[position])
        assert earliest_s[k] == next(
            second for second in range(early_s, early_s + 99) if table.fits(position, second)
        )
        if not before(instance, position):
            alone = case.search.starts(np.array([k]))
            assert alone[k] == earliest_s[k]
            assert (np.delete(alone, k) == NO_START).all()


def held_by(case: Case, schedule: ListSchedule, jobs: IntArray) -> Held:
    """What some jobs of a schedule hold."""
    owner = np.repeat(np.arange(len(case.order)), np.diff(schedule.offset))
    entry = np.isin(owner, jobs)
    search, resources = case.search.jobs, len(case.instance.system.resources)
    held = search.ask[owner, :resources] * schedule.units[:, None]
    if case.instance.system.once:
        held[schedule.offset[:-1]] += search.ask[:, resources:]
    owner = owner[entry]
    end_s = schedule.start_s + search.duration
    return Held(
        schedule.start_s[owner], end_s[owner], schedule.node[entry], held[entry],
        schedule.start_s[jobs], end_s[jobs], search.watts[jobs, 0],
    )  # fmt: skip


@many
@given(crowds() | crowds(first=True), st.data())
def test_a_job_starts_beside_what_is_held_as_it_does_beside_the_jobs_that_hold_it(
    case: Case, data: st.DataObject
) -> None:
    instance, schedule = case.instance, case.search.schedule(case.order)
    front = case.order[: data.draw(st.integers(0, len(case.order) - 1))]
    job = case.order[len(front)]
    held = held_in(instance).and_(held_by(case, schedule, front))
    lines, member = timelines(instance, in_service(instance), held)
    ready_s = release(instance, plan_of(case, schedule), case.position[job])
    jobs = case.search.jobs._replace(early=np.full(len(case.order), ready_s))
    assert ScheduleGenerator(lines, member, jobs).earliest()[job] == schedule.start_s[job]


@many
@given(crowds(most=14) | crowds(most=14, first=True))
def test_starts_that_smaller_jobs_found_taken_are_skipped_without_loss(case: Case) -> None:
    schedule = case.search.schedule(case.order)
    other = case.again(smaller=np.zeros_like(case.search.jobs.smaller)).schedule(case.order)
    for name in ListSchedule.__slots__:
        assert getattr(schedule, name).tolist() == getattr(other, name).tolist(), name


@many
@given(crowds() | crowds(first=True))
def test_a_smaller_job_asks_for_no_more_of_anything_and_waits_for_nothing(case: Case) -> None:
    instance, smaller = case.instance, case.search.jobs.smaller
    early_s = instance.earliest_s()[case.position].tolist()
    for j, large in enumerate(case.position):
        for i, small in enumerate(case.position):
            ours, theirs = instance.queue[small], instance.queue[large]
            no_more = ours.units <= theirs.units and ours.expected_s <= theirs.expected_s
            no_more &= all(a <= b for a, b in zip(ours.request, theirs.request, strict=True))
            free = early_s[i] == min(early_s) and not before(instance, small)
            assert smaller[j, i] == (no_more and free)


def test_skipping_saves_work() -> None:
    case = case_of(queued(*(job(k, 5, 1, 4, 0) for k in range(20))))
    slow = Case(case.instance, case.position, case.again(smaller=np.eye(20) > 1), case.order)
    assert 3 * work(case) < work(slow)


@many
@given(crowds(most=14))
def test_the_cost_is_what_each_second_behind_the_free_time_costs(case: Case) -> None:
    start_s, jobs = case.search.starts(case.order).tolist(), case.search.jobs
    expected = 0
    for start, free, per in zip(
        start_s, jobs.free_until.tolist(), jobs.per_s.tolist(), strict=True
    ):
        expected += per * (start - free) if start > free else 0
    assert cost(case.search, np.array(start_s)) == expected


@many
@given(crowds(most=14) | crowds(most=14, first=True), st.integers(1, 3))
def test_rows_that_are_too_short_grow_and_change_nothing(case: Case, spare: int) -> None:
    with setting(SPARE_COLUMNS=spare):
        short = case.again()
        first, again = short.schedule(case.order), short.schedule(case.order)
        assert short.earliest().tolist() == case.search.earliest().tolist()
    with setting(SPARE_COLUMNS=99):
        expected = plan_of(case, case.again().schedule(case.order))
    assert plan_of(case, first) == plan_of(case, again) == expected


def test_rows_grow_only_when_they_must() -> None:
    case = case_of(queued(*(job(k, 5 + k, 1, 1, 0) for k in range(8))))
    with setting(SPARE_COLUMNS=1):
        search = case.again()
        columns = search._lines.nodes.time.shape[1]
        search.starts(case.order[:1])
        assert search._lines.nodes.time.shape[1] == columns
        search.starts(case.order)
        grown = search._lines.nodes.time.shape[1]
        search.starts(case.order)
        assert columns < grown == search._lines.nodes.time.shape[1]


def queue_of_seventy() -> Case:
    """On one large node: 40 jobs that run at once, then 30 that end one after the other."""
    jobs = [job(k, 10 if k < 40 else k, 1, 1, 0) for k in range(70)]
    return case_of(queued(*jobs, groups=[{"name": "a", "nodes": 1, "capacity": [60, 0]}]))


@pytest.mark.parametrize("spare", [1, 99])
@pytest.mark.parametrize("questions", range(1, 9))
def test_the_jobs_that_are_left_when_it_stops_have_no_start(questions: int, spare: int) -> None:
    case, asked = queue_of_seventy(), list[int]()

    def stop() -> bool:
        asked.append(1)
        return len(asked) >= questions

    with setting(SPARE_COLUMNS=spare):
        stopped = case.again().schedule(case.order, stop)
    every, found = plan_of(case, case.search.schedule(case.order)), plan_of(case, stopped)
    # Rows that turn out too short make it begin anew, so it may be stopped where it was before.
    assert len(found) in (32, 64, 70)
    assert spare == 1 or len(found) == min(32 * questions, 70)
    assert list(found) == case.position[: len(found)]
    assert found == {position: every[position] for position in found}
    assert (stopped.start_s[len(found) :] == NO_START).all()


def test_something_is_placed_before_the_first_question_whether_to_stop() -> None:
    case = case_of(queued(job(1, 5, 1, 1, 0), job(2, 5, 1, 1, 0)))
    assert case.search.schedule(case.order, lambda: True).start_s.tolist() == [100, 100]


@pytest.mark.parametrize("resources", [1, 2])
@pytest.mark.parametrize("watts", [False, True])
def test_the_kernels_see_arrays_of_one_kind_whatever_the_instance(
    resources: int, watts: bool
) -> None:
    # Others, read-only or in another order, would be compiled for when there is no time.
    more = {"power": {"cap": 9, "unit": [1] * resources}} if watts else {}
    instance = queued(
        job(1, 5, 1, *[1] * resources), job(2, 5, 1, *[1] * resources, after=[1]),
        resources=["core", "gpu"][:resources], groups=one_node(*[4] * resources),
        running=[running(k, 9, [1] * resources, 0) for k in (8, 9)],
        reservations=[reserved(0, 105, 110, *[1] * resources)], **more,
    )  # fmt: skip
    case, held = case_of(instance), held_in(instance)
    entries = (held.start_s, held.end_s, held.node, held.amount)
    base = case.search.base
    lines = (base.size, base.first, base.last, base.capacity, *base.nodes, *base.power)
    for array in (*case.search.jobs, *lines, *entries):
        assert array.flags.c_contiguous
        assert array.flags.writeable


def test_no_jobs_have_no_schedule() -> None:
    case = case_of(queued())
    schedule = case.search.schedule(case.order)
    assert [getattr(schedule, name).tolist() for name in ListSchedule.__slots__] == [
        [],
        [0],
        [],
        [],
    ]
    assert case.search.earliest().tolist() == []
    assert cost(case.search, schedule.start_s) == 0


# --------------------------------------------------------------------------- made by hand


def starts(*jobs: dict[str, Any], **more: Any) -> list[int]:
    """Starts of jobs that are placed in the order of the queue; see `tests.models.cases`."""
    case = case_of(queued(*jobs, **more))
    assert len(case.position) == len(jobs)
    found: list[int] = case.search.starts(case.order).tolist()
    return found


def nodes(*jobs: dict[str, Any], **more: Any) -> list[dict[int, int]]:
    case = case_of(queued(*jobs, **more))
    return places(case.search.schedule(case.order))


def one_node(*capacity: int) -> list[dict[str, Any]]:
    return [{"name": "a", "nodes": 1, "capacity": capacity}]


def reserved(node: int, start: int, end: int, *capacity: int) -> dict[str, Any]:
    return {"start": start, "duration": end - start, "nodes": [node], "capacity": capacity}


@pytest.mark.parametrize(("duration", "start"), [(5, 100), (6, 110), (10, 110), (11, 130)])
def test_a_job_takes_the_first_gap_between_reservations_that_is_long_enough(
    duration: int, start: int
) -> None:
    given = [reserved(0, 105, 110, 4, 0), reserved(0, 120, 130, 1, 0)]
    assert starts(job(1, duration, 1, 4, 0), groups=one_node(4, 0), reservations=given) == [start]


@pytest.mark.parametrize(("duration", "start"), [(5, 110), (6, 120)])
def test_a_job_on_two_nodes_waits_until_both_are_free_at_once(duration: int, start: int) -> None:
    given = [reserved(0, 100, 110, 4, 0), reserved(1, 115, 120, 4, 0)]
    assert starts(job(1, duration, 2, 4, 0), reservations=given) == [start]


def test_a_reservation_behind_a_job_is_no_hindrance_and_neither_is_one_that_is_over() -> None:
    given = [reserved(0, 90, 100, 4, 1), reserved(0, 110, 120, 4, 1)]
    assert starts(job(1, 10, 1, 4, 1), groups=one_node(4, 1), reservations=given) == [100]


def test_reservations_that_overlap_take_no_more_than_there_is() -> None:
    given = [reserved(0, 100, 120, 3, 0), reserved(0, 110, 130, 3, 0)]
    found = starts(*(job(k, 1, 1, 1, 0) for k in range(2)), job(2, 1, 1, 2, 0), job(3, 99, 1, 4, 0),
                   groups=one_node(4, 0), reservations=given)  # fmt: skip
    assert found == [100, 101, 130, 131]


def test_a_later_job_goes_back_into_a_gap_that_the_earlier_ones_left() -> None:
    jobs = [job(1, 10, 1, 3, 0), job(2, 10, 1, 3, 0), job(3, 10, 1, 1, 0)]
    assert starts(*jobs, groups=one_node(4, 0)) == [100, 110, 100]


def test_the_fuller_node_is_used_first() -> None:
    assert nodes(job(1, 5, 1, 1, 0), running=[running(9, 50, [2, 0], 1)]) == [{1: 1}]


def test_the_fullest_node_takes_as_many_units_as_it_holds_and_the_next_one_the_rest() -> None:
    busy = [running(9, 50, [2, 0], 1)]
    assert nodes(job(1, 5, 3, 2, 0), running=busy) == [{1: 1, 0: 2}]
    assert nodes(job(1, 5, 2, 2, 0), running=busy) == [{1: 1, 0: 1}]
    assert nodes(job(1, 5, 4, 1, 0), running=busy) == [{1: 2, 0: 2}]


def test_among_equally_full_nodes_the_first_one_is_used() -> None:
    jobs = [job(1, 5, 1, 3, 0), job(2, 5, 1, 3, 0)]
    assert nodes(*jobs) == [{0: 1}, {1: 1}]
    # Each stays in a class of its own: the one left is still the first, the one used the last.
    assert nodes(*jobs, job(3, 5, 1, 3, 0)) == [{0: 1}, {1: 1}, {1: 1}]


def test_how_full_a_node_is_counts_where_it_is_fullest_during_the_job() -> None:
    given = [reserved(1, 105, 110, 1, 0)]
    assert nodes(job(1, 5, 1, 1, 0), reservations=given) == [{0: 1}]
    assert nodes(job(1, 6, 1, 1, 0), reservations=given) == [{1: 1}]
    assert nodes(job(1, 6, 1, 1, 0, earliest=110), reservations=given) == [{0: 1}]


def test_a_resource_that_a_node_does_not_have_does_not_make_it_fuller_or_emptier() -> None:
    groups = [{"name": "a", "nodes": 1, "capacity": [4, 1]},
              {"name": "b", "nodes": 1, "capacity": [4, 0]}]  # fmt: skip
    assert nodes(job(1, 5, 1, 1, 0), groups=groups) == [{1: 1}]


def test_a_node_out_of_service_is_not_used() -> None:
    assert nodes(job(1, 5, 1, 1, 0), down=[0]) == [{1: 1}]


def test_the_cap_on_power_puts_a_job_off_until_enough_is_left_all_the_time() -> None:
    watts = {"cap": 6, "unit": [1, 4]}
    busy = [running(9, 20, [2, 0], 0, start=90)]
    assert starts(job(1, 5, 1, 4, 0), running=busy, power=watts) == [100]
    assert starts(job(1, 5, 1, 1, 1), running=busy, power=watts) == [110]
    assert starts(job(1, 9, 1, 1, 0), job(2, 3, 1, 4, 0), running=busy, power=watts) == [100, 109]
    # 4 W are left until 110; 3 W until 105 and 1 W until 106 when the first two have their share.
    jobs = [job(1, 5, 1, 1, 0), job(2, 6, 1, 0, 0) | {"unit": [3, 0]}, job(3, 1, 1, 1, 0)]
    assert starts(*jobs, running=busy, power=watts) == [100, 100, 105]


def test_a_job_that_draws_nothing_is_not_put_off_by_the_cap_on_power() -> None:
    busy = [running(9, 20, [0, 1], 0, start=90)]
    found = starts(job(1, 5, 1, 4, 0), job(2, 5, 1, 0, 1), running=busy,
                   power={"cap": 3, "unit": [0, 3]})  # fmt: skip
    assert found == [100, 110]
    over = queued(job(1, 5, 1, 4, 0), running=busy, power={"cap": 2, "unit": [0, 3]})
    case = case_of(over)
    assert case.search.starts(case.order).tolist() == [100]
    assert case.search.base.power.time.tolist() == [[100, 110]]
    assert case.search.base.power.free.tolist() == [[[0], [2]]]


def test_a_job_comes_its_think_time_after_the_last_of_those_before_it() -> None:
    jobs = [job(1, 5, 1, 1, 0), job(2, 9, 1, 1, 0), job(3, 5, 1, 1, 0, after=[1, 2], think=4)]
    assert starts(*jobs) == [100, 100, 113]
    assert starts(job(1, 5, 1, 1, 0, earliest=107)) == [107]
    busy = [running(9, 20, [1, 0], 0, start=90)]
    assert starts(job(1, 5, 1, 1, 0, after=[9], think=3), running=busy) == [113]


def test_a_job_that_may_start_late_does_not_hold_up_one_that_asks_for_more() -> None:
    assert starts(job(1, 5, 1, 1, 0, earliest=150), job(2, 5, 2, 4, 1)) == [150, 100]
    assert starts(job(1, 9, 1, 1, 0), job(2, 5, 1, 1, 0, after=[1]), job(3, 5, 1, 2, 0)) == [
        100, 109, 100,
    ]  # fmt: skip


# ------------------------------------------------------------------------ a search for orders


def scratch(case: Case, order: IntArray) -> int:
    """What an order costs, by a search that nothing has happened to."""
    search = case.again()
    return cost(search, search.starts(order))


def with_stride(case: Case, stride: int, **settings: Any) -> OrderSearch:
    """A search for orders that keeps the state before every so many positions."""
    with setting(TRAIL_BYTES=-(-len(case.order) // stride) * size_bytes(case.search._lines)):
        return case.orders(**settings)


def again_from(
    orders: OrderSearch,
    begin: int,
    order: IntArray,
    limit: int = NEVER,
    keep: bool = False,
    gains_from: int = NEVER // 2,
) -> tuple[int, int]:
    """`resume`, which by default never gives an order up but for its limit."""
    search, start_s = orders._search, orders._start.copy()
    found = resume(
        orders._trail, orders._stride, begin, search._lines, search._window, search.jobs, order,
        start_s, search._slices, orders._least, orders._latest_s, limit, orders._start, gains_from,
        keep,
    )  # fmt: skip
    return int(found[0]), int(found[1])


def work(case: Case) -> int:
    """Windows that are looked at in the case's order."""
    return again_from(case.orders(), 0, case.order)[1]


def segments(profile: Profile, row: int) -> tuple[Any, Any]:
    """When the segments of a row begin, and what is free in each."""
    k = profile.segments[row]
    return profile.time[row, :k].tolist(), profile.free[row, :k].tolist()


def content(lines: Timelines) -> list[Any]:
    """What there is in timelines, without what is only room."""
    found: list[Any] = [lines.size.tolist()]
    for c in range(lines.size[CLASSES]):
        found.append((lines.first[c], lines.last[c], lines.capacity[c].tolist()))
        found.append(segments(lines.nodes, c))
    return [*found, segments(lines.power, 0)]


def check(case: Case, orders: OrderSearch) -> None:
    """Current and best order cost what they should, and the states are those of the current."""
    order = orders._order
    assert sorted(order) == sorted(orders.best) == list(range(len(order)))
    assert orders.cost == scratch(case, order)
    assert orders.best_cost == scratch(case, orders.best) <= orders.cost
    assert orders._start.tolist() == case.again().starts(order).tolist()
    for k in range(len(orders._trail.cost)):
        search, front = case.again(), order[: k * orders._stride]
        start_s, ends = search._place(front, lambda: False)
        assert content(state(orders._trail.lines, k)) == content(search._lines)
        assert orders._trail.cost[k] == cost(search, start_s)
        assert orders._trail.entries[k] == ends[-1]


def keeps_turn(case: Case, order: IntArray) -> bool:
    turn = case.queue(order)
    return all(
        turn.index(other) < turn.index(position)
        for position in turn
        for other in before(case.instance, position)
    )


strides = st.integers(1, 10)


@many
@given(crowds() | crowds(first=True), st.data())
def test_an_order_is_placed_anew_only_from_where_it_changes(
    case: Case, data: st.DataObject
) -> None:
    stride = data.draw(strides)
    orders = with_stride(case, min(stride, len(case.order)))
    begin = data.draw(st.integers(0, len(case.order) - 1))
    number = {position: k for k, position in enumerate(case.position)}
    tail = case.queue(data.draw(st.permutations(case.order[begin:].tolist())))
    tail = [number[position] for position in after_predecessors(case.instance, tail)]
    order = np.concatenate((case.order[:begin], np.array(tail, dtype=np.int64)))
    cost = scratch(case, order)
    assert again_from(orders, begin, order)[0] == cost
    assert again_from(orders, begin, order, cost + 1)[0] == cost
    for limit in (cost, max(cost - 1, 0)):
        assert again_from(orders, begin, order, limit)[0] == limit
    check(case, orders)
    assert again_from(orders, begin, order, keep=True)[0] == cost
    orders.cost, orders._order, orders._start = cost, order, case.again().starts(order)
    orders.best, orders.best_cost = order, cost
    check(case, orders)


def test_an_order_is_given_up_as_soon_as_it_must_cost_too_much() -> None:
    jobs = [job(k, 5, 1, 4, 0) for k in range(20)]
    case = case_of(
        queued(*jobs, groups=one_node(4, 0)),
        per_s=[20] + [1] * 19,
        free_until_s=[0] + [100] * 19,
    )
    knows, guesses = case.orders(), case.orders()
    assert knows._least.tolist() == [2000] + [0] * 19
    guesses._least = np.zeros(20, dtype=np.int64)
    last = np.array([*range(1, 20), 0])
    (cost, early), (same, late) = (again_from(one, 0, last, 2100) for one in (knows, guesses))
    assert cost == same == 2100
    assert early < late == again_from(guesses, 0, last)[1]


def test_an_order_that_is_behind_well_after_its_change_is_given_up_one_ahead_is_not() -> None:
    jobs = [job(k, 5 + k % 9, 1, 4, 0) for k in range(90)]
    case = case_of(queued(*jobs, groups=one_node(4, 0)))
    orders = case.orders()
    worse, better = case.order.copy(), case.order.copy()
    worse[[3, 8]], better[[8, 9]] = [8, 3], [9, 8]
    assert scratch(case, better) < orders.cost < scratch(case, worse)
    every = again_from(orders, 0, case.order)[1]
    cost, work = again_from(orders, 0, worse, gains_from=8 + BEHIND)
    assert cost == NEVER
    assert work < every * (8 + BEHIND + 2) / 90
    assert again_from(orders, 0, worse, gains_from=90)[0] == scratch(case, worse)
    assert again_from(orders, 0, better, gains_from=9 + BEHIND)[0] == scratch(case, better)


def test_an_order_whose_first_changed_job_gains_nothing_is_given_up_at_that_job() -> None:
    jobs = [job(k, 5, 1, 1 + k % 2, 0) for k in range(90)]
    case = case_of(queued(*jobs, groups=one_node(4, 0)))
    orders = case.orders()
    later, sooner = case.order.copy(), case.order.copy()
    later[40], sooner[[40, 80]] = 42, [80, 40]
    later[42] = 40
    one = again_from(orders, 0, case.order)[1] / 90
    cost, work = again_from(orders, 40, later, gains_from=40)
    assert cost == NEVER
    assert work < 3 * one
    assert again_from(orders, 40, later)[0] == scratch(case, later) == orders.cost
    assert again_from(orders, 40, sooner, gains_from=40)[1] > 3 * one


@many
@given(
    crowds() | crowds(first=True), st.lists(st.sampled_from([1, 7, 50, 400]), max_size=4),
    st.integers(0, 9), strides,
)  # fmt: skip
def test_the_best_order_costs_what_is_said_and_no_more_than_the_first_one(
    case: Case, chunks: list[int], seed: int, stride: int
) -> None:
    orders = with_stride(case, min(stride, len(case.order)), seed=seed)
    check(case, orders)
    assert orders.best.tolist() == case.order.tolist()
    best = orders.best_cost
    for steps in chunks:
        assert orders.run(steps) <= 0
        assert orders.best_cost <= best
        best = orders.best_cost
        check(case, orders)
        orders.kick(2)
        check(case, orders)
        assert orders.best_cost <= best
        best = orders.best_cost


@many
@given(crowds(most=12), st.integers(0, 9), st.integers(1, 4))
def test_short_rows_grow_during_the_search_for_orders_and_between_two_runs(
    case: Case, seed: int, stride: int
) -> None:
    size = len(case.order) * size_bytes(case.search._lines)
    with setting(SPARE_COLUMNS=1, TRAIL_BYTES=size // stride):
        short = Case(case.instance, case.position, case.again(), case.order)
        orders = short.orders(seed=seed)
        best = orders.best_cost
        for _ in range(3):
            orders.run(100)
            check(case, orders)
            short.search._grow()  # as another order would make it
            orders.run(100)
            check(case, orders)
            orders.kick(3)
            check(case, orders)
    assert orders.best_cost <= best


def test_states_become_as_long_as_the_rows_have_become_for_other_orders() -> None:
    # The short jobs come to the front, which takes more segments than the first order has.
    jobs = [job(k, 50 if k < 20 else k, 1, 1, 0) for k in range(40)]
    case = case_of(queued(*jobs, groups=one_node(2, 0)))
    with setting(SPARE_COLUMNS=1):
        case = Case(case.instance, case.position, case.again(), case.order)
        orders = case.orders()
    columns, cost = case.search._lines.nodes.time.shape[1], orders.cost
    case.search._grow()
    orders.run(20_000)
    case.search.starts(orders.best)
    assert max(case.search._lines.nodes.segments[: case.search._lines.size[CLASSES]]) > columns
    assert orders.best_cost < cost
    check(case, orders)


@many
@given(crowds(), st.integers(1, 200_000))
def test_the_states_that_are_kept_take_no_more_room_than_they_may(case: Case, most: int) -> None:
    with setting(TRAIL_BYTES=most):
        orders = case.orders()
    kept = len(orders._trail.cost)
    assert kept == 1 or kept * size_bytes(case.search._lines) <= most
    assert kept * orders._stride >= len(case.order) > (kept - 1) * orders._stride


@many
@given(crowds(), st.integers(0, 9), st.data())
def test_locked_jobs_stay_in_front_and_all_keep_to_their_turn(
    case: Case, seed: int, data: st.DataObject
) -> None:
    locked = data.draw(st.integers(0, len(case.order)))
    orders = case.orders(locked=locked, seed=seed)
    for _ in range(3):
        orders.run(150)
        orders.kick(5)
        for order in (orders.best, orders._order):
            assert order[:locked].tolist() == case.order[:locked].tolist()
            assert keeps_turn(case, order)
    check(case, orders)


@many
@given(crowds(), st.integers(0, 99))
def test_the_same_seed_gives_the_same_search(case: Case, seed: int) -> None:
    def trace() -> list[Any]:
        orders = Case(case.instance, case.position, case.again(), case.order).orders(seed=seed)
        seen = list[Any]()
        for _ in range(3):
            seen.append((orders.run(200), orders.idle, orders.cost, orders._order.tolist()))
            orders.kick(4)
            seen.append((orders.idle, orders.best_cost, orders.best.tolist()))
        return seen

    assert trace() == trace()


def one_after_the_other() -> Case:
    """Jobs that need all of the only node, the longest first; the shortest first is best."""
    jobs = [job(k, 20 - k, 1, 4, 0) for k in range(12)]
    return case_of(queued(*jobs, groups=one_node(4, 0)))


@pytest.mark.parametrize("stride", [1, 5, 12])
def test_on_one_node_the_shortest_jobs_come_to_the_front(stride: int) -> None:
    orders = with_stride(one_after_the_other(), stride)
    orders.run(20_000)
    assert orders.best.tolist() == list(range(11, -1, -1))
    assert orders.best_cost == sum((12 - k) * (8 + k) for k in range(1, 12))


def test_locked_jobs_come_before_those_that_would_be_better_first() -> None:
    orders = one_after_the_other().orders(locked=2)
    orders.run(20_000)
    assert orders.best.tolist() == [0, 1, *range(11, 1, -1)]


def plain_best(case: Case, latest_s: IntArray) -> int | None:
    """The least cost of all orders in which no job starts too late, each planned by the twin."""
    jobs, best = case.search.jobs, None
    for order in permutations(case.order.tolist()):
        if not keeps_turn(case, np.array(order, dtype=np.int64)):
            continue
        plan = planned(case.instance, in_service(case.instance).tolist(), case.queue(order))
        start_s = np.array([plan[position][0] for position in case.position])
        if (start_s <= latest_s).all():
            cost = int((jobs.per_s * np.maximum(start_s - jobs.free_until, 0)).sum())
            best = cost if best is None else min(best, cost)
    return best


@st.composite
def limited_cases(draw: st.DrawFn, most: int) -> tuple[Case, IntArray]:
    """A case in which some jobs come first, and the last starts that these may have."""
    case = draw(crowds(most=most))
    alone = [k for k in case.order.tolist() if not before(case.instance, case.position[k])]
    front = draw(st.lists(st.sampled_from(alone), max_size=2, unique=True)) if alone else []
    rest = [k for k in case.order.tolist() if k not in front]
    case = Case(case.instance, case.position, case.search, np.array(front + rest, dtype=np.int64))
    latest_s = np.full(len(case.order), NO_LATEST_S)
    start_s = case.again().starts(case.order)
    for k in front:
        latest_s[k] = start_s[k] + draw(st.sampled_from([0, 0, 3, 9]))
    return case, latest_s


@fewer
@given(limited_cases(most=4), st.sampled_from([7, 60, 999]))
def test_no_list_schedule_is_better_than_the_best_plan_of_jobs_scheduled_or_postponed(
    given_: tuple[Case, IntArray], steps: int
) -> None:
    case, latest_s = given_
    alike, before = np.arange(len(case.order)), plain_best(case, latest_s)
    assert before is not None
    plans = []
    for chunk in (steps, 10**6):
        search = PostponeSearch(case.again(), NEVER, 0, latest_s, alike)
        while not search.exhausted:
            assert search.run(chunk) <= 0 or search.exhausted
        assert search.run(9) == 9
        assert search.proven
        assert search.best is not None
        assert search.best_cost == cost(case.search, search.best.start_s) <= before
        assert (search.best.start_s <= latest_s).all()
        verified(case, search.best)
        plans.append(plan_of(case, search.best))
    assert plans[0] == plans[1]
    again = PostponeSearch(case.again(), search.best_cost, 0, latest_s, alike)
    while not again.exhausted:
        again.run(10**6)
    assert again.proven
    assert again.best is None


@fewer
@given(limited_cases(most=4))
def test_where_not_all_ways_to_place_a_job_are_told_apart_nothing_false_is_said(
    given_: tuple[Case, IntArray],
) -> None:
    case, latest_s = given_
    alike = np.arange(len(case.order))
    search = PostponeSearch(case.again(), NEVER, 0, latest_s, alike)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postpone_search, "SPLITS", 0)
        few = PostponeSearch(case.again(), NEVER, 0, latest_s, alike)
    for each in (search, few):
        while not each.exhausted:
            each.run(10**6)
    assert few.best_cost >= search.best_cost
    if few.proven:
        assert few.best_cost == search.best_cost
    if (best := few.best) is not None:
        assert few.best_cost == cost(case.search, best.start_s)
        verified(case, best)


@many
@given(limited_cases(most=12), st.integers(0, 9), st.integers(1, 5))
def test_no_job_of_the_best_order_starts_after_its_last_start(
    given_: tuple[Case, IntArray], seed: int, stride: int
) -> None:
    case, latest_s = given_
    orders = with_stride(case, min(stride, len(case.order)), seed=seed, latest_s=latest_s)
    for _ in range(4):
        orders.run(300)
        assert orders.best_cost == scratch(case, orders.best)
        assert (case.again().starts(orders.best) <= latest_s).all()
        orders.kick(4)
        assert orders.cost < LATE


def test_a_job_with_a_last_start_leaves_the_nodes_to_others_that_it_can_do_without() -> None:
    """Of two nodes that become free, only the one that best fit would take holds the wide job."""
    nodes = [{"name": "a", "nodes": 1, "capacity": [5, 0]},
             {"name": "b", "nodes": 1, "capacity": [4, 0]}]  # fmt: skip
    case = case_of(queued(job(1, 10, 1, 4, 0), job(2, 10, 1, 5, 0), groups=nodes))
    assert case.search.starts(case.order).tolist() == [100, 110]
    latest_s = np.array([100, NO_LATEST_S])
    orders = case.orders(latest_s=latest_s)
    orders.run(1000)
    assert orders.best.tolist() == [1, 0]
    assert case.search.starts(orders.best).tolist() == [100, 100]


@pytest.mark.parametrize("locked", [11, 12])
def test_with_nothing_to_move_the_search_is_over_at_once(locked: int) -> None:
    case = one_after_the_other()
    orders = case.orders(locked=locked)
    assert orders.run(1000) <= 0
    assert orders.idle > 0
    orders.kick(3)
    assert orders._order.tolist() == orders.best.tolist() == case.order.tolist()


def test_without_jobs_there_is_nothing_to_search() -> None:
    orders = case_of(queued()).orders()
    orders.kick(3)
    assert (orders.run(1000), orders.best_cost, orders.best.tolist()) == (0, 0, [])


def test_seeds_and_kicks_lead_to_different_orders() -> None:
    case = one_after_the_other()
    seen = set()
    for seed in range(5):
        orders = case.orders(seed=seed)
        for _ in range(3):
            orders.kick(3)
            seen.add(tuple(orders._order.tolist()))
    assert len(seen) == 15


def test_every_place_can_be_reached() -> None:
    case, random = one_after_the_other(), np.array([7], dtype=np.uint64)
    seen = set()
    for _ in range(1000):
        order = np.arange(12)
        shuffle(case.search.jobs, order, 1, random, 1)
        seen |= {(k, order.tolist().index(k)) for k in range(12)}
    assert seen == {(0, 0), *((k, p) for k in range(1, 12) for p in range(1, 12))}


def test_a_restart_goes_on_from_another_order_and_the_best_one_is_kept() -> None:
    case = one_after_the_other()
    best, worst = np.arange(12)[::-1].copy(), np.arange(12)
    orders = case.orders()
    orders.restart(best)
    assert orders.best.tolist() == best.tolist()
    orders.restart(worst)
    assert orders._order.tolist() == worst.tolist()
    assert orders.cost == scratch(case, worst) > orders.best_cost == scratch(case, best)
    assert orders.best.tolist() == best.tolist()
    orders.kick(0)
    assert orders._order.tolist() == best.tolist()
    assert orders.cost == orders.best_cost
    check(case, orders)


def test_the_order_that_it_began_with_is_left_alone() -> None:
    case = one_after_the_other()
    orders = case.orders()
    orders.run(5000)
    orders.kick(3)
    assert case.order.tolist() == list(range(12))
    assert orders.best.tolist() != list(range(12))


def entangled() -> Case:
    """Jobs of all kinds, a third of which come after others."""
    random = np.random.default_rng(8)
    jobs = []
    for k in range(30):
        cores, gpus = int(random.integers(1, 5)), int(random.integers(0, 2))
        after = [int(k - random.integers(1, min(k, 5) + 1))] if k % 3 == 2 else []
        duration, units = int(random.integers(1, 30)), int(random.integers(1, 3))
        jobs.append(job(k, duration, units, cores, gpus, after=after))
    weights: list[int] = random.integers(1, 9, 30).tolist()
    return case_of(queued(*jobs), per_s=weights)


@pytest.mark.parametrize("stride", [1, 4])
def test_an_order_is_taken_only_for_one_that_costs_less(stride: int) -> None:
    case = entangled()
    orders = with_stride(case, stride)
    for _ in range(400):
        cost, idle, order = orders.cost, orders.idle, orders._order.tolist()
        orders.run(1)  # tries one order
        if orders._order.tolist() == order:
            assert (orders.cost, orders.idle) == (cost, idle + 1)
        else:
            assert orders.cost < cost
            assert orders.idle == 0
    check(case, orders)


@pytest.mark.parametrize("stride", [1, 4])
def test_tried_orders_leave_nothing_behind_that_misleads_the_next_ones(stride: int) -> None:
    case = entangled()
    alone, together = with_stride(case, stride), with_stride(case, stride)
    for _ in range(40):
        together.run(300)
        for _ in range(300):  # each order that is tried takes a step or more
            if alone._random == together._random:
                break
            alone.run(1)
        assert alone._random == together._random
        assert alone._order.tolist() == together._order.tolist()
        assert alone.cost == together.cost


def test_orders_that_bring_nothing_better_are_counted() -> None:
    orders = one_after_the_other().orders()
    orders.run(20_000)
    idle = orders.idle
    assert idle > 0
    orders.run(1000)
    assert orders.idle > idle
    orders.kick(0)
    assert orders.idle == 0


@many
@given(crowds(most=6, dependencies=False) | crowds(most=6, dependencies=False, first=True))
def test_no_order_of_the_search_beats_all_orders(case: Case) -> None:
    orders = case.orders()
    orders.run(2000)
    search = case.again()
    every = permutations(range(min(len(case.order), 5)))
    if len(case.order) <= 5:
        assert orders.best_cost >= min(
            cost(search, search.starts(np.array(order))) for order in every
        )


# --------------------------------------------------------------------------- without a compiler

PLAIN = """
import json, random, sys
if "plain" in sys.argv:
    sys.modules["numba"] = None
import numpy as np
from cpdispatch.heuristics.order_search import OrderSearch
from cpdispatch.heuristics.schedule_generation import ScheduleGenerator
from cpdispatch.heuristics.schedule_input import held_in, jobs_of, timelines
from cpdispatch.instance import loads
draw = random.Random(3)
for resources in (1, 2):
    free = [7, 2][:resources]
    unit = lambda: [draw.randint(1, 4), draw.randint(0, 1)][:resources]
    queue = [
        {"id": k, "submit": 0, "duration": draw.randint(1, 20), "units": draw.randint(1, 3),
         "unit": unit(), **({"after": [k - 9], "think": 2} if k % 9 == 8 else {})}
        for k in range(9, 36)
    ]
    for job in queue:
        job["after"] = [id for id in job.get("after", []) if id > 8]
        if not job["after"]:
            job.pop("think", None)
    instance = loads(json.dumps({
        "format": "cpdispatch-instance/1", "time": 50, "resources": ["core", "gpu"][:resources],
        "groups": [{"name": "a", "nodes": 4, "capacity": free},
                   {"name": "b", "nodes": 2, "capacity": [4, 1][:resources]}],
        "running": [{"id": 1, "start": 40, "duration": 30, "units": 1, "unit": free,
                     "nodes": {"1": 1}}],
        "queue": queue, "power": {"cap": 40, "unit": [1, 3][:resources]},
        "reservations": [{"start": 60, "duration": 9, "nodes": [0, 4], "capacity": free}] * 2,
    }))
    table, given = instance.queue, instance.dependencies
    early_s = instance.earliest_s()
    lines, member = timelines(instance, np.arange(6), held_in(instance))
    pairs = [
        (k, int(other), int(given.think_s[k])) for k in range(len(table))
        for other in given.position[given.offset[k]:given.offset[k + 1]]
    ]
    now = np.full(len(table), 50)
    jobs = jobs_of(table, instance.job_power(table), early_s, now, 1 + now % 3, pairs)
    search = ScheduleGenerator(lines, member, jobs)
    orders = OrderSearch(search, np.arange(len(table)), 0 * now, 2, 5)
    for _ in range(3):
        print(orders.run(2000), orders.cost, orders.best_cost, orders.best.tolist())
        orders.kick(4)
    schedule = search.schedule(orders.best)
    print(schedule.start_s.tolist(), schedule.node.tolist(), schedule.units.tolist())
    print(search.earliest().tolist())
"""


def test_without_numba_everything_is_the_same_and_nothing_else_is_warned_of() -> None:
    told = ["-W", "error::RuntimeWarning", "-W", "ignore:numba is not installed"]
    said = [
        subprocess.run(
            [sys.executable, *told, "-c", PLAIN, *words], capture_output=True, text=True, check=True
        ).stdout
        for words in ([], ["plain"])
    ]
    assert said[0].count("\n") == 10
    assert said[0] == said[1]
