"""The dispatcher for users who want none of the choices: predictions, used with care."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar

import numpy as np

from cpdispatch.arrays import BoolArray, IntArray
from cpdispatch.decision import Certificate, Decision
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.contest import Contest
from cpdispatch.heuristics.eligible import eligible_only
from cpdispatch.heuristics.ended import Ended
from cpdispatch.heuristics.hindsight import Hindsight
from cpdispatch.heuristics.limits import cautious, limited
from cpdispatch.heuristics.rehearsal import Rules, index, warm_up
from cpdispatch.heuristics.trial import Contender
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable

BACKFILLING, CP = "backfilling", "cp"


@dataclass(frozen=True, slots=True)
class Ruled:
    """Decides by rules, one instance by itself.

    Attributes
    ----------
    rules : Rules
    backfill : Backfill
    engine : Contender or None
        Decides instead as long as no job has waited longer than the threshold.
    """

    rules: Rules
    backfill: Backfill
    engine: Contender | None = None

    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance."""
        began = perf_counter()
        queue, rules = instance.queue, self.rules
        waited_s = instance.now - queue.submit_s
        late = waited_s > rules.threshold_s
        if self.engine is not None and not late.any():
            return self.engine.dispatch(instance)
        order = _order(queue, late, rules)
        strict = waited_s.max(initial=0) > rules.strict_s
        seen = limited(instance, "requested" if strict else "upper")
        spare = _spare(instance, late, rules)
        start_s, reason, placements = self.backfill.backfilled(seen, order, order, spare)
        phases = {"heuristic": (perf_counter() - began) * 1e3}
        certificate = Certificate(self.backfill.name, phases_ms=phases)
        return Decision(start_s, reason, placements, certificate)


@dataclass(slots=True)
class Best:
    """Takes predictions for what they are, an order and a risk, and learns what serves.

    **Order.** By sqrt(m u) q^width, where m is the expected duration of a job, u half way, in
    orders of magnitude, from what it will probably not exceed to its requested time (`cautious`),
    and q its processors: what is short for sure comes before what may be. Jobs that have waited
    longer than ``threshold_s`` come first, by submission.

    **EASY backfilling.** Running jobs are taken to end at their requested times, so that a
    reservation never rests on a prediction. A job that may be backfilled is taken to last u, so
    that one that lasts longer delays the reserved job, but not beyond its requested time. Once a
    job has waited longer than ``strict_s``, it is taken to last as requested, too.

    **Room for short jobs.** A job that is expected to run longer than ``long_s`` leaves a share
    ``keep`` of the system's capacity free when it starts: no job, however short, waits for
    the end of long ones only. This does not hold for jobs past the threshold, or too wide for it.

    **Hindsight.** What serves depends on the log and on the system. Once a week other thresholds
    and widths are tried on the jobs that ended last, see `Hindsight`. On several nodes CP is tried
    beside backfilling, see `Contest`: if it has served better, it decides as long as no job is past
    the threshold.

    Attributes
    ----------
    threshold_s, strict_s, long_s : int
    keep, width : float
    adapt : bool
        Whether all this follows what served so far.
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
    engine : Contender or None
        A CP dispatcher that takes part on several nodes.
    name : str
    predictor : str
        The predictor that a simulation takes when none is named.
    """

    threshold_s: int = 200_000
    strict_s: int = 250_000
    long_s: int = 14_400
    keep: float = 0.03
    width: float = 0.0
    adapt: bool = True
    best_fit: bool = False
    engine: Contender | None = None
    name: str = "best"
    predictor: ClassVar[str] = "forest"
    _ended: Ended = field(init=False, repr=False)
    _hindsight: Hindsight = field(init=False, repr=False)
    _contest: Contest = field(init=False, repr=False)
    _ways: dict[str, Ruled] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rules = Rules(self.threshold_s, self.strict_s, self.long_s, self.keep, self.width)
        self._ended, self._hindsight = Ended(), Hindsight(rules)
        self._contest = Contest(BACKFILLING)
        backfill = Backfill(best_fit=self.best_fit, name=self.name)
        self._ways = {BACKFILLING: Ruled(rules, backfill)}
        if self.engine is not None:
            self._ways[CP] = Ruled(rules, backfill, engine=self.engine)
        if self.adapt:
            warm_up()

    @property
    def faults(self) -> Mapping[str, int]:
        """What went wrong in or around the solver so far, and how often."""
        return getattr(self.engine, "faults", {})

    @eligible_only
    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance."""
        began = perf_counter()
        instance = cautious(instance)
        if not self.adapt:
            return self._ways[BACKFILLING].dispatch(instance)
        self._ended.look(instance)
        rules = self._hindsight.look(instance, self._ended)
        if rules != self._ways[BACKFILLING].rules:
            self._ways = {name: replace(way, rules=rules) for name, way in self._ways.items()}
        if self.engine is not None and instance.system.nodes > 1:
            self._contest.look(instance, self._ended, self._ways)
        thought_ms = (perf_counter() - began) * 1e3
        decision = self._ways[self._contest.chosen].dispatch(instance)
        self._ended.started(instance, np.flatnonzero(decision.start_s == instance.now))
        phases = {"hindsight": thought_ms, **decision.certificate.phases_ms}
        return replace(decision, certificate=replace(decision.certificate, phases_ms=phases))


def _order(queue: JobTable, late: BoolArray, rules: Rules) -> IntArray:
    processors = np.maximum(queue.units * queue.column(Column.REQUEST), 1)
    key = index(queue.expected_s, queue.upper_s, processors, rules.width)
    return np.argsort(np.where(late, -np.inf, key), kind="stable")


def _spare(instance: Instance, late: BoolArray, rules: Rules) -> IntArray:
    """What each job leaves free when it starts, shape (jobs, resources)."""
    queue, total = instance.queue, instance.system.total
    spare = (rules.keep * total).astype(np.int64)
    room = (queue.request * queue.units[:, None] + spare <= total).all(axis=1)
    leaves = room & ~late & (queue.expected_s > rules.long_s)
    return np.where(leaves[:, None], spare, 0)
