from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable
from dataclasses import replace
from math import nan
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from cpdispatch.decision import Reason
from cpdispatch.errors import DecisionError, UsageError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.instance import Instance, Starvation
from cpdispatch.jobs import Column, Job, JobTable
from cpdispatch.simulator import Run, Simulation, simulate
from cpdispatch.system import Limit, Maintenance, NodeGroup, System
from cpdispatch.workloads.restarts import mark
from tests.simulator.cases import play, starting, workload


def test_completions_of_an_instant_come_before_its_submissions_and_one_dispatch_follows() -> None:
    sim, seen = play([(0, 4, 10, 10), (10, 4, 10, 10)])
    assert [instance.now for instance in seen] == [0, 10]
    assert len(seen[1].running) == 0
    assert sim.records.start_s.tolist() == [0, 10]


def test_jobs_that_end_at_once_free_their_capacity_within_the_instant() -> None:
    sim, _ = play([(5, 4, 10, 0), (5, 4, 10, 0), (5, 4, 10, 3)])
    assert sim.records.start_s.tolist() == [5, 5, 5]
    assert sim.records.end_s.tolist() == [5, 5, 8]


def test_with_the_event_trigger_an_exact_end_counts_as_free_for_a_submission_before_it() -> None:
    rows = [(0, 4, 10, 10), (10, 4, 10, 10)]
    _, seen = play(rows, trigger="event")
    assert [(i.now, len(i.running), i.free.tolist()) for i in seen] == [
        (0, 0, [[4]]),
        (10, 0, [[4]]),
    ]


def test_with_the_event_trigger_an_early_end_is_seen_only_by_its_own_dispatch() -> None:
    sim, seen = play([(0, 4, 20, 10), (10, 4, 10, 10)], trigger="event")
    assert [(i.now, len(i.queue)) for i in seen] == [(0, 1), (10, 1)]
    assert sim.records.start_s.tolist() == [0, 10]


def test_a_submission_that_does_not_fit_causes_no_dispatch_with_the_event_trigger() -> None:
    _, seen = play([(0, 3, 10, 10), (2, 2, 5, 5), (3, 1, 5, 5)], trigger="event")
    assert [i.now for i in seen] == [0, 3, 8, 10]


def test_jobs_submitted_together_keep_the_order_of_the_log() -> None:
    sim, seen = play([(0, 4, 9, 9), (1, 4, 9, 9), (1, 4, 9, 9), (1, 4, 9, 9)])
    assert seen[1].queue.id.tolist() == [2, 3, 4]
    assert sim.records.start_s.tolist() == [0, 9, 18, 27]


def expected_end(correction: str, now: int) -> int:
    """Of a job that was predicted 10 s, asked for 100 s and runs 500 s."""

    class TenSeconds:
        name = "ten"

        def predict(self, job: Job, now: int) -> float:
            return 10

        def learn(self, job: Job, runtime_s: int) -> None: ...

    rows = [(0, 4, 100, 500), *((t, 1, 5, 5) for t in range(5, now + 1))]
    _, seen = play(rows, correction=correction, predictor=TenSeconds())
    instance = next(i for i in seen if i.now == now)
    return int(instance.running.end_s[0])


@pytest.mark.parametrize(
    ("correction", "now", "end"),
    [
        ("minimal", 9, 10),
        ("minimal", 10, 11),
        ("minimal", 400, 401),
        ("incremental", 10, 70),
        ("incremental", 70, 100),
        ("incremental", 100, 101),
        ("requested", 10, 100),
        ("requested", 99, 100),
        ("requested", 100, 101),
    ],
)
def test_an_expected_end_that_has_passed_is_corrected(correction: str, now: int, end: int) -> None:
    assert expected_end(correction, now) == end


def test_an_overdue_job_is_marked_and_its_dump_says_when_it_was_expected() -> None:
    _, seen = play([(0, 4, 10, 30), (20, 1, 5, 5)])
    assert seen[1].running.overdue.tolist() == [1]
    assert seen[1].running.jobs.expected_s.tolist() == [10]


def test_jobs_are_killed_at_their_requested_time_only_on_request() -> None:
    rows = [(0, 1, 10, 30), (0, 1, 10, 10)]
    alive, _ = play(rows)
    assert alive.records.end_s.tolist() == [30, 10]
    assert not alive.records.killed.any()
    cut, _ = play(rows, kill_at_limit=True)
    assert cut.records.end_s.tolist() == [10, 10]
    assert cut.records.killed.tolist() == [True, False]


