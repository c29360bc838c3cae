"""The profile's runtime, unless the user's requested times are good already."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpdispatch.compiled.memory import SHARE_OF, USED_UP, Memory, unless_used_up
from cpdispatch.jobs import UNKNOWN, Column, Job, Workload
from cpdispatch.predict.last import USERS
from cpdispatch.predict.profile import SameProfile
from cpdispatch.predict.recent import Recent

JOBS = 3


@dataclass(slots=True)
class Confident:
    """Predicts the requested time of users who use it up, else what `SameProfile` predicts.

    A user's requested times are used up when the mean of runtime / requested time of the three
    jobs that ended last is 0.8 or more.

    References
    ----------
    Galleguillos, "Constraint programming-based job dispatching for modern HPC applications",
    dissertation, 2020, algorithm 3 (D2).
    """

    profile: SameProfile = field(default_factory=SameProfile)
    name: str = "confident"
    _shares: Recent[int, tuple[int, ...]] = field(default_factory=lambda: Recent(USERS), repr=False)

    @classmethod
    def of(cls, workload: Workload) -> Confident:
        """The predictor for a workload, whose names of executables have prefixes."""
        return cls(SameProfile.of(workload))

    @property
    def notes(self) -> dict[str, int]:
        """What a run is to tell, see `SameProfile`."""
        return self.profile.notes

    def names(self, executables: tuple[str, ...]) -> None:
        """Take note of the names of all executables so far."""
        self.profile.names(executables)

    def predict(self, job: Job, now: int) -> float:
        """Return the requested time or the runtime of the last match."""
        shares = self._shares.get(job.user) or ()
        if len(shares) == JOBS and sum(shares) >= USED_UP:
            return job.requested_s
        return self.profile.predict(job, now)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Keep the runtime for the job's profiles, and what share of the requested time it was."""
        self.profile.learn(job, runtime_s)
        if job.user != UNKNOWN:
            shares = self._shares.get(job.user) or ()
            share = runtime_s * SHARE_OF // max(1, job.requested_s)
            self._shares.set(job.user, (*shares, share)[-JOBS:])

    def memory(self, workload: Workload) -> Memory:
        """The same predictor for compiled replays."""
        table = workload.table
        matches = self.profile.memory(workload)
        return unless_used_up(matches, table.column(Column.USER), table.requested_s)
