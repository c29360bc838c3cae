"""The page about one log on several systems: a sentence for each, and the table with bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from cpdispatch.analyze import compare
from cpdispatch.report.page import BOUNDED_SLOWDOWN, file_of, framed
from cpdispatch.report.words import Row, table_of

_BARS = {"wait_s_mean": compare.duration, "bounded_slowdown_mean": "{:,.2f}".format}
_RATIOS = ("wait_ratio", "slowdown_ratio")

_WAIT = "A job waits from its submission to its start."


def whatif_page(
    log: str, resource: str, first: str, rows: Sequence[Row], failed: Mapping[str, str]
) -> str:
    """The page as HTML: one file that needs no other and makes no request.

    Parameters
    ----------
    log, resource, first : str
        Names of the log, of the systems' first resource type, and of the first system.
    rows : sequence of dict
        As of `cpdispatch.experiment.whatif.rows_of`.
    failed : mapping
        Why runs failed, by what they are called.
    """
    systems = list(dict.fromkeys([first, *(row["system"] for row in rows)]))
    notes = [*_notes(rows), *(f"{run} failed: {why}." for run, why in failed.items())]
    parts = {
        "TITLE": escape(f"{log} on {len(systems)} systems"),
        "LEAD": escape(f"The same log on {', '.join(systems)}; ratios are to {first}."),
        "VERDICT": escape(" ".join([*sentences(rows, first), _WAIT])),
        "TABLE": _table(resource, rows),
        "NOTES": "".join(f"<li>{escape(line)}</li>" for line in notes),
        "CSS": file_of("page.css"),
        "JS": file_of("theme.js"),
    }
    return framed("whatif.html", parts)


def sentences(rows: Sequence[Row], first: str) -> list[str]:
    """What each system brings beside the first one under each dispatcher, in plain words."""
    of_first = {who(row): row for row in rows if row["system"] == first}
    found = []
    for row in rows:
        before = of_first.get(who(row))
        if row["system"] == first or before is None:
            continue
        if row["same_jobs"] is False:
            many, there = row["jobs_never_started"], before["jobs_never_started"]
            found.append(
                f"On {row['system']}, the means under {who(row)} are of other jobs than on "
                f"{first}, so they have no ratio: {_jobs(many)} never started, there "
                f"{compare.counted(there)}."
            )
            continue
        now_s, before_s = row["wait_s_mean"], before["wait_s_mean"]
        if now_s is None or before_s is None:
            continue
        times, *interval = _with_interval(row, "wait_ratio")
        if times is not None:
            told = "the same" if f"{times:.2f}" == "1.00" else f"{times:.2f} times as long"
        elif not before_s:
            told = "longer" if now_s else "the same"
        else:  # the two have no draw in common
            continue
        noise = told != "the same" and compare.within_noise(*interval)
        found.append(
            f"On {row['system']}, jobs wait {told} under {who(row)} in the mean: "
            f"{compare.duration(now_s)} instead of {compare.duration(before_s)}"
            f"{', which is within noise' * noise}."
        )
    return found or [
        f"No dispatcher has runs in which jobs started on {first} and on another system, so there "
        "is nothing to compare."
    ]


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
    return [
        f"{name}: {_jobs(many)} never started; the figures are of the others."
        for name, many in most.items()
    ]


def _jobs(number: float) -> str:
    many = compare.counted(number)
    return f"{many} job{'s' * (many != '1')}"


def spread(row: Row, key: str, show: Callable[[float], str]) -> str:
    """A mean, and its standard deviation over draws where there are several."""
    if row[key] is None:
        return "-"
    around = row[f"{key}_spread"]
    return show(row[key]) + ("" if around is None else f" ± {show(around)}")


def ratio(row: Row, key: str) -> str:
    """A ratio to the first system as `compare` writes it."""
    return compare.quotient(*_with_interval(row, key))


def _with_interval(row: Row, key: str) -> list[float | None]:
    return [row[f"{key}{end}"] for end in ("", "_low", "_high")]


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
        wait_ratio, slowdown_ratio = (_ratio(row, key) for key in _RATIOS)
        cells = (
            escape(who(row)), f"{row['capacity']:,}", wait, wait_ratio,
            escape(spread(row, "wait_s_max", compare.duration)), slowdown, slowdown_ratio,
            escape(spread(row, "utilisation", "{:.1%}".format)),
        )  # fmt: skip
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(row["system"])}</th>{body}</tr>')
    return table_of("Figures by system and dispatcher", head, lines)


def _bar(row: Row, key: str, most: float) -> str:
    """A mean, its spread over draws, and below it a bar of its size."""
    told = spread(row, key, _BARS[key])
    if row[key] is None:
        return told
    share = 100 * row[key] / most if most else 0
    return f'{escape(told)}<div class="bar" aria-hidden="true" style="width:{share:.1f}%"></div>'


def _ratio(row: Row, key: str) -> str:
    kind = compare.colour(*_with_interval(row, key))
    return f'<span class="{kind}">{ratio(row, key) or "-"}</span>'


def noise_told(rows: Sequence[Row]) -> list[str]:
    """What ratios in brackets are, if there are any."""
    noise = any(
        compare.within_noise(*_with_interval(row, key)[1:]) for row in rows for key in _RATIOS
    )
    return [compare.NOISE_TOLD] if noise else []


def _notes(rows: Sequence[Row]) -> list[str]:
    runs = [row["runs"] for row in rows]
    many = f"{min(runs)}" + f" to {max(runs)}" * (min(runs) < max(runs))
    lines = [
        f"Figures are means over {many} draws, with their standard deviation."
        if max(runs) > 1
        else "Each figure is of one replay, which is one draw of a chaotic system.",
        *noise_told(rows),
        BOUNDED_SLOWDOWN,
        "The jobs are those of the log. A site whose waits get shorter may be given more work, "
        "and then gains less than the table says.",
    ]
    return lines + never_started(rows)
