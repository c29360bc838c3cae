"""Weeks to learn on and weeks to test on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cpdispatch.errors import InputError
from cpdispatch.jobs import Column, Workload
from cpdispatch.simulator.gates import runnable
from cpdispatch.system import System
from cpdispatch.workloads import resample
from cpdispatch.workloads.clock import DAY_S, WEEK_S

TRAIN, TEST = "train", "test"
HALVES = (TRAIN, TEST)
NAMES = {TRAIN: "training", TEST: "test"}
MANY = 10_000_000
"""Most of what is drawn: a mistyped number must not ask for more memory than there is."""


def halves(workload: Workload) -> dict[str, Workload]:
    """Split a log at its temporal midpoint, into a half to learn from and a half for tests.

    Raises
    ------
    InputError
        When the log is shorter than two weeks, or a half of it holds less than one.
    """
    submit = workload.table.submit_s
    span_s = int(submit[-1] - submit[0])
    if span_s < 2 * WEEK_S:
        raise InputError(
            f"the log spans {span_s / DAY_S:.1f} days: a week to learn on and a week to test on "
            "are needed",
            file=workload.name,
            advice="use a log of two weeks or more",
        )
    middle = int(np.searchsorted(submit, submit[0] + (span_s + 1) // 2))
    # The first job is in the first half and the last in the second, whatever is between.
    parts = (np.arange(middle), np.arange(middle, len(workload)))
    found = {half: workload.take(part) for half, part in zip(HALVES, parts, strict=True)}
    for number, half in zip(("first", "second"), found.values(), strict=True):
        if resample.weeks_covered(half) == 0:
            days = np.ptp(half.table.submit_s) / DAY_S
            raise InputError(
                f"the jobs of its {number} half are submitted within {days:.1f} days: a week to "
                "learn on and a week to test on are needed",
                file=workload.name,
                advice="use a log, or a part of one (--from, --to), with jobs all the time",
            )
    return found


def left_out(parts: Mapping[str, Workload]) -> dict[str, int]:
    """How many jobs of each half are in none of its weeks: the last one is incomplete."""
    return {half: resample.left_out(part) for half, part in parts.items()}


def notes_of(left_out: Mapping[str, int]) -> list[str]:
    """What `left_out` found, in words."""
    return [
        f"{resample.INCOMPLETE} of the {NAMES[half]} half: {jobs:,} job{'s' * (jobs != 1)}"
        for half, jobs in left_out.items()
        if jobs
    ]


def consecutive(workload: Workload) -> list[Workload]:
    """The weeks of a log one after the other, each on a clock that starts with its first job."""
    return [rebased(week, int(week.table.submit_s[0])) for week in resample.weeks(workload)]


def made_up(workload: Workload, count: int, seed: int) -> list[Workload]:
    """Weeks made up of a log's users, of each a random week of that user's.

    Each is on a clock that starts with the week; a week in which nobody was active is left out.

    References
    ----------
    Lelong, Reis, Trystram, "Tuning EASY-Backfilling Queues", JSSPP 2017.
    """
    made = resample.resample(workload, count, seed)
    week = made.table.submit_s // WEEK_S
    return [
        rebased(made.take(np.flatnonzero(week == number)), int(number) * WEEK_S)
        for number in np.unique(week)
    ]


def with_jobs(weeks: list[Workload], system: System) -> list[Workload]:
    """The weeks in which some job fits the system and its limits: in others nothing is measured.

    Raises
    ------
    InputError
        When there is no such week.
    """
    found = [week for week in weeks if runnable(week, system).any()]
    if weeks and not found:
        raise InputError("no job of it fits the system", file=weeks[0].name)
    return found


def rebased(workload: Workload, origin_s: int) -> Workload:
    """The same jobs on a clock that shows 0 at ``origin_s``."""
    table = workload.table.having(Column.SUBMIT, workload.table.submit_s - origin_s)
    return replace(workload, table=table, begin_s=resample.moved(workload.begin_s, -origin_s))
