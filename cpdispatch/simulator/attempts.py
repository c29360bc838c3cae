"""Attempts at jobs that may be restarted: tests, misjudged jobs, kills, and what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.decision import NO_BOUND, Decision
from cpdispatch.heuristics.test_runs import going_on
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, Job
from cpdispatch.predict.guard import Guard
from cpdispatch.simulator.agenda import Agenda
from cpdispatch.simulator.kernels import NEVER, ROW
from cpdispatch.simulator.records import NOT_STARTED, Records, Test
from cpdispatch.simulator.state import Held, State


class Attempts:
    """The running attempts that end before their jobs do, and the jobs whose attempts were lost.

    A decision may bound a start: that is a test. When a test is over, the job is *stopped*: the
    next decision lets it go on or has it killed. A job that outlives the bound that a predictor
    gave it is misjudged and killed at once. The nodes of a killed job stay busy for the restart
    cost. Then the job is queued again.

    Parameters
    ----------
    restartable : int64 array, shape (jobs,)
        Which jobs may be restarted.
    guard : Guard
        Told of attempts that are over.
    agenda : Agenda
        Gets the time at which the nodes of a killed job are clear.
    live : dict of int to Job
        The jobs that have been submitted and are not over, by row.
    runtime_s : int64 array, shape (jobs,)
        How long each job still runs; the cost of a restart is added to it.
    cost_s : int
        The restart cost.
    seen : callable
        What dispatchers see of the job of a row: its column.

    Attributes
    ----------
    possible : bool
        Whether a job may be restarted at all.
    stopped : dict of int to Held
        What the stopped jobs hold, by row.
    bound_s : int64 array, shape (jobs,)
        After how many seconds of running each job turns out to be misjudged; empty if none may be
        restarted.
    """

    def __init__(
        self,
        restartable: IntArray,
        state: State,
        records: Records,
        guard: Guard,
        agenda: Agenda,
        live: dict[int, Job],
        runtime_s: IntArray,
        cost_s: int,
        seen: Callable[[int], IntArray],
    ) -> None:
        self.possible = bool(restartable.any())
        self.stopped: dict[int, Held] = {}
        self._state, self._records, self._guard = state, records, guard
        self._agenda, self._live = agenda, live
        self._runtime_s, self._cost_s, self._seen = runtime_s, cost_s, seen
        jobs = len(restartable) if self.possible else 0
        self.bound_s = np.full(jobs, NEVER, dtype=np.int64)
        self._test_s = np.full(jobs, NEVER, dtype=np.int64)
        """After how many seconds each running job is stopped, by the decision that started it."""
        self._again_s: dict[int, tuple[int, int]] = {}
        """Expected and upper durations of jobs that were stopped and may start anew."""
        self._said_s: dict[int, tuple[int, int]] = {}
        """Expected and upper durations of stopped jobs, from before they were stopped."""
        self._closing: set[int] = set()
        """The killed jobs whose nodes are still busy."""

    def bound(self, row: int, bound_s: int | None) -> None:
        """Note the bound that a predictor has given a job, if it has."""
        if bound_s is not None:
            self.bound_s[row] = bound_s

    def start(self, rows: IntArray, bound_s: IntArray) -> None:
        """Note which of the jobs that start now are tests, and how long these are."""
        self._test_s[rows] = np.where(bound_s == NO_BOUND, NEVER, bound_s)
        self._records.test[rows[bound_s != NO_BOUND]] = Test.ENDED

    def run_s(self, rows: IntArray) -> IntArray:
        """How long these jobs run until they end or are stopped, seconds."""
        runs_s = self._runtime_s[rows]
        if self.possible:
            runs_s = np.minimum(runs_s, np.minimum(self._test_s[rows], self.bound_s[rows]))
        return runs_s

    def ending(self, now: int) -> list[int]:
        """The rows of the attempts, and clearings, that end now though their jobs do not."""
        if not self.possible:
            return []
        return [row for row in self._agenda.ends(now) if self._are_outlived(row)]

    def _are_outlived(self, row: int) -> bool:
        """Whether the attempt that is under way, or the clearing, ends before the job does."""
        ends_s = min(self.bound_s[row], self._test_s[row])
        return row in self._closing or bool(ends_s < self._runtime_s[row])

    def outlives(self, row: int, now: int) -> bool:
        """Handle a job whose attempt ends though the job does not; whether it is such a job."""
        if not self.possible or not self._are_outlived(row):
            return False
        if row in self._closing:
            self._closing.remove(row)
            self._state.end(row)
            if row in self._live:  # else the dispatcher refused it meanwhile
                self._queue_again(row)
            return True
        if self._test_s[row] < self.bound_s[row]:
            self._stop(row, now)
            return True
        self._killed(row, now)
        if self._cost_s:
            self._state.prolong(row, now + self._cost_s)
        else:
            self._state.end(row)
            self._queue_again(row)
        return True

    def decide(self, instance: Instance, decision: Decision, now: int) -> IntArray:
        """Let stopped jobs go on that start where they are, and kill the others.

        Returns the queue positions of those whose nodes stay busy: they leave the queue meanwhile.
        `stopped` is left with those that go on.
        """
        stopped, stay = instance.stopped, going_on(instance, decision.start_s, decision.placements)
        assert stopped is not None
        rows = self._state.queue_hidden[ROW, stopped.position].tolist()
        closing = []
        for position, row in zip(stopped.position.tolist(), rows, strict=True):
            held = self.stopped[row]
            if position in stay:
                del self._said_s[row]
                self._records.goes_on(row)
                end_s = held[0] + self._runtime_s.item(row)
                due_s = held[0] + self._again_s.pop(row)[0]
                self._state.hold(now, position, held, due_s, end_s)
                continue
            if self._kill(row, position, now):
                closing.append(position)
        return np.array(closing, dtype=np.int64)

    def go_on(self) -> dict[int, int]:
        """The starts of the stopped jobs that go on, by row; none is stopped any more."""
        starts = {row: start_s for row, (start_s, _) in self.stopped.items()}
        self.stopped.clear()
        return starts

    # ------------------------------------------------------------------- what happens to nodes

    def stopped_on(self, nodes: Iterable[int]) -> list[int]:
        """The rows of the jobs that have just been stopped on these nodes, by their starts."""
        there = set(nodes)
        held = sorted((start_s, row) for row, (start_s, _) in self.stopped.items())
        return [row for _, row in held if not there.isdisjoint(self.stopped[row][1])]

    def misfits(self, nodes: Sequence[int]) -> list[int]:
        """The rows of the stopped jobs for which these nodes have no room left."""
        left, found = self._state.free.copy(), []
        for row in self.stopped_on(nodes):
            node, units = np.array(list(self.stopped[row][1].items()), dtype=np.int64).T
            held = units[:, None] * np.maximum(self._seen(row)[Column.REQUEST :], 0)
            if (held <= left[node]).all():
                left[node] -= held
            else:
                found.append(row)
        return found

    def kill_on(self, nodes: IntArray, now: int) -> None:
        """Kill the stopped jobs one of whose nodes takes no job: they cannot go on there."""
        closing = []
        for row in self.stopped_on(nodes.tolist()):
            position = self._position(row)
            if self._kill(row, position, now):
                closing.append(position)
        if closing:
            self._state.remove(np.sort(np.array(closing, dtype=np.int64)))

    def clear(self, row: int, now: int) -> bool:
        """End the clearing of a killed job's nodes, one of which failed; whether there was any."""
        if row not in self._closing:
            return False
        self._closing.remove(row)
        self._state.end(row)
        self._records.lost_end_s[row] = now
        if row in self._live:  # else the dispatcher refused it meanwhile
            self._queue_again(row)
        return True

    def cut(self, row: int) -> tuple[int, int, bool]:
        """End an attempt whose node failed: expected and upper duration, whether it was a test."""
        tested = self.possible and self._test_s[row] != NEVER
        if tested:
            self._test_s[row] = NEVER
        return *self._state.cut(row), bool(tested)

    def cut_stopped(self, row: int) -> tuple[int, int]:
        """End an attempt whose node failed in the very second in which its test was over.

        Returns the expected and upper duration of before the test, seconds.
        """
        del self.stopped[row], self._again_s[row]
        self._state.remove(np.array([self._position(row)]))
        self._records.goes_on(row, Test.ENDED)
        return self._said_s.pop(row)

    # ----------------------------------------------------------------------- stops and kills

    def _position(self, row: int) -> int:
        """Where a job is in the queue."""
        rows = self._state.queue_hidden[ROW, : self._state.queued]
        return int(np.searchsorted(rows, row))

    def _stop(self, row: int, now: int) -> None:
        """Put a job whose test is over into the queue: the next decision lets it go on or not."""
        column = self._seen(row)
        held, upper_s = self._state.stop(row)
        self._records.lost(row, now)
        self.stopped[row] = held
        self._test_s[row] = NEVER
        job, said_s = self._live[row], int(self._records.expected_s[row])
        self._said_s[row] = said_s, upper_s
        expected_s, upper_s = self._guard.outlived(job, now - held[0], said_s, upper_s)
        self._again_s[row] = expected_s, upper_s
        self._state.submit(row, column, expected_s, upper_s)

    def _kill(self, row: int, position: int, now: int) -> bool:
        """Kill a stopped job; whether its nodes stay busy, and it is to leave the queue."""
        held = self.stopped.pop(row)
        del self._said_s[row]
        self._records.test[row] = Test.KILLED
        self._killed(row, now)
        self._state.restart_no_more(position)
        if not self._cost_s:
            del self._again_s[row]
            return False
        end_s = now + self._cost_s
        self._state.hold(now, position, held, end_s, end_s)
        self._state.prolong(row, end_s, anew=True)
        return True

    def _killed(self, row: int, now: int) -> None:
        """Note that an attempt at a job is lost."""
        self.bound_s[row] = self._test_s[row] = NEVER
        if self._records.start_s[row] != NOT_STARTED:
            self._records.lost(row, now)
        self._records.lost_end_s[row] = now + self._cost_s
        self._guard.restart(self._live[row], now)
        self._runtime_s[row] += self._cost_s
        if self._cost_s:
            self._closing.add(row)
            self._agenda.add(now + self._cost_s, row)

    def _queue_again(self, row: int) -> None:
        """Put a killed job back into its place; a misjudged one may then run for long."""
        column = self._seen(row)
        requested_s = int(column[Column.REQUESTED]) - self._cost_s
        expected_s, upper_s = self._again_s.pop(row, (requested_s, requested_s))
        self._state.submit(row, column, expected_s + self._cost_s, upper_s + self._cost_s)
