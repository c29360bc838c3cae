"""Boxes: each unit is a box on one axis per resource, where all nodes' capacities lie end to end.

This is the formulation of the dissertation's PCP5, see `cpdispatch.models.thesis`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from ortools.sat.python import cp_model

from cpdispatch.arrays import IntArray
from cpdispatch.models.node_model import NodeModel
from cpdispatch.models.node_problem import NodePlan, NodeProblem, asked_of
from cpdispatch.models.search import Values, in_time

NUMBERS_PER_PART = 50
"""Numbers in domains and tables that take as long to build as a variable with its constraints."""
_PACKING_WORK = 200_000
"""Comparisons of the boxes of one node and resource before a hint is left imperfect: some 20 ms."""
_PILES = 500
"""Heights of boxes on top of each other that are looked at: wide nodes have as many as units."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box of fixed times, counted from now, on a node."""

    begin: int
    end: int
    height: int

    def rows(self) -> list[Box]:
        """The same as boxes of height 1."""
        return [Box(self.begin, self.end, 1)] * self.height


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A resource of all nodes laid end to end, counted in what all requests are multiples of."""

    height: IntArray
    """What a unit of each job takes, shape (jobs,)."""
    once: IntArray
    """What each job takes once, on top of its first unit, shape (jobs,)."""
    free: IntArray
    """Free capacity of each node, shape (segments, nodes); a rest that is smaller than one measure
    is useless.
    """
    first: IntArray
    end: IntArray
    """Where each node begins and ends, shape (nodes,)."""

    @classmethod
    def of(cls, problem: NodeProblem, resource: int) -> Axis:
        """The axis of a resource that some job asks for."""
        asked = problem.jobs.request[:, resource]
        once = problem.once(resource)
        measure = np.gcd.reduce(np.concatenate((asked, once)))
        free = problem.free[:, :, resource] // measure
        end = np.cumsum(free[-1])
        return cls(asked // measure, once // measure, free, end - free[-1], end)

    @property
    def lossless(self) -> bool:
        """Whether boxes in one piece lose no plan: all units are equally high."""
        return bool(self.height.max() == 1) and not self.once.any()

    def boxes(self, nodes: IntArray) -> int:
        """How many boxes `held` makes of these nodes, or a few more."""
        free = self.free[:, nodes]
        rises = np.maximum(-np.diff(free, axis=0), 0)
        now = np.count_nonzero(free[0] < free[-1])
        return int(now + (rises.sum() if self.lossless else np.count_nonzero(rises)))

    def ranges(self, job: int, nodes: IntArray) -> int:
        """How many ranges the positions of a unit on these nodes are."""
        last = self.end[nodes] - self.height[job]
        return int(1 + np.count_nonzero(self.first[nodes][1:] > last[:-1] + 1))

    def held(self, problem: NodeProblem, node: int) -> list[Box]:
        """What running jobs and reservations hold of a node, cut into boxes of constant height."""
        boxes: list[Box] = []
        pile: list[tuple[int, int, int]] = []
        level_of = (self.free[-1, node] - self.free[:, node]).tolist()
        for time, level in zip((problem.since_s - problem.now).tolist(), level_of, strict=True):
            while pile and pile[-1][2] > level:
                since, low, high = pile.pop()
                boxes.append(Box(since, time, high - max(low, level)))
                if low < level:
                    pile.append((since, low, level))
            top = pile[-1][2] if pile else 0
            if level > top:
                pile.append((time, top, level))
        if self.lossless:
            # Rows of what begins later go where the jobs leave room for them.
            later = [row for box in boxes if box.begin > 0 for row in box.rows()]
            boxes = [box for box in boxes if box.begin == 0] + later
        return boxes


class BoxesModel(NodeModel):
    """Variables: the start of each job, and for each unit its position on each resource's axis.

    Their number does not grow with the number of nodes, but for the running jobs on them. The
    domains of the positions do, and so do the tables that say where a node begins on each axis.

    Notes
    -----
    A box is in one piece and stays where it is. A plan that would use the free capacity of some
    node in pieces is not among this model's, so that its optimum may lie above that of the
    others, unless it is `lossless`.

    What a job takes once makes the boxes of its first unit higher.
    """

    freed_s: ClassVar[float] = 5e-6

    def _choose_heads(self) -> None:
        """Choose nothing here: the first nodes are those of the first units."""
        self.heads, self.on_first = {}, {}

    def _place(self, over: Callable[[], bool]) -> None:
        problem = self.problem
        self.owner = np.repeat(np.arange(len(problem.jobs)), problem.jobs.units)
        begin = np.cumsum(problem.jobs.units) - problem.jobs.units
        self.is_first = np.zeros(len(self.owner), dtype=np.bool_)
        self.is_first[begin[problem.with_first]] = True
        self.room_on_first = {job: problem.room_on_first(job) for job in problem.with_first}
        self.axes = [Axis.of(problem, resource) for resource in _asked(problem)]
        self.bottoms = [self._bottoms(axis, over) for axis in self.axes]
        self.held = [self._held(axis, over) for axis in self.axes]
        self.nodes: dict[int, cp_model.IntVar] = {}
        # Of a unit and an axis: where the unit's node begins and ends there.
        self.spans: list[tuple[int, Axis, cp_model.IntVar, cp_model.IntVar]] = []
        for axis, bottoms, held in zip(self.axes, self.bottoms, self.held, strict=True):
            self._disjoint(axis, bottoms, held)
        for unit in in_time(range(len(self.owner)), over):
            self._on_one_node(unit)
        self._units_ascending()

    @property
    def lossless(self) -> bool:
        """Whether every plan of the problem is one of the model."""
        return all(axis.lossless for axis in self.axes)

    @staticmethod
    def size(problem: NodeProblem) -> int:
        """How many parts the model of a problem has: variables, constraints, some numbers each."""
        units, request, room = problem.jobs.units, problem.jobs.request, problem.room
        asked = np.count_nonzero(request, axis=1)
        numbers = units * np.where(asked > 1, np.count_nonzero(room, axis=1), 0)
        numbers += 2 * room.shape[1] * units * np.where(asked > 1, asked, 0)
        parts = int((units * (1 + 4 * asked)).sum())
        for resource in _asked(problem):
            axis = Axis.of(problem, resource)
            some = np.nonzero(axis.height + axis.once)[0]
            useful = np.nonzero(room[some].any(axis=0))[0]
            parts += 3 * axis.boxes(useful)
            for job in some.tolist():
                numbers[job] += units[job] * axis.ranges(job, np.nonzero(room[job])[0])
        return parts + int(numbers.sum()) // NUMBERS_PER_PART

    # ------------------------------------------------------------------------------- variables

    def _height(self, axis: Axis, unit: int) -> int:
        """What a unit takes of an axis, with what its job takes once if it is the first."""
        job = self.owner[unit]
        return int(axis.height[job] + self.is_first[unit] * axis.once[job])

    def _nodes_of(self, unit: int) -> IntArray:
        """The nodes that have room for a unit."""
        job = int(self.owner[unit])
        room = self.room_on_first[job] if self.is_first[unit] else self.problem.room[job]
        return np.flatnonzero(room)

    def _bottoms(self, axis: Axis, over: Callable[[], bool]) -> dict[int, cp_model.IntVar]:
        """Where each unit's box begins: it lies within one node that has room for the unit."""
        domains: dict[tuple[int, bool], cp_model.Domain] = {}
        bottoms = {}
        for unit, job in enumerate(in_time(self.owner.tolist(), over)):
            height = self._height(axis, unit)
            if not height:
                continue
            key = job, bool(self.is_first[unit])
            if key not in domains:
                nodes = self._nodes_of(unit)
                ranges = np.column_stack((axis.first[nodes], axis.end[nodes] - height)).tolist()
                domains[key] = cp_model.Domain.from_intervals(ranges)
            bottoms[unit] = self.model.new_int_var_from_domain(domains[key], "")
        return bottoms

    def _held(self, axis: Axis, over: Callable[[], bool]) -> list[tuple[int, Box, cp_model.IntVar]]:
        """Node, box and position of what is held of the nodes that some job could use."""
        useful = self.problem.room[axis.height + axis.once > 0].any(axis=0)
        held = []
        for node in in_time(np.nonzero(useful)[0].tolist(), over):
            for box in axis.held(self.problem, node):
                last = int(axis.end[node]) - box.height
                bottom = self.model.new_int_var(int(axis.first[node]), last, "")
                held.append((node, box, bottom))
        return held

    # ----------------------------------------------------------------------------- constraints

    def _disjoint(
        self,
        axis: Axis,
        bottoms: dict[int, cp_model.IntVar],
        held: list[tuple[int, Box, cp_model.IntVar]],
    ) -> None:
        """No two boxes hold the same part of an axis at the same time."""
        new_interval = self.model.new_fixed_size_interval_var
        across, along = [], []
        for unit, bottom in bottoms.items():
            job = int(self.owner[unit])
            across.append(self.timing.intervals[job])
            along.append(new_interval(bottom, self._height(axis, unit), ""))
        for _, box, bottom in held:
            across.append(new_interval(box.begin, box.end - box.begin, ""))
            along.append(new_interval(bottom, box.height, ""))
        self.model.add_no_overlap_2d(across, along)

    def _on_one_node(self, unit: int) -> None:
        """A unit's boxes on the axes of several resources belong to the same node."""
        placed = [
            (axis, bottoms[unit])
            for axis, bottoms in zip(self.axes, self.bottoms, strict=True)
            if unit in bottoms
        ]
        if len(placed) == 1:
            return
        nodes = self._nodes_of(unit).tolist()
        node = self.model.new_int_var_from_domain(cp_model.Domain.from_values(nodes), "")
        self.nodes[unit] = node
        for axis, bottom in placed:
            total = int(axis.end[-1])
            first, end = (self.model.new_int_var(0, total, "") for _ in range(2))
            self.model.add_element(node, axis.first.tolist(), first)
            self.model.add_element(node, axis.end.tolist(), end)
            self.model.add(bottom >= first)
            self.model.add(bottom + self._height(axis, unit) <= end)
            self.spans.append((unit, axis, first, end))

    def _units_ascending(self) -> None:
        """A job's units are interchangeable: they follow each other on the first of its axes.

        The first one is not where the job takes something once.
        """
        for job, first in enumerate(self._first_axis()):
            units = np.nonzero((self.owner == job) & ~self.is_first)[0].tolist()
            height = int(self.axes[first].height[job])
            for unit, following in pairwise(units):
                bottoms = self.bottoms[first]
                self.model.add(bottoms[following] >= bottoms[unit] + height)

    def _first_axis(self) -> list[int]:
        """For each job, the index of the first axis on which it has boxes."""
        heights = np.array([axis.height for axis in self.axes])
        return np.argmax(heights > 0, axis=0).tolist()  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------- hint and result

    def hint(self, plan: NodePlan) -> None:
        """Begin the next search with this plan: a value for every variable.

        Positions are found by a short search; where that finds none, the hint breaks a constraint.
        """
        self.timing.hint(plan.start_s)
        job, node_of = plan.entries()
        node_of = np.repeat(node_of, plan.units[job, node_of])
        for unit, variable in self.nodes.items():
            self.model.add_hint(variable, int(node_of[unit]))
        for unit, axis, first, end in self.spans:
            self.model.add_hint(first, int(axis.first[node_of[unit]]))
            self.model.add_hint(end, int(axis.end[node_of[unit]]))
        for index in range(len(self.axes)):
            for node in range(len(self.axes[index].first)):
                self._hint_positions(index, node, plan.start_s, node_of)

    def _hint_positions(self, index: int, node: int, start_s: IntArray, node_of: IntArray) -> None:
        """Hint the positions of all boxes of an axis that lie on one node."""
        axis, now = self.axes[index], self.problem.now
        held = [(box, bottom) for at, box, bottom in self.held[index] if at == node]
        units = [unit for unit in np.nonzero(node_of == node)[0].tolist()
                 if unit in self.bottoms[index]]  # fmt: skip
        boxes = [box for box, _ in held]
        for unit in units:
            job = self.owner[unit]
            begin = int(start_s[job]) - now
            end = begin + int(self.problem.duration_s[job])
            boxes.append(Box(begin, end, self._height(axis, unit)))
        first = int(axis.first[node])
        positions = first + np.array(pack(boxes, int(axis.end[node]) - first), dtype=np.int64)
        for (_, variable), position in zip(held, positions.tolist(), strict=False):
            self.model.add_hint(variable, position)
        # A job's units are next to each other in the list: their positions are to ascend.
        own = positions[len(held) :]
        alike = 2 * self.owner[units] + ~self.is_first[units]
        ascending = own[np.lexsort((own, alike))]
        for unit, position in zip(units, ascending.tolist(), strict=True):
            self.model.add_hint(self.bottoms[index][unit], position)

    def read(self, solver: Values) -> NodePlan:
        """The starts and nodes that a solver has found."""
        units = np.zeros_like(self.problem.room)
        head = np.zeros(len(units), dtype=np.int64)
        first_axis = self._first_axis()
        for unit, job in reversed(list(enumerate(self.owner.tolist()))):
            index = first_axis[job]
            bottom = solver.value(self.bottoms[index][unit])
            head[job] = np.searchsorted(self.axes[index].first, bottom, side="right") - 1
            units[job, head[job]] += 1
        first = self.problem.with_first
        head[~np.isin(np.arange(len(units)), first)] = -1
        return NodePlan(self.timing.read(solver), units, head if len(first) else None)


