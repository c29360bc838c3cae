"""The plain twin of explanations: second by second, with lists and dictionaries.

It shares no code with the package: it counts what is free on each node at each second from the
tables of a run, as its columns tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cpdispatch.events import Event
from cpdispatch.simulator import Run

REFUSED = ("never_fits", "rejected")


@dataclass
class Held:
    """An attempt at a job."""

    job: int
    start: int
    end: int
    nodes: dict[int, int]
    stop: int
    """When it was stopped, where its nodes were cleared afterwards; else its end."""
    test: bool = False


@dataclass
class Job:
    id: int
    row: int
    submit: int
    start: int
    end: int
    units: int
    request: list[int]
    requested: int
    reason: str
    after: int
    think: int
    expected: int


@dataclass
class Plain:
    """A run as plain lists."""

    capacity: list[list[int]]
    names: list[str]
    jobs: list[Job]
    held: list[Held] = field(default_factory=list)
    down: list[set[int]] = field(default_factory=list)
    """The nodes that are down at each second."""
    windows: list[Event] = field(default_factory=list)
    watts: list[int] = field(default_factory=list)
    """What one of each resource type draws."""
    cap: int | None = None
    """On what jobs draw together."""
    drained: list[set[int]] = field(default_factory=list)
    last: int = 0

    @classmethod
    def of(cls, run: Run) -> Plain:
        system, table = run.system, run.job_table.to_pylist()
        jobs, held = [], []
        for row, each in enumerate(table):
            request = [each[f"request_{name}"] for name in system.resources]
            jobs.append(
                Job(
                    each["id"], row, each["submit"], each["start"], each["end"], each["units"],
                    request, each["requested_s"], each["reason"], each.get("preceding", -1),
                    each.get("think_s", -1), each["expected_s"],
                )
            )  # fmt: skip
            for prefix in ("", "lost_"):
                if each.get(f"{prefix}start", -1) >= 0:
                    nodes = zip(each[f"{prefix}nodes"], each[f"{prefix}node_units"], strict=True)
                    start, end = each[f"{prefix}start"], each[f"{prefix}end"]
                    test = prefix != "" and each.get("test") == "killed"
                    stop = min(end, start + run.about["test_s"]) if test else end
                    held.append(Held(each["id"], start, end, dict(nodes), stop, test))
        for each in [] if run.attempt_table is None else run.attempt_table.to_pylist():
            nodes = zip(each["nodes"], each["node_units"], strict=True)
            end, test = each["end"], each.get("test", False)
            held.append(Held(each["id"], each["start"], end, dict(nodes), end, test))
        found = cls(system.capacity.tolist(), list(system.resources), jobs, held)
        found.watts = list(system.unit_watts)
        if cap := run.about.get("power_cap"):
            found.cap = cap[0][1] - system.idle_total
        found.windows = [event for event in run.happened or () if event.kind == "maintain"]
        events = run.happened or ()
        times = [h.end for h in held] + [j.submit for j in jobs] + [e.time_s for e in events]
        times += run.decision_table.column("time").to_pylist()
        found.last = max(times) + 1
        failed, drained, left = set(), set(), set()
        begins = {"fail": failed, "drain": drained, "leave": left}
        ends = {"repair": failed, "undrain": drained, "join": left}
        for second in range(found.last):
            maintained: set[int] = set()
            for event in events:
                if event.kind == "maintain" and event.time_s <= second < event.until_s:
                    maintained |= set(event.nodes)
                elif event.time_s == second and event.kind in begins:
                    begins[event.kind] |= set(event.nodes)
                elif event.time_s == second and event.kind in ends:
                    ends[event.kind] -= set(event.nodes)
            found.down.append(failed | maintained)
            found.drained.append(drained | left)
        return found

    def job(self, id: int) -> Job:
        return next(job for job in self.jobs if job.id == id)

    def others(self, job: Job, second: int) -> list[Held]:
        return [h for h in self.held if h.job != job.id and h.start <= second < h.end]

    def room(self, job: Job, second: int, only: int | None = None) -> list[int]:
        """How many units fit on each node at a second; of one resource type alone with ``only``."""
        free = [list(row) for row in self.capacity]
        for node in self.down[min(second, self.last - 1)] if self.down else ():
            free[node] = [0] * len(self.names)
        for held in self.others(job, second):
            asked = self.job(held.job).request
            for node, units in held.nodes.items():
                for kind, each in enumerate(asked):
                    free[node][kind] -= units * each
        kinds = [k for k, each in enumerate(job.request) if each and only in (None, k)]
        return [min(max(row[k], 0) // job.request[k] for k in kinds) for row in free]

    def through(self, job: Job, begin: int, seconds: int) -> list[int]:
        """How many units fit on each node through a window, were one to start there."""
        rooms = [self.room(job, second) for second in range(begin, begin + seconds)]
        least = [min(column) for column in zip(*rooms, strict=True)]
        out = self.drained[begin] if begin < self.last else set()
        return [0 if node in out else room for node, room in enumerate(least)]

    def fits(self, job: Job, begin: int, seconds: int) -> int:
        powered = [self.powered(job, second) for second in range(begin, begin + seconds)]
        return min(job.units, sum(self.through(job, begin, seconds)), *powered)

    def draws(self, job: Job) -> int:
        """What a unit of a job draws."""
        return sum(a * w for a, w in zip(job.request, self.watts, strict=True))

    def powered(self, job: Job, second: int) -> int:
        """How many units the power cap leaves watts for."""
        if self.cap is None or not self.draws(job):
            return job.units
        others = [self.job(held.job) for held in self.others(job, second)]
        left = self.cap - sum(other.units * self.draws(other) for other in others)
        return left // self.draws(job)

    def fits_for(self, job: Job, begin: int, most: int) -> int:
        """For how many seconds all units fit from a second on."""
        seconds = 0
        while seconds < most and self.fits(job, begin, seconds + 1) == job.units:
            seconds += 1
        return seconds

    def lacking(self, job: Job, second: int) -> tuple[str, ...] | None:
        """Of which resource types too little is free at a second; None when the job fits."""
        if self.fits(job, second, 1) == job.units:
            return None
        out = self.drained[second] if second < self.last else set()
        short = []
        for kind, name in enumerate(self.names):
            if job.request[kind]:
                room = self.room(job, second, only=kind)
                if sum(r for node, r in enumerate(room) if node not in out) < job.units:
                    short.append(name)
        return tuple(short) or ("a free node combination",)

    def ahead(self, job: Job, second: int) -> list[Event]:
        """The windows that are known at a second, and into which the job is expected to run."""
        until = second + max(job.expected, 1)
        return [w for w in self.windows if w.known_s <= second < w.time_s < until]

    def clear(self, job: Job, second: int) -> int:
        """How many units fit at a second on nodes where it is not expected to meet a window."""
        met = {node for window in self.ahead(job, second) for node in window.nodes}
        room = self.through(job, second, 1)
        return min(job.units, sum(r for node, r in enumerate(room) if node not in met))

    def ready(self, job: Job, start: int) -> int:
        """From when on a job need not wait for the one that it comes after."""
        before = [j for j in self.jobs[: job.row] if job.after >= 0 and j.id == job.after]
        if not before or (before[0].end < 0 and before[0].reason in REFUSED):
            return job.submit
        if before[0].end < 0:
            return start
        return min(start, max(job.submit, before[0].end + max(job.think, 0)))

    def waits(self, job: Job, second: int) -> bool:
        """Whether a job waits after the dispatch of a second."""
        if job.reason in REFUSED or job.submit > second:
            return False
        return not any(h.job == job.id and h.start <= second for h in self.held) or (
            not any(h.job == job.id and h.start <= second < h.end for h in self.held)
            and (job.start < 0 or job.start > second)
        )

    def placed(self, job: Job, begin: int, seconds: int, units: int) -> dict[int, int]:
        """So many units on nodes, first fit, through a window; as many as fit if they do not."""
        nodes: dict[int, int] = {}
        for node, room in enumerate(self.through(job, begin, seconds)):
            take = min(room, units - sum(nodes.values()))
            if take > 0:
                nodes[node] = take
        return nodes
