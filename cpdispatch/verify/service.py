"""When nodes were out of service in a run, and what ran there: from the events alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.events import (
    CAPACITY,
    DRAIN,
    FAIL,
    JOIN,
    LEAVE,
    MAINTAIN,
    REPAIR,
    UNDRAIN,
    Event,
)
from cpdispatch.system import System

if TYPE_CHECKING:
    import pandas as pd

REQUEUES = 5
"""How often a job may be queued again."""
_NEVER = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """What happened to the system of a run, and what was lost by it.

    Attributes
    ----------
    happened : sequence of Event
        By time.
    attempts : DataFrame
        One row for each time a job was queued again because a node failed: ``id``, ``start`` and
        ``end`` in seconds, and the lists ``nodes`` and ``node_units``; where jobs could be tested
        also ``test``, whether the attempt was a test run.
    requeue : str
        Which jobs could be queued again: ``all``, ``restartable`` or ``none``; empty for those
        that may be restarted, or all where none may.
    checkpoints : mapping, optional
        After how many seconds of work, ``every_s``, jobs wrote a checkpoint, and how long that
        took, ``cost_s``; the attempts then have ``saved_s``.
    """

    happened: Sequence[Event]
    attempts: pd.DataFrame
    requeue: str = ""
    checkpoints: Mapping[str, int] | None = None

    @property
    def period_s(self) -> int:
        """From one checkpoint of a job to the next; 0 without checkpoints."""
        return sum(self.checkpoints.values()) if self.checkpoints else 0

    def may_requeue(self, restartable: BoolArray) -> BoolArray:
        """Which jobs could be queued again, shape (jobs,)."""
        if self.requeue in ("all", "none"):
            return np.full(len(restartable), self.requeue == "all")
        if not self.requeue and not restartable.any():
            return np.ones(len(restartable), dtype=np.bool_)
        return restartable


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """The events of a run beside the attempts that they ended, as flat arrays."""

    happened: Sequence[Event]
    row: IntArray
    """The job of each attempt, in the schedule, shape (attempts,)."""
    start_s: IntArray
    end_s: IntArray
    """Shape (attempts,)."""
    offset: IntArray
    node: IntArray
    node_units: IntArray
    """As in `Schedule`."""
    failed: BoolArray
    """Which jobs ended because a node failed, shape (jobs,)."""
    requeued: IntArray
    """How often each job was queued again, by the table of jobs, shape (jobs,)."""
    may_requeue: BoolArray
    """Shape (jobs,)."""
    expected_s: IntArray
    """How long each job was expected to run, shape (jobs,)."""
    saved_s: IntArray
    """What a checkpoint has kept of each attempt, from which the next one went on, shape
    (attempts,).
    """
    period_s: int
    """From one checkpoint to the next; 0 without checkpoints."""
    tested: BoolArray
    """Which jobs were tested, by the attempt that was killed for a restart or by the last one,
    shape (jobs,).
    """
    test: BoolArray
    """Which attempts were tests, shape (attempts,)."""

    def kept_s(self) -> IntArray:
        """What all attempts of each job together have kept, shape (jobs,)."""
        found = np.zeros(len(self.failed), dtype=np.int64)
        np.add.at(found, self.row, self.saved_s)
        return found

    def kept_before_s(self) -> IntArray:
        """What the attempts before each one of the same job have kept, shape (attempts,)."""
        by_time = np.lexsort((self.start_s, self.row))
        total = np.cumsum(self.saved_s[by_time]) - self.saved_s[by_time]
        first = np.append(True, np.diff(self.row[by_time]) != 0)[: len(total)]
        begins = np.maximum.accumulate(np.where(first, np.arange(len(total)), 0))
        found = np.empty_like(total)
        found[by_time] = total - total[begins]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Times at nodes, those of a node one after the other; arrays of shape (spans,)."""

    node: IntArray
    begin_s: IntArray
    end_s: IntArray

    def meeting(self, node: IntArray, start_s: IntArray, end_s: IntArray) -> IntArray:
        """For each [start, end) at a node a span that it meets, -1 for none.

        What starts and ends at once meets the span that it lies in.
        """
        found = np.full(len(node), -1, dtype=np.int64)
        last_s = np.maximum(end_s, start_s + 1)
        by_node = np.lexsort((self.begin_s, self.node))
        cuts = np.searchsorted(self.node[by_node], np.arange(node.max(initial=-1) + 2))
        for here in np.unique(node[np.isin(node, self.node)]).tolist():
            spans, entries = by_node[cuts[here] : cuts[here + 1]], (node == here).nonzero()[0]
            # Spans of a node follow each other: the last that begins before the end, or none.
            at = np.searchsorted(self.begin_s[spans], last_s[entries]) - 1
            met = (at >= 0) & (self.end_s[spans[np.maximum(at, 0)]] > start_s[entries])
            found[entries[met]] = spans[at[met]]
        return found


