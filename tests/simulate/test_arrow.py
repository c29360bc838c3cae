"""Arrow columns of one value against those that have all their values in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cpdispatch.simulate import arrow


@pytest.mark.parametrize("rows", [0, 1, arrow.PART, arrow.PART + 1, 3 * arrow.PART])
def test_a_compact_column_holds_what_a_whole_one_does(rows: int) -> None:
    numbers, codes = np.full(rows, 7), np.full(rows, 1)
    whole = {"number": arrow.numbers(numbers), "text": arrow.texts(codes, ["a", "b"])}
    compact = {
        "number": arrow.numbers(np.broadcast_to(np.int64(7), rows)),
        "text": arrow.texts(np.broadcast_to(np.int64(1), rows), ["a", "b"]),
    }
    found, wanted = pa.table(compact), pa.table(whole)
    assert found.equals(wanted)
    assert np.array_equal(arrow.array(found.column("number")), numbers)
    assert arrow.is_text(found.column("text"), "b").sum() == rows


def test_a_compact_column_takes_the_memory_of_a_part() -> None:
    column = arrow.numbers(np.broadcast_to(np.int64(7), 9 * arrow.PART + 5))
    parts = {chunk.buffers()[1].address for chunk in column.chunks}
    assert len(column) == 9 * arrow.PART + 5
    assert len(parts) == 1
