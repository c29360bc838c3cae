"""What a difference means: a figure under two dispatchers, paired over draws or over weeks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import FloatArray
from cpdispatch.errors import UsageError

CONFIDENCE = 0.95
PAIRS_MIN = 6
"""Fewer pairs have too few subsets for an interval of this confidence."""
LOWER, HIGHER, SAME, NOISE, TOO_FEW = "lower", "higher", "the same", "within noise", "too few"
_ALL_SUBSETS_OF = 13
_SUBSETS_DRAWN = 9_999
_CELLS = 1 << 20


@dataclass(frozen=True, slots=True)
class Difference:
    """How many times as large a figure is as that of another dispatcher, and whether that stands.

    Attributes
    ----------
    ratio : float
        The quotient of the two sums over all pairs.
    low, high : float or None
        The 95 % interval of the ratio; None where there are fewer than `PAIRS_MIN` pairs, and 1
        where the two values of each pair are the same.
    pairs : int
    over : str
        What is paired: draws or weeks.
    says : {"lower", "higher", "the same", "within noise", "too few"}
        A difference stands, and is lower or higher, if 1 is outside of the interval.
    """

    ratio: float
    low: float | None
    high: float | None
    pairs: int
    over: str
    says: str

    @property
    def stands(self) -> bool:
        """Whether it is more than noise."""
        return self.says in (LOWER, HIGHER)

    @property
    def counted(self) -> str:
        """How many pairs there are, as 1 week or 10 draws."""
        return f"{self.pairs} {self.over.removesuffix('s') if self.pairs == 1 else self.over}"

    @property
    def told(self) -> tuple[str, ...]:
        """The ratio and the ends of its interval as they read, with more digits near 1."""
        ends = [end for end in (self.low, self.high) if end is not None]
        digits = 4 if any(0 < abs(end - 1) < 0.005 for end in ends) else 2
        return tuple(f"{value:.{digits}f}" for value in (self.ratio, *ends))

    def __str__(self) -> str:
        ratio, *ends = self.told
        if not ends:
            return f"{ratio} (in {self.counted}): too few to tell it from noise"
        low, high = ends
        return f"{ratio} ({low} to {high} in {self.counted}): {self.says}"


def difference(
    values: Sequence[float], values_first: Sequence[float], over: str = "draws"
) -> Difference:
    """Compare a figure under a dispatcher with the same under another one, pair by pair.

    Let a and b be the values of a pair, R the true ratio. If a - R b is as likely to be positive
    as to be negative by the same amount in each pair, independently of the other pairs, then the
    quotient of the sum of a by the sum of b over any set of pairs is as likely to be above R as
    below it. The 95 % interval is what remains of these quotients without the lowest and the
    highest 2.5 %. It is the set of all R that the test by sign flips of a - R b does not reject.

    Parameters
    ----------
    values, values_first : sequence of float, of the same length
        The figure in each draw under both, 0 or more. Over weeks: the mean of each week times the
        jobs of the week.
    over : str
        What is paired, in the plural.

    Returns
    -------
    Difference

    Raises
    ------
    UsageError
        When there are no pairs, the lengths differ, or a value is negative or not finite.

    Notes
    -----
    Up to 13 pairs all sets are formed. Of more pairs, 9,999 sets are drawn, always the same ones.

    References
    ----------
    J. A. Hartigan, "Using subsample values as typical values", Journal of the American Statistical
    Association 64 (1969).

    Examples
    --------
    >>> easy = [19.4, 21.0, 18.7, 20.2, 22.9, 19.9]
    >>> spf = [5.3, 5.6, 5.2, 5.1, 6.0, 5.2]
    >>> print(difference(spf, easy))
    0.27 (0.25 to 0.28 in 6 draws): lower
    """
    a, b = (np.asarray(of, dtype=np.float64) for of in (values, values_first))
    if len(a) != len(b) or not len(a):
        raise UsageError(f"{len(a)} and {len(b)} values: pairs are needed, at least one")
    if not (np.isfinite(a).all() and np.isfinite(b).all() and min(a.min(), b.min()) >= 0):
        raise UsageError("a difference needs finite values of 0 or more")
    ratio = float(quotients(a.sum(), b.sum(), nothing=1.0))
    if len(a) < PAIRS_MIN:
        return Difference(ratio, None, None, len(a), over, TOO_FEW)
    if (a == b).all():
        return Difference(1.0, 1.0, 1.0, len(a), over, SAME)
    low, high = interval(a, b)
    says = LOWER if high < 1 else HIGHER if low > 1 else NOISE
    return Difference(ratio, low, high, len(a), over, says)


def interval(values: FloatArray, values_first: FloatArray) -> tuple[float, float]:
    """The interval of `difference`; of `PAIRS_MIN` pairs or more, shape (pairs,) each."""
    sums, sums_first = _sums_of_subsets(np.stack((values, values_first), axis=1)).T
    # A set in which both sums are 0 is no evidence for either side.
    lowest = np.sort(quotients(sums, sums_first, nothing=0.0))
    highest = np.sort(quotients(sums, sums_first, nothing=np.inf))
    outside = int((1 - CONFIDENCE) / 2 * (len(sums) + 1) + 1e-9)
    return float(lowest[outside - 1]), float(highest[-outside])


def quotients(above: FloatArray, below: FloatArray, nothing: float) -> FloatArray:
    """Quotients of numbers that are 0 or more; by 0 infinite, and ``nothing`` of 0 by 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.divide(above, below)
    return np.where(np.isnan(found), nothing, found)


def _sums_of_subsets(values: FloatArray) -> FloatArray:
    """Sums over subsets of the rows, shape (subsets, columns); not over the empty one."""
    rows = len(values)
    if rows <= _ALL_SUBSETS_OF:
        number = np.arange(1, 1 << rows)
        return np.asarray((number[:, None] >> np.arange(rows) & 1) @ values)
    generator = np.random.default_rng(0)
    at_once = max(_CELLS // rows, 1)
    return np.concatenate([
        generator.integers(0, 2, (min(at_once, _SUBSETS_DRAWN - begin), rows)) @ values
        for begin in range(0, _SUBSETS_DRAWN, at_once)
    ])  # fmt: skip
