"""The jobs that ended last, as far as a dispatcher can know them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.decision import Decision
from cpdispatch.heuristics.test_runs import going_on
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable

MOST = 10_000
"""How many are remembered."""

_Job = tuple[IntArray, int]
"""The column of a job's block, and a time: when it started, or how long it ran."""


class Past(Protocol):
    """Jobs that have ended."""

    def __len__(self) -> int:
        """How many are known, `MOST` at most."""
        ...

    def jobs(self) -> tuple[JobTable, IntArray]:
        """These jobs, and how long they ran in seconds, as `by_submission` has them."""
        ...


def by_submission(block: IntArray, runtime_s: IntArray) -> tuple[JobTable, IntArray]:
    """Jobs in the order of submission and identifier, and how long they ran, seconds.

    Parameters
    ----------
    block : int64 array, shape (columns, jobs)
        See `Column`.
    runtime_s : int64 array, shape (jobs,)
    """
    order = np.lexsort((block[Column.ID], block[Column.SUBMIT]))
    return JobTable(np.ascontiguousarray(block[:, order])), runtime_s[order]


Times = TypeVar("Times", int, IntArray)


def ended_s(before_s: Times, now: Times, start_s: Times, expected_s: Times) -> IntArray:
    """When jobs ended that ran at the decision before and run no more now, seconds.

    When exactly, between two decisions, a dispatcher does not see: the prediction says it, or the
    decision that is next to it.
    """
    least = np.maximum(before_s, start_s)
    found: IntArray = np.minimum(np.maximum(least, start_s + expected_s), now)
    return found


@dataclass(slots=True)
class Ended:
    """Remembers the last 10,000 jobs that ended, from the instances that a dispatcher is asked.

    Of the future it knows nothing, and of the past what a dispatcher sees: a job has ended when
    it no longer runs, see `ended_s`. Jobs that end between the same two decisions count as ended
    in the order of their identifiers.
    """

    _running: dict[int, _Job] = field(default_factory=dict, repr=False)
    _ended: deque[_Job] = field(default_factory=lambda: deque(maxlen=MOST), repr=False)
    _seen_s: int = field(default=0, repr=False)

    def __len__(self) -> int:
        return len(self._ended)

    def look(self, instance: Instance) -> None:
        """Take note of the jobs that have ended."""
        now, before, self._seen_s = instance.now, self._seen_s, instance.now
        gone = self._running.keys() - set(instance.running.jobs.id.tolist())
        if instance.stopped is not None:
            gone -= set(instance.queue.id[instance.stopped.position].tolist())
        for id in sorted(gone):
            job, start_s = self._running.pop(id)
            end_s = ended_s(before, now, start_s, job[Column.EXPECTED])
            self._ended.append((job, int(end_s) - start_s))

    def started(self, instance: Instance, decision: Decision) -> None:
        """Take note of queued jobs that start now, and of stopped ones that are killed."""
        positions = np.flatnonzero(decision.start_s == instance.now)
        if instance.stopped is not None:
            stay = going_on(instance, decision.start_s, decision.placements)
            for position in set(instance.stopped.position.tolist()) - stay:
                self._running.pop(int(instance.queue.id[position]), None)
            positions = positions[~np.isin(positions, list(stay))]
        if len(positions):
            for job in np.ascontiguousarray(instance.queue.take(positions).block.T):
                self._running[int(job[Column.ID])] = job, instance.now

    def jobs(self) -> tuple[JobTable, IntArray]:
        """The jobs, and how long they ran, see `by_submission`."""
        jobs, runtime_s = zip(*self._ended, strict=True)
        return by_submission(np.stack(jobs, axis=1), np.array(runtime_s, dtype=np.int64))
