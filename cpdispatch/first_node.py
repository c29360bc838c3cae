"""Jobs that take something once, for dispatchers that know nothing of it.

A job may ask for amounts beside what its units ask for. It takes them once, on the node that its
placement names first. The package's dispatchers count them, see `cpdispatch.heuristics.kernels`. A
dispatcher of a user's may know units alone: it is asked about an instance without these amounts,
and the jobs that it starts are then placed so that their first nodes have room for them.

In that instance, what first nodes of running jobs hold is held by further running jobs, of ids
below -1. A queued job with such amounts asks for its units alone, and may not start before the
first time at which the whole of it fits by the planned ends of the running jobs. So of such jobs
the instance is a relaxation: a start may turn out to be impossible beside the others, and does not
happen then. While the job that was submitted first of all that may start is one of them, one unit
and its amounts are reserved for it on a node, from the earliest time at which they are there.
Without that, small jobs that come one after the other could take them for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cpdispatch import verify
from cpdispatch.arrays import ByteArray, IntArray, ranges, sealed
from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.errors import infeasible
from cpdispatch.heuristics import kernels
from cpdispatch.heuristics.allocate import fit_capacity
from cpdispatch.heuristics.eligible import not_before
from cpdispatch.heuristics.schedule_input import held_in
from cpdispatch.instance import Instance, Power, Reservation, Running
from cpdispatch.jobs import Column, JobTable
from cpdispatch.system import TIER_MAX, System, room_in, with_capacity
from cpdispatch.terms import apart, with_first
from cpdispatch.verify.plan import hold, over_time
from cpdispatch.verify.violation import Kind

_ROWS, _STARTED = int(Column.REQUEST), int(Reason.STARTED)
_EXACT = 16
"""For so many kinds of jobs it is found out when they fit; for others when more is free next."""
_NEVER = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What a job asks for; arrays of shape (resources,).

    Attributes
    ----------
    unit : int64 array
        Of each unit; below 0, it says how many units share a node at most.
    first : int64 array
        Once, on the first node.
    units : int
    """

    unit: IntArray
    first: IntArray
    units: int

    @property
    def row(self) -> IntArray:
        """Both, as `cpdispatch.heuristics.kernels` take them."""
        return np.concatenate((self.unit, self.first))

    def fits(self, free: IntArray) -> bool:
        """Whether nodes with this much free, shape (nodes, resources), have room for the job."""
        return bool(kernels.fits(free, self.row, self.units))

    def place(self, free: IntArray, counted: IntArray) -> dict[int, int] | None:
        """The job's units by node, its first node first; None where it does not fit.

        The fullest nodes are taken, see `cpdispatch.heuristics.kernels.choose`.

        Parameters
        ----------
        free, counted : int64 array, shape (nodes, resources)
            What is free, and what the nodes have.
        """
        if not self.fits(free):
            return None
        node, many = np.empty((2, len(free)), dtype=np.int64)
        count = kernels.place(free, counted, self.row, self.units, True, node, many)
        return dict(zip(node[:count].tolist(), many[:count].tolist(), strict=True))

    def held(self, nodes: dict[int, int]) -> IntArray:
        """What the job holds on its nodes, shape (its nodes, resources)."""
        units = np.array(list(nodes.values()), dtype=np.int64)
        amount: IntArray = units[:, None] * np.maximum(self.unit, 0)
        amount[0] += self.first
        return amount


@lru_cache(maxsize=16)
def without(system: System) -> System:
    """A system without the resource types that are taken once."""
    kept = _kept(system)
    return with_capacity(system, system.capacity[:, kept], tuple(system.resources[k] for k in kept))


def _kept(system: System) -> list[int]:
    once = {k for k, _ in system.once}
    return [k for k in range(len(system.resources)) if k not in once]


def asks(system: System, jobs: JobTable) -> tuple[IntArray, IntArray]:
    """What jobs ask for of each unit and once, shape (jobs, resources that are not taken once).

    A job of one unit takes all of it with that.
    """
    kept = _kept(system)
    units, once = apart(system, jobs.block)
    unit, first = units[_ROWS:].T[:, kept], once.T[:, kept]
    alone = (jobs.units == 1)[:, None]
    return unit + np.where(alone, first, 0), np.where(alone, 0, first)


