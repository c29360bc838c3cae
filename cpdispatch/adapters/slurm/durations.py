"""Durations of a live Slurm's jobs, predicted at their submission and learned from their ends.

What is kept over restarts is which jobs were seen to be submitted, to start and to end. A
predictor that begins is told all that again in the order of time, so that it knows what it knew,
and each of its predictions is made before it hears of the job's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from cpdispatch import predict
from cpdispatch.adapters.slurm import kept
from cpdispatch.adapters.slurm.cluster import NO_LIMIT, Cluster, Job
from cpdispatch.adapters.slurm.holders import Labels
from cpdispatch.errors import UsageError
from cpdispatch.jobs import LABELLED, JobTable, Workload, job_block
from cpdispatch.jobs import Job as Asking
from cpdispatch.predict.guard import Guard
from cpdispatch.workloads.slurm import jobs as accounting
from cpdispatch.workloads.slurm import replayable

FORMAT = "cpdispatch-slurm-durations/1"
NAME = "durations.json"
ENDED_MOST = 20_000
"""So many jobs that have ended are kept, the last ones."""
_END, _SUBMIT, _START = range(3)

Life: TypeAlias = tuple[str, int]
"""A job's key and its submission, s: keys are used again."""


class Past(msgspec.Struct, omit_defaults=True):
    """A job as far as it was seen; times in seconds, 0 for what has not come, or was not asked.

    ``asked_s`` is when its duration was predicted, ``expected_s`` and ``upper_s`` what was said.
    """

    key: str
    submit_s: int
    limit_s: int
    nodes: int
    core: int
    gpu: int
    memory_mb: int
    user: str
    account: str
    qos: str
    partition: str
    name: str
    start_s: int = 0
    end_s: int = 0
    asked_s: int = 0
    expected_s: int = 0
    upper_s: int = 0

    @property
    def life(self) -> Life:
        """What it is known by."""
        return self.key, self.submit_s

    @property
    def runtime_s(self) -> int:
        """How long it ran."""
        return self.end_s - self.start_s


class _File(msgspec.Struct):
    format: str
    predictor: str
    jobs: list[Past]


@dataclass(slots=True)
class Quality:
    """How good predictions were, over the jobs that have ended; sums are in seconds."""

    jobs: int = 0
    under: int = 0
    requested_under: int = 0
    """Ended jobs; those that ran longer than predicted, and than requested."""
    error_s: int = 0
    requested_error_s: int = 0
    """Sums of absolute errors of predictions, and of requested times."""

    def add(self, runtime_s: int, expected_s: int, requested_s: int) -> None:
        """Count a job that has ended."""
        self.jobs += 1
        self.under += expected_s < runtime_s
        self.requested_under += requested_s < runtime_s
        self.error_s += abs(expected_s - runtime_s)
        self.requested_error_s += abs(requested_s - runtime_s)

    def as_dict(self) -> dict[str, float | int | None]:
        """Means and shares; None where no job has ended."""
        jobs = self.jobs
        return {
            "jobs": jobs,
            "error_s_mean": self.error_s / jobs if jobs else None,
            "under_share": self.under / jobs if jobs else None,
            "requested_error_s_mean": self.requested_error_s / jobs if jobs else None,
            "requested_under_share": self.requested_under / jobs if jobs else None,
        }


@dataclass(slots=True)
class _Open:
    """A job that has not ended, and what was said of it."""

    past: Past
    asking: Asking


