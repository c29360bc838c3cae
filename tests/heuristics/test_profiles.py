"""Resource profiles against tables of what is free at every second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.profiles import per_node
from cpdispatch.heuristics.profiles.per_node import NodeProfile
from cpdispatch.heuristics.profiles.profile import (
    FOREVER,
    Profile,
    copy_row,
    earliest,
    empty,
    hold,
    one_row,
    sampled,
    split,
    times,
)
from tests.models.cases import EXAMPLES

NOW, SECONDS, LATEST = 50, 60, 20
"""From when on, and for how long, every second is looked at; no hold ends later than the last."""
CAPACITY = 20
"""Of each row, or node: as much as all jobs hold together at most."""
many = settings(max_examples=EXAMPLES)


def ints(*values: Any) -> IntArray:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True)
class Hold:
    """Units of a request that are held from a start to an end, in seconds from now."""

    row: int
    start: int
    end: int
    ask: tuple[int, ...]
    units: int


@st.composite
def holds(draw: st.DrawFn, rows: int, amounts: int) -> list[Hold]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, LATEST - 1))
        ask = draw(st.tuples(*(st.integers(0, 2) for _ in range(amounts))))
        end = draw(st.integers(start + 1, LATEST))
        found.append(Hold(draw(st.integers(0, rows - 1)), start, end, ask, draw(st.integers(1, 2))))
    return found


def by_second(rows: int, amounts: int, held: list[Hold]) -> IntArray:
    """What is free at every second, shape (seconds, rows, amounts)."""
    free = np.full((SECONDS, rows, amounts), CAPACITY)
    for h in held:
        free[h.start : h.end, h.row] -= h.units * ints(*h.ask)
    return free


def profile_of(rows: int, amounts: int, held: list[Hold]) -> Profile:
    profile = empty(rows, 2 * len(held) + 3, amounts)
    for row in range(rows):
        profile.segments[row], profile.time[row, 0], profile.free[row, 0] = 1, NOW, CAPACITY
    for h in held:
        hold(profile, h.row, NOW + h.start, NOW + h.end, ints(*h.ask), h.units)
    return profile


def first_fit(free: IntArray, ask: IntArray, duration: int, not_before: int) -> int:
    """The first second from which so much is free for a whole duration."""
    return next(
        start for start in range(not_before, SECONDS)
        if (free[start : start + duration] >= ask).all()
    )  # fmt: skip


# --------------------------------------------------------------------------- one type: rows


@many
@given(holds(3, 2))
def test_a_row_has_free_what_is_not_held_of_it(held: list[Hold]) -> None:
    profile, free = profile_of(3, 2, held), by_second(3, 2, held)
    for row in range(3):
        begins = times(profile, row).tolist()
        assert begins == sorted(set(begins))
        assert begins[0] == NOW
        assert (sampled(profile, row, NOW + np.arange(SECONDS)) == free[:, row]).all()


@many
@given(holds(1, 2), st.integers(0, SECONDS - 1))
def test_a_segment_that_is_split_has_free_what_it_had(held: list[Hold], second: int) -> None:
    profile = profile_of(1, 2, held)
    before = times(profile, 0).tolist()
    k = split(profile, 0, NOW + second)
    assert profile.time[0, k] == NOW + second
    assert times(profile, 0).tolist() == sorted({*before, NOW + second})
    assert (sampled(profile, 0, NOW + np.arange(SECONDS)) == by_second(1, 2, held)[:, 0]).all()


@many
@given(
    holds(2, 2), st.tuples(st.integers(0, CAPACITY), st.integers(0, CAPACITY)), st.integers(1, 15),
    st.integers(0, LATEST + 5),
)  # fmt: skip
def test_the_earliest_start_is_the_first_second_from_which_there_is_room(
    held: list[Hold], amounts: tuple[int, int], duration: int, not_before: int
) -> None:
    profile, free, ask = profile_of(2, 2, held), by_second(2, 2, held), ints(*amounts)
    for row in range(2):
        start, work = earliest(profile, row, ask, duration, NOW + not_before)
        assert start == NOW + first_fit(free[:, row], ask, duration, not_before)
        assert 2 <= work <= profile.segments[row] + 1


def test_what_never_becomes_free_is_waited_for_for_ever() -> None:
    profile = one_row(ints(50, 60), ints(9, 3)[:, None])
    assert earliest(profile, 0, ints(3), 20, 50)[0] == 50
    assert earliest(profile, 0, ints(4), 10, 50)[0] == 50
    assert earliest(profile, 0, ints(4), 11, 50)[0] == FOREVER


@many
@given(holds(2, 1))
def test_a_copied_row_is_equal_and_independent(held: list[Hold]) -> None:
    source, free = profile_of(2, 1, held), by_second(2, 1, held)
    target = empty(1, source.time.shape[1] + 4, 1)
    copy_row(source, 1, target, 0)
    hold(source, 1, NOW, NOW + 30, ints(1), 1)
    assert (sampled(target, 0, NOW + np.arange(SECONDS)) == free[:, 1]).all()


# ------------------------------------------------------------------- all nodes, common times


def on_nodes(nodes: int, amounts: int, held: list[Hold]) -> NodeProfile:
    """A profile of nodes, each hold being that of a job; a unit draws one watt for each amount."""
    none = np.empty(0, dtype=np.int64)
    capacity = np.full((nodes, amounts), CAPACITY)
    profile = per_node.expected_profile(
        NOW, capacity, none, len(held) + 3, np.empty((9, 0), dtype=np.int64), none, ints(0), none,
        none, none, none, none, np.empty((0, amounts), dtype=np.int64),
        np.zeros(amounts, dtype=np.int64), 50,
    )  # fmt: skip
    for h in held:
        per_node.hold(
            profile, NOW + h.start, NOW + h.end, ints(*h.ask), ints(h.row), ints(h.units),
            h.units * sum(h.ask), -1,
        )  # fmt: skip
    return profile


@many
@given(holds(3, 2), st.integers(1, SECONDS - 1))
def test_nodes_have_left_until_an_instant_the_least_of_every_second(
    held: list[Hold], seconds: int
) -> None:
    free, watts = by_second(3, 2, held), np.full(SECONDS, 50)
    for h in held:
        watts[h.start : h.end] -= h.units * sum(h.ask)
    left, watts_left = per_node.left_until(on_nodes(3, 2, held), NOW + seconds)
    assert left.tolist() == free[:seconds].min(axis=0).tolist()
    assert watts_left == watts[:seconds].min()


@many
@given(
    holds(3, 2), st.tuples(st.integers(0, 9), st.integers(1, 9)), st.integers(1, 8),
    st.integers(1, 15), st.integers(0, LATEST + 5),
)  # fmt: skip
def test_a_job_starts_on_nodes_when_its_units_fit_beside_each_other(
    held: list[Hold], amounts: tuple[int, int], units: int, duration: int, latest: int
) -> None:
    profile, free, ask = on_nodes(3, 2, held), by_second(3, 2, held), ints(*amounts)
    least = np.empty((3, 2), dtype=np.int64)

    def fits(start: int) -> bool:
        some = free[start : start + duration].min(axis=0)
        rooms = [min(n // a for n, a in zip(node, ask, strict=True) if a) for node in some]
        return sum(rooms) >= units

    expected = next((s for s in range(latest + 1) if fits(s)), None)
    start = per_node.earliest(profile, ask, units, 0, duration, NOW + latest, least)
    assert start == (-1 if expected is None else NOW + expected)
    if expected is not None:
        assert least.tolist() == free[expected : expected + duration].min(axis=0).tolist()


def test_a_job_starts_as_soon_as_the_last_segment_without_room_is_over() -> None:
    profile, least = on_nodes(1, 1, [Hold(0, 5, 10, (9,), 1)]), np.empty((1, 1), dtype=np.int64)
    given = profile, ints(CAPACITY), 1, 0
    assert per_node.earliest(*given, 5, NOW + LATEST, least) == NOW
    assert per_node.earliest(*given, 6, NOW + LATEST, least) == NOW + 10
    assert per_node.earliest(*given, 6, NOW + 9, least) == -1


@many
@given(holds(3, 2), st.integers(0, LATEST), st.integers(1, 15), st.integers(0, 2))
def test_nodes_can_be_held_while_every_second_has_room(
    held: list[Hold], start: int, duration: int, node: int
) -> None:
    profile, free, ask = on_nodes(3, 2, held), by_second(3, 2, held), ints(9, 8)
    possible = (free[start : start + duration, node] >= 2 * ask).all()
    window = NOW + start, NOW + start + duration
    assert per_node.holdable(profile, *window, ask, ints(node), ints(2), 0) == possible
    per_node.hold(profile, *window, ask, ints(node), ints(2), 6, -1)
    per_node.hold(profile, *window, ask, ints(node), ints(2), 6, 1)
    left, _ = per_node.left_until(profile, NOW + SECONDS)
    assert left.tolist() == free.min(axis=0).tolist()
