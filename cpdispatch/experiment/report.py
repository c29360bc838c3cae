"""The report of an experiment: figures of each run, related to the first, means over draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cpdispatch.experiment.runs import RunSummary

Row = dict[str, Any]
_OF_ONE_RUN = (
    "seed", "draw", "seconds", "workload_sha256", "notes", "python", "metrics", "classes",
    "predictor_seconds", "predictor_report", "place",
)  # fmt: skip


def report_of(summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """What --json prints: a row of figures for each run, means, differences, who waits longer.

    The figures of each run are related to the first run, see `compare.related`. The rest is that
    of `tables`: ``means`` of the runs that differ by their draw or seed alone, with the
    ``differences`` from the first run and the ``warnings``.
    """
    from cpdispatch.analyze import compare

    of_logs = [rows for _, rows in tables(summaries)]
    return {
        "runs": compare.related(_rows(summaries)),
        "means": [found for rows in of_logs for found in compare.means(rows)],
        "differences": [found for rows in of_logs for found in compare.differences(rows)],
        "warnings": [found for rows in of_logs for found in compare.warnings(rows)],
    }


def tables(summaries: Sequence[RunSummary]) -> list[tuple[str, list[Row]]]:
    """The rows that people compare: a title and a list for each log; draws and seeds are merged.

    The title of a single log is empty. The rows are related to the first run of each log, see
    `compare.related`.
    """
    from cpdispatch.analyze import compare, draws

    alike: dict[bytes, list[Row]] = {}
    for run, row in zip(summaries, _rows(summaries), strict=True):
        about = {key: value for key, value in run.about.items() if key not in _OF_ONE_RUN}
        alike.setdefault(msgspec.json.encode(about, order="sorted"), []).append(row)
    by_log: dict[str, list[Row]] = {}
    for rows in alike.values():
        several = len(rows) > 1 and draws.mergeable(rows)
        for row in [draws.merged(rows)] if several else rows:
            by_log.setdefault(row["workload"], []).append(row)
    several = len(by_log) > 1
    return [
        (f"{log} on {of_log[0]['system']}" if several else "", compare.related(of_log))
        for log, of_log in by_log.items()
    ]


def _rows(summaries: Sequence[RunSummary]) -> list[Row]:
    """One row of figures a run."""
    from cpdispatch.analyze import compare

    return [
        {
            **compare.row(run.about, run.metrics),
            "seed": run.about.get("seed", 0),
            "draw": run.about.get("draw", 0),
            "submissions": run.about.get("workload_sha256"),
            "classes": run.classes,
            "waits_of_users": run.waits_of_users,
            "weeks": run.weeks,
        }
        for run in summaries
    ]
