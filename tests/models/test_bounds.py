from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable
from cpdispatch.models import bounds
from cpdispatch.models import families as pooled
from cpdispatch.models import prices as pricing
from cpdispatch.models.bounds import Priced
from cpdispatch.models.families import Families
from cpdispatch.models.node_problem import NodeProblem
from cpdispatch.models.objective import OBJECTIVES, Weights
from tests.models.cases import (
    EXAMPLES,
    RESERVED,
    WATTS,
    crowded,
    job,
    problem_of,
    queued,
    running,
)
from tests.models.exhaustive import best_plan, possible
from tests.strategies import instances, plan

objectives = st.sampled_from(sorted(OBJECTIVES))


def one_of(families: Families, row: int) -> Families:
    only = slice(row, row + 1)
    return Families(
        families.name[only], families.since_s, families.free[only], families.demand[only]
    )


class Case:
    """The bounds of some queued jobs, all by default, under one objective."""

    def __init__(
        self, instance: Instance, objective: str = "wait", chosen: Sequence[int] | None = None
    ) -> None:
        self.problem: NodeProblem = problem_of(instance, "thesis-pcp3", objective, chosen)
        self.families = pooled.families(instance, self.problem.position)
        self.weights = self.problem.weights

    @property
    def facts(self) -> tuple[JobTable, Weights, IntArray]:
        problem = self.problem
        return problem.jobs, self.weights, problem.earliest_s

    def per_job(self) -> int:
        return self.weights.sum(self.problem.earliest_s)

    def area(self, families: Families | None = None) -> int:
        return bounds.area(self.families if families is None else families, *self.facts)

    def priced(self, upper: int, families: Families | None = None, rounds: int = 60) -> Priced:
        some = self.families if families is None else families
        return bounds.priced(some, *self.facts, upper, rounds)

    def row(self, name: str) -> Families:
        return one_of(self.families, self.families.name.index(name))


def waits(instance: Instance) -> Case:
    """The plain waits, one for each second."""
    case = Case(instance)
    case.weights = replace(
        case.weights, per_s=np.ones(len(case.problem.jobs), dtype=np.int64), scale=1
    )
    return case


# ------------------------------------------------------------------------------------- capacities


def held(families: Families, start_s: IntArray, duration_s: IntArray, time: int) -> IntArray:
    runs = (start_s <= time) & (time < start_s + duration_s)
    taken: IntArray = families.demand[:, runs].sum(axis=1)
    return taken


@settings(max_examples=10 * EXAMPLES)
@given(instances(), st.randoms(use_true_random=False))
def test_every_plan_of_the_nodes_keeps_every_capacity(instance: Instance, random: Any) -> None:
    order = list(range(len(instance.queue)))
    random.shuffle(order)
    found = plan(instance, order)
    chosen = sorted(found)
    families = pooled.families(instance, np.array(chosen, dtype=np.int64))
    start_s = np.array([found[position][0] for position in chosen], dtype=np.int64)
    duration_s = instance.queue.expected_s[chosen]
    for time in {instance.now, *families.since_s.tolist(), *start_s.tolist()}:
        segment = np.searchsorted(families.since_s, time, side="right") - 1
        used = held(families, start_s, duration_s, time)
        assert (used <= families.free[:, segment]).all(), families.name


FAT: dict[str, Any] = {
    "resources": ["core", "mem"],
    "groups": [{"name": "thin", "nodes": 3, "capacity": [4, 4]},
               {"name": "fat", "nodes": 1, "capacity": [4, 16]}],
}  # fmt: skip


def names(*jobs: dict[str, Any], **more: Any) -> dict[str, list[int]]:
    """What is free of each capacity over time."""
    instance = queued(*jobs, **more)
    families = pooled.families(instance, np.arange(len(jobs)))
    return dict(zip(families.name, families.free.tolist(), strict=True))


def test_a_resource_is_pooled_until_running_jobs_give_theirs_back() -> None:
    many = [job(k, 5, 1, 1, 0) for k in range(9)]
    busy = [running(20, 7, [2, 0], 0), running(21, 9, [1, 0], 1)]
    assert names(*many, running=busy) == {"core": [5, 7, 8]}
    assert names(*many, running=busy, down=[1]) == {"core": [2, 4, 4]}
    assert names(*many, reservations=RESERVED) == {"core": [8, 4, 8]}


