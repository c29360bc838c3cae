"""Checks of a system: the bounds of its numbers, and names that have to be known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING

from cpdispatch.durations import LIMIT_S
from cpdispatch.errors import InputError, nearest

if TYPE_CHECKING:
    from cpdispatch.system.machine import System

LIMIT = LIMIT_S
"""Largest number in a system or an instance: sums over thousands of jobs stay within int64."""
NODES_MAX = 1_000_000
"""Most nodes of a system: a mistyped number must not ask for more memory than there is."""
WATTS_MAX = 1_000_000
"""Most watts of a unit of a resource type, or of an idle node."""
USUAL_TIER, TIER_MAX = 1, 65_533
"""The tier of a partition that states none, and the highest one, as in Slurm."""
FIRST = "first@"
"""What comes before the name of a resource type that a job takes once, on its first node."""
CELLS_MAX = 16_000_000
"""Most capacities of a system, nodes times resource types: 128 MB."""
JOBS = "jobs"
"""What a limit counts that counts jobs and no resource."""
LIMITED = ("user", "group", "queue", "partition")
"""The columns of jobs for whose values a limit may hold."""
ALSO = {"account": "group", "qos": "queue"}
"""Other names of these columns: what Slurm calls them, see `cpdispatch import slurm`."""


def check(system: System) -> None:
    """Raise at the first thing that is wrong with a system."""
    _check_groups(system)
    _check_partitions(system)
    _check_limits(system)
    _check_maintenance(system)
    _check_licences(system)
    _check_energy(system)
    _check_expected_waits(system)


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


def _check_groups(system: System) -> None:
    wrong = partial(_wrong, system)
    if not isinstance(system.name, str):
        raise wrong("name", system.name, "a text is needed")
    if not system.resources:
        raise wrong("resources", list(system.resources), "a system needs a resource type")
    if not all(system.resources):
        raise wrong("resources", list(system.resources), "a resource type without a name")
    if len(set(system.resources)) < len(system.resources):
        raise wrong("resources", list(system.resources), "a resource type is named twice")
    for name in system.resources:
        if name.startswith(FIRST) and name.removeprefix(FIRST) not in system.resources:
            raise wrong("resources", name, "stands for a resource type that there is not")
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


def _check_partitions(system: System) -> None:
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


def _check_limits(system: System) -> None:
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


def _check_maintenance(system: System) -> None:
    for index, window in enumerate(system.maintenance):
        where = f"maintenance[{index}]"
        for name, value, least in (
            ("from_s", window.from_s, 0), ("length_s", window.length_s, 1),
            ("every_s", window.every_s, window.length_s + 1), ("known_s", window.known_s, 0),
        ):  # fmt: skip
            if value is not None:
                _need_range(system, f"{where}.{name}", value, least, unit=" seconds")


def _check_licences(system: System) -> None:
    wrong = partial(_wrong, system)
    for name, many in system.licences.items():
        if not name or set(name) & set(" ,:"):
            raise wrong("licences", name, "is not a name of a licence")
        _need_range(system, f"licences.{name}", many, 0)


def _check_energy(system: System) -> None:
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
    _check_group_watts(system, groups)
    for place, drawn in system.off_watts.items():
        if drawn > system.idle_watts.get(place, 0):
            raise wrong(
                f"off_watts.{place}", drawn,
                f"more than the {system.idle_watts.get(place, 0)} W of an idle node",
                "write less, or state idle_watts of the group",
            )  # fmt: skip


def _check_group_watts(system: System, groups: Collection[str]) -> None:
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


def _check_expected_waits(system: System) -> None:
    for queue, wait_s in system.expected_wait_s.items():
        _need_range(system, f"expected_wait_s.{queue}", wait_s, 1, unit=" seconds")
