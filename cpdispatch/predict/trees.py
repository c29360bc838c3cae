"""A forest of regression trees that keeps in each leaf the runtimes that it was grown from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.campaign import threads
from cpdispatch.compile import allocating, kernel
from cpdispatch.extra import needed

TREES, LEAF, TRIED = 20, 8, 0.7
"""How many trees, fewest jobs of a leaf, share of the features that a split is chosen from."""
_ROUNDING = 1e-9


class Trees(NamedTuple):
    """A forest: the nodes of all trees, and the runtimes of the jobs in each of its leaves."""

    feature: IntArray
    """Of each node, the feature that it splits by; shape (nodes,), as the next three."""
    threshold: FloatArray
    """Jobs go left whose feature is at most this."""
    left: IntArray
    """The node to the left; -1 in leaves."""
    right: IntArray
    root: IntArray
    """The root of each tree, shape (trees,)."""
    first: IntArray
    """Where each node's runtimes begin, shape (nodes + 1,); none but leaves have any."""
    runtime_s: IntArray
    """Runtimes, ascending in each leaf, shape (trees * jobs,), s."""


def grow(features: NDArray[np.float32], runtime_s: IntArray, seed: int) -> Trees:
    """Grow a forest of extremely randomised trees towards the logarithms of runtimes.

    It is the same one whatever the number of threads that grow it.

    Parameters
    ----------
    features : float32 array, shape (jobs, features)
    runtime_s : int array, shape (jobs,)

    Raises
    ------
    UsageError
        When scikit-learn is not installed.

    References
    ----------
    Geurts, Ernst, Wehenkel, "Extremely randomized trees", Machine Learning 63, 2006.
    """
    forest = needed("sklearn.ensemble").ExtraTreesRegressor(
        n_estimators=TREES, min_samples_leaf=LEAF, max_features=TRIED, random_state=seed,
        n_jobs=threads(),
    )  # fmt: skip
    forest.fit(features, np.log(np.maximum(runtime_s, 1)))
    trees = [each.tree_ for each in forest.estimators_]
    total = np.cumsum([0, *(tree.node_count for tree in trees)])
    root = total[:-1]
    ascending = np.argsort(runtime_s)
    leaf = (forest.apply(features[ascending]) + root).T.reshape(-1)
    runtimes = np.tile(runtime_s[ascending], TREES)
    jobs = np.bincount(leaf, minlength=total[-1])
    return Trees(
        feature=np.concatenate([tree.feature for tree in trees]),
        threshold=np.concatenate([tree.threshold for tree in trees]),
        left=children([tree.children_left for tree in trees], root),
        right=children([tree.children_right for tree in trees], root),
        root=root,
        first=np.concatenate(([0], np.cumsum(jobs))),
        runtime_s=runtimes[np.argsort(leaf, kind="stable")],
    )


def children(of: list[IntArray], root: IntArray) -> IntArray:
    """The children of the nodes of trees that are put one after the other; -1 for a leaf."""
    shifted = [np.where(each < 0, -1, each + at) for each, at in zip(of, root, strict=True)]
    return np.concatenate(shifted)


@allocating
def leaves(trees: Trees, features: NDArray[np.float32]) -> IntArray:
    """The leaf of each tree that a job with these features belongs to, shape (trees,)."""
    found = np.empty(len(trees.root), dtype=np.int64)
    for tree in range(len(trees.root)):
        node = trees.root[tree]
        while trees.left[node] >= 0:
            goes_left = features[trees.feature[node]] <= trees.threshold[node]
            node = trees.left[node] if goes_left else trees.right[node]
        found[tree] = node
    return found


@kernel
def weight(trees: Trees, leaf: IntArray, most_s: int) -> float:
    """What the runtimes of at most so many seconds weigh; all in one leaf weigh 1 together."""
    total = 0.0
    for node in leaf:
        runtimes = trees.runtime_s[trees.first[node] : trees.first[node + 1]]
        total += np.searchsorted(runtimes, most_s, side="right") / len(runtimes)
    return total


@kernel
def quantile(trees: Trees, leaf: IntArray, level: float, above_s: int) -> int:
    """The quantile of the weighted runtimes in some leaves of those that are longer than something.

    Parameters
    ----------
    leaf : int array, shape (trees,)
    level : float
        From 0 to 1: this share of the weight is that of the quantile and of shorter runtimes.
    above_s : int
        -1 for the quantile of all runtimes.

    Returns
    -------
    int
        Seconds; -1 when no runtime is longer than ``above_s``.

    References
    ----------
    Meinshausen, "Quantile regression forests", JMLR 7, 2006.
    """
    high = -1
    for node in leaf:
        high = max(high, trees.runtime_s[trees.first[node + 1] - 1])
    if high <= above_s:
        return -1
    low, below = above_s, weight(trees, leaf, above_s)
    aim = below + level * (len(leaf) - below) - _ROUNDING
    while high - low > 1:
        middle = (low + high) // 2
        if weight(trees, leaf, middle) >= aim:
            high = middle
        else:
            low = middle
    return high


@allocating
def quantiles(
    trees: Trees, features: NDArray[np.float32], levels: FloatArray, above_s: int
) -> IntArray:
    """What `quantile` says of a job with these features at each level, shape (levels,), s."""
    leaf = leaves(trees, features)
    found = np.empty(len(levels), dtype=np.int64)
    for k in range(len(levels)):
        found[k] = quantile(trees, leaf, levels[k], above_s)
    return found
