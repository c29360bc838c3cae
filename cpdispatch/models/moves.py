"""The models that CP-SAT is given for a schedule, one after the other.

`Whole` plans all jobs of a small part on the nodes, with all that the bounds know. `Neighbourhoods`
set some jobs free and plan them anew beside the others, on the nodes, with any
formulation; all of them at once where the model is small. `Master` plans all jobs on the pooled
capacities of the bounds, and a list schedule in the order of these starts finds nodes for them.
`MovesInSequence` is both, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.models.node_problem import NodePlan
from cpdispatch.models.part import Part
from cpdispatch.models.pooled_model import PooledModel, PooledProblem
from cpdispatch.models.relaxation import Known, pool_of
from cpdispatch.models.search import Formulation, whole
from cpdispatch.models.solver import Response
from cpdispatch.models.timing import in_turn

SMALLEST, LARGEST = 3, 24
"""Jobs that are set free at once."""

NODES = 1000
"""Nodes that a model may begin with; like ones are then taken together."""

PARTS = 3000
"""Parts that a model may have; see `Formulation.size`."""

PART_S = 5e-5
"""Time to build a part of a model, seconds."""

OTHER_NODES = 64
"""Nodes that jobs are offered beside those that they use already."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The result of a move."""

    schedule: ListSchedule | None = None
    """A feasible one, better or not than the one that the move began with."""
    bound: int | None = None
    """Lower bound of the part's weighted sum."""
    false: bool = False
    """Whether the solver stated something that is wrong; it is left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A model to be solved."""

    model: cp_model.CpModel
    share: float
    """Of the time that is left, what it may take."""
    answer: Callable[[Response], Found]
    """Makes of the solver's response what it means; nothing if it is false."""


class Moves(Protocol):
    """Proposes moves for the schedules of a part."""

    def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
        """A move for the schedule, built in much less than the time left; None: no more moves."""


MakeMoves = Callable[[Part, Known, int], Moves]
"""From a part, what is known of its plans, and a seed."""


