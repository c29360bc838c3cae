"""Frozen dataclasses that are made quickly: they are what they would be without that."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from cpdispatch.frozen import quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    notes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


class Marked(Point):
    """A class under a quick one."""


def test_attributes_are_as_given_or_their_defaults() -> None:
    point = Point(1)
    assert (point.x, point.y, point.notes) == (1, 2, {})
    assert point.notes is not Point(1).notes
    assert Point(1, notes={"a": 1}, y=3) == Point(1, 3, {"a": 1})
    assert replace(point, y=5) == Point(1, 5)
    assert pickle.loads(pickle.dumps(point)) == point


def test_nothing_can_be_assigned_and_checks_are_made() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="negative"):
        Point(-1)
    with pytest.raises(TypeError, match="missing 1 required"):
        Point()  # type: ignore[call-arg]


def test_a_derived_class_stays_itself() -> None:
    marked = Marked(1)
    assert type(marked) is Marked
    assert marked.notes == {}
