"""The engine: what it answers is sound and says nothing false, whatever models and solvers do."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch import verify
from cpdispatch.decision import NO_START, Decision, Reason
from cpdispatch.errors import UsageError
from cpdispatch.heuristics import schedule_generation
from cpdispatch.heuristics.allocate import start_in_order
from cpdispatch.heuristics.limits import LIMITS
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.instance import Instance
from cpdispatch.instance.file import load
from cpdispatch.jobs import Workload
from cpdispatch.models import budget, part_search, relaxation
from cpdispatch.models import engine as module
from cpdispatch.models.budget import Budget
from cpdispatch.models.copies import CopiesModel
from cpdispatch.models.engine import Engine, warm_up
from cpdispatch.models.hyper import Hyper
from cpdispatch.models.moves import Move, Neighbourhoods
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.part_search import FORMULATIONS, MODELS, SEARCHED, SMALL
from cpdispatch.models.relaxation import EXHAUST_JOBS
from cpdispatch.models.search import DETERMINISTIC_PER_S
from cpdispatch.models.solver import GIVE_UP_AFTER, Response, Solver, shared
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from tests.models.cases import (
    EXAMPLES,
    RESERVED,
    WATTS,
    crowd,
    crowded,
    job,
    queued,
    running,
    solver,
)
from tests.models.exhaustive import best_plan, possible
from tests.models.test_part import (
    ALL,
    ONE_EACH,
    STARVING,
    alone,
    crowds,
    starts_now,
    wrong,
)
from tests.models.test_solver import FAULTS, SILENT, TOOLS
from tests.oracles.exhaustive_plans import WithPrecedence, optimum
from tests.strategies import release, systems, workloads

COPIES, COUNTS, BOXES = (f"pcp:model={name}" for name in FORMULATIONS)
names = st.sampled_from(sorted(MODELS))
objectives = st.sampled_from(sorted(OBJECTIVES))
every_limits = st.sampled_from(sorted(LIMITS))
exhausts = st.sampled_from([0, relaxation.EXHAUST_JOBS])
many = settings(max_examples=EXAMPLES)
fewer = settings(max_examples=max(1, EXAMPLES // 3))

LATE_S = 1.5
"""By how much an answer may come too late on a machine that is very busy."""


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    for name in MODELS:
        warm_up(name)


@contextmanager
def eager(exhaust_jobs: int = 0) -> Iterator[None]:
    """CP-SAT is asked almost at once; the pool is exhausted for parts of so many jobs at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaxation, "EXHAUST_JOBS", exhaust_jobs)
        patch.setattr(part_search, "SEARCHED", 0)
        patch.setattr(part_search, "LOCAL_SHARE", 0.02)
        patch.setattr(part_search, "HASTE_S", 0.0)
        yield


def engine(name: str, **settings: Any) -> Engine:
    """An engine that does not take long."""
    return Engine(name, **({"limit_s": 0.2, "patience": 0.2, "reserve": ALL} | settings))


def starts(decision: Decision) -> dict[int, int]:
    """Start by queue position, of the jobs that have one."""
    return {k: s for k, s in enumerate(decision.start_s.tolist()) if s != NO_START}


def check(instance: Instance, one: Engine, decision: Decision) -> None:
    """Nothing is wrong with the decision, and its certificate is what can be known of it."""
    told = decision.certificate
    assert wrong(instance, decision) == []
    assert (told.model, told.objective) == (one.model, one.objective)
    assert told.regime == ("live" if one.live else "deterministic")
    assert told.value == float(verify.objective_value(instance, one.objective, starts(decision)))
    assert {"select", "decompose", "answer"} <= set(told.phases_ms)
    assert "failed" not in told.phases_ms
    assert min(told.phases_ms.values()) >= 0
    assert told.bound is not None
    assert told.bound <= told.value
    closed = told.value - told.bound <= 1e-6 * max(1.0, told.value)
    assert (told.status == "optimal") == closed
    assert told.status in ("optimal", "feasible", "heuristic")


# -------------------------------------------------------------------------------------- the twin


