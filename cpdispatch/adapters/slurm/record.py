"""What Slurm did, as a run: from its accounting, and from the log of a driver if there was one.

The jobs are those of `cpdispatch.workloads.slurm`, on the nodes that they had. How the CPUs of a
job were split over its nodes is not in the accounting: they are taken to lie evenly, and where that
cannot be, where room is left.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cpdispatch.adapters.slurm.log import Log, Release, within
from cpdispatch.arrays import IntArray
from cpdispatch.decision import Certificate, Reason
from cpdispatch.dispatch import Settings
from cpdispatch.energy import ENERGY_PRICE, POWER_CAP
from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload
from cpdispatch.simulator.records import NOT_STARTED, REASON_UNTOLD, Records, Test
from cpdispatch.simulator.replay import SWITCH_OFF, about_run
from cpdispatch.simulator.run import Run
from cpdispatch.simulator.tables import Done, decision_table, job_table, promise_table
from cpdispatch.system import System, load
from cpdispatch.workloads import prepare, slurm
from cpdispatch.workloads.imported import Imported
from cpdispatch.workloads.slurm import jobs as accounting
from cpdispatch.workloads.slurm import replayable
from cpdispatch.workloads.slurm.nodes import Cluster
from cpdispatch.workloads.slurm.values import nodes_in

SLURM = "slurm"
"""The name of the dispatcher where no driver decided."""
NO_NODES = "nodes are not told, or the system has none of that name"
NO_ROOM = "no room on its nodes beside the others, as the system is now"
ATTEMPT = "earlier attempts: a run keeps one a job, shorter than the last, where there is room"
RELEASED = "jobs that the driver released"
OWN = "jobs that Slurm started by itself"
UNFLAGGED = "jobs that may have been backfilled: the records have no Flags"
SPLIT = "jobs whose CPUs are not split evenly: how they were split is not told"
LEFT_OUT = "left out: "
"""Before the reason, in the notes of the run."""
_RULES: dict[str, Any] = {
    "trigger": "instant", "correction": "minimal", "kill_at_limit": False, "dependencies": False,
    "starvation": None, "idempotent": False, "restart_cost_s": 0, "events": None, "data": (),
    POWER_CAP: None, ENERGY_PRICE: None, SWITCH_OFF: None,
}  # fmt: skip
"""Those of a simulation without any options: what the run is put beside."""

_START = attrgetter("start_s")
_BACKFILLED = frozenset(("SchedBackfill", "STARTED_ON_BACKFILL"))
"""The flag of a job that Slurm's backfilling started, in text and in JSON."""

Place: TypeAlias = tuple[IntArray, IntArray]
"""Nodes, and how many units are on each."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the accounting says of a job that the workload has no column for."""

    key: str
    """Its name in Slurm."""
    start_s: int
    nodes: str
    attempts: list[tuple[int, int, str]]
    backfilled: bool | None
    """Whether Slurm's backfilling started it; None where no record has flags."""


def recorded(
    found: accounting.Records, cluster: Cluster, file: str, system_file: str, log: Log
) -> Imported:
    """The jobs whose places are known, and the system, as an import.

    A job that a driver held could start since the driver first found it ready: that Slurm calls it
    eligible since it was released, or handed back, is the driver's doing, and so is the priority of
    one that it released.

    Raises
    ------
    InputError
        When no job is left, or the cluster has no node.
    UsageError
        When the log is of another time than the jobs.
    """
    _check_times(found.records, log)
    for record in found.records:
        known = log.entered.get(record.job_id, [])
        ready_s = next(within(known, record.submit_s, record.start_s, lambda at_s: at_s), -1)
        if _release(log, record.job_id, record.submit_s, record.start_s) is not None:
            record.eligible_s, record.priority = ready_s, 0
        elif 0 <= ready_s < record.eligible_s:
            record.eligible_s = ready_s
    imported = slurm.made(found, cluster, file, system_file)
    # Jobs on nodes that are not known are left out.
    told = {what: many for what, many in imported.notes.items() if what != replayable.ELSEWHERE}
    imported = replace(imported, notes=told)
    if imported.nodes is None:
        raise InputError(
            "describes no node", file=system_file,
            advice="give what scontrol show node prints with --system",
        )  # fmt: skip
    workload, system = prepare(imported.workload, imported.system)
    return imported.without(_placed(workload, system, imported).refused)


