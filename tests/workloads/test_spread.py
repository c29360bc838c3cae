"""How units lie on nodes: tables of jobs, replays by both loops, models, and what `verify` says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import solution, system, verify
from cpdispatch.access.spread import LIMIT_TYPE, grouped
from cpdispatch.dispatch import REGISTRY, answer_of
from cpdispatch.dispatch import make as dispatcher_of
from cpdispatch.errors import InputError
from cpdispatch.heuristics.schedule_input import jobs_of
from cpdispatch.instance import Instance, loads, to_json
from cpdispatch.jobs import ANYHOW, SPREADS, Column, JobTable, Spread, Workload
from cpdispatch.models.engine import Engine
from cpdispatch.models.node_problem import own_limits
from cpdispatch.simulator import Run, Simulation, simulate
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads import from_table, prepare, table
from tests import strategies
from tests.effort import examples

FOUR = System("four", ("core", "mem"), (NodeGroup("n", 4, (8, 64)),), 1024)
ONE = {"submit": 0, "runtime": 5, "requested": 5, "core": 1}


def jobs(**columns: Any) -> Workload:
    count = len(next(iter(columns.values())))
    return from_table({"id": range(1, count + 1)} | ONE | columns)


def ran(workload: Workload, name: str = "easy", system: System = FOUR, **rules: Any) -> Run:
    run = simulate(*prepare(workload, system), name, **rules)
    assert verify.run(run.jobs, run.system) == []
    return run


def lies(run: Run) -> list[list[int]]:
    """How many units of the log each job had on each of its nodes."""
    together = run.jobs.get("together", [1] * len(run.jobs))
    return [
        [k * u for u in units] for units, k in zip(run.jobs["node_units"], together, strict=True)
    ]


# ------------------------------------------------------------------------------------ groups


@pytest.mark.parametrize(
    ("units", "asked", "found"),
    [
        (6, {}, (1, 6)),
        (6, {"units_per_node": 2}, (2, 1)),
        (6, {"units_per_node_max": 2}, (1, 2)),
        (6, {"units_per_node_min": 2}, (2, 3)),
        (7, {"units_per_node_min": 2}, (7, 1)),
        (6, {"nodes_max": 1}, (6, 1)),
        (6, {"nodes_max": 4}, (2, 3)),
        (6, {"nodes_min": 3, "nodes_max": 3}, (2, 1)),
        (7, {"nodes_min": 3}, (1, 3)),
    ],
)
def test_units_are_grouped_as_little_as_is_asked_for(
    units: int, asked: dict[str, int], found: tuple[int, int]
) -> None:
    assert grouped(units, Spread(**asked)) == found


@given(st.integers(1, 30), st.tuples(*(st.integers(0, 6) for _ in SPREADS)))
def test_every_way_to_place_groups_is_as_was_asked_for(units: int, numbers: Any) -> None:
    spread = Spread(*numbers)
    try:
        together, most = grouped(units, spread)
    except InputError:
        return
    assert units % together == 0
    groups = units // together
    for nodes in range(-(-groups // most), groups + 1):
        # The most uneven way to place the groups on so many nodes.
        left, on = groups, []
        for k in range(nodes, 0, -1):
            on.append(min(most, left - (k - 1)))
            left -= on[-1]
        units_on = [together * many for many in on]
        assert sum(units_on) == units
        assert not spread.units_per_node or set(units_on) == {spread.units_per_node}
        assert min(units_on) >= spread.units_per_node_min
        assert max(units_on) <= (spread.units_per_node_max or units)
        assert spread.nodes_min <= nodes <= (spread.nodes_max or units)


# ----------------------------------------------------------------------------------- replays


@pytest.mark.parametrize("compiled", [True, False])
def test_each_wish_is_kept_in_a_replay(compiled: bool) -> None:
    wishes = {
        "units_per_node": [2, 0, 0, 0, 0, 0],
        "units_per_node_min": [0, 4, 0, 0, 0, 0],
        "units_per_node_max": [0, 0, 1, 0, 0, 0],
        "nodes_min": [0, 0, 0, 3, 0, 0],
        "nodes_max": [0, 0, 0, 0, 1, 0],
    }
    run = ran(jobs(units=[4, 4, 4, 4, 8, 3], **wishes), compiled=compiled)
    found = lies(run)
    assert found[0] == [2, 2]
    assert found[1] == [4]
    assert found[2] == [1, 1, 1, 1]
    assert max(found[3]) == 1
    assert found[4] == [8]
    assert run.about["compiled"] == compiled


def test_a_limit_that_holds_anyway_changes_nothing() -> None:
    kept, system = prepare(jobs(units=[2, 1], units_per_node_max=[2, 1]), FOUR)
    assert system is FOUR
    assert kept.resources == FOUR.resources
    with_limit = prepare(jobs(units=[2, 1], units_per_node_max=[1, 1]), FOUR)[1]
    assert with_limit.resources == (*FOUR.resources, LIMIT_TYPE)


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("easy", {"dependencies": True}),
        ("easy", {"power_cap": 1000}),
        ("hcp:limit=0.05", {}),
        ("best", {"trigger": "event", "predictor": "walltime"}),
        ("easy:wait=0.8", {"trigger": "event"}),
        ("thesis-pcp4:limit=0.2", {"power_cap": 1000}),
    ],
)
def test_a_limited_job_runs_beside_others_under_every_rule(name: str, rules: Any) -> None:
    """What the running job asks for is below 0, and what is free is more than there is."""
    workload = jobs(
        units=[2, 5, 1], units_per_node_max=[1, 0, 0], submit=[0, 1, 2], core=8,
        preceding=[-1, -1, 2], think=[-1, -1, 1],
    )  # fmt: skip
    run = ran(workload, name, replace(FOUR, watts={"core": 1}), **rules)
    assert lies(run)[0] == [1, 1]
    assert (run.jobs["start"] >= 0).sum() == 2


def test_a_job_that_wants_more_nodes_than_there_are_never_fits() -> None:
    run = ran(jobs(units=[5, 4], units_per_node_max=[1, 1]))
    assert run.jobs["reason"].tolist() == ["never_fits", "started"]


def test_what_is_asked_for_on_each_node_is_added_once() -> None:
    workload = jobs(units=[4, 2], mem_gb=0, node_mem_gb=[10, 20], units_per_node=[2, 2])
    kept, _ = prepare(workload, FOUR)
    assert kept.memory_unit_kb == 1024
    assert kept.table.request.tolist() == [[2, 10 * 1024, -1], [2, 20 * 1024, 0]]
    assert kept.table.units.tolist() == [2, 1]
    with pytest.raises(InputError, match=r"job 1 asks for node_mem on each node.*units_per_node"):
        prepare(jobs(units=[4], node_mem=[10]), FOUR)
    with pytest.raises(InputError, match="memory is stated in two units"):
        jobs(units=[4], mem_gb=[1], node_mem_mb=[10])


def test_a_system_is_prepared_once() -> None:
    columns = {"id": [1], "submit": [0], "runtime": [9], "units": 2, "core": 1, "nodes_min": 2}
    machine = System("two", ("core",), (NodeGroup("a", 2, (2,)),))
    _, prepared = prepare(from_table(columns), machine)
    with pytest.raises(InputError, match=r"system two: .*named twice.*give it as it was read"):
        prepare(from_table(columns), prepared)


def test_a_wish_that_cannot_be_is_refused_by_its_job() -> None:
    with pytest.raises(InputError, match=r"field units_per_node: job 2: the job's 3 units"):
        prepare(jobs(units=[2, 3], units_per_node=[2, 2]), FOUR)


@pytest.mark.parametrize("extension", [".csv", ".parquet"])
def test_wishes_are_written_and_read_again(tmp_path: Path, extension: str) -> None:
    asked = {name: [k, 0] for k, name in enumerate(SPREADS, start=1)}
    workload = jobs(units=[6, 1], priority=[5, 0], node_mem_mb=[7, 0], **asked)
    table.write(workload, tmp_path / f"jobs{extension}")
    again = table.read(tmp_path / f"jobs{extension}")
    for name in SPREADS:
        assert again.spreads(name).tolist() == workload.spreads(name).tolist() == asked[name]
    assert again.resources == workload.resources == ("core", "node_mem")
    assert again.table.priority.tolist() == [5, 0]


@st.composite
def cases(draw: st.DrawFn, max_jobs: int = 14) -> tuple[Workload, System]:
    system = draw(strategies.systems())
    workload = draw(strategies.workloads(system, max_jobs))
    numbers = st.tuples(*(st.sampled_from([0, 0, 0, 1, 2, 3]) for _ in SPREADS))
    kinds, of = [ANYHOW], []
    for units in workload.table.units.tolist():
        spread = Spread(*draw(numbers))
        try:
            grouped(units, spread)
        except InputError:
            spread = ANYHOW
        kinds.append(spread)
        of.append(len(kinds) - 1)
    return replace(workload, spread=tuple(kinds), spread_of=np.array(of)), system


def as_asked(case: tuple[Workload, System], run: Run) -> None:
    """By a count of the test's own, on each node of each job that ran."""
    workload, _ = case
    for job, on in enumerate(lies(run)):
        if run.jobs["start"][job] < 0:
            continue
        spread = workload.spread[int(workload.spread_of[job])]  # type: ignore[index]
        assert sum(on) == workload.table.units[job]
        assert not spread.units_per_node or set(on) == {spread.units_per_node}
        assert min(on) >= spread.units_per_node_min
        assert max(on) <= (spread.units_per_node_max or sum(on))
        assert spread.nodes_min <= len(on) <= (spread.nodes_max or len(on))


