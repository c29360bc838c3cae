"""Solution files: a solution as JSON, read and written."""

from __future__ import annotations

import os
import re

import msgspec

from cpdispatch.decision import STATUSES
from cpdispatch.errors import InputError
from cpdispatch.files import json_lines, parse_json, read_text, write_bytes
from cpdispatch.instance import is_number
from cpdispatch.solution.answer import Solution, SolvedJob
from cpdispatch.system import LIMIT

FORMAT = "cpdispatch-solution/1"


class _Job(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    id: int
    start: int | None
    nodes: dict[str, int] | None = None
    reason: str = ""
    bound: int | None = None
    first_node: int | None = None


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
            need(job.bound is None, f"{field}.bound", job.bound, "a bound of a job without a start")
            continue
        if job.bound is not None:
            need(0 < job.bound <= LIMIT, f"{field}.bound", job.bound, "no bound in seconds")
        need(abs(job.start) < 2**62, f"{field}.start", job.start, "not a time in seconds")
        need(
            not job.reason, f"{field}.reason", job.reason, "a reason to wait for a job that starts"
        )
        if job.first_node is not None:
            known = str(job.first_node) in (job.nodes or {})
            need(known, f"{field}.first_node", job.first_node, "none of its nodes")
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
    if nodes is not None and read.first_node is not None:
        nodes = {read.first_node: nodes[read.first_node], **nodes}
    return SolvedJob(read.id, read.start, nodes, read.reason, read.bound, read.first_node)


def to_json(solution: Solution) -> bytes:
    """The content of a solution's file; a reason is written only for a job without a start."""
    jobs = []
    for job in solution.jobs:
        nodes = job.nodes
        written = None if nodes is None else {str(node): nodes[node] for node in sorted(nodes)}
        reason = job.reason if job.start is None else ""
        jobs.append(_Job(job.id, job.start, written, reason, job.bound, job.first_node))
    file = _File(
        FORMAT, solution.instance, solution.model, solution.status, solution.objective,
        solution.value, solution.bound, solution.wall_ms, solution.limit_ms, jobs,
    )  # fmt: skip
    return json_lines(msgspec.to_builtins(file))


def dump(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution file, packed when its name ends in .gz, .xz or .zst."""
    write_bytes(path, to_json(solution))
