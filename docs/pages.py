"""What the examples in the pages print: run, compared, and written anew.

    python docs/pages.py            # says which examples print something else than their page shows
    python docs/pages.py --write    # writes into the pages what their examples print

An example is a fenced block. Those of one page run one after the other, in one folder:

- ``console``: each line ``$ cpdispatch ...`` is run; the lines below it are what it prints.
- ``python``: run in one namespace; a ``text`` block right below it is what it prints. One whose
  first line is a comment with a file's name, as ``# mine.py``, is saved under that name and not
  run. So is a ``toml`` block that begins so.

A comment above a block says what it needs, ``<!-- log: NAME -->``, why it is not run,
``<!-- not run: reason -->``, or under which name it is saved, ``<!-- file: mine.json -->``.
Figures that are times of the machine may differ, see `masked`.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md")))
TRACES = Path(os.environ.get("CPDISPATCH_TRACES", ROOT.parent / "shared" / "traces"))
RUN = ("console", "python")
COLUMNS = "100"

FENCE = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- (not run|log|file): ([^\n]*?) -->\n\Z")
FILE = re.compile(r"# ([\w.-]+\.(?:py|toml))\n")


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block of a page.

    Attributes
    ----------
    line : int
        Where its content begins, from 1 on.
    language, code : str
        What stands in the block.
    shown : str
        What a ``python`` block prints according to its page.
    span : tuple of int
        Where the output stands in the text of the page; empty if it shows none.
    needs, not_run : str
        The log or the files that it needs, and why it is not run; empty for most.
    named : str
        The name of a file that can have no comment, such as JSON, from the note above it.
    """

    line: int
    language: str
    code: str
    shown: str
    span: tuple[int, int]
    needs: str
    not_run: str
    named: str = ""

    @property
    def file(self) -> str:
        """The name under which it is saved; empty if it is run."""
        found = FILE.match(self.code)
        return found[1] if found else self.named


class LogMissingError(Exception):
    """An example needs a public log that is not there."""


def examples(text: str) -> list[Example]:
    """All blocks of a page that are run, or saved for those that are."""
    blocks = list(FENCE.finditer(text))
    found = []
    for place, block in enumerate(blocks):
        language, code = block[2], block[3]
        note = NOTE.search(text, 0, block.start())
        kind, said = (note[1], note[2]) if note else ("", "")
        is_file = kind == "file" or (language == "toml" and FILE.match(code))
        if language not in RUN and not is_file:
            continue
        span, shown = block.span(3), code
        if language == "python":
            after = blocks[place + 1] if place + 1 < len(blocks) else None
            beside = after is not None and not text[block.end() : after.start()].strip()
            if after is not None and after[2] == "text" and beside:
                span, shown = after.span(3), after[3]
            else:
                span, shown = (0, 0), ""
        found.append(
            Example(
                text.count("\n", 0, block.start()) + 2,
                language,
                code,
                shown,
                span,
                said if kind == "log" else "",
                said if kind == "not run" else "",
                said if kind == "file" else "",
            )
        )
    return found


def masked(text: str) -> str:
    """A text without the times that depend on the machine, and with single spaces in tables."""
    lines, timed, dropped = [], False, 0
    for line in text.splitlines():
        # The percentile of a decision's time stands below its mean.
        timed = line.startswith(("ms a decision", "seconds in all")) or (
            timed and line.startswith("  99th percentile")
        )
        cells = re.split(r"\s{2,}", line.strip())
        if cells[0] == "":
            dropped = 0
        elif "seconds" in cells:  # the head of a table with columns of times: the last ones
            dropped = len(cells) - cells.index("seconds")
        if timed:
            cells = cells[:1]
        elif dropped:
            cells = cells[:-dropped]
        lines.append(re.sub(r"\d[\d,.]* (ms|us|µs)\b", r"... \1", "  ".join(cells)))
    return "\n".join(lines).strip()


