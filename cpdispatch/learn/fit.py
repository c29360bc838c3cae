"""Weighted polynomial fits of scores over p, q and r, and how collinear their terms are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import FloatArray
from cpdispatch.errors import InputError, unknown
from cpdispatch.extra import needed
from cpdispatch.heuristics.policies import TERMS, Order, polynomial

FORMS: Mapping[str, tuple[str, ...]] = {
    "lin": TERMS[:4],
    "qdr": TERMS[:8],
    "cub": TERMS[:13],
    "qua": TERMS,
}
"""The forms by name: the terms of each, the constant first."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A form fitted to scores."""

    form: str
    """A name in `FORMS`."""
    coefficients: Mapping[str, float]
    errors: Mapping[str, float]
    """By term; errors are standard errors."""
    inflation: Mapping[str, float]
    """Variance inflation factor by term, without the constant."""
    absolute_error_mean: float
    """Mean absolute error over the samples, each counted once."""
    determined: bool
    """False when the samples allow other coefficients too: all jobs of one size, for example."""

    @property
    def order(self) -> Order:
        """The policy that takes the smallest fitted score first."""
        return polynomial(self.coefficients)


def term(name: str, p: FloatArray, q: FloatArray, r: FloatArray) -> FloatArray:
    """One column of a fit, such as ``p^2 q``."""
    value = np.ones_like(p)
    for factor in name.replace("pq", "p q").split():
        letter, _, power = factor.partition("^")
        if letter != "1":
            value = value * {"p": p, "q": q, "r": r}[letter] ** int(power or 1)
    return value


def fit(form: str, p: FloatArray, q: FloatArray, r: FloatArray, score: FloatArray) -> Fit:
    """Fit a form to scores by weighted least squares; errors are weighted by p q.

    The weight is on the error, so that its square counts (p q)^2 times: this is what the published
    fits do. Columns are scaled to a maximum of 1 before the fit and coefficients back after it,
    since p^4 alone spans some twenty orders of magnitude.

    Parameters
    ----------
    form : str
        A name in `FORMS`.
    p, q, r, score : float64 array, shape (samples,)
        Runtimes in seconds, processors, arrivals in seconds, scores.

    Raises
    ------
    UsageError
        When there is no such form, or statsmodels is not installed.
    InputError
        When there are fewer samples than coefficients.

    References
    ----------
    Rosa, Carastan-Santos, Goldman, "An experimental analysis of regression-obtained HPC scheduling
    heuristics", JSSPP 2023.
    """
    if form not in FORMS:
        raise unknown("form", form, FORMS)
    terms = FORMS[form]
    if len(score) <= len(terms):
        raise InputError(
            f"{len(score)} samples are too few for the {len(terms)} coefficients of {form}",
            advice="sample more pairs",
        )
    api = needed("statsmodels.api")
    columns = np.stack([term(name, p, q, r) for name in terms], axis=1)
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0.0] = 1.0
    weight = np.maximum(p * q, 1.0)
    with _singular():
        fitted = api.WLS(score, columns / scale, weights=(weight / weight.max()) ** 2).fit()
    coefficients, errors = fitted.params / scale, fitted.bse / scale
    return Fit(
        form,
        dict(zip(terms, coefficients.tolist(), strict=True)),
        dict(zip(terms, errors.tolist(), strict=True)),
        dict(zip(terms[1:], inflation(columns[:, 1:] / scale[1:]), strict=True)),
        float(np.abs(columns @ coefficients - score).mean()),
        bool(np.linalg.matrix_rank(columns / scale) == len(terms)),
    )


@contextmanager
def _singular() -> Iterator[None]:
    """Allow what is not determined: `Fit` says so itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def inflation(columns: FloatArray) -> list[float]:
    """Variance inflation factor of each column, 1 / (1 - R^2) of it on the others.

    R^2 is about zero, not about the mean (the regressions have no constant), as in the published
    table: for p, q and r of the Lublin model that gives 1.3, 1.3 and 1.2, there and here.
    """
    api = needed("statsmodels.api")
    factors = []
    for column in range(columns.shape[1]):
        others = np.delete(columns, column, axis=1)
        with _singular():
            fitted = api.OLS(columns[:, column], others, hasconst=False).fit()
        factors.append(float(fitted.uncentered_tss / max(fitted.ssr, np.finfo(np.float64).tiny)))
    return factors
