"""The plain twin of the lanes of a picture: sets of free lanes, one bar after the other."""

from __future__ import annotations

from collections.abc import Sequence

Bar = tuple[int, int, list[tuple[int, int]]]
"""Start, end, and (node, lanes) of each of its nodes."""


def lanes_of_bars(bars: Sequence[Bar], lanes_of_node: Sequence[int]) -> list[list[int]]:
    """The lanes of each bar, numbered through all nodes, in the order of its nodes."""
    free = [set(range(lanes)) for lanes in lanes_of_node]
    found: list[list[tuple[int, int]]] = [[] for _ in bars]
    held: list[int] = []
    for bar in sorted(range(len(bars)), key=lambda k: (bars[k][0], k)):
        now = bars[bar][0]
        for other in [k for k in held if bars[k][1] <= now]:
            held.remove(other)
            for node, lane in found[other]:
                free[node].add(lane)
        for node, lanes in bars[bar][2]:
            for lane in sorted(free[node])[:lanes]:
                free[node].remove(lane)
                found[bar].append((node, lane))
        held.append(bar)
    return [[sum(lanes_of_node[:node]) + lane for node, lane in of] for of in found]
