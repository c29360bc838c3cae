"""Where compiled replays keep what: records of scalars with named fields, and arrays of int64.

Kernels take the arrays one by one: taking them out of tuples counts references, which made a replay
four times as slow. Records are passed by address. A replay can be left after any number of events,
looked at, saved, and gone on with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compiled import fields
from cpdispatch.compiled.fields import Record
from cpdispatch.decision import Reason

NEVER, ALWAYS = int(np.iinfo(np.int64).max), int(np.iinfo(np.int64).min)
"""Times after and before all others."""
IN_TURN, BACKFILLED, WAITS = int(Reason.STARTED), int(Reason.BACKFILLED), int(Reason.WAITS)
REJECTED, WAS_LATE = int(Reason.REJECTED), int(Reason.LATE)

REJECT = -1
"""The reservation depth of the dispatcher that refuses every job."""


class Marks(Record):
    """Where a queue begins and ends in its arrays, and which of its jobs may be late."""

    head: int
    """No job waits before this place. Brought up to date by each dispatch in the primary queue; 0
    in the secondary one, and where gaps have been closed."""
    tail: int
    """The place behind its last job. Jobs that have started stay in it until there are many of
    them, see `queue.tidy`."""
    first_on_time: int
    """The first job that has not passed the fixed threshold; the primary queue's alone. All jobs
    before it have been moved to the front, or do not wait."""


class State(Record):
    """The scalars of a replay. Unless said otherwise, they are up to date between two kernels."""

    now: int
    """The clock, seconds. It is set when an event begins."""
    submitted: int
    """How many jobs have been submitted: the number of the next one. Behind a gate they count."""
    queued: int
    """How many jobs wait in the queues; jobs behind the gate are not in them. A dispatch takes off
    what it has started when it ends."""
    running: int
    """How many jobs run: the length of the list of running jobs."""
    next_serial: int
    """The serial number of the next completion to come. Each start takes one, and so does the
    clearing of nodes after a kill."""
    pending: int
    """How many completions are to come: the size of their heap."""
    free: int
    """Free processors; on nodes, of the first resource type."""
    dispatches: int
    """How many dispatches there have been."""
    current_job: int
    """The job whose key was computed last: the one to name when a user's policy fails."""
    entries: int
    """How many entries of placements are in use. Entries of ended jobs are not used again."""
    node_changes: int
    """How often the free capacity of a node has changed; see `nodes.Nodes.log`."""
    blocked: int
    """The job that was blocked at the last dispatch, -1 if that says nothing any more: since then
    a job has ended or started, or an expected end or the order has changed. While it stands, no
    job that waited then can start now."""
    shadow_time: int
    """When the blocked job can start. On nodes alone, and only if `shadow_time_known`."""
    shadow_time_known: bool
    """Whether the shadow time is that of the blocked job and up to date. `nodes` sets it."""
    both_known: bool
    """Whether `nodes.Nodes.both` is up to date. `nodes` sets it."""
    submitted_before: int
    """What `submitted` was at the last dispatch."""
    ahead_job: int
    """The job for which `nodes.Nodes.ahead` is kept up to date, -1 for none. It outlives
    dispatches: while the same job is blocked, its shadow time is only moved."""
    ahead_rooms: int
    """How many units of that job fit at the shadow time."""
    shadow_may_be_sooner: bool
    """Whether a job has ended since that was expected to end at the shadow time or later. Then the
    shadow time is looked for before where it was, too."""
    both_changes: int
    """How often `nodes.Nodes.both` has changed."""
    duration_row: int
    """The row of the outcome that says how long jobs are taken to last now: `EXPECTED`, `UPPER` or
    `LIMIT`. Set at the start, and at each dispatch if there is a `Caution`."""
    oldest_waiting: int
    """No job before this one waits in a queue. Kept only where there is a `Caution`."""
    predicted: int
    """How many jobs have been predicted. Before the next one is submitted, the loop is left."""
    left_to_do: int
    """What is still to be done of the event in which the loop was left, see `NOTHING_LEFT`."""
    none_late_until: int
    """Up to this time no job on time becomes late under a wait bound. `NEVER` if none waits."""
    easy_numbers: int
    """How many numbers have been given to jobs in the replay of EASY beside this one."""
    tiered: bool
    """Whether jobs are of several tiers. Constant."""
    primary: Marks
    secondary: Marks


class Threshold(Record):
    """After which wait a job is late, see `queue.late_after`."""

    seconds: int
    """The wait of a job that asks for next to nothing; `NO_THRESHOLD` if no job is ever late."""
    wide: int
    """For a job that asks for the whole system it is shorter by so many thousandths."""


class QueueRule(Record):
    """The order of a queue."""

    policy: int
    """One of `cpdispatch.heuristics.policies.Policy`. Constant."""
    changes: bool
    """Whether keys change while jobs wait. Constant. Then they are computed at each dispatch."""
    threshold: Threshold
    """After which wait a job comes before all that are not late. Under a wait bound each dispatch
    sets it anew, else it is constant."""


class Rule(Record):
    """What kernels need of the dispatcher and of the simulation's rules. Constant."""

    primary: QueueRule
    secondary: QueueRule
    one_queue: bool
    """Whether both orders are the same: then the primary queue serves as the secondary one."""
    depth: int
    """How many blocked jobs get a reservation; `REJECT` refuses every job."""
    best_fit: bool
    """Whether nodes are taken by best fit instead of first fit."""
    by_event: bool
    """Whether the dispatcher is called at each event instead of once an instant."""
    correction: int
    """One of `correction.CORRECTIONS`."""
    in_turn_after: int
    """The primary threshold under a wait bound, in thousandths of the longest wait under EASY; 0
    where thresholds are fixed."""