def test_what_there_is_always_enough_of_is_no_capacity() -> None:
    assert names(job(1, 5, 1, 4, 1), job(2, 5, 1, 4, 1)) == {}


def test_jobs_that_cannot_leave_some_nodes_share_what_those_have() -> None:
    jobs = [job(1, 5, 1, 2, 8), job(2, 5, 1, 2, 9), job(3, 5, 1, 1, 7)]
    families = pooled.families(queued(*jobs, **FAT), np.arange(3))
    found = dict(zip(families.name, families.demand.tolist(), strict=True))
    assert found["core of fat"] == [2, 2, 1]
    assert found["mem of fat"] == [8, 9, 7]


def test_of_capacities_with_like_demands_the_least_counts() -> None:
    """Of jobs of 2 cores and 9 units of memory, the fat node has cores for 2, memory for 1."""
    found = names(*(job(k, 5, 1, 2, 9) for k in range(3)), **FAT)
    assert found == {"core of fat": [1]}


def test_a_capacity_is_lowered_to_what_its_demands_can_use() -> None:
    pool = {"resources": ["core"], "groups": [{"name": "a", "nodes": 1, "capacity": [10]}]}
    assert names(*(job(k, 5, 1, 4) for k in range(3)), **pool) == {"core": [2]}
    jobs = [job(1, 5, 1, 4), job(2, 5, 1, 5), job(3, 5, 1, 7)]
    assert names(*jobs, **pool)["core"] == [9]


def test_a_job_that_asks_for_nothing_takes_nothing() -> None:
    """No file has such a job; a program may make one."""
    instance = queued(*(job(k, 5, 2, 3, 0) for k in range(3)))
    for nothing in ([1], [0, 1, 2]):
        block = instance.queue.block.copy()
        block[Column.REQUEST :, nothing] = 0
        jobs = JobTable(block, instance.queue.labels)
        found = pooled.families(replace(instance, queue=jobs), np.arange(3))
        assert (found.demand[:, nothing] == 0).all()
        assert (found.demand >= 0).all()
        assert len(found) == (len(nothing) < 3)


def test_units_are_counted_where_they_fit() -> None:
    """What is left on each node is 2 cores: no unit of 3 fits there until the job ends."""
    busy = [running(20, 9, [2, 0], 0), running(21, 9, [2, 0], 1)]
    found = names(job(1, 5, 2, 3, 0), job(2, 5, 1, 4, 0), job(3, 5, 1, 1, 0), running=busy)
    assert found["units of 3 core"] == [0, 2]


@pytest.mark.parametrize(
    ("free", "shape", "room"),
    [([7, 9], [2, 4], 2), ([7, 9], [2, 0], 3), ([7, 9], [0, 1], 9), ([1, 9], [2, 1], 0),
     ([-3, 9], [1, 1], 0)],
)  # fmt: skip
def test_there_is_room_for_what_every_resource_is_enough_for(
    free: list[int], shape: list[int], room: int
) -> None:
    assert pooled._room(np.array(free), np.array(shape)) == room


def test_a_unit_counts_as_many_as_it_holds() -> None:
    families = pooled.families(queued(*(job(k, 5, 2, 1 + k, 0) for k in range(4))), np.arange(4))
    found = dict(zip(families.name, families.demand.tolist(), strict=True))
    assert found["core"] == [1, 2, 3, 4]
    assert found["units of 2 core"] == [0, 1, 1, 2]


def test_power_is_a_capacity() -> None:
    jobs = [job(k, 5, 1, 2, 1) for k in range(2)]
    found = names(*jobs, power=WATTS, running=[running(9, 8, [1, 0], 0)])
    assert found["power"] == [0, 1]


