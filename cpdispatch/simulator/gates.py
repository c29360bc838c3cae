"""Limits, licences and limits of arrays as gates before the queue that a dispatcher sees.

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
    Claims,
    come,
    gate_of,
    give_back,
    let_pass,
)
from cpdispatch.errors import InputError
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.jobs import Column, Workload
from cpdispatch.system import JOBS, LIMIT, System
from cpdispatch.terms import gated, licences_of

BEYOND = "never runs: asks for more than a limit allows"
TOO_MANY_LICENCES = "never runs: asks for more licences than there are"


def runnable(workload: Workload, system: System) -> BoolArray:
    """Which jobs fit the system and its limits, shape (jobs,): others never start."""
    fits = system_fits(system, workload.table)
    return fits & Gates(workload, system).passable if gated(workload, system) else fits


class Gates:
    """The limits of a system over the jobs of a workload.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.

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
        self._unlicensed: BoolArray = np.zeros(jobs, dtype=np.bool_)
        """Which jobs ask for more licences than there are."""
        self._left: list[int] = []
        """The room of each gate at the beginning; there is a gate for each value of each limit."""
        self._claims: list[tuple[IntArray, list[list[int]], IntArray]] = []
        """Of each limit: which value each job has, the gates of each value, what each job takes."""
        self._names: list[str] = []
        """Of each gate, in words."""
        for limit in system.limits:
            amount = np.ones(jobs, dtype=np.int64)
            if limit.of != JOBS:
                row = Column.REQUEST + system.resource(limit.of)
                amount = table.units * table.column(row)
                for once, of in system.once:
                    if of == system.resource(limit.of):
                        amount = amount + table.column(Column.REQUEST + once)
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
            self._names += [
                f"{limit} ({name})" if name != limit.name else str(limit) for name in gates
            ]
            self._add(value, of_value, amount, limit.most)
        self._add_licences(workload, system)
        self._add_arrays(workload)
        self.claims = self._by_kind(jobs)
        self._gate = gate_of(self.claims)

    def _add(self, value: IntArray, of_value: list[list[int]], amount: IntArray, most: int) -> None:
        self._claims.append((value, of_value, amount))
        has = np.array([bool(held) for held in of_value])[value]
        self.passable &= ~has | (amount <= most)

    def _add_licences(self, workload: Workload, system: System) -> None:
        """A gate for each licence that a job asks for."""
        texts, asked = workload.asked("licences")
        of_text = []
        for k, text in enumerate(asked):
            try:
                of_text.append(licences_of(text, system))
            except InputError as error:
                job = workload.table.id[int(np.argmax(texts == k))]
                raise InputError(f"job {job}: {error}", file=workload.name) from error
        for name, most in system.licences.items():
            amount = np.array([found.get(name, 0) for found in of_text], dtype=np.int64)[texts]
            if amount.any():
                gate = len(self._left)
                self._left.append(most)
                self._names.append(f"{most} licences {name}")
                self._add((amount > 0).astype(np.int64), [[], [gate]], amount, most)
                self._unlicensed |= amount > most

    def _add_arrays(self, workload: Workload) -> None:
        """A gate for each array of which not all tasks may run at once."""
        most = workload.array_limit()
        if not most.any():
            return
        array, names = workload.asked("array")
        limited, unnamed = most > 0, np.array([not name for name in names])[array]
        for job in workload.table.id[limited & unnamed][:1].tolist():
            raise InputError(
                f"job {job} has a limit of its array, and no array", file=workload.name,
                field="array_limit", advice="name the array in the column array, or write 0",
            )  # fmt: skip
        least = np.full(len(names), LIMIT, dtype=np.int64)
        np.minimum.at(least, array[limited], most[limited])
        of_value: list[list[int]] = []
        for many, name in zip(least.tolist(), names, strict=True):
            tasks = "task" if many == 1 else "tasks"
            self._names += [f"at most {many} {tasks} of array {name}"] * (many < LIMIT)
            of_value.append([] if many == LIMIT else [len(self._left)])
            self._left += [many] * (many < LIMIT)
        self._add(array, of_value, np.ones(len(array), dtype=np.int64), 1)

    def notes(self, beyond: BoolArray) -> dict[str, int]:
        """What these of the jobs that never pass ask for too much of, and how many do."""
        unlicensed = int(np.count_nonzero(beyond & self._unlicensed))
        found = {BEYOND: int(np.count_nonzero(beyond)) - unlicensed, TOO_MANY_LICENCES: unlicensed}
        return {what: jobs for what, jobs in found.items() if jobs}

    @property
    def behind(self) -> int:
        """How many jobs are behind the gate."""
        return int(self._gate.state.behind)

    def submit(self, row: int) -> None:
        """Put a job behind the gate."""
        come(self._gate, row)

    def end(self, row: int) -> None:
        """Give back the room of a job that had passed."""
        give_back(self._gate, row)

    def passing(self) -> list[int]:
        """Let jobs pass, and take their room; their rows, ascending."""
        if not self._gate.state.trying:
            return []
        passed: list[int] = self._gate.passed[: let_pass(self._gate)].tolist()
        return passed

    def lacking(self, row: int) -> str:
        """The first gate that has too little room for a job, in words; empty if there is none."""
        gate, kind = self._gate, int(self._gate.kind[row])
        for k in range(int(gate.offset[kind]), int(gate.offset[kind + 1])):
            if gate.left[gate.counter[k]] < gate.amount[k]:
                return self._names[int(gate.counter[k])]
        return ""

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
