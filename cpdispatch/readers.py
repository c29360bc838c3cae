"""What users may say as the parameters of dispatchers: each reads a value, or says what is needed.

A value of no use is a `ValueError`, or a `UsageError` where names are looked up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from numbers import Real
from typing import Any

from cpdispatch import own
from cpdispatch.durations import seconds, whole_seconds
from cpdispatch.errors import CpdispatchError, UsageError, unknown
from cpdispatch.system import LIMIT


def limit(value: Any) -> float:
    """A time limit: a bare number is one of seconds, as in Python."""
    return limit_s(
        _number(value, "a time such as 500ms or 0.5s, or a positive number of seconds", seconds)
    )


def limit_s(value: Any) -> float:
    """A time limit that is a number already."""
    number = 0.0
    if isinstance(value, Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError("a positive number of seconds is needed")
    return number


def _number(value: Any, needed: str, read: Callable[[str], float] = float) -> float:
    """A number, or what else can be read; ValueError says in plain words what is needed."""
    try:
        return float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        pass
    except OverflowError:  # a whole number of some hundred digits
        raise ValueError(f"{needed} is needed") from None
    try:
        return read(str(value))
    except (CpdispatchError, ValueError):
        raise ValueError(f"{needed} is needed") from None


def text(value: Any) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise ValueError("a text is needed")


def seconds_of(value: Any) -> int:
    """A time in whole seconds."""
    try:
        found = whole_seconds(value)
    except UsageError:
        raise ValueError(
            "a time such as 90min or 24h, or a whole number of seconds, 1 or more, is needed"
        ) from None
    if found > LIMIT:
        raise ValueError(f"a time, {LIMIT} s at most, is needed")
    return found


def test(value: Any) -> int:
    """The length of a test run, seconds; 0 for none."""
    if value == "off":
        return 0
    try:
        return seconds_of(value)
    except ValueError as error:
        raise ValueError(f"{str(error).removesuffix(', is needed')}, or off, is needed") from None


def count(value: Any) -> int:
    """A whole number, 1 or more."""
    return _whole(value, 1, "a whole number, 1 or more,")


def _whole(value: Any, least: int, needed: str) -> int:
    number = _number(value, needed)
    if not isfinite(number) or number != int(number) or number < least:
        raise ValueError(f"{needed} is needed")
    if number > LIMIT:
        raise ValueError(f"too large: {LIMIT} at most is needed")
    return int(number)


def depth(value: Any) -> int:
    """How many jobs have reservations; as many as there are for ``all``."""
    if value == "all":
        return sys.maxsize
    return _whole(value, 0, "a whole number, 0 or more, or all,")


def allocation(value: Any) -> bool:
    """Whether the fullest feasible node comes first."""
    if value not in ("first-fit", "best-fit"):
        raise ValueError("first-fit or best-fit is needed")
    return bool(value == "best-fit")


def _one_of(value: Any, names: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"one of {', '.join(names)} is needed")
    return value


def limits(value: Any) -> str:
    """Planned durations, by name."""
    from cpdispatch.heuristics.limits import LIMITS

    return _one_of(value, LIMITS)


def tests(value: Any) -> str:
    """When tests come, by name."""
    from cpdispatch.heuristics.test_runs import WAYS

    return _one_of(value, WAYS)


def left(value: Any) -> str:
    """When tests come beside a plan."""
    if value != "left":
        raise ValueError("left is needed: with a plan, test runs come after all starts")
    return str(value)


def share(value: Any) -> float:
    """A share of a limit."""
    number = _number(value, "a share of the limit, above 0 and 1 at most,")
    if not 0 < number <= 1:
        raise ValueError("a share of the limit is needed, above 0 and 1 at most")
    return number


def part(value: Any) -> float:
    """A share that is less than the whole."""
    number = _number(value, "a share, 0 or more and below 1,")
    if not 0 <= number < 1:
        raise ValueError("a share is needed, 0 or more and below 1")
    return number


def wait(value: Any) -> float:
    """A share of EASY's longest wait; 0 for none."""
    if value == "off":
        return 0.0
    needed = "a share of EASY's longest wait, from 0.001 to 1, or off,"
    number = _number(value, needed)
    if not 0.001 <= number <= 1:
        raise ValueError(f"{needed} is needed")
    return number


def real(value: Any) -> float:
    """A finite number."""
    number = _number(value, "a number")
    if not isfinite(number):
        raise ValueError("a finite number is needed")
    return number


def policy(value: Any) -> Any:
    """A policy: a name, a function of the user's own as ``module:function``, or a TOML table."""
    from cpdispatch.heuristics import policies

    if isinstance(value, Mapping):
        return _weighted(dict(value))
    module, colon, function = str(value).partition(":")
    if not colon:
        return policies.find(str(value))
    found = own.attribute(module, function, f"policy {value}")
    if not callable(found):
        raise UsageError(f"policy {value}: it is not a function")
    return policies.own(found, str(value))


def _weighted(table: dict[str, Any]) -> Any:
    """The policy of a TOML table: a mix with its weights, a polynomial with its coefficients."""
    from cpdispatch.heuristics import policies

    kinds = {"mix": ("weights", policies.mix), "polynomial": ("coefficients", policies.polynomial)}
    kind = table.pop("policy", None)
    if kind not in kinds:
        raise unknown("policy", str(kind), kinds)
    field, make = kinds[kind]
    numbers = table.pop(field, None)
    if not isinstance(numbers, dict) or table:
        wrong = ", ".join(map(repr, table)) or f"{field} = {numbers!r}"
        raise UsageError(f"a policy table has policy and {field} (a table of numbers), not {wrong}")
    return make(numbers)


def objective(value: Any) -> str:
    """An objective, by name."""
    from cpdispatch.models.objective import OBJECTIVES

    return _one_of(value, OBJECTIVES)


def formulation(value: Any) -> str:
    """A model on the nodes, by name."""
    from cpdispatch.models.part_search import FORMULATIONS

    return _one_of(value, FORMULATIONS)
