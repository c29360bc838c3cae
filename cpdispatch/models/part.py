"""Independent parts of a dispatch problem: which jobs, on which nodes, at what cost, in what order.

A part is what the engine works on. Of a part and a schedule, some jobs can be set free: what the
others leave is the `NodeProblem` of a formulation, with no more nodes of a kind than needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np

from cpdispatch.access import SPREAD
from cpdispatch.arrays import BoolArray, IntArray, sealed
from cpdispatch.decision import NO_START
from cpdispatch.heuristics.allocate import fit_capacity, fits_now
from cpdispatch.heuristics.profiles.per_class import CLASSES, Timelines
from cpdispatch.heuristics.profiles.profile import Profile, sampled, times
from cpdispatch.heuristics.schedule_generation import ListSchedule, ScheduleGenerator
from cpdispatch.heuristics.schedule_input import Held, jobs_of, timelines
from cpdispatch.instance import NO_LATEST_S, Instance
from cpdispatch.jobs import JobTable
from cpdispatch.models.families import distinct
from cpdispatch.models.node_problem import NodePlan, NodeProblem, asked_of, own_limits, room
from cpdispatch.models.objective import Cost, Weights
from cpdispatch.models.timing import After, in_turn
from cpdispatch.system import NodeGroup
from cpdispatch.terms import apart, with_first

STARVED_MOST = 1000
"""The most starved jobs that are planned though they do not fit now: those submitted first.

Where a cluster is overloaded, nearly all jobs of a long queue are starved.
"""

# ------------------------------------------------------------------------------ which jobs


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The jobs that are planned, by tier and priority."""

    position: IntArray
    """In the queue, shape (jobs,)."""
    first: IntArray
    """Those of them, as positions in the queue, that come before all others in every plan: the
    starved jobs by submission, then the first of the reserved ones.
    """

    def by_tier(self, instance: Instance) -> list[Selection]:
        """What is planned before the rest: the starved jobs and the highest tier, then each lower.

        A job that comes after another is never planned before it.
        """
        queue = instance.queue
        tier = np.where(instance.starved(), queue.tier.max(initial=0), queue.tier)
        if (given := instance.dependencies) is not None:
            owner = np.repeat(np.arange(len(queue)), np.diff(given.offset))
            before = tier[:0]
            while not np.array_equal(before, tier):
                before = tier.copy()
                np.minimum.at(tier, owner, before[given.position])
        mine, first = tier[self.position], tier[self.first]
        return [
            Selection(self.position[mine == each], self.first[first == each])
            for each in -np.unique(-mine)
        ] or [self]


def select(instance: Instance, order: IntArray, m: int, reserve: int) -> Selection:
    """The jobs that fit now, and the first that do not.

    Where killing takes time, no job is among them that has just been stopped: it leaves the queue
    for so long, unless it goes on.

    Parameters
    ----------
    order : int64 array, shape (queued,)
        Queue positions by tier and priority, highest first.
    m : int
        How many of the jobs that fit now, at most; the starved ones first.
    reserve : int
        How many of those that do not stay in the plan. Nothing delays the first of them that comes
        after no queued job.
    """
    if len(order) == 0:
        return Selection(order, order)
    possible = could_run(instance)
    now = fits_now(instance) & possible
    alone = np.ones(len(order), dtype=np.bool_)
    if instance.dependencies is not None:
        alone = np.diff(instance.dependencies.offset) == 0
    late = instance.starved()
    fitting = order[now[order]]
    fitting = np.concatenate((fitting[late[fitting]], fitting[~late[fitting]]))[:m]
    waiting = order[(possible & ~now & (instance.eligible() | (reserve >= len(order))))[order]]
    reserved = waiting[:reserve]
    starved = np.flatnonzero(late & possible & alone)
    taken = np.zeros(len(order), dtype=np.bool_)
    taken[fitting] = taken[reserved] = taken[starved[:STARVED_MOST]] = True
    # A starved job that comes after queued ones cannot be put first, and must not come later.
    taken[late & ~alone] = False
    _without_orphans(instance, taken)
    starved = starved[taken[starved]]
    first = reserved[taken[reserved] & alone[reserved]][:1]
    return Selection(order[taken[order]], np.concatenate((starved, np.setdiff1d(first, starved))))


