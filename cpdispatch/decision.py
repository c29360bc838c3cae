"""What a dispatcher answers: starts, placements, reasons, and a certificate of what it knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import ByteArray, IntArray, sealed
from cpdispatch.errors import InputError
from cpdispatch.frozen import is_made, quick, unfinished
from cpdispatch.jobs import Starvation

NO_START = -1
NO_BOUND = 0


class Reason(IntEnum):
    """Why a job starts now, or why it does not."""

    STARTED = 0
    """Starts now, in its turn."""
    BACKFILLED = 1
    """Starts now, ahead of a job that waits."""
    RESERVED = 2
    """Waits, with capacity held for it from its planned start on."""
    WAITS = 3
    """Waits for capacity, or for its turn."""
    NEVER_FITS = 4
    """Asks for more than the whole system has, or than a limit or the power cap ever leaves."""
    REJECTED = 5
    """Refused by the dispatcher: leaves the queue."""
    LATE = 6
    """Starts now, in front of the others: it has waited too long, see `cpdispatch.bounded`."""


STARTED, BACKFILLED, RESERVED, WAITS, NEVER_FITS, REJECTED, LATE = map(int, Reason)
"""The same as integers, for compiled code."""
OF_STARTS = (Reason.STARTED, Reason.BACKFILLED, Reason.LATE)
"""The reasons of jobs that start now; no other job has one of them."""
STATUSES = ("optimal", "pooled-optimal", "feasible", "heuristic", "infeasible", "unsolved")
"""What a certificate can say of its answer."""
UNTOLD = "unknown"
"""In the tables of runs that were recorded elsewhere, the reason of a start that is not told."""


@quick
@dataclass(frozen=True, slots=True)
class Certificate:
    """What a dispatcher knows about the quality of its answer.

    Attributes
    ----------
    model : str
        Registry name of the model or heuristic that found the answer.
    objective : str
        Name of the objective, empty for a heuristic that has none.
    status : str
        ``optimal``, ``pooled-optimal``, ``feasible``, ``heuristic``, ``infeasible`` or
        ``unsolved``. A plan that is ``pooled-optimal`` has no nodes for its later starts: none has
        a smaller value on the pooled capacity of all nodes, but it may be that no nodes hold it.
    value, bound : float or None
        The objective of the plan, recomputed from its starts: a sum over the jobs that it starts;
        and a proven lower bound of it.
    phases_ms : mapping of str to float
        Wall time by phase, milliseconds.
    limit_hit : bool
        Whether a time limit ended the search.
    starvation : Starvation or None
        The bound on waits that the dispatcher kept to, where it was its own and not that of the
        instance.
    regime : str
        ``deterministic`` (the same answer every time) or ``live`` (the clock decides); empty for
        a heuristic, which is deterministic.
    """

    model: str
    objective: str = ""
    status: str = "heuristic"
    value: float | None = None
    bound: float | None = None
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    limit_hit: bool = False
    regime: str = ""
    starvation: Starvation | None = None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value; None when either is unknown, or the value is 0 above a bound."""
        if self.value is None or self.bound is None:
            return None
        if self.value <= self.bound:
            return 0.0
        return (self.value - self.bound) / abs(self.value) if self.value else None


