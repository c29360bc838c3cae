"""The records of a simulation: arrays with one row for each job and each dispatch."""

from __future__ import annotations

from array import array
from enum import IntEnum
from itertools import chain
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray, ranges
from cpdispatch.decision import Certificate, Decision, Placements, Reason
from cpdispatch.jobs import Workload
from cpdispatch.simulator.live import Dispatched

NOT_STARTED = -1
REASON_UNTOLD = len(Reason)
START_S, END_S, EXPECTED_S, FIRST, COUNT, PROMISED_AT_S, PROMISED_S = range(7)
"""The rows of the table of a simulation's records."""
EASY_WAIT = "easy_wait"
"""The column of the longest wait under EASY so far, by which waits are bounded."""
_JOBS = 1 << 16  # whose placements are put in order at once
_DISPATCHES = 1 << 10  # that are put into the columns at once
_ENTRIES = 1 << 10  # of placements for which there is room at first


class Test(IntEnum):
    """Results of test runs; a test run is a start with a bound."""

    NONE = 0
    """The job was not tested."""
    ENDED = 1
    """The job ended by itself within its bound."""
    WENT_ON = 2
    """The job was started again at the end of its test, and so went on."""
    KILLED = 3
    """The job was killed and queued again."""


class Records:
    """The growing tables of one simulation.

    Attributes
    ----------
    start_s, end_s, expected_s : int64 array, shape (jobs,)
        By workload row; -1 until known.
    killed : bool array, shape (jobs,)
    reason : int8 array, shape (jobs,)
        The `Reason` with which each job started, or why it never did; `REASON_UNTOLD` where the
        records of another system do not say it.
    lost_start_s, lost_end_s : int64 array, shape (jobs,)
        The attempt at each job that was killed for a restart, until its nodes were free; -1 for
        none. Empty unless a job may be restarted.
    test : int8 array, shape (jobs,)
        What became of the test run of each job, a `Test`. Empty unless a job may be restarted.
    failed : bool array, shape (jobs,)
        Whether a node failed under the job, and it was not queued again. Empty unless nodes can
        fail, as is the next.
    requeued : int64 array, shape (jobs,)
        How often it was queued again because a node failed.
    promised_s : int64 array, shape (2, jobs)
        When each job was first promised a later start, and that start; -1 for none. Empty in
        compiled replays, which do not record it.
    first, count : int64 array, shape (jobs,)
        The entries of each job's placement: the first one, and how many.
    table : int64 array
        All of these times and entries, see `START_S`.
    node, units : int32 array
        Entries of placements: a node, and the number of units there.
    used : int
        How many of these entries are in use.

    Parameters
    ----------
    failures : bool
        Whether nodes can fail.
    promises : bool
        Whether promised starts are recorded.
    """

    def __init__(self, workload: Workload, failures: bool = False, promises: bool = False) -> None:
        jobs = len(workload)
        self.failed = np.zeros(jobs * failures, dtype=np.bool_)
        self.requeued = np.zeros(jobs * failures, dtype=np.int64)
        self._attempts: list[tuple[int, int, int, int, int, int, bool]] = []
        """Row, start, end, first entry, number of entries and s saved of what a failure ended, and
        whether it was a test."""
        restartable = jobs if workload.table.restartable.any() else 0
        rows = PROMISED_S + 1 if promises else PROMISED_AT_S
        self.table = np.full((rows, jobs), NOT_STARTED, dtype=np.int64)
        self.table[FIRST : COUNT + 1] = 0
        self._name_rows()
        self.killed = np.zeros(jobs, dtype=np.bool_)
        self.reason = np.full(jobs, Reason.WAITS, dtype=np.int8)
        self.lost_start_s = np.full(restartable, NOT_STARTED, dtype=np.int64)
        self.lost_end_s = np.full(restartable, NOT_STARTED, dtype=np.int64)
        self._lost_first, self._lost_count = np.zeros((2, restartable), dtype=np.int64)
        self.test = np.full(restartable, Test.NONE, dtype=np.int8)
        self._lost_reason = np.full(restartable, Reason.WAITS, dtype=np.int8)
        self.node: NDArray[np.int32] = np.empty(_ENTRIES, dtype=np.int32)
        self.units: NDArray[np.int32] = np.empty(_ENTRIES, dtype=np.int32)
        self.used = 0
        # Growing arrays; after a compiled replay, whole ones of NumPy.
        self._time: Any = array("q")
        self._ms: Any = array("d")
        self._counts: dict[str, Any] = {
            name: array("i") for name in ("queue", "running", "started")
        }
        self._known: dict[str, array[float]] = {}
        self._texts: dict[str, Any] = {name: array("h") for name in ("model", "status")}
        self._limit_hit: Any = array("b")
        self._names: dict[str, int] = {}
        self._new: list[Any] = []

    def __len__(self) -> int:
        """Dispatches so far."""
        return len(self._time) + len(self._new)

    def _name_rows(self) -> None:
        """Give the rows of the table their names."""
        self.start_s, self.end_s, self.expected_s, self.first, self.count = self.table[:5]
        self.promised_s = self.table[PROMISED_AT_S:]

    def __getstate__(self) -> dict[str, object]:
        """The columns alone: what is pickled holds no object of a dispatcher, and no empty room."""
        self._take_in()
        state = self.__dict__ | {"node": self.node[: self.used], "units": self.units[: self.used]}
        for name in ("start_s", "end_s", "expected_s", "first", "count", "promised_s"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._name_rows()

    def started(self, now: int, rows: IntArray, decision: Decision, placements: Placements) -> None:
        """Remember jobs that start: the k-th row's nodes are those of the k-th placed job."""
        self.reason[rows] = decision.reason[placements.position]
        self.start_s[rows] = now
        self.first[rows] = self.used + placements.offset[:-1]
        self.count[rows] = np.diff(placements.offset)
        entries = len(placements.node)
        self.make_room(entries)
        self.node[self.used : self.used + entries] = placements.node
        self.units[self.used : self.used + entries] = placements.units
        self.used += entries

    def make_room(self, entries: int) -> None:
        """Make the lists of nodes and units long enough for so many more entries."""
        needed = self.used + entries
        if needed > len(self.node):
            more = np.empty(max(needed, len(self.node)), dtype=np.int32)
            self.node = np.concatenate((self.node[: self.used], more))
            self.units = np.concatenate((self.units[: self.used], more))

    def promised(self, now: int, rows: IntArray, start_s: IntArray) -> None:
        """Remember the starts that jobs are promised, of those that had none so far."""
        new = self.promised_s[1, rows] == NOT_STARTED
        self.promised_s[0, rows[new]], self.promised_s[1, rows[new]] = now, start_s[new]

    def lost(self, row: int, now: int) -> None:
        """Remember the attempt at a job as one that is killed, as if it had not started before."""
        self.lost_start_s[row], self.lost_end_s[row] = self.start_s[row], now
        self._lost_first[row], self._lost_count[row] = self.first[row], self.count[row]
        self._lost_reason[row], self.reason[row] = self.reason[row], Reason.WAITS
        self.start_s[row], self.count[row] = NOT_STARTED, 0

    def node_failed(
        self, row: int, now: int, again: bool, saved_s: int = 0, tested: bool = False
    ) -> None:
        """Remember that a job ended because a node failed, and whether it is queued again.

        ``saved_s`` is what a checkpoint has kept of its run. A job that was ``tested`` counts as if
        it had not been if it is queued again, else as one that ended in its test.
        """
        if not again:
            self.end_s[row], self.failed[row], self.killed[row] = now, True, False
            return
        start_s, first, count = self.start_s.item(row), self.first.item(row), self.count.item(row)
        self._attempts.append((row, start_s, now, first, count, saved_s, tested))
        self.requeued[row] += 1
        if tested:
            self.test[row] = Test.NONE
        self.start_s[row], self.count[row] = NOT_STARTED, 0
        self.reason[row] = Reason.WAITS

    def goes_on(self, row: int, test: Test = Test.WENT_ON) -> None:
        """Take an attempt for the job's only one after all."""
        self.start_s[row], self.reason[row] = self.lost_start_s[row], self._lost_reason[row]
        self.first[row], self.count[row] = self._lost_first[row], self._lost_count[row]
        self.lost_start_s[row] = self.lost_end_s[row] = NOT_STARTED
        self._lost_count[row] = 0
        self.test[row] = test

    def all_placed(
        self, rows: IntArray | slice, first: IntArray, count: IntArray,
        node: NDArray[Any], units: NDArray[Any],
    ) -> None:  # fmt: skip
        """Remember the nodes of all jobs at once: each has ``count`` entries from ``first`` on."""
        self.first[rows], self.count[rows] = first, count
        self.node, self.units = (part.astype(np.int32, copy=False) for part in (node, units))
        self.used = len(node)

    def all_tested(
        self, rows: IntArray | slice, test: IntArray, lost_s: IntArray, held: IntArray | None
    ) -> None:
        """Remember all tests at once.

        ``lost_s`` has starts and ends of the attempts that were lost, -1 for none, shape (2, jobs),
        ``held`` their first entries of placements and how many they had; None where they held what
        the jobs hold.
        """
        self.test[rows] = test
        self.lost_start_s[rows], self.lost_end_s[rows] = lost_s
        self._lost_first[:], self._lost_count[:] = self.first, self.count
        if held is not None:
            self._lost_first[rows], self._lost_count[rows] = held
        self._lost_count[self.lost_start_s < 0] = 0

    def replayed(self, model: str, times: IntArray, counts: NDArray[np.int32]) -> None:
        """Remember all dispatches at once: when, and jobs queued, running and started.

        Where waits are bounded, a fourth row of ``counts`` has the longest wait under EASY so far.
        How long each took is not known.
        """
        rows = len(times)
        self._time, self._ms = times, np.broadcast_to(np.nan, rows)
        self._counts = dict(zip(self._counts, counts, strict=False))
        if rows and len(counts) > len(self._counts):
            self._known[EASY_WAIT] = array("d", counts[-1].astype(np.float64))
        for name, text in (("model", model), ("status", "heuristic")):
            self._texts[name] = np.broadcast_to(np.int16(self._number(text)), rows)
        self._limit_hit = np.zeros(rows, dtype=np.bool_)

    def note(
        self, now: int, queue: int, running: int, started: int, ms: float, certificate: Certificate
    ) -> None:
        """Remember one dispatch by the numbers of jobs that were queued, ran and were started."""
        phases_ms = dict(certificate.phases_ms)
        self._new.append((now, queue, running, started, ms, certificate, phases_ms))
        if len(self._new) == _DISPATCHES:
            self._take_in()

    def last_dispatches(self, most: int) -> tuple[Dispatched, ...]:
        """The last dispatches, so many at most, the last one last."""
        self._take_in()
        first = max(len(self._time) - most, 0)
        counts = (self._counts["queue"][first:], self._counts["started"][first:])
        return tuple(
            Dispatched(int(time), int(queue), int(started), float(ms))
            for time, queue, started, ms in zip(
                self._time[first:], *counts, self._ms[first:], strict=True
            )
        )

    def _take_in(self) -> None:
        """Put the dispatches since the last call into the columns: many at once are faster."""
        if not self._new:
            return
        first = len(self._time)
        times, *counts, ms, certificates, phases = zip(*self._new, strict=True)
        self._new.clear()
        self._time.extend(times)
        self._ms.extend(ms)
        for column, values in zip(self._counts.values(), counts, strict=True):
            column.extend(values)
        for name, texts in self._texts.items():
            said = [getattr(certificate, name) for certificate in certificates]
            number = {text: self._number(text) for text in dict.fromkeys(said)}
            texts.extend([number[text] for text in said])
        self._limit_hit.extend([found.limit_hit for found in certificates])
        for row, found in enumerate(certificates, first):
            if found.value is not None:
                self._know("objective", row, found.value)
            if found.starvation is not None:
                longest_s = found.starvation.threshold_s + found.starvation.bound_s
                self._know(EASY_WAIT, row, longest_s)
            if found.bound is not None:
                self._know("bound", row, found.bound)
                if found.gap is not None:
                    self._know("gap", row, found.gap)
        for phase in dict.fromkeys(chain.from_iterable(phases)):
            column = self._from(f"{phase}_ms", first)
            column.extend([of_phases.get(phase, nan) for of_phases in phases])

    def _from(self, name: str, row: int) -> array[float]:
        """The column of a figure, long enough for all rows before this one: with NaN."""
        column = self._known.setdefault(name, array("d"))
        missing = row - len(column)
        if missing:
            column.frombytes(np.full(missing, nan).tobytes())
        return column

    def _know(self, name: str, row: int, value: float) -> None:
        """Note a figure that not every dispatch has; those before that lack it have NaN."""
        self._from(name, row).append(value)

    def _number(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def placements(self) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        """Offset, node and units in the order of the workload's rows."""
        return self._entries(self.first, self.count)

    def lost_placements(self) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        """The same of the attempts that were killed."""
        return self._entries(self._lost_first, self._lost_count)

    def attempts(
        self,
    ) -> tuple[IntArray, IntArray, tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]]:
        """Rows, times and placements of the attempts that node failures ended.

        By row, those of a job in their order. Times are starts, ends, and what checkpoints have
        kept, seconds; then whether it was a test; shape (4, attempts).
        """
        table = np.array(sorted(self._attempts), dtype=np.int64).reshape(-1, 7).T
        return table[0], table[[1, 2, 5, 6]], self._entries(table[3], table[4])

    def _entries(
        self, first: IntArray, count: IntArray
    ) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        offset = np.zeros(len(count) + 1, dtype=np.int64)
        np.cumsum(count, out=offset[1:])
        node, units = np.empty((2, offset[-1]), dtype=np.int32)
        for begin in range(0, len(count), _JOBS):
            jobs = slice(begin, begin + _JOBS)
            entries = slice(offset[begin], offset[begin] + count[jobs].sum())
            pick = ranges(first[jobs], count[jobs])
            node[entries], units[entries] = self.node[pick], self.units[pick]
        return offset, node, units

    def decisions(
        self,
    ) -> tuple[
        dict[str, NDArray[Any]], dict[str, tuple[NDArray[np.int16], list[str]]], NDArray[np.bool_]
    ]:
        """Columns of the table of dispatches: numbers, texts (codes and names), limit hit or not.

        Phases are in ``<phase>_ms``; what is unknown is NaN.
        """
        self._take_in()
        names, rows = list(self._names), len(self._time)
        texts = {name: (_whole(codes, np.int16), names) for name, codes in self._texts.items()}
        numbers = {"time": _whole(self._time, np.int64)}
        numbers |= {name: _whole(counts, np.int32) for name, counts in self._counts.items()}
        numbers["ms"] = _whole(self._ms, np.float64)
        for name in dict.fromkeys(("objective", "bound", "gap", *self._known)):
            numbers[name] = np.broadcast_to(np.nan, rows)
            if name in self._known:
                known = self._known[name]
                numbers[name] = np.full(rows, np.nan)
                numbers[name][: len(known)] = known
        return numbers, texts, _whole(self._limit_hit, np.bool_)


def _whole(column: Any, dtype: Any) -> NDArray[Any]:
    """A growing array as NumPy's; one of NumPy as it is."""
    return column if isinstance(column, np.ndarray) else np.frombuffer(column, dtype=dtype)
