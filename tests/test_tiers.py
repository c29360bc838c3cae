"""Tiers of partitions: jobs of a higher one come first, under every dispatcher."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import access, cli, dispatch, verify
from cpdispatch.decision import Decision
from cpdispatch.errors import InputError
from cpdispatch.heuristics.policies import NO_THRESHOLD, SUMMARIES, find
from cpdispatch.heuristics.priority_rule import waiting_priority
from cpdispatch.instance import FORMAT_OF_RESTARTS, Instance, loads, to_json
from cpdispatch.jobs import Column, JobTable
from cpdispatch.simulator import simulate
from cpdispatch.solution import explain
from cpdispatch.system import NodeGroup, Partition, System
from cpdispatch.workloads import from_table, prepare
from tests.effort import examples
from tests.simulator.cases import workload
from tests.strategies import instance_files, read

NOW = 1000
PARTITIONS = [
    {"name": "batch"}, {"name": "debug", "tier": 9, "limit_s": 100}, {"name": "spare", "tier": 0}
]  # fmt: skip


def file_of(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One node of 4 cores that the first of the queued jobs could use alone."""
    plain = {"submit": 900, "duration": 60, "units": 4, "unit": [1]}
    return {
        "format": FORMAT_OF_RESTARTS, "time": NOW, "resources": ["core"], "partitions": PARTITIONS,
        "groups": [{"name": "n", "nodes": 1, "capacity": [4]}],
        "queue": [{"id": 1 + k} | plain | job for k, job in enumerate(jobs)],
    } | more  # fmt: skip


def instance_of(*jobs: dict[str, Any], **more: Any) -> Instance:
    return loads(json.dumps(file_of(*jobs, **more)), "file")


def answer_of(instance: Instance, name: str) -> Decision:
    """The verified decision of a dispatcher that knows no longest wait under EASY."""
    made = dispatch.make(name, dispatch.Settings(20.0, 0))
    answer = dispatch.answer_of(getattr(made, "inner", made), instance)
    assert verify.decision(instance, answer) == []
    return answer


def started(instance: Instance, name: str) -> list[int]:
    """Ids of the jobs that start now."""
    return instance.queue.id[answer_of(instance, name).start_s == instance.now].tolist()


# ---------------------------------------------------------------------------- which tier a job has


def test_a_job_has_the_highest_tier_of_the_partitions_that_it_may_use() -> None:
    sent = ("batch", "debug", "spare", "spare,debug", "spare,debug", "")
    jobs = [{"partition": name, "requested": 101 if k == 4 else 100} for k, name in enumerate(sent)]
    found = instance_of(*jobs)
    assert found.queue.tier.tolist() == [1, 9, 0, 9, 0, 1]
    assert to_json(loads(to_json(found))) == to_json(found)


