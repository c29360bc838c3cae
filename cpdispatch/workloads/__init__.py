"""Where workloads come from: logs, tables, generators."""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path

from cpdispatch import access
from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload
from cpdispatch.system import System, find
from cpdispatch.workloads import fit, restarts, select, swf, table
from cpdispatch.workloads.table import from_table

__all__ = ["READERS", "from_table", "prepare", "read"]

READERS = {".swf": swf.read, ".csv": table.read, ".parquet": table.read}
"""The reader of each extension; .swf and .csv may be packed (.gz, .xz, .zst)."""


def read(
    path: str | os.PathLike[str],
    filter: str = "all",
    processors: int | None = None,
    restartable: str | None = None,
) -> Workload:
    """Read a workload, in the format that the file's extension says.

    Parameters
    ----------
    path : path
        ``.swf`` or ``.csv``, plain or packed (.gz, .xz, .zst), or ``.parquet``.
    filter : {"all", "strong", "drop"}
        See `cpdispatch.workloads.clean.clean`.
    processors : int, optional
        Size of the machine for `strong` and `drop`; else the log must state it.
    restartable : str, optional
        The column of a table that says which jobs may be restarted, instead of ``restartable``.

    Raises
    ------
    UsageError
        When a column is named and the file is no table.
    InputError
        When the extension is unknown, the file cannot be read, or no job is left.
    """
    if Path(path).is_dir():
        raise InputError("this is a directory", file=path, advice="name a log in it")
    suffixes = Path(path).suffixes
    packed = bool(suffixes) and suffixes[-1] in {".gz", ".xz", ".zst"}
    extension = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
    reader = READERS.get(extension)
    if reader is None or (packed and extension == ".parquet"):
        raise InputError(
            f"unknown extension {''.join(suffixes[-2:]) or '(none)'}",
            file=path,
            advice=f"logs are {', '.join(READERS)}; .swf and .csv also with .gz, .xz or .zst",
        )
    if restartable is None:
        return reader(path, filter, processors)
    if reader is not table.read:
        raise UsageError(
            f"restartable {restartable}: {path} is not a table and has no column of that name; "
            "say all, none, or a share as 0.2"
        )
    return table.read(path, filter, processors, restartable)


def prepare(
    log: str | os.PathLike[str] | Workload,
    system: System | str | os.PathLike[str] | int | None = None,
    *,
    filter: str = "all",
    units: str | None = None,
    jobs: int | None = None,
    since: str = "",
    until: str = "",
    restartable: str | None = None,
    seed: int = 0,
) -> tuple[Workload, System]:
    """Make a log ready to be simulated: read it, select a part of it, fit that to a system.

    Where jobs are kept to some nodes, both get resource types of these nodes, see
    `cpdispatch.access`.

    Parameters
    ----------
    log : path or Workload
        A file, see `read`, or a workload.
    system : System, str, path or int, optional
        A system, what `cpdispatch.system.find` knows, or a number of processors; else a pool of as
        many processors as the log's machine has.
    filter : {"all", "strong", "drop"}
        Which jobs of a file to keep, see `read`.
    units : str, optional
        How a job's processors become units, see `cpdispatch.workloads.fit.fit`.
    jobs : int, optional
        Only the first so many jobs of those from ``since`` until ``until``.
    since, until : str
        Dates or date-times, see `cpdispatch.workloads.select.select`.
    restartable : str, optional
        Which jobs may be restarted: ``all``, ``none``, the share of the users whose jobs may, see
        `cpdispatch.workloads.restarts.mark`, or the column of a table that says it. Else what the
        log says; where it says nothing, no job may.
    seed : int
        Of the draw of users.

    Returns
    -------
    workload : Workload
        Fitted to the system.
    system : System

    Raises
    ------
    InputError
        When the file or a job in it is wrong, or no job is left.
    UsageError
        When an argument is wrong, or nothing says how large the system is.

    Examples
    --------
    >>> columns = {"id": [1, 2], "submit": [0, 5], "runtime": [60, 30], "units": 2, "core": 1}
    >>> workload, system = prepare(from_table(columns), "4")
    >>> len(workload), system.nodes
    (2, 1)
    """
    machine = _machine(system)
    share = None if restartable is None else restarts.share_of(restartable)
    column = restartable if share is None else None
    if isinstance(log, Workload):
        if filter != "all":
            raise UsageError(f"filter {filter!r} is for a file: filter the log when it is read")
        if column is not None:
            raise UsageError(f"restartable {column}: all, none or a share; a column is for a file")
        workload, name = log, log.name
    elif not isinstance(log, str | os.PathLike):
        raise UsageError(
            f"log of type {type(log).__name__}: name a file, or make a workload of a table with "
            "cpdispatch.from_table"
        )
    else:
        processors = None if machine is None else machine.processors
        workload, name = read(log, filter, processors, column), os.fspath(log)
    machine = own_machine(workload, name) if machine is None else machine
    if share is not None:
        workload = restarts.mark(workload, share, seed)
    part = select.select(workload, jobs, since, until)
    return access.keep(fit.fit(part, machine, units), machine)


def _machine(given: System | str | os.PathLike[str] | int | None) -> System | None:
    """The system that is meant; None where the log is to say it."""
    if given is None or isinstance(given, System):
        return given
    if isinstance(given, str | os.PathLike | Integral):
        return find(os.fspath(given) if isinstance(given, os.PathLike) else str(given))
    raise UsageError(
        f"system {given!r}: a System, its name, its file, or a whole number of processors is needed"
    )


def own_machine(workload: Workload, name: str) -> System:
    """A pool as large as the machine of a log, whose name stands in the error."""
    if workload.processors is None:
        raise UsageError(
            f"{name} does not say how large its machine is: give --system "
            "(in Python: the argument system)"
        )
    return System.pool(workload.processors)