def test_a_job_that_can_never_run_is_counted_and_blocks_nobody() -> None:
    sim, seen = play([(0, 5, 10, 10), (0, 4, 10, 10)])
    assert sim.records.reason.tolist() == [Reason.NEVER_FITS, Reason.STARTED]
    assert sim.records.start_s.tolist() == [-1, 0]
    assert seen[0].queue.id.tolist() == [2]


def test_a_rejected_job_leaves_the_queue() -> None:
    sim, seen = play([(0, 1, 5, 5), (1, 1, 5, 5)], dispatcher=Reject())
    assert [len(i.queue) for i in seen] == [1, 1]
    assert sim.records.reason.tolist() == [Reason.REJECTED] * 2


def test_no_object_of_a_job_outlives_it() -> None:
    of_others = [item for item in gc.get_objects() if isinstance(item, Job)]
    for dispatcher in (Reject(), Backfill()):
        sim, _ = play([(0, 1, 5, 5), (1, 1, 5, 5), (9, 9, 1, 1)], dispatcher=dispatcher)
        jobs = [item for item in gc.get_objects() if isinstance(item, Job)]
        assert [job for job in jobs if not any(job is other for other in of_others)] == []
        assert len(sim.records.start_s) == 3


def test_a_dispatcher_that_starts_nothing_ends_the_replay_with_its_jobs_waiting() -> None:
    class Idle:
        def dispatch(self, instance: Instance) -> object:
            return starting(instance, [], {})

    sim, _ = play([(0, 1, 5, 5), (1, 1, 5, 5)], dispatcher=Idle())
    assert sim.records.start_s.tolist() == [-1, -1]


def test_an_infeasible_decision_is_refused_and_nothing_of_it_is_applied() -> None:
    sim = Simulation(workload([(0, 3, 5, 5), (0, 3, 5, 5)]), System.pool(4))
    instance = sim.advance()
    assert instance is not None
    with pytest.raises(DecisionError, match=r"infeasible decision at time 0: .*capacity"):
        sim.apply(starting(instance, [0, 1], {0: 3}))
    assert sim.records.start_s.tolist() == [-1, -1]
    with pytest.raises(UsageError, match="before the last instance was answered"):
        sim.advance()
    sim.apply(starting(instance, [0], {0: 3}))
    assert sim.records.start_s.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("start", "reason", "complaint"),
    [
        ([0], Reason.REJECTED, "job 1 starts now and has the reason rejected"),
        ([0], Reason.WAITS, "job 1 starts now and has the reason waits"),
        ([], Reason.STARTED, "job 1 does not start now and has the reason started"),
        ([], 77, "job 1 has the reason 77: those that there are have the numbers 0 to"),
        ([], -3, "job 1 has the reason -3: those that there are have the numbers 0 to"),
    ],
)
@pytest.mark.parametrize("restart_cost_s", [0, 30])
def test_a_reason_that_says_the_contrary_of_the_start_is_refused(
    start: list[int], reason: Reason, complaint: str, restart_cost_s: int
) -> None:
    log = mark(workload([(0, 1, 5, 5)]), 1.0) if restart_cost_s else workload([(0, 1, 5, 5)])
    simulation = Simulation(log, System.pool(4), restart_cost_s=restart_cost_s)
    instance = simulation.advance()
    assert instance is not None
    wrong = replace(starting(instance, start, {0: 1}), reason=np.array([reason], dtype=np.int8))
    with pytest.raises(DecisionError, match=complaint):
        simulation.apply(wrong)
    assert (simulation.records.start_s == -1).all()


def test_a_decision_with_a_part_of_a_wrong_type_is_refused_by_its_name() -> None:
    simulation = Simulation(workload([(0, 1, 5, 5)]), System.pool(4))
    instance = simulation.advance()
    assert instance is not None
    wrong = replace(starting(instance, [0], {0: 1}), start_s=[0])
    with pytest.raises(
        DecisionError, match=r"whose start_s is .* int64 array, not list, at time 0"
    ):
        simulation.apply(wrong)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"status": "foo"}, r"certificate\.status is one of optimal, .*, not 'foo', at time 0"),
        ({"value": float("nan")}, r"certificate\.value is a real number or None, not nan"),
    ],
)
def test_a_certificate_that_says_nothing_is_refused(wrong: Any, complaint: str) -> None:
    simulation = Simulation(workload([(0, 1, 5, 5)]), System.pool(4))
    instance = simulation.advance()
    assert instance is not None
    answer = starting(instance, [0], {0: 1})
    with pytest.raises(DecisionError, match=complaint):
        simulation.apply(replace(answer, certificate=replace(answer.certificate, **wrong)))


