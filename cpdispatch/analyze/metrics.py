"""Metrics of a schedule, each with its formula.

For a job with submission q, start s, end e and processors m: wait w = s - q, runtime p = e - s.
Processors are units times the request of the system's first resource type, at least 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.jobs import TAU_S
from cpdispatch.system import is_own

CLASSES_S = {"short": (0, 3600), "medium": (3600, 5 * 3600 + 1), "long": (5 * 3600 + 1, 2**62)}
"""Classes of runtimes: under 1 h, 1 to 5 h, over 5 h; [from, to) in seconds."""

WIDTHS = {"narrow": 1 / 32, "middle": 1 / 8, "wide": 1.0}
"""Classes of widths: the largest share of the system that a job of the class asks for."""

WEEK_S = 7 * 24 * 3600

_PART = 1 << 16  # jobs that are counted at once


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleColumns:
    """The columns that metrics are computed from, one value a job; start -1 when it never started.

    Of whole columns metrics make sums, or values for a part of the jobs at a time: columns of a
    long log may be of int32, and nothing of their size is made beside them more than once.

    Attributes
    ----------
    submit_s, start_s, end_s, units : int64 array, shape (jobs,)
    request : int64 array, shape (jobs, resources)
        Per-unit request.
    backfilled : bool array, shape (jobs,), or None
        None where it is not known.
    capacity : int64 array, shape (resources,)
        Of the whole system, see `cpdispatch.access.total`.
    lost_s : int64 array, shape (jobs,), or None
        Time on the nodes before a restart, 0 for most, by all attempts that were lost; None when
        no job could be restarted.
    test : array of str, shape (jobs,), or None
        What became of the test run of each job: ``none``, ``ended``, ``went_on`` or ``killed``;
        None when no job was tested.
    requeued : int64 array, shape (jobs,), or None
        How often each job was queued again because a node failed; None when no node could.
    failed : bool array, shape (jobs,), or None
        Whether each job ended because a node failed; None when no node could.
    saved_s : int64 array, shape (jobs,), or None
        What checkpoints have kept of the runs before the last one, seconds, see `kept_s`; None
        without them.
    once : tuple of pairs of int
        See `cpdispatch.system.System`.
    resources : tuple of str
        Names of the resource types; empty where nobody asks for figures of each type.
    """

    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    units: IntArray
    request: IntArray
    backfilled: NDArray[np.bool_] | None
    capacity: IntArray
    lost_s: IntArray | None = None
    test: NDArray[np.object_] | None = None
    requeued: IntArray | None = None
    failed: NDArray[np.bool_] | None = None
    saved_s: IntArray | None = None
    once: tuple[tuple[int, int], ...] = ()
    resources: tuple[str, ...] = ()

    @property
    def started(self) -> NDArray[np.bool_]:
        """Which jobs started."""
        return self.start_s >= 0

    def take(self, which: NDArray[np.bool_]) -> ScheduleColumns:
        """The schedule of some of the jobs."""
        if which.all():
            return self
        return self._rows(which)

    def part(self, rows: slice) -> ScheduleColumns:
        """The schedule of consecutive jobs; whole numbers are of int64."""
        part = self._rows(rows)
        names = "submit_s", "start_s", "end_s", "units", "request"
        return replace(
            part, **{name: getattr(part, name).astype(np.int64, copy=False) for name in names}
        )

    def _rows(self, which: NDArray[np.bool_] | slice) -> ScheduleColumns:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        del columns["capacity"], columns["once"], columns["resources"]
        there = {name: column[which] for name, column in columns.items() if column is not None}
        return replace(self, **there)


def kept_s(saved_s: IntArray, failed: NDArray[np.bool_] | None) -> IntArray:
    """What checkpoints have kept in the end, seconds: nothing of a job that ended as failed.

    Parameters
    ----------
    saved_s : int64 array, shape (jobs,)
        What they have kept of all runs before the last one, seconds.
    failed : bool array, shape (jobs,), or None
        Which jobs ended as failed.
    """
    return saved_s if failed is None else np.where(failed, 0, saved_s)


def wait_s(schedule: ScheduleColumns) -> IntArray:
    """Time in the queue, w = s - q, seconds.

    Where checkpoints have kept a part of earlier runs, that part is no wait.
    """
    waited = schedule.start_s - schedule.submit_s
    return waited if schedule.saved_s is None else waited - schedule.saved_s


def runtime_s(schedule: ScheduleColumns) -> IntArray:
    """Time on the nodes, p = e - s, seconds; and what checkpoints have kept of earlier runs."""
    lasted = schedule.end_s - schedule.start_s
    return lasted if schedule.saved_s is None else lasted + schedule.saved_s


def processors(schedule: ScheduleColumns) -> IntArray:
    """Units times the request of the first resource type, at least 1."""
    held: IntArray = np.maximum(schedule.units * schedule.request[:, 0], 1)
    return held


def held_processors(schedule: ScheduleColumns) -> IntArray:
    """`processors`, with what jobs take of them once, on their first nodes."""
    once = sum(schedule.request[:, once] for once, of in schedule.once if of == 0)
    held: IntArray = np.maximum(schedule.units * schedule.request[:, 0] + once, 1)
    return held


def share(schedule: ScheduleColumns) -> FloatArray:
    """What a job holds of the system, by the resource type of which it holds most, 0 to 1."""
    held = schedule.units[:, None] * schedule.request
    found: FloatArray = (held / np.maximum(schedule.capacity, 1)).max(axis=1, initial=0.0)
    return found


def slowdown(schedule: ScheduleColumns) -> FloatArray:
    """(w + p) / p; a runtime of 0 counts as 1 s.

    References
    ----------
    Feitelson, Rudolph, "Metrics and benchmarking for parallel job scheduling", JSSPP 1998.
    """
    p = np.maximum(runtime_s(schedule), 1)
    return (wait_s(schedule) + p) / p


def bounded_slowdown(schedule: ScheduleColumns) -> FloatArray:
    """max(1, (w + p) / max(p, tau)) with tau = 10 s.

    References
    ----------
    Feitelson, Rudolph, Schwiegelshohn, Sevcik, Wong, "Theory and practice in parallel job
    scheduling", JSSPP 1997.
    """
    p = runtime_s(schedule)
    return np.maximum(1.0, (wait_s(schedule) + p) / np.maximum(p, TAU_S))


def per_processor_bounded_slowdown(schedule: ScheduleColumns) -> FloatArray:
    """max(1, (w + p) / (m max(p, tau))) with tau = 10 s.

    References
    ----------
    Zotkin, Keleher, "Job-length estimation and performance in backfilling schedulers", HPDC 1999.
    """
    p = runtime_s(schedule)
    return np.maximum(1.0, (wait_s(schedule) + p) / (processors(schedule) * np.maximum(p, TAU_S)))


def restarted(schedule: ScheduleColumns) -> NDArray[np.bool_]:
    """Which jobs were restarted: work of them was lost, or they were queued again."""
    lost = np.zeros(len(schedule.start_s), dtype=np.bool_)
    if schedule.lost_s is not None:
        lost |= schedule.lost_s > 0
    return lost if schedule.requeued is None else lost | (schedule.requeued > 0)


def useful_s(schedule: ScheduleColumns) -> IntArray:
    """Time on the nodes that was not lost: none of a job that ended because a node failed."""
    lasted = runtime_s(schedule)
    return lasted if schedule.failed is None else np.where(schedule.failed, 0, lasted)


def lost_s(schedule: ScheduleColumns) -> IntArray:
    """Time on the nodes that was lost: before restarts, and of jobs that a failed node ended."""
    lost = np.zeros(len(schedule.start_s), dtype=np.int64)
    if schedule.lost_s is not None:
        lost += schedule.lost_s
    return lost + runtime_s(schedule) - useful_s(schedule)


def wasted_processor_s(schedule: ScheduleColumns) -> int:
    """Processors times seconds of what jobs did in vain, of all jobs, see `lost_s`.

    As for the utilisation, what a job takes once counts.
    """
    return int(held_processors(schedule) @ lost_s(schedule))


def wasted_share(schedule: ScheduleColumns) -> float:
    """Lost processor seconds over those of all attempts, lost and not, of the jobs that started."""
    ran = schedule.take(schedule.started)
    used = int(held_processors(ran) @ useful_s(ran))
    return wasted_processor_s(schedule) / max(used + wasted_processor_s(schedule), 1)


def makespan_s(schedule: ScheduleColumns) -> int:
    """Time from the first submission to the last end, seconds."""
    return int(schedule.end_s.max() - schedule.submit_s.min())


def utilisation(schedule: ScheduleColumns) -> FloatArray:
    """Share of each resource type held by jobs over the makespan, shape (resources,).

    sum of p times units times request / (capacity times makespan); 0 for a type nobody has, and
    next to 0 for one that says where jobs may run. Jobs that ended because a node failed do not
    count.
    """
    held, span_s = np.zeros(schedule.request.shape[1], dtype=np.int64), makespan_s(schedule)
    for part in _parts(schedule):
        held += (useful_s(part) * part.units) @ part.request
        for once, of in schedule.once:
            held[of] += useful_s(part) @ part.request[:, once]
    # The capacity of a type that says where jobs may run leaves no room for products in 64 bits.
    return np.asarray(held / np.maximum(schedule.capacity.astype(np.float64) * span_s, 1))


def _utilisations(schedule: ScheduleColumns) -> dict[str, float]:
    """Of the first resource type, and of each other one that the system has by itself."""
    first, *others = utilisation(schedule).tolist()
    of_types = zip(schedule.resources[1:], others, strict=False)
    return {
        "utilisation": first,
        **{f"utilisation_{name}": share for name, share in of_types if is_own(name)},
    }


def throughput_per_h(schedule: ScheduleColumns) -> float:
    """Jobs ended an hour, over the makespan."""
    return 3600 * len(schedule.end_s) / max(makespan_s(schedule), 1)


def queue_length_mean(schedule: ScheduleColumns) -> float:
    """Mean over time of the number of waiting jobs: the sum of the waits over the time."""
    last = max(schedule.submit_s.max(), schedule.start_s.max())
    first = min(schedule.submit_s.min(), schedule.start_s.min())
    return float(wait_s(schedule).sum() / max(last - first, 1))


def queue_length_max(schedule: ScheduleColumns) -> int:
    """The most jobs that wait at a time: just after one of the submissions."""
    submit, start = np.sort(schedule.submit_s), np.sort(schedule.start_s)
    most = 0
    for begin in range(0, len(submit), _PART):
        now = submit[begin : begin + _PART]
        waiting = np.searchsorted(submit, now, side="right")
        waiting -= np.searchsorted(start, now, side="right")
        most = max(most, int(waiting.max()))
    return most


def by_class(schedule: ScheduleColumns) -> dict[str, dict[str, float]]:
    """Figures of short, medium and long jobs, by `CLASSES_S`.

    Over the jobs that started: ``jobs``, ``wait_s_mean``, ``wait_s_max`` (seconds) and
    ``bounded_slowdown_mean``; NaN, all but the first, where there are no jobs. Where jobs could be
    restarted, also ``restarts``, the number of those that were, and ``wasted_processor_s``, see
    `wasted_processor_s`.
    """
    lows = [low for low, _ in CLASSES_S.values()]

    def classes(part: ScheduleColumns, _: slice) -> IntArray:
        return np.searchsorted(lows, runtime_s(part), side="right") - 1

    return _by_group(schedule, list(CLASSES_S), classes)


def by_width(schedule: ScheduleColumns) -> dict[str, dict[str, float]]:
    """Figures of narrow, middle and wide jobs, by `WIDTHS`; as in `by_class`."""
    *most, _ = WIDTHS.values()

    def widths(part: ScheduleColumns, _: slice) -> IntArray:
        return np.searchsorted(most, share(part), side="left")

    return _by_group(schedule, list(WIDTHS), widths)


def by_user(
    schedule: ScheduleColumns, user: NDArray[np.integer[Any]], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Figures of each user, over the jobs that started; as in `by_class`.

    Parameters
    ----------
    user : integer array, shape (jobs,)
        The index of each job's user in ``names``; negative when unknown: such jobs are left out.
    names : sequence of str
        Users with no job that started are left out.
    """
    found = _by_group(schedule, names, lambda _, here: user[here])
    return {name: figures for name, figures in found.items() if figures["jobs"]}


