"""The engine against all plans of small instances with every extra: proofs, bounds, excess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from cpdispatch.decision import Certificate
from cpdispatch.models.engine import Engine, warm_up
from cpdispatch.models.objective import OBJECTIVES
from cpdispatch.models.part_search import MODELS
from tests.models.test_engine import check
from tests.models.test_part import ALL
from tests.oracles.exhaustive_plans import EXTRAS, contested, optimum

SEEDS = range(150)
EXCESS = 0.01
"""How much the values may lie above the optima in the mean."""


def engine_of(seed: int) -> Engine:
    """One of the engines, mostly those that minimise slowdown; the clock ends none of them."""
    objective = "slowdown" if seed % 2 else sorted(OBJECTIVES)[seed // 2 % len(OBJECTIVES)]
    return Engine(
        "hcp" if seed % 5 < 3 else sorted(MODELS)[seed % len(MODELS)], limit_s=10.0,
        patience=1e-3, objective=objective, reserve=1 if seed % 4 == 0 else ALL,
        release=seed % 3 == 0,
    )  # fmt: skip


@cache
def told(seed: int) -> tuple[Certificate, float, frozenset[str]]:
    """What the engine says of an instance, the least value, and the extras of the instance."""
    instance, extras = contested(np.random.default_rng(seed))
    one = engine_of(seed)
    decision = one.dispatch(instance)
    check(instance, one, decision)
    return decision.certificate, optimum(instance, one), frozenset(extras)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    for name in MODELS:
        warm_up(name)
    yield
    told.cache_clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_lies_above_the_optimum_and_what_is_called_optimal_is_so(seed: int) -> None:
    said, best, _ = told(seed)
    assert said.value is not None
    assert said.bound is not None
    assert said.bound <= best * (1 + 1e-12)
    assert said.value >= best * (1 - 1e-12)
    if said.status == "optimal":
        assert said.value == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_the_values_lie_little_above_the_optima_in_the_mean() -> None:
    found = [told(seed)[:2] for seed in SEEDS]
    excess = np.array([(said.value or 0.0) / best - 1 if best else 0.0 for said, best in found])
    assert excess.mean() <= EXCESS
    for extra in EXTRAS:
        assert excess[[extra in told(seed)[2] for seed in SEEDS]].mean() <= EXCESS


def test_the_instances_have_every_extra_and_most_of_them_something_to_decide() -> None:
    extras = Counter(extra for seed in SEEDS for extra in told(seed)[2])
    assert min(extras[extra] for extra in EXTRAS) >= 20
    decided = [told(seed)[0].phases_ms for seed in SEEDS]
    assert sum("incumbent" in phases for phases in decided) > len(SEEDS) / 2


@pytest.mark.parametrize("seed", [320, 700, 896, 1376])
def test_starved_jobs_use_what_their_bound_leaves(seed: int) -> None:
    """As early as possible, they would make the plan 24 to 110 % worse."""
    said, best, extras = told(seed)
    assert "starvation" in extras
    assert not engine_of(seed).release
    assert said.value == pytest.approx(best)
