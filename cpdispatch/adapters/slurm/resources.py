"""The resource types of an instance of a live cluster: those of its nodes, and where jobs may run.

The second kind is described at `cpdispatch.adapters.slurm.picture`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cpdispatch.adapters.slurm.cluster import WHOLE, Cluster, Job
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.errors import CpdispatchError

APART_MOST = 8


@dataclass(slots=True)
class Ask:
    """A waiting job in the instance's words."""

    job: Job
    units: int
    core: int
    memory_mb: int
    gpus: Mapping[str, int]
    nodes: BoolArray
    exclusive: bool
    capped: str = ""
    """Its partition, where the jobs of that may take only so many CPUs of a node."""
    after: list[Job] = field(default_factory=list)


class Nodes:
    """The nodes with CPUs, and what each has of the types ``kinds``."""

    def __init__(self, cluster: Cluster, memory: bool) -> None:
        self.cluster = cluster
        self.memory = memory
        self.nodes = [node for node in cluster.nodes if node.cpus]
        if not self.nodes:
            raise CpdispatchError("Slurm shows no node with a CPU: is this a login to the cluster?")
        self.node = {node.name: k for k, node in enumerate(self.nodes)}
        gpus = sorted({kind for node in self.nodes for kind in node.gpus})
        self.kinds = ("core", *gpus, *(("mem",) if memory else ()))
        self.capacity = np.array([self.own(n.cpus, n.gpus, n.memory_mb) for n in self.nodes])

    def own(self, cpus: int, gpus: Mapping[str, int], memory_mb: int) -> list[int]:
        """Amounts in the order of the resource types that nodes have."""
        return [cpus, *(gpus.get(kind, 0) for kind in self.kinds[1:] if kind != "mem"),
                *([memory_mb] if self.memory else [])]  # fmt: skip


class More:
    """Resource types beside those of the nodes: which there are, and who asks for how many."""

    def __init__(
        self, have: Nodes, asked: Sequence[Ask], held: Iterable[tuple[Job, int, Sequence[int]]]
    ) -> None:
        """``held``: jobs, and how many CPUs each holds of each of these nodes."""
        self._nodes = len(have.nodes)
        self._sets: dict[bytes, int] = {}
        names: list[str] = []
        columns: list[IntArray] = []
        core = have.capacity[:, 0]
        for ask in asked:
            key = ask.nodes.tobytes()
            if not ask.nodes.all() and key not in self._sets:
                self._sets[key] = len(self._sets)
                names.append(f"core@set{len(self._sets)}")
                columns.append(np.where(ask.nodes, core, 0))
        self._cluster = have.cluster
        self._capped = sorted({ask.capped for ask in asked} - {""})
        columns += self._of_capped(core, held)
        names += [f"core@partition{k + 1}" for k in range(len(self._capped))]
        self.core_most = self.memory_most = 0
        if any(ask.exclusive for ask in asked):
            self.core_most = int(core.max())
            names.append("core@whole")
            columns.append(np.full(self._nodes, self.core_most))
        if have.memory and any(ask.memory_mb == WHOLE for ask in asked):
            self.memory_most = max(int(have.capacity[:, -1].max()), 1)
            names.append("mem@whole")
            columns.append(np.full(self._nodes, self.memory_most))
        # Two units that take more than half of the largest node go to different ones anyway.
        largest = have.capacity.max(axis=0)
        apart = [
            k for k, ask in enumerate(asked)
            if ask.units > 1 and not self._large(have, ask, largest)
        ]  # fmt: skip
        self._apart = {k: place % APART_MOST for place, k in enumerate(apart)}
        self._aparts = min(len(apart), APART_MOST)
        names += [f"apart{k + 1}" for k in range(self._aparts)]
        columns += [np.ones(self._nodes, dtype=np.int64)] * self._aparts
        self.names = tuple(names)
        self.width = len(have.kinds) + len(names)
        empty = np.zeros((self._nodes, 0), dtype=np.int64)
        self.capacity: IntArray = np.stack(columns, axis=1) if columns else empty

    def _of_capped(
        self, core: IntArray, held: Iterable[tuple[Job, int, Sequence[int]]]
    ) -> list[IntArray]:
        """What nodes have for each partition whose jobs may take only so many CPUs of a node.

        It is no less than its jobs hold already: the partition may have had no limit before.
        """
        used = {name: np.zeros(self._nodes, dtype=np.int64) for name in self._capped}
        for job, cpus, nodes in held:
            if job.partition in used:
                used[job.partition][nodes] += cpus
        parts = self._cluster.partitions
        return [np.maximum(np.minimum(core, parts[name].cpus_most), used[name])
                for name in self._capped]  # fmt: skip

    @staticmethod
    def _large(have: Nodes, ask: Ask, largest: IntArray) -> bool:
        if ask.exclusive or (have.memory and ask.memory_mb == WHOLE):
            return True
        own = np.array(have.own(ask.core, ask.gpus, ask.memory_mb))
        return bool((2 * own > largest).any())

    def of(self, position: int, ask: Ask) -> list[int]:
        """What each unit of a waiting job asks for."""
        sets = [0] * len(self._sets)
        which = self._sets.get(ask.nodes.tobytes())
        if which is not None:
            sets[which] = ask.core
        whole = ask.memory_mb == WHOLE
        apart = [0] * self._aparts
        if position in self._apart:
            apart[self._apart[position]] = 1
        return [
            *sets,
            *(ask.core * (ask.capped == name) for name in self._capped),
            *([self.core_most if ask.exclusive else ask.core] if self.core_most else []),
            *([self.memory_most if whole else ask.memory_mb] if self.memory_most else []),
            *apart,
        ]

    def held(self, own: Sequence[int], job: Job | None) -> list[int]:
        """What a job that holds so much of a node's own types holds of these."""
        memory = [own[-1]] if self.memory_most else []
        # A node that anybody holds a part of is not whole.
        core = [max(own[0], 1)] if self.core_most else []
        capped = [own[0] * (job is not None and job.partition == name) for name in self._capped]
        return [*[0] * len(self._sets), *capped, *core, *memory, *[0] * self._aparts]
