"""The system of a Slurm cluster: its nodes and partitions as ``sinfo`` and ``scontrol`` say."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.errors import InputError
from cpdispatch.files import parse_json, read_text
from cpdispatch.parameters import count_of
from cpdispatch.system import LIMIT, TIER_MAX, USUAL_TIER, NodeGroup, Partition, System
from cpdispatch.workloads.slurm.terms import licences_of
from cpdispatch.workloads.slurm.values import (
    NO_LIMIT,
    NOTHING,
    count,
    duration_s,
    gpus_of_gres,
    nodes_in,
    tres,
)

if TYPE_CHECKING:
    import pandas as pd

MB_IN_KB = 1024
_PAIR = re.compile(r"([A-Za-z][\w/]*)=(.*?)(?=\s+[A-Za-z][\w/]*=|\s*$)")
_UNUSABLE = ("FUTURE",)


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, and what jobs may have of it; GPUs by resource type."""

    name: str
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]
    features: str = ""
    partitions: tuple[str, ...] = ()
    state: str = ""


@dataclass(slots=True)
class Cluster:
    """What is known of a cluster."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """By name."""
    limits_s: dict[str, int] = field(default_factory=dict)
    """The time limit of each partition in seconds, -1 where there is none."""
    tiers: dict[str, int] = field(default_factory=dict)
    """The priority tier of each partition."""
    exclusive: set[str] = field(default_factory=set)
    """The partitions whose jobs take whole nodes."""
    shared: set[str] = field(default_factory=set)
    """The partitions whose jobs have CPUs together with others."""
    licences: dict[str, int] = field(default_factory=dict)
    """How many of each there are."""
    linear: bool = False
    """Whether every job takes whole nodes."""
    memory: bool = True
    """Whether memory is given to jobs, so that it can run out."""


def read(paths: Sequence[str | os.PathLike[str]]) -> Cluster:
    """Read dumps of a cluster's nodes and partitions.

    Parameters
    ----------
    paths : sequence of path
        ``sinfo --json``, ``scontrol show node`` and ``scontrol show partition`` as text or JSON,
        ``scontrol show licenses`` and ``scontrol show config`` as text; plain or packed.

    Raises
    ------
    InputError
        When a file cannot be read or is none of these.
    """
    cluster = Cluster()
    for path in map(Path, paths):
        add(cluster, read_text(path), path)
    return cluster


def add(cluster: Cluster, content: bytes, path: Path) -> None:
    """Take in what one of these commands printed; ``path`` stands for it in errors."""
    if content.lstrip()[:1] == b"{":
        _from_json(content, path, cluster)
    else:
        _from_text(content, path, cluster)


def _from_text(content: bytes, path: Path, cluster: Cluster) -> None:
    text = content.decode(errors="backslashreplace")
    known, state = text.startswith("No licenses configured"), False
    if text.lstrip().startswith("Configuration data as of"):
        _from_config(text, cluster)
        return
    for line, values in _records(text):
        if "NodeName" in values:
            if state and "State" not in values:
                problem = "the record is cut short: it has no State"
                raise _wrong(problem, path, line, "NodeName", values["NodeName"])
            known, state = True, "State" in values
            node = _node_of(values, path, line)
            if node is not None:
                cluster.nodes[node.name] = node
        elif "PartitionName" in values:
            known = True
            name = values["PartitionName"]
            cluster.limits_s[name] = _limit_s(values.get("MaxTime", "UNLIMITED"), path, line)
            cluster.tiers[name] = _tier(values.get("PriorityTier", ""), path, line)
            sharing = values.get("OverSubscribe", "")
            if sharing == "EXCLUSIVE":
                cluster.exclusive.add(name)
            elif sharing.startswith("FORCE") and sharing != "FORCE:1":
                cluster.shared.add(name)
        elif "LicenseName" in values:
            known = True
            total = values.get("Total", "")
            many = count_of(total)
            if many is None or many > LIMIT:
                raise _wrong("not a number", path, line, "Total", total)
            cluster.licences[values["LicenseName"]] = many
    if not known:
        raise InputError(
            "describes no node, partition, licence or configuration of Slurm", file=path,
            advice="give what `sinfo --json` or `scontrol show node` (partition, licenses, config) "
            "prints",
        )  # fmt: skip


def _from_config(text: str, cluster: Cluster) -> None:
    """What ``scontrol show config`` says that matters here."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            values[name.strip()] = value.strip()
    licences = values.get("Licenses", "")
    if licences not in NOTHING:
        cluster.licences |= licences_of(licences)
    cluster.linear = values.get("SelectType") == "select/linear"
    cluster.memory = "MEMORY" in values.get("SelectTypeParameters", "MEMORY").upper()


