"""Counts: how many units of a job a node holds is an integer; the system as a whole is relaxed.

This is the formulation of the dissertation's PCP4, see `cpdispatch.models.thesis`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.models.node_model import NodeModel
from cpdispatch.models.node_problem import NodePlan, NodeProblem
from cpdispatch.models.search import Values, in_time


class CountsModel(NodeModel):
    """Variables: the start of each job i, and ``a[i, n]`` in 0..p[i, n], its units on node n.

    Notes
    -----
    The thesis keeps what jobs hold of a node apart by boxes of height a[i, n] * unit[i, r]. A
    node's capacity need not be held in one piece, so here it is the sum of their heights
    that is limited: with vertical positions some plans, and with them the optimum, would be lost
    (the tests have such a plan, of 7 jobs on one node).

    These demands are variables, and with linearization on CP-SAT of OR-Tools 9.15 calls some
    models of that kind infeasible, or a plan optimal, that are not: `Search` has it off.
    """

    def _place(self, over: Callable[[], bool]) -> None:
        jobs = range(len(self.problem.jobs))
        self.placed = [self._units_of(job) for job in in_time(jobs, over)]
        for job in in_time(jobs, over):
            self._all_placed(job)
        for resource in self.problem.resources:
            self._within_system(resource)
            self._within_system_mirrored(resource)
            self._disjoint(resource)
            for node in in_time(np.nonzero(self.problem.capacity[:, resource])[0].tolist(), over):
                self._within_node(node, resource)

    @staticmethod
    def size(problem: NodeProblem) -> int:
        """How many parts the model of a problem has, of those that there are most of."""
        held = np.count_nonzero(problem.jobs.request[:, problem.resources], axis=1)
        return int((np.count_nonzero(problem.room, axis=1) * (1 + held)).sum())

    # ------------------------------------------------------------------------------- variables

    def _units_of(self, job: int) -> dict[int, cp_model.IntVar]:
        """Of a job, the number of units on each node that can hold one."""
        room = self.problem.room[job]
        return {
            node: self.model.new_int_var(0, int(room[node]), "")
            for node in np.nonzero(room)[0].tolist()
        }

    # ----------------------------------------------------------------------------- constraints

    def _all_placed(self, job: int) -> None:
        """All of a job's units are placed, none twice."""
        units = int(self.problem.jobs.units[job])
        self.model.add(cp_model.LinearExpr.sum(list(self.placed[job].values())) == units)
        for node, head in self.heads.get(job, {}).items():
            self.model.add(self.placed[job][node] >= 1).only_enforce_if(head)

    def _within_system(self, resource: int) -> None:
        """At no instant do the jobs hold more of a resource than all nodes have free together."""
        self.timing.within(self._free(resource), self._demand(resource))

    def _within_system_mirrored(self, resource: int) -> None:
        """The cumulative of the whole system, seen from the horizon.

        Time runs backwards, so that what prunes starts prunes ends.
        """
        problem = self.problem
        horizon = problem.horizon_s - problem.now
        durations = problem.duration_s.tolist()
        spans = [
            (horizon - start - duration, duration)
            for start, duration in zip(self.timing.starts, durations, strict=True)
        ]
        demands = self._demand(resource).tolist()
        for begin, end, demand in self.timing.levels(self._free(resource)):
            spans.append((horizon - end, end - begin))
            demands.append(demand)
        self.model.add_cumulative(
            [self.model.new_fixed_size_interval_var(begin, size, "") for begin, size in spans],
            demands,
            int(self._free(resource)[-1]),
        )

    def _disjoint(self, resource: int) -> None:
        """Two jobs that together ask for more of a resource than the system has do not overlap.

        Said once for each set of jobs any two of which do: those that ask for more than half, and
        each of the others with those that leave too little for it.
        """
        demand, total = self._demand(resource), int(self._free(resource)[-1])
        large = np.nonzero(2 * demand > total)[0]
        others = np.nonzero((demand > 0) & (2 * demand <= total))[0]
        cliques = [np.append(large[demand[large] + demand[job] > total], job) for job in others]
        cliques.append(large)
        for clique in cliques:
            if len(clique) > 1:
                self.model.add_no_overlap([self.timing.intervals[job] for job in clique.tolist()])

    def _within_node(self, node: int, resource: int) -> None:
        """At no instant do the jobs hold more of a resource than a node has free."""
        free = self.problem.free[:, node, resource]
        intervals, demands = self.timing.held(free)
        heights: list[cp_model.LinearExprT] = [*demands]
        asked = self.problem.jobs.request[:, resource].tolist()
        for placed, interval, unit in zip(self.placed, self.timing.intervals, asked, strict=True):
            if unit > 0 and node in placed:
                intervals.append(interval)
                heights.append(unit * placed[node])
        once, amounts = self._taken_once(node, resource)
        intervals += once
        heights += amounts
        if len(heights) > len(demands):
            self.model.add_cumulative(intervals, heights, int(free[-1]))

    def _free(self, resource: int) -> IntArray:
        """What all nodes have free together, shape (segments,)."""
        return np.asarray(self.problem.free[:, :, resource].sum(axis=1), dtype=np.int64)

    def _demand(self, resource: int) -> IntArray:
        """What each job holds with all of its units, shape (jobs,)."""
        problem = self.problem
        return problem.jobs.units * problem.jobs.request[:, resource] + problem.once(resource)

    # --------------------------------------------------------------------------- hint and result

    def hint(self, plan: NodePlan) -> None:
        """Begin the next search with this plan: a value for every variable."""
        self.timing.hint(plan.start_s)
        self._hint_heads(plan)
        for placed, units in zip(self.placed, plan.units, strict=True):
            for node, variable in placed.items():
                self.model.add_hint(variable, int(units[node]))

    def read(self, solver: Values) -> NodePlan:
        """The starts and nodes that a solver has found."""
        units = np.zeros_like(self.problem.room)
        for job, placed in enumerate(self.placed):
            for node, variable in placed.items():
                units[job, node] = solver.value(variable)
        return self._plan(self.timing.read(solver), units, solver)
