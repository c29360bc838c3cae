"""The command experiment: runs what a TOML file describes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cpdispatch.cli.options import Flag, Json, WorkerOptions, kept_in
from cpdispatch.cli.output import DONE, STARTING, progress_bars, status
from cpdispatch.cli.runs import (
    by_log,
    check_page,
    check_pictures,
    draw,
    first_of_each,
    is_page,
    is_place,
    print_pictures,
    print_runs,
    write_page,
)
from cpdispatch.cli.signals import stoppable

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run

_PICTURES = "pictures"


def _pages(out: Path, summaries: Sequence[RunSummary], kept: Mapping[str, Run]) -> list[Path]:
    """Write a page for each log."""
    written = []
    for of in by_log(summaries, kept):
        path = out / (f"report-{of.place}.html" if of.place else "report.html")
        write_page(path, of.summaries, of.kept)
        written.append(path)
    return written


def _forget_others(
    out: Path, logs: Collection[tuple[str, str]], drawn: Sequence[Path], pages: Sequence[Path]
) -> None:
    """Remove the pictures and pages that were of one log alone, or of another set of logs.

    Those of a log among several are named after it: ``logs`` are those of all runs there.
    """
    names, folder = {path.name for path in drawn}, out / _PICTURES
    apart = [path for path in folder.glob("*/*.svg") if is_place(path.parent.name, logs)]
    before = [path for path in (*folder.glob("*.svg"), *apart) if path.name in names]
    if pages:
        found = [out / "report.html", *out.glob("report-*.html")]
        found[1:] = [path for path in found[1:] if is_place(path.stem[len("report-") :], logs)]
        before += [path for path in found if is_page(path)]
    for path in {*before}.difference(drawn, pages):
        path.unlink(missing_ok=True)


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
        from cpdispatch.experiment.runs import run
        from cpdispatch.simulator.replay import claim
        from cpdispatch.simulator.saved import ABOUT

    form = files.load(file)
    workers = Workers(where.cores, where.cluster)
    with status(f"reading {len(form.logs)} logs"):
        parts = files.parts(form, file, out.absolute())
    plans = [plan for part in parts for _, plan in part.plans]
    folders = [plan.folder for plan in plans if plan.folder is not None]
    kinds = Counter(draws.parent for draws in {folder.parent for folder in folders})
    if plot:
        check_pictures(out / _PICTURES, max(kinds.values()))
    if page:
        check_page(max(kinds.values()))
    claim(folders, resume=not overwrite, overwrite=overwrite)
    with stoppable(kept_in(out)) as stop, progress_bars() as show:
        advance = show(f"{len(plans)} runs")
        found, failure = run(parts, workers, lambda done, of: advance(done / of), stop)
    summaries = [summary for of_part in found for summary in of_part]
    failed = {} if failure is None else {"failed": failure.problems}
    asked = f"draws = 10 in {file.name}"
    there = sum((folder / ABOUT).exists() for folder in folders)
    if summaries and len(summaries) < there and (out / files.TABLE).exists():
        print_runs(summaries, json, {"files": [], **failed}, asked=asked)
        print(
            f"cpdispatch: {out / files.TABLE} and what is beside it stay as they are: they have "
            "runs that were refused",
            file=sys.stderr,
        )
    elif summaries:
        logs = files.logs_of(out) if plot or page else set[tuple[str, str]]()
        written = files.save(summaries, out)
        first = first_of_each(folders, summaries) if plot or page else {}
        drawn, lacking = draw(out / _PICTURES, summaries, first) if plot else ([], [])
        pages = _pages(out, summaries, first) if page else []
        _forget_others(out, logs, drawn, pages)
        beside = failed | {"files": [str(path) for path in (*written, *pages, *drawn)]}
        if plot:
            beside["lacking"] = lacking
        print_runs(summaries, json, beside, asked=asked)
        if not json:
            print(f"Figures of all runs: {written[0]}")
            if plot:
                print_pictures(out / _PICTURES, drawn, lacking)
            for path in pages:
                print(f"{path}: a page about the runs; open it in a browser")
    if failure is not None:
        raise failure
    return DONE
