"""The command watch: what simulations are at, from another terminal; and how that is shown."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cpdispatch.cli.options import Flag, Json
from cpdispatch.cli.output import (
    DONE,
    Heartbeat,
    RefusedFiles,
    console_of,
    console_of_stdout,
    leave_lost_terminal,
    print_json,
    table_of,
)
from cpdispatch.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from cpdispatch.analyze.moment import Use
    from cpdispatch.simulator.live import Live

EVERY_S = 1.0
"""Seconds between two looks at the files."""
SILENT_S = 60.0
"""After so many seconds without news, that is said."""
NEXT_S = 30.0
"""So long a process may take from one simulation to the next."""
BAR = 20
"""Characters of a bar."""


def watch(folder: Path, *, once: Flag = False, json: Json = False) -> int:
    """Show the progress of the simulations in a folder, until all of them are over.

    A simulation with --out writes its progress about once a second. If the output is not a
    terminal, there is a line every half minute. A file that cannot be read is reported on standard
    error. The other simulations are shown.

    Parameters
    ----------
    folder
        Folder of the runs (simulate --out).
    once
        Show it once.
    json
        Print one JSON object, once.
    """
    refused = RefusedFiles()
    found = look(folder, refused)
    any_here = bool(found or saved(folder) or stopped(folder))
    if not (any_here or refused.errors):
        raise InputError(
            "holds no simulation",
            file=folder,
            advice="name the folder that simulate was given as --out, once it has started",
        )
    if json:
        over = {"finished": saved(folder), "stopped": stopped(folder)}
        paths = {what: [str(path) for path in of] for what, of in over.items()}
        print_json({"running": found, **paths, "errors": refused.errors})
        return refused.code(DONE)
    console = console_of_stdout()
    if not any_here:
        return refused.code(DONE)
    if once or not found or not console.is_terminal:
        console.print(view(found, folder))
    if once or not found:
        return refused.code(DONE)
    if console.is_terminal:
        with live_view(lambda: view(look(folder, refused), folder), stderr=False):
            _wait(folder, lambda found: None, refused)
    else:
        beat = Heartbeat()
        _wait(folder, lambda found: beat.say(lambda: "\n".join(map(line, found.values()))), refused)
    console.print(view(look(folder, refused), folder))
    return refused.code(DONE)


def _wait(folder: Path, see: Callable[[Mapping[str, Live]], None], refused: RefusedFiles) -> None:
    """Wait until all simulations in a folder are over or gone.

    A process that has ended one may begin the next: it is waited for until it ends, too, or has
    not begun one for long.
    """
    seen: dict[tuple[str, int], Live] = {}
    last = time.monotonic()
    while True:
        found = look(folder, refused)
        seen |= {(told.host, told.pid): told for told in found.values()}
        if not all(map(gone, found.values())):
            last = time.monotonic()
            see(found)
        elif all(map(gone, seen.values())) or time.monotonic() - last > NEXT_S:
            return
        time.sleep(EVERY_S)


def look(folder: Path, refused: RefusedFiles) -> dict[str, Live]:
    """What the simulations in a folder that are not over say, by folder."""
    from cpdispatch.simulator.live import STATUS, read

    found = {}
    for path in sorted(folder.glob(f"**/{STATUS}")):
        with refused.reading(path):
            told = read(path)
            if told is not None and not told.over:
                found[str(path.parent)] = told
    return found


def saved(folder: Path) -> list[Path]:
    """The finished runs in a folder."""
    from cpdispatch.simulator.saved import ABOUT

    return sorted(path.parent for path in folder.glob(f"**/{ABOUT}"))


def stopped(folder: Path) -> list[Path]:
    """The runs in a folder that ended before they were finished, and said so."""
    from cpdispatch.simulator.live import STATUS
    from cpdispatch.simulator.saved import CHECKPOINT

    paths = sorted(path.parent for path in folder.glob(f"**/{CHECKPOINT}"))
    return [path for path in paths if not (path / STATUS).exists()]


def gone(told: Live) -> bool:
    """Whether the process of a simulation has ended without saying so, on this machine."""
    if told.host != socket.gethostname():
        return False
    try:
        os.kill(told.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def line(told: Live) -> str:
    """What a simulation is at, in a line."""
    from cpdispatch.analyze.compare import duration

    left = "" if told.left_s is None else f", {duration(told.left_s)} left"
    return (
        f"{told.dispatcher}, {told.workload}: {told.share:.0%} of {told.jobs:,} jobs, at "
        f"{told.time_s} s, {told.queue:,} waiting, {told.running:,} running{left}"
    )


def view(found: Mapping[str, Live], folder: Path | None = None) -> RenderableType:
    """What simulations are at, for people: one in full, or a line for each of several.

    With a folder, how many in it are over.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if len(found) == 1:
        parts += whole(next(iter(found.values())))
    elif found:
        parts.append(lines(found))
    if folder is not None and (finished := len(saved(folder))):
        parts.append(Text(f"{finished:,} finished: cpdispatch compare shows what came out"))
    if folder is not None and (before := len(stopped(folder))):
        parts.append(Text(f"{before:,} stopped: simulate --resume goes on from checkpoints"))
    if not parts:
        parts.append(Text("starting"))
    return Group(*parts)


