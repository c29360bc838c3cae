"""Why jobs of a run started, where that can be said from when they did."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.system import System
from cpdispatch.verify.schedules import fit_beside_nothing
from cpdispatch.verify.tables import Findings, Schedule
from cpdispatch.verify.violation import Kind, Violation
from cpdispatch.verify.waits import WaitRules, share

_NEVER = np.iinfo(np.int64).max


def unstarted(table: Schedule, system: System, rejects: bool) -> list[Violation]:
    """Reasons of jobs that never started, where a simulation gave them.

    It lets no job into the queue that asks for more than the whole system has, or than a limit
    allows. ``rejects`` is whether the dispatcher may have refused jobs.
    """
    t, found = table, Findings()
    out = t.start_s < 0
    says = "job {} never started and has the reason {}"
    found.add(
        Kind.REASON,
        (out & t.of_start).nonzero()[0],
        lambda k: says.format(t.id[k], t.reason[k]),
    )
    refused = out & t.rejected & (not rejects)
    found.add(
        Kind.REASON,
        refused.nonzero()[0],
        lambda k: says.format(t.id[k], t.reason[k]) + ", and its dispatcher refuses none",
    )
    others = (out & ~t.never_fits & ~t.of_start & ~refused).nonzero()[0]
    never = ~fit_beside_nothing(t, system.capacity, others)
    if t.beyond is not None:
        never |= t.beyond[others]
    found.add(
        Kind.REASON,
        others[never],
        lambda k: (
            says.format(t.id[k], t.reason[k])
            + ": it asks for more than the system has, or than a limit allows"
        ),
    )
    return found.all()


def late_ones(
    table: Schedule, system: System, late: BoolArray, in_turn: BoolArray,
    time_s: IntArray, easy_wait_s: FloatArray, rules: WaitRules,
) -> list[Violation]:  # fmt: skip
    """Jobs that are called late and had not waited too long, or started in their turn and had.

    Parameters
    ----------
    late, in_turn : bool array, shape (jobs,)
        Which jobs started for being late, and which in their turn.
    time_s, easy_wait_s
        See `cpdispatch.verify.waits.waits`.
    """
    t, found = table, Findings()
    head = np.append(True, time_s[1:] != time_s[:-1])[: len(time_s)].nonzero()[0]
    row = (late | in_turn).nonzero()[0]
    at = np.searchsorted(time_s[head], t.start_s[row])
    there = at < len(head)
    there[there] = time_s[head][at[there]] == t.start_s[row][there]
    row, at = row[there], at[there]
    waited_s = t.start_s[row] - t.submit_s[row]
    kept = 1000 - rules.wide * share(t, system)[row] // 1000
    if not len(row):
        return []
    # A decision that did not look at waits finds no job late.
    unknown = np.isnan(easy_wait_s)
    least_s = np.minimum.reduceat(np.where(unknown, 2.0**60, easy_wait_s), head)[at]
    most_s = np.maximum.reduceat(np.where(unknown, 2.0**60, easy_wait_s), head)[at]
    allowed_s, at_most_s = (
        (of.astype(np.int64) * rules.in_turn_after // 1000) * kept // 1000
        for of in (np.minimum(least_s, 2.0**42), np.minimum(most_s, 2.0**42))
    )
    found.add(
        Kind.REASON,
        (late[row] & (waited_s <= allowed_s)).nonzero()[0],
        lambda k: (
            f"job {t.id[row[k]]} starts at {t.start_s[row[k]]} for being late after "
            f"{waited_s[k]} s: it is late after more than {allowed_s[k]} s"
        ),
    )
    found.add(
        Kind.REASON,
        (in_turn[row] & (waited_s > at_most_s)).nonzero()[0],
        lambda k: (
            f"job {t.id[row[k]]} starts at {t.start_s[row[k]]} in its turn after "
            f"{waited_s[k]} s: it is late after more than {at_most_s[k]} s"
        ),
    )
    return found.all()


def called_late(table: Schedule, late: BoolArray) -> list[Violation]:
    """Jobs that are called late where waits were not bounded."""
    return _amiss(table, late, "starts at {} for being late, and no wait was bounded")


def in_order(table: Schedule, backfilled: BoolArray) -> list[Violation]:
    """Backfilled jobs where the queue's order is strict."""
    return _amiss(table, backfilled, "is backfilled at {}, and no job may pass another")


