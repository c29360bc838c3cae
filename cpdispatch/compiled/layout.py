"""The state of a compiled replay: records of scalars with named fields, and arrays, in tuples.

Kernels take `Tables` whole, and beside it what may be None. A replay can stop after any number of
events, be looked at, be saved, and go on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
    beside_known: bool
    """Whether `nodes.Nodes.beside` is up to date. `nodes` sets it."""
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
    beside_changes: int
    """How often `nodes.Nodes.beside` has changed."""
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
    easy_wait: int
    """The longest wait under EASY so far, seconds, as the last dispatch found it; -1 before the
    first one. Only where waits are bounded."""
    easy_numbers: int
    """How many numbers have been given to jobs in the replay of EASY beside this one."""
    tiered: bool
    """Whether jobs are of several tiers. Constant."""


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


USED_UP, OVER, UNPREDICTED, NO_ROOM, OUTLIVED = range(5)
"""Why `loop.go` has returned: it has dealt with as many events as it was called for; the replay is
over; the next jobs have to be predicted; `shadow.Shadow` has no room for more jobs; jobs have
outlived their test runs, and somebody has to say how long they last."""

NOTHING_LEFT, DISPATCH_LEFT, QUEUE_LEFT = range(3)
"""What is left to do of the event at which `loop.go` returned: nothing that the next event does
not do; the dispatch; everything after the completions."""

# Rows of `Tables.jobs`.
SUBMIT, NEED, REQUESTED, RUNTIME, UNITS, SHAPE, KIND = range(7)
"""Of each job: submission; processors (units times the request of the first resource type);
requested time; runtime, cut at the limit if there is one; units; its shape, which is the number of
its vector of requests; its kind, which is the number of its shape and units together."""
SHARE, ON_POOL = 7, 8
"""Only where waits are bounded: the largest share of a resource type that the job asks for, in
thousandths of the system; its processors on a pool. See `cpdispatch.jobs.largest_share` and
`on_pool`."""
PRIORITY, TIER = 9, 10
"""The site's priority; the tier, only where there are several. Higher ones come first."""

# Rows of `Tables.outcome`.
EXPECTED, START, END, REASON, EXPECTED_END, CORRECTED, FIRST_ENTRY, ENTRIES, UPPER, LIMIT = range(
    10
)
"""Of each job: expected duration, 0 before it is known; start, -1 while the job waits and `NEVER`
while it is behind a gate; end, -1 before it has ended; reason; expected end, while it runs; how
often that was corrected; on nodes, where its placement begins in `nodes.Nodes.node`, and how many
entries it has.

Only where there is a `Caution`: a bound that the runtime probably does not pass, and the requested
time. Neither is less than the expected duration. The bound is written before the job is submitted.
Then running jobs are expected to end at their requested times."""
EASY_NUMBER = 10
"""Only where waits are bounded: the job's number in `shadow.Shadow`."""

DURATION_ROWS = {"expected": EXPECTED, "upper": UPPER, "requested": LIMIT}
"""The row of the outcome by which jobs are planned, for each value of `Backfill.limits`."""

# Rows of `Queue.place` and of `Tables.running`.
JOB, DEMAND = range(2)
"""Of each place in a queue: the job; on a pool its processors, on nodes its kind and duration as
`nodes.demand_of` packs them."""
DURATION_BITS = 40
"""Bits for the duration there, below the kind."""
DUE, HELD = 1, 2
"""Of each running job, beside `JOB`: its expected end; its processors."""
HEAP_END, HEAP_SERIAL, BY_SERIAL, COMPLETED, STARTED_BEFORE = range(3, 8)
"""Completions, see `Tables.running`."""
CLEARED = ALWAYS
"""What `COMPLETED` says where the nodes of a killed job had been cleared."""


