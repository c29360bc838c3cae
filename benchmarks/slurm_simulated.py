"""A real, unmodified Slurm under an accelerated clock: do its decisions stay as they were?

    python benchmarks/slurm_simulated.py --speeds 1 10 30 60 --repeats 2 --out simulated.jsonl
    python benchmarks/slurm_simulated.py --log KTH-SP2-1996-2.1-cln.swf.gz --from-day 28 --days 7 \\
        --speeds 500 --repeats 2 --dispatchers easy best --out week.jsonl \\
        --csv docs/data/slurm_week.csv

Each run starts a cluster of its own: munged, slurmctld, one slurmd with 100 processors, all under
libfaketime (Debian packages faketime and libfaketime) with one shared start and one speed. The same
jobs are submitted at their times, and only sleep: drawn ones, or those that a log has submitted in
some days. Speed 1 runs under libfaketime too.

A line of the file is a run, written when all its jobs have completed; a run that is there is not
made again. Its figures, in seconds of the cluster's clock, are from `jobcomp/filetxt`: starts and
ends by job, after the first submission; how late submissions were; how much longer jobs took than
they were to. At the end each run is compared with the first one at the lowest speed: the mean and
the longest difference of a start, and the share of pairs of jobs that start in another order.
Only lags of launches and submissions, and the rounds of scheduling, can differ between runs.
With `--dispatchers` the same jobs are simulated with those, too; waits and bounded slowdowns (bound
10 s) are shown beside Slurm's, and written to a table with `--csv`. Slurm's waits begin when a job
was to be submitted. A run in which no job ends for too long is given up, and says what Slurm says.
"""

from __future__ import annotations

import argparse
import gzip
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
from typing import Any, TypeAlias

import msgspec
import numpy as np
import script

sys.path.append(str(Path(__file__).resolve().parent.parent))

import cpdispatch as cpd
from cpdispatch.files import csv_of, write_bytes
from tests.adapters.slurm.cluster import Cluster, missing

CPUS = 100
BOUND_S = 10
DAY_S = 86_400
BEGIN = "2026-01-01 00:00:00"
LIBRARY = "libfaketimeMT.so.1"


class FastCluster(Cluster):
    """A cluster whose programs all see one clock, so many times as fast as the real one."""

    speed = 1
    longest_s = 0
    """The longest time limit of a job: Slurm's backfilling is to look as far ahead."""
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

    def _daemon(self, program: str, *arguments: str, called: str = "") -> None:
        # munged closes a connection after 2 s: by the fast clock that is a few milliseconds. What
        # it dates, it alone reads.
        fast = self.environment
        if program == "munged":
            self.environment = {name: fast[name] for name in ("PATH", "SLURM_CONF", "HOME")}
        try:
            super()._daemon(program, *arguments, called=called)
        finally:
            self.environment = fast

    def _configure(self) -> None:
        super()._configure()
        text = self.conf.read_text()
        # Slurm's own defaults; what waits for an answer, and what may think, has as long in real
        # time as at speed 1. A step that does not end within UnkillableStepTimeout drains its node.
        window = f",bf_window={self.longest_s // 60 + 60}" if self.longest_s > 86_400 else ""
        budget = f"build_queue_timeout={2_000_000 * self.speed},max_sched_time={2 * self.speed}"
        backfill = f"SchedulerParameters=bf_interval=30,bf_max_time=3600,{budget}{window}"
        text = re.sub("SchedulerParameters=.*", backfill, text)
        text = re.sub("SlurmdTimeout=.*", "SlurmdTimeout=0", text)
        text = re.sub("(AuthInfo=.*)", r"\1,ttl=3600,cred_expire=100000", text)
        wait = f"MessageTimeout={10 * self.speed}\nTCPTimeout={2 * self.speed}\n"
        wait += f"UnkillableStepTimeout={60 * self.speed}\n"
        # A job that runs for as long as it may ends by itself, a launch late.
        wait += f"OverTimeLimit={-(-self.speed // 6)}\n"
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


Jobs: TypeAlias = Sequence[tuple[int, int, int, int]]


