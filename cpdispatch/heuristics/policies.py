"""Orders of the queue: index policies, ranked by a compiled kernel.

A policy gives each queued job a key; jobs are taken by ascending key, ties by submission, then id.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import kernel
from cpdispatch.errors import unknown
from cpdispatch.jobs import Column

_SUBMIT, _UNITS, _EXPECTED = int(Column.SUBMIT), int(Column.UNITS), int(Column.EXPECTED)
_REQUEST = int(Column.REQUEST)
NO_THRESHOLD = int(np.iinfo(np.int64).max)


class Policy(IntEnum):
    """The twelve orders, see `SUMMARIES`: p is the expected duration, q the processors.

    Processors are units times the request of the system's first resource type, at least 1.

    References
    ----------
    Lelong, Reis, Trystram, "Tuning EASY-Backfilling Queues", JSSPP 2017, section 3.
    """

    FCFS = 0
    LCFS = 1
    SPF = 2
    LPF = 3
    SQF = 4
    LQF = 5
    SAF = 6
    LAF = 7
    LEXP = 8
    SEXP = 9
    SRF = 10
    LRF = 11


SUMMARIES = {
    Policy.FCFS: "first come, first served",
    Policy.LCFS: "last come, first served",
    Policy.SPF: "smallest expected processing time p first",
    Policy.LPF: "largest p first",
    Policy.SQF: "smallest number of processors q first",
    Policy.LQF: "largest q first",
    Policy.SAF: "smallest area p q first",
    Policy.LAF: "largest area first",
    Policy.LEXP: "largest expansion factor (wait + p) / p first",
    Policy.SEXP: "smallest expansion factor first",
    Policy.SRF: "smallest ratio p / q first",
    Policy.LRF: "largest ratio first",
}
"""What each policy puts first."""


def find(name: str) -> Policy:
    """The policy of this name, in any case.

    Raises
    ------
    UsageError
        When there is none; the message suggests the nearest.
    """
    try:
        return Policy[name.upper()]
    except KeyError:
        known = [policy.name.lower() for policy in Policy]
        raise unknown("policy", name.lower(), known) from None


@kernel
def keys(policy: int, now: int, block: IntArray) -> FloatArray:
    """Key of each job under a policy, shape (jobs,); see `Policy`."""
    jobs = block.shape[1]
    key = np.empty(jobs, dtype=np.float64)
    sign = -1.0 if policy in (1, 3, 5, 7, 8, 11) else 1.0
    for j in range(jobs):
        expected = float(max(block[_EXPECTED, j], 1))
        processors = float(max(block[_UNITS, j] * block[_REQUEST, j], 1))
        if policy <= 1:
            value = float(block[_SUBMIT, j])
        elif policy <= 3:
            value = expected
        elif policy <= 5:
            value = processors
        elif policy <= 7:
            value = expected * processors
        elif policy <= 9:
            value = (now - block[_SUBMIT, j] + expected) / expected
        else:
            value = expected / processors
        key[j] = sign * value
    return key


@kernel
def rank(policy: int, now: int, block: IntArray, threshold_s: int) -> IntArray:
    """Positions of the jobs in the order of a policy, shape (jobs,).

    Jobs that have waited longer than ``threshold_s`` come first, by submission.
    """
    key = keys(policy, now, block)
    if threshold_s != NO_THRESHOLD:
        for j in range(block.shape[1]):
            if now - block[_SUBMIT, j] > threshold_s:
                key[j] = -np.inf
    return np.argsort(key, kind="mergesort")
