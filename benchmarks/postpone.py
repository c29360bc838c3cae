"""Schedule or postpone beside CP-SAT: each alone on the same small parts, for the same time.

    python benchmarks/postpone.py --dumps DUMPS     # of dumps.py; then docs/tables.py --write

The parts are those that the bounds and the local search over orders leave open. Both begin from the
plan of the local search, know what the bounds know, and have one core. At the end
``docs/data/postpone.csv`` is written: how many plans each made better, and how many it proved to be
the best; ``search`` alone, ``cp`` alone, or both together.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import script
from ortools.sat.python import cp_model_helper as cp_sat
from results import write

from cpdispatch.heuristics.postpone_search import PostponeSearch
from cpdispatch.heuristics.schedule_generation import ListSchedule
from cpdispatch.instance import load
from cpdispatch.models import part_search
from cpdispatch.models.budget import Budget
from cpdispatch.models.certificate import TOLERANCE
from cpdispatch.models.copies import CopiesModel
from cpdispatch.models.engine import Engine
from cpdispatch.models.moves import Whole
from cpdispatch.models.part import Part
from cpdispatch.models.part_search import CHUNK, SEARCHED
from cpdispatch.models.relaxation import Known, relax
from cpdispatch.models.search import configure
from cpdispatch.models.solver import shared

LIMITS_S = (0.02, 0.1, 1.0)
GROUPS = ((1, 6), (7, 12), (13, SEARCHED))
"""Parts by their jobs."""


def parts(folder: Path) -> Iterator[tuple[Part, ListSchedule, Known]]:
    """The parts of at most `SEARCHED` jobs that the bounds and the local search leave open."""
    engine = Engine("hcp", cp=False)
    for path in script.instances(folder):
        instance = engine.planned(load(path))
        for part in engine.parts(instance, engine.select(instance)):
            if len(part) > SEARCHED or part.settled.any():
                continue
            schedule = engine.solve(part, Budget(10.0, live=False)).schedule
            upper, known = part.weights.sum(schedule.start_s), relax(part, schedule.start_s)
            if upper - known.least > TOLERANCE * upper:
                yield part, schedule, known


def by_search(part: Part, schedule: ListSchedule, known: Known, seconds: float) -> tuple[int, bool]:
    """What the search finds: the cost of its best plan, and whether no other costs less."""
    began = perf_counter()
    search = PostponeSearch(
        part.generator, part.weights.sum(schedule.start_s), known.least,
        np.minimum(part.latest_s, known.latest_s), part.alike,
    )  # fmt: skip
    while not search.exhausted and perf_counter() < began + seconds:
        search.run(CHUNK)
    return search.best_cost, search.proven


def by_cp(
    part: Part, schedule: ListSchedule, known: Known, seconds: float
) -> tuple[int, bool] | None:
    """The same of CP-SAT; None where its model would be too large."""
    before, began = part.weights.sum(schedule.start_s), perf_counter()
    move = Whole(CopiesModel, part, known, 0).next(schedule, 1.0)
    if move is None:
        return None
    given = cp_sat.SatParameters()
    left_s = max(began + seconds - perf_counter(), 0.001)
    configure(given, 0, float("inf"), left_s)
    response = shared().solve(move.model, given, perf_counter() + left_s + 5.0)
    assert response is not None
    found = move.answer(response)
    cost = before
    if found.schedule is not None:
        cost = min(cost, part.weights.sum(found.schedule.start_s))
    return cost, found.bound is not None and cost - found.bound <= TOLERANCE * cost


HEAD = (
    "jobs", "limit_s", "parts", "search_better", "search_proven", "cp_posed", "cp_better",
    "cp_proven", "search_wins", "cp_wins", "proven_by_either",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dumps", type=script.folder, required=True)
    given = parser.parse_args()
    shared().warm_up()
    part_search.SEARCHED = 0  # the local search alone makes the first plans
    counts: dict[tuple[str, float], Counter[str]] = {
        (f"{low}-{high}", limit_s): Counter() for low, high in GROUPS for limit_s in LIMITS_S
    }
    for part, schedule, known in parts(given.dumps):
        group = next(f"{low}-{high}" for low, high in GROUPS if low <= len(part) <= high)
        before = part.weights.sum(schedule.start_s)
        for limit_s in LIMITS_S:
            mine, proven = by_search(part, schedule, known, limit_s)
            asked = by_cp(part, schedule, known, limit_s)
            theirs, closed = asked or (before, False)
            # What is proven is so.
            assert not proven or theirs >= mine
            assert not closed or mine >= theirs * (1 - TOLERANCE)
            counts[group, limit_s].update({
                "parts": 1, "search_better": mine < before, "search_proven": proven,
                "cp_posed": asked is not None, "cp_better": theirs < before, "cp_proven": closed,
                "search_wins": mine < theirs, "cp_wins": theirs < mine,
                "proven_by_either": proven or closed,
            })  # fmt: skip
    rows = (
        [group, f"{limit_s:g}", *(str(count[name]) for name in HEAD[2:])]
        for (group, limit_s), count in counts.items()
    )
    write("postpone", [HEAD, *rows])


if __name__ == "__main__":
    script.run(__file__)
