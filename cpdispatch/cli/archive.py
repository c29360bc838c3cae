"""The commands archive list and archive get: public logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cpdispatch.cli.options import Json
from cpdispatch.cli.output import (
    DONE,
    RefusedFiles,
    command_line,
    console_of_stdout,
    print_json,
    status,
    table_of,
)

app = App(name="archive", help="List and fetch public logs of real machines.")


@app.command(name="list")
def list_(*, json: Json = False) -> int:
    """List the logs that can be fetched.

    Parameters
    ----------
    json
        Print one JSON object.
    """
    import msgspec

    from cpdispatch.workloads.archive import archive

    found = archive()
    if json:
        print_json(msgspec.to_builtins(found))
        return DONE
    table = table_of("", ("name", "machine"), ("from", "processors", "jobs", "checksum"))
    for name, log in found.logs.items():
        numbers = (f"{n:,}" if n else "-" for n in (log.processors, log.jobs))
        table.add_row(
            name, log.machine, str(log.begin), *numbers, "known" if log.sha256 else "not known"
        )
    console = console_of_stdout()
    console.print(table)
    console.print("cpdispatch archive get NAME fetches one.", soft_wrap=True)
    return DONE


@app.command
def get(
    *names: str,
    to: Annotated[Path | None, Parameter(show_default=False)] = None,
    from_: Annotated[str, Parameter(name="--from", show_default=False)] = "",
    json: Json = False,
) -> int:
    """Fetch logs, and check that they are complete and unchanged.

    Parameters
    ----------
    names
        Names of logs, as `cpdispatch archive list` shows them.
    to
        Folder for the logs. Default: the folder that the environment variable CPDISPATCH_LOGS
        names, or a folder in the user's cache.
    from_
        Address of a mirror of the archive.
    json
        Print one JSON object.
    """
    from cpdispatch.errors import UsageError
    from cpdispatch.workloads import archive

    if not names:
        raise UsageError("name one log or more; cpdispatch archive list shows them")
    logs = {name: archive.find(name) for name in names}
    paths: dict[str, str] = {}
    refused = RefusedFiles()
    for name, log in logs.items():
        with refused.reading(Path(log.file)), status(f"fetching {name}"):
            path = archive.get(
                name, to, from_, lambda text: print(f"cpdispatch: {text}", file=sys.stderr)
            )
            paths[name] = str(path)
        if name in paths and not json:
            system = ["--system", log.system] if log.system else []
            replay = ["simulate", str(path), *system, "-d", "easy", "-d", "best"]
            print(path)
            print(f"next: {command_line(*replay)}")
    if json:
        print_json({"files": paths, "errors": refused.errors})
    return refused.code(DONE)
