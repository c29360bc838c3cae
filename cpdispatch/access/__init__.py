"""Where jobs may run, expressed as resource types that only some nodes have.

A job that is kept to some nodes asks, beside what it asked for before, for a resource type of just
these nodes: ``core@gpu`` is the cores of the partition ``gpu``, and no other node has any. Each of
its units asks for as many of them as of cores, so that they never run out before the cores do.
Whatever respects capacity then keeps jobs to their nodes, be it a kernel, a model, a bound, or a
dispatcher of the user's own. That each job ran where it may is checked from the names again, see
`cpdispatch.verify.access`.

Jobs that take whole nodes are expressed in the same way: each node has as many ``core@whole`` as
the largest node has cores; a unit of such a job asks for all of them, one of another job for as
many as of cores.

What a job takes once, on its first node, is asked for as ``first@mem``, of which no node ever lacks
any: the request is not multiplied by units, see `cpdispatch.first_node`.

Partitions have tiers. The tier of a job is the highest of the partitions that it may use; a job
without a partition has the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cpdispatch.access import spread
from cpdispatch.arrays import BoolArray, IntArray, compact
from cpdispatch.errors import InputError, nearest
from cpdispatch.jobs import Access, Column, JobTable, Workload
from cpdispatch.system import FIRST, LIMIT, USUAL_TIER, Partition, System, is_own, with_capacity

WHOLE, SPREAD = "whole", "spread"
NOWHERE = "nowhere"
HELD = "held@jobs"
"""What a job that is held asks for: no node has any."""
NO_NODE = "may use no node: by its partitions and their time limits, its features or its nodes"
_NO_PLACES = (f"{SPREAD}@", spread.LIMIT_TYPE, HELD, FIRST)
_NAMED = 40
"""Longest name of a resource type that is made of what jobs ask for; longer ones are numbered."""


def keep(workload: Workload, system: System) -> tuple[Workload, System]:
    """Keep jobs to the nodes that they may use: a workload and a system with more resource types.

    Parameters
    ----------
    workload : Workload
        Fitted to the system. Where the system has partitions, a job may name one or several, with
        commas between them; it then uses nodes of those whose time limit it keeps to.

    Returns
    -------
    workload : Workload
    system : System
        Its groups are split where only some of their nodes have a resource type. Both are what they
        were if every job may use any node.

    Raises
    ------
    InputError
        When a job names a partition, a feature or a node that the system does not have, or the
        system was made by this function for another workload.
    """
    own = Column.REQUEST + len(system.resources)
    names, columns = workload.resources[len(system.resources) :], workload.table.columns
    if not names:
        return _kept(workload, system)
    # What is taken on first nodes says nothing of where jobs may run.
    plain = JobTable(columns[:own], workload.table.labels)
    kept, extended = _kept(replace(workload, resources=system.resources, table=plain), system)
    endless = [np.full(system.nodes, LIMIT) for _ in names]
    extended = _extended(extended, names, endless)
    table = JobTable([*kept.table.columns, *columns[own:]], kept.table.labels)
    return replace(kept, resources=extended.resources, table=table), extended


def _kept(workload: Workload, system: System) -> tuple[Workload, System]:
    """The same of jobs that ask for the system's resource types alone."""
    workload, system = _limited(workload, system)
    asked = _Asked(workload, system)
    if asked.nothing:
        return workload, system
    table = workload.table.having(Column.TIER, compact(asked.tier[asked.kind]))
    workload = replace(workload, table=table)
    nodes, exclusive, names = asked.nodes, asked.exclusive, asked.names
    sets, set_of = _distinct(nodes)
    base = _base(workload, system)
    resources, capacity, request = [], [], []
    called = _names(sets, set_of, names)
    amount = base.amount(workload.table.request)
    has = base.amount(system.capacity)
    for k, (mask, name) in enumerate(zip(sets, called, strict=True)):
        if mask.all():
            continue
        resources.append(f"{base.name}@{name}")
        capacity.append(np.where(mask, has, 0))
        request.append(np.where((set_of == k)[asked.kind], amount, 0))
    if exclusive.any():
        most = int(has.max())
        resources.append(f"{base.name}@{WHOLE}")
        capacity.append(np.full(system.nodes, most))
        request.append(np.where(exclusive[asked.kind], most, amount))
    if not resources:
        return workload, system
    columns = [*table.columns, *(compact(column.astype(np.int64)) for column in request)]
    extended = _extended(system, resources, capacity)
    nowhere = int(np.count_nonzero((nodes.sum(axis=1) == 0)[asked.kind]))
    kept = replace(
        workload,
        resources=extended.resources,
        table=JobTable(columns, table.labels),
        notes=workload.notes | ({NO_NODE: nowhere} if nowhere else {}),
    )
    return kept, extended


