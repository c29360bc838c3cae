from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from cpdispatch.errors import InputError, UsageError
from cpdispatch.workloads.clock import (
    by_day,
    header,
    midnight_s,
    month_of,
    slot_of,
    wall_s,
    weekday_of,
)
from tests.workloads.cases import DAY_S, HOUR_S, STOCKHOLM, log


def test_a_logs_local_time_follows_its_time_zone_and_summer_time() -> None:
    workload = log([0, 150 * DAY_S], header=STOCKHOLM)
    wall = wall_s(workload)
    assert (wall % DAY_S).tolist() == [14 * HOUR_S + 31, 13 * HOUR_S + 31]
    assert weekday_of(wall).tolist() == [0, 3]  # a Monday in September, a Thursday in February
    assert month_of(wall).tolist() == [8, 1]
    assert slot_of(wall).tolist() == [28, 26]
    assert midnight_s(workload) == wall[0] - 14 * HOUR_S - 31


def test_local_time_changes_in_the_hour_in_which_summer_time_begins_or_ends() -> None:
    for day in ("2026-03-28", "2026-10-24"):
        begin_s = int(np.datetime64(day, "s").astype(np.int64))
        zone = ZoneInfo("Europe/Stockholm")
        header = (f"; UnixStartTime: {begin_s}", "; TimeZoneString: Europe/Stockholm")
        hours = list(range(0, 3 * DAY_S, HOUR_S))
        wall = wall_s(log(hours, header=header))
        local = [datetime.fromtimestamp(begin_s + at, zone).hour for at in hours]
        assert (wall % DAY_S // HOUR_S).tolist() == local


@pytest.mark.parametrize(
    ("lines", "hour"),
    [
        (("; UnixStartTime: 900000",), 10),
        (("; UnixStartTime: 900000", "; TimeZone: -18000"), 5),
        (("; UnixStartTime: 900000", "; TimeZone: 3600", "; TimeZoneString: No/Where"), 11),
        (("; UnixStartTime: 900000", "; TimeZone: EST"), 10),
        (("; UnixStartTime: 0", "; TimeZone: -18000"), 0),
        (("; UnixStartTime: 900,000", "; TimeZone: +3600"), 11),
        (("; UnixStartTime: 9e5", "; TimeZone: 3600.0 s"), 11),
        (("; UnixStartTime: -1", "; TimeZone: 3600"), 0),
        (("; UnixStartTime: unknown", "; TimeZone: 3600"), 0),
        ((), 0),
    ],
)
def test_without_a_known_zone_the_offset_or_utc_holds(lines: tuple[str, ...], hour: int) -> None:
    assert wall_s(log([0], header=lines))[0] % DAY_S == hour * HOUR_S


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("; UnixStartTime: 99999999999999999999", "must be 253402300799 or less"),
        ("; UnixStartTime: 1'000'000'000", "not a whole number .found"),
        ("; UnixStartTime: 1 272 639 895", "not a whole number .found"),
        ("; UnixStartTime: 0.5", "not a whole number .found '0.5'.; write it in digits"),
        ("; TimeZone: 99999999", "must be 86399 or less"),
        ("; TimeZone: 01:00", "not a whole number .found '01:00'"),
    ],
)
def test_a_number_of_the_header_that_is_none_is_refused(line: str, message: str) -> None:
    lines = (line,) if "Unix" in line else ("; UnixStartTime: 900000", line)
    with pytest.raises(InputError, match=f"field {line.split()[1][:-1]} of the header: {message}"):
        wall_s(log([0], header=lines))


def test_the_header_of_a_made_workload_says_when_it_begins_and_nothing_stale() -> None:
    lines = header(STOCKHOLM, 12 * DAY_S, "made")
    assert "; Computer: IBM SP2" in lines
    assert "; MaxProcs: 100" in lines
    assert "; Note: made" in lines
    assert not any("MaxJobs" in line or "StartTime: Mon" in line for line in lines)
    assert wall_s(log([5], header=lines))[0] == 12 * DAY_S + 5


def test_submissions_by_the_day_are_over_those_of_a_mean_day() -> None:
    # Thursday to Saturday: 3, 1 and 2 jobs.
    wall = np.array([0, 1, 2, DAY_S, 2 * DAY_S, 2 * DAY_S])
    shares = by_day(wall, weekday_of, 7)
    assert shares[3:6].tolist() == [1.5, 0.5, 1.0]
    assert np.isnan(shares[[0, 1, 2, 6]]).all()


def test_a_log_may_reach_beyond_any_calendar_but_not_be_looked_at_day_by_day() -> None:
    wall = wall_s(log([0, 2**47], header=STOCKHOLM))
    assert wall[1] > 2**47
    with pytest.raises(UsageError, match="days, 400,000 at most can be looked at"):
        by_day(wall, weekday_of, 7)
