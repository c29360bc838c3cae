"""The agenda beside a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.simulator.agenda import Agenda
from cpdispatch.simulator.kernels import NEVER
from cpdispatch.simulator.state import State
from cpdispatch.system import System
from tests.simulator.cases import workload

STEPS = st.lists(
    st.tuples(st.just("add"), st.integers(0, 5), st.integers(0, 4), st.integers(0, 2))
    | st.tuples(st.just("take"))
    | st.tuples(st.just("forget"), st.integers(0, 4)),
    max_size=200,
)


@given(STEPS)
def test_entries_come_by_time_and_then_as_they_were_made(steps: list[tuple]) -> None:
    agenda = Agenda(State(workload([(0, 1, 5, 5)]), System.pool(4), "minimal"))
    plain: list[tuple[int, int, int, int]] = []
    for made, (step, *of) in enumerate(steps):
        if step == "add":
            at_s, row, kind = of
            agenda.add(at_s, row, kind)
            plain.append((at_s, made, row, kind))
        elif step == "forget":
            agenda.forget(*of)
            plain = [entry for entry in plain if entry[2] != of[0]]
        elif plain:
            plain.remove(first := min(plain))
            assert agenda.take() == first[2:]
        assert bool(agenda) == bool(plain)
        assert agenda.next_s == min(plain, default=(NEVER,))[0]
