"""How good schedules are: dispatchers and predictors on real logs, for docs/data/quality_*.csv.

    python benchmarks/quality.py ../shared/traces --out quality

Each case is one replay; what came of it is a line of ``OUT/results.jsonl``. A case that is there is
not run again, so the same command goes on after an interruption. At the end the rows of all these
cases are replaced in the CSV files, or added; other rows stay. With ``--jobs`` they are printed.
``python docs/tables.py --write`` then makes the tables of the pages from the CSV files.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import script
from results import DATA, Results, merged

from cpdispatch.analyze import metrics
from cpdispatch.arrays import IntArray
from cpdispatch.campaign import CampaignError
from cpdispatch.dispatch import Settings
from cpdispatch.errors import unknown
from cpdispatch.files import write_bytes
from cpdispatch.jobs import Workload
from cpdispatch.predict import PREDICTORS
from cpdispatch.simulator import Run, simulate
from cpdispatch.system import NAMED, System
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import eurora_sample
from cpdispatch.workloads.shake import shaken

EASY, SJBF = "easy", "easy-fcfs-spf"
SAF, SPF = "easy-saf-saf:threshold=200000", "easy-spf-spf:threshold=200000"
ORDERS = (SJBF, SAF, SPF)
LIMITED = (f"{SAF},limits=requested", f"{SPF},limits=requested")
"""Predictions order the queue; reservations rest on requested times."""
SMALL = "easy-small-small"
SMALL_FIRST = (SMALL, *(f"easy-small+{within}-small+{within}" for within in ("spf", "saf", "wfp3")))
CLASSIFIERS = ("class", "class:clairvoyant=on")
OPTIONS = ("class:votes=0.1", "class:calendar=on", "class:window=all")
"""Classifiers for all of these orders, and others for the one by area."""
MODELS = ("hcp", "pcp:model=boxes")
MODELS_OF_THESIS = ("hcp", "pcp", "pcp:model=boxes")
BY_CLASS = (*MODELS_OF_THESIS, "best")
NAIVE = "hcp:limits=expected"
"""Predictions limit everything, also if they are right; with requested times it is `hcp`."""
ENGINES = {*MODELS, *MODELS_OF_THESIS, NAIVE}
OUTER = ("walltime", "actual")
"""The predictors that no job outlives."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log, its number of processors, and what was published or is aimed at on it.

    Mean bounded slowdowns: ``easy``, ``easypp``, ``eloss`` and ``clairvoyant`` EASY-SJBF are of
    Gaussier et al., SC'15; ``best`` is the best on-line value of theirs.
    """

    name: str
    processors: int
    easy: float | None = None
    easypp: float | None = None
    eloss: float | None = None
    clairvoyant: float | None = None
    target: float | None = None

    @property
    def best(self) -> float | None:
        return min((v for v in (self.easypp, self.eloss) if v is not None), default=None)


LOGS = (
    Log("KTH-SP2-1996-2", 100, 92.6, 63.5, 51.4, 49.8, 30),
    Log("CTC-SP2-1996-3.1-cln", 338, 49.6, 85.8, 20.5, 17.6, 13),
    Log("SDSC-BLUE-2000-4.1-cln", 1152, 36.5, 21.0, 34.7, 13.2, 10),
    Log("CEA-Curie-2011-2.1-cln", 80640, 202.1, 193.5, 27.9, 12.1, 15),
    Log("HPC2N-2002-2.2-cln", 240),
)
GAIA, EURORA = "UniLu-Gaia-2014-1", tuple(f"eurora-seed-{seed}" for seed in range(3))
THESIS = {"eurora": (EURORA, 1_500), "gaia": ((GAIA,), 3_000)}
"""System -> its workloads and how many of their jobs."""
FIRST = {"CEA-Curie-2011-2.1-cln": 4_000, GAIA: 9_000}
"""Where the part of a log begins that CP dispatchers are run on: their first jobs do not wait."""
COMPARED = ("walltime", "profile", "forest", "actual")
SOME = {EASY: OUTER, NAIVE: ("profile", "forest", "actual")}
"""Dispatchers that are compared with some of these only."""
MODEL_JOBS, MODEL_LIMIT_S = 4_000, 0.05
DRAWS = 10
"""A replay of one log is one draw of a system that amplifies small differences. So many more have
shifted submissions, see `cpdispatch.workloads.shake`."""


# ------------------------------------------------------------------------------------- one case


@dataclass(frozen=True, slots=True)
class Case:
    """One replay. Without a predictor the dispatcher's own; without ``jobs`` the whole log.

    ``first`` is the index of the first job. ``draw`` is 0 for the log as it is, else the seed of
    the generator that shifts the submissions.
    """

    log: str
    dispatcher: str
    predictor: str | None
    jobs: int | None = None
    first: int = 0
    trigger: str = "instant"
    idempotent: bool = False
    limit_s: float = 1.0
    draw: int = 0

    @property
    def correction(self) -> str:
        """The simulator's own where it does not matter; else the published one."""
        return "minimal" if self.dispatcher == "best" or self.predictor in OUTER else "incremental"

    def __str__(self) -> str:
        jobs = "" if self.jobs is None else f" {self.first}+{self.jobs}"
        trigger = "" if self.trigger == "instant" else f" {self.trigger}"
        label = f"{self.predictor or 'own'}{', restarts' if self.idempotent else ''}"
        draw = f" draw {self.draw}" if self.draw else ""
        return f"{self.log}{jobs} {self.dispatcher} {label}{trigger}{draw}"

    def cost(self, jobs: int) -> float:
        """About how many milliseconds it takes on a log of so many jobs."""
        ms = 0.02
        if self.dispatcher in ENGINES:
            ms = 20.0
        elif (
            self.predictor in (None, "forest", "class", *OPTIONS, "eloss")
            or self.dispatcher == "best"
        ):
            ms = 0.5
        return ms * min(jobs, self.jobs or jobs)


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of a case: means over jobs, times in seconds, shares from 0 to 1.

    ``wasted_s`` is processors times seconds of what was killed for a restart, ``error_s`` the mean
    absolute error of the predictions, ``under`` and ``over`` the shares of those below and above
    the runtime, ``close`` that of runtime / prediction in 0.75 to 1.25.
    """

    jobs: int
    slowdown: float
    first_half: float
    second_half: float
    per_processor: float
    wait_s_mean: float
    wait_s_max: float
    killed: int
    restarts: int
    wasted_s: float
    seconds: float
    decision_ms: float
    error_s: float
    under: float
    over: float
    close: float
    faults: dict[str, int] = field(default_factory=dict)
    classes: dict[str, dict[str, float]] = field(default_factory=dict)
    by_divider: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(log: tuple[Workload, System], case: Case) -> Figures:
    """Replay a case, on its log fitted to its system."""
    workload, system = log
    if case.jobs is not None:
        last = min(case.first + case.jobs, len(workload))
        workload = workload.take(np.arange(case.first, last))
    workload = shaken(workload, case.draw)
    run = simulate(
        workload, system, case.dispatcher, predictor=case.predictor, trigger=case.trigger,
        correction=case.correction, idempotent=case.idempotent, settings=Settings(case.limit_s),
    )  # fmt: skip
    return figures(run)


def figures(run: Run) -> Figures:
    schedule, felt = run.schedule(), run.metrics
    slowdown = metrics.bounded_slowdown(schedule)
    half = len(slowdown) // 2
    expected_s, runtime_s = (column(run, name) for name in ("expected_s", "runtime_s"))
    ratio = runtime_s / np.maximum(expected_s, 1)
    notes = run.about["notes"].items()
    return Figures(
        jobs=len(slowdown),
        slowdown=float(slowdown.mean()),
        first_half=float(slowdown[:half].mean()),
        second_half=float(slowdown[half:].mean()),
        per_processor=felt["per_processor_bounded_slowdown_mean"],
        wait_s_mean=felt["wait_s_mean"],
        wait_s_max=felt["wait_s_max"],
        killed=int(column(run, "killed").sum()),
        restarts=int(felt.get("restarts", 0)),
        wasted_s=felt.get("wasted_processor_s", 0),
        seconds=run.about["seconds"],
        decision_ms=felt["decision_ms_mean"],
        error_s=float(np.abs(expected_s - runtime_s).mean()),
        under=float((expected_s < runtime_s).mean()),
        over=float((expected_s > runtime_s).mean()),
        close=float(((ratio >= 0.75) & (ratio <= 1.25)).mean()),
        faults={note: count for note, count in notes if note.startswith("predictor ")},
        classes=by_class(schedule),
        by_divider=by_divider(schedule),
    )


def column(run: Run, name: str) -> IntArray:
    found: IntArray = run.job_table.column(name).to_numpy().astype(np.int64)
    return found


def by_class(schedule: metrics.ScheduleColumns) -> dict[str, dict[str, float]]:
    """Means of the classes of the package."""
    return means(schedule, {"all": (0, 2**62), **metrics.CLASSES_S})


def by_divider(schedule: metrics.ScheduleColumns) -> dict[str, dict[str, float]]:
    """Means of small and of large jobs; the divider is the median runtime of all."""
    divider_s = int(np.median(metrics.runtime_s(schedule)))
    return means(schedule, {"small": (0, divider_s + 1), "large": (divider_s + 1, 2**62)})


def means(
    schedule: metrics.ScheduleColumns, classes: Mapping[str, tuple[float, float]]
) -> dict[str, dict[str, float]]:
    """Jobs, and means of slowdown, bounded slowdown and wait, of the classes that have jobs."""
    runtime_s, found = metrics.runtime_s(schedule), {}
    for name, (low, high) in classes.items():
        of = schedule.take((low <= runtime_s) & (runtime_s < high))
        if jobs := len(of.submit_s):
            found[name] = {
                "jobs": jobs,
                "slowdown": float(metrics.slowdown(of).mean()),
                "bounded slowdown": float(metrics.bounded_slowdown(of).mean()),
                "wait, min": float(metrics.wait_s(of).mean()) / 60,
            }
    return found


def find(log: str, traces: Path) -> tuple[Workload, System]:
    """A log on its system."""
    if log in EURORA:
        return eurora_sample(THESIS["eurora"][1], seed=EURORA.index(log)), NAMED["eurora"]
    path = traces / f"{log}.swf.gz"
    processors = {pool.name: pool.processors for pool in LOGS}
    system = System.pool(processors[log]) if log in processors else NAMED["gaia"]
    filter = "strong" if log in processors else "all"
    return prepare(path, system, filter=filter)


# -------------------------------------------------------------------------------------- the cases


def predicted(log: Log, jobs: int | None) -> Iterator[Case]:
    """Orders and predictors, and `best`."""
    for predictor in OUTER:
        yield Case(log.name, EASY, predictor, jobs)
    for order in (*ORDERS, SMALL):
        for predictor in PREDICTORS if order in ORDERS else ("class",):
            yield Case(log.name, order, predictor, jobs)
            if predictor == "class":
                yield Case(log.name, order, predictor, jobs, idempotent=True)
    for order in LIMITED:
        for predictor in PREDICTORS:
            if predictor not in OUTER:
                yield Case(log.name, order, predictor, jobs)
    yield Case(log.name, "best", None, jobs)
    yield Case(log.name, "best", "actual", jobs)


def small_first(log: Log, jobs: int | None) -> Iterator[Case]:
    """Small jobs first, with restarts, as table 6.6 of Zrigui's thesis has it; and EASY."""
    for draw in range(1, DRAWS + 1):
        yield Case(log.name, EASY, "walltime", jobs, draw=draw)
        for order in SMALL_FIRST:
            options = OPTIONS if order == SMALL_FIRST[2] else ()
            for predictor in (*CLASSIFIERS, *options):
                yield Case(log.name, order, predictor, jobs, idempotent=True, draw=draw)


