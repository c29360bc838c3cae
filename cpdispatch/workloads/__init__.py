"""Where workloads come from: logs, tables, generators."""

from __future__ import annotations

import os
from pathlib import Path

from cpdispatch.errors import InputError
from cpdispatch.jobs import Workload
from cpdispatch.workloads import swf, table

READERS = {".swf": swf.read, ".csv": table.read, ".parquet": table.read}
"""The reader of each extension; .swf and .csv may be packed (.gz, .xz, .zst)."""


def read(
    path: str | os.PathLike[str], filter: str = "all", processors: int | None = None
) -> Workload:
    """Read a workload, in the format that the file's extension says.

    Parameters
    ----------
    path : path
        ``.swf`` or ``.csv``, plain or packed (.gz, .xz, .zst), or ``.parquet``.
    filter : {"all", "strong"}
        See `cpdispatch.workloads.clean.clean`.
    processors : int, optional
        Size of the machine for `strong`; else the log must state it.

    Raises
    ------
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
    return reader(path, filter, processors)