class Caution(Record):
    """How long jobs are taken to last, where that is not their expected duration.

    Constant, apart from the thresholds under a wait bound, which follow the primary one.
    """

    duration_row: int
    """The row of the outcome that says it as a rule: `UPPER` or `LIMIT`."""
    strict_after_s: int
    """Once a job has waited longer, all jobs are taken to last as requested."""
    keeps_free: bool
    """Whether long jobs have to leave capacity free when they start."""
    long_s: int
    """Jobs with a longer expected duration are long."""
    patience: Threshold
    """After which wait a long job need leave nothing free."""
    spare: int
    """How many processors of a pool are left free; nodes have `nodes.Nodes.spare`."""
    total: int
    """How many processors the pool has."""


# Why the loop has been left: all its events have been used up, the replay is over, the next jobs
# have to be predicted, the shadow has no room for more jobs, jobs have outlived their tests.
USED_UP, OVER, UNPREDICTED, NO_ROOM, OUTLIVED = range(5)

# What is still to be done of the event in which the loop has been left: nothing that the next one
# does not see, the dispatch, everything after the completions.
NOTHING_LEFT, DISPATCH_LEFT, QUEUE_LEFT = range(3)

# What is known of the jobs, in the order of submission: submission, processors (units times the
# request of the first resource type), requested time, runtime (cut at the limit, if there is
# one), units, which vector of requests a unit has, and which pair of these two the job is.
SUBMIT, NEED, REQUESTED, RUNTIME, UNITS, SHAPE, KIND = range(7)

# Where waits are bounded also the share of the system that it asks for, in thousandths, and its
# processors on a pool; see `cpdispatch.jobs.largest_share` and `on_pool`.
SHARE, ON_POOL = 7, 8

# The site's priority, and the tier if jobs are of several ones; higher first.
PRIORITY, TIER = 9, 10

# What becomes of the jobs: expected duration at submission, start (`NEVER` while a job is behind
# the gate of a system with limits), end (both -1 until known), reason,
# expected end while it runs and how often that was corrected, its first placement entry and
# how many there are. Where jobs are not taken to last as expected, also how long they probably
# last at most, which is written before they are submitted, and their requested time; neither is
# less than the expected duration. Then running jobs end at their requested times, which is what
# their expected end is.
EXPECTED, START, END, REASON, DUE_OF, STEP, FIRST, COUNT, UPPER, LIMIT = range(10)

# Where waits are bounded also by which number the replay of EASY beside it knows the job.
TURN = 10

LASTING = {"expected": EXPECTED, "upper": UPPER, "requested": LIMIT}
"""The row that says how long jobs are taken to last, by `Backfill.limits`."""

# The running jobs by ascending expected end (job, that end, processors); a binary heap of the
# completions to come (end, serial number); the job of each serial number, or -1 - job where a
# completion is that of the nodes of a killed job being cleared. Where someone follows the replay,
# also the jobs in the order of their completions, and how many had started before each: -1 - job
# where a job was stopped, `CLEARED` where nodes had been cleared.
JOB, DUE, HELD, HEAP_END, HEAP_SERIAL, BY_SERIAL, COMPLETED, BEFORE = range(8)
CLEARED = ALWAYS

# A queue by ascending (key, job), or as `queue.goes_before` says where jobs are of several tiers:
# the job, and its processors on a pool, on nodes what `nodes.wanted` says of it.
WHO, WANTS = range(2)


class Tables(NamedTuple):
    """The state of a replay, in the order in which `loop.go` takes it."""

    state: State
    given: IntArray
    fate: IntArray
    first: IntArray
    """The queue in the primary order."""
    first_key: FloatArray
    second: IntArray
    """The queue in the secondary order, unless one serves both."""
    second_key: FloatArray
    run: IntArray
    times: IntArray
    """When each dispatch was; without room nothing is recorded."""
    counts: NDArray[np.int32]
    """Jobs queued, running and started at each dispatch, and where waits are bounded the longest
    wait under EASY so far, seconds; shape (3 or 4, dispatches)."""


def fresh(
    given: IntArray,
    processors: int,
    *,
    recorded: bool,
    same: bool,
    duration_row: int,
    tiered: bool,
    followed: bool,
    asked: bool,
    completions: int = 1,
    bounded: bool = False,
) -> Tables:
    """The state before the first event. What is never touched costs no memory.

    ``completions`` is how many a job may have: ends, tests that it outlives, nodes cleared.
    """
    jobs = given.shape[1]
    starts = completions * jobs
    state = fields.fresh(
        State, free=processors, blocked=-1, ahead_job=-1, duration_row=duration_row,
        predicted=0 if asked else jobs, tiered=tiered,
    )  # fmt: skip
    rows = TURN + 1 if bounded else COUNT + 1 if duration_row == EXPECTED else LIMIT + 1
    fate = np.zeros((rows, jobs), dtype=np.int64)
    fate[START] = fate[END] = -1
    fate[REASON] = WAITS
    others = 0 if same else jobs
    return Tables(
        state,
        given,
        fate,
        np.empty((2, jobs), dtype=np.int64),
        np.empty(jobs),
        np.empty((2, others), dtype=np.int64),
        np.empty(others),
        np.empty((BEFORE + 1 if followed else BY_SERIAL + 1, starts), dtype=np.int64),
        np.empty(jobs + starts if recorded else 0, dtype=np.int64),
        np.empty((3 + bounded, jobs + starts if recorded else 0), dtype=np.int32),
    )
