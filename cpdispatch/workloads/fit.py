"""How a log's jobs are expressed in the resource types and units of a system."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdispatch.access.spread import ON_FIRST, PER_NODE, of_jobs
from cpdispatch.arrays import IntArray, compact
from cpdispatch.errors import InputError, UsageError, unknown
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.system import FIRST, LIMIT, System

RULES = ("processors", "per-node", "as-is")
"""The rules by name: each processor is a unit of 1 core with its memory; units are as large as a
node allows; the workload names units and resource types as the system does.
"""


def _per_node(workload: Workload, system: System) -> tuple[IntArray, dict[str, IntArray]]:
    """Make units as large as a node allows.

    The cores of a unit are the largest divisor of the job's processors that fits a node: the
    smallest core capacity among the groups that have cores, so that every such node can take one.

    References
    ----------
    The mapping of the KIT log in the thesis on constraint-programming dispatchers (models.md).
    """
    core = system.resource("core")
    node = min(
        (g.capacity[core] for g in system.groups if core >= 0 and g.capacity[core]), default=0
    )
    if node == 0:
        raise UsageError(f"the rule per-node needs a system with cores; {system.name} has none")
    sizes, of_job = np.unique(workload.table.units, return_inverse=True)
    cores = np.array([_largest_divisor(size, node) for size in sizes.tolist()])[of_job]
    request = {
        name: _times(column, cores, workload, name) for name, column in _request(workload).items()
    }
    return workload.table.units // cores, request


def fit(workload: Workload, system: System, rule: str | None = None) -> Workload:
    """Express a workload in the resource types of a system, in the system's order.

    A resource type that the workload lacks is asked for by no job. One that the system lacks is
    an error if jobs ask for it; for a log that knows no nodes (SWF) it is left out and counted
    in ``notes``, since such logs state memory whether or not the machine's is known.

    Parameters
    ----------
    workload : Workload
    system : System
    rule : str, optional
        A name in `RULES`; else ``processors`` for logs that know no nodes, ``as-is`` for others.

    Returns
    -------
    Workload
        With ``mem`` in the system's unit, rounded up. Where jobs of several units ask for amounts
        on their first nodes, ``first@mem`` and the like follow the system's resource types, which
        `cpdispatch.access.keep` then has, too.

    Raises
    ------
    UsageError
        When there is no such rule, or it does not apply to the workload or the system.
    InputError
        When a resource type is asked for that the system lacks.
    """
    if rule is None:
        rule = "processors" if workload.per_processor else "as-is"
    if rule not in RULES:
        raise unknown("rule", rule, RULES)
    if rule != "as-is":
        _need_processors(workload, rule)
    units, request = workload.table.units, _request(workload)
    if rule == "per-node":
        units, request = _per_node(workload, system)
    unit_kb = workload.memory_unit_kb
    for name in ("mem", f"{PER_NODE}mem", f"{ON_FIRST}mem"):
        if unit_kb is not None and name in request:
            memory_kb = _times(request[name], unit_kb, workload, name)
            request[name] = -(-memory_kb // system.memory_unit_kb)
    together = None
    if workload.spread_of is not None or any(name.startswith(PER_NODE) for name in request):
        together, units, request = _together(workload, units, request)
    _on_first(units, request)
    notes = dict(workload.notes)
    for name, column in request.items():
        plain = name.removeprefix(FIRST)
        if plain not in system.resources and column.any():
            _lacking(workload, system, plain, column, notes)
    once = [name for name in request if name.startswith(FIRST)]
    # What stays as it is takes no memory again.
    columns = list(workload.table.columns[: Column.REQUEST])
    columns[Column.UNITS] = units
    none = np.broadcast_to(np.int64(0), len(workload))
    resources = (*system.resources, *once)
    columns += [compact(request.get(name, none)) for name in resources]
    return replace(
        workload,
        resources=resources,
        table=JobTable(columns, workload.table.labels),
        notes=notes,
        memory_unit_kb=system.memory_unit_kb,
        per_processor=False,
        together=together,
    )


def _together(
    workload: Workload, units: IntArray, request: dict[str, IntArray]
) -> tuple[IntArray, IntArray, dict[str, IntArray]]:
    """Make one unit of those that are placed together, see `cpdispatch.access.spread`."""
    together, most = of_jobs(workload, units)
    units = units // together
    asked: dict[str, IntArray] = {}
    for name, column in request.items():
        if name.startswith((ON_FIRST, FIRST)):
            asked[name] = column
            continue
        if not name.startswith(PER_NODE):
            asked[name] = asked.get(name, 0) + _times(column, together, workload, name)
            continue
        unclear = (column > 0) & (most > 1) & (units > 1) & (workload.exclusive() == 0)
        for job in workload.table.id[unclear][:1].tolist():
            raise InputError(
                f"job {job} asks for {name} on each node, and may have several units there",
                file=workload.name, field=name,
                advice="state units_per_node, or add the amount to what a unit asks for",
            )  # fmt: skip
        plain = name.removeprefix(PER_NODE)
        asked[plain] = asked.get(plain, 0) + column
    return together, units, asked


def _on_first(units: IntArray, request: dict[str, IntArray]) -> None:
    """Let jobs of one unit ask for what is taken on first nodes as a part of that unit."""
    for name in [name for name in request if name.startswith((ON_FIRST, FIRST))]:
        column, alone = request.pop(name), units == 1
        plain = name.removeprefix(ON_FIRST).removeprefix(FIRST)
        request[plain] = request.get(plain, 0) + np.where(alone, column, 0)
        if (several := np.where(alone, 0, column)).any():
            request[f"{FIRST}{plain}"] = several


def _request(workload: Workload) -> dict[str, IntArray]:
    columns = workload.table.columns[Column.REQUEST :]
    return dict(zip(workload.resources, columns, strict=True))


def _times(column: IntArray, factor: IntArray | int, workload: Workload, name: str) -> IntArray:
    """The product, where it is a number that the package can count with."""
    exceeds = column.astype(np.float64) * factor > LIMIT
    if exceeds.any():
        position = int(np.argmax(exceeds))
        raise InputError(
            f"job {workload.table.id[position]} asks for more {name} than can be counted",
            file=workload.name,
            field=name,
            value=int(column[position]),
        )
    return column * factor


def _need_processors(workload: Workload, rule: str) -> None:
    if not workload.per_processor:
        raise UsageError(
            f"the rule {rule} is for logs whose jobs ask for processors; the jobs of "
            f"{workload.name} ask for units of {', '.join(workload.resources)}: use as-is"
        )


def _lacking(
    workload: Workload, system: System, name: str, column: IntArray, notes: dict[str, int]
) -> None:
    if not workload.per_processor or name == "core":
        asked = (name, f"{PER_NODE}{name}", f"{ON_FIRST}{name}")
        raise InputError(
            f"jobs ask for {name}, and the system {system.name} has none "
            f"(it has {', '.join(system.resources)})",
            file=workload.name,
            field=next((each for each in asked if each in workload.resources), name),
            advice="give a --system that has it, or jobs that do not ask for it",
        )
    called = "memory" if name == "mem" else name
    notes[f"ignored: {called}, the system does not state any"] = int(np.count_nonzero(column))


def _largest_divisor(size: int, limit: int) -> int:
    return next(cores for cores in range(min(size, limit), 0, -1) if size % cores == 0)
