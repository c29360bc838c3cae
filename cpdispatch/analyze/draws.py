"""Rows of figures of runs that differ by their draw or seed alone: means, spreads, pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from statistics import fmean, stdev
from typing import Any

from cpdispatch.analyze.difference import PAIRS_MIN, Difference, difference

Row = dict[str, Any]
Pairs = Sequence[tuple[Row, Row]]
Weights = Mapping[Any, tuple[float, float]]
"""Of each group of jobs: how many started, and a mean over them."""
Waits = Mapping[str, tuple[float, float, float]]
"""Of each user: jobs that started, their mean and their longest wait in seconds."""

OF_CLASSES = ("classes", "widths")
"""What a row has of jobs by length and by width: by class, figures."""


def merged(alike: Sequence[Row]) -> Row:
    """Merge the rows of runs that differ by their draw or seed alone.

    Parameters
    ----------
    alike : sequence of dict
        As for `cpdispatch.analyze.compare.related`; not merged ones.

    Returns
    -------
    dict
        The mean of each figure; that of a user's wait, or a week's bounded slowdown, is over all
        of the jobs in all of the runs. ``draws``, or ``seeds`` where the jobs of all are the same:
        how many runs; ``runs``: their rows; ``figures``: ``mean``, ``spread`` (the standard
        deviation), ``min`` and ``max`` of each. A figure in a dictionary of the row has that one's
        keys before its own, with dots. A user's longest wait is the mean of the longest waits in
        the runs.
    """
    several_draws = len({(row["draw"], row["submissions"]) for row in alike}) > 1
    return {
        **_means(alike),
        "draws" if several_draws else "seeds": len(alike),
        **{
            kind: {name: _means([row[kind][name] for row in alike]) for name in alike[0][kind]}
            for kind in OF_CLASSES
        },
        "waits_of_users": waits_of_users([row["waits_of_users"] for row in alike]),
        "restarts_of_users": _pooled([row["restarts_of_users"] for row in alike]),
        "weeks": _pooled([row["weeks"] for row in alike]),
        "runs": list(alike),
        "figures": {
            key: spread(values) for key, values in figures(alike) if not all(map(isnan, values))
        },
    }


def runs_of(row: Row) -> list[Row]:
    """The rows that were merged; of another one, itself."""
    found: list[Row] = row.get("runs", [row])
    return found


def layers(alike: Sequence[Row]) -> list[list[Row]]:
    """Runs of one dispatcher as lists of draws, or of seeds, none of which is twice in a list.

    A run goes into the last list that lacks it: folders are named one after the other, so that
    the draws of one command stay together beside copies of one of them.
    """
    key = "draw" if len({row["draw"] for row in alike}) > 1 else "seed"
    found: list[list[Row]] = []
    for row in alike:
        lacking = (of for of in reversed(found) if all(row[key] != other[key] for other in of))
        layer = next(lacking, None)
        if layer is None:
            found.append([row])
        else:
            layer.append(row)
    return found


def pairs(run: Row, first: Row) -> list[tuple[Row, Row]]:
    """The runs of the same submissions under both, those that differ by their seed merged."""
    here, there = _by_submissions(run), _by_submissions(first)
    return [(one(here[key]), one(there[key])) for key in here if key in there]


def in_common(run: Row, first: Row) -> tuple[Row, Row]:
    """The two rows in the draws that both have; as they are where they have none in common."""
    matched = pairs(run, first)
    if not matched:
        return run, first
    of_run, of_first = (
        [each for row in side for each in runs_of(row)] for side in zip(*matched, strict=True)
    )
    return one(of_run), one(of_first)


def slowdown_difference(matched: Pairs) -> Difference | None:
    """How the mean bounded slowdown differs: over draws if there are enough, else over weeks.

    The mean of a week counts as often as the week has jobs under the first run, so that the ratio
    over all weeks is that of the means over all jobs. Weeks of several draws are added up. None if
    no job started under one of the two.
    """
    key = "bounded_slowdown_mean"
    counted = [(run, first) for run, first in matched if key in run and key in first]
    if not counted:
        return None
    if len(counted) >= PAIRS_MIN:
        return difference(*_series(key, counted))
    sums: dict[int, list[float]] = {}
    for run, first in counted:
        for week in run["weeks"].keys() & first["weeks"].keys():
            jobs, mean_first = first["weeks"][week]
            of_week = sums.setdefault(week, [0.0, 0.0])
            of_week[0] += jobs * run["weeks"][week][1]
            of_week[1] += jobs * mean_first
    if len(sums) < PAIRS_MIN and len(counted) > 1:
        return difference(*_series(key, counted))
    if not sums:
        return None
    in_order = [sums[week] for week in sorted(sums)]
    return difference([a for a, _ in in_order], [b for _, b in in_order], "weeks")


def figure_difference(key: str, matched: Pairs) -> Difference | None:
    """How another figure differs over the draws that have it; None if there are none."""
    counted = [
        (run, first)
        for run, first in matched
        if not isnan(run.get(key, nan)) and not isnan(first.get(key, nan))
    ]
    return difference(*_series(key, counted)) if counted else None


def _series(key: str, matched: Pairs) -> tuple[list[float], list[float]]:
    return [run[key] for run, _ in matched], [first[key] for _, first in matched]


def _by_submissions(row: Row) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for run in runs_of(row):
        found.setdefault(run["submissions"], []).append(run)
    return found


def one(rows: Sequence[Row]) -> Row:
    """The row of a single run, or that of several, merged."""
    return rows[0] if len(rows) == 1 else merged(rows)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _means(alike: Sequence[Row]) -> Row:
    """The mean of each number over the rows that have one; a mean over no jobs is NaN."""
    mean = dict(alike[0])
    for key, value in mean.items():
        if _is_number(value):
            values = [row[key] for row in alike if key in row and not isnan(row[key])] or [value]
            mean[key] = values[0] if len(set(values)) == 1 else sum(values) / len(values)
    return mean


def _pooled(alike: Sequence[Weights]) -> dict[Any, tuple[float, float]]:
    """Of each group the jobs of a run, in the mean, and the mean over all jobs of all runs."""
    jobs: dict[Any, float] = {}
    sums: dict[Any, float] = {}
    for groups in alike:
        for group, (many, mean) in groups.items():
            jobs[group] = jobs.get(group, 0) + many
            sums[group] = sums.get(group, 0) + many * mean
    return {group: (many / len(alike), sums[group] / many) for group, many in jobs.items()}


def waits_of_users(alike: Sequence[Waits]) -> dict[str, tuple[float, float, float]]:
    """The waits of users over all jobs of all runs; the longest is the mean over the runs."""
    means = _pooled([{user: each[:2] for user, each in waits.items()} for waits in alike])
    longest = {user: fmean(waits[user][2] for waits in alike if user in waits) for user in means}
    return {user: (*mean, longest[user]) for user, mean in means.items()}


def figures(alike: Sequence[Row]) -> Iterator[tuple[str, list[float]]]:
    """Each figure with its values in the rows that have it."""
    for key, value in alike[0].items():
        if _is_number(value) and key not in ("seed", "draw", "restart_cost_s", "test_s"):
            yield key, [row[key] for row in alike if _is_number(row.get(key))]
    for kind in OF_CLASSES:
        for name, of_class in alike[0][kind].items():
            for key in of_class:
                yield f"{kind}.{name}.{key}", [row[kind][name][key] for row in alike]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, least and greatest of values, of which one is a number."""
    found = [value for value in values if not isnan(value)]
    return {
        "mean": sum(found) / len(found),
        "spread": stdev(found) if len(found) > 1 else 0.0,
        "min": min(found),
        "max": max(found),
    }
