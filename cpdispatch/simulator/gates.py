"""Limits as gates between submission and the queue that a dispatcher sees.

A job passes when what has passed before and has not ended leaves room for it in each of its limits,
or else waits behind the gate. Jobs are tried in the order of the log, whenever one is submitted or
room is given back; a later job may pass where an earlier one finds no room. A job that has passed
stays in the queue until it starts, and takes its room until it ends: what a dispatcher has promised
it can be kept, and no decision can exceed a limit. Nothing is reserved for a job behind the gate.
"""

from __future__ import annotations

from bisect import insort

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.jobs import Column, Workload
from cpdispatch.system import JOBS, System

BEYOND = "never runs: asks for more than a limit allows"


class Gates:
    """The limits of a system over the jobs of a workload.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.
    system : System
        One with limits.

    Attributes
    ----------
    passable : bool array, shape (jobs,)
        Whether each job would pass if nothing else ran.
    behind : list of int
        Workload rows of the jobs that wait behind the gate, ascending.
    """

    def __init__(self, workload: Workload, system: System) -> None:
        table = workload.table
        jobs = len(table)
        self.passable: BoolArray = np.ones(jobs, dtype=np.bool_)
        self.behind: list[int] = []
        self._left: list[int] = []
        """What each gate has left: one gate a limit and value that it holds for."""
        self._claims: list[tuple[IntArray, list[list[int]], IntArray]] = []
        """Of each limit: which value each job has, the gates of each value, what each job takes."""
        self._opened = False
        for limit in system.limits:
            amount = np.ones(jobs, dtype=np.int64)
            if limit.of != JOBS:
                row = Column.REQUEST + system.resource(limit.of)
                amount = table.units * table.column(row)
            value, gates = np.zeros(jobs, dtype=np.int64), {"": len(self._left)}
            of_value = [[len(self._left)]]
            if limit.per:
                column = table.column(Column[limit.per.upper()])
                _, first, value = np.unique(column, return_index=True, return_inverse=True)
                gates, of_value = {}, []
                for job in first.tolist():
                    names = names_of(limit.per, table.label(limit.per, job))
                    held = [name for name in names if limit.name in ("", name)]
                    of_value.append(
                        [gates.setdefault(name, len(self._left) + len(gates)) for name in held]
                    )
            self._left += [limit.most] * len(gates)
            self._claims.append((value, of_value, amount))
            has = np.array([bool(held) for held in of_value])[value]
            self.passable &= ~has | (amount <= limit.most)

    def submit(self, row: int) -> None:
        """Put a job behind the gate."""
        insort(self.behind, row)
        self._opened = True

    def end(self, row: int) -> None:
        """Give back the room of a job that had passed."""
        for gate, amount in self._of(row):
            self._left[gate] += amount
        self._opened = True

    def passing(self) -> list[int]:
        """Let jobs pass, and take their room; their rows, ascending."""
        if not self._opened:
            return []
        self._opened = False
        left, passed, behind = self._left, [], []
        for row in self.behind:
            claims = self._of(row)
            if all(left[gate] >= amount for gate, amount in claims):
                for gate, amount in claims:
                    left[gate] -= amount
                passed.append(row)
            else:
                behind.append(row)
        self.behind = behind
        return passed

    def _of(self, row: int) -> list[tuple[int, int]]:
        """The gates of a job, and what it takes of each."""
        return [
            (gate, int(amount[row]))
            for value, of_value, amount in self._claims
            for gate in of_value[value[row]]
        ]


def names_of(per: str, text: str) -> list[str]:
    """The values of a job in a column: several partitions stand with commas between them."""
    parts = text.split(",") if per == "partition" else [text]
    return [name for name in dict.fromkeys(part.strip() for part in parts) if name]
