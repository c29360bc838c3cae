"""The command report: one HTML page about saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.output import DONE, RefusedFiles, status
from cpdispatch.cli.runs import load_runs
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.report import Shown
    from cpdispatch.simulator import Run

_KEYS = ("dispatcher", "predictor", "idempotent", "restart_cost_s", "test_s")


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
        kept.setdefault(_kind(run.about), run)
    if not summaries:
        return refused.code(DONE)
    with status(f"making {out}"):
        content = reports.page_of(*_parts(summaries, kept)).encode()
        write_bytes(out, content)
    print(f"{out}: {len(content) / 1e6:,.1f} MB; open it in a browser")
    return refused.code(DONE)


def _kind(about: dict[str, Any]) -> tuple[Any, ...]:
    """What runs have in common that differ by their draw or seed alone."""
    return (
        *(about.get(key) for key in _KEYS), about["workload"], about["system"]["name"],
        about.get("dependencies"), str(about.get("events")),
    )  # fmt: skip


def _parts(
    summaries: list[RunSummary], kept: dict[tuple[Any, ...], Run]
) -> tuple[list[Shown], list[dict[str, Any]], list[dict[str, Any]]]:
    """The runs that are drawn, and the rows of all of them beside the first and the best."""
    from cpdispatch import experiment
    from cpdispatch.analyze import compare
    from cpdispatch.report import Shown
    from cpdispatch.report.page import check

    of_first: dict[tuple[Any, ...], RunSummary] = {}
    for summary in summaries:
        of_first.setdefault(_kind(summary.about), summary)
    tables = experiment.tables(summaries)
    rows = [row for _, of_log in tables for row in of_log]
    names = [str(run.about["dispatcher"]) for run in kept.values()]
    if len(rows) == len(kept):
        names = [compare.name_of(row, rows) for row in rows]
    shown = [
        Shown(name, run, of_first[kind].waits_of_users)
        for name, (kind, run) in zip(names, kept.items(), strict=True)
    ]
    check(shown)
    if len(tables) > 1 or len(rows) != len(kept):
        raise UsageError(
            "these runs cannot be put side by side: draws or seeds of one dispatcher are there "
            "twice or have other jobs; name the folders of one simulate command"
        )
    key = "bounded_slowdown_mean"
    best = min(range(len(rows)), key=lambda k: rows[k].get(key, float("inf")))
    kind = list(kept)[best]
    in_order = sorted(summaries, key=lambda summary: _kind(summary.about) != kind)
    ((_, beside_best),) = experiment.tables(in_order)
    return shown, rows, beside_best
