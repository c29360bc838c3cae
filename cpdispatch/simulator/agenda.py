"""Future events whose times are known: ends of jobs, begin times, dispatches."""

from __future__ import annotations

import heapq

import numpy as np

NEVER = int(np.iinfo(np.int64).max)
END, BEGIN, WAKE = range(3)
"""A job ends or is stopped; a job may start from now on; there is a dispatch and nothing else."""


class Agenda:
    """Entries by time; entries of the same time in the order in which they were made."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int]] = []
        self._made = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def next_s(self) -> int:
        """The time of the next entry; `NEVER` when there is none."""
        return self._heap[0][0] if self._heap else NEVER

    def add(self, at_s: int, row: int, kind: int = END) -> None:
        """Make an entry about the job of a row."""
        heapq.heappush(self._heap, (at_s, self._made, row, kind))
        self._made += 1

    def wake(self, at_s: int) -> None:
        """Make an entry that is about no job."""
        self.add(at_s, -1, WAKE)

    def take(self) -> tuple[int, int]:
        """Take out the next entry: its row and kind."""
        _, _, row, kind = heapq.heappop(self._heap)
        return row, kind

    def forget(self, row: int) -> None:
        """Take out all entries about a job."""
        self._heap = [entry for entry in self._heap if entry[2] != row]
        heapq.heapify(self._heap)
