"""What a schedule draws: energy, its cost, the highest power."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import BoolArray, FloatArray, IntArray
from cpdispatch.energy import Steps
from cpdispatch.system import System

JOULES_PER_KWH = 3_600_000
NEAR_CAP = 0.95
"""The share of the cap from which on the power is near it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What jobs drew: one row for each time that a job ran."""

    row: IntArray
    """The job's row in the table of jobs, shape (spells,)."""
    start_s: IntArray
    end_s: IntArray
    watts: IntArray
    """Shape (spells,)."""

    def take(self, which: BoolArray) -> Drawn:
        """Some of the spells."""
        return Drawn(self.row[which], self.start_s[which], self.end_s[which], self.watts[which])

    def level(self) -> tuple[IntArray, IntArray]:
        """Watts of all jobs together, as a step function: times, and the watts from each on."""
        times = np.unique(np.concatenate((self.start_s, self.end_s)))
        change = np.zeros(len(times), dtype=np.int64)
        np.add.at(change, np.searchsorted(times, self.start_s), self.watts)
        np.subtract.at(change, np.searchsorted(times, self.end_s), self.watts)
        return times, np.cumsum(change)


def watts_of(
    system: System,
    request: IntArray,
    offset: IntArray,
    node: NDArray[np.integer[Any]],
    units: NDArray[np.integer[Any]],
) -> IntArray:
    """Watts that jobs draw on their nodes, shape (jobs,).

    Parameters
    ----------
    request : int64 array, shape (jobs, resources)
        What each unit asks for.
    offset : int64 array, shape (jobs + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, units : integer array, shape (entries,)
    """
    owner = np.repeat(np.arange(len(request)), np.diff(offset))
    found = np.zeros(len(request), dtype=np.int64)
    if not system.group_watts:
        np.add.at(found, owner, units)
        found *= request @ np.array(system.unit_watts)
    else:
        each = (request[owner] * system.node_watts[node]).sum(axis=1)
        np.add.at(found, owner, each * units)
    if system.once:
        placed, (once, of) = (np.diff(offset) > 0).nonzero()[0], np.array(system.once).T
        watts = system.node_watts[node[offset[placed]]][:, of]
        found[placed] += (request[placed][:, once] * watts).sum(axis=1)
    return found


@dataclass(frozen=True, slots=True)
class Off:
    """When nodes were switched off; arrays of shape (spells,)."""

    node: IntArray
    off_s: IntArray
    wake_s: IntArray
    on_s: IntArray
    """When each was switched off, switched on again, and back; -1 for what did not happen."""

    def saved(self, system: System, last_s: int) -> Drawn:
        """What nodes draw less while they are off, until a time at most: negative watts."""
        names = [system.groups[group].site_name for group in system.group_of[self.node].tolist()]
        less = [system.off_watts.get(n, 0) - system.idle_watts.get(n, 0) for n in names]
        end_s = np.where(self.wake_s < 0, last_s, np.minimum(self.wake_s, last_s))
        start_s = np.minimum(self.off_s, end_s)
        return Drawn(self.node, start_s, end_s, np.array(less, dtype=np.int64))


def summary(
    drawn: Drawn, first_s: int, system: System, cap: Steps | None, price: Steps | None,
    off: Off | None = None,
) -> dict[str, float]:  # fmt: skip
    """Energy figures of a run.

    Parameters
    ----------
    first_s : int
        The first submission. All is counted from then until the last end.
    system : System
        Says what nodes draw by themselves.
    price : Steps or None
        Of a kilowatt hour.
    off : Off, optional
        When nodes were switched off. Without it, all draw all the time.

    Returns
    -------
    dict
        ``energy_kwh``, of which ``energy_jobs_kwh`` and ``energy_idle_kwh``; ``power_w_mean`` and
        ``power_w_max`` of the whole system; with a cap ``near_power_cap_s``, how long the system
        drew 95 % of it or more; with a price ``energy_cost``; where nodes could be switched off
        ``nodes_off_h``, how many hours all of them together were off.
    """
    if not len(drawn.row):
        return {}
    last_s = int(drawn.end_s.max())
    jobs_j = float(((drawn.end_s - drawn.start_s) * drawn.watts).sum())
    less_j = 0.0
    if off is not None:
        saved = off.saved(system, last_s)
        lasted_s = saved.end_s - saved.start_s
        less_j = float((lasted_s * saved.watts).sum())
        columns = ("row", "start_s", "end_s", "watts")
        drawn = Drawn(
            *(np.concatenate((getattr(drawn, name), getattr(saved, name))) for name in columns)
        )
    times, watts = drawn.level()
    changes = [np.array(steps.time_s) for steps in (cap, price) if steps is not None]
    cuts = np.unique(np.concatenate((times, [first_s], *changes)))
    cuts = cuts[(cuts >= first_s) & (cuts <= last_s)]
    at = np.searchsorted(times, cuts[:-1], side="right") - 1
    level = np.where(at >= 0, watts[np.maximum(at, 0)], 0) + system.idle_total
    lasts_s = np.diff(cuts)
    idle_j = float(system.idle_total * (last_s - first_s)) + less_j
    found = {
        "energy_kwh": (jobs_j + idle_j) / JOULES_PER_KWH,
        "energy_jobs_kwh": jobs_j / JOULES_PER_KWH,
        "energy_idle_kwh": idle_j / JOULES_PER_KWH,
        "power_w_mean": (jobs_j + idle_j) / max(last_s - first_s, 1),
        "power_w_max": float(level.max(initial=0)),
    }
    if off is not None:
        found["nodes_off_h"] = float(lasted_s.sum()) / 3600
    if cap is not None:
        near = level >= NEAR_CAP * _over(cap, cuts[:-1])
        found["near_power_cap_s"] = float(lasts_s[near].sum())
    if price is not None:
        cost = float((level * lasts_s) @ _over(price, cuts[:-1]))
        found["energy_cost"] = cost / JOULES_PER_KWH
    return found


def _over(steps: Steps, times: IntArray) -> FloatArray:
    """The value at each of some times."""
    at = np.searchsorted(steps.time_s, times, side="right") - 1
    return np.array(steps.values, dtype=np.float64)[np.maximum(at, 0)]
