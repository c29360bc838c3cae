from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import dispatch, verify
from cpdispatch.bounded import Bounded, EasyShadow
from cpdispatch.compiled import shadow as kernels
from cpdispatch.decision import NO_START, Decision
from cpdispatch.errors import InputError, UsageError
from cpdispatch.events import CAPACITY, CapacityRow, Events
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.instance import Instance, Starvation, Stopped, dump, load, loads
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NodeGroup, System
from cpdispatch.verify import Kind
from cpdispatch.workloads import from_table, prepare
from cpdispatch.workloads.generate import eurora_sample
from tests.effort import examples
from tests.oracles.plain_shadow import PlainShadow
from tests.simulator.cases import on_nodes, starting, two_nodes
from tests.strategies import systems, workloads

RULES = (
    "easy-saf-saf:wait=0.6", "easy-spf-fcfs:wait=1", "easy-wfp3-saf:wait=0.4",
    "easy-unicef-f1:wait=0.6,allocate=best-fit", "easy-lqf-wfp3:wait=0.3,limits=upper",
    "easy-saf-saf:wait=0.5,depth=3", "conservative:wait=0.6",
)  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[Workload, System]:
    system = draw(systems(max_nodes=4))
    return draw(workloads(system, tiers=True)), system


def easy_waits(run: Run) -> list[float]:
    """The bound on waits at each decision."""
    table = run.decision_table
    return table["easy_wait"].to_pylist() if "easy_wait" in table.column_names else []


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=examples(60))
@given(cases(), st.sampled_from(["walltime", "last2"]))
def test_compiled_replays_and_the_general_loop_bound_waits_alike(
    rule: str, case: tuple[Workload, System], predictor: str
) -> None:
    runs = [simulate(*case, rule, predictor=predictor, compiled=how) for how in (True, False)]
    assert [run.about["compiled"] for run in runs] == [True, False]
    for run in runs:
        assert run.verify() == []
    assert runs[0].job_table.equals(runs[1].job_table)
    assert easy_waits(runs[0]) == easy_waits(runs[1])


@settings(max_examples=examples(150))
@given(
    st.integers(1, 6),
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(1, 6), st.integers(1, 30), st.integers(0, 9),
            st.integers(1, 40),
        ),
        min_size=1, max_size=40,
    ),
    st.integers(1, 4),
)  # fmt: skip
def test_the_shadow_is_its_plain_twin_also_when_it_forgets_and_grows(
    processors: int, jobs: list[tuple[int, int, int, int, int]], room: int
) -> None:
    """Jobs of (time since the one before, processors, requested, wait in reality, runtime)."""
    fast, plain = kernels.fresh(processors, room), PlainShadow(processors)
    submit = np.cumsum([job[0] for job in jobs]).tolist()
    events = sorted(
        (time, kind, k)
        for k, (_, _, _, wait, runtime) in enumerate(jobs)
        for kind, time in (
            ("submit", submit[k]), ("starts", submit[k] + wait), ("z", submit[k] + wait + runtime)
        )
    )  # fmt: skip
    events.sort(key=lambda event: (event[0], event[1] != "submit", event[1], event[2]))
    run: dict[int, int] = {}
    for time, kind, k in events:
        _, need, requested, _, runtime = jobs[k]
        need = min(need, processors)
        if kind == "submit":
            if not kernels.has_room(fast, 1):
                fast = kernels.grown(fast, 1)
            kernels.submit(fast, k, time, need, requested)
            plain.submit(k, time, need, requested)
        elif kind == "starts":
            kernels.starts(fast, k, time)
            plain.starts(k, time)
            run[k] = time
        elif k % 7 == 3:
            del run[k]
            kernels.withdraw(fast, k)
            plain.withdraw(k)
        else:
            del run[k]
            kernels.ends(fast, k, runtime, need, requested)
            plain.ends(k, runtime)
        work = sum(min(jobs[k][1], processors) * (time - start) for k, start in run.items())
        assert kernels.follow(fast, time, work) == plain.follow(time, work)


