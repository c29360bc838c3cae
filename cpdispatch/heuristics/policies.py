"""Orders of the queue: index policies, ranked by a compiled kernel.

A policy gives each queued job a key; jobs are taken by ascending key, ties by submission, then id.
Jobs of a higher tier come before those of lower ones, whatever their keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from cpdispatch.arrays import BoolArray, FloatArray, IntArray, sealed
from cpdispatch.compile import allocating, inlined, is_compiled, kernel
from cpdispatch.errors import UsageError, unknown
from cpdispatch.heuristics import limits
from cpdispatch.heuristics.kernels import ascending
from cpdispatch.jobs import EXPECTED, ID, PRIORITY, REQUEST, REQUESTED, SUBMIT, TIER, UNITS
from cpdispatch.own import FAILS

_OWN, _SMALL, _RISK, _PRIORITY = 20, 21, 22, 23
_LARGEST_FIRST = (1, 3, 5, 7, 8, 11)
_NEGATIVE = (*_LARGEST_FIRST, 12, 13)
"""Policies whose keys are 0 or less; the keys of all other named policies are 0 or more."""
_LEAST, _MOST, _BEYOND = 2.0**-300, 2.0**260, 2.0**750
"""Keys are 0 or between the first two; the least times the last is more than the most."""
NO_THRESHOLD = int(np.iinfo(np.int64).max)
_LATE_TIER = int(np.iinfo(np.int64).max)
FIRST_KEY = float(np.finfo(np.float64).min)
"""The least key that a policy may give: only jobs past a threshold come before it."""

Score = Callable[[float, float, float, float], float]
"""A user's own policy: (expected duration s, processors, submission s, now s) -> key."""