def test_asking_twice_or_answering_twice_is_an_error() -> None:
    sim = Simulation(workload([(0, 1, 5, 5)]), System.pool(4))
    instance = sim.advance()
    assert instance is not None
    with pytest.raises(UsageError, match="before the last instance was answered"):
        sim.advance()
    sim.apply(Backfill().dispatch(instance))
    with pytest.raises(UsageError, match="without an instance"):
        sim.apply(Backfill().dispatch(instance))


@pytest.mark.parametrize(
    ("argument", "value", "hint"),
    [("trigger", "events", "did you mean event"), ("correction", "minimum", "mean minimal")],
)
def test_an_unknown_rule_is_refused_with_the_nearest_name(
    argument: str, value: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=hint):
        Simulation(workload([(0, 1, 5, 5)]), System.pool(4), **{argument: value})


def test_a_workload_of_other_resource_types_is_refused() -> None:
    system = System("two", ("core", "gpu"), (NodeGroup("a", 1, (4, 1)),))
    with pytest.raises(UsageError, match="fit it to the system first"):
        Simulation(workload([(0, 1, 5, 5)]), system)


def test_the_expected_wait_of_a_queue_is_its_mean_so_far_and_at_least_a_second() -> None:
    _, seen = play([(0, 4, 10, 10), (2, 4, 10, 10), (15, 1, 5, 5)])
    waits = {i.now: i.queue.ewt_s.tolist() for i in seen}
    assert waits == {0: [1], 2: [1], 10: [1], 15: [4], 20: [4]}


def test_the_expected_wait_of_a_queue_is_what_the_site_states() -> None:
    stated = System("site", ("core",), (NodeGroup("a", 1, (4,)),), expected_wait_s={"7": 600})
    jobs = workload([(0, 4, 10, 10), (2, 4, 10, 10)])
    block = jobs.table.block.copy()
    block[Column.QUEUE] = [7, 8]
    sim = Simulation(replace(jobs, table=JobTable(block)), stated)
    waits = []
    while (instance := sim.advance()) is not None:
        waits.append(instance.queue.ewt_s.tolist())
        sim.apply(Backfill().dispatch(instance))
    assert waits == [[600], [1], [1]]


def reachable(thing: object) -> Iterable[object]:
    """Everything that can be reached from an object, but for modules, classes and code."""
    seen: dict[int, object] = {}
    stack = [thing]
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, (ModuleType, type, FunctionType)):
            continue
        seen[id(item)] = item
        stack += gc.get_referents(item)
        if isinstance(item, np.ndarray) and item.base is not None:
            stack.append(item.base)
    return seen.values()


def test_the_real_runtime_and_the_future_cannot_be_reached_from_an_instance() -> None:
    runtime, later = 987_654_321, 123_456_789
    _, seen = play([(0, 4, 10, runtime), (5, 1, 7, 3), (later, 1, 9, 9)])
    early = [i for i in seen if i.now < later]
    assert len(early) == 2
    for instance in early:
        for item in reachable(instance):
            if isinstance(item, np.ndarray) and item.dtype == np.int64:
                assert runtime not in item
                assert later not in item
            assert not (isinstance(item, int) and item in (runtime, later))


def test_an_instance_cannot_be_changed_and_does_not_change() -> None:
    sim = Simulation(workload([(0, 2, 5, 5), (0, 2, 9, 9), (3, 2, 9, 9)]), System.pool(4))
    first = sim.advance()
    assert first is not None
    for array in (first.free, first.queue.block, first.running.end_s, first.running.jobs.block):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    copy = first.queue.block.copy()
    sim.apply(Backfill().dispatch(first))
    sim.advance()
    assert np.array_equal(first.queue.block, copy)
    assert first.free.tolist() == [[4]]


