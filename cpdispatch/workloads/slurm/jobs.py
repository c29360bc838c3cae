"""The jobs of a Slurm cluster, as ``sacct`` says: text of ``sacct -P``, or ``sacct --json``."""

from __future__ import annotations

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from cpdispatch.errors import InputError
from cpdispatch.files import parse_json, read_text, unlike
from cpdispatch.jobs import PRIORITY_MAX
from cpdispatch.system import LIMIT, System
from cpdispatch.workloads.imported import Columns
from cpdispatch.workloads.slurm import submitted
from cpdispatch.workloads.slurm.nodes import dict_of, number_of, object_of, text_of
from cpdispatch.workloads.slurm.submitted import Submitted
from cpdispatch.workloads.slurm.terms import licences_of
from cpdispatch.workloads.slurm.values import (
    NO_LIMIT,
    NOTHING,
    count,
    duration_s,
    gpu_name,
    size_mb,
    tasks_in,
    tasks_of,
    time_s,
    tres,
)

T = TypeVar("T")

PENDING = "still pending when the records were taken"
RUNNING = "still running when the records were taken"
CANCELLED = "cancelled before it started"
NOT_STARTED = "ended without having started"
NO_STATE = "in a state that Slurm does not have"
NO_SUBMIT = "submit time unknown"
NO_RUNTIME = "runtime unknown"
NO_SIZE = "number of CPUs unknown"
ATTEMPT = "earlier attempt of a job that was queued again"
TWICE = "the same record stands twice"
STEPS = "steps of jobs: skipped, since the job's own record has what is used"
LIMITLESS = "no time limit: the longest limit or runtime of the records stands in"
UNEVEN = "CPUs or GPUs cannot be split evenly over the nodes: rounded up"
FOLDED = "attempts of a job that was queued again: the last one is kept, submitted with the first"

START, ATTEMPTS, NODE_LIST, JOB_ID = "start", "attempts", "node_list", "job_id"
"""Columns of what travels along: when a job started, its earlier attempts, its nodes, its name."""

_ENDED = frozenset((
    "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE",
    "PREEMPTED", "BOOT_FAIL", "REQUEUED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
))  # fmt: skip
_WAITING = frozenset(("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_RUNNING = frozenset((
    "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING",
    "STAGE_OUT",
))  # fmt: skip
_QUEUED_AGAIN = frozenset(("REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"))
_NO_NODES = "None assigned"

NOTHING_SAID = Submitted()
HELD_S = 60
"""A job was held back that was not eligible so long after its submission, seconds."""
NEEDED = ("JobID", "Submit", "Start", "End", "State")


@dataclass(slots=True)
class Record:
    """What is used of a record of sacct; a number of -1 is unknown.

    Attributes
    ----------
    number : int
        The job's number of its own, which tasks of an array have too.
    jobs : int
        How many jobs it stands for.
    nodes, cpus, memory_mb : int
        Of the whole job.
    priority, array_limit, eligible_s : int
        0 and -1 where nothing is said.
    submitted : Submitted
        What the command line says.
    before : list of Record
        Earlier attempts of the same job, first ones first, once `columns_of` has found them.
    """

    job_id: str
    number: int
    jobs: int
    state: str
    submit_s: int
    start_s: int
    end_s: int
    elapsed_s: int
    limit_s: int
    nodes: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]
    restartable: int
    labels: Mapping[str, str]
    extra: Mapping[str, str]
    priority: int = 0
    array_limit: int = 0
    eligible_s: int = -1
    licences: str = ""
    submitted: Submitted = NOTHING_SAID
    again: bool = False
    before: list[Record] = field(default_factory=list)

    @property
    def array(self) -> str:
        """The array that it is a task of, empty for none."""
        return self.job_id.partition("_")[0] if "_" in self.job_id else ""

    @property
    def ended(self) -> bool:
        """Whether it ran and its runtime is known."""
        return self.state in _ENDED and self.start_s >= 0 and self.runtime_s >= 0

    @property
    def runtime_s(self) -> int:
        """Runtime in seconds, without the time that it was suspended where that is told."""
        if self.elapsed_s >= 0:
            return self.elapsed_s
        return self.end_s - self.start_s if min(self.end_s, self.start_s) >= 0 else -1


