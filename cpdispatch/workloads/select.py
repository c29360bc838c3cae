"""Parts of a log: its first jobs, or those submitted in a span of dates."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload
from cpdispatch.parameters import whole
from cpdispatch.workloads.clock import began_s, moment_s


def select(
    workload: Workload, jobs: int | None = None, since: str = "", until: str = ""
) -> Workload:
    """The jobs submitted from ``since`` on and before ``until``, the first ``jobs`` of them.

    Parameters
    ----------
    since, until : str
        ISO dates or date-times, UTC. They need a log that says when it began: by UnixStartTime in
        its header, or by submissions in seconds since 1970.

    Raises
    ------
    UsageError
        When a date cannot be read, or ``jobs`` is no whole number from 1 on.
    InputError
        When the log does not say when it began, or no job is left.
    """
    if jobs is not None:
        jobs = whole("--jobs", jobs, 1)
    submit = workload.table.submit_s
    low = 0 if not since else int(np.searchsorted(submit, _offset_s(workload, since)))
    high = len(submit) if not until else int(np.searchsorted(submit, _offset_s(workload, until)))
    if jobs is not None:
        high = min(high, low + jobs)
    if low == 0 and high == len(submit):
        return workload
    if since and until and _offset_s(workload, since) >= _offset_s(workload, until):
        raise UsageError(f"--from {since} is not before --to {until}")
    if low >= high:
        span = ""
        if len(submit) and (start_s := began_s(workload)) is not None:
            first, last = (
                datetime.fromtimestamp(start_s + int(at_s), UTC).date() for at_s in submit[[0, -1]]
            )
            span = f"the log has jobs from {first} to {last}"
        raise InputError(
            f"no job was submitted from {since or 'the beginning'} to {until or 'the end'}",
            file=workload.name, advice=span,
        )  # fmt: skip
    # The notes were counted before the part was taken.
    notes = {f"{rule}, in the whole log": count for rule, count in workload.notes.items()}
    return replace(workload.take(np.arange(low, high)), notes=notes)


def _offset_s(workload: Workload, date: str) -> int:
    """Seconds of the log's clock at a date."""
    at_s, start_s = moment_s(date), began_s(workload)
    if start_s is not None:
        return at_s - start_s
    raise InputError(
        "the log does not say when it began, so dates mean nothing in it; the header of SWF says "
        "so (UnixStartTime), or submissions that count the seconds since 1970",
        file=workload.name,
        advice="use --jobs",
    )