def test_no_jobs_share_nothing() -> None:
    families = pooled.families(queued(job(1, 5, 1, 1, 0)), np.arange(0))
    assert len(families) == 0
    case = waits(queued(job(1, 5, 1, 1, 0)))
    assert case.priced(100).sum == case.area() == case.per_job() == 100


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 40))
def test_a_usable_part_is_the_largest_sum_of_demands(demand: list[int], most: int) -> None:
    sums = {sum(some) for n in range(len(demand) + 1) for some in combinations(demand, n)}
    expected = [max(s for s in sums if s <= free) for free in range(most + 1)]
    assert pooled._usable(np.sort(np.array(demand)), most).tolist() == expected


# ---------------------------------------------------------------------------------------- validity


@settings(max_examples=EXAMPLES)
@given(crowded(), objectives)
def test_no_bound_is_above_the_best_plan_of_the_exhaustive_twin(
    instance: Instance, objective: str
) -> None:
    chosen = possible(instance)
    if not chosen:
        return
    best = best_plan(instance, chosen, objective)
    assert best is not None
    case = Case(instance, objective, chosen)
    starts = np.array([best[1][position][0] for position in chosen], dtype=np.int64)
    optimum = case.problem.weights.sum(starts)
    for row in range(len(case.families)):
        alone = one_of(case.families, row)
        assert case.per_job() <= case.area(alone) <= optimum, alone.name
        assert case.area(alone) <= case.priced(optimum, alone, 15).sum <= optimum, alone.name
    assert case.area() <= optimum
    for upper in (optimum, optimum + optimum // 10 + 1):
        found = case.priced(upper)
        assert case.area() <= found.sum <= optimum
        assert (starts <= found.latest_s).all()
        assert (found.latest_s >= case.problem.earliest_s).all()
        assert (found.start_s >= case.problem.earliest_s).all()


@settings(max_examples=EXAMPLES)
@given(instances(max_nodes=3, max_jobs=5, max_running=3), objectives, st.integers(0, 4))
def test_what_the_jobs_pay_alone_never_falls_by_one_more(
    instance: Instance, objective: str, left_out: int
) -> None:
    chosen = possible(instance)
    fewer = [position for k, position in enumerate(chosen) if k != left_out]
    if not fewer or len(fewer) == len(chosen):
        return
    case, less = Case(instance, objective, chosen), Case(instance, objective, fewer)
    left = np.delete(np.arange(len(chosen)), left_out)
    less.weights = case.weights.take(left)
    assert less.per_job() <= case.per_job()


# ------------------------------------------------------------------------------ computed by hand

NODE: dict[str, Any] = {
    "resources": ["core"], "groups": [{"name": "a", "nodes": 1, "capacity": [4]}],
}  # fmt: skip


def test_equal_jobs_on_a_node_wait_for_each_other() -> None:
    case = waits(queued(*(job(k, 10, 1, 4, submit=100) for k in range(4)), **NODE))
    assert case.per_job() == 0
    assert case.area() == case.priced(60).sum == 10 + 20 + 30


def test_short_jobs_go_first() -> None:
    jobs = [job(k, duration, 1, 3, submit=100) for k, duration in enumerate((9, 2, 5))]
    assert waits(queued(*jobs, **NODE)).area() == 2 + (2 + 5)


def test_weights_count_for_the_area() -> None:
    case = waits(queued(job(1, 8, 1, 4, submit=100), job(2, 4, 1, 4, submit=100), **NODE))
    assert case.area() == 4
    case.weights = replace(case.weights, per_s=np.array([3, 1]), scale=1)
    assert case.area() == 8


def test_running_jobs_hold_what_they_have() -> None:
    """Half of the node is free for 10 s; then jobs of half a node start at 0, 10 and 20 s."""
    jobs = [job(k, 20, 1, 2, submit=100) for k in range(3)]
    case = waits(queued(*jobs, running=[running(9, 15, [2], 0)], **NODE))
    assert case.per_job() == 0
    # The fluid serves them until 15, 25 and 35 s, in the mean at 8.75, 20 and 30 s.
    assert case.area() == 29
    assert case.priced(30).sum <= 30


def test_jobs_wait_for_what_they_alone_wait_for() -> None:
    jobs = [job(k, 10, 1, 4, submit=100) for k in range(2)]
    case = waits(queued(*jobs, running=[running(9, 15, [1], 0)], **NODE))
    assert case.per_job() == 10 + 10
    assert case.area() == 10 + 20


def test_a_family_is_short_of_what_the_whole_has_enough_of() -> None:
    jobs = [job(k, 10, 1, 1, 9, submit=100) for k in range(3)]
    case = waits(queued(*jobs, **FAT))
    assert "core" not in case.families.name
    assert case.area(case.row("mem of fat")) == 10 + 20
    assert case.area(Families((), case.families.since_s, *np.empty((2, 0, 1), dtype=np.int64))) == 0


def test_units_of_a_shape_see_what_no_resource_does() -> None:
    """Two nodes of 4 cores run two jobs of 3 at a time; the cores would be enough for more."""
    jobs = [job(k, 12, 1, 3, 0, submit=100) for k in range(4)] + [job(9, 1, 1, 1, 0, submit=100)]
    case = waits(queued(*jobs))
    whole, shape = case.area(case.row("core")), case.area(case.row("units of 3 core"))
    assert shape == 12 + 12
    assert whole < shape


def test_bundles_see_what_is_left_over() -> None:
    """Of 10 cores a job takes 6: a second does not fit beside it, though a third of one would."""
    nodes = {"resources": ["core"], "groups": [{"name": "a", "nodes": 10, "capacity": [1]}]}
    jobs = [job(k, 10, 6, 1, submit=100) for k in range(3)]
    small = [job(8, 10, 1, 1, submit=100), job(9, 10, 2, 1, submit=100)]
    case = waits(queued(*jobs, *small, **nodes))
    assert case.area(case.row("core by 6")) == 10 + 20
    assert case.area(case.row("core")) < 10 + 20


def test_bounds_of_disjoint_families_add_up() -> None:
    groups = [{"name": name, "nodes": 1, "capacity": capacity}
              for name, capacity in (("g", [2, 2, 0]), ("m", [2, 0, 2]))]  # fmt: skip
    jobs = [job(k, 10, 1, 1, 2 * (k % 2), 2 - 2 * (k % 2), submit=100) for k in range(4)]
    case = waits(queued(*jobs, resources=["core", "gpu", "mic"], groups=groups))
    assert case.area(case.row("gpu")) == case.area(case.row("mic")) == 10
    assert case.area() == 10 + 10


def test_jobs_that_may_wait_for_nothing_are_left_out() -> None:
    """The long job is free until its queue's usual wait; it is not let lower the others' sum."""
    jobs = [job(k, 10, 1, 4, submit=100) for k in range(3)]
    late = job(9, 30, 1, 4, submit=100, ewt=1000)
    case, less = (
        Case(queued(*some, **NODE), "ewt_excess") for some in ((*jobs, late), tuple(jobs))
    )
    for one in (case, less):
        one.weights = replace(
            one.weights, per_s=np.ones(len(one.problem.jobs), dtype=np.int64), scale=1
        )
    assert less.area() == (10 - 1) + (20 - 1) - 1  # the first is a second earlier than it need be
    assert case.area() == less.area()


def test_power_bounds_too() -> None:
    jobs = [job(k, 10, 1, 2, 1, submit=100) for k in range(2)]
    case = waits(queued(*jobs, power=WATTS))
    assert case.families.name == ("power",)
    assert case.area() == 10


def test_prices_see_that_a_job_cannot_have_more_than_it_asks_for() -> None:
    """The fluid runs three jobs of half a node at twice their speed; no plan does."""
    jobs = [job(k, 10, 1, 2, submit=100) for k in range(3)]
    case = waits(queued(*jobs, **NODE))
    assert case.area() == 8  # 3 * 7.5 - 3 * 5, rounded up
    assert case.priced(10).sum == 10


def test_jobs_that_are_late_at_any_price_start_no_later_than_they_must() -> None:
    """Equal jobs fill the node one by one; no good plan starts another after the last of them."""
    case = waits(queued(*(job(k, 10, 1, 4, submit=100) for k in range(4)), **NODE))
    found = case.priced(60, rounds=200)
    assert found.latest_s.max() < 140
    assert case.priced(70, rounds=200).latest_s.max() > found.latest_s.max()


def test_a_job_without_weight_may_start_at_any_time() -> None:
    case = waits(queued(*(job(k, 10, 1, 4, submit=100) for k in range(3)), **NODE))
    case.weights = replace(case.weights, per_s=np.array([1, 0, 1]), scale=1)
    found = case.priced(10)
    assert found.sum == 10
    assert found.latest_s[1] > 10**9 > found.latest_s[0]


def test_the_prices_give_an_order() -> None:
    jobs = [job(k, duration, 1, 4, submit=100) for k, duration in enumerate((90, 2, 20))]
    case = waits(queued(*jobs, **NODE))
    assert np.argsort(case.priced(1000).start_s).tolist() == [1, 2, 0]


# ----------------------------------------------------------------------------------- large numbers


def test_a_sum_beyond_64_bits_is_exact() -> None:
    weights = Weights(np.full(4, 2**52), 1, np.zeros(4, dtype=np.int64))
    assert weights.sum(np.full(4, 2**40)) == 2**94


@pytest.mark.parametrize("duration", [2**30, 2**40, 2**47, 2**48])
def test_bounds_of_very_long_jobs_are_none_or_right(duration: int) -> None:
    jobs = [job(k, duration, 1, 4, submit=100) for k in range(3)]
    case = waits(queued(*jobs, **NODE))
    for bound in (case.area(), case.priced(3 * duration).sum):
        assert bound == 0 or 3 * duration * (1 - 1e-9) < bound <= 3 * duration


@given(
    st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 2**60)), min_size=1, max_size=8),
    st.integers(1, 10**6),
)
def test_large_capacities_are_not_rounded_down(steps: list[tuple[int, int]], cut: int) -> None:
    since = np.cumsum([0, *(length for length, _ in steps)])
    free = np.array([[rate for _, rate in steps] + [0]])
    nearest = bounds._not_below(free)
    assert all(Fraction(x) >= y for x, y in zip(nearest[0].tolist(), free[0].tolist(), strict=True))
    end = int(since[-1]) + cut
    supply = pricing.supply_of(since.astype(np.float64), nearest, np.array([0.0, end]))
    exact = sum(length * rate for length, rate in steps)
    assert exact <= Fraction(float(supply[0, 0])) <= exact * (1 + Fraction(1, 10**12))


