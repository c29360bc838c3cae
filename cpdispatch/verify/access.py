"""Where jobs may run, by the names that they and the system state: checked from these alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import InputError
from cpdispatch.system import USUAL_TIER, System
from cpdispatch.verify.levels import Around, Sweep
from cpdispatch.verify.tables import Findings, numbers
from cpdispatch.verify.violation import Kind, Violation

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("partition", "features", "nodelist", "exclude", "exclusive")


@dataclass(frozen=True, slots=True)
class Stay:
    """Jobs on nodes, one row a job and node: row in the table of jobs, from when to when."""

    job: IntArray
    node: IntArray
    units: IntArray
    start_s: IntArray
    end_s: IntArray


def access(
    jobs: pd.DataFrame, system: System, stay: Stay, *, brief: bool = True
) -> list[Violation]:
    """Whether each job kept to the nodes that it may use, had whole nodes to itself, and its tier.

    Parameters
    ----------
    jobs : DataFrame
        The columns ``id`` and ``requested_s``, and of `COLUMNS` and ``tier`` those that there are.
    stay : Stay
        On existing nodes.
    brief : bool
        Whether jobs that end in the second in which they start had whole nodes to themselves, too.

    Raises
    ------
    InputError
        When a job names a partition, a feature or a node that the system does not have.
    """
    named = [name for name in COLUMNS if name in jobs.columns]
    if not system.partitions:
        named = [name for name in named if name != "partition"]
    found = Findings()
    if not named or jobs.empty:
        _tiers(jobs, np.full(len(jobs), USUAL_TIER), found)
        return found.all()
    columns = {name: _texts(jobs[name], flag=name == "exclusive") for name in named}
    requested_s, ids = numbers(jobs["requested_s"]), numbers(jobs["id"])
    rules: dict[tuple[object, ...], int] = {}
    allowed: list[BoolArray] = []
    whole: list[bool] = []
    tier: list[int] = []
    limited = any(p.limit_s is not None for p in system.partitions)
    of_job = np.empty(len(jobs), dtype=np.int64)
    for k, words in enumerate(zip(*columns.values(), strict=True)):
        key = (*words, int(requested_s[k]) if limited else 0)
        if key not in rules:
            rules[key] = len(allowed)
            said = dict(zip(named, words, strict=True))
            may, takes_whole, highest = _may_use(said, int(requested_s[k]), system)
            allowed.append(may)
            whole.append(takes_whole)
            tier.append(highest)
        of_job[k] = rules[key]
    _tiers(jobs, np.array(tier)[of_job], found)

    def text(e: int) -> str:
        k = int(stay.job[e])
        wants = ", ".join(f"{name} {columns[name][k]}" for name in named if columns[name][k])
        return f"job {ids[k]} is on node {stay.node[e]} at {stay.start_s[e]} and asks for {wants}"

    outside = ~np.stack(allowed)[of_job[stay.job], stay.node]
    found.add(Kind.ACCESS, outside.nonzero()[0], text)
    alone = np.array(whole)[of_job[stay.job]]
    if alone.any():
        _alone(ids, stay, alone, brief, found)
    return found.all()


def _tiers(jobs: pd.DataFrame, tier: IntArray, found: Findings) -> None:
    """Whether the tiers that the jobs had, where they are told, are these, shape (jobs,)."""
    if "tier" not in jobs.columns:
        return
    had = numbers(jobs["tier"])
    found.add(
        Kind.ACCESS,
        (had != tier).nonzero()[0],
        lambda k: f"job {jobs['id'].iloc[k]} has the tier {had[k]} and not {tier[k]}",
    )


def _alone(ids: IntArray, stay: Stay, alone: BoolArray, brief: bool, found: Findings) -> None:
    """Whether no other unit was where a job took whole nodes.

    A job that ends in the second in which it starts met what was there before and after.
    """
    lasting, passing = stay.end_s > stay.start_s, brief & (stay.end_s == stay.start_s)
    b, whole = _of(stay, passing), alone[passing]
    s, alone = _of(stay, lasting), alone[lasting]
    around = Around(s.node, s.start_s, s.end_s, b.node, b.start_s)
    others, held = around.level(s.units), around.level(alone.astype(np.int64))
    found.add(
        Kind.ACCESS,
        ((held > 0) | (whole & (b.units + others > 1))).nonzero()[0],
        lambda e: (
            f"node {b.node[e]} at {b.start_s[e]}: {b.units[e]} units of job "
            f"{ids[b.job[e]]}, which ends then, and {others[e]} others, one takes it whole"
        ),
    )
    sweep = Sweep.of(s.node, s.start_s, s.end_s)
    takes, units = sweep.level(alone.astype(np.int64)), sweep.level(s.units)

    def text(k: int) -> str:
        node, time = int(sweep.place[k]), int(sweep.time[k])
        on = (s.node == node) & (s.start_s <= time) & (time < s.end_s)
        there = ", ".join(map(str, np.unique(ids[s.job[on]]).tolist()))
        return f"node {node} at {time}: {units[k]} units of the jobs {there}, one takes it whole"

    found.add(Kind.ACCESS, sweep.firsts((takes > 0) & (units > 1)), text)


def _of(stay: Stay, which: BoolArray) -> Stay:
    return Stay(
        stay.job[which], stay.node[which], stay.units[which], stay.start_s[which],
        stay.end_s[which],
    )  # fmt: skip


def _texts(column: pd.Series, *, flag: bool) -> list[str]:
    """A column as texts; what is unknown, or a flag that is not set, is ""."""
    # Not 0, unless of a flag: a partition may have that number.
    return [
        "" if unknown or v == -1 or (flag and not v) else "True" if flag else str(v)
        for v, unknown in zip(column.tolist(), column.isna().tolist(), strict=True)
    ]


def _may_use(said: dict[str, str], requested_s: int, system: System) -> tuple[BoolArray, bool, int]:
    """The nodes that a job may use, shape (nodes,), whether it takes them whole, and its tier."""
    nodes, tiers = set(range(system.nodes)), []
    alone = bool(said.get("exclusive"))
    if partition := said.get("partition"):
        known = {p.name: p for p in system.partitions}
        there: set[int] = set()
        for name in partition.split(","):
            if name.strip() not in known:
                raise InputError("no such partition", field="partition", value=name)
            p = known[name.strip()]
            if p.limit_s is None or p.limit_s >= requested_s:
                there |= set(p.nodes)
                alone |= p.exclusive
                tiers.append(p.tier)
        nodes &= there
    if features := said.get("features"):
        wanted = [{word.strip() for word in one.split("&")} for one in features.split("|")]
        group_of = system.group_of.tolist()
        has = [set(group.features) for group in system.groups]
        nodes = {node for node in nodes if any(some <= has[group_of[node]] for some in wanted)}
    if nodelist := said.get("nodelist"):
        nodes &= set(system.named_nodes(nodelist))
    if exclude := said.get("exclude"):
        nodes -= set(system.named_nodes(exclude))
    may = np.zeros(system.nodes, dtype=np.bool_)
    may[sorted(nodes)] = True
    return may, alone, max(tiers, default=USUAL_TIER)
