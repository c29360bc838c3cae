"""The command compare: compares saved runs."""

from __future__ import annotations

from pathlib import Path

from cpdispatch.cli.options import Flag, Json
from cpdispatch.cli.output import DONE, RefusedFiles
from cpdispatch.cli.runs import check_pictures, load_summaries, print_and_draw
from cpdispatch.errors import UsageError


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
    refused = RefusedFiles()
    summaries, kept = load_summaries(list(runs), refused, whole=plot is not None)
    beside = {"errors": refused.errors}
    print_and_draw(summaries, lambda: kept, plot, json, beside, waits=waits)
    return refused.code(DONE)
