"""Small instances that take a dispatcher through all of its code: nothing is compiled later."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from cpdispatch.decision import Decision
from cpdispatch.instance import FORMAT, FORMAT_OF_RESTARTS, Instance, loads


class Dispatches(Protocol):
    """What a toy is played with."""

    def dispatch(self, instance: Instance) -> Decision:
        """Decide which queued jobs start now, and where."""


def play(make: Callable[[], Dispatches], toys: Sequence[Instance]) -> None:
    """Have throw-away dispatchers decide on toys, so that all kernels are compiled.

    Parameters
    ----------
    make : callable
        Puts a throw-away dispatcher together. Each meets one toy, twice: at the second time, it
        has promises to keep.
    """
    for toy in toys:
        dispatcher = make()
        dispatcher.dispatch(toy)
        dispatcher.dispatch(toy)


@functools.cache
def simulated() -> tuple[Instance, ...]:
    """What simulations have: a pool; nodes of two kinds; with dependencies."""
    return _loaded(
        {**_POOL, "queue": _queue([4])},
        {**_NODES, "queue": _queue([3, 0], [1, 1])},
        {**_NODES, "queue": _queue([3, 0], [1, 1], after=True)},
    )


@functools.cache
def every_kind() -> tuple[Instance, ...]:
    """Those of `simulated`, and one with reservations, a power cap and nodes down."""
    return simulated() + _loaded({**_NODES, "queue": _queue([3, 0], [1, 1]), **_LIMITS})


@functools.cache
def restartable() -> tuple[Instance, ...]:
    """Jobs that may be tested, and one just stopped."""
    return _loaded({**_NODES, "queue": _stopped(_queue([3, 0], [1, 1])), **_RESTARTS})


@functools.cache
def taking_once() -> tuple[Instance, ...]:
    """Jobs that take something once, on their first nodes."""
    queue = _queue([3, 0], [1, 1])
    for job in queue:
        job |= {"units": 2, "first": [1, 0]}
    return _loaded({**_NODES, "queue": queue, "format": FORMAT_OF_RESTARTS})


def have_stopped(instances: Sequence[Instance]) -> bool:
    """Whether a job was just stopped in one of these instances."""
    return any(instance.stopped is not None for instance in instances)


def _loaded(*files: dict[str, Any]) -> tuple[Instance, ...]:
    return tuple(loads(msgspec.json.encode({"format": FORMAT, "time": 60} | f)) for f in files)


_POOL: dict[str, Any] = {
    "resources": ["core"],
    "groups": [{"name": "pool", "nodes": 1, "capacity": [10]}],
    "running": [
        {"id": 1, "start": 0, "duration": 90, "units": 1, "unit": [4], "nodes": {"0": 1}},
        {"id": 2, "start": 0, "duration": 60, "requested": 99, "units": 1, "unit": [1],
         "nodes": {"0": 1}},
    ],
}  # fmt: skip
_NODES: dict[str, Any] = {
    "resources": ["core", "gpu"],
    "groups": [
        {"name": "thin", "nodes": 2, "capacity": [4, 0]},
        {"name": "gpu", "nodes": 3, "capacity": [4, 2]},
    ],
    "running": [
        {"id": 1, "start": 0, "duration": 90, "units": 2, "unit": [2, 0],
         "nodes": {"0": 1, "2": 1}},
        {"id": 2, "start": 0, "duration": 60, "requested": 99, "units": 1, "unit": [1, 1],
         "nodes": {"3": 1}},
    ],
}  # fmt: skip
_LIMITS: dict[str, Any] = {
    "down": [4],
    "reservations": [{"start": 70, "duration": 30, "nodes": [0, 3], "capacity": [2, 0]}],
    "power": {"cap": 100, "unit": [5, 9]},
    "starvation": {"threshold": 40, "bound": 30},
}
_RESTARTS: dict[str, Any] = {"format": FORMAT_OF_RESTARTS, "restart_cost": 5}


def _queue(*requests: list[int], after: bool = False) -> list[dict[str, Any]]:
    """Jobs that cannot all start, for which good plans are not found at once."""
    jobs: list[dict[str, Any]] = [
        {
            "id": 10 + k,
            "submit": 7 * k,
            "duration": 20 + 13 * (k * k % 5),
            "requested": 120 + 30 * k,
            "upper": 100 + 20 * k,
            "units": 1 + k % 3,
            "unit": requests[k % len(requests)],
        }
        for k in range(7)
    ]
    if after:
        jobs[5] |= {"after": [jobs[2]["id"]], "think": 5}
        jobs[6] |= {"earliest": 75}
    return jobs


def _stopped(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The jobs, all of which may be tested but for the first, which has just been stopped."""
    for job in jobs:
        job |= {"restartable": True, "requested": 1_000_000}
    jobs[0]["stopped"] = {"start": 50, "nodes": {"1": 1}}
    return jobs
