"""The anytime engine around every model: an answer at once, a better one while there is time.

select -> decompose -> incumbent (list schedules) -> bound -> [gap closed? answer] -> schedule or
postpone, all jobs of a small part -> CP-SAT on them -> local search over orders, and CP-SAT on what
it can win -> verify -> answer

Expected durations say which jobs are planned, and what a plan costs. Planned durations say how long
a plan keeps nodes for a job, see `Engine.limits`.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from ortools.sat.python import cp_model_helper as cp_sat

from cpdispatch import toys
from cpdispatch.arrays import IntArray, sealed
from cpdispatch.decision import NO_START, Decision, Placements
from cpdispatch.errors import unknown
from cpdispatch.heuristics import limits, test_runs
from cpdispatch.heuristics.order_search import OrderSearch
from cpdispatch.heuristics.postpone_search import PostponeSearch
from cpdispatch.heuristics.priority_rule import reasons, waiting_priority
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.heuristics.schedule_input import held_in
from cpdispatch.instance import NO_LATEST_S, Instance, with_own_limits
from cpdispatch.models import objective as objectives
from cpdispatch.models.boxes import BoxesModel
from cpdispatch.models.budget import Budget, no_collection
from cpdispatch.models.certificate import TOLERANCE, Result, certify
from cpdispatch.models.copies import CopiesModel
from cpdispatch.models.counts import CountsModel
from cpdispatch.models.moves import (
    MakeMoves,
    Master,
    Move,
    Moves,
    MovesInSequence,
    Neighbourhoods,
    Whole,
)
from cpdispatch.models.node_problem import NodePlan
from cpdispatch.models.part import Part, Selection, after_planned, held_by, parts_of, select
from cpdispatch.models.relaxation import relax
from cpdispatch.models.search import CLOCK_ENDED, DETERMINISTIC_PER_S, Formulation, configure
from cpdispatch.models.solver import Response, Solver, shared
from cpdispatch.models.warming import compile_kernels

STEPS_PER_S = 2_500_000
"""Windows of the local search that a second is sure to hold (4 to 8 million were measured)."""

CHUNK = 5_000
"""Windows between two looks at the clock: some milliseconds."""


SAFETY = 1.5
"""How much longer than the first one a pass over all jobs may take."""

IDLE = 0.25
"""Orders without a better one, times the jobs' square, after which the local search is kicked."""

LOCAL_SHARE = 0.6
"""Share of the remaining budget that the local search may take before CP-SAT is asked."""

KICK = 6
"""Moves of a kick."""

SEARCHED = 24
"""Jobs up to which a part is searched by scheduling or postponing them."""

SEARCH_S, SEARCH_SHARE = 0.05, 0.25
"""Limits of that search: seconds, unless there is patience, and a share of the remaining budget."""

SMALL = 12
"""Jobs up to which CP-SAT plans them all on the nodes."""

WHOLE_S, WHOLE_SHARE = 0.1, 0.5
"""Limits of that plan: seconds, unless there is patience, and a share of the remaining budget."""

HASTE_S = 0.03
"""Seconds that CP-SAT may take where there is no patience."""

BUILD_S = 0.005
"""Price of building a model."""

TRANSFER_S = 2e-5
"""For each variable of a model, the time that it takes to the solver and back."""

GRACE_S = 0.01
"""Between the solver's own limit and the time at which it is given up."""

_NOBODY = sealed(np.empty(0, dtype=np.int64))

_log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------ the dispatcher


