"""The array types that cpdispatch passes around, and how they are sealed."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
UintArray: TypeAlias = NDArray[np.uint64]
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.int8]


Array = TypeVar("Array", bound=NDArray[Any])


def sealed(array: Array) -> Array:
    """Mark an array read-only and return it."""
    array.flags.writeable = False
    return array
