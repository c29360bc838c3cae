"""How often power profiles of known kinds are taken for what they are, for docs/data/power.csv.

    python benchmarks/power.py

The profiles are generated: of each kind 500, of 20 min to 10 h, a sample every 10 s, with a minute
or two in which the job begins and ends, and some samples that are far out. A node draws 100 to
400 W. `--plot FILE` draws some.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import script
from numpy.typing import NDArray
from results import DATA, table_of

from cpdispatch.analyze import power
from cpdispatch.analyze.power_plots import kinds
from cpdispatch.files import write_bytes

CSV = DATA / "power.csv"
IDLE_W, FULL_W = 100.0, 400.0
RANGE_W = FULL_W - IDLE_W
SAMPLE_S = 10
KINDS = power.KINDS[:-1]

Array = NDArray[np.float64]


def constant(rng: np.random.Generator, minute: Array) -> Array:
    return np.full(len(minute), rng.uniform(0.1, 0.9))


def periodic(rng: np.random.Generator, minute: Array) -> Array:
    """A sine, a rectangle or a saw tooth of 0.35 to 0.8 of the range, every 4 min or more."""
    length = minute[-1]
    period_min = rng.uniform(4, max(4.5, min(60, length / 8)))
    phase = minute / period_min + rng.uniform()
    wave = [
        lambda: np.sin(2 * np.pi * phase),
        lambda: np.where(phase % 1 < rng.uniform(0.3, 0.7), 1.0, -1.0),
        lambda: 2 * (phase % 1) - 1,
    ][rng.integers(3)]
    return 0.5 + rng.uniform(0.175, 0.4) * wave()


def irregular(rng: np.random.Generator, minute: Array) -> Array:
    """Each minute or so another level, of none to some likeness to the one before."""
    levels = rng.normal(0, 1, int(minute[-1]) + 2)
    likeness = rng.uniform(0, 0.3)
    for k in range(1, len(levels)):
        levels[k] = likeness * levels[k - 1] + np.sqrt(1 - likeness**2) * levels[k]
    return 0.5 + rng.uniform(0.14, 0.2) * levels[minute.astype(int)]


def changing(rng: np.random.Generator, minute: Array) -> Array:
    """A ramp, or two to four phases that differ by 0.3 of the range or more."""
    share = minute / minute[-1]
    if rng.uniform() < 0.3:
        low, high = rng.uniform(0, 0.25), rng.uniform(0.7, 1)
        return low + (high - low) * (share if rng.uniform() < 0.5 else 1 - share)
    cuts = np.sort(rng.uniform(0.15, 0.85, rng.integers(1, 4)))
    levels = [rng.uniform(0, 1)]
    for _ in cuts:
        levels.append((levels[-1] + rng.uniform(0.3, 0.7)) % 1)
        if abs(levels[-1] - levels[-2]) < 0.3:
            levels[-1] = levels[-2] + (0.4 if levels[-2] < 0.5 else -0.4)
    return np.array(levels)[np.searchsorted(cuts, share)]


def profile(kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Seconds and watts of the samples of a job."""
    minutes = int(np.exp(rng.uniform(np.log(20), np.log(600))))
    time_s = np.arange(0, 60 * minutes, SAMPLE_S, dtype=np.float64)
    shape = {"constant": constant, "periodic": periodic, "irregular": irregular,
             "changing": changing}[kind](rng, time_s / 60)  # fmt: skip
    watts = IDLE_W + RANGE_W * shape + rng.normal(0, 0.04 * RANGE_W, len(time_s))
    for side in (slice(None, rng.integers(1, 6)), slice(-rng.integers(1, 6), None)):
        watts[side] = IDLE_W
    out = rng.random(len(time_s)) < 0.002
    watts[out] = rng.uniform(0, 2 * FULL_W, int(out.sum()))
    keep = rng.random(len(time_s)) > 0.02  # a sample in fifty is lost
    keep[[0, -1]] = True
    return time_s[keep], np.maximum(watts, 0)[keep]


def confusion(each: int, seed: int = 0) -> dict[str, Counter[str]]:
    """By the kind that profiles are of, how often each kind is said of them."""
    rng = np.random.default_rng(seed)
    return {
        kind: Counter(
            power.judge(power.prepared(*profile(kind, rng)), RANGE_W).kind for _ in range(each)
        )
        for kind in KINDS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=script.count, default=500, help="profiles of each kind")
    parser.add_argument("--plot", type=Path, help="draw some profiles: .png, .svg or .pdf")
    parser.add_argument("--write", type=Path, default=CSV, help="the CSV file")
    given = parser.parse_args()
    found = confusion(given.each)
    rows = ([kind, str(given.each), *(str(of[k]) for k in KINDS)] for kind, of in found.items())
    text = table_of([["kind", "profiles", *KINDS], *rows])
    write_bytes(given.write, text.encode())
    print(text, end="")
    if given.plot:
        rng = np.random.default_rng(1)
        some = {
            f"{kind} {k}": power.prepared(*profile(kind, rng)) for kind in KINDS for k in range(3)
        }
        kinds(given.plot, some, power.judge_all(some, RANGE_W)[0])


if __name__ == "__main__":
    script.run(__file__)
