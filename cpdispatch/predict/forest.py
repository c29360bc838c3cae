"""Quantiles of a job's runtime given all that is known of it, by a forest that is grown anew."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from math import ceil, exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import FloatArray
from cpdispatch.errors import UsageError
from cpdispatch.extra import check
from cpdispatch.jobs import Job
from cpdispatch.predict.recent import Recent
from cpdispatch.predict.trees import Trees, grow, quantiles
from cpdispatch.workloads.clock import DAY_S, WEEK_S

Key = tuple[int, ...]
Features = NDArray[np.float32]
KEYS = 180_000
"""Keys that are remembered, five a job."""
OPEN = 16_000
"""Jobs that have not ended that are remembered."""
WINDOW, FEWEST = 10_000, 200
"""Jobs that ended last, which a forest is grown from, and how many the first one needs."""
SCORES = 1000
"""Jobs that ended last by which the upper quantile is corrected."""
FEATURES = 31
LEVEL = 0.6
_LONG_AGO, _NONE = 20.0, -1.0
_OF_NEW, _OF_OLD = 0.3, 0.7


@dataclass(slots=True)
class History:
    """What is known of the jobs of one key; runtimes as logarithms of seconds."""

    jobs: int = 0
    """How many have ended."""
    last: float = _NONE
    before: float = _NONE
    """The last one's runtime, and that of the one before it."""
    mean: float = _NONE
    """Moving average of the runtimes."""
    share: float = _NONE
    """Moving average of runtime / requested time."""
    end_s: int | None = None
    submit_s: int | None = None
    start_s: int | None = None
    """When the last one ended, was submitted, started."""
    queued: int = 0
    running: int = 0

    def end(self, now: int, runtime_s: int, share: float) -> None:
        """A job of this key ends."""
        new = log(max(1, runtime_s))
        self.before, self.last = self.last, new
        self.mean = _OF_NEW * new + _OF_OLD * self.mean if self.jobs else new
        self.share = _OF_NEW * share + _OF_OLD * self.share if self.jobs else share
        self.jobs += 1
        self.end_s = now


class Said(NamedTuple):
    """What a forest says of a job, s."""

    forest: int
    """Which forest, counted from 1."""
    median_s: int
    upper_s: int
    """The upper quantile as the forest has it, 1 s at least."""


@dataclass(slots=True)
class Asked:
    """A job that has been asked about and has not ended."""

    features: Features
    """Those of its submission."""
    histories: tuple[History, ...]
    start_s: int | None = None
    said: Said | None = None
    """What was said last of these features: they are asked about three times as a rule."""


class TrainingJob(NamedTuple):
    """A job that has ended, to grow forests from."""

    features: Features
    runtime_s: int


@dataclass(slots=True)
class Errors:
    """How far the jobs that ended last were beyond what was said; logarithms of ratios."""

    in_order: deque[float] = field(default_factory=deque)
    ascending: list[float] = field(default_factory=list)

    def add(self, error: float) -> None:
        """Take note of one; the oldest goes when there are too many."""
        self.in_order.append(error)
        insort(self.ascending, error)
        if len(self.in_order) > SCORES:
            del self.ascending[bisect_left(self.ascending, self.in_order.popleft())]

    def quantile(self, level: float) -> float:
        """What the next one will not exceed with this probability; 0 when too few are known."""
        rank = ceil(level * (len(self.ascending) + 1))
        return self.ascending[rank - 1] if rank <= len(self.ascending) else 0.0


