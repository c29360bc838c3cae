"""Watching and driving a recorded Slurm: no daemon is needed."""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cpdispatch import cli, dispatch, instance
from cpdispatch.adapters.decided import decided
from cpdispatch.adapters.slurm import guard
from cpdispatch.adapters.slurm.client import Client, RefusedError, SlurmError
from cpdispatch.adapters.slurm.cluster import KEPT, job_of, node_of, read
from cpdispatch.adapters.slurm.drive import FIRST, LAST, Driver
from cpdispatch.adapters.slurm.journal import NAME, Journal
from cpdispatch.adapters.slurm.picture import Claim, take
from cpdispatch.adapters.slurm.rules import Rules, waits
from cpdispatch.adapters.slurm.watch import watch
from cpdispatch.decision import Certificate, Decision, Placements
from cpdispatch.errors import CpdispatchError, DecisionError, InputError, UsageError
from tests.adapters.slurm.recorded import DATA, Recorded
from tests.effort import examples

MINE = [
    "5", "6", "7_0", "7_1", "7_2", "7_3", "7_4", "7_5", "8", "9", "10", "11", "12", "14", "15",
]  # fmt: skip
"""The jobs that the plugin held and that can start; 13 is to begin in an hour."""


class Killed(BaseException):
    """What kill -9 is to a driver: nothing in it catches this."""


@pytest.fixture
def slurm() -> Recorded:
    return Recorded.load()


def driver(slurm: Any, folder: Path, dispatcher: str = "easy", **rules: Any) -> Driver:
    return Driver(slurm, dispatch.make(dispatcher), folder, Rules(**rules))


def drive(slurm: Recorded, folder: Path, cycles: int = 60, **rules: Any) -> dict[str, list[str]]:
    """Drive until nothing waits; the nodes last decided of each job."""
    made, nodes = driver(slurm, folder, **rules), {}
    for _ in range(cycles):
        nodes |= made.cycle().released
        slurm.step()
    return nodes


# ---------------------------------------------------------------------------- the picture


@pytest.mark.parametrize("name", ["easy", "best", "hcp", "conservative"])
def test_what_would_start_is_told_of_every_job_that_waits(slurm: Recorded, name: str) -> None:
    view = watch(slurm, dispatch.make(name), Rules())
    seen = {each.job: each for each in view.jobs}
    assert view.running == 3
    assert not view.unread
    assert sorted(seen) == sorted([*(set(MINE) - {"12", "7_3", "7_4", "7_5"}), "13"])
    assert view.left == {"12": "asks for licenses"}
    assert seen["8"].why == "waits for job 3"
    assert not seen["8"].nodes
    assert seen["13"].why == "waits for its earliest start, in 3600 s"
    assert seen["9"].nodes
    assert min(seen["9"].nodes) >= "n09"
    assert set(seen["10"].nodes) <= {"n01", "n02", "n03", "n04"}  # of its partition
    assert all(len(each.nodes) in (0, each.units) for each in view.jobs)
    assert not {"n16"} & {node for each in view.jobs for node in each.nodes}  # is drained
    assert slurm.changes == []


def test_reasons_are_in_words_of_the_site(slurm: Recorded) -> None:
    for node in slurm.data["nodes"][4:]:
        node.update(alloc_cpus=15, alloc_memory=63_000)
    view = watch(slurm, dispatch.make("easy"), Rules())
    why = {each.job: each.why for each in view.jobs if not each.nodes}
    assert why["11"] == "waits for whole nodes"
    assert why["14"] == "waits for all memory of a node"
    assert why["6"].startswith("reserved, in ")
    assert not [text for text in why.values() if "@" in text or "apart" in text]


def test_an_instance_of_a_live_cluster_is_a_good_file(slurm: Recorded) -> None:
    made = watch(slurm, dispatch.make("easy"), Rules()).instance
    read_back = instance.loads(instance.to_json(made))
    assert instance.digest(read_back) == instance.digest(made)
    assert np.array_equal(read_back.free, made.free)
    assert made.reservations[0].nodes == (14,)
    assert made.down.tolist() == [15]
    used = made.system.capacity - made.free
    core, gpu = (made.system.resource(name) for name in ("core", "gpu"))
    for node, row in enumerate(slurm.nodes()[:15]):
        assert used[node, core] == row["alloc_cpus"]
        assert used[node, gpu] == int(row["gres_used"].removeprefix("gpu:"))


def test_a_job_that_starts_while_slurm_is_read_is_counted(slurm: Recorded) -> None:
    nodes = slurm.data["nodes"]
    nodes[7].update(alloc_cpus=16, alloc_memory=50_000, gres_used="gpu:4")
    picture = take(read(slurm), lambda job: job.held)
    assert picture.instance.free[7, :3].tolist() == [0, 0, 14_000]


def test_a_node_on_which_a_job_ends_takes_none_until_that_is_over(slurm: Recorded) -> None:
    slurm.data["nodes"][7]["state_flags"] = ["COMPLETING"]
    picture = take(read(slurm), lambda job: job.held)
    assert picture.instance.free[7, :3].max() == 0
    assert 7 not in picture.instance.down


@pytest.mark.parametrize(
    ("flag", "given"),
    [("POWERED_DOWN", True), ("POWERING_DOWN", False), ("POWERING_UP", False),
     ("POWER_DOWN", False)],
)  # fmt: skip
def test_a_node_that_sleeps_is_woken_by_the_job_that_it_is_given_to(
    slurm: Recorded, tmp_path: Path, flag: str, given: bool
) -> None:
    for node in slurm.data["nodes"]:
        node["state_flags"] = [flag]
    assert bool(driver(slurm, tmp_path).cycle().released) is given


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("features", "[fast|slow]", "asks for the features [fast|slow]"),
        (
            "features",
            "unheard",
            "too few nodes are in its partition, have its features and are not excluded",
        ),
        ("het_job_id", 3, "asks for parts that start together"),
        ("tres_per_node", "gres:fpga:1", "asks for fpga"),
        ("tres_per_job", "gres:gpu:3", "asks for GPUs that cannot be split evenly over its nodes"),
        ("tres_per_node", "gres:gpu:a100:1", "asks for gpu_a100, which no node has"),
        ("shared", "user", "shares its nodes with some jobs alone"),
        ("flags", ["SPREAD_JOB"], "asks to be spread over many nodes"),
        ("flags", ["GRES_ENFORCE_BIND"], "asks for CPUs and GPUs that are bound to each other"),
        ("tasks_per_socket", 1, "asks for so many tasks on a socket"),
        ("max_nodes", 1, "needs 2 nodes and may have 1"),
        ("required_nodes", "n01", "names some of its nodes"),
        ("required_nodes", "n[1-2", "names nodes in a way that is not understood"),
        ("dependency", "afterok:9(failed)", "waits in vain: afterok:9(failed)"),
    ],
)
def test_what_an_instance_cannot_express_is_left_to_slurm(
    slurm: Recorded, tmp_path: Path, field: str, value: object, why: str
) -> None:
    slurm.row(5)[field] = value
    done = driver(slurm, tmp_path).cycle()
    assert done.left == {"5": why, "12": "asks for licenses"}
    assert slurm.row("5")["priority"] == LAST


def test_a_job_is_spread_over_as_many_nodes_as_those_need_that_it_may_use(
    slurm: Recorded, tmp_path: Path
) -> None:
    large = slurm.data["nodes"][8] | {"name": "fat01", "cpus": 128, "effective_cpus": 128}
    slurm.data["nodes"].append(large)
    slurm.data["partitions"].append(slurm.data["partitions"][0] | {"name": "fat", "nodes": "fat01"})
    done = driver(slurm, tmp_path).cycle()
    assert len(done.released["15"]) == 2  # 20 tasks, on nodes of 16 CPUs
    assert "15" not in done.left


@pytest.mark.parametrize(
    ("cpus", "tasks", "least", "nodes", "units", "core"),
    [
        (36, 4, 9, 1, 4, 9),  # nodes have 16 CPUs: none has room for two such tasks
        (18, 9, 2, 1, 2, 10),
        (6, 3, 2, 2, 2, 4),
        (2, 2, 12, 2, 2, 12),  # --mincpus=12
        (7, 7, 1, 2, 2, 4),
        (1, 10, 1, 1, 1, 1),  # --overcommit
    ],
)
def test_a_task_has_its_cpus_on_one_node(
    slurm: Recorded, cpus: int, tasks: int, least: int, nodes: int, units: int, core: int
) -> None:
    slurm.row(5).update(
        tres_req_str=f"cpu={cpus},mem=1M,node={nodes}", tasks=tasks, minimum_cpus_per_node=least,
        tasks_per_node=0, max_nodes=0, memory_per_cpu=10, memory_per_node=None,
    )  # fmt: skip
    picture = take(read(slurm), lambda job: job.key == "5")
    assert picture.instance.queue.units.tolist() == [units]
    assert picture.instance.queue.request[0, :3].tolist() == [core, 0, 10 * core]
    promised = Claim(job_of(slurm.row(5)), ("n09", "n10", "n11", "n12")[:units])
    held = take(read(slurm), lambda job: False, [promised])
    assert held.instance.free[8, 0] == 16 - core


def test_a_node_has_the_features_that_are_active_and_the_cpus_that_are_left_to_jobs(
    slurm: Recorded,
) -> None:
    node = slurm.data["nodes"][0] | {"features": "a,b", "cpus": 4, "tres": "cpu=3,mem=4000M"}
    assert (node_of(node | {"active_features": ""}).features, node_of(node).cpus) == (set(), 3)
    assert node_of(node | {"active_features": "a"}).features == {"a"}
    del node["active_features"]
    assert node_of(node).features == {"a", "b"}


def test_memory_for_each_cpu_is_spread_with_the_cpus(slurm: Recorded, tmp_path: Path) -> None:
    most_mb = max(node["real_memory"] for node in slurm.data["nodes"])
    # 20 CPUs: more than a node has, and more memory than one has.
    slurm.row(15).update(memory_per_cpu=most_mb // 12, memory_per_node=None)
    made = driver(slurm, tmp_path)
    assert len(made.cycle().released["15"]) == 2
    claims = made.cycle()  # what was promised is held as it was asked for
    assert "15" not in claims.left


def test_gpus_of_all_nodes_together_are_spread_over_as_many_as_they_need(
    slurm: Recorded, tmp_path: Path
) -> None:
    most = {"tres_per_node": "", "tres_req_str": "cpu=6,mem=6M,node=1", "features": ""}
    slurm.row(5).update(most | {"tres_per_job": "gres:gpu:6"})  # a node has 4
    slurm.row(9).update(most | {"tres_per_job": "gres:gpu:5"})
    slurm.row(10).update(most | {"tres_per_node": "gres:gpu:5", "partition": "main"})
    picture = take(read(slurm), lambda job: job.held)
    gpu = picture.instance.system.resource("gpu")
    position = [job.key for job in picture.jobs].index("5")
    assert picture.instance.queue.units[position] == 2
    assert picture.instance.queue.request[position, gpu] == 3
    made = driver(slurm, tmp_path)
    done = made.cycle()
    assert len(done.released["5"]) == 2
    assert done.left["9"] == "asks for GPUs that cannot be split evenly over its nodes"
    assert done.left["10"] == "fits no nodes, says the dispatcher"
    assert made.cycle().released.keys().isdisjoint({"5"})
    held = take(read(slurm), lambda job: False, [Claim(job_of(slurm.row(5)), ("n11", "n12"))])
    assert held.instance.free[10, gpu] == 1


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
def test_a_job_that_asks_for_other_nodes_while_it_waits_is_promised_anew(
    slurm: Recorded, tmp_path: Path, before: int, after: int
) -> None:
    slurm.data["nodes"] = slurm.data["nodes"][:4]
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] < 4]
    asks = (
        {"tres_req_str": f"cpu={16 * n},mem=1M,node={n}", "tasks": n, "max_nodes": n}
        for n in (before, after)
    )
    row = Recorded.load().row(5) | {"job_id": 100, "tasks_per_node": 0} | next(asks)
    slurm.data["jobs"].append(row)
    made = driver(slurm, tmp_path, "conservative")
    assert "100" in made.cycle().promised
    row.update(next(asks))
    assert "100" not in made.cycle().left


