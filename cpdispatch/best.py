"""The dispatcher for users who want none of the choices: predictions, used with care."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from cpdispatch.decision import Decision
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.limits import cautious
from cpdispatch.heuristics.policies import risk
from cpdispatch.instance import Instance

TEST_S = 300
"""How long a test run lasts where jobs may be restarted, if nothing else is asked for."""


class _CautiousBackfill(Backfill):
    """Backfilling that plans with cautious durations while it is not strict."""

    __slots__ = ()

    def planned(self, instance: Instance) -> Instance:
        """The instance with the planned durations."""
        return Backfill.planned(self, instance) if self.is_strict(instance) else cautious(instance)


@dataclass(slots=True)
class Best:
    """Takes predictions for what they are, an order and a risk.

    **Order.** By sqrt(m u) q^width, where m is the expected duration of a job, u its cautious
    duration, half way from the upper duration to the requested time in orders of magnitude (see
    `cpdispatch.heuristics.limits.cautious_s`), and q its processors. So what is short for sure
    comes before what may be. With the default width the order is half way from the shortest job
    first to the smallest work first. Jobs that the instance calls starved come first, by
    submission: those that have waited for a good part of the longest wait that EASY would have led
    to, see `cpdispatch.bounded.Bounded`.

    **EASY backfilling.** Running jobs are planned to end at their requested times, so that a
    reservation never rests on a prediction. A job that may be backfilled is planned to last u, so
    that one that lasts longer delays the reserved job, but not beyond its requested time. Once a
    job has waited for so long that it is starved, all are planned to last as requested.

    **Room for short jobs**, where ``keep`` is above 0. A job that is expected to run longer than
    ``long_s`` leaves a share ``keep`` of the system's capacity free when it starts: no job, however
    short, waits for the end of long ones only. This does not hold for starved jobs, or those too
    wide for it. It is not the default: long jobs then wait longer beside EASY's.

    **Test runs** where jobs may be restarted, after all starts in full.

    Attributes
    ----------
    long_s : int
    keep, width : float
    best_fit : bool
        Fullest feasible node first, instead of nodes by index.
    test_s : int, optional
        How long a test run lasts; 0 for none, None for `TEST_S`. See
        `cpdispatch.heuristics.backfill.Backfill`.
    tests : str
        When tests come: ``left``, ``backfill``, ``turn`` or ``first``.
    name : str
    predictor : str
        The predictor that a simulation takes when none is named.
    """

    long_s: int = 14_400
    keep: float = 0.0
    width: float = 0.5
    best_fit: bool = False
    test_s: int | None = None
    tests: str = "left"
    name: str = "best"
    predictor: ClassVar[str] = "mixture"
    backfill: Backfill = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order = risk(self.width)
        self.backfill = _CautiousBackfill(
            order, order, limits="upper", bounded=True, keep=self.keep, long_s=self.long_s,
            best_fit=self.best_fit, test_s=TEST_S if self.test_s is None else self.test_s,
            tests=self.tests, name=self.name,
        )  # fmt: skip

    def dispatch(self, instance: Instance) -> Decision:
        """Answer one instance."""
        return self.backfill.dispatch(instance)
