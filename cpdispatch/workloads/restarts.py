"""Which jobs of a workload may be killed and queued again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cpdispatch.arrays import IntArray, compact
from cpdispatch.errors import UsageError
from cpdispatch.jobs import UNKNOWN, Column, Workload
from cpdispatch.parameters import whole

ALL, NONE = "all", "none"


def share_of(which: str) -> float | None:
    """The share of the users that some text means; None when it is the name of a column.

    Raises
    ------
    UsageError
        When it is a number that is no share.
    """
    if which in (ALL, NONE):
        return float(which == ALL)
    try:
        share = float(which)
    except ValueError:
        return None
    if not 0 <= share <= 1:
        raise UsageError(f"restartable {which}: write all, none, a share from 0 to 1, or a column")
    return share


def mark(workload: Workload, share: float, seed: int = 0) -> Workload:
    """The workload in which the jobs of a share of its users may be restarted.

    The users are put in an order that the seed draws. The first ones may restart their jobs, as
    many as are next to the share of their number. So a larger share has the users of a smaller
    one. A job whose user is unknown counts as a user of its own.

    Parameters
    ----------
    share : float
        From 0 to 1.

    Raises
    ------
    UsageError
        When the seed is no whole number from 0 on.
    """
    drawn = np.random.Generator(np.random.PCG64(whole("seed", seed))).permutation
    owner = _owners(workload.table.column(Column.USER))
    count = int(owner.max()) + 1
    marked = compact((drawn(count)[owner] < round(share * count)).astype(np.int64))
    return replace(workload, table=workload.table.having(Column.RESTARTABLE, marked))


def _owners(user: IntArray) -> IntArray:
    """Numbers of the jobs' users from 0 on; a number of its own for a job of an unknown user."""
    names, code = np.unique(user, return_inverse=True)
    owner: IntArray = code.reshape(-1).astype(np.int64)
    unknown = user == UNKNOWN
    owner[unknown] = len(names) + np.arange(np.count_nonzero(unknown))
    _, owner = np.unique(owner, return_inverse=True)
    return owner.reshape(-1)
