"""Compilation of kernels by numba, cached; without numba the same functions run as plain Python."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

ANNOUNCED = "CPDISPATCH_ANNOUNCED"
"""The environment's variable that names a file: a worker that compiles makes it and says nothing.

The process that started the workers says it for all of them.
"""

Function = TypeVar("Function", bound=Callable[..., Any])

_announced = False


def announce() -> None:
    """Say once, on standard error, that kernels are being compiled."""
    global _announced
    if _announced:
        return
    _announced = True
    if file := os.environ.get(ANNOUNCED):
        with suppress(OSError):  # nowhere to leave a note
            Path(file).touch()
        return
    print(
        "cpdispatch: compiling kernels (once after installation, about a minute) ...",
        file=sys.stderr,
        flush=True,
    )


if importlib.util.find_spec("numba") is None:  # pragma: no cover - platforms without a numba build
    warnings.warn(
        "numba is not installed: the kernels run as plain Python, 50 to 200 times slower",
        RuntimeWarning,
        stacklevel=2,
    )

    def kernel(function: Function) -> Function:
        """Return the function as it is: there is no compiler on this platform."""
        return function

    inlined = kernel

    @contextmanager
    def uncached(*kernels: Any) -> Iterator[None]:
        """Do as always: there is no cache on this platform."""
        yield

    def is_compiled(function: object) -> bool:
        """Whether compiled kernels can call a function: there are none on this platform."""
        return callable(function)
else:
    from numba import njit
    from numba.core import event, types
    from numba.core.caching import NullCache
    from numba.core.dispatcher import Dispatcher

    class _Announcer(event.Listener):
        """Says that kernels are being compiled."""

        def on_start(self, event: Any) -> None:
            announce()

        def on_end(self, event: Any) -> None:
            """The end of a compilation is of no interest."""

    event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]

    def kernel(function: Function) -> Function:
        """Compile a function on its first call and cache the result beside the package."""
        return cast(Function, _without_literals(njit(cache=True)(function)))

    def inlined(function: Function) -> Function:
        """Compile a function into each of its callers: for what is called at each event."""
        return cast(Function, _without_literals(njit(cache=True, forceinline=True)(function)))

    def _without_literals(dispatcher: Any) -> Any:
        """Type a constant argument of a call inside compiled code as any value of its type.

        numba compiles a kernel anew for each constant that another kernel calls it with. That took
        a tenth of all compiling and made no replay faster.
        """
        template_of, plain = dispatcher.get_call_template, cast(Callable[..., Any], types.unliteral)

        def get_call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
            named = {name: plain(each) for name, each in kws.items()}
            return template_of(tuple(plain(each) for each in args), named)

        dispatcher.get_call_template = get_call_template
        return dispatcher

    @contextmanager
    def uncached(*kernels: Any) -> Iterator[None]:
        """Keep what is compiled meanwhile out of the caches of these kernels.

        A user's function becomes part of what is compiled for it: a cache that knows it would
        import the user's module whenever it is read.
        """
        caches = [kernel._cache for kernel in kernels]
        for kernel in kernels:
            kernel._cache = NullCache()
        try:
            yield
        finally:
            for kernel, cache in zip(kernels, caches, strict=True):
                kernel._cache = cache

    def is_compiled(function: object) -> bool:
        """Whether compiled kernels can call a function: whether numba has compiled it."""
        return isinstance(function, Dispatcher)
