from __future__ import annotations

import numpy as np
import pytest

from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Column

pytest.importorskip("statsmodels")

from cpdispatch.learn.fit import FORMS, fit, inflation, term

RNG = np.random.default_rng(1)
P, Q, R = (RNG.integers(1, top, 500).astype(np.float64) for top in (40_000, 257, 70_000))


def test_terms_are_products_of_powers() -> None:
    p, q, r = np.array([2.0]), np.array([3.0]), np.array([5.0])
    names = ("1", "p", "pq", "p^2 q", "p q^2", "r^4", "p^2 q^2")
    assert [term(name, p, q, r)[0] for name in names] == [1, 2, 6, 12, 18, 625, 36]


@pytest.mark.parametrize("form", FORMS)
def test_a_fit_finds_the_coefficients_that_scores_were_made_of(form: str) -> None:
    planted = {
        name: 0.01 * (number + 1) / np.abs(term(name, P, Q, R)).max()
        for number, name in enumerate(FORMS[form])
    }
    score = sum(value * term(name, P, Q, R) for name, value in planted.items())
    found = fit(form, P, Q, R, score)
    for name, value in planted.items():
        assert found.coefficients[name] == pytest.approx(value, rel=1e-4), name
    assert found.absolute_error_mean == pytest.approx(0, abs=1e-9)


def test_errors_are_weighted_by_the_area() -> None:
    score = 0.03 + 1e-7 * P + RNG.normal(0, 0.001, 500)
    columns = np.stack([np.ones(500), P, Q, R], axis=1) * (P * Q)[:, None]
    wanted = np.linalg.lstsq(columns, score * P * Q)[0]
    found = fit("lin", P, Q, R, score)
    assert list(found.coefficients.values()) == pytest.approx(wanted.tolist(), rel=1e-6)
    variance = ((score * P * Q - columns @ wanted) ** 2).sum() / (500 - 4)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(columns.T @ columns)))
    assert list(found.errors.values()) == pytest.approx(errors.tolist(), rel=1e-5)


def test_the_policy_of_a_fit_takes_the_smallest_score_first() -> None:
    found = fit("lin", P, Q, R, 0.01 + 2e-7 * P)
    block = np.ones((Column.REQUEST + 1, 3), dtype=np.int64)
    block[Column.EXPECTED] = (300, 100, 200)
    assert found.order.rank(0, block).tolist() == [1, 2, 0]


def test_inflation_is_one_of_columns_that_have_nothing_in_common() -> None:
    columns = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    assert inflation(columns) == pytest.approx([1, 1])


def test_inflation_grows_with_what_the_others_explain() -> None:
    first = RNG.normal(size=400)
    second = first + RNG.normal(size=400) * 0.1
    found = inflation(np.stack([first, second], axis=1))
    share = (first @ second) ** 2 / ((first @ first) * (second @ second))
    assert found == pytest.approx([1 / (1 - share)] * 2)
    assert found[0] > 50


def test_too_few_samples_are_an_error() -> None:
    with pytest.raises(InputError, match="4 samples are too few for the 4 coefficients of lin"):
        fit("lin", P[:4], Q[:4], R[:4], P[:4])


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(UsageError, match="unknown form 'line'; did you mean lin"):
        fit("line", P, Q, R, P)


def test_a_fit_that_the_samples_do_not_determine_says_so() -> None:
    assert fit("lin", P, Q, R, P).determined
    assert not fit("lin", P, np.ones(500), R, P).determined
    burst = fit("lin", P, Q, np.zeros(500), P)  # all were submitted at once
    assert not burst.determined
    assert burst.coefficients["r"] == pytest.approx(0, abs=1e-6)
