"""When jobs run in a CP-SAT model: the start and the interval of each, and what the starts cost."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.models.objective import Weights
from cpdispatch.models.search import Values


class After(NamedTuple):
    """A job starts ``think_s`` seconds after the end of another one, or later."""

    job: int
    before: int
    think_s: int


class TimedProblem(Protocol):
    """The parts of a problem that `Timing` uses, on the pool or on the nodes."""

    @property
    def since_s(self) -> IntArray:
        """Where segments of constant free capacity begin, shape (segments,); the first is now."""

    @property
    def duration_s(self) -> IntArray:
        """Expected duration of each job, shape (jobs,)."""

    @property
    def horizon_s(self) -> int:
        """A time by which every job can have ended, whatever their order."""

    @property
    def weights(self) -> Weights:
        """What to minimise."""

    @property
    def after(self) -> tuple[After, ...]:
        """Which jobs come after which."""

    @property
    def alike(self) -> IntArray | None:
        """A number for each job, the same for jobs that may change places in any plan."""

    def window(self, start_s: IntArray | None) -> tuple[IntArray, IntArray]:
        """The first and the last start of each job, given the starts of a known plan or None."""


class Timing:
    """When the jobs run: the start and the interval of each, and what their starts cost.

    Times are counted from now.

    Parameters
    ----------
    model : CpModel
        To which all this is added.
    start_s : int64 array, shape (jobs,), optional
        Of a known plan: no start is allowed that would make any plan worse than it. Of jobs that
        are alike none starts before an earlier one of the table: see `in_turn`.
    """

    def __init__(
        self, model: cp_model.CpModel, problem: TimedProblem, start_s: IntArray | None
    ) -> None:
        self.model, self.problem = model, problem
        self.now = int(problem.since_s[0])
        first_s, last_s = problem.window(start_s)
        self.starts = [
            model.new_int_var(low, high, "")
            for low, high in zip(
                (first_s - self.now).tolist(), (last_s - self.now).tolist(), strict=True
            )
        ]
        self.intervals = [
            model.new_fixed_size_interval_var(start, duration, "")
            for start, duration in zip(self.starts, problem.duration_s.tolist(), strict=True)
        ]
        self.late: list[cp_model.IntVar] = []
        for after in problem.after:
            self._comes_after(after)
        if problem.alike is not None:
            for one, other in _pairs(problem.alike):
                self.model.add(self.starts[one] <= self.starts[other])

    def _comes_after(self, after: After) -> None:
        """A job starts once another has ended and the time to think is over."""
        end = self.starts[after.before] + int(self.problem.duration_s[after.before])
        self.model.add(self.starts[after.job] >= end + after.think_s)

    def levels(self, free: IntArray, since_s: IntArray | None = None) -> list[tuple[int, int, int]]:
        """What running jobs and reservations hold: begin, end and amount of each level.

        Parameters
        ----------
        free : int64 array, shape (segments,)
            Free capacity; in the last segment it is the whole capacity.
        since_s : int64 array, shape (segments,), optional
            Where the segments begin, if they are not those of the problem.
        """
        steps = np.append(True, free[1:] != free[:-1])
        begins_s = self.problem.since_s if since_s is None else since_s
        since = (begins_s[steps] - self.now).tolist()
        held = (free[-1] - free[steps]).tolist()
        rows = zip(since[:-1], since[1:], held[:-1], strict=True)
        return [row for row in rows if row[2] > 0]

    def held(
        self, free: IntArray, since_s: IntArray | None = None
    ) -> tuple[list[cp_model.IntervalVar], list[int]]:
        """The same as intervals and demands."""
        levels = self.levels(free, since_s)
        new_interval = self.model.new_fixed_size_interval_var
        intervals = [new_interval(begin, end - begin, "") for begin, end, _ in levels]
        return intervals, [amount for _, _, amount in levels]

    def within(self, free: IntArray, demand: IntArray, since_s: IntArray | None = None) -> None:
        """At no instant do the jobs hold more of something than is free.

        Parameters
        ----------
        free : int64 array, shape (segments,)
        demand : int64 array, shape (jobs,)
            Nothing is constrained if it is 0 for all.
        since_s : int64 array, shape (segments,), optional
            Where the segments begin, if they are not those of the problem.
        """
        if not demand.any():
            return
        intervals, demands = self.held(free, since_s)
        for interval, amount in zip(self.intervals, demand.tolist(), strict=True):
            if amount > 0:
                intervals.append(interval)
                demands.append(amount)
        self.model.add_cumulative(intervals, demands, int(free[-1]))

    def minimise(self) -> None:
        """The weighted sum of how late each job starts: after its last start that costs nothing."""
        weights, terms, constant = self.problem.weights, [], 0
        free_until = (weights.free_until_s - self.now).tolist()
        per_s = weights.per_s.tolist()
        for start, free, weight in zip(self.starts, free_until, per_s, strict=True):
            if free <= 0:
                terms.append(start)
                constant -= weight * free
            else:
                late = self.model.new_int_var(0, self.problem.horizon_s - self.now, "")
                self.model.add(late >= start - free)
                self.late.append(late)
                terms.append(late)
        self.model.minimize(cp_model.LinearExpr.weighted_sum(terms, per_s) + constant)

    def costs(self, least: int, most: int) -> None:
        """Bound the cost from below, and look for no plan that costs more than the other value."""
        objective = self.model.proto.objective
        offset = int(objective.offset)
        objective.domain.extend((least - offset, most - offset))

    def search_by_priority(self) -> None:
        """Schedule or postpone: the earliest-startable job first, ties by priority."""
        self.model.add_decision_strategy(
            self.starts, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE
        )

    def hint(self, start_s: IntArray) -> None:
        """Replace the hint of the model by these starts; the caller hints the other variables."""
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        free_until_s = self.problem.weights.free_until_s
        late = np.maximum(start_s - free_until_s, 0)[free_until_s > self.now]
        values = [*(start_s - self.now).tolist(), *late.tolist()]
        for variable, value in zip(self.starts + self.late, values, strict=True):
            self.model.add_hint(variable, value)

    def read(self, solver: Values) -> IntArray:
        """The starts that a solver has found, shape (jobs,)."""
        values = [solver.value(start) for start in self.starts]
        return np.array(values, dtype=np.int64) + self.now


def _pairs(alike: IntArray) -> list[tuple[int, int]]:
    """Each job and the next one of the table that is like it."""
    order = np.argsort(alike, kind="stable")
    same = alike[order[1:]] == alike[order[:-1]]
    return list(zip(order[:-1][same].tolist(), order[1:][same].tolist(), strict=True))


def in_turn(start_s: IntArray, alike: IntArray | None) -> IntArray:
    """An order of the jobs in which each takes the place of one like it, by their starts.

    With job k in the place of the k-th of these, no job starts before an earlier one that is alike.

    Returns
    -------
    int64 array, shape (jobs,)
        Whose place each job takes.
    """
    place = np.arange(len(start_s))
    if alike is not None:
        place[np.argsort(alike, kind="stable")] = np.lexsort((start_s, alike))
    return place
