from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn")

from sklearn.ensemble import ExtraTreesRegressor

from cpdispatch.campaign.tasks import Line, connected
from cpdispatch.predict.trees import (
    LEAF,
    TREES,
    TRIED,
    Trees,
    grow,
    leaves,
    quantile,
    quantiles,
    weight,
)

DRAW = np.random.default_rng(0)
FEATURES = DRAW.normal(0, 3, (400, 5)).astype(np.float32)
RUNTIMES = np.exp(FEATURES[:, 0] + DRAW.normal(5, 1, 400)).astype(np.int64)


@pytest.fixture(scope="module")
def trees() -> Trees:
    return grow(FEATURES, RUNTIMES, seed=3)


def runtimes_in(trees: Trees, leaf: int) -> list[int]:
    return trees.runtime_s[trees.first[leaf] : trees.first[leaf + 1]].tolist()


def test_leaves_hold_the_runtimes_whose_mean_scikit_learn_predicts(trees: Trees) -> None:
    forest = ExtraTreesRegressor(
        n_estimators=TREES, min_samples_leaf=LEAF, max_features=TRIED, random_state=3
    )
    forest.fit(FEATURES, np.log(np.maximum(RUNTIMES, 1)))
    for job in DRAW.normal(0, 4, (50, 5)).astype(np.float32):
        found = [np.log(np.maximum(runtimes_in(trees, n), 1)).mean() for n in leaves(trees, job)]
        assert np.mean(found) == pytest.approx(forest.predict(job[np.newaxis])[0])


def test_every_tree_holds_every_runtime_once_ascending_in_each_leaf(trees: Trees) -> None:
    assert sorted(trees.runtime_s) == sorted(RUNTIMES.tolist() * TREES)
    for node in range(len(trees.left)):
        held = runtimes_in(trees, node)
        assert held == sorted(held)
        assert (len(held) >= LEAF) == (trees.left[node] < 0)


def test_the_forest_is_the_same_whatever_the_number_of_threads(trees: Trees) -> None:
    with connected(Line(threads=3)):
        together = grow(FEATURES, RUNTIMES, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(trees, together, strict=True))


LEAVES = st.lists(
    st.lists(st.integers(0, 20) | st.integers(0, 10**6), min_size=1, max_size=9),
    min_size=1,
    max_size=5,
)


def stumps(runtimes: list[list[int]]) -> Trees:
    """Trees that are one leaf each."""
    many = len(runtimes)
    none = np.full(many, -1, dtype=np.int64)
    return Trees(
        feature=none,
        threshold=np.zeros(many),
        left=none,
        right=none,
        root=np.arange(many),
        first=np.cumsum([0, *map(len, runtimes)]),
        runtime_s=np.concatenate([np.sort(each) for each in runtimes]).astype(np.int64),
    )


@given(LEAVES, st.floats(0.01, 1), st.integers(-1, 25))
@settings(deadline=None)
def test_the_quantile_is_the_first_runtime_that_reaches_its_share_of_the_weight(
    runtimes: list[list[int]], level: float, above_s: int
) -> None:
    trees = stumps(runtimes)
    weighted = sorted((s, 1 / len(leaf)) for leaf in runtimes for s in leaf if s > above_s)
    total = sum(one for _, one in weighted)
    reached = np.cumsum([one for _, one in weighted])
    assume(not np.isclose(reached, level * total, atol=1e-6).any() or level == 1)
    expected = next(
        (s for (s, _), sum in zip(weighted, reached, strict=True) if sum >= level * total - 1e-6),
        -1,
    )
    assert quantile(trees, trees.root, level, above_s) == expected


@given(st.integers(0, 50), st.lists(st.floats(0.01, 1), max_size=3), st.integers(-1, 2000))
@settings(deadline=None)
def test_quantiles_are_those_of_the_leaves_of_a_job(
    trees: Trees, job: int, levels: list[float], above_s: int
) -> None:
    leaf = leaves(trees, FEATURES[job])
    found = quantiles(trees, FEATURES[job], np.array(levels, dtype=np.float64), above_s)
    assert found.tolist() == [quantile(trees, leaf, level, above_s) for level in levels]


@given(LEAVES, st.integers(-1, 30))
@settings(deadline=None)
def test_the_weight_is_the_sum_of_shares(runtimes: list[list[int]], most_s: int) -> None:
    trees = stumps(runtimes)
    shares = [np.mean(np.array(leaf) <= most_s) for leaf in runtimes]
    assert weight(trees, trees.root, most_s) == pytest.approx(sum(shares))
