"""What commands print: JSON, tables, progress, exit codes, files that are refused."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from cpdispatch.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

STARTING = "starting"
"""What a command is at while its libraries are loaded."""

BEAT_S = 30.0
"""Seconds between two lines of a `Heartbeat`."""

DONE, FINDINGS, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def print_json(data: dict[str, Any]) -> None:
    """Print one JSON object."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
    sys.stdout.flush()  # commands that go on print one after the other


def console_of(*, stderr: bool) -> Console:
    """What prints tables and text for people, as they are: names may have brackets and colons."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def console_of_stdout() -> Console:
    """What prints the results of a command for people."""
    return console_of(stderr=False)


def bold(text: str, rest: str = "") -> Text:
    """A text that stands out, and what follows it."""
    from rich.text import Text

    return Text.assemble((text, "bold"), rest)


def print_sentence(console: Console, text: str, style: str = "") -> None:
    """Print a sentence: a terminal breaks it between words, elsewhere it is one line."""
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def command_line(*words: str | Path) -> str:
    """A command of this program as a shell reads it; a name with spaces is in quotes."""
    return shlex.join(["cpdispatch", *map(str, words)])


def table_of(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    """An empty table; its columns are aligned to the left, and then to the right.

    What does not fit a narrow terminal is folded, never cut.
    """
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    return table


def print_in_whole_lines(console: Console, table: Table) -> None:
    """Print a table of figures, whose cells cannot be read when they are folded.

    A terminal that is too narrow breaks its lines.
    """
    from rich.measure import Measurement

    width = console.width
    free = console.options.update(max_width=10_000)
    console.width = max(width, Measurement.get(console, free, table).maximum)
    console.print(table)
    console.width = width


class Heartbeat:
    """Says something on standard error every half minute, where that is no terminal."""

    def __init__(self) -> None:
        self._began = self._said = monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return monotonic() - self._began

    def say(self, text: Callable[[], str]) -> None:
        """Print the text, if it is time."""
        if monotonic() - self._said >= BEAT_S:
            self._said = monotonic()
            print(text(), file=sys.stderr, flush=True)


@contextmanager
def progress_bars() -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Bars on standard error, one a phase; a line every half minute when that is no terminal.

    The time so far goes on while the share that is done stands still, as it does while kernels are
    compiled.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = console_of(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TextColumn("so far,"), TimeRemainingColumn(), TextColumn("left"),
        console=console, disable=not console.is_terminal, transient=True,
    ) as bars:  # fmt: skip

        def show(name: str) -> Callable[[float], None]:
            task, beat = bars.add_task(name, total=1.0), Heartbeat()

            def advance(share: float) -> None:
                bars.update(task, completed=share)
                if not console.is_terminal:
                    beat.say(lambda: f"{name}: {share:.0%} after {beat.seconds:,.0f} s")

            return advance

        try:
            yield show
        finally:
            leave_lost_terminal()


@contextmanager
def status(text: str) -> Iterator[None]:
    """What is being done in this block, on standard error; nothing when that is no terminal."""
    from rich.text import Text

    console = console_of(stderr=True)
    try:
        with console.status(Text(text)) if console.is_terminal else nullcontext():
            yield
    finally:
        leave_lost_terminal()


def leave_lost_terminal() -> None:
    """Have nothing written any more to a terminal that is gone, which would be an error."""
    for output in (1, 2):
        try:
            os.write(output, b"")
        except OSError as error:
            if error.errno == errno.EIO:
                leave(output)


def leave(output: int) -> None:
    """Have nothing written any more to an output (1 or 2), not even what is buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)


class RefusedFiles:
    """Files that cannot be read: each is reported on standard error at once, and only once."""

    def __init__(self) -> None:
        self.errors: list[dict[str, str]] = []

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Read a file in this block; the block ends where the file is refused."""
        try:
            yield
        except InputError as error:
            self.report(path, str(error))

    def report(self, path: Path, error: str) -> None:
        """Say what is wrong with a file, unless it was said before."""
        found = {"file": str(path), "error": error}
        if found not in self.errors:
            print(f"cpdispatch: {error}", file=sys.stderr)
            self.errors.append(found)

    def code(self, otherwise: int) -> int:
        """The exit code: that of bad input when there was any."""
        return BAD_INPUT if self.errors else otherwise
