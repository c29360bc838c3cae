"""Workloads as tables, CSV or Parquet, whose jobs may ask for any resource types.

One row a job, with the columns

========================================= =======================================================
``id``                                    job number
``submit``, ``runtime``                   seconds
``requested``                             seconds; optional, the runtime stands in
``units``                                 identical parts that may share nodes or not
``user``, ``group``, ``queue``,           optional; a number or a name each
``executable``, ``partition``
``preceding``, ``think``                  optional; the job to wait for, seconds after its end
``restartable``                           optional; 1 if the job may be killed and queued again
``features``, ``nodelist``, ``exclude``   optional; where the job asks to run, see
                                          `cpdispatch.access`
``exclusive``                             optional; 1 if each unit takes a whole node
``priority``                              optional; the site's own, higher first; 0 or more
``units_per_node``,                       optional; exactly, at least and at most so many units of
``units_per_node_min``,                   the job are on each of its nodes
``units_per_node_max``
``nodes_min``, ``nodes_max``              optional; on so many nodes at least and at most
``node_RESOURCE``                         optional; what the job asks for once on each of its nodes,
                                          as ``node_mem_gb``
``begin``                                 optional; the job may not start before that time, seconds
``licences``                              optional; as ``matlab:2 ansys``
``array``, ``array_limit``                optional; the array that the job is a task of, and how
                                          many of its tasks run at once at most
any other                                 a resource type: what each unit asks for, an integer
========================================= =======================================================

``mem`` is in the unit of the system that the table is used with; ``mem_kb``, ``mem_mb`` and
``mem_gb`` state the unit, and are converted to the system's. An empty cell is an unknown value.
The line of column names may begin with '#'.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdispatch.access.spread import ON_FIRST, PER_NODE
from cpdispatch.arrays import IntArray
from cpdispatch.durations import YEAR_10000_S
from cpdispatch.errors import InputError, UsageError, in_a_line
from cpdispatch.files import (
    other_commas,
    parquet_frame,
    read_text,
    resembles,
    unlike,
    with_newlines,
    writing,
)
from cpdispatch.jobs import (
    ANYHOW,
    ANYWHERE,
    FREE,
    LABELLED,
    PRIORITY_MAX,
    SPREADS,
    TERMS,
    UNKNOWN,
    WISHES,
    Access,
    Column,
    Spread,
    Terms,
    Workload,
)
from cpdispatch.parameters import whole
from cpdispatch.system import LIMIT
from cpdispatch.workloads.clean import BoolArray, RawLog, clean
from cpdispatch.workloads.clock import TOO_LATE

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("id", "submit", "runtime", "units")
BEGIN = "begin"
TIMES = ("requested", "preceding", "think", BEGIN)
RESTARTABLE = "restartable"
PRIORITY = "priority"
EXCLUSIVE = "exclusive"
ARRAY_LIMIT = "array_limit"
RESERVED = (
    *NEEDED, *TIMES, *LABELLED, RESTARTABLE, PRIORITY, *WISHES, EXCLUSIVE, *TERMS, ARRAY_LIMIT,
    *SPREADS,
)  # fmt: skip
MOST = {
    RESTARTABLE: (1, "neither 0 nor 1"),
    PRIORITY: (PRIORITY_MAX, f"larger than {PRIORITY_MAX}"),
}
"""The largest value of a column, and what is said of a larger one."""
MEMORY_COLUMNS = {"mem_kb": 1, "mem_mb": 1024, "mem_gb": 1024 * 1024}

# Names such as 007 and 7 differ.
_INTEGER = re.compile(r"0|-?[1-9]\d{0,14}", re.ASCII)
# What pandas writes of a column of integers with an empty cell, or with -1 for one.
_FLOAT = re.compile(rf"({_INTEGER.pattern})\.0", re.ASCII)
# Only these may be rounded: half a core is a mistake, half a second is not.
_SECONDS = ("submit", "runtime", "requested", "think", BEGIN)
_CHUNK = 1 << 16


def read(
    path: str | os.PathLike[str],
    filter: str = "all",
    processors: int | None = None,
    restartable: str = RESTARTABLE,
) -> Workload:
    """Read a table of jobs, see the module's description.

    Parameters
    ----------
    path : path
        ``.csv``, plain or packed (.gz, .xz, .zst), or ``.parquet``.
    filter : {"all", "strong", "drop"}
        See `cpdispatch.workloads.clean.clean`; a job's size is its units times their cores.
    processors : int, optional
        Size of the machine for `strong` and `drop`.
    restartable : str
        The column that says which jobs may be restarted: 1 or 0.

    Raises
    ------
    InputError
        When the file cannot be read, a column is missing or not understood, a cell is no number
        (file, line, column and value are named), or no job is left.
    """
    path = Path(path)
    is_text = path.suffix != ".parquet"
    frame = _read_csv(path, restartable) if is_text else _read_parquet(path, restartable)
    reader = _Reader(path, frame, is_text=is_text, restartable=restartable)
    return clean(reader.raw(), filter, processors)


def from_table(
    columns: pd.DataFrame | Mapping[str, Any],
    name: str = "table",
    filter: str = "all",
    processors: int | None = None,
) -> Workload:
    """Build a workload from columns in memory.

    Parameters
    ----------
    columns : DataFrame or mapping of str to arrays, shape (jobs,)
        The columns that a file would have, see the module's description. In a mapping, a number
        or a name stands for a column of equal values. Jobs may come in any order.
    name : str
        Name of the workload, also in error messages.
    filter : {"all", "strong", "drop"}
        See `cpdispatch.workloads.clean.clean`.
    processors : int, optional
        Size of the machine for `strong` and `drop`.

    Raises
    ------
    InputError
        When the columns differ in length, one is missing or not understood, a value is no number
        (row, counted from 1, and column are named), or no job is left.

    Examples
    --------
    >>> columns = {"id": [1, 2], "submit": [0, 5], "runtime": [60, 30], "units": 1, "core": [4, 2]}
    >>> from_table(columns, "two jobs").resources
    ('core',)
    """
    import pandas as pd

    if not isinstance(columns, Mapping | pd.DataFrame):
        raise UsageError(
            f"columns of type {type(columns).__name__}: a dict of columns or a DataFrame is needed"
        )
    if not isinstance(name, str):
        raise UsageError(f"name {name!r}: a text is needed")
    if processors is not None:
        whole("processors", processors, 1)
    _check_columns([str(key) for key in columns], Path(name), line=None)
    # Without the index of a series, by which pandas would put rows together.
    values = {str(key): getattr(column, "array", column) for key, column in columns.items()}
    for key, column in values.items():
        if isinstance(column, Iterator | Set):
            problem = f"column {key} of type {type(column).__name__}: a list or an array is needed"
            raise InputError(problem, file=name)
    lists = {key: column for key, column in values.items() if pd.api.types.is_list_like(column)}
    lengths = {key: len(column) for key, column in lists.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise InputError(f"the columns differ in length: {found} values", file=name)
    try:
        frame = pd.DataFrame(values, index=range(max(lengths.values(), default=1)))
    except ValueError as error:
        raise InputError(f"cannot be read as a table: {in_a_line(error)}", file=name) from error
    return replace(clean(_Reader(Path(name), frame).raw(), filter, processors), name=name)


def _read_csv(path: Path, restartable: str) -> pd.DataFrame:
    import pandas as pd

    text = with_newlines(read_text(path))
    first = text.split(b"\n", 1)[0].decode(errors="backslashreplace").removeprefix("#")
    try:
        names = [name.strip() for name in next(csv.reader([first], strict=True), [])]
    except csv.Error as error:
        raise InputError(f"cannot be parsed as CSV: {error}", file=path, line=1) from error
    if resembles(text) not in ("", "an empty file", "a table (CSV)"):
        raise InputError(f"not a table of jobs{unlike(text, 'a table (CSV)')}", file=path)
    _check_columns(names, path, restartable=restartable)
    try:
        with warnings.catch_warnings(action="ignore", category=pd.errors.ParserWarning):
            frame = pd.read_csv(
                io.BytesIO(text), header=None, skiprows=1, names=names, index_col=False,
                keep_default_na=False, na_values=[""], low_memory=False,
                dtype=dict.fromkeys((*LABELLED, *WISHES, *TERMS), str),
                encoding_errors="backslashreplace",
            )  # fmt: skip
    except pd.errors.EmptyDataError:
        return pd.DataFrame(columns=names)
    except Exception as error:  # whatever pandas makes of a strange text
        check_widths(text, len(names), path)
        raise InputError(f"cannot be parsed as CSV: {in_a_line(error)}", file=path) from error
    # The parser forgives lines that are too short or too long; we do not.
    check_widths(text, len(names), path)
    return frame


def _even(text: bytes, columns: int) -> bool:
    """Whether each line of a CSV without quotes has so many cells, or is empty."""
    letters = np.frombuffer(text, dtype=np.uint8)
    ends = np.append(np.flatnonzero(letters == ord("\n")), len(letters))
    commas = np.searchsorted(np.flatnonzero(letters == ord(",")), ends)
    empty = np.diff(ends, prepend=-1) == 1
    return bool(((np.diff(commas, prepend=0) == columns - 1) | empty).all())


def _rows(text: bytes, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The jobs of a CSV with their line numbers, the slow way."""
    reader = csv.reader(io.StringIO(text.decode(errors="backslashreplace"), newline=""))
    try:
        next(reader)
        begin = reader.line_num + 1
        for row in reader:
            if row:
                yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        problem = f"cannot be parsed as CSV: {error}"
        raise InputError(problem, file=path, line=reader.line_num) from error


