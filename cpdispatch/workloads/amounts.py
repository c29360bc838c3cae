"""How many jobs are made, by which seed, at which load: what is out of range is named."""

from __future__ import annotations

from cpdispatch.errors import UsageError
from cpdispatch.parameters import whole
from cpdispatch.workloads.clock import DAYS_MAX

LOAD_MAX = 100
JOBS_MAX = 50_000_000
"""Most jobs that are made: a mistyped number must not ask for more memory than there is."""


def check(jobs: int, seed: int, load: float | None, least: int = 1) -> None:
    """Raise when a number is out of range.

    Parameters
    ----------
    load : float, optional
        The offered load.
    least : int
        Fewest jobs that can be made.

    Raises
    ------
    UsageError
        Of the first number that is.
    """
    whole("jobs", jobs, least, JOBS_MAX)
    whole("seed", seed)
    if load is not None and not 0 < load <= LOAD_MAX:
        raise UsageError(f"load {load:g}: a number above 0, {LOAD_MAX} at most, is needed")


def check_days(jobs: int, per_day: float) -> None:
    """Raise when so many jobs a day would be submitted over too many days.

    Raises
    ------
    UsageError
        When they would.
    """
    if jobs > DAYS_MAX * per_day:
        raise UsageError(
            f"{jobs} jobs at {per_day:.3g} a day would take longer than {DAYS_MAX:,} days: ask for "
            "fewer jobs or a higher load"
        )
