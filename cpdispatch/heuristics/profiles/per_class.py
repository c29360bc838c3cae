"""What nodes have free over time, kept once for all nodes that are alike: compiled kernels.

Nodes of the same capacity that have the same free capacity at every time form a class; a class
has one timeline, a row of a resource profile. A job that takes some nodes of a class splits it.
Classes are slices of one permutation of the nodes (see `classes_of`), which splitting never
changes.

The kernel `look` is compiled into its callers: as a call it makes list schedules take twice as
long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpdispatch.arrays import FloatArray, IntArray
from cpdispatch.compile import allocating, inlined, kernel
from cpdispatch.heuristics.kernels import ascending, asks_once, xorshift
from cpdispatch.heuristics.profiles import profile
from cpdispatch.heuristics.profiles.profile import FOREVER, Profile, copy_row, segment_at

CLASSES, OVERFLOW = 0, 1
NONE_FITS = 1 << 61
"""More than any room: no node can be the first one of a job."""


class Timelines(NamedTuple):
    """The timelines of all classes, and that of the power cap; changed in place."""

    size: IntArray
    """Number of classes; whether a row was too short."""
    first: IntArray
    """The nodes of class c are members ``first[c]`` to ``last[c] - 1``; shape (nodes,)."""
    last: IntArray
    capacity: IntArray
    """Of a node of each class, what counts, see `cpdispatch.system.System`; shape (nodes,
    resources)."""
    nodes: Profile
    """Free on a node of each class: one row a class."""
    power: Profile
    """Power left under the cap: one row, without segments where there is no cap."""


class Window(NamedTuple):
    """What each class holds of a job from some start on, and until when that is so; scratch."""

    room: IntArray
    """Units of the job that a node holds for the job's whole duration, shape (nodes,)."""
    grows: IntArray
    """No earlier start has more room than this one."""
    until: IntArray
    """The room is known for starts before this."""
    score: FloatArray