def test_it_forgets_what_has_ended() -> None:
    fast = kernels.fresh(1, 8)
    for k in range(1_000):
        assert kernels.has_room(fast, 1)
        kernels.submit(fast, k, 10 * k, 1, 5)
        kernels.follow(fast, 10 * k, 0)
        kernels.ends(fast, k, 5, 1, 5)
        kernels.follow(fast, 10 * k + 9, 0)


POOL = {"resources": ["core"], "groups": [{"name": "pool", "nodes": 1, "capacity": [4]}]}


def at(time: int, queue: list[dict[str, object]], running: list[dict[str, object]]) -> Instance:
    waiting = [{"units": 2, "unit": [1], "duration": 10, "requested": 10, **job} for job in queue]
    held = [
        {"units": 4, "unit": [1], "duration": 100, "requested": 100, "nodes": {"0": 4}, **job}
        for job in running
    ]
    file = {"format": "cpdispatch-instance/2", "time": time, **POOL}
    return loads(msgspec.json.encode({**file, "queue": waiting, "running": held}))


def test_jobs_that_ran_before_it_came_are_in_the_way_here_too() -> None:
    easy, running = EasyShadow(), [{"id": 1, "start": 0}]
    assert easy.look(at(50, [{"id": 2, "submit": 50}], running)) == 0
    # It has run for 50 s: the shadow believes that it will for 50 s more, and longer from then on.
    assert easy.look(at(70, [{"id": 2, "submit": 50}], running)) == 20
    assert easy.look(at(71, [{"id": 2, "submit": 50}], [])) == 21
    assert easy.look(at(90, [{"id": 2, "submit": 50}], [])) == 21


def test_a_job_that_leaves_the_queue_waits_no_more() -> None:
    easy, running = EasyShadow(), [{"id": 1, "start": 0}]
    easy.look(at(1, [{"id": 2, "submit": 1}, {"id": 3, "submit": 1}], running))
    for time in range(2, 9):
        longest_s = easy.look(at(time, [{"id": 3, "submit": 1}], running))
    assert longest_s == 7
    assert easy.look(at(9, [], [])) == 8
    assert easy.look(at(50, [{"id": 4, "submit": 50}], [])) == 8


def test_a_start_that_did_not_happen_is_taken_back() -> None:
    easy = EasyShadow()
    instance = at(5, [{"id": 2, "submit": 5}], [])
    easy.look(instance)
    easy.started(instance, dispatch.make("easy").dispatch(instance))
    easy.look(at(6, [{"id": 2, "submit": 5}], []))
    assert 2 in easy._queued
    assert not easy._running


@pytest.mark.parametrize(("goes_on", "ran_s"), [(True, 9), (False, 5)])
def test_a_stopped_job_has_not_ended_and_a_killed_one_starts_anew(
    goes_on: bool, ran_s: int
) -> None:
    easy, job = EasyShadow(), {"id": 2, "submit": 0, "restartable": True, "units": 4}
    first = at(0, [job], [])
    easy.look(first)
    easy.started(first, starting(first, [0], {0: 4}))
    halted = replace(at(3, [job], []), stopped=Stopped.of({0: (0, {0: 4})}))
    easy.look(halted)
    assert 2 in easy._running
    easy.started(halted, starting(halted, [0] * goes_on, {0: 4}))
    assert (2 in easy._running) == goes_on
    if not goes_on:
        again = at(4, [job], [])
        easy.look(again)
        easy.started(again, starting(again, [0], {0: 4}))
    easy.look(at(9, [], []))
    assert easy._shadow is not None
    totals, before = easy._shadow.totals, kernels.fresh(4).totals
    assert totals.ends_told == 1
    assert totals.work_done - before.work_done == 4 * ran_s


