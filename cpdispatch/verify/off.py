"""Nodes that were switched off: long enough idle before, not used, and back in due time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.system import System
from cpdispatch.verify.access import Stay
from cpdispatch.verify.tables import Findings, Schedule
from cpdispatch.verify.violation import Kind, Violation

_NEVER = 2**62


def off(
    id: IntArray, stay: Stay, system: System, columns: Sequence[IntArray], idle_s: int, first_s: int
) -> list[Violation]:
    """What is wrong with the times at which nodes were off.

    Parameters
    ----------
    id : int64 array, shape (jobs,)
    stay : Stay
        Where jobs were.
    columns : sequence of int64 array, shape (spells,)
        Node, and when it was switched off, switched on, and back; -1 for what did not happen.
    idle_s : int
        How long a node has to be idle before it is switched off.
    first_s : int
        From when on nodes may be idle.
    """
    found = Findings()
    back: dict[int, int] = {}
    order = np.lexsort((columns[1], columns[0]))
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    for node, off_s, wake_s, on_s in rows:
        if not 0 <= node < system.nodes:
            found.note(Kind.NODE, f"node {node} is switched off, and there is none")
            continue
        name = system.groups[int(system.group_of[node])].site_name
        takes_s = system.wake_s.get(name)
        what = f"node {node} is switched off at {off_s}"
        if takes_s is None:
            found.note(Kind.DOWN, f"{what}: nodes of {name} never are")
            continue
        due_s = wake_s + takes_s
        if not (on_s == -1 if wake_s < 0 else wake_s >= off_s and on_s in (due_s, -1)):
            text = f"{what}, on at {wake_s} and back at {on_s}: that takes {takes_s} s"
            found.note(Kind.DOWN, text)
        until_s = _NEVER if wake_s < 0 else due_s
        since_s = off_s - idle_s
        if back.get(node, first_s) > since_s:
            text = f"{what}: it is there from {back.get(node, first_s)} on, {idle_s} s are needed"
            found.note(Kind.DOWN, text)
        back[node] = until_s
        here = (stay.node == node) & (stay.start_s >= 0)
        for k in (here & (stay.start_s < until_s) & (stay.end_s > since_s)).nonzero()[0][:1]:
            job, times = id[stay.job[k]], f"from {stay.start_s[k]} to {stay.end_s[k]}"
            text = f"{what}, idle for {idle_s} s, and not back yet: job {job} is there {times}"
            found.note(Kind.DOWN, text)
    return found.all()


def in_due_time(
    table: Schedule, stay: Stay, system: System, columns: Sequence[IntArray], idle_s: int
) -> list[Violation]:
    """Nodes that were switched off while a job waited, or not when they had to be.

    A node is due when the last job there is gone for ``idle_s``, no job waits, and others are to
    end. Nothing but nodes keeps jobs back. When jobs wait until a node is due, it is not looked at.
    """
    t, found = table, Findings()
    able = ~(t.never_fits | t.rejected)
    came_s = np.sort(t.submit_s[able])
    left_s = np.sort(np.where(t.start_s < 0, _NEVER, t.start_s)[able])
    off_s = columns[1]
    waiting = np.searchsorted(came_s, off_s) - np.searchsorted(left_s, off_s, side="right")
    found.add(
        Kind.DOWN,
        (waiting > 0).nonzero()[0],
        lambda k: f"node {columns[0][k]} is switched off at {off_s[k]}, when a job waits",
    )
    # A job that was refused, or never fits under a cap, may have waited for a time.
    all_came_s = np.sort(t.submit_s)
    all_left_s = np.sort(np.where(t.start_s < 0, _NEVER, t.start_s))
    told, last_s = (
        set(zip(columns[0].tolist(), off_s.tolist(), strict=True)),
        t.end_s.max(initial=0),
    )
    takes_s = [system.wake_s.get(group.site_name) for group in system.groups]
    order = np.lexsort((stay.start_s, stay.node))
    cuts = np.searchsorted(stay.node[order], np.arange(system.nodes + 1))
    for node in range(system.nodes):
        here = order[cuts[node] : cuts[node + 1]]
        if takes_s[int(system.group_of[node])] is None or not len(here):
            continue
        start_s, end_s = stay.start_s[here], stay.end_s[here]
        gone_s = np.maximum.accumulate(end_s)
        due_s = gone_s + idle_s
        waits = np.searchsorted(all_came_s, due_s, side="right") > np.searchsorted(
            all_left_s, due_s
        )
        free = (np.append(start_s[1:], _NEVER) > due_s) & ~np.isin(gone_s, start_s)
        for k in (free & ~waits & (due_s < last_s)).nonzero()[0].tolist():
            if (node, int(due_s[k])) not in told:
                text = f"node {node} is idle from {gone_s[k]} to {due_s[k]}, when no job waits"
                found.note(Kind.DOWN, f"{text}, and is not switched off then")
    return found.all()
