"""The commands import slurm and import table: a site's own records as workload and system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from cpdispatch.cli.options import Flag, Json
from cpdispatch.cli.output import (
    DONE,
    command_line,
    console_of_stdout,
    print_json,
    print_sentence,
    status,
    table_of,
)
from cpdispatch.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from cpdispatch.workloads.imported import Imported

app = App(name="import", help="Read a site's own records, and write a workload and its system.")


@app.command
def slurm(
    *files: Path,
    out: Path,
    system: Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)] = (),
    zone: str = "UTC",
    format: Literal["csv", "parquet"] = "csv",
    overwrite: Flag = False,
    json: Json = False,
) -> int:
    """Read the records of a Slurm cluster, as sacct prints them.

    Parameters
    ----------
    files
        Output of `sacct -P` or `sacct --json`, plain or packed (.gz, .xz, .zst).
    out
        Folder for the workload, the system, and columns that the workload has no place for.
    system
        Output of `sinfo --json` or of `scontrol show node`, `partition`, `config` or `licenses`;
        may be given several times. Default: one pool, as large as the largest use at one time.
    zone
        Time zone of the times that sacct prints, for example Europe/Berlin.
    format
        Format of the tables.
    overwrite
        Replace an import in the folder.
    json
        Print one JSON object.
    """
    from cpdispatch.workloads import imported
    from cpdispatch.workloads import slurm as reader

    imported.claim(out, overwrite=overwrite)
    with status(f"reading {len(files)} files"):
        found = reader.read(files, system, zone)
    return _save_and_print(found, out, format, json)


@app.command
def table(
    file: Path,
    *,
    map: str,
    out: Path,
    nodes: Path | None = None,
    format: Literal["csv", "parquet"] = "csv",
    overwrite: Flag = False,
    json: Json = False,
) -> int:
    """Read any table of jobs by a column map.

    Parameters
    ----------
    file
        CSV, plain or packed (.gz, .xz, .zst), or .parquet.
    map
        Column map: alea, fdata, lassen, openb, pm100, or a TOML file.
    out
        Folder for the workload, the system, and columns that the workload has no place for.
    nodes
        A table of nodes, if the map says what its columns are. Default: one pool, as large as the
        largest use at one time.
    format
        Format of the tables.
    overwrite
        Replace an import in the folder.
    json
        Print one JSON object.
    """
    from cpdispatch.workloads import column_map, imported

    imported.claim(out, overwrite=overwrite)
    with status(f"reading {file}"):
        found = column_map.read(file, map, nodes)
    return _save_and_print(found, out, format, json)


def _save_and_print(found: Imported, out: Path, format: str, json: bool) -> int:
    """Write an import, and print what was counted and what to do next."""
    from cpdispatch.workloads import imported

    files = imported.write(found, out, format)
    summary = found.summary()
    if json:
        print_json({"out": str(out), **summary, "files": files})
        return DONE
    console = print_import(found, found.notes)
    system = out / files["system"]
    console.print(
        f"next: {command_line('simulate', out / files['workload'], '--system', system)}",
        soft_wrap=True,
    )  # fmt: skip
    return DONE


def print_import(found: Imported, notes: Mapping[str, int]) -> Console:
    """Print what was counted, and what is to be known of the workload and its system."""
    table = table_of("", ("jobs",), ("count",))
    table.add_row("read", f"{found.read:,}")
    for reason, count in found.left_out.items():
        table.add_row(f"  left out: {reason}", f"{count:,}")
    table.add_row("kept", f"{len(found.workload):,}")
    console = console_of_stdout()
    console.print(table)
    for note, count in notes.items():
        print_sentence(console, f"{note}: {count:,}")
    system = found.system
    has = ", ".join(
        f"{total:,} {name}" for name, total in zip(system.resources, system.total, strict=True)
    )
    console.print(f"system: {counted(system.nodes, 'node')}, {has}", soft_wrap=True)
    for sentence in found.told:
        print_sentence(console, sentence)
    return console
