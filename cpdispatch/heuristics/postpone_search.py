"""Schedule or postpone: a search through the plans of few jobs on the nodes, which can see all.

The job that can start first is scheduled then, on the nodes that fit best. When the search comes
back to this choice it tries other nodes, and then postpones the job to the next time at which some
node has more room for it. In some best plan no job could start earlier on its own nodes: each
starts at such a time, and all of them are tried in the order of time. What cannot become better
than the best plan so far is left out, and so is what differs from another plan in jobs or nodes
that are alike.

References
----------
Galleguillos, "Constraint programming-based job dispatching for modern HPC applications", 2020,
algorithm 4. Le Pape, Couronne, Vergamini, Gosselin, "Time-versus-capacity compromises in project
scheduling", Proceedings of the Thirteenth Workshop of the UK Planning Special Interest Group, 1994.
There a postponed job waits until others move its earliest start: where nodes differ, that can leave
out the best plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import allocating, kernel
from cpdispatch.heuristics.order_search import Trail
from cpdispatch.heuristics.profiles import profile
from cpdispatch.heuristics.profiles.per_class import (
    CLASSES,
    Slices,
    Timelines,
    Window,
    copy,
    earliest,
    empty_timelines,
    empty_window,
    fullness,
    hold_power,
    look,
    room_for_states,
    state,
    take,
)
from cpdispatch.heuristics.profiles.profile import FOREVER
from cpdispatch.heuristics.schedule_generation import (
    Jobs,
    ListSchedule,
    ScheduleGenerator,
    cost_of,
    ready_from,
)

SPLITS = 1024
"""Of a job with several units, so many ways to put some on a node are told apart; nothing is proven
where there are more."""
NONE = -1


class Tree(NamedTuple):
    """Where the search is: at depth d, d jobs have a start. Rows are depths."""

    trail: Trail
    """The state at each depth."""
    start: IntArray
    """Of the jobs with a start, else `NONE`; shape (jobs,)."""
    path: IntArray
    """The jobs with a start, shape (jobs,)."""
    time: IntArray
    """When each job could start next, shape (depths, jobs); `FOREVER` until others move it."""
    mark: IntArray
    """The start from which each job was postponed last, shape (depths, jobs)."""
    chosen: IntArray
    """The job that is being scheduled, shape (depths,)."""
    splits: IntArray
    """How many (class, units on a node) there are for it, shape (depths,)."""
    of: IntArray
    """The class of each, shape (depths, splits)."""
    size: IntArray
    """The units on a node."""
    taken: IntArray
    """How many nodes are taken."""
    old: IntArray
    """Room of a class just before that start, shape (depths, classes)."""
    depth: IntArray
    """Shape (1,); `NONE` when nothing is left."""
    complete: IntArray
    """Whether nothing was left out that could be better, shape (1,)."""


class Best(NamedTuple):
    """The best plan so far."""

    start: IntArray
    path: IntArray
    ends: IntArray
    slices: Slices


# ----------------------------------------------------------------------- when a job may start


@kernel
def _fits_power(lines: Timelines, watts: IntArray, duration: int, start: int) -> bool:
    return watts[0] == 0 or profile.earliest(lines.power, 0, watts, duration, start)[0] == start


@kernel
def next_growth(lines: Timelines, window: Window, jobs: Jobs, j: int, mark: int) -> tuple[int, int]:
    """The first start after ``mark`` at which a job fits, and has more room than just before.

    Returns it, `FOREVER` if there is none, and the work, in windows looked at.
    """
    ask, most, watts, duration = jobs.ask[j], jobs.most[j], jobs.watts[j], jobs.duration[j]
    classes, at, looked = lines.size[CLASSES], mark, 0
    for c in range(classes):
        look(lines, window, c, ask, most, duration, at)
        looked += 1
    power = _fits_power(lines, watts, duration, at)
    while True:
        following = FOREVER
        for c in range(classes):
            following = min(following, window.until[c])
        if watts[0] > 0:
            for k in range(lines.power.segments[0]):
                if lines.power.time[0, k] > at:
                    following = min(following, lines.power.time[0, k])
                    break
        if following >= FOREVER:
            return FOREVER, looked
        at, grown, total = following, False, 0
        for c in range(classes):
            if window.until[c] <= at:
                before = window.room[c]
                look(lines, window, c, ask, most, duration, at)
                looked += 1
                grown = grown or window.room[c] > before
            total += window.room[c] * (lines.last[c] - lines.first[c])
        looked += classes // 8
        before_power, power = power, _fits_power(lines, watts, duration, at)
        if power and total >= jobs.units[j] and (grown or not before_power):
            return at, looked


@kernel
def _waits(jobs: Jobs, tree: Tree, before: IntArray, j: int) -> bool:
    """Whether a predecessor of this job has no start yet."""
    if before[j] != NONE and tree.start[before[j]] == NONE:
        return True
    for k in range(jobs.after_offset[j], jobs.after_offset[j + 1]):
        if tree.start[jobs.after[k]] == NONE:
            return True
    return False


@kernel
def _when(
    tree: Tree, lines: Timelines, window: Window, jobs: Jobs, before: IntArray, depth: int
) -> int:
    """Work out when the jobs without a start could start next; returns the work."""
    work = 0
    for j in range(tree.start.shape[0]):
        if tree.start[j] != NONE or _waits(jobs, tree, before, j):
            continue
        if tree.mark[depth, j] != NONE:
            tree.time[depth, j], looked = next_growth(lines, window, jobs, j, tree.mark[depth, j])
        else:
            floor = max(tree.time[depth, j], ready_from(jobs, j, tree.start))
            if before[j] != NONE:
                floor = max(floor, tree.start[before[j]])
            tree.time[depth, j], looked = earliest(
                lines, window, jobs.ask[j], jobs.units[j], jobs.most[j], jobs.watts[j],
                jobs.duration[j], floor, False,
            )  # fmt: skip
        work += looked
    return work


@kernel
def _not_before(tree: Tree, depth: int, j: int) -> int:
    """What a job without a start cannot start before.

    Others that end may let a postponed one start before the time that is known now.
    """
    mark = tree.mark[depth, j]
    return int(tree.time[depth, j] if mark == NONE else mark + 1)


@kernel
def _in_the_way(tree: Tree, jobs: Jobs, depth: int, j: int, start: int) -> bool:
    """Whether another job could start before one ends that starts then: else it hinders none."""
    end = start + jobs.duration[j]
    for k in range(tree.start.shape[0]):
        if k != j and tree.start[k] == NONE and _not_before(tree, depth, k) < end:
            return True
    return False


@kernel
def _fits(lines: Timelines, window: Window, jobs: Jobs, j: int, start: int) -> tuple[bool, int]:
    """Whether a job could start then; and the work, in windows looked at."""
    if not _fits_power(lines, jobs.watts[j], jobs.duration[j], start):
        return False, 0
    total, classes = 0, lines.size[CLASSES]
    for c in range(classes):
        look(lines, window, c, jobs.ask[j], jobs.most[j], jobs.duration[j], start)
        total += window.room[c] * (lines.last[c] - lines.first[c])
        if total >= jobs.units[j]:
            return True, c + 1
    return False, classes


@kernel
def _choose(
    tree: Tree,
    lines: Timelines,
    window: Window,
    jobs: Jobs,
    before: IntArray,
    latest: IntArray,
    depth: int,
    limit: int,
) -> tuple[int, int]:
    """The job that can start first; `NONE` if there is none, or the plan must cost ``limit``.

    `NONE`, too, if a job was postponed in vain: it could start, and hinder no other. Returns the
    job and the work, in windows looked at.
    """
    cost, chosen, work = tree.trail.cost[depth], NONE, 0
    for j in range(tree.start.shape[0]):
        if tree.start[j] != NONE:
            continue
        mark = tree.mark[depth, j]
        if mark != NONE and not _in_the_way(tree, jobs, depth, j, mark):
            fits, looked = _fits(lines, window, jobs, j, mark)
            work += looked
            if fits:
                return NONE, work
        first = _not_before(tree, depth, j)
        cost += cost_of(jobs, j, first)
        if first > latest[j] or cost >= limit:
            return NONE, work
        time = tree.time[depth, j]
        if time > latest[j] or time == FOREVER or _waits(jobs, tree, before, j):
            continue
        if chosen == NONE or time < tree.time[depth, chosen]:
            chosen = j
    return chosen, work


# -------------------------------------------------------------------------------- on which nodes


@kernel
def _fill(tree: Tree, lines: Timelines, depth: int, begin: int, left: int) -> int:
    """Take as many nodes as go in from a split on; returns the units that are left."""
    of, size, taken = tree.of[depth], tree.size[depth], tree.taken[depth]
    nodes = 0
    for p in range(tree.splits[depth]):
        if p == 0 or of[p] != of[p - 1]:
            nodes = lines.last[of[p]] - lines.first[of[p]]
        if p >= begin:
            taken[p] = min(nodes, left // size[p])
            left -= taken[p] * size[p]
        nodes -= taken[p]
    return left


@kernel
def _other_nodes(tree: Tree, lines: Timelines, depth: int) -> bool:
    """Go on to the next way to place the chosen job, if there is one."""
    size, taken = tree.size[depth], tree.taken[depth]
    left = 0
    for p in range(tree.splits[depth] - 1, -1, -1):
        if taken[p] > 0:
            left += size[p]
            taken[p] -= 1
            if _fill(tree, lines, depth, p + 1, left) == 0:
                return True
            left += taken[p] * size[p]
            taken[p] = 0
    return False


@kernel
def _best_fit(tree: Tree, lines: Timelines, window: Window, jobs: Jobs, depth: int) -> int:
    """Prepare to place the chosen job, on the fullest nodes first; returns the work."""
    j = tree.chosen[depth]
    start, classes = tree.time[depth, j], lines.size[CLASSES]
    of, size = tree.of[depth], tree.size[depth]
    later = tree.mark[depth, j] != NONE and _fits_power(
        lines, jobs.watts[j], jobs.duration[j], start - 1
    )
    left = 0
    for c in range(classes):
        tree.old[depth, c] = NONE
        if later:
            look(lines, window, c, jobs.ask[j], jobs.most[j], jobs.duration[j], start - 1)
            tree.old[depth, c] = window.room[c]
        look(lines, window, c, jobs.ask[j], jobs.most[j], jobs.duration[j], start)
        window.score[c] = np.inf
        if window.room[c] > 0:
            window.score[c] = fullness(lines, c, jobs.duration[j], start)
            left += 1
    splits = 0
    for _ in range(left):
        left -= 1
        c = int(np.argmin(window.score[:classes]))
        window.score[c] = np.inf
        for units in range(window.room[c], 0, -1):
            if splits + left == of.shape[0]:
                tree.complete[0] = 0
                break
            of[splits], size[splits] = c, units
            splits += 1
    tree.splits[depth] = splits
    if _fill(tree, lines, depth, 0, jobs.units[j]) > 0:
        # Where some ways are left out, the rest of the units may fit no node.
        for p in range(splits):
            tree.taken[depth, p] = 0
    return int(2 * classes)


@kernel
def _new(tree: Tree, depth: int) -> bool:
    """Whether the chosen job could not have started just before on the same nodes."""
    for p in range(tree.splits[depth]):
        if tree.taken[depth, p] > 0 and tree.size[depth, p] > tree.old[depth, tree.of[depth, p]]:
            return True
    return False


@allocating
def _schedule(tree: Tree, jobs: Jobs, slices: Slices, depth: int) -> None:
    """Place the chosen job, one depth below."""
    j = tree.chosen[depth]
    trail, start = tree.trail, tree.time[depth, j]
    lines = state(trail.lines, depth + 1)
    copy(state(trail.lines, depth), lines)
    at = trail.entries[depth]
    for p in range(tree.splits[depth]):
        if tree.taken[depth, p] > 0:
            at = take(
                lines, tree.of[depth, p], tree.taken[depth, p], tree.size[depth, p], jobs.ask[j],
                start, jobs.duration[j], slices, at,
            )  # fmt: skip
    if jobs.watts[j, 0] > 0:
        hold_power(lines, start, start + jobs.duration[j], jobs.watts[j])
    trail.entries[depth + 1] = at
    trail.cost[depth + 1] = trail.cost[depth] + cost_of(jobs, j, start)
    tree.start[j] = start
    tree.path[depth] = j
    for k in range(tree.start.shape[0]):
        tree.time[depth + 1, k] = tree.time[depth, k]
        tree.mark[depth + 1, k] = tree.mark[depth, k]


@allocating
def search(
    tree: Tree,
    window: Window,
    jobs: Jobs,
    before: IntArray,
    latest: IntArray,
    slices: Slices,
    best: Best,
    best_cost: int,
    least: int,
    steps: int,
) -> tuple[int, int]:
    """Go on through the plans that may cost less than the best one.

    Parameters
    ----------
    tree
        Where to go on; kept up to date.
    before : int64 array, shape (jobs,)
        The job like this one that starts no later, `NONE` for none.
    latest : int64 array, shape (jobs,)
        The last start that each job may have.
    best
        The best plan, which costs ``best_cost``; a better one takes its place.
    least : int
        No plan costs less.
    steps : int
        Limit of the work, in windows looked at.

    Returns
    -------
    best_cost : int
    steps : int
        What is left of them; above 0 only at the end.
    """
    trail, n, depth = tree.trail, tree.start.shape[0], tree.depth[0]
    while depth != NONE and steps > 0:
        lines = state(trail.lines, depth)
        j = tree.chosen[depth]
        if j == NONE:
            j, looked = _choose(tree, lines, window, jobs, before, latest, depth, best_cost)
            steps -= looked
            if j == NONE or best_cost <= least:
                depth -= 1
                continue
            tree.chosen[depth] = j
            steps -= _best_fit(tree, lines, window, jobs, depth)
        else:
            tree.start[j] = NONE
            steps -= 1
            if not _in_the_way(tree, jobs, depth, j, tree.time[depth, j]):
                tree.chosen[depth] = NONE
                depth -= 1
                continue
            if not _other_nodes(tree, lines, depth):
                tree.mark[depth, j] = tree.time[depth, j]
                tree.time[depth, j], looked = next_growth(
                    lines, window, jobs, j, tree.mark[depth, j]
                )
                steps -= looked
                tree.chosen[depth] = NONE
                continue
        if not _new(tree, depth):
            continue
        _schedule(tree, jobs, slices, depth)
        steps -= lines.size[CLASSES]
        if depth + 1 < n:
            depth += 1
            tree.chosen[depth] = NONE
            steps -= _when(tree, state(trail.lines, depth), window, jobs, before, depth)
        elif trail.cost[n] < best_cost:
            best_cost = int(trail.cost[n])
            for k in range(n):
                best.start[k], best.path[k] = tree.start[k], tree.path[k]
                best.ends[k + 1] = trail.entries[k + 1]
            for k in range(trail.entries[n]):
                best.slices.first[k], best.slices.last[k] = slices.first[k], slices.last[k]
                best.slices.units[k] = slices.units[k]
    tree.depth[0] = depth
    return best_cost, steps


# --------------------------------------------------------------------------------- the search


def _slices(entries: int) -> Slices:
    return Slices(*(np.zeros(entries, dtype=np.int64) for _ in Slices._fields))


def _trail(base: Timelines, jobs: int, classes: int) -> Trail:
    """States of so many classes with 0 to all of the jobs."""
    _, columns, resources = base.nodes.free.shape
    power = base.power.time.shape[1]
    lines = empty_timelines(classes, columns + 2 * jobs, resources, power + 2 * jobs * (power > 0))
    zeros = np.zeros(jobs + 1, dtype=np.int64)
    return Trail(room_for_states(lines, jobs + 1), zeros, zeros.copy())


class PostponeSearch:
    """Search through all plans of few jobs.

    Parameters
    ----------
    cost : int
        Of a known plan: only those that cost less are looked for.
    least : int
        What a plan costs at least: one that costs no more is the best.
    latest_s : int64 array, shape (jobs,)
        Last start that each job may have.
    alike : int64 array, shape (jobs,)
        The same for jobs that may change places in any plan.

    Attributes
    ----------
    best_cost : int
        Of the best plan, the known one included.
    """

    def __init__(
        self,
        generator: ScheduleGenerator,
        cost: int,
        least: int,
        latest_s: IntArray,
        alike: IntArray,
    ) -> None:
        self._generator, self._least, self._latest_s = generator, least, latest_s
        self.best_cost = self._known = cost
        n, jobs, base = len(generator), generator.jobs, generator.base
        units = int(np.minimum(jobs.units, len(base.first)).sum())
        classes = min(len(base.first), int(base.size[CLASSES]) + units)
        self._slices, best = _slices(units), _slices(units)
        self._best = Best(np.full(n, NONE), np.full(n, NONE), np.zeros(n + 1, np.int64), best)
        self._window = empty_window(classes)
        self._tree = Tree(
            trail=_trail(base, n, classes),
            start=np.full(n, NONE),
            path=np.full(n, NONE),
            time=np.tile(jobs.early, (n + 1, 1)),
            mark=np.full((n + 1, n), NONE),
            chosen=np.full(n, NONE),
            splits=np.zeros(n, dtype=np.int64),
            of=np.empty((n, classes + SPLITS), dtype=np.int64),
            size=np.empty((n, classes + SPLITS), dtype=np.int64),
            taken=np.empty((n, classes + SPLITS), dtype=np.int64),
            old=np.empty((n, classes), dtype=np.int64),
            depth=np.zeros(1, dtype=np.int64),
            complete=np.ones(1, dtype=np.int64),
        )
        self._before = np.array([
            max(np.flatnonzero(alike[:j] == alike[j]), default=NONE) for j in range(n)
        ])  # fmt: skip
        lines = state(self._tree.trail.lines, 0)
        copy(base, lines)
        _when(self._tree, lines, self._window, jobs, self._before, 0)

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to look at."""
        return bool(self._tree.depth[0] == NONE)

    @property
    def proven(self) -> bool:
        """Whether no plan costs less than the best one."""
        return self.exhausted and bool(self._tree.complete[0])

    @property
    def best(self) -> ListSchedule | None:
        """The best plan, if it is better than the known one."""
        if self.best_cost == self._known:
            return None
        best = self._best
        return self._generator.listed(best.path, best.start.copy(), best.ends, best.slices)

    def run(self, steps: int) -> int:
        """Search on; returns how many steps were not used: above 0 only at the end.

        Parameters
        ----------
        steps : int
            Windows to look at, one class of nodes for one job and start each.
        """
        self.best_cost, steps = search(
            self._tree, self._window, self._generator.jobs, self._before, self._latest_s,
            self._slices, self._best, self.best_cost, self._least, steps,
        )  # fmt: skip
        return steps
