"""A whole simulation in compiled code, which `cpdispatch.simulator.simulate` uses where it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.compiled import layout, test_runs
from cpdispatch.compiled.memory import take
from cpdispatch.compiled.replay import Replay, Replays
from cpdispatch.decision import Reason
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.limits import wary_s
from cpdispatch.heuristics.policies import Policy
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import Column, Job, Workload
from cpdispatch.predict import Predictor, known_s, memory_of
from cpdispatch.predict.guard import Guard
from cpdispatch.simulator.checks import check_case, check_rules
from cpdispatch.simulator.gates import Gates
from cpdispatch.simulator.live import LAST, Dispatched, Now
from cpdispatch.simulator.records import Records
from cpdispatch.system import System
from cpdispatch.terms import gated, without_restarts


def tests_replayable(dispatcher: object, trigger: str, workload: Workload) -> bool:
    """Whether compiled code makes the test runs of a dispatcher, or there are none to make.

    It does where one start is promised, with the trigger ``instant``.
    """
    inner = dispatcher.inner if isinstance(dispatcher, Bounded) else dispatcher
    rule = inner.backfill if isinstance(inner, Best) else inner
    if not isinstance(rule, Backfill) or not rule.test_s or not workload.table.restartable.any():
        return True
    return rule.depth == 1 and trigger == "instant"


def replayable(dispatcher: object, trigger: str, limits: bool = False) -> bool:
    """Whether compiled code gives the same schedule as the general loop, test runs apart.

    It does for a dispatcher of the backfilling family that has met no instance yet and whose keys
    are compiled. Jobs that are not taken to last as expected, and waits that are bounded, need the
    trigger ``instant``. ``limits`` says whether the system has any: then one that refuses every job
    is left to the general loop.
    """
    if type(dispatcher) is Reject:
        return not limits
    if type(dispatcher) is Bounded:
        ours = type(dispatcher.inner) is Best or replayable(dispatcher.inner, trigger)
        return ours and dispatcher.fresh and trigger == "instant"
    if type(dispatcher) is Best:
        return trigger == "instant"
    if type(dispatcher) is not Backfill or not dispatcher.fresh:
        return False
    orders = dispatcher.primary, dispatcher.secondary
    by_event = dispatcher.limits != "expected" and trigger == "event"
    of_best = dispatcher.keep or Policy.RISK in (order.policy for order in orders)
    return not by_event and not of_best and all(order.compiled for order in orders)


class CompiledSimulation:
    """A simulation that goes through its events in compiled code.

    It gives the schedule that a `cpdispatch.simulator.simulation.Simulation` gives, job by job.
    Compiled code returns to Python for predictors that exist in Python only. Such a predictor is
    asked when jobs are submitted and when they have outlived their tests. Before that it learns
    which jobs have started and ended since it was last asked.

    Parameters
    ----------
    workload, system, trigger, correction, kill_at_limit, restart_cost_s
        As of a `Simulation`.
    dispatcher : Backfill, Reject, Best or Bounded
        One that is `replayable`.
    learned : bool
        Whether the predictor may have learned something already.

    Attributes
    ----------
    records : Records
        There when the simulation is over.
    """

    dependencies = False

    def __init__(
        self,
        workload: Workload,
        system: System,
        dispatcher: Backfill | Reject | Best | Bounded,
        predictor: Predictor,
        *,
        learned: bool = False,
        trigger: str,
        correction: str,
        kill_at_limit: bool,
        restart_cost_s: int = 0,
    ) -> None:
        check_case(workload, system)
        check_rules(trigger, correction, restart_cost_s)
        self.workload = workload = without_restarts(workload, system)
        self.system = system
        self.records: Records
        self._kill_at_limit = kill_at_limit
        self._restart_cost_s = restart_cost_s
        runtime_s = workload.runtime_s
        if kill_at_limit:
            runtime_s = np.minimum(runtime_s, workload.table.requested_s)
        limited = Gates(workload, system) if gated(workload, system) else None
        prepared = Replays(as_known(predictor, workload), system, runtime_s, limited)
        self._beyond = {} if limited is None else limited.notes(prepared.beyond)
        self._name = dispatcher.name
        bound = dispatcher.bound if isinstance(dispatcher, Bounded) else None
        rule: Any = dispatcher.inner if isinstance(dispatcher, Bounded) else dispatcher
        self._cautious = isinstance(rule, Best)
        self._one_by_one = trigger == "event"
        known = None if learned else memory_of(predictor, workload)
        memory = prepared.walltime if known is None else take(known, prepared.rows)
        asked = known is None
        self._told: _Told | None = _Told(predictor) if asked else None
        self._replay: Replay | None = Replay(
            prepared,
            rule.backfill if isinstance(rule, Best) else rule,
            memory,
            trigger=trigger,
            correction=correction,
            recorded=True,
            followed=asked,
            asked=asked,
            bound=bound,
            restart_cost_s=restart_cost_s,
        )
        if self._cautious:
            requested_s = prepared.jobs[layout.REQUESTED]
            self._replay.tables.outcome[layout.UPPER] = wary_s(requested_s, requested_s)
        self._replay.go(0)  # compiles, before any clock runs

    def go(self, events: int) -> bool:
        """Go on for about so many events; whether the simulation is over."""
        replay = self._replay
        assert replay is not None
        while events > 0:
            why = replay.go(events)
            if why == layout.OVER:
                if self._told is not None:
                    self._catch_up(replay)
                self._record()
                return True
            if why == layout.USED_UP:
                return False
            if why == layout.OUTLIVED:
                self._catch_up(replay)
            else:
                self._predict(replay)
            events -= 1
        return False

    def _catch_up(self, replay: Replay) -> None:
        """Tell the predictor what it has not been told, and ask about jobs that are stopped now."""
        assert self._told is not None
        for job, (expected_s, upper_s) in self._told.catch_up(replay).items():
            cost_s = np.array([0, self._restart_cost_s])
            both_s = self._with_care(upper_s + cost_s, job, cost_s)
            replay.outlived(job, expected_s, *both_s.tolist())

    def _with_care(
        self, upper_s: IntArray, jobs: int | slice, more_s: IntArray | int = 0
    ) -> IntArray:
        """The durations by which jobs are backfilled: upper or cautious ones.

        The requested times are longer by ``more_s``, seconds.
        """
        assert self._replay is not None
        requested_s = self._replay.tables.jobs[layout.REQUESTED, jobs] + more_s
        return wary_s(upper_s, requested_s) if self._cautious else upper_s

    def _predict(self, replay: Replay) -> None:
        """Have the jobs predicted that are submitted now."""
        assert self._told is not None
        state, submit_s = replay.tables.state, replay.tables.jobs[layout.SUBMIT]
        job, now = int(state.submitted), int(state.now)
        count = 1 if self._one_by_one else int(np.searchsorted(submit_s[job:], now, side="right"))
        self._catch_up(replay)
        said = [self._told.ask(replay, each, now) for each in range(job, job + count)]
        expected_s, upper_s = np.array(said, dtype=np.int64).T
        replay.predicted(expected_s, self._with_care(upper_s, slice(job, job + count)))

    @property
    def notes(self) -> dict[str, int]:
        """Jobs beyond limits, and faults of the predictor, with their numbers so far."""
        return self._beyond | ({} if self._told is None else dict(self._told.guard.faults))

    @property
    def of_predictor(self) -> dict[str, object]:
        """The wall time of the predictor's calls so far, seconds, and its own tables if any."""
        return {} if self._told is None else self._told.guard.summary()

    @property
    def at_present(self) -> Now | None:
        """The state between two events, for the status file; None when the replay is over."""
        if self._replay is None:
            return None
        state, nodes = self._replay.tables.state, self._replay.nodes
        dispatches, held = self._replay.dispatches, np.zeros_like(self.system.capacity)
        if nodes is None:
            held[0, 0] = self.system.total[0] - state.free
        else:
            held = self.system.capacity - nodes.free
        count = int(state.dispatches)
        recent = slice(max(count - LAST, 0), count)
        queue, _, started = dispatches.counts[:3, recent].tolist()
        gate = self._replay.gate
        behind = 0 if gate is None else int(gate.state.behind)
        last = zip(dispatches.time_s[recent].tolist(), queue, started, strict=True)
        return Now(
            int(state.now), int(state.queued) + behind, int(state.running), count,
            held, tuple(Dispatched(*each, None) for each in last),
        )  # fmt: skip

    @property
    def progress(self) -> float:
        """Share of the jobs that have been submitted so far."""
        if self._replay is None:
            return 1.0
        tables = self._replay.tables
        return float(tables.state.submitted / max(tables.jobs.shape[1], 1))

    def _record(self) -> None:
        """Make the records of the replay; its arrays, the largest thing in memory, are freed."""
        replay, self._replay = self._replay, None
        assert replay is not None
        saved, prepared = replay.saved(), replay.prepared
        del replay
        self.records = records_of(
            saved, self.workload, prepared.runnable, self._name, self._kill_at_limit
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state for a checkpoint: the used parts of the arrays, without the log."""
        assert self._replay is not None
        about = {"name": self._name, "kill_at_limit": self._kill_at_limit}
        return {"saved": self._replay.saved(), "told": self._told, "about": about}

    def go_on_from(self, other: CompiledSimulation) -> None:
        """Take over the state of a simulation of the same run that a checkpoint restored."""
        assert self._replay is not None
        state = other.__dict__
        self._replay.restore(state["saved"])
        self._told = state["told"]


def records_so_far(
    restored: CompiledSimulation, workload: Workload, system: System
) -> tuple[Records, int]:
    """The records of a simulation that was restored from a checkpoint, and its clock, seconds."""
    state = restored.__dict__
    limited = Gates(workload, system) if gated(workload, system) else None
    runnable = Replays(workload, system, limited=limited).runnable
    saved = state["saved"]
    return (
        records_of(saved, workload, runnable, **state["about"]),
        int(saved["state"].now),
    )


def records_of(
    saved: dict[str, Any], workload: Workload, runnable: BoolArray, name: str, kill_at_limit: bool
) -> Records:
    """The records of a replay, over or under way.

    Parameters
    ----------
    saved : dict
        What `cpdispatch.compiled.replay.Replay.saved` gives.
    runnable : bool array, shape (jobs,)
        Which jobs are in the replay.
    name : str
        Of the dispatcher.
    """
    outcome, table = saved["outcome"], workload.table
    jobs = outcome.shape[1]
    rows = slice(jobs) if runnable.all() else np.flatnonzero(runnable)[:jobs]
    records = Records(workload)
    if kill_at_limit:
        np.greater(workload.runtime_s, table.requested_s, out=records.killed)
    records.reason[~runnable] = Reason.NEVER_FITS
    start_s, entries = outcome[layout.START], (outcome[layout.FIRST_ENTRY], outcome[layout.ENTRIES])
    tests = ours = None
    if "tests" in saved:
        tests = saved["tests"][1][:, :jobs]
        # Jobs that were stopped: the next decision says what becomes of them.
        stopped = tests[test_runs.STOPPED_START] >= 0
        start_s = np.where(stopped, tests[test_runs.STOPPED_START], start_s)
        ours = tests[[test_runs.STOPPED_ENTRY, test_runs.STOPPED_ENTRIES]]
        entries = tuple(np.where(stopped, ours, entries))
    records.expected_s[rows] = outcome[layout.EXPECTED]
    records.start_s[rows] = start_s
    records.end_s[rows] = outcome[layout.END]
    records.reason[rows] = outcome[layout.REASON]
    records.replayed(name, *saved["dispatches"])
    nodes = saved.get("nodes")
    if nodes is None:
        held = records.start_s >= 0
        if tests is not None:
            held[rows] |= tests[test_runs.LOST_START] >= 0
        one = held.astype(np.int64)
        units = table.units[held]
        records.all_placed(slice(None), np.cumsum(one) - one, one, 0 * units, units)
    else:
        records.all_placed(rows, *entries, *nodes[-2:])
    if tests is not None:
        said_s = tests[test_runs.FIRST_EXPECTED]
        records.expected_s[rows] = np.where(said_s > 0, said_s, outcome[layout.EXPECTED])
        lost_s = tests[[test_runs.LOST_START, test_runs.LOST_END]]
        records.all_tested(rows, tests[test_runs.RESULT], lost_s, None if nodes is None else ours)
    return records


def as_known(predictor: Predictor, workload: Workload) -> Workload:
    """The workload as dispatchers see it, see `cpdispatch.predict.Clairvoyant`."""
    requested_s = known_s(predictor, workload)
    if requested_s is None:
        return workload
    return replace(workload, table=workload.table.having(Column.REQUESTED, requested_s))


class _Told:
    """A predictor that follows a compiled replay.

    It learns of starts and ends in their order, but only when it is next asked. It cannot tell the
    difference.

    Attributes
    ----------
    guard : Guard
        Calls the predictor.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.guard = Guard(predictor)
        self._live: dict[int, Job] = {}
        """Jobs that have been predicted and have not ended."""
        self._upper_s: dict[int, int] = {}
        """The upper durations of these jobs, without jobs that have been stopped."""
        self._stopped: list[int] = []
        """Stopped jobs of which it is not known yet whether they go on."""
        self._starts = self._ends = 0
        """How many starts and ends the predictor has been told of."""

    def ask(self, replay: Replay, job: int, now: int) -> tuple[int, int]:
        """Expected and upper duration of a job that is submitted ``now``, seconds."""
        prepared = replay.prepared
        asked = self._live[job] = prepared.workload.table[prepared.row(job)]
        expected_s = self.guard.predict(asked, now)
        upper_s = self._upper_s[job] = max(expected_s, self.guard.upper(asked, now))
        return expected_s, upper_s

    def catch_up(self, replay: Replay) -> dict[int, tuple[int, int]]:
        """Tell the predictor of the starts, kills and ends that it has not been told of.

        Returns the expected and upper duration, s, of each job that has been stopped just now.
        """
        tables, state = replay.tables, replay.tables.state
        running, runtime_s = tables.running, tables.jobs[layout.RUNTIME]
        ends = int(state.next_serial - state.pending)
        new = running[[layout.COMPLETED, layout.STARTED_BEFORE], self._ends : ends].T.tolist()
        again_s = {}
        self._killed(replay)
        for job, before in new:
            self._started(replay, before)
            if job == layout.CLEARED:
                continue
            if job < 0:
                again_s[-1 - job] = self._outlived(replay, -1 - job)
            else:
                self._upper_s.pop(job, None)
                self.guard.learn(self._live.pop(job), int(runtime_s[job]))
        self._ends = ends
        self._started(replay, int(state.next_serial))
        return again_s

    def _started(self, replay: Replay, count: int) -> None:
        """Tell the predictor of starts until it knows ``count`` of them."""
        start_s, tests = replay.tables.outcome[layout.START], replay.tests
        for job in replay.tables.running[layout.BY_SERIAL, self._starts : count].tolist():
            if tests is None or (
                job >= 0 and tests.table[test_runs.RESULT, job] != test_runs.WENT_ON
            ):
                self.guard.start(self._live[job], int(start_s[job]))
        self._starts = count

    def _outlived(self, replay: Replay, job: int) -> tuple[int, int]:
        """Expected and upper duration of a job whose test is over, seconds."""
        assert replay.tests is not None
        self._stopped.append(job)
        elapsed_s = int(replay.tests.state.length_s)
        said_s = int(replay.tests.table[test_runs.FIRST_EXPECTED, job])
        return self.guard.outlived(self._live[job], elapsed_s, said_s, self._upper_s.pop(job))

    def _killed(self, replay: Replay) -> None:
        """Tell the predictor of the jobs that were stopped and did not go on."""
        if not self._stopped:
            return
        assert replay.tests is not None
        table = replay.tests.table
        result, lost_end_s = table[test_runs.RESULT], table[test_runs.LOST_END]
        if result[self._stopped[0]] == test_runs.ENDED:  # it is not decided yet
            return
        for job in sorted(self._stopped):
            if result[job] == test_runs.KILLED:
                now = int(lost_end_s[job] - replay.tests.state.restart_cost_s)
                self.guard.restart(self._live[job], now)
        self._stopped.clear()
