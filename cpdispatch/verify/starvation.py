"""The starvation bound: whether a starved job could start earlier than it is planned."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable
from cpdispatch.verify.dependencies import released
from cpdispatch.verify.levels import (
    Sweep,
    of_shares,
    taken_from_pool,
    units_on_nodes,
)
from cpdispatch.verify.once import apart, pairs
from cpdispatch.verify.once import held as held_on
from cpdispatch.verify.plan import Planned, held_by_running, held_entries
from cpdispatch.verify.violation import Kind, Violation

_AT_ONCE = 64
"""The most instants for which the free capacity of all nodes is held in memory at a time."""

_LEVELS_MOST = 512
"""The most instants for which it is kept, as the jobs that are looked at share them."""


def starving(instance: Instance, plan: list[Planned], clearing: list[Planned]) -> list[Violation]:
    """Starved jobs that a plan starts after their bound though they could start earlier.

    Whether a job could start earlier is judged with the longest durations: every job lasts until
    its requested time. So a plan is not wrong because of the durations that it uses, from the
    expected ones to the requested times. Nodes that are being cleared of killed jobs are not free.
    """
    rule, now = instance.starvation, instance.now
    assert rule is not None
    submit_s = instance.queue.submit_s.tolist()
    least_s = rule.threshold_s * (1000 - rule.wide) // 1000  # that of the widest jobs
    if all(job.start_s == now or now - submit_s[job.position] <= least_s for job in plan):
        return []
    waiting = [job for job in plan if now - submit_s[job.position] > least_s]
    shares = _shares(instance, waiting)
    kept = {position: 1000 - rule.wide * share // 1000 for position, share in shares.items()}
    starved = [
        job
        for job in waiting
        if now - submit_s[job.position] > rule.threshold_s * kept[job.position] // 1000
    ]
    whole_s = rule.threshold_s + rule.bound_s
    due = {j.position: submit_s[j.position] + whole_s * kept[j.position] // 1000 for j in starved}
    late = [job for job in starved if job.start_s > max(due[job.position], now)]
    if not late:
        return []
    instance = _lasting(instance)
    lasts_s = instance.queue.expected_s.tolist()
    ends = {job.position: job.start_s + lasts_s[job.position] for job in plan}
    starved, late = (
        [replace(job, end_s=ends[job.position]) for job in jobs] for jobs in (starved, late)
    )
    beside = _Beside(instance, starved + clearing, late)
    found = []
    for job in late:
        due_s = max(due[job.position], now)
        could_s = beside.earliest(job, released(instance, ends, job.position))
        if could_s is not None:
            text = (
                f"job {job.id}, submitted at {submit_s[job.position]}, is planned at "
                f"{job.start_s}, allowed until {due_s}; it could start at {could_s}"
            )
            found.append(Violation(Kind.STARVATION, text))
    return found


def _shares(instance: Instance, jobs: list[Planned]) -> dict[int, int]:
    """The largest share of the system's capacity that each job asks for, in thousandths.

    They are by queue position.
    """
    kinds, total = of_shares(instance.system).tolist(), instance.system.total.tolist()
    counted = [(r, max(total[r], 1)) for r in kinds]
    return {
        job.position: min(
            max((job.units * job.request[r] * 1000 // has for r, has in counted), default=0), 1000
        )
        for job in jobs
    }


def _lasting(instance: Instance) -> Instance:
    """The instance in which every job is expected to last until its requested time."""
    queue, running = instance.queue, instance.running
    block = queue.block.copy()
    block[Column.EXPECTED] = np.maximum(queue.expected_s, queue.requested_s)
    return replace(
        instance,
        queue=JobTable(block, queue.labels),
        running=replace(running, end_s=running.requested_end_s()),
    )


class _Beside:
    """What running jobs, reservations and the plans of some jobs leave free, from change to change.

    A job that was planned on the pooled capacity takes its part of that, and of no node: on which
    ones it would lie, nobody has said.
    """

    def __init__(self, instance: Instance, plan: list[Planned], late: list[Planned]) -> None:
        self.instance = instance
        kinds, self.once = len(instance.system.resources), pairs(instance.system.resources)
        rows = [
            (
                job.position, node, job.start_s, job.end_s,
                held_on(self.once, job.request, units, first=k == 0),
            )
            for job in plan
            for k, (node, units) in enumerate((job.nodes or {}).items())
        ]  # fmt: skip
        rows += [
            (-1, node, r.start_s, r.end_s, list(r.capacity))
            for r in instance.reservations
            for node in r.nodes
        ]
        running = held_by_running(instance.running, instance.now, instance.system)
        self.held = held_entries(rows, kinds) + replace(running, id=np.full_like(running.id, -1))
        self.capacity = instance.system.capacity.copy()
        self.capacity[instance.down] = 0
        start_s, end_s = (
            np.array([getattr(job, name) for job in plan], dtype=np.int64)
            for name in ("start_s", "end_s")
        )
        ends_s = np.maximum(instance.running.end_s, instance.now + 1)
        changes = (self.held.start_s, self.held.end_s, ends_s, start_s, end_s, [instance.now])
        self.times = np.unique(np.concatenate(changes))
        self.planned = np.zeros((len(self.times), kinds), dtype=np.int64)
        for job in plan:
            if job.nodes is None:
                self.planned[self.during(job)] += self.need(job)
        self.pool = self._pool() - self.planned
        self.watts = self._watts(plan)
        self._find_alike()
        self.room = self._room({tuple(job.request) for job in late})
        self.levels: dict[int, IntArray] = {}

    def need(self, job: Planned) -> IntArray:
        """What a job holds of all nodes together, shape (resources,)."""
        return np.array(held_on(self.once, job.request, job.units, first=True), dtype=np.int64)

    def during(self, job: Planned) -> BoolArray:
        """The instants at which a planned job runs."""
        inside: BoolArray = (job.start_s <= self.times) & (self.times < job.end_s)
        return inside

    def _pool(self) -> IntArray:
        """What the nodes in service have left together, shape (instants, resources)."""
        sweep = Sweep.of(self.held.node, self.held.start_s, self.held.end_s)
        instant = np.searchsorted(self.times, sweep.time)
        taken = np.zeros((len(self.times), self.capacity.shape[1]), dtype=np.int64)
        for r in range(self.capacity.shape[1]):
            change = taken_from_pool(sweep, self.held.amount[:, r], self.capacity[:, r])
            np.add.at(taken[:, r], instant, change)
        pool: IntArray = self.capacity.sum(axis=0) - np.cumsum(taken, axis=0)
        return pool

    def _find_alike(self) -> None:
        """Find the nodes that hold the same all the time: of each class one is looked at."""
        alike: dict[bytes, int] = {}
        held = self.held
        rows = np.column_stack((held.start_s, held.end_s, held.amount))
        rows = rows[np.lexsort((*rows.T, held.node))]
        ends = np.cumsum(np.bincount(held.node, minlength=len(self.capacity))).tolist()
        keys = [
            self.capacity[node].tobytes() + rows[low:high].tobytes()
            for node, (low, high) in enumerate(pairwise([0, *ends]))
        ]
        self.class_of = np.array([alike.setdefault(key, len(alike)) for key in keys])
        self.many = np.bincount(self.class_of)
        one = np.unique(self.class_of, return_index=True)[1]
        mine = np.isin(held.node, one)
        self.empty, self.amount = self.capacity[one], held.amount[mine]
        self.place = self.class_of[held.node[mine]]
        self.began, self.over = (
            np.searchsorted(self.times, at) for at in (held.start_s[mine], held.end_s[mine])
        )

    def _room(self, requests: set[tuple[int, ...]]) -> dict[tuple[int, ...], IntArray]:
        """How many units of each request fit on the nodes at each instant, shape (instants,)."""
        room = {
            request: np.empty(len(self.times), dtype=np.int64)
            for request in requests
            if max(request) > 0
        }
        free = self.empty
        for low in range(0, len(self.times), _AT_ONCE):
            high = min(low + _AT_ONCE, len(self.times))
            change = np.zeros((high - low, *free.shape), dtype=np.int64)
            for at, sign in ((self.began, -1), (self.over, 1)):
                now = (low <= at) & (at < high)
                np.add.at(change, (at[now] - low, self.place[now]), sign * self.amount[now])
            levels = free + np.cumsum(change, axis=0)
            free = levels[-1]
            for request, units in room.items():
                fit = units_on_nodes(np.maximum(levels, 0), np.array(request))
                units[low:high] = (fit * self.many).sum(axis=1)
        return room

    def _level(self, instant: int) -> IntArray:
        """What the nodes of each class have left at an instant, shape (classes, resources)."""
        if instant not in self.levels:
            if len(self.levels) == _LEVELS_MOST:
                del self.levels[next(iter(self.levels))]
            on = (self.began <= instant) & (instant < self.over)
            free = self.empty.copy()
            np.subtract.at(free, self.place[on], self.amount[on])
            self.levels[instant] = np.maximum(free, 0)
        return self.levels[instant]

    def _watts(self, plan: list[Planned]) -> IntArray:
        """What is left under the power cap, shape (instants,)."""
        if self.instance.power is None:
            return np.zeros(len(self.times), dtype=np.int64)
        left = np.full(len(self.times), self.instance.power.cap, dtype=np.int64)
        running = self.instance.running
        draws, ends_s = self.instance.job_power(running.jobs), running.end_s
        for watts, end_s in zip(draws.tolist(), ends_s.tolist(), strict=True):
            left[self.times < max(end_s, self.instance.now + 1)] -= watts
        for job in plan:
            left[self.during(job)] -= self.draw(job)
        return left

    def draw(self, job: Planned) -> int:
        """Watts that a job draws; 0 without a cap."""
        if self.instance.power is None:
            return 0
        return int(self.need(job) @ np.array(self.instance.power.unit, dtype=np.int64))

    def earliest(self, job: Planned, first_s: int) -> int | None:
        """First instant from ``first_s`` on, and before its own start, at which a job would fit.

        The job is one of the plan; its own part of it counts as free.
        """
        inside = (self.times > first_s) & (self.times < job.start_s)
        begins = np.concatenate(([first_s], self.times[inside]))
        begins = begins[begins < job.start_s]
        low = np.searchsorted(self.times, begins, side="right") - 1
        high = np.searchsorted(self.times, begins + job.end_s - job.start_s)
        need, own = self.need(job), self.during(job)
        left = self.pool + own[:, None] * need
        tight = ((left < need) & (need > 0)).any(axis=1)
        if watts := self.draw(job):
            tight |= self.watts + own * watts < watts
        if (room := self.room.get(tuple(job.request))) is not None:
            tight |= (room < job.units) & ~own
        before = np.concatenate(([0], np.cumsum(tight)))
        closed = -1
        for k in (before[low] == before[high]).nonzero()[0].tolist():
            if low[k] > closed:
                closed = self._closed(job, int(low[k]), int(high[k]))
                if closed < low[k]:
                    return int(begins[k])
        return None

    def _closed(self, job: Planned, low: int, high: int) -> int:
        """The instant from which on there are no nodes for a job up to the last of these; else -1.

        No start before that time is feasible, because each such job would still run at the last
        conflicting instant.
        """
        asked, first = apart(self.instance.system.resources, np.array([job.request]))
        request, own, held = asked[0], sorted(job.nodes or ()), self.held
        need, asks = self.need(job), bool((request > 0).any())
        pooled = self.planned.copy()
        if job.nodes is None:
            pooled[self.during(job)] -= need
        # Its own nodes are no part of their classes.
        others = np.flatnonzero(np.isin(held.node, own) & (held.id != job.position))
        begin_s, end_s, amount = held.start_s[others], held.end_s[others], held.amount[others]
        place = np.searchsorted(np.array(own, dtype=np.int64), held.node[others])
        rest = self.many - np.bincount(self.class_of[own], minlength=len(self.many))
        many = np.concatenate((rest, np.ones(len(own), dtype=np.int64)))
        least = np.concatenate((self.empty, self.capacity[own]))
        for k in reversed(range(low, high)):
            on = (begin_s <= self.times[k]) & (self.times[k] < end_s)
            here = self.capacity[own]
            np.subtract.at(here, place[on], amount[on])
            free = np.concatenate((self._level(k), np.maximum(here, 0)))
            least = np.minimum(least, free)
            lacks = (many @ free - pooled[k] < need) & (need > 0)
            once = None if first is None else first[0]
            if lacks.any() or (asks and _units(least, many, request, once) < job.units):
                return k
        return -1


def _units(free: IntArray, many: IntArray, request: IntArray, once: IntArray | None) -> int:
    """How many units fit on classes of so ``many`` nodes with so much free, beside what is taken
    once on one of them; 0 where no node has room for that.
    """
    on_node = units_on_nodes(free, request)
    total = int(on_node @ many)
    if once is None or not once.any():
        return total
    left = free - once
    on_first = units_on_nodes(np.maximum(left, 0), request) * (left >= 0).all(axis=1)
    able = (on_first > 0) & (many > 0)
    return total - int((on_node - on_first)[able].min(initial=total))
