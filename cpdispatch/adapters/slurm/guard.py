"""One driver at a time, the sign of life that job_submit.lua looks for, and that plugin itself."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cpdispatch.adapters.slurm.cluster import KEPT, MARK
from cpdispatch.errors import UsageError
from cpdispatch.files import replacing

LOCK, ALIVE = "lock", "driving"
STALE_S = 300
"""After so long without a sign of life from the driver new jobs are not held any more."""
_STOPPING_S = 60
"""After so long, and again and again, it is told that a driver which was asked to end runs on."""


@contextmanager
def locked(folder: Path, *, driver: bool = True) -> Iterator[None]:
    """Be the only driver, or watcher, with this folder; the lock ends with the process.

    Raises
    ------
    UsageError
        When another one has it, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Slurm's user looks for the sign of life in it.
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"--state {folder}: cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            advice = "cpdispatch slurm drive --stop ends it" if driver else "name another folder"
            raise UsageError(
                f"--state {folder}: {'a driver' if driver else 'one that uses it'} is running "
                f"(process {_holder(folder)}); {advice}"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _holder(folder: Path) -> str:
    text = (folder / LOCK).read_text().strip()
    return text if text.isdigit() else "unknown"


def ask_to_stop(folder: Path, tell: Callable[[str], None]) -> bool:
    """Ask the driver with this folder to end, and wait until it has; whether there was one.

    That may take long, since the driver hands back its jobs: it is told now and then.

    Raises
    ------
    UsageError
        When it belongs to somebody else.
    """
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(f"--state {folder}: cannot be read: {error.strerror}") from error
    asked = False
    try:
        begin, told = time.monotonic(), 0
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(folder)
            else:
                return asked
            if not asked and holder.isdigit():
                # Who has the lock wrote this number after it had got it, and lives.
                with suppress(ProcessLookupError):  # it has ended just now
                    os.kill(int(holder), signal.SIGTERM)
                asked = True
            waited_s = int(time.monotonic() - begin)
            if waited_s >= (told + 1) * _STOPPING_S:
                told += 1
                tell(
                    f"process {holder} was asked to stop and still hands back jobs, or ends a "
                    f"cycle, after {waited_s} s; Ctrl-C ends this command alone"
                )
            time.sleep(0.1)
    except PermissionError as error:
        raise UsageError(f"process {holder}: {error.strerror}; stop it as its user") from error
    finally:
        os.close(handle)


def beat(folder: Path, partition: str, kept: Iterable[int] = ()) -> None:
    """Give a sign of life: from now on new jobs of this partition, or all, are held.

    The ``kept`` jobs, by their own numbers, may be released by their users: the driver holds none.
    """
    numbers = "".join(f"{number} " for number in kept)
    with replacing(folder / ALIVE) as temporary:
        temporary.write_text(f"{int(time.time())}\n{partition}\n {numbers}\n")


def fall_silent(folder: Path) -> None:
    """Take the sign of life away: from now on new jobs are not held."""
    (folder / ALIVE).unlink(missing_ok=True)


def plugin(folder: Path, user: int) -> str:
    """The text of the job_submit.lua for a driver with this folder.

    Parameters
    ----------
    user : int
        The number of the user as whom the driver reaches Slurm.
    """
    path = str((folder / ALIVE).absolute())
    if any(not c.isprintable() or c in '"\\' for c in path):
        raise UsageError(f"--state {folder}: a folder with a plain name is needed")
    text = Path(__file__).with_name("job_submit.lua").read_text()
    for name, value in (
        ("@ALIVE@", path), ("@USER@", str(user)), ("@MARK@", MARK), ("@KEPT@", KEPT),
        ("@STALE@", str(STALE_S)),
    ):  # fmt: skip
        text = text.replace(name, value)
    return text
