"""What an import comes to: a workload, a system, what was left out and why; written as a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from cpdispatch import access
from cpdispatch.access.spread import ON_FIRST
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import is_empty, write_bytes, writing
from cpdispatch.jobs import Workload
from cpdispatch.system import LIMIT, NodeGroup, System, system_as_dict
from cpdispatch.workloads import table
from cpdispatch.workloads.fit import fit

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "import.json"
TOO_LARGE = "asks for more than the system has"
STUCK = "jobs that the nodes that they may use cannot hold: no replay starts them"


@dataclass(frozen=True, slots=True)
class Imported:
    """Records as a workload and a system.

    Attributes
    ----------
    workload : Workload
    system : System
    extra : DataFrame
        What the workload has no column for, one row a job; ``id`` says which.
    nodes : DataFrame or None
        The nodes by name, in the order of the system; None where the records do not name them.
    read : int
        Jobs that the records speak of.
    left_out : mapping of str to int
        Jobs that are not in the workload, by reason. With the workload's they make up ``read``.
    notes : mapping of str to int
        What was repaired, or skipped beside jobs.
    told : sequence of str
        What is to be known of the workload and the system, as what is not honoured.
    """

    workload: Workload
    system: System
    extra: pd.DataFrame
    nodes: pd.DataFrame | None
    read: int
    left_out: Mapping[str, int]
    notes: Mapping[str, int]
    told: Sequence[str]

    def __post_init__(self) -> None:
        if self.read != len(self.workload) + sum(self.left_out.values()):
            raise ValueError("some jobs are not accounted for")

    def without(self, ids: Mapping[int, str]) -> Imported:
        """The same without some jobs, given with the reason of each.

        Raises
        ------
        InputError
            When no job is left.
        """
        if not ids:
            return self
        keep = ~np.isin(self.workload.table.id, np.array(list(ids), dtype=np.int64))
        left_out = Counter(self.left_out) + Counter(ids.values())
        if not keep.any():
            why = "; ".join(f"{reason}: {count}" for reason, count in left_out.items())
            raise InputError(f"no job is left of {self.read} ({why})")
        return replace(
            self,
            workload=self.workload.take(keep.nonzero()[0]),
            extra=self.extra[~self.extra["id"].isin(list(ids))],
            left_out=left_out,
        )

    def summary(self) -> dict[str, Any]:
        """The counts, as they are printed and saved."""
        return {
            "read": self.read,
            "kept": len(self.workload),
            "left_out": dict(self.left_out),
            "notes": dict(self.notes),
            "told": list(self.told),
        }


@dataclass(slots=True)
class Columns:
    """The jobs of an import while it is read.

    Attributes
    ----------
    id, submit_s, start_s, runtime_s, requested_s, units : list of int
        A start or a requested time of -1 is unknown.
    nodes : list of int
        How many nodes each job had, where the records tell it.
    request : mapping of resource name to list of int
        What each unit asks for.
    labels : mapping of column name to list
        The columns of a table that hold names, and ``restartable``.
    extra : mapping of column name to list
        What travels along.
    """

    id: list[int] = field(default_factory=list)
    submit_s: list[int] = field(default_factory=list)
    start_s: list[int] = field(default_factory=list)
    runtime_s: list[int] = field(default_factory=list)
    requested_s: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    request: dict[str, list[int]] = field(default_factory=dict)
    labels: dict[str, list[Any]] = field(default_factory=dict)
    extra: dict[str, list[Any]] = field(default_factory=dict)


def finish(
    columns: Columns,
    system: System | None,
    nodes: pd.DataFrame | None,
    file: str | os.PathLike[str],
    left_out: Counter[str],
    notes: Counter[str],
    told: Sequence[str],
    *,
    memory_unit_kb: int,
    name: str,
) -> Imported:
    """Leave out what the system cannot run, number the jobs, and infer a system if there is none.

    Raises
    ------
    InputError
        When no job is left.
    """
    import pandas as pd

    request = {k: np.array(v, dtype=np.int64) for k, v in columns.request.items() if any(v)}
    units = np.array(columns.units, dtype=np.int64)
    read = len(units) + sum(left_out.values())
    keep = np.ones(len(units), dtype=np.bool_)
    if system is not None:
        keep = _fits(units, request, system)
        left_out[TOO_LARGE] += int(np.count_nonzero(~keep))
    left_out = +left_out
    if not keep.any():
        why = "; ".join(f"{reason}: {count}" for reason, count in left_out.items())
        raise InputError(f"no job is left of {read} ({why or 'the file has none'})", file=file)
    data: dict[str, Any] = {
        "id": np.array(_numbered(columns.id, notes), dtype=np.int64),
        "submit": np.array(columns.submit_s, dtype=np.int64),
        "runtime": np.array(columns.runtime_s, dtype=np.int64),
        "requested": np.array(columns.requested_s, dtype=np.int64),
        "units": units,
    }
    memory = {kb: called for called, kb in table.MEMORY_COLUMNS.items()}[memory_unit_kb]
    called = {"mem": memory, f"{ON_FIRST}mem": f"{ON_FIRST}{memory}"}
    data |= {called.get(name, name): ask for name, ask in request.items()}
    data |= {k: v for k, v in columns.labels.items() if any(x not in ("", None, 0) for x in v)}
    frame = pd.DataFrame(data)[keep].sort_values("submit", kind="stable")
    workload = table.from_table(frame.reset_index(drop=True), name)
    missing = workload.notes.pop("repaired: requested time missing, the runtime stands in", 0)
    if missing:
        notes["no requested time: the runtime stands in"] += missing
    notes.update(workload.notes)
    workload.notes.clear()
    longer = workload.runtime_s > workload.table.requested_s
    notes["run longer than they request"] += int(longer.sum())
    if system is not None:
        notes[STUCK] += _stuck(workload, system)
    else:
        start_s = np.array(columns.start_s, dtype=np.int64)[frame.index]
        system = _pool(workload, start_s, name)
        told = [
            "No file describes the nodes: the system is taken for one pool, as large as the "
            "largest use at one time. Units of a job are not kept to nodes, and idle nodes are not "
            "known.",
            *told,
        ]
    extra = pd.DataFrame(
        {"id": data["id"]}
        | {k: v for k, v in columns.extra.items() if any(x not in ("", None) for x in v)}
    ).loc[frame.index]
    return Imported(workload, system, extra, nodes, read, left_out, +notes, list(told))


def _numbered(id: list[int], notes: Counter[str]) -> list[int]:
    """The numbers, and new ones for jobs without one of their own."""
    seen: set[int] = set()
    after = max((k for k in id if k < LIMIT), default=0) + 1
    numbers = []
    for number in id:
        if number < 0 or number >= LIMIT or number in seen:
            why = "another job has their number" if number in seen else "no number of its own"
            number, after = after, after + 1
            notes[f"numbered anew: {why}"] += 1
        seen.add(number)
        numbers.append(number)
    return numbers


def _fits(units: IntArray, request: Mapping[str, IntArray], system: System) -> BoolArray:
    """Whether the empty system could run each job, shape (jobs,)."""
    none = np.zeros_like(units)
    asked = np.column_stack([request.get(name, none) for name in system.resources])
    known = {*system.resources, *(f"{ON_FIRST}{name}" for name in system.resources)}
    lacking = [of > 0 for name, of in request.items() if name not in known]
    fits: BoolArray = (system.room(asked) >= units) & ~np.any([none > 0, *lacking], axis=0)
    return fits


def _stuck(workload: Workload, system: System) -> int:
    """How many jobs the nodes cannot hold that they are kept to, as far as that is certain."""
    try:
        kept, machine = access.keep(fit(workload, system), system)
    except InputError:  # a replay on this system says so; another one may take the workload
        return 0
    return int(np.count_nonzero(machine.room(kept.table.request) < kept.table.units))


def _pool(workload: Workload, start_s: IntArray, name: str) -> System:
    """One node with the largest use of every resource at one time, by the jobs as they ran.

    A job whose start is unknown is taken to have started when it was submitted.
    """
    begin_s = np.where(start_s >= 0, start_s, workload.table.submit_s)
    # A job of 0 s has its place all the same; what ends makes room for what starts then.
    end_s = begin_s + np.maximum(workload.runtime_s, 1)
    at_s = np.concatenate([end_s, begin_s])
    order = np.argsort(at_s, kind="stable")
    request = dict(zip(workload.resources, workload.table.request.T, strict=True))
    names = tuple(dict.fromkeys(name.removeprefix(ON_FIRST) for name in request))
    none = np.zeros_like(begin_s)
    asked = np.stack([
        workload.table.units * request.get(name, none) + request.get(f"{ON_FIRST}{name}", none)
        for name in names
    ], axis=1)  # fmt: skip
    use = np.cumsum(np.concatenate([-asked, asked])[order], axis=0)
    most = tuple(int(most) for most in use.max(axis=0))
    unit_kb = workload.memory_unit_kb or 1
    return System(name, names, (NodeGroup("pool", 1, most),), unit_kb)


def claim(folder: Path, *, overwrite: bool) -> None:
    """Make sure that an import may be written into a folder, before there is any work to lose.

    Raises
    ------
    UsageError
        When it holds something and ``overwrite`` is not meant, or cannot be written.
    """
    if not is_empty(folder) and not overwrite:
        raise UsageError(
            f"{folder} is not empty: add --overwrite to replace what is in it, or choose another "
            "folder"
        )


def write(imported: Imported, folder: Path, format: str = "csv") -> dict[str, str]:
    """Write an import as files, each whole or not at all; the summary comes last.

    Parameters
    ----------
    imported : Imported
    folder : path
    format : {"csv", "parquet"}
        Of the tables.

    Returns
    -------
    dict of str to str
        The files by what they are: ``workload``, ``system``, ``extra``, ``nodes``, ``summary``.

    Raises
    ------
    UsageError
        When the disk is full or the folder cannot be written.
    """
    (folder / SUMMARY).unlink(missing_ok=True)
    for old in ("workload", "extra", "nodes"):
        for extension in ("csv", "parquet"):
            (folder / f"{old}.{extension}").unlink(missing_ok=True)
    files = {"workload": f"workload.{format}", "system": "system.json", "extra": f"extra.{format}"}
    table.write(imported.workload, folder / files["workload"])
    system = msgspec.json.encode(system_as_dict(imported.system))
    write_bytes(folder / files["system"], msgspec.json.format(system) + b"\n")
    write_frame(imported.extra, folder / files["extra"])
    if imported.nodes is not None:
        files["nodes"] = f"nodes.{format}"
        write_frame(imported.nodes, folder / files["nodes"])
    files["summary"] = SUMMARY
    summary = msgspec.json.encode(imported.summary() | {"files": files})
    write_bytes(folder / SUMMARY, msgspec.json.format(summary) + b"\n")
    return files


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as Parquet or CSV, by the extension."""
    with writing(path) as stream:  # Arrow takes no path that is not UTF-8
        if path.suffix == ".parquet":
            frame.to_parquet(stream, index=False)
        else:
            frame.to_csv(stream, index=False, lineterminator="\n", mode="wb")
