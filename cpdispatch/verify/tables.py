"""What became of the jobs of a simulation, as flat arrays, and what is found wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import InputError
from cpdispatch.verify.service import Outages
from cpdispatch.verify.violation import Kind, Violation

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What became of every job of a simulation, as flat arrays.

    Attributes
    ----------
    id, submit_s, start_s, end_s, units, requested_s, runtime_s : int64 array, shape (jobs,)
        ``start_s`` and ``end_s`` are -1 for a job that was never started.
    killed : bool array, shape (jobs,)
        Whether the job was cut at its requested time.
    reason : sequence of str
        Why each job started, or why it did not.
    of_start : bool array, shape (jobs,)
        Whether that is a reason of jobs that start.
    never_fits : bool array, shape (jobs,)
        Whether the job was left out because it asks for more than the whole system has.
    rejected : bool array, shape (jobs,)
        Whether the dispatcher refused the job.
    request : int64 array, shape (jobs, resources)
        Per-unit requests.
    offset : int64 array, shape (jobs + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, node_units : int64 array, shape (entries,)
        A node and the number of the job's units there.
    preceding, think_s : int64 array, shape (jobs,), or None
        The predecessor of each job, and the seconds between the end of the predecessor and the
        start of the job; -1 for no predecessor. None if the run did not honour dependencies.
    lost : Attempts, or None
        The attempts that were killed for a restart; None when jobs could not be restarted.
    outages : Outages, or None
        What happened to the system; None when nothing could.
    beyond : bool array, shape (jobs,), or None
        Whether the job by itself asks for more than a limit of the system allows, or draws more
        than the least power cap; None without either.
    kills : bool or None
        Whether every job is killed at its requested time; None where that is not known.
    once : int64 array, shape (jobs, resources), or None
        What each job takes once, on its first node; None where none takes anything so.
    head : int64 array, shape (entries,), or None
        1 for the first entry of each job, else 0.
    """

    id: IntArray
    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    units: IntArray
    requested_s: IntArray
    runtime_s: IntArray
    killed: BoolArray
    reason: Sequence[str]
    of_start: BoolArray
    never_fits: BoolArray
    rejected: BoolArray
    request: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray
    preceding: IntArray | None = None
    think_s: IntArray | None = None
    lost: Attempts | None = None
    outages: Outages | None = None
    beyond: BoolArray | None = None
    kills: bool | None = None
    once: IntArray | None = None
    head: IntArray | None = None

    def held(self, owner: IntArray, r: int) -> IntArray:
        """What each entry holds of a resource, shape (entries,); ``owner`` are their jobs."""
        found = self.request[:, r][owner] * self.node_units
        if self.once is not None and self.head is not None:
            found += self.once[:, r][owner] * self.head
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """The attempts at the jobs of a schedule that were killed for a restart, one a job at most.

    Attributes
    ----------
    start_s, end_s : int64 array, shape (jobs,)
        -1 for none.
    offset, node, node_units : int64 array
        As in `Schedule`.
    restartable : bool array, shape (jobs,)
        Which jobs could be restarted.
    cost_s : int
        How long the nodes of a killed job stay busy, up to ``end_s``, and so much longer the
        job runs when it starts again.
    """

    start_s: IntArray
    end_s: IntArray
    offset: IntArray
    node: IntArray
    node_units: IntArray
    restartable: BoolArray
    cost_s: int = 0


def numbers(column: pd.Series[Any]) -> IntArray:
    """A column of whole numbers; what is missing is -1.

    Raises
    ------
    InputError
        When it holds something else.
    """
    try:
        return np.asarray(column.fillna(-1).to_numpy(dtype=np.int64), dtype=np.int64)
    except (TypeError, ValueError) as error:
        raise InputError(f"not whole numbers: {error}", field=str(column.name)) from error


class Findings:
    """Violations as they are found: the first few of each kind, and how many there were."""

    EACH = 8  # with the 12 kinds that a schedule can break: at most 100 lines

    def __init__(self) -> None:
        self.listed: list[Violation] = []
        self.count: Counter[Kind] = Counter()

    def add(self, kind: Kind, rows: IntArray, text: Callable[[int], str]) -> None:
        """Note what is wrong at these rows; ``text`` says it of one."""
        room = max(0, self.EACH - self.count[kind])
        self.listed += [Violation(kind, text(row)) for row in rows[:room].tolist()]
        self.count[kind] += len(rows)

    def note(self, kind: Kind, text: str) -> None:
        """Note one that is said already."""
        self.add(kind, np.zeros(1, dtype=np.int64), lambda _: text)

    def all(self) -> list[Violation]:
        """What was found, and at last how much more there is of each kind."""
        left = {kind: count - self.EACH for kind, count in self.count.items()}
        more = ", ".join(f"{n:,} more of {kind}" for kind, n in left.items() if n > 0)
        return self.listed + ([Violation(Kind.MORE, more)] if more else [])
