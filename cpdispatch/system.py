"""Systems: resource types, groups of like nodes, partitions; built in, or read from files."""

from __future__ import annotations

import operator
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.durations import LIMIT_S
from cpdispatch.errors import InputError, UsageError, nearest
from cpdispatch.files import parse_json, parse_toml, read_text
from cpdispatch.parameters import count_of
from cpdispatch.structure import converted

LIMIT = LIMIT_S
"""Largest number in a system or an instance: sums over thousands of jobs stay within int64."""
NODES_MAX = 1_000_000
"""Most nodes of a system: a mistyped number must not ask for more memory than there is."""
WATTS_MAX = 1_000_000
"""Most watts of a unit of a resource type, or of an idle node."""
USUAL_TIER, TIER_MAX = 1, 65_533
"""The tier of a partition that states none, and the highest one, as in Slurm."""
CELLS_MAX = 16_000_000
"""Most capacities of a system, nodes times resource types: 128 MB."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Like nodes: how many, and the capacity of each in the system's order of resource types.

    Its features are names that jobs may ask for, see `cpdispatch.access`.
    """

    name: str
    nodes: int
    capacity: tuple[int, ...]
    features: tuple[str, ...] = ()

    @property
    def site_name(self) -> str:
        """Its name; of ``thin[0-3]``, a part of the site's group ``thin``, that of the whole."""
        return self.name.partition("[")[0] or self.name


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes to which jobs are sent by a name. Partitions may overlap.

    Attributes
    ----------
    name : str
    nodes : tuple of int
        Ascending.
    limit_s : int or None
        The longest requested time of a job that may use it, seconds.
    exclusive : bool
        Whether its jobs take whole nodes.
    tier : int
        Its jobs come before all of partitions of a lower tier.
    """

    name: str
    nodes: tuple[int, ...]
    limit_s: int | None = None
    exclusive: bool = False
    tier: int = USUAL_TIER


JOBS = "jobs"
"""What a limit counts that counts jobs and no resource."""
LIMITED = ("user", "group", "queue", "partition")
"""The columns of jobs for whose values a limit may hold."""
ALSO = {"account": "group", "qos": "queue"}
"""Other names of these columns: what Slurm calls them, see `cpdispatch import slurm`."""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that may run at once, see `cpdispatch.simulator.gates`.

    Attributes
    ----------
    most : int
        Jobs, or units of the resource type; 0 or more.
    of : str
        ``jobs``, or a resource type.
    per : str
        A column in `LIMITED`: each of its values has the limit for itself. Empty: all jobs
        together.
    name : str
        The only value of that column for which the limit holds. Empty: each value.
    """

    most: int
    of: str = JOBS
    per: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" for {self.per} {self.name}" if self.name else f" per {self.per}"
        what = "job" if self.of == JOBS and self.most == 1 else self.of
        return f"at most {self.most} {what}{where if self.per else ''}"


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A window in which nodes are out of service, once or again and again.

    Attributes
    ----------
    from_s, length_s : int
        When it begins, on the clock of a log, and how long it lasts, seconds.
    nodes : str
        As `System.named_nodes` reads them.
    every_s : int or None
        Seconds between the beginnings of two windows; None: there is one.
    known_s : int or None
        How many seconds before its beginning a window is known; None: always.
    """

    from_s: int
    length_s: int
    nodes: str = "all"
    every_s: int | None = None
    known_s: int | None = None


def is_own(name: str) -> bool:
    """Whether a resource type is the system's own.

    Others stand for where jobs may run, see `cpdispatch.access`.
    """
    return "@" not in name


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
    partitions : tuple of Partition
        None where any job may use any node.
    limits : tuple of Limit
        What may run at once. Replays keep them; an instance holds jobs that they let pass.
    maintenance : tuple of Maintenance
        When nodes are out of service by plan. Replays keep to it.
    licences : mapping of str to int
        How many of each licence may be in use at once. No node has them.
    watts : mapping of str to int
        What a unit of each resource type draws while a job holds it; a type that is not named
        draws nothing. Empty where it is not known.
    idle_watts : mapping of str to int
        What a node of each group draws by itself, by the site's name of the group.
    group_watts : mapping of str to mapping of str to int
        What a unit of a resource type draws on the nodes of a group, where that is not ``watts``.
    off_watts : mapping of str to int
        What a node of each group draws while it is switched off; nothing where it is not named.
    wake_s : mapping of str to int
        How long a node of each group takes to be back when it is switched on. Nodes of groups that
        are not named are never switched off.
    capacity : int64 array, shape (nodes, resources)
        A node that lacks a resource has capacity 0 of it.
    counted : int64 array, shape (nodes, resources)
        The capacity that tells how full a node is: 0 of resource types that stand for where jobs
        may run, as these stand for capacity that is counted already.
    group_of : int64 array, shape (nodes,)
        Index of each node's group.
    """

    name: str
    resources: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    memory_unit_kb: int = 1
    expected_wait_s: Mapping[str, int] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    limits: tuple[Limit, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    licences: Mapping[str, int] = field(default_factory=dict)
    watts: Mapping[str, int] = field(default_factory=dict)
    idle_watts: Mapping[str, int] = field(default_factory=dict)
    group_watts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    off_watts: Mapping[str, int] = field(default_factory=dict)
    wake_s: Mapping[str, int] = field(default_factory=dict)
    capacity: IntArray = field(init=False, repr=False)
    counted: IntArray = field(init=False, repr=False)
    group_of: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _validate(self)
        counts = [group.nodes for group in self.groups]
        rows = np.array([group.capacity for group in self.groups], dtype=np.int64)
        capacity = sealed(np.repeat(rows, counts, axis=0))
        own = [is_own(name) for name in self.resources]
        counted = capacity if all(own) else sealed(np.where(own, capacity, 0))
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "counted", counted)
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

    @property
    def unit_watts(self) -> tuple[int, ...]:
        """Watts of a unit of each resource type, in their order, where it draws the most."""
        if not self.group_watts:
            return tuple(self.watts.get(name, 0) for name in self.resources)
        return tuple(np.where(self.capacity > 0, self.node_watts, 0).max(axis=0).tolist())

    @property
    def node_watts(self) -> IntArray:
        """Watts of a unit of each resource type on each node, shape (nodes, resources)."""
        rows = [
            [
                self.group_watts.get(group.site_name, {}).get(name, self.watts.get(name, 0))
                for name in self.resources
            ]
            for group in self.groups
        ]
        return np.array(rows, dtype=np.int64)[self.group_of]

    @property
    def idle_total(self) -> int:
        """Watts that all nodes draw by themselves."""
        return sum(g.nodes * self.idle_watts.get(g.site_name, 0) for g in self.groups)

    def resource(self, name: str) -> int:
        """Index of a resource type, -1 when the system has none of that name."""
        return self.resources.index(name) if name in self.resources else -1

    def room(self, request: IntArray) -> IntArray:
        """How many units of each request all its nodes hold, 0 of one that asks for nothing.

        Parameters
        ----------
        request : int64 array, shape (requests, resources)

        Returns
        -------
        int64 array, shape (requests,)
        """
        shapes, of = np.unique(request, axis=0, return_inverse=True)
        nodes = np.array([group.nodes for group in self.groups], dtype=np.int64)
        capacity = np.array([group.capacity for group in self.groups], dtype=np.int64)
        room = [
            int(nodes @ (capacity[:, asked > 0] // asked[asked > 0]).min(axis=1))
            if asked.any() else 0
            for asked in shapes
        ]  # fmt: skip
        return np.array(room, dtype=np.int64)[of.reshape(-1)]

    def named_nodes(self, text: str) -> tuple[int, ...]:
        """The nodes that a text names, ascending.

        Parameters
        ----------
        text : str
            Numbers, ranges as ``0-3``, names of groups, or ``all``, apart by blanks or commas.

        Raises
        ------
        InputError
            When it names no node, one that there is not, or one twice; the value is the wrong part.
        """

        def wrong(problem: str, value: str) -> InputError:
            groups = ", ".join(dict.fromkeys(group.site_name for group in self.groups))
            advice = (
                f"write numbers from 0 to {self.nodes - 1}, ranges as 0-3, {EVERY_NODE}, or a "
                f"group ({groups})"
            )
            return InputError(problem, field="nodes", value=value, advice=advice)

        groups: dict[str, list[int]] = {}
        for k, group in enumerate(self.groups):
            for name in {group.name, group.site_name}:
                groups.setdefault(name, []).append(k)
        found: list[int] = []
        for part in re.split(r"[\s,]+", text.strip(" ,")) if text.strip(" ,") else ():
            first, dash, last = part.partition("-")
            last = last if dash else first
            low, high = count_of(first), count_of(last)
            if low is not None and high is not None:
                if low > high:
                    raise wrong("the range ends before it begins", part)
                if high >= self.nodes:
                    raise wrong(f"system {self.name} has no such node", part)
                found += range(low, high + 1)
            elif part in groups:
                found += np.isin(self.group_of, groups[part]).nonzero()[0].tolist()
            elif part == EVERY_NODE:
                found += range(self.nodes)
            else:
                raise wrong(f"system {self.name} has no such node or group", part)
        if not found:
            raise wrong("no node is named", text)
        if len(set(found)) < len(found):
            raise wrong("a node is named twice", text)
        return tuple(sorted(found))


EVERY_NODE = "all"


def ranges_of(nodes: Sequence[int]) -> str:
    """Ascending numbers of nodes as `System.named_nodes` reads them."""
    parts: list[list[int]] = []
    for node in nodes:
        if parts and parts[-1][1] == node - 1:
            parts[-1][1] = node
        else:
            parts.append([node, node])
    return " ".join(f"{a}-{b}" if a < b else str(a) for a, b in parts)


def with_capacity(system: System, capacity: IntArray) -> System:
    """The system whose nodes have this capacity, each group split into runs of like nodes.

    Parameters
    ----------
    system : System
    capacity : int64 array, shape (nodes, resources)
    """
    groups, begin = [], 0
    for group in system.groups:
        rows = capacity[begin : begin + group.nodes]
        cuts = np.flatnonzero((np.diff(rows, axis=0) != 0).any(axis=1)) + 1
        for low, high in pairwise((0, *cuts.tolist(), group.nodes)):
            name = group.name
            if len(cuts):
                name = f"{group.name}[{ranges_of(range(begin + low, begin + high))}]"
            groups.append(NodeGroup(name, high - low, tuple(rows[low].tolist()), group.features))
        begin += group.nodes
    return replace(system, groups=tuple(groups))


def _validate(system: System) -> None:
    """Raise at the first thing that is wrong with a system."""
    _validate_groups(system)
    _validate_partitions(system)
    _validate_limits(system)
    _validate_maintenance(system)
    _validate_licences(system)
    _validate_energy(system)
    _validate_expected_waits(system)


def _wrong(system: System, where: str, value: object, problem: str, advice: str = "") -> InputError:
    named = f"system {system.name}"
    return InputError(problem, file=named, field=where, value=value, advice=advice)


def _need_range(
    system: System, where: str, value: int, least: int, most: int = LIMIT, unit: str = ""
) -> None:
    """Raise unless a whole number lies between two others."""
    _need_whole(system, where, value)
    if not least <= value <= most:
        raise _wrong(system, where, value, f"must be {least} or more{unit}, {most} at most")


def _need_whole(system: System, where: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise _wrong(system, where, value, "must be a whole number")


def _need_known(
    system: System, where: str, name: str, value: object, what: str, known: Collection[str]
) -> None:
    """Raise unless there is something of a name, which stands at a field of the file."""
    if name not in known:
        problem, advice = f"no such {what}{nearest(name, known)}", f"one of {', '.join(known)}"
        raise _wrong(system, where, value, problem, advice)


def _validate_groups(system: System) -> None:
    wrong = partial(_wrong, system)
    if not isinstance(system.name, str):
        raise wrong("name", system.name, "a text is needed")
    if not system.resources:
        raise wrong("resources", list(system.resources), "a system needs a resource type")
    if not all(system.resources):
        raise wrong("resources", list(system.resources), "a resource type without a name")
    if len(set(system.resources)) < len(system.resources):
        raise wrong("resources", list(system.resources), "a resource type is named twice")
    if not system.groups:
        raise wrong("groups", [], "a system needs a group of nodes")
    nodes, most = 0, min(NODES_MAX, CELLS_MAX // len(system.resources))
    for index, group in enumerate(system.groups):
        _need_whole(system, f"groups[{index}].nodes", group.nodes)
        for amount in group.capacity:
            _need_whole(system, f"groups[{index}].capacity", amount)
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
    _need_range(system, "memory_unit_kb", system.memory_unit_kb, 1)


def _validate_partitions(system: System) -> None:
    wrong = partial(_wrong, system)
    nodes = sum(group.nodes for group in system.groups)
    called = Counter(partition.name for partition in system.partitions)
    for index, partition in enumerate(system.partitions):
        where = f"partitions[{index}]"
        if not partition.name or called[partition.name] > 1:
            problem = "two partitions have this name" if partition.name else "it has no name"
            advice = "give each partition its own name"
            raise wrong(f"{where}.name", partition.name, problem, advice)
        if partition.limit_s is not None and not 1 <= partition.limit_s <= LIMIT:
            raise wrong(
                f"{where}.limit_s", partition.limit_s, f"must be 1 or more, {LIMIT} at most",
                "leave it out where there is no limit",
            )  # fmt: skip
        _need_range(system, f"{where}.tier", partition.tier, 0, TIER_MAX)
        ascending = all(a < b for a, b in pairwise((-1, *partition.nodes, nodes)))
        if not partition.nodes or not ascending:
            raise wrong(
                f"{where}.nodes", list(partition.nodes),
                f"one node or more is needed, ascending, from 0 to {nodes - 1}",
            )  # fmt: skip


def _validate_limits(system: System) -> None:
    wrong = partial(_wrong, system)
    partitions = [partition.name for partition in system.partitions]
    for index, limit in enumerate(system.limits):
        where = f"limits[{index}]"
        if limit.of not in (JOBS, *system.resources):
            counted = ", ".join((JOBS, *system.resources))
            problem = f"there is nothing of this name to count{nearest(limit.of, system.resources)}"
            raise wrong(f"{where}.of", limit.of, problem, f"one of {counted}")
        if limit.per and limit.per not in LIMITED:
            problem = f"no such column of jobs{nearest(limit.per, LIMITED)}"
            advice = f"one of {', '.join(LIMITED)}; leave it out for all jobs together"
            raise wrong(f"{where}.per", limit.per, problem, advice)
        if limit.name and not limit.per:
            advice = f"add per: one of {', '.join(LIMITED)}"
            raise wrong(f"{where}.name", limit.name, "it is not said whose name this is", advice)
        if limit.per == "partition" and limit.name and partitions:
            _need_known(system, f"{where}.name", limit.name, limit.name, "partition", partitions)
        _need_range(system, f"{where}.most", limit.most, 0)


def _validate_maintenance(system: System) -> None:
    for index, window in enumerate(system.maintenance):
        where = f"maintenance[{index}]"
        for name, value, least in (
            ("from_s", window.from_s, 0), ("length_s", window.length_s, 1),
            ("every_s", window.every_s, window.length_s + 1), ("known_s", window.known_s, 0),
        ):  # fmt: skip
            if value is not None:
                _need_range(system, f"{where}.{name}", value, least, unit=" seconds")


def _validate_licences(system: System) -> None:
    wrong = partial(_wrong, system)
    for name, many in system.licences.items():
        if not name or set(name) & set(" ,:"):
            raise wrong("licences", name, "is not a name of a licence")
        _need_range(system, f"licences.{name}", many, 0)


def _validate_energy(system: System) -> None:
    wrong = partial(_wrong, system)
    groups = sorted({group.site_name for group in system.groups})
    for where, of, known, least, highest in (
        ("watts", system.watts, sorted(system.resources), 0, WATTS_MAX),
        ("idle_watts", system.idle_watts, groups, 0, WATTS_MAX),
        ("off_watts", system.off_watts, groups, 0, WATTS_MAX),
        ("wake_s", system.wake_s, groups, 1, LIMIT),
    ):
        for name, drawn in of.items():
            what = "resource type" if where == "watts" else "group"
            _need_known(system, f"{where}.{name}", name, drawn, what, known)
            _need_range(system, f"{where}.{name}", drawn, least, highest)
    _validate_group_watts(system, groups)
    for place, drawn in system.off_watts.items():
        if drawn > system.idle_watts.get(place, 0):
            raise wrong(
                f"off_watts.{place}", drawn,
                f"more than the {system.idle_watts.get(place, 0)} W of an idle node",
                "write less, or state idle_watts of the group",
            )  # fmt: skip


def _validate_group_watts(system: System, groups: Collection[str]) -> None:
    if system.group_watts and not system.watts:
        problem = "it is not stated what a unit draws elsewhere"
        raise _wrong(system, "group_watts", dict(system.group_watts), problem, "state watts, too")
    for place, of in system.group_watts.items():
        where = f"group_watts.{place}"
        _need_known(system, where, place, dict(of), "group", groups)
        for name, drawn in of.items():
            field = f"{where}.{name}"
            _need_known(system, field, name, drawn, "resource type", system.resources)
            _need_range(system, field, drawn, 0, WATTS_MAX)


def _validate_expected_waits(system: System) -> None:
    for queue, wait_s in system.expected_wait_s.items():
        _need_range(system, f"expected_wait_s.{queue}", wait_s, 1, unit=" seconds")


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


def find(text: str) -> System:
    """The system that a user means: a number of processors, a name in `NAMED`, or a file.

    Raises
    ------
    UsageError, InputError
        When it is none of these, or the file is wrong.
    """
    if text.isascii() and text.removeprefix("-").isdigit():
        processors = count_of(text)
        if processors is None or not 1 <= processors <= LIMIT:
            raise UsageError(
                f"--system {text}: the number of processors must be 1 or more, {LIMIT} at most"
            )
        return System.pool(processors)
    if text in NAMED:
        return NAMED[text]
    path = Path(text)
    if path.suffix in {".json", ".toml", ".config"} or path.name != text or path.exists():
        return load(text)
    raise UsageError(
        f"unknown system {text!r}{nearest(text, NAMED)} (a number of processors, "
        f"one of {', '.join(NAMED)}, or a JSON or TOML file)"
    )
