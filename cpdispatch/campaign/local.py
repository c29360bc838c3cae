"""A campaign on this machine: in this process, or in a worker process on each core.

Each worker is a loky pool of its own with one process, so that a killed worker is known to have
had one task, and takes no other with it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import re
import shutil
import signal
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

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
    Stopped,
    Task,
)
from cpdispatch.compile import ANNOUNCED, announce
from cpdispatch.errors import InterruptedRunError, UsageError

GRACE_S = 15.0
"""Seconds that tasks have to save what they have when they are asked to stop."""

TICK_S = 0.2
"""Seconds between two looks at what has changed."""

THREAD_LIMITS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
"""What a worker's environment sets to 1: there is a worker on each core already."""

_ALIGNMENT = 64
_HEAD, _ARRAYS, _SHARES, _STOP = "shared.pickle", "arrays", "shares", "stop"
_ANNOUNCED = "compiling"
_PREFIX, _OWNER = "cpdispatch-", "owner"
_SEMAPHORES = Path("/dev/shm")
"""Where Linux has named semaphores; loky's are sem.loky-PROCESS-RANDOM."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command: it often reaches all processes of a group, and is for the campaign alone."""


# --------------------------------------------------------------------------------- this process


def in_process(
    tasks: Sequence[Task],
    function: Callable[..., Any],
    shared: Mapping[str, Any],
    cores: int,
    stop: Stop,
    progress: Progress,
) -> Outcomes:
    """Do one task after the other, here; the error of a single task is raised as it is."""
    for number, task in enumerate(tasks):
        if stop():
            return

        def say(share: float, number: int = number) -> None:
            progress(number + share, len(tasks))

        line = Line(stop, say, cores)
        arguments = resolved(task.arguments, shared)
        try:
            with line_of.connected(line):
                outcome = line_of.packed(function(*arguments))
        except InterruptedRunError:
            if len(tasks) == 1:
                raise
            outcome = Stopped()
        except Exception as error:
            if len(tasks) == 1:
                raise
            outcome = line_of.failure(error)
        progress(number + 1.0, len(tasks))
        yield task, outcome


def resolved(arguments: Sequence[Any], shared: Mapping[str, Any]) -> list[Any]:
    """A task's arguments, with the shared objects in the place of their names."""
    return [shared[item.name] if isinstance(item, Shared) else item for item in arguments]


# ------------------------------------------------------------------------------ the campaign's side


def in_workers(
    tasks: Sequence[Task],
    function: Callable[..., Any],
    shared: Mapping[str, Any],
    cores: int,
    stop: Stop,
    progress: Progress,
) -> Outcomes:
    """Do the tasks in worker processes; a task whose worker dies is done again."""
    with _desk(shared, len(tasks)) as desk:
        crew = _Crew(tasks, function, cores, desk)
        try:
            yield from crew.work(stop, progress)
        finally:
            crew.dismiss()


@contextmanager
def _desk(shared: Mapping[str, Any], tasks: int) -> Iterator[Path]:
    """A temporary folder with all that workers share; gone at the end.

    Another one, beside the semaphores, says whose these are when the first is gone: many clusters
    give each job its own folder for temporary files.
    """
    with ExitStack() as stack:
        if os.access(_SEMAPHORES, os.W_OK):
            stack.enter_context(owned(_SEMAPHORES))
        desk = stack.enter_context(owned())
        try:
            _lay_out(shared, desk)
            np.zeros(tasks).tofile(desk / _SHARES)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(
                f"{desk}: cannot be written: {why}; set TMPDIR to another folder"
            ) from error
        yield desk


@contextmanager
def owned(place: Path | None = None) -> Iterator[Path]:
    """A folder, in that for temporary files or another, that `sweep` knows to be in use.

    Its name has the number of this process, which holds a lock on the file `_OWNER` in it for as
    long as it lives.
    """
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{os.getpid()}-", dir=place, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        with (folder / _OWNER).open("wb") as owner:
            with suppress(OSError):  # a file system that has no locks
                fcntl.flock(owner, fcntl.LOCK_EX)
            yield folder