@settings(max_examples=examples(60))
@given(
    cases(),
    st.sampled_from(["easy", "easy-saf-saf", "conservative", "best", "easy:allocate=best-fit"]),
)
def test_both_loops_keep_what_is_asked_for_and_are_the_same(
    case: tuple[Workload, System], name: str
) -> None:
    runs = []
    for compiled in (True, False):
        run = simulate(*prepare(*case), name, predictor="walltime", compiled=compiled)
        assert verify.run(run.jobs, run.system) == []
        as_asked(case, run)
        runs.append(run)
    assert runs[0].job_table.equals(runs[1].job_table)


@settings(max_examples=examples(20))
@given(cases(max_jobs=8), st.sampled_from(sorted(REGISTRY)))
def test_every_dispatcher_keeps_what_is_asked_for(case: tuple[Workload, System], name: str) -> None:
    run = simulate(*prepare(*case), name, predictor="walltime")
    assert verify.run(run.jobs, run.system) == []
    as_asked(case, run)


# ---------------------------------------------------------------------- instances and mutations


def first_instance(workload: Workload) -> Instance:
    instance = Simulation(*prepare(workload, FOUR)).advance()
    assert instance is not None
    return instance


def in_file(instance: Instance) -> Instance:
    """The instance as its file has it, where each limited job has a resource type of its own."""
    return loads(to_json(instance))