@settings(max_examples=max(1, EXAMPLES // 6))  # the exhaustive twin takes a second and more
@given(crowded(), st.sampled_from(["slowdown", "bounded_slowdown"]))
def test_the_twin_with_precedence_is_the_exhaustive_twin_where_no_job_comes_after_another(
    instance: Instance, objective: str
) -> None:
    chosen = possible(instance)
    best = best_plan(instance, chosen, objective)
    tree = WithPrecedence(instance, "expected", chosen, objective, lambda plan: True)
    tree.search({}, Fraction(0), (0, -1))
    assert best is not None
    assert tree.best == best[0]


def test_the_twin_with_precedence_lets_jobs_wait_for_those_that_they_come_after() -> None:
    rows = [job(1, 5, 1, 1, 0), job(2, 3, 1, 1, 0, after=[1], think=4)]
    assert optimum(queued(*rows), engine(COPIES, objective="wait")) == 209


# -------------------------------------------------------------------------- decisions of all models


@settings(max_examples=4 * EXAMPLES)
@given(
    crowds(starvation=True, predictions=True), names, objectives,
    st.sampled_from([0, 1, 2, ALL]), st.sampled_from([1, 3, 1000]), st.booleans(), every_limits,
    st.booleans(), exhausts,
)  # fmt: skip
def test_decisions_and_their_certificates_pass_the_independent_checker(
    instance: Instance, name: str, objective: str, reserve: int, m: int, live: bool, limits: str,
    release: bool, exhaust_jobs: int,
) -> None:  # fmt: skip
    one = engine(
        name, objective=objective, reserve=reserve, m=m, live=live, limits=limits, release=release
    )
    with eager(exhaust_jobs):
        check(instance, one, one.dispatch(instance))


@pytest.mark.parametrize("name", sorted(MODELS))
@fewer
@given(
    crowds(most=3, max_nodes=3, starvation=True, predictions=True), objectives, every_limits,
    st.booleans(),
)  # fmt: skip
def test_no_value_is_below_the_optimum_and_no_bound_above_it(
    name: str, instance: Instance, objective: str, limits: str, release: bool
) -> None:
    one = engine(name, objective=objective, limits=limits, release=release)
    with eager():
        told = one.dispatch(instance).certificate
    best = optimum(instance, one)
    assert told.value is not None
    assert told.bound is not None
    assert told.value >= best * (1 - 1e-12)
    assert told.bound <= best * (1 + 1e-12)
    if told.status == "optimal":
        assert told.value == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_two_reservations_of_one_node_at_different_times_are_not_added_up() -> None:
    """The long job fits beside each of them, so that nothing is promised to it."""
    reserved = [
        {"start": start, "duration": 100, "nodes": [0], "capacity": [4, 0]} for start in (200, 400)
    ]
    instance = queued(
        job(1, 3600, 1, 5, 0), job(2, 60, 1, 6, 0), reservations=reserved,
        groups=[{"name": "a", "nodes": 1, "capacity": [10, 0]}],
    )  # fmt: skip
    one = engine(COPIES, reserve=1)
    decision = one.dispatch(instance)
    check(instance, one, decision)
    assert starts(decision) == {0: 160, 1: 100}
    assert decision.certificate.status == "optimal"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_by_default_each_model_minimises_slowdown(name: str) -> None:
    one = Engine(name)
    assert one.objective == "slowdown"
    assert one.name == name
    check(crowd(3), one, one.dispatch(crowd(3)))


PIECES: dict[str, Any] = {"groups": [{"name": "a", "nodes": 2, "capacity": [4, 1]}]}

PROVABLE = {
    "alike": [(6, 2, 2, 0), (10, 2, 2, 1), (12, 2, 2, 0), (9, 2, 2, 0)],
    "mixed": [(10, 1, 3, 0), (5, 1, 3, 0), (8, 1, 2, 0), (10, 1, 3, 0)],
    "wide": [(5, 2, 3, 0), (11, 1, 2, 0), (2, 2, 3, 0), (8, 1, 3, 0), (7, 1, 1, 0)],
    "narrow": [(9, 1, 2, 0), (11, 1, 2, 0), (9, 2, 3, 0), (2, 2, 3, 0)],
}
"""Duration, units, cores and GPUs of jobs; of them the search alone proves nothing."""


def provable(case: str) -> Instance:
    return queued(*(job(k, *row) for k, row in enumerate(PROVABLE[case])), **PIECES)


@pytest.mark.parametrize(
    ("name", "case"),
    [*((name, case) for name in (COPIES, COUNTS) for case in PROVABLE), (BOXES, "alike")],
)
def test_the_optimum_is_proven_where_the_search_alone_proves_nothing(name: str, case: str) -> None:
    instance = provable(case)
    with eager():
        bare = engine(name, objective="wait", cp=False).dispatch(instance).certificate
        one = engine(name, objective="wait", limit_s=8.0, patience=1.0)
        decision = one.dispatch(instance)
    check(instance, one, decision)
    postponing = engine(name, objective="wait", cp=False).dispatch(instance)
    check(instance, replace(one, cp=False), postponing)
    best = optimum(instance, one)
    assert bare.status == "heuristic"
    for told in (decision.certificate, postponing.certificate):
        assert told.status == "optimal"
        assert told.value == best
        assert told.bound == pytest.approx(best, rel=1e-6)
        assert not told.limit_hit


def test_boxes_in_one_piece_prove_nothing_of_jobs_of_different_heights() -> None:
    instance = provable("narrow")
    with eager(exhaust_jobs=EXHAUST_JOBS):
        bare = engine(BOXES, objective="wait", cp=False).dispatch(instance).certificate
        told = engine(BOXES, objective="wait", patience=1.0).dispatch(instance).certificate
    assert "solve" in told.phases_ms
    assert told.status == "feasible"
    assert told.bound == bare.bound


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_starts_as_early_as_it_could_alone_is_optimal_at_once(name: str) -> None:
    instance = queued(job(1, 5, 1, 4, 0), job(2, 9, 1, 2, 1), running=[running(9, 9, [1, 0], 1)])
    told = engine(name).dispatch(instance).certificate
    assert told.status == "optimal"
    assert not {"incumbent", "bound", "orders", "solve"} & set(told.phases_ms)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_empty_queue_gives_an_empty_decision(name: str) -> None:
    decision = engine(name).dispatch(queued())
    assert len(decision.start_s) == len(decision.reason) == len(decision.placements) == 0
    assert decision.certificate.status == "optimal"
    assert decision.certificate.value == decision.certificate.bound == 0


def test_unknown_models_objectives_and_limits_are_refused() -> None:
    with pytest.raises(UsageError, match="pcp9"):
        Engine("pcp9")
    with pytest.raises(UsageError, match="happiness"):
        Engine(COPIES, objective="happiness")
    with pytest.raises(UsageError, match="lowr"):
        Engine(COPIES, limits="lowr")


def test_jobs_that_start_are_placed_and_so_are_those_that_are_planned() -> None:
    instance = queued(job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0))
    decision = engine(COPIES, objective="wait").dispatch(instance)
    assert starts(decision) == {0: 105, 1: 100}
    assert decision.reason.tolist() == [Reason.WAITS, Reason.BACKFILLED]
    assert decision.placements.as_dict()[0] == {0: 1, 1: 1}


# ------------------------------------------------------------------------------------ predictions


UNHURRIED = {"limit_s": 10.0, "patience": 2e-3}
"""The clock cuts nothing short, and nothing takes long."""


def answered(decision: Decision) -> tuple[Any, ...]:
    """A decision and what is known of it, without the times that it took."""
    told = replace(decision.certificate, phases_ms={})
    return decision.start_s.tolist(), decision.placements.as_dict(), told


@fewer
@given(crowds(starvation=True), names)
def test_limits_are_all_the_same_to_jobs_that_last_as_long_as_they_ask_for(
    instance: Instance, name: str
) -> None:
    naive, *careful = (
        answered(engine(name, limits=each, **UNHURRIED).dispatch(instance)) for each in LIMITS
    )
    assert all(found == naive for found in careful)


@st.composite
def logs(draw: st.DrawFn) -> tuple[Workload, System]:
    system = draw(systems(max_nodes=4))
    return draw(workloads(system, max_jobs=12)), system


@fewer
@given(logs(), st.sampled_from(["minimal", "incremental"]), st.booleans())
def test_limits_change_no_schedule_when_the_requested_time_is_expected(
    log: tuple[Workload, System], correction: str, kill_at_limit: bool
) -> None:
    rules: dict[str, Any] = {"correction": correction, "kill_at_limit": kill_at_limit}
    naive, *careful = (
        simulate(*log, engine("hcp", limits=each, **UNHURRIED), **rules).jobs for each in LIMITS
    )
    assert all(found.equals(naive) for found in careful)


@pytest.mark.parametrize("time", [100, 101, 130])
def test_a_running_job_that_outlives_its_prediction_delays_others_only_by_naive_limits(
    time: int,
) -> None:
    held = running(9, 5, [4, 0], 0) | {"requested": 60}
    wide, narrow = job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0)
    instance = queued(wide, narrow, running=[held], time=time)
    begun = {
        limits: starts(engine("hcp", limits=limits, reserve=1).dispatch(instance))
        for limits in LIMITS
    }
    assert begun["expected"] == {0: time + 1, 1: time + 51}
    assert begun["upper"] == begun["requested"] == {0: 155, 1: time}


