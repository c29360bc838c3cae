"""The tables of the comparison of runs, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from cpdispatch.analyze.compare.rows import (
    JOBS_MIN,
    LENGTHS,
    NOISE_TOLD,
    OF_USERS,
    SHARES,
    Row,
    beside,
    duration,
    heading_of,
    name_of,
    peers_of,
    quotient,
    times_of,
    value,
)
from cpdispatch.words import counted

USERS_SHOWN = 10
"""So many users at most have lines of their own."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """One line: which figure, its heading, how it reads, and whether less or more is better.

    The key of a figure in a dictionary of the row has that one's keys before it, each with a dot.
    """

    key: str
    heading: str
    show: Callable[[float], str]
    better: int = 0


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _kwh(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.1%}"


UTILISATION = "utilisation"
_FIGURES = (
    _Figure("jobs", "jobs", lambda v: f"{v:,.0f}"),
    _Figure("wait_s_mean", "mean wait", duration, -1),
    *(
        _Figure(f"classes.{name}.wait_s_mean", f"  {name} jobs {limits}", duration, -1)
        for name, limits in LENGTHS.items()
    ),
    _Figure("users.wait_s_mean", "  users that lose most", duration),
    _Figure("wait_s_max", "longest wait", duration, -1),
    _Figure("bounded_slowdown_mean", "mean bounded slowdown", lambda v: f"{v:,.2f}", -1),
    _Figure("bounded_slowdown_p95", "  95th percentile", lambda v: f"{v:,.1f}", -1),
    _Figure(UTILISATION, "utilisation", _share, 1),
    _Figure("backfilled", "jobs backfilled", lambda v: f"{v:,.0f}"),
    _Figure("tests", "jobs tested", lambda v: f"{v:,.0f}"),
    _Figure("tests_ended", "  ended in their test", lambda v: f"{v:,.0f}"),
    _Figure("tests_went_on", "  went on right then", lambda v: f"{v:,.0f}"),
    _Figure("node_failures", "failures of nodes", lambda v: f"{v:,.0f}"),
    _Figure("requeues", "  times a job was queued again", lambda v: f"{v:,.0f}"),
    _Figure("failed", "  jobs ended as failed", lambda v: f"{v:,.0f}"),
    _Figure("restarts", "jobs restarted", lambda v: f"{v:,.0f}"),
    _Figure("wasted_processor_s", "  processor hours lost", lambda v: f"{v / 3600:,.0f}"),
    _Figure("wasted_share", "  share of the work", lambda v: f"{v:.2%}"),
    _Figure("energy_kwh", "energy, kWh", _kwh),
    _Figure("energy_idle_kwh", "  of nodes by themselves", _kwh),
    _Figure("nodes_off_h", "  hours that nodes were off", lambda v: f"{v:,.0f}"),
    _Figure("energy_cost", "  cost", lambda v: f"{v:,.2f}"),
    _Figure("power_w_max", "highest power, kW", lambda v: f"{v / 1000:,.1f}"),
    _Figure("near_power_cap_s", "  within 5% of the cap", duration),
    _Figure("decisions", "decisions", lambda v: f"{v:,.0f}"),
    _Figure("decision_ms_mean", "ms a decision", _ms),
    _Figure("decision_ms_p99", "  99th percentile", _ms),
    _Figure("seconds", "seconds in all", lambda v: f"{v:,.1f}"),
)
_IF_ANY = (
    "tests", "tests_ended", "tests_went_on", "node_failures", "requeues", "failed", "restarts",
    "wasted_processor_s", "wasted_share", "energy_kwh", "energy_idle_kwh", "energy_cost",
    "nodes_off_h", "power_w_max", "near_power_cap_s",
)  # fmt: skip
"""Figures that are shown only when there are any."""


def of_types(rows: Sequence[Row]) -> list[tuple[str, str, Callable[[float], str]]]:
    """The utilisation of each resource type but the first, of which jobs hold any; as `of_some`."""
    start = f"{UTILISATION}_"
    keys = dict.fromkeys(key for run in rows for key in run if key.startswith(start) and run[key])
    return [(key, f"  of {key.removeprefix(start)}", _share) for key in keys]


def of_some(rows: Sequence[Row]) -> list[tuple[str, str, Callable[[float], str]]]:
    """The figures that only some runs have, of which one of these does: key, heading, reading.

    A heading that belongs to the one above it begins with two spaces.
    """
    return [
        (figure.key, figure.heading, figure.show)
        for figure in _FIGURES
        if figure.key in _IF_ANY and _is_shown(figure.key, rows)
    ]


def tables(rows: Sequence[Row], width: int) -> list[Table]:
    """The runs side by side, one a column; as wide as allowed.

    Waits have beside them how many times as long they are as under the first run, see `related`,
    in brackets where that is within noise. The best figure of single runs is in bold. Means have
    their standard deviation over the draws or seeds beside them.
    """
    types = [_Figure(*figure, better=1) for figure in of_types(rows)]
    figures = [
        shown
        for figure in _FIGURES
        if _is_shown(figure.key, rows)
        for shown in (figure, *(types if figure.key == UTILISATION else ()))
    ]
    columns = [_column(run, figures, rows) for run in rows]
    corner = of_what(rows)
    names = max(map(len, [*(figure.heading for figure in figures), *corner.split("\n")]))
    groups: list[list[_Column]] = []
    left = 0
    for column in columns:
        if not groups or left < column.width:
            groups.append([])
            left = width - names
        groups[-1].append(column)
        left -= column.width
    return [_table(corner, figures, group) for group in groups]


def waits_tables(rows: Sequence[Row]) -> list[Table]:
    """How long who waits under each run, and how long under the first one, a table each.

    Its lines: all jobs, the classes by length and by width, and the users that lose most, at most
    `USERS_SHOWN`.
    """
    return [_waits_table(run, rows) for run in rows if run["first"] is not None]


def _waits_table(run: Row, rows: Sequence[Row]) -> Table:
    each = run["users"]["each"][:USERS_SHOWN] if run["users"] else []
    of = [
        ("all jobs", run),
        *((f"{name} {limits}", run["classes"][name]) for name, limits in LENGTHS.items()),
        *((f"{name} {limits}", run["widths"][name]) for name, limits in SHARES.items()),
        *((f"user {figures['user']}", figures) for figures in each),
    ]
    shown = Table(
        title=Text(f"Waits under {name_of(run, rows)} instead of {run['first']}"),
        title_justify="left",
        title_style="bold", box=None, pad_edge=False, padding=(0, 0, 0, 2), header_style="bold",
    )  # fmt: skip
    shown.add_column("")
    heads = ("jobs", "mean\nwait", "instead\nof", "", "longest\nwait", "instead\nof", "")
    for head in heads:
        shown.add_column(head, justify="right" if head else "left", vertical="bottom", no_wrap=True)
    for heading, figures in of:
        cells = [
            cell
            for key in ("wait_s_mean", "wait_s_max")
            for cell in (
                *map(_duration, beside(figures, key)),
                quotient(*times_of(figures, key)),
            )
        ]
        shown.add_row(Text(heading, style="dim"), f"{figures['jobs']:,.0f}", *cells)
    return shown


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def is_paired_in_part(run: Row) -> bool:
    """Whether one of a run and the first one has draws that the other one lacks."""
    paired = run.get("paired")
    return paired is not None and paired["common"] < max(paired["own"], paired["first"])


def legend(rows: Sequence[Row]) -> list[str]:
    """What the tables' figures beside the waits are, a line each."""
    firsts = {run["first"] for run in rows} - {None}
    if not firsts:
        return []
    first = firsts.pop() if len(firsts) == 1 else "the first run of the same log, system and rules"
    lines = [f"x2.00: twice as long as under {first}."]
    if any("wait_s_mean_times_low" in run for run in rows):
        lines.append(NOISE_TOLD)
    for run in rows:
        if is_paired_in_part(run):
            paired = run["paired"]
            own, common = paired["own"], paired["common"]
            how = f"they are compared in the {common} that both have"
            if not common:
                how = "they have none in common, so each figure is of other draws"
            lines.append(
                f"{name_of(run, rows)} has {counted(own, 'draw')}, "
                f"{run['first']} {paired['first']}: {how}."
            )
    if any(run["users"] for run in rows):
        lines.append(
            f"Users that lose most: of those with {JOBS_MIN} jobs or more, the tenth whose mean "
            "wait grows most."
        )
    return lines


