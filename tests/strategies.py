"""Random systems, instances, plans and schedules: small, heterogeneous, and feasible.

The placer here is the tests' own: a dense table of what is free at every second on every node,
searched second by second. It is slow and cannot be wrong in the way that a compiled kernel can.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from cpdispatch import access
from cpdispatch import instance as instances_module
from cpdispatch.arrays import IntArray
from cpdispatch.instance import FORMAT, Instance
from cpdispatch.jobs import ANYHOW, Column, JobTable, Spread, Workload, job_block
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads.fit import fit

RESOURCES = ("core", "gpu", "mem")
LONGEST_S = 12


@st.composite
def systems(draw: st.DrawFn, max_nodes: int = 5, max_resources: int = 3) -> System:
    """Systems of one to three groups; a group may lack any resource but not all of them."""
    resources = RESOURCES[: draw(st.integers(1, max_resources))]
    left, groups = max_nodes, []
    for name in ("thin", "fat", "odd")[: draw(st.integers(1, min(3, max_nodes)))]:
        if left == 0:
            break
        nodes = draw(st.integers(1, left))
        left -= nodes
        capacity = draw(
            st.tuples(*(st.integers(0, 4) for _ in resources)).filter(lambda c: max(c) > 0)
        )
        groups.append(NodeGroup(name, nodes, capacity))
    # Somebody has each resource.
    most = np.array([group.capacity for group in groups]).max(axis=0)
    first = np.where(most == 0, 1, groups[0].capacity).tolist()
    groups[0] = replace(groups[0], capacity=tuple(first))
    return System("random", resources, tuple(groups))


@st.composite
def requests(draw: st.DrawFn, system: System) -> list[int]:
    """A per-unit request that asks for something, often of what the system has."""
    most = [max(1, n) for n in system.capacity.max(axis=0).tolist()]
    request = [draw(st.integers(0, n)) for n in most]
    if max(request) == 0:
        request[draw(st.integers(0, len(request) - 1))] = 1
    return request


def place(free: IntArray, request: list[int], units: int) -> dict[int, int] | None:
    """First fit on a free matrix: units by node, or None."""
    nodes: dict[int, int] = {}
    for node, row in enumerate(free.tolist()):
        room = min(have // ask for have, ask in zip(row, request, strict=True) if ask)
        take = min(room, units - sum(nodes.values()))
        if take > 0:
            nodes[node] = take
    return nodes if sum(nodes.values()) == units else None


@st.composite
def instance_files(
    draw: st.DrawFn,
    max_nodes: int = 5,
    max_jobs: int = 6,
    max_running: int = 4,
    down: bool = True,
    reservations: bool = True,
    power: bool = True,
    dependencies: bool = False,
    starvation: bool = False,
    predictions: bool = False,
    restarts: bool = False,
    first: bool = False,
) -> dict[str, Any]:
    """The content of a valid instance file: running jobs fit, some are overdue."""
    system = draw(systems(max_nodes))
    now = draw(st.integers(20, 60))
    free = system.capacity.copy()
    running: list[dict[str, Any]] = []
    for id in range(draw(st.integers(0, max_running))):
        request, units = draw(requests(system)), draw(st.integers(1, 3))
        nodes = place(free, request, units)
        if nodes is None:
            continue
        for node, count in nodes.items():
            free[node] -= count * np.array(request)
        start, duration = draw(st.integers(now - 15, now)), draw(st.integers(1, LONGEST_S))
        running.append(
            {"id": id, "start": start, "duration": duration, "units": units, "unit": request,
             "nodes": {str(node): count for node, count in nodes.items()}}
        )  # fmt: skip
    queue = [
        {"id": 100 + k, "submit": draw(st.integers(0, now)),
         "duration": draw(st.integers(1, LONGEST_S)), "units": draw(st.integers(1, 3)),
         "unit": draw(requests(system)), "user": draw(st.sampled_from(["", "ada", "bob"])),
         "queue": draw(st.sampled_from(["", "debug"])), "ewt": draw(st.integers(1, 9))}
        for k in range(draw(st.integers(0, max_jobs)))
    ]  # fmt: skip
    numbers = st.integers(0, system.nodes - 1)
    file: dict[str, Any] = {
        "format": FORMAT, "time": now, "resources": list(system.resources),
        "groups": [
            {"name": g.name, "nodes": g.nodes, "capacity": list(g.capacity)} for g in system.groups
        ],
        "running": running, "queue": queue,
    }  # fmt: skip
    if down:
        file["down"] = draw(st.lists(numbers, max_size=1))
    if reservations:
        file["reservations"] = [
            {"start": draw(st.integers(now - 5, now + 20)), "duration": draw(st.integers(1, 15)),
             "nodes": draw(st.lists(numbers, min_size=1, max_size=2, unique=True)),
             "capacity": [draw(st.integers(0, 4)) for _ in system.resources]}
            for _ in range(draw(st.integers(0, 2)))
        ]  # fmt: skip
    if power and draw(st.booleans()):
        watts = [draw(st.integers(0, 3)) for _ in system.resources]
        file["power"] = {"cap": draw(st.integers(0, 60)), "unit": watts}
    if dependencies:
        draw(depending(now, [job["id"] for job in running], queue))
    if starvation:
        file["starvation"] = {
            "threshold": draw(st.integers(0, now)),
            "bound": draw(st.integers(0, 9)),
        }
    if predictions:
        draw(predicted(running, queue))
    if restarts:
        draw(restarting(file))
    if first:
        draw(taking_once(file))
    return file


@st.composite
def taking_once(draw: st.DrawFn, file: dict[str, Any]) -> None:
    """Let jobs take something once on their first nodes; what runs fits all the same."""
    file["format"] = "cpdispatch-instance/2"
    kinds = len(file["resources"])
    amounts = st.lists(st.integers(0, 3), min_size=kinds, max_size=kinds)
    for job in file["queue"]:
        if draw(st.integers(0, 2)):
            job["first"] = draw(amounts)
    left = np.repeat(
        [g["capacity"] for g in file["groups"]], [g["nodes"] for g in file["groups"]], 0
    )
    for job in file["running"]:
        for node, units in job["nodes"].items():
            left[int(node)] -= units * np.array(job["unit"])
    for job in file["running"]:
        taken, node = draw(amounts), int(draw(st.sampled_from(sorted(job["nodes"]))))
        if (left[node] >= taken).all():
            job["first"], job["first_node"] = taken, node
            left[node] -= taken


@st.composite
def restarting(draw: st.DrawFn, file: dict[str, Any]) -> None:
    """Let jobs be restarted; some have just been stopped, and killing them may take time."""
    file["format"] = "cpdispatch-instance/2"
    left = read(file).free.copy()
    for job in file["queue"]:
        job["restartable"] = draw(st.booleans())
        nodes = place(left, job["unit"], job["units"])
        early = job["submit"] < file["time"] and not job.keys() & {"after", "earliest"}
        if job["restartable"] and early and nodes and draw(st.integers(0, 3)) == 0:
            for node, count in nodes.items():
                left[node] -= count * np.array(job["unit"])
            start = draw(st.integers(job["submit"], file["time"] - 1))
            held = {str(node): count for node, count in nodes.items()}
            job["stopped"] = {"start": start, "nodes": held}
    # A job that is killed holds its nodes, and draws power, whatever a decision is.
    if not any("stopped" in job for job in file["queue"]) or not (
        file.get("reservations") or "power" in file
    ):
        file["restart_cost"] = draw(st.sampled_from([0, 0, 3]))


@st.composite
def predicted(draw: st.DrawFn, running: list[dict[str, Any]], queue: list[dict[str, Any]]) -> None:
    """Let jobs last longer than is expected of them."""
    more = st.integers(0, LONGEST_S)
    for job in running:
        job["requested"] = job["duration"] + draw(more)
    for job in queue:
        job["upper"] = job["duration"] + draw(more)
        job["requested"] = job["upper"] + draw(more)


@st.composite
def depending(draw: st.DrawFn, now: int, running: list[int], queue: list[dict[str, Any]]) -> None:
    """Make some queued jobs come after others, running or standing before them in some order."""
    before = list(running)
    for job in draw(st.permutations(queue)):
        if before and draw(st.booleans()):
            job["after"] = draw(st.lists(st.sampled_from(before), max_size=2, unique=True))
            if job["after"] and draw(st.booleans()):
                job["think"] = draw(st.integers(0, 9))
        if draw(st.integers(0, 3)) == 0:
            job["earliest"] = draw(st.integers(now - 5, now + 12))
        before.append(job["id"])


def instances(**choices: Any) -> st.SearchStrategy[Instance]:
    """Valid instances; the choices are those of `instance_files`."""
    return instance_files(**choices).map(read)


def read(file: dict[str, Any]) -> Instance:
    """The instance that a file's content describes."""
    return instances_module.loads(json.dumps(file))