def published(log: Log, jobs: int | None) -> dict[str, tuple[float | None, Case]]:
    """By method, what was published and our version of it, at the published trigger."""
    methods = {
        "EASY": (log.easy, EASY, "walltime"),
        "EASY++": (log.easypp, SJBF, "last2"),
        "eloss": (log.eloss, SJBF, "eloss"),
        "EASY-SJBF, clairvoyant": (log.clairvoyant, SJBF, "actual"),
    }
    return {
        method: (value, Case(log.name, dispatcher, predictor, jobs, trigger="event"))
        for method, (value, dispatcher, predictor) in methods.items()
        if value is not None
    }


def models(log: str, jobs: int | None) -> Iterator[Case]:
    """CP dispatchers with predictions, and heuristics on the same jobs."""
    for dispatcher in (EASY, SAF, "best", *MODELS, NAIVE):
        limit_s = MODEL_LIMIT_S if dispatcher in ENGINES else 1.0
        for predictor in SOME.get(dispatcher, COMPARED):
            yield Case(log, dispatcher, predictor, jobs, first(log, jobs), limit_s=limit_s)


def thesis(log: str, jobs: int | None) -> Iterator[Case]:
    for dispatcher in BY_CLASS:
        for predictor in COMPARED:
            start = first(log, jobs)
            yield Case(log, dispatcher, predictor, jobs, start, limit_s=MODEL_LIMIT_S)


