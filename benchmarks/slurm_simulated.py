"""A real, unmodified Slurm under an accelerated clock: do its decisions stay as they were?

    python benchmarks/slurm_simulated.py --speeds 1 10 30 60 --repeats 2 --out simulated.jsonl

Each run starts a cluster of its own: munged, slurmctld, one slurmd with 100 processors, all under
libfaketime (Debian packages faketime and libfaketime) with one shared start and one speed. The same
drawn jobs are submitted at their times, and only sleep. Speed 1 runs under libfaketime too.

A line of the file is a run, written when all its jobs have completed; a run that is there is not
made again. Its figures, in seconds of the cluster's clock, are from `jobcomp/filetxt`: starts and
ends by job, after the first submission; how late submissions were; how much longer jobs took than
they were to. At the end each run is compared with the first one at the lowest speed: the mean and
the longest difference of a start, and the share of pairs of jobs that start in another order.
Only lags of launches and submissions, and the rounds of scheduling, can differ between runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.adapters.slurm.cluster import Cluster, missing, until

CPUS = 100
BEGIN = "2026-01-01 00:00:00"
LIBRARY = "libfaketimeMT.so.1"


class FastCluster(Cluster):
    """A cluster whose programs all see one clock, so many times as fast as the real one."""

    speed = 1
    _clock: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # A waiting process keeps the shared start of the clock alive; it ends with its input.
        fake = {"TZ": "UTC", "FAKETIME_DONT_RESET": "1"}
        self.folder.chmod(0o755)
        said = ["sh", "-c", "date >/dev/null; env; echo; exec cat >/dev/null"]
        self._clock = subprocess.Popen(
            ["faketime", "-m", "-f", f"@{BEGIN} x{self.speed}", *said],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment | fake,
            **self._identity(),
        )  # fmt: skip
        assert self._clock.stdout is not None
        for raw in iter(self._clock.stdout.readline, b"\n"):
            name, _, value = raw.decode().rstrip("\n").partition("=")
            if name.startswith("FAKETIME") or name == "LD_PRELOAD":
                fake[name] = value
        self.environment |= fake
        super().start()

    def stop(self) -> None:
        super().stop()
        if self._clock is not None and self._clock.stdin is not None:
            self._clock.stdin.close()
            self._clock.wait()

    def _configure(self) -> None:
        super()._configure()
        text = self.conf.read_text()
        # Slurm's own defaults; what waits for an answer waits as long in real time as at speed 1.
        text = re.sub("SchedulerParameters=.*", "SchedulerParameters=bf_interval=30", text)
        text = re.sub("SlurmdTimeout=.*", "SlurmdTimeout=0", text)
        text = re.sub("(AuthInfo=.*)", r"\1,ttl=3600,cred_expire=100000", text)
        wait = f"MessageTimeout={10 * self.speed}\nTCPTimeout={2 * self.speed}\n"
        self.conf.write_text(text + wait + f"BatchStartTimeout={10 * self.speed}\n")

    def now_s(self) -> float:
        return float(self.run("date", "+%s.%N"))


def drawn(seed: int, many: int) -> list[tuple[int, int, int, int]]:
    """Jobs: submission, processors, runtime, time limit; a load above what the machine can do."""
    draw = np.random.default_rng(seed)
    submit = np.cumsum(draw.exponential(3.0, many)).astype(int)
    cpus = np.minimum(2 ** draw.integers(0, 7, many), CPUS)
    runtime = draw.integers(10, 100, many)
    limit = -(-runtime * draw.integers(1, 4, many) // 60) * 60
    return list(zip(*(x.tolist() for x in (submit, cpus, runtime, limit + 60)), strict=True))


@contextmanager
def cluster(speed: int) -> Iterator[FastCluster]:
    folder = Path(tempfile.mkdtemp(prefix="cpdispatch-slurm-"))
    try:
        made = FastCluster(folder, nodes=1, cpus=CPUS, gpus=0)
        made.speed = speed
        with made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(speed: int, jobs: Sequence[tuple[int, int, int, int]]) -> dict[str, Any]:
    """One run of these jobs at a speed."""
    load = os.getloadavg()[0]
    with cluster(speed) as slurm:
        zero_s, real_s = slurm.now_s() + 5, time.monotonic()
        for submit_s, cpus, runtime_s, limit_s in jobs:
            due = real_s + (submit_s + 5) / speed
            time.sleep(max(0.0, due - time.monotonic()))
            slurm.run(
                "sbatch", "--parsable", f"--ntasks={cpus}", f"--time={limit_s // 60}", "--mem=1",
                "--output=/dev/null", "--wrap", f"exec sleep {runtime_s}",
            )  # fmt: skip
        path = slurm.folder / "log" / "jobs.txt"
        longest_s = sum(limit_s for *_, limit_s in jobs)
        until(
            lambda: path.exists() and path.read_text().count("JobId=") == len(jobs),
            "not all jobs have ended", 60 + longest_s / speed,
        )  # fmt: skip
        rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: int(row["JobId"]))
    submit, start, end = (
        [datetime.fromisoformat(row[key]).replace(tzinfo=UTC).timestamp() for row in rows]
        for key in ("SubmitTime", "StartTime", "EndTime")
    )
    return {
        "load": load,
        "states": sorted({row["JobState"] for row in rows}),
        "start_s": [x - zero_s for x in start],
        "end_s": [x - zero_s for x in end],
        "late_s": [x - zero_s - job[0] for x, job in zip(submit, jobs, strict=True)],
        "longer_s": [e - s - job[2] for s, e, job in zip(start, end, jobs, strict=True)],
        "violations": violations(start, end, jobs),
    }


def violations(
    start: Sequence[float], end: Sequence[float], jobs: Sequence[tuple[int, int, int, int]]
) -> int:
    """At how many starts the jobs that ran held more processors than there are."""
    return sum(
        sum(job[1] for s, e, job in zip(start, end, jobs, strict=True) if s <= at < e) > CPUS
        for at in start
    )


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Mean and longest difference of starts, and the share of pairs in another order."""
    apart = [abs(a - b) for a, b in zip(one, other, strict=True)]
    pairs = list(combinations(range(len(one)), 2))
    swapped = sum((one[a] - one[b]) * (other[a] - other[b]) < 0 for a, b in pairs)
    return statistics.mean(apart), max(apart), swapped / len(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--speeds", type=int, nargs="+", default=[1, 10, 30, 60])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("simulated.jsonl"))
    given = parser.parse_args()
    if missing() or shutil.which("faketime") is None:
        raise SystemExit(missing() or "no faketime: install the packages faketime and libfaketime")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its daemons end
    jobs = drawn(given.seed, given.jobs)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    rows = [msgspec.json.decode(line) for line in lines]
    for repeat in range(given.repeats):
        for speed in sorted(given.speeds):
            key = {"speed": speed, "repeat": repeat, "jobs": given.jobs, "seed": given.seed}
            if any(row | key == row for row in rows):
                continue
            rows.append(key | run(speed, jobs))
            with given.out.open("ab") as file:
                file.write(msgspec.json.encode(rows[-1]) + b"\n")
    alike = [row for row in rows if (row["jobs"], row["seed"]) == (given.jobs, given.seed)]
    alike.sort(key=lambda row: (row["speed"], row["repeat"]))
    print(
        "speed", "repeat", "load", "states", "violations", "late s", "longer s",
        "start differs s", "at most s", "other order", sep="\t",
    )  # fmt: skip
    for row in alike:
        found = difference(alike[0]["start_s"], row["start_s"])
        print(
            row["speed"], row["repeat"], f"{row['load']:.1f}", ",".join(row["states"]),
            row["violations"], f"{statistics.mean(row['late_s']):.1f}",
            f"{statistics.mean(row['longer_s']):.1f}", f"{found[0]:.1f}", f"{found[1]:.1f}",
            f"{found[2]:.3f}", sep="\t",
        )  # fmt: skip


if __name__ == "__main__":
    main()
