"""Jobs, nodes, partitions and reservations of a live Slurm, as its REST daemon describes them."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice
from typing import Any, Protocol

from cpdispatch.system import USUAL_TIER
from cpdispatch.workloads.slurm.nodes import (
    dict_of,
    number_of,
    object_of,
    size_of,
    text_of,
    tier_of,
)
from cpdispatch.workloads.slurm.values import count, gpus_of_gres, nodes_in, task_ranges, tres

MARK = "cpdispatch"
"""The administrator's comment by which the project's job_submit.lua marks a job that it holds.

After a space come the nodes that the job was submitted with, if there are any, and after another
one what an administrator has written since.
"""
KEPT = f"{MARK}-kept"
"""The word that it puts before the comment of a job which somebody else than the driver holds."""
WHOLE = -1
"""The memory of a job that takes all that its nodes have."""
NO_LIMIT = -1
LIMITLESS_S = 365 * 86_400
"""What a job without a time limit is taken to last."""
HELD_BY_USER, HELD_BY_ADMIN = "JobHeldUser", "JobHeldAdmin"
PENDING, COMPLETING = "PENDING", "COMPLETING"
_ON_NODES = frozenset((
    "RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "SIGNALING", "RESIZING", "STOPPED",
))  # fmt: skip
_ENDING = frozenset((
    COMPLETING, "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD",
))  # fmt: skip
"""Of jobs that end, or are queued again: which of the two shows later."""
_USABLE = frozenset(("IDLE", "MIXED", "ALLOCATED"))
_HARMLESS = frozenset(("PLANNED", "CLOUD", "DYNAMIC_NORM", "POWERED_DOWN", COMPLETING))
"""Slurm wakes a node that is powered down for a job; it gives none to one that powers up or down.
"""
_STARTING = frozenset(("UP", "DRAIN"))
"""States of a partition in which Slurm starts queued jobs: a drained one takes no new ones."""
_ALL = 2**31
"""Slurm's numbers above are no limits."""
_TASK_BITS = 22
_NUMBER_MAX = 2**32
"""No job of Slurm has a larger number."""
_JOB = "job"
PARTITION = "partition"
"""As which the texts of `Cluster.unread` name a partition."""


