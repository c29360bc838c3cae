"""The answer to an instance: a plan, and what is claimed of its quality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cpdispatch.decision import Decision
from cpdispatch.instance import Instance, digest
from cpdispatch.solution.reasons import explain_waiting, left_free


@dataclass(frozen=True, slots=True)
class SolvedJob:
    """What a solution says of one queued job.

    Attributes
    ----------
    start : int or None
        Its start in seconds; None when the solver left it in the queue.
    nodes : mapping of int to int, or None
        Units by node; None for a job without a start, and for a later start that was planned on
        the system's pooled capacity.
    reason : str
        Why it has no start; empty when it has one.
    bound : int or None
        How long it may run, seconds, if it starts now with a bound; None for as long as it takes.
    first_node : int or None
        The first of its nodes, where it takes something once.
    """

    id: int
    start: int | None
    nodes: Mapping[int, int] | None = None
    reason: str = ""
    bound: int | None = None
    first_node: int | None = None


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
        One of `cpdispatch.decision.STATUSES`.
    objective : str
        Name of the objective, empty when there was none.
    value : float or None
        The objective over all jobs with a start.
    bound : float or None
        A proven lower bound of it.
    wall_ms, limit_ms : float, float or None
        Time spent and time allowed, milliseconds; None for a dispatcher without a limit.
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
    decision : Decision
        A dispatcher's answer to it, with which `cpdispatch.verify.decision` finds nothing wrong.
    limit_ms : float, optional
        The dispatcher's time limit, milliseconds; none where it has none.
    """
    certificate = decision.certificate
    places = decision.placements.as_dict()
    left = left_free(instance, decision)
    once = [k for k, _ in instance.system.once]
    jobs = []
    for position, (id, start) in enumerate(
        zip(instance.queue.id.tolist(), decision.start_s.tolist(), strict=True)
    ):
        if start < 0:
            reason = explain_waiting(instance, decision, position, left)
            jobs.append(SolvedJob(id, None, None, reason))
        else:
            bound = None if decision.bound_s is None else int(decision.bound_s[position]) or None
            nodes, first_node = places.get(position), None
            if nodes and instance.queue.request[position, once].any():
                first_node = next(iter(nodes))
            jobs.append(SolvedJob(id, start, nodes, bound=bound, first_node=first_node))
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
