"""What test runs bring and cost, for docs/data/test_runs.csv: EASY and `best`, with and without.

    python benchmarks/test_runs.py ../shared/traces --out test_runs.jsonl
    python docs/tables.py --write

Each case is one replay; what came of it is a line of the file, written as soon as it is known. A
case that is there is not run again, so the same command goes on after an interruption. Nor is one
that ``docs/data/test_runs_replays.csv`` has, to which the replays are added at the end: remove that
table when a dispatcher has changed. The rows of these cases are then replaced in the CSV file, or
added; other rows stay, and so does one of more draws.

The parts:

- ``whole``: five logs, tests in all four ways, all jobs restartable;
- ``shares``: the same where the jobs of a half or a fifth of the users may be restarted, drawn anew
  in each draw;
- ``costs``: the same where a restart takes 30 or 120 s;
- ``lengths``: tests from 30 s to 30 min, on KTH and CTC;
- ``cuts``: the cuts of logs of ``untuned.py``;
- ``loads``: generated loads on systems with several resources, and a part of Gaia's log.

Draw 0 is the log as it is, draw k has submissions that are up to a minute later, and the seed k, as
with ``simulate --shake``. A draw of a generated load is another load.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import script
import untuned
from numpy.typing import NDArray
from results import DATA, Results, half_interval, keep, merged, rows_of

from cpdispatch.analyze import metrics
from cpdispatch.campaign import CampaignError
from cpdispatch.dispatch import Settings
from cpdispatch.errors import unknown
from cpdispatch.files import write_bytes
from cpdispatch.jobs import Workload
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NAMED, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import MIXES, generate
from cpdispatch.workloads.restarts import mark
from cpdispatch.workloads.shake import shaken

CSV = DATA / "test_runs.csv"

EASY, BEST = "easy", "best"
MODELS = ("hcp:limit=0.05", "hcp:test=120,limit=0.05")
"""A plan of the queue, without test runs and with them."""
ACTUAL = "actual"
LENGTHS_S = {EASY: 120, BEST: 300}
WAYS = ("left", "backfill", "turn", "first")
BOUNDED = "first,wait=0.8"
"""Before all else, with the bound on waits, which `best` always has."""
SHARES, COSTS_S = (0.5, 0.2), (30, 120)
OF_LENGTHS = ((EASY, "left"), (EASY, "backfill"), (EASY, BOUNDED), (BEST, "left"))
OTHER_LENGTHS_S = (30, 60, 120, 300, 600, 1200, 1800)
DRAWS = 10
LONG_S = 4 * 3600
"""Jobs that run longer are those that gain least by test runs."""

LOGS = ("KTH", "CTC", "SDSC-BLUE", "Curie", "HPC2N")
MEASURED = ("KTH", "CTC")
"""Logs on which the length of a test is varied."""
GAIA, GAIA_FIRST = "gaia", 9_000
LOADS = (*MIXES, GAIA)
LOAD_JOBS = 3_000
PARTS = ("whole", "lengths", "shares", "costs", "cuts", "loads")


PLAIN = {EASY: EASY, BEST: f"{BEST}:test=off"}
"""A dispatcher without test runs."""


def named(rule: str, test_s: int, way: str = WAYS[0]) -> str:
    """A dispatcher with test runs."""
    return f"{rule}:test={test_s}" + f",tests={way}" * (way != WAYS[0])


# ------------------------------------------------------------------------------------- one case


@dataclass(frozen=True, slots=True)
class Case:
    """One replay; of the cut of a log where it has a size."""

    log: str
    dispatcher: str
    draw: int = 0
    predictor: str = "own"
    restartable: float = 1.0
    restart_cost_s: int = 0
    size: int = 0
    cut: int = 0

    @property
    def easy(self) -> Case:
        """What it is measured against."""
        return Case(self.log, EASY, self.draw, size=self.size, cut=self.cut)

    def __str__(self) -> str:
        cut = f" cut {self.cut} of {self.size}" if self.size else ""
        known = f" {self.predictor}" * (self.predictor != "own")
        share = f" restartable {self.restartable}" * (self.restartable < 1)
        cost = f" cost {self.restart_cost_s}" * (self.restart_cost_s > 0)
        return f"{self.log}{cut} {self.dispatcher}{known}{share}{cost} draw {self.draw}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of a case: means over jobs, times in seconds.

    ``wait_s_long`` is the mean wait of the jobs that run for more than `LONG_S`, ``wait_s_class``
    that of the classes of `cpdispatch.analyze.metrics.CLASSES_S`; None and left out where there
    are no such jobs. ``lost`` is the share of the work that was killed.
    """

    jobs: int
    slowdown: float
    wait_s_mean: float
    wait_s_max: int
    wait_s_long: float | None
    decisions: int
    seconds: float
    tests: int = 0
    ended: int = 0
    killed: int = 0
    lost: float = 0.0
    wait_s_class: dict[str, float] = field(default_factory=dict)


