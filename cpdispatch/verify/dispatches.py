"""The table of dispatches of a run against its table of jobs: what was queued, ran and started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.verify.limits import Spell
from cpdispatch.verify.tables import Findings, Schedule
from cpdispatch.verify.violation import Kind, Violation


@dataclass(frozen=True, slots=True)
class Told:
    """What a run tells of how it was made, as far as its tables are judged by it."""

    by_event: bool = False
    """Whether a dispatch followed each single event of a second, and not all of them together."""
    idempotent: bool = False
    """Whether jobs were killed that had outlived what a predictor said."""
    test_s: int = 0
    """How long test runs lasted; 0 where that is not known, or there were none."""
    changes_s: Sequence[int] | None = None
    """Times at which dispatches were due beside those of jobs; None where they are not known."""
    recorded: bool = False
    """Whether it is what another system did: its dispatches saw other queues than its jobs make."""
    ours: bool = False
    """Whether a dispatcher of this package gave the reasons, and none of a user's own."""
    first_come: bool = False
    """Whether jobs started in their turn by submission."""
    keeps_promises: bool = False
    """Whether a start that was promised to a job was kept."""
    strict: bool = False
    """Whether no job started while one that came before it in the queue's order waited."""
    order: str = ""
    """Where it is strict by expected durations and nothing else: ``shortest`` or ``longest``."""
    rejects: bool = True
    """Whether the dispatcher may have refused jobs."""


@dataclass(frozen=True, slots=True, eq=False)
class Dispatches:
    """The table of dispatches, as arrays of shape (dispatches,)."""

    time_s: IntArray
    queue: IntArray
    running: IntArray
    started: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """When jobs came into the queue and left it; each array ascending."""

    came_s: IntArray
    """When jobs came that have started afterwards, or waited to the end."""
    unsure_s: IntArray
    """When jobs came that left the queue without a start, it is not known when."""
    start_s: IntArray
    end_s: IntArray
    """Of whatever ran, attempts that were stopped among them."""
    at_once_s: IntArray
    """Starts of jobs that ended in the same second."""
    stop_s: tuple[IntArray, IntArray]
    """From when to when a job can have been in the queue because its test was over."""
    on_s: tuple[IntArray, IntArray]
    """The same of jobs that went on after it, which count as started then."""
    stops_known: bool
    """Whether these are times at which they certainly were."""

    def queued(self, time_s: IntArray) -> IntArray:
        """Jobs in the queue at these times that are certain, before what starts then starts."""
        return _until(self.came_s, time_s) - _before(self.start_s, time_s)

    def most(self, time_s: IntArray) -> IntArray:
        """How many more may have been in the queue."""
        return _until(self.unsure_s, time_s) + _within(self.stop_s, time_s)


def several(time_s: IntArray) -> IntArray:
    """The times, of ascending ones, at which there were several decisions."""
    found: IntArray = time_s[1:][time_s[1:] == time_s[:-1]]
    return found


def _before(times_s: IntArray, at_s: IntArray) -> IntArray:
    """How many of these ascending times lie before each time."""
    return np.searchsorted(times_s, at_s, side="left")


def _until(times_s: IntArray, at_s: IntArray) -> IntArray:
    """How many of these ascending times lie before each time, or are it."""
    return np.searchsorted(times_s, at_s, side="right")


def _within(spans: tuple[IntArray, IntArray], at_s: IntArray) -> IntArray:
    """How many of the spans, both ends included, each time lies in."""
    return _until(spans[0], at_s) - _before(spans[1], at_s)


def flow(
    table: Schedule, came_s: IntArray, spell: Spell, told: Told, went_on: BoolArray, capped: bool
) -> Flow:
    """When jobs came into the queue and left it.

    Parameters
    ----------
    came_s : int64 array, shape (jobs,)
        When each job first came.
    spell : Spell
        When jobs ran; the first rows are those of the last runs.
    went_on : bool array, shape (jobs,)
        Which jobs went on after a test run.
    capped : bool
        Whether jobs were given up because of a power cap: they count as jobs that never fit.
    """
    t = table
    ran = int(np.count_nonzero(t.start_s >= 0))
    again = spell.job[ran:]
    last_s = came_s.copy()
    np.maximum.at(last_s, again, spell.end_s[ran:])
    out = t.start_s < 0
    left = out & (t.rejected | t.never_fits)
    unsure = left if capped else out & t.rejected
    # A job that was queued again came first at its submission, and last when it was.
    first, queued_s = np.ones(len(came_s), dtype=np.bool_), spell.end_s[ran:]
    first[left] = False
    first[again] = True
    stays = ~left[again] | (queued_s < last_s[again])
    came = np.concatenate((came_s[first], queued_s[stays]))
    stops, on = _stops(t, spell, told, went_on)
    return Flow(
        came_s=np.sort(came),
        unsure_s=np.sort(last_s[unsure]),
        start_s=np.sort(spell.start_s),
        end_s=np.sort(spell.end_s),
        at_once_s=np.sort(spell.start_s[spell.start_s == spell.end_s]),
        stop_s=stops,
        on_s=on,
        stops_known=bool(told.test_s) and not told.idempotent and t.outages is None,
    )


