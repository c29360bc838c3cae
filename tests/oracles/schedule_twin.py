"""The plain twin of the schedule generator, written from its rules with dictionaries and lists.

Jobs are planned one after the other, each as early as all of its units fit beside those before it.

- Nodes of the same capacity with the same free capacity at all times are one class. The classes
  come in the order of their first nodes, the nodes of a class in ascending order.
- A job's units go to the class whose nodes are fullest during the job: the sum over the resource
  types that a node has of free / capacity, each at its least, is smallest. Among equals that is the
  class that comes first.
- Of a class the first nodes are used, each with as many units as it holds, until none are left;
  the last one may get fewer.
- Nodes that are not used as the others of their class are become a class of their own, the last.

It shares no code with the package but for the instance. Slow and obvious on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cpdispatch.instance import Instance

Plan = dict[int, tuple[int, dict[int, int]]]
"""Start and units by node, by queue position."""


@dataclass(frozen=True)
class Hold:
    """Amounts that are held from a start to an end."""

    start: int
    end: int
    amounts: tuple[int, ...]


@dataclass
class Timeline:
    """What there is, and what is held of it: first by what is given, then by jobs."""

    capacity: tuple[int, ...]
    given: list[Hold]
    placed: list[Hold]

    def free(self, time: int) -> list[int]:
        """Reservations may ask for more than there is: they get no more than is left."""
        left = [max(0, have) for have in without(self.capacity, self.given, time)]
        return without(left, self.placed, time)

    def changes(self) -> set[int]:
        return {time for hold in self.given + self.placed for time in (hold.start, hold.end)}

    def least(self, start: int, end: int) -> list[int]:
        """The least that is free at any time, of each resource type."""
        times = [start, *(time for time in self.changes() if start < time < end)]
        return [min(column) for column in zip(*map(self.free, times), strict=True)]


def without(amounts: Iterable[int], holds: list[Hold], time: int) -> list[int]:
    left = list(amounts)
    for hold in holds:
        if hold.start <= time < hold.end:
            left = [have - held for have, held in zip(left, hold.amounts, strict=True)]
    return left


@dataclass
class NodeClass:
    nodes: list[int]
    line: Timeline


class PlainSearch:
    """Plans jobs of an instance, by their positions in the queue, on some of its nodes."""

    def __init__(self, instance: Instance, nodes: Sequence[int]) -> None:
        self.instance, self.plan = instance, Plan()
        self.classes = classes(instance, nodes)
        self.power = watts_left(instance)

    def put(self, position: int) -> None:
        """Plan a job as early as it fits, by best fit."""
        job, start = self.instance.queue[position], self.earliest(position)
        end = start + job.expected_s
        left, where = job.units, dict[int, int]()
        able = [one for one in self.classes if self.room(position, one, start) > 0]
        able.sort(key=lambda one: fullness(one.line, start, end))  # equals stay in order
        unit, first = self.asks(position)
        if any(first):
            one = next(one for one in able if self.may_be_first(position, one, start))
            node, alone = one.nodes[0], len(one.nodes) == 1
            where[node] = self.room(position, one, start, first)
            left -= where[node]
            held = (where[node] * ask + once for ask, once in zip(unit, first, strict=True))
            self.take(one, [node], Hold(start, end, tuple(held)))
            if alone:
                able.remove(one)
        for one in able:
            room = self.room(position, one, start)
            full = one.nodes[: left // room]
            rest = one.nodes[len(full) : len(full) + 1]
            for nodes, units in ((full, room), (rest, left - room * len(full))):
                if nodes and units:
                    hold = Hold(start, end, tuple(units * ask for ask in unit))
                    self.take(one, nodes, hold)
                    where |= dict.fromkeys(nodes, units)
                    left -= units * len(nodes)
        assert left == 0
        self.power.placed.append(Hold(start, end, (self.watts(position),)))
        self.plan[position] = start, where

    def take(self, one: NodeClass, nodes: list[int], hold: Hold) -> None:
        """Let the first nodes of a class hold something."""
        if len(nodes) < len(one.nodes):
            line = one.line
            one.nodes = one.nodes[len(nodes) :]
            one = NodeClass(nodes, Timeline(line.capacity, line.given, list(line.placed)))
            self.classes.append(one)
        one.line.placed.append(hold)

    def earliest(self, position: int) -> int:
        """The first start that fits; between changes nothing becomes free."""
        ready = self.ready(position)
        changes = self.power.changes().union(*(one.line.changes() for one in self.classes))
        times = [ready, *sorted(time for time in changes if time > ready)]
        return next(time for time in times if self.fits(position, time))

    def ready(self, position: int) -> int:
        """When those that the job comes after have ended long enough ago, and it may start."""
        given = self.instance.dependencies
        if given is None:
            return self.instance.now
        ready = [int(given.earliest_s[position])]
        for before in given.position[given.offset[position] : given.offset[position + 1]].tolist():
            if before in self.plan:
                end = self.plan[before][0] + self.instance.queue[before].expected_s
                ready.append(end + int(given.think_s[position]))
        return max(ready)

    def fits(self, position: int, start: int) -> bool:
        job, watts = self.instance.queue[position], self.watts(position)
        if watts > 0 and watts > self.power.least(start, start + job.expected_s)[0]:
            return False
        return any(self.may_be_first(position, one, start) for one in self.classes)

    def may_be_first(self, position: int, one: NodeClass, start: int) -> bool:
        """Whether the job fits, with a node of this class as its first one."""
        _, first = self.asks(position)
        rooms = [self.room(position, each, start) * len(each.nodes) for each in self.classes]
        here, on_first = (self.room(position, one, start, once) for once in ((), first))
        units = self.instance.queue[position].units
        return on_first > 0 and sum(rooms) - here + on_first >= units

    def asks(self, position: int) -> tuple[list[int], list[int]]:
        """What a job asks for of each unit and once, by resource type."""
        unit = list(self.instance.queue[position].request)
        first = [0] * len(unit)
        for once, of in self.instance.system.once:
            first[of], unit[once] = unit[once], 0
        return unit, first

    def room(self, position: int, one: NodeClass, start: int, first: Sequence[int] = ()) -> int:
        """Units that a node of a class holds during the whole job, at most all of them.

        Beside them it holds ``first``.
        """
        job, (unit, _) = self.instance.queue[position], self.asks(position)
        free = one.line.least(start, start + job.expected_s)
        if first:
            free = [have - once for have, once in zip(free, first, strict=True)]
            if any(have < 0 < once for have, once in zip(free, first, strict=True)):
                return 0
        rooms = (have // ask for have, ask in zip(free, unit, strict=True) if ask > 0)
        return min([job.units, *rooms])

    def watts(self, position: int) -> int:
        job, power = self.instance.queue[position], self.instance.power
        return 0 if power is None else drawn(job.units, job.request, power.unit)


def planned(instance: Instance, nodes: Sequence[int], order: Iterable[int]) -> Plan:
    """The plan of the jobs at these positions in the queue, in this order."""
    search = PlainSearch(instance, nodes)
    for position in order:
        search.put(position)
    return search.plan


def fullness(line: Timeline, start: int, end: int) -> float:
    """Added up in the order of the resource types, as floats: that decides who are equals."""
    total = 0.0
    for free, capacity in zip(line.least(start, end), line.capacity, strict=True):
        if capacity > 0:
            total += free / capacity
    return total


def classes(instance: Instance, nodes: Sequence[int]) -> list[NodeClass]:
    lines = {node: node_line(instance, node) for node in sorted(nodes)}
    times = sorted({instance.now}.union(*(line.changes() for line in lines.values())))
    found: dict[object, NodeClass] = {}
    for node, line in lines.items():
        alike = line.capacity, tuple(tuple(line.free(time)) for time in times)
        found.setdefault(alike, NodeClass([], line)).nodes.append(node)
    return list(found.values())


def node_line(instance: Instance, node: int) -> Timeline:
    """What a node has, without what running jobs and reservations hold from now on."""
    now, running, given = instance.now, instance.running, []
    for k in range(len(running)):
        for e in range(int(running.offset[k]), int(running.offset[k + 1])):
            if running.node[e] == node:
                amounts = tuple(int(running.units[e]) * ask for ask in running.jobs[k].request)
                given.append(Hold(now, int(running.end_s[k]), amounts))
    for reservation in instance.reservations:
        if node in reservation.nodes and reservation.end_s > now:
            begin = max(reservation.start_s, now)
            given.append(Hold(begin, reservation.end_s, reservation.capacity))
    return Timeline(tuple(instance.system.capacity[node].tolist()), given, [])


def watts_left(instance: Instance) -> Timeline:
    """The power cap, without what the running jobs draw; without a cap there is plenty."""
    now, running, power = instance.now, instance.running, instance.power
    if power is None:
        return Timeline((10**18,), [], [])
    given = []
    for k, job in enumerate(running.jobs):
        watts = drawn(job.units, job.request, power.unit)
        given.append(Hold(now, int(running.end_s[k]), (watts,)))
    return Timeline((power.cap,), given, [])


def drawn(units: int, request: Sequence[int], unit: Sequence[int]) -> int:
    return units * sum(ask * watts for ask, watts in zip(request, unit, strict=True))
