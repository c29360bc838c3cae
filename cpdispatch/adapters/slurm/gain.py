"""What a dispatcher would have led to on a live Slurm so far: a shadow simulation.

The shadow has the cluster's nodes and gets each job when Slurm may start it. It starts jobs when
and where the dispatcher decides. A job lasts in it as long as it does under Slurm, which is known
when it has ended there. Until then it is known that the job lasts longer than it has run under
Slurm. So the shadow's clock stands behind the real one: it never passes an instant at which a job
could have ended in the shadow as far as is known. A job that the shadow starts earlier than Slurm
stops the clock there until Slurm starts it, too. Nothing is guessed: the shadow comes to the same
schedule as a simulation after all jobs have ended.

A job that is cancelled while it waits under Slurm leaves the shadow at that instant, whether it
waits or runs there, and is not counted. Jobs that ran when the watch began, and those that an
instance cannot express or that are not driven, hold in the shadow what they hold under Slurm, when
they do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cpdispatch.adapters.decided import decided
from cpdispatch.adapters.slurm import kept
from cpdispatch.adapters.slurm.cluster import (
    PENDING,
    WHOLE,
    Blocked,
    Cluster,
    Job,
    Node,
    Share,
    tasks_apart,
)
from cpdispatch.adapters.slurm.picture import AFTER, TASKS_MOST, Durations, take
from cpdispatch.adapters.slurm.rules import Rules
from cpdispatch.analyze.metrics import CLASSES_S
from cpdispatch.decision import Reason
from cpdispatch.dispatch import Dispatcher
from cpdispatch.errors import UsageError
from cpdispatch.jobs import TAU_S

FORMAT = "cpdispatch-slurm-gain/1"
NAME = "gain.json"
FEW = 100
"""With fewer jobs a difference says nothing."""
_STARTABLE = frozenset(("None", "", "Resources", "Priority"))
"""Why Slurm has not started a job that it would start if there were room; others are limits."""


class Entry(msgspec.Struct, omit_defaults=True):
    """A job, under Slurm and in the shadow; times in seconds, 0 for what has not come."""

    job: Job
    """As it was seen first; a task of an array by itself."""
    since_s: int
    enters_s: int
    """Since when it waits, and when it comes into the shadow's queue: the same but where the
    shadow's clock was further when the job was seen.
    """
    expected_s: int
    upper_s: int
    """Durations as they were predicted at its submission."""
    start_s: int = 0
    seen_s: int = 0
    end_s: int = 0
    """Under Slurm: its start, when it was last seen to run, its end."""
    ran: bool = False
    """Whether Slurm has run it, once it has ended."""
    shadow_s: int = 0
    """When the shadow started it."""
    nodes: list[str] = []
    """Where."""
    fixed: bool = False
    """Whether it does in the shadow what it does under Slurm."""
    counted: bool = False
    """Whether it belongs to the comparison: it was submitted since the watch began."""

    @property
    def runtime_s(self) -> int:
        """How long it ran under Slurm, 1 s or more."""
        return max(self.end_s - self.start_s, 1)

    def over_s(self) -> int:
        """When it leaves the shadow; 0 while that is not known."""
        if not self.end_s:
            return 0
        if self.fixed or not self.ran:
            return self.end_s
        return self.shadow_s + self.runtime_s if self.shadow_s else 0

    def sure_s(self) -> int:
        """Up to when it runs in the shadow for sure, having been started there."""
        lasts_s = self.seen_s - self.start_s if self.start_s else 0
        return self.shadow_s + max(lasts_s, 1)


class Totals(msgspec.Struct):
    """Sums over the jobs that have ended under Slurm and in the shadow."""

    jobs: int = 0
    wait_s: int = 0
    shadow_wait_s: int = 0
    slowdown: float = 0.0
    shadow_slowdown: float = 0.0
    longest_s: int = 0
    shadow_longest_s: int = 0
    """The longest wait of a job."""
    by_length: dict[str, Totals] = {}
    """Of short, medium and long jobs, see `cpdispatch.analyze.metrics.CLASSES_S`."""

    def add(self, entry: Entry) -> None:
        """Count a job."""
        self.count(entry)
        length = next(
            name for name, (least_s, below_s) in CLASSES_S.items()
            if least_s <= entry.runtime_s < below_s
        )  # fmt: skip
        self.by_length.setdefault(length, Totals()).count(entry)

    def count(self, entry: Entry) -> None:
        """Add a job to the sums."""
        self.jobs += 1
        wait_s = max(entry.start_s - entry.since_s, 0)
        shadow_wait_s = max(entry.shadow_s - entry.since_s, 0)
        self.wait_s += wait_s
        self.shadow_wait_s += shadow_wait_s
        self.slowdown += _slowdown(wait_s, entry.runtime_s)
        self.shadow_slowdown += _slowdown(shadow_wait_s, entry.runtime_s)
        self.longest_s = max(self.longest_s, wait_s)
        self.shadow_longest_s = max(self.shadow_longest_s, shadow_wait_s)

    def means(self) -> dict[str, Any]:
        """How many jobs these are, and their mean waits; None where there are none."""
        jobs = self.jobs
        return {
            "jobs": jobs,
            "wait_s_mean": self.wait_s / jobs if jobs else None,
            "shadow_wait_s_mean": self.shadow_wait_s / jobs if jobs else None,
        }


def _slowdown(wait_s: int, runtime_s: int) -> float:
    return max(1.0, (wait_s + runtime_s) / max(runtime_s, TAU_S))


class _File(msgspec.Struct):
    format: str
    made_with: str
    begun_s: int
    time_s: int
    totals: Totals
    jobs: dict[str, Entry]
    done: dict[str, int]
    kept_back: dict[str, str] = {}


@dataclass(slots=True)
class Gain:
    """A shadow simulation beside a live Slurm.

    Parameters
    ----------
    dispatcher : Dispatcher
        Of its own: one that has a memory remembers the shadow's decisions.
    folder : Path
        Where the state is kept over restarts.
    every_s : int
        The dispatcher decides at multiples of it since the beginning, if anything happened.
    made_with : str
        Of what the state is: one that was kept for something else is refused.
    durations : callable, optional
        See `cpdispatch.adapters.slurm.picture.take`.

    Attributes
    ----------
    told : tuple of str
        What the user is to know about the kept file.
    begun_s, time_s : int
        When it began; the shadow's last decision.
    """

    dispatcher: Dispatcher
    rules: Rules
    folder: Path
    every_s: int
    made_with: str
    durations: Durations | None = None
    told: tuple[str, ...] = ()
    begun_s: int = 0
    time_s: int = 0
    totals: Totals = field(default_factory=Totals)
    _jobs: dict[str, Entry] = field(default_factory=dict, repr=False)
    _done: dict[str, int] = field(default_factory=dict, repr=False)
    """When each job that has left both ended under Slurm, as long as Slurm shows it."""
    _kept_back: dict[str, str] = field(default_factory=dict, repr=False)
    """Jobs that Slurm does not let go yet, and what each depends on: met dependencies, too."""
    _back_s: set[int] = field(default_factory=set, repr=False)
    """When nodes came back into service, as far as it was seen, and when reservations end."""
    _usable: set[str] = field(default_factory=set, repr=False)
    _blocked: set[Blocked] = field(default_factory=set, repr=False)
    """The nodes in service, and the reservations, at the last look."""
    _looked_s: int = field(default=0, repr=False)
    _saved_s: int = field(default=0, repr=False)

    def see(self, cluster: Cluster, budget_s: float = 1e9) -> None:
        """Take note of what happened under Slurm, and let the shadow go on.

        It ends after about so many seconds of real time, and goes on at the next call.

        Raises
        ------
        DecisionError
            When the dispatcher fails.
        UsageError
            When the kept file cannot be read or written, or belongs to another dispatcher.
        """
        first = not self._looked_s and self._load(cluster)
        self._note(cluster, first)
        self._looked_s = cluster.now_s
        end = time.monotonic() + budget_s
        while time.monotonic() < end:
            instant_s = self._next_s()
            if instant_s is None or instant_s >= min(cluster.now_s, self._sure_s(cluster.now_s)):
                break
            self._decide(cluster, instant_s)
        if not 0 <= cluster.now_s - self._saved_s < kept.SAVE_EVERY_S:
            self.save()

    def as_dict(self) -> dict[str, Any]:
        """The comparison so far: means over jobs that ended in both, None where there is none.

        The longest waits are until ``simulated_until_s``, of jobs that wait then, too.
        """
        jobs, totals = self.totals.jobs, self.totals
        until_s = min(self._looked_s, self._sure_s(self._looked_s))
        counted = [entry for entry in self._jobs.values() if entry.counted]
        free = [entry for entry in counted if not entry.fixed]
        under = [min(entry.start_s or until_s, until_s) - entry.since_s for entry in free]
        shadow = [(entry.shadow_s or until_s) - entry.since_s for entry in free]
        return {
            "dispatcher": self.dispatcher.name,
            "since_s": self.begun_s,
            "simulated_until_s": until_s,
            "jobs_open": len(free),
            "jobs_as_slurm": len(counted) - len(free),
            **totals.means(),
            "slowdown_mean": totals.slowdown / jobs if jobs else None,
            "shadow_slowdown_mean": totals.shadow_slowdown / jobs if jobs else None,
            "wait_s_max": max([totals.longest_s, *under]),
            "shadow_wait_s_max": max([totals.shadow_longest_s, *shadow]),
            "by_length": {
                name: totals.by_length[name].means()
                for name in CLASSES_S
                if name in totals.by_length
            },
        }

    def save(self) -> None:
        """Write the state; nothing before the first look, which reads it."""
        if self._looked_s:
            kept.save(
                self.folder / NAME,
                _File(FORMAT, self.made_with, self.begun_s, self.time_s, self.totals, self._jobs,
                      self._done, self._kept_back),
            )  # fmt: skip
            self._saved_s = self._looked_s

    def _load(self, cluster: Cluster) -> bool:
        """Read the state; whether it is a new one."""
        path = self.folder / NAME
        found, self.told = kept.load(path, _File, "a shadow simulation", FORMAT)
        if found is None:
            self.begun_s, self.time_s = cluster.now_s, cluster.now_s - 1
            return True
        if found.made_with != self.made_with:
            raise UsageError(
                f"{path}: is of {found.made_with}, not of {self.made_with}: name another --state, "
                "or remove the file"
            )
        self.begun_s, self.time_s, self.totals = found.begun_s, found.time_s, found.totals
        self._jobs, self._done, self._kept_back = found.jobs, found.done, found.kept_back
        return False

    # ------------------------------------------------------------------------ what Slurm does

    def _note(self, cluster: Cluster, first: bool) -> None:
        """Take note of what happened; at the ``first`` look what runs is nobody's decision here."""
        now_s, going_on = cluster.now_s, _going_on(cluster)
        kept_back: dict[str, str] = {}
        present: set[str] = set()
        for job in (task for each in cluster.jobs for task in tasks_apart(each, TASKS_MOST)):
            present.add(job.key)
            entry = self._jobs.get(job.key)
            if first and job.ended:  # Slurm shows it for a while
                self._done[job.key] = job.end_s
            if entry is None and (
                (job.ended and (first or not job.ran))
                or (job.end_s and job.end_s <= self._done.get(job.key, 0))
            ):
                continue
            if entry is None and job.pending and not _let_go(job, now_s):
                kept_back[job.key] = self._depends_on(going_on, job)
                continue
            if entry is None:
                entry = self._jobs[job.key] = self._entry(
                    cluster, job, first, self._depends_on(going_on, job)
                )
            if job.pending:
                entry.start_s = 0  # it may have been queued again
            elif job.ran:
                entry.start_s = job.start_s
            if job.running:
                entry.seen_s = now_s
            if entry.fixed and job.shares:
                entry.job = replace(entry.job, shares=job.shares)
            if job.ended and not entry.end_s:
                entry.end_s, entry.ran = min(job.end_s or now_s, now_s), job.ran
        for key, entry in self._jobs.items():
            # Forgotten by Slurm before it was seen to end: how long it ran nobody knows.
            if key not in present and not entry.end_s and not cluster.in_array(key):
                entry.end_s, entry.ran = now_s, False
        self._done = {key: end_s for key, end_s in self._done.items() if key in present}
        self._kept_back = kept_back
        usable = {node.name for node in cluster.nodes if node.usable}
        blocked = set(cluster.blocked)
        self._back_s = {back_s for back_s in self._back_s if back_s > self.time_s}
        self._back_s |= {each.end_s for each in blocked}
        if usable - self._usable or self._blocked - blocked:
            self._back_s.add(now_s)
        self._usable, self._blocked = usable, blocked

    def _depends_on(self, going_on: Mapping[int, Sequence[str]], job: Job) -> str:
        """What a job depends on; Slurm forgets each dependency that is met.

        One that Slurm shows no more, of a job that has not ended, was taken away.
        """
        before = self._kept_back.get(job.key, "").split(",")
        parts = [part for part in before if not _waits_for(going_on, part)]
        parts += job.dependency.split(",")
        return ",".join({part.partition("(")[0]: part for part in parts if part}.values())

    def _entry(self, cluster: Cluster, job: Job, first: bool, dependency: str) -> Entry:
        """A job that is seen for the first time."""
        since_s = max(job.submit_s, min(job.eligible_s, cluster.now_s))
        if job.key in self._kept_back:
            since_s = max(since_s, self._looked_s)
        # Slurm has let it go: what it waited for has ended there, and must end in the shadow.
        understood = all(AFTER.fullmatch(part) for part in dependency.split(","))
        after = re.sub(r"after(ok|notok)", "afterany", dependency) if understood else ""
        limit_s = cluster.limit_s_of(job.limit_s, job.partition)
        said = (limit_s, limit_s) if self.durations is None else self.durations(job, limit_s)
        return Entry(
            replace(job, dependency=after),
            since_s,
            max(since_s, self.time_s + 1),
            *said,
            fixed=not self.rules.covers(job) or bool(job.left) or (first and not job.pending),
            counted=job.submit_s >= self.begun_s,
        )

    # ------------------------------------------------------------------------- what the shadow does

    def _next_s(self) -> int | None:
        """The next instant at which the dispatcher decides; None if nothing is to come."""
        events: list[int] = []
        for entry in self._jobs.values():
            if entry.fixed:
                events += [entry.start_s, entry.end_s]
            else:
                events.append(entry.over_s())
                if not entry.shadow_s:
                    events.append(entry.enters_s)
        events += self._back_s
        coming = [event for event in events if event > self.time_s]
        if not coming:
            return None
        return self.begun_s - (self.begun_s - min(coming)) // self.every_s * self.every_s

    def _sure_s(self, now_s: int) -> int:
        """Before this instant it is known which jobs run in the shadow."""
        return min(
            (entry.sure_s() for entry in self._jobs.values() if entry.shadow_s and not entry.end_s),
            default=now_s,
        )

    def _decide(self, cluster: Cluster, instant_s: int) -> None:
        self.time_s = instant_s
        for key, entry in list(self._jobs.items()):
            over_s = entry.over_s()
            if over_s and over_s <= instant_s:
                del self._jobs[key]
                self._done[key] = entry.end_s
                if entry.counted and entry.ran and not entry.fixed:
                    self.totals.add(entry)
        waiting = list(self._waiting(instant_s))
        if not waiting:
            return
        nodes = {node.name: node for node in cluster.nodes}
        running = [
            replace(
                entry.job, state="RUNNING", start_s=start_s, priority=1,
                shares=entry.job.shares if entry.fixed else _shares(cluster, entry, nodes),
            )
            for entry in self._jobs.values()
            if 0 < (start_s := entry.start_s if entry.fixed else entry.shadow_s) <= instant_s
        ]  # fmt: skip
        pending = [
            replace(entry.job, state=PENDING, reason="", priority=1, start_s=0, shares=())
            for entry in waiting
        ]
        empty = [
            replace(node, used_cpus=0, used_memory_mb=0, used_gpus={}, completing=False)
            for node in cluster.nodes
        ]
        shadow = replace(cluster, now_s=instant_s, jobs=(*running, *pending), nodes=tuple(empty))
        said = {key: (entry.expected_s, entry.upper_s) for key, entry in self._jobs.items()}
        picture = take(
            shadow, lambda job: True, memory=self.rules.memory,
            durations=lambda job, limit_s: said[job.key],
        )  # fmt: skip
        decision = decided(self.dispatcher, picture.instance)
        refused = np.isin(decision.reason, (Reason.NEVER_FITS, Reason.REJECTED)).nonzero()[0]
        for job in (*(job for job, _ in picture.left), *(picture.jobs[k] for k in refused)):
            self._jobs[job.key].fixed = True
        for job, names in picture.starts(decision):
            entry = self._jobs[job.key]
            entry.shadow_s, entry.nodes = instant_s, list(names)

    def _waiting(self, instant_s: int) -> Iterator[Entry]:
        """The shadow's queue: of an array, as many tasks as may run beside those that do."""
        busy: dict[int, int] = {}
        for entry in self._jobs.values():
            if entry.shadow_s or (entry.fixed and entry.start_s):
                busy[entry.job.array] = busy.get(entry.job.array, 0) + 1
        for entry in self._jobs.values():
            if entry.fixed or entry.shadow_s or entry.enters_s > instant_s:
                continue
            array, most = entry.job.array, entry.job.tasks_most
            if array and most:
                if busy.get(array, 0) >= most:
                    continue
                busy[array] = busy.get(array, 0) + 1
            yield entry


