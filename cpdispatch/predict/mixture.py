"""A predictor that is believed as far as it has been right, beside what costs nothing to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

from cpdispatch.jobs import UNKNOWN, Job
from cpdispatch.predict.forest import FEWEST, LEVEL, OPEN, Errors
from cpdispatch.predict.last import USERS, Last2
from cpdispatch.predict.recent import Recent

if TYPE_CHECKING:
    from cpdispatch.predict import Predictor, Tables

SOURCES = ("requested time", "requested time x user's share", "user's last two", "predictor")
UPPER_SOURCES = ("requested time", "beyond the expected duration", "predictor")
KEPT = 0.995
"""What a loss counts for when the next job ends: the last 200 jobs decide."""
POWER = 2
"""Weights are mean losses to the power of minus this."""
_SHORT = log(10)
"""Jobs of 10 s and less are alike, as in bounded slowdown."""
_LEAST = 1e-12
_OF_NEW, _OF_NEW_OF_ALL = 0.3, 0.02


@dataclass(slots=True)
class Weights:
    """How much each of some sources is believed, by its mean loss on the jobs that ended last.

    At first each has the loss 1 of one job, so that no source wins by one lucky guess.
    """

    losses: list[float]
    """Sum of the losses of each source, those of earlier jobs discounted by `KEPT` a job."""
    jobs: float = 1.0
    """How many jobs these are, discounted likewise."""

    @classmethod
    def of(cls, sources: int) -> Weights:
        """Equal weights of so many sources."""
        return cls([1.0] * sources)

    def mean(self, said: Sequence[float]) -> float:
        """The weighted mean of what the sources say."""
        shares = self.shares()
        return sum(share * value for share, value in zip(shares, said, strict=True))

    def shares(self) -> list[float]:
        """The weight of each source, 1 in all."""
        weights = [(loss / self.jobs + _LEAST) ** -POWER for loss in self.losses]
        total = sum(weights)
        return [weight / total for weight in weights]

    def learn(self, losses: Sequence[float]) -> None:
        """Take note of what each source lost on one job."""
        self.losses = [KEPT * old + new for old, new in zip(self.losses, losses, strict=True)]
        self.jobs = KEPT * self.jobs + 1


class Said(NamedTuple):
    """What was said of a job at its submission; logarithms of seconds."""

    sources: tuple[float, ...]
    """What each of `SOURCES` says."""
    uppers: tuple[float, ...]
    """What each of `UPPER_SOURCES` says; without the last one if the predictor states none."""
    expected: float
    upper: float


@dataclass(slots=True)
class Mixture:
    """Weighs what a predictor says and the requested time by how good each has been so far.

    The expected duration is a weighted geometric mean of four sources: the requested time; the
    requested time x a moving average of runtime / requested time, the user's, or that of all jobs
    where the user is new or unknown; the mean of the user's last two runtimes, see `Last2`; and the
    predictor. The weight of a source is its mean squared error on the jobs that ended last to the
    power of -2, errors being logarithms of ratios. A source that is exact soon has all the weight.

    The upper duration is such a mean of the requested time, of what the expected duration has to be
    multiplied by so that 0.6 of the last 1000 jobs kept to it, and of the predictor's own upper
    duration if it states one. Their loss is the quantile loss of that level.

    What counts is what each source said at a job's submission. Until 200 jobs have ended both
    durations are the requested time: the jobs that end first are the short ones, so that what is
    known of users and errors is biased.

    References
    ----------
    Bates, Granger, "The combination of forecasts", Operational Research Quarterly 20, 1969. Stock,
    Watson, "Combination forecasts of output growth in a seven-country data set", Journal of
    Forecasting 23, 2004: discounted errors.
    """

    predictor: Predictor
    name: str = "mixture"
    weights: Weights = field(default_factory=lambda: Weights.of(len(SOURCES)))
    """Those of `SOURCES`."""
    upper_weights: Weights = field(init=False)
    """Those of `UPPER_SOURCES`."""
    _last: Last2 = field(default_factory=Last2, repr=False)
    _errors: Errors = field(default_factory=Errors, repr=False)
    _share: float = field(default=0.0, repr=False)
    """Moving average of ln(runtime / requested time) of all jobs."""
    _shares: Recent[int, float] = field(default_factory=lambda: Recent(USERS), repr=False)
    """The same of the jobs of each user."""
    _ended: int = field(default=0, repr=False)
    _asked: Recent[int, Said] = field(default_factory=lambda: Recent(OPEN), repr=False)
    """What was said of the jobs that have not ended."""

    def __post_init__(self) -> None:
        states = hasattr(self.predictor, "upper")
        self.upper_weights = Weights.of(len(UPPER_SOURCES) if states else len(UPPER_SOURCES) - 1)

    def predict(self, job: Job, now: int) -> float:
        """Return the weighted mean of the sources, in whole seconds."""
        said = self._say(job, now)
        if now == job.submit_s:
            self._asked.set(job.id, said)
        return self._in_seconds(said.expected, job)

    def upper(self, job: Job, now: int) -> float:
        """Return the weighted mean of the upper sources, in whole seconds."""
        said = self._asked.get(job.id) if now == job.submit_s else None
        return self._in_seconds((said or self._say(job, now)).upper, job)

    def refresh(self, job: Job, elapsed_s: int) -> float:
        """Return what the predictor says of a job that runs; else the requested time."""
        refresh = getattr(self.predictor, "refresh", None)
        return job.requested_s if refresh is None else float(refresh(job, elapsed_s))

    def refresh_upper(self, job: Job, elapsed_s: int) -> float:
        """Return what a job that runs will probably not exceed, likewise."""
        upper = getattr(self.predictor, "refresh_upper", None)
        return job.requested_s if upper is None else float(upper(job, elapsed_s))

    def start(self, job: Job, now: int) -> None:
        """Tell the predictor."""
        self._tell("start", job, now)

    # The predictor is not told of restarts. So a forest counts a job that is killed and queued
    # again among the user's running jobs for good, and learns whose jobs are killed. That brings
    # more than right numbers do, see docs/notes/best.md.

    def leave(self, job: Job) -> None:
        """Forget the job, and tell the predictor."""
        self._asked.pop(job.id)
        self._tell("leave", job)

    def _tell(self, what: str, *told: Any) -> None:
        """Tell the predictor what happens to a job, if it wants to know that."""
        method = getattr(self.predictor, what, None)
        if method is not None:
            method(*told)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Take note of how good each source was, then let it learn."""
        said = self._asked.pop(job.id)
        requested = log(max(1, job.requested_s))
        actual = max(_SHORT, min(log(max(1, runtime_s)), requested))
        if said is not None:
            self.weights.learn([(max(_SHORT, each) - actual) ** 2 for each in said.sources])
            beyond = [actual - max(_SHORT, each) for each in said.uppers]
            self.upper_weights.learn([max(LEVEL * each, (LEVEL - 1) * each) for each in beyond])
            self._errors.add(actual - max(_SHORT, said.expected))
        share = actual - max(_SHORT, requested)
        if job.user != UNKNOWN:
            before = self._shares.get(job.user)
            new = share if before is None else before + _OF_NEW * (share - before)
            self._shares.set(job.user, new)
        self._ended += 1
        self._share += _OF_NEW_OF_ALL * (share - self._share)
        self._last.learn(job, runtime_s)
        self.predictor.learn(job, runtime_s)

    def report(self) -> Tables:
        """What each source weighs at the end; the predictor goes by its own name."""
        name = self.predictor.name
        return {
            "Weights": _table((*SOURCES[:-1], name), self.weights),
            "Weights of upper durations": _table((*UPPER_SOURCES[:-1], name), self.upper_weights),
        }

    def _in_seconds(self, said: float, job: Job) -> float:
        return job.requested_s if self._ended < FEWEST else round(exp(said))

    def _say(self, job: Job, now: int) -> Said:
        requested = log(max(1, job.requested_s))

        def at_most_requested(seconds: float) -> float:
            return min(requested, log(max(1, seconds)))

        share = self._shares.get(job.user)
        by_share = max(0.0, requested + (self._share if share is None else share))
        sources = (
            requested,
            by_share,
            at_most_requested(self._last.predict(job, now)),
            at_most_requested(self.predictor.predict(job, now)),
        )
        expected = self.weights.mean(sources)
        beyond = min(requested, expected + max(0.0, self._errors.quantile(LEVEL)))
        uppers: tuple[float, ...] = (requested, beyond)
        states = getattr(self.predictor, "upper", None)
        if states is not None:
            uppers = (*uppers, at_most_requested(states(job, now)))
        return Said(sources, uppers, expected, max(expected, self.upper_weights.mean(uppers)))


def _table(names: Sequence[str], weights: Weights) -> list[dict[str, float | int | str | None]]:
    return [
        {"source": name, "weight": weight, "mean loss": loss / weights.jobs}
        for name, weight, loss in zip(names, weights.shares(), weights.losses, strict=False)
    ]
