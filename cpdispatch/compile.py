"""Compilation of kernels by numba, cached; without numba the same functions run as plain Python."""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from cpdispatch.sources import stamp

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
        "cpdispatch: compiling kernels (at their first use, about half a minute) ...",
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

    allocating = inlined = merged = kernel

    @contextmanager
    def uncached(*kernels: Any) -> Iterator[None]:
        """Do as always: there is no cache on this platform."""
        yield

    def typed(kernel: Function, *arguments: Any) -> Function:
        """Return the kernel as it is: there is no compiler on this platform."""
        return kernel

    def is_kept(kernel: Any) -> bool:
        """Whether nothing of a kernel is left to compile: nothing ever is on this platform."""
        return True

    def is_compiled(function: object) -> bool:
        """Whether compiled kernels can call a function: there are none on this platform."""
        return callable(function)
else:
    from numba import njit, typeof
    from numba.core import event, types
    from numba.core.caching import IndexDataCacheFile, NullCache
    from numba.core.dispatcher import Dispatcher

    from cpdispatch.parts import KeptPart, PartCompiler, QuickFlags, give_environments

    class _Compilation(event.Listener):
        """Says that kernels are being compiled, and collects no garbage meanwhile.

        A compilation makes many objects and few cycles: looking for these took a fifteenth of it.
        """

        def __init__(self) -> None:
            self._under_way = 0
            self._collects = False

        def on_start(self, event: Any) -> None:
            announce()
            if self._under_way == 0:
                self._collects = gc.isenabled()
                gc.disable()
            self._under_way += 1

        def on_end(self, event: Any) -> None:
            self._under_way -= 1
            if self._under_way == 0 and self._collects:
                gc.enable()

    event.register("numba:compile", _Compilation())

    class KernelFile(IndexDataCacheFile):
        """What is kept of a kernel, while several processes compile it.

        numba gives what it compiles the next number, and writes the index first. Another process
        could then read what was left under that number: code for other types, or of older sources.
        Here a file has the number of its content alone, and is there before the index names it.
        """

        def save(self, key: Any, data: Any) -> None:
            """Keep what was compiled for the types that ``key`` tells."""
            of = repr((self._version, self._source_stamp, key)).encode()
            name = self._data_name(int.from_bytes(hashlib.sha256(of).digest()[:8], "big"))
            self._save_data(name, data)
            known = self._load_index()
            if known.get(key) == name:
                return
            if not known and Path(self._index_path).exists():  # of older sources
                self._remove_but(name)
            self._save_index(known | {key: name})

        def _remove_but(self, name: str) -> None:
            """Remove what is kept under any other name."""
            any_of_it = re.compile(re.escape(name).replace(name.split(".")[-2], r"\d+"))
            for path in Path(self._cache_path).iterdir():
                if path.name != name and any_of_it.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def kernel(function: Function) -> Function:
        """Compile a function on its first call and cache the result beside the package.

        It makes no arrays and returns none, so that references to arrays need not be counted in it:
        the counting took three quarters of a replay with test runs. numba refuses to compile one
        that makes an array.

        Write no array into a slice of another in it, but elements in a loop: numba compiles the
        text of an error about shapes for each such assignment.
        """
        return _compiled(function, counts=False)

    def inlined(function: Function) -> Function:
        """Compile a kernel into each of its callers: for what is called at each event."""
        return _compiled(function, counts=False, forceinline=True)

    def merged(function: Function) -> Function:
        """Make the text of a function part of that of each of its callers.

        So it may return arrays to a `kernel` as well as to an `allocating` function, each of which
        counts references in its own way.
        """
        return _compiled(function, counts=False, inline="always")

    def allocating(function: Function) -> Function:
        """Compile a function that makes arrays or returns any, and cache the result.

        A `kernel` may call it if it returns none.
        """
        return _compiled(function, counts=True)

    def _compiled(function: Function, *, counts: bool, **more: Any) -> Function:
        # Nobody calls a kernel from C.
        options: dict[str, Any] = {
            "cache": True, "no_cfunc_wrapper": True, "_nrt": counts, **more,
        }  # fmt: skip
        # Python calls this one, and kernels have the other in them, which needs no code for objects
        # of Python: that was a third of all compiling.
        whole = njit(**options)(function)
        options |= {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}
        part = njit(**options)(function)
        for each in (whole, part):
            each._compiler._customize_flags = QuickFlags
        _keep(whole, function, "")
        _keep(part, function, ".part")
        part._cache._impl = KeptPart(function)
        add = whole.add_overload

        def add_overload(compiled: Any) -> None:
            give_environments(compiled)
            add(compiled)

        whole.add_overload = add_overload
        whole.get_call_template = _without_literals(part.get_call_template)
        whole.get_overload = part.get_overload
        whole.part = part
        return cast(Function, whole)

    def _keep(dispatcher: Any, function: Callable[..., Any], suffix: str) -> None:
        """Keep what is compiled in files of its own, as long as the sources stay as they are."""
        try:
            cache = dispatcher._cache
            stamps = cache._cache_file._source_stamp, stamp(inspect.getfile(function))
            base = cache._impl.filename_base + suffix
            cache._cache_file = KernelFile(cache._cache_path, base, stamps)
        except AttributeError:  # of a numba to come, which may keep kernels otherwise
            dispatcher._cache = NullCache()

    def _without_literals(template_of: Callable[..., Any]) -> Callable[..., Any]:
        """Type a constant argument of a call inside compiled code as any value of its type.

        numba compiles a kernel anew for each constant that another kernel calls it with. That took
        a tenth of all compiling and made no replay faster.
        """
        plain = cast(Callable[..., Any], types.unliteral)

        def get_call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
            named = {name: plain(each) for name, each in kws.items()}
            return template_of(tuple(plain(each) for each in args), named)

        return get_call_template

    @contextmanager
    def uncached(*kernels: Any) -> Iterator[None]:
        """Keep what is compiled meanwhile out of the caches of these kernels.

        A user's function becomes part of what is compiled for it: a cache that knows it would
        import the user's module whenever it is read.
        """
        both = [each for kernel in kernels for each in (kernel, kernel.part)]
        caches = [each._cache for each in both]
        for each in both:
            each._cache = NullCache()
        try:
            yield
        finally:
            for each, cache in zip(both, caches, strict=True):
                each._cache = cache

    def typed(kernel: Function, *arguments: Any) -> Function:
        """A kernel for arguments of just the types of these, compiled now if it has not been.

        It does not look at their types again: for calls by the thousand with tuples of many arrays.
        Looking at them now takes as long as some fifty calls. Arrays have to have the same
        alignment and order, too.
        """
        compiler: Any = kernel
        return cast(Function, compiler.compile(tuple(typeof(each) for each in arguments)))

    def is_kept(kernel: Any) -> bool:
        """Whether the cache has a kernel, compiled from its present source."""
        cache = kernel._cache
        return not isinstance(cache, NullCache) and bool(cache._cache_file._load_index())

    def is_compiled(function: object) -> bool:
        """Whether compiled kernels can call a function: whether numba has compiled it."""
        return isinstance(function, Dispatcher)
