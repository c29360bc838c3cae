"""Compiled replays against the general loop: the same jobs at the same times on the same nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpdispatch
from cpdispatch import verify
from cpdispatch.errors import UsageError
from cpdispatch.heuristics import policies
from cpdispatch.heuristics.backfill import ALL, Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, SUMMARIES, find
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NodeGroup, System
from tests.strategies import systems, workloads

orders = st.one_of(
    st.sampled_from(sorted(SUMMARIES)).map(find),
    st.sampled_from([{"wait": -1.0, "area": 0.5}, {"expansion": -1.0, "processors": 0.1}]).map(
        policies.mix
    ),
)
rules = st.fixed_dictionaries(
    {
        "trigger": st.sampled_from(["instant", "event"]),
        "correction": st.sampled_from(["minimal", "incremental", "requested"]),
        "kill_at_limit": st.booleans(),
        "predictor": st.sampled_from(["walltime", "actual", "last2", "profile", "confident"]),
    }
)


@st.composite
def backfillings(draw: st.DrawFn, depths: tuple[int, ...]) -> Backfill:
    primary = draw(orders)
    return Backfill(
        primary,
        draw(st.just(primary) | orders),
        draw(st.sampled_from([NO_THRESHOLD, 5, 20])),
        draw(st.sampled_from(depths)),
        draw(st.booleans()),
    )


@st.composite
def cases(draw: st.DrawFn, pool: bool) -> tuple[Workload, System]:
    system = System.pool(draw(st.integers(1, 9))) if pool else draw(systems(max_nodes=5))
    return draw(workloads(system)), system


def both(
    workload: Workload, system: System, dispatcher: Backfill | Reject, rules: dict[str, Any]
) -> tuple[Run, Run]:
    compiled = simulate(workload, system, replace(dispatcher), **rules)
    general = simulate(workload, system, replace(dispatcher), compiled=False, **rules)
    assert compiled.about["compiled"]
    assert not general.about["compiled"]
    return compiled, general


def same(compiled: Run, general: Run) -> bool:
    told = ["time", "queue", "running", "started", "model", "status"]
    decisions = compiled.decision_table.select(told).equals(general.decision_table.select(told))
    return compiled.job_table.equals(general.job_table) and decisions


@settings(max_examples=500)
@given(cases(pool=True), backfillings((0, 1)), rules)
def test_on_a_pool(case: tuple[Workload, System], dispatcher: Backfill, rules: Any) -> None:
    compiled, general = both(*case, dispatcher, rules)
    assert same(compiled, general)


@settings(max_examples=1000)
@given(cases(pool=False), backfillings((0, 1)), rules)
def test_on_nodes(case: tuple[Workload, System], dispatcher: Backfill, rules: Any) -> None:
    compiled, general = both(*case, dispatcher, rules)
    assert same(compiled, general)
    assert verify.run(compiled.jobs, case[1]) == []


def test_durations_too_long_for_what_the_queue_holds_of_a_job_are_compared_all_the_same() -> None:
    from tests.simulator.cases import workload

    system = System("two", ("core",), (NodeGroup("n", 2, (2,)),), 2)
    jobs = workload([(0, 2, 1 << 50, 9), (1, 4, 5, 5), (2, 1, 1 << 51, 9), (2, 1, 1 << 41, 9)])
    compiled, general = both(jobs, system, Backfill(), {})
    assert same(compiled, general)
    assert compiled.job_table["start"].to_pylist() == [0, 11, 16, 2]


@settings(max_examples=300)
@given(st.booleans().flatmap(cases), backfillings((2, 3, ALL)), rules)
def test_with_promises(case: tuple[Workload, System], dispatcher: Backfill, rules: Any) -> None:
    compiled, general = both(*case, dispatcher, rules)
    assert same(compiled, general)


@settings(max_examples=200)
@given(st.booleans().flatmap(cases), rules)
def test_of_a_dispatcher_that_refuses_everything(case: tuple[Workload, System], rules: Any) -> None:
    compiled, general = both(*case, Reject(), rules)
    assert same(compiled, general)


def mine(p: float, q: float, submit: float, now: float) -> float:
    return p * q - (now - submit)


def refuses(p: float, q: float, submit: float, now: float) -> float:
    if q > 1:
        raise ZeroDivisionError
    return float("nan")


@settings(max_examples=40)
@given(cases(pool=True))
def test_a_compiled_function_of_the_users_own(case: tuple[Workload, System]) -> None:
    order = policies.own(MINE, "mine")
    compiled, general = both(*case, Backfill(order, order, 20), {})
    assert same(compiled, general)


def test_no_cache_knows_a_users_function() -> None:
    from tests.simulator.cases import workload

    simulate(workload([(0, 1, 5, 5)]), System.pool(2), Backfill(policies.own(MINE, "mine")))
    caches = list(Path(cpdispatch.__file__).parent.rglob("*.nbi"))
    assert not any(__name__.encode() in cache.read_bytes() for cache in caches)


def test_a_function_that_numba_has_not_compiled_takes_the_general_loop() -> None:
    from tests.simulator.cases import workload

    dispatcher = Backfill(policies.own(mine, "mine"))
    run = simulate(workload([(0, 1, 5, 5)]), System.pool(2), dispatcher)
    assert not run.about["compiled"]


@pytest.mark.parametrize(
    ("processors", "what"), [(1, "returned nan"), (2, "raised ZeroDivisionError")]
)
def test_a_compiled_function_that_gives_no_number_names_the_job(processors: int, what: str) -> None:
    from tests.simulator.cases import workload

    jobs = workload([(0, processors, 5, 5), (1, 1, 5, 5)])
    order = policies.own(REFUSES, "refuses")
    with pytest.raises(UsageError, match=rf"policy refuses {what}.* for job \d"):
        simulate(jobs, System.pool(2), Backfill(order, order))


numba = pytest.importorskip("numba")
MINE, REFUSES = numba.njit(mine), numba.njit(refuses)


@pytest.mark.log
@pytest.mark.parametrize(
    ("log", "system", "filter", "jobs", "dispatcher"),
    [
        ("KTH-SP2-1996-2", "100", "strong", None, "easy-wfp3-spf:threshold=200000"),
        ("CTC-SP2-1996-3.1-cln", "338", "strong", None, "easy"),
        ("HPC2N-2002-2.2-cln", "seth", "all", 30_000, "easy"),
        ("HPC2N-2002-2.2-cln", "seth", "all", 30_000, "easy-saf-sqf:allocate=best-fit"),
        ("RICC-2010-2", "gaia", "all", 6_000, "easy-f2-f2"),
        ("KTH-SP2-1996-2", "100", "strong", 5_000, "conservative"),
    ],
)
def test_on_real_logs(
    log: str, system: str, filter: str, jobs: int | None, dispatcher: str, trace: Any
) -> None:
    from cpdispatch.workloads import prepare

    workload, machine = prepare(trace(log), system, filter=filter, jobs=jobs)
    compiled = simulate(workload, machine, dispatcher, predictor="last2", trigger="event")
    general = simulate(
        workload, machine, dispatcher, predictor="last2", trigger="event", compiled=False
    )
    assert same(compiled, general)
