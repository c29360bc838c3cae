"""What came of many replays: kept in a file, a line as each is done, and put together for tables.

A command that was interrupted goes on: what the file has is not replayed again.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import msgspec
import numpy as np
import script

from cpdispatch.arrays import FloatArray
from cpdispatch.campaign import Shared, Task, Workers, completed
from cpdispatch.files import csv_of, write_bytes
from cpdispatch.system import System
from cpdispatch.workloads import prepare

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"

Case = TypeVar("Case")
Figures = TypeVar("Figures")


class _Line(msgspec.Struct):
    case: msgspec.Raw
    figures: msgspec.Raw


class Results(dict[Case, Figures], Generic[Case, Figures]):
    """The figures of each case that is done; the last line of a case counts.

    Parameters
    ----------
    path : Path
        The file; it need not exist.
    case, figures : type
        What a replay is, hashable, with a text of its own; and what came of it.
    """

    def __init__(self, path: Path, case: type[Case], figures: type[Figures]) -> None:
        super().__init__()
        self._path = path
        for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
            try:
                line = msgspec.json.decode(text, type=_Line)
                done = msgspec.json.decode(line.case, type=case)
                self[done] = msgspec.json.decode(line.figures, type=figures)
            except msgspec.DecodeError as error:  # cut short when the command was interrupted
                print(f"{path}:{number} is left out: {error}", file=sys.stderr)

    def make(
        self,
        cases: Iterable[Case],
        measure: Callable[[Any, Case], Figures],
        shared: Mapping[str, Any],
        workers: int,
        *,
        needs: Callable[[Case], str] | None = None,
        told: Callable[[Figures], str] = lambda figures: "done",
    ) -> None:
        """Measure the cases that are not done, in their order.

        ``measure`` gets what ``shared`` has under the name that a case ``needs`` (its only one,
        when left out), and the case. What is ``told`` of its figures goes to standard error.
        """
        todo = {str(case): case for case in cases if case not in self}
        (only, *_) = shared or [""]
        tasks = [
            Task(key, (Shared(only if needs is None else needs(case)), case))
            for key, case in todo.items()
        ]
        outcomes = completed(tasks, measure, shared=shared, workers=Workers(workers))
        with appending(self._path) as stream:
            for number, (key, found) in enumerate(outcomes, 1):
                line = {"case": todo[key], "figures": found}
                stream.write(msgspec.json.encode(line) + b"\n")
                stream.flush()
                self[todo[key]] = found
                print(f"{number}/{len(tasks)} {key}: {told(found)}", file=sys.stderr)


def of_one_log(
    name: str,
    doc: str,
    system: System,
    case: type[Case],
    cases: Iterable[Case],
    measure: Callable[[Any, Case], dict[str, float]],
) -> Results[Case, dict[str, float]]:
    """The results of a script that replays one log, which its command line names."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("--out", type=Path, default=Path(f"{name}.jsonl"))
    parser.add_argument("--workers", type=script.count, default=2)
    given = parser.parse_args()
    log, _ = prepare(given.log, system, filter="strong")
    done = Results(given.out, case, dict[str, float])
    done.make(cases, measure, {"log": log}, given.workers)
    return done


@contextmanager
def appending(path: Path) -> Iterator[BinaryIO]:
    """A file of lines to add to; a last line that was cut short stays one of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_short = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("ab") as stream:
        stream.write(b"\n" * cut_short)
        yield stream


def half_interval(values: FloatArray) -> float:
    """Half the width of the 95 % interval of their mean, by Student's t; 0 of one value."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)


def geometric(ratios: FloatArray) -> list[str]:
    """The geometric mean, and its 95 % interval."""
    logs = np.log(ratios)
    mean, half = logs.mean(), half_interval(logs)
    return [f"{np.exp(value):.3f}" for value in (mean, mean - half, mean + half)]


def merged(
    text: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    keys: int,
    place: Callable[[Sequence[str]], Any] | None = None,
) -> str:
    """A CSV file with the rows of the same case replaced, and new ones added.

    The first so many columns, ``keys``, say which case it is. Rows are put in the order of
    ``place``; new ones come last, when left out.
    """
    _, *before = list(csv.reader(io.StringIO(text))) or [[]]
    found = {tuple(row[:keys]): list(row) for row in (*before, *rows)}
    every = list(found.values())
    return table_of([head, *(every if place is None else sorted(every, key=place))])


def table_of(lines: Iterable[Sequence[str]]) -> str:
    """Lines as a CSV file."""
    return csv_of(lines).decode()


def rows_of(name: str) -> list[list[str]]:
    """The rows of a CSV file of the pages, without its head; none if it is not there."""
    path = DATA / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))[1:]


def keep(name: str, lines: Iterable[Sequence[str]]) -> str:
    """Write a CSV file of the pages; one with no line but its head stays as it is."""
    head, *table = lines
    if not table:
        return ""
    text = table_of([head, *table])
    write_bytes(DATA / f"{name}.csv", text.encode())
    return text


def write(name: str, lines: Iterable[Sequence[str]]) -> None:
    """Write a CSV file of the pages, see `keep`, and print it."""
    print(keep(name, lines), end="")
