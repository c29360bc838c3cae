"""The gate of a system with limits, in compiled code: which submitted jobs may queue, and when.

A job claims so much of each of some counters. It passes when all of them have that much left, takes
it, and gives it back when it ends. Jobs are tried in ascending order whenever one comes or
something is given back.

Jobs with the same claims are of one kind, and behind the gate they stand in line: when the first
does not pass, none behind it does. A kind that does not pass waits for one counter that has too
little left, and is tried again when that has enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import kernel
from cpdispatch.compiled import fields
from cpdispatch.compiled.fields import Record

FRONT, BACK, NEXT_KIND, NEEDS = range(4)
"""Rows of `Gate.line`. Of each kind: the first and the last job in line, -1 when there is none; the
next kind that waits for the same counter, -1 after the last; how much it needs of that counter."""


class GateState(Record):
    """The scalars of a gate."""

    behind: int
    """How many jobs are behind the gate."""
    trying: int
    """How many kinds are to be tried: the length of `Gate.to_try`. 0 after `let_pass`."""
    passed: int
    """How many jobs `let_pass` let pass the last time."""


class Claims(NamedTuple):
    """What jobs claim of which counters."""

    kind: IntArray
    """The kind of each job, shape (jobs,)."""
    offset: IntArray
    """Where the claims of each kind begin, shape (kinds + 1,)."""
    counter: IntArray
    amount: IntArray
    """The claims, kind after kind: of which counter, and how much."""
    capacity: IntArray
    """How much each counter has, shape (counters,)."""

    def take(self, jobs: IntArray | slice) -> Claims:
        """Those of some jobs."""
        return self._replace(kind=np.ascontiguousarray(self.kind[jobs]))


class Gate(NamedTuple):
    """A gate, and what is behind it."""

    kind: IntArray
    offset: IntArray
    counter: IntArray
    amount: IntArray
    """As in `Claims`. Constant."""
    left: IntArray
    """How much each counter has left: its capacity without the claims of the jobs that have passed
    and have not ended."""
    line: IntArray
    """The line of each kind; rows from `FRONT` on, shape (rows, kinds)."""
    after: IntArray
    """The next job in line after each job behind the gate, -1 after the last."""
    first_waiting: IntArray
    """The first kind that waits for each counter, -1 when none does."""
    to_try: IntArray
    """The kinds that are to be tried; ``state.trying`` of them."""
    passed: IntArray
    """The jobs that passed last, ascending; ``state.passed`` of them."""
    state: GateState


def gate_of(claims: Claims) -> Gate:
    """A gate that no job has come to. Room for jobs costs no memory before it is used."""
    jobs, kinds = len(claims.kind), len(claims.offset) - 1
    line = np.full((NEEDS + 1, kinds), -1, dtype=np.int64)
    return Gate(
        claims.kind,
        claims.offset,
        claims.counter,
        claims.amount,
        claims.capacity.copy(),
        line,
        np.zeros(jobs, dtype=np.int64),
        np.full(len(claims.capacity), -1, dtype=np.int64),
        np.zeros(kinds, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        fields.fresh(GateState),
    )


@kernel
def come(gate: Gate, job: int) -> None:
    """Put a job behind the gate."""
    line, after, state, kind = gate.line, gate.after, gate.state, gate.kind[job]
    state.behind += 1
    front, back = line[FRONT, kind], line[BACK, kind]
    if front < 0:
        line[FRONT, kind] = line[BACK, kind] = job
        after[job] = -1
        gate.to_try[state.trying] = kind
        state.trying += 1
    elif job > back:
        after[back], after[job] = job, -1
        line[BACK, kind] = job
    elif job < front:
        after[job] = front
        line[FRONT, kind] = job
    else:
        while after[front] < job:
            front = after[front]
        after[job] = after[front]
        after[front] = job


@kernel
def give_back(gate: Gate, job: int) -> None:
    """Give back what a job that had passed has taken."""
    line, left, state = gate.line, gate.left, gate.state
    kind = gate.kind[job]
    for k in range(gate.offset[kind], gate.offset[kind + 1]):
        counter = gate.counter[k]
        left[counter] += gate.amount[k]
        waiting, gate.first_waiting[counter] = gate.first_waiting[counter], -1
        while waiting >= 0:
            next_kind = line[NEXT_KIND, waiting]
            if line[NEEDS, waiting] <= left[counter]:
                gate.to_try[state.trying] = waiting
                state.trying += 1
            else:
                line[NEXT_KIND, waiting] = gate.first_waiting[counter]
                gate.first_waiting[counter] = waiting
            waiting = next_kind


@kernel
def let_pass(gate: Gate) -> int:
    """Let jobs pass, and take what they claim; how many, see `Gate.passed`."""
    line, left, to_try, state = gate.line, gate.left, gate.to_try, gate.state
    count, many, front = 0, state.trying, line[FRONT]
    for k in range(1, many):
        _rise(to_try, front, k)
    while many > 0:
        kind = to_try[0]
        low, high = gate.offset[kind], gate.offset[kind + 1]
        while low < high and left[gate.counter[low]] >= gate.amount[low]:
            low += 1
        if low == high:
            for k in range(gate.offset[kind], high):
                left[gate.counter[k]] -= gate.amount[k]
            gate.passed[count] = front[kind]
            count += 1
            front[kind] = gate.after[front[kind]]
        else:
            counter = gate.counter[low]
            line[NEXT_KIND, kind], line[NEEDS, kind] = gate.first_waiting[counter], gate.amount[low]
            gate.first_waiting[counter] = kind
        if low < high or front[kind] < 0:
            many -= 1
            to_try[0] = to_try[many]
        _sink(to_try, front, many)
    state.trying = 0
    state.passed = count
    state.behind -= count
    return count


@kernel
def _rise(heap: IntArray, key: IntArray, k: int) -> None:
    """Put the last kind of a heap, at a place, where its key belongs."""
    kind = heap[k]
    while k > 0 and key[heap[(k - 1) // 2]] > key[kind]:
        heap[k] = heap[(k - 1) // 2]
        k = (k - 1) // 2
    heap[k] = kind


@kernel
def _sink(heap: IntArray, key: IntArray, size: int) -> None:
    """Put the first kind of a heap where its key belongs."""
    kind, k = heap[0], 0
    while 2 * k + 1 < size:
        down = 2 * k + 1
        if down + 1 < size and key[heap[down + 1]] < key[heap[down]]:
            down += 1
        if key[heap[down]] >= key[kind]:
            break
        heap[k] = heap[down]
        k = down
    heap[k] = kind
