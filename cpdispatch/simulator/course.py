"""The events of one run: the next one, and the nodes that are in service at that time."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterator
from math import gamma

import numpy as np

from cpdispatch.arrays import IntArray, sealed
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
    Events,
)
from cpdispatch.instance import Reservation
from cpdispatch.simulator.kernels import NEVER
from cpdispatch.system import LIMIT, System, with_capacity


class Course:
    """Events in the order in which they happen; failures that are drawn come one by one.

    The failures of a node depend on the seed and on its number alone. Of events of the same time,
    those of the file come first, then the drawn ones by node.

    Parameters
    ----------
    start_s : int
        From when on failures are drawn: the first submission.

    Attributes
    ----------
    happened : list of Event
    down : int64 array
        The nodes that take no job, ascending: they have failed, are drained, or
        are not in the system.
    system : System
        The system with the capacity that its nodes have now.
    """

    def __init__(self, events: Events, system: System, seed: int, start_s: int) -> None:
        self._trace = events.trace(system)
        self._taken = 0
        self._draws = events.drawn(system)
        self._random = {
            node: np.random.Generator(np.random.PCG64([seed, node])) for node in self._draws
        }
        self._drawn: list[tuple[int, int, str]] = []
        for node in self._draws:
            self._fails(node, start_s)
        self._out = {kind: np.zeros(system.nodes, dtype=np.bool_) for kind in (FAIL, DRAIN, LEAVE)}
        self.down: IntArray = sealed(np.empty(0, dtype=np.int64))
        self.system = system
        self._whole = system
        windows = [event for event in self._trace if event.kind == MAINTAIN]
        self._turns = sorted({at for w in windows for at in w.turns}, reverse=True)
        """When windows become known, or are over, the latest first."""
        self._unknown = sorted(enumerate(windows), key=lambda of: of[1].known_s, reverse=True)
        self._known: list[tuple[int, Event]] = []
        """The windows that are not known yet, and those that are and are not over."""
        self.happened: list[Event] = []

    @property
    def next_s(self) -> int:
        """When something happens next; `NEVER` when nothing does."""
        from_file = self._trace[self._taken].time_s if self._taken < len(self._trace) else NEVER
        turn = self._turns[-1] if self._turns else NEVER
        return min(from_file, self._drawn[0][0] if self._drawn else NEVER, turn)

    @property
    def is_certain(self) -> bool:
        """Whether something is to happen that is not drawn."""
        return self.to_come > 0 or bool(self._turns)

    @property
    def to_come(self) -> int:
        """How many events of the file have not happened."""
        return len(self._trace) - self._taken

    def take(self) -> Event | None:
        """Let the next event happen; None if a window only becomes known, or is over."""
        now = self.next_s
        if self._turns and self._turns[-1] == now:
            self._turns.pop()
            return None
        if self._taken < len(self._trace) and self._trace[self._taken].time_s == now:
            event = self._trace[self._taken]
            self._taken += 1
        else:
            event = self._take_drawn()
        self.happened.append(event)
        if event.kind == MAINTAIN:
            return event
        if event.kind == CAPACITY:
            self._resize(event)
            return event
        of = {REPAIR: FAIL, UNDRAIN: DRAIN, JOIN: LEAVE}.get(event.kind, event.kind)
        self._out[of][list(event.nodes)] = event.kind == of
        self.down = sealed(np.flatnonzero(np.any(list(self._out.values()), axis=0)))
        return event

    def _resize(self, event: Event) -> None:
        """Give the nodes of an event the capacity that it says."""
        capacity = self.system.capacity.copy()
        for name, amount in event.capacity:
            capacity[list(event.nodes), self._whole.resource(name)] = amount
        self.system = with_capacity(self._whole, capacity)

    def reservations(self, now: int) -> tuple[Reservation, ...]:
        """The windows that are known now and not over, on the nodes that are not down.

        No ``now`` is before that of an earlier call.
        """
        while self._unknown and self._unknown[-1][1].known_s <= now:
            insort(self._known, self._unknown.pop())
        self._known = [of for of in self._known if now < of[1].until_s]
        return tuple(
            Reservation(window.time_s, window.until_s - window.time_s, nodes, capacity)
            for _, window in self._known
            for nodes, capacity in self._alike(window.nodes)
        )

    def _alike(self, nodes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The nodes that are not down, those of equal capacity together."""
        found: dict[tuple[int, ...], list[int]] = {}
        down = set(self.down.tolist())
        for node in nodes:
            if node not in down:
                found.setdefault(tuple(self.system.capacity[node].tolist()), []).append(node)
        for capacity, alike in found.items():
            yield tuple(alike), capacity

    def _take_drawn(self) -> Event:
        time_s, node, kind = heapq.heappop(self._drawn)
        if kind == FAIL:
            heapq.heappush(self._drawn, (time_s + self._draws[node].repair_s, node, REPAIR))
        else:
            self._fails(node, time_s)
        return Event(time_s, kind, (node,))

    def _fails(self, node: int, since_s: int) -> None:
        """Draw when a node fails that is up since then."""
        draw = self._draws[node]
        scale_s = draw.mtbf_s / gamma(1 + 1 / draw.shape)
        lasts_s = scale_s * self._random[node].weibull(draw.shape)
        if lasts_s < LIMIT:
            heapq.heappush(self._drawn, (since_s + max(1, round(lasts_s)), node, FAIL))
