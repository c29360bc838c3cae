"""Files: what they hold by their first bytes, and writes that happen whole or not at all."""

from __future__ import annotations

import builtins
import csv
import gzip
import io
import json
import lzma
import os
import re
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

import msgspec
import zstandard

from cpdispatch.errors import InputError, UsageError, in_a_line
from cpdispatch.structure import misfit

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

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
_MARK = b"\xef\xbb\xbf"
_BUFFER = 1 << 16
_FIRST = 16
_RANDOM = 8  # letters, digits and underscores at the end of a temporary file's name
_PACKED_AS = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
_BROKEN = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, zstandard.ZstdError)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return a file's content, unpacked if it is packed, whatever its name says.

    A file is packed (gzip, xz, zstd) when its first bytes say so, or when its name ends in .gz,
    .xz or .zst.

    Raises
    ------
    InputError
        When the file is missing, a directory, unreadable, or its compression is damaged.
    """
    path = Path(path)
    with _readable(path):
        packed = path.read_bytes()
    unpack = _UNPACK.get(_kind_of(path, packed))
    if unpack is None:
        return packed
    with _undamaged(path, packed):
        if not packed:
            raise EOFError("the file is empty")
        return unpack(packed)


def csv_rows(path: str | os.PathLike[str], advice: str = "") -> Iterator[tuple[int, list[str]]]:
    """Give the first line of a CSV file and those that are not blank, with their numbers.

    Cells are without blanks around them.

    Parameters
    ----------
    advice : str
        What to do about a line that has more cells or fewer than the first one.

    Raises
    ------
    InputError
        When the file is not UTF-8 text, or a line is not CSV or not as wide as the first one.
    """
    try:
        text = read_text(path).decode()
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", file=path, advice="save it as UTF-8") from error
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = [cell.strip() for cell in next(lines, [])]
        yield 1, head
        for cells in lines:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if len(cells) != len(head):
                problem = f"the row has {len(cells)} cells, the first line {len(head)}"
                raise InputError(problem, file=path, line=lines.line_num, advice=advice)
            yield lines.line_num, cells
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", file=path, line=lines.line_num) from error


def csv_of(rows: Iterable[Iterable[object]]) -> bytes:
    """Rows of cells as a CSV file."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def other_commas(names: Iterable[object]) -> str:
    """What to do where the only column of a table holds other marks than commas; else nothing."""
    only = [str(name) for name in names]
    apart = next((mark for mark in ";\t|" if len(only) == 1 and mark in only[0]), "")
    return f"separate cells by commas, and not by {apart!r}" if apart else ""


def not_a_table(error: Exception, path: str | os.PathLike[str]) -> InputError:
    """What to raise where pandas cannot read a file."""
    return InputError(
        f"cannot be read as a table: {in_a_line(error)}", file=path,
        advice="tables are CSV, plain or packed, or .parquet",
    )  # fmt: skip


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[TextStream]:
    """Give a file of text as a stream, unpacked as `read_bytes` and checked as `read_text` does it.

    Raises
    ------
    InputError
        When `read_text` does, also while the stream is read.
    """
    path = Path(path)
    with ExitStack() as stack:
        with _readable(path):
            packed = stack.enter_context(path.open("rb"))
            first = packed.read(_FIRST)
            packed.seek(0)
        stack.enter_context(_undamaged(path, first))
        kind = _kind_of(path, first)
        plain: Any = packed
        if kind == ".gz":
            plain = stack.enter_context(gzip.open(packed))
        elif kind == ".xz":
            plain = stack.enter_context(lzma.open(packed))
        elif kind == ".zst":
            plain = stack.enter_context(_Unpacked(packed))
        if kind in _UNPACK and not first:
            raise EOFError("the file is empty")
        yield TextStream(plain, packed, path)


class TextStream(io.BufferedReader):
    """Lines of text, without a byte order mark."""

    def __init__(self, plain: Any, packed: BinaryIO, path: Path) -> None:
        super().__init__(plain, _BUFFER)
        self._path, self._packed = path, packed
        first = self.peek(_FIRST)
        _check_kind(first, path)
        if first.startswith(_MARK):
            self.read(len(_MARK))
        self._line = 0

    @property
    def share(self) -> float:
        """The share of the file that has been read, 0 to 1."""
        return self._packed.tell() / max(os.fstat(self._packed.fileno()).st_size, 1)

    def __next__(self) -> bytes:
        line = super().__next__()
        self._line += 1
        if b"\0" in line:
            raise _zero_byte(self._path, self._line)
        return line