def sweep() -> None:
    """Remove what campaigns of this user left behind that were killed with all their processes.

    That is temporary folders, and the semaphores by which loky speaks with workers.
    """
    for place in (Path(tempfile.gettempdir()), _SEMAPHORES):
        for folder in place.glob(f"{_PREFIX}*-*"):
            named = re.fullmatch(rf"{_PREFIX}(\d+)-\w+", folder.name)
            if named is None or not _abandoned(folder, int(named[1])):
                continue
            if int(named[1]) != os.getpid():
                for semaphore in _SEMAPHORES.glob(f"sem.loky-{named[1]}-*"):
                    with suppress(OSError):  # somebody else's, or gone
                        semaphore.unlink()
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path, process: int) -> bool:
    """Whether a folder is this user's, and the process that made it is dead.

    While another process has its number, nobody can say whose the semaphores are: that is for a
    later command. A process that cannot be seen from here, in another container, has the lock.
    """
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        if process != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(process, 0)
                return False
        with (folder / _OWNER).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return process != os.getpid()
    except OSError:
        return False
    return True


def _lay_out(shared: Mapping[str, Any], desk: Path) -> None:
    """Write objects so that workers read the arrays in them from one common memory.

    Notes
    -----
    The arrays come back plain and read-only. Joblib's own dump has them back as ``np.memmap``,
    every slice of which costs a call into Python.
    """
    sizes: list[int] = []
    with (desk / _ARRAYS).open("wb") as stream:

        def write(buffer: pickle.PickleBuffer) -> None:
            with buffer.raw() as content:
                stream.write(content)
                stream.write(bytes(-content.nbytes % _ALIGNMENT))
                sizes.append(content.nbytes)

        head = pickle.dumps(dict(shared), protocol=5, buffer_callback=write)
    (desk / _HEAD).write_bytes(pickle.dumps((head, sizes)))


class _Crew:
    """The workers of a campaign, and what each of them is at."""

    def __init__(
        self, tasks: Sequence[Task], function: Callable[..., Any], cores: int, desk: Path
    ) -> None:
        self._tasks = tasks
        self._function = function
        self._desk = desk
        workers = min(cores, len(tasks))
        self._threads = cores // workers
        self._free: list[Any] = [None] * workers
        self._waiting = deque(range(len(tasks)))
        self._running: dict[Future[bytes], tuple[Any, int]] = {}
        self._deaths: Counter[int] = Counter()

    def work(self, stop: Stop, progress: Progress) -> Outcomes:
        """Do all the tasks, or what is done when it is time to stop."""
        finished, until = 0, float("inf")
        shares = np.memmap(self._desk / _SHARES, dtype=np.float64, mode="r")
        while (self._waiting or self._running) and monotonic() < until:
            if until == float("inf"):
                if stop():
                    until = monotonic() + GRACE_S
                    self._waiting.clear()
                    (self._desk / _STOP).touch()
                else:
                    yield from self._hand_out()
            wait(self._running, timeout=TICK_S, return_when=FIRST_COMPLETED)
            for future in [future for future in self._running if future.done()]:
                position, outcome = self._take(future)
                if outcome is not None:
                    finished += 1
                    yield self._tasks[position], outcome
            if (self._desk / _ANNOUNCED).exists():
                announce()
            under_way = sum(shares[position] for _, position in self._running.values())
            progress(finished + float(under_way), len(self._tasks))

    def _hand_out(self) -> Outcomes:
        """Give each free worker a task; a task that cannot be sent has failed."""
        while self._free and self._waiting:
            position = self._waiting.popleft()
            task = self._tasks[position]
            try:
                message = pickle.dumps((self._function, task.arguments))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                yield task, Failed(f"it cannot be sent to a worker: {error}")
                continue
            worker = self._free.pop()
            with _unreached():
                try:
                    worker = worker or _hire(self._desk, self._threads)
                    future = worker.submit(_work, position, message)
                except BrokenExecutor:
                    # It was killed while it had nothing to do.
                    worker = _hire(self._desk, self._threads)
                    future = worker.submit(_work, position, message)
            self._running[future] = worker, position

    def _take(self, future: Future[bytes]) -> tuple[int, Outcome | None]:
        """What came of a task; None when it is to be done again."""
        worker, position = self._running.pop(future)
        try:
            outcome: Outcome = pickle.loads(future.result())
        except BrokenExecutor:
            worker.shutdown(wait=False, kill_workers=True)
            self._free.append(None)
            self._deaths[position] += 1
            if self._deaths[position] < DEATHS_MAX:
                self._waiting.appendleft(position)
                return position, None
            return position, line_of.lost(DEATHS_MAX, "use fewer cores")
        self._free.append(worker)
        return position, outcome

    def dismiss(self) -> None:
        """End all workers: at once those that are still at something, and what they started."""
        busy = [worker for worker, _ in self._running.values()]
        (self._desk / _STOP).touch()
        for worker in filter(None, [*self._free, *busy]):
            worker.shutdown(wait=False, kill_workers=worker in busy)
        for worker in filter(None, self._free):
            worker.shutdown(wait=True)


