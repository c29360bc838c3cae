"""Rules for `best` that would have served on the jobs that ended last; see `Hindsight`."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import inf

import numpy as np

from cpdispatch.analyze.metrics import TAU_S
from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.ended import Ended
from cpdispatch.heuristics.rehearsal import Past, Rules, easy, rehearse
from cpdispatch.instance import Instance
from cpdispatch.jobs import JobTable

EVERY_S = 604_800
"""The rules are thought over once a week."""
FEWEST = 2_000
"""How many jobs must have ended."""
THRESHOLDS, WIDTH = (1.0, 1.5, 2.25, 4.5), 1.0
"""Factors of the threshold that are tried, with the given width and with this one."""
BETTER = 0.95
"""What the mean bounded slowdown must fall to, relative to the rules in use, for a change."""
LONGER, SURE = 1.3, 1.35
"""How much longer than under EASY, or than the first threshold, the longest wait may be."""


@dataclass(slots=True)
class Hindsight:
    """Chooses rules by what they would have made of the jobs that ended last.

    Once a week the jobs that are remembered are rehearsed under each of some rules, on a pool as
    large as the system; one rehearsal a decision, which takes some milliseconds. Those win that
    give the lowest mean bounded slowdown, if it is lower by 5 % than that of the rules in use, and
    if no job would have waited much longer than under EASY. No threshold is tried beyond the
    longest wait under EASY so far: jobs may wait for longer than a threshold.

    Attributes
    ----------
    first : Rules
        Those at the beginning, which the others differ from by one thing or two.
    """

    first: Rules
    rules: Rules = field(init=False)
    _due_s: int = field(default=-1, repr=False)
    _past: Past | None = field(default=None, repr=False)
    _left: list[Rules] = field(default_factory=list, repr=False)
    _longest_s: float = field(default=0, repr=False)
    _most_s: int = field(default=0, repr=False)
    _felt: dict[Rules, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.rules = self.first

    def look(self, instance: Instance, ended: Ended) -> Rules:
        """Think on; returns the rules to go by."""
        if self._past is not None:
            self._try_next(self._past, int(instance.system.total[0]))
        elif instance.now >= self._due_s:
            if self._due_s >= 0 and len(ended) >= FEWEST:
                self._begin(instance, ended)
            self._due_s = instance.now + EVERY_S
        return self.rules

    def _begin(self, instance: Instance, ended: Ended) -> None:
        """Set about trying the rules."""
        jobs, runtime_s = ended.last(len(ended))
        processors = sizes(jobs, instance.system.total)
        lasting = (jobs.requested_s, jobs.expected_s, jobs.upper_s, runtime_s)
        self._past = Past(*(each.copy() for each in (jobs.submit_s, processors, *lasting)))
        first = self.first
        widths = dict.fromkeys((first.width, WIDTH))
        self._left = [
            first._replace(
                threshold_s=int(factor * first.threshold_s),
                strict_s=int(factor * first.threshold_s) + first.strict_s - first.threshold_s,
                width=width,
            )
            for factor, width in product(THRESHOLDS, widths)
        ]
        self._felt = {}
        self._longest_s = 0

    def _try_next(self, past: Past, total: int) -> None:
        """Rehearse EASY or the next rules; when all are through, choose."""
        if not self._longest_s:
            longest_s = int((easy(past, total) - past.submit_s).max())
            self._most_s = max(self._most_s, longest_s, self.first.threshold_s)
            self._left = [rules for rules in self._left if rules.threshold_s <= self._most_s]
            self._longest_s = max(LONGER * longest_s, SURE * self.first.threshold_s)
        elif self._left:
            rules = self._left.pop(0)
            wait_s = rehearse(past, total, rules) - past.submit_s
            slowdown = (wait_s + past.runtime_s) / np.maximum(past.runtime_s, TAU_S)
            bearable = rules == self.first or wait_s.max() <= self._longest_s
            self._felt[rules] = float(np.maximum(slowdown, 1).mean()) if bearable else inf
        else:
            found = min(self._felt, key=self._felt.__getitem__)
            if self._felt[found] < BETTER * self._felt[self.rules]:
                self.rules = found
            self._past = None


def sizes(jobs: JobTable, total: IntArray) -> IntArray:
    """Processors that jobs are worth by what they ask most of, at least 1; shape (jobs,).

    Parameters
    ----------
    jobs : JobTable
    total : int64 array, shape (resources,)
        What the system has; the first resource type is processors.
    """
    asked = jobs.units[:, None] * jobs.request
    share = -(-asked * total[0] // np.maximum(total, 1))
    found: IntArray = np.clip(share.max(axis=1), 1, total[0])
    return found