class _Unpacked(io.RawIOBase):
    """What a file packed by zstd holds; data that ends early is an error."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._left, self._rest = b"", b""
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            packed = self._rest or self._packed.read(_BUFFER)
            self._rest = b""
            if not packed:
                if self._begun:
                    raise zstandard.ZstdError("the last frame has no end")
                return 0
            self._begun = True
            self._left = self._frame.decompress(packed)
            if self._frame.eof:
                self._rest, self._begun = self._frame.unused_data, False
                self._frame = zstandard.ZstdDecompressor().decompressobj()
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say plainly why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except IsADirectoryError:
        raise InputError("this is a directory", file=path, advice="name a file in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read: {why}", file=path) from error


def _kind_of(path: Path, first: bytes) -> str:
    """How a file is packed, by its first bytes or its name: ``.gz`` and so on; else its suffix."""
    by_content = (kind for start, kind in _PACKED_AS.items() if first.startswith(start))
    return next(by_content, path.suffix)


@contextmanager
def _undamaged(path: Path, first: bytes) -> Iterator[None]:
    """Say plainly that what is packed is damaged."""
    try:
        yield
    except _BROKEN as error:
        raise InputError(
            f"the {_kind_of(path, first)[1:]} data is damaged or cut short: {error}",
            file=path,
            advice="fetch the file again",
        ) from error


_PARQUET = b"PAR1"
"""The first bytes of a Parquet table, and the last ones."""
COPY_AGAIN = "copy the file again, or write it anew"
_BINARY = {
    _PARQUET: ("a Parquet table", "a log that is a Parquet table has the extension .parquet"),
    b"PK\x03\x04": ("a ZIP archive", "unpack it"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    b"BZh": ("packed by bzip2", "unpack it; .gz, .xz and .zst are read as they are"),
    b"\x80\x04\x95": ("a pickle of Python", "it is not text"),
    b"\x80\x05\x95": ("a pickle of Python", "it is not text"),
    b"%PDF": ("a PDF document", "it is not text"),
    b"\x89PNG": ("a PNG picture", "it is not text"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
"""What begins with these bytes is no text that is read: what it is, and what to do."""


def read_text(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file of text, unpacked, without a byte order mark.

    Raises
    ------
    InputError
        When `read_bytes` does, or the file is of a known kind that is no UTF-8 text.
    """
    content = read_bytes(path)
    _check_kind(content, path)
    zero = content.find(b"\0")
    if zero >= 0:
        raise _zero_byte(path, content.count(b"\n", 0, zero) + 1)
    return content.removeprefix(_MARK)


def with_newlines(text: bytes) -> bytes:
    """The text with lines that end as they do on Unix."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def _check_kind(content: bytes, path: str | os.PathLike[str]) -> None:
    """Raise if the first bytes are those of a known kind of file that is no UTF-8 text."""
    for first, (kind, advice) in _BINARY.items():
        if content.startswith(first):
            raise InputError(f"text is needed, this is {kind}", file=path, advice=advice)


def _zero_byte(path: str | os.PathLike[str], line: int) -> InputError:
    return InputError(
        "text is needed, this has a zero byte", file=path, line=line,
        advice="the file is binary or damaged: fetch it again",
    )  # fmt: skip


def read_parquet(path: str | os.PathLike[str]) -> pa.Table:
    """Return a Parquet file's table, each of whose values was looked at.

    Raises
    ------
    InputError
        When `read_bytes` does, or the file is damaged or no Parquet.
    """
    content = read_bytes(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        _compare_counts(pq.read_metadata(pa.BufferReader(content)))
        table: pa.Table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
        table.validate(full=True)
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"Arrow cannot read this Parquet table: {in_a_line(error)}", file=path,
            advice="write it with plain columns",
        ) from error  # fmt: skip
    except Exception as error:  # whatever Arrow makes of damaged data
        raise _no_parquet(content, path) from error
    return table


def parquet_frame(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return a Parquet file's table as pandas has it; an index that has a name is a column.

    Raises
    ------
    InputError
        When `read_parquet` does, or pandas cannot read its own notes in the file.
    """
    table = read_parquet(path)
    try:
        frame: pd.DataFrame = table.to_pandas()
    except Exception as error:  # whatever pandas makes of its own notes in the file
        raise InputError(f"cannot be read as a table: {in_a_line(error)}", file=path) from error
    return frame.reset_index() if any(name is not None for name in frame.index.names) else frame