@dataclass(frozen=True, slots=True)
class _Column:
    """A run in a table: its heading, its figures, and its waits as multiples."""

    head: str
    cells: list[Text]
    times: list[str]

    @property
    def width(self) -> int:
        """Characters, with the space before each part."""
        lines = [*self.head.split("\n"), *map(str, self.cells)]
        times = max(map(len, self.times))
        return max(map(len, lines)) + 2 + (times + 2 if times else 0)


def _is_shown(key: str, rows: Sequence[Row]) -> bool:
    if key == OF_USERS:
        return any(run["first"] is not None for run in rows)
    return key not in _IF_ANY or any(run.get(key) for run in rows)


def _column(run: Row, figures: Sequence[_Figure], rows: Sequence[Row]) -> _Column:
    return _Column(
        "\n".join([heading_of(run, rows), *_count(run, rows)]),
        [_cell(figure, run, rows) for figure in figures],
        [quotient(*times_of(run, figure.key)) for figure in figures],
    )


def _runs(run: Row) -> int:
    """Of how many runs a row is the mean."""
    return int(run.get("draws") or run.get("seeds") or 1)


def of_what(rows: Sequence[Row]) -> str:
    """Of what figures are the mean, in two lines; empty where each is of one run."""
    kinds = {kind for run in rows for kind in ("draws", "seeds") if kind in run}
    if not kinds:
        return ""
    counts = {_runs(run) for run in rows}
    many = f"{counts.pop()} " if len(counts) == 1 else ""
    return f"mean ± st. deviation\nof {many}{' or '.join(sorted(kinds))}"