def test_a_job_is_put_before_the_reserved_one_by_what_it_will_probably_not_exceed() -> None:
    held = running(9, 15, [4, 0], 0)
    wide, narrow = job(1, 50, 2, 4, 0), job(2, 5, 1, 4, 0, upper=10, requested=11)
    begun = {
        limits: starts(
            engine("hcp", limits=limits, reserve=1).dispatch(queued(wide, narrow, running=[held]))
        )[1]
        for limits in LIMITS
    }
    assert begun == {"expected": 100, "upper": 100, "requested": 160}


def test_a_plan_costs_what_it_costs_by_the_expected_durations() -> None:
    rows = [job(1, 1, 2, 4, 0, upper=20, requested=90), job(2, 9, 2, 4, 0, upper=10, requested=90)]
    decision = engine(COPIES, objective="slowdown", limits="upper").dispatch(queued(*rows))
    told = decision.certificate
    assert starts(decision) == {0: 100, 1: 120}
    assert told.status == "optimal"
    assert told.value == pytest.approx(2 + 100 / 1 + 120 / 9)


# ------------------------------------------------------------------------------- the reserved jobs


@many
@given(crowds(), names, st.integers(1, 3))
def test_the_first_reserved_job_starts_when_it_would_if_no_job_started_now(
    instance: Instance, name: str, reserve: int
) -> None:
    one = engine(name, reserve=reserve, objective="slowdown")
    first = one.select(instance).first.tolist()
    with eager():
        decision = one.dispatch(instance)
    for position in first:
        assert decision.start_s[position] == alone(instance, position)


@many
@given(crowds(), names, st.sampled_from([1, 2, 1000]))
def test_without_reserved_jobs_only_those_that_can_start_now_are_planned(
    instance: Instance, name: str, m: int
) -> None:
    decision = engine(name, reserve=0, m=m).dispatch(instance)
    assert len(starts(decision)) <= m
    empty = replace(instance, down=np.empty(0, dtype=np.int64))
    for position in range(len(instance.queue)):
        if decision.start_s[position] == NO_START:
            never = position not in possible(empty)
            reason = Reason.NEVER_FITS if never else Reason.WAITS
            assert decision.reason[position] == reason
        else:
            assert starts_now(instance, position)


def kept_waiting(reserve: int) -> dict[int, int]:
    """Starts by id where a wide job waits for 109 and others would keep it waiting longer."""
    rows = [job(1, 50, 2, 4, 0), job(2, 9, 1, 4, 0), job(3, 10, 1, 4, 0, submit=90)]
    instance = queued(*rows, running=[running(9, 14, [1, 0], 0)])
    decision = engine(COPIES, reserve=reserve, objective="wait").dispatch(instance)
    ids = instance.queue.id.tolist()
    return {ids[position]: start for position, start in starts(decision).items()}


