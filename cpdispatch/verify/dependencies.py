"""Jobs that come after others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cpdispatch.instance import Instance
from cpdispatch.verify.plan import Planned
from cpdispatch.verify.violation import Kind, Violation, too_soon_text


def depending(
    instance: Instance, starts: Mapping[int, int], plan: Iterable[Planned]
) -> list[Violation]:
    """Starts, by queue position, before the jobs that they come after have ended.

    A job of the ``plan`` ends when it has given back what it holds; one that is not in it, which
    starts and is not sound, when it is expected to.
    """
    given, ids = instance.dependencies, instance.queue.id
    assert given is not None
    ends = {k: start_s + int(instance.queue.expected_s[k]) for k, start_s in starts.items()}
    ends |= {job.position: job.end_s for job in plan}
    found = []
    for position, start_s in starts.items():
        name = f"job {ids[position]} starts at {start_s}"
        if start_s < (stated_s := int(given.stated_s[position])) and stated_s > instance.now:
            found.append(Violation(Kind.DEPENDENCY, f"{name}, allowed from {stated_s} on"))
        think_s = int(given.think_s[position])
        for before, end_s in ends_before(instance, ends, position):
            if end_s is None:
                text = f"{name}, and job {before}, after which it comes, has no start"
                found.append(Violation(Kind.DEPENDENCY, text))
            elif start_s < end_s + think_s:
                found.append(
                    Violation(Kind.DEPENDENCY, too_soon_text(name, before, end_s, think_s))
                )
    return found


def ends_before(
    instance: Instance, ends: Mapping[int, int], position: int
) -> Iterable[tuple[int, int | None]]:
    """Each job that a queued one comes after, and its end as expected; None without a start.

    ``ends`` are those of jobs of the queue that start, by position.
    """
    given, queue, running = instance.dependencies, instance.queue, instance.running
    assert given is not None
    first, last = int(given.running_offset[position]), int(given.running_offset[position + 1])
    for k in given.running_position[first:last].tolist():
        yield int(running.jobs.id[k]), max(int(running.end_s[k]), instance.now + 1)
    for k in given.position[given.offset[position] : given.offset[position + 1]].tolist():
        yield int(queue.id[k]), ends.get(k)


def released(instance: Instance, ends: Mapping[int, int], position: int) -> int:
    """From when on the jobs that a queued one comes after let it start, see `ends_before`."""
    if instance.dependencies is None:
        return instance.now
    given, times = instance.dependencies, [instance.now]
    times.append(int(given.stated_s[position]))
    for _, end_s in ends_before(instance, ends, position):
        if end_s is not None:
            times.append(end_s + int(given.think_s[position]))
    return max(times)
