"""The published orders of queue and backfilling: mean waits, sums of weekly bounded slowdowns.

    python benchmarks/orderings.py ../shared/traces                     # prints what is published
    python benchmarks/orderings.py ../shared/traces --write docs/data   # writes the CSV files

Whole logs are those of Lelong, Reis, Trystram, JSSPP 2017. Weeks are those of Zrigui's thesis,
tables 5.2 to 5.5: each week of a log is simulated from an empty system under EASY, without jobs
that cross its end. Two things are open. One is which jobs these are, so there are three readings:
jobs that would end after the week if they started at their submissions are left out of it, or are
not counted in its mean, or are counted. The other is tau of the bounded slowdown.

The published values are in docs/data/orderings_published.csv. The files that ``--write`` makes
hold what the command has run. ``python docs/tables.py --write`` makes the tables of the page.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import script
from results import DATA, table_of

from cpdispatch import dispatch
from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.compiled import Replays
from cpdispatch.files import write_bytes
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.jobs import Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from cpdispatch.workloads import prepare

POLICIES = (
    "fcfs", "lcfs", "spf", "lpf", "sqf", "lqf", "saf", "laf", "lexp", "sexp", "srf", "lrf",
)  # fmt: skip
SAME = "same"
"""Backfilling in the order of the queue."""
WEEK_S = 7 * 86_400
TAUS_S = (10, 60)
WEEKS_S, WHOLE_S = (0, 199_584, 72_000), (0, 200_000)
"""Thresholds: none is 0; those of weeks are none, 2.31 days, 20 h."""
READINGS = ("left_out", "not_counted", "counted")
WAIT, SUM = "wait_s_mean", "weekly_slowdowns"
KEY = ("log", "filter", "primary", "backfill", "threshold_s")
WEEKS = (*KEY, "tau_s", *READINGS, "published")
WHOLE = (*KEY, "trigger", "wait_s_mean", "bounded_slowdown", "published_wait_s_mean")


@dataclass(frozen=True, slots=True)
class Log:
    """A log, the processors of its machine, and how many of its weeks were published."""

    name: str
    processors: int
    weeks: int


LOGS = (
    Log("KTH-SP2-1996-2", 100, 45),
    Log("CTC-SP2-1996-3.1-cln", 338, 45),
    Log("SDSC-BLUE-2000-4.1-cln", 1152, 100),
)


def published() -> dict[tuple[str, ...], str]:
    """Published values by measure, log, primary order, order of backfilling and threshold."""
    with (DATA / "orderings_published.csv").open(newline="") as stream:
        return {
            (r["measure"], r["log"], r["primary"], r["backfill"], r["threshold_s"]): r["value"]
            for r in csv.DictReader(stream)
        }


def bounded_slowdown(jobs: Workload, start_s: IntArray, tau_s: int) -> FloatArray:
    """The bounded slowdown of each job, shape (jobs,)."""
    flow_s = start_s - jobs.table.submit_s + jobs.runtime_s
    found: FloatArray = np.maximum(1.0, flow_s / np.maximum(jobs.runtime_s, tau_s))
    return found


class Week:
    """The jobs of a week, and those of them that end in it when they start at once."""

    def __init__(self, jobs: Workload, end_s: int, system: System) -> None:
        self.jobs, self.system = jobs, system
        self.ends: BoolArray = jobs.table.submit_s + jobs.runtime_s <= end_s

    @cached_property
    def every(self) -> Replays:
        return Replays(self.jobs, self.system)

    @cached_property
    def ending(self) -> Replays:
        return Replays(self.jobs.take(np.flatnonzero(self.ends)), self.system)

    def means(self, dispatcher: Backfill) -> FloatArray:
        """Mean bounded slowdown by tau and reading, shape (taus, readings)."""
        start_s = self.every.starts(dispatcher)
        ending = self.ending.workload
        ending_s = self.ending.starts(dispatcher)
        found = np.empty((len(TAUS_S), len(READINGS)))
        for row, tau_s in enumerate(TAUS_S):
            slowdown = bounded_slowdown(self.jobs, start_s, tau_s)
            left_out = bounded_slowdown(ending, ending_s, tau_s)
            found[row] = left_out.mean(), slowdown[self.ends].mean(), slowdown.mean()
        return found


def weeks_of(workload: Workload, count: int, system: System) -> list[Week]:
    """Those of the first so many weeks that have jobs which end in them."""
    number = workload.table.submit_s // WEEK_S
    found = [
        Week(workload.take(np.flatnonzero(number == week)), (week + 1) * WEEK_S, system)
        for week in np.unique(number[number < count]).tolist()
    ]
    return [week for week in found if week.ends.any()]


def dispatcher(primary: str, backfill: str, threshold_s: int) -> Backfill:
    """EASY with two orders."""
    threshold = f":threshold={threshold_s}" if threshold_s else ""
    made = dispatch.make(f"easy-{primary}-{backfill}{threshold}", warm=lambda made: ())
    assert isinstance(made, Backfill)
    return made


Pairs = Sequence[tuple[str, str]]


def of_weeks(
    log: Log, filter: str, workload: Workload, system: System, pairs: Pairs
) -> Iterator[list[str]]:
    """Rows of `WEEKS`; the published value is with SPF as the second queue, whatever ours is."""
    known = published()
    weeks = weeks_of(workload, log.weeks, system)
    for primary, backfill in pairs:
        for threshold_s in WEEKS_S:
            made = dispatcher(primary, backfill, threshold_s)
            sums = sum((week.means(made) for week in weeks), start=np.zeros(()))
            value = known.get((SUM, log.name, primary, "spf", str(threshold_s)), "")
            for tau_s, row in zip(TAUS_S, sums.tolist(), strict=True):
                key = (log.name, filter, primary, backfill, str(threshold_s))
                yield [*key, str(tau_s), *(f"{each:.1f}" for each in row), value]


def of_whole_logs(
    log: Log, filter: str, workload: Workload, system: System, pairs: Pairs
) -> Iterator[list[str]]:
    """Rows of `WHOLE`; one dispatch after each event only where a value is published."""
    known = published()
    replays = Replays(workload, system)
    for primary, backfill in pairs:
        for threshold_s in WHOLE_S:
            made = dispatcher(primary, backfill, threshold_s)
            value = known.get((WAIT, log.name, primary, backfill, str(threshold_s)), "")
            found = {"instant": replays.starts(made)}
            if value:
                table = simulate(workload, system, made, trigger="event").job_table
                found["event"] = table.column("start").to_numpy()
            for trigger, start_s in found.items():
                wait_s = (start_s - workload.table.submit_s).mean()
                mean = bounded_slowdown(workload, start_s, 10).mean()
                key = (log.name, filter, primary, backfill, str(threshold_s))
                yield [*key, trigger, f"{wait_s:.0f}", f"{mean:.1f}", value]


Measure = Callable[[Log, str, Workload, System, Pairs], Iterator[list[str]]]
FILES: dict[str, tuple[tuple[str, ...], Measure]] = {
    "orderings_weeks": (WEEKS, of_weeks),
    "orderings_whole": (WHOLE, of_whole_logs),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; write the CSV files, or print the rows with a published value."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=script.folder, help="folder of public logs (.swf.gz)")
    parser.add_argument("--logs", nargs="+", default=[""], help="those that begin like this")
    parser.add_argument("--primary", nargs="+", choices=POLICIES, default=POLICIES)
    parser.add_argument("--backfill", nargs="+", choices=(*POLICIES, SAME), default=("spf", SAME))
    parser.add_argument(
        "--filter", nargs="+", choices=("strong", "drop"), default=("drop", "strong")
    )
    parser.add_argument("--write", type=Path, help="folder of the CSV files")
    given = parser.parse_args(arguments)
    pairs = list(dict.fromkeys(
        (primary, primary if second == SAME else second)
        for second in given.backfill for primary in given.primary
    ))  # fmt: skip
    found: dict[str, list[list[str]]] = {name: [] for name in FILES}
    for log in LOGS:
        path = given.traces / f"{log.name}.swf.gz"
        if not log.name.startswith(tuple(given.logs)):
            continue
        for filter in given.filter:
            workload, system = prepare(path, System.pool(log.processors), filter=filter)
            for name, (_, measure) in FILES.items():
                found[name] += measure(log, filter, workload, system, pairs)
    for name, (head, _) in FILES.items():
        rows = found[name]
        if given.write is None:
            rows = [row for row in rows if row[-1]]
        text = table_of([head, *rows])
        if given.write is None:
            print(text)
        else:
            write_bytes(given.write / f"{name}.csv", text.encode())
    return 0


if __name__ == "__main__":
    script.run(__file__)
