"""What a simulation remembers: one row a job, one row a dispatch, in arrays."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray
from cpdispatch.decision import Certificate, Decision, Placements, Reason
from cpdispatch.jobs import Workload

NOT_STARTED = -1


class Records:
    """The growing tables of one simulation.

    Attributes
    ----------
    start_s, end_s, expected_s : int64 array, shape (jobs,)
        By workload row; -1 until known.
    killed : bool array, shape (jobs,)
    reason : int8 array, shape (jobs,)
        The `Reason` with which each job started, or why it never did.
    """

    def __init__(self, workload: Workload) -> None:
        jobs = len(workload)
        self.start_s = np.full(jobs, NOT_STARTED, dtype=np.int64)
        self.end_s = np.full(jobs, NOT_STARTED, dtype=np.int64)
        self.expected_s = np.full(jobs, NOT_STARTED, dtype=np.int64)
        self.killed = np.zeros(jobs, dtype=np.bool_)
        self.reason = np.full(jobs, Reason.WAITS, dtype=np.int8)
        self._first = np.zeros(jobs, dtype=np.int64)
        self._count = np.zeros(jobs, dtype=np.int64)
        self._node, self._units = array("i"), array("i")
        self._integers = {name: array("q") for name in ("time", "queue", "running", "started")}
        self._floats = {name: array("d") for name in ("objective", "bound", "gap", "ms")}
        self._texts = {name: array("h") for name in ("model", "status")}
        self._limit_hit = array("b")
        self._names: dict[str, int] = {}
        self._phases: dict[str, array[float]] = {}

    def placed(self, rows: IntArray, placements: Placements) -> None:
        """Remember the nodes of jobs that start: the k-th row's are the k-th placed job's."""
        self._first[rows] = len(self._node) + placements.offset[:-1]
        self._count[rows] = placements.offset[1:] - placements.offset[:-1]
        self._node.frombytes(placements.node.astype(np.int32).tobytes())
        self._units.frombytes(placements.units.astype(np.int32).tobytes())

    def dispatched(
        self, now: int, queue: int, running: int, decision: Decision, started: int, ms: float
    ) -> None:
        """Remember one dispatch."""
        certificate = decision.certificate
        integers, floats, texts = self._integers, self._floats, self._texts
        integers["time"].append(now)
        integers["queue"].append(queue)
        integers["running"].append(running)
        integers["started"].append(started)
        floats["objective"].append(_or_nan(certificate.value))
        floats["bound"].append(_or_nan(certificate.bound))
        floats["gap"].append(_or_nan(certificate.gap))
        floats["ms"].append(ms)
        texts["model"].append(self._number(certificate.model))
        texts["status"].append(self._number(certificate.status))
        self._limit_hit.append(certificate.limit_hit)
        self._phase_times(certificate)

    def _phase_times(self, certificate: Certificate) -> None:
        rows = len(self._limit_hit)
        for name, ms in certificate.phases_ms.items():
            column = self._phases.setdefault(name, array("d"))
            if len(column) < rows - 1:
                column.frombytes(np.zeros(rows - 1 - len(column)).tobytes())
            column.append(ms)

    def _number(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def placements(self) -> tuple[IntArray, NDArray[np.int32], NDArray[np.int32]]:
        """Offset, node and units in the order of the workload's rows."""
        offset = np.concatenate(([0], np.cumsum(self._count)))
        pick = np.repeat(self._first - offset[:-1], self._count) + np.arange(offset[-1])
        node = np.frombuffer(self._node, dtype=np.int32)[pick]
        return offset, node, np.frombuffer(self._units, dtype=np.int32)[pick]

    def decisions(self) -> dict[str, NDArray[np.generic] | list[str]]:
        """Columns of the table of dispatches; phases in ``<phase>_ms``."""
        rows = len(self._limit_hit)
        names = np.array(list(self._names), dtype=object)
        columns: dict[str, NDArray[np.generic] | list[str]] = {}
        for name, integers in self._integers.items():
            columns[name] = np.frombuffer(integers, dtype=np.int64)
        for name, codes in self._texts.items():
            columns[name] = names[np.frombuffer(codes, dtype=np.int16)] if rows else []
        for name, floats in self._floats.items():
            columns[name] = np.frombuffer(floats, dtype=np.float64)
        columns["limit_hit"] = np.frombuffer(self._limit_hit, dtype=np.int8).astype(np.bool_)
        for name, phase in self._phases.items():
            column = np.zeros(rows)
            column[: len(phase)] = phase
            columns[f"{name}_ms"] = column
        return columns


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
