"""The commands learn mixed and learn regress: policies learned from simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cyclopts import App

from cpdispatch.cli.lublin import LUBLIN, log_or_lublin, lublin_jobs
from cpdispatch.cli.options import (
    Flag,
    Json,
    LogOptions,
    Objective,
    Seed,
    Whole,
    WorkOptions,
    threshold_s_of,
)
from cpdispatch.cli.output import STARTING, status, table_of

if TYPE_CHECKING:
    from rich.table import Table

    from cpdispatch.learn.mixed import Mixed
    from cpdispatch.learn.regress import Regressed

LUBLIN_TEST_JOBS = 2_500
TESTS_MAX = 1_000
MUCH_INFLATED = 1e6
"""From here on, only the magnitude of a variance inflation factor says something."""

app = App(name="learn", help="Learn an order of the queue: mixed weights, or a regression.")


@app.command
def mixed(
    trace: str,
    *,
    evaluations: Whole = 300,
    weeks: Whole | None = None,
    backfill: str | None = None,
    threshold: str = "none",
    objective: Objective = "slowdown",
    seed: Seed = 0,
    log: LogOptions = LogOptions(),
    work: WorkOptions = WorkOptions(),
    json: Json = False,
) -> int:
    """Learn the weights of six features of a job, by an evolution strategy (CMA-ES).

    Parameters
    ----------
    trace
        A log of two weeks or more, or lublin: 10,000 jobs of the Lublin-Feitelson model.
    evaluations
        Most simulations of each week.
    weeks
        Use only N weeks before and N weeks after the log's midpoint.
    backfill
        Order of backfilling. Default: the mixed order.
    threshold
        Wait after which a job comes first, for example 20h.
    objective
        What to minimise: the mean wait or the mean bounded slowdown.
    seed
        Seed of the search.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch.learn.mixed import Mixing, learn
        from cpdispatch.learn.weeks import notes_of

    mixing = Mixing(evaluations, weeks, backfill, threshold_s_of(threshold), objective, seed)
    workload, machine = log_or_lublin(trace, log, seed)
    with work.place() as place:
        found = learn(workload, machine, mixing, place)
    return work.save_and_print(found, [_mixed_table(found)], json, notes=notes_of(found.left_out))


@app.command
def regress(
    trace: str = LUBLIN,
    *,
    pairs: Whole = 400,
    orders: Whole = 20_000,
    running: Whole = 16,
    queued: Whole = 32,
    published_shuffle: Flag = False,
    tests: Whole = 10,
    seed: Seed = 0,
    log: LogOptions = LogOptions(),
    work: WorkOptions = WorkOptions(),
    json: Json = False,
) -> int:
    """Fit polynomials to the scores of jobs in random orders of a queue, and compare them.

    Parameters
    ----------
    trace
        A log of two weeks or more, or lublin: 10,000 jobs of the Lublin-Feitelson model.
    pairs
        Number of pairs of a set of running jobs and a set of queued jobs.
    orders
        Random orders of each queue. The paper has 256000.
    running
        Number of running jobs in a pair.
    queued
        Number of queued jobs in a pair.
    published_shuffle
        Draw orders as the code of the paper does, which is not uniform.
    tests
        Number of workloads for the comparison: weeks of the log's second half, or of the model.
    seed
        Seed of pairs, orders and the model.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch.learn.regress import Regression
        from cpdispatch.learn.regress import regress as fit_scores
        from cpdispatch.learn.weeks import TEST, TRAIN, consecutive, halves, with_jobs
        from cpdispatch.parameters import whole

    regression = Regression(pairs, orders, running, queued, published_shuffle, seed)
    whole("--tests", tests, 1, TESTS_MAX)
    workload, machine = log_or_lublin(trace, log, seed)
    if trace == LUBLIN:
        compared = [lublin_jobs(machine, LUBLIN_TEST_JOBS, seed + 1 + k) for k in range(tests)]
    else:
        parts = halves(workload)
        workload, compared = parts[TRAIN], with_jobs(consecutive(parts[TEST]), machine)[:tests]
    with work.place() as place:
        found = fit_scores(workload, machine, compared, regression, place)
    return work.save_and_print(found, [_fits_table(found), _comparison_table(found)], json)


def _mixed_table(found: Mixed) -> Table:
    """Sums over the test weeks."""
    summary = found.summary
    what = {"wait": "mean waits", "slowdown": "mean bounded slowdowns"}[summary["objective"]]
    table = table_of(
        f"Sum of the weekly {what} over {summary['weeks']} test weeks",
        ("policy",),
        ("sum", "relative to EASY-FCFS"),
    )
    names = {
        "pure": "best pure order of each week",
        "hindsight": "mixed, best of the same week",
        "trained": "mixed, best of the training half",
        "previous": "mixed, best of the week before",
    }
    for name, value in sorted(summary["sum"].items(), key=lambda item: item[1]):
        share = summary["relative_to_fcfs"][name]
        shown = "-" if share is None else f"{share:.3f}"
        table.add_row(names.get(name, name.upper()), f"{value:,.1f}", shown)
    return table


def _fits_table(found: Regressed) -> Table:
    """How well each form fits, and how collinear its terms are."""
    table = table_of(
        f"{len(found.samples):,} scores, {found.orders_per_s:,.0f} orders a second and core",
        ("form",),
        ("terms", "mean absolute error", "largest variance inflation"),
    )
    for form, fit in found.fits.items():
        worst = max(fit.inflation, key=fit.inflation.__getitem__)
        table.add_row(
            form if fit.determined else f"{form} (not determined)",
            str(len(fit.coefficients)),
            f"{fit.absolute_error_mean:.2e}",
            f"{_inflation(fit.inflation[worst])} of {worst}",
        )
    linear = found.fits["lin"].coefficients
    table.caption = "lin: " + " ".join(
        f"{value:+.3g}" + ("" if term == "1" else f" {term}") for term, value in linear.items()
    )
    table.caption_justify = "left"
    return table


def _inflation(factor: float) -> str:
    """A variance inflation factor; one without bound belongs to terms that say the same."""
    return f"{factor:,.1f}" if factor < MUCH_INFLATED else f"{factor:.0e}"


def _comparison_table(found: Regressed) -> Table:
    """Mean bounded slowdowns over the test workloads."""
    wide = found.means.pivot(index="policy", columns="backfill")
    kinds = list(found.means["backfill"].unique())
    table = table_of(
        "Mean bounded slowdown on test workloads (mean of the ratios to FCFS), by backfilling",
        ("policy",),
        tuple(kinds),
    )
    for policy in found.means.policy.unique():
        row: Any = wide.loc[policy]
        table.add_row(
            policy,
            *(
                f"{row['bounded_slowdown_mean', kind]:,.1f} ({row['relative', kind]:.3f})"
                for kind in kinds
            ),
        )
    return table
