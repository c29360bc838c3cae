"""Public logs: where they are, and how they are fetched whole and unchanged."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from cpdispatch.errors import InputError, UsageError, unknown
from cpdispatch.extra import needed
from cpdispatch.files import opened, parse_toml, write_bytes

LIST = Path(__file__).with_name("archive.toml")
CACHE = "CPDISPATCH_LOGS"
"""The environment variable that names the folder of fetched logs."""
TIMEOUT_S = (10.0, 30.0)
"""To connect, and between two parts of an answer."""
ATTEMPTS = 4
"""In a row without a single byte more."""
_PART = 1 << 12
_PASSING = 408, 429
"""What a server answers that is slow or busy, beside its own errors, which are 500 and above."""


class Log(msgspec.Struct, forbid_unknown_fields=True):
    """A public log."""

    path: str
    """Of its file, after the address of the archive."""
    machine: str
    processors: int = 0
    jobs: int = 0
    begin: int = 0
    """Its first year; 0 where something is not known."""
    sha256: str = ""
    """Of the file as it was published; empty where that is not known."""
    system: str = ""
    """The named system that it can be replayed on; else the header of the log says how large."""

    @property
    def file(self) -> str:
        """The name of its file."""
        return self.path.rpartition("/")[2]


class Archive(msgspec.Struct, forbid_unknown_fields=True):
    """Logs by name, and the address that their paths follow."""

    base: str
    logs: dict[str, Log]


def archive() -> Archive:
    """The logs that can be fetched."""
    return msgspec.convert(parse_toml(LIST, "a list of logs"), Archive)


def find(name: str) -> Log:
    """The log of this name, or `UsageError`."""
    known = archive().logs
    if name not in known:
        raise unknown("log", name, known)
    return known[name]


def folder_of_logs() -> Path:
    """Where logs are kept: `CPDISPATCH_LOGS`, or a folder in the user's cache."""
    if named := os.environ.get(CACHE):
        return Path(named)
    return Path(needed("pooch", "archive").os_cache("cpdispatch")) / "logs"


def get(
    name: str,
    folder: Path | None = None,
    base: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Fetch a log, unless it is there already; its file.

    A download that was broken off goes on where it ended, also in a later call. The file is checked
    against its checksum, and is not kept where it is another one. Where no checksum is known, the
    first download has to be a log that can be unpacked whole; its checksum is kept beside the file,
    and later ones are checked against it.

    Parameters
    ----------
    name : str
        As `archive` has it.
    folder : path, optional
        Where logs are kept; else `folder_of_logs`.
    base : str
        Another address of the archive, such as that of a mirror.
    say : function
        Called with sentences about what happens.

    Raises
    ------
    UsageError
        When there is no such log, ``base`` is no address, the folder cannot be written, or an extra
        is missing.
    InputError
        When the server does not answer, does not have the file, or has another one.
    """
    log, base = find(name), base or archive().base
    if not base.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"--from {base}: an address that begins with https:// or http:// is needed"
        )
    pooch = needed("pooch", "archive")
    address = base.rstrip("/") + "/" + log.path
    folder = folder_of_logs() if folder is None else folder
    path, noted = folder / log.file, folder / f"{log.file}.sha256"
    part = folder / f".{log.file}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        expected = log.sha256
        if not expected and noted.exists():
            expected = "".join(noted.read_text().split()[:1])
        there = path.exists()
        if there and not expected:
            say(f"{path} is there already, and its checksum is not known: it is taken as it is")
        pooch.get_logger().setLevel("ERROR")
        pooch.retrieve(
            address, f"sha256:{expected}" if expected else None, log.file, folder,
            downloader=lambda url, to, _: _download(url, Path(to), part, say),
        )  # fmt: skip
        if not expected:
            if not there:
                _unpack(path, address)
            found = pooch.file_hash(str(path))
            write_bytes(noted, f"{found}  {log.file}\n".encode())
            say(f"no checksum is known of {log.file}: that of this file is kept ({found})")
    except ValueError as error:
        raise InputError(
            "the server sent another file than the one that is known by this name: its SHA-256 "
            f"is not {expected}", file=address,
            advice="it was not kept; try again, or name a mirror with --from",
        ) from error  # fmt: skip
    except OSError as error:
        if isinstance(error, needed("requests", "archive").RequestException):
            raise
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    return path


def _download(address: str, to: Path, part: Path, say: Callable[[str], None]) -> None:
    """Fetch a file, and go on with the part of it that an earlier call has left."""
    requests = needed("requests", "archive")
    failed = 0
    while True:
        begin = part.stat().st_size if part.exists() else 0
        try:
            if _rest(requests, address, part, begin):
                break
            problem: object = "the answer ended early"
        except requests.exceptions.HTTPError as error:
            status = error.response.status_code
            if status < 500 and status not in _PASSING:
                raise InputError(
                    f"the server refuses: {error}", file=address,
                    advice="the archive may have moved: name its address with --from",
                ) from error  # fmt: skip
            problem = f"HTTP status {status}"
        except (requests.exceptions.RequestException, ConnectionError) as error:
            problem = type(error).__name__
        now = part.stat().st_size if part.exists() else 0
        failed = 0 if now > begin else failed + 1
        if failed == ATTEMPTS:
            raise InputError(
                f"no answer after {ATTEMPTS} attempts ({problem})", file=address,
                advice="the same command goes on where this one ended; a mirror can be named with "
                "--from",
            )  # fmt: skip
        say(f"{address}: {problem} after {now:,} bytes; trying to go on")
        time.sleep(0.25 * failed)
    shutil.move(part, to)


def _rest(requests: Any, address: str, part: Path, begin: int) -> bool:
    """Fetch what is missing behind the first bytes; whether the file is whole then."""
    headers = {"Accept-Encoding": "identity"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
    with requests.get(address, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
        if answer.status_code == 416:  # nothing is behind them, or it is another file
            part.unlink()
            return False
        answer.raise_for_status()
        goes_on = answer.status_code == 206
        length = answer.headers.get("Content-Length")
        whole = None if length is None else int(length) + (begin if goes_on else 0)
        with part.open("ab" if goes_on else "wb") as file:
            _copy(answer, file)
    return whole is None or part.stat().st_size == whole


def _unpack(path: Path, address: str) -> None:
    """Unpack a file to its end, or remove it: a server may send a page about what is wrong."""
    try:
        with opened(path) as text:
            for _ in text:
                pass
    except InputError as error:
        path.unlink()
        raise InputError(
            f"the server sent no log: {error.problem}", file=address,
            advice="it was not kept; try again, or name a mirror with --from",
        ) from error  # fmt: skip


def _copy(answer: Any, file: BinaryIO) -> None:
    for piece in answer.iter_content(_PART):
        file.write(piece)
        file.flush()
