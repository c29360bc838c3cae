"""Slurm driven: in each cycle jobs that wait held are released to the nodes that were decided.

The truth is what Slurm says in each cycle. The journal says which releases were meant, and is
written before they are asked for: a driver that is killed at any instant has released a job that
the journal knows of, or has not released it. Slurm starts a job once, whoever asks how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cpdispatch.adapters.slurm import guard
from cpdispatch.adapters.slurm.client import RefusedError, SlurmError
from cpdispatch.adapters.slurm.cluster import Cluster, Job, Source, names_in, read
from cpdispatch.adapters.slurm.durations import Durations
from cpdispatch.adapters.slurm.journal import Entry, Journal
from cpdispatch.adapters.slurm.picture import Claim, Picture, take
from cpdispatch.adapters.slurm.rules import Rules, decided, waits
from cpdispatch.decision import Decision, Reason
from cpdispatch.dispatch import Dispatcher

BACK_OFF_S, BACK_OFF_MOST_S = 10, 600
"""How long a job that did not start waits before it is released again: doubled each time."""
LAST = 1
"""The priority of jobs that are left to Slurm: those that are released start first.

Without names of nodes, a job that finds no room blocks those of less priority in its partition.
"""
FIRST = 4_294_967_000
"""The priority of released jobs where others wait that are Slurm's own: more than Slurm gives."""
_ROUNDS = 20
_MAY_START = frozenset(
    ("None", "", "Resources", "Priority", "Dependency", "JobHeldAdmin", "JobHeldUser")
)
"""Why Slurm has not started a job that it may start soon; any other reason is a limit, or worse."""
_GONE = frozenset((2017, 2084))
"""Slurm's errors for a job that is no more: unknown, or finished."""
_REFUSED = (int(Reason.NEVER_FITS), int(Reason.REJECTED))


class Slurm(Source, Protocol):
    """A cluster that is read, and whose jobs are changed."""

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        """Change a job."""
        ...


@dataclass(slots=True)
class Cycle:
    """What a cycle did; jobs by their keys.

    Attributes
    ----------
    now_s : int
        Slurm's time.
    running, waiting : int
        Jobs that run, and those in the queue that stay there.
    released : dict
        Nodes of each job that was released.
    started : dict
        Nodes of each released job that is seen to run.
    elsewhere : dict
        Of these, the nodes that were decided where Slurm took others.
    retracted : list of str
        Released jobs that did not start, and were held again.
    left : dict
        Why each job was left to Slurm's own scheduler.
    refused : dict
        What Slurm said to a release.
    unread : tuple of str
        What of Slurm's answers could not be understood.
    """

    now_s: int
    running: int = 0
    waiting: int = 0
    released: dict[str, list[str]] = field(default_factory=dict)
    started: dict[str, list[str]] = field(default_factory=dict)
    elsewhere: dict[str, list[str]] = field(default_factory=dict)
    retracted: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def _names_in(text: str) -> list[str]:
    """The names in a list of nodes; none where it is not understood, as a job's own may be."""
    try:
        return sorted(names_in(text))
    except ValueError:
        return []


