"""Pictures of predictors side by side: how far they are out, and the schedules they lead to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.analyze.look import COLOURS, GREY, INK, figure, literal, plain, save
from cpdispatch.analyze.plots import check
from cpdispatch.analyze.predictions import RATIOS, WITHIN
from cpdispatch.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDS = {"walltime": GREY, "actual": INK}
"""Colours of what predictors are compared with: the requested time and the runtime."""


def colours(predictors: Sequence[str]) -> dict[str, str]:
    """A colour for each predictor."""
    others = [name for name in predictors if name not in BOUNDS]
    return {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(others)} | BOUNDS


def ratios(
    path: str | os.PathLike[str], title: str, shares: Mapping[str, Sequence[float] | FloatArray]
) -> None:
    """Draw the distribution of runtime / prediction, a curve a predictor.

    Parameters
    ----------
    path : path
        ``.png``, ``.svg`` or ``.pdf``; written atomically.
    shares : mapping of str to float array, shape (ratios,)
        Of each predictor the share of the jobs up to each of `RATIOS`.

    Raises
    ------
    UsageError
        When matplotlib is missing, or the file cannot be written.
    """
    check(path)
    drawn = figure(8.4, 5.2, dpi=120)
    axis = drawn.subplots()
    axis.axvspan(*WITHIN, color="#e8eef5", linewidth=0, zorder=0)
    axis.axvline(1, color=INK, linewidth=0.6, linestyle=":", zorder=1)
    of = colours(list(shares))
    for name, share in shares.items():
        bound = name in BOUNDS
        axis.step(
            RATIOS, np.asarray(share) * 100, where="post", color=of[name], label=literal(name),
            linewidth=1.4 if bound else 1.8, linestyle="--" if bound else "-",
            zorder=2 if bound else 3,
        )  # fmt: skip
    axis.set(xscale="log", xlim=(RATIOS[0], RATIOS[-1]), ylim=(0, 100))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("runtime / prediction (over 1: under-estimated)", fontsize=9, color=INK)
    axis.set_ylabel("jobs up to this ratio [%]", fontsize=9, color=INK)
    axis.legend(loc="upper left", frameon=False, fontsize=9)
    _finish(drawn, [axis], title)
    save(path, drawn)


def bars(
    path: str | os.PathLike[str], title: str, values: Mapping[str, Mapping[str, float]]
) -> None:
    """Draw a figure of each predictor as bars, a panel for each class of jobs.

    Parameters
    ----------
    path : path
        ``.png``, ``.svg`` or ``.pdf``; written atomically.
    values : mapping of str to mapping of str to float
        Class -> predictor -> value; NaN where there is none.

    Raises
    ------
    UsageError
        When matplotlib is missing, or the file cannot be written.
    """
    check(path)
    names = list(next(iter(values.values())))
    of = colours(names)
    drawn = figure(11, 1.5 + 0.32 * len(names), dpi=120)
    axes = drawn.subplots(1, len(values), sharey=True, squeeze=False)[0]
    places = np.arange(len(names))
    for axis, (panel, row) in zip(axes, values.items(), strict=True):
        lengths = np.nan_to_num([row[name] for name in names])
        axis.barh(places, lengths, height=0.72, color=[of[name] for name in names])
        top = max(float(lengths.max()), 1e-9)
        for place, name in enumerate(names):
            text = "-" if np.isnan(row[name]) else _short(row[name])
            axis.text(
                lengths[place] + 0.02 * top, place, text, va="center", fontsize=8.5, color=INK
            )
        axis.set_xlim(0, 1.3 * top)
        axis.set_xticks([])
        axis.set_title(panel, fontsize=10, loc="left", color=INK)
        axis.spines["bottom"].set_visible(False)
    axes[0].set_yticks(places, [literal(name) for name in names])
    axes[0].invert_yaxis()
    _finish(drawn, axes, title)
    save(path, drawn)


def _finish(drawn: Figure, axes: Sequence[Axes], title: str) -> None:
    drawn.suptitle(title, fontsize=11, x=0.01, ha="left", color=INK)
    for axis in axes:
        plain(axis, length=0 if not len(axis.get_xticks()) else 3)


def _short(value: float) -> str:
    """Three digits, or two after the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
