"""A driver's cycle on a cluster of a thousand nodes and more, with thousands of jobs in its queue.

    python benchmarks/slurm_many.py [--nodes 1500] [--running 5000] [--waiting 10000]

A recorded cluster's nodes and jobs are multiplied. Each dispatcher drives it for three cycles that
change nothing. A line tells the processor seconds of the longest of them, what of that the decision
and its check took, and how many jobs would be released. What Slurm and the network take is not in
it, nor parsing its JSON.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import script

sys.path.append(str(Path(__file__).resolve().parent.parent))

from cpdispatch import dispatch
from cpdispatch.adapters.slurm.cluster import MARK, job_of
from cpdispatch.adapters.slurm.drive import Driver
from cpdispatch.adapters.slurm.rules import Rules
from tests.adapters.slurm.recorded import Recorded

CYCLES = 3
NEAR = 64
"""Nodes that are looked at for a job that runs."""


class Many(Recorded):
    """Answers with its own records: nobody changes them here."""

    def jobs(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.data["jobs"]
        return rows

    def nodes(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.data["nodes"]
        return rows


def cluster(nodes: int, running: int, waiting: int) -> Many:
    """So many nodes, and jobs like those that were recorded."""
    choose = random.Random(1)
    slurm = Many(Recorded.load().data)
    data, now_s = slurm.data, slurm.now_s()
    like = [row for row in data["jobs"] if _is_plain(row)]
    idle = {"alloc_cpus": 0, "alloc_memory": 0, "gres_used": "gpu:0", "state": "idle"}
    all_nodes = [
        data["nodes"][k % len(data["nodes"])] | idle | {"name": f"n{k:05}", "state_flags": ""}
        for k in range(nodes)
    ]
    for part in data["partitions"]:
        part["nodes"] = f"n[00000-{nodes - 1:05}]"
    jobs = []
    for number in range(1000, 1000 + running + waiting):
        age_s = choose.randrange(1, 86_400)
        row = copy.deepcopy(choose.choice(like)) | {
            "job_id": number, "submit_time": now_s - age_s, "user_name": f"u{number % 97}",
            "time_limit": choose.choice([30, 60, 600, 1440]), "start_time": 0,
        }  # fmt: skip
        if number < 1000 + running:
            row["priority"] = 1
            first = choose.randrange(max(nodes - NEAR, 1))
            data["nodes"] = all_nodes[first : first + NEAR]
            slurm._try(row)
        else:
            row |= {"priority": 0, "admin_comment": MARK}
        if row["job_state"] == "RUNNING" or not row["priority"]:
            jobs.append(row)
    data["jobs"] = jobs
    data["nodes"] = all_nodes
    return slurm


def _is_plain(row: dict[str, Any]) -> bool:
    """Whether a recorded job waits alone, and is one that is driven."""
    alone = not any(
        row[name] for name in ("array_job_id", "dependency", "required_nodes", "excluded_nodes")
    )
    return row["job_state"] == "PENDING" and alone and not job_of(row).left


def main() -> None:
    """Print a line for each dispatcher."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=script.count, default=1500)
    parser.add_argument(
        "--running", type=script.count, default=5000, help="so many, where they find nodes"
    )
    parser.add_argument("--waiting", type=script.count, default=10_000)
    parser.add_argument("--dispatchers", nargs="+", default=["easy", "best", "hcp"])
    given = parser.parse_args()
    slurm = cluster(given.nodes, given.running, given.waiting)
    for name in given.dispatchers:
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(slurm, dispatch.make(name), Path(folder), Rules(dry=True))
            seconds = []
            for _ in range(CYCLES):
                began = process_time()
                done = driver.cycle()
                seconds.append(process_time() - began)
        print(
            f"{name:10} running {done.running:,}  waiting {done.waiting:,}  "
            f"cycle {max(seconds):.2f} s  decision {done.decision['ms'] / 1e3:.2f} s  "
            f"released {len(done.released)}  left {len(done.left)}",
            flush=True,
        )


if __name__ == "__main__":
    script.run(__file__)
