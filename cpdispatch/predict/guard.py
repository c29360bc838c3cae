"""A guard around a predictor: whatever it does, the simulation goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from cpdispatch import own
from cpdispatch.jobs import Job
from cpdispatch.predict import (
    Cautious,
    Foreseeing,
    Leaving,
    Predictor,
    Refreshing,
    Reporting,
    Restarting,
    Tables,
    Watching,
)
from cpdispatch.system import LIMIT

SLOW_S = 1.0
"""A call that takes longer than this, in seconds of wall time, is a fault."""
MOST_SLOW_CALLS = 10
"""After so many slow calls a predictor of a live cluster is called no more."""


class Guard:
    """Calls a predictor and answers with whole seconds, from 1 to the requested time.

    The requested time takes the place of an answer when the predictor raises or answers with
    something that is no finite number of at least 0. A call that takes longer than `SLOW_S` cannot
    be cut short: it is counted. Calls of ``learn`` may take that long on average: one that trains
    now and then is no fault.

    Parameters
    ----------
    live : bool
        Whether a cluster waits for the answers. After `MOST_SLOW_CALLS` slow calls the predictor is
        called no more then, and the requested time is the answer. Elsewhere the clock decides
        nothing: a busy machine would change the schedule.

    Attributes
    ----------
    faults : Counter of str
        What the predictor did wrong: kind -> number of calls.
    seconds : float
        Wall time of all calls so far.
    """

    def __init__(self, predictor: Predictor, *, live: bool = False) -> None:
        self.predictor = predictor
        self._live = live
        self.faults: Counter[str] = Counter()
        self.seconds = 0.0
        self._said: dict[str, str] = {}
        self._slow_calls = 0
        self._learned = 0
        self._learning_s = 0.0
        self._watching = isinstance(predictor, Watching)
        self._cautious = isinstance(predictor, Cautious)
        self._refreshing = isinstance(predictor, Refreshing)
        self._foreseeing = isinstance(predictor, Foreseeing)
        self._restarting = isinstance(predictor, Restarting)
        self._leaving = isinstance(predictor, Leaving)

    def predict(self, job: Job, now: int) -> int:
        """Expected duration in seconds of a job that is submitted ``now``."""
        return self._seconds("predict", job, now)

    def upper(self, job: Job, now: int) -> int:
        """What a job will probably not run longer than, s: the requested time if nobody knows."""
        return self._seconds("upper", job, now) if self._cautious else job.requested_s

    def bound(self, job: Job) -> int | None:
        """Seconds that a job runs at most if it was judged rightly; None: any."""
        answer = self._call("bound", job)
        if answer is None:
            return None
        if isinstance(answer, bool) or not isinstance(answer, int | np.integer):
            self._fault("bound answered with no whole number")
        elif answer < 0:
            self._fault("bound answered with a negative number")
        else:
            return max(1, min(int(answer), LIMIT))
        return None

    def refresh(self, job: Job, elapsed_s: int) -> int:
        """Expected total duration in seconds of a job that has run ``elapsed_s``."""
        return self._seconds("refresh", job, elapsed_s)

    def outlived(self, job: Job, elapsed_s: int, expected_s: int, upper_s: int) -> tuple[int, int]:
        """Expected and upper duration, s, of a job that has run ``elapsed_s`` and is stopped.

        A predictor that can be asked about running jobs says it. What was said at its submission
        holds of any other where it is longer; else the requested time is.
        """
        if self._refreshing:
            expected_s = self.refresh(job, elapsed_s)
        if self._foreseeing:
            upper_s = self._seconds("refresh_upper", job, elapsed_s)
        if expected_s <= elapsed_s:
            expected_s = job.requested_s
        return expected_s, max(expected_s, upper_s if upper_s > elapsed_s else job.requested_s)

    def restart(self, job: Job, now: int) -> None:
        """Tell a predictor that wants to know it that a job is killed and queued again ``now``."""
        if self._restarting:
            self._call("restart", job, now)

    def leave(self, job: Job) -> None:
        """Tell a predictor that wants to know it that a job has left; nobody knows its runtime."""
        if self._leaving:
            self._call("leave", job)

    def start(self, job: Job, now: int) -> None:
        """Tell a predictor that watches that a job starts ``now``."""
        if self._watching:
            self._call("start", job, now)

    def learn(self, job: Job, runtime_s: int) -> None:
        """Tell the predictor the runtime of a job that has just ended."""
        self._call("learn", job, runtime_s)

    def report(self) -> Tables:
        """The tables of a predictor that has some."""
        if not isinstance(self.predictor, Reporting):
            return {}
        try:
            answer = msgspec.to_builtins(self._call("report", default={}), enc_hook=_plain)
            return msgspec.convert(answer, Tables)
        except (msgspec.ValidationError, TypeError) as error:
            self._fault(f"report answered with no tables: {error}")
            return {}

    def summary(self) -> dict[str, object]:
        """The wall time of all calls so far, seconds, and the predictor's own tables if any."""
        report = self.report()
        return {
            **({"predictor_report": report} if report else {}),
            "predictor_seconds": self.seconds,
        }

    def _seconds(self, what: str, job: Job, value: int) -> int:
        answer = self._call(what, job, value, default=job.requested_s)
        if isinstance(answer, bool) or not isinstance(
            answer, int | float | np.integer | np.floating
        ):
            self._fault(f"{what} answered with no number")
        elif not 0 <= answer < inf:
            self._fault(f"{what} answered with a negative number, NaN or infinity")
        else:
            return max(1, int(min(answer, job.requested_s)))
        return job.requested_s

    def _call(self, what: str, *arguments: object, default: object = None) -> object:
        if self._live and self._slow_calls >= MOST_SLOW_CALLS:
            return default
        method: Callable[..., object] = getattr(self.predictor, what)
        began = perf_counter()
        try:
            return method(*arguments)
        except own.FAILS as error:
            kind = f"{what} raised {type(error).__name__}"
            self._fault(self._said.setdefault(kind, own.raised(what, error)))
            return default
        finally:
            took_s = perf_counter() - began
            self.seconds += took_s
            if self._is_slow(what, took_s):
                self._slow_calls += 1
                self._fault(f"{what} took longer than {SLOW_S:g} s")

    def _is_slow(self, what: str, took_s: float) -> bool:
        if what != "learn":
            return took_s > SLOW_S
        self._learned += 1
        self._learning_s += took_s
        return took_s > SLOW_S and self._learning_s > SLOW_S * self._learned

    def _fault(self, kind: str) -> None:
        self.faults[f"predictor {self.predictor.name}, {kind}"] += 1


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python; nothing else is made another."""
    if isinstance(value, np.integer | np.floating):
        return value.item()
    raise TypeError(f"a value is of the type {type(value).__name__}")
