"""The engine's search for the best plan of one part, phase by phase."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model_helper as cp_sat

from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START
from cpdispatch.heuristics.order_search import OrderSearch
from cpdispatch.heuristics.postpone_search import PostponeSearch
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.instance import NO_LATEST_S
from cpdispatch.models.boxes import BoxesModel
from cpdispatch.models.budget import Budget
from cpdispatch.models.certificate import TOLERANCE
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
from cpdispatch.models.part import Part
from cpdispatch.models.relaxation import relax
from cpdispatch.models.search import DETERMINISTIC_PER_S, Formulation, configure
from cpdispatch.models.solver import Response

if TYPE_CHECKING:
    from cpdispatch.models.engine import Engine

STEPS_PER_S = 5_000_000
"""Windows of the local search that a second is sure to hold (5.5 to 45 million were measured)."""

POSTPONE_STEPS_PER_S = 2_500_000
"""Windows of the search that schedules or postpones that a second is sure to hold."""

CHUNK = 5_000
"""Windows between two looks at the clock: some milliseconds."""


SAFETY = 1.5
"""How much longer than the first one a pass over all jobs may take."""

IDLE = 0.25
"""Orders without a better one, times the jobs' square, after which the local search is kicked."""

IDLE_S = 0.02
"""Seconds without a better order after which the local search ends, unless there is more patience
or none.
"""

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

CONFLICTS, CONFLICTS_PER_S = 600, 16_000
"""Conflicts that a solve may have, and how many more for each second of its budget.

Where a time creeps up by a second with each conflict, CP-SAT counts next to no deterministic time
(0.009 a second instead of `DETERMINISTIC_PER_S`), and would go on until the clock ends it. Of 2,600
solves of `hcp` on CTC and the generated sample one had three times as many; the others had 0.7 of
it at most.
"""

CONFLICT_S = 1.5e-4
"""Price of a conflict where their number ended a solve (140 microseconds were measured)."""

TRANSFER_S = 2e-5
"""For each variable of a model, the time that it takes to the solver and back."""

GRACE_S = 0.01
"""Between the solver's own limit and the time at which it is given up."""

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A plan of a part, with its bound and how it was found."""

    part: Part
    schedule: ListSchedule
    """The jobs that there was no time to place have `NO_START`."""
    bound: float
    """Lower bound of the objective."""
    by_model: bool = False
    """Whether the model found it or something better was looked for with it."""
    limit_hit: bool = False
    """Whether the search ended because the budget was spent or the time was over."""
    first: float = 0.0
    """Objective of the first plan."""
    worked: bool = False
    """Whether the local search or CP-SAT ran after the first plans."""
    clock_ended: bool = False
    """Whether the clock ended it, so that a faster machine could have another answer."""

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


class PartSearch:
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
        self.least = part.weights.each(part.earliest_s)
        self.bound = least = int(self.least.sum())
        if self.sum > least:
            order = self._incumbent(orders)
            budget.lap("incumbent")
            self.limit_hit = self._clock_is_short(3)
            if not self.limit_hit:
                self._improve(order)
        bound = part.cost.bound(self.bound, part.weights)
        return Answer(
            part, self.schedule, bound, self.by_model, self.limit_hit or self.clock_ended,
            part.cost.value(first.start_s), self.worked, self.clock_ended,
        )  # fmt: skip

    def _improve(self, order: IntArray) -> None:
        """Find bounds, then better plans than that of an order, until they meet."""
        self._relax()
        self.budget.lap("bound")
        if not self._closed():
            order = self._priced(order)
            self.budget.lap("incumbent")
        if not self._closed():
            self.limit_hit = self._clock_is_short(6)
            if not self.limit_hit:
                self._search(order)

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

    def _priced(self, order: IntArray) -> IntArray:
        """Take the plan by prices of the capacities if it is better; returns the better order."""
        if self._clock_is_short(2):
            return order
        priced = self.part.feasible_order(np.argsort(self.known.priced_s, kind="stable"))
        schedule = self.part.generator.schedule(priced)
        if self.part.weights.sum(schedule.start_s) >= self.sum:
            return order
        self._take(schedule)
        return priced

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
        if not fixed and len(part) <= SEARCHED and not part.first.any():
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
            self.budget.spend(used / POSTPONE_STEPS_PER_S)
        if (best := search.best) is not None:
            self._take(best)
        if search.proven:
            self.bound = self.sum
        self.budget.lap("postpone")

    def _reorder(self, seconds: float) -> None:
        """Search through orders until that brings nothing more, or for so long."""
        until_s, idle = self.left_s - seconds, 0
        patience = self._patience_s() * STEPS_PER_S
        while self.left_s > until_s and idle < patience and not self._clock_is_short(2):
            before = self.orders.best_cost
            used = self._chunk()
            idle = 0 if self.orders.best_cost < before else idle + used
            if self.orders.idle > IDLE * len(self.part) ** 2:
                self.orders.kick(KICK)
        self._take_orders()
        self.budget.lap("orders")

    def _patience_s(self) -> float:
        """How long the local search goes on without a better order."""
        share = self.engine.patience
        if share == 1:
            return float("inf")
        return max(share * self.engine.limit_s, IDLE_S) if share > 0 else 0.0

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
        if not budget.live:
            given.max_number_of_conflicts = CONFLICTS + int(CONFLICTS_PER_S * seconds)
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
        if response.conflicts >= given.max_number_of_conflicts:
            budget.spend(CONFLICT_S * response.conflicts)
        found = move.answer(response)
        self._take_orders()
        if found.schedule is not None:
            self.by_model = True
            if self.part.weights.sum(found.schedule.start_s) < self.sum:
                self._take(found.schedule)
                self.orders.restart(self._order_of(found.schedule))
                self._reorder(0.1 * self.left_s)
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

    def _order_of(self, schedule: ListSchedule) -> IntArray:
        """The jobs in the order of their starts."""
        return self.part.feasible_order(np.argsort(schedule.start_s, kind="stable"))
