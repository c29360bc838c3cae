from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cpdispatch.decision import Decision
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance import Instance
from tests.simulator.cases import play

ROWS = [(k, 1 + k % 4, 10, 7) for k in range(20)]


class Odd(Backfill):
    """States a value at every third instant, a bound at every sixth, a phase at every second."""

    def dispatch(self, instance: Instance) -> Decision:
        decision = Backfill.dispatch(self, instance)
        at, phases = instance.now, {"even": 1.0} if instance.now % 2 == 0 else {}
        certificate = replace(
            decision.certificate,
            value=float(at + 5) if at % 3 == 0 else None,
            bound=float(at) if at % 6 == 0 else None,
            phases_ms=phases,
        )
        return replace(decision, certificate=certificate)


@pytest.mark.parametrize("at_once", [1, 2, 7, 1000])
def test_dispatches_are_recorded_one_a_row_however_many_are_taken_in_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpdispatch.simulator.records._DISPATCHES", at_once)
    sim, seen = play(ROWS, dispatcher=Odd())
    numbers, texts, _ = sim.records.decisions()
    now = [instance.now for instance in seen]
    assert len(sim.records) == len(now) > 20
    assert numbers["time"].tolist() == now
    assert numbers["queue"].tolist() == [len(instance.queue) for instance in seen]
    assert numbers["running"].tolist() == [len(instance.running) for instance in seen]
    assert texts["model"][0].tolist() == [texts["model"][1].index("easy")] * len(now)
    expected: dict[str, list[Any]] = {
        "objective": [t + 5 if t % 3 == 0 else None for t in now],
        "bound": [t if t % 6 == 0 else None for t in now],
        "gap": [5 / (t + 5) if t % 6 == 0 else None for t in now],
        "even_ms": [1 if t % 2 == 0 else None for t in now],
    }
    for name, values in expected.items():
        wanted = np.array([np.nan if value is None else value for value in values])
        assert np.array_equal(numbers[name], wanted, equal_nan=True), name
