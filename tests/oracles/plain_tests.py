"""The plain twin of EASY with test runs, for the trigger instant, written from the rules."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cpdispatch.instance import Instance
from cpdispatch.jobs import Workload
from cpdispatch.system import System
from tests.oracles.plain import (
    Matrix,
    Nodes,
    PlainJob,
    choose,
    fits,
    lowest,
    on_node,
    ranked,
    take,
)
from tests.strategies import Plan, Timetable


@dataclass
class Rules:
    test: int
    tests: str
    primary: str = "fcfs"
    secondary: str = "fcfs"
    threshold: float = math.inf
    best_fit: bool = False
    cost: int = 0


@dataclass
class Testable(PlainJob):
    requested: int = 0
    restartable: bool = False
    testing: bool = False
    """Whether its present start is a test."""
    first_start: int = -1
    """When it started first, if it has just been stopped."""
    home: Nodes | None = None
    lost: tuple[int, int] | None = None
    fate: str = "none"

    def stops(self, test: int) -> int:
        """When its present start ends, one way or the other."""
        return self.start + (min(test, self.runtime) if self.testing else self.runtime)


def replay(
    workload: Workload, system: System, rules: Rules, expected: list[int]
) -> dict[int, tuple[int, Nodes, tuple[int, int] | None, str]]:
    """Start, nodes, lost attempt and fate of the test of each workload row."""
    table = workload.table
    capacity: Matrix = system.capacity.tolist()
    jobs = [
        Testable(
            row, int(table.submit_s[row]), int(table.units[row]),
            tuple(table.request[row].tolist()), expected[row], int(workload.runtime_s[row]),
            requested=int(table.requested_s[row]), restartable=bool(table.restartable[row]),
            tier=int(table.tier[row]),
        )
        for row in range(len(table))
    ]  # fmt: skip
    free = [list(row) for row in capacity]
    waiting = [job for job in jobs if fits(capacity, job)]
    queue: list[Testable] = []
    running: list[Testable] = []
    clearing: list[tuple[int, Testable, Nodes]] = []
    while waiting or running or clearing:
        times = [job.stops(rules.test) for job in running] + [end for end, _, _ in clearing]
        now = min(times + [job.submit for job in waiting[:1]])
        for job in [j for j in running if j.stops(rules.test) == now]:
            running.remove(job)
            take(free, job, job.nodes, 1)
            if job.testing and job.runtime > rules.test:
                stop(job, rules.test)
                queue.append(job)
        for entry in [e for e in clearing if e[0] == now]:
            clearing.remove(entry)
            take(free, entry[1], entry[2], 1)
            queue.append(entry[1])
        while waiting and waiting[0].submit == now:
            queue.append(waiting.pop(0))
        if not queue:
            continue
        queue.sort(key=lambda job: job.row)
        killed: list[Testable] = []
        while True:
            seen = [list(row) for row in free]
            busy: list[tuple[int, Testable, Nodes]] = list(clearing)
            for job in killed:
                assert job.home is not None
                take(seen, job, job.home)
                busy.append((now + rules.cost, job, job.home))
            able = [job for job in queue if job not in killed]
            started = decide(now, seen, capacity, able, running, busy, rules)
            gone = [
                job
                for job in able
                if rules.cost
                and job.home is not None
                and started.get(job.row, ({}, 0))[0] != job.home
            ]
            if not gone:
                break
            killed += gone
        for job in list(queue):
            nodes, testing = started.get(job.row, ({}, False))
            stays = job.home is not None and nodes == job.home
            if job.home is not None and not stays:
                job.lost = (job.first_start, now + rules.cost)
                job.fate, job.restartable = "killed", False
                job.runtime += rules.cost
                job.requested += rules.cost
                job.expected += rules.cost
                if rules.cost:
                    take(free, job, job.home)
                    clearing.append((now + rules.cost, job, job.home))
                    queue.remove(job)
            if nodes:
                job.start, job.nodes, job.testing = now, nodes, testing
                if stays:
                    job.start, job.fate = job.first_start, "went_on"
                elif testing:
                    job.fate = "ended"
                take(free, job, nodes)
                running.append(job)
                queue.remove(job)
            job.home = None
    return {job.row: (job.start, job.nodes, job.lost, job.fate) for job in jobs}


def stop(job: Testable, test: int) -> None:
    """Put it into the queue, on its nodes; what was expected may be known to be wrong."""
    job.first_start, job.home = job.start, job.nodes
    job.start, job.nodes, job.testing = -1, {}, False
    if job.expected <= test:
        job.expected = job.requested


def decide(
    now: int, free: Matrix, capacity: Matrix, queue: list[Testable], running: list[Testable],
    busy: list[tuple[int, Testable, Nodes]], rules: Rules,
) -> dict[int, tuple[Nodes, bool]]:  # fmt: skip
    """Nodes of each job that starts now, by row, and whether it is tested."""
    started: dict[int, tuple[Nodes, bool]] = {}
    begun = [(job.start, job, job.nodes, job.testing) for job in running]

    def testable(job: Testable) -> bool:
        late = now - job.submit > rules.threshold and rules.tests != "turn"
        return job.restartable and job.home is None and not late and job.requested > 2 * rules.test

    def due(job: Testable, testing: bool, where: Matrix) -> int:
        if testing:
            return now + rules.test + rules.cost
        return (job.first_start if is_home_free(job, where) else now) + job.expected

    def is_home_free(job: Testable, where: Matrix) -> bool:
        home = job.home
        return home is not None and all(on_node(where[n], job.ask, u) >= u for n, u in home.items())

    def start(job: Testable, where: Matrix, testing: bool) -> None:
        home, since = job.home, now
        if home is not None and is_home_free(job, where):
            nodes, since = home, job.first_start
        else:
            nodes = choose(where, capacity, job, rules.best_fit)
        take(free, job, nodes)
        started[job.row] = nodes, testing
        begun.append((since, job, nodes, testing))

    def chance(job: Testable) -> float:
        return rules.test / (rules.test + job.expected) if job.expected < job.requested else 0.05

    in_turn: list[Testable] = ranked(queue, rules.primary, now, rules.threshold)  # type: ignore
    if rules.tests == "first":

        def place(job: Testable) -> tuple[float, ...]:
            if now - job.submit > rules.threshold:
                return (0,)
            if rules.primary == "spf":
                short = round(rules.test / math.sqrt(chance(job)))
                return 1, -job.tier, short if testable(job) else job.expected, job.row
            by_chance = (0, -chance(job), job.row) if testable(job) else (1,)
            return (1, -job.tier, *by_chance)

        in_turn.sort(key=place)
    head = None
    for job in in_turn:
        assert isinstance(job, Testable)
        if not fits(free, job):
            head = job
            break
        start(job, free, rules.tests in ("turn", "first") and testable(job))
    if head is None:
        return started

    def is_late(job: Testable) -> bool:
        return now - job.submit > rules.threshold

    def goes_on(job: Testable) -> bool:
        """Whether it comes before the reserved job for sure when its test is over."""
        if is_late(job) != is_late(head):
            return is_late(job)
        if not is_late(job) and job.tier != head.tier:
            return job.tier > head.tier
        return (is_late(job) or rules.primary == "fcfs") and job.row < head.row

    ends: list[tuple[int, Testable, Nodes]] = []
    for end, job, nodes in busy:  # they start anew
        anew = job.expected + (rules.cost if job.home is not None else 0)
        ends.append((end + anew if goes_on(job) else end, job, nodes))
    for since, job, nodes, testing in begun:
        end = max(since + job.expected, now + 1)
        if testing:
            short = since + rules.test + rules.cost
            end = max(short, since + job.expected) if goes_on(job) else short
        ends.append((end, job, nodes))
    later = [list(row) for row in free]
    for shadow in sorted({end for end, _, _ in ends}):
        for end, job, nodes in ends:
            if end == shadow:
                take(later, job, nodes, 1)
        if fits(later, head):
            break
    head.promise = shadow
    take(later, head, choose(later, capacity, head, rules.best_fit))

    able = (job for job in queue if testable(job))
    by_key = sorted(able, key=lambda job: (-job.tier, -chance(job)))
    in_full = ranked(queue, rules.secondary, now, math.inf)  # type: ignore[arg-type]
    passes = [(in_full, False), (by_key, True)]
    for order, testing in passes if rules.tests == "left" else passes[::-1]:
        for job in order:
            assert isinstance(job, Testable)
            if job is head or job.row in started:
                continue
            if due(job, testing, free) <= shadow:
                if fits(free, job):
                    start(job, free, testing)
            else:
                both = lowest([free, later])
                if fits(both, job):
                    start(job, both, testing)
                    take(later, job, started[job.row][0])
    return started


def planned(instance: Instance, plan: Plan, more: int = 60) -> Timetable:
    """What a plan leaves free, for so many seconds after its last end."""
    now, queue = instance.now, instance.queue
    far = max([0, *(start - now + queue[k].expected_s for k, (start, _) in plan.items())])
    table = Timetable(instance, far + more)
    for position, (start, nodes) in plan.items():
        hold(instance, table, position, nodes, start - now, queue[position].expected_s)
    return table


def hold(
    instance: Instance, table: Timetable, position: int, nodes: Nodes, low: int, seconds: int,
    sign: int = 1,
) -> None:  # fmt: skip
    """Take what a job holds from ``low`` on out of a table, or put it back."""
    during = slice(low, low + seconds)
    for node, count in nodes.items():
        request = np.array(instance.queue[position].request)
        table.free[during, node] -= sign * count * request
    table.power[during] -= sign * instance.job_power(instance.queue)[position]


def beside(
    instance: Instance, plan: Plan, order: list[int], test: int, best_fit: bool, promised: bool
) -> dict[int, Nodes]:
    """Nodes of the jobs at these queue positions that can be tested beside a plan, in this order.

    Where starts are ``promised``, a tested job keeps its own though a restart makes it longer. A
    stopped job that does not go on in the plan is killed: its nodes are busy meanwhile.
    """
    cost, queue, now = instance.restart_cost_s, instance.queue, instance.now
    table = planned(instance, plan, 3 * cost + test + 60)
    watts = instance.job_power(queue).tolist()
    stopped = {} if instance.stopped is None else instance.stopped.held()
    for position, (_, home) in stopped.items():
        if cost and plan.get(position, (0, {})) != (now, home):
            hold(instance, table, position, home, 0, cost)
    assert (table.free >= 0).all()

    found: dict[int, Nodes] = {}
    able = []
    for position in order:
        start, nodes = plan.get(position, (now + test + cost, {}))
        if promised and cost and nodes and start > now:
            end = start - now + queue[position].expected_s
            hold(instance, table, position, nodes, end, cost)
            if table.free.min() < 0 or table.power[end : end + cost].min() < 0:
                hold(instance, table, position, nodes, end, cost, -1)
                continue
        if start >= now + test + cost:
            able.append(position)
    free: Matrix = table.free[: test + cost].min(axis=0).tolist()
    left = int(table.power[: test + cost].min())
    for position in able:
        given = queue[position]
        job = PlainJob(position, 0, given.units, tuple(given.request), 0, 0)
        if fits(free, job) and watts[position] <= left:
            found[position] = choose(free, instance.system.capacity.tolist(), job, best_fit)
            take(free, job, found[position])
            left -= watts[position]
    return found
