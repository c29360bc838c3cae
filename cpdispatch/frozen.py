"""Frozen dataclasses that are made quickly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick(frozen: type[T]) -> type[T]:
    """Let objects of a frozen dataclass with slots be made in half the time.

    A frozen dataclass sets each attribute by a call. Here an object is of a class with the same
    slots that is not frozen, until all attributes are set.
    """
    known: Any = frozen
    names: dict[str, Any] = {
        "_open": _open_twin(known), "_frozen": frozen, "_become": _become,
        "_make": known.__init__,
    }  # fmt: skip
    parameters, values = ["self"], {}
    for each in fields(known):
        name, default = each.name, f"_default_{each.name}"
        values[name] = name
        if each.default is not MISSING:
            names[default] = each.default
        elif each.default_factory is not MISSING:
            names[default] = each.default_factory
            values[name] = f"{default}() if {name} is {default} else {name}"
        parameters.append(f"{name}={default}" if default in names else name)
    lines = [
        f"def __init__({', '.join(parameters)}):",
        "if type(self) is not _frozen:",
        f"    return _make(self, {', '.join(values.values())})",
        "_become(self, _open)",
        *(f"self.{name} = {value}" for name, value in values.items()),
        "_become(self, _frozen)",
        *["self.__post_init__()"] * hasattr(frozen, "__post_init__"),
    ]
    exec("\n    ".join(lines), names)
    known.__init__ = names["__init__"]
    return frozen


def unfinished(
    frozen: type[T], *given: str, made: Mapping[str, Callable[[Any], Any]]
) -> Callable[..., T]:
    """A function that makes objects of a `quick` class with these attributes alone, in this order.

    What else is asked of an object is ``made`` of it, once, whoever made the object.
    """
    names: dict[str, Any] = {"_open": _open_twin(frozen), "_frozen": frozen, "_become": _become}
    lines = [
        f"def make({', '.join(given)}):",
        "self = _open()",
        *(f"self.{name} = {name}" for name in given),
        "_become(self, _frozen)",
        "return self",
    ]
    exec("\n    ".join(lines), names)

    def on_demand(self: T, name: str) -> Any:
        if name not in made:
            raise AttributeError(f"{frozen.__name__!r} object has no attribute {name!r}")
        value = made[name](self)
        object.__setattr__(self, name, value)
        return value

    # Said of the class itself, it would make a type checker take any name for an attribute.
    frozen.__getattr__ = on_demand  # type: ignore[attr-defined]
    make: Callable[..., T] = names["make"]
    return make


def is_made(of: object, name: str) -> bool:
    """Whether an attribute is there already, which would be made on demand, see `unfinished`."""
    try:
        object.__getattribute__(of, name)
    except AttributeError:
        return False
    return True


def _open_twin(frozen: Any) -> Any:
    """A class with the slots of a frozen one, whose attributes can be set."""
    return type(frozen.__name__, frozen.__bases__, {"__slots__": frozen.__slots__})


_become: Callable[[object, type], None] = vars(object)["__class__"].__set__
