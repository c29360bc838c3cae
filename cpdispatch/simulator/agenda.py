"""Future events whose times are known: ends of jobs, begin times, dispatches."""

from __future__ import annotations

from cpdispatch.simulator.kernels import (
    AT_S,
    END,
    KIND,
    MADE,
    NEVER,
    OF_ROW,
    WAKE,
    forget,
    pop,
    push,
)
from cpdispatch.simulator.state import State


class Agenda:
    """Entries by time; entries of the same time in the order in which they were made.

    They are in the memory of the state, where kernels find them, too.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def __bool__(self) -> bool:
        return self._state.events > 0

    @property
    def next_s(self) -> int:
        """The time of the next entry; `NEVER` when there is none."""
        state = self._state
        return state.agenda.item(0) if state.events else NEVER

    def add(self, at_s: int, row: int, kind: int = END) -> None:
        """Make an entry about the job of a row."""
        self._state.make_room(events=1)
        push(self._state.memory, at_s, row, kind)

    def wake(self, at_s: int) -> None:
        """Make an entry that is about no job."""
        self.add(at_s, -1, WAKE)

    def take(self) -> tuple[int, int]:
        """Take out the next entry: its row and kind."""
        row, kind = pop(self._state.memory)
        return row, kind

    def ends(self, at_s: int) -> list[int]:
        """The rows of the jobs that end or are stopped at this time, in the order of entries."""
        entries = self._state.agenda[: self._state.events]
        some = entries[(entries[:, AT_S] == at_s) & (entries[:, KIND] == END)]
        rows: list[int] = some[some[:, MADE].argsort(), OF_ROW].tolist()
        return rows

    def forget(self, row: int) -> None:
        """Take out all entries about a job."""
        forget(self._state.memory, row)
