"""What planning brings on line: rules and the engine under the same bound on waits.

    python benchmarks/planning.py --traces DIR --out planning.jsonl    # then docs/tables.py --write

Three loads are drawn twenty times each: ``eurora`` and ``kit`` are generated with another seed,
``gaia`` is a part of its log with shifted submissions. Each draw is replayed under each dispatcher,
with requested times and with real runtimes; EASY by SAF with predicted durations, too, which are
believed in three ways. The engine's work is counted, so that what else the machine does changes no
plan; it does change the time of a decision. A line of the file is one replay; what is there, or in
``docs/data/planning_runs.csv``, is not replayed again: remove that table when the engine has
changed. At the end it is written anew, with every replay; ``docs/data/planning.csv``: slowdowns and
longest waits relative to those under EASY on the same draw; ``docs/data/planning_bound.csv``: the
same with and without the bound; ``docs/data/planning_settings.csv``: slowdowns of other settings
of the engine relative to those of its defaults; and ``docs/data/planning_predicted.csv``: slowdowns
relative to those of EASY by SAF with requested times.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import script
from results import Results, geometric, keep, rows_of, write

from cpdispatch.arrays import FloatArray
from cpdispatch.dispatch import Settings
from cpdispatch.jobs import Workload
from cpdispatch.models import budget, engine
from cpdispatch.simulator import simulate
from cpdispatch.system import System, find
from cpdispatch.workloads import prepare
from cpdispatch.workloads.generate import EURORA, KIT, generate
from cpdispatch.workloads.shake import shaken

LOADS = ("eurora", "gaia", "kit")
GAIA, GAIA_JOBS = "UniLu-Gaia-2014-1.swf.gz", slice(9_000, 12_000)
"""Its first jobs do not wait."""
DRAWS = 20
EASY = "easy"
RULES = ("easy-spf-spf:wait=0.8", "easy-saf-saf:wait=0.8")
SEARCH = "hcp:limit=0.2,cp=off"
ENGINE = ("hcp:limit=0.2", SEARCH)
SETTINGS = tuple(
    f"{SEARCH},{setting}" for setting in ("reserve=all", "objective=pp_slowdown", "release=off")
)
"""Of the engine; what they bring is seen beside `SEARCH`."""
UNBOUNDED = ("easy-spf-spf", "easy-saf-saf", f"{SEARCH},wait=off")
"""What the bound costs."""
PREDICTORS = ("walltime", "actual")
SAF, PREDICTED = "easy-saf-saf:wait=0.8", "mixture"
BELIEVING = (SAF, f"{SAF},limits=upper", f"{SAF},limits=requested")
"""With the predictor `PREDICTED`: for all that is planned, for queued jobs, for the order alone."""
UNHURRIED = 10
"""How many times its limit a decision may take on the clock."""


class Budget(budget.Budget):
    """A budget whose counted work is that of the limit, and whose clock goes slower.

    So the plans are those of a machine that does nothing else.
    """

    def __init__(self, limit_s: float, live: bool, work_s: float | None = None) -> None:
        super().__init__(UNHURRIED * limit_s, live, limit_s if work_s is None else work_s)


@dataclass(frozen=True, slots=True)
class Case:
    """A replay of one draw of a load."""

    load: str
    draw: int
    dispatcher: str
    predictor: str


@dataclass(frozen=True, slots=True)
class Figures:
    slowdown: float
    wait_s_max: int
    wait_s_mean: float
    decision_ms: float | None


def drawn(load: str, draw: int, gaia: Workload) -> tuple[Workload, System]:
    """A draw of a load."""
    system = find(load)
    if load == "gaia":
        return shaken(gaia, draw), system
    mix, jobs = (EURORA, 1_500) if load == "eurora" else (KIT, 3_000)
    return generate(mix, jobs, draw), system


def measure(gaia: Workload, case: Case) -> Figures:
    """Make one replay."""
    engine.Budget = Budget  # type: ignore[misc]
    workload, system = drawn(case.load, case.draw, gaia)
    run = simulate(
        workload,
        system,
        case.dispatcher,
        predictor=case.predictor,
        settings=Settings(seed=case.draw),
    )
    found, ms = run.metrics, run.decision_table.column("ms").to_numpy()
    return Figures(
        found["bounded_slowdown_mean"], int(found["wait_s_max"]), found["wait_s_mean"],
        None if np.isnan(ms.mean()) else float(ms.mean()),
    )  # fmt: skip


RUNS_HEAD = (
    "load", "predictor", "dispatcher", "draw", "slowdown", "wait_s_max", "wait_s_mean",
    "decision_ms",
)  # fmt: skip


def runs(done: dict[Case, Figures]) -> Iterator[list[str]]:
    """Every replay, for the table of them."""
    for case in sorted(
        done, key=lambda case: (case.load, case.predictor, case.dispatcher, case.draw)
    ):
        figures = done[case]
        ms = "" if figures.decision_ms is None else f"{figures.decision_ms:.1f}"
        yield [
            case.load, case.predictor, case.dispatcher, str(case.draw), f"{figures.slowdown:.4f}",
            str(figures.wait_s_max), f"{figures.wait_s_mean:.1f}", ms,
        ]  # fmt: skip


def earlier() -> Iterator[tuple[Case, Figures]]:
    """The replays that the table of them has."""
    for load, predictor, name, draw, slowdown, longest_s, mean_s, ms in rows_of("planning_runs"):
        figures = Figures(float(slowdown), int(longest_s), float(mean_s), float(ms) if ms else None)
        yield Case(load, int(draw), name, predictor), figures


HEAD = (
    "load", "predictor", "dispatcher", "draws", "slowdown", "slowdown_low", "slowdown_high",
    "best_rule", "best_rule_low", "best_rule_high", "wait_max", "decision_ms",
)  # fmt: skip


def rows(done: dict[Case, Figures]) -> Iterator[list[str]]:
    """Of each load, predictor and dispatcher: figures over all draws that EASY and the rules have.

    The best rule is the one with the lowest geometric mean on this load.
    """
    dispatchers = [*RULES, *ENGINE]
    for load in LOADS:
        for predictor in PREDICTORS:
            of: dict[str, dict[int, Figures]] = {}
            for case, figures in done.items():
                if (case.load, case.predictor) == (load, predictor):
                    of.setdefault(case.dispatcher, {})[case.draw] = figures
            if not all(name in of for name in (EASY, *RULES)):
                continue
            draws = sorted(set.intersection(*(set(of[name]) for name in (EASY, *RULES))))

            def over(name: str, other: str, at: list[int], of: dict = of) -> FloatArray:
                return np.array([of[name][k].slowdown / of[other][k].slowdown for k in at])

            best = min(RULES, key=lambda name: float(np.log(over(name, EASY, draws)).mean()))
            for name in dispatchers:
                at = [k for k in draws if k in of.get(name, {})]
                if not at:
                    continue
                waits = max(of[name][k].wait_s_max / max(of[EASY][k].wait_s_max, 1) for k in at)
                ms = [taken for k in at if (taken := of[name][k].decision_ms) is not None]
                yield [
                    load, predictor, name, str(len(at)), *geometric(over(name, EASY, at)),
                    *geometric(over(name, best, at)), f"{waits:.2f}",
                    f"{np.median(ms):.1f}" if ms else "",
                ]  # fmt: skip


BOUND_HEAD = (
    "load", "predictor", "dispatcher", "draws", "slowdown", "slowdown_low", "slowdown_high",
    "wait_max",
)  # fmt: skip


def bound_rows(done: dict[Case, Figures]) -> Iterator[list[str]]:
    """With and without the bound: figures over EASY's, on the draws that all of them have."""
    names = (*RULES, SEARCH, *UNBOUNDED)
    for load in LOADS:
        for predictor in PREDICTORS:
            at = [
                draw for draw in range(DRAWS)
                if all(Case(load, draw, name, predictor) in done for name in (EASY, *names))
            ]  # fmt: skip
            for name in names if at else ():
                pairs = [
                    (done[Case(load, k, name, predictor)], done[Case(load, k, EASY, predictor)])
                    for k in at
                ]
                ratios = np.array([of.slowdown / easy.slowdown for of, easy in pairs])
                longest = max(of.wait_s_max / max(easy.wait_s_max, 1) for of, easy in pairs)
                yield [
                    load, predictor, name, str(len(at)), *geometric(ratios), f"{longest:.2f}",
                ]  # fmt: skip


