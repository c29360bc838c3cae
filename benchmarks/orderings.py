"""The published orderings of queue policies: sums of weekly mean bounded slowdowns.

    python benchmarks/orderings.py ../shared/traces docs/data/learning_orderings.csv

Zrigui's thesis, tables 5.2 to 5.5: each week of a log is simulated from an empty system under
EASY with the same order of the queue and of backfilling, without jobs that cross its end.
Three readings of that are shown, since the text leaves it open: jobs whose real schedule in
the log crosses the week's end are left out of the week, or out of the mean only, or
none is. The figures are sums over the weeks. Those of the whole log in one piece, with a threshold
of 200,000 s, are means over the jobs.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from cpdispatch import dispatch
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.compiled import Replays
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.jobs import Workload
from cpdispatch.system import System
from cpdispatch.workloads import prepare

LOGS = (
    ("SDSC-BLUE-2000-4.1-cln", 1152, 100),
    ("KTH-SP2-1996-2", 100, 45),
    ("CTC-SP2-1996-3.1-cln", 338, 45),
)
POLICIES = ("saf", "spf", "lexp", "sqf", "fcfs", "laf")
READINGS = ("left out", "not counted", "counted")
WEEK_S, TAU_S = 7 * 86_400, 10
THRESHOLDS = {"none": "", "2.31 d": ":threshold=199584", "20 h": ":threshold=72000"}


def bounded_slowdown(workload: Workload, start_s: IntArray) -> np.ndarray:  # type: ignore[type-arg]
    wait = start_s - workload.table.submit_s
    runtime = workload.runtime_s
    return np.maximum(1.0, (wait + runtime) / np.maximum(runtime, TAU_S))


def weeks_of(workload: Workload, count: int) -> list[tuple[Workload, BoolArray]]:
    """Each week's jobs, and which of them end in the week if they start at once."""
    submit = workload.table.submit_s
    found = []
    for week in range(count):
        inside = np.flatnonzero(submit // WEEK_S == week)
        if len(inside):
            jobs = workload.take(inside)
            ends = jobs.table.submit_s + jobs.runtime_s
            found.append((jobs, ends <= (week + 1) * WEEK_S))
    return found


def dispatcher(policy: str, threshold: str) -> Backfill:
    made = dispatch.make(f"easy-{policy}-{policy}{threshold}")
    assert isinstance(made, Backfill)
    return made


def sums(workload: Workload, system: System, count: int, policy: str) -> list[list[float]]:
    """Sums over the weeks by reading, then by threshold."""
    totals = np.zeros((3, len(THRESHOLDS)))
    for jobs, complete in weeks_of(workload, count):
        whole, short = Replays(jobs, system), None
        if complete.any():
            kept = jobs.take(np.flatnonzero(complete))
            short = kept, Replays(kept, system)
        for column, threshold in enumerate(THRESHOLDS.values()):
            made = dispatcher(policy, threshold)
            slowdown = bounded_slowdown(jobs, whole.starts(made))
            totals[2, column] += slowdown.mean()
            if short is not None:
                totals[0, column] += bounded_slowdown(short[0], short[1].starts(made)).mean()
                totals[1, column] += slowdown[complete].mean()
    return [row.tolist() for row in totals]


def main() -> None:
    """Write a row for each log, policy, reading and threshold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, help="folder of public logs (.swf.gz)")
    parser.add_argument("out", type=Path, help="the CSV file")
    given = parser.parse_args()
    rows: list[list[str]] = []
    for log, processors, count in LOGS:
        path = given.traces / f"{log}.swf.gz"
        workload, system = prepare(path, System.pool(processors), filter="strong")
        whole = Replays(workload, system)
        for policy in POLICIES:
            found = sums(workload, system, count, policy)
            for reading, values in zip(READINGS, found, strict=True):
                for threshold, value in zip(THRESHOLDS, values, strict=True):
                    rows.append([log, policy, reading, threshold, f"{value:.0f}"])
            start_s = whole.starts(dispatcher(policy, ":threshold=200000"))
            mean = bounded_slowdown(workload, start_s).mean()
            rows.append([log, policy, "whole log", "2.31 d", f"{mean:.1f}"])
            print(log, policy, flush=True)
    with given.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["log", "policy", "reading", "threshold", "bounded_slowdown"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
