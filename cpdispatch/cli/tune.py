"""The command tune: the best pair of orders and threshold of EASY for a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpdispatch.cli.lublin import log_or_lublin
from cpdispatch.cli.options import (
    Json,
    LogOptions,
    Objective,
    Seed,
    Whole,
    WorkOptions,
    check_once,
    items_of,
    threshold_s_of,
)
from cpdispatch.cli.output import STARTING, status, table_of

if TYPE_CHECKING:
    from rich.table import Table

    from cpdispatch.learn.tune import Tuned

BEST = 10


def tune(
    trace: str,
    *,
    weeks: Whole = 50,
    policies: str = "7",
    thresholds: str = "none,5h,10h,20h,200000s",
    objective: Objective = "wait",
    max_wait: float | None = None,
    seed: Seed = 0,
    log: LogOptions = LogOptions(),
    work: WorkOptions = WorkOptions(),
    json: Json = False,
) -> int:
    """Find the best two orders and the best threshold of EASY on the first half of a log.

    The command prints what they bring on the second half, relative to EASY-FCFS-FCFS.

    Parameters
    ----------
    trace
        A log of two weeks or more, or lublin: 10,000 jobs of the Lublin-Feitelson model.
    weeks
        Weeks to make from each half. In a made week, each user has one of the user's own weeks.
    policies
        Orders to pair: 7 (49 pairs), 12 (144 pairs), or names such as fcfs,spf,saf.
    thresholds
        Waits after which a job comes first, for example none,20h,200000s.
    objective
        What to minimise: the mean wait or the mean bounded slowdown.
    max_wait
        Longest wait that is allowed on training weeks, relative to that of EASY-FCFS-FCFS.
    seed
        The same seed makes the same weeks.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch.learn.tune import SEVEN, TWELVE, Tuning
        from cpdispatch.learn.tune import tune as find_best
        from cpdispatch.learn.weeks import notes_of

    orders = {"7": SEVEN, "12": TWELVE}.get(policies) or tuple(items_of(policies.lower()))
    limits = tuple(threshold_s_of(text) for text in items_of(thresholds))
    check_once("--policies", orders)
    check_once("--thresholds", items_of(thresholds), limits)
    tuning = Tuning(orders, limits, weeks, objective, max_wait, seed)
    workload, machine = log_or_lublin(trace, log, seed)
    with work.place() as place:
        found = find_best(workload, machine, tuning, place)
    return work.save_and_print(
        found, [_pairs_table(found)], json, found.verdict, notes_of(found.left_out)
    )


def _hours(threshold_s: int) -> str:
    return "none" if threshold_s < 0 else f"{threshold_s / 3600:.3g} h"


def _pairs_table(found: Tuned) -> Table:
    """The best pairs of the training weeks, relative to EASY-FCFS-FCFS, on both halves."""
    from cpdispatch.learn.measure import OBJECTIVES

    keys = ["primary", "backfill", "threshold_s"]
    sides = (found.pairs[found.pairs.half == half] for half in ("train", "test"))
    both = next(sides).merge(next(sides), on=keys, suffixes=("", "_test"))
    if found.tuning.max_wait is not None:
        both = both[both.wait_s_max_relative <= found.tuning.max_wait]
    both = both.sort_values(OBJECTIVES[found.tuning.objective], kind="stable").head(BEST)
    shown = ("wait_s_mean_relative", "wait_s_max_relative", "bounded_slowdown_mean_relative")
    table = table_of(
        f"Best of {len(found.tuning.candidates)} on training weeks; measures relative to "
        "EASY-FCFS-FCFS, training / test weeks",
        ("orders", "threshold"),
        ("mean wait", "longest wait", "bounded slowdown"),
    )
    for row in both.to_dict("records"):
        table.add_row(
            f"{row['primary'].upper()}-{row['backfill'].upper()}",
            _hours(row["threshold_s"]),
            *(f"{row[name]:.3f} / {row[name + '_test']:.3f}" for name in shown),
        )
    return table
