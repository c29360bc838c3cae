"""Pictures of power profiles: some of each kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.analyze.look import COLOURS, GREY, INK, figure, literal, plain, save
from cpdispatch.analyze.plots import check
from cpdispatch.analyze.power import KINDS, Shape
from cpdispatch.arrays import FloatArray
from cpdispatch.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OF_KIND = dict(zip(KINDS, (*COLOURS[:4], GREY), strict=True))
EACH = 3
"""So many profiles of each kind are drawn."""
NAME_MAX = 28
"""Characters of a job's name in a title; a longer name is cut."""


def kinds(
    path: str | os.PathLike[str], profiles: Mapping[str, FloatArray], shapes: Mapping[str, Shape]
) -> None:
    """Draw a row for each kind that there is: the profiles of a few jobs, evenly chosen.

    Parameters
    ----------
    path : path
        ``.png``, ``.svg`` or ``.pdf``; written atomically.
    profiles : mapping of str to float array, shape (minutes,)
        Watts, by job.
    shapes : mapping of str to Shape
        What each is, by job.

    Raises
    ------
    UsageError
        When matplotlib is missing, or the name is of no picture.
    """
    check(path)
    of_kind = {kind: [job for job, s in shapes.items() if s.kind == kind] for kind in KINDS}
    found = {kind: jobs for kind, jobs in of_kind.items() if jobs}
    drawn = figure(8.4, 0.6 + 1.5 * max(len(found), 1), dpi=120)
    rows = drawn.subplots(max(len(found), 1), EACH, squeeze=False)
    top_w = max((float(np.max(p)) for p in profiles.values() if len(p)), default=1.0)
    for row, (kind, jobs) in zip(rows, found.items(), strict=False):
        chosen = np.unique(np.linspace(0, len(jobs) - 1, EACH).astype(int))
        for axis in row[len(chosen) :]:
            axis.set_axis_off()
        for axis, k in zip(row, chosen, strict=False):
            _profile(axis, jobs[k], profiles[jobs[k]], shapes[jobs[k]])
            axis.set_ylim(0, 1.05 * top_w)
        row[0].set_ylabel(f"{kind}\n{counted(len(jobs), 'job')}\n[W]", fontsize=9, color=INK)
    for axis in rows[-1]:
        axis.set_xlabel("minutes", fontsize=8, color=INK)
    save(path, drawn)


def _profile(axis: Axes, job: str, means: FloatArray, shape: Shape) -> None:
    axis.plot(np.arange(len(means)), means, color=OF_KIND[shape.kind], linewidth=1)
    repeats = f"\nevery {shape.period_min:.3g} min" if shape.kind == "periodic" else ""
    shown = job if len(job) <= NAME_MAX else f"{job[: NAME_MAX - 1]}…"
    axis.set_title(f"{literal(shown)}{repeats}", fontsize=8, color=INK, loc="left")
    plain(axis, size=8)
