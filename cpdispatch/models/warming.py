"""The engine's kernels, compiled by two processes at the same time.

Run as a program (``python -m cpdispatch.models.warming``), this module compiles the kernels of the
bounds into the cache, which is half of the work; the process that starts it compiles the others
meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import joblib  # type: ignore[import-untyped]
import numpy as np

from cpdispatch import toys
from cpdispatch.compile import is_kept
from cpdispatch.heuristics.allocate import start_in_order
from cpdispatch.heuristics.limits import planned
from cpdispatch.heuristics.order_search import OrderSearch, improve
from cpdispatch.heuristics.postpone_search import PostponeSearch
from cpdispatch.heuristics.schedule_input import held_in
from cpdispatch.models import objective
from cpdispatch.models.bounds import FOREVER_S, area, priced
from cpdispatch.models.families import families
from cpdispatch.models.part import Part, parts_of, select
from cpdispatch.models.prices import climb
from cpdispatch.models.relaxation import pool_of

_KICK, _STEPS, _ROUNDS = 6, 100, 2


def compile_kernels(beside: str = "cpdispatch.models.warming") -> None:
    """Compile the kernels of the engine, where the cache does not have them yet.

    The cache is all that is changed: decisions find the kernels there, in this process and in
    others. Without a second core, or where no process can be started, this one compiles all.

    Parameters
    ----------
    beside : str
        The module that the other process runs: this one, or one that compiles more than it does.
    """
    if is_kept(improve) and is_kept(climb):
        return
    with _another(beside):
        play_search()
    play_bounds()


def play_search() -> None:
    """Call the kernels of list schedules, of the searches over them, of the pool, and of starts."""
    for part in _parts():
        search = OrderSearch(part.generator, part.first_order, part.weights.per_s, part.locked)
        search.run(1)
        search.kick(_KICK)
        PostponeSearch(part.generator, FOREVER_S, 0, part.latest_s, part.alike).run(_STEPS)
        part.generator.earliest()
        schedule = part.generator.schedule(part.first_order)
        pool = pool_of(families(part.instance, part.position), part.jobs.planned_s)
        start_s = schedule.start_s
        problem, *_ = part.pose(schedule, np.arange(len(part)), part.nodes)
        problem.earliest_s  # noqa: B018
        pool.improve(start_s, part.weights, _STEPS)
        pool.holds(start_s)
        pool.earliest()
    for toy in toys.every_kind():
        start_in_order(planned(toy, "upper"), np.arange(len(toy.queue)))


def play_bounds() -> None:
    """Call the kernels of the bounds."""
    for part in _parts():
        given = families(part.instance, part.position)
        limits = part.jobs, part.weights, np.full(len(part), part.instance.now, dtype=np.int64)
        area(given, *limits)
        priced(given, *limits, upper=FOREVER_S, rounds=_ROUNDS)


def _parts() -> Iterator[Part]:
    """All jobs of each toy, in parts."""
    for toy in toys.every_kind():
        jobs = len(toy.queue)
        instance = planned(toy, "upper")
        selection = select(instance, np.arange(jobs), m=jobs, reserve=jobs)
        cost = objective.of("slowdown", instance.queue)
        yield from parts_of(instance, selection, cost, held_in(instance))


@contextmanager
def _another(module: str) -> Iterator[None]:
    """Have another process run a module in the meantime."""
    if joblib.cpu_count() == 1:
        yield
        return
    path = os.pathsep.join(entry for entry in sys.path if isinstance(entry, str))
    process = None
    with suppress(OSError, ValueError):
        process = subprocess.Popen(
            (sys.executable or "python3", "-P", "-m", module),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
    try:
        yield
        if process is not None:
            process.wait()
    finally:
        if process is not None:
            process.kill()
            process.wait()


if __name__ == "__main__":
    play_bounds()
