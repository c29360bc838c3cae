"""The command that compares predictors: how far each is out, and the schedule it leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cpdispatch.cli.options import (
    Correction,
    Flag,
    Json,
    LogOptions,
    Seed,
    Trigger,
    WorkOptions,
)
from cpdispatch.cli.output import (
    DONE,
    STARTING,
    bold,
    console_of_stdout,
    print_json,
    print_sentence,
    status,
    table_of,
)
from cpdispatch.durations import seconds
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from cpdispatch.jobs import Workload
    from cpdispatch.system import System

Row = dict[str, Any]

SCHEDULE = ("bounded_slowdown_mean", "wait_s_mean", "wait_s_max", "utilisation")
"""Figures of a schedule that are shown."""
OWN_ROWS = 12
"""Rows that are shown of a predictor's own table; --json and --out have them all."""
CLASSES = {
    "all": "all jobs",
    "short": "short, < 1 h",
    "medium": "medium, 1-5 h",
    "long": "long, > 5 h",
}
"""Classes of jobs by runtime."""


def predict(
    trace: str | None = None,
    *,
    predictor: Annotated[
        tuple[str, ...], Parameter(("--predictor", "-p"), negative="", show_default=False)
    ] = (),
    dispatcher: Annotated[str, Parameter(("--dispatcher", "-d"))] = "easy-fcfs-spf",
    trigger: Trigger = "instant",
    correction: Correction = "minimal",
    kill_at_limit: Flag = False,
    limit: str = "1s",
    seed: Seed = 0,
    log: LogOptions = LogOptions(),
    work: WorkOptions = WorkOptions(),
    json: Json = False,
) -> int:
    """Compare predictors of durations: their errors, and the schedules that they lead to.

    The log is replayed once with each predictor. Without TRACE, 1,000 jobs are generated for the
    64-node system with CPUs, GPUs and MICs.

    Parameters
    ----------
    trace
        A log: .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    predictor
        A predictor; may be given several times. Default: all predictors that are installed.
    dispatcher
        The dispatcher, as in simulate.
    trigger
        Call the dispatcher once an instant, or (event) after each completion, and after each
        submission of a job that would fit alone.
    correction
        Rule for the new expected end of a job that outlives its prediction.
    kill_at_limit
        End jobs at their requested time.
    limit
        Time limit of each decision, for example 500ms or 1s.
    seed
        Seed of dispatchers and predictors that draw numbers, and of the generated sample.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch import dispatch
        from cpdispatch.learn.place import about

    settings = dispatch.Settings(seconds(limit, "--limit"), seed)
    dispatch.make(dispatcher, settings, warm=dispatch.not_at_all)
    workload, machine = log.read(trace, seed)
    rules = {"trigger": trigger, "correction": correction, "kill_at_limit": kill_at_limit}
    with status("checking names"):
        names, left_out = _usable(predictor, workload, correction)
    common = (workload, machine, dispatcher, settings, rules)
    conditions = {"dispatcher": dispatcher, "limit_s": settings.limit_s, "seed": seed, **rules}
    with work.place() as place:
        done, failure = place.those_done(
            "predictors", replayed, common, {name: (name,) for name in names},
            about(
                workload, machine,
                {**conditions, **dispatch.said_in_file(dispatcher), "predictors": names},
            ),
        )  # fmt: skip
    if done:
        rows = list(done.values())
        limits = _of_log(workload, kill_at_limit)
        compared = Compared(workload.name, machine.name, conditions, limits, left_out, rows)
        if work.out is not None:
            compared.save(work.out)
        compared.print(work.out, json, {} if failure is None else {"failed": failure.problems})
    if failure is not None:
        raise failure
    return DONE


def _usable(
    wanted: tuple[str, ...], workload: Workload, correction: str
) -> tuple[list[str], dict[str, str]]:
    """The predictors to compare, and why others of the registry are left out."""
    from cpdispatch.experiment.runs import check_told_apart
    from cpdispatch.predict import PREDICTORS, make, refreshing

    if len(set(wanted)) < len(wanted):
        raise UsageError("the same predictor is named twice")
    left_out, called = {}, {}
    for name in wanted or PREDICTORS:
        try:
            made = make(name, workload)
            if correction == "refresh":
                refreshing(made)
            called[name] = made.name
        except UsageError as error:
            if wanted:
                raise
            left_out[name] = str(error)
    check_told_apart("predictors", called)
    if not called:
        raise UsageError(f"there is no predictor to compare: {next(iter(left_out.values()))}")
    return [*called], left_out


def _of_log(workload: Workload, kill_at_limit: bool) -> dict[str, int]:
    """What keeps predictors from being right, and of how many jobs."""
    from cpdispatch.jobs import UNKNOWN, Column

    table = workload.table
    found = {
        "jobs without a user, whose past is unknown": table.column(Column.USER) == UNKNOWN,
        "jobs that ran longer than they requested, which is the most that is predicted": (
            (workload.runtime_s > table.requested_s) & (not kill_at_limit)
        ),
    }
    return {what: int(which.sum()) for what, which in found.items() if which.any()}


def replayed(common: tuple[Workload, System, str, Any, dict[str, Any]], predictor: str) -> Row:
    """The results of one predictor: the row of its run, its accuracy, tables of its own."""
    from cpdispatch.analyze import compare
    from cpdispatch.analyze.predictions import Predictions, accuracy_by_class, share_up_to
    from cpdispatch.campaign import asked_to_stop, report
    from cpdispatch.simulator.replay import Watch, simulate

    workload, system, dispatcher, settings, rules = common
    run = simulate(
        workload, system, dispatcher, predictor=predictor, settings=settings,
        watch=Watch(report, stop=asked_to_stop), **rules,
    )  # fmt: skip
    predictions = Predictions.of(run.jobs)
    asked = int((run.jobs["expected_s"] >= 0).sum())
    spent_s = run.about.get("predictor_seconds")
    return {
        **compare.row(run.about, run.metrics),
        "jobs_killed": predictions.killed,
        "prediction_us": None if spent_s is None else spent_s / max(asked, 1) * 1e6,
        "accuracy": accuracy_by_class(predictions),
        "classes": {"all": _whole(run.metrics), **run.by_class()},
        "share_up_to": share_up_to(predictions).tolist(),
        "report": {
            title: table for title, table in run.about.get("predictor_report", {}).items() if table
        },
    }


def _whole(metrics: Mapping[str, float]) -> dict[str, float]:
    """The figures of all jobs in the form of those of a class."""
    return {key: metrics.get(key, nan) for key in ("jobs", "wait_s_mean", "bounded_slowdown_mean")}


@dataclass(frozen=True, slots=True)
class Compared:
    """The predictors side by side.

    Attributes
    ----------
    log, system : str
    conditions : mapping
        How the log was replayed.
    limits : dict of str to int
        What keeps predictors from being right, and of how many jobs.
    left_out : dict of str to str
        Predictors that could not be used, and why.
    rows : list of dict
        One a predictor, see `replayed`.
    """

    log: str
    system: str
    conditions: Mapping[str, Any]
    limits: dict[str, int]
    left_out: dict[str, str]
    rows: list[Row]

    @property
    def summary(self) -> dict[str, Any]:
        """All but the distributions, as one JSON object."""
        return {
            "log": self.log, "system": self.system, **self.conditions,
            "limits": self.limits, "left_out": self.left_out,
            "predictors": [
                {key: value for key, value in row.items() if key != "share_up_to"}
                for row in self.rows
            ],
        }  # fmt: skip

    def save(self, folder: Path) -> None:
        """Write the tables and pictures, each file atomically."""
        import pandas as pd

        from cpdispatch.analyze import prediction_plots as plots
        from cpdispatch.analyze.predictions import RATIOS
        from cpdispatch.experiment.runs import safe
        from cpdispatch.learn.results import write_json, write_table

        accuracy = [
            {"predictor": row["predictor"], "class": name, **figures}
            for row in self.rows
            for name, figures in row["accuracy"].items()
        ]
        schedule = [{key: row.get(key) for key in ("predictor", *SCHEDULE)} for row in self.rows]
        shares = {row["predictor"]: row["share_up_to"] for row in self.rows}
        write_json(folder / "predictions.json", self.summary)
        write_table(folder / "accuracy.csv", pd.DataFrame(accuracy))
        write_table(folder / "schedule.csv", pd.DataFrame(schedule))
        write_table(folder / "ratios.csv", pd.DataFrame({"ratio": RATIOS, **shares}))
        for row in self.rows:
            for title, table in row["report"].items():
                name = safe(f"{row['predictor']}-{title}")
                write_table(folder / f"{name}.csv", pd.DataFrame(table))
        title = f"{self.log}, {self.conditions['dispatcher']}: "
        plots.ratios(folder / "ratios.png", title + "runtime / prediction", shares)
        errors = self._by_class("accuracy", "absolute_error_s_mean", 1 / 60)
        plots.bars(folder / "errors.png", title + "mean absolute error [min]", errors)
        slowdowns = self._by_class("classes", "bounded_slowdown_mean")
        plots.bars(folder / "slowdowns.png", title + "mean bounded slowdown", slowdowns)

    def print(self, folder: Path | None, json: bool, beside: Mapping[str, Any]) -> None:
        """Print the tables; with ``json`` one object, with the entries ``beside`` them, too."""
        if json:
            saved = {} if folder is None else {"out": str(folder)}
            print_json({**self.summary, **saved, **beside})
            return
        console = console_of_stdout()
        for table in self.tables():
            console.print(table, "")
        for line in self.notes():
            print_sentence(console, line, style="dim")
        if folder is not None:
            console.print("Tables and pictures:", bold(str(folder)), soft_wrap=True)

    def _by_class(self, of: str, key: str, scale: float = 1.0) -> dict[str, dict[str, float]]:
        """Class of jobs -> predictor -> figure."""
        return {
            heading: {row["predictor"]: row[of][name][key] * scale for row in self.rows}
            for name, heading in CLASSES.items()
        }

    def tables(self) -> list[Table]:
        """What people read: accuracy, the schedules, and the predictors' own tables."""
        own = [
            _own(f"{row['predictor']}: {title}", table)
            for row in self.rows
            for title, table in row["report"].items()
        ]
        return [self._accuracy_table(), self._schedule_table(), *own]

    def _accuracy_table(self) -> Table:
        table = table_of(
            "Predictions at submission",
            ("",),
            ("jobs", "MAE s", "MAE min", "error s", "under", "over", "within", "|log|"),
        )
        table.caption_justify = "left"
        table.caption = (
            "MAE: mean absolute error; error: mean of prediction - runtime; under, over: shares of "
            "under- and over-estimated jobs; within: runtime / prediction from 0.75 to 1.25; "
            "|log|: median of |ln(runtime / prediction)|"
        )
        for name, heading in CLASSES.items():
            table.add_row(bold(heading))
            for row in self.rows:
                table.add_row("  " + row["predictor"], *_accuracy_cells(row["accuracy"][name]))
        return table

    def _schedule_table(self) -> Table:
        dispatcher, correction = self.conditions["dispatcher"], self.conditions["correction"]
        table = table_of(
            f"Schedules of {dispatcher}, correction {correction}",
            ("",),
            (
                "bounded slowdown", "mean wait", "longest wait", "utilisation", "seconds",
                "µs a job",
            ),
        )  # fmt: skip
        table.caption_justify = "left"
        table.caption = "µs a job: wall time of all calls of the predictor, unknown where compiled"
        for row in self.rows:
            table.add_row(row["predictor"], *_schedule_cells(row))
        return table

    def notes(self) -> list[str]:
        """What was dropped, repaired, killed or never started, faults of predictors."""
        from cpdispatch.analyze import compare

        lines = compare.notes(self.rows)
        killed = {row["jobs_killed"]: None for row in self.rows if row["jobs_killed"]}
        lines += [f"jobs ended before they were done, not among the above: {n:,}" for n in killed]
        lines += [f"{what}: {count:,}" for what, count in self.limits.items()]
        return lines + [f"{name} is left out: {why}" for name, why in self.left_out.items()]


