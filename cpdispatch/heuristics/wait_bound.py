"""A bound on waits by the site's own measure: the longest wait that EASY would have led to."""

from __future__ import annotations

from dataclasses import dataclass

from cpdispatch.instance import Starvation


@dataclass(frozen=True, slots=True)
class WaitBound:
    """How long jobs may wait, relative to the longest wait under EASY so far.

    Notes
    -----
    docs/quality.md says how well the bound is kept on public logs and on cuts of them.
    """

    in_turn_after: int = 600
    """Thousandths of that longest wait.

    A job that has waited for longer comes before all jobs that have not. A job that has waited for
    the whole longest wait also comes first when jobs are backfilled.
    """
    wide: int = 700
    """Thousandths by which both times are shorter for a job that asks for the whole system; for a
    job that asks for half of it they are shorter by half as many. Wide jobs find room less easily.
    """

    def at(self, longest_s: int) -> Starvation:
        """The bound on the waits in an instance.

        Parameters
        ----------
        longest_s : int
            The longest wait that EASY would have led to so far, seconds.
        """
        threshold_s = longest_s * self.in_turn_after // 1000
        return Starvation(threshold_s, longest_s - threshold_s, self.wide)
