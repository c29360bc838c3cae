"""A policy that learns which job goes next: cross-entropy on a linear score, in NumPy."""

from __future__ import annotations

import sys

import numpy as np

import cpdispatch as cpd
from cpdispatch.rl import Dispatch

JOBS, KEPT = 200, 0.25


def episode(env: Dispatch, weights: np.ndarray, first: int) -> float:
    """The mean bounded slowdown when the job with the largest score goes next."""
    observed, _ = env.reset(options={"first": first})
    total, over = 0.0, False
    while not over:
        score = np.where(observed["mask"], observed["jobs"] @ weights, -np.inf)
        observed, reward, over, _, _ = env.step(int(np.argmax(score)))
        total += reward
    return -total


def main(rounds: int = 6, candidates: int = 16) -> None:
    env, draws = Dispatch(cpd.eurora_sample(1_500), "eurora", jobs=JOBS), np.random.default_rng(1)
    size = env.observation_space["jobs"].shape[1]
    mean, spread = np.zeros(size), np.ones(size)
    for _ in range(rounds):
        weights = mean + spread * draws.standard_normal((candidates, size))
        firsts = draws.integers(0, 800 - JOBS, 2)  # of the first half of the log
        found = [np.mean([episode(env, each, int(k)) for k in firsts]) for each in weights]
        best = weights[np.argsort(found)[: int(KEPT * candidates)]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
    tests = range(800, 1_300, 125)
    for name, policy in (("by submission", np.eye(size)[0]), ("learned", mean)):
        slowdown = np.mean([episode(env, policy, first) for first in tests])
        print(f"{name:13} mean bounded slowdown {slowdown:.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