def check_widths(text: bytes, columns: int, path: Path) -> None:
    """Refuse the first line of a CSV that has more or fewer cells than there are columns."""
    if b'"' not in text and _even(text, columns):
        return
    for line, row in _rows(text, path):
        if len(row) != columns:
            raise InputError(
                f"{len(row)} cells in a table of {columns} columns",
                file=path,
                line=line,
                value=",".join(row),
                advice="leave a cell empty if its value is unknown",
            )


def _read_parquet(path: Path, restartable: str) -> pd.DataFrame:
    frame = parquet_frame(path)
    frame.columns = frame.columns.astype(str)
    _check_columns(list(frame.columns), path, restartable=restartable)
    return frame


def _check_columns(
    names: list[str], path: Path, line: int | None = 1, restartable: str = RESTARTABLE
) -> None:
    found = f"the columns are {', '.join(names)}" if names else "the file has no column"
    for name, times in Counter(names).items():
        if times > 1 or not name:
            problem = "is named twice" if name else "has no name"
            raise InputError(
                f"a column {problem}; {found}", file=path, line=line, field=name or None
            )
    asked = () if restartable == RESTARTABLE else (restartable,)
    for name in (*NEEDED, *asked):
        if name not in names:
            advice = other_commas(names)
            if not advice and name in NEEDED and line is not None:
                advice = "`cpdispatch import table` reads columns of other names"
            problem = f"the column is missing; {found}"
            raise InputError(problem, file=path, line=line, field=name, advice=advice)
    memory = [name for name in names if name in {"mem", *MEMORY_COLUMNS}]
    if len(memory) > 1:
        problem = f"memory is stated twice, in {' and '.join(memory)}"
        raise InputError(problem, file=path, line=line, advice="leave one")
    for name in (name for name in names if name not in {*RESERVED, restartable}):
        per, plain = _per_node(name)
        if per and (not plain or _per_node(plain)[0]):
            advice = f"name one that units ask for, as {per}core does, or remove the column"
            raise InputError(
                "names no resource type", file=path, line=line, field=name, advice=advice
            )
        if plain in {"mem", *MEMORY_COLUMNS}:
            memory.append(plain)
            if plain != memory[0]:
                problem = f"memory is stated in two units, as {memory[0]} and as {plain}"
                advice = "state that of units, of nodes and of first nodes in the same"
                raise InputError(problem, file=path, line=line, field=name, advice=advice)
    if not set(names) - {*RESERVED, restartable}:
        raise InputError(
            f"no resource type; {found}",
            file=path,
            line=line,
            advice="add a column for each, such as core: what every unit asks for",
        )


