"""Systems: resource types and groups of like nodes, built in, or read from JSON or TOML files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.errors import InputError, UsageError, nearest
from cpdispatch.files import parse_json, parse_toml, read_text

LIMIT = 2**48
"""Largest number in a system or an instance: sums over thousands of jobs stay within int64."""
NODES_MAX = 1_000_000
"""Most nodes of a system: a mistyped number must not ask for more memory than there is."""
CELLS_MAX = 16_000_000
"""Most capacities of a system, nodes times resource types: 128 MB."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Like nodes: how many, and the capacity of each in the system's order of resource types."""

    name: str
    nodes: int
    capacity: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """The machine: nodes numbered from 0 in the order of the groups.

    Attributes
    ----------
    name : str
    resources : tuple of str
        Resource types in the order of every capacity and request.
    groups : tuple of NodeGroup
    memory_unit_kb : int
        What one unit of the resource ``mem`` is, in KB.
    expected_wait_s : mapping of str to int
        Expected waiting time by queue name (``ewt`` in the thesis), where the site has stated it.
    capacity : int64 array, shape (nodes, resources)
        A node that lacks a resource has capacity 0 of it.
    group_of : int64 array, shape (nodes,)
        Index of each node's group.
    """

    name: str
    resources: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    memory_unit_kb: int = 1
    expected_wait_s: Mapping[str, int] = field(default_factory=dict)
    capacity: IntArray = field(init=False, repr=False)
    group_of: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _validate(self)
        counts = [group.nodes for group in self.groups]
        rows = np.array([group.capacity for group in self.groups], dtype=np.int64)
        object.__setattr__(self, "capacity", sealed(np.repeat(rows, counts, axis=0)))
        object.__setattr__(self, "group_of", sealed(np.repeat(np.arange(len(counts)), counts)))

    @classmethod
    def pool(cls, processors: int) -> System:
        """A single pool of identical processors: one node, one resource type."""
        group = NodeGroup("pool", 1, (processors,))
        return cls(str(processors), ("core",), (group,))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.capacity.shape[0])

    @property
    def total(self) -> IntArray:
        """Capacity of the whole system, shape (resources,)."""
        return np.asarray(self.capacity.sum(axis=0), dtype=np.int64)

    @property
    def processors(self) -> int:
        """Number of cores of the whole system; of its first resource type if it has no core."""
        return int(self.total[max(self.resource("core"), 0)])

    def resource(self, name: str) -> int:
        """Index of a resource type, -1 when the system has none of that name."""
        return self.resources.index(name) if name in self.resources else -1


