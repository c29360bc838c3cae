"""Columns of numbers in a page: differences, split into planes of bytes, deflated, in base64.

The browser unpacks them by what it has built in (``DecompressionStream``), see ``data.js``.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEVEL = 6


def packed(columns: Mapping[str, NDArray[Any]]) -> tuple[list[list[Any]], str]:
    """Pack columns of integers.

    Parameters
    ----------
    columns : mapping of str to integer array, shape (n,)
        Each below 2**53 in absolute value.

    Returns
    -------
    directory : list of [name, length, bytes of a value]
        In the order of the columns.
    text : str
        All columns: of each, the differences of its values (zigzag: 0, -1, 1, -2 as 0, 1, 2, 3),
        first all lowest bytes, then all second bytes, and so on. Deflated with zlib's head, in
        base64.
    """
    directory: list[list[Any]] = []
    parts = []
    for name, column in columns.items():
        values = np.concatenate((np.zeros(1, dtype=np.int64), column.astype(np.int64)))
        steps = values[1:] - values[:-1]
        coded = (steps << 1) ^ (steps >> 63)
        width = max(1, (int(coded.max(initial=0)).bit_length() + 7) // 8)
        planes = coded.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        directory.append([name, len(column), width])
        parts.append(np.ascontiguousarray(planes.T).tobytes())
    return directory, base64.b64encode(zlib.compress(b"".join(parts), _LEVEL)).decode()
