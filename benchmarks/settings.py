"""Which parameters of `best` serve on the first halves of real logs, and then on the rest.

    python benchmarks/settings.py ../shared/traces --out settings

Each log is replayed with several seeds of the forest, and what it said of the jobs at their
submission is kept in ``OUT``. Then all the parameters below are evaluated off line on its first
half, with these predictions and with submissions that are shifted by up to a minute: a single
evaluation is one draw. Those that do best, on all first halves and on each, and those that `best`
has, are evaluated on the other halves and the whole logs, too. So is what `best` makes of the
forest's upper quantile: how far it goes from there to the requested time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
from quality import LOGS, WAIT_MAX, find, number, table

from cpdispatch.analyze.metrics import TAU_S
from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.best import Best
from cpdispatch.best.evaluation import OnPool, Parameters
from cpdispatch.campaign import Shared, Task, Workers, run
from cpdispatch.decision import Decision
from cpdispatch.errors import CpdispatchError
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.predict.forest import Forest
from cpdispatch.simulator import simulate
from cpdispatch.system import System

HOUR_S = 3_600
THRESHOLDS_S = (50_000, 100_000, 150_000, 200_000, 300_000)
STRICT_S = 50_000
"""How much later than the threshold predictions are no longer believed."""
WIDTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
ROOMS = ((4 * HOUR_S, 0.0), *product((1 * HOUR_S, 4 * HOUR_S, 12 * HOUR_S), (0.03, 0.06, 0.1)))
"""Expected durations from which jobs leave a share free, and the share."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How far, in orders of magnitude, from the upper quantile to the requested time."""
HALF_WAY = 0.5
DRAWS, SHIFT_S = 4, 60
ALL, FIRST, SECOND = "whole", "first half", "second half"


@dataclass(slots=True)
class Listener:
    """`best` without off-line evaluation; keeps what is said of each job when it is first seen."""

    best: Best = field(default_factory=lambda: Best(adapt=False))
    name: str = "listener"
    said: dict[int, tuple[int, int]] = field(default_factory=dict)

    def dispatch(self, instance: Instance) -> Decision:
        queue = instance.queue
        columns = (queue.id.tolist(), queue.expected_s.tolist(), queue.upper_s.tolist())
        for id, expected_s, upper_s in zip(*columns, strict=True):
            self.said.setdefault(id, (expected_s, upper_s))
        return self.best.dispatch(instance)


def told(log: tuple[Workload, System], seed: int) -> Past:
    """The jobs of a log by submission, with what the forest said of them on line."""
    workload, system = log
    listener = Listener()
    simulate(workload, system, listener, predictor=Forest(seed=seed))
    jobs = workload.table
    order = np.argsort(jobs.submit_s, kind="stable")
    expected_s, upper_s = np.array([listener.said[id] for id in jobs.id.tolist()]).T
    columns = (jobs.submit_s, jobs.units * jobs.request[:, 0], jobs.requested_s, expected_s,
               upper_s, workload.runtime_s)  # fmt: skip
    return Past(*(np.ascontiguousarray(column[order], dtype=np.int64) for column in columns))


def draws(log: str) -> list[str]:
    """What the draws of a log are called."""
    return [f"{log} {seed}" for seed in range(DRAWS)]


class Past(NamedTuple):
    """The jobs of a log by submission, arrays of shape (jobs,), times in seconds."""

    submit_s: IntArray
    processors: IntArray
    requested_s: IntArray
    expected_s: IntArray
    upper_s: IntArray
    runtime_s: IntArray

    def on_pool(self, total: int) -> OnPool:
        """The jobs on a pool of so many processors."""
        block = job_block(
            id=range(len(self.submit_s)), submit_s=self.submit_s, units=self.processors,
            requested_s=self.requested_s, expected_s=self.expected_s, upper_s=self.upper_s,
            request=np.ones((len(self.submit_s), 1), dtype=np.int64),
        )  # fmt: skip
        return OnPool(JobTable(block), self.runtime_s, total, self.processors)


