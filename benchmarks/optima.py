"""The engine against the least value of all plans, on random small instances with every extra.

    python benchmarks/optima.py --instances 5000 --folder optima    # then docs/tables.py --write

Instance k of `tests.oracles.exhaustive_plans` is answered by `hcp` and by an engine with other
settings, which differ with k; each answer is checked. An exhaustive search has the least value of
all plans that keep what the engine promises. At the end ``docs/data/optima.csv`` is written: how
many answers are called optimal, how many of these are not, how many bounds lie above the least
value, and the excess over it, of all instances and of those with each extra.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import script
from results import write

from cpdispatch.campaign import Task, Workers, run
from cpdispatch.models.engine import Engine, warm_up
from cpdispatch.models.part_search import MODELS

sys.path.append(str(Path(__file__).resolve().parent.parent))

from tests.models.test_exhaustive_plans import engine_of
from tests.models.test_part import wrong
from tests.oracles.exhaustive_plans import EXTRAS, contested, optimum

EXACT = 1e-6
"""Relative difference up to which a value is the least one: weights of the search are rounded."""
CHUNK = 50


@dataclass(frozen=True, slots=True)
class Said:
    """What an engine says of its plan, and what the checker finds."""

    value: float
    bound: float
    status: str
    least: float
    violations: int

    @property
    def excess(self) -> float:
        return self.value / self.least - 1 if self.least else 0.0

    @property
    def false_bound(self) -> bool:
        return self.bound > self.least * (1 + 1e-12)

    @property
    def optimal(self) -> bool:
        return self.status == "optimal"

    @property
    def false_optimal(self) -> bool:
        return self.optimal and self.excess > EXACT


@dataclass(frozen=True, slots=True)
class Line:
    """One instance: its number, its extras, and the answers of the engines."""

    instance: int
    extras: list[str]
    said: dict[str, Said]


def engines(number: int) -> Mapping[str, Engine]:
    """The engines that are asked for an instance."""
    return {"hcp": Engine("hcp"), "drawn settings": engine_of(number)}


def measure(first: int) -> list[Line]:
    """Ask for a chunk of the instances."""
    for name in MODELS:
        warm_up(name)
    lines = []
    for number in range(first, first + CHUNK):
        instance, extras = contested(np.random.default_rng(number))
        said = {}
        for name, engine in engines(number).items():
            decision = engine.dispatch(instance)
            told = decision.certificate
            said[name] = Said(
                told.value or 0.0, told.bound or 0.0, told.status, optimum(instance, engine),
                len(wrong(instance, decision)),
            )  # fmt: skip
        lines.append(Line(number, sorted(extras), said))
    return lines


HEAD = (
    "engine", "extra", "instances", "infeasible", "optimal_share", "false_optimal", "false_bounds",
    "least_share", "excess_mean", "excess_max",
)  # fmt: skip


def rows(lines: list[Line]) -> Iterator[list[str]]:
    """The figures of each engine, of all instances and of those with an extra."""
    for name in lines[0].said:
        for extra in ("all", *EXTRAS):
            of = [line.said[name] for line in lines if extra == "all" or extra in line.extras]
            excess = np.array([one.excess for one in of])
            yield [
                name, extra, str(len(of)), str(sum(one.violations > 0 for one in of)),
                f"{np.mean([one.optimal for one in of]):.3f}",
                str(sum(one.false_optimal for one in of)),
                str(sum(one.false_bound for one in of)), f"{np.mean(excess <= EXACT):.3f}",
                f"{excess.mean():.5f}", f"{excess.max():.3f}",
            ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=script.count, default=5000)
    parser.add_argument("--folder", type=Path, help="where an interrupted run goes on")
    parser.add_argument("--workers", type=script.count, default=2)
    given = parser.parse_args()
    tasks = [Task(str(first), (first,)) for first in range(0, given.instances, CHUNK)]
    chunks = run(
        tasks, measure, workers=Workers(given.workers), folder=given.folder,
        about={"engines": [str(engines(number)) for number in range(CHUNK)]},
    )  # fmt: skip
    write("optima", [HEAD, *rows([line for chunk in chunks.values() for line in chunk])])


if __name__ == "__main__":
    script.run(__file__)
