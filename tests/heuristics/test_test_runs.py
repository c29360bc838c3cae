"""Test runs: the rules against a plain twin, and what they may never do."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import cli, dispatch, solution, verify
from cpdispatch.analyze import compare
from cpdispatch.best import Best
from cpdispatch.bounded import Bounded
from cpdispatch.errors import UsageError
from cpdispatch.experiment import RunSummary, tables
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, find
from cpdispatch.heuristics.test_runs import WAYS, candidates, clearing, probability
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.instance import FORMAT, Instance, Starvation, Stopped
from cpdispatch.jobs import Column, Job, JobTable, Workload
from cpdispatch.simulator import Run, Watch, records, simulate
from cpdispatch.simulator.compiled import CompiledSimulation
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.restarts import mark
from tests.best.test_best import Guess
from tests.effort import examples
from tests.oracles import plain_tests
from tests.simulator.cases import Row, workload
from tests.strategies import read, systems, workloads

POOL = System.pool(4)


@st.composite
def cases(
    draw: st.DrawFn, pool: bool, upper_bounds: bool = False, tiers: bool = True
) -> tuple[Workload, System]:
    """Crowded systems; the jobs of about some users may be restarted."""
    system = System.pool(draw(st.integers(2, 9))) if pool else draw(systems(max_nodes=5))
    log = draw(workloads(system, max_jobs=25, upper_bounds=upper_bounds, tiers=tiers))
    return mark(log, draw(st.sampled_from([0.5, 1.0, 1.0])), draw(st.integers(0, 9))), system


dispatchers = st.builds(
    lambda test_s, tests, order, threshold_s, best_fit: Backfill(
        find(order[0]), find(order[1]), threshold_s, best_fit=best_fit, test_s=test_s, tests=tests
    ),
    st.integers(1, 6), st.sampled_from(sorted(WAYS)),
    st.sampled_from([("fcfs", "fcfs"), ("fcfs", "spf"), ("saf", "saf"), ("spf", "lqf")]),
    st.sampled_from([NO_THRESHOLD, 5, 20]), st.booleans(),
)  # fmt: skip


def as_twin(dispatcher: Backfill, cost: int = 0) -> plain_tests.Rules:
    return plain_tests.Rules(
        dispatcher.test_s, dispatcher.tests, dispatcher.primary.name, dispatcher.secondary.name,
        dispatcher.threshold_s, dispatcher.best_fit, cost,
    )  # fmt: skip


def outcome(run: Run) -> dict[int, Any]:
    """What became of the jobs that run, as the twin says it."""
    table = run.jobs
    found = {}
    for row in np.flatnonzero(table["start"] >= 0).tolist():
        nodes, units = list(table["nodes"][row]), list(table["node_units"][row])
        lost = None
        if run.restarts and table["lost_start"][row] >= 0:
            lost = int(table["lost_start"][row]), int(table["lost_end"][row])
        fate = table["test"][row] if "test" in table else "none"
        start = int(table["start"][row])
        found[row] = (start, dict(zip(nodes, units, strict=True)), lost, fate)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(
    st.booleans().flatmap(cases), dispatchers, st.sampled_from([0, 0, 3]),
    st.sampled_from(["walltime", "last2"]),
)  # fmt: skip
def test_the_schedule_is_the_plain_twins(
    case: tuple[Workload, System], dispatcher: Backfill, cost_s: int, predictor: str
) -> None:
    run = simulate(*case, dispatcher, restart_cost_s=cost_s, compiled=False, predictor=predictor)
    assert run.verify() == []
    expected = run.jobs["expected_s"].tolist()
    twin = plain_tests.replay(*case, as_twin(dispatcher, cost_s), expected)
    assert outcome(run) == {row: of for row, of in twin.items() if of[0] >= 0}


@settings(max_examples=examples(80), deadline=None)
@given(
    st.booleans().flatmap(cases), dispatchers,
    st.sampled_from(["walltime", "last2", "profile", "confident"]),
    st.sampled_from(["minimal", "incremental", "requested"]), st.booleans(),
    st.sampled_from([0, 0, 3, 9]),
)  # fmt: skip
def test_compiled_replays_make_the_same_tests(
    case: tuple[Workload, System], dispatcher: Backfill, predictor: str, correction: str,
    kill_at_limit: bool, cost_s: int,
) -> None:  # fmt: skip
    how: dict[str, Any] = {
        "predictor": predictor, "correction": correction, "kill_at_limit": kill_at_limit,
        "restart_cost_s": cost_s,
    }  # fmt: skip
    compiled = simulate(*case, replace(dispatcher), **how)
    general = simulate(*case, replace(dispatcher), compiled=False, **how)
    assert compiled.about["compiled"]
    assert compiled.verify() == []
    assert compiled.job_table.equals(general.job_table)
    told = ["time", "queue", "running", "started", "model", "status"]
    assert compiled.decision_table.select(told).equals(general.decision_table.select(told))


careful = st.builds(
    lambda test_s, tests, limits, order, threshold_s: Backfill(
        find(order[0]), find(order[1]), threshold_s, limits=limits, test_s=test_s, tests=tests
    ),
    st.integers(1, 6), st.sampled_from(sorted(WAYS)), st.sampled_from(["upper", "requested"]),
    st.sampled_from([("fcfs", "fcfs"), ("spf", "spf"), ("saf", "saf"), ("lqf", "wfp3")]),
    st.sampled_from([NO_THRESHOLD, 5, 20]),
)  # fmt: skip
bests = st.builds(
    lambda keep, test_s, tests: Bounded(Best(10, keep, test_s=test_s, tests=tests)),
    st.sampled_from([0.0, 0.2]), st.integers(1, 6), st.sampled_from(sorted(WAYS)),
)  # fmt: skip
rules = st.one_of(
    careful,
    st.builds(
        lambda inner, limits: Bounded(replace(inner, bounded=True, limits=limits)),
        careful, st.sampled_from(["expected", "upper", "requested"]),
    ),
    bests,
)  # fmt: skip
careful_cases = st.one_of(
    st.tuples(cases(pool=True), rules),
    st.tuples(cases(pool=False), bests),
)


def fresh(rule: Backfill | Bounded, bound: WaitBound) -> Backfill | Bounded:
    """The same dispatcher before its first instance."""
    if isinstance(rule, Bounded):
        return Bounded(replace(rule.inner), bound)  # type: ignore[type-var]
    return replace(rule)


@settings(max_examples=examples(80), deadline=None)
@given(
    careful_cases, st.sampled_from(["walltime", "last2", "profile"]),
    st.sampled_from(["minimal", "incremental", "requested"]), st.booleans(),
    st.sampled_from([WaitBound(), WaitBound(in_turn_after=300), WaitBound(1000, 900)]),
    st.sampled_from([0, 0, 3, 9]),
)  # fmt: skip
def test_compiled_replays_make_the_same_tests_with_care(
    both: tuple[tuple[Workload, System], Backfill | Bounded], predictor: str, correction: str,
    kill_at_limit: bool, bound: WaitBound, cost_s: int,
) -> None:  # fmt: skip
    case, rule = both
    how: dict[str, Any] = {
        "predictor": predictor, "correction": correction, "kill_at_limit": kill_at_limit,
        "restart_cost_s": cost_s,
    }  # fmt: skip

    compiled = simulate(*case, fresh(rule, bound), **how)
    general = simulate(*case, fresh(rule, bound), compiled=False, **how)
    assert compiled.about["compiled"]
    assert compiled.verify() == []
    assert compiled.job_table.equals(general.job_table)
    told = ["time", "queue", "running", "started", "status"]
    assert compiled.decision_table.select(told).equals(general.decision_table.select(told))


class Teller:
    """A predictor whose answers depend on all that it has been told."""

    name = "teller"

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def _note(self, what: str, job: Job, value: int) -> int:
        self.calls.append((what, job.id, value))
        return 1 + sum((k + 3) * (id + value) for k, (_, id, value) in enumerate(self.calls)) % 13

    def predict(self, job: Job, now: int) -> int:
        return self._note("predict", job, now)

    def learn(self, job: Job, runtime_s: int) -> None:
        self._note("learn", job, runtime_s)


class CarefulTeller(Teller):
    def upper(self, job: Job, now: int) -> int:
        return self._note("upper", job, now)

    def start(self, job: Job, now: int) -> None:
        self._note("start", job, now)

    def restart(self, job: Job, now: int) -> None:
        self._note("restart", job, now)


class RefreshingTeller(CarefulTeller):
    def refresh(self, job: Job, elapsed_s: int) -> int:
        return self._note("refresh", job, elapsed_s) + elapsed_s - 2

    def refresh_upper(self, job: Job, elapsed_s: int) -> int:
        return self._note("refresh_upper", job, elapsed_s) + elapsed_s


asked_cases = st.one_of(
    st.tuples(cases(pool=True), st.one_of(dispatchers, rules)),
    st.tuples(cases(pool=False), bests),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    asked_cases, st.sampled_from([Teller, CarefulTeller, RefreshingTeller]),
    st.sampled_from(["minimal", "incremental", "requested"]), st.booleans(),
    st.sampled_from([0, 0, 3, 9]),
)  # fmt: skip
def test_a_predictor_is_told_and_asked_the_same_in_compiled_replays(
    both: tuple[tuple[Workload, System], Backfill | Bounded], teller: type[Teller],
    correction: str, kill_at_limit: bool, cost_s: int,
) -> None:  # fmt: skip
    case, rule = both

    def replay(compiled: bool) -> tuple[Run, Teller]:
        asked = teller()
        run = simulate(
            *case, fresh(rule, WaitBound()), predictor=asked, correction=correction,
            kill_at_limit=kill_at_limit, restart_cost_s=cost_s, compiled=compiled,
        )  # fmt: skip
        return run, asked

    (compiled, told), (general, asked) = replay(True), replay(False)
    assert compiled.about["compiled"]
    assert told.calls == asked.calls
    assert compiled.verify() == []
    assert compiled.job_table.equals(general.job_table)
    columns = ["time", "queue", "running", "started", "status"]
    assert compiled.decision_table.select(columns).equals(general.decision_table.select(columns))


@settings(max_examples=examples(100), deadline=None)
@given(cases(pool=True), st.one_of(dispatchers, rules), st.sampled_from([0, 3, 9]))
def test_jobs_request_what_a_clairvoyant_predictor_knows_after_a_test_too(
    case: tuple[Workload, System], rule: Backfill | Bounded, cost_s: int
) -> None:
    compiled, general = (
        simulate(
            *case, fresh(rule, WaitBound()), predictor="actual", restart_cost_s=cost_s,
            compiled=compiled,
        )
        for compiled in (True, False)
    )  # fmt: skip
    assert compiled.about["compiled"]
    assert compiled.verify() == general.verify() == []
    assert compiled.job_table.equals(general.job_table)


@pytest.mark.log
@pytest.mark.parametrize(
    ("log", "system", "jobs", "dispatcher", "cost_s"),
    [
        ("KTH-SP2-1996-2", "100", 1_000, "easy:test=120", 120),
        ("KTH-SP2-1996-2", "100", 1_000, "easy-spf-spf:test=120,tests=first", 0),
        ("KTH-SP2-1996-2", "100", 1_000, "best:test=300,tests=turn", 0),
        ("HPC2N-2002-2.2-cln", "seth", 3_000, "easy:test=120,tests=backfill", 30),
        ("HPC2N-2002-2.2-cln", "seth", 1_500, "best:test=300", 0),
        ("CTC-SP2-1996-3.1-cln", "338", 1_000, "best:test=300", 120),
        ("CTC-SP2-1996-3.1-cln", "338", 1_000, "best:test=300,tests=backfill", 0),
    ],
)
def test_compiled_replays_of_real_logs_make_the_same_tests(
    log: str, system: str, jobs: int, dispatcher: str, cost_s: int, trace: Any
) -> None:
    if dispatcher.startswith("best"):
        pytest.importorskip("sklearn", reason="best needs the extra learn")
    whole, machine = prepare(trace(log), system, filter="strong")
    some = mark(whole.take(np.arange(jobs)), 1.0)
    compiled = simulate(some, machine, dispatcher, restart_cost_s=cost_s)
    general = simulate(some, machine, dispatcher, restart_cost_s=cost_s, compiled=False)
    assert compiled.about["compiled"]
    assert "killed" in set(compiled.jobs["test"])
    assert compiled.verify() == []
    assert compiled.job_table.equals(general.job_table)
    told = ["time", "queue", "running", "started", "status"]
    assert compiled.decision_table.select(told).equals(general.decision_table.select(told))


def test_what_no_compiled_replay_does() -> None:
    log = mark(workload(crowd()), 1.0)
    nodes = System("two", ("core",), (NodeGroup("n", 2, (2,)),), 2)
    for system, name, how in (
        (POOL, "easy:test=9", {"trigger": "event"}),
        (POOL, "conservative:test=9", {}),
        (nodes, "easy:depth=2,test=9", {}),
    ):
        run = simulate(log, system, name, **how)  # type: ignore[arg-type]
        assert not run.about["compiled"], (name, how)
        assert "test" in run.jobs
        assert run.verify() == []


class Promises:
    """Follows what is promised to the first job of the queue."""

    def __init__(self, dispatcher: Backfill) -> None:
        self.dispatcher, self.name = dispatcher, dispatcher.name
        self.promised: dict[int, int] = {}

    def dispatch(self, instance: Instance) -> Any:
        decision = self.dispatcher.dispatch(instance)
        later = np.flatnonzero(decision.start_s > instance.now)
        for position in later.tolist():
            id, start_s = int(instance.queue.id[position]), int(decision.start_s[position])
            assert start_s <= self.promised.get(id, start_s)
            self.promised[id] = start_s
        for position in np.flatnonzero(decision.start_s == instance.now).tolist():
            id = int(instance.queue.id[position])
            assert instance.now <= self.promised.get(id, instance.now)
        return decision


@settings(max_examples=examples(150), deadline=None)
@given(
    cases(pool=True, upper_bounds=True, tiers=False), st.integers(1, 6),
    st.sampled_from(["left", "backfill"]),
    st.sampled_from([0, 3]), st.sampled_from(["instant", "event"]),
    st.sampled_from(["minimal", "incremental", "requested"]),
)  # fmt: skip
def test_no_test_moves_a_promised_start(
    case: tuple[Workload, System], test_s: int, tests: str, cost_s: int, trigger: str,
    correction: str,
) -> None:  # fmt: skip
    follows = Promises(Backfill(test_s=test_s, tests=tests))
    how = {"restart_cost_s": cost_s, "trigger": trigger, "correction": correction}
    assert simulate(*case, follows, predictor="walltime", **how).verify() == []


@pytest.mark.parametrize("correction", ["minimal", "incremental", "requested"])
@pytest.mark.parametrize("last", [(3, 1, 40, 40), (10, 1, 40, 40)])
def test_a_test_that_is_over_is_over_before_another_event_of_that_second(
    correction: str, last: Row
) -> None:
    """Job 1 ends when the test of job 3 is over; job 4 may be submitted in that second, too."""
    log = workload([(0, 2, 10, 10), (1, 4, 50, 50), (2, 1, 100, 100), last])
    run = simulate(mark(log, 1.0), POOL, "easy:test=8", trigger="event", correction=correction)
    assert run.verify() == []
    assert run.jobs["start"].tolist() == [0, 10, 60, 60]


def test_a_reservation_counts_what_goes_on_in_its_turn() -> None:
    """Job 2 is under test until 70 and was submitted before job 4, but after job 3."""
    file = {
        "format": "cpdispatch-instance/2", "time": 60, "resources": ["core"],
        "groups": [{"name": "one", "nodes": 1, "capacity": [4]}],
        "running": [{"id": 2, "start": 50, "submit": 5, "duration": 100, "requested": 300,
                     "bound": 20, "units": 3, "unit": [1], "restartable": True,
                     "nodes": {"0": 3}}],
    }  # fmt: skip

    def start_s(instance: Instance, **how: Any) -> int:
        decision = Backfill(test_s=20, **how).dispatch(instance)
        assert verify.decision(instance, decision) == []
        return int(decision.start_s[0])

    def queued(**fields: int) -> Instance:
        job = {"duration": 50, "units": 4, "unit": [1]} | fields
        return read(file | {"queue": [job]})

    before, after = queued(id=3, submit=4), queued(id=4, submit=6)
    assert (start_s(before), start_s(after)) == (70, 150)
    assert (start_s(queued(id=1, submit=5)), start_s(queued(id=3, submit=5))) == (70, 150)
    assert start_s(after, limits="requested") == 350
    # Under another order it goes on for sure only if it has waited too long.
    assert start_s(after, primary=find("saf")) == 70
    assert start_s(after, primary=find("saf"), threshold_s=54) == 150
    assert start_s(after, primary=find("saf"), threshold_s=50) == 150
    assert start_s(before, primary=find("saf"), threshold_s=50) == 70
    starved = replace(after, starvation=Starvation(54, 10**6))
    assert start_s(starved, primary=find("saf"), bounded=True) == 150


def tried(rows: list[Row], dispatcher: Backfill, **how: Any) -> Run:
    run = simulate(mark(workload(rows), 1.0), POOL, dispatcher, **how)
    assert run.verify() == []
    return run


# Job 1 holds 3 of 4 processors until 100; job 2 needs all of them: its reservation. Job 3 asks for
# more time than there is before it.
LEFT_OVER = [(0, 3, 100, 100), (1, 4, 50, 50), (2, 1, 500, 30)]


def test_what_may_not_start_in_full_is_tested_and_killed_where_it_would_delay() -> None:
    run = tried(LEFT_OVER, Backfill(test_s=10))
    assert run.jobs["start"].tolist() == [0, 100, 150]
    assert run.jobs["lost_start"].tolist() == [-1, -1, 2]
    assert run.jobs["lost_end"].tolist() == [-1, -1, 12]
    run = tried(LEFT_OVER, Backfill(test_s=30))
    assert run.jobs["start"].tolist() == [0, 100, 2]
    assert run.jobs["test"].tolist() == ["none", "none", "ended"]


def test_a_tested_job_goes_on_when_it_would_be_started_right_then() -> None:
    rows = [(0, 3, 100, 5), (1, 4, 50, 50), (2, 1, 500, 30)]
    # At 5 s nobody runs beside the test. Its end is sure, at 6 s: the reservation stands.
    run = tried(rows, Backfill(test_s=4))
    assert run.jobs["start"].tolist() == [0, 6, 56]
    rows = [(0, 3, 100, 100), (1, 4, 50, 50), (2, 1, 500, 30)]
    spare = simulate(mark(workload(rows), 1.0), System.pool(5), Backfill(test_s=4))
    assert "test" not in spare.jobs  # it fits beside both


def test_jobs_that_ask_for_little_time_or_may_not_be_restarted_are_not_tested() -> None:
    for test_s, fate in ((249, "ended"), (250, None)):
        run = simulate(
            mark(workload([(0, 3, 400, 400), *LEFT_OVER[1:]]), 1.0), POOL,
            Backfill(test_s=test_s),
        )  # fmt: skip
        assert list(run.jobs.get("test", [None] * 3))[2] == fate
    run = simulate(mark(workload(LEFT_OVER), 0.0), POOL, Backfill(test_s=30))
    assert run.about["compiled"]
    assert "test" not in run.jobs


def test_tests_before_backfills_take_the_place_of_those() -> None:
    rows = [(0, 3, 100, 100), (1, 4, 50, 50), (2, 1, 500, 9), (2, 1, 70, 70)]
    left, before = (tried(rows, Backfill(test_s=10, tests=way)) for way in ("left", "backfill"))
    assert left.jobs["start"].tolist() == [0, 100, 72, 2]
    assert before.jobs["start"].tolist() == [0, 100, 2, 11]
    turn = tried([(0, 2, 100, 100)], Backfill(test_s=10, tests="turn"))
    assert turn.jobs["test"].tolist() == ["went_on"]
    assert turn.jobs["end"].tolist() == [100]


def test_tests_that_come_first_keep_back_jobs_in_turn_and_no_late_ones() -> None:
    """All processors are busy until 10; only the third job may be restarted."""

    def starts(lasts_s: int, dispatcher: Backfill) -> list[int]:
        rows = [(0, 4, 10, 10), (1, 4, lasts_s, lasts_s), (2, 1, 500, 9)]
        log = workload(rows)
        block = log.table.block.copy()
        block[Column.RESTARTABLE, 2] = 1
        run = simulate(replace(log, table=JobTable(block)), POOL, dispatcher)
        assert run.verify() == []
        return run.jobs["start"].tolist()

    assert starts(50, Backfill(test_s=20, tests="turn")) == [0, 10, 60]
    assert starts(50, Backfill(test_s=20, tests="first")) == [0, 19, 10]
    assert starts(50, Backfill(test_s=20, tests="first", threshold_s=8)) == [0, 10, 60]
    # By its key of 20 / sqrt(0.05) = 89 s a test comes after a job that is expected to last 80 s.
    spf = find("spf")
    assert starts(80, Backfill(spf, spf, test_s=20, tests="first")) == [0, 10, 90]
    assert starts(90, Backfill(spf, spf, test_s=20, tests="first")) == [0, 19, 10]


def test_the_likeliest_to_end_in_time_is_tested_first() -> None:
    expected, requested = np.array([100, 40, 500, 90]), np.array([500] * 4)
    chance = probability(expected, requested, 20)
    assert chance.round(3).tolist() == [0.167, 0.333, 0.05, 0.182]
    queue = [
        {"id": k, "submit": k, "duration": d, "requested": 500, "units": 1, "unit": [1],
         "restartable": True} for k, d in enumerate(expected.tolist())
    ]  # fmt: skip
    instance = read(
        {"format": "cpdispatch-instance/2", "time": 60, "resources": ["core"],
         "groups": [{"name": "one", "nodes": 1, "capacity": [4]}], "queue": queue}
    )  # fmt: skip
    left, turn = WAYS["left"], WAYS["turn"]
    nobody, others = np.zeros(4, dtype=np.bool_), np.arange(4) < 3
    assert candidates(instance, 20, nobody, left).tolist() == [1, 3, 0, 2]
    assert candidates(instance, 20, others, left).tolist() == [3]
    assert candidates(instance, 20, others, turn).tolist() == [1, 3, 0, 2]
    assert candidates(instance, 250, nobody, left).tolist() == []


@pytest.mark.parametrize(("threshold_s", "tested"), [(50, True), (49, False)])
def test_no_starved_job_is_tested_under_a_bound(threshold_s: int, tested: bool) -> None:
    """The first one has to wait for the job that runs, the second would delay it."""
    instance = read(
        {"format": "cpdispatch-instance/2", "time": 60, "resources": ["core"],
         "groups": [{"name": "one", "nodes": 1, "capacity": [4]}],
         "running": [{"id": 1, "start": 0, "duration": 100, "units": 3, "unit": [1],
                      "nodes": {"0": 3}}],
         "queue": [{"id": 2, "submit": 1, "duration": 50, "units": 4, "unit": [1]},
                   {"id": 3, "submit": 10, "duration": 500, "units": 1, "unit": [1],
                    "restartable": True}]}
    )  # fmt: skip
    instance = replace(instance, starvation=Starvation(threshold_s, 10**6))
    for dispatcher in (Backfill(bounded=True, test_s=20), Best(test_s=20)):
        decision = dispatcher.dispatch(instance)
        assert verify.decision(instance, decision) == []
        assert (decision.start_s[1] == 60) == tested
        assert (decision.bound_s is not None) == tested
    # The threshold of the dispatcher itself plays no part.
    decision = Backfill(bounded=True, threshold_s=1, test_s=20).dispatch(instance)
    assert (decision.start_s[1] == 60) == tested


def test_a_solution_keeps_the_bounds() -> None:
    instance = read(
        {"format": "cpdispatch-instance/2", "time": 60, "resources": ["core"],
         "groups": [{"name": "one", "nodes": 1, "capacity": [4]}],
         "running": [{"id": 1, "start": 0, "duration": 100, "units": 3, "unit": [1],
                      "nodes": {"0": 3}}],
         "queue": [{"id": 2, "submit": 1, "duration": 50, "units": 4, "unit": [1]},
                   {"id": 3, "submit": 2, "duration": 500, "units": 1, "unit": [1],
                    "restartable": True}]}
    )  # fmt: skip
    answer = solution.from_decision(instance, Backfill(test_s=20).dispatch(instance))
    assert [(job.id, job.start, job.bound) for job in answer.jobs] == [(2, 100, None), (3, 60, 20)]
    again = solution.loads(solution.to_json(answer))
    assert again == answer
    assert verify.solution(instance, again) == []
    for bound, kind in ((None, "pool"), (41, "pool")):
        jobs = (answer.jobs[0], replace(answer.jobs[1], bound=bound))
        found = verify.solution(instance, replace(answer, jobs=jobs))
        assert [violation.kind for violation in found] == [kind]
    jobs = (replace(answer.jobs[0], bound=5), answer.jobs[1])
    found = verify.solution(instance, replace(answer, jobs=jobs))
    assert [str(v) for v in found] == ["restart: job 2 has a bound of 5 s and does not start now"]


STOPPED = {
    "format": "cpdispatch-instance/2", "time": 1000, "resources": ["core"],
    "groups": [{"name": "a", "nodes": 3, "capacity": [3]}],
    "queue": [{"id": 1, "submit": 950, "duration": 38, "units": 1, "unit": [1],
               "restartable": True, "stopped": {"start": 963, "nodes": {"1": 1}}},
              {"id": 2, "submit": 958, "duration": 2, "units": 2, "unit": [3]},
              {"id": 3, "submit": 959, "duration": 8, "units": 1, "unit": [3]}],
}  # fmt: skip
"""Job 1 has just been stopped; if it goes on, it is expected to end at 1001."""


@pytest.mark.parametrize("name", ["easy", "best", "conservative", "hcp", "prb"])
def test_a_stopped_job_that_goes_on_holds_its_nodes_for_the_rest_of_its_run(name: str) -> None:
    instance = read(STOPPED)
    decision = dispatch.make(name, warm=dispatch.not_at_all).dispatch(instance)
    assert verify.decision(instance, decision) == []
    answer = solution.from_decision(instance, decision)
    assert verify.solution(instance, answer) == []
    # A second later its nodes would be needed by two.
    longer = json.loads(json.dumps(STOPPED))
    longer["queue"][0]["duration"] += 30
    instance = read(longer)
    kinds = {v.kind for v in verify.solution(instance, answer)}
    assert ("pool" in kinds) == any(job.start == 1001 for job in answer.jobs)


@pytest.mark.parametrize(
    "name", ["easy", "prb", "thesis-hcp", "thesis-hcp3", "thesis-pcp", "thesis-pcp4", "thesis-pcp5"]
)
@pytest.mark.parametrize("after", [[], [2]])
def test_every_dispatcher_leaves_nodes_alone_while_killing_takes_time(
    name: str, after: list[int]
) -> None:
    instance = read(
        {**STOPPED, "restart_cost": 4, "queue": [
            *STOPPED["queue"],
            {"id": 4, "submit": 960, "duration": 9, "units": 3, "unit": [2], "after": after},
        ]}
    )  # fmt: skip
    decision = dispatch.make(name, warm=dispatch.not_at_all).dispatch(instance)
    assert verify.decision(instance, decision) == []
    assert verify.solution(instance, solution.from_decision(instance, decision)) == []


def crowd() -> list[Row]:
    rng = np.random.default_rng(2)
    numbers = (rng.integers(low, high, 80).tolist() for low, high in ((0, 300), (1, 5), (1, 60)))
    return sorted((submit, units, 100, runs) for submit, units, runs in zip(*numbers, strict=True))


def test_best_tests_too() -> None:
    nodes = System("two", ("core",), (NodeGroup("n", 2, (2,)),), 2)
    log = mark(workload(crowd()), 1.0)
    for best in (Best(test_s=9), Bounded(Best(test_s=9))):
        run = simulate(log, nodes, best, predictor=Guess())
        assert run.verify() == []
        assert run.about["test_s"] == 9
        assert {"none", "killed"} <= set(run.jobs["test"])


def test_best_tests_where_jobs_may_be_restarted_unless_it_is_switched_off() -> None:
    jobs = [(9 * submit, units, 700 + 30 * runs, 9 * runs) for submit, units, _, runs in crowd()]
    some, none = mark(workload(jobs), 1.0), mark(workload(jobs), 0.0)
    for compiled in (True, False):
        runs = {
            name: simulate(some, POOL, name, predictor="walltime", compiled=compiled)
            for name in ("easy", "best", "best:test=300", "best:test=off")
        }
        assert [run.about.get("test_s", 0) for run in runs.values()] == [0, 300, 300, 0]
        best, named, off = list(runs.values())[1:]
        assert best.verify() == []
        assert "killed" in set(best.jobs["test"])
        assert best.job_table.equals(named.job_table)
        assert "test" not in off.jobs
        ((_, rows),) = tables([RunSummary.of(run) for run in runs.values()])
        assert [(told["dispatcher"], told["without"]) for told in compare.test_runs(rows)] == [
            ("best", "best:test=off"),
            ("best:test=300", "best:test=off"),
        ]
        plain = simulate(none, POOL, "best", predictor="walltime", compiled=compiled)
        assert "test_s" not in plain.about
        assert plain.jobs["start"].equals(off.jobs["start"])


def test_what_tests_cost_is_told() -> None:
    log = mark(workload(crowd()), 1.0)
    names = ["easy", "easy:test=9", "easy-spf-spf:test=9", "easy:tests=backfill,test=2"]
    runs = [simulate(log, POOL, name) for name in names]
    jobs = runs[1].jobs
    work = ((jobs["end"] - jobs["start"]) * jobs["units"]).sum()
    lost = ((jobs["lost_end"] - jobs["lost_start"]) * jobs["units"]).sum()
    told = runs[1].metrics
    assert told["tests"] == (jobs["test"] != "none").sum()
    assert told["tests_killed"] == told["restarts"] == (jobs["lost_end"] >= 0).sum() > 5
    fates = (told[f"tests_{fate}"] for fate in ("ended", "went_on", "killed"))
    assert sum(fates) == told["tests"]
    assert told["wasted_processor_s"] == lost
    assert told["wasted_share"] == pytest.approx(lost / (work + lost))
    assert "tests" not in runs[0].metrics
    ((_, rows),) = tables([RunSummary.of(run) for run in runs])
    shown = compare.tables(rows, 200)[0]
    headings = [str(cell) for cell in shown.columns[0].cells]
    assert {"jobs tested", "  ended in their test", "  share of the work"} <= set(headings)
    first, second = compare.test_runs(rows)
    before, now = (run.metrics["bounded_slowdown_mean"] for run in runs[:2])
    assert (first["bounded_slowdown_mean"], first["bounded_slowdown_mean_without"]) == (now, before)
    assert (first["without"], first["test_s"]) == ("easy", 9)
    assert first["killed_share"] == told["tests_killed"] / 80
    assert first["wasted_share"] == told["wasted_share"]
    moves = "falls" if now < before else "rises"
    assert first["text"].startswith(
        f"With test runs of 9 s (easy:test=9) the mean bounded slowdown {moves} from "
        f"{before:,.1f} to {now:,.1f}. "
    )
    assert (second["dispatcher"], second["test_s"]) == ("easy:tests=backfill,test=2", 2)


def test_the_command_says_what_is_missing(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{k},{s},{r},{q},{u},1,{k % 4}" for k, (s, u, q, r) in enumerate(crowd())]
    path.write_text("\n".join(["id,submit,runtime,requested,units,core,user", *rows]))
    log = [str(path), "--system", "4"]

    def said(*arguments: str) -> str:
        code = cli.run(["simulate", *log, *arguments])
        out = capsys.readouterr()
        assert not code or out.err
        return out.out + out.err

    tests = ("-d", "easy", "-d", "easy:test=9")
    assert "no job of log may be restarted: say which may, for example --restartable all" in said(
        *tests
    )
    assert "mean bounded slowdown" in said("-d", "best", "--predict", "last2")  # no tests there
    assert "With test runs of 9 s (easy:test=9) the mean bounded" in said(
        *tests, "--restartable", "all"
    )
    (told,) = json.loads(said(*tests, "--restartable", "all", "--json"))["test_runs"]
    assert (told["dispatcher"], told["without"], told["test_s"]) == ("easy:test=9", "easy", 9)
    assert "jobs tested" in said(*tests, "--restartable", "0.5", "--seed", "3")
    assert "--restart-cost 30s: no job may be restarted" in said("--restart-cost", "30s")
    assert "whole seconds are needed" in said("--restart-cost", "2.5s", "--restartable", "all")
    fails = ("--events", "weibull:mtbf=30d,shape=0.7,repair=4h", "--requeue")
    assert "--requeue restartable: no job may be restarted" in said(*fails, "restartable")
    none = said(*fails, "none", "--checkpoints", "every=1h")
    assert "--checkpoints and --requeue none: no job may be restarted" in none
    costly = ("--restartable", "all", "--restart-cost", "3s")
    assert "restarts have a cost, and easy kills no job" in said("-d", "easy", *costly)
    assert "no job of log comes after another one" in said("-d", "easy", "--dependencies")
    out = str(tmp_path / "run")
    said("-d", "easy:test=9", "--restartable", "all", "--restart-cost", "3s", "--out", out)
    assert cli.run(["verify", "--run", out]) == 0
    table = Run.load(out).jobs
    lost = table[table["lost_end"] >= 0]
    assert (lost["lost_end"] - lost["lost_start"]).unique().tolist() == [12]
    assert (lost["end"] - lost["start"] == lost["runtime_s"] + 3).all()


def cold(dispatcher: dispatch.Dispatcher) -> list[Instance]:
    """Nothing to warm up on."""
    return []


def test_names_and_what_is_wrong_with_them() -> None:
    made = dispatch.make("easy:test=2min,tests=backfill", warm=cold)
    assert isinstance(made, Backfill)
    assert (made.test_s, made.tests) == (120, "backfill")
    best = dispatch.make("best:test=300,tests=turn", warm=cold)
    assert isinstance(best, Bounded)
    assert isinstance(best.inner, Best)
    assert (best.inner.backfill.test_s, best.inner.backfill.tests) == (300, "turn")
    for name, problem in (
        ("easy:test=0", "a whole number of seconds, 1 or more, or off, is needed"),
        ("easy:test=9999999999999999", "a time, 281474976710656 s at most, or off, is needed"),
        ("easy:tests=last", "one of left, backfill, turn, first is needed"),
        ("fifo:test=120", "has no parameter 'test'"),
    ):
        with pytest.raises(UsageError, match=problem):
            dispatch.make(name, warm=cold)


def test_a_run_with_tests_that_was_stopped_goes_on_to_the_same_end(tmp_path: Any) -> None:
    from cpdispatch.errors import InterruptedRunError

    log = mark(workload(crowd()), 1.0)
    dispatcher = Backfill(test_s=9, tests="backfill")
    whole = simulate(log, POOL, dispatcher, restart_cost_s=2, compiled=False)
    assert whole.metrics["restarts"] > 5
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked % 7 == 0

    for _ in range(100):
        try:
            run = simulate(
                log, POOL, dispatcher, restart_cost_s=2, compiled=False,
                watch=Watch(folder=tmp_path, resume=True, stop=stop),
            )  # fmt: skip
        except InterruptedRunError:
            continue
        break
    assert asked > 50
    assert run.job_table.equals(whole.job_table)


def test_a_compiled_replay_with_tests_goes_on_from_a_checkpoint_anywhere() -> None:
    log = mark(workload(crowd()), 1.0)

    def fresh_one() -> CompiledSimulation:
        return CompiledSimulation(
            log, POOL, Backfill(test_s=9, tests="backfill", limits="upper"), RefreshingTeller(),
            learned=True, trigger="instant", correction="minimal", kill_at_limit=False,
            restart_cost_s=2,
        )  # fmt: skip

    whole, replay, saved = fresh_one(), fresh_one(), 0
    while not whole.go(1 << 16):
        pass
    assert (whole.records.test == records.Test.KILLED).sum() > 5
    while not replay.go(1):
        before, replay = pickle.loads(pickle.dumps(replay)), fresh_one()
        replay.go_on_from(before)
        saved += 1
    assert saved > 50
    for name in ("start_s", "end_s", "lost_start_s", "lost_end_s", "test", "expected_s"):
        assert (getattr(replay.records, name) == getattr(whole.records, name)).all(), name


def test_a_job_that_is_killed_on_a_drained_node_takes_nothing_there() -> None:
    group = {"name": "node", "nodes": 2, "capacity": [4]}
    job = {"id": 1, "submit": 0, "duration": 90, "units": 2, "unit": [3]}
    given = {"format": FORMAT, "time": 50, "resources": ["core"], "groups": [group], "queue": [job]}
    stopped = Stopped.of({0: (40, {0: 1, 1: 1})})
    drained = replace(read(given | {"down": [0]}), stopped=stopped, restart_cost_s=5)
    assert clearing(drained).free.tolist() == [[0], [1]]
