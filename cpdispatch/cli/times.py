"""Times of a run as people name them: dates where its log has some, else seconds of its clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cpdispatch.errors import UsageError

if TYPE_CHECKING:
    from cpdispatch.simulator import Run


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one run.

    Attributes
    ----------
    began_s : int or None
        When the clock of its log was 0, in seconds since 1970; None where that is unknown.
    """

    began_s: int | None

    @classmethod
    def of(cls, run: Run) -> Times:
        """Those of a run; one of an earlier version has no dates."""
        return cls(run.about.get("began_s"))

    def cell(self, at_s: int) -> str:
        """A time in a column of a table, see `column`."""
        from cpdispatch.durations import YEAR_10000_S

        if self.began_s is None or not 0 <= self.began_s + at_s < YEAR_10000_S:
            return str(at_s)
        return f"{datetime.fromtimestamp(self.began_s + at_s, UTC):%Y-%m-%dT%H:%M:%S}"

    def column(self, name: str) -> str:
        """The name of a column of times."""
        return f"{name} s" if self.began_s is None else name

    def said(self, at_s: int) -> str:
        """A time in a sentence: its date, and the seconds that other files have for it."""
        cell = self.cell(at_s)
        if cell == str(at_s):
            return f"{cell} s"
        return f"{cell} UTC ({at_s} s)" if self.began_s else f"{cell} UTC"

    def read(self, text: str) -> int:
        """The time that somebody names: a number of seconds, or a date.

        Raises
        ------
        UsageError
            When it is neither, or a date in a run whose log has none.
        """
        from cpdispatch.workloads.clock import moment_s

        try:
            return int(text)
        except ValueError:
            pass
        try:
            at_s = moment_s(text)
        except UsageError:
            raise UsageError(
                f"--at {text!r}: write seconds on the clock of the log, as 86400, or a date (UTC), "
                "as 2026-01-31 or 2026-01-31T12:00"
            ) from None
        if self.began_s is None:
            raise UsageError(
                f"--at {text}: the run does not say when its log began, so dates mean nothing in "
                "it; write seconds on the clock of the log"
            )
        return at_s - self.began_s
