"""The dispatcher for users who want none of the choices: predictions, used with care."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar

from cpdispatch.arrays import IntArray
from cpdispatch.best.ended import Ended, Past
from cpdispatch.best.evaluation import Evaluation, Parameters, backfilling, warm_up
from cpdispatch.decision import Decision
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.eligible import eligible_only
from cpdispatch.heuristics.limits import cautious
from cpdispatch.instance import Instance
from cpdispatch.toys import play


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
    thresholds and widths are evaluated on the jobs that ended last, see `Evaluation`.

    Attributes
    ----------
    threshold_s, strict_s, long_s : int
    keep, width : float
    adapt : bool
        Whether threshold and width follow what served so far.
    test_s : int
        How long a test run lasts; 0 for none. See `cpdispatch.heuristics.backfill.Backfill`.
    tests : str
        When tests come: ``left``, ``backfill`` or ``turn``.
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
    test_s: int = 0
    tests: str = "left"
    best_fit: bool = False
    name: str = "best"
    predictor: ClassVar[str] = "forest"
    backfill: Backfill = field(init=False, repr=False)
    """Decides, with the parameters in use."""
    fresh: bool = field(default=True, init=False, repr=False)
    """Whether it has met no instance yet."""
    evaluation: Evaluation = field(init=False, repr=False)
    _ended: Ended = field(default_factory=Ended, init=False, repr=False)

    def __post_init__(self) -> None:
        first = Parameters(self.threshold_s, self.strict_s, self.long_s, self.keep, self.width)
        self.evaluation = Evaluation(first)
        self._use(first)

    def warm_up(self, instances: Sequence[Instance]) -> None:
        """Compile what decisions and off-line evaluations call, or load it from the cache."""
        play(lambda: replace(self), instances)
        if self.adapt:
            warm_up()

    @eligible_only
    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance."""
        began = perf_counter()
        self.fresh = False
        instance = cautious(instance)
        if not self.adapt:
            return self.backfill.dispatch(instance)
        self._ended.look(instance)
        self.consider(instance.now, instance.system.total, self._ended)
        evaluation_ms = (perf_counter() - began) * 1e3
        decision = self.backfill.dispatch(instance)
        self._ended.started(instance, decision)
        phases = {"evaluation": evaluation_ms, **decision.certificate.phases_ms}
        return replace(decision, certificate=replace(decision.certificate, phases_ms=phases))

    def consider(self, now: int, total: IntArray, past: Past) -> bool:
        """Go on with the off-line evaluation; whether the parameters in use have changed.

        Parameters
        ----------
        now : int
            The time of the decision that comes next, seconds.
        total : int64 array, shape (resources,)
            What the system has.
        past : Past
            The jobs that have ended.
        """
        before = self.evaluation.parameters
        self.evaluation.step(now, total, past)
        if self.evaluation.parameters == before:
            return False
        self._use(self.evaluation.parameters)
        return True

    def go_on_with(self, evaluation: Evaluation) -> None:
        """Take over an off-line evaluation, such as that of a checkpoint."""
        self.evaluation = evaluation
        self._use(evaluation.parameters)

    def _use(self, parameters: Parameters) -> None:
        self.backfill = replace(
            backfilling(parameters),
            best_fit=self.best_fit,
            test_s=self.test_s,
            tests=self.tests,
            name=self.name,
        )