def _records(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The records of a dump by ``scontrol show`` with the lines where they begin."""
    values: dict[str, str] = {}
    begin = 1
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(("NodeName=", "PartitionName=", "LicenseName=")):
            if values:
                yield begin, values
            values, begin = {}, number
        for key, value in _PAIR.findall(line):
            values.setdefault(key, value)
    if values:
        yield begin, values


def _node_of(values: Mapping[str, str], path: Path, line: int) -> Node | None:
    def number(*fields: str) -> int:
        for name in fields:
            text = values.get(name, "")
            if text in NOTHING:
                continue
            try:
                return count(text)
            except ValueError as error:
                raise _wrong("not a number", path, line, name, text) from error
        return 0

    name, state = values["NodeName"], values.get("State", "")
    if state.startswith(_UNUSABLE):
        return None
    try:
        gpus = gpus_of_gres(values.get("Gres", ""))
    except ValueError as error:
        raise _wrong(str(error), path, line, "Gres", values["Gres"]) from error
    if not {"CPUEfctv", "CPUTot"} & values.keys():
        raise InputError(
            "the node has no CPUTot", file=path, line=line, field="NodeName", value=name,
            advice="give what `scontrol show node` prints; a slurm.conf is not read",
        )  # fmt: skip
    memory = max(number("RealMemory") - number("MemSpecLimit"), 0)
    return Node(
        name, number("CPUEfctv", "CPUTot"), memory, gpus,
        values.get("AvailableFeatures", "").replace("(null)", ""),
        tuple(part for part in values.get("Partitions", "").split(",") if part), state,
    )  # fmt: skip


def _tier(text: str, path: Path, line: int) -> int:
    if text in NOTHING:
        return USUAL_TIER
    tier = count_of(text)
    if tier is None or tier > TIER_MAX:
        raise _wrong(f"not a number from 0 to {TIER_MAX}", path, line, "PriorityTier", text)
    return tier


def _limit_s(text: str, path: Path, line: int) -> int:
    if text in NO_LIMIT or text in NOTHING:
        return -1
    try:
        return duration_s(text)
    except ValueError as error:
        raise _wrong(str(error), path, line, "MaxTime", text) from error


def _wrong(problem: str, path: Path, line: int, field: str, value: str) -> InputError:
    advice = "make the dump again"
    return InputError(problem, file=path, line=line, field=field, value=value, advice=advice)


# --------------------------------------------------------------------------------------- JSON


def number_of(value: Any) -> int | None:
    """A number of Slurm's JSON, which later releases wrap; None where there is none."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite", False):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -LIMIT <= value <= LIMIT:
        raise ValueError(f"a number out of range (found {value})")
    if value != int(value):
        raise ValueError(f"not a whole number (found {value})")
    return int(value)


def natural_of(value: Any, what: str) -> int:
    """A number of Slurm's JSON that is there, from 0 on.

    Raises
    ------
    ValueError
        When it is something else; ``what`` says of what.
    """
    found = number_of(value)
    if found is None or found < 0:
        raise ValueError(f"{what}: not a whole number from 0 on (found {value!r})")
    return found


def text_of(value: Any) -> str:
    """A text of Slurm's JSON; several texts are put together by commas."""
    if isinstance(value, list):
        return ",".join(map(text_of, value))
    return value if isinstance(value, str) else ""


def object_of(value: Any) -> dict[str, Any]:
    """A value that must be a JSON object."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004
    return value


def dict_of(value: Any, key: str) -> dict[str, Any]:
    """An inner object of Slurm's JSON; empty where there is none."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _from_json(content: bytes, path: Path, cluster: Cluster) -> None:
    data: dict[str, Any] = parse_json(content, dict[str, Any], "a dump of Slurm's nodes", path)
    lists = {key: data[key] for key in ("nodes", "sinfo", "partitions") if key in data}
    if not any(isinstance(rows, list) for rows in lists.values()):
        raise InputError(
            "has no list of nodes or partitions", file=path,
            advice="give what `sinfo --json` or `scontrol show node --json` prints",
        )  # fmt: skip
    for key, rows in lists.items():
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            try:
                {"nodes": _json_node, "sinfo": _json_sinfo, "partitions": _json_partition}[key](
                    object_of(row), cluster
                )
            except ValueError as error:
                raise InputError(
                    str(error), file=path, field=f"{key}[{index}]", advice="make the dump again"
                ) from error


def _json_node(row: dict[str, Any], cluster: Cluster) -> None:
    name = text_of(row.get("name"))
    if not name:
        raise ValueError("a node without a name")
    state = text_of(row.get("state")).upper()
    if state.startswith(_UNUSABLE):
        return
    cluster.nodes[name] = Node(
        name, *size_of(row), gpus_of_gres(text_of(row.get("gres"))),
        text_of(row.get("features")), tuple(text_of(row.get("partitions")).split(",")), state,
    )  # fmt: skip


def size_of(row: dict[str, Any]) -> tuple[int, int]:
    """CPUs of a node, and MB, that jobs may use.

    Slurm 22.05 tells of CPUs that are the system's only by those that are left to count.
    """
    told = count(tres(text_of(row.get("tres"))).get("cpu", "0"))
    cpus = number_of(row.get("effective_cpus")) or told or number_of(row.get("cpus")) or 0
    special = number_of(row.get("specialized_memory")) or 0
    return max(cpus, 0), max((number_of(row.get("real_memory")) or 0) - special, 0)


def tier_of(value: Any) -> int | None:
    """The priority tier of a partition; None where there is none."""
    tier = number_of(value)
    if tier is not None and not 0 <= tier <= TIER_MAX:
        raise ValueError(f"a priority tier of {tier}, beyond 0 to {TIER_MAX}")
    return tier


def _json_sinfo(row: dict[str, Any], cluster: Cluster) -> None:
    """Nodes that sinfo has put together, because they are alike."""
    partition = dict_of(row, "partition")
    name = text_of(partition.get("name"))
    if name:
        _json_partition(partition, cluster)
    state = text_of(dict_of(row, "node").get("state")).upper()
    if state.startswith(_UNUSABLE):
        return
    cpus = number_of(dict_of(row, "cpus").get("maximum")) or 0
    memory = number_of(dict_of(row, "memory").get("maximum")) or 0
    gpus = gpus_of_gres(text_of(dict_of(row, "gres").get("total")))
    features = text_of(dict_of(row, "features").get("total"))
    for node in nodes_in(text_of(dict_of(row, "nodes").get("nodes"))):
        before = cluster.nodes[node].partitions if node in cluster.nodes else ()
        cluster.nodes[node] = Node(
            node, max(cpus, 0), max(memory, 0), gpus, features,
            tuple(dict.fromkeys((*before, name))), state,
        )  # fmt: skip


def _json_partition(row: dict[str, Any], cluster: Cluster) -> None:
    name = text_of(row.get("name"))
    minutes = number_of(dict_of(row, "maximums").get("time"))
    cluster.limits_s[name] = -1 if minutes is None else minutes * 60
    if (tier := tier_of(dict_of(row, "priority").get("tier"))) is not None:
        cluster.tiers[name] = tier
    sharing = dict_of(dict_of(row, "maximums"), "oversubscribe")
    jobs = number_of(sharing.get("jobs"))
    # 0 is how Slurm counts the jobs on a node of OverSubscribe=EXCLUSIVE.
    if jobs == 0:
        cluster.exclusive.add(name)
    elif jobs is not None and jobs > 1 and "FORCE" in text_of(sharing.get("flags")).upper():
        cluster.shared.add(name)


# ------------------------------------------------------------------------------------- the system


def system_of(
    cluster: Cluster, name: str, file: str | os.PathLike[str]
) -> tuple[System, pd.DataFrame]:
    """The system with a group for each capacity and set of features; its nodes in this order.

    Resource types are ``core`` (CPUs as Slurm counts them), ``gpu`` (GPUs of all types),
    ``gpu_TYPE`` and ``mem`` in MB.

    Raises
    ------
    InputError
        When no node has anything.
    """
    import pandas as pd

    gpus = sorted({kind for node in cluster.nodes.values() for kind in node.gpus})
    groups: dict[tuple[tuple[int, ...], tuple[str, ...]], list[Node]] = {}
    for node in cluster.nodes.values():
        capacity = (node.cpus, *(node.gpus.get(kind, 0) for kind in gpus), node.memory_mb)
        groups.setdefault((capacity, _features(node)), []).append(node)
    resources = ("core", *gpus, "mem")
    if not any(any(capacity) for capacity, _ in groups):
        raise InputError(
            "no node has a core or memory", file=file,
            advice="give what `scontrol show node` prints",
        )  # fmt: skip
    called = {capacity: _called(resources, capacity) for capacity, _ in groups}
    alike = Counter(capacity for capacity, _ in groups)
    names = _apart(
        "-".join((called[capacity], *features)) if alike[capacity] > 1 else called[capacity]
        for capacity, features in groups
    )
    made = [
        NodeGroup(name, len(nodes), *of)
        for name, (of, nodes) in zip(names, groups.items(), strict=True)
    ]
    rows = [
        (node.name, group.name, node.features, ",".join(node.partitions), node.state)
        for group, nodes in zip(made, groups.values(), strict=True)
        for node in nodes
    ]
    frame = pd.DataFrame(rows, columns=["name", "group", "features", "partitions", "state"])
    frame.insert(0, "node", range(len(frame)))
    numbers: dict[str, list[int]] = {}
    for number, node in enumerate(node for nodes in groups.values() for node in nodes):
        for partition in filter(None, node.partitions):
            numbers.setdefault(partition, []).append(number)
    partitions = tuple(partition_of(cluster, *of) for of in numbers.items())
    return System(name, resources, tuple(made), MB_IN_KB, partitions=partitions), frame


def partition_of(cluster: Cluster, name: str, numbers: Sequence[int]) -> Partition:
    """A partition of these nodes, with what the dump says of it."""
    limit_s = cluster.limits_s.get(name, -1)
    return Partition(
        name, tuple(numbers), limit_s if limit_s > 0 else None,
        cluster.linear or name in cluster.exclusive, cluster.tiers.get(name, USUAL_TIER),
    )  # fmt: skip


def _apart(names: Iterable[str]) -> list[str]:
    """The names, with a number behind each that another has: features a,b and a-b are joined."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}-{k}" for k in count_from(2))
        found[next(one for one in chain((name,), numbered) if one not in found)] = None
    return list(found)


def _features(node: Node) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in node.features.split(",")} - {""}))


def _called(resources: Sequence[str], capacity: Sequence[int]) -> str:
    """A name for nodes of this capacity: ``16core-64000mb``."""
    parts = [
        f"{many}{'mb' if what == 'mem' else what}"
        for what, many in zip(resources, capacity, strict=True)
        if many
    ]
    return "-".join(parts) or "empty"
