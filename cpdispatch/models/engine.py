"""The anytime engine around every model: an answer at once, a better one while there is time.

select -> decompose -> incumbent (list schedules) -> bound -> [gap closed? answer] -> schedule or
postpone, all jobs of a small part -> CP-SAT on them -> local search over orders, and CP-SAT on what
it can win -> verify -> answer

Expected durations say which jobs are planned, and what a plan costs. Planned durations say how long
a plan keeps nodes for a job, see `Engine.limits`.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import ClassVar

import numpy as np

from cpdispatch import toys
from cpdispatch.arrays import IntArray, sealed
from cpdispatch.decision import NO_START, Decision, Placements
from cpdispatch.errors import unknown
from cpdispatch.garbage import no_collection
from cpdispatch.heuristics import limits, test_runs
from cpdispatch.heuristics.allocate import start_in_order
from cpdispatch.heuristics.order_search import OrderSearch
from cpdispatch.heuristics.priority_rule import reasons, waiting_priority
from cpdispatch.heuristics.schedule_input import held_in
from cpdispatch.instance import Instance
from cpdispatch.models import objective as objectives
from cpdispatch.models.budget import Budget
from cpdispatch.models.certificate import Result, certify
from cpdispatch.models.part import Part, Selection, after_planned, held_by, parts_of, select
from cpdispatch.models.part_search import KICK, MODELS, Answer, PartSearch
from cpdispatch.models.search import CLOCK_ENDED
from cpdispatch.models.solver import Solver, shared
from cpdispatch.models.warming import compile_kernels

_NOBODY = sealed(np.empty(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Engine:
    """Answers an instance with the best plan that a model and the budget allow.

    Notes
    -----
    The value of a certificate is the objective of the plan with the expected durations. Its bound
    holds for all plans of the selected jobs that are feasible with the planned durations, that keep
    the start of the reserved job, and in which no starved job starts after its bound, or after the
    start that it has when the starved ones come first, by submission, if that is later.

    `answers`, `select`, `parts` and `decision` take the instance that `planned` makes.
    """

    model: str
    """A name of `MODELS`: what CP-SAT is asked to do."""
    limit_s: float = 1.0
    """Budget of a decision, everything included, seconds."""
    m: int = 1000
    """The most jobs that are planned of those that fit now."""
    reserve: int = 1
    """The most jobs that are planned of those that do not fit now; nothing delays the first one."""
    patience: float = 0.01
    """The share of the budget after which the local search or CP-SAT ends if it has found nothing
    better; with 1 it never ends for this reason. The local search has 0.02 s at least, unless this
    is 0.
    """
    live: bool = False
    """Whether the clock ends the search, which then uses all cores.

    Without this it is deterministic: the same answer every time, unless a machine is very slow.
    """
    cp: bool = True
    """Whether CP-SAT is asked; else there are only list schedules and the searches over them."""
    release: bool = True
    """Whether the first reserved job keeps only its start, and leaves its nodes to other jobs that
    need them. Without this it chooses its nodes first, unless a job is starved. Starved jobs may
    start at any time that their bounds allow, in both cases.
    """
    seed: int = 0
    objective: str = "slowdown"
    """What to minimise.

    The order in which jobs are selected goes with it: wait by what is expected in the queue, or
    slowdown; the site's priority first where it is a weight.
    """
    limits: str = "upper"
    """The planned durations, see `cpdispatch.heuristics.limits.planned`."""
    test_s: int = 0
    """How long a test run lasts; 0 for none.

    Tests are made beside a plan, see `cpdispatch.heuristics.test_runs`.
    """
    name: str = ""
    """Name in tables; the model's when empty."""
    solver: Solver = field(default_factory=shared, repr=False, compare=False)
    faults: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """How often something went wrong in the solver's process or in a model, by what it was; and how
    many decisions of the deterministic regime were ended by the clock.
    """

    keeps_starvation_bound: ClassVar[bool] = True
    takes_first: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        object.__setattr__(self, "name", self.name or self.model)
        objectives.find(self.objective)
        limits.find(self.limits)

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile all that decisions call, or load it from the cache; start the solver."""
        warm_up(self.model)
        if toys.have_stopped(instances):
            warm_up_stopped(self.model)

    @no_collection()
    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where; plan the others that were selected."""
        return self.dispatch_since(instance, perf_counter())

    def dispatch_since(self, instance: Instance, began: float) -> Decision:
        """Decide as `dispatch` does; the time since ``began``, of `perf_counter`, is used up."""
        budget = Budget(self.limit_s - (perf_counter() - began), self.live, self.limit_s)
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
        return PartSearch(self, part, budget, budget.left_s * (1 - share)).answer()

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
        if not all(answer.complete for answer in answers):
            found = self.in_haste(instance, start_s, Placements.of(placed))
            start_s[found.position] = instance.now
            placed |= found.as_dict()
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

    def in_haste(self, instance: Instance, start_s: IntArray, planned: Placements) -> Placements:
        """Jobs that start beside the beginning of a plan: no time was left to plan them.

        Those that have waited too long come first, then those that are planned first.
        """
        order = slowdown_priority(instance, self.objective in objectives.BY_PRIORITY)
        order = order[np.argsort(~instance.starved()[order], kind="stable")]
        waits = start_s == NO_START
        if instance.stopped is not None and instance.restart_cost_s:
            waits[instance.stopped.position] = False
        clear = test_runs.clearing(instance)
        return start_in_order(clear, order[waits[order]], beside=planned)


def slowdown_priority(instance: Instance, site_first: bool = False) -> IntArray:
    """Queue positions by tier, then slowdown (wait + d) / d, highest first, then by submission.

    With ``site_first`` the site's priority comes right after the tier.
    """
    queue = instance.queue
    slowdown = (instance.now - queue.submit_s) / queue.expected_s
    return np.lexsort((-slowdown, -queue.priority * int(site_first), -queue.tier))


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
        engine.in_haste(instance, np.full(len(instance.queue), NO_START), Placements.of({}))
        return engine.decision(instance, answers, budget)


@functools.cache
def warm_up(model: str) -> None:
    """Load the kernels of a model and start the solver: no decision's budget pays for it."""
    shared().warm_up()
    compile_kernels()
    toys.play(partial(_Throwaway, model), toys.every_kind())


@functools.cache
def warm_up_stopped(model: str) -> None:
    """Load the kernels that test runs, and jobs that were stopped, take more than that."""
    toys.play(partial(_Throwaway, model, test_s=20), toys.restartable())
