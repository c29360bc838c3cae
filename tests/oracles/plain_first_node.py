"""The plain twin of how a job that takes something once is placed."""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.first_node import Ask
from cpdispatch.system import room_beside_once, room_in


class PlainAsk(Ask):
    """What a job asks for, placed without kernels."""

    def room(self, free: IntArray) -> IntArray:
        """How many of the units each node has room for, shape (nodes,)."""
        return room_in(free, self.unit, self.units)

    def room_beside(self, free: IntArray) -> IntArray:
        """The same of the first node, beside what is taken once."""
        return room_beside_once(free, self.unit, self.first, self.units)

    def firsts(self, free: IntArray) -> BoolArray:
        """Which nodes can be the first one while all have room for the rest, shape (nodes,)."""
        room, beside = self.room(free), self.room_beside(free)
        able: BoolArray = (beside > 0) & (room.sum() - room + beside >= self.units)
        return able

    def fits(self, free: IntArray) -> bool:
        """Whether any node can be the first one."""
        return bool(self.firsts(free).any())

    def place(self, free: IntArray, counted: IntArray) -> dict[int, int] | None:
        """Its first node is the fullest that can be that; the units follow on the fullest nodes."""
        able = self.firsts(free)
        if not able.any():
            return None
        parts = np.where(counted > 0, free / np.maximum(counted, 1), 0.0).sum(axis=1)
        fullest = np.argsort(parts, kind="stable")
        first = int(fullest[np.argmax(able[fullest])])
        found = {first: min(int(self.room_beside(free[[first]])[0]), self.units)}
        left, room = self.units - found[first], self.room(free)
        for node in fullest[room[fullest] > 0].tolist():
            if left and node != first:
                found[node] = min(int(room[node]), left)
                left -= found[node]
        return found
