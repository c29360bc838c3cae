"""The simulated cluster: queue, running jobs, free capacity and agenda in one growing array.

See `cpdispatch.simulator.kernels` for what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray, sealed
from cpdispatch.compiled.correction import CORRECTIONS
from cpdispatch.decision import HEAD as OF_DECISION
from cpdispatch.decision import NO_BOUND, Decision, Placements
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.instance import NO_NODES, Instance, Reservation, Running, Starvation, Stopped
from cpdispatch.instance.snapshot import HEAD, NOW, of_flat
from cpdispatch.instance.snapshot import RUNNING as RUNNING_SEEN
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator.kernels import (
    EVENTS,
    EWT,
    FULL,
    MARKS,
    NEVER,
    NEXT_END,
    QUEUE_CODE,
    QUEUE_ROOM,
    QUEUED,
    REAL_END,
    ROW,
    ROWS,
    RUNNING,
    STATED,
    UNSOUND,
    WAIT_COUNT,
    WAIT_SUM,
    begin,
    end,
    enter,
    leave,
    look,
    memory_size,
    open_memory,
    settle,
)
from cpdispatch.simulator.records import Records
from cpdispatch.system import System

_ID, _SUBMIT = int(Column.ID), int(Column.SUBMIT)
_REQUESTED, _EXPECTED = int(Column.REQUESTED), int(Column.EXPECTED)
_UPPER, _REQUEST, _RESTARTABLE = int(Column.UPPER), int(Column.REQUEST), int(Column.RESTARTABLE)
_ROOM = (64, 64, 256, 64)
"""Room at first: for queued jobs, running jobs, entries of these, and those of the agenda."""
_PARTS = (
    "free", "waits", "queue", "queue_hidden", "run", "times", "run_hidden", "offset", "entries",
    "agenda",
)  # fmt: skip
_NAMED = ("marks", *_PARTS)

Held: TypeAlias = tuple[int, dict[int, int]]
"""The start of a job, and its units by node."""


class State:
    """What the simulated cluster is at one moment.

    Parameters
    ----------
    workload : Workload
        Its requests speak of the system's resource types.
    correction : str
        See `cpdispatch.compiled.correction.corrected`.
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
        self.down = NO_NODES
        """Nodes out of service."""
        self.reservations: tuple[Reservation, ...] = ()
        """Maintenance that is known."""
        self.ran = 0
        """How many jobs run in the last instance."""
        names, self.queue_code = np.unique(workload.table.column(Column.QUEUE), return_inverse=True)
        """The number of each job's queue."""
        rows, shape = len(workload.table.columns), system.capacity.shape
        marks = np.zeros(MARKS, dtype=np.int64)
        marks[NEXT_END] = NEVER
        marks[ROWS:] = (rows, *shape, len(names), *_ROOM)
        self._lay_out(marks)
        self.free[:], self.waits[:], self.offset[0] = system.capacity, 0, 0
        for code in range(len(names)):
            position = int(np.argmax(self.queue_code == code))
            label = workload.table.label("queue", position)
            self.waits[STATED, code] = system.expected_wait_s.get(label, 0)
        self.waits[EWT] = np.maximum(self.waits[STATED], 1)

    def _lay_out(self, marks: IntArray) -> None:
        """Make a memory of these sizes."""
        self.memory = np.empty(memory_size(marks), dtype=np.int64)
        self.memory[:MARKS] = marks
        self._name_parts()

    def _name_parts(self) -> None:
        """Give the parts of the memory their names."""
        (
            self.marks, self.free, self.waits, self.queue, self.queue_hidden, self.run, self.times,
            self.run_hidden, self.offset, self.entries, self.agenda,
        ) = open_memory(self.memory)  # fmt: skip

    def make_room(
        self, queued: int = 0, running: int = 0, entries: int = 0, events: int = 0
    ) -> None:
        """Make the memory large enough for so many more."""
        there = self.queued, self.running, self.offset.item(self.running), self.events
        more = queued, running, entries, events
        room = self.marks[QUEUE_ROOM:].tolist()
        needed = [has + new for has, new in zip(there, more, strict=True)]
        if all(need <= has for need, has in zip(needed, room, strict=True)):
            return
        marks = self.marks.copy()
        marks[QUEUE_ROOM:] = [
            has if need <= has else max(2 * has, need)
            for need, has in zip(needed, room, strict=True)
        ]
        before = [getattr(self, name) for name in _PARTS]
        self._lay_out(marks)
        for name, old in zip(_PARTS, before, strict=True):
            getattr(self, name)[tuple(map(slice, old.shape))] = old

    @property
    def queued(self) -> int:
        """How many jobs are queued."""
        return self.marks.item(QUEUED)

    @property
    def running(self) -> int:
        """How many jobs run."""
        return self.marks.item(RUNNING)

    @property
    def events(self) -> int:
        """How many entries the agenda has."""
        return self.marks.item(EVENTS)

    def submit(self, row: int, column: IntArray, expected_s: int, upper_s: int) -> None:
        """Put a job into the queue, by workload row: at the end, if it was never there before."""
        self.make_room(queued=1)
        code = self.queue_code.item(row)
        enter(self.memory, np.array(column), row, code, expected_s, upper_s)

    def start(
        self, now: int, placements: Placements, real_end: IntArray, bound_s: IntArray | None = None
    ) -> None:
        """Start queued jobs where they were placed; they stay in the queue until `remove`.

        A job with a bound, s, is taken to hold its nodes until then, and until it has been killed.
        """
        first = self.running
        self.make_room(running=len(placements), entries=len(placements.node))
        flat = np.concatenate(
            (placements.position, real_end, placements.offset, placements.node, placements.units)
        )
        begin(self.memory, now, flat, len(placements))
        for at in range(first, self.running) if self.system.once else ():
            self._take_once(at, 1)
        if bound_s is not None:
            for k in np.flatnonzero(bound_s != NO_BOUND).tolist():
                at, holds_s = first + k, int(bound_s[k]) + self.restart_cost_s
                self.times[1, at], self.times[3, at] = now + holds_s, bound_s[k]
                self._expect_end(now + holds_s)

    def _expect_end(self, end_s: int) -> None:
        """Take note of an expected end."""
        self.marks[NEXT_END] = min(self.marks.item(NEXT_END), end_s)

    def settle(
        self, now: int, decision: Decision, runtime_s: IntArray, bound_s: IntArray,
        records: Records,
    ) -> int | None:  # fmt: skip
        """Check a decision, let its jobs leave the queue and start, and record it.

        Returns how many start: they are the last ones that run. None, with nothing changed, if the
        decision has to be looked at with more care, see `cpdispatch.simulator.kernels.settle`.
        """
        flat = decision.flat
        if flat is None:
            return None
        while True:
            started: int = settle(
                self.memory, now, flat, runtime_s, bound_s, records.table, records.reason,
                records.node, records.units, records.used,
            )  # fmt: skip
            if started <= 0 and started != FULL:
                return None if started == UNSOUND else 0
            placed = flat.item(1)
            entries = (len(flat) - OF_DECISION - 1) // 2 - flat.item(0) - placed
            if started > 0:
                records.used += entries
                return started
            self.make_room(running=placed, entries=entries, events=placed)
            records.make_room(entries)

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
        self._expect_end(due_s)
        code = self.queue_hidden[QUEUE_CODE, position]
        self.waits[WAIT_SUM, code] -= now - self.queue[_SUBMIT, position]
        self.waits[WAIT_COUNT, code] -= 1

    def restart_no_more(self, position: int) -> None:
        """Note that a queued job has been killed: that happens once."""
        self.queue[_RESTARTABLE, position] = 0

    def prolong(self, row: int, end_s: int, anew: bool = False) -> None:
        """Let a running job hold its nodes until ``end_s``.

        If it starts ``anew`` then, its start was bounded until that time, and its expected duration
        and the time of killing are added.
        """
        at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
        held_s, times = end_s - self.times[0, at], [_REQUESTED, _EXPECTED]
        self.times[1:, at] = end_s, 0, held_s - self.restart_cost_s if anew else 0
        again_s = self.run[times, at] + self.restart_cost_s if anew else 0
        self.run[times, at] = held_s + again_s
        self.run_hidden[REAL_END, at] = end_s
        self._expect_end(end_s)

    def remove(self, positions: IntArray) -> None:
        """Take the jobs at these ascending positions out of the queue."""
        leave(self.memory, positions)

    def end(self, row: int) -> None:
        """End the running job of this workload row."""
        if self.system.once:
            at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
            self._take_once(at, -1)
        end(self.memory, row)

    def _take_once(self, at: int, sign: int) -> None:
        """Take what a running job holds once from its first node, or give it back."""
        node = self.entries[0, self.offset[at]]
        for once, of in self.system.once:
            self.free[node, of] -= sign * self.run[_REQUEST + once, at]

    def running_on(self, nodes: Sequence[int]) -> list[int]:
        """The rows of the jobs that run on these nodes."""
        owner = np.repeat(np.arange(self.running), np.diff(self.offset[: self.running + 1]))
        there = np.isin(self.entries[0, : len(owner)], nodes)
        rows: list[int] = self.run_hidden[ROW, np.unique(owner[there])].tolist()
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
            on_first = node == self.entries[0, self.offset[at]]
            for once, of in self.system.once:
                held[on_first, of] += self.run[_REQUEST + once, at]
                held[:, once] = 0
            if (held <= left[node]).all():
                left[node] -= held
            else:
                found.append(int(self.run_hidden[ROW, at]))
        return found

    def fitting(self) -> tuple[IntArray, BoolArray]:
        """The rows of the queued jobs, and whether each fits the system as it is."""
        jobs = JobTable(self.queue[:, : self.queued].copy())
        fits = system_fits(self.system, jobs)
        return self.queue_hidden[ROW, : self.queued], fits

    def resize(self, system: System) -> None:
        """Let nodes have other capacity from now on, which holds what runs there."""
        self.free += system.capacity - self.system.capacity
        self.system = system

    def cut(self, row: int) -> tuple[int, int]:
        """End a running job as `end` does; its expected and its upper duration, seconds."""
        at = int(np.flatnonzero(self.run_hidden[ROW, : self.running] == row)[0])
        expected_s, upper_s = self.run[[_EXPECTED, _UPPER], at].tolist()
        self.end(row)
        return expected_s, upper_s

    def refresh(self, now: int, ask: Callable[[int, int], int]) -> None:
        """Ask anew about the running jobs that outlived their expected ends.

        ``ask`` says how long the job of a row will run, from how long it has run, both in seconds;
        an end that would not be later than ``now`` is left to the correction.
        """
        if self.marks.item(NEXT_END) > now:
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

    def snapshot(
        self,
        now: int,
        stopped: Mapping[int, Held] | None = None,
        data: Mapping[str, object] | None = None,
        came_s: IntArray | None = None,
    ) -> Instance:
        """An immutable copy for a dispatcher.

        ``stopped`` is what queued jobs held, ``came_s`` since when jobs wait for nodes, by row.
        """
        flat = look(self.memory, now, self.correction)
        if self.system.once:
            self._see_once(now, flat[HEAD : HEAD + self.free.size].reshape(self.free.shape))
        if len(self.down) or self.reservations:
            free = flat[HEAD : HEAD + self.free.size].reshape(self.free.shape)
            free[self.down] = 0
            for reservation in self.reservations:
                if reservation.start_s <= now:
                    free[list(reservation.nodes)] = 0
        return self.seen(flat, stopped, data, came_s)

    def _see_once(self, now: int, free: IntArray) -> None:
        """Write into what is free what first nodes hold of jobs that end at this very instant."""
        for at in np.flatnonzero(self.times[1, : self.running] <= now).tolist():
            node = self.entries[0, self.offset[at]]
            for once, of in self.system.once:
                free[node, of] += self.run[_REQUEST + once, at]
        for once, _ in self.system.once:
            free[:, once] = self.system.capacity[:, once]

    def seen(
        self,
        flat: IntArray,
        stopped: Mapping[int, Held] | None = None,
        data: Mapping[str, object] | None = None,
        came_s: IntArray | None = None,
    ) -> Instance:
        """The instance of what a kernel has copied."""
        self.ran = flat.item(RUNNING_SEEN)
        came = None if came_s is None else self.came(came_s)
        return of_flat(
            flat, self.labels, flat.item(NOW), self.system, self.down, self.reservations, None,
            None, self.starvation, self._stopped(stopped) if stopped else None,
            self.restart_cost_s, data or {}, came,
        )  # fmt: skip

    def came(self, came_s: IntArray) -> IntArray:
        """Since when queued jobs wait for nodes, see `Instance.came_s`; given by row."""
        rows = self.queue_hidden[ROW, : self.queued]
        return sealed(np.stack((self.queue[_ID, : self.queued], came_s[rows])))

    def _stopped(self, held: Mapping[int, Held]) -> Stopped:
        rows = self.queue_hidden[ROW, : self.queued]
        return Stopped.of({int(np.searchsorted(rows, row)): of for row, of in held.items()})

    def __getstate__(self) -> dict[str, object]:
        """Everything but the names of the parts of the memory."""
        return {name: value for name, value in self.__dict__.items() if name not in _NAMED}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        sealed(self.down)  # which a pickle forgets, and kernels would be compiled for another
        self._name_parts()
