"""What a site gets by default: replays of ten logs and of their cuts.

    python benchmarks/untuned.py --traces DIR --out untuned.jsonl     # then docs/tables.py --write

Every log in the folder is cut into parts of 1,024, 4,096 and 16,384 jobs, of which ten at most,
evenly spread, are replayed, each from time 0 and with nothing learned before; and whole. A line of
the file is one replay; what is there is not replayed again. At the end the means over the cuts go
to ``docs/data/untuned.csv``, `best` beside each rule to ``docs/data/untuned_best.csv``, and what
`best` makes of requested times and of real runtimes to ``docs/data/untuned_known.csv``. A table of
which there are no replays stays as it is.

The rules have the same bound on waits as `best`. Slowdowns and longest waits are relative to those
under EASY on the same cut; cuts on which no job waits for ten minutes under EASY are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import script
from results import Results, geometric, write

from cpdispatch.dispatch import Settings
from cpdispatch.jobs import Column, JobTable, Workload
from cpdispatch.simulator import simulate
from cpdispatch.system import System
from cpdispatch.workloads import prepare


@dataclass(frozen=True, slots=True)
class Log:
    """A log, its machine (None: as its header says), and the filter that it is read with."""

    file: str
    system: str | None = None
    filter: str = "all"


LOGS = {
    "KTH": Log("KTH-SP2-1996-2.swf.gz", "100", "strong"),
    "CTC": Log("CTC-SP2-1996-3.1-cln.swf.gz", "338", "strong"),
    "SDSC-BLUE": Log("SDSC-BLUE-2000-4.1-cln.swf.gz", "1152", "strong"),
    "HPC2N": Log("HPC2N-2002-2.2-cln.swf.gz", "240", "strong"),
    "Curie": Log("CEA-Curie-2011-2.1-cln.swf.gz", "80640", "strong"),
    "RICC": Log("RICC-2010-2.swf.gz", "ricc"),
    "Gaia": Log("UniLu-Gaia-2014-1.swf.gz", "gaia"),
    "NASA": Log("NASA-iPSC-1993-3.1-cln.swf.gz"),
    "lublin_256": Log("lublin_256.swf.gz"),
    "alea-wagap": Log("alea-wagap-2013.swf.gz", "metacentrum"),
}
SIZES = (1_024, 4_096, 16_384)
WHOLE = "all"
"""The size of a whole log, as it is given on the command line; 0 within."""
CUTS = 10
EASY, BEST = "easy", "best"
RULES = tuple(f"easy-{order}-{order}:wait=0.6" for order in ("spf", "saf", "f1"))
REQUESTED, REAL = (f"{BEST} --predict {name}" for name in ("walltime", "actual"))
"""`best` that knows requested times alone, and real runtimes."""
MODEL = "hcp:limit=0.05"
MODEL_JOBS = 1_024
WAITS_S = 600
"""Cuts on which no job waits for so long under EASY say nothing of waits."""
AT_MOST = 1.3
"""The longest wait is to be so many times EASY's at most."""


@dataclass(frozen=True, slots=True)
class Case:
    """A replay of one cut; all of the log where ``size`` is 0."""

    log: str
    size: int
    cut: int
    dispatcher: str


@dataclass(frozen=True, slots=True)
class Figures:
    jobs: int
    slowdown: float
    wait_s_max: int
    wait_s_mean: float
    decisions: int
    seconds: float


def part(workload: Workload, size: int, cut: int) -> Workload:
    """A cut of a log, whose first job is submitted at time 0."""
    if not size:
        return workload
    found = workload.take(np.arange(cut * size, (cut + 1) * size))
    block = found.table.block.copy()
    block[Column.SUBMIT] -= block[Column.SUBMIT, 0]
    return replace(found, table=JobTable(block, found.table.labels))


def cuts(jobs: int, size: int) -> list[int]:
    """Which cuts of a log are replayed."""
    if not size:
        return [0]
    whole = jobs // size
    spread = np.linspace(0, whole - 1, min(whole, CUTS))
    return [] if not whole else np.unique(spread.astype(int)).tolist()


def measure(log: tuple[Workload, System], case: Case) -> Figures:
    """Make one replay."""
    workload, system = log
    jobs = part(workload, case.size, case.cut)
    dispatcher, _, named = case.dispatcher.partition(" --predict ")
    predictor = named or ("forest" if dispatcher.startswith("hcp") else None)
    settings = Settings(seed=case.cut)
    run = simulate(jobs, system, dispatcher, predictor=predictor, settings=settings)
    found = run.metrics
    return Figures(
        int(found["jobs"]), found["bounded_slowdown_mean"], int(found["wait_s_max"]),
        found["wait_s_mean"], len(run.decision_table), run.about["seconds"],
    )  # fmt: skip


def cases(name: str, jobs: int, dispatchers: list[str], sizes: list[int]) -> Iterator[Case]:
    """All replays of a log."""
    for size in sizes:
        for cut in cuts(jobs, size):
            for dispatcher in dispatchers:
                if not dispatcher.startswith("hcp") or size == MODEL_JOBS:
                    yield Case(name, size, cut, dispatcher)


HEAD = (
    "log", "size", "dispatcher", "cuts", "slowdown", "slowdown_low", "slowdown_high",
    "wait_max", "wait_max_worst", "above", "decision_ms",
)  # fmt: skip