def draws(log: Log, jobs: int | None) -> Iterator[Case]:
    """The dispatchers of the first table of the page, on shifted submissions."""
    for dispatcher in (EASY, *ORDERS, "best"):
        for draw in range(1, DRAWS + 1):
            predictor = None if dispatcher == "best" else "walltime"
            yield Case(log.name, dispatcher, predictor, jobs, draw=draw)


def first(log: str, jobs: int | None) -> int:
    return 0 if jobs is None else FIRST.get(log, 0)


def at_most(jobs: int, limit: int | None) -> int:
    return jobs if limit is None else min(jobs, limit)


def all_cases(parts: Sequence[str], jobs: int | None, whole: bool) -> dict[str, Case]:
    """The cases of some parts by name; parts have cases in common."""
    found: list[Case] = []
    for log in LOGS:
        if "predictors" in parts:
            found += predicted(log, jobs)
        if "draws" in parts:
            found += draws(log, jobs)
        if "small" in parts:
            found += small_first(log, jobs)
        if "published" in parts:
            found += [case for _, case in published(log, jobs).values()]
        if "models" in parts:
            found += models(log.name, at_most(MODEL_JOBS, jobs))
    if "models" in parts and whole:
        found += models(LOGS[0].name, jobs)
    if "thesis" in parts:
        for logs, most in THESIS.values():
            for name in logs:
                found += thesis(name, at_most(most, jobs))
    return {str(case): case for case in found}


