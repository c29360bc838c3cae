"""A plan at every instant: capacity of nodes and of the pool, reservations, power."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.instance import Instance, Running
from cpdispatch.jobs import Column
from cpdispatch.system import System
from cpdispatch.verify.levels import Sweep, taken_from_pool
from cpdispatch.verify.once import apart, heads, held, pairs
from cpdispatch.verify.violation import Kind, Violation, jobs_text, place_text


@dataclass(frozen=True, slots=True)
class Planned:
    """A job of a plan; ``nodes`` is None when it was planned on the pooled capacity."""

    position: int
    id: int
    start_s: int
    end_s: int
    units: int
    request: list[int]
    nodes: dict[int, int] | None


def hold(position: int, job: list[int], start_s: int, nodes: dict[int, int] | None) -> Planned:
    """What a queued job, given as its column of the job block, holds from its start on."""
    end_s, request = start_s + job[Column.EXPECTED], job[Column.REQUEST :]
    return Planned(position, job[0], start_s, end_s, job[Column.UNITS], request, nodes)


@dataclass(frozen=True, slots=True)
class Held:
    """Entries of capacity held on nodes over time; ``id`` is -1 for a reservation."""

    id: IntArray
    node: IntArray
    start_s: IntArray
    end_s: IntArray
    amount: IntArray  # shape (entries, resources)

    def __add__(self, other: Held) -> Held:
        return Held(
            np.concatenate((self.id, other.id)),
            np.concatenate((self.node, other.node)),
            np.concatenate((self.start_s, other.start_s)),
            np.concatenate((self.end_s, other.end_s)),
            np.concatenate((self.amount, other.amount)),
        )

    def who(self, node: int, time: int, resource: int) -> str:
        """The jobs, and reservations, that hold a resource of a node at an instant."""
        on = (self.node == node) & (self.start_s <= time) & (time < self.end_s)
        ids = self.id[on & (self.amount[:, resource] > 0)].tolist()
        jobs = [id for id in ids if id >= 0]
        parts = [jobs_text(jobs)] if jobs else []
        return " and ".join(parts + ["a reservation"] * (len(jobs) < len(ids)))


def held_entries(rows: list[tuple[int, int, int, int, list[int]]], resources: int) -> Held:
    """From rows of id, node, start, end, amounts."""
    table = np.array([[*row[:4], *row[4]] for row in rows], dtype=np.int64)
    table = table.reshape(-1, 4 + resources)
    return Held(table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4:])


def held_by_running(running: Running, now: int, system: System) -> Held:
    """An overdue job is expected to end one second from now."""
    owner = np.repeat(np.arange(len(running)), np.diff(running.offset))
    request, once = apart(system.resources, running.jobs.request)
    amount = request[owner] * running.units[:, None]
    if once is not None:
        amount += once[owner] * heads(np.diff(running.offset))[:, None]
    return Held(
        running.jobs.id[owner],
        running.node,
        np.full(len(owner), now, dtype=np.int64),
        np.maximum(running.end_s, now + 1)[owner],
        amount,
    )


def over_time(instance: Instance, plan: list[Planned]) -> list[Violation]:
    """Capacity, reservations and power at every instant from now on.

    What the running jobs and the reservations do to each other is a fact of life: only instants
    at which jobs of the plan take part are violations.
    """
    if not plan:
        return []
    resources, of = len(instance.system.resources), pairs(instance.system.resources)
    own = held_entries(
        [
            (job.id, node, job.start_s, job.end_s, held(of, job.request, units, e == 0))
            for job in plan
            for e, (node, units) in enumerate((job.nodes or {}).items())
        ],
        resources,
    )
    reserved = held_entries(
        [
            (-1, node, r.start_s, r.end_s, list(r.capacity))
            for r in instance.reservations
            for node in r.nodes
        ],
        resources,
    )
    others = held_by_running(instance.running, instance.now, instance.system)
    found = _on_nodes(instance, own, others, reserved)
    if any(job.nodes is None for job in plan):
        found += _in_pool(instance, plan, others + reserved)
    if instance.power is not None:
        found += _power(instance, plan)
    return found


def _on_nodes(instance: Instance, own: Held, held: Held, reserved: Held) -> list[Violation]:
    """Nodes on which something of the plan, and all together, is more than the node has."""
    entries = own + reserved + held
    sweep = Sweep.of(entries.node, entries.start_s, entries.end_s)
    ours, kept = len(own.id), len(own.id) + len(reserved.id)
    found = []
    for r in range(entries.amount.shape[1]):
        amount = entries.amount[:, r]
        level = sweep.level(amount)
        index = np.arange(len(amount))
        of_plan = sweep.level(np.where(index < ours, amount, 0))
        of_reservations = sweep.level(np.where((ours <= index) & (index < kept), amount, 0))
        allowed = instance.system.capacity[sweep.place, r]
        for k in sweep.firsts((of_plan > 0) & (level > allowed)).tolist():
            over = int(level[k]) - int(allowed[k])
            kind = Kind.RESERVATION if over <= of_reservations[k] else Kind.CAPACITY
            node, time = int(sweep.place[k]), int(sweep.time[k])
            text = (
                f"{place_text(instance.system, node, r, time)}: {level[k]} held by "
                f"{entries.who(node, time, r)}, {allowed[k]} allowed"
            )
            found.append(Violation(kind, text))
    return found


def _in_pool(instance: Instance, plan: list[Planned], others: Held) -> list[Violation]:
    """Instants at which the plan needs more than is free on all nodes in service together."""
    capacity = instance.system.capacity.copy()
    capacity[instance.down] = 0
    sweep = Sweep.of(others.node, others.start_s, others.end_s)
    found, of = [], pairs(instance.system.resources)
    whole = {job.position: held(of, job.request, job.units, True) for job in plan}
    for r, name in enumerate(instance.system.resources):
        change = taken_from_pool(sweep, others.amount[:, r], capacity[:, r])
        needs = [(job.start_s, job.end_s, whole[job.position][r], job) for job in plan]
        start_s, end_s, need = (
            np.array(c, dtype=np.int64) for c in zip(*(row[:3] for row in needs), strict=True)
        )
        bare = np.array([row[3].nodes is None for row in needs])
        times, instant = np.unique(
            np.concatenate((sweep.time, start_s, end_s)), return_inverse=True
        )
        all_change, bare_change = (np.zeros(len(times), dtype=np.int64) for _ in range(2))
        np.add.at(all_change, instant, np.concatenate((change, need, -need)))
        need = np.where(bare, need, 0)
        np.add.at(bare_change, instant, np.concatenate((0 * change, need, -need)))
        total, pool = np.cumsum(all_change), int(capacity[:, r].sum())
        for k in ((total > pool) & (np.cumsum(bare_change) > 0)).nonzero()[0][:1].tolist():
            time = int(times[k])
            who = [row[3].id for row in needs if row[0] <= time < row[1] and row[2]]
            text = (
                f"{name} at {time}: {total[k]} held in all, with {jobs_text(who)}, "
                f"{pool} in service"
            )
            found.append(Violation(Kind.POOL, text))
    return found


def _power(instance: Instance, plan: list[Planned]) -> list[Violation]:
    assert instance.power is not None
    running, now, unit = instance.running, instance.now, instance.power.unit
    of = pairs(instance.system.resources)
    amounts = [held(of, job.request, job.units, True) for job in plan]
    ours = np.array(
        [sum(n * w for n, w in zip(amount, unit, strict=True)) for amount in amounts],
        dtype=np.int64,
    )
    theirs = instance.job_power(running.jobs)
    start_s = np.array([job.start_s for job in plan] + [now] * len(theirs), dtype=np.int64)
    ours_end_s = np.array([job.end_s for job in plan], dtype=np.int64)
    end_s = np.concatenate((ours_end_s, np.maximum(running.end_s, now + 1)))
    sweep = Sweep.of(np.zeros(len(start_s), dtype=np.int64), start_s, end_s)
    total = sweep.level(np.concatenate((ours, theirs)))
    of_plan = sweep.level(np.concatenate((ours, np.zeros_like(theirs))))
    found = []
    for k in sweep.firsts((of_plan > 0) & (total > instance.power.cap)).tolist():
        time = int(sweep.time[k])
        who = [job.id for job in plan if job.start_s <= time < job.end_s]
        text = (
            f"at {time}: {total[k]} W drawn, with {jobs_text(who)}, {instance.power.cap} W allowed"
        )
        found.append(Violation(Kind.POWER, text))
    return found