@quick
@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Where jobs are placed: for the k-th placed job, nodes and how many of its units on each.

    Attributes
    ----------
    position : int64 array, shape (placed,)
        Position of each placed job in the instance's queue.
    offset : int64 array, shape (placed + 1,)
        The k-th job's entries are ``offset[k]:offset[k + 1]``.
    node, units : int64 array, shape (entries,)
        A node and the number of the job's units there.
    """

    position: IntArray
    offset: IntArray
    node: IntArray
    units: IntArray

    @classmethod
    def of(cls, places: Mapping[int, Mapping[int, int]]) -> Placements:
        """From a mapping of queue position to {node: units}.

        Raises
        ------
        InputError
            When a position, a node or a number of units is not a whole number.
        """
        if not places:
            return NOTHING_PLACED
        lengths = [len(nodes) for nodes in places.values()]
        return cls(
            _whole("position", list(places)),
            np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64),
            _whole("node", [n for nodes in places.values() for n in nodes]),
            _whole("units", [u for nodes in places.values() for u in nodes.values()]),
        )

    def __len__(self) -> int:
        return len(self.position)

    def as_dict(self) -> dict[int, dict[int, int]]:
        """A mapping of queue position to {node: units}."""
        node, units, offset = self.node.tolist(), self.units.tolist(), self.offset.tolist()
        return {
            position: dict(zip(node[low:high], units[low:high], strict=True))
            for position, low, high in zip(
                self.position.tolist(), offset[:-1], offset[1:], strict=True
            )
        }


def _whole(field: str, numbers: list[int]) -> IntArray:
    """Whole numbers as an array; a fraction would be cut off."""
    found = np.array(numbers)
    if len(found) and found.dtype.kind not in "iu":
        wrong = next((n for n in numbers if not isinstance(n, int | np.integer)), numbers[0])
        problem = "must be a whole number"
        raise InputError(problem, file="placements", field=field, value=wrong)
    return found.astype(np.int64, copy=False)


_NONE: IntArray = sealed(np.empty(0, dtype=np.int64))
NOTHING_PLACED = Placements(_NONE, sealed(np.zeros(1, dtype=np.int64)), _NONE, _NONE)


HEAD = 2
"""The numbers at the head of a flat decision: how many jobs are queued, and how many are placed.

