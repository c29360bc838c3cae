"""What a simulation remembers: one row a job, one row a dispatch, in arrays."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray
from cpdispatch.decision import Decision, Placements, Reason
from cpdispatch.jobs import Workload

NOT_STARTED = -1
_JOBS = 1 << 16  # whose placements are put in order at once


class Records:
    """The growing tables of one simulation.

    Attributes
    ----------
    start_s, end_s, expected_s : int64 array, shape (jobs,)
        By workload row; -1 until known.
    killed : bool array, shape (jobs,)
    reason : int8 array, shape (jobs,)
        The `Reason` with which each job started, or why it never did.
    lost_start_s, lost_end_s : int64 array, shape (jobs,)
        The attempt at each job that was killed for a restart; -1 for none. Empty unless jobs may
        be restarted.

    Parameters
    ----------
    workload : Workload
    idempotent : bool
        Whether jobs may be restarted.
    """

    def __init__(self, workload: Workload, *, idempotent: bool = False) -> None:
        jobs, restartable = len(workload), len(workload) if idempotent else 0
        self.start_s = np.full(jobs, NOT_STARTED, dtype=np.int64)
        self.end_s = np.full(jobs, NOT_STARTED, dtype=np.int64)
        self.expected_s = np.full(jobs, NOT_STARTED, dtype=np.int64)
        self.killed = np.zeros(jobs, dtype=np.bool_)
        self.reason = np.full(jobs, Reason.WAITS, dtype=np.int8)
        self.lost_start_s = np.full(restartable, NOT_STARTED, dtype=np.int64)
        self.lost_end_s = np.full(restartable, NOT_STARTED, dtype=np.int64)
        self._first, self._count = np.zeros((2, jobs), dtype=np.int64)
        self._lost_first, self._lost_count = np.zeros((2, restartable), dtype=np.int64)
        # Growing arrays; after a compiled replay, whole ones of NumPy.
        self._node: Any = array("i")
        self._units: Any = array("i")
        self._time: Any = array("q")
        self._ms: Any = array("d")
        self._counts: dict[str, Any] = {
            name: array("i") for name in ("queue", "running", "started")
        }
        self._known: dict[str, array[float]] = {}
        self._texts: dict[str, Any] = {name: array("h") for name in ("model", "status")}
        self._limit_hit: Any = array("b")
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        """Dispatches so far."""
        return len(self._time)

    def placed(self, rows: IntArray, placements: Placements) -> None:
        """Remember the nodes of jobs that start: the k-th row's are the k-th placed job's."""
        self._first[rows] = len(self._node) + placements.offset[:-1]
        self._count[rows] = placements.offset[1:] - placements.offset[:-1]
        self._node.frombytes(placements.node.astype(np.int32).tobytes())
        self._units.frombytes(placements.units.astype(np.int32).tobytes())

    def restarted(self, row: int, now: int) -> None:
        """Remember the attempt at a job that is killed, as if it had not started otherwise."""
        self.lost_start_s[row], self.lost_end_s[row] = self.start_s[row], now
        self._lost_first[row], self._lost_count[row] = self._first[row], self._count[row]
        self.start_s[row], self._count[row] = NOT_STARTED, 0
        self.reason[row] = Reason.WAITS

    def all_placed(
        self, rows: IntArray | slice, first: IntArray, count: IntArray,
        node: NDArray[Any], units: NDArray[Any],
    ) -> None:  # fmt: skip
        """Remember the nodes of all jobs at once: each has ``count`` entries from ``first`` on."""
        self._first[rows], self._count[rows] = first, count
        self._node, self._units = (part.astype(np.int32, copy=False) for part in (node, units))

    def replayed(self, model: str, times: IntArray, counts: NDArray[np.int32]) -> None:
        """Remember all dispatches at once: when, and jobs queued, running and started.

        How long each took is not known.
        """
        rows = len(times)
        self._time, self._ms = times, np.broadcast_to(np.nan, rows)
        self._counts = dict(zip(self._counts, counts, strict=True))
        for name, text in (("model", model), ("status", "heuristic")):
            self._texts[name] = np.broadcast_to(np.int16(self._number(text)), rows)
        self._limit_hit = np.zeros(rows, dtype=np.bool_)

    def dispatched(
        self, now: int, queue: int, running: int, decision: Decision, started: int, ms: float
    ) -> None:
        """Remember one dispatch."""
        certificate, counts = decision.certificate, self._counts
        self._time.append(now)
        self._ms.append(ms)
        counts["queue"].append(queue)
        counts["running"].append(running)
        counts["started"].append(started)
        self._texts["model"].append(self._number(certificate.model))
        self._texts["status"].append(self._number(certificate.status))
        self._limit_hit.append(certificate.limit_hit)
        if certificate.value is not None:
            self._know("objective", certificate.value)
        if certificate.bound is not None:
            self._know("bound", certificate.bound)
            if certificate.gap is not None:
                self._know("gap", certificate.gap)
        for phase, phase_ms in certificate.phases_ms.items():
            self._know(f"{phase}_ms", phase_ms)

    def _know(self, name: str, value: float) -> None:
        """Note a figure that not every dispatch has; those before that lack it have NaN."""
        column = self._known.setdefault(name, array("d"))
        missing = len(self._time) - 1 - len(column)
        if missing:
            column.frombytes(np.full(missing, np.nan).tobytes())
        column.append(value)

    def _number(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def placements(self) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        """Offset, node and units in the order of the workload's rows."""
        return self._entries(self._first, self._count)

    def lost_placements(self) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        """The same of the attempts that were killed."""
        return self._entries(self._lost_first, self._lost_count)

    def _entries(
        self, first: IntArray, count: IntArray
    ) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        offset = np.zeros(len(count) + 1, dtype=np.int64)
        np.cumsum(count, out=offset[1:])
        recorded = _whole(self._node, np.int32), _whole(self._units, np.int32)
        node, units = np.empty((2, offset[-1]), dtype=np.int32)
        for begin in range(0, len(count), _JOBS):
            jobs = slice(begin, begin + _JOBS)
            entries = slice(offset[begin], offset[begin] + count[jobs].sum())
            shift = first[jobs] - offset[begin : begin + len(count[jobs])]
            pick = np.repeat(shift, count[jobs]) + np.arange(entries.start, entries.stop)
            node[entries], units[entries] = recorded[0][pick], recorded[1][pick]
        return offset, node, units

    def decisions(
        self,
    ) -> tuple[
        dict[str, NDArray[Any]], dict[str, tuple[NDArray[np.int16], list[str]]], NDArray[np.bool_]
    ]:
        """Columns of the table of dispatches: numbers, texts (codes and names), limit hit or not.

        Phases are in ``<phase>_ms``; what is unknown is NaN.
        """
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
