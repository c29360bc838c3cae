"""The plots of the page. Bokeh draws them; the page fills those that follow its filters.

A glyph's tag is the number of its run; the page gives it that run's colour, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.analyze.compare import LENGTHS, SHARES
from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.simulator.arrow import array
from cpdispatch.words import listed

if TYPE_CHECKING:
    from cpdispatch.report.page import Shown

COLOURS = {
    "light": ("#0067a5", "#c04a00", "#007a5e", "#9a3f86", "#6b5900", "#444444"),
    "dark": ("#56b4e9", "#f0943a", "#2fc39a", "#dd93c4", "#e2cf4e", "#c8c8c8"),
}
"""Of the runs in turn: told apart by colour-blind people, and clear on either background."""
DASHES = ("solid", (6, 3), (2, 2), (8, 3, 2, 3), (10, 4), (1, 4))
STEPS = {
    "select": "select jobs", "decompose": "split into parts", "first": "first list schedule",
    "incumbent": "list schedules", "bound": "lower bounds", "postpone": "schedule or postpone",
    "orders": "local search", "build": "CP-SAT: model", "solve": "CP-SAT: search",
    "polish": "place after CP-SAT", "failed": "model that failed", "answer": "answer",
}  # fmt: skip
"""The steps of a decision, as they are told."""
MARKERS = ("circle", "triangle", "square", "diamond", "inverted_triangle", "plus")
_HEIGHT = 270
TIMES = {1: "1 s", 60: "1 min", 3600: "1 h", 86_400: "1 d", 864_000: "10 d", 8_640_000: "100 d"}
"""Seconds that axes of waits name."""
Plot = tuple[Any, str]


def all_of(shown: Sequence[Shown]) -> dict[str, Plot]:
    """Each plot by name, with the sentence that tells what it shows.

    A plot is None where no run has what it would show; the sentence then says why.
    """
    runs = range(len(shown))
    return {
        "queue": (_over_time(runs, "jobs that wait", "queue"), ""),
        "use": (_over_time(runs, "utilisation", "use", share=True), ""),
        "ecdf_wait": (_shares(runs, "wait", "ecdf_wait"), ""),
        "ecdf_slowdown": (_shares(runs, "bounded slowdown", "ecdf_slowdown"), ""),
        "box_wait": (_strips(runs, "wait", "box_wait"), ""),
        "box_slowdown": (_strips(runs, "bounded slowdown", "box_slowdown"), ""),
        "users": _users(shown),
        "decisions": _decisions(shown),
        "steps": _steps(shown),
        "gap": _gaps(shown),
    }


def _figure(x: str, y: str, **more: Any) -> Any:
    from bokeh.plotting import figure

    plot = figure(
        height=_HEIGHT, sizing_mode="stretch_width", toolbar_location=None, tools="",
        x_axis_label=x, y_axis_label=y, min_border_left=66, min_border_right=14, **more,
    )  # fmt: skip
    plot.outline_line_color = plot.border_fill_color = None  # of the page, light or dark
    for axis in plot.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "13px"
        axis.minor_tick_line_color = None
    return plot


def _source(name: str, **columns: Any) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(data=columns, name=name)


def _over_time(runs: Sequence[int], label: str, name: str, *, share: bool = False) -> Any:
    from bokeh.models import DataRange1d, FixedTicker, NumeralTickFormatter, Range1d

    y_range = Range1d(start=0, end=1.02) if share else DataRange1d(start=0)
    plot = _figure("", label, y_range=y_range, x_range=Range1d(start=0, end=1, name="time"))
    plot.xaxis.ticker = FixedTicker(ticks=[], name="times")
    plot.xaxis.name = "times"
    plot.yaxis.formatter = NumeralTickFormatter(format="0%" if share else "0,0.[0]")
    for run in runs:
        plot.step(
            "x", "y", mode="center", source=_source(f"{name}-{run}", x=[], y=[]), line_width=1.6,
            line_dash=DASHES[run], tags=[run],
        )  # fmt: skip
    return plot


def _shares(runs: Sequence[int], label: str, name: str) -> Any:
    from bokeh.models import NumeralTickFormatter

    plot = _figure(f"{label}, up to", "share of the jobs", x_axis_type="log", y_range=(0, 1.01))
    plot.yaxis.formatter = NumeralTickFormatter(format="0%")
    _logarithmic(label, plot.xaxis)
    for run in runs:
        plot.line(
            "x", "y", source=_source(f"{name}-{run}", x=[1, 10], y=[0, 0]), line_width=2,
            line_dash=DASHES[run], tags=[run],
        )  # fmt: skip
    return plot


def _strips(runs: Sequence[int], label: str, name: str) -> Any:
    """5th to 95th percentile as a line, 25th to 75th as a box, the median, and the mean."""
    from bokeh.models import FactorRange
    from bokeh.transform import dodge

    classes = ["all", *LENGTHS, *SHARES]
    plot = _figure("", label, x_range=FactorRange(factors=classes), y_axis_type="log")
    _logarithmic(label, plot.yaxis)
    plot.xaxis.major_label_orientation = 0.5
    plot.xgrid.grid_line_color = None
    wide = 0.8 / len(runs)
    for run in runs:
        # Without a value, a logarithmic axis complains until the page fills it.
        columns = ("p5", "p25", "p50", "p75", "p95", "mean")
        until: dict[str, list[Any]] = {column: [1] for column in columns}
        source = _source(f"{name}-{run}", x=["all"], **until)
        x = dodge("x", (run - (len(runs) - 1) / 2) * wide, range=plot.x_range)
        plot.segment(x, "p5", x, "p95", source=source, line_width=1.5, tags=[run])
        plot.vbar(x, 0.8 * wide, "p75", "p25", source=source, fill_alpha=0.35, tags=[run])
        plot.scatter(x, "p50", marker="dash", size=14, source=source, line_width=3, tags=[run])
        plot.scatter(x, "mean", marker=MARKERS[run], size=7, source=source, tags=[run])
    return plot


def _users(shown: Sequence[Shown]) -> Plot:
    """Mean wait of each user under each run, over that under the first."""
    if len(shown) < 2:
        return None, "There is one run only, so no wait can be compared with another one."
    if not shown[0].users:
        return None, (
            f"No job of a known user started under {shown[0].name}, so waits of users cannot be "
            "compared."
        )
    label = f"mean wait of a user under {shown[0].name}"
    plot = _figure(label, "mean wait, other run", x_axis_type="log", y_axis_type="log")
    plot.line(
        [1, 1e7], [1, 1e7], line_width=1, line_dash=(4, 4), tags=["ink"], name="alike"
    )  # fmt: skip
    most = 1.0
    for run, of in enumerate(shown[1:], start=1):
        users, jobs, before_s, now_s = (
            [user[key] for user in of.users]
            for key in ("user", "jobs", "wait_s_mean_first", "wait_s_mean")
        )
        x, y = (np.maximum(waits, 1.0) for waits in (before_s, now_s))
        most = max(most, float(max(x.max(initial=1), y.max(initial=1))))
        size = np.clip(4 + 2.5 * np.log10(np.maximum(jobs, 1)), 4, 18)
        source = _source("", x=x, y=y, jobs=jobs, user=users, size=size)
        drawn = plot.scatter(
            "x", "y", size="size", marker=MARKERS[run], source=source, fill_alpha=0.4, tags=[run]
        )
        _hover(plot, drawn, [("user", "@user"), ("jobs", "@jobs{0,0}"),
                             (f"under {shown[0].name}", "@x{0,0} s"),
                             (f"under {of.name}", "@y{0,0} s")])  # fmt: skip
    plot.x_range.start = plot.y_range.start = 0.8
    plot.x_range.end = plot.y_range.end = 1.6 * most
    _logarithmic(label, plot.xaxis, plot.yaxis)
    return plot, (
        "A mark below the line is a user who waits shorter than under the first run, one above it "
        "a user who waits longer. Larger marks are users with more jobs. Waits below 1 s stand at "
        "1 s."
    )


def _hover(plot: Any, renderer: Any, tooltips: list[tuple[str, str]]) -> None:
    from bokeh.models import HoverTool

    plot.add_tools(HoverTool(renderers=[renderer], tooltips=tooltips))


def _logarithmic(label: str, *axes: Any) -> None:
    """Label axes of waits by times that people know, others by numbers."""
    from bokeh.models import FixedTicker, NumeralTickFormatter

    for axis in axes:
        if "wait" in label and "jobs" not in label:
            axis.ticker = FixedTicker(ticks=list(TIMES))
            axis.major_label_overrides = TIMES
        # 10k: 10,000 is too wide for a phone.
        axis.formatter = NumeralTickFormatter(format="0.[0]a")


def known(of: Shown, name: str) -> tuple[FloatArray, FloatArray]:
    """A figure of the decisions that have it, and the queue's length at each."""
    table = of.run.decision_table
    if name not in table.column_names:
        return np.empty(0), np.empty(0)
    value, queue = (array(table.column(column)).astype(float) for column in (name, "queue"))
    kept = np.isfinite(value)
    return value[kept], queue[kept]


