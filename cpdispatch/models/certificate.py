"""The quality of the plans of parts, and the certificate of the decision that they lead to."""

from __future__ import annotations

from dataclasses import dataclass

from cpdispatch.decision import Certificate
from cpdispatch.models.budget import Budget

TOLERANCE = 1e-4
"""Relative gap at or below which a search ends."""

OPTIMAL_GAP = 1e-6
"""Gap that the rounding of weights may leave to a proven optimum: relative, of values above 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a search knows of the plan that it returns."""

    status: str
    """``optimal``, ``feasible``, or ``heuristic`` if no solver has taken part."""
    bound: float
    """Lower bound of the objective over the planned jobs."""
    limit_hit: bool = False
    """Whether a limit ended the search."""


def certify(
    model: str,
    objective: str,
    value: float,
    result: Result,
    budget: Budget,
    *,
    whole: bool,
    placed: bool = True,
    regime: str = "deterministic",
) -> Certificate:
    """The certificate of a decision.

    Parameters
    ----------
    value : float
        Objective of the decision.
    result : Result
        Of the plan that the decision comes from.
    whole : bool
        Whether the decision has every job of the plan; without this the bound does not hold for it.
    placed : bool
        Whether every job of the plan has nodes; without this the proof is one of pooled capacity.
    """
    bound = min(result.bound, value) if whole else None
    proven = bound is not None and value - bound <= OPTIMAL_GAP * max(1.0, value)
    best = "optimal" if placed else "pooled-optimal"
    unproven = "heuristic" if result.status == "heuristic" else "feasible"
    budget.lap("answer")
    return Certificate(
        model, objective, best if proven else unproven, value, bound,
        budget.phases_ms, result.limit_hit, regime,
    )  # fmt: skip
