"""Backfilling: one dispatcher, told apart by two orders, a threshold and a reservation depth."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from cpdispatch.arrays import BoolArray, ByteArray, IntArray, sealed
from cpdispatch.decision import NO_START, Certificate, Decision, Placements
from cpdispatch.errors import UsageError, unknown
from cpdispatch.heuristics import kernels, plan, test_runs
from cpdispatch.heuristics.allocate import as_placements, from_packed, holds, power_unit
from cpdispatch.heuristics.eligible import eligible_only
from cpdispatch.heuristics.limits import limited
from cpdispatch.heuristics.policies import NO_THRESHOLD, Order, find
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable

FCFS = find("fcfs")
ALL = int(np.iinfo(np.int64).max)
"""The reservation depth of conservative backfilling."""
_NO_TESTS: IntArray = sealed(np.empty(0, dtype=np.int64))


@dataclass(slots=True)
class Backfill:
    """EASY-P_R-P_B and its family.

    Jobs start in the primary order until one does not fit. That one, and with a depth above 1 the
    next ones too, is reserved its earliest start; then every job that fits now without delaying
    a reservation starts, in the secondary order.

    Attributes
    ----------
    primary, secondary : Order
        Orders P_R, of the queue, and P_B, of the jobs that may be backfilled.
    threshold_s : int
        Jobs that have waited longer come first in the primary order, by submission.
    depth : int
        Reservations: 0 none (strict order), 1 EASY, n hybrid, `ALL` conservative. Up to 1 they are
        made anew at each call; beyond, they are promises that are kept between calls.
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
    limits : str
        How long jobs are taken to last, see `cpdispatch.heuristics.limits.limited`; predictions
        order the queue in any case.
    late_first : bool
        Whether jobs beyond the threshold come first in the secondary order, too.
    strict_s : int
        Once a job has waited longer, jobs are taken to last as requested.
    bounded : bool
        Whether jobs that the instance calls starved come first in the primary order, and those
        whose starvation bound has passed in the secondary one. Once a job has waited longer than
        the threshold, all jobs are taken to last as requested, unless limits are ``expected``.
        Other thresholds play no part.
    keep : float
        The share of the system's capacity that a job leaves free when it starts, if it is expected
        to run longer than ``long_s``, has not waited longer than the threshold, and is not too
        wide for it. It plays no part where capacity is planned over time.
    long_s : int
    test_s : int
        How long a test run lasts; 0 for none. Tests need a depth of 1, and are not made where
        capacity is planned over time. See `cpdispatch.heuristics.test_runs`.
    tests : str
        When tests come: after all backfilling (``left``), before it (``backfill``), or before it
        and instead of starts in turn (``turn``).
    name : str

    References
    ----------
    Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995. Mu'alem, Feitelson, "Utilization,
    predictability, workloads, and user runtime estimates", IEEE TPDS 2001.
    """

    primary: Order = FCFS
    secondary: Order = FCFS
    threshold_s: int = NO_THRESHOLD
    depth: int = 1
    best_fit: bool = False
    limits: str = "expected"
    late_first: bool = False
    strict_s: int = NO_THRESHOLD
    bounded: bool = False
    keep: float = 0.0
    long_s: int = 0
    test_s: int = 0
    tests: str = "left"
    name: str = "easy"
    _promises: dict[int, tuple[int, list[int], list[int]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.tests not in test_runs.WAYS:
            raise unknown("way of tests", self.tests, test_runs.WAYS)
        if self.test_s and self.depth != 1:
            raise UsageError(f"test={self.test_s}: tests need depth=1, and not depth={self.depth}")

    @property
    def fresh(self) -> bool:
        """Whether nothing is promised yet."""
        return not self._promises

    @property
    def one_order(self) -> bool:
        """Whether jobs are backfilled in the very order of the queue."""
        alike = self.late_first or self.threshold_s == NO_THRESHOLD
        return alike and not self.bounded and self.secondary == self.primary

    def spare(self, total: IntArray) -> IntArray:
        """What a long job leaves free of these capacities, shape (resources,)."""
        return (self.keep * total).astype(np.int64)

    @eligible_only
    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance; with a depth above 1, remember what was promised."""
        began = perf_counter()
        block, now = instance.queue.block, instance.now
        if self.bounded:
            primary = _first(self.primary.rank(now, block), instance.starved())
            secondary = _first(self.secondary.rank(now, block), instance.overdue())
        else:
            primary = secondary = self.primary.rank(now, block, self.threshold_s)
            if not self.one_order:
                threshold_s = self.threshold_s if self.late_first else NO_THRESHOLD
                secondary = self.secondary.rank(now, block, threshold_s)
        seen = limited(instance, "requested" if self._is_strict(instance) else self.limits)
        late, tests = self._late(instance, instance.queue), _NO_TESTS
        if self.test_s:
            way = test_runs.WAYS[self.tests]
            tests = test_runs.candidates(instance, self.test_s, late, way)
        leaves = self._leaves(instance, late)
        start_s, reason, bound_s, placements = self._backfilled(
            seen, primary, secondary, leaves, late, tests
        )
        while killed := test_runs.killed(seen, start_s, placements):
            seen = test_runs.with_busy_nodes(seen, killed)
            primary, secondary = (order[~np.isin(order, killed)] for order in (primary, secondary))
            start_s, reason, bound_s, placements = self._backfilled(
                seen, primary, secondary, leaves, late, tests
            )
        phases = {"heuristic": (perf_counter() - began) * 1e3}
        certificate = Certificate(self.name, phases_ms=phases)
        bounded = bound_s if bound_s.any() else None
        return Decision(start_s, reason, placements, certificate, bounded)

    def _is_strict(self, instance: Instance) -> bool:
        """Whether a job has waited so long that all are taken to last as requested."""
        strict_s, bound = self.strict_s, instance.starvation
        if self.bounded and bound is not None and self.limits != "expected":
            strict_s = bound.threshold_s
        return bool((instance.now - instance.queue.submit_s).max(initial=0) > strict_s)

    def _late(self, instance: Instance, jobs: JobTable) -> BoolArray:
        """Whether each job, queued or running, was submitted too long ago, shape (jobs,)."""
        if self.bounded:
            return instance.starved_among(jobs)
        late: BoolArray = instance.now - jobs.submit_s > self.threshold_s
        return late

    def _leaves(self, instance: Instance, late: BoolArray) -> IntArray:
        """What each job leaves free when it starts, shape (jobs, resources)."""
        queue, total = instance.queue, instance.system.total
        leaves = np.zeros((len(queue), len(total)), dtype=np.int64)
        if self.keep > 0:
            spare = self.spare(total)
            roomy = (queue.request * queue.units[:, None] + spare <= total).all(axis=1)
            leaves[roomy & ~late & (queue.expected_s > self.long_s)] = spare
        return leaves

    def _backfilled(
        self,
        instance: Instance,
        primary: IntArray,
        secondary: IntArray,
        leaves: IntArray,
        late: BoolArray,
        tests: IntArray,
    ) -> tuple[IntArray, ByteArray, IntArray, Placements]:
        """Starts, reasons, bounds and placements, with the queue in these orders of positions."""
        block, now = instance.queue.block, instance.now
        if self.depth > 1 or instance.reservations or len(instance.down):
            start, reason, placed = self._plan(instance, primary, secondary)
            placements = as_placements(placed)
            bound = np.zeros(len(instance.queue), dtype=np.int64)
        else:
            turns = test_runs.no_turns(instance)
            if self.test_s:
                late_running = self._late(instance, instance.running.jobs)
                turns = test_runs.turns(instance, late, late_running, self.primary == FCFS)
            start, reason, bound, jobs, packed = kernels.easy(
                now,
                instance.free,
                instance.system.capacity,
                block,
                primary,
                secondary,
                self.depth,
                self.best_fit,
                instance.running.jobs.block,
                instance.running.end_s,
                instance.running.offset,
                instance.running.node,
                instance.running.units,
                power_unit(instance),
                instance.power_free(),
                leaves,
                test_runs.shortened(block, tests, self.test_s + instance.restart_cost_s),
                tests,
                self.test_s,
                test_runs.WAYS[self.tests],
                test_runs.homes(instance),
                *turns,
            )
            placements = from_packed(jobs, packed)
        if self.depth > 1:
            self._remember(instance, start, placements)
        return start, reason, bound, placements

    def _plan(
        self, instance: Instance, primary: IntArray, secondary: IntArray
    ) -> tuple[IntArray, ByteArray, kernels.Placed]:
        hold_start, hold_node, hold_capacity = holds(instance)
        ends = [r.end_s for r in instance.reservations for _ in r.nodes]
        running = instance.running
        profile = plan.expected_profile(
            instance.now,
            instance.system.capacity,
            instance.down,
            len(instance.queue),
            running.jobs.block,
            running.end_s,
            running.offset,
            running.node,
            running.units,
            hold_start,
            sealed(np.array(ends, dtype=np.int64)),
            hold_node,
            hold_capacity,
            power_unit(instance),
            instance.power_free(),
        )
        start, reason, placed = plan.plan(
            instance.now,
            profile,
            instance.system.capacity,
            instance.queue.block,
            primary,
            secondary,
            self.depth,
            self.best_fit,
            self._recall(instance),
            power_unit(instance),
        )
        return start, reason, placed

    def _recall(self, instance: Instance) -> plan.Promises:
        """The promises to the queued jobs."""
        none: tuple[int, list[int], list[int]] = (NO_START, [], [])
        kept = [self._promises.get(job, none) for job in instance.queue.id.tolist()]
        return plan.Promises(
            np.array([start for start, _, _ in kept], dtype=np.int64),
            np.cumsum([0, *(len(nodes) for _, nodes, _ in kept)], dtype=np.int64),
            np.array([node for _, nodes, _ in kept for node in nodes], dtype=np.int64),
            np.array([many for _, _, units in kept for many in units], dtype=np.int64),
        )

    def _remember(self, instance: Instance, start: IntArray, placements: Placements) -> None:
        ids = instance.queue.id
        self._promises = {
            int(ids[position]): (int(start[position]), list(nodes), list(nodes.values()))
            for position, nodes in placements.as_dict().items()
            if start[position] > instance.now
        }


def _first(order: IntArray, late: BoolArray) -> IntArray:
    """The order with the late jobs in front, by submission."""
    if not late.any():
        return order
    return np.concatenate((np.flatnonzero(late), order[~late[order]]))