def test_so_many_tasks_on_a_node_say_how_many_nodes(slurm: Recorded) -> None:
    row = slurm.row(15) | {"tres_req_str": "cpu=6,mem=600M,node=1", "tasks": 6}
    for each, nodes in ((2, 3), (4, 2), (0, 1), (None, 1)):
        assert job_of(row | {"tasks_per_node": each}).nodes == nodes


@pytest.mark.parametrize(
    ("cpus", "cpu_memory_mb", "limit", "units", "core"),
    [
        (18, 1000, -1, 2, 10),
        (6, 1000, 5, 2, 4),  # MaxCPUsPerNode=5: two cores
        (12, 9000, -1, 2, 6),  # 64,000 MB are enough for 7 CPUs
    ],
)
def test_a_job_that_is_spread_has_whole_cores_and_their_memory_on_each_node(
    slurm: Recorded, cpus: int, cpu_memory_mb: int, limit: int, units: int, core: int
) -> None:
    for node in slurm.data["nodes"][4:]:  # others have one thread a core
        node.update(threads=2)
    slurm.data["partitions"][0]["maximum_cpus_per_node"] = limit
    slurm.row(5).update(
        tres_req_str=f"cpu={cpus},mem=1M,node=1", tasks=cpus, tasks_per_node=0, max_nodes=0,
        memory_per_cpu=cpu_memory_mb, memory_per_node=None,
    )  # fmt: skip
    queue = take(read(slurm, True), lambda job: job.key == "5").instance.queue
    assert queue.units.tolist() == [units]
    assert queue.request[0, [0, 2]].tolist() == [core, cpu_memory_mb * core]


@pytest.mark.parametrize("whole", [True, False])
def test_where_slurm_hands_out_whole_cores_a_job_takes_all_threads_of_a_core(
    slurm: Recorded, tmp_path: Path, whole: bool
) -> None:
    slurm.data["reservations"], slurm.data["nodes"] = [], slurm.data["nodes"][4:6]
    for node in slurm.data["nodes"]:
        node.update(threads=2, cpus=2, effective_cpus=2)
    row = slurm.row(7) | {"array_job_id": 0, "array_task_string": "", "memory_per_cpu": 100,
                          "tres_req_str": "cpu=1,mem=100M,node=1"}  # fmt: skip
    slurm.data["jobs"] = [row | {"job_id": 300 + k} for k in range(3)]
    found = read(slurm, whole).jobs[0]
    assert (found.cpus_of(1), found.memory_mb_of(1)) == ((2, 200) if whole else (1, 100))
    done = driver(slurm, tmp_path, whole_cores=whole).cycle()
    assert len(done.released) == (2 if whole else 3)  # a core on each of two nodes


def test_a_partition_that_is_drained_still_starts_what_is_queued(
    slurm: Recorded, tmp_path: Path
) -> None:
    before = driver(Recorded(slurm.data), tmp_path / "before").cycle().released
    slurm.data["partitions"][0]["state"] = "DRAIN"
    assert driver(slurm, tmp_path / "after").cycle().released == before
    slurm = Recorded.load()
    slurm.data["partitions"][0]["state"] = "DOWN"
    assert not driver(slurm, tmp_path / "down").cycle().released.keys() & {"5", "15"}


def test_the_jobs_of_a_partition_take_no_more_of_a_nodes_cpus_than_it_allows(
    slurm: Recorded, tmp_path: Path
) -> None:
    small = slurm.data["partitions"][1]
    slurm.data["partitions"].append(small | {"name": "cap", "maximum_cpus_per_node": 8})
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_state"] == "RUNNING"]
    row = Recorded.load().row(5) | {
        "partition": "cap", "priority": 0, "admin_comment": "cpdispatch", "features": "",
        "tres_per_node": "", "memory_per_node": 100, "tres_req_str": "cpu=5,mem=100M,node=1",
        "tasks_per_node": 0,
    }  # fmt: skip
    slurm.data["jobs"] += [row | {"job_id": 300 + k} for k in range(6)]
    made = driver(slurm, tmp_path)
    first = made.cycle().released
    nodes = [node for names in first.values() for node in names]
    assert len(nodes) == len(set(nodes)) >= 2  # 5 and 5 of the 16 CPUs are too many
    assert not made.cycle().released  # what was promised counts
    slurm.step()
    assert not made.cycle().released  # and what runs
    slurm.data["jobs"].append(
        row | {"job_id": 400, "tres_req_str": "cpu=9,mem=9M,node=1", "required_nodes": "n01"}
    )
    slurm.data["partitions"][-1]["maximum_cpus_per_node"] = 4  # there was a higher limit before
    assert "400" not in made.cycle().released
    for row in slurm.data["jobs"]:
        row["partition"] = row["partition"].replace("cap", "cap,unseen")
    assert made.cycle()


@pytest.mark.parametrize("waits", [True, False], ids=["in the picture", "in no picture"])
def test_a_chain_of_jobs_is_asked_about_where_its_first_one_is(
    slurm: Recorded, waits: bool
) -> None:
    first = slurm.row("5")
    first["priority"] = 0 if waits else 4_000_000  # one of Slurm's own
    for number in (203, 201, 202):
        after = f"afterany:{number - 1 if number > 201 else 5}(unfulfilled)"
        slurm.data["jobs"].append(slurm.row("6") | {"job_id": number, "dependency": after})
    picture = take(read(slurm), lambda job: job.held)
    keys = {job.key for job in picture.jobs}
    assert {"5", "201", "202", "203"} & keys == ({"5", "201", "202", "203"} if waits else set())
    assert "6" in keys


def test_an_array_meets_afternotok_when_any_of_its_tasks_has_failed(
    slurm: Recorded, tmp_path: Path
) -> None:
    rows = [
        slurm.row("5") | {"job_id": 200 + k, "array_job_id": 200, "array_task_id": k,
                          "job_state": state}
        for k, state in enumerate(("COMPLETED", "PENDING"))
    ]  # fmt: skip
    slurm.data["jobs"] += rows
    slurm.row("6")["dependency"] = "afternotok:200_*(unfulfilled)"
    slurm.row("9")["dependency"] = "afterok:200_*(unfulfilled)"

    def left() -> dict[str, str]:
        return {job.key: why for job, why in take(read(slurm), lambda job: job.held).left}

    assert not {"6", "9"} & left().keys()
    rows[1]["job_state"] = "FAILED"
    assert left().keys() & {"6", "9"} == {"9"}
    rows[1]["job_state"] = "COMPLETED"
    assert left().keys() & {"6", "9"} == {"6"}
    assert left()["6"].startswith("waits in vain")


def test_gpus_that_are_bound_to_cores_are_counted(slurm: Recorded) -> None:
    for node in slurm.data["nodes"]:
        node.update(gres="gpu:4(S:0)", gres_used="gpu:(null):1(IDX:3)")
    found = read(slurm)
    assert not found.unread
    assert {(node.gpus["gpu"], node.used_gpus["gpu"]) for node in found.nodes} == {(4, 1)}


@pytest.mark.parametrize("running", [0, 1, 2])
def test_tasks_with_records_of_their_own_count_in_the_limit_of_their_array(
    slurm: Recorded, running: int
) -> None:
    for task in (1, 4):
        slurm.update(f"7_{task}", {"priority": 0})
    picture = take(read(slurm), lambda job: job.held)
    assert [job.key for job in picture.jobs if job.array == 7] == ["7_0", "7_1", "7_2"]
    for task in (1, 4)[:running]:
        slurm.row(f"7_{task}").update(priority=4_000_000)
    picture = take(read(slurm), lambda job: job.held)
    assert len([job for job in picture.jobs if job.array == 7]) == 3 - running


def test_the_cores_of_a_suspended_job_go_to_others(slurm: Recorded, tmp_path: Path) -> None:
    row, node = slurm.row("3"), slurm.data["nodes"][3]  # it has n04 alone
    row["job_state"] = "SUSPENDED"
    node.update(alloc_cpus=0, state="idle")
    slurm.row("9").update(required_nodes="n04", features="", tres_per_node="")
    memory_mb = row["job_resources"]["allocated_nodes"][0]["memory_allocated"]
    found = take(read(slurm), lambda job: job.held).instance
    core, mem = (found.system.resource(name) for name in ("core", "mem"))
    assert found.free[3, core] == 16
    assert found.free[3, mem] == node["real_memory"] - memory_mb
    done = driver(slurm, tmp_path).cycle()
    assert done.released["9"] == ["n04"]
    assert "8" not in done.released  # it waits for the suspended one
    slurm = Recorded.load()
    row = slurm.row("3")  # to Slurm, a task that is suspended is one of those that run
    row.update(job_state="SUSPENDED", priority=0, array_job_id=7, array_task_id=9)
    tasks = [job.key for job in take(read(slurm), lambda job: job.held).jobs if job.array == 7]
    assert tasks == ["7_0", "7_1"]  # of 3 at a time
    slurm = Recorded.load()
    slurm.row("3")["job_state"] = "SUSPENDED"
    slurm.data["nodes"][3].update(alloc_cpus=0)
    done = driver(slurm, tmp_path / "other", memory=False).cycle()
    assert "8" not in done.released  # also where that holds nothing at all


def several_partitions(slurm: Recorded, **states: str) -> None:
    """Partitions instead of those of the recording: two of some nodes each, and one of no time."""
    main = slurm.data["partitions"][0]
    slurm.data["partitions"] = [
        main | {"name": name, "nodes": nodes, "max_time_limit": minutes,
                "state": states.get(name, "UP")}
        for name, nodes, minutes in (
            ("left", "n05,n07", 60), ("right", "n[06,08-09]", 60), ("brief", "n[10-11]", 1)
        )
    ]  # fmt: skip


def test_cpus_that_a_partition_allows_hold_for_jobs_of_several_partitions(
    slurm: Recorded, tmp_path: Path
) -> None:
    several_partitions(slurm)
    slurm.data["partitions"][0]["maximum_cpus_per_node"] = 8
    row = slurm.row(5) | {
        "partition": "brief,left", "features": "", "tres_per_node": "", "memory_per_node": 100,
        "tres_req_str": "cpu=5,mem=100M,node=1", "tasks_per_node": 0, "time_limit": 30,
    }  # fmt: skip
    slurm.data["jobs"] = [row | {"job_id": 300 + k} for k in range(3)]
    done = driver(slurm, tmp_path).cycle()
    assert sorted(done.released.values()) == [["n05"], ["n07"]]


