"""A dispatcher of one's own, beside EASY: list scheduling, the jobs of the smallest area first."""

from __future__ import annotations

import numpy as np

import cpdispatch as cpd


class SmallestFirst:
    """Starts every job that fits now, in the order of units x expected duration."""

    name = "smallest-first"

    def dispatch(self, instance: cpd.Instance) -> cpd.Decision:
        queue, free, nodes = instance.queue, instance.free.copy(), {}
        start_s = np.full(len(queue), cpd.NO_START)
        reason = np.full(len(queue), cpd.Reason.WAITS, dtype=np.int8)
        for position in np.argsort(queue.units * queue.expected_s, kind="stable").tolist():
            request, left, placed = queue.request[position], int(queue.units[position]), {}
            room = (free[:, request > 0] // request[request > 0]).min(axis=1)  # units by node
            for node in room.nonzero()[0].tolist():
                if left > 0:
                    placed[node] = min(left, int(room[node]))
                    left -= placed[node]
            if left == 0:
                start_s[position], reason[position] = instance.now, cpd.Reason.STARTED
                nodes[position] = placed
                for node, units in placed.items():
                    free[node] -= units * request
        places = cpd.Placements.of(nodes)
        return cpd.Decision(start_s, reason, places, cpd.Certificate(self.name))


def main() -> None:
    workload, system = cpd.prepare(cpd.eurora_sample(500), "eurora")
    for dispatcher in ("easy", SmallestFirst()):
        run = cpd.simulate(workload, system, dispatcher)
        assert cpd.verify.run(run.jobs, run.system) == []
        slowdown = run.metrics["bounded_slowdown_mean"]
        print(f"{run.about['dispatcher']:>14}: mean bounded slowdown {slowdown:8.2f}")


if __name__ == "__main__":
    main()