def _check_times(records: Sequence[accounting.Record], log: Log) -> None:
    """Raise where no line of a log is of the time of the jobs."""
    submit_s = [record.submit_s for record in records if record.submit_s > 0]
    if not submit_s or not log.lines:
        return
    last_s = max(record.start_s + record.runtime_s for record in records)
    if log.between(min(submit_s), max(last_s, *submit_s)).lines:
        return
    times = log.lines[0].now_s, log.lines[-1].now_s, min(submit_s), last_s
    dates = [datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M") for time_s in times]
    raise UsageError(
        "--log: it is of another time than the jobs, {} to {} beside {} to {} (UTC): give that of "
        "their time, or correct --zone".format(*dates)
    )


def run_of(folder: Path, files: Mapping[str, str], imported: Imported, log: Log) -> Run:
    """The run of an import that was written into a folder.

    Parameters
    ----------
    files : mapping of str to str
        As `cpdispatch.workloads.imported.write` returns them.
    imported : Imported
        Of `recorded`.
    """
    # As simulate reads it: so the jobs of both are the same.
    workload, system = prepare(folder / files["workload"], load(folder / files["system"]))
    placed = _placed(workload, system, imported)
    told = [placed.told[id] for id in workload.table.id.tolist()]
    started_s = np.array([of.start_s for of in told])
    log = log.between(
        int(workload.table.submit_s.min()), int((started_s + workload.runtime_s).max())
    )
    made = Done(workload, system, Records(workload, promises=bool(log.lines)))
    notes = {f"{LEFT_OUT}{why}": many for why, many in imported.left_out.items()}
    notes |= dict(imported.notes) | log.notes | placed.notes
    notes |= _fill(made.records, workload, placed, told, log)
    names = {"dispatcher": _name(log), "predictor": log.predictor}
    about = about_run(workload, system, names | _RULES, Settings())
    restartable = int(workload.table.restartable.sum())
    tests = {line.tests[key] for line in log.lines for key in line.released if key in line.tests}
    about |= {
        "restartable": restartable, "restarts": restartable > 0, "recorded": "Slurm",
        "notes": dict(workload.notes) | {what: many for what, many in notes.items() if many},
        "compiled": False, "promises": bool(log.lines), "draw": 0,
        "seconds": sum(line.decision.ms for line in log.lines if line.decision) / 1e3,
        **({"test_s": max(tests)} if restartable and tests else {}),
    }  # fmt: skip
    promises = promise_table(made) if log.lines else None
    return Run(about, job_table(made), decision_table(made), workload, promise_table=promises)


def _name(log: Log) -> str:
    """Who decided: not the name of a simulation, which may stand beside it."""
    return f"{' then '.join(log.dispatchers)} (driven)" if log.dispatchers else SLURM


def _release(log: Log, key: str, submit_s: int, start_s: int) -> Release | None:
    """The release after which a job started; None where Slurm started it by itself."""
    found = list(within(log.released.get(key, ()), submit_s, start_s, lambda each: each.at_s))
    if not found or (found[-1].until_s is not None and found[-1].until_s < start_s):
        return None
    return found[-1]


def _fill(
    records: Records, workload: Workload, placed: _Placed, told: Sequence[Told], log: Log
) -> dict[str, int]:
    """Write what became of each job; how many a driver released, how many it did not, and of how
    many of these it is not known whether they were backfilled.
    """
    table = workload.table
    ids = table.id.tolist()
    records.start_s[:] = [of.start_s for of in told]
    records.end_s[:] = records.start_s + workload.runtime_s
    records.expected_s[:] = table.requested_s
    test = np.full(len(ids), Test.NONE, dtype=np.int64)
    names = {reason.name.lower(): int(reason) for reason in Reason}
    released = untold = 0
    for row, (of, submit_s) in enumerate(zip(told, table.submit_s.tolist(), strict=True)):
        found = _release(log, of.key, submit_s, of.start_s)
        lost = placed.lost.get(ids[row])
        if lost is not None:
            before = _release(log, of.key, submit_s, lost[0])
            test[row] = Test.KILLED if before is not None and before.test_s else Test.NONE
        if found is None:
            reason = Reason.BACKFILLED if of.backfilled else Reason.STARTED
            records.reason[row] = REASON_UNTOLD if of.backfilled is None else reason
            untold += of.backfilled is None
            continue
        released += 1
        records.reason[row] = names.get(found.reason, Reason.STARTED)
        records.expected_s[row] = found.expected_s or records.expected_s[row]
        if found.test_s:
            end_s = records.end_s.item(row)
            over = log.went_on.get(of.key, [])
            went_on = list(within(over, of.start_s, end_s, lambda at_s: at_s))
            test[row] = Test.WENT_ON if went_on else Test.ENDED
        promises = within(log.promised.get(of.key, ()), submit_s, of.start_s, lambda each: each[0])
        for at_s, start_s in promises:
            records.promised(at_s, np.array([row]), np.array([start_s]))
    places = [placed.places[id] for id in ids]
    places += [placed.lost[id][2] for id in ids if id in placed.lost]
    count = np.array([len(nodes) for nodes, _ in places], dtype=np.int64)
    first = np.cumsum(count) - count
    node, units = (np.concatenate([place[k] for place in places]) for k in (0, 1))
    jobs = len(ids)
    records.all_placed(slice(None), first[:jobs], count[:jobs], node, units)
    if table.restartable.any():
        lost_s = np.full((2, jobs), NOT_STARTED, dtype=np.int64)
        held = np.zeros((2, jobs), dtype=np.int64)
        rows = [row for row, id in enumerate(ids) if id in placed.lost]
        for k, row in enumerate(rows, start=jobs):
            lost_s[:, row] = placed.lost[ids[row]][:2]
            held[:, row] = first[k], count[k]
        records.all_tested(slice(None), test, lost_s, held)
    for line in log.lines:
        if line.decision is not None:
            of_line = line.decision
            certificate = Certificate(
                of_line.model, status=of_line.status, value=of_line.value, bound=of_line.bound,
                limit_hit=of_line.limit_hit,
            )  # fmt: skip
            started = len(line.released)
            records.note(
                line.now_s, line.waiting + started, line.running, started, of_line.ms, certificate
            )
    notes = {RELEASED: released, OWN: jobs - released} if log.lines else {}
    return notes | {UNFLAGGED: untold}


# --------------------------------------------------------------------------------- where jobs ran


@dataclass(slots=True)
class _Placed:
    """Where jobs ran, by their ids."""

    told: dict[int, Told]
    """What the accounting says of each job."""
    places: dict[int, Place] = field(default_factory=dict)
    lost: dict[int, tuple[int, int, Place]] = field(default_factory=dict)
    """Start, end and place of an earlier attempt."""
    refused: dict[int, str] = field(default_factory=dict)
    """Why each other job has no place."""
    notes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Stay:
    """An attempt at a job, or its last run, on nodes that are known."""

    row: int
    start_s: int
    end_s: int
    nodes: IntArray
    last: bool

    @property
    def order(self) -> tuple[int, bool, int]:
        """By time; runs before the attempts of others that began with them."""
        return self.start_s, not self.last, self.row


def _told_of(imported: Imported) -> dict[int, Told]:
    """What the accounting says of each job of an import."""
    extra = imported.extra
    empty = [""] * len(extra)
    marks, attempts, nodes, keys = (
        extra[name].tolist() if name in extra.columns else empty
        for name in ("flags", replayable.ATTEMPTS, replayable.NODE_LIST, replayable.JOB_ID)
    )
    rows = zip(
        extra["id"].tolist(), keys, extra[replayable.START].tolist(), nodes, attempts, marks,
        strict=True,
    )  # fmt: skip
    return {
        id: Told(
            key,
            start_s,
            on,
            replayable.attempts_in(before),
            not _BACKFILLED.isdisjoint(flags.split(",")) if any(marks) else None,
        )
        for id, key, start_s, on, before, flags in rows
    }


def _placed(workload: Workload, system: System, imported: Imported) -> _Placed:
    """Where the units of each job were; jobs that nodes, as they are told, had no room for."""
    assert imported.nodes is not None
    number = {name: k for k, name in enumerate(imported.nodes["name"])}
    found = _Placed(_told_of(imported))
    table, runtime_s = workload.table, workload.runtime_s
    stays: list[_Stay] = []
    for row, id in enumerate(table.id.tolist()):
        told = found.told[id]
        nodes = _numbers(told.nodes, number, table.units.item(row))
        if nodes is None:
            found.refused[id] = NO_NODES
            continue
        lasts_s = runtime_s.item(row)
        stays.append(_Stay(row, told.start_s, told.start_s + lasts_s, nodes, last=True))
        before = _earlier(told, table.submit_s.item(row), lasts_s, row, number, table.units)
        found.notes[ATTEMPT] += len(told.attempts) - (before is not None)
        stays += [] if before is None else [before]
    stays.sort(key=lambda stay: stay.order)
    room, request = _Room(system.capacity), table.request
    lost: dict[int, tuple[_Stay, Place]] = {}
    # The surest first: one node, then the same number of units on each, then how is not told.
    groups: list[list[_Stay]] = [[], [], []]
    for stay in stays:
        many = len(stay.nodes)
        groups[0 if many == 1 else 1 if table.units.item(stay.row) % many == 0 else 2] += [stay]
    for group in groups:
        room.rewind()
        for stay in group:
            place = room.take(stay, table.units.item(stay.row), request[stay.row])
            id = table.id.item(stay.row)
            if not stay.last and place is not None:
                lost[id] = stay, place
            elif not stay.last:
                found.notes[ATTEMPT] += 1
            elif place is None:
                found.refused[id] = NO_ROOM
            else:
                found.notes[SPLIT] += int(place[1].min() < place[1].max())
                found.places[id] = place
    found.lost = {
        id: (stay.start_s, stay.end_s, place)
        for id, (stay, place) in lost.items()
        if id in found.places
    }
    return found


def _numbers(text: str, number: Mapping[str, int], units: int) -> IntArray | None:
    """The nodes of a list by number; None if one is not known, or a job has fewer units."""
    try:
        found = sorted({number[name] for name in nodes_in(text)})
    except (ValueError, KeyError):
        return None
    return np.array(found, dtype=np.int64) if 0 < len(found) <= units else None


def _earlier(
    told: Told, submit_s: int, lasts_s: int, row: int, number: Mapping[str, int], units: IntArray
) -> _Stay | None:
    """The last of the earlier attempts that a run can hold."""
    for start_s, end_s, text in reversed(told.attempts):
        nodes = _numbers(text, number, units.item(row))
        fits = submit_s <= start_s <= end_s <= told.start_s and end_s - start_s < lasts_s
        if fits and nodes is not None:
            return _Stay(row, start_s, end_s, nodes, last=False)
    return None


class _Held(NamedTuple):
    """What a run holds of a node."""

    start_s: int
    end_s: int
    amount: IntArray


class _Room:
    """What jobs hold of nodes over time.

    Runs are taken in the order of their starts, again from the first one after `rewind`.
    """

    def __init__(self, capacity: IntArray) -> None:
        self._capacity = capacity
        self._all: list[list[_Held]] = [[] for _ in capacity]
        self.rewind()

    def rewind(self) -> None:
        """Begin with the first start again."""
        # Of each node, by start, what is not over when the run at hand starts.
        self._not_over = [sorted(held, key=_START) for held in self._all]

    def take(self, stay: _Stay, units: int, asked: IntArray) -> Place | None:
        """The units on each node: equal numbers, or if need be as equal as there is room.

        At least a unit is on each. None where there is no room.
        """
        room = [self._units_that_fit(node, stay, asked, units) for node in stay.nodes.tolist()]
        if min(room) < 1 or sum(room) < units:
            return None
        each = min(*room, units // len(room)) if len(room) > 1 else units
        given = [each] * len(room)
        fewest = [(each, k) for k in range(len(room)) if each < room[k]]
        for _ in range(units - each * len(room)):
            many, k = heapq.heappop(fewest)
            given[k] = many + 1
            if given[k] < room[k]:
                heapq.heappush(fewest, (given[k], k))
        for node, many in zip(stay.nodes.tolist(), given, strict=True):
            held = _Held(stay.start_s, stay.end_s, asked * many)
            self._all[node].append(held)
            insort(self._not_over[node], held, key=_START)
        return stay.nodes, np.array(given, dtype=np.int64)

    def _units_that_fit(self, node: int, stay: _Stay, asked: IntArray, most: int) -> int:
        """How many units a node has room for as long as a run lasts, ``most`` at most."""
        if stay.end_s == stay.start_s:
            return most  # it holds nothing
        held = self._not_over[node]
        until = bisect_left(held, stay.end_s, key=_START)
        meanwhile = [each for each in held[:until] if each.end_s > stay.start_s]
        held[:until] = meanwhile
        changes = [
            change
            for start_s, end_s, amount in meanwhile
            for change in ((max(start_s, stay.start_s), 1, amount), (end_s, 0, -amount))
        ]
        # What ends makes room for what starts then.
        changes.sort(key=lambda change: change[:2])
        level = np.cumsum([np.zeros_like(asked), *(amount for *_, amount in changes)], axis=0)
        free = self._capacity[node] - level.max(axis=0)
        some = asked > 0
        return int(min((free[some] // asked[some]).min(initial=most), most))