@contextmanager
def _unreached() -> Iterator[None]:
    """Keep the signals that end a command from the processes that are started here.

    A process inherits what is held back. A worker ignores these signals as soon as it can; what
    loky keeps beside it to clean up after it ignores two of them, and has the third held back.
    Python's tracker of resources, which loky starts before its first worker, lets these two through
    again. So it is started first.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hire(desk: Path, threads: int) -> Any:
    """A new worker, whose tasks may use so many threads.

    Loky replaces a worker that has grown by 300 MB, as one does that has loaded a few libraries,
    and warns that a job may be lost; it is not.
    """
    from joblib.externals.loky import ProcessPoolExecutor  # type: ignore[import-untyped]

    warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
    return ProcessPoolExecutor(
        max_workers=1,
        timeout=None,
        initializer=_begin,
        initargs=(str(desk), threads, os.getpid()),
        env={**dict.fromkeys(THREAD_LIMITS, "1"), ANNOUNCED: str(desk / _ANNOUNCED)},
    )


# --------------------------------------------------------------------------------- a worker's side

_place: _Place | None = None


class _Place:
    """What a worker has on its side of the desk."""

    def __init__(self, desk: Path, threads: int) -> None:
        self.desk = desk
        self.threads = threads
        self.stopping = threading.Event()
        self.shares = np.memmap(desk / _SHARES, dtype=np.float64, mode="r+")
        self.busy = False
        self._shared: dict[str, Any] | None = None

    @property
    def shared(self) -> dict[str, Any]:
        """The shared objects, their arrays read from the memory that all workers have in common."""
        if self._shared is None:
            head, sizes = pickle.loads((self.desk / _HEAD).read_bytes())
            content = memoryview(b"")
            if sizes and sum(sizes):
                with (self.desk / _ARRAYS).open("rb") as stream:
                    content = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
            buffers, start = [], 0
            for size in sizes:
                buffers.append(content[start : start + size])
                start += size + -size % _ALIGNMENT
            self._shared = pickle.loads(head, buffers=buffers)
        return self._shared


def _begin(desk: str, threads: int, parent: int) -> None:
    """Set a worker up."""
    global _place
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    _place = _Place(Path(desk), threads)
    threading.Thread(target=_attend, args=(_place, parent), daemon=True).start()


def _attend(place: _Place, parent: int) -> None:
    """Look out for the wish to stop, and for the death of the campaign, which ends its workers."""
    while os.getppid() == parent:
        if (place.desk / _STOP).exists():
            place.stopping.set()
        sleep(TICK_S)
    place.stopping.set()
    until = monotonic() + GRACE_S
    while place.busy and monotonic() < until:
        sleep(TICK_S)
    for folder in (place.desk, *_SEMAPHORES.glob(f"{_PREFIX}{parent}-*")):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _work(position: int, message: bytes) -> bytes:
    """Do a task in a worker; its outcome, pickled."""
    assert _place is not None
    place = _place

    def say(share: float) -> None:
        place.shares[position] = share

    place.busy = True
    try:
        function, arguments = pickle.loads(message)
        found = resolved(arguments, place.shared)
    except Exception as error:
        outcome: Outcome = line_of.failure(error)
    else:
        outcome = line_of.attempt(function, found, Line(place.stopping.is_set, say, place.threads))
    place.busy = False
    return pickle.dumps(outcome)
