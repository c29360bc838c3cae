"""Limits on the units of a job on a node, as resource types of which each job has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TypeVar

import numpy as np

from cpdispatch.access import SPREAD
from cpdispatch.access.spread import LIMIT_TYPE
from cpdispatch.arrays import IntArray, sealed
from cpdispatch.instance.snapshot import Instance
from cpdispatch.jobs import Column, JobTable
from cpdispatch.system import NodeGroup

T = TypeVar("T")
Model = TypeVar("Model")


def apart(instance: Instance) -> Instance:
    """The instance with ``spread@77``, of which each node has as many as units of job 77 may share.

    So whatever respects capacity keeps these limits, which are requests below 0 otherwise, see
    `cpdispatch.access.spread`. An instance without them is the same object.
    """
    system = instance.system
    at = system.resource(LIMIT_TYPE)
    if at < 0:
        return instance
    limit = -instance.queue.request[:, at]
    own = np.flatnonzero(limit > 0)
    names = [f"{SPREAD}@{id}" for id in instance.queue.id[own].tolist()]
    most = limit[own].tolist()

    def without(amounts: tuple[int, ...], more: list[int]) -> tuple[int, ...]:
        return (*amounts[:at], *amounts[at + 1 :], *more)

    none = [0] * len(own)
    groups = tuple(
        NodeGroup(g.name, g.nodes, without(g.capacity, most), g.features) for g in system.groups
    )
    free = np.concatenate(
        [np.delete(instance.free, at, axis=1), np.tile(limit[own], (system.nodes, 1))], axis=1
    )
    free[instance.down, -len(own) or free.shape[1] :] = 0
    asked = (np.arange(len(limit)) == own[:, None]).astype(np.int64)
    running, power = instance.running, instance.power
    return replace(
        instance,
        system=replace(
            system, resources=(*system.resources[:at], *system.resources[at + 1 :], *names),
            groups=groups,
        ),
        free=sealed(free),
        queue=_asking(instance.queue, at, asked),
        running=replace(
            running, jobs=_asking(running.jobs, at, np.zeros((len(own), len(running)), np.int64))
        ),
        reservations=tuple(
            replace(held, capacity=without(held.capacity, none)) for held in instance.reservations
        ),
        power=None if power is None else replace(power, unit=without(power.unit, none)),
    )  # fmt: skip


def _asking(jobs: JobTable, at: int, more: IntArray) -> JobTable:
    """The jobs without one resource type and with more of them, shape (more, jobs)."""
    block = np.delete(jobs.block, Column.REQUEST + at, axis=0)
    return JobTable(np.concatenate([block, more]), jobs.labels)


def with_own_limits(dispatch: Callable[[Model, Instance], T]) -> Callable[[Model, Instance], T]:
    """Make a model's ``dispatch`` see the limits on units of a node as resource types."""

    @wraps(dispatch)
    def of_apart(model: Model, instance: Instance) -> T:
        return dispatch(model, apart(instance))

    return of_apart
