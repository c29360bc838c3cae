"""Tables of jobs with columns of their own names, read by a column map in TOML."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from cpdispatch.access.spread import ON_FIRST, PER_NODE
from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.durations import YEAR_10000_S
from cpdispatch.errors import InputError, UsageError, nearest
from cpdispatch.files import (
    not_a_table,
    other_commas,
    parse_toml,
    read_parquet,
    read_text,
    with_newlines,
)
from cpdispatch.jobs import LABELLED
from cpdispatch.structure import converted
from cpdispatch.system import LIMIT, NodeGroup, System
from cpdispatch.workloads.clean import log_name
from cpdispatch.workloads.imported import Columns, Imported, finish
from cpdispatch.workloads.slurm import zone_of
from cpdispatch.workloads.slurm.access import features
from cpdispatch.workloads.slurm.values import duration_s, time_s
from cpdispatch.workloads.table import MEMORY_COLUMNS, MOST, RESERVED, as_text, check_widths

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent / "maps"
"""Where the bundled maps are."""
SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
MEMORY_KB = {"b": 1 / 1024, "kb": 1.0, "mb": 1024.0, "gb": 1024.0**2}


class TableForm(msgspec.Struct, forbid_unknown_fields=True):
    """How a text table is laid out: cells between any blanks, columns without a line of names.

    Cells that are one of ``empty`` are taken for empty ones.
    """

    blanks: bool = False
    names: list[str] = []
    empty: list[str] = []


class Times(msgspec.Struct, forbid_unknown_fields=True):
    """Units of times: ``text`` is a date and a time of day, in the zone unless it says its own.

    Of a duration, ``text`` is ``days-hours:minutes:seconds``, as `duration_s` reads it. A format is
    one of Python's ``strptime``; ISO 8601 without one.
    """

    submit: Literal["ms", "s", "min", "h", "text"] = "s"
    zone: str = ""
    format: str = ""
    runtime: Literal["ms", "s", "min", "h", "text"] = "s"
    requested: Literal["ms", "s", "min", "h", "text"] = "s"


class Amount(msgspec.Struct, forbid_unknown_fields=True):
    """A resource: a column, times another one or a number, for each unit or for the whole job.

    Or for each of the nodes that the column ``nodes`` names, once for each unit.
    """

    column: str = ""
    times: str | int = 1
    each: Literal["unit", "job", "node"] = "unit"
    unit: Literal["", "b", "kb", "mb", "gb"] = ""
    nodes: str = ""


class Rows(msgspec.Struct, forbid_unknown_fields=True):
    """Which rows are kept: those whose cell in a column is one of these."""

    column: str
    among: list[str]


class Nodes(msgspec.Struct, forbid_unknown_fields=True):
    """The columns of a table of nodes."""

    name: str
    resources: dict[str, Amount]
    features: str = ""


class ColumnMap(msgspec.Struct, forbid_unknown_fields=True):
    """Which column of a table is what, see docs/import.md."""

    columns: dict[str, str]
    resources: dict[str, Amount]
    source: str = ""
    told: list[str] = []
    table: TableForm = msgspec.field(default_factory=TableForm)
    time: Times = msgspec.field(default_factory=Times)
    keep: list[Rows] = []
    nodes: Nodes | None = None
    first: dict[str, Amount] = {}


_DATE = re.compile(r"^(\d{4})(\d\d)(\d\d)$", re.ASCII)
_BLANKS = (b", ", b" ,", b",\t", b"\t,", b"\n ", b" \n", b"\n\t", b"\t\n")
_NODE = re.compile(r"[^\s,;{}]+")

KNOWN = (
    "id", "submit", "start", "wait", "end", "runtime", "requested", "units", "restartable",
    "priority", "features", *LABELLED,
)  # fmt: skip


def _check_zone(zone: str, path: Path) -> None:
    try:
        zone_of(zone or "UTC")
    except UsageError as error:
        raise InputError(
            "no such time zone", file=path, field="time.zone", value=zone,
            advice="write one as Europe/Berlin",
        ) from error  # fmt: skip


def _check_format(format: str, path: Path) -> None:
    """Raise where no text can be read by a format."""
    try:
        datetime.strptime("", format)
    except re.error:
        problem = "a part of the date or of the time stands twice"
    except ValueError as error:
        if "does not match" in str(error):
            return
        problem = str(error)
    else:
        return
    raise InputError(
        f"not a format of strptime: {problem}", file=path, field="time.format", value=format,
        advice='write one as "%d/%m/%Y %H:%M:%S"',
    )  # fmt: skip


def bundled() -> list[str]:
    """Names of the maps that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> ColumnMap:
    """A column map by name, or from a TOML file.

    Raises
    ------
    UsageError
        When there is no such map.
    InputError
        When the file cannot be read or is no column map.
    """
    path = FOLDER / f"{name}.toml" if name in bundled() else Path(name)
    if path.suffix != ".toml":
        known = ", ".join(bundled())
        raise UsageError(
            f"unknown column map {name!r}{nearest(name, bundled())} (one of {known}, or a TOML "
            "file)"
        )
    found = converted(parse_toml(path, "a column map"), ColumnMap, "a column map", path)
    for key in found.columns:
        if key not in KNOWN:
            raise InputError(
                f"no such column{nearest(key, KNOWN)}", file=path, field=f"columns.{key}",
                advice=f"write one of {', '.join(KNOWN)}",
            )  # fmt: skip
    timed = "runtime" in found.columns or {"start", "end"} <= set(found.columns)
    if "submit" not in found.columns or not timed:
        raise InputError(
            "needs submit, and runtime or both start and end", file=path, field="columns"
        )
    if not found.resources:
        raise InputError("names no resource type", file=path, field="resources")
    for key in ("zone", "format"):
        if (value := getattr(found.time, key)) and found.time.submit != "text":
            raise InputError(
                "says how to read dates and times, and submit is no text", file=path,
                field=f"time.{key}", value=value, advice='leave it out, or write submit = "text"',
            )  # fmt: skip
    _check_zone(found.time.zone, path)
    _check_format(found.time.format, path)
    _check_resources(found.resources, "resources", path)
    _check_resources(found.first, "first", path)
    for key, amount in found.first.items():
        if amount.each != "unit":
            raise InputError(
                "what a job takes on its first node is stated for the job", file=path,
                field=f"first.{key}.each", value=amount.each, advice="leave it out",
            )  # fmt: skip
    if found.nodes is not None:
        _check_resources(found.nodes.resources, "nodes.resources", path)
    return found


