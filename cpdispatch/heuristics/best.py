"""The dispatcher for users who want none of the choices: predictions, used with care."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import ClassVar

import numpy as np

from cpdispatch.arrays import BoolArray, ByteArray, IntArray
from cpdispatch.decision import Certificate, Decision, Placements
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.eligible import eligible_only
from cpdispatch.heuristics.ended import Ended
from cpdispatch.heuristics.hindsight import Hindsight
from cpdispatch.heuristics.limits import cautious, limited
from cpdispatch.heuristics.rehearsal import Rules, index, warm_up
from cpdispatch.instance import Instance
from cpdispatch.jobs import Column, JobTable


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

    **Off-line evaluation.** What serves depends on the log and on the system. Once a week other
    thresholds and widths are evaluated on the jobs that ended last, see `Hindsight`.

    Attributes
    ----------
    threshold_s, strict_s, long_s : int
    keep, width : float
    adapt : bool
        Whether all this follows what served so far.
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
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
    name: str = "best"
    predictor: ClassVar[str] = "forest"
    _ended: Ended = field(init=False, repr=False)
    _hindsight: Hindsight = field(init=False, repr=False)
    _backfill: Backfill = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rules = Rules(self.threshold_s, self.strict_s, self.long_s, self.keep, self.width)
        self._ended, self._hindsight = Ended(), Hindsight(rules)
        self._backfill = Backfill(best_fit=self.best_fit, name=self.name)
        if self.adapt:
            warm_up()

    @eligible_only
    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance."""
        began = perf_counter()
        instance = cautious(instance)
        rules, phases = self._hindsight.rules, {}
        if self.adapt:
            self._ended.look(instance)
            rules = self._hindsight.look(instance, self._ended)
            phases["evaluation"] = (perf_counter() - began) * 1e3
        began = perf_counter()
        start_s, reason, placements = self._decided(instance, rules)
        if self.adapt:
            self._ended.started(instance, np.flatnonzero(start_s == instance.now))
        phases["heuristic"] = (perf_counter() - began) * 1e3
        certificate = Certificate(self.name, phases_ms=phases)
        return Decision(start_s, reason, placements, certificate)

    def _decided(self, instance: Instance, rules: Rules) -> tuple[IntArray, ByteArray, Placements]:
        """Starts, reasons and placements under some rules."""
        queue = instance.queue
        waited_s = instance.now - queue.submit_s
        late = waited_s > rules.threshold_s
        order = _order(queue, late, rules)
        strict = waited_s.max(initial=0) > rules.strict_s
        seen = limited(instance, "requested" if strict else "upper")
        return self._backfill.backfilled(seen, order, order, _spare(instance, late, rules))


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
