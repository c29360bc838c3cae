"""The array types that cpdispatch passes around, and how they are sealed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
UintArray: TypeAlias = NDArray[np.uint64]
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.int8]


Array = TypeVar("Array", bound=NDArray[Any])


def ranges(first: IntArray, count: IntArray) -> IntArray:
    """The numbers of all ranges of ``count`` that begin at ``first``, one after the other."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(count.sum())


def in_rows(pairs: Iterable[tuple[int, int]]) -> IntArray:
    """Pairs, sorted, as two rows."""
    return np.ascontiguousarray(np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T)


def compact(column: IntArray) -> IntArray:
    """The same column; where all values are equal, it has one in memory."""
    constant = len(column) > 0 and bool((column == column[0]).all())
    return np.broadcast_to(column[0], column.shape) if constant else column


def is_compact(column: NDArray[Any]) -> bool:
    """Whether all values of a column are one in memory."""
    return column.strides == (0,)


def packed(column: IntArray) -> IntArray:
    """What to pickle of a column, since pickles know no strides: the one value of a compact one."""
    return column[:1] if is_compact(column) else column


def unpacked(column: IntArray, length: int) -> IntArray:
    """The column of this length of which `packed` was pickled."""
    return column if len(column) == length else np.broadcast_to(column, (length,))


def sealed(array: Array) -> Array:
    """Mark an array read-only and return it."""
    array.setflags(write=False)
    return array


def sealed_view(array: Array) -> Array:
    """The values of an array, read-only and contiguous: kernels are compiled for such arrays."""
    view: Array = np.ascontiguousarray(array)[:]  # type: ignore[assignment]
    return sealed(view)