def _asked(problem: NodeProblem) -> list[int]:
    """The constrained resource types that some job asks for."""
    asked = asked_of(problem.jobs, problem.first)
    return [resource for resource in problem.resources if resource in asked]


# ------------------------------------------------------------------------------------- packing


def pack(boxes: list[Box], capacity: int) -> list[int]:
    """Positions at which boxes of fixed times do not overlap, where a short search finds such.

    Boxes are taken in the order of their begin, and tried first against the ends and the boxes that
    stand there at the time, then wherever boxes on top of each other could end.
    """
    piles = {0}
    for box in boxes:
        if len(piles) > _PILES:
            break
        piles |= {top + box.height for top in piles if top + box.height < capacity}
    order = sorted(range(len(boxes)), key=lambda k: (boxes[k].begin, -boxes[k].end))
    bottoms = [0] * len(boxes)
    tried: list[Iterator[int]] = []
    left = [_PACKING_WORK]
    while len(tried) < len(order):
        placed, new = order[: len(tried)], order[len(tried)]
        tried.append(_spots(boxes, bottoms, placed, new, capacity, piles, left))
        spot = None
        while tried and (spot := next(tried[-1], None)) is None:
            tried.pop()
        if spot is None:
            break
        bottoms[order[len(tried) - 1]] = spot
    return bottoms


def _spots(
    boxes: list[Box],
    bottoms: list[int],
    placed: list[int],
    new: int,
    capacity: int,
    piles: set[int],
    left: list[int],
) -> Iterator[int]:
    """Where a box can stand between those that are placed, while comparisons are ``left``."""
    box = boxes[new]
    taken = [
        (bottoms[k], bottoms[k] + boxes[k].height)
        for k in placed
        if boxes[k].begin < box.end and box.begin < boxes[k].end
    ]
    spots = {0, capacity - box.height}
    spots.update(top for _, top in taken)
    spots.update(bottom - box.height for bottom, _ in taken)
    left[0] -= len(placed)
    for spot in [*sorted(spots), *sorted(piles - spots)]:
        left[0] -= len(taken) + 1
        if left[0] < 0:
            return
        inside = 0 <= spot <= capacity - box.height
        if inside and all(top <= spot or spot + box.height <= bottom for bottom, top in taken):
            yield spot
