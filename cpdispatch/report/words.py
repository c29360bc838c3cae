"""The tables of the page, as HTML: figures of each run, and who gains and who pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from cpdispatch.analyze import compare
from cpdispatch.words import counted

if TYPE_CHECKING:
    from cpdispatch.report.page import Shown

Row = dict[str, Any]

FIGURES = (
    ("jobs", "jobs that started", "{:,.0f}".format),
    ("bounded_slowdown_mean", "mean bounded slowdown", "{:,.2f}".format),
    ("bounded_slowdown_p95", "95th percentile of bounded slowdown", "{:,.1f}".format),
    ("wait_s_mean", "mean wait", compare.duration),
    ("wait_s_median", "median wait", compare.duration),
    ("wait_s_max", "longest wait", compare.duration),
    ("utilisation", "utilisation", "{:.1%}".format),
    ("queue_length_mean", "mean queue length", "{:,.1f}".format),
    ("queue_length_max", "longest queue", "{:,.0f}".format),
)


def figures_table(rows: Sequence[Row]) -> str:
    """The headline figures, a column a run."""
    names = (escape(compare.name_of(row, rows)) for row in rows)
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", *names))
    lines = [
        f'<tr><th scope="row">{escape(heading).replace("  ", "&emsp;")}</th>'
        + "".join(f"<td>{_figure(row, key, show)}</td>" for row in rows)
        + "</tr>"
        for key, heading, show in _shown(rows)
    ]
    of_what = compare.of_what(rows).replace("\n", " ")
    return table_of("Figures of the runs" + f": {of_what}" * bool(of_what), head, lines)


def _shown(rows: Sequence[Row]) -> Iterator[tuple[str, str, Callable[[float], str]]]:
    """The figures that these runs have, in their order: key, heading, reading."""
    for figure in FIGURES:
        yield figure
        if figure[0] == compare.UTILISATION:
            yield from compare.of_types(rows)
    yield from compare.of_some(rows)


def _figure(row: Row, key: str, show: Callable[[float], str]) -> str:
    value = row.get(key)
    return "-" if value is None else escape(show(value) + compare.deviation(row, key, show))


def longer(rows: Sequence[Row]) -> str:
    """Who waits longer than under the first run, as `compare.warnings` says it."""
    if len(rows) < 2 or not any("bounded_slowdown_mean" in row for row in rows):
        return ""
    first = escape(compare.name_of(rows[0], rows))
    if "bounded_slowdown_mean" not in rows[0]:
        return f"<p>No job started under {first}, so no wait can be longer.</p>"
    found = [f"<li>{escape(told['text'])}</li>" for told in compare.warnings(rows)]
    if not found:
        return (
            f"<p>No class of {compare.JOBS_MIN} jobs or more is seen to wait longer than under "
            f"{first} by more than a tenth and {compare.duration(compare.GROWTH_S)}.</p>"
        )
    return f"<p>Who waits longer than under {first}, or never starts:</p><ul>{''.join(found)}</ul>"


def payers(first: Shown, of: Shown, row: Row) -> str:
    """How long who waits under a run, and how long under the first one."""
    lines = [line_of("all jobs", row)]
    for kind, limits in (("classes", compare.LENGTHS), ("widths", compare.SHARES)):
        lines += [
            line_of(f"{name} {text}", row[kind][name])
            for name, text in limits.items()
            if row[kind][name]["jobs"]
        ]
    head = "".join(
        f'<th scope="col">{escape(text)}</th>'
        for text in ("", "jobs", "mean wait", f"under {row['first'] or first.name}", "ratio")
    )
    told = f"Waits under {of.name} instead of {first.name}"
    found = table_of(told, head, lines)
    if not of.users:
        none = "<p>No known user has jobs that started under both, so there is no table of users."
        return found + none + "</p>"
    waits = [(user["wait_s_mean"], user["wait_s_mean_first"]) for user in of.users]
    gain, pay = (
        sum(now < before for now, before in waits),
        sum(now > before for now, before in waits),
    )
    of_users = [line_of(f"user {user['user']}", user) for user in of.users]
    text = (
        f"<p>{gain:,} of {counted(len(waits), 'user')} wait shorter in the mean than under "
        f"{escape(first.name)}, {pay:,} wait longer.</p>"
    )
    return (
        found + text + f"<details><summary>All users under {escape(of.name)}, those first that "
        "lose the most time in all</summary>"
        + table_of(f"Users under {of.name} instead of {first.name}", head, of_users)
        + "</details>"
    )  # fmt: skip


def line_of(name: str, figures: Row) -> str:
    """How long who waits under a run and under the first one, in what both have in common."""
    key = "wait_s_mean"
    times = compare.times_of(figures, key)
    cells = [f"{figures['jobs']:,.0f}"]
    cells += [
        "-" if s is None else escape(compare.duration(s)) for s in compare.beside(figures, key)
    ]
    cells.append(f'<span class="{compare.colour(*times)}">{compare.quotient(*times) or "-"}</span>')
    body = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(name)}</th>{body}</tr>'


def table_of(caption: str, head: str, lines: Sequence[str]) -> str:
    """A table that scrolls by itself where it is wider than the page."""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
