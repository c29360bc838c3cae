"""What Slurm's own commands say of jobs that have ended, and of the cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from cpdispatch.errors import UsageError, in_a_line
from cpdispatch.workloads.slurm import jobs, nodes, zone_of

SACCT, SCONTROL = "sacct", "scontrol"
DAYS = 30
"""So far back sacct is asked unless it is said otherwise."""
ASKED = (
    "JobID,JobIDRaw,Submit,Start,End,ElapsedRaw,State,Timelimit,ReqTRES,ReqCPUS,ReqNodes,User,"
    "Account,QOS,Partition,JobName,NodeList"
)
"""What is known of a job when it is submitted, and how long it ran."""
EVERYTHING = (
    "JobID,JobIDRaw,JobName,User,Account,QOS,Partition,Submit,Eligible,Start,End,ElapsedRaw,State,"
    "Timelimit,AllocTRES,ReqTRES,ReqCPUS,ReqNodes,ReqMem,NNodes,NCPUS,NodeList,Constraints,"
    "Reservation,Priority,Flags,SubmitLine"
)
"""What is known of a job when it has ended."""
_MARK = "@@"
"""What is between cells: features and commands hold bars."""
_SHOWN = ("node", "partition", "licenses", "config")
_PATIENCE_S = 300


def history(
    paths: Iterable[str], zone: str = "UTC", fields: str = ASKED, days: int = DAYS
) -> jobs.Records:
    """The records of the accounting in these files; of ``sacct``, what that says itself.

    Parameters
    ----------
    zone : str
        Time zone of the times in the files.
    fields : str
        What ``sacct`` is asked for.
    days : int
        It is asked for the jobs since so many days ago.

    Raises
    ------
    InputError
        When a file cannot be read, or a value in it is wrong.
    UsageError
        When sacct cannot be called, or says that it cannot.
    """
    given = list(paths)
    found = jobs.read([path for path in given if path != SACCT], zone_of(zone))
    if SACCT in given:
        found.records += _asked(fields, days)
    return found


def _asked(fields: str, days: int) -> list[jobs.Record]:
    command = [
        SACCT, "--allusers", "--allocations", "--parsable2", "--duplicates",
        f"--delimiter={_MARK}", f"--format={fields}", f"--starttime=now-{days}days",
    ]  # fmt: skip
    advice = "without accounting, name a file of what sacct printed"
    said = _run(command, f"--history {SACCT}", advice)
    return jobs.parse(said, SACCT, ZoneInfo("UTC"))


def cluster(paths: Sequence[Path] = ()) -> nodes.Cluster:
    """The cluster's nodes and partitions: from files, or else as scontrol shows them.

    Raises
    ------
    InputError
        When a file cannot be read, or is no such dump.
    UsageError
        When scontrol cannot be called, or says that it cannot.
    """
    if paths:
        return nodes.read(paths)
    found = nodes.Cluster()
    for what in _SHOWN:
        advice = "name files of what scontrol show node and partition print with --system"
        said = _run([SCONTROL, "show", what], f"{SCONTROL} show {what}", advice)
        # A cluster without licences says so in a sentence.
        if what != "licenses" or b"LicenseName=" in said:
            nodes.add(found, said, Path(f"{SCONTROL} show {what}"))
    return found


def _run(command: Sequence[str], called: str, advice: str) -> bytes:
    """What a command of Slurm prints; times are in UTC."""
    environment = os.environ | {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=_PATIENCE_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{called}: {in_a_line(error)}; {advice}") from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise UsageError(f"{called}: {said or f'it ended with {done.returncode}'}; {advice}")
    return done.stdout