def waited_for(results: Mapping[Case, Figures]) -> Iterator[tuple[Case, Figures, Figures]]:
    """The replays of cuts on which jobs wait, each with EASY's of the same cut."""
    for case, got in results.items():
        easy = results.get(replace(case, dispatcher=EASY))
        if case.dispatcher != EASY and easy is not None and easy.wait_s_max >= WAITS_S:
            yield case, got, easy


def rows(results: Mapping[Case, Figures]) -> Iterator[list[str]]:
    """Means over the cuts, each relative to EASY; logs and sizes by themselves and together."""
    groups: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for case, got, easy in waited_for(results):
        if case.dispatcher in (REQUESTED, REAL):
            continue
        ms = 1e3 * got.seconds / max(got.decisions, 1)
        pair = got.slowdown / easy.slowdown, got.wait_s_max / easy.wait_s_max, ms
        for log, size in ((case.log, str(case.size)), ("all", str(case.size)), ("all", "all")):
            groups.setdefault((log, size, case.dispatcher), []).append(pair)
    for (log, size, dispatcher), pairs in sorted(groups.items()):
        slowdown, wait, ms = np.array(pairs).T
        yield [
            log, size, dispatcher, str(len(pairs)), *geometric(slowdown),
            f"{np.exp(np.log(np.maximum(wait, 1e-3)).mean()):.2f}", f"{wait.max():.2f}",
            str(int((wait > AT_MOST).sum())), f"{np.median(ms):.3f}",
        ]  # fmt: skip


BEST_HEAD = ("log", "rule", "cuts", "slowdown", "slowdown_low", "slowdown_high")


def best_rows(results: Mapping[Case, Figures]) -> Iterator[list[str]]:
    """The slowdown of `best` relative to each rule's, over the cuts of all sizes that both have."""
    groups: dict[tuple[str, str], list[float]] = {}
    for case, got, _ in waited_for(results):
        best = results.get(replace(case, dispatcher=BEST))
        if case.dispatcher in RULES and best is not None:
            for log in (case.log, "all"):
                groups.setdefault((log, case.dispatcher), []).append(best.slowdown / got.slowdown)
    for (log, rule), ratios in sorted(groups.items()):
        yield [log, rule, str(len(ratios)), *geometric(np.array(ratios))]


KNOWN_HEAD = (
    "log", "size", "cuts", "requested", "requested_low", "requested_high", "requested_above",
    "real", "real_low", "real_high", "real_above", "slowdown", "slowdown_low", "slowdown_high",
    "higher",
)  # fmt: skip


def known_rows(results: Mapping[Case, Figures]) -> Iterator[list[str]]:
    """`best` with requested times and with real runtimes, over the cuts that both have.

    Each relative to EASY, with the number of cuts on which the longest wait is above `AT_MOST`
    times EASY's; and the second relative to the first, with the number of cuts on which it has the
    higher slowdown.
    """
    groups: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for case, real, easy in waited_for(results):
        plain = results.get(replace(case, dispatcher=REQUESTED))
        if case.dispatcher != REAL or plain is None:
            continue
        pair = (
            plain.slowdown / easy.slowdown, plain.wait_s_max / easy.wait_s_max,
            real.slowdown / easy.slowdown, real.wait_s_max / easy.wait_s_max,
        )  # fmt: skip
        size = str(case.size)
        for group in ((case.log, size), (case.log, "all"), ("all", size), ("all", "all")):
            groups.setdefault(group, []).append(pair)
    for (log, size), pairs in sorted(groups.items()):
        plain_slowdown, plain_wait, real_slowdown, real_wait = np.array(pairs).T
        yield [
            log, size, str(len(pairs)),
            *geometric(plain_slowdown), str(int((plain_wait > AT_MOST).sum())),
            *geometric(real_slowdown), str(int((real_wait > AT_MOST).sum())),
            *geometric(real_slowdown / plain_slowdown),
            str(int((real_slowdown > plain_slowdown).sum())),
        ]  # fmt: skip


def size_of(text: str) -> int:
    """The size of a cut as it is given on the command line."""
    if text != WHOLE and not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text}: give jobs, as 1024, or {WHOLE}: whole logs")
    return 0 if text == WHOLE else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=script.folder, required=True)
    parser.add_argument("--out", type=Path, default=Path("untuned.jsonl"))
    parser.add_argument("--logs", nargs="+", default=list(LOGS), choices=LOGS)
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=size_of,
        default=[*SIZES, 0],
        help=f"jobs, or {WHOLE}: whole logs",
    )
    every = [EASY, *RULES, BEST, REQUESTED, REAL, MODEL]
    parser.add_argument("--dispatchers", nargs="+", default=every)
    parser.add_argument("--workers", type=script.count, default=2)
    given = parser.parse_args()
    done = Results(given.out, Case, Figures)
    for name in given.logs:
        log = LOGS[name]
        prepared = prepare(given.traces / log.file, log.system, filter=log.filter)
        todo = cases(name, len(prepared[0]), given.dispatchers, given.sizes)
        done.make(todo, measure, {"log": prepared}, given.workers)
    write("untuned", [HEAD, *rows(done)])
    write("untuned_best", [BEST_HEAD, *best_rows(done)])
    write("untuned_known", [KNOWN_HEAD, *known_rows(done)])


if __name__ == "__main__":
    script.run(__file__)
