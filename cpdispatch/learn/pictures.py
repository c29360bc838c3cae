"""Pictures of what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.analyze.look import COLOURS, DASHES, INK, MARKS, figure
from cpdispatch.arrays import FloatArray
from cpdispatch.heuristics.policies import FEATURES
from cpdispatch.learn.fit import Fit, term
from cpdispatch.learn.measure import OBJECTIVES
from cpdispatch.learn.mixed import Mixed
from cpdispatch.learn.regress import Regressed
from cpdispatch.learn.tune import Tuned
from cpdispatch.learn.weeks import TEST, TRAIN

if TYPE_CHECKING:
    import pandas as pd

_PARTS = 20
"""Parts of the scores, of as many samples each, of which the deviation is drawn."""
_CELLS = 80
_WORDS = {
    "wait_s_mean": "mean wait", "wait_s_max": "longest wait",
    "bounded_slowdown_mean": "mean bounded slowdown",
}  # fmt: skip
_DIVERGING = "PuOr_r"
"""Violet is less, orange more: colour-blind people tell them apart."""


def pairs(tuned: Tuned) -> Any:
    """Heat maps of all pairs at the picked threshold, relative to EASY-FCFS-FCFS; both halves."""
    measure = OBJECTIVES[tuned.tuning.objective] + "_relative"
    rows = tuned.pairs[tuned.pairs.threshold_s == tuned.summary["threshold_s"]]
    names = list(dict.fromkeys([*tuned.tuning.policies, *rows.primary]))
    drawn = figure(3 + 0.6 * len(names), 1.3 + 0.25 * len(names))
    for place, half in enumerate((TRAIN, TEST), start=1):
        part = rows[rows.half == half].pivot(index="primary", columns="backfill", values=measure)
        values = part.reindex(index=names, columns=names).to_numpy(dtype=np.float64)
        axes = drawn.add_subplot(1, 2, place)
        shown = axes.imshow(np.log2(values), cmap=_DIVERGING, vmin=-2, vmax=2)
        axes.grid(visible=False)
        for (i, j), value in np.ndenumerate(values):
            dark = abs(np.log2(value)) > 1.2
            text = "" if np.isnan(value) else f"{value:.2f}"  # a pair that was not tried
            axes.text(j, i, text, ha="center", va="center", color="white" if dark else INK)
        axes.set_xticks(range(len(names)), [name.upper() for name in names], rotation=90)
        axes.set_yticks(range(len(names)), [name.upper() for name in names])
        axes.set(xlabel="backfilling order", ylabel="primary order", title=f"{half} weeks")
    ticks = {-2: "1/4", -1: "1/2", 0: "1", 1: "2", 2: "4"}
    bar = drawn.colorbar(
        shown, ax=drawn.axes, label="times that of\nEASY-FCFS-FCFS", shrink=0.8, ticks=list(ticks)
    )
    bar.ax.set_yticklabels(ticks.values())
    what = _WORDS[OBJECTIVES[tuned.tuning.objective]]
    _title(drawn, f"{tuned.log}: {what}, threshold of the best candidate, {tuned.picked}")
    return drawn


def thresholds(tuned: Tuned) -> Any:
    """Mean and maximum wait of the picked orders by threshold: deciles over the weeks."""
    drawn = figure(6.5, 2.8)
    limits = sorted(tuned.deciles.threshold_s.unique(), key=lambda t: (t < 0, t))
    for place, measure in enumerate(("wait_s_mean", "wait_s_max"), start=1):
        axes = drawn.add_subplot(1, 2, place)
        rows = tuned.deciles[(tuned.deciles.half == TEST) & (tuned.deciles.measure == measure)]
        wide = rows.pivot(index="threshold_s", columns="percent", values="relative").loc[limits]
        for low in (10, 20, 30, 40):
            axes.fill_between(
                range(len(limits)), wide[low], wide[100 - low], color=COLOURS[0], alpha=0.2,
                linewidth=0,
            )  # fmt: skip
        axes.plot(range(len(limits)), wide[50], marker="o", color=COLOURS[0], label="median")
        axes.axhline(1, color=INK, linewidth=0.8)
        labels = ["none" if t < 0 else f"{t / 3600:.3g} h" for t in limits]
        axes.set_xticks(range(len(limits)), labels)
        axes.set(xlabel="wait after which a job comes first", title=_WORDS[measure])
        axes.set(ylabel="times that of EASY-FCFS-FCFS")
        axes.legend()
    name = f"{tuned.picked.primary.upper()}-{tuned.picked.backfill.upper()}"
    _title(drawn, f"{name} on test weeks of {tuned.log}: bands between deciles of weeks")
    return drawn


def lives(mixed: Mixed) -> Any:
    """The objective of each week, relative to EASY-FCFS, under the mixed policies and SAF."""
    drawn = figure(6.5, 3)
    axes = drawn.add_subplot()
    base = mixed.weeks["fcfs"].clip(lower=1e-9)
    for k, name in enumerate(("saf", "pure", "hindsight", "trained", "previous")):
        axes.plot(
            mixed.weeks["week"], mixed.weeks[name] / base, label=name, color=COLOURS[k],
            linestyle=DASHES[k], marker=MARKS[k], markersize=3,
        )  # fmt: skip
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set(xlabel="week of the test half", ylabel="times that of EASY-FCFS", yscale="log")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_title(f"{mixed.log}: {_WORDS[OBJECTIVES[mixed.mixing.objective]]} of each week")
    axes.legend(ncols=5)
    return drawn


def weights(mixed: Mixed) -> Any:
    """The best weights of each week."""
    drawn = figure(6.5, 2.2)
    axes = drawn.add_subplot()
    values = mixed.weights[list(FEATURES)].to_numpy().T
    shown = axes.imshow(values, cmap=_DIVERGING, vmin=-1, vmax=1, aspect="auto")
    axes.grid(visible=False)
    axes.set_yticks(range(len(FEATURES)), FEATURES)
    axes.set(xlabel="week (0: the last of the training half)")
    axes.set_title(f"{mixed.log}: best weights of each week, of length 1")
    drawn.colorbar(shown, ax=axes, label="weight")
    return drawn


def comparison(regressed: Regressed) -> Any:
    """Mean bounded slowdown of each policy relative to first come, first served, by workload."""
    rows = regressed.comparison
    drawn = figure(6.5, 3)
    for place, backfill in enumerate(rows["backfill"].unique(), start=1):
        axes = drawn.add_subplot(1, 2, place)
        part = rows[rows["backfill"] == backfill]
        names = [name for name in part.policy.unique() if name != "fcfs"]
        axes.boxplot(
            [part[part.policy == name].relative for name in names],
            boxprops={"color": COLOURS[0]}, medianprops={"color": COLOURS[1]},
            flierprops={"markersize": 3},
        )  # fmt: skip
        axes.set_xticks(range(1, len(names) + 1), names, rotation=90)
        axes.axhline(1, color=INK, linewidth=0.8)
        axes.set(
            ylabel="times the slowdown of FCFS",
            yscale="log",
            title=f"backfilling: {backfill}",
        )
    return drawn


def samples(regressed: Regressed) -> Any:
    """Scores over each of p, q and r, with the linear fit at the means of the others."""
    rows = regressed.samples
    drawn = figure(6.5, 2.3)
    for place, (name, label, unit) in enumerate(
        (("p", "runtime [h]", 3600), ("q", "processors", 1), ("r", "submission [h]", 3600)), start=1
    ):
        axes = drawn.add_subplot(1, 3, place)
        axes.scatter(
            rows[name] / unit, rows["score"], s=2, alpha=0.3, linewidths=0, color=COLOURS[0],
            rasterized=True,
        )  # fmt: skip
        if (linear := regressed.fits.get("lin")) is not None:
            at = {key: float(rows[key].mean()) for key in ("p", "q", "r")}
            line = np.linspace(float(rows[name].min()), float(rows[name].max()), 50)
            rest = sum(linear.coefficients[key] * at[key] for key in at if key != name)
            fitted = linear.coefficients["1"] + rest + linear.coefficients[name] * line
            axes.plot(line / unit, fitted, color=COLOURS[1])
        axes.set(xlabel=label, ylabel="score")
    return drawn


def deviations(regressed: Regressed) -> Any:
    """How far each fitted form is from the scores, by score: median, and 10th to 90th percentile.

    References
    ----------
    Rosa, Carastan-Santos, Goldman, "An experimental analysis of regression-obtained HPC scheduling
    heuristics", JSSPP 2023.
    """
    rows = regressed.samples
    score = rows["score"].to_numpy(dtype=np.float64)
    edges = np.unique(np.quantile(score, np.linspace(0, 1, _PARTS + 1)))
    part = np.clip(np.searchsorted(edges, score, side="right") - 1, 0, max(len(edges) - 2, 0))
    drawn = figure(2.1 * len(regressed.fits), 2.3)
    shared = None
    for place, (form, found) in enumerate(regressed.fits.items(), start=1):
        axes = drawn.add_subplot(1, len(regressed.fits), place, sharey=shared)
        shared = axes if shared is None else shared
        off = _fitted(found, rows) - score
        parts = [k for k in range(_PARTS) if (part == k).any()]
        at = [float(score[part == k].mean()) for k in parts]
        low, median, high = np.transpose(
            [np.quantile(off[part == k], (0.1, 0.5, 0.9)) for k in parts]
        )
        axes.fill_between(at, low, high, alpha=0.25, linewidth=0, color=COLOURS[0])
        axes.plot(at, median, marker=".", color=COLOURS[0])
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_title(f"{form}\nmean absolute error {found.absolute_error_mean:.2g}")
        axes.set(xlabel="score")
        axes.locator_params(axis="x", nbins=4)
    drawn.axes[0].set_ylabel("fitted score - score")
    return drawn


def maps(regressed: Regressed) -> Any:
    """The fitted score over processors and runtime, at the median arrival; low scores go first.

    References
    ----------
    As for `deviations`.
    """
    import pandas as pd

    rows = regressed.samples
    p = np.geomspace(max(float(rows["p"].min()), 1), max(float(rows["p"].max()), 2), _CELLS)
    q = np.geomspace(max(float(rows["q"].min()), 1), max(float(rows["q"].max()), 2), _CELLS)
    grid_p, grid_q = (each.ravel() for each in np.meshgrid(p, q))
    points = pd.DataFrame({"p": grid_p, "q": grid_q, "r": float(rows["r"].median())})
    drawn = figure(1.9 * len(regressed.fits), 2.3)
    for place, (form, found) in enumerate(regressed.fits.items(), start=1):
        axes = drawn.add_subplot(1, len(regressed.fits), place)
        values = _fitted(found, points).reshape(_CELLS, _CELLS)
        # Forms of high degree run away where no job is: that corner would take all of the colours.
        low, high = np.quantile(values, (0.05, 0.95))
        shown = axes.pcolormesh(
            p, q, values, cmap="viridis", shading="gouraud", vmin=low, vmax=high, rasterized=True
        )
        if low < high:
            axes.contour(p, q, values, np.linspace(low, high, 8), colors="white", linewidths=0.4)
        axes.set(xscale="log", yscale="log", xlabel="runtime [s]", title=form)
        bar = drawn.colorbar(shown, ax=axes, shrink=0.8, format="%.3g", extend="both")
        axes.grid(visible=False)
        bar.ax.tick_params(labelsize=6)
    drawn.axes[0].set_ylabel("processors")
    return drawn


def _title(drawn: Any, text: str) -> None:
    """Write a title above all panels, in several lines if it is wider than the figure."""
    drawn.suptitle(text, wrap=True)


def _fitted(found: Fit, rows: pd.DataFrame) -> FloatArray:
    """What a form says of the score of each row."""
    p, q, r = (rows[name].to_numpy(dtype=np.float64) for name in ("p", "q", "r"))
    values = sum(value * term(name, p, q, r) for name, value in found.coefficients.items())
    return np.asarray(values, dtype=np.float64)
