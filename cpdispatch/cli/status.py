"""The command status: one moment of a run, finished or not."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cpdispatch.cli.options import Json
from cpdispatch.cli.output import (
    DONE,
    RefusedFiles,
    bold,
    console_of_stdout,
    print_in_whole_lines,
    print_json,
    table_of,
)
from cpdispatch.cli.runs import load_runs
from cpdispatch.cli.times import Times
from cpdispatch.cli.watch import look, table_of_use
from cpdispatch.cli.watch import saved as saved_in
from cpdispatch.errors import InputError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from cpdispatch.analyze.moment import Moment, Waiting
    from cpdispatch.simulator import Run

ROWS = 10
"""Jobs that are shown of those that ran, and of those that waited; ``--json`` has all."""
NODES = 24
"""Characters of a list of nodes at most."""


def status(
    run: Path, *, at: Annotated[str, Parameter(show_default=False)], json: Json = False
) -> int:
    """Say what ran where at one time of a run, what waited and why, and what was in use.

    A run that goes on or was stopped is known up to its last checkpoint.

    Parameters
    ----------
    run
        Folder of a run (simulate --out), or of several runs.
    at
        The time: a date and time (UTC) where the log says when it began, for example
        2026-01-31T12:00, or seconds on the clock of the log.
    json
        Print one JSON object.
    """
    refused, found = RefusedFiles(), []
    begun = unfinished(run, refused)
    for folder, known, until_s in _runs(run, begun, refused):
        times = Times.of(known)
        try:
            each = known.moment(times.read(at), until_s, times.said)
            found.append((folder, known, each, until_s))
        except UsageError as error:
            refused.report(folder, f"{folder}: {error}")
    if json:
        print_json(
            {
                "moments": [
                    {
                        "run": str(folder),
                        "dispatcher": known.about["dispatcher"],
                        "began_s": Times.of(known).began_s,
                        "known_until_s": until_s,
                        "moment": each,
                    }
                    for folder, known, each, until_s in found
                ],
                "errors": refused.errors,
            }
        )
        return refused.code(DONE)
    console = console_of_stdout()
    for number, (_, known, each, until_s) in enumerate(found):
        if number:
            console.print()
        show(console, each, known, until_s)
    return refused.code(DONE)


def unfinished(folder: Path, refused: RefusedFiles) -> list[Path]:
    """The runs in a folder that were begun and are not finished."""
    from cpdispatch.simulator.saved import CHECKPOINT

    begun = {path.parent for path in folder.glob(f"**/{CHECKPOINT}")}
    begun |= set(map(Path, look(folder, refused)))
    return sorted(begun - set(saved_in(folder)))


def _runs(
    run: Path, begun: list[Path], refused: RefusedFiles
) -> Iterator[tuple[Path, Run, int | None]]:
    """Runs, finished ones first, and until when those are known that are not."""
    from cpdispatch.simulator.replay import LOG, so_far

    if saved_in(run) or not begun:
        for folder, saved in load_runs([run], refused, tell=False):
            yield folder, saved, None
    for folder in begun:
        known = None
        with refused.reading(folder):
            if not (folder / LOG).exists():  # it is written after the first checkpoint
                raise InputError(
                    "the run is not finished and has no checkpoint yet",
                    file=folder,
                    advice="ask again after some seconds, or see cpdispatch watch; a replay with "
                    "--window keeps none",
                )
            known = so_far(folder)
        if known is not None:
            yield folder, *known


def show(console: Console, found: Moment, run: Run, until_s: int | None = None) -> None:
    """Print a moment for people; ``until_s`` is until when a run is known that is not finished."""
    about, times = run.about, Times.of(run)
    where = f"({about['workload']} on {about['system']['name']}) at {times.said(found.at_s)}"
    many = f"{len(found.running):,} running, {len(found.waiting):,} waiting"
    console.print(bold(about["dispatcher"], f" {where}: {many}\n"))
    if until_s is not None:
        console.print(f"Not finished; its last checkpoint is at {times.said(until_s)}.\n")
    print_in_whole_lines(console, table_of_use(found.use))
    for name, out in (
        ("down", found.down),
        ("drained", found.drained),
        ("switched off", found.off),
    ):
        if out:
            console.print(f"{name}: {'node' if len(out) == 1 else 'nodes'} {spans(out)}")
    if found.running:
        console.print(bold("\nRunning", part(len(found.running), "those that end first")))
        table = table_of("", (), ("job", times.column("since"), times.column("until"), "units"))
        table.add_column("nodes")
        for job in sorted(found.running, key=lambda job: (job.end_s or inf, job.job))[:ROWS]:
            names = spans(tuple(node for node, _ in job.nodes))
            nodes = names if len(names) <= NODES else f"{names[: NODES - 3]}..."
            until = "-" if job.end_s is None else times.cell(job.end_s)
            since = times.cell(job.start_s)
            table.add_row(str(job.job), since, until, f"{job.units:,}", nodes)
        console.print(table)
    if found.waiting:
        console.print(bold("\nWaiting", part(len(found.waiting), "those submitted first")))
        table = table_of("", (), ("job", "units", "waits for", times.column("started")))
        table.add_column("held back by")
        from cpdispatch.analyze.compare import duration

        never = "never" if until_s is None else "not yet"
        # Before the cap falls, a longer job in the queue may have kept a shorter one back.
        or_else = " or the power cap" if len(about.get("power_cap") or ()) > 1 else ""
        for each in found.waiting[:ROWS]:
            started = never if each.start_s is None else times.cell(each.start_s)
            waited = duration(found.at_s - each.submit_s)
            table.add_row(str(each.job), f"{each.units:,}", waited, started, held_by(each, or_else))
        console.print(table)


def held_by(job: Waiting, or_else: str = "") -> str:
    """What holds a job back, in few words, or else may: what a run does not keep."""
    if job.cause == "job":
        return "the job after which it comes"
    if job.cause == "limit":
        return " and ".join(job.lacking)
    if job.cause == "maintenance":
        room = f"room for {job.room:,} of {job.units:,} units otherwise"
        return f"maintenance into which it was expected to run: {room}"
    if job.cause == "order":
        return f"the dispatcher{or_else}: it fits"
    room = f"room for {job.room:,} of {job.units:,} units"
    from cpdispatch.access import said

    return f"{' and '.join(map(said, job.lacking))}: {room}"


def part(number: int, which: str) -> str:
    """What is said where not all are shown."""
    return f" ({ROWS} of {number:,}: {which}; --json has all)" if number > ROWS else ""


def spans(numbers: tuple[int, ...]) -> str:
    """Numbers in few characters: 0-3, 7."""
    from cpdispatch.system import ranges_of

    return ranges_of(sorted(numbers)).replace(" ", ", ")
