"""The simulated cluster in plain Python: lists of jobs, and one node after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cpdispatch.decision import Decision
from cpdispatch.instance import Instance
from cpdispatch.jobs import Job, Workload
from cpdispatch.system import System

STEPS_S = [60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000]


@dataclass
class Run:
    """A job that runs."""

    job: Job
    start_s: int
    due_s: int
    end_s: int
    nodes: list[tuple[int, int]]
    overdue: bool = False
    corrections: int = 0


@dataclass
class PlainCluster:
    """Queue, running jobs and what is free; dispatched once an instant, when jobs wait."""

    workload: Workload
    system: System
    correction: str
    expected_s: list[int]
    now: int = 0
    queue: list[int] = field(default_factory=list)
    running: list[Run] = field(default_factory=list)
    waits: dict[int, list[int]] = field(default_factory=dict)
    to_come: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.jobs = list(self.workload.table)
        self.to_come = [row for row, job in enumerate(self.jobs) if self._fits(job)]

    def _fits(self, job: Job) -> bool:
        room = 0
        for capacity in self.system.capacity.tolist():
            asked = [has // asks for has, asks in zip(capacity, job.request, strict=True) if asks]
            room += min([*asked, job.units])
        return room >= job.units

    def go_on(self) -> bool:
        """Go to the next instant at which jobs wait; False when there is none any more."""
        while self.to_come or self.running:
            comes = [self.jobs[row].submit_s for row in self.to_come[:1]]
            self.now = min(comes + [run.end_s for run in self.running])
            self.running = [run for run in self.running if run.end_s > self.now]
            while self.to_come and self.jobs[self.to_come[0]].submit_s <= self.now:
                self.queue.append(self.to_come.pop(0))
            if self.queue:
                return True
        return False

    def seen(self) -> dict[str, Any]:
        """What a dispatcher sees now; expected ends that have passed are corrected."""
        for run in self.running:
            if run.due_s <= self.now:
                self._correct(run)
        free = [list(node) for node in self.system.capacity.tolist()]
        for run in self.running:
            for node, units in run.nodes:
                for r, asks in enumerate(run.job.request):
                    free[node][r] -= units * asks
        queued = [
            (self.jobs[row].id, self.jobs[row].units, self.expected_s[row], self._usual_wait(row))
            for row in self.queue
        ]
        running = [
            (run.job.id, run.start_s, run.due_s, run.overdue, run.nodes) for run in self.running
        ]
        return {"now": self.now, "free": free, "queue": queued, "running": running}

    def _correct(self, run: Run) -> None:
        limit_s = run.start_s + run.job.requested_s
        if self.correction == "minimal" or limit_s <= self.now:
            run.due_s, run.overdue = self.now + 1, True
        elif self.correction == "requested":
            run.due_s = limit_s
        else:
            while run.due_s <= self.now:
                step_s = STEPS_S[min(run.corrections, len(STEPS_S) - 1)]
                run.due_s, run.corrections = min(run.due_s + step_s, limit_s), run.corrections + 1

    def _usual_wait(self, row: int) -> int:
        waits = self.waits.get(self.jobs[row].queue, [])
        return max(sum(waits) // max(len(waits), 1), 1)

    def apply(self, decision: Decision) -> None:
        """Let the jobs start that a decision starts now, in the order of its placements."""
        places = decision.placements.as_dict()
        rows = list(self.queue)
        for position, nodes in places.items():
            row = rows[position]
            job = self.jobs[row]
            self.waits.setdefault(job.queue, []).append(self.now - job.submit_s)
            end_s = self.now + int(self.workload.runtime_s[row])
            due_s = self.now + self.expected_s[row]
            self.running.append(Run(job, self.now, due_s, end_s, list(nodes.items())))
            self.queue.remove(row)


def as_seen(instance: Instance) -> dict[str, Any]:
    """The same of an instance."""
    queue, running = instance.queue, instance.running
    queued = [
        queue.id.tolist(), queue.units.tolist(), queue.expected_s.tolist(),
        queue.ewt_s.tolist(),
    ]  # fmt: skip
    held = []
    for k in range(len(running)):
        part = slice(running.offset[k], running.offset[k + 1])
        nodes = zip(running.node[part].tolist(), running.units[part].tolist(), strict=True)
        held.append(list(nodes))
    ran = [
        running.jobs.id.tolist(), running.start_s.tolist(), running.end_s.tolist(),
        [bool(each) for each in running.overdue.tolist()], held,
    ]  # fmt: skip
    return {
        "now": instance.now, "free": instance.free.tolist(),
        "queue": list(zip(*queued, strict=True)), "running": list(zip(*ran, strict=True)),
    }  # fmt: skip
