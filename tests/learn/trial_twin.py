"""Plain twin of the trial schedules: starts are sought second by second among all intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Job = tuple[int, int, int]
"""Runtime, processors, arrival."""


def starts(jobs: Sequence[Job], machine: int) -> list[int]:
    """Starts of jobs that start strictly one after the other."""
    begun: list[int] = []
    for runtime, processors, arrival in jobs:
        del runtime
        moment = max([arrival, *begun[-1:]])
        ends = {s + p for s, (p, _, _) in zip(begun, jobs, strict=False)}
        for at in sorted({moment, *(end for end in ends if end > moment)}):
            held = sum(q for s, (p, q, _) in zip(begun, jobs, strict=False) if s <= at < s + p)
            if held + processors <= machine:
                begun.append(at)
                break
    return begun


def slowdown(jobs: Sequence[Job], running: int, order: Sequence[int], machine: int) -> float:
    """Mean bounded slowdown of the queue in an order."""
    lined_up = [*jobs[:running], *(jobs[running + k] for k in order)]
    begun = starts(lined_up, machine)[running:]
    values = [
        max(1.0, (s - r + p) / max(p, 10))
        for s, (p, _, r) in zip(begun, lined_up[running:], strict=True)
    ]
    return sum(values) / len(values)


def sums(
    jobs: Sequence[Job], running: int, machine: int, orders: int, seed: int, published: bool
) -> tuple[list[float], list[int]]:
    """Sums of the slowdowns by first job, and how often each was first."""
    size = len(jobs) - running
    total, first = [0.0] * size, [0] * size
    rng = np.random.default_rng(seed)
    for _ in range(orders):
        order = list(range(size))
        for place in range(size):
            if published:
                other = int(rng.random() * size)
            else:
                other = place + int(rng.random() * (size - place))
            order[place], order[other] = order[other], order[place]
        total[order[0]] += slowdown(jobs, running, order, machine)
        first[order[0]] += 1
    return total, first
