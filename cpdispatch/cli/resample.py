"""The command resample: makes a workload of random weeks of a log's users."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cpdispatch.cli.made import check_out, save_and_print
from cpdispatch.cli.options import Filter, Json, Seed, Whole
from cpdispatch.cli.output import status


def resample(
    trace: str,
    *,
    weeks: Whole,
    out: Path,
    presence: Literal["log", "always"] = "log",
    filter: Filter = "all",
    seed: Seed = 0,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """Make a workload of random weeks of a log's users.

    Parameters
    ----------
    trace
        A log.
    weeks
        How many weeks to make.
    out
        File for the jobs: .swf or .csv, plain or packed (.gz, .xz, .zst), or .parquet.
    presence
        Users are active as often as in the log, or always.
    filter
        Which jobs of the log to keep.
    seed
        The same seed draws the same weeks.
    plot
        Draw the submissions and the work beside those of the log (.png, .svg, .pdf).
    json
        Print one JSON object.
    """
    from cpdispatch.system import System
    from cpdispatch.workloads import read
    from cpdispatch.workloads.resample import resample

    check_out(trace, out, plot)
    with status(f"drawing {weeks:,} weeks"):
        source = read(trace, filter)
        made = resample(source, weeks, seed, presence)
    system = None if source.processors is None else System.pool(source.processors)
    summary = {"trace": trace, "weeks": weeks, "seed": seed}
    return save_and_print(made, system, source, out, plot, summary, json)