def measure(log: tuple[Workload, System], case: Case) -> Figures:
    """Replay a case on its log; the log of a generated load is made here."""
    workload, system = log
    if case.log in MIXES:
        workload = generate(MIXES[case.log], LOAD_JOBS, case.draw, system=system)
    else:
        workload = shaken(untuned.part(workload, case.size, case.cut), case.draw)
    workload = mark(workload, case.restartable, case.draw)
    run = simulate(
        workload, system, case.dispatcher,
        predictor=None if case.predictor == "own" else case.predictor,
        restart_cost_s=case.restart_cost_s, settings=Settings(seed=case.draw + case.cut),
    )  # fmt: skip
    return figures(run)


def figures(run: Run) -> Figures:
    schedule, felt = run.schedule(), run.metrics
    long = metrics.runtime_s(schedule) > LONG_S
    waits_s = metrics.wait_s(schedule)
    return Figures(
        jobs=int(felt["jobs"]),
        slowdown=felt["bounded_slowdown_mean"],
        wait_s_mean=felt["wait_s_mean"],
        wait_s_max=int(felt["wait_s_max"]),
        wait_s_long=float(waits_s[long].mean()) if long.any() else None,
        decisions=int(felt["decisions"]),
        seconds=run.about["seconds"],
        tests=int(felt.get("tests", 0)),
        ended=int(felt.get("tests_ended", 0)),
        killed=int(felt.get("tests_killed", 0)),
        lost=felt.get("wasted_share", 0.0),
        wait_s_class={
            name: of["wait_s_mean"] for name, of in run.by_class().items() if of["jobs"]
        },
    )  # fmt: skip


def find(name: str, traces: Path) -> tuple[Workload, System]:
    """A log on its system."""
    if name in MIXES:
        return generate(MIXES[name], LOAD_JOBS), NAMED[name]
    log = untuned.LOGS["Gaia" if name == GAIA else name]
    workload, system = prepare(traces / log.file, log.system, filter=log.filter)
    if name == GAIA:
        last = min(GAIA_FIRST + LOAD_JOBS, len(workload))
        workload = workload.take(np.arange(min(GAIA_FIRST, last), last))
    return workload, system


def jobs_of(log: Callable[[], tuple[Workload, System]]) -> int:
    """How many jobs a log has, which is read when it is asked for."""
    return len(log()[0])


# -------------------------------------------------------------------------------------- the cases


def with_tests(**more: float) -> Iterator[tuple[str, dict[str, float]]]:
    """EASY and `best` with test runs in all ways."""
    for rule, test_s in LENGTHS_S.items():
        for way in ways_of(rule):
            yield named(rule, test_s, way), more


def ways_of(rule: str) -> tuple[str, ...]:
    """When a dispatcher tests jobs."""
    return (*WAYS, BOUNDED) if rule == EASY else WAYS


def of_log(name: str, part: str) -> Iterator[tuple[str, dict[str, float]]]:
    """The dispatchers of a part on a log, and what else a case says."""
    if part == "whole":
        for plain in PLAIN.values():
            yield plain, {}
        yield from with_tests()
    elif part == "shares":
        for share in SHARES:
            yield from with_tests(restartable=share)
    elif part == "costs":
        for cost_s in COSTS_S:
            yield from with_tests(restart_cost_s=cost_s)
    elif part == "lengths" and name in MEASURED:
        for (rule, way), test_s in product(OF_LENGTHS, OTHER_LENGTHS_S):
            yield named(rule, test_s, way), {}
    elif part == "loads":
        for dispatcher in (EASY, *MODELS, PLAIN[BEST], named(BEST, LENGTHS_S[BEST])):
            yield dispatcher, {}
        for way in ways_of(EASY):
            yield named(EASY, LENGTHS_S[EASY], way), {}