class Policy(IntEnum):
    """Kinds of keys, see `SUMMARIES`; p: expected duration, q: processors, r: submission.

    Processors are units times the request of the system's first resource type, at least 1; p
    is at least 1 s, and so is r where its logarithm is taken. Within the classes of `SMALL` p is
    the requested time, since all small jobs are expected to take about as long; r is at least 0.

    References
    ----------
    The first twelve: Lelong, Reis, Trystram, "Tuning EASY-Backfilling Queues", JSSPP 2017, section
    3. WFP3, UNICEF: Tang, Lan, Desai, Buettner, "Fault-aware, utility-based job scheduling on Blue
    Gene/P systems", CLUSTER 2009. F1 to F4: Carastan-Santos, de Camargo, "Obtaining dynamic
    scheduling policies with simulation and machine learning", SC'17. Lin to Qua: Rosa,
    Carastan-Santos, Goldman, "An experimental analysis of regression-obtained HPC scheduling
    heuristics", JSSPP 2023, table 3.
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
    WFP3 = 12
    UNICEF = 13
    F1 = 14
    F2 = 15
    F3 = 16
    F4 = 17
    POLYNOMIAL = 18
    MIX = 19
    OWN = 20
    SMALL = 21
    RISK = 22
    PRIORITY = 23


TERMS = (
    "1", "p", "q", "r", "p^2", "q^2", "r^2", "pq", "p^3", "q^3", "r^3", "p^2 q", "p q^2",
    "p^4", "q^4", "r^4", "p^3 q", "p^2 q^2", "p q^3",
)  # fmt: skip
"""Terms of a polynomial policy."""

NUMBER_MAX = 1e100
"""Weights and coefficients beyond it would make keys of jobs infinite, and so alike."""
FEATURES = ("processors", "expected", "wait", "ratio", "expansion", "area")
"""Features of a mixed policy: q, p, the wait so far, p / q, (wait + p) / p, p q."""

_PUBLISHED = {
    "lin": (3.24e-2, 1.15e-7, 2.61e-5, -1.57e-7),
    "qdr": (3.70e-2, 2.65e-7, -3.05e-5, -3.96e-7, -3.04e-12, 1.17e-7, 2.75e-12, 6.77e-10),
    "cub": (3.33e-2, 2.83e-7, 8.71e-5, -5.83e-7, -6.33e-14, -5.06e-7, 6.78e-12, -6.02e-10,
            -7.55e-18, 7.05e-10, -2.14e-17, -2.72e-14, 9.52e-12),
    "qua": (4.83e-2, -6.42e-7, -2.40e-4, -6.50e-7, 1.66e-11, 2.41e-6, 8.81e-12, 1.14e-8,
            -2.03e-16, -9.52e-9, -4.67e-17, 9.29e-15, -7.94e-11, 9.34e-22, 1.36e-11, 9.84e-23,
            -9.07e-19, 1.89e-16, 1.55e-13),
}  # fmt: skip
_CHANGES = frozenset({Policy.LEXP, Policy.SEXP, Policy.WFP3, Policy.UNICEF, Policy.MIX, Policy.OWN})


@dataclass(frozen=True)
class Order:
    """A policy with its parameters."""

    policy: Policy
    weights: tuple[float, ...] = ()
    """Coefficients of `TERMS` of a polynomial, weights of `FEATURES` of a mix, the width of `risk`,
    the policy within each class of `small`; else empty.
    """
    own: Score | None = None
    """The user's `Score` behind `Policy.OWN`: a Python function, or one that numba has compiled."""
    name: str = field(default="", compare=False)
    """Name in messages."""

    def __getstate__(self) -> dict[str, Any]:
        """What it was made of: a pickle forgets that the vector is sealed."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def vector(self) -> FloatArray:
        """The weights as kernels take them."""
        return sealed(np.array(self.weights, dtype=np.float64))

    @cached_property
    def number(self) -> int:
        """The policy as kernels take it: they recognise an enumeration in 20 us, this in 2."""
        return int(self.policy)

    @cached_property
    def plain(self) -> bool:
        """Whether `rank` needs nothing but the block of the jobs."""
        return type(self) is Order and self.policy not in (Policy.OWN, Policy.RISK)

    @property
    def changes(self) -> bool:
        """Whether keys change while jobs wait."""
        return self.policy in _CHANGES or (
            self.policy == Policy.SMALL and Policy(int(self.weights[0])) in _CHANGES
        )

    @property
    def compiled(self) -> bool:
        """Whether a kernel can compute the keys."""
        return self.own is None or is_compiled(self.own)

    def rank(self, now: int, block: IntArray, threshold_s: int = NO_THRESHOLD) -> IntArray:
        """Positions of the jobs of a block in this order, shape (jobs,).

        Jobs that have waited longer than ``threshold_s`` come first, by submission; then those of
        the highest tier, by key.

        Raises
        ------
        UsageError
            When the user's policy raises, or returns no number, for a job: it is named.
        """
        # An enum costs the compiled function 20 us to recognise, an int a tenth of one.
        if self.own is None:
            is_risk = self.policy == Policy.RISK
            cautious_s = sealed(limits.cautious_s(block)) if is_risk else block[EXPECTED]
            return rank(int(self.policy), self.vector, now, block, cautious_s, threshold_s)
        key = np.array([self._score(block[:, j], now) for j in range(block.shape[1])])
        np.maximum(key, FIRST_KEY, out=key)
        if threshold_s != NO_THRESHOLD:
            key[now - block[SUBMIT] > threshold_s] = -np.inf
        return by_tier(np.argsort(key, kind="stable"), block[TIER], key == -np.inf)

    def _score(self, job: IntArray, now: int) -> float:
        assert self.own is not None
        expected, submit = float(max(job[EXPECTED], 1)), float(job[SUBMIT])
        processors = float(max(job[UNITS] * job[REQUEST], 1))
        try:
            key = float(self.own(expected, processors, submit, float(now)))
        except FAILS as error:
            raise self.failed(int(job[ID]), f"raised {error!r}") from error
        if math.isnan(key):
            raise self.failed(int(job[ID]), "returned nan")
        return key

    def failed(self, job: int, what: str) -> UsageError:
        """The error of a user's policy that has no key for a job."""
        return UsageError(
            f"policy {self.name} {what} for job {job}: it must return a number for every job, "
            "given its expected duration, its processors, its submission and the time now"
        )


SUMMARIES = {
    "fcfs": "first come, first served",
    "lcfs": "last come, first served",
    "spf": "shortest expected duration p first",
    "lpf": "longest expected duration p first",
    "sqf": "fewest processors q first",
    "lqf": "most processors q first",
    "saf": "smallest area p q first",
    "laf": "largest area p q first",
    "lexp": "largest expansion factor (wait + p) / p first",
    "sexp": "smallest expansion factor (wait + p) / p first",
    "srf": "smallest ratio p / q first",
    "lrf": "largest ratio p / q first",
    "priority": "highest priority of the site first",
    "small": "jobs expected to end before their requested time first; small+P: each class by P",
    "wfp3": "smallest -(wait / p)^3 q first: long waits for the length, many processors",
    "unicef": "smallest -wait / (log2(q) p) first: long waits, few processors, short jobs",
    "f1": "smallest log10(p) q + 870 log10(r) first (learned; r: submission)",
    "f2": "smallest sqrt(p) q + 25,600 log10(r) first (learned)",
    "f3": "smallest p q + 6,860,000 log10(r) first (learned)",
    "f4": "smallest p sqrt(q) + 530,000 log10(r) first (learned)",
    "lin": "smallest value of a learned linear polynomial of p, q and r first",
    "qdr": "the same with a quadratic polynomial",
    "cub": "the same with a cubic polynomial",
    "qua": "the same with a quartic polynomial",
}
"""What each policy puts first, by name."""