def test_files_have_limits_as_types_of_each_job() -> None:
    seen = first_instance(jobs(units=[4, 4, 1], units_per_node_max=[1, 2, 1]))
    own = in_file(seen)
    assert own.system.resources == ("core", "mem", "spread@1", "spread@2")
    assert own.system.capacity[0].tolist() == [8, 64, 1, 2]
    assert own.queue.request.tolist() == [[1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 0, 0]]
    assert to_json(seen) == to_json(own)
    decision = answer_of(dispatcher_of("hcp:limit=0.05"), seen)
    assert verify.decision(seen, decision) == verify.decision(own, decision) == []


def test_models_plan_jobs_whose_units_are_limited_for_their_planned_durations() -> None:
    seen = first_instance(jobs(units=[4, 4, 1], units_per_node_max=[1, 2, 1]))
    lasting = seen.queue.planned_with(np.array([70, 80, 90]))
    free = np.broadcast_to(seen.system.capacity, (1, *seen.system.capacity.shape))
    limited, _, left = own_limits(seen.system, lasting, None, free)
    assert limited.planned_s.tolist() == [70, 80, 90]
    assert left.shape[2] == limited.request.shape[1] == 4


def test_tasks_of_an_array_are_alike_for_the_models_also_where_their_units_are_limited() -> None:
    seen = first_instance(jobs(units=[2] * 4, units_per_node_max=[1, 1, 2, 1], array="7"))
    engine = Engine("hcp", reserve=4)
    for each in map(engine.planned, (seen, in_file(seen))):
        (part,) = engine.parts(each, engine.select(each))
        kind = dict(zip(part.jobs.id.tolist(), part.alike.tolist(), strict=True))
        assert kind[1] == kind[2] == kind[4] != kind[3]


@st.composite
def limited(draw: st.DrawFn) -> Instance:
    """A few nodes, some of them busy, and jobs some of whose units may not share a node."""
    rows = draw(st.lists(st.tuples(*[st.integers(1, 4)] * 4), min_size=2, max_size=6))
    units, most, core, runtime = map(list, zip(*rows, strict=True))
    workload = jobs(
        units=units, units_per_node_max=most, core=core, runtime=runtime, requested=runtime,
        submit=[0] + [1] * (len(rows) - 1),
    )  # fmt: skip
    simulation = Simulation(*prepare(workload, FOUR))
    instance = simulation.advance()
    assert instance is not None
    if draw(st.booleans()):
        simulation.apply(answer_of(dispatcher_of("easy"), instance))
        instance = simulation.advance() or instance
    return instance


