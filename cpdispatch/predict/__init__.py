"""Predictors of job durations: one protocol, one registry of names.

A predictor is asked at a job's submission and taught at its completion, so it never sees a runtime
before the job has ended, unless it is `Clairvoyant`. One that is `Watching` hears of starts as
well; one that is `Refreshing` or `Foreseeing` is asked again about jobs that outlive what it said,
or a test run. The simulator caps what it says at the requested time, and goes on with the requested
time when it fails (`cpdispatch.predict.guard`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from cpdispatch import own
from cpdispatch.arrays import IntArray, sealed
from cpdispatch.compiled.memory import BEFOREHAND, Memory
from cpdispatch.errors import UsageError, unknown
from cpdispatch.jobs import Job, Workload
from cpdispatch.parameters import count_of, pairs, switch, values
from cpdispatch.predict.actual import Actual
from cpdispatch.predict.classes import Classes
from cpdispatch.predict.confident import Confident
from cpdispatch.predict.eloss import ELoss
from cpdispatch.predict.forest import Forest
from cpdispatch.predict.last import Last2
from cpdispatch.predict.mixture import Mixture
from cpdispatch.predict.profile import SameProfile
from cpdispatch.predict.walltime import Walltime

Tables: TypeAlias = dict[str, list[dict[str, float | int | str | None]]]
"""Tables by title, each a list of rows, each a dict of values by heading."""


class Predictor(Protocol):
    """What the simulator needs of a predictor."""

    @property
    def name(self) -> str:
        """Name in tables."""

    def predict(self, job: Job, now: int) -> float:
        """Expected duration in seconds of a job that is submitted ``now``."""

    def learn(self, job: Job, runtime_s: int) -> None:
        """Take note of the runtime of a job that has just ended."""


@runtime_checkable
class Watching(Predictor, Protocol):
    """A predictor that is told when jobs start."""

    def start(self, job: Job, now: int) -> None:
        """Take note of a job that starts ``now``, a time in seconds."""


@runtime_checkable
class Restarting(Predictor, Protocol):
    """A predictor that is told when a running job is killed and queued again."""

    def restart(self, job: Job, now: int) -> None:
        """Take note of a job that is killed and queued again ``now``, a time in seconds."""


@runtime_checkable
class Leaving(Predictor, Protocol):
    """A predictor that is told of jobs that leave before anybody knows how long they last."""

    def leave(self, job: Job) -> None:
        """Take note of a job that was cancelled or refused, or stopped and not queued again."""


@runtime_checkable
class Refreshing(Predictor, Protocol):
    """A predictor that is asked again about jobs that run, see the correction ``refresh``."""

    def refresh(self, job: Job, elapsed_s: int) -> float:
        """Expected total duration in seconds of a job that has run ``elapsed_s`` so far."""


@runtime_checkable
class Cautious(Predictor, Protocol):
    """A predictor that knows how uncertain it is."""

    def upper(self, job: Job, now: int) -> float:
        """What a job that is submitted ``now`` will probably not run longer than, in seconds."""


@runtime_checkable
class Foreseeing(Predictor, Protocol):
    """A predictor that knows how uncertain it is about jobs that run."""

    def refresh_upper(self, job: Job, elapsed_s: int) -> float:
        """What a job that has run ``elapsed_s`` will probably not run longer than, in seconds."""


@runtime_checkable
class Clairvoyant(Predictor, Protocol):
    """A predictor that knows runtimes before jobs end, to compare real predictors with.

    In what dispatchers see, jobs request what they run: whatever a dispatcher plans by, expected,
    upper or requested times, it plans by the runtime.
    """

    def known(self, workload: Workload) -> IntArray:
        """Runtime of each job of a workload in seconds, shape (jobs,)."""


@runtime_checkable
class Naming(Predictor, Protocol):
    """A predictor that is told of the names of executables where these become known on line."""

    def names(self, executables: tuple[str, ...]) -> None:
        """Take note of the names of all executables so far, by their numbers.

        A later call has the same ones first.
        """


@runtime_checkable
class Reporting(Predictor, Protocol):
    """A predictor that has more to tell of a replay than how far its predictions were out."""

    def report(self) -> Tables:
        """Its tables, after a replay, see ``cpdispatch predict``."""


@runtime_checkable
class Remembering(Predictor, Protocol):
    """A predictor that compiled replays can do the work of."""

    def memory(self, workload: Workload) -> Memory:
        """The same predictor, as it is before it has learned anything, for a workload."""


@runtime_checkable
class Bounding(Predictor, Protocol):
    """A predictor that can bound a job: one that outlives its bound is killed and queued again."""

    def bound(self, job: Job) -> int | None:
        """Seconds that a job just submitted runs at most if it was judged rightly; None: any.

        Where jobs may be restarted, one that outlives its bound is killed, once, and queued again
        with its requested time as its expected duration.
        """


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the registry: what a predictor does, and how one is made.

    Attributes
    ----------
    summary : str
    make : callable
        From a workload, the seed of what the predictor draws at random, and parameters by name.
    parameters : mapping of str to callable
        Name -> what turns a user's value into the one meant; raises ValueError.
    """

    summary: str
    make: Callable[..., Predictor]
    parameters: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


def _votes(value: Any) -> float:
    try:
        votes = float(value)
    except ValueError:
        votes = -1.0
    if not 0 <= votes < 1:
        raise ValueError("a share of the votes, 0 or more and below 1, is needed")
    return votes


def _window(value: Any) -> int:
    if value == "all":
        return sys.maxsize
    found = count_of(str(value))
    if not found:
        raise ValueError("a number of jobs, 1 or more, or all, is needed")
    return found


