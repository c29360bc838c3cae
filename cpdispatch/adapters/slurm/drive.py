"""Slurm driven: in each cycle jobs that wait held are released to the nodes that were decided.

The truth is what Slurm says in each cycle. The journal says which releases were meant, and is
written before they are asked for: a driver that is killed at any instant has released a job that
the journal knows of, or has not released it. Slurm starts a job once, whoever asks how often.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cpdispatch.adapters.decided import decided
from cpdispatch.adapters.slurm import guard
from cpdispatch.adapters.slurm.client import DeniedError, RefusedError, SlurmError
from cpdispatch.adapters.slurm.cluster import (
    HELD_BY_ADMIN,
    Cluster,
    Job,
    Source,
    read,
    tasks_apart,
)
from cpdispatch.adapters.slurm.durations import Durations
from cpdispatch.adapters.slurm.journal import Entry, Journal
from cpdispatch.adapters.slurm.picture import Claim, Picture, Tests, take
from cpdispatch.adapters.slurm.rules import Rules, waits
from cpdispatch.adapters.slurm.waits import Waits
from cpdispatch.decision import Decision, Reason
from cpdispatch.dispatch import Dispatcher
from cpdispatch.workloads.slurm.values import nodes_in

FULL_S = 60
"""For how long jobs are not tried after a limit has kept back one of the same user, account, QoS.
"""
BACK_OFF_S, BACK_OFF_MOST_S = 10, 600
"""How long a job that did not start waits before it is released again: doubled each time."""
VAIN_MOST = 3
"""How often a job may not start for no reason that is seen, before it is left to Slurm."""
AT_ONCE = 8
"""How many jobs are changed at once: slurmrestd answers 20 clients at a time, and one waits for
its answer for most of the time."""
LAST = 1
"""The priority of jobs that are left to Slurm.

Without names of nodes, a job that finds no room blocks those of less priority in its partition.
"""
FIRST = 4_294_967_000
"""The priority of released jobs where Slurm's scheduler has others to start: more than it gives."""
_ROUNDS = 20
_FORGOTTEN_S = 120
"""A test that is over for longer than this, and for longer than it lasted, was not looked after."""
_ENDING_S = 3
"""How long is waited for a job that is being stopped, `_ROUNDS` times at most."""
_SILENT_MOST = 5
"""How often in a row Slurm may not answer while jobs are handed back."""
_PAUSE_S = 1
"""How long is waited before Slurm is asked again where it took no job back."""
_NOT_TRIED = frozenset(("None", "", "Priority"))
"""The reasons of a job that Slurm has not tried to start yet."""
_MAY_START = _NOT_TRIED | {"Resources", "Dependency", "JobHeldAdmin", "JobHeldUser"}
"""Why Slurm has not started a job that it may start soon; any other reason is a limit, or worse."""
_NOT_THERE = "ReqNodeNotAvail"
"""The reason of a job one of whose nodes cannot be used; or is kept for a job of several partitions
which Slurm has tried in one that does not have the node, until its next backfilling.
"""
_LIMITS = "QOS", "Assoc"
"""How reasons begin that are limits of users, accounts or QoS."""
_ALONE = "PerJob", "PerNode", "Min"
"""What is in the reasons of limits that no end of another job makes room for."""
_NO_LIMIT = "QOSNotAllowed"
"""A reason that a partition gives."""
_NOT_IN_VAIN = _NOT_TRIED | {"JobArrayTaskLimit"}
"""The reasons of a job that Slurm has not tried, or whose array has as many running as it may."""
_IMPOSSIBLE = "BadConstraints"
"""The reason with which Slurm holds a job that fits none of its nodes."""
_REQUEUED_HELD = "job requeued in held state"
"""What Slurm says of a job that was queued again held: after a test run, or by others."""
_NOT_LAUNCHED = "launch failed requeued held"
"""What Slurm says of a job that it holds because its start failed: on the next node it may, too."""
_GONE = frozenset((2017, 2084))
"""Slurm's errors for a job that is no more: unknown, or finished."""
_DENIED = frozenset((2002, 2010))
"""Slurm's errors for a user who may not: access denied, or a job of another user."""
_REFUSED = (int(Reason.NEVER_FITS), int(Reason.REJECTED))


