"""The page: what is told of the runs in words and tables, and the data that it draws from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np

from cpdispatch.analyze import compare, metrics
from cpdispatch.analyze.difference import HIGHER, LOWER, NOISE, SAME, Difference
from cpdispatch.arrays import IntArray
from cpdispatch.errors import UsageError
from cpdispatch.extra import needed
from cpdispatch.jobs import TAU_S
from cpdispatch.report import words
from cpdispatch.report.columns import packed
from cpdispatch.report.lanes import Bars, drawn
from cpdispatch.simulator import Run
from cpdispatch.simulator.arrow import array, coded
from cpdispatch.system import System, is_own
from cpdispatch.words import counted, listed

Row = dict[str, Any]
Columns = dict[str, IntArray]

RUNS_MAX = 6
"""More runs than this cannot be told apart by their colours."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A run that is drawn."""

    name: str
    """What tells it from the others."""
    run: Run
    users: Sequence[Row]
    """Waits of users beside the first run, of `compare.users_beside`."""


def page_of(shown: Sequence[Shown], rows: Sequence[Row], beside_best: Sequence[Row]) -> str:
    """The page as HTML: one file that needs no other and makes no request.

    Parameters
    ----------
    shown : sequence of Shown
        Of one log, system and rules; the first is what the others are measured against.
    rows : sequence of dict
        The runs in the same order, related to the first, see `compare.related`.
    beside_best : sequence of dict
        The same, related to the one with the lowest mean bounded slowdown, see `compare.ranked`;
        that one stands first.

    Raises
    ------
    UsageError
        When there are no runs or too many, their jobs differ, or Bokeh is missing.
    """
    bokeh = needed("bokeh.resources", "report")
    from bokeh.embed import json_item

    from cpdispatch.report import plots

    check(shown)
    columns, about = _data(shown)
    directory, text = packed(columns)
    about |= {"columns": directory, "names": [of.name for of in shown]}
    about["plots"] = {
        name: {"item": None if plot is None else json_item(plot), "told": told}
        for name, (plot, told) in plots.all_of(shown).items()
    }
    about["colours"] = plots.COLOURS
    first = shown[0].run.about
    title = escape(f"{first['workload']} on {first['system']['name']}")
    parts = {
        "TITLE": title,
        "LEAD": escape(
            f"{counted(len(shown[0].run.job_table), 'job')}, "
            f"{_resources(shown[0].run.system)}, under {listed([of.name for of in shown])}."
        ),
        "VERDICT": "".join((
            f"<p>{escape(verdict(beside_best))}</p>", words.longer(rows),
            *(f"<p>{escape(told['text'])}</p>" for told in compare.test_runs(rows)),
            *(f"<p>{escape(told['text'])}</p>" for told in compare.failures(rows)),
        )),
        "FIGURES": words.figures_table(rows),
        "PAYERS": "".join(words.payers(shown[0], of, row) for of, row in
                          zip(shown[1:], rows[1:], strict=True))
        or "<p>There is one run only: nothing to compare it with.</p>",
        "NOTES": "".join(f"<li>{escape(line)}</li>" for line in _notes(rows, shown)),
        "CSS": file_of("page.css"),
        "BOKEH": "\n".join(bokeh.Resources(mode="inline", components=["bokeh"]).js_raw),
        "JS": "\n".join(map(file_of, ("theme.js", "data.js", "gantt.js", "page.js"))),
        "ABOUT": _safe(about),
        "DATA": text,
    }  # fmt: skip
    return framed("page.html", parts)


def framed(name: str, parts: Mapping[str, str]) -> str:
    """A page whose body is the file of this name, in the head that all pages have."""
    return filled(file_of("frame.html"), {**parts, "BODY": filled(file_of(name), parts)})


def filled(html: str, parts: Mapping[str, str]) -> str:
    """A page whose comments of these names are replaced; what is put in is not looked at again."""
    return re.sub(r"<!--([A-Z]+)-->", lambda found: parts[found[1]], html)


