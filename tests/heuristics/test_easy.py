"""The EASY pass where its first lists of placements are too short."""

from __future__ import annotations

import pytest

from cpdispatch import verify
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.instance.file import FORMAT
from tests.strategies import read

KINDS, NODES = 7, 9


@pytest.mark.parametrize("best_fit", [False, True])
def test_jobs_that_start_on_all_nodes_at_once_have_room_in_the_lists(best_fit: bool) -> None:
    asked = [[int(r == k) for r in range(KINDS)] for k in range(KINDS)]
    instance = read(
        {
            "format": FORMAT, "time": 100, "resources": [f"r{k}" for k in range(KINDS)],
            "groups": [{"name": "a", "nodes": NODES, "capacity": [1] * KINDS}], "running": [],
            "queue": [
                {"id": k, "submit": 90, "duration": 10, "units": NODES, "unit": unit}
                for k, unit in enumerate(asked)
            ],
        }
    )  # fmt: skip
    decision = Backfill(best_fit=best_fit).dispatch(instance)
    assert verify.decision(instance, decision) == []
    everywhere = dict.fromkeys(range(NODES), 1)
    assert decision.placements.as_dict() == dict.fromkeys(range(KINDS), everywhere)
