"""Dispatchers that start whatever fits (the priority rule, PRB), or refuse everything."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.heuristics.allocate import fits_empty, start_in_order
from cpdispatch.heuristics.eligible import eligible_only
from cpdispatch.instance import Instance


def waiting_priority(instance: Instance) -> IntArray:
    """Queue positions by priority max(ewt) / ewt * wait, highest first; shape (jobs,).

    Ties go to the smaller demand times duration, then to the earlier submission. Demand is the sum
    over the resource types of units * request / total capacity.

    References
    ----------
    Bartolini, Borghesi, Bridi, Lombardi, Milano, "Proactive workload dispatching on the EURORA
    supercomputer", CP 2014.
    """
    queue, total = instance.queue, np.maximum(instance.system.total, 1)
    if len(queue) == 0:
        return np.empty(0, dtype=np.int64)
    priority = queue.ewt_s.max() / queue.ewt_s * (instance.now - queue.submit_s)
    demand = (queue.units[:, None] * queue.request / total).sum(axis=1)
    return np.lexsort((demand * queue.expected_s, -priority))


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """PRB: jobs by their wait relative to what is usual in their queue; goes on past misfits."""

    best_fit: bool = False
    name: str = "prb"

    @eligible_only
    def dispatch(self, instance: Instance) -> Decision:
        """Start, in the order of `waiting_priority`, every job that fits now."""
        began = perf_counter()
        order = waiting_priority(instance)
        placements = start_in_order(instance, order, self.best_fit)
        start = np.full(len(order), NO_START, dtype=np.int64)
        start[placements.position] = instance.now
        phases = {"heuristic": (perf_counter() - began) * 1e3}
        return Decision(
            start,
            reasons(instance, order, start),
            placements,
            Certificate(self.name, phases_ms=phases),
        )


def reasons(instance: Instance, order: IntArray, start: IntArray) -> np.typing.NDArray[np.int8]:
    """Why each job starts or waits, when jobs were tried in ``order``; shape (jobs,)."""
    reason = np.full(len(order), Reason.WAITS, dtype=np.int8)
    starts = start == instance.now
    if not starts.all():
        reason[~fits_empty(instance)] = Reason.NEVER_FITS
    ahead = np.cumsum((reason[order] == Reason.WAITS) & ~starts[order]) > 0
    now = order[starts[order]]
    reason[now] = np.where(ahead[starts[order]], Reason.BACKFILLED, Reason.STARTED)
    return reason


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuses every job: what is left of a simulation's time is the simulator's own."""

    name: str = "reject"

    def dispatch(self, instance: Instance) -> Decision:
        """Refuse every job."""
        jobs = len(instance.queue)
        return Decision(
            np.full(jobs, NO_START, dtype=np.int64),
            np.full(jobs, Reason.REJECTED, dtype=np.int8),
            Placements.of({}),
            Certificate(self.name),
        )
