"""The best plan on the nodes by trying them all: slow, plain, and written without the models.

A plan is a start and a placement (units by node) for each job. Why it is enough to try, for every
order of the jobs and every placement, each job in turn at the first second from which its placement
is free for its whole duration, no earlier than the job before it:

Take a best plan, and its jobs by start. Move each in turn to the first second from which its nodes
are free beside the jobs before it; where it stands is such a second, so none moves later. A job
that moves earlier meets no later job: those start no earlier than it did, and whatever part of its
new time lies behind that start was its own already. This holds whatever the nodes have free over
time. The objectives never grow when a job starts earlier, so the moved plan is a best one too; and
when no job can be moved any more, every job stands at the first second in the order of the starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from cpdispatch import verify
from cpdispatch.arrays import IntArray
from cpdispatch.instance import Instance
from cpdispatch.jobs import Job
from tests.models.pool_twin import horizon
from tests.strategies import LONGEST_S, Plan, Timetable


def placements(room: Sequence[int], units: int) -> Iterator[dict[int, int]]:
    """All ways to spread units over nodes with room for so many each."""

    def spread(node: int, left: int) -> Iterator[dict[int, int]]:
        if left == 0:
            yield {}
        elif node < len(room):
            for here in range(min(room[node], left), -1, -1):
                for rest in spread(node + 1, left - here):
                    yield {node: here, **rest} if here else rest

    return spread(0, units)


def possible(instance: Instance) -> list[int]:
    """Positions of the jobs that fit the empty nodes in service."""
    fits = []
    watts = instance.job_power(instance.queue).tolist()
    for position, job in enumerate(instance.queue):
        enough = instance.power is None or watts[position] <= instance.power.cap
        if enough and any(ways(instance, job)):
            fits.append(position)
    return fits


def _room(instance: Instance, request: Sequence[int], units: int) -> list[int]:
    down = instance.down.tolist()
    return [
        0 if node in down
        else min([units, *(have // ask for have, ask in zip(row, request, strict=True) if ask)])
        for node, row in enumerate(instance.system.capacity.tolist())
    ]  # fmt: skip


def ways(instance: Instance, job: Job) -> Iterator[dict[int, int]]:
    """All placements of a job; of one that takes something once, with each first node."""
    capacity = instance.system.capacity
    once = [k for k, _ in instance.system.once]
    for where in placements(_room(instance, job.request, job.units), job.units):
        for node in where if any(job.request[k] for k in once) else list(where)[:1]:
            way = {node: where[node], **where}
            if (need(instance, job, way) <= capacity[list(way)]).all():
                yield way


def need(instance: Instance, job: Job, where: dict[int, int]) -> IntArray:
    """What a job holds on each of its nodes, of which the first one is named first."""
    found = np.array(list(where.values()))[:, None] * np.array(job.request)
    for once, of in instance.system.once:
        found[:, once] = 0
        found[0, of] += job.request[once]
    return found


class _Tree:
    """Depth-first over the next job and its placement, in the order of the starts."""

    def __init__(
        self, instance: Instance, chosen: Sequence[int], objective: str,
        accept: Callable[[Plan], bool],
    ) -> None:  # fmt: skip
        table = Timetable(instance, horizon(instance))
        self.instance, self.objective, self.accept = instance, objective, accept
        self.free, self.power = table.free, table.power
        self.watts = instance.job_power(instance.queue).tolist()
        self.jobs = {position: instance.queue[position] for position in chosen}
        self.ways = {position: list(ways(instance, job)) for position, job in self.jobs.items()}
        self.known: dict[tuple[int, int], Fraction] = {}
        self.best: Fraction | None = None
        self.plan: Plan = {}

    def cost(self, position: int, second: int) -> Fraction:
        key = position, second
        if key not in self.known:
            start = {position: self.instance.now + second}
            self.known[key] = verify.objective_value(self.instance, self.objective, start)
        return self.known[key]

    def earliest(self, position: int, where: dict[int, int], first: int) -> int:
        """First second from which the nodes are free for the whole duration."""
        need, watts = self.need(position, where), self.watts[position]
        bad = (self.free[:, list(where)] < need).any(axis=(1, 2))
        if watts:
            bad |= self.power < watts
        count = np.concatenate(([0], np.cumsum(bad)))
        duration = self.jobs[position].expected_s
        return first + int(np.argmax(count[first + duration :] == count[first:-duration]))

    def need(self, position: int, where: dict[int, int]) -> IntArray:
        return need(self.instance, self.jobs[position], where)

    def take(self, position: int, where: dict[int, int], second: int, sign: int) -> None:
        end = second + self.jobs[position].expected_s
        self.free[second:end, list(where)] -= sign * self.need(position, where)
        self.power[second:end] -= sign * self.watts[position]

    def search(self, plan: Plan, spent: Fraction, last: tuple[int, int]) -> None:
        left = [position for position in self.jobs if position not in plan]
        children, bound = [], spent
        for position in left:
            ways = [(self.earliest(position, w, last[0]), position, w) for w in self.ways[position]]
            bound += self.cost(position, min(second for second, _, _ in ways))
            children += [way for way in ways if way[:2] > last]
        if self.best is not None and bound >= self.best:
            return
        if not left:
            if self.accept(plan):
                self.best, self.plan = bound, dict(plan)
            return
        for second, position, where in sorted(children, key=lambda child: child[:2]):
            self.take(position, where, second, 1)
            plan[position] = self.instance.now + second, where
            self.search(plan, spent + self.cost(position, second), (second, position))
            del plan[position]
            self.take(position, where, second, -1)


def best_plan(
    instance: Instance, chosen: Sequence[int], objective: str,
    accept: Callable[[Plan], bool] = lambda plan: True,
) -> tuple[Fraction, Plan] | None:  # fmt: skip
    """A plan of these jobs that no other undercuts, of those that are accepted; None without."""
    tree = _Tree(instance, chosen, objective, accept)
    tree.search({}, Fraction(0), (0, -1))
    return None if tree.best is None else (tree.best, tree.plan)


def second_by_second(
    instance: Instance, chosen: Sequence[int], objective: str, latest: int = 45
) -> Fraction | None:
    """The least value of all starts up to so many seconds from now, and of all placements."""
    table = Timetable(instance, latest + LONGEST_S + 1)
    watts = instance.job_power(instance.queue).tolist()
    nodes = instance.system.nodes
    best: Fraction | None = None
    jobs = [instance.queue[position] for position in chosen]
    spreads = [list(placements([job.units] * nodes, job.units)) for job in jobs]
    for offsets in product(range(latest + 1), repeat=len(chosen)):
        starts = {p: instance.now + t for p, t in zip(chosen, offsets, strict=True)}
        value = verify.objective_value(instance, objective, starts)
        if best is not None and value >= best:
            continue
        power = table.power.copy()
        for position, job, t in zip(chosen, jobs, offsets, strict=True):
            if watts[position]:
                power[t : t + job.expected_s] -= watts[position]
        spent = (power < table.power) & (power < 0)
        if spent.any():
            continue
        for wheres in product(*spreads):
            left = table.free.copy()
            for job, t, where in zip(jobs, offsets, wheres, strict=True):
                for node, units in where.items():
                    left[t : t + job.expected_s, node] -= units * np.array(job.request)
            if (left >= 0).all():
                best = value
                break
    return best
