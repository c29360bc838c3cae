"""A whole simulation by compiled code: what `cpdispatch.simulate.simulate` takes where it can."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.decision import Reason
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import Workload
from cpdispatch.predict import Remembering
from cpdispatch.predict.memory import take
from cpdispatch.simulate.compiled import layout
from cpdispatch.simulate.compiled.replay import Replay, Replays
from cpdispatch.simulate.records import Records
from cpdispatch.system import System


def replayable(dispatcher: Backfill | Reject) -> bool:
    """Whether compiled code gives the same schedule: nothing is promised yet, keys are compiled."""
    if isinstance(dispatcher, Reject):
        return True
    orders = dispatcher.primary, dispatcher.secondary
    return type(dispatcher) is Backfill and dispatcher.fresh and all(o.compiled for o in orders)


class CompiledSimulation:
    """A simulation that goes through its events in compiled code.

    It gives the schedule that a `cpdispatch.simulate.simulation.Simulation` gives, job by job.

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
        Complete when the simulation is over.
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
        self.records = Records(workload)
        runtime_s, limit_s = workload.runtime_s, workload.table.requested_s
        if kill_at_limit:
            runtime_s = np.minimum(runtime_s, limit_s)
        self.records.killed[:] = runtime_s < workload.runtime_s
        prepared = Replays(workload, system, runtime_s)
        self.records.reason[~prepared.runnable] = Reason.NEVER_FITS
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
            self._record(self._replay)
            self._replay = None  # the largest thing in memory, needed no more
        return over

    @property
    def progress(self) -> float:
        """Share of the jobs that have been submitted so far."""
        if self._replay is None:
            return 1.0
        state = self._replay.state
        return float(state.at[layout.NEXT] / max(state.given.shape[1], 1))

    def _record(self, replay: Replay) -> None:
        records = self.records
        state, rows = replay.state, replay.prepared.rows
        records.expected_s[rows] = state.fate[layout.EXPECTED]
        records.start_s[rows] = state.fate[layout.START]
        records.end_s[rows] = state.fate[layout.END]
        records.reason[rows] = state.fate[layout.REASON]
        count = int(state.at[layout.DISPATCHES])
        records.replayed(self._name, state.times[:count], state.counts[:, :count])
        if replay.nodes is None:
            started = state.fate[layout.START] >= 0
            count = started.astype(np.int64)
            units = state.given[layout.UNITS, started]
            records.all_placed(rows, np.cumsum(count) - count, count, 0 * units, units)
        else:
            used = int(state.at[layout.ENTRIES])
            records.all_placed(
                rows, state.fate[layout.FIRST], state.fate[layout.COUNT],
                replay.nodes.node[:used], replay.nodes.units[:used],
            )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """What a checkpoint needs: what is not in the log, and of that only what is in use."""
        assert self._replay is not None
        return {"saved": self._replay.saved()}

    def go_on_from(self, other: CompiledSimulation) -> None:
        """Take over the state of one that was restored from a checkpoint of the same run."""
        assert self._replay is not None
        self._replay.restore(other.__dict__["saved"])
