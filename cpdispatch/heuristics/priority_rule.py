"""Dispatchers that start whatever fits (the priority rule, PRB), or refuse everything."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.heuristics.allocate import start_in_order, system_fits
from cpdispatch.heuristics.eligible import cleared_first, eligible_only
from cpdispatch.instance import Instance


def waiting_priority(instance: Instance) -> IntArray:
    """Queue positions by tier, then by max(ewt) / ewt * wait, highest first; shape (jobs,).

    Ties as in `highest_first`.

    References
    ----------
    Bartolini, Borghesi, Bridi, Lombardi, Milano, "Proactive workload dispatching on the EURORA
    supercomputer", CP 2014.
    """
    queue = instance.queue
    wait_s = instance.now - queue.submit_s
    return highest_first(instance, queue.ewt_s.max(initial=1) / queue.ewt_s * wait_s)


def highest_first(instance: Instance, priority: FloatArray) -> IntArray:
    """Queue positions by tier, then by a priority, highest first; shape (jobs,).

    Ties go to the smaller demand times duration, then to the earlier submission. Demand is the sum
    over the system's own resource types of units * request / total capacity.

    Parameters
    ----------
    priority : float array, shape (jobs,)
    """
    queue, total = instance.queue, instance.system.counted.sum(axis=0)
    own = (total > 0).nonzero()[0]
    demand = (queue.units[:, None] * queue.request[:, own] / total[own]).sum(axis=1)
    return np.lexsort((demand * queue.expected_s, -priority, -queue.tier))


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """PRB: jobs by their wait relative to what is usual in their queue; goes on past misfits."""

    best_fit: bool = False
    name: str = "prb"
    takes_first: ClassVar[bool] = True
    """It answers jobs that take something once, see `cpdispatch.dispatch.answer_of`."""

    @cleared_first
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
        reason[~system_fits(instance.system, instance.queue, instance.power)] = Reason.NEVER_FITS
    ahead = np.cumsum((reason[order] == Reason.WAITS) & ~starts[order]) > 0
    now = order[starts[order]]
    reason[now] = np.where(ahead[starts[order]], Reason.BACKFILLED, Reason.STARTED)
    return reason


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuses every job, so that the time of a simulation is that of the simulator alone."""

    name: str = "reject"
    takes_first: ClassVar[bool] = True

    def dispatch(self, instance: Instance) -> Decision:
        """Refuse every job."""
        jobs = len(instance.queue)
        return Decision(
            np.full(jobs, NO_START, dtype=np.int64),
            np.full(jobs, Reason.REJECTED, dtype=np.int8),
            Placements.of({}),
            Certificate(self.name),
        )
