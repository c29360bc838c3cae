"""The command compare: compares saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.options import Flag, Json
from cpdispatch.cli.output import DONE, RefusedFiles
from cpdispatch.cli.runs import (
    check_pictures,
    draw,
    load_runs,
    print_pictures,
    print_runs,
)
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run


def compare(*runs: Path, waits: Flag = False, plot: Path | None = None, json: Json = False) -> int:
    """Compare saved runs (simulate --out).

    A run that cannot be read is reported on standard error. The others are compared.

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold several runs. Those in one folder come in the order
        in which simulate was given their dispatchers. All runs are compared with the first one.
    waits
        Also show who waits longer: for each run the mean and the longest wait by length of jobs,
        by their width (share of the system), and of the users that lose most, beside those of the
        first run. The JSON object always has them.
    plot
        Folder for pictures of the runs (SVG, extra plot). With a name such as runs.pdf or runs.png,
        the pictures are runs-queue.pdf and so on, see docs/plots.md.
    json
        Print one JSON object.
    """
    if not runs:
        raise UsageError("compare needs the folder of a run")
    if plot is not None:
        check_pictures(plot)
    from cpdispatch.experiment import RunSummary

    refused = RefusedFiles()
    summaries: list[RunSummary] = []
    kept: dict[str, Run] = {}
    for _, run in load_runs(list(runs), refused):
        summaries.append(RunSummary.of(run))
        if plot is not None:
            kept.setdefault(summaries[-1].kind, run)
    beside: dict[str, Any] = {"errors": refused.errors}
    if plot is None or not json:
        print_runs(summaries, json, beside, waits=waits)
    if plot is not None:
        written, lacking = draw(plot, summaries, kept)
        if json:
            beside |= {"pictures": [str(path) for path in written], "lacking": lacking}
            print_runs(summaries, json, beside, waits=waits)
        else:
            print_pictures(plot, written, lacking)
    return refused.code(DONE)
