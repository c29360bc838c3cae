"""When jobs of a saved run were not in the queue: limits, begin times, nodes that are cleared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.analyze.occupancy import NOBODY_BEHIND, Attempts, Behind
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.jobs import LABELLED, TERMS, Workload
from cpdispatch.simulator.gates import Gates
from cpdispatch.system import NodeGroup, System, is_own
from cpdispatch.terms import gated
from cpdispatch.verify.levels import units_that_fit
from cpdispatch.workloads.table import from_table

if TYPE_CHECKING:
    import pandas as pd

_END, _COME = range(2)
_BEGIN = "its begin time"
_CLEARED = "the clearing of the nodes on which it was stopped"


def kept_back(
    jobs: pd.DataFrame, system: System, lost: Attempts, last_s: int, *, by_event: bool
) -> Behind:
    """When jobs waited behind the gate, by letting them come to it again as they did.

    Parameters
    ----------
    jobs : DataFrame
        The table of jobs, in the order of submission.
    lost : Attempts
        Those that a failed node ended: such a job comes to the gate again.
    last_s : int
        A time after all that happened.
    by_event : bool
        Whether jobs were tried after each single event of a second.
    """
    workload, machine = _asked(jobs, system)
    submit_s = jobs["submit"].to_numpy(dtype=np.int64)
    came_s = submit_s
    if workload.begin_s is not None:
        came_s = np.maximum(submit_s, workload.begin_s)
    late = (came_s > submit_s).nonzero()[0]
    spans = [(row, int(submit_s[row]), int(came_s[row]), _BEGIN) for row in late.tolist()]
    if gated(workload, machine):
        gates = Gates(workload, machine)
        refused, never = _refused(jobs, system)
        events = _events(jobs, gates.passable & ~never, came_s, lost, by_event)
        spans += _behind(gates, events, refused, last_s, by_event=by_event)
    if not spans:
        return NOBODY_BEHIND
    row, from_s, until_s, why = zip(*sorted(spans), strict=True)
    return Behind(np.array(row), np.array(from_s), np.array(until_s), why)


def being_cleared(lost: Attempts, stop_s: IntArray) -> Behind:
    """When killed jobs were not in the queue yet, since their nodes were being cleared.

    ``stop_s`` says when each attempt was stopped, shape (attempts,).
    """
    some = (stop_s < lost.end_s).nonzero()[0]
    some = some[np.argsort(lost.row[some])]
    return Behind(lost.row[some], stop_s[some], lost.end_s[some], [_CLEARED] * len(some))


def _asked(jobs: pd.DataFrame, system: System) -> tuple[Workload, System]:
    """The jobs of a run, and its system, as far as limits speak of them."""
    own = [k for k, name in enumerate(system.resources) if is_own(name)]
    names = [system.resources[k] for k in own]
    groups = tuple(
        NodeGroup(g.name, g.nodes, tuple(g.capacity[k] for k in own)) for g in system.groups
    )
    columns = {
        "id": jobs["id"], "submit": jobs["submit"], "runtime": jobs["runtime_s"],
        "requested": jobs["requested_s"], "units": jobs["units"],
    }  # fmt: skip
    columns |= {name: jobs[f"request_{name}"] for name in names}
    said = [name for name in (*LABELLED, *TERMS, "array_limit", "begin") if name in jobs]
    columns |= {name: jobs[name] for name in said}
    machine = replace(
        system, resources=tuple(names), groups=groups, partitions=(), watts={}, group_watts={}
    )  # fmt: skip
    return from_table(columns), machine


def _refused(jobs: pd.DataFrame, system: System) -> tuple[set[int], BoolArray]:
    """The jobs that were refused once they were through, and which never came to the gate.

    A job that fits the empty system and never fits, as it is said, draws more than the power cap
    leaves: that is found out when it is queued.
    """
    reason = jobs["reason"].to_numpy()
    request = np.stack([jobs[f"request_{name}"] for name in system.resources], axis=1)
    units, never = jobs["units"].to_numpy(), reason == "never_fits"
    for row in never.nonzero()[0].tolist():
        never[row] = units_that_fit(system.capacity, request[row]) < units[row]
    out = np.isin(reason, ("rejected", "never_fits")) & ~never
    return set(out.nonzero()[0].tolist()), never


def _events(
    jobs: pd.DataFrame, comes: BoolArray, came_s: IntArray, lost: Attempts, by_event: bool
) -> list[tuple[int, int, int]]:
    """When jobs ended and came to the gate, in the order in which that happened.

    ``comes`` says which ever come, shape (jobs,).
    """
    start_s, end_s = (jobs[name].to_numpy(dtype=np.int64) for name in ("start", "end"))
    ran = (start_s >= 0).nonzero()[0]
    events = [
        (time, _END, row, False)
        for time, row in zip(end_s[ran].tolist(), ran.tolist(), strict=True)
    ]
    some = comes.nonzero()[0]
    events += [
        (time, _COME, row, False)
        for time, row in zip(came_s[some].tolist(), some.tolist(), strict=True)
    ]
    again = zip(lost.end_s.tolist(), lost.row.tolist(), strict=True)
    requeued: dict[int, list[int]] = {}
    for time, row in again:
        if time >= 0 and (start_s[row] < 0 or time <= start_s[row]):
            requeued.setdefault(row, []).append(time)
    for row, times in requeued.items():
        for time in times:
            events += [(time, _END, row, True), (time, _COME, row, True)]

    def place(event: tuple[int, int, int, bool]) -> tuple[int, bool, int, bool]:
        """Event by event, submissions come first; a job that comes again has been ended before."""
        time, kind, row, again = event
        return time, (again or kind == _END) == by_event, row, kind == _COME

    return [event[:3] for event in sorted(events, key=place)]


def _behind(
    gates: Gates,
    events: list[tuple[int, int, int]],
    refused: set[int],
    last_s: int,
    *,
    by_event: bool,
) -> Iterator[tuple[int, int, int, str]]:
    """The jobs that had to wait at the gate: row, begin and end of that wait, and its reason."""
    came: dict[int, tuple[int, str]] = {}
    inside: set[int] = set()
    for k, (time, kind, row) in enumerate(events):
        if kind == _COME and row in came:
            continue  # it has not been through yet
        if kind == _COME:
            gates.submit(row)
            came[row] = time, ""
        elif row in inside:
            inside.remove(row)
            gates.end(row)
        if not by_event and k + 1 < len(events) and events[k + 1][0] == time:
            continue
        while through := gates.passing():
            for passed in through:
                inside.add(passed)
                since, why = came.pop(passed)
                if time > since:
                    yield passed, since, time, why
                if passed in refused:
                    inside.remove(passed)
                    gates.end(passed)
        for waits, (since, why) in came.items():
            if not why:
                came[waits] = since, gates.lacking(waits)
    for row, (since, why) in came.items():
        yield row, since, last_s, why
