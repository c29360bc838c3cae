"""Words in messages: numbers of things, lists of names, local times."""

from __future__ import annotations

import time
from collections.abc import Sequence


def counted(many: int, what: str) -> str:
    """How many there are of a thing, as 1 job or 2,000 jobs."""
    return f"{many:,} {what}{'s' * (many != 1)}"


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names as a sentence has them, ``most`` of them at most: a, b and c; a, b and 3 more."""
    shown = list(names[:most])
    more = len(names) - len(shown)
    parts = [*shown, f"{more:,} more"] if more else shown
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def clock(time_s: int) -> str:
    """A time since 1970 as the local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))
