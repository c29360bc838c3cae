"""The command report: one HTML page about saved runs."""

from __future__ import annotations

from pathlib import Path

from cpdispatch.cli.output import DONE, RefusedFiles
from cpdispatch.cli.runs import (
    check_page,
    check_place_of_page,
    load_summaries,
    write_page,
)
from cpdispatch.errors import UsageError


def report(*runs: Path, out: Path = Path("report.html")) -> int:
    """Make one HTML page about saved runs (simulate --out).

    The page opens in a browser without a network. It says which run has the lowest mean bounded
    slowdown and how sure that is, who gains and who pays, and shows queue, utilisation, waits and
    each job on its nodes over time. A run that cannot be read is reported on standard error.

    Parameters
    ----------
    runs
        Folders of runs of one log, or folders that hold several runs. All runs are compared with
        the first one.
    out
        File for the page.
    """
    if not runs:
        raise UsageError("report needs the folder of a run")
    check_page()
    check_place_of_page(out, "--out")
    refused = RefusedFiles()
    summaries, kept = load_summaries(list(runs), refused)
    if not summaries:
        return refused.code(DONE)
    size = write_page(out, summaries, kept)
    print(f"{out}: {size / 1e6:,.1f} MB; open it in a browser")
    return refused.code(DONE)
