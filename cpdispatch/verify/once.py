"""What jobs take once, on their first nodes: it is not multiplied by units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cpdispatch.arrays import IntArray
from cpdispatch.verify.levels import units_on_nodes

_ONCE = "first@"


def pairs(resources: Sequence[str]) -> list[tuple[int, int]]:
    """The resource types that are taken once, and those that they are amounts of, by index."""
    names = list(resources)
    return [
        (k, names.index(name.removeprefix(_ONCE)))
        for k, name in enumerate(names)
        if name.startswith(_ONCE)
    ]


def apart(resources: Sequence[str], request: IntArray) -> tuple[IntArray, IntArray | None]:
    """What jobs ask for of each unit and once, shape (jobs, resources); None for nothing once."""
    found = pairs(resources)
    if not found:
        return request, None
    unit, once = request.copy(), np.zeros_like(request)
    for k, of in found:
        once[:, of], unit[:, k] = request[:, k], 0
    return unit, once


def heads(lengths: IntArray) -> IntArray:
    """1 for the first of the entries of each job, else 0; the jobs have so many entries each."""
    found = np.zeros(int(lengths.sum()), dtype=np.int64)
    found[(np.cumsum(lengths) - lengths)[lengths > 0]] = 1
    return found


def held(
    of: Sequence[tuple[int, int]], request: Sequence[int], units: int, first: bool
) -> list[int]:
    """What a job holds on one of its nodes, where it has so many units; ``of`` are `pairs`."""
    found = [units * n for n in request]
    for k, kind in of:
        found[k] = 0
        found[kind] += request[k] * first
    return found


def fits(capacity: IntArray, units: int, request: IntArray, once: IntArray) -> bool:
    """Whether a job fits nodes, shape (nodes, resources), with one of them as its first."""
    left = capacity - once
    on_first = units_on_nodes(np.maximum(left, 0), request) * (left >= 0).all(axis=1)
    on_node = units_on_nodes(capacity, request)
    return bool(((on_first > 0) & (on_node.sum() - on_node + on_first >= units)).any())