class Queue(NamedTuple):
    """The waiting jobs in an order: ascending by key, then by number, but see `queue.goes_before`.

    Jobs that have started stay until `queue.tidy`. Where keys change, new jobs are put at the end,
    and each dispatch that needs the order sorts them. `queue` writes it.
    """

    place: IntArray
    """Who is at each place; rows `JOB` and `DEMAND`."""
    key: FloatArray
    """The key of each place, -infinity for jobs that are late. Where keys change, they are those of
    the last dispatch."""
    marks: Marks
    rule: QueueRule
    weights: FloatArray
    """Of a weighted policy, see `cpdispatch.heuristics.policies`. Constant."""


class Line(NamedTuple):
    """Jobs in an order as in a `Queue`, without what else a queue has."""

    place: IntArray
    key: FloatArray


class Own(NamedTuple):
    """A user's own policies, compiled by numba; None where there is none."""

    primary: Any
    secondary: Any


class Tables(NamedTuple):
    """The state of a replay."""

    state: State
    rule: Rule
    jobs: IntArray
    """What is known of the jobs, in the order of submission; rows from `SUBMIT` on, shape
    (rows, jobs). Constant, but for test runs: clearing the nodes of a killed job adds its cost to
    the requested time and the runtime of that job (`stopped.outlives`)."""
    outcome: IntArray
    """What has become of the jobs so far; rows from `EXPECTED` on, shape (rows, jobs). Columns up
    to ``state.submitted`` are in use, predictions go up to ``state.predicted``. `running` writes
    starts, ends and expected ends, `stopped` those of jobs that wait again, `nodes` and `deep`
    entries, `loop` and `replay.Replay.predicted` durations."""
    primary: Queue
    """The jobs in the order in which they start in turn."""
    secondary: Queue
    """The jobs in the order in which they are backfilled: the primary queue itself where one order
    serves as both."""
    running: IntArray
    """Who runs, and which completions are to come. `running` and `stopped` write it.

    Rows `JOB`, `DUE` and `HELD`: the running jobs by ascending expected end, ``state.running`` of
    them. Rows `HEAP_END` and `HEAP_SERIAL`: end and serial number of each completion to come, a
    binary heap of ``state.pending``. Row `BY_SERIAL`: the job of each serial number below
    ``state.next_serial``, or -1 - job for the clearing of the nodes of a killed job.

    Only where completions are followed: row `COMPLETED` has the jobs in the order of their
    completions, -1 - job where a job was stopped, or `CLEARED`; row `STARTED_BEFORE` says how many
    starts there had been by then. ``state.next_serial - state.pending`` of them are in use."""


def queues(tables: Tables) -> tuple[Queue, ...]:
    """The queues, each once."""
    one = bool(tables.rule.one_queue)
    return (tables.primary,) if one else (tables.primary, tables.secondary)


class Dispatches(NamedTuple):
    """The dispatches so far, ``state.dispatches`` of them; without room where none is recorded."""

    time_s: IntArray
    counts: NDArray[np.int32]
    """Jobs queued before, running before and started, and where waits are bounded the longest wait
    under EASY so far, seconds; shape (3 or 4, dispatches)."""


def fresh(
    jobs: IntArray, rule: Rule, primary: Queue, secondary: Queue, *, processors: int,
    duration_row: int, tiered: bool, followed: bool, asked: bool, starts: int, bounded: bool,
) -> Tables:  # fmt: skip
    """The state before the first event. What is never touched costs no memory.

    ``starts`` is how many completions there may be: ends, tests that jobs outlive, nodes cleared.
    """
    count = jobs.shape[1]
    state = fields.fresh(
        State, free=processors, blocked=-1, ahead_job=-1, duration_row=duration_row,
        predicted=0 if asked else count, easy_wait=-1, tiered=tiered,
    )  # fmt: skip
    rows = EASY_NUMBER + 1 if bounded else ENTRIES + 1 if duration_row == EXPECTED else LIMIT + 1
    outcome = np.zeros((rows, count), dtype=np.int64)
    outcome[START] = outcome[END] = -1
    outcome[REASON] = WAITS
    rows = STARTED_BEFORE + 1 if followed else BY_SERIAL + 1
    running = np.empty((rows, starts), dtype=np.int64)
    return Tables(state, rule, jobs, outcome, primary, secondary, running)
