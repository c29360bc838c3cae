"""The Standard Workload Format, version 2.2, of the Parallel Workloads Archive."""

from __future__ import annotations

import io
import os
import re
import warnings
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.durations import YEAR_10000_S
from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import opened, read_text, resembles, unlike, with_newlines, writing
from cpdispatch.jobs import UNKNOWN, Column, Workload
from cpdispatch.system import LIMIT, System, is_own
from cpdispatch.workloads.clean import BoolArray, NoJobError, RawLog, clean
from cpdispatch.workloads.clock import STATE_IT, TOO_LATE, stated

FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors",
    "average CPU time", "used memory", "requested processors", "requested time",
    "requested memory", "status", "user", "group", "executable", "queue", "partition",
    "preceding job", "think time",
)  # fmt: skip
"""Names of the 18 fields of a job's line."""

FURTHER = "ignored: fields after the 18 of SWF"
NODE_MEMORY = "repaired: memory in bytes a node, a processor gets its share"
SOME_NODES = "ignored: nodes that not every job names, so memory is taken for KB a processor"

MEMORY_UNIT_KB = 1

# The fields that a workload needs, counted from 0, in the order in which `read` takes them.
_NEEDED = (0, 1, 3, 4, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17)
_SUBMIT = FIELDS.index("submit time")
_NAMED = ("user", "group", "executable", "queue", "partition")
COLUMNS = frozenset((
    "id", "submit", "runtime", "requested", "units", *_NAMED, "preceding", "think", "core",
    "mem_kb", "mem_mb", "mem_gb",
))  # fmt: skip
"""The columns of a table of jobs that have a field."""
_CHUNK = 1 << 15  # rows read at once
_WRITTEN = 1 << 12  # rows written at once: each is 18 Python integers for a moment
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_INDENTED_COMMENT = re.compile(rb"(?m)^[ \t]+;.*")


def read(
    path: str | os.PathLike[str], filter: str = "all", processors: int | None = None
) -> Workload:
    """Read a log; a unit of its jobs is one processor with its memory in KB.

    A job's size is field 8 (requested processors), else field 5 (allocated); its request is 1
    ``core`` and field 10 ``mem`` a unit, 0 where the memory is unknown. What was dropped or
    repaired is counted in ``notes``, and the comment lines are kept in ``header``.

    Fields after the 18th are left out; where the first job has some, all jobs are counted. One case
    is known: the logs of the simulator Alea state the node of each processor in field 19, as
    ``{1241,1241}``, and in field 10 the memory of each node in bytes, of which a processor gets its
    share here, in KB rounded up.

    Parameters
    ----------
    path : path
        ``.swf``, plain or packed (.gz, .xz, .zst).
    filter : {"all", "strong", "drop"}
        See `cpdispatch.workloads.clean.clean`.
    processors : int, optional
        Size of the machine for `strong` and `drop`; else the header's MaxProcs or MaxNodes.

    Raises
    ------
    InputError
        When the file cannot be read, a line is no job's line (file, line, field and value are
        named), or no job is left.

    References
    ----------
    Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers",
    JSSPP 1999; https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. Memory of Alea's logs:
    `SWFLoader.java` of https://github.com/aleasimulator/alea.
    """
    return clean(_whole(Path(path)), filter, processors)


def _whole(path: Path) -> RawLog:
    """All jobs of a file. Its text, which takes the most memory, is needed no more then."""
    text = with_newlines(read_text(path))
    header, indented = _comments(text)
    return _raw(text, path, header, _machine(header, text, path), indented)


