"""Logs fetched from a server that is whole, corrupt, slow, broken or dead."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpdispatch import cli
from cpdispatch.errors import InputError, UsageError
from cpdispatch.workloads import archive, prepare

pytest.importorskip("pooch")

ROWS = "".join(f"{k} {k} 0 5 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n" for k in range(1, 4001))
CONTENT = f"; MaxProcs: 4\n{ROWS}".encode()
HALF = len(CONTENT) // 2 // 4096 * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """A server of one file; ``mode`` says how it answers, ``asked`` what it was asked for."""

    mode = "whole"
    asked: list[tuple[str, str | None]]


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        given = self.headers["Range"]
        self.server.asked.append((self.path, given))
        mode = self.server.mode
        first = len(self.server.asked) == 1
        if mode == "missing" or (mode in ("first missing", "busy") and first):
            self.send_error(503 if mode == "busy" else 404)
            return
        begin = int(given[6:-1]) if given and mode != "no ranges" else 0
        body = CONTENT.replace(b"9", b"8") if mode == "corrupt" else CONTENT
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        if mode == "dumb" or (mode in ("breaks", "no ranges", "slow") and first):
            self.wfile.write(body[begin:HALF])
            self.wfile.flush()
            if mode == "slow":
                time.sleep(1.0)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.wfile.write(body[begin:])

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the logs small, whose checksum is known, and new and packed, whose is not."""
    known = archive.Archive(
        "http://nowhere.invalid/",
        {
            "small": archive.Log("l/small.swf", "a pool", sha256=SHA256),
            "new": archive.Log("l/new.swf", "a pool"),
            "packed": archive.Log("l/packed.swf.gz", "a pool"),
        },
    )  # fmt: skip
    monkeypatch.setattr(archive, "archive", lambda: known)
    monkeypatch.setattr(archive, "TIMEOUT_S", (0.5, 0.3))
    found = Server(("127.0.0.1", 0), Answers)
    found.asked = []
    known.base = f"http://127.0.0.1:{found.server_port}/logs/"
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


def test_a_log_is_fetched_once_and_can_be_replayed(server: Server, tmp_path: Path) -> None:
    path = archive.get("small", tmp_path)
    assert path.read_bytes() == CONTENT
    assert archive.get("small", tmp_path) == path
    assert server.asked == [("/logs/l/small.swf", None)]
    assert [file.name for file in tmp_path.iterdir()] == ["small.swf"]
    assert len(prepare(path)[0]) == 4000


def test_a_file_that_was_changed_is_fetched_again(server: Server, tmp_path: Path) -> None:
    path = archive.get("small", tmp_path)
    path.write_bytes(CONTENT[:100])
    assert archive.get("small", tmp_path).read_bytes() == CONTENT


