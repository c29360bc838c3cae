"""The command explain: why a job waits, and what would have let it start sooner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cpdispatch.cli.options import Json, Whole
from cpdispatch.cli.output import DONE, RefusedFiles, bold, console_of_stdout, print_json, table_of
from cpdispatch.cli.runs import load_runs
from cpdispatch.cli.times import Times
from cpdispatch.errors import UsageError
from cpdispatch.words import counted, listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from cpdispatch.analyze.explain import Explanation, Stretch
    from cpdispatch.simulator import Run

ROWS = 8
"""Rows of a table at most; ``--json`` has all."""
IDS = 6
"""Jobs that are named at most."""


def explain(
    run: Path,
    *,
    job: Annotated[Whole, Parameter(show_default=False)],
    json: Json = False,
) -> int:
    """Say why a job waited in a saved run, and what would have let it start sooner.

    All other jobs keep their starts, ends and nodes.

    Parameters
    ----------
    run
        Folder of a saved run (simulate --out), or of several runs.
    job
        The job's number, as in the log. Of 4711_3 in Slurm it stands in the import's extra.csv.
    json
        Print one JSON object.
    """
    from cpdispatch.analyze import explain as why

    refused, found = RefusedFiles(), []
    for folder, saved in load_runs([run], refused):
        try:
            found.append((folder, saved, saved.explain(job)))
        except UsageError as error:
            refused.report(folder, f"{folder}: {error}")
    if json:
        explained = [
            {
                "run": str(folder),
                **names_of(saved),
                "began_s": Times.of(saved).began_s,
                **why.as_dict(each),
            }
            for folder, saved, each in found
        ]
        print_json({"explanations": explained, "errors": refused.errors})
        return refused.code(DONE)
    console = console_of_stdout()
    for number, (_, saved, each) in enumerate(found):
        if number:
            console.print()
        show(console, each, saved)
    return refused.code(DONE)


def names_of(run: Run) -> dict[str, Any]:
    """Which run it is."""
    return {key: run.about[key] for key in ("workload", "dispatcher", "predictor")}


def show(console: Console, found: Explanation, run: Run) -> None:
    """Print an explanation for people."""
    from cpdispatch.analyze.compare import duration

    if found.wait_s is None:
        head = "never started"
    elif found.wait_s:
        head = f"waited {duration(found.wait_s)}"
    else:
        head = "did not wait"
    names, times = run.about, Times.of(run)
    where = f"under {names['dispatcher']} ({names['workload']} on {names['system']['name']})"
    console.print(bold(f"Job {found.job} {head}", f" {where}\n"))
    facts = grid()
    for name, text in facts_of(found, times, run):
        facts.add_row(name, text)
    console.print(facts)
    if found.stretches:
        console.print(bold("\nWhat held it back"))
        for text in others(found):
            console.print(bullet(text))
        console.print()
        console.print(waiting(found, times))
        for text in after_waiting(found):
            console.print(bullet(text))
        console.print(bold("\nWhat would have let it start sooner"))
        console.print(
            "The rest of the schedule is held as it was: every other job keeps its start, its end "
            "and its nodes."
        )
        for part in sooner(found, times):
            if isinstance(part, str):
                console.print()
            console.print(part)


def grid() -> Table:
    """An empty table of facts: a name, and a text that is wrapped beside it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    return table


def bullet(text: str) -> Table:
    """A line that is wrapped below its beginning."""
    table = grid()
    table.add_row("-", text)
    return table


def ids(jobs: Sequence[int]) -> str:
    """Jobs by name: job 3; jobs 3 and 4; jobs 3, 4 and 12 more."""
    return f"job{'s' * (len(jobs) != 1)} {listed([str(job) for job in jobs], IDS)}"


def units_of(found: Explanation) -> str:
    """What the job asks for."""
    from cpdispatch.access import NOWHERE, wished
    from cpdispatch.system import FIRST, is_own

    own = [(name, asked) for name, asked in found.request if is_own(name)]
    each = ", ".join(f"{asked} {name}" for name, asked in own) or "nothing"
    places = wished([name for name, _ in found.request])
    on = f", on nodes of {' and '.join(places)}" if places else ""
    on = ", on no node" if NOWHERE in places else on
    once = ", ".join(
        f"{asked} {name.removeprefix(FIRST)}"
        for name, asked in found.request
        if name.startswith(FIRST)
    )
    more = f", and {once} once, on its first node" if once else ""
    return f"{counted(found.units, 'unit')} of {each}" + " each" * (found.units != 1) + more + on


