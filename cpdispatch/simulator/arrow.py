"""Arrow columns over the memory of NumPy arrays, and back.

Built from buffers and read through DLPack, because the usual ways copy, and import pandas to see
whether one of its series is meant: 80 MB in all for a log of 200,000 jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from cpdispatch.arrays import IntArray, is_compact

if TYPE_CHECKING:
    import pyarrow as pa

    Column = pa.Array[Any] | pa.ChunkedArray[Any]

PART = 1 << 15
"""Rows of a compact column that are in memory, again and again."""


def numbers(column: NDArray[Any]) -> Column:
    """A column of integers or floats, not copied."""
    import pyarrow as pa

    if is_compact(column) and len(column) > PART:
        return _repeated(column, numbers)
    kind = pa.from_numpy_dtype(column.dtype)
    return pa.Array.from_buffers(kind, len(column), [None, _buffer(column)])


def flags(column: NDArray[np.bool_]) -> pa.Array[Any]:
    """A column of truth values."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.bool_(), len(column), [None, _bits(column)])


def texts(codes: NDArray[Any], names: Sequence[str]) -> Column:
    """A column of repeated texts, the k-th ``names[codes[k]]``; null where the code is negative."""
    import pyarrow as pa

    if is_compact(codes) and len(codes) > PART:
        return _repeated(codes, lambda part: texts(part, names))
    encoded = [name.encode() for name in names]
    cuts = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    data = pa.py_buffer(b"".join(encoded))
    dictionary = pa.StringArray.from_buffers(len(names), _buffer(cuts), data)
    codes = codes.astype(np.int32)
    indices = pa.Array.from_buffers(pa.int32(), len(codes), [_bits(codes >= 0), _buffer(codes)])
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def _repeated(column: NDArray[Any], make: Callable[[NDArray[Any]], Any]) -> pa.ChunkedArray[Any]:
    """A column of one value: the same part again and again."""
    import pyarrow as pa

    whole, rest = divmod(len(column), PART)
    part = make(column[:PART])
    return pa.chunked_array([part] * whole + [part[:rest]] * (rest > 0))


def lists(offset: IntArray, values: NDArray[Any]) -> pa.Array[Any]:
    """A column of lists: the k-th holds ``values[offset[k]:offset[k + 1]]``."""
    import pyarrow as pa

    items: Any = numbers(values)
    kind = pa.large_list(items.type)
    buffers = [None, _buffer(offset)]
    return pa.Array.from_buffers(kind, len(offset) - 1, buffers, children=[items])


def array(column: pa.ChunkedArray[Any]) -> NDArray[Any]:
    """The values of a column of integers, floats or truth values."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
        return array(column).astype(np.bool_)
    parts = [np.from_dlpack(chunk) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def arrays(table: pa.Table, *names: str) -> Iterator[NDArray[Any]]:
    """The values of some columns of a table, see `array`."""
    return (array(table.column(name)) for name in names)


def flat(column: pa.ChunkedArray[Any]) -> tuple[IntArray, NDArray[Any]]:
    """Offset and values of a column of lists, see `lists`; a list that is null is empty."""
    import pyarrow.compute as pc

    lengths: Any = pc.fill_null(pc.list_value_length(column), 0)
    offset = np.zeros(len(column) + 1, dtype=np.int64)
    np.cumsum(array(lengths), out=offset[1:])
    values: Any = pc.list_flatten(column)
    return offset, array(values)


def is_text(column: pa.ChunkedArray[Any], text: str) -> NDArray[np.bool_]:
    """Which rows of a column of texts, none of them null, hold this one."""
    parts = [np.zeros(0, dtype=np.bool_)]
    for chunk in cast("list[pa.DictionaryArray[Any, Any]]", column.dictionary_encode().chunks):
        names = chunk.dictionary.to_pylist()
        code = names.index(text) if text in names else -1
        parts.append(np.from_dlpack(chunk.indices) == code)
    return np.concatenate(parts)


def coded(column: pa.ChunkedArray[Any]) -> tuple[NDArray[np.int32], list[str]]:
    """What `texts` or `numbers` of labels was made from: a code a row, and what each stands for.

    Returns
    -------
    codes : int32 array, shape (rows,)
        Index of the row's label among the labels; -1 where it is null or, as a number, negative.
    labels : list of str
        Distinct.
    """
    import pyarrow as pa

    labels: list[Any] = []
    codes, begin = np.empty(len(column), dtype=np.int32), 0
    # By parts: Arrow makes several columns of the size of each chunk.
    pieces = [chunk[k : k + PART] for chunk in column.chunks for k in range(0, len(chunk), PART)]
    encoded = pa.chunked_array(pieces, column.type).dictionary_encode().unify_dictionaries()
    for chunk in cast("list[pa.DictionaryArray[Any, Any]]", encoded.chunks):
        labels = chunk.dictionary.to_pylist()
        indices: Any = chunk.indices.fill_null(-1).cast(pa.int32())
        codes[begin : begin + len(chunk)] = np.from_dlpack(indices)
        begin += len(chunk)
    for code, label in enumerate(labels):
        if not isinstance(label, str) and label < 0:
            codes[codes == code] = -1
    return codes, [str(label) for label in labels]


def _bits(column: NDArray[np.bool_]) -> pa.Buffer:
    return _buffer(np.packbits(column, bitorder="little"))


def _buffer(column: NDArray[Any]) -> pa.Buffer:
    import pyarrow as pa

    memory: Any = np.ascontiguousarray(column)
    return pa.py_buffer(memory)