def cases(
    name: str, parts: Sequence[str], draws: int, jobs: Callable[[], int], sizes: Sequence[int]
) -> Iterator[Case]:
    """All replays on a log, in the order in which they are to be made; some may come twice.

    ``jobs`` says how many jobs the log has.
    """
    if name in (*LOGS, *LOADS):
        kind = [part for part in parts if (part == "loads") == (name in LOADS) and part != "cuts"]
        for part in kind:
            for dispatcher, more in of_log(name, part):
                for draw in range(draws):
                    yield Case(name, dispatcher, draw, **more)  # type: ignore[arg-type]
        if "whole" in kind:
            for draw in range(draws):
                yield Case(name, PLAIN[BEST], draw, ACTUAL)
    if "cuts" in parts and name in untuned.LOGS:
        for size in filter(None, sizes):
            for cut in untuned.cuts(jobs(), size):
                for rule, test_s in LENGTHS_S.items():
                    bounded = [named(rule, test_s, BOUNDED)] * (rule == EASY)
                    for dispatcher in (PLAIN[rule], named(rule, test_s), *bounded):
                        yield Case(name, dispatcher, size=size, cut=cut)


# ------------------------------------------------------------------------------------- the results


# ------------------------------------------------------------------------------------ the CSV file

HEAD = (
    "log", "size", "dispatcher", "predictor", "restartable", "restart_cost_s", "draws",
    "slowdown", "slowdown_low", "slowdown_high", "relative", "relative_low", "relative_high",
    "wait_max", "wait_long", "wait_class", "kills_percent", "lost_percent",
)  # fmt: skip
KEYS = 6
"""So many of the first columns tell the rows of the file apart."""
CUTS = "all cuts"
"""The name under which the cuts of all logs are put together."""


def rows(results: Mapping[Case, Figures]) -> Iterator[list[str]]:
    """Means over the draws, or over the cuts, that EASY has been replayed on, too.

    ``slowdown`` is the mean of the mean bounded slowdowns; it is left out for cuts, whose
    slowdowns differ by orders of magnitude. ``relative`` is the geometric mean of its ratios to
    EASY's. Both have 95 % intervals. The rest are means: ``wait_max`` of the longest wait over
    EASY's; ``wait_long`` of the wait of jobs over 4 h over EASY's; ``wait_class`` the same of
    the class of lengths where it is largest; ``kills_percent`` and ``lost_percent`` of the
    jobs that are killed in their tests and of the work that is lost. Cuts on which nobody waits
    for ten minutes under EASY are left out.
    """
    groups: dict[tuple[str, ...], list[tuple[Figures, Figures]]] = {}
    for case, got in results.items():
        easy = results.get(case.easy)
        if easy is None or (case.size and easy.wait_s_max < untuned.WAITS_S):
            continue
        kind = (
            str(case.size), case.dispatcher, case.predictor, f"{case.restartable:g}",
            str(case.restart_cost_s),
        )  # fmt: skip
        for name in (case.log, CUTS) if case.size else (case.log,):
            groups.setdefault((name, *kind), []).append((got, easy))
    for key, pairs in groups.items():
        each = [got for got, _ in pairs]
        slowdowns = interval(np.array([got.slowdown for got in each]), ".1f")
        ratios = [got.slowdown / easy.slowdown for got, easy in pairs]
        yield [
            *key, str(len(pairs)),
            *(slowdowns if key[1] == "0" else [""] * 3),
            *interval(np.array(ratios), ".3f", geometric=True),
            mean([got.wait_s_max / easy.wait_s_max for got, easy in pairs if easy.wait_s_max]),
            mean([ratio for pair in pairs if (ratio := of_long(*pair)) is not None]),
            worst(pairs),
            mean([100 * got.killed / got.jobs for got in each]),
            mean([100 * got.lost for got in each]),
        ]  # fmt: skip


def of_long(got: Figures, easy: Figures) -> float | None:
    """The wait of long jobs over EASY's; None where there are none, or none waits."""
    if got.wait_s_long is None or not easy.wait_s_long:
        return None
    return got.wait_s_long / easy.wait_s_long


def worst(pairs: Sequence[tuple[Figures, Figures]]) -> str:
    """The wait over EASY's of the class of lengths that loses most, of those that wait there."""
    found = []
    for name in metrics.CLASSES_S:
        of = [
            (got.wait_s_class[name], easy.wait_s_class[name])
            for got, easy in pairs
            if name in got.wait_s_class and easy.wait_s_class.get(name)
        ]
        if of:
            found.append(float(np.mean([one / other for one, other in of])))
    return f"{max(found):.2f}" if found else ""


def mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f}" if len(values) else ""


def interval(values: NDArray[np.float64], form: str, *, geometric: bool = False) -> list[str]:
    """A mean and its 95 % interval; no interval of one value."""
    spread = np.log(values) if geometric else values
    centre, half = spread.mean(), half_interval(spread)
    found = np.array([centre, centre - half, centre + half])
    texts = [f"{value:{form}}" for value in (np.exp(found) if geometric else found)]
    return texts if len(values) > 1 else [texts[0], "", ""]


