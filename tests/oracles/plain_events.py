"""The plain twin of EASY on nodes that fail and come back, job by job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from cpdispatch.events import CAPACITY, DRAIN, FAIL, LEAVE, MAINTAIN, REPAIR, UNDRAIN, Event
from cpdispatch.jobs import Workload
from cpdispatch.system import System
from tests.oracles.plain import Matrix, Nodes, PlainJob, choose, fits, lowest, take

REQUEUES = 5


@dataclass
class Attempted(PlainJob):
    """A job that a failed node may stop; ``lost`` has the attempts that it was stopped in."""

    may_requeue: bool = True
    lost: list[tuple[int, int, Nodes]] = field(default_factory=list)
    end: int = -1
    failed: bool = False
    period: int = 0


def replay(
    workload: Workload, system: System, events: list[Event], requeue: list[bool],
    checkpoints: tuple[int, int] | None = None,
) -> list[Attempted]:  # fmt: skip
    """What became of each job under EASY, requested times expected; instants, first fit.

    ``checkpoints`` says after how long a job writes one, and how long that takes.
    """
    table = workload.table
    jobs = [
        Attempted(
            row, int(table.submit_s[row]), int(table.units[row]),
            tuple(table.request[row].tolist()), int(table.requested_s[row]),
            int(workload.runtime_s[row]), may_requeue=requeue[row],
        )
        for row in range(len(table))
    ]  # fmt: skip
    for job in jobs if checkpoints else ():
        job.period = sum(checkpoints or ())
        job.expected, job.runtime = (
            whole + len(range(checkpoints[0], whole, checkpoints[0])) * checkpoints[1]
            for whole in (job.expected, job.runtime)
        )
    capacity: Matrix = system.capacity.tolist()
    coming = [job for job in jobs if fits(capacity, job)]
    happening = list(events)
    down: set[int] = set()
    drained: set[int] = set()
    left: set[int] = set()
    windows = [event for event in events if event.kind == MAINTAIN]
    turns = sorted({t for w in windows for t in (w.known_s, w.until_s)} - {0})
    queue: list[Attempted] = []
    running: list[Attempted] = []
    while coming or running or (queue and (happening or turns)):
        now = int(
            min(
                min((j.start + j.runtime for j in running), default=math.inf),
                coming[0].submit if coming else math.inf,
                happening[0].time_s if happening else math.inf,
                turns[0] if turns else math.inf,
            )
        )
        for job in [j for j in running if j.start + j.runtime == now]:
            running.remove(job)
            job.end = now
        turns = [t for t in turns if t > now]
        while happening and happening[0].time_s == now:
            event = happening.pop(0)
            if event.kind == FAIL:
                down.update(event.nodes)
            if event.kind in (FAIL, MAINTAIN):
                for job in [j for j in running if set(j.nodes) & set(event.nodes)]:
                    running.remove(job)
                    stop(job, now, queue)
            elif event.kind == CAPACITY:
                for node in event.nodes:
                    for name, amount in event.capacity:
                        capacity[node][system.resources.index(name)] = amount
                left_over = [list(row) for row in capacity]
                for job in sorted(running, key=lambda job: job.start):
                    here = {n: units for n, units in job.nodes.items() if n in event.nodes}
                    beside = [list(row) for row in left_over]
                    take(beside, job, here)
                    if min(min(beside[n]) for n in [*here, *event.nodes]) >= 0:
                        left_over = beside
                    else:
                        running.remove(job)
                        stop(job, now, queue)
            elif event.kind == REPAIR:
                down.difference_update(event.nodes)
            elif event.kind == DRAIN:
                drained.update(event.nodes)
            elif event.kind == UNDRAIN:
                drained.difference_update(event.nodes)
            elif event.kind == LEAVE:
                left.update(event.nodes)
            else:
                left.difference_update(event.nodes)
        while coming and coming[0].submit == now:
            queue.append(coming.pop(0))
        queue.sort(key=lambda job: job.row)
        out = down | drained | left
        known = [w for w in windows if w.known_s <= now < w.until_s]
        known = [w for w in known if set(w.nodes) - out]
        starts = (
            around(now, capacity, out, known, queue, running)
            if known
            else started(now, capacity, out, queue, running)
        )
        for job in starts:
            queue.remove(job)
            running.append(job)
    return jobs


def stop(job: Attempted, now: int, queue: list[Attempted]) -> None:
    """A node fails under a job."""
    if job.may_requeue and len(job.lost) < REQUEUES:
        job.lost.append((job.start, now, job.nodes))
        kept = (now - job.start) // job.period * job.period if job.period else 0
        job.runtime -= kept
        job.expected = max(job.expected - kept, 1)
        job.start, job.nodes = -1, {}
        queue.append(job)
    else:
        job.end, job.failed = now, True


def started(
    now: int, capacity: Matrix, down: set[int], queue: list[Attempted], running: list[Attempted]
) -> list[Attempted]:
    """The jobs that start: a job that does not fit the nodes in service blocks nobody."""
    there = [[0] * len(row) if n in down else list(row) for n, row in enumerate(capacity)]
    free = [list(row) for row in there]
    for job in running:
        take(free, job, {n: units for n, units in job.nodes.items() if n not in down})
    found: list[Attempted] = []
    head, later, shadow = None, free, now

    def start(job: Attempted, where: Matrix) -> None:
        job.start, job.nodes = now, choose(where, capacity, job, False)
        take(free, job, job.nodes)
        found.append(job)

    for job in queue:
        if head is None:
            if fits(free, job):
                start(job, free)
            elif fits(there, job):
                head = job
                later, shadow = at_shadow(now, free, down, head, running + found)
                take(later, head, choose(later, capacity, head, False))
        elif now + job.expected <= shadow:
            if fits(free, job):
                start(job, free)
        elif fits(both := lowest([free, later]), job):
            start(job, both)
            take(later, job, job.nodes)
    for job in queue:
        # Those in front of the reserved one that could not start may fit beside others no more.
        assert job in found or head is not None or not fits(free, job)
    return found


def around(
    now: int,
    capacity: Matrix,
    down: set[int],
    windows: list[Event],
    queue: list[Attempted],
    running: list[Attempted],
) -> list[Attempted]:
    """The jobs that start beside maintenance: each holds its nodes in a plan of what is to come."""
    held = [(job, job.nodes, now, job.expected_end(now)) for job in running]
    ended: set[int] = {t for w in windows for t in (w.time_s, w.until_s)}

    def left_at(time: int) -> Matrix:
        out = down | {n for w in windows if w.time_s <= time < w.until_s for n in w.nodes}
        free = [list(row) for row in capacity]
        for job, nodes, begin, end in held:
            if begin <= time < end:
                take(free, job, nodes)
        return [[0] * len(row) if n in out else row for n, row in enumerate(free)]

    def instants() -> list[int]:
        times = {now} | ended | {t for _, _, begin, end in held for t in (begin, end)}
        return sorted(t for t in times if t >= now)

    def over(begin: int, job: Attempted) -> Matrix:
        inside = [t for t in instants() if begin < t < begin + job.expected]
        return lowest([left_at(t) for t in [begin, *inside]])

    found: list[Attempted] = []
    reserved = False
    for job in queue:
        times = [now] if reserved else instants()
        begin = next((t for t in times if fits(over(t, job), job)), None)
        if begin is None:
            continue
        nodes = choose(over(begin, job), capacity, job, False)
        held.append((job, nodes, begin, begin + job.expected))
        if begin == now:
            job.start, job.nodes = now, nodes
            found.append(job)
        else:
            reserved = True
    return found


def at_shadow(
    now: int, free: Matrix, down: set[int], head: Attempted, running: list[Attempted]
) -> tuple[Matrix, int]:
    """What is free when the blocked job fits, and from when on it does."""
    later = [list(row) for row in free]
    for end in sorted({job.expected_end(now) for job in running}):
        for job in running:
            if job.expected_end(now) == end:
                take(later, job, {n: u for n, u in job.nodes.items() if n not in down}, 1)
        if fits(later, head):
            return later, end
    raise AssertionError("the job fits the nodes in service")


def expected_everywhere(jobs: list[Attempted]) -> np.ndarray:
    """Starts, ends, and how often each job was queued again, shape (3, jobs)."""
    return np.array([[j.start for j in jobs], [j.end for j in jobs], [len(j.lost) for j in jobs]])
