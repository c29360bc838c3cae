"""How fast whole replays are: compiled, by the general loop, in plain Python, by AccaSim.

    python benchmarks/kernels.py ../shared/traces
    python benchmarks/kernels.py ../shared/traces --tests   # what test runs cost on nodes

Loops only: reading and compiling are excluded. Slow ones replay the first jobs of a log only, and
their rate is over those. AccaSim runs in a process of its own, with its EASY and first fit; give
--accasim the Python that has it. Nothing else should be running.
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
import script

from cpdispatch import dispatch
from cpdispatch.compiled import Replays
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.jobs import Column, Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import NodeGroup, System, find
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import MIXES, generate
from cpdispatch.workloads.restarts import mark
from cpdispatch.workloads.select import select

sys.path.append(str(Path(__file__).resolve().parent.parent))

RICC = System("ricc", ("core", "mem"), (NodeGroup("ricc", 1024, (8, 12 * 1024)),), 1024)
STATIC = ("easy", "easy-fcfs-spf", "easy-saf-saf", "fifo")
CHANGING = ("easy-lexp-lexp", "easy-wfp3-wfp3")
WAYS = ("left", "backfill", "turn", "first")
TESTS = ("easy:test=120", "easy:test=120,tests=turn")
CASES = (
    ("KTH-SP2-1996-2", find("100"), "strong", (*STATIC, *CHANGING, *TESTS)),
    ("CTC-SP2-1996-3.1-cln", find("338"), "strong", (*STATIC, *CHANGING, *TESTS)),
    ("HPC2N-2002-2.2-cln", find("seth"), "all", (*STATIC, *CHANGING)),
    ("RICC-2010-2", RICC, "all", ("easy", "easy-saf-saf")),
)
LOADS, LOAD_JOBS, LOG_JOBS = ("eurora", "kit"), 20_000, 50_000
GENERAL_JOBS, PLAIN_JOBS, TWIN_JOBS, ACCASIM_JOBS = 10_000, 10_000, 1_000, 5_000


def rate(jobs: int, replay: Callable[[], object], repeat: int = 1) -> float:
    """Jobs a second of processor time, of the fastest of some replays."""
    times = []
    for _ in range(repeat):
        began = process_time()
        replay()
        times.append(process_time() - began)
    return jobs / min(times)


def compiled(workload: Workload, system: System, spec: str) -> float:
    prepared, made = Replays(workload, system), dispatch.make(spec)
    assert isinstance(made, Backfill)
    prepared.starts(made)
    return rate(len(workload), lambda: prepared.starts(made), repeat=5)


def general(workload: Workload, system: System, spec: str) -> float:
    first = select(workload, GENERAL_JOBS)
    simulate(select(workload, 200), system, spec, compiled=False)
    return rate(len(first), lambda: simulate(first, system, spec, compiled=False), repeat=3)


def by_hand(workload: Workload, system: System) -> float:
    first, processors = select(workload, PLAIN_JOBS), int(system.total[0])
    return rate(len(first), lambda: plain_easy(first, processors))


def plain_easy(workload: Workload, processors: int) -> None:
    """EASY on a pool as simulators in plain Python have it: lists, a heap, one job at a time."""
    table = workload.table
    jobs = list(zip(table.submit_s.tolist(), table.units.tolist(), table.requested_s.tolist(),
                    workload.runtime_s.tolist(), strict=True))  # fmt: skip
    queue: list[tuple[int, int, int, int]] = []
    running: list[tuple[int, int]] = []
    ends: list[tuple[int, int, int]] = []
    free, at, started = processors, 0, 0

    def start(job: tuple[int, int, int, int], now: int) -> None:
        nonlocal free, started
        free -= job[1]
        started += 1
        running.append((now + job[2], job[1]))
        heapq.heappush(ends, (now + job[3], started, job[1]))
        due[started] = (now + job[2], job[1])

    due: dict[int, tuple[int, int]] = {}
    while at < len(jobs) or ends:
        now = min(jobs[at][0] if at < len(jobs) else ends[0][0], ends[0][0] if ends else 1 << 62)
        while ends and ends[0][0] == now:
            _, serial, processors_back = heapq.heappop(ends)
            free += processors_back
            running.remove(due.pop(serial))
        while at < len(jobs) and jobs[at][0] == now:
            queue.append(jobs[at])
            at += 1
        while queue and queue[0][1] <= free:
            start(queue.pop(0), now)
        if not queue:
            continue
        have, shadow, extra = free, now, 0
        for end, back in sorted(running):
            shadow = end
            have += back
            if have >= queue[0][1]:
                extra = have - queue[0][1]
                break
        for job in queue[1:]:
            outlives = now + job[2] > shadow
            if job[1] <= free and (not outlives or job[1] <= extra):
                extra -= job[1] if outlives else 0
                start(job, now)
                queue.remove(job)


def twin(workload: Workload, system: System) -> float:
    from tests.oracles import plain

    first = select(workload, TWIN_JOBS)
    expected = first.table.requested_s.tolist()
    return rate(len(first), lambda: plain.replay(first, system, plain.Rules(), expected))


ACCASIM = """
import json, sys, time
from pathlib import Path
from tests.adapters import inside
from cpdispatch.adapters import accasim
schedulers = accasim.imported("base.scheduler_class")
allocators = accasim.imported("base.allocator_class")
made = schedulers.EASYBackfilling(allocators.FirstFit())
accasim.scheduler = lambda *arguments: made
case = json.loads(Path(sys.argv[1]).read_text())
began = time.process_time()
inside.play(case, Path(sys.argv[1]).parent)
print(time.process_time() - began)
"""


def by_accasim(workload: Workload, system: System, python: str) -> float:
    """Jobs a second of AccaSim's own EASY, reading from memory, nothing written.

    It divides by zero where a job asks for none of a resource type: those types are left out.
    """
    first = select(workload, ACCASIM_JOBS)
    (group,), table = system.groups, first.table
    asked = (table.request > 0).all(axis=0)
    kinds = [kind if asks else "" for kind, asks in zip(system.resources, asked, strict=True)]
    jobs = [
        {
            "job_id": str(k), "queued_time": int(table.submit_s[k]),
            "duration": int(first.runtime_s[k]), "expected_duration": int(table.requested_s[k]),
            "requested_nodes": int(table.units[k]), "queue": "all",
            "requested_resources": {
                kind: int(table.block[Column.REQUEST + r, k])
                for r, kind in enumerate(kinds) if kind
            },
        }
        for k in range(len(first))
    ]  # fmt: skip
    capacity = {kind: c for kind, c in zip(kinds, group.capacity, strict=True) if kind}
    case = {"system": {"groups": {"g": capacity}, "resources": {"g": group.nodes}}, "jobs": jobs,
            "dispatcher": "easy", "limit_s": 1.0}  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(case))
        done = subprocess.run(
            [python, "-c", ACCASIM, str(path)], capture_output=True, text=True, check=False,
            cwd=Path(__file__).resolve().parent.parent,
        )  # fmt: skip
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return float("nan")
    return len(jobs) / float(done.stdout.split()[-1])


def all_pairs(workload: Workload, system: System) -> float:
    """Seconds of a workload under all 144 pairs of the twelve orders."""
    prepared = Replays(workload, system)
    names = ["fcfs", "lcfs", "spf", "lpf", "sqf", "lqf", "saf", "laf", "lexp", "sexp", "srf", "lrf"]
    made = [dispatch.make(f"easy-{first}-{second}") for first in names for second in names]
    began = perf_counter()
    for dispatcher in made:
        assert isinstance(dispatcher, Backfill)
        prepared.starts(dispatcher)
    return perf_counter() - began


def on_nodes(traces: Path) -> Iterator[tuple[str, System, Workload]]:
    """Loads and logs on nodes with several resources."""
    for name in LOADS:
        system = find(name)
        yield f"generated {name}", system, generate(MIXES[name], LOAD_JOBS, 1, system=system)
    for log, system, filter, _ in CASES[2:]:
        workload, _ = prepare(traces / f"{log}.swf.gz", system, filter=filter)
        yield log, system, select(workload, LOG_JOBS)


def print_tests(traces: Path) -> None:
    """Print the seconds of replays with test runs over those without, every way in turn."""
    print(f"| log | system | jobs/s without tests | {' | '.join(WAYS)} |")
    print("|---|---|--:|" + "--:|" * len(WAYS))
    for log, system, workload in on_nodes(traces):
        restartable = mark(workload, 1.0, 0)
        without = compiled(workload, system, "easy")
        rates = [compiled(restartable, system, f"{TESTS[0]},tests={way}") for way in WAYS]
        shown = [f"{without / rate:.1f}" for rate in rates]
        print(f"| {log} | {system.name} | {without:,.0f} | {' | '.join(shown)} |", flush=True)


def main() -> None:
    """Print the tables of docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=script.folder, help="folder of public logs (.swf.gz)")
    parser.add_argument("--accasim", default="", metavar="PYTHON", help="a Python that has AccaSim")
    parser.add_argument("--tests", action="store_true", help="what test runs cost on nodes")
    given = parser.parse_args()
    if given.tests:
        print_tests(given.traces)
        return
    print("| log | system | dispatcher | compiled | general loop | plain EASY | twin | AccaSim |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    for log, system, filter, specs in CASES:
        path = given.traces / f"{log}.swf.gz"
        workload, _ = prepare(path, system, filter=filter)
        restartable, _ = prepare(path, system, filter=filter, restartable="all")
        for spec in specs:
            jobs = restartable if spec in TESTS else workload
            cells = [compiled(jobs, system, spec), general(jobs, system, spec)]
            if spec == "easy":
                on_pool = system.nodes == 1
                cells.append(by_hand(workload, system) if on_pool else float("nan"))
                cells.append(twin(workload, system) if system.nodes < 200 else float("nan"))
                if given.accasim:
                    cells.append(by_accasim(workload, system, given.accasim))
            shown = ["-" if np.isnan(cell) else f"{cell:,.0f}" for cell in cells]
            shown += ["-"] * (5 - len(shown))
            print(f"| {log} | {system.name} | {spec} | {' | '.join(shown)} |", flush=True)
        if log.startswith("KTH"):
            year = select(workload, int((workload.table.submit_s < 365 * 86_400).sum()))
            print(f"{len(year):,} jobs of a year of KTH, all 144 pairs: "
                  f"{all_pairs(year, system):.1f} s", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    script.run(__file__)
