"""What the formulations on the nodes have in common: when jobs run, the power cap, the cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.search import Values, never
from cpdispatch.models.timing import Timing


class NodeModel(ABC):
    """A CP-SAT model of a problem on the nodes; a formulation says where the units are.

    Parameters
    ----------
    plan : NodePlan, optional
        A complete plan, which the solver starts from; it looks for none that is worse.
    over : callable
        Whether there is no more time to build it.
    """

    freed_s: ClassVar[float] = 1.5e-6

    def __init__(
        self,
        problem: NodeProblem,
        plan: NodePlan | None = None,
        over: Callable[[], bool] = never,
    ) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.timing = Timing(self.model, problem, None if plan is None else plan.start_s)
        self._choose_heads()
        self._place(over)
        self.timing.within(problem.watts_free, problem.watts)
        self.timing.minimise()
        self.timing.search_by_priority()
        if plan is not None:
            self.hint(plan)

    @property
    def lossless(self) -> bool:
        """Whether every plan of the problem is one of the model."""
        return True

    def _choose_heads(self) -> None:
        """Of each job that takes something once: whether each node that can be its first one is.

        What it takes there lasts as long as the job.
        """
        self.heads: dict[int, dict[int, cp_model.IntVar]] = {}
        self.on_first: dict[int, dict[int, cp_model.IntervalVar]] = {}
        for job in self.problem.with_first.tolist():
            nodes = np.flatnonzero(self.problem.room_on_first(job)).tolist()
            here = self.heads[job] = {node: self.model.new_bool_var("") for node in nodes}
            self.model.add_exactly_one(here.values())
            start, duration = self.timing.starts[job], int(self.problem.duration_s[job])
            self.on_first[job] = {
                node: self.model.new_optional_fixed_size_interval_var(start, duration, head, "")
                for node, head in here.items()
            }

    def _taken_once(self, node: int, resource: int) -> tuple[list[cp_model.IntervalVar], list[int]]:
        """When jobs take something once of a node, and how much."""
        amounts = self.problem.once(resource)
        taken = [
            (intervals[node], int(amounts[job]))
            for job, intervals in self.on_first.items()
            if node in intervals and amounts[job]
        ]
        return [interval for interval, _ in taken], [amount for _, amount in taken]

    def _hint_heads(self, plan: NodePlan) -> None:
        """Hint the first nodes of a plan."""
        for job, here in self.heads.items():
            for node, head in here.items():
                self.model.add_hint(head, plan.head is not None and bool(plan.head[job] == node))

    def _plan(self, start_s: IntArray, units: IntArray, solver: Values) -> NodePlan:
        """A plan with the first nodes that a solver has found."""
        if not self.heads:
            return NodePlan(start_s, units)
        head = np.full(len(units), -1)
        for job, here in self.heads.items():
            head[job] = next(node for node, one in here.items() if solver.value(one))
        return NodePlan(start_s, units, head)

    @abstractmethod
    def _place(self, over: Callable[[], bool]) -> None:
        """Add the variables that say where the units are, and what the nodes have room for."""

    @abstractmethod
    def hint(self, plan: NodePlan) -> None:
        """Begin the next search with this plan: a value for every variable."""

    @abstractmethod
    def read(self, solver: Values) -> NodePlan:
        """The starts and nodes that a solver has found."""