def test_another_file_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.mode = "corrupt"
    with pytest.raises(InputError, match="another file than the one that is known"):
        archive.get("small", tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.mode = "whole"
    assert archive.get("small", tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("mode", ["breaks", "slow", "no ranges"])
def test_an_answer_that_breaks_off_goes_on(server: Server, tmp_path: Path, mode: str) -> None:
    server.mode, said = mode, list[str]()
    assert archive.get("small", tmp_path, say=said.append).read_bytes() == CONTENT
    assert [given for _, given in server.asked] == [None, f"bytes={HALF}-"]
    assert len(said) == 1
    assert f"{HALF:,} bytes" in said[0]


def test_a_later_call_goes_on_where_one_ended(server: Server, tmp_path: Path) -> None:
    server.mode = "dumb"
    with pytest.raises(InputError, match=r"no answer after 4 attempts .* goes on where this one"):
        archive.get("small", tmp_path)
    server.mode = "whole"
    server.asked.clear()
    assert archive.get("small", tmp_path).read_bytes() == CONTENT
    assert server.asked == [("/logs/l/small.swf", f"bytes={HALF}-")]


def test_a_part_stays_where_a_server_refuses_and_a_busy_one_is_asked_again(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / ".small.swf.part").write_bytes(CONTENT[:HALF])
    server.mode, said = "missing", list[str]()
    with pytest.raises(InputError, match="the server refuses: 404"):
        archive.get("small", tmp_path)
    server.mode = "busy"
    server.asked.clear()
    assert archive.get("small", tmp_path, say=said.append).read_bytes() == CONTENT
    assert [given for _, given in server.asked] == [f"bytes={HALF}-"] * 2
    assert f"HTTP status 503 after {HALF:,} bytes; trying to go on" in said[0]


def test_a_dead_server_and_a_missing_file_are_named(server: Server, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(InputError, match=f"{base}/l/small.swf: no answer after 4 attempts"):
            archive.get("small", tmp_path, base)
    server.mode = "missing"
    with pytest.raises(InputError, match="the server refuses: 404"):
        archive.get("small", tmp_path)


def test_the_checksum_of_the_first_download_is_kept(server: Server, tmp_path: Path) -> None:
    said = list[str]()
    path = archive.get("new", tmp_path, say=said.append)
    assert "no checksum is known of new.swf" in said[0]
    noted = (tmp_path / "new.swf.sha256").read_text()
    assert noted == f"{SHA256}  new.swf\n"
    path.unlink()
    server.mode = "corrupt"
    with pytest.raises(InputError, match="another file than the one that is known"):
        archive.get("new", tmp_path)


def test_a_page_and_a_log_cut_short_are_not_kept_where_no_checksum_is_known(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, here = gzip.compress(CONTENT, mtime=0), sys.modules[__name__]
    for body in (b"<html>the archive has moved</html>", packed[:-100]):
        monkeypatch.setattr(here, "CONTENT", body)
        with pytest.raises(
            InputError, match=r"/l/packed.swf.gz: the server sent no log: .* gz data"
        ):
            archive.get("packed", tmp_path)
        assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(here, "CONTENT", packed)
    (tmp_path / "packed.swf.gz.sha256").touch()
    assert archive.get("packed", tmp_path).read_bytes() == packed
    noted = (tmp_path / "packed.swf.gz.sha256").read_text()
    assert noted.startswith(hashlib.sha256(packed).hexdigest())


@pytest.mark.parametrize("base", ["file:///mirror", "/mirror", "example.org"])
def test_a_mirror_that_is_no_web_address_is_refused_at_once(base: str, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UsageError, match=f"--from {base}: an address that begins with https://"):
        archive.get("kth", tmp_path, base, said.append)
    assert said == []


def test_an_unknown_log_and_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown log 'kht'; did you mean kth"):
        archive.get("kht", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        archive.get("kth", tmp_path / "file")


def test_the_list_is_whole_and_the_commands_speak(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = msgspec.toml.decode(archive.LIST.read_bytes(), type=archive.Archive)
    assert all(len(log.sha256) in (0, 64) and log.machine for log in found.logs.values())
    assert cli.run(["archive", "list"]) == 0
    assert "small" in capsys.readouterr().out
    assert cli.run(["archive", "get", "small", "--to", str(tmp_path)]) == 0
    path = tmp_path / "small.swf"
    assert capsys.readouterr().out.splitlines() == [
        str(path), f"next: cpdispatch simulate {path} -d easy -d best"
    ]  # fmt: skip
    assert cli.run(["archive", "get"]) == 2


def test_one_log_that_cannot_be_fetched_does_not_keep_the_others_away(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.mode = "first missing"
    names = ("new", "small")
    assert cli.run(["archive", "get", *names, "--to", str(tmp_path), "--json"]) == 2
    told, said = capsys.readouterr()
    found = json.loads(told)
    assert found["files"] == {"small": str(tmp_path / "small.swf")}
    assert [error["file"] for error in found["errors"]] == ["new.swf"]
    assert said.count("new.swf: the server refuses: 404") == 1
    server.asked.clear()
    assert cli.run(["archive", "get", "small", "smal", "--to", str(tmp_path / "none")]) == 2
    assert "unknown log 'smal'; did you mean small" in capsys.readouterr().err
    assert server.asked == []


def test_checksums_are_those_of_the_logs_at_hand(trace: Any) -> None:
    known = msgspec.toml.decode(archive.LIST.read_bytes(), type=archive.Archive).logs
    for name in ("kth", "hpc2n", "gaia"):
        content = trace(known[name].file.removesuffix(".swf.gz")).read_bytes()
        assert hashlib.sha256(content).hexdigest() == known[name].sha256
