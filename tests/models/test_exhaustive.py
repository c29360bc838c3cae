"""The twin of the models on the nodes has a twin too: every start at every second."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.instance import Instance
from tests.effort import examples
from tests.models.exhaustive import best_plan, placements, possible, second_by_second
from tests.strategies import instances


@settings(max_examples=examples(25))
@given(
    instances(max_nodes=2, max_jobs=2, max_running=2),
    st.sampled_from(["slowdown", "bounded_slowdown"]),
)
def test_the_exhaustive_twin_finds_the_best_of_all_starts_and_placements(
    instance: Instance, objective: str
) -> None:
    chosen = possible(instance)
    if chosen:
        found = best_plan(instance, chosen, objective)
        assert found is not None
        assert found[0] == second_by_second(instance, chosen, objective)


def test_units_are_spread_in_every_way() -> None:
    assert list(placements([2, 1, 2], 2)) == [{0: 2}, {0: 1, 1: 1}, {0: 1, 2: 1}, {1: 1, 2: 1},
                                              {2: 2}]  # fmt: skip
    assert list(placements([1, 0], 2)) == []
