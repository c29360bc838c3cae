"""Jobs that have ended, dispatched anew on the system as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from cpdispatch.analyze.metrics import TAU_S
from cpdispatch.arrays import IntArray, sealed
from cpdispatch.decision import Decision
from cpdispatch.instance import NO_NODES, Instance, Running
from cpdispatch.jobs import JobTable
from cpdispatch.system import System


class Contender(Protocol):
    """What is tried: a dispatcher."""

    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where."""
        ...


@dataclass(slots=True)
class Trial:
    """What a dispatcher would have made of jobs that have ended, decision by decision.

    At the end this is what a simulation gives, if predictions are the same.

    Attributes
    ----------
    contender : Contender
    system : System
        Empty at the beginning.
    jobs : JobTable
        By submission.
    runtime_s, start_s : int64 array, shape (jobs,)
        How long each runs, and when it has started; -1 before.
    """

    contender: Contender
    system: System
    jobs: JobTable
    runtime_s: IntArray
    start_s: IntArray = field(init=False)
    _free: IntArray = field(init=False, repr=False)
    _submitted: int = field(default=0, repr=False)
    _queue: list[int] = field(default_factory=list, repr=False)
    _places: dict[int, tuple[IntArray, IntArray]] = field(default_factory=dict, repr=False)
    """Of each running job, in the order of their starts, its nodes and its units there."""
    _ends: list[tuple[int, int]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.start_s = np.full(len(self.jobs), -1, dtype=np.int64)
        self._free = self.system.capacity.copy()

    def step(self) -> bool:
        """Go on to the next decision, and make it; whether there was one."""
        while self._submitted < len(self.jobs) or self._ends:
            now = self._next_instant()
            if self._queue:
                instance = self._instance(now)
                self._apply(instance, self.contender.dispatch(instance))
                return True
        return False

    def slowdown(self) -> float:
        """Mean bounded slowdown; inf when there is a job that has not started."""
        if (self.start_s < 0).any():
            return np.inf
        response_s = self.start_s - self.jobs.submit_s + self.runtime_s
        return float(np.maximum(response_s / np.maximum(self.runtime_s, TAU_S), 1).mean())

    def _next_instant(self) -> int:
        """End and submit the jobs of the next instant."""
        submit_s, times = self.jobs.submit_s, [end_s for end_s, _ in self._ends[:1]]
        if self._submitted < len(submit_s):
            times.append(int(submit_s[self._submitted]))
        now = min(times)
        while self._ends and self._ends[0][0] == now:
            row = heappop(self._ends)[1]
            self._hold(row, *self._places.pop(row), -1)
        while self._submitted < len(submit_s) and submit_s[self._submitted] == now:
            self._queue.append(self._submitted)
            self._submitted += 1
        return now

    def _hold(self, row: int, node: IntArray, units: IntArray, sign: int) -> None:
        self._free[node] -= sign * units[:, None] * self.jobs.request[row]

    def _instance(self, now: int) -> Instance:
        rows = np.array(list(self._places), dtype=np.int64)
        jobs, start_s = self.jobs.take(rows), self.start_s[rows]
        end_s = start_s + jobs.expected_s
        overdue = end_s <= now
        none = [NO_NODES]
        node = np.concatenate([*(node for node, _ in self._places.values()), *none])
        units = np.concatenate([*(units for _, units in self._places.values()), *none])
        offset = np.cumsum([0, *(len(node) for node, _ in self._places.values())])
        columns = (start_s, np.where(overdue, now + 1, end_s), overdue, offset, node, units)
        running = Running(jobs, *(sealed(column.astype(np.int64)) for column in columns))
        free, queue = sealed(self._free.copy()), self.jobs.take(np.array(self._queue))
        return Instance(now, self.system, free, queue, running, NO_NODES)

    def _apply(self, instance: Instance, decision: Decision) -> None:
        placed = decision.placements
        for k, position in enumerate(placed.position.tolist()):
            if decision.start_s[position] == instance.now:
                row, of = self._queue[position], slice(placed.offset[k], placed.offset[k + 1])
                self.start_s[row] = instance.now
                self._places[row] = placed.node[of], placed.units[of]
                self._hold(row, *self._places[row], 1)
                heappush(self._ends, (instance.now + int(self.runtime_s[row]), row))
        self._queue = [row for row in self._queue if self.start_s[row] < 0]
