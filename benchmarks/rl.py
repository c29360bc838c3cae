"""Steps and jobs a second of the Gymnasium environment: alone, and many at once.

    python benchmarks/rl.py LOG --system 256

The agent takes the job with the smallest expected duration. Episodes have 256 jobs, windows 128.
"""

from __future__ import annotations

import argparse
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np
import script

from cpdispatch.rl import ID

JOBS, WINDOW = 256, 128


def chosen(info: dict[str, Any]) -> Any:
    return np.where(info["action_mask"] > 0, info["expected_s"], 2**62).argmin(axis=-1)


def alone(episodes: int, given: dict[str, Any]) -> tuple[float, float]:
    env = gymnasium.make(ID, disable_env_checker=True, **given)
    steps, began = 0, 0.0
    for number in range(episodes + 1):
        if number == 1:  # the first one compiles
            steps, began = 0, process_time()
        _, info = env.reset(seed=number)
        over = False
        while not over:
            _, _, over, _, info = env.step(int(chosen(info)))
            steps += 1
    seconds = process_time() - began
    return steps / seconds, episodes * JOBS / seconds


def at_once(count: int, mode: str, steps: int, given: dict[str, Any]) -> float:
    made = gymnasium.make_vec(ID, num_envs=count, vectorization_mode=mode, **given)
    _, info = made.reset(seed=0)
    began = perf_counter()
    for number in range(steps):
        if number == steps // 5:
            began = perf_counter()
        *_, info = made.step(chosen(info))
    seconds = perf_counter() - began
    made.close()
    return count * (steps - steps // 5) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--system")
    parser.add_argument("--episodes", type=script.count, default=10)
    given = parser.parse_args()
    known = {"log": given.log, "system": given.system, "jobs": JOBS, "window": WINDOW}
    for backfill in ("fcfs", None):
        steps, jobs = alone(given.episodes, known | {"backfill": backfill})
        print(f"alone, backfill {backfill}: {steps:,.0f} steps/s, {jobs:,.0f} jobs/s")
    for count, mode in ((4, "sync"), (2, "async"), (8, "async")):
        print(f"{count} {mode}: {at_once(count, mode, 2_000, known):,.0f} steps/s in all")


if __name__ == "__main__":
    script.run(__file__)
