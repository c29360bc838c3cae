"""Which jobs of a Slurm cluster can be replayed, of the records of all of them, as columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from cpdispatch.jobs import SPREADS
from cpdispatch.system import System
from cpdispatch.workloads.imported import Columns
from cpdispatch.workloads.slurm import terms
from cpdispatch.workloads.slurm.jobs import ENDED, Record, Records
from cpdispatch.workloads.slurm.nodes import Cluster, Node
from cpdispatch.workloads.slurm.values import NOTHING, nodes_in, task_ranges

PENDING = "still pending when the records were taken"
RUNNING = "still running when the records were taken"
CANCELLED = "cancelled before it started"
NOT_STARTED = "ended without having started"
NO_STATE = "in a state that Slurm does not have"
NO_SUBMIT = "submit time unknown"
NO_RUNTIME = "runtime unknown"
NO_SIZE = "number of CPUs unknown"
RESIZED = "part of a job before it was resized"
ATTEMPT = "earlier attempt of a job that was queued again"
TWICE = "the same record stands twice"
LIMITLESS = "no time limit: the longest limit or runtime of the records stands in"
UNLIKE = "shares of nodes that are not alike: on each, no more than the least of them has"
ELSEWHERE = "ran on a node that the list of nodes does not have"
UNEVEN = "CPUs or GPUs cannot be split evenly over the nodes: rounded up"
CUT = "lists of tasks of arrays that Slurm cut short: only the tasks that they name are counted"
FOLDED = "jobs that were queued again: the last attempt is kept, submitted with the first"

OF_NODES = {
    "Licences": ("licences",),
    "Lists of nodes": ("nodelist", "exclude"),
    "Whole nodes": ("exclusive",),
    "Numbers of nodes, and of tasks on a node": SPREADS,
}
"""What jobs ask for that says nothing where no node is known, with its columns."""

START, ATTEMPTS, NODE_LIST, JOB_ID = "start", "attempts", "node_list", "job_id"
"""Columns of what travels along: when a job started, its earlier attempts, its nodes, its name."""

_WAITING = frozenset(("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_RUNNING = frozenset((
    "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING",
    "STAGE_OUT",
))  # fmt: skip
_QUEUED_AGAIN = frozenset(("REQUEUED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"))
HELD_S = 60
"""A job was held back that was not eligible so long after its submission, seconds."""


def columns_of(found: Records, cluster: Cluster) -> tuple[Columns, Counter[str], Counter[str]]:
    """The jobs that ran, as columns; those that are left out, and what was repaired, by reason.

    A unit of a job is what it has on each of its nodes. Where CPUs and GPUs cannot be divided by
    the nodes, a job has as few units as divide them and are no fewer than the nodes; if there are
    none, what a unit asks for is rounded up. A job of whole nodes has a unit on each of them, which
    asks for no more than the least of them has. So has one that shares nodes that are not alike,
    if nothing else fits.
    """
    left_out: Counter[str] = Counter()
    notes: Counter[str] = Counter(found.notes)
    notes[CUT] += sum("..." in record.job_id for record in found.records)
    _count_tasks_once(found.records, left_out)
    kept: list[Record] = []
    for record in _last_attempts(found.records, left_out):
        reason = _unusable(record)
        if reason:
            left_out[reason] += record.jobs
        else:
            kept.append(record)
            notes[FOLDED] += record.again
    longest_s = max((max(r.limit_s, r.runtime_s) for r in kept), default=1)
    array_limits: dict[str, int] = {}
    for record in found.records:
        if many := record.array_limit or record.submitted.array_limit:
            array_limits[record.array] = many
    columns = Columns()
    kinds = sorted({kind for record in kept for kind in record.gpus})
    columns.request = {"core": [], **{kind: [] for kind in kinds}, "mem": []}
    room = _Room(cluster)
    for record in kept:
        limit_s = record.limit_s
        if limit_s <= 0:
            limit_s = cluster.limits_s.get(record.labels["partition"], -1)
        if limit_s <= 0:
            limit_s = longest_s
            notes[LIMITLESS] += 1
        notes[ELSEWHERE] += bool(cluster.nodes) and not room.knows(record)
        has = {"core": record.cpus, **record.gpus, "mem": record.memory_mb}
        counts = [record.cpus, *record.gpus.values()]
        units, most = max(record.nodes, 1), dict[str, int]()
        if _whole(record, cluster):
            most = room.least(record)
        elif fitting := room.units(record, has):
            units = fitting
        else:
            most = room.least(record)
            notes[UNLIKE] += 1
        if any(many % units for many in counts):
            notes[UNEVEN] += 1
        notes[terms.ODD] += terms.has_odd_licences(_licences(record))
        columns.id.append(record.number)
        columns.submit_s.append(record.submit_s)
        columns.start_s.append(record.start_s)
        columns.runtime_s.append(record.runtime_s)
        columns.requested_s.append(max(limit_s, 1))
        columns.units.append(units)
        columns.nodes.append(record.nodes)
        for kind, asked in columns.request.items():
            each = -(-has.get(kind, 0) // units)
            asked.append(min(each, most.get(kind, each)))
        for name, text in record.labels.items():
            columns.labels.setdefault(name, []).append(text or None)
        columns.labels.setdefault("restartable", []).append(record.restartable)
        for name, value in _terms(record, units, array_limits).items():
            columns.labels.setdefault(name, []).append(value)
        for name, text in record.extra.items():
            columns.extra.setdefault(name, []).append(text)
        columns.extra.setdefault(START, []).append(record.start_s)
        columns.extra.setdefault(ATTEMPTS, []).append(_attempts_text(record.before))
    return columns, left_out, notes


def _whole(record: Record, cluster: Cluster) -> bool:
    """Whether a job has whole nodes, where nodes are known."""
    exclusive = record.submitted.exclusive or record.labels["partition"] in cluster.exclusive
    return bool(cluster.nodes) and (exclusive or cluster.linear)


class _Room:
    """What the nodes have on which jobs ran."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._least: dict[str, dict[str, int]] = {}

    def least(self, record: Record) -> dict[str, int]:
        """What each of a job's nodes has at least; empty where one of them is not known."""
        text = record.extra["node_list"]
        if text not in self._least:
            has = self._of(record)
            kinds = {kind for one in has for kind in one}
            least = {kind: min(one.get(kind, 0) for one in has) for kind in kinds}
            self._least[text] = least
        return self._least[text]

    def knows(self, record: Record) -> bool:
        """Whether the nodes of a job are among those that are known, or are not told."""
        return record.extra["node_list"] in NOTHING or bool(self.least(record))

    def units(self, record: Record, has: Mapping[str, int]) -> int:
        """Of how many equal parts a job is that shares nodes.

        It is 0 where these parts fit neither on its nodes nor elsewhere.
        """
        nodes, counts = max(record.nodes, 1), [record.cpus, *record.gpus.values()]
        usual = next(_parts(nodes, counts), nodes)
        if nodes == 1 or not self._cluster.nodes or not (least := self.least(record)):
            return usual
        asked = {kind: many for kind, many in has.items() if many}
        if not self._cluster.memory:
            asked.pop("mem", None)
        if usual == nodes and all(-(-n // nodes) <= least.get(k, 0) for k, n in asked.items()):
            return usual
        own, partition = self._of(record), record.labels["partition"]
        for units in _parts(nodes, counts):
            if _held(own, asked, units) >= units:
                return units
        there = [node for node in self._cluster.nodes.values() if partition in node.partitions]
        others = map(_has, there or self._cluster.nodes.values())
        return usual if _held(others, asked, usual) >= usual else 0

    def _of(self, record: Record) -> list[dict[str, int]]:
        try:
            return [_has(self._cluster.nodes[name]) for name in nodes_in(record.extra["node_list"])]
        except (ValueError, KeyError):
            return []


def _has(node: Node) -> dict[str, int]:
    return {**node.gpus, "core": node.cpus, "mem": node.memory_mb}


def _held(nodes: Iterable[Mapping[str, int]], asked: Mapping[str, int], units: int) -> int:
    """How many of a job's equal parts fit on nodes."""
    each = {kind: -(-many // units) for kind, many in asked.items()}
    return sum(min(one.get(kind, 0) // many for kind, many in each.items()) for one in nodes)


def _attempts_text(attempts: Sequence[Record]) -> str:
    """Earlier attempts as `attempts_in` reads them; those that did not start are left out."""
    return ";".join(
        f"{of.start_s}-{of.start_s + of.runtime_s}@{of.extra['node_list']}"
        for of in attempts
        if of.start_s >= 0 and of.runtime_s >= 0
    )


def attempts_in(text: str) -> list[tuple[int, int, str]]:
    """Start, end and list of nodes of each attempt in a cell of the column `ATTEMPTS`.

    Examples
    --------
    >>> attempts_in("100-160@n[1-2];200-210@n1")
    [(100, 160, 'n[1-2]'), (200, 210, 'n1')]
    """
    found = []
    for part in filter(None, text.split(";")):
        times, _, nodes = part.partition("@")
        start_s, _, end_s = times.partition("-")
        found.append((int(start_s), int(end_s), nodes))
    return found


def _terms(record: Record, units: int, array_limits: Mapping[str, int]) -> dict[str, Any]:
    """What else a job says of when, where and beside which others it may run."""
    said = record.submitted
    # A job that was queued again had another time to wait for when it came first.
    later = not record.again and record.eligible_s > record.submit_s + HELD_S
    alone = units == max(record.nodes, 1)
    licences = terms.licences_of(_licences(record))
    return {
        "priority": record.priority,
        "array": record.array or None,
        "array_limit": array_limits.get(record.array, 0) if record.array else 0,
        "begin": record.eligible_s if later else None,
        "licences": " ".join(f"{name}:{many}" for name, many in licences.items()) or None,
        "units_per_node": int(said.per_node > 0 and alone and units > 1),
        "nodes_min": min(said.nodes_min, record.nodes) if units > 1 else 0,
        "nodes_max": said.nodes_max if 0 < said.nodes_max < units else 0,
        "exclusive": int(said.exclusive),
        "nodelist": said.nodelist or None,
        "exclude": said.exclude or None,
    }


def _licences(record: Record) -> str:
    """The text that tells of a job's licences."""
    return record.licences or record.submitted.licences


def ended(found: Records) -> list[Record]:
    """The jobs that ran to an end and whose size is known; of attempts, the last one."""
    lasts = _last_attempts(found.records, Counter())
    return [record for record in lasts if not _unusable(record)]


def _parts(nodes: int, counts: Sequence[int]) -> Iterator[int]:
    """Numbers of equal parts that divide the counts and are no fewer than nodes, few ones first.

    More than 16 parts a node are no answer: then each node has one, and the counts are rounded up.
    """
    common = gcd(*counts)
    parts = range(nodes, min(common, 16 * nodes, nodes + 100_000) + 1)
    return (units for units in parts if common % units == 0)


def _unusable(record: Record) -> str:
    """Why a record is no job that can be replayed; empty if it is one."""
    if record.state in _WAITING:
        return PENDING
    if record.state == "RESIZING" and record.end_s >= 0:
        return RESIZED
    if record.state not in ENDED:
        return RUNNING if record.state in _RUNNING else NO_STATE
    if record.start_s < 0:
        return CANCELLED if record.state == "CANCELLED" else NOT_STARTED
    if record.submit_s < 0:
        return NO_SUBMIT
    if record.runtime_s < 0:
        return NO_RUNTIME
    return NO_SIZE if record.cpus <= 0 else ""


def _count_tasks_once(records: Sequence[Record], left_out: Counter[str]) -> None:
    """Leave out tasks of lists such as ``12_[1-5]`` that another dump has a record of."""
    lists = [record for record in records if "_[" in record.job_id]
    seen: dict[tuple[str, int], set[int]] = {(of.array, of.submit_s): set() for of in lists}
    for record in records if lists else ():
        told = seen.get((record.array, record.submit_s))
        task = record.job_id.partition("_")[2]
        if told is not None and task.isdigit():
            told.add(int(task))
    # What became of a task is known better than that it waited; lists grow shorter.
    for record in sorted(lists, key=lambda of: (of.state in _WAITING, of.jobs)):
        text = record.job_id.partition("_[")[2].partition("]")[0].partition("%")[0]
        tasks = {task for some in task_ranges(text) for task in some}
        told = seen[record.array, record.submit_s]
        left_out[TWICE] += len(tasks & told)
        record.jobs = len(tasks - told)
        told |= tasks


def _last_attempts(records: Sequence[Record], left_out: Counter[str]) -> Iterator[Record]:
    """The records without those that stand twice and without earlier attempts of the same job."""
    of_job: dict[str, list[Record]] = {}
    for position, record in enumerate(records):
        of_job.setdefault(record.job_id or f"?{position}", []).append(record)
    for same in of_job.values():
        if len(same) == 1:
            yield same[0]
            continue
        by_begin: dict[tuple[int, int, bool], Record] = {}
        begun = {record.submit_s for record in same if record.start_s >= 0}
        for record in same:
            # A part of no length before the job was resized begins with the rest of it.
            rest = record.state != "RESIZING" or record.end_s != record.start_s
            key = (record.submit_s, record.start_s, rest)
            other = by_begin.get(key)
            if other is None:
                by_begin[key] = record
            else:
                left_out[TWICE] += record.jobs
                # Where dumps overlap, the later one knows the end.
                if _known(record) > _known(other):
                    by_begin[key] = record
        first_s, before = -1, list[Record]()
        left = list[Record]()
        for _, record in sorted(by_begin.items()):
            # Another dump knows that the job has started.
            if record.state in _WAITING and record.submit_s in begun:
                left_out[TWICE] += record.jobs
            else:
                left.append(record)
        for record, later in zip(left, [*left[1:], None], strict=True):
            if later is not None and record.state in _QUEUED_AGAIN:
                left_out[ATTEMPT] += record.jobs
                first_s = record.submit_s if first_s < 0 else first_s
                before.append(record)
                continue
            if first_s >= 0:
                record.submit_s, record.restartable, first_s = first_s, 1, -1
                record.again, record.before, before = True, before, []
            yield record


def _known(record: Record) -> tuple[bool, bool, bool]:
    """How much a record knows of what became of its job: more is greater."""
    over = record.state in ENDED or (record.state == "RESIZING" and record.end_s >= 0)
    return record.ended, over, record.state not in _WAITING


def used(columns: Columns, system: System | None, shared: Collection[str] = ()) -> list[str]:
    """What these jobs say that no dispatcher heeds, as sentences."""
    told = []
    partitions = {name for name in columns.labels.get("partition", ()) if name}
    if len(partitions) > 1 and (system is None or not system.partitions):
        told.append(
            f"Partitions are labels: {len(partitions)} are named, and jobs are not kept to the "
            "nodes of theirs."
        )
    if together := sorted(partitions & set(shared)):
        told.append(
            "Jobs have CPUs of their own, though Slurm lets those of these partitions share some "
            f"(OverSubscribe=FORCE): {', '.join(together)}."
        )
    asked = {"Reservations": [columns.extra.get("reservation", ())]}
    if system is None:
        wishes = {"Features": [columns.extra.get("features", ())]}
        for what, names in OF_NODES.items():
            wishes[what] = [columns.labels[name] for name in names if name in columns.labels]
        asked = wishes | asked
    for what, wanted in asked.items():
        if jobs := sum(map(any, zip(*wanted, strict=True))):
            ask = "job asks" if jobs == 1 else "jobs ask"
            told.append(f"{what} are not heeded: {jobs:,} {ask} for some.")
    het = sum("+" in text for text in columns.extra.get("job_id", ()))
    if het:
        parts = "part" if het == 1 else "parts"
        told.append(f"Parts of heterogeneous jobs are jobs of their own: {het:,} such {parts}.")
    held = sum(bool(begin_s) for begin_s in columns.labels.get("begin", ()))
    if held:
        were, they = ("job was", "it") if held == 1 else ("jobs were", "they")
        told.append(
            f"{held:,} {were} held, had a begin time or came after others: {they} may start when "
            f"{they} became eligible."
        )
    others = {
        name
        for text in columns.extra.get("tres", ())
        for name in re.findall(r"(?:^|,)((?:gres|bb|fs|ic)/(?!gpu\b)[\w:.-]+)=", text)
    }
    if others:
        told.append(f"No resource of the system, and left out: {', '.join(sorted(others))}.")
    told.append("Dependencies and limits of users and accounts are not in the records.")
    return told
