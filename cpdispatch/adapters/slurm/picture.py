"""A live cluster as an instance, and the way back from its numbers to jobs and nodes.

Where a job may run is told by resource types that only some nodes have: ``core@set1`` is the cores
of the nodes that a job with these partitions, features and node lists may use, and each unit of it
asks for as many as of cores. Where the jobs of a partition may take only so many CPUs of a node,
these are ``core@partition1``. A job that takes whole nodes asks for all ``core@whole``, and others
for as many as of cores; ``mem@whole`` is the same for jobs that state no memory, to which Slurm
gives all. The units of a job go to different nodes: each asks for the one ``apart`` of a node.
Several jobs share such a type, so that few are needed; two that do cannot go to the same node in
the same decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from cpdispatch.adapters.slurm.cluster import (
    NO_LIMIT,
    WHOLE,
    Cluster,
    Job,
    Partition,
    tasks_apart,
)
from cpdispatch.adapters.slurm.holders import Holds, Labels, running_of
from cpdispatch.adapters.slurm.resources import Ask, More, Nodes
from cpdispatch.arrays import BoolArray, IntArray, in_rows, sealed
from cpdispatch.decision import Decision
from cpdispatch.heuristics.test_runs import going_on
from cpdispatch.instance import (
    Dependencies,
    Instance,
    Reservation,
    Running,
    Stopped,
    free_capacity,
)
from cpdispatch.jobs import JobTable, job_block
from cpdispatch.system import NodeGroup, System
from cpdispatch.workloads.slurm.nodes import MB_IN_KB
from cpdispatch.workloads.slurm.values import nodes_in

TASKS_MOST = 200
"""So many tasks of an array are looked at in a cycle; the others come when these have started."""
Durations: TypeAlias = Callable[[Job, int], tuple[int, int]]
"""See `take`."""
AFTER = re.compile(r"(after(?:any|ok|notok)):(\d+)(_\*|_\d+)?\((\w+)\)")
"""A dependency that is understood: its kind, the job, the task, and the state."""
_TOO_FEW = "too few nodes are in its partition, have its features and are not excluded"


@dataclass(frozen=True, slots=True)
class Claim:
    """Nodes that were promised to a job which does not run yet."""

    job: Job
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tests:
    """Which jobs may be started for a test run, and which run for one.

    Attributes
    ----------
    may : callable
        Whether a waiting job may be stopped and queued again.
    lengths_s : mapping of str to int
        The length of the test of each job that runs, or was promised nodes, for one; by its key.
    """

    may: Callable[[Job], bool]
    lengths_s: Mapping[str, int]

    def of(self, job: Job | None) -> int:
        """The length of a job's test, s; 0 for a job that runs until it ends."""
        return 0 if job is None else self.lengths_s.get(job.key, 0)


NO_TESTS = Tests(lambda job: False, {})


