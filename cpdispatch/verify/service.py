"""When nodes were out of service in a run, and what ran there: from the events alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.events import DRAIN, FAIL, JOIN, LEAVE, MAINTAIN, REPAIR, UNDRAIN, Event

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
        ``end`` in seconds, and the lists ``nodes`` and ``node_units``.
    requeue : str
        Which jobs could be queued again: ``all``, ``restartable`` or ``none``; empty for those
        that may be restarted, or all where none may.
    """

    happened: Sequence[Event]
    attempts: pd.DataFrame
    requeue: str = ""

    def may_requeue(self, restartable: BoolArray) -> BoolArray:
        """Which jobs could be queued again, shape (jobs,)."""
        if self.requeue in ("all", "none"):
            return np.full(len(restartable), self.requeue == "all")
        if not self.requeue and not restartable.any():
            return np.ones(len(restartable), dtype=np.bool_)
        return restartable


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """The events of a run beside the attempts that they ended, as flat arrays.

    Attributes
    ----------
    happened : sequence of Event
    row : int64 array, shape (attempts,)
        The job of each attempt, in the schedule.
    start_s, end_s : int64 array, shape (attempts,)
    offset, node, node_units : int64 array
        As in `Schedule`.
    failed : bool array, shape (jobs,)
        Which jobs ended because a node failed.
    requeued : int64 array, shape (jobs,)
        How often each job was queued again, by the table of jobs.
    may_requeue : bool array, shape (jobs,)
    expected_s : int64 array, shape (jobs,)
        How long each job was expected to run.
    """

    happened: Sequence[Event]
    row: IntArray
    start_s: IntArray
    end_s: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray
    failed: BoolArray
    requeued: IntArray
    may_requeue: BoolArray
    expected_s: IntArray


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


def at_failure(happened: Sequence[Event], node: IntArray, end_s: IntArray) -> BoolArray:
    """Whether a node failed, or its maintenance began, at this very time, shape (entries,)."""
    stops = (event for event in happened if event.kind in (FAIL, MAINTAIN))
    failures = {(n, event.time_s) for event in stops for n in event.nodes}
    pairs = zip(node.tolist(), end_s.tolist(), strict=True)
    return np.fromiter((pair in failures for pair in pairs), dtype=np.bool_, count=len(node))


def out_at_last(happened: Sequence[Event]) -> list[int]:
    """The nodes that were down, or drained, in the end."""
    both = (downtimes(happened), drains(happened))
    return [int(node) for out in both for node in out.node[out.end_s == _NEVER]]
