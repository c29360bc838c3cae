"""Queue rules and jobs that depend on others: a rule sees only the jobs that may start now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TypeVar

import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.decision import NO_BOUND, NO_START, Decision, Reason
from cpdispatch.heuristics.test_runs import clearing
from cpdispatch.instance import Dependencies, Instance

Rule = TypeVar("Rule")


def eligible_only(
    dispatch: Callable[[Rule, Instance], Decision],
) -> Callable[[Rule, Instance], Decision]:
    """Make a rule's ``dispatch`` see only the jobs that may start now; the others wait.

    As in Slurm, a job whose dependencies are not met delays no other job and has no reservation.
    """

    @wraps(dispatch)
    def of_eligible(rule: Rule, instance: Instance) -> Decision:
        if instance.dependencies is None:
            return dispatch(rule, instance)
        positions = np.flatnonzero(instance.eligible())
        queue = instance.queue.take(positions)
        stopped = None if instance.stopped is None else instance.stopped.among(positions)
        seen = replace(instance, queue=queue, dependencies=None, stopped=stopped)
        return _of_whole_queue(dispatch(rule, seen), positions, len(instance.queue))

    return of_eligible


def cleared_first(
    dispatch: Callable[[Rule, Instance], Decision],
) -> Callable[[Rule, Instance], Decision]:
    """Make a ``dispatch`` that lets no stopped job go on leave the nodes of these jobs alone.

    Where killing takes time, they are busy meanwhile, and the jobs start later.
    """

    @wraps(dispatch)
    def of_cleared(rule: Rule, instance: Instance) -> Decision:
        busy = clearing(instance)
        if busy.stopped is None or busy is instance:
            return dispatch(rule, instance)
        later_s = np.full(len(instance.queue), instance.now, dtype=np.int64)
        later_s[busy.stopped.position] += instance.restart_cost_s
        return dispatch(rule, replace(busy, dependencies=not_before(instance, later_s)))

    return of_cleared


def not_before(instance: Instance, earliest_s: IntArray) -> Dependencies:
    """What queued jobs wait for, if they may not start before these times, shape (queued,)."""
    given = instance.dependencies
    if given is None:
        none, thinks_s = np.empty((2, 0), dtype=np.int64), np.zeros_like(earliest_s)
        end_s = instance.running.end_s
        return Dependencies.of(instance.now, end_s, earliest_s, thinks_s, none, none)
    return replace(
        given,
        earliest_s=sealed(np.maximum(given.earliest_s, earliest_s)),
        stated_s=sealed(np.maximum(given.stated_s, earliest_s)),
    )


def _of_whole_queue(decision: Decision, positions: IntArray, jobs: int) -> Decision:
    """The decision for all jobs of a queue, from the decision for the jobs at these positions."""
    start_s = np.full(jobs, NO_START, dtype=np.int64)
    reason = np.full(jobs, Reason.WAITS, dtype=np.int8)
    start_s[positions], reason[positions] = decision.start_s, decision.reason
    placements = replace(decision.placements, position=positions[decision.placements.position])
    bound_s = None
    if decision.bound_s is not None:
        bound_s = np.full(jobs, NO_BOUND, dtype=np.int64)
        bound_s[positions] = decision.bound_s
    return replace(decision, start_s=start_s, reason=reason, placements=placements, bound_s=bound_s)
