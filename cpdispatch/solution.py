"""The answer to an instance as a file, and in words why a job waits."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.decision import Decision, Placements, Reason
from cpdispatch.errors import InputError
from cpdispatch.files import json_lines, parse_json, read_text, write_bytes
from cpdispatch.instance import Instance, digest, is_number
from cpdispatch.system import LIMIT

FORMAT = "cpdispatch-solution/1"
STATUSES = ("optimal", "feasible", "heuristic", "infeasible", "unsolved")


@dataclass(frozen=True, slots=True)
class SolvedJob:
    """What a solution says of one queued job.

    Attributes
    ----------
    id : int
    start : int or None
        Its start in seconds; None when the solver left it in the queue.
    nodes : mapping of int to int, or None
        Units by node; None for a job without a start, and for a later start that was planned on
        the system's pooled capacity.
    reason : str
        Why it has no start; empty when it has one.
    """

    id: int
    start: int | None
    nodes: Mapping[int, int] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan for an instance, and what is claimed of its quality.

    Attributes
    ----------
    instance : str
        SHA-256 of the canonical instance, see `cpdispatch.instance.digest`.
    model : str
        Registry name of the model or heuristic that found it.
    status : str
        One of `STATUSES`.
    objective : str
        Name of the objective, empty when there was none.
    value : float or None
        The objective over all jobs with a start.
    bound : float or None
        A proven lower bound of it.
    wall_ms, limit_ms : float, float or None
        Time spent and time allowed, milliseconds.
    jobs : tuple of SolvedJob
        Every queued job once.
    """

    instance: str
    model: str
    status: str
    objective: str
    value: float | None
    bound: float | None
    wall_ms: float
    limit_ms: float | None
    jobs: tuple[SolvedJob, ...]


def from_decision(
    instance: Instance, decision: Decision, limit_ms: float | None = None
) -> Solution:
    """The solution that a dispatcher's decision amounts to.

    Parameters
    ----------
    instance : Instance
    decision : Decision
        A dispatcher's answer to it.
    limit_ms : float, optional
        The time that the dispatcher was allowed, milliseconds.
    """
    certificate = decision.certificate
    places = decision.placements.as_dict()
    left = _left(instance, decision)
    jobs = []
    for position, (id, start) in enumerate(
        zip(instance.queue.id.tolist(), decision.start_s.tolist(), strict=True)
    ):
        if start < 0:
            reason = _explain(instance, decision, position, left)
            jobs.append(SolvedJob(id, None, None, reason))
        else:
            jobs.append(SolvedJob(id, start, places.get(position)))
    return Solution(
        digest(instance),
        certificate.model,
        certificate.status,
        certificate.objective,
        certificate.value,
        certificate.bound,
        float(sum(certificate.phases_ms.values())),
        limit_ms,
        tuple(jobs),
    )


# ------------------------------------------------------------------------------------ in words


def explain(instance: Instance, decision: Decision, position: int) -> str:
    """Why a job does not start now, in words for people.

    Parameters
    ----------
    instance : Instance
    decision : Decision
        The answer in which the job does not start at the instance's time.
    position : int
        The job's position in the queue.

    Returns
    -------
    str
        ``waits for gpu`` (what is short once the decision's jobs have started: resource types,
        power, a free combination of them on a node, capacity that a reservation is about to take,
        or only its turn), ``waits for job 12`` that it comes after, ``waits until 1200`` for its
        earliest start, ``reserved from 1200``, or ``does not fit the system: ...``.
    """
    return _explain(instance, decision, position, _left(instance, decision))


def _explain(instance: Instance, decision: Decision, position: int, left: IntArray) -> str:
    start = int(decision.start_s[position])
    if start == instance.now:
        return "starts now"
    system, job = instance.system, instance.queue[position]
    reason = decision.reason[position]
    if reason == Reason.NEVER_FITS:
        asked = ", ".join(
            f"{n} {name}" for n, name in zip(job.request, system.resources, strict=True) if n
        )
        return f"does not fit the system: asks for {job.units} x ({asked})"
    if reason == Reason.RESERVED and start > instance.now:
        return f"reserved from {start}"
    if kept_back := _kept_back(instance, position):
        return f"waits {kept_back}"
    request = np.array(job.request, dtype=np.int64)
    if not _fits(left, request, job.units):
        one_by_one = np.diag(request)
        short = [
            name
            for name, alone in zip(system.resources, one_by_one, strict=True)
            if not _fits(left, alone, job.units)
        ]
        return f"waits for {' and '.join(short) or 'a free node combination'}"
    if int(instance.job_power(instance.queue)[position]) > _power_left(instance, decision):
        return "waits for power"
    kept = _kept(instance, decision, left, instance.now + job.expected_s)
    return f"waits for {'its turn' if _fits(kept, request, job.units) else 'a reservation to end'}"


def _kept_back(instance: Instance, position: int) -> str:
    """For which jobs, or until when, a job must wait whatever is free; empty if it need not."""
    given = instance.dependencies
    if given is None:
        return ""
    running = slice(given.running_offset[position], given.running_offset[position + 1])
    queued = slice(given.offset[position], given.offset[position + 1])
    ids = instance.running.jobs.id[given.running_position[running]].tolist()
    ids += instance.queue.id[given.position[queued]].tolist()
    if ids:
        return f"for job{'s' * (len(ids) > 1)} {', '.join(map(str, sorted(ids)))}"
    earliest_s = int(given.earliest_s[position])
    return f"until {earliest_s}" if earliest_s > instance.now else ""