PARTS = ("predictors", "draws", "small", "published", "models", "thesis")


# ------------------------------------------------------------------------------------- the results


def make(done: Results[Case, Figures], cases: Iterable[Case], traces: Path, workers: int) -> None:
    """Run the cases that are not done, the longest first."""
    todo = [case for case in cases if case not in done]
    shared = {name: find(name, traces) for name in dict.fromkeys(case.log for case in todo)}
    todo.sort(key=lambda case: -case.cost(len(shared[case.log][0])))
    done.make(
        todo, measure, shared, workers, needs=lambda case: case.log,
        told=lambda found: f"{found.slowdown:.2f}, {found.seconds:.1f} s",
    )  # fmt: skip


# ------------------------------------------------------------------------------------ the CSV files


def number(value: float, form: str = ".1f") -> str:
    return f"{value:{form}}"


RUNS = (
    "log", "dispatcher", "predictor", "idempotent", "trigger", "first", "jobs", "draw",
    "bounded_slowdown", "first_half", "second_half", "per_processor", "wait_min_mean",
    "wait_h_max", "restarts", "wasted_h", "decision_ms", "seconds",
)  # fmt: skip
ACCURACY = ("log", "predictor", "error_min", "under_percent", "over_percent", "close_percent")
PUBLISHED = ("log", "method", "published", "ours")
CLASSES = (
    "system", "dispatcher", "class", "mean_of", "jobs", "requested",
    *(f"{predictor}_percent" for predictor in COMPARED[1:]),
)  # fmt: skip
SMALLER = (
    "log", "dispatcher", "predictor", "draw", "bounded_slowdown", "small", "large", "wait_min_mean",
    "wait_min_small", "wait_min_large", "wait_h_max", "restarts",
)  # fmt: skip
KEYS = {RUNS: 8, ACCURACY: 2, PUBLISHED: 2, CLASSES: 4, SMALLER: 4}
"""Columns of each file -> how many of the first ones tell its rows apart."""


def run_rows(results: Mapping[Case, Figures]) -> Iterator[list[str]]:
    for case, got in results.items():
        yield [
            case.log, case.dispatcher, case.predictor or "own", "yes" * case.idempotent,
            case.trigger, str(case.first), str(got.jobs), str(case.draw),
            *map(number, (got.slowdown, got.first_half, got.second_half)),
            number(got.per_processor, ".2f"), number(got.wait_s_mean / 60, ".0f"),
            number(got.wait_s_max / 3600), str(got.restarts or ""),
            number(got.wasted_s / 3600, ".0f") if got.restarts else "",
            number(got.decision_ms, ".3f"), number(got.seconds),
        ]  # fmt: skip


def accuracy_rows(results: Mapping[Case, Figures], jobs: int | None) -> Iterator[list[str]]:
    """Accuracy at submission, under EASY-SJBF."""
    for log in LOGS:
        for predictor in PREDICTORS:
            got = results.get(Case(log.name, SJBF, predictor, jobs))
            if got is not None and predictor != "actual":
                shares = [number(100 * share) for share in (got.under, got.over, got.close)]
                yield [log.name, predictor, number(got.error_s / 60), *shares]


def published_rows(results: Mapping[Case, Figures], jobs: int | None) -> Iterator[list[str]]:
    for log in LOGS:
        for method, (value, case) in published(log, jobs).items():
            if case in results and value is not None:
                yield [log.name, method, number(value), number(results[case].slowdown)]


