"""Whole simulations of a heavy load, side by side: decision times and what users feel.

    python benchmarks/heavy.py LOAD.csv.gz
    python benchmarks/heavy.py --generate 20000 --system kit

LOAD.csv.gz has the columns id, submit, dur, exp, nodes, core, gpu, mic, mem, queue, user: runtime,
requested time, units, and the request of a unit. Every row of the table is a run of its own;
nothing else should be running.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from cpdispatch.dispatch import Settings
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import System, find
from cpdispatch.workloads import from_table, prepare
from cpdispatch.workloads.generate import KIT, generate

DISPATCHERS = (
    "easy", "sjf", "pcp:cp=off", "hcp", "pcp", "pcp:model=counts", "pcp:model=boxes", "hyper",
    "thesis-hcp3", "thesis-pcp3",
)  # fmt: skip
"""Queue rules, the engine's own search alone, the engine, plain CP-SAT."""

_NAMES = {"#id": "id", "dur": "runtime", "exp": "requested", "nodes": "units"}


def load(path: Path, system: System) -> Workload:
    """The jobs of a load's file."""
    table = pd.read_csv(path).rename(columns=_NAMES)
    table["id"] = table["id"].astype(str).str.lstrip("J").astype(int)
    return prepare(from_table(table, path.stem), system)[0]


def row(workload: Workload, system: System, dispatcher: str, limit_s: float) -> str:
    """A line of the table."""
    settings = Settings(limit_s=limit_s)
    run = simulate(workload, system, dispatcher, settings=settings)
    ms = run.decision_table.column("ms").to_numpy()
    figures = [ms.mean(), *np.percentile(ms, [50, 95, 99]), ms.max()]
    times = " | ".join(f"{figure:.1f}" for figure in figures)
    felt = run.metrics
    return (
        f"| {dispatcher} | {len(ms):,} | {times} | {felt['bounded_slowdown_mean']:.2f} | "
        f"{felt['wait_s_mean']:,.0f} | {felt['wait_s_max']:,.0f} | {run.about['seconds']:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("load", type=Path, nargs="?")
    parser.add_argument("--system", default="eurora")
    parser.add_argument("--generate", type=int, help="jobs of the KIT generator instead of a load")
    parser.add_argument("--limit", type=float, default=1.0, help="of a decision, seconds")
    parser.add_argument("--dispatchers", nargs="+", default=DISPATCHERS)
    given = parser.parse_args()
    system = find(given.system)
    workload = generate(KIT, given.generate) if given.generate else load(given.load, system)
    print(f"{len(workload):,} jobs on {given.system}, limit {given.limit} s", file=sys.stderr)
    print("| dispatcher | decisions | mean ms | median | 95th | 99th | max | "
          "bounded slowdown | mean wait s | max wait s | run s |")  # fmt: skip
    print("|---" * 11 + "|")
    for dispatcher in given.dispatchers:
        print(row(workload, system, dispatcher, given.limit), flush=True)


if __name__ == "__main__":
    main()
