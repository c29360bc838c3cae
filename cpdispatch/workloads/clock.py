"""What a log's clock says on the wall: local time, from the header of the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.durations import YEAR_10000_S
from cpdispatch.errors import InputError, UsageError
from cpdispatch.jobs import Workload

DAY_S = 86_400
WEEK_S = 7 * DAY_S
SLOTS = 48
"""Half hours of a day."""
SLOT_S = DAY_S // SLOTS
DAYS_MAX = 400_000
"""Most days that are looked at one by one: a mistyped time must not ask for more."""

TOO_LATE = "beyond the year 9999: times are seconds; divide milliseconds by 1000"
YEAR_1990_S = 631_152_000
"""A log whose first submission is later than this counts seconds since 1970, as Slurm does."""

_FIELD = re.compile(r"^;+\s*(\w+)\s*:\s*(.*?)\s*$")
# What a made workload has of its own; the other lines of a log's header stay true of it.
_STALE = {
    "version", "unixstarttime", "timezone", "timezonestring", "starttime", "endtime", "maxjobs",
    "maxrecords", "maxruntime", "preemption",
}  # fmt: skip


def moment_s(date: str) -> int:
    """Seconds since 1970 of an ISO date or date-time, UTC where it states no other zone.

    Raises
    ------
    UsageError
        When it is none.
    """
    try:
        moment = datetime.fromisoformat(date)
    except (TypeError, ValueError):
        raise UsageError(f"date {date!r}: write it as 2026-01-31 or 2026-01-31T12:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def began_s(workload: Workload) -> int | None:
    """When the log's clock was 0, in seconds since 1970; None if the log does not say.

    Raises
    ------
    InputError
        When ``UnixStartTime`` begins like a number and is none.
    """
    start_s = header_number(workload, "UnixStartTime", YEAR_10000_S - 1)
    if start_s is None and len(workload) and workload.table.submit_s[0] > YEAR_1990_S:
        return 0
    return start_s if start_s is not None and start_s >= 0 else None


def dated_from_s(workload: Workload) -> int | None:
    """As `began_s`, and None where that would be no date of a real log.

    Generators write 0 for a start that they do not know.
    """
    try:
        start_s = began_s(workload)
    except InputError:
        return None
    first_s = int(workload.table.submit_s[0]) if len(workload) else 0
    return start_s if start_s is not None and start_s + first_s > YEAR_1990_S else None


def wall_s(workload: Workload) -> IntArray:
    """Local time of every submission, in seconds since 1970, shape (jobs,).

    The header's ``UnixStartTime`` says when the log's time 0 was; without it, that is taken for
    midnight of 1 January 1970, a Thursday. ``TimeZoneString`` (with its summer time) or else
    ``TimeZone`` (seconds) says how far local time is from UTC; without them it is UTC.

    Raises
    ------
    InputError
        When ``UnixStartTime`` or ``TimeZone`` begins like a number and is none.
    """
    fields = _fields(workload.header)
    start = header_number(workload, "UnixStartTime", YEAR_10000_S - 1)
    # Generators write 0 for what they do not know.
    if start is None or start < DAY_S:
        return workload.table.submit_s
    utc_s = workload.table.submit_s + start
    zone = _zone(fields.get("timezonestring", ""))
    if zone is not None:
        slots, of_slot = np.unique(utc_s // SLOT_S, return_inverse=True)
        offsets = [_offset_s(zone, int(slot) * SLOT_S) for slot in slots]
        return np.asarray(utc_s + np.array(offsets, dtype=np.int64)[of_slot], dtype=np.int64)
    return utc_s + (header_number(workload, "TimeZone", DAY_S - 1) or 0)


def midnight_s(workload: Workload) -> int:
    """Local midnight before the first submission, in seconds as `wall_s` counts them."""
    # Where summer time ends, the first job need not have the earliest local time.
    return int(wall_s(workload).min()) // DAY_S * DAY_S


def slot_of(wall: IntArray) -> IntArray:
    """Half hour of the day, from 0 to 47."""
    return wall % DAY_S // SLOT_S


def weekday_of(wall: IntArray) -> IntArray:
    """Day of the week, 0 for Monday."""
    return (wall // DAY_S + 3) % 7


def month_of(wall: IntArray) -> IntArray:
    """Month of the year, 0 for January."""
    days = (wall // DAY_S).astype("datetime64[D]")
    return np.asarray(days.astype("datetime64[M]").astype(np.int64) % 12, dtype=np.int64)


def by_day(wall: IntArray, kind: Callable[[IntArray], IntArray], count: int) -> FloatArray:
    """Submissions on a day of each kind, over those on a mean day, shape (count,).

    Parameters
    ----------
    wall : int64 array, shape (jobs,)
        Local times, see `wall_s`.
    kind : function
        `weekday_of` or `month_of`.
    count : int
        Number of kinds. One that no day from the first job to the last is of has NaN.

    Raises
    ------
    UsageError
        When the first and the last job are further apart than any log's.
    """
    first, last = int(wall.min()) // DAY_S, int(wall.max()) // DAY_S
    if last - first > DAYS_MAX:
        raise UsageError(
            f"the jobs are submitted over {last - first:,} days, {DAYS_MAX:,} at most can be "
            "looked at: correct the submission times"
        )
    noons = np.arange(first, last + 1) * DAY_S + DAY_S // 2
    days = np.bincount(kind(noons), minlength=count)
    jobs = np.bincount(kind(wall), minlength=count)
    return np.where(days > 0, jobs / np.maximum(days, 1) / (len(wall) / len(noons)), np.nan)


def header(source: tuple[str, ...], start_s: int, note: str) -> tuple[str, ...]:
    """Comment lines of a workload made from another, whose time 0 is ``start_s`` on the wall."""
    kept = [
        line
        for line in source
        if not (found := _FIELD.match(line)) or found[1].lower() not in _STALE
    ]
    return (
        "; Version: 2.2", *kept, f"; UnixStartTime: {start_s}", "; TimeZone: 0", f"; Note: {note}",
    )  # fmt: skip


def header_number(workload: Workload, field: str, most: int) -> int | None:
    """The whole number that a log's header states in a field; None when it states none.

    Raises
    ------
    InputError
        When the value begins like a number and is none, or is beyond what is possible.
    """
    value = _fields(workload.header).get(field.lower(), "")
    try:
        number = stated(value, most)
    except ValueError as error:
        raise InputError(
            str(error), file=workload.name, field=f"{field} of the header", value=value,
            advice=STATE_IT,
        ) from error  # fmt: skip
    return number


STATE_IT = "write it in digits, as 1024, or remove the line"


def stated(value: str, most: int) -> int | None:
    """The whole number that a value of a log's header begins with; None when it has none.

    ``1024``, ``1,024``, ``1024.0`` and ``1e3`` are numbers; any text may follow after a space.

    Raises
    ------
    ValueError
        When it begins like a number and is none, or is beyond ``most``, up or down.
    """
    word = (value.split() or [""])[0].rstrip(".,;:)")
    if not re.match(r"[+-]?\.?\d", word):
        return None
    plain = word.replace(",", "") if _THOUSANDS.fullmatch(word) else word
    if not _WHOLE.fullmatch(plain) or re.match(r"\d{1,3}( \d{3})+(\D|$)", value):
        raise ValueError("not a whole number")
    number = Decimal(plain)
    if number != number.to_integral_value():
        raise ValueError("not a whole number")
    if abs(number) > most:
        raise ValueError(f"must be {most} or less")
    return int(number)


_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.0*)?")
_WHOLE = re.compile(r"[+-]?\d{1,30}(\.\d{0,30})?([eE][+-]?\d{1,2})?")


def _fields(lines: tuple[str, ...]) -> dict[str, str]:
    found = [_FIELD.match(line) for line in lines]
    return {match[1].lower(): match[2] for match in reversed(found) if match}


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):  # misspelt, or a machine without the data
        return None


def _offset_s(zone: tzinfo, unix_s: int) -> int:
    shift = (
        datetime.fromtimestamp(min(unix_s, YEAR_10000_S - WEEK_S), UTC).astimezone(zone).utcoffset()
    )
    return 0 if shift is None else int(shift.total_seconds())
