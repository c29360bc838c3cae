"""Limits kept by adding everything up again at each instant; jobs start in order of submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cpdispatch.system import Limit


@dataclass(frozen=True)
class PlainJob:
    submit_s: int
    runtime_s: int
    cores: int
    user: str
    queue: str
    partition: str = ""
    licences: str = ""
    array: str = ""
    array_limit: int = 0


def counts(limit: Limit, job: PlainJob) -> dict[str, int]:
    """What a job counts in a limit, by the value that it counts for."""
    amount = 1 if limit.of == "jobs" else job.cores
    if not limit.per:
        return {"": amount}
    values = str(getattr(job, limit.per)).split(",")
    return {v: amount for v in values if v and limit.name in ("", v)}


def licences_of(job: PlainJob) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in job.licences.split():
        name, _, many = part.partition(":")
        found[name] = found.get(name, 0) + int(many or 1)
    return found


def has_room(
    limits: Sequence[Limit], job: PlainJob, others: Sequence[PlainJob],
    licences: Mapping[str, int] = MappingProxyType({}),
) -> bool:  # fmt: skip
    for name, many in licences_of(job).items():
        if many + sum(licences_of(o).get(name, 0) for o in others) > licences[name]:
            return False
    if job.array_limit and 1 + sum(o.array == job.array for o in others) > job.array_limit:
        return False
    for limit in limits:
        for value, amount in counts(limit, job).items():
            if amount + sum(counts(limit, o).get(value, 0) for o in others) > limit.most:
                return False
    return True


def starts(
    limits: Sequence[Limit], jobs: Sequence[PlainJob], cores: int,
    licences: Mapping[str, int] = MappingProxyType({}),
) -> list[int]:  # fmt: skip
    """Start of each job on a pool, seconds; -1 of those that never run. Jobs by submission."""
    return passes(limits, jobs, cores, licences)[0]


def passes(
    limits: Sequence[Limit], jobs: Sequence[PlainJob], cores: int,
    licences: Mapping[str, int] = MappingProxyType({}),
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Start of each job on a pool, and when its limits had room for it; -1 for never."""
    start, passed = [-1] * len(jobs), [-1] * len(jobs)
    coming = [
        k for k, job in enumerate(jobs)
        if job.cores <= cores and has_room(limits, job, [], licences)
    ]  # fmt: skip
    behind: list[int] = []
    offered: list[int] = []
    running: list[int] = []
    while coming or behind or offered or running:
        ends = [start[k] + jobs[k].runtime_s for k in running]
        now = min(ends + [jobs[k].submit_s for k in coming])
        running = [k for k, end in zip(running, ends, strict=True) if end > now]
        behind = sorted(behind + [k for k in coming if jobs[k].submit_s == now])
        coming = [k for k in coming if jobs[k].submit_s > now]
        for k in list(behind):
            if has_room(limits, jobs[k], [jobs[o] for o in running + offered], licences):
                behind.remove(k)
                offered = sorted([*offered, k])
                passed[k] = now
        while offered and sum(jobs[k].cores for k in [*running, offered[0]]) <= cores:
            start[offered[0]] = now
            running.append(offered.pop(0))
    return start, passed


@dataclass
class PlainGate:
    """A gate that tries every job behind it, in ascending order, each time."""

    claims: Sequence[Mapping[int, int]]
    """What each job takes of which counter."""
    left: list[int]
    behind: list[int] = field(default_factory=list)

    def come(self, job: int) -> None:
        self.behind.append(job)

    def give_back(self, job: int) -> None:
        for counter, amount in self.claims[job].items():
            self.left[counter] += amount

    def let_pass(self) -> list[int]:
        passed = []
        for job in sorted(self.behind):
            claims = self.claims[job]
            if all(self.left[counter] >= amount for counter, amount in claims.items()):
                for counter, amount in claims.items():
                    self.left[counter] -= amount
                passed.append(job)
                self.behind.remove(job)
        return passed
