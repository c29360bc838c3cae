"""Small workloads, written as a test needs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdispatch.jobs import UNKNOWN, JobTable, Workload, job_block

HOUR_S, DAY_S, WEEK_S = 3600, 86_400, 604_800
STOCKHOLM = (
    "; Computer: IBM SP2",
    "; UnixStartTime: 843480031",
    "; TimeZone: 3600",
    "; TimeZoneString: Europe/Stockholm",
    "; StartTime: Mon Sep 23 14:00:31 CEST 1996",
    "; MaxJobs: 28490",
    "; MaxProcs: 100",
)


def log(
    submit_s: Sequence[int],
    user: Sequence[int] | int = UNKNOWN,
    runtime_s: Sequence[int] | int = 60,
    header: tuple[str, ...] = (),
    processors: int | None = 100,
) -> Workload:
    """A log of serial jobs whose ids count from 101, each with a runtime of its own if told so."""
    jobs = len(submit_s)
    runtimes = np.broadcast_to(np.array(runtime_s, dtype=np.int64), jobs).copy()
    block = job_block(
        id=np.arange(101, 101 + jobs),
        submit_s=np.array(submit_s),
        units=1,
        requested_s=runtimes * 2,
        request=np.ones((jobs, 1), dtype=np.int64),
        user=np.array(user),
    )
    return Workload(
        name="small",
        resources=("core",),
        table=JobTable(block),
        runtime_s=runtimes,
        preceding=np.full(jobs, 7),
        think_s=np.full(jobs, 8),
        processors=processors,
        header=header,
        per_processor=True,
    )
