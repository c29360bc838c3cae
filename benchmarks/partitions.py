"""Compiled replays of a log whose jobs are kept to partitions, and of one with limits as well.

    python benchmarks/partitions.py ../shared/traces/KTH-SP2-1996-2.1-cln.swf.gz --nodes 100

Each job is given one of three partitions, by a seed: all nodes, the lower half, the upper half.
Jobs wider than half of the widest get all nodes. With limits, a user has 16 jobs and a quarter of
the processors at most, a partition three quarters, but never less than the widest job asks for.
Jobs a second of processor time, best of three.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from cpdispatch import access, verify
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import Limit, NodeGroup, Partition, System
from cpdispatch.workloads import prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--nodes", type=int, help="how many nodes of one processor")
    parser.add_argument("--system", help="a system by name, where there are no --nodes")
    parser.add_argument("-d", action="append", default=None)
    given = parser.parse_args()
    system: System | str | None = given.system
    if given.nodes:
        system = System("nodes", ("core",), (NodeGroup("node", given.nodes, (1,)),))
    plain = prepare(given.log, system)
    parts = replace(plain[1], partitions=halves(plain[1].nodes))
    kept = access.keep(partitioned(plain[0]), parts)
    limited = kept[0], replace(kept[1], limits=limits(*plain))
    for name in given.d or ["easy", "easy-saf-saf"]:
        free, within, less = (rate(*each, name) for each in (plain, kept, limited))
        print(
            f"{name}: {free:,.0f} jobs/s, with partitions {within:,.0f}, "
            f"with partitions and limits {less:,.0f}"
        )


def halves(nodes: int) -> tuple[Partition, ...]:
    """All nodes, the lower half of them, the upper half."""
    every, half = tuple(range(nodes)), nodes // 2
    return (
        Partition("all", every), Partition("low", every[:half]), Partition("high", every[half:])
    )  # fmt: skip


def partitioned(workload: Workload) -> Workload:
    """The same jobs, each of a partition."""
    wide = workload.table.units > int(workload.table.units.max()) // 2
    drawn = np.random.default_rng(1).integers(0, 3, len(workload))
    columns = list(workload.table.columns)
    columns[Column.PARTITION] = np.where(wide, 0, drawn)
    labels = {**workload.table.labels, "partition": ("all", "low", "high")}
    return replace(workload, table=JobTable(columns, labels))


def limits(workload: Workload, system: System) -> tuple[Limit, ...]:
    """Limits of each user and partition that bind, but let every job run."""
    resource, processors = system.resources[0], int(system.total[0])
    widest = int((workload.table.units * workload.table.column(Column.REQUEST)).max())
    return (
        Limit(16, per="user"),
        Limit(max(processors // 4, widest), resource, "user"),
        Limit(max(3 * processors // 4, widest), resource, "partition"),
    )


def rate(workload: Workload, system: System, name: str) -> float:
    """Jobs a second of processor time; the schedule is verified."""
    least_s = float("inf")
    for _ in range(3):
        begin_s = time.process_time()
        run = simulate(workload, system, name)
        least_s = min(least_s, time.process_time() - begin_s)
    if verify.run(run.jobs, run.system):
        raise SystemExit(f"{name}: the schedule is not feasible")
    return len(workload) / least_s


if __name__ == "__main__":
    main()
