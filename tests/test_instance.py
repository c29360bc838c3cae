"""Instance files: what is written is read, and what is wrong is refused by its place."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch import instance as instances_module
from cpdispatch.arrays import IntArray
from cpdispatch.errors import InputError
from cpdispatch.instance import (
    FORMAT,
    FORMAT_OF_RESTARTS,
    NO_LATEST_S,
    NO_NODES,
    Dependencies,
    Instance,
    Power,
    Reservation,
    Starvation,
    Stopped,
    digest,
    loads,
    to_json,
)
from cpdispatch.jobs import Column, JobTable
from cpdispatch.system import LIMIT, System
from tests.effort import examples
from tests.strategies import instance_files, instances, read

FILE: dict[str, Any] = {
    "format": FORMAT, "time": 100000, "resources": ["core", "gpu", "mic", "mem"],
    "groups": [{"name": "gpu", "nodes": 32, "capacity": [16, 2, 0, 16]},
               {"name": "mic", "nodes": 32, "capacity": [16, 0, 2, 16]}],
    "down": [17],
    "running": [{"id": 12, "start": 99000, "duration": 3600, "units": 3, "unit": [4, 1, 0, 2],
                 "nodes": {"0": 2, "5": 1}}],
    "queue": [{"id": 77, "submit": 98000, "duration": 1200, "units": 2, "unit": [4, 1, 0, 2],
               "user": "u1", "queue": "debug", "ewt": 600}],
    "reservations": [{"start": 120000, "duration": 7200, "nodes": [0, 1],
                      "capacity": [16, 2, 0, 16]}],
    "power": {"cap": 90000, "unit": [35, 120, 110, 1]},
}  # fmt: skip


def spoiled(array: IntArray, at: tuple[int, int], value: int) -> IntArray:
    """The array with another value at one place."""
    found = array.astype(np.int64)
    found[at] = value
    return found


def test_the_example_of_the_format_is_understood() -> None:
    instance = read(FILE)
    assert instance.now == 100000
    assert instance.system.nodes == 64
    assert instance.free[0].tolist() == [8, 0, 0, 12]
    assert instance.free[17].tolist() == [0, 0, 0, 0]
    job = instance.queue[0]
    assert (job.id, job.units, job.request, job.expected_s, job.ewt_s) == (
        77, 2, (4, 1, 0, 2), 1200, 600,
    )  # fmt: skip
    assert instance.queue.label("user", 0) == "u1"
    assert instance.queue.label("queue", 0) == "debug"
    assert instance.running.end_s.tolist() == [102600]
    assert instance.reservations == (Reservation(120000, 7200, (0, 1), (16, 2, 0, 16)),)
    assert instance.power == Power(90000, (35, 120, 110, 1))
    assert instance.job_power(instance.queue).tolist() == [2 * (4 * 35 + 120 + 2)]
    assert instance.power_free() == 90000 - 3 * (4 * 35 + 120 + 2)


def test_optional_parts_may_be_left_out() -> None:
    instance = read({key: FILE[key] for key in ("format", "time", "resources", "groups")})
    assert (len(instance.queue), len(instance.running), len(instance.down)) == (0, 0, 0)
    assert (instance.free == instance.system.capacity).all()
    assert instance.power is None


def test_an_overdue_job_is_taken_to_end_one_second_from_now() -> None:
    running = [FILE["running"][0] | {"start": 90000, "duration": 10000}]
    instance = read(FILE | {"running": running})
    assert instance.running.end_s.tolist() == [100001]
    assert instance.running.overdue.tolist() == [1]
    assert json.loads(to_json(instance))["running"][0]["duration"] == 10000


def test_requested_and_upper_times_are_those_of_the_duration_unless_they_are_stated() -> None:
    plain = read(FILE)
    jobs = (plain.queue, plain.running.jobs)
    assert [jobs.requested_s.tolist() for jobs in jobs] == [[1200], [3600]]
    assert [jobs.upper_s.tolist() for jobs in jobs] == [[1200], [3600]]
    asked = read(FILE | part("queue", requested=1500) | part("running", requested=3900))
    assert (asked.queue[0].expected_s, asked.queue[0].upper_s, asked.queue[0].requested_s) == (
        1200, 1500, 1500,
    )  # fmt: skip
    assert asked.running.jobs.requested_s.tolist() == [3900]
    assert asked.running.end_s.tolist() == [102600]
    assert read(FILE | part("queue", requested=1500, upper=1300)).queue[0].upper_s == 1300


def test_times_are_written_where_they_are_not_what_they_are_taken_for() -> None:
    same = part("queue", requested=1200, upper=1200) | part("running", requested=3600)
    assert digest(read(FILE | same)) == digest(read(FILE))
    for times in ({"requested": 1500}, {"requested": 1500, "upper": 1300}):
        (written,) = json.loads(to_json(read(FILE | part("queue", **times))))["queue"]
        assert {key: written[key] for key in ("requested", "upper") if key in written} == times


def test_a_reservation_in_force_is_not_free() -> None:
    now = FILE["reservations"][0] | {"start": 99990, "capacity": [10, 1, 0, 1]}
    assert read(FILE | {"reservations": [now]}).free[:2].tolist() == [[0, 0, 0, 11], [6, 1, 0, 15]]
    over = now | {"duration": 10}
    assert read(FILE | {"reservations": [over]}).free[1].tolist() == [16, 2, 0, 16]


@given(instances(predictions=True))
def test_equal_instances_give_equal_bytes_and_survive_their_file(instance: Instance) -> None:
    content = to_json(instance)
    again = loads(content)
    assert to_json(again) == content
    assert digest(again) == digest(instance)
    assert (again.free == instance.free).all()
    assert (again.queue.block[:7] == instance.queue.block[:7]).all()
    assert (again.running.jobs.requested_s == instance.running.jobs.requested_s).all()
    assert (again.running.end_s == instance.running.end_s).all()
    assert (again.running.overdue == instance.running.overdue).all()
    assert (again.reservations, again.power) == (instance.reservations, instance.power)


@given(instance_files(predictions=True), st.randoms(use_true_random=False))
def test_the_order_of_jobs_in_a_file_does_not_change_the_instance(
    file: dict[str, Any], random: Any
) -> None:
    shuffled = copy.deepcopy(file)
    for key in ("queue", "running"):
        random.shuffle(shuffled[key])
    for job in shuffled["running"]:
        job["nodes"] = dict(sorted(job["nodes"].items(), reverse=True))
    assert digest(read(shuffled)) == digest(read(file))


@given(instances())
def test_free_capacity_is_what_nobody_holds(instance: Instance) -> None:
    assert (instance.free >= 0).all()
    assert (instance.free + instance.running.usage(instance.system.nodes) <= (
        np.maximum(instance.system.capacity, instance.running.usage(instance.system.nodes))
    )).all()  # fmt: skip
    assert not instance.free[instance.down].any()


@given(instances(max_jobs=2))
def test_an_instance_survives_pickling(instance: Instance) -> None:
    assert to_json(pickle.loads(pickle.dumps(instance))) == to_json(instance)


NO_PAIRS: list[list[int]] = [[], []]


def after(pairs: list[list[int]], jobs: int = 1) -> Dependencies:
    """Pairs of a queued job and one that it comes after, as positions."""
    zeros, none = np.zeros(jobs, dtype=np.int64), np.empty((2, 0), dtype=np.int64)
    return Dependencies.of(0, zeros, zeros, zeros, np.array(pairs, dtype=np.int64), none)


def test_pairs_of_dependencies_may_stand_in_any_order() -> None:
    found = after([[2, 1, 2], [0, 0, 1]], jobs=3)
    assert found.offset.tolist() == [0, 0, 1, 3]
    assert found.position.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("pairs", "running", "message"),
    [
        ([[0], [9]], [[], []], "after[1][0]: jobs are numbered 0 to 1 (found 9)"),
        ([[1, -1], [0, 0]], [[], []], "after[0][1]: jobs are numbered 0 to 1 (found -1)"),
        ([[], []], [[0], [500]], "after_running[1][0]: jobs are numbered 0 to 0 (found 500)"),
        ([[], []], [[2], [0]], "after_running[0][0]: jobs are numbered 0 to 1 (found 2)"),
    ],
)
def test_a_dependency_on_a_job_that_is_not_there_is_refused_where_it_is_made(
    pairs: list[list[int]], running: list[list[int]], message: str
) -> None:
    two = np.zeros(2, dtype=np.int64)
    with pytest.raises(InputError) as refused:
        Dependencies.of(
            100000, np.array([102600]), two, two, np.array(pairs, dtype=np.int64),
            np.array(running, dtype=np.int64),
        )  # fmt: skip
    assert str(refused.value) == f"dependencies: field {message}"


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"reservations": (Reservation(0, 5, (), (1, 0, 0, 1)),)},
         ["reservations[0].nodes: a reservation needs a node or more (found [])", "leave the res"]),
        ({"reservations": (Reservation(0, 0, (1,), (1, 0, 0, 1)),)},
         ["reservations[0].duration: must be 1 or more (found 0)"]),
        ({"reservations": (Reservation(0, 5, (64,), (1, 0, 0, 1)),)}, ["nodes[0]", "found 64"]),
        ({"reservations": (Reservation(0, 5, (1, 1), (1, 0, 0, 1)),)}, ["twice (found [1, 1])"]),
        ({"reservations": (Reservation(0, 5, (1,), (1,)),)}, ["capacity: one number for each"]),
        ({"power": Power(-1, (1, 1, 1, 1))}, ["power.cap: negative (found -1)"]),
        ({"power": Power(1, ())}, ["power.unit: one number for each of 4", "found []"]),
        ({"starvation": Starvation(-1, 5)}, ["starvation.threshold: negative (found -1)"]),
        ({"down": np.array([3, 64])}, ["down[1]: nodes are numbered 0 to 63 (found 64)"]),
        ({"down": np.array([10**8])}, ["down[0]: nodes are numbered 0 to 63 (found 100000000)"]),
        ({"down": np.array([-1])}, ["down[0]: nodes are numbered 0 to 63 (found -1)"]),
        ({"down": np.array([1.0])}, ["down: an int64 array of shape (1,) is needed", "'float64'"]),
        ({"down": np.array([[1]])}, ["down: an int64 array of shape (1,)", "found (1, 1)"]),
        ({"down": [1]}, ["down: an int64 array of shape (1,) is needed (found [1])"]),
        ({"down": np.array([17, 17])}, ["down: a node is named twice (found [17, 17])"]),
        ({"down": np.array([17, 3])},
         ["free[3, 0]: a node that is down has nothing free (found 16); set it to 0"]),
        ({"restart_cost_s": -5}, ["restart_cost_s: negative (found -5)"]),
        ({"restart_cost_s": 1.5}, ["restart_cost_s: must be a whole number (found 1.5)"]),
        ({"now": 98999}, ["running.start_s[0]: a running job has started by now, 98999", "99000"]),
        ({"free": np.ones((63, 4), dtype=np.int64)},
         ["free: an int64 array of shape (64, 4) is needed (found (63, 4))"]),
        ({"free": np.ones((64, 4))}, ["free: an int64 array of shape (64, 4)", "'float64'"]),
        ({"free": spoiled(np.zeros((64, 4)), (2, 1), -1)},
         ["free[2, 1]: a node with 2 gpu has from 0 to 2 of them free (found -1)"]),
        ({"free": spoiled(np.zeros((64, 4)), (1, 0), 17)},
         ["free[1, 0]: a node with 16 core has from 0 to 16 of them free (found 17)"]),
        ({"now": 50.5}, ["now: must be a whole number (found 50.5)"]),
        ({"now": -1}, ["now: negative (found -1)"]),
        ({"power": Power(100.5, (1, 1, 1, 1))}, ["power.cap: must be a whole number"]),
        ({"starvation": Starvation("5", 5)}, ["starvation.threshold: must be a whole number"]),
        ({"power": (60, (1, 1, 1, 1))},
         ["field power: expected Power or None, found a tuple; make a Power"]),
        ({"power": Power(60, (1.5, 0, 0, 0))}, ["power.unit: must be whole numbers (found [1.5, "]),
        ({"reservations": (Reservation(0, 5, (1,), (1.5, 0, 0, 1)),)},
         ["reservations[0].capacity: must be whole numbers"]),
        ({"reservations": ((0, 5, (1,), (1, 0, 0, 1)),)},
         ["reservations[0]: expected Reservation, found a tuple"]),
        ({"queue": [1]}, ["field queue: expected JobTable, found a list"]),
        ({"system": None}, ["field system: expected System, found None"]),
        ({"data": None}, ["field data: expected Mapping, found None; give a dictionary"]),
        ({"stopped": Stopped.of({0: (5, {64: 1})})}, ["stopped.node[0]: nodes are", "found 64"]),
        ({"stopped": Stopped.of({0: (5, {4: 0})})}, ["stopped.units[0]: must be 1 or more"]),
        ({"stopped": Stopped.of({0: (5, {4: 99})})}, ["stopped.units: job", "units (found 99)"]),
        ({"stopped": Stopped.of({1: (5, {1: 1})})},
         ["stopped.position[0]: jobs are numbered 0 to 0 (found 1)"]),
        ({"dependencies": {0: [0]}}, ["field dependencies: expected Dependencies or None, found"]),
        ({"dependencies": replace(after([[0], [0]]), position=np.array([1]))},
         ["dependencies.position[0]: jobs are numbered 0 to 0 (found 1)"]),
        ({"dependencies": after([[0], [0]])},
         ["dependencies.position: queued jobs that wait for each other in a circle"]),
        ({"dependencies": after([[0], [0]], jobs=2)},
         ["dependencies.earliest_s: an int64 array of shape (1,) is needed (found (2,))"]),
        ({"dependencies": replace(after([[0], [0]]), offset=np.array([0, 2]))},
         ["dependencies.offset: it ascends from 0 to the 1 entries (found [0, 2])"]),
        ({"dependencies": replace(after(NO_PAIRS), think_s=np.array([-5]))},
         ["dependencies.think_s[0]: negative (found -5)"]),
        ({"dependencies": replace(after(NO_PAIRS), stated_s=np.array([2**62]))},
         [f"dependencies.stated_s[0]: must be {LIMIT} or less (found {2**62})"]),
        ({"now": 10**6}, ["running.end_s[0]: a running job is expected to end after now, 1000000",
                          "; give a job that has outlived its expected end a new one, such"]),
    ],
)  # fmt: skip
def test_an_instance_that_is_built_in_python_is_checked_too(
    changed: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InputError) as refused:
        replace(read(FILE), **changed)
    assert str(refused.value).startswith("instance: field ")
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda block: block.astype(np.int32), "block: an int64 array of shape (19, 1) is needed"),
        (lambda block: block * 1.0, "block: an int64 array of shape (19, 1) is needed"),
        (lambda block: block[:10], "block: an int64 array of shape (19, 1) is needed"),
        (lambda block: block[:, 0], "block: an int64 array of shape (19, 19) is needed"),
        (lambda block: spoiled(block, (Column.UNITS, 0), 0),
         "units[0]: must be 1 or more (found 0)"),
        (lambda block: spoiled(block, (Column.EXPECTED, 0), 0),
         "expected_s[0]: must be 1 or more (found 0)"),
        (lambda block: spoiled(block, (Column.UPPER, 0), 2**62),
         f"upper_s[0]: must be {LIMIT} or less (found {2**62})"),
        (lambda block: spoiled(block, (Column.REQUESTED, 0), -1),
         "requested_s[0]: negative (found -1)"),
        (lambda block: spoiled(block, (Column.EWT, 0), 0), "ewt_s[0]: must be 1 or more (found 0)"),
        (lambda block: spoiled(block, (Column.REQUEST + 1, 0), -3),
         "request[0, 1]: negative (found -3)"),
        (lambda block: np.zeros((21, 0)), "block: an int64 array of shape (19, 0) is needed"),
        (lambda block: block[:-1, :0], "block: an int64 array of shape (19, 0) is needed"),
    ],
)  # fmt: skip
def test_a_queue_that_is_built_in_python_is_checked_too(
    spoil: Callable[[IntArray], IntArray], message: str
) -> None:
    instance = read(FILE)
    with pytest.raises(InputError) as refused:
        replace(instance, queue=JobTable(spoil(instance.queue.block)))
    assert str(refused.value).startswith(f"instance: field queue.{message}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"node": np.array([64, 1])}, "running.node[0]: nodes are numbered 0 to 63 (found 64)"),
        ({"node": np.array([0, -1])}, "running.node[1]: nodes are numbered 0 to 63 (found -1)"),
        ({"node": np.array([0.0, 1.0])}, "running.node: an int64 array of shape (2,) is needed"),
        ({"node": [0, 1]}, "running.node: an int64 array of shape (2,) is needed"),
        ({"units": np.array([2, 0])}, "running.units[1]: must be 1 or more (found 0)"),
        ({"units": np.array([2])}, "running.units: an int64 array of shape (2,) is needed"),
        ({"offset": np.array([0, 3])}, "running.offset: it ascends from 0 to the 2 entries"),
        ({"offset": np.array([1, 2])}, "running.offset: it ascends from 0 to the 2 entries"),
        ({"end_s": np.array([1, 2])}, "running.end_s: an int64 array of shape (1,) is needed"),
        ({"bound_s": 5}, "running.bound_s: an int64 array of shape (1,) is needed (found 5)"),
        (
            {"jobs": JobTable(np.ones((12, 1)))},
            "running.jobs.block: an int64 array of shape (19, 1)",
        ),
        (
            {"jobs": JobTable(-np.ones((19, 1), dtype=np.int64))},
            "running.jobs.request[0, 0]: negative (found -1)",
        ),
    ],
)
def test_running_jobs_that_are_built_in_python_are_checked_too(
    changed: dict[str, Any], message: str
) -> None:
    instance = read(FILE)
    assert len(instance.running) == 1
    assert len(instance.running.node) == 2
    with pytest.raises(InputError) as refused:
        replace(instance, running=replace(instance.running, **changed))
    assert str(refused.value).startswith(f"instance: field {message}")


def test_a_queue_that_is_right_on_one_system_is_checked_on_another() -> None:
    pool = System.pool(4)
    with pytest.raises(InputError, match=r"field queue.block: an int64 array of shape \(16, 1\)"):
        replace(read(FILE), system=pool, free=pool.capacity, down=NO_NODES)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"time": 100000', '"time": 5, "time": 100000', "time"),
        ('"time": 100000', '"time" : 5, "time": 100000', "time"),
        ('"id": 77', '"id": 77, "submit": 4', "queue[0].submit"),
        ('"0": 2', '"0": 1, "0": 2', "running[0].nodes.0"),
        ('"0": 2', '"0": 1, "\\u0030": 2', "running[0].nodes.0"),
        ('"user": "u1"', '"user": "a:b", "user": "\\u003a"', "queue[0].user"),
    ],
)
def test_a_key_that_stands_twice_is_refused(old: str, new: str, field: str) -> None:
    text = json.dumps(FILE)
    assert old in text
    with pytest.raises(InputError) as refused:
        loads(text.replace(old, new))
    message = f"<instance>: field {field}: not an instance file: the key stands twice in one object"
    assert str(refused.value) == f"{message}; leave one of them"


def test_colons_and_escapes_in_texts_are_no_keys() -> None:
    text = json.dumps(FILE).replace('"u1"', '"a:b\\u003a\\":"').replace('"time":', '"time" :')
    assert loads(text).queue.label("user", 0) == 'a:b:":'


def test_an_instance_cannot_be_changed() -> None:
    instance = read(FILE)
    for array in (instance.free, instance.queue.block, instance.running.end_s, instance.down):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_an_instance_of_arrays_that_the_caller_changes_later_stays_as_it_was() -> None:
    known, down = read(FILE), np.array([17])
    free, end_s = known.free.copy(), known.running.end_s.copy()
    came_s = np.array([[77], [98000]])
    instance = replace(
        known, free=free, down=down, came_s=came_s, running=replace(known.running, end_s=end_s)
    )
    for array in (free, down, end_s, came_s):
        array[...] = 0
    assert to_json(instance) == to_json(known)
    assert instance.came_s is not None
    assert instance.came_s.tolist() == [[77], [98000]]
    for kept in (instance.free, instance.down, instance.running.end_s, instance.came_s):
        assert not kept.flags.writeable


def test_an_instance_has_its_arrays_in_the_order_that_kernels_are_compiled_for() -> None:
    known = read(FILE)
    twice = np.repeat(known.queue.block, 2, axis=1)
    twice[Column.ID, 1] += 1
    instance = replace(
        known, free=np.asfortranarray(known.free), queue=JobTable(np.asfortranarray(twice))
    )
    for array in (instance.free, instance.queue.block):
        assert array.flags.c_contiguous
        assert not array.flags.writeable
    assert (instance.queue.block == twice).all()
    assert instance.queue.checked


def test_two_jobs_of_a_queue_have_two_ids() -> None:
    known = read(FILE)
    with pytest.raises(InputError, match=r"queue.id\[1\]: another job .* \(found 77\)"):
        replace(known, queue=JobTable(np.repeat(known.queue.block, 2, axis=1)))


@pytest.mark.parametrize("name", ["i.json", "i.json.gz", "i.json.xz", "i.json.zst"])
def test_an_instance_survives_a_file(tmp_path: Path, name: str) -> None:
    instances_module.dump(read(FILE), tmp_path / name)
    assert digest(instances_module.load(tmp_path / name)) == digest(read(FILE))


# ------------------------------------------------------------- dependencies and starvation

JOB = FILE["queue"][0]
CHAIN = FILE | {
    "queue": [
        JOB | {"id": 81, "submit": 97000, "after": [80, 12], "think": 30},
        JOB | {"id": 80, "submit": 99000},
        JOB | {"id": 82, "submit": 99500, "after": [12], "think": 7, "earliest": 102000},
        JOB | {"id": 83, "submit": 99600, "earliest": 100600},
        JOB | {"id": 84, "submit": 99700, "earliest": 99999},
    ]
}


def test_dependencies_are_queue_positions_and_running_predecessors_a_lower_bound() -> None:
    instance = read(CHAIN)
    assert instance.queue.id.tolist() == [81, 80, 82, 83, 84]
    given = instance.dependencies
    assert given is not None
    assert given.offset.tolist() == [0, 1, 1, 1, 1, 1]
    assert given.position.tolist() == [1]
    assert given.think_s.tolist() == [30, 0, 7, 0, 0]
    # Job 12 is expected to end at 102600.
    assert instance.earliest_s().tolist() == [102630, 100000, 102607, 100600, 100000]
    assert instance.eligible().tolist() == [False, True, False, False, True]
    assert given.running_offset.tolist() == [0, 1, 1, 2, 2, 2]
    assert given.running_position.tolist() == [0, 0]
    assert given.stated_s.tolist() == [100000, 100000, 102000, 100600, 100000]


def test_a_job_after_a_queued_one_is_not_eligible_whatever_the_time() -> None:
    queue = [JOB | {"after": [78]}, JOB | {"id": 78}]
    assert read(FILE | {"queue": queue}).eligible().tolist() == [False, True]


def test_an_overdue_predecessor_is_taken_to_end_one_second_from_now() -> None:
    late = FILE["running"][0] | {"start": 90000, "duration": 10000}
    instance = read(FILE | {"running": [late], "queue": [JOB | {"after": [12], "think": 5}]})
    assert instance.earliest_s().tolist() == [100006]
    assert instance.eligible().tolist() == [False]


def test_an_instance_without_dependencies_carries_none() -> None:
    for queue in ([JOB], [JOB | {"after": [], "think": 0}], [JOB | {"earliest": 100000}]):
        instance = read(FILE | {"queue": queue})
        assert instance.dependencies is None
        assert instance.earliest_s().tolist() == [100000]
        assert instance.eligible().tolist() == [True]
        assert digest(instance) == digest(read(FILE))


def test_the_digest_of_a_file_without_the_new_keys_is_what_it_was() -> None:
    assert digest(read(FILE)) == "61fef4f0d6e9b2649d8b2976d928d4216eba06ba4d3074e1d23e7c09a2640953"


def test_dependencies_and_starvation_are_written_as_they_were_read() -> None:
    starvation = {"threshold": 600, "bound": 60}
    written = json.loads(to_json(read(CHAIN | {"starvation": starvation})))
    assert written["starvation"] == starvation
    told = [{k: job[k] for k in ("id", "after", "think", "earliest") if k in job}
            for job in written["queue"]]  # fmt: skip
    assert told == [
        {"id": 81, "after": [12, 80], "think": 30},
        {"id": 80},
        {"id": 82, "after": [12], "think": 7, "earliest": 102000},
        {"id": 83, "earliest": 100600},
        {"id": 84},
    ]


def test_a_think_time_after_jobs_that_have_all_ended_is_not_written() -> None:
    given = read(CHAIN).dependencies
    assert given is not None
    thinks = replace(given, think_s=np.array([30, 9, 7, 0, 0]))
    instance = replace(read(CHAIN), dependencies=thinks)
    written = json.loads(to_json(instance))
    assert "think" not in written["queue"][1]
    assert (read(written).earliest_s() == instance.earliest_s()).all()


def test_a_job_is_starved_when_it_has_waited_longer_than_the_threshold() -> None:
    submits = (97999, 98000, 99000)
    queue = [JOB | {"id": k, "submit": submit} for k, submit in enumerate(submits)]
    instance = read(FILE | {"queue": queue, "starvation": {"threshold": 2000, "bound": 50}})
    assert instance.starvation == Starvation(2000, 50)
    assert instance.starved().tolist() == [True, False, False]
    assert instance.latest_s().tolist() == [100049, NO_LATEST_S, NO_LATEST_S]


def test_a_bound_that_has_passed_means_now() -> None:
    instance = read(FILE | {"starvation": {"threshold": 0, "bound": 9}})
    assert instance.latest_s().tolist() == [100000]


def test_without_a_starvation_bound_nobody_is_starved() -> None:
    instance = read(FILE)
    assert instance.starvation is None
    assert instance.starved().tolist() == [False]
    assert instance.latest_s().tolist() == [NO_LATEST_S]


@given(instances(dependencies=True, starvation=True))
def test_dependencies_survive_their_file_and_pickling(instance: Instance) -> None:
    content = to_json(instance)
    for again in (loads(content), pickle.loads(pickle.dumps(instance))):
        assert to_json(again) == content
        assert again.starvation == instance.starvation
        assert (again.earliest_s() == instance.earliest_s()).all()
        assert (again.eligible() == instance.eligible()).all()
        assert (again.dependencies is None) == (instance.dependencies is None)
        if instance.dependencies is not None:
            assert again.dependencies is not None
            assert again.dependencies.position.tolist() == instance.dependencies.position.tolist()


@given(instance_files(dependencies=True), st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_of_predecessors_does_not_change_the_instance(
    file: dict[str, Any], random: Any
) -> None:
    shuffled = copy.deepcopy(file)
    for key in ("queue", "running"):
        random.shuffle(shuffled[key])
    for job in shuffled["queue"]:
        random.shuffle(job.get("after", []))
    assert digest(read(shuffled)) == digest(read(file))


@given(instance_files(dependencies=True))
def test_the_arrays_say_what_the_file_says(file: dict[str, Any]) -> None:
    instance = read(file)
    ends = {
        job["id"]: max(job["start"] + job["duration"], file["time"] + 1) for job in file["running"]
    }
    ids = instance.queue.id.tolist()
    for job in file["queue"]:
        k, after = ids.index(job["id"]), job.get("after", [])
        running = [ends[id] + job.get("think", 0) for id in after if id in ends]
        least = max([file["time"], job.get("earliest", 0), *running])
        assert instance.earliest_s()[k] == least
        queued = sorted(set(after) - set(ends))
        assert bool(instance.eligible()[k]) == (not queued and least == file["time"])
        if instance.dependencies is None:
            assert not queued
            continue
        low, high = instance.dependencies.offset[k : k + 2]
        assert sorted(ids[p] for p in instance.dependencies.position[low:high]) == queued


def test_arrays_of_dependencies_cannot_be_changed() -> None:
    given = read(CHAIN).dependencies
    assert given is not None
    for array in (
        given.earliest_s, given.offset, given.position, given.think_s,
        given.stated_s, given.running_offset, given.running_position,
    ):  # fmt: skip
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_stopped_job_is_queued_and_holds_nodes_that_count_as_free() -> None:
    instance = read(FILE | stopped() | {"restart_cost": 30})
    assert instance.free[1].tolist() == [16, 2, 0, 16]
    assert instance.queue.restartable.tolist() == [1]
    assert instance.running.jobs.restartable.tolist() == [0]
    assert instance.stopped is not None
    assert instance.stopped.held() == {0: (99800, {1: 2})}
    assert instance.restart_cost_s == 30
    assert instance.stopped.among(np.array([0])).held() == {0: (99800, {1: 2})}  # type: ignore[union-attr]
    assert instance.stopped.among(np.array([], dtype=np.int64)) is None
    again = loads(to_json(instance))
    assert to_json(again) == to_json(instance)
    assert again.stopped is not None
    assert again.stopped.held() == instance.stopped.held()


def test_the_first_format_is_written_where_no_job_may_be_restarted() -> None:
    assert json.loads(to_json(read(FILE)))["format"] == FORMAT
    assert to_json(read(FILE | SECOND)) == to_json(read(FILE))
    running = read(FILE | SECOND | part("running", restartable=True))
    assert json.loads(to_json(running))["format"] == FORMAT_OF_RESTARTS
    assert loads(to_json(running)).running.jobs.restartable.tolist() == [1]


# -------------------------------------------------------------------------- bad input


def part(key: str, **fields: Any) -> dict[str, Any]:
    """The file with fields of the first item of a list changed."""
    return {key: [FILE[key][0] | fields]}


SECOND = {"format": FORMAT_OF_RESTARTS}


def stopped(
    start: int = 99800, nodes: dict[str, int] | None = None, restartable: bool = True
) -> dict[str, Any]:
    """The file in which the queued job has been stopped."""
    held = {"start": start, "nodes": {"1": 2} if nodes is None else nodes}
    return SECOND | part("queue", restartable=restartable, stopped=held)


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"format": "cpdispatch-instance/3"}, "format", "cpdispatch-instance/3"),
    (
        {"format": "cpdispatch-solution/1"},
        "format",
        "expected 'cpdispatch-instance/1' or 'cpdispatch-instance/2'",
    ),
    (part("queue", restartable=True), "queue[0].restartable", "has no restarts (found True)"),
    (part("running", restartable=True), "running[0].restartable", "state 'cpdispatch-instance/2'"),
    ({"restart_cost": 5}, "restart_cost", "has no restarts (found 5)"),
    (part("running", bound=5), "running[0].bound", "has no restarts (found 5)"),
    (SECOND | part("running", bound=-5), "running[0].bound", "-5"),
    (SECOND | {"restart_cost": -5}, "restart_cost", "-5"),
    (SECOND | {"restart_cost": 10**29}, "restart_cost", str(10**29)),
    (stopped(restartable=False), "queue[0].stopped", "may not be restarted (found 77)"),
    (stopped(start=97999), "queue[0].stopped.start", "must be 98000 or more (found 97999)"),
    (
        stopped(start=100000),
        "queue[0].stopped.start",
        "starts in the future (found 100000); give a time before",
    ),
    (
        stopped(nodes={"1": 1}),
        "queue[0].stopped.nodes",
        "the job has 2 units (found 1); state the nodes of all of them",
    ),
    (
        stopped(nodes={"64": 2}),
        "queue[0].stopped.nodes.64",
        "no such node (found '64'); write a number from 0 to 63",
    ),
    (stopped(nodes={"0": 1, "1": 1}), "queue[0].stopped.nodes.0", "less that counts as free"),
    (stopped(nodes={"17": 2}), "queue[0].stopped.nodes.17", "less that counts as free"),
    ({"colour": "red"}, "field colour", "red"),
    ({"time": -1}, "time", "-1"),
    ({"time": 1.5}, "time", "1.5"),
    ({"time": "now"}, "time", "now"),
    ({"time": 2**70}, "time", str(2**70)),
    ({"resources": []}, "resources", "[]"),
    ({"resources": ["core", "gpu", "gpu", "mem"]}, "resources", "named twice"),
    ({"groups": []}, "groups", "needs a group"),
    (part("groups", capacity=[16, 2, 0]), "groups[0].capacity", "[16, 2, 0]"),
    (part("groups", capacity=[16, -2, 0, 16]), "groups[0].capacity", "negative"),
    (part("groups", capacity=[2**70, 0, 0, 0]), "groups[0].capacity", str(2**70)),
    (part("groups", nodes=0), "groups[0].nodes", "0"),
    (part("groups", nodes=10**12), "groups[0].nodes", str(10**12)),
    (part("groups", colour="red"), "groups[0].colour", "red"),
    ({"down": [64]}, "down[0]", "64"),
    ({"down": [3, -1]}, "down[1]", "-1"),
    (part("running", nodes={"64": 3}), "running[0].nodes.64", "no such node"),
    (part("running", nodes={"0": 2, "two": 1}), "running[0].nodes.two", "two"),
    (part("running", nodes={"²": 3}), "running[0].nodes.²", "²"),
    (part("running", nodes={"0": 2, "00": 1}), "running[0].nodes.00", "00"),
    (part("running", nodes={"0": 3, "1": 0}), "running[0].nodes.1", "found 0"),
    (part("running", nodes={"0": 2}), "running[0].nodes", "found 2"),
    (part("running", units=1), "running[0].nodes", "the job has 1 unit (found 3)"),
    (
        part("running", nodes={"0": 3}),
        "running",
        "more gpu than node 0 has, 2 (found 3); job 12 is the last one that started there",
    ),
    (
        part("running", start=100001),
        "running[0].start",
        "future (found 100001); give a time no later than 100000, that of the instance",
    ),
    (part("running", start=-(2**70)), "running[0].start", str(-(2**70))),
    (part("running", duration=0), "running[0].duration", "0"),
    (part("running", gpu=1), "running[0].gpu", "1"),
    (part("running", submit=2**70), "running[0].submit", str(2**70)),
    ({"running": FILE["running"] * 2}, "running[1].id", "12"),
    (part("queue", id=12), "queue[0].id", "12"),
    (part("queue", id=2**70), "queue[0].id", str(2**70)),
    (part("queue", id=-1), "queue[0].id", "negative (found -1)"),
    (part("running", id=-7), "running[0].id", "negative (found -7)"),
    (
        {"format": "cpdispatch-solution/1"},
        "field format: not an instance file",
        "ution/1",
    ),
    ({"groups": [FILE["groups"][0], FILE["groups"][0]]}, "two groups have this name", "'gpu'"),
    (part("queue", duration=-5), "queue[0].duration", "-5"),
    (part("queue", duration=2**70), "queue[0].duration", str(2**70)),
    (part("queue", units=0), "queue[0].units", "0"),
    (
        part("queue", units=2**40, unit=[2**40, 0, 0, 0]),
        "queue[0].unit",
        f"{2**40} units of it are more than {2**48}",
    ),
    (part("queue", unit=[4, 1, 0]), "queue[0].unit", "[4, 1, 0]"),
    (part("queue", unit=[4, 1, 0, -2]), "queue[0].unit", "negative"),
    (
        part("queue", unit=[0, 0, 0, 0]),
        "queue[0].unit",
        "asks for nothing (found [0, 0, 0, 0]); state 1 or",
    ),
    (
        part("queue", submit=100001),
        "queue[0].submit",
        "in the future (found 100001); give a time no later than 100000",
    ),
    (part("queue", ewt=0), "queue[0].ewt", "0"),
    (part("queue", requested=1199), "queue[0].requested", "must be 1200 or more (found 1199)"),
    (part("queue", requested=2**70), "queue[0].requested", str(2**70)),
    (part("queue", requested=1500, upper=1199), "queue[0].upper", "must be 1200 or more"),
    (part("queue", requested=1500, upper=1501), "queue[0].upper", "or less, the requested time"),
    (part("queue", upper=1201), "queue[0].upper", "must be 1200 or less, the requested time"),
    (part("running", requested=3599), "running[0].requested", "must be 3600 or more (found 3599)"),
    (part("running", upper=3600), "running[0].upper", "3600"),
    (part("queue", runtime=3), "queue[0].runtime", "3"),
    (part("queue", after=[12, 99]), "queue[0].after[1]", "no queued or running job has this id"),
    (part("queue", after=[99]), "queue[0].after[0]", "(found 99); leave out a job that has ended"),
    (part("queue", after=[12, 12]), "queue[0].after", "a job is named twice (found [12, 12])"),
    (part("queue", after=[77]), "queue[0].after[0]", "a job cannot come after itself (found 77)"),
    (part("queue", after=["12"]), "queue[0].after[0]", "12"),
    (part("queue", after=[12], think=-1), "queue[0].think", "-1"),
    (part("queue", after=[12], think=2**70), "queue[0].think", str(2**70)),
    (part("queue", think=60), "queue[0].think", "which names none (found 60); name them"),
    (part("queue", earliest=-(2**70)), "queue[0].earliest", str(-(2**70))),
    (part("queue", earliest=2**70), "queue[0].earliest", str(2**70)),
    (
        {
            "queue": [
                JOB | {"id": 1, "after": [3]},
                JOB | {"id": 2, "after": [1]},
                JOB | {"id": 3, "after": [12, 2]},
            ]
        },
        "queue[0].after",
        "wait for each other in a circle (found [1, 2, 3, 1]); take one of them out",
    ),
    ({"starvation": {"threshold": -1, "bound": 5}}, "starvation.threshold", "-1"),
    ({"starvation": {"threshold": 1, "bound": 2**70}}, "starvation.bound", str(2**70)),
    ({"starvation": {"threshold": 1}}, "starvation", "missing required"),
    (part("reservations", nodes=[0, 64]), "reservations[0].nodes[1]", "64"),
    (part("reservations", nodes=[]), "reservations[0].nodes", "a node or more (found []); name"),
    (part("reservations", nodes=[3, 3]), "reservations[0].nodes", "[3, 3]"),
    (part("reservations", duration=0), "reservations[0].duration", "0"),
    (part("reservations", capacity=[1]), "reservations[0].capacity", "[1]"),
    ({"power": {"cap": -1, "unit": [1, 1, 1, 1]}}, "power.cap", "-1"),
    ({"power": {"cap": 1, "unit": [1, 1, 1]}}, "power.unit", "[1, 1, 1]"),
    ({"power": {"cap": 1, "unit": [2**48, 1, 1, 1]}}, "power.unit", f" W, and {2**48} W at most"),
    ({"power": {"cap": 1}}, "power.unit", "missing required key"),
]


@pytest.mark.parametrize(("change", "field", "value"), BAD, ids=lambda value: str(value)[:40])
def test_a_wrong_instance_is_refused_in_one_line_with_file_field_and_value(
    tmp_path: Path, change: dict[str, Any], field: str, value: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(FILE | change))
    with pytest.raises(InputError) as refused:
        instances_module.load(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert field in message
    assert value in message
    assert "\n" not in message


def test_running_jobs_that_overlap_on_a_node_are_refused() -> None:
    other = FILE["running"][0] | {"id": 13, "units": 1, "nodes": {"0": 1}}
    overlap = (
        "running: overlap: they hold more gpu than node 0 has, 2 .found 3.; job 13 is the last"
    )
    with pytest.raises(InputError, match=overlap):
        read(FILE | {"running": [*FILE["running"], other]})


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    instances_module.dump(read(FILE), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged or cut short"):
        instances_module.load(path)
    plain = tmp_path / "cut.json"
    plain.write_bytes(to_json(read(FILE))[:-20])
    with pytest.raises(InputError, match=r"cut\.json: not an instance file"):
        instances_module.load(plain)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        instances_module.load(tmp_path)


@pytest.mark.parametrize("value", ["NaN", "-Infinity"])
def test_a_number_that_json_does_not_know_is_named_by_its_line(value: str) -> None:
    content = json.dumps(FILE, indent=1).replace(' "time": 100000', f' "time": {value}')
    line = next(k for k, text in enumerate(content.splitlines(), 1) if value in text)
    message = rf"^<instance>:{line}: not an instance file: .*; JSON has no NaN and no Infinity"
    with pytest.raises(InputError, match=message):
        loads(content)


@pytest.mark.parametrize("content", [5, None, {"time": 1}])
def test_what_is_no_text_is_refused_in_words(content: Any) -> None:
    message = f"not an instance file: a text is needed, found {type(content).__name__}"
    with pytest.raises(InputError, match=message):
        loads(content)


@given(st.binary(max_size=60) | st.text(max_size=30))
def test_any_bytes_are_refused_and_never_break(content: bytes | str) -> None:
    with pytest.raises(InputError):
        loads(content)


weird = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**48, 2**63, 2**64, 10**30, -(2**63), 10**6])
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers(-3, 3), max_size=4)
    | st.dictionaries(st.text(max_size=2), st.integers(-1, 3), max_size=2)
)


@settings(max_examples=examples(400))
@given(instance_files(dependencies=True, starvation=True, predictions=True), weird, st.data())
def test_anything_anywhere_in_a_file_is_understood_or_refused(
    file: dict[str, Any], value: Any, data: st.DataObject
) -> None:
    file = copy.deepcopy(file)
    at: Any = file
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            break
        at = at[key]
    at[key] = value
    try:
        instance = loads(json.dumps(file))
    except InputError:
        return
    assert to_json(loads(to_json(instance))) == to_json(instance)
