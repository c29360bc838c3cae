"""Files of results: tables, summaries, policies and pictures, each written atomically."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cpdispatch.analyze.look import draw
from cpdispatch.files import write_bytes
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.learn import pictures, policy_file
from cpdispatch.learn.measure import OBJECTIVES
from cpdispatch.learn.mixed import Mixed
from cpdispatch.learn.regress import Regressed
from cpdispatch.learn.tune import Tuned
from cpdispatch.learn.weeks import TEST

if TYPE_CHECKING:
    import pandas as pd


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV, floats with all their digits."""
    write_bytes(path, table.to_csv(index=False).encode())


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object."""
    write_bytes(path, msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")


@singledispatch
def save(found: Tuned | Mixed | Regressed, folder: Path) -> None:
    """Write what was found into a folder: tables, a summary, policy files and pictures."""
    raise TypeError(f"there are no files for a {type(found).__name__}")


@save.register
def _tuned(found: Tuned, folder: Path) -> None:
    tuning, test = found.tuning, found.summary[TEST]
    measure = OBJECTIVES[tuning.objective]
    remarks = [
        f"Tuned on {found.log}: {len(tuning.candidates)} candidates, {tuning.weeks} weeks made up",
        f"of its first half, seed {tuning.seed}, by {measure}. On as many of its second half,",
        f"relative to EASY-FCFS-FCFS: {measure} {test[measure + '_relative']:.3f}, "
        f"wait_s_max {test['wait_s_max_relative']:.3f}.",
    ]
    write_table(folder / "pairs.csv", found.pairs)
    write_table(folder / "deciles.csv", found.deciles)
    write_json(folder / "tune.json", found.summary)
    policy_file.write(folder / "policy.toml", found.picked.dispatcher, remarks)
    draw(folder / "pairs.svg", lambda: pictures.pairs(found))
    draw(folder / "thresholds.svg", lambda: pictures.thresholds(found))


@save.register
def _mixed(found: Mixed, folder: Path) -> None:
    relative = found.summary["relative_to_fcfs"]
    trained, saf = (
        "-" if relative[name] is None else f"{relative[name]:.3f}" for name in ("trained", "saf")
    )
    remarks = [
        f"Mixed policy of the first half of {found.log}: CMA-ES, {found.mixing.evaluations} "
        f"evaluations, seed {found.mixing.seed}.",
        f"Sum of the weekly {OBJECTIVES[found.mixing.objective]} of the second half, "
        f"relative to EASY-FCFS: {trained}; SAF {saf}.",
    ]
    write_table(folder / "weeks.csv", found.weeks)
    write_table(folder / "weights.csv", found.weights)
    write_json(folder / "mixed.json", found.summary)
    policy_file.write(folder / "policy.toml", found.policy, remarks)
    draw(folder / "weeks.svg", lambda: pictures.lives(found))
    draw(folder / "weights.svg", lambda: pictures.weights(found))


@save.register
def _regressed(found: Regressed, folder: Path) -> None:
    write_table(folder / "samples.csv", found.samples)
    write_table(folder / "coefficients.csv", found.coefficients)
    write_table(folder / "comparison.csv", found.comparison)
    write_json(folder / "regress.json", found.summary)
    for form, fit in found.fits.items():
        remarks = [
            f"{form} fitted to {len(found.samples)} scores of {found.log}, "
            f"{found.regression.orders} orders a pair, seed {found.regression.seed};",
            f"mean absolute error {fit.absolute_error_mean:.3g}.",
        ]
        policy_file.write(folder / f"{form}.toml", Backfill(fit.order, fit.order), remarks)
    draw(folder / "comparison.svg", lambda: pictures.comparison(found))
    draw(folder / "scores.svg", lambda: pictures.samples(found))
    draw(folder / "deviations.svg", lambda: pictures.deviations(found))
    draw(folder / "maps.svg", lambda: pictures.maps(found))
