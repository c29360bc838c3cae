"""A cap on the watts that a system draws, and the price of energy: steps over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from cpdispatch.errors import InputError, UsageError
from cpdispatch.files import csv_rows
from cpdispatch.system import LIMIT, System

POWER_CAP, ENERGY_PRICE = "power_cap", "energy_price"


@dataclass(frozen=True, slots=True)
class Steps:
    """A quantity that is constant between the times at which it changes.

    It is additional data, see `cpdispatch.data`: instances tell its value now.
    """

    name: str
    """``power_cap`` in watts, or ``energy_price`` of a kilowatt hour."""
    time_s: tuple[int, ...]
    """Ascending, on the clock of the log. The first value also holds before its time."""
    values: tuple[float, ...]
    """From each of these times on; whole numbers where they are watts."""
    wakes: bool = True
    """Whether jobs are dispatched when it changes."""

    def at(self, now_s: int) -> float:
        """The value at a time."""
        return self.values[max(bisect_right(self.time_s, now_s) - 1, 0)]

    def least(self, now_s: int, until_s: int) -> float:
        """The least value from now until a later time."""
        first = max(bisect_right(self.time_s, now_s) - 1, 0)
        last = max(bisect_right(self.time_s, until_s - 1) - 1, first)
        return min(self.values[first : last + 1])

    def most(self, now_s: int) -> float:
        """The highest value from now on."""
        return max(self.values[max(bisect_right(self.time_s, now_s) - 1, 0) :])

    def value(self, moment: Any) -> float:
        """What instances tell at a `cpdispatch.data.Moment`."""
        return self.at(moment.now_s)

    def next_s(self, now_s: int) -> int | None:
        """When it changes next, and jobs are dispatched."""
        if not self.wakes:
            return None
        later = bisect_right(self.time_s, now_s)
        later = max(later, 1)  # the first value holds before its time
        return self.time_s[later] if later < len(self.time_s) else None

    def told(self) -> list[list[float]]:
        """Time and value of each step, as `of_told` reads them."""
        return [[time, value] for time, value in zip(self.time_s, self.values, strict=True)]


def of_told(name: str, told: list[list[Any]] | None) -> Steps | None:
    """What `Steps.told` said; None of None."""
    if told is None:
        return None
    time_s, values = zip(*told, strict=True)
    return Steps(name, tuple(int(time) for time in time_s), tuple(values))


def power_cap(given: str | float | Steps) -> Steps:
    """A cap on the watts of the whole system.

    Parameters
    ----------
    given : int, str or Steps
        Watts; or a CSV file with the columns ``time``, seconds on the clock of the log, and
        ``watts``, each from its time on.

    Raises
    ------
    InputError, UsageError
    """
    return _steps(POWER_CAP, "watts", given)


def energy_price(given: str | float | Steps) -> Steps:
    """The price of a kilowatt hour, in any currency.

    Parameters
    ----------
    given : float, str or Steps
        A price; or a CSV file with the columns ``time`` and ``price``.

    Raises
    ------
    InputError, UsageError
    """
    return _steps(ENERGY_PRICE, "price", given)


def check_cap(cap: Steps, system: System) -> None:
    """Raise `UsageError` when a system cannot keep a cap, whatever runs on it."""
    check_drawn(system)
    for time_s, watts in zip(cap.time_s, cap.values, strict=True):
        if watts < system.idle_total:
            raise UsageError(
                f"a power cap of {watts} W from {time_s} s on is less than the "
                f"{system.idle_total} W that the idle nodes of system {system.name} draw"
            )


def check_drawn(system: System) -> None:
    """Raise `UsageError` when a system draws nothing: a cap or a price would mean nothing."""
    if not system.watts:
        raise UsageError(
            f"system {system.name} does not say what its resources draw: add watts to its file, "
            f"as watts = {{{system.resources[0]} = 10}}"
        )


def _steps(name: str, column: str, given: str | float | Steps) -> Steps:
    if isinstance(given, Steps):
        return given
    option = f"--{name.replace('_', '-')}"
    try:
        value = _number(str(given), name == POWER_CAP)
    except ValueError as error:
        text = str(given).strip()
        if text.endswith(".csv") and not Path(text).exists():
            raise InputError("no such file", file=text) from None
        if not text or not Path(text).exists():
            raise UsageError(
                f"{option} {given}: {error}; write a number, or name a CSV file with the columns "
                f"time,{column}"
            ) from None
        return _read(text, name, column)
    return Steps(name, (0,), (value,))


def _number(text: str, whole: bool) -> float:
    """A number of 0 or more; a ValueError says what is wrong."""
    try:
        found = int(text) if whole else float(text)
    except ValueError:
        raise ValueError("not a whole number" if whole else "not a number") from None
    if not 0 <= found <= LIMIT or math.isnan(found):
        raise ValueError(f"must be 0 or more, {LIMIT} at most")
    return found


def _read(path: str, name: str, column: str) -> Steps:
    lines = csv_rows(path)
    _, head = next(lines)
    if head != ["time", column]:
        raise InputError(
            "these are not the columns of the table", file=path, line=1, value=",".join(head),
            advice=f"the first line is time,{column}",
        )  # fmt: skip
    found: list[tuple[int, float]] = []
    for line, cells in lines:
        row = []
        for field, cell in zip(head, cells, strict=True):
            try:
                row.append(_number(cell, field != "price"))
            except ValueError as error:
                raise InputError(
                    str(error), file=path, line=line, field=field, value=cell
                ) from None
        found.append((int(row[0]), row[1]))
        if len(found) > 1 and found[-1][0] <= found[-2][0]:
            raise InputError(
                f"the time is not after that of the row above, {found[-2][0]}",
                file=path, line=line, field="time", value=found[-1][0],
                advice="sort the rows by time, each time once",
            )  # fmt: skip
    if not found:
        advice = f"write a line with a time and its {column}"
        raise InputError("the table has no row", file=path, advice=advice)
    # A step that changes nothing would only wake the dispatcher.
    kept = found[:1] + [later for before, later in pairwise(found) if later[1] != before[1]]
    time_s, values = zip(*kept, strict=True)
    return Steps(name, time_s, values)