def _limited(workload: Workload, system: System) -> tuple[Workload, System]:
    """With the resource type that limits how many units of a job share a node, where one is."""
    most = spread.limit(workload)
    if most is None:
        return workload, system
    least = np.where(most < workload.table.units, -most, 0)
    columns = [*workload.table.columns, compact(least.astype(np.int64))]
    extended = _extended(system, [spread.LIMIT_TYPE], [np.zeros(system.nodes, dtype=np.int64)])
    table = JobTable(columns, workload.table.labels)
    return replace(workload, resources=extended.resources, table=table), extended


class _Asked:
    """What is asked for of nodes, for each kind of jobs that ask for the same.

    Attributes
    ----------
    nothing : bool
        Whether every job may use any node, none of them whole.
    kind : int64 array, shape (jobs,)
    nodes : bool array, shape (kinds, nodes)
    exclusive : bool array, shape (kinds,)
    tier : int64 array, shape (kinds,)
    names : list of str
        What each kind asks for, in words.
    """

    def __init__(self, workload: Workload, system: System) -> None:
        self.workload, self.system = workload, system
        table = workload.table
        partition = table.column(Column.PARTITION)
        named = bool(system.partitions) and bool((partition >= 0).any())
        wished = workload.access_of is not None or workload.access != (Access(),)
        self.nothing = not (named or wished)
        if self.nothing:
            return
        limits_s = sorted({p.limit_s for p in system.partitions if p.limit_s is not None})
        none = np.zeros(len(table), dtype=np.int64)
        rows = np.stack([
            partition if named else none - 1,
            np.searchsorted(limits_s, table.requested_s) if named else none,
            none if workload.access_of is None else workload.access_of,
        ])  # fmt: skip
        kinds, first, kind = np.unique(rows, axis=1, return_index=True, return_inverse=True)
        self.kind: IntArray = kind.reshape(-1)
        found = [
            self._of(partition, access, job)
            for (partition, _, access), job in zip(kinds.T.tolist(), first, strict=True)
        ]
        self.nodes: BoolArray = np.stack([nodes for nodes, _, _, _ in found])
        self.exclusive: BoolArray = np.array([whole for _, whole, _, _ in found])
        self.tier: IntArray = np.array([tier for _, _, tier, _ in found], dtype=np.int64)
        self.names = [name for _, _, _, name in found]

    def _of(self, partition: int, access: int, job: int) -> tuple[BoolArray, bool, int, str]:
        """The nodes of one kind, whether whole, its tier and name; ``job`` is one of them."""
        wish, system, words = self.workload.access[access], self.system, []
        nodes = np.ones(system.nodes, dtype=np.bool_)
        exclusive, tier = wish.exclusive, USUAL_TIER
        if partition >= 0:
            parts = self._partitions(job)
            requested_s = int(self.workload.table.requested_s[job])
            open_to = [p for p in parts if p.limit_s is None or requested_s <= p.limit_s]
            nodes[:] = False
            for each in open_to:
                nodes[list(each.nodes)] = True
            exclusive |= any(each.exclusive for each in open_to)
            tier = max((each.tier for each in open_to), default=USUAL_TIER)
            words.append("+".join(each.name for each in open_to) or NOWHERE)
        if wish.features:
            nodes &= self._checked(job, "features", lambda: with_features(system, wish.features))
            words.append(wish.features.replace(" ", ""))
        if wish.nodelist:
            nodes &= self._checked(job, "nodelist", lambda: _mask(system, wish.nodelist))
            words.append(wish.nodelist.replace(" ", ","))
        if wish.exclude:
            nodes &= ~self._checked(job, "exclude", lambda: _mask(system, wish.exclude))
            words.append("not " + wish.exclude.replace(" ", ","))
        return nodes, exclusive, tier, " ".join(words)

    def _partitions(self, job: int) -> list[Partition]:
        known = {partition.name: partition for partition in self.system.partitions}
        text = self.workload.table.label("partition", job)
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise InputError(
                    f"job {self.workload.table.id[job]}: system {self.system.name} has no such "
                    f"partition{nearest(name, known)} (it has: {', '.join(known)})",
                    file=self.workload.name, field="partition", value=name,
                    advice="name it in the system file, or remove all partitions there",
                )  # fmt: skip
        return [known[name] for name in dict.fromkeys(names)]

    def _checked(self, job: int, field: str, read: Callable[[], BoolArray]) -> BoolArray:
        try:
            return read()
        except InputError as error:
            raise InputError(
                f"job {self.workload.table.id[job]}: {error.problem}", file=self.workload.name,
                field=field, value=error.value, advice=error.advice,
            ) from error  # fmt: skip


def _mask(system: System, text: str) -> BoolArray:
    mask = np.zeros(system.nodes, dtype=np.bool_)
    mask[list(system.named_nodes(text))] = True
    return mask


