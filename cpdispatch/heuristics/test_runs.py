"""Test runs: which jobs are tried for a short time where nothing else fits, and in which order.

A test run uses capacity that is free now, but that no job may take for its whole duration without
delaying the reserved job. A job that may be restarted starts there, and runs for at most the length
of a test. Many jobs that request hours fail at once; they end within the test.

References
----------
D. Perkovic, P. J. Keleher, "Randomization, speculation, and adaptation in batch schedulers",
SC 2000. S.-H. Chiang, A. Arpaci-Dusseau, M. K. Vernon, "The impact of more accurate requested
runtimes on production job scheduling performance", JSSPP 2002. O. Thebe, D. P. Bunde, V. J. Leung,
"Scheduling restartable jobs with short test runs", JSSPP 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import BoolArray, FloatArray, IntArray, sealed
from cpdispatch.decision import NO_BOUND, NO_START, Placements
from cpdispatch.heuristics import kernels
from cpdispatch.heuristics.allocate import NO_CHANGES, as_placements, free_over_time, power_unit
from cpdispatch.heuristics.easy import BEFORE, LEFT, TURN
from cpdispatch.heuristics.kernels import Homes
from cpdispatch.heuristics.policies import Order, Policy, by_tier
from cpdispatch.heuristics.profiles import per_node
from cpdispatch.heuristics.profiles.per_node import NodeProfile
from cpdispatch.instance import Instance, Running, Stopped
from cpdispatch.jobs import Column, JobTable
from cpdispatch.terms import held_at, takes_once, with_first

WAYS: Mapping[str, int] = {"left": LEFT, "backfill": BEFORE, "turn": TURN, "first": TURN}
"""When tests start, by name: after backfilling, before it, or already among the first starts.

