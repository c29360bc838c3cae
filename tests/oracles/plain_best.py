"""The plain twin of `best` without off-line evaluation, for the trigger instant."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cpdispatch.best.evaluation import Parameters
from cpdispatch.jobs import Workload
from cpdispatch.system import System
from tests.oracles.plain import Matrix, Nodes, PlainJob, choose, fits, lowest, take


@dataclass
class Cautious(PlainJob):
    requested: int = 0
    upper: int = 0
    lasts: int = 0
    """How long it is taken to last if it starts now."""
    spare: list[int] = field(default_factory=list)
    """What it has to leave free if it starts now."""

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

    def may_start(job: Cautious, where: Matrix, all_free: Matrix) -> bool:
        for r, want in enumerate(job.ask):
            left = sum(row[r] for row in all_free) - job.units * want
            if want and left < job.spare[r]:
                return False
        return fits(where, job)

    def prepare(now: int) -> list[Cautious]:
        strict = any(now - job.submit > parameters.strict_s for job in queue)
        late = [job for job in queue if now - job.submit > parameters.threshold_s]
        for job in queue:
            job.lasts = max(job.expected, job.requested) if strict else job.upper
            job.spare = [int(parameters.keep * have) for have in total]
            sizes = [job.units * want for want in job.ask]
            wide = any(s + k > t for s, k, t in zip(sizes, job.spare, total, strict=True))
            if job in late or wide or job.expected <= parameters.long_s:
                job.spare = [0] * len(total)
        others = [job for job in queue if job not in late]
        others.sort(key=lambda job: (math.sqrt(job.expected * job.upper)
                                     * job.processors**parameters.width))  # fmt: skip
        return late + others

    def dispatch(now: int) -> None:
        order, started = prepare(now), []

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
            for job in order:
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

    while waiting or running:
        ends = [job.start + job.runtime for job in running]
        now = min(ends + [job.submit for job in waiting[:1]])
        for job in [job for job in running if job.start + job.runtime == now]:
            running.remove(job)
            take(free, job, job.nodes, 1)
        while waiting and waiting[0].submit == now:
            queue.append(waiting.pop(0))
        dispatch(now)
    return {job.row: (job.start, job.nodes) for job in jobs}