# --------------------------------------------------------------------------------------- the twins


@st.composite
def fluids(draw: st.DrawFn) -> tuple[FloatArray, FloatArray, pricing.Classes]:
    """Segments and what is free in them, and classes of jobs of one family."""
    steps = draw(st.lists(st.integers(1, 20), max_size=4))
    since = np.cumsum([0, *steps]).astype(np.float64)
    free = draw(st.lists(st.integers(0, 6), min_size=len(steps), max_size=len(steps)))
    number = draw(st.integers(1, 6))

    def column(least: int, most: int) -> FloatArray:
        values = st.lists(st.integers(least, most), min_size=number, max_size=number)
        return np.array(draw(values), dtype=np.float64)

    release = column(0, 30)
    classes = pricing.Classes(
        column(0, 6)[None], column(1, 12), column(0, 9), release, release + column(0, 15),
        column(1, 3),
    )  # fmt: skip
    return since, np.array([*free, draw(st.integers(1, 6))], dtype=np.float64), classes


def fluid_twin(since: FloatArray, free: FloatArray, classes: pricing.Classes) -> Fraction:
    """Weighted mean busy times: by ratio, each job takes the first capacity that is left it."""
    left = [
        (int(a), int(b), Fraction(f))
        for a, b, f in zip(since, [*since[1:], 10**9], free, strict=True)
    ]
    busy: list[tuple[Fraction, Fraction]] = []
    rows = [
        [Fraction(float(x)) for x in row]
        for row in zip(classes.demand[0], *classes[1:], strict=True)
    ]
    rows = [row for row in rows if row[0] > 0 and row[2] > 0]
    total = Fraction(0)
    for demand, duration, weight, release, _, number in sorted(
        rows, key=lambda r: -r[2] / (r[0] * r[1])
    ):
        area, taken = demand * duration * number, []
        for begin, end, rate in left:
            gaps, time = [], max(Fraction(begin), release)
            for a, b in [*sorted(busy), (Fraction(end), Fraction(end))]:
                gaps.append((time, min(a, Fraction(end))))
                time = max(time, b)
            for a, b in gaps:
                if rate > 0 and area > 0 and b > a:
                    b = min(b, a + area / rate)
                    area -= rate * (b - a)
                    taken.append((a, b))
                    total += weight / (demand * duration) * rate * (b - a) * (a + b) / 2
        busy += taken
    return total