def test_the_tier_of_a_log_is_that_of_an_instance() -> None:
    parts = (Partition("batch", (0,)), Partition("debug", (0,), 100, tier=9))
    system = System("s", ("core",), (NodeGroup("n", 1, (4,)),), partitions=parts)
    log = workload([(0, 1, 5, 5)] * 3)
    columns = list(log.table.columns)
    columns[Column.PARTITION] = np.array([0, 1, -1])
    log = replace(log, table=JobTable(columns, {"partition": ("batch", "batch,debug")}))
    kept, same = access.keep(log, system)
    assert kept.table.tier.tolist() == [1, 9, 1]
    assert same is system  # every job may use every node


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (file_of({"tier": -1}), "queue[0].tier: negative"),
        (file_of({"tier": 65_534}), "must be 65533 or less"),
        (file_of({"tier": 2, "partition": "debug"}), "its partition has the tier 9"),
        (file_of({"tier": 2}, format="cpdispatch-instance/1", partitions=[]), "has no tiers"),
        (file_of(partitions=[{"name": "p", "tier": 65_534}]), "partitions[0].tier"),
    ],
)
def test_a_wrong_tier_is_refused_by_its_place(file: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as error:
        loads(json.dumps(file), "file")
    assert problem in str(error.value)


# ------------------------------------------------------------------------------ who comes first


@pytest.mark.parametrize(
    "name", [n for n in dispatch.REGISTRY if n != "reject" and not n.startswith("thesis-")]
)
def test_a_job_of_a_higher_tier_starts_whatever_the_others_are_like(name: str) -> None:
    longer = {"duration": 90, "submit": 990, "partition": "debug"}
    urgent = {"duration": 10, "submit": 100, "priority": 99}
    assert started(instance_of(urgent, longer, urgent | {"partition": "spare"}), name) == [2]
    without = started(instance_of(urgent, longer | {"partition": "batch"}), name)
    assert without == [2 if name == "ljf" else 1]
    assert started(instance_of(urgent, {"units": 2, "partition": "debug"}), name) == [2]


@settings(max_examples=examples(300))
@given(
    st.sampled_from(sorted(SUMMARIES)), st.data(), st.sampled_from([NO_THRESHOLD, 0, 40]),
    instance_files(max_jobs=8),
)  # fmt: skip
def test_an_order_within_a_tier_is_the_one_without_tiers(
    policy: str, data: st.DataObject, threshold_s: int, file: dict[str, Any]
) -> None:
    queue = read(file).queue
    block = queue.block.copy()
    tier = data.draw(st.lists(st.integers(0, 2), min_size=len(queue), max_size=len(queue)))
    block[Column.TIER] = tier
    plain = find(policy).rank(NOW, queue.block, threshold_s).tolist()
    found = find(policy).rank(NOW, block, threshold_s).tolist()
    late = (NOW - queue.submit_s > threshold_s).tolist()
    assert found == sorted(plain, key=lambda j: (not late[j], 0 if late[j] else -tier[j]))


def test_the_priority_rule_takes_higher_tiers_first() -> None:
    jobs = [{"submit": 800 + 50 * k, "tier": tier} for k, tier in enumerate((0, 2, 1, 2))]
    assert waiting_priority(instance_of(*jobs)).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("name", ["hcp", "pcp:model=boxes", "best", "easy:wait=0.6"])
def test_a_starved_job_of_a_lower_tier_comes_before_all(name: str) -> None:
    bound = {"threshold": 50, "bound": 0}
    low, high = {"submit": 100, "tier": 0}, {"submit": 990, "tier": 9}
    assert started(instance_of(low, high), name) == [2]
    assert started(instance_of(low, high, starvation=bound), name) == [1]


# --------------------------------------------------------------------------------- the engine


@st.composite
def tiered(draw: st.DrawFn) -> dict[str, Any]:
    """Instance files whose jobs are of several tiers, and come after others of any."""
    file = draw(instance_files(max_jobs=7, dependencies=True, predictions=True, starvation=True))
    file["format"] = FORMAT_OF_RESTARTS
    for job in file["queue"]:
        job["tier"] = draw(st.integers(0, 2))
    return file


@settings(max_examples=examples(60), deadline=None)
@given(tiered(), st.sampled_from(["hcp", "pcp:model=copies", "pcp:model=counts", "hyper"]))
def test_every_plan_around_higher_tiers_is_feasible(file: dict[str, Any], name: str) -> None:
    answer_of(read(file), name)


def test_a_decision_in_which_jobs_are_planned_around_others_states_no_bound() -> None:
    alike = instance_of({"tier": 2}, {"tier": 2})
    assert answer_of(alike, "hcp:reserve=9").certificate.bound is not None
    assert answer_of(instance_of({}, {"tier": 2}), "hcp:reserve=9").certificate.bound is None


@settings(max_examples=examples(60), deadline=None)
@given(
    instance_files(max_jobs=8, predictions=True), st.data(),
    st.sampled_from(["hcp:reserve=9", "pcp:reserve=9,model=boxes"]),
)  # fmt: skip
def test_lower_tiers_change_nothing_for_the_highest(
    file: dict[str, Any], data: st.DataObject, name: str
) -> None:
    file["format"] = FORMAT_OF_RESTARTS
    for job in file["queue"]:
        job["tier"] = data.draw(st.integers(1, 2))
    high = file | {"queue": [job for job in file["queue"] if job["tier"] == 2]}
    plans = []
    for each in (file, high):
        problem = read(each)
        starts = answer_of(problem, name).start_s.tolist()
        planned = zip(problem.queue.id.tolist(), starts, strict=True)
        plans.append({id: start for id, start in planned if id in {j["id"] for j in high["queue"]}})
    assert plans[0] == plans[1]


# ------------------------------------------------------------------------------ what a user sees


def test_what_waits_behind_a_higher_tier_says_so() -> None:
    found = instance_of({}, {"tier": 3}, {"tier": 2}, running=[
        {"id": 9, "start": 990, "duration": 30, "units": 1, "unit": [1], "nodes": {"0": 1}}
    ])  # fmt: skip
    low = found.queue.take(np.array([0, 1, 2]))
    block = low.block.copy()
    block[Column.UNITS, 0], block[Column.EXPECTED, 0] = 1, 60
    found = replace(found, queue=JobTable(block))
    answer = dispatch.answer_of(dispatch.make("fifo"), found)
    assert explain(found, answer, 0) == "waits for its turn, behind 2 of a higher tier"


def test_a_run_names_tiers_and_its_check_reads_the_partitions_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, log, out = tmp_path / "site.toml", tmp_path / "log.csv", tmp_path / "out"
    site.write_text(
        'resources = ["core"]\ngroups = [{name = "n", nodes = 1, capacity = [4]}]\n'
        'partitions = [{name = "batch"}, {name = "debug", tier = 3}]\n'
    )
    log.write_text(
        "id,submit,runtime,requested,units,core,partition\n"
        "1,0,50,60,4,1,batch\n2,1,50,60,4,1,batch\n3,2,5,9,2,1,debug\n4,3,50,60,2,1,debug\n"
    )
    assert cli.run(f"simulate {log} --system {site} -d easy --out {out}".split()) == 0
    frame = pd.read_parquet(out / "jobs.parquet")
    assert frame["tier"].tolist() == [1, 1, 3, 3]
    assert frame["start"].tolist() == [0, 100, 50, 50]
    capsys.readouterr()
    assert cli.run(["explain", str(out), "--job", "2"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 jobs of partitions of a higher tier started" in told
    assert cli.run(["verify", "--run", str(out)]) == 0
    frame["tier"] = [1, 3, 3, 3]
    frame.to_parquet(out / "jobs.parquet")
    assert cli.run(["verify", "--run", str(out)]) == 1
    assert "job 2 has the tier 3 and not 1" in capsys.readouterr().out


def test_a_compiled_replay_starts_the_higher_tier_first() -> None:
    log = workload([(0, 4, 5, 5), (1, 4, 5, 5), (2, 4, 5, 5)])
    columns = list(log.table.columns)
    columns[Column.TIER] = np.array([1, 1, 2])
    high = replace(log, table=JobTable(columns))
    starts = [simulate(each, System.pool(4), "easy").jobs["start"].tolist() for each in (log, high)]
    assert starts == [[0, 5, 10], [0, 10, 5]]


def test_what_stands_for_a_partition_is_no_demand() -> None:
    nodes = tuple(NodeGroup(name, 2, (2,)) for name in ("thin", "fat"))
    parts = (Partition("p", (0, 1)), Partition("whole", (0, 1, 2, 3)))
    system = System("parts", ("core",), nodes, partitions=parts)
    columns = {
        "id": [1, 2, 3], "submit": [0, 1, 1], "runtime": [10, 100, 100], "units": [8, 3, 6],
        "core": 1, "partition": ["whole", "p", "whole"],
    }  # fmt: skip
    run = simulate(*prepare(from_table(columns), system), "prb")
    assert run.verify() == []
    assert run.jobs["start"].tolist() == [0, 10, 110]  # 3 of 8 cores before 6
