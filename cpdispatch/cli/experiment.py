"""The command experiment: runs what a TOML file describes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cpdispatch.cli.options import Flag, Json, WorkerOptions
from cpdispatch.cli.output import DONE, STARTING, progress_bars, status
from cpdispatch.cli.runs import print_runs
from cpdispatch.cli.signals import stoppable


def _share(
    advance: Callable[[float], None], before: int, runs: int
) -> Callable[[float, int], None]:
    """How far all runs are, from how many of a part are done."""
    return lambda done, _: advance((before + done) / runs)


def experiment(
    file: Path,
    *,
    out: Path,
    overwrite: Flag = False,
    where: WorkerOptions = WorkerOptions(),
    json: Json = False,
) -> int:
    """Run the logs, dispatchers, predictors and draws that a file names; compare them.

    Runs that are finished in --out are not made again: the same command goes on after an
    interruption, and makes what was added to the file.

    Parameters
    ----------
    file
        TOML, see docs/experiments.md.
    out
        Folder for the runs, results.csv and results.json.
    overwrite
        Make all runs in --out again.
    json
        Print one JSON object.
    """
    with status(STARTING):
        from cpdispatch.campaign import Workers
        from cpdispatch.experiment import file as files

    form = files.load(file)
    with status(f"reading {len(form.logs)} logs"):
        parts = files.parts(form, file, out.absolute(), overwrite=overwrite)
    runs, before = sum(len(part.plans) for part in parts), 0
    summaries, failed = [], []
    kept = f"what was done is saved in {out}: the same command goes on from there"
    workers = Workers(where.cores, where.cluster)
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
    if summaries:
        written = files.save(summaries, out)
        problems = {"failed": failed[0].problems} if failed else {}
        print_runs(summaries, json, {"files": [str(path) for path in written]} | problems)
        if not json:
            print(f"Figures of all runs: {written[0]}")
    for failure in failed:
        raise failure
    return DONE
