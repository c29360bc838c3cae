"""Starts with a bound, and jobs that have just been stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cpdispatch.instance import Instance
from cpdispatch.verify.violation import Kind, Violation


def wrong_bounds(
    instance: Instance, starts: Mapping[int, int], bounds: Mapping[int, int]
) -> Iterator[Violation]:
    """Bounds, by queue position, that no start can have; ``starts`` are all starts, in seconds."""
    stopped = () if instance.stopped is None else instance.stopped.position.tolist()
    for position, bound_s in bounds.items():
        name = f"job {instance.queue.id[position]} has a bound of {bound_s} s"
        if bound_s <= 0:
            yield Violation(Kind.RESTART, f"{name}, at least 1 s is allowed")
        elif starts.get(position) != instance.now:
            yield Violation(Kind.RESTART, f"{name} and does not start now")
        elif position in stopped:
            yield Violation(Kind.RESTART, f"{name} and has been stopped once")
        elif not instance.queue.restartable[position]:
            yield Violation(Kind.RESTART, f"{name} and may not be restarted")


def left_s(
    instance: Instance, position: int, start_s: int, nodes: Mapping[int, int] | None
) -> int | None:
    """How long a stopped job that goes on is expected to run yet, seconds; None for other jobs.

    Its expected duration counts from the start of its run.
    """
    if instance.stopped is None or start_s != instance.now:
        return None
    began_s, held = instance.stopped.held().get(position, (0, None))
    if held is None or nodes != held:
        return None
    return max(began_s + int(instance.queue.expected_s[position]) - instance.now, 1)


def killed(
    instance: Instance,
    starts: Mapping[int, int],
    places: Mapping[int, Mapping[int, int] | None],
) -> tuple[list[Violation], dict[int, dict[int, int]]]:
    """Killed jobs that start too early, and the nodes that killing keeps busy, by position.

    Parameters
    ----------
    starts : mapping of int to int
        The start of each job by queue position, seconds.
    places : mapping of int to mapping
        Units by node of each job that has nodes.
    """
    if instance.stopped is None or not instance.restart_cost_s:
        return [], {}
    found: list[Violation] = []
    busy: dict[int, dict[int, int]] = {}
    over_s = instance.now + instance.restart_cost_s
    for position, (_, nodes) in instance.stopped.held().items():
        start_s = starts.get(position)
        if start_s == instance.now and places.get(position) == nodes:
            continue
        if start_s is not None and start_s < over_s:
            name = f"job {instance.queue.id[position]}"
            text = f"{name} is killed and starts elsewhere at {start_s}, allowed from {over_s} on"
            found.append(Violation(Kind.RESTART, text))
        busy[position] = nodes
    return found, busy