def time_by_queue(ms: FloatArray, queue: FloatArray) -> tuple[IntArray, FloatArray]:
    """Times of decisions by the queue's length, in classes up to 1, 2, 4, 8 and so on.

    Parameters
    ----------
    ms, queue : float array, shape (decisions,)

    Returns
    -------
    queue : int64 array, shape (classes,)
        The most jobs of each class; classes without decisions are left out.
    ms : float array, shape (classes, 3)
        Median, 99th percentile and longest time of each.
    """
    of = np.ceil(np.log2(np.maximum(queue, 1))).astype(np.int64)
    classes = np.unique(of)
    times = [
        [*np.percentile(ms[of == one], [50, 99]), ms[of == one].max()] for one in classes
    ]  # fmt: skip
    return 1 << classes, np.array(times).reshape(-1, 3)


def _decisions(shown: Sequence[Shown]) -> Plot:
    from bokeh.models import FixedTicker, NumeralTickFormatter

    measured = {run: known(of, "ms") for run, of in enumerate(shown)}
    measured = {run: found for run, found in measured.items() if len(found[0])}
    if not measured:
        return None, (
            "Only whole replays were timed: these runs were replayed in compiled code, which takes "
            "too little time for a decision to be measured by itself."
        )
    plot = _figure(
        "jobs that wait, up to", "time of a decision [ms]", x_axis_type="log", y_axis_type="log"
    )
    every: list[float] = []
    for run, (ms, queue) in measured.items():
        lengths, times = time_by_queue(ms, queue)
        times = np.maximum(times, 1e-3)
        every += [times[:, :2].min(), times[:, :2].max()]
        for column, (name, marker) in enumerate((("median", "circle"), ("99th", "triangle"))):
            source = _source("", x=lengths, y=times[:, column])
            dash = "solid" if column == 0 else (4, 3)
            plot.line("x", "y", source=source, line_width=2, line_dash=dash, tags=[run])
            drawn = plot.scatter("x", "y", source=source, size=7, marker=marker, tags=[run])
            _hover(plot, drawn, [("run", shown[run].name), (name, "@y{0,0.00} ms"),
                                 ("queue up to", "@x{0,0}")])  # fmt: skip
    _logarithmic("jobs", plot.xaxis)
    plot.xaxis.ticker = FixedTicker(ticks=[4**k for k in range(12)])
    plot.yaxis.ticker = FixedTicker(ticks=[10.0**k for k in range(-3, 7)])
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    low, high = np.floor(np.log10(min(every))), np.ceil(np.log10(max(every)))
    plot.y_range.start, plot.y_range.end = 10.0**low, 10.0 ** max(high, low + 1)
    return plot, (
        "Circles: the median decision. Triangles: the 99th percentile." + _lacking(shown, measured)
    )