def could_run(instance: Instance) -> BoolArray:
    """Whether each queued job can be planned: it fits the nodes in service when nothing runs."""
    capacity = instance.system.capacity.copy()
    capacity[instance.down] = 0
    possible = fit_capacity(sealed(capacity), with_first(instance.system, instance.queue.block))
    if instance.power is not None:
        possible &= instance.job_power(instance.queue) <= instance.power.cap
    if instance.stopped is not None and instance.restart_cost_s:
        possible[instance.stopped.position] = False
    return possible


def _without_orphans(instance: Instance, taken: BoolArray) -> None:
    """Leave out jobs that come after a queued one that is left out."""
    given = instance.dependencies
    if given is None:
        return
    owner = np.repeat(np.arange(len(taken)), np.diff(given.offset))
    while (orphans := owner[taken[owner] & ~taken[given.position]]).size:
        taken[orphans] = False


# -------------------------------------------------------------------------------- the parts


@dataclass(frozen=True, eq=False)
class Part:
    """Jobs of an instance, and the nodes that they and no others could use."""

    instance: Instance
    position: IntArray
    """In the queue, by priority, shape (jobs,)."""
    jobs: JobTable
    """What their units ask for."""
    first: IntArray
    """What each takes once, on its first node, shape (jobs, resources), or (jobs, 0) if nothing."""
    watts: IntArray
    """Power that each job draws, shape (jobs,)."""
    nodes: IntArray
    """In service."""
    locked: int
    """Number of jobs at the front of `first_order` that stay there in every order."""
    first_order: IntArray
    """By priority, but for the locked ones, shape (jobs,)."""
    after: tuple[After, ...]
    cost: Cost
    weights: Weights
    held: Held
    """What running jobs, reservations and the planned jobs of higher tiers hold."""
    around: bool
    """Whether jobs of higher tiers are planned already."""

    def __len__(self) -> int:
        return len(self.position)

    @cached_property
    def early_s(self) -> IntArray:
        """First start that each job may have, shape (jobs,)."""
        return self.instance.earliest_s()[self.position]

    @cached_property
    def generator(self) -> ScheduleGenerator:
        """Makes list schedules of all jobs of the part."""
        lines, member = timelines(self.instance, self.nodes, self.held)
        return ScheduleGenerator(lines, member, jobs_of(
            self.jobs, self.watts, self.early_s, self.weights.free_until_s, self.weights.per_s,
            [(after.job, after.before, after.think_s) for after in self.after], self.first,
        ))  # fmt: skip

    @cached_property
    def earliest_s(self) -> IntArray:
        """Earliest start of each job if it were alone, shape (jobs,)."""
        return self.generator.earliest()

    @cached_property
    def latest_s(self) -> IntArray:
        """Last start that each job may have, shape (jobs,).

        The first reserved job may not be delayed at all. A starved one has its bound, or the start
        that it has when the starved ones come first, by submission, if that is later.
        """
        latest_s = np.full(len(self), NO_LATEST_S, dtype=np.int64)
        if self.locked:
            front = self.first_order[: self.locked]
            start_s = self.generator.starts(self.first_order)[front]
            bound_s = self.instance.latest_s()[self.position[front]]
            latest_s[front] = np.where(bound_s < NO_LATEST_S, np.maximum(bound_s, start_s), start_s)
        return latest_s

    @cached_property
    def settled(self) -> BoolArray:
        """Whether each job must stay where the locked ones come first, shape (jobs,).

        Where a starved job is later than its bound, no other may make room for it in vain: all
        starved ones stay.
        """
        bound_s = self.instance.latest_s()[self.position]
        starved: BoolArray = bound_s < NO_LATEST_S
        return starved & bool((self.latest_s > bound_s).any())

    @cached_property
    def alike(self) -> IntArray:
        """A number for each job, shape (jobs,): jobs with the same may change places in any plan.

        They ask for the same, for as long, cost the same at every start, and may start at the same
        times. Where their units on a node are limited, each by a type of its own, the limits are
        the same.
        """
        jobs, weights, system = self.jobs, self.weights, self.instance.system
        own = np.array([name.startswith(f"{SPREAD}@") for name in system.resources])
        limit = (jobs.request[:, own] * system.capacity[0, own]).sum(axis=1)
        free_until_s = np.maximum(weights.free_until_s, self.instance.now)
        related = np.zeros(len(self), dtype=np.int64)
        for after in self.after:
            related[[after.job, after.before]] = 1 + np.array([after.job, after.before])
        return distinct([
            *jobs.request[:, ~own].T, *self.first.T, limit, jobs.units, jobs.planned_s,
            weights.per_s, free_until_s, self.early_s, self.latest_s, related,
        ])[1]  # fmt: skip

    def feasible_order(self, order: IntArray) -> IntArray:
        """The order with the locked jobs in front, and every job after its predecessors.

        Parameters
        ----------
        order : int64 array, shape (jobs,)
        """
        front = self.first_order[: self.locked]
        order = np.concatenate((front, order[~np.isin(order, front)]))
        return predecessors_first(order, self.after)

    # ----------------------------------------------------------------- some jobs set free

    def pose(
        self, schedule: ListSchedule, free: IntArray, nodes: IntArray
    ) -> tuple[NodeProblem, NodePlan, IntArray]:
        """The problem of some jobs of a schedule beside the others, which stay where they are.

        Parameters
        ----------
        free : int64 array
            Jobs of the part, ascending.
        nodes : int64 array
            Those that they may use, ascending; at least those that they use already.

        Returns
        -------
        NodeProblem
            Of like nodes it has as many as the jobs could use.
        NodePlan
            What the schedule says of these jobs.
        nodes : int64 array
            The nodes of the problem.
        """
        held = self.held.and_(held_by(self, schedule, free))
        lines, member = timelines(self.instance, nodes, held)
        mine = np.isin(np.repeat(np.arange(len(self)), np.diff(schedule.offset)), free)
        rows, nodes = _representatives(
            lines, member, np.unique(schedule.node[mine]), int(self.jobs.units[free].sum())
        )
        since_s = np.unique(np.concatenate([
            *(times(lines.nodes, c) for c in range(lines.size[CLASSES])), times(lines.power, 0),
        ]))  # fmt: skip
        seen = {int(c): sampled(lines.nodes, int(c), since_s) for c in np.unique(rows)}
        number = {int(job): k for k, job in enumerate(free)}
        early_s, latest_s, after = self._limits(schedule, number)
        left = np.stack([seen[int(c)] for c in rows], axis=1)
        jobs, first, left = own_limits(
            self.instance.system, self.jobs.take(free),
            self.first[free] if self.first[free].any() else None, left,
        )  # fmt: skip
        asked = asked_of(jobs, first)
        problem = NodeProblem(
            self.position[free], jobs, self.watts[free], since_s,
            left, _power_at(since_s, lines.power), asked, self.cost.take(free),
            self.weights.take(free),
            early_s[free], latest_s[free], after, self.alike[free], first,
        )  # fmt: skip
        column = {int(node): k for k, node in enumerate(nodes)}
        entry = np.flatnonzero(mine)
        count = np.diff(schedule.offset)[free]
        plan = problem.plan_of(
            schedule.start_s[free], np.concatenate(([0], np.cumsum(count))),
            np.array([column[node] for node in schedule.node[entry].tolist()], dtype=np.int64),
            schedule.units[entry],
        )  # fmt: skip
        return problem, plan.take(in_turn(plan.start_s, problem.alike)), nodes

    def _limits(
        self, schedule: ListSchedule, number: dict[int, int]
    ) -> tuple[IntArray, IntArray, tuple[After, ...]]:
        """First and last starts beside jobs that stay, and who comes after whom among the rest."""
        early_s, latest_s = self.early_s.copy(), self.latest_s.copy()
        within = []
        for job, before, think_s in self.after:
            duration_s = int(self.jobs.planned_s[before])
            if job in number and before in number:
                within.append(After(number[job], number[before], think_s))
            elif job in number:
                ready = schedule.start_s[before] + duration_s + think_s
                early_s[job] = max(early_s[job], ready)
            elif before in number:
                limit = schedule.start_s[job] - think_s - duration_s
                latest_s[before] = min(latest_s[before], limit)
        return early_s, latest_s, tuple(within)

    def merged(
        self, schedule: ListSchedule, free: IntArray, plan: NodePlan, nodes: IntArray
    ) -> ListSchedule:
        """The schedule with another plan for the jobs that were set free; see `pose`."""
        start_s = schedule.start_s.copy()
        start_s[free] = plan.start_s
        owner = np.repeat(np.arange(len(self)), np.diff(schedule.offset))
        stays = ~np.isin(owner, free)
        job, column = plan.entries()
        owner = np.concatenate((owner[stays], free[job]))
        node = np.concatenate((schedule.node[stays], nodes[column]))
        units = np.concatenate((schedule.units[stays], plan.units[job, column]))
        by_job = np.argsort(owner, kind="stable")
        offset = np.searchsorted(owner[by_job], np.arange(len(self) + 1))
        return ListSchedule(start_s, offset, node[by_job], units[by_job])


