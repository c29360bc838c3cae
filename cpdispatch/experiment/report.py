"""The report of an experiment: figures of each run, related to the first, means over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import msgspec

from cpdispatch.experiment.runs import RunSummary

Row = dict[str, Any]
_OF_ONE_RUN = (
    "seed", "seconds", "workload_sha256", "notes", "python", "metrics", "classes",
    "predictor_seconds", "predictor_report", "place",
)  # fmt: skip


def report_of(summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """What --json prints: a row of figures for each run, and who waits longer.

    The figures of each run are related to the first run, see `compare.related`, the warnings are
    those on `tables`.
    """
    from cpdispatch.analyze import compare

    warnings = [warning for _, rows in tables(summaries) for warning in compare.warnings(rows)]
    return {"runs": compare.related(_rows(summaries)), "warnings": warnings}


def tables(summaries: Sequence[RunSummary]) -> list[tuple[str, list[Row]]]:
    """The rows that people compare: a title and a list for each log, the seeds averaged.

    Logs of one name whose jobs differ have lists of their own. The title of a single log is empty.
    The rows are related to the first run of each log, see `compare.related`.
    """
    from cpdispatch.analyze import compare

    alike: dict[bytes, list[Row]] = {}
    for run, row in zip(summaries, _rows(summaries), strict=True):
        about = {key: value for key, value in run.about.items() if key not in _OF_ONE_RUN}
        alike.setdefault(msgspec.json.encode(about, order="sorted"), []).append(row)
    by_log: dict[tuple[str, int], list[Row]] = {}
    versions: dict[tuple[str, str, str], list[set[str]]] = {}
    for of_seeds in alike.values():
        one_a_seed = len({row["seed"] for row in of_seeds}) == len(of_seeds)
        for runs in [of_seeds] if one_a_seed else [[row] for row in of_seeds]:
            row = _mean(runs)
            known = versions.setdefault(compare.setting(row), [])
            version = _version({run["workload_sha256"] for run in runs}, known)
            by_log.setdefault((row["workload"], version), []).append(row)
    changed = {log for log, version in by_log if version}
    found = []
    for (log, _), of_log in by_log.items():
        jobs = of_log[0]["workload_sha256"]
        title = f"{log} on {of_log[0]['system']}" + f", jobs {jobs[:8]}" * (log in changed)
        rows = [{**row, "workload_sha256": jobs} for row in of_log]
        found.append((title * (len(by_log) > 1), compare.related(rows)))
    return found


def _version(jobs: set[str], known: list[set[str]]) -> int:
    """Which of several logs of one name these jobs, given by their checksums, are of.

    Each seed may have drawn its own jobs: runs that have those of one seed in common are of one
    log. ``known`` has the checksums of each log so far, and is brought up to date.
    """
    for version, others in enumerate(known):
        if jobs & others:
            others |= jobs
            return version
    known.append(jobs)
    return len(known) - 1


def _rows(summaries: Sequence[RunSummary]) -> list[Row]:
    """One row of figures a run."""
    from cpdispatch.analyze import compare

    return [
        {
            **compare.row(run.about, run.metrics),
            "seed": run.about.get("seed", 0),
            "workload_sha256": run.about.get("workload_sha256", ""),
            "classes": run.classes,
            "waits_of_users": run.waits_of_users,
        }
        for run in summaries
    ]


def _mean(alike: Sequence[Row]) -> Row:
    """The mean of each figure over runs that differ by their seed alone.

    That of a user's wait is over all of his jobs in all of the runs.
    """
    jobs: dict[str, float] = {}
    waited_s: dict[str, float] = {}
    for row in alike:
        for user, (many, wait_s) in row["waits_of_users"].items():
            jobs[user] = jobs.get(user, 0) + many
            waited_s[user] = waited_s.get(user, 0) + many * wait_s
    return {
        **_means(alike),
        "classes": {
            name: _means([row["classes"][name] for row in alike]) for name in alike[0]["classes"]
        },
        "waits_of_users": {
            user: (many / len(alike), waited_s[user] / many) for user, many in jobs.items()
        },
        "seeds": len(alike),
    }


def _means(alike: Sequence[Row]) -> Row:
    """The mean of each number over the rows that have one; a mean over no jobs is NaN."""
    mean = dict(alike[0])
    for key, value in mean.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            values = [row[key] for row in alike if key in row and not isnan(row[key])] or [value]
            mean[key] = values[0] if len(set(values)) == 1 else sum(values) / len(values)
    return mean
