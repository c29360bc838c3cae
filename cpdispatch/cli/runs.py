"""Saved runs: the folders that hold them, and the tables that compare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.output import RefusedFiles, console_of_stdout, print_json, status
from cpdispatch.errors import InputError

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run


def load_runs(folders: list[Path], refused: RefusedFiles) -> Iterator[tuple[Path, Run]]:
    """The runs of the folders, each once; those inside one in the order that `place` says."""
    from cpdispatch.simulator.run import ABOUT, Run, about_of

    def place(path: Path) -> tuple[float, bool, Path]:
        # Simulate gives each run its place; an earlier version did not, and Run.save does not.
        try:
            about = about_of(path)
        except InputError:  # it is reported when the run is read
            about = {}
        return about.get("place", float("inf")), about.get("dispatcher") != "easy", path

    seen: set[Path] = set()
    for folder in folders:
        inner = [path.parent for path in folder.glob(f"**/{ABOUT}")]
        alone = (folder / ABOUT).exists() or not inner
        for path in [folder] if alone else sorted(inner, key=place):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            run = None
            with refused.reading(path), status(f"reading {path}"):
                run = Run.load(path)
            if run is not None:
                yield path, run


def print_runs(
    summaries: Sequence[RunSummary],
    json: bool,
    beside: Mapping[str, Any] | None = None,
    *,
    waits: bool = False,
) -> None:
    """Print the runs that are done; with --json, the entries ``beside`` them, too.

    With ``waits``, the tables of who pays follow those of the runs.
    """
    from rich.text import Text

    from cpdispatch import experiment
    from cpdispatch.analyze import compare
    from cpdispatch.workloads.shake import SHIFT_S

    if json:
        print_json(experiment.report_of(summaries) | dict(beside or {}))
        return
    console = console_of_stdout()
    for title, rows in experiment.tables(summaries):
        if title:
            console.print(f"[bold]{title}[/]\n")
        for number, table in enumerate(compare.tables(rows, console.width)):
            if number:
                console.print()
            console.print(table)
        for table in compare.waits_tables(rows) if waits else ():
            console.print()
            console.print(table)
        sentence = compare.verdict(rows)
        warnings, tests = compare.warnings(rows), compare.test_runs(rows)
        tests += compare.failures(rows)
        if sentence or warnings or tests:
            console.print()
        if sentence:
            console.print(sentence)
        for told in tests:
            console.print(Text(told["text"]), soft_wrap=True)
        for difference in compare.differences(rows):
            if difference["low"] is not None:
                console.print(Text(difference["text"]), soft_wrap=True)
        for warning in warnings:
            console.print(Text(warning["text"], style="yellow"), soft_wrap=True)
        for line in (*compare.legend(rows), *compare.advice(rows)):
            console.print(line, style="dim")
        for draws in sorted({row["draws"] for row in rows if "draws" in row}):
            console.print(
                f"{draws} draws: the log with submissions up to {SHIFT_S - 1} s later and other "
                "seeds; the first one as it is.",
                style="dim",
            )
        for seeds in sorted({row["seeds"] for row in rows if row.get("seeds", 1) > 1}):
            console.print(f"Each figure is the mean of {seeds} runs, one a seed.", style="dim")
        for line in compare.notes(rows):
            console.print(line, style="dim")
        if title:
            console.print()
