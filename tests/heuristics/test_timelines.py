"""Timelines of node classes against tables of what is free at every second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpdispatch.arrays import IntArray
from cpdispatch.heuristics.profiles import per_class
from cpdispatch.heuristics.profiles.per_class import (
    CLASSES,
    OVERFLOW,
    Slices,
    Timelines,
    Window,
    classes_of,
    copy,
    earliest,
    empty_timelines,
    empty_window,
    hold,
    hold_power,
    joined,
    of_common_times,
    of_nodes,
    place,
)
from cpdispatch.heuristics.profiles.profile import FOREVER, empty
from tests.models.cases import EXAMPLES

NOW, SECONDS = 50, 60
"""From when on, and for how long, every second is looked at."""


def ints(*values: Any) -> IntArray:
    return np.array(values, dtype=np.int64)


NO_WATTS = ints(0)


@dataclass(frozen=True)
class Hold:
    """What is held of a node from a start to an end."""

    node: int
    start: int
    end: int
    amounts: tuple[int, ...]


Capacity = tuple[tuple[int, ...], ...]


def nodes_with(capacity: Capacity, holds: Sequence[Hold], nodes: Sequence[int]) -> Timelines:
    return of_nodes(
        NOW, ints(*capacity), ints(*capacity), ints(*nodes), 2 * len(holds) + 3,
        ints(*(h.start for h in holds)), ints(*(h.end for h in holds)),
        ints(*(h.node for h in holds)),
        ints(*(h.amounts for h in holds)).reshape(len(holds), len(capacity[0])),
    )  # fmt: skip


def classes_with(
    capacity: Capacity, holds: Sequence[Hold], nodes: Sequence[int], spare: int = 40
) -> tuple[Timelines, IntArray]:
    """Timelines with long rows, and the nodes in the order that their classes are slices of."""
    each = nodes_with(capacity, holds, nodes)
    member, begin = classes_of(each)
    lines = joined(each, member, begin)
    longer = empty_timelines(len(nodes), each.nodes.time.shape[1] + spare, len(capacity[0]), 0)
    copy(lines, longer)
    return longer, ints(*nodes)[member]


def by_second(capacity: Capacity, holds: Sequence[Hold]) -> IntArray:
    """What is free at every second on every node, shape (seconds, nodes, resources)."""
    free = np.repeat(ints(*capacity)[None], SECONDS, axis=0)
    for h in holds:
        free[h.start - NOW : h.end - NOW, h.node] -= ints(*h.amounts)
    return np.maximum(free, 0)


def seconds_of(lines: Timelines, c: int) -> IntArray:
    """What a node of a class has free at every second, shape (seconds, resources)."""
    time = lines.nodes.time[c, : lines.nodes.segments[c]].tolist()
    assert time == sorted(set(time))
    assert time[0] == NOW
    rows = [max(k for k, begin in enumerate(time) if begin <= NOW + t) for t in range(SECONDS)]
    return lines.nodes.free[c, rows]


def check(lines: Timelines, member: IntArray, free: IntArray) -> None:
    """Each node belongs to one class, which has free what the node has."""
    classes = lines.size[CLASSES]
    slices = sorted(zip(lines.first[:classes], lines.last[:classes], strict=True))
    assert [k for first, last in slices for k in range(first, last)] == list(range(len(member)))
    for c in range(classes):
        for node in member[lines.first[c] : lines.last[c]]:
            assert (seconds_of(lines, c) == free[:, node]).all()


@st.composite
def systems(draw: st.DrawFn) -> tuple[Capacity, list[Hold], list[int]]:
    """Capacities of nodes, what is held of them, and some of the nodes, all of few kinds."""
    resources = draw(st.integers(1, 2))
    amounts = st.tuples(*(st.integers(0, 4) for _ in range(resources)))
    kinds = draw(st.lists(amounts, min_size=1, max_size=2))
    capacity = tuple(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)))
    node = st.integers(0, len(capacity) - 1)
    holds = []
    for _ in range(draw(st.integers(0, 4))):
        start, amount = NOW + draw(st.integers(0, 12)), draw(amounts)
        end = start + draw(st.integers(0, 9))
        on = draw(st.lists(node, max_size=3, unique=True))
        holds += [Hold(one, start, end, amount) for one in on]
    return capacity, holds, sorted(draw(st.lists(node, min_size=1, unique=True)))


@st.composite
def asks(draw: st.DrawFn, resources: int) -> IntArray:
    ask = draw(st.lists(st.integers(0, 3), min_size=resources, max_size=resources))
    return ints(*ask) if max(ask) else ints(*(1 for _ in ask))


many = settings(max_examples=EXAMPLES)


# ------------------------------------------------------------------------- nodes and classes


@many
@given(systems())
def test_each_node_has_free_what_is_not_held_of_it(
    system: tuple[Capacity, list[Hold], list[int]],
) -> None:
    capacity, holds, nodes = system
    lines = nodes_with(capacity, holds, nodes)
    assert lines.size.tolist() == [len(nodes), 0]
    check(lines, ints(*nodes), by_second(capacity, holds))
    assert lines.capacity.tolist() == [list(capacity[node]) for node in nodes]


@many
@given(systems())
def test_a_class_has_all_nodes_that_are_alike_and_no_others(
    system: tuple[Capacity, list[Hold], list[int]],
) -> None:
    capacity, holds, nodes = system
    free = by_second(capacity, holds)
    alike: dict[Any, list[int]] = {}
    for node in nodes:
        alike.setdefault((capacity[node], free[:, node].tobytes()), []).append(node)
    lines, member = classes_with(capacity, holds, nodes)
    classes = range(lines.size[CLASSES])
    found = [member[lines.first[c] : lines.last[c]].tolist() for c in classes]
    assert found == list(alike.values())
    check(lines, member, free)
    for c in classes:
        assert lines.capacity[c].tolist() == list(capacity[found[c][0]])


def test_classes_come_in_the_order_of_their_first_nodes() -> None:
    lines, member = classes_with(((4,), (2,), (4,), (2,), (3,)), [], range(5))
    assert member.tolist() == [0, 2, 1, 3, 4]
    assert lines.first[:3].tolist() == [0, 2, 4]
    assert lines.last[:3].tolist() == [2, 4, 5]


def test_nodes_are_alike_whatever_pieces_the_same_is_held_in() -> None:
    whole = [Hold(0, 55, 65, (3,))]
    pieces = [Hold(1, 55, 60, (3,)), Hold(1, 60, 65, (2,)), Hold(1, 60, 65, (1,))]
    lines, member = classes_with(((4,), (4,)), whole + pieces, range(2))
    assert member.tolist() == [0, 1]
    assert lines.size[CLASSES] == 1
    assert lines.nodes.time[0, : lines.nodes.segments[0]].tolist() == [50, 55, 65]


def test_nothing_that_is_held_makes_no_difference() -> None:
    holds = [Hold(0, 55, 65, (0,)), Hold(1, 55, 55, (3,))]
    lines, _ = classes_with(((4,), (4,), (4,)), holds, range(3))
    assert lines.size[CLASSES] == 1
    assert lines.nodes.segments[0] == 1


def test_more_than_there_is_cannot_be_held() -> None:
    holds = [Hold(0, 50, 60, (3,)), Hold(0, 55, 65, (3,)), Hold(1, 50, 55, (3,)),
             Hold(1, 55, 60, (9,)), Hold(1, 60, 65, (3,))]  # fmt: skip
    lines, _ = classes_with(((4,), (4,)), holds, range(2))
    assert lines.size[CLASSES] == 1
    assert lines.nodes.free[0, : lines.nodes.segments[0], 0].tolist() == [1, 0, 1, 4]


@pytest.mark.parametrize(
    ("array", "index"), [("capacity", (1, 0)), ("time", (1, 1)), ("free", (1, 1, 1))]
)
def test_one_difference_is_enough_for_nodes_not_to_be_alike(
    array: str, index: tuple[int, ...]
) -> None:
    lines = nodes_with(((4, 2), (4, 2)), [Hold(k, 55, 60, (1, 1)) for k in range(2)], range(2))
    table = lines.capacity if array == "capacity" else getattr(lines.nodes, array)
    assert per_class._alike(lines, 0, 1)
    assert per_class._mark(lines, 0) == per_class._mark(lines, 1)
    table[index] -= 1
    assert not per_class._alike(lines, 0, 1)
    assert per_class._mark(lines, 0) != per_class._mark(lines, 1)
    table[index] += 1
    lines.nodes.segments[1] -= 1
    assert not per_class._alike(lines, 0, 1)
    assert per_class._mark(lines, 0) != per_class._mark(lines, 1)


def test_thousands_of_nodes_have_marks_of_their_own() -> None:
    holds = [Hold(k, 50, 51 + k // 50, (1 + k % 50,)) for k in range(2500)]
    lines = nodes_with(((60,),) * 2500, holds, range(2500))
    assert len({per_class._mark(lines, c) for c in range(2500)}) == 2500


@many
@given(systems())
def test_a_profile_of_all_nodes_gives_the_same_timelines(
    system: tuple[Capacity, list[Hold], list[int]],
) -> None:
    capacity, holds, _ = system
    nodes = range(len(capacity))
    lines = of_common_times(NOW + np.arange(SECONDS), by_second(capacity, holds))
    expected = nodes_with(capacity, holds, nodes)
    assert lines.size.tolist() == expected.size.tolist()
    for c in nodes:
        k = lines.nodes.segments[c]
        assert (lines.first[c], lines.last[c], k) == (c, c + 1, expected.nodes.segments[c])
        assert lines.capacity[c].tolist() == expected.capacity[c].tolist()
        assert lines.nodes.time[c, :k].tolist() == expected.nodes.time[c, :k].tolist()
        assert lines.nodes.free[c, :k].tolist() == expected.nodes.free[c, :k].tolist()


# ------------------------------------------------------------------------- one timeline


def test_a_row_that_is_too_short_says_so_and_stays_as_it_was() -> None:
    lines, _ = classes_with(((4,),), [], [0], spare=0)
    assert lines.nodes.time.shape[1] == 3
    hold(lines, 0, 52, 54, ints(1), 2)
    before = [array.tolist() for array in lines.nodes]
    assert lines.size[OVERFLOW] == 0
    assert lines.nodes.free[0, :3, 0].tolist() == [4, 2, 4]
    hold(lines, 0, 53, 54, ints(1), 2)
    assert lines.size[OVERFLOW] == 1
    assert [array.tolist() for array in lines.nodes] == before


def with_power(lines: Timelines, *segments: tuple[int, int], columns: int = 9) -> Timelines:
    """The timelines with a cap: from when on how much power is left."""
    power = empty(1, columns, 1)
    power.segments[0] = len(segments)
    power.time[0, : len(segments)] = [since for since, _ in segments]
    power.free[0, : len(segments), 0] = [watts for _, watts in segments]
    return lines._replace(power=power)


def power_of(lines: Timelines) -> list[tuple[int, int]]:
    """From when on how much power is left."""
    k = lines.power.segments[0]
    time, free = lines.power.time[0, :k].tolist(), lines.power.free[0, :k, 0].tolist()
    return list(zip(time, free, strict=True))


def test_power_is_taken_while_a_job_runs() -> None:
    lines = with_power(classes_with(((4,),), [], [0])[0], (50, 3), (60, 9))
    hold_power(lines, 55, 65, ints(2))
    assert power_of(lines) == [(50, 3), (55, 1), (60, 7), (65, 9)]
    hold_power(lines, 55, 60, ints(1))
    assert power_of(lines) == [(50, 3), (55, 0), (60, 7), (65, 9)]
    assert lines.size[OVERFLOW] == 0


def test_a_timeline_of_the_power_that_is_too_short_says_so() -> None:
    lines = with_power(classes_with(((4,),), [], [0])[0], (50, 3), (60, 9), columns=3)
    hold_power(lines, 55, 65, ints(2))
    assert lines.size.tolist() == [1, 1]
    assert power_of(lines) == [(50, 3), (60, 9)]


def test_a_copy_is_equal_and_independent() -> None:
    source, _ = classes_with(((4, 1), (2, 1)), [Hold(0, 55, 60, (1, 0))], range(2))
    source = with_power(source, (50, 3), (60, 9))
    target = empty_timelines(2, source.nodes.time.shape[1] + 5, 2, 20)
    copy(source, target)
    hold(source, 0, 50, 52, ints(1, 1), 1)
    hold_power(source, 50, 52, ints(3))
    assert target.size.tolist() == [2, 0]
    assert target.first[:2].tolist() == [0, 1]
    assert target.last[:2].tolist() == [1, 2]
    assert target.capacity.tolist() == [[4, 1], [2, 1]]
    assert target.nodes.segments.tolist() == [3, 1]
    assert target.nodes.time[0, :3].tolist() == [50, 55, 60]
    assert target.nodes.free[0, :3].tolist() == [[4, 1], [3, 1], [4, 1]]
    assert target.nodes.free[1, 0].tolist() == [2, 1]
    assert power_of(target) == [(50, 3), (60, 9)]


# ------------------------------------------------------------------------- where a job fits


def room(free: IntArray, ask: IntArray, units: int) -> int:
    """Units that fit beside each other into what is free."""
    rooms = [have // want for have, want in zip(free, ask, strict=True) if want]
    return int(min([units, *rooms]))


@many
@given(systems(), st.data())
def test_a_job_starts_at_the_first_second_from_which_it_fits(
    system: tuple[Capacity, list[Hold], list[int]], data: st.DataObject
) -> None:
    capacity, holds, nodes = system
    free = by_second(capacity, holds)
    lines, member = classes_with(capacity, holds, nodes)
    ask = data.draw(asks(len(capacity[0])))
    units, duration = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 15))
    most = data.draw(st.integers(1, units))
    not_before = NOW + data.draw(st.integers(0, 12))
    watts = data.draw(st.integers(0, 4))
    changes = sorted(data.draw(st.sets(st.integers(1, 15), max_size=3)))
    left = [(NOW + t, data.draw(st.integers(0, 4))) for t in [0, *changes]]
    lines = with_power(lines, *left)
    power = np.array([max(pair for pair in left if pair[0] <= NOW + t)[1] for t in range(SECONDS)])

    def rooms(start: int) -> dict[int, int]:
        least = free[start - NOW : start - NOW + duration].min(axis=0)
        return {node: room(least[node], ask, most) for node in nodes}

    def fits(start: int) -> bool:
        enough = watts == 0 or power[start - NOW : start - NOW + duration].min() >= watts
        return bool(enough and sum(rooms(start).values()) >= units)

    expected = next((s for s in range(not_before, NOW + SECONDS - 15) if fits(s)), FOREVER)
    window = empty_window(len(nodes))
    given = (ask, units, most, ints(watts), duration, not_before)
    start, work = earliest(lines, window, *given, True)
    assert start == expected
    for c in range(lines.size[CLASSES]):
        for node in member[lines.first[c] : lines.last[c]].tolist():
            assert start == FOREVER or window.room[c] == rooms(start)[node]
    again, less = earliest(lines, window, *given, False)
    assert again == expected
    assert less <= work


def test_without_nodes_a_job_never_fits() -> None:
    lines = empty_timelines(0, 3, 1, 0)
    assert earliest(lines, empty_window(0), ints(1), 1, 1, NO_WATTS, 5, NOW, True)[0] == FOREVER


def test_where_nothing_changes_nothing_is_looked_at_again() -> None:
    holds = [Hold(k, 50, 51 + k, (4,)) for k in range(7)]
    lines, _ = classes_with(((4,),) * 8, holds, range(8))
    start, work = earliest(lines, empty_window(8), ints(4), 8, 8, NO_WATTS, 5, NOW, True)
    # All classes at first, those with a job again when its end comes into sight and when it has
    # ended; each of the 8 starts costs 1 more.
    assert start == 57
    assert work <= 8 + 2 * 7 + 8


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_class_held_from_an_earlier_start_on_does_not_count(whole: bool) -> None:
    holds = [Hold(0, 50, 55, (4,)), Hold(1, 55, 60, (4,))]
    lines, _ = classes_with(((4,), (4,)), holds, range(2))
    assert earliest(lines, empty_window(2), ints(4), 2, 2, NO_WATTS, 5, NOW, whole)[0] == 60


def test_starts_from_which_the_job_can_be_seen_not_to_fit_are_not_tried() -> None:
    holds = [Hold(0, 50, 70, (3,)), *(Hold(0, s, s + 1, (1,)) for s in range(50, 70, 2))]
    lines, _ = classes_with(((4,),), holds, [0])
    assert lines.nodes.segments[0] == 21
    assert earliest(lines, empty_window(1), ints(2), 1, 1, NO_WATTS, 20, NOW, True) == (70, 2)


def test_the_search_ends_with_the_first_classes_that_hold_the_job_if_that_is_all_it_is_for() -> (
    None
):
    capacity = tuple((k + 1,) for k in range(6))
    lines, _ = classes_with(capacity, [], range(6))
    whole = earliest(lines, empty_window(6), ints(1), 3, 3, NO_WATTS, 5, NOW, True)
    assert earliest(lines, empty_window(6), ints(1), 3, 3, NO_WATTS, 5, NOW, False) == (NOW, 2)
    assert whole == (NOW, 6)


# ---------------------------------------------------------------------------- placing a job


def placed(
    lines: Timelines, window: Window, ask: IntArray, units: int, duration: int, start: int
) -> list[tuple[int, int, int]]:
    """Slices of members with units for each."""
    slices = Slices(*(np.full(9, -1) for _ in Slices._fields))
    end = place(lines, window, ask, units, duration, start, slices, 2)
    assert slices.units[:2].tolist() == [-1, -1]
    assert (slices.units[end:] == -1).all()
    return list(zip(*(array[2:end].tolist() for array in slices), strict=True))


@many
@given(systems(), st.data())
def test_what_a_job_is_given_is_held_of_its_nodes_and_of_no_others(
    system: tuple[Capacity, list[Hold], list[int]], data: st.DataObject
) -> None:
    capacity, holds, nodes = system
    free = by_second(capacity, holds)
    lines, member = classes_with(capacity, holds, nodes)
    window = empty_window(len(nodes))
    for _ in range(data.draw(st.integers(1, 4))):
        ask = data.draw(asks(len(capacity[0])))
        units, duration = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
        start, _ = earliest(lines, window, ask, units, units, NO_WATTS, duration, NOW, True)
        if start == FOREVER:
            continue
        found = placed(lines, window, ask, units, duration, start)
        assert sum((last - first) * each for first, last, each in found) == units
        for first, last, each in found:
            free[start - NOW : start - NOW + duration, member[first:last]] -= each * ask
        assert free.min() >= 0
        check(lines, member, free)


def placement(lines: Timelines, ask: int, units: int, duration: int) -> list[tuple[int, int, int]]:
    window = empty_window(len(lines.first))
    start, _ = earliest(lines, window, ints(ask), units, units, NO_WATTS, duration, NOW, True)
    return placed(lines, window, ints(ask), units, duration, start)


def test_a_class_splits_into_nodes_that_are_full_one_with_the_rest_and_those_not_used() -> None:
    lines, _ = classes_with(((4,),) * 5, [], range(5))
    assert placement(lines, 2, 5, 9) == [(0, 2, 2), (2, 3, 1)]
    assert lines.size[CLASSES] == 3
    assert lines.first[:3].tolist() == [3, 0, 2]
    assert lines.last[:3].tolist() == [5, 2, 3]
    assert lines.nodes.free[:3, 0, 0].tolist() == [4, 0, 2]


def test_a_class_that_is_used_to_its_last_node_does_not_split() -> None:
    lines, _ = classes_with(((4,),) * 3, [], range(3))
    assert placement(lines, 2, 6, 9) == [(0, 3, 2)]
    assert lines.size[CLASSES] == 1
    assert lines.nodes.time[0, : lines.nodes.segments[0]].tolist() == [50, 59]
    lines, _ = classes_with(((4,),) * 3, [], range(3))
    assert placement(lines, 2, 5, 9) == [(0, 2, 2), (2, 3, 1)]
    assert lines.size[CLASSES] == 2
    assert lines.first[:2].tolist() == [2, 0]


def test_the_fullest_class_comes_first_and_among_equals_the_one_with_the_lower_index() -> None:
    holds = [Hold(0, 50, 80, (1,)), Hold(1, 50, 80, (2,)), Hold(2, 50, 70, (2,))]
    lines, _ = classes_with(((4,),) * 4, holds, range(4))
    assert placement(lines, 1, 9, 9) == [(1, 2, 2), (2, 3, 2), (0, 1, 3), (3, 4, 2)]


def test_free_capacity_counts_in_parts_of_what_a_node_has() -> None:
    lines, _ = classes_with(((8,), (2,)), [Hold(0, 50, 80, (5,))], range(2))
    assert placement(lines, 1, 1, 9) == [(0, 1, 1)]
    lines, _ = classes_with(((8,), (2,)), [Hold(1, 50, 80, (1,))], range(2))
    assert placement(lines, 1, 1, 9) == [(1, 2, 1)]
