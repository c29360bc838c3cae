"""How fast the general loop replays real logs, and what it adds around a dispatcher.

Run with the folder of public logs: ``python benchmarks/replay.py ../shared/traces``. Each line is a
whole replay in a process of its own, reading excluded; the first replay of a process warms up.
With ``--accasim PYTHON``, a Python that has AccaSim, the general loop and AccaSim take turns
instead: each replays the first 5,000 jobs of each log under its own EASY, by processor time.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
from pathlib import Path

import script

CASES = (
    ("KTH-SP2-1996-2", "100", "strong"),
    ("CTC-SP2-1996-3.1-cln", "338", "strong"),
    ("HPC2N-2002-2.2-cln", "240", "all"),
    ("HPC2N-2002-2.2-cln", "seth", "all"),
)
DISPATCHERS = ("reject", "fifo", "easy", "easy-saf-saf")


def measure(path: str, system_name: str, filter: str, dispatcher: str) -> tuple[float, ...]:
    """Jobs a second, loop overhead an event and dispatcher time a call in us, peak MB."""
    from cpdispatch.simulator import simulate
    from cpdispatch.workloads import prepare
    from cpdispatch.workloads.select import select

    workload, system = prepare(path, system_name, filter=filter)
    simulate(select(workload, 200), system, dispatcher, compiled=False)
    gc.collect()
    run = simulate(workload, system, dispatcher, compiled=False)
    seconds, jobs = run.about["seconds"], len(workload)
    inside = run.decision_table.column("ms").to_numpy().sum() / 1e3
    events = jobs + run.metrics["jobs"]
    calls = max(run.decision_table.num_rows, 1)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return jobs / seconds, (seconds - inside) / events * 1e6, inside / calls * 1e6, peak_mb


def beside_accasim(traces: Path, python: str, repeat: int) -> None:
    """Print jobs a second of the general loop and of AccaSim: medians, and their quotient."""
    from statistics import median

    from kernels import ACCASIM_JOBS, by_accasim, rate

    from cpdispatch.simulator import simulate
    from cpdispatch.system import find
    from cpdispatch.workloads import read
    from cpdispatch.workloads.fit import fit
    from cpdispatch.workloads.select import select

    print("| log | system | general loop | AccaSim | times |")
    print("|---|---|--:|--:|--:|")
    for log, name, filter in CASES:
        system = find(name)
        workload = fit(read(traces / f"{log}.swf.gz", filter, int(system.total[0])), system)
        first = select(workload, ACCASIM_JOBS)

        def replay(first: object = first, system: object = system) -> None:
            simulate(first, system, "easy", compiled=False)

        replay()
        rates = [
            (rate(len(first), replay), by_accasim(workload, system, python)) for _ in range(repeat)
        ]
        ours, theirs = (median(column) for column in zip(*rates, strict=True))
        cells = f"{ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f}"
        print(f"| {log} | {system.name} | {cells} |", flush=True)


def main() -> None:
    """Print the table of docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=script.folder, help="folder of public logs (.swf.gz)")
    parser.add_argument(
        "--repeat", type=script.count, default=3, help="replays of each; the median counts"
    )
    parser.add_argument("--accasim", metavar="PYTHON", help="a Python that has AccaSim")
    arguments = parser.parse_args()
    if arguments.accasim:
        beside_accasim(arguments.traces, arguments.accasim, arguments.repeat)
        return
    print("| log | system | dispatcher | jobs/s | loop us/event | dispatcher us/call | peak MB |")
    print("|---|---|---|---|---|---|---|")
    context = multiprocessing.get_context("spawn")
    for log, system, filter in CASES:
        path = arguments.traces / f"{log}.swf.gz"
        for dispatcher in DISPATCHERS:
            with context.Pool(1, maxtasksperchild=1) as pool:
                task = [(str(path), system, filter, dispatcher)] * arguments.repeat
                rows = sorted(pool.starmap(measure, task, chunksize=1))
            rate, loop, inside, peak = rows[len(rows) // 2]
            cells = f"{rate:,.0f} | {loop:.1f} | {inside:.1f} | {peak:.0f}"
            print(f"| {log} | {system} | {dispatcher} | {cells} |", flush=True)


if __name__ == "__main__":
    script.run(__file__)