class Slurm(Source, Protocol):
    """A cluster that is read, and whose jobs are changed."""

    def update(self, job: str, changes: Mapping[str, Any]) -> None:
        """Change a job."""

    def requeue(self, job: str) -> None:
        """Stop a job that runs, and queue it again, held."""


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
        Jobs that were held again: they did not start, were queued again, or others released them.
    in_vain : list of str
        Of these, those that the driver had released, and that did not start.
    tests : dict
        For how many seconds those of the released jobs run that were released for a test run.
    stopped : list of str
        Jobs that were stopped when their test was over, and are queued again.
    went_on : list of str
        Jobs whose test was over, and that run until they end.
    left : dict
        Why each job was left to Slurm's own scheduler.
    kept : dict
        What Slurm says of each job of which it shows now that somebody else holds it.
    refused : dict
        What Slurm said to a release, or to the end of a test.
    unread : tuple of str
        What of Slurm's answers could not be understood.
    dispatcher : str
    dry_run : bool
        Whether nothing was changed: what is said to be released would have been.
    decision : dict
        How the decision came about: ``ms``, which the check of it is a part of, ``model``,
        ``status``, ``limit_hit``; and ``value`` and ``bound`` of its objective where they are
        known. Empty if the cycle failed before it.
    reasons : dict
        The `Reason` of each job that was released and did not come in its turn, in small letters.
    expected_s : dict
        For how long each released job was expected to run, where durations are predicted.
    entered : list of str
        Jobs that could have started for the first time since this driver began.
    promised : dict
        The start, Slurm's time, of each job that was planned to start later, for the first time
        since this driver began.
    """

    now_s: int
    running: int = 0
    waiting: int = 0
    released: dict[str, list[str]] = field(default_factory=dict)
    started: dict[str, list[str]] = field(default_factory=dict)
    elsewhere: dict[str, list[str]] = field(default_factory=dict)
    retracted: list[str] = field(default_factory=list)
    in_vain: list[str] = field(default_factory=list)
    tests: dict[str, int] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    went_on: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    dispatcher: str = ""
    dry_run: bool = False
    decision: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    expected_s: dict[str, int] = field(default_factory=dict)
    entered: list[str] = field(default_factory=list)
    promised: dict[str, int] = field(default_factory=dict)


def _who(job: Job) -> tuple[str, str, str]:
    """Whose limits hold for a job."""
    return job.user, job.account, job.qos


def _is_limit(reason: str) -> bool:
    """Whether a reason is a limit of a user, account or QoS."""
    return reason.startswith(_LIMITS) and reason != _NO_LIMIT


def _alike(job: Job, who: tuple[str, str, str]) -> list[bool]:
    """Whether a job is of the same user, account and QoS."""
    return [bool(mine) and mine == other for mine, other in zip(_who(job), who, strict=True)]


def _names_in(text: str) -> list[str]:
    """The names in a list of nodes; none where it is not understood, as a job's own may be."""
    try:
        return sorted(nodes_in(text))
    except ValueError:
        return []