USER = on_nodes(
    two_nodes(limits=[{"most": 1, "of": "jobs", "per": "user"}]),
    submit=[10, 10, 30, 90_000], runtime=[40_000, 40_000, 10, 10], user=["a", "a", "a", "b"],
    units=1,
)  # fmt: skip
BEGIN = on_nodes(
    two_nodes(), submit=[10, 20, 90_000], runtime=10, units=1, begin=[86_400, -1, -1]
)  # fmt: skip
LATE_BEGIN = on_nodes(
    two_nodes(), submit=[10, 90_000], runtime=10, units=1, begin=[86_400, -1]
)  # fmt: skip
MEANWHILE = on_nodes(
    two_nodes(), submit=[6, 20, 90_000], runtime=[100_000, 10, 10], units=1, core=[1, 3, 1]
)
LESS = on_nodes(two_nodes(), submit=[10, 20, 90_000], runtime=10, units=1, core=[4, 1, 1])
FEWER_CORES = Events(
    ("case.csv",),
    (
        CapacityRow(2, 5, CAPACITY, "0-1", (("core", 2),)),
        CapacityRow(3, 86_400, CAPACITY, "0-1", (("core", 4),)),
    ),
)


@pytest.mark.parametrize(
    ("case", "how", "start_s"),
    [
        (USER, {}, [10, 40_010, 80_010, 90_000]),
        (USER, {"compiled": False}, [10, 40_010, 80_010, 90_000]),
        (BEGIN, {}, [86_400, 20, 90_000]),
        (LATE_BEGIN, {}, [86_400, 90_000]),
        (LESS, {"events": FEWER_CORES}, [86_400, 20, 90_000]),
        (MEANWHILE, {"events": FEWER_CORES, "trigger": "event"}, [6, 86_400, 90_000]),
    ],
    ids=[
        "limit",
        "limit, general loop",
        "begin time",
        "begin time of the first job",
        "capacity",
        "capacity, nobody asked meanwhile",
    ],
)
def test_waits_that_are_not_for_nodes_are_no_waits_under_easy(
    case: tuple[Workload, System], how: dict[str, Any], start_s: list[int]
) -> None:
    run = simulate(*case, "easy:wait=0.8", **how)
    assert run.verify() == []
    assert run.jobs["start"].tolist() == start_s
    assert max(easy_waits(run)) == 0


@pytest.mark.parametrize("how", [{}, {"compiled": False}, {"trigger": "event"}])
def test_what_waits_for_nodes_waits_since_its_submission_whenever_it_is_seen(
    how: dict[str, Any],
) -> None:
    """Under the trigger `event` no decision comes when a job is submitted that does not fit."""
    case = on_nodes(two_nodes(), submit=[0, 1, 2], runtime=[1_000, 1_000, 10], units=8)
    assert easy_waits(simulate(*case, "easy:wait=0.8", **how))[-2:] == [999, 1_998]


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_think_time_is_no_wait_under_easy(trigger: str) -> None:
    case = on_nodes(
        two_nodes(), submit=[0, 1, 2], runtime=[100, 1_000, 10], units=8,
        preceding=[-1, 1, -1], think=[-1, 50, -1],
    )  # fmt: skip
    run = simulate(*case, "easy:wait=0.8", dependencies=True, trigger=trigger)
    assert run.jobs["start"].tolist() == [0, 150, 100]
    assert max(easy_waits(run)) == 98


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_that_comes_within_its_think_time_waits_from_the_end_of_that_on(trigger: str) -> None:
    case = on_nodes(
        two_nodes(), submit=[0, 1, 120, 200], runtime=[100, 900, 10, 10], units=8,
        preceding=[-1, -1, 1, -1], think=[-1, -1, 50, -1],
    )  # fmt: skip
    run = simulate(*case, "easy:wait=0.8", dependencies=True, trigger=trigger)
    assert run.jobs["start"].tolist()[:2] == [0, 100]
    assert max(easy_waits(run)) == 1_000 - 150


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_the_longest_wait_is_that_of_the_job_that_came_first(trigger: str) -> None:
    """Job 2 was submitted before job 3, and comes after it."""
    case = on_nodes(
        two_nodes(), submit=[0, 5, 10, 20], runtime=[1_000, 500, 10, 10], units=8,
        begin=[-1, 100, -1, 300],
    )  # fmt: skip
    run = simulate(*case, "easy:wait=0.8", trigger=trigger)
    assert run.verify() == []
    waits = dict(zip(run.decisions["time"], easy_waits(run), strict=True))
    assert waits[300] == 290


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_job_that_waits_for_another_waits_for_nodes_from_its_end_on(trigger: str) -> None:
    case = on_nodes(
        two_nodes(), submit=[0, 1, 2], runtime=[100, 1_000, 10], units=8, preceding=[-1, 1, -1],
    )  # fmt: skip
    run = simulate(*case, "easy:wait=0.8", dependencies=True, trigger=trigger)
    assert max(easy_waits(run)) == 98  # of job 3, while job 2 has waited for nothing else


