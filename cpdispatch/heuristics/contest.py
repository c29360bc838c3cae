"""The way of deciding that would have served best on the jobs that ended last; see `Contest`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from cpdispatch.heuristics.ended import Ended
from cpdispatch.heuristics.trial import Contender, Trial
from cpdispatch.instance import Instance

JOBS, FEWEST = 1_000, 500
"""Jobs that ended last which the ways are tried on, and how many that takes."""
EVERY_S = 4 * 604_800
"""How often, once the number of jobs that have ended doubles no more."""
STEPS = 2
"""Decisions of each trial that are made beside one of `best`."""
ENOUGH, KEPT = 3, 8
"""How many trials it takes to leave a way, and how many count: the last ones."""
BETTER = 0.95
"""What the mean bounded slowdown must fall to, relative to the way in use, for a change."""


@dataclass(slots=True)
class Contest:
    """Chooses among ways to decide by what each would have made of the jobs that ended last.

    The last 1,000 jobs are dispatched anew in each of the ways, on the system as it is: when 500
    have ended, whenever that has doubled, and every four weeks. The way is taken that has had the
    lowest mean bounded slowdown in the last eight trials, if there were three at least and it is
    lower by 5 % than that of the way in use. Beside each real decision two are made of every trial.

    Attributes
    ----------
    chosen : str
        The way in use.
    """

    chosen: str
    _due_s: int = field(default=0, repr=False)
    _due_jobs: int = field(default=0, repr=False)
    _trials: dict[str, Trial] = field(default_factory=dict, repr=False)
    _felt: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=KEPT), repr=False)

    def look(self, instance: Instance, ended: Ended, ways: Mapping[str, Contender]) -> None:
        """Try on."""
        if self._trials:
            going = [trial.step() for trial in self._trials.values() for _ in range(STEPS)]
            if not any(going):
                self._judge()
        elif len(ended) >= FEWEST and (instance.now >= self._due_s or len(ended) >= self._due_jobs):
            jobs, runtime_s = ended.last(JOBS)
            self._trials = {
                name: Trial(way, instance.system, jobs, runtime_s) for name, way in ways.items()
            }
            self._due_s, self._due_jobs = instance.now + EVERY_S, 2 * len(ended)

    def _judge(self) -> None:
        """Choose by the trials, which are over."""
        self._felt.append({name: trial.slowdown() for name, trial in self._trials.items()})
        self._trials = {}
        sums = {name: sum(felt[name] for felt in self._felt) for name in self._felt[0]}
        found = min(sums, key=sums.__getitem__)
        if len(self._felt) >= ENOUGH and sums[found] < BETTER * sums[self.chosen]:
            self.chosen = found
