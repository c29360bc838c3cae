"""Records with named fields."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from cpdispatch.compile import kernel
from cpdispatch.compiled import fields
from cpdispatch.compiled.fields import Record


class Inner(Record):
    count: int
    known: bool


class Outer(Record):
    now: int
    inner: Inner
    late: bool


def made() -> Outer:
    record = fields.fresh(Outer, now=1 << 60, late=True)
    record.inner.count = 7
    return record


@kernel
def _count(record: Outer) -> int:
    record.inner.count += 1
    record.inner.known = record.now > 0
    return record.inner.count


def test_fields_are_zero_unless_given() -> None:
    assert fields.flat(fields.fresh(Outer)) == [0, 0, 0, 0]
    assert fields.flat(made()) == [1 << 60, 7, 0, 1]


def test_kernels_write_into_a_record_also_when_it_was_pickled() -> None:
    record = made()
    for each in (record, pickle.loads(pickle.dumps(record))):
        assert _count(each) == 8
        assert fields.flat(each) == [1 << 60, 8, 1, 1]


def test_values_are_copied_and_written_in_their_order() -> None:
    copy, record = fields.fresh(Outer), made()
    fields.assign(copy, record)
    record.inner.count = 0
    assert fields.flat(copy) == [1 << 60, 7, 0, 1]
    fields.refill(copy, [1, 2, 1, 0])
    assert fields.flat(copy) == [1, 2, 1, 0]


def test_an_inner_record_is_one_of_its_own_class() -> None:
    record = made()
    inner = record.inner
    assert type(inner) is Inner
    assert inner.dtype is fields.type_of(Inner)
    inner.count = 9
    assert fields.flat(record) == [1 << 60, 9, 0, 1]
    assert fields.flat(pickle.loads(pickle.dumps(inner))) == [9, 0]


def test_only_fields_can_be_read_and_written() -> None:
    record: Any = made()
    with pytest.raises(AttributeError):
        _ = record.before
    with pytest.raises(ValueError, match="before"):
        record.before = 1


def test_too_few_or_too_many_values_are_refused() -> None:
    for values in ([1, 2, 3], [1, 2, 3, 4, 5]):
        with pytest.raises(ValueError, match="zip"):
            fields.refill(made(), values)


def test_a_field_that_could_not_be_read_is_refused() -> None:
    class Sized(Record):
        size: int

    with pytest.raises(TypeError, match="Sized: every record has an attribute size"):
        fields.fresh(Sized)