def _lacking(shown: Sequence[Shown], having: Any) -> str:
    names = [of.name for run, of in enumerate(shown) if run not in having]
    return f" {listed(names)} {'has' if len(names) == 1 else 'have'} none." if names else ""


def mean_steps(shown: Sequence[Shown]) -> dict[int, dict[str, float]]:
    """Mean milliseconds of each step of a decision, by the number of the run; of those with any."""
    steps: dict[int, dict[str, float]] = {}
    for run, of in enumerate(shown):
        table = of.run.decision_table
        names = [n for n in table.column_names if n.endswith("_ms")]
        steps_of = [n.removesuffix("_ms") for n in names]
        means = {STEPS.get(s, s): float(known(of, f"{s}_ms")[0].sum()) for s in steps_of}
        means = {n: total / len(table) for n, total in means.items() if total > 0}
        if means:
            steps[run] = means
    return steps


def _steps(shown: Sequence[Shown]) -> Plot:
    from bokeh.models import FactorRange
    from bokeh.transform import dodge

    steps = mean_steps(shown)
    if not steps:
        return None, "No run tells the steps of its decisions: only CP dispatchers have any."
    names = list(dict.fromkeys(name for means in steps.values() for name in means))
    plot = _figure("mean time of a decision [ms]", "", y_range=FactorRange(factors=names[::-1]))
    wide = 0.8 / len(steps)
    for place, (run, means) in enumerate(steps.items()):
        y = dodge("step", ((len(steps) - 1) / 2 - place) * wide, range=plot.y_range)
        source = _source("", step=list(means), ms=list(means.values()))
        drawn = plot.hbar(y, right="ms", height=0.9 * wide, source=source, tags=[run])
        _hover(plot, drawn, [("run", shown[run].name), ("step", "@step"), ("mean", "@ms ms")])
    plot.x_range.start = 0
    plot.ygrid.grid_line_color = None
    return plot, "Mean time of each step over all decisions." + _lacking(shown, steps)


def _gaps(shown: Sequence[Shown]) -> Plot:
    from bokeh.models import NumeralTickFormatter

    gaps = {run: known(of, "gap")[0] for run, of in enumerate(shown)}
    gaps = {run: gap for run, gap in gaps.items() if len(gap)}
    if not gaps:
        return None, "No decision of these runs has a proven bound, so there is no gap to show."
    plot = _figure("gap between a decision and its bound, up to", "share of those with a bound")
    told = []
    for run, gap in gaps.items():
        ordered = np.sort(gap)
        shares = np.linspace(0, 1, min(len(ordered), 500))
        x = np.concatenate(([0.0], np.quantile(ordered, shares)))
        y = np.concatenate(([0.0], shares))
        plot.step(x, y, mode="after", line_width=2, line_dash=DASHES[run], tags=[run])
        decisions = len(shown[run].run.decision_table)
        told.append(
            f"Under {shown[run].name}, {len(gap):,} of {decisions:,} decisions have a bound; "
            f"{np.mean(gap <= 1e-9):.1%} of these are proven optimal, and the mean gap is "
            f"{gap.mean():.2%}."
        )
    plot.xaxis.formatter = plot.yaxis.formatter = NumeralTickFormatter(format="0%")
    plot.y_range.start, plot.y_range.end = 0, 1.01
    return plot, " ".join(told)