def find(name: str) -> Order:
    """The policy of this name, in any case; ``small+P`` is ``small`` with P within each class.

    Raises
    ------
    UsageError
        When there is none; the message suggests the nearest.
    """
    known = name.lower()
    first, plus, within = known.partition("+")
    if first == "small":
        return _small(within if plus else "fcfs", known)
    if plus:
        raise UsageError(
            f"policy {known}: only small has another policy in each class, for example small+spf"
        )
    if known in _PUBLISHED:
        terms = _PUBLISHED[known]
        return Order(Policy.POLYNOMIAL, terms + (0.0,) * (len(TERMS) - len(terms)), name=known)
    if known not in SUMMARIES:
        raise unknown("policy", known, SUMMARIES)
    return Order(Policy[known.upper()], name=known)


def _small(within: str, name: str) -> Order:
    other = ("small", "priority", *_PUBLISHED)
    known = [each for each in SUMMARIES if each not in other]
    if within not in known:
        raise unknown("policy after small+", within, known)
    return Order(Policy.SMALL, (float(Policy[within.upper()]),), name=name)


def mix(weights: Mapping[str, float]) -> Order:
    """The policy that takes the smallest weighted sum of `FEATURES` first.

    Raises
    ------
    UsageError
        On an unknown feature, a weight that is no finite number, or weights that are all 0.
    """
    return Order(Policy.MIX, _numbers(weights, FEATURES, "feature", "weight"), name="mix")


def polynomial(coefficients: Mapping[str, float]) -> Order:
    """The policy that takes the smallest polynomial of p, q and r first, see `TERMS`.

    Raises
    ------
    UsageError
        On an unknown term, a coefficient that is no finite number, or coefficients all 0.
    """
    numbers = _numbers(coefficients, TERMS, "term", "coefficient")
    return Order(Policy.POLYNOMIAL, numbers, name="polynomial")


def risk(width: float) -> Order:
    """The policy of `best`: the smallest sqrt(p u) q^width first, u the cautious duration."""
    return Order(Policy.RISK, (width,), name="risk")


def own(function: Score, name: str) -> Order:
    """The policy of a user's own function, see `Score`."""
    return Order(Policy.OWN, own=function, name=name)


def _numbers(
    given: Mapping[str, Any], names: tuple[str, ...], what: str, kind: str
) -> tuple[float, ...]:
    for name, value in given.items():
        if name not in names:
            raise unknown(what, name, names)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{kind} of {name}: {value!r} is not a number")
        if not -NUMBER_MAX <= value <= NUMBER_MAX:
            raise UsageError(
                f"{kind} of {name}: {value!r} is no number from {-NUMBER_MAX:g} to {NUMBER_MAX:g}"
            )
    numbers = tuple(float(given.get(name, 0.0)) for name in names)
    if not any(numbers):
        raise UsageError(f"every {kind} is 0: such a policy orders nothing; give one that is not")
    return numbers


# ------------------------------------------------------------------------------- kernels


@kernel
def _polynomial(w: FloatArray, p: float, q: float, r: float) -> float:
    value = w[0] + w[1] * p + w[2] * q + w[3] * r
    value += w[4] * p**2 + w[5] * q**2 + w[6] * r**2 + w[7] * p * q
    value += w[8] * p**3 + w[9] * q**3 + w[10] * r**3 + w[11] * p**2 * q + w[12] * p * q**2
    value += w[13] * p**4 + w[14] * q**4 + w[15] * r**4
    return float(value + w[16] * p**3 * q + w[17] * p**2 * q**2 + w[18] * p * q**3)


@allocating
def key_of_own(own: Any, p: float, q: float, submit: float, now: float) -> float:
    """Key of one job under a user's compiled `Score`, which may make arrays."""
    return float(own(p, q, submit, now))


