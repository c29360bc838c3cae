"""Systems: resource types and groups of like nodes, built in, or read from JSON or TOML files."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.errors import InputError, UsageError, nearest
from cpdispatch.files import read_bytes

LIMIT = 2**48
"""Largest number in a system or an instance: sums over thousands of jobs stay within int64."""
NODES_MAX = 1_000_000
"""Most nodes in a group: a mistyped number must not ask for more memory than there is."""


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

    def resource(self, name: str) -> int:
        """Index of a resource type, -1 when the system has none of that name."""
        return self.resources.index(name) if name in self.resources else -1


def _validate(system: System) -> None:
    def wrong(where: str, value: object, problem: str) -> InputError:
        return InputError(problem, file=f"system {system.name}", field=where, value=value)

    if not system.resources:
        raise wrong("resources", list(system.resources), "a system needs a resource type")
    if len(set(system.resources)) < len(system.resources):
        raise wrong("resources", list(system.resources), "a resource type is named twice")
    if not system.groups:
        raise wrong("groups", [], "a system needs a group of nodes")
    for index, group in enumerate(system.groups):
        if group.nodes < 1:
            raise wrong(f"groups[{index}].nodes", group.nodes, "a group needs a node or more")
        if group.nodes > NODES_MAX:
            raise wrong(f"groups[{index}].nodes", group.nodes, f"more than {NODES_MAX} nodes")
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
    if system.memory_unit_kb < 1:
        raise wrong("memory_unit_kb", system.memory_unit_kb, "must be 1 or more")
    for queue, wait_s in system.expected_wait_s.items():
        if not 1 <= wait_s <= LIMIT:
            raise wrong(f"expected_wait_s.{queue}", wait_s, "must be 1 or more seconds")


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
            "kit",
            ("core", "gpu", "mem"),
            (NodeGroup("thin", 1152, (20, 0, 64)), NodeGroup("fat", 21, (48, 4, 1024))),
            GB_IN_KB,
        ),
        System("seth", ("core", "mem"), (NodeGroup("seth", 120, (4, 1024)),), 1024),
    )
}
"""The systems known by name.

Gaia's groups are ours; their totals, 151 nodes and 2,004 cores, are those of its public log.
"""


class _GroupFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    nodes: int
    capacity: list[int]


class _SystemFile(msgspec.Struct, forbid_unknown_fields=True):
    resources: list[str]
    groups: list[_GroupFile]
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
    content = read_bytes(path)
    try:
        if path.suffix == ".toml":
            data: Any = tomllib.loads(content.decode())
        else:
            data = msgspec.json.decode(content)
    except (ValueError, msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"cannot be parsed: {error}", file=path) from error
    try:
        if isinstance(data, dict) and isinstance(data.get("groups"), dict):
            return _from_accasim(msgspec.convert(data, _AccasimFile), path)
        return _from_ours(msgspec.convert(data, _SystemFile), path)
    except msgspec.ValidationError as error:
        raise InputError(f"does not describe a system: {error}", file=path) from error
    except InputError as error:
        raise InputError(str(error), file=path) from error


def _from_ours(read: _SystemFile, path: Path) -> System:
    return System(
        read.name or path.stem,
        tuple(read.resources),
        tuple(NodeGroup(g.name, g.nodes, tuple(g.capacity)) for g in read.groups),
        read.memory_unit_kb,
        read.expected_wait_s,
    )


def _from_accasim(read: _AccasimFile, path: Path) -> System:
    """AccaSim leaves out resources that a group lacks and states memory in KB."""
    names = tuple(dict.fromkeys(name for group in read.groups.values() for name in group))
    for group in read.resources:
        if group not in read.groups:
            raise InputError("no such group", field="resources", value=group)
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
