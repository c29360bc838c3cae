"""Where compiled replays keep what: a bundle of int64 arrays, passed one by one.

Taking arrays out of tuples counts references, which made a replay four times as slow. A replay can
be left after any number of events, looked at, saved, and gone on with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.decision import Reason

NEVER, ALWAYS = int(np.iinfo(np.int64).max), int(np.iinfo(np.int64).min)
"""Times after and before all others."""
IN_TURN, BACKFILLED, WAITS = int(Reason.STARTED), int(Reason.BACKFILLED), int(Reason.WAITS)
REJECTED, WAS_LATE = int(Reason.REJECTED), int(Reason.LATE)

REJECT = -1
"""The reservation depth of the dispatcher that refuses every job."""

# Scalars: the clock; jobs submitted, queued, running and started so far (the serial number of the
# next completion); completions to come; free processors of a pool; the first job that has not
# passed the threshold; dispatches so far; the job whose key is being computed; entries of
# placements so far; changes of nodes so far.
NOW, NEXT, QUEUED, RUNNING, SERIAL, PENDING, FREE, LATE, DISPATCHES, CURRENT = range(10)
ENTRIES, CHANGES = 10, 11

# What stands of the last dispatch: the job that was blocked, -1 when nothing does; its shadow time,
# and whether that is up to date; whether ``both`` is; the first job that had not been
# submitted then.
BLOCKED, SHADOW, RESERVED, COMPARED, SEEN = 12, 13, 21, 14, 15

# Where the first waiting job may be in the queue in the primary order, and where both queues end.
# Jobs that have started stay in them until there are too many of them.
HEAD, FIRST_SIZE, SECOND_SIZE = range(16, 19)

# The job for which the capacity at its shadow time is kept up to date, -1 for none, and how many of
# its units fit then.
AHEAD_JOB, AHEAD_ROOMS = range(19, 21)

# Whether the shadow time may be sooner than when it was found; changes of ``both`` so far.
SOONER, COMPARISONS = range(22, 24)

# The row of ``fate`` that says how long jobs are taken to last now; the first job that may wait;
# how many jobs have been predicted, beyond which the loop is left to ask; what is still to be done
# of the event in which it has been left; up to when no job passes a threshold that is EASY's;
# how many jobs the replay of EASY beside it has been told of; whether jobs are of several tiers.
LASTS, OLDEST, PREDICTED, PAUSED, NONE_LATE, TURNS, TIERED = range(24, 31)
SCALARS = 31

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

# Rules: the orders and whether their keys change while jobs wait, whether one queue serves both,
# the threshold, the reservation depth, best fit, the trigger, the correction; the threshold of the
# second queue, by how much thresholds are shorter for wide jobs, and the first threshold as
# thousandths of the longest wait under EASY, 0 where it is fixed; see `Backfill.bounded`.
PRIMARY, PRIMARY_CHANGES, SECONDARY, SECONDARY_CHANGES, SAME = range(5)
THRESHOLD, DEPTH, BEST_FIT, BY_EVENT, CORRECTION = range(5, 10)
SECOND_THRESHOLD, WIDE, IN_TURN_AFTER = range(10, 13)

# Care, where jobs are not taken to last as expected: the row of ``fate`` that says how long they
# are, and after which wait of a job all are taken to last as requested; whether long jobs leave
# capacity free, from which expected duration on, and up to which wait; on a pool, how many
# processors, and how many it has; by how much that wait is shorter for wide jobs.
USUAL, STRICT, KEEPS, LONG, PATIENCE, SPARE, TOTAL, WIDE_ONES = range(8)


class State(NamedTuple):
    """The state of a replay, in the order in which `loop.go` takes it."""

    at: IntArray
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
    lasts: int,
    followed: bool,
    asked: bool,
    completions: int = 1,
    bounded: bool = False,
) -> State:
    """The state before the first event. What is never touched costs no memory.

    ``completions`` is how many a job may have: ends, tests that it outlives, nodes cleared.
    """
    jobs = given.shape[1]
    starts = completions * jobs
    at = np.zeros(SCALARS, dtype=np.int64)
    at[FREE], at[BLOCKED], at[AHEAD_JOB] = processors, -1, -1
    at[LASTS], at[PREDICTED] = lasts, 0 if asked else jobs
    rows = TURN + 1 if bounded else COUNT + 1 if lasts == EXPECTED else LIMIT + 1
    fate = np.zeros((rows, jobs), dtype=np.int64)
    fate[START] = fate[END] = -1
    fate[REASON] = WAITS
    others = 0 if same else jobs
    return State(
        at,
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
