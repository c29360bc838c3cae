"""A driver of a real Slurm that is killed at random instants: what is lost, and what starts twice.

    python benchmarks/slurm_kills.py --kills 50 --jobs 150

It starts a cluster, submits mixed jobs, drives them, and kills the driver (SIGKILL) again and
again, each time at an instant that is drawn between its first sign of life and `--most` seconds
later. The last kill is followed by `drive --stop`: Slurm itself runs what is left. The last line
says how many jobs completed, how many started more than once, and what verify found.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import script

sys.path.append(str(Path(__file__).resolve().parent.parent))

from tests.adapters.slurm.cluster import missing, until
from tests.adapters.slurm.jobs import mixed, submit, violations
from tests.adapters.slurm.test_live import Site, site

PATIENCE_S = 300.0


def killed(made: Site, name: str, rng: random.Random, most_s: float) -> str:
    """Drive until an instant that is drawn, and kill; what the journal's states were then."""
    alive = made.state / "driving"
    before = alive.stat().st_mtime_ns if alive.exists() else 0
    driver = made.drive("-d", name)
    until(lambda: alive.exists() and alive.stat().st_mtime_ns != before, "no cycle", 60)
    time.sleep(rng.random() * most_s)
    driver.kill()
    driver.wait()
    journal = (made.state / "journal.json").read_text()
    states = ("released", "started", "left", "queued")
    return " ".join(f"{state}={journal.count(state)}" for state in states)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=script.count, default=50)
    parser.add_argument("--jobs", type=script.count, default=150)
    parser.add_argument("--most", type=float, default=1.0, help="seconds before a kill at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dispatcher", default="easy")
    given = parser.parse_args()
    if missing():
        raise SystemExit(missing())
    rng = random.Random(given.seed)
    with site() as made:
        driver = made.drive("-d", given.dispatcher)
        until(made.alive, "the driver does not live", 60)
        jobs = mixed(given.seed, given.jobs, made.slurm.gpus)
        batches = [jobs[k :: given.kills] for k in range(given.kills)]
        driver.kill()
        driver.wait()
        for kill, batch in enumerate(batches, start=1):
            submit(made.slurm, batch)
            print(f"kill {kill}: {killed(made, given.dispatcher, rng, given.most)}", flush=True)
        said = subprocess.run(
            [sys.executable, "-c", "from cpdispatch.cli import main; main()",
             *made.command("--stop")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(f"drive --stop: {said.stdout.strip() or said.stderr.strip()}", flush=True)
        many = sum(job.tasks for job in jobs)
        until(
            lambda: len(made.slurm.ran()) >= many
            and not {"PENDING", "RUNNING", "COMPLETING"} & set(made.states()),
            "not all jobs ended", PATIENCE_S,
        )  # fmt: skip
        twice = [job for job, starts in made.slurm.ran().items() if len(starts) > 1]
        states = Counter(made.states())
        print(
            f"{given.kills} kills, {many} jobs: {dict(states)}, {len(made.slurm.ran())} ran, "
            f"{len(twice)} started twice, {len(violations(made.client))} violations"
        )
        if twice or set(states) != {"COMPLETED"} or violations(made.client):
            raise SystemExit(1)


if __name__ == "__main__":
    script.run(__file__)
