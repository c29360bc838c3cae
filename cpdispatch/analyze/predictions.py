"""How far predicted durations are from runtimes, each measure with its formula.

For a job with prediction e and runtime p: error e - p, ratio p / e. Both are counted as 1 s at
least, as the simulator counts predictions, so that a ratio is a positive number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.analyze.metrics import CLASSES_S
from cpdispatch.arrays import BoolArray, FloatArray, IntArray, sealed

if TYPE_CHECKING:
    import pandas as pd

WITHIN = (0.75, 1.25)
"""Ratios of runtime to prediction, both included, of predictions that count as right."""

ALL = "all"
"""The class of every job."""

RATIOS: FloatArray = sealed(10.0 ** (np.arange(-300, 301) / 100))
"""Ratios at which the distribution is given: 100 a decade from 0.001 to 1000, 1 among them."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What was said of jobs at their submission, and how long they ran."""

    expected_s: IntArray
    runtime_s: IntArray
    """Prediction and runtime of each job that ran to its end, shape (jobs,)."""
    killed: int = 0
    """Jobs that were ended before, by a limit or on a node that failed; they are not counted."""

    @classmethod
    def of(cls, jobs: pd.DataFrame) -> Predictions:
        """The predictions of a run.

        Parameters
        ----------
        jobs : pandas.DataFrame
            `cpdispatch.simulator.Run.jobs`: start, end, expected_s (s), killed, and failed if it is
            there, are read.
        """
        started, killed = (jobs["start"] >= 0).to_numpy(), jobs["killed"].to_numpy(dtype=np.bool_)
        if "failed" in jobs.columns:
            killed = killed | jobs["failed"].to_numpy(dtype=np.bool_)
        ended = jobs[started & ~killed]
        runtime_s = (ended["end"] - ended["start"]).to_numpy(dtype=np.int64)
        expected_s = ended["expected_s"].to_numpy(dtype=np.int64)
        return cls(
            np.maximum(expected_s, 1), np.maximum(runtime_s, 1), int((started & killed).sum())
        )

    @property
    def error_s(self) -> IntArray:
        """Prediction minus runtime e - p, positive for an over-estimate, shape (jobs,), seconds."""
        return self.expected_s - self.runtime_s

    @property
    def ratio(self) -> FloatArray:
        """Runtime over prediction p / e, over 1 for an under-estimate, shape (jobs,)."""
        return np.asarray(self.runtime_s / self.expected_s)

    def take(self, which: BoolArray) -> Predictions:
        """The predictions of some of the jobs."""
        return Predictions(self.expected_s[which], self.runtime_s[which])


def accuracy(predictions: Predictions) -> dict[str, float]:
    """The measures of accuracy; NaN where there are no jobs.

    Returns
    -------
    dict
        ``jobs``; ``absolute_error_s_mean``, mean of abs(e - p); ``error_s_mean``, mean of e - p;
        ``under_share`` and ``over_share``, shares of the jobs with e < p and e > p;
        ``within_share``, share of the jobs with p / e in `WITHIN`;
        ``log_ratio_absolute_median``, median of abs(ln(p / e)).
    """
    error_s, ratio, (low, high) = predictions.error_s, predictions.ratio, WITHIN
    columns = {
        "absolute_error_s_mean": np.abs(error_s),
        "error_s_mean": error_s,
        "under_share": error_s < 0,
        "over_share": error_s > 0,
        "within_share": (low <= ratio) & (ratio <= high),
    }
    jobs, none = len(error_s), float("nan")
    return {
        "jobs": jobs,
        **{name: float(column.mean()) if jobs else none for name, column in columns.items()},
        "log_ratio_absolute_median": float(np.median(np.abs(np.log(ratio)))) if jobs else none,
    }


def accuracy_by_class(predictions: Predictions) -> dict[str, dict[str, float]]:
    """`accuracy` over all jobs, and over the short, medium and long ones by their runtimes."""
    p = predictions.runtime_s
    classes = {
        name: accuracy(predictions.take((low <= p) & (p < high)))
        for name, (low, high) in CLASSES_S.items()
    }
    return {ALL: accuracy(predictions), **classes}


def share_up_to(predictions: Predictions) -> FloatArray:
    """Empirical distribution of p / e: the share of the jobs up to each of `RATIOS`; NaN if none.

    Returns
    -------
    float array, shape (ratios,)
    """
    ratio = np.sort(predictions.ratio)
    if not len(ratio):
        return np.full(len(RATIOS), np.nan)
    return np.searchsorted(ratio, RATIOS, side="right") / len(ratio)
