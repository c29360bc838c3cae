"""The watts that a schedule draws against the cap on them, at every second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.system import System
from cpdispatch.verify.limits import Spell
from cpdispatch.verify.violation import Kind, Violation, jobs_text

_MOST = 8


def power(
    id: IntArray, watts: IntArray, spell: Spell, system: System, cap: Sequence[Sequence[float]]
) -> list[Violation]:
    """Whether jobs and idle nodes draw more than the cap at any time.

    Parameters
    ----------
    id, watts : int64 array, shape (jobs,)
        What each job draws while it runs, see `drawn`.
    spell : Spell
        When they ran.
    system : System
    cap : sequence of (time, watts)
        From when on how much is allowed; the first also holds before its time.
    """
    # The level can only rise where a job starts, and the cap only fall where it changes.
    instants = np.unique(np.concatenate((spell.start_s, [int(time) for time, _ in cap])))
    begun, ended = np.sort(spell.start_s), np.sort(spell.end_s)
    up = np.concatenate(([0], np.cumsum(watts[spell.job[np.argsort(spell.start_s)]])))
    down = np.concatenate(([0], np.cumsum(watts[spell.job[np.argsort(spell.end_s)]])))
    level = (
        up[np.searchsorted(begun, instants, side="right")]
        - down[np.searchsorted(ended, instants, side="right")]
        + sum(group.nodes * system.idle_watts.get(group.site_name, 0) for group in system.groups)
    )
    at = np.searchsorted([time for time, _ in cap], instants, side="right") - 1
    allowed = np.array([most for _, most in cap])[np.maximum(at, 0)]
    found = []
    for k in (level > allowed).nonzero()[0][:_MOST].tolist():
        time = int(instants[k])
        running = (spell.start_s <= time) & (time < spell.end_s)
        who = jobs_text(id[spell.job[running]].tolist())
        text = f"{level[k]} W are drawn at {time}, {allowed[k]} W are allowed: {who}"
        found.append(Violation(Kind.POWER, text))
    return found


def drawn(units: IntArray, request: IntArray, system: System) -> IntArray:
    """Watts that each job draws while it runs, shape (jobs,)."""
    watts: IntArray = units * (request @ np.array(system.unit_watts, dtype=np.int64))
    return watts