After the head come starts and reasons of the queued jobs, then positions and offsets of the placed
ones, and nodes and units.
"""


class _Flat:
    """A decision as one array of integers; made when it is asked for."""

    __slots__ = ("flat",)

    flat: IntArray | None
    """The numbers, see `HEAD`; None where the arrays do not belong together."""


@quick
@dataclass(frozen=True, slots=True, eq=False)
class Decision(_Flat):
    """A dispatcher's answer to an instance.

    Attributes
    ----------
    start_s : int64 array, shape (queued,)
        Start of each queued job: the instance's ``now`` for those that start, a later time for
        those with a plan, `NO_START` for the rest.
    reason : int8 array, shape (queued,)
        A `Reason` for each queued job: one of `OF_STARTS` for those that start now, another one
        for the rest.
    placements : Placements
        Nodes of every job that starts now; of planned jobs too where the plan has them.
    certificate : Certificate
    bound_s : int64 array, shape (queued,), or None
        How long each job that starts now may run, in seconds; `NO_BOUND` for as long as it takes.
        A job that outlives its bound is stopped, see `cpdispatch.instance.Stopped`. Only jobs
        that may be restarted can have a bound. None when no start has one.
    """

    start_s: IntArray
    reason: ByteArray
    placements: Placements
    certificate: Certificate
    bound_s: IntArray | None = None


def _start_s(decision: Decision) -> IntArray:
    flat = decision.flat
    assert flat is not None
    return sealed(flat[HEAD : HEAD + flat.item(0)])


def _reason(decision: Decision) -> ByteArray:
    flat = decision.flat
    assert flat is not None
    queued = flat.item(0)
    return sealed(flat[HEAD + queued : HEAD + 2 * queued].astype(np.int8))


def _placements(decision: Decision) -> Placements:
    flat = decision.flat
    assert flat is not None
    queued, placed = flat.item(0), flat.item(1)
    if not placed:
        return NOTHING_PLACED
    places = sealed(flat[HEAD + 2 * queued :])
    at = 2 * placed + 1
    middle = (at + len(places)) // 2
    return Placements(places[:placed], places[placed:at], places[at:middle], places[middle:])


def _flattened(decision: Decision) -> IntArray | None:
    """The flat array of a decision that was made of others; None if they do not belong together."""
    start_s, reason, places = decision.start_s, decision.reason, decision.placements
    queued, placed = len(start_s), len(places.position)
    if (
        len(reason) != queued
        or len(places.offset) != placed + 1
        or len(places.units) != len(places.node)
    ):
        return None
    head = np.array((queued, placed), dtype=np.int64)
    try:
        flat: NDArray[Any] = np.concatenate(
            (head, start_s, reason, places.position, places.offset, places.node, places.units)
        )
    except ValueError:  # some of them are no rows of numbers
        return None
    return flat if flat.dtype == np.int64 else None


_MADE = {
    "start_s": _start_s, "reason": _reason, "placements": _placements, "flat": _flattened,
}  # fmt: skip
of_flat = unfinished(Decision, "flat", "certificate", "bound_s", made=_MADE)
"""Makes a decision of a flat one, that nobody writes into any more."""


def wrong_type(decision: Decision) -> tuple[str, str, str] | None:
    """A part of a decision that is of a wrong type: its name, what it is, and what is needed.

    None if there is no such part. What was made of a flat decision is right: it is not made here.
    """
    if not is_made(decision, "placements"):
        return None
    places, certificate, bound_s = decision.placements, decision.certificate, decision.bound_s
    if not isinstance(places, Placements):
        return "placements", _kind(places), "cpdispatch.Placements"
    if not isinstance(certificate, Certificate):
        return "certificate", _kind(certificate), "cpdispatch.Certificate"
    if (wrong := _wrong_in(certificate)) is not None:
        return wrong
    for name, array in (
        ("start_s", decision.start_s), ("reason", decision.reason),
        ("bound_s", _NONE if bound_s is None else bound_s),
        ("placements.position", places.position), ("placements.offset", places.offset),
        ("placements.node", places.node), ("placements.units", places.units),
    ):  # fmt: skip
        if not isinstance(array, np.ndarray) or array.dtype.kind != "i" or array.ndim != 1:
            dtype = "int8" if name == "reason" else "int64"
            return name, _kind(array), f"a one-dimensional {dtype} array"
    return None


def _wrong_in(certificate: Certificate) -> tuple[str, str, str] | None:
    """A part of a certificate that is of a wrong type, see `wrong_type`."""
    for name in ("model", "objective", "status", "regime"):
        if not _is_line(text := getattr(certificate, name)):
            return f"certificate.{name}", _kind(text), "a text of one line"
    if certificate.status not in STATUSES:
        return "certificate.status", repr(certificate.status), f"one of {', '.join(STATUSES)}"
    if not isinstance(certificate.phases_ms, Mapping):
        return "certificate.phases_ms", _kind(certificate.phases_ms), "a mapping"
    for phase, ms in certificate.phases_ms.items():
        if not _is_line(phase):
            return "a name in certificate.phases_ms", _kind(phase), "a text of one line"
        if not _is_real(ms):
            return f"certificate.phases_ms[{phase!r}]", _kind(ms), "a real number"
    for name, number in (("value", certificate.value), ("bound", certificate.bound)):
        if number is not None and not _is_real(number):
            return f"certificate.{name}", _kind(number), "a real number or None"
    if not isinstance(certificate.limit_hit, bool | np.bool_):
        return "certificate.limit_hit", _kind(certificate.limit_hit), "True or False"
    if not isinstance(certificate.starvation, Starvation | None):
        found = _kind(certificate.starvation)
        return "certificate.starvation", found, "cpdispatch.jobs.Starvation or None"
    return None


def _is_line(text: object) -> bool:
    return isinstance(text, str) and text.isprintable()


def _is_real(number: object) -> bool:
    """Whether it is a real number that a float can hold."""
    if not isinstance(number, Real):
        return False
    try:
        return isfinite(number)
    except OverflowError:
        return False


def _kind(value: object) -> str:
    """What a value is, in words."""
    if isinstance(value, np.ndarray):
        return f"a {value.ndim}-dimensional {value.dtype} array"
    if isinstance(value, float):
        return str(value)
    return type(value).__name__