def place(row: Sequence[str]) -> tuple[int, int, float, Sequence[str]]:
    """Where a row of the file is, in the order of the logs."""
    logs = [*LOGS, CUTS, *untuned.LOGS, *LOADS]
    known = logs.index(row[0]) if row[0] in logs else len(logs)
    return known, int(row[1]), -float(row[4]), row[2:KEYS]


# -------------------------------------------------------------------------- the table of replays

REPLAYS = "test_runs_replays"
OF_CASE = (
    "log", "dispatcher", "draw", "predictor", "restartable", "restart_cost_s", "size", "cut",
)  # fmt: skip
OF_FIGURES = (
    "jobs", "slowdown", "wait_s_mean", "wait_s_max", "wait_s_long", "decisions", "seconds",
    "tests", "ended", "killed", "lost",
)  # fmt: skip
REPLAYS_HEAD = (*OF_CASE, *OF_FIGURES, *(f"wait_s_class_{name}" for name in metrics.CLASSES_S))


def replays(results: Mapping[Case, Figures]) -> Iterator[list[str]]:
    """Every replay, for the table of them."""
    for case in sorted(results, key=str):
        got = results[case]
        of_class = [got.wait_s_class.get(name) for name in metrics.CLASSES_S]
        values = [getattr(case, name) for name in OF_CASE]
        values += [*(getattr(got, name) for name in OF_FIGURES), *of_class]
        yield ["" if value is None else _text(value) for value in values]


def _text(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def earlier() -> Iterator[tuple[Case, Figures]]:
    """The replays that the table of them has."""
    for row in rows_of(REPLAYS):
        said = dict(zip(REPLAYS_HEAD, row, strict=True))
        case = msgspec.convert({name: said[name] for name in OF_CASE}, Case, strict=False)
        figures = {name: said[name] or None for name in OF_FIGURES}
        of_class = {
            name: text for name in metrics.CLASSES_S if (text := said[f"wait_s_class_{name}"])
        }
        yield case, msgspec.convert(figures | {"wait_s_class": of_class}, Figures, strict=False)


def not_fewer(text: str, new: Iterator[list[str]]) -> Iterator[list[str]]:
    """The new rows of which a CSV file has no row of more draws."""
    draws = {tuple(row[:KEYS]): row[KEYS] for row in list(csv.reader(io.StringIO(text)))[1:]}
    for row in new:
        if int(row[KEYS]) >= int(draws.get(tuple(row[:KEYS]), 0)):
            yield row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=script.folder, help="folder of public logs (.swf.gz)")
    parser.add_argument("--out", type=Path, required=True, help="the file of the results")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    every = list(dict.fromkeys((*LOGS, *LOADS, *untuned.LOGS)))
    parser.add_argument("--logs", nargs="+", default=every, help="some of the logs and loads")
    parser.add_argument(
        "--draws", type=script.count, default=DRAWS, help="replays of a whole log or load"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=script.count, default=untuned.SIZES, help="of the cuts"
    )
    parser.add_argument("--only", default="", help="run only what matches this pattern")
    parser.add_argument("--jobs", type=script.count, default=1, help="processes")
    parser.add_argument("--list", action="store_true", help="list what is to be run, and end")
    parser.add_argument("--write", type=Path, default=CSV, help="the CSV file")
    given = parser.parse_args(arguments)
    for name in given.logs:
        if name not in every:
            raise unknown("log", name, every)
    done = Results(given.out, Case, Figures)
    if given.write == CSV:
        done.update((case, figures) for case, figures in earlier() if case not in done)
    failed = []
    for name in given.logs:
        log = cache(partial(find, name, given.traces))
        wanted = cases(name, given.part, given.draws, partial(jobs_of, log), given.sizes)
        todo = [
            case for case in dict.fromkeys(wanted)
            if case not in done and re.search(given.only, str(case))
        ]  # fmt: skip
        if given.list:
            for case in todo:
                print(case)
        elif todo:
            try:
                done.make(
                    todo, measure, {"log": log()}, given.jobs,
                    told=lambda found: f"{found.slowdown:.2f}, {found.seconds:.1f} s",
                )  # fmt: skip
            except KeyboardInterrupt:
                print("interrupted: the same command goes on", file=sys.stderr)
                return 130
            except CampaignError as error:
                failed.append(error)
    if not given.list:
        before = given.write.read_text() if given.write.exists() else ""
        new = not_fewer(before, rows(done))
        write_bytes(given.write, merged(before, HEAD, new, KEYS, place).encode())
        if given.write == CSV:
            keep(REPLAYS, [REPLAYS_HEAD, *replays(done)])
    for error in failed:
        print(error, *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    script.run(__file__)
