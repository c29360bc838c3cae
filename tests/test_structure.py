"""What is said about data that do not fit their structure: the key, the value, the right word."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from cpdispatch.errors import InputError
from cpdispatch.structure import converted


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a file."""

    size: int = 0
    kind: Literal["thin", "fat"] = "thin"
    watts: dict[str, dict[str, int]] = {}


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """A file."""

    name: str
    parts: list[Inner] = []
    limit: float | None = None
    named: dict[str, Inner] = {}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "field name: not a box: missing required key"),
        ({"name": "a", "part": []}, "field part: not a box: unknown key; did you mean parts? (one"),
        (
            {"name": "a", "xyz": 1},
            "field xyz: not a box: unknown key (found 1); write one of name,",
        ),
        ({"name": "a", "size": 1}, "field size: not a box: unknown key (found 1); it belongs into"),
        (
            {"name": "a", "parts": [{"limit": 1}]},
            "field parts[0].limit: not a box: unknown key (found 1); it belongs at the top",
        ),
        ({"name": 3}, "field name: not a box: expected text in quotes (found 3)"),
        ({"name": "a", "limit": "x"}, "field limit: not a box: expected a number (found 'x')"),
        ({"name": "a", "limit": []}, "field limit: not a box: expected a number, found a list"),
        (
            {"name": "a", "parts": {}},
            "expected a list, found keys with values; write [[parts]] instead of [parts]",
        ),
        (
            {"name": "a", "parts": [{}, {"kind": "thick"}]},
            "field parts[1].kind: not a box: expected one of fat, thin (found 'thick'); did you",
        ),
        (
            {"name": "a", "parts": [{"watts": {"x": {"core": 1}, "y": {"core": 1, "gpu": 2.5}}}]},
            "field parts[0].watts.y.gpu: not a box: expected a whole number (found 2.5)",
        ),
        (
            {"name": "a", "named": {"x": {"kind": "fat"}, "y": {"kind": "Thin"}}},
            "named.y.kind: not a box: expected one of fat, thin (found 'Thin'); did you mean thin",
        ),
        ({"name": "a", "named": {"x": {}, "y": {"siz": 1}}}, "named.y.siz: not a box: unknown key"),
        ([], "box.toml: not a box: expected keys with values, found a list"),
    ],
)
def test_the_key_its_value_and_what_may_stand_there_are_named(data: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        converted(data, Outer, "a box", "box.toml")
    assert says in str(caught.value)
    assert "`" not in str(caught.value)


def test_what_fits_is_converted() -> None:
    assert converted({"name": "a", "parts": [{"size": 2}]}, Outer, "a box", "b.toml") == Outer(
        "a", [Inner(2)]
    )
