"""Which jobs of a live Slurm a dispatcher is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cpdispatch.adapters.slurm.client import SlurmError
from cpdispatch.adapters.slurm.cluster import HELD_BY_USER, PARTITION, Cluster, Job
from cpdispatch.errors import UsageError, nearest

HoldBy = Literal["plugin", "submitters"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How a cluster is driven.

    Attributes
    ----------
    hold_by : str
        Who holds jobs: the project's ``plugin``, which marks them, or their ``submitters``.
    partition : str
        The one whose jobs are driven; empty for all.
    patience_s : int
        How long a released job may wait for its start.
    memory : bool
        Whether Slurm hands out memory.
    dry : bool
        Whether nothing is changed.
    tests : bool
        Whether jobs that Slurm may queue again are shown to the dispatcher as such: it may then
        start them for test runs.
    whole_cores : bool
        Whether Slurm hands out whole cores.
    """

    hold_by: HoldBy = "plugin"
    partition: str = ""
    patience_s: int = 30
    memory: bool = True
    dry: bool = False
    tests: bool = False
    whole_cores: bool = False

    def covers(self, job: Job) -> bool:
        """Whether a job is in the partition whose jobs are driven."""
        return self.partition in ("", job.partition)

    def ours(self, job: Job) -> bool:
        """Whether a job was handed over to the driver; marked ones, in whichever partition."""
        if self.hold_by == "plugin":
            return job.marked
        return self.covers(job) and job.held and job.reason == HELD_BY_USER

    def check(self, cluster: Cluster) -> None:
        """Raise where the one partition is none of the cluster's.

        Raises
        ------
        UsageError
        SlurmError
            When what Slurm says of it cannot be understood.
        """
        known = cluster.partitions
        for text in cluster.unread if self.partition else ():
            if text.startswith(f"{PARTITION} {self.partition}: "):
                raise SlurmError(f"--only-partition {self.partition}: not understood: {text}")
        if self.partition and known and self.partition not in known:
            raise UsageError(
                f"--only-partition {self.partition}: the cluster has no such partition"
                f"{nearest(self.partition, known)} (it has: {', '.join(known)})"
            )


def waits(job: Job, rules: Rules) -> bool:
    """Whether a job would be in the queue if the cluster were driven from now on."""
    held = rules.ours(job) and not job.others_hold
    return rules.covers(job) and job.pending and (job.priority > 0 or held)
