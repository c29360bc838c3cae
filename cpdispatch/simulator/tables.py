"""The tables of a run, made of what a simulation has recorded; `Run` says what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cpdispatch.analyze.energy import watts_of
from cpdispatch.arrays import IntArray
from cpdispatch.decision import UNTOLD, Reason
from cpdispatch.jobs import LABELLED, SPREADS, TERMS, WISHES, Column, Workload
from cpdispatch.simulator import arrow
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.simulator.records import NOT_STARTED, Records, Test
from cpdispatch.simulator.saved import SWITCHES
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import USUAL_TIER, System

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Done:
    """Jobs that have all ended, and the dispatches among them: what tables are made of."""

    workload: Workload
    system: System
    records: Records
    dependencies: bool = False


Recorded: TypeAlias = Simulation | CompiledSimulation | Done
"""What the tables of a run are made of."""


def switched_table(switched: list[list[int]]) -> pa.Table:
    """One row for each time that a node was switched off, see `Run`."""
    import pyarrow as pa

    rows = np.array(switched, dtype=np.int64).reshape(-1, len(SWITCHES)).T
    columns: dict[str, Any] = {
        name: arrow.numbers(row) for name, row in zip(SWITCHES, rows, strict=True)
    }
    return pa.table(columns)


def attempt_table(simulation: Simulation) -> pa.Table:
    """One row for each time that a job was queued again because a node failed, see `Run`."""
    import pyarrow as pa

    row, (start_s, end_s, saved_s, test), (offset, node, units) = simulation.records.attempts()
    columns: dict[str, Any] = {
        "id": arrow.numbers(simulation.workload.table.id[row]),
        "start": arrow.numbers(start_s),
        "end": arrow.numbers(end_s),
        "nodes": arrow.lists(offset, node),
        "node_units": arrow.lists(offset, units),
    }
    if simulation.checkpoints:
        columns["saved_s"] = arrow.numbers(saved_s)
    if simulation.workload.table.restartable.any():
        columns["test"] = arrow.flags(test == 1)
    return pa.table(columns)


def promise_table(simulation: Recorded) -> pa.Table:
    """The first promise to each job that was given one, see `Run`."""
    import pyarrow as pa

    records = simulation.records
    rows = (records.promised_s[1] != NOT_STARTED).nonzero()[0]
    columns: dict[str, Any] = {
        "id": arrow.numbers(simulation.workload.table.id[rows]),
        "at": arrow.numbers(records.promised_s[0, rows]),
        "start": arrow.numbers(records.promised_s[1, rows]),
    }
    return pa.table(columns)


def job_table(simulation: Recorded) -> pa.Table:
    """One row a job, see `Run`."""
    import pyarrow as pa

    table, records = simulation.workload.table, simulation.records
    offset, node, units = records.placements()
    columns: dict[str, Any] = {
        "id": arrow.numbers(table.id),
        "submit": arrow.numbers(table.submit_s),
        "start": arrow.numbers(records.start_s),
        "end": arrow.numbers(records.end_s),
        "units": arrow.numbers(table.units),
        "nodes": arrow.lists(offset, node),
        "node_units": arrow.lists(offset, units),
        "requested_s": arrow.numbers(table.requested_s),
        "runtime_s": arrow.numbers(simulation.workload.runtime_s),
        "expected_s": arrow.numbers(records.expected_s),
        "killed": arrow.flags(records.killed & (records.start_s >= 0)),
        "reason": arrow.texts(records.reason, [*(each.name.lower() for each in Reason), UNTOLD]),
    }
    if simulation.dependencies:
        columns["preceding"] = arrow.numbers(simulation.workload.preceding)
        columns["think_s"] = arrow.numbers(simulation.workload.think_s)
    if len(records.failed):
        columns["requeued"] = arrow.numbers(records.requeued)
        columns["failed"] = arrow.flags(records.failed)
    restartable = table.restartable == 1
    if not restartable.all() and (len(records.failed) or restartable.any()):
        columns["restartable"] = arrow.flags(restartable)
    if restartable.any():
        offset, node, units = records.lost_placements()
        if records.test.any():
            columns["test"] = arrow.texts(records.test, [test.name.lower() for test in Test])
        columns["lost_start"] = arrow.numbers(records.lost_start_s)
        columns["lost_end"] = arrow.numbers(records.lost_end_s)
        columns["lost_nodes"] = arrow.lists(offset, node)
        columns["lost_node_units"] = arrow.lists(offset, units)
    for kind, name in enumerate(simulation.system.resources):
        columns[f"request_{name}"] = arrow.numbers(table.column(Column.REQUEST + kind))
    if simulation.system.watts:
        columns["energy_j"] = arrow.numbers(_joules(simulation))
    for name in LABELLED:
        codes, labels = table.column(Column[name.upper()]), table.labels.get(name)
        columns[name] = arrow.numbers(codes) if labels is None else arrow.texts(codes, labels)
    columns["priority"] = arrow.numbers(table.priority)
    if any(partition.tier != USUAL_TIER for partition in simulation.system.partitions):
        columns["tier"] = arrow.numbers(np.ascontiguousarray(table.tier))
    workload = simulation.workload
    for name in WISHES:
        if any(getattr(access, name) for access in workload.access):
            columns[name] = arrow.texts(*workload.asked(name))
    if (exclusive := workload.exclusive()).any():
        columns["exclusive"] = arrow.flags(exclusive == 1)
    if workload.together is not None:
        columns["together"] = arrow.numbers(workload.together)
        for name in SPREADS:
            if (asked := workload.spreads(name)).any():
                columns[name] = arrow.numbers(np.ascontiguousarray(asked))
    if workload.begin_s is not None:
        columns["begin"] = arrow.numbers(workload.begin_s)
    for name in TERMS:
        if any(getattr(terms, name) for terms in workload.terms):
            columns[name] = arrow.texts(*workload.asked(name))
    if (limit := workload.array_limit()).any():
        columns["array_limit"] = arrow.numbers(np.ascontiguousarray(limit))
    return pa.table(columns)


def _joules(simulation: Recorded) -> IntArray:
    """What each job drew, attempts that were lost among it."""
    records, system = simulation.records, simulation.system
    request = simulation.workload.table.request
    ran_s = np.where(records.start_s >= 0, records.end_s - records.start_s, 0)
    found: IntArray = ran_s * watts_of(system, request, *records.placements())
    if len(records.lost_start_s):
        lost_s = records.lost_end_s - records.lost_start_s
        found += lost_s * watts_of(system, request, *records.lost_placements())
    row, (start_s, end_s, *_), placements = records.attempts()
    np.add.at(found, row, (end_s - start_s) * watts_of(system, request[row], *placements))
    return found


def decision_table(simulation: Recorded) -> pa.Table:
    """One row a dispatch, see `Run`."""
    import pyarrow as pa

    numbers, texts, limit_hit = simulation.records.decisions()
    columns = {name: arrow.texts(codes, names) for name, (codes, names) in texts.items()}
    columns |= {name: arrow.numbers(column) for name, column in numbers.items()}
    return pa.table(columns | {"limit_hit": arrow.flags(limit_hit)})
