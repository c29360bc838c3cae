"""Tuning EASY: every pair of orders with every threshold, picked on one half of a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.analyze.difference import quotients
from cpdispatch.arrays import FloatArray
from cpdispatch.errors import UsageError, unknown
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.policies import NO_THRESHOLD, find
from cpdispatch.jobs import Workload
from cpdispatch.learn.measure import MEASURES, OBJECTIVES, Meter
from cpdispatch.learn.place import HERE, Place, about
from cpdispatch.learn.weeks import HALVES, TEST, TRAIN, halves, left_out, made_up, with_jobs
from cpdispatch.parameters import whole
from cpdispatch.system import System

if TYPE_CHECKING:
    import pandas as pd

SEVEN = ("fcfs", "lcfs", "spf", "lpf", "sqf", "lqf", "lexp")
TWELVE = (*SEVEN, "saf", "laf", "sexp", "srf", "lrf")
THRESHOLDS_S = (NO_THRESHOLD, 18_000, 36_000, 72_000, 200_000)
"""No threshold, 5 h, 10 h, 20 h, 2.31 days."""
DECILES = tuple(range(10, 100, 10))


@dataclass(frozen=True, slots=True)
class Tuning:
    """What is tried, and what for.

    Attributes
    ----------
    policies : tuple of str
        Orders, each tried as P_R with each as P_B: `SEVEN` makes 49 pairs, `TWELVE` 144.
    thresholds_s : tuple of int
        Thresholds T in seconds, `NO_THRESHOLD` among them for none.
    weeks : int
        Weeks made up of each half.
    objective : str
        A name in `OBJECTIVES`.
    max_wait : float or None
        Pick only among candidates whose maximum wait on the training weeks, relative to that of
        EASY-FCFS-FCFS, is so large at most.
    seed : int
    """

    policies: tuple[str, ...] = SEVEN
    thresholds_s: tuple[int, ...] = THRESHOLDS_S
    weeks: int = 50
    objective: str = "wait"
    max_wait: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole("--weeks", self.weeks, 1)
        whole("--seed", self.seed, 0)
        for name in self.policies:
            find(name)
        for given, option in ((self.policies, "--policies"), (self.thresholds_s, "--thresholds")):
            if not given:
                raise UsageError(f"{option}: one or more is needed")
        for threshold_s in self.thresholds_s:
            whole("--thresholds", threshold_s, 1)
        if self.max_wait is not None and not self.max_wait >= 1:
            raise UsageError(f"--max-wait {self.max_wait:g}: 1 or more is needed")
        if self.objective not in OBJECTIVES:
            raise unknown("objective", self.objective, OBJECTIVES)

    @property
    def simulated(self) -> dict[str, Any]:
        """The settings that simulations depend on; the others only say what is picked of them."""
        return {
            "policies": self.policies,
            "thresholds_s": self.thresholds_s,
            "weeks": self.weeks,
            "seed": self.seed,
        }

    @property
    def candidates(self) -> list[Candidate]:
        """EASY-FCFS-FCFS without threshold, the baseline, and then every pair with every T."""
        tried = product(self.policies, self.policies, self.thresholds_s)
        return [BASELINE, *(c for c in (Candidate(*t) for t in tried) if c != BASELINE)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair of orders and a threshold."""

    primary: str
    backfill: str
    threshold_s: int

    @property
    def dispatcher(self) -> Backfill:
        """EASY with them."""
        return Backfill(find(self.primary), find(self.backfill), self.threshold_s)

    def __str__(self) -> str:
        limit = "" if self.threshold_s == NO_THRESHOLD else f", T = {self.threshold_s:,} s"
        return f"{self.primary.upper()}-{self.backfill.upper()}{limit}"