def answered(
    ask: Callable[[Instance], Decision], instance: Instance, name: str, *, stated: bool
) -> Decision:
    """The decision about an instance whose system has resource types that are taken once.

    Parameters
    ----------
    ask : callable
        Asks a dispatcher about an instance without them.
    name : str
        Of the dispatcher.
    stated : bool
        See `cpdispatch.verify.decision`.

    Raises
    ------
    DecisionError
        When the answer is infeasible already without the amounts.
    """
    asked = _Asked(instance)
    decision = ask(asked.shown)
    seen = asked.shown
    if not stated:  # a user's dispatcher that does not look ahead goes by what is free
        seen = replace(seen, reservations=asked.rules)
    violations = [
        each for each in verify.decision(seen, decision, stated=stated)
        if each.kind != Kind.STARVATION  # which not every dispatcher keeps to
    ]  # fmt: skip
    if violations:
        raise infeasible(name, instance.now, violations[0])
    return asked.placed(decision) if len(asked.jobs) else decision


class _Asked:
    """An instance, and the one without amounts on first nodes that a dispatcher is asked about.

    Attributes
    ----------
    jobs : list of int
        Queue positions of the jobs that have such amounts.
    shown : Instance
    rules : tuple of Reservation
        Those that the instance has itself.
    """

    def __init__(self, instance: Instance) -> None:
        self._whole = instance
        self._unit, self._first = asks(instance.system, instance.queue)
        self.jobs: list[int] = np.flatnonzero(self._first.any(axis=1)).tolist()
        self._plain = self._of_units()
        self.rules = self._plain.reservations
        self._held: tuple[int, Reservation] | None = None
        """What is reserved for a job: its queue position, and the reservation."""
        self._crowded = False
        """Whether that keeps another job from starting though nothing else ran."""
        self._limited = False
        """Whether only so many units of that job share a node: it is shown with all of them."""
        self.shown = self._plain
        if self.jobs:
            self._ahead = _Ahead(self._plain)
            self.shown = self._timed()

    def _ask(self, position: int) -> Ask:
        units = int(self._whole.queue.units[position])
        return Ask(self._unit[position], self._first[position], units)

    def _of_units(self) -> Instance:
        """The instance in which queued jobs ask for units alone, and running ones hold the same."""
        whole, kept = self._whole, _kept(self._whole.system)
        block = np.vstack((whole.queue.block[:_ROWS], self._unit.T))
        block[Column.RESTARTABLE, self.jobs] = 0
        running, place = _with_more_rows(whole.running, whole.system)
        depends = whole.dependencies
        if depends is not None:
            depends = replace(depends, running_position=place[depends.running_position])
        power = whole.power
        return replace(
            whole,
            system=without(whole.system),
            free=sealed(np.ascontiguousarray(whole.free[:, kept])),
            queue=JobTable(sealed(block), whole.queue.labels),
            running=running,
            reservations=tuple(
                replace(r, capacity=tuple(r.capacity[k] for k in kept)) for r in whole.reservations
            ),
            power=None if power is None else Power(power.cap, tuple(power.unit[k] for k in kept)),
            dependencies=depends,
        )

    # ------------------------------------------------------------------------------ before

    def _timed(self) -> Instance:
        """The instance with what is reserved for a job, and in which no job starts too early."""
        plain, now = self._plain, self._plain.now
        block, free = plain.queue.block.copy(), plain.free
        stated_s = np.full(len(plain.queue), now, dtype=np.int64)
        head, reservations = self._reserved(), plain.reservations
        if head is not None:
            position, held = head
            self._held, self._crowded = head, self._keeps_another_from(*head)
            stated_s[position] = max(held.start_s, now)
            self._limited = bool((self._unit[position] < 0).any())
            # A dispatcher does not count the unit that is reserved among those that share a node.
            block[Column.UNITS, position] -= not self._limited
            if self._crowded:  # what it keeps from starting must not keep it waiting
                block[Column.TIER, position] = TIER_MAX
            reservations = (*reservations, held)
            if held.start_s <= now:
                free = _less(free, held)
        known: dict[tuple[object, ...], int] = {}
        for position in self.jobs:
            if head is None or position != head[0]:
                lasts_s = int(plain.queue.expected_s[position])
                meets = head is not None and head[1].start_s < now + lasts_s
                ask = self._ask(position)
                alike = ask.unit.tobytes(), ask.first.tobytes(), ask.units
                key = (*alike, self._ahead.begun(lasts_s), meets)
                if key not in known:
                    known[key] = self._earliest_s(position, exactly=len(known) < _EXACT)
                stated_s[position] = known[key]
        return replace(
            plain,
            free=sealed(free),
            queue=JobTable(sealed(block), plain.queue.labels),
            reservations=reservations,
            dependencies=not_before(plain, stated_s)
            if (stated_s > now).any()
            else plain.dependencies,
        )

    def _keeps_another_from(self, position: int, held: Reservation) -> bool:
        """Whether another job fits the system, and not beside what is reserved for one."""
        system, queue = self._whole.system, self._whole.queue
        less = system.capacity.copy()
        less[held.nodes[0], _kept(system)] -= np.array(held.capacity)
        block = with_first(system, queue.block)
        fits = fit_capacity(system.capacity, block) & ~fit_capacity(sealed(less), block)
        return bool(np.delete(fits, position).any())

    def _reserved(self) -> tuple[int, Reservation] | None:
        """What is reserved, and for which job; None where nothing is."""
        whole, plain, ahead = self._whole, self._plain, self._ahead
        able = whole.eligible() & fit_capacity(sealed(ahead.in_service), plain.queue.block)
        counted = plain.system.counted
        for position in able.nonzero()[0].tolist():
            if position not in self.jobs:
                return None
            ask = self._ask(position)
            if not ask.fits(ahead.in_service):
                continue
            lasts_s = int(whole.queue.expected_s[position])
            now_free = ahead.during(lasts_s)
            nodes, until = ask.place(now_free, counted), 0
            if nodes is None:
                until = ahead.first(ask)
                if until == len(ahead.time_s):
                    return None
                nodes = ask.place(ahead.free(until), counted)
            assert nodes is not None
            node = next(iter(nodes))
            amount = np.maximum(ask.unit, 0) + ask.first
            start_s = whole.now
            if (now_free[node] < amount).any():
                start_s = next(
                    ahead.time_s[k]
                    for k in range(until + 1)
                    if (ahead.free(k)[node] >= amount).all()
                )
            lasts_s = max(int(whole.queue.requested_s[position]), lasts_s)
            return position, Reservation(start_s, lasts_s, (node,), tuple(amount.tolist()))
        return None

    def _earliest_s(self, position: int, exactly: bool) -> int:
        """The first time at which the whole of a job fits beside what runs and is reserved.

        If it is not asked for ``exactly``, and that is not now, when more is free next.
        """
        ask, ahead = self._ask(position), self._ahead
        lasts_s = int(self._whole.queue.expected_s[position])
        if ask.fits(self._beside(ahead.during(lasts_s), position, lasts_s)):
            return self._whole.now
        last = len(ahead.time_s) - 1 if exactly else 0
        held = None if self._held is None else self._held[1]
        found: int = ahead.time_s[min(ahead.first(ask, held, last), last)]
        return found

    def _beside(self, free: IntArray, position: int, lasts_s: int = _NEVER) -> IntArray:
        """What is free for a job that lasts so long, beside what is reserved for another one."""
        if self._held is None or self._held[0] == position:
            return free
        _, held = self._held
        if held.start_s < self._whole.now + lasts_s:
            free = _less(free, held)
        return free

    # ------------------------------------------------------------------------------- after

    def placed(self, decision: Decision) -> Decision:
        """The decision with jobs on first nodes that have room for them, or not started."""
        whole, now = self._whole, self._whole.now
        start_s, reason = decision.start_s.copy(), decision.reason.copy()
        places, ours, left = decision.placements.as_dict(), set(self.jobs), self._ahead
        starting = [k for k in places if start_s[k] == now]
        alone = self._crowded or self._limited
        if not starting and alone and not len(whole.running) and self._held is not None:
            head = self._held[0]  # a dispatcher that does not put it first might wait for ever
            if reason[head] in (Reason.WAITS, Reason.RESERVED):
                starting, places[head], start_s[head], reason[head] = [head], {}, now, _STARTED
        lasts_s = whole.queue.expected_s
        watts = whole.job_power(whole.queue)
        watts_left = whole.power_free()
        if whole.stopped is not None and whole.restart_cost_s:
            for position, (_, nodes) in whole.stopped.held().items():
                if position not in starting or places[position] != nodes:
                    left.take(self._ask(position), nodes, whole.restart_cost_s)
        for position in starting:
            if position not in ours:
                left.take(self._ask(position), places[position], int(lasts_s[position]))
                watts_left -= int(watts[position])
        for position in starting:
            if position not in ours:
                continue
            free = self._beside(left.during(int(lasts_s[position])), position, lasts_s[position])
            found = self._on_nodes(position, places[position], free)
            if found is None or watts[position] > watts_left:
                start_s[position], reason[position] = NO_START, Reason.WAITS
                del places[position]
                continue
            places[position] = found
            if self._held is not None and position == self._held[0]:
                self._held = None  # it holds its nodes now
            left.take(self._ask(position), found, int(lasts_s[position]))
            watts_left -= int(watts[position])
        later = [k for k in self.jobs if start_s[k] > now]
        found_decision = _having(decision, start_s, reason, places, later)
        if (found_decision.start_s > now).any() and not self._holds(found_decision):
            later = (start_s > now).nonzero()[0].tolist()
            found_decision = _having(decision, start_s, reason, places, later)
        return found_decision

    def _on_nodes(
        self, position: int, nodes: dict[int, int], free: IntArray
    ) -> dict[int, int] | None:
        """Where a job that starts is, its first node first; None where it does not fit.

        It is on the nodes that the dispatcher chose for its units, if one of them can be the first.
        """
        ask, nodes, counted = self._ask(position), dict(nodes), self._plain.system.counted
        kept = -1
        if self._held is not None and self._held[0] == position:
            kept = self._held[1].nodes[0]
            if self._limited and nodes:
                less = kept if kept in nodes else next(reversed(nodes))
                nodes[less] -= 1
            nodes[kept] = nodes.get(kept, 0) + 1
            nodes = {node: units for node, units in nodes.items() if units}
        node, units = np.array(list(nodes.items()), dtype=np.int64).T
        if units.sum() == ask.units and (units <= room_in(free[node], ask.unit, ask.units)).all():
            asks = units[:, None] * np.maximum(ask.unit, 0) + ask.first
            able = node[(free[node] >= asks).all(axis=1)].tolist()
            if able:
                fullest = min(able, key=lambda k: kernels.fullness(free, counted, k))
                first = kept if kept in able else fullest
                return {first: nodes[first], **nodes}
        return ask.place(free, counted)

    def _holds(self, decision: Decision) -> bool:
        """Whether later starts are still possible, now that first nodes are chosen."""
        whole = self._whole
        if verify.decision(whole, decision, stated=False):
            return False
        places = decision.placements.as_dict()
        plan = [
            hold(k, whole.queue.block[:, k].tolist(), start_s, places.get(k))
            for k, start_s in enumerate(decision.start_s.tolist())
            if start_s != NO_START
        ]
        return not over_time(whole, plan)


