"""Small instances, and what the tests of the models on the nodes do with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from cpdispatch import instance as instances_module
from cpdispatch import verify
from cpdispatch.instance import Instance
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.search import Search
from cpdispatch.models.thesis import VARIANTS, pose_on_nodes
from tests.effort import examples
from tests.strategies import instance_files, read

NODES: dict[str, Any] = {
    "format": "cpdispatch-instance/1", "time": 100, "resources": ["core", "gpu"],
    "groups": [{"name": "a", "nodes": 2, "capacity": [4, 1]}],
}  # fmt: skip
"""Two nodes of 4 cores and 1 GPU, at 100 s."""

RESERVED = [{"start": 110, "duration": 10, "nodes": [0], "capacity": [4, 1]}]
WATTS = {"cap": 6, "unit": [1, 4]}

EXAMPLES = examples(60)
"""Random instances of each comparison with the exhaustive twin."""

Where: TypeAlias = tuple[int, dict[int, int]]
"""Start and units by node."""


def job(id: int, duration: int, units: int, *unit: int, **more: Any) -> dict[str, Any]:
    return {"id": id, "submit": 0, "duration": duration, "units": units, "unit": unit, **more}


def running(id: int, duration: int, unit: list[int], node: int, start: int = 95) -> dict[str, Any]:
    return {"id": id, "start": start, "duration": duration, "units": 1, "unit": unit,
            "nodes": {str(node): 1}}  # fmt: skip


def queued(*jobs: dict[str, Any], **more: Any) -> Instance:
    if any("first" in job for job in jobs):
        more |= {"format": "cpdispatch-instance/2"}
    return read(NODES | {"queue": list(jobs)} | more)


def crowd(jobs: int = 8, first: bool = False) -> Instance:
    """More jobs than fit now, of several shapes, beside two that run.

    With ``first``, those of two units take something once.
    """
    shapes = [job(k, 3 + 7 * k % 23, 1 + k % 2, 1 + k % 4, 0) for k in range(jobs)]
    for shape in shapes[1::2] if first else []:
        shape["first"] = [4 - shape["unit"][0], 1]
    return queued(*shapes, running=[running(900, 9, [1, 0], 0), running(901, 14, [2, 0], 1)])


@st.composite
def crowded(draw: st.DrawFn, first: bool = False) -> Instance:
    """Instances with three jobs, or up to five, most of which compete for the same nodes.

    With ``first``, some of them take something once.
    """
    file = draw(instance_files(max_nodes=3, max_jobs=2, max_running=3))
    for id in range(3):
        most = draw(st.sampled_from(file["groups"]))["capacity"]
        unit = [draw(st.integers(0, n)) for n in most]
        if max(unit) == 0:
            unit = most
        file["queue"].append(job(200 + id, draw(st.integers(1, 9)), draw(st.integers(1, 2)), *unit))
        if first and file["queue"][-1]["units"] > 1:
            file["queue"][-1]["first"] = [draw(st.integers(0, n)) for n in most]
            file["format"] = "cpdispatch-instance/2"
    return read(file)


PIECES = [(0, 1, 3), (0, 4, 1), (1, 3, 2), (2, 5, 1), (3, 6, 1), (4, 5, 2), (5, 6, 3)]
"""Begin, end and cores of jobs that a node of 4 cores can run, though not each in one piece."""


def in_pieces() -> tuple[NodeProblem, NodePlan]:
    """The problem of these jobs, and their plan."""
    jobs = [job(k, end - begin, 1, cores) for k, (begin, end, cores) in enumerate(PIECES)]
    node = {"resources": ["core"], "groups": [{"name": "a", "nodes": 1, "capacity": [4]}]}
    problem = problem_of(queued(*jobs, **node))
    return problem, plan_of(problem, *((100 + begin, {0: 1}) for begin, _, _ in PIECES))


def problem_of(
    instance: Instance, name: str = "thesis-pcp3", objective: str = "wait",
    chosen: Sequence[int] | None = None,
) -> NodeProblem:  # fmt: skip
    """The problem of the jobs at these positions, all by default, in the order of the queue."""
    positions = np.array(range(len(instance.queue)) if chosen is None else chosen, dtype=np.int64)
    return pose_on_nodes(instance, positions, VARIANTS[name], objective)


def plan_of(problem: NodeProblem, *wheres: Where) -> NodePlan:
    """The plan in which the jobs start there, in the order of the problem."""
    units = np.zeros_like(problem.room)
    for row, (_, nodes) in zip(units, wheres, strict=True):
        row[list(nodes)] = list(nodes.values())
    return NodePlan(np.array([start for start, _ in wheres], dtype=np.int64), units)


def accepts(
    model: Any, fix: Callable[[Any, int, dict[int, int]], None], *wheres: Where | None
) -> bool:
    """Whether a model allows the jobs to start there; ``fix`` says how it puts units on nodes."""
    for position, where in enumerate(wheres):
        if where is not None:
            start, nodes = where
            model.model.add(model.timing.starts[position] == start - model.problem.now)
            fix(model, position, nodes)
    return solver().solve(model.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


@dataclass(frozen=True)
class Form:
    """A model on the nodes, its families of constraints, and how tests put units on them."""

    model: Any
    families: Sequence[str]
    fix: Callable[[Any, int, dict[int, int]], None]

    def only(self, family: str, instance: Instance, *wheres: Where | None) -> bool:
        """Whether one family of constraints, without the others, allows the jobs to be there."""
        others = [other for other in self.families if other != family]
        model = alone(self.model, family, *others)(problem_of(instance))
        return accepts(model, self.fix, *wheres)

    def allowed(self, instance: Instance, *wheres: Where | None) -> bool:
        """Whether the model allows the jobs to be there."""
        return accepts(self.model(problem_of(instance)), self.fix, *wheres)


def solver() -> cp_model.CpSolver:
    """A solver as the dispatchers use it, without a limit to speak of."""
    return Search()._solver(100.0, 100.0)


def alone(model: type[Any], family: str, *others: str) -> type[Any]:
    """The model with one family of constraints, without the others."""
    assert hasattr(model, family)
    assert all(hasattr(model, other) for other in others)
    return type(family, (model,), {other: lambda self, *_: None for other in others})


def optimum(model: Any) -> float:
    """The exact value of the best plan of a model, which is checked."""
    one = solver()
    assert one.solve(model.model) == cp_model.OPTIMAL
    plan, problem = model.read(one), model.problem
    assert plan.check(problem) == ""
    assert round(one.objective_value) == problem.weights.sum(plan.start_s)
    return float(problem.cost.value(plan.start_s))


def without_overdue(instance: Instance) -> Instance:
    """The instance whose overdue jobs have just ended."""
    over = instance.running.jobs.id[instance.running.overdue.astype(bool)].tolist()
    file = json.loads(instances_module.to_json(instance))
    file["running"] = [row for row in file.get("running", []) if row["id"] not in over]
    return read(file)


def value(instance: Instance, objective: str, starts: dict[int, int]) -> float:
    return float(verify.objective_value(instance, objective, starts))


def head_of(model: Any, position: int, nodes: dict[int, int]) -> None:
    """Choose the first of the nodes of a job as its first node, where it takes something once."""
    heads = model.heads.get(position)
    if heads is not None:
        model.model.add_bool_or(heads[node] for node in list(nodes)[:1] if node in heads)


class Broken:
    """A solver that says something: a status, a bound, and values for the variables in turn."""

    def __init__(self, status: Any, bound: float, *values: int) -> None:
        self.status, self.best_objective_bound = status, bound
        self.values: Iterator[int] = cycle(values)
        self.parameters = type("Parameters", (), {})()

    def solve(self, model: cp_model.CpModel) -> Any:
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    def stop_search(self) -> None:
        """There is nothing to stop."""

    def value(self, variable: cp_model.IntVar) -> int:
        return next(self.values)