@inlined
def key_of(
    policy: int, weights: FloatArray, now: int, submit: int, p: float, q: float, requested: int,
    own: Any,
) -> float:  # fmt: skip
    """Key of one job under a policy; ``own`` is a user's compiled `Score` or None."""
    wait, r = float(now - submit), float(submit)
    if own is not None and policy == _OWN:
        return key_of_own(own, p, q, r, float(now))
    small, by_class = p < requested, policy == _SMALL
    if by_class:
        policy, p, r = int(weights[0]), float(max(requested, 1)), max(r, 0.0)
    if policy <= 1:
        key = r
    elif policy <= 3:
        key = p
    elif policy <= 5:
        key = q
    elif policy <= 7:
        key = p * q
    elif policy <= 9:
        key = (wait + p) / p
    elif policy <= 11:
        key = p / q
    elif policy == 12:
        key = -((wait / p) ** 3) * q
    elif policy == 13:
        # One processor divides by log2(1) = 0: such jobs come first as soon as they have waited.
        key = -wait / (np.log2(q) * p) if q > 1.0 else (-np.inf if wait > 0.0 else 0.0)
    elif policy == 14:
        key = np.log10(p) * q + 870.0 * np.log10(max(r, 1.0))
    elif policy == 15:
        key = np.sqrt(p) * q + 25_600.0 * np.log10(max(r, 1.0))
    elif policy == 16:
        key = p * q + 6_860_000.0 * np.log10(max(r, 1.0))
    elif policy == 17:
        key = p * np.sqrt(q) + 530_000.0 * np.log10(max(r, 1.0))
    elif policy == 18:
        key = _polynomial(weights, p, q, r)
    else:
        w = weights
        key = w[0] * q + w[1] * p + w[2] * wait
        key += w[3] * (p / q) + w[4] * ((wait + p) / p) + w[5] * (p * q)
    key = -key if policy in _LARGEST_FIRST else key
    if by_class and small == (policy in _NEGATIVE):
        # Beyond the keys of the other class, by a power of two: no digit is lost.
        key = (key - _LEAST if small else key + _LEAST) * _BEYOND
    elif by_class:
        key = max(key, -_MOST)
    return float(key)


@inlined
def risk_of(weights: FloatArray, p: float, q: float, cautious_s: int) -> float:
    """Key of one job under `risk`."""
    return float(np.sqrt(p * cautious_s) * q ** weights[0])


@allocating
def by_tier(order: IntArray, tier: IntArray, late: BoolArray) -> IntArray:
    """An order with the late jobs first, then those of higher tiers; else as it is.

    Parameters
    ----------
    order : int64 array, shape (ranked,)
        Positions of jobs.
    tier : int64 array, shape (jobs,)
    late : bool array, shape (jobs,)
    """
    alike = True
    for j in order:
        alike = alike and tier[j] == tier[order[0]]
    if alike:
        return order
    below = np.empty(order.shape[0], dtype=np.int64)
    for k in range(order.shape[0]):
        below[k] = -_LATE_TIER if late[order[k]] else -tier[order[k]]
    return order[ascending(below)]


@allocating
def rank(
    policy: int,
    weights: FloatArray,
    now: int,
    block: IntArray,
    cautious_s: IntArray,
    threshold_s: int,
) -> IntArray:
    """Positions of the jobs in the order of a policy, see `Order.rank`.

    The cautious durations, shape (jobs,), are looked at by `risk` alone.
    """
    jobs = block.shape[1]
    key = np.empty(jobs, dtype=np.float64)
    ascends = True
    for j in range(jobs):
        submit = block[SUBMIT, j]
        p = float(max(block[EXPECTED, j], 1))
        q = float(max(block[UNITS, j] * block[REQUEST, j], 1))
        late = threshold_s != NO_THRESHOLD and now - submit > threshold_s
        requested = block[REQUESTED, j]
        if late:
            key[j] = -np.inf
        elif policy == _RISK:
            key[j] = risk_of(weights, p, q, cautious_s[j])
        elif policy == _PRIORITY:
            key[j] = -float(block[PRIORITY, j])
        else:
            key[j] = max(key_of(policy, weights, now, submit, p, q, requested, None), FIRST_KEY)
        ascends = ascends and (j == 0 or key[j - 1] <= key[j])
    order = np.arange(jobs) if ascends else ascending(key)
    return by_tier(order, block[TIER], key == -np.inf)
