"""Short jobs of many kinds for a test cluster, and what Slurm says became of them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cpdispatch import verify
from cpdispatch.adapters.slurm.client import Client
from cpdispatch.adapters.slurm.cluster import job_of, node_of
from cpdispatch.system import NodeGroup, System
from tests.adapters.slurm.cluster import LICENCES, Cluster

PARTITIONS = (
    "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP",
    "PartitionName=small Nodes=n[01-04] MaxTime=00:10:00 DefaultTime=00:05:00 State=UP",
)

BOUND_S = 10
"""No job counts as shorter in a bounded slowdown."""


def features(number: int) -> str:
    """The features of a node."""
    return "fast,a" if number < 8 else "slow,a"


@dataclass(frozen=True)
class Submission:
    """A job to be submitted: options of sbatch, seconds, tasks of its array, and its kind."""

    arguments: tuple[str, ...]
    seconds: int
    tasks: int = 1
    kind: str = "plain"


def mixed(seed: int, many: int, gpus: int, longest_s: int = 3) -> list[Submission]:
    """At least so many jobs: on 1 to 4 nodes, with GPUs, memory, features, partitions and arrays,
    some that depend on the one before, some that take whole nodes, some with a licence.
    """
    rng = random.Random(seed)
    found: list[Submission] = []
    while sum(job.tasks for job in found) < many:
        nodes = rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
        kind = rng.choice(("plain",) * 6 + ("gpu",) * (3 if gpus else 0) + (
            "array", "after", "feature", "small", "exclusive", "names", "whole", "tasks",
            "licence",
        ))  # fmt: skip
        cpus = rng.choice((1, 2, 4, 8, 12))
        given = [
            f"--nodes={nodes}",
            f"--ntasks-per-node={cpus}",
            f"--mem={rng.choice((500, 2000, 8000, 30_000))}",
            f"--time={rng.randint(1, 9)}",
        ]
        tasks, seconds = 1, rng.randint(1, longest_s)
        if kind == "gpu":
            given.append(f"--gres=gpu:{rng.randint(1, gpus)}")
        elif kind == "array":
            tasks = rng.randint(3, 8)
            given += [f"--array=0-{tasks - 1}" + rng.choice(("", "%2")), "--nodes=1"]
        elif kind == "after" and found:
            given.append(f"--dependency={rng.choice(('afterany', 'afterok'))}:@")
        elif kind == "feature":
            given.append(f"--constraint={rng.choice(('fast', 'slow', 'fast&a', 'fast|slow'))}")
        elif kind == "small":
            given.append("--partition=small")
        elif kind == "exclusive":
            given.append("--exclusive")
        elif kind == "names":
            given += ["--nodes=1", f"--nodelist=n{rng.randint(1, 16):02}"]
        elif kind == "licence":  # no instance can express it
            given += ["--nodes=1", "--licenses=matlab:1"]
        elif kind == "whole":
            given += ["--nodes=1", "--mem=0"]
        elif kind == "tasks":  # how they are spread is left to Slurm
            given = [f"--ntasks={rng.randint(2, 24)}", "--mem-per-cpu=200", "--time=5"]
        found.append(Submission(tuple(given), seconds, tasks, kind))
    return found


def submit(cluster: Cluster, jobs: Sequence[Submission], *more: str) -> list[int]:
    """Submit jobs; each @ in the options is the number of the job before."""
    numbers: list[int] = []
    for job in jobs:
        given = [part.replace("@", str(numbers[-1])) if numbers else part for part in job.arguments]
        numbers.append(cluster.submit(*given, *more, seconds=job.seconds))
    return numbers


def ended(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """The records of jobs that ended, by the keys of the jobs, with the nodes of each."""
    found = {}
    for row in rows:
        nodes = [share["nodename"] for share in row["job_resources"].get("allocated_nodes", ())]
        found[job_of(row | {"job_state": "COMPLETED"}).key] = (row, nodes)
    return found


def duration_text(seconds: int) -> str:
    """A duration as Slurm writes it, as ``2-03:00:05``."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def accounting(rows: Sequence[dict[str, Any]]) -> str:
    """What ``sacct --delimiter=@@`` prints of jobs, given what the controller says of them."""
    columns = (
        "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "Submit", "Eligible",
        "Start", "End", "State", "Timelimit", "AllocTRES", "NodeList", "Constraints", "Licenses",
        "Flags",
    )  # fmt: skip
    lines = ["@@".join(columns)]
    for row in rows:
        job = job_of(row)
        total = {"cpu": 0, "mem": 0, "node": len(job.shares), "gres/gpu": 0}
        for share in job.shares:
            total["cpu"] += share.cores
            total["mem"] += share.memory_mb
            total["gres/gpu"] += share.gpus.get("gpu", 0)
        tres = ",".join(f"{name}={many}{'M' * (name == 'mem')}" for name, many in total.items())
        cells = (
            job.key, job.own, "wrap", job.user, job.account, job.partition, job.submit_s,
            job.eligible_s or job.submit_s, job.start_s, job.end_s, job.state,
            duration_text(job.limit_s), tres if job.shares else "",
            ",".join(share.node for share in job.shares), job.features, row["licenses"],
            "SchedBackfill",
        )  # fmt: skip
        lines.append("@@".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def violations(client: Client, first: int = 0) -> list[str]:
    """What is wrong with the schedule that Slurm tells of: no node may ever hold too much, no
    array run more tasks than it may, and no licence be used more often than there are.

    Jobs before the number ``first`` are left out.
    """
    nodes = [node_of(row) for row in client.nodes()]
    number = {node.name: k for k, node in enumerate(nodes)}
    groups = tuple(NodeGroup(n.name, 1, (n.cpus, n.gpus.get("gpu", 0), n.memory_mb)) for n in nodes)
    rows = []
    since = [row for row in client.jobs() if row["job_id"] >= first]
    for row, given in ended(since).values():
        gpus = job_of(row | {"job_state": "COMPLETED"}).gpus_of(max(len(given), 1)).get("gpu", 0)
        for share in row["job_resources"].get("allocated_nodes", ()):
            cores = sum(len(socket["cores"]) for socket in share["sockets"].values())
            rows.append((row, (cores, gpus, share["memory_allocated"]), number[share["nodename"]]))
    start_s = np.array([row["start_time"] for row, _, _ in rows])
    end_s = np.array([row["end_time"] for row, _, _ in rows])
    no = np.zeros(len(rows), dtype=np.bool_)
    table = verify.Schedule(
        id=np.arange(len(rows)),
        submit_s=np.array([row["submit_time"] for row, _, _ in rows]),
        start_s=start_s, end_s=end_s,
        units=np.ones(len(rows), dtype=np.int64),
        requested_s=np.array([row["time_limit"] * 60 for row, _, _ in rows]),
        runtime_s=end_s - start_s, killed=no,
        reason=["started"] * len(rows), of_start=~no, never_fits=no, rejected=no,
        request=np.array([share for _, share, _ in rows]),
        offset=np.arange(len(rows) + 1),
        node=np.array([node for _, _, node in rows]),
        node_units=np.ones(len(rows), dtype=np.int64),
    )  # fmt: skip
    assert len(rows)
    found = verify.schedule(table, System("test", ("core", "gpu", "mem"), groups), brief=False)
    return [*map(str, found), *_limits_broken(since)]


def _limits_broken(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Arrays of which too many tasks ran at a time, and licences that were used too often."""
    spans: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for row in rows:
        start_s, end_s = row["start_time"], row["end_time"]
        if row["array_max_tasks"]:
            limited = f"array {row['array_job_id']}", row["array_max_tasks"]
            spans.setdefault(limited, []).append((start_s, end_s, 1))
        for licence in filter(None, row["licenses"].split(",")):
            name, _, many = licence.partition(":")
            spans.setdefault((name, LICENCES[name]), []).append((start_s, end_s, int(many or 1)))
    broken = []
    for (what, most), held in spans.items():
        for at, _, _ in held:
            used = sum(many for start_s, end_s, many in held if start_s <= at < end_s)
            if used > most:
                broken.append(f"{what}: {used} at {at}, and {most} at most")
    return broken


def quality(client: Client, first: int = 0) -> dict[str, float]:
    """Seconds from the first submission to the last end; mean wait and mean bounded slowdown.

    Jobs before the number ``first`` are left out.
    """
    rows = [row for row in client.jobs() if row["job_id"] >= first]
    rows = [row for row, _ in ended(rows).values()]
    waits = [row["start_time"] - row["submit_time"] for row in rows]
    runs = [row["end_time"] - row["start_time"] for row in rows]
    slow = [max(1.0, (w + r) / max(r, BOUND_S)) for w, r in zip(waits, runs, strict=True)]
    makespan = max(row["end_time"] for row in rows) - min(row["submit_time"] for row in rows)
    return {
        "makespan_s": int(makespan), "wait_s": statistics.mean(waits),
        "slowdown": statistics.mean(slow),
    }  # fmt: skip