BASELINE = Candidate("fcfs", "fcfs", NO_THRESHOLD)


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a tuning found.

    Attributes
    ----------
    tuning : Tuning
    log : str
    picked : Candidate
        The best of the training weeks.
    pairs : DataFrame
        One row a half and candidate: the mean over the weeks of each of `MEASURES`, and
        ``*_relative`` to that of EASY-FCFS-FCFS.
    deciles : DataFrame
        One row a half, threshold, measure and decile, of the picked pair of orders: the decile over
        the weeks of the week's measure relative to EASY-FCFS-FCFS in the same week.
    weeks : int
        How many test weeks were made: one without active users, or jobs that fit, is left out.
    better : int
        In how many of them the picked candidate has less of the objective's measure than
        EASY-FCFS-FCFS.
    left_out : dict of str to int
        By half, its jobs that are submitted in an incomplete last week.
    """

    tuning: Tuning
    log: str
    picked: Candidate
    pairs: pd.DataFrame
    deciles: pd.DataFrame
    weeks: int
    better: int
    left_out: dict[str, int]

    @property
    def verdict(self) -> str:
        """What the picked candidate brings on the test weeks, in three sentences at most."""
        if self.picked == BASELINE:
            return f"EASY-{BASELINE} is best on the training weeks."
        name = OBJECTIVES[self.tuning.objective]
        share = self.summary[TEST][f"{name}_relative"]
        times = f"{share:.2f} times" if isfinite(share) else "more than"  # EASY's is 0
        said = self._broken + (
            f"On test weeks, EASY-{self.picked} has {times} the {_WORDS[name]} of EASY-{BASELINE}, "
            f"and less of it in {self.better:,} of {self.weeks:,}."
        )
        if share < 1 and 2 * self.better > self.weeks:
            return said
        return (
            f"{said} What is best on the training weeks brings nothing here: keep EASY-{BASELINE}."
        )

    @property
    def _broken(self) -> str:
        """That the longest wait that was asked for is not kept on the test weeks, or nothing."""
        longest = self.summary[TEST]["wait_s_max_relative"]
        if self.tuning.max_wait is None or longest <= self.tuning.max_wait:
            return ""
        return (
            f"--max-wait {self.tuning.max_wait:g} does not hold on test weeks: the longest wait is "
            f"{longest:.3f} times that of EASY-{BASELINE}. "
        )

    @property
    def summary(self) -> dict[str, Any]:
        """The picked candidate, and how it does on both halves."""
        rows = self.pairs
        chosen = rows[
            (rows.primary == self.picked.primary)
            & (rows["backfill"] == self.picked.backfill)
            & (rows.threshold_s == _shown(self.picked.threshold_s))
        ]
        return {
            "log": self.log,
            "weeks": self.tuning.weeks,
            "left_out": self.left_out,
            "seed": self.tuning.seed,
            "objective": self.tuning.objective,
            "max_wait": self.tuning.max_wait,
            "pairs": len(self.tuning.policies) ** 2,
            "thresholds_s": [_shown(t) for t in self.tuning.thresholds_s],
            "primary": self.picked.primary,
            "backfill": self.picked.backfill,
            "threshold_s": _shown(self.picked.threshold_s),
            "better_weeks": self.better,
            **{
                row["half"]: {name: float(row[name]) for name in (*MEASURES, *_RELATIVE)}
                for row in chosen.to_dict("records")
            },
        }


_RELATIVE = tuple(f"{name}_relative" for name in MEASURES)
_WORDS = {"wait_s_mean": "mean wait", "bounded_slowdown_mean": "mean bounded slowdown"}
"""What the measure of an objective is called."""


def _shown(threshold_s: int) -> int:
    """A threshold in tables: -1 for none."""
    return -1 if threshold_s == NO_THRESHOLD else threshold_s


def tune(
    workload: Workload,
    system: System,
    tuning: Tuning = Tuning(),
    place: Place = HERE,
) -> Tuned:
    """Try every pair of orders with every threshold; pick on the first half, measure on the second.

    The log is split at its temporal midpoint. Of each half, weeks are made up: of each user a
    random week of that user's. Each is replayed from an empty system, and all its jobs count. One
    in which no job fits the system is left out.

    Parameters
    ----------
    workload : Workload
        Fitted to the system.
    system : System
    tuning : Tuning
    place : Place
        Where the weeks are simulated.

    Raises
    ------
    InputError
        When the log is shorter than two weeks.

    References
    ----------
    Lelong, Reis, Trystram, "Tuning EASY-Backfilling Queues", JSSPP 2017.
    """
    candidates = tuning.candidates
    parts = halves(workload)
    weeks = {
        half: with_jobs(made_up(parts[half], tuning.weeks, 2 * tuning.seed + number), system)
        for number, half in enumerate(HALVES)
    }
    measured = np.stack(
        place.each(
            "tune",
            _measured,
            (system, candidates),
            [(week,) for half in HALVES for week in weeks[half]],
            about(workload, system, tuning.simulated),
        )
    )
    learned = len(weeks[TRAIN])
    by_half = {TRAIN: measured[:learned], TEST: measured[learned:]}
    best = best_of(tuning, by_half[TRAIN].mean(axis=0))
    of_weeks = by_half[TEST][:, :, MEASURES.index(OBJECTIVES[tuning.objective])]
    return Tuned(
        tuning,
        workload.name,
        candidates[best],
        _pairs(candidates, by_half),
        _deciles(candidates, candidates[best], by_half),
        len(of_weeks),
        int((of_weeks[:, best] < of_weeks[:, 0]).sum()),
        left_out(parts),
    )


def _measured(common: tuple[System, Sequence[Candidate]], week: Workload) -> FloatArray:
    """`MEASURES` of each candidate in a week, shape (candidates, 3)."""
    system, candidates = common
    meter = Meter(week, system)
    return np.stack([meter.measure(candidate.dispatcher) for candidate in candidates])


def best_of(tuning: Tuning, mean: FloatArray) -> int:
    """The best of the candidates by their mean measures, shape (candidates, 3)."""
    value = mean[:, MEASURES.index(OBJECTIVES[tuning.objective])].copy()
    if tuning.max_wait is not None:
        longest = mean[:, MEASURES.index("wait_s_max")]
        value[longest > tuning.max_wait * longest[0]] = np.inf
    return int(value.argmin())


def _pairs(candidates: Sequence[Candidate], by_half: dict[str, FloatArray]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for half, measured in by_half.items():
        mean = measured.mean(axis=0)
        share = quotients(mean, mean[:1], nothing=1.0)
        for number, candidate in enumerate(candidates):
            rows.append(
                (
                    *(half, candidate.primary, candidate.backfill, _shown(candidate.threshold_s)),
                    *mean[number].tolist(),
                    *share[number].tolist(),
                )
            )
    return pd.DataFrame(
        rows, columns=["half", "primary", "backfill", "threshold_s", *MEASURES, *_RELATIVE]
    )


def _deciles(
    candidates: Sequence[Candidate], picked: Candidate, by_half: dict[str, FloatArray]
) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for half, (at, candidate) in product(HALVES, enumerate(candidates)):
        if (candidate.primary, candidate.backfill) != (picked.primary, picked.backfill):
            continue
        share = quotients(by_half[half][:, at], by_half[half][:, 0], nothing=1.0)
        for number, name in enumerate(MEASURES):
            values = deciles(share[:, number])
            rows += [
                (half, _shown(candidate.threshold_s), name, percent, value)
                for percent, value in zip(DECILES, values.tolist(), strict=True)
            ]
    return pd.DataFrame(rows, columns=["half", "threshold_s", "measure", "percent", "relative"])


def deciles(values: FloatArray) -> FloatArray:
    """The 10th to the 90th percentile, shape (9,), each one of the values."""
    found: FloatArray = np.percentile(values, DECILES, method="inverted_cdf")
    return found