PREDICTORS: Mapping[str, Entry] = {
    "walltime": Entry("the requested time", lambda workload, seed: Walltime()),
    "last2": Entry("the mean of the user's last two runtimes", lambda workload, seed: Last2()),
    "profile": Entry(
        "the runtime of the user's last job with the same properties (D1)",
        lambda workload, seed: SameProfile.of(workload),
    ),
    "class": Entry(
        "small or large by a random forest: the median runtime or the requested time",
        Classes.of,
        {"votes": _votes, "window": _window, "calendar": switch, "clairvoyant": switch},
    ),
    "confident": Entry(
        "profile; the requested time for users who use theirs up (D2)",
        lambda workload, seed: Confident.of(workload),
    ),
    "eloss": Entry(
        "on-line polynomial regression with asymmetric loss", lambda workload, seed: ELoss()
    ),
    "forest": Entry(
        "medians of a quantile regression forest that is trained every week",
        lambda workload, seed: Forest(seed=seed),
    ),
    "mixture": Entry(
        "forest, requested time and the user's past, weighted by their errors so far",
        lambda workload, seed: Mixture(Forest(seed=seed)),
    ),
    "actual": Entry(
        "the real runtime, which no site has",
        lambda workload, seed: Actual.of(workload),
    ),
}
"""Every predictor by name."""


def make(name: str, workload: Workload, seed: int = 0) -> Predictor:
    """The predictor of this name, for a simulation of this workload.

    Parameters
    ----------
    name : str
        A key of `PREDICTORS`, with parameters if it has some, as ``class:votes=0.1``; or
        ``module:attribute`` for a predictor of the user's own: a class or a function that makes
        one, or an object, of which a copy is taken; see `cpdispatch.own.made`.
    workload : Workload
    seed : int
        Of what ``forest``, ``mixture`` and ``class`` draw at random. The other predictors of the
        package draw nothing. A class or function of the user's own is given it if it has a
        parameter ``seed``.

    Raises
    ------
    UsageError
        When there is none of that name, or a parameter or its value is of no use; the message
        suggests the nearest.
    """
    module, colon, attribute = name.partition(":")
    if is_ours(name):
        entry = PREDICTORS[module]
        what = f"predictor {module}"
        options = values(what, pairs(f"predictor {name}", attribute), entry.parameters)
        chosen: Any = entry.make(workload, seed, **options)
        if options:
            chosen.name = name
        made: Predictor = chosen
        return made
    if colon and own.is_name(attribute):
        what = f"predictor {name}"
        found = own.made(name, "predict", what, seed, name)
        if not callable(getattr(found, "learn", None)):
            raise UsageError(f"{what}: it has no method learn")
        predictor: Predictor = found
        return predictor
    raise unknown("predictor", module, PREDICTORS)


def is_ours(name: str) -> bool:
    """Whether a name is that of a predictor of the package.

    A module of the user's may be called as one of them is.
    """
    module, colon, attribute = name.partition(":")
    entry = PREDICTORS.get(module)
    return entry is not None and (not colon or bool(entry.parameters) or not own.is_name(attribute))


def made(given: str | Predictor, workload: Workload, seed: int = 0) -> Predictor:
    """The predictor that is given, or that of a name, see `make`.

    Raises
    ------
    UsageError
        When it is none.
    """
    if isinstance(given, str):
        return make(given, workload, seed)
    checked: Predictor = own.checked(given, "predictor", "predict", "learn")
    return checked


def warm_up(predictor: Predictor) -> None:
    """Import and compile what a predictor of the package calls, before any clock runs."""
    inner = predictor.predictor if isinstance(predictor, Mixture) else predictor
    if isinstance(inner, Forest | Classes):
        inner.warm_up()


def known_s(predictor: Predictor, workload: Workload) -> IntArray | None:
    """What a clairvoyant predictor knows the jobs to last, seconds, shape (jobs,).

    It is 1 s or more, and the requested time at most. None if the predictor is not `Clairvoyant`.
    """
    if not isinstance(predictor, Clairvoyant):
        return None
    known = np.minimum(predictor.known(workload), workload.table.requested_s)
    return sealed(np.maximum(known, 1))


def given_s(predictor: Predictor, workload: Workload) -> IntArray | None:
    """What a predictor says of each job whatever happens, seconds, shape (jobs,).

    None if it has to be asked: it learns, watches, or knows more than an expected duration.
    """
    if isinstance(predictor, Watching | Refreshing | Cautious | Clairvoyant | Reporting):
        return None
    memory = memory_of(predictor, workload)
    return None if memory is None or memory.kind != BEFOREHAND else memory.seconds


def memory_of(predictor: Predictor, workload: Workload) -> Memory | None:
    """What compiled code needs to do the work of a predictor that has learned nothing.

    None if it has to be asked, as any that is not the package's: one that is derived from those of
    the package may say something else.
    """
    ours = type(predictor).__module__.startswith(f"{__name__}.")
    return predictor.memory(workload) if ours and isinstance(predictor, Remembering) else None


def bounding(predictor: Predictor) -> Bounding:
    """The predictor, if it can bound jobs.

    Raises
    ------
    UsageError
        When it does not.
    """
    if not isinstance(predictor, Bounding):
        raise UsageError(
            f"predictor {predictor.name} bounds no job, so that none would be restarted: use "
            "another, such as class, or leave idempotent out"
        )
    return predictor


def refreshing(predictor: Predictor) -> Refreshing:
    """The predictor, if it can be asked about running jobs, as the correction ``refresh`` does.

    Raises
    ------
    UsageError
        When it cannot.
    """
    if not isinstance(predictor, Refreshing):
        raise UsageError(
            f"predictor {predictor.name} cannot be asked about running jobs, as the correction "
            "refresh does: choose another predictor or another correction"
        )
    return predictor
