"""The runtime of the user's last job of the same profile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cpdispatch.compiled.memory import FIRST_MATCH, Memory, by_key
from cpdispatch.jobs import UNKNOWN, Column, Job, Workload
from cpdispatch.predict.recent import Recent

Key = tuple[object, ...]
PROFILES = 180_000
"""Keys that are remembered, six a job: more than any log of the tests has (Gaia 175,198),
so that `SameProfile.memory`, which forgets none, gives the same predictions."""


NO_PREFIX = "not used: prefix rule of the predictor profile, executables have no names"


@dataclass(slots=True)
class SameProfile:
    """Predicts the runtime of the user's last job that matches, tried in turn.

    Name, queue, requested time and resources; the same with the name's prefix (the name without its
    trailing number); name, queue and requested time; prefix, queue and requested time; name;
    prefix. Else, and for jobs without a user, the requested time.

    Logs without job names (SWF) have the executable's number as the name. Such a number is a mere
    label: 12 and 13 are no more alike than 12 and 99. It has no prefix but itself, the rules by
    prefix then find what those by name find, and a run notes that they had nothing to work on.

    References
    ----------
    Galleguillos, Kiziltan, Sirbu, Babaoglu, "Constraint programming-based job dispatching for
    modern HPC applications", CP 2019; algorithm 2 of the dissertation (D1).
    """

    prefix: tuple[int, ...] = ()
    """Of each executable, the first one with the same prefix; empty when each is its own."""
    name: str = "profile"
    notes: dict[str, int] = field(default_factory=dict)
    """What a run is to tell: the number of jobs by what is true of them."""
    _runtimes: Recent[Key, int] = field(default_factory=lambda: Recent(PROFILES), repr=False)

    @classmethod
    def of(cls, workload: Workload) -> SameProfile:
        """The predictor for a workload: prefixes come from its names of executables."""
        names = workload.table.labels.get("executable", ())
        return cls(_prefixes(names), notes={} if names else {NO_PREFIX: len(workload)})

    def names(self, executables: tuple[str, ...]) -> None:
        """Take note of the names of all executables so far."""
        self.prefix = _prefixes(executables)

    def predict(self, job: Job, now: int) -> float:
        """Return the runtime of the last match."""
        if job.user == UNKNOWN:
            return job.requested_s
        known = (self._runtimes.get(key) for key in self._keys(job))
        return next((runtime for runtime in known if runtime is not None), job.requested_s)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Keep the runtime as the last one of each of the job's profiles."""
        if job.user != UNKNOWN:
            for key in self._keys(job):
                self._runtimes.set(key, runtime_s)

    def memory(self, workload: Workload) -> Memory:
        """The same predictor for compiled replays."""
        table = workload.table
        user, name = table.column(Column.USER), table.column(Column.EXECUTABLE)
        queue, requested = table.column(Column.QUEUE), table.requested_s
        prefix = np.array(self.prefix, dtype=np.int64)[name] if self.prefix else name
        prefix = np.where(name == UNKNOWN, UNKNOWN, prefix)
        resources = [table.units, *table.columns[Column.REQUEST :]]
        groups = [
            [user, part, *rest]
            for rest in ([queue, requested, *resources], [queue, requested], [])
            for part in (name, prefix)
        ]
        return by_key(FIRST_MATCH, groups, user != UNKNOWN)

    def _keys(self, job: Job) -> list[Key]:
        name = job.executable
        prefix = self.prefix[name] if self.prefix and name != UNKNOWN else name
        return [
            (kind, job.user, part, *rest)
            for kind, rest in (
                ("full", (job.queue, job.requested_s, job.units, *job.request)),
                ("queue", (job.queue, job.requested_s)),
                ("name", ()),
            )
            for kind, part in ((kind, name), (kind + " by prefix", prefix))
        ]


def _prefixes(names: tuple[str, ...]) -> tuple[int, ...]:
    """Of each name, the first one with the same prefix."""
    first: dict[str, int] = {}
    return tuple(
        first.setdefault(name.rstrip("0123456789") or name, position)
        for position, name in enumerate(names)
    )
