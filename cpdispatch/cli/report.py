"""The command report: one HTML page about saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.output import DONE, RefusedFiles, status
from cpdispatch.cli.runs import kind_of, load_runs, side_by_side
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run


def report(*runs: Path, out: Path = Path("report.html")) -> int:
    """Make one HTML page about runs that were saved with simulate --out.

    The page opens in a browser without a network. It says which run has the lowest mean bounded
    slowdown and how sure that is, who gains and who pays, and shows queue, utilisation, waits and
    each job on its nodes over time. A run that cannot be read is reported on standard error.

    Parameters
    ----------
    runs
        Folders of runs of one log, or folders that hold several. The first run is what the
        others are measured against.
    out
        The page that is written.
    """
    if not runs:
        raise UsageError("report needs the folder of a run")
    from cpdispatch.extra import needed

    needed("bokeh", "report")
    from cpdispatch import report as reports
    from cpdispatch.experiment import RunSummary
    from cpdispatch.files import write_bytes

    refused = RefusedFiles()
    summaries: list[RunSummary] = []
    kept: dict[tuple[Any, ...], Run] = {}
    for _, run in load_runs(list(runs), refused):
        summaries.append(RunSummary.of(run))
        kept.setdefault(kind_of(run.about), run)
    if not summaries:
        return refused.code(DONE)
    with status(f"making {out}"):
        shown, rows = side_by_side(summaries, kept)
        content = reports.page_of(shown, rows, _beside_best(summaries, kept, rows)).encode()
        write_bytes(out, content)
    print(f"{out}: {len(content) / 1e6:,.1f} MB; open it in a browser")
    return refused.code(DONE)


def _beside_best(
    summaries: list[RunSummary], kept: dict[tuple[Any, ...], Run], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of all runs beside the one with the lowest mean bounded slowdown."""
    from cpdispatch import experiment

    key = "bounded_slowdown_mean"
    best = min(range(len(rows)), key=lambda k: rows[k].get(key, float("inf")))
    kind = list(kept)[best]
    in_order = sorted(summaries, key=lambda summary: kind_of(summary.about) != kind)
    ((_, found),) = experiment.tables(in_order)
    return found