def _hold(nodes: str) -> dict[str, Any]:
    """What holds a job: by the list of nodes job_submit.lua knows the driver's hold from others."""
    return {"hold": True, "nodelist": nodes}


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
        self.waits = Waits(dispatcher, folder)
        self.done: Cycle | None = None
        """What the last cycle did; if it failed, before that. None if it could not read Slurm."""
        self._may_change = False
        self._denied: RefusedError | None = None
        self._ran: dict[str, tuple[str, str, str]] = {}
        """The user, account and QoS of each job that ran in the last cycle."""
        self._full_until_s: dict[tuple[str, str, str], int] = {}
        """Until when jobs of a user, account and QoS are not tried, see `_is_beyond`."""
        self._entered: set[str] = set()
        self._promised: set[str] = set()

    def cycle(self, stop: Callable[[], bool] = lambda: False) -> Cycle:
        """Read Slurm, decide, release; no release is begun any more when ``stop`` says so.

        Raises
        ------
        SlurmError
            When Slurm could not be read, or went away meanwhile. The next cycle goes on.
        DeniedError
            When Slurm lets the driver change no job: from now on new jobs are not held.
        DecisionError
            When the dispatcher failed. Nothing was released.
        """
        self.done = None
        cluster = read(self._slurm, self._rules.whole_cores)
        self._rules.check(cluster)
        running = sum(job.running for job in cluster.jobs)
        self.done = done = Cycle(
            cluster.now_s, running, unread=cluster.unread, dispatcher=self._dispatcher.name,
            dry_run=self._rules.dry,
        )  # fmt: skip
        claims = self._reconcile(cluster, done)
        lengths_s = self._lengths_s()
        cluster = replace(
            cluster,
            jobs=tuple(self._as_submitted(job, job.key in lengths_s) for job in cluster.jobs),
        )
        if self._durations is not None:
            self._durations.see(cluster)
        may = self._wanted(cluster.now_s)
        wanted = {job.key for job in cluster.jobs if may(job)}
        beyond = {
            job.key for job in cluster.jobs
            if job.key in wanted and self._is_beyond(job, cluster.now_s)
        }  # fmt: skip
        wanted -= beyond
        picture = take(
            cluster, lambda job: job.key in wanted, claims, memory=self._rules.memory,
            durations=None if self._durations is None else self._lasts_s,
            tests=Tests(self._may_be_tested, lengths_s),
        )  # fmt: skip
        self.waits.begin(picture.instance)
        begin = time.perf_counter()
        decision = decided(self._dispatcher, picture.instance)
        starts, tests = picture.starts(decision), picture.tests(decision)
        self._tell(picture, decision, (time.perf_counter() - begin) * 1e3, done)
        left = [*picture.left, *self._hopeless(picture, decision), *self._not_driven(cluster)]
        done.waiting = len(picture.jobs) - len(starts) + len(beyond)
        if self._rules.dry:
            done.released = {job.key: list(nodes) for job, nodes in starts}
            done.tests = tests
            done.left = {job.key: why for job, why in left}
            return done
        # Only now: where cycles fail, new jobs are Slurm's before long.
        kept = {key for key, _ in self._journal.of("kept")}
        guard.beat(
            self._folder, self._rules.partition,
            (job.own for job in cluster.jobs if job.key in kept),
        )  # fmt: skip
        over = picture.over(decision)
        self._write_down(starts, tests, left, over, done)
        busy = {
            share.node
            for job, goes_on in over
            if not goes_on and not stop() and not self._stopped(job, done)
            for share in job.shares
        }
        # A job on the nodes of one that is still being stopped stays held: the next cycle finds it.
        starts = [(job, nodes) for job, nodes in starts if busy.isdisjoint(nodes)]
        first = ({"priority": FIRST},) if left or self._others_wait(cluster) else ()
        try:
            self._release(starts, first, left, stop, done)
        finally:
            done.tests = {key: tests[key] for key in done.released if key in tests}
        self._journal.save()
        self._check_rights()
        return done

    def _write_down(
        self,
        starts: Sequence[tuple[Job, Sequence[str]]],
        tests: Mapping[str, int],
        left: Sequence[tuple[Job, str]],
        over: Sequence[tuple[Job, bool]],
        done: Cycle,
    ) -> None:
        """Write into the journal what is meant, before anything of it is asked for."""
        for job, nodes in starts:
            entry = self._entry(job, "released", list(nodes), done.now_s)
            entry.test_s = tests.get(job.key, 0)
            self._journal.jobs[job.key] = entry
        for job, _ in left:
            self._journal.jobs[job.key] = self._entry(job, "left", [], done.now_s)
        for job, goes_on in over:
            entry = self._journal.jobs[job.key]
            entry.submit_s = job.submit_s
            if goes_on:
                entry.state, entry.test_s = "started", 0
                done.went_on.append(job.key)
            else:
                entry.state = "stopped"
        self._journal.save()
        self.waits.save()

    def _release(
        self,
        starts: Sequence[tuple[Job, Sequence[str]]],
        first: Sequence[Mapping[str, Any]],
        left: Sequence[tuple[Job, str]],
        stop: Callable[[], bool],
        done: Cycle,
    ) -> None:
        """Release jobs to their nodes, then with the ``first`` changes, and others to Slurm."""
        nodes_of = {job.key: list(nodes) for job, nodes in starts}
        why_of = {job.key: why for job, why in left}
        wishes = [
            (job, ({"nodelist": ",".join(nodes), "hold": False}, *first)) for job, nodes in starts
        ]
        given_up = [
            (job, ({"hold": False}, {"priority": LAST})[: 1 + self._rules.covers(job)])
            for job, _ in left
        ]
        for job, made, error in self._changed([*wishes, *given_up], stop):
            if error is not None and made:
                done.refused[job.key] = str(error)  # the job is released all the same
            elif error is not None:
                self._refused(job, error, done)
            if made and job.key in nodes_of:
                done.released[job.key] = nodes_of[job.key]
            elif made:
                done.left[job.key] = why_of[job.key]
                self._journal.jobs[job.key].let_go = True

    def _tell(self, picture: Picture, decision: Decision, ms: float, done: Cycle) -> None:
        """Note how a decision came about, and what it says of jobs for the first time."""
        found = decision.certificate
        done.decision = {
            "ms": round(ms, 3), "model": found.model, "status": found.status,
            "limit_hit": found.limit_hit, "value": found.value, "bound": found.bound,
        }  # fmt: skip
        keys = [job.key for job in picture.jobs]
        for k, (job, ready) in enumerate(zip(picture.jobs, picture.ready.tolist(), strict=True)):
            if job.pending and ready:
                done.entered += [job.key] * (job.key not in self._entered)
                self._entered.add(job.key)
            start_s = int(decision.start_s[k])
            if start_s > done.now_s and job.key not in self._promised:
                done.promised[job.key] = start_s
                self._promised.add(job.key)
            elif start_s == done.now_s and job.pending:
                reason = Reason(int(decision.reason[k]))
                if reason != Reason.STARTED:
                    done.reasons[job.key] = reason.name.lower()
                if self._durations is not None:
                    done.expected_s[job.key] = int(picture.instance.queue.expected_s[k])
        # Those that are neither in the queue nor known to the journal have ended.
        for told in (self._entered, self._promised):
            told.intersection_update([*keys, *self._journal.jobs])

    def _wanted(self, now_s: int) -> Callable[[Job], bool]:
        """Which waiting jobs are in the queue now."""

        def wanted(job: Job) -> bool:
            entry = self._journal.jobs.get(job.key)
            if self._rules.dry:
                return entry is None and waits(job, self._rules)
            known = entry is not None and self._rules.hold_by == "submitters"
            handed = self._rules.covers(job) and self._rules.ours(job)
            return (known or handed) and self._waits(job, now_s) and not self._in_vain(job)

        return wanted

    def _waits(self, job: Job, now_s: int) -> bool:
        """Whether it is for the driver to release a job now."""
        entry = self._journal.jobs.get(job.key)
        return job.held and (
            entry is None or (entry.state == "queued" and entry.not_before_s <= now_s)
        )

    def _not_driven(self, cluster: Cluster) -> list[tuple[Job, str]]:
        """Jobs that wait for the driver and are not driven any more, and why."""
        found = []
        for job in cluster.jobs:
            if not self._waits(job, cluster.now_s):
                continue
            if self._is_ours(job) and not self._rules.covers(job):
                found.append((job, f"is in the partition {job.partition}, which is not driven"))
            elif self._in_vain(job):
                found.append(
                    (job, f"Slurm did not start it on nodes that it was given {VAIN_MOST} times")
                )
        return found

    def _in_vain(self, job: Job) -> bool:
        """Whether Slurm starts a job on none of the nodes that it is given, as far as is seen."""
        entry = self._journal.jobs.get(job.key)
        return entry is not None and entry.vain >= VAIN_MOST

    def _others_wait(self, cluster: Cluster) -> bool:
        """Whether jobs wait that Slurm's scheduler starts, its own and those that are left to it.

        They could come before those that are released: Slurm itself may give 1 as priority, too.
        """
        left = {key for key, _ in self._journal.of("left")}
        return any(
            job.pending and not job.held and (job.key in left or job.key not in self._journal.jobs)
            for job in cluster.jobs
        )

    def _as_submitted(self, job: Job, tested: bool) -> Job:
        """A job without the nodes that were chosen for it once, since when it was submitted."""
        entry = self._journal.jobs.get(job.key)
        if entry is None:
            return replace(job, required=self._own_nodes(job, None)) if job.held else job
        if job.held or tested:
            job = replace(job, required=entry.required, avoid=frozenset(entry.avoid))
        return replace(job, submit_s=entry.submit_s) if entry.submit_s else job

    def _entry(self, job: Job, state: Any, nodes: list[str], now_s: int) -> Entry:
        before = self._journal.jobs.get(job.key)
        if before is None:
            return Entry(state, nodes, job.required, now_s, shown_s=job.submit_s)
        return Entry(
            state, nodes, before.required, now_s, before.tries, outlived_s=before.outlived_s,
            submit_s=before.submit_s, shown_s=before.shown_s, admin=before.admin,
            avoid=before.avoid, vain=before.vain,
        )  # fmt: skip

    # --------------------------------------------------------------------------- test runs

    def _may_be_tested(self, job: Job) -> bool:
        entry = self._journal.jobs.get(job.key)
        return (
            self._rules.tests
            and job.restartable
            and not job.restarts
            and (self._rules.dry or entry is None or not entry.outlived_s)
        )

    def _lengths_s(self) -> dict[str, int]:
        """The length of the test of each job that runs, or is to run, for one."""
        if not self._rules.tests:
            return {}  # the dispatcher of today makes none: they run until they end
        return {
            key: entry.test_s
            for key, entry in self._journal.of("released", "started", "stopped")
            if entry.test_s
        }

    def _lasts_s(self, job: Job, limit_s: int) -> tuple[int, int]:
        """Expected and upper duration, s; as it asks for where it has outlived what was expected.

        That is what a simulation takes a job for that was stopped.
        """
        assert self._durations is not None
        expected_s, upper_s = self._durations.of(job, limit_s)
        entry = self._journal.jobs.get(job.key)
        outlived = entry is not None and expected_s <= entry.outlived_s
        return (limit_s, limit_s) if outlived else (expected_s, upper_s)

    def _stopped(self, job: Job, done: Cycle) -> bool:
        """Queue a job again whose test is over; one that Slurm does not stop runs until it ends."""
        try:
            self._slurm.requeue(job.address)
        except RefusedError as error:
            done.refused[job.key] = str(error)
            entry = self._journal.jobs[job.key]
            entry.state, entry.test_s = "started", 0
            return False
        done.stopped.append(job.key)
        return True

    def _hopeless(self, picture: Picture, decision: Decision) -> list[tuple[Job, str]]:
        """The jobs that the dispatcher refuses for good."""
        refused = np.isin(decision.reason, _REFUSED)
        return [
            (picture.jobs[k], "fits no nodes, says the dispatcher")
            for k in np.flatnonzero(refused).tolist()
        ]

    def _changed(
        self,
        wishes: Sequence[tuple[Job, Sequence[Mapping[str, Any]]]],
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[Job, int, RefusedError | None]]:
        """Make the changes of each job in their order, of several jobs at once.

        Of each job is told how many were made, and why Slurm refused the next one. When there is
        no answer for a job, an error is raised: no change that was not asked for by then is made,
        and what was made is told before.
        """

        def change(job: Job, changes: Sequence[Mapping[str, Any]]) -> tuple[int, SlurmError | None]:
            """How many changes were made, and why the next one was not."""
            for made, wanted in enumerate(changes):
                if not made and stop():
                    return 0, None
                try:
                    self._slurm.update(job.address, wanted)
                except SlurmError as error:
                    return made, error
            return len(changes), None

        failure: BaseException | None = None
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = [(job, pool.submit(change, job, changes)) for job, changes in wishes]
            for job, answer in asked:
                try:
                    made, why_not = answer.result()
                except CancelledError:
                    continue
                except BaseException as error:
                    failure = failure or error
                    pool.shutdown(cancel_futures=True)
                    continue
                self._may_change |= made > 0
                refused = why_not if isinstance(why_not, RefusedError) else None
                if refused is None and why_not is not None:
                    failure = failure or why_not
                    pool.shutdown(cancel_futures=True)
                yield job, made, refused
        if failure is not None:
            raise failure

    def _refused(self, job: Job, error: RefusedError, done: Cycle) -> None:
        """Forget a job that is no more; one that is refused waits a while."""
        self._note(error)
        done.refused[job.key] = str(error)
        if error.number in _GONE:
            del self._journal.jobs[job.key]
            return
        entry = self._journal.jobs[job.key]
        entry.vain += error.number not in _DENIED
        self._put_back(entry, done.now_s)

    def _check_rights(self) -> None:
        """Raise where Slurm has let the driver change no job, and told it that it may not."""
        error = self._denied
        if error is None or self._may_change:
            return
        guard.fall_silent(self._folder)
        raise DeniedError(
            f"{error}: the user as whom slurmrestd runs may not change jobs of others. New jobs "
            "are not held from now on; those that are held stay so. Make this user an operator "
            "(sacctmgr modify user NAME set adminlevel=operator), then start the driver again, or "
            "hand everything back to Slurm with cpdispatch slurm drive --stop"
        ) from error

    def _note(self, error: RefusedError) -> None:
        if error.number in _DENIED:
            self._denied = error

    def _put_back(self, entry: Entry, now_s: int) -> None:
        entry.state = "queued"
        entry.not_before_s = now_s + min(BACK_OFF_S << min(entry.tries, 10), BACK_OFF_MOST_S)
        entry.tries += 1

    # --------------------------------------------------------------- what Slurm has made of it

    def _reconcile(self, cluster: Cluster, done: Cycle) -> list[Claim]:
        """Compare the journal with Slurm, take back what does not start; what is still promised."""
        known = {job.key: job for job in cluster.jobs}
        self._forget_others(cluster)
        for key in [key for key in self._journal.jobs if key not in known]:
            if not (cluster.in_array(key) or cluster.unread_jobs):
                del self._journal.jobs[key]
        for job in cluster.jobs:
            nodes = _names_in(job.required)
            promised = job.pending and job.priority > LAST
            # Released by a driver whose journal is lost, to other nodes than its user named.
            if promised and nodes and nodes != _names_in(job.wished) and self._is_ours(job):
                entry = Entry("released", nodes, job.wished, cluster.now_s, shown_s=job.submit_s)
                self._journal.jobs.setdefault(job.key, entry)
            if job.held and job.key not in self._journal.jobs and self._is_ours(job):
                self._find_held(job, done)
        claims: list[Claim] = []
        retracted: list[tuple[Job, Entry]] = []
        for key, entry in list(self._journal.jobs.items()):
            # Slurm's clock may have been set back.
            entry.decided_s = min(entry.decided_s, cluster.now_s)
            entry.not_before_s = min(entry.not_before_s, cluster.now_s + BACK_OFF_MOST_S)
            if key not in known:
                continue
            job = known[key]
            entry.required = self._own_nodes(job, entry)
            entry.let_go |= entry.state == "left" and not job.held
            if not job.pending:
                if self._started_held(job, entry):
                    self._let_run(job)
                if entry.state in ("released", "retracted"):
                    self._started(job, entry, done)
                elif entry.state == "kept" and job.running:
                    entry.state = "started"
                if entry.test_s and job.running:
                    self._look_at_test(job, entry, done)
                if job.ended:
                    del self._journal.jobs[key]
            elif job.held and job.reason == _IMPOSSIBLE and entry.state in ("released", "left"):
                # Slurm finds no nodes for it, and will say so again.
                if entry.state == "released":
                    self._count(cluster, job, entry)
                    retracted.append((job, entry))
                    self._avoid(cluster, job, entry)
            elif job.held:
                if entry.state == "kept":
                    self._freed(job, entry, done)
                elif self._by_others(job, entry):
                    self._keep(job, entry, done)
                elif self._freed(job, entry, done):
                    entry.state, entry.test_s = "queued", 0
            elif not job.held and entry.state != "left":
                requeued = entry.state != "released"
                late = cluster.now_s - entry.decided_s > self._rules.patience_s
                late |= self._cannot_start(cluster, job, entry)
                if (requeued or late) and not self._rules.dry:
                    self._count(cluster, job, entry)
                    retracted.append((job, entry))
                    self._avoid(cluster, job, entry)
                elif entry.state == "released":
                    claims.append(Claim(job, tuple(entry.nodes)))
        self._try_again(cluster)
        if not self._rules.dry:
            self._retract(retracted, done)
            self._journal.seen([text.partition(":")[0] for text in cluster.unread_jobs])
            self._journal.save()
        return claims

    @staticmethod
    def _cannot_start(cluster: Cluster, job: Job, entry: Entry) -> bool:
        """Whether Slurm says of a released job that it will not start soon."""
        if job.reason in _MAY_START:
            return False
        if job.reason.startswith(_NOT_THERE):
            given = [node for node in cluster.nodes if node.name in entry.nodes]
            return not all(node.usable for node in given)
        # Of several partitions the reason is that of any.
        return "," not in job.partition or _is_limit(job.reason)

    @staticmethod
    def _avoid(cluster: Cluster, job: Job, entry: Entry) -> None:
        """Note in which partitions a job did not start; of all of them, none is avoided."""
        parts = cluster.partitions_of(job)
        tried = {part.name for part in parts if part.nodes.issuperset(entry.nodes)}
        avoid = {part.name for part in parts} & (tried | set(entry.avoid))
        entry.avoid = sorted(avoid) if len(avoid) < len(parts) else []

    @staticmethod
    def _count(cluster: Cluster, job: Job, entry: Entry) -> None:
        """Count a release after which a job did not start, unless it is seen why.

        A limit kept it back, or one of its nodes failed, or was taken by another job meanwhile, or
        Slurm has not come to it.
        """
        seen = _is_limit(job.reason) or job.reason in _NOT_IN_VAIN
        if entry.state == "released" and not seen:
            given = [node for node in cluster.nodes if node.name in entry.nodes]
            entry.vain += all(node.has_room(job, len(entry.nodes)) for node in given)

    def _look_at_test(self, job: Job, entry: Entry, done: Cycle) -> None:
        """Note that a job has outlived its test; one that nobody looked after runs on."""
        over_s = done.now_s - job.start_s - entry.test_s
        if over_s >= 0:
            entry.outlived_s = entry.test_s
        if not self._rules.tests or over_s > max(_FORGOTTEN_S, entry.test_s):
            entry.test_s = 0
            done.went_on.append(job.key)

    def _try_again(self, cluster: Cluster) -> None:
        """For each job that has ended, let one job that a limit kept back be released again.

        It is the first one of the same user, else of the same account, else of the same QoS.
        """
        runs = {job.key: _who(job) for job in cluster.jobs if job.running}
        ended = [who for key, who in self._ran.items() if key not in runs]
        self._ran = runs
        limited = [job for job in cluster.jobs if ended and self._is_limited(job, cluster.now_s)]
        limited.sort(key=lambda job: (job.submit_s, job.number))
        for who in ended:
            alike = [_alike(job, who) for job in limited]
            if any(map(any, alike)):
                job = limited.pop(alike.index(max(alike)))
                self._journal.jobs[job.key].not_before_s = cluster.now_s
            else:
                self._full_until_s.pop(who, None)

    def _is_beyond(self, job: Job, now_s: int) -> bool:
        """Whether a job is not tried for a while, as a limit has just kept back others like it.

        Else all jobs of its user would keep nodes from everybody, cycle after cycle. One that a
        limit has kept back itself has its own time.
        """
        entry = self._journal.jobs.get(job.key)
        if entry is not None and entry.limited:
            return False
        return now_s < self._full_until_s.get(_who(job), 0) <= now_s + FULL_S

    def _is_limited(self, job: Job, now_s: int) -> bool:
        """Whether a limit kept a job from starting, and it waits a while for that."""
        entry = self._journal.jobs.get(job.key)
        return (
            job.pending and entry is not None and entry.state == "queued"
            and entry.limited and entry.not_before_s > now_s
        )  # fmt: skip

    def _forget_others(self, cluster: Cluster) -> None:
        """Drop the entries of jobs whose numbers other jobs have now.

        Slurm gives numbers again after the last one, and after a start without its saved state.
        """
        known = {job.key for job in cluster.jobs}
        arrays = {job.array: job.submit_s for job in cluster.jobs if job.tasks and job.pending}
        for key in self._journal.jobs.keys() - known:
            array, _, task = key.partition("_")
            submit_s = arrays.get(int(array)) if task else None
            if submit_s is not None and self._journal.jobs[key].shown_s not in (0, submit_s):
                self._forget(key)
        for job in cluster.jobs:
            entry = self._journal.jobs.get(job.key)
            if entry is None:
                continue
            # One that was queued again shows that as its submission.
            if entry.shown_s not in (0, job.submit_s) and not job.restarts:
                self._forget(job.key)
            entry.shown_s = job.submit_s

    def _forget(self, key: str) -> None:
        """Drop the entry of a job that is not there any more."""
        del self._journal.jobs[key]
        self._entered.discard(key)
        self._promised.discard(key)

    # -------------------------------------------------------------------------- whose hold it is

    def _by_others(self, job: Job, entry: Entry | None) -> bool:
        """Whether somebody else than the plugin, the submitter or the driver holds a job."""
        if job.others_hold or _NOT_LAUNCHED in (job.remark, job.reason.replace("_", " ")):
            return True
        if entry is None:  # held as it was submitted, or, without a journal, as a driver left it
            return not self._lost(job) and self._looks_foreign(job)
        if entry.state in ("stopped", "retracted"):  # by the driver
            return False
        if entry.state == "released":
            nodes = _names_in(job.required)
            if nodes == sorted(entry.nodes) and nodes != _names_in(entry.required):
                return True  # it was released: the names of its nodes came with that
        if entry.state == "started" or (entry.state == "left" and job.remark == _REQUEUED_HELD):
            return True  # it ran
        if entry.state == "left" and entry.let_go:
            return True  # it was Slurm's own
        return job.reason == HELD_BY_ADMIN and not entry.admin

    def _lost(self, job: Job) -> bool:
        """Whether a driver may have held a job of which the journal knows nothing."""
        return self._journal.lost or f"job {job.own}" in self._journal.unread

    @staticmethod
    def _looks_foreign(job: Job) -> bool:
        """Whether a job is held otherwise than the plugin and submitters hold jobs."""
        return job.reason == HELD_BY_ADMIN or job.remark == _REQUEUED_HELD

    def _find_held(self, job: Job, done: Cycle) -> None:
        """Note who holds a job that the journal does not know, if it was not the plugin."""
        entry = self._found(job, done.now_s)
        if self._by_others(job, None):
            self._journal.jobs[job.key] = entry
            self._keep(job, entry, done)
        elif self._looks_foreign(job):
            self._journal.jobs[job.key] = entry

    def _found(self, job: Job, now_s: int) -> Entry:
        """The entry of a job that the journal does not know; its nodes may be chosen ones."""
        nodes, own = _names_in(job.required), self._own_nodes(job, None)
        return Entry("queued", nodes, own, now_s, shown_s=job.submit_s, admin=True)

    def _keep(self, job: Job, entry: Entry, done: Cycle) -> None:
        """Leave a job to whoever holds it; it loses the nodes that were chosen for it."""
        entry.state, entry.test_s, entry.admin, entry.vain = "kept", 0, False, 0
        done.kept[job.key] = job.remark or job.reason
        if not self._rules.dry and not self._is_free(job, entry):
            self._journal.save()  # its nodes may be all that tells whose hold it is
        self._freed(job, entry, done)

    def _freed(self, job: Job, entry: Entry, done: Cycle) -> bool:
        """Take the nodes that were chosen for it from a held job; whether it has none of them.

        Only then do the names of nodes that it is seen with later prove that it was released.
        """
        if self._rules.dry or self._is_free(job, entry):
            return True
        try:
            self._slurm.update(job.address, {"nodelist": entry.required})
        except RefusedError as error:
            done.refused[job.key] = str(error)
            return False
        entry.nodes = []  # from now on, whoever names these nodes for it wants them
        return True

    @staticmethod
    def _is_free(job: Job, entry: Entry) -> bool:
        """Whether a job has none of the nodes that were chosen for it."""
        return _names_in(job.required) == _names_in(entry.required)

    def _own_nodes(self, job: Job, entry: Entry | None) -> str:
        """The nodes that a job asks for itself: others may change them while it waits."""
        if entry is not None:
            chosen = entry.nodes and _names_in(job.required) == sorted(entry.nodes)
            return entry.required if chosen or not job.pending else job.required
        # Without a journal: a driver names the nodes of what it releases, or has held again since.
        again = job.restarts or (self._lost(job) and self._looks_foreign(job))
        return job.wished if job.marked and (again or not job.held) else job.required

    def _is_ours(self, job: Job) -> bool:
        return self._rules.hold_by == "plugin" and self._rules.ours(job)

    def _started(self, job: Job, entry: Entry, done: Cycle) -> None:
        entry.state, entry.vain = "started", 0
        nodes = sorted(share.node for share in job.shares)
        if not nodes:  # it was cancelled
            return
        done.started[job.key] = nodes
        if nodes != sorted(entry.nodes):
            done.elsewhere[job.key] = entry.nodes

    def _retract(self, jobs: Sequence[tuple[Job, Entry]], done: Cycle) -> None:
        """Hold jobs again that did not start, or were queued again or released by others.

        A change that Slurm refused and made all the same is to the driver one by others.
        """
        before = [entry.state for _, entry in jobs]
        apart = self._about_to_hold(jobs)
        for (job, entry), state, tasks in zip(jobs, before, apart, strict=True):
            try:
                self._slurm.update(job.address, _hold(entry.required))
            except RefusedError as error:
                self._note(error)
                # It has started, or ended, meanwhile: the next cycle sees what it is.
                done.refused[job.key] = str(error)
                self._let_run(job)
                entry.state = state
                for key in tasks:
                    del self._journal.jobs[key]
                continue
            self._may_change = True
            done.retracted.append(job.key)
            if state == "released":
                done.in_vain.append(job.key)
            limited = _is_limit(job.reason) and not any(each in job.reason for each in _ALONE)
            for key in (job.key, *tasks):
                self._put_back(self._journal.jobs[key], done.now_s)
                self._journal.jobs[key].limited = limited
            if limited:
                self._full_until_s[_who(job)] = done.now_s + FULL_S

    def _about_to_hold(self, jobs: Sequence[tuple[Job, Entry]]) -> list[list[str]]:
        """Write down that jobs are held by the driver, before any is; the tasks of each array.

        Slurm may make a record of its own for each of these tasks when it changes the array.
        """
        apart = [
            [task.key for task in tasks_apart(job, sys.maxsize)] if job.tasks else []
            for job, _ in jobs
        ]
        for (_, entry), tasks in zip(jobs, apart, strict=True):
            entry.state, entry.test_s, entry.admin = "retracted", 0, True
            self._journal.jobs |= {key: copy.copy(entry) for key in tasks}
        self._journal.save()
        return apart

    @staticmethod
    def _started_held(job: Job, entry: Entry) -> bool:
        """Whether a job had just started when the driver held it."""
        return entry.state == "retracted" and job.running and not job.priority

    def _let_run(self, job: Job) -> None:
        """Undo the driver's hold on a job that had just started: it would bind its next run."""
        if self._rules.dry:
            return
        try:
            self._slurm.update(job.address, {"hold": False})
        except RefusedError:
            return

    def hand_back(self) -> list[str]:
        """Release every job that waits to Slurm's own scheduler; the keys of those that it took.

        Jobs that were released and do not run yet lose the nodes that were chosen for them. From
        now on new jobs are not held.

        Raises
        ------
        SlurmError
            When Slurm does not answer, asked five times: what is left is done by the next call.
        DeniedError
            When Slurm lets the driver change no job.
        """
        guard.fall_silent(self._folder)
        handed: dict[str, None] = {}
        again: list[str] = []
        said: list[str] = []
        silent = 0
        # Slurm cuts long lists of tasks, and a change can come at a bad moment: look again.
        for _ in range(_ROUNDS):
            again.clear()
            try:
                said = self._hand_back_once(handed, again)
            except SlurmError as error:
                # A busy one is late, and one that is started anew is away for seconds.
                silent += 1
                if silent == _SILENT_MOST or isinstance(error, DeniedError):
                    raise
            else:
                silent = 0
                if not again and not said:
                    self._journal.jobs.clear()
                    self._journal.seen([])
                    self._journal.save()
                    return list(handed)
            handed |= dict.fromkeys(again)
            if not again:
                time.sleep(_PAUSE_S)
        raise SlurmError(f"jobs are still held: {'; '.join(said[:1]) or ', '.join(again[:9])}")

    def _hand_back_once(self, before: Collection[str], handed: list[str]) -> list[str]:
        """Change every job that is not Slurm's own, and add its key; tell what was refused."""
        cluster = read(self._slurm)
        self._forget_others(cluster)
        refused = [
            f"{text}; it cannot be read: see whether it is held, and release it with scontrol"
            for text in cluster.unread_jobs
        ]
        wishes: list[tuple[Job, list[dict[str, Any]]]] = []
        anew: list[tuple[Job, Entry]] = []
        for job in cluster.jobs:
            entry = self._journal.jobs.get(job.key)
            if entry is not None and entry.state == "stopped" and job.ending:
                # Killing takes a while, and then it waits held.
                refused.append(f"job {job.key} is being stopped")
                time.sleep(_ENDING_S)
            if entry is not None and self._started_held(job, entry):
                self._let_run(job)
            if not job.pending or not (entry is not None or self._rules.ours(job)):
                continue
            if job.key in before and not job.held:
                continue
            changes = self._unbound(job, entry)
            kept = entry is not None and entry.state == "kept"
            if job.held and job.reason != _IMPOSSIBLE and (kept or self._by_others(job, entry)):
                changes.pop("hold", None)
            if not changes:
                continue
            if job.priority in (FIRST, LAST):
                # Slurm finds a priority anew for a job that was held.
                anew.append((job, entry or self._found(job, cluster.now_s)))
                self._journal.jobs[job.key] = anew[-1][1]
                wishes.append((job, [_hold(self._own_nodes(job, entry)), {"hold": False}]))
            else:
                wishes.append((job, [changes]))
        self._about_to_hold(anew)
        # Slurm's basic priorities fall with each job that it takes on.
        wishes.sort(key=lambda wish: (wish[0].submit_s, wish[0].number))
        wanted = {job.key: len(changes) for job, changes in wishes}
        for job, made, error in self._changed(wishes):
            if made == wanted[job.key]:
                handed.append(job.key)
            elif error is not None:
                self._note(error)
                if error.number not in _GONE:
                    refused.append(str(error))
        self._check_rights()
        return refused

    def _unbound(self, job: Job, entry: Entry | None) -> dict[str, Any]:
        """What makes a job one of Slurm's own again."""
        changes: dict[str, Any] = {"hold": False} if job.priority in (0, FIRST, LAST) else {}
        own = self._own_nodes(job, entry)
        if _names_in(job.required) != _names_in(own):
            changes["nodelist"] = own
        return changes