def lasting(instance: Instance, limits: str) -> Instance:
    """The instance whose jobs are expected to last as long as some limits say, by its file."""
    file = json.loads(instances_module.to_json(instance))
    for job in file.get("queue", []):
        requested = job.pop("requested", job["duration"])
        upper = job.pop("upper", requested)
        lasts = {"expected": job["duration"], "upper": upper, "requested": requested}
        job["duration"] = lasts[limits]
    if limits != "expected":
        for job in file.get("running", []):
            job["duration"] = job.pop("requested", job["duration"])
    return read(file)


EMPTY = read({"format": FORMAT, "time": 0, "resources": ["core"],
              "groups": [{"name": "one", "nodes": 1, "capacity": [1]}]})  # fmt: skip


class Timetable:
    """What is free at every second from an instance's time on, on every node, and in watts."""

    def __init__(self, instance: Instance, seconds: int) -> None:
        system, self.now = instance.system, instance.now
        held = np.zeros((seconds, system.nodes, len(system.resources)), dtype=np.int64)
        self.power = np.full(seconds, 10**9 if instance.power is None else instance.power.cap)
        draws = instance.job_power(instance.running.jobs)
        running = instance.running
        for k in range(len(running)):
            end = max(1, int(running.end_s[k]) - self.now)
            self.power[:end] -= draws[k]
            for e in range(int(running.offset[k]), int(running.offset[k + 1])):
                units = running.units[e] * running.jobs.request[k]
                held[:end, running.node[e]] += units
        for r in instance.reservations:
            low, high = max(0, r.start_s - self.now), max(0, r.end_s - self.now)
            held[low:high, list(r.nodes)] += np.array(r.capacity)
        self.free = np.maximum(system.capacity - held, 0)
        self.free[:, instance.down] = 0

    def earliest(
        self, request: list[int], units: int, duration: int, watts: int, first: int = 0
    ) -> tuple[int, dict[int, int]] | None:
        """First second from which a job fits, and its nodes; the job is put there."""
        for t in range(first, len(self.free) - duration):
            nodes = place(self.free[t : t + duration].min(axis=0), request, units)
            if nodes is not None and self.power[t : t + duration].min() >= watts:
                for node, count in nodes.items():
                    self.free[t : t + duration, node] -= count * np.array(request)
                self.power[t : t + duration] -= watts
                return self.now + t, nodes
        return None