@dataclass(slots=True)
class Records:
    """Records of several files, with what was skipped beside jobs."""

    records: list[Record] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


def read(paths: Sequence[str | os.PathLike[str]], zone: ZoneInfo) -> Records:
    """Read records of jobs.

    Parameters
    ----------
    paths : sequence of path
        What ``sacct -P`` or ``sacct --json`` prints, plain or packed.
    zone : ZoneInfo
        That of local times.

    Raises
    ------
    InputError
        When a file cannot be read, or a value in it (file, line, field and value are named).
    """
    found = Records()
    for path in map(Path, paths):
        content = read_text(path)
        if content.lstrip()[:1] == b"{":
            _from_json(content, path, found)
        else:
            _from_text(content, path, zone, found)
    return found


def parse(content: bytes, called: str, zone: ZoneInfo) -> list[Record]:
    """Read records from what ``sacct -P`` printed; ``called`` stands for the file in errors."""
    found = Records()
    _from_text(content, Path(called), zone, found)
    return found.records


# --------------------------------------------------------------------------------------- text


def _from_text(content: bytes, path: Path, zone: ZoneInfo, found: Records) -> None:
    # One line after the other, so that the text is in memory once.
    lines = (line.decode(errors="replace").removesuffix("\n") for line in io.BytesIO(content))
    header = next(lines, "").rstrip("\r")
    # What is between names is the bar, unless sacct was called with --delimiter.
    first = re.match(r"[\w%]+([^\w%]+)", header)
    mark = first[1] if first else "|"
    # `sacct -p` ends each line with a bar.
    names = [name.split("%")[0] for name in header.removesuffix(mark).split(mark)]
    if mark not in header or not set(NEEDED) <= set(names):
        kind = unlike(content, "")
        missing = ", ".join(sorted(set(NEEDED) - set(names)))
        raise InputError(
            f"not what `sacct -P` prints: its first line does not name {missing}{kind}", file=path,
            line=1, advice="make the dump with the command in docs/import.md",
        )  # fmt: skip
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(
            "the column is named twice", file=path, line=1, field=twice[0], advice="leave one"
        )
    for line, cells in _cells(lines, header, mark, len(names), path):
        values = dict(zip(names, cells, strict=True))
        if "." in values["JobID"]:
            found.notes[STEPS] += 1
            continue
        found.records.append(_Line(values, path, line, zone).record())


