"""A campaign on a Dask cluster, whose workers come and go."""

from __future__ import annotations

import importlib
import logging
import math
import sys
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec

from cpdispatch import __version__
from cpdispatch.campaign import tasks as line_of
from cpdispatch.campaign.tasks import (
    DEATHS_MAX,
    Failed,
    Line,
    Outcome,
    Outcomes,
    Progress,
    Shared,
    Stop,
    Task,
)
from cpdispatch.errors import CpdispatchError, UsageError
from cpdispatch.files import parse_json, read_text

ANSWER_S = 10.0
"""Seconds in which a cluster must answer."""

SCHEMES = ("tcp", "tls", "ucx", "ws", "wss", "inproc")
"""What Dask's addresses begin with, if they say it."""

TICK_S = 0.1
"""Seconds between two looks at what has changed."""

REPORT_S = 1.0
"""Seconds between two messages of a worker about how far its task is."""

_ADVICE = "give the cluster's workers more memory, or fewer processes a node"


class _SchedulerFile(msgspec.Struct):
    """What is needed of the file that a scheduler writes."""

    address: str


def on_cluster(
    tasks: Sequence[Task],
    function: Callable[..., Any],
    shared: Mapping[str, Any],
    address: str,
    stop: Stop,
    progress: Progress,
) -> Outcomes:
    """Do the tasks on a cluster; those of workers that die are done by others."""
    with _connected(address) as client:
        campaign = _Campaign(client, address, tasks, function, shared)
        try:
            yield from campaign.work(stop, progress)
        finally:
            campaign.leave()


