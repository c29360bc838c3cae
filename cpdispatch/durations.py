"""Durations as people write them: 500ms, 1s, 2min, 24h, 7d."""

from __future__ import annotations

from cpdispatch.errors import UsageError

UNITS_S = {"ms": 1e-3, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "s": 1.0}
"""Seconds of each unit; ``ms`` and ``min`` come before the letters that they end with."""


YEAR_10000_S = 253_402_300_800
"""No job is submitted then, if times are seconds since 1970: a clock in milliseconds is later."""
LIMIT_S = 2**48
"""Longest time in whole seconds, and largest number of anything, see `cpdispatch.system.LIMIT`."""


def seconds(text: str, option: str = "", *, whole: bool = False) -> float:
    """A duration with its unit, in seconds, to the nanosecond.

    Parameters
    ----------
    option : str
        What it was given for, which errors name.
    whole : bool
        Refuse fractions of a second.

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
        value = round(float(digits.removesuffix(unit)) * UNITS_S.get(unit, 1.0), 9)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        example = "1s, 2min, 24h or 7d" if whole else "500ms, 1s, 2min, 24h or 7d"
        raise UsageError(f"{option} {text!r} is not a duration: write it as {example}".lstrip())
    if not unit:
        advice = f"write {digits}s{'' if whole else f' or {digits}ms'}, or use min, h or d"
        raise UsageError(f"{option} {text!r} has no unit: {advice}".lstrip())
    if whole and not value.is_integer():
        raise UsageError(f"{option} {text}: whole seconds are needed".lstrip())
    return value


def whole_seconds(value: str | int | float, option: str = "") -> int:
    """A duration with its unit, or a bare number of seconds, as whole seconds.

    Raises
    ------
    UsageError
        When it is not 1 or more whole seconds.
    """
    text = str(value)
    digits = text.strip().removeprefix("+").replace(".", "", 1)
    bare = digits.isascii() and digits.isdigit()
    found = float(text) if bare else seconds(text, option)
    if not found.is_integer() or found < 1:
        raise UsageError(f"{option} {text!r} is not 1 or more whole seconds".lstrip())
    return int(found)


def plain_seconds(text: str, least_s: int = 60, option: str = "") -> int:
    """As `whole_seconds`, but a short time needs its unit: 3 is hardly meant as three seconds.

    Raises
    ------
    UsageError
        When it is not 1 or more whole seconds, a bare number below ``least_s``, or more than
        `LIMIT_S`.
    """
    found = whole_seconds(text, option)
    if found > LIMIT_S:
        raise UsageError(f"{option} {text!r} is too long: {LIMIT_S} s at most".lstrip())
    if found < least_s and text.strip()[-1].isdigit():
        digits = text.strip()
        raise UsageError(
            f"{option} {digits!r} would be {found} s: write {digits}min, {digits}h or "
            f"{digits}d, or {digits}s if that is meant".lstrip()
        )
    return found
