"""A solution: what is wrong with a plan, and with what it claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cpdispatch.decision import STATUSES
from cpdispatch.instance import Instance, digest
from cpdispatch.jobs import Column
from cpdispatch.solution import Solution, SolvedJob
from cpdispatch.verify.dependencies import depending
from cpdispatch.verify.objectives import OBJECTIVES, objective_value
from cpdispatch.verify.placement import early_start, misplaced
from cpdispatch.verify.plan import Planned, hold, over_time
from cpdispatch.verify.restarts import killed, left_s, wrong_bounds
from cpdispatch.verify.starvation import starving
from cpdispatch.verify.violation import Kind, Violation, jobs_text


def solution(instance: Instance, solution: Solution) -> list[Violation]:
    """What is wrong with a plan and with what it claims.

    Every queued job is named once; every start is allowed, and after the jobs that it depends on;
    at every instant from now on the running jobs, the reservations and the plan fit each node
    (jobs planned without nodes: the system as a whole) and the power cap; a plan that has an
    objective starts no starved job later than its bound though it could start earlier; value,
    bound and status are what they are said to be.
    """
    found: list[Violation] = []
    if solution.instance != (of := digest(instance)):
        text = f"the solution is of {solution.instance[:12]}..., this instance is {of[:12]}..."
        found.append(Violation(Kind.DIGEST, text))
    ids = instance.queue.id.tolist()
    positions = {id: position for position, id in enumerate(ids)}
    running = frozenset(instance.running.jobs.id.tolist())
    starts: dict[int, int] = {}
    plan: list[Planned] = []
    for job in solution.jobs:
        if job.id in running:
            found.append(Violation(Kind.RUNNING_JOB, f"job {job.id} is running already"))
        elif job.id not in positions:
            found.append(Violation(Kind.UNKNOWN_JOB, f"job {job.id} is not in the queue"))
        else:
            position = positions[job.id]
            if job.start is not None:
                starts.setdefault(position, job.start)
            wrong, planned = _solved(instance, position, job)
            found += wrong
            plan += planned
    times = Counter(job.id for job in solution.jobs)
    for id in times:
        if times[id] > 1:
            found.append(Violation(Kind.REPEATED_JOB, f"job {id} is named {times[id]} times"))
    for id in ids:
        if id not in times:
            found.append(Violation(Kind.MISSING_JOB, f"queued job {id} is not named"))
    bounds = {
        positions[job.id]: job.bound
        for job in solution.jobs
        if job.id in positions and job.bound is not None
    }
    found += wrong_bounds(instance, starts, bounds)
    again, busy = killed(instance, starts, {job.position: job.nodes for job in plan})
    found += again
    closing: list[Planned] = []
    for position, held in busy.items():
        column = instance.queue.block[:, position].tolist()
        column[Column.EXPECTED] = instance.restart_cost_s
        closing.append(hold(position, column, instance.now, held))
    found += over_time(instance, plan + closing)
    if instance.dependencies is not None:
        found += depending(instance, starts, plan)
    if instance.starvation is not None and solution.objective:
        found += starving(instance, plan, closing)
    return found + _claims(instance, solution, starts)


def _solved(
    instance: Instance, position: int, job: SolvedJob
) -> tuple[list[Violation], list[Planned]]:
    """What is wrong with one job of a plan; what it holds when nothing is."""
    column = instance.queue.block[:, position].tolist()
    if job.start is None:
        text = f"job {job.id} has nodes and does not start"
        return ([Violation(Kind.PLACEMENT, text)] if job.nodes else []), []
    found = []
    if job.start < max(instance.now, column[Column.SUBMIT]):
        found.append(early_start(instance, position, job.start))
    if job.nodes is not None:
        here, there = list(job.nodes), list(job.nodes.values())
        units, request = column[Column.UNITS], column[Column.REQUEST :]
        nodes, down = len(instance.free), frozenset(instance.down.tolist())
        found += misplaced(job.id, here, there, units, request, nodes, down)
    elif job.start <= instance.now:
        text = f"job {job.id} starts at {job.start} and has no nodes"
        found.append(Violation(Kind.PLACEMENT, text))
    if found:
        return found, []
    if job.bound is not None:
        column[Column.EXPECTED] = job.bound + instance.restart_cost_s
    nodes_of = None if job.nodes is None else dict(job.nodes)
    if (more_s := left_s(instance, position, job.start, nodes_of)) is not None:
        column[Column.EXPECTED] = more_s
    return [], [hold(position, column, job.start, nodes_of)]


def _claims(instance: Instance, solution: Solution, starts: Mapping[int, int]) -> list[Violation]:
    """Whether objective, value, bound and status agree with each other and with the plan."""
    found = []
    value, bound, name = solution.value, solution.bound, solution.objective
    proven = solution.status in ("optimal", "pooled-optimal")
    if solution.status not in STATUSES:
        text = f"{solution.status!r} is not one of {', '.join(STATUSES)}"
        found.append(Violation(Kind.STATUS, text))
    bare = [job.id for job in solution.jobs if job.start is not None and job.nodes is None]
    if solution.status == "optimal" and bare:
        text = f"optimal, with {jobs_text(bare)} planned without nodes: that is pooled-optimal"
        found.append(Violation(Kind.STATUS, text))
    if solution.status in ("infeasible", "unsolved") and starts:
        text = f"{solution.status}, with starts of {len(starts)} jobs: that is no plan"
        found.append(Violation(Kind.STATUS, text))
    if (name and name not in OBJECTIVES) or (not name and value is not None):
        text = f"{name!r} is not one of {', '.join(OBJECTIVES)}"
        found.append(Violation(Kind.OBJECTIVE, text))
    elif value is not None:
        exact = float(objective_value(instance, name, starts))
        # Negated, so that a value that is no number is a violation too.
        if not abs(value - exact) <= 1e-9 * max(1.0, abs(exact)):
            found.append(Violation(Kind.VALUE, f"{name} of the plan is {exact}, stated {value}"))
    if proven and (value is None or bound is None):
        text = f"{solution.status}, without {'a value' if value is None else 'a bound'}"
        found.append(Violation(Kind.STATUS, text))
    elif bound is not None and value is not None:
        if not bound <= value + 1e-9 * max(1.0, abs(value)):
            text = f"the lower bound {bound} lies above the value {value}"
            found.append(Violation(Kind.BOUND, text))
        elif proven and value - bound > 1e-6 * max(1.0, abs(value)):
            text = f"{solution.status}, with a bound of {bound} below the value {value}"
            found.append(Violation(Kind.STATUS, text))
    return found
