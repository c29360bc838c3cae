"""Comparison of runs: as rows for programs, as a table for people.

Waits are measured against the first run that was named, see `related`: who waits longer is said,
not only who wins.
"""

from cpdispatch.analyze.compare.related import (
    GROWTH,
    GROWTH_S,
    losers,
    related,
    restarted_often,
    users_beside,
)
from cpdispatch.analyze.compare.rows import (
    JOBS_MIN,
    LENGTHS,
    NOISE_TOLD,
    SHARES,
    Restarts,
    Row,
    Weeks,
    beside,
    colour,
    counted,
    duration,
    kind_of,
    means,
    name_of,
    notes,
    quotient,
    row,
    rules_of,
    setting,
    times_of,
    within_noise,
)
from cpdispatch.analyze.compare.sentences import (
    advice,
    differences,
    failures,
    left_out,
    ranked,
    test_runs,
    times_first,
    verdict,
    warnings,
)
from cpdispatch.analyze.compare.tables import (
    UTILISATION,
    deviation,
    is_paired_in_part,
    legend,
    of_some,
    of_types,
    of_what,
    tables,
    waits_tables,
)

__all__ = [
    "GROWTH", "GROWTH_S", "JOBS_MIN", "LENGTHS", "NOISE_TOLD", "SHARES", "UTILISATION", "Restarts",
    "Row", "Weeks", "advice", "beside", "colour", "counted", "deviation", "differences", "duration",
    "failures", "is_paired_in_part", "kind_of", "left_out", "legend", "losers", "means", "name_of",
    "notes", "of_some", "of_types", "of_what", "quotient", "ranked", "related", "restarted_often",
    "row", "rules_of", "setting", "tables", "test_runs", "times_first", "times_of", "users_beside",
    "verdict", "waits_tables", "warnings", "within_noise",
]  # fmt: skip
