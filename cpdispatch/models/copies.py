"""Copies: a unit of a job is an optional copy on each node that could hold it.

This is the formulation of the dissertation's PCP to PCP3, see `cpdispatch.models.thesis`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.models.node_model import NodeModel
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.search import Values, in_time


class CopiesModel(NodeModel):
    """Variables: the start of each job, and for each unit that a node could hold a copy of it.

    A copy is an optional interval that shares the start of its job.
    """

    def _place(self, over: Callable[[], bool]) -> None:
        jobs = range(len(self.problem.jobs))
        self.present = [self._copies_of(job) for job in in_time(jobs, over)]
        self.copies = [self._intervals_of(job) for job in in_time(jobs, over)]
        for job in in_time(jobs, over):
            self._alternative(job)
        for resource in self.problem.resources:
            for node in in_time(np.nonzero(self.problem.capacity[:, resource])[0].tolist(), over):
                self._within_node(node, resource)

    @staticmethod
    def size(problem: NodeProblem) -> int:
        """How many parts the model of a problem has, of those that there are most of."""
        held = np.count_nonzero(problem.jobs.request[:, problem.resources], axis=1)
        return int((problem.room.sum(axis=1) * (2 + held)).sum())

    # ------------------------------------------------------------------------------- variables

    def _copies_of(self, job: int) -> dict[int, list[cp_model.IntVar]]:
        """Of a job, by node: whether each of the p[i, n] units that it could hold is there."""
        room = self.problem.room[job]
        return {
            node: [self.model.new_bool_var("") for _ in range(room[node])]
            for node in np.nonzero(room)[0].tolist()
        }

    def _intervals_of(self, job: int) -> dict[int, list[cp_model.IntervalVar]]:
        """The interval of each copy: it begins with its job."""
        start, duration = self.timing.starts[job], int(self.problem.duration_s[job])
        new_interval = self.model.new_optional_fixed_size_interval_var
        return {
            node: [new_interval(start, duration, present, "") for present in here]
            for node, here in self.present[job].items()
        }

    # ----------------------------------------------------------------------------- constraints

    def _alternative(self, job: int) -> None:
        """As many copies are present as the job has units."""
        copies = [present for here in self.present[job].values() for present in here]
        self.model.add(cp_model.LinearExpr.sum(copies) == int(self.problem.jobs.units[job]))
        for node, head in self.heads.get(job, {}).items():
            self.model.add_bool_or(self.present[job][node]).only_enforce_if(head)

    def _within_node(self, node: int, resource: int) -> None:
        """At no instant do the copies hold more of a resource than a node has free."""
        free = self.problem.free[:, node, resource]
        intervals, demands = self.timing.held(free)
        once, amounts = self._taken_once(node, resource)
        intervals += once
        demands += amounts
        asked = self.problem.jobs.request[:, resource].tolist()
        for copies, unit in zip(self.copies, asked, strict=True):
            if unit > 0 and node in copies:
                intervals += copies[node]
                demands += [unit] * len(copies[node])
        self.model.add_cumulative(intervals, demands, int(free[-1]))

    # --------------------------------------------------------------------------- hint and result

    def hint(self, plan: NodePlan) -> None:
        """Begin the next search with this plan: a value for every variable."""
        self.timing.hint(plan.start_s)
        self._hint_heads(plan)
        for present, units in zip(self.present, plan.units, strict=True):
            for node, here in present.items():
                for count, copy in enumerate(here):
                    self.model.add_hint(copy, bool(count < units[node]))

    def read(self, solver: Values) -> NodePlan:
        """The starts and nodes that a solver has found."""
        units = np.zeros_like(self.problem.room)
        for job, present in enumerate(self.present):
            for node, here in present.items():
                units[job, node] = sum(solver.value(copy) for copy in here)
        return self._plan(self.timing.read(solver), units, solver)