def spans(happened: Sequence[Event], begins: str, ends: str) -> Spans:
    """From each event of one kind at a node until the next one of another kind there."""
    open_s: dict[int, int] = {}
    found: list[tuple[int, int, int]] = []
    for event in happened:
        for node in event.nodes:
            if event.kind == begins:
                open_s.setdefault(node, event.time_s)
            elif event.kind == ends and node in open_s:
                found.append((node, open_s.pop(node), event.time_s))
    found += [(node, since_s, _NEVER) for node, since_s in open_s.items()]
    return Spans(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


def downtimes(happened: Sequence[Event]) -> Spans:
    """When no job could be on a node: it had failed, or was maintained."""
    return _either(spans(happened, FAIL, REPAIR), windows(happened))


def _either(one: Spans, other: Spans) -> Spans:
    """When one or the other of two is the case."""
    if not len(other.node):
        return one
    both = [
        (node, begin_s, end_s)
        for of in (one, other)
        for node, begin_s, end_s in zip(
            of.node.tolist(), of.begin_s.tolist(), of.end_s.tolist(), strict=True
        )
    ]
    found: list[tuple[int, int, int]] = []
    for node, begin_s, end_s in sorted(both):
        if found and found[-1][0] == node and begin_s <= found[-1][2]:
            found[-1] = node, found[-1][1], max(found[-1][2], end_s)
        else:
            found.append((node, begin_s, end_s))
    return Spans(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


def windows(happened: Sequence[Event]) -> Spans:
    """When nodes were maintained."""
    found = [
        (node, event.time_s, event.until_s)
        for event in happened
        if event.kind == MAINTAIN
        for node in event.nodes
    ]
    return Spans(*np.array(found, dtype=np.int64).reshape(-1, 3).T)


def reaching_into_windows(
    happened: Sequence[Event], node: IntArray, start_s: IntArray, end_s: IntArray
) -> IntArray:
    """For each job at a node the event of a window, known at its start, that it would run into.

    ``end_s`` is when it was expected to end; -1 stands for no event.
    """
    found = np.full(len(node), -1, dtype=np.int64)
    for k, event in enumerate(happened):
        if event.kind == MAINTAIN:
            into = (event.known_s <= start_s) & (start_s < event.time_s) & (end_s > event.time_s)
            found[into & np.isin(node, event.nodes)] = k
    return found


def drains(happened: Sequence[Event]) -> Spans:
    """When nodes took no new job: they were drained, or not in the system."""
    return _either(spans(happened, DRAIN, UNDRAIN), spans(happened, LEAVE, JOIN))


@dataclass(frozen=True, slots=True, eq=False)
class Lacks:
    """What nodes lacked of their capacity for a time; arrays of shape (spans,)."""

    of: Spans
    amount: IntArray
    """Shape (spans, resources)."""


def lacks(happened: Sequence[Event], system: System) -> Lacks:
    """What nodes lacked and when, from the changes of their capacity."""
    since: dict[int, tuple[int, IntArray]] = {}
    found: list[tuple[int, int, int]] = []
    amounts: list[IntArray] = []

    def close(node: int, end_s: int) -> IntArray:
        begin_s, lacking = since.pop(node, (0, np.zeros(len(system.resources), dtype=np.int64)))
        if lacking.any():
            found.append((node, begin_s, end_s))
            amounts.append(lacking)
        return lacking.copy()

    for event in happened:
        for node in event.nodes if event.kind == CAPACITY else ():
            lacking = close(node, event.time_s)
            for name, amount in event.capacity:
                kind = system.resource(name)
                lacking[kind] = system.capacity[node, kind] - amount
            since[node] = event.time_s, lacking
    for node in list(since):
        close(node, _NEVER)
    spans = Spans(*np.array(found, dtype=np.int64).reshape(-1, 3).T)
    return Lacks(spans, np.array(amounts, dtype=np.int64).reshape(-1, len(system.resources)))


def at_failure(
    happened: Sequence[Event], node: IntArray, end_s: IntArray,
    kinds: Sequence[str] = (FAIL, MAINTAIN, CAPACITY),
) -> BoolArray:  # fmt: skip
    """Whether one of these events was at a node at this very time, shape (entries,)."""
    stops = (event for event in happened if event.kind in kinds)
    failures = {(n, event.time_s) for event in stops for n in event.nodes}
    pairs = zip(node.tolist(), end_s.tolist(), strict=True)
    return np.fromiter((pair in failures for pair in pairs), dtype=np.bool_, count=len(node))


def left_at_last(happened: Sequence[Event], system: System) -> IntArray:
    """What nodes had in the end, shape (nodes, resources); none if they were down, or drained."""
    capacity = system.capacity.copy()
    lacking = lacks(happened, system)
    last = lacking.of.end_s == _NEVER
    capacity[lacking.of.node[last]] -= lacking.amount[last]
    for out in (downtimes(happened), drains(happened)):
        capacity[out.node[out.end_s == _NEVER]] = 0
    return capacity