def _less(free: IntArray, held: Reservation) -> IntArray:
    """What is left of what is free on nodes."""
    free = free.copy()
    free[list(held.nodes)] -= np.array(held.capacity)
    return free


def _having(
    decision: Decision, start_s: IntArray, reason: ByteArray, places: dict[int, dict[int, int]],
    dropped: list[int],
) -> Decision:  # fmt: skip
    """A decision with these starts, without those of some jobs; it claims nothing of its plan."""
    start_s, reason = start_s.copy(), reason.copy()
    start_s[dropped] = NO_START
    reason[dropped] = np.where(reason[dropped] == Reason.RESERVED, Reason.WAITS, reason[dropped])
    kept = {position: nodes for position, nodes in places.items() if position not in {*dropped}}
    said: Certificate = decision.certificate
    status = "feasible" if said.status in ("optimal", "pooled-optimal") else said.status
    certificate = replace(said, objective="", status=status, value=None, bound=None)
    return replace(
        decision, start_s=start_s, reason=reason, placements=Placements.of(kept),
        certificate=certificate,
    )  # fmt: skip


def _with_more_rows(running: Running, system: System) -> tuple[Running, IntArray]:
    """Running jobs with a job of its own for what each holds on its first node, and their places.

    The places of the jobs that there were, shape (running,).
    """
    request = running.jobs.request
    once = [k for k, _ in system.once]
    has = (request[:, once] > 0).any(axis=1)
    copies = 1 + has.astype(np.int64)
    place = np.cumsum(copies) - copies
    pick = np.repeat(np.arange(len(running)), copies)
    more = np.ones(len(pick), dtype=np.bool_)
    more[place] = False
    count = np.diff(running.offset)
    lengths = np.where(more, 1, count[pick])
    offset = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    entry = ranges(running.offset[:-1][pick], lengths)
    units = running.units[entry]
    units[offset[:-1][more]] = 1
    kept = _kept(system)
    block = np.vstack((running.jobs.block[:_ROWS][:, pick], request[pick][:, kept].T))
    block[Column.ID, more] = -2 - block[Column.ID, more]
    block[Column.UNITS, more] = 1
    block[_ROWS:, more] = 0
    for k, of in system.once:
        block[_ROWS + kept.index(of), more] = request[pick[more], k]
    bound_s = None if running.bound_s is None else sealed(running.bound_s[pick])
    start_s, end_s, overdue = (
        sealed(row[pick]) for row in (running.start_s, running.end_s, running.overdue)
    )
    found = Running(
        JobTable(sealed(block), running.jobs.labels), start_s, end_s, overdue,
        sealed(offset), sealed(running.node[entry]), sealed(units), bound_s,
    )  # fmt: skip
    return found, place


