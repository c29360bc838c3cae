"""On what terms jobs run: licences, arrays, begin times, and what is taken once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray, sealed
from cpdispatch.errors import InputError, nearest
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.parameters import count_of
from cpdispatch.system import LIMIT, System


def gated(workload: Workload, system: System) -> bool:
    """Whether something beside the nodes limits which jobs may run at once."""
    limited = any(terms.array_limit or terms.licences for terms in workload.terms)
    return bool(system.limits) or limited


def begins_later(workload: Workload) -> bool:
    """Whether a job may not start when it is submitted."""
    return workload.begin_s is not None and bool((workload.begin_s > workload.table.submit_s).any())


def takes_once(system: System, jobs: JobTable) -> BoolArray:
    """Which jobs take something once, on their first nodes; shape (jobs,)."""
    found = np.zeros(len(jobs), dtype=np.bool_)
    for once, _ in system.once:
        found |= jobs.column(Column.REQUEST + once) > 0
    return found


def without_restarts(workload: Workload, system: System) -> Workload:
    """The workload in which no job may be restarted that takes something once."""
    if not system.once:
        return workload
    table = workload.table
    may = np.where(takes_once(system, table), 0, table.restartable)
    return replace(workload, table=table.having(Column.RESTARTABLE, may))


def licences_of(text: str, system: System) -> dict[str, int]:
    """What a text as ``matlab:2 ansys`` asks for: licence -> how many.

    Raises
    ------
    InputError
        When a part is not understood, or the system has no such licence; the value is that part.
    """
    found: dict[str, int] = {}
    for part in text.replace(",", " ").split():
        name, colon, count = part.partition(":")
        many = count_of(count) or 0
        if not name or (colon and not 1 <= many <= LIMIT):
            problem, advice = "is no licence", "write names, or names with a number as matlab:2"
            raise InputError(problem, field="licences", value=part, advice=advice)
        if name not in system.licences:
            has = ", ".join(system.licences) or "none"
            raise InputError(
                f"system {system.name} has no such licence{nearest(name, system.licences)}",
                field="licences", value=part, advice=f"it has {has}: add it to the system's file",
            )  # fmt: skip
        found[name] = found.get(name, 0) + (many if colon else 1)
    return found


def with_first(system: System, block: IntArray) -> IntArray:
    """A block of jobs as kernels take it: what is taken once comes after what each unit asks for.

    Where nothing is taken once, that is the block itself.
    """
    return sealed(np.vstack(apart(system, block))) if system.once else block


def apart(system: System, block: IntArray) -> tuple[IntArray, IntArray]:
    """A block of jobs without what they take once, and that by itself.

    The latter has the shape (resources, jobs), or (0, jobs) where nothing is taken once.
    """
    if not system.once:
        return block, sealed(np.empty((0, block.shape[1]), dtype=np.int64))
    units, first = block.copy(), np.zeros_like(block[Column.REQUEST :])
    for once, of in system.once:
        first[of], units[Column.REQUEST + once] = block[Column.REQUEST + once], 0
    return sealed(units), sealed(first)


def asked_in_all(system: System, jobs: JobTable) -> IntArray:
    """What all units of each job ask for, with what it takes once; shape (jobs, resources)."""
    units, first = apart(system, jobs.block)
    asked: IntArray = jobs.units[:, None] * units[Column.REQUEST :].T
    return asked + first.T if len(first) else asked


def held_at(
    system: System, jobs: JobTable, offset: IntArray, units: IntArray
) -> tuple[IntArray, IntArray]:
    """Which of the jobs each entry of their placements is of, and what that holds on its node.

    Parameters
    ----------
    offset : int64 array, shape (jobs + 1,)
        Where the entries of each job begin; its first node comes first.
    units : int64 array, shape (entries,)

    Returns
    -------
    owner : int64 array, shape (entries,)
    held : int64 array, shape (entries, resources)
    """
    owner = np.repeat(np.arange(len(jobs)), np.diff(offset))
    asks = with_first(system, jobs.block)[Column.REQUEST :].T
    resources = len(system.resources)
    held = asks[owner, :resources] * units[:, None]
    if system.once:
        first = offset[:-1][np.diff(offset) > 0]
        held[first] += asks[owner[first], resources:]
    return owner, held
