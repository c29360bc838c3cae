"""Small or large: a random forest over the job, the time, and what its user's last jobs were."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.compile import kernel
from cpdispatch.extra import check, needed
from cpdispatch.jobs import UNKNOWN, Job, Workload
from cpdispatch.predict.actual import Actual
from cpdispatch.predict.recent import Recent
from cpdispatch.predict.trees import children
from cpdispatch.workloads.clock import DAY_S, WEEK_S, wall_s

if TYPE_CHECKING:
    from cpdispatch.predict import Tables

WINDOW = 10_000
"""Jobs that ended last, on which the forest is trained."""
REMEMBERED = 10_000
"""Histories in each category, and jobs that have not ended, that are kept: the latest ones."""

_STEP, _STEPS = 1.01, 3000
"""Runtimes are counted by steps of 1 %: their median is as exact, and takes no memory."""
_LAST = 3
_UNSEEN = -1.0
_CATEGORIES = ("processors", "requested time", "weekday")
FEATURES = (
    *("processors", "requested time", "hour", "weekday"),
    *(
        f"{what} of the user's with the same {category}"
        for category in _CATEGORIES
        for what in ("last class", "last class but one", "last class but two", "share of small")
    ),
)
"""What the forest knows of a job, after table 6.3 of the thesis."""
CALENDAR = ("day of the month", "week of the year", "month", "quarter")
"""What else it knows with the calendar."""
_DAYS_MIN, _DAYS_MAX = (date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days

Features = NDArray[np.float32]
Lesson = tuple[Features, BoolArray]
"""Features and classes of ended jobs, shape (jobs, features) and (jobs,)."""
_PARTS, _TREES, _LEAF = 10, 5, 5
_SEEDS = 2**32
"""How many seeds scikit-learn knows."""


class ClassForest(NamedTuple):
    """The trees of a random forest in one row of nodes."""

    root: IntArray
    """Shape (trees,)."""
    left: IntArray
    right: IntArray
    feature: IntArray
    """Children, -1 for a leaf, and the feature that is looked at, shape (nodes,)."""
    threshold: FloatArray
    small: FloatArray
    """Up to this value of the feature a job goes left, shape (nodes,); share of small jobs."""
    importance: FloatArray
    """Mean decrease of impurity by each feature, 1 in all, shape (features,)."""


@kernel
def share_of_small(forest: ClassForest, job: Features) -> float:
    """Mean over the trees of the share of small jobs in the leaf that a job comes to."""
    total = 0.0
    for tree in range(forest.root.shape[0]):
        node = forest.root[tree]
        while forest.left[node] >= 0:
            low = job[forest.feature[node]] <= forest.threshold[node]
            node = forest.left[node] if low else forest.right[node]
        total += forest.small[node]
    return float(total / forest.root.shape[0])


def train(lesson: Lesson, seed: int) -> ClassForest:
    """A few trees of the forest of jobs whose class is known, of both classes.

    Raises
    ------
    UsageError
        When scikit-learn is not installed.
    """
    classifier: Any = needed("sklearn.ensemble").RandomForestClassifier(
        _TREES, min_samples_leaf=_LEAF, random_state=seed, n_jobs=1
    )
    trees = [made.tree_ for made in classifier.fit(*lesson).estimators_]
    root = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
    feature, threshold, value = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("feature", "threshold", "value")
    )
    return ClassForest(
        root,
        children([tree.children_left for tree in trees], root),
        children([tree.children_right for tree in trees], root),
        feature.astype(np.int64),
        threshold,
        value[:, 0, 1] / value[:, 0].sum(axis=1),
        classifier.feature_importances_,
    )


def grown_together(parts: Sequence[ClassForest]) -> ClassForest:
    """The forest of the trees of all parts, which have equally many."""
    before = np.cumsum([0, *(len(part.left) for part in parts)])[:-1]
    joined = {
        name: np.concatenate([getattr(p, name) for p in parts]) for name in ClassForest._fields
    }
    joined |= {
        "root": np.concatenate([p.root + at for p, at in zip(parts, before, strict=True)]),
        "left": children([part.left for part in parts], before),
        "right": children([part.right for part in parts], before),
        "importance": np.mean([part.importance for part in parts], axis=0),
    }
    return ClassForest(**joined)


@dataclass(slots=True)
class Tally:
    """How jobs were classified that were submitted within a time."""

    divider_s: int = 0
    """The divider for the last of them."""
    small_as_small: int = 0
    large_as_small: int = 0
    small_as_large: int = 0
    large_as_large: int = 0
    """Jobs by what they were and what they were taken for."""

    @property
    def jobs(self) -> int:
        """Jobs that were classified."""
        return self.small_as_small + self.large_as_small + self.small_as_large + self.large_as_large

    @property
    def accuracy(self) -> float:
        """Share of the jobs that were taken for what they were."""
        return _share(self.small_as_small + self.large_as_large, self.jobs)

    @property
    def precision(self) -> float:
        """Share of the small ones among the jobs that were taken for small."""
        return _share(self.small_as_small, self.small_as_small + self.large_as_small)

    @property
    def recall(self) -> float:
        """Share of the small jobs that were taken for small."""
        return _share(self.small_as_small, self.small_as_small + self.small_as_large)

    @property
    def large_taken_for_small(self) -> float:
        """Share of all jobs that were large and taken for small: those that a kill hits."""
        return _share(self.large_as_small, self.jobs)

    def add(self, small: bool, taken_for_small: bool, divider_s: int) -> None:
        """Count one more job."""
        name = f"{'small' if small else 'large'}_as_{'small' if taken_for_small else 'large'}"
        setattr(self, name, getattr(self, name) + 1)
        self.divider_s = divider_s


def total(weeks: Iterable[Tally]) -> Tally:
    """All weeks as one; its divider is that of the last."""
    whole = Tally()
    for week in weeks:
        whole.divider_s = week.divider_s
        whole.small_as_small += week.small_as_small
        whole.large_as_small += week.large_as_small
        whole.small_as_large += week.small_as_large
        whole.large_as_large += week.large_as_large
    return whole


class _History(NamedTuple):
    """The jobs of a user in one category that have ended: 1.0 small, 0.0 large, latest first."""

    last: tuple[float, ...] = ()
    small: int = 0
    ended: int = 0

    def features(self) -> tuple[float, ...]:
        missing = (_UNSEEN,) * (_LAST - len(self.last))
        return *self.last, *missing, self.small / self.ended if self.ended else _UNSEEN

    def and_then(self, small: bool) -> _History:
        last = (float(small), *self.last)[:_LAST]
        return _History(last, self.small + small, self.ended + 1)


class _Asked(NamedTuple):
    """What was known of a job when its duration was asked for first."""

    features: Features
    divider_s: int
    small: bool
    classified: bool


@dataclass(slots=True)
class Classes:
    """Tells small jobs from large ones; the divider is the median runtime of all ended jobs.

    A small job is expected to end at the divider, or a second before its requested time when that
    is earlier; a large one at its requested time. So small is what is expected to end before its
    requested time, and the order ``small`` puts it first. Whatever outlives the divider as it was
    at the submission was misjudged, see `bound`.

    The forest is trained anew in each week of the clock that ended jobs show, on the jobs that
    ended last, with what was known of each at its submission; until then every job is
    large. A few trees grow at each of the next ends, so that no call takes long. Asking
    changes no answer: at a job's submission it notes the features for a later training. Of
    the user's jobs with the same processors, the same requested time, or of the same weekday those
    that have ended count.

    References
    ----------
    Zrigui, de Camargo, Legrand, Trystram, "Improving the performance of batch schedulers using
    online job runtime classification", JPDC 2022; chapter 6 of Zrigui's thesis.
    """

    seed: int = 0
    """Of the forest."""
    votes: float = 0.5
    """Share of the forest's vote above which a job is taken for small.

    Half is right most often; where jobs may be restarted, a large job taken for small costs less
    than a small one taken for large, so that less than half gives the better schedule.
    """
    window: int | None = None
    """Jobs that ended last, on which the forest is trained; `WINDOW` when left out."""
    calendar_s: int | None = None
    """Local time of the log's time 0, in seconds since 1970.

    With it the forest knows `CALENDAR` of each submission, too.
    """
    runtimes_s: Mapping[int, int] | None = field(default=None, repr=False)
    """Runtime in seconds by job id.

    With them each job is taken for what it is, by the divider at its submission: the clairvoyant
    bound of every classifier. Nothing is trained.
    """
    name: str = "class"
    divider_s: int = 0
    """Median runtime of the jobs that have ended, to 1 %; 0 before the first has."""
    weeks: dict[int, Tally] = field(default_factory=dict, repr=False)
    """How the jobs of each week were classified, by week since the epoch of the log; those that
    have ended, from the first training on.
    """
    _forest: ClassForest | None = field(default=None, repr=False)
    _features: Features = field(init=False, repr=False)
    _runtime_s: IntArray = field(init=False, repr=False)
    _count: IntArray = field(default_factory=lambda: np.zeros(_STEPS, dtype=np.int64), repr=False)
    _ended: int = field(default=0, repr=False)
    _histories: tuple[Recent[Hashable, _History], ...] = field(
        default_factory=lambda: tuple(Recent(REMEMBERED) for _ in _CATEGORIES), repr=False
    )
    _asked: Recent[int, _Asked] = field(default_factory=lambda: Recent(REMEMBERED), repr=False)
    _lesson: Lesson | None = field(default=None, repr=False)
    _parts: list[ClassForest] = field(default_factory=list, repr=False)
    _due_s: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        window = WINDOW if self.window is None else self.window
        self._features = np.zeros((window, len(self.features)), dtype=np.float32)
        self._runtime_s = np.zeros(window, dtype=np.int64)

    @classmethod
    def of(
        cls, workload: Workload, seed: int = 0, *, votes: float = 0.5, window: int | None = None,
        calendar: bool = False, clairvoyant: bool = False,
    ) -> Classes:  # fmt: skip
        """The predictor for a workload, with the seed of its forests.

        Parameters
        ----------
        window : int, optional
            No more jobs than the workload has are remembered.
        calendar : bool
            Whether the forest knows `CALENDAR`, by the start and the time zone of the log.
        clairvoyant : bool
            Whether each job is taken for what it is.

        Raises
        ------
        UsageError
            When scikit-learn is needed and not installed.
        """
        runtimes_s = Actual.of(workload).runtime_s if clairvoyant else None
        if not clairvoyant:
            check("sklearn")
        return cls(
            seed, votes, None if window is None else max(min(window, len(workload)), 1),
            int((wall_s(workload) - workload.table.submit_s)[0]) if calendar else None, runtimes_s,
        )  # fmt: skip

    def warm_up(self) -> None:
        """Import what the forest calls."""
        if self.runtimes_s is None:
            needed("sklearn.ensemble")

    @property
    def features(self) -> tuple[str, ...]:
        """What the forest knows of a job."""
        return FEATURES if self.calendar_s is None else (*FEATURES, *CALENDAR)

    @property
    def importance(self) -> dict[str, float]:
        """Importance of each of `features` in the latest forest; empty before the first."""
        if self._forest is None:
            return {}
        return dict(zip(self.features, self._forest.importance.tolist(), strict=True))

    def report(self) -> Tables:
        """How the jobs were classified, all and of each week, and the features by importance."""
        weeks = {f"week {week}": tally for week, tally in sorted(self.weeks.items())}
        tallies = {"all": total(weeks.values()), **weeks} if weeks else {}
        return {
            "classes by week": [
                {
                    "week": name, "divider s": None if name == "all" else tally.divider_s,
                    "jobs": tally.jobs,
                    "accuracy": tally.accuracy, "precision": tally.precision,
                    "recall": tally.recall, "large taken for small": tally.large_taken_for_small,
                }
                for name, tally in tallies.items()
            ],
            "features": [
                {"feature": name, "importance": self.importance[name]}
                for name in sorted(self.importance, key=self.importance.__getitem__, reverse=True)
            ],
        }  # fmt: skip

    def predict(self, job: Job, now: int) -> float:
        """Return the divider for a small job, the requested time for a large one."""
        asked = self._look_at(job)
        if now == job.submit_s and self._asked.get(job.id) is None:
            self._asked.set(job.id, asked)
        return max(min(asked.divider_s, job.requested_s - 1), 1) if asked.small else job.requested_s

    def bound(self, job: Job) -> int | None:
        """The divider as it was at the submission for a job that was taken for small; else None."""
        asked = self._asked.get(job.id) or self._look_at(job)
        return asked.divider_s if asked.small else None

    def learn(self, job: Job, runtime_s: int) -> None:
        """Take note of the job's class; once a week, begin to train the forest."""
        asked = self._asked.pop(job.id) or self._look_at(job)
        if asked.classified:
            tally = self.weeks.setdefault(job.submit_s // WEEK_S, Tally())
            tally.add(runtime_s <= asked.divider_s, asked.small, asked.divider_s)
        at = self._ended % len(self._runtime_s)
        self._features[at], self._runtime_s[at] = asked.features, runtime_s
        self._ended += 1
        self._count[min(int(log(max(runtime_s, 1), _STEP)), _STEPS - 1)] += 1
        median = np.searchsorted(self._count.cumsum(), (self._ended + 1) // 2)
        self.divider_s = int(_STEP ** (int(median) + 1))
        if job.user != UNKNOWN:
            small = runtime_s <= self.divider_s
            for of_key, key in zip(self._histories, _keys(job), strict=True):
                of_key.set(key, (of_key.get(key) or _History()).and_then(small))
        if self.runtimes_s is None:
            self._begin_when_due(job.submit_s + runtime_s)
            self._train_on()

    def _look_at(self, job: Job) -> _Asked:
        """The job's features and class by what is known now."""
        hour = job.submit_s % DAY_S // 3600
        known: list[float] = [_processors(job), job.requested_s, hour, _weekday(job)]
        for of_key, key in zip(self._histories, _keys(job), strict=True):
            history = of_key.get(key) if job.user != UNKNOWN else None
            known += (history or _History()).features()
        if self.calendar_s is not None:
            known += _calendar(self.calendar_s + job.submit_s)
        features = np.array(known, dtype=np.float32)
        if self.runtimes_s is not None:
            small = 0 < self.divider_s >= self.runtimes_s[job.id]
            return _Asked(features, self.divider_s, small, self.divider_s > 0)
        forest = self._forest
        small = forest is not None and share_of_small(forest, features) > self.votes
        return _Asked(features, self.divider_s, small, forest is not None)

    def _begin_when_due(self, clock_s: int) -> None:
        """Begin a forest when a week has passed, by a clock that may only be late."""
        if self._due_s is None:
            self._due_s = clock_s + WEEK_S
        if clock_s < self._due_s:
            return
        self._due_s += (clock_s - self._due_s) // WEEK_S * WEEK_S + WEEK_S
        count = min(self._ended, len(self._runtime_s))
        small = self._runtime_s[:count] <= self.divider_s
        if small.any() and not small.all():
            self._lesson, self._parts = (self._features[:count].copy(), small), []

    def _train_on(self) -> None:
        """Grow a part of a forest that was begun; take a complete one into use."""
        if self._lesson is None:
            return
        seed = (self.seed * _PARTS + len(self._parts)) % _SEEDS
        self._parts.append(train(self._lesson, seed))
        if len(self._parts) == _PARTS:
            self._forest, self._lesson, self._parts = grown_together(self._parts), None, []


def _processors(job: Job) -> int:
    return max(job.units * job.request[0], 1)


def _weekday(job: Job) -> int:
    return job.submit_s // DAY_S % 7


def _calendar(local_s: int) -> tuple[int, ...]:
    """`CALENDAR` of a local time in seconds since 1970."""
    days = min(max(local_s // DAY_S, _DAYS_MIN), _DAYS_MAX)
    day = date(1970, 1, 1) + timedelta(days=days)
    return day.day, day.isocalendar().week, day.month, (day.month + 2) // 3


def _keys(job: Job) -> tuple[Hashable, ...]:
    """What the user's jobs have in common with this one, in the order of the categories."""
    user = job.user
    return (user, _processors(job)), (user, job.requested_s), (user, _weekday(job))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