def whole(told: Live) -> Iterator[RenderableType]:
    """One simulation in full."""
    from rich.text import Text

    from cpdispatch.analyze.compare import duration

    left = "" if told.left_s is None or gone(told) else f", {duration(told.left_s)} left"
    speed = told.share * told.jobs / told.seconds if told.seconds else 0.0
    yield Text(f"{told.dispatcher} ({told.workload} on {told.system})", style="bold")
    yield Text(f"{bar(told.share)} {told.share:.0%}, {duration(told.seconds)} so far{left}")
    yield Text(
        f"simulated time {told.time_s} s; {speed:,.0f} jobs a second; {told.queue:,} waiting, "
        f"{told.running:,} running, {told.dispatches:,} decisions"
    )
    yield table_of_use(told.use)
    last = table_of("", ("last decisions at",), ("queue", "started", "ms"))
    for each in told.last:
        ms = "-" if each.ms is None or each.ms != each.ms else f"{each.ms:,.1f}"
        last.add_row(f"{each.time_s} s", f"{each.queue:,}", f"{each.started:,}", ms)
    yield last
    if news := silence(told):
        yield Text(news)


def lines(found: Mapping[str, Live]) -> Table:
    """A row for each of several simulations."""
    from rich.text import Text

    from cpdispatch.analyze.compare import duration

    table = table_of("", ("run", "done"), ("", "at s", "waiting", "running", "in use", "left"))
    for told in found.values():
        in_use = max((use.held / use.total for use in told.use), default=0.0)
        left = "-" if told.left_s is None else duration(told.left_s)
        table.add_row(
            f"{told.dispatcher}, {told.workload}", Text(bar(told.share, 10)), f"{told.share:.0%}",
            str(told.time_s), f"{told.queue:,}", f"{told.running:,}", f"{in_use:.0%}",
            silence(told) or left,
        )  # fmt: skip
    return table


def silence(told: Live) -> str:
    """What is said of a simulation that says nothing any more; empty for others."""
    from cpdispatch.analyze.compare import duration

    if gone(told):
        return "stopped: simulate --resume goes on from its checkpoint"
    silent_s = time.time() - told.written_at
    return f"no news for {duration(silent_s)}" if silent_s > SILENT_S else ""


def table_of_use(found: Iterable[Use]) -> Table:
    """How much is in use of each resource type of each group."""
    from rich.text import Text

    table = table_of("", ("group", "resource", "in use"), ("", ""))
    for use in found:
        share, held = use.held / use.total, f"{use.held:,} of {use.total:,}"
        table.add_row(use.group, use.resource, Text(bar(share)), f"{share:.0%}", held)
    return table


def bar(share: float, width: int = BAR) -> str:
    """A share as a bar of characters that every terminal has."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return f"[{'#' * full}{' ' * (width - full)}]"


@contextmanager
def live_view(made: Callable[[], RenderableType], *, stderr: bool) -> Iterator[None]:
    """Show what is made anew about once a second, in place, while the block goes on."""
    from rich.live import Live as InPlace
    from rich.text import Text

    def safe() -> RenderableType:
        try:
            return made()
        except InputError as error:  # in a thread of its own
            return Text(str(error))

    shown = InPlace(
        get_renderable=safe, console=console_of(stderr=stderr), refresh_per_second=1 / EVERY_S,
        transient=True,
    )  # fmt: skip
    try:
        with shown:
            yield
    finally:
        leave_lost_terminal()


@contextmanager
def watched(folder: Path) -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Show what the simulations of this command are at, as `progress_bars` shows how much is done.

    Where standard error is no terminal, there is a line every half minute.
    """
    refused = RefusedFiles()
    if console_of(stderr=True).is_terminal:
        with live_view(lambda: view(look(folder, refused)), stderr=True):
            yield lambda name: lambda share: None
        return
    beat = Heartbeat()

    def show(name: str) -> Callable[[float], None]:
        return lambda share: beat.say(
            lambda: "\n".join(map(line, look(folder, refused).values())) or f"{name}: {share:.0%}"
        )

    yield show
