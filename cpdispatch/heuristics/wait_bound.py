"""A bound on waits by the site's own measure: the longest wait that EASY would have led to."""

from __future__ import annotations

from dataclasses import dataclass

from cpdispatch.instance import Starvation


@dataclass(frozen=True, slots=True)
class WaitBound:
    """How long jobs may wait, relative to the longest wait under EASY so far.

    Attributes
    ----------
    in_turn_after : int
        After so many thousandths of it, a job comes before all that have not waited so long.
        After the whole of it, it also comes first when jobs are backfilled.
    wide : int
        Wide jobs find room less easily: for a job that asks for the whole system both times are
        shorter by so many thousandths, for one that asks for half of it by half as many.

    Notes
    -----
    How far it holds on public logs and cuts of them: docs/quality.md.
    """

    in_turn_after: int = 600
    wide: int = 700

    def at(self, longest_s: int) -> Starvation:
        """The bound on the waits in an instance.

        Parameters
        ----------
        longest_s : int
            The longest wait that EASY would have led to so far, seconds.
        """
        threshold_s = longest_s * self.in_turn_after // 1000
        return Starvation(threshold_s, longest_s - threshold_s, self.wide)
