"""The report of an experiment: figures of each run, related to the first, means over draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cpdispatch.experiment.runs import RunSummary

Row = dict[str, Any]


def report_of(summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """What --json prints: a row of figures for each run, means, differences, who waits longer.

    The figures of each run are related to the first run, see `compare.related`. The rest is that
    of `tables`: ``means`` of the runs that differ by their draw or seed alone, with the
    ``differences`` from the first run, the ``warnings``, what ``test_runs`` bring and cost, and
    what ``failures`` of nodes cost.
    """
    from cpdispatch.analyze import compare

    of_logs = [rows for _, rows in tables(summaries)]
    return {
        "runs": compare.related(rows_of(summaries)),
        "means": [found for rows in of_logs for found in compare.means(rows)],
        "differences": [found for rows in of_logs for found in compare.differences(rows)],
        "warnings": [found for rows in of_logs for found in compare.warnings(rows)],
        "test_runs": [found for rows in of_logs for found in compare.test_runs(rows)],
        "failures": [found for rows in of_logs for found in compare.failures(rows)],
    }


def tables(summaries: Sequence[RunSummary]) -> list[tuple[str, list[Row]]]:
    """The rows that people compare: a title and a list for each log; draws and seeds are merged.

    Logs of one name whose jobs differ have lists of their own. The title of a single log is empty.
    The rows are related to the first run of each log, see `compare.related`.
    """
    from cpdispatch.analyze import compare, draws

    alike: dict[str, list[Row]] = {}
    for row in rows_of(summaries):
        alike.setdefault(row["kind"], []).append(row)
    merged = [draws.one(layer) for rows in alike.values() for layer in draws.layers(rows)]
    versions: dict[tuple[str, str, str, str], list[set[str]]] = {}
    for row in merged:
        _add_version(_jobs_of(row), versions.setdefault(compare.setting(row), []))
    by_log: dict[tuple[str, int], list[Row]] = {}
    for row in merged:
        known = versions[compare.setting(row)]
        (version,) = (k for k, jobs in enumerate(known) if jobs >= _jobs_of(row))
        by_log.setdefault((row["workload"], version), []).append(row)
    changed = {log for log, version in by_log if version}
    found = []
    for (log, _), of_log in by_log.items():
        jobs = of_log[0]["submissions"]
        title = f"{log} on {of_log[0]['system']}" + f", jobs {str(jobs)[:8]}" * (log in changed)
        same = [{**row, "of_log": jobs} for row in of_log]
        found.append((title * (len(by_log) > 1), compare.related(same)))
    return found


def _jobs_of(row: Row) -> set[str]:
    """The checksums of the jobs of a row's runs."""
    from cpdispatch.analyze import draws

    return {run["submissions"] for run in draws.runs_of(row)}


def _add_version(jobs: set[str], known: list[set[str]]) -> None:
    """Add jobs, given by their checksums, to those of each log of one name so far.

    Each draw or seed may have jobs of its own: runs that have those of one in common are of one
    log, also if a later run is the first to have those of both.
    """
    of_log = [others for others in known if jobs & others]
    if not of_log:
        known.append(set(jobs))
        return
    of_log[0].update(jobs, *of_log[1:])
    known[:] = [others for others in known if not any(others is one for one in of_log[1:])]


def rows_of(summaries: Sequence[RunSummary]) -> list[Row]:
    """One row of figures a run."""
    from cpdispatch.analyze import compare

    return [
        {
            **compare.row(run.about, run.metrics),
            "kind": run.kind,
            "seed": run.about.get("seed", 0),
            "draw": run.about.get("draw", 0),
            "submissions": run.about.get("workload_sha256", ""),
            "of_log": run.about.get("workload_sha256", ""),
            "classes": run.classes,
            "widths": run.widths,
            "waits_of_users": run.waits_of_users,
            "weeks": run.weeks,
            "restarts_of_users": run.restarts_of_users,
        }
        for run in summaries
    ]
