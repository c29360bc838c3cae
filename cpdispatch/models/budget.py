"""The budget of one decision: the clock, counted work, and the time of each phase."""

from __future__ import annotations

from time import perf_counter

RESERVE_S = 0.005
"""Time that no search may use, for the work after it: decoding, allocation, checking."""


class Budget:
    """The remaining budget of a decision.

    In the live regime that is the time on the clock. In the deterministic one every phase has a
    price that does not depend on the machine's speed: the prices alone say what is done, and the
    clock ends the decision at its limit.

    Parameters
    ----------
    limit_s : float
        Of the clock.
    work_s : float, optional
        What may be spent in the deterministic regime, if that is less than the limit of the clock.
    """

    def __init__(self, limit_s: float, live: bool, work_s: float | None = None) -> None:
        self.limit_s, self.live = limit_s, live
        self.work_s = limit_s if work_s is None else work_s
        self.phases_ms: dict[str, float] = {}
        self._began = self._lap = perf_counter()
        self.spent_s = 0.0
        self._kept_s = RESERVE_S

    def lap(self, phase: str) -> None:
        """Charge the time since the last lap to a phase."""
        now = perf_counter()
        self.phases_ms[phase] = self.phases_ms.get(phase, 0.0) + (now - self._lap) * 1e3
        self._lap = now

    def keep(self, seconds: float) -> None:
        """Leave so much more time on the clock for the work after a search."""
        self._kept_s += seconds

    @property
    def until(self) -> float:
        """When the answer must be begun, on the clock of `perf_counter`."""
        return self._began + self.limit_s - self._kept_s

    @property
    def over(self) -> bool:
        """Whether the time on the clock is up."""
        return perf_counter() >= self.until

    @property
    def clock_s(self) -> float:
        """Remaining time on the clock, seconds; 0 or less when it is over."""
        return self.until - perf_counter()

    @property
    def left_s(self) -> float:
        """Remaining budget, seconds; 0 or less when it is spent.

        In the deterministic regime the clock has no say in it: see `over`.
        """
        return self.clock_s if self.live else self.unspent_s

    @property
    def unspent_s(self) -> float:
        """Remaining budget by the prices of counted work, seconds."""
        return self.work_s - RESERVE_S - self.spent_s

    def spend(self, seconds: float) -> None:
        """Charge a price, seconds."""
        self.spent_s += seconds
