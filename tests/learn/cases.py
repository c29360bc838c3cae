"""Small workloads for the tests of learners."""

from __future__ import annotations

import numpy as np

from cpdispatch.campaign import Workers
from cpdispatch.jobs import JobTable, Workload, job_block
from cpdispatch.learn.place import Place
from cpdispatch.system import System

WEEK_S = 7 * 86_400
HERE = Place(Workers(cores=1))
ONE = System.pool(1)
FOUR = System.pool(4)


def workload(submit, units, requested, runtime, user=0) -> Workload:  # type: ignore[no-untyped-def]
    """Jobs on a pool, numbered from 1; runtimes as requested when left out."""
    jobs = len(submit)
    block = job_block(
        id=np.arange(1, jobs + 1), submit_s=submit, units=units, requested_s=requested,
        request=np.ones((jobs, 1), dtype=np.int64), user=user,
    )  # fmt: skip
    none = np.full((2, jobs), -1, dtype=np.int64)
    return Workload(
        "case", ("core",), JobTable(block), np.asarray(runtime, dtype=np.int64), none[0], none[1]
    )


def bursts(weeks: int = 4, processors: int = 1, seed: int = 0, alike: bool = False) -> Workload:
    """A burst of jobs a day, that all come at once; every week the same ones, if alike."""
    rng = np.random.default_rng(seed)
    submit, units, runtime, user = [], [], [], []
    kept = None
    for week in range(weeks):
        if kept is None or not alike:
            kept = (rng.integers(60, 5_000, (7, 12)), rng.integers(1, processors + 1, (7, 12)))
        for day in range(7):
            submit += [week * WEEK_S + day * 86_400 + 3_600] * 12
            runtime += kept[0][day].tolist()
            units += kept[1][day].tolist()
            user += [day % 3] * 12
    return workload(submit, units, runtime, runtime, user)
