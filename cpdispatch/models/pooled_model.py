"""The problem on the pooled capacity of all nodes, and its CP-SAT model.

This is the formulation of the dissertation's HCP, see `cpdispatch.models.thesis`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.models.objective import Cost, Weights
from cpdispatch.models.pooled import Pool
from cpdispatch.models.search import Values, in_time, never
from cpdispatch.models.timing import After, Timing

EXHAUST_STEPS = 200_000
"""Work of the exhaustive search before CP-SAT: about a millisecond, enough for 8 jobs or so."""


@dataclass(frozen=True, eq=False)
class PooledProblem:
    """A pool with its jobs, by priority, and what to minimise, exactly and in integers.

    A plan of it is the start of each job, shape (jobs,).
    """

    pool: Pool
    cost: Cost
    weights: Weights
    early_s: IntArray | None = None
    latest_s: IntArray | None = None
    """The first and the last start that each job may have, whatever the others do."""
    after: tuple[After, ...] = ()
    alike: IntArray | None = None
    """Which jobs may change places, see `TimedProblem`."""

    @property
    def since_s(self) -> IntArray:
        """Where the segments of constant free capacity begin, shape (segments,)."""
        return self.pool.since_s

    @property
    def duration_s(self) -> IntArray:
        """Expected duration of each job, shape (jobs,)."""
        return self.pool.duration_s

    @property
    def horizon_s(self) -> int:
        """A time by which every job can have ended, whatever their order."""
        early_s = 0 if self.early_s is None else int(self.early_s.max(initial=0))
        think_s = sum(after.think_s for after in self.after)
        return max(self.pool.horizon_s, early_s + int(self.duration_s.sum())) + think_s

    @cached_property
    def earliest_s(self) -> IntArray:
        """Earliest start of each job if it were alone, shape (jobs,)."""
        earliest_s = self.pool.earliest()
        return earliest_s if self.early_s is None else np.maximum(earliest_s, self.early_s)

    def window(self, start_s: IntArray | None) -> tuple[IntArray, IntArray]:
        """The first and the last start of each job, shape (jobs,) each.

        Parameters
        ----------
        start_s : int64 array, shape (jobs,), optional
            Starts of a known plan: a later start of a job alone makes any plan worse than it.
        """
        last_s = np.full(len(self.duration_s), self.horizon_s)
        if start_s is not None:
            late_s = self.weights.latest(self.earliest_s, self.weights.sum(start_s), last_s)
            last_s = np.maximum(late_s, start_s)
        if self.latest_s is not None:
            last_s = np.minimum(last_s, self.latest_s)
        return self.earliest_s, last_s

    def incumbent(self) -> IntArray:
        """The best list schedule of three: by priority, shortest first, dearest first."""
        orders = (
            np.arange(len(self.duration_s)),
            np.argsort(self.duration_s, kind="stable"),
            np.argsort(-self.weights.per_s, kind="stable"),
        )
        return min((self.pool.schedule(order) for order in orders), key=self.weights.sum)

    def first_plan(self) -> tuple[IntArray, bool]:
        """The best plan within `EXHAUST_STEPS`, and whether it is proven best."""
        return self.pool.improve(self.incumbent(), self.weights, EXHAUST_STEPS)

    def sum_of(self, plan: IntArray) -> int:
        """The weighted sum that the searches minimise."""
        return self.weights.sum(plan)

    def wrong(self, plan: IntArray) -> str:
        """What is wrong with a plan; empty when it solves the problem."""
        if plan.max() > self.horizon_s or not self.pool.holds(plan):
            return "the plan exceeds the pool or the horizon"
        return ""

    def key(self) -> bytes:
        """What tells this problem from others, whenever it is posed."""
        pool, digest = self.pool, hashlib.blake2b(digest_size=16)
        for array in (
            pool.since_s - pool.now, pool.free, pool.demand, pool.duration_s,
            self.weights.free_until_s - pool.now, self.weights.per_s,
            *(given - pool.now for given in (self.early_s, self.latest_s) if given is not None),
            np.array(self.after, dtype=np.int64),
        ):  # fmt: skip
            digest.update(array.tobytes())
        return digest.digest()


class PooledModel:
    """Variables: the start of each job. Constraints: a cumulative for each resource of the pool.

    Parameters
    ----------
    plan : int64 array, shape (jobs,)
        A complete plan, which the solver starts from; it looks for none that is worse.
    over : callable
        Whether there is no more time to build it.
    """

    lossless = True
    freed_s: ClassVar[float] = 1.5e-6

    def __init__(
        self, problem: PooledProblem, plan: IntArray, over: Callable[[], bool] = never
    ) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.timing = Timing(self.model, problem, plan)
        rows = zip(problem.pool.free.T, problem.pool.demand.T, strict=True)
        for free, demand in in_time(rows, over):
            self.timing.within(free, demand)
        self.timing.minimise()
        self.timing.search_by_priority()
        self.hint(plan)

    @staticmethod
    def size(problem: PooledProblem) -> int:
        """How many parts the model of a problem has, of those that there are most of."""
        return len(problem.duration_s) + int(np.count_nonzero(problem.pool.demand))

    def hint(self, plan: IntArray) -> None:
        """Begin the next search with this plan: a value for every variable."""
        self.timing.hint(plan)

    def read(self, solver: Values) -> IntArray:
        """The starts that a solver has found."""
        return self.timing.read(solver)
