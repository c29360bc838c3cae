"""The plain twin: a replay under backfilling, written from the rules with dictionaries and lists.

It shares no code with the package's kernels, simulator or state. Slow and obvious on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from cpdispatch.jobs import Workload
from cpdispatch.system import System

Matrix = list[list[int]]
Nodes = dict[int, int]

KEYS: dict[str, Callable[[float, float, float, float], float]] = {
    # of submission, expected duration, processors, wait; smallest first
    "fcfs": lambda s, p, q, w: s,
    "lcfs": lambda s, p, q, w: -s,
    "spf": lambda s, p, q, w: p,
    "lpf": lambda s, p, q, w: -p,
    "sqf": lambda s, p, q, w: q,
    "lqf": lambda s, p, q, w: -q,
    "saf": lambda s, p, q, w: p * q,
    "laf": lambda s, p, q, w: -p * q,
    "lexp": lambda s, p, q, w: -(w + p) / p,
    "sexp": lambda s, p, q, w: (w + p) / p,
    "srf": lambda s, p, q, w: p / q,
    "lrf": lambda s, p, q, w: -p / q,
    "wfp3": lambda s, p, q, w: -((w / p) ** 3) * q,
    "unicef": lambda s, p, q, w: (
        -w / (math.log2(q) * p) if q > 1 else (-math.inf if w > 0 else 0.0)
    ),
    "f1": lambda s, p, q, w: math.log10(p) * q + 870 * math.log10(max(s, 1)),
    "f2": lambda s, p, q, w: math.sqrt(p) * q + 25600 * math.log10(max(s, 1)),
    "f3": lambda s, p, q, w: p * q + 6860000 * math.log10(max(s, 1)),
    "f4": lambda s, p, q, w: p * math.sqrt(q) + 530000 * math.log10(max(s, 1)),
    "lin": lambda s, p, q, w: 3.24e-2 + 1.15e-7 * p + 2.61e-5 * q - 1.57e-7 * s,
}


@dataclass
class PlainJob:
    row: int
    submit: int
    units: int
    ask: tuple[int, ...]
    expected: int
    runtime: int
    start: int = -1
    priority: int = 0
    tier: int = 1
    nodes: Nodes = field(default_factory=dict)
    promise: int = -1
    first: tuple[int, ...] = ()
    """What it takes once, on the first of its nodes."""

    @property
    def processors(self) -> int:
        return max(1, self.units * self.ask[0])

    def expected_end(self, now: int) -> int:
        return max(self.start + self.expected, now + 1)


@dataclass
class Rules:
    primary: str = "fcfs"
    secondary: str = "fcfs"
    threshold: float = math.inf
    depth: float = 1
    best_fit: bool = False


def on_node(free: list[int], ask: tuple[int, ...], most: int) -> int:
    # Below 0: so many units may share a node.
    rooms = [
        have // want if want > 0 else -want for have, want in zip(free, ask, strict=True) if want
    ]
    return min([most, *rooms])


def on_first(free: list[int], job: PlainJob) -> int:
    """How many units go on a node beside what the job takes once."""
    left = [have - once for have, once in zip(free, job.first, strict=True)]
    if any(have < 0 < once for have, once in zip(left, job.first, strict=True)):
        return 0
    return max(on_node(left, job.ask, job.units), 0)


def firsts(free: Matrix, job: PlainJob) -> list[int]:
    """The nodes that can be the first one."""
    rooms = [on_node(row, job.ask, job.units) for row in free]
    return [
        n for n, row in enumerate(free)
        if on_first(row, job) and sum(rooms) - rooms[n] + on_first(row, job) >= job.units
    ]  # fmt: skip


def fits(free: Matrix, job: PlainJob) -> bool:
    if any(job.first):
        return bool(firsts(free, job))
    return sum(on_node(row, job.ask, job.units) for row in free) >= job.units


def choose(free: Matrix, capacity: Matrix, job: PlainJob, best_fit: bool) -> Nodes:
    def in_order(able: list[int]) -> list[int]:
        def full(n: int) -> float:
            return sum(f / c for f, c in zip(free[n], capacity[n], strict=True) if c)

        return sorted(able, key=full) if best_fit else able

    left, nodes = job.units, {}
    free = [list(row) for row in free]
    if any(job.first):
        node = in_order(firsts(free, job))[0]
        nodes[node] = on_first(free[node], job)
        left -= nodes[node]
    while left:
        able = [n for n, row in enumerate(free) if n not in nodes and on_node(row, job.ask, 1)]
        node = in_order(able)[0]
        nodes[node] = on_node(free[node], job.ask, left)
        left -= nodes[node]
    return nodes


def take(free: Matrix, job: PlainJob, nodes: Nodes, sign: int = -1) -> None:
    for k, (node, units) in enumerate(nodes.items()):
        for r, want in enumerate(job.ask):
            free[node][r] += sign * units * want
        for r, once in enumerate(job.first if k == 0 else ()):
            free[node][r] += sign * once


def lowest(matrices: list[Matrix]) -> Matrix:
    return [
        [min(m[n][r] for m in matrices) for r in range(len(matrices[0][n]))]
        for n in range(len(matrices[0]))
    ]


def ranked(queue: list[PlainJob], policy: str, now: int, threshold: float) -> list[PlainJob]:
    def key(job: PlainJob) -> tuple[bool, int, float]:
        late = now - job.submit > threshold
        if policy == "priority":
            value: float = -job.priority
        else:
            value = KEYS[policy](job.submit, job.expected, job.processors, now - job.submit)
        return (False, 0, 0.0) if late else (True, -job.tier, value)

    return sorted(queue, key=key)


def easy(
    now: int,
    free: Matrix,
    capacity: Matrix,
    queue: list[PlainJob],
    running: list[PlainJob],
    rules: Rules,
) -> list[PlainJob]:
    """One pass with depth 0 or 1: start jobs, in order; returns them."""
    started: list[PlainJob] = []

    def start(job: PlainJob, where: Matrix) -> None:
        job.start, job.nodes = now, choose(where, capacity, job, rules.best_fit)
        take(free, job, job.nodes)
        started.append(job)

    order = ranked(queue, rules.primary, now, rules.threshold)
    head = None
    for job in order:
        if not fits(free, job):
            head = job
            break
        start(job, free)
    if head is None or rules.depth == 0:
        return started
    later = [list(row) for row in free]
    ends = sorted({job.expected_end(now) for job in running + started})
    for shadow in ends:
        for job in running + started:
            if job.expected_end(now) == shadow:
                take(later, job, job.nodes, 1)
        if fits(later, head):
            break
    head.promise = shadow
    take(later, head, choose(later, capacity, head, rules.best_fit))
    for job in ranked(queue, rules.secondary, now, math.inf):
        if job is head or job in started:
            continue
        if now + job.expected <= shadow:
            if fits(free, job):
                start(job, free)
        else:
            both = lowest([free, later])
            if fits(both, job):
                start(job, both)
                take(later, job, job.nodes)
    return started


def planned(
    now: int,
    free: Matrix,
    capacity: Matrix,
    queue: list[PlainJob],
    running: list[PlainJob],
    rules: Rules,
) -> list[PlainJob]:
    """One pass with promises: `job.promise` and `job.nodes` persist between calls."""
    placed: list[PlainJob] = []

    def begin(job: PlainJob) -> int:
        return job.start if job.start >= 0 else max(job.promise, now)

    def left_at(time: int) -> Matrix:
        matrix = [list(row) for row in capacity]
        for job in running:
            if job.expected_end(now) > time:
                take(matrix, job, job.nodes)
        for job in placed:
            if begin(job) <= time < begin(job) + job.expected:
                take(matrix, job, job.nodes)
        return matrix

    def instants() -> list[int]:
        times = {now} | {job.expected_end(now) for job in running}
        times |= {begin(job) for job in placed} | {begin(job) + job.expected for job in placed}
        return sorted(t for t in times if t >= now)

    def over(start: int, duration: int) -> Matrix:
        inside = [t for t in instants() if start < t < start + duration]
        return lowest([left_at(t) for t in [start, *inside]])

    def earliest(job: PlainJob) -> int:
        return next(t for t in instants() if fits(over(t, job.expected), job))

    def put(job: PlainJob, time: int) -> None:
        job.nodes = choose(over(time, job.expected), capacity, job, rules.best_fit)
        job.promise = time
        placed.append(job)

    order = ranked(queue, rules.primary, now, rules.threshold)
    for job in sorted((j for j in queue if j.promise >= 0), key=lambda j: j.promise):
        room = over(max(job.promise, now), job.expected)
        take(room, job, job.nodes)
        if all(have >= 0 for n in job.nodes for have in room[n]):
            job.promise = max(job.promise, now)
            placed.append(job)
        else:
            job.promise = -1
    for job in [j for j in order if j in placed]:
        placed.remove(job)
        time = earliest(job)
        if time < job.promise:
            put(job, time)
        else:
            placed.append(job)
    for job in order:
        if sum(j.promise > now for j in placed) >= rules.depth:
            break
        if job not in placed:
            put(job, earliest(job))
    for job in ranked(queue, rules.secondary, now, math.inf):
        if job not in placed and fits(over(now, job.expected), job):
            put(job, now)
    started = [job for job in placed if job.promise == now]
    for job in started:
        job.start = now
        take(free, job, job.nodes)
    return started


def replay(
    workload: Workload, system: System, rules: Rules, expected: list[int], trigger: str = "instant"
) -> dict[int, tuple[int, Nodes]]:
    """Start and nodes of each workload row.

    An expectation that has passed is taken to end 1 s from now.
    """
    table = workload.table
    jobs = []
    for row, ask in enumerate(table.request.tolist()):
        first = [0] * len(ask)
        for once, of in system.once:
            first[of], ask[once] = ask[once], 0
        jobs.append(PlainJob(
            row, int(table.submit_s[row]), int(table.units[row]), tuple(ask), expected[row],
            int(workload.runtime_s[row]), priority=int(table.priority[row]),
            tier=int(table.tier[row]), first=tuple(first),
        ))  # fmt: skip
    capacity: Matrix = system.capacity.tolist()
    free = [list(row) for row in capacity]
    waiting = [job for job in jobs if fits(capacity, job)]
    queue: list[PlainJob] = []
    running: list[PlainJob] = []

    def dispatch(now: int) -> None:
        seen = [list(row) for row in free]
        busy = running
        if trigger == "event":
            gone = [j for j in running if j.start + j.expected == now == j.start + j.runtime]
            busy = [j for j in running if j not in gone]
            for job in gone:
                take(seen, job, job.nodes, 1)
        passes = easy if rules.depth <= 1 else planned
        if rules.depth <= 1:
            for job in queue:
                job.promise = -1
        started = passes(now, seen, capacity, queue, busy, rules)
        for job in started:
            take(free, job, job.nodes)
            running.append(job)
            queue.remove(job)

    while waiting or running:
        end = min((j.start + j.runtime for j in running), default=math.inf)
        submit = waiting[0].submit if waiting else math.inf
        if trigger == "instant":
            now = int(min(end, submit))
            for job in [j for j in running if j.start + j.runtime == now]:
                running.remove(job)
                take(free, job, job.nodes, 1)
            while waiting and waiting[0].submit == now:
                queue.append(waiting.pop(0))
            dispatch(now)
        elif submit <= end:
            now = int(submit)
            queue.append(waiting.pop(0))
            seen = [list(row) for row in free]
            for job in running:
                if job.start + job.expected == now == job.start + job.runtime:
                    take(seen, job, job.nodes, 1)
            if fits(seen, queue[-1]):
                dispatch(now)
        else:
            now = int(end)
            job = next(j for j in running if j.start + j.runtime == now)
            running.remove(job)
            take(free, job, job.nodes, 1)
            dispatch(now)
    return {job.row: (job.start, job.nodes) for job in jobs}
