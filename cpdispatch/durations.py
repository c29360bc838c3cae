"""Durations as people write them: 500ms, 1s, 2min, 24h, 7d."""

from __future__ import annotations

from cpdispatch.errors import UsageError

UNITS_S = {"ms": 1e-3, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "s": 1.0}
"""Seconds of each unit; ``ms`` and ``min`` come before the letters that they end with."""


def seconds(text: str) -> float:
    """A duration with its unit, in seconds.

    Raises
    ------
    UsageError
        When it is not a positive duration, or has no unit.

    Examples
    --------
    >>> seconds("2min")
    120.0
    """
    digits = text.strip()
    unit = next((unit for unit in UNITS_S if digits.endswith(unit)), "")
    try:
        value = float(digits.removesuffix(unit))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{text!r} is not a duration: write it as 500ms, 1s, 2min, 24h or 7d")
    if not unit:
        raise UsageError(f"{text!r} has no unit: write {digits}s or {digits}ms, or use min, h or d")
    return value * UNITS_S[unit]


def whole_seconds(value: str | int | float) -> int:
    """A duration with its unit, or a bare number of seconds, as whole seconds.

    Raises
    ------
    UsageError
        When it is not 1 or more whole seconds.
    """
    text = str(value)
    bare = text.strip().removeprefix("+").replace(".", "", 1).isdigit()
    found = float(text) if bare else seconds(text)
    if found != int(found) or found < 1:
        raise UsageError(f"{text!r} is not 1 or more whole seconds")
    return int(found)