def held_by(part: Part, schedule: ListSchedule, but: IntArray) -> Held:
    """The capacity that the jobs of a schedule hold, without some of the jobs."""
    owner = np.repeat(np.arange(len(part)), np.diff(schedule.offset))
    amount = part.jobs.request[owner] * schedule.units[:, None]
    if part.first.any():
        placed = np.flatnonzero(np.diff(schedule.offset))
        amount[schedule.offset[placed]] += part.first[placed]
    stays = ~np.isin(owner, but)
    owner = owner[stays]
    others = np.setdiff1d(np.arange(len(part)), but)
    end_s = schedule.start_s + part.jobs.planned_s
    return Held(
        schedule.start_s[owner], end_s[owner], schedule.node[stays], amount[stays],
        schedule.start_s[others], end_s[others], part.watts[others],
    )  # fmt: skip


def _representatives(
    lines: Timelines, member: IntArray, used: IntArray, most: int
) -> tuple[IntArray, IntArray]:
    """Classes and nodes, ``most`` of each class, but all that are ``used`` already."""
    rows, nodes = [], []
    for c in range(lines.size[CLASSES]):
        here = member[lines.first[c] : lines.last[c]]
        mine = np.isin(here, used)
        kept = np.concatenate((here[mine], here[~mine][: max(most - int(mine.sum()), 0)]))
        rows.append(np.full(len(kept), c))
        nodes.append(kept)
    return np.concatenate(rows), np.concatenate(nodes)


