from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpdispatch.report.lanes import Bars, drawn
from tests.oracles.plain_lanes import Bar, lanes_of_bars


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Bar], list[int]]:
    nodes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    bars = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 20))
        end = start + draw(st.integers(0, 8))
        on = draw(st.lists(st.integers(0, len(nodes) - 1), unique=True, max_size=3))
        bars.append((start, end, [(node, draw(st.integers(0, 5))) for node in on]))
    return bars, nodes


def lanes(bars: list[Bar], lanes_of_node: list[int]) -> list[list[int]]:
    """The lanes of each bar, by the kernel."""
    entries = [entry for _, _, of in bars for entry in of]
    table = np.array(entries, dtype=np.int64).reshape(-1, 2)
    offset = np.cumsum([0, *(len(of) for _, _, of in bars)], dtype=np.int64)
    times = np.array([bar[:2] for bar in bars], dtype=np.int64).reshape(-1, 2)
    put = drawn(
        Bars(times[:, 0], times[:, 1], offset, table[:, 0], table[:, 1]),
        np.array(lanes_of_node, dtype=np.int64),
    )
    found: list[list[int]] = [[] for _ in bars]
    run = 0
    for bar, count in zip(put.order, put.count, strict=True):
        for _ in range(count):
            found[bar] += range(put.first[run], put.first[run] + put.length[run])
            run += 1
    assert run == len(put.first)
    return found


@given(cases())
def test_bars_have_the_lanes_of_the_plain_twin(case: tuple[list[Bar], list[int]]) -> None:
    bars, nodes = case
    assert lanes(bars, nodes) == lanes_of_bars(bars, nodes)


def test_bars_on_nodes_of_many_lanes_have_the_lanes_of_the_plain_twin() -> None:
    random = np.random.default_rng(3)
    bars: list[Bar] = []
    for _ in range(80):
        start = int(random.integers(0, 40))
        on = [(node, int(random.integers(0, 300))) for node in range(2)]
        bars.append((start, start + int(random.integers(0, 12)), on))
    nodes = [700, 1100]
    assert lanes(bars, nodes) == lanes_of_bars(bars, nodes)


def test_a_bar_of_no_duration_is_drawn_and_holds_nothing() -> None:
    bars: list[Bar] = [(5, 5, [(0, 2)]), (5, 9, [(0, 2)])]
    assert lanes(bars, [2]) == [[0, 1], [0, 1]]


def test_adjacent_lanes_are_one_run_over_nodes_too() -> None:
    one = np.array([0], dtype=np.int64)
    put = drawn(
        Bars(one, one + 7, np.array([0, 2]), np.array([0, 1]), np.array([2, 3])), np.array([2, 3])
    )
    assert (put.first.tolist(), put.length.tolist()) == ([0], [5])
