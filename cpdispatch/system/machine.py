"""A system: resource types, groups of like nodes, partitions, limits, windows of maintenance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.errors import InputError
from cpdispatch.parameters import count_of
from cpdispatch.system.checks import FIRST, JOBS, USUAL_TIER, check

EVERY_NODE = "all"
"""The nodes of a partition or a window that names none."""


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
    once : tuple of pairs of int
        The resource types of which a job takes an amount once, on its first node, and the types of
        which that is an amount, by their indices: ``first@mem`` and ``mem``. No node lacks any of
        the former.
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
    once: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    counted: IntArray = field(init=False, repr=False)
    group_of: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check(self)
        counts = [group.nodes for group in self.groups]
        rows = np.array([group.capacity for group in self.groups], dtype=np.int64)
        capacity = sealed(np.repeat(rows, counts, axis=0))
        own = [is_own(name) for name in self.resources]
        counted = capacity if all(own) else sealed(np.where(own, capacity, 0))
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "once", _once(self.resources))
        object.__setattr__(self, "counted", counted)
        object.__setattr__(self, "group_of", sealed(np.repeat(np.arange(len(counts)), counts)))

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle forgets that arrays are sealed, and kernels would be compiled for others.
        return _system, (
            {each.name: getattr(self, each.name) for each in fields(self) if each.init},
        )

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


def room_in(free: IntArray, request: IntArray, most: int) -> IntArray:
    """How many units of a request, ``most`` at most, fit each node, or a node at each time.

    A request below 0 says how many may share a node, see `cpdispatch.access.spread`.

    Parameters
    ----------
    free : int64 array, shape (nodes or times, resources)
    """
    asked = request > 0
    fit = (free[:, asked] // request[asked]).min(axis=1, initial=most)
    room: IntArray = np.clip(fit, 0, (-request[request < 0]).min(initial=most))
    return room


def room_beside_once(free: IntArray, request: IntArray, once: IntArray, most: int) -> IntArray:
    """How many units fit as in `room_in`, beside what is taken once; 0 where that does not fit.

    Parameters
    ----------
    once : int64 array, shape (resources,)
    """
    lacks = ((free < once) & (once > 0)).any(axis=1)
    return np.where(lacks, 0, room_in(free - once, request, most))


def _system(parts: dict[str, Any]) -> System:
    return System(**parts)


def _once(resources: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The resource types that are taken once, with the types of the nodes that they are of."""
    return tuple(
        (k, resources.index(name.removeprefix(FIRST)))
        for k, name in enumerate(resources)
        if name.startswith(FIRST)
    )


def ranges_of(nodes: Sequence[int]) -> str:
    """Ascending numbers of nodes as `System.named_nodes` reads them."""
    parts: list[list[int]] = []
    for node in nodes:
        if parts and parts[-1][1] == node - 1:
            parts[-1][1] = node
        else:
            parts.append([node, node])
    return " ".join(f"{a}-{b}" if a < b else str(a) for a, b in parts)


def with_capacity(
    system: System, capacity: IntArray, resources: tuple[str, ...] | None = None
) -> System:
    """The system whose nodes have this capacity, each group split into runs of like nodes.

    Parameters
    ----------
    system : System
    capacity : int64 array, shape (nodes, resources)
    resources : tuple of str, optional
        The resource types. Default: those of the system.
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
    return replace(system, resources=resources or system.resources, groups=tuple(groups))
