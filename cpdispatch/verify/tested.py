"""What a run says of test runs against the attempts that it has."""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import BoolArray
from cpdispatch.verify.dispatches import Told
from cpdispatch.verify.tables import Findings, Schedule
from cpdispatch.verify.violation import Kind, Violation

RESULTS = ("none", "ended", "went_on", "killed")
_LENGTHS = 2
"""A job that is tested asks for more than this many lengths of a test."""


def tested(table: Schedule, results: dict[str, BoolArray], told: Told) -> list[Violation]:
    """What is wrong with the results of test runs, by result which jobs have it, shape (jobs,).

    Only a job that may be restarted is tested. One that was killed in its test has an attempt that
    was lost, and the other way round, unless attempts could also be lost otherwise. One that ended
    in its test, or went on after it, has started. Where it is known how long tests were: a job that
    was tested asks for more than two of them; one that ended lasts no longer than that, one that
    went on longer, and one that was killed just as long.
    """
    t, lost, found = table, table.lost, Findings()
    assert lost is not None
    none, ended, went_on, killed = (results[name] for name in RESULTS)
    tried, ran = lost.start_s >= 0, t.start_s >= 0
    found.add(
        Kind.TEST,
        (~(none | ended | went_on | killed)).nonzero()[0],
        lambda k: f"job {t.id[k]} has a result of a test run that does not exist",
    )
    found.add(
        Kind.TEST,
        (~none & ~lost.restartable & (not told.recorded)).nonzero()[0],
        lambda k: f"job {t.id[k]} was tested and may not be restarted",
    )
    found.add(
        Kind.TEST,
        (killed & ~tried).nonzero()[0],
        lambda k: f"job {t.id[k]} was killed in a test run, and no attempt of it was lost",
    )
    if not (told.idempotent or told.recorded):
        found.add(
            Kind.TEST,
            (tried & ~killed).nonzero()[0],
            lambda k: (
                f"job {t.id[k]} has an attempt that was lost, from {lost.start_s[k]} to "
                f"{lost.end_s[k]}, and no test run of it was killed"
            ),
        )
    o = t.outages
    before = np.zeros(len(t.id), dtype=np.bool_)
    if o is not None:
        before[o.row] = True
    before |= tried
    found.add(
        Kind.TEST,
        ((ended & ~ran & ~tried) | (went_on & ~ran & ~before)).nonzero()[0],
        lambda k: f"job {t.id[k]} was tested and never started",
    )
    if told.test_s and not told.recorded:
        _lengths(table, results, told, before, found)
    return found.all()


def _lengths(
    table: Schedule, results: dict[str, BoolArray], told: Told, before: BoolArray, found: Findings
) -> None:
    """Whether tests were as long as they are known to have been.

    ``before`` is whether an attempt of each job was lost, or stopped by a failure.
    """
    t, lost, o = table, table.lost, table.outages
    assert lost is not None
    none, ended, went_on, killed = (results[name] for name in RESULTS)
    tried, ran = lost.start_s >= 0, t.start_s >= 0
    found.add(
        Kind.TEST,
        (~none & (t.requested_s <= _LENGTHS * told.test_s)).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} was tested for {told.test_s} s and requests {t.requested_s[k]} s: "
            "too little for a test"
        ),
    )
    ran_s, lasted_s = t.end_s - t.start_s, lost.end_s - lost.start_s
    found.add(
        Kind.TEST,
        (ended & ran & ~tried & (ran_s > told.test_s)).nonzero()[0],
        lambda k: f"job {t.id[k]} ended in a test run of {told.test_s} s and runs for {ran_s[k]} s",
    )
    found.add(
        Kind.TEST,
        (went_on & ran & ~before & (ran_s <= told.test_s)).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} went on after a test run of {told.test_s} s and runs for {ran_s[k]} s"
        ),
    )
    least_s = told.test_s + (lost.cost_s if o is None else 0)
    off = (lasted_s < least_s) | (lasted_s > told.test_s + lost.cost_s)
    found.add(
        Kind.TEST,
        (killed & tried & off).nonzero()[0],
        lambda k: (
            f"job {t.id[k]} was killed in a test run of {told.test_s} s, and the attempt "
            f"that was lost lasts {lasted_s[k]} s"
            + f", {lost.cost_s} s of clearing its nodes included"
            * bool(lost.cost_s)
        ),
    )
    if o is not None and o.test.any():
        of_test_s = o.end_s - o.start_s
        found.add(
            Kind.TEST,
            (o.test & ((of_test_s > told.test_s) | ~lost.restartable[o.row])).nonzero()[0],
            lambda k: (
                f"job {t.id[o.row[k]]} is stopped in a test run of {told.test_s} s that "
                f"began {of_test_s[k]} s before"
            ),
        )
