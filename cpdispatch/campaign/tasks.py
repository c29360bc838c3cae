"""What a campaign is made of: tasks, what they share, and what becomes of them."""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpdispatch.errors import CpdispatchError, InterruptedRunError
from cpdispatch.words import listed

Progress = Callable[[float, int], None]
Stop = Callable[[], bool]

DEATHS_MAX = 3
"""So often a task may lose its worker before it is given up."""

_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Shared:
    """In a task's arguments: the object that all workers have under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Task:
    """One call of the campaign's function.

    Attributes
    ----------
    key : str
        What the task is called in results, files and errors; no two tasks have the same.
    arguments : tuple
        Small and picklable; a `Shared` stands for a large object that every worker has.
    """

    key: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """A task's result, pickled where it was made."""

    packed: bytes

    @property
    def value(self) -> Any:
        """The result."""
        return pickle.loads(self.packed)


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no result, in a clause, and where the error was raised."""

    problem: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task was asked to stop, and did."""


Outcome = Done | Failed | Stopped
Outcomes = Iterator[tuple[Task, Outcome]]


class CampaignError(CpdispatchError):
    """Tasks of a campaign failed; the others are done. Each reason is told once.

    Attributes
    ----------
    failed : dict of str to Failed
        By the key of the task.
    """

    def __init__(self, failed: dict[str, Failed], tasks: int, left: int = 0) -> None:
        alike: dict[str, list[str]] = {}
        for key, why in failed.items():
            alike.setdefault(why.problem, []).append(key)
        reasons = list(alike.items())
        named = [f"{listed(keys, _NAMED_MAX)}: {problem}" for problem, keys in reasons[:_NAMED_MAX]]
        more = sum(len(keys) for _, keys in reasons[_NAMED_MAX:])
        if more:
            named.append(f"and {more} more")
        if left:
            named.append(f"so many failed that {left} were not begun")
        super().__init__(f"{len(failed)} of {tasks} tasks failed: {'; '.join(named)}")
        self.failed = failed
        for key, why in failed.items():
            if why.details:
                self.add_note(f"{key}:\n{why.details}")
                break

    @property
    def problems(self) -> dict[str, str]:
        """Why each of them failed, in a clause, by its key."""
        return {key: why.problem for key, why in self.failed.items()}

    def __reduce__(self) -> tuple[object, ...]:
        return Exception.__new__, (CampaignError, *self.args), self.__dict__


# ------------------------------------------------------------------- what a task may ask and say


def _never() -> bool:
    return False


def _nobody(share: float) -> None:
    """Nobody wants to know how far a task is."""


@dataclass(frozen=True, slots=True)
class Line:
    """A task's line to its campaign."""

    stop: Stop = _never
    report: Callable[[float], None] = _nobody
    threads: int = 1


_line = Line()
_one_at_a_time = threading.RLock()


def asked_to_stop() -> bool:
    """Whether the campaign wants the task that calls this to save what it has and to stop.

    It stops by raising `InterruptedRunError`. False outside a campaign.
    """
    return _line.stop()


def report(share: float) -> None:
    """Say how much of the task that calls this is done, 0 to 1."""
    _line.report(share)


def threads() -> int:
    """How many threads the task that calls this may use: other tasks leave that many cores free.

    1 outside a campaign, and on a cluster.
    """
    return _line.threads


def attempt(function: Callable[..., Any], arguments: Sequence[Any], line: Line) -> Outcome:
    """Call a function in a worker; whatever happens, something picklable comes back."""
    try:
        with connected(line):
            return packed(function(*arguments))
    except InterruptedRunError:
        return Stopped()
    except (Exception, SystemExit) as error:
        return failure(error)


@contextmanager
def connected(line: Line) -> Iterator[None]:
    """Give a line to the task that runs in this block.

    One task a process at a time: simulations keep the interpreter busy, and a solver process
    serves one caller.
    """
    global _line
    with _one_at_a_time:
        before, _line = _line, line
        try:
            yield
        finally:
            _line = before


def packed(value: Any) -> Outcome:
    """A result, ready to be sent and stored."""
    try:
        return Done(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return Failed(f"its result cannot be pickled: {error}")


def failure(error: BaseException) -> Failed:
    """What is to be said of an exception."""
    details = "".join(traceback.format_exception(error))
    if isinstance(error, CpdispatchError):
        return Failed(str(error), details)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return Failed(f"{type(error).__name__}: {error}{where}", details)


def lost(deaths: int, advice: str) -> Failed:
    """What is to be said of a task that no worker survives."""
    return Failed(f"its worker was killed {deaths} times: it may have run out of memory; {advice}")