Plan: TypeAlias = dict[int, tuple[int, dict[int, int]]]
"""Start and nodes by queue position."""


def plan(instance: Instance, order: Sequence[int]) -> Plan:
    """A feasible plan by brute force: in the given order, starved jobs first.

    A job goes after those that it comes after; where one of them is not in the plan, or a starved
    job would have to wait for one that is not, it is not in the plan either.
    """
    table = Timetable(instance, 60 + (2 * LONGEST_S + 30) * (len(order) + 1))
    watts, starved = instance.job_power(instance.queue).tolist(), instance.starved().tolist()
    found: Plan = {}
    left = sorted(order, key=lambda k: not starved[k])
    while left:
        able = [k for k in left if not set(before(instance, k)) & set(left)]
        position = next((k for k in able if starved[k]), able[0])
        left.remove(position)
        job = instance.queue[position]
        planned = [
            k in found and starved[k] >= starved[position] for k in before(instance, position)
        ]
        if not all(planned):
            continue
        first = release(instance, found, position) - instance.now
        start = table.earliest(list(job.request), job.units, job.expected_s, watts[position], first)
        if start is not None:
            found[position] = start
    return found


def before(instance: Instance, position: int) -> list[int]:
    """Queue positions of the queued jobs that a job comes after."""
    given = instance.dependencies
    if given is None:
        return []
    return given.position[given.offset[position] : given.offset[position + 1]].tolist()


def release(instance: Instance, found: Plan, position: int) -> int:
    """From when on the jobs of a plan, and the running ones, let a job start."""
    given = instance.dependencies
    if given is None:
        return instance.now
    ends = [found[k][0] + instance.queue[k].expected_s for k in before(instance, position)]
    think = int(given.think_s[position])
    return max([int(given.earliest_s[position]), *(end + think for end in ends)])


@st.composite
def planned_instances(draw: st.DrawFn, **limits: Any) -> tuple[dict[str, Any], Plan]:
    """An instance file and a feasible plan for it in which a job or more start now."""
    file = draw(instance_files(**limits))
    instance = read(file)
    found = plan(instance, draw(st.permutations(range(len(instance.queue)))))
    if not any(start == instance.now for start, _ in found.values()):
        file |= {"down": [], "reservations": [], "running": []}
        file.pop("power", None)
        capacity = list(file["groups"][0]["capacity"])
        file["queue"] = [{"id": 999, "submit": 0, "duration": 5, "units": 1, "unit": capacity}]
        found = plan(read(file), [0])
    return file, found


def no_jobs(system: System) -> JobTable:
    """A queue of no job on a system."""
    return JobTable(np.zeros((Column.REQUEST + len(system.resources), 0), dtype=np.int64))


