"""The compiled simulator and backfilling against the plain twin, job by job."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.heuristics.backfill import ALL, Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, find
from cpdispatch.jobs import Workload
from cpdispatch.simulator.run import run_of
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads import from_table, prepare
from tests.effort import examples
from tests.oracles import plain
from tests.strategies import systems, taken_once, workloads

ABOUT = {"notes": {}, "seconds": 0.0}


def fast(workload: Workload, system: System, dispatcher: Backfill, trigger: str) -> Simulation:
    sim = Simulation(workload, system, trigger=trigger)
    while (instance := sim.advance()) is not None:
        sim.apply(dispatcher.dispatch(instance))
    assert verify.run(run_of(sim, ABOUT).jobs, system) == []
    return sim


def same_schedule(
    workload: Workload, system: System, rules: plain.Rules, trigger: str = "instant"
) -> None:
    dispatcher = Backfill(
        find(rules.primary),
        find(rules.secondary),
        NO_THRESHOLD if math.isinf(rules.threshold) else int(rules.threshold),
        ALL if math.isinf(rules.depth) else int(rules.depth),
        rules.best_fit,
    )
    sim = fast(workload, system, dispatcher, trigger)
    expected = plain.replay(workload, system, rules, workload.table.requested_s.tolist(), trigger)
    offset, node, units = sim.records.placements()
    for row, (start, nodes) in expected.items():
        entries = slice(offset[row], offset[row + 1])
        placed = dict(zip(node[entries].tolist(), units[entries].tolist(), strict=True))
        assert (int(sim.records.start_s[row]), placed) == (start, nodes if start >= 0 else {}), row
        if start >= 0 and system.once:
            assert next(iter(placed)) == next(iter(nodes)), row


def few_shapes(seed: int) -> tuple[Workload, System]:
    """Many jobs of a few shapes; half of them end early, so that promised starts move."""
    choose = random.Random(seed)
    groups = NodeGroup("a", choose.randint(1, 3), (4, 2)), NodeGroup("b", 1, (6, 0))
    shapes = [
        (
            choose.randint(1, 3),
            choose.randint(1, 4),
            choose.choice([0, 0, 1]),
            choose.randint(1, 12),
        )
        for _ in range(choose.randint(2, 5))
    ]
    rows, submit = [], 0
    for _ in range(30):
        shape, submit = choose.choice(shapes), submit + choose.randint(0, 1)
        rows.append((submit, *shape, choose.choice([1, shape[-1]])))
    names = "submit", "units", "core", "gpu", "requested", "runtime"
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    ids = list(range(1, len(rows) + 1))
    return prepare(from_table({"id": ids, **columns}), System("few", ("core", "gpu"), groups))


policies = st.sampled_from([*sorted(plain.KEYS), "priority"])


@st.composite
def cases(draw: st.DrawFn, upper_bounds: bool = False) -> tuple[Workload, System]:
    system = draw(systems(max_nodes=5))
    return draw(workloads(system, upper_bounds=upper_bounds, tiers=True)), system


@settings(max_examples=examples(400))
@given(cases() | taken_once(tiers=True), policies, policies, st.sampled_from([0, 1]), st.booleans(),
       st.sampled_from([math.inf, 5.0, 20.0]))  # fmt: skip
def test_easy_and_strict_order_give_the_plain_twins_schedule(
    case: tuple[Workload, System], primary: str, secondary: str, depth: int, best: bool, late: float
) -> None:
    same_schedule(*case, plain.Rules(primary, secondary, late, depth, best))


@settings(max_examples=examples(300))
@given(
    cases(upper_bounds=True) | taken_once(tiers=True, upper_bounds=True), policies, policies,
    st.booleans(),
)  # fmt: skip
def test_the_event_trigger_gives_the_plain_twins_schedule(
    case: tuple[Workload, System], primary: str, secondary: str, best: bool
) -> None:
    same_schedule(*case, plain.Rules(primary, secondary, best_fit=best), "event")


@settings(max_examples=examples(300))
@given(
    cases() | taken_once(tiers=True), policies, policies, st.sampled_from([2, 3, math.inf]),
    st.booleans(),
)  # fmt: skip
def test_deep_reservations_give_the_plain_twins_schedule(
    case: tuple[Workload, System], primary: str, secondary: str, depth: float, best: bool
) -> None:
    same_schedule(*case, plain.Rules(primary, secondary, depth=depth, best_fit=best))


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32))
def test_promises_of_jobs_that_are_alike_are_the_plain_twins(seed: int) -> None:
    same_schedule(*few_shapes(seed), plain.Rules(depth=math.inf))
