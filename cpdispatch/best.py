"""The dispatcher `best`, for users who want to choose nothing: EASY with careful predictions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from cpdispatch.decision import Decision
from cpdispatch.heuristics.backfill import Backfill
from cpdispatch.heuristics.limits import cautious
from cpdispatch.heuristics.policies import risk
from cpdispatch.instance import Instance

TEST_S = 300
"""Seconds of a test run, if the user gives no other length."""


class _CautiousBackfill(Backfill):
    """Backfilling that plans with cautious durations while it is not strict."""

    __slots__ = ()

    def planned(self, instance: Instance) -> Instance:
        """The instance with the planned durations."""
        return Backfill.planned(self, instance) if self.is_strict(instance) else cautious(instance)


@dataclass(slots=True)
class Best:
    """EASY backfilling that uses predictions for the order of the queue, and with care for plans.

    **Order.** The key of a job is sqrt(m u) q^width; the smallest key comes first. Here m is the
    expected duration of the job, u its cautious duration (see
    `cpdispatch.heuristics.limits.cautious_s`), and q the number of its processors. So a job that
    is certainly short comes before one that is only probably short. With the default width the
    order is half way from the shortest job first to the smallest work first. Starved jobs come
    before all others, by submission. A job is starved when it has waited for a given share of the
    longest wait that EASY would have led to, see `cpdispatch.bounded.Bounded`.

    **EASY backfilling.** Running jobs are planned to end at their requested times, so that a
    reservation never rests on a prediction. A job that may be backfilled is planned to last u. If
    it lasts longer, it can delay the reserved job, but by no more than its requested time allows.
    While a job is starved, all jobs are planned to last for their requested times.

    **Room for short jobs**, where ``keep`` is above 0. A job that is expected to run longer than
    ``long_s`` leaves a share ``keep`` of the system's capacity free when it starts. So short jobs
    find room while long ones run. The rule does not apply to starved jobs, nor to jobs that are
    too wide for it. By default it is off, because long jobs then wait longer than under EASY.

    **Test runs** of jobs that may be restarted. By default they come after all other starts.
    """

    long_s: int = 14_400
    keep: float = 0.0
    width: float = 0.5
    best_fit: bool = False
    """Fullest feasible node first, instead of nodes by index."""
    test_s: int | None = None
    """How long a test run lasts; 0 for none, None for `TEST_S`.

    See `cpdispatch.heuristics.backfill.Backfill`.
    """
    tests: str = "left"
    """When tests come: ``left``, ``backfill``, ``turn`` or ``first``."""
    name: str = "best"
    predictor: ClassVar[str] = "mixture"
    """The predictor that a simulation takes when none is named."""
    takes_first: ClassVar[bool] = True
    """See `Backfill`."""
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
