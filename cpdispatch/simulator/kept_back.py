"""When jobs of a saved run were not in the queue: limits, begin times, nodes that are cleared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from cpdispatch.analyze.occupancy import NOBODY_BEHIND, Attempts, Behind
from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.jobs import LABELLED, TERMS, Workload
from cpdispatch.simulator.gates import Gates
from cpdispatch.system import FIRST, NodeGroup, System, is_own, room_in
from cpdispatch.terms import gated
from cpdispatch.workloads.table import from_table

if TYPE_CHECKING:
    import pandas as pd

_END, _COME = range(2)
_TOGETHER, _SUBMITTED, _AT_LAST = range(3)
"""The turns within a second: one look at the gate follows the first, one each event of others."""
_BEGIN = "its begin time"
_CLEARED = "the clearing of the nodes on which it was stopped"


def kept_back(
    jobs: pd.DataFrame, system: System, lost: Attempts, last_s: int, *, by_event: bool,
    happened_s: Set[int] = frozenset(),
) -> Behind:  # fmt: skip
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
    happened_s : set of int
        When something happened to the system: all that ends or begins in such a second does so at
        once, before submissions.
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
        steps = _steps(jobs, gates.passable & ~never, came_s, lost, by_event, happened_s)
        spans += _behind(gates, steps, refused, last_s)
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
    own = [k for k, name in enumerate(system.resources) if is_own(name) or name.startswith(FIRST)]
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
        never[row] = room_in(system.capacity, request[row], units[row]).sum() < units[row]
    out = np.isin(reason, ("rejected", "never_fits")) & ~never
    return set(out.nonzero()[0].tolist()), never


def _steps(
    jobs: pd.DataFrame, comes: BoolArray, came_s: IntArray, lost: Attempts,
    by_event: bool, happened_s: Set[int],
) -> Iterator[tuple[int, list[tuple[int, int]]]]:  # fmt: skip
    """What happens between two looks at the gate, in order: when, and which jobs end and come.

    ``comes`` says which ever come, shape (jobs,).
    """
    events: list[tuple[int, int, int, int, int]] = []

    def add(kind: int, row: int, time_s: int, made_s: int) -> None:
        """Add what is to happen since ``made_s``, with its turn within its second."""
        if kind == _END and time_s == made_s:  # of a job that lasts no second
            turn = _AT_LAST
        elif not by_event:
            turn = _TOGETHER
        elif kind == _COME and time_s == made_s:
            turn = _SUBMITTED
        else:
            turn = _TOGETHER if time_s in happened_s else _AT_LAST
        events.append((time_s, turn, made_s, kind, row))

    submit_s, start_s, end_s = (
        jobs[name].to_numpy(dtype=np.int64).tolist() for name in ("submit", "start", "end")
    )
    for row in range(len(jobs)):
        if comes[row]:
            add(_COME, row, int(came_s[row]), submit_s[row])
        if start_s[row] >= 0:
            add(_END, row, end_s[row], start_s[row])
    again = zip(lost.row.tolist(), lost.start_s.tolist(), lost.end_s.tolist(), strict=True)
    for row, from_s, time_s in again:
        if time_s >= 0 and (start_s[row] < 0 or time_s <= start_s[row]):
            add(_END, row, time_s, from_s)
            add(_COME, row, time_s, from_s)
    for (time_s, turn), of in groupby(sorted(events), key=itemgetter(0, 1)):
        step = [(kind, row) for *_, kind, row in of]
        if by_event and turn != _TOGETHER:
            yield from ((time_s, [each]) for each in step)
        else:
            yield time_s, step


def _behind(
    gates: Gates,
    steps: Iterable[tuple[int, list[tuple[int, int]]]],
    refused: set[int],
    last_s: int,
) -> Iterator[tuple[int, int, int, str]]:
    """The jobs that had to wait at the gate: row, begin and end of that wait, and its reason."""
    came: dict[int, tuple[int, str]] = {}
    inside: set[int] = set()
    # Jobs that last no second end in the second in which they are through: another waits for that.
    over = set(refused)
    for time, events in steps:
        for kind, row in events:
            if kind == _COME and row not in came:  # else it has not been through yet
                gates.submit(row)
                came[row] = time, ""
            elif kind == _END and row in inside:
                inside.remove(row)
                gates.end(row)
            elif kind == _END:
                over.add(row)
        while through := gates.passing():
            for passed in through:
                inside.add(passed)
                since, why = came.pop(passed)
                if time > since:
                    yield passed, since, time, why
                if passed in over:
                    inside.remove(passed)
                    gates.end(passed)
        for waits, (since, why) in came.items():
            if not why:
                came[waits] = since, gates.lacking(waits)
    for row, (since, why) in came.items():
        yield row, since, last_s, why
