"""On what terms jobs run: licences, arrays, begin times, and whether any such term holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdispatch.arrays import BoolArray
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
