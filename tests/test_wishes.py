"""Instance files that say where jobs may run, and how many units of a job share a node."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import dispatch, solution, verify
from cpdispatch.decision import Decision, Placements, Reason
from cpdispatch.errors import InputError
from cpdispatch.instance import FORMAT, FORMAT_OF_RESTARTS, Instance, dump, load, loads, to_json
from cpdispatch.solution import explain
from cpdispatch.verify.violation import Kind
from tests.effort import examples
from tests.scripts import script

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("easy", "conservative", "pcp:model=copies", "pcp:model=counts", "pcp:model=boxes", "hcp")
NOW = 1000
PLAIN = [{"name": "n", "nodes": 4, "capacity": [4, 0, 16]}]
JOB: dict[str, Any] = {"id": 7, "submit": 900, "duration": 60, "units": 4, "unit": [1, 0, 1]}


WISHES = script("benchmarks/wishes.py")


def file_of(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Three nodes of 4 cores and one of 8 with 2 GPUs; the jobs are queued."""
    return {
        "format": FORMAT_OF_RESTARTS, "time": NOW, "resources": ["core", "gpu", "mem"],
        "groups": [
            {"name": "thin", "nodes": 3, "capacity": [4, 0, 16], "features": ["ib"]},
            {"name": "fat", "nodes": 1, "capacity": [8, 2, 64], "features": ["ib", "a100"]},
        ],
        "partitions": [
            {"name": "batch", "nodes": "thin"}, {"name": "gpu", "nodes": "2 fat", "limit_s": 100},
        ],
        "queue": [JOB | {"id": 7 + k} | job for k, job in enumerate(jobs)],
    } | more  # fmt: skip


def read(file: dict[str, Any]) -> Instance:
    return loads(json.dumps(file), "file")


def started(file: dict[str, Any], model: str = "easy") -> list[dict[int, int] | None]:
    """The units on each node of each queued job that starts now, verified; None: it waits."""
    problem = read(file)
    made = dispatch.make(model, dispatch.Settings(0.05, 0))
    decision = dispatch.answer_of(made, problem)
    assert verify.decision(problem, decision) == []
    assert WISHES.astray(file, decision) == []
    places = decision.placements.as_dict()
    now = [int(start) == NOW for start in decision.start_s]
    return [places[k] if now[k] else None for k in range(len(problem.queue))]


def refused(file: dict[str, Any], at: dict[int, int]) -> list[str]:
    """What verify says of starting the only job there."""
    problem = read(file)
    answer = dispatch.answer_of(dispatch.make("easy"), problem)
    forced = Decision(
        answer.start_s * 0 + NOW, answer.reason * 0, Placements.of({0: at}), answer.certificate
    )
    return [str(violation.kind) for violation in verify.decision(problem, forced)]


# ------------------------------------------------------------------------ units that share a node


@pytest.mark.parametrize("model", MODELS)
def test_no_model_puts_more_units_on_a_node_than_may_share_one(model: str) -> None:
    (places,) = started(file_of({"units_per_node_max": 1}), model)
    assert places == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("model", MODELS)
def test_a_job_waits_for_ever_where_too_few_nodes_may_share_its_units(model: str) -> None:
    assert started(file_of({"units": 5, "units_per_node_max": 1}), model) == [None]


@pytest.mark.parametrize("most", [4, 9])
def test_a_limit_that_holds_anyway_adds_no_resource_type(most: int) -> None:
    plain = {"format": FORMAT, "partitions": [], "groups": [{"name": "n", "nodes": 2,
             "capacity": [4, 0, 16]}]}  # fmt: skip
    limited = read(file_of({"units_per_node_max": most}, **plain | {"format": FORMAT_OF_RESTARTS}))
    assert to_json(limited) == to_json(read(file_of({}, **plain)))


def test_limits_of_two_jobs_on_one_node_are_apart() -> None:
    two = {"units": 1, "units_per_node_max": 1, "nodelist": "3"}
    limit = {"units": 2, "units_per_node_max": 1, "nodelist": "2-3"}
    assert started(file_of(limit, limit, two)) == [{2: 1, 3: 1}, {2: 1, 3: 1}, {3: 1}]


@pytest.mark.parametrize("model", MODELS)
def test_exactly_so_many_units_a_node_are_placed_together(model: str) -> None:
    (places,) = started(file_of({"units_per_node": 2}), model)
    assert places is not None
    assert list(places.values()) == [1, 1]