def require() -> Any:
    """The module ``distributed``.

    Raises
    ------
    UsageError
        When it is not installed.
    """
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "a cluster needs Dask, which is not installed: pip install 'cpdispatch[cluster]'"
        ) from error


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of the cluster at an address, or in the file that its scheduler wrote."""
    with _quiet():
        client = _client(address)
    try:
        yield client
    finally:
        # The scheduler may be gone for good.
        with _quiet():
            client.close(timeout=ANSWER_S)


def _client(address: str) -> Any:
    distributed = require()
    path = Path(address)
    if not path.is_file() and ":" not in address:
        raise UsageError(
            f"--cluster {address}: there is no such file, and it is no address such as "
            "tcp://host:8786"
        )
    where, said = {"address": address}, address
    if path.is_file():
        what = "a file that dask scheduler --scheduler-file wrote"
        told = parse_json(read_text(path), _SchedulerFile, what, path)
        where, said = {"scheduler_file": address}, told.address
    _check_scheme(address, said)
    answer: list[Any] = []

    def call() -> None:
        try:
            answer.append(distributed.Client(**where, timeout=ANSWER_S, set_as_default=False))
        except Exception as error:
            answer.append(error)

    # Something that takes the call and says nothing is waited for by Dask without a limit.
    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(ANSWER_S)
    if answer and not isinstance(answer[0], Exception):
        return answer[0]
    raise UsageError(
        f"no cluster answers at {address} within {ANSWER_S:.0f} s: check that its scheduler runs, "
        "that this is the address that it printed (as tcp://host:8786) or the file that it wrote, "
        "and that no firewall is between"
    ) from (answer[0] if answer else None)


def _check_scheme(given: str, address: str) -> None:
    """Raise when Dask has no such scheme."""
    scheme, between, _ = address.partition("://")
    if between and scheme not in SCHEMES:
        raise UsageError(
            f"--cluster {given}: the scheme {scheme} is none of {', '.join(SCHEMES)}: give the "
            "address that the scheduler printed, such as tcp://host:8786"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from saying what is said here in one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


class _Campaign:
    """The tasks that a cluster has to do."""

    def __init__(
        self,
        client: Any,
        address: str,
        tasks: Sequence[Task],
        function: Callable[..., Any],
        shared: Mapping[str, Any],
    ) -> None:
        self._client = client
        self._address = address
        self._tasks = tasks
        self._function = function
        self._shared = shared
        self._sent: dict[str, Any] = {}
        self._running: dict[Any, int] = {}
        self._finished = 0
        self._shares: dict[int, float] = {}
        """How much is done of the tasks that have said so, by position."""
        self._suspects: list[int] = []
        self._alone: set[int] = set()
        self._lost: Counter[int] = Counter()
        self._told, self._looked = False, monotonic()
        # Dask takes what is before the first digit for the kind of task.
        self._name = f"cpdispatch-{uuid.uuid4().int}"

    def work(self, stop: Stop, progress: Progress) -> Outcomes:
        """Do all the tasks, or what is done when it is time to stop."""
        if not self._ready(stop):
            return
        self._share()
        self._client.subscribe_topic(self._name, self._told_by)
        for position in range(len(self._tasks)):
            self._submit(position)
        while self._running or self._suspects:
            if not self._running:
                # One of them killed its worker, the others may have been beside it.
                self._submit(self._suspects.pop())
            yield from self._harvest(progress)
            under_way = sum(self._shares.get(position, 0.0) for position in self._running.values())
            progress(self._finished + under_way, len(self._tasks))
            if stop():
                return
            self._mind_workers()
            sleep(TICK_S)

    def _told_by(self, event: tuple[float, tuple[int, float]]) -> None:
        """Note how far a worker says that its task is."""
        _, (position, share) = event
        self._shares[position] = share

    def _harvest(self, progress: Progress) -> Outcomes:
        """The tasks that are over now."""
        for future in [future for future in self._running if future.status != "pending"]:
            position, outcome = self._take(future)
            if outcome is not None:
                self._finished += 1
                progress(float(self._finished), len(self._tasks))
                yield self._tasks[position], outcome

    def leave(self) -> None:
        """Have no task begun any more; those under way are told to stop."""
        if self._running and self._client.status == "running":
            self._client.cancel(list(self._running), force=True)
        self._running.clear()

    def _ready(self, stop: Stop) -> bool:
        """Wait for a first worker, which must have this version; False when told to stop."""
        # A worker that cannot read a call goes away and says nothing: this one any Python can read.
        first = self._client.submit(importlib.import_module, __name__, pure=False)
        while first.status == "pending":
            if stop():
                first.cancel()
                return False
            self._mind_workers()
            sleep(TICK_S)
        if first.status == "error":
            raise self._unfit(first.exception())
        return True

    def _unfit(self, error: BaseException) -> CpdispatchError:
        """Why a worker could not even begin."""
        if isinstance(error, ImportError):
            return UsageError(
                f"a worker of the cluster at {self._address} cannot import what it needs "
                f"({error}): install cpdispatch {__version__} in the environment of its workers"
            )
        return CpdispatchError(f"the cluster at {self._address} fails: {error}")

    def _mind_workers(self) -> None:
        """Say once that there are no workers, when there have been none for some time."""
        if self._told or monotonic() - self._looked < ANSWER_S:
            return
        self._looked = monotonic()
        if self._client.status == "running" and not self._client.scheduler_info()["workers"]:
            self._told = True
            print(
                f"cpdispatch: the cluster at {self._address} has no workers now; waiting for some",
                file=sys.stderr,
                flush=True,
            )

    def _share(self) -> None:
        """Give all workers the shared objects."""
        try:
            self._sent = {
                name: self._client.scatter([value], broadcast=True, hash=False)[0]
                for name, value in self._shared.items()
            }
        except (OSError, TimeoutError) as error:
            raise self._gone() from error

    def _submit(self, position: int) -> None:
        task = self._tasks[position]
        arguments = [
            self._sent[item.name] if isinstance(item, Shared) else item for item in task.arguments
        ]
        attempt = self._lost[position] + (position in self._alone)
        future = self._client.submit(
            _work, __version__, (self._name, position), self._function, *arguments,
            key=f"{self._name}-{position}-{attempt}", pure=False,
        )  # fmt: skip
        self._running[future] = position

    def _take(self, future: Any) -> tuple[int, Outcome | None]:
        """What came of a task; None when it is to be done again."""
        position = self._running.pop(future)
        if future.status == "finished":
            try:
                outcome: Outcome | str = future.result(timeout=ANSWER_S)
            except TimeoutError:  # its worker died before it was fetched: it is made again
                self._running[future] = position
                return position, None
            if isinstance(outcome, str):
                raise UsageError(outcome)
            return position, outcome
        if future.status == "error":
            error = future.exception()
            if isinstance(error, ImportError):
                raise self._unfit(error)
            if type(error).__name__ != "KilledWorker":
                return position, line_of.failure(error)
            if position in self._alone:
                return position, line_of.lost(error.allowed_failures + 1, _ADVICE)
            self._alone.add(position)
            self._suspects.append(position)
            return position, None
        return position, self._again(position)

    def _again(self, position: int) -> Failed | None:
        """Have a task done again of which the cluster knows no more: its data went with workers."""
        self._lost[position] += 1
        if self._client.status != "running":
            raise self._gone()
        if self._lost[position] >= DEATHS_MAX:
            return Failed("the cluster lost it, with all workers, again and again")
        if any(sent.status != "finished" for sent in self._sent.values()):
            self._share()
        self._submit(position)
        return None

    def _gone(self) -> CpdispatchError:
        return CpdispatchError(
            f"the cluster at {self._address} does not answer any more; with --out, what was done "
            "is saved, and the same command (simulate with --resume) goes on with another scheduler"
        )


def _other_version(worker: str, version: str) -> str:
    return (
        f"worker {worker} of the cluster has cpdispatch {__version__}, the campaign {version}: "
        "install the same version in both environments"
    )


# --------------------------------------------------------------------------------- a worker's side


def _work(
    version: str, place: tuple[str, int], function: Callable[..., Any], *arguments: Any
) -> Outcome | str:
    """Do a task on a worker; a text says why this worker is of no use.

    ``place`` is the campaign's name, under which it hears how far the task is, and the task's
    position there.
    """
    distributed = require()
    worker = distributed.get_worker()
    if version != __version__:
        return _other_version(worker.address, version)
    key = worker.get_current_task()

    def unwanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    topic, position = place
    said = -math.inf

    def report(share: float) -> None:
        nonlocal said
        if monotonic() - said >= REPORT_S:
            said = monotonic()
            worker.log_event(topic, (position, float(share)))

    return line_of.attempt(function, arguments, Line(unwanted, report))
