"""Comparison of runs: as rows for programs, as a table for people.

Waits are measured against the first run that was named, see `related`: who waits longer is said,
not only who wins.
"""

from cpdispatch.analyze.compare.related import GROWTH, GROWTH_S, losers, related, restarted_often
from cpdispatch.analyze.compare.rows import (
    JOBS_MIN,
    LENGTHS,
    NOISE_TOLD,
    SHARES,
    Restarts,
    Row,
    Weeks,
    colour,
    duration,
    kind_of,
    means,
    name_of,
    notes,
    quotient,
    row,
    rules_of,
    setting,
    within_noise,
)
from cpdispatch.analyze.compare.sentences import (
    advice,
    differences,
    failures,
    test_runs,
    verdict,
    warnings,
)
from cpdispatch.analyze.compare.tables import (
    deviation,
    legend,
    of_some,
    of_what,
    tables,
    waits_tables,
)

__all__ = [
    "GROWTH", "GROWTH_S", "JOBS_MIN", "LENGTHS", "NOISE_TOLD", "SHARES", "Restarts", "Row", "Weeks",
    "advice", "colour", "deviation", "differences", "duration", "failures", "kind_of", "legend",
    "losers", "means", "name_of", "notes", "of_some", "of_what", "quotient", "related",
    "restarted_often", "row", "rules_of", "setting", "tables", "test_runs", "verdict",
    "waits_tables", "warnings", "within_noise",
]  # fmt: skip