def _fits(free: IntArray, request: IntArray, units: int) -> bool:
    """Whether so many units find room, each whole on one node."""
    asked = request > 0
    if not asked.any():
        return True
    room = (free[:, asked] // request[asked]).min(axis=1)
    return int(np.clip(room, 0, units).sum()) >= units


def _starting(instance: Instance, decision: Decision) -> tuple[IntArray, IntArray, IntArray]:
    """Queue position, node and units of every entry of a job that starts now."""
    places: Placements = decision.placements
    owner = np.repeat(places.position, np.diff(places.offset))
    now = decision.start_s[owner] == instance.now
    return owner[now], places.node[now], places.units[now]


def _left(instance: Instance, decision: Decision) -> IntArray:
    """Capacity left once the decision's jobs have started, shape (nodes, resources)."""
    owner, node, units = _starting(instance, decision)
    left = instance.free.copy()
    np.subtract.at(left, node, instance.queue.request[owner] * units[:, None])
    return left


def _power_left(instance: Instance, decision: Decision) -> int:
    drawn = instance.job_power(instance.queue)[decision.start_s == instance.now]
    return instance.power_free() - int(drawn.sum())


def _kept(instance: Instance, decision: Decision, left: IntArray, end_s: int) -> IntArray:
    """What of ``left`` stays free until ``end_s`` when coming reservations are honoured."""
    kept, queue, running = left.copy(), instance.queue, instance.running
    owner, node, units = _starting(instance, decision)
    holder = np.repeat(np.arange(len(running)), np.diff(running.offset))
    for time in sorted({r.start_s for r in instance.reservations}):
        if not instance.now < time < end_s:
            continue
        free = instance.system.capacity.copy()
        free[instance.down] = 0
        for r in instance.reservations:
            if r.start_s <= time < r.end_s:
                free[list(r.nodes)] -= np.array(r.capacity, dtype=np.int64)
        on = running.end_s[holder] > time
        held = running.jobs.request[holder[on]] * running.units[on][:, None]
        np.subtract.at(free, running.node[on], held)
        on = instance.now + queue.expected_s[owner] > time
        np.subtract.at(free, node[on], queue.request[owner[on]] * units[on][:, None])
        np.minimum(kept, free, out=kept)
    return kept


# ----------------------------------------------------------------------------------- the files


class _Job(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: int
    start: int | None
    nodes: dict[str, int] | None = None
    reason: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    instance: str
    model: str
    status: str
    objective: str
    value: float | None
    bound: float | None
    wall_ms: float
    limit_ms: float | None
    jobs: list[_Job]


def load(path: str | os.PathLike[str]) -> Solution:
    """Read a solution file (JSON, optionally packed).

    Whether the plan is feasible is for `cpdispatch.verify.solution` to say.

    Raises
    ------
    InputError
        When it cannot be read, has an unknown key, or holds what no solution can; the message
        has the path of the key and what was found there.
    """
    return loads(read_text(path), path)


def loads(content: bytes | str, name: str | os.PathLike[str] = "<solution>") -> Solution:
    """Read a solution from the content of a file, see `load`."""
    read = parse_json(content, _File, "a solution file", name, FORMAT)

    def need(good: bool, field: str, value: object, problem: str) -> None:
        if not good:
            raise InputError(problem, file=name, field=field, value=value)

    sha256 = re.fullmatch("[0-9a-f]{64}", read.instance) is not None
    need(sha256, "instance", read.instance, "not the SHA-256 of an instance (64 hex digits)")
    need(read.status in STATUSES, "status", read.status, f"not one of {', '.join(STATUSES)}")
    need(read.wall_ms >= 0, "wall_ms", read.wall_ms, "negative")
    need(read.limit_ms is None or read.limit_ms > 0, "limit_ms", read.limit_ms, "must be positive")
    for k, job in enumerate(read.jobs):
        field = f"jobs[{k}]"
        need(0 <= job.id <= LIMIT, f"{field}.id", job.id, "no such number in an instance")
        if job.start is None:
            need(job.nodes is None, f"{field}.nodes", job.nodes, "nodes of a job without a start")
            continue
        need(abs(job.start) <= LIMIT, f"{field}.start", job.start, "no time in seconds")
        need(
            not job.reason, f"{field}.reason", job.reason, "a reason to wait for a job that starts"
        )
        for node, units in (job.nodes or {}).items():
            where = f"{field}.nodes.{node}"
            need(is_number(node), where, node, "nodes are numbers")
            need(abs(units) <= LIMIT, where, units, "too many units")
    return Solution(
        read.instance, read.model, read.status, read.objective, read.value, read.bound,
        read.wall_ms, read.limit_ms, tuple(_job(job) for job in read.jobs),
    )  # fmt: skip


def _job(read: _Job) -> SolvedJob:
    nodes = None if read.nodes is None else {int(node): n for node, n in read.nodes.items()}
    return SolvedJob(read.id, read.start, nodes, read.reason)


def to_json(solution: Solution) -> bytes:
    """The content of a solution's file; a reason is written only for a job without a start."""
    jobs = []
    for job in solution.jobs:
        nodes = job.nodes
        written = None if nodes is None else {str(node): nodes[node] for node in sorted(nodes)}
        jobs.append(_Job(job.id, job.start, written, job.reason if job.start is None else ""))
    file = _File(
        FORMAT, solution.instance, solution.model, solution.status, solution.objective,
        solution.value, solution.bound, solution.wall_ms, solution.limit_ms, jobs,
    )  # fmt: skip
    return json_lines(msgspec.to_builtins(file))


def dump(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution file, packed when its name ends in .gz, .xz or .zst."""
    write_bytes(path, to_json(solution))