def _stops(
    table: Schedule, spell: Spell, told: Told, went_on: BoolArray
) -> tuple[tuple[IntArray, IntArray], tuple[IntArray, IntArray]]:
    """When tests were over, see `Flow`."""
    tested = went_on[spell.job]
    first, last = spell.start_s[tested] + 1, spell.end_s[tested] - 1
    if told.test_s:
        first = first - 1 + told.test_s
    some = first <= last
    first, last = first[some], first[some] if told.test_s else last[some]
    on = first, last
    lost = table.lost
    if lost is not None and lost.cost_s:
        over_s = lost.end_s[lost.start_s >= 0]
        first = np.concatenate((first, over_s - lost.cost_s))
        # Where a node failed, the others were clear before their time.
        until_s = over_s - (lost.cost_s if table.outages is None else 1)
        last = np.concatenate((last, until_s))
    return (np.sort(first), np.sort(last)), (np.sort(on[0]), np.sort(on[1]))


def dispatches(
    table: Schedule, made: Dispatches, of: Flow, told: Told, gated: bool
) -> list[Violation]:
    """What the table of dispatches says otherwise than the table of jobs.

    Times ascend. At each of them something happened to a job, or to what the run tells of beside
    jobs. Where jobs started, or waited as one came or ended, there was a dispatch. The jobs that
    were queued, ran and started are as many as the table of jobs has then. Where jobs were behind
    limits, only the most that could be queued is known; where jobs were rejected, or tested, they
    may have been in the queue.
    """
    found = Findings()
    time_s = made.time_s
    back = (time_s[1:] < time_s[:-1]).nonzero()[0] + 1
    found.add(
        Kind.DECISION,
        back,
        lambda k: (
            f"row {k + 1} of the decisions is at {time_s[k]}, the one before at {time_s[k - 1]}"
        ),
    )
    if len(back):
        return found.all()
    _times(table, made, of, told, gated, found)
    _counts(made, of, told, gated, found)
    return found.all()


def _times(
    table: Schedule, made: Dispatches, of: Flow, told: Told, gated: bool, found: Findings
) -> None:
    """Whether decisions were when something happened, and whenever they had to be."""
    # A submission is an event, also of a job that comes into the queue at its begin time.
    by_jobs = np.concatenate((of.came_s, of.unsure_s, of.end_s, table.submit_s))
    tests_known = np.array_equal(*of.stop_s)
    if told.changes_s is not None and tests_known:
        more = [by_jobs, of.stop_s[0], np.array(told.changes_s, dtype=np.int64)]
        if table.preceding is not None and table.think_s is not None:
            by_id = np.argsort(table.id, kind="stable")
            at = np.minimum(np.searchsorted(table.id[by_id], table.preceding), len(by_id) - 1)
            more.append(table.end_s[by_id[at]] + np.maximum(table.think_s, 0))
        found.add(
            Kind.DECISION,
            _lacking(made.time_s, np.sort(np.concatenate(more))),
            lambda at: f"a decision is at {at}, when nothing happened",
        )
    found.add(
        Kind.DECISION,
        _lacking(of.start_s, made.time_s),
        lambda at: f"jobs start at {at}, when no decision is",
    )
    if told.by_event or gated:
        return
    if of.stops_known:
        found.add(
            Kind.DECISION,
            _lacking(of.stop_s[0], made.time_s),
            lambda at: f"a test run is over at {at}, and no decision is then",
        )
    # One that left without a start may never have come: it fits no system.
    certain_s = np.sort(np.concatenate((of.came_s, of.end_s)))
    due_s = _lacking(_lacking(certain_s, made.time_s), of.start_s)
    found.add(
        Kind.DECISION,
        due_s[of.queued(due_s) > 0],
        lambda at: f"jobs wait at {at}, when a job came or ended, and no decision is then",
    )