def test_a_job_of_several_partitions_gets_its_nodes_in_one_of_them(
    slurm: Recorded, tmp_path: Path
) -> None:
    several_partitions(slurm)
    for job in ("5", "15"):  # on two nodes, and on as many as its CPUs need
        slurm.row(job)["partition"] = "left,right,brief"
    slurm.row("6").update(partition="left,right", features="", tres_per_node="")  # 4 nodes
    done = driver(slurm, tmp_path).cycle()
    for job in ("5", "15"):
        assert len(done.released[job]) == 2
        assert set(done.released[job]) <= {"n06", "n08", "n09"}
    assert done.left["6"].startswith("too few nodes are in its partition")


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ({"allowed_accounts": "alpha"}, "is of the account Beta, which may not use"),
        ({"allowed_groups": "root,none"}, "is of the user nobody, whose groups may not use"),
        ({"denied_accounts": "beta"}, "is of the account Beta, which may not use"),
        ({"allowed_qos": "high,low"}, "has the QoS normal, which may not use"),
        ({"maximum_nodes_per_job": 1}, "asks for too few or too many nodes for"),
        ({"min nodes per job": 3}, "asks for too few or too many nodes for"),
        ({"maximum_memory_per_node": 99}, "asks for more memory on a node than jobs may have in"),
        ({"allowed_accounts": "beta", "denied_accounts": "beta", "denied_qos": "high"}, ""),
    ],
)
def test_a_job_goes_to_no_partition_that_does_not_admit_it(
    slurm: Recorded, tmp_path: Path, limit: dict[str, object], why: str
) -> None:
    several_partitions(slurm)
    slurm.data["partitions"][1].update(limit)  # the one with more nodes
    row = slurm.row(5)
    row.update(
        partition="right,left", features="", tres_per_node="", memory_per_node=100, account="Beta",
        qos="normal", tres_req_str="cpu=2,mem=200M,node=2", tasks_per_node=0, tasks=2,
    )  # fmt: skip
    chosen = set(driver(slurm, tmp_path).cycle().released["5"])
    assert (chosen == {"n05", "n07"}) == bool(why)
    row.update(partition="right", required_nodes="", priority=0, state_reason="JobHeldUser")
    left = driver(slurm, tmp_path / "alone").cycle().left
    assert left.get("5", "") == (why and f"{why} the partition right")