def logged(path: Path, first_s: int, end_s: int) -> Jobs:
    """Jobs that a log has submitted in such a time; as Slurm runs them, limits in whole minutes."""
    jobs = []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            if line.strip() and not line.startswith(";"):
                row = [int(float(value)) for value in line.split()[:9]]
                cpus, limit_s = max(row[7], row[4]), -(-max(row[8], row[3], 60) // 60) * 60
                if first_s <= row[1] < end_s and row[3] > 0 and 0 < cpus <= CPUS:
                    limit_s = limit_s if row[8] <= 0 else -(-row[8] // 60) * 60
                    jobs.append((row[1] - first_s, cpus, min(row[3], limit_s), limit_s))
    return sorted(jobs, key=lambda job: job[0])


@contextmanager
def cluster(speed: int, longest_s: int) -> Iterator[FastCluster]:
    folder = Path(tempfile.mkdtemp(prefix="cpdispatch-slurm-"))
    try:
        made = FastCluster(folder, nodes=1, cpus=CPUS, gpus=0)
        made.speed, made.longest_s = speed, longest_s
        with made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(speed: int, jobs: Jobs) -> dict[str, Any]:
    """One run of these jobs at a speed."""
    load, longest_s = os.getloadavg()[0], max(limit_s for *_, limit_s in jobs)
    with cluster(speed, longest_s) as slurm:
        zero_s, real_s = slurm.now_s() + 5, time.monotonic()
        for submit_s, cpus, runtime_s, limit_s in jobs:
            due = real_s + (submit_s + 5) / speed
            time.sleep(max(0.0, due - time.monotonic()))
            slurm.run(
                "sbatch", "--parsable", f"--ntasks={cpus}", f"--time={limit_s // 60}", "--mem=1",
                "--output=/dev/null", "--wrap", f"exec sleep {runtime_s}",
            )  # fmt: skip
        path = slurm.folder / "log" / "jobs.txt"
        wait_for_all(slurm, path, len(jobs), 120 + longest_s / speed)
        rows = [row for _, row in sorted(records(path).items())]
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


def records(path: Path) -> dict[int, dict[str, str]]:
    """The last record of each job that has ended; one that was queued again has several."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
    return {int(row["JobId"]): row for row in rows if "JobId" in row}


def wait_for_all(slurm: FastCluster, path: Path, jobs: int, patience_s: float) -> None:
    """Wait until so many jobs have ended, and give up when none ends for so long."""
    ended, since_s = -1, time.monotonic()
    while True:
        found = len(records(path))
        if found > ended:
            ended, since_s = found, time.monotonic()
        if ended >= jobs and not slurm.run("squeue", "-h", good=False).strip():
            return
        if time.monotonic() - since_s > patience_s:
            said = slurm.run("sinfo", "-R", good=False)
            said += slurm.run("squeue", "-h", "-o", "%i %T %r", good=False)
            raise SystemExit(f"{ended} of {jobs} jobs have ended, and no more: {said}")
        time.sleep(0.5)


def violations(start: Sequence[float], end: Sequence[float], jobs: Jobs) -> int:
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


def quality(start: Sequence[float], jobs: Jobs) -> dict[str, float]:
    """Mean and longest wait, s, and mean bounded slowdown of jobs that start so."""
    wait_s = np.maximum([s - job[0] for s, job in zip(start, jobs, strict=True)], 0)
    run_s = np.array([runtime_s for _, _, runtime_s, _ in jobs])
    slow = np.maximum((wait_s + run_s) / np.maximum(run_s, BOUND_S), 1)
    return {
        "wait_s": float(wait_s.mean()), "wait_s_max": float(wait_s.max()),
        "slowdown": float(slow.mean()),
    }  # fmt: skip


def simulated(name: str, jobs: Jobs) -> list[float]:
    """The starts of these jobs under a dispatcher of this package, by the requested limits."""
    submit_s, cpus, runtime_s, limit_s = zip(*jobs, strict=True)
    workload, system = cpd.prepare(
        cpd.from_table({
            "id": range(1, len(jobs) + 1), "submit": submit_s, "runtime": runtime_s,
            "requested": limit_s, "units": cpus, "core": 1,
        }), str(CPUS),
    )  # fmt: skip
    made = cpd.simulate(workload, system, name)
    wrong = made.verify()
    if wrong:
        raise SystemExit(f"{name}: {wrong[0]}")
    return [float(start_s) for start_s in made.jobs.sort_values("id")["start"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--speeds", type=script.count, nargs="+", default=[1, 10, 30, 60])
    parser.add_argument("--repeats", type=script.count, default=2)
    parser.add_argument("--jobs", type=script.count, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="an SWF log, in place of drawn jobs")
    parser.add_argument("--from-day", type=int, default=0)
    parser.add_argument("--days", type=script.count, default=7)
    parser.add_argument("--dispatchers", nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=Path("simulated.jsonl"))
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    if missing() or shutil.which("faketime") is None:
        raise SystemExit(missing() or "no faketime: install the packages faketime and libfaketime")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its daemons end
    about: dict[str, Any] = {"jobs": given.jobs, "seed": given.seed}
    if given.log is None:
        jobs: Jobs = drawn(given.seed, given.jobs)
    else:
        first_s = given.from_day * DAY_S
        jobs = logged(given.log, first_s, first_s + given.days * DAY_S)
        about = {"log": given.log.name, "from_day": given.from_day, "days": given.days}
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    rows = [msgspec.json.decode(line) for line in lines]
    for repeat in range(given.repeats):
        for speed in sorted(given.speeds):
            key = {"speed": speed, "repeat": repeat} | about
            if any(row | key == row for row in rows):
                continue
            rows.append(key | run(speed, jobs))
            with given.out.open("ab") as file:
                file.write(msgspec.json.encode(rows[-1]) + b"\n")
    alike = [row for row in rows if row | about == row]
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
    if given.dispatchers:
        show_quality(jobs, alike, given.dispatchers, given.csv)


def show_quality(
    jobs: Jobs, runs: Sequence[dict[str, Any]], names: Sequence[str], path: Path | None
) -> None:
    """Waits and slowdowns under Slurm, run by run, and under dispatchers of this package."""
    rows = [
        (f"Slurm, speed {row['speed']}, run {row['repeat'] + 1}", quality(row["start_s"], jobs))
        for row in runs
    ]
    rows += [(f"`{name}`", quality(simulated(name, jobs), jobs)) for name in names]
    table = [("scheduler", "mean wait s", "longest wait s", "mean bounded slowdown")]
    for name, found in rows:
        figures = (f"{found['wait_s']:.0f}", f"{found['wait_s_max']:.0f}")
        table.append((name, *figures, f"{found['slowdown']:.2f}"))
    for line in table:
        print(*line, sep="\t")
    if path is not None:
        write_bytes(path, csv_of(table))


if __name__ == "__main__":
    script.run(__file__)