class Source(Protocol):
    """Where a cluster is read from."""

    def now_s(self) -> int:
        """The controller's time."""

    def jobs(self) -> list[dict[str, Any]]:
        """Jobs."""

    def nodes(self) -> list[dict[str, Any]]:
        """Nodes."""

    def partitions(self) -> list[dict[str, Any]]:
        """Partitions."""

    def reservations(self) -> list[dict[str, Any]]:
        """Reservations."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a job holds on a node."""

    node: str
    cores: int
    memory_mb: int
    gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Job:
    """A job, or the tasks of an array that wait together.

    Attributes
    ----------
    key : str
        By which it is known for its whole life: a number, or ``12_3`` for a task of an array.
    number : int
        In instances; unique.
    own : int
        Its own number, which the tasks of an array that wait together share.
    address : str
        By which Slurm changes it.
    priority : int
        0 while it is held.
    marked : bool
        Whether it was held by the project's job_submit.lua when it was submitted.
    others_hold : bool
        Whether it is marked, and the project's job_submit.lua has seen that somebody else than the
        driver holds it.
    wished : str
        The nodes that it was submitted with, where it is marked.
    limit_s : int
        Time limit; `NO_LIMIT` for none.
    nodes, cpus : int
        Fewest nodes, and CPUs on all of them.
    nodes_most : int
        Most nodes; 0 for any number.
    task_cpus, least_cpus : int
        CPUs of each task, which are on one node, and fewest CPUs on each node.
    core_cpus : int
        It gets a multiple of so many CPUs of a node.
    avoid : set of str
        Partitions that it names and where Slurm did not start it: others of them come first.
    memory_mb : int
        On each node; `WHOLE` where the job states none: Slurm then gives it all.
    cpu_memory_mb : int
        For each CPU, where the job says it so; else 0.
    gpus, all_gpus : mapping of resource type to int
        On each node, where the job says it so; and on all nodes together.
    required, excluded : str
        Lists of nodes.
    tasks : str
        Of an array whose tasks wait together: their numbers; else empty.
    tasks_most : int
        How many tasks of the array may run at a time; 0 for all.
    shares : tuple of Share
        What it holds while it runs, or held; no cores while it is suspended.
    left : str
        Why no instance can express it; empty if one can.
    name : str
    end_s : int
        When it ended; for a job that runs, when its time limit is over.
    ran : bool
        Whether it has been started in its life as far as Slurm tells.
    eligible_s : int
        Since when Slurm may start it: not held, dependencies met; 0 where it may not.
    restartable : bool
        Whether Slurm may queue it again: a batch job that was not submitted with ``--no-requeue``.
    restarts : int
        How often Slurm has queued it again.
    remark : str
        What Slurm says of its state beside the reason, as where it was queued again held.
    """

    key: str
    number: int
    own: int
    address: str
    user: str
    account: str
    qos: str
    partition: str
    state: str
    reason: str
    priority: int
    marked: bool
    wished: str
    submit_s: int
    start_s: int
    limit_s: int
    nodes: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]
    features: str
    required: str
    excluded: str
    exclusive: bool
    dependency: str
    array: int
    tasks: str
    tasks_most: int
    shares: tuple[Share, ...]
    left: str = ""
    name: str = ""
    end_s: int = 0
    ran: bool = False
    eligible_s: int = 0
    restartable: bool = False
    restarts: int = 0
    remark: str = ""
    cpu_memory_mb: int = 0
    others_hold: bool = False
    all_gpus: Mapping[str, int] = field(default_factory=dict)
    nodes_most: int = 0
    task_cpus: int = 1
    least_cpus: int = 1
    core_cpus: int = 1
    avoid: Set[str] = frozenset()

    def cpus_of(self, nodes: int) -> int:
        """The CPUs on the node with the most tasks where they are spread over so many nodes."""
        tasks = -(-self.cpus // (nodes * self.task_cpus))
        cpus = max(tasks * self.task_cpus, self.least_cpus)
        return -(-cpus // self.core_cpus) * self.core_cpus

    def memory_mb_of(self, nodes: int) -> int:
        """The memory that goes with these CPUs, or is asked for on each node; or `WHOLE`."""
        return self.cpu_memory_mb * self.cpus_of(nodes) or self.memory_mb

    def gpus_of(self, nodes: int) -> dict[str, int]:
        """The GPUs on each node, by resource type, where they are spread over so many."""
        found = dict(self.gpus)
        for kind, many in self.all_gpus.items():
            found[kind] = found.get(kind, 0) + -(-many // nodes)
        return found

    @property
    def pending(self) -> bool:
        """Whether it waits."""
        return self.state == PENDING

    @property
    def held(self) -> bool:
        """Whether it waits, and Slurm would not start it."""
        return self.pending and self.priority == 0

    @property
    def running(self) -> bool:
        """Whether it holds nodes; not while it ends."""
        return self.state in _ON_NODES

    @property
    def ending(self) -> bool:
        """Whether it ends just now, or is queued again."""
        return self.state in _ENDING

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return not self.pending and not self.running and not self.ending


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what it has, threads of a core, and what is allocated.

    Attributes
    ----------
    usable : bool
        Whether jobs may start on it.
    completing : bool
        Whether a job on it ends just now; what that holds is not told.
    """

    name: str
    cpus: int
    threads: int
    memory_mb: int
    gpus: Mapping[str, int]
    used_cpus: int
    used_memory_mb: int
    used_gpus: Mapping[str, int]
    features: frozenset[str]
    usable: bool
    completing: bool

    def has_room(self, job: Job, nodes: int) -> bool:
        """Whether a job that is spread over so many nodes may start on it now."""
        memory_mb = job.memory_mb_of(nodes)
        memory_mb = self.memory_mb if memory_mb == WHOLE else memory_mb
        asked = {"core": job.cpus_of(nodes), "mem": memory_mb, **job.gpus_of(nodes)}
        has = {"core": self.cpus, "mem": self.memory_mb, **self.gpus}
        used = {"core": self.used_cpus, "mem": self.used_memory_mb, **self.used_gpus}
        return (
            self.usable and not self.completing and not (job.exclusive and self.used_cpus)
            and all(has.get(kind, 0) - used.get(kind, 0) >= many for kind, many in asked.items())
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which accounts, or QoS, may use a partition: these alone, or all but the denied ones."""

    alone: frozenset[str]
    denied: frozenset[str]

    def has(self, name: str) -> bool:
        """Whether one may; also where Slurm does not say which it is."""
        if not name or "all" in self.alone:
            return True
        return name.lower() in self.alone if self.alone else name.lower() not in self.denied


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its nodes, and how long its jobs may run; `NO_LIMIT` for as long as they do.

    Jobs of a higher tier come first. All its jobs together take ``cpus_most`` of a node's CPUs at
    most; `NO_LIMIT` for all.
    """

    name: str
    nodes: frozenset[str]
    limit_s: int
    up: bool
    exclusive: bool
    tier: int
    cpus_most: int
    nodes_least: int
    nodes_most: int
    memory_most_mb: int
    accounts: Admitted
    qos: Admitted
    groups: frozenset[str]

    def refuses(self, job: Job) -> str:
        """Why Slurm starts a job in no such partition; empty if it may."""
        if self.limit_s != NO_LIMIT and job.limit_s > self.limit_s:
            return "exceeds the time limit of"
        if not self.accounts.has(job.account):
            return f"is of the account {job.account}, which may not use"
        if self.groups and self.groups.isdisjoint(_groups_of(job.user) or self.groups):
            return f"is of the user {job.user}, whose groups may not use"
        if not self.qos.has(job.qos):
            return f"has the QoS {job.qos}, which may not use"
        if job.nodes < self.nodes_least or job.nodes > self.nodes_most > 0:
            return "asks for too few or too many nodes for"
        if job.memory_mb > self.memory_most_mb > 0 and not job.cpu_memory_mb:
            return "asks for more memory on a node than jobs may have in"
        return ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Nodes that a reservation keeps from other jobs."""

    nodes: tuple[str, ...]
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at a time; ``unread`` tells of what could not be understood.

    ``arrays`` are those of which tasks wait together.
    """

    now_s: int
    jobs: tuple[Job, ...]
    nodes: tuple[Node, ...]
    partitions: Mapping[str, Partition]
    blocked: tuple[Blocked, ...]
    unread: tuple[str, ...]
    arrays: frozenset[int]

    def partitions_of(self, job: Job) -> list[Partition]:
        """The partitions that a job names, but for those that are not known."""
        names = job.partition.split(",")
        return [self.partitions[name] for name in names if name in self.partitions]

    def in_whole_cores(self) -> Cluster:
        """The same where Slurm hands out whole cores: waiting jobs ask for all threads of a core.

        Where nodes of their partitions differ in that, those with the most threads count.
        """
        threads = {node.name: node.threads for node in self.nodes}
        most = {
            name: max((threads[node] for node in part.nodes if node in threads), default=1)
            for name, part in self.partitions.items()
        }

        def whole(job: Job) -> Job:
            each = max((most[part.name] for part in self.partitions_of(job)), default=1)
            if each == 1 or not job.pending:
                return job
            return replace(job, core_cpus=each)

        return replace(self, jobs=tuple(map(whole, self.jobs)))

    def limit_s_of(self, limit_s: int, partition: str) -> int:
        """A time limit, s; that of the partition, the first of a list, where a job has none."""
        if limit_s != NO_LIMIT:
            return max(limit_s, 1)
        part = self.partitions.get(partition.split(",")[0])
        return LIMITLESS_S if part is None or part.limit_s == NO_LIMIT else max(part.limit_s, 1)

    def tier_of(self, job: Job | None) -> int:
        """The highest tier of the partitions that are up and may start a job."""
        if job is None:
            return USUAL_TIER
        tiers = [part.tier for part in self.partitions_of(job) if part.up and not part.refuses(job)]
        return max(tiers, default=USUAL_TIER)

    def in_array(self, key: str) -> bool:
        """Whether a key may be that of a task which waits with others of its array.

        Such a task has no record of its own.
        """
        array, _, task = key.partition("_")
        return bool(task) and int(array) in self.arrays

    @property
    def unread_jobs(self) -> list[str]:
        """What of the jobs could not be understood: any of them may be one that is driven."""
        return [text for text in self.unread if text.startswith(_JOB)]


def read(source: Source, whole_cores: bool = False) -> Cluster:
    """Read a cluster: jobs before nodes.

    A job that starts in between waits in the one and is counted in the other: what it takes is
    never overlooked.

    Parameters
    ----------
    whole_cores : bool
        Whether Slurm hands out whole cores, see `Cluster.in_whole_cores`.

    Raises
    ------
    SlurmError
        When Slurm does not answer, or answers with nothing that can be read.
    """
    now_s = source.now_s()
    jobs, unread = _each(_JOB, source.jobs(), job_of)
    nodes, strange = _each("node", source.nodes(), node_of)
    partitions, odd = _each(PARTITION, source.partitions(), _partition_of)
    blocked, wrong = _each("reservation", source.reservations(), _blocked_of)
    found = Cluster(
        now_s, tuple(jobs), tuple(nodes), {each.name: each for each in partitions},
        tuple(blocked), (*unread, *strange, *odd, *wrong),
        frozenset(job.array for job in jobs if job.tasks and job.pending),
    )  # fmt: skip
    return found.in_whole_cores() if whole_cores else found


def _each(what: str, rows: Sequence[dict[str, Any]], of: Any) -> tuple[list[Any], list[str]]:
    """What rows say, and a sentence for each that cannot be understood."""
    found, unread = [], []
    for row in rows:
        try:
            found.append(of(object_of(row)))
        except (ValueError, OverflowError) as error:
            name = row.get("job_id") or row.get("name") if isinstance(row, dict) else None
            unread.append(f"{what} {name}: {error}")
    return found, unread


def job_of(row: dict[str, Any]) -> Job:
    """A job as Slurm describes it."""
    number = number_of(row.get("job_id"))
    state = _state(row.get("job_state"))
    if not number or number < 0 or not state:
        raise ValueError("a job without a number or a state")
    array = number_of(row.get("array_job_id")) or 0
    task = number_of(row.get("array_task_id"))
    if not 0 <= array <= _NUMBER_MAX or not 0 <= (task or 0) < 1 << _TASK_BITS:
        raise ValueError(f"a job of the array {array} and the task {task}")
    tasks = "" if task is not None else text_of(row.get("array_task_string")).partition("%")[0]
    one = array and task is not None
    key = f"{array}_{task}" if one else str(number)
    # The number of an array stands for all of its tasks, those that have ended too.
    address = key if number == array else str(number)
    if tasks:
        task_ranges(tasks)  # raises where they cannot be told
        # Slurm cuts long lists anywhere: the last number may be a part of another one.
        whole = tasks.rpartition(",")[0] if tasks.endswith("...") else tasks
        address = f"{array}_[{whole}]"
    asked = tres(text_of(row.get("tres_req_str")))
    # Where no number of nodes was asked for, so many tasks on a node say how many there are.
    tasks_each, many = number_of(row.get("tasks_per_node")) or 0, _most(row, "tasks") or 1
    nodes = -(-many // tasks_each) if tasks_each > 0 else 1
    nodes = max(count(asked.get("node") or "1"), nodes, 1)
    cpus = max(count(asked.get("cpu") or "1"), 1)
    gpus, all_gpus, left = _gpus(row)
    minutes = number_of(row.get("time_limit"))
    mark, _, wished = text_of(row.get("admin_comment")).partition(" ")
    start_s = max(number_of(row.get("start_time")) or 0, 0)
    end_s = max(number_of(row.get("end_time")) or 0, 0)
    shares = () if state == PENDING else _shares(row, needed=state in _ON_NODES)
    # One that was cancelled while it waited shows that instant as its start and its end.
    ran = state != PENDING and start_s > 0
    ran &= bool(shares or text_of(row.get("nodes")) or end_s > start_s)
    return Job(
        key=key,
        number=task_number(array, task) if one and task is not None else number,
        own=number,
        address=address,
        user=text_of(row.get("user_name")),
        account=text_of(row.get("account")),
        qos=text_of(row.get("qos")),
        partition=text_of(row.get("partition")),
        state=state,
        reason=text_of(row.get("state_reason")),
        priority=number_of(row.get("priority")) or 0,
        marked=mark == MARK,
        wished=wished.partition(" ")[0] if mark == MARK else "",
        submit_s=max(number_of(row.get("submit_time")) or 0, 0),
        start_s=start_s,
        limit_s=NO_LIMIT if not minutes or minutes < 0 else minutes * 60,
        nodes=nodes,
        cpus=cpus,
        memory_mb=number_of(row.get("memory_per_node")) or WHOLE,
        gpus=gpus,
        features=text_of(row.get("features")),
        required=text_of(row.get("required_nodes")),
        excluded=text_of(row.get("excluded_nodes")),
        exclusive=text_of(row.get("shared")) == "none",
        dependency=text_of(row.get("dependency")),
        array=array,
        tasks=tasks,
        tasks_most=number_of(row.get("array_max_tasks")) or 0,
        shares=shares,
        left=_left(row) or left,
        name=text_of(row.get("name")),
        end_s=end_s,
        ran=ran,
        eligible_s=max(number_of(row.get("eligible_time")) or 0, 0),
        restartable=_true(row, "requeue") and _true(row, "batch_flag"),
        restarts=max(number_of(row.get("restart_cnt")) or 0, 0),
        remark=text_of(row.get("state_description")),
        cpu_memory_mb=max(number_of(row.get("memory_per_cpu")) or 0, 0),
        others_hold=mark == MARK and text_of(row.get("comment")).partition(" ")[0] == KEPT,
        all_gpus=all_gpus,
        nodes_most=_most(row, "max_nodes"),
        # Slurm does not tell it. Where several tasks share a CPU, fewer CPUs than tasks are asked.
        task_cpus=1 if cpus % many else cpus // many,
        least_cpus=max(_most(row, "minimum_cpus_per_node"), 1),
    )


def task_number(array: int, task: int) -> int:
    """A number for a task of an array that no other job has."""
    return (array << _TASK_BITS) + task


def tasks_apart(job: Job, most: int) -> Iterator[Job]:
    """The first tasks of an array that wait together, each as a job; another job is itself."""
    if not job.tasks:
        yield job
        return
    for task in islice(chain.from_iterable(task_ranges(job.tasks)), most):
        key = f"{job.array}_{task}"
        yield replace(job, key=key, address=key, tasks="", number=task_number(job.array, task))


def _true(row: dict[str, Any], name: str) -> bool:
    """Whether a field is set: true, or a number above 0."""
    return row.get(name) is True or (number_of(row.get(name)) or 0) > 0


def _flags(row: dict[str, Any]) -> set[str]:
    flags = row.get("flags")
    return {text_of(flag).upper() for flag in flags} if isinstance(flags, list) else set()


def _most(row: dict[str, Any], name: str) -> int:
    """A number of a row; 0 where it says none."""
    found = number_of(row.get(name)) or 0
    return found if 0 < found < _ALL else 0


def _state(value: Any) -> str:
    text = text_of(value[0] if isinstance(value, list) and value else value)
    return text.upper()


def _gpus(row: dict[str, Any]) -> tuple[dict[str, int], dict[str, int], str]:
    """The GPUs by resource type, of each node, and of all together; or why they cannot be told."""
    total = max(number_of(row.get("tasks")) or 1, 1)
    each: dict[str, int] = {}
    together: dict[str, int] = {}
    for key, found, times in (
        ("tres_per_node", each, 1), ("tres_per_job", together, 1),
        ("tres_per_task", together, total),
    ):  # fmt: skip
        text = text_of(row.get(key))
        parts = [part.removeprefix("gres:").removeprefix("gres/") for part in text.split(",")]
        for part in filter(None, parts):
            if part.split(":")[0] != "gpu":
                return {}, {}, f"asks for {part.split(':')[0]}"
            for kind, many in gpus_of_gres(part).items():
                if many:
                    found[kind] = found.get(kind, 0) + many * times
    return each, together, ""


_NOT_EXPRESSED = {
    "licenses": "licenses", "resv_name": "a reservation", "burst_buffer": "a burst buffer",
    "tres_per_socket": "GPUs by socket", "memory_per_tres": "memory by GPU",
    "cpus_per_tres": "CPUs by GPU", "cluster_features": "features of a cluster",
    "mcs_label": "a security label", "container": "a container", "prefer": "nodes it prefers",
    "contiguous": "nodes side by side", "core_spec": "cores for the system",
    "thread_spec": "threads for the system", "minimum_tmp_disk_per_node": "temporary disk",
    "het_job_id": "parts that start together", "reboot": "a reboot", "deadline": "a deadline",
    "sockets_per_node": "sockets", "cores_per_socket": "cores of a socket",
    "threads_per_core": "threads of a core", "tasks_per_core": "so many tasks on a core",
    "tasks_per_socket": "so many tasks on a socket", "federation_origin": "another cluster",
}  # fmt: skip
"""What a job may ask for that an instance has no words for, by the field that tells of it."""
_FLAGS_NOT_EXPRESSED = {
    "SPREAD_JOB": "to be spread over many nodes",
    "GRES_ENFORCE_BIND": "for CPUs and GPUs that are bound to each other",
}
"""The same by the flag that tells of it."""


def _left(row: dict[str, Any]) -> str:
    for name, what in _NOT_EXPRESSED.items():
        value = row.get(name)
        if isinstance(value, dict):
            value = number_of(value)
        if value:
            return f"asks for {what}"
    if text_of(row.get("shared")) in ("user", "mcs"):
        return "shares its nodes with some jobs alone"
    flags = _flags(row)
    for flag, what in _FLAGS_NOT_EXPRESSED.items():
        if flag in flags:
            return f"asks {what}"
    features = text_of(row.get("features"))
    if set(features) & set("[]()*!") or ("&" in features and "|" in features):
        return f"asks for the features {features}"
    return ""


def _shares(row: dict[str, Any], *, needed: bool) -> tuple[Share, ...]:
    """What a job that was started holds on each node."""
    given = dict_of(row, "job_resources").get("allocated_nodes")
    # Slurm gives its cores to others meanwhile, and nothing else that it has.
    suspended = _state(row.get("job_state")) == "SUSPENDED"
    detail = row.get("gres_detail")
    gres = [text_of(part) for part in detail] if isinstance(detail, list) else []
    shares = []
    for k, node in enumerate(given if isinstance(given, list) else ()):
        sockets = dict_of(node, "sockets").values()
        cores = 0 if suspended else sum(
            state == "allocated"
            for socket in sockets
            for state in dict_of(socket, "cores").values()
        )  # fmt: skip
        shares.append(
            Share(
                text_of(object_of(node).get("nodename")), cores,
                max(number_of(node.get("memory_allocated")) or 0, 0),
                gpus_of_gres(gres[k]) if k < len(gres) else {},
            )
        )  # fmt: skip
    if needed and not shares:
        raise ValueError("a running job without nodes")
    return tuple(shares)


def node_of(row: dict[str, Any]) -> Node:
    """A node as Slurm describes it."""
    name = text_of(row.get("name"))
    if not name:
        raise ValueError("a node without a name")
    states = [part.upper() for part in text_of(row.get("state")).split(",")]
    flags = {*states[1:], *(part.upper() for part in text_of(row.get("state_flags")).split(","))}
    flags.discard("")
    cpus, memory_mb = size_of(row)
    active = text_of(row.get("active_features", row.get("features")))
    return Node(
        name,
        cpus,
        max(number_of(row.get("threads")) or 1, 1),
        memory_mb,
        gpus_of_gres(text_of(row.get("gres"))),
        max(number_of(row.get("alloc_cpus")) or 0, 0),
        max(number_of(row.get("alloc_memory")) or 0, 0),
        gpus_of_gres(text_of(row.get("gres_used"))),
        frozenset(part for part in active.split(",") if part),
        states[0] in _USABLE and flags <= _HARMLESS,
        COMPLETING in flags,
    )


def _partition_of(row: dict[str, Any]) -> Partition:
    name = text_of(row.get("name"))
    if not name:
        raise ValueError("a partition without a name")
    minutes = number_of(row.get("max_time_limit"))
    # Later releases have it among its priorities.
    tier = tier_of(row.get("priority_tier", dict_of(row, "priority").get("tier")))
    return Partition(
        name,
        frozenset(nodes_in(text_of(row.get("nodes")))),
        NO_LIMIT if minutes is None or minutes < 0 else minutes * 60,
        not _STARTING.isdisjoint(text_of(row.get("state")).upper().split(",")),
        not _flags(row).isdisjoint(("EXCLUSIVE", "EXCLUSIVE_USER")),
        USUAL_TIER if tier is None else tier,
        _most(row, "maximum_cpus_per_node") or NO_LIMIT,
        _most(row, "min nodes per job"),
        _most(row, "maximum_nodes_per_job"),
        _most(row, "maximum_memory_per_node"),
        Admitted(_names(row, "allowed_accounts"), _names(row, "denied_accounts")),
        Admitted(_names(row, "allowed_qos"), _names(row, "denied_qos")),
        frozenset(text_of(row.get("allowed_groups")).split(",")) - {"", "ALL"},
    )


@cache
def _groups_of(user: str) -> frozenset[str]:
    """The groups of a user on this host; none where it does not know them, or all are admitted."""
    try:
        found = pwd.getpwnam(user)
        numbers = os.getgrouplist(user, found.pw_gid) if found.pw_uid else ()
        return frozenset(grp.getgrgid(number).gr_name for number in numbers)
    except (KeyError, OSError):
        return frozenset()


def _names(row: dict[str, Any], name: str) -> frozenset[str]:
    """The names in a field, without regard to case, as Slurm compares them."""
    return frozenset(text_of(row.get(name)).lower().split(",")) - {""}


def _blocked_of(row: dict[str, Any]) -> Blocked:
    start_s, end_s = number_of(row.get("start_time")), number_of(row.get("end_time"))
    if start_s is None or end_s is None:
        raise ValueError("a reservation without times")
    return Blocked(tuple(nodes_in(text_of(row.get("node_list")))), start_s, end_s)
