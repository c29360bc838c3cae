"""Arrow columns of one value against those that have all their values in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cpdispatch.simulator import arrow


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


def test_codes_are_those_that_a_column_of_texts_was_made_from() -> None:
    codes = np.array([1, 0, -1, 1, 2])
    found, labels = arrow.coded(pa.chunked_array([arrow.texts(codes, ["a", "b", "c"])]))
    assert (found.tolist(), labels) == (codes.tolist(), ["a", "b", "c"])


def test_codes_are_one_for_a_label_in_all_parts_of_a_column() -> None:
    parts = [pa.array(["b", None, "a"]), pa.array(["c", "a"])]
    codes, labels = arrow.coded(pa.chunked_array([part.dictionary_encode() for part in parts]))
    assert [labels[code] if code >= 0 else None for code in codes] == ["b", None, "a", "c", "a"]
    plain = arrow.coded(pa.chunked_array(parts))
    assert (plain[0].tolist(), plain[1]) == (codes.tolist(), labels)


def test_numbers_are_labels_too_and_negative_ones_stand_for_none() -> None:
    codes, labels = arrow.coded(pa.chunked_array([arrow.numbers(np.array([7, -1, 3, 7, -1]))]))
    assert [labels[code] if code >= 0 else None for code in codes] == ["7", None, "3", "7", None]
    compact = arrow.numbers(np.broadcast_to(np.int64(-1), 2 * arrow.PART + 1))
    codes, _ = arrow.coded(pa.table({"user": compact}).column("user"))
    assert (codes == -1).sum() == 2 * arrow.PART + 1


def test_a_column_without_rows_has_no_codes() -> None:
    codes, labels = arrow.coded(pa.chunked_array([], type=pa.int64()))
    assert (codes.tolist(), labels) == ([], [])