def _check_resources(resources: Mapping[str, Amount], field: str, path: Path) -> None:
    """Refuse names that a workload has other columns of, amounts of no column, and odd factors."""
    for name, amount in resources.items():
        where = f"{field}.{name}"
        if name in RESERVED or name in MEMORY_COLUMNS or name.startswith((PER_NODE, ON_FIRST)):
            advice = "write mem, and the unit of the column" if "mem" in name else "choose another"
            raise InputError(
                "a workload has a column of this name that says something else", file=path,
                field=where, advice=advice,
            )  # fmt: skip
        if name == "mem" and not amount.unit:
            raise InputError(
                "memory needs a unit", file=path, field=f"{where}.unit",
                advice=f"write one of {', '.join(MEMORY_KB)}",
            )  # fmt: skip
        if isinstance(amount.times, int) and not 1 <= amount.times <= LIMIT:
            raise InputError(
                f"1 or more is needed, {LIMIT} at most", file=path, field=f"{where}.times",
                value=amount.times,
            )  # fmt: skip
        if not amount.column and isinstance(amount.times, str):
            raise InputError(
                "times another column, but which column is not said", file=path, field=where,
                advice="name it as column",
            )  # fmt: skip
        if (amount.each == "node") != bool(amount.nodes):
            raise InputError(
                "what each node has needs the column that names the nodes, and nothing else does",
                file=path, field=f"{where}.nodes", value=amount.nodes,
                advice='write each = "node" and nodes = "COLUMN", or none of them',
            )  # fmt: skip