def small_rows(results: Mapping[Case, Figures], jobs: int | None) -> Iterator[list[str]]:
    for log in LOGS:
        for case in small_first(log, jobs):
            if case in results and (got := results[case]).by_divider:
                slowdown, wait = (
                    [number(got.by_divider[kind][what]) for kind in ("small", "large")]
                    for what in ("bounded slowdown", "wait, min")
                )
                yield [
                    case.log, case.dispatcher, case.predictor or "own", str(case.draw),
                    number(got.slowdown), *slowdown, number(got.wait_s_mean / 60), *wait,
                    number(got.wait_s_max / 3600), str(got.restarts),
                ]  # fmt: skip


def class_rows(results: Mapping[Case, Figures], most: int | None) -> Iterator[list[str]]:
    """Means of a class of jobs with requested times, and relative to that with predictors."""
    for system, (logs, jobs) in THESIS.items():
        for dispatcher in BY_CLASS:
            of = {
                predictor: [
                    results[case].classes
                    for log in logs
                    for case in thesis(log, at_most(jobs, most))
                    if (case.dispatcher, case.predictor) == (dispatcher, predictor)
                    and case in results
                ]
                for predictor in COMPARED
            }
            if any(len(runs) < len(logs) for runs in of.values()):
                continue
            for kind in ("all", *metrics.CLASSES_S):
                count = sum(run[kind]["jobs"] for run in of["walltime"] if kind in run)
                for measure in ("slowdown", "bounded slowdown", "wait, min") if count else ():
                    base, *others = (pooled(of[predictor], kind, measure) for predictor in COMPARED)
                    changes = [100 * (other / base - 1) if base else 0.0 for other in others]
                    yield [
                        system, dispatcher, kind, measure, number(count, ".0f"),
                        number(base, ".2f"),
                        *(number(change, ".0f") for change in changes),
                    ]  # fmt: skip


def pooled(runs: Sequence[Mapping[str, Mapping[str, float]]], kind: str, measure: str) -> float:
    """The mean over the jobs of a class in all runs."""
    of = [run[kind] for run in runs if kind in run]
    return sum(each["jobs"] * each[measure] for each in of) / sum(each["jobs"] for each in of)


def files(
    results: Mapping[Case, Figures], jobs: int | None
) -> dict[str, tuple[tuple[str, ...], list[list[str]]]]:
    """By name, the columns and the rows of each CSV file."""
    return {
        "quality_runs": (RUNS, list(run_rows(results))),
        "quality_accuracy": (ACCURACY, list(accuracy_rows(results, jobs))),
        "quality_published": (PUBLISHED, list(published_rows(results, jobs))),
        "quality_classes": (CLASSES, list(class_rows(results, jobs))),
        "quality_small": (SMALLER, list(small_rows(results, jobs))),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=script.folder, help="folder of public logs (.swf.gz)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--logs", nargs="+", default=[""], help="those that begin like this")
    parser.add_argument("--only", default="", help="run only what matches this pattern")
    parser.add_argument("--again", action="store_true", help="run what there are results of, too")
    parser.add_argument("--jobs", type=script.count, help="only the first so many jobs of each log")
    parser.add_argument("--whole", action="store_true", help="CP dispatchers on all of KTH, too")
    parser.add_argument("--workers", type=script.count, default=2, help="processes")
    parser.add_argument("--list", action="store_true", help="list what is to be run, and end")
    parser.add_argument("--write", type=Path, help="folder of the CSV files, else docs/data")
    given = parser.parse_args(arguments)
    names = [*(log.name for log in LOGS), *EURORA, GAIA]
    for log in given.logs:
        if not any(name.startswith(log) for name in names):
            raise unknown("log", log, names)
    path = given.out / "results.jsonl"
    done = Results(path, Case, Figures)
    cases = {
        key: case
        for key, case in all_cases(given.part, given.jobs, given.whole).items()
        if case.log.startswith(tuple(given.logs)) and re.search(given.only, key)
    }
    if given.again:
        for case in cases.values():
            done.pop(case, None)
    if given.list:
        print("\n".join(key for key, case in cases.items() if case not in done))
        return 0
    failed = None
    try:
        make(done, cases.values(), given.traces, given.workers)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130
    except CampaignError as error:
        failed = error
    folder = given.write or (DATA if given.jobs is None else None)
    for name, (head, rows) in files(done, given.jobs).items():
        target = folder and folder / f"{name}.csv"
        before = target.read_text() if target and target.exists() else ""
        text = merged(before, head, rows, KEYS[head])
        if target:
            write_bytes(target, text.encode())
        else:
            print(f"{name}.csv", text, sep="\n")
    if failed is not None:
        print(failed, *getattr(failed, "__notes__", ()), sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    script.run(__file__)
