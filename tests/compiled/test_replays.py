"""Compiled replays against the general loop: the same jobs at the same times on the same nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpdispatch
from cpdispatch import verify
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.compiled import shadow
from cpdispatch.errors import UsageError
from cpdispatch.heuristics import policies
from cpdispatch.heuristics.backfill import ALL, Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, SUMMARIES, find
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.jobs import Job, Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NodeGroup, System
from tests.effort import examples
from tests.strategies import systems, workloads

orders = st.one_of(
    st.sampled_from(sorted(SUMMARIES)).map(find),
    st.sampled_from(["small+spf", "small+lpf", "small+lexp", "small+wfp3"]).map(find),
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
    return draw(workloads(system, tiers=True)), system


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


@settings(max_examples=examples(300))
@given(cases(pool=True), backfillings((0, 1)), rules)
def test_on_a_pool(case: tuple[Workload, System], dispatcher: Backfill, rules: Any) -> None:
    compiled, general = both(*case, dispatcher, rules)
    assert same(compiled, general)


@settings(max_examples=examples(300))
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


@settings(max_examples=examples(300))
@given(st.booleans().flatmap(cases), backfillings((2, 3, ALL)), rules)
def test_with_promises(case: tuple[Workload, System], dispatcher: Backfill, rules: Any) -> None:
    compiled, general = both(*case, dispatcher, rules)
    assert same(compiled, general)


@settings(max_examples=examples(200))
@given(st.booleans().flatmap(cases), rules)
def test_of_a_dispatcher_that_refuses_everything(case: tuple[Workload, System], rules: Any) -> None:
    compiled, general = both(*case, Reject(), rules)
    assert same(compiled, general)


class Noisy:
    """Predicts what it likes, and differently once it has heard of something; keeps every call."""

    name = "noisy"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def _answer(self, *call: Any) -> float:
        self.calls.append(call)
        return (len(self.calls) * 7 + call[-1] * 5) % 17

    def predict(self, job: Job, now: int) -> float:
        return self._answer("predict", job, now)

    def upper(self, job: Job, now: int) -> float:
        return self._answer("upper", job, now)

    def start(self, job: Job, now: int) -> None:
        self._answer("start", job, now)

    def learn(self, job: Job, runtime_s: int) -> None:
        self._answer("learn", job, runtime_s)


def both_asking(
    case: tuple[Workload, System], make: Callable[[], Any], rules: dict[str, Any]
) -> tuple[Run, Run]:
    """The two replays with a predictor in Python, which must hear and say the same."""
    predictors = Noisy(), Noisy()
    compiled, general = (
        simulate(*case, make(), predictor=predictor, compiled=how, **rules)
        for predictor, how in zip(predictors, (True, False), strict=True)
    )
    assert compiled.about["compiled"]
    assert not general.about["compiled"]
    assert predictors[0].calls == predictors[1].calls
    return compiled, general


timing = st.fixed_dictionaries(
    {
        "trigger": st.sampled_from(["instant", "event"]),
        "correction": st.sampled_from(["minimal", "incremental", "requested"]),
        "kill_at_limit": st.booleans(),
    }
)


@settings(max_examples=examples(300))
@given(st.booleans().flatmap(cases), backfillings((0, 1, 2, ALL)), timing)
def test_with_a_predictor_in_python(
    case: tuple[Workload, System], dispatcher: Backfill, rules: Any
) -> None:
    assert same(*both_asking(case, lambda: replace(dispatcher), rules))


limited = st.sampled_from(["upper", "requested"])


@settings(max_examples=examples(300))
@given(st.booleans().flatmap(cases), backfillings((0, 1, 1, 2, ALL)), limited, timing)
def test_of_jobs_that_are_taken_to_last_otherwise_than_expected(
    case: tuple[Workload, System], dispatcher: Backfill, limits: str, rules: Any
) -> None:
    rules = {**rules, "trigger": "instant"}
    careful = replace(dispatcher, limits=limits)
    assert same(*both_asking(case, lambda: replace(careful), rules))
    assert same(*both(*case, careful, {**rules, "predictor": "last2"}))


bests = st.builds(
    lambda share, wide, **others: lambda: Bounded(Best(**others), WaitBound(share, wide)),
    st.sampled_from([1, 300, 600, 1000]), st.sampled_from([0, 700, 1000]),
    long_s=st.integers(0, 12), keep=st.sampled_from([0.0, 0.2, 0.5]),
    width=st.sampled_from([0.0, 0.25]), best_fit=st.booleans(),
)  # fmt: skip


@settings(max_examples=examples(300))
@given(st.booleans().flatmap(cases), bests, timing)
def test_of_best(case: tuple[Workload, System], best: Callable[[], Bounded], rules: Any) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shadow, "FIRST_ROOM", 2)  # forgets and grows
        compiled, general = both_asking(case, best, {**rules, "trigger": "instant"})
    assert same(compiled, general)
    if len(compiled.decision_table):
        assert compiled.decision_table["easy_wait"].equals(general.decision_table["easy_wait"])
    assert verify.run(compiled.jobs, case[1]) == []


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("rules", "problem"),
    [({"trigger": "evnt"}, "unknown trigger 'evnt'"),
     ({"correction": "minmal"}, "unknown correction 'minmal'")],
)  # fmt: skip
def test_an_unknown_rule_is_one_clear_error(
    compiled: bool, rules: dict[str, Any], problem: str
) -> None:
    from tests.simulator.cases import workload

    with pytest.raises(UsageError, match=problem):
        simulate(workload([(0, 1, 5, 5)]), System.pool(2), compiled=compiled, **rules)


def test_best_by_event_takes_the_general_loop() -> None:
    from tests.simulator.cases import workload

    jobs = workload([(0, 1, 5, 5)])
    runs = [simulate(jobs, System.pool(2), "best", predictor="last2", trigger=trigger)
            for trigger in ("instant", "event")]  # fmt: skip
    assert [run.about["compiled"] for run in runs] == [True, False]


def mine(p: float, q: float, submit: float, now: float) -> float:
    return p * q - (now - submit)


def refuses(p: float, q: float, submit: float, now: float) -> float:
    if q > 1:
        raise ZeroDivisionError
    return float("nan")


@settings(max_examples=examples(40))
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


def test_of_two_functions_of_the_users_own_both_are_named() -> None:
    from tests.simulator.cases import workload

    jobs = workload([(0, 2, 5, 5), (1, 2, 5, 5), (1, 2, 5, 5)])
    rule = Backfill(policies.own(MINE, "mine"), policies.own(REFUSES, "refuses"))
    with pytest.raises(UsageError, match=r"policy mine or refuses raised ZeroDiv.* for job \d"):
        simulate(jobs, System.pool(2), rule)


numba = pytest.importorskip("numba")
MINE, REFUSES = numba.njit(mine), numba.njit(refuses)


@pytest.mark.log
@pytest.mark.parametrize(
    ("log", "system", "filter", "jobs", "dispatcher"),
    [
        ("KTH-SP2-1996-2", "100", "strong", 10_000, "easy-wfp3-spf:threshold=200000"),
        ("CTC-SP2-1996-3.1-cln", "338", "strong", 10_000, "easy"),
        ("HPC2N-2002-2.2-cln", "seth", "all", 10_000, "easy"),
        ("HPC2N-2002-2.2-cln", "seth", "all", 10_000, "easy-saf-sqf:allocate=best-fit"),
        ("RICC-2010-2", "gaia", "all", 3_000, "easy-f2-f2"),
        ("KTH-SP2-1996-2", "100", "strong", 2_000, "conservative"),
    ],
)
def test_on_real_logs(
    log: str, system: str, filter: str, jobs: int, dispatcher: str, trace: Any
) -> None:
    from cpdispatch.system import find as find_system
    from cpdispatch.workloads import read
    from cpdispatch.workloads.fit import fit
    from cpdispatch.workloads.select import select

    machine = find_system(system)
    workload = select(read(trace(log), filter, int(machine.total[0])), jobs)
    workload = fit(workload, machine)
    compiled = simulate(workload, machine, dispatcher, predictor="last2", trigger="event")
    general = simulate(
        workload, machine, dispatcher, predictor="last2", trigger="event", compiled=False
    )
    assert same(compiled, general)
