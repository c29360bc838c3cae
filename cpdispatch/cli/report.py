"""The command report: one HTML page about saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cpdispatch.cli.output import DONE, RefusedFiles
from cpdispatch.cli.runs import (
    check_page,
    check_place_of_page,
    load_runs,
    write_page,
)
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run


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
    from cpdispatch.experiment import RunSummary

    refused = RefusedFiles()
    summaries: list[RunSummary] = []
    kept: dict[str, Run] = {}
    for _, run in load_runs(list(runs), refused):
        summaries.append(RunSummary.of(run))
        kept.setdefault(summaries[-1].kind, run)
    if not summaries:
        return refused.code(DONE)
    size = write_page(out, summaries, kept)
    print(f"{out}: {size / 1e6:,.1f} MB; open it in a browser")
    return refused.code(DONE)
