"""Policies by regression: scores of jobs from trial schedules, and polynomials fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.errors import InputError, UsageError
from cpdispatch.extra import needed
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import Order, find
from cpdispatch.jobs import Workload
from cpdispatch.learn import trials
from cpdispatch.learn.fit import FORMS, Fit, fit
from cpdispatch.learn.measure import MEASURES, Meter
from cpdispatch.learn.place import HERE, Place, about
from cpdispatch.learn.weeks import MANY, rebased
from cpdispatch.models.objective import processors
from cpdispatch.parameters import whole
from cpdispatch.simulator.replay import fingerprint
from cpdispatch.system import System

if TYPE_CHECKING:
    import pandas as pd

_EQUAL = 1e-12
"""Scores that differ by less are equal."""
PURE = ("fcfs", "saf", "spf", "f2")
"""Orders that fits are compared with, beside the published fits."""
DEPTHS = {"none": 0, "easy": 1}
"""Backfilling in the comparison: name -> reservations."""


@dataclass(frozen=True, slots=True)
class Regression:
    """How scores are sampled and fitted.

    Attributes
    ----------
    pairs : int
        Pairs (S, Q) of consecutive jobs.
    orders : int
        Random orders of each Q; 256,000 in the paper.
    running, queued : int
        How many jobs S and Q have.
    published_shuffle : bool
        Draw the orders as the code of the paper does, see `cpdispatch.learn.trials.sample`.
    seed : int
    """

    pairs: int = 400
    orders: int = 20_000
    running: int = 16
    queued: int = 32
    published_shuffle: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for option in ("pairs", "orders"):
            whole(f"--{option}", getattr(self, option), 1, MANY)
        whole("--running", self.running, 0)
        whole("--queued", self.queued, 2)
        whole("--seed", self.seed, 0)


@dataclass(frozen=True, eq=False)
class Regressed:
    """What was found.

    Attributes
    ----------
    regression : Regression
    log : str
    samples : DataFrame
        One row a queued job: pair, p (runtime, s), q (processors), r (arrival after the
        pair's first job, s), score.
    fits : mapping of str to Fit
        By form.
    comparison : DataFrame
        One row a workload, backfilling and policy: the mean bounded slowdown, and that relative
        to first come, first served.
    orders_per_s : float
        Trial schedules a second and core.
    """

    regression: Regression
    log: str
    samples: pd.DataFrame
    fits: Mapping[str, Fit]
    comparison: pd.DataFrame
    orders_per_s: float

    @property
    def coefficients(self) -> pd.DataFrame:
        """One row a form and term: coefficient, its standard error, variance inflation factor."""
        import pandas as pd

        return pd.DataFrame(
            [
                (form, term, value, found.errors[term], found.inflation.get(term))
                for form, found in self.fits.items()
                for term, value in found.coefficients.items()
            ],
            columns=["form", "term", "coefficient", "standard_error", "inflation"],
        )

    @property
    def means(self) -> pd.DataFrame:
        """One row a backfilling and policy: means over the workloads of the comparison."""
        columns = ["bounded_slowdown_mean", "relative"]
        return (
            self.comparison.groupby(["backfill", "policy"], sort=False)[columns]
            .mean()
            .reset_index()
        )

    @property
    def summary(self) -> dict[str, Any]:
        """Fits and comparison."""
        return {
            "log": self.log,
            **asdict(self.regression),
            "samples": len(self.samples),
            "orders_per_s": self.orders_per_s,
            "forms": {
                form: {
                    "absolute_error_mean": found.absolute_error_mean,
                    "determined": found.determined,
                    "coefficients": dict(found.coefficients),
                    "inflation": dict(found.inflation),
                }
                for form, found in self.fits.items()
            },
            "comparison": self.means.to_dict("records"),
        }


def regress(
    workload: Workload,
    system: System,
    tests: Sequence[Workload],
    regression: Regression = Regression(),
    place: Place = HERE,
) -> Regressed:
    """Sample scores from a workload, fit all forms, and compare them on other workloads.

    Parameters
    ----------
    workload : Workload
        Of whose consecutive jobs pairs are made; fitted to the system. Real runtimes are used.
    system : System
    tests : sequence of Workload
        Workloads to compare on, each from an empty system and on a clock that starts at 0.
    regression : Regression
    place : Place
        Where orders and workloads are simulated.

    Raises
    ------
    InputError
        When the workload has fewer jobs than a pair.
    UsageError
        When the library statsmodels is not installed, or all scores are equal.

    References
    ----------
    Carastan-Santos, de Camargo, "Obtaining dynamic scheduling policies with simulation and machine
    learning", SC'17. Rosa, Carastan-Santos, Goldman, "An experimental analysis of
    regression-obtained HPC scheduling heuristics", JSSPP 2023.
    """
    needed("statsmodels.api")
    depends = about(workload, system, asdict(regression))
    drawn = _pairs(workload, system, regression)
    sampled = place.each(
        "orders",
        _scored,
        (regression, int(system.total[0])),
        [(columns, number) for number, columns in enumerate(drawn)],
        depends,
    )
    samples = _samples(regression, drawn, [scores for scores, _ in sampled])
    p, q, r, score = (samples[name].to_numpy(dtype=np.float64) for name in ("p", "q", "r", "score"))
    if np.ptp(score) < _EQUAL:
        raise UsageError(
            f"the scores of all {len(score)} jobs are equal, so that nothing can be learned from "
            f"them: try more than {regression.orders} orders or {regression.pairs} pairs"
        )
    # Forms that have too few samples are left out, but for the smallest, whose error says so.
    enough = [form for form in FORMS if form == "lin" or len(score) > len(FORMS[form])]
    fits = {form: fit(form, p, q, r, score) for form in enough}
    orders = {name: find(name) for name in PURE}
    orders |= {f"{form} (published)": find(form) for form in FORMS}
    orders |= {f"{form} (learned)": found.order for form, found in fits.items()}
    compared = place.each(
        "comparison",
        _compared,
        (system, orders),
        [(test,) for test in tests],
        depends | {"tests": [fingerprint(test) for test in tests]},
    )
    return Regressed(
        regression,
        workload.name,
        samples,
        fits,
        _comparison(tests, compared),
        regression.orders * len(sampled) / sum(seconds for _, seconds in sampled),
    )


def _pairs(workload: Workload, system: System, regression: Regression) -> list[IntArray]:
    """Runtimes, processors and arrivals of each pair, shape (3, |S| + |Q|) each."""
    size = regression.running + regression.queued
    table = workload.table
    q = processors(table)
    fits = np.flatnonzero(q <= system.total[0])
    if len(fits) < size:
        raise InputError(
            f"{len(fits)} jobs are too few for a pair of {regression.running} running and "
            f"{regression.queued} queued ones",
            file=workload.name,
        )
    columns = np.stack([workload.runtime_s, q, table.submit_s])[:, fits]
    begin = np.random.default_rng(regression.seed).integers(
        0, len(fits) - size + 1, size=regression.pairs
    )
    pairs = [columns[:, first : first + size].copy() for first in begin]
    for pair in pairs:
        pair[2] -= pair[2, 0]
    return pairs


def _scored(
    common: tuple[Regression, int], columns: IntArray, number: int
) -> tuple[np.typing.NDArray[np.float64], float]:
    """Scores of a pair's queued jobs, and the seconds that it took."""
    regression, machine = common
    runtime_s, processors, submit_s = columns
    arguments = (regression.running, machine, runtime_s, processors, submit_s)
    seed, published = (regression.seed, number), regression.published_shuffle
    trials.sample(*arguments, 1, seed, published=published)  # compiles, before any clock runs
    began = perf_counter()
    total, first = trials.sample(*arguments, regression.orders, seed, published=published)
    seconds = perf_counter() - began
    return trials.scores(total, first, published=published), seconds


def _samples(
    regression: Regression,
    pairs: Sequence[IntArray],
    scores: Sequence[np.typing.NDArray[np.float64]],
) -> pd.DataFrame:
    import pandas as pd

    queued = np.concatenate([pair[:, regression.running :] for pair in pairs], axis=1)
    return pd.DataFrame(
        {
            "pair": np.repeat(np.arange(len(pairs)), regression.queued),
            "p": queued[0],
            "q": queued[1],
            "r": queued[2],
            "score": np.concatenate(scores),
        }
    )


def _compared(
    common: tuple[System, Mapping[str, Order]], test: Workload
) -> list[tuple[str, str, float]]:
    """Backfilling, policy and mean bounded slowdown of each, in one workload."""
    system, orders = common
    meter = Meter(rebased(test, int(test.table.submit_s[0])), system)
    column = MEASURES.index("bounded_slowdown_mean")
    return [
        (
            backfill,
            name,
            float(meter.measure(Backfill(order, order, depth=depth))[column]),
        )
        for backfill, depth in DEPTHS.items()
        for name, order in orders.items()
    ]


def _comparison(
    tests: Sequence[Workload], compared: Sequence[list[tuple[str, str, float]]]
) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for number, (test, measured) in enumerate(zip(tests, compared, strict=True), start=1):
        base = {backfill: value for backfill, name, value in measured if name == "fcfs"}
        rows += [
            (number, len(test), backfill, name, value, value / base[backfill])
            for backfill, name, value in measured
        ]
    return pd.DataFrame(
        rows,
        columns=["workload", "jobs", "backfill", "policy", "bounded_slowdown_mean", "relative"],
    )