def facts_of(found: Explanation, times: Times, run: Run) -> Iterator[tuple[str, str]]:
    """What the job asked for, and what became of it."""
    from cpdispatch.analyze.compare import duration

    yield "asks for", f"{units_of(found)}, for {duration(found.requested_s)}"
    if found.expected_s not in (found.requested_s, -1):
        yield "predicted", f"to run for {duration(found.expected_s)}"
    yield "submitted", f"at {times.said(found.submit_s)}"
    if found.promised_s is not None and found.promised_at_s is not None:
        late = ""
        if found.start_s is not None and found.start_s != found.promised_s:
            by = duration(abs(found.start_s - found.promised_s))
            late = f": it started {by} {'later' if found.start_s > found.promised_s else 'sooner'}"
        yield (
            "promised",
            (f"{times.said(found.promised_s)}, told at {times.said(found.promised_at_s)}{late}"),
        )
    elif found.wait_s != 0:
        unrecorded = "the run is a compiled replay, or of an earlier version"
        if "recorded" in run.about:
            unrecorded = "Slurm's records have no promises"
        yield "promised", "no start" if found.promises_known else f"not recorded: {unrecorded}"
    for number, ((begin, end), test) in enumerate(zip(found.attempts, found.tests, strict=True)):
        yield (
            "then tried" if number else "first tried",
            f"{'in a test run ' * test}from {times.said(begin)} to {times.said(end)}, when it was "
            "stopped, to be queued again",
        )
    if found.saved_s:
        yield "kept", f"{duration(found.saved_s)} of that by its checkpoints, which is no wait"
    if found.start_s is None or found.end_s is None or found.ran_s is None:
        yield "started", never(found, run)
        return
    how = {
        "started": "in its turn",
        "backfilled": "backfilled: ahead of a job that waited",
        "late": "in front of the others, because it had waited too long",
        "unknown": "for a reason that is not recorded",
    }.get(found.reason, found.reason)
    after_s = found.start_s - found.submit_s
    later = f", {duration(after_s)} later" if after_s else ", at once"
    yield "started", f"at {times.said(found.start_s)}{later}, {how}"
    over = found.ran_s > found.requested_s
    longer = f", longer than the {duration(found.requested_s)} that it asked for" if over else ""
    failed = ", as failed: it was stopped and not queued again" if found.failed else ""
    yield "ended", f"at {times.said(found.end_s)}, after {duration(found.ran_s)}{longer}{failed}"


def never(found: Explanation, run: Run) -> str:
    """Why a job never started."""
    from cpdispatch.access import NOWHERE, wished

    places = wished([name for name, _ in found.request])
    if found.reason == "never_fits" and NOWHERE in places:
        return f"never: {no_node(found, run)}"
    if found.reason == "never_fits" and found.most_units >= found.units:
        return "never: it asks for more than a limit, or the power cap, ever leaves"
    if found.reason == "never_fits":
        where = f"nodes of {' and '.join(places)} have" if places else "system has"
        return (
            f"never: the empty {where} room for {found.most_units:,} of its "
            f"{counted(found.units, 'unit')}"
        )
    if found.reason == "rejected":
        return "never: the dispatcher refused it"
    return "never: it still waited when the run was over"


def no_node(found: Explanation, run: Run) -> str:
    """Why there is no node that a job may use."""
    from cpdispatch.analyze.compare import duration

    row = run.jobs["id"] == found.job
    label = str(run.jobs.loc[row, "partition"].iloc[0]) if "partition" in run.jobs else ""
    named = {name.strip() for name in label.split(",")}
    short = [
        f"{duration(each.limit_s)} in partition {each.name}"
        for each in run.system.partitions
        if each.name in named and each.limit_s is not None and each.limit_s < found.requested_s
    ]
    if not short:
        return "no node is in its partitions, has its features and is one that it names"
    return f"it asks for {duration(found.requested_s)}, and may run for {' and '.join(short)}"


