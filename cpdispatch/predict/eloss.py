"""On-line polynomial regression whose loss fears over-prediction more than under-prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import cos, log, pi, sin
from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray
from cpdispatch.compile import allocating
from cpdispatch.jobs import Job
from cpdispatch.predict.forest import OPEN, processors_of
from cpdispatch.predict.last import USERS
from cpdispatch.predict.recent import Recent
from cpdispatch.workloads.clock import DAY_S, WEEK_S

FEATURES = 18
TERMS = 1 + FEATURES + FEATURES * (FEATURES + 1) // 2
RATE, PENALTY = 5000.0, 4e9
WEIGHT, SCALE, SQUARES = range(3)
SEEN, JOBS = range(2)


@allocating
def terms(features: FloatArray) -> FloatArray:
    """The polynomial basis of degree 2 of some features: 1, each of them, each product of two."""
    found = np.empty(TERMS)
    found[0] = 1.0
    k = 1
    for i in range(FEATURES):
        found[k] = features[i]
        k += 1
    for i in range(FEATURES):
        for j in range(i, FEATURES):
            found[k] = features[i] * features[j]
            k += 1
    return found


@allocating
def value(model: FloatArray, features: FloatArray) -> float:
    """What a model makes of a job's features, s."""
    return float(np.sum(model[WEIGHT] * terms(features)))


@allocating
def step(
    model: FloatArray, total: FloatArray, features: FloatArray, runtime_s: float, weight: float
) -> None:
    """Take one normalised adaptive gradient step towards the runtime of a job that has ended.

    The loss is the weight times the square of what a prediction is too long, or what it is too
    short, in s; beside it stands half the `PENALTY` times the sum of the squared coefficients.

    Parameters
    ----------
    model : float array, shape (3, TERMS), changed
        Coefficients; the largest absolute value of each term so far; sums of squared gradients.
    total : float array, shape (2,), changed
        Sum of the squares of all normalised terms so far; the number of jobs learned so far.
    """
    x = terms(features)
    for i in range(TERMS):
        size = abs(x[i])
        if size > model[SCALE, i]:
            model[WEIGHT, i] *= model[SCALE, i] / size
            model[SCALE, i] = size
        if size > 0:
            total[SEEN] += (x[i] / model[SCALE, i]) ** 2
    error = np.sum(model[WEIGHT] * x) - runtime_s
    slope = weight * (2 * error if error > 0 else -1.0 if error < 0 else 0.0)
    total[JOBS] += 1
    for i in range(TERMS):
        gradient = slope * x[i] + PENALTY * model[WEIGHT, i]
        model[SQUARES, i] += gradient * gradient
        if model[SQUARES, i] > 0:
            rate = RATE * np.sqrt(total[JOBS] / (total[SEEN] * model[SQUARES, i]))
            model[WEIGHT, i] -= rate / model[SCALE, i] * gradient


class History(NamedTuple):
    """What is known of a user's jobs that have ended."""

    jobs: int = 0
    runtime_s: int = 0
    processors: int = 0
    last: tuple[int, ...] = ()
    """Runtimes of the last three, the latest first."""
    end_s: int = 0


NOTHING = History()


@dataclass(slots=True)
class ELoss:
    """Predicts by a polynomial of degree 2 over 18 features, fitted job by job.

    The features are those of the moment at which a job is first asked about: the user's last three
    runtimes (at most what the job requests, and that where there are none), the requested time, the
    means of the last two, the last three and all runtimes, the time since the user's last job
    ended, processors over the user's mean, processors, elapsed times (sum and longest) and number
    of the user's running jobs, sine and cosine of the time of day and of the week, processors. All
    jobs without a user are one user's.

    References
    ----------
    Gaussier, Glesser, Reis, Trystram, "Improving backfilling by using machine learning to predict
    running times", SC'15: the features, the loss, rate and penalty. Ross, Mineiro, Langford,
    "Normalized online learning", UAI 2013: the gradient steps.
    """

    name: str = "eloss"
    _model: FloatArray = field(default_factory=lambda: np.zeros((3, TERMS)), repr=False)
    _total: FloatArray = field(default_factory=lambda: np.zeros(2), repr=False)
    _users: Recent[int, History] = field(default_factory=lambda: Recent(USERS), repr=False)
    _asked: Recent[int, FloatArray] = field(default_factory=lambda: Recent(OPEN), repr=False)
    _running: Recent[int, Recent[int, tuple[int, int]]] = field(
        default_factory=lambda: Recent(OPEN), repr=False
    )
    """Of each user, processors and start of the jobs that run."""

    def __post_init__(self) -> None:
        # Compiles, before any clock runs.
        nothing = np.zeros(FEATURES)
        step(self._model.copy(), self._total.copy(), nothing, value(self._model, nothing), 0.0)

    def predict(self, job: Job, now: int) -> float:
        """Return the polynomial's absolute value."""
        features = self._asked.get(job.id)
        if features is None:
            features = self._features(job, now)
            if now >= job.submit_s:
                self._asked.set(job.id, features)
        return abs(value(self._model, features))

    def start(self, job: Job, now: int) -> None:
        """Keep the job as one of the user's running ones."""
        running = self._running.get(job.user) or Recent(OPEN)
        running.set(job.id, (processors_of(job), now))
        self._running.set(job.user, running)

    def restart(self, job: Job, now: int) -> None:
        """Take the job out of the running ones."""
        self._started(job)

    def leave(self, job: Job) -> None:
        """Forget the job."""
        self._asked.pop(job.id)
        self._started(job)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Take a step, and keep the runtime as the user's last."""
        processors = processors_of(job)
        features = self._asked.pop(job.id)
        if features is not None:
            weight = 1 + log(max(1, processors * runtime_s))
            step(self._model, self._total, features, float(runtime_s), weight)
        history = self._users.get(job.user) or NOTHING
        known = History(
            history.jobs + 1,
            history.runtime_s + runtime_s,
            history.processors + processors,
            (runtime_s, *history.last)[:3],
            self._started(job) + runtime_s,
        )
        self._users.set(job.user, known)

    def _started(self, job: Job) -> int:
        """Take a job out of the running ones; when it started, s."""
        running = self._running.get(job.user)
        found = None if running is None else running.pop(job.id)
        if not running:
            self._running.pop(job.user)
        return job.submit_s if found is None else found[1]

    def _features(self, job: Job, now: int) -> FloatArray:
        history = self._users.get(job.user) or NOTHING
        processors, most = processors_of(job), job.requested_s
        last = [min(most, runtime_s) for runtime_s in history.last] or [most]
        running = self._running.get(job.user)
        jobs = () if running is None else running.values()
        elapsed_s = [now - start_s for _, start_s in jobs]
        day, week = 2 * pi * job.submit_s / DAY_S, 2 * pi * job.submit_s / WEEK_S
        features = [
            *[*last, most, most][:3],
            most,
            sum(last[:2]) / len(last[:2]),
            sum(last) / len(last),
            history.runtime_s / max(history.jobs, 1),
            now - history.end_s if history.jobs else 0,
            processors * history.jobs / max(history.processors, 1),
            sum(many for many, _ in jobs),
            sum(elapsed_s),
            len(elapsed_s),
            max(elapsed_s, default=0),
            cos(day),
            sin(day),
            cos(week),
            sin(week),
            processors,
        ]
        return np.array(features, dtype=np.float64)
