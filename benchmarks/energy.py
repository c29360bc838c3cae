"""What a cap on the power costs and saves, and what two dispatchers of one's own bring.

    python benchmarks/energy.py LOG --out energy.jsonl    # then docs/tables.py --write

LOG is KTH-SP2-1996-2.swf.gz, on 100 nodes of one processor. Four parts, ten draws of each case:

- ``caps``: the first 8,000 jobs of 60 nodes at most under caps from all that the system can draw
  down to 70 % of it, which leaves room for any of them.
- ``failures``: the first 8,000 jobs on failing nodes, under EASY and ``examples/failure_aware.py``.
- ``hours``: the first 1,000 jobs with a tariff, under the engine and ``examples/cheap_hours.py``.
- ``off``: the first 1,000 jobs under EASY, where idle nodes are switched off after a while, or not.

A line of the file is one replay; what is there is not replayed again. At the end the means go to
``docs/data/energy_caps.csv``, ``energy_failures.csv``, ``energy_hours.csv`` and ``energy_off.csv``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import script
from results import Results, of_one_log, write

from cpdispatch.dispatch import Settings
from cpdispatch.energy import ENERGY_PRICE, Steps
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads.select import select
from cpdispatch.workloads.shake import shaken

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

NODES, CORE_W, IDLE_W = 100, 200, 60
SYSTEM = System(
    "kth", ("core",), (NodeGroup("node", NODES, (1,)),),
    watts={"core": CORE_W}, idle_watts={"node": IDLE_W}, off_watts={"node": 5},
    wake_s={"node": 120},
)  # fmt: skip
WHOLE_W = NODES * (CORE_W + IDLE_W)
PERCENT = (100, 95, 90, 85, 80, 75, 70)
RULES = ("easy", "easy-saf-saf:wait=0.8")
JOBS, ENGINE_JOBS, DRAWS = 8_000, 1_000, 10
WIDEST = 60
FAILURES = "weibull:mtbf=30d,shape={},repair=4h"
SHAPES = (0.5, 0.7, 1.0)
AWARE, THRIFTY = "failure_aware:FailureAware", "cheap_hours:CheapHours"
ENGINE = "hcp:wait=off,limit=0.2"
IDLE_MIN = (0, 10, 60)
"""After how long nodes are switched off; 0 for never."""
KEPT = (
    "bounded_slowdown_mean", "wait_s_mean", "wait_s_max", "energy_kwh", "energy_jobs_kwh",
    "energy_cost", "power_w_max", "near_power_cap_s", "makespan_s", "wasted_share", "requeues",
    "nodes_off_h",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A replay of one draw.

    ``value`` is the percentage of the cap, the shape of failures, or the minutes after which nodes
    are switched off.
    """

    part: str
    value: float
    dispatcher: str
    draw: int


def tariff(first_s: int, last_s: int) -> Steps:
    """0.10 a kilowatt hour at night, 0.40 from 8 to 20 o'clock."""
    hours = [(day * 24 + hour) * 3600 for day in range(last_s // 86_400 + 30) for hour in (8, 20)]
    return Steps(ENERGY_PRICE, (0, *hours), (0.1, *(0.4, 0.1) * (len(hours) // 2)))


def cases() -> Iterator[Case]:
    """All replays."""
    for draw in range(DRAWS):
        for rule in RULES:
            for percent in PERCENT:
                yield Case("caps", percent, rule, draw)
        for dispatcher in ("easy", AWARE):
            for shape in SHAPES:
                yield Case("failures", shape, dispatcher, draw)
        for dispatcher in (ENGINE, THRIFTY):
            yield Case("hours", 0, dispatcher, draw)
        for minutes in IDLE_MIN:
            yield Case("off", minutes, "easy", draw)


def measure(log: Workload, case: Case) -> dict[str, float]:
    """Make one replay, and check it."""
    jobs = shaken(log, case.draw)
    if case.part == "caps":
        jobs = jobs.take((jobs.table.units <= WIDEST).nonzero()[0])
    jobs = select(jobs, ENGINE_JOBS if case.part in ("hours", "off") else JOBS)
    extra: dict[str, Any] = {}
    if case.part == "caps":
        extra["power_cap"] = int(WHOLE_W * case.value / 100)
    elif case.part == "failures":
        extra |= {"events": FAILURES.format(case.value), "data": ["failures"]}
    elif case.part == "off":
        extra["switch_off_s"] = int(60 * case.value) or None
    else:
        times = jobs.table.submit_s
        extra["energy_price"] = tariff(int(times.min()), int(times.max()))
    run = simulate(jobs, SYSTEM, case.dispatcher, settings=Settings(seed=case.draw), **extra)
    if case.part == "caps" and run.metrics["jobs_never_started"]:
        raise SystemExit(f"{case}: not all jobs started")
    if found := run.verify():
        raise SystemExit(f"{case}: {found[0]}")
    return {name: float(run.metrics[name]) for name in KEPT if name in run.metrics}


def tell(done: Results[Case, dict[str, float]]) -> None:
    """Write the means over the draws, and their standard deviations."""
    for part in dict.fromkeys(case.part for case in done):
        groups: dict[tuple[float, str], list[dict[str, float]]] = {}
        for case, figures in done.items():
            if case.part == part:
                groups.setdefault((case.value, case.dispatcher), []).append(figures)
        names = [name for name in KEPT if all(name in one[0] for one in groups.values())]
        names += ["nodes_off_h"] * (part == "off")
        head = ["value", "dispatcher", "draws", *(f"{n}{s}" for n in names for s in ("", "_sd"))]
        rows = []
        for (value, dispatcher), found in sorted(groups.items()):
            columns = [[figures.get(name, 0.0) for figures in found] for name in names]
            spread = [(np.mean(c), np.std(c, ddof=1) if len(c) > 1 else 0.0) for c in columns]
            cells = [f"{number:.6g}" for both in spread for number in both]
            rows.append([f"{value:g}", dispatcher, str(len(found)), *cells])
        write(f"energy_{part}", [head, *rows])


def main() -> None:
    tell(of_one_log("energy", __doc__, SYSTEM, Case, cases(), measure))


if __name__ == "__main__":
    script.run(__file__)
