"""Pictures of what was learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cpdispatch.extra import needed
from cpdispatch.files import replacing
from cpdispatch.heuristics.policies import FEATURES
from cpdispatch.learn.measure import OBJECTIVES
from cpdispatch.learn.mixed import Mixed
from cpdispatch.learn.regress import Regressed
from cpdispatch.learn.tune import Tuned
from cpdispatch.learn.weeks import TEST, TRAIN


def _figure(width: float, height: float) -> Any:
    # A figure of its own: pyplot would keep every one and ask for a display.
    return needed("matplotlib.figure", "plot").Figure((width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write a picture as PNG, atomically."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def pairs(tuned: Tuned) -> Any:
    """Heat maps of all pairs at the picked threshold, relative to EASY-FCFS-FCFS; both halves."""
    names = list(tuned.tuning.policies)
    measure = OBJECTIVES[tuned.tuning.objective] + "_relative"
    rows = tuned.pairs[tuned.pairs.threshold_s == tuned.summary["threshold_s"]]
    figure = _figure(4 + 0.8 * len(names), 2 + 0.4 * len(names))
    for place, half in enumerate((TRAIN, TEST), start=1):
        part = rows[rows.half == half].pivot(index="primary", columns="backfill", values=measure)
        values = part.reindex(index=names, columns=names).to_numpy(dtype=np.float64)
        axes = figure.add_subplot(1, 2, place)
        shown = axes.imshow(np.log2(values), cmap="RdYlGn_r", vmin=-2, vmax=2)
        for (i, j), value in np.ndenumerate(values):
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7)
        axes.set_xticks(range(len(names)), [name.upper() for name in names], rotation=90)
        axes.set_yticks(range(len(names)), [name.upper() for name in names])
        axes.set(xlabel="backfilling order", ylabel="primary order", title=f"{half} weeks")
    figure.colorbar(shown, ax=figure.axes, label="log2 of the ratio to EASY-FCFS-FCFS", shrink=0.8)
    title = f"{tuned.log}: {measure} with the threshold of the best candidate, {tuned.picked}"
    figure.suptitle(title, fontsize=9)
    return figure


def thresholds(tuned: Tuned) -> Any:
    """Mean and maximum wait of the picked orders by threshold: deciles over the weeks."""
    figure = _figure(9, 4)
    limits = sorted(tuned.deciles.threshold_s.unique(), key=lambda t: (t < 0, t))
    for place, measure in enumerate(("wait_s_mean", "wait_s_max"), start=1):
        axes = figure.add_subplot(1, 2, place)
        rows = tuned.deciles[(tuned.deciles.half == TEST) & (tuned.deciles.measure == measure)]
        wide = rows.pivot(index="threshold_s", columns="percent", values="relative").loc[limits]
        for low in (10, 20, 30, 40):
            axes.fill_between(
                range(len(limits)), wide[low], wide[100 - low], color="C0", alpha=0.2, linewidth=0
            )
        axes.plot(range(len(limits)), wide[50], "o-", color="C0", label="median")
        axes.axhline(1, color="grey", linewidth=0.8)
        labels = ["none" if t < 0 else f"{t / 3600:.3g} h" for t in limits]
        axes.set_xticks(range(len(limits)), labels)
        axes.set(xlabel="threshold T", ylabel="relative to EASY-FCFS-FCFS", title=measure)
        axes.legend()
    name = f"{tuned.picked.primary.upper()}-{tuned.picked.backfill.upper()}"
    figure.suptitle(f"{name} on test weeks of {tuned.log}: deciles over weeks", fontsize=9)
    return figure


def lives(mixed: Mixed) -> Any:
    """The objective of each week, relative to EASY-FCFS, under the mixed policies and SAF."""
    figure = _figure(9, 4)
    axes = figure.add_subplot()
    base = mixed.weeks["fcfs"].clip(lower=1e-9)
    for name in ("saf", "pure", "hindsight", "trained", "previous"):
        axes.plot(mixed.weeks["week"], mixed.weeks[name] / base, ".-", label=name, linewidth=0.9)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(xlabel="week of the test half", ylabel="relative to EASY-FCFS", yscale="log")
    axes.set_title(f"{mixed.log}: weekly {OBJECTIVES[mixed.mixing.objective]}", fontsize=9)
    axes.legend(ncols=5, fontsize=8)
    return figure


def weights(mixed: Mixed) -> Any:
    """The best weights of each week."""
    figure = _figure(9, 3)
    axes = figure.add_subplot()
    values = mixed.weights[list(FEATURES)].to_numpy().T
    shown = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    axes.set_yticks(range(len(FEATURES)), FEATURES)
    axes.set(xlabel="week (0: the last of the training half)")
    axes.set_title(f"{mixed.log}: best weights of each week, |w| = 1", fontsize=9)
    figure.colorbar(shown, ax=axes)
    return figure


def comparison(regressed: Regressed) -> Any:
    """Mean bounded slowdown of each policy relative to first come, first served, by workload."""
    rows = regressed.comparison
    figure = _figure(10, 4)
    for place, backfill in enumerate(rows.backfill.unique(), start=1):
        axes = figure.add_subplot(1, 2, place)
        part = rows[rows.backfill == backfill]
        names = [name for name in part.policy.unique() if name != "fcfs"]
        axes.boxplot([part[part.policy == name].relative for name in names])
        axes.set_xticks(range(1, len(names) + 1), names, rotation=90, fontsize=8)
        axes.axhline(1, color="grey", linewidth=0.8)
        axes.set(ylabel="relative to FCFS", yscale="log", title=f"backfilling: {backfill}")
    return figure


def samples(regressed: Regressed) -> Any:
    """Scores over each of p, q and r, with the linear fit at the means of the others."""
    rows = regressed.samples
    figure = _figure(11, 3.5)
    for place, (name, label) in enumerate(
        (("p", "runtime, s"), ("q", "processors"), ("r", "arrival, s")), start=1
    ):
        axes = figure.add_subplot(1, 3, place)
        axes.scatter(rows[name], rows["score"], s=2, alpha=0.3, linewidths=0)
        if (linear := regressed.fits.get("lin")) is not None:
            at = {key: float(rows[key].mean()) for key in ("p", "q", "r")}
            line = np.linspace(float(rows[name].min()), float(rows[name].max()), 50)
            rest = sum(linear.coefficients[key] * at[key] for key in at if key != name)
            axes.plot(
                line, linear.coefficients["1"] + rest + linear.coefficients[name] * line, "C1"
            )
        axes.set(xlabel=label, ylabel="score")
    return figure
