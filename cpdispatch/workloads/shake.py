"""Draws of a log: the same jobs, submitted up to a minute later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdispatch.jobs import Column, Workload
from cpdispatch.parameters import whole

SHIFT_S = 60
"""Submissions are later by fewer seconds than these."""
DRAWS_MAX = 10_000
"""Most draws: a mistyped number must not ask for more memory than there is."""


def shaken(workload: Workload, draw: int) -> Workload:
    """A draw of a workload: submissions are later by 0 to 59 s, at random.

    The jobs keep their order, and with it their rows: the shifted times are sorted, so that the
    k-th job has the k-th of them. It is still no more than 59 s later than it was. All else is the
    same and shares its memory with the workload: a job comes after the same job, after the same
    think time.

    Parameters
    ----------
    workload : Workload
    draw : int
        Seed of the generator; 0 is the workload as it is.

    Returns
    -------
    Workload

    Raises
    ------
    UsageError
        When the draw is no whole number, or negative.

    References
    ----------
    D. Tsafrir, K. Ouaknine, D. G. Feitelson, "Reducing performance evaluation sensitivity and
    variability by input shaking", MASCOTS 2007.

    Examples
    --------
    >>> from cpdispatch.workloads import from_table
    >>> columns = {"id": [1, 2], "submit": [0, 5], "runtime": [60, 30], "units": 1, "core": [4, 2]}
    >>> workload = from_table(columns)
    >>> shaken(workload, 1).table.submit_s.tolist()
    [28, 35]
    >>> shaken(workload, 0) is workload
    True
    """
    if whole("draw", draw) == 0:
        return workload
    later_s = np.random.default_rng(draw).integers(0, SHIFT_S, len(workload))
    submit_s = np.sort(workload.table.submit_s + later_s)
    return replace(workload, table=workload.table.having(Column.SUBMIT, submit_s))
