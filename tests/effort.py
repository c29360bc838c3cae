"""How much the tests try.

The numbers of examples that tests name are those of a thorough run. A usual one makes a quarter
of them. Hypothesis makes other ones each time, but in CI the same ones; of seeds the first are
taken. The environment's variable ``CPDISPATCH_EXAMPLES`` is the share: 1 for all, 10 for ten times
as many.
"""

from __future__ import annotations

import os

SHARE = float(os.environ.get("CPDISPATCH_EXAMPLES", "0.25"))
LEAST = 10
"""So many are made in any case, if the test names as many and no other number."""


def examples(many: int, least: int = LEAST) -> int:
    """How many examples are made where a thorough run makes so many."""
    return max(min(many, least), round(many * SHARE))
