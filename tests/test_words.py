from __future__ import annotations

import time

import pytest

from cpdispatch.words import clock, counted, listed


@pytest.mark.parametrize(
    ("many", "said"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (2000, "2,000 jobs")]
)
def test_there_is_one_job_and_there_are_several(many: int, said: str) -> None:
    assert counted(many, "job") == said


@pytest.mark.parametrize(
    ("names", "most", "said"),
    [
        ("", None, ""),
        ("a", None, "a"),
        ("ab", None, "a and b"),
        ("abc", 3, "a, b and c"),
        ("abc", 2, "a, b and 1 more"),
        ("a" * 1001, 1, "a and 1,000 more"),
        ("abc", 0, "3 more"),
    ],
)
def test_a_list_says_how_many_are_not_named(names: str, most: int | None, said: str) -> None:
    assert listed(names, most) == said


def test_a_clock_has_the_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Stockholm")
    time.tzset()
    try:
        assert clock(0) == "1970-01-01 01:00:00"
    finally:
        monkeypatch.undo()
        time.tzset()
