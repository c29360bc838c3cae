"""Pictures of workloads side by side: when jobs are submitted, and how much work they are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.analyze.look import COLOURS, FORMATS, INK, figure, literal, plain, save
from cpdispatch.arrays import FloatArray
from cpdispatch.errors import UsageError
from cpdispatch.extra import needed
from cpdispatch.words import counted

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FILL, LINE = "#b9cbe0", COLOURS[1]


@dataclass(frozen=True, slots=True, eq=False)
class PlottedWorkload:
    """What is drawn of a workload."""

    name: str
    hours: FloatArray
    """Share of the submissions in each hour of the day, shape (24,)."""
    weekdays: FloatArray
    """Submissions on a day of that kind, from Monday, over those on a mean day, shape (7,); NaN for
    days that the workload does not cover.
    """
    months: FloatArray
    """The same for the days of each month from January, shape (12,)."""
    work_core_s: FloatArray
    """Work of every job, in seconds of a core of the system, shape (jobs,)."""


def check(path: str | os.PathLike[str]) -> None:
    """Make sure, before there is any work to lose, that a picture of that name can be drawn.

    Raises
    ------
    UsageError
        When the extension is unknown or matplotlib is not installed.
    """
    if Path(path).suffix not in FORMATS:
        raise UsageError(f"{path}: unknown extension; pictures are {', '.join(FORMATS)}")
    needed("matplotlib.figure", "plot")


def workloads(path: str | os.PathLike[str], plotted: list[PlottedWorkload]) -> None:
    """Draw one workload, or a second one over the first, and write the picture atomically.

    Parameters
    ----------
    path : path
        ``.png``, ``.svg`` or ``.pdf``.
    plotted : list of PlottedWorkload
        One, or two: the second is drawn as lines over the first.

    Raises
    ------
    UsageError
        When matplotlib is missing, or the file cannot be written.
    """
    check(path)
    drawn = figure(11, 7.4, dpi=120)
    axes = drawn.subplots(2, 2).ravel()
    _bars(axes[0], [p.hours * 100 for p in plotted], [f"{hour}" for hour in range(24)])
    _bars(axes[1], [p.weekdays for p in plotted], list(WEEKDAYS))
    _bars(axes[2], [p.months for p in plotted], list(MONTHS))
    _distribution(axes[3], plotted)
    titles = (
        ("Submissions by hour of the day", "share of the jobs [%]", "local time [h]"),
        ("Submissions by day of the week", "jobs a day / mean", ""),
        ("Submissions by month", "jobs a day / mean", ""),
        ("Distribution of the work of a job", "jobs with no more work [%]", "work [core-seconds]"),
    )
    for axis, (title, y, x) in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=11, loc="left", color=INK)
        axis.set_ylabel(y, fontsize=9, color=INK)
        axis.set_xlabel(x, fontsize=9, color=INK)
        plain(axis)
    for axis in axes[1:3]:
        axis.axhline(1, color=INK, linewidth=0.6, linestyle=":", zorder=1)
    handles = [
        _handle(number, f"{literal(workload.name)} ({counted(len(workload.work_core_s), 'job')})")
        for number, workload in enumerate(plotted)
    ]
    drawn.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=11
    )
    save(path, drawn)


def _handle(number: int, label: str) -> Artist:
    """What stands for the first or the second workload in the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if number == 0:
        return Patch(facecolor=FILL, label=label)
    return Line2D([], [], color=LINE, marker="o", markersize=4, linewidth=1.6, label=label)


def _bars(axis: Axes, series: list[FloatArray], names: list[str]) -> None:
    places = np.arange(len(names))
    axis.bar(places, np.nan_to_num(series[0]), width=0.82, color=FILL, zorder=0)
    for values in series[1:]:
        axis.plot(places, values, color=LINE, marker="o", markersize=4, linewidth=1.6, zorder=2)
    step = 3 if len(names) == 24 else 1
    axis.set_xticks(places[::step], names[::step])
    axis.set_xlim(-0.7, len(names) - 0.3)
    axis.set_ylim(bottom=0)


def _distribution(axis: Axes, plotted: list[PlottedWorkload]) -> None:
    """Share of the jobs up to an amount of work; less than 1 core-second counts as 1."""
    most = max(float(workload.work_core_s.max()) for workload in plotted)
    right = max(1.5 * most, 10.0)
    for number, workload in enumerate(plotted):
        values = np.sort(np.maximum(workload.work_core_s, 1))
        share = np.arange(1, len(values) + 1) / len(values) * 100
        # Some thousand steps are finer than the picture.
        kept = np.unique(np.linspace(0, len(values) - 1, 4000).astype(np.int64))
        x = np.concatenate(([1], values[kept], [right]))
        y = np.concatenate(([0], share[kept], [100]))
        if number == 0:
            axis.fill_between(x, y, step="post", color=FILL, linewidth=0)
        else:
            axis.step(x, y, where="post", color=LINE, linewidth=1.6)
    axis.set_xscale("log")
    axis.set_xlim(1, right)
    axis.set_ylim(0, 100)