def again(made: Dispatches, of: Flow) -> list[Violation]:
    """Decisions of a second that has had one, where only ends of jobs can lead to them.

    The one before has started a job then that has ended at once.
    """
    time_s, found = made.time_s, Findings()
    more = (time_s[1:] == time_s[:-1]).nonzero()[0] + 1
    caused = np.isin(time_s[more], of.at_once_s) & (made.started[more - 1] > 0)
    found.add(
        Kind.DECISION,
        more[~caused],
        lambda k: f"a further decision is at {time_s[k]}, when nothing more happened",
    )
    return found.all()


def _lacking(times_s: IntArray, among_s: IntArray) -> IntArray:
    """Which of these times are not among the others, each once; all ascending."""
    there = np.searchsorted(among_s, times_s)
    lacks = there == len(among_s)
    lacks[~lacks] = among_s[there[~lacks]] != times_s[~lacks]
    return np.unique(times_s[lacks])


def _counts(made: Dispatches, of: Flow, told: Told, gated: bool, found: Findings) -> None:
    """Whether as many jobs were queued, ran and started as the table of jobs has."""
    time_s, queue, running, started = made.time_s, made.queue, made.running, made.started
    if not len(time_s):
        return
    head = np.append(True, time_s[1:] != time_s[:-1])
    first = np.maximum.accumulate(np.where(head, np.arange(len(time_s)), 0))
    before = np.cumsum(started) - started
    before -= before[first]
    queued, more = of.queued(time_s), of.most(time_s)
    ran = _before(of.start_s, time_s) - _until(of.end_s, time_s)
    at_once = _until(of.at_once_s, time_s) - _before(of.at_once_s, time_s)
    ran += at_once
    stopped = _within(of.stop_s, time_s)

    least, most = queued - before, queued - before + more
    ended = np.where(before > 0, at_once, 0)
    low, high = ran + before - stopped - ended, ran + before
    fewest, largest = queued + ran - ended, queued + ran + more - stopped
    if of.stops_known and not told.by_event:
        # Those that were stopped have not been let go on, or killed, before the first decision.
        least, high = least + np.where(head, stopped, 0), high - np.where(head, stopped, 0)
    if told.by_event:
        least = _before(of.came_s, time_s) - _before(of.start_s, time_s) - before
        high = high + _until(of.end_s, time_s) - _before(of.end_s, time_s) - at_once
    if gated:
        least = np.zeros_like(queued)
    least = np.maximum(least, started)
    both = queue + running
    by_both = (both < fewest) | (both > largest)
    if told.by_event or gated:
        by_both[:] = False
    wrong = (queue < least) | (queue > most)
    found.add(
        Kind.DECISION,
        wrong.nonzero()[0],
        lambda k: (
            f"the decision at {time_s[k]} has {queue[k]} jobs queued, by the table of jobs "
            f"{_range(least[k], most[k])}"
        ),
    )
    amiss = (running < low) | (running > high)
    found.add(
        Kind.DECISION,
        amiss.nonzero()[0],
        lambda k: (
            f"the decision at {time_s[k]} has {running[k]} jobs running, by the table of "
            f"jobs {_range(low[k], high[k])}"
        ),
    )
    found.add(
        Kind.DECISION,
        (by_both & ~wrong & ~amiss).nonzero()[0],
        lambda k: (
            f"the decision at {time_s[k]} has {both[k]} jobs queued or running, by the table "
            f"of jobs {_range(fewest[k], largest[k])}"
        ),
    )
    heads = head.nonzero()[0]
    total = np.add.reduceat(started, heads)
    at_s = time_s[heads]
    starts = _until(of.start_s, at_s) - _before(of.start_s, at_s)
    on = _within(of.on_s, at_s)
    least_on = on if of.stops_known else np.zeros_like(on)
    found.add(
        Kind.DECISION,
        ((total < starts + least_on) | (total > starts + on)).nonzero()[0],
        lambda k: (
            f"decisions at {at_s[k]} start {total[k]} jobs, by the table of jobs "
            f"{_range(starts[k] + least_on[k], starts[k] + on[k])}"
        ),
    )


def _range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"
