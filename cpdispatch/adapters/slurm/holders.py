"""Who holds what on the nodes of a live cluster, as the running jobs of an instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpdispatch.adapters.slurm.cluster import Cluster, Job
from cpdispatch.adapters.slurm.resources import More
from cpdispatch.arrays import sealed
from cpdispatch.compiled.correction import INCREMENTAL, corrected
from cpdispatch.instance import Running
from cpdispatch.jobs import LABELLED, UNKNOWN, JobTable, job_block

_UNSEEN = 2**47
_corrected = getattr(corrected, "py_func", corrected)  # a few calls: not worth a compilation


@dataclass(frozen=True, slots=True)
class Holds:
    """Who holds so much of the own resource types of each of these nodes, and for how long."""

    job: Job | None
    start_s: int
    limit_s: int
    expected_s: int
    upper_s: int
    amounts: tuple[int, ...]
    nodes: list[int]
    bound_s: int = 0

    def due_s(self, now: int) -> int:
        """The expected end; corrected step by step where it has passed. A test ends by itself."""
        if self.bound_s:
            return self.start_s + self.bound_s
        limit = self.start_s + self.limit_s
        due = self.start_s + self.expected_s
        return due if due > now else int(_corrected(now, INCREMENTAL, due, limit, 0)[0])


def running_of(cluster: Cluster, rows: Sequence[Holds], more: More, labels: Labels) -> Running:
    """The running jobs of an instance; a job may have several rows."""
    now = cluster.now_s
    rows = sorted(rows, key=lambda row: (row.start_s, row.job.number if row.job else _UNSEEN))
    seen: set[int] = set()
    ids = []
    for k, row in enumerate(rows):
        first = row.job is not None and row.job.number not in seen
        ids.append(row.job.number if row.job is not None and first else _UNSEEN + k)
        seen.add(ids[-1])
    start_s = np.array([row.start_s for row in rows], dtype=np.int64)
    limit_s = np.array([row.limit_s for row in rows], dtype=np.int64)
    due_s = np.array([row.due_s(now) for row in rows], dtype=np.int64)
    request = [[*row.amounts, *more.held(row.amounts, row.job)] for row in rows]
    nodes = [row.nodes for row in rows]
    table = JobTable(
        job_block(
            id=ids,
            submit_s=[
                min(row.job.submit_s, row.start_s) if row.job else row.start_s for row in rows
            ],
            units=[len(each) for each in nodes],
            requested_s=limit_s,
            expected_s=[row.expected_s for row in rows],
            upper_s=[row.upper_s for row in rows],
            request=np.array(request, dtype=np.int64).reshape(len(rows), more.width),
            tier=[cluster.tier_of(row.job) for row in rows],
            **labels.of([row.job for row in rows]),
        ),
        labels.names(),
    )
    return Running(
        table,
        sealed(start_s),
        sealed(due_s),
        sealed((start_s + limit_s <= now).astype(np.int64)),
        sealed(np.cumsum([0, *map(len, nodes)], dtype=np.int64)),
        sealed(np.array([node for each in nodes for node in each], dtype=np.int64)),
        sealed(np.ones(sum(map(len, nodes)), dtype=np.int64)),
        sealed(np.array([row.bound_s for row in rows], dtype=np.int64))
        if any(row.bound_s for row in rows)
        else None,
    )


class Labels:
    """Names of users, accounts and the like, and a number for each.

    Attributes
    ----------
    by_name : dict of str to dict
        The numbers by the names, for each column; in the order of the numbers.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, int]] = {name: {} for name in LABELLED}

    def of(self, jobs: Sequence[Job | None]) -> dict[str, list[int]]:
        """The numbers of these jobs' names."""
        return {
            "user": [self.number("user", job.user if job else "") for job in jobs],
            "group": [self.number("group", job.account if job else "") for job in jobs],
            "queue": [self.number("queue", job.qos if job else "") for job in jobs],
            "partition": [self.number("partition", job.partition if job else "") for job in jobs],
        }

    def number(self, column: str, name: str) -> int:
        """The number of a name; that of the unknown for none."""
        known = self.by_name[column]
        return known.setdefault(name, len(known)) if name else UNKNOWN

    def names(self) -> dict[str, tuple[str, ...]]:
        """The names behind the numbers so far."""
        return {column: tuple(known) for column, known in self.by_name.items()}