def test_a_job_that_does_not_fit_now_is_kept_waiting_unless_it_is_reserved() -> None:
    assert kept_waiting(0) == {2: 100, 3: 109}
    assert kept_waiting(1) == {1: 109, 2: 100, 3: 159}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_is_released_leaves_the_nodes_to_others_that_it_can_do_without(name: str) -> None:
    nodes = [{"name": "a", "nodes": 1, "capacity": [5, 0]},
             {"name": "b", "nodes": 1, "capacity": [4, 0]}]  # fmt: skip
    rows = [job(1, 10, 1, 4, 0, submit=0), job(2, 10, 1, 5, 0, submit=90)]
    instance = queued(
        *rows, running=[running(9, 15, [5, 0], 0), running(8, 15, [4, 0], 1)], groups=nodes
    )
    for released, second in ((False, 120), (True, 110)):
        one = engine(name, cp=False, release=released)
        decision = one.dispatch(instance)
        assert one.select(instance).first.tolist() == [0]
        check(instance, one, decision)
        assert starts(decision) == {0: 110, 1: second}


# ---------------------------------------------------------------- starved jobs, jobs in a sequence


@pytest.mark.parametrize("name", sorted(MODELS))
def test_no_starved_job_makes_room_for_others_where_one_is_late(name: str) -> None:
    rows = [job(1, 20, 1, 4, 0, submit=40), job(2, 20, 1, 4, 1, submit=50),
            job(3, 10, 1, 4, 0, submit=99)]  # fmt: skip
    instance = queued(*rows, **STARVING)
    one = engine(name, objective="slowdown", patience=1.0)
    with eager():
        decision = one.dispatch(instance)
    check(instance, one, decision)
    assert starts(decision) == {0: 100, 1: 120, 2: 103}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_starved_job_is_planned_within_its_bound_though_that_costs_more(name: str) -> None:
    rows = [job(1, 50, 2, 4, 0), *(job(k, 5, 2, 4, 0, submit=90) for k in range(2, 6))]
    starving = {"starvation": {"threshold": 50, "bound": 55}}
    for more, latest in (({}, 120), (starving, 105)):
        instance = queued(*rows, **more)
        one = engine(name, objective="wait", patience=1.0)
        with eager():
            decision = one.dispatch(instance)
        check(instance, one, decision)
        # The search over orders leaves it where it is; a model may use what its bound allows.
        assert decision.start_s[0] in (latest, 100 if more else latest)
        released = replace(one, cp=False, release=True).dispatch(instance)
        check(instance, replace(one, cp=False, release=True), released)
        assert released.start_s[0] == latest


@many
@given(crowds(), names, objectives)
def test_planned_starts_keep_to_the_sequence_and_to_the_time_to_think(
    instance: Instance, name: str, objective: str
) -> None:
    with eager():
        decision = engine(name, objective=objective).dispatch(instance)
    found, places = starts(decision), decision.placements.as_dict()
    plan = {position: (start, places[position]) for position, start in found.items()}
    for position, start in found.items():
        assert start >= release(instance, plan, position)


# ------------------------------------------------------------------------------------- the parts

APART = [
    [job(1, 9, 2, 4, 0), job(2, 5, 1, 4, 0), job(3, 7, 1, 4, 0)],
    [job(4, 8, 3, 0, 2), job(5, 5, 2, 0, 1), job(6, 3, 1, 0, 2)],
]
"""Jobs of two kinds of nodes."""


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parts_are_solved_apart_and_their_bounds_add_up(name: str) -> None:
    halves = [queued(*rows, **ONE_EACH) for rows in APART]
    both = queued(*APART[0], *APART[1], **ONE_EACH)
    one = engine(name, objective="wait", limit_s=5.0)
    apart, together = [one.dispatch(half) for half in halves], one.dispatch(both)
    check(both, one, together)
    assert [decision.certificate.status for decision in apart] == ["optimal"] * 2
    bounds = [decision.certificate.bound for decision in apart]
    assert together.certificate.bound == pytest.approx(sum(filter(None, bounds)))
    assert together.start_s.tolist() == [s for one_ in apart for s in one_.start_s.tolist()]


def parts_solved(monkeypatch: pytest.MonkeyPatch, instance: Instance) -> list[list[int]]:
    """Ids of the jobs that are solved together."""
    seen: list[list[int]] = []
    solve = Engine.solve

    def spy(self: Engine, part: Any, budget: Budget, share: float = 1.0) -> Any:
        seen.append(sorted(part.jobs.id.tolist()))
        return solve(self, part, budget, share)

    monkeypatch.setattr(Engine, "solve", spy)
    engine(COPIES).dispatch(instance)
    return sorted(seen)


def test_a_power_cap_or_a_sequence_joins_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*APART[0], *APART[1]]
    assert parts_solved(monkeypatch, queued(*rows, **ONE_EACH)) == [[1, 2, 3], [4, 5, 6]]
    power = WATTS | {"cap": 99}
    assert parts_solved(monkeypatch, queued(*rows, power=power, **ONE_EACH)) == [[1, 2, 3, 4, 5, 6]]
    rows[3] = rows[3] | {"after": [1]}
    assert parts_solved(monkeypatch, queued(*rows, **ONE_EACH)) == [[1, 2, 3, 4, 5, 6]]


