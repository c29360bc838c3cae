"""Logs whose jobs come after others: who waits, who is woken, and what is left out."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import verify
from cpdispatch.decision import Decision, Reason
from cpdispatch.errors import DecisionError
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.priority_rule import Reject
from cpdispatch.instance import Instance, Starvation, loads, to_json
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.simulator.precedence import ABSENT, LATER, NEVER_RUNS
from cpdispatch.simulator.simulation import Simulation
from cpdispatch.system import System
from tests.effort import examples
from tests.simulator.cases import on_nodes, play, starting, two_nodes, workload
from tests.strategies import systems, workloads

Seen = list[tuple[int, list[int], list[bool]]]


def met(seen: list[Instance]) -> Seen:
    """Time, queued jobs, and which of them may start, of every instance."""
    return [(i.now, i.queue.id.tolist(), i.eligible().tolist()) for i in seen]


def test_a_job_starts_when_the_one_before_it_has_ended() -> None:
    rows = [(0, 1, 20, 10), (2, 1, 5, 5)]
    sim, seen = play(rows, after={2: (1, -1)})
    assert sim.records.start_s.tolist() == [0, 10]
    assert met(seen) == [(0, [1], [True]), (2, [2], [False]), (10, [2], [True])]
    free, _ = play(rows)
    assert free.records.start_s.tolist() == [0, 2]


def test_the_dispatcher_is_called_at_the_very_end_of_the_think_time() -> None:
    sim, seen = play([(0, 1, 20, 10), (2, 1, 5, 5)], after={2: (1, 7)})
    assert met(seen) == [
        (0, [1], [True]), (2, [2], [False]), (10, [2], [False]), (17, [2], [True]),
    ]  # fmt: skip
    assert sim.records.start_s.tolist() == [0, 17]
    assert sim.records.end_s.tolist() == [10, 22]


def test_an_instance_says_what_a_job_waits_for_as_things_stand() -> None:
    # Job 1 fills the machine, job 2 waits for capacity, job 3 for job 2.
    _, seen = play([(0, 4, 20, 10), (2, 1, 9, 6), (3, 1, 5, 5)], after={3: (2, 7)})
    told = {}
    for instance in seen:
        if instance.dependencies is not None:
            k = instance.queue.id.tolist().index(3)
            given = instance.dependencies
            told[instance.now] = (
                instance.queue.id[given.position].tolist(),
                instance.running.jobs.id[given.running_position].tolist(),
                int(given.think_s[k]), int(given.stated_s[k]), int(given.earliest_s[k]),
            )  # fmt: skip
    assert told == {
        3: ([2], [], 7, 3, 3),
        10: ([2], [], 7, 10, 10),
        16: ([], [], 0, 23, 23),
    }
    assert seen[-1].now == 23
    assert seen[-1].dependencies is None
    # While job 2 runs nothing happens; another submission shows what is said then.
    _, seen = play([(0, 4, 20, 10), (2, 1, 9, 6), (3, 1, 5, 5), (12, 1, 1, 1)], after={3: (2, 7)})
    instance = next(i for i in seen if i.now == 12)
    assert instance.dependencies is not None
    assert instance.running.jobs.id[instance.dependencies.running_position].tolist() == [2]
    assert instance.earliest_s().tolist() == [10 + 9 + 7, 12]


def test_the_wait_counts_from_the_submission() -> None:
    run = simulate(workload([(0, 1, 9, 9), (2, 1, 5, 5)], {2: (1, 3)}), System.pool(4),
                   dependencies=True)  # fmt: skip
    assert run.metrics["wait_s_max"] == 10


def test_a_think_time_that_ends_before_the_submission_calls_nobody() -> None:
    rows = [(0, 1, 5, 5), (1, 4, 30, 30), (6, 4, 3, 3), (40, 1, 5, 5)]
    _, seen = play(rows, after={4: (1, 7)})
    assert [i.now for i in seen] == [0, 1, 5, 6, 35, 40]


def test_a_think_time_that_ends_after_the_submission_is_waited_for() -> None:
    sim, seen = play([(0, 1, 5, 5), (8, 1, 5, 5)], after={2: (1, 7)})
    assert sim.records.start_s.tolist() == [0, 12]
    assert [i.now for i in seen] == [0, 8, 12]


def test_a_killed_job_lets_the_next_one_go_when_it_is_cut() -> None:
    rows = [(0, 1, 10, 30), (0, 1, 5, 5)]
    cut, _ = play(rows, after={2: (1, 0)}, kill_at_limit=True)
    assert cut.records.start_s.tolist() == [0, 10]
    whole, _ = play(rows, after={2: (1, 0)})
    assert whole.records.start_s.tolist() == [0, 30]


def test_jobs_without_runtime_follow_each_other_within_an_instant() -> None:
    sim, _ = play([(5, 1, 9, 0), (5, 1, 9, 0), (5, 1, 9, 4)], after={2: (1, 0), 3: (2, 0)})
    assert sim.records.start_s.tolist() == [5, 5, 5]


def test_several_jobs_may_come_after_one() -> None:
    sim, _ = play([(0, 1, 9, 9), (1, 1, 5, 5), (2, 1, 5, 5)], after={2: (1, 4), 3: (1, 2)})
    assert sim.records.start_s.tolist() == [0, 13, 11]


# ------------------------------------------------------------------ what cannot be honoured


def test_a_job_before_that_is_not_in_the_log_is_counted_and_not_waited_for() -> None:
    sim, _ = play([(0, 1, 9, 9), (1, 1, 5, 5)], after={2: (77, 5)})
    assert sim.records.start_s.tolist() == [0, 1]
    assert sim.notes == {ABSENT: 1}


def test_jobs_that_wait_for_each_other_for_a_later_one_or_for_themselves_are_let_go() -> None:
    rows = [(0, 1, 9, 9), (0, 1, 9, 9), (1, 1, 5, 5), (2, 1, 5, 5)]
    sim, _ = play(rows, after={1: (2, 5), 2: (1, 5), 3: (3, 1), 4: (1, 1)})
    # Of the circle of 1 and 2 the constraint on the one that stands first falls.
    assert sim.records.start_s.tolist() == [0, 14, 1, 10]
    assert sim.notes == {LATER: 2}


def test_a_job_before_that_can_never_run_is_not_waited_for() -> None:
    sim, _ = play([(0, 9, 9, 9), (1, 1, 5, 5), (2, 9, 5, 5)], after={2: (1, 5), 3: (77, 5)})
    assert sim.records.start_s.tolist() == [-1, 1, -1]
    assert sim.notes == {NEVER_RUNS: 1}


class RefusesFirst(Backfill):
    """Refuses job 1 at time 6, starts nothing before."""

    def dispatch(self, instance: Instance) -> Decision:
        first = instance.queue.id == 1
        if not first.any():
            return super().dispatch(instance)
        idle = starting(instance, [], {})
        refused = np.where(first & (instance.now >= 6), Reason.REJECTED, idle.reason)
        return replace(idle, reason=refused.astype(np.int8))


def test_a_job_before_that_is_rejected_is_not_waited_for_any_longer() -> None:
    rows = [(0, 1, 9, 9), (1, 1, 5, 5), (6, 1, 5, 5)]
    sim, seen = play(rows, after={2: (1, 50)}, dispatcher=RefusesFirst())
    assert [(i.now, i.eligible().tolist()) for i in seen] == [
        (0, [True]), (1, [True, False]), (6, [True, False, True]), (6, [True, True]),
    ]  # fmt: skip
    assert sim.records.start_s.tolist() == [-1, 6, 6]


def test_a_job_before_that_the_power_cap_never_lets_run_is_not_waited_for() -> None:
    jobs, system = on_nodes(
        two_nodes(watts={"core": 10}),
        submit=[0, 5], runtime=5, units=[8, 1], preceding=[-1, 1], think=[-1, 0],
    )  # fmt: skip
    run = simulate(jobs, system, "easy", dependencies=True, power_cap=50)
    assert run.jobs["start"].tolist() == [-1, 5]
    assert run.verify() == []


def test_a_rejected_job_leaves_nothing_behind_in_an_instance() -> None:
    rows = [(0, 4, 9, 9), (1, 4, 5, 5), (6, 4, 5, 5), (6, 1, 5, 5), (7, 1, 5, 5)]
    _, seen = play(rows, after={2: (1, 50), 4: (3, 9)}, dispatcher=RefusesFirst())
    given = next(i for i in seen if i.now == 7).dependencies
    assert given is not None
    assert given.think_s.tolist() == [0, 9, 0]
    assert all(to_json(loads(to_json(i))) == to_json(i) for i in seen)


def test_jobs_that_are_all_rejected_are_gone() -> None:
    sim, seen = play([(0, 1, 5, 5), (1, 1, 5, 5)], after={2: (1, 0)}, dispatcher=Reject())
    assert sim.records.reason.tolist() == [Reason.REJECTED] * 2
    assert [i.now for i in seen] == [0, 1]


def test_a_start_before_its_time_is_refused() -> None:
    sim = Simulation(workload([(0, 1, 9, 9), (0, 1, 9, 9)], {2: (1, 0)}), System.pool(4),
                     dependencies=True)  # fmt: skip
    instance = sim.advance()
    assert instance is not None
    with pytest.raises(DecisionError, match="dependency: job 2 starts at 0, and job 1, after"):
        sim.apply(starting(instance, [1], {0: 1}))


# ------------------------------------------------------------------------------ the triggers


@pytest.mark.parametrize("trigger", ["instant", "event"])
@pytest.mark.parametrize("think", [0, 3])
def test_both_triggers_wake_a_job_when_its_time_has_come(trigger: str, think: int) -> None:
    rows = [(0, 1, 20, 10), (2, 1, 5, 5), (4, 3, 9, 9)]
    sim, _ = play(rows, after={2: (1, think)}, trigger=trigger)
    assert sim.records.start_s.tolist() == [0, 10 + think, 4]


def test_with_the_event_trigger_the_submission_of_a_job_that_must_wait_is_no_dispatch() -> None:
    _, seen = play([(0, 1, 20, 10), (2, 1, 5, 5)], after={2: (1, 3)}, trigger="event")
    assert [i.now for i in seen] == [0, 10, 13]


def test_with_the_event_trigger_an_exact_end_counts_for_the_job_after_it() -> None:
    rows = [(0, 1, 10, 10), (2, 1, 5, 5), (10, 1, 5, 5)]
    sim, seen = play(rows, after={2: (1, 0), 3: (1, 4)}, trigger="event")
    assert sim.records.start_s.tolist() == [0, 10, 14]
    assert met(seen)[1] == (10, [2, 3], [True, False])
    assert seen[1].earliest_s().tolist() == [10, 14]


# --------------------------------------------------------------------------- random logs


@st.composite
def dependent_workloads(draw: st.DrawFn, system: System) -> Workload:
    """Workloads of which many jobs come after another: an earlier one, a later one, none."""
    plain = draw(workloads(system))
    jobs = len(plain)
    preceding = draw(st.lists(st.integers(-1, jobs), min_size=jobs, max_size=jobs))
    think = draw(st.lists(st.integers(-1, 9), min_size=jobs, max_size=jobs))
    return replace(
        plain,
        preceding=np.array(preceding, dtype=np.int64),
        think_s=np.array(think, dtype=np.int64),
    )


def released(load: Workload, end_s: Mapping[int, int]) -> list[int]:
    """From when on each job may start, given when the others ended; in plain words."""
    times = []
    for row in range(len(load)):
        before, time = int(load.preceding[row]), int(load.table.submit_s[row])
        if 0 <= before < row and end_s.get(before, -1) >= 0:
            time = max(time, end_s[before] + max(0, int(load.think_s[row])))
        times.append(time)
    return times


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from(["easy", "conservative", "prb", "fifo"]),
       st.sampled_from(["instant", "event"]), st.booleans())  # fmt: skip
def test_every_schedule_honours_the_log_and_leaves_nobody_behind(
    data: st.DataObject, dispatcher: str, trigger: str, kill: bool
) -> None:
    system = data.draw(systems())
    load = data.draw(dependent_workloads(system))
    run = simulate(load, system, dispatcher, trigger=trigger, kill_at_limit=kill, dependencies=True)
    assert verify.run(run.jobs, system, dependencies=True) == []
    end_s = dict(enumerate(run.jobs["end"].tolist()))
    for start, first in zip(run.jobs["start"], released(load, end_s), strict=True):
        assert start == -1 or start >= first


@settings(max_examples=examples(100))
@given(st.data(), st.sampled_from(["instant", "event"]))
def test_on_a_machine_with_room_for_all_each_job_starts_the_moment_it_may(
    data: st.DataObject, trigger: str
) -> None:
    system = System.pool(1000)
    load = data.draw(dependent_workloads(System.pool(4)))
    run = simulate(load, system, "easy", trigger=trigger, dependencies=True)
    end_s = dict(enumerate(run.jobs["end"].tolist()))
    assert run.jobs["start"].tolist() == released(load, end_s)


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from(["instant", "event"]))
def test_every_instance_met_is_what_its_file_says(data: st.DataObject, trigger: str) -> None:
    system = data.draw(systems())
    load = data.draw(dependent_workloads(system))
    rule, bound = Backfill(), Starvation(5, 3)
    sim = Simulation(load, system, trigger=trigger, dependencies=True, starvation=bound)
    while (instance := sim.advance()) is not None:
        again = loads(to_json(instance))
        assert to_json(again) == to_json(instance)
        assert again.starvation == bound
        # The file sorts jobs submitted together by id, as the workloads here do.
        assert again.earliest_s().tolist() == instance.earliest_s().tolist()
        assert again.eligible().tolist() == instance.eligible().tolist()
        sim.apply(rule.dispatch(instance))


@settings(max_examples=examples(40))
@given(st.data(), st.integers(0, 30))
def test_a_simulation_that_was_saved_goes_on_as_it_would_have(
    data: st.DataObject, steps: int
) -> None:
    system = data.draw(systems())
    load = data.draw(dependent_workloads(system))
    rule = Backfill()
    whole = Simulation(load, system, dependencies=True)
    saved = pickle.dumps(whole)
    while (instance := whole.advance()) is not None:
        whole.apply(rule.dispatch(instance))
        steps -= 1
        if steps == 0:
            saved = pickle.dumps(whole)
    again = pickle.loads(saved)
    again.workload = load
    while (instance := again.advance()) is not None:
        again.apply(rule.dispatch(instance))
    assert again.records.start_s.tolist() == whole.records.start_s.tolist()


def test_an_instance_tells_nothing_of_jobs_that_are_not_submitted_yet() -> None:
    _, seen = play([(0, 1, 5, 5), (1, 4, 3, 3), (30, 1, 5, 5)], after={3: (2, 90)})
    assert [i.dependencies is None for i in seen] == [True, True, True, False, True]