def part(past: Past, which: str, share: float) -> Past:
    """Jobs that last, at most, what a share of the way to the requested time says."""
    half = len(past.submit_s) // 2
    of = {ALL: slice(None), FIRST: slice(half), SECOND: slice(half, None)}[which]
    some = Past(*(column[of].copy() for column in past))
    way = some.upper_s ** (1 - share) * some.requested_s**share
    return some._replace(upper_s=way.astype(np.int64))


def evaluations(
    which: str, total: int, parameters: Parameters | None, share: float, *pasts: Past
) -> FloatArray:
    """Mean bounded slowdown and longest wait, seconds, of each draw, shape (draws, 2); by EASY."""
    found = []
    for draw, past in enumerate(pasts):
        some = part(past, which, share)
        shifts_s = np.random.default_rng(draw).integers(0, SHIFT_S, len(some.submit_s))
        some.submit_s[:] = np.sort(some.submit_s + shifts_s)
        wait_s = some.on_pool(total).wait_s(parameters)
        slowdown = (wait_s + some.runtime_s) / np.maximum(some.runtime_s, TAU_S)
        found.append((np.maximum(slowdown, 1).mean(), wait_s.max()))
    return np.array(found)


def shipped() -> Parameters:
    best = Best(adapt=False)
    return Parameters(best.threshold_s, best.strict_s, best.long_s, best.keep, best.width)


def tried() -> Iterator[Parameters]:
    """All the parameters that are tried."""
    yield shipped()
    for threshold_s, (long_s, keep), width in product(THRESHOLDS_S, ROOMS, WIDTHS):
        parameters = Parameters(threshold_s, threshold_s + STRICT_S, long_s, keep, width)
        if parameters != shipped():
            yield parameters


Key = tuple[str, str, Parameters | None, float]
"""A log, a part of it, parameters, or None for EASY, and a share."""


class Evaluated:
    """The evaluations of a campaign, made when they are asked for and kept in a folder."""

    def __init__(
        self, logs: Iterable[str], pasts: dict[str, Past], folder: Path, workers: int
    ) -> None:
        self.logs = tuple(logs)
        self._pasts = pasts
        self._folder = folder
        self._workers = Workers(workers)
        self._totals = {log.name: log.processors for log in LOGS}
        self._found: dict[Key, FloatArray] = {}

    def make(
        self,
        which: Sequence[str],
        tried: Iterable[Parameters],
        shares: Sequence[float] = (HALF_WAY,),
    ) -> None:
        """Evaluate EASY and these parameters on parts of all logs."""
        ways = ((None, HALF_WAY), *product(tried, shares))
        keys = {
            f"{log} {part} {each or 'easy'} {share}": (log, part, each, share)
            for log, part, (each, share) in product(self.logs, which, ways)
        }
        tasks = [
            Task(name, (part, self._totals[log], each, share, *map(Shared, draws(log))))
            for name, (log, part, each, share) in keys.items()
        ]
        about = {"draws": DRAWS, "shift_s": SHIFT_S}
        found = run(
            tasks, evaluations, shared=self._pasts, workers=self._workers, folder=self._folder,
            about=about, progress=tell,
        )  # fmt: skip
        self._found |= {keys[name]: figures for name, figures in found.items()}

    def slowdown(
        self, log: str, which: str, parameters: Parameters | None, share: float = HALF_WAY
    ) -> float:
        """Mean over the draws."""
        return float(self._found[log, which, parameters, share][:, 0].mean())

    def wait(self, log: str, which: str, parameters: Parameters, share: float = HALF_WAY) -> float:
        """The longest wait relative to EASY's."""
        mine, easy = (
            self._found[log, which, parameters, share],
            self._found[log, which, None, HALF_WAY],
        )
        return float(mine[:, 1].mean() / easy[:, 1].mean())

    def score(
        self, parameters: Parameters, logs: Sequence[str], share: float = HALF_WAY
    ) -> tuple[float, float]:
        """Slowdown on first halves relative to EASY, geometric mean over logs; its standard error.

        It is inf where a job of one log waits for too long.
        """
        if max(self.wait(log, FIRST, parameters, share) for log in logs) > WAIT_MAX:
            return inf, 0.0
        ratios = np.array([
            self._found[log, FIRST, parameters, share][:, 0] / self.slowdown(log, FIRST, None)
            for log in logs
        ])  # fmt: skip
        scores = np.exp(np.log(ratios).mean(axis=0))
        return float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(DRAWS))


