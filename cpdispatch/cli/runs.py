"""Saved runs: the folders that hold them, and the tables that compare them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.cli.output import (
    RefusedFiles,
    bold,
    console_of_stdout,
    print_in_whole_lines,
    print_json,
    print_sentence,
    status,
)
from cpdispatch.errors import InputError, UsageError

if TYPE_CHECKING:
    from cpdispatch.experiment import RunSummary
    from cpdispatch.report import Shown
    from cpdispatch.simulator import Run


def load_runs(
    folders: list[Path], refused: RefusedFiles, *, tell: bool = True
) -> Iterator[tuple[Path, Run]]:
    """The runs of the folders, each once; those inside one in the order that `place` says.

    Draws that are beside each other stay together, also where another command's runs, in the same
    folder, have the same places. Unless ``tell`` is false, standard error has a line for each run
    beside them that is not over.
    """
    from cpdispatch.simulator.replay import DRAW
    from cpdispatch.simulator.run import Run
    from cpdispatch.simulator.saved import ABOUT, about_of, begun_in

    def place(path: Path) -> tuple[float, bool, Path]:
        # Simulate gives each run its place; an earlier version did not, and Run.save does not.
        try:
            about = about_of(path)
        except InputError:  # it is reported when the run is read
            about = {}
        return about.get("place", float("inf")), about.get("dispatcher") != "easy", path

    def in_order(paths: list[Path]) -> list[Path]:
        beside: dict[Path, list[Path]] = {}
        for path in sorted(paths, key=place):
            beside.setdefault(path.parent if DRAW.fullmatch(path.name) else path, []).append(path)
        return [path for draws in beside.values() for path in draws]

    seen: set[Path] = set()
    for folder in folders:
        inner = [path.parent for path in folder.glob(f"**/{ABOUT}")]
        alone = (folder / ABOUT).exists() or not inner
        for path in [folder] if alone else in_order(inner):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            run = None
            with refused.reading(path), status(f"reading {path}"):
                run = Run.load(path)
            if run is not None:
                yield path, run
        for path in sorted(begun_in(folder)) if inner and tell else ():
            print(
                f"cpdispatch: {path}: left out, as the run is not over; if it was stopped, go on "
                "with it by --resume",
                file=sys.stderr,
            )


def load_summaries(
    folders: list[Path], refused: RefusedFiles, *, whole: bool = True
) -> tuple[list[RunSummary], dict[str, Run]]:
    """Summaries of the runs of the folders, and the run of each kind that is drawn, if needed."""
    from cpdispatch.experiment import RunSummary
    from cpdispatch.simulator import Run

    summaries: list[RunSummary] = []
    found: list[tuple[Path, Mapping[str, Any]]] = []
    first: dict[Path, Run] = {}
    for path, run in load_runs(folders, refused):
        summary = RunSummary.of(run)
        if whole and all(summary.kind != other.kind for other in summaries):
            first[path] = run
        summaries.append(summary)
        found.append((path, run.about))
    drawn = _drawn(found) if whole else {}
    return summaries, {kind: first.get(path) or Run.load(path) for kind, path in drawn.items()}


def _drawn(found: Sequence[tuple[Path, Mapping[str, Any]]]) -> dict[str, Path]:
    """The folder of the run of each kind that is drawn: on jobs that all kinds of its log have.

    The first one that is, and where there are no such jobs, the first one.
    """
    from cpdispatch.analyze import compare

    logs: dict[tuple[str, ...], dict[str, dict[str, Path]]] = {}
    for path, about in found:
        kinds = logs.setdefault(compare.setting(compare.row(dict(about), {})), {})
        of_kind = kinds.setdefault(compare.kind_of(about), {})
        of_kind.setdefault(about.get("workload_sha256", ""), path)
    drawn: dict[str, Path] = {}
    for kinds in logs.values():
        every = [*kinds.values()]
        common = [jobs for jobs in every[0] if all(jobs in of_kind for of_kind in every)]
        drawn |= {kind: of[common[0] if common else next(iter(of))] for kind, of in kinds.items()}
    return drawn


def print_runs(
    summaries: Sequence[RunSummary],
    json: bool,
    beside: Mapping[str, Any] | None = None,
    *,
    waits: bool = False,
    asked: str = "simulate --shake 10",
) -> None:
    """Print the runs that are done; with --json, the entries ``beside`` them, too.

    With ``waits``, the tables of who pays follow those of the runs. ``asked`` says how more draws
    are asked for.
    """
    from cpdispatch import experiment
    from cpdispatch.analyze import compare
    from cpdispatch.workloads.shake import SHIFT_S

    if json:
        print_json(experiment.report_of(summaries) | dict(beside or {}))
        return
    console = console_of_stdout()
    for title, rows in experiment.tables(summaries):
        if title:
            console.print(bold(title))
            console.print()
        for number, table in enumerate(compare.tables(rows, console.width)):
            if number:
                console.print()
            console.print(table)
        for table in compare.waits_tables(rows) if waits else ():
            console.print()
            print_in_whole_lines(console, table)
        sentence = compare.verdict(rows)
        warnings, tests = compare.warnings(rows), compare.test_runs(rows)
        tests += compare.failures(rows)
        if sentence or warnings or tests:
            console.print()
        if sentence:
            console.print(sentence)
        for told in tests:
            print_sentence(console, told["text"])
        for difference in compare.differences(rows):
            if difference["low"] is not None:
                print_sentence(console, difference["text"])
        for warning in warnings:
            print_sentence(console, warning["text"], style="yellow")
        for line in (*compare.legend(rows), *compare.advice(rows, asked)):
            console.print(line, style="dim")
        as_it_is = {summary.kind for summary in summaries if not summary.about.get("draw", 0)}
        # A row has the mean of the draws' numbers, which are all 0 where jobs are made anew.
        for draws, shaken, first in sorted(
            {
                (row["draws"], row["draw"] > 0, row["kind"] in as_it_is)
                for row in rows
                if "draws" in row
            }
        ):
            what = (
                f"the log with submissions up to {SHIFT_S - 1} s later and other seeds"
                f"{'; the first one as it is' * first}."
                if shaken
                else "the jobs of each are made with a seed of its own."
            )
            console.print(f"{draws} draws: {what}", style="dim")
        for seeds in sorted({row["seeds"] for row in rows if row.get("seeds", 1) > 1}):
            console.print(f"Each figure is the mean of {seeds} runs, one a seed.", style="dim")
        for line in compare.notes(rows):
            console.print(line, style="dim")
        if title:
            console.print()


def side_by_side(
    summaries: Sequence[RunSummary], kept: Mapping[str, Run], most: int | None = None
) -> tuple[list[Shown], list[dict[str, Any]]]:
    """The runs that are drawn, one of each kind, and the rows of all of them.

    Raises
    ------
    UsageError
        When they cannot be on one page, or are more than ``most`` (the page's limit).
    """
    from cpdispatch import experiment
    from cpdispatch.analyze import compare, draws
    from cpdispatch.experiment.report import rows_of
    from cpdispatch.report import Shown
    from cpdispatch.report.page import RUNS_MAX, check

    alike: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(summaries):
        alike.setdefault(row["kind"], []).append(row)
    merged = [draws.one(alike[kind]) for kind in kept]
    tables = experiment.tables(summaries)
    rows = [row for _, of_log in tables for row in of_log]
    names = [str(run.about["dispatcher"]) for run in kept.values()]
    if len(rows) == len(kept):
        names = [compare.name_of(row, rows) for row in rows]
    shown = [
        Shown(name, run, compare.users_beside(row, merged[0]))
        for name, run, row in zip(names, kept.values(), merged, strict=True)
    ]
    check(shown, most or RUNS_MAX)
    if twice := _twice(summaries):
        raise UsageError(
            f"{twice} is there twice: on the same jobs with the same seed, once alone and once as "
            "a draw, or in two folders; name only one of the folders that hold it"
        )
    if len(tables) > 1 or len(rows) != len(kept):
        raise UsageError(
            "these runs cannot be drawn side by side: some are of other jobs (another filter, "
            "another number of jobs, other draws); name the folders of one simulate command"
        )
    return shown, rows


def _twice(summaries: Sequence[RunSummary]) -> str:
    """The dispatcher of a run that is there twice; empty if none is."""
    seen: set[tuple[Any, ...]] = set()
    for about in (summary.about for summary in summaries):
        if (run := _which(about)) in seen:
            return str(about["dispatcher"])
        seen.add(run)
    return ""


def _which(about: Mapping[str, Any]) -> tuple[Any, ...]:
    """What no two runs have in common: what is told apart, the draw, the seed and the jobs."""
    from cpdispatch.analyze import compare

    of_run = (about.get("draw", 0), about.get("seed", 0), about.get("workload_sha256"))
    return compare.kind_of(about), *of_run


_OTHER_PICTURES = {".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".eps", ".ps", ".html"}
"""No user means a folder by a name that ends so. (Names of logs and dispatchers may have dots.)"""


def check_pictures(folder: Path, runs: int = 1) -> None:
    """Raise now, before there is work to lose, where runs could not be drawn."""
    from cpdispatch.analyze.look import FORMATS
    from cpdispatch.report import pictures

    if folder.suffix.lower() in FORMATS and folder.suffix not in FORMATS:
        raise UsageError(f"--plot {folder}: write {folder.suffix.lower()} in lower case")
    if folder.suffix.lower() in _OTHER_PICTURES and not folder.is_dir():
        raise UsageError(
            f"--plot {folder}: pictures are {', '.join(FORMATS)}; name a folder, or a name that "
            "ends in one of these"
        )
    if folder.suffix not in FORMATS and folder.exists() and not folder.is_dir():
        raise UsageError(
            f"--plot {folder}: this is a file; name a folder, or a name that ends in "
            f"{', '.join(FORMATS)}"
        )
    pictures.check(runs)


@dataclass(frozen=True, slots=True)
class OfLog:
    """Runs of one log, system and rules, of several: what tells its files from the others'."""

    place: str
    summaries: list[RunSummary]
    kept: dict[str, Run]


def _named(workload: str, system: str) -> str:
    """The place of a log's runs among those of several, without its number."""
    from cpdispatch.experiment.runs import safe

    return f"-{safe(workload)}-{safe(system)}"


def is_place(name: str, logs: Collection[tuple[str, str]]) -> bool:
    """Whether it is the place of the runs of one of these logs and systems."""
    number = name.partition("-")[0]
    return number.isdecimal() and name in {f"{number}{_named(*log)}" for log in logs}


def by_log(summaries: Sequence[RunSummary], kept: Mapping[str, Run]) -> list[OfLog]:
    """The runs of each log, system and rules; a single one has no place of its own."""
    from cpdispatch.analyze import compare

    logs: dict[tuple[str, ...], list[RunSummary]] = {}
    for summary in summaries:
        logs.setdefault(compare.setting(compare.row(summary.about, {})), []).append(summary)
    found = []
    for number, of_log in enumerate(logs.values(), start=1):
        about = of_log[0].about
        place = f"{number}{_named(about['workload'], about['system']['name'])}"
        kinds = dict.fromkeys(summary.kind for summary in of_log)
        of_kinds = {kind: kept[kind] for kind in kinds}
        found.append(OfLog(place if len(logs) > 1 else "", of_log, of_kinds))
    return found


def print_and_draw(
    summaries: Sequence[RunSummary],
    kept: Callable[[], Mapping[str, Run]],
    plot: Path | None,
    json: bool,
    beside: Mapping[str, Any],
    *,
    waits: bool = False,
) -> None:
    """Print runs, and draw those that are ``kept``, by kind, where pictures were asked for."""
    if plot is None or not json:
        print_runs(summaries, json, beside, waits=waits)
    if plot is None:
        return
    written, lacking = draw(plot, summaries, kept())
    if json:
        pictures = {"pictures": [str(path) for path in written], "lacking": lacking}
        print_runs(summaries, json, {**beside, **pictures}, waits=waits)
    else:
        print_pictures(plot, written, lacking)


def draw(
    folder: Path, summaries: Sequence[RunSummary], kept: Mapping[str, Run]
) -> tuple[list[Path], list[str]]:
    """Draw the runs; those of several logs or systems in a folder each.

    Returns
    -------
    written : list of Path
    lacking : list of str
        Why some pictures were not drawn.
    """
    from cpdispatch.analyze.look import FORMATS
    from cpdispatch.report import pictures

    written: list[Path] = []
    lacking: list[str] = []
    for of in by_log(summaries, kept):
        points: dict[str, list[dict[str, Any]]] = {}
        for summary in of.summaries:
            points.setdefault(summary.kind, []).append(summary.metrics)
        shown, rows = side_by_side(of.summaries, of.kept, pictures.RUNS_MAX)
        named = folder.suffix in FORMATS
        place = folder.parent / of.place / folder.name if named else folder / of.place
        with status(f"drawing {place}"):
            done, missing = pictures.write(place, shown, rows, list(points.values()))
        written += done
        lacking += missing
    return written, list(dict.fromkeys(lacking))


def check_page(runs: int = 1) -> None:
    """Raise now, before there is work to lose, where no page could be made of so many runs."""
    from cpdispatch.extra import needed
    from cpdispatch.report.page import RUNS_MAX

    needed("bokeh", "report")
    if runs > RUNS_MAX:
        raise UsageError(f"{runs} runs of each log: a page shows {RUNS_MAX} at most; name fewer")


def check_place_of_page(out: Path, option: str) -> None:
    """Raise now where a page would replace a file that is none, such as one of a run."""
    if _beginning(out) not in (b"", _PAGE):
        raise UsageError(f"{option} {out}: this file is no page; choose another name for the page")


def is_page(path: Path) -> bool:
    """Whether a file is a page, by how it begins."""
    return _beginning(path) == _PAGE


def _beginning(path: Path) -> bytes:
    """What tells a page from other files; nothing where none can be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PAGE)).upper()
    except OSError:
        return b""  # there is none, or writing says what is wrong


_PAGE = b"<!DOCTYPE HTML>"


def write_page(out: Path, summaries: Sequence[RunSummary], kept: Mapping[str, Run]) -> int:
    """Write the page about runs of one log; how many bytes it has."""
    from cpdispatch.files import write_bytes
    from cpdispatch.report import page_of

    with status(f"making {out}"):
        shown, rows = side_by_side(summaries, kept)
        content = page_of(shown, rows, beside_best(summaries, rows)).encode()
        write_bytes(out, content)
    return len(content)


def beside_best(
    summaries: Sequence[RunSummary], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of all runs beside the one with the lowest mean bounded slowdown."""
    from cpdispatch import experiment
    from cpdispatch.analyze import compare

    best = [*compare.ranked(rows), *rows][0]["kind"]
    in_order = sorted(summaries, key=lambda summary: summary.kind != best)
    ((_, found),) = experiment.tables(in_order)
    return found


def first_of_each(folders: Iterable[Path], summaries: Sequence[RunSummary]) -> dict[str, Run]:
    """The run of each kind that is drawn, of those that are done; refused ones may be there too."""
    from cpdispatch.simulator.run import Run
    from cpdispatch.simulator.saved import ABOUT, about_of

    done = {_which(summary.about) for summary in summaries}
    found = [(folder, about_of(folder)) for folder in folders if (folder / ABOUT).exists()]
    drawn = _drawn([(folder, about) for folder, about in found if _which(about) in done])
    return {kind: Run.load(folder) for kind, folder in drawn.items()}


def print_pictures(folder: Path, written: Sequence[Path], lacking: Sequence[str]) -> None:
    """Say what was drawn, and what there was nothing for."""
    console = console_of_stdout()
    said = f"{folder}: {len(written)} pictures"
    console.print(said, soft_wrap=True)
    for line in lacking:
        print_sentence(console, line, style="dim")