def _cells(
    lines: Iterable[str], header: str, mark: str, width: int, path: Path
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record with its line; a name or a command may go over several lines."""
    begin, held = 0, ""
    bars = header.count(mark)
    for number, line in enumerate(lines, start=2):
        text = f"{held}\n{line}" if held else line
        if not held:
            begin = number
            # Files that were put together have the header again.
            if not line.strip() or line.rstrip("\r") == header:
                continue
        found = text.count(mark)
        if found < bars:
            held = text
            continue
        cells = text.rstrip("\r").split(mark)[:width] if bars == found else []
        if not cells:
            raise InputError(
                f"{found + 1} cells, and the first line names {width} columns", file=path,
                line=begin, value=text,
                advice=f"a cell holds the {mark} that separates cells, or a line is cut short: "
                "make the dump with --delimiter=@@, or without columns such as SubmitLine",
            )  # fmt: skip
        held = ""
        yield begin, cells
    if held.strip():
        raise InputError(
            f"the file ends within a record: {held.count(mark) + 1} cells, and the first line "
            f"names {width} columns",
            file=path, line=begin, value=held, advice="make the dump again",
        )  # fmt: skip


@dataclass(slots=True)
class _Line:
    """A record of text, whose values are named where they cannot be understood."""

    values: Mapping[str, str]
    path: Path
    line: int
    zone: ZoneInfo

    def get(self, name: str) -> str:
        # Names of users and the like stand once in memory.
        text = sys.intern(self.values.get(name, "").strip())
        return "" if text in NOTHING else text

    def parsed(self, name: str, parse: Callable[[str], T], unknown: T) -> T:
        text = self.get(name)
        if not text:
            return unknown
        try:
            return parse(text)
        except ValueError as error:
            raise InputError(
                str(error) or "not understood", file=self.path, line=self.line, field=name,
                value=text, advice="correct the cell, or leave it empty if the value is unknown",
            ) from error  # fmt: skip

    def number(self, *names: str) -> int:
        """The first of these that has a number other than 0."""
        return next((n for name in names if (n := self.parsed(name, count, 0)) > 0), 0)

    def time(self, name: str) -> int:
        return self.parsed(name, lambda text: time_s(text, self.zone), -1)

    def record(self) -> Record:
        # A job that never started has no allocation: what it asked for stands in.
        allocated: dict[str, str] = self.parsed("AllocTRES", tres, dict[str, str]())
        asked: dict[str, str] = self.parsed("ReqTRES", tres, dict[str, str]())
        which = "AllocTRES" if allocated else "ReqTRES"
        given = allocated or asked
        cpus = self.part(which, given, "cpu") or self.number("AllocCPUS", "NCPUS", "ReqCPUS")
        nodes = self.part(which, given, "node") or self.number("AllocNodes", "NNodes", "ReqNodes")
        text_id = self.get("JobID")
        raw_id = self.get("JobIDRaw")
        start_s = self.time("Start")
        if self.values.get("NodeList", "").strip() == _NO_NODES:
            start_s = -1
        elapsed_s = self.parsed("ElapsedRaw", count, -1)
        if elapsed_s < 0:
            elapsed_s = self.parsed("Elapsed", duration_s, -1)
        return Record(
            text_id,
            _job_number(raw_id or text_id),
            self.parsed("JobID", tasks_of, 1),
            _state(self.get("State")),
            self.time("Submit"),
            start_s,
            self.time("End"),
            elapsed_s,
            self.limit(),
            nodes,
            cpus,
            self.memory(which, given, cpus, nodes),
            _gpus(given, lambda name: self.part(which, given, name)),
            self.restartable(),
            {
                "user": self.get("User"), "group": self.get("Account"), "queue": self.get("QOS"),
                "executable": self.get("JobName"), "partition": self.get("Partition"),
            },
            {
                "job_id": text_id, "state": self.get("State").split(" ")[0],
                "eligible": str(self.time("Eligible")) if self.get("Eligible") else "",
                "features": self.get("Constraints"), "node_list": self.get("NodeList"),
                "reservation": self.get("Reservation"), "licenses": self.get("Licenses"),
                "tres": self.get("AllocTRES") or self.get("ReqTRES"), "flags": self.get("Flags"),
            },
            min(self.parsed("Priority", count, 0), PRIORITY_MAX),
            _array_limit(text_id),
            self.time("Eligible"),
            self.get("Licenses") or _licences(given),
            submitted.read(self.get("SubmitLine")),
        )  # fmt: skip

    def part(self, field: str, given: Mapping[str, str], name: str) -> int:
        """A number of a TRES string."""
        try:
            return count(given.get(name) or "0")
        except ValueError as error:
            raise self.wrong(field, f"{name}: {error}") from error

    def limit(self) -> int:
        text = self.get("Timelimit")
        if text and text not in NO_LIMIT:
            return self.parsed("Timelimit", duration_s, -1)
        raw = self.get("TimelimitRaw")
        if raw and raw not in NO_LIMIT:
            return self.parsed("TimelimitRaw", count, -1) * 60
        return -1

    def memory(self, field: str, given: Mapping[str, str], cpus: int, nodes: int) -> int:
        if given.get("mem"):
            try:
                return size_mb(given["mem"])[0]
            except ValueError as error:
                raise self.wrong(field, f"mem: {error}") from error
        amount, each = self.parsed("ReqMem", size_mb, (0, ""))
        return amount * {"c": cpus, "n": nodes}.get(each, 1)

    def restartable(self) -> int:
        line = self.get("SubmitLine").split()
        if "--no-requeue" in line:
            return 0
        return int("--requeue" in line or self.parsed("Restarts", count, 0) > 0)

    def wrong(self, field: str, problem: str) -> InputError:
        return InputError(
            problem, file=self.path, line=self.line, field=field, value=self.get(field),
            advice="correct the cell, or leave it empty if the value is unknown",
        )  # fmt: skip


def _job_number(text: str) -> int:
    """A job's number; -1 for a task of an array whose own one is not told."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 14 else -1


def _array_limit(job_id: str) -> int:
    """How many tasks of an array may run at once, as in ``12_[1-9%3]``; 0 where it is not said."""
    found = re.search(r"%(\d{1,9})\]$", job_id, re.ASCII)
    return int(found[1]) if found else 0


def _licences(given: Mapping[str, Any]) -> str:
    """The licences in a TRES string, as text."""
    prefix = "license/"
    return ",".join(
        f"{name.removeprefix(prefix)}:{many}"
        for name, many in given.items()
        if name.startswith(prefix)
    )


def _state(text: str) -> str:
    # As in `CANCELLED by 1000`; a plus sign says that the text was cut.
    return text.partition(" ")[0].rstrip("+").upper()


def _gpus(given: Mapping[str, Any], number: Callable[[str], int]) -> dict[str, int]:
    """GPUs by resource type: where only types are told, their sum is that of all."""
    gpus: dict[str, int] = {}
    for name in given:
        if name == "gres/gpu" or name.startswith("gres/gpu:"):
            called = gpu_name(name.partition(":")[2])
            gpus[called] = gpus.get(called, 0) + number(name)
    typed = sum(many for called, many in gpus.items() if called != "gpu")
    if typed > gpus.get("gpu", 0):
        gpus["gpu"] = typed
    return {called: many for called, many in gpus.items() if many}


# --------------------------------------------------------------------------------------- JSON


def _from_json(content: bytes, path: Path, found: Records) -> None:
    data: dict[str, Any] = parse_json(content, dict[str, Any], "a dump of Slurm's jobs", path)
    rows = data.get("jobs")
    if not isinstance(rows, list):
        raise InputError(
            "has no list of jobs", file=path, field="jobs",
            advice="give what `sacct --json` prints",
        )  # fmt: skip
    for index, row in enumerate(rows):
        try:
            found.records.append(_json_record(object_of(row)))
        except ValueError as error:
            raise InputError(
                str(error), file=path, field=f"jobs[{index}]",
                advice="make the dump again, or correct the value",
            ) from error  # fmt: skip
        steps = row.get("steps")
        if isinstance(steps, list) and steps:
            found.notes[STEPS] += len(steps)


def _json_record(row: dict[str, Any]) -> Record:
    def time(value: Any) -> int:
        seconds = number_of(value)
        # Slurm writes 0 for a time that has not come.
        return -1 if seconds is None or seconds <= 0 else seconds

    times, array = dict_of(row, "time"), dict_of(row, "array")
    required = dict_of(row, "required")
    number = number_of(row.get("job_id"))
    text_id, jobs = _json_id(number, array)
    given: dict[str, int] = {}
    for which in ("allocated", "requested"):
        listed = dict_of(row, "tres").get(which)
        for part in listed if isinstance(listed, list) and not given.get("cpu") else ():
            kind = text_of(object_of(part).get("type"))
            name = text_of(part.get("name"))
            given[f"{kind}/{name}" if name else kind] = max(number_of(part.get("count")) or 0, 0)
    cpus = given.get("cpu") or max(number_of(required.get("CPUs")) or 0, 0)
    nodes = given.get("node") or max(number_of(row.get("allocation_nodes")) or 0, 0)
    each = {"memory_per_cpu": cpus, "memory_per_node": nodes, "memory": 1}
    asked = ((number_of(required.get(name)) or 0) * many for name, many in each.items())
    memory = given.get("mem") or next((mb for mb in asked if 0 < mb <= LIMIT), 0)
    limit = number_of(times.get("limit"))
    node_list = text_of(row.get("nodes"))
    elapsed = number_of(times.get("elapsed"))
    state = dict_of(row, "state").get("current")
    line = text_of(row.get("submit_line")).split()
    again = row.get("requeue") is True or "--requeue" in line
    restarted = (number_of(row.get("restart_cnt")) or 0) > 0
    labels = {
        "user": "user", "group": "account", "queue": "qos", "executable": "name",
        "partition": "partition",
    }  # fmt: skip
    return Record(
        text_id,
        -1 if number is None or number < 0 else number,
        jobs,
        _state(text_of(state[0] if isinstance(state, list) and state else state)),
        time(times.get("submission")),
        -1 if node_list == _NO_NODES else time(times.get("start")),
        time(times.get("end")),
        -1 if elapsed is None or elapsed < 0 else elapsed,
        limit * 60 if limit is not None and 0 < limit <= LIMIT // 60 else -1,
        nodes,
        cpus,
        memory,
        _gpus(given, given.__getitem__),
        int((again or restarted) and "--no-requeue" not in line),
        {name: text_of(row.get(key)) for name, key in labels.items()},
        {
            "job_id": text_id, "state": _state(text_of(state)),
            "eligible": str(t) if (t := time(times.get("eligible"))) >= 0 else "",
            "features": text_of(row.get("constraints")), "node_list": node_list,
            "reservation": text_of(dict_of(row, "reservation").get("name")),
            "licenses": text_of(row.get("licenses")),
            "tres": ",".join(f"{name}={many}" for name, many in given.items() if many),
            "flags": text_of(row.get("flags")),
        },
        min(max(number_of(row.get("priority")) or 0, 0), PRIORITY_MAX),
        _array_limit(text_id) or _running_tasks(array),
        time(times.get("eligible")),
        text_of(row.get("licenses")) or _licences(given),
        submitted.read(text_of(row.get("submit_line"))),
    )  # fmt: skip


def _running_tasks(array: dict[str, Any]) -> int:
    """How many tasks of an array may run at once; 0 where it is not said."""
    most = dict_of(dict_of(dict_of(array, "limits"), "max"), "running")
    return max(number_of(most.get("tasks")) or 0, 0)


def _json_id(number: int | None, array: dict[str, Any]) -> tuple[str, int]:
    """A job's name as sacct writes it, and how many jobs it stands for."""
    head = number_of(array.get("job_id")) or 0
    tasks = text_of(array.get("task"))
    task = number_of(array.get("task_id"))
    if head and tasks and task is None:
        return f"{head}_[{tasks}]", tasks_in(tasks.partition("%")[0])
    if head and task is not None:
        return f"{head}_{task}", 1
    return "" if number is None else str(number), 1


# ------------------------------------------------------------------------- what becomes of them


def columns_of(
    found: Records, limits_s: Mapping[str, int]
) -> tuple[Columns, Counter[str], Counter[str]]:
    """The jobs that ran, as columns; those that are left out, and what was repaired, by reason.

    A unit of a job is what it has on each of its nodes. Where CPUs and GPUs cannot be divided by
    the nodes, a job has as few units as divide them and are no fewer than the nodes; if there are
    none, what a unit asks for is rounded up.

    Parameters
    ----------
    limits_s : mapping of str to int
        The time limit of each partition, -1 where there is none.
    """
    left_out: Counter[str] = Counter()
    notes: Counter[str] = Counter(found.notes)
    kept: list[Record] = []
    for record in _last_attempts(found.records, left_out, notes):
        reason = _unusable(record)
        if reason:
            left_out[reason] += record.jobs
        else:
            kept.append(record)
    longest_s = max((max(r.limit_s, r.runtime_s) for r in kept), default=1)
    array_limits: dict[str, int] = {}
    for record in found.records:
        if many := record.array_limit or record.submitted.array_limit:
            array_limits[record.array] = many
    columns = Columns()
    kinds = sorted({kind for record in kept for kind in record.gpus})
    columns.request = {"core": [], **{kind: [] for kind in kinds}, "mem": []}
    for record in kept:
        limit_s = record.limit_s
        if limit_s <= 0:
            limit_s = limits_s.get(record.labels["partition"], -1)
        if limit_s <= 0:
            limit_s = longest_s
            notes[LIMITLESS] += 1
        counts = [record.cpus, *record.gpus.values()]
        units = _units(max(record.nodes, 1), counts)
        if any(many % units for many in counts):
            notes[UNEVEN] += 1
        columns.id.append(record.number)
        columns.submit_s.append(record.submit_s)
        columns.start_s.append(record.start_s)
        columns.runtime_s.append(record.runtime_s)
        columns.requested_s.append(max(limit_s, 1))
        columns.units.append(units)
        columns.request["core"].append(-(-record.cpus // units))
        columns.request["mem"].append(-(-record.memory_mb // units))
        for kind in kinds:
            columns.request[kind].append(-(-record.gpus.get(kind, 0) // units))
        for name, text in record.labels.items():
            columns.labels.setdefault(name, []).append(text or None)
        columns.labels.setdefault("restartable", []).append(record.restartable)
        for name, value in _terms(record, units, array_limits).items():
            columns.labels.setdefault(name, []).append(value)
        for name, text in record.extra.items():
            columns.extra.setdefault(name, []).append(text)
        columns.extra.setdefault(START, []).append(record.start_s)
        columns.extra.setdefault(ATTEMPTS, []).append(_attempts_text(record.before))
    return columns, left_out, notes


def _attempts_text(attempts: Sequence[Record]) -> str:
    """Earlier attempts as `attempts_in` reads them; those that did not start are left out."""
    return ";".join(
        f"{of.start_s}-{of.start_s + of.runtime_s}@{of.extra['node_list']}"
        for of in attempts
        if of.start_s >= 0 and of.runtime_s >= 0
    )


def attempts_in(text: str) -> list[tuple[int, int, str]]:
    """Start, end and list of nodes of each attempt in a cell of the column `ATTEMPTS`.

    Examples
    --------
    >>> attempts_in("100-160@n[1-2];200-210@n1")
    [(100, 160, 'n[1-2]'), (200, 210, 'n1')]
    """
    found = []
    for part in filter(None, text.split(";")):
        times, _, nodes = part.partition("@")
        start_s, _, end_s = times.partition("-")
        found.append((int(start_s), int(end_s), nodes))
    return found


def _terms(record: Record, units: int, array_limits: Mapping[str, int]) -> dict[str, Any]:
    """What else a job says of when, where and beside which others it may run."""
    said = record.submitted
    # A job that was queued again had another time to wait for when it came first.
    later = not record.again and record.eligible_s > record.submit_s + HELD_S
    alone = units == max(record.nodes, 1)
    licences = licences_of(record.licences or said.licences)
    return {
        "priority": record.priority,
        "array": record.array or None,
        "array_limit": array_limits.get(record.array, 0) if record.array else 0,
        "begin": record.eligible_s if later else None,
        "licences": " ".join(f"{name}:{many}" for name, many in licences.items()) or None,
        "units_per_node": int(said.per_node > 0 and alone and units > 1),
        "nodes_min": min(said.nodes_min, record.nodes) if units > 1 else 0,
        "nodes_max": said.nodes_max if 0 < said.nodes_max < units else 0,
        "exclusive": int(said.exclusive),
        "nodelist": said.nodelist or None,
        "exclude": said.exclude or None,
    }


def ended(found: Records) -> list[Record]:
    """The jobs that ran to an end and whose size is known; of attempts, the last one."""
    lasts = _last_attempts(found.records, Counter(), Counter())
    return [record for record in lasts if not _unusable(record)]


def _units(nodes: int, counts: Sequence[int]) -> int:
    """How many equal parts a job has: as few as divide the counts and are no fewer than nodes.

    More than 16 parts a node are no answer: then each node has one, and the counts are rounded up.
    """
    common = gcd(*counts)
    parts = range(nodes, min(common, 16 * nodes, nodes + 100_000) + 1)
    return next((units for units in parts if common % units == 0), nodes)


def _unusable(record: Record) -> str:
    """Why a record is no job that can be replayed; empty if it is one."""
    if record.state in _WAITING:
        return PENDING
    if record.state not in _ENDED:
        return RUNNING if record.state in _RUNNING else NO_STATE
    if record.start_s < 0:
        return CANCELLED if record.state == "CANCELLED" else NOT_STARTED
    if record.submit_s < 0:
        return NO_SUBMIT
    if record.runtime_s < 0:
        return NO_RUNTIME
    return NO_SIZE if record.cpus <= 0 else ""


def _last_attempts(
    records: Sequence[Record], left_out: Counter[str], notes: Counter[str]
) -> Iterator[Record]:
    """The records without those that stand twice and without earlier attempts of the same job."""
    of_job: dict[str, list[Record]] = {}
    for position, record in enumerate(records):
        of_job.setdefault(record.job_id or f"?{position}", []).append(record)
    for same in of_job.values():
        if len(same) == 1:
            yield same[0]
            continue
        by_begin: dict[tuple[int, int], Record] = {}
        begun = {record.submit_s for record in same if record.start_s >= 0}
        for record in same:
            key = (record.submit_s, record.start_s)
            other = by_begin.get(key)
            if other is None:
                by_begin[key] = record
            else:
                left_out[TWICE] += record.jobs
                # Where dumps overlap, the later one knows the end.
                if record.ended and not other.ended:
                    by_begin[key] = record
        first_s, before = -1, list[Record]()
        left = [
            record
            for key, record in sorted(by_begin.items())
            if not (
                record.state in _WAITING and record.submit_s in begun and _drop(left_out, record)
            )
        ]
        for record, later in zip(left, [*left[1:], None], strict=True):
            if later is not None and record.state in _QUEUED_AGAIN:
                left_out[ATTEMPT] += record.jobs
                first_s = record.submit_s if first_s < 0 else first_s
                before.append(record)
                continue
            if first_s >= 0:
                notes[FOLDED] += 1
                record.submit_s, record.restartable, first_s = first_s, 1, -1
                record.again, record.before, before = True, before, []
            yield record


def _drop(left_out: Counter[str], record: Record) -> bool:
    """Leave out a record of a job that another dump knows to have started."""
    left_out[TWICE] += record.jobs
    return True


def used(columns: Columns, system: System | None) -> list[str]:
    """What these jobs say that no dispatcher heeds, as sentences."""
    told = []
    partitions = {name for name in columns.labels.get("partition", ()) if name}
    if len(partitions) > 1 and (system is None or not system.partitions):
        told.append(
            f"Partitions are labels: {len(partitions)} are named, and jobs are not kept to the "
            "nodes of theirs."
        )
    named = {"reservation": "Reservations"}
    if system is None:
        named = {"features": "Features", "licenses": "Licences"} | named
    for name, what in named.items():
        jobs = sum(bool(text) for text in columns.extra.get(name, ()))
        if jobs:
            told.append(f"{what} are not heeded: {jobs:,} jobs ask for some.")
    het = sum("+" in text for text in columns.extra.get("job_id", ()))
    if het:
        told.append(f"Parts of heterogeneous jobs are jobs of their own: {het:,} such parts.")
    held = sum(bool(begin_s) for begin_s in columns.labels.get("begin", ()))
    if held:
        told.append(
            f"{held:,} jobs were held, had a begin time or came after others: they may start when "
            "they became eligible."
        )
    others = {
        name
        for text in columns.extra.get("tres", ())
        for name in re.findall(r"(?:^|,)((?:gres|bb|fs|ic)/(?!gpu\b)[\w:.-]+)=", text)
    }
    if others:
        told.append(f"No resource of the system, and left out: {', '.join(sorted(others))}.")
    told.append("Dependencies and limits of users and accounts are not in the records.")
    return told