def _power_at(since_s: IntArray, power: Profile) -> IntArray:
    """The free power at some times; without a cap, more than is ever needed."""
    if power.segments[0] == 0:
        return np.full(len(since_s), np.iinfo(np.int64).max // 4)
    return sampled(power, 0, since_s)[:, 0]


# ------------------------------------------------------------------------------ decomposition


def parts_of(
    instance: Instance, selection: Selection, cost: Cost, held: Held, *, around: bool = False
) -> list[Part]:
    """The independent parts of a problem, those with the job of highest priority first.

    Jobs belong together that could use nodes of the same group, that come after one another, or
    that share a cap on power.

    Parameters
    ----------
    cost : Cost
        Of the whole queue.
    held : Held
        What running jobs, reservations and planned jobs of higher tiers hold.
    around : bool
        Whether jobs of higher tiers are planned already.
    """
    position, groups = selection.position, instance.system.groups
    count = len(position)
    could, like = _groups_of(groups, instance.queue.take(position))
    found = np.any(could, axis=1)[like].nonzero()[0]
    row, group = np.nonzero(could)
    by_row, by_group = count + like, count + len(could) + group
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(zip(found.tolist(), by_row[found].tolist(), strict=True))
    graph.add_edges_from(zip((count + row).tolist(), by_group.tolist(), strict=True))
    after = _pairs(instance, position)
    graph.add_edges_from((pair.job, pair.before) for pair in after)
    if instance.power is not None:
        nx.add_path(graph, range(count))
    components = [
        np.array(sorted(vertex for vertex in component if vertex < count), dtype=np.int64)
        for component in nx.connected_components(graph)
    ]
    begin = np.cumsum([0, *(group.nodes for group in groups)])
    in_service = np.setdiff1d(np.arange(instance.system.nodes), instance.down)
    group_of = np.searchsorted(begin, in_service, side="right") - 1
    components.sort(key=lambda members: int(members[0]))
    pairs: list[list[After]] = [[] for _ in components]
    part_of = np.empty(count, dtype=np.int64)
    for k, members in enumerate(components):
        part_of[members] = k
    for pair in after:
        pairs[part_of[pair.job]].append(pair)
    return [
        _part(
            instance, selection, cost, held, around, members,
            in_service[np.isin(group_of, np.flatnonzero(np.any(could[like[members]], axis=0)))],
            within,
        )
        for members, within in zip(components, pairs, strict=True)
    ]  # fmt: skip


def _groups_of(groups: Sequence[NodeGroup], jobs: JobTable) -> tuple[BoolArray, IntArray]:
    """Sets of groups as rows, shape (sets, groups), and in which set's groups each job finds room.

    Of the thousands of jobs of a long queue many ask for the same.
    """
    asked, of = distinct([*jobs.request.T])
    could = room(np.array([group.capacity for group in groups]), jobs.take(asked)) > 0
    sets, like = distinct([*np.packbits(could, axis=1).T])
    return could[sets], like[of]


def _part(
    instance: Instance,
    selection: Selection,
    cost: Cost,
    held: Held,
    around: bool,
    members: IntArray,
    nodes: IntArray,
    after: Iterable[After],
) -> Part:
    position = selection.position[members]
    number = {int(member): k for k, member in enumerate(members)}
    asked = instance.queue.take(position)
    units, first = apart(instance.system, asked.block)
    jobs = asked.asking(units)
    cost = cost.take(position)
    place = {int(queued): k for k, queued in enumerate(position)}
    front = [place[int(queued)] for queued in selection.first if int(queued) in place]
    pairs = tuple(After(number[a.job], number[a.before], a.think_s) for a in after)
    rest = np.setdiff1d(np.arange(len(position)), front)
    order = predecessors_first(np.concatenate((np.array(front, dtype=np.int64), rest)), pairs)
    end_s = int(held.end_s.max(initial=instance.now))
    end_s = int(max(instance.running.planned_end_s().max(initial=end_s), *(
        [instance.now, *(r.end_s for r in instance.reservations)]
    )))  # fmt: skip
    end_s = max(end_s, int(instance.earliest_s()[position].max(initial=0)))
    horizon_s = end_s + int(jobs.planned_s.sum()) + sum(pair.think_s for pair in pairs)
    return Part(
        instance, position, jobs, first.T, instance.job_power(asked), nodes, len(front), order,
        pairs, cost, cost.weights(horizon_s), held, around,
    )  # fmt: skip


def predecessors_first(order: IntArray, after: Iterable[After]) -> IntArray:
    """An order in which every job comes after its predecessors, else the same."""
    graph = nx.DiGraph((pair.before, pair.job) for pair in after)
    if not graph:
        return order
    graph.add_nodes_from(order.tolist())
    rank = {int(job): k for k, job in enumerate(order)}
    return np.array(
        list(nx.lexicographical_topological_sort(graph, key=rank.__getitem__)), dtype=np.int64
    )


def after_planned(instance: Instance, part: Part, start_s: IntArray) -> Instance:
    """The instance in which dependent jobs start after the planned ends of a part's jobs.

    Parameters
    ----------
    part : Part
        Of jobs that no others are planned with.
    start_s : int64 array, shape (jobs,)
        All jobs of the part have a start.
    """
    given = instance.dependencies
    if given is None:
        return instance
    owner = np.repeat(np.arange(len(instance.queue)), np.diff(given.offset))
    end_s = np.full(len(instance.queue), NO_START, dtype=np.int64)
    end_s[part.position] = start_s + part.jobs.planned_s
    ready_s = end_s[given.position]
    known = ready_s != NO_START
    earliest_s = given.earliest_s.copy()
    np.maximum.at(earliest_s, owner[known], ready_s[known] + given.think_s[owner[known]])
    offset = np.searchsorted(owner[~known], np.arange(len(instance.queue) + 1))
    left = replace(
        given, earliest_s=sealed(earliest_s), offset=sealed(offset),
        position=sealed(given.position[~known]),
    )  # fmt: skip
    return replace(instance, dependencies=left)


def _pairs(instance: Instance, position: IntArray) -> list[After]:
    """Which of the jobs at these queue positions come after which."""
    given = instance.dependencies
    if given is None:
        return []
    number = {int(queued): k for k, queued in enumerate(position)}
    return [
        After(number[queued], number[int(before)], int(given.think_s[queued]))
        for queued in number
        for before in given.position[given.offset[queued] : given.offset[queued + 1]]
    ]