def read(
    path: str | os.PathLike[str], map: str | ColumnMap, nodes: str | os.PathLike[str] | None = None
) -> Imported:
    """Read a table of jobs by a column map.

    Parameters
    ----------
    path : path
        CSV, plain or packed, or Parquet.
    map : str or ColumnMap
        A name in `bundled`, a TOML file, or a map.
    nodes : path, optional
        A table of nodes, where the map says what its columns are. Else the system is inferred.

    Raises
    ------
    InputError
        When a file cannot be read, a column is missing, or a cell is wrong (named by its line).
    UsageError
        When there is no such map, or it says nothing of nodes.
    """
    form = load(map) if isinstance(map, str) else map
    source = _Source(Path(path), form.table)
    keep, left_out = _kept_rows(source, form)
    names = form.columns
    unknown = np.full(len(keep), -1, dtype=np.int64)

    def moment(key: str, after_s: IntArray) -> IntArray:
        return source.times(names[key], form.time, after_s) if key in names else unknown

    def seconds(key: str, unit: str) -> IntArray:
        return source.durations(names[key], unit) if key in names else unknown

    submit_s = moment("submit", unknown)
    start_s = moment("start", submit_s)
    end_s = moment("end", start_s)
    wait_s, runtime_s = seconds("wait", "s"), seconds("runtime", form.time.runtime)
    start_s = np.where((start_s < 0) & (wait_s >= 0), submit_s + wait_s, start_s)
    ran = (runtime_s < 0) & (start_s >= 0) & (end_s >= start_s)
    runtime_s = np.where(ran, end_s - start_s, runtime_s)
    units = source.numbers(names["units"]) if "units" in names else np.ones_like(unknown)
    amounts, uneven, odd = {}, {}, {}
    if "units" in names:
        odd["units"] = source.fractions(names["units"])
    for name, amount in form.resources.items():
        amounts[name], uneven[name] = source.amount(amount, units)
        if amount.column and not amount.unit and isinstance(amount.times, int):
            odd[name] = source.fractions(amount.column, amount.times)
    asks = sum((values > 0 for values in amounts.values()), start=np.zeros_like(keep))
    for name, amount in form.first.items():
        amounts[ON_FIRST + name], uneven[ON_FIRST + name] = source.amount(amount, units)
    for reason, wrong in (
        ("submit time unknown", submit_s < 0),
        ("never started", (start_s < 0) if "start" in names else np.zeros_like(keep)),
        ("ends before it starts", (runtime_s < 0) & (start_s > end_s) & (end_s >= 0)),
        ("runtime unknown", runtime_s < 0),
        ("number of units unknown or 0", units < 1),
        ("asks for no resource", ~asks),
    ):
        left_out[reason] += int((keep & wrong).sum())
        keep &= ~wrong
    numbers = source.ids(names["id"]) if "id" in names else unknown
    if "id" in names:
        again = keep & source.twice(numbers)
        left_out["stands twice"] += int(again.sum())
        keep &= ~again
    columns = Columns(
        id=numbers[keep].tolist(),
        submit_s=submit_s[keep].tolist(),
        start_s=start_s[keep].tolist(),
        runtime_s=runtime_s[keep].tolist(),
        requested_s=seconds("requested", form.time.requested)[keep].tolist(),
        units=units[keep].tolist(),
        request={name: np.maximum(values, 0)[keep].tolist() for name, values in amounts.items()},
    )
    _add_labels(columns, source, names, keep)
    machine, frame = None, None
    notes: Counter[str] = Counter()
    if nodes is not None:
        if form.nodes is None:
            raise UsageError(f"the column map says nothing of nodes: leave out {nodes}")
        asked = [
            name.removeprefix(ON_FIRST) for name, of in amounts.items() if (of[keep] > 0).any()
        ]
        table_of_nodes = _Source(Path(nodes), TableForm(empty=form.table.empty))
        machine, frame = _system(table_of_nodes, form.nodes, asked, notes)
    for name, values in amounts.items():
        notes[f"{name} unknown or below 0: none is asked for"] = int((keep & (values < 0)).sum())
        notes[f"{name} rounded up to the same for each unit"] = int((keep & uneven[name]).sum())
    for name, fractions in odd.items():
        notes[f"{name} with a fraction: rounded up"] = int((keep & fractions).sum())
    notes["start before they are submitted"] = int(
        ((start_s >= 0) & (start_s < submit_s))[keep].sum()
    )
    own = columns.labels.get("priority", [])
    notes["priority unknown or below 0: it counts as 0"] = sum(value < 0 for value in own)
    own[:] = [max(value, 0) for value in own]
    if machine is not None and "features" in names:
        asked = source.text(names["features"])[keep].tolist()
        columns.labels["features"] = features(asked, machine, notes)
    return finish(
        columns, machine, frame, path, left_out, notes, form.told, memory_unit_kb=1024,
        name=log_name(path),
    )  # fmt: skip


def _kept_rows(source: _Source, form: ColumnMap) -> tuple[BoolArray, Counter[str]]:
    """Which rows the map keeps, and how many it leaves out by each of its rules."""
    left_out: Counter[str] = Counter()
    keep = np.ones(len(source.frame), dtype=np.bool_)
    for rule in form.keep:
        inside = source.text(rule.column).isin(rule.among).to_numpy()
        left_out[f"{rule.column} is not {' or '.join(rule.among)}"] += int((keep & ~inside).sum())
        keep &= inside
    return keep, left_out


