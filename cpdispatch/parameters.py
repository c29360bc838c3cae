"""Parameters after the colon of a name, as in ``easy:threshold=72000``; and whole numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from cpdispatch.errors import UsageError, nearest

DIGITS = 18
"""More than anything has that is counted; Python makes no number of some thousand digits."""


def pairs(what: str, text: str) -> dict[str, str]:
    """The values as the user wrote them, by parameter.

    Parameters
    ----------
    what : str
        What they are parameters of, for messages.
    text : str
        ``parameter=value,parameter=value``; nothing for none.

    Raises
    ------
    UsageError
        When the text is not of that form, or a parameter is given twice.
    """
    given: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not key or not equals:
            raise UsageError(f"{what}: {item!r} is not of the form parameter=value")
        if key in given:
            raise UsageError(
                f"{what}: the parameter {key} is given twice, {given[key]} and {value}"
            )
        given[key] = value
    return given


def known(what: str, key: str, parameters: Mapping[str, Any]) -> None:
    """Check that there is a parameter of this name.

    Raises
    ------
    UsageError
        When there is none; the message suggests the nearest.
    """
    if key not in parameters:
        hint = nearest(key, parameters)
        names = ", ".join(parameters) or "none"
        raise UsageError(f"{what} has no parameter {key!r}{hint} (it has: {names})")


def values(
    what: str, given: Mapping[str, str], parameters: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """The values that are meant.

    Parameters
    ----------
    what : str
        What they are parameters of, for messages.
    parameters : mapping of str to callable
        Name -> what turns a user's value into the one meant; raises ValueError.

    Raises
    ------
    UsageError
        On an unknown parameter, or a value of no use.
    """
    found = {}
    for key, value in given.items():
        known(what, key, parameters)
        try:
            found[key] = parameters[key](value)
        except ValueError as error:
            raise UsageError(f"{what}, {key}={value}: {error}") from error
    return found


def whole(what: str, value: Any, least: int = 0, most: int | None = None, *, of: str = "") -> int:
    """An argument that is a whole number.

    Parameters
    ----------
    what : str
        What the user calls it, for messages.
    of : str
        What it counts, for messages.

    Raises
    ------
    UsageError
        When it is something else, or not from ``least`` to ``most``.
    """
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = least - 1
    too_large = most is not None and found > most
    if found < least or too_large:
        number = f"a whole number of {of}" if of else "a whole number"
        span = f"{most} at most" if too_large else f"{least} or more"
        raise UsageError(f"{what} {value!r}: {number}, {span}, is needed")
    return found


def count_of(text: str) -> int | None:
    """A whole number of 0 or more that is written in digits, `DIGITS` at most; None for others."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def switch(value: Any) -> bool:
    """On or off.

    Raises
    ------
    ValueError
        When it is something else.
    """
    if value not in ("on", "off", True, False):
        raise ValueError("on or off is needed")
    return value in ("on", True)
