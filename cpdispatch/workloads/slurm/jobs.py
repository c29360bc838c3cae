"""The jobs of a Slurm cluster, as ``sacct`` says: text of ``sacct -P``, or ``sacct --json``."""

from __future__ import annotations

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from cpdispatch.errors import InputError
from cpdispatch.files import parse_json, read_text, unlike
from cpdispatch.jobs import PRIORITY_MAX
from cpdispatch.parameters import count_of
from cpdispatch.system import LIMIT
from cpdispatch.workloads.slurm import submitted
from cpdispatch.workloads.slurm.nodes import dict_of, natural_of, number_of, object_of, text_of
from cpdispatch.workloads.slurm.submitted import Submitted
from cpdispatch.workloads.slurm.values import (
    NO_LIMIT,
    NOTHING,
    count,
    duration_s,
    gpu_name,
    size_mb,
    tasks_in,
    tasks_of,
    tasks_of_bits,
    time_s,
    tres,
)

T = TypeVar("T")

STEPS = "steps of jobs: skipped, since the job's own record has what is used"
ENDED = frozenset((
    "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE",
    "PREEMPTED", "BOOT_FAIL", "REQUEUED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
))  # fmt: skip
_NO_NODES = "None assigned"
"""The nodes of a job that was cancelled before it started, whose start is its end."""
_JOB = re.compile(r"\d+(?:_(?:\d+|\[[^\]]*\])|\+\d+)?", re.ASCII)

NOTHING_SAID = Submitted()
NEEDED = ("JobID", "Submit", "Start", "End", "State")


@dataclass(slots=True)
class Record:
    """What is used of a record of sacct; a number of -1 is unknown."""

    job_id: str
    number: int
    """The job's number of its own, which tasks of an array have too."""
    jobs: int
    """How many jobs it stands for."""
    state: str
    submit_s: int
    start_s: int
    end_s: int
    elapsed_s: int
    limit_s: int
    nodes: int
    cpus: int
    memory_mb: int
    """Of the whole job."""
    gpus: Mapping[str, int]
    restartable: int
    labels: Mapping[str, str]
    extra: Mapping[str, str]
    priority: int = 0
    array_limit: int = 0
    eligible_s: int = -1
    """0 and -1 where nothing is said."""
    licences: str = ""
    submitted: Submitted = NOTHING_SAID
    """What the command line says."""
    again: bool = False
    before: list[Record] = field(default_factory=list)
    """Earlier attempts of the same job, first ones first, once `columns_of` has found them."""

    @property
    def array(self) -> str:
        """The array that it is a task of, empty for none."""
        return self.job_id.partition("_")[0] if "_" in self.job_id else ""

    @property
    def ended(self) -> bool:
        """Whether it ran and its runtime is known."""
        return self.state in ENDED and self.start_s >= 0 and self.runtime_s >= 0

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
    lines = (
        line.decode(errors="backslashreplace").removesuffix("\n") for line in io.BytesIO(content)
    )
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
        row = _Line(values, path, line, zone)
        # A list of tasks that Slurm cut short has dots, too.
        job = _JOB.match(row.get("JobID"))
        rest = row.get("JobID")[job.end() :] if job else ""
        if job is None or rest[:1] not in ("", "."):
            raise row.wrong("JobID", "not the number of a job")
        if rest:
            found.notes[STEPS] += 1
            continue
        found.records.append(row.record())