def test_a_job_that_needs_more_nodes_is_not_smaller() -> None:
    queue = first_instance(jobs(units=[2, 2, 3], units_per_node_max=[1, 2, 2])).queue
    none = np.zeros(3, dtype=np.int64)
    smaller = jobs_of(queue, none, none, none, none).smaller
    assert smaller.tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 1]]


NAMES = ("hcp:", "pcp:model=copies,", "pcp:model=counts,", "pcp:model=boxes,", "thesis-hcp:")
NAMES += ("thesis-pcp:", "thesis-pcp4:", "thesis-pcp5:")


@settings(max_examples=examples(40))
@given(limited(), st.sampled_from(NAMES))
def test_limits_mean_the_same_to_models_whether_each_job_has_a_type_of_its_own_or_not(
    seen: Instance, name: str
) -> None:
    own = in_file(seen)
    dispatcher = dispatcher_of(f"{name}limit=0.2")
    answers = [(each, answer_of(dispatcher, each)) for each in (seen, own)]
    values = [
        decision.certificate.value
        for _, decision in answers
        if (decision.start_s >= 0).all() and "thesis" not in name
    ]
    for instance, decision in answers:
        assert verify.solution(own, solution.from_decision(instance, decision)) == []
        bound = decision.certificate.bound
        assert all(bound is None or bound <= value * (1 + 1e-9) for value in values)


def test_a_queue_has_as_many_limited_jobs_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As types of one each they would be more than a system may have."""
    monkeypatch.setattr(system, "CELLS_MAX", 100)
    run = ran(jobs(units=[4] * 40, units_per_node_max=[2] * 40), "hcp:limit=0.05")
    assert lies(run) == [[2, 2]] * 40
    assert b"spread@40" in to_json(
        first_instance(jobs(units=[4] * 40, units_per_node_max=[2] * 40))
    )


def test_a_limited_job_that_never_fits_is_told_what_it_asks_for() -> None:
    seen = first_instance(jobs(units=[8], units_per_node_max=[2]))
    block = seen.queue.block.copy()
    block[Column.UNITS] = 9  # a replay leaves such a job out, another program may ask
    seen = replace(seen, queue=JobTable(block, seen.queue.labels))
    text = "does not fit the system: asks for 9 x (1 core, at most 2 on a node)"
    assert solution.explain(seen, answer_of(dispatcher_of("easy"), seen), 0) == text


def test_too_many_units_on_a_node_are_found_in_a_decision() -> None:
    seen = first_instance(jobs(units=[4], units_per_node_max=[2]))
    free = first_instance(jobs(units=[4]))
    crowded = answer_of(dispatcher_of("easy"), free)
    assert crowded.placements.as_dict() == {0: {0: 4}}
    (found,) = verify.decision(seen, crowded)
    assert str(found.kind) == "spread"
    assert "job 1 has 4 units on node 0, 2 may share one" in found.text


@pytest.mark.parametrize(
    ("asked", "nodes", "units", "says"),
    [
        ({"units_per_node": [2]}, [0, 1, 2], [2, 1, 1], "has 1 units on node 1"),
        ({"units_per_node_max": [2]}, [0, 1], [3, 1], "has 3 units on node 0"),
        ({"units_per_node_min": [2]}, [0, 1], [3, 1], "has 1 units on node 1"),
        ({"nodes_min": [3]}, [0, 1], [2, 2], "is on 2 nodes"),
        ({"nodes_max": [2]}, [0, 1, 2], [2, 1, 1], "is on 3 nodes"),
    ],
)
def test_units_that_lie_otherwise_are_found(
    asked: dict[str, list[int]], nodes: list[int], units: list[int], says: str
) -> None:
    frame = ran(jobs(units=[4], **asked)).jobs.copy()
    # As if the units had not been grouped.
    frame["units"], frame["together"], frame["request_core"] = 4, 1, 1
    frame["nodes"], frame["node_units"] = [nodes], [units]
    (name,) = asked
    found = [v.text for v in verify.run(frame, FOUR) if str(v.kind) == "spread"]
    assert found
    assert f"job 1 {says} at 0, {name} is {asked[name][0]}" in found
    assert [str(v.kind) for v in verify.run(frame.drop(columns=name), FOUR)] == []