def _accuracy_cells(figures: Mapping[str, float]) -> list[str]:
    jobs = f"{figures['jobs']:,}"
    if not figures["jobs"]:
        return [jobs] + ["-"] * 7
    error_s = figures["absolute_error_s_mean"]
    shares = (f"{figures[f'{name}_share']:.1%}" for name in ("under", "over", "within"))
    return [
        jobs, f"{error_s:,.0f}", f"{error_s / 60:,.1f}", f"{round(figures['error_s_mean']):+,}",
        *shares, f"{figures['log_ratio_absolute_median']:.2f}",
    ]  # fmt: skip


def _schedule_cells(row: Row) -> list[str]:
    from cpdispatch.analyze.compare import duration

    shows: tuple[Callable[[float], str], ...] = (
        "{:,.2f}".format,
        duration,
        duration,
        "{:.1%}".format,
    )
    cells = [
        show(row[key]) if key in row else "-" for key, show in zip(SCHEDULE, shows, strict=True)
    ]
    spent_us = row["prediction_us"]
    return [*cells, f"{row['seconds']:,.2f}", "-" if spent_us is None else f"{spent_us:,.1f}"]


def _own(title: str, rows: Sequence[Mapping[str, float | int | str | None]]) -> Table:
    """The first rows of a table of a predictor's own."""
    headings = tuple(rows[0]) if rows else ()
    table = table_of(title, headings[:1], headings[1:])
    for row in rows[:OWN_ROWS]:
        table.add_row(*(_shown(row.get(heading)) for heading in headings))
    if len(rows) > OWN_ROWS:
        table.add_row(f"... {len(rows) - OWN_ROWS} more")
    return table


def _shown(value: float | int | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if isnan(value) else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
