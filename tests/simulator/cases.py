"""Small workloads and dispatchers for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from cpdispatch.decision import NO_START, Certificate, Decision, Placements, Reason
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import Instance, Starvation
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.predict import Predictor
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import System, SystemFile, from_file
from cpdispatch.workloads import prepare
from cpdispatch.workloads.table import from_table

Row = tuple[int, int, int, int]


def two_nodes(**more: Any) -> System:
    """Two nodes of four cores, and what a system file may say beside."""
    group = {"name": "thin", "nodes": 2, "capacity": [4]}
    return from_file(
        msgspec.convert({"resources": ["core"], "groups": [group], **more}, SystemFile)
    )


def on_nodes(system: System, **columns: Any) -> tuple[Workload, System]:
    """Jobs of one core a unit by the columns of a table, numbered from 1, and their system."""
    ids = list(range(1, len(columns["submit"]) + 1))
    return prepare(from_table({"id": ids, "core": 1, **columns}), system)


def workload(
    rows: Sequence[Row], after: Mapping[int, tuple[int, int]] = MappingProxyType({})
) -> Workload:
    """Jobs of (submission, processors, requested time, runtime) on a pool, numbered from 1.

    ``after`` gives the preceding job and the think time of some.
    """
    submit, units, requested, runtime = (list(column) for column in zip(*rows, strict=True))
    block = job_block(
        id=range(1, len(rows) + 1),
        submit_s=submit,
        units=units,
        requested_s=requested,
        request=[[1]] * len(rows),
    )
    preceding, think_s = np.full((2, len(rows)), -1, dtype=np.int64)
    for id, (job, think) in after.items():
        preceding[id - 1], think_s[id - 1] = job, think
    return Workload(
        "case", ("core",), JobTable(block), np.array(runtime, dtype=np.int64), preceding, think_s
    )


def play(
    rows: Sequence[Row],
    processors: int = 4,
    *,
    trigger: str = "instant",
    correction: str = "minimal",
    kill_at_limit: bool = False,
    predictor: str | Predictor = "walltime",
    dispatcher: object = None,
    after: Mapping[int, tuple[int, int]] | None = None,
    starvation: Starvation | None = None,
) -> tuple[Simulation, list[Instance]]:
    """Replay, honouring dependencies if there are any; the simulation, all instances it met."""
    sim = Simulation(
        workload(rows, after or {}),
        System.pool(processors),
        trigger=trigger,
        correction=correction,
        kill_at_limit=kill_at_limit,
        predictor=predictor,
        dependencies=after is not None,
        starvation=starvation,
    )
    chosen = Backfill() if dispatcher is None else dispatcher
    seen = []
    while (instance := sim.advance()) is not None:
        seen.append(instance)
        sim.apply(chosen.dispatch(instance))  # type: ignore[attr-defined]
    return sim, seen


def starting(instance: Instance, positions: Sequence[int], nodes: dict[int, int]) -> Decision:
    """A decision that starts jobs, all on the same nodes."""
    start = np.full(len(instance.queue), NO_START, dtype=np.int64)
    start[list(positions)] = instance.now
    return Decision(
        start,
        np.where(start >= 0, Reason.STARTED, Reason.WAITS).astype(np.int8),
        Placements.of(dict.fromkeys(positions, nodes)),
        Certificate("hand-made"),
    )
