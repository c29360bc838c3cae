"""Parameters of `best` that would have served on the jobs that ended last; see `Evaluation`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from cpdispatch.analyze.metrics import TAU_S
from cpdispatch.arrays import IntArray
from cpdispatch.best.ended import Past
from cpdispatch.compiled import Replays
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import risk
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.system import System

EVERY_S = 604_800
"""Candidates are evaluated once a week."""
FEWEST = 2_000
"""How many jobs must have ended."""
THRESHOLDS, WIDTH = (1.0, 1.5, 2.25, 4.5), 1.0
"""Factors of the threshold of the candidates, each with the given width and with this one."""
BETTER = 0.95
"""What the mean bounded slowdown must fall to, relative to the parameters in use, for a change."""
LONGER, SURE = 1.3, 1.35
"""How much longer than under EASY, or than the first threshold, the longest wait may be."""


class Parameters(NamedTuple):
    """How `cpdispatch.best.Best` orders, backfills and keeps room; see there."""

    threshold_s: int
    strict_s: int
    long_s: int
    keep: float
    width: float


def backfilling(parameters: Parameters) -> Backfill:
    """The rule of `best` with these parameters, for predictions that are `cautious` already."""
    order = risk(parameters.width)
    return Backfill(
        order,
        order,
        parameters.threshold_s,
        limits="upper",
        late_first=True,
        strict_s=parameters.strict_s,
        keep=parameters.keep,
        long_s=parameters.long_s,
    )


@dataclass(slots=True)
class OnPool:
    """Jobs that have ended, replayed on a pool with the predictions that were made of them.

    Parameters
    ----------
    jobs : JobTable
        By submission; the first resource type is processors.
    runtime_s : int64 array, shape (jobs,)
    total : int
        Processors of the pool.
    processors : int64 array, shape (jobs,)
        Those of each job.
    """

    jobs: JobTable
    runtime_s: IntArray
    total: int
    processors: IntArray
    _replays: Replays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        jobs, count = self.jobs, len(self.jobs)
        block = job_block(
            id=np.arange(count), submit_s=jobs.submit_s, units=self.processors,
            requested_s=jobs.requested_s, request=np.ones((count, 1), dtype=np.int64),
        )  # fmt: skip
        none = np.full(count, -1, dtype=np.int64)
        ended = Workload("ended", ("core",), JobTable(block), self.runtime_s, none, none.copy())
        self._replays = Replays(ended, System.pool(self.total))

    def wait_s(self, parameters: Parameters | None) -> IntArray:
        """How long each job would have waited, seconds, shape (jobs,).

        Parameters
        ----------
        parameters : Parameters or None
            Those of `best`; None for EASY backfilling by requested times.
        """
        jobs = self.jobs
        if parameters is None:
            start_s = self._replays.starts(Backfill())
        else:
            start_s = self._replays.starts(backfilling(parameters), jobs.expected_s, jobs.upper_s)
        found: IntArray = start_s - jobs.submit_s
        return found


@cache
def warm_up() -> None:
    """Compile what is needed, or load it from the cache, so that no decision has to."""
    one = np.ones(1, dtype=np.int64)
    block = job_block(id=one, submit_s=one, units=one, requested_s=one, request=one[:, None])
    OnPool(JobTable(block), one, 1, one).wait_s(None)


@dataclass(slots=True)
class Evaluation:
    """Chooses the parameters of `best` by off-line evaluation on the jobs that ended last.

    Once a week these jobs are replayed with each of some candidates, on a pool as large as the
    system; one replay a decision, so that no decision is slow. A candidate replaces the parameters
    in use if its mean bounded slowdown is the lowest, and lower by 5 % than that of the parameters
    in use, and if no job would have waited much longer than under EASY. No threshold beyond
    the longest wait under EASY so far is a candidate: jobs may wait for longer than a threshold.

    Attributes
    ----------
    first : Parameters
        Those at the beginning. The candidates differ from them in one or two values.
    parameters : Parameters
        Those in use.
    """

    first: Parameters
    parameters: Parameters = field(init=False)
    _due_s: int = field(default=-1, repr=False)
    _jobs: OnPool | None = field(default=None, repr=False)
    """What candidates are being evaluated on."""
    _candidates: list[Parameters] = field(default_factory=list, repr=False)
    """Those whose turn is still to come."""
    _wait_s_max: float = field(default=0, repr=False)
    """The longest wait that a candidate may lead to; 0 before EASY has been evaluated."""
    _threshold_s_max: int = field(default=0, repr=False)
    _slowdowns: dict[Parameters, float] = field(default_factory=dict, repr=False)
    """Mean bounded slowdown of the candidates so far; inf where a job would wait too long."""

    def __post_init__(self) -> None:
        self.parameters = self.first

    @property
    def next_s(self) -> int:
        """The first decision at this time or later is followed up by `step`, seconds."""
        return -1 if self._jobs is not None else self._due_s

    def step(self, now: int, total: IntArray, past: Past) -> None:
        """Take the next step before a decision, if it is time; may change ``parameters``.

        Parameters
        ----------
        now : int
            Time of the decision, seconds.
        total : int64 array, shape (resources,)
            What the system has; the first resource type is processors.
        past : Past
        """
        if self._jobs is not None:
            self._evaluate_next(self._jobs)
        elif now >= self._due_s:
            if self._due_s >= 0 and len(past) >= FEWEST:
                self._begin(total, past)
            self._due_s = now + EVERY_S

    def _begin(self, total: IntArray, past: Past) -> None:
        """Take the jobs that have ended, and list the candidates."""
        jobs, runtime_s = past.jobs()
        self._jobs = OnPool(jobs, runtime_s, int(total[0]), sizes(jobs, total))
        first = self.first
        widths = dict.fromkeys((first.width, WIDTH))
        self._candidates = [
            first._replace(
                threshold_s=int(factor * first.threshold_s),
                strict_s=int(factor * first.threshold_s) + first.strict_s - first.threshold_s,
                width=width,
            )
            for factor, width in product(THRESHOLDS, widths)
        ]
        self._slowdowns = {}
        self._wait_s_max = 0

    def _evaluate_next(self, jobs: OnPool) -> None:
        """Evaluate EASY or the next candidate; when there is none left, choose."""
        if not self._wait_s_max:
            longest_s = int(jobs.wait_s(None).max())
            self._threshold_s_max = max(self._threshold_s_max, longest_s, self.first.threshold_s)
            self._candidates = [
                each for each in self._candidates if each.threshold_s <= self._threshold_s_max
            ]
            self._wait_s_max = max(LONGER * longest_s, SURE * self.first.threshold_s)
        elif self._candidates:
            candidate = self._candidates.pop(0)
            wait_s, runtime_s = jobs.wait_s(candidate), jobs.runtime_s
            slowdown = (wait_s + runtime_s) / np.maximum(runtime_s, TAU_S)
            bearable = candidate == self.first or wait_s.max() <= self._wait_s_max
            self._slowdowns[candidate] = float(np.maximum(slowdown, 1).mean()) if bearable else inf
        else:
            found = min(self._slowdowns, key=self._slowdowns.__getitem__)
            if self._slowdowns[found] < BETTER * self._slowdowns[self.parameters]:
                self.parameters = found
            self._jobs = None


def sizes(jobs: JobTable, total: IntArray) -> IntArray:
    """Processors that jobs are worth by what they ask most of, at least 1; shape (jobs,).

    Parameters
    ----------
    jobs : JobTable
    total : int64 array, shape (resources,)
        What the system has; the first resource type is processors.
    """
    asked = jobs.units[:, None] * jobs.request
    share = -(-asked * total[0] // np.maximum(total, 1))
    found: IntArray = np.clip(share.max(axis=1), 1, total[0])
    return found
