"""Decisions on a standing queue: thousands of jobs wait when a dispatcher meets the cluster.

    python benchmarks/standing.py --write

Jobs come three times as fast as the system can run them, and EASY serves them until so many wait.
Then each dispatcher takes over, in a process of its own: it has met none of these jobs. It makes
ten decisions. A line tells how long the first one took, the longest of the others, how many jobs it
started at first, and the peak memory of the process. ``--write`` puts the rows into
``docs/data/standing.csv``, in place of earlier ones.
"""

from __future__ import annotations

import argparse
import json
import resource
from time import perf_counter

import script
from make_corpus import LARGE, LARGE_MIX, nothing_starts
from results import DATA, merged

from cpdispatch import dispatch
from cpdispatch.files import write_bytes
from cpdispatch.simulator import Simulation
from cpdispatch.system import NAMED
from cpdispatch.workloads.fit import fit
from cpdispatch.workloads.generate import KIT, generate

LIMIT_S = 0.5
LOAD = 3.0
DECISIONS = 10
SELDOM = 50
"""EASY decides at each of so many instants."""
SYSTEMS = {"kit": (NAMED["kit"], KIT), "large": (LARGE, LARGE_MIX)}
QUEUED = 10_000
DISPATCHERS = (
    "easy", "easy-saf-saf:wait=0.6", "best", "easy:depth=1000", "conservative", "hcp", "pcp",
    "pcp:model=boxes", "hyper", "thesis-hcp", "thesis-pcp",
)  # fmt: skip
TABLE = DATA / "standing.csv"


def main() -> None:
    """Print a line for each system and dispatcher."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--queued", type=script.count, default=QUEUED)
    parser.add_argument("--dispatchers", nargs="+", default=DISPATCHERS)
    parser.add_argument("--write", action="store_true", help=f"into {TABLE.name}")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        system, queued, dispatcher = given.one
        print(json.dumps(decisions(system, int(queued), dispatcher)))
        return
    for name in given.dispatchers:
        dispatch.make(name, warm=dispatch.not_at_all)  # raises where there is no such dispatcher
    print(f"limit {LIMIT_S * 1e3:.0f} ms")
    for system in given.systems:
        for dispatcher in given.dispatchers:
            told = script.in_a_process(__file__, system, str(given.queued), dispatcher)
            row = "  ".join(f"{key} {value:,.0f}" for key, value in told.items())
            print(f"{system:6} {dispatcher:22} {row}", flush=True)
            if given.write:
                write(system, dispatcher, told)


def decisions(system: str, queued: int, dispatcher: str) -> dict[str, float]:
    """What a dispatcher's first decisions take on a standing queue."""
    nodes, mix = SYSTEMS[system]
    workload = fit(generate(mix, 2 * queued + 10_000, 1, LOAD, nodes), nodes)
    simulation = Simulation(workload, nodes)
    easy, seen = dispatch.make("easy"), 0
    while (instance := simulation.advance()) is not None and len(instance.queue) < queued:
        seen += 1
        decides = easy.dispatch if seen % SELDOM == 0 else nothing_starts
        simulation.apply(decides(instance))
    made, ms = dispatch.make(dispatcher, dispatch.Settings(LIMIT_S)), []
    starts = 0
    for _ in range(DECISIONS):
        if instance is None:
            break
        began = perf_counter()
        decision = made.dispatch(instance)
        ms.append((perf_counter() - began) * 1e3)
        if len(ms) == 1:
            starts = int((decision.start_s == instance.now).sum())
        simulation.apply(decision)
        instance = simulation.advance()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"first ms": ms[0], "longest ms": max(ms[1:]), "started": starts, "peak MB": peak}


def write(system: str, dispatcher: str, told: dict[str, float]) -> None:
    """Put a row into the table, in place of an earlier one."""
    before = TABLE.read_text() if TABLE.exists() else ""
    row = [system, dispatcher, *(f"{value:.0f}" for value in told.values())]
    text = merged(
        before, ["system", "dispatcher", *told], [row], 2,
        lambda row: (row[0], DISPATCHERS.index(row[1])),
    )  # fmt: skip
    write_bytes(TABLE, text.encode())


if __name__ == "__main__":
    script.run(__file__)