def alone(table: Schedule, backfilled: BoolArray, waiting: IntArray) -> list[Violation]:
    """Backfilled jobs when no other waited.

    ``waiting`` is how many jobs at most waited after each job had started, shape (jobs,).
    """
    passed_none = backfilled & (waiting <= 0)
    return _amiss(table, passed_none, "is backfilled at {}, when no other job waits")


def _amiss(table: Schedule, which: BoolArray, says: str) -> list[Violation]:
    """Jobs whose reasons are wrong; ``says`` has a place for the start."""
    t, found = table, Findings()
    found.add(
        Kind.REASON, which.nonzero()[0], lambda k: f"job {t.id[k]} {says.format(t.start_s[k])}"
    )
    return found.all()


def by_submission(
    table: Schedule, backfilled: BoolArray, in_turn: BoolArray, several_s: IntArray
) -> list[Violation]:
    """Reasons of jobs whose turn is by submission, those of one second by their rows.

    One that is backfilled leaves one behind that was submitted before, one that starts in its turn
    does not. ``several_s`` are the times with several decisions.
    """
    t, found = table, Findings()
    able = ~(t.never_fits | t.rejected)
    row = np.flatnonzero(able)[np.argsort(t.submit_s[able], kind="stable")]
    start_s = np.where(t.start_s[row] < 0, _NEVER, t.start_s[row])
    last_s = np.append(-1, np.maximum.accumulate(start_s)[:-1])[: len(row)]
    before_s = np.empty(len(t.id), dtype=np.int64)
    before_s[row] = last_s
    ahead = before_s > t.start_s
    found.add(
        Kind.REASON,
        (in_turn & able & ahead).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} starts at {t.start_s[k]} in its turn, ahead of one that was "
            "submitted before and still waits"
        ),
    )
    behind = ~ahead & ~((before_s == t.start_s) & np.isin(t.start_s, several_s))
    found.add(
        Kind.REASON,
        (backfilled & able & behind).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} is backfilled at {t.start_s[k]}, when no job waits that was "
            "submitted before"
        ),
    )
    return found.all()


def by_duration(table: Schedule, expected_s: IntArray, *, longest: bool) -> list[Violation]:
    """Jobs that start while one waits that comes before them by its expected duration.

    Of jobs that are expected to run equally long, the one that was submitted first comes first; of
    those of one second nothing is said. ``longest`` is whether long jobs come first.
    """
    t, found = table, Findings()
    key, out = -expected_s if longest else expected_s, t.never_fits | t.rejected
    comes = np.flatnonzero(~out)[np.argsort(t.submit_s[~out], kind="stable")]
    starts = np.flatnonzero(t.start_s >= 0)
    starts = starts[np.argsort(t.start_s[starts], kind="stable")]
    until_s = np.where(t.start_s < 0, _NEVER, t.start_s).tolist()
    rank = list(zip(key.tolist(), t.submit_s.tolist(), strict=True))
    waiting: list[tuple[tuple[int, int], int]] = []
    amiss, ahead, at = [], {}, 0
    for k in starts.tolist():
        while at < len(comes) and rank[comes[at]][1] <= until_s[k]:
            heappush(waiting, (rank[comes[at]], int(comes[at])))
            at += 1
        while waiting and until_s[waiting[0][1]] <= until_s[k]:
            heappop(waiting)
        if waiting and waiting[0][0] < rank[k]:
            amiss.append(k)
            ahead[k] = waiting[0][1]
    found.add(
        Kind.REASON,
        np.array(amiss, dtype=np.int64),
        lambda k: (
            f"job {t.id[k]}, expected to run {expected_s[k]} s, starts at {t.start_s[k]}, ahead of "
            f"job {t.id[ahead[k]]}, which is expected to run {expected_s[ahead[k]]} s and waits"
        ),
    )
    return found.all()