class _Values:
    """Stands in for a solver, so that a formulation can read its plan from a response."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values

    def value(self, variable: cp_model.IntVar) -> int:
        return self._values[variable.index]


def _bound(response: Response) -> int | None:
    """The lower bound that a response with a solution states; None without a solution."""
    solved = response.status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return whole(response.bound) if solved and response.bound is not None else None


# ------------------------------------------------------------------------ on the nodes


class Whole:
    """All jobs of a part on the nodes, once, if the model is small.

    Parameters
    ----------
    seed : int
        Makes no difference.
    """

    def __init__(
        self, formulation: type[Formulation[NodePlan]], part: Part, known: Known, seed: int
    ) -> None:
        self._formulation, self._part, self._known = formulation, part, known
        self._done = bool(part.settled.any())

    def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
        """The model, with the schedule as a hint."""
        part = self._part
        if self._done or len(part.nodes) > NODES:
            return None
        self._done = True
        free = np.arange(len(part))
        problem, plan, nodes = part.pose(schedule, free, part.nodes)
        if self._formulation.size(problem) > min(PARTS, left_s / 2 / PART_S):
            return None
        latest_s = np.maximum(self._known.latest_s, plan.start_s)
        if problem.latest_s is not None:
            latest_s = np.minimum(latest_s, problem.latest_s)
        problem = replace(problem, latest_s=latest_s)
        formulation, given = self._formulation(problem, plan), self._known.families
        timing = formulation.timing
        for capacity, demand in zip(given.free, given.demand, strict=True):
            timing.within(capacity, demand, given.since_s)
        timing.costs(self._known.least, problem.sum_of(plan))

        def answer(response: Response) -> Found:
            bound = _bound(response)
            if bound is None:
                return Found()
            after = formulation.read(_Values(response.values))
            if after.check(problem) or bound > problem.sum_of(after):
                return Found(false=True)
            merged = part.merged(schedule, free, after, nodes)
            return Found(merged, bound if formulation.lossless else None)

        return Move(formulation.model, 1.0, answer)


class Neighbourhoods:
    """Sets jobs free: all of them if the model is small, else one that waits and its rivals.

    Parameters
    ----------
    known : Known
        Makes no difference.
    """

    def __init__(
        self, formulation: type[Formulation[NodePlan]], part: Part, known: Known, seed: int
    ) -> None:
        self._formulation, self._part = formulation, part
        self._random = np.random.default_rng(seed)
        self._movable = np.flatnonzero(~part.settled)
        self._size = 6
        self._whole = True

    def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
        """The model of the jobs that are set free, with the schedule as a hint."""
        part = self._part
        if self._whole:
            self._whole = False
            everything = self._movable
            if len(everything) == len(part) and (move := self._pose(schedule, everything, left_s)):
                return move
        for _ in range(_TRIALS):
            free = self._choose(schedule)
            if len(free) == 0:
                return None
            if move := self._pose(schedule, free, left_s):
                return move
        return None

    def _pose(self, schedule: ListSchedule, free: IntArray, left_s: float) -> Move | None:
        """The move that sets these jobs free; None if it is too large or cannot gain anything."""
        part = self._part
        everything = len(free) == len(part)
        most = min(PARTS, left_s / 4 / PART_S)
        candidates = part.nodes if everything else self._candidates(schedule, free, most)
        if len(candidates) > NODES:
            return None
        problem, plan, nodes = part.pose(schedule, free, candidates)
        if self._formulation.size(problem) > most:
            self._size = max(self._size - 1, SMALLEST)
            return None
        before = problem.sum_of(plan)
        if before <= problem.weights.sum(problem.earliest_s):
            return None
        formulation = self._formulation(problem, plan)

        def answer(response: Response) -> Found:
            proven = response.status == cp_model.OPTIMAL
            bound = _bound(response)
            if bound is None:
                self._learn(proven, False)
                return Found()
            after = formulation.read(_Values(response.values))
            sum_ = problem.sum_of(after)
            self._learn(proven, sum_ < before)
            if after.check(problem) or bound > sum_:
                return Found(false=True)
            exact = everything and formulation.lossless
            return Found(part.merged(schedule, free, after, nodes), bound if exact else None)

        return Move(formulation.model, 0.5 if everything else 0.1, answer)

    def _candidates(self, schedule: ListSchedule, free: IntArray, most: float) -> IntArray:
        """The nodes that the jobs use, and some others."""
        owner = np.repeat(np.arange(len(self._part)), np.diff(schedule.offset))
        used = np.unique(schedule.node[np.isin(owner, free)])
        others = np.setdiff1d(self._part.nodes, used)
        count = max(0, min(OTHER_NODES, int(most / (4 * len(free))) - len(used)))
        if len(others) > count:
            others = self._random.choice(others, count, replace=False)
        return np.union1d(used, others)

    def _choose(self, schedule: ListSchedule) -> IntArray:
        """A job that starts later than it could alone, and jobs that delay it."""
        part, movable, start_s = self._part, self._movable, schedule.start_s
        waits = movable[start_s[movable] > part.earliest_s[movable]]
        if len(waits) == 0:
            return waits
        seed = int(self._random.choice(waits))
        end_s = start_s + part.jobs.planned_s
        rivals = movable[
            (start_s[movable] < end_s[seed])
            & (end_s[movable] > part.earliest_s[seed])
            & (movable != seed)
        ]
        count = min(self._size - 1, len(rivals))
        if count == 0:
            return np.array([seed])
        weight = 1.0 + 4.0 * self._meets(schedule, seed)[rivals]
        others = self._random.choice(rivals, count, replace=False, p=weight / weight.sum())
        return np.sort(np.append(others, seed))

    def _meets(self, schedule: ListSchedule, job: int) -> IntArray:
        """Whether each job has a node in common with a job, shape (jobs,)."""
        owner = np.repeat(np.arange(len(self._part)), np.diff(schedule.offset))
        common = np.isin(schedule.node, schedule.node[owner == job])
        return np.minimum(np.bincount(owner[common], minlength=len(self._part)), 1)

    def _learn(self, proven: bool, better: bool) -> None:
        """Free more jobs after a proof that brought nothing, fewer when there was none."""
        if proven and not better:
            self._size = min(self._size + 1, LARGEST)
        elif not proven and not better:
            self._size = max(self._size - 1, SMALLEST)


_TRIALS = 5
"""Choices of jobs in a row that could gain nothing, after which there are no more moves."""


# ------------------------------------------------------------------------- on the pool


class Master:
    """Plans on the pooled capacities; a list schedule in the order of its starts finds the nodes.

    Parameters
    ----------
    seed : int
        Makes no difference.
    """

    def __init__(self, part: Part, known: Known, seed: int) -> None:
        self._part, self._known = part, known
        self._hint: IntArray | None = None
        self._done = False
        self._share = 0.25

    def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
        """The model of the pool; it goes on from the best plan that it has found so far."""
        part, known = self._part, self._known
        if self._done or len(part) * PART_S > left_s / 4:
            return None
        hint = self._hint
        if hint is None or part.weights.sum(hint) > part.weights.sum(schedule.start_s):
            hint = schedule.start_s
        hint = hint[in_turn(hint, part.alike)]
        problem = PooledProblem(
            pool_of(known.families, part.jobs.planned_s), part.cost, part.weights,
            known.earliest_s, np.maximum(known.latest_s, hint), part.after, part.alike,
        )  # fmt: skip
        model = PooledModel(problem, hint)
        # Where seconds are free, CP-SAT would take jobs for later than they are to cost the least.
        least = 0 if model.timing.late else known.least
        model.timing.costs(least, problem.sum_of(hint))

        def answer(response: Response) -> Found:
            self._done = self._done or response.status == cp_model.OPTIMAL
            bound = _bound(response)
            if bound is None:
                self._done = True
                return Found()
            start_s = model.read(_Values(response.values))
            false = not problem.pool.holds(start_s) or bound > problem.sum_of(start_s)
            self._done = self._done or false or (start_s == hint).all()
            if false:
                return Found(false=True)
            self._hint = start_s
            order = part.feasible_order(np.argsort(start_s, kind="stable"))
            return Found(part.generator.schedule(order), bound)

        move = Move(model.model, self._share, answer)
        self._share = min(2 * self._share, 1.0)
        return move


# ------------------------------------------------------------------------------ one after the other


class MovesInSequence:
    """Moves of several kinds: those of the next one when the one before has no more."""

    def __init__(self, kinds: Sequence[MakeMoves], part: Part, known: Known, seed: int) -> None:
        self._kinds = [make(part, known, seed) for make in kinds]

    def next(self, schedule: ListSchedule, left_s: float) -> Move | None:
        """A move of the first kind that has one."""
        while self._kinds:
            if move := self._kinds[0].next(schedule, left_s):
                return move
            del self._kinds[0]
        return None
