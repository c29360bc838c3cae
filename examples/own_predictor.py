"""A predictor of one's own, beside requested times: the longest of five runtimes of the user."""

from __future__ import annotations

from collections import defaultdict, deque

import cpdispatch as cpd


class LongestOfFive:
    """Predicts the longest of the user's five jobs that ended last."""

    name = "longest-of-five"

    def __init__(self) -> None:
        self.runtimes: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=5))

    def predict(self, job: cpd.Job, now: int) -> float:
        return max(self.runtimes[job.user], default=job.requested_s)

    def learn(self, job: cpd.Job, runtime_s: int) -> None:
        self.runtimes[job.user].append(runtime_s)


def main() -> None:
    workload, system = cpd.prepare(cpd.eurora_sample(500), "eurora")
    for predictor in ("walltime", LongestOfFive()):
        run = cpd.simulate(workload, system, "easy-fcfs-spf", predictor=predictor)
        assert cpd.verify.run(run.jobs, run.system) == []
        slowdown = run.metrics["bounded_slowdown_mean"]
        print(f"{run.about['predictor']:>15}: mean bounded slowdown {slowdown:8.2f}")


if __name__ == "__main__":
    main()