def _going_on(cluster: Cluster) -> dict[int, list[str]]:
    """The keys of the jobs that wait or run, by their numbers and by those of their arrays."""
    found: dict[int, list[str]] = {}
    for job in cluster.jobs:
        for number in {job.own, job.array} if job.pending or job.running else ():
            found.setdefault(number, []).append(job.key)
    return found


def _waits_for(going_on: Mapping[int, Sequence[str]], dependency: str) -> bool:
    """Whether the job that a dependency names waits or runs."""
    found = AFTER.fullmatch(dependency)
    if found is None:
        return False
    number, task = found[2], found[3] or ""
    keys = going_on.get(int(number), ())
    return any(task in ("", "_*", key[len(number) :]) for key in keys)


def _let_go(job: Job, now_s: int) -> bool:
    """Whether Slurm would start a waiting job if there were room."""
    if job.held or not 0 < job.eligible_s <= now_s:
        return False
    return job.reason in _STARTABLE or job.reason.startswith("ReqNodeNotAvail")


def _shares(cluster: Cluster, entry: Entry, nodes: dict[str, Node]) -> tuple[Share, ...]:
    """What a job holds in the shadow."""
    job, found = entry.job, []
    many = max(len(entry.nodes), 1)
    asked_mb, gpus = job.memory_mb_of(many), job.gpus_of(many)
    whole = job.exclusive or any(part.exclusive for part in cluster.partitions_of(job))
    for name in entry.nodes:
        node = nodes.get(name)
        if node is None:
            continue
        cpus = node.cpus if whole else job.cpus_of(many)
        memory_mb = node.memory_mb if asked_mb == WHOLE else asked_mb
        found.append(Share(name, -(-cpus // node.threads), memory_mb, gpus))
    return tuple(found)