def _cells(
    lines: Iterable[str], header: str, mark: str, width: int, path: Path
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record with its line; a name or a command may go over several lines."""
    begin, held, found = 0, list[str](), 0
    bars = header.count(mark)

    def cells() -> list[str]:
        text = "\n".join(held).rstrip("\r")
        if found == bars:
            return text.split(mark)[:width]
        raise InputError(
            f"{found + 1} cells, and the first line names {width} columns", file=path, line=begin,
            value=text,
            advice=f"a cell holds the {mark} that separates cells, or a line is cut short: "
            "make the dump with --delimiter=@@, or without columns such as SubmitLine",
        )  # fmt: skip

    for number, line in enumerate(lines, start=2):
        marks = line.count(mark)
        # A line without a mark goes on with the last cell of the record before.
        if held and (found < bars or not marks):
            held.append(line)
            found += marks
            continue
        if held:
            yield begin, cells()
        # Files that were put together have the header again.
        new = bool(line.strip()) and line.rstrip("\r") != header
        begin, held, found = number, [line] if new else [], marks
    if held and found < bars:
        raise InputError(
            f"the file ends within a record: {found + 1} cells, and the first line names {width} "
            "columns",
            file=path, line=begin, value="\n".join(held), advice="make the dump again",
        )  # fmt: skip
    if held:
        yield begin, cells()


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
            raise self.wrong(name, str(error) or "not understood") from error

    def number(self, *names: str) -> int:
        """The first of these that has a number other than 0."""
        return next((n for name in names if (n := self.parsed(name, count, 0)) > 0), 0)

    def time(self, name: str, after_s: int = 0) -> int:
        return self.parsed(name, lambda text: time_s(text, self.zone, after_s), -1)

    def record(self) -> Record:
        # A job that never started has no allocation: what it asked for stands in.
        allocated: dict[str, str] = self.parsed("AllocTRES", tres, dict[str, str]())
        asked: dict[str, str] = self.parsed("ReqTRES", tres, dict[str, str]())
        which = "AllocTRES" if allocated else "ReqTRES"
        given = allocated or asked
        cpus = self.part(which, given, "cpu") or self.number("AllocCPUS", "NCPUS", "ReqCPUS")
        nodes = self.part(which, given, "node") or self.number("AllocNodes", "NNodes", "ReqNodes")
        said = submitted.read(self.get("SubmitLine"))
        text_id = self.get("JobID")
        raw_id = self.get("JobIDRaw")
        submit_s = self.time("Submit")
        eligible_s = self.time("Eligible", submit_s)
        start_s = self.time("Start", max(submit_s, eligible_s))
        end_s = self.time("End", start_s)
        no_nodes = self.values.get("NodeList", "").strip() == _NO_NODES
        if "NodeList" not in self.values:
            no_nodes = "AllocTRES" in self.values and not allocated
        if no_nodes or "_[" in text_id:
            start_s = -1
        elapsed_s = self.parsed("ElapsedRaw", count, -1)
        if elapsed_s < 0:
            elapsed_s = self.parsed("Elapsed", duration_s, -1)
        return Record(
            text_id,
            _job_number(raw_id or text_id),
            self.parsed("JobID", tasks_of, 1),
            _state(self.get("State")),
            submit_s,
            start_s,
            end_s,
            elapsed_s,
            self.limit(),
            nodes,
            cpus,
            self.memory(which, given, cpus, nodes),
            _gpus(given, asked, lambda name: self.part(which, given, name)),
            int(self.parsed("Restarts", count, 0) > 0 if said.requeue is None else said.requeue),
            {
                "user": self.get("User"), "group": self.get("Account"), "queue": self.get("QOS"),
                "executable": self.get("JobName"), "partition": self.get("Partition"),
            },
            {
                "job_id": text_id, "state": self.get("State").split(" ")[0],
                "eligible": str(eligible_s) if eligible_s >= 0 else "",
                "features": self.get("Constraints"), "node_list": self.get("NodeList"),
                "reservation": self.get("Reservation"), "licenses": self.get("Licenses"),
                "tres": self.get("AllocTRES") or self.get("ReqTRES"), "flags": self.get("Flags"),
            },
            min(self.parsed("Priority", count, 0), PRIORITY_MAX),
            _array_limit(text_id),
            eligible_s,
            self.get("Licenses") or _licences(given),
            said,
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

    def wrong(self, field: str, problem: str) -> InputError:
        empty = "" if field == "JobID" else ", or leave it empty if the value is unknown"
        return InputError(
            problem, file=self.path, line=self.line, field=field, value=self.get(field),
            advice=f"correct the cell{empty}",
        )  # fmt: skip


def _job_number(text: str) -> int:
    """A job's number; -1 for a task of an array whose own one is not told."""
    number = count_of(text)
    return -1 if number is None or number > LIMIT else number


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


def _gpus(
    given: Mapping[str, Any], asked: Iterable[str], number: Callable[[str], int]
) -> dict[str, int]:
    """GPUs by resource type: where only types are told, their sum is that of all.

    A job that asked for GPUs has the types that it asked for, and no others that it was given.
    """
    gpus: dict[str, int] = {}
    for name in filter(_is_gpu, given):
        called = _called(name)
        gpus[called] = gpus.get(called, 0) + number(name)
    typed = sum(many for called, many in gpus.items() if called != "gpu")
    if typed > gpus.get("gpu", 0):
        gpus["gpu"] = typed
    wanted = {"gpu", *map(_called, filter(_is_gpu, asked))}
    any_type = not any(map(_is_gpu, asked))
    return {called: n for called, n in gpus.items() if n and (any_type or called in wanted)}


def _is_gpu(name: str) -> bool:
    return name == "gres/gpu" or name.startswith("gres/gpu:")


def _called(name: str) -> str:
    return gpu_name(name.partition(":")[2])


# --------------------------------------------------------------------------------------- JSON


def _from_json(content: bytes, path: Path, found: Records) -> None:
    data: dict[str, Any] = parse_json(content, dict[str, Any], "a dump of Slurm's jobs", path)
    rows = data.get("jobs")
    if not isinstance(rows, list):
        raise InputError(
            "has no list of jobs", file=path, field="jobs",
            advice="give what `sacct --json` prints",
        )  # fmt: skip
    if any(isinstance(row, dict) and "job_state" in row for row in rows):
        raise InputError(
            "has the jobs of the moment, as `squeue --json` prints them", file=path, field="jobs",
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
    text_id, jobs = _json_id(number, array, dict_of(row, "het"))
    given: dict[str, int] = {}
    for which in ("allocated", "requested"):
        listed = dict_of(row, "tres").get(which)
        for part in listed if isinstance(listed, list) and not given.get("cpu") else ():
            kind = text_of(object_of(part).get("type"))
            name = text_of(part.get("name"))
            key = f"{kind}/{name}" if name else kind
            if kind in _COUNTED:
                given[key] = natural_of(part.get("count"), f"tres.{which}, {key}")
            else:
                given[key] = _beside(part.get("count"))
    cpus = given.get("cpu") or max(number_of(required.get("CPUs")) or 0, 0)
    nodes = given.get("node") or max(number_of(row.get("allocation_nodes")) or 0, 0)
    each = {"memory_per_cpu": cpus, "memory_per_node": nodes, "memory": 1}
    asked = ((number_of(required.get(name)) or 0) * many for name, many in each.items())
    memory = given.get("mem") or next((mb for mb in asked if 0 < mb <= LIMIT), 0)
    limit = number_of(times.get("limit"))
    node_list = text_of(row.get("nodes"))
    elapsed = number_of(times.get("elapsed"))
    state = dict_of(row, "state").get("current")
    said = submitted.read(text_of(row.get("submit_line")))
    again = said.requeue
    if again is None:
        again = row.get("requeue") is True or (number_of(row.get("restart_cnt")) or 0) > 0
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
        _gpus(given, _json_asked(row), given.__getitem__),
        int(again),
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
        min(_priority(row.get("priority")), PRIORITY_MAX),
        _array_limit(text_id) or _running_tasks(array),
        time(times.get("eligible")),
        text_of(row.get("licenses")) or _licences(given),
        said,
    )  # fmt: skip


def _json_asked(row: dict[str, Any]) -> list[str]:
    """The generic resources that a job asked for, by name."""
    listed = dict_of(row, "tres").get("requested")
    parts = [of for of in listed if isinstance(of, dict)] if isinstance(listed, list) else []
    return [f"{text_of(of.get('type'))}/{text_of(of.get('name'))}" for of in parts]


_COUNTED = ("cpu", "node", "mem", "gres")
"""Kinds of resources whose numbers a job is made of."""


def _beside(value: Any) -> int:
    """A number of another kind; 0 for one out of range, as of energy that was not measured."""
    try:
        return max(number_of(value) or 0, 0)
    except ValueError:
        return 0


def _priority(value: Any) -> int:
    """The priority of a record; 0 where it states none."""
    stated = value is not None
    if isinstance(value, dict):
        stated = value.get("set", True) and not value.get("infinite", False)
    return natural_of(value, "priority") if stated else 0


def _running_tasks(array: dict[str, Any]) -> int:
    """How many tasks of an array may run at once; 0 where it is not said."""
    most = dict_of(dict_of(dict_of(array, "limits"), "max"), "running")
    return max(number_of(most.get("tasks")) or 0, 0)


def _json_id(number: int | None, array: dict[str, Any], het: dict[str, Any]) -> tuple[str, int]:
    """A job's name as sacct writes it, and how many jobs it stands for."""
    head = number_of(array.get("job_id")) or 0
    tasks = tasks_of_bits(text_of(array.get("task")))
    task = number_of(array.get("task_id"))
    if head and tasks and task is None:
        return f"{head}_[{tasks}]", tasks_in(tasks.partition("%")[0])
    if head and task is not None:
        return f"{head}_{task}", 1
    if whole := number_of(het.get("job_id")) or 0:
        return f"{whole}+{number_of(het.get('job_offset')) or 0}", 1
    return "" if number is None else str(number), 1
