"""Files: compression by extension, and writes that happen whole or not at all."""

from __future__ import annotations

import gzip
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from cpdispatch.errors import InputError, UsageError

_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda packed: zstandard.ZstdDecompressor().stream_reader(packed).read(),
}
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda plain: gzip.compress(plain, mtime=0),
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
_BROKEN = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return a file's content, unpacked when its name ends in .gz, .xz or .zst.

    Raises
    ------
    InputError
        When the file is missing, a directory, unreadable, or its compression is damaged.
    """
    path = Path(path)
    try:
        packed = path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except IsADirectoryError:
        raise InputError("this is a directory", file=path, advice="name a file in it") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    unpack = _UNPACK.get(path.suffix)
    if unpack is None:
        return packed
    try:
        return unpack(packed)
    except _BROKEN as error:
        raise InputError(
            f"the {path.suffix[1:]} data is damaged or cut short: {error}",
            file=path,
            advice="fetch the file again",
        ) from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path`` and move it there when the block ends well.

    A reader sees the old file or the whole new one. When the block fails, the temporary file is
    removed and ``path`` is as it was.

    Raises
    ------
    UsageError
        When the disk is full or the folder cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror or error}; nothing was changed"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically, packed when its name ends in .gz, .xz or .zst."""
    pack = _PACK.get(Path(path).suffix)
    with replacing(path) as temporary:
        temporary.write_bytes(content if pack is None else pack(content))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