def outputs(page: Path, found: Sequence[Example], folder: Path) -> Iterator[tuple[Example, str]]:
    """Run the examples of a page in a folder; yield each with what it prints.

    Raises
    ------
    LogMissingError
        When an example needs a log that is not there. Those below it may depend on it.
    """
    space: dict[str, Any] = {"__name__": "__page__"}
    with working_in(folder):
        for example in found:
            if example.not_run:
                continue
            for log in example.needs.split():
                provide(log, folder)
            if example.file:
                (folder / example.file).write_text(example.code)
                # A module of this name may be left of another page.
                sys.modules.pop(Path(example.file).stem, None)
                importlib.invalidate_caches()
            elif example.language == "python":
                where = "\n" * (example.line - 1)
                printed = io.StringIO()
                with redirect_stdout(printed):
                    exec(compile(where + example.code, str(page), "exec"), space)
                yield example, printed.getvalue()
            else:
                yield example, "".join(commands(example.code))
    for name in list(sys.modules):
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def commands(code: str) -> Iterator[str]:
    """Each command of a console block with what it prints."""
    for part in re.split(r"^(?=\$ )", code, flags=re.MULTILINE):
        if not part.strip():
            continue
        line = re.match(r"\$ (?:[^\n]*\\\n)*[^\n]*\n?", part)
        if line is None:
            raise ValueError(f"a console block begins with '$ ', not with {part!r}")
        arguments = shlex.split(line[0][2:].replace("\\\n", " "), comments=True)
        yield line[0].rstrip("\n") + "\n" + command(arguments)


def command(arguments: Sequence[str]) -> str:
    """What a command prints: ``cpdispatch``, which has to succeed."""
    from cpdispatch.cli import run

    if arguments[0] != "cpdispatch":
        raise ValueError(f"{arguments[0]}: only cpdispatch is run in pages")
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = run(list(arguments[1:]))
    if code:
        raise AssertionError(f"{shlex.join(arguments)} ended with {code}")
    return "\n".join(line.rstrip() for line in printed.getvalue().strip("\n").splitlines()) + "\n"


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Make a folder the working folder, from which modules are imported, too."""
    before = Path.cwd()
    os.chdir(folder)
    changed = {"COLUMNS": COLUMNS, "TERM": "dumb"}
    path = [str(folder), *(str(Path(each).resolve()) for each in sys.path)]
    try:
        with mock.patch.dict(os.environ, changed), mock.patch.object(sys, "path", path):
            yield
    finally:
        os.chdir(before)


def provide(log: str, folder: Path) -> None:
    """Make a public log, or a file of the examples, available in a folder."""
    ours = ROOT / log
    source = ours if ours.is_file() else TRACES / f"{log}.swf.gz"
    if not source.exists():
        raise LogMissingError(
            f"no log {source}: set CPDISPATCH_TRACES to the folder that holds the logs"
        )
    target = folder / source.name
    if not target.exists():
        target.symlink_to(source)


def rewritten(page: Path, printed: Mapping[tuple[int, int], str]) -> str:
    """The text of a page with other outputs."""
    text = page.read_text()
    for (begin, end), output in sorted(printed.items(), reverse=True):
        text = text[:begin] + output + text[end:]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write what the examples print")
    parser.add_argument("pages", nargs="*", type=Path, help="these pages only")
    given = parser.parse_args()
    differ = 0
    for page in [path.resolve() for path in given.pages] or PAGES:
        found = examples(page.read_text())
        other: dict[tuple[int, int], str] = {}
        with tempfile.TemporaryDirectory() as folder:
            try:
                for example, output in outputs(page, found, Path(folder).resolve()):
                    if example.span != (0, 0) and masked(output) != masked(example.shown):
                        other[example.span] = output
                        print(f"{page.relative_to(ROOT)}:{example.line} differs", file=sys.stderr)
            except LogMissingError as error:
                print(f"{page.relative_to(ROOT)}: {error}", file=sys.stderr)
                return 2
        if given.write and other:
            page.write_text(rewritten(page, other))
        differ += len(other)
    return int(bool(differ) and not given.write)


if __name__ == "__main__":
    sys.exit(main())
