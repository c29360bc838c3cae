"""The start and the nodes of one job, without regard to other jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cpdispatch.instance import Instance
from cpdispatch.verify.violation import Kind, Violation


def early_start(instance: Instance, position: int, start_s: int) -> Violation:
    """The violation of a queued job that starts too early."""
    id, submit_s = int(instance.queue.id[position]), int(instance.queue.submit_s[position])
    text = f"job {id} starts at {start_s}, allowed from {max(instance.now, submit_s)} on"
    return Violation(Kind.EARLY_START, text)


def misplaced(
    id: int, here: list[int], there: list[int], wanted: int, request: Sequence[int], nodes: int,
    down: frozenset[int],
) -> list[Violation]:  # fmt: skip
    """What is wrong with one job's nodes (``here``) and its units on them (``there``).

    A request below 0 says how many units may share a node.
    """
    most = -min(request)
    if (
        here
        and sum(there) == wanted
        and min(there) > 0
        and min(here) >= 0
        and max(here) < nodes
        and len(set(here)) == len(here)
        and down.isdisjoint(here)
        and (most <= 0 or max(there) <= most)
    ):
        return []
    found = []
    if sum(there) != wanted:
        text = f"job {id} has {sum(there)} units on its nodes, it asks for {wanted}"
        found.append(Violation(Kind.UNITS, text))
    for node, units in zip(here, there, strict=True):
        if units <= 0:
            text = f"job {id} has {units} units on node {node}, at least 1 is allowed"
            found.append(Violation(Kind.UNITS, text))
        if 0 < most < units:
            text = f"job {id} has {units} units on node {node}, {most} may share one"
            found.append(Violation(Kind.SPREAD, text))
        if not 0 <= node < nodes:
            text = f"job {id} uses node {node}, nodes are numbered 0 to {nodes - 1}"
            found.append(Violation(Kind.NODE, text))
        elif node in down:
            text = f"job {id} uses node {node}, which is out of service"
            found.append(Violation(Kind.DOWN, text))
    for node, times in Counter(here).items():
        if times > 1:
            found.append(Violation(Kind.NODE, f"job {id} names node {node} {times} times"))
    if not here and wanted == 0:
        found.append(Violation(Kind.PLACEMENT, f"job {id} starts and has no nodes"))
    return found