OWN_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"system": "4"}, "system of type str: a System is needed; cpdispatch.prepare gives"),
    ({"workload": "log.swf"}, "workload of type str: a Workload is needed; cpdispatch.prepare"),
    ({"predictor": 3}, r"predictor: a name, or an object with a name and predict and learn\(\)"),
    ({"starvation": (3, 4)}, r"starvation \(3, 4\): cpdispatch.instance.Starvation is needed"),
    ({"starvation": Starvation(nan, 5)}, "starvation.threshold_s nan: a whole number, 0 or"),  # type: ignore[arg-type]
    ({"starvation": Starvation(5, -5)}, "starvation.bound_s -5: a whole number, 0 or more, is"),
    ({"starvation": Starvation(5, 5, 5000)}, "starvation.wide 5000: a whole number, 1000 at most"),
    ({"trigger": None}, "unknown trigger None"),
    ({"correction": 3}, "unknown correction 3"),
    ({"correction": ["minimal"]}, r"unknown correction \['minimal'\]"),
    ({"kill_at_limit": 3}, "kill_at_limit 3: True or False is needed"),
    ({"dependencies": None}, "dependencies None: True or False is needed"),
    ({"events": 3}, "events "),
    ({"energy_price": {}}, "(energy_price of type|--energy-price)"),
    ({"data": 3}, "additional data int: it has no method value"),
]


@pytest.mark.parametrize(("arguments", "message"), OWN_ARGUMENTS)
def test_a_wrong_argument_is_one_clear_error(arguments: dict[str, Any], message: str) -> None:
    given = {"workload": workload([(0, 1, 5, 5)]), "system": System.pool(4)} | arguments
    for start in (simulate, Simulation):
        with pytest.raises(UsageError, match=f"^{message}"):
            start(**given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"watch": 3}, "watch of type int: a Watch is needed"),
        ({"settings": 1.0}, "settings of type float: a Settings is needed"),
        ({"events": [3]}, r"events \[3\]: names of files and of distributions are needed"),
        ({"compiled": "no"}, "compiled 'no': True or False is needed"),
    ],
)
def test_a_wrong_argument_of_simulate_alone_is_one_clear_error(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        simulate(workload([(0, 1, 5, 5)]), System.pool(4), **arguments)


def test_numbers_and_texts_of_numpy_are_as_good_as_others(tmp_path: Path) -> None:
    two = np.int64(2)
    system = System(
        "s", ("core",), (NodeGroup("a", two, (two,)),), watts={"core": two}, licences={"x": two},
        limits=(Limit(two),), maintenance=(Maintenance(np.int64(900), two),),
    )  # fmt: skip
    log = workload([(0, 1, 5, 5)])
    run = simulate(
        log, system, "hcp:limit=0.05", starvation=Starvation(two, two), trigger=np.str_("event")
    )
    assert run.verify() == []
    run.save(tmp_path)
    assert Run.load(tmp_path).system.groups == (NodeGroup("a", 2, (2,)),)
    assert run.about["starvation"]["bound_s"] == 2


def test_a_loop_of_ones_own_can_be_pickled_and_goes_on() -> None:
    rows, rule = [(0, 2, 5, 5), (0, 3, 9, 9), (3, 2, 9, 9)], Backfill()
    sim = Simulation(workload(rows), System.pool(4))
    first = sim.advance()
    assert first is not None
    sim.apply(rule.dispatch(first))
    again = pickle.loads(pickle.dumps(sim))
    for loop in (sim, again):
        while (instance := loop.advance()) is not None:
            loop.apply(rule.dispatch(instance))
    assert sim.records.start_s.tolist() == again.records.start_s.tolist() == [0, 5, 14]


def test_a_simulation_takes_a_seed_that_predictors_take() -> None:
    with pytest.raises(UsageError, match=r"^seed -1: a whole number, 0 or more, is needed"):
        Simulation(workload([(0, 1, 5, 5)]), System.pool(4), predictor="forest", seed=-1)


@pytest.mark.parametrize(
    ("dispatcher", "found"),
    [(None, "NoneType"), (3, "int"), (Backfill, "the class Backfill"), (object(), "object")],
)
def test_a_dispatcher_is_a_name_or_an_object_that_dispatches(dispatcher: Any, found: str) -> None:
    message = rf"^dispatcher: a name, or an object with a name and dispatch\(\), .*found {found}"
    with pytest.raises(UsageError, match=message):
        simulate(workload([(0, 1, 5, 5)]), System.pool(4), dispatcher)