def others(found: Explanation) -> Iterator[str]:
    """Which jobs came before it."""
    if found.waiting_at_submit:
        if found.waiting_at_submit == 1:
            before = "It" if found.first_of_those else "None"
        elif found.first_of_those == found.waiting_at_submit:
            before = "All of them"
        else:
            before = f"{found.first_of_those:,} of them"
        yield (
            f"{counted(found.waiting_at_submit, 'job')} submitted earlier waited when it was "
            f"submitted. {before} started before it."
        )
    else:
        yield "No job that was submitted earlier waited when it was submitted."
    if not found.overtook:
        yield "No job that was submitted later started before it."
        return
    told = found.overtook_backfilled, found.overtook_late, found.overtook_untold
    first = found.overtook - sum(told)
    parts = [
        (found.overtook_backfilled, "backfilled"),
        (first, "first in the dispatcher's order"),
        (found.overtook_late, "in front because they had waited too long"),
        (found.overtook_untold, "for reasons that are not recorded"),
    ]
    some_of = [(number, text) for number, text in parts if number]
    if len(some_of) == 1:
        kinds = f"{'all ' * (found.overtook > 1)}{some_of[0][1]}"
    else:
        kinds = ", ".join(f"{number:,} {text}" for number, text in some_of)
    yield f"{counted(found.overtook, 'job')} submitted later started before it: {kinds}."


def waiting(found: Explanation, times: Times) -> Table:
    """The table of what held the job back, the longest stretches in their order."""
    from cpdispatch.analyze.compare import duration

    stretches = found.stretches
    kept, title = [*range(len(stretches))], ""
    if len(stretches) > ROWS:
        lasted = [stretch.until_s - stretch.from_s for stretch in stretches]
        kept = sorted(kept, key=lambda k: (-lasted[k], k))[:ROWS]
        kept_s = sum(lasted[k] for k in kept)
        title = (
            f"The {ROWS} longest of {len(stretches):,} stretches, {kept_s / sum(lasted):.0%} of "
            "the wait (--json has all)"
        )
    table = table_of(title, (), (times.column("from"), "for"))
    table.add_column("held back by")
    for k in sorted(kept):
        stretch = stretches[k]
        lasted_s = stretch.until_s - stretch.from_s
        cause = held_by(found, stretch, times)
        table.add_row(times.cell(stretch.from_s), duration(lasted_s), cause)
    return table


def held_by(found: Explanation, stretch: Stretch, times: Times) -> str:
    """What held the job back in a stretch."""
    from cpdispatch.access import said
    from cpdispatch.analyze.compare import duration
    from cpdispatch.analyze.explain import COMBINATION

    if stretch.cause == "job":
        return f"job {found.after_job}, after which it comes, and the think time after its end"
    if stretch.cause == "limit":
        return " and ".join(stretch.lacking)
    fits = f"{stretch.room_min:,}"
    if stretch.room_max != stretch.room_min:
        fits += f" to {stretch.room_max:,}"
    parts = []
    if stretch.cause == "capacity":
        lacking = " and ".join(map(said, stretch.lacking))
        no_room = COMBINATION in stretch.lacking
        parts.append(f"no {COMBINATION[2:]}" if no_room else f"too little {lacking}")
        parts[0] += f": room for {fits} of its {counted(found.units, 'unit')}"
        parts.append(f"{counted(stretch.ran, 'job')} ran on it, {stretch.ended:,} of them ended")
    elif stretch.cause == "maintenance":
        begins = "" if stretch.window_s is None else f" from {times.said(stretch.window_s)} on"
        room = f"room for {fits} of its {counted(found.units, 'unit')}"
        parts.append(f"maintenance{begins}, into which it was expected to run: {room} otherwise")
    else:
        parts.append("the dispatcher: the job fit and was not started")
        if stretch.fits_for_s is not None and stretch.fits_for_s >= found.needs_s:
            parts.append("nothing else took that room for as long as the job needs")
        elif stretch.fits_for_s is not None:
            free = f"the room was free for {duration(stretch.fits_for_s)}"
            parts.append(free + (f", until {ids(stretch.then)} started" if stretch.then else ""))
    earlier, later = stretch.started_ahead, stretch.overtook
    if earlier or later:
        parts.append(f"{earlier:,} earlier and {counted(later, 'later job')} started")
    if stretch.preferred:
        parts.append(f"{counted(stretch.preferred, 'job')} of a higher priority started")
    if stretch.higher:
        parts.append(f"{counted(stretch.higher, 'job')} of partitions of a higher tier started")
    if stretch.nodes_out:
        parts.append(f"{counted(stretch.nodes_out, 'node')} out of service")
    return "; ".join(parts)


