"""Comparison of runs: as rows for programs, as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Figure:
    """One column: which figure, its heading, how it reads, and whether less or more is better."""

    key: str
    heading: str
    show: Callable[[float], str]
    better: int = 0


def duration(seconds: float) -> str:
    """Seconds as people read them: 42 s, 12 min, 3 h 20, 5 d 4 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d}"
    return f"{hours // 24} d {hours % 24} h"


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


_FIGURES = (
    _Figure("jobs", "jobs", lambda v: f"{v:,.0f}"),
    _Figure("wait_s_mean", "mean wait", duration, -1),
    _Figure("wait_s_max", "longest wait", duration, -1),
    _Figure("bounded_slowdown_mean", "mean bounded slowdown", lambda v: f"{v:,.2f}", -1),
    _Figure("bounded_slowdown_p95", "  95th percentile", lambda v: f"{v:,.1f}", -1),
    _Figure("utilisation", "utilisation", lambda v: f"{v:.1%}", 1),
    _Figure("backfilled", "jobs backfilled", lambda v: f"{v:,.0f}"),
    _Figure("restarts", "jobs restarted", lambda v: f"{v:,.0f}"),
    _Figure("wasted_processor_s", "  processor hours lost", lambda v: f"{v / 3600:,.0f}"),
    _Figure("decisions", "decisions", lambda v: f"{v:,.0f}"),
    _Figure("decision_ms_mean", "ms a decision", _ms),
    _Figure("decision_ms_p99", "  99th percentile", _ms),
    _Figure("seconds", "seconds in all", lambda v: f"{v:,.1f}"),
)
_IF_ANY = ("restarts", "wasted_processor_s")
"""Figures that are shown only when there are any."""


def row(about: dict[str, Any], metrics: dict[str, float]) -> Row:
    """One run as a flat row of figures."""
    return {
        "dispatcher": about["dispatcher"],
        "predictor": about["predictor"],
        "workload": about["workload"],
        "system": about["system"]["name"],
        "dependencies": about.get("dependencies", False),
        "idempotent": about.get("idempotent", False),
        "dropped": {k: n for k, n in about["notes"].items() if k.startswith("dropped")},
        "repaired": {k: n for k, n in about["notes"].items() if not k.startswith("dropped")},
        "decision_ms_p99": None,
        **metrics,
        "seconds": about["seconds"],
    }


def tables(rows: Sequence[Row], width: int) -> list[Table]:
    """The runs side by side, one a column, the best of each figure in bold; as wide as allowed."""
    heads = [_heading(run, rows) for run in rows]
    figures = [f for f in _FIGURES if f.key not in _IF_ANY or any(run.get(f.key) for run in rows)]
    cells = [[_cell(figure, run, rows) for figure in figures] for run in rows]
    names = max(len(figure.heading) for figure in figures)
    sizes = [
        max(*(len(line) for line in head.split("\n")), *(len(cell) for cell in column)) + 2
        for head, column in zip(heads, cells, strict=True)
    ]
    groups: list[list[int]] = []
    left = 0
    for k, size in enumerate(sizes):
        if not groups or left < size:
            groups.append([])
            left = width - names
        groups[-1].append(k)
        left -= size
    return [
        _table(figures, [heads[k] for k in group], [cells[k] for k in group]) for group in groups
    ]


def _table(figures: list[_Figure], heads: list[str], cells: list[list[Text]]) -> Table:
    shown = Table(box=None, pad_edge=False, padding=(0, 0, 0, 2), header_style="bold")
    shown.add_column(no_wrap=True)
    for head in heads:
        shown.add_column(head, justify="right", vertical="bottom", no_wrap=True)
    for figure, *of_runs in zip(figures, *cells, strict=True):
        shown.add_row(Text(figure.heading, style="dim"), *of_runs)
    return shown


def _heading(run: Row, rows: Sequence[Row]) -> str:
    """The dispatcher, with whatever else tells this run from the others."""
    lines = [run["dispatcher"]]
    if len({peer["predictor"] for peer in rows}) > 1:
        lines.append(run["predictor"])
    if run.get("idempotent") and not all(peer.get("idempotent") for peer in rows):
        lines.append("idempotent")
    if len({_setting(peer) for peer in rows}) > 1:
        lines += filter(None, _setting(run))
    return "\n".join(lines)


def _setting(run: Row) -> tuple[str, str, str]:
    """What must be the same for two runs to be compared."""
    return run["workload"], run["system"], "dependencies" * run.get("dependencies", False)


def _cell(figure: _Figure, run: Row, rows: Sequence[Row]) -> Text:
    value = run.get(figure.key)
    if value is None:
        return Text("-", style="dim")
    text = figure.show(value)
    peers = [peer for peer in rows if _setting(peer) == _setting(run)]
    if not figure.better or len(peers) < 2:
        return Text(text)
    values = [peer[figure.key] for peer in peers if figure.key in peer]
    best = max(values) if figure.better > 0 else min(values)
    return Text(text, style="bold green" if text == figure.show(best) else "")


def verdict(rows: Sequence[Row]) -> str:
    """Who wins, in a sentence; empty when there is nothing to compare."""
    key = "bounded_slowdown_mean"
    ranked = sorted((run for run in rows if key in run), key=lambda run: run[key])
    if len(ranked) < 2 or len({_setting(run) for run in rows}) > 1:
        return ""
    best, base = ranked[0], rows[0]
    name = best["dispatcher"]
    if best is base or key not in base:
        base = ranked[1]
    less = 1 - best[key] / base[key]
    if less < 0.0005:
        return f"{name} and {base['dispatcher']} have the same mean bounded slowdown."
    return f"{name} has the lowest mean bounded slowdown, {less:.1%} below {base['dispatcher']}'s."


def notes(rows: Sequence[Row]) -> list[str]:
    """What was dropped, repaired or never started, a line each."""
    lines: dict[str, None] = {}
    for run in rows:
        for rule, jobs in {**run["dropped"], **run["repaired"]}.items():
            lines[f"{run['workload']}: {rule}: {jobs:,}"] = None
    for run in rows:
        never = run.get("jobs_never_started", 0)
        if never:
            who = f"{run['workload']}, {run['dispatcher']}"
            why = "they ask for more than the system has, or the dispatcher left them out"
            lines[f"{who}: {never:,} jobs never started: {why}"] = None
    return list(lines)