def _add_labels(
    columns: Columns, source: _Source, names: Mapping[str, str], keep: BoolArray
) -> None:
    """Add the labels of the jobs, and the columns that a workload has no place for."""
    for name in LABELLED:
        if name in names:
            text = source.text(names[name])[keep]
            columns.labels[name] = [value or None for value in text]
    for name, (most, problem) in MOST.items():
        if name in names:
            values = source.numbers(names[name])
            if (larger := keep & (values > most)).any():
                raise source.wrong(names[name], int(np.argmax(larger)), problem)
            columns.labels[name] = values[keep].tolist()
    used = {*names.values()} - {names.get("id", ""), names.get("features", "")}
    for name in source.frame.columns:
        if name not in used:
            # The workload's own number has the name id.
            free = (
                name
                if name != "id"
                else next(each for each in ("id_", "id_of_the_table") if each not in source.frame)
            )
            columns.extra[free] = source.text(name)[keep].tolist()


def _system(
    source: _Source, form: Nodes, asked: Sequence[str], notes: Counter[str]
) -> tuple[System, pd.DataFrame]:
    """The system of a table of nodes, of which jobs have ``asked`` for these resource types."""
    if lacking := [name for name in asked if name not in form.resources]:
        raise UsageError(
            f"jobs ask for {' and '.join(lacking)}, of which {source.path} says nothing: name the "
            "column under [nodes] resources, or leave it out of [resources] and [first]"
        )
    called = source.text(form.name)
    for wrong, problem in (
        ((called == "").to_numpy(), "a node needs a name"),
        (called.duplicated().to_numpy(), "a node stands twice"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise source.wrong(form.name, row, problem, "correct the table of nodes")
    one = np.ones(len(source.frame), dtype=np.int64)
    amounts = {}
    for name, amount in form.resources.items():
        for column in (amount.column, amount.times):
            if isinstance(column, str) and column:
                source.refuse_negative(column)
        amounts[name] = source.amount(amount, one)[0]
        notes[f"nodes of which {name} is unknown: they have none"] = int((amounts[name] < 0).sum())
        amounts[name] = np.maximum(amounts[name], 0)
    texts = source.text(form.features) if form.features else [""] * len(source.frame)
    names = [tuple(sorted({*re.split(r"[\s,;&|]+", text)} - {""})) for text in texts]
    rows = list(zip(*(values.tolist() for values in amounts.values()), names, strict=True))
    kinds = {row: k for k, row in enumerate(dict.fromkeys(rows))}
    groups = tuple(
        NodeGroup(f"group{k + 1}", rows.count(row), tuple(row[:-1]), row[-1])
        for row, k in kinds.items()
    )
    order = np.argsort([kinds[row] for row in rows], kind="stable")
    frame = source.frame.iloc[order].reset_index(drop=True)
    group = [groups[kinds[rows[k]]].name for k in order]
    frame = frame.rename(columns={name: f"{name}_" for name in ("node", "group")})
    frame.insert(0, "node", range(len(frame)))
    frame.insert(1, "group", group)
    return System(log_name(source.path), tuple(amounts), groups, 1024), frame


def _rounded(values: FloatArray) -> IntArray:
    """Rounded up, but for what a product of decimal fractions is too large by."""
    return np.asarray(np.ceil(values - 1e-9), dtype=np.int64)


class _Source:
    """A table as text cells, whose wrong ones are named."""

    def __init__(self, path: Path, form: TableForm) -> None:
        import pandas as pd

        self.path = path
        self.is_text = path.suffix != ".parquet"
        try:
            if self.is_text:
                content = with_newlines(read_text(path))
                self.first_line = 1 if form.names else 2
                self._check_names(content, form)
                with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
                    self.frame = pd.read_csv(
                        io.BytesIO(content), dtype=str, keep_default_na=False,
                        sep=r"\s+" if form.blanks else ",", skip_blank_lines=False,
                        header=None if form.names else 0, names=form.names or None,
                        index_col=False, encoding_errors="backslashreplace",
                    )  # fmt: skip
                if not form.blanks:
                    self._strip(content, form)
                self.frame = self.frame[(self.frame.fillna("") != "").any(axis=1)]
                if not form.blanks:
                    check_widths(content, len(self.frame.columns), path)
            else:
                self.first_line = 1
                # An empty cell makes floats of a column of integers, and names of 7 and 7.0 two.
                self.frame = read_parquet(path).to_pandas(integer_object_nulls=True)
                if any(name is not None for name in self.frame.index.names):
                    self.frame = self.frame.reset_index()
                self.frame.columns = self.frame.columns.astype(str)
            if form.empty:
                self.frame = self.frame.replace(form.empty, "")
        except InputError:
            raise
        except Exception as error:  # whatever pandas makes of a strange table
            if self.is_text and not form.blanks:
                header = content.split(b"\n", 1)[0].decode(errors="backslashreplace")
                with suppress(csv.Error):  # what pandas says of it is said below
                    check_widths(content, len(next(csv.reader([header]), [])), path)
            raise not_a_table(error, path) from error

    def _check_names(self, content: bytes, form: TableForm) -> None:
        """Refuse an empty file, cells apart by other marks than commas, and a name that is twice.

        Pandas would rename one of two columns of a name.
        """
        if not content.strip():
            raise InputError("the file is empty", file=self.path, advice="name a table")
        if form.names or form.blanks:
            return
        header = content.split(b"\n", 1)[0].decode(errors="backslashreplace")
        names = next(csv.reader([header]), [])
        if advice := other_commas(names):
            raise InputError(
                "a table of one column", file=self.path, line=1, value=header, advice=advice
            )
        for name, times in Counter(name.strip() for name in names).items():
            if times > 1:
                raise InputError(
                    "a column is named twice", file=self.path, line=1, field=name,
                    advice="rename one of the two",
                )  # fmt: skip

    def _strip(self, content: bytes, form: TableForm) -> None:
        """Take the blanks around names and cells away, as where the columns need no map."""
        ends = len(content.strip(b" \t")) < len(content)
        if not ends and not any(mark in content for mark in _BLANKS):
            return
        if not form.names:
            self.frame.columns = self.frame.columns.str.strip()
        self.frame = self.frame.apply(lambda column: column.str.strip())

    def column(self, name: str) -> pd.Series[str]:
        if name not in self.frame:
            found = ", ".join(map(str, self.frame.columns))
            raise InputError(
                f"the column is missing; the columns are {found}", file=self.path, field=name,
                advice="correct the file or the column map",
            )  # fmt: skip
        return self.frame[name]

    def text(self, name: str) -> pd.Series[str]:
        column = self.column(name)
        if self.is_text:
            return column.fillna("")
        return column.astype(object).where(column.notna(), "").map(as_text)

    def numbers(self, name: str, factor: float = 1.0) -> IntArray:
        """A column as whole numbers, rounded up; -1 for an empty cell and for less than 0."""
        return _rounded(self.floats(name, factor))

    def floats(self, name: str, factor: float = 1.0) -> FloatArray:
        """A column as numbers; -1 for an empty cell and for less than 0.

        Durations of a Parquet file are seconds, whatever the factor.
        """
        import pandas as pd

        column: Any = self.column(name)
        if column.dtype.kind == "M":
            raise InputError(
                "dates and times, where a number is needed", file=self.path, field=name,
                advice='for the times of jobs write submit = "text" under [time]',
            )  # fmt: skip
        if column.dtype.kind == "m":
            column, factor = column.dt.total_seconds(), 1.0
        empty = column.isna().to_numpy() | (self.text(name) == "").to_numpy()
        found = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        values = found * factor
        with np.errstate(invalid="ignore"):
            bad = ~empty & ~(np.abs(values) < LIMIT)
        if bad.any():
            raise self.wrong(name, int(np.argmax(bad)), "not a number in range")
        return np.where(empty | (values < 0), -1.0, values)

    def fractions(self, name: str, factor: float = 1.0) -> BoolArray:
        """Which cells of a column are rounded up as numbers, shape (rows,)."""
        values = self.floats(name, factor)
        return np.asarray(np.abs(values - np.rint(values)) > 1e-9)

    def refuse_negative(self, name: str) -> None:
        """Refuse a column with a number below 0."""
        import pandas as pd

        cells = pd.to_numeric(self.column(name), errors="coerce")
        found = cells.to_numpy(np.float64, na_value=np.nan)
        if (found < 0).any():
            raise self.wrong(name, int(np.argmax(found < 0)), "a node cannot have less than 0")

    def durations(self, name: str, unit: str) -> IntArray:
        """A column of durations in seconds, rounded up; -1 for an empty cell."""
        if unit != "text":
            return self.numbers(name, SECONDS[unit])
        found = []
        for row, text in enumerate(self.text(name)):
            try:
                found.append(duration_s(text) if text else -1)
            except ValueError as error:
                raise self.wrong(name, row, f"no duration as 1-12:30:00: {error}") from error
        return np.array(found, dtype=np.int64)

    def twice(self, ids: IntArray) -> BoolArray:
        """Which rows have a number, and are the same in all cells as one ahead of them."""
        found = np.zeros(len(ids), dtype=np.bool_)
        number, count = np.unique(ids, return_counts=True)
        again = np.isin(ids, number[count > 1]) & (ids >= 0)
        found[again] = self.frame[again].astype(str).duplicated().to_numpy()
        return found

    def ids(self, name: str) -> IntArray:
        """Numbers of the jobs, -1 for each that has a name instead."""
        text = self.text(name)
        plain = text.str.fullmatch(r"[0-9]{1,14}").to_numpy(dtype=np.bool_)
        return np.array(
            [int(value) if good else -1 for value, good in zip(text, plain, strict=True)],
            dtype=np.int64,
        )

    def amount(self, amount: Amount, units: IntArray) -> tuple[IntArray, BoolArray]:
        """What each unit asks for, memory in MB, and whether it was rounded up to that.

        It is below 0 where it is not known.
        """
        factor = MEMORY_KB[amount.unit] / 1024 if amount.unit else 1.0
        even = np.zeros(len(self.frame), dtype=np.bool_)
        if not amount.column:
            values = _rounded(np.full(len(self.frame), int(amount.times) * factor))
        elif isinstance(amount.times, int):
            values = self.numbers(amount.column, factor * amount.times)
        else:
            value, times = self.floats(amount.column), self.floats(amount.times)
            exact = value * times * factor
            if (exact >= LIMIT).any():
                problem = f"times {amount.times} it is more than can be counted"
                raise self.wrong(amount.column, int(np.argmax(exact)), problem)
            values = _rounded(np.where((value < 0) | (times < 0), -1, exact))
        if amount.each == "unit":
            return values, even
        if amount.nodes:
            named = self.text(amount.nodes).map(lambda text: len(set(_NODE.findall(text))))
            nodes = np.clip(named.to_numpy(dtype=np.int64), 1, np.maximum(units, 1))
            values = np.where(values < 0, -1, values * nodes)
        each = np.maximum(units, 1)
        return np.where(values < 0, -1, -(-values // each)), (values > 0) & (values % each != 0)

    def times(self, name: str, form: Times, after_s: IntArray) -> IntArray:
        """Seconds since 1970, or since the table's own zero; -1 for an empty cell.

        ``after_s`` are times that these come after, see `time_s`.
        """
        if form.submit != "text":
            times_s = self.numbers(name, SECONDS[form.submit])
            if (late := times_s >= YEAR_10000_S).any():
                advice = 'correct the cell, or the unit of times, as submit = "ms" under [time]'
                raise self.wrong(name, int(np.argmax(late)), "beyond the year 9999", advice)
            return times_s
        zone = zone_of(form.zone or "UTC")
        seconds = []
        for row, (text, least_s) in enumerate(zip(self.text(name), after_s.tolist(), strict=True)):
            try:
                if text and form.format:
                    text = datetime.strptime(text, form.format).isoformat()
                # Eight digits are a date: as seconds they would be of the early 1970s.
                dated = _DATE.sub(r"\1-\2-\3", text)
                seconds.append(time_s(dated, zone, least_s) if text else -1)
            except ValueError as error:
                form_of = f"of the format {form.format}" if form.format else "of ISO 8601"
                raise self.wrong(name, row, f"no date and time {form_of} from 1970 on") from error
        return np.array(seconds, dtype=np.int64)

    def wrong(self, name: str, row: int, problem: str, advice: str = "") -> InputError:
        line = int(self.frame.index[row]) + self.first_line if self.is_text else None
        return InputError(
            problem, file=self.path, line=line,
            field=name if self.is_text else f"{name} of row {row + 1}",
            value=str(self.frame[name].iloc[row]),
            advice=advice
            or "correct the cell or the column map; if such a cell means unknown, leave it empty, "
            "or add its text to empty under [table] of the map",
        )  # fmt: skip
