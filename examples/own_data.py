"""Additional data of one's own: the temperature of each node, and a dispatcher that heeds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import cpdispatch as cpd

COOL, LOADED, LIMIT = 20.0, 80.0, 70.0  # degrees Celsius: idle, all cores busy, too hot for a start
TIME_CONSTANT_S = 1800


class Temperature:
    """The temperature of each node, which follows its load as a body that warms and cools."""

    name = "temperature"

    def __init__(self) -> None:
        self.celsius = np.zeros(0)

    def value(self, moment: cpd.Moment) -> np.ndarray:
        if not len(self.celsius):
            self.celsius = np.full(moment.system.nodes, COOL)
        load = (moment.held / np.maximum(moment.system.capacity, 1)).max(axis=1)
        left = np.exp((moment.since_s - moment.now_s) / TIME_CONSTANT_S)
        aim = COOL + (LOADED - COOL) * load
        self.celsius = aim + (self.celsius - aim) * left
        return self.celsius

    def next_s(self, now_s: int) -> int | None:
        return now_s + 60 if (self.celsius >= LIMIT).any() else None


class CoolFirst:
    """EASY that sees no room on nodes of this temperature or more; it notes the hottest start."""

    def __init__(self, name: str, limit: float) -> None:
        self.name, self.limit, self.hottest = name, limit, 0.0
        self.easy = cpd.make("easy")

    def dispatch(self, instance: cpd.Instance) -> cpd.Decision:
        celsius = instance.data["temperature"]
        hot = celsius >= self.limit
        down = np.union1d(instance.down, hot.nonzero()[0])
        free = np.where(hot[:, None], 0, instance.free)
        decision = self.easy.dispatch(replace(instance, free=free, down=down))
        self.hottest = max(self.hottest, celsius[decision.placements.node].max(initial=COOL))
        return decision


def main() -> None:
    workload, system = cpd.prepare(cpd.eurora_sample(300), "eurora")
    for dispatcher in (CoolFirst("easy", np.inf), CoolFirst("cool-first", LIMIT)):
        run = cpd.simulate(workload, system, dispatcher, data=[Temperature()])
        assert cpd.verify.run(run.jobs, run.system) == []
        print(
            f"{dispatcher.name:>10}: hottest node at a start {dispatcher.hottest:5.1f} C, "
            f"mean wait {run.metrics['wait_s_mean']:6.1f} s"
        )


if __name__ == "__main__":
    main()