@settings(max_examples=10 * EXAMPLES)
@given(fluids())
def test_the_fluid_is_that_of_the_twin_and_costs_no_more(
    given_: tuple[FloatArray, FloatArray, pricing.Classes],
) -> None:
    since, free, classes = given_
    every = np.ones(len(classes.jobs), dtype=np.bool_)
    fluid = bounds._fluid(since, free, classes, 0, every)
    run = bounds._flow(fluid)
    cost = sum((Fraction(float(c)) for c in run.cost), Fraction(0)) / 2 / Fraction(fluid.tick) ** 2
    exact = fluid_twin(since, free, classes)
    assert exact * (1 - Fraction(1, 10**9)) <= cost <= exact * (1 + Fraction(1, 10**14))


def cost_twin(
    grid: FloatArray, prices: FloatArray, classes: pricing.Classes, j: int, start: int
) -> Fraction:
    """What a job costs and pays that starts then."""
    facts = [int(fact[j]) for fact in classes[1:5]]
    duration, weight, _, free_until = facts
    total = Fraction(weight * max(0, start - free_until))
    for k, (a, b) in enumerate(zip(grid[:-1].astype(int), grid[1:].astype(int), strict=True)):
        shared = max(0, min(int(b), start + duration) - max(int(a), start))
        for c in range(len(prices)):
            total += int(classes.demand[c, j]) * shared * Fraction(float(prices[c, k]))
    return total


