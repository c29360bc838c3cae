"""The real runtime as the prediction: which no site has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cpdispatch.arrays import IntArray
from cpdispatch.compiled.memory import Memory, beforehand
from cpdispatch.jobs import Job, Workload


@dataclass(frozen=True, slots=True)
class Actual:
    """Predicts the real runtime. It knows the future: a bound to compare with, not a predictor."""

    runtime_s: Mapping[int, int]
    name: str = "actual"

    @classmethod
    def of(cls, workload: Workload) -> Actual:
        """The clairvoyant predictor of a workload."""
        ids, runtimes = workload.table.id.tolist(), workload.runtime_s.tolist()
        return cls(dict(zip(ids, runtimes, strict=True)))

    def predict(self, job: Job, now: int) -> float:
        """Return the real runtime."""
        return self.runtime_s[job.id]

    def upper(self, job: Job, now: int) -> float:
        """Return the real runtime."""
        return self.runtime_s[job.id]

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""

    def known(self, workload: Workload) -> IntArray:
        """Return the real runtimes."""
        return workload.runtime_s

    def memory(self, workload: Workload) -> Memory:
        """The same predictor for compiled replays."""
        return beforehand(workload.runtime_s)
