"""What becomes of the expected end of a running job that has passed."""

from __future__ import annotations

import numpy as np

from cpdispatch.compile import inlined

MINIMAL, INCREMENTAL, REQUESTED = 0, 1, 2
CORRECTIONS = {
    "minimal": MINIMAL,
    "incremental": INCREMENTAL,
    "requested": REQUESTED,
    "refresh": INCREMENTAL,
}
"""The rules by name, see `corrected`; ``refresh`` asks the predictor first."""

INCREMENTS_S = np.array(
    [60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000], dtype=np.int64
)


@inlined
def corrected(now: int, correction: int, due: int, limit: int, step: int) -> tuple[int, int]:
    """New expected end of a job that runs on after its expected end, and its corrections so far.

    ``minimal``: 1 s from now. ``incremental``: 1, 5, 15, 30 min, 1, 2, 5, 10, 20, 50, 100 h more in
    turn. ``requested``: the requested time. The latter two go up to the requested time,
    then on like ``minimal``.

    Parameters
    ----------
    now, due, limit : int
        The time now, the expected end, and when the requested time is over, seconds.
    correction : int
        One of `CORRECTIONS`.
    step : int
        Corrections so far.

    References
    ----------
    Tsafrir, Etsion, Feitelson, "Backfilling using system-generated predictions rather than user
    runtime estimates", IEEE TPDS 2007.
    """
    if correction == MINIMAL or limit <= now:
        return now + 1, step
    if correction == REQUESTED:
        return limit, step
    while due <= now:
        due = min(due + INCREMENTS_S[min(step, INCREMENTS_S.shape[0] - 1)], limit)
        step += 1
    return due, step
