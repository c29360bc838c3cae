from __future__ import annotations

import doctest
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.analyze import difference as module
from cpdispatch.analyze.difference import difference, interval
from cpdispatch.errors import UsageError
from tests.effort import examples

Pairs = list[tuple[int, int]]


def rejected(pairs: Pairs, ratio: Fraction) -> bool:
    """Whether flipping signs in all ways finds a ratio too small, or too large, at 2.5 % each."""
    apart = [a * ratio.denominator - b * ratio.numerator for a, b in pairs]
    flips = list(product((1, -1), repeat=len(pairs)))
    sums = [sum(s * x for s, x in zip(signs, apart, strict=True)) for signs in flips]
    above = sum(value >= sum(apart) for value in sums)
    below = sum(value <= sum(apart) for value in sums)
    return 40 * min(above, below) <= len(flips)


def near(pairs: Pairs) -> Iterator[Fraction]:
    """Ratios at which the answer may change, and some between them."""
    found = {
        Fraction(a, b)
        for taken in product((0, 1), repeat=len(pairs))
        if (b := sum(t * of for t, (_, of) in zip(taken, pairs, strict=True)))
        for a in [sum(t * of for t, (of, _) in zip(taken, pairs, strict=True))]
    }
    ends = sorted(found)[:4] + sorted(found)[-4:]
    yield from ends
    yield from ((low + high) / 2 for low, high in pairwise(ends))


numbers = st.integers(0, 40)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=6, max_size=8))
def test_the_interval_is_all_ratios_that_no_test_by_sign_flips_rejects(pairs: Pairs) -> None:
    low, high = interval(*np.array(pairs, dtype=np.float64).T)
    for ratio in near(pairs):
        assert (low <= float(ratio) <= high) == (not rejected(pairs, ratio))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=6, max_size=8))
def test_a_difference_stands_where_the_test_by_sign_flips_rejects_that_there_is_none(
    pairs: Pairs,
) -> None:
    a, b = zip(*pairs, strict=True)
    found = difference(a, b)
    assert found.ratio == sum(a) / sum(b)
    assert found.stands == rejected(pairs, Fraction(1))
    if found.stands:
        assert found.says == ("higher" if sum(a) > sum(b) else "lower")
    else:
        assert found.says == ("the same" if a == b else "within noise")
    other = difference(b, a)
    assert other.stands == found.stands


def test_many_pairs_have_nearly_the_interval_of_all_their_subsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(5)
    b = generator.lognormal(2, 0.4, 15)
    a = b * generator.lognormal(-0.5, 0.3, 15)
    drawn = interval(a, b)
    assert interval(a, b) == drawn
    monkeypatch.setattr(module, "_ALL_SUBSETS_OF", 15)
    every = interval(a, b)
    assert every != drawn
    assert drawn == pytest.approx(every, rel=0.02)
    monkeypatch.undo()
    monkeypatch.setattr(module, "_CELLS", 15 * 100)
    assert interval(a, b) == drawn


@pytest.mark.parametrize("pairs", [6, 10, 30])
def test_dispatchers_that_do_not_differ_are_told_apart_once_in_twenty_times(pairs: int) -> None:
    generator = np.random.default_rng(pairs)
    told = 0
    for _ in range(600):
        common = generator.lognormal(3, 1, pairs)
        a, b = common * generator.lognormal(0, 0.5, (2, pairs))
        told += difference(a, b).stands
    assert 600 * 0.015 < told < 600 * 0.08


def test_fewer_than_six_pairs_claim_nothing() -> None:
    found = difference([1] * 5, [100] * 5)
    assert (found.ratio, found.low, found.high, found.stands) == (0.01, None, None, False)
    assert str(found) == "0.01 (in 5 draws): too few to tell it from noise"
    assert difference([3], [2], "weeks").counted == "1 week"
    assert difference([1] * 6, [100] * 6, "weeks").stands


@pytest.mark.parametrize(
    ("values", "first", "text"),
    [
        ([4] * 6, [10] * 6, "0.40 (0.40 to 0.40 in 6 draws): lower"),
        ([30] * 6, [10] * 6, "3.00 (3.00 to 3.00 in 6 draws): higher"),
        ([7] * 6, [7] * 6, "1.00 (1.00 to 1.00 in 6 draws): the same"),
        ([9, 11] * 3, [10] * 6, "1.00 (0.90 to 1.10 in 6 draws): within noise"),
        ([1001] * 6, [1000] * 6, "1.0010 (1.0010 to 1.0010 in 6 draws): higher"),
    ],
)
def test_a_difference_reads_as_a_sentence_s_end(
    values: Sequence[float], first: Sequence[float], text: str
) -> None:
    assert str(difference(values, first)) == text


@pytest.mark.parametrize(
    ("values", "first"),
    [([], []), ([1], [1, 2]), ([1, -1], [1, 1]), ([1, float("nan")], [1, 1]), ([1], [np.inf])],
)
def test_what_is_no_pair_of_figures_is_refused(
    values: Sequence[float], first: Sequence[float]
) -> None:
    with pytest.raises(UsageError):
        difference(values, first)


def test_figures_that_are_all_zero_do_not_differ() -> None:
    assert difference([0] * 6, [0] * 6).says == "the same"
    found = difference([0, 0, 0, 0, 0, 5], [0, 0, 0, 0, 0, 5])
    assert str(found) == "1.00 (1.00 to 1.00 in 6 draws): the same"
    assert difference([0, 0, 0, 0, 0, 5], [0] * 6).says == "within noise"


def test_the_examples_of_the_docstrings_hold() -> None:
    assert doctest.testmod(module).failed == 0
