"""Files: compression by extension, and writes that happen whole or not at all."""

from __future__ import annotations

import builtins
import gzip
import lzma
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
import zstandard

from cpdispatch.errors import InputError, UsageError

Struct = TypeVar("Struct")


def _unpack_zst(packed: bytes) -> bytes:
    """All frames of the data; unlike the library's readers, data that ends early is an error."""
    plain = []
    while packed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        plain.append(frame.decompress(packed))
        if not frame.eof:
            raise zstandard.ZstdError("the last frame has no end")
        packed = frame.unused_data
    return b"".join(plain)


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".zst": _unpack_zst,
}
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda plain: gzip.compress(plain, mtime=0),
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
_RANDOM = 8  # letters, digits and underscores at the end of a temporary file's name
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
        if not packed:
            raise EOFError("the file is empty")
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
    removed and ``path`` is as it was. A symbolic link stays, and what it names is replaced; what
    is no file, as /dev/null, is written directly.

    Raises
    ------
    UsageError
        When the disk is full or the folder cannot be written.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            yield path
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
        return
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


def sweep(folder: str | os.PathLike[str], *names: str) -> None:
    """Remove the temporary files that `replacing` left in a folder where its process was killed.

    Parameters
    ----------
    folder : path
        Nobody else may be writing these files now. It need not exist.
    names : str
        Names of the files that were to be written, ``*`` and ``?`` as in a shell.
    """
    for name in names:
        for left in Path(folder).glob(f".{name}.{'[a-z0-9_]' * _RANDOM}"):
            left.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically, packed when its name ends in .gz, .xz or .zst."""
    pack = _PACK.get(Path(path).suffix)
    with replacing(path) as temporary:
        temporary.write_bytes(content if pack is None else pack(content))


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a stream to write a file by parts; atomic and packed as `write_bytes` does it.

    Raises
    ------
    UsageError
        When the disk is full or the folder cannot be written.
    """
    with replacing(path) as temporary, ExitStack() as stack:
        plain = stack.enter_context(temporary.open("wb"))
        suffix = Path(path).suffix
        if suffix == ".gz":
            yield cast(
                BinaryIO, stack.enter_context(gzip.GzipFile("", "wb", fileobj=plain, mtime=0))
            )
        elif suffix == ".xz":
            yield cast(BinaryIO, stack.enter_context(lzma.LZMAFile(plain, "wb")))
        elif suffix == ".zst":
            packer = zstandard.ZstdCompressor()
            yield cast(BinaryIO, stack.enter_context(packer.stream_writer(plain, closefd=False)))
        else:
            yield plain


def parse_json(
    content: bytes | str, type: builtins.type[Struct], what: str, file: str | os.PathLike[str]
) -> Struct:
    """Read JSON of a known structure.

    Raises
    ------
    InputError
        With the path of the key and, where it is a single one, the value that was found there.
    """
    try:
        return msgspec.json.decode(content, type=type)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        path = path.removesuffix("`")
        key = re.search("(unknown|missing required) field `(.*)`", problem)
        if key:
            problem, path = f"{key[1]} key", f"{path}.{key[2]}"
        raise InputError(
            f"not {what}: {problem}",
            file=file,
            field=path.removeprefix(".") or None,
            value=_found(content, path),
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not {what}: {error}", file=file) from error


def _found(content: bytes | str, path: str) -> object:
    """The value at a path such as ``.jobs[0].start``; None when it is a whole structure."""
    try:
        value: Any = msgspec.json.decode(content)
        for key, index in re.findall(r"\.([^.\[]+)|\[([^]]+)]", path):
            value = value[int(index)] if index else value[key]
    except (LookupError, TypeError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    return None if isinstance(value, dict | list) else value


def json_lines(data: dict[str, Any]) -> bytes:
    """JSON with one line for each key and each job: small, and fit for a line diff."""
    rows = []
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            items = b",\n  ".join(msgspec.json.encode(item) for item in value)
            rows.append(msgspec.json.encode(key) + b": [\n  " + items + b"]")
        else:
            rows.append(msgspec.json.encode(key) + b": " + msgspec.json.encode(value))
    return b"{" + b",\n ".join(rows) + b"}\n"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
