"""What another system would bring: the same log on several systems, beside each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from cpdispatch.analyze.draws import Pairs, figure_difference
from cpdispatch.errors import UsageError
from cpdispatch.experiment.report import tables
from cpdispatch.experiment.runs import Experiment, Part, RunPlan, RunSummary, check_apart, safe
from cpdispatch.files import csv_of
from cpdispatch.jobs import Workload
from cpdispatch.system import Limit, System, find, ranges_of
from cpdispatch.workloads import own_machine, prepare

_CHANGE = re.compile(r"([+-]\d+(?:\.\d+)?)%")
_LIMIT = re.compile(r"(\S+)(?: per (\S+)(?: (\S+))?)? *= *(\d+|none)")
FIGURES = (
    "wait_s_mean", "wait_s_max", "bounded_slowdown_mean", "utilisation", "jobs_never_started",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alternative:
    """A system, what it is called in the table, and the log fitted to it."""

    name: str
    workload: Workload
    system: System


def change_of(text: str) -> float | None:
    """By which share a text such as ``+20%`` changes a system; None where it is none."""
    found = _CHANGE.fullmatch(text.strip())
    return float(found[1]) / 100 if found else None


def scaled(system: System, change: float) -> System:
    """A system with more or fewer nodes: each group by this share, rounded, one at least.

    Of a group of one node, as a pool is, the capacity changes instead.

    Raises
    ------
    UsageError
        When nothing would be left, nothing would change, or a partition or a maintenance window has
        a part of a group.
    """
    sign = f"{100 * change:+g}%"
    parts = [(f"partition {each.name}", each.nodes) for each in system.partitions]
    parts += [("a maintenance window", system.named_nodes(w.nodes)) for w in system.maintenance]
    for what, nodes in parts:
        if not _has_whole_groups(system, nodes):
            raise UsageError(
                f"--system {sign}: {what} of {system.name} has some nodes of a group alone, and it "
                "is not clear how many of them there would be; write a system file with the nodes "
                "that you mean"
            )
    if change <= -1:
        raise UsageError(f"--system {sign}: nothing would be left of {system.name}")
    groups = []
    for group in system.groups:
        if group.nodes == 1:
            more = [max(round(n * (1 + change)), 1) if n else 0 for n in group.capacity]
            groups.append(replace(group, capacity=tuple(more)))
        else:
            groups.append(replace(group, nodes=max(round(group.nodes * (1 + change)), 1)))
    if tuple(groups) == system.groups:
        raise UsageError(
            f"--system {sign}: {system.name} would stay as it is: name a greater change"
        )
    group_of = np.repeat(np.arange(len(groups)), [group.nodes for group in groups])

    def moved(nodes: Sequence[int]) -> tuple[int, ...]:
        """The nodes of the same groups."""
        return tuple(np.isin(group_of, system.group_of[list(nodes)]).nonzero()[0].tolist())

    partitions = tuple(replace(each, nodes=moved(each.nodes)) for each in system.partitions)
    maintenance = tuple(
        msgspec.structs.replace(each, nodes=ranges_of(moved(system.named_nodes(each.nodes))))
        for each in system.maintenance
    )
    return replace(
        system, name=f"{system.name} {sign}", groups=tuple(groups), partitions=partitions,
        maintenance=maintenance,
    )  # fmt: skip


def _has_whole_groups(system: System, nodes: Sequence[int]) -> bool:
    """Whether these are all nodes of their groups."""
    found = np.bincount(system.group_of[list(nodes)], minlength=len(system.groups)).tolist()
    return all(n in (0, group.nodes) for n, group in zip(found, system.groups, strict=True))


def limit_of(text: str) -> tuple[Limit, bool] | None:
    """The limit that a text such as ``core per user=64`` sets, and whether it removes it.

    The text is what is counted, ``per`` a column of jobs, the only value for which it holds, and
    the most, or ``none``. Column and value may be left out. None where it is no such text.
    """
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        return None
    of, per, name, most = found.groups()
    return Limit(0 if most == "none" else int(most), of, per or "", name or ""), most == "none"


def limited(system: System, limit: Limit, removed: bool) -> System:
    """A system with one limit more, another one in its place, or without it.

    Raises
    ------
    UsageError
        When nothing would change.
    InputError
        When the system has nothing of the limit's names.
    """

    def about(other: Limit) -> tuple[str, str, str]:
        return other.of, other.per, other.name

    told = f"{limit.of}{f' per {limit.per}' * bool(limit.per)}{f' {limit.name}' * bool(limit.name)}"
    kept = tuple(other for other in system.limits if about(other) != about(limit))
    limits = kept if removed else (*kept, limit)
    if set(limits) == set(system.limits):
        has = f"no limit on {told}" if removed else f"the limit {limit} already"
        known = "; ".join(map(str, system.limits)) if removed else ""
        more = f" (it has: {known})" if known else ""
        raise UsageError(f"--system {told}: {system.name} has {has}{more}")
    name = f"{system.name}, {f'no limit on {told}' if removed else limit}"
    return replace(system, name=name, limits=limits)


def _changed(system: System, text: str) -> System | None:
    """The system with the change that a text names; None where it names a system."""
    change, limit = change_of(text), limit_of(text)
    if change is not None:
        return scaled(system, change)
    return None if limit is None else limited(system, *limit)


def alternatives(log: Workload, given: Sequence[str], **part: Any) -> list[Alternative]:
    """The systems that are named, the one that the others are measured against first.

    Parameters
    ----------
    log : Workload
        As it was read.
    given : sequence of str
        Numbers of processors, named systems, files, and changes such as ``+20%`` or
        ``core per user=64``, which are of the first of the others, or of the log's own system.
    **part
        Which part of the log, and which jobs may be restarted, see
        `cpdispatch.workloads.prepare`.

    Raises
    ------
    UsageError
        When a system is unknown, is named twice, or cannot be changed so.
    """
    named = [text for text in given if change_of(text) is None and limit_of(text) is None]
    for text in named:
        if text.strip().endswith("%") and text.strip().startswith(("+", "-")):
            raise UsageError(f"--system {text}: a change of the number of nodes is +20% or -12.5%")
    first = find(named[0]) if named else own_machine(log, log.name)
    rest = [text for text in given if not named or text != named[0]]
    systems = [first, *(_changed(first, text) or find(text) for text in rest)]
    found = [Alternative(each.name, *prepare(log, each, **part)) for each in systems]
    if len(found) == 1:
        raise UsageError(
            "name another system, for example --system +20%: one alone is what simulate is for"
        )
    twice = "two systems are called {}: leave one out, or rename it"
    check_apart("systems", [each.name for each in found], twice)
    return found


def parts(
    found: Sequence[Alternative], dispatchers: Sequence[str], plan: RunPlan, draws: int
) -> list[Part]:
    """The runs on each system, each with a folder that depends on nothing but what it is."""
    parts: list[Part] = []
    for each in found:
        log = (each.workload, each.system)
        experiment = Experiment([log], dispatchers, [plan.seed], draws=draws)
        plans = [
            (number, replace(
                run, place=len(parts) * len(dispatchers) * draws + run.place,
                folder=plan.folder and plan.folder.joinpath(
                    safe(each.name), safe(run.dispatcher), f"draw-{run.draw}"
                ),
            ))
            for number, run in experiment.plans(plan)
        ]  # fmt: skip
        parts.append(Part(experiment, plans, f" on {each.name}"))
    return parts


def rows_of(
    found: Sequence[Alternative], summaries: Sequence[Sequence[RunSummary]]
) -> list[dict[str, Any]]:
    """A row a system and dispatcher: its figures, and what they are of those on the first system.

    Figures of a dispatcher are over the draws that it has on each system on which it has any.

    Returns
    -------
    list of dict
        ``system``, ``nodes``, ``capacity`` (of the first resource type of the first system),
        ``dispatcher``, ``predictor``, ``runs``, the `FIGURES`, each mean with its ``_spread`` over
        draws (None for one run), ``same_jobs``, whether the jobs that started are those that
        started in the same draws on the first system (None where it has none), and ``wait_ratio``
        and ``slowdown_ratio`` to the same dispatcher on the first system, each with ``_low`` and
        ``_high``, its 95 % interval, see `cpdispatch.analyze.difference` (None where there are too
        few draws). A ratio is None where it would be by 0, and where the jobs are not the same.
    """
    rows: list[dict[str, Any]] = []
    resource = found[0].system.resources[0]
    summaries = _in_common(summaries)
    of_first = _by_draw(summaries[0])
    for each, runs in zip(found, summaries, strict=True):
        of_each = _by_draw(runs)
        total = dict(zip(each.system.resources, each.system.total.tolist(), strict=True))
        for row in (row for _, of_log in tables(runs) for row in of_log):
            figures = row.get("figures", {})
            key = (row["dispatcher"], row["predictor"])
            made = {
                "system": each.name, "nodes": each.system.nodes,
                "capacity": total.get(resource, 0), "dispatcher": key[0], "predictor": key[1],
                "runs": row.get("draws") or 1,
            }  # fmt: skip
            for name in FIGURES:
                made[name] = row.get(name)
                made[f"{name}_spread"] = figures.get(name, {}).get("spread")
            there = of_first.get(key, {})
            matched = [(run, there[draw]) for draw, run in of_each[key].items() if draw in there]
            same = all(run.jobs_started == first.jobs_started for run, first in matched)
            made["same_jobs"] = same if matched else None
            figures_of = [(run.metrics, first.metrics) for run, first in matched if same]
            made |= _ratio("wait_ratio", "wait_s_mean", figures_of)
            made |= _ratio("slowdown_ratio", "bounded_slowdown_mean", figures_of)
            rows.append(made)
    return rows


def _by_draw(runs: Sequence[RunSummary]) -> dict[tuple[str, str], dict[int, RunSummary]]:
    """The runs of each dispatcher and predictor, by their draw."""
    found: dict[tuple[str, str], dict[int, RunSummary]] = {}
    for run in runs:
        of_draws = found.setdefault((run.about["dispatcher"], run.about["predictor"]), {})
        of_draws[run.about.get("draw", 0)] = run
    return found


def _in_common(summaries: Sequence[Sequence[RunSummary]]) -> list[list[RunSummary]]:
    """The runs without those of draws that their dispatcher lacks on a system where it has any."""
    common: dict[tuple[str, str], set[int]] = {}
    for runs in summaries:
        for key, of_draws in _by_draw(runs).items():
            common[key] = common.get(key, of_draws.keys()) & of_draws.keys()

    def is_kept(run: RunSummary) -> bool:
        draws = common[run.about["dispatcher"], run.about["predictor"]]
        return not draws or run.about.get("draw", 0) in draws

    return [[run for run in runs if is_kept(run)] for runs in summaries]


def _ratio(name: str, figure: str, matched: Pairs) -> dict[str, float | None]:
    """The ratio of a figure over draws, with its interval."""
    over = figure_difference(figure, matched)
    if over is None or not any(first[figure] for _, first in matched):
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: over.ratio, f"{name}_low": over.low, f"{name}_high": over.high}


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """The rows as a table; what is unknown is empty."""
    return csv_of([rows[0], *(row.values() for row in rows)])
