"""The status file of a running simulation: small, and replaced about once a second."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from cpdispatch.analyze.moment import Use, use_of
from cpdispatch.arrays import IntArray
from cpdispatch.errors import CpdispatchError, InputError
from cpdispatch.files import parse_json, read_text, write_bytes
from cpdispatch.system import System

STATUS = "status.json"
EVERY_S = 1.0
"""Least number of seconds between two versions of the file."""
LAST = 5
"""How many of the last dispatches the file shows."""


class Dispatched(NamedTuple):
    """A dispatch: when, jobs in the queue before it, jobs that it started, and how long it took.

    ``ms`` is None where single dispatches are not timed.
    """

    time_s: int
    queue: int
    started: int
    ms: float | None


class Now(NamedTuple):
    """A simulation between two events.

    Attributes
    ----------
    time_s : int
        On the clock of the log.
    queue, running, dispatches : int
    held : int64 array, shape (nodes, resources)
    last : tuple of Dispatched
    """

    time_s: int
    queue: int
    running: int
    dispatches: int
    held: IntArray
    last: tuple[Dispatched, ...]


@dataclass(frozen=True, slots=True)
class Live:
    """The content of the file.

    Attributes
    ----------
    workload, system, dispatcher : str
    seed, jobs : int
    share : float
        Of the jobs that have been submitted, 0 to 1.
    seconds : float
        Wall time of the replay so far.
    time_s, queue, running, dispatches, last
        See `Now`.
    use : tuple of Use
    over : bool
    written_at : float
        Seconds since 1970.
    pid, host : int, str
        Of the process.
    """

    workload: str
    system: str
    dispatcher: str
    seed: int
    jobs: int
    share: float
    seconds: float
    time_s: int
    queue: int
    running: int
    dispatches: int
    use: tuple[Use, ...]
    last: tuple[Dispatched, ...]
    over: bool
    written_at: float
    pid: int
    host: str

    @property
    def left_s(self) -> float | None:
        """Remaining wall time, if jobs go on being submitted as fast as so far; None at first."""
        return self.seconds * (1 - self.share) / self.share if self.share > 0.001 else None


class Telling:
    """Writes the file while a replay goes on.

    Parameters
    ----------
    path : Path or None
        Nothing is written without it.
    names : dict
        Of the run: ``workload``, ``dispatcher``, ``seed``.
    """

    def __init__(
        self, path: Path | None, names: dict[str, object], system: System, jobs: int
    ) -> None:
        self._path = path
        self._names = {key: names[key] for key in ("workload", "dispatcher", "seed")}
        self._system, self._jobs = system, jobs
        self._due = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self._path is not None and time.monotonic() >= self._due

    def tell(self, now: Now, share: float, seconds: float, over: bool = False) -> None:
        """Replace the file."""
        if self._path is None:
            return
        self._due = time.monotonic() + EVERY_S
        found = {
            **self._names, "system": self._system.name, "jobs": self._jobs, "share": share,
            "seconds": seconds, "time_s": now.time_s, "queue": now.queue, "running": now.running,
            "dispatches": now.dispatches, "use": use_of(self._system, now.held), "last": now.last,
            "over": over, "written_at": time.time(), "pid": os.getpid(),
            "host": socket.gethostname(),
        }  # fmt: skip
        with suppress(CpdispatchError, OSError):  # a run does not end because it cannot be watched
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self._path, msgspec.json.encode(found))


def read(path: Path) -> Live | None:
    """The content of a file; None if the file has been removed.

    Raises
    ------
    InputError
        When it is none that a simulation writes.
    """
    try:
        content = read_text(path)
    except InputError:
        if not path.exists():
            return None
        raise
    return parse_json(content, Live, "the status of a simulation", path)
