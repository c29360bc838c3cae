"""Where the jobs of an instance file ask to run, expressed as resource types.

Partitions, features, lists of nodes and whole nodes become what `cpdispatch.access` makes of them
for a log; the tier of a partition becomes one of its jobs. How many units of a job share a node
becomes a resource type of the job's own: each node has as many ``spread@77`` as units of job 77 may
be there, and each unit asks for one. A job that is held asks for ``held@jobs``, which no node has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from cpdispatch import access
from cpdispatch.access import HELD, SPREAD
from cpdispatch.access.spread import grouped
from cpdispatch.errors import InputError
from cpdispatch.instance.snapshot import Check
from cpdispatch.jobs import (
    ANYWHERE,
    SPREADS,
    WISHES,
    Access,
    JobTable,
    Spread,
    Workload,
    job_block,
)
from cpdispatch.system import CELLS_MAX, USUAL_TIER, GroupFile, System, SystemFile, from_file

if TYPE_CHECKING:
    from cpdispatch.instance.file import _File, _QueuedJob, _RunningJob

_NOTHING: dict[str, Any] = {
    "partition": "", "features": "", "nodelist": "", "exclude": "", "exclusive": False,
    "units_per_node_max": None, "units_per_node": None, "nodes_min": None, "node": [],
    "units_per_node_min": None, "nodes_max": None, "hold": False,
}  # fmt: skip
"""The fields of a queued job that say where it may run, as they are left out."""


def stated(read: _File) -> list[tuple[str, object]]:
    """Each field of a file that says where jobs may run, and its value."""
    found: list[tuple[str, object]] = []
    if read.partitions:
        found.append(("partitions", [partition.name for partition in read.partitions]))
    found += [(f"groups[{k}].features", g.features) for k, g in enumerate(read.groups)]
    for k, job in enumerate(read.queue):
        found += [(f"queue[{k}].{name}", getattr(job, name)) for name in _NOTHING]
    found += [(f"running[{k}].exclusive", job.exclusive) for k, job in enumerate(read.running)]
    return [
        (field, value)
        for field, value in found
        if value not in ("", None, []) and value is not False
    ]


class Lowering(Check):
    """Turns a file that says where jobs may run into one that says it by resource types."""

    def lowered(self, read: _File, name: str) -> _File:
        """The file with more resource types, and without the fields that they stand for.

        Parameters
        ----------
        read : file
            Right in all that does not concern where jobs may run.
        name : str
            Of its system.

        Raises
        ------
        InputError
            When a job asks for what no file can mean, or names a partition, a feature or a node
            that there is not.
        """
        system = self._system(read, name)
        most: dict[int, int] = {}
        queue = [self._spread(job, f"queue[{k}]", most) for k, job in enumerate(read.queue)]
        cells = system.nodes * (len(system.resources) + len(most))
        self.need(
            cells <= CELLS_MAX, "queue", len(most),
            f"too many jobs that say how many units share a node: with one resource type for each, "
            f"more than {CELLS_MAX} capacities",
        )  # fmt: skip
        asked: list[_QueuedJob | _RunningJob] = [*queue, *read.running]
        extended, more = system, []
        if asked or read.reservations:
            try:
                kept, extended = access.keep(self._workload(read, asked), system)
            except InputError as error:
                if error.file == str(self.path):
                    raise
                raise InputError(str(error), file=self.path) from error
            more = kept.table.request[:, len(read.resources) :].tolist()
            tiers = kept.table.tier[: len(queue)].tolist()
            queue = [
                self._in_tier(job, f"queue[{k}].tier", tier) if job.partition else job
                for k, (job, tier) in enumerate(zip(queue, tiers, strict=True))
            ]
        own = list(most)
        held = [HELD] if any(job.hold for job in read.queue) else []
        groups = [
            replace(
                read.groups[0], name=g.name, nodes=g.nodes, features=[],
                capacity=[*g.capacity, *most.values(), *(0 for _ in held)],
            )
            for g in extended.groups
        ]  # fmt: skip
        units = [
            [
                *job.unit,
                *row,
                *(int(job.id == id) for id in own),
                *(int(getattr(job, "hold", False)) for _ in held),
            ]
            for job, row in zip(asked, more, strict=False)
        ]
        reservations = [
            replace(given, capacity=[*given.capacity, *row, *(0 for _ in (*own, *held))])
            for given, row in zip(read.reservations, more[len(asked) :], strict=True)
        ]
        power = read.power
        if power is not None:
            none = [0] * (len(groups[0].capacity) - len(read.resources))
            power = replace(power, unit=[*power.unit, *none])
        return replace(
            read,
            resources=[*extended.resources, *(f"{SPREAD}@{id}" for id in own), *held],
            groups=groups,
            partitions=[],
            queue=[
                replace(job, unit=unit, **_NOTHING) for job, unit in zip(queue, units, strict=False)
            ],
            running=[
                replace(job, unit=unit, exclusive=False)
                for job, unit in zip(read.running, units[len(queue) :], strict=True)
            ],
            reservations=reservations, power=power,
        )  # fmt: skip

    def _system(self, read: _File, name: str) -> System:
        groups = [GroupFile(g.name, g.nodes, g.capacity, g.features) for g in read.groups]
        file = SystemFile(read.resources, groups, name, partitions=read.partitions)
        try:
            return from_file(file)
        except InputError as error:
            raise InputError(str(error), file=self.path) from error

    def _spread(self, job: _QueuedJob, field: str, most: dict[int, int]) -> _QueuedJob:
        """The job with what shares a node as one unit; how many of its units may, by its id."""
        said = {name: getattr(job, name) for name in SPREADS}
        for name, value in said.items():
            if value is not None:
                self.number(value, f"{field}.{name}", 1)
        spread = Spread(**{name: value or 0 for name, value in said.items()})
        try:
            together, limit = grouped(job.units, spread)
        except InputError as error:
            where = f"{field}.{error.field}"
            raise InputError(
                error.problem, file=self.path, field=where, value=error.value, advice=error.advice
            ) from error
        if together > 1:
            job = self._merged(job, field, together)
        if job.node:
            self.vector(job.node, f"{field}.node", len(job.unit))
            self.need(
                limit == 1 or job.units == 1 or job.exclusive, f"{field}.node", job.node,
                "amounts for each node need to know how many units are on a node",
                "state units_per_node or exclusive, or add the amounts to unit",
            )  # fmt: skip
            job = replace(job, unit=[a + b for a, b in zip(job.unit, job.node, strict=True)])
        if limit < job.units and not job.exclusive:
            most[job.id] = limit
        return job

    def _in_tier(self, job: _QueuedJob, field: str, tier: int) -> _QueuedJob:
        """The job in the tier of its partitions."""
        self.need(
            job.tier in (USUAL_TIER, tier), field, job.tier, f"its partition has the tier {tier}",
            "leave out the tier of a job that names a partition",
        )  # fmt: skip
        return replace(job, tier=tier)

    def _merged(self, job: _QueuedJob, field: str, each: int) -> _QueuedJob:
        """The job whose units are what ``each`` of its units are together."""
        stopped = job.stopped
        if stopped is not None:
            for node, units in stopped.nodes.items():
                self.need(
                    units % each == 0, f"{field}.stopped.nodes.{node}", units,
                    f"the job's units are on nodes by {each}",
                )  # fmt: skip
            nodes = {node: units // each for node, units in stopped.nodes.items()}
            stopped = replace(stopped, nodes=nodes)
        unit = [each * amount for amount in job.unit]
        return replace(job, units=job.units // each, unit=unit, stopped=stopped)

    def _workload(self, read: _File, asked: list[_QueuedJob | _RunningJob]) -> Workload:
        """The jobs, then the reservations as jobs that ask for what is held on a node."""
        wishes = [_wish(job) for job in asked] + [ANYWHERE] * len(read.reservations)
        different = tuple(dict.fromkeys(wishes))
        sent_to = [getattr(job, "partition", "") for job in asked] + [""] * len(read.reservations)
        partitions = tuple(sorted({*sent_to} - {""}))
        count = len(wishes)
        capacity = np.repeat(
            np.array([g.capacity for g in read.groups], dtype=np.int64),
            [g.nodes for g in read.groups], axis=0,
        )  # fmt: skip
        held = [np.minimum(r.capacity, capacity[r.nodes].max(axis=0)) for r in read.reservations]
        block = job_block(
            id=[job.id for job in asked] + [-1 - k for k in range(len(held))],
            submit_s=0,
            units=1,
            requested_s=[job.requested or job.duration for job in asked] + [1] * len(held),
            request=np.array([*(job.unit for job in asked), *held], dtype=np.int64),
            partition=[partitions.index(name) if name else -1 for name in sent_to],
        )
        none = np.zeros(count, dtype=np.int64)
        return Workload(
            str(self.path), tuple(read.resources), JobTable(block, {"partition": partitions}),
            none, none - 1, none - 1, access=different,
            access_of=np.array([different.index(wish) for wish in wishes], dtype=np.int64),
        )  # fmt: skip


def _wish(job: _QueuedJob | _RunningJob) -> Access:
    """What a job asks of nodes; a running one is where it is, and may have them whole."""
    texts = {name: getattr(job, name, "") for name in WISHES}
    return Access(**texts, exclusive=job.exclusive)
