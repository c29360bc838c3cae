"""New workloads from the weeks of a log's users, and the log's weeks one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from cpdispatch.arrays import IntArray, ranges, sealed
from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import UNKNOWN, Column, JobTable, Terms, Workload
from cpdispatch.parameters import whole
from cpdispatch.workloads.clock import DAY_S, WEEK_S, header, midnight_s, wall_s

Presence = Literal["log", "always"]
WEEKS_MAX = 100_000
INCOMPLETE = "left out: submitted in an incomplete last week"
DRAWS_MAX = 50_000_000
"""Most weeks times users, all of which are drawn at once."""


def weeks(workload: Workload) -> list[Workload]:
    """Split a log into its weeks: each job belongs to the week of its submission.

    Weeks are counted in local time from midnight before the first submission. The last one is
    left out unless a job is submitted in its last day: the log ended before the week did. Jobs
    keep their ids, times and dependencies; a week without jobs is left out.

    Raises
    ------
    InputError
        When the log is shorter than a week.
    """
    week, count = _weeks_of(workload)
    found = np.unique(week[week < count]).tolist()
    return [
        replace(workload.take(np.flatnonzero(week == k)), name=f"{workload.name}-week-{k + 1}")
        for k in found
    ]


def resample(workload: Workload, weeks: int, seed: int = 0, presence: Presence = "log") -> Workload:
    """Make weeks of each user's weeks, drawn at random and independently of other users.

    Each user of the log gets, for every week that is made, one of the log's weeks, and submits
    what was his in it, at the same local time of the same weekday. What else a job says is as in
    the log, but for ids, which are new, begin times, which move with the submissions, arrays,
    which are others in every week that is made, and dependencies, which are unknown, since they
    would name jobs of other weeks. The log's weeks are those of `weeks`. Time 0 of the result is
    midnight before the log's first submission, and its header says so.

    Jobs whose user is unknown are drawn together, as if one user had submitted them: a log
    without users is resampled by whole weeks.

    Parameters
    ----------
    workload : Workload
    weeks : int
        How many to make.
    seed : int
    presence : {"log", "always"}
        A user is active in the log from the first to the last week in which he submits. With
        ``log`` he draws from all weeks of the log, also from those in which he was not active: he
        is there as often as in the log, whose load is kept in the mean. With ``always`` he draws
        from his active weeks only: all users are there all the time, and the load is higher.

    Returns
    -------
    Workload
        Its ``notes`` count the log's jobs that stood in an incomplete last week, and those
        whose user is unknown.

    Raises
    ------
    UsageError
        When a number is out of range.
    InputError
        When the log is shorter than a week, or no job was drawn.

    References
    ----------
    N. Zakay and D. G. Feitelson, "Workload resampling for performance evaluation of parallel job
    schedulers", Concurrency and Computation: Practice and Experience 26 (2014). J. Lelong,
    V. Reis, D. Trystram, "Tuning EASY-backfilling queues", JSSPP 2017.
    """
    whole("weeks", weeks, 1, WEEKS_MAX)
    whole("seed", seed)
    if presence not in get_args(Presence):
        raise UsageError(f"presence {presence!r}: one of {', '.join(get_args(Presence))}")
    week, count = _weeks_of(workload)
    positions = np.flatnonzero(week < count)
    users, of_user = np.unique(workload.table.column(Column.USER)[positions], return_inverse=True)
    if len(users) * weeks > DRAWS_MAX:
        raise UsageError(
            f"weeks {weeks}: with {len(users):,} users, {DRAWS_MAX // len(users):,} can be made"
        )
    first, active = _active(week[positions], of_user, len(users), count, presence)
    share = np.random.Generator(np.random.PCG64(seed)).random((len(users), weeks))
    drawn = first[:, None] + (share * active[:, None]).astype(np.int64)

    key = of_user * count + week[positions]
    order = np.argsort(key, kind="stable")
    wanted = (np.arange(len(users))[:, None] * count + drawn).ravel()
    begin = np.searchsorted(key[order], wanted)
    taken = np.searchsorted(key[order], wanted, side="right") - begin
    picked = positions[order[ranges(begin, taken)]]
    made = np.repeat(np.tile(np.arange(weeks), len(users)), taken)
    if not len(picked):
        raise InputError(
            f"no user was active in the {weeks} weeks that were drawn", file=workload.name,
            advice="make more weeks, or take another seed",
        )  # fmt: skip
    submit_s = wall_s(workload)[picked] - midnight_s(workload) + (made - week[picked]) * WEEK_S
    return _workload(workload, picked, made, submit_s, {
        INCOMPLETE: len(week) - len(positions),
        "user unknown, resampled as one user": int(np.count_nonzero(
            workload.table.column(Column.USER)[positions] == UNKNOWN
        )),
    })  # fmt: skip


def left_out(workload: Workload) -> int:
    """How many jobs `weeks` and `resample` leave out: those of an incomplete last week."""
    week, count = _weeks_of(workload)
    return int(np.count_nonzero(week >= count))


def weeks_covered(workload: Workload) -> int:
    """How many weeks a log covers; of the last one, six days are enough."""
    local_s = wall_s(workload) - midnight_s(workload)
    return (int(local_s.max()) + DAY_S) // WEEK_S


def _weeks_of(workload: Workload) -> tuple[IntArray, int]:
    """The week of each job, shape (jobs,), and how many weeks the log covers."""
    local_s = wall_s(workload) - midnight_s(workload)
    week = local_s // WEEK_S
    count = weeks_covered(workload)
    if count == 0:
        raise InputError(
            f"the log spans {np.ptp(local_s) / DAY_S:.1f} days, shorter than a week",
            file=workload.name,
            advice="take a longer log",
        )
    return week, count


def _active(
    week: IntArray, of_user: IntArray, users: int, count: int, presence: Presence
) -> tuple[IntArray, IntArray]:
    """The first week that each user draws from, and how many follow; shape (users,) each."""
    if presence == "log":
        return np.zeros(users, dtype=np.int64), np.full(users, count, dtype=np.int64)
    first = np.full(users, count, dtype=np.int64)
    last = np.zeros(users, dtype=np.int64)
    np.minimum.at(first, of_user, week)
    np.maximum.at(last, of_user, week)
    return first, last - first + 1


def moved(begin_s: IntArray | None, by_s: IntArray | int) -> IntArray | None:
    """When jobs may start that are submitted so much later than they were, seconds."""
    if begin_s is None:
        return None
    return np.where(begin_s < 0, UNKNOWN, np.maximum(begin_s + by_s, UNKNOWN))


def _workload(
    source: Workload, picked: IntArray, week: IntArray, submit_s: IntArray, notes: dict[str, int]
) -> Workload:
    order = np.lexsort((picked, submit_s))
    picked, week, submit_s = picked[order], week[order], submit_s[order]
    block = source.table.take(picked).block.copy()
    by_s = submit_s - block[Column.SUBMIT]
    block[Column.ID] = np.arange(1, len(picked) + 1)
    block[Column.SUBMIT] = submit_s
    made = source.take(picked, JobTable(block, source.table.labels))
    unknown = sealed(np.full(len(picked), UNKNOWN, dtype=np.int64))
    terms, terms_of = _arrays_apart(made, week)
    return replace(
        made,
        name=f"{source.name}-resampled",
        preceding=unknown,
        think_s=unknown,
        notes=source.notes | {rule: jobs for rule, jobs in notes.items() if jobs},
        header=header(
            source.header, midnight_s(source), f"weeks of the users of {source.name}, resampled"
        ),
        terms=terms,
        terms_of=terms_of,
        begin_s=moved(made.begin_s, by_s),
    )


def _arrays_apart(made: Workload, week: IntArray) -> tuple[tuple[Terms, ...], IntArray | None]:
    """The terms with an array of its own for each week that was made: a limit is for one of them.

    And which of these each job has.
    """
    in_array = np.array([bool(terms.array) for terms in made.terms])
    if made.terms_of is None or not in_array.any():
        return made.terms, made.terms_of
    apart = np.stack([made.terms_of, np.where(in_array[made.terms_of], week + 1, 0)])
    kinds, of = np.unique(apart, axis=1, return_inverse=True)
    terms = tuple(
        replace(made.terms[k], array=f"{made.terms[k].array}-week-{number}")
        if number else made.terms[k]
        for k, number in kinds.T.tolist()
    )  # fmt: skip
    return terms, of.reshape(-1).astype(np.int64)
