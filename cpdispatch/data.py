"""Additional data: what instances tell beside jobs and nodes, from objects of the user's own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cpdispatch import own
from cpdispatch.arrays import IntArray
from cpdispatch.errors import DataError, UsageError, unknown
from cpdispatch.events import FAIL, Event
from cpdispatch.instance import Running
from cpdispatch.jobs import JobTable
from cpdispatch.system import LIMIT, System


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """What a simulation is like after all that happens at an instant, before the dispatch.

    Attributes
    ----------
    now_s : int
    since_s : int
        When it was asked the last time; ``now_s`` at first. Nothing changed between the two.
    system : System
    held : int64 array, shape (nodes, resources)
        What jobs held of each node from ``since_s`` until ``now_s``.
    running : Running
        The jobs that run now. An expected end that has passed is ``now_s + 1``.
    queue : JobTable
        The jobs that wait now, in the order of their submissions.
    down : int64 array
        Nodes out of service now, ascending.
    happened : tuple of Event
        What has happened to the system since the last time.
    """

    now_s: int
    since_s: int
    system: System
    held: IntArray
    running: Running
    queue: JobTable
    down: IntArray
    happened: tuple[Event, ...] = ()


class AdditionalData(Protocol):
    """What a simulation needs of additional data; a user's own is as good as any."""

    @property
    def name(self) -> str:
        """The key of its value in ``instance.data``."""

    def value(self, moment: Moment) -> object:
        """Its value now; asked in the order of time, after each event of the simulation."""


@runtime_checkable
class Changing(Protocol):
    """Additional data whose value changes by itself."""

    def next_s(self, now_s: int) -> int | None:
        """When the value changes next, later than ``now_s``: jobs are dispatched then."""


class Failures:
    """When each node failed so far: a tuple of times, s, for each node."""

    name = "failures"

    def __init__(self) -> None:
        self._times: list[tuple[int, ...]] = []
        self._value: tuple[tuple[int, ...], ...] = ()

    def value(self, moment: Moment) -> tuple[tuple[int, ...], ...]:
        """The times of the past failures of each node, ascending."""
        failed = [event for event in moment.happened if event.kind == FAIL]
        if failed or not self._times:
            self._times = self._times or [()] * moment.system.nodes
            for event in failed:
                for node in event.nodes:
                    self._times[node] += (event.time_s,)
            self._value = tuple(self._times)
        return self._value


DATA: Mapping[str, Callable[[], AdditionalData]] = {"failures": Failures}
"""Additional data of the package, by name."""


def make(given: str | AdditionalData, seed: int = 0) -> AdditionalData:
    """Additional data by name, or the user's own.

    Parameters
    ----------
    given : str or AdditionalData
        A name of `DATA`, or ``module:attribute``: a class or a function that makes one, or an
        object, of which a copy is taken; see `cpdispatch.own.made`.
    seed : int
        Of what it draws at random, if its class or function has a parameter ``seed``.

    Raises
    ------
    UsageError
        When there is none of that name, or it lacks a name or the method ``value``.
    """
    if isinstance(given, str):
        if ":" not in given:
            if given not in DATA:
                raise unknown("additional data", given, [*DATA, "module:attribute"])
            return DATA[given]()
        what = f"additional data {given}"
        made: AdditionalData = own.made(given, "value", what, seed)
    else:
        what = f"additional data {type(given).__name__}"
        made = given
        if not callable(getattr(made, "value", None)):
            raise UsageError(f"{what}: it has no method value")
    name = getattr(made, "name", None)
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what}: it needs a name, a text that is not empty (found {name!r})")
    return made


def made(
    given: str | AdditionalData | Iterable[str | AdditionalData], seed: int = 0
) -> tuple[AdditionalData, ...]:
    """Several additional data, see `make`.

    Raises
    ------
    UsageError
        When two have the same name, too.
    """
    given = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    found = tuple(make(one, seed) for one in given)
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two additional data are named {name!r}: leave one of them out")
    return found


def value_of(data: AdditionalData, moment: Moment) -> object:
    """The value of additional data, which may be a user's own.

    Raises
    ------
    DataError
        When it raises an error; the message says at what time.
    """
    try:
        return data.value(moment)
    except own.FAILS as error:
        what = own.raised(f"additional data {data.name}", error)
        raise DataError(f"{what} at time {moment.now_s}") from error


def next_of(data: AdditionalData, now_s: int) -> int | None:
    """When the value of additional data changes by itself next; None when it does not.

    Raises
    ------
    DataError
        When it raises an error, or answers with no later time.
    """
    if not isinstance(data, Changing):
        return None
    what = f"additional data {data.name}"
    try:
        answer = data.next_s(now_s)
    except own.FAILS as error:
        raise DataError(f"{own.raised(what, error)} at time {now_s}") from error
    if answer is None:
        return None
    try:
        next_s = operator.index(answer)
    except TypeError:
        next_s = -1
    if not now_s < next_s <= LIMIT:
        raise DataError(
            f"{what} changes next at {answer!r}, by its method next_s({now_s}): it must return "
            "None, or a later time in whole seconds"
        )
    return next_s