@dataclass(frozen=True, slots=True)
class Engine:
    """Answers an instance with the best plan that a model and the budget allow.

    Parameters
    ----------
    model : str
        A name of `MODELS`: what CP-SAT is asked to do.
    limit_s : float
        Budget of a decision, everything included, seconds.
    m : int
        The most jobs that are planned of those that fit now.
    reserve : int
        The most jobs that are planned of those that do not fit now; nothing delays the first one.
    patience : float
        The share of the budget after which the local search or CP-SAT ends if it has found nothing
        better; with 1 it never ends for this reason.
    live : bool
        Whether the clock ends the search, which then uses all cores. Without this it is
        deterministic: the same answer every time, unless a machine is very slow.
    cp : bool
        Whether CP-SAT is asked; else there are only list schedules and the searches over them.
    release : bool
        Whether the first reserved job keeps only its start, and leaves its nodes to other jobs that
        need them. Without this it chooses its nodes first, unless a job is starved. Starved jobs
        may start at any time that their bounds allow, in both cases.
    objective : str
        What to minimise. The order in which jobs are selected goes with it: wait by what is
        expected in the queue, or slowdown; the site's priority first where it is a weight.
    limits : str
        The planned durations, see `cpdispatch.heuristics.limits.planned`.
    test_s : int
        How long a test run lasts; 0 for none. Tests are made beside a plan, see
        `cpdispatch.heuristics.test_runs`.
    name : str
        Name in tables; the model's when empty.
    faults : Counter of str
        How often something went wrong in the solver's process or in a model, by what it was; and
        how many decisions of the deterministic regime were ended by the clock.

    Notes
    -----
    The value of a certificate is the objective of the plan with the expected durations. Its bound
    holds for all plans of the selected jobs that are feasible with the planned durations, that keep
    the start of the reserved job, and that keep the bounds of starved jobs.

    `answers`, `select`, `parts` and `decision` take the instance that `planned` makes.
    """

    model: str
    limit_s: float = 1.0
    m: int = 1000
    reserve: int = 1
    patience: float = 0.01
    live: bool = False
    cp: bool = True
    release: bool = True
    seed: int = 0
    objective: str = "slowdown"
    limits: str = "upper"
    test_s: int = 0
    name: str = ""
    solver: Solver = field(default_factory=shared, repr=False, compare=False)
    faults: Counter[str] = field(default_factory=Counter, repr=False, compare=False)

    keeps_starvation_bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        object.__setattr__(self, "name", self.name or self.model)
        objectives.find(self.objective)
        limits.find(self.limits)

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile all that decisions call, or load it from the cache; start the solver."""
        warm_up(self.model)
        if self.test_s:
            warm_up_tests(self.model)

    @no_collection()
    @with_own_limits
    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where; plan the others that were selected."""
        budget = Budget(self.limit_s, self.live)
        instance = self.planned(instance)
        return self.decision(instance, self.answers(instance, budget), budget)

    def planned(self, instance: Instance) -> Instance:
        """The instance with the planned durations.

        While the starvation bound of a job has passed they are the requested times, so that what is
        planned around it delays it by no error of a prediction.
        """
        return limits.planned(instance, "requested" if instance.overdue().any() else self.limits)

    def answers(self, instance: Instance, budget: Budget) -> list[Answer]:
        """The plan of each independent part that a budget allows."""
        selection = self.select(instance)
        jobs_left = len(selection.position)
        budget.lap("select")
        answers: list[Answer] = []
        for tier in selection.by_tier(instance):
            if not all(answer.complete for answer in answers):
                break  # there is no time for the lower tiers
            parts = self.parts(instance, tier, answers)
            budget.lap("decompose")
            for part in parts:
                answers.append(self.solve(part, budget, len(part) / jobs_left))
                jobs_left -= len(part)
        return answers

    def select(self, instance: Instance) -> Selection:
        """The jobs that are planned."""
        if self.objective in objectives.BY_EXPECTED_WAIT:
            order = waiting_priority(instance)
        else:
            order = slowdown_priority(instance, self.objective in objectives.BY_PRIORITY)
        return select(test_runs.clearing(instance), order, self.m, self.reserve)

    def parts(
        self, instance: Instance, selection: Selection, planned: Sequence[Answer] = ()
    ) -> list[Part]:
        """The parts that are planned by themselves, at what the instance itself says they cost.

        Plans that were made for other jobs, ``planned``, are not changed.
        """
        cost = objectives.of(self.objective, instance.queue)
        instance = test_runs.clearing(instance)
        held = held_in(instance)
        for answer in planned:
            held = held.and_(held_by(answer.part, answer.schedule, _NOBODY))
            instance = after_planned(instance, answer.part, answer.schedule.start_s)
        return parts_of(instance, selection, cost, held, around=bool(planned))

    def solve(self, part: Part, budget: Budget, share: float = 1.0) -> Answer:
        """The best plan of a part that can be found with a share of the remaining budget."""
        run = _PartSearch(self, part, budget, budget.left_s * (1 - share))
        return run.answer()

    def decision(self, instance: Instance, answers: list[Answer], budget: Budget) -> Decision:
        """The decision from the plans of all parts, with stopped jobs that go on and test runs.

        The certificate bounds only what was planned. It has no bound if the decision has tests, or
        if jobs were planned around jobs of higher tiers.
        """
        start_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
        placed: dict[int, dict[int, int]] = {}
        for answer in answers:
            start_s[answer.part.position] = answer.schedule.start_s
            placed |= answer.places()
        left = test_runs.WAYS["left"]
        tests = test_runs.candidates(instance, self.test_s, instance.starved(), left)
        start_s, placements, bound_s = test_runs.completed(
            instance, start_s, Placements.of(placed), tests, self.test_s, best_fit=True
        )
        cleared = instance.stopped is not None and instance.restart_cost_s > 0
        by_tier = np.argsort(-instance.queue.tier, kind="stable")
        reason = reasons(instance, by_tier, start_s)
        value = objectives.of(self.objective, instance.queue).value(start_s)
        if not budget.live and any(answer.clock_ended for answer in answers):
            self.faults[CLOCK_ENDED] += 1
        result = Result(
            "feasible" if any(answer.by_model for answer in answers) else "heuristic",
            sum((answer.bound for answer in answers), 0.0),
            any(answer.limit_hit for answer in answers),
        )
        certificate = certify(
            self.model, self.objective, value, result, budget,
            whole=all(answer.complete and not answer.part.around for answer in answers)
            and bound_s is None and not cleared,
            regime="live" if self.live else "deterministic",
        )  # fmt: skip
        return Decision(start_s, reason, placements, certificate, bound_s)


