"""A whole simulation by compiled code: what `cpdispatch.simulator.simulate` takes where it can."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.decision import Reason
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import Workload
from cpdispatch.predict import Remembering
from cpdispatch.compiled.memory import take
from cpdispatch.compiled import layout
from cpdispatch.compiled.replay import Replay, Replays
from cpdispatch.simulator.records import Records
from cpdispatch.system import System


def replayable(dispatcher: Backfill | Reject) -> bool:
    """Whether compiled code gives the same schedule: nothing is promised yet, keys are compiled."""
    if isinstance(dispatcher, Reject):
        return True
    orders = dispatcher.primary, dispatcher.secondary
    plain = type(dispatcher) is Backfill and dispatcher.fresh and dispatcher.limits == "expected"
    return plain and all(order.compiled for order in orders)


class CompiledSimulation:
    """A simulation that goes through its events in compiled code.

    It gives the schedule that a `cpdispatch.simulator.simulation.Simulation` gives, job by job.

    Parameters
    ----------
    workload, system, trigger, correction, kill_at_limit
        As of a `Simulation`.
    dispatcher : Backfill or Reject
    predictor : Remembering
        One that has learned nothing yet.

    Attributes
    ----------
    records : Records
        There when the simulation is over.
    """

    dependencies = False

    def __init__(
        self,
        workload: Workload,
        system: System,
        dispatcher: Backfill | Reject,
        predictor: Remembering,
        *,
        trigger: str,
        correction: str,
        kill_at_limit: bool,
    ) -> None:
        self.workload = workload
        self.system = system
        self.notes: dict[str, int] = {}
        self.records: Records
        self._kill_at_limit = kill_at_limit
        runtime_s = workload.runtime_s
        if kill_at_limit:
            runtime_s = np.minimum(runtime_s, workload.table.requested_s)
        prepared = Replays(workload, system, runtime_s)
        self._name = dispatcher.name
        memory = take(predictor.memory(workload), prepared.rows)
        self._replay: Replay | None = Replay(
            prepared, dispatcher, memory, trigger=trigger, correction=correction, recorded=True
        )
        self._replay.go(0)  # compiles, before any clock runs

    def go(self, events: int) -> bool:
        """Go on for about so many events; whether the simulation is over."""
        assert self._replay is not None
        over = self._replay.go(events)
        if over:
            self._record()
        return over

    @property
    def progress(self) -> float:
        """Share of the jobs that have been submitted so far."""
        if self._replay is None:
            return 1.0
        state = self._replay.state
        return float(state.at[layout.NEXT] / max(state.given.shape[1], 1))

    def _record(self) -> None:
        """Make the records of what was replayed, the largest thing in memory, which goes."""
        replay, self._replay = self._replay, None
        assert replay is not None
        at, fate, nodes = replay.state.at, replay.state.fate, replay.nodes
        times, counts, prepared = replay.state.times, replay.state.counts, replay.prepared
        rows, runnable = prepared.rows, prepared.runnable
        del replay, prepared
        table = self.workload.table
        self.records = records = Records(self.workload)
        if self._kill_at_limit:
            np.greater(self.workload.runtime_s, table.requested_s, out=records.killed)
        records.reason[~runnable] = Reason.NEVER_FITS
        records.expected_s[rows] = fate[layout.EXPECTED]
        records.start_s[rows] = fate[layout.START]
        records.end_s[rows] = fate[layout.END]
        records.reason[rows] = fate[layout.REASON]
        count = int(at[layout.DISPATCHES])
        records.replayed(self._name, times[:count], counts[:, :count])
        if nodes is None:
            started = records.start_s >= 0
            one = started.astype(np.int64)
            units = table.units[started]
            records.all_placed(slice(None), np.cumsum(one) - one, one, 0 * units, units)
        else:
            used = int(at[layout.ENTRIES])
            records.all_placed(
                rows, fate[layout.FIRST], fate[layout.COUNT], nodes.node[:used], nodes.units[:used]
            )

    def __getstate__(self) -> dict[str, Any]:
        """What a checkpoint needs: what is not in the log, and of that only what is in use."""
        assert self._replay is not None
        return {"saved": self._replay.saved()}

    def go_on_from(self, other: CompiledSimulation) -> None:
        """Take over the state of one that was restored from a checkpoint of the same run."""
        assert self._replay is not None
        self._replay.restore(other.__dict__["saved"])
