"""Attempts at jobs that were no last ones: killed for a restart, or stopped by what happened."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.verify.once import heads
from cpdispatch.verify.service import REQUEUES, Outages, at_failure
from cpdispatch.verify.tables import Attempts, Findings, Schedule
from cpdispatch.verify.violation import Kind


def check_killed(table: Schedule, lost: Attempts, found: Findings) -> None:
    """Times of each attempt that was killed."""
    t = table
    tried = lost.start_s >= 0
    found.add(
        Kind.PLACEMENT,
        (~tried & ((lost.end_s >= 0) | (np.diff(lost.offset) > 0))).nonzero()[0],
        lambda k: f"job {t.id[k]} was never restarted, and its first attempt has an end or nodes",
    )
    found.add(
        Kind.EARLY_START,
        (tried & (lost.start_s < t.submit_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts at {lost.start_s[k]}, submitted at {t.submit_s[k]}",
    )
    found.add(
        Kind.EARLY_START,
        (tried & (t.start_s >= 0) & (t.start_s < lost.end_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts again at {t.start_s[k]}, killed at {lost.end_s[k]}",
    )
    found.add(
        Kind.RESTART,
        (tried & ~lost.restartable).nonzero()[0],
        lambda k: f"job {t.id[k]} is killed at {lost.end_s[k]} and may not be restarted",
    )
    lasted = lost.end_s - lost.start_s - lost.cost_s
    runs = np.where(t.killed, t.requested_s, t.runtime_s)
    least_s = np.zeros_like(lasted)
    if t.outages is not None:
        owner = np.repeat(np.arange(len(t.id)), np.diff(lost.offset))
        cut = at_failure(t.outages.happened, lost.node, lost.end_s[owner])
        least_s[owner[cut]] = -lost.cost_s
    found.add(
        Kind.DURATION,
        (tried & ((lasted < least_s) | (lasted >= runs))).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} runs from {lost.start_s[k]} to {lost.end_s[k]}, when it is killed for "
            f"a restart: {lasted[k]} s, it ends by itself after {runs[k]} s"
        ),
    )


def with_killed(table: Schedule, lost: Attempts) -> Schedule:
    """The schedule with the attempts that were killed for a restart as further jobs of it."""
    tried = lost.start_s >= 0
    held = np.repeat(tried, np.diff(lost.offset))
    return _with_attempts(
        table, tried.nonzero()[0], lost.start_s[tried], lost.end_s[tried],
        np.diff(lost.offset)[tried], lost.node[held], lost.node_units[held],
    )  # fmt: skip


def with_stopped(table: Schedule, outages: Outages) -> Schedule:
    """The schedule with the attempts that failed nodes ended as further jobs of it."""
    o = outages
    return _with_attempts(
        table, o.row, o.start_s, o.end_s, np.diff(o.offset), o.node, o.node_units
    )  # fmt: skip


def _with_attempts(
    table: Schedule, row: IntArray, start_s: IntArray, end_s: IntArray, lengths: IntArray,
    node: IntArray, node_units: IntArray,
) -> Schedule:  # fmt: skip
    """The schedule with attempts as further jobs of it: ``lengths`` counts the entries of each."""
    again = np.concatenate((np.arange(len(table.id)), row))
    return replace(
        table,
        id=table.id[again],
        start_s=np.concatenate((table.start_s, start_s)),
        end_s=np.concatenate((table.end_s, end_s)),
        units=table.units[again],
        requested_s=table.requested_s[again],
        request=table.request[again],
        once=None if table.once is None else table.once[again],
        head=None if table.head is None else np.concatenate((table.head, heads(lengths))),
        offset=np.concatenate(([0], np.cumsum(np.concatenate((np.diff(table.offset), lengths))))),
        node=np.concatenate((table.node, node)),
        node_units=np.concatenate((table.node_units, node_units)),
    )


def killed_rows(table: Schedule) -> IntArray:
    """The rows of the jobs of which an attempt was killed for a restart, ascending."""
    none = np.zeros(0, dtype=np.int64)
    return none if table.lost is None else (table.lost.start_s >= 0).nonzero()[0]


def _killed_times(table: Schedule) -> tuple[IntArray, IntArray, int]:
    """Start and end of the attempt at each job that was killed for a restart, and what it cost."""
    if table.lost is None:
        none = np.full(len(table.id), -1, dtype=np.int64)
        return none, none, 0
    return table.lost.start_s, table.lost.end_s, table.lost.cost_s


def _attempt(outages: Outages, table: Schedule, k: int) -> str:
    return f"job {table.id[outages.row[k]]} runs from {outages.start_s[k]} to {outages.end_s[k]}"


def check_stopped(table: Schedule, outages: Outages, found: Findings) -> None:
    """Times of each attempt that a failed node ended."""
    t, o, attempt = table, outages, partial(_attempt, outages, table)
    tried_s, free_s, cost_s = _killed_times(t)
    anew = (tried_s >= 0)[o.row] & (o.start_s >= free_s[o.row])
    runs = np.where(t.killed, t.requested_s, t.runtime_s)[o.row] - o.kept_before_s()
    runs += cost_s * anew

    found.add(
        Kind.EARLY_START,
        (o.start_s < t.submit_s[o.row]).nonzero()[0],
        lambda k: f"{attempt(k)}, submitted at {t.submit_s[o.row[k]]}",
    )
    by_time = np.lexsort((o.start_s, o.row))
    before, after = by_time[:-1], by_time[1:]
    early = (o.row[before] == o.row[after]) & (o.start_s[after] < o.end_s[before])
    found.add(
        Kind.EARLY_START,
        after[early],
        lambda k: f"{attempt(k)}, before its attempt before that has ended",
    )
    found.add(
        Kind.EARLY_START,
        ((tried_s >= 0)[o.row] & ~anew & (tried_s[o.row] < o.end_s)).nonzero()[0],
        lambda k: (
            f"{attempt(k)}, and from {tried_s[o.row[k]]} to {free_s[o.row[k]]}, when it is killed "
            "for a restart"
        ),
    )
    last_s = np.zeros(len(t.id), dtype=np.int64)
    np.maximum.at(last_s, o.row, o.end_s)
    found.add(
        Kind.EARLY_START,
        ((t.start_s >= 0) & (t.start_s < last_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} starts again at {t.start_s[k]}, stopped at {last_s[k]}",
    )
    lasted = o.end_s - o.start_s
    found.add(
        Kind.DURATION,
        ((lasted < 0) | (lasted >= runs)).nonzero()[0],
        lambda k: f"{attempt(k)}, when a node fails: it ends by itself after {runs[k]} s",
    )
    kept = lasted // o.period_s * o.period_s if o.period_s else np.zeros_like(lasted)
    found.add(
        Kind.RESTART,
        (o.saved_s != kept).nonzero()[0],
        lambda k: f"{attempt(k)}: {o.saved_s[k]} s of it are kept, {kept[k]} s by its checkpoints",
    )


def check_requeued(table: Schedule, outages: Outages, found: Findings) -> None:
    """How often each job was queued again because a node failed, and which jobs end as failed."""
    t, o = table, outages
    times = np.bincount(o.row, minlength=len(t.id))
    found.add(
        Kind.RESTART,
        (times != o.requeued).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} was queued again {o.requeued[k]} times by the table of jobs, and has "
            f"{times[k]} attempts"
        ),
    )
    found.add(
        Kind.RESTART,
        (times > np.where(o.may_requeue, REQUEUES, 0)).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} is queued again {times[k]} times, allowed "
            f"{REQUEUES if o.may_requeue[k] else 0}"
        ),
    )
    tried_s, _, cost_s = _killed_times(t)
    of_job = np.where(t.killed, t.requested_s, t.runtime_s) - o.kept_s() + cost_s * (tried_s >= 0)
    ran_s = t.end_s - t.start_s
    wrong = (t.start_s < 0) | t.killed | (ran_s < 0) | (ran_s >= of_job)
    found.add(
        Kind.DURATION,
        (o.failed & wrong).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} ends as failed and runs from {t.start_s[k]} to {t.end_s[k]}: "
            f"{ran_s[k]} s, it ends by itself after {of_job[k]} s"
        ),
    )
    found.add(
        Kind.RESTART,
        (o.failed & o.may_requeue & (times < REQUEUES)).nonzero()[0],
        lambda k: f"job {t.id[k]} ends as failed and could have been queued again",
    )


def check_failures(table: Schedule, outages: Outages, found: Findings) -> None:
    """Whether a node failed when an attempt was stopped, and when a job ended as failed."""
    t, o, attempt = table, outages, partial(_attempt, outages, table)
    owner = np.repeat(np.arange(len(o.row)), np.diff(o.offset))
    stopped = np.zeros(len(o.row), dtype=np.bool_)
    stopped[owner[at_failure(o.happened, o.node, o.end_s[owner])]] = True
    found.add(
        Kind.RESTART,
        (~stopped).nonzero()[0],
        lambda k: f"{attempt(k)} and is queued again, and none of its nodes failed then",
    )
    owner = np.repeat(np.arange(len(t.id)), np.diff(t.offset))
    ended = np.zeros(len(t.id), dtype=np.bool_)
    ended[owner[at_failure(o.happened, t.node, t.end_s[owner])]] = True
    found.add(
        Kind.RESTART,
        (o.failed & ~ended).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} ends as failed at {t.end_s[k]}, and none of its nodes failed then"
        ),
    )