@dataclass(slots=True)
class Durations:
    """Predicts how long jobs last, and learns from those that end.

    Parameters
    ----------
    name : str
        Of a predictor, see `cpdispatch.predict.make`.
    folder : Path
        Where the jobs are kept that were seen.
    history : sequence of Record
        Jobs of the accounting, which are learned from too.

    Attributes
    ----------
    told : tuple of str
        What the user is to know about the kept file.

    Raises
    ------
    UsageError
        When there is no such predictor, or it would have to know the future.
    """

    name: str
    seed: int
    folder: Path
    history: Sequence[accounting.Record] = ()
    told: tuple[str, ...] = ()
    quality: Quality = field(default_factory=Quality)
    _guard: Guard = field(init=False, repr=False)
    _open: dict[str, _Open] = field(default_factory=dict, repr=False)
    _ended: dict[Life, Past] = field(default_factory=dict, repr=False)
    _ended_s: dict[str, int] = field(default_factory=dict, repr=False)
    """When the last job of each key ended: one that was queued again shows a later submission."""
    _labels: Labels = field(default_factory=Labels, repr=False)
    _named: int = field(default=0, repr=False)
    _number: int = field(default=0, repr=False)
    _now_s: int = field(default=0, repr=False)
    _saved_s: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        predictor = predict.make(self.name, _nobody(), self.seed)
        knows = getattr(predictor, "runtimes_s", None) is not None
        if knows or isinstance(predictor, predict.Clairvoyant):
            raise UsageError(
                f"--predict {self.name}: runtimes of a live cluster are not known: name another"
            )
        predict.warm_up(predictor)
        self._guard = Guard(predictor, live=True)

    @property
    def faults(self) -> Mapping[str, int]:
        """What the predictor did wrong, and how often."""
        return self._guard.faults

    def see(self, cluster: Cluster) -> None:
        """Take note of what was submitted, has started and has ended.

        Raises
        ------
        UsageError
            When the kept file cannot be read or written.
        """
        if not self._now_s:
            self._begin(cluster)
        self._now_s = max(self._now_s, cluster.now_s)
        jobs = [job for job in cluster.jobs if not job.tasks]
        # As in a simulation: who ended teaches before others are predicted.
        for job in jobs:
            if job.ended:
                self._end(cluster, job)
        for job in sorted(jobs, key=lambda job: (job.submit_s, job.number)):
            if not job.ended:
                self._go_on(cluster, job)
        present = {job.key for job in jobs}
        for key in [key for key in self._open if key not in present]:
            if not cluster.in_array(key):
                self._guard.leave(self._open.pop(key).asking)  # how long it ran nobody knows
        if self._saved_s is None or not 0 <= cluster.now_s - self._saved_s < kept.SAVE_EVERY_S:
            self.save()
            self._saved_s = cluster.now_s

    def of(self, job: Job, limit_s: int) -> tuple[int, int]:
        """Expected and upper duration of a job, s, as they were predicted at its submission."""
        found = self._open.get(job.key)
        past = _past(job, limit_s) if found is None else found.past
        if found is None:
            # One that has ended is not asked about again: it would be learned twice.
            known = self._ended.get(past.life)
            past = known or self._submit(past, self._now_s).past
        expected_s = min(past.expected_s, limit_s)
        return expected_s, min(max(past.upper_s, expected_s), limit_s)

    def save(self) -> None:
        """Write the jobs that were seen; nothing before the first look, which reads the file."""
        if not self._now_s:
            return
        jobs = [*self._ended.values(), *(each.past for each in self._open.values())]
        kept.save(self.folder / NAME, _File(FORMAT, self.name, jobs))

    # ----------------------------------------------------------------------- what was seen

    def _begin(self, cluster: Cluster) -> None:
        """Tell the predictor of all jobs that are known already, in the order of time."""
        path = self.folder / NAME
        found, self.told = kept.load(path, _File, "durations of jobs", FORMAT)
        lives: dict[Life, Past] = {}
        for record in replayable.ended(accounting.Records(list(self.history))):
            past = _past_of_record(record, cluster)
            if past.end_s <= cluster.now_s:
                lives[past.life] = past
        # What was seen here says the same; of what has no end here, the accounting may know it.
        for past in found.jobs if found is not None else ():
            if found is not None and found.predictor != self.name:
                past.expected_s = past.upper_s = 0
            if past.end_s or past.life not in lives:
                lives[past.life] = past
        ended = sorted((p for p in lives.values() if p.end_s), key=lambda p: (p.end_s, p.life))
        pasts = [*ended[-ENDED_MOST:], *(p for p in lives.values() if not p.end_s)]
        for past in pasts:
            self._name(past)
        events: list[tuple[int, int, int]] = []
        for k, past in enumerate(pasts):
            asked_s = past.asked_s or past.submit_s
            events.append((asked_s, _SUBMIT, k))
            # One that was seen late had started, and may have ended, when it was asked about.
            if past.start_s:
                events.append((max(past.start_s, asked_s), _START, k))
            if past.end_s:
                events.append((max(past.end_s, asked_s + 1), _END, k))
        # Two lives of one key may overlap: the number keeps them apart.
        alive: dict[int, _Open] = {}
        for time_s, what, k in sorted(events):
            if what == _SUBMIT:
                alive[k] = self._submit(pasts[k], time_s)
            elif what == _START:
                self._guard.start(alive[k].asking, pasts[k].start_s)
            else:
                self._learn(alive[k])
        self._open = {each.past.key: each for each in alive.values() if not each.past.end_s}

    def _go_on(self, cluster: Cluster, job: Job) -> None:
        """Take note of a job that waits or runs."""
        found = self._open.get(job.key)
        if found is None:
            limit_s = cluster.limit_s_of(job.limit_s, job.partition)
            found = self._submit(_past(job, limit_s), cluster.now_s)
        past = found.past
        if job.running and not past.start_s:
            past.start_s = max(job.start_s, past.submit_s)
            self._guard.start(found.asking, past.start_s)
        elif job.pending and past.start_s:
            past.start_s = 0
            self._guard.restart(found.asking, cluster.now_s)

    def _end(self, cluster: Cluster, job: Job) -> None:
        """Learn from a job that has ended, once."""
        found = self._open.get(job.key)
        if found is None:
            past = _past(job, cluster.limit_s_of(job.limit_s, job.partition))
            told = past.life in self._ended or job.end_s <= self._ended_s.get(job.key, 0)
            if told or not job.ran:
                return
            # It has come and gone between two looks.
            found = self._submit(past, job.end_s)
        del self._open[job.key]
        past = found.past
        if not job.ran:
            self._guard.leave(found.asking)
            return
        if not past.start_s:
            past.start_s = max(job.start_s, past.submit_s)
            self._guard.start(found.asking, past.start_s)
        past.end_s = max(min(job.end_s or cluster.now_s, cluster.now_s), past.start_s + 1)
        self._learn(found)

    def _submit(self, past: Past, now_s: int) -> _Open:
        """Ask the predictor about a job that is new."""
        labels = {name: self._labels.number(name, text) for name, text in _names_of(past).items()}
        self._number += 1
        asking = Asking(
            self._number, past.submit_s, past.nodes, (past.core, past.gpu, past.memory_mb),
            past.limit_s, past.limit_s, past.limit_s, 1, *(labels[name] for name in LABELLED),
        )  # fmt: skip
        if isinstance(self._guard.predictor, predict.Naming):
            names = self._labels.by_name["executable"]
            if len(names) > self._named:
                self._named = len(names)
                self._guard.predictor.names(tuple(names))
        # A predictor takes a job that it is asked about at its submission for a new one.
        expected_s = self._guard.predict(asking, past.submit_s)
        upper_s = max(self._guard.upper(asking, past.submit_s), expected_s)
        if not past.expected_s:
            past.asked_s, past.expected_s, past.upper_s = now_s, expected_s, upper_s
        found = self._open[past.key] = _Open(past, asking)
        return found

    def _learn(self, found: _Open) -> None:
        past = found.past
        self.quality.add(past.runtime_s, past.expected_s, past.limit_s)
        self._guard.learn(found.asking, past.runtime_s)
        self._ended[past.life] = past
        self._ended_s[past.key] = past.end_s
        while len(self._ended) > ENDED_MOST:
            first = self._ended.pop(next(iter(self._ended)))
            if self._ended_s.get(first.key) == first.end_s:
                del self._ended_s[first.key]

    def _name(self, past: Past) -> None:
        for name, text in _names_of(past).items():
            self._labels.number(name, text)