def check(shown: Sequence[Shown], most: int = RUNS_MAX) -> None:
    """Raise where runs cannot be on one page, or there are more than ``most``."""
    if not shown:
        raise UsageError("a report needs the folder of a run")
    if len(shown) > most:
        raise UsageError(f"{len(shown)} runs: {most} at most are shown; name fewer")
    first = shown[0].run
    settings = [compare.setting(compare.row(of.run.about, {})) for of in shown]
    for of, setting in zip(shown[1:], settings[1:], strict=True):
        for what, one, other in zip(
            ("log", "system", "dependencies", "events"), settings[0], setting, strict=True
        ):
            if one != other:
                told = f": {one or 'none'} and {other or 'none'}" if what != "events" else ""
                raise UsageError(
                    f"{shown[0].name} and {of.name} differ by their {what}{told}; a report is "
                    "about one log, system and rules"
                )
        same = all(
            first.job_table.column(name).equals(of.run.job_table.column(name))
            for name in ("id", "submit", "units")
        )
        if not same:
            raise UsageError(
                f"{shown[0].name} and {of.name} have other jobs, though their log has one name: it "
                "is another log, or no draw of it is in all of these runs; a report is about jobs "
                "that all runs have"
            )


def verdict(beside_best: Sequence[Row]) -> str:
    """Which run has the lowest mean bounded slowdown, and how sure that is, in sentences.

    Parameters
    ----------
    beside_best : sequence of dict
        As for `page_of`.
    """
    key = "bounded_slowdown_mean"
    counted = [row for row in beside_best if key in row]
    if not counted:
        return "No job started, so there is nothing to compare."
    best = counted[0]
    named = compare.name_of(best, beside_best)
    if len(counted) == 1:
        return f"The mean bounded slowdown under {named} is {best[key]:,.2f}. {BOUNDED_SLOWDOWN}"
    if 1 - 1 / max(compare.times_first(row, best) for row in counted) < 0.0005:
        names = [compare.name_of(row, beside_best) for row in counted]
        same = f"{listed(names)} have the same mean bounded slowdown"
        return f"{same}, {best[key]:,.2f}. {BOUNDED_SLOWDOWN}"
    told, apart = [], True
    for row in counted:
        over: Difference | None = row["difference"]
        if row is best or over is None:
            continue
        name = compare.name_of(row, beside_best)
        told.append(_beside_best(name, named, row, over))
        if out := compare.left_out(best, row, name):
            told.append(f"But under {named} {out}: its mean is of other jobs.")
        apart = apart and over.stands
    head = f"{named} has the lowest mean bounded slowdown: {best[key]:,.2f}."
    if not apart and len(counted) == 2:
        head = (
            f"{named} has the lower mean bounded slowdown, {best[key]:,.2f}, but maybe by chance."
        )
    return " ".join([head, *told, BOUNDED_SLOWDOWN])


BOUNDED_SLOWDOWN = (
    "Bounded slowdown is the time from submission to end as a multiple of the runtime; runtimes "
    "below 10 s count as 10 s. 1 is the best possible."
)


def _beside_best(name: str, best: str, row: Row, over: Difference) -> str:
    """How another run stands beside the best one."""
    value = f"Under {name} it is {row['bounded_slowdown_mean']:,.2f}"
    if compare.is_paired_in_part(row):
        before = row["bounded_slowdown_mean_first"]
        value = f"Under {name} it is {over.ratio * before:,.2f} instead of {before:,.2f}"
        value += " in the draws that both have"
    if over.says == SAME:
        return f"{value}, the same in each of {over.counted}."
    ratio, *ends = over.told
    if not ends:
        return f"{value}, but {over.counted} cannot tell a difference from noise."
    interval = (
        f"{ratio} times that of {best}, with 95 % confidence {' to '.join(ends)} times, "
        f"paired over {over.counted}" + (" of submission" if over.over == "weeks" else "")
    )
    if over.says == NOISE:
        return f"{value}: {interval}. These two cannot be told apart."
    assert over.says in (HIGHER, LOWER)
    return f"{value}: {interval}. The difference is more than noise."