def test_each_part_has_the_share_of_the_budget_that_its_jobs_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = []

    def spy(self: Engine, part: Any, budget: Budget, share: float = 1.0) -> Any:
        shares.append((len(part), share))
        return solve(self, part, budget, share)

    solve = Engine.solve
    monkeypatch.setattr(Engine, "solve", spy)
    engine(COPIES).dispatch(queued(*APART[0][:1], *APART[1], **ONE_EACH))
    assert shares == [(3, 0.75), (1, 1.0)]


# ------------------------------------------------------------------------ when the solver fails


class Scripted(Solver):
    """A solver without a process, which says what it is told to."""

    def __init__(self, say: Callable[[cp_model.CpModel], Response | None]) -> None:
        super().__init__(("no such program",))
        self.say, self.asked = say, 0
        self.model: cp_model.CpModel | None = None
        self.given: list[Any] = []

    def begin(
        self, model: cp_model.CpModel, parameters: Any, until: float, *, wait: bool = False
    ) -> bool:
        self.asked += 1
        self.model = model
        self.given.append(parameters)
        return True

    @property
    def answered(self) -> bool:
        return True

    def result(self, until: float) -> Response | None:
        assert self.model is not None
        return self.say(self.model)


def values(model: cp_model.CpModel) -> list[int]:
    """The hint, by variable."""
    hint = model.proto.solution_hint
    told = dict(zip(hint.vars, hint.values, strict=True))
    return [told.get(k, 0) for k in range(len(model.proto.variables))]


def cost(model: cp_model.CpModel, of: list[int]) -> float:
    objective = model.proto.objective
    terms = zip(objective.coeffs, objective.vars, strict=True)
    return float(sum(weight * of[k] for weight, k in terms) + objective.offset)


def said(
    model: cp_model.CpModel, status: Any, bound: float | None, of: list[int] | None = None
) -> Response:
    told = values(model) if of is None else of
    return Response(status, cost(model, values(model)), bound, tuple(told), 0.01, 0.001, 9)


def last_one_second_later(model: cp_model.CpModel) -> Response:
    """A plan that is worse than the hint, said to be the best."""
    told = values(model)
    jobs = sum(constraint.has_interval() for constraint in model.proto.constraints)
    coeffs = dict(zip(model.proto.objective.vars, model.proto.objective.coeffs, strict=True))
    starts_ = [k for k in range(min(jobs, len(told))) if k in coeffs]
    last = max(starts_, key=lambda k: told[k])
    bound = cost(model, told) + coeffs[last]
    told[last] += 1
    return said(model, cp_model.OPTIMAL, bound, told)


def fails(_: cp_model.CpModel) -> Response:
    raise RuntimeError("crash")


NOTHING = (None, None, (), 0.01, 0.001, 9)

SAYS: dict[str, Callable[[cp_model.CpModel], Response | None]] = {
    "nothing": lambda model: None,
    "unknown": lambda model: Response(cp_model.UNKNOWN, *NOTHING),
    "infeasible": lambda model: Response(cp_model.INFEASIBLE, *NOTHING),
    "invalid": lambda model: Response(cp_model.MODEL_INVALID, *NOTHING),
    "all_now": lambda model: said(model, cp_model.OPTIMAL, 0.0, [0] * len(values(model))),
    "the_past": lambda model: said(model, cp_model.FEASIBLE, 0.0, [-9] * len(values(model))),
    "never": lambda model: said(model, cp_model.FEASIBLE, 0.0, [10**15] * len(values(model))),
    "no_integer": lambda model: said(model, cp_model.FEASIBLE, 0.0, [10**30] * len(values(model))),
    "too_few": lambda model: said(model, cp_model.OPTIMAL, 0.0, values(model)[:1]),
    "none": lambda model: said(model, cp_model.OPTIMAL, 0.0, []),
    "bound_above": lambda model: said(model, cp_model.OPTIMAL, 2.0**50),
    "no_bound": lambda model: said(model, cp_model.FEASIBLE, None),
    "no_number": lambda model: said(model, cp_model.FEASIBLE, math.nan),
    "endless_bound": lambda model: said(model, cp_model.OPTIMAL, math.inf),
    "objective_below": lambda model: replace(
        said(model, cp_model.OPTIMAL, -1.0), objective=-(10.0**9)
    ),
    "worse_and_optimal": last_one_second_later,
    "raises": fails,
}
"""What a solver may say, by name."""

SILENTLY = ("nothing", "unknown", "infeasible", "invalid", "no_bound", "objective_below")
"""What is not known to be wrong, or is of no use."""


AMPLE: dict[str, Any] = {"limit_s": 4.0, "patience": 0.01}
"""The usual patience, and a limit that even a busy machine does not come to."""


def unsearched(name: str, instance: Instance) -> Decision:
    """The best of the first list schedules."""
    with eager():
        return engine(name, cp=False, patience=0.0).dispatch(instance)


@cache
def faultless(name: str, jobs: int) -> Decision:
    """What the search alone decides of a crowd."""
    with eager():
        return engine(name, cp=False, **AMPLE).dispatch(crowd(jobs))


@pytest.mark.parametrize("jobs", [8, 14], ids=["small", "large"])
@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("fault", SAYS)
def test_a_solver_that_fails_or_lies_costs_no_decision(name: str, fault: str, jobs: int) -> None:
    instance, solver = crowd(jobs), Scripted(SAYS[fault])
    one = engine(name, solver=solver, release=jobs <= SMALL, **AMPLE)
    with eager():
        decision = one.dispatch(instance)
    told, bare = decision.certificate, faultless(name, jobs).certificate
    assert solver.asked > 0
    assert bool(one.faults) == (fault not in SILENTLY)
    assert wrong(instance, decision) == []
    assert told.value is not None
    assert bare.value is not None
    assert told.value <= bare.value
    assert bare.status == "heuristic"
    assert told.status in ("heuristic", "feasible")
    assert told.bound == bare.bound