BESIDE_HEAD = (
    "load", "predictor", "dispatcher", "draws", "slowdown", "slowdown_low", "slowdown_high",
)  # fmt: skip


def predicted_rows(done: dict[Case, Figures]) -> Iterator[list[str]]:
    """Of EASY by SAF, with predicted and with known durations: the slowdown over that without."""
    for load in LOADS:
        for predictor, name in (*((PREDICTED, name) for name in BELIEVING), ("actual", SAF)):
            yield from _beside(done, load, (predictor, name), ("walltime", SAF))


def settings_rows(done: dict[Case, Figures]) -> Iterator[list[str]]:
    """Of other settings of the engine: the slowdown over that of its defaults."""
    for load in LOADS:
        for predictor in PREDICTORS:
            for name in SETTINGS:
                yield from _beside(done, load, (predictor, name), (predictor, SEARCH))


def _beside(
    done: dict[Case, Figures], load: str, one: tuple[str, str], other: tuple[str, str]
) -> Iterator[list[str]]:
    """The slowdown of a predictor and dispatcher over another one's, on the draws of both."""
    ratios = [
        figures.slowdown / done[beside].slowdown
        for case, figures in done.items()
        if (case.load, case.predictor, case.dispatcher) == (load, *one)
        and (beside := Case(load, case.draw, other[1], other[0])) in done
    ]
    if ratios:
        yield [load, *one, str(len(ratios)), *geometric(np.array(ratios))]


def main() -> None:
    every = [EASY, *RULES, *ENGINE, *SETTINGS, *UNBOUNDED]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=script.folder, required=True)
    parser.add_argument("--out", type=Path, default=Path("planning.jsonl"))
    parser.add_argument("--loads", nargs="+", default=LOADS, choices=LOADS)
    parser.add_argument("--draws", type=script.count, default=DRAWS)
    parser.add_argument("--dispatchers", nargs="+", default=every)
    parser.add_argument("--predictors", nargs="+", default=(*PREDICTORS, PREDICTED))
    parser.add_argument("--workers", type=script.count, default=2)
    given = parser.parse_args()
    gaia = prepare(given.traces / GAIA, "gaia")[0]
    gaia = gaia.take(np.arange(GAIA_JOBS.start, GAIA_JOBS.stop))
    done = Results(given.out, Case, Figures)
    done.update(earlier())
    cases = (
        Case(load, draw, name, predictor)
        for draw in range(given.draws)
        for load in given.loads
        for predictor in given.predictors
        for name in (BELIEVING if predictor == PREDICTED else given.dispatchers)
    )
    done.make(cases, measure, {"gaia": gaia}, given.workers)
    keep("planning_runs", [RUNS_HEAD, *runs(done)])
    write("planning", [HEAD, *rows(done)])
    write("planning_bound", [BOUND_HEAD, *bound_rows(done)])
    write("planning_settings", [BESIDE_HEAD, *settings_rows(done)])
    write("planning_predicted", [BESIDE_HEAD, *predicted_rows(done)])


if __name__ == "__main__":
    script.run(__file__)