@dataclass(slots=True)
class Forest:
    """Predicts the median of runtimes of jobs like this one, by a quantile regression forest.

    It is grown from the 10,000 jobs that ended last, when 200 have ended, whenever that has
    doubled up to 6,400, and every 7 days. Before the first one has grown, and where the forest
    knows no runtime that is long enough, the prediction is the requested time.

    The features: requested time, processors, hour, weekday, user, queue, group; for each of the
    keys user, user and executable, both with requested time and processors, user and requested
    time, user and processors: the last runtime, a moving average, the number of ended jobs; of
    the user: the runtime before the last, the times since a job ended and was submitted, the
    numbers of running and queued jobs, a moving average of runtime / requested time; of the third
    key: the numbers of running and queued jobs, the time since one started. Those of submissions
    and queued jobs stay as they were at the job's submission, the others follow what has become
    known since. All jobs without a user are one user's.

    Raises
    ------
    UsageError
        When the level is not between 0 and 1, or scikit-learn is not installed.

    References
    ----------
    Meinshausen, "Quantile regression forests", JMLR 7, 2006. Romano, Patterson, Candes,
    "Conformalized quantile regression", NeurIPS 2019: the correction of the upper quantile.
    """

    level: float = LEVEL
    """Share of the jobs that are not to exceed `upper`."""
    seed: int = 0
    """Of the randomised trees."""
    name: str = "forest"
    _levels: FloatArray = field(init=False, repr=False, compare=False)
    """Those of the median and of `upper`."""
    _trees: Trees | None = field(default=None, repr=False)
    _forests: int = field(default=0, repr=False)
    """How many have been grown."""
    _grown_s: int = field(default=0, repr=False)
    _grown_from: int = field(default=0, repr=False)
    _errors: Errors = field(default_factory=Errors, repr=False)
    _histories: Recent[Key, History] = field(default_factory=lambda: Recent(KEYS), repr=False)
    _asked: Recent[int, Asked] = field(default_factory=lambda: Recent(OPEN), repr=False)
    _ended: Recent[int, TrainingJob] = field(default_factory=lambda: Recent(WINDOW), repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UsageError(f"the level of an upper quantile is between 0 and 1, not {self.level}")
        check("sklearn")
        self._levels = np.array([0.5, self.level])

    def warm_up(self) -> None:
        """Import and compile what the forest calls."""
        some = np.zeros((2, FEATURES), dtype=np.float32)
        trees = grow(some, np.zeros(2, dtype=np.int64), self.seed)
        quantiles(trees, some[0], self._levels, -1)

    def predict(self, job: Job, now: int) -> float:
        """Return the median."""
        asked = self._asked.get(job.id)
        if asked is None and now >= job.submit_s and self._ended.get(job.id) is None:
            self._submit(job, now)
        if self._trees is None:
            return job.requested_s
        return self._say(job, now).median_s

    def upper(self, job: Job, now: int) -> float:
        """Return the calibrated upper quantile, or the median where that is longer."""
        if self._trees is None:
            return job.requested_s
        said = self._say(job, now)
        return max(said.upper_s * exp(self._errors.quantile(self.level)), said.median_s)

    def refresh(self, job: Job, elapsed_s: int) -> float:
        """Return the median of the runtimes that are longer."""
        return self._longer(job, elapsed_s, self._levels[:1])

    def refresh_upper(self, job: Job, elapsed_s: int) -> float:
        """Return the upper quantile of the runtimes that are longer."""
        return self._longer(job, elapsed_s, self._levels[1:])

    def start(self, job: Job, now: int) -> None:
        """Count the job among the running ones."""
        asked = self._asked.get(job.id)
        if asked is not None:
            asked.start_s = now
            for history in asked.histories:
                history.queued -= 1
                history.running += 1
                history.start_s = now

    def restart(self, job: Job, now: int) -> None:
        """Count the job among the queued ones again."""
        asked = self._asked.get(job.id)
        if asked is not None and asked.start_s is not None:
            asked.start_s = None
            for history in asked.histories:
                history.queued += 1
                history.running -= 1

    def leave(self, job: Job) -> None:
        """Count the job no more."""
        asked = self._asked.pop(job.id)
        if asked is not None:
            self._close(asked)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Keep the runtime; grow a new forest when it is time."""
        asked = self._asked.pop(job.id)
        if asked is None:
            return
        if self._trees is not None:
            upper_s = self._of_submission(self._trees, asked).upper_s
            self._errors.add(log(max(1, runtime_s) / upper_s))
        self._close(asked)
        now = runtime_s + (job.submit_s if asked.start_s is None else asked.start_s)
        for history in asked.histories:
            history.end(now, runtime_s, runtime_s / max(1, job.requested_s))
        self._ended.set(job.id, TrainingJob(asked.features, runtime_s))
        jobs = len(self._ended)
        due = now >= self._grown_s + WEEK_S or jobs >= 2 * self._grown_from
        if jobs >= FEWEST and due:
            features, runtimes = zip(*self._ended.values(), strict=True)
            self._trees = grow(
                np.concatenate(features).reshape(jobs, -1), np.array(runtimes), self.seed
            )
            self._grown_s, self._grown_from = now, jobs
            self._forests += 1

    def _say(self, job: Job, now: int) -> Said:
        """What the forest says of a job by what is known now."""
        assert self._trees is not None
        asked = self._asked.get(job.id)
        if asked is not None and now <= job.submit_s:
            return self._of_submission(self._trees, asked)
        return self._of_features(self._trees, self._now(job, now))

    def _of_submission(self, trees: Trees, asked: Asked) -> Said:
        """What it says of a job by what was known at its submission; found once by each forest."""
        if asked.said is None or asked.said.forest != self._forests:
            asked.said = self._of_features(trees, asked.features)
        return asked.said

    def _of_features(self, trees: Trees, features: Features) -> Said:
        median_s, upper_s = quantiles(trees, features, self._levels, -1).tolist()
        return Said(self._forests, median_s, max(1, upper_s))

    def _longer(self, job: Job, elapsed_s: int, levels: FloatArray) -> float:
        """A quantile of the runtimes that are longer; the requested time if none is known."""
        longer_s = -1
        if self._trees is not None:
            features = self._now(job, job.submit_s)
            (longer_s,) = quantiles(self._trees, features, levels, elapsed_s).tolist()
        return longer_s if longer_s > elapsed_s else max(job.requested_s, elapsed_s + 1)

    def _submit(self, job: Job, now: int) -> None:
        """Count the job among the queued ones, and keep its features."""
        keys = _keys(job)
        histories = tuple(self._histories.get(key) or History() for key in keys)
        asked = Asked(_features(job, now, histories), histories)
        for key, history in zip(keys, histories, strict=True):
            history.queued += 1
            history.submit_s = now
            self._histories.set(key, history)
        forgotten = self._asked.set(job.id, asked)
        if forgotten is not None:
            self._close(forgotten)

    @staticmethod
    def _close(asked: Asked) -> None:
        """Count a job no more."""
        for history in asked.histories:
            if asked.start_s is None:
                history.queued -= 1
            else:
                history.running -= 1

    def _now(self, job: Job, now: int) -> Features:
        """The features of a job by what is known now."""
        asked = self._asked.get(job.id)
        if asked is not None and now <= job.submit_s:
            return asked.features
        histories = tuple(self._histories.get(key) or History() for key in _keys(job))
        features = _features(job, now, histories)
        if asked is not None:
            features[_ARRIVALS] = asked.features[_ARRIVALS]
        return features


def _keys(job: Job) -> tuple[Key, ...]:
    """Under what a job is remembered; the first number keeps keys of two kinds apart."""
    user, name, requested_s, processors = (
        job.user,
        job.executable,
        job.requested_s,
        processors_of(job),
    )
    return (
        (0, user),
        (1, user, name),
        (2, user, name, requested_s, processors),
        (3, user, requested_s),
        (4, user, processors),
    )


def _features(job: Job, now: int, histories: tuple[History, ...]) -> Features:
    user, same = histories[0], histories[2]
    features = [
        log(max(1, job.requested_s)),
        log(processors_of(job)),
        job.submit_s // 3600 % 24,
        job.submit_s // DAY_S % 7,
        job.user,
        job.queue,
        job.group,
        _since(user.submit_s, now),
        user.queued,
        same.queued,
        user.before,
        _since(user.end_s, now),
        user.running,
        user.share,
        same.running,
        _since(same.start_s, now) if same.running else _NONE,
    ]
    for history in histories:
        features += history.last, history.mean, log(1 + history.jobs)
    return np.array(features, dtype=np.float32)


_ARRIVALS = slice(7, 10)
"""Of the features, those that speak of submissions and queued jobs."""


def _since(then: int | None, now: int) -> float:
    return _LONG_AGO if then is None else log(max(1, now - then))


def processors_of(job: Job) -> int:
    """Units times the processors of each, 1 at least."""
    return job.units * max(1, job.request[0])
