"""A predictor of one's own, beside requested times: the longest of five runtimes of the user.

It remembers every user. `cpdispatch.predict.recent.Recent` remembers those who came last.
"""

from __future__ import annotations

from collections import deque

import cpdispatch as cpd


class LongestOfFive:
    """Predicts the longest of the user's five jobs that ended last."""

    name = "longest-of-five"

    def __init__(self) -> None:
        self.runtimes: dict[int, deque[int]] = {}

    def predict(self, job: cpd.Job, now: int) -> float:
        return max(self.runtimes.get(job.user, ()), default=job.requested_s)

    def learn(self, job: cpd.Job, runtime_s: int) -> None:
        self.runtimes.setdefault(job.user, deque(maxlen=5)).append(runtime_s)


def main() -> None:
    workload, system = cpd.prepare(cpd.eurora_sample(500), "eurora")
    for predictor in ("walltime", LongestOfFive()):
        run = cpd.simulate(workload, system, "easy-fcfs-spf", predictor=predictor)
        assert cpd.verify.run(run.jobs, run.system) == []
        slowdown = run.metrics["bounded_slowdown_mean"]
        print(f"{run.about['predictor']:>15}: mean bounded slowdown {slowdown:8.2f}")


if __name__ == "__main__":
    main()
