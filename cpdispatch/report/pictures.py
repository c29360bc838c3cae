"""Pictures of runs for papers and slides: one function a picture, vector graphics, one look.

Each picture is a matplotlib figure of 8.5 cm width, see `cpdispatch.analyze.look`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpdispatch.analyze import metrics
from cpdispatch.analyze.look import COLOURS, DASHES, FORMATS, GREY, INK, MARKS, draw
from cpdispatch.analyze.metrics import ScheduleColumns
from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.errors import UsageError
from cpdispatch.extra import needed
from cpdispatch.report.page import Row, Shown, units_of_groups
from cpdispatch.report.plots import TIMES, known, mean_steps, time_by_queue

RUNS_MAX = len(COLOURS)
"""More runs than this cannot be told apart."""
SINGLE_MAX = 2000
"""Up to so many jobs each has a mark of its own; of more, their density is drawn."""
CURVES_MAX = 3
"""More curves over time than this cover each other: each run then has a panel or a strip."""
DRAWS_MIN = 10
"""Deciles are drawn of no fewer runs."""

_WIDTH_IN = 8.5 / 2.54
_PARTS = 300
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_RATIOS = {
    "wait_s_mean": "mean wait", "wait_s_max": "longest wait",
    "bounded_slowdown_mean": "mean bounded\nslowdown", "queue_length_mean": "mean queue",
    "utilisation": "utilisation", "makespan_s": "makespan",
}  # fmt: skip
_RATIO_TICKS = (
    (0.8, 0.9, 1, 1.1, 1.25), (0.5, 0.7, 1, 1.4, 2), (0.25, 0.5, 1, 2, 4), (0.1, 0.3, 1, 3, 10),
)  # fmt: skip


def write(
    out: Path, shown: Sequence[Shown], rows: Sequence[Row], points: Sequence[Sequence[Row]]
) -> tuple[list[Path], list[str]]:
    """Draw all pictures that the runs have something for.

    Parameters
    ----------
    out : path
        A folder for SVG files, or a name ending in .svg, .pdf or .png, see `file_of`. Made if it
        is missing. Each file is replaced at once.
    shown : sequence of Shown
        Runs of one log and system, at most `RUNS_MAX`; the first is what others are related to.
    rows : sequence of dict
        Their figures in the same order, means over draws.
    points : sequence of sequence of dict
        Of each, the metrics of every draw or seed.

    Returns
    -------
    written : list of Path
    lacking : list of str
        A sentence for each picture that there is nothing for; an older file of its name is removed.

    Raises
    ------
    UsageError
        When matplotlib is missing, or there are too many runs.
    """
    check(len(shown))
    having = [of.run.schedule().started.any() for of in shown]
    started = any(having)
    none, alone = "no job started", "there is one run only"
    first = "" if having[0] else f"no job started under {shown[0].name}"
    of_two = alone if len(shown) < 2 else first if started else none
    drawn: dict[str, tuple[Callable[[], Any], str]] = {
        "queue": (lambda: queue(shown), ""),
        "utilisation": (lambda: utilisation(shown), "" if started else none),
        "wait_ecdf": (lambda: wait_ecdf(shown), "" if started else none),
        "slowdown_ecdf": (lambda: slowdown_ecdf(shown), "" if started else none),
        "wait_box": (lambda: wait_box(shown), "" if started else none),
        "slowdown_box": (lambda: slowdown_box(shown), "" if started else none),
        "queue_box": (lambda: queue_box(shown), ""),
        "decisions": (lambda: decisions(shown), _no_times(shown)),
        "steps": (lambda: steps(shown), _no_steps(shown)),
        "ratios": (lambda: ratios(shown, rows), of_two),
        "waits": (lambda: waits(shown, points), "" if started else none),
        "jobs": (lambda: jobs(shown), first if started else none),
    }
    written, lacking = [], []
    for name, (made, why_not) in drawn.items():
        path = file_of(out, name)
        if why_not:
            path.unlink(missing_ok=True)
            lacking.append(f"No {path.name}: {why_not}.")
            continue
        draw(path, made, name)
        written.append(path)
    return written, lacking


def file_of(out: Path, name: str) -> Path:
    """The file of a picture: ``runs/queue.svg`` of ``runs``, ``runs-queue.pdf`` of ``runs.pdf``."""
    if out.suffix in FORMATS:
        return out.with_name(f"{out.stem}-{name}{out.suffix}")
    return out / f"{name}.svg"


def check(runs: int) -> None:
    """Make sure, before there is work to lose, that so many runs can be drawn.

    Raises
    ------
    UsageError
        When matplotlib is missing, or there are too many runs.
    """
    needed("matplotlib.figure", "plot")
    if runs > RUNS_MAX:
        raise UsageError(f"{runs} runs: pictures show {RUNS_MAX} at most; name fewer dispatchers")


def queue(shown: Sequence[Shown]) -> Any:
    """Jobs that wait over time: the exact mean of each of 300 parts of the time.

    Of more than `CURVES_MAX` runs each has a panel, over the curves of the others in grey.
    """
    begin_s, edges_s, unit = _span(shown)
    at = (edges_s - begin_s) / unit[0]
    means = []
    for of in shown:
        schedule = of.run.schedule()
        until_s = _waits_until(of, schedule, int(edges_s[-1]))
        one = np.ones(len(until_s), dtype=np.int64)
        means.append(_means(schedule.submit_s, until_s, one, edges_s))
    if len(shown) <= CURVES_MAX:
        figure, axes = _figure(shown, 5.5)
        for number, mean in enumerate(means):
            _stairs(axes[0], at, mean, number)
        axes[0].set_ylabel("jobs that wait")
    else:
        figure, axes = _figure(shown, 1.2 + 1.7 * len(shown), rows=len(shown), named=())
        for number, (axis, of) in enumerate(zip(axes, shown, strict=True)):
            for other in means:
                axis.stairs(other, at, baseline=None, color=GREY, linewidth=0.5)
            _stairs(axis, at, means[number], number, "-")
            axis.set_title(of.name, loc="left", fontsize=6.5, color=COLOURS[number], pad=2)
            axis.sharey(axes[0])
        # One long queue would press the others flat.
        axes[0].set_yscale("symlog", linthresh=1)
        axes[0].yaxis.set_major_formatter("{x:,.0f}")
        figure.supylabel("jobs that wait", fontsize=7)
    axes[-1].set_xlabel(f"time [{unit[1]}]")
    axes[0].set_ylim(0, max(*(float(mean.max()) * 1.05 for mean in means), 1))
    return figure


def utilisation(shown: Sequence[Shown]) -> Any:
    """Share in use over time of each resource type, of the system and of each group of nodes.

    Of more than `CURVES_MAX` runs each has a strip, the darker the more is in use.
    """
    system = shown[0].run.system
    panels = _panels(system)
    begin_s, edges_s, unit = _span(shown)
    at = (edges_s - begin_s) / unit[0]
    found: list[list[FloatArray]] = [[] for _ in panels]
    for of in shown:
        schedule = of.run.schedule()
        groups = units_of_groups(of.run) if len(system.groups) > 1 else None
        useful = (
            schedule.started if schedule.failed is None else schedule.started & ~schedule.failed
        )
        from_s, until_s = (np.where(useful, at_s, 0) for at_s in (schedule.start_s, schedule.end_s))
        for means, (_, kind, group, capacity) in zip(found, panels, strict=True):
            units = schedule.units if group is None or groups is None else groups[:, group]
            held = units * schedule.request[:, kind]
            means.append(_means(from_s, until_s, held, edges_s) / capacity * 100)
    if len(shown) > CURVES_MAX:
        return _strips(shown, [name for name, *_ in panels], found, at, f"time [{unit[1]}]")
    figure, axes = _figure(shown, 1.6 + 2.6 * len(panels), rows=len(panels))
    for axis, means, (name, *_) in zip(axes, found, panels, strict=True):
        for number, mean in enumerate(means):
            _stairs(axis, at, mean, number)
        axis.set(ylabel=f"{name} [%]", ylim=(0, 103))
    axes[-1].set_xlabel(f"time [{unit[1]}]")
    return figure


def wait_ecdf(shown: Sequence[Shown]) -> Any:
    """Share of the jobs that wait no longer; waits below 1 s stand at 1 s."""
    figure = _ecdf(shown, [_waits(of) for of in shown], "wait, up to")
    _times(figure.axes[0].xaxis)
    return figure


def slowdown_ecdf(shown: Sequence[Shown]) -> Any:
    """Share of the jobs with no higher bounded slowdown."""
    return _ecdf(shown, [_slowdowns(of) for of in shown], "bounded slowdown, up to")


def wait_box(shown: Sequence[Shown]) -> Any:
    """Percentiles of the wait by run; waits below 1 s stand at 1 s."""
    found = [_waits(of) for of in shown]
    figure = _boxes(shown, [_percentiles(v) for v in found], [_mean(v) for v in found], "wait")
    _times(figure.axes[0].xaxis)
    return figure


def slowdown_box(shown: Sequence[Shown]) -> Any:
    """Percentiles of the bounded slowdown by run."""
    found = [_slowdowns(of) for of in shown]
    means = [_mean(values) for values in found]
    return _boxes(shown, [_percentiles(v) for v in found], means, "bounded slowdown")


def queue_box(shown: Sequence[Shown]) -> Any:
    """Percentiles over time of the number of jobs that wait, by run."""
    boxes, means = [], []
    for of in shown:
        length, lasts_s = _lengths(of)
        order = np.argsort(length, kind="stable")
        sums = np.cumsum(lasts_s[order])
        at = np.searchsorted(sums, np.array(_QUANTILES) * sums[-1])
        boxes.append(length[order][at].astype(np.float64))
        means.append(float(length @ lasts_s / sums[-1]))
    return _boxes(shown, boxes, means, "jobs that wait", scale="symlog")


def decisions(shown: Sequence[Shown]) -> Any:
    """Time of a decision by the number of jobs that wait: median, and 99th percentile thin."""
    measured = {number: known(of, "ms") for number, of in enumerate(shown)}
    measured = {number: found for number, found in measured.items() if len(found[0])}
    figure, (axis,) = _figure(shown, 5.5, named=measured)
    every = []
    for number, of_run in measured.items():
        lengths, times = time_by_queue(*of_run)
        times = np.maximum(times[:, :2], 1e-3)
        every += [times.min(), times.max()]
        for column, wide, fill in ((0, 1.1, COLOURS[number]), (1, 0.6, "white")):
            axis.plot(
                lengths, times[:, column], color=COLOURS[number], linestyle=DASHES[number],
                linewidth=wide, marker=MARKS[number], markersize=3, markerfacecolor=fill,
            )  # fmt: skip
    axis.set(xscale="log", yscale="log", xlabel="jobs that wait, up to")
    decades = np.floor(np.log10(min(every))), np.ceil(np.log10(max(every)))
    axis.set_ylim(10.0 ** decades[0], 10.0 ** max(decades[1], decades[0] + 1))
    axis.yaxis.set_minor_formatter("")
    axis.set_ylabel("time of a decision [ms]\nmedian; thin: 99th percentile")
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.yaxis.set_major_formatter("{x:,g}")
    return figure


def steps(shown: Sequence[Shown]) -> Any:
    """Mean time of each step of a decision."""
    found = mean_steps(shown)
    names = list(dict.fromkeys(name for means in found.values() for name in means))
    figure, (axis,) = _figure(shown, 2.2 + 0.45 * len(names) * max(len(found), 1), named=found)
    high = 0.8 / len(found)
    for place, (number, means) in enumerate(found.items()):
        y = np.array([names.index(name) for name in means]) - 0.4 + (place + 0.5) * high
        axis.barh(y, list(means.values()), height=0.9 * high, color=COLOURS[number])
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("mean time of a decision [ms]")
    return figure


def ratios(shown: Sequence[Shown], rows: Sequence[Row]) -> Any:
    """Figures of each run over those of the first one; figures of 0 have no ratio."""
    first = rows[0]
    keys = [key for key in _RATIOS if first.get(key)]
    figure, (axis,) = _figure(shown, 2.2 + 0.75 * len(keys))
    every = [1.0]
    for number, row in enumerate(rows[1:], start=1):
        place = np.arange(len(keys)) + (number - len(rows) / 2) * 0.6 / len(rows)
        values = np.array([row.get(key) or np.nan for key in keys], dtype=np.float64)
        values /= [first[key] for key in keys]
        every += values[np.isfinite(values)].tolist()
        axis.plot(
            values, place, linestyle="none", marker=MARKS[number], color=COLOURS[number],
            markersize=4,
        )  # fmt: skip
    axis.axvline(1, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(keys)), [_RATIOS[key] for key in keys])
    axis.set_ylim(len(keys) - 0.5, -0.5)
    axis.set_xscale("log")
    widest = max(max(every), 1 / min(every)) ** 1.05
    step = int(np.ceil(np.log10(widest) / 3))
    decades = tuple(10.0 ** (step * k) for k in range(-3, 4))
    ticks: tuple[float, ...] = next((t for t in _RATIO_TICKS if t[-1] >= widest), decades)
    axis.set_xlim(ticks[0], ticks[-1])
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel(f"ratio to {shown[0].name}")
    return figure


def waits(shown: Sequence[Shown], points: Sequence[Sequence[Row]]) -> Any:
    """Mean wait against the longest wait: a mark a draw, and from ten draws on their deciles.

    References
    ----------
    Lelong, Reis, Trystram, "Tuning EASY-backfilling queues", JSSPP 2017.
    """
    figure, (axis,) = _figure(shown, 6.5)
    found = [
        np.array(
            [(row["wait_s_mean"], row["wait_s_max"]) for row in of_run if "wait_s_mean" in row]
        ).reshape(-1, 2)
        for of_run in points
    ]
    every = np.concatenate(found)
    (x_s, x_unit), (y_s, y_unit) = (_unit(float(most)) for most in every.max(axis=0))
    for number, pairs in enumerate(found):
        if not len(pairs):
            continue
        x, y = (pairs / (x_s, y_s)).T
        colour, many = COLOURS[number], len(x) >= DRAWS_MIN
        axis.plot(
            x, y, linestyle="none", marker=MARKS[number], color=colour, markersize=3 if many else 5,
            markeredgewidth=0, alpha=0.4 if many else 1,
        )  # fmt: skip
        if many:
            (x10, x50, x90), (y10, y50, y90) = (np.quantile(v, (0.1, 0.5, 0.9)) for v in (x, y))
            axis.plot([x10, x90], [y50, y50], color=colour)
            axis.plot([x50, x50], [y10, y90], color=colour)
    axis.set(xlabel=f"mean wait [{x_unit}]", ylabel=f"longest wait [{y_unit}]")
    axis.margins(0.12)
    alone = len(every) == 1
    axis.set_xlim(left=0 if alone else max(axis.get_xlim()[0], 0))
    axis.set_ylim(bottom=0 if alone else max(axis.get_ylim()[0], 0))
    return figure


def jobs(shown: Sequence[Shown]) -> Any:
    """Runtime of the jobs of the first run against the processors that they ask for."""
    figure, (axis,) = _figure(shown[:1], 6.0, named=())
    schedule = shown[0].run.schedule()
    schedule = schedule.take(schedule.started)
    x, y = metrics.processors(schedule), np.maximum(metrics.runtime_s(schedule), 1)
    axis.set(xscale="log", yscale="log")
    if len(x) <= SINGLE_MAX:
        axis.plot(
            x, y, linestyle="none", marker="o", color=COLOURS[0], markersize=2.5, alpha=0.4,
            markeredgewidth=0,
        )  # fmt: skip
    else:
        cells = axis.hexbin(
            x, y, xscale="log", yscale="log", gridsize=36, bins="log", mincnt=1, cmap="viridis_r",
            linewidths=0.1,
        )  # fmt: skip
        bar = figure.colorbar(cells, ax=axis, format="{x:,.0f}")
        bar.set_label("jobs")
        bar.outline.set_visible(False)
    axis.set(xlabel=f"{shown[0].run.system.resources[0]}s that a job asks for", ylabel="runtime")
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlim(0.8, max(float(x.max()) * 1.25, 10))
    axis.set_ylim(0.8, max(float(y.max()) * 1.4, 5400))
    _times(axis.yaxis)
    return figure


# ----------------------------------------------------------------------------------- what is drawn


def _waits(of: Shown) -> FloatArray:
    schedule = of.run.schedule()
    return np.maximum(metrics.wait_s(schedule.take(schedule.started)), 1).astype(np.float64)


def _slowdowns(of: Shown) -> FloatArray:
    schedule = of.run.schedule()
    return metrics.bounded_slowdown(schedule.take(schedule.started))


def _percentiles(values: FloatArray) -> FloatArray:
    return np.quantile(values, _QUANTILES) if len(values) else np.full(len(_QUANTILES), np.nan)


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _waits_until(of: Shown, schedule: ScheduleColumns, last_s: int) -> IntArray:
    """Until when each job waits: one that was refused does not, another that never started always.

    ``last_s`` is the end of the time.
    """
    refused = np.isin(of.run.jobs["reason"], ("rejected", "never_fits"))
    never_s = np.where(refused, schedule.submit_s, last_s)
    return np.where(schedule.started, schedule.start_s, never_s)


def _lengths(of: Shown) -> tuple[IntArray, IntArray]:
    """How many jobs wait, and for how many seconds, from the first submission to the last end."""
    schedule = of.run.schedule()
    last_s = int(max(schedule.end_s.max(), schedule.submit_s.max())) + 1
    until_s = _waits_until(of, schedule, last_s)
    times_s = np.concatenate((schedule.submit_s, until_s, [last_s]))
    change = np.concatenate((np.repeat([1, -1], len(until_s)), [0]))
    order = np.argsort(times_s, kind="stable")
    return np.cumsum(change[order])[:-1], np.diff(times_s[order])


def _means(from_s: IntArray, until_s: IntArray, held: IntArray, edges_s: IntArray) -> FloatArray:
    """Mean of what is held in each part of the time, exact: an integral over each part."""
    time_s = np.concatenate((from_s, until_s))
    change = np.concatenate((held, -held)).astype(np.float64)
    order = np.argsort(time_s, kind="stable")
    time_s, level = time_s[order], np.cumsum(change[order])
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(time_s))))
    at = np.clip(np.searchsorted(time_s, edges_s, side="right") - 1, 0, None)
    before = np.maximum(edges_s - time_s[at], 0)
    found: FloatArray = np.diff(area[at] + level[at] * before) / np.diff(edges_s)
    return found


def _span(shown: Sequence[Shown]) -> tuple[int, IntArray, tuple[int, str]]:
    """When the time begins, the edges of its parts, and the unit of the axis."""
    schedules = [of.run.schedule() for of in shown]
    begin_s = int(schedules[0].submit_s.min())
    end_s = max(int(max(s.end_s.max(), s.submit_s.max())) for s in schedules)
    span_s = max(end_s - begin_s, 1)
    edges_s = np.unique(begin_s + np.linspace(0, span_s, _PARTS + 1).astype(np.int64))
    return begin_s, edges_s, _unit(span_s)


def _unit(most_s: float) -> tuple[int, str]:
    """Seconds and name of the unit in which times up to this are easily read."""
    units = ((86_400, "days"), (3600, "hours"), (60, "minutes"))
    return next((unit for unit in units if most_s >= 3 * unit[0]), (1, "s"))


def _panels(system: Any) -> list[tuple[str, int, int | None, int]]:
    """Name, resource type, group (None: all nodes) and capacity of each panel."""
    found: list[tuple[str, int, int | None, int]] = []
    for kind, resource in enumerate(system.resources):
        total = int(system.total[kind])
        having = [
            (number, group) for number, group in enumerate(system.groups) if group.capacity[kind]
        ]
        if total:
            found.append((resource, kind, None, total))
        for number, group in having if len(having) > 1 else []:
            capacity = group.nodes * group.capacity[kind]
            found.append((f"{resource}, group {group.name}", kind, number, capacity))
    return found


def _no_times(shown: Sequence[Shown]) -> str:
    return "" if any(len(known(of, "ms")[0]) for of in shown) else (
        "replays in compiled code are timed as a whole"
    )  # fmt: skip


def _no_steps(shown: Sequence[Shown]) -> str:
    return "" if mean_steps(shown) else "only CP dispatchers tell the steps of their decisions"


# ------------------------------------------------------------------------------------ how it looks


def _figure(
    shown: Sequence[Shown],
    height_cm: float,
    *,
    rows: int = 1,
    named: Collection[int] | None = None,
) -> tuple[Any, Any]:
    """A figure with axes below each other, and above them the names of the runs, or of some.

    The names are in two columns if they are short enough for that.
    """
    named = range(len(shown)) if named is None else named
    # A figure of its own: pyplot would keep every one and ask for a display.
    figure = needed("matplotlib.figure", "plot").Figure(
        (_WIDTH_IN, height_cm / 2.54), layout="constrained", facecolor="white"
    )
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    if named and len(shown) > 1:
        lines2d = needed("matplotlib.lines", "plot")
        handles = [
            lines2d.Line2D(
                [], [], color=COLOURS[k], linestyle=DASHES[k], marker=MARKS[k], markersize=3.5,
                label=of.name if len(of.name) <= 45 else f"{of.name[:44]}…",
            )
            for k, of in enumerate(shown) if k in named
        ]  # fmt: skip
        for columns in (2, 1):
            legend = figure.legend(
                handles=handles, loc="outside upper left", ncols=columns, frameon=False,
                handlelength=3,
            )  # fmt: skip
            if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
                break
            legend.remove()
        figure.set_figheight((height_cm + 0.4 * -(-len(named) // columns)) / 2.54)
    return figure, axes


def _strips(
    shown: Sequence[Shown], names: Sequence[str], found: Sequence[Sequence[FloatArray]],
    at: FloatArray, label: str,
) -> Any:  # fmt: skip
    """A panel for each name with a strip of 0 to 100 % for each run."""
    high = 1.6 + (0.9 + 0.36 * len(shown)) * len(names)
    figure, axes = _figure(shown, high, rows=len(names), named=())
    for axis, means, name in zip(axes, found, names, strict=True):
        cells = axis.pcolormesh(
            at, np.arange(len(shown) + 1) - 0.5, np.array(means), cmap="Blues", vmin=0,
            vmax=100, rasterized=True,
        )  # fmt: skip
        axis.set_yticks(range(len(shown)), [_short(of.name) for of in shown])
        axis.set_ylim(len(shown) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0, labelsize=5.5)
        axis.grid(visible=False)
        axis.set_title(name, loc="left", fontsize=6.5, pad=2)
    axes[-1].set_xlabel(label)
    bar = figure.colorbar(cells, ax=list(axes), location="top", aspect=40, shrink=0.9)
    bar.set_label("in use [%]")
    bar.outline.set_visible(False)
    return figure


def _stairs(
    axis: Any, edges: FloatArray, values: FloatArray, number: int, dash: Any = None
) -> None:
    axis.stairs(
        values, edges, baseline=None, color=COLOURS[number], linestyle=dash or DASHES[number],
        linewidth=0.8,
    )  # fmt: skip
    axis.set_xlim(edges[0], edges[-1])


def _ecdf(shown: Sequence[Shown], values: Sequence[FloatArray], label: str) -> Any:
    figure, (axis,) = _figure(shown, 5.5)
    top = 10.0
    for number, of_run in enumerate(values):
        if not len(of_run):
            continue
        ordered = np.sort(of_run)
        # Some hundred steps are finer than the picture.
        kept = np.unique(np.linspace(0, len(ordered) - 1, 800).astype(np.int64))
        x = np.concatenate(([ordered[0]], ordered[kept]))
        y = np.concatenate(([0], (kept + 1) / len(ordered) * 100))
        axis.step(x, y, where="post", color=COLOURS[number], linestyle=DASHES[number])
        top = max(top, float(ordered[-1]))
    axis.set(xscale="log", xlabel=label, ylabel="jobs [%]", ylim=(0, 102), xlim=(0.9, top * 1.3))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def _boxes(
    shown: Sequence[Shown], boxes: Sequence[FloatArray], means: Sequence[float], label: str,
    scale: str = "log",
) -> Any:  # fmt: skip
    """A row a run: 5th to 95th percentile as a line, quartiles as a box, median, mean as a mark."""
    figure, (axis,) = _figure(shown, 1.8 + 0.7 * len(shown), named=())
    for number, ((p5, p25, p50, p75, p95), mean) in enumerate(zip(boxes, means, strict=True)):
        colour = COLOURS[number]
        axis.plot([p5, p95], [number, number], color=colour)
        axis.barh(
            number, p75 - p25, left=p25, height=0.55, facecolor="white", edgecolor=colour, zorder=2
        )
        axis.plot([p50, p50], [number - 0.275, number + 0.275], color=colour, linewidth=2.4)
        axis.plot(
            mean, number, marker=MARKS[number], color=colour, markersize=4, zorder=4,
            markeredgecolor="white", markeredgewidth=0.5,
        )  # fmt: skip
    most = np.nanmax([*(box[-1] for box in boxes), *means])
    axis.set_xscale(scale, **({"linthresh": 1} if scale == "symlog" else {}))
    axis.set_xlim(0 if scale == "symlog" else 0.9, max(float(most) * 1.4, 10))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_yticks(range(len(shown)), [_short(of.name) for of in shown])
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(label)
    return figure


def _short(name: str) -> str:
    """A name that leaves room for the picture."""
    return name if len(name) <= 22 else f"{name[:21]}…"


def _times(axis: Any) -> None:
    """Label a logarithmic axis of seconds by times that people know."""
    axis.set_major_locator(needed("matplotlib.ticker", "plot").FixedLocator(list(TIMES)))
    axis.set_major_formatter(lambda value, _: TIMES.get(round(value), ""))