@allocating
def empty_timelines(nodes: int, columns: int, resources: int, power_columns: int) -> Timelines:
    """Room for so many classes, segments of each, and segments of the power's timeline."""
    return Timelines(
        np.zeros(2, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty((nodes, resources), dtype=np.int64),
        profile.empty(nodes, columns, resources),
        profile.empty(1, power_columns, 1),
    )


def room_for_states(lines: Timelines, states: int) -> Timelines:
    """Room for so many states of some timelines: every array with one dimension more in front."""

    def more(array: IntArray) -> IntArray:
        return np.empty((states, *array.shape), dtype=np.int64)

    return Timelines(
        more(lines.size), more(lines.first), more(lines.last), more(lines.capacity),
        Profile(*map(more, lines.nodes)), Profile(*map(more, lines.power)),
    )  # fmt: skip


@allocating
def state(states: Timelines, k: int) -> Timelines:
    """The k-th of some states: timelines that are changed in place, too."""
    nodes, power = states.nodes, states.power
    return Timelines(
        states.size[k], states.first[k], states.last[k], states.capacity[k],
        Profile(nodes.segments[k], nodes.time[k], nodes.free[k]),
        Profile(power.segments[k], power.time[k], power.free[k]),
    )  # fmt: skip


def size_bytes(lines: Timelines) -> int:
    """How much memory the arrays take."""
    return sum(array.nbytes for array in (*lines[:4], *lines.nodes, *lines.power))


@allocating
def empty_window(nodes: int) -> Window:
    """A window for so many classes."""
    return Window(
        np.empty(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.int64),
        np.empty(nodes, dtype=np.float64),
    )


@kernel
def copy(source: Timelines, target: Timelines) -> None:
    """Make the target equal to the source; its rows may be longer."""
    for k in range(source.size.shape[0]):
        target.size[k] = source.size[k]
    for c in range(source.size[CLASSES]):
        target.first[c], target.last[c] = source.first[c], source.last[c]
        _copy_class(source, c, target, c)
    copy_row(source.power, 0, target.power, 0)


@kernel
def _copy_class(source: Timelines, c: int, target: Timelines, d: int) -> None:
    """What the nodes of a class have, and have free, becomes that of the nodes of another."""
    for r in range(source.capacity.shape[1]):
        target.capacity[d, r] = source.capacity[c, r]
    copy_row(source.nodes, c, target.nodes, d)


@kernel
def hold(lines: Timelines, c: int, start: int, end: int, ask: IntArray, units: int) -> None:
    """Take units of a job from every node of a class over [start, end)."""
    if lines.nodes.segments[c] + 2 > lines.nodes.time.shape[1]:
        lines.size[OVERFLOW] = 1
    else:
        profile.hold(lines.nodes, c, start, end, ask, units)


@kernel
def hold_power(lines: Timelines, start: int, end: int, watts: IntArray) -> None:
    """Take power over [start, end)."""
    if lines.power.segments[0] + 2 > lines.power.time.shape[1]:
        lines.size[OVERFLOW] = 1
    else:
        profile.hold(lines.power, 0, start, end, watts, 1)


# ------------------------------------------------------------------------- where a job fits


@inlined
def look(
    lines: Timelines, window: Window, c: int, ask: IntArray, most: int, duration: int, start: int
) -> None:
    """Room for ``most`` units of a job on a node of a class from ``start`` on, and until when."""
    time, free, segments = lines.nodes.time[c], lines.nodes.free[c], lines.nodes.segments[c]
    k = segment_at(time, segments, start)
    room, grows = most, FOREVER
    while k < segments and time[k] < start + duration:
        here = most
        for r in range(free.shape[1]):
            if here * ask[r] > free[k, r]:
                here = free[k, r] // ask[r]
        k += 1
        if here <= room:
            room = here
            grows = time[k] if k < segments else FOREVER
    window.room[c] = room
    window.grows[c] = FOREVER if room == most else grows
    window.until[c] = min(grows, time[k] - duration + 1) if k < segments else grows


@kernel
def _room_on_first(
    lines: Timelines, c: int, ask: IntArray, most: int, duration: int, start: int
) -> tuple[int, int]:
    """The same beside what the job takes once, on its first node; and when that may be more."""
    time, free, segments = lines.nodes.time[c], lines.nodes.free[c], lines.nodes.segments[c]
    resources = free.shape[1]
    k = segment_at(time, segments, start)
    room, grows = most, FOREVER
    while k < segments and time[k] < start + duration:
        here = most
        for r in range(resources):
            left = free[k, r] - ask[resources + r]
            if here * ask[r] > left:
                here = max(left, 0) // ask[r] if ask[r] > 0 else 0
        k += 1
        if here <= room:
            room = here
            grows = time[k] if k < segments else FOREVER
    return room, FOREVER if room == most else grows


@kernel
def _earliest_with_first(
    lines: Timelines, window: Window, ask: IntArray, units: int, most: int, watts: IntArray,
    duration: int, not_before: int,
) -> tuple[int, int]:  # fmt: skip
    """`earliest` for a job that takes something once."""
    classes, start, looked = lines.size[CLASSES], not_before, 0
    while True:
        if watts[0] > 0:
            start, _ = profile.earliest(lines.power, 0, watts, duration, start)
        total, least, following = 0, NONE_FITS, FOREVER
        for c in range(classes):
            look(lines, window, c, ask, most, duration, start)
            room, grows = window.room[c], window.grows[c]
            total += room * (lines.last[c] - lines.first[c])
            on_first, grows_too = _room_on_first(lines, c, ask, most, duration, start)
            following = min(following, grows, grows_too)
            if on_first > 0:
                least = min(least, room - on_first)
        looked += 2 * classes
        if total - least >= units or start >= FOREVER:
            return start, looked
        start = following


@kernel
def earliest(
    lines: Timelines,
    window: Window,
    ask: IntArray,
    units: int,
    most: int,
    watts: IntArray,
    duration: int,
    not_before: int,
    whole: bool,
) -> tuple[int, int]:
    """First start, ``not_before`` at the earliest, from which a job fits for its whole duration.

    No node takes more than ``most`` of its units.

    Returns it, `FOREVER` if there is none, and the work, in windows looked at. The window tells
    then how much of the job each class holds from that start on, if the ``whole`` is asked for.
    """
    if asks_once(ask, lines.nodes.free.shape[2]):
        return _earliest_with_first(lines, window, ask, units, most, watts, duration, not_before)
    classes = lines.size[CLASSES]
    window.until[:classes] = not_before
    window.room[:classes] = 0
    start, total, looked, first = not_before, 0, 0, True
    while True:
        if watts[0] > 0:
            start, _ = profile.earliest(lines.power, 0, watts, duration, start)
        following = FOREVER
        looked += classes // 8  # what it takes to pass over those that need no look
        for c in range(classes):
            if window.until[c] <= start:
                nodes = lines.last[c] - lines.first[c]
                total -= window.room[c] * nodes
                look(lines, window, c, ask, most, duration, start)
                total += window.room[c] * nodes
                looked += 1
                if not whole and total >= units and first:
                    return start, looked  # nothing is known of the classes that are left
            following = min(following, window.grows[c])
        if total >= units or start >= FOREVER:
            return start, looked
        start, first = following, False


# ---------------------------------------------------------------------------- placing a job


class Slices(NamedTuple):
    """Where units were placed: growing lists of members, and units on each of them."""

    first: IntArray
    last: IntArray
    units: IntArray


@kernel
def place(
    lines: Timelines,
    window: Window,
    ask: IntArray,
    units: int,
    duration: int,
    start: int,
    slices: Slices,
    at: int,
) -> int:
    """Place a job that fits from ``start`` on by best fit; return where its entries end.

    Classes with the fullest nodes come first, the one with the lower index among equals, and of a
    class its first nodes, each with as many units as it holds. Entries are written from ``at`` on.

    Of a job that takes something once, the first node is chosen first, in the same order, of those
    that leave room for the rest.
    """
    classes = lines.size[CLASSES]
    for c in range(classes):
        window.score[c] = np.inf
        if window.room[c] > 0:
            window.score[c] = fullness(lines, c, duration, start)
    left = units
    if asks_once(ask, lines.nodes.free.shape[2]):
        left -= _take_first(lines, window, ask, units, duration, start, slices, at)
        at += 1
    while left > 0:
        c = int(np.argmin(window.score[:classes]))
        window.score[c] = np.inf
        room, nodes = window.room[c], lines.last[c] - lines.first[c]
        full = min(left // room, nodes)
        rest = left - full * room if full < nodes else 0
        if full > 0:
            at = take(lines, c, full, room, ask, start, duration, slices, at)
        if rest > 0:
            at = take(lines, c, 1, rest, ask, start, duration, slices, at)
        left -= full * room + rest
    return at


@kernel
def _take_first(
    lines: Timelines, window: Window, ask: IntArray, units: int, duration: int, start: int,
    slices: Slices, at: int,
) -> int:  # fmt: skip
    """Choose the first node of a job that fits from ``start`` on, and place what goes there.

    Returns how many units that are. The window has the room and the score of each class.
    """
    classes, resources, total = lines.size[CLASSES], lines.nodes.free.shape[2], 0
    for c in range(classes):
        total += window.room[c] * (lines.last[c] - lines.first[c])
    found, here, least = -1, 0, np.inf
    for c in range(classes):
        if window.room[c] > 0 and window.score[c] < least:
            room, _ = _room_on_first(lines, c, ask, window.room[c], duration, start)
            if room > 0 and total - window.room[c] + room >= units:
                found, here, least = c, min(room, units), window.score[c]
    take(lines, found, 1, here, ask, start, duration, slices, at)
    taken = found
    if lines.size[CLASSES] > classes:
        taken = classes
    else:
        window.score[found] = np.inf
    hold(lines, taken, start, start + duration, ask[resources:], 1)
    return here


@kernel
def fullness(lines: Timelines, c: int, duration: int, start: int) -> float:
    """Sum over the resource types that a node has of free / capacity, the least in the window."""
    time, free, segments = lines.nodes.time[c], lines.nodes.free[c], lines.nodes.segments[c]
    low = segment_at(time, segments, start)
    high = low + 1
    while high < segments and time[high] < start + duration:
        high += 1
    total = 0.0
    for r in range(free.shape[1]):
        if lines.capacity[c, r] > 0:
            least = free[low, r]
            for k in range(low + 1, high):
                least = min(least, free[k, r])
            total += least / lines.capacity[c, r]
    return total


@kernel
def take(
    lines: Timelines,
    c: int,
    nodes: int,
    units: int,
    ask: IntArray,
    start: int,
    duration: int,
    slices: Slices,
    at: int,
) -> int:
    """Take units from each of the first nodes of a class, which become one of their own."""
    first = lines.first[c]
    slices.first[at], slices.last[at], slices.units[at] = first, first + nodes, units
    if first + nodes < lines.last[c]:
        d = lines.size[CLASSES]
        lines.size[CLASSES] = d + 1
        lines.first[d], lines.last[d] = first, first + nodes
        _copy_class(lines, c, lines, d)
        lines.first[c] = first + nodes
        c = d
    hold(lines, c, start, start + duration, ask, units)
    return at + 1


# ----------------------------------------------------------------------- the nodes of a system


@allocating
def of_nodes(
    now: int,
    capacity: IntArray,
    counted: IntArray,
    nodes: IntArray,
    columns: int,
    held_start: IntArray,
    held_end: IntArray,
    held_node: IntArray,
    held: IntArray,
) -> Timelines:
    """One class a node, for these nodes: their capacity without what is held of it.

    Parameters
    ----------
    capacity, counted : int64 array, shape (nodes of the system, resources)
        See `cpdispatch.system.System`.
    nodes : int64 array
        Those in service, ascending.
    columns : int
        Segments that a row must be able to take.
    held_start, held_end, held_node : int64 array, shape (entries,)
    held : int64 array, shape (entries, resources)
        What is held of a node from a start, no earlier than ``now``, to an end.
    """
    lines = empty_timelines(len(nodes), columns, capacity.shape[1], 0)
    row = np.full(capacity.shape[0], -1)
    lines.size[CLASSES] = len(nodes)
    for c in range(len(nodes)):
        row[nodes[c]] = c
        lines.first[c], lines.last[c], lines.nodes.segments[c] = c, c + 1, 1
        lines.nodes.time[c, 0] = now
        for r in range(capacity.shape[1]):
            lines.capacity[c, r] = counted[nodes[c], r]
            lines.nodes.free[c, 0, r] = capacity[nodes[c], r]
    for k in range(len(held_node)):
        if row[held_node[k]] >= 0:
            hold(lines, row[held_node[k]], held_start[k], held_end[k], held[k], 1)
    for c in range(len(nodes)):
        _settle(lines, c)
    return lines


@kernel
def _settle(lines: Timelines, c: int) -> None:
    """Leave nothing below 0, and no segment in which as much is free as in the one before it."""
    time, free, count = lines.nodes.time[c], lines.nodes.free[c], 0
    for k in range(lines.nodes.segments[c]):
        same = count > 0
        for r in range(free.shape[1]):
            free[k, r] = max(free[k, r], 0)
            same = same and free[k, r] == free[count - 1, r]
        if not same:
            time[count] = time[k]
            for r in range(free.shape[1]):
                free[count, r] = free[k, r]
            count += 1
    lines.nodes.segments[c] = count


@kernel
def _mark(lines: Timelines, c: int) -> int:
    """A number that is the same for classes that are alike, and rarely for others."""
    mark = np.uint64(88172645463325252)
    for r in range(lines.capacity.shape[1]):
        mark = xorshift(mark ^ np.uint64(lines.capacity[c, r]))
    for k in range(lines.nodes.segments[c]):
        mark = xorshift(mark ^ np.uint64(lines.nodes.time[c, k]))
        for r in range(lines.nodes.free.shape[2]):
            mark = xorshift(mark ^ np.uint64(lines.nodes.free[c, k, r]))
    return int(mark >> np.uint64(1))


@kernel
def _alike(lines: Timelines, c: int, d: int) -> bool:
    """Whether nodes of two classes have the same capacity, and the same free at every time."""
    if lines.nodes.segments[c] != lines.nodes.segments[d]:
        return False
    for r in range(lines.capacity.shape[1]):
        if lines.capacity[c, r] != lines.capacity[d, r]:
            return False
    for k in range(lines.nodes.segments[c]):
        if lines.nodes.time[c, k] != lines.nodes.time[d, k]:
            return False
        for r in range(lines.nodes.free.shape[2]):
            if lines.nodes.free[c, k, r] != lines.nodes.free[d, k, r]:
                return False
    return True


@allocating
def classes_of(lines: Timelines) -> tuple[IntArray, IntArray]:
    """The nodes in an order in which like ones are neighbours, and where each class begins.

    Classes come in the order of their first nodes.
    """
    nodes = lines.size[CLASSES]
    mark = np.empty(nodes, dtype=np.int64)
    for c in range(nodes):
        mark[c] = _mark(lines, c)
    by_mark = ascending(mark)
    leader = np.empty(nodes, dtype=np.int64)
    for k in range(nodes):
        c = by_mark[k]
        leader[c] = c
        if k > 0 and mark[by_mark[k - 1]] == mark[c] and _alike(lines, by_mark[k - 1], c):
            leader[c] = leader[by_mark[k - 1]]
    member = ascending(leader)
    begins = np.ones(nodes, dtype=np.bool_)
    for k in range(1, nodes):
        begins[k] = leader[member[k]] != leader[member[k - 1]]
    return member, np.nonzero(begins)[0]


@allocating
def joined(lines: Timelines, member: IntArray, begin: IntArray) -> Timelines:
    """The timelines of classes instead of nodes; see `classes_of`."""
    nodes, columns = lines.nodes.time.shape
    joint = empty_timelines(nodes, columns, lines.nodes.free.shape[2], 0)
    joint.size[CLASSES] = len(begin)
    for c in range(len(begin)):
        d = member[begin[c]]
        joint.first[c] = begin[c]
        joint.last[c] = begin[c + 1] if c + 1 < len(begin) else nodes
        _copy_class(lines, d, joint, c)
    return joint


@allocating
def of_common_times(since: IntArray, free: IntArray) -> Timelines:
    """One class a node, from what every node has free in segments that are the same for all.

    Parameters
    ----------
    since : int64 array, shape (segments,)
    free : int64 array, shape (segments, nodes, resources)
        In the last segment, which never ends, a node has all of its capacity.
    """
    lines = empty_timelines(free.shape[1], free.shape[0], free.shape[2], 0)
    lines.size[CLASSES] = free.shape[1]
    last = free.shape[0] - 1
    for c in range(free.shape[1]):
        lines.first[c], lines.last[c] = c, c + 1
        count = 0
        for k in range(free.shape[0]):
            new = k == 0
            for r in range(free.shape[2]):
                new = new or free[k, c, r] != free[k - 1, c, r]
            if new:
                lines.nodes.time[c, count] = since[k]
                for r in range(free.shape[2]):
                    lines.nodes.free[c, count, r] = free[k, c, r]
                count += 1
        for r in range(free.shape[2]):
            lines.capacity[c, r] = free[last, c, r]
        lines.nodes.segments[c] = count
    return lines