def after_waiting(found: Explanation) -> Iterator[str]:
    """What a word of the table means, and what let the job start."""
    from cpdispatch.access import is_whole
    from cpdispatch.analyze.explain import COMBINATION

    if any(COMBINATION in stretch.lacking for stretch in found.stretches):
        yield (
            "No free node combination: enough of each resource type was free, but not together "
            "on the same nodes."
        )
    if any(is_whole(name) for stretch in found.stretches for name in stretch.lacking):
        yield "It needs its nodes whole, and other jobs used a part of them."
    if found.freed_by:
        yield f"It started when {ids(found.freed_by)} ended on its nodes."


def sooner(found: Explanation, times: Times) -> Iterator[Table | str]:
    """What would have let the job start sooner."""
    if not found.fewer:
        then = " after its last attempt" if found.attempts else ""
        yield f"No other request: no lack of room held it back{then}."
        return
    yield from fewer_units(found, times)
    yield from shorter_request(found, times)


def at(found: Explanation, times: Times, at_s: int) -> tuple[str, str]:
    """A time, and how long after the submission it is."""
    from cpdispatch.analyze.compare import duration

    return times.cell(at_s), duration(at_s - found.submit_s) if at_s > found.submit_s else "at once"


def some(rows: Sequence[Any]) -> tuple[Iterable[Any], str]:
    """Rows that are shown, first and last among them, and what is said of the others."""
    if len(rows) <= ROWS:
        return rows, ""
    picked = sorted({round(k * (len(rows) - 1) / (ROWS - 1)) for k in range(ROWS)})
    return [rows[k] for k in picked], f" ({len(picked)} of {len(rows):,} rows; --json has all)"


def fewer_units(found: Explanation, times: Times) -> Iterator[Table | str]:
    """Requests of fewer units that would have fit for as long as the job needs."""
    from cpdispatch.analyze.compare import duration

    fit = [each for each in found.fewer if each.units]
    needs = duration(found.needs_s)
    whole = next((each for each in fit if each.units == found.units), None)
    if whole is not None:
        when = "at once" if whole.at_s == found.submit_s else f"from {times.said(whole.at_s)} on"
        yield (
            f"As it was: in hindsight, its {counted(found.units, 'unit')} would have fit {when}, "
            f"for the {needs} that it needs. The dispatcher could not know how the other jobs "
            "would end, or kept the room for another job."
        )
    fit = [each for each in fit if each.units < found.units]
    if not fit:
        if found.units == 1:
            yield "Fewer units: no; it asks for 1."
        elif whole is None:
            yield f"Fewer units: no; not even 1 would have fit for {needs} before it started."
        return
    rows, rest = some(fit)
    yield f"Fewer units, for {needs} as now: the most that would have fit{rest}"
    table = table_of("", (), (times.column("start"), "after", "units"))
    for each in rows:
        table.add_row(*at(found, times, each.at_s), f"{each.units:,} of {found.units:,}")
    yield table


def shorter_request(found: Explanation, times: Times) -> Iterator[Table | str]:
    """Requests of less time that would have fit with all units."""
    from cpdispatch.analyze.compare import duration

    fit = [each for each in found.shorter if each.fits_s < found.needs_s]
    if not fit:
        if not found.shorter:
            yield (
                f"A shorter request: no; at no time before it started was there room for its "
                f"{counted(found.units, 'unit')}."
            )
        return
    rows, rest = some(fit)
    yield (
        f"A shorter requested time, with {'all ' * (found.units > 1)}"
        f"{counted(found.units, 'unit')}: the longest that would have fit{rest}"
    )
    table = table_of("", (), (times.column("start"), "after", "for"))
    table.add_column("")
    for each in rows:
        enough = found.ran_s is not None and each.fits_s >= found.ran_s
        ran = "" if found.ran_s is None else f"it ran for {duration(found.ran_s)}: "
        note = f"{ran}enough" if enough else f"{ran}not enough for all its work"
        table.add_row(*at(found, times, each.at_s), duration(each.fits_s), note)
    yield table
