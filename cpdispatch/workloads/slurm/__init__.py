"""A Slurm cluster's own records as a workload and a system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from zoneinfo import ZoneInfo

from cpdispatch.errors import UsageError
from cpdispatch.workloads import imported
from cpdispatch.workloads.clean import log_name
from cpdispatch.workloads.imported import Imported
from cpdispatch.workloads.slurm import access, jobs, nodes, replayable, terms


def zone_of(name: str) -> ZoneInfo:
    """A time zone by name.

    Raises
    ------
    UsageError
        When there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"zone {name}: no such time zone; write one as Europe/Berlin") from error


def read(
    records: Sequence[str | os.PathLike[str]],
    system: Sequence[str | os.PathLike[str]] = (),
    zone: str = "UTC",
) -> Imported:
    """Read a cluster's records.

    Parameters
    ----------
    records : sequence of path
        What ``sacct -P`` or ``sacct --json`` prints, plain or packed.
    system : sequence of path
        What ``sinfo --json`` prints, or ``scontrol show node``, ``partition``, ``licenses`` or
        ``config``. Where no node is told, the system is inferred from the jobs.
    zone : str
        That of local times, as ``Europe/Berlin``; seconds since 1970 need none.

    Raises
    ------
    InputError
        When a file cannot be read, a value in it is wrong, or no job is left.
    UsageError
        When there is no such zone, or no file.
    """
    if not records:
        raise UsageError("name one file or more of what sacct prints")
    found = jobs.read(records, zone_of(zone))
    return made(found, nodes.read(system), records[0], system[0] if system else records[0])


def made(
    found: jobs.Records,
    cluster: nodes.Cluster,
    file: str | os.PathLike[str],
    system_file: str | os.PathLike[str],
) -> Imported:
    """Make a workload and a system of what was read; the files stand for it in errors.

    The records are emptied: those of a large dump are the most of what is in memory.

    Raises
    ------
    InputError
        When no job is left, or no node has anything.
    """
    columns, left_out, notes = replayable.columns_of(found, cluster)
    found.records.clear()
    terms.spread(columns, notes)
    name = log_name(file)
    machine, frame = None, None
    if cluster.nodes:
        machine, frame = nodes.system_of(cluster, "slurm", system_file)
        machine = access.keep(columns, machine, cluster, notes)
        terms.listed(columns, frame["name"].tolist(), notes)
        machine = terms.with_licences(columns, machine, cluster.licences, notes)
        if cluster.linear:
            columns.labels["exclusive"] = [1] * len(columns.id)
    told = replayable.used(columns, machine, cluster.shared)
    if machine is None:
        for asked in chain(*replayable.OF_NODES.values()):
            columns.labels.pop(asked, None)
    if machine is not None and not cluster.memory and any(columns.request["mem"]):
        columns.request["mem"] = [0] * len(columns.id)
        told.append("Memory is not given to jobs by this cluster (SelectTypeParameters).")
    return imported.finish(
        columns, machine, frame, file, left_out, notes, told,
        memory_unit_kb=nodes.MB_IN_KB, name=name,
    )  # fmt: skip
