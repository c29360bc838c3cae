"""Nodes that are switched off when they have been idle for long, and on when jobs wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.instance import Instance, Reservation
from cpdispatch.jobs import Column
from cpdispatch.simulator.kernels import NEVER
from cpdispatch.system import System, room_beside_once, room_in
from cpdispatch.terms import apart


class Switching:
    """Which nodes are off, and when nodes are switched off and on.

    A node that has been idle for the given time is switched off as soon as no job waits. When jobs
    wait after a dispatch, as many nodes are switched on as these jobs need beyond the free ones.
    A node is back after the wake-up time of its group. While it is off or wakes up, instances show
    it as reserved for that time.

    Parameters
    ----------
    system : System
        Says which groups can be switched off, and how long they take to be back.
    idle_s : int
        How long a node is idle before it is switched off.
    start_s : int
        From when on nodes are idle.

    Attributes
    ----------
    spells : list of [node, off_s, wake_s, on_s]
        Each time that a node was off; -1 for what has not happened yet.
    """

    def __init__(self, system: System, idle_s: int, start_s: int) -> None:
        names = [group.site_name for group in system.groups]
        wake_s = np.array([system.wake_s.get(name, -1) for name in names], dtype=np.int64)
        self._wake_s = wake_s[system.group_of]
        self._idle_s = idle_s
        self._start_s = start_s
        self._idle_since = np.full(system.nodes, start_s, dtype=np.int64)
        """Since when each node has been idle; `NEVER` for those that are not."""
        self._back_s = np.full(system.nodes, -1, dtype=np.int64)
        """-1 for nodes that are on, `NEVER` for those that are off, else when they are on again."""
        self._spell = np.zeros(system.nodes, dtype=np.int64)
        self.spells: list[list[int]] = []

    @property
    def off(self) -> bool:
        """Whether any node is off, or not back yet."""
        return bool((self._back_s >= 0).any())

    def next_s(self, waiting: bool) -> int:
        """When a node is back or is switched off next, if no job comes until then."""
        back_s = int(self._back_s[self._back_s >= 0].min(initial=NEVER))
        if waiting:
            return back_s
        idle_since = self._idle_since[self._could_go() & (self._idle_since < NEVER)]
        return min(back_s, int(idle_since.min()) + self._idle_s) if len(idle_since) else back_s

    def look(self, now: int, busy: IntArray, down: IntArray, waiting: bool) -> None:
        """Take note of the nodes that jobs hold now, and of those out of service.

        Nodes that are due are back, and those that have been idle for long are switched off.
        """
        for node in np.flatnonzero(self._back_s == now).tolist():
            self._back_s[node], self._idle_since[node] = -1, now
            self.spells[self._spell[node]][3] = now
        idle = np.ones(len(self._back_s), dtype=np.bool_)
        idle[busy] = idle[down] = False
        fresh = idle & (self._idle_since == NEVER)
        self._idle_since[fresh], self._idle_since[~idle] = max(now, self._start_s), NEVER
        if waiting:
            return
        due = self._could_go() & idle & (self._idle_since <= now - self._idle_s)
        for node in np.flatnonzero(due).tolist():
            self._back_s[node], self._spell[node] = NEVER, len(self.spells)
            self.spells.append([node, now, -1, -1])

    def _could_go(self) -> BoolArray:
        """Which nodes are on, and can be switched off."""
        could: BoolArray = (self._back_s < 0) & (self._wake_s >= 0)
        return could

    def wake(self, instance: Instance, left: IntArray, windows: Sequence[Reservation]) -> None:
        """Switch nodes on for the jobs that still wait, each with its first node first.

        Parameters
        ----------
        instance : Instance
            Its queue, without what has started.
        left : int64 array, shape (nodes, resources)
            What is free of nodes that are on, or will be back; all of nodes that are off, and
            nothing of those out of service.
        windows : sequence of Reservation
            Those to come: a job that may run until then does not use their nodes.
        """
        off_last = np.argsort(self._back_s == NEVER, kind="stable")
        left = left[off_last].copy()
        coming_s = np.full(len(left), NEVER)
        for window in windows:
            at = list(window.nodes)
            coming_s[at] = np.minimum(coming_s[at], window.start_s)
        coming_s = coming_s[off_last]
        needed = np.zeros(len(left), dtype=np.bool_)
        queue, eligible = instance.queue, instance.eligible()
        block, first = apart(instance.system, queue.block)
        for k in np.flatnonzero(eligible).tolist():
            request, units = block[Column.REQUEST :, k], int(queue.units[k])
            room = room_in(left, request, units)
            room[coming_s < instance.now + queue.requested_s[k]] = 0
            turn = np.arange(len(left))
            if first[:, k].any():
                beside = np.minimum(room_beside_once(left, request, first[:, k], units), room)
                if len(able := np.flatnonzero(beside)):
                    lost = room[able] - beside[able]
                    head = able[np.argmax(room.sum() - lost >= units)]
                    room[head] = beside[head]
                    left[head] -= first[:, k]
                    turn = np.append(head, np.delete(turn, head))
            before = np.minimum(np.cumsum(room[turn]) - room[turn], units)
            here = np.zeros_like(room)
            here[turn] = np.minimum(room[turn], units - before)
            left -= here[:, None] * np.maximum(request, 0)
            needed |= here > 0
        for node in off_last[needed].tolist():
            if self._back_s[node] == NEVER:
                self._back_s[node] = instance.now + self._wake_s[node]
                self.spells[self._spell[node]][2] = instance.now

    def reservations(
        self, now: int, capacity: IntArray, down: IntArray, known: tuple[Reservation, ...]
    ) -> Iterator[Reservation]:
        """Nodes that are off or not back yet, reserved beside what is known for a node anyway."""
        found: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
        out = set(down.tolist())
        for node in np.flatnonzero(self._back_s >= 0).tolist():
            back_s = int(self._back_s[node])
            until_s = now + int(self._wake_s[node]) if back_s == NEVER else back_s
            if node in out or until_s <= now:
                continue
            begin_s = now
            for window in sorted(known, key=lambda window: window.start_s):
                if node in window.nodes and window.end_s > begin_s:
                    if window.start_s > begin_s:
                        key = begin_s, min(window.start_s, until_s), tuple(capacity[node].tolist())
                        found.setdefault(key, []).append(node)
                    begin_s = max(begin_s, window.end_s)
                if begin_s >= until_s:
                    break
            if begin_s < until_s:
                key = begin_s, until_s, tuple(capacity[node].tolist())
                found.setdefault(key, []).append(node)
        for (begin_s, until_s, has), nodes in found.items():
            yield Reservation(begin_s, until_s - begin_s, tuple(nodes), has)
