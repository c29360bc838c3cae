"""Replays in compiled code of every dispatcher of the backfilling family.

`cpdispatch.simulate.simulate` takes this way by itself; what learns policies calls `Replays`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import uncached
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import Column, Workload
from cpdispatch.predict.memory import Memory, given
from cpdispatch.simulate.compiled import layout, loop
from cpdispatch.simulate.compiled.deep import Deep, deep_of
from cpdispatch.simulate.compiled.nodes import Nodes, nodes_of
from cpdispatch.simulate.state import CORRECTIONS
from cpdispatch.system import System

_EVENTS = 1 << 16


class Replays:
    """Replays of one workload on one system, again and again.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.
    system : System
    runtime_s : int array, shape (jobs,), optional
        Runtimes as the simulation has them; the real ones when left out.

    Attributes
    ----------
    rows : int64 array
        Rows of the workload that fit the system, in the order of submission.
    """

    def __init__(
        self, workload: Workload, system: System, runtime_s: IntArray | None = None
    ) -> None:
        table = workload.table
        runnable = system_fits(system, table)
        self.rows = np.flatnonzero(runnable)
        self.runnable = runnable
        self.workload = workload
        self.system = system
        request = table.block[Column.REQUEST :]
        runtime_s = workload.runtime_s if runtime_s is None else runtime_s
        self.given = np.empty((7, len(self.rows)), dtype=np.int64)
        rows = (layout.SUBMIT, layout.REQUESTED, layout.RUNTIME, layout.UNITS)
        columns = (table.submit_s, table.requested_s, runtime_s, table.units)
        for row, column in zip(rows, columns, strict=True):
            self.given[row] = column[self.rows]
        self.given[layout.NEED] = self.given[layout.UNITS] * request[0, self.rows]
        shape = _numbered(request[:, self.rows])
        kind = _numbered(np.stack((shape, self.given[layout.UNITS])))
        self.given[layout.SHAPE], self.given[layout.KIND] = shape, kind
        one_of_each = np.unique(shape, return_index=True)[1]
        self.asks = np.ascontiguousarray(request[:, self.rows[one_of_each]].T)
        one_of_each = np.unique(kind, return_index=True)[1]
        self.kinds = self.given[[layout.SHAPE, layout.UNITS]][:, one_of_each]
        self.walltime = given(self.given[layout.REQUESTED])
        self.is_pool = system.capacity.shape == (1, 1) and bool((self.given[layout.NEED] > 0).all())

    @property
    def entries_max(self) -> int:
        """Entries of placements that all jobs together may have."""
        return int(np.minimum(self.given[layout.UNITS], self.system.nodes).sum())

    def starts(self, dispatcher: Backfill, expected_s: IntArray | None = None) -> IntArray:
        """Start of each job in seconds, -1 for those that never fit; shape (jobs,).

        Parameters
        ----------
        dispatcher : Backfill
        expected_s : int array, shape (jobs,), optional
            Predictions; the requested times when left out.
        """
        memory = self.walltime if expected_s is None else given(expected_s[self.rows])
        replay = Replay(self, dispatcher, memory)
        while not replay.go(_EVENTS):
            pass
        start = np.full(len(self.workload), -1, dtype=np.int64)
        start[self.rows] = replay.state.fate[layout.START]
        return start


def _numbered(columns: IntArray) -> IntArray:
    """The same number for the same column, in ascending order of the columns; shape (columns,)."""
    number = np.zeros(columns.shape[1], dtype=np.int64)
    for row in columns:
        values, code = np.unique(row, return_inverse=True)
        number = np.unique(number * len(values) + code, return_inverse=True)[1]
    return number


class Replay:
    """One compiled replay under way.

    Parameters
    ----------
    prepared : Replays
    dispatcher : Backfill or Reject
    memory : Memory
        What predicts.
    trigger, correction : str
        See `cpdispatch.simulate.simulation.Simulation`.
    recorded : bool
        Keep a record of each dispatch.
    """

    def __init__(
        self, prepared: Replays, dispatcher: Backfill | Reject, memory: Memory,
        *, trigger: str = "instant", correction: str = "minimal", recorded: bool = False,
    ) -> None:  # fmt: skip
        self.prepared = prepared
        if isinstance(dispatcher, Reject):
            dispatcher = Backfill(depth=layout.REJECT)
        self.dispatcher = dispatcher
        self.memory = memory
        first, second = dispatcher.primary, dispatcher.secondary
        same = first == second and dispatcher.threshold_s == NO_THRESHOLD
        self.rule = np.array(
            [
                first.policy, first.changes, second.policy, second.changes, same,
                dispatcher.threshold_s, min(dispatcher.depth, layout.NEVER), dispatcher.best_fit,
                trigger == "event", CORRECTIONS[correction],
            ],
            dtype=np.int64,
        )  # fmt: skip
        processors = int(prepared.system.total[0])
        self.state = layout.fresh(prepared.given, processors, recorded=recorded, same=same)
        self.nodes: Nodes | None = None
        self.deep: Deep | None = None
        if dispatcher.depth > 1 or not prepared.is_pool:
            capacity = prepared.system.capacity.copy()
            self.nodes = nodes_of(capacity, prepared.asks, prepared.kinds, prepared.entries_max)
        if dispatcher.depth > 1:
            block = np.ascontiguousarray(prepared.workload.table.block[:, prepared.rows])
            self.deep = deep_of(block, prepared.entries_max)

    def go(self, events: int) -> bool:
        """Go on for about so many events; whether the replay is over.

        Raises
        ------
        UsageError
            When a user's policy raises, or returns no number, for a job: it is named.
        """
        first, second = self.dispatcher.primary, self.dispatcher.secondary
        if first.own is None and second.own is None:
            return self._go(events)
        try:
            with uncached(*loop.WITH_OWN):
                return self._go(events)
        except Exception as error:
            row = self.prepared.rows[self.state.at[layout.CURRENT]]
            what = str(error) if str(error) == "returned nan" else f"raised {error!r}"
            job = int(self.prepared.workload.table.id[row])
            raise (first if first.own is not None else second).failed(job, what) from error

    def saved(self) -> dict[str, Any]:
        """What a checkpoint needs to go on: of each array the part that is in use."""
        state, at = self.state, self.state.at
        started = max(int(at[layout.SERIAL]), int(at[layout.RUNNING]), int(at[layout.PENDING]))
        count, used = int(at[layout.DISPATCHES]), int(at[layout.ENTRIES])
        parts: dict[str, Any] = {
            "at": at,
            "fate": state.fate[:, : at[layout.NEXT]],
            "first": state.first[:, : at[layout.FIRST_SIZE]],
            "first_key": state.first_key[: at[layout.FIRST_SIZE]],
            "second": state.second[:, : at[layout.SECOND_SIZE]],
            "second_key": state.second_key[: at[layout.SECOND_SIZE]],
            "run": state.run[:, :started],
            "times": state.times[:count],
            "counts": state.counts[:, :count],
            "memory": (self.memory.last, self.memory.before),
        }
        if self.nodes is not None:
            nodes = self.nodes
            parts["nodes"] = (
                nodes.free, nodes.pool, nodes.kinds, nodes.node[:used], nodes.units[:used]
            )  # fmt: skip
        if self.deep is not None:
            _, first, many = self.deep.promise
            end = int((first + many)[many > 0].max(initial=0))
            parts["deep"] = (self.deep.promise, self.deep.node[:end], self.deep.units[:end])
        return parts

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what was saved."""
        state = self.state
        for name in ("at", "times", "first_key", "second_key"):
            getattr(state, name)[: len(saved[name])] = saved[name]
        for name in ("fate", "first", "second", "run", "counts"):
            getattr(state, name)[:, : saved[name].shape[1]] = saved[name]
        for mine, theirs in zip(
            (self.memory.last, self.memory.before), saved["memory"], strict=True
        ):
            mine[:] = theirs
        if self.nodes is not None:
            nodes = self.nodes
            arrays = (nodes.free, nodes.pool, nodes.kinds, nodes.node, nodes.units)
            for array, part in zip(arrays, saved["nodes"], strict=True):
                array[: len(part)] = part
            # What is derived of them is computed anew.
            state.at[[layout.BLOCKED, layout.AHEAD_JOB]] = -1
        if self.deep is not None:
            deep = (self.deep.promise, self.deep.node, self.deep.units)
            for array, part in zip(deep, saved["deep"], strict=True):
                array[: len(part)] = part

    def _go(self, events: int) -> bool:
        first, second = self.dispatcher.primary, self.dispatcher.secondary
        return bool(
            loop.go(
                *self.state, self.memory, self.rule, first.vector, second.vector,
                events, first.own, second.own, self.nodes, self.deep,
            )
        )  # fmt: skip