def test_a_solver_that_lies_makes_no_plan_optimal_that_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one that is certified is found to be worse than another."""
    instance = provable("mixed")
    use_clock(monkeypatch, clock(0.0))  # on a busy machine the time is over before it is asked
    with eager():
        lied = engine(COUNTS, objective="wait", solver=Scripted(last_one_second_later))
        told = lied.dispatch(instance).certificate
    assert told.status == "feasible"
    assert told.bound is not None
    assert told.bound <= optimum(instance, lied)


def solved(model: cp_model.CpModel) -> Response:
    """The best plan, without a proof."""
    one = solver()
    assert one.solve(model) == cp_model.OPTIMAL
    return said(model, cp_model.FEASIBLE, 0.0, list(one.response_proto.solution))


@pytest.mark.parametrize("name", [COPIES, COUNTS, BOXES])
def test_a_better_plan_is_not_given_up_for_a_worse_one(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def says(model: cp_model.CpModel) -> Response:
        return solved(model) if scripted.asked <= 3 else last_one_second_later(model)

    instance, scripted = provable("alike"), Scripted(says)
    use_clock(monkeypatch, clock(0.0))
    with eager():
        bare = engine(name, objective="wait", cp=False).dispatch(instance).certificate
    # The search does not end with the best plan.
    monkeypatch.setattr(part_search, "TOLERANCE", -1.0)
    with eager():
        one = engine(name, objective="wait", solver=scripted, patience=1.0)
        told = one.dispatch(instance).certificate
    assert scripted.asked > 3
    assert bare.value == 416
    assert told.value == 415


def test_a_search_has_one_worker_the_seed_and_limits_within_the_budget() -> None:
    scripted = Scripted(SAYS["unknown"])
    with eager():
        engine(COPIES, seed=11, solver=scripted, patience=1.0).dispatch(crowd(14))
    assert len(scripted.given) > 1
    for given_ in scripted.given:
        assert (given_.num_workers, given_.random_seed) == (1, 11)
        assert 0 < given_.max_deterministic_time < 0.2 * DETERMINISTIC_PER_S
        assert 0 < given_.max_time_in_seconds < 0.2


def test_a_search_without_an_answer_costs_what_it_could_have_taken() -> None:
    scripted = Scripted(SAYS["nothing"])
    with eager():
        engine(COPIES, limit_s=10.0, patience=0.02, solver=scripted).dispatch(crowd(14))
    assert scripted.asked == 1


@pytest.mark.parametrize("name", [COPIES, "hcp"])
@pytest.mark.parametrize("live", [False, True])
def test_a_solver_that_cannot_be_asked_costs_no_decision(
    monkeypatch: pytest.MonkeyPatch, name: str, live: bool
) -> None:
    solver = Scripted(fails)
    instance, bare = crowd(14), unsearched(name, crowd(14)).certificate
    for begin in (lambda *_: False, lambda model, *_: fails(model)):
        monkeypatch.setattr(solver, "begin", begin)
        with eager():
            decision = engine(name, solver=solver, live=live).dispatch(instance)
        assert wrong(instance, decision) == []
        assert decision.certificate.status == "heuristic"
        assert decision.certificate.bound == bare.bound
        assert decision.certificate.value is not None
        assert bare.value is not None
        assert decision.certificate.value <= bare.value


def test_what_went_wrong_in_or_around_a_model_is_told() -> None:
    with eager():
        failed = engine(COPIES, solver=Scripted(fails)).dispatch(crowd(14)).certificate
    assert "failed" in failed.phases_ms


def test_a_failure_is_not_taken_for_the_end_of_the_time() -> None:
    one = engine(COPIES, limit_s=10.0, patience=5e-3, solver=Scripted(fails))
    told = one.dispatch(crowd(30)).certificate
    assert "failed" in told.phases_ms
    assert not told.limit_hit


def test_a_solver_that_has_given_up_is_not_asked() -> None:
    solver = Scripted(SAYS["unknown"])
    solver._failures = GIVE_UP_AFTER
    with eager():
        decision = engine(COPIES, solver=solver).dispatch(crowd(14))
    assert solver.asked == 0
    assert decision.certificate.status == "heuristic"


def test_an_interrupt_while_the_solver_works_is_passed_on() -> None:
    def interrupt(_: cp_model.CpModel) -> Response:
        raise KeyboardInterrupt

    with eager(), pytest.raises(KeyboardInterrupt):
        engine(COPIES, solver=Scripted(interrupt)).dispatch(crowd(14))


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Callable[[str], Solver]]:
    """Makes a solver whose process is faulty."""
    made = []

    def make(fault: str) -> Solver:
        path = tmp_path / "worker.py"
        path.write_text(TOOLS + fault)
        made.append(Solver((sys.executable, str(path)), 20.0))
        return made[-1]

    yield make
    for one in made:
        one.close()


IN_A_PROCESS = {
    "never_ready": "time.sleep(600)",
    **{name: FAULTS[name] for name in (
        *SILENT, "exits_at_once", "exits_while_solving", "crashes", "prints_garbage",
        "too_few_values", "unknown_status", "closes_its_pipes",
    )},
    "infeasible": "ready()\nwhile True: say(header(problem(), status=3, count=0))",
}  # fmt: skip
"""What the solver's process may do, by name."""


