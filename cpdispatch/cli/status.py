"""The command status: one moment of a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cpdispatch.cli.options import Json, Whole
from cpdispatch.cli.output import DONE, RefusedFiles, console_of_stdout, print_json, table_of
from cpdispatch.cli.runs import load_runs
from cpdispatch.cli.watch import look
from cpdispatch.cli.watch import saved as saved_in
from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from cpdispatch.analyze.moment import Moment, Waiting
    from cpdispatch.simulator import Run

ROWS = 10
"""Jobs that are shown of those that ran, and of those that waited; ``--json`` has all."""
NODES = 24
"""Characters of a list of nodes at most."""
BAR = 20
"""Characters of a bar."""


def status(
    run: Path, *, at: Annotated[Whole, Parameter(show_default=False)], json: Json = False
) -> int:
    """Say what ran where at a time of a saved run, what waited and why, and what was in use.

    Parameters
    ----------
    run
        Folder of a run that was saved with simulate --out, or of several. A run that is not
        finished has no schedule yet: see the command watch.
    at
        Seconds on the clock of the log.
    json
        Print one JSON object.
    """
    from cpdispatch.analyze.moment import moment

    if look(run) and not saved_in(run):
        raise UsageError(
            f"{run} holds no finished run, and so no schedule yet: cpdispatch watch {run} shows "
            "what it is at; simulate --resume goes on with one that was stopped"
        )
    refused, found, outside = RefusedFiles(), [], None
    for folder, saved in load_runs([run], refused):
        try:
            found.append((folder, saved, moment(saved.occupancy, at)))
        except UsageError as error:
            outside = UsageError(f"{folder}: {error}")
    if not found and outside is not None:
        raise outside
    if json:
        print_json(
            {
                "moments": [
                    {"run": str(folder), "dispatcher": saved.about["dispatcher"], "moment": each}
                    for folder, saved, each in found
                ],
                "errors": refused.errors,
            }
        )
        return refused.code(DONE)
    console = console_of_stdout()
    for number, (_, saved, each) in enumerate(found):
        if number:
            console.print()
        show(console, each, saved)
    return refused.code(DONE)


def show(console: Console, found: Moment, run: Run) -> None:
    """Print a moment for people."""
    from rich.markup import escape

    about = run.about
    console.print(
        f"[bold]{about['dispatcher']}[/] ({about['workload']} on {about['system']['name']}) at "
        f"{found.at_s} s: {len(found.running):,} running, {len(found.waiting):,} waiting\n"
    )
    table = table_of("", ("group", "resource", "in use"), ("", ""))
    for use in found.use:
        share = use.held / use.total
        bar = escape(f"[{'#' * round(share * BAR):<{BAR}}]")
        table.add_row(
            use.group, use.resource, bar, f"{share:.0%}", f"{use.held:,} of {use.total:,}"
        )
    console.print(table)
    for name, out in (("down", found.down), ("drained", found.drained)):
        if out:
            console.print(f"{name}: {'node' if len(out) == 1 else 'nodes'} {spans(out)}")
    if found.running:
        console.print(f"\n[bold]Running[/]{part(len(found.running), 'those that end first')}")
        table = table_of("", (), ("job", "since s", "until s", "units"))
        table.add_column("nodes")
        for job in sorted(found.running, key=lambda job: (job.end_s, job.job))[:ROWS]:
            names = spans(tuple(node for node, _ in job.nodes))
            nodes = names if len(names) <= NODES else f"{names[: NODES - 3]}..."
            table.add_row(str(job.job), str(job.start_s), str(job.end_s), f"{job.units:,}", nodes)
        console.print(table)
    if found.waiting:
        console.print(f"\n[bold]Waiting[/]{part(len(found.waiting), 'those submitted first')}")
        table = table_of("", (), ("job", "units", "waits for", "started s"))
        table.add_column("held back by")
        from cpdispatch.analyze.compare import duration

        of_system = about["system"]
        limited = of_system.get("limits") or of_system.get("licences")
        or_else = " or a limit" if limited else ""
        or_else += " or the power cap" if about.get("power_cap") else ""
        for each in found.waiting[:ROWS]:
            started = "never" if each.start_s is None else str(each.start_s)
            waited = duration(found.at_s - each.submit_s)
            table.add_row(str(each.job), f"{each.units:,}", waited, started, held_by(each, or_else))
        console.print(table)


def held_by(job: Waiting, or_else: str = "") -> str:
    """What holds a job back, in few words, or else may: what a run does not keep."""
    if job.cause == "job":
        return "the job after which it comes"
    if job.cause == "order":
        return f"the dispatcher{or_else}: it fits"
    room = f"room for {job.room:,} of {job.units:,} units"
    from cpdispatch.access import said

    return f"{' and '.join(map(said, job.lacking))}: {room}"


def part(number: int, which: str) -> str:
    """What is said where not all are shown."""
    return f" ({ROWS} of {number:,}: {which}; --json has all)" if number > ROWS else ""


def spans(numbers: tuple[int, ...]) -> str:
    """Ascending numbers in few characters: 0-3, 7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{low}-{high}" if low < high else str(low) for low, high in found)
