"""The commands that learn policies from simulation: tune, learn mixed, learn regress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from cpdispatch.cli import (
    DONE,
    NOTHING_SAVED,
    Json,
    Log,
    _console,
    _print_json,
    _progress,
    _stoppable,
)
from cpdispatch.durations import seconds
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from cpdispatch.jobs import Workload
    from cpdispatch.learn.mixed import Mixed
    from cpdispatch.learn.place import Place
    from cpdispatch.learn.regress import Regressed
    from cpdispatch.learn.tune import Tuned
    from cpdispatch.system import System

LUBLIN = "lublin"
LUBLIN_PROCESSORS, LUBLIN_JOBS, LUBLIN_TEST_JOBS = 256, 10_000, 2_500
BEST = 10
Objective = Literal["wait", "slowdown"]

app = App(name="learn", help="Learn a policy: mixed weights, or a regression.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Where it is done, and where the results go.

    Parameters
    ----------
    cores
        Processes on this machine; 0: as many as it has cores.
    cluster
        Address of a Dask scheduler, or the file that it wrote.
    out
        Folder for tables, pictures and what is learned; the same command goes on there with what
        was interrupted.
    """

    cores: int = 0
    cluster: str | None = None
    out: Path | None = None

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Where tasks are done."""
        from cpdispatch.campaign import Workers
        from cpdispatch.extra import needed
        from cpdispatch.files import sweep
        from cpdispatch.learn.place import Place

        if self.out is not None:
            needed("matplotlib", "plot")
            sweep(self.out, "*.csv", "*.json", "*.png", "*.toml")
        workers = Workers(self.cores, self.cluster)
        folder = None if self.out is None else self.out / "tasks"
        with _stoppable(self._kept) as stop, _progress() as show:
            yield Place(workers, folder, show, stop)

    @property
    def _kept(self) -> str:
        """What is to be said of the results when the command is interrupted."""
        if self.out is None:
            return NOTHING_SAVED
        return f"what was done is saved in {self.out}: the same command goes on from there"

    def told(self, found: Tuned | Mixed | Regressed, tables: list[Table], json: bool) -> int:
        """Save what was found, and print it."""
        if self.out is not None:
            found.save(self.out)
        if json:
            _print_json(found.summary | ({} if self.out is None else {"out": str(self.out)}))
            return DONE
        console = _console()
        for table in tables:
            console.print(table)
        if self.out is not None:
            console.print(f"Tables, pictures and policy file: [bold]{self.out}[/]", soft_wrap=True)
        return DONE


WHOLE, HERE = Log(), Work()


def tune(
    trace: str,
    *,
    weeks: int = 50,
    policies: str = "7",
    thresholds: str = "none,5h,10h,20h,200000s",
    objective: Objective = "wait",
    max_wait: float | None = None,
    seed: int = 0,
    log: Log = WHOLE,
    work: Work = HERE,
    json: Json = False,
) -> int:
    """Find the best two orders and threshold of EASY on one half of a log.

    How they do is told on the other half, relative to EASY-FCFS-FCFS.

    Parameters
    ----------
    trace
        A log of two weeks or more, or lublin.
    weeks
        Weeks to make up of each half: of each user a random week of that user's.
    policies
        Orders to pair: 7 (49 pairs), 12 (144 pairs), or names as fcfs,spf,saf.
    thresholds
        Waits after which a job comes first, as none,20h,200000s.
    objective
        What is to be small: the mean wait or the mean bounded slowdown.
    max_wait
        The maximum wait that is allowed on training weeks, relative to that of EASY-FCFS-FCFS.
    seed
        The same seed makes the same weeks.
    json
        Print one JSON object.
    """
    from cpdispatch.learn.tune import SEVEN, TWELVE, Tuning
    from cpdispatch.learn.tune import tune as find_best

    orders = {"7": SEVEN, "12": TWELVE}.get(policies) or tuple(_items(policies.lower()))
    limits = tuple(_limit(text) for text in _items(thresholds))
    tuning = Tuning(orders, limits, weeks, objective, max_wait, seed)
    workload, machine = _read(trace, log, seed)
    with work.place() as place:
        found = find_best(workload, machine, tuning, place)
    return work.told(found, [_pairs_table(found)], json)


@app.command
def mixed(
    trace: str,
    *,
    evaluations: int = 300,
    weeks: int | None = None,
    backfill: str | None = None,
    threshold: str = "none",
    objective: Objective = "slowdown",
    seed: int = 0,
    log: Log = WHOLE,
    work: Work = HERE,
    json: Json = False,
) -> int:
    """Weigh size, length, wait, ratio, expansion and area of jobs, by an evolution strategy.

    Parameters
    ----------
    trace
        A log of two weeks or more, or lublin.
    evaluations
        Simulations of each week that the search may take.
    weeks
        Only so many weeks before and after the log's midpoint.
    backfill
        Order of backfilling; else the mixed one.
    threshold
        Wait after which a job comes first, as 20h.
    objective
        What is to be small: the mean wait or the mean bounded slowdown.
    seed
        Seed of the search.
    json
        Print one JSON object.
    """
    from cpdispatch.learn.mixed import Mixing, learn

    mixing = Mixing(evaluations, weeks, backfill, _limit(threshold), objective, seed)
    workload, machine = _read(trace, log, seed)
    with work.place() as place:
        found = learn(workload, machine, mixing, place)
    return work.told(found, [_mixed_table(found)], json)


@app.command
def regress(
    trace: str = LUBLIN,
    *,
    pairs: int = 400,
    orders: int = 20_000,
    running: int = 16,
    queued: int = 32,
    published_shuffle: Annotated[bool, Parameter(negative="")] = False,
    tests: int = 10,
    seed: int = 0,
    log: Log = WHOLE,
    work: Work = HERE,
    json: Json = False,
) -> int:
    """Fit polynomials to the scores of jobs in random orders of a queue, and compare them.

    Parameters
    ----------
    trace
        A log of two weeks or more, or lublin.
    pairs
        Pairs of running and queued jobs.
    orders
        Random orders of each queue; 256000 in the paper.
    running
        Running jobs of a pair.
    queued
        Queued jobs of a pair.
    published_shuffle
        Draw orders as the code of the paper does, which is not uniform.
    tests
        Workloads to compare on: weeks of the log's second half, or of the model.
    seed
        Seed of pairs, orders and the model.
    json
        Print one JSON object.
    """
    from cpdispatch.learn.regress import Regression
    from cpdispatch.learn.regress import regress as fit_scores
    from cpdispatch.learn.weeks import TEST, TRAIN, at_least, consecutive, halves

    regression = Regression(pairs, orders, running, queued, published_shuffle, seed)
    at_least(tests, 1, "--tests")
    workload, machine = _read(trace, log, seed)
    if trace == LUBLIN:
        compared = [_lublin(machine, LUBLIN_TEST_JOBS, seed + 1 + k) for k in range(tests)]
    else:
        parts = halves(workload)
        workload, compared = parts[TRAIN], consecutive(parts[TEST])[:tests]
    with work.place() as place:
        found = fit_scores(workload, machine, compared, regression, place)
    return work.told(found, [_fits_table(found), _comparison_table(found)], json)


# --------------------------------------------------------------------------------- helpers


def _items(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _limit(text: str) -> int:
    """A threshold in whole seconds."""
    from cpdispatch.heuristics.policies import NO_THRESHOLD

    if text == "none":
        return NO_THRESHOLD
    limit_s = seconds(text)
    if limit_s != int(limit_s):
        raise UsageError(f"threshold {text}: whole seconds are needed")
    return int(limit_s)


def _read(trace: str, log: Log, seed: int) -> tuple[Workload, System]:
    """A log, or a workload of the Lublin-Feitelson model, and its machine."""
    from cpdispatch.system import System, find

    if trace != LUBLIN:
        return log.read(trace, seed)
    if replace(log, system=None, jobs=None) != WHOLE:
        raise UsageError(f"--filter, --units, --from and --to are for logs, not for {LUBLIN}")
    machine = System.pool(LUBLIN_PROCESSORS) if log.system is None else find(log.system)
    return _lublin(machine, log.jobs or LUBLIN_JOBS, seed), machine


def _lublin(machine: System, jobs: int, seed: int) -> Workload:
    from cpdispatch.workloads.fit import fit
    from cpdispatch.workloads.lublin import generate

    return fit(generate(jobs, seed, processors=int(machine.total[0])), machine)


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


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
    table = _table(
        f"Best of {len(found.tuning.choices)} on training weeks; measures relative to "
        "EASY-FCFS-FCFS, training / test weeks",
        ("orders", "threshold"),
        ("mean wait", "max wait", "bounded slowdown"),
    )
    for row in both.to_dict("records"):
        table.add_row(
            f"{row['primary'].upper()}-{row['backfill'].upper()}",
            _hours(row["threshold_s"]),
            *(f"{row[name]:.3f} / {row[name + '_test']:.3f}" for name in shown),
        )
    return table


def _mixed_table(found: Mixed) -> Table:
    """Sums over the test weeks."""
    summary = found.summary
    table = _table(
        f"Sum of the weekly {summary['objective']} over {summary['weeks']} test weeks",
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
    table = _table(
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
            f"{fit.inflation[worst]:,.1f} of {worst}",
        )
    linear = found.fits["lin"].coefficients
    table.caption = "lin: " + " ".join(
        f"{value:+.3g}" + ("" if term == "1" else f" {term}") for term, value in linear.items()
    )
    table.caption_justify = "left"
    return table


def _comparison_table(found: Regressed) -> Table:
    """Mean bounded slowdowns over the test workloads."""
    wide = found.means.pivot(index="policy", columns="backfill")
    kinds = list(found.means.backfill.unique())
    table = _table(
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