def test_units_that_are_placed_together_ask_for_their_sum_and_once_for_the_node() -> None:
    problem = read(file_of({"units": 6, "units_per_node": 2, "node": [0, 1, 5]}))
    assert problem.queue[0].units == 3
    assert problem.queue[0].request == (2, 1, 7, 1)


def test_whole_nodes_may_ask_for_amounts_of_the_node() -> None:
    problem = read(file_of({"units": 2, "exclusive": True, "node": [0, 0, 9]}))
    assert problem.queue[0].request[:3] == (1, 0, 10)


@pytest.mark.parametrize(("units", "least", "most"), [(4, 2, 3), (4, 3, 1), (6, 3, 2), (7, 3, 3)])
def test_the_least_number_of_nodes_limits_the_units_on_each(
    units: int, least: int, most: int
) -> None:
    job = {"nodes_min": least, "units": units, "unit": [0, 0, 1]}
    problem = read(file_of(job))
    assert problem.system.resources[-1] == "spread@7"
    assert set(problem.system.capacity[:, -1].tolist()) == {most}
    assert -(-units // most) >= least
    assert -(-units // (most + 1)) < least
    assert len(started(file_of(job))[0] or {}) >= least


@pytest.mark.parametrize(
    ("job", "at"),
    [
        ({"units_per_node_max": 2}, {3: 3, 0: 1}),
        ({"nodes_min": 2}, {3: 4}),
        ({"units_per_node": 2}, {3: 2}),
        ({"partition": "batch"}, {3: 4}),
        ({"partition": "gpu", "requested": 101}, {3: 4}),
        ({"features": "a100", "units": 1}, {0: 1}),
        ({"nodelist": "1", "units": 1}, {0: 1}),
        ({"exclude": "0", "units": 1}, {0: 1}),
        ({"exclusive": True, "units": 2}, {3: 2}),
    ],
)
def test_verify_reports_a_job_where_it_may_not_be(job: dict[str, Any], at: dict[int, int]) -> None:
    assert refused(file_of(job), at)
    harmless = {"units": job.get("units", 4) // job.get("units_per_node", 1)}
    assert not refused(file_of(harmless), at)


# ------------------------------------------------------------- each family in each formulation

FORMULATIONS = (*MODELS, "thesis-pcp5", "thesis-hcp3")
Fields = dict[str, Any]
FAMILIES: dict[str, tuple[Fields, Fields, Fields, Fields]] = {
    # what can be kept, what cannot, what holds anyway, and the same job without it
    "partition": ({"partition": "batch"}, {"partition": "gpu", "requested": 101},
                  {"partition": "batch,gpu"}, {}),
    "features": ({"features": "a100"}, {"features": "a100", "units": 9}, {"features": "ib"}, {}),
    "nodelist": ({"nodelist": "1-2"}, {"nodelist": "0", "units": 5}, {"nodelist": "all"}, {}),
    "exclude": ({"exclude": "3"}, {"exclude": "1-3", "units": 5}, {"exclude": ""}, {}),
    "exclusive": ({"exclusive": True, "units": 2}, {"exclusive": True, "units": 5},
                  {"exclusive": False}, {}),
    "units_per_node": ({"units_per_node": 2}, {"units_per_node": 5, "units": 10},
                       {"units_per_node": 1, "units": 1}, {"units": 1}),
    "units_per_node_min": ({"units_per_node_min": 4}, {"units_per_node_min": 5, "units": 10},
                           {"units_per_node_min": 1}, {}),
    "units_per_node_max": ({"units_per_node_max": 1}, {"units_per_node_max": 1, "units": 5},
                           {"units_per_node_max": 4}, {}),
    "nodes_min": ({"nodes_min": 3}, {"nodes_min": 5, "units": 5}, {"nodes_min": 1}, {}),
    "nodes_max": ({"nodes_max": 1}, {"nodes_max": 1, "units": 9}, {"nodes_max": 4}, {}),
    "node": ({"units_per_node": 4, "node": [0, 0, 5]}, {"units_per_node": 2, "node": [0, 1, 0]},
             {"units_per_node": 1, "units": 1, "node": [0, 0, 0]}, {"units": 1}),
    "hold": ({"hold": False}, {"hold": True}, {"hold": False}, {}),
    "earliest": ({"earliest": NOW}, {"earliest": NOW + 1}, {"earliest": NOW - 9}, {}),
}  # fmt: skip


@pytest.mark.parametrize("model", FORMULATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_formulation_keeps_what_it_can_and_starts_nothing_else(
    family: str, model: str
) -> None:
    kept, impossible, harmless, plain = FAMILIES[family]
    (places,) = started(file_of(kept), model)
    assert places is not None
    # The job that cannot start holds back nobody.
    assert started(file_of(impossible, {"units": 1}), model)[0] is None
    assert started(file_of(harmless), model) == started(file_of(plain), model)


def test_a_job_that_is_held_is_said_to_be_held() -> None:
    problem = read(file_of({"hold": True}, {"id": 8}))
    decision = dispatch.answer_of(dispatch.make("easy"), problem)
    assert explain(problem, decision, 0) == "is held"
    assert to_json(loads(to_json(problem))) == to_json(problem)
    with pytest.raises(InputError, match="does not say where jobs may run"):
        read(file_of({"hold": True}, format=FORMAT, partitions=[], groups=PLAIN))


def test_priorities_need_the_second_format_and_are_written_again() -> None:
    problem = read(file_of({"priority": 7}, {}, partitions=[], groups=PLAIN))
    assert problem.queue.priority.tolist() == [7, 0]
    assert to_json(loads(to_json(problem))) == to_json(problem)
    for value, complaint in ((-1, "negative"), (2**32, "must be 4294967295 or less")):
        with pytest.raises(InputError, match=complaint):
            read(file_of({"priority": value}))
    with pytest.raises(InputError, match="has no priorities"):
        read(file_of({"priority": 7}, format=FORMAT, partitions=[], groups=PLAIN))


# ------------------------------------------------------------------------- what holds nodes already


def test_a_running_job_of_a_whole_node_leaves_nothing_there() -> None:
    running = {"id": 1, "start": 990, "duration": 60, "units": 1, "unit": [1, 0, 1],
               "nodes": {"3": 1}}  # fmt: skip
    job = {"units": 1, "nodelist": "3"}
    assert started(file_of(job, running=[running])) == [{3: 1}]
    assert started(file_of(job, running=[running | {"exclusive": True}])) == [None]


@pytest.mark.parametrize("held", [[0, 1, 0], [1, 0, 0], [9, 9, 9]])
def test_a_whole_node_is_not_shared_with_a_reservation(held: list[int]) -> None:
    reservation = {"start": NOW + 5, "duration": 10, "nodes": [3], "capacity": held}
    whole = {"units": 1, "exclusive": True, "nodelist": "3"}
    assert started(file_of(whole, reservations=[reservation])) == [None]
    none = reservation | {"capacity": [0, 0, 0]}
    assert started(file_of(whole, reservations=[none])) == [{3: 1}]


def test_a_stopped_job_goes_on_where_its_units_are_together() -> None:
    held = {"restartable": True, "stopped": {"start": 950, "nodes": {"0": 2, "1": 2}}}
    problem = read(file_of({"units_per_node": 2} | held))
    assert problem.stopped is not None
    assert problem.stopped.held() == {0: (950, {0: 1, 1: 1})}


def test_partitions_without_jobs_change_nothing() -> None:
    assert read(file_of()).system.resources == ("core", "gpu", "mem")


def test_what_was_read_is_dumped_with_its_resource_types(tmp_path: Path) -> None:
    file = file_of({"partition": "gpu"}, {"units_per_node_max": 2}, power={"cap": 90,
                   "unit": [1, 2, 3]})  # fmt: skip
    dump(read(file), tmp_path / "a.json")
    again = load(tmp_path / "a.json")
    assert again.system.resources == ("core", "gpu", "mem", "core@gpu", "spread@8")
    assert json.loads(to_json(again))["format"] == FORMAT
    assert again.power is not None
    assert again.power.unit == (1, 2, 3, 0, 0)


# -------------------------------------------------------------------------------- what is no file


@pytest.mark.parametrize(
    ("job", "field", "problem"),
    [
        ({"units_per_node_max": 0}, "queue[0].units_per_node_max", "must be 1 or more (found 0)"),
        ({"nodes_min": 5}, "queue[0].nodes_min", "the job has 4 units (found 5)"),
        ({"units_per_node": 3}, "queue[0].units_per_node", "state a divisor of units"),
        ({"units_per_node": 2, "units_per_node_max": 2}, "queue[0].units_per_node_max", "one of"),
        ({"units_per_node": 2, "nodes_min": 3}, "queue[0].units_per_node", "groups of 2 to 1"),
        ({"units": 7, "nodes_max": 4, "nodes_min": 2}, "queue[0].nodes_min", "groups of 2 to 6"),
        ({"node": [0, 0, 1]}, "queue[0].node", "state units_per_node or exclusive"),
        ({"node": [0, 1], "exclusive": True}, "queue[0].node", "one number for each"),
        ({"partition": "gpus"}, "partition", "did you mean gpu?"),
        ({"features": "a10"}, "features", "did you mean a100?"),
        ({"nodelist": "4"}, "nodelist", "no such node"),
        ({"units_per_node": 2, "restartable": True,
          "stopped": {"start": 950, "nodes": {"0": 3, "1": 1}}},
         "queue[0].stopped.nodes.0", "the job's units are on nodes by 2 (found 3)"),
    ],
)  # fmt: skip
def test_a_wrong_wish_is_refused_by_its_place(
    job: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InputError) as error:
        read(file_of(job))
    assert str(error.value).startswith("file: ")
    assert f"field {field}: " in str(error.value)
    assert problem in str(error.value)


def test_a_resource_type_that_is_there_already_is_refused_with_the_file() -> None:
    file = file_of({"partition": "gpu"}, resources=["core", "core@gpu", "mem"])
    with pytest.raises(InputError, match=r"^file: .*a resource type is named twice"):
        read(file)


@pytest.mark.parametrize(
    "job", [{"partition": "gpu"}, {"features": "ib"}, {"exclusive": True}, {"nodes_min": 1}]
)
def test_the_first_format_has_no_wishes(job: dict[str, Any]) -> None:
    groups = [{"name": "n", "nodes": 4, "capacity": [4, 0, 16]}]
    file = file_of(job, format=FORMAT, partitions=[], groups=groups)
    with pytest.raises(InputError, match="does not say where jobs may run"):
        read(file)


# ------------------------------------------------------------------------------------ at random


def test_random_files_are_answered_by_what_their_names_say() -> None:
    found, starts, everyone = [], 0, WISHES.made(0.01)
    seeds = examples(200)
    for seed in range(seeds):
        names = [WISHES.NAMES[(seed + k) % len(WISHES.NAMES)] for k in range(5)]
        here, wrong = WISHES.check(seed, {name: everyone[name] for name in names})
        starts += here
        found += [f"instance {seed}: {line}" for line in wrong]
    assert found == []
    assert starts > 2 * seeds


@pytest.mark.parametrize(("units", "most", "is_late"), [(5, 2, False), (15, 4, True)])
def test_a_limit_on_units_makes_a_job_no_wider(units: int, most: int, is_late: bool) -> None:
    """It has waited for 100 s. Starved are jobs of a quarter after 105 s, of three after 75 s."""
    job = {"id": 7, "submit": 900, "units": units, "unit": [1], "units_per_node_max": most}
    problem = read({
        "format": FORMAT_OF_RESTARTS, "time": NOW, "resources": ["core"],
        "groups": [{"name": "a", "nodes": 4, "capacity": [5]}],
        "queue": [job | {"duration": 60}],
        "starvation": {"threshold": 120, "bound": 100, "wide": 500},
    })  # fmt: skip
    assert problem.starved().tolist() == [is_late]
    decision = dispatch.make("hcp:wait=off").dispatch(problem)
    reserved = np.array([Reason.RESERVED], dtype=np.int8)
    late = replace(decision, start_s=np.array([1198]), reason=reserved)
    kinds = {violation.kind for violation in verify.decision(problem, late)}
    assert (Kind.STARVATION in kinds) == is_late


def test_a_job_that_may_use_no_node_is_told_so_and_not_in_names_of_the_package() -> None:
    file = {
        "format": "cpdispatch-instance/2", "time": 100, "resources": ["core"],
        "groups": [{"name": "node", "nodes": 4, "capacity": [8]}],
        "partitions": [{"name": "short", "nodes": "0-1", "limit_s": 60}],
        "queue": [
            {"id": 1, "submit": 0, "duration": 90, "units": 1, "unit": [2], "partition": "short"},
            {"id": 2, "submit": 0, "duration": 9, "units": 1, "unit": [9], "partition": "short"},
            {"id": 3, "submit": 0, "duration": 9, "units": 1, "unit": [2], "exclusive": True},
        ],
    }  # fmt: skip
    problem = loads(json.dumps(file))
    decision = dispatch.make("easy").dispatch(problem)
    answer = solution.from_decision(problem, decision)
    assert [job.reason for job in answer.jobs] == [
        "may use no node: by its partitions and their time limits, its features or its nodes",
        "does not fit the system: asks for 1 x (9 core, 9 core on nodes of short)", "",
    ]  # fmt: skip