def _validate(system: System) -> None:
    def wrong(where: str, value: object, problem: str, advice: str = "") -> InputError:
        named = f"system {system.name}"
        return InputError(problem, file=named, field=where, value=value, advice=advice)

    if not system.resources:
        raise wrong("resources", list(system.resources), "a system needs a resource type")
    if len(set(system.resources)) < len(system.resources):
        raise wrong("resources", list(system.resources), "a resource type is named twice")
    if not system.groups:
        raise wrong("groups", [], "a system needs a group of nodes")
    nodes, most = 0, min(NODES_MAX, CELLS_MAX // len(system.resources))
    for index, group in enumerate(system.groups):
        if group.nodes < 1:
            raise wrong(f"groups[{index}].nodes", group.nodes, "a group needs a node or more")
        nodes += group.nodes
        if nodes > most:
            raise wrong(
                f"groups[{index}].nodes", group.nodes, f"more than {most} nodes in all groups"
            )
        if len(group.capacity) != len(system.resources):
            raise wrong(
                f"groups[{index}].capacity",
                list(group.capacity),
                f"one number for each of {', '.join(system.resources)} is needed",
            )
        if min(group.capacity) < 0:
            raise wrong(f"groups[{index}].capacity", list(group.capacity), "negative capacity")
        if max(group.capacity) > LIMIT:
            raise wrong(f"groups[{index}].capacity", list(group.capacity), f"more than {LIMIT}")
    names = Counter(group.name for group in system.groups)
    if twice := next((name for name, times in names.items() if times > 1), None):
        raise wrong("groups", twice, "two groups have this name", "give each group its own name")
    if not any(any(group.capacity) for group in system.groups):
        raise wrong(
            "groups", list(names), "no group has any capacity",
            f"state how much of {', '.join(system.resources)} a node has",
        )  # fmt: skip
    if not 1 <= system.memory_unit_kb <= LIMIT:
        raise wrong("memory_unit_kb", system.memory_unit_kb, f"must be 1 or more, {LIMIT} at most")
    for queue, wait_s in system.expected_wait_s.items():
        if not 1 <= wait_s <= LIMIT:
            raise wrong(
                f"expected_wait_s.{queue}", wait_s, f"must be 1 or more seconds, {LIMIT} at most"
            )


GB_IN_KB = 1024 * 1024

NAMED: Mapping[str, System] = {
    system.name: system
    for system in (
        System(
            "eurora",
            ("core", "gpu", "mic", "mem"),
            (NodeGroup("gpu", 32, (16, 2, 0, 16)), NodeGroup("mic", 32, (16, 0, 2, 16))),
            GB_IN_KB,
        ),
        System(
            "gaia",
            ("core", "mem"),
            (
                NodeGroup("thin", 143, (12, 48)),
                NodeGroup("wide", 6, (16, 64)),
                NodeGroup("smp32", 1, (32, 1024)),
                NodeGroup("smp160", 1, (160, 1024)),
            ),
            GB_IN_KB,
        ),
        System(
            "gaia-gpu",
            ("core", "gpu", "mem"),
            (
                NodeGroup("thin", 131, (12, 0, 48)),
                NodeGroup("fermi", 12, (12, 2, 48)),
                NodeGroup("kepler", 5, (16, 1, 64)),
                NodeGroup("wide", 1, (16, 0, 64)),
                NodeGroup("smp32", 1, (32, 0, 1024)),
                NodeGroup("smp160", 1, (160, 0, 1024)),
            ),
            GB_IN_KB,
        ),
        System(
            "kit",
            ("core", "gpu", "mem"),
            (NodeGroup("thin", 1152, (20, 0, 64)), NodeGroup("fat", 21, (48, 4, 1024))),
            GB_IN_KB,
        ),
        System(
            "metacentrum",
            ("core", "mem"),
            (NodeGroup("zewura", 20, (80, 529_426_432)), NodeGroup("zegox", 48, (12, 94_035_968))),
        ),
        System("ricc", ("core", "mem"), (NodeGroup("ricc", 1024, (8, 12 * 1024)),), 1024),
        System("seth", ("core", "mem"), (NodeGroup("seth", 120, (4, 1024)),), 1024),
    )
}
"""The systems known by name.

References
----------
``gaia``: the groups are ours; their totals, 151 nodes and 2,004 cores, are those of its public log.
The memory of a node is that of the nodes that were added in 2014; the oldest ones had 24 GB.

``gaia-gpu``: the same nodes in the same order, with GPUs. They are a system of their own because
best fit takes an idle GPU for free capacity, and so takes such nodes later, though no job of the
log asks for one. The GPUs are those that the site of the University of Luxembourg HPC named: 2
Tesla M2070 on each of gaia-61 and 62, 2 Tesla M2090 on each of gaia-63 to 72, all of 12 cores
(systems/gaia/accelerators, 2013), and a Tesla K20m on each of gaia-75 to 79, of 16 cores and 64 GB
(news of January 2014). The page of the log says that 20 nodes have GPUs. Which 3 others do is not
known; they have none here.

``metacentrum``: the clusters zewura and zegox of CERIT-SC in 2013. Nodes, cores and KB of memory
are those of the file of machines that comes with the log alea-wagap-2013.

``ricc``: the RIKEN Integrated Cluster of Clusters: 1,024 nodes of 8 cores, as the header of its
public log says, with 12 GB each; ``mem`` is in MB.

``eurora``, ``kit`` and ``seth``: the thesis on dispatching by constraint programming (models.md).
"""


class GroupFile(msgspec.Struct, forbid_unknown_fields=True):
    """A group of nodes as it stands in files."""

    name: str
    nodes: int
    capacity: list[int]


class SystemFile(msgspec.Struct, forbid_unknown_fields=True):
    """A system as it stands in files."""

    resources: list[str]
    groups: list[GroupFile]
    name: str = ""
    memory_unit_kb: int = 1
    expected_wait_s: dict[str, int] = {}


class _AccasimFile(msgspec.Struct):
    groups: dict[str, dict[str, int]]
    resources: dict[str, int]


def load(path: str | os.PathLike[str]) -> System:
    """Read a system from a JSON or TOML file, ours or AccaSim's.

    Ours has ``resources`` (names), ``groups`` (``name``, ``nodes``, ``capacity``), and optionally
    ``name``, ``memory_unit_kb`` and ``expected_wait_s`` (queue -> seconds). AccaSim's has
    ``groups`` (name -> {resource: capacity}) and ``resources`` (group -> number of nodes).

    Raises
    ------
    InputError
        When the file cannot be read or does not describe a system.
    """
    path = Path(path)
    data: dict[str, Any]
    if ".toml" in path.suffixes[-2:]:
        data = parse_toml(path, "a system file")
    else:
        data = parse_json(read_text(path), dict[str, Any], "a system file", path)
    try:
        if isinstance(data.get("groups"), dict):
            return _from_accasim(msgspec.convert(data, _AccasimFile), path)
        return from_file(msgspec.convert(data, SystemFile), path.stem)
    except msgspec.ValidationError as error:
        found = data.get("format")
        of = f", it is of the format {found!r}" if isinstance(found, str) else ""
        raise InputError(f"does not describe a system{of}: {error}", file=path) from error
    except InputError as error:
        raise InputError(str(error), file=path) from error


def from_file(read: SystemFile, name: str = "") -> System:
    """The system that stands in a file; the name is for one that states none.

    Raises
    ------
    InputError
        When there can be no such system.
    """
    return System(
        read.name or name,
        tuple(read.resources),
        tuple(NodeGroup(g.name, g.nodes, tuple(g.capacity)) for g in read.groups),
        read.memory_unit_kb,
        read.expected_wait_s,
    )


def system_as_dict(system: System) -> dict[str, Any]:
    """A system in the form of its file."""
    return {
        "name": system.name,
        "resources": list(system.resources),
        "groups": [
            {"name": g.name, "nodes": g.nodes, "capacity": list(g.capacity)} for g in system.groups
        ],
        "memory_unit_kb": system.memory_unit_kb,
        "expected_wait_s": dict(system.expected_wait_s),
    }


def _from_accasim(read: _AccasimFile, path: Path) -> System:
    """AccaSim leaves out resources that a group lacks and states memory in KB."""
    for group in read.resources:
        if group not in read.groups:
            raise InputError("no such group", field="resources", value=group)
    used = (read.groups[group] for group in read.resources)
    names = tuple(dict.fromkeys(name for group in used for name in group))
    groups = tuple(
        NodeGroup(group, nodes, tuple(read.groups[group].get(name, 0) for name in names))
        for group, nodes in read.resources.items()
    )
    return System(path.stem, names, groups)


def find(text: str) -> System:
    """The system that a user means: a number of processors, a name in `NAMED`, or a file.

    Raises
    ------
    UsageError, InputError
        When it is none of these, or the file is wrong.
    """
    if text.isascii() and text.removeprefix("-").isdigit():
        if int(text) < 1:
            raise UsageError(f"--system {text}: the number of processors must be 1 or more")
        return System.pool(int(text))
    if text in NAMED:
        return NAMED[text]
    if Path(text).suffix in {".json", ".toml", ".config"} or Path(text).exists():
        return load(text)
    raise UsageError(
        f"unknown system {text!r}{nearest(text, NAMED)} (a number of processors, "
        f"one of {', '.join(NAMED)}, or a JSON or TOML file)"
    )