def by_week(schedule: ScheduleColumns) -> dict[int, dict[str, float]]:
    """Figures of each week, over the jobs that started; as in `by_class`.

    A job belongs to the week of its submission. Weeks count from 0 at the first submission; those
    in which no job started are left out.
    """
    first_s = int(schedule.submit_s.min())
    found_in = [np.unique((part.submit_s - first_s) // WEEK_S) for part in _parts(schedule)]
    weeks = np.unique(np.concatenate(found_in))

    def of_week(part: ScheduleColumns, _: slice) -> IntArray:
        found: IntArray = np.searchsorted(weeks, (part.submit_s - first_s) // WEEK_S)
        return found

    found = _by_group(schedule, list(map(str, weeks.tolist())), of_week)
    return {int(week): figures for week, figures in found.items() if figures["jobs"]}


def _by_group(
    schedule: ScheduleColumns,
    names: Sequence[str],
    groups: Callable[[ScheduleColumns, slice], NDArray[np.integer[Any]]],
) -> dict[str, dict[str, float]]:
    """Figures of each group, by name; ``groups`` says the group of each job of a part, or -1."""
    sums = np.zeros((5, len(names)))
    longest_s = np.zeros(len(names), dtype=np.int64)
    for begin in range(0, len(schedule.start_s), _PART):
        here = slice(begin, begin + _PART)
        part = schedule.part(here)
        group = groups(part, here)
        counted = (group >= 0) & part.started
        columns: list[NDArray[Any] | None] = [None, wait_s(part), bounded_slowdown(part)]
        if part.lost_s is not None:
            columns += [restarted(part), held_processors(part) * lost_s(part)]
        for row, values in enumerate(columns):
            weights = None if values is None else values[counted]
            sums[row] += np.bincount(group[counted], weights, minlength=len(names))
        np.maximum.at(longest_s, group[counted], wait_s(part)[counted])
    found, nothing = {}, float("nan")
    for name, jobs, waited, slowed, restarts, wasted_s, most_s in zip(
        names, *sums.tolist(), longest_s.tolist(), strict=True
    ):
        found[name] = {
            "jobs": int(jobs),
            "wait_s_mean": waited / jobs if jobs else nothing,
            "wait_s_max": most_s if jobs else nothing,
            "bounded_slowdown_mean": slowed / jobs if jobs else nothing,
        }
        if schedule.lost_s is not None:
            found[name] |= {"restarts": int(restarts), "wasted_processor_s": int(wasted_s)}
    return found


def summary(schedule: ScheduleColumns, decision_ms: FloatArray) -> dict[str, float]:
    """Every headline figure of a run, over the jobs that started.

    Parameters
    ----------
    decision_ms : float array, shape (decisions,)
        Wall time of each dispatch, milliseconds.
    """
    whole, schedule = schedule, schedule.take(schedule.started)
    figures: dict[str, float] = {
        "jobs": len(schedule.start_s),
        "jobs_never_started": int((~whole.started).sum()),
    }
    if len(schedule.start_s):
        for values in wait_s, slowdown, bounded_slowdown, per_processor_bounded_slowdown:
            figures |= _spread(values.__name__, _of_each(schedule, values))
        figures |= {
            **_utilisations(schedule),
            "makespan_s": makespan_s(schedule),
            "throughput_per_h": throughput_per_h(schedule),
            "queue_length_mean": queue_length_mean(schedule),
            "queue_length_max": queue_length_max(schedule),
        }
        if schedule.backfilled is not None:
            figures["backfilled"] = int(schedule.backfilled.sum())
    if whole.lost_s is not None:
        figures["restarts"] = int(restarted(whole).sum())
        figures["wasted_processor_s"] = wasted_processor_s(whole)
        figures["wasted_share"] = wasted_share(whole)
    if whole.requeued is not None and whole.failed is not None:
        figures["requeues"] = int(whole.requeued.sum())
        figures["failed"] = int(whole.failed.sum())
    if whole.test is not None:
        figures["tests"] = int((whole.test != "none").sum())
        for fate in ("ended", "went_on", "killed"):
            figures[f"tests_{fate}"] = int((whole.test == fate).sum())
    figures["decisions"] = len(decision_ms)
    if len(decision_ms):
        figures["decision_ms_mean"] = float(decision_ms.mean())
        figures["decision_ms_p99"] = float(np.percentile(decision_ms, 99))
        figures["decision_ms_max"] = float(decision_ms.max())
    return figures


def _parts(schedule: ScheduleColumns) -> Iterator[ScheduleColumns]:
    """The schedule, so many jobs at a time."""
    for begin in range(0, len(schedule.start_s), _PART):
        yield schedule.part(slice(begin, begin + _PART))


def _of_each(
    schedule: ScheduleColumns, values: Callable[[ScheduleColumns], NDArray[Any]]
) -> FloatArray:
    """A value of each job."""
    found = np.empty(len(schedule.start_s))
    begin = 0
    for part in _parts(schedule):
        end = begin + len(part.start_s)
        found[begin:end] = values(part)
        begin = end
    return found


def _spread(name: str, values: FloatArray) -> dict[str, float]:
    """Figures of values, which are put into another order."""
    mean, most = float(values.mean()), float(values.max())
    median, p95, p99 = np.percentile(values, [50, 95, 99], overwrite_input=True)
    return {
        f"{name}_mean": mean,
        f"{name}_median": float(median),
        f"{name}_p95": float(p95),
        f"{name}_p99": float(p99),
        f"{name}_max": most,
    }