def test_a_job_goes_to_the_partition_whose_nodes_are_large_enough(
    slurm: Recorded, tmp_path: Path
) -> None:
    several_partitions(slurm)
    for node in slurm.data["nodes"][5:9]:
        node.update(cpus=8, effective_cpus=8, alloc_cpus=0)
    slurm.row(5).update(
        partition="right,left", features="", tres_per_node="", memory_per_node=100,
        tres_req_str="cpu=32,mem=200M,node=2", tasks_per_node=0, tasks=32, max_nodes=2,
    )  # fmt: skip
    slurm.data["nodes"][6].update(cpus=16, effective_cpus=16)
    assert driver(slurm, tmp_path).cycle().released["5"] == ["n05", "n07"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_that_does_not_start_in_a_partition_goes_to_another_one(
    slurm: Recorded, tmp_path: Path, nodes: int
) -> None:
    """What Slurm does not tell may keep a job out of one, such as the groups that may use it."""
    several_partitions(slurm)
    slurm.data["jobs"] = [slurm.row(5)]
    slurm.row(5).update(
        partition="right,left", features="", tres_per_node="", memory_per_node=100,
        tres_req_str=f"cpu={nodes},mem=200M,node={nodes}", tasks_per_node=0, tasks=nodes,
    )  # fmt: skip
    right = {"n06", "n08", "n09"}
    for node in slurm.data["nodes"]:
        if nodes == 1 and node["name"] in ("n05", "n07"):
            node["alloc_cpus"] = 16  # else it might go there at first
    made = driver(slurm, tmp_path)
    assert set(made.cycle().released["5"]) <= right
    slurm.row(5)["state_reason"] = "PartitionConfig"
    for node in slurm.data["nodes"][4:9]:
        node["alloc_cpus"] = 0
    assert made.cycle().retracted == []  # it may be said of the other partition
    slurm.data["now_s"] += 40
    assert made.cycle().retracted == ["5"]
    slurm.data["now_s"] += 300
    assert not set(made.cycle().released["5"]) <= right
    slurm.row(5)["state_reason"] = "Resources"
    slurm.data["now_s"] += 40
    assert made.cycle().retracted == ["5"]
    slurm.data["now_s"] += 300
    assert "5" in made.cycle().released  # it has not started in any: none is avoided
    slurm.row(5)["state_reason"] = "Resources"
    slurm.data["now_s"] += 40
    made.cycle()
    slurm.data["now_s"] += 300
    assert "5" in made.cycle().left


@pytest.mark.parametrize("state", ["DOWN", "INACTIVE"])
def test_a_job_waits_for_a_partition_that_is_down_where_no_other_one_does(
    slurm: Recorded, tmp_path: Path, state: str
) -> None:
    several_partitions(slurm, right=state)
    slurm.row("5").update(partition="brief,right", time_limit=30)
    slurm.row("6").update(partition="left,right", tres_req_str="cpu=3,mem=3M,node=3", tasks=3)
    slurm.row("9").update(partition="brief", time_limit=30)
    done = driver(slurm, tmp_path).cycle()
    assert not {"5", "6"} & {*done.left, *done.released}
    assert "9" in done.left
    several_partitions(slurm)
    assert {"5", "6"} <= driver(slurm, tmp_path).cycle().released.keys()


@pytest.mark.parametrize(
    ("told", "address"),
    [("100,107,198,2...", "7_[100,107,198]"), ("1-3,7-9,101-1...", "7_[1-3,7-9]"),
     ("1-3,7...", "7_[1-3]"), ("1-3,...", "7_[1-3]"), ("1-3,7", "7_[1-3,7]")],
)  # fmt: skip
def test_a_list_of_tasks_that_slurm_has_cut_names_no_other_task(
    slurm: Recorded, told: str, address: str
) -> None:
    assert job_of(slurm.row(7) | {"array_task_string": told}).address == address


@pytest.mark.parametrize("dependency", ["singleton", "after:3(unfulfilled)", "afterok:3?afterok:4"])
def test_a_dependency_that_is_not_understood_waits_for_slurm(
    slurm: Recorded, tmp_path: Path, dependency: str
) -> None:
    slurm.row(5)["dependency"] = dependency
    done = driver(slurm, tmp_path).cycle()
    assert "5" not in done.left
    assert "5" not in done.released
    slurm.row(5)["dependency"] = ""
    assert "5" in driver(slurm, tmp_path).cycle().released


def test_jobs_that_share_a_type_to_be_apart_still_use_different_nodes(slurm: Recorded) -> None:
    template = slurm.row(5)
    for number in range(100, 130):
        slurm.data["jobs"].append(template | {"job_id": number})
    picture = take(read(slurm), lambda job: job.held)
    for name in ("easy", "best"):
        starts = picture.starts(decided(dispatch.make(name), picture.instance))
        assert len(starts) > 8
        assert all(len(set(nodes)) == max(job.nodes, 1) for job, nodes in starts if job.key != "15")


def test_a_record_that_cannot_be_read_is_told_and_the_others_are_used(slurm: Recorded) -> None:
    slurm.row(5)["tres_req_str"] = "cpu=many"
    slurm.data["nodes"][3]["gres"] = "((("
    view = watch(slurm, dispatch.make("easy"), Rules())
    assert len(view.unread) == 2
    assert view.unread[0].startswith("job 5: ")
    assert "5" not in {each.job for each in view.jobs}
    assert len(view.jobs) > 5


@pytest.mark.parametrize("tasks", ["5-1", "x", "n[01-9]", "0-999999999"])
def test_an_array_whose_tasks_cannot_be_read_is_told_too(slurm: Recorded, tasks: str) -> None:
    array = next(row for row in slurm.data["jobs"] if row["array_task_string"])
    array["array_task_string"] = tasks
    view = watch(slurm, dispatch.make("easy"), Rules())
    assert [text.partition(": ")[0] for text in view.unread] == [f"job {array['job_id']}"]
    assert len(view.jobs) > 5


def test_without_nodes_there_is_an_error(slurm: Recorded) -> None:
    slurm.data["nodes"] = []
    with pytest.raises(CpdispatchError, match="no node with a CPU"):
        watch(slurm, dispatch.make("easy"), Rules())


def test_a_cluster_that_does_not_hand_out_memory(slurm: Recorded) -> None:
    view = watch(slurm, dispatch.make("easy"), Rules(memory=False))
    assert "mem" not in view.instance.system.resources
    assert "mem@whole" not in view.instance.system.resources


# ------------------------------------------------------------------------------- the driver


def test_every_job_runs_once_on_the_nodes_that_were_decided(
    slurm: Recorded, tmp_path: Path
) -> None:
    nodes = drive(slurm, tmp_path)
    assert sorted(slurm.began) == sorted(MINE)
    assert {job: sorted(n) for job, n in nodes.items()} == {
        job: n for job, n in slurm.began.items() if job != "12"
    }
    assert slurm.row("4")["job_state"] == "PENDING"  # its user holds it
    assert not Journal(tmp_path).jobs


@pytest.mark.parametrize("seed", range(examples(12, 5)))
def test_a_driver_that_is_killed_at_any_instant_loses_no_job_and_starts_none_twice(
    slurm: Recorded, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)

    class Deadly:
        """Kills whoever asks, before or after it is done, now and then."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def asked(*arguments: Any) -> Any:
                if rng.random() < 0.04:
                    raise Killed
                answer = getattr(slurm, name)(*arguments)
                if rng.random() < 0.04:
                    raise Killed
                return answer

            return asked

    kills, nodes = 0, {}
    for _ in range(120):
        try:
            made = driver(Deadly(), tmp_path, patience_s=5)
            for _ in range(3):
                nodes |= made.cycle().released
                slurm.step()
        except Killed:
            kills += 1
            slurm.step()
    assert kills > 10
    assert sorted(slurm.began) == sorted(MINE)


def test_slurm_that_is_away_now_and_then_loses_no_job(slurm: Recorded, tmp_path: Path) -> None:
    rng = random.Random(3)

    class Away:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def asked(*arguments: Any) -> Any:
                if rng.random() < 0.1:
                    raise SlurmError("no answer within 30 s")
                return getattr(slurm, name)(*arguments)

            return asked

    made, failed = driver(Away(), tmp_path, patience_s=5), 0
    for _ in range(150):
        try:
            made.cycle()
        except SlurmError:
            failed += 1
        slurm.step()
    assert failed > 10
    assert sorted(slurm.began) == sorted(MINE)


def test_a_job_that_was_left_is_told_though_slurm_did_not_answer_to_its_priority(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Away:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            return getattr(slurm, name)

        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if changes == {"priority": LAST}:
                raise SlurmError("no answer within 30 s")
            slurm.update(job, changes)

    made = driver(Away(), tmp_path)
    with pytest.raises(SlurmError, match="no answer"):
        made.cycle()
    assert made.done is not None
    assert list(made.done.left) == ["12"]
    assert {*made.done.released, *made.done.left} == {job for job, _ in slurm.changes}


def test_a_job_that_does_not_start_is_held_again_and_sent_elsewhere(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path, patience_s=2)
    first = made.cycle().released["9"]
    # Somebody else's job takes the node before Slurm looks at ours.
    for node in slurm.data["nodes"]:
        if node["name"] == first[0]:
            node.update(alloc_cpus=16, alloc_memory=64_000)
    slurm.step(3)
    done = made.cycle()
    assert set(done.retracted) == {"9", "15"}  # both were sent there
    assert not {"9", "15"} & set(done.released)
    assert slurm.row("9")["priority"] == 0
    assert slurm.row("9")["required_nodes"] == ""
    slurm.step(10)
    second = made.cycle().released["9"]
    assert second != first
    slurm.step()
    assert slurm.began["9"] == second
    assert made.cycle().started["9"] == second


class Picky(Recorded):
    """Starts job 9 on one node alone, for a reason that is not to be seen."""

    def _try(self, row: dict[str, Any]) -> None:
        if row["job_id"] != 9 or row["required_nodes"] in ("", "n16"):
            super()._try(row)


@pytest.mark.parametrize("again", [True, False], ids=["a new driver each time", "the same"])
@pytest.mark.parametrize("reason", ["Resources", "ReqNodeNotAvail"])
def test_a_job_that_slurm_starts_on_none_of_its_nodes_is_left_to_it(
    slurm: Recorded, tmp_path: Path, reason: str, again: bool
) -> None:
    picky = Picky(slurm.data)
    made, releases, left = driver(picky, tmp_path), 0, []
    for _ in range(170):
        if again:
            made = driver(picky, tmp_path)
        done = made.cycle()
        if "9" in done.released:
            releases += 1
            picky.row("9")["state_reason"] = reason
        left += [done.left["9"]] if "9" in done.left else []
        picky.step()
    assert releases == 3
    assert left == ["Slurm did not start it on nodes that it was given 3 times"]
    assert "9" in picky.began
    assert "9" not in Journal(tmp_path).jobs


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_beside_one_of_several_partitions_is_given_time(
    slurm: Recorded, tmp_path: Path, fails: bool
) -> None:
    picky = Picky(slurm.data)
    made = driver(picky, tmp_path, patience_s=20)
    (node,) = made.cycle().released["9"]
    picky.row("9")["state_reason"] = "ReqNodeNotAvail"
    if fails:
        next(row for row in picky.data["nodes"] if row["name"] == node)["state"] = "down"
    after = 0
    while "9" not in made.cycle().retracted:
        picky.step()
        after += 1
    assert after == (0 if fails else 21)


@pytest.mark.parametrize(
    "seen", ["a limit", "jobs before it", "a node that fails", "a node that is taken"]
)
def test_a_job_that_does_not_start_for_a_reason_that_is_seen_is_not_left(
    slurm: Recorded, tmp_path: Path, seen: str
) -> None:
    slurm.row("9").update(features="", tres_per_node="")
    picky = Picky(slurm.data)
    made, releases = driver(picky, tmp_path, patience_s=5), 0
    for _ in range(200):
        done = made.cycle()
        assert "9" not in done.left
        for node in picky.data["nodes"]:
            if node["name"] not in done.released.get("9", ()):
                continue
            releases += 1
            if seen == "a limit":
                picky.row("9")["state_reason"] = "AssocGrpCpuLimit"
            elif seen == "jobs before it":
                picky.row("9")["state_reason"] = "Priority"
            elif seen == "a node that fails":
                node["state"] = "down"
            else:
                node.update(alloc_cpus=16)
        picky.step()
    assert releases > 3


def test_a_job_that_somebody_has_held_is_tried_anew(slurm: Recorded, tmp_path: Path) -> None:
    picky = Picky(slurm.data)
    made, releases = driver(picky, tmp_path, patience_s=2), 0
    for _ in range(250):
        done = made.cycle()
        if "9" in done.released:
            releases += 1
            picky.row("9")["state_reason"] = "Resources"
        if releases == 2 and "9" in done.released:
            picky.update("9", {"hold": True})
            assert "9" in made.cycle().kept
            picky.update("9", {"hold": False})
            assert "9" in made.cycle().retracted
        picky.step()
    assert releases == 5
    assert Journal(tmp_path).jobs["9"].vain == 3


def test_a_job_whose_releases_slurm_refuses_is_left_to_it(slurm: Recorded, tmp_path: Path) -> None:
    class Refusing(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if job == "9" and changes.get("nodelist"):
                raise RefusedError("Requested node configuration is not available", 2014)
            super().update(job, changes)

    refusing = Refusing(slurm.data)
    drive(refusing, tmp_path, 120)
    assert "9" in refusing.began


def test_what_is_promised_is_not_promised_twice(slurm: Recorded, tmp_path: Path) -> None:
    made = driver(slurm, tmp_path)
    first = made.cycle()
    template = slurm.row(9)
    slurm.data["jobs"].append(
        template | {"job_id": 200, "priority": 0, "required_nodes": first.released["9"][0],
                    "admin_comment": "cpdispatch"}
    )  # fmt: skip
    assert slurm.row(9)["job_state"] == "PENDING"
    assert "200" not in made.cycle().released  # 3 of 4 GPUs are promised to 9


def test_a_job_that_is_cancelled_before_its_release_is_forgotten(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Hasty(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if job == "5":
                self.row(5)["job_state"] = "CANCELLED"
            super().update(job, changes)

    hasty = Hasty(slurm.data)
    done = driver(hasty, tmp_path).cycle()
    assert "finished" in done.refused["5"]
    assert "5" not in done.released
    assert "5" not in Journal(tmp_path).jobs
    assert "6" in done.released


class Slow(Recorded):
    """Answers a change once another one has come, too."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self._another = threading.Event()

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        if self.changes:
            self._another.set()
        super().update(job, changes)
        assert self._another.wait(60)


def test_a_release_waits_for_no_other_and_comes_before_its_priority(
    slurm: Recorded, tmp_path: Path
) -> None:
    slurm.row("10").update(priority=4_000_000, admin_comment="")  # one of Slurm's own
    slow = Slow(slurm.data)
    done = driver(slow, tmp_path).cycle()
    assert len(done.released) > 2
    for key in done.released:
        assert [sorted(changes) for job, changes in slow.changes if job == key] == [
            ["hold", "nodelist"], ["priority"],
        ]  # fmt: skip


def test_released_jobs_come_before_those_that_are_left_to_slurm(
    slurm: Recorded, tmp_path: Path
) -> None:
    """Slurm itself gives jobs the least priority, too, where its weights are 0."""
    made = driver(slurm, tmp_path)
    done = made.cycle()
    assert "12" in done.left
    assert {slurm.row(key)["priority"] for key in done.released if "_" not in key} == {FIRST}
    for row in slurm.data["jobs"]:
        if row["job_state"] == "RUNNING":
            row["job_state"] = "COMPLETED"
            slurm._hold(row, -1)
    again = made.cycle().released
    assert again
    assert {slurm.row(key)["priority"] for key in again if "_" not in key} == {FIRST}


def test_a_job_whose_priority_may_not_be_raised_is_released_all_the_same(
    slurm: Recorded, tmp_path: Path
) -> None:
    """As under a coordinator of an account: only operators raise priorities."""
    slurm.row("10").update(priority=4_000_000, admin_comment="")  # one of Slurm's own

    class Coordinated(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if "priority" in changes:
                raise RefusedError("Access/permission denied", 2002)
            super().update(job, changes)

    made = driver(Coordinated(slurm.data), tmp_path)
    done = made.cycle()
    assert len(done.released) > 2
    assert set(done.released) <= set(done.refused)
    assert {Journal(tmp_path).jobs[key].state for key in done.released} == {"released"}
    assert not made.cycle().released  # their nodes are promised


def test_a_release_that_slurm_refuses_and_makes_all_the_same_is_taken_back(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Both(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            super().update(job, changes)
            if job == "9":
                raise RefusedError("Unspecified error", -1)

    both = Both(slurm.data)
    made = driver(both, tmp_path)
    assert "9" in made.cycle().refused
    assert not job_of(both.row("9")).held
    both.__class__ = Recorded  # type: ignore[assignment]
    assert made.cycle().retracted == ["9"]
    assert both.row("9")["required_nodes"] == ""


@pytest.mark.parametrize("answer", [True, False], ids=["an answer", "no answer"])
def test_a_job_that_starts_while_it_is_taken_back_runs_on_unheld(
    slurm: Recorded, tmp_path: Path, answer: bool
) -> None:
    class Late(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if changes.get("hold"):
                self.row(job)["job_state"] = "RUNNING"
                self.row(job)["job_resources"] = {
                    "allocated_nodes": [{"nodename": "n13", "memory_allocated": 500,
                                         "sockets": {"0": {"cores": {"0": "allocated"}}}}]
                }  # fmt: skip
            try:
                super().update(job, changes)
            finally:
                if changes.get("hold") and not answer:
                    raise SlurmError("no answer within 30 s")

    late = Late(slurm.data)
    late.data["jobs"] = [row for row in late.data["jobs"] if row["job_id"] in (1, 2, 3, 9)]
    made = driver(late, tmp_path, patience_s=2)
    made.cycle()
    late.data["now_s"] += 3
    if answer:
        assert made.cycle().retracted == []
    else:
        with pytest.raises(SlurmError, match="no answer"):
            made.cycle()
    assert "9" in made.cycle().started
    assert late.row("9")["priority"] > 0


def test_a_job_that_is_queued_again_loses_the_nodes_that_it_had(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path)
    had = made.cycle().released["9"]
    slurm.step()
    made.cycle()
    row = slurm.row("9")
    slurm._hold(row, -1)
    row["job_state"] = "PENDING"
    del slurm.began["9"]
    next(node for node in slurm.data["nodes"] if node["name"] == had[0])["state"] = "down"
    assert made.cycle().retracted == ["9"]
    slurm.step(11)
    assert made.cycle().released["9"] != had


def test_a_job_that_is_about_to_be_queued_again_is_not_forgotten(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path, hold_by="submitters")
    made.cycle()
    slurm.step()
    made.cycle()
    row = slurm.row("9")
    for state in ("COMPLETING", "REQUEUED", "PENDING"):
        row["job_state"] = state
        done = made.cycle()
    assert done.retracted == ["9"]
    assert row["required_nodes"] == ""


def test_a_job_that_cannot_be_read_once_is_not_forgotten(slurm: Recorded, tmp_path: Path) -> None:
    made = driver(slurm, tmp_path, hold_by="submitters")
    made.cycle()
    slurm.step()
    made.cycle()
    row = slurm.row("9")
    told, row["job_resources"] = row["job_resources"], {}
    assert made.cycle().unread == ("job 9: a running job without nodes",)
    row["job_resources"] = told
    slurm._hold(row, -1)
    row["job_state"] = "PENDING"  # its node has failed
    assert made.cycle().retracted == ["9"]
    assert row["required_nodes"] == ""


def test_a_job_that_a_limit_keeps_from_starting_is_taken_back_at_once(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path)
    assert "5" in made.cycle().released
    slurm.row("5")["state_reason"] = "AssocMaxJobsLimit"
    slurm.row("6")["state_reason"] = "Resources"
    done = made.cycle()
    assert done.retracted == ["5"]
    waits_s = []
    for _ in range(400):
        slurm.data["now_s"] += 1
        done = made.cycle()
        if "5" in done.released:
            waits_s.append(slurm.now_s())
            slurm.row("5")["state_reason"] = "AssocMaxJobsLimit"
    assert np.diff(waits_s).tolist() == [21, 41, 81, 161]  # it is seen a second later


def test_a_job_that_a_limit_kept_back_is_released_again_when_one_of_its_user_ends(
    slurm: Recorded, tmp_path: Path
) -> None:
    """One job for each that has ended, the first one of the same user."""
    users = {"5": "bob", "6": "ann", "9": "ann", "10": "ann"}
    for key, user in users.items():
        slurm.row(key).update(user_name=user, account="", qos="")
    made = driver(slurm, tmp_path)
    assert users.keys() <= made.cycle().released.keys()
    for key in ("5", "6", "10"):
        slurm.row(key)["state_reason"] = "QOSMaxJobsPerUserLimit"
    slurm._try(slurm.row("9"))
    assert set(made.cycle().retracted) == {"5", "6", "10"}
    assert not made.cycle().released.keys() & users.keys()
    slurm.row("9")["job_state"] = "COMPLETED"
    slurm._hold(slurm.row("9"), -1)
    assert made.cycle().released.keys() & users.keys() == {"6"}
    assert not made.cycle().released.keys() & users.keys()


def test_jobs_of_a_user_beyond_a_limit_keep_no_nodes_from_others(
    slurm: Recorded, tmp_path: Path
) -> None:
    slurm.data["nodes"] = slurm.data["nodes"][4:8]
    slurm.data["reservations"] = []
    plain = {"tres_req_str": "cpu=16,mem=9M,node=1", "tasks_per_node": 0, "memory_per_node": 9,
             "features": "", "tres_per_node": "", "account": "", "qos": ""}  # fmt: skip
    jobs = [
        slurm.row(5) | plain | {"job_id": number, "user_name": "ann"} for number in range(300, 312)
    ]
    array = slurm.row(7) | plain | {"user_name": "ann"}
    slurm.data["jobs"] = [*jobs, array]
    made = driver(slurm, tmp_path)
    assert len(made.cycle().released) == 4
    for row in jobs:
        row["state_reason"] = "QOSMaxJobsPerUserLimit"
    jobs.append(jobs[0] | {"job_id": 400, "user_name": "bob", "priority": 0, "required_nodes": "",
                           "state_reason": "JobHeldUser"})  # fmt: skip
    slurm.data["jobs"].append(jobs[-1])
    done = made.cycle()
    assert len(done.retracted) == 4
    assert set(done.released) == {"400"}
    assert done.waiting == 9  # an array is one
    assert not made.cycle().released
    slurm.data["now_s"] += 61
    assert len(made.cycle().released) == 4


@pytest.mark.parametrize(
    ("reason", "starts", "ends", "released"),
    [
        ("QOSMaxJobsPerUserLimit", 3, 3, 3),
        ("QOSMaxJobsPerUserLimit", 4, 0, 0),
        ("QOSMaxCpuPerJobLimit", 4, 0, 2),  # no end of a job makes room for it
    ],
)
def test_as_many_jobs_are_tried_as_have_ended_beside_a_limit(
    slurm: Recorded, tmp_path: Path, reason: str, starts: int, ends: int, released: int
) -> None:
    slurm.data["nodes"] = slurm.data["nodes"][4:10]
    slurm.data["reservations"] = []
    row = slurm.row(5) | {
        "tres_req_str": "cpu=16,mem=9M,node=1", "tasks_per_node": 0, "memory_per_node": 9,
        "features": "", "tres_per_node": "", "account": "", "qos": "", "user_name": "ann",
    }  # fmt: skip
    slurm.data["jobs"] = [row | {"job_id": number} for number in range(300, 312)]
    held = row | {"job_id": 100, "admin_comment": ""}  # by ann
    slurm.data["jobs"].append(held)
    made = driver(slurm, tmp_path)
    assert len(made.cycle().released) == 6
    for number in range(300, 306):
        slurm.row(number)["state_reason"] = reason
    for number in range(300, 300 + starts):
        slurm._try(slurm.row(number))
    done = made.cycle()
    assert len(done.retracted) == 6 - starts
    for number in range(300, 300 + ends):
        slurm.row(number)["job_state"] = "COMPLETED"
        slurm._hold(slurm.row(number), -1)
    assert len(done.released | made.cycle().released) == released


REQUEUED = "job requeued in held state"
NOT_LAUNCHED = "launch failed requeued held"


def queued_again(slurm: Recorded, job: str, reason: str, remark: str) -> None:
    """Slurm has stopped a job, and holds it."""
    row = slurm.row(job)
    if row["job_state"] == "RUNNING":
        slurm._hold(row, -1)
    slurm.began.pop(job, None)
    row.update(
        job_state="PENDING", priority=0, state_reason=reason, state_description=remark,
        job_resources={}, gres_detail=[], restart_cnt=row["restart_cnt"] + 1,
    )  # fmt: skip


@pytest.mark.parametrize("again", [True, False], ids=["a new driver", "the same"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen to run", "not seen to run"])
@pytest.mark.parametrize(
    ("reason", "remark"),
    [("JobHeldAdmin", NOT_LAUNCHED), ("JobHeldUser", REQUEUED), ("JobHeldAdmin", "")],
)
def test_a_job_that_others_hold_stays_so_until_they_release_it(
    slurm: Recorded, tmp_path: Path, reason: str, remark: str, seen: bool, again: bool
) -> None:
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().released
    slurm.step()
    if seen:
        assert "9" in made.cycle().started
    queued_again(slurm, "9", reason, remark)
    if again:
        made = driver(slurm, tmp_path)
    assert made.cycle().kept == {"9": remark or reason}
    for _ in range(9):
        slurm.step()
        done = made.cycle()
        assert not done.kept
        assert "9" not in done.released
        assert job_of(slurm.row("9")).held
    assert slurm.row("9")["required_nodes"] == ""
    slurm.update("9", {"hold": False})
    assert made.cycle().retracted == ["9"]  # it comes in its turn, as before
    drive(slurm, tmp_path)
    assert slurm.row("9")["job_state"] == "COMPLETED"


def test_the_journal_is_written_once_however_many_jobs_others_hold(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    save = Journal.save

    def counted(journal: Journal) -> None:
        written.append(len(journal.jobs))
        save(journal)

    made = driver(slurm, tmp_path)
    for row in slurm.data["jobs"]:
        if row["job_state"] == "PENDING":
            row["comment"] = KEPT
    monkeypatch.setattr(Journal, "save", counted)
    assert len(made.cycle().kept) > 5
    assert len(written) <= 4


@pytest.mark.parametrize(
    ("reason", "remark", "held"),
    [("JobHeldAdmin", NOT_LAUNCHED, True), ("JobHeldUser", REQUEUED, True),
     ("JobHeldAdmin", "", True), ("BadConstraints", "", False)],
)  # fmt: skip
def test_stopping_releases_no_job_that_others_hold(
    slurm: Recorded, tmp_path: Path, reason: str, remark: str, held: bool
) -> None:
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().released
    slurm.step()
    made.cycle()
    queued_again(slurm, "9", reason, remark)  # since the last cycle of a driver that was killed
    driver(slurm, tmp_path).hand_back()
    assert job_of(slurm.row("9")).held is held
    assert slurm.row("9")["required_nodes"] == ""


@pytest.mark.parametrize("again", [True, False], ids=["a new driver", "the same"])
@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin"])
def test_a_job_that_others_hold_though_it_was_left_to_slurm_stays_held(
    slurm: Recorded, tmp_path: Path, reason: str, again: bool
) -> None:
    made = driver(slurm, tmp_path)
    slurm.row("12")["licenses"] = ""
    assert "12" in made.cycle().released
    slurm.row("12")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["12"]  # so the driver has held it once itself
    slurm.row("12")["licenses"] = "matlab:1"
    slurm.data["now_s"] += 11
    assert "12" in made.cycle().left
    slurm.row("12").update(priority=0, state_reason=reason)
    if again:
        made = driver(slurm, tmp_path)
    assert made.cycle().kept == {"12": reason}
    for _ in range(3):
        slurm.step()
        assert not made.cycle().left
    made.hand_back()
    assert job_of(slurm.row("12")).held


def test_a_job_whose_driver_was_killed_before_it_was_left_is_left_by_the_next(
    slurm: Recorded, tmp_path: Path
) -> None:
    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] == 12]
    mortal = Mortal(slurm.data, 0)
    with pytest.raises(Killed):
        driver(mortal, tmp_path).cycle()
    mortal.left = sys.maxsize
    done = driver(mortal, tmp_path).cycle()
    assert not done.kept
    assert "12" in done.left


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin"])
def test_a_hold_by_others_stays_though_the_driver_is_killed_when_it_sees_it(
    slurm: Recorded, tmp_path: Path, reason: str, after: int
) -> None:
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().released
    if reason == "JobHeldAdmin":  # the driver has held it once itself
        slurm.row("9")["state_reason"] = "AssocMaxJobsLimit"
        assert made.cycle().retracted == ["9"]
        slurm.data["now_s"] += 11
        assert "9" in made.cycle().released
    slurm.row("9").update(priority=0, state_reason=reason)
    mortal = Mortal(slurm.data, after)
    with pytest.raises(Killed):
        driver(mortal, tmp_path).cycle()
    mortal.left = sys.maxsize
    assert mortal.row("9")["required_nodes"] == (
        "" if after else Journal(tmp_path).jobs["9"].nodes[0]
    )
    drive(mortal, tmp_path)
    assert "9" not in mortal.began
    driver(mortal, tmp_path).hand_back()
    assert job_of(mortal.row("9")).held
    assert mortal.row("9")["required_nodes"] == ""


def test_the_chosen_nodes_of_a_job_that_others_hold_are_taken_back_when_slurm_answers_again(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Silent(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if job == "9":
                raise SlurmError("no answer within 30 s")
            super().update(job, changes)

    made = driver(slurm, tmp_path)
    nodes = made.cycle().released["9"]
    slurm.row("9").update(priority=0, state_reason="JobHeldAdmin", state_description=NOT_LAUNCHED)
    slurm.__class__ = Silent
    with pytest.raises(SlurmError, match="no answer"):
        made.cycle()
    slurm.__class__ = Recorded
    assert made.cycle().kept == {}
    assert slurm.row("9")["required_nodes"] == ""
    slurm.update("9", {"nodelist": nodes[0]})  # by the administrator who holds it
    made.cycle()
    assert slurm.row("9")["required_nodes"] == nodes[0]


@pytest.mark.parametrize("by", ["the administrator who holds it", "its user"])
def test_nodes_that_others_name_for_a_job_while_it_waits_are_its_own(
    slurm: Recorded, tmp_path: Path, by: str
) -> None:
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().released
    slurm.row("9")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["9"]
    slurm.step(600)
    slurm.step(5)  # the others have ended
    if by == "its user":
        slurm.update("9", {"nodelist": "n12"})
    else:
        slurm.row("9").update(state_description=NOT_LAUNCHED)
        assert "9" in made.cycle().kept
        slurm.update("9", {"nodelist": "n12"})
        slurm.update("9", {"hold": False})
        assert made.cycle().retracted == ["9"]
        slurm.step(600)
    assert made.cycle().released["9"] == ["n12"]
    slurm.row("9")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["9"]
    assert slurm.row("9")["required_nodes"] == "n12"
    slurm.update("9", {"nodelist": "n11"})
    made.hand_back()
    assert slurm.row("9")["required_nodes"] == "n11"


def test_nodes_that_a_user_names_for_a_job_that_waits_are_handed_back(
    slurm: Recorded, tmp_path: Path
) -> None:
    slurm.row("12").update(required_nodes="n05", admin_comment="cpdispatch n05")
    assert "12" in driver(slurm, tmp_path).cycle().left
    for job, nodes in (("12", ""), ("13", "n11")):
        slurm.update(job, {"nodelist": nodes})
    driver(slurm, tmp_path).hand_back()
    assert slurm.row("12")["required_nodes"] == ""
    assert slurm.row("13")["required_nodes"] == "n11"


def test_a_job_that_an_administrator_holds_while_it_waits_is_not_released(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path)
    waiting = next(job for job in MINE[:2] if job not in made.cycle().released)
    slurm.update(waiting, {"hold": True})
    assert made.cycle().kept == {waiting: "JobHeldAdmin"}
    drive(slurm, tmp_path)
    assert job_of(slurm.row(waiting)).held
    assert waiting not in slurm.began
    assert driver(slurm, tmp_path).hand_back() == ["13"]
    assert job_of(slurm.row(waiting)).held


@pytest.mark.parametrize("seen", [True, False], ids=["a driver saw it", "no driver saw it"])
@pytest.mark.parametrize("job", ["5", "12"], ids=["released", "left"])
def test_a_hold_that_the_plugin_has_seen_outlives_the_journal(
    slurm: Recorded, tmp_path: Path, job: str, seen: bool
) -> None:
    made = driver(slurm, tmp_path)
    done = made.cycle()
    assert job in {*done.released, *done.left}
    if not seen:
        made.hand_back()  # the job is Slurm's own from then on
    slurm.update(job, {"hold": True})
    slurm.row(job)["state_reason"] = "JobHeldUser"
    if seen:
        assert made.cycle().kept == {job: "JobHeldUser"}
    for _ in range(2):
        assert job not in driver(slurm, tmp_path).hand_back()
        assert job_of(slurm.row(job)).held
    (tmp_path / NAME).unlink()
    assert not waits(job_of(slurm.row(job)), Rules())
    with_journal_lost = driver(slurm, tmp_path)
    assert with_journal_lost.cycle().kept == {job: "JobHeldUser"}
    assert f" {job} " in (tmp_path / guard.ALIVE).read_text()  # its user may release it
    slurm.step()
    assert not with_journal_lost.cycle().released.keys() & {job}
    slurm.update(job, {"hold": False})
    assert with_journal_lost.cycle().retracted == [job]  # it comes in its turn
    assert not job_of(slurm.row(job)).others_hold


@pytest.mark.parametrize("journal", ["kept", "lost"])
def test_a_hold_on_a_job_that_the_driver_has_held_again_is_by_others(
    slurm: Recorded, tmp_path: Path, journal: str
) -> None:
    made = driver(slurm, tmp_path)
    assert "5" in made.cycle().released
    slurm.row("5")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["5"]
    slurm.update("5", {"hold": True})
    if journal == "lost":
        (tmp_path / NAME).unlink()
        made = driver(slurm, tmp_path)
    assert made.cycle().kept == {"5": "JobHeldAdmin"}


def test_a_hold_where_the_job_names_the_nodes_that_were_chosen_is_by_others(
    slurm: Recorded, tmp_path: Path
) -> None:
    slurm.row("9").update(required_nodes="n12", admin_comment="cpdispatch n12")
    made = driver(slurm, tmp_path)
    assert made.cycle().released["9"] == ["n12"]
    slurm.update("9", {"hold": True})
    slurm.row("9")["state_reason"] = "JobHeldUser"
    assert made.cycle().kept == {"9": "JobHeldUser"}


def test_an_array_that_an_administrator_holds_is_not_released(
    slurm: Recorded, tmp_path: Path
) -> None:
    slurm.row("7")["partition"] = "nowhere"
    made = driver(slurm, tmp_path)
    made.cycle()
    slurm.row("7").update(partition=slurm.row("9")["partition"], state_reason="JobHeldAdmin")
    assert made.cycle().kept == {"7": "JobHeldAdmin"}
    for _ in range(3):
        slurm.step()
        assert not any(key.startswith("7_") for key in made.cycle().released)
    row = slurm.row("7")
    row.update(priority=4_000_000, state_reason="None")
    assert made.cycle().retracted == ["7"]
    drive(slurm, tmp_path)
    assert {f"7_{task}" for task in range(6)} <= set(slurm.began)


@pytest.mark.parametrize("then", ["the same driver", "a new driver", "stop"])
def test_a_new_job_with_the_number_of_an_old_one_is_not_taken_for_it(
    slurm: Recorded, tmp_path: Path, then: str
) -> None:
    """As after a start of slurmctld without its saved state."""
    fresh = slurm.row("9")
    new = fresh | {"submit_time": slurm.now_s() + 100, "user_name": "other"}
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().released
    slurm.step()
    assert "9" in made.cycle().started
    slurm._hold(fresh, -1)
    slurm.data["jobs"][slurm.data["jobs"].index(fresh)] = new
    slurm.data["now_s"] += 200
    if then != "the same driver":
        made = driver(slurm, tmp_path)
    if then == "stop":
        assert "9" in made.hand_back()
        assert not job_of(slurm.row("9")).held
        return
    done = made.cycle()
    assert not done.kept
    assert "9" in done.entered
    assert "9" in done.released


def test_a_new_array_with_the_number_of_an_old_one_is_not_taken_for_it(
    slurm: Recorded, tmp_path: Path
) -> None:
    """Its tasks have no records while they wait."""
    fresh = copy.deepcopy(slurm.row("7"))
    slurm.data["jobs"] = [slurm.row("7")]
    made = driver(slurm, tmp_path)
    tasks = {key for key in made.cycle().released if key.startswith("7_")}
    assert tasks
    slurm.step()
    assert tasks <= set(made.cycle().started)
    slurm.data["now_s"] += 200
    slurm.data["jobs"] = [fresh | {"submit_time": slurm.now_s() - 50}]
    for node in slurm.data["nodes"]:
        node.update(alloc_cpus=0, alloc_memory=0, gres_used="gpu:0")
    done = made.cycle()
    assert tasks <= set(done.entered)
    assert tasks <= set(done.released)
    made.cycle()
    assert tasks <= set(made.hand_back())


def test_a_jump_of_slurms_clock_makes_no_job_another_one(slurm: Recorded, tmp_path: Path) -> None:
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().released
    slurm.row("9")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["9"]
    slurm.data["now_s"] -= 100_000
    for _ in range(2):
        assert "9" not in made.cycle().kept
    slurm.data["now_s"] += 10_000
    assert "9" in made.cycle().released


@pytest.mark.parametrize("reason", ["Dependency", "DependencyNeverSatisfied", "BeginTime"])
def test_a_job_that_waits_for_something_else_is_not_taken_for_one_that_others_hold(
    slurm: Recorded, tmp_path: Path, reason: str
) -> None:
    made = driver(slurm, tmp_path)
    waiting = next(job for job in MINE[:2] if job not in made.cycle().released)
    slurm.row(waiting)["state_reason"] = reason
    assert not made.cycle().kept


def test_holds_of_a_driver_of_an_earlier_version_are_its_own(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path, patience_s=2)
    assert "5" in made.cycle().released
    slurm.row("5")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["5"]
    path = tmp_path / NAME
    path.write_text(re.sub(',"(admin|holds)":true', "", path.read_text()))
    slurm.step(11)
    done = driver(slurm, tmp_path).cycle()
    assert not done.kept
    assert "5" in done.released


def test_a_hold_by_an_administrator_stays_though_slurm_refused_a_release_before(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Stubborn(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if job == "9":
                raise RefusedError("Job dependency problem", 2035)
            super().update(job, changes)

    slurm.__class__ = Stubborn
    made = driver(slurm, tmp_path)
    assert "9" in made.cycle().refused
    slurm.__class__ = Recorded
    slurm.update("9", {"hold": True})
    for again in (made, driver(slurm, tmp_path)):
        slurm.step(11)
        done = again.cycle()
        assert "9" not in done.released
        assert job_of(slurm.row("9")).held


@pytest.mark.parametrize("again", [True, False], ids=["a new driver", "the same"])
def test_a_job_that_cannot_be_read_when_the_journal_is_lost_is_the_drivers_all_the_same(
    slurm: Recorded, tmp_path: Path, again: bool
) -> None:
    made = driver(slurm, tmp_path)
    assert {"5", "9"} <= set(made.cycle().released)
    slurm.row("9")["state_reason"] = "AssocMaxJobsLimit"
    assert made.cycle().retracted == ["9"]
    (tmp_path / NAME).unlink()
    told, slurm.row("9")["tres_req_str"] = slurm.row("9")["tres_req_str"], "cpu=many"
    made = driver(slurm, tmp_path)
    assert job_of(slurm.row("13")).held
    for _ in range(2):
        assert made.cycle().unread
    slurm.update("13", {"hold": True})  # by an administrator
    if again:
        made = driver(slurm, tmp_path)
    assert made.cycle().kept == {"13": "JobHeldAdmin"}  # of this one the journal is not lost
    slurm.row("9")["tres_req_str"] = told
    done = made.cycle()
    assert not done.kept
    slurm.step(700)
    assert "9" in done.released or "9" in made.cycle().released
    assert not Journal(tmp_path).unread


def test_a_driver_that_is_killed_while_it_holds_a_job_again_takes_the_hold_for_its_own(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Mortal(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            super().update(job, changes)
            if changes.get("hold"):
                raise Killed

    made = driver(slurm, tmp_path)
    assert "5" in made.cycle().released
    slurm.row("5")["state_reason"] = "AssocMaxJobsLimit"
    slurm.__class__ = Mortal
    with pytest.raises(Killed):
        made.cycle()
    slurm.__class__ = Recorded
    done = driver(slurm, tmp_path).cycle()
    assert not done.kept
    assert "5" in done.released


def test_a_job_stays_the_drivers_though_slurm_answers_to_neither_its_nodes_nor_its_release(
    slurm: Recorded, tmp_path: Path
) -> None:
    silent: dict[str, Any] = {}

    class Silent(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            unanswered = silent.items() & changes.items()
            if changes["hold"] or not unanswered:
                super().update(job, changes)
            if unanswered:
                raise SlurmError("no answer within 30 s")

    slurm.data["jobs"] = [row for row in slurm.data["jobs"] if row["job_id"] == 11]
    slurm.data["nodes"], slurm.data["reservations"] = slurm.data["nodes"][5:7], []
    slurm.__class__ = Silent
    made = driver(slurm, tmp_path, patience_s=2)
    had = made.cycle().released
    slurm.data["now_s"] += 3
    for what in ({"nodelist": ""}, {"hold": False}):
        silent.clear()
        silent.update(what)
        with pytest.raises(SlurmError, match="no answer"):
            made.cycle()
    silent.clear()
    done = made.cycle()
    assert not done.kept
    assert done.released == had


def test_the_nodes_of_a_held_job_that_slurm_does_not_take_back_are_told_and_it_waits(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Stubborn(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if changes == {"nodelist": ""}:
                raise RefusedError("Invalid node name specified", 2018)
            super().update(job, changes)

    made = driver(slurm, tmp_path)
    had = made.cycle().released["9"]
    slurm.row("9").update(priority=0, state_reason="JobHeldAdmin")
    made._journal.jobs["9"].state = "retracted"
    slurm.__class__ = Stubborn
    done = made.cycle()
    assert "Invalid node name" in done.refused["9"]
    assert "9" not in done.released
    slurm.__class__ = Recorded
    assert made.cycle().released["9"] == had


def test_a_job_for_which_slurm_finds_no_nodes_is_left_to_it_once(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path)
    assert "12" in made.cycle().left
    slurm.row("12").update(priority=0, state_reason="BadConstraints")
    for _ in range(5):
        slurm.step()
        done = made.cycle()
        assert not done.left
        assert not done.kept


def test_a_released_job_for_which_slurm_finds_no_nodes_is_taken_back_and_waits_a_while(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path)
    assert "5" in made.cycle().released
    slurm.row("5").update(priority=0, state_reason="BadConstraints")
    done = made.cycle()
    assert done.retracted == ["5"]
    assert "5" not in done.released
    slurm.step(11)
    assert "5" in made.cycle().released


@pytest.mark.parametrize("jump_s", [-40, 4000])
def test_a_jump_of_slurms_clock_loses_no_job(slurm: Recorded, tmp_path: Path, jump_s: int) -> None:
    made = driver(slurm, tmp_path, patience_s=5)
    made.cycle()
    slurm.data["now_s"] += jump_s
    for _ in range(60):
        made.cycle()
        slurm.step()
    assert set(MINE) <= set(slurm.began)


def test_a_partition_alone(slurm: Recorded, tmp_path: Path) -> None:
    for row in slurm.data["jobs"]:
        if row["job_id"] != 10:
            row["admin_comment"] = ""  # the plugin holds no others
    done = driver(slurm, tmp_path, partition="small").cycle()
    assert list(done.released) == ["10"]
    assert not done.left
    assert (tmp_path / guard.ALIVE).read_text().split("\n")[1] == "small"
    assert driver(slurm, tmp_path, partition="small").hand_back() == ["10"]


def test_jobs_of_a_partition_that_is_not_driven_any_more_are_slurms_own_again(
    slurm: Recorded, tmp_path: Path
) -> None:
    driver(slurm, tmp_path).cycle()
    slurm.update("8", {"hold": True})  # by an administrator
    done = driver(slurm, tmp_path, partition="small").cycle()
    assert done.left == dict.fromkeys(("7", "13"), "is in the partition main, which is not driven")
    assert list(done.kept) == ["8"]
    for job in map(job_of, slurm.jobs()):
        assert job.held == (job.key in ("4", "8"))
        # It waits in its turn: it keeps no driven job waiting.
        assert job.key not in done.left or job.priority > LAST


def test_a_held_job_that_is_moved_to_another_partition_is_slurms_own_again(
    slurm: Recorded, tmp_path: Path
) -> None:
    made = driver(slurm, tmp_path, partition="main")
    slurm.row("5").update(partition="small", time_limit=5)
    assert "5" in made.cycle().left
    assert not job_of(slurm.row("5")).held
    slurm.row("6").update(partition="small", time_limit=5, priority=0, state_reason="JobHeldUser")
    made._journal.jobs.pop("6", None)
    assert "6" in made.hand_back()
    assert not job_of(slurm.row("6")).held


def test_jobs_of_a_partition_of_a_higher_tier_come_first(slurm: Recorded) -> None:
    main, small = slurm.data["partitions"]
    assert (main["name"], small["priority_tier"]) == ("main", 1)
    small["priority_tier"] = 3
    seen = take(read(slurm), lambda job: job.held).instance
    names = [seen.queue.label("partition", k) for k in range(len(seen.queue))]
    assert seen.queue.tier.tolist() == [3 if name == "small" else 1 for name in names]
    assert set(names) == {"main", "small"}
    main["priority"] = {"tier": main.pop("priority_tier") + 6}  # as later releases say it
    assert take(read(slurm), lambda job: job.held).instance.queue.tier.max() == 7


def test_jobs_that_their_submitters_hold(slurm: Recorded, tmp_path: Path) -> None:
    nodes = drive(slurm, tmp_path, hold_by="submitters")
    # Held by hand, with or without the plugin's mark.
    assert sorted(slurm.began) == sorted([*MINE, "4"])
    assert len(nodes) == len(MINE)


def test_a_dry_run_changes_nothing(slurm: Recorded, tmp_path: Path) -> None:
    done = driver(slurm, tmp_path, dry=True).cycle()
    assert len(done.released) > 8
    assert done.left
    assert not slurm.changes
    assert not list(tmp_path.iterdir())


def test_an_infeasible_decision_releases_nothing(slurm: Recorded, tmp_path: Path) -> None:
    class Wrong:
        name = "wrong"

        def dispatch(self, given: instance.Instance) -> Decision:
            """Every job now, all of it on the first node."""
            jobs = len(given.queue)
            places = {k: {0: int(given.queue.units[k])} for k in range(jobs)}
            return Decision(
                np.full(jobs, given.now), np.zeros(jobs, dtype=np.int8), Placements.of(places),
                Certificate("wrong"),
            )  # fmt: skip

    with pytest.raises(DecisionError, match="infeasible"):
        Driver(slurm, Wrong(), tmp_path, Rules()).cycle()
    assert not slurm.changes
    assert not (tmp_path / guard.ALIVE).exists()  # so no new job is held


def test_nodes_that_are_alike_are_named_by_the_first_and_the_last(slurm: Recorded) -> None:
    """Messages about a node name its group: they would name another node by the first alone."""
    slurm.data["nodes"][7]["cpus"] = 8
    slurm.data["nodes"][7].pop("tres")
    system = take(read(slurm), lambda job: False).instance.system
    names = [(group.name, group.nodes) for group in system.groups]
    assert names == [("n01..n07", 7), ("n08", 1), ("n09..n16", 8)]


def test_the_wish_to_stop_is_heard_between_two_releases(slurm: Recorded, tmp_path: Path) -> None:
    slurm.row("12")["licenses"] = ""  # nothing is left to Slurm
    done = driver(slurm, tmp_path).cycle(lambda: len(slurm.changes) >= 2)
    assert [job for job, _ in slurm.changes] == list(done.released)
    assert len(slurm.changes) == 2


# -------------------------------------------------------------------------------- handing back


@pytest.mark.parametrize("journal", ["kept", "lost"])
@pytest.mark.parametrize("updates", [0, 1, 2, 4, 9, 99])
def test_everything_is_handed_back_from_whatever_a_killed_driver_left(
    slurm: Recorded, tmp_path: Path, updates: int, journal: str
) -> None:
    slurm.row("14").update(required_nodes="n05", admin_comment="cpdispatch n05")
    # One of Slurm's own, beside which released jobs come first.
    slurm.row("10").update(priority=4_000_000, admin_comment="")

    mortal = Mortal(slurm.data, updates)
    try:
        driver(mortal, tmp_path).cycle()
    except Killed:
        assert updates < 99
    if journal == "lost":
        (tmp_path / NAME).unlink()
    mortal.left = sys.maxsize
    # The hand-back is killed after each of its requests. It is tried again, or a driver goes on.
    for kept in range(100):
        trial, folder = Mortal(mortal.data, kept), tmp_path / str(kept)
        shutil.copytree(tmp_path, folder, ignore=lambda _, names: [n for n in names if n.isdigit()])
        try:
            driver(trial, folder).hand_back()
            killed = False
        except Killed:
            killed = True
        trial.left = sys.maxsize
        if killed and kept % 8 == updates % 8:
            again, other = Recorded(trial.data), tmp_path / f"{kept}0000"
            shutil.copytree(folder, other)
            drive(again, other)
            # That Slurm here finds no nodes for 15, which needs several and names none.
            assert set(MINE) - {*again.began} <= {"15"}
            assert not job_of(again.row("15")).held
        if killed:
            driver(trial, folder).hand_back()
        check_handed_back(trial, folder)
        if not killed:
            break
    assert kept > 4
    # And one that is killed again and again, each time one request later.
    while True:
        mortal.left = 1
        try:
            driver(mortal, tmp_path).hand_back()
            break
        except Killed:
            continue
    check_handed_back(mortal, tmp_path)


class Mortal(Recorded):
    """Kills whoever asks for changes when it has made as many as it has left."""

    def __init__(self, data: Mapping[str, Any], left: int) -> None:
        super().__init__(data)
        self.left = left

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        if self.left:
            self.left -= 1
            super().update(job, changes)
        if not self.left:
            raise Killed


def check_handed_back(slurm: Recorded, folder: Path) -> None:
    """Check that all jobs are Slurm's own, but for the one that its user holds."""
    for job in map(job_of, slurm.jobs()):
        if not job.pending or job.key == "4":
            continue
        assert LAST < job.priority < FIRST
        assert job.required == ("n05" if job.key == "14" else "")
    assert not (folder / guard.ALIVE).exists()
    assert driver(slurm, folder).hand_back() == []


def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Where the seconds are noted that a driver waits from now on; it goes on at once."""
    waited: list[float] = []
    monkeypatch.setattr("cpdispatch.adapters.slurm.drive.time.sleep", waited.append)
    return waited


def test_a_job_that_cannot_be_read_is_told_when_the_others_are_handed_back(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses(monkeypatch)
    slurm.row(5)["tres_req_str"] = "cpu=many"
    with pytest.raises(SlurmError, match=r"still held: job 5: .*; it cannot be read"):
        driver(slurm, tmp_path).hand_back()
    assert not job_of(slurm.row("6")).held


def test_several_jobs_are_handed_back_at_once(slurm: Recorded, tmp_path: Path) -> None:
    slow = Slow(slurm.data)
    assert len(driver(slow, tmp_path).hand_back()) > 5
    assert [job.key for job in map(job_of, slow.jobs()) if job.held] == ["4"]  # by its user


@pytest.mark.parametrize("answers", range(12))
def test_jobs_are_handed_back_although_slurm_does_not_answer_at_times(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    waited = pauses(monkeypatch)
    slurm.row("14").update(required_nodes="n05", admin_comment="cpdispatch n05")
    driver(slurm, tmp_path).cycle()
    busy = Busy(slurm.data, answers)
    driver(busy, tmp_path).hand_back()
    assert len(waited) < 3
    check_handed_back(Recorded(busy.data), tmp_path)


def test_that_slurm_has_gone_is_told_before_long(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = pauses(monkeypatch)
    with pytest.raises(SlurmError, match="no answer within 30 s"):
        driver(Busy(slurm.data, 0, silent=1_000), tmp_path).hand_back()
    assert len(waited) == 4


class Busy(Recorded):
    """Answers some requests, then some not, and then all.

    Of those that are not answered every other one is done all the same.
    """

    def __init__(self, data: Mapping[str, Any], answers: int, silent: int = 2) -> None:
        super().__init__(data)
        self.answers, self.silent = answers, silent
        self.lock = threading.Lock()

    def _ask(self) -> bool:
        """Whether there is an answer."""
        with self.lock:
            self.answers -= 1
            return self.answers >= 0 or self.answers < -self.silent

    def jobs(self) -> list[dict[str, Any]]:
        if not self._ask():
            raise SlurmError("no answer within 30 s")
        return super().jobs()

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        answered = self._ask()
        if answered or self.answers % 2:
            super().update(job, changes)
        if not answered:
            raise SlurmError("no answer within 30 s")


def test_what_slurm_refuses_to_take_back_is_told(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = pauses(monkeypatch)

    class Stubborn(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            raise RefusedError("Job dependency problem", 2035)

    with pytest.raises(SlurmError, match="still held: Job dependency problem"):
        driver(Stubborn(slurm.data), tmp_path).hand_back()
    assert len(waited) == 20


@pytest.mark.parametrize("number", [2002, 2010])
def test_a_user_without_rights_is_told_and_new_jobs_are_not_held(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], number: int,
) -> None:  # fmt: skip
    class Ordinary:
        def __init__(self, *_: object) -> None:
            pass

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name == "update":
                raise RefusedError("Invalid user id", number)
            return getattr(slurm, name)

    monkeypatch.setattr("cpdispatch.adapters.slurm.client.Client", Ordinary)
    for more in ([], ["--stop"]):
        assert cli.run(["slurm", "drive", "--state", str(tmp_path), *more]) == 2
        told = capsys.readouterr().err
        assert "Invalid user id" in told
        assert "sacctmgr modify user NAME set adminlevel=operator" in told
        assert not (tmp_path / guard.ALIVE).exists()
    # With the rights, everything goes on from there.
    assert driver(slurm, tmp_path).cycle().released


def test_a_job_that_may_not_be_changed_ends_no_driver_that_may_change_others(
    slurm: Recorded, tmp_path: Path
) -> None:
    class Other(Recorded):
        def update(self, job: str, changes: Mapping[str, Any]) -> None:
            if not self.changes:
                self.changes.append((job, {}))
                raise RefusedError("Access/permission denied", 2002)
            super().update(job, changes)

    done = driver(Other(slurm.data), tmp_path).cycle()
    assert len(done.refused) == 1
    assert done.released
    assert (tmp_path / guard.ALIVE).exists()


# -------------------------------------------------------------------------- lock and journal


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(UsageError, match="a driver is running")
    with guard.locked(tmp_path), refused, guard.locked(tmp_path):
        pass
    with guard.locked(tmp_path):
        pass


def test_a_driver_that_ends_just_before_it_is_asked_to_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*given: object) -> None:
        running.close()
        raise ProcessLookupError(3, "No such process")

    running = ExitStack()
    running.enter_context(guard.locked(tmp_path))
    monkeypatch.setattr("cpdispatch.adapters.slurm.guard.os.kill", kill)
    assert guard.ask_to_stop(tmp_path, print)


def test_a_driver_that_hands_back_for_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 3:
            running.close()

    told: list[str] = []
    asked: list[object] = []
    running = ExitStack()
    running.enter_context(guard.locked(tmp_path))
    monkeypatch.setattr("cpdispatch.adapters.slurm.guard._STOPPING_S", 0)
    monkeypatch.setattr(
        "cpdispatch.adapters.slurm.guard.os.kill", lambda *given: asked.append(given)
    )
    assert guard.ask_to_stop(tmp_path, tell)
    assert asked == [(os.getpid(), signal.SIGTERM)]  # a second signal would end it at once
    assert len(told) == 3
    assert told[0].startswith(f"process {os.getpid()} was asked to stop and still hands back jobs")


def test_a_journal_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    with pytest.raises(InputError, match=r"journal\.json: not a journal"):
        Journal(tmp_path)


def test_the_plugin_knows_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["slurm", "plugin", "--state", str(tmp_path), "--user", "64030"]) == 0
    text = capsys.readouterr().out
    assert f'"{tmp_path}/driving"' in text
    assert "DRIVER = 64030" in text
    assert "@" not in text
    # To Lua 5.3 and later a job's number is a float: as a text of its own it ends in ".0".
    assert 'string.format(" %d ", job_rec.job_id)' in text
    assert cli.run(["slurm", "plugin", "--state", 'a"b']) == 2


# ----------------------------------------------------------------------------------- the client


def _whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


@contextmanager
def served(path: Path, answer: Callable[[str], bytes | None]) -> Iterator[list[bytes]]:
    """A daemon that answers requests, or keeps silent where the answer is None."""
    heard: list[bytes] = []
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            request = b""
            while not _whole(request):
                request += connection.recv(65_536)
            heard.append(request)
            reply = answer(request.split()[1].decode().rsplit("/", 1)[1])
            if reply is None:
                time.sleep(1)
            else:
                connection.sendall(reply)
            connection.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield heard
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def http(body: bytes, status: int = 200) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def of_recording(what: str) -> bytes:
    data = json.loads(gzip.decompress(DATA.read_bytes()))
    if what == "diag":
        return http(json.dumps({"statistics": {"req_time": data["now_s"]}}).encode())
    return http(json.dumps({what: data[what]}).encode())


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (http(b"<html>"), "not JSON"),
        (http(b"[]"), "not a JSON object"),
        (http(b'{"jobs": 3}'), "no list of jobs"),
        (http(b'{"jobs": [3]}'), "no list of jobs"),
        (http(b'{"jobs": ["'), "not JSON"),
        (http(b"{}", 404), r"-s openapi/v0\.0\.38"),
        (http(b"{}", 401), "not allowed"),
        (http(b"{}", 500), "HTTP 500"),
        (http(b'{"errors": [{"error": "Unable to contact slurm controller"}]}'), "Unable to"),
        (b"nonsense\r\n\r\n", "slurmrestd running"),
        (http(b"{}")[:-2] + b"", "slurmrestd running"),
        (b"", "slurmrestd running"),
        (None, "no answer within 0.3 s"),
    ],
)
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, reply: bytes | None, said: str) -> None:
    with served(tmp_path / "s", lambda what: reply), pytest.raises(SlurmError, match=said):
        Client(tmp_path / "s", 0.3).jobs()


def test_names_in_another_encoding_are_read(tmp_path: Path) -> None:
    reply = http(b'{"jobs": [{"job_id": 7, "name": "caf\xe9"}]}')
    with served(tmp_path / "s", lambda what: reply):
        assert Client(tmp_path / "s").jobs() == [
            {"job_id": 7, "name": "caf\N{REPLACEMENT CHARACTER}"}
        ]


def test_a_daemon_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="No such file"):
        Client(tmp_path / "s").jobs()


def test_the_token_is_sent_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JWT", "secret-token")
    with served(tmp_path / "s", lambda what: http(b"{}", 401)) as heard:
        code = cli.run(["slurm", "watch", "--socket", str(tmp_path / "s"), "--cycles", "1"])
    out, err = capsys.readouterr()
    assert code == 2
    assert "not allowed" in err
    assert b"X-SLURM-USER-TOKEN: secret-token" in heard[0]
    assert "secret" not in out + err


@pytest.mark.parametrize(
    ("number", "refused"), [(1000, False), (1802, False), (5004, False), (2002, True), (0, True)]
)
def test_what_slurmctld_did_not_answer_is_no_refusal(
    tmp_path: Path, number: int, refused: bool
) -> None:
    """slurmrestd says so with an error of its messages: the change may have been made."""
    problem = {"error_number": number, "error": "Unexpected message received"}
    body = json.dumps({"errors": [problem]}).encode()
    said = pytest.raises(SlurmError, match="job/9: Unexpected message received")
    with served(tmp_path / "s", lambda what: http(body, 500)), said as raised:
        Client(tmp_path / "s").update("9", {"hold": True})
    assert isinstance(raised.value, RefusedError) is refused


@pytest.mark.parametrize(
    ("says", "refused"),
    [("Unexpected message received", False), ("Job has already finished", True)],
)
def test_a_stop_that_slurmctld_did_not_answer_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, refused: bool
) -> None:
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\necho {says} for job 9 >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    client = Client(tmp_path / "s")
    client._same_cluster = True
    with pytest.raises(SlurmError, match=f"scontrol requeuehold 9: {says}") as raised:
        client.requeue("9")
    assert isinstance(raised.value, RefusedError) is refused


def test_an_array_is_changed_though_slurm_complains(tmp_path: Path) -> None:
    body = b'{"errors": [{"description": "job array update from x failed"}]}'
    with served(tmp_path / "s", lambda what: http(body)) as heard:
        Client(tmp_path / "s").update("7_[1-4]", {"hold": False})
    assert heard[0].startswith(b"POST /slurm/v0.0.38/job/7_%5B1-4%5D ")


def test_a_change_is_made_though_a_partition_does_not_admit_the_job(tmp_path: Path) -> None:
    problem = {"error_number": 2015, "error": "Requested partition configuration not available now"}
    body = json.dumps({"errors": [problem]}).encode()
    with served(tmp_path / "s", lambda what: http(body, 500)) as heard:
        Client(tmp_path / "s").update("9", {"hold": False})
    assert len(heard) == 1


def test_slurm_watch_shows_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["slurm", "watch", "--socket", str(tmp_path / "s"), "--cycles", "1"]
    with served(tmp_path / "s", of_recording):
        assert cli.run([*given, "--save-instances", str(tmp_path / "saved"), "--top", "3"]) == 0
        text = capsys.readouterr().out
        assert cli.run([*given, "--json", "-d", "best"]) == 0
        row = json.loads(capsys.readouterr().out)
    assert "3 jobs run, 12 wait" in text
    assert "in its turn" in text
    assert "and 9 more" in text
    assert "12: left to Slurm: asks for licenses" in text
    (saved,) = (tmp_path / "saved").iterdir()
    assert len(instance.load(saved).queue) == len(row["jobs"]) == 12
    assert msgspec.json.encode(row)


def test_slurm_drive_tells_what_it_did(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    calls, updates = iter(range(100)), iter(range(100))
    changed: set[str] = set()

    class Failing:
        def __init__(self, *_: object) -> None:
            pass

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name == "now_s":
                slurm.step()
                if next(calls) == 1:
                    changed.update(job for job, _ in slurm.changes)
                    raise SlurmError("no answer within 30 s")
            if name == "update" and next(updates) == 2:
                raise SlurmError("Unable to contact slurm controller")
            return getattr(slurm, name)

    monkeypatch.setattr("cpdispatch.adapters.slurm.client.Client", Failing)
    files = {name: str(tmp_path / name) for name in ("state", "log", "metrics")}
    given = [part for name, path in files.items() for part in (f"--{name}", path)]
    assert cli.run(["slurm", "drive", "--every", "1ms", "--cycles", "5", *given]) == 0
    out, err = capsys.readouterr()
    assert ": released to n0" in out
    assert "the driver has ended" in out
    assert "cycle 2: no answer" in err
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert ["failed" in row for row in rows] == [True, True, False, False, False]
    # Jobs are changed at once: it may have been before Slurm could not be contacted.
    early = "12" in rows[0].get("left", ())
    assert early or "12: left to Slurm: asks for licenses" in out
    # Some before, and some while Slurm could not be contacted for one.
    said = {*rows[0]["released"], *rows[0].get("left", ())}
    assert len(said) >= 2
    assert said == changed
    assert list(rows[1]) == ["failed"]
    lines = (tmp_path / "metrics").read_text().splitlines()
    told = dict(line.split() for line in lines if not line.startswith("#"))
    assert told["cpdispatch_slurm_cycles_total"] == "5"
    assert told["cpdispatch_slurm_failed_total"] == "2"
    released = sum(len(row.get("released", ())) for row in rows)
    assert told["cpdispatch_slurm_released_total"] == str(released)
    assert told["cpdispatch_slurm_read_timestamp_seconds"] == str(rows[-1]["now_s"])
    assert not job_of(slurm.row("14")).held


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("--log", "/dev/full", "--log /dev/full: cannot be written: No space left on device"),
        ("--metrics", "/dev/null/x.prom", "cannot be written"),
    ],
)
def test_a_file_that_cannot_be_written_leaves_no_job_held(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], option: str, path: str, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("cpdispatch.adapters.slurm.client.Client", lambda *given: slurm)
    log = tmp_path / "log"
    files = {"--state": str(tmp_path / "state"), "--log": str(log), option: path}
    given = [part for pair in files.items() for part in pair]
    assert cli.run(["slurm", "drive", "--every", "1ms", "--cycles", "3", *given]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert "jobs handed back to Slurm" in out
    assert slurm.changes
    assert not [job for job in map(job_of, slurm.jobs()) if job.held and job.marked]
    if option != "--log":  # what was done is in the log all the same
        assert json.loads(log.read_text())["released"]


def test_a_reader_that_goes_away_leaves_no_job_held(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*given: object, **more: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("cpdispatch.adapters.slurm.client.Client", lambda *given: slurm)
    monkeypatch.setattr("cpdispatch.cli.slurm._tell", gone)
    monkeypatch.setattr("cpdispatch.cli.app.sys.stderr", io.StringIO())
    log = tmp_path / "log"
    given = ["--state", str(tmp_path), "--log", str(log), "--every", "1ms", "--cycles", "3"]
    cli.run(["slurm", "drive", *given])
    assert slurm.changes
    assert not [job for job in map(job_of, slurm.jobs()) if job.held and job.marked]
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["watch", "--every", "1h"], "--every 1h"),
        (["watch", "--cycles", "0"], "--cycles 0"),
        (["watch", "-d", "esy"], "did you mean easy"),
        (["drive", "--stop", "--dry-run"], "leave one out"),
        (["drive", "--stop", "--state", "typo"], "no driver has used this folder"),
        (["watch", "--state", "kept"], "add one of them"),
        (["watch", "--zone", "Asia/Tokyo"], "that of --history"),
        (["watch", "--predict", "last2", "--zone", "Asia/Tokyo"], "that of --history"),
    ],
)
def test_wrong_options_are_named(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.run(["slurm", *given, "--socket", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("user", [-3, 99_999_999_999])
def test_a_plugin_needs_a_number_of_a_user(user: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["slurm", "plugin", "--user", str(user)]) == 2
    assert f"--user {user}: a number of a user" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["watch", "drive", "explain"])
def test_a_partition_that_the_cluster_does_not_have_ends_the_command(
    verb: str,
    slurm: Recorded,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("cpdispatch.adapters.slurm.client.Client", lambda *given: slurm)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    more = ["--job", "14"] if verb == "explain" else ["--cycles", "1"]
    assert cli.run(["slurm", verb, *more, "--only-partition", "smal"]) == 2
    out, err = capsys.readouterr()
    assert "no such partition; did you mean small? (it has: " in err
    assert "handed back" not in out
    assert slurm.changes == []


def test_a_partition_that_cannot_be_read_is_not_said_to_be_missing(
    slurm: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    class Repaired(Recorded):
        reads = 0

        def partitions(self) -> list[dict[str, Any]]:
            self.reads += 1
            rows = super().partitions()
            if self.reads == 1:
                rows[0]["max_time_limit"] = 1.5
            return rows

    repaired = Repaired(slurm.data)
    monkeypatch.setattr("cpdispatch.adapters.slurm.client.Client", lambda *given: repaired)
    given = ["--state", str(tmp_path), "--every", "1ms", "--cycles", "2"]
    assert cli.run(["slurm", "drive", *given, "--only-partition", "main"]) == 0
    out, err = capsys.readouterr()
    assert "cycle 1: --only-partition main: not understood: partition main: not a whole" in err
    assert ": released to n" in out


def test_watch_ends_where_no_slurm_answers_at_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["slurm", "watch", "--socket", str(tmp_path / "none")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is slurmrestd running" in error
