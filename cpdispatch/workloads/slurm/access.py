"""Which nodes the jobs of a Slurm cluster may use: their partitions and features."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cpdispatch.system import Partition, System
from cpdispatch.workloads.imported import Columns
from cpdispatch.workloads.slurm.nodes import Cluster, partition_of

UNREAD = "features that are asked for with brackets, counts or a change of nodes: not heeded"
NO_NODE = "features that no node has: not heeded"
NO_PARTITION = "partitions that no node of the dump is in: these jobs may use any node"
LONGER = "longer than the limit of their partition: the limit in the system file is theirs"

_PART = re.compile(r"\s*([&|]?)\s*([\w.:=-]+)\s*")


def keep(columns: Columns, system: System, cluster: Cluster, notes: Counter[str]) -> System:
    """Give jobs the features that they asked for; the system, with the partitions that they name.

    Parameters
    ----------
    columns : Columns
        Those of the jobs; gets a column ``features``.
    system : System
        With the features and partitions of the dump.
    cluster : Cluster
        What else the dump says of partitions.
    notes : Counter
        Gets how many jobs are not kept to what they asked for.
    """
    columns.labels["features"] = features(columns.extra.get("features", []), system, notes)
    if not system.partitions and not cluster.limits_s:
        return system
    return replace(system, partitions=_partitions(columns, system, cluster, notes))


def features(asked: Sequence[str], system: System, notes: Counter[str]) -> list[str]:
    """What jobs ask for of features, as `Access` has it; empty where it cannot be heeded."""
    known = [{*group.features} for group in system.groups]
    read = {text: features_of(text) for text in set(asked)}
    wanted = []
    for text in asked:
        found = read[text]
        # What no node has is no alternative; the others are left.
        left = [
            one
            for one in (found or "").split("|")
            if any({*one.split("&")} <= names for names in known)
        ]
        if found is None:
            notes[UNREAD] += 1
        elif found and not left:
            notes[NO_NODE] += 1
        wanted.append("|".join(left))
    return wanted


def features_of(text: str) -> str | None:
    """What a job asks for by ``--constraint``, as alternatives; None where it is more than that.

    Slurm reads ``a|b&c`` from left to right: it asks for ``c`` and one of the others.
    """
    alternatives: list[list[str]] = [[]]
    end = 0
    while end < len(text):
        part = _PART.match(text, end)
        if part is None or bool(part[1]) != bool(end):
            return None
        if part[1] == "|":
            alternatives.append([part[2]])
        else:
            alternatives = [[*names, part[2]] for names in alternatives]
        end = part.end()
    return "|".join("&".join(dict.fromkeys(names)) for names in alternatives)


def _partitions(
    columns: Columns, system: System, cluster: Cluster, notes: Counter[str]
) -> tuple[Partition, ...]:
    """The partitions of the dump and the others that jobs name, as wide as the jobs need them."""
    found = {partition.name: partition for partition in system.partitions}
    of_nodes = frozenset(found)
    longest_s: dict[str, int] = {}
    labels = columns.labels.get("partition", [])  # there is none where no job is left
    for label, requested_s in zip(labels, columns.requested_s, strict=True):
        names = [name for name in str(label or "").split(",") if name]
        for name in names:
            if name not in found:
                found[name] = partition_of(cluster, name, range(system.nodes))
        notes[NO_PARTITION] += not of_nodes.issuperset(names)
        limits_s = [found[name].limit_s for name in names]
        if names and all(limit_s is not None and limit_s < requested_s for limit_s in limits_s):
            notes[LONGER] += 1
            longest_s[names[0]] = max(requested_s, longest_s.get(names[0], 0))
    return tuple(
        replace(partition, limit_s=longest_s[name]) if name in longest_s else partition
        for name, partition in found.items()
    )
