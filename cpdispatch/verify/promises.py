"""Promised starts of a run against what became of its jobs."""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.verify.dispatches import several
from cpdispatch.verify.tables import Findings, Schedule
from cpdispatch.verify.violation import Kind, Violation


def promises(
    table: Schedule, columns: list[IntArray], came_s: IntArray, decided_s: IntArray | None,
    kept: bool,
) -> list[Violation]:  # fmt: skip
    """What is wrong with the first promise of a later start to each job.

    It was made to a job of the table, once, in a decision, while the job waited, and is a start
    after that decision. Where promises are ``kept``, the job starts no later.

    Parameters
    ----------
    columns : list of int64 array
        Ids, when each job was promised a start, and that start; shape (promises,).
    came_s : int64 array, shape (jobs,)
        When each job came into the queue.
    decided_s : int64 array, shape (decisions,), or None
        When decisions were; None where others than these promised.
    """
    t, found = table, Findings()
    id, at_s, promised_s = columns
    by_id = np.argsort(t.id, kind="stable")
    row = by_id[np.minimum(np.searchsorted(t.id[by_id], id), len(t.id) - 1)]
    known = t.id[row] == id
    found.add(
        Kind.UNKNOWN_JOB,
        (~known).nonzero()[0],
        lambda k: f"job {id[k]} is promised a start, and the table of jobs lacks it",
    )
    ids = np.sort(id)
    found.add(
        Kind.PROMISE,
        np.unique(ids[1:][ids[1:] == ids[:-1]]),
        lambda job: f"job {job} has two promises",
    )
    least_s = at_s + (decided_s is not None)
    found.add(
        Kind.PROMISE,
        (promised_s < least_s).nonzero()[0],
        lambda k: f"job {id[k]} is promised at {at_s[k]} to start at {promised_s[k]}",
    )
    started_s = np.where(t.start_s < 0, np.iinfo(np.int64).max, t.start_s)[row]
    amiss = known & ((at_s < came_s[row]) | (at_s > started_s))
    if decided_s is not None:  # a later decision of the same second may have started it
        amiss |= known & (at_s == started_s) & ~np.isin(at_s, several(np.sort(decided_s)))
    found.add(
        Kind.PROMISE,
        amiss.nonzero()[0],
        lambda k: (
            f"job {id[k]} is promised a start at {at_s[k]}, when it does not wait: it comes "
            f"at {came_s[row[k]]} and starts at {t.start_s[row[k]]}"
        ),
    )
    if decided_s is not None:
        found.add(
            Kind.PROMISE,
            (~np.isin(at_s, decided_s)).nonzero()[0],
            lambda k: f"job {id[k]} is promised a start at {at_s[k]}, when no decision is",
        )
    if kept:
        found.add(
            Kind.PROMISE,
            (known & (started_s > promised_s)).nonzero()[0],
            lambda k: (
                f"job {id[k]} is promised at {at_s[k]} to start at {promised_s[k]}, and "
                + (f"starts at {t.start_s[row[k]]}" if t.start_s[row[k]] >= 0 else "never starts")
            ),
        )
    return found.all()
