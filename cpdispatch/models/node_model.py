"""What the formulations on the nodes have in common: when jobs run, the power cap, the cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from ortools.sat.python import cp_model

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

    @abstractmethod
    def _place(self, over: Callable[[], bool]) -> None:
        """Add the variables that say where the units are, and what the nodes have room for."""

    @abstractmethod
    def hint(self, plan: NodePlan) -> None:
        """Begin the next search with this plan: a value for every variable."""

    @abstractmethod
    def read(self, solver: Values) -> NodePlan:
        """The starts and nodes that a solver has found."""
