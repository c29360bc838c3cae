"""The command experiment: runs what a TOML file describes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cpdispatch.cli.options import Flag, Json, WorkerOptions
from cpdispatch.cli.output import DONE, STARTING, progress_bars, status
from cpdispatch.cli.runs import (
    Kind,
    by_log,
    check_page,
    check_pictures,
    draw,
    first_of_each,
    print_pictures,
    print_runs,
    write_page,
)
from cpdispatch.cli.signals import stoppable

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run

_PICTURES = "pictures"


def _share(
    advance: Callable[[float], None], before: int, runs: int
) -> Callable[[float, int], None]:
    """How far all runs are, from how many of a part are done."""
    return lambda done, _: advance((before + done) / runs)


def _pages(out: Path, summaries: Sequence[RunSummary], kept: Mapping[Kind, Run]) -> list[Path]:
    """Write a page for each log."""
    written = []
    for of in by_log(summaries, kept):
        path = out / (f"report-{of.place}.html" if of.place else "report.html")
        write_page(path, of.summaries, of.kept)
        written.append(path)
    return written


def experiment(
    file: Path,
    *,
    out: Path,
    overwrite: Flag = False,
    plot: Flag = False,
    page: Flag = False,
    where: WorkerOptions = WorkerOptions(),
    json: Json = False,
) -> int:
    """Run the logs, dispatchers, predictors and draws that a file names, and compare them.

    Finished runs in --out are kept. After an interruption, or when something was added to the
    file, the same command makes the runs that are missing.

    Parameters
    ----------
    file
        TOML file, see docs/experiments.md.
    out
        Folder for the runs, results.csv and results.json.
    overwrite
        Make all runs in --out again.
    plot
        Draw the runs of each log in the folder pictures of --out (extra plot), see docs/plots.md.
    page
        Make report.html in --out, a page about the runs of each log (extra report), see
        docs/report.md.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch.campaign import Workers
        from cpdispatch.experiment import file as files
        from cpdispatch.simulator.run import ABOUT

    form = files.load(file)
    kinds = len(form.dispatchers) * max(len(form.predictors), 1)
    if plot:
        check_pictures(out / _PICTURES, kinds)
    if page:
        check_page(kinds)
    workers = Workers(where.cores, where.cluster)
    with status(f"reading {len(form.logs)} logs"):
        parts = files.parts(form, file, out.absolute(), overwrite=overwrite)
    runs, before = sum(len(part.plans) for part in parts), 0
    summaries, failed = [], []
    kept = f"what was done is saved in {out}: the same command goes on from there"
    with stoppable(kept) as stop, progress_bars() as show:
        advance = show(f"{runs} runs")
        for part in parts:
            found, failure = part.experiment.run(
                part.plans, workers, _share(advance, before, runs), stop
            )
            before += len(part.plans)
            summaries += found
            if failure is not None:
                failed.append(failure)
    plans = [plan for part in parts for _, plan in part.plans]
    there = sum(plan.folder is not None and (plan.folder / ABOUT).exists() for plan in plans)
    if summaries and len(summaries) < there and (out / files.TABLE).exists():
        print_runs(summaries, json, {"files": [], "failed": failed[0].problems})
        print(
            f"cpdispatch: {out / files.TABLE} and what is beside it stay as they are: they have "
            "runs that were refused",
            file=sys.stderr,
        )
    elif summaries:
        written = files.save(summaries, out)
        first = first_of_each(plans) if plot or page else {}
        drawn, lacking = draw(out / _PICTURES, summaries, first) if plot else ([], [])
        pages = _pages(out, summaries, first) if page else []
        beside = {"files": [str(path) for path in (*written, *pages, *drawn)]}
        print_runs(summaries, json, beside | ({"failed": failed[0].problems} if failed else {}))
        if not json:
            print(f"Figures of all runs: {written[0]}")
            if plot:
                print_pictures(out / _PICTURES, drawn, lacking)
            for path in pages:
                print(f"{path}: a page about the runs; open it in a browser")
    for failure in failed:
        raise failure
    return DONE
