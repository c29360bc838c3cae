"""When a power cap kept jobs of a saved run from starting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from cpdispatch.analyze.energy import Drawn
from cpdispatch.analyze.occupancy import (
    FOREVER,
    NEVER,
    NEVER_FITS,
    REJECTED,
    Behind,
    Occupancy,
    PowerLeft,
    by_stretch,
)
from cpdispatch.arrays import IntArray
from cpdispatch.energy import Steps


@dataclass(frozen=True)
class UnderCap:
    """A schedule that was made under a power cap.

    Attributes
    ----------
    schedule : Occupancy
    drawn : Drawn
        What its jobs drew, attempts that were lost among them.
    cap : Steps
    """

    schedule: Occupancy
    drawn: Drawn
    cap: Steps

    def kept_back(self, rows: IntArray, from_s: IntArray, until_s: IntArray) -> Occupancy:
        """The schedule, with when the cap kept some jobs back within a span of time of each.

        Parameters
        ----------
        rows : int64 array, shape (some,)
            Those of the jobs that are looked at.
        from_s, until_s : int64 array, shape (jobs,)
            The span of each job, seconds.
        """
        spans = sorted(self._without_power(rows, from_s, until_s))
        row, begin_s, end_s = np.array([span[:3] for span in spans], np.int64).reshape(-1, 3).T
        powerless = Behind(row, begin_s, end_s, [span[3] for span in spans])
        left = PowerLeft(self.drawn, self.cap, self.schedule.system.idle_total)
        return replace(self.schedule, powerless=powerless, power_left=left)

    def _without_power(
        self, rows: IntArray, from_s: IntArray, until_s: IntArray
    ) -> Iterator[tuple[int, int, int, str]]:
        """When the cap left less than a job draws, as long as a queued job might run from then on.

        Rows of `Behind`: the job's row, from when to when, and what it lacked, in words. A job
        that something else kept from the queue waited for that.
        """
        t, cap = self.schedule, self.cap
        times, level = self._level
        unit_watts = np.array(t.system.unit_watts)
        for row in rows.tolist():
            watts = int(t.units[row] * (t.request[row] @ unit_watts))
            watts += sum(int(t.request[row, once] * unit_watts[of]) for once, of in t.system.once)
            requested_s, begin_s, end_s = (int(of[row]) for of in (t.requested_s, from_s, until_s))
            gates = t.behind.of(row)
            changes = np.array([*cap.time_s, *(s for gate in gates for s in gate[:2])], np.int64)
            low, high = np.searchsorted(times, (begin_s, end_s)).tolist()
            decided = t.decision_s if len(cap.time_s) > 1 else t.decision_s[:0]
            steps_s = np.array(cap.time_s) - requested_s + 1
            instants = np.concatenate(([begin_s], times[low:high], changes, steps_s, decided))
            instants = np.unique(instants[(begin_s <= instants) & (instants < end_s)])
            if not len(instants):
                continue
            at = np.searchsorted(times, instants, side="right")
            used = np.concatenate(([0], level))[at] + t.system.idle_total
            short = np.zeros(len(instants), dtype=np.int64)
            ahead: list[tuple[int, IntArray | int]] = [(1, requested_s)]
            if len(cap.time_s) > 1:
                since_s, longest_s = self._longest_queued
                longest = np.append(longest_s, 0)[since_s.searchsorted(instants, "right") - 1]
                ahead.insert(0, (2, np.maximum(longest, requested_s)))
            for code, ahead_s in ahead:
                least = map(cap.least, instants.tolist(), (instants + ahead_s).tolist())
                short[used + watts > np.array(list(least))] = code
            for gate_s, open_s, _ in gates:
                short[(gate_s <= instants) & (instants < open_s)] = 0
            left = f"less was left than the {watts:,} W that it draws"
            why = "", f"the power cap: {left}", f"the power cap to come: {left}"
            ends = np.append(instants[1:], end_s)
            for first, after in by_stretch(short):
                if first < after and short[first]:
                    yield row, int(instants[first]), int(ends[after - 1]), why[short[first]]

    @cached_property
    def _level(self) -> tuple[IntArray, IntArray]:
        """Times, and what jobs drew from each on, watts; shape (times,)."""
        return self.drawn.level()

    @cached_property
    def _longest_queued(self) -> tuple[IntArray, IntArray]:
        """Times, and the longest request in the queue from each on, seconds; shape (times,)."""
        t = self.schedule
        out: dict[int, list[tuple[int, int]]] = {}
        lost = (t.lost.start_s != NEVER).nonzero()[0]
        for rows, from_s, until_s in (
            (t.behind.row, t.behind.from_s, t.behind.until_s),
            (t.lost.row[lost], t.lost.start_s[lost] + 1, t.lost.end_s[lost]),
        ):
            for row, *span in np.stack((rows, from_s, until_s), axis=1).tolist():
                out.setdefault(row, []).append((span[0], span[1]))
        spans = []
        end_s = np.where(t.start_s == NEVER, t.last_s, t.start_s) + 1  # queued as it starts, too
        for row in (~t.because(NEVER_FITS, REJECTED)).nonzero()[0].tolist():
            begin, longest = int(t.submit_s[row]), int(t.requested_s[row])
            for from_s, until_s in sorted(out.get(row, [])):
                spans.append((begin, from_s, longest))
                begin = max(begin, until_s)
            spans.append((begin, int(end_s[row]), longest))
        spans = sorted(span for span in spans if span[0] < span[1])
        times = sorted({time_s for span in spans for time_s in span[:2]})
        coming, found = iter([*spans, (FOREVER, FOREVER, 0)]), []
        queued: list[tuple[int, int]] = []
        begin, until_s, longest = next(coming)
        for time_s in times:
            while begin <= time_s:
                heappush(queued, (-longest, until_s))
                begin, until_s, longest = next(coming)
            while queued and queued[0][1] <= time_s:
                heappop(queued)
            found.append(-queued[0][0] if queued else 0)
        return np.array(times, dtype=np.int64), np.array(found, dtype=np.int64)
