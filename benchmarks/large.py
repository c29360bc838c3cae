"""A log of MetaCentrum's size, 5.7 million jobs on 495 nodes: made, read, replayed, all measured.

    python benchmarks/large.py FOLDER [--window 100000]

The log is made in FOLDER unless it is there already. Jobs come from the Lublin-Feitelson model for
128 processors, at a load of 0.75 of the 8,412 cores. Reading and replaying happen in one
process, by the command that a user would run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import script

JOBS, CORES, LARGEST_JOB, LOAD = 5_700_000, 8_412, 128, 0.75
SYSTEM = {
    "name": "metacentrum-sized",
    "resources": ["core"],
    "groups": [
        {"name": "wide", "nodes": 492, "capacity": [17]},
        {"name": "thin", "nodes": 3, "capacity": [16]},
    ],
}


def make(folder: Path) -> tuple[Path, Path]:
    """The log and its system, as files."""
    from cpdispatch.workloads import lublin, swf

    log, system = folder / "large.swf", folder / "large.json"
    system.write_text(json.dumps(SYSTEM))
    if not log.exists():
        load = LOAD * CORES / LARGEST_JOB
        swf.write(lublin.generate(JOBS, processors=LARGEST_JOB, load=load), log)
    return log, system


def main() -> None:
    """Print seconds and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--window", type=script.count, help="replay by windows of so many jobs, under easy"
    )
    given = parser.parse_args()
    log, system = make(given.folder)
    command = [
        sys.executable, "-m", "cpdispatch", "simulate", str(log), "--system", str(system),
        "--cores", "1", "--json",
    ]  # fmt: skip
    if given.window is None:
        command += ["-d", "reject", "-d", "easy"]
    else:
        out = str(given.folder / "by-windows")
        command += ["--window", str(given.window), "--out", out, "--overwrite"]
    began = perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = perf_counter() - began
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    for run in json.loads(done.stdout)["runs"]:
        print(f"{run['dispatcher']}: {run['jobs']:,} jobs started, {run['seconds']:.1f} s")
    print(f"in all {seconds:.1f} s, peak {peak_mb:,.0f} MB, log {log.stat().st_size / 1e6:,.0f} MB")


if __name__ == "__main__":
    script.run(__file__)
