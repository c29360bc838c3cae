"""The jobs that ended last, as far as a dispatcher can know them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable

MOST = 10_000
"""How many are remembered."""

_Job = tuple[IntArray, int]
"""The column of a job's block, and a time: when it started, or how long it ran."""


@dataclass(slots=True)
class Ended:
    """Remembers the last 10,000 jobs that ended, from the instances that a dispatcher is asked.

    Of the future it knows nothing, and of the past what a dispatcher sees: a job has ended when
    it no longer runs. When exactly, between two decisions, is taken from its prediction.
    """

    _running: dict[int, _Job] = field(default_factory=dict, repr=False)
    _ended: deque[_Job] = field(default_factory=lambda: deque(maxlen=MOST), repr=False)
    _seen_s: int = field(default=0, repr=False)

    def __len__(self) -> int:
        return len(self._ended)

    def look(self, instance: Instance) -> None:
        """Take note of the jobs that have ended."""
        now, before, self._seen_s = instance.now, self._seen_s, instance.now
        for id in self._running.keys() - set(instance.running.jobs.id.tolist()):
            job, start_s = self._running.pop(id)
            expected_end_s = start_s + int(job[Column.EXPECTED])
            end_s = min(max(before, start_s, expected_end_s), now)
            self._ended.append((job, end_s - start_s))

    def started(self, instance: Instance, positions: IntArray) -> None:
        """Take note of queued jobs that start now."""
        if len(positions):
            for job in np.ascontiguousarray(instance.queue.take(positions).block.T):
                self._running[int(job[Column.ID])] = job, instance.now

    def last(self, count: int) -> tuple[JobTable, IntArray]:
        """The last so many that ended, by submission, and how long they ran, s."""
        jobs, runtime_s = zip(*list(self._ended)[-count:], strict=True)
        block = np.stack(jobs, axis=1)
        order = np.lexsort((block[Column.ID], block[Column.SUBMIT]))
        return JobTable(np.ascontiguousarray(block[:, order])), np.array(runtime_s, dtype=np.int64)[
            order
        ]
