"""The mean of the user's last two runtimes."""

from __future__ import annotations

from dataclasses import dataclass, field

from cpdispatch.compiled.memory import MEAN_OF_TWO, Memory, by_key
from cpdispatch.jobs import UNKNOWN, Column, Job, Workload
from cpdispatch.predict.recent import Recent

USERS = 20_000
"""Users whose jobs are remembered: many times those of any log of the tests."""


@dataclass(slots=True)
class Last2:
    """Predicts the mean of the real runtimes of the user's two jobs that ended last.

    Until two have ended, and for jobs without a user, the requested time.

    References
    ----------
    Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than user
    runtime estimates", IEEE TPDS 2007.
    """

    name: str = "last2"
    _runtimes: Recent[int, tuple[int, ...]] = field(
        default_factory=lambda: Recent(USERS), repr=False
    )

    def predict(self, job: Job, now: int) -> float:
        """Return the mean of the two runtimes, in whole seconds."""
        last = self._runtimes.get(job.user) or ()
        return sum(last) // 2 if len(last) == 2 else job.requested_s

    def learn(self, job: Job, runtime_s: int) -> None:
        """Keep the runtime as the user's last."""
        if job.user != UNKNOWN:
            last = self._runtimes.get(job.user) or ()
            self._runtimes.set(job.user, (*last, runtime_s)[-2:])

    def memory(self, workload: Workload) -> Memory:
        """The same predictor for compiled replays."""
        user = workload.table.column(Column.USER)
        return by_key(MEAN_OF_TWO, [[user]], user != UNKNOWN)