class Driver:
    """Drives a cluster, cycle by cycle.

    Parameters
    ----------
    slurm : Slurm
    dispatcher : Dispatcher
    folder : Path
        Of the journal and the sign of life; `guard.locked` must be held for it.
    rules : Rules
    durations : Durations, optional
        Predicts how long jobs last, and learns from what is read. Default: requested times.
    """

    def __init__(
        self,
        slurm: Slurm,
        dispatcher: Dispatcher,
        folder: Path,
        rules: Rules,
        durations: Durations | None = None,
    ) -> None:
        self._slurm = slurm
        self._dispatcher = dispatcher
        self._folder = folder
        self._rules = rules
        self._durations = durations
        self._journal = Journal(folder)

    def cycle(self, stop: Callable[[], bool] = lambda: False) -> Cycle:
        """Read Slurm, decide, release; end before the next release when ``stop`` says so.

        Raises
        ------
        SlurmError
            When Slurm could not be read, or went away meanwhile. The next cycle goes on.
        DecisionError
            When the dispatcher failed. Nothing was released.
        """
        cluster = read(self._slurm)
        done = Cycle(cluster.now_s, sum(job.running for job in cluster.jobs), unread=cluster.unread)
        claims = self._reconcile(cluster, done)
        cluster = replace(cluster, jobs=tuple(self._as_submitted(job) for job in cluster.jobs))
        if self._durations is not None:
            self._durations.see(cluster)
        picture = take(
            cluster, self._wanted(cluster.now_s), claims, memory=self._rules.memory,
            durations=None if self._durations is None else self._durations.of,
        )  # fmt: skip
        decision = decided(self._dispatcher, picture)
        starts = picture.starts(decision)
        left = [*picture.left, *self._hopeless(picture, decision)]
        done.waiting = len(picture.jobs) - len(starts)
        if self._rules.dry:
            done.released = {job.key: list(nodes) for job, nodes in starts}
            done.left = {job.key: why for job, why in left}
            return done
        # Only now: where cycles fail, new jobs are Slurm's before long.
        guard.beat(self._folder, self._rules.partition)
        for job, nodes in starts:
            self._journal.jobs[job.key] = self._entry(job, "released", list(nodes), cluster.now_s)
        for job, _ in left:
            self._journal.jobs[job.key] = self._entry(job, "left", [], cluster.now_s)
        self._journal.save()
        first = self._others_wait(cluster)
        for job, nodes in starts:
            changes = {"nodelist": ",".join(nodes), "hold": False}
            if not stop() and self._changed(job, changes, done):
                done.released[job.key] = list(nodes)
                if first:
                    self._changed(job, {"priority": FIRST}, done)
        for job, why in left:
            if not stop() and self._changed(job, {"hold": False}, done):
                self._changed(job, {"priority": LAST}, done)
                done.left[job.key] = why
        self._journal.save()
        return done

    def _wanted(self, now_s: int) -> Callable[[Job], bool]:
        """Which waiting jobs are in the queue now."""

        def wanted(job: Job) -> bool:
            entry = self._journal.jobs.get(job.key)
            if self._rules.dry:
                return entry is None and waits(job, self._rules)
            known = entry is not None and self._rules.hold_by == "submitters"
            if not job.held or not (known or self._rules.ours(job)):
                return False
            return entry is None or entry.not_before_s <= now_s

        return wanted

    def _others_wait(self, cluster: Cluster) -> bool:
        """Whether jobs of Slurm's own wait, which could come before those that are released."""
        return any(
            job.pending and job.priority > LAST and job.key not in self._journal.jobs
            for job in cluster.jobs
        )

    def _as_submitted(self, job: Job) -> Job:
        """A job without the nodes that were chosen for it once."""
        entry = self._journal.jobs.get(job.key)
        return replace(job, required=entry.required) if entry is not None and job.held else job

    def _entry(self, job: Job, state: Any, nodes: list[str], now_s: int) -> Entry:
        before = self._journal.jobs.get(job.key)
        required = job.required if before is None else before.required
        tries = 0 if before is None else before.tries
        return Entry(state, nodes, required, now_s, tries)

    def _hopeless(self, picture: Picture, decision: Decision) -> list[tuple[Job, str]]:
        """The jobs that the dispatcher refuses for good."""
        refused = np.isin(decision.reason, _REFUSED)
        return [
            (picture.jobs[k], "fits no nodes, says the dispatcher")
            for k in np.flatnonzero(refused).tolist()
        ]

    def _changed(self, job: Job, changes: Mapping[str, Any], done: Cycle) -> bool:
        """Release a job; one that is no more is forgotten, one that is refused waits a while."""
        try:
            self._slurm.update(job.address, changes)
        except RefusedError as error:
            done.refused[job.key] = str(error)
            if error.number in _GONE:
                del self._journal.jobs[job.key]
            else:
                self._put_back(self._journal.jobs[job.key], done.now_s)
            return False
        return True

    def _put_back(self, entry: Entry, now_s: int) -> None:
        entry.state = "queued"
        entry.not_before_s = now_s + min(BACK_OFF_S << min(entry.tries, 10), BACK_OFF_MOST_S)
        entry.tries += 1

    # --------------------------------------------------------------- what Slurm has made of it

    def _reconcile(self, cluster: Cluster, done: Cycle) -> list[Claim]:
        """Compare the journal with Slurm, take back what does not start; what is still promised."""
        known = {job.key: job for job in cluster.jobs}
        for key in [key for key in self._journal.jobs if key not in known]:
            # A task of an array that waits with the others has no record of its own.
            if not self._waits_in_array(key, cluster):
                del self._journal.jobs[key]
        for job in cluster.jobs:
            nodes = _names_in(job.required)
            promised = job.pending and job.priority > LAST
            # Released by a driver whose journal is lost, to other nodes than its user named.
            if promised and nodes and nodes != _names_in(job.wished) and self._is_ours(job):
                entry = Entry("released", nodes, job.wished, cluster.now_s)
                self._journal.jobs.setdefault(job.key, entry)
        claims = []
        for key, entry in list(self._journal.jobs.items()):
            # Slurm's clock may have been set back.
            entry.decided_s = min(entry.decided_s, cluster.now_s)
            entry.not_before_s = min(entry.not_before_s, cluster.now_s + BACK_OFF_MOST_S)
            if key not in known:
                continue
            job = known[key]
            if not job.pending:
                if entry.state == "released":
                    self._started(job, entry, done)
                if job.ended:
                    del self._journal.jobs[key]
            elif entry.state == "started" or (entry.state == "released" and not job.held):
                requeued = entry.state == "started"
                late = cluster.now_s - entry.decided_s > self._rules.patience_s
                late |= job.reason not in _MAY_START
                if (requeued or late) and not self._rules.dry:
                    self._retract(job, entry, done)
                elif entry.state == "released":
                    claims.append(Claim(job, tuple(entry.nodes)))
            elif entry.state in ("released", "left") and job.held:
                # It was never released, or somebody holds it again.
                entry.state = "queued"
        if not self._rules.dry:
            self._journal.save()
        return claims

    def _is_ours(self, job: Job) -> bool:
        return self._rules.hold_by == "plugin" and self._rules.ours(job)

    @staticmethod
    def _waits_in_array(key: str, cluster: Cluster) -> bool:
        array = key.partition("_")[0]
        return "_" in key and any(
            job.tasks and job.array == int(array) and job.pending for job in cluster.jobs
        )

    def _started(self, job: Job, entry: Entry, done: Cycle) -> None:
        entry.state = "started"
        nodes = sorted(share.node for share in job.shares)
        if not nodes:  # it was cancelled
            return
        done.started[job.key] = nodes
        if nodes != sorted(entry.nodes):
            done.elsewhere[job.key] = entry.nodes

    def _retract(self, job: Job, entry: Entry, done: Cycle) -> None:
        """Hold a job again that did not start, or was queued again after it had."""
        try:
            self._slurm.update(job.address, {"hold": True})
            self._slurm.update(job.address, {"nodelist": entry.required})
        except RefusedError as error:
            # It has started, or ended, meanwhile: the next cycle sees what it is.
            done.refused[job.key] = str(error)
            self._let_run(job)
            return
        done.retracted.append(job.key)
        self._put_back(entry, done.now_s)

    def _let_run(self, job: Job) -> None:
        """Undo a hold that came when the job had just started: it would bind its next run."""
        try:
            self._slurm.update(job.address, {"hold": False})
        except RefusedError:
            return

    def hand_back(self) -> list[str]:
        """Release every job that waits to Slurm's own scheduler; the keys of those jobs.

        Jobs that were released and do not run yet lose the nodes that were chosen for them. From
        now on new jobs are not held.

        Raises
        ------
        SlurmError
            When Slurm does not answer: what is left to do is done by the next call.
        """
        guard.fall_silent(self._folder)
        handed: list[str] = []
        # Slurm cuts long lists of tasks, and a change can come at a bad moment: look again.
        for _ in range(_ROUNDS):
            again, said = self._hand_back_once(handed)
            handed += [key for key in again if key not in handed]
            if not again and not said:
                self._journal.jobs.clear()
                self._journal.save()
                return handed
        raise SlurmError(f"jobs are still held: {'; '.join(said[:1]) or ', '.join(again[:9])}")

    def _hand_back_once(self, before: Sequence[str]) -> tuple[list[str], list[str]]:
        """Change every job that is not Slurm's own; their keys, and what was refused."""
        handed: list[str] = []
        refused: list[str] = []
        for job in read(self._slurm).jobs:
            entry = self._journal.jobs.get(job.key)
            if not job.pending or not (entry is not None or self._rules.ours(job)):
                continue
            if job.key in before and not job.held:
                continue
            changes = self._unbound(job, entry)
            if not changes:
                continue
            try:
                if job.priority in (FIRST, LAST):
                    # Slurm finds a priority anew for a job that was held.
                    self._slurm.update(job.address, {"hold": True})
                self._slurm.update(job.address, changes)
                handed.append(job.key)
            except RefusedError as error:
                if error.number not in _GONE:
                    refused.append(str(error))
        return handed, refused

    def _unbound(self, job: Job, entry: Entry | None) -> dict[str, Any]:
        """What makes a job one of Slurm's own again."""
        changes: dict[str, Any] = {"hold": False} if job.priority in (0, FIRST, LAST) else {}
        own = job.wished if job.marked else job.required
        required = own if entry is None else entry.required
        if _names_in(job.required) != _names_in(required):
            changes["nodelist"] = required
        return changes
