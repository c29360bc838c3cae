"""Predictors of job durations: one protocol, one registry of names.

A predictor is asked at a job's submission and taught at its completion, so it never sees a runtime
before the job has ended. The simulator caps what it says at the requested time.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Protocol

from cpdispatch.errors import UsageError
from cpdispatch.jobs import Job, Workload
from cpdispatch.predict.actual import Actual
from cpdispatch.predict.walltime import Walltime


class Predictor(Protocol):
    """What the simulator needs of a predictor."""

    name: str

    def predict(self, job: Job, now: int) -> float:
        """Expected duration in seconds of a job that is submitted ``now``."""
        ...

    def learn(self, job: Job, runtime_s: int) -> None:
        """Take note of the runtime of a job that has just ended."""
        ...


PREDICTORS: Mapping[str, Callable[[Workload], Predictor]] = {
    "walltime": lambda _: Walltime(),
    "actual": Actual.of,
}
"""Name -> how to make the predictor for a simulation of a workload."""


def make(name: str, workload: Workload) -> Predictor:
    """The predictor of this name, for a simulation of this workload.

    Raises
    ------
    UsageError
        When there is none of that name; the message suggests the nearest.
    """
    if name not in PREDICTORS:
        near = difflib.get_close_matches(name, PREDICTORS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown predictor {name!r}{hint} (one of {', '.join(PREDICTORS)})")
    return PREDICTORS[name](workload)
