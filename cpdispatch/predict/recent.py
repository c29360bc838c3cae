"""Values by key for the keys that were set last: what keeps a predictor's memory bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True)
class Recent(Generic[Key, Value]):
    """A dictionary of the keys that were set last."""

    most: int
    """How many keys are kept. Looking one up keeps it no longer: a prediction changes nothing."""
    _values: OrderedDict[Key, Value] = field(default_factory=OrderedDict, repr=False)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None where there is none (any more)."""
        return self._values.get(key)

    def values(self) -> Collection[Value]:
        """The values, in the order in which their keys were set."""
        return self._values.values()

    def set(self, key: Key, value: Value) -> Value | None:
        """Give a key its value; the key that was set longest ago goes when there are too many.

        Returns
        -------
        Value or None
            The value that went.
        """
        self._values[key] = value
        self._values.move_to_end(key)
        return self._values.popitem(last=False)[1] if len(self._values) > self.most else None

    def pop(self, key: Key) -> Value | None:
        """Take a key out; None where there is none (any more)."""
        return self._values.pop(key, None)