def parts(
    path: str | os.PathLike[str], jobs: int, filter: str = "all", processors: int | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Iterator[Workload]:  # fmt: skip
    """Read a log as `read` does, so many lines at a time: no more of it is in memory at once.

    Its header is what stands before the first job, and among the first of these lines. Parts of
    which no job is left are passed over.

    Parameters
    ----------
    path, filter, processors
        As of `read`.
    jobs : int
        Lines of a part.
    progress : callable, optional
        Called after each part with the share of the file that has been read.

    Raises
    ------
    InputError
        As of `read`; also when the jobs of a part were submitted before those of the part ahead of
        it, or have ids that are not larger: then the log has to be read as a whole.
    """
    path, before = Path(path), 0
    header: tuple[str, ...] = ()
    machine, empty, ahead = None, None, None
    notes: dict[str, int] = {}
    with opened(path) as stream:
        for text in map(with_newlines, _texts(stream, jobs)):
            found, indented = _comments(text)
            if not before:
                header, machine = found, _machine(found, text, path)
            raw = _raw(text, path, header, machine, indented, before)
            before += text.count(b"\n")
            progress(stream.share)
            try:
                part = clean(raw, filter, processors)
            except NoJobError as error:
                empty, notes = error, _added(notes, error.notes)
                continue
            if ahead is not None:
                _follows(part, ahead, path)
                yield replace(ahead, notes=_added(ahead.notes, notes))
                notes = {}
            ahead = part
    if ahead is None:
        raise empty or InputError("the log has no job", file=path)
    yield replace(ahead, notes=_added(ahead.notes, notes))


def _texts(lines: Iterable[bytes], jobs: int) -> Iterator[bytes]:
    """So many lines at a time; all comments that stand before the first job are in the first."""
    rest = iter(lines)
    first = []
    for line in rest:
        first.append(line)
        if (said := line.removeprefix(BOM_UTF8).strip()) and not said.startswith(b";"):
            break
    text = b"".join([*first, *islice(rest, jobs - 1)])
    while text:
        yield text
        text = b"".join(islice(rest, jobs))


def _added(notes: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The counts of two sets of notes."""
    return {rule: notes.get(rule, 0) + more.get(rule, 0) for rule in {**notes, **more}}


def _follows(part: Workload, ahead: Workload, path: Path) -> None:
    """Raise unless a part's jobs come after the last submission, with ids above the largest."""
    table = part.table
    for field, values, least in (
        ("submit time", table.submit_s, int(ahead.table.submit_s[-1])),
        ("job number", table.id, int(ahead.table.id.max()) + 1),
    ):
        if values.min() < least:
            job = int(np.argmin(values))
            raise InputError(
                f"job {table.id[job]} is out of order: a log that is read by parts is sorted by "
                "submission, with ascending ids",
                file=path, field=field, value=int(values[job]),
                advice="sort the log, or read it as a whole (without --window)",
            )  # fmt: skip


def _raw(
    text: bytes, path: Path, header: tuple[str, ...], machine: int | None, indented: bool,
    before: int = 0,
) -> RawLog:  # fmt: skip
    """The jobs of a log's text, which so many lines of its file come before."""
    if indented:
        text = _INDENTED_COMMENT.sub(b"", text)
    columns, rounded = _columns(text, path, before)
    id, submit, runtime, allocated, size, requested, memory = columns[:7]
    further = _further(text)
    notes = {FURTHER: len(id)} if further else {}
    nodes = re.findall(rb"^[^;{\n]*\{([^}\n]*)\}", text, re.MULTILINE) if b"{" in text else []
    if further[:1] == b"{" and len(nodes) == len(id):
        notes[NODE_MEMORY] = int(np.count_nonzero(memory > 0))
        memory = _of_processors(memory, np.where(size > 0, size, allocated), nodes)
    elif nodes:
        notes[SOME_NODES] = len(nodes)
    return RawLog(
        path=path,
        id=id,
        submit_s=submit,
        runtime_s=runtime,
        requested_s=requested,
        units=size,
        allocated=allocated,
        cores=1,
        request={"core": 1, "mem": np.maximum(memory, 0, out=memory)},
        named=dict(zip(_NAMED, columns[7:12], strict=True)),
        preceding=columns[12],
        think_s=columns[13],
        rounded=rounded,
        processors=machine,
        header=header,
        memory_unit_kb=MEMORY_UNIT_KB,
        per_processor=True,
        notes=notes,
    )


def _comments(text: bytes) -> tuple[tuple[str, ...], bool]:
    """The lines that begin with ';', and whether one of them is indented."""
    lines: list[bytes] = []
    indented = False
    found = text.find(b";")
    while found >= 0:
        begin = text.rfind(b"\n", 0, found) + 1
        end = text.find(b"\n", found)
        end = len(text) if end < 0 else end
        if not text[begin:found].strip():
            lines.append(text[found:end].rstrip())
            indented |= begin < found
        found = text.find(b";", end)
    try:
        return tuple(line.decode() for line in lines), indented
    except UnicodeDecodeError:
        return tuple(line.decode("latin-1") for line in lines), indented


def _machine(header: tuple[str, ...], text: bytes, path: Path) -> int | None:
    """MaxProcs, else MaxNodes, whatever text follows the number."""
    for label in ("MaxProcs", "MaxNodes"):
        for line in header:
            match = re.match(rf";+\s*{label}\s*:\s*(.*)", line, re.IGNORECASE)
            if not match:
                continue
            try:
                number = stated(match[1], LIMIT)
            except ValueError as error:
                before = text[: text.find(line.encode("latin-1", "replace"))]
                raise InputError(
                    str(error), file=path, line=before.count(b"\n") + 1,
                    field=f"{label} of the header", value=match[1], advice=STATE_IT,
                ) from error  # fmt: skip
            if number is not None and number > 0:
                return number
    return None


def _further(text: bytes) -> bytes:
    """The first of the fields after the 18th, of the first job; empty when there is none."""
    found = re.search(rb"^[ \t]*[^;\s].*", text, re.MULTILINE)
    fields = found[0].split(b";", 1)[0].split(maxsplit=len(FIELDS)) if found else []
    return fields[len(FIELDS)] if len(fields) > len(FIELDS) else b""


def _of_processors(memory: IntArray, processors: IntArray, nodes: list[bytes]) -> IntArray:
    """KB for each processor of what is stated in bytes for each node; the nodes are named."""
    counts = np.array([len(set(named.split(b","))) for named in nodes])
    processors = np.maximum(processors, 1).astype(np.int64)
    counts = np.minimum(counts, processors)
    total = np.maximum(memory, 0).astype(np.int64) * counts
    return np.asarray(-(-total // (1024 * processors)), dtype=np.int64)


_INT32_MAX = int(np.iinfo(np.int32).max)


def _columns(text: bytes, path: Path, before: int) -> tuple[Any, BoolArray]:
    """The needed fields, shape (14, jobs), and of which jobs a fraction was rounded."""
    # Rows beyond the real number of jobs are never touched, so they cost no memory; four bytes a
    # number do for nearly every log.
    lines = text.count(b"\n") + 1
    columns: Any = np.empty((len(_NEEDED), lines), dtype=np.int32)
    rounded = np.zeros(lines, dtype=np.bool_)
    jobs, needed, stream = 0, list(_NEEDED), io.BytesIO(text)
    # NumPy's reader takes two thirds of the time of pandas', whose import alone costs 75 MB.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*contained no data")
        while True:
            try:
                chunk = np.loadtxt(
                    stream, comments=";", usecols=range(len(FIELDS)), max_rows=_CHUNK,
                    ndmin=2, encoding="latin-1",
                )  # fmt: skip
            except ValueError as error:
                raise _misread(text, path, before) from error
            if not len(chunk):
                return columns[:, :jobs], rounded[:jobs]
            if not _in_range(chunk):
                raise _misread(text, path, before)
            whole = np.rint(chunk)
            if columns.dtype == np.int32 and np.abs(whole).max() > _INT32_MAX:
                columns = columns.astype(np.int64)
            rows = slice(jobs, jobs + len(chunk))
            rounded[rows] = (whole != chunk)[:, needed].any(axis=1)
            columns[:, rows] = whole[:, needed].T
            jobs = rows.stop


def _in_range(values: FloatArray) -> bool:
    """Whether all are numbers that the package can count with; NaN is not."""
    counted = values.max() < LIMIT and values.min() > -LIMIT
    return bool(counted and values[:, _SUBMIT].max() < YEAR_10000_S)


def _misread(text: bytes, path: Path, before: int) -> InputError:
    """Find the line and the field that the fast reader could not take, lines ``before`` apart."""
    if resembles(text) not in ("", "a log in SWF"):
        kind = unlike(text, "a log in SWF")
        return InputError(f"not a log in SWF{kind}", file=path, advice="name a log")
    for number, line in enumerate(text.splitlines(), start=before + 1):
        fields = line.split(b";", 1)[0].split()
        if not fields:
            continue
        if len(fields) < len(FIELDS):
            return InputError(
                f"a job's line has {len(FIELDS)} fields, this one has {len(fields)}",
                file=path,
                line=number,
                value=line.decode(errors="replace").strip(),
                advice="write -1 for what is unknown",
            )
        for position, value in enumerate(fields[: len(FIELDS)]):
            good = _NUMBER.fullmatch(value) is not None
            late = good and position == _SUBMIT and YEAR_10000_S <= float(value) < LIMIT
            if late or not good or not abs(float(value)) < LIMIT:
                return InputError(
                    TOO_LATE if late else "too large" if good else "not a number",
                    file=path,
                    line=number,
                    field=f"{position + 1} ({FIELDS[position]})",
                    value=value.decode(errors="replace"),
                    advice="correct the line, or write -1 if the value is unknown",
                )
    return InputError("cannot be parsed as SWF", file=path)


# ---------------------------------------------------------------------------------- writing


def write(
    workload: Workload,
    path: str | os.PathLike[str],
    *,
    wait_s: IntArray | None = None,
    runtime_s: IntArray | None = None,
    status: IntArray | None = None,
) -> None:
    """Write a log, or a simulated schedule, as SWF; packed by extension, whole or not at all.

    A workload that speaks of nodes is written in processors: those of a unit times the units, and
    each processor's share of the unit's memory, rounded up. Resource types other than ``core`` and
    ``mem`` have no field in SWF. Names behind numbers are told in the header.

    Parameters
    ----------
    wait_s, runtime_s, status : int64 array, shape (jobs,), optional
        Fields 3, 4 and 11. Without them waits and status are -1 and the runtimes the workload's.
    """
    with writing(path) as stream:
        stream.write(header_of(workload))
        write_jobs(stream, workload, wait_s=wait_s, runtime_s=runtime_s, status=status)


def header_of(workload: Workload) -> bytes:
    """The comment lines of a log."""
    return "".join(f"{text}\n" for text in _header(workload)).encode()


def header_of_schedule(workload: Workload, system: System) -> bytes:
    """The comment lines of a schedule: those of its log without its size, and of the system."""
    kinds = [name for name in system.resources if is_own(name)]
    counted = "core" if "core" in kinds else kinds[0]
    processors = int(system.total[system.resource(counted)])
    lines = [line for line in _header(workload) if not line.startswith(_OF_LOG)]
    told = [f"; MaxNodes: {system.nodes}", f"; MaxProcs: {processors}"]
    lost = [name for name in kinds if name not in (counted, "core", "mem")]
    if lost:
        told.append(f"; Note: SWF has no field for {' and '.join(lost)}")
    first = 1 if lines and lines[0].startswith("; Version") else 0
    return "".join(f"{line}\n" for line in (*lines[:first], *told, *lines[first:])).encode()


_OF_LOG = tuple(
    f"; {name}:"
    for name in ("MaxNodes", "MaxProcs", "MaxJobs", "MaxRecords", "EndTime", "MaxRuntime")
)
"""Beginnings of comment lines that are not so of another system, or of a part of the jobs."""


def write_jobs(
    stream: BinaryIO, workload: Workload, *, wait_s: IntArray | None = None,
    runtime_s: IntArray | None = None, status: IntArray | None = None,
) -> None:  # fmt: skip
    """Write the lines of jobs, see `write`."""
    for name, column in (("wait_s", wait_s), ("runtime_s", runtime_s), ("status", status)):
        if column is not None and column.shape != (len(workload),):
            raise UsageError(f"{name} has {column.shape} values for {len(workload)} jobs")
    table = workload.table
    cores, memory = _processor_request(workload)
    size = table.units * cores
    given = {
        0: table.id,
        1: table.submit_s,
        2: wait_s,
        3: workload.runtime_s if runtime_s is None else runtime_s,
        4: size,
        7: size,
        8: table.requested_s,
        9: np.where(memory > 0, memory, UNKNOWN),
        10: status,
        16: workload.preceding,
        17: workload.think_s,
    }
    for position, name in enumerate(_NAMED, start=11):
        given[position] = table.column(Column[name.upper()])
    line = " ".join(["%d"] * len(FIELDS)) + "\n"
    for first in range(0, len(workload), _WRITTEN):
        part = slice(first, first + _WRITTEN)
        block = np.full((len(table.id[part]), len(FIELDS)), UNKNOWN)
        for position, column in given.items():
            if column is not None:
                block[:, position] = column[part]
        stream.write((line * len(block) % tuple(block.ravel().tolist())).encode())


def _processor_request(workload: Workload) -> tuple[IntArray, IntArray]:
    """Cores of each unit, at least 1, and KB of memory per core."""
    request = dict(zip(workload.resources, workload.table.request.T, strict=True))
    none = np.zeros(len(workload), dtype=np.int64)
    cores = np.maximum(request.get("core", none), 1)
    if workload.memory_unit_kb is None:
        return cores, none
    return cores, -(-request.get("mem", none) * workload.memory_unit_kb // cores)


def _header(workload: Workload) -> Iterator[str]:
    if workload.header:
        yield from workload.header
    else:
        yield "; Version: 2.2"
        yield f"; Computer: {workload.name}"
        yield f"; MaxJobs: {len(workload)}"
        yield f"; MaxRecords: {len(workload)}"
        if workload.processors is not None:
            yield f"; MaxProcs: {workload.processors}"
    for column, names in workload.table.labels.items():
        for number, name in enumerate(names):
            yield f"; Note: {column} {number} is {' '.join(name.split())}"