@settings(max_examples=3 * EXAMPLES)
@given(fluids(), st.data())
def test_the_value_of_prices_and_the_latest_starts_are_those_of_the_twin(
    given_: tuple[FloatArray, FloatArray, pricing.Classes], data: st.DataObject
) -> None:
    since, free, classes = given_
    cuts = data.draw(st.sets(st.integers(1, 60), min_size=1, max_size=6))
    grid = np.array([0, *sorted(cuts)], dtype=np.float64)
    level = st.floats(0, 5) | st.just(0.0)
    cells = len(grid) - 1
    prices = np.array([data.draw(st.lists(level, min_size=cells, max_size=cells))])
    slack = data.draw(st.floats(0, 40))
    supply = pricing.supply_of(since, free[None], grid)
    value, slip = pricing.value_of(grid, supply, prices, classes)
    latest, later = (pricing.latest_of(grid, prices, classes, slack + d) for d in (0, 1e-6))
    exact = -sum(
        (Fraction(float(p)) * held_until(since, free, int(a), int(b))
         for p, a, b in zip(prices[0], grid[:-1], grid[1:], strict=True)), Fraction(0)
    )  # fmt: skip
    for j in range(len(classes.jobs)):
        first = int(classes.release[j])
        end = int(max(grid[-1], classes.free_until[j], first)) + 60
        costs = [cost_twin(grid, prices, classes, j, start) for start in range(first, end)]
        exact += int(classes.jobs[j]) * min(costs)
        starts = [
            [first + k for k, cost in enumerate(costs) if cost <= min(costs) + Fraction(slack) + d]
            for d in (0, Fraction(1, 10**6))
        ]
        if classes.weight[j] > 0:
            assert starts[0][-1] <= later[j]
            assert latest[j] < starts[1][-1] + 1
        else:
            assert later[j] == np.inf
    assert abs(Fraction(value) - exact) <= Fraction(slip)
    assert slip <= 1e-9


def held_until(since: FloatArray, free: FloatArray, begin: int, end: int) -> int:
    """What is free from one second until another, second by second."""
    at = np.searchsorted(since, np.arange(begin, end), side="right") - 1
    return int(free[at].sum())
