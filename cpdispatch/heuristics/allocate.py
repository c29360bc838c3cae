"""Allocation of jobs to nodes: which jobs fit, and starting jobs in a given order."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray, sealed, sealed_view
from cpdispatch.decision import NOTHING_PLACED, Placements
from cpdispatch.heuristics import kernels
from cpdispatch.heuristics.profiles.per_node import NodeProfile, expected_profile
from cpdispatch.instance import Instance, Power
from cpdispatch.jobs import Column, JobTable
from cpdispatch.system import System
from cpdispatch.terms import held_at, with_first

_BEYOND_ANY_CAP = int(np.iinfo(np.int64).max // 4)
_ENDLESS = int(np.iinfo(np.int64).max)
NO_CHANGES = (
    sealed(np.empty(0, dtype=np.int64)),
    sealed(np.empty(0, dtype=np.int64)),
    sealed(np.empty((0, 0), dtype=np.int64)),
)
"""The answer of `changes` if no reservation is to come."""


def power_unit(instance: Instance) -> IntArray:
    """Watts of one unit of each resource type, zeros without a cap; shape (resources,)."""
    if instance.power is None:
        return _no_power(len(instance.system.resources))
    return sealed(np.array(instance.power.unit, dtype=np.int64))


@cache
def _no_power(resources: int) -> IntArray:
    return sealed(np.zeros(resources, dtype=np.int64))


def reserved(instance: Instance) -> IntArray:
    """What reservations hold: start, end, node and amounts for each of their nodes."""
    rows = [(r.start_s, r.end_s, k, *r.capacity) for r in instance.reservations for k in r.nodes]
    return np.array(rows, dtype=np.int64).reshape(-1, 3 + len(instance.system.resources))


def free_over_time(
    instance: Instance, jobs: int, end_s: IntArray | None = None, until_s: int = _ENDLESS
) -> NodeProfile:
    """What running jobs and reservations leave free, with room for the plans of ``jobs`` more.

    Parameters
    ----------
    end_s : int64 array, shape (running,), optional
        When the running jobs end; default: as planned.
    until_s : int
        Nothing is held from then on.
    """
    running, system = instance.running, instance.system
    rows = reserved(instance)
    ends = running.planned_end_s() if end_s is None else end_s
    return expected_profile(
        instance.now,
        system.capacity,
        instance.down,
        jobs,
        with_first(system, running.jobs.block),
        sealed(np.minimum(ends, until_s)),
        running.offset,
        running.node,
        running.units,
        sealed(np.minimum(rows[:, 0], until_s)),
        sealed(np.minimum(rows[:, 1], until_s)),
        sealed(rows[:, 2].copy()),
        sealed(rows[:, 3:].copy()),
        power_unit(instance),
        instance.power_free(),
    )


def changes(instance: Instance) -> tuple[IntArray, IntArray, IntArray]:
    """The changes of free capacity after now, in the order of time: when, on which node, how much.

    Reservations begin and end, and running jobs end as planned. Only nodes with reservations to
    come are looked at, since on others nothing gets less.
    """
    now, running = instance.now, instance.running
    coming = {node for r in instance.reservations if r.start_s > now for node in r.nodes}
    if not coming:
        return NO_CHANGES
    rows = []
    for r in instance.reservations:
        if r.end_s <= now:
            continue
        capacity = np.array(r.capacity, dtype=np.int64)
        for node in coming.intersection(r.nodes):
            rows += [(r.start_s, node, -capacity)] if r.start_s > now else []
            rows.append((r.end_s, node, capacity))
    owner, held = held_at(instance.system, running.jobs, running.offset, running.units)
    end_s = running.planned_end_s()
    for e in np.flatnonzero(np.isin(running.node, sorted(coming))).tolist():
        rows.append((int(end_s[owner[e]]), int(running.node[e]), held[e]))
    rows.sort(key=lambda row: row[:2])
    return (
        sealed(np.array([time for time, _, _ in rows], dtype=np.int64)),
        sealed(np.array([node for _, node, _ in rows], dtype=np.int64)),
        sealed(np.array([capacity for _, _, capacity in rows], dtype=np.int64)),
    )


def start_in_order(
    instance: Instance,
    order: IntArray,
    best_fit: bool = True,
    beside: Placements = NOTHING_PLACED,
) -> Placements:
    """Start the jobs at these queue positions one after the other; skip those that do not fit.

    Parameters
    ----------
    beside : Placements
        Queued jobs that are planned: what they hold is kept for them from now on.

    Returns
    -------
    Placements
        Of the jobs that found nodes, in the order in which they were placed. Reservations, down
        nodes, the power cap and dependencies are respected.
    """
    if instance.dependencies is not None:
        order = order[instance.eligible()[order]]
    free, watts = instance.free, instance.power_free()
    if len(beside):
        planned = instance.queue.take(beside.position)
        _, held = held_at(instance.system, planned, beside.offset, beside.units)
        free = free.copy()
        np.subtract.at(free, beside.node, np.maximum(held, 0))
        free = sealed(np.maximum(free, 0))
        watts -= int(instance.job_power(planned).sum())
    return as_placements(
        kernels.greedy(
            instance.now,
            free,
            instance.system.counted,
            with_first(instance.system, instance.queue.block),
            instance.queue.planned_s,
            sealed(np.ascontiguousarray(order, dtype=np.int64)),
            best_fit,
            *changes(instance),
            power_unit(instance),
            max(watts, 0),
        )
    )


def fits_now(instance: Instance) -> NDArray[np.bool_]:
    """For each queued job, whether it alone could start now; shape (jobs,).

    It fits the free capacity, respects reservations and the power cap, and waits for no other job.
    """
    answer: NDArray[np.bool_] = kernels.each_fits(
        instance.now,
        instance.free,
        with_first(instance.system, instance.queue.block),
        instance.queue.planned_s,
        *changes(instance),
        power_unit(instance),
        max(instance.power_free(), 0),
    )
    return answer if instance.dependencies is None else answer & instance.eligible()


def system_fits(system: System, jobs: JobTable, power: Power | None = None) -> NDArray[np.bool_]:
    """For each job, whether it fits the whole empty system; shape (jobs,)."""
    return fit_capacity(system.capacity, with_first(system, jobs.block), power)


def fit_capacity(
    capacity: IntArray, block: IntArray, power: Power | None = None
) -> NDArray[np.bool_]:
    """For each job of a block, whether it alone fits capacity of shape (nodes, resources)."""
    unit = np.zeros(capacity.shape[1], dtype=np.int64) if power is None else power.unit
    block = sealed_view(block)
    answer: NDArray[np.bool_] = kernels.each_fits(
        0,
        sealed_view(capacity),
        block,
        block[Column.EXPECTED],
        *NO_CHANGES,
        sealed(np.array(unit, dtype=np.int64)),
        _BEYOND_ANY_CAP if power is None else power.cap,
    )
    return answer


def placements_of(found: IntArray, jobs: int, placed: int) -> Placements:
    """The placements of a pass over so many jobs, see `cpdispatch.heuristics.easy.easy`."""
    if not placed:
        return NOTHING_PLACED
    low, entries = 3 * jobs + 1, found.item(2 * jobs + placed)
    middle = (low + len(found)) // 2
    return Placements(
        found[jobs : jobs + placed],
        found[2 * jobs : 2 * jobs + placed + 1],
        found[low : low + entries],
        found[middle : middle + entries],
    )


def as_placements(placed: kernels.Placed) -> Placements:
    """The used part of a kernel's growing lists."""
    entries = int(placed.offset[placed.jobs])
    return Placements(
        placed.position[: placed.jobs],
        placed.offset[: placed.jobs + 1],
        placed.node[:entries],
        placed.units[:entries],
    )
