"""Dispatchers under which no job waits much longer than EASY would have led to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from cpdispatch.arrays import IntArray, sealed
from cpdispatch.compiled import shadow as easy
from cpdispatch.decision import Decision, Reason
from cpdispatch.garbage import no_collection
from cpdispatch.heuristics.allocate import system_fits
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.test_runs import going_on
from cpdispatch.heuristics.wait_bound import WaitBound
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable, on_pool
from cpdispatch.system import System
from cpdispatch.toys import play

Times = TypeVar("Times", int, IntArray)


def ended_s(before_s: Times, now: Times, start_s: Times, expected_s: Times) -> IntArray:
    """When jobs ended that ran at the previous decision and do not run now, seconds.

    A dispatcher does not see the exact time. The expected end is taken, or the decision that is
    nearest to it if it does not lie between the two decisions.
    """
    least = np.maximum(before_s, start_s)
    found: IntArray = np.minimum(np.maximum(least, start_s + expected_s), now)
    return found


class _Seen(NamedTuple):
    """A job that a dispatcher has met."""

    number: int
    processors: int
    requested_s: int
    expected_s: int


class Kept(msgspec.Struct):
    """The state of an `EasyShadow`, which is saved so that it survives a restart."""

    time_s: int
    """The time up to which EASY was simulated."""
    processors: int
    """Number of processors of the whole system."""
    longest_s: int
    """The longest wait so far."""
    count: int
    """How many jobs were met."""
    queued: dict[int, tuple[int, int, int, int]]
    running: dict[int, tuple[int, int, int, int, int]]
    """By the id of a job: its number, its processors, its requested time and its expected duration.

    For a running job also its start.
    """
    arrays: list[list[list[int]]]
    """See `cpdispatch.compiled.shadow.used`."""


@dataclass(slots=True)
class EasyShadow:
    """A simulation of EASY backfilling on the same jobs, which goes on with each decision.

    It knows only what the dispatcher knows: a job has ended when it does not run any more, see
    `ended_s`.

    Attributes
    ----------
    longest_s : int
        The longest wait that EASY would have led to so far, seconds.
    """

    longest_s: int = 0
    _shadow: easy.Shadow | None = field(default=None, repr=False)
    _count: int = field(default=0, repr=False)
    _queued: dict[int, _Seen] = field(default_factory=dict, repr=False)
    _running: dict[int, tuple[_Seen, int]] = field(default_factory=dict, repr=False)
    """Jobs that run, and when they started."""
    _before_s: int = field(default=0, repr=False)
    _processors: int = field(default=0, repr=False)
    _total: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """Capacity of the system at the first instance; EASY is simulated with this capacity."""
    _system: System | None = field(default=None, repr=False)
    """That system, or the first one with its resource types: they differ on a live cluster."""

    def keep(self) -> Kept | None:
        """The whole state, to be saved; None before the first instance."""
        if self._shadow is None:
            return None
        return Kept(
            self._before_s, self._processors, self.longest_s, self._count,
            {
                id: (seen.number, seen.processors, seen.requested_s, seen.expected_s)
                for id, seen in self._queued.items()
            },
            {id: (*seen, start_s) for id, (seen, start_s) in self._running.items()},
            easy.used(self._shadow),
        )  # fmt: skip

    def restore(self, kept: Kept) -> None:
        """Go on from a saved state.

        Raises
        ------
        ValueError
            When another version has saved it.
        """
        self._shadow = easy.restored(kept.arrays)
        self._before_s, self._processors = kept.time_s, kept.processors
        self.longest_s, self._count = kept.longest_s, kept.count
        self._queued = {id: _Seen(*values) for id, values in kept.queued.items()}
        self._running = {
            id: (_Seen(*values), start_s) for id, (*values, start_s) in kept.running.items()
        }

    @property
    def fresh(self) -> bool:
        """Whether it has seen no instance yet."""
        return self._shadow is None

    def look(self, instance: Instance) -> int:
        """Simulate EASY up to the time of an instance, and return ``longest_s``."""
        begins = self._shadow is None
        if self._shadow is None:
            # A system whose nodes have all lost their processors has some again later.
            self._processors = max(int(instance.system.total[0]), 1)
            self._shadow = easy.fresh(self._processors)
        if self._system is None or self._system.resources != instance.system.resources:
            self._total, self._system = instance.total, instance.system
        queue, running, now = instance.queue, instance.running, instance.now
        waiting = dict(zip(queue.id.tolist(), range(len(queue)), strict=True))
        runs = dict(zip(running.jobs.id.tolist(), running.start_s.tolist(), strict=True))
        stopped = () if instance.stopped is None else queue.id[instance.stopped.position].tolist()
        # Whether a stopped job goes on is not decided yet.
        self._ended(waiting, runs.keys() | set(stopped), now)
        for id, seen in list(self._queued.items()):
            if id in runs:
                self._runs(id, runs[id])
            elif id not in waiting:
                easy.withdraw(self._shadow, seen.number)
                del self._queued[id]
        self._find_running(instance, runs)
        self._submit(instance, [k for id, k in waiting.items() if not self._knows(id)], begins)
        processors = self._on_pool(running.jobs)
        work = int(processors @ (now - running.start_s))
        self.longest_s = int(easy.follow(self._shadow, now, work))
        self._before_s = now
        return self.longest_s

    def started(self, instance: Instance, decision: Decision) -> None:
        """Note the jobs that a decision starts, and the stopped jobs that it kills."""
        held = {} if instance.stopped is None else instance.stopped.held()
        stay = going_on(instance, decision.start_s, decision.placements)
        for position in held.keys() - stay:
            self._waits(int(instance.queue.id[position]))
        for position in np.flatnonzero(decision.start_s == instance.now).tolist():
            id = int(instance.queue.id[position])
            if id in self._queued:
                self._runs(id, held[position][0] if position in stay else instance.now)

    def _runs(self, id: int, start_s: int) -> None:
        assert self._shadow is not None
        seen = self._queued.pop(id)
        self._running[id] = seen, start_s
        easy.starts(self._shadow, seen.number, start_s)

    def _waits(self, id: int) -> None:
        """Note that a job that ran waits again."""
        assert self._shadow is not None
        if id in self._running:
            seen, _ = self._running.pop(id)
            self._queued[id] = seen
            easy.starts(self._shadow, seen.number, -1)

    def _on_pool(self, jobs: JobTable) -> IntArray:
        """Number of processors of each job on the machine on which EASY is simulated."""
        found: IntArray = np.clip(on_pool(jobs, self._total), 1, self._processors)
        return found

    def _knows(self, id: int) -> bool:
        return id in self._queued or id in self._running

    def _ended(self, waiting: dict[int, int], runs: Set[int], now: int) -> None:
        """Note the jobs that do not run any more."""
        assert self._shadow is not None
        for id in sorted(self._running.keys() - runs):
            if id in waiting:  # it was not started after all, or is to start again
                self._waits(id)
                continue
            seen, start_s = self._running.pop(id)
            end_s = int(ended_s(self._before_s, now, start_s, seen.expected_s))
            runtime_s = max(end_s - start_s, 1)
            easy.ends(self._shadow, seen.number, runtime_s, seen.processors, seen.requested_s)

    def _submit(self, instance: Instance, positions: list[int], begins: bool) -> None:
        """Let the jobs at these positions of the queue wait under EASY, if they can start.

        What kept them back before is no wait for nodes. Where nobody knows since when they wait,
        see `cpdispatch.instance.Instance.came_s`, those that waited when the simulation ``begins``
        do since their submissions, others since now.
        """
        assert self._shadow is not None
        assert self._system is not None
        new = np.array(positions, dtype=np.int64)
        if instance.dependencies is not None:
            new = new[instance.eligible()[new]]
        if not len(new):
            return
        jobs = instance.queue.take(new)
        fits = system_fits(self._system, jobs) | system_fits(instance.system, jobs)
        jobs = jobs.take(fits.nonzero()[0])
        if instance.came_s is not None:
            id, came_s = np.append(instance.came_s, [[-1], [instance.now]], axis=1)
            by_id = np.argsort(id, kind="stable")
            at = by_id[np.minimum(np.searchsorted(id, jobs.id, sorter=by_id), len(id) - 1)]
            since_s = np.where(id[at] == jobs.id, came_s[at], instance.now)
        else:
            since_s = jobs.submit_s if begins else np.full(len(jobs), instance.now)
        if begins and len(jobs):  # ahead of them are those that run, which may leave no room
            self._shadow.totals.longest_wait_s = max(int(instance.now - since_s.min()), 0)
        order = np.argsort(since_s, kind="stable")  # EASY has its queue in this order
        self._enter(jobs.take(order), since_s[order])

    def _find_running(self, instance: Instance, runs: dict[int, int]) -> None:
        """Add jobs that already ran when they were first seen, with their remaining durations."""
        jobs, now = instance.running.jobs, instance.now
        new = np.array([k for k, id in enumerate(runs) if id not in self._running], dtype=np.int64)
        if not len(new):
            return
        block = jobs.take(new).block.copy()
        times = [Column.REQUESTED, Column.EXPECTED]
        block[times] = np.maximum(block[times] - (now - instance.running.start_s[new]), 1)
        found = JobTable(block)
        self._enter(found, np.full(len(new), now))
        for id in found.id.tolist():
            self._runs(id, now)

    def _enter(self, jobs: JobTable, submit_s: IntArray) -> None:
        """Let jobs wait under EASY, each from its submission on."""
        assert self._shadow is not None
        if not easy.has_room(self._shadow, len(jobs)):
            self._shadow = easy.grown(self._shadow, len(jobs))
        processors, requested_s = self._on_pool(jobs), jobs.requested_s
        columns = (jobs.id, processors, requested_s, jobs.expected_s)
        easy.submit_all(
            self._shadow, self._count,
            *(sealed(np.array(each)) for each in (submit_s, processors, requested_s)),
        )  # fmt: skip
        for id, *says in zip(*(column.tolist() for column in columns), strict=True):
            self._queued[id] = _Seen(self._count, *says)
            self._count += 1


class Boundable(Protocol):
    """A dispatcher that keeps to the starvation bound of its instances."""

    name: str

    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where."""


