"""The command power: what jobs draw."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cpdispatch.cli.options import Json, Whole, check_spared
from cpdispatch.cli.output import DONE, console_of_stdout, print_json, status, table_of
from cpdispatch.errors import UsageError

app = App(name="power", help="Classify the power profiles of jobs.")


@app.command
def classify(
    file: Path,
    *,
    job: str = "job",
    time: str = "time",
    watts: str = "watts",
    range: Annotated[float | None, Parameter(show_default=False)] = None,
    trim: Whole = 1,
    out: Path | None = None,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Say of each job's power profile whether it is constant, periodic, irregular or changing.

    A job of fewer than 12 minutes is short: that is too few to judge.

    Parameters
    ----------
    file
        Samples, one a row: CSV, plain or packed (.gz, .xz, .zst), or .parquet.
    job
        The column with the job's number or name.
    time
        The column with seconds, or dates and times.
    watts
        The column with the power.
    range
        Watts between idle and full load. Default: from the lowest to the highest minute of all
        jobs.
    trim
        Minutes left out at the start and at the end of each job.
    out
        Write a row for each job to this .csv or .parquet file.
    plot
        Draw some profiles of each kind: .png, .svg or .pdf.
    json
        Print one JSON object.
    """
    from cpdispatch.analyze import power

    if trim < 0:
        raise UsageError(f"--trim {trim}: a number of minutes, 0 or more, is needed")
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{out}: unknown extension; tables are .csv or .parquet")
    check_spared("--out", out, file)
    if plot is not None:
        from cpdispatch.analyze import plots, power_plots

        plots.check(plot)
    with status(f"reading {file}"):
        profiles = power.read(file, job, time, watts, trim)
    shapes, range_w = power.judge_all(profiles, range)
    if out is not None:
        _write(out, list(power.table(shapes)))
    if plot is not None:
        power_plots.kinds(plot, profiles, shapes)
    counts = {kind: sum(s.kind == kind for s in shapes.values()) for kind in power.KINDS}
    written = [str(path) for path in (out, plot) if path is not None]
    if json:
        print_json({"range_w": range_w, "kinds": counts, "jobs": shapes, "files": written})
        return DONE
    shown = table_of("", ("profile",), ("jobs", "share", "mean W"))
    for kind, count in counts.items():
        means = [s.mean_w for s in shapes.values() if s.kind == kind and s.minutes]
        mean = f"{sum(means) / len(means):,.1f}" if means else "-"
        shown.add_row(kind, f"{count:,}", f"{count / max(len(shapes), 1):.0%}", mean)
    console = console_of_stdout()
    console.print(shown)
    console.print(
        f"measured by a range of {range_w:,.1f} W"
        + (", from the lowest to the highest minute of these jobs" if range is None else ""),
        soft_wrap=True,
    )
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)
    return DONE


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    import pandas as pd

    from cpdispatch.workloads.imported import write_frame

    names = ["job", "kind", "minutes", "mean_w", "spread_w", "level_spread_w", "period_min"]
    write_frame(pd.DataFrame(rows, columns=names), path)
