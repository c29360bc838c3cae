"""Random small instance files with all extras, through every dispatcher, checked by their names.

    python benchmarks/wishes.py --instances 10000 --limit 0.05

A file has partitions of several tiers, features, lists of nodes, whole nodes, limits on the units
of a job on a node and on its nodes, amounts on first nodes, priorities, jobs that are held, and,
drawn one by one, reservations, down nodes, a power cap, dependencies and a starvation bound. Each
answer passes `verify.decision` and `verify.solution`. Where the jobs were placed is then compared
with what the file says, without the resource types that loading it makes of that.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import script

from cpdispatch import dispatch, instance, solution, system, verify
from cpdispatch.decision import Decision
from cpdispatch.dispatch import Dispatcher
from cpdispatch.verify.access import Stay, access
from cpdispatch.verify.violation import Kind

NAMES = sorted(dispatch.REGISTRY)
NOW = 1000


def file_of(seed: int) -> dict[str, Any]:
    """A random instance file."""
    draw = random.Random(seed)
    groups = [
        {"name": "a", "nodes": draw.randint(1, 3), "capacity": [draw.randint(2, 6), 0],
         "features": ["x"]},
        {"name": "b", "nodes": draw.randint(1, 3), "capacity": [draw.randint(2, 8), 2],
         "features": draw.choice((["x", "y"], ["y"]))},
    ]  # fmt: skip
    nodes = sum(group["nodes"] for group in groups)
    file: dict[str, Any] = {
        "format": instance.FORMAT_OF_RESTARTS, "time": NOW, "resources": ["core", "gpu"],
        "groups": groups,
        "partitions": [
            {"name": "p", "nodes": "a"}, {"name": "q", "nodes": f"0 {nodes - 1}", "limit_s": 150},
            {"name": "e", "nodes": "b", "exclusive": True},
        ],
        "running": [], "queue": [],
    }  # fmt: skip
    for node in draw.sample(range(nodes), draw.randint(0, nodes)):
        file["running"].append({
            "id": node + 1, "start": NOW - draw.randint(1, 50), "duration": draw.randint(60, 200),
            "units": 1, "unit": [draw.randint(1, 2), 0], "nodes": {str(node): 1},
            "exclusive": draw.random() < 0.3,
        })  # fmt: skip
    for k in range(draw.randint(1, 6)):
        file["queue"].append(_queued(draw, 10 + k, nodes))
    if draw.random() < 0.4:
        file["reservations"] = [
            {"start": NOW + draw.randint(-20, 80), "duration": draw.randint(30, 90),
             "nodes": sorted(draw.sample(range(nodes), draw.randint(1, nodes))),
             "capacity": [draw.randint(0, 2), draw.randint(0, 1)]}
        ]  # fmt: skip
    if draw.random() < 0.3:
        file["down"] = [draw.randrange(nodes)]
    if draw.random() < 0.3:
        file["power"] = {"cap": draw.randint(10, 40), "unit": [2, 5]}
    if draw.random() < 0.3:
        file["starvation"] = {"threshold": 100, "bound": 100, "wide": draw.choice((0, 500))}
    for part in file["partitions"]:
        part["tier"] = draw.randint(0, 2)
    return file


def _queued(draw: random.Random, id: int, nodes: int) -> dict[str, Any]:
    units = draw.randint(1, 6)
    job: dict[str, Any] = {
        "id": id, "submit": NOW - draw.randint(0, 300), "duration": draw.randint(10, 200),
        "units": units, "unit": [draw.randint(1, 2), int(draw.random() < 0.2)],
    }  # fmt: skip
    if draw.random() < 0.5:
        job["partition"] = draw.choice(("p", "q", "e", "p,q", "q,e"))
    if draw.random() < 0.3:
        job["features"] = draw.choice(("x", "y", "x&y", "x|y"))
    if draw.random() < 0.2:
        job["exclude"] = str(draw.randrange(nodes))
    if draw.random() < 0.1:
        job["nodelist"] = str(draw.randrange(nodes))
    if draw.random() < 0.2:
        job["exclusive"] = True
    spread = draw.random()
    if spread < 0.3:
        job["units_per_node_max"] = draw.randint(1, 3)
    elif spread < 0.5:
        job["units_per_node"] = draw.choice([k for k in (1, 2, 3) if units % k == 0])
        if draw.random() < 0.3:
            job["node"] = [1, 0]
    if spread > 0.2 and "units_per_node" not in job and draw.random() < 0.3:
        job["nodes_min"] = draw.randint(1, units)
    elif spread > 0.8:
        job["nodes_max"] = draw.randint(1, units)
    elif spread > 0.7:
        job["units_per_node_min"] = draw.choice([k for k in (1, 2, 3) if units % k == 0])
    if draw.random() < 0.3:
        job["priority"] = draw.randint(1, 9)
    if draw.random() < 0.1:
        job["hold"] = True
    if id > 10 and draw.random() < 0.2:
        job |= {"after": [id - 1], "think": draw.randint(0, 20)}
    if draw.random() < 0.25:
        job["first"] = [draw.randint(0, 3), draw.randint(0, 1)]
    return job


def astray(file: dict[str, Any], decision: Decision) -> list[str]:
    """What is wrong with where jobs are, by what the file says of nodes."""
    sized = ("name", "nodes", "capacity", "features")
    groups = [system.GroupFile(*(group[name] for name in sized)) for group in file["groups"]]
    parts = [system.PartitionFile(**part) for part in file["partitions"]]
    machine = system.from_file(system.SystemFile(file["resources"], groups, "s", partitions=parts))
    queue = sorted(file["queue"], key=lambda job: (job["submit"], job["id"]))
    found, jobs, rows = [], [], []
    held = np.zeros_like(machine.capacity)
    for job in file.get("running", []):
        jobs.append(job)
        for node, units in job["nodes"].items():
            rows.append((len(jobs) - 1, int(node), units, NOW, NOW + 1))
            held[int(node)] += units * np.array(job["unit"])
    for position, places in decision.placements.as_dict().items():
        job, start_s = queue[position], int(decision.start_s[position])
        each = max(job["units"] // max(sum(places.values()), 1), 1)
        if job.get("hold"):
            found.append(f"job {job['id']} is held and starts at {start_s}")
        if start_s == NOW:
            jobs.append(job)
            rows += [(len(jobs) - 1, node, units, NOW, NOW + 1) for node, units in places.items()]
            held[next(iter(places))] += np.array(job.get("first", [0] * len(job["unit"])))
            for node, units in places.items():
                node_once = np.array(job.get("node", [0] * len(job["unit"])))
                held[node] += units * (each * np.array(job["unit"]) + node_once)
        if sum(places.values()) * each != job["units"]:
            found.append(f"job {job['id']}: {places} are not its {job['units']} units")
        on = [units * each for units in places.values()]
        exactly = job.get("units_per_node")
        most = exactly or job.get("units_per_node_max", job["units"])
        if max(on) > most or min(on) < (exactly or job.get("units_per_node_min", 1)):
            found.append(f"job {job['id']}: too many or too few units on a node: {on}")
        if not job.get("nodes_min", 1) <= len(places) <= job.get("nodes_max", job["units"]):
            found.append(f"job {job['id']}: too many or too few nodes: {places}")
    if (held > machine.capacity).any():
        found.append("a node is overfull")
    if rows:
        columns = ("partition", "features", "nodelist", "exclude", "exclusive")
        said = pd.DataFrame({
            "id": [job["id"] for job in jobs], "requested_s": [job["duration"] for job in jobs],
            **{name: [job.get(name, "") for job in jobs] for name in columns},
        })  # fmt: skip
        stay = Stay(*np.array(rows, dtype=np.int64).T)
        found += [str(violation) for violation in access(said, machine, stay)]
    return found


def made(limit_s: float) -> dict[str, Dispatcher]:
    """Every dispatcher, by name."""
    settings = dispatch.Settings(limit_s, 0)
    return {name: dispatch.make(name, settings) for name in NAMES}


def check(seed: int, dispatchers: Mapping[str, Dispatcher]) -> tuple[int, list[str]]:
    """How many jobs copies of these dispatchers start on one instance, and what is wrong with it.

    Most of the time that one needs to be made goes by with first decisions on toys.
    """
    file = file_of(seed)
    problem = instance.loads(json.dumps(file), f"instance {seed}")
    again = instance.to_json(problem)
    starts = 0
    found = [] if instance.to_json(instance.loads(again)) == again else ["changes when written"]
    for name, prototype in dispatchers.items():
        dispatcher = copy.deepcopy(prototype)
        decision = dispatch.answer_of(dispatcher, problem)
        starts += int((decision.start_s == NOW).sum())
        wrong = verify.decision(problem, decision)
        wrong += verify.solution(problem, solution.from_decision(problem, decision))
        if dispatch.keeps_starvation_bound(dispatcher) is False:
            wrong = [each for each in wrong if each.kind != Kind.STARVATION]
        found += [f"{name}: {each}" for each in [*map(str, wrong), *astray(file, decision)]]
    return starts, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=script.count, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--limit", type=float, default=0.05, help="of a decision, seconds")
    given = parser.parse_args()
    dispatchers = made(given.limit)
    wrong = starts = 0
    for seed in range(given.first, given.first + given.instances):
        started, found = check(seed, dispatchers)
        starts += started
        wrong += bool(found)
        for line in found:
            print(f"instance {seed}: {line}", flush=True)
        if (seed + 1) % 100 == 0:
            done = seed + 1 - given.first
            print(f"{done} instances, {len(NAMES)} dispatchers, {starts} starts, {wrong} wrong",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    script.run(__file__)
