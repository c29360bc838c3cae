"""Compiled replays of a log whose jobs are kept to partitions, and of one with limits as well.

    python benchmarks/partitions.py ../shared/traces/KTH-SP2-1996-2.1-cln.swf.gz --nodes 100
    python benchmarks/partitions.py ../shared/traces --sites

Each job is given one of three partitions, by a seed: all nodes, the lower half, the upper half.
Jobs wider than half of the widest get all nodes. With limits, a user has 16 jobs and a quarter of
the processors at most, a partition three quarters, but never less than the widest job asks for.
Jobs a second of processor time, best of three.

With `--sites`, RICC and Gaia with its GPUs are replayed once each with partitions and limits, and
openb with types of GPUs, drawn by a seed. The schedules are verified.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import script

from cpdispatch import access, verify
from cpdispatch.jobs import ANYWHERE, Access, Column, JobTable, Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import Limit, NodeGroup, Partition, System
from cpdispatch.workloads import column_map, prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--nodes", type=script.count, help="how many nodes of one processor")
    parser.add_argument("--system", help="a system by name, where there are no --nodes")
    parser.add_argument("-d", action="append", default=None)
    parser.add_argument("--sites", action="store_true", help="the log is a folder: all three sites")
    given = parser.parse_args()
    if given.sites:
        for name, workload, machine in sites(given.log):
            for dispatcher in given.d or ["easy", "easy-saf-saf"]:
                replay(name, workload, machine, dispatcher)
        return
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


def sites(traces: Path) -> Iterator[tuple[str, Workload, System]]:
    """Three sites with partitions, limits, or types of GPUs."""
    logs = {"ricc": "RICC-2010-2.swf.gz", "gaia-gpu": "UniLu-Gaia-2014-1.swf.gz"}
    for name, log in logs.items():
        plain = prepare(traces / log, name)
        parts = replace(plain[1], partitions=halves(plain[1].nodes))
        workload, system = access.keep(partitioned(plain[0]), parts)
        yield name, workload, replace(system, limits=limits(*plain))
    pods, nodes = "openb_pod_list_default.csv.gz", "openb_node_list_all_node.csv.gz"
    found = column_map.read(traces / pods, "openb", traces / nodes)
    yield "openb", *prepare(typed(found.workload, found.system), found.system)


def typed(workload: Workload, system: System) -> Workload:
    """The same pods, a third of those that ask for GPUs kept to a type that has room for them."""
    asked = np.stack([workload.table.request[:, k] for k in order_of(workload, system)], axis=1)
    wishes, of = [ANYWHERE], np.zeros(len(workload), dtype=np.int64)
    draw = np.random.default_rng(1)
    gpu = system.resource("gpu_milli")
    for job in (asked[:, gpu] > 0).nonzero()[0].tolist():
        fits = [g for g in system.groups if g.features and (asked[job] <= g.capacity).all()]
        if not fits or draw.random() > 1 / 3:
            continue
        wish = Access(features=fits[draw.integers(len(fits))].features[0])
        wishes += [wish] * (wish not in wishes)
        of[job] = wishes.index(wish)
    return replace(workload, access=tuple(wishes), access_of=of)


def order_of(workload: Workload, system: System) -> list[int]:
    """The columns of the workload's requests in the order of the system's resource types."""
    return [workload.resources.index(name) for name in system.resources]


def replay(name: str, workload: Workload, system: System, dispatcher: str) -> None:
    """Replay a site once, verify the schedule, and say what came of it."""
    begin_s = time.process_time()
    run = simulate(workload, system, dispatcher)
    took_s = time.process_time() - begin_s
    wrong = verify.run(run.jobs, run.system)
    reasons = run.jobs["reason"].value_counts().to_dict()
    told = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    print(
        f"{name}, {dispatcher}: {len(workload):,} jobs, {', '.join(system.resources)}; {told}; "
        f"{len(workload) / took_s:,.0f} jobs/s; {len(wrong)} violations", flush=True,
    )  # fmt: skip
    if wrong:
        raise SystemExit(str(wrong[0]))


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
    script.run(__file__)
