"""Waits of a whole schedule that were bounded by the longest wait under EASY."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.system import System
from cpdispatch.verify.levels import of_shares, units_that_fit
from cpdispatch.verify.once import fits as fits_with_first
from cpdispatch.verify.tables import Schedule
from cpdispatch.verify.violation import Kind, Violation

_LISTED = 9


@dataclass(frozen=True, slots=True)
class WaitRules:
    """The bound on the waits of a run, in thousandths."""

    in_turn_after: int
    """The share of the longest wait under EASY so far after which a job is late."""
    wide: int
    """By how much that time is shorter for a job that asks for the whole system; for a job that
    asks for half of it, half as much.
    """
    first_after: int | None
    """The share after which the first late job starts wherever it fits; None if that is not
    certain.
    """


def waits(
    table: Schedule, system: System, time_s: IntArray, easy_wait_s: FloatArray, rules: WaitRules
) -> list[Violation]:
    """What is wrong with the waits of a schedule that is feasible.

    The longest wait under EASY so far never falls, and is at most the time since the first
    submission. At a decision, of the waiting jobs that are
    late, the one that was submitted first starts if it has waited long enough for that and fits
    beside the jobs that run then. Where that cannot be known it is not looked at: with several
    decisions at one instant, where jobs could be restarted, and where the first late job comes
    after another one.

    Parameters
    ----------
    time_s : int64 array, shape (decisions,)
        When each decision was.
    easy_wait_s : float array, shape (decisions,)
        The longest wait under EASY so far at each; NaN where it was not looked at.

    Returns
    -------
    list of Violation
        The first few; the last one says how many more there are.
    """
    known = np.isfinite(easy_wait_s)
    alone = np.ones(len(time_s) + 1, dtype=np.bool_)
    alone[1:-1] = time_s[1:] != time_s[:-1]
    single = (alone[1:] & alone[:-1])[known]
    time_s, longest_s = time_s[known], easy_wait_s[known].astype(np.int64)
    found = [
        Violation(Kind.LATE, f"easy_wait falls from {before} to {after} at {now}")
        for (before, after), now in zip(
            pairwise(longest_s.tolist()), time_s[1:].tolist(), strict=True
        )
        if after < before
    ]
    if len(table.submit_s):
        first_s = int(table.submit_s.min())
        found += [
            Violation(
                Kind.LATE, f"easy_wait is {longest} at {now}: the first job came at {first_s}"
            )
            for now, longest in zip(time_s.tolist(), longest_s.tolist(), strict=True)
            if longest > max(now - first_s, 0)
        ]
    if rules.first_after is not None and table.lost is None and len(time_s):
        found += _passed_over(
            table, system, time_s[single], longest_s[single], rules, rules.first_after
        )
    more = len(found) - _LISTED
    listed = found[:_LISTED]
    return [*listed, Violation(Kind.MORE, f"{more:,} more of {Kind.LATE}")] if more > 0 else listed


def _passed_over(
    table: Schedule, system: System, time_s: IntArray, longest_s: IntArray, rules: WaitRules,
    first_after: int,
) -> list[Violation]:  # fmt: skip
    """Late jobs that were submitted first and did not start though they fit."""
    able = ~(table.never_fits | table.rejected)
    row = np.flatnonzero(able)[np.argsort(table.submit_s[able], kind="stable")]
    submit_s, start_s = table.submit_s[row], table.start_s[row]
    start_s = np.where(start_s < 0, np.iinfo(np.int64).max, start_s)
    kept = 1000 - rules.wide * share(table, system)[row] // 1000
    last = np.searchsorted(submit_s, time_s, side="right").tolist()
    free, first, found = _Free(table, system), 0, []
    for now, longest, end in zip(time_s.tolist(), longest_s.tolist(), last, strict=True):
        while first < end and start_s[first] < now:
            first += 1
        threshold = longest * rules.in_turn_after // 1000
        least = threshold * (1000 - rules.wide) // 1000
        if first == end or now - submit_s[first] <= least:
            continue
        here = slice(first, end)
        waited = now - submit_s[here]
        late = (start_s[here] >= now) & (waited > threshold * kept[here] // 1000)
        at = first + int(late.argmax())
        if not late.any() or start_s[at] == now:
            continue
        job, allowed = row[at], longest * first_after // 1000 * kept[at] // 1000
        depends = table.preceding is not None and table.preceding[job] >= 0
        if depends or now - submit_s[at] <= allowed:
            continue
        if _fits(free.before(now), table, int(job)):
            text = (
                f"job {table.id[job]}, submitted at {submit_s[at]}, does not start at {now} though "
                f"it fits: of those that have waited too long it was submitted first, and it has "
                f"waited {now - submit_s[at]} s, allowed {allowed} s"
            )
            found.append(Violation(Kind.LATE, text))
    return found


def _fits(free: IntArray, table: Schedule, job: int) -> bool:
    """Whether a job fits what is free, shape (nodes, resources)."""
    units, request = int(table.units[job]), table.request[job]
    if table.once is not None and table.once[job].any():
        return fits_with_first(free, units, request, table.once[job])
    return bool(units_that_fit(free, request) >= units)


def share(table: Schedule, system: System) -> IntArray:
    """What each job asks for of what the system has, in thousandths: the most of all types."""
    kinds = of_shares(system)
    asked = table.units[:, None] * table.request[:, kinds] * 1000
    found: IntArray = (asked // np.maximum(system.total[kinds], 1)).max(axis=1, initial=0)
    return np.minimum(found, 1000)


class _Free:
    """What is free at ascending instants, before the jobs start that start then."""

    def __init__(self, table: Schedule, system: System) -> None:
        self._table, self._free = table, system.capacity.copy()
        self._owner = np.repeat(np.arange(len(table.id)), np.diff(table.offset))
        self._starts = _Ordered(table.start_s[self._owner])
        self._ends = _Ordered(table.end_s[self._owner])

    def before(self, now: int) -> IntArray:
        """Capacity free at an instant on each node, shape (nodes, resources)."""
        for changes, sign, until in ((self._starts, -1, now), (self._ends, 1, now + 1)):
            entry = changes.next(until)
            table, owner = self._table, self._owner[entry]
            amount = table.node_units[entry, None] * table.request[owner]
            if table.once is not None and table.head is not None:
                amount += table.once[owner] * table.head[entry, None]
            np.add.at(self._free, table.node[entry], sign * amount)
        return self._free


class _Ordered:
    """Entries in the order of their times, which are taken part by part."""

    def __init__(self, time_s: IntArray) -> None:
        self._order = np.argsort(time_s, kind="stable")
        self._time_s = time_s[self._order]
        self._taken = 0

    def next(self, until: int) -> IntArray:
        """The entries before a time that have not been taken yet."""
        low = self._taken
        self._taken = max(low, int(np.searchsorted(self._time_s, until)))
        return self._order[low : self._taken]
