"""What a schedule generator takes, made of an instance: free capacity over time, and the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpdispatch.access.spread import most_on_a_node
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.heuristics.allocate import reserved
from cpdispatch.heuristics.profiles.per_class import Timelines, classes_of, joined, of_nodes
from cpdispatch.heuristics.profiles.profile import one_row
from cpdispatch.heuristics.schedule_generation import Jobs
from cpdispatch.instance import Instance, Power
from cpdispatch.jobs import JobTable
from cpdispatch.terms import held_at


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is held of nodes, and of the power, from a start to an end."""

    start_s: IntArray
    end_s: IntArray
    node: IntArray
    """Shape (entries,)."""
    amount: IntArray
    """Shape (entries, resources)."""
    power_start_s: IntArray
    power_end_s: IntArray
    watts: IntArray
    """Shape (jobs,)."""

    def and_(self, more: Held) -> Held:
        """Both together."""
        both = ((getattr(self, name), getattr(more, name)) for name in self.__slots__)
        return Held(*(np.concatenate(pair) for pair in both))


def held_in(instance: Instance) -> Held:
    """What running jobs hold until their planned ends, and reservations while they last."""
    now, running, end_s = instance.now, instance.running, instance.running.planned_end_s()
    owner, held = held_at(instance.system, running.jobs, running.offset, running.units)
    rows = reserved(instance)
    return Held(
        np.concatenate((np.full(len(owner), now), np.maximum(rows[:, 0], now))),
        np.concatenate((end_s[owner], np.maximum(rows[:, 1], now))),
        np.concatenate((running.node, rows[:, 2])),
        np.concatenate((held, rows[:, 3:])),
        np.full(len(running), now),
        end_s,
        instance.job_power(running.jobs),
    )


def timelines(instance: Instance, nodes: IntArray, held: Held) -> tuple[Timelines, IntArray]:
    """What these nodes have free from now on, and the nodes again; see `ScheduleGenerator`."""
    longest = int(np.bincount(held.node).max(initial=0))
    lines = of_nodes(
        instance.now, instance.system.capacity, instance.system.counted, nodes, 2 * longest + 3,
        held.start_s, held.end_s, held.node, np.maximum(held.amount, 0),
    )  # fmt: skip
    member, begin = classes_of(lines)
    return _with_power(instance, joined(lines, member, begin), held), nodes[member]


def _with_power(instance: Instance, lines: Timelines, held: Held) -> Timelines:
    """The timelines with what is left under the power cap, where there is one."""
    if instance.power is None:
        return lines
    time_s = np.unique(np.concatenate((held.power_start_s, held.power_end_s, [instance.now])))
    return lines._replace(power=one_row(time_s, power_left(instance.power, held, time_s)[:, None]))


def power_left(power: Power, held: Held, time_s: IntArray) -> IntArray:
    """Watts left under a cap from each of some ascending times on, not below 0, shape (times,)."""
    change = np.zeros(len(time_s) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(time_s, held.power_start_s), held.watts)
    np.subtract.at(change, np.searchsorted(time_s, held.power_end_s), held.watts)
    return np.maximum(power.cap - np.cumsum(change[:-1]), 0)


def jobs_of(
    table: JobTable,
    watts: IntArray,
    early_s: IntArray,
    free_until_s: IntArray,
    per_s: IntArray,
    after: Sequence[tuple[int, int, int]] = (),
    first: IntArray | None = None,
) -> Jobs:
    """Jobs as a generator takes them.

    Parameters
    ----------
    watts : int64 array, shape (jobs,)
        Power that each draws while it runs.
    early_s : int64 array, shape (jobs,)
        The first start that each may have.
    free_until_s, per_s : int64 array, shape (jobs,)
        The weighted sum to minimise: ``per_s * max(0, start - free_until_s)``.
    after : sequence of (job, predecessor, seconds)
        Least number of seconds between the end of the predecessor and the start of the job.
    first : int64 array, shape (jobs, resources or 0), optional
        What each takes once, on its first node.
    """
    if first is None:
        first = np.empty((len(table), 0), dtype=np.int64)
    pairs = np.array(sorted(after), dtype=np.int64).reshape(-1, 3)
    free = early_s == early_s.min(initial=np.iinfo(np.int64).max)
    free[pairs[:, 0]] = False
    return Jobs(
        np.ascontiguousarray(np.hstack((np.maximum(table.request, 0), first))),
        np.array(table.units),
        np.array(most_on_a_node(table)),
        np.array(table.planned_s),
        np.array(watts).reshape(-1, 1),
        np.array(early_s),
        np.array(free_until_s),
        np.array(per_s),
        pairs[:, 2].copy(),
        np.searchsorted(pairs[:, 0], np.arange(len(table) + 1)),
        pairs[:, 1].copy(),
        _smaller(table, first) & free,
    )


def _smaller(jobs: JobTable, first: IntArray) -> BoolArray:
    """For each pair of jobs, whether the second asks for no more than the first, for no longer.

    Nor may its units need more nodes. Types that only one job asks for tell it from all others.
    """
    units, most = jobs.units, most_on_a_node(jobs)
    asks = jobs.request > 0
    own = asks.sum(axis=0) == 1
    smaller = (units <= units[:, None]) & (np.minimum(units, most[:, None]) <= most)
    smaller &= jobs.planned_s <= jobs.planned_s[:, None]
    for asked in (*np.maximum(jobs.request.T[~own], 0), *first.T):
        smaller &= asked <= asked[:, None]
    smaller &= ~asks[:, own].any(axis=1)
    np.fill_diagonal(smaller, True)
    return smaller
