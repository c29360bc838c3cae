"""The plain twin of `best` with its bound on waits, for the trigger instant."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from cpdispatch.jobs import Workload
from cpdispatch.system import System
from tests.oracles.plain import Matrix, Nodes, PlainJob, choose, fits, lowest, take
from tests.oracles.plain_shadow import PlainShadow


class Parameters(NamedTuple):
    """Of `Best` and of `WaitBound`; a share of 0 bounds no wait."""

    long_s: int
    keep: float
    width: float
    in_turn_after: int
    wide: int


@dataclass
class Cautious(PlainJob):
    requested: int = 0
    upper: int = 0
    lasts: int = 0
    """How long it is taken to last if it starts now."""
    spare: list[int] = field(default_factory=list)
    """What it has to leave free if it starts now."""
    kept: int = 1000
    """Thousandths that thresholds have for it."""
    need: int = 0
    """Its processors on a pool."""

    @property
    def key(self) -> float:
        return math.sqrt(self.expected * self.upper)

    def planned_end(self, now: int, *, started_now: bool) -> int:
        longest = max(self.expected, self.requested)
        return self.start + self.lasts if started_now else max(self.start + longest, now + 1)


def replay(
    workload: Workload, system: System, parameters: Parameters, predicted: list[tuple[int, int]],
    best_fit: bool,
) -> dict[int, tuple[int, Nodes]]:  # fmt: skip
    """Start and nodes of each workload row; expected and upper durations are given."""
    table = workload.table
    capacity: Matrix = system.capacity.tolist()
    total = [sum(column) for column in zip(*capacity, strict=True)]
    jobs = [
        Cautious(
            row, int(table.submit_s[row]), int(table.units[row]),
            tuple(table.request[row].tolist()), expected, int(workload.runtime_s[row]),
            requested=(requested := int(table.requested_s[row])),
            upper=max(expected, int(math.sqrt(upper * requested))),
        )
        for row, (expected, upper) in enumerate(predicted)
    ]  # fmt: skip
    free = [list(row) for row in capacity]
    waiting = [job for job in jobs if fits(capacity, job)]
    queue: list[Cautious] = []
    running: list[Cautious] = []
    ended: list[Cautious] = []
    easy = PlainShadow(total[0])
    for job in jobs:
        sizes = [
            (job.units * want, max(have, 1)) for want, have in zip(job.ask, total, strict=True)
        ]
        share = min(max(size * 1000 // have for size, have in sizes), 1000)
        job.kept = 1000 - parameters.wide * share // 1000
        job.need = min(max(max(-(-size * total[0] // have) for size, have in sizes), 1), total[0])

    def longest_s(now: int, before: int) -> int:
        for job in ended:
            end = min(max(before, job.start, job.start + job.expected), now)
            easy.ends(job.row, max(end - job.start, 1))
        ended.clear()
        for job in queue:
            if job.row not in easy.jobs:
                easy.submit(job.row, job.submit, job.need, job.requested)
        return easy.follow(now, sum(job.need * (now - job.start) for job in running))

    def may_start(job: Cautious, where: Matrix, all_free: Matrix) -> bool:
        for r, want in enumerate(job.ask):
            left = sum(row[r] for row in all_free) - job.units * want
            if want and left < job.spare[r]:
                return False
        return fits(where, job)

    def prepare(now: int) -> tuple[list[Cautious], list[Cautious]]:
        late: list[Cautious] = []
        overdue: list[Cautious] = []
        strict = False
        if parameters.in_turn_after:
            whole = longest_s(now, easy.now)
            turn = whole * parameters.in_turn_after // 1000
            strict = any(now - job.submit > turn for job in queue)
            late = [job for job in queue if now - job.submit > turn * job.kept // 1000]
            overdue = [job for job in queue if now - job.submit > whole * job.kept // 1000]
        for job in queue:
            job.lasts = max(job.expected, job.requested) if strict else job.upper
            job.spare = [int(parameters.keep * have) for have in total]
            sizes = [job.units * want for want in job.ask]
            wide = any(s + k > t for s, k, t in zip(sizes, job.spare, total, strict=True))
            if job in late or wide or job.expected <= parameters.long_s:
                job.spare = [0] * len(total)
        others = sorted(queue, key=lambda job: job.key * job.processors**parameters.width)
        first, second = (
            front + [job for job in others if job not in front] for front in (late, overdue)
        )
        return first, second

    def dispatch(now: int) -> None:
        order, second = prepare(now)
        started: list[Cautious] = []

        def start(job: Cautious, where: Matrix) -> None:
            job.start, job.nodes = now, choose(where, capacity, job, best_fit)
            take(free, job, job.nodes)
            started.append(job)

        head = None
        for job in order:
            if not may_start(job, free, free):
                head = job
                break
            start(job, free)
        if head is not None:
            ends = [(job.planned_end(now, started_now=job in started), job)
                    for job in running + started]  # fmt: skip
            later = [list(row) for row in free]
            for shadow in sorted({end for end, _ in ends}):
                for end, job in ends:
                    if end == shadow:
                        take(later, job, job.nodes, 1)
                if may_start(head, later, later):
                    break
            take(later, head, choose(later, capacity, head, best_fit))
            for job in second:
                if job is head or job in started:
                    continue
                outlives = now + job.lasts > shadow
                where = lowest([free, later]) if outlives else free
                if may_start(job, where, free):
                    start(job, where)
                    if outlives:
                        take(later, job, job.nodes)
        for job in started:
            running.append(job)
            queue.remove(job)
            if parameters.in_turn_after:
                easy.starts(job.row, now)

    while waiting or running:
        ends = [job.start + job.runtime for job in running]
        now = min(ends + [job.submit for job in waiting[:1]])
        for job in [job for job in running if job.start + job.runtime == now]:
            running.remove(job)
            ended.append(job)
            take(free, job, job.nodes, 1)
        while waiting and waiting[0].submit == now:
            queue.append(waiting.pop(0))
        if queue:
            dispatch(now)
    return {job.row: (job.start, job.nodes) for job in jobs}
