"""The first decisions right after installation: with no compiled kernels in the cache.

    python benchmarks/first_decision.py --ways loop,simulate,solve,adapter --dispatchers hcp,best

Each dispatcher is asked in a new process with an empty cache of kernels: in a loop of one's own,
by `simulate`, by `solve`, and by AccaSim's loop. A line tells how long making it took, the first
decision, and the longest of all. The decisions should be within the limit.

``--write`` puts the rows into ``docs/data/first_decision.csv``, in place of earlier ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import script
from results import DATA, merged

from cpdispatch.files import write_bytes

LIMIT_S = 0.2
INSTANCE = Path(__file__).parents[1] / "instances" / "eurora-loaded-0010-01.json.gz"
MORE = ("pcp:model=counts", "pcp:model=boxes", "easy:test=120", "hcp:test=120")
"""What is asked beside every name by itself."""
WAYS = ("loop", "simulate", "solve", "adapter")
TABLE = DATA / "first_decision.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--dispatchers", help="default: all")
    parser.add_argument("--write", action="store_true", help=f"into {TABLE.name}")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        way, dispatcher = given.one
        asked = {"loop": loop, "simulate": replay, "solve": solve, "adapter": adapter}[way]
        print(json.dumps(asked(dispatcher)))
        return
    from cpdispatch.dispatch import REGISTRY, make, not_at_all
    from cpdispatch.errors import unknown

    names = given.dispatchers.split(",") if given.dispatchers else [*sorted(REGISTRY), *MORE]
    for name in names:
        make(name, warm=not_at_all)  # raises where there is no such dispatcher
    for way in given.ways.split(","):
        if way not in WAYS:
            raise unknown("way", way, WAYS)
    print(f"limit {LIMIT_S * 1e3:.0f} ms; each row with an empty cache of kernels")
    for dispatcher in names:
        for way in given.ways.split(","):
            if way == "adapter" and "test=" in dispatcher:
                continue  # AccaSim cannot kill a job and queue it again
            with tempfile.TemporaryDirectory() as cache:
                told = script.in_a_process(__file__, way, dispatcher, NUMBA_CACHE_DIR=cache)
            row = "  ".join(f"{key} {value:,.1f}" for key, value in told.items())
            print(f"{dispatcher:14} {way:9} {row}", flush=True)
            if given.write:
                write(dispatcher, way, told)


def write(dispatcher: str, way: str, told: dict[str, float]) -> None:
    """Put a row into the table, in place of an earlier one."""
    before = TABLE.read_text() if TABLE.exists() else ""
    row = [dispatcher, way, *(f"{value:.1f}" for value in told.values())]
    text = merged(
        before, ["dispatcher", "way", *told], [row], 2,
        lambda row: (row[0], WAYS.index(row[1])),
    )  # fmt: skip
    write_bytes(TABLE, text.encode())


def loop(dispatcher: str) -> dict[str, float]:
    """A loop of the user's own over 300 jobs."""
    from cpdispatch import dispatch
    from cpdispatch.simulator import Simulation

    began = perf_counter()
    made = dispatch.make(dispatcher, dispatch.Settings(LIMIT_S))
    make_s = perf_counter() - began
    simulation, ms = Simulation(*load()), []
    while (instance := simulation.advance()) is not None:
        began = perf_counter()
        decision = made.dispatch(instance)
        ms.append((perf_counter() - began) * 1e3)
        simulation.apply(decision)
    return {"make s": make_s, "first ms": ms[0], "longest ms": max(ms)}


def replay(dispatcher: str) -> dict[str, float]:
    """The same load by `simulate`, in the general loop, which times each decision."""
    from cpdispatch import dispatch
    from cpdispatch.simulator import simulate

    began = perf_counter()
    settings = dispatch.Settings(LIMIT_S)
    run = simulate(*load(), dispatcher, predictor="walltime", settings=settings, compiled=False)
    ms = run.decisions["ms"]
    make_s = perf_counter() - began - run.about["seconds"]
    return {"make s": make_s, "first ms": ms.iloc[0], "longest ms": ms.max()}


def solve(dispatcher: str) -> dict[str, float]:
    """One instance by the command."""
    began = perf_counter()
    limit = f"{LIMIT_S}s"
    command = [sys.executable, "-m", "cpdispatch", "solve", str(INSTANCE), "--json"]
    done = subprocess.run(
        [*command, "--limit", limit, "--model", dispatcher],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    ms = json.loads(done.stdout)["solutions"][0]["wall_ms"]
    return {"make s": perf_counter() - began - ms / 1e3, "first ms": ms, "longest ms": ms}


def adapter(dispatcher: str) -> dict[str, float]:
    """The same load in AccaSim's loop, which is in a process of its own: it can run only one."""
    sys.path.append(str(Path(__file__).parents[1]))
    from cpdispatch import dispatch
    from tests.adapters.inside import play
    from tests.adapters.test_accasim import case

    began = perf_counter()
    made = dispatch.make(dispatcher, dispatch.Settings(LIMIT_S))
    make_s = perf_counter() - began
    timed = Timed(made)
    with tempfile.TemporaryDirectory() as folder:
        play(case(*load(), dispatcher) | {"dispatcher": timed}, Path(folder))
    return {"make s": make_s, "first ms": timed.ms[0], "longest ms": max(timed.ms)}


class Timed:
    """A dispatcher whose decisions are timed."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name = inner, inner.name
        self.ms: list[float] = []

    def dispatch(self, instance: Any) -> Any:
        """Decide as the inner one does."""
        began = perf_counter()
        decision = self.inner.dispatch(instance)
        self.ms.append((perf_counter() - began) * 1e3)
        return decision


def load() -> Any:
    """300 jobs on eurora, more than it can take, and the system."""
    from cpdispatch.system import NAMED
    from cpdispatch.workloads.fit import fit
    from cpdispatch.workloads.generate import EURORA, generate

    system = NAMED["eurora"]
    return fit(generate(EURORA, 300, 1, 2.0), system), system


if __name__ == "__main__":
    script.run(__file__)
