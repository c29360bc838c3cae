"""What a schedule draws: against the cap at every second, and the energy of each job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.system import System
from cpdispatch.verify.limits import Spell
from cpdispatch.verify.once import heads
from cpdispatch.verify.tables import Findings
from cpdispatch.verify.violation import Kind, Violation, jobs_text


def power(
    id: IntArray, watts: IntArray, spell: Spell, system: System, cap: Sequence[Sequence[float]]
) -> list[Violation]:
    """Whether jobs and idle nodes draw more than the cap at any time.

    Parameters
    ----------
    id : int64 array, shape (jobs,)
    watts : int64 array, shape (spells,)
        What is drawn in each spell, see `drawn_on`.
    spell : Spell
        When they ran.
    cap : sequence of (time, watts)
        From when on how much is allowed; the first also holds before its time.
    """
    # The level can only rise where a job starts, and the cap only fall where it changes.
    instants = np.unique(np.concatenate((spell.start_s, [int(time) for time, _ in cap])))
    begun, ended = np.sort(spell.start_s), np.sort(spell.end_s)
    up = np.concatenate(([0], np.cumsum(watts[np.argsort(spell.start_s)])))
    down = np.concatenate(([0], np.cumsum(watts[np.argsort(spell.end_s)])))
    level = (
        up[np.searchsorted(begun, instants, side="right")]
        - down[np.searchsorted(ended, instants, side="right")]
        + sum(group.nodes * system.idle_watts.get(group.site_name, 0) for group in system.groups)
    )
    at = np.searchsorted([time for time, _ in cap], instants, side="right") - 1
    allowed = np.array([most for _, most in cap])[np.maximum(at, 0)]

    def text(k: int) -> str:
        time = int(instants[k])
        running = (spell.start_s <= time) & (time < spell.end_s)
        who = jobs_text(id[spell.job[running]].tolist())
        return f"{level[k]} W are drawn at {time}, {allowed[k]} W are allowed: {who}"

    found = Findings()
    found.add(Kind.POWER, (level > allowed).nonzero()[0], text)
    return found.all()


def energy(id: IntArray, said_j: IntArray, watts: IntArray, spell: Spell) -> list[Violation]:
    """Whether the stated energy of each job is what it drew while it ran.

    Parameters
    ----------
    id, said_j : int64 array, shape (jobs,)
        What is stated, J.
    watts : int64 array, shape (spells,)
        What is drawn in each spell, see `drawn_on`.
    spell : Spell
        When they ran.
    """
    drew_j = np.zeros_like(said_j)
    np.add.at(drew_j, spell.job, (spell.end_s - spell.start_s) * watts)
    found = Findings()
    found.add(
        Kind.ENERGY,
        (drew_j != said_j).nonzero()[0],
        lambda k: f"job {id[k]} drew {drew_j[k]} J, {said_j[k]} J are stated",
    )
    return found.all()


def drawn(
    units: IntArray, request: IntArray, system: System, once: IntArray | None = None
) -> IntArray:
    """Watts that each job draws at most, on whatever nodes it runs, shape (jobs,)."""
    most = [
        max(_watts(system, k, r) * bool(of.capacity[r]) for k, of in enumerate(system.groups))
        for r in range(len(system.resources))
    ]
    watts: IntArray = units * (request @ np.array(most, dtype=np.int64))
    if once is not None:
        watts += once @ np.array(most, dtype=np.int64)
    return watts


def drawn_on(
    request: IntArray, offset: IntArray, node: IntArray, units: IntArray, system: System,
    once: IntArray | None = None,
) -> IntArray:  # fmt: skip
    """Watts that are drawn by each of some jobs on their nodes, shape (jobs,).

    ``once`` is what each takes once, on its first node, shape (jobs, resources).
    """
    of_group = np.array([
        [_watts(system, k, r) for r in range(len(system.resources))]
        for k in range(len(system.groups))
    ])  # fmt: skip
    found = np.zeros(len(request), dtype=np.int64)
    owner = np.repeat(np.arange(len(request)), np.diff(offset))
    on = (node >= 0) & (node < system.nodes)
    owner, group = owner[on], system.group_of[node[on]]
    np.add.at(found, owner, units[on] * (request[owner] * of_group[group]).sum(axis=1))
    if once is not None:
        first = heads(np.diff(offset))[on] == 1
        np.add.at(found, owner[first], (once[owner] * of_group[group]).sum(axis=1)[first])
    return found


def _watts(system: System, group: int, resource: int) -> int:
    """Watts of a unit of a resource type in a group."""
    name = system.resources[resource]
    of = system.group_watts.get(system.groups[group].site_name, {})
    return of.get(name, system.watts.get(name, 0))