@pytest.mark.parametrize("live", [False, True], ids=["deterministic", "live"])
@pytest.mark.parametrize("fault", IN_A_PROCESS)
def test_whatever_the_solvers_process_does_the_answer_is_there_in_time(
    faulty: Callable[[str], Solver], fault: str, live: bool
) -> None:
    solver, instance = faulty(IN_A_PROCESS[fault]), crowd(14)
    if fault not in ("never_ready", "exits_at_once"):
        assert solver.warm_up()
    one = engine(COPIES, solver=solver, live=live)
    bare = unsearched(COPIES, instance).certificate
    for _ in range(2):
        with eager():
            began = perf_counter()
            decision = one.dispatch(instance)
            lasted_s = perf_counter() - began
        assert lasted_s < one.limit_s + LATE_S
        assert wrong(instance, decision) == []
        assert decision.certificate.status == "heuristic"
        assert decision.certificate.bound == bare.bound
        assert decision.certificate.value is not None
        assert bare.value is not None
        assert decision.certificate.value <= bare.value


# ---------------------------------------------------------------------------- budgets that are over


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_budget_for_less_than_all_jobs_gives_the_beginning_of_a_plan_and_what_fits_beside_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(schedule_generation, "_BATCH", 2)
    instance = crowd(14)
    decision = engine(name, limit_s=1e-6).dispatch(instance)
    told = decision.certificate
    assert wrong(instance, decision) == []
    assert len(starts(decision)) == 2
    assert told.limit_hit
    assert told.bound is None
    assert told.status == "heuristic"
    assert told.value == float(verify.objective_value(instance, told.objective, starts(decision)))


def test_nodes_are_not_left_idle_where_there_is_no_time_for_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside the first job of the plan one of the others fits now."""
    monkeypatch.setattr(schedule_generation, "_BATCH", 1)
    waits = {"starvation": {"threshold": 10, "bound": 0}, "running": [running(900, 9, [2, 0], 0)]}
    one_node = [{"name": "a", "nodes": 1, "capacity": [8, 0]}]
    narrow = [job(k, 5, 1, 1, 0, submit=95) for k in range(1, 8)]
    instance = queued(job(0, 5, 1, 5, 0), *narrow, groups=one_node, **waits)
    decision = engine("hcp", limit_s=1e-6).dispatch(instance)
    assert wrong(instance, decision) == []
    assert starts(decision) == {0: 100, 1: 100}
    decision = engine("hcp", limit_s=1e-6).dispatch(queued(*narrow))
    assert starts(decision) == dict.fromkeys(range(7), 100)


@many
@given(crowds(starvation=True), names, st.integers(1, 3))
def test_the_beginning_of_a_plan_is_sound_and_nothing_is_said_of_its_quality(
    instance: Instance, name: str, batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_generation, "_BATCH", batch)
        one = engine(name, limit_s=1e-6)
        decision = one.dispatch(instance)
    assert wrong(instance, decision) == []
    planned = one.planned(instance)
    told, chosen = decision.certificate, one.select(planned)
    if len(starts(decision)) < len(chosen.position):
        assert told.limit_hit
        assert told.bound is None
        assert told.status == "heuristic"
        left = np.flatnonzero(decision.start_s == NO_START)
        assert not len(start_in_order(planned, left, beside=decision.placements))
    if len(one.parts(planned, chosen)) == 1:
        assert set(chosen.first[:batch].tolist()) <= set(starts(decision))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_budget_for_all_jobs_but_no_search_gives_the_first_plan(name: str) -> None:
    instance, one = crowd(14), engine(name, limit_s=1e-6)
    decision = one.dispatch(instance)
    check(instance, one, decision)
    assert decision.certificate.status == "heuristic"
    assert decision.certificate.limit_hit
    assert not {"orders", "solve"} & set(decision.certificate.phases_ms)


def test_a_budget_that_is_ample_is_not_hit() -> None:
    with eager():
        told = engine(COPIES, limit_s=10.0, patience=2e-3).dispatch(crowd(14)).certificate
    assert told.status != "optimal"
    assert "solve" in told.phases_ms
    assert not told.limit_hit


def test_without_patience_there_is_no_search_of_a_large_part() -> None:
    instance = crowd(SEARCHED + 1)
    told = engine(COPIES, limit_s=60.0, patience=0.0).dispatch(instance).certificate
    assert told.status == "heuristic"
    assert "solve" not in told.phases_ms


# ----------------------------------------------------------------------------------- determinism


def clock(step_s: float) -> Callable[[], float]:
    """A clock that is long behind the solver's, and only moves when it is looked at."""
    now_s = perf_counter() + 1000.0

    def look() -> float:
        nonlocal now_s
        now_s += step_s
        return now_s

    return look


class Unhurried(Solver):
    """The solver in its process, where counted work alone ends a search."""

    def begin(
        self, model: cp_model.CpModel, parameters: Any, until: float, *, wait: bool = False
    ) -> bool:
        parameters.max_time_in_seconds = 1000.0
        return super().begin(model, parameters, until, wait=wait)

    def result(self, until: float) -> Response | None:
        response = super().result(until)
        return None if response is None else replace(response, wall_s=0.0)


def use_clock(monkeypatch: pytest.MonkeyPatch, look: Callable[[], float]) -> None:
    """Have the engine and its budget look at this clock."""
    for each in (part_search, budget):
        monkeypatch.setattr(each, "perf_counter", look)