def said(name: str) -> str:
    """A resource type in words, also one that stands for where jobs may run."""
    base, _, where = name.partition("@")
    if not where:
        return name
    if name == HELD:
        return "release: it is held"
    if base == SPREAD:
        return f"nodes that may take units of job {where}"
    if name == spread.LIMIT_TYPE:
        return "limit of units on a node"
    if name.startswith(FIRST):
        return f"{where} on its first node"
    base = "room" if base == _ALL else base
    return f"{base} of whole nodes" if where == WHOLE else f"{base} on nodes of {where}"


def is_place(name: str) -> bool:
    """Whether a resource type stands for some of the nodes, as those of a partition."""
    return not is_own(name) and not name.startswith(_NO_PLACES) and not is_whole(name)


def is_whole(name: str) -> bool:
    """Whether a resource type stands for whole nodes."""
    return name.endswith(f"@{WHOLE}")


def total(system: System) -> IntArray:
    """What a system has, of which jobs ask for a share, shape (resources,).

    A resource type that says where jobs may run, or how many units share a node, has no end: a job
    of a small partition asks for no larger share of the system than others of its size.
    """
    counts = [is_own(name) or is_whole(name) for name in system.resources]
    return np.where(counts, system.total, LIMIT)


def wished(names: Sequence[str]) -> list[str]:
    """Where a job that asks for these resource types is kept to, in words."""
    return [name.partition("@")[2] for name in names if is_place(name)]


def with_features(system: System, text: str) -> BoolArray:
    """The nodes that have what a text of features asks for, shape (nodes,).

    Parameters
    ----------
    text : str
        Names with ``&`` and ``|`` between them; ``&`` binds first.

    Raises
    ------
    InputError
        When a name is missing, or no node has it.
    """
    known = {feature for group in system.groups for feature in group.features}
    some = np.zeros(len(system.groups), dtype=np.bool_)
    for alternative in text.split("|"):
        every = np.ones(len(system.groups), dtype=np.bool_)
        for name in (part.strip() for part in alternative.split("&")):
            if name not in known:
                raise InputError(
                    f"system {system.name} has no such feature{nearest(name, known)} "
                    f"(it has: {', '.join(sorted(known)) or 'none'})",
                    value=name or text,
                    advice="write names with & and | between them, and state the features of the "
                    "groups in the system file",
                )  # fmt: skip
            every &= [name in group.features for group in system.groups]
        some |= every
    found: BoolArray = some[system.group_of]
    return found


def _distinct(nodes: BoolArray) -> tuple[BoolArray, IntArray]:
    """The different sets of nodes, in the order in which they come, and which is whose."""
    _, first, which = np.unique(nodes, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.argsort(order)
    return nodes[first[order]], rank[which.reshape(-1)]


def _names(sets: BoolArray, set_of: IntArray, names: Sequence[str]) -> list[str]:
    """A name for each set: the shortest of what is asked for, made different by numbers."""
    found: list[str] = []
    for k, mask in enumerate(sets):
        if not mask.any():
            name = NOWHERE
        else:
            name = min(
                (names[int(i)] for i in np.flatnonzero(set_of == k)), key=lambda n: (len(n), n)
            )
        if len(name) > _NAMED or name in (WHOLE, *found):
            name = f"set{k + 1}"
        found.append(name)
    return found


_ALL = "units"
"""What the sum of all resource types is called in the names of types of some nodes."""


@dataclass(frozen=True, slots=True)
class _Base:
    """Of what the nodes' own resource types are made: of one type, or of the sum of all."""

    name: str
    kind: int

    def amount(self, of: IntArray) -> IntArray:
        """Capacities or requests, shape (rows, resources), as amounts, shape (rows,).

        A limit of units a node is asked for in negative amounts, see `_limited`.
        """
        amount: IntArray = of.clip(0).sum(axis=1) if self.kind < 0 else of[:, self.kind]
        return amount


def _base(workload: Workload, system: System) -> _Base:
    """The first resource type that each unit of every job asks for; or the sum of all types."""
    first = max(system.resource("core"), 0)
    order = [first, *(k for k in range(len(system.resources)) if k != first)]
    request = workload.table.columns[Column.REQUEST :]
    kind = next((k for k in order if request[k].min() > 0), -1)
    return _Base(_ALL if kind < 0 else system.resources[kind], kind)


def _extended(system: System, resources: Sequence[str], capacity: Sequence[IntArray]) -> System:
    """The system with more resource types, each group split into runs of like nodes."""
    if twice := sorted({*resources} & {*system.resources}):
        raise InputError(
            "a resource type is named twice", file=f"system {system.name}", field="resources",
            value=", ".join(twice),
            advice="if the system was prepared for another log, give it as it was read",
        )  # fmt: skip
    every = np.column_stack([system.capacity, *capacity])
    return with_capacity(system, every, (*system.resources, *resources))
