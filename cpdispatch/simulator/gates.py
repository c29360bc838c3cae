"""Limits as gates between submission and the queue that a dispatcher sees.

A job passes when what has passed before and has not ended leaves room for it in each of its limits,
or else waits behind the gate. Jobs are tried in the order of the log, whenever one is submitted or
room is given back; a later job may pass where an earlier one finds no room. A job that has passed
stays in the queue until it starts, and takes its room until it ends: what a dispatcher has promised
it can be kept, and no decision can exceed a limit. Nothing is reserved for a job behind the gate.
`cpdispatch.compiled.gates` tries the jobs, here and in compiled replays.
"""

from __future__ import annotations

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.compiled.gates import (
    BEHIND,
    TRIED,
    Claims,
    come,
    gate_of,
    give_back,
    let_pass,
)
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
    claims : Claims
        What each job takes of each gate.
    """

    def __init__(self, workload: Workload, system: System) -> None:
        table = workload.table
        jobs = len(table)
        self.passable: BoolArray = np.ones(jobs, dtype=np.bool_)
        self._left: list[int] = []
        """What each gate has at first: one gate a limit and value that it holds for."""
        self._claims: list[tuple[IntArray, list[list[int]], IntArray]] = []
        """Of each limit: which value each job has, the gates of each value, what each job takes."""
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

        self.claims = self._by_kind(jobs)
        self._gate = gate_of(self.claims)

    @property
    def behind(self) -> int:
        """How many jobs are behind the gate."""
        return int(self._gate.book[BEHIND])

    def submit(self, row: int) -> None:
        """Put a job behind the gate."""
        come(self._gate, row)

    def end(self, row: int) -> None:
        """Give back the room of a job that had passed."""
        give_back(self._gate, row)

    def passing(self) -> list[int]:
        """Let jobs pass, and take their room; their rows, ascending."""
        if not self._gate.book[TRIED]:
            return []
        passed: list[int] = self._gate.passed[: let_pass(self._gate)].tolist()
        return passed

    def _by_kind(self, jobs: int) -> Claims:
        """The claims, once for all jobs that are alike in them."""
        kind = np.zeros(jobs, dtype=np.int64)
        one = np.zeros(min(jobs, 1), dtype=np.int64)
        for value, _, amount in self._claims:
            for column in (value, amount):
                _, code = np.unique(column, return_inverse=True)
                number = kind * (code.max(initial=0) + 1) + code
                _, one, kind = np.unique(number, return_index=True, return_inverse=True)
        claims = [self._of(row) for row in one.tolist()]
        flat = np.array([claim for of_kind in claims for claim in of_kind], dtype=np.int64)
        counter, amount = flat.reshape(-1, 2).T.copy()
        offset = np.cumsum([0, *map(len, claims)], dtype=np.int64)
        return Claims(kind, offset, counter, amount, np.array(self._left, dtype=np.int64))

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
