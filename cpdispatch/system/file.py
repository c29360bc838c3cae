"""Systems in files: JSON or TOML, ours or AccaSim's."""

from __future__ import annotations

import operator
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from cpdispatch.errors import InputError
from cpdispatch.files import parse_json, parse_toml, read_text
from cpdispatch.structure import converted
from cpdispatch.system.checks import ALSO, USUAL_TIER
from cpdispatch.system.machine import (
    EVERY_NODE,
    Limit,
    Maintenance,
    NodeGroup,
    Partition,
    System,
    ranges_of,
)


class GroupFile(msgspec.Struct, forbid_unknown_fields=True):
    """A group of nodes as it stands in files."""

    name: str
    nodes: int
    capacity: list[int]
    features: list[str] = []


class PartitionFile(msgspec.Struct, forbid_unknown_fields=True):
    """A partition as it stands in files; its nodes as `System.named_nodes` reads them."""

    name: str
    nodes: str = EVERY_NODE
    limit_s: int | None = None
    exclusive: bool = False
    tier: int = USUAL_TIER


class SystemFile(msgspec.Struct, forbid_unknown_fields=True):
    """A system as it stands in files."""

    resources: list[str]
    groups: list[GroupFile]
    name: str = ""
    memory_unit_kb: int = 1
    expected_wait_s: dict[str, int] = {}
    partitions: list[PartitionFile] = []
    limits: list[Limit] = []
    maintenance: list[Maintenance] = []
    licences: dict[str, int] = {}
    watts: dict[str, int] = {}
    idle_watts: dict[str, int] = {}
    group_watts: dict[str, dict[str, int]] = {}
    off_watts: dict[str, int] = {}
    wake_s: dict[str, int] = {}


class _AccasimFile(msgspec.Struct):
    groups: dict[str, dict[str, int]]
    resources: dict[str, int]


def load(path: str | os.PathLike[str]) -> System:
    """Read a system from a JSON or TOML file, ours or AccaSim's.

    Ours has ``resources`` (names), ``groups`` (``name``, ``nodes``, ``capacity``), and optionally
    ``name``, ``memory_unit_kb``, ``expected_wait_s`` (queue -> seconds), ``features`` of a group
    (names), ``partitions`` (``name``, ``nodes``, ``limit_s``, ``exclusive``, ``tier``),
    ``limits`` (``most``, ``of``, ``per``, ``name``), ``maintenance`` (``from_s``, ``length_s``,
    ``nodes``, ``every_s``, ``known_s``), ``licences`` (name -> how many), ``watts`` (resource
    type -> watts of a unit), ``group_watts`` (group -> resource type -> watts of a unit there),
    ``idle_watts`` and ``off_watts`` (group -> watts of a node) and ``wake_s`` (group -> seconds).
    AccaSim's has ``groups``
    (name -> {resource: capacity}) and ``resources`` (group -> number of nodes).

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
    if isinstance(data.get("format"), str):
        raise InputError(
            f"not a system file, it is of the format {data['format']!r}", file=path,
            advice="name a system file",
        )  # fmt: skip
    of_accasim = isinstance(data.get("groups"), dict)
    form: type[_AccasimFile | SystemFile] = _AccasimFile if of_accasim else SystemFile
    read = converted(data, form, "a system file", path)
    try:
        if isinstance(read, _AccasimFile):
            return _from_accasim(read, path)
        return from_file(read, path.stem)
    except InputError as error:
        raise InputError(str(error), file=path) from error


def from_file(read: SystemFile, name: str = "") -> System:
    """The system that stands in a file; the name is for one that states none.

    Raises
    ------
    InputError
        When there can be no such system.
    """
    system = System(
        read.name or name,
        tuple(read.resources),
        tuple(
            NodeGroup(g.name, g.nodes, tuple(g.capacity), tuple(g.features)) for g in read.groups
        ),
        read.memory_unit_kb,
        read.expected_wait_s,
        maintenance=tuple(read.maintenance),
        licences=read.licences,
        watts=read.watts,
        idle_watts=read.idle_watts,
        group_watts=read.group_watts,
        off_watts=read.off_watts,
        wake_s=read.wake_s,
    )
    for index, window in enumerate(system.maintenance):
        try:
            system.named_nodes(window.nodes)
        except InputError as error:
            raise InputError(str(error), field=f"maintenance[{index}]") from error
    partitions = []
    for index, given in enumerate(read.partitions):
        try:
            nodes = system.named_nodes(given.nodes)
        except InputError as error:
            raise InputError(str(error), field=f"partitions[{index}]") from error
        partitions.append(Partition(given.name, nodes, given.limit_s, given.exclusive, given.tier))
    limits = tuple(
        msgspec.structs.replace(given, per=ALSO.get(given.per, given.per)) for given in read.limits
    )
    if not partitions and not limits:
        return system
    return replace(system, partitions=tuple(partitions), limits=limits)


def system_as_dict(system: System) -> dict[str, Any]:
    """A system in the form of its file."""
    groups = []
    for group in system.groups:
        known: dict[str, Any] = {
            "name": group.name, "nodes": group.nodes, "capacity": list(group.capacity)
        }  # fmt: skip
        groups.append(known | ({"features": list(group.features)} if group.features else {}))
    partitions = [
        {"name": p.name, "nodes": ranges_of(p.nodes)}
        | ({} if p.limit_s is None else {"limit_s": p.limit_s})
        | ({"exclusive": True} if p.exclusive else {})
        | ({} if p.tier == USUAL_TIER else {"tier": p.tier})
        for p in system.partitions
    ]
    maintenance = [
        {name: value for name, value in msgspec.structs.asdict(window).items() if value is not None}
        for window in system.maintenance
    ]
    limits = [
        {"most": limit.most, "of": limit.of}
        | ({"per": limit.per} if limit.per else {})
        | ({"name": limit.name} if limit.name else {})
        for limit in system.limits
    ]
    found = {
        "name": system.name,
        "resources": list(system.resources),
        "groups": groups,
        "memory_unit_kb": system.memory_unit_kb,
        "expected_wait_s": dict(system.expected_wait_s),
    } | {
        name: value
        for name, value in (
            ("partitions", partitions), ("limits", limits), ("maintenance", maintenance),
            ("licences", dict(system.licences)),
            ("watts", dict(system.watts)), ("idle_watts", dict(system.idle_watts)),
            ("group_watts", {group: dict(of) for group, of in system.group_watts.items()}),
            ("off_watts", dict(system.off_watts)), ("wake_s", dict(system.wake_s)),
        )
        if value
    }  # fmt: skip
    # Of NumPy's whole numbers, which a system may be made of, plain ones.
    made: dict[str, Any] = msgspec.to_builtins(found, enc_hook=operator.index)
    return made


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