@pytest.mark.parametrize("trigger", ["instant", "event"])
def test_a_killed_job_goes_on_waiting_until_it_is_back_in_the_queue(trigger: str) -> None:
    """Its nodes are clear in the second in which another job ends, which is an event before."""
    columns = {
        "id": [1, 2, 3, 4], "submit": [0, 0, 0, 6], "requested": [20, 20, 30, 10],
        "runtime": [10, 10, 15, 5], "units": [1, 2, 1, 2], "core": 1,
    }  # fmt: skip
    case = prepare(from_table(columns), "2", restartable="all")
    run = simulate(*case, "easy:wait=1.0,test=5,tests=backfill", trigger=trigger, restart_cost_s=5)
    assert run.verify() == []
    assert max(easy_waits(run)) == 34


def test_a_job_whose_predecessor_ends_in_a_later_event_of_the_second_has_not_waited() -> None:
    case = on_nodes(
        two_nodes(), submit=[0, 0, 0], runtime=[100, 100, 50], units=4, preceding=[-1, -1, 2],
    )  # fmt: skip
    run = simulate(*case, "easy:wait=0.8", dependencies=True, trigger="event")
    assert run.verify() == []
    assert max(easy_waits(run)) == 0


class _FromLater:
    """Another rule at first, and then EASY with a bound on waits."""

    name = "from later"

    def __init__(self, later_s: int) -> None:
        self.first, self.bounded = dispatch.make("fifo"), dispatch.make("easy:wait=0.8")
        self.later_s = later_s
        self.waits: list[int] = []

    def dispatch(self, instance: Instance) -> Decision:
        if instance.now < self.later_s:
            return self.first.dispatch(instance)
        decision = self.bounded.dispatch(instance)
        self.waits.append(self.bounded.shadow.longest_s)  # type: ignore[attr-defined]
        return decision


@pytest.mark.parametrize("predictor", [None, "last2"])
def test_a_rule_that_is_asked_later_knows_since_when_jobs_wait(predictor: str | None) -> None:
    case = on_nodes(two_nodes(), submit=[0, 1, 500], runtime=[1_000, 10, 5], units=8)
    day = _FromLater(400)
    assert simulate(*case, day, predictor=predictor).verify() == []
    assert day.waits[0] == 499


def test_since_when_jobs_wait_is_known_by_their_ids() -> None:
    """A part of the queue, which some rule passes on, has the whole of it."""
    easy, running = EasyShadow(), [{"id": 1, "start": 0}]
    easy.look(at(0, [], running))
    came_s = np.array([[2, 3], [10, 600]])
    seen = replace(at(1_000, [{"id": 3, "submit": 500}], running), came_s=came_s)
    assert easy.look(seen) == 400
    with pytest.raises(InputError, match=r"came_s: an int64 array of shape \(2, 2\)"):
        replace(seen, came_s=came_s[:1])
    for wrong in (np.array([0, 5]), [[1, 2], [0]]):
        with pytest.raises(InputError, match=r"came_s: an int64 array of shape \(2, 1\)"):
            replace(seen, came_s=wrong)


def test_what_waited_before_it_came_has_waited_since_its_submission() -> None:
    easy, running = EasyShadow(), [{"id": 1, "start": 0}]
    assert easy.look(at(50, [{"id": 2, "submit": 20}], running)) == 30
    # What comes later was kept back by something else until now.
    assert easy.look(at(60, [{"id": 2, "submit": 20}, {"id": 3, "submit": 0}], running)) == 40


