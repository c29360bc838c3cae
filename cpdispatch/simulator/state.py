"""The simulated cluster: queue, running jobs and free capacity in growing arrays.

See `cpdispatch.simulator.kernels` for what the arrays hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.compiled.correction import CORRECTIONS
from cpdispatch.decision import NO_BOUND, Decision, Placements
from cpdispatch.instance import NO_NODES, Instance, Reservation, Running, Starvation, Stopped
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator.kernels import (
    NEVER,
    QUEUE_CODE,
    REAL_END,
    ROW,
    UNSOUND,
    begin,
    copy_queue,
    copy_running,
    end,
    enter,
    leave,
    settle,
    state_waits,
)
from cpdispatch.simulator.records import Records
from cpdispatch.system import System

_SUBMIT, _REQUESTED, _EXPECTED = int(Column.SUBMIT), int(Column.REQUESTED), int(Column.EXPECTED)
_UPPER, _REQUEST, _RESTARTABLE = int(Column.UPPER), int(Column.REQUEST), int(Column.RESTARTABLE)

Held: TypeAlias = tuple[int, dict[int, int]]
"""The start of a job, and its units by node."""


class State:
    """What the simulated cluster is at one moment.

    Parameters
    ----------
    workload : Workload
        Its requests speak of the system's resource types.
    system : System
    correction : str
        See `correct`.
    starvation : Starvation or None
        The starvation bound of every snapshot.
    restart_cost_s : int
        How long the nodes of a killed job stay busy.
    """

    def __init__(
        self,
        workload: Workload,
        system: System,
        correction: str,
        starvation: Starvation | None = None,
        restart_cost_s: int = 0,
    ) -> None:
        self.system = system
        self.restart_cost_s = restart_cost_s
        self.starvation = starvation
        self.labels = workload.table.labels
        self.correction = CORRECTIONS[correction]
        rows = len(workload.table.columns)
        self.queue = np.empty((rows, 64), dtype=np.int64)
        self.queue_hidden = np.empty((2, 64), dtype=np.int64)
        self.queued = 0
        self.run = np.empty((rows, 64), dtype=np.int64)
        self.times = np.empty((4, 64), dtype=np.int64)
        self.run_hidden = np.empty((3, 64), dtype=np.int64)
        self.running = 0
        self.down = NO_NODES
        """Nodes out of service."""
        self.reservations: tuple[Reservation, ...] = ()
        """Maintenance that is known."""
        self.next_end = NEVER
        self.offset = np.zeros(65, dtype=np.int64)
        self.entries = np.empty((2, 256), dtype=np.int64)
        self.free = system.capacity.copy()
        names, self._queue_code = np.unique(
            workload.table.column(Column.QUEUE), return_inverse=True
        )
        self._stated = np.zeros(len(names), dtype=np.int64)
        for code in range(len(names)):
            position = int(np.argmax(self._queue_code == code))
            label = workload.table.label("queue", position)
            self._stated[code] = system.expected_wait_s.get(label, 0)
        self._wait_sum = np.zeros(len(names), dtype=np.int64)
        self._wait_count = np.zeros(len(names), dtype=np.int64)
        self._ewt = np.maximum(self._stated, 1)
        self._ewt_is_old = False
        self._bounded = False
        """Whether a running job may have a bound."""
        # What did not change since the last snapshot is the same object in the next one.
        self._queue_seen: JobTable | None = None
        self._running_seen: tuple[IntArray, Running] | None = None

    def submit(self, row: int, column: IntArray, expected_s: int, upper_s: int) -> None:
        """Put a job into the queue, by workload row: at the end, if it was never there before."""
        at = last = self.queued
        if last == self.queue.shape[1]:
            self.queue = _wider(self.queue)
            self.queue_hidden = _wider(self.queue_hidden)
        if last and self.queue_hidden.item(ROW, last - 1) > row:
            at = int(np.searchsorted(self.queue_hidden[ROW, :last], row))
            for rows in (self.queue, self.queue_hidden):
                rows[:, at + 1 : last + 1] = rows[:, at:last].copy()
        enter(
            self.queue, self.queue_hidden, at, column, row, self._queue_code.item(row),
            expected_s, upper_s, self._ewt,
        )  # fmt: skip
        self.queued = last + 1
        self._queue_seen = None

    def start(
        self, now: int, placements: Placements, real_end: IntArray, bound_s: IntArray | None = None
    ) -> None:
        """Start queued jobs where they were placed; they stay in the queue until `remove`.

        A job with a bound, s, is taken to hold its nodes until then, and until it has been killed.
        """
        count = self.running + len(placements)
        self._make_room(len(placements), len(placements.node))
        earliest = begin(
            now, self.queue, self.queue_hidden, self.run, self.times, self.run_hidden,
            self.running, self.offset, self.entries, self.free,
            placements.position, real_end, placements.offset, placements.node, placements.units,
            self._wait_sum, self._wait_count,
        )  # fmt: skip
        if bound_s is not None:
            self._bounded = True
            for k in np.flatnonzero(bound_s != NO_BOUND).tolist():
                at, holds_s = self.running + k, int(bound_s[k]) + self.restart_cost_s
                self.times[1, at], self.times[3, at] = now + holds_s, bound_s[k]
                earliest = min(earliest, now + holds_s)
        self._started(count, earliest)

    def _make_room(self, jobs: int, entries: int) -> None:
        """Make the arrays of running jobs long enough for so many more."""
        while self.running + jobs > self.run.shape[1]:
            self.run, self.times = _wider(self.run), _wider(self.times)
            self.run_hidden = _wider(self.run_hidden)
            self.offset = _wider(self.offset[None])[0]
        while self.offset.item(self.running) + entries > self.entries.shape[1]:
            self.entries = _wider(self.entries)

    def _started(self, running: int, earliest: int) -> None:
        """Take note that so many jobs run now, with the earliest expected end of the new ones."""
        self.running = running
        self.next_end = min(self.next_end, earliest)
        self._ewt_is_old = True
        self._running_seen = None

    def settle(
        self, now: int, free: IntArray, decision: Decision, runtime_s: IntArray, records: Records
    ) -> list[tuple[int, int]] | None:
        """Check a decision, let its jobs leave the queue and start, and record it.

        Returns rows and real ends of the jobs that start; None, with nothing changed, if the
        decision has to be looked at with more care, see `cpdispatch.simulator.kernels.is_sound`.
        """
        places, queued = decision.placements, self.queued
        placed, entries = len(places.position), len(places.node)
        if (
            len(decision.start_s) != queued
            or len(decision.reason) != queued
            or len(places.offset) != placed + 1
            or len(places.units) != entries
        ):
            return None
        try:
            flat: NDArray[Any] = np.concatenate(
                (decision.start_s, decision.reason, places.position, places.offset, places.node,
                 places.units)
            )  # fmt: skip
        except ValueError:  # some of them are no rows of numbers
            return None
        if flat.dtype != np.int64:
            return None
        if placed:
            self._make_room(placed, entries)
            records.make_room(entries)
        earliest = settle(
            now, flat, placed, entries, free, self.queue, self.queue_hidden, queued,
            self.run, self.times, self.run_hidden, self.running, self.offset, self.entries,
            self.free, self._wait_sum, self._wait_count, runtime_s,
            records.start_s, records.reason, records.first, records.count, records.promised_s,
            records.node, records.units, records.used,
        )  # fmt: skip
        if earliest == UNSOUND:
            return None
        if not placed:
            return []
        self._started(self.running + placed, earliest)
        self.queued, self._queue_seen = queued - placed, None
        records.used += entries
        rows, ends = flat[:placed].tolist(), flat[queued : queued + placed].tolist()
        return list(zip(rows, ends, strict=True))

    def stop(self, row: int) -> tuple[Held, int]:
        """End a running job as `end` does; what it held, and its upper duration in seconds."""
        at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
        node, units = self.entries[:, self.offset[at] : self.offset[at + 1]].tolist()
        held = int(self.times[0, at]), dict(zip(node, units, strict=True))
        upper_s = int(self.run[_UPPER, at])
        self.end(row)
        return held, upper_s

    def hold(self, now: int, position: int, held: Held, due_s: int, real_end_s: int) -> None:
        """Let a queued job hold again what it held when it was stopped; it has waited once.

        It stays in the queue until `remove`. ``due_s`` is its expected end.
        """
        start_s, nodes = held
        self.start(now, Placements.of({position: nodes}), np.array([real_end_s]))
        at = self.running - 1
        self.times[:2, at] = start_s, due_s
        self.next_end = min(self.next_end, due_s)
        code = self.queue_hidden[QUEUE_CODE, position]
        self._wait_sum[code] -= now - self.queue[_SUBMIT, position]
        self._wait_count[code] -= 1

    def restart_no_more(self, position: int) -> None:
        """Note that a queued job has been killed: that happens once."""
        self.queue[_RESTARTABLE, position] = 0
        self._queue_seen = None

    def prolong(self, row: int, end_s: int, anew: bool = False) -> None:
        """Let a running job hold its nodes until ``end_s``.

        If it starts ``anew`` then, its start was bounded until that time, and its expected duration
        and the time of killing are added.
        """
        at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
        held_s, times = end_s - self.times[0, at], [_REQUESTED, _EXPECTED]
        self.times[1:, at] = end_s, 0, held_s - self.restart_cost_s if anew else 0
        self._bounded = True
        again_s = self.run[times, at] + self.restart_cost_s if anew else 0
        self.run[times, at] = held_s + again_s
        self.run_hidden[REAL_END, at] = end_s
        self.next_end = min(self.next_end, end_s)
        self._running_seen = None

    def remove(self, positions: IntArray) -> None:
        """Take the jobs at these ascending positions out of the queue."""
        self.queued = leave(self.queue, self.queue_hidden, self.queued, positions)
        self._queue_seen = None

    def end(self, row: int) -> None:
        """End the running job of this workload row."""
        end(
            row, self.run, self.times, self.run_hidden, self.running,
            self.offset, self.entries, self.free,
        )  # fmt: skip
        self.running -= 1
        self._running_seen = None

    def running_on(self, nodes: Sequence[int], now: int) -> list[int]:
        """The rows of the jobs that run on these nodes and do not end by themselves ``now``."""
        owner = np.repeat(np.arange(self.running), np.diff(self.offset[: self.running + 1]))
        there = np.isin(self.entries[0, : len(owner)], nodes)
        found = np.unique(owner[there])
        found = found[self.run_hidden[REAL_END, found] > now]
        rows: list[int] = self.run_hidden[ROW, found].tolist()
        return rows

    def misfits(self, nodes: Sequence[int], capacity: IntArray) -> list[int]:
        """The rows of the jobs that these nodes hold no longer if this is their capacity.

        Jobs stay in the order in which they started, as long as the nodes have room for them.
        """
        left = capacity.copy()
        changed = np.zeros(len(left), dtype=np.bool_)
        changed[list(nodes)] = True
        found = []
        for at in np.argsort(self.times[0, : self.running], kind="stable").tolist():
            node, units = self.entries[:, self.offset[at] : self.offset[at + 1]]
            node, units = node[changed[node]], units[changed[node]]
            held = units[:, None] * self.run[_REQUEST:, at]
            if (held <= left[node]).all():
                left[node] -= held
            else:
                found.append(int(self.run_hidden[ROW, at]))
        return found

    def resize(self, system: System) -> None:
        """Let nodes have other capacity from now on, which holds what runs there."""
        self.free += system.capacity - self.system.capacity
        self.system = system
        self._running_seen = None

    def cut(self, row: int) -> tuple[int, int]:
        """End a running job as `end` does; its expected and its upper duration, seconds."""
        at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
        expected_s, upper_s = self.run[[_EXPECTED, _UPPER], at].tolist()
        self.end(row)
        return expected_s, upper_s

    def refresh(self, now: int, ask: Callable[[int, int], int]) -> None:
        """Ask anew about the running jobs that outlived their expected ends.

        ``ask`` says how long the job of a row will run, from how long it has run, both in seconds;
        an end that would not be later than ``now`` is left to `correct`.
        """
        if self.next_end > now:
            return
        start, due = self.times[0, : self.running], self.times[1, : self.running]
        late = (due <= now) & (self.run_hidden[REAL_END, : self.running] > now)
        for i in np.flatnonzero(late).tolist():
            elapsed_s = now - int(start[i])
            asked_s = ask(int(self.run_hidden[ROW, i]), elapsed_s)
            if asked_s > elapsed_s:
                due[i] = start[i] + asked_s

    def look(self, now: int) -> tuple[JobTable, Running]:
        """The queue and the running jobs as they are; nothing is corrected by looking."""
        running, last = self.running, int(self.offset[self.running])
        times, entries = self.times[:, :running].copy(), self.entries[:, :last].copy()
        times[1] = np.maximum(times[1], now + 1)
        offset = self.offset[: running + 1].copy()
        for array in (times, entries, offset):
            sealed(array)
        queue = JobTable(self.queue[:, : self.queued].copy(), self.labels)
        jobs = JobTable(self.run[:, :running].copy(), self.labels)
        return queue, Running(jobs, times[0], times[1], times[2], offset, entries[0], entries[1])

    def snapshot(self, now: int, stopped: Mapping[int, Held] | None = None) -> Instance:
        """An immutable copy for a dispatcher; ``stopped`` is what queued jobs held, by row.

        Jobs that end at this very instant, just as expected, count as ended: only the trigger
        ``event`` dispatches while there are any. ``next_end``, never later than the earliest
        expected end, saves most calls of `correct`.
        """
        if self._ewt_is_old:
            state_waits(
                self.queue, self.queue_hidden, self.queued,
                self._stated, self._wait_sum, self._wait_count, self._ewt,
            )  # fmt: skip
            self._ewt_is_old, self._queue_seen = False, None
        if self._queue_seen is None:
            block = np.empty((len(self.queue), self.queued), dtype=np.int64)
            copy_queue(self.queue, block)
            self._queue_seen = JobTable(block, self.labels)
        if self._running_seen is None or self.next_end <= now:
            self._running_seen = self._free_and_running(now)
        free, running = self._running_seen
        if len(self.down):
            free = free.copy()
            free[self.down] = 0
            sealed(free)
        for reservation in self.reservations:
            if reservation.start_s <= now:
                free = free.copy()
                free[list(reservation.nodes)] = 0
                sealed(free)
        return Instance(
            now, self.system, free, self._queue_seen, running, self.down, self.reservations,
            starvation=self.starvation, stopped=self._stopped(stopped or {}),
            restart_cost_s=self.restart_cost_s,
        )  # fmt: skip

    def _stopped(self, held: Mapping[int, Held]) -> Stopped | None:
        if not held:
            return None
        rows = self.queue_hidden[ROW, : self.queued]
        return Stopped.of({int(np.searchsorted(rows, row)): of for row, of in held.items()})

    def _free_and_running(self, now: int) -> tuple[IntArray, Running]:
        """Free capacity and running jobs at this instant; expected ends are later than it."""
        running, held = self.running, self.offset.item(self.running)
        rows, of_times = len(self.run), len(self.times)
        flat = np.empty(
            self.free.size + (rows + of_times + 1) * running + 1 + 2 * held, dtype=np.int64
        )
        self.next_end = copy_running(
            now, self.correction, self.next_end, self.run, self.times, self.run_hidden, running,
            self.offset, self.entries, self.free, flat,
        )  # fmt: skip
        if self.next_end <= now:
            return self._without_ending(now)
        sealed(flat)
        at = self.free.size
        free = flat[:at].reshape(self.free.shape)
        block = flat[at : at + rows * running].reshape(rows, running)
        at += rows * running
        times = flat[at : at + of_times * running].reshape(of_times, running)
        at += of_times * running
        offset = flat[at : at + running + 1]
        at += running + 1
        bound_s = times[3] if self._bounded and times[3].any() else None
        return free, Running(
            JobTable(block, self.labels), times[0], times[1], times[2], offset,
            flat[at : at + held], flat[at + held :], bound_s,
        )  # fmt: skip

    def _without_ending(self, now: int) -> tuple[IntArray, Running]:
        """The same where jobs end at this very instant, just as expected: these count as ended."""
        running, free = self.running, self.free.copy()
        stays = self.times[1, :running] > now
        offset = self.offset[: running + 1]
        owner = np.repeat(np.arange(running), np.diff(offset))
        gone = ~stays[owner]
        entries = self.entries[:, : len(owner)]
        held = self.run[_REQUEST:, owner[gone]] * entries[1, gone]
        np.add.at(free, entries[0, gone], held.T)
        offset = np.concatenate(([0], np.cumsum(np.diff(offset)[stays])))
        block, times = self.run[:, :running][:, stays], self.times[:, :running][:, stays]
        entries = entries[:, ~gone]
        for array in (free, times, offset, entries):
            sealed(array)
        return free, Running(
            JobTable(block, self.labels), times[0], times[1], times[2], offset, entries[0],
            entries[1], times[3] if times[3].any() else None,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, object]:
        """Everything but the last snapshot: read-only arrays would come back writeable."""
        return self.__dict__ | {"_queue_seen": None, "_running_seen": None}


def _wider(array: IntArray) -> IntArray:
    """The same array with room for twice as many columns."""
    wider = np.empty((array.shape[0], 2 * array.shape[1]), dtype=np.int64)
    wider[:, : array.shape[1]] = array
    return wider