With ``first``, tests also have places of their own in the order of the queue, see `first`.
"""

LENGTHS_MIN = 2
"""A job is tested if its requested time is longer than this many test runs."""

UNKNOWN_PROBABILITY = 0.05
"""The probability that a job without a prediction ends in its test."""

_NONE: IntArray = sealed(np.empty(0, dtype=np.int64))
NO_HOMES = Homes(_NONE, _NONE, sealed(np.zeros(1, dtype=np.int64)), _NONE, _NONE)


def probability(expected_s: IntArray, requested_s: IntArray, test_s: int) -> FloatArray:
    """The probability that each job ends in a test of ``test_s`` seconds, shape (jobs,).

    The runtime of a predicted job is taken to be log-logistic with the shape 1 and the expected
    duration as its median. A job that is expected to last as requested has not been predicted.
    """
    known: FloatArray = test_s / (test_s + np.maximum(expected_s, 1).astype(np.float64))
    return np.where(expected_s < requested_s, known, UNKNOWN_PROBABILITY)


def candidates(instance: Instance, test_s: int, late: BoolArray, way: int) -> IntArray:
    """The queue positions of the jobs that may be tested, in the order of tests; shape (tests,).

    Such a job may start now, may be restarted, takes nothing once, has not been stopped, and
    requests more than `LENGTHS_MIN` times ``test_s``. There are none if ``test_s`` is 0. Jobs that
    are ``late``, shape (queued,), are tested only if ``way`` is `TURN`. The key of a test is its
    length over the square root of the probability that the job ends in it. Of jobs with equal keys,
    the one that was submitted first comes first. Jobs of higher tiers come before all others.
    """
    if not test_s:
        return _NONE
    queue = instance.queue
    may = (queue.restartable > 0) & (queue.requested_s > LENGTHS_MIN * test_s)
    may &= instance.eligible()
    if instance.system.once:
        may &= ~takes_once(instance.system, queue)
    if instance.stopped is not None:
        may[instance.stopped.position] = False
    if way != TURN:
        may &= ~late
    found = np.flatnonzero(may)
    expected_s, requested_s = queue.expected_s[found], queue.requested_s[found]
    key = test_s / np.sqrt(probability(expected_s, requested_s, test_s))
    return sealed(found[np.lexsort((key, -queue.tier[found]))])


def first(
    order: Order, instance: Instance, threshold_s: int, late: BoolArray, tests: IntArray,
    test_s: int,
) -> IntArray:  # fmt: skip
    """The order of the queue in which tests have places of their own, shape (queued,).

    Where the keys of the order are durations, a test has its key among them, in whole seconds. In
    any other order tests come before all jobs of their tier that are not ``late``.
    """
    now, block = instance.now, instance.queue.block
    if order.policy in (Policy.SPF, Policy.RISK):
        expected_s, requested_s = (
            instance.queue.expected_s[tests],
            instance.queue.requested_s[tests],
        )
        key = test_s / np.sqrt(probability(expected_s, requested_s, test_s))
        short = block.copy()
        every = [Column.REQUESTED, Column.EXPECTED, Column.UPPER]
        short[every, tests[:, None]] = np.rint(key)[:, None]
        return order.rank(now, sealed(short), threshold_s)
    ranked = order.rank(now, block, threshold_s)
    front = late[ranked]
    rest = ranked[~front]
    placed = np.concatenate((ranked[front], tests, rest[~np.isin(rest, tests)]))
    return by_tier(placed, instance.queue.tier, late)


def shortened(planned_s: IntArray, tests: IntArray, test_s: int) -> IntArray:
    """The planned durations, shape (jobs,), with ``test_s`` for the jobs that may be tested."""
    if not len(tests):
        return planned_s
    short_s = planned_s.copy()
    short_s[tests] = test_s
    return sealed(short_s)


class Turns(NamedTuple):
    """Which tested jobs certainly go on before a job starts that fits only later.

    A tested job certainly goes on if it comes before the other job in the queue: because it has
    waited too long, because its tier is higher, or because the queue is in the order of submission.
    Then it is first in the queue when its test is over, and it keeps its nodes. A reservation that
    counts on these nodes would be broken. The same holds for a job that is being killed, which
    starts anew.
    """

    queued: IntArray
    """Shape (queued,)."""
    running: IntArray
    """A running job with a smaller number than a queued one goes on before that starts, shape
    (running,).
    """
    whole_end_s: IntArray
    """The planned ends of the running jobs if they go on, shape (running,)."""


def no_turns(instance: Instance) -> Turns:
    """The turns under a dispatcher that makes no tests."""
    end_s = instance.running.planned_end_s()
    queued = np.zeros(len(instance.queue), dtype=np.int64)
    return Turns(queued, np.zeros(len(end_s), dtype=np.int64), end_s)


def turns(
    instance: Instance, late: BoolArray, late_running: BoolArray, by_submission: bool
) -> Turns:
    """Which jobs come before which, as numbers that can be compared.

    Parameters
    ----------
    late, late_running : bool array, shapes (queued,) and (running,)
        The jobs that have waited too long.
    by_submission : bool
        Whether the others start in the order of their submission.
    """
    queue, running, jobs = instance.queue, instance.running, instance.running.jobs
    whole_end_s = running.whole_end_s()
    place = np.searchsorted(queue.submit_s, jobs.submit_s)
    for k in np.flatnonzero(whole_end_s > running.planned_end_s()).tolist():
        while (
            place[k] < len(queue)
            and queue.submit_s[place[k]] == jobs.submit_s[k]
            and queue.id[place[k]] < jobs.id[k]
        ):
            place[k] += 1
    after = 2 * len(queue) + 1
    in_queue, among = 2 * np.arange(len(queue)) + 1, 2 * place
    tiers = -np.unique(-np.concatenate((queue.tier, jobs.tier)))
    behind = [after * (1 + np.searchsorted(-tiers, -each.tier)) for each in (queue, jobs)]
    return Turns(
        np.where(late, in_queue, behind[0] + by_submission * in_queue),
        np.where(late_running, among, behind[1] + by_submission * among),
        whole_end_s,
    )


def beside(
    instance: Instance,
    profile: NodeProfile,
    start_s: IntArray,
    tests: IntArray,
    test_s: int,
    best_fit: bool,
) -> Placements:
    """Where jobs can be tested now without delaying anything that is planned.

    For a plan, a test is a short job that starts now or not at all. It takes only capacity that is
    free until the test is over and its nodes have been cleared. The planned start of the tested job
    itself does not change either.

    Parameters
    ----------
    profile : NodeProfile
        What running jobs, reservations and all planned starts leave free from now on.
    start_s : int64 array, shape (queued,)
        The planned starts, seconds; `NO_START` for none.
    tests : int64 array, shape (tests,)
        The jobs that may be tested, in the order of tests.
    test_s : int
        How long a test lasts, seconds.
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
    """
    over_s = instance.now + test_s + instance.restart_cost_s
    free, watts_free = per_node.left_until(profile, over_s)
    planned_s = start_s[tests]
    tests = tests[(planned_s == NO_START) | (planned_s >= over_s)]
    return as_placements(
        kernels.greedy(
            instance.now,
            sealed(free),
            instance.system.counted,
            instance.queue.block,
            instance.queue.planned_s,
            sealed(tests),
            best_fit,
            *NO_CHANGES,
            power_unit(instance),
            watts_free,
        )
    )


class Completed(NamedTuple):
    """A plan with the stopped jobs that go on, and test runs; see `cpdispatch.decision`."""

    start_s: IntArray
    placements: Placements
    bound_s: IntArray | None


def completed(
    instance: Instance,
    start_s: IntArray,
    placements: Placements,
    tests: IntArray,
    test_s: int,
    best_fit: bool,
) -> Completed:
    """A plan, with the stopped jobs that go on beside it, and with test runs.

    A stopped job goes on where it is if the plan of the other jobs leaves its nodes free for its
    planned duration. A starved stopped job keeps its planned place if another starved job is
    planned later, because the start of the other job depends on this place. If killing takes time,
    the plan has been made without the nodes of the stopped jobs, which are busy meanwhile, see
    `clearing`. Otherwise a stopped job that does not go on keeps its planned start. The starts of
    all other planned jobs stay the same.

    Parameters
    ----------
    instance : Instance
        With planned durations, for which the jobs last.
    start_s : int64 array, shape (queued,)
        The planned starts, seconds; `NO_START` for none.
    placements : Placements
        The nodes of all planned jobs.
    tests : int64 array, shape (tests,)
        The jobs that may be tested, in the order of tests.
    test_s : int
        How long a test lasts, seconds.
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
    """
    now, queue, cost_s = instance.now, instance.queue, instance.restart_cost_s
    planned_s = queue.planned_s
    stopped = {} if instance.stopped is None else instance.stopped.held()
    if not len(tests) and not stopped:
        return Completed(start_s, placements, None)
    until_s = now + max([test_s + cost_s, *(int(planned_s[k]) for k in stopped)])
    profile = _left_by(instance, start_s, placements, until_s)
    start_s, places, bound_s = start_s.copy(), placements.as_dict(), None
    watts, starved = instance.job_power(queue), instance.starved()
    later = starved & (start_s > now)

    def entries(
        position: int, nodes: Mapping[int, int]
    ) -> tuple[IntArray, IntArray, IntArray, int]:
        at, units = np.array(list(nodes.items()), dtype=np.int64).T.copy()
        # A copy, since kernels tell a row of a queue of one job from that of a longer one.
        return sealed(queue.request[position].copy()), at, units, int(watts[position])

    busy = {position: entries(position, nodes) for position, (_, nodes) in stopped.items()}
    if cost_s:
        for held in busy.values():
            per_node.hold(profile, now, now + cost_s, *held, -1)
    for position, held in busy.items():
        if position in places and starved[position] and later.sum() > later[position]:
            continue
        here = position in places and start_s[position] < until_s
        begin_s, end_s = now, now + cost_s
        if here:
            begin_s = int(start_s[position])
            end_s = min(begin_s + int(planned_s[position]), until_s)
        now_held = entries(position, places[position]) if here else held
        if here or cost_s:
            per_node.hold(profile, begin_s, end_s, *now_held, 1)
        over_s = now + int(planned_s[position])
        if per_node.holdable(profile, now, over_s, *held):
            per_node.hold(profile, now, over_s, *held, -1)
            start_s[position], places[position] = now, stopped[position][1]
        elif here or cost_s:
            per_node.hold(profile, begin_s, end_s, *now_held, -1)
    if len(tests):
        tested = beside(instance, profile, start_s, tests, test_s, best_fit)
        if len(tested):
            start_s[tested.position] = now
            places |= tested.as_dict()
            bound_s = np.full(len(queue), NO_BOUND, dtype=np.int64)
            bound_s[tested.position] = test_s
    return Completed(start_s, Placements.of(places), bound_s)


def _left_by(
    instance: Instance, start_s: IntArray, placements: Placements, until_s: int
) -> NodeProfile:
    """What running jobs, reservations and a plan leave free from now until ``until_s``."""
    queue = instance.queue
    stopped = 0 if instance.stopped is None else len(instance.stopped.position)
    planned = int((start_s[placements.position] < until_s).sum())
    profile = free_over_time(instance, planned + stopped, until_s=until_s)
    per_node.hold_plan(
        profile,
        until_s,
        with_first(instance.system, queue.block),
        queue.planned_s,
        start_s,
        # Read-only in any case, as those of no job are.
        sealed(placements.position),
        sealed(placements.offset),
        sealed(placements.node),
        sealed(placements.units),
        power_unit(instance),
    )
    return profile


def clearing(instance: Instance) -> Instance:
    """The instance in which the nodes of all stopped jobs are busy, if killing takes time."""
    if instance.stopped is None or not instance.restart_cost_s:
        return instance
    busy = with_busy_nodes(instance, instance.stopped.position.tolist())
    return replace(busy, stopped=instance.stopped)


def homes(instance: Instance) -> Homes:
    """The nodes of the stopped jobs."""
    stopped = instance.stopped
    if stopped is None:
        return NO_HOMES
    of = np.full(len(instance.queue), -1, dtype=np.int64)
    of[stopped.position] = np.arange(len(stopped.position))
    return Homes(sealed(of), stopped.start_s, stopped.offset, stopped.node, stopped.units)


def going_on(instance: Instance, start_s: IntArray, placements: Placements) -> set[int]:
    """The queue positions of the stopped jobs that go on: they start now on their own nodes."""
    if instance.stopped is None:
        return set()
    here = placements.as_dict()
    return {
        position
        for position, (_, nodes) in instance.stopped.held().items()
        if start_s[position] == instance.now and here.get(position) == nodes
    }


def killed(instance: Instance, start_s: IntArray, placements: Placements) -> list[int]:
    """The queue positions of the stopped jobs that do not go on, if killing them takes time."""
    if instance.stopped is None or not instance.restart_cost_s:
        return []
    stay = going_on(instance, start_s, placements)
    return [k for k in instance.stopped.position.tolist() if k not in stay]


def with_busy_nodes(instance: Instance, killed: Sequence[int]) -> Instance:
    """The instance in which the nodes of these stopped jobs are busy, as killing them takes time.

    Parameters
    ----------
    killed : sequence of int
        Queue positions of jobs that have been stopped.
    """
    stopped, running, queue = instance.stopped, instance.running, instance.queue
    assert stopped is not None
    held = stopped.held()
    placed = Placements.of({position: held[position][1] for position in killed})
    jobs = queue.take(placed.position)
    free = instance.free.copy()
    _, taken = held_at(instance.system, jobs, placed.offset, placed.units)
    np.subtract.at(free, placed.node, taken)
    start_s = np.array([held[position][0] for position in killed], dtype=np.int64)
    until_s = np.full(len(killed), instance.now + instance.restart_cost_s, dtype=np.int64)
    block, longer_s = jobs.block.copy(), until_s - start_s + instance.restart_cost_s
    block[[Column.REQUESTED, Column.EXPECTED]] += longer_s
    planned_s = (running.jobs.planned_s, jobs.planned_s + longer_s)
    more = placed.offset[1:] + running.offset[-1]
    bound_s = running.bound_s
    if bound_s is None:
        bound_s = np.zeros(len(running), dtype=np.int64)
    busy = Running(
        JobTable(
            np.concatenate((running.jobs.block, block), axis=1),
            running.jobs.labels,
            None if queue.planned_as_expected else np.concatenate(planned_s),
        ),
        sealed(np.concatenate((running.start_s, start_s))),
        sealed(np.concatenate((running.end_s, until_s))),
        sealed(np.concatenate((running.overdue, np.zeros(len(killed), dtype=np.int64)))),
        sealed(np.concatenate((running.offset, more))),
        sealed(np.concatenate((running.node, placed.node))),
        sealed(np.concatenate((running.units, placed.units))),
        sealed(np.concatenate((bound_s, instance.now - start_s))),
    )
    left = {position: of for position, of in held.items() if position not in killed}
    return replace(
        instance,
        free=sealed(np.maximum(free, 0)),
        running=busy,
        stopped=Stopped.of(left) if left else None,
    )