@st.composite
def schedules(draw: st.DrawFn) -> tuple[pd.DataFrame, System]:
    """The table of a whole feasible schedule, and its system; a job or more started."""
    system = draw(systems())
    empty = replace(EMPTY.running, jobs=no_jobs(system))
    table = Timetable(Instance(0, system, system.capacity, no_jobs(system), empty, EMPTY.down), 400)
    rows = []
    for id in range(1, draw(st.integers(1, 7)) + 1):
        request = draw(requests(system)) if id > 1 else list(system.groups[0].capacity)
        units = draw(st.integers(1, 4)) if id > 1 else 1
        submit, runtime = draw(st.integers(0, 20)), draw(st.integers(0 if id > 1 else 2, 10))
        requested = draw(st.integers(1, LONGEST_S))
        killed = requested < runtime and draw(st.booleans())
        lasts = requested if killed else runtime
        found = table.earliest(request, units, max(lasts, 1), 0, submit)
        start, nodes = (-1, {}) if found is None else found
        rows.append(
            {"id": id, "submit": submit, "start": start, "end": start + lasts if nodes else -1,
             "units": units, "requested_s": requested, "runtime_s": runtime,
             "killed": bool(killed and nodes), "reason": "started" if nodes else "never_fits",
             **{f"request_{n}": r for n, r in zip(system.resources, request, strict=True)},
             "nodes": np.array(list(nodes), dtype=np.int64) if nodes else None,
             "node_units": np.array(list(nodes.values()), dtype=np.int64) if nodes else None}
        )  # fmt: skip
    return pd.DataFrame(rows), system


@st.composite
def workloads(
    draw: st.DrawFn,
    system: System,
    max_jobs: int = 20,
    upper_bounds: bool = False,
    tiers: bool = False,
) -> Workload:
    """Workloads that crowd a system; requests may be 0 of anything, some jobs may never fit.

    With ``upper_bounds`` no job runs longer than it asked for. With ``tiers`` jobs may be of
    several.
    """
    jobs = draw(st.integers(1, max_jobs))
    submit = sorted(draw(st.lists(st.integers(0, 40), min_size=jobs, max_size=jobs)))
    runtime = draw(st.lists(st.integers(1, 15), min_size=jobs, max_size=jobs))
    slack = draw(st.lists(st.integers(0 if upper_bounds else -6, 10), min_size=jobs, max_size=jobs))
    block = job_block(
        id=np.arange(jobs),
        submit_s=submit,
        units=draw(st.lists(st.integers(1, 4), min_size=jobs, max_size=jobs)),
        requested_s=np.maximum(1, np.array(runtime) + slack),
        request=np.array([draw(requests(system)) for _ in range(jobs)]),
        queue=draw(st.lists(st.integers(-1, 1), min_size=jobs, max_size=jobs)),
        priority=draw(st.lists(st.integers(0, 2), min_size=jobs, max_size=jobs)),
        tier=draw(st.just(1) | st.lists(st.integers(0, 2), min_size=jobs, max_size=jobs))
        if tiers
        else 1,
    )
    none = np.full(jobs, -1, dtype=np.int64)
    return Workload(
        "random",
        system.resources,
        JobTable(block),
        np.array(runtime, dtype=np.int64),
        none,
        none.copy(),
    )


@st.composite
def taken_once(
    draw: st.DrawFn, restartable: bool = False, **choices: Any
) -> tuple[Workload, System]:
    """A crowded system and jobs of which some take something once on their first nodes.

    Of some jobs, one or two units at most may share a node. With ``restartable`` some may be
    restarted.
    """
    machine = draw(systems(max_nodes=4, max_resources=2))
    plain = draw(workloads(machine, **choices))
    if restartable:
        may = draw(st.lists(st.integers(0, 1), min_size=len(plain), max_size=len(plain)))
        plain = replace(plain, table=plain.table.having(Column.RESTARTABLE, np.array(may)))
    amounts = [
        draw(st.lists(st.integers(0, 3), min_size=len(plain), max_size=len(plain)))
        for _ in machine.resources
    ]
    first = [np.array(column, dtype=np.int64) for column in amounts]
    table = JobTable([*plain.table.columns, *first], plain.table.labels)
    names = (*machine.resources, *(f"first_{name}" for name in machine.resources))
    asked = replace(plain, resources=names, table=table)
    if draw(st.booleans()):
        kinds = draw(st.lists(st.integers(0, 2), min_size=len(plain), max_size=len(plain)))
        spread = (ANYHOW, Spread(units_per_node_max=1), Spread(units_per_node_max=2))
        asked = replace(asked, spread=spread, spread_of=np.array(kinds, dtype=np.int64))
    return access.keep(fit(asked, machine), machine)
