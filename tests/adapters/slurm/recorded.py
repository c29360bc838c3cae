"""A recorded Slurm, and one that goes on from there by simple rules of its own.

python -m tests.adapters.slurm.recorded    records data/cluster.json.gz from a new cluster
"""

from __future__ import annotations

import copy
import gzip
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cpdispatch.adapters.slurm import guard
from cpdispatch.adapters.slurm.client import Client, RefusedError
from cpdispatch.adapters.slurm.cluster import KEPT, job_of
from cpdispatch.workloads.slurm.values import nodes_in, task_ranges
from tests.adapters.slurm.cluster import Cluster, until
from tests.adapters.slurm.jobs import PARTITIONS, features

DATA = Path(__file__).with_name("data") / "cluster.json.gz"
LISTS = ("jobs", "nodes", "partitions", "reservations")
_UNKNOWN, _FINISHED, _BAD_NODES = 2017, 2084, 2018


class Recorded:
    """What a cluster answered, and a simple Slurm that goes on from there.

    A job that is not held starts in `step` on the nodes that it names, or on any, when they are
    free; it runs for ``seconds``, its own if the row has some. Each start is counted.
    """

    def __init__(self, data: Mapping[str, Any], seconds: int = 3) -> None:
        self.data = copy.deepcopy(dict(data))
        self.seconds = seconds
        self.began: dict[str, list[str]] = {}
        self.changes: list[tuple[str, dict[str, Any]]] = []
        self.stopped: list[str] = []

    @classmethod
    def load(cls) -> Recorded:
        return cls(json.loads(gzip.decompress(DATA.read_bytes())))

    def now_s(self) -> int:
        return int(self.data["now_s"])

    def jobs(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.data["jobs"])

    def nodes(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.data["nodes"])

    def partitions(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.data["partitions"])

    def reservations(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.data["reservations"])

    def row(self, job: str | int) -> dict[str, Any]:
        """The record of a job, by its number or its array and task."""
        array, _, task = str(job).partition("_")
        for row in self.data["jobs"]:
            if task and row["array_job_id"] == int(array) and row["array_task_id"] == int(task):
                return row
            if not task and row["job_id"] == int(array):
                return row
        raise RefusedError("Invalid job id specified", _UNKNOWN)

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        self.changes.append((job, dict(changes)))
        for row in self._rows(job):
            if row["job_state"] not in ("PENDING", "RUNNING"):
                raise RefusedError("Job has already finished", _FINISHED)
            if "nodelist" in changes:
                if row["job_state"] == "RUNNING":
                    raise RefusedError("Invalid node name specified", _BAD_NODES)
                row["required_nodes"] = changes["nodelist"]
            if "hold" in changes:
                # What job_submit.lua does: the driver's holds come with a list of nodes.
                others = changes["hold"] and "nodelist" not in changes
                row["comment"] = KEPT if others else ""
                row["state_description"] = ""
                row["priority"] = 0 if changes["hold"] else 4_000_000
                row["state_reason"] = "JobHeldAdmin" if changes["hold"] else "None"
            if "priority" in changes:
                row["priority"] = changes["priority"]

    def requeue(self, job: str) -> None:
        """Queue a job again, held: it starts two minutes later at the earliest, as in Slurm."""
        row = self.row(job)
        if row["job_state"] != "RUNNING" or not row["requeue"]:
            raise RefusedError(f"Requested operation is presently disabled for job {job}")
        self._hold(row, -1)
        now = self.data["now_s"]
        row.update(
            job_state="PENDING", state_reason="JobHeldUser", priority=0, submit_time=now,
            state_description="job requeued in held state",
            restart_cnt=row["restart_cnt"] + 1, start_time=now + 121, eligible_time=now + 121,
            job_resources={}, gres_detail=[],
        )  # fmt: skip
        self.stopped.append(job_of(row).key)
        del self.began[job_of(row).key]

    def _rows(self, job: str) -> list[dict[str, Any]]:
        """The records that a change is for; a task that waits with others gets one of its own."""
        array, _, task = job.partition("_")
        if task.startswith("["):
            given = [n for part in task_ranges(task.strip("[]")) for n in part]
            return [row for number in given for row in self._rows(f"{array}_{number}")]
        if task:
            for row in self.data["jobs"]:
                if row["array_job_id"] != int(array) or not row["array_task_string"]:
                    continue
                tasks = [n for part in task_ranges(_tasks(row)) for n in part]
                if int(task) in tasks:
                    return [self._split(row, tasks, int(task))]
        return [self.row(job)]

    def _split(self, row: dict[str, Any], tasks: list[int], task: int) -> dict[str, Any]:
        tasks.remove(task)
        own = row if not tasks else copy.deepcopy(row)
        if tasks:
            most = row["array_task_string"].partition("%")[2]
            row["array_task_string"] = ",".join(map(str, tasks)) + (f"%{most}" if most else "")
            own["job_id"] = max(each["job_id"] for each in self.data["jobs"]) + 1
            self.data["jobs"].append(own)
        own["array_task_string"], own["array_task_id"] = "", task
        return own

    def step(self, seconds: int = 1) -> None:
        """Let time pass: jobs end, and start."""
        self.data["now_s"] += seconds
        now = self.data["now_s"]
        for row in self.data["jobs"]:
            if row["job_state"] == "RUNNING" and now >= row["start_time"] + row.get(
                "seconds", self.seconds
            ):
                row["job_state"], row["end_time"] = "COMPLETED", now
                self._hold(row, -1)
        for row in self.data["jobs"]:
            waits = row["job_state"] == "PENDING" and row["priority"] and row["start_time"] <= now
            if waits and not row["array_task_string"]:
                self._try(row)

    def _try(self, row: dict[str, Any]) -> None:
        before = {part.split("(")[0].split(":")[1] for part in row["dependency"].split(",") if part}
        if any(self.row(job)["job_state"] in ("PENDING", "RUNNING") for job in before):
            return
        job = job_of(row)
        named = nodes_in(row["required_nodes"])
        many = len(named) or job.nodes
        cores = 16 if job.exclusive else job.cpus_of(many)
        memory_mb = 64_000 if job.memory_mb_of(many) < 0 else job.memory_mb_of(many)
        asked = job.gpus_of(many).get("gpu", 0)
        free = [
            node for node in self.data["nodes"]
            if (not named or node["name"] in named)
            and node["cpus"] - node["alloc_cpus"] >= cores
            and node["real_memory"] - node["alloc_memory"] >= memory_mb
            and _gpus(node["gres"]) - _gpus(node["gres_used"]) >= asked
            and node["state"] in ("idle", "mixed", "allocated") and not node["state_flags"]
        ]  # fmt: skip
        if len(free) < many:
            return
        taken = free[:many]
        row["job_state"], row["start_time"] = "RUNNING", self.data["now_s"]
        row["job_resources"] = {
            "allocated_nodes": [
                {
                    "nodename": node["name"], "memory_allocated": memory_mb,
                    "sockets": {"0": {"cores": {str(k): "allocated" for k in range(cores)}}},
                }
                for node in taken
            ]
        }  # fmt: skip
        # Who has nodes alone has their GPUs, too.
        gpus = [_gpus(node["gres"]) if job.exclusive else asked for node in taken]
        row["gres_detail"] = [f"gpu:{many}(IDX:0)" for many in gpus] if any(gpus) else []
        self._hold(row, 1)
        names = sorted(node["name"] for node in taken)
        if job.key in self.began:
            raise AssertionError(f"{job.key} started twice")
        self.began[job.key] = names

    def _hold(self, row: dict[str, Any], sign: int) -> None:
        by_name = {node["name"]: node for node in self.data["nodes"]}
        for k, share in enumerate(row["job_resources"]["allocated_nodes"]):
            node = by_name[share["nodename"]]
            cores = sum(len(socket["cores"]) for socket in share["sockets"].values())
            node["alloc_cpus"] += sign * cores
            node["alloc_memory"] += sign * share["memory_allocated"]
            if row["gres_detail"]:
                many = _gpus(node["gres_used"]) + sign * _gpus(row["gres_detail"][k])
                node["gres_used"] = f"gpu:{many}"


