"""The command whatif: the same log on other systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from cpdispatch.cli.options import (
    EventOptions,
    Flag,
    Json,
    ReplayOptions,
    RestartOptions,
    Whole,
    WorkerOptions,
    check_draws,
    check_spared,
    kept_in,
    of_all_runs,
)
from cpdispatch.cli.output import (
    DONE,
    STARTING,
    console_of_stdout,
    print_in_whole_lines,
    print_json,
    print_sentence,
    progress_bars,
    status,
    table_of,
)
from cpdispatch.cli.runs import check_place_of_page
from cpdispatch.cli.signals import stoppable
from cpdispatch.durations import seconds
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from cpdispatch.experiment.whatif import Alternative


def whatif(
    trace: str,
    *,
    system: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, allow_leading_hyphen=True),
    ] = (),
    dispatcher: Annotated[
        tuple[str, ...], Parameter(("--dispatcher", "-d"), negative="", show_default=False)
    ] = (),
    filter: Literal["all", "strong", "drop"] = "all",
    jobs: Whole | None = None,
    since: Annotated[str, Parameter("--from", show_default=False)] = "",
    until: Annotated[str, Parameter("--to", show_default=False)] = "",
    shake: Whole = 1,
    rules: ReplayOptions = ReplayOptions(),
    restarts: RestartOptions = RestartOptions(),
    happens: EventOptions = EventOptions(),
    out: Path | None = None,
    overwrite: Flag = False,
    csv: Path | None = None,
    page: Path | None = None,
    where: WorkerOptions = WorkerOptions(),
    json: Json = False,
) -> int:
    """Replay a log on several systems: what would more nodes bring, or other nodes?

    Parameters
    ----------
    trace
        A log: .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    system
        A number of processors, a named system, a JSON or TOML file, or a change: of the number of
        nodes (+20%, -10%) or of what may run at once ("core per user=64", "jobs=none"). May be
        given several times. A change is one of the first system that is no change; without such a
        system, of the log's own system.
    dispatcher
        A dispatcher, as in simulate; may be given several times. Default: easy.
    filter
        Which jobs of the log to keep, as in simulate.
    jobs
        Use only the first N jobs.
    since
        Use only jobs submitted on this date (UTC) or later.
    until
        Use only jobs submitted before this date (UTC).
    shake
        Number of draws of each run, as in simulate. Figures are then means, with their standard
        deviation.
    out
        Folder for the runs. Finished runs there are not made again.
    overwrite
        Make the runs in --out again.
    csv
        Also write the table to this file.
    page
        Write an HTML page with the table, bars and a paragraph in plain words; it opens offline.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch.campaign import Workers
        from cpdispatch.experiment import RunPlan, whatif
        from cpdispatch.experiment.runs import run
        from cpdispatch.simulator.replay import claim
        from cpdispatch.workloads import read
        from cpdispatch.workloads.restarts import share_of

    _check(shake, overwrite, out, csv, page)
    check_spared("--csv", csv, trace, *system)
    with status(f"reading {trace}"):
        which = restarts.restartable
        is_column = which is not None and share_of(which) is None
        log = read(trace, filter, restartable=which if is_column else None)
        found = whatif.alternatives(
            log, system, jobs=jobs, since=since, until=until,
            restartable=None if is_column else which, seed=rules.seed,
        )  # fmt: skip
    names = dispatcher or ("easy",)
    of_runs = of_all_runs(rules, restarts, happens, [(of.workload, of.system) for of in found])
    limit_s = seconds(rules.limit, "--limit")
    plan = RunPlan("", rules.seed, limit_s, of_runs, out and out.absolute())
    parts = whatif.parts(found, names, plan, shake)
    for part in parts:
        part.experiment.check(plan.limit_s, plan.rules or {})
    folders = [run.folder for part in parts for _, run in part.plans if run.folder is not None]
    claim(folders, resume=not overwrite, overwrite=overwrite)
    workers = Workers(where.cores, where.cluster)
    with stoppable(kept_in(out)) as stop, progress_bars() as show:
        advance = show(f"{len(found)} systems")
        summaries, failure = run(parts, workers, lambda done, runs: advance(done / runs), stop)
    if rows := whatif.rows_of(found, summaries):
        failed = {} if failure is None else {"failed": failure.problems}
        _tell(log.name, found[0], rows, csv, page, json, failed)
    if failure is not None:
        raise failure
    return DONE


def _check(
    shake: int, overwrite: bool, out: Path | None, csv: Path | None, page: Path | None
) -> None:
    """Refuse options that mean nothing."""
    check_draws("--shake", shake)
    if overwrite and out is None:
        raise UsageError("--overwrite needs --out")
    if page is not None:
        check_place_of_page(page, "--page")
        if csv is not None and csv.absolute() == page.absolute():
            raise UsageError(f"--csv and --page name the same file, {page}")


def _tell(
    log: str, first: Alternative, rows: list[dict[str, Any]], csv: Path | None, page: Path | None,
    json: bool, failed: dict[str, Any],
) -> None:  # fmt: skip
    """Write the table and the page where they are asked for, and print the rows."""
    from cpdispatch.experiment import whatif
    from cpdispatch.files import write_bytes

    resource = first.system.resources[0]
    if csv is not None:
        write_bytes(csv, whatif.as_csv(rows))
    if page is not None:
        from cpdispatch.report.whatif import whatif_page

        why = failed.get("failed", {})
        write_bytes(page, whatif_page(log, resource, first.name, rows, why).encode())
    written = [path for path in (csv, page) if path is not None]
    if json:
        print_json({"workload": log, "rows": rows, "files": [*map(str, written)], **failed})
    else:
        _print(log, resource, rows, written)


def _print(log: str, resource: str, rows: list[dict[str, Any]], written: list[Path]) -> None:
    """Print the rows for people, and which files were written."""
    from cpdispatch.report.whatif import never_started, noise_told

    console = console_of_stdout()
    print_in_whole_lines(console, _table(log, resource, rows))
    for told in ("slowdown: mean bounded slowdown", *noise_told(rows)):
        print_sentence(console, told, style="dim")
    for said in never_started(rows):
        print_sentence(console, said, style="yellow")
    for path in written:
        print(f"wrote {path}")


def _table(log: str, resource: str, rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    from cpdispatch.analyze.compare import duration
    from cpdispatch.report.whatif import ratio, spread, who

    several = len({(row["dispatcher"], row["predictor"]) for row in rows}) > 1
    table = table_of(
        f"{log}, ratios to the first system\n",
        ("system", "dispatcher"),
        (resource, "mean wait", "", "longest wait", "slowdown", "", "utilisation"),
    )
    last = ""
    for row in rows:
        waits = [spread(row, name, duration) for name in ("wait_s_mean", "wait_s_max")]
        slowdown = spread(row, "bounded_slowdown_mean", "{:,.2f}".format)
        if several and last and row["system"] != last:
            table.add_row()
        table.add_row(
            row["system"] if row["system"] != last else "",
            who(row), f"{row['capacity']:,}",
            waits[0], ratio(row, "wait_ratio"), waits[1], slowdown, ratio(row, "slowdown_ratio"),
            spread(row, "utilisation", "{:.1%}".format),
        )  # fmt: skip
        last = row["system"]
    return table
