"""The command compare: compares saved runs."""

from __future__ import annotations

from pathlib import Path

from cpdispatch.cli.options import Flag, Json
from cpdispatch.cli.output import DONE, RefusedFiles
from cpdispatch.cli.runs import load_runs, print_runs
from cpdispatch.errors import UsageError


def compare(*runs: Path, waits: Flag = False, json: Json = False) -> int:
    """Compare runs that were saved with simulate --out.

    A run that cannot be read is reported on standard error. The others are compared.

    Parameters
    ----------
    runs
        Folders of runs, or folders that hold several, which come in the order in which simulate
        was given their dispatchers. The first run is what the others are measured against.
    waits
        Show who pays, too: for each run the mean and the longest wait of jobs by length, by
        width (their share of the system) and of the users that lose most, beside those under the
        first run. The JSON object has them anyway.
    json
        Print one JSON object.
    """
    if not runs:
        raise UsageError("compare needs the folder of a run")
    from cpdispatch.experiment import RunSummary

    refused = RefusedFiles()
    summaries = [RunSummary.of(run) for _, run in load_runs(list(runs), refused)]
    print_runs(summaries, json, {"errors": refused.errors}, waits=waits)
    return refused.code(DONE)