class _Sized(NamedTuple):
    """What a job takes: of which nodes, whether alone, how many, and see `Ask.capped`."""

    nodes: BoolArray
    exclusive: bool
    units: int
    capped: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An instance of a cluster.

    Attributes
    ----------
    instance : Instance
    jobs : tuple of Job
        The job at each position of the queue; among them those that run and whose test is over,
        see `cpdispatch.instance.Stopped`.
    names : tuple of str
        The name of each node.
    left : tuple of (Job, str)
        Jobs that it cannot express, and why.
    """

    instance: Instance
    jobs: tuple[Job, ...]
    names: tuple[str, ...]
    left: tuple[tuple[Job, str], ...]

    @property
    def ready(self) -> BoolArray:
        """Which jobs wait for no other job, and for no earliest start; shape (queued,)."""
        after = self.instance.dependencies
        if after is None:
            return np.ones(len(self.jobs), dtype=np.bool_)
        alone = (np.diff(after.offset) == 0) & (np.diff(after.running_offset) == 0)
        found: BoolArray = alone & (after.earliest_s <= self.instance.now)
        return found

    def starts(self, decision: Decision) -> list[tuple[Job, tuple[str, ...]]]:
        """The jobs that a decision starts now, each with its nodes, in the queue's order.

        Without those that run: one of them that is not to go on where it is has to be queued again
        before it can start.
        """
        places = decision.placements.as_dict()
        return [
            (self.jobs[position], tuple(self.names[node] for node in sorted(places[position])))
            for position in np.flatnonzero(decision.start_s == self.instance.now).tolist()
            if self.jobs[position].pending
        ]

    def tests(self, decision: Decision) -> dict[str, int]:
        """For how many seconds jobs start that start for a test run, by their keys."""
        if decision.bound_s is None:
            return {}
        found = np.flatnonzero((decision.start_s == self.instance.now) & (decision.bound_s > 0))
        return {
            self.jobs[k].key: int(decision.bound_s[k]) for k in found.tolist()
            if self.jobs[k].pending
        }  # fmt: skip

    def over(self, decision: Decision) -> list[tuple[Job, bool]]:
        """The jobs whose test is over, and whether a decision lets each of them go on."""
        stay = going_on(self.instance, decision.start_s, decision.placements)
        return [(job, k in stay) for k, job in enumerate(self.jobs) if not job.pending]


def take(
    cluster: Cluster,
    wanted: Callable[[Job], bool],
    claims: Sequence[Claim] = (),
    *,
    memory: bool = True,
    durations: Durations | None = None,
    tests: Tests = NO_TESTS,
) -> Picture:
    """Take an instance of a cluster.

    Parameters
    ----------
    cluster : Cluster
    wanted : callable
        Whether a waiting job belongs to the queue.
    claims : sequence of Claim
        What holds nodes though Slurm does not show it yet.
    memory : bool
        Whether Slurm hands out memory.
    durations : callable, optional
        From a job and its time limit, s, its expected and its upper duration, s, both from 1 to
        the limit. Default: the limit is both.
    tests : Tests
        Default: no job may be stopped, and none runs for a test.

    Raises
    ------
    CpdispatchError
        When the cluster has no node with a CPU.
    """
    return _Taking(cluster, memory, durations, tests).picture(wanted, claims)


def tasks_busy(jobs: Iterable[Job], array: int) -> int:
    """How many tasks of an array run, are suspended, or are released to."""
    return sum(
        job.array == array and not job.ended and not job.tasks and not job.held for job in jobs
    )


class _Taking(Nodes):
    """What is looked up again and again while an instance is made."""

    def __init__(
        self, cluster: Cluster, memory: bool, durations: Durations | None, tests: Tests
    ) -> None:
        super().__init__(cluster, memory)
        self.durations = durations
        self.tests = tests
        self.allowed: dict[object, tuple[BoolArray | str, bool, dict[str, int]]] = {}
        self.by_number: dict[int, list[Job]] = {}
        for job in cluster.jobs:
            for number in {job.array, job.own} - {0}:
                self.by_number.setdefault(number, []).append(job)

    def picture(self, wanted: Callable[[Job], bool], claims: Sequence[Claim]) -> Picture:
        asked: list[Ask] = []
        left: list[tuple[Job, str]] = []
        for job in self.cluster.jobs:
            if not job.pending or not wanted(job):
                continue
            found = self._asked(job)
            if isinstance(found, str):
                left.append((job, found))
            elif found is not None:
                asked += [replace(found, job=task) for task in tasks_apart(job, TASKS_MOST)]
        rows, stopped = self._rows(claims)
        asked += stopped
        asked.sort(key=lambda ask: (ask.job.submit_s, ask.job.number))
        asked = list(self._within_limits(asked))
        asked = self._ready(asked, {row.job.number for row in rows if row.job and row.job.running})
        held = [(row.job, row.amounts[0], row.nodes) for row in rows if row.job is not None]
        # One whose test is over keeps what it asks for until it is decided where it goes on.
        held += [(ask.job, ask.core, [at for at, _ in self._shared(ask.job)]) for ask in stopped]
        more = More(self, asked, held)
        labels = Labels()
        queue = self._queue(asked, more, labels)
        running = running_of(self.cluster, rows, more, labels)
        system = self._system(more)
        down = [k for k, node in enumerate(self.nodes) if not node.usable]
        now = self.cluster.now_s
        out = sealed(np.array(down, dtype=np.int64))
        blocked = self._reservations(system)
        instance = Instance(
            now, system, free_capacity(system, running, out, blocked, now),
            JobTable(queue, labels.names()), running, out, blocked,
            dependencies=self._dependencies(asked, running),
            stopped=self._stopped(asked),
        )  # fmt: skip
        return Picture(
            instance,
            tuple(ask.job for ask in asked),
            tuple(node.name for node in self.nodes),
            tuple(left),
        )

    # ----------------------------------------------------------------------------- the queue

    def _asked(self, job: Job) -> Ask | str | None:
        """What a job asks for; a text why that cannot be said; None while it is not ready."""
        if job.left:
            return job.left
        if unknown := {*job.gpus, *job.all_gpus} - set(self.kinds):
            return f"asks for {', '.join(sorted(unknown))}, which no node has"
        parts, up = self.cluster.partitions_of(job), self._up(job)
        if not up:
            return None
        found = self._sized(job, up)
        if isinstance(found, str):
            # In one that is down for now it may be possible.
            return found if isinstance(self._sized(job, parts), str) else None
        nodes, exclusive, units, capped = found
        if any(many % units for many in job.all_gpus.values()):
            return "asks for GPUs that cannot be split evenly over its nodes"
        after = self._after(job)
        if isinstance(after, str):
            return after
        if after is None:
            return None
        core = job.cpus_of(units)
        gpus = job.gpus_of(units)
        memory_mb = job.memory_mb_of(units)
        return Ask(job, units, core, memory_mb, gpus, nodes, exclusive, capped, after)

    def _up(self, job: Job) -> list[Partition]:
        return [part for part in self.cluster.partitions_of(job) if part.up]

    def _sized(self, job: Job, parts: list[Partition]) -> _Sized | str:
        """The nodes that a job may use, and how many it takes; or why none.

        Slurm starts a job in one of its partitions: one that takes several nodes, or of whose
        partitions one has a limit of CPUs on a node, or did not start it, gets its nodes where it
        takes the fewest, and where there are the most.
        """
        nodes, exclusive, most = self._allowed(job, parts)
        if isinstance(nodes, str):
            return nodes
        # With more than any of them has it is spread over several, unless it says how many.
        limited = [part for part in parts if part.cpus_most != NO_LIMIT]
        if limited and len(parts) == 1:
            most = most | {"core": min(most["core"], limited[0].cpus_most)}
        asked = {"core": job.cpus, **job.all_gpus}
        cpus = most["core"]
        if self.memory and job.cpu_memory_mb:
            cpus = min(cpus, most["mem"] // job.cpu_memory_mb)
        for together in (job.core_cpus, job.task_cpus):
            cpus -= cpus % together
        most = most | {"core": cpus}
        units = max(job.nodes, *(-(-many // max(most[kind], 1)) for kind, many in asked.items()))
        bounds = [job.nodes_most, *(part.nodes_most for part in parts if len(parts) == 1)]
        if any(0 < bound < units for bound in bounds):
            return f"needs {units} nodes and may have {min(filter(None, bounds))}"
        if len(parts) == 1 or (units == 1 and not limited and not job.avoid):
            return _Sized(nodes, exclusive, units, "".join(part.name for part in limited))
        apart = [(self._sized(job, [part]), part.name not in job.avoid) for part in parts]
        fit = [(found, liked) for found, liked in apart if not isinstance(found, str)]
        return max(fit, key=lambda each: self._room(job, *each), default=(_TOO_FEW,))[0]

    def _room(self, job: Job, found: _Sized, liked: bool) -> tuple[bool, bool, int, int, bool]:
        """Whether enough nodes are large enough for a job, and how few of how many it takes."""
        units = found.units
        memory_mb = max(job.memory_mb_of(units), 0)
        asked = self.own(job.cpus_of(units), job.gpus_of(units), memory_mb)
        nodes = int((self.capacity[found.nodes] >= asked).all(axis=1).sum())
        return nodes >= units, liked, -units, nodes, not found.capped

    def _allowed(
        self, job: Job, parts: list[Partition]
    ) -> tuple[BoolArray | str, bool, dict[str, int]]:
        """The nodes of these that a job may use, or why none; whether it has them alone; and what
        the largest of them have.

        Thousands of jobs say the same: each answer is found once.
        """
        said = (
            *(part.name for part in parts), job.partition, job.limit_s, job.features, job.required,
            job.excluded, job.exclusive, job.nodes, job.account, job.qos, job.memory_mb,
            job.cpu_memory_mb, any(part.groups for part in parts) and job.user,
        )  # fmt: skip
        if said not in self.allowed:
            nodes, exclusive = self._allowed_anew(job, parts)
            most = [] if isinstance(nodes, str) else self.capacity[nodes].max(axis=0).tolist()
            self.allowed[said] = nodes, exclusive, dict(zip(self.kinds, most, strict=False))
        return self.allowed[said]

    def _named(self, names: Iterable[str]) -> BoolArray:
        found = np.zeros(len(self.nodes), dtype=np.bool_)
        found[[self.node[name] for name in names if name in self.node]] = True
        return found

    def _allowed_anew(self, job: Job, parts: list[Partition]) -> tuple[BoolArray | str, bool]:
        nodes, exclusive = np.zeros(len(self.nodes), dtype=np.bool_), job.exclusive
        for part in parts:
            if not part.refuses(job):
                nodes |= self._named(part.nodes)
                exclusive |= part.exclusive
        if not nodes.any():
            why = next(filter(None, (part.refuses(job) for part in parts)), "finds no node in")
            return f"{why} the partition {job.partition}", exclusive
        if job.features:
            any_of = "|" in job.features
            features = {part.strip() for part in re.split(r"[&|,]", job.features)}
            has = [
                bool(features & n.features) if any_of else features <= n.features
                for n in self.nodes
            ]
            nodes &= has
        try:
            required, excluded = set(nodes_in(job.required)), set(nodes_in(job.excluded))
        except ValueError:
            return "names nodes in a way that is not understood", exclusive
        if required:
            if len(required) != job.nodes:
                return "names some of its nodes", exclusive
            nodes &= self._named(required)
        nodes &= ~self._named(excluded)
        if int(nodes.sum()) < job.nodes:
            return _TOO_FEW, exclusive
        return sealed(nodes), exclusive

    def _after(self, job: Job) -> list[Job] | str | None:
        """The jobs that a job waits for; a text if it waits in vain; None if that is not known."""
        if not job.dependency:
            return []
        parts = job.dependency.split(",")
        read = [AFTER.fullmatch(part) for part in parts]
        found: list[Job] = []
        for part in read:
            if part is None:
                return None
            kind, number, task, state = part.groups()
            if state == "failed":
                return f"waits in vain: {job.dependency}"
            others = self.by_number.get(int(number), [])
            if task and task != "_*":
                others = [each for each in others if each.key == number + task]
            # One that failed, and one that Slurm has forgotten: it knows best what that means.
            good = [each.state == "COMPLETED" for each in others if each.ended]
            # An array is not ok as soon as one of its tasks is not.
            over = len(good) == len(others) > 0
            if (kind == "afterok" and not all(good)) or (
                kind == "afternotok" and over and all(good)
            ):
                return f"waits in vain: {job.dependency}"
            found += [each for each in others if not each.ended]
        return found

    def _within_limits(self, asked: Sequence[Ask]) -> Iterator[Ask]:
        """Without tasks of arrays beyond as many as may run beside those that run."""
        left: dict[int, int] = {}
        for ask in asked:
            job = ask.job
            if job.array and job.tasks_most and job.pending:
                if job.array not in left:
                    busy = tasks_busy(self.by_number[job.array], job.array)
                    left[job.array] = job.tasks_most - busy
                left[job.array] -= 1
                if left[job.array] < 0:
                    continue
            yield ask

    def _ready(self, asked: list[Ask], running: set[int]) -> list[Ask]:
        """Without jobs that wait for others which are in no picture, until none is left."""
        known = running | {ask.job.number for ask in asked}
        behind: dict[int, list[int]] = {}
        for k, ask in enumerate(asked):
            for job in ask.after:
                if job.number not in running:
                    behind.setdefault(job.number, []).append(k)
        out = [
            k for k, ask in enumerate(asked)
            if any(job.tasks or job.number not in known for job in ask.after)
        ]  # fmt: skip
        dropped = set(out)
        for k in out:  # it grows
            found = [each for each in behind.get(asked[k].job.number, ()) if each not in dropped]
            dropped.update(found)
            out += found
        return [ask for k, ask in enumerate(asked) if k not in dropped]

    def _queue(self, asked: Sequence[Ask], more: More, labels: Labels) -> IntArray:
        request = np.zeros((len(asked), len(self.kinds) + len(more.names)), dtype=np.int64)
        for k, ask in enumerate(asked):
            memory_mb = 0 if ask.memory_mb == WHOLE else ask.memory_mb
            request[k] = [*self.own(ask.core, ask.gpus, memory_mb), *more.of(k, ask)]
        jobs = [ask.job for ask in asked]
        limits_s = [self._limit_s(job) for job in jobs]
        expected_s, upper_s = zip(*map(self._lasts_s, jobs), strict=True) if jobs else ((), ())
        return job_block(
            id=[job.number for job in jobs],
            submit_s=[min(job.submit_s, self.cluster.now_s) for job in jobs],
            units=[ask.units for ask in asked],
            requested_s=limits_s,
            expected_s=expected_s,
            upper_s=upper_s,
            request=request,
            restartable=[int(job.pending and self.tests.may(job)) for job in jobs],
            tier=[self.cluster.tier_of(job) for job in jobs],
            **labels.of(jobs),
        )

    def _stopped(self, asked: Sequence[Ask]) -> Stopped | None:
        """Where the jobs are whose test is over."""
        held = {
            k: (ask.job.start_s, {self.node[share.node]: 1 for share in ask.job.shares})
            for k, ask in enumerate(asked)
            if ask.job.running
        }
        return Stopped.of(held) if held else None

    def _limit_s(self, job: Job) -> int:
        return self.cluster.limit_s_of(job.limit_s, job.partition)

    def _lasts_s(self, job: Job) -> tuple[int, int]:
        """Expected and upper duration, s."""
        limit_s = self._limit_s(job)
        return (limit_s, limit_s) if self.durations is None else self.durations(job, limit_s)

    def _dependencies(self, asked: Sequence[Ask], running: Running) -> Dependencies | None:
        now = self.cluster.now_s
        # A held job that was submitted with --begin shows that as its start.
        begin_s = [ask.job.start_s if ask.job.held else 0 for ask in asked]
        if not any(ask.after for ask in asked) and all(s <= now for s in begin_s):
            return None
        queued = {ask.job.number: k for k, ask in enumerate(asked)}
        runs = {id: k for k, id in enumerate(running.jobs.id.tolist())}
        pairs = [(k, job.number) for k, ask in enumerate(asked) for job in ask.after]
        return Dependencies.of(
            now,
            running.end_s,
            np.array(begin_s, dtype=np.int64),
            np.zeros(len(asked), dtype=np.int64),
            in_rows([(k, queued[n]) for k, n in pairs if n in queued]),
            in_rows([(k, runs[n]) for k, n in pairs if n in runs]),
        )

    # --------------------------------------------------------------------- what is held already

    def _rows(self, claims: Sequence[Claim]) -> tuple[list[Holds], list[Ask]]:
        """Running jobs, promises, and what nodes say that nobody else is seen to hold.

        No node holds more than it has: a job that started while the cluster was read is counted
        twice, and what does not fit any more is left out. Apart from these are the jobs whose test
        is over, as they would be in the queue.
        """
        now, room = self.cluster.now_s, self.capacity.copy()
        rows: list[Holds] = []

        def hold(
            job: Job | None, start_s: int, limit_s: int, held: Iterable[tuple[int, list[int]]]
        ) -> None:
            expected_s, upper_s = (limit_s, limit_s) if job is None else self._lasts_s(job)
            bound_s = self.tests.of(job)
            # One that cannot be stopped yet, though its test is over, runs on.
            bound_s = bound_s if start_s + bound_s > now else 0
            alike: dict[tuple[int, ...], list[int]] = {}
            for node, wish in held:
                got = np.minimum(np.array(wish, dtype=np.int64), room[node])
                room[node] -= got
                if got.any():
                    alike.setdefault(tuple(got.tolist()), []).append(node)
            rows.extend(
                Holds(job, start_s, limit_s, expected_s, upper_s, *row, bound_s)
                for row in alike.items()
            )

        over: list[Ask] = []
        for job in self.cluster.jobs:
            if not job.running:
                continue
            ask = self._over(job)
            if ask is None:
                hold(job, min(job.start_s, now), self._limit_s(job), self._shared(job))
            else:
                over.append(ask)
        for ask in over:
            for at, own in self._shared(ask.job):
                room[at] -= np.minimum(np.array(own, dtype=np.int64), room[at])
        used = np.array([self.own(n.used_cpus, n.used_gpus, n.used_memory_mb) for n in self.nodes])
        unseen = np.maximum(used - (self.capacity - room), 0)
        for k, node in enumerate(self.nodes):
            if node.completing:
                unseen[k] = room[k]
            if unseen[k].any():
                hold(None, now, 1, [(k, unseen[k].tolist())])
        stopped = []
        for ask in over:
            shares = self._shared(ask.job)
            asks = np.array(self._per_node(ask), dtype=np.int64)
            if all((asks <= room[at] + own).all() for at, own in shares):
                # As much of its nodes as it asks for is kept for it while others are looked at.
                stopped.append(ask)
                for at, own in shares:
                    room[at] += own - asks
            else:
                for at, own in shares:
                    room[at] += own
                hold(ask.job, min(ask.job.start_s, now), self._limit_s(ask.job), shares)
        for ask in stopped:
            for at, _ in self._shared(ask.job):
                room[at] += np.array(self._per_node(ask), dtype=np.int64)
        for claim in claims:
            held = self._promised(claim)
            hold(claim.job, now, self._limit_s(claim.job), held)
        return rows, stopped

    def _over(self, job: Job) -> Ask | None:
        """What a running job asks for whose test is over; None for any other job.

        Slurm may have spread its tasks unevenly: then it asks for as much of each node as it holds
        on any. A job that no instance can express is never stopped.
        """
        test_s = self.tests.of(job)
        if not test_s or job.start_s + test_s > self.cluster.now_s:
            return None
        found = self._asked(job)
        if not isinstance(found, Ask) or found.units != len(job.shares):
            return None
        shares = self._shared(job)
        # One that has its nodes alone holds GPUs that it did not ask for.
        if len(shares) < found.units or any(
            share.gpus.get(kind, 0) < many
            for share in job.shares for kind, many in found.gpus.items()
        ):  # fmt: skip
            return None
        most = np.array([own for _, own in shares]).max(axis=0)
        whole = found.memory_mb == WHOLE or not self.memory
        return replace(
            found, core=max(found.core, int(most[0])),
            memory_mb=found.memory_mb if whole else max(found.memory_mb, int(most[-1])),
        )  # fmt: skip

    def _per_node(self, ask: Ask) -> list[int]:
        """What a job asks for on each of its nodes, of the types that nodes have."""
        return self.own(ask.core, ask.gpus, max(ask.memory_mb, 0))

    def _shared(self, job: Job) -> list[tuple[int, list[int]]]:
        return [
            (k, self.own(share.cores * self.nodes[k].threads, share.gpus, share.memory_mb))
            for share in job.shares
            if (k := self.node.get(share.node, -1)) >= 0
        ]

    def _promised(self, claim: Claim) -> list[tuple[int, list[int]]]:
        job, nodes = claim.job, [self.node[n] for n in claim.nodes if n in self.node]
        many = max(len(nodes), 1)
        core, asked_mb, gpus = job.cpus_of(many), job.memory_mb_of(many), job.gpus_of(many)
        exclusive = self._allowed(job, self._up(job))[1]
        found = []
        for k in nodes:
            memory_mb = self.nodes[k].memory_mb if asked_mb == WHOLE else asked_mb
            cpus = self.nodes[k].cpus if exclusive else core
            found.append((k, self.own(cpus, gpus, memory_mb)))
        return found

    # ------------------------------------------------------------------------------- the system

    def _system(self, more: More) -> System:
        rows = [
            tuple(row) for row in np.hstack([self.capacity, more.capacity]).astype(int).tolist()
        ]
        groups, begin = [], 0
        for row, same in groupby(rows):
            many = len(list(same))
            first, last = self.nodes[begin].name, self.nodes[begin + many - 1].name
            groups.append(NodeGroup(f"{first}..{last}" if many > 1 else first, many, row))
            begin += many
        return System("slurm", (*self.kinds, *more.names), tuple(groups), MB_IN_KB)

    def _reservations(self, system: System) -> tuple[Reservation, ...]:
        """What reservations keep from others: each node once at a time."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for blocked in self.cluster.blocked:
            start_s = max(blocked.start_s, self.cluster.now_s)
            if blocked.end_s <= start_s:
                continue
            for k in (self.node[name] for name in blocked.nodes if name in self.node):
                spans.setdefault(k, []).append((start_s, blocked.end_s))
        made = []
        for k, given in spans.items():
            joined: list[tuple[int, int]] = []
            for start_s, end_s in sorted(given):
                if joined and start_s <= joined[-1][1]:
                    joined[-1] = (joined[-1][0], max(joined[-1][1], end_s))
                else:
                    joined.append((start_s, end_s))
            held = tuple(system.capacity[k].tolist())
            made += [Reservation(start_s, end_s - start_s, (k,), held) for start_s, end_s in joined]
        return tuple(made)
