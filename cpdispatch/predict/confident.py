"""The profile's runtime, unless the user's requested times are good already."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpdispatch.jobs import UNKNOWN, Job, Workload
from cpdispatch.predict.last import USERS
from cpdispatch.predict.profile import Profile
from cpdispatch.predict.recent import Recent

JOBS, GOOD = 3, 0.8


@dataclass(slots=True)
class Confident:
    """Predicts the requested time of users who use it up, else what `Profile` predicts.

    A user's requested times are used up when the mean of runtime / requested time of the three
    jobs that ended last is 0.8 or more.

    References
    ----------
    Galleguillos, "Constraint programming-based job dispatching for modern HPC applications",
    dissertation, 2020, algorithm 3 (D2).
    """

    profile: Profile = field(default_factory=Profile)
    name: str = "confident"
    _shares: Recent[int, tuple[float, ...]] = field(
        default_factory=lambda: Recent(USERS), repr=False
    )

    @classmethod
    def of(cls, workload: Workload) -> Confident:
        """The predictor for a workload, whose names of executables have prefixes."""
        return cls(Profile.of(workload))

    def predict(self, job: Job, now: int) -> float:
        """Return the requested time or the runtime of the last match."""
        shares = self._shares.get(job.user) or ()
        if len(shares) == JOBS and sum(shares) / JOBS >= GOOD:
            return job.requested_s
        return self.profile.predict(job, now)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Keep the runtime for the job's profiles, and what share of the requested time it was."""
        self.profile.learn(job, runtime_s)
        if job.user != UNKNOWN:
            shares = self._shares.get(job.user) or ()
            self._shares.set(job.user, (*shares, runtime_s / job.requested_s)[-JOBS:])
