"""A real Slurm on this machine, driven by dispatchers, beside Slurm's own backfilling.

    python benchmarks/slurm.py --nodes 64 --jobs 500 --longest 3 --out slurm.jsonl
    python benchmarks/slurm.py --nodes 16 --jobs 200 --longest 20 --seeds 2 --out slurm.jsonl \\
        --csv docs/data/slurm.csv

Each run starts a cluster of its own, submits the same jobs, waits until all have completed, and
checks the schedule. A line of the file, and of the table, is a run: its makespan; the mean wait and
the mean bounded slowdown (bound 10 s) of the jobs; the longest and the median cycle of those that
released jobs; releases a second within these; jobs on other nodes than were decided, jobs that were
taken back, jobs that were left to Slurm. Dispatcher `slurm` is Slurm's own: `sched/backfill` each
second. The jobs only sleep, and every daemon runs here: cycle times are those of a busy machine.
`--csv` writes the means over the seeds of all runs that the file has: the table of docs/slurm.md.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import script

sys.path.append(str(Path(__file__).resolve().parent.parent))

from cpdispatch import dispatch
from cpdispatch.adapters.slurm import guard
from cpdispatch.adapters.slurm.client import Client
from cpdispatch.adapters.slurm.drive import Driver
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.files import csv_of, write_bytes
from tests.adapters.slurm.cluster import Cluster, missing
from tests.adapters.slurm.jobs import (
    PARTITIONS,
    Submission,
    features,
    mixed,
    quality,
    submit,
    violations,
)

OWN = "slurm"


@dataclass
class Measured:
    """What the cycles of a driver took, and did."""

    seconds: list[float] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    elsewhere: int = 0
    retracted: int = 0
    left: int = 0


@contextmanager
def cluster(nodes: int, *, held: bool) -> Iterator[tuple[Cluster, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="cpdispatch-slurm-"))
    folder.chmod(0o755)
    state = folder / "driver"
    state.mkdir()
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
    plugin = guard.plugin(state, user) if held else ""
    try:
        with Cluster(
            folder, nodes=nodes, plugin=plugin, features=features, partition_lines=PARTITIONS
        ) as made:
            yield made, state
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(name: str, nodes: int, jobs: Sequence[Submission], every_s: float) -> dict[str, Any]:
    """One run of these jobs under a dispatcher."""
    measured = Measured()
    many = sum(job.tasks for job in jobs)
    with cluster(nodes, held=name != OWN) as (slurm, state):
        client = Client(slurm.socket)
        driver = None
        if name != OWN:
            driver = Driver(client, dispatch.make(name), state, Rules(patience_s=5))
            guard.beat(state, "")
        submit(slurm, jobs)
        while sum(row["job_state"] == "COMPLETED" for row in client.jobs()) < many:
            begin = time.monotonic()
            if driver is not None:
                done = driver.cycle()
                measured.seconds.append(time.monotonic() - begin)
                measured.released.append(len(done.released))
                measured.elsewhere += len(done.elsewhere)
                measured.retracted += len(done.retracted)
                measured.left += len(done.left)
            time.sleep(max(0.0, begin + every_s - time.monotonic()))
        wrong = violations(client)
        if wrong:
            raise SystemExit(f"{name}: {wrong[0]}")
        return {
            "dispatcher": name, "nodes": nodes, "jobs": many, "every_s": every_s,
            **quality(client), **_cycles(measured),
        }  # fmt: skip


def _cycles(measured: Measured) -> dict[str, float]:
    busy = [(s, r) for s, r in zip(measured.seconds, measured.released, strict=True) if r]
    if not busy:
        return {}
    seconds = [s for s, _ in busy]
    return {
        "cycle_longest_s": max(seconds), "cycle_median_s": statistics.median(seconds),
        "releases_per_s": sum(r for _, r in busy) / sum(seconds),
        "elsewhere": measured.elsewhere, "retracted": measured.retracted, "left": measured.left,
    }  # fmt: skip


TABLE = {
    "makespan s": ("makespan_s", 0), "mean wait s": ("wait_s", 1),
    "mean bounded slowdown": ("slowdown", 2), "longest cycle s": ("cycle_longest_s", 2),
    "releases a second": ("releases_per_s", 0), "taken back": ("retracted", 1),
    "left to Slurm": ("left", 1),
}  # fmt: skip


def write_table(runs: Path, path: Path) -> None:
    """The means of runs that differ in their seeds alone."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in runs.read_text().splitlines():
        row = msgspec.json.decode(line)
        key = (row["dispatcher"], row["nodes"], row["longest_s"], row["jobs"] // 10 * 10)
        alike.setdefault(key, []).append(row)
    table: list[list[Any]] = [["dispatcher", "nodes", "longest job s", "jobs", "runs", *TABLE]]
    for (name, nodes, longest_s, jobs), rows in alike.items():
        means = [
            f"{statistics.mean(row[key] for row in rows):.{digits}f}" if key in rows[0] else ""
            for key, digits in TABLE.values()
        ]
        table.append([f"`{name}`", nodes, longest_s, jobs, len(rows), *means])
    write_bytes(path, csv_of(table))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=script.count, default=64)
    parser.add_argument("--jobs", type=script.count, default=500)
    parser.add_argument(
        "--longest", type=script.count, default=3, help="seconds of the longest job"
    )
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two cycles")
    parser.add_argument("--seeds", type=script.count, default=1)
    parser.add_argument("--dispatchers", nargs="+", default=[OWN, "easy", "best"])
    parser.add_argument("--out", type=Path, default=Path("slurm.jsonl"))
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    if missing():
        raise SystemExit(missing())
    columns = ("dispatcher", "seed", "makespan_s", "wait_s", "slowdown", "cycle_longest_s",
               "cycle_median_s", "releases_per_s", "elsewhere", "retracted", "left")  # fmt: skip
    print(*columns, sep="\t")
    for seed in range(given.seeds):
        jobs = mixed(seed, given.jobs, gpus=4, longest_s=given.longest)
        for name in given.dispatchers:
            row = {"seed": seed, "longest_s": given.longest}
            row |= run(name, given.nodes, jobs, given.every)
            with given.out.open("ab") as file:
                file.write(msgspec.json.encode(row) + b"\n")
            shown = [row.get(name, "-") for name in columns]
            print(*(f"{v:.2f}" if isinstance(v, float) else v for v in shown), sep="\t", flush=True)
    if given.csv is not None:
        write_table(given.out, given.csv)


if __name__ == "__main__":
    script.run(__file__)