def _compare_counts(about: pq.FileMetaData) -> None:
    """Raise if a Parquet file has another number of rows than all its groups of rows.

    Arrow takes memory for as many as a group says: a damaged file of some kilobytes can say
    billions. What a group says of its columns is not looked at: where that is damaged, Arrow's
    answer is the end of the process.
    """
    if sum(about.row_group(k).num_rows for k in range(about.num_row_groups)) != about.num_rows:
        raise ValueError("the numbers of rows differ")


def _no_parquet(content: bytes, path: str | os.PathLike[str]) -> InputError:
    """What is wrong with a file that Arrow does not read as Parquet."""
    begins, ends = content.startswith(_PARQUET), content.endswith(_PARQUET)
    if not (begins or ends):
        extension = {"a table (CSV)": ".csv", "a log in SWF": ".swf"}.get(
            kind := resembles(content)
        )
        advice = f"{kind} has the extension {extension}" if extension else COPY_AGAIN
        return InputError(f"no Parquet table{unlike(content, '')}", file=path, advice=advice)
    problem = "the Parquet table is damaged"
    if not (begins and ends):
        problem = f"the Parquet table is cut short: its {'end' if begins else 'start'} is missing"
    return InputError(problem, file=path, advice=COPY_AGAIN)


_YAML = re.compile(rb"(---|%YAML|[A-Za-z_][\w .-]*:(\s|$)|- +[\w\"'{\[])")
_TOML = re.compile(rb"(\[\[?[\w.\"' -]+\]\]?\s*(#.*)?|[\w.\"-]+\s*=.*)\s*$")


def resembles(content: bytes) -> str:
    """What a text that could not be read looks like, such as ``a log in SWF``; may be empty."""
    lines = (line.strip() for line in content[:20_000].splitlines())
    first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    if not first:
        return "an empty file" if not content.strip() else ""
    if first.startswith(b";") or re.fullmatch(rb"-?\d+(\s+-?[\d.]+){17}(\s.*)?", first):
        return "a log in SWF"
    if first[:1] in (b"{", b"[") and not _TOML.match(first):
        return "JSON"
    if _TOML.match(first):
        return "TOML"
    if _YAML.match(first):
        return "YAML"
    if first[:1] == b"<":
        return "XML or HTML"
    head = content.lstrip(b"# ").split(b"\n", 1)[0].split(b",")
    return "a table (CSV)" if len(head) > 1 and all(name.strip() for name in head) else ""


def unlike(content: bytes, wanted: str) -> str:
    """A clause for errors that says what a text looks like, if that is not what is wanted."""
    kind = resembles(content)
    return f"; it looks like {kind}" if kind and kind != wanted else ""


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


