"""The simulated cluster: queue, running jobs and free capacity in growing arrays.

A job is a column. Beside the block that a snapshot copies (see `cpdispatch.jobs.Column`) there are
hidden rows that no snapshot holds: a job's row in the workload, and when it will really end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.compile import kernel
from cpdispatch.compiled.correction import CORRECTIONS, MINIMAL, corrected
from cpdispatch.decision import NO_BOUND, Placements
from cpdispatch.instance import NO_NODES, Instance, Reservation, Running, Starvation, Stopped
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.system import System

ROW, QUEUE_CODE = 0, 1
STEP, REAL_END = 1, 2
_SUBMIT, _UNITS, _REQUESTED = int(Column.SUBMIT), int(Column.UNITS), int(Column.REQUESTED)
_EXPECTED, _UPPER = int(Column.EXPECTED), int(Column.UPPER)
_EWT, _REQUEST = int(Column.EWT), int(Column.REQUEST)

_RESTARTABLE = int(Column.RESTARTABLE)

_NEVER = int(np.iinfo(np.int64).max)

Held: TypeAlias = tuple[int, dict[int, int]]
"""The start of a job, and its units by node."""


@kernel
def correct(
    now: int, correction: int, block: IntArray, times: IntArray, hidden: IntArray, count: int
) -> int:
    """Give running jobs that outlived their expected end a new one, later than ``now``.

    See `corrected`. A job that really ends now is left alone. Rows of ``times`` are start,
    expected end, whether it is overdue, and the bound of its start. Returns the earliest expected
    end.
    """
    earliest = _NEVER
    for i in range(count):
        if times[1, i] <= now < hidden[REAL_END, i]:
            limit = times[0, i] + block[_REQUESTED, i]
            if correction == MINIMAL or limit <= now:
                times[2, i] = 1
            times[1, i], hidden[STEP, i] = corrected(
                now, correction, times[1, i], limit, hidden[STEP, i]
            )
        earliest = min(earliest, times[1, i])
    return earliest


@kernel
def begin(
    now: int,
    queue: IntArray,
    queue_hidden: IntArray,
    run: IntArray,
    times: IntArray,
    run_hidden: IntArray,
    running: int,
    offset: IntArray,
    entries: IntArray,
    free: IntArray,
    position: IntArray,
    real_end: IntArray,
    placed_offset: IntArray,
    placed_node: IntArray,
    placed_units: IntArray,
    wait_sum: IntArray,
    wait_count: IntArray,
) -> int:
    """Move the jobs at these queue positions to the running ones and take their capacity.

    Returns the earliest of their expected ends.
    """
    earliest = _NEVER
    for k in range(position.shape[0]):
        j = position[k]
        i = running + k
        for row in range(run.shape[0]):
            run[row, i] = queue[row, j]
        times[0, i], times[1, i] = now, now + queue[_EXPECTED, j]
        times[2, i] = times[3, i] = 0
        earliest = min(earliest, times[1, i])
        run_hidden[ROW, i], run_hidden[STEP, i] = queue_hidden[ROW, j], 0
        run_hidden[REAL_END, i] = real_end[k]
        low = offset[i]
        count = placed_offset[k + 1] - placed_offset[k]
        for e in range(count):
            node = placed_node[placed_offset[k] + e]
            many = placed_units[placed_offset[k] + e]
            entries[0, low + e], entries[1, low + e] = node, many
            for r in range(free.shape[1]):
                free[node, r] -= many * queue[_REQUEST + r, j]
        offset[i + 1] = low + count
        code = queue_hidden[QUEUE_CODE, j]
        wait_sum[code] += now - queue[_SUBMIT, j]
        wait_count[code] += 1
    return earliest


@kernel
def leave(queue: IntArray, queue_hidden: IntArray, queued: int, gone: IntArray) -> int:
    """Close the gaps that the jobs at these ascending positions leave; return what is left.

    Row by row, because rows are contiguous: six times as fast as job by job.
    """
    for rows in (queue, queue_hidden):
        for r in range(rows.shape[0]):
            to, k = int(gone[0]), 0
            for j in range(gone[0], queued):
                if k < gone.shape[0] and gone[k] == j:
                    k += 1
                else:
                    rows[r, to] = rows[r, j]
                    to += 1
    return queued - int(gone.shape[0])


@kernel
def end(
    row: int,
    run: IntArray,
    times: IntArray,
    run_hidden: IntArray,
    running: int,
    offset: IntArray,
    entries: IntArray,
    free: IntArray,
) -> None:
    """Give back the capacity of the running job of this workload row and close its gap."""
    i = 0
    while run_hidden[ROW, i] != row:
        i += 1
    low, high = offset[i], offset[i + 1]
    for e in range(low, high):
        for r in range(free.shape[1]):
            free[entries[0, e], r] += entries[1, e] * run[_REQUEST + r, i]
    length, total = high - low, offset[running]
    for e in range(high, total):
        entries[0, e - length], entries[1, e - length] = entries[0, e], entries[1, e]
    for rows in (run, times, run_hidden):
        for r in range(rows.shape[0]):
            for k in range(i, running - 1):
                rows[r, k] = rows[r, k + 1]
    for k in range(i, running - 1):
        offset[k + 1] = offset[k + 2] - length


@kernel
def state_waits(
    queue: IntArray,
    queue_hidden: IntArray,
    queued: int,
    stated: IntArray,
    wait_sum: IntArray,
    wait_count: IntArray,
    ewt: IntArray,
) -> None:
    """Write the expected wait of each queue, and of each queued job, in seconds.

    It is what the site states, or else the mean so far, 1 s or more.
    """
    for code in range(ewt.shape[0]):
        mean = wait_sum[code] // max(wait_count[code], 1)
        ewt[code] = stated[code] if stated[code] > 0 else max(mean, 1)
    for j in range(queued):
        queue[_EWT, j] = ewt[queue_hidden[QUEUE_CODE, j]]


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
        What every snapshot says of it.
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
        self.next_end = _NEVER
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
        # What did not change since the last snapshot is the same object in the next one.
        self._queue_seen: JobTable | None = None
        self._running_seen: tuple[IntArray, Running] | None = None

    def submit(self, row: int, column: IntArray, expected_s: int, upper_s: int) -> None:
        """Put a job into the queue, by workload row: at the end, if it was never there before."""
        end = self.queued
        if end == self.queue.shape[1]:
            self.queue = _wider(self.queue)
            self.queue_hidden = _wider(self.queue_hidden)
        at = end
        if end and self.queue_hidden[ROW, end - 1] > row:
            at = int(np.searchsorted(self.queue_hidden[ROW, :end], row))
            for rows in (self.queue, self.queue_hidden):
                rows[:, at + 1 : end + 1] = rows[:, at:end].copy()
        self.queue[:, at] = column
        self.queue[_EXPECTED, at] = expected_s
        self.queue[_UPPER, at] = upper_s
        self.queue_hidden[ROW, at] = row
        code = self._queue_code[row]
        self.queue_hidden[QUEUE_CODE, at] = code
        self.queue[_EWT, at] = self._ewt[code]
        self.queued = end + 1
        self._queue_seen = None

    def start(
        self, now: int, placements: Placements, real_end: IntArray, bound_s: IntArray | None = None
    ) -> None:
        """Start queued jobs where they were placed; they stay in the queue until `remove`.

        A job with a bound, s, is taken to hold its nodes until then, and until it has been killed.
        """
        count = self.running + len(placements)
        while count > self.run.shape[1]:
            self.run, self.times = _wider(self.run), _wider(self.times)
            self.run_hidden = _wider(self.run_hidden)
            self.offset = _wider(self.offset[None])[0]
        while self.offset[self.running] + len(placements.node) > self.entries.shape[1]:
            self.entries = _wider(self.entries)
        earliest = begin(
            now, self.queue, self.queue_hidden, self.run, self.times, self.run_hidden,
            self.running, self.offset, self.entries, self.free,
            placements.position, real_end, placements.offset, placements.node, placements.units,
            self._wait_sum, self._wait_count,
        )  # fmt: skip
        if bound_s is not None:
            for k in np.flatnonzero(bound_s != NO_BOUND).tolist():
                at, holds_s = self.running + k, int(bound_s[k]) + self.restart_cost_s
                self.times[1, at], self.times[3, at] = now + holds_s, bound_s[k]
                earliest = min(earliest, now + holds_s)
        self.running = count
        self.next_end = min(self.next_end, earliest)
        self._ewt_is_old = True
        self._running_seen = None

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
        """Let a running job hold its nodes until then, for sure.

        If it is to start ``anew`` then, that is how long its start was bounded, and what is
        expected of it, killing included, comes on top.
        """
        at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
        held_s, times = end_s - self.times[0, at], [_REQUESTED, _EXPECTED]
        self.times[1:, at] = end_s, 0, held_s - self.restart_cost_s if anew else 0
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
            self._queue_seen = JobTable(self.queue[:, : self.queued].copy(), self.labels)
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
        running = self.running
        passed = self.next_end <= now
        if passed:
            self.next_end = correct(
                now, self.correction, self.run, self.times, self.run_hidden, running
            )
        free = self.free.copy()
        run, times = self.run[:, :running].copy(), self.times[:, :running].copy()
        offset = self.offset[: running + 1].copy()
        entries = self.entries[:, : offset[-1]].copy()
        if passed and self.next_end <= now:
            ending = times[1] <= now
            gone = np.repeat(ending, np.diff(offset))
            owner = np.repeat(np.arange(running), np.diff(offset))[gone]
            held = run[_REQUEST:, owner] * entries[1, gone]
            np.add.at(free, entries[0, gone], held.T)
            offset = np.concatenate(([0], np.cumsum(np.diff(offset)[~ending])))
            run, times = run[:, ~ending].copy(), times[:, ~ending].copy()
            entries = entries[:, ~gone].copy()
        for array in (free, times, offset, entries):
            sealed(array)
        return free, Running(
            JobTable(run, self.labels), times[0], times[1], times[2], offset, entries[0],
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