def _resources(system: System) -> str:
    total = dict(zip(system.resources, system.total.tolist(), strict=True))
    told = ", ".join(f"{many:,} {name}" for name, many in total.items() if is_own(name))
    return f"{counted(system.nodes, 'node')} ({told})"


def _notes(rows: Sequence[Row], shown: Sequence[Shown]) -> list[str]:
    lines = [*compare.legend(rows), *compare.notes(rows)]
    if any("draws" in row or "seeds" in row for row in rows):
        lines.append(
            "Sentences, tables and the picture of users are over all runs of each name. The other "
            "pictures are of one run of each, on the same jobs."
        )
    version = shown[0].run.about.get("version", "")
    lines += [
        f"{of.name} is no simulation: {of.run.about['recorded']} recorded it."
        for of in shown
        if "recorded" in of.run.about
    ]
    simulated = any("recorded" not in of.run.about for of in shown)
    return [*lines, f"{'Simulated' if simulated else 'Made'} by cpdispatch {version}."]


def _data(shown: Sequence[Shown]) -> tuple[Columns, dict[str, Any]]:
    """The columns that the page draws from, and what it has to know of them."""
    first, system = shown[0].run, shown[0].run.system
    table, schedule = first.job_table, shown[0].run.schedule()
    lane = max(system.resource("core"), 0)
    begin_s = int(schedule.submit_s.min())
    user, users = coded(table.column("user")) if "user" in table.column_names else (None, [])
    widths = np.searchsorted([*metrics.WIDTHS.values()][:-1], metrics.share(schedule), side="left")
    columns: Columns = {
        "id": array(table.column("id")),
        "submit": schedule.submit_s - begin_s,
        "units": schedule.units,
        "requested": array(table.column("requested_s")),
        "width": widths.astype(np.int64),
    }
    if user is not None:
        used = np.unique(user[user >= 0])  # no job has what stands for an unknown user
        users = [users[k] for k in used.tolist()]
        user = np.where(user < 0, -1, np.searchsorted(used, user))
        columns["user"] = user.astype(np.int64)
    for kind, name in enumerate(system.resources):
        columns[f"request_{name}"] = schedule.request[:, kind]
    reasons: list[str] = []
    for number, of in enumerate(shown):
        columns |= {f"{number}/{key}": v for key, v in _of_run(of.run, lane, reasons).items()}
    about = {
        "resources": list(system.resources),
        "lane": system.resources[lane],
        "groups": [
            {"name": g.name, "nodes": g.nodes, "capacity": list(g.capacity)} for g in system.groups
        ],
        "users": users,
        "widths": [f"{name} {compare.SHARES[name]}" for name in metrics.WIDTHS],
        "lengths": [f"{name} {compare.LENGTHS[name]}" for name in metrics.CLASSES_S],
        "length_limits": [low for low, _ in metrics.CLASSES_S.values()],
        "tau": TAU_S,
        "begin": begin_s,
        "reasons": reasons,
    }
    return columns, about