def test_jobs_that_run_ahead_of_those_that_waited_hide_no_wait() -> None:
    """Each takes all there is of one resource type: on a pool of processors both have no room."""
    file = {
        "format": "cpdispatch-instance/1", "time": 500, "resources": ["core", "gpu"],
        "groups": [{"name": "a", "nodes": 1, "capacity": [4, 4]}],
        "running": [
            {"id": k, "start": 0, "duration": 900, "units": 4, "unit": unit, "nodes": {"0": 4}}
            for k, unit in ((1, [1, 0]), (2, [0, 1]))
        ],
        "queue": [{"id": 3, "submit": 40, "duration": 9, "units": 2, "unit": [1, 0]}],
    }  # fmt: skip
    assert EasyShadow().look(loads(msgspec.json.encode(file))) == 460


def test_a_job_that_the_system_has_no_room_for_yet_waits_where_easy_has() -> None:
    """It is in the queue of EASY on the whole system, and starts there at once."""
    easy, asked = EasyShadow(), at(5, [{"id": 2, "submit": 5, "units": 4}], [])
    easy.look(at(1, [], []))
    small = replace(asked.system, groups=(NodeGroup("pool", 1, (2,)),))
    easy.look(replace(asked, system=small, free=asked.free - 2))
    assert 2 in easy._queued


def test_where_nobody_waits_under_easy_nobody_is_late() -> None:
    easy = EasyShadow()
    bound = WaitBound().at(easy.look(at(5, [{"id": 2, "submit": 5}], [])))
    assert bound == Starvation(0, 0, 700)
    assert not replace(at(5, [{"id": 2, "submit": 5}], []), starvation=bound).starved().any()


class _Ignores:
    """Plans the job that has waited longest last."""

    name = "ignores"

    def dispatch(self, instance: Instance) -> Decision:
        decision = dispatch.make("hcp:wait=off,cp=off").dispatch(instance)
        start_s = decision.start_s.copy()
        start_s[start_s != NO_START] = instance.now + 1_000
        return replace(
            decision, start_s=start_s, placements=replace(decision.placements).of({}),
            certificate=replace(decision.certificate, objective="slowdown"),
        )  # fmt: skip


def test_a_plan_that_ignores_the_bound_is_found() -> None:
    instance = at(500, [{"id": 2, "submit": 0}], [])
    bounded = Bounded(_Ignores())
    bounded.shadow.look(at(0, [{"id": 2, "submit": 0}], [{"id": 1, "start": 0}]))
    found = verify.decision(instance, bounded.dispatch(instance))
    assert [violation.kind for violation in found] == [Kind.STARVATION]
    kept = Bounded(dispatch.make("hcp:wait=off,cp=off"))  # type: ignore[arg-type]
    assert verify.decision(instance, kept.dispatch(instance)) == []


def four(*jobs: tuple[int, int, int]) -> pd.DataFrame:
    """A schedule on four cores of jobs of (submit, cores, start), 50 s each."""
    rows = [
        {"id": k, "submit": submit, "start": start, "end": start + 50, "requested_s": 50,
         "runtime_s": 50, "killed": False, "units": cores, "request_core": 1, "nodes": [0],
         "node_units": [cores], "reason": "started"}
        for k, (submit, cores, start) in enumerate(jobs)
    ]  # fmt: skip
    return pd.DataFrame(rows)


FOUR = System("four", ("core",), (NodeGroup("cpu", 1, (4,)),))
RULE = {"in_turn_after": 600, "wide": 0, "first_after": 1000}