def keep_budgets(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """The budgets of the decisions to come."""
    budgets: list[Budget] = []

    class Kept(Budget):
        def __init__(self, limit_s: float, live: bool, work_s: float) -> None:
            super().__init__(limit_s, live, work_s)
            budgets.append(self)

    monkeypatch.setattr(module, "Budget", Kept)
    return budgets


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_same_seed_gives_the_same_answer_whatever_the_clock_says(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """But for one that says that the time is over."""
    budgets, decisions = keep_budgets(monkeypatch), []
    monkeypatch.setattr(part_search, "LOCAL_SHARE", 0.2)
    settings = {"limit_s": 0.6, "patience": 1.0, "seed": 3, "solver": Unhurried()}
    for step_s in (0.0, 1e-6, 1e-3):
        use_clock(monkeypatch, clock(step_s))
        decisions.append(engine(name, **settings).dispatch(crowd(18)))
    settings["solver"].close()
    first = decisions[0]
    assert len({round(each.spent_s, 9) for each in budgets}) == 1
    assert "solve" in first.certificate.phases_ms
    for other in decisions[1:]:
        assert other.start_s.tolist() == first.start_s.tolist()
        assert other.reason.tolist() == first.reason.tolist()
        assert other.placements.as_dict() == first.placements.as_dict()
        assert replace(other.certificate, phases_ms={}) == replace(first.certificate, phases_ms={})


def test_another_seed_searches_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    use_clock(monkeypatch, clock(0.0))
    starts_ = [
        engine(COPIES, limit_s=1.0, patience=0.02, cp=False, seed=seed).dispatch(crowd(40)).start_s
        for seed in (1, 1, 2)
    ]
    assert starts_[0].tolist() == starts_[1].tolist() != starts_[2].tolist()


def test_a_solve_that_creeps_is_ended_by_its_conflicts_and_charged_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decision of CTC: CP-SAT counts a hundredth of the work, and would take all of a second."""
    budgets, responses = keep_budgets(monkeypatch), []

    class Watched(Unhurried):
        def result(self, until: float) -> Response | None:
            response = super().result(until)
            assert response is not None
            responses.append(response)
            return response

    use_clock(monkeypatch, clock(0.0))
    instance = load(Path(__file__).with_name("creeping.json.gz"))
    one = Engine("hcp", solver=Watched())
    decision = one.dispatch(instance)
    one.solver.close()
    most = max(response.conflicts for response in responses)
    assert 1_000 < most < 3_000  # 6,657 where nothing ends it
    assert part_search.CONFLICT_S * most < budgets[0].spent_s < one.limit_s
    assert one.faults == {}
    assert wrong(instance, decision) == []


def test_when_the_time_on_the_clock_is_over_no_further_model_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late_s, built = 0.0, 0

    def says(_: cp_model.CpModel) -> Response:
        nonlocal late_s
        late_s = 99.0
        return Response(cp_model.UNKNOWN, *NOTHING)

    class Counted(Neighbourhoods):
        def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
            nonlocal built
            built += 1
            return super().next(schedule, left_s)

    began_s = perf_counter()
    use_clock(monkeypatch, lambda: began_s + late_s)
    monkeypatch.setitem(MODELS, COPIES, partial(Counted, CopiesModel))
    with eager():
        one = engine(COPIES, patience=1.0, solver=Scripted(says))
        told = one.dispatch(crowd(14)).certificate
    assert built == 1
    assert told.limit_hit


@pytest.mark.parametrize("name", sorted(MODELS))
def test_in_the_live_regime_the_clock_decides(name: str) -> None:
    instance, one = crowd(18), engine(name, live=True)
    with eager():
        decision = one.dispatch(instance)
    check(instance, one, decision)
    assert "solve" in decision.certificate.phases_ms


# ------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("name", sorted(MODELS))
def test_an_engine_survives_a_checkpoint(name: str) -> None:
    one = engine(name, limit_s=60.0, patience=1e-4, seed=7, live=name == COPIES)
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.solver is shared()
    first, second = one.dispatch(crowd(6)), again.dispatch(crowd(6))
    assert first.start_s.tolist() == second.start_s.tolist()
    assert replace(first.certificate, phases_ms={}) == replace(second.certificate, phases_ms={})


def test_what_is_left_of_any_solver_is_the_shared_one() -> None:
    assert pickle.loads(pickle.dumps(Solver(("no such program",)))) is shared()


def test_hyper_survives_a_checkpoint_with_what_it_has_learned() -> None:
    one = Hyper(limit_s=0.1, settings={"reserve": ALL})
    for jobs in (14, 15, 16):
        one.dispatch(crowd(jobs))
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.record.kinds == one.record.kinds
    check_sound = again.dispatch(crowd(14))
    assert wrong(crowd(14), check_sound) == []


def test_reservations_nodes_out_of_service_and_a_power_cap_are_kept() -> None:
    rows = [job(1, 9, 1, 4, 0), job(2, 2, 1, 1, 0), job(3, 20, 1, 2, 1), job(4, 6, 1, 4, 0)]
    for more in ({"reservations": RESERVED}, {"down": [1]}, {"power": WATTS}):
        instance = queued(*rows, **more)
        one = engine(COUNTS, objective="wait", patience=1.0)
        with eager():
            decision = one.dispatch(instance)
        check(instance, one, decision)
        assert decision.certificate.value == pytest.approx(optimum(instance, one))
