"""Mixed policies: the weights of a score, by an evolution strategy, on week-long simulations.

The score of a job is w . x over x = (q, p, wait, p / q, expansion, area), smallest first, with p
the expected duration, ``|w|_1`` = 1. So that weights mean something, each feature is measured in
standard deviations of that feature over the jobs of the training half (at their starts under
EASY-FCFS-FCFS); policy files hold weights of the features as they are, in seconds and processors.
The twelve pure orders are the corners: smallest area is w = (0, 0, 0, 0, 0, 1), first come first
served is w = (0, 0, -1, 0, 0, 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.analyze import metrics
from cpdispatch.arrays import FloatArray
from cpdispatch.errors import unknown
from cpdispatch.extra import needed
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import FEATURES, NO_THRESHOLD, Order, find, mix
from cpdispatch.jobs import Workload
from cpdispatch.learn.measure import MEASURES, OBJECTIVES, Meter
from cpdispatch.learn.place import HERE, Place, about
from cpdispatch.learn.weeks import MANY, TEST, TRAIN, consecutive, halves, left_out, with_jobs
from cpdispatch.parameters import whole
from cpdispatch.system import System

if TYPE_CHECKING:
    import pandas as pd

PURE: Mapping[str, tuple[int, int]] = {
    "fcfs": (2, -1), "lcfs": (2, 1), "spf": (1, 1), "lpf": (1, -1), "sqf": (0, 1), "lqf": (0, -1),
    "saf": (5, 1), "laf": (5, -1), "lexp": (4, -1), "sexp": (4, 1), "srf": (3, 1), "lrf": (3, -1),
}  # fmt: skip
"""The pure orders as corners: the feature and the sign of its weight."""
MODES = ("hindsight", "trained", "previous")
STEP = 0.3
"""First standard deviation of the search, in units of the weights."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """How mixed policies are sought.

    Attributes
    ----------
    evaluations : int
        Simulations of a week that a search may take, the pure policies included; the search on
        the training half takes as many of all its weeks.
    weeks : int or None
        Only so many weeks before and after the midpoint.
    backfill : str or None
        Order of backfilling; None: the mixed policy itself.
    threshold_s : int
    objective : str
        A name in `OBJECTIVES`, of which the sum over weeks is to be small.
    seed : int
    """

    evaluations: int = 300
    weeks: int | None = None
    backfill: str | None = None
    threshold_s: int = NO_THRESHOLD
    objective: str = "slowdown"
    seed: int = 0

    def __post_init__(self) -> None:
        whole("--evaluations", self.evaluations, len(PURE) + 1, MANY)
        whole("--threshold", self.threshold_s, 1)
        if self.weeks is not None:
            whole("--weeks", self.weeks, 1)
        whole("--seed", self.seed, 0)
        if self.backfill is not None:
            find(self.backfill)
        if self.objective not in OBJECTIVES:
            raise unknown("objective", self.objective, OBJECTIVES)

    def dispatcher(self, order: Order) -> Backfill:
        """EASY with a primary order."""
        second = order if self.backfill is None else find(self.backfill)
        return Backfill(order, second, self.threshold_s)


@dataclass(frozen=True, eq=False)
class Mixed:
    """What was found.

    Attributes
    ----------
    mixing : Mixing
    log : str
    scale : float64 array, shape (6,)
        What one unit of each feature is.
    trained : float64 array, shape (6,)
        The best weights of the training half.
    weeks : DataFrame
        One row a week of the test half: its jobs, the objective under each pure order, under the
        best of them, and under the mixed policy that is best in this week (hindsight), in the
        training half (trained), in the week before (previous).
    weights : DataFrame
        One row a week: the week's best weights, ``|w|_1`` = 1.
    left_out : dict of str to int
        By half, its jobs that are submitted in an incomplete last week.
    """

    mixing: Mixing
    log: str
    scale: FloatArray
    trained: FloatArray
    weeks: pd.DataFrame
    weights: pd.DataFrame
    left_out: dict[str, int]

    @property
    def policy(self) -> Backfill:
        """EASY with the policy of the training half."""
        return self.mixing.dispatcher(order_of(self.trained, self.scale))

    @property
    def summary(self) -> dict[str, Any]:
        """Sums over the test weeks, and how far the best weights move from week to week."""
        columns = [*PURE, "pure", *MODES]
        sums = {name: float(self.weeks[name].sum()) for name in columns}
        best = self.weights[list(FEATURES)].to_numpy()
        moved = np.abs(np.diff(best, axis=0)).sum(axis=1)
        return {
            "log": self.log,
            "objective": self.mixing.objective,
            "evaluations": self.mixing.evaluations,
            "seed": self.mixing.seed,
            "weeks": len(self.weeks),
            "left_out": self.left_out,
            "sum": sums,
            "relative_to_fcfs": {
                name: value / sums["fcfs"] if sums["fcfs"] else None for name, value in sums.items()
            },
            "best_gain_in_a_week": float(
                (self.weeks["pure"] / self.weeks["hindsight"].clip(lower=1e-9)).max()
            ),
            "weeks_previous_beats_saf": int((self.weeks["previous"] < self.weeks["saf"]).sum()),
            "weight_moved_mean": float(moved.mean()) if len(moved) else None,
            "trained": dict(zip(FEATURES, self.trained.tolist(), strict=True)),
            "unit": dict(zip(FEATURES, self.scale.tolist(), strict=True)),
        }


def order_of(weights: FloatArray, scale: FloatArray) -> Order:
    """The mixed policy of weights of the features in units of ``scale``; ``|w|_1`` is made 1."""
    unit = weights / np.abs(weights).sum() / scale
    return mix(dict(zip(FEATURES, unit.tolist(), strict=True)))


def corner(name: str) -> FloatArray:
    """The weights of a pure order, shape (6,)."""
    feature, sign = PURE[name]
    weights = np.zeros(len(FEATURES))
    weights[feature] = sign
    return weights


def learn(
    workload: Workload, system: System, mixing: Mixing = Mixing(), place: Place = HERE
) -> Mixed:
    """Seek the best mixed policy of each week, of the training half, and see what they are worth.

    The log is split at its temporal midpoint. Its weeks are replayed one by one, each from an empty
    system, and all jobs of a week count. A week in which no job fits the system is left out.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.
    system : System
    mixing : Mixing
    place : Place
        Where the weeks are simulated.

    Raises
    ------
    InputError
        When the log is shorter than two weeks.
    UsageError
        When the library cma is not installed.

    References
    ----------
    Zrigui, doctoral thesis, chapter 5. Hansen, "The CMA evolution strategy: a tutorial",
    arXiv:1604.00772.
    """
    needed("cma")
    parts = halves(workload)
    train = with_jobs(consecutive(parts[TRAIN]), system)[-(mixing.weeks or 0) :]
    test = with_jobs(consecutive(parts[TEST]), system)[: mixing.weeks]
    scale = feature_scale(train, system)
    depends = about(workload, system, asdict(mixing))
    (trained,) = place.each(
        "training-half", _sought, (system, mixing, scale), [(train, mixing.seed)], depends
    )
    # The week before the first test week is the last one of the training half.
    weeks = [train[-1], *test]
    sought = place.each(
        "weeks",
        _sought,
        (system, mixing, scale),
        [([week], mixing.seed + 1 + number) for number, week in enumerate(weeks)],
        depends,
    )
    best = np.stack([found for found, _ in sought])
    results = place.each(
        "tests",
        _told,
        (system, mixing, scale, trained[0]),
        [(week, best[number], best[number + 1]) for number, week in enumerate(test)],
        depends,
    )
    return Mixed(
        mixing,
        workload.name,
        scale,
        trained[0],
        _week_table(test, results),
        _weight_table(best),
        left_out(parts),
    )


def feature_scale(weeks: Sequence[Workload], system: System) -> FloatArray:
    """Standard deviation of each feature over the jobs at their starts under EASY-FCFS-FCFS.

    Returns
    -------
    float64 array, shape (6,)
        1 for a feature that is the same for all jobs.
    """
    columns = []
    for week in weeks:
        meter = Meter(week, system)
        start = meter.starts(Backfill())
        schedule = meter.schedule(start)
        q = metrics.processors(schedule).astype(np.float64)
        p = np.maximum(week.table.expected_s[start >= 0], 1).astype(np.float64)
        wait = metrics.wait_s(schedule).astype(np.float64)
        columns.append(np.stack([q, p, wait, p / q, (wait + p) / p, p * q]))
    deviation: FloatArray = np.concatenate(columns, axis=1).std(axis=1)
    return np.where(deviation > 0, deviation, 1.0)


def _sought(
    common: tuple[System, Mixing, FloatArray], weeks: Sequence[Workload], seed: int
) -> tuple[FloatArray, float]:
    """The best weights of some weeks, and the sum of their objective."""
    system, mixing, scale = common
    meters = [Meter(week, system) for week in weeks]

    def worth(weights: FloatArray) -> float:
        dispatcher = mixing.dispatcher(order_of(weights, scale))
        return sum(_objective(mixing, one, dispatcher) for one in meters)

    corners = [corner(name) for name in PURE]
    return minimise(worth, corners, mixing.evaluations, seed)


def _objective(mixing: Mixing, meter: Meter, dispatcher: Backfill) -> float:
    measured = meter.measure(dispatcher)
    return float(measured[MEASURES.index(OBJECTIVES[mixing.objective])])


def minimise(
    worth: Callable[[FloatArray], float],
    starts: Sequence[FloatArray],
    evaluations: int,
    seed: int,
) -> tuple[FloatArray, float]:
    """The weights of smallest worth, ``|w|_1`` = 1, and it: from the best start on by CMA-ES.

    Parameters
    ----------
    worth : callable
        Of weights, shape (6,), not all 0.
    starts : sequence of float64 array
        All of them are tried.
    evaluations : int
        Calls of ``worth``.
    seed : int
    """
    tried = [(worth(start), number) for number, start in enumerate(starts)]
    best_worth, number = min(tried)
    best = starts[number]
    random = np.random.default_rng(seed)
    # The library draws from NumPy's global generator unless it is given another source.
    strategy = needed("cma").CMAEvolutionStrategy(
        best,
        STEP,
        {
            "verbose": -9,
            "seed": np.nan,
            "randn": lambda *shape: random.standard_normal(shape),
            "maxfevals": evaluations,
        },
    )
    left = evaluations - len(starts)
    while left > 0 and not strategy.stop():
        asked = strategy.ask()
        values = []
        for weights in asked[:left]:
            value = worth(weights) if np.any(weights) else np.inf
            values.append(value)
            if value < best_worth:
                best_worth, best = value, weights
        left -= len(values)
        if len(values) == len(asked):
            strategy.tell(asked, values)
    return np.asarray(best / np.abs(best).sum(), dtype=np.float64), float(best_worth)


def _told(
    common: tuple[System, Mixing, FloatArray, FloatArray],
    week: Workload,
    before: FloatArray,
    own: FloatArray,
) -> dict[str, float]:
    """The objective of a week under the pure orders and the three mixed policies."""
    system, mixing, scale, trained = common
    meter = Meter(week, system)
    row = {name: _objective(mixing, meter, mixing.dispatcher(find(name))) for name in PURE}
    row["pure"] = min(row.values())
    for mode, weights in zip(MODES, (own, trained, before), strict=True):
        row[mode] = _objective(mixing, meter, mixing.dispatcher(order_of(weights, scale)))
    return row


def _week_table(weeks: Sequence[Workload], results: Sequence[dict[str, float]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        [
            {"week": number, "jobs": len(week), **row}
            for number, (week, row) in enumerate(zip(weeks, results, strict=True), start=1)
        ]
    )


def _weight_table(best: FloatArray) -> pd.DataFrame:
    import pandas as pd

    table = pd.DataFrame(best, columns=list(FEATURES))
    table.insert(0, "week", np.arange(len(best)))
    return table
