"""Dependencies of jobs in a log: fields 17 (preceding job) and 18 (think time) of SWF."""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import Reason
from cpdispatch.instance import Dependencies, Instance
from cpdispatch.jobs import Workload
from cpdispatch.simulator.records import Records

NOBODY = -1
ABSENT = "ignored: preceding job is not in the log"
LATER = "ignored: preceding job stands no earlier in the log"
NEVER_RUNS = "ignored: preceding job asks for more than the system has"


class Precedence:
    """Which job each job of a workload comes after, as far as that can be honoured.

    A job stands after the one that it comes after, so that no two can wait for each other.

    Parameters
    ----------
    runnable : bool array, shape (jobs,)
        Whether each job fits the empty system.

    Attributes
    ----------
    before : int64 array, shape (jobs,)
        Workload row of the job that each one comes after, `NOBODY` for most.
    think_s : int64 array, shape (jobs,)
        Seconds between the end of that job and the start.
    notes : dict of str to int
        By reason, how many jobs have no predecessor though the log names one.
    """

    def __init__(self, workload: Workload, runnable: BoolArray) -> None:
        self._id = workload.table.id
        by_id = np.argsort(self._id, kind="stable")
        at = np.minimum(np.searchsorted(self._id[by_id], workload.preceding), len(by_id) - 1)
        before = by_id[at]
        stated = (workload.preceding >= 0) & runnable
        absent = stated & (self._id[before] != workload.preceding)
        later = stated & ~absent & (before >= np.arange(len(before)))
        never_runs = stated & ~absent & ~later & ~runnable[before]
        rules = {ABSENT: absent, LATER: later, NEVER_RUNS: never_runs}
        counts = {rule: int(np.count_nonzero(which)) for rule, which in rules.items()}
        self.notes = {rule: count for rule, count in counts.items() if count}
        honoured = stated & ~(absent | later | never_runs)
        self.before = np.where(honoured, before, NOBODY)
        self.think_s = np.where(honoured, np.maximum(workload.think_s, 0), 0)
        self._by_before = np.argsort(self.before, kind="stable")
        self._sorted_before = self.before[self._by_before]

    def after(self, row: int) -> IntArray:
        """The rows of the jobs that come after this one."""
        low, high = np.searchsorted(self._sorted_before, (row, row + 1))
        return self._by_before[low:high]

    def ending(self, instance: Instance, rows: IntArray, records: Records) -> IntArray:
        """The rows of the queued jobs whose preceding job ends in this second, but not yet.

        That is an event of its own under the trigger ``event``. See `dependencies`.
        """
        before = self.before[rows]
        left = (before >= 0) & (records.start_s[before] >= 0) & (records.end_s[before] < 0)
        if left.any():
            left &= ~np.isin(self._id[before], instance.running.jobs.id)
        found: IntArray = rows[left]
        return found

    def dependencies(
        self, instance: Instance, rows: IntArray, records: Records
    ) -> Dependencies | None:
        """The unmet dependencies of the queued jobs of a snapshot; None if there are none.

        Parameters
        ----------
        rows : int64 array, shape (queued,)
            Workload rows of the queued jobs, ascending.
        records : Records
            Which jobs have started and ended so far.
        """
        now, before = instance.now, self.before[rows]
        position = np.flatnonzero(before >= 0)
        if not len(position):
            return None
        before, think_s = before[position], self.think_s[rows[position]]
        end_s, started = records.end_s[before], records.start_s[before] >= 0
        running, among_running = _find(instance.running.jobs.id, self._id[before])
        out = np.isin(records.reason[before], (Reason.REJECTED, Reason.NEVER_FITS))
        queued = ~started & ~running & ~out
        # Who has started and runs no more has ended, at this very instant if no end is recorded.
        ended = started & ~running
        stated_s = np.full(len(rows), now, dtype=np.int64)
        ended_s = np.where(end_s < 0, now, end_s)
        stated_s[position[ended]] = np.maximum(now, (ended_s + think_s)[ended])
        if not running.any() and not queued.any() and (stated_s == now).all():
            return None
        thinks_s = np.zeros(len(rows), dtype=np.int64)
        waits = queued | running
        thinks_s[position[waits]] = think_s[waits]
        return Dependencies.of(
            now,
            instance.running.end_s,
            stated_s,
            thinks_s,
            np.stack((position[queued], np.searchsorted(rows, before[queued]))),
            np.stack((position[running], among_running[running])),
        )


def _find(ids: IntArray, wanted: IntArray) -> tuple[BoolArray, IntArray]:
    """Which of the wanted ids there are, and where."""
    if not len(ids):
        return np.zeros(len(wanted), dtype=np.bool_), np.zeros(len(wanted), dtype=np.int64)
    order = np.argsort(ids)
    where = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return ids[where] == wanted, where
