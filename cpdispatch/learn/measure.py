"""What is measured of a workload under many policies."""

from __future__ import annotations

import numpy as np

from cpdispatch.analyze import metrics
from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compiled import Replays
from cpdispatch.errors import InputError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.jobs import Workload
from cpdispatch.simulator.gates import Gates
from cpdispatch.system import System
from cpdispatch.terms import gated

MEASURES = ("wait_s_mean", "wait_s_max", "bounded_slowdown_mean")
OBJECTIVES = {"wait": "wait_s_mean", "slowdown": "bounded_slowdown_mean"}
"""What is learned for: name -> measure."""


class Meter:
    """A workload that is prepared once, and replayed many times from an empty system.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.
    """

    def __init__(self, workload: Workload, system: System) -> None:
        self._workload = workload
        self._system = system
        self._replays = Replays(
            workload, system, limited=Gates(workload, system) if gated(workload, system) else None
        )

    def starts(self, dispatcher: Backfill) -> IntArray:
        """Start of each job in seconds, shape (jobs,); -1 for one that never started."""
        return self._replays.starts(dispatcher)

    def measure(self, dispatcher: Backfill) -> FloatArray:
        """The `MEASURES` of a replay, over all jobs that started, shape (3,)."""
        started = self.schedule(self.starts(dispatcher))
        wait = metrics.wait_s(started)
        return np.array(
            [wait.mean(), wait.max(), metrics.bounded_slowdown(started).mean()], dtype=np.float64
        )

    def schedule(self, start_s: IntArray) -> metrics.ScheduleColumns:
        """The schedule of the jobs that started.

        Raises
        ------
        InputError
            When none did.
        """
        table = self._workload.table
        if not (start_s >= 0).any():
            raise InputError("no job of it fits the system", file=self._workload.name)
        whole = metrics.ScheduleColumns(
            submit_s=table.submit_s,
            start_s=start_s,
            end_s=start_s + self._workload.runtime_s,
            units=table.units,
            request=table.request,
            backfilled=np.zeros(len(table), dtype=np.bool_),
            capacity=self._system.total,
        )
        return whole.take(whole.started)
