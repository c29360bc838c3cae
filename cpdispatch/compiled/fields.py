"""Records with named fields that compiled code reads and writes, and Python too.

A class under `Record` says by its annotations which fields a record has: ``int`` (64 bits),
``bool``, or another such class. What `fresh` makes is a scalar of NumPy, of which numba passes the
address: a field costs what an element of an array costs, and records in tuples need no counting of
references.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

import numpy as np

_TYPES: dict[type, Any] = {int: np.int64, bool: np.bool_}

if TYPE_CHECKING:  # np.void is declared final

    class _Scalar:
        dtype: np.dtype[Any]

        def __getitem__(self, name: str) -> Any: ...
        def __setitem__(self, name: str, value: Any) -> None: ...
else:
    _Scalar = np.void


class Record(_Scalar):
    """Base of the classes that say which fields a record has.

    numba tells types of records apart by the address of their `numpy.dtype`. One that is freed
    leaves its address to another, and kernels would then run on records of a wrong type. So all
    records of a class have one dtype, which is never freed, and unpickling makes a fresh record.

    `numpy.record` would do the same, but runs Python code for each attribute, and numba reads two
    of each record that a kernel is given: that took a tenth of a replay under `best`.
    """

    if not TYPE_CHECKING:

        @cached_property
        def data(self) -> memoryview:
            """The memory of the record, which numba asks for whenever a kernel is given it.

            NumPy describes all fields in words each time: that took a twentieth of such a replay.
            """
            return super().data

        def __setattr__(self, name: str, value: Any) -> None:
            self[name] = value

    def __reduce__(self) -> Any:
        return _refilled, (type(self), flat(self))


_R = TypeVar("_R", bound=Record)


@cache
def type_of(fields: type[Record]) -> np.dtype[Any]:
    """The type of a record with the fields that a class annotates, one object for each class.

    The class gets a property for each field.

    Raises
    ------
    TypeError
        When a field has the name of an attribute of every record, which would be read instead.
    """
    layout = _layout(fields)
    for name, kind in get_type_hints(fields).items():
        get = itemgetter(name) if kind in _TYPES else partial(_inner, name, type_of(kind))
        setattr(fields, name, property(get))
    return np.dtype((fields, layout))


def _inner(name: str, of: np.dtype[Any], record: Record) -> Any:
    return record[name].view(of)


def _layout(fields: type[Record]) -> np.dtype[Any]:
    hints = get_type_hints(fields)
    if taken := sorted(name for name in hints if hasattr(np.void, name)):
        raise TypeError(f"{fields.__name__}: every record has an attribute {taken[0]}")
    pairs = [(name, _TYPES.get(kind) or _layout(kind)) for name, kind in hints.items()]
    return np.dtype(pairs, align=True)


def fresh(fields: type[_R], **values: Any) -> _R:
    """A record whose fields are 0, apart from those that are given."""
    hashable: Any = fields  # for mypy, which does not know that classes are
    record = np.zeros(1, dtype=type_of(hashable))[0]
    for name, value in values.items():
        record[name] = value
    return cast(_R, record)


def assign(record: _R, other: _R) -> None:
    """Copy all fields of another record of the same class."""
    for name in record.dtype.names or ():
        record[name] = other[name]


def flat(record: Record) -> list[int]:
    """The values of all fields, those of inner records included, in their order."""
    return [int(inner[name]) for inner, name in _places(record)]


def refill(record: Record, values: Sequence[float]) -> None:
    """Write all fields from what `flat` gave.

    Raises
    ------
    ValueError
        When there are more or fewer values than fields.
    """
    for (inner, name), value in zip(list(_places(record)), values, strict=True):
        inner[name] = value


def _refilled(fields: type[_R], values: Sequence[int]) -> _R:
    record = fresh(fields)
    refill(record, values)
    return record


def _places(record: Any) -> Iterator[tuple[Any, str]]:
    for name in record.dtype.names:
        if record.dtype[name].names is None:
            yield record, name
        else:
            yield from _places(record[name])