@pytest.mark.parametrize(
    ("jobs", "easy_wait", "rule", "words"),
    [
        # Job 1 has waited for 100 s at 100, and may wait for 90.
        ([(0, 4, 0), (0, 2, 150), (0, 4, 100)], 90, {}, "job 1, submitted at 0, does not start at"),
        ([(0, 4, 0), (0, 2, 100), (0, 4, 150)], 90, {}, None),
        ([(0, 4, 0), (0, 2, 150), (0, 4, 100)], 100, {}, None),
        ([(0, 4, 0), (0, 2, 150), (0, 4, 100)], 100, {"first_after": 600}, "allowed 60 s"),
        ([(0, 4, 0), (0, 2, 150), (0, 4, 100)], 100, {"first_after": None}, None),
        # Half of the system: its time is shorter by a quarter.
        ([(0, 4, 0), (0, 2, 150), (0, 4, 100)], 100, {"wide": 500}, "allowed 75 s"),
        # It does not fit beside what runs.
        ([(0, 4, 90), (0, 2, 150), (0, 4, 200)], 90, {}, None),
    ],
)
def test_a_late_job_that_was_passed_over_is_found(
    jobs: list[tuple[int, int, int]], easy_wait: int, rule: dict[str, int | None], words: str | None
) -> None:
    decisions = pd.DataFrame({"time": [0, 100], "easy_wait": [0, easy_wait]})
    found = verify.run(four(*jobs), FOUR, decisions=decisions, wait=RULE | rule)
    assert [violation.kind for violation in found] == [Kind.LATE] * (words is not None)
    assert words is None or words in found[0].text


def test_the_longest_wait_under_easy_never_falls() -> None:
    decisions = pd.DataFrame({"time": [10, 100], "easy_wait": [7, 6]})
    found = verify.run(four((0, 4, 0)), FOUR, decisions=decisions, wait=RULE)
    assert [violation.text for violation in found] == ["easy_wait falls from 7 to 6 at 100"]


def test_of_many_waits_past_the_bound_the_first_are_named() -> None:
    jobs = [(0, 4, 0), (0, 2, 2000)] + [(0, 4, 50 * k) for k in range(1, 31)]
    decisions = pd.DataFrame({"time": [50 * k for k in range(31)], "easy_wait": [1] * 31})
    found = verify.run(four(*jobs), FOUR, decisions=decisions, wait=RULE)
    assert len(found) == 10
    assert found[-1].text.endswith("more of late")


def test_an_instance_keeps_how_much_less_the_wide_may_wait(tmp_path: Path) -> None:
    instance = replace(at(5, [{"id": 2, "submit": 0}], []), starvation=Starvation(4, 2, 500))
    dump(instance, tmp_path / "instance.json")
    again = load(tmp_path / "instance.json")
    assert again.starvation == Starvation(4, 2, 500)
    # It asks for half of the system: three quarters of the times hold for it.
    assert again.starved().tolist() == [True]
    assert again.latest_s().tolist() == [5]
    assert again.overdue().tolist() == [True]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("easy:wait=2", "a share of EASY's longest wait, from 0.001 to 1, or off, is needed"),
        ("best:threshold=24h", "parameter threshold was removed"),
        ("best:adapt=off", "parameter adapt was removed"),
        ("hcp:wait=soon", "is needed"),
    ],
)
def test_bad_bounds_are_refused(spec: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dispatch.make(spec)


def test_names_and_predictors_are_those_of_the_dispatcher() -> None:
    assert dispatch.make("best").name == "best"
    assert dispatch.make("hcp:wait=0.5").name == "hcp:wait=0.5"
    assert dispatch.predictor_of(dispatch.make("best")) == "mixture"
    assert not isinstance(dispatch.make("hcp:wait=off"), Bounded)


class _OnFewer:
    """Asks another dispatcher, for a while as if some nodes were down."""

    name = "on fewer"

    def __init__(self, dispatcher: str, until_s: int) -> None:
        self.other, self.until_s = dispatch.make(dispatcher), until_s

    def dispatch(self, instance: Instance) -> Decision:
        free, down = instance.free.copy(), np.arange(40 * (instance.now < self.until_s))
        free[down] = 0
        return self.other.dispatch(replace(instance, free=free, down=down))


def test_a_dispatcher_of_ones_own_may_change_what_another_one_is_asked_about() -> None:
    jobs, system = prepare(eurora_sample(200), "eurora")
    fewer = _OnFewer("hcp:cp=off", int(jobs.table.submit_s[190]))
    assert simulate(jobs, system, fewer).verify() == []
