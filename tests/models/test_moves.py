"""What CP-SAT is asked to do for a schedule, and what becomes of its answers, true or false."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.instance import Instance
from cpdispatch.models import moves
from cpdispatch.models.boxes import BoxesModel
from cpdispatch.models.copies import CopiesModel
from cpdispatch.models.counts import CountsModel
from cpdispatch.models.families import families
from cpdispatch.models.moves import (
    LARGEST,
    SMALLEST,
    Found,
    Master,
    Move,
    MovesInSequence,
    Neighbourhoods,
    Whole,
)
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.part import Part
from cpdispatch.models.pooled_model import PooledModel, PooledProblem
from cpdispatch.models.relaxation import Known, pool_of, relax
from cpdispatch.models.search import whole
from cpdispatch.models.solver import Response
from cpdispatch.verify import objective_value
from tests.models.cases import EXAMPLES, crowded, job, queued, running, solver
from tests.models.exhaustive import best_plan
from tests.models.pool_twin import best_value
from tests.models.test_part import (
    decision_of,
    only,
    parts,
    places,
    schedule_of,
    scheduled,
    starving,
    wrong,
)
from tests.strategies import Plan as Places

FORMULATIONS = [CopiesModel, CountsModel, BoxesModel]

AMPLE_S = 60.0
"""Time left that is enough for every model here."""

UNUSED: Any = None
"""In the place of what is known, where that makes no difference."""

formulations = pytest.mark.parametrize("formulation", FORMULATIONS)
many = settings(max_examples=EXAMPLES)
fewer = settings(max_examples=max(1, EXAMPLES // 2))


# ---------------------------------------------------------------------------------------- cases


def known(part: Part, schedule: ListSchedule | None = None) -> Known:
    """What is known of the plans that are no worse than a schedule, or than that by priority."""
    return relax(part, (schedule or schedule_of(part)).start_s)


def hinted(move: Move, status: Any = cp_model.FEASIBLE, bound: float | None = 0.0) -> Response:
    """The answer of a solver that has only read the hint."""
    hint = move.model.proto.solution_hint
    assert sorted(hint.vars) == list(range(len(move.model.proto.variables)))
    told = dict(zip(hint.vars, hint.values, strict=True))
    return Response(status, 0.0, bound, tuple(told[k] for k in sorted(told)), 0.0, 0.0, 0)


def solved(move: Move, **settings: Any) -> Response:
    """The answer of CP-SAT."""
    one = solver()
    for name, given_ in settings.items():
        setattr(one.parameters, name, given_)
    status = one.solve(move.model)
    values = tuple(one.response_proto.solution)
    return Response(status, one.objective_value, one.best_objective_bound, values, 0.0, 0.0, 0)


def unknown() -> Response:
    return Response(cp_model.UNKNOWN, None, None, (), 0.0, 0.0, 0)


def all_now(move: Move) -> Response:
    """Every job starts now, on the nodes of the hint."""
    response = hinted(move, cp_model.OPTIMAL)
    starts = [t for t in response.values if t > 1]
    return replace(response, values=tuple(0 if t in starts else t for t in response.values))


def never(move: Move) -> Response:
    response = hinted(move)
    return replace(response, values=tuple(t + 10**6 for t in response.values))


FALSE: dict[str, Any] = {
    "infeasible": lambda move: Response(cp_model.INFEASIBLE, None, None, (), 0.0, 0.0, 0),
    "unknown": lambda move: unknown(),
    "invalid": lambda move: Response(cp_model.MODEL_INVALID, None, None, (), 0.0, 0.0, 0),
    "overfull": all_now,
    "never": never,
    "bound_above": lambda move: hinted(move, cp_model.OPTIMAL, 2.0**50),
    "no_bound": lambda move: hinted(move, cp_model.FEASIBLE, None),
}
"""What a solver may say, by name."""


def nothing(found: Found) -> bool:
    return found.schedule is None and found.bound is None


def spied(formulation: type[Any]) -> Any:
    """The formulation, which keeps the problems and the plans that it is given."""

    def remember(self: Any, problem: NodeProblem, plan: NodePlan | None = None) -> None:
        self.seen.append((problem, plan))
        formulation.__init__(self, problem, plan)

    return type("Spied", (formulation,), {"__init__": remember, "seen": []})


def freed(formulation: Any) -> list[list[int]]:
    """Queue positions of the jobs of each model that was built."""
    return [sorted(problem.position.tolist()) for problem, _ in formulation.seen]


def a_crowd(jobs: int = 30) -> tuple[Part, ListSchedule]:
    """Jobs that all want the same node, in an order that is a poor one."""
    rows = [job(k, 1 + (7 * k) % 29, 1, 3 + k % 2, 0) for k in range(jobs)]
    part = only(queued(*rows, groups=[{"name": "a", "nodes": 1, "capacity": [4, 1]}]))
    longest_first = np.argsort(-part.jobs.expected_s, kind="stable")
    return part, schedule_of(part, longest_first.tolist())


def same(part: Part, first: ListSchedule, second: ListSchedule) -> bool:
    """Whether two schedules are one, but for jobs that are alike."""
    rows = [
        sorted(
            (kind, start, sorted(where.items()))
            for kind, start, where in zip(
                part.alike.tolist(), one.start_s.tolist(), places(one), strict=True
            )
        )
        for one in (first, second)
    ]
    return rows[0] == rows[1]


def sound(part: Part, schedule: ListSchedule) -> bool:
    return wrong(part.instance, decision_of(part.instance, [(part, schedule)])) == []


# ------------------------------------------------------------------------------ on the nodes


@formulations
@many
@given(scheduled(starvation=True), st.integers(0, 3))
def test_a_model_begins_with_the_schedule_that_there_is(
    formulation: Any, case: tuple[Part, ListSchedule], seed: int
) -> None:
    part, schedule = case
    watched = spied(formulation)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, seed)
    for _ in range(3):
        move = neighbourhoods.next(schedule, AMPLE_S)
        if move is None:
            return
        problem, plan = watched.seen[-1]
        assert plan.check(problem) == ""
        found = move.answer(hinted(move))
        assert found.schedule is not None
        assert same(part, found.schedule, schedule)
        assert found.bound in (None, 0)
        if formulation is not BoxesModel:
            fixed = solved(move, fix_variables_to_their_hinted_value=True)
            assert fixed.status == cp_model.OPTIMAL
            assert fixed.objective == problem.weights.sum(plan.start_s)


@formulations
@many
@given(scheduled(starvation=True), st.integers(0, 3))
def test_an_answer_is_put_into_the_schedule_and_never_makes_it_worse(
    formulation: Any, case: tuple[Part, ListSchedule], seed: int
) -> None:
    part, schedule = case
    watched = spied(formulation)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, seed)
    for _ in range(4):
        move = neighbourhoods.next(schedule, AMPLE_S)
        if move is None:
            return
        found = move.answer(solved(move))
        assert found.schedule is not None
        assert part.weights.sum(found.schedule.start_s) <= part.weights.sum(schedule.start_s)
        assert sound(part, found.schedule)
        stay = ~np.isin(part.position, watched.seen[-1][0].position)
        assert (found.schedule.start_s[stay] == schedule.start_s[stay]).all()
        schedule = found.schedule


@formulations
@many
@given(scheduled(starvation=True))
def test_a_bound_is_stated_only_where_every_plan_is_one_of_the_model(
    formulation: Any, case: tuple[Part, ListSchedule]
) -> None:
    part, schedule = case
    watched = spied(formulation)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 0)
    for _ in range(3):
        move = neighbourhoods.next(schedule, AMPLE_S)
        if move is None:
            return
        response = solved(move)
        found = move.answer(response)
        problem, plan = watched.seen[-1]
        covers = len(problem.jobs) == len(part) and formulation(problem, plan).lossless
        assert response.bound is not None
        assert found.bound == (whole(response.bound) if covers else None)


def accepted(part: Part) -> Any:
    """Whether a plan of the twin keeps to the latest starts of a part."""
    latest_s = dict(zip(part.position.tolist(), part.latest_s.tolist(), strict=True))

    def accept(plan: Places) -> bool:
        return all(start <= latest_s[position] for position, (start, _) in plan.items())

    return accept


@pytest.mark.parametrize("formulation", [CopiesModel, CountsModel])
@fewer
@given(crowded(), st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_what_is_proven_of_all_jobs_is_the_optimum_of_the_exhaustive_twin(
    formulation: Any, instance: Instance, objective: str
) -> None:
    for part in parts(instance, objective):
        schedule = schedule_of(part)
        move = Neighbourhoods(formulation, part, UNUSED, 0).next(schedule, AMPLE_S)
        if move is None:
            continue
        best = best_plan(instance, part.position.tolist(), objective, accepted(part))
        found = move.answer(solved(move))
        assert best is not None
        assert found.schedule is not None
        assert found.bound == part.weights.sum(found.schedule.start_s)
        assert part.cost.bound(found.bound, part.weights) <= float(best[0])
        starts = found.schedule.start_s
        ours = sum((found_cost(part, objective, k, int(s)) for k, s in enumerate(starts)), 0)
        assert float(ours) == pytest.approx(float(best[0]), rel=1e-6)


def found_cost(part: Part, objective: str, k: int, start_s: int) -> Any:
    """The exact cost of a job, by the checker."""
    return objective_value(part.instance, objective, {int(part.position[k]): start_s})


# ----------------------------------------------------------------------- all jobs of a small part


def all_at_once(
    formulation: Any, part: Part, schedule: ListSchedule, rounds: int = 50
) -> tuple[Whole, int]:
    """The move of all jobs with what the bounds say, and the price bound."""
    found = relax(part, schedule.start_s, rounds)
    return Whole(formulation, part, found, 0), found.least


@formulations
@fewer
@given(crowded(), st.sampled_from(["slowdown", "bounded_slowdown"]), st.data())
def test_what_the_bounds_say_costs_no_plan_of_all_jobs_that_is_best(
    formulation: Any, instance: Instance, objective: str, data: st.DataObject
) -> None:
    for part in parts(instance, objective):
        schedule = schedule_of(part, data.draw(st.permutations(range(len(part)))))
        move = all_at_once(formulation, part, schedule)[0].next(schedule, AMPLE_S)
        assert (move is None) == bool(part.settled.any())
        if move is None:
            continue
        found = move.answer(hinted(move))
        assert found.schedule is not None
        assert same(part, found.schedule, schedule)
        found = move.answer(solved(move))
        assert found.schedule is not None
        assert sound(part, found.schedule)
        best = best_plan(instance, part.position.tolist(), objective, accepted(part))
        assert best is not None
        starts = found.schedule.start_s
        ours = sum((found_cost(part, objective, k, int(s)) for k, s in enumerate(starts)), 0)
        if found.bound is None:
            assert formulation is BoxesModel
            assert ours >= best[0]
        else:
            assert found.bound == part.weights.sum(starts)
            assert float(ours) == pytest.approx(float(best[0]), rel=1e-6)


def test_starts_costs_and_capacities_of_the_bounds_are_in_the_model() -> None:
    part, _ = a_crowd(6)
    schedule = schedule_of(part, np.argsort(part.jobs.expected_s, kind="stable").tolist())
    whole_, least = all_at_once(CopiesModel, part, schedule)
    move, bare = whole_.next(schedule, AMPLE_S), Neighbourhoods(CopiesModel, part, UNUSED, 0)
    assert move is not None
    plain = bare.next(schedule, AMPLE_S)
    assert plain is not None
    rows = [sum(c.has_cumulative() for c in m.model.proto.constraints) for m in (move, plain)]
    assert rows[0] > rows[1]
    last = [[max(v.domain) for v in m.model.proto.variables][: len(part)] for m in (move, plain)]
    assert sum(last[0]) <= sum(last[1])
    low, high = move.model.proto.objective.domain
    offset = int(move.model.proto.objective.offset)
    assert low + offset == least > part.weights.sum(part.earliest_s)
    assert high + offset == part.weights.sum(schedule.start_s)
    assert whole_.next(schedule, AMPLE_S) is None


@formulations
def test_a_model_of_all_jobs_that_there_is_no_time_to_build_is_not_built(formulation: Any) -> None:
    part, schedule = a_crowd(6)
    assert all_at_once(formulation, part, schedule)[0].next(schedule, 1e-4) is None


@formulations
@pytest.mark.parametrize("said", FALSE)
def test_of_a_false_answer_about_all_jobs_nothing_is_taken(formulation: Any, said: str) -> None:
    part, schedule = a_crowd(6)
    move = all_at_once(formulation, part, schedule)[0].next(schedule, AMPLE_S)
    assert move is not None
    assert nothing(move.answer(FALSE[said](move)))


# --------------------------------------------------------------------------- which jobs are freed


@formulations
def test_at_first_all_jobs_are_set_free_and_then_one_that_waits_and_its_rivals(
    formulation: Any,
) -> None:
    part, schedule = a_crowd(12)
    watched = spied(formulation)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 0)
    for _ in range(5):
        assert neighbourhoods.next(schedule, AMPLE_S) is not None
    sizes = [len(jobs) for jobs in freed(watched)]
    assert sizes[0] == 12
    assert max(sizes[1:]) == 6
    assert len({tuple(jobs) for jobs in freed(watched)}) > 2


def test_the_rivals_of_a_job_run_between_its_earliest_start_and_its_end() -> None:
    before = [job(k, 5, 1, 4, 0) for k in range(2)]
    rivals = [job(k, 3 + k, 1, 4, 0, earliest=200) for k in range(2, 12)]
    after = [job(k, 5, 1, 4, 0, earliest=500) for k in range(12, 14)]
    part = only(queued(*before, *rivals, *after))
    schedule = schedule_of(part)
    watched = spied(CopiesModel)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 0)
    for _ in range(20):
        assert neighbourhoods.next(schedule, AMPLE_S) is not None
    waiting = set(part.position[(part.jobs.id >= 2) & (part.jobs.id < 12)].tolist())
    assert all(set(jobs) <= waiting for jobs in freed(watched)[1:])


def test_jobs_on_common_nodes_are_freed_together_more_often() -> None:
    rows = [job(k, 5 + k // 2, 1, 4, 0) for k in range(24)]
    part = only(queued(*rows))
    schedule = schedule_of(part)
    watched = spied(CopiesModel)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 1)
    neighbourhoods.next(schedule, AMPLE_S)
    (node_of,) = np.array([list(nodes) for nodes in places(schedule)]).T
    common = 0.0
    for _ in range(60):
        neighbourhoods.next(schedule, AMPLE_S)
        nodes = node_of[np.isin(part.position, watched.seen[-1][0].position)]
        common += max((nodes == 0).mean(), (nodes == 1).mean())
    assert common / 60 > 0.75


def test_the_same_seed_frees_the_same_jobs() -> None:
    part, schedule = a_crowd(20)
    sets = []
    for seed in (0, 0, 1):
        watched = spied(CopiesModel)
        neighbourhoods = Neighbourhoods(watched, part, UNUSED, seed)
        for _ in range(4):
            neighbourhoods.next(schedule, AMPLE_S)
        sets.append(freed(watched))
    assert sets[0] == sets[1] != sets[2]


def sizes(answer: Any, steps: int) -> list[int]:
    """How many jobs are set free one after the other when every move is answered like that."""
    part, schedule = a_crowd(40)
    watched = spied(CopiesModel)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 0)
    for _ in range(steps):
        move = neighbourhoods.next(schedule, AMPLE_S)
        assert move is not None
        move.answer(answer(move))
    return [len(jobs) for jobs in freed(watched)[1:]]


def test_more_jobs_are_freed_after_proofs_that_there_is_nothing_better() -> None:
    found = sizes(lambda move: hinted(move, cp_model.OPTIMAL), 50)
    assert found[:4] == [7, 8, 9, 10]
    assert max(found) == LARGEST


def test_fewer_jobs_are_freed_when_nothing_is_found_or_proven() -> None:
    assert sizes(lambda move: unknown(), 6) == [5, 4, SMALLEST, SMALLEST, SMALLEST]
    assert sizes(hinted, 6) == [5, 4, SMALLEST, SMALLEST, SMALLEST]


def test_as_many_jobs_are_freed_while_that_brings_something() -> None:
    answers = iter([unknown])
    assert sizes(lambda move: next(answers, lambda: solved(move))(), 6) == [5, 5, 5, 5, 5]


def test_a_starved_job_that_is_late_is_never_set_free() -> None:
    others = [job(k, 3 + k, 1, 4, 0, submit=99) for k in range(3, 9)]
    part = starving(*others)
    longest_first = np.argsort(-part.jobs.expected_s, kind="stable")
    schedule = schedule_of(part, longest_first.tolist())
    watched = spied(CopiesModel)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 0)
    for _ in range(10):
        assert neighbourhoods.next(schedule, AMPLE_S) is not None
    late = set(part.position[part.jobs.id <= 2].tolist())
    assert all(late.isdisjoint(jobs) for jobs in freed(watched))


@formulations
@many
@given(scheduled(starvation=True), st.integers(0, 3))
def test_where_one_is_late_no_starved_job_is_set_free(
    formulation: Any, case: tuple[Part, ListSchedule], seed: int
) -> None:
    part, schedule = case
    watched = spied(formulation)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, seed)
    while neighbourhoods.next(schedule, AMPLE_S) and len(watched.seen) < 5:
        pass
    settled = set(part.position[part.settled].tolist())
    assert all(settled.isdisjoint(jobs) for jobs in freed(watched))


# ----------------------------------------------------------------------------------- no more moves


@formulations
def test_where_every_job_starts_when_it_could_alone_there_is_no_move(formulation: Any) -> None:
    part = only(queued(job(1, 5, 1, 4, 0), job(2, 9, 1, 4, 0), running=[running(9, 9, [4, 1], 1)]))
    waits = schedule_of(part)
    assert Neighbourhoods(formulation, part, UNUSED, 0).next(waits, AMPLE_S) is not None
    alone = only(queued(job(1, 5, 1, 4, 0), job(2, 9, 1, 4, 0)))
    assert Neighbourhoods(formulation, alone, UNUSED, 0).next(schedule_of(alone), AMPLE_S) is None


@formulations
def test_a_model_that_is_too_large_for_the_time_left_is_not_built(formulation: Any) -> None:
    part, schedule = a_crowd()
    watched = spied(formulation)
    assert Neighbourhoods(watched, part, UNUSED, 0).next(schedule, 1e-4) is None
    assert watched.seen == []


@formulations
def test_a_smaller_model_is_built_where_that_of_all_jobs_is_too_large(
    monkeypatch: pytest.MonkeyPatch, formulation: Any
) -> None:
    part, schedule = a_crowd()
    watched = spied(formulation)
    assert Neighbourhoods(watched, part, UNUSED, 0).next(schedule, AMPLE_S) is not None
    ((problem, _),) = watched.seen
    monkeypatch.setattr(moves, "PARTS", formulation.size(problem) // 7)
    assert Neighbourhoods(watched, part, UNUSED, 0).next(schedule, AMPLE_S) is not None
    every, some = (len(jobs) for jobs in freed(watched))
    assert every == 30
    assert 30 // 7 - 1 <= some <= 30 // 7


def test_besides_the_nodes_in_use_but_some_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"name": "a", "nodes": 9, "capacity": [4, 1]}]
    busy = [running(90 + k, 999, [1, 0], k) for k in range(6)]
    part = only(queued(*(job(k, 5 + k, 3, 4, 0) for k in range(12)), groups=nodes, running=busy))
    schedule = schedule_of(part)
    monkeypatch.setattr(moves, "OTHER_NODES", 2)
    watched = spied(CopiesModel)
    neighbourhoods = Neighbourhoods(watched, part, UNUSED, 0)
    for _ in range(20):
        assert neighbourhoods.next(schedule, AMPLE_S) is not None
    assert watched.seen[0][0].free.shape[1] == 9
    for problem, _ in watched.seen[1:]:
        jobs = np.flatnonzero(np.isin(part.position, problem.position)).tolist()
        used = {node for k in jobs for node in places(schedule)[k]}
        assert problem.free.shape[1] <= len(used) + 2
    monkeypatch.setattr(moves, "NODES", 2)
    assert Neighbourhoods(CopiesModel, part, UNUSED, 0).next(schedule, AMPLE_S) is None


# -------------------------------------------------------------------------- answers that are false


@formulations
@pytest.mark.parametrize("said", FALSE)
def test_of_a_false_answer_nothing_is_taken(formulation: Any, said: str) -> None:
    part, schedule = a_crowd(6)
    neighbourhoods = Neighbourhoods(formulation, part, UNUSED, 0)
    for _ in range(2):
        move = neighbourhoods.next(schedule, AMPLE_S)
        assert move is not None
        assert nothing(move.answer(FALSE[said](move)))


# ------------------------------------------------------------------------------------ on the pool


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[IntArray]:
    """The plan that each model of the pool has begun with."""
    seen: list[IntArray] = []

    class Watched(PooledModel):
        def __init__(self, problem: PooledProblem, plan: IntArray) -> None:
            seen.append(plan)
            super().__init__(problem, plan)

    monkeypatch.setattr(moves, "PooledModel", Watched)
    return seen


@many
@given(scheduled(starvation=True))
def test_a_model_of_the_pool_begins_with_the_schedule(case: tuple[Part, ListSchedule]) -> None:
    part, schedule = case
    move = Master(part, known(part, schedule), 0).next(schedule, AMPLE_S)
    assert move is not None
    found = move.answer(hinted(move))
    assert found.bound == 0
    assert found.schedule is not None
    assert sound(part, found.schedule)


@many
@given(scheduled(starvation=True))
def test_plans_of_the_pool_become_schedules_and_its_optimum_a_bound(
    case: tuple[Part, ListSchedule],
) -> None:
    part, schedule = case
    move = Master(part, known(part, schedule), 0).next(schedule, AMPLE_S)
    assert move is not None
    found = move.answer(solved(move))
    assert found.schedule is not None
    assert found.bound is not None
    assert sound(part, found.schedule)
    assert found.bound <= min(
        part.weights.sum(found.schedule.start_s), part.weights.sum(schedule.start_s)
    )


@many
@given(scheduled(starvation=True), st.sampled_from(["ewt_excess", "bounded_slowdown", "slowdown"]))
def test_a_bound_that_no_plan_of_the_pool_needs_to_keep_makes_none_false(
    case: tuple[Part, ListSchedule], objective: str
) -> None:
    """The pool may be cheaper than the nodes are known to be."""
    for part in parts(case[0].instance, objective):
        last_first = np.argsort(-schedule_of(part).start_s, kind="stable")
        schedule = part.generator.schedule(part.feasible_order(last_first))
        at_least = known(part, schedule)
        cost = part.weights.sum(schedule.start_s)
        at_least = replace(at_least, least=(at_least.least + cost) // 2)
        move = Master(part, at_least, 0).next(schedule, AMPLE_S)
        assert move is not None
        assert not move.answer(solved(move)).false


@many
@given(crowded())
def test_the_optimum_of_the_families_lies_between_those_of_the_pool_and_of_the_nodes(
    instance: Instance,
) -> None:
    for part in parts(instance, "slowdown"):
        schedule = schedule_of(part)
        move = Master(part, known(part, schedule), 0).next(schedule, AMPLE_S)
        assert move is not None
        found = move.answer(solved(move))
        assert found.bound is not None
        jobs = part.position.tolist()
        best = best_plan(instance, jobs, "slowdown", accepted(part))
        assert best is not None
        bound = part.cost.bound(found.bound, part.weights)
        assert bound <= float(best[0])
        assert bound >= float(best_value(instance, jobs, "slowdown")) * (1 - 1e-6)


def starts_of(part: Part, *order: int) -> IntArray:
    """A plan of the pool: the jobs in an order, as early as there is room."""
    given_ = families(part.instance, part.position)
    return pool_of(given_, part.jobs.expected_s).schedule(np.array(order))


def reply(move: Move, part: Part, start_s: IntArray, bound: float = 0.0) -> Response:
    """The answer that the jobs of a pool start then."""
    response = hinted(move, cp_model.FEASIBLE, bound)
    values = list(response.values)
    values[: len(part)] = (start_s - part.instance.now).tolist()
    return replace(response, values=tuple(values))


def test_it_goes_on_from_the_best_plan_of_the_pool_or_the_schedule_if_that_is_better(
    hints: list[IntArray],
) -> None:
    part, schedule = a_crowd(5)
    shortest_first = np.argsort(part.jobs.expected_s)
    best = starts_of(part, *shortest_first.tolist())
    better = starts_of(part, *np.roll(shortest_first, 1).tolist())
    master = Master(part, known(part), 0)
    sums = [part.weights.sum(start_s) for start_s in (schedule.start_s, better, best)]
    assert sums == sorted(set(sums), reverse=True)
    for start_s in (better, best):
        move = master.next(schedule, AMPLE_S)
        assert move is not None
        move.answer(reply(move, part, start_s))
    assert master.next(schedule, AMPLE_S) is not None
    assert [hint.tolist() for hint in hints] == [
        schedule.start_s.tolist(), better.tolist(), best.tolist()
    ]  # fmt: skip
    master = Master(part, known(part), 0)
    move = master.next(schedule, AMPLE_S)
    assert move is not None
    move.answer(reply(move, part, better))
    found = schedule_of(part, shortest_first.tolist())
    assert part.weights.sum(found.start_s) < part.weights.sum(better)
    assert master.next(found, AMPLE_S) is not None
    assert hints[-1].tolist() == found.start_s.tolist()


def test_each_time_it_takes_twice_the_share_up_to_all() -> None:
    part, schedule = a_crowd(8)
    master, shares = Master(part, known(part), 0), []
    for _ in range(4):
        move = master.next(schedule, AMPLE_S)
        assert move is not None
        shares.append(move.share)
    assert shares == [0.25, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    "said", [*(said for said in FALSE if said != "never"), "nothing_new", "proven"]
)
def test_it_ends_with_a_proof_with_nothing_new_and_with_a_false_answer(said: str) -> None:
    part, schedule = a_crowd(6)
    master = Master(part, known(part), 0)
    move = master.next(schedule, AMPLE_S)
    assert move is not None
    found = move.answer({**FALSE, "nothing_new": hinted, "proven": solved}[said](move))
    assert nothing(found) == (said in FALSE)
    assert master.next(schedule, AMPLE_S) is None


def test_a_pool_of_too_many_jobs_for_the_time_left_is_not_modelled() -> None:
    part, schedule = a_crowd(30)
    assert Master(part, known(part, schedule), 0).next(schedule, 1e-4) is None
    assert Master(part, known(part, schedule), 0).next(schedule, AMPLE_S) is not None


def test_the_locked_jobs_come_first_whatever_the_pool_says() -> None:
    """The pool would rather start the short job at once."""
    wide, short = job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0)
    part = only(queued(wide, short, running=[running(9, 9, [1, 0], 0)]), "slowdown", reserve=1)
    assert part.jobs.id[part.first_order[: part.locked]].tolist() == [1]
    master = Master(part, known(part), 0)
    move = master.next(schedule_of(part), AMPLE_S)
    assert move is not None
    found = move.answer(solved(move))
    assert found.schedule is not None
    starts = dict(zip(part.jobs.id.tolist(), found.schedule.start_s.tolist(), strict=True))
    assert starts[1] == 104


# --------------------------------------------------------------------------- one after the other


class Few:
    """So many moves, then none; counts the questions."""

    def __init__(self, moves_left: int) -> None:
        self.moves_left, self.asked = moves_left, 0

    def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
        self.asked += 1
        self.moves_left -= 1
        model = cp_model.CpModel()
        return Move(model, 0.1, lambda response: Found()) if self.moves_left >= 0 else None


def test_the_next_kind_of_moves_follows_when_the_one_before_has_no_more() -> None:
    part, schedule = a_crowd(3)
    kinds = [Few(2), Few(0), Few(1)]
    sequence = MovesInSequence(
        [lambda part, known, seed, kind=kind: kind for kind in kinds], part, UNUSED, 0
    )  # type: ignore[misc]
    found = [sequence.next(schedule, AMPLE_S) is not None for _ in range(5)]
    assert found == [True, True, True, False, False]
    assert [kind.asked for kind in kinds] == [3, 1, 2]


def test_of_no_kinds_there_is_no_move() -> None:
    part, schedule = a_crowd(3)
    assert MovesInSequence([], part, UNUSED, 0).next(schedule, AMPLE_S) is None
