"""Replays in compiled code of every dispatcher of the backfilling family.

`cpdispatch.simulator.simulate` takes this way by itself; what learns policies, and the off-line
evaluation of `cpdispatch.best.Best`, call `Replays`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cpdispatch import access
from cpdispatch.arrays import BoolArray, IntArray, sealed_view
from cpdispatch.compile import typed, uncached
from cpdispatch.compiled import fields, layout, loop, test_runs
from cpdispatch.compiled import shadow as easy
from cpdispatch.compiled.correction import CORRECTIONS
from cpdispatch.compiled.deep import Deep, deep_of
from cpdispatch.compiled.gates import Claims, Gate, gate_of
from cpdispatch.compiled.memory import Memory, beforehand
from cpdispatch.compiled.nodes import Nodes, list_waiting, nodes_of
from cpdispatch.compiled.test_runs import Tests, tests_of
from cpdispatch.errors import UsageError
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, Order, Policy
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.jobs import Column, Workload, largest_share, on_pool
from cpdispatch.system import System
from cpdispatch.terms import begins_later, gated, with_first

_EVENTS = 1 << 16
_JOBS = 1 << 16  # looked at at once


class Limited(Protocol):
    """What the limits of a system mean for jobs."""

    passable: BoolArray
    """Whether each job would pass if nothing else ran, shape (jobs,)."""
    claims: Claims


class Replays:
    """Replays of one workload on one system, again and again.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.
    runtime_s : int array, shape (jobs,), optional
        Runtimes as the simulation has them; the real ones when left out.
    limited : Limited, optional
        What the limits of the system mean for the jobs, where it has any:
        `cpdispatch.simulator.gates.Gates` says it.

    Attributes
    ----------
    rows : slice or int64 array
        Rows of the workload that fit the system, in the order of submission: all, or which.
    """

    def __init__(
        self,
        workload: Workload,
        system: System,
        runtime_s: IntArray | None = None,
        limited: Limited | None = None,
    ) -> None:
        if gated(workload, system) and limited is None:
            raise UsageError(
                f"system {system.name} has limits, or jobs have licences or arrays with limits: a "
                "replay needs to be told what they mean for the jobs"
            )
        if system.maintenance:
            raise UsageError(
                f"system {system.name} has maintenance, and compiled replays do not keep to it: "
                "leave it out"
            )
        if begins_later(workload):
            raise UsageError("compiled replays do not keep begin times: leave the column out")
        table, jobs = workload.table, len(workload)
        self.runnable = np.concatenate(
            [
                system_fits(system, table.take(np.arange(low, min(low + _JOBS, jobs))))
                for low in range(0, jobs, _JOBS)
            ]
        )
        self.beyond: BoolArray = np.zeros(0, dtype=np.bool_)
        """Which jobs fit the system and ask for more than a limit allows, shape (jobs,); empty
        without limits.
        """
        if limited is not None:
            self.beyond = self.runnable & ~limited.passable
            self.runnable &= limited.passable
        all_fit = bool(self.runnable.all())
        self.rows = slice(None) if all_fit else np.flatnonzero(self.runnable)
        self.claims = None if limited is None else limited.claims.take(self.rows)
        self.workload = workload
        self.system = system
        runtime_s = workload.runtime_s if runtime_s is None else runtime_s
        # Rows of zeros that are not written cost no memory.
        self.jobs = np.zeros((layout.TIER + 1, np.count_nonzero(self.runnable)), dtype=np.int64)
        rows = (layout.SUBMIT, layout.REQUESTED, layout.RUNTIME, layout.UNITS)
        columns = (table.submit_s, table.requested_s, runtime_s, table.units)
        for row, column in zip(rows, columns, strict=True):
            self.jobs[row] = column[self.rows]
        if table.priority.any():
            self.jobs[layout.PRIORITY] = table.priority[self.rows]
        self.is_tiered = bool((table.tier != table.tier[0]).any())
        if self.is_tiered:
            self.jobs[layout.TIER] = table.tier[self.rows]
        asked = with_first(system, table.block) if system.once else table.columns
        request = [column[self.rows] for column in asked[Column.REQUEST :]]
        units = self.jobs[layout.UNITS]
        np.multiply(units, request[0], out=self.jobs[layout.NEED])
        one = _number(request, self.jobs[layout.SHAPE])
        self.asks = np.stack([column[one] for column in request], axis=1)
        one = _number([self.jobs[layout.SHAPE], units], self.jobs[layout.KIND])
        self.kinds = self.jobs[[layout.SHAPE, layout.UNITS]][:, one]
        self.walltime = beforehand(self.jobs[layout.REQUESTED])
        self.is_pool = is_pool(workload, system)

    def bound_waits(self) -> None:
        """Write what the bound on waits needs to know of the jobs."""
        table, total = self.workload.table, access.total(self.system)
        share, processors = self.jobs[layout.SHARE], self.jobs[layout.ON_POOL]
        for low in range(0, len(share), _JOBS):
            part = np.arange(low, min(low + _JOBS, len(share)))
            jobs = table.take(part if isinstance(self.rows, slice) else self.rows[part])
            share[part], processors[part] = largest_share(jobs, total), on_pool(jobs, total)

    @property
    def entries_max(self) -> int:
        """Entries of placements that all jobs together may have."""
        return int(np.minimum(self.jobs[layout.UNITS], self.system.nodes).sum())

    def row(self, job: int) -> int:
        """The row of the workload that a job of the replay is."""
        return job if isinstance(self.rows, slice) else int(self.rows[job])

    def starts(
        self,
        dispatcher: Backfill,
        expected_s: IntArray | None = None,
        upper_s: IntArray | None = None,
    ) -> IntArray:
        """Start of each job in seconds, -1 for those that never fit; shape (jobs,).

        Parameters
        ----------
        expected_s : int array, shape (jobs,), optional
            Predictions; the requested times when left out.
        upper_s : int array, shape (jobs,), optional
            What the jobs probably do not run longer than; the requested times when left out.
        """
        memory = self.walltime if expected_s is None else beforehand(expected_s[self.rows])
        replay = Replay(self, dispatcher, memory)
        if upper_s is not None and replay.careful:
            replay.tables.outcome[layout.UPPER] = upper_s[self.rows]
        while replay.go(_EVENTS) != layout.OVER:
            pass
        start = np.full(len(self.workload), -1, dtype=np.int64)
        start[self.rows] = replay.tables.outcome[layout.START]
        return start


def is_pool(workload: Workload, system: System) -> bool:
    """Whether a system is one pool of processors, and each job asks for some of them."""
    return system.capacity.shape == (1, 1) and bool(
        (workload.table.columns[Column.REQUEST] > 0).all()
    )


def _number(columns: Sequence[IntArray], number: IntArray) -> IntArray:
    """A job of each number; jobs alike in all columns get one, in ascending order of the values.

    The numbers are written over the zeros of ``number``.
    """
    count = min(len(number), 1)
    for column in columns:
        if (column != column[:1]).any():
            values, code = _codes(column)
            count, number[:] = _codes(number * values + code)
    one = np.zeros(count, dtype=np.int64)
    one[number] = np.arange(len(number))
    return one


def _codes(column: IntArray) -> tuple[int, IntArray]:
    """How many values there are, and of each job the position of its value among them."""
    least = column.min()
    span = int(column.max() - least) + 1
    if span > len(column):
        values, code = np.unique(column, return_inverse=True)
        return len(values), code
    taken = np.zeros(span, dtype=np.bool_)
    taken[column - least] = True
    return int(taken.sum()), (np.cumsum(taken) - 1)[column - least]


class Replay:
    """One compiled replay under way.

    Parameters
    ----------
    memory : Memory
        What predicts.
    trigger, correction : str
        See `cpdispatch.simulator.simulation.Simulation`.
    recorded : bool
        Keep a record of each dispatch.
    followed : bool
        Keep the order of the completions, see `layout.COMPLETED`.
    asked : bool
        Stop where jobs have to be predicted, see `predicted`.
    bound : WaitBound, optional
        Of the waits, for a dispatcher that is ``bounded``; needs the trigger ``instant``.
    restart_cost_s : int
        See `cpdispatch.simulator.simulation.Simulation`.
    """

    def __init__(
        self, prepared: Replays, dispatcher: Backfill | Reject, memory: Memory,
        *, trigger: str = "instant", correction: str = "minimal", recorded: bool = False,
        followed: bool = False, asked: bool = False, bound: WaitBound | None = None,
        restart_cost_s: int = 0,
    ) -> None:  # fmt: skip
        self.prepared = prepared
        if isinstance(dispatcher, Reject):
            dispatcher = Backfill(depth=layout.REJECT)
        self.dispatcher = dispatcher
        self.memory = memory
        self._by_event, self._correction = trigger == "event", CORRECTIONS[correction]
        self.wide = 0 if bound is None else bound.wide
        self.in_turn_after = 0 if bound is None else bound.in_turn_after
        self.asked = asked
        self.careful = dispatcher.limits != "expected"
        assert self.careful or Policy.RISK not in (
            dispatcher.primary.policy, dispatcher.secondary.policy
        ), "this order needs upper durations"  # fmt: skip
        self.caution = self._caution()
        total = prepared.system.total
        restartable = prepared.workload.table.restartable
        with_tests = dispatcher.test_s > 0 and bool(restartable.any())
        count = prepared.jobs.shape[1]
        starts = count * (1 + with_tests * (1 + (restart_cost_s > 0)))
        primary = secondary = self._queue(dispatcher.primary, dispatcher.threshold_s)
        if not dispatcher.one_order:
            secondary = self._queue(dispatcher.secondary, NO_THRESHOLD)
        self.tables = layout.fresh(
            prepared.jobs, self._rule(), primary, secondary, processors=int(total[0]),
            duration_row=layout.DURATION_ROWS[dispatcher.limits], tiered=prepared.is_tiered,
            followed=followed or bound is not None, asked=asked, starts=starts,
            bounded=bound is not None,
        )  # fmt: skip
        room = count + starts if recorded else 0
        self.dispatches = layout.Dispatches(
            np.empty(room, dtype=np.int64),
            np.empty((3 + (bound is not None), room), dtype=np.int32),
        )
        self._own = layout.Own(dispatcher.primary.own, dispatcher.secondary.own)
        self._loop: Callable[..., int] | None = None
        """`loop.go`, for arguments of the present types alone or of any."""
        self.shadow: easy.Shadow | None = None
        if bound is not None:
            prepared.bound_waits()
            self.shadow = easy.fresh(int(total[0]))
        if self.careful:
            self.tables.outcome[layout.UPPER] = prepared.jobs[layout.REQUESTED]
        self.gate: Gate | None = None if prepared.claims is None else gate_of(prepared.claims)
        self.tests: Tests | None = None
        if with_tests:
            self.tests = tests_of(
                restartable[prepared.rows], prepared.jobs[layout.REQUESTED], dispatcher.test_s,
                dispatcher.tests, asked, restart_cost_s, dispatcher.primary.policy,
            )  # fmt: skip
        self.nodes: Nodes | None = None
        self.deep: Deep | None = None
        if dispatcher.depth > 1 or not prepared.is_pool:
            capacity, counted = prepared.system.capacity, prepared.system.counted
            self.nodes = nodes_of(
                capacity.copy(), counted.copy(), prepared.asks, prepared.kinds,
                (1 + with_tests) * prepared.entries_max, dispatcher.spare(total),
            )  # fmt: skip
        if dispatcher.depth > 1:
            block = with_first(prepared.system, prepared.workload.table.block)
            self.deep = deep_of(sealed_view(block[:, prepared.rows]), prepared.entries_max)

    def _rule(self) -> layout.Rule:
        """What kernels need of the dispatcher."""
        ours = self.dispatcher
        return fields.fresh(
            layout.Rule, one_queue=ours.one_order, depth=min(ours.depth, layout.NEVER),
            best_fit=ours.best_fit, by_event=self._by_event, correction=self._correction,
            in_turn_after=self.in_turn_after,
        )  # fmt: skip

    def _queue(self, order: Order, threshold_s: int) -> layout.Queue:
        """Nobody in a queue with this order, with a threshold after which jobs are late."""
        count = self.prepared.jobs.shape[1]
        rule = fields.fresh(layout.QueueRule, policy=order.policy, changes=order.changes)
        rule.threshold.seconds, rule.threshold.wide = threshold_s, self.wide
        place, key = np.empty((2, count), dtype=np.int64), np.empty(count)
        return layout.Queue(place, key, fields.fresh(layout.Marks), rule, order.vector)

    def _caution(self) -> layout.Caution | None:
        """What kernels need where jobs are not taken to last as expected."""
        if not self.careful:
            return None
        ours, total = self.dispatcher, int(self.prepared.system.total[0])
        caution = fields.fresh(
            layout.Caution, duration_row=layout.DURATION_ROWS[ours.limits],
            strict_after_s=NO_THRESHOLD, keeps_free=ours.keep > 0, long_s=ours.long_s,
            spare=int(ours.keep * total), total=total,
        )  # fmt: skip
        caution.patience.seconds, caution.patience.wide = ours.threshold_s, self.wide
        return caution

    def predicted(self, expected_s: IntArray, upper_s: IntArray) -> None:
        """Go on with what the next jobs probably last, and probably do not run longer than.

        Parameters
        ----------
        expected_s, upper_s : int64 array, shape (jobs,)
            Seconds, 1 at least.
        """
        state, outcome = self.tables.state, self.tables.outcome
        low, high = state.submitted, state.submitted + len(expected_s)
        outcome[layout.EXPECTED, low:high] = expected_s
        if self.careful:
            outcome[layout.UPPER, low:high] = upper_s
        state.predicted = high

    def outlived(self, job: int, expected_s: int, upper_s: int, again_s: int) -> None:
        """Go on with what a job that has outlived its test lasts, see `predicted`.

        ``again_s`` is what it probably does not run longer than if it starts anew.
        """
        assert self.tests is not None
        self.tables.outcome[layout.EXPECTED, job] = expected_s
        if self.careful:
            self.tables.outcome[layout.UPPER, job] = upper_s
            self.tests.table[test_runs.UPPER_AGAIN, job] = again_s

    def go(self, events: int) -> int:
        """Go on for about so many events, or until somebody else has to act; why it stopped.

        See `layout.USED_UP` and what follows it there.

        Raises
        ------
        UsageError
            When a user's policy raises, or returns no number, for a job: it is named.
        """
        primary, secondary = self.dispatcher.primary, self.dispatcher.secondary
        if self._own == (None, None):
            return self._go(events)
        try:
            with uncached(*loop.WITH_OWN):
                return self._go(events)
        except Exception as error:
            row = self.prepared.row(int(self.tables.state.current_job))
            what = str(error) if str(error) == "returned nan" else f"raised {error!r}"
            job = int(self.prepared.workload.table.id[row])
            own = [order for order in (primary, secondary) if order.own is not None]
            names = " or ".join(dict.fromkeys(order.name for order in own))
            raise replace(own[0], name=names).failed(job, what) from error

    def saved(self) -> dict[str, Any]:
        """What a checkpoint needs to go on: of each array the part that is in use."""
        tables, state = self.tables, self.tables.state
        started = int(max(state.next_serial, state.running, state.pending))
        parts: dict[str, Any] = {
            "state": state,
            "outcome": tables.outcome[:, : state.predicted if self.asked else state.submitted],
            "queues": [
                (queue.marks, queue.rule, queue.place[:, :tail], queue.key[:tail])
                for queue in layout.queues(tables)
                for tail in [int(queue.marks.tail)]
            ],
            "running": tables.running[:, :started],
            "dispatches": [part[..., : state.dispatches] for part in self.dispatches],
            "memory": (self.memory.last, self.memory.before),
        }
        if self.nodes is not None:
            nodes, used = self.nodes, int(state.entries)
            parts["nodes"] = (
                nodes.free, nodes.pool, nodes.kinds, nodes.node[:used], nodes.units[:used]
            )  # fmt: skip
        if self.tests is not None:
            parts["tests"] = (self.tests.state, self.tests.table)
        if self.gate is not None:
            gate = self.gate
            parts["gate"] = gate.state, (
                gate.left, gate.line, gate.after[: state.submitted], gate.first_waiting,
                gate.to_try, gate.passed[: gate.state.passed],
            )  # fmt: skip
        if self.shadow is not None:
            parts["shadow"] = self.shadow, self.caution
        if self.deep is not None:
            _, low, many = self.deep.promise
            end = int((low + many)[many > 0].max(initial=0))
            parts["deep"] = (self.deep.promise, self.deep.node[:end], self.deep.units[:end])
        return parts

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on from what was saved."""
        tables, state = self.tables, self.tables.state
        fields.assign(state, saved["state"])
        queues = zip(layout.queues(tables), saved["queues"], strict=True)
        for queue, (marks, rule, place, key) in queues:
            fields.assign(queue.marks, marks)
            fields.assign(queue.rule, rule)
            queue.place[:, : len(key)], queue.key[: len(key)] = place, key
        mine: tuple[NDArray[Any], ...] = (
            tables.outcome, tables.running, *self.dispatches, self.memory.last, self.memory.before,
        )  # fmt: skip
        theirs = (saved["outcome"], saved["running"], *saved["dispatches"], *saved["memory"])
        for array, part in zip(mine, theirs, strict=True):
            array[..., : part.shape[-1]] = part
        if self.nodes is not None:
            nodes = self.nodes
            arrays = (nodes.free, nodes.pool, nodes.kinds, nodes.node, nodes.units)
            for array, part in zip(arrays, saved["nodes"], strict=True):
                array[: len(part)] = part
            list_waiting(nodes)
            # What is derived of them is computed anew.
            state.blocked = state.ahead_job = -1
        if self.tests is not None:
            fields.assign(self.tests.state, saved["tests"][0])
            self.tests.table[:] = saved["tests"][1]
            anew = test_runs.starts_anew(self.tests)
            cost_s = self.tests.state.restart_cost_s
            tables.jobs[[[layout.REQUESTED], [layout.RUNTIME]], anew] += cost_s
            test_runs.line_up_anew(tables, self.tests, self.nodes)
        if self.gate is not None:
            gate, (of_gate, parts) = self.gate, saved["gate"]
            fields.assign(gate.state, of_gate)
            whole = (
                gate.left, gate.line, gate.after, gate.first_waiting, gate.to_try, gate.passed,
            )  # fmt: skip
            for array, part in zip(whole, parts, strict=True):
                array[..., : part.shape[-1]] = part
        if self.shadow is not None:
            self.shadow, self.caution = saved["shadow"]
            self._loop = None
        if self.deep is not None:
            deep = (self.deep.promise, self.deep.node, self.deep.units)
            for array, part in zip(deep, saved["deep"], strict=True):
                array[: len(part)] = part

    def _go(self, events: int) -> int:
        while True:
            arguments = (
                self.tables, self.memory, self.dispatches, events, self._own, self.nodes,
                self.deep, self.caution, self.tests, self.shadow, self.gate,
            )  # fmt: skip
            if self._loop is None:
                # Where it stops at each submission, its arguments' types are looked at once.
                self._loop = typed(loop.go, *arguments) if self.asked else loop.go
            why = int(self._loop(*arguments))
            if why != layout.NO_ROOM:
                return why
            assert self.shadow is not None
            self.shadow = easy.grown(self.shadow, loop.queued_anew(self.tables.state, self.gate))
            self._loop = None