def _tasks(row: dict[str, Any]) -> str:
    return str(row["array_task_string"]).partition("%")[0]


def _gpus(text: str) -> int:
    return int(text.split(":")[1].split("(")[0]) if text else 0


def _record() -> None:
    """A cluster in which nearly everything happens at once."""
    folder = Path(tempfile.mkdtemp(prefix="slurm"))
    folder.chmod(0o755)
    state = folder / "driver"
    state.mkdir()
    with Cluster(folder, features=features, partition_lines=PARTITIONS,
                 plugin=guard.plugin(state, 65_534)) as slurm:  # fmt: skip
        slurm.submit("--nodes=2", "--ntasks-per-node=4", "--mem=8000", "--gres=gpu:2",
                     "--nodelist=n01,n02", seconds=600)  # fmt: skip
        slurm.submit("--ntasks=20", "--mem-per-cpu=100", "--nodes=2", "--nodelist=n02,n03",
                     seconds=600)  # fmt: skip
        long = slurm.submit("--exclusive", "--mem=100", "--nodelist=n04", seconds=600)
        until(lambda: len(slurm.run("squeue", "-h", "-t", "R").split("\n")) == 4, "not started")
        slurm.submit("--mem=100", "--hold")  # by its user
        guard.beat(state, "")
        slurm.submit("--nodes=2", "--ntasks-per-node=4", "--mem=1000", "--time=10")
        slurm.submit("--nodes=4", "--ntasks-per-node=12", "--mem=9000", "--time=20")
        slurm.submit("--array=0-5%3", "--mem=500", "--time=5")
        slurm.submit("--mem=500", f"--dependency=afterany:{long}", "--time=5")
        slurm.submit("--mem=500", "--constraint=slow", "--gres=gpu:3", "--time=5")
        slurm.submit("--mem=500", "--partition=small", "--time=5")
        slurm.submit("--exclusive", "--nodes=2", "--mem=500", "--time=7")
        slurm.submit("--licenses=matlab:1", "--mem=500", "--time=5")
        slurm.submit("--mem=500", "--begin=now+1hour", "--time=5")
        slurm.submit("--time=9")  # all the memory of a node
        slurm.submit("--ntasks=20", "--mem-per-cpu=100", "--time=5")
        slurm.run("scontrol", "create", "reservation", "ReservationName=upkeep", "Nodes=n15",
                  "StartTime=now+1hour", "Duration=60", f"Users={slurm.user}")  # fmt: skip
        slurm.run("scontrol", "update", "NodeName=n16", "State=DRAIN", "Reason=fan")
        client = Client(slurm.socket)
        data = {"now_s": client.now_s()} | {name: getattr(client, name)() for name in LISTS}
    text = json.dumps(data, indent=0).replace(str(folder), "/run/test")
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    _record()
