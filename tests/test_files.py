"""Reading packed files, and writing files whole or not at all."""

from __future__ import annotations

import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import read_bytes, read_text, replacing, write_bytes

SUFFIXES = ["", ".gz", ".xz", ".zst"]
CONTENT = b"the whole content\n" * 1000


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_written_is_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    write_bytes(path, CONTENT)
    assert read_bytes(path) == CONTENT
    assert (path.stat().st_size < 1000) == (suffix != "")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_content_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        write_bytes(tmp_path / f"{name}{suffix}", CONTENT)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@given(st.sampled_from(SUFFIXES[1:]), st.data())
def test_data_cut_short_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / f"log.swf{suffix}"
    write_bytes(path, CONTENT)
    packed = path.read_bytes()
    path.write_bytes(packed[: data.draw(st.integers(0, len(packed) - 1))])
    with pytest.raises(InputError) as refused:
        read_bytes(path)
    assert str(refused.value).startswith(f"{path}: the {suffix[1:]} data is damaged or cut short")


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_data_that_was_never_packed_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_bytes(CONTENT)
    with pytest.raises(InputError, match="damaged or cut short"):
        read_bytes(path)


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
@pytest.mark.parametrize("name", ["log.swf", "file", "log.swf.gz", "i.json.zst"])
def test_packed_data_is_unpacked_whatever_the_name_says(
    tmp_path: Path, name: str, suffix: str
) -> None:
    write_bytes(tmp_path / f"packed{suffix}", CONTENT)
    (tmp_path / f"packed{suffix}").rename(tmp_path / name)
    assert read_bytes(tmp_path / name) == CONTENT
    packed = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(packed[:-9])
    with pytest.raises(InputError, match=rf"the {suffix[1:]} data is damaged or cut short"):
        read_bytes(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1\x15\x04", r"this is a Parquet table; .* the extension \.parquet"),
        (b"PK\x03\x04abc", "this is a ZIP archive; unpack it"),
        (b"BZh91AY", "this is packed by bzip2; unpack it"),
        ('{"a": 1}'.encode("utf-16"), "this is UTF-16 text; save it as UTF-8"),
        (b"one\ntwo\n\0", ":3: text is needed, this has a zero byte"),
    ],
)
def test_what_is_no_text_is_called_what_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as refused:
        read_text(path)
    assert str(refused.value).startswith(f"{path}:")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_text_comes_without_a_byte_order_mark(tmp_path: Path, mark: bytes) -> None:
    write_bytes(tmp_path / "file.gz", mark + "café".encode())
    assert read_text(tmp_path / "file.gz").decode() == "café"


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_several_packed_parts_in_one_file_are_all_read(
    tmp_path: Path, suffix: str, pack: object
) -> None:
    assert callable(pack)
    path = tmp_path / f"log{suffix}"
    path.write_bytes(pack(b"one ") + pack(b"two"))
    assert read_bytes(path) == b"one two"


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.swf: no such file"):
        read_bytes(tmp_path / "nowhere.swf")


def test_a_directory_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a directory; name a file in it"):
        read_bytes(tmp_path)


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be read"):
        read_bytes(tmp_path / "file" / "log.swf")
    with pytest.raises(UsageError, match="cannot be written"):
        write_bytes(tmp_path / "file" / "log.swf", b"")


# ---------------------------------------------------------------------------- writing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
        assert temporary.parent == path.parent
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


FILL = """
import resource, signal, sys
from cpdispatch.errors import UsageError
from cpdispatch.files import write_bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_bytes(sys.argv[1], bytes(5000))
except UsageError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on file sizes there")
@pytest.mark.parametrize("old", [b"old", None])
def test_a_write_that_the_disk_refuses_half_way_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, old: bytes | None
) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    command = [sys.executable, "-c", FILL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}: cannot be written: File too large; nothing was changed\n"
    assert names(tmp_path) == ([] if old is None else ["file"])
    assert old is None or path.read_bytes() == old


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_full_device_is_an_error_and_stays_a_device() -> None:
    with pytest.raises(UsageError, match="/dev/full: cannot be written: No space left on device"):
        write_bytes("/dev/full", CONTENT)
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_bytes(pipe, b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert names(tmp_path) == ["pipe"]


def test_a_symbolic_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_folder_in_the_way_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="folder: cannot be written"):
        write_bytes(tmp_path / "folder", b"")
    assert names(tmp_path) == ["folder"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a" / "b" / "file", b"content")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"content"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_new_file_has_the_permissions_that_the_user_asked_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