def _of_run(run: Run, lane: int, reasons: list[str]) -> Columns:
    """The columns of one run; its reasons are added to those that are known."""
    schedule, system = run.schedule(), run.system
    codes, names = coded(run.job_table.column("reason"))
    reasons += [name for name in names if name not in reasons]
    number = np.array([reasons.index(name) for name in names], dtype=np.int64)
    started = schedule.started
    found = {
        "wait": np.where(started, metrics.wait_s(schedule), -1),
        "runtime": np.where(started, metrics.runtime_s(schedule), 0),
        "reason": number[codes],
    }
    if schedule.saved_s is not None:
        found["saved"] = np.where(started, schedule.saved_s, 0)
    if schedule.failed is not None:
        found["failed"] = schedule.failed.astype(np.int64)
    bars, jobs, attempts = _bars(run, lane)
    put = drawn(bars, system.capacity[:, lane])
    found |= {"run_count": put.count, "run_first": put.first, "run_length": put.length}
    if attempts:
        begin_s = int(schedule.submit_s.min())
        found |= {
            "attempt_job": jobs,
            "attempt_start": bars.start_s[-attempts:] - begin_s,
            "attempt_runtime": (bars.end_s - bars.start_s)[-attempts:],
        }
    if len(system.groups) > 1:
        units = units_of_groups(run)
        found |= {f"group_{group}": units[:, group] for group in range(len(system.groups))}
    return found


def _entries(table: Any, nodes: str, units: str) -> tuple[IntArray, IntArray, IntArray]:
    """Offsets, nodes and units of a table's placements."""
    import pyarrow.compute as pc

    column = table.column(nodes).combine_chunks()
    count = array(_chunked(pc.list_value_length(column))).astype(np.int64)
    offset = np.concatenate(([0], np.cumsum(count))).astype(np.int64)
    flat = [
        array(_chunked(pc.list_flatten(table.column(name).combine_chunks()))).astype(np.int64)
        for name in (nodes, units)
    ]
    return offset, flat[0], flat[1]


def _chunked(column: Any) -> Any:
    import pyarrow as pa

    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _bars(run: Run, lane: int) -> tuple[Bars, IntArray, int]:
    """The bars of the jobs that started, then of attempts; the jobs of these; how many these are.

    The k-th job that started has the k-th bar.
    """
    schedule, table = run.schedule(), run.job_table
    rows = np.flatnonzero(schedule.started)
    jobs = table.take(rows)
    of = [(rows, jobs, "start", "end", "nodes", "node_units")]
    if "lost_start" in table.column_names:
        lost = np.flatnonzero(array(table.column("lost_start")) >= 0)
        names = ("lost_start", "lost_end", "lost_nodes", "lost_node_units")
        of.append((lost, table.take(lost), *names))
    if run.attempt_table is not None:
        ids = array(table.column("id"))
        by_id = np.argsort(ids, kind="stable")
        which = by_id[np.searchsorted(ids[by_id], array(run.attempt_table.column("id")))]
        of.append((which, run.attempt_table, "start", "end", "nodes", "node_units"))
    parts = []
    for job, part, start, end, nodes, units in of:
        offset, node, held = _entries(part, nodes, units)
        owner = np.repeat(job, np.diff(offset))
        times = array(part.column(start)), array(part.column(end))
        parts.append((job, *times, np.diff(offset), node, held * schedule.request[owner, lane]))
    job, start_s, end_s, count, node, lanes = (
        np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)
    )
    offset = np.concatenate(([0], np.cumsum(count))).astype(np.int64)
    attempts = len(job) - len(rows)
    return Bars(start_s, end_s, offset, node, lanes), job[len(rows) :], attempts


def units_of_groups(run: Run) -> IntArray:
    """How many units each job holds in each group of nodes, shape (jobs, groups)."""
    offset, node, units = _entries(run.job_table, "nodes", "node_units")
    groups = len(run.system.groups)
    owner = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
    cell = owner * groups + run.system.group_of[node]
    held = np.zeros((len(offset) - 1) * groups, dtype=np.int64)
    np.add.at(held, cell, units)
    return held.reshape(-1, groups)


def file_of(name: str) -> str:
    """A file of this folder that pages are made of."""
    return files("cpdispatch.report").joinpath(name).read_text(encoding="utf-8")


def _safe(data: Any) -> str:
    """JSON that no HTML parser takes for the end of its element."""
    encoded = msgspec.json.encode(data, enc_hook=_plain).decode()
    return encoded.replace("<", "\\u003c")


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    return str(value)
