"""Python's search for cyclic garbage, kept out of what has a deadline."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python from looking for cyclic garbage.

    With ortools loaded a whole search takes 50 ms; where kernels were compiled, 200 ms and more.
    What was not looked for meanwhile is looked for at once afterwards: see `settle`.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.cache
def settle(name: str) -> None:
    """Have later searches for cyclic garbage leave out all that is alive now.

    Libraries and compiled kernels are most of that, and they stay. Done once for each name, when
    all that something of this name needs is loaded.
    """
    gc.collect()
    gc.freeze()