_ASKED = {"": "each unit asks for", PER_NODE: "a job asks of a node", ON_FIRST: "a job takes once"}
"""What the cells of a resource type say, by what its name begins with."""


def _per_node(name: str) -> tuple[str, str]:
    """A column of a resource type as what says for what it is, if not for each unit, and the type.

    It may be for each node, or for the first one.
    """
    per = next((start for start in (PER_NODE, ON_FIRST) if name.startswith(start)), "")
    return per, name.removeprefix(per)


def as_text(value: object) -> str:
    """A value of a Parquet file, or of a column in memory, as a CSV would have it."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
    except (TypeError, ValueError):
        return float("nan")


class _Reader:
    """Turns a parsed table into columns of integers, naming the first cell that is none."""

    def __init__(
        self,
        path: Path,
        frame: pd.DataFrame,
        *,
        is_text: bool = False,
        restartable: str = RESTARTABLE,
    ) -> None:
        self.path = path
        self.restartable = restartable
        self.reserved = {*RESERVED, restartable}
        self.is_text = is_text
        self.frame = frame
        self.rounded: BoolArray = np.zeros(len(frame), dtype=np.bool_)
        self.labels: dict[str, tuple[str, ...]] = {}
        self.notes: dict[str, int] = {}

    def raw(self) -> RawLog:
        units = self.numbers("units")
        request: dict[str, IntArray | int] = {}
        memory_unit_kb = None
        for name in self.frame.columns:
            if name not in self.reserved:
                per, plain = _per_node(name)
                unit_kb = MEMORY_COLUMNS.get(plain)
                memory_unit_kb = unit_kb or memory_unit_kb
                request[per + ("mem" if unit_kb else plain)] = self.numbers(name)
        access, access_of = self.access()
        terms, terms_of = self.terms()
        spread, spread_of = self.spread()
        return RawLog(
            path=self.path,
            id=self.numbers("id"),
            submit_s=self.submissions(),
            runtime_s=self.numbers("runtime"),
            requested_s=self.numbers("requested"),
            units=units,
            allocated=units,
            cores=request.get("core", 1),
            request=request,
            named={name: self.named(name) for name in LABELLED if name in self.frame},
            preceding=self.numbers("preceding"),
            think_s=self.numbers("think"),
            rounded=self.rounded,
            labels=self.labels,
            memory_unit_kb=memory_unit_kb,
            notes=self.notes,
            restartable=self.counted(self.restartable),
            priority=self.counted(PRIORITY),
            access=access,
            access_of=access_of,
            terms=terms,
            terms_of=terms_of,
            begin_s=self.numbers(BEGIN) if BEGIN in self.frame else None,
            spread=spread,
            spread_of=spread_of,
        )

    def submissions(self) -> IntArray:
        """The submission of each job; -1 where it is unknown."""
        submit_s = self.numbers("submit")
        if submit_s.max(initial=0) >= YEAR_10000_S:
            raise self.wrong("submit", int(np.argmax(submit_s >= YEAR_10000_S)), TOO_LATE)
        return submit_s

    def counted(self, name: str) -> IntArray | None:
        """A column of numbers from 0 on, 0 also where nothing is said; None without the column."""
        if name not in self.frame:
            return None
        numbers = self.numbers(name)
        if name == PRIORITY and (below := (numbers < 0) & self.frame[name].notna()).any():
            self.notes["repaired: priority below 0, it counts as 0"] = int(below.sum())
        values = np.maximum(numbers, 0)
        most, problem = MOST[PRIORITY if name == PRIORITY else RESTARTABLE]
        if values.max(initial=0) > most:
            raise self.wrong(name, int(np.argmax(values > most)), problem)
        return values

    def access(self) -> tuple[tuple[Access, ...], IntArray | None]:
        """Where jobs ask to run, and which of these wishes each has."""
        found, of = self.kinds(WISHES, EXCLUSIVE, self.counted(EXCLUSIVE))
        if of is None:
            return (ANYWHERE,), None
        return tuple(Access(**kind | {EXCLUSIVE: bool(kind[EXCLUSIVE])}) for kind in found), of

    def terms(self) -> tuple[tuple[Terms, ...], IntArray | None]:
        """What else decides how many jobs may run at once, and which of these terms each has."""
        limit = np.maximum(self.numbers(ARRAY_LIMIT), 0) if ARRAY_LIMIT in self.frame else None
        found, of = self.kinds(TERMS, ARRAY_LIMIT, limit)
        return (FREE,) if of is None else tuple(Terms(**kind) for kind in found), of

    def spread(self) -> tuple[tuple[Spread, ...], IntArray | None]:
        """How units lie on nodes, and which of these wishes each job has."""
        given = [name for name in SPREADS if name in self.frame]
        if not given:
            return (ANYHOW,), None
        rows = np.stack([np.maximum(self.numbers(name), 0) for name in given])
        kinds, of = np.unique(rows, axis=1, return_inverse=True)
        found = (Spread(**dict(zip(given, kind, strict=True))) for kind in kinds.T.tolist())
        return tuple(found), of.reshape(-1).astype(np.int64)

    def kinds(
        self, texts: Sequence[str], number: str, values: IntArray | None
    ) -> tuple[list[dict[str, Any]], IntArray | None]:
        """The different rows of some columns, and which of them each job has; None without any."""
        import pandas as pd

        given = [name for name in texts if name in self.frame]
        if values is None and not given:
            return [], None
        columns: dict[str, IntArray] = {}
        names: dict[str, list[str]] = {}
        for name in given:
            of, found = self.texts(name)
            stripped = [text.strip() for text in (*found, "")]
            names[name] = [*dict.fromkeys(stripped)]
            code = {text: k for k, text in enumerate(names[name])}
            columns[name] = np.array([code[text] for text in stripped])[of]
        rows = pd.DataFrame(columns | {number: 0 if values is None else values},
                            index=range(len(self.frame)))  # fmt: skip
        of, kinds = pd.factorize(pd.MultiIndex.from_frame(rows))
        return [
            {name: names[name][code] for name, code in zip(given, kind, strict=False)}
            | {number: int(kind[-1])}
            for kind in kinds
        ], of.astype(np.int64)

    def numbers(self, name: str) -> IntArray:
        """One column as integers, -1 for what is unknown."""
        if name not in self.frame:
            return np.full(len(self.frame), UNKNOWN, dtype=np.int64)
        import pandas as pd

        series = self.frame[name]
        text = series.dtype.kind not in "iuf"
        empty = series.isna().to_numpy()
        try:
            numeric = pd.to_numeric(series, errors="coerce") if text else series
            values = numeric.to_numpy(np.float64, na_value=np.nan)
        except OverflowError:  # an integer of more than 300 digits
            values = np.array([_as_float(value) for value in series])
        whole = np.rint(values)
        with np.errstate(invalid="ignore"):
            good = np.abs(values) < LIMIT // MEMORY_COLUMNS.get(_per_node(name)[1], 1)
            fraction = good & (whole != values)
        if name in self.reserved:
            good |= empty
        else:
            good &= values >= 0
        if name in _SECONDS:
            self.rounded |= fraction
        else:
            good &= ~fraction
        if not good.all():
            raise self.wrong(name, int(np.argmin(good)))
        if text and not empty.all():
            given = series.tolist()
            for row in (~empty).nonzero()[0].tolist():
                if not isinstance(given[row], Real) or isinstance(given[row], bool):
                    raise self.wrong(name, row)
        return np.where(empty, UNKNOWN, whole).astype(np.int64)

    def texts(self, name: str) -> tuple[IntArray, list[str]]:
        """Which of some texts each job has in a column, -1 for no value; these texts."""
        import pandas as pd

        try:
            of, values = pd.factorize(self.frame[name])
        except TypeError as error:
            raise InputError(
                "the column holds lists, not numbers or names", file=self.path, field=name
            ) from error
        return of, [as_text(value) for value in values]

    def named(self, name: str) -> IntArray:
        """One column of numbers or names as integers; names are numbered in their order."""
        if self.frame[name].dtype.kind in "iuf":
            return self.numbers(name)
        of, texts = self.texts(name)
        names = sorted({*texts} - {""})
        unknown = bool((of < 0).any()) or "-1.0" in names
        floats = unknown and bool(names) and all(map(_FLOAT.fullmatch, names))
        if floats:
            rule = f"repaired: {name} such as {names[-1]} beside an empty cell, read without .0"
            self.notes[rule] = int((of >= 0).sum())
        if floats or all(map(_INTEGER.fullmatch, names)):
            number = {text: max(int(text.removesuffix(".0")), UNKNOWN) for text in names}
        else:
            self.labels[name] = tuple(names)
            number = {text: k for k, text in enumerate(names)}
        # The last entry is what the code -1 of an empty cell takes.
        numbers = [*(number.get(text, UNKNOWN) for text in texts), UNKNOWN]
        return np.array(numbers, dtype=np.int64)[of]

    def wrong(
        self, name: str, row: int, problem: str = "not a whole number in range"
    ) -> InputError:
        """Say where the cell stands in the file and how to correct it."""
        column = list(self.frame.columns).index(name)
        if not self.is_text:
            line, value = None, self.frame.iat[row, column]
            where = f"{name} of row {row + 1}"
        else:
            rows, where = _rows(with_newlines(read_text(self.path)), self.path), name
            line, cells = next(islice(rows, row, None), (None, []))
            value = cells[column] if column < len(cells) else self.frame.iat[row, column]
        if name in _SECONDS and re.search(r"\d[-:/]\d", str(value)):
            advice = "times are whole seconds; `cpdispatch import table` reads dates"
        elif name in self.reserved:
            advice = "correct it, or leave it empty if it is unknown"
        else:
            asked = _ASKED[_per_node(name)[0]]
            advice = (
                f"the column {name} is taken for a resource type, whose cells say what {asked}: "
                "write 0 for nothing, or remove the column"
            )
        found = value if isinstance(value, str) else str(value)
        return InputError(
            problem, file=self.path, line=line, field=where, value=found,
            advice=advice,
        )  # fmt: skip


# ---------------------------------------------------------------------------------- writing


def write(workload: Workload, path: str | os.PathLike[str]) -> None:
    """Write a workload as a table, by the extension CSV (plain or packed) or Parquet.

    Names are written where the workload has them. Columns of which nothing is known are left out.

    Raises
    ------
    UsageError
        When the extension is unknown, or a resource type has the name of another column.
    """
    path = Path(path)
    columns = columns_of(workload)
    if path.suffix == ".parquet":
        with writing(path) as stream:  # Arrow takes no path that is not UTF-8
            _frame(workload, columns, slice(None)).to_parquet(stream, index=False)
    elif ".csv" in path.suffixes[-2:]:
        with writing(path) as stream:
            for first in range(0, len(workload), _CHUNK):
                frame = _frame(workload, columns, slice(first, first + _CHUNK))
                text = frame.to_csv(index=False, header=first == 0, lineterminator="\n")
                stream.write(text.encode())
    else:
        raise UsageError(
            f"{path}: unknown extension; tables are .csv, .csv.gz (.xz, .zst) and .parquet"
        )


def columns_of(workload: Workload) -> dict[str, IntArray]:
    """What a table of a workload says, numbers in the place of names."""
    table = workload.table
    columns = {
        "id": table.id,
        "submit": table.submit_s,
        "runtime": workload.runtime_s,
        "requested": table.requested_s,
        "units": table.units,
    }
    for name, column in zip(workload.resources, table.request.T, strict=True):
        per, name = _per_node(name)
        if name in RESERVED or name in MEMORY_COLUMNS:
            raise UsageError(f"a resource type named {name} cannot be a column of a table of jobs")
        if name == "mem" and workload.memory_unit_kb is not None:
            units = {kb: called for called, kb in MEMORY_COLUMNS.items()}
            called = units.get(workload.memory_unit_kb)
            columns[per + (called or "mem_kb")] = (
                column if called else column * workload.memory_unit_kb
            )
        else:
            columns[per + name] = column
    optional = {name: table.column(Column[name.upper()]) for name in LABELLED}
    optional |= {"preceding": workload.preceding, "think": workload.think_s}
    optional |= {} if workload.begin_s is None else {BEGIN: workload.begin_s}
    columns |= {name: column for name, column in optional.items() if np.any(column >= 0)}
    columns |= {RESTARTABLE: table.restartable} if table.restartable.any() else {}
    columns |= {PRIORITY: table.priority} if table.priority.any() else {}
    for name in (*WISHES, *TERMS):
        column, texts = workload.asked(name)
        if any(texts):
            columns[name] = column
    flags = {EXCLUSIVE: workload.exclusive(), ARRAY_LIMIT: workload.array_limit()}
    flags |= {name: workload.spreads(name) for name in SPREADS}
    return columns | {name: column for name, column in flags.items() if column.any()}


def _frame(workload: Workload, columns: dict[str, IntArray], part: slice) -> pd.DataFrame:
    import pandas as pd

    labels = {
        name: np.array([*names, None], dtype=object)  # the last for -1
        for name, names in workload.table.labels.items()
    }
    labels |= {name: np.array(workload.asked(name)[1], object) for name in (*WISHES, *TERMS)}
    return pd.DataFrame(
        {
            name: labels[name][column[part]] if name in labels else column[part]
            for name, column in columns.items()
        }
    )