def _names_of(past: Past) -> dict[str, str]:
    return {
        "user": past.user, "group": past.account, "queue": past.qos, "executable": past.name,
        "partition": past.partition,
    }  # fmt: skip


def _past(job: Job, limit_s: int) -> Past:
    return Past(
        job.key, job.submit_s, limit_s, job.nodes, job.cpus_of(job.nodes),
        sum(job.gpus_of(job.nodes).values()), max(job.memory_mb_of(job.nodes), 0),
        job.user, job.account, job.qos, job.partition, job.name,
    )  # fmt: skip


def _past_of_record(record: accounting.Record, cluster: Cluster) -> Past:
    nodes = max(record.nodes, 1)
    partition = record.labels["partition"]
    limit_s = record.limit_s if record.limit_s > 0 else NO_LIMIT
    start_s = max(record.start_s, record.submit_s)
    return Past(
        record.job_id, record.submit_s, cluster.limit_s_of(limit_s, partition), nodes,
        -(-record.cpus // nodes), -(-record.gpus.get("gpu", 0) // nodes),
        record.memory_mb // nodes, record.labels["user"], record.labels["group"],
        record.labels["queue"], partition, record.labels["executable"], start_s,
        start_s + max(record.runtime_s, 1),
    )  # fmt: skip


def _nobody() -> Workload:
    """A workload that says nothing of jobs but how many may be remembered."""
    zeros = np.zeros(ENDED_MOST, dtype=np.int64)
    block = job_block(
        id=np.arange(ENDED_MOST), submit_s=0, units=1, requested_s=1,
        request=np.ones((ENDED_MOST, 3), dtype=np.int64),
    )  # fmt: skip
    resources = ("core", "gpu", "mem")
    return Workload("slurm", resources, JobTable(block), zeros + 1, zeros.copy(), zeros.copy())
