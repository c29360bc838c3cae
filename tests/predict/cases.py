"""Names of predictors as parameters; those whose library is missing are skipped."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

import pytest

NEEDING_SCIKIT_LEARN = {"class", "forest", "mixture"}


def names(some: Iterable[str]) -> list[Any]:
    missing = pytest.mark.skipif(
        importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn"
    )
    return [
        pytest.param(name, marks=missing) if name in NEEDING_SCIKIT_LEARN else name
        for name in sorted(some)
    ]