def slowdown_priority(instance: Instance, site_first: bool = False) -> IntArray:
    """Queue positions by tier, then slowdown (wait + d) / d, highest first, then by submission.

    With ``site_first`` the site's priority comes right after the tier.
    """
    queue = instance.queue
    slowdown = (instance.now - queue.submit_s) / queue.expected_s
    return np.lexsort((-slowdown, -queue.priority * int(site_first), -queue.tier))


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A plan of a part, with its bound and how it was found.

    Attributes
    ----------
    schedule : ListSchedule
        The jobs that there was no time to place have `NO_START`.
    bound : float
        Lower bound of the objective.
    by_model : bool
        Whether the model found it or something better was looked for with it.
    limit_hit : bool
        Whether the search ended because the budget was spent or the time was over.
    first : float
        Objective of the first plan.
    worked : bool
        Whether the local search or CP-SAT ran after the first plans.
    clock_ended : bool
        Whether the clock ended it, so that a faster machine could have another answer.
    """

    part: Part
    schedule: ListSchedule
    bound: float
    by_model: bool = False
    limit_hit: bool = False
    first: float = 0.0
    worked: bool = False
    clock_ended: bool = False

    @property
    def last(self) -> float:
        """Objective of the plan."""
        return self.part.cost.value(self.schedule.start_s)

    @property
    def complete(self) -> bool:
        """Whether all jobs are planned."""
        return bool((self.schedule.start_s != NO_START).all())

    def places(self) -> dict[int, dict[int, int]]:
        """Nodes and units of each planned job, by its position in the queue."""
        schedule = self.schedule
        node, units, offset = schedule.node.tolist(), schedule.units.tolist(), schedule.offset
        return {
            int(position): dict(zip(node[low:high], units[low:high], strict=True))
            for position, low, high, start_s in zip(
                self.part.position, offset[:-1].tolist(), offset[1:].tolist(),
                schedule.start_s.tolist(), strict=True,
            )
            if start_s != NO_START
        }  # fmt: skip


# ------------------------------------------------------------------------------ one part


class _PartSearch:
    """The phases of the engine on one part.

    Parameters
    ----------
    kept_s : float
        What must be left of the budget for the other parts.
    """

    def __init__(self, engine: Engine, part: Part, budget: Budget, kept_s: float) -> None:
        self.engine, self.part, self.budget, self.kept_s = engine, part, budget, kept_s
        self.by_model = False
        self.limit_hit = False
        self.clock_ended = False
        self.worked = False

    @property
    def left_s(self) -> float:
        """What this part may still use, seconds."""
        return self.budget.left_s - self.kept_s

    def answer(self) -> Answer:
        """Go through the phases until there is nothing to gain, or no time."""
        part, budget = self.part, self.budget
        orders = self._rules()
        began = perf_counter()
        first = part.generator.schedule(orders[0], lambda: budget.over)
        self.pass_s = perf_counter() - began
        budget.lap("first")
        if (first.start_s == NO_START).any():
            return Answer(part, first, 0.0, limit_hit=True, clock_ended=True)
        self.schedule, self.sum = first, part.weights.sum(first.start_s)
        self.bound = least = self._least()
        if self.sum > least:
            order = self._incumbent(orders)
            budget.lap("incumbent")
            self._relax()
            budget.lap("bound")
            if not self._closed():
                self.limit_hit = self._clock_is_short(6)
                if not self.limit_hit:
                    self._search(order)
        bound = part.cost.bound(self.bound, part.weights)
        return Answer(
            part, self.schedule, bound, self.by_model, self.limit_hit or self.clock_ended,
            part.cost.value(first.start_s), self.worked, self.clock_ended,
        )  # fmt: skip

    def _clock_is_short(self, passes: float) -> bool:
        """Whether the time left is too short for placing all jobs ``passes`` times.

        In the deterministic regime the parts do not share the clock: only its limit counts.
        """
        budget = self.budget
        left_s = budget.until - perf_counter() - (self.kept_s if budget.live else 0.0)
        short = left_s < SAFETY * passes * self.pass_s
        self.clock_ended = self.clock_ended or (short and not budget.live)
        return short

    # ------------------------------------------------------------------- incumbent and bounds

    def _rules(self) -> list[IntArray]:
        """Orders of the jobs by rules that do well, the one that does best most often first."""
        part = self.part
        total = np.maximum(part.instance.system.total, 1)
        share = (part.jobs.units[:, None] * part.jobs.request / total).max(axis=1)
        area = share * part.jobs.planned_s
        per_s = np.maximum(part.weights.per_s, 1)
        keys = (area / per_s, part.jobs.planned_s / 1.0, 1 / per_s, np.arange(len(part)) / 1.0)
        orders: dict[bytes, IntArray] = {}
        for key in keys:
            order = part.feasible_order(np.argsort(key, kind="stable"))
            orders.setdefault(order.tobytes(), order)
        return list(orders.values())

    def _least(self) -> int:
        """What the jobs cost at least, each at its earliest start."""
        self.least = self.part.weights.each(self.part.earliest_s)
        return int(self.least.sum())

    def _incumbent(self, orders: list[IntArray]) -> IntArray:
        """Take the best of the rules' plans; returns its order."""
        best = orders[0]
        for order in orders[1:]:
            if self._clock_is_short(2):
                break
            schedule = self.part.generator.schedule(order)
            if self.part.weights.sum(schedule.start_s) < self.sum:
                self._take(schedule)
                best = order
        return best

    def _relax(self) -> None:
        """Lower bounds of all plans, and what else is known of those that are better."""
        self.known = relax(self.part, self.schedule.start_s)
        self.least = self.part.weights.each(self.known.earliest_s)
        self.bound = max(self.bound, self.known.least)

    def _closed(self) -> bool:
        return self.sum - self.bound <= TOLERANCE * self.sum

    # ---------------------------------------------------------------------------- the search

    def _search(self, order: IntArray) -> None:
        """The phases of the search, each with a budget of its own.

        All jobs of a small part are scheduled or postponed, then planned by CP-SAT; local search
        over orders; then CP-SAT and local search, one after the other.
        """
        engine, part = self.engine, self.part
        self.worked = True
        starved = bool((part.instance.latest_s()[part.position] < NO_LATEST_S).any())
        fixed = 0 if (engine.release or starved) and not part.settled.any() else part.locked
        before, patience_s = self.sum, engine.patience * engine.limit_s
        patient = patience_s > HASTE_S
        if not fixed and len(part) <= SEARCHED:
            seconds = SEARCH_SHARE * self.left_s
            self._postpone(seconds if patient else min(SEARCH_S, seconds))
            if self._closed():
                return
        self.orders = OrderSearch(
            part.generator, order, self.least, fixed, engine.seed, part.latest_s
        )
        if self.sum < before:
            self.orders.restart(self._order_of(self.schedule))
        if engine.cp and not fixed and len(part) <= SMALL:
            seconds = WHOLE_SHARE * self.left_s
            self._ask(WHOLE[engine.model], seconds if patient else min(WHOLE_S, seconds))
        if not self._closed():
            self._reorder(self.left_s * (LOCAL_SHARE if engine.cp else 1.0))
        if engine.cp and not self._closed() and (patient or self.sum < before):
            self._ask(MODELS[engine.model], self.left_s if patient else HASTE_S)
        over = self.left_s <= 3 * GRACE_S or (self.budget.live and self._clock_is_short(2))
        self.limit_hit = over and not self._closed()

    def _postpone(self, seconds: float) -> None:
        """Schedule or postpone all jobs, for so long at most."""
        part, known = self.part, self.known
        search = PostponeSearch(
            part.generator, self.sum, self.bound, np.minimum(part.latest_s, known.latest_s),
            part.alike,
        )  # fmt: skip
        until_s = self.left_s - seconds
        while self.left_s > until_s and not search.exhausted and not self._clock_is_short(2):
            used = CHUNK - search.run(CHUNK)
            self.budget.spend(used / STEPS_PER_S)
        if (best := search.best) is not None:
            self._take(best)
        if search.proven:
            self.bound = self.sum
        self.budget.lap("postpone")

    def _reorder(self, seconds: float) -> None:
        """Search through orders until that brings nothing more, or for so long."""
        until_s, idle = self.left_s - seconds, 0
        share = self.engine.patience
        patience = share * self.engine.limit_s * STEPS_PER_S if share < 1 else float("inf")
        while self.left_s > until_s and idle < patience and not self._clock_is_short(2):
            before = self.orders.best_cost
            used = self._chunk()
            idle = 0 if self.orders.best_cost < before else idle + used
            if self.orders.idle > IDLE * len(self.part) ** 2:
                self.orders.kick(KICK)
        self._take_orders()
        self.budget.lap("orders")

    def _chunk(self) -> int:
        """Search through orders for a moment; returns the steps that were used."""
        used = CHUNK - self.orders.run(CHUNK)
        self.budget.spend(used / STEPS_PER_S)
        return used

    def _take_orders(self) -> None:
        """Take the plan of the best order if it is better than the plan so far."""
        if self.orders.best_cost < self.sum:
            self._take(self.part.generator.schedule(self.orders.best))

    def _take(self, schedule: ListSchedule) -> None:
        self.schedule, self.sum = schedule, self.part.weights.sum(schedule.start_s)

    def _ask(self, make: MakeMoves, seconds: float) -> None:
        """Let CP-SAT make moves for so long at most."""
        kept_s = self.kept_s
        self.kept_s += max(self.left_s - seconds, 0.0)
        try:
            known = replace(self.known, least=self.bound)
            self._moves(make(self.part, known, self.engine.seed))
        except Exception as error:
            # Whatever goes wrong in or around a model must not cost the decision.
            self.engine.faults[f"a model raised {type(error).__name__}"] += 1
            _log.warning("%s: a model raised an error", self.engine.name, exc_info=True)
            self.budget.lap("failed")
        self.kept_s = kept_s

    def _moves(self, moves: Moves) -> None:
        """Make moves until they bring nothing more."""
        engine = self.engine
        idle_s = 0.0
        while (
            not self._closed()
            and self.left_s > 2 * GRACE_S
            and idle_s < max(engine.patience * engine.limit_s, 2 * GRACE_S)
            and not engine.solver.given_up
            and not self._clock_is_short(2)
        ):
            before_s, before = self.left_s, self.sum
            move = moves.next(self.schedule, self.left_s)
            self.budget.lap("build")
            if move is None:
                return
            self.budget.spend(BUILD_S)
            self._solve(move)
            idle_s = 0.0 if self.sum < before else idle_s + before_s - self.left_s

    def _solve(self, move: Move) -> None:
        """Make a move; in the live regime the local search goes on beside it."""
        engine, budget = self.engine, self.budget
        seconds = min(max(move.share * self.left_s, GRACE_S), self.left_s - GRACE_S)
        until = min(perf_counter() + seconds if budget.live else budget.until, budget.until)
        transfer_s = GRACE_S + TRANSFER_S * len(move.model.proto.variables)
        clock_s = until - perf_counter() - transfer_s
        if clock_s < GRACE_S:
            self.clock_ended = self.clock_ended or not budget.live
            budget.spend(seconds)
            return
        given = cp_sat.SatParameters()
        configure(given, engine.seed, seconds * DETERMINISTIC_PER_S, clock_s)
        before = Counter(engine.solver.faults)
        response = self._response(move, given, until)
        engine.faults.update(f"CP-SAT: {fault}" for fault in engine.solver.faults - before)
        budget.lap("solve")
        if response is None:
            budget.spend(seconds)
            return
        if not budget.live and response.wall_s >= clock_s:
            self.clock_ended = True
        budget.spend(response.deterministic_s / DETERMINISTIC_PER_S)
        found = move.answer(response)
        self._take_orders()
        if found.schedule is not None:
            self.by_model = True
            if self.part.weights.sum(found.schedule.start_s) < self.sum:
                self._take(found.schedule)
                self._go_on_from(found.schedule)
        # A bound that lies above a plan is false.
        false = found.false or (found.bound is not None and found.bound > self.sum)
        if false:
            engine.faults["CP-SAT: it stated something that is not so"] += 1
        elif found.bound is not None:
            self.bound = max(self.bound, found.bound)
        budget.lap("polish")

    def _response(self, move: Move, given: cp_sat.SatParameters, until: float) -> Response | None:
        """What CP-SAT answers; in the live regime the local search goes on meanwhile."""
        solver = self.engine.solver
        if not self.budget.live:
            return solver.insist(move.model, given, until)
        if not solver.begin(move.model, given, until):
            return None
        while not (solver.answered or perf_counter() >= until or self._clock_is_short(2)):
            self._chunk()
        return solver.result(until)

    def _go_on_from(self, schedule: ListSchedule) -> None:
        """Search on through the orders near that of a schedule."""
        self.orders.restart(self._order_of(schedule))
        self._reorder(0.1 * self.left_s)

    def _order_of(self, schedule: ListSchedule) -> IntArray:
        """The jobs in the order of their starts."""
        return self.part.feasible_order(np.argsort(schedule.start_s, kind="stable"))


