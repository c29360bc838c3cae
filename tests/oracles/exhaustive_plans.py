"""The least value of all plans that keep what an engine promises, and small instances to ask for.

The exhaustive twin of `tests.models.exhaustive` tries every order and every placement. Here its
jobs may come after others, and last as long as some limits say. Slow and obvious on purpose.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from cpdispatch import verify
from cpdispatch.instance import Instance
from cpdispatch.models.engine import Engine
from tests.models.exhaustive import _Tree
from tests.strategies import Plan, before, lasting, read, release


class WithPrecedence(_Tree):
    """The exhaustive twin of jobs that come after others, and last as long as some limits say."""

    def __init__(self, told: Instance, limits: str, *rest: Any) -> None:
        super().__init__(lasting(told, limits), *rest)
        self.told = told

    def cost(self, position: int, second: int) -> Fraction:
        start = {position: self.instance.now + second}
        return verify.objective_value(self.told, self.objective, start)

    def search(self, plan: Plan, spent: Fraction, last: tuple[int, int]) -> None:
        left = [position for position in self.jobs if position not in plan]
        least = sum((self.cost(position, max(last[0], 0)) for position in left), spent)
        if self.best is not None and least >= self.best:
            return
        if not left:
            if self.accept(plan):
                self.best, self.plan = spent, dict(plan)
            return
        able = [k for k in left if set(before(self.instance, k)) <= set(plan)]
        children = []
        for position in able:
            ready = release(self.instance, plan, position) - self.instance.now
            for where in self.ways[position]:
                second = self.earliest(position, where, max(ready, last[0]))
                if (second, position) > last:
                    children.append((second, position, where))
        for second, position, where in sorted(children, key=lambda child: child[:2]):
            self.take(position, where, second, 1)
            plan[position] = self.instance.now + second, where
            self.search(plan, spent + self.cost(position, second), (second, position))
            del plan[position]
            self.take(position, where, second, -1)


def optimum(instance: Instance, one: Engine) -> float:
    """The least value of all plans of the jobs that are selected which keep what is promised."""
    planned = one.planned(instance)
    latest_s = {
        position: latest
        for part in one.parts(planned, one.select(planned))
        for position, latest in zip(part.position.tolist(), part.latest_s.tolist(), strict=True)
    }
    kept = "requested" if instance.overdue().any() else one.limits
    tree = WithPrecedence(
        instance, kept, list(latest_s), one.objective,
        lambda plan: all(start <= latest_s[k] for k, (start, _) in plan.items()),
    )  # fmt: skip
    tree.search({}, Fraction(0), (0, -1))
    assert tree.best is not None
    return float(tree.best)


LATER = ("spread", "places", "priority")
EXTRAS = (
    "reservations", "windows", "power", "dependencies", "down", "starvation", "predictions",
    *LATER, "first",
)  # fmt: skip
"""What an instance may have more than jobs that wait and jobs that run."""

NOW = 100


def contested(random: np.random.Generator) -> tuple[Instance, set[str]]:
    """A small instance whose jobs are in each other's way, and which of `EXTRAS` it has.

    Each extra is there with a probability of a quarter. Windows are two reservations of one node
    that do not overlap, both to come.
    """

    def whole(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    extras = {
        extra for extra in EXTRAS if extra not in (*LATER, "first") and random.random() < 0.25
    }
    groups = [{"name": "a", "nodes": whole(1, 2), "capacity": [whole(4, 9), 0]}]
    if random.random() < 0.5:
        groups.append({"name": "b", "nodes": 1, "capacity": [whole(4, 9), 2]})
    capacity = [group["capacity"] for group in groups for _ in range(group["nodes"])]
    nodes = len(capacity)
    queue: list[dict[str, Any]] = []
    for id in range(whole(2, 5)):
        cores, gpus = capacity[whole(0, nodes - 1)]
        asks = [whole(max(1, cores // 3), cores), whole(0, gpus)]
        queue.append({
            "id": id, "submit": NOW - whole(0, 60), "duration": whole(1, 30), "ewt": whole(1, 60),
            "units": whole(1, 2), "unit": asks,
        })  # fmt: skip
    ran = [
        {"id": 90 + node, "start": NOW - whole(0, 9), "duration": whole(10, 30), "units": 1,
         "unit": [whole(1, 3), 0], "nodes": {str(node): 1}}
        for node in range(nodes) if random.random() < 0.5
    ]  # fmt: skip
    file: dict[str, Any] = {
        "format": "cpdispatch-instance/1", "time": NOW, "resources": ["core", "gpu"],
        "groups": groups, "queue": queue, "running": ran,
    }  # fmt: skip
    reserved = []
    if "windows" in extras:
        first, second = NOW + whole(1, 20), NOW + whole(41, 60)
        node = whole(0, nodes - 1)
        for start, duration in ((first, whole(1, 20)), (second, whole(1, 20))):
            held = [whole(1, capacity[node][0] - 1), 0]
            reserved.append(
                {"start": start, "duration": duration, "nodes": [node], "capacity": held}
            )
    if "reservations" in extras:
        node = whole(0, nodes - 1)
        reserved.append({
            "start": NOW + whole(-15, 30), "duration": whole(1, 30), "nodes": [node],
            "capacity": capacity[node],
        })  # fmt: skip
    if reserved:
        file["reservations"] = reserved
    if "power" in extras:
        cap = whole(2, 4) * max(cores for cores, _ in capacity) // 2
        file["power"] = {"cap": cap, "unit": [1, 2]}
    if "dependencies" in extras:
        for job in queue[1:]:
            if random.random() < 0.5:
                job["after"] = [whole(0, job["id"] - 1)]
                job["think"] = whole(0, 9)
    if "down" in extras and nodes > 1:
        file["down"] = [whole(0, nodes - 1)]
        file["running"] = [job for job in ran if str(file["down"][0]) not in job["nodes"]]
    if "starvation" in extras:
        file["starvation"] = {"threshold": whole(20, 60), "bound": whole(10, 90)}
    if "predictions" in extras:
        for job in queue:
            job["upper"] = job["duration"] + whole(0, 15)
            job["requested"] = job["upper"] + whole(0, 30)
    # Drawn last, so that the others are what they were before there were these.
    extras |= {extra for extra in LATER if random.random() < 0.25}
    for job in queue:
        if "spread" in extras:
            job |= [{}, {"units_per_node_max": 1}, {"nodes_max": 1}][whole(0, 2)]
        if "places" in extras and nodes > 1 and random.random() < 0.5:
            job[("exclude", "nodelist")[whole(0, 1)]] = str(whole(0, nodes - 1))
        if "priority" in extras:
            job["priority"] = whole(1, 9)
    if random.random() < 0.25:
        extras.add("first")
        for job in queue:
            if job["units"] > 1:
                job["first"] = [whole(0, 4), whole(0, 1)]
    if extras & {*LATER, "first"}:
        file["format"] = "cpdispatch-instance/2"
    return read(file), extras
