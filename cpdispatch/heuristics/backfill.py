"""Backfilling: one dispatcher with two orders, a threshold and a reservation depth."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar, NamedTuple

import numpy as np

from cpdispatch.arrays import BoolArray, ByteArray, FloatArray, IntArray, sealed
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason, of_flat
from cpdispatch.errors import UsageError, unknown
from cpdispatch.heuristics import limits, plan, test_runs
from cpdispatch.heuristics.allocate import as_placements, free_over_time, placements_of, power_unit
from cpdispatch.heuristics.easy import TURN, NoRoom, Testing, easy, easy_of_flat, scratch_size
from cpdispatch.heuristics.eligible import eligible_only
from cpdispatch.heuristics.policies import NO_THRESHOLD, Order, find
from cpdispatch.heuristics.profiles import per_node
from cpdispatch.heuristics.profiles.per_node import NodeProfile
from cpdispatch.instance import Instance
from cpdispatch.instance.snapshot import NODES, QUEUED
from cpdispatch.jobs import Column, JobTable
from cpdispatch.terms import asked_in_all, with_first

FCFS = find("fcfs")
_NO_SCORE: FloatArray = np.empty(0)
_NO_TESTS: IntArray = sealed(np.empty(0, dtype=np.int64))
ALL = int(np.iinfo(np.int64).max)
"""The reservation depth of conservative backfilling."""


class _Promise(NamedTuple):
    """A promised reservation of a job: its start, its duration, and its units by node."""

    start_s: int
    lasts_s: int
    nodes: dict[int, int]


class _Pass(NamedTuple):
    """What a pass over the queue comes to: see `Decision`; and what it promises, by job."""

    start_s: IntArray
    reason: ByteArray
    bound_s: IntArray | None
    placements: Placements
    promises: dict[int, _Promise]


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
        Number of reservations: 0 for a strict order, 1 for EASY, `ALL` for conservative
        backfilling. With a depth of 1 the reservation is made anew in each decision. With more,
        reservations are promises that later decisions keep.
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
    limits : str
        The planned durations, see `cpdispatch.heuristics.limits.planned`; predictions order the
        queue in any case.
    bounded : bool
        Whether jobs that the instance calls starved come first in the primary order, and those
        whose starvation bound has passed in the secondary one. Once a job has waited longer than
        the threshold, all jobs are planned to last as requested, unless limits are ``expected``.
        Other thresholds play no part.
    keep : float
        The share of the system's capacity that a job leaves free when it starts, if it is expected
        to run longer than ``long_s``, has not waited longer than the threshold, and is not too
        wide for it. It plays no part where capacity is planned over time.
    long_s : int
    test_s : int
        How long a test run lasts; 0 for none. Tests need a depth of 1 or more. See
        `cpdispatch.heuristics.test_runs`.
    tests : str
        When tests start: after backfilling (``left``), before it (``backfill``), or already while
        jobs start in the primary order (``turn``). With ``first`` it is as with ``turn``, and tests
        have places of their own in the primary order, see `cpdispatch.heuristics.test_runs.first`.
        With a depth above 1, and where capacity is planned over time, tests start after all jobs.
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
    bounded: bool = False
    keep: float = 0.0
    long_s: int = 0
    test_s: int = 0
    tests: str = "left"
    name: str = "easy"
    takes_first: ClassVar[bool] = True
    """It answers jobs that take something once, see `cpdispatch.dispatch.answer_of`."""
    _promises: dict[int, _Promise] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.tests not in test_runs.WAYS:
            raise unknown("way of tests", self.tests, test_runs.WAYS)
        if self.test_s and self.depth < 1:
            raise UsageError(
                f"test={self.test_s}: a strict order leaves nothing to tests: leave test out, or "
                f"have depth=1 or more, and not depth={self.depth}"
            )
        if self.test_s and self.depth > 1 and self.tests != "left":
            raise UsageError(
                f"tests={self.tests}: where more than one start is promised, tests come after all "
                "starts: leave tests out, or write tests=left"
            )

    @property
    def fresh(self) -> bool:
        """Whether no reservation is promised yet."""
        return not self._promises

    @property
    def one_order(self) -> bool:
        """Whether jobs are backfilled in the order of the queue."""
        one = self.secondary is self.primary or self.secondary == self.primary
        return one and not self.bounded and self.threshold_s == NO_THRESHOLD

    def spare(self, total: IntArray) -> IntArray:
        """How much of these capacities a long job leaves free, shape (resources,)."""
        return (self.keep * total).astype(np.int64)

    @eligible_only
    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance; with a depth above 1, remember what was promised."""
        began = perf_counter()
        if self._is_plain(instance):
            flat = self._of_flat(instance)
            phases = {"heuristic": (perf_counter() - began) * 1e3}
            return of_flat(flat, Certificate(self.name, phases_ms=phases), None)
        late = self._late(instance, instance.queue)
        primary, secondary, tests = self._ordered(instance, late)
        instance = self.planned(instance)
        leaving = self._leaving(instance, late)
        restarts = self.test_s > 0 or instance.stopped is not None
        given = (leaving, late, tests, restarts)
        found = self._backfilled(instance, primary, secondary, *given)
        while killed := test_runs.killed(instance, found.start_s, found.placements):
            instance = test_runs.with_busy_nodes(instance, killed)
            primary, secondary = (order[~np.isin(order, killed)] for order in (primary, secondary))
            found = self._backfilled(instance, primary, secondary, *given)
        self._promises = found.promises
        phases = {"heuristic": (perf_counter() - began) * 1e3}
        certificate = Certificate(self.name, phases_ms=phases)
        bound_s = found.bound_s if found.bound_s is not None and found.bound_s.any() else None
        return Decision(found.start_s, found.reason, found.placements, certificate, bound_s)

    def _is_plain(self, instance: Instance) -> bool:
        """Whether a kernel ranks the jobs and decides: without tests, and what long jobs leave."""
        return (
            instance.stopped is None
            and not self.test_s
            and not self.keep
            and not self.bounded
            and self.primary.plain
            and self.secondary.plain
            and not instance.system.once
            and not self._plans(instance)
        )

    def _of_flat(self, instance: Instance) -> IntArray:
        """Decide where that is all that a pass knows; the flat decision."""
        primary, secondary = self.primary, self.secondary
        flat = instance.flat
        given = (
            flat, instance.system.capacity, instance.system.counted, primary.number,
            primary.vector, self.threshold_s, secondary.number, secondary.vector, self.one_order,
            self.depth, self.best_fit, int(limits.find(self._limits(instance))),
            power_unit(instance), instance.power_free(),
        )  # fmt: skip
        room = flat.item(QUEUED) + 2 * flat.item(NODES)
        while True:
            try:
                return easy_of_flat(*given, room)
            except NoRoom:
                room *= 2

    def _ordered(self, instance: Instance, late: BoolArray) -> tuple[IntArray, IntArray, IntArray]:
        """The queue in the primary and in the secondary order, and the jobs that may be tested."""
        block, now, tests, ahead = instance.queue.block, instance.now, _NO_TESTS, False
        if self.test_s:
            plans = self._plans(instance)
            ahead = self.tests == "first" and not plans
            way = test_runs.WAYS["left" if ahead or plans else self.tests]
            tests = test_runs.candidates(instance, self.test_s, late, way)
            ahead = ahead and len(tests) > 0
        threshold_s = NO_THRESHOLD if self.bounded else self.threshold_s
        if ahead:
            primary = test_runs.first(self.primary, instance, threshold_s, late, tests, self.test_s)
        else:
            primary = self.primary.rank(now, block, threshold_s)
        if self.bounded:
            primary = _first(primary, instance.starved())
            return primary, _first(self.secondary.rank(now, block), instance.overdue()), tests
        if self.one_order and not ahead:
            return primary, primary, tests
        return primary, self.secondary.rank(now, block), tests

    def planned(self, instance: Instance) -> Instance:
        """The instance with the planned durations."""
        return limits.planned(instance, self._limits(instance))

    def _limits(self, instance: Instance) -> str:
        """The planned durations, by name."""
        return "requested" if self.is_strict(instance) else self.limits

    def _plans(self, instance: Instance) -> bool:
        """Whether capacity is planned over time."""
        return self.depth > 1 or bool(instance.reservations) or len(instance.down) > 0

    def is_strict(self, instance: Instance) -> bool:
        """Whether a job has waited so long that all are planned to last as requested."""
        bound = instance.starvation
        if not self.bounded or bound is None or self.limits == "expected":
            return False
        return bool((instance.now - instance.queue.submit_s).max(initial=0) > bound.threshold_s)

    def _late(self, instance: Instance, jobs: JobTable) -> BoolArray:
        """Whether each job, queued or running, was submitted too long ago, shape (jobs,)."""
        if self.bounded:
            return instance.starved_among(jobs)
        if self.threshold_s == NO_THRESHOLD:
            return np.zeros(len(jobs), dtype=np.bool_)
        late: BoolArray = instance.now - jobs.submit_s > self.threshold_s
        return late

    def _leaving(self, instance: Instance, late: BoolArray) -> tuple[IntArray, BoolArray]:
        """What some jobs leave free when they start, shape (resources,); which, shape (jobs,)."""
        if not self.keep:
            nothing = np.zeros(instance.free.shape[1], dtype=np.int64)
            return nothing, late  # whoever leaves nothing
        queue, total = instance.queue, instance.system.total
        spare = self.spare(total)
        roomy = (asked_in_all(instance.system, queue) + spare <= total).all(axis=1)
        return spare, roomy & ~late & (queue.expected_s > self.long_s)

    def _backfilled(
        self,
        instance: Instance,
        primary: IntArray,
        secondary: IntArray,
        leaving: tuple[IntArray, BoolArray],
        late: BoolArray,
        tests: IntArray,
        restarts: bool,
    ) -> _Pass:
        """Decide, with the queue in these orders of positions.

        ``restarts``: whether jobs may be tested, or were stopped. A decision that kills all of the
        latter says so in its second pass, too: it calls the same kernels as its first.
        """
        if self._plans(instance):
            return self._plan(instance, primary, secondary, tests)
        queue, running, free = instance.queue, instance.running, instance.free
        spare, leaves = leaving
        testing = self._testing(instance, late, tests, leaves) if restarts else None
        block = with_first(instance.system, queue.block)
        run_block = with_first(instance.system, running.jobs.block)
        jobs, nodes = block.shape[1], free.shape[0]
        reason = np.empty(jobs, dtype=np.int8)
        scratch = np.empty(
            scratch_size(jobs, run_block.shape[1], nodes, free.shape[1]), dtype=np.int64
        )
        score = np.empty(nodes) if self.best_fit else _NO_SCORE
        given = (
            instance.now, free, instance.system.capacity, instance.system.counted, block,
            queue.planned_s, primary, secondary, self.depth, self.best_fit, run_block,
            running.planned_end_s(), running.offset, running.node, running.units,
            power_unit(instance), instance.power_free(), spare, leaves, testing, reason,
        )  # fmt: skip
        room = jobs + 2 * nodes
        while True:
            started = np.empty(3 * jobs + 1 + 2 * room, dtype=np.int64)
            try:
                placed = easy(*given, started, scratch, score)
                break
            except NoRoom:
                room *= 2
        bound_s = None if testing is None else testing.bound_s
        return _Pass(started[:jobs], reason, bound_s, placements_of(started, jobs, placed), {})

    def _testing(
        self, instance: Instance, late: BoolArray, tests: IntArray, leaves: BoolArray
    ) -> Testing:
        """What a pass needs to know of test runs."""
        planned_s = instance.queue.planned_s
        turns = test_runs.no_turns(instance)
        if self.test_s:
            late_running = self._late(instance, instance.running.jobs)
            turns = test_runs.turns(instance, late, late_running, self.primary == FCFS)
        way, in_turn = test_runs.WAYS[self.tests], leaves
        if way == TURN:
            in_turn = leaves.copy()
            in_turn[tests] = False
        return Testing(
            way,
            self.test_s,
            tests,
            in_turn,
            test_runs.shortened(planned_s, tests, self.test_s + instance.restart_cost_s),
            *turns,
            test_runs.homes(instance),
            np.zeros(len(planned_s), dtype=np.int64),
        )

    def _plan(
        self, instance: Instance, primary: IntArray, secondary: IntArray, tests: IntArray
    ) -> _Pass:
        """Plan over time, then test jobs beside the plan."""
        jobs = len(instance.queue)
        ids, block, planned_s = self._promised_to(instance)
        profile = free_over_time(instance, min(block.shape[1], plan.ROOM_AT_FIRST))
        start, reason, placed, profile = plan.plan(
            instance.now,
            profile,
            instance.system.capacity,
            instance.system.counted,
            with_first(instance.system, block),
            primary,
            secondary,
            self.depth,
            self.best_fit,
            self._recall(ids, block[Column.UNITS]),
            power_unit(instance),
            test_runs.homes(instance),
            planned_s,
        )
        placements = as_placements(placed)
        promises: dict[int, _Promise] = {}
        if self.depth > 1:
            promises = {
                ids[k]: _Promise(int(start[k]), int(planned_s[k]), nodes)
                for k, nodes in placements.as_dict().items()
                if start[k] > instance.now
            }
            away = [k for k in range(jobs, len(ids)) if start[k] != NO_START]
            promises |= {ids[k]: self._promises[ids[k]] for k in away}
        found = _Pass(start[:jobs], reason[:jobs], None, placements, promises)
        return self._with_tests(instance, profile, found, tests) if len(tests) else found

    def _promised_to(self, instance: Instance) -> tuple[list[int], IntArray, IntArray]:
        """Ids, block and planned durations of the queued jobs, then of running ones with a promise.

        Such a job is being tested, or its nodes are being cleared. It is not queued, or will not be
        after this decision: then its place in the queue has the id -1.
        """
        queue, running = instance.queue, instance.running
        ids = queue.id.tolist()
        away = [k for k, id in enumerate(running.jobs.id.tolist()) if id in self._promises]
        if not away:
            return ids, queue.block, queue.planned_s
        of = running.jobs.id[away].tolist()
        promised_s = np.array([self._promises[id].lasts_s for id in of], dtype=np.int64)
        return (
            [-1 if id in of else id for id in ids] + of,
            sealed(np.hstack((queue.block, running.jobs.block[:, away]))),
            sealed(np.concatenate((queue.planned_s, promised_s))),
        )

    def _recall(self, ids: list[int], units: IntArray) -> plan.Promises:
        """The promised reservations of these jobs; none for the id -1.

        A job that asks for another number of units than before is promised anew.
        """
        none = _Promise(NO_START, 0, {})
        kept = [
            promise if sum(promise.nodes.values()) == many else none
            for promise, many in zip(
                (self._promises.get(job, none) for job in ids), units.tolist(), strict=True
            )
        ]
        return plan.Promises(
            np.array([promise.start_s for promise in kept], dtype=np.int64),
            np.cumsum([0, *(len(promise.nodes) for promise in kept)], dtype=np.int64),
            np.array([node for promise in kept for node in promise.nodes], dtype=np.int64),
            np.array([n for promise in kept for n in promise.nodes.values()], dtype=np.int64),
        )

    def _with_tests(
        self, instance: Instance, profile: NodeProfile, found: _Pass, tests: IntArray
    ) -> _Pass:
        """The result of a pass with tests beside its plan; all promises stay."""
        ids, cost_s = instance.queue.id, instance.restart_cost_s
        if cost_s:
            profile = per_node.with_room(profile, len(tests))
            keep = [self._is_longer(instance, profile, found, k) for k in tests.tolist()]
            tests = tests[keep]
        places = test_runs.beside(
            instance, profile, found.start_s, tests, self.test_s, self.best_fit
        )
        if not len(places):
            return found
        tested, promises = places.position, dict(found.promises)
        for id in ids[tested].tolist():
            if id in promises:
                promise = promises[id]
                promises[id] = promise._replace(lasts_s=promise.lasts_s + cost_s)
        start_s, reason, bound_s = (
            found.start_s.copy(),
            found.reason.copy(),
            np.zeros_like(found.start_s),
        )
        start_s[tested], reason[tested], bound_s[tested] = (
            instance.now, Reason.BACKFILLED, self.test_s,
        )  # fmt: skip
        both = Placements.of({**found.placements.as_dict(), **places.as_dict()})
        return _Pass(start_s, reason, bound_s, both, promises)

    def _is_longer(
        self, instance: Instance, profile: NodeProfile, found: _Pass, position: int
    ) -> bool:
        """Lengthen the reservation of a job by the cost of a restart; whether that is possible."""
        promise = found.promises.get(int(instance.queue.id[position]))
        if promise is None:
            return True
        end_s = promise.start_s + promise.lasts_s
        ask = instance.queue.request[position]
        more = (
            end_s, end_s + instance.restart_cost_s, ask,
            np.array(list(promise.nodes), dtype=np.int64),
            np.array(list(promise.nodes.values()), dtype=np.int64),
            int(instance.queue.units[position] * (ask @ power_unit(instance))),
        )  # fmt: skip
        possible = bool(per_node.holdable(profile, *more))
        if possible:
            per_node.hold(profile, *more, -1)
        return possible


def _first(order: IntArray, late: BoolArray) -> IntArray:
    """The order with the late jobs in front, by submission."""
    if not late.any():
        return order
    return np.concatenate((np.flatnonzero(late), order[~late[order]]))