# ------------------------------------------------------------------------------ putting it together

FORMULATIONS: Mapping[str, type[Formulation[NodePlan]]] = {
    "copies": CopiesModel, "counts": CountsModel, "boxes": BoxesModel
}  # fmt: skip
"""The formulations on the nodes by name."""

MODELS: Mapping[str, MakeMoves] = {
    "hcp": Master,
    **{
        f"pcp:model={name}": partial(MovesInSequence, (Master, partial(Neighbourhoods, model)))
        for name, model in FORMULATIONS.items()
    },
}
"""What CP-SAT is asked to do, by the dispatcher that asks it."""

WHOLE: Mapping[str, MakeMoves] = {
    "hcp": partial(Whole, CopiesModel),
    **{f"pcp:model={name}": partial(Whole, model) for name, model in FORMULATIONS.items()},
}
"""How it plans all jobs of a small part, by the same names."""


def make_engine(model: str, **settings: Any) -> Engine:
    """The engine around a model of `MODELS`; for the settings see `Engine`.

    Raises
    ------
    UsageError
        When there is no such model or objective.
    """
    return Engine(model, **settings)


@dataclass(frozen=True, slots=True)
class _Throwaway:
    """An engine that does little work, however long compiling takes."""

    model: str
    test_s: int = 0

    def dispatch(self, instance: Instance) -> Decision:
        """Decide, and take a step through all parts of the search."""
        engine = Engine(
            self.model, limit_s=0.2, reserve=sys.maxsize, patience=0.2, test_s=self.test_s
        )
        budget = Budget(3600.0, live=False, work_s=engine.limit_s)
        instance = engine.planned(instance)
        answers = engine.answers(instance, budget)
        for part in (answer.part for answer in answers):
            orders = OrderSearch(part.generator, part.first_order, part.weights.per_s, part.locked)
            orders.run(1)
            orders.kick(KICK)
        return engine.decision(instance, answers, budget)


@functools.cache
def warm_up(model: str) -> None:
    """Load the kernels of a model and start the solver: no decision's budget pays for it."""
    shared().warm_up()
    compile_kernels()
    toys.play(partial(_Throwaway, model), toys.every_kind())


@functools.cache
def warm_up_tests(model: str) -> None:
    """Load the kernels that test runs take more than that."""
    toys.play(partial(_Throwaway, model, test_s=20), toys.restartable())