class _Ahead:
    """What is free from now on: by what runs, and by the reservations.

    Attributes
    ----------
    time_s : list of int
        When something more may be free, ascending; at least one time, after now.
    in_service : int64 array, shape (nodes, resources)
        What the nodes in service have.
    """

    def __init__(self, plain: Instance) -> None:
        self._now, self._down = plain.now, plain.down
        self.in_service = plain.system.capacity.copy()
        self.in_service[plain.down] = 0
        held, now = held_in(plain), plain.now
        later = held.start_s > now
        begun = np.flatnonzero(~later & (held.end_s > now))
        order = begun[np.argsort(held.end_s[begun], kind="stable")]
        self._end_s, self._node = held.end_s[order], held.node[order]
        self._amount = np.maximum(held.amount[order], 0)
        self.time_s = np.union1d(self._end_s, held.end_s[later]).tolist() or [now + 1]
        self._begins_s = np.unique(held.start_s[later]).tolist()
        self._known: dict[int, IntArray] = {}
        self._free = plain.free
        self._at_begins = [plain.free.copy()]
        """What is free now, and when each reservation begins."""
        for time_s in self._begins_s:
            free = self._given_back(time_s)
            on = later & (held.start_s <= time_s) & (time_s < held.end_s)
            np.subtract.at(free, held.node[on], held.amount[on])
            self._at_begins.append(free)

    def _given_back(self, time_s: int) -> IntArray:
        """What is free at a time, without what begins by then."""
        last = int(np.searchsorted(self._end_s, time_s, side="right"))
        free = self._free.copy()
        np.add.at(free, self._node[:last], self._amount[:last])
        free = np.minimum(free, self.in_service)
        free[self._down] = 0
        return free

    def free(self, k: int) -> IntArray:
        """What is free at the k-th time by the planned ends, reservations to come left out."""
        if k not in self._known:
            self._known[k] = self._given_back(self.time_s[k])
        return self._known[k]

    def first(self, ask: Ask, held: Reservation | None = None, last: int = _NEVER) -> int:
        """The first of the times, up to one, at which a job fits; how many there are for none.

        ``held`` is what is reserved for another job.
        """

        def fits(k: int) -> bool:
            return ask.fits(self.free(k) if held is None else _less(self.free(k), held))

        return bisect_left(range(min(len(self.time_s), last)), True, key=fits)

    def during(self, lasts_s: int) -> IntArray:
        """What is free from now on for so long, beside what `take` took; shape (nodes, ...)."""
        found: IntArray = np.min(self._at_begins[: self.begun(lasts_s) + 1], axis=0)
        return found

    def begun(self, lasts_s: int) -> int:
        """How many times there are for so long at which a reservation begins."""
        return bisect_left(self._begins_s, self._now + lasts_s)

    def take(self, ask: Ask, nodes: dict[int, int], lasts_s: int) -> None:
        """Take what a job holds on its nodes for so long from now on."""
        node, amount = np.array(list(nodes), dtype=np.int64), ask.held(nodes)
        for free in self._at_begins[: self.begun(lasts_s) + 1]:
            free[node] -= amount
