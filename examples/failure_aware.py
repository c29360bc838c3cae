"""A dispatcher of one's own that keeps long jobs from the nodes that failed last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import cpdispatch as cpd

FAILURES = "weibull:mtbf=30d,shape=0.5,repair=4h"
SHORT_S = 3600


class FailureAware:
    """EASY, which starts the same jobs at the same time, on other nodes: for nodes that are alike.

    With a shape below 1, a node that has failed soon fails again. So the longest jobs take the
    nodes that failed longest ago, and short jobs those that failed last.
    """

    name = "failure-aware"

    def __init__(self) -> None:
        self.easy = cpd.make("easy")

    def dispatch(self, instance: cpd.Instance) -> cpd.Decision:
        decision = self.easy.dispatch(instance)
        last = [max(times, default=-1) for times in instance.data["failures"]]
        steady_first = np.argsort(last, kind="stable")
        free, places = instance.free.copy(), {}
        lasts_s = instance.queue.expected_s
        for k in sorted(decision.placements.as_dict(), key=lambda k: -lasts_s[k]):
            order = steady_first if lasts_s[k] > SHORT_S else steady_first[::-1]
            places[k] = place(free, instance.queue.request[k], int(instance.queue.units[k]), order)
            if places[k] is None:
                return decision
        return replace(decision, placements=cpd.Placements.of(places))


def place(
    free: np.ndarray, request: np.ndarray, units: int, order: np.ndarray
) -> dict[int, int] | None:
    """Take the units of a job from the first nodes of an order; None if they do not fit."""
    asked = request > 0
    room = (free[:, asked] // request[asked]).min(axis=1)[order]
    here = np.clip(units - np.concatenate(([0], np.cumsum(room)[:-1])), 0, room)
    if here.sum() < units:
        return None
    chosen = {int(node): int(n) for node, n in zip(order, here, strict=True) if n}
    for node, n in chosen.items():
        free[node] -= n * request
    return chosen


def main() -> None:
    workload, _ = cpd.prepare(cpd.eurora_sample(1500), "eurora")
    columns = {name: getattr(workload.table, name) for name in ("id", "units")}
    columns |= {"submit": workload.table.submit_s * 20, "runtime": workload.runtime_s * 20}
    system = cpd.System("alike", ("core",), (cpd.NodeGroup("node", 64, (8,)),))
    jobs, _ = cpd.prepare(cpd.from_table(columns | {"core": 8}), system)
    for dispatcher in ("easy", FailureAware()):
        run = cpd.simulate(jobs, system, dispatcher, events=FAILURES, data=["failures"])
        assert run.verify() == []
        name = dispatcher if isinstance(dispatcher, str) else dispatcher.name
        print(f"{name:>13}: {run.metrics['wasted_share']:.1%} of the work lost")


if __name__ == "__main__":
    main()
