"""What intervals hold together over time, and how many units of a request fit."""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.system import System


class Sweep:
    """What intervals [start, end) hold together at each place, after every change.

    Parameters
    ----------
    place : int64 array, shape (intervals,)
    times : int64 array
        All instants at which something may change, ascending.
    begin, end : int64 array, shape (intervals,)
        Indices into ``times``; ``end`` is not before ``begin``.

    Attributes
    ----------
    place, time : int64 array, shape (changes,)
        Every place and instant at which something changed there, by place, then time. Levels are
        taken after all changes of an instant: what ends there is given back first.
    """

    def __init__(self, place: IntArray, times: IntArray, begin: IntArray, end: IntArray) -> None:
        # One integer for place and instant sorts several times faster than two keys.
        key = np.concatenate((place, place)) * len(times) + np.concatenate((begin, end))
        self._order = np.argsort(key)
        key = key[self._order]
        self._last = np.append(key[1:] != key[:-1], len(key) > 0).nonzero()[0]
        self.place, instant = np.divmod(key[self._last], max(len(times), 1))
        self.time = times[instant]

    @classmethod
    def of(cls, place: IntArray, start_s: IntArray, end_s: IntArray) -> Sweep:
        """From intervals in seconds."""
        times, instant = np.unique(np.concatenate((start_s, end_s)), return_inverse=True)
        return cls(place, times, instant[: len(start_s)], instant[len(start_s) :])

    def level(self, amount: IntArray) -> IntArray:
        """What is held when each interval holds its ``amount``, shape (changes,).

        Every interval gives back what it took, so the sum is 0 where one place ends and the next
        begins.
        """
        level = np.concatenate((amount, -amount))[self._order]
        np.cumsum(level, out=level)
        return level[self._last]

    def firsts(self, bad: BoolArray) -> IntArray:
        """The first bad change of each place."""
        rows = bad.nonzero()[0]
        return rows[np.unique(self.place[rows], return_index=True)[1]]


class Around:
    """What intervals certainly hold at each place at some instants: they begin before, end after.

    Parameters
    ----------
    place, start_s, end_s : int64 array, shape (intervals,)
    at_place, at_s : int64 array, shape (instants,)
    """

    def __init__(
        self, place: IntArray, start_s: IntArray, end_s: IntArray, at_place: IntArray,
        at_s: IntArray,
    ) -> None:  # fmt: skip
        times = np.unique(at_s)
        self._here = ((end_s > start_s) & np.isin(place, at_place)).nonzero()[0]
        first = (place * (len(times) + 1))[self._here]
        # The instants in between are those from the one after the start to the one before the end.
        begin = first + np.searchsorted(times, start_s[self._here], side="right")
        end = first + np.searchsorted(times, end_s[self._here])
        key = np.concatenate((begin, end))
        self._order = np.argsort(key)
        at = at_place * (len(times) + 1) + np.searchsorted(times, at_s)
        self._last = np.searchsorted(key[self._order], at, side="right")

    def level(self, amount: IntArray) -> IntArray:
        """What is held when each interval holds its ``amount``, shape (instants,)."""
        amount = amount[self._here]
        total = np.concatenate((amount, -amount))[self._order]
        found: IntArray = np.concatenate(([0], np.cumsum(total)))[self._last]
        return found


def taken_from_pool(sweep: Sweep, amount: IntArray, capacity: IntArray) -> IntArray:
    """What each change of a sweep over nodes takes from the pool of them all.

    A node that is held beyond its capacity takes no more than that.
    """
    level = np.minimum(sweep.level(amount), capacity[sweep.place])
    new = np.append(True, sweep.place[1:] != sweep.place[:-1])[: len(sweep.place)]
    return level - np.where(new, 0, np.append(0, level[:-1])[: len(level)])


def of_shares(system: System) -> IntArray:
    """The resource types of which jobs ask for a share of the system, by their indices.

    Others say where jobs may run, or how many units of a job share a node.
    """
    counts = ["@" not in name or name.endswith("@whole") for name in system.resources]
    return np.flatnonzero(counts)


def units_that_fit(capacity: IntArray, request: IntArray) -> int:
    """How many units of a request fit into what the nodes have, shape (nodes, resources)."""
    if not (request > 0).any():
        return int(np.iinfo(np.int64).max)
    return int(units_on_nodes(capacity, request).sum())


def fit_empty(capacity: IntArray, units: IntArray, request: IntArray) -> BoolArray:
    """Which jobs fit the nodes by their units when nothing else is there, shape (jobs,)."""
    if not len(units):
        return np.zeros(0, dtype=np.bool_)
    asked, which = np.unique(np.column_stack((units, request)), axis=0, return_inverse=True)
    room = np.array([units_that_fit(capacity, row[1:]) for row in asked])
    fits: BoolArray = (room >= asked[:, 0])[which.reshape(-1)]
    return fits


def units_on_nodes(capacity: IntArray, request: IntArray) -> IntArray:
    """How many units of a request, which asks for something, fit on each node; shape (..., nodes).

    The shape of ``capacity`` is (..., nodes, resources).
    """
    asked, limits = request > 0, -request[request < 0]
    on_node = (capacity[..., asked] // request[asked]).min(axis=-1)
    fit: IntArray = np.minimum(on_node, limits.min(initial=np.iinfo(np.int64).max))
    return fit
