"""The page about one log on several systems: a sentence for each, and the table with bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cpdispatch.analyze import compare
from cpdispatch.report.page import BOUNDED_SLOWDOWN, file_of, framed
from cpdispatch.report.words import Row, table_of

_BARS = {"wait_s_mean": compare.duration, "bounded_slowdown_mean": "{:,.2f}".format}

_WAIT = "A job waits from its submission to its start."


def whatif_page(log: str, resource: str, rows: Sequence[Row]) -> str:
    """The page as HTML: one file that needs no other and makes no request.

    Parameters
    ----------
    log, resource : str
        Names of the log and of the systems' first resource type.
    rows : sequence of dict
        As of `cpdispatch.experiment.whatif.rows_of`; those of the first system stand first.
    """
    systems = list(dict.fromkeys(row["system"] for row in rows))
    parts = {
        "TITLE": escape(f"{log} on {len(systems)} systems"),
        "LEAD": escape(f"The same jobs on {', '.join(systems)}; ratios are to {systems[0]}."),
        "VERDICT": escape(" ".join([*sentences(rows), _WAIT])),
        "TABLE": _table(resource, rows),
        "NOTES": "".join(f"<li>{escape(line)}</li>" for line in _notes(rows)),
        "CSS": file_of("page.css"),
        "JS": file_of("theme.js"),
    }
    return framed("whatif.html", parts)


def sentences(rows: Sequence[Row]) -> list[str]:
    """What each other system brings under each dispatcher, in plain words."""
    found = []
    first = {who(row): row for row in reversed(rows) if row["system"] == rows[0]["system"]}
    for row in rows:
        before = first.get(who(row))
        if row["system"] == rows[0]["system"] or before is None:
            continue
        if row["wait_s_mean"] is None or before["wait_s_mean"] is None:
            continue
        times = row["wait_ratio"]
        if times is None:  # nobody waits on the first system
            told = "longer" if row["wait_s_mean"] else "the same"
        else:
            told = "the same" if f"{times:.2f}" == "1.00" else f"{times:.2f} times as long"
        found.append(
            f"On {row['system']}, jobs wait {told} under {who(row)} in the mean: "
            f"{compare.duration(row['wait_s_mean'])} instead of "
            f"{compare.duration(before['wait_s_mean'])}."
        )
    return found or ["No job started on two of the systems, so there is nothing to compare."]


def who(row: Row) -> str:
    """The dispatcher of a row, with its predictor where that is not the requested time."""
    own = row["predictor"] == "walltime"
    return str(row["dispatcher"]) + ("" if own else f" with {row['predictor']}")


def never_started(rows: Sequence[Row]) -> list[str]:
    """A sentence for each system with the most jobs that never started under one dispatcher."""
    most: dict[str, float] = {}
    for row in rows:
        if many := row["jobs_never_started"]:
            most[row["system"]] = max(most.get(row["system"], 0), many)
    told = {name: f"{many:,.1f}".removesuffix(".0") for name, many in most.items()}
    return [
        f"{name}: {many} job{'s' * (many != '1')} never started; the figures are of the others."
        for name, many in told.items()
    ]


def _table(resource: str, rows: Sequence[Row]) -> str:
    names = (
        "system", "dispatcher", resource, "mean wait", "ratio", "longest wait",
        "mean bounded slowdown", "ratio", "utilisation",
    )  # fmt: skip
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    most = {key: max((row[key] or 0 for row in rows), default=0) for key in _BARS}
    lines = []
    for row in rows:
        wait, slowdown = (_bar(row, key, most[key]) for key in _BARS)
        longest = "-" if row["wait_s_max"] is None else compare.duration(row["wait_s_max"])
        used = "-" if row["utilisation"] is None else f"{row['utilisation']:.1%}"
        cells = (
            escape(who(row)), f"{row['capacity']:,}", wait, _ratio(row["wait_ratio"]),
            escape(longest), slowdown, _ratio(row["slowdown_ratio"]), used,
        )  # fmt: skip
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(row["system"])}</th>{body}</tr>')
    return table_of("Figures by system and dispatcher", head, lines)


def _bar(row: Row, key: str, most: float) -> str:
    """A mean, its spread over draws, and below it a bar of its size."""
    value, spread = row[key], row[f"{key}_spread"]
    if value is None:
        return "-"
    show = _BARS[key]
    told = show(value) + ("" if spread is None else f" ± {show(spread)}")
    share = 100 * value / most if most else 0
    return f'{escape(told)}<div class="bar" aria-hidden="true" style="width:{share:.1f}%"></div>'


def _ratio(times: float | None) -> str:
    if times is None:
        return "-"
    kind = "worse" if times > 1 else "better" if times < 1 else ""
    return f'<span class="{kind}">{times:,.2f}</span>'


def _notes(rows: Sequence[Row]) -> list[str]:
    runs = max(row["runs"] for row in rows)
    lines = [
        f"Figures are means over {runs} draws, with their standard deviation."
        if runs > 1
        else "Each figure is of one replay, which is one draw of a chaotic system.",
        BOUNDED_SLOWDOWN,
        "The jobs are those of the log. A site whose waits get shorter may be given more work, "
        "and then gains less than the table says.",
    ]
    return lines + never_started(rows)