@dataclass(slots=True)
class Bounded:
    """A dispatcher under which jobs that wait too long come first, see `WaitBound`.

    A wait is too long in relation to the longest wait that EASY would have led to so far, which
    `EasyShadow` simulates. If an instance has a starvation bound and the dispatcher's plans keep
    to it, that bound is used instead.
    """

    inner: Boundable
    bound: WaitBound = field(default_factory=WaitBound)
    shadow: EasyShadow = field(default_factory=EasyShadow, repr=False)

    @property
    def name(self) -> str:
        """The name of the dispatcher."""
        return self.inner.name

    @property
    def predictor(self) -> str:
        """The predictor that a simulation takes when none is named."""
        return str(getattr(self.inner, "predictor", "walltime"))

    @property
    def faults(self) -> Counter[str]:
        """What went wrong inside the dispatcher so far, and how often."""
        return Counter(getattr(self.inner, "faults", {}))

    @property
    def keeps_starvation_bound(self) -> bool | None:
        """Whether the dispatcher's plans keep to the starvation bound of an instance."""
        kept: bool | None = getattr(self.inner, "keeps_starvation_bound", None)
        return kept

    @property
    def takes_first(self) -> bool:
        """Whether the dispatcher answers jobs that take something once."""
        return getattr(self.inner, "takes_first", False)

    @property
    def test_s(self) -> int:
        """How long a test run of the dispatcher lasts; 0 for none, or if nobody asked for one."""
        return getattr(self.inner, "test_s", 0) or 0

    @property
    def fresh(self) -> bool:
        """Whether it has met no instance yet."""
        return self.shadow.fresh and bool(getattr(self.inner, "fresh", True))

    @property
    def rules(self) -> dict[str, int | None]:
        """What a run tells of the bound, in thousandths of the longest wait under EASY so far.

        ``in_turn_after`` and ``wide`` of the `WaitBound`; and ``first_after``: of the jobs past
        the first, the one that was submitted first starts after so much of it wherever it fits.
        That is None where nothing is certain, because promises to other jobs come first.
        """
        inner = getattr(self.inner, "backfill", self.inner)
        first_after: int | None = None
        if self.keeps_starvation_bound:
            first_after = 1000
        elif isinstance(inner, Backfill) and inner.bounded and inner.depth <= 1:
            first_after = self.bound.in_turn_after
        return {**asdict(self.bound), "first_after": first_after}

    def renamed(self, name: str) -> Bounded:
        """The same under another name."""
        return replace(self, inner=replace(self.inner, name=name))  # type: ignore[type-var]

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile what decisions call, or load it from the cache."""
        warm_up: Any = getattr(self.inner, "warm_up", None)
        if warm_up is not None:
            warm_up(instances)
        else:
            play(lambda: replace(self.inner), instances)  # type: ignore[type-var]
        easy.warm_up()
        for instance in instances:
            EasyShadow().look(instance)

    @no_collection()
    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance."""
        if instance.starvation is not None and self.keeps_starvation_bound:
            return self.inner.dispatch(instance)
        began = perf_counter()
        bound = self.bound.at(self.shadow.look(instance))
        instance = replace(instance, starvation=bound)
        since = getattr(self.inner, "dispatch_since", None)
        decision: Decision = (
            self.inner.dispatch(instance) if since is None else since(instance, began)
        )
        self.shadow.started(instance, decision)
        in_turn = (decision.start_s == instance.now) & (decision.reason == Reason.STARTED)
        reason = np.where(in_turn & instance.starved(), np.int8(Reason.LATE), decision.reason)
        certificate = replace(decision.certificate, starvation=bound)
        return replace(decision, reason=reason, certificate=certificate)
