"""Nodes that were switched off: long enough idle before, not used, and back in due time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.system import System
from cpdispatch.verify.access import Stay
from cpdispatch.verify.tables import Findings
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