def _count(run: Row, rows: Sequence[Row]) -> list[str]:
    """Of how many runs a column is the mean, where that differs."""
    if len({_runs(peer) for peer in rows}) == 1:
        return []
    kind = "draws" if "draws" in run else "seeds"
    return [f"{_runs(run)} {kind}" if _runs(run) > 1 else "one run"]


def _table(corner: str, figures: Sequence[_Figure], columns: Sequence[_Column]) -> Table:
    shown = Table(box=None, pad_edge=False, padding=(0, 0, 0, 2), header_style="bold")
    shown.add_column(Text(corner, style="dim"), vertical="bottom", no_wrap=True)
    lines: list[list[str | Text]] = [[Text(figure.heading, style="dim")] for figure in figures]
    for column in columns:
        shown.add_column(Text(column.head), justify="right", vertical="bottom", no_wrap=True)
        for line, cell in zip(lines, column.cells, strict=True):
            line.append(cell)
        if any(column.times):
            shown.add_column(no_wrap=True)
            for line, times in zip(lines, column.times, strict=True):
                line.append(times)
    for line in lines:
        shown.add_row(*line)
    return shown


def deviation(run: Row, key: str, show: Callable[[float], str]) -> str:
    """A figure's standard deviation over the draws, to stand behind it; empty for one run."""
    spread = run["figures"].get(key, {}).get("spread", 0) if "figures" in run else 0
    return f" ± {show(spread)}" if spread else ""


def _cell(figure: _Figure, run: Row, rows: Sequence[Row]) -> Text:
    if figure.key == OF_USERS and run["first"] is None:
        return Text()
    own = value(run, figure.key)
    if own is None:
        return Text("-", style="dim")
    text = figure.show(own)
    peers = peers_of(run, rows)
    around = deviation(run, figure.key, figure.show)
    if not figure.better or len(peers) < 2:
        return Text(text + around)
    values = [v for peer in peers if (v := value(peer, figure.key)) is not None]
    best = max(values) if figure.better > 0 else min(values)
    # The least of several means may be the least by chance.
    style = "bold green" if text == figure.show(best) and "figures" not in run else ""
    return Text.assemble((text, style), around)
