"""Lanes of a picture of nodes over time: which rows of a node each job is drawn in.

A node has a lane for each of its processors. A run says on which nodes a job is and how many
processors it holds there, not which ones: a job is drawn in the lowest lanes that are free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.compile import allocating

_BLOCK = 256


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """What is drawn: attempts at jobs, each on lanes of nodes for a time."""

    start_s: IntArray
    end_s: IntArray
    """Shape (bars,)."""
    offset: IntArray
    """The k-th bar has the entries ``offset[k]:offset[k + 1]``, shape (bars + 1,)."""
    node: IntArray
    lanes: IntArray
    """How many lanes of which node, shape (entries,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """In which lanes each bar is drawn, in the order of their starts."""

    order: IntArray
    """Bars by start, shape (bars,); of equal ones by index."""
    count: IntArray
    """How many runs of adjacent lanes the k-th bar of the order has, shape (bars,)."""
    first: IntArray
    length: IntArray
    """First lane and number of lanes of each run, shape (runs,); lanes are numbered through all
    nodes.
    """


def drawn(bars: Bars, lanes_of_node: IntArray) -> Drawn:
    """Put each bar into the lowest lanes of its nodes that are free at its start.

    A bar frees its lanes at its end, before others start then. One of no duration frees them at
    once. Where a node has too few free lanes, the bar has fewer.

    Parameters
    ----------
    lanes_of_node : int64 array, shape (nodes,)
    """
    first_of_node = np.concatenate(([0], np.cumsum(lanes_of_node))).astype(np.int64)
    by_start = np.argsort(bars.start_s, kind="stable").astype(np.int64)
    by_end = np.argsort(bars.end_s, kind="stable").astype(np.int64)
    count, first, length = _put(
        by_start, by_end, bars.start_s, bars.end_s, bars.offset, bars.node, bars.lanes,
        first_of_node,
    )  # fmt: skip
    return Drawn(by_start, count[by_start], first, length)


@allocating
def _put(
    by_start: IntArray, by_end: IntArray, start_s: IntArray, end_s: IntArray, offset: IntArray,
    node: IntArray, lanes: IntArray, first_of_node: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:  # fmt: skip
    """Runs of lanes by start: their number for each bar, first lanes and lengths."""
    bars = by_start.shape[0]
    busy = np.zeros(first_of_node[-1], dtype=np.bool_)
    # Of each block of lanes: how many are busy. A pool may have 100,000 lanes to look through.
    full = np.zeros(first_of_node[-1] // _BLOCK + 1, dtype=np.int64)
    hint = first_of_node[:-1].copy()  # no lane of the node before this one is free
    begin, count = np.zeros(bars, dtype=np.int64), np.zeros(bars, dtype=np.int64)
    first, length = np.empty(4 * bars + 4, dtype=np.int64), np.empty(4 * bars + 4, dtype=np.int64)
    runs, ended = 0, 0
    for k in range(bars):
        bar = by_start[k]
        while ended < bars and end_s[by_end[ended]] <= start_s[bar]:
            done = by_end[ended]
            ended += 1
            for entry in range(offset[done], offset[done + 1]):
                hint[node[entry]] = first_of_node[node[entry]]
            for run in range(begin[done], begin[done] + count[done]):
                for lane in range(first[run], first[run] + length[run]):
                    busy[lane] = False
                    full[lane // _BLOCK] -= 1
        begin[bar] = runs
        for entry in range(offset[bar], offset[bar + 1]):
            need, lane = lanes[entry], hint[node[entry]]
            last = first_of_node[node[entry] + 1]
            while need > 0 and lane < last:
                if full[lane // _BLOCK] == _BLOCK:
                    lane = min((lane // _BLOCK + 1) * _BLOCK, last)
                    continue
                if not busy[lane]:
                    busy[lane] = True
                    full[lane // _BLOCK] += 1
                    need -= 1
                    if runs > begin[bar] and first[runs - 1] + length[runs - 1] == lane:
                        length[runs - 1] += 1
                    else:
                        if runs == first.shape[0]:
                            first = np.concatenate((first, np.empty_like(first)))
                            length = np.concatenate((length, np.empty_like(length)))
                        first[runs], length[runs] = lane, 1
                        runs += 1
                lane += 1
            hint[node[entry]] = lane
        count[bar] = runs - begin[bar]
        if end_s[bar] <= start_s[bar]:
            for entry in range(offset[bar], offset[bar + 1]):
                hint[node[entry]] = first_of_node[node[entry]]
            for run in range(begin[bar], runs):
                for lane in range(first[run], first[run] + length[run]):
                    busy[lane] = False
                    full[lane // _BLOCK] -= 1
    return count, first[:runs].copy(), length[:runs].copy()