def is_empty(folder: Path) -> bool:
    """Whether a folder for results is yet to be made, or holds nothing.

    Raises
    ------
    UsageError
        When it, or the one that it is to be made in, is a file or cannot be written.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"{there} is a file: --out needs a folder")
    if not os.access(there, os.W_OK):
        raise UsageError(f"{there} cannot be written: choose another folder for --out")
    return not folder.is_dir() or not any(folder.iterdir())


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


_BYTE = re.compile(r"\(byte (\d+)\)")
"""Where JSON is malformed, as msgspec says it."""


def parse_json(
    content: bytes | str,
    type: builtins.type[Struct],
    what: str,
    file: str | os.PathLike[str],
    format: str | tuple[str, ...] | None = None,
) -> Struct:
    """Read JSON of a known structure.

    Parameters
    ----------
    type : type
        What is expected, as msgspec takes it.
    what : str
        What that is called in errors, such as ``an instance file``.
    file : path
        Where it was read.
    format : str or tuple of str, optional
        What the key ``format`` must have as its value: this, or one of these.

    Raises
    ------
    InputError
        With the path of the key and, where it is a single one, the value that was found there. No
        object may have a key twice.
    """
    if not isinstance(content, str | bytes):
        problem = f"not {what}: a text is needed, found {builtins.type(content).__name__}"
        raise InputError(problem, file=file)
    try:
        content = content.encode() if isinstance(content, str) else content
        read = msgspec.json.decode(content, type=type)
        repeated = _repeated(content, read)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _misread(content, error, type, what, file, format) from error
    if repeated:
        raise InputError(
            f"not {what}: the key stands twice in one object",
            file=file,
            field=repeated,
            advice="leave one of them",
        )
    if wrong := _of_format(content, what, file, format):
        raise wrong
    return read


def _misread(
    content: bytes | str,
    error: Exception,
    type: Any,
    what: str,
    file: str | os.PathLike[str],
    format: str | tuple[str, ...] | None,
) -> InputError:
    """What is wrong with JSON that is not of the structure that was expected."""
    if _plain(content) is None:
        content = content.encode(errors="replace") if isinstance(content, str) else content
        kind = unlike(content, "JSON")
        advice = f"{what} is JSON" if kind else ""
        line = None
        if (place := _BYTE.search(str(error))) is not None and not kind:
            at = int(place[1])
            line = content.count(b"\n", 0, at) + 1
            if content.startswith((b"NaN", b"Infinity"), at):
                advice = "JSON has no NaN and no Infinity: write a number, or leave the key out"
        return InputError(f"not {what}: {error}{kind}", file=file, line=line, advice=advice)
    if wrong := _of_format(content, what, file, format):
        return wrong
    return misfit(error, _plain(content), type, what, file)


def _plain(content: bytes | str) -> Any:
    """What stands in some JSON, of whatever structure; None when it is no JSON."""
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return None


def parse_toml(path: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    what : str
        What it is called in errors, such as ``a dispatcher file``.

    Raises
    ------
    InputError
        When it cannot be read; the message has the line.
    """
    content = read_text(path)
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        kind = unlike(content, "TOML")
        raise InputError(
            f"not {what}: {error}{kind}", file=path,
            advice=f"{what} is TOML" if kind else "",
        ) from error  # fmt: skip


def _of_format(
    content: bytes | str,
    what: str,
    file: str | os.PathLike[str],
    format: str | tuple[str, ...] | None,
) -> InputError | None:
    """The error for JSON that says that it is of another format; None when it does not."""
    read = None if format is None else _plain(content)
    found = read.get("format") if isinstance(read, dict) else None
    known = (format,) if isinstance(format, str) else format or ()
    if not isinstance(found, str) or found in known:
        return None
    expected = " or ".join(map(repr, known))
    return InputError(f"not {what}: expected {expected}", file=file, field="format", value=found)


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of a JSON object, those that stand twice too."""


def _repeated(content: bytes, read: Any) -> str:
    """The path of the first key that stands twice in one object of some JSON; may be empty.

    Whoever decodes JSON keeps the last of like keys, and so loses a colon.
    """
    config = getattr(type(read), "__struct_config__", None)
    # A structure without its defaults has no key that was not there: that is the fast way.
    if config is not None and config.omit_defaults and _colons_kept(content, read):
        return ""
    if _colons_kept(content, msgspec.json.decode(content)):
        return ""
    try:
        return next(_repetitions(json.loads(content, object_pairs_hook=_Pairs)), "")
    except (ValueError, RecursionError):
        return ""


def _colons_kept(content: bytes, read: Any) -> bool:
    """Whether JSON surely has as many colons when what was read is written again."""
    try:
        # An escape in a text could be a colon, and make up for one that was lost.
        return b"\\u" not in content and msgspec.json.encode(read).count(b":") == content.count(
            b":"
        )
    except OverflowError:  # of numbers that are too large to be written
        return False


def _repetitions(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            inside = f"{path}.{key}" if path else key
            if key in seen:
                yield inside
            seen.add(key)
            yield from _repetitions(inner, inside)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _repetitions(inner, f"{path}[{index}]")


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
