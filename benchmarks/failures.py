"""A year of failing nodes: what is lost, and whether promises are kept until a node fails.

    python benchmarks/failures.py LOG --out failures.jsonl

LOG is KTH-SP2-1996-2.swf.gz, on 100 nodes of one processor. Each node fails once in 30 days in the
mean. Ten draws of each case: submissions up to a minute later, and other failures.

Each replay is verified. Each job must have ended: by itself, at its requested time, or as failed
after it was queued again five times. Under ``conservative`` no job may start later than it was
first promised, unless a node failed between the promise and the promised start.

A line of the file is one replay; what is there is not replayed again. At the end the means and
standard deviations are printed as CSV.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import script
from results import Results, of_one_log, table_of

from cpdispatch.dispatch import Settings
from cpdispatch.events import FAIL
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads.shake import shaken

SYSTEM = System("kth", ("core",), (NodeGroup("node", 100, (1,)),))
FAILURES = "weibull:mtbf=30d,shape=0.7,repair=4h"
DISPATCHERS = ("easy", "conservative")
DRAWS = 10
KEPT = (
    "node_failures", "requeues", "failed", "wasted_share", "bounded_slowdown_mean", "wait_s_mean",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A replay of one draw."""

    dispatcher: str
    draw: int


def cases() -> Iterator[Case]:
    """All replays."""
    for dispatcher in DISPATCHERS:
        for draw in range(DRAWS):
            yield Case(dispatcher, draw)


def measure(log: Workload, case: Case) -> dict[str, float]:
    """Make one replay, and check it."""
    run = simulate(
        shaken(log, case.draw), SYSTEM, case.dispatcher, kill_at_limit=True, events=FAILURES,
        settings=Settings(seed=case.draw),
    )  # fmt: skip
    if found := run.verify():
        raise SystemExit(f"{case}: {found[0]}")
    if (run.jobs["end"] < 0).any():
        raise SystemExit(f"{case}: not all jobs ended")
    figures = {name: float(run.metrics[name]) for name in KEPT}
    if case.dispatcher == "conservative":
        promised, late, without = promises(run)
        if without:
            raise SystemExit(f"{case}: {without} promises were broken though no node failed")
        figures |= {"promised": promised, "late": late}
    return figures


def promises(run: Run) -> tuple[int, int, int]:
    """How many jobs had a promise, how many started later, and how many of those without a cause.

    A job's start is its first one. The cause is a node that failed between promise and start.
    """
    assert run.promise_table is not None
    assert run.attempt_table is not None
    jobs = run.jobs
    first_s = dict(zip(jobs["id"].tolist(), jobs["start"].tolist(), strict=True))
    for row in run.attempt_table.select(["id", "start"]).to_pylist():
        first_s[row["id"]] = min(first_s[row["id"]], row["start"])
    table = run.promise_table.to_pydict()
    at_s, promised_s = np.array(table["at"]), np.array(table["start"])
    late = np.array([first_s[job] for job in table["id"]]) > promised_s
    failures = np.array([event.time_s for event in run.happened or () if event.kind == FAIL])
    between = np.searchsorted(failures, promised_s, "right") > np.searchsorted(failures, at_s)
    return len(late), int(late.sum()), int((late & ~between).sum())


def show(done: Results[Case, dict[str, float]]) -> None:
    """Print the means over the draws, and their standard deviations."""
    names = [*KEPT, "promised", "late"]
    rows = [["dispatcher", "draws", *(f"{n}{s}" for n in names for s in ("", "_sd"))]]
    for dispatcher in DISPATCHERS:
        found = [figures for case, figures in done.items() if case.dispatcher == dispatcher]
        cells = []
        for name in names:
            values = [figures[name] for figures in found if name in figures]
            spread = (np.mean(values), np.std(values, ddof=1)) if len(values) > 1 else ()
            cells += [f"{number:.6g}" for number in spread] or ["", ""]
        rows.append([dispatcher, str(len(found)), *cells])
    print(table_of(rows), end="")


def main() -> None:
    show(of_one_log("failures", __doc__, SYSTEM, Case, cases(), measure))


if __name__ == "__main__":
    script.run(__file__)
