"""The requested time as the prediction: what sites without a predictor use."""

from __future__ import annotations

from dataclasses import dataclass

from cpdispatch.compiled.memory import Memory, beforehand
from cpdispatch.jobs import Job, Workload


@dataclass(frozen=True, slots=True)
class Walltime:
    """Predicts the requested time."""

    name: str = "walltime"

    def predict(self, job: Job, now: int) -> float:
        """Return the requested time."""
        return job.requested_s

    def learn(self, job: Job, runtime_s: int) -> None:
        """There is nothing to learn."""

    def memory(self, workload: Workload) -> Memory:
        """The same predictor for compiled replays."""
        return beforehand(workload.table.requested_s)