def tell(done: float, tasks: int) -> None:
    print(f"\r{done:.0f} of {tasks}", end="\n" if done >= tasks else "", file=sys.stderr)


def named(parameters: Parameters) -> str:
    """As a user would write them."""
    return (
        f"threshold={parameters.threshold_s},strict={parameters.strict_s},long={parameters.long_s},"
        f"keep={parameters.keep:g},width={parameters.width:g}"
    )


def report(evaluated: Evaluated) -> Iterator[str]:
    """Which parameters the first halves choose, and what those make of the rest."""
    settings, logs = list(tried()), evaluated.logs
    evaluated.make([FIRST], settings)
    ranking = sorted(settings, key=lambda each: evaluated.score(each, logs))
    own = {log: min(settings, key=lambda each: evaluated.score(each, [log])) for log in logs}
    yield f"First halves, {len(settings)} settings; slowdown relative to EASY, mean of all logs:\n"
    rows = []
    for each in dict.fromkeys([*ranking[:10], shipped()]):
        score, error = evaluated.score(each, logs)
        slowdowns = [number(evaluated.slowdown(log, FIRST, each)) for log in logs]
        rows.append([named(each), number(score, ".3f"), number(error, ".3f"), *slowdowns])
    yield from table(["parameters", "relative", "standard error", *logs], rows)
    evaluated.make([FIRST, SECOND, ALL], dict.fromkeys([ranking[0], shipped(), *own.values()]))
    rows = []
    for log in logs:
        choices = {
            "EASY": None,
            "as shipped": shipped(),
            "all logs": ranking[0],
            "this log": own[log],
        }
        for choice, these in choices.items():
            rows.append([
                log, choice, "" if these is None else named(these),
                *(number(evaluated.slowdown(log, which, these)) for which in (FIRST, SECOND, ALL)),
                "" if these is None else number(evaluated.wait(log, ALL, these), ".2f"),
            ])  # fmt: skip
    yield "Chosen by the first halves:\n"
    head = ["log", "chosen by", "settings", FIRST, SECOND, ALL, "wait max / EASY"]
    yield from table(head, rows, texts=3)
    evaluated.make([FIRST, SECOND, ALL], [shipped()], SHARES)
    rows = []
    for share in SHARES:
        score, error = evaluated.score(shipped(), logs, share)
        halves = (
            " / ".join(
                number(evaluated.slowdown(log, which, shipped(), share))
                for which in (FIRST, SECOND, ALL)
            )
            for log in logs
        )
        longest = max(evaluated.wait(log, FIRST, shipped(), share) for log in logs)
        figures = (number(score, ".3f"), number(error, ".3f"), number(longest, ".2f"))
        rows.append([f"{share:g}", *figures, *halves])
    yield f"From the upper quantile to the requested time; {FIRST} / {SECOND} / {ALL}:\n"
    yield from table(["share", "relative", "standard error", "wait max / EASY", *logs], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, help="folder of public logs (.swf.gz)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    given = parser.parse_args(arguments)
    logs = {log.name: found for log in LOGS if (found := find(log.name, given.traces))}
    tasks = [
        Task(name, (Shared(log), seed)) for log in logs for seed, name in enumerate(draws(log))
    ]
    pasts = run(
        tasks, told, shared=logs, workers=Workers(given.workers), folder=given.out / "told",
        about={"said": "at submission"}, progress=tell,
    )  # fmt: skip
    evaluated = Evaluated(logs, pasts, given.out / "evaluated", given.workers)
    print(*report(evaluated), sep="\n")
    return 0


if __name__ == "__main__":
    # Workers have to find what they are sent: it must not be in __main__.
    import settings

    try:
        sys.exit(settings.main())
    except CpdispatchError as error:
        sys.exit(str(error))
