from __future__ import annotations

import gc
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import FileFinder
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import cpdispatch
from cpdispatch import sources
from cpdispatch.arrays import IntArray
from cpdispatch.compile import KernelFile, allocating, is_kept, kernel, merged, typed, uncached

REPLAY = """
import sys
if "plain" in sys.argv:
    sys.modules["numba"] = None
from cpdispatch.simulator import simulate
from cpdispatch.system import NAMED
from cpdispatch.workloads.generate import eurora_sample
for dispatcher in ("easy-saf-spf:allocate=best-fit", "conservative", "prb"):
    run = simulate(eurora_sample(120, seed=4), NAMED["eurora"], dispatcher)
    print(run.jobs["start"].tolist())
"""


def replay(*words: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, *words], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_without_numba_the_same_schedules_come_with_a_warning() -> None:
    compiled, _ = replay()
    plain, warning = replay("plain")
    assert plain == compiled
    assert "numba is not installed: the kernels run as plain Python" in warning


@kernel
def _doubled(number: int, twice: bool) -> int:
    return 2 * number if twice else number


@kernel
def _doubled_constants(number: int) -> int:
    return _doubled(3, twice=True) + _doubled(4, twice=False) + _doubled(number, twice=number > 0)


def test_a_kernel_is_not_compiled_anew_for_each_constant_that_it_is_called_with() -> None:
    with uncached(_doubled, _doubled_constants):
        assert _doubled_constants(5) == 6 + 4 + 10
    assert len(cast(Any, _doubled).part.signatures) == 1


@kernel
def _raised(numbers: IntArray, limit: int) -> int:
    for k in range(len(numbers)):
        numbers[k] += 1
        if numbers[k] > limit:
            raise ValueError("too large")
    return len(numbers)


def test_a_kernel_for_given_types_does_what_the_kernel_does() -> None:
    numbers = np.zeros(3, dtype=np.int64)
    with uncached(_raised):
        ours = typed(_raised, numbers, 1)
        assert not numbers.any()
        assert ours(numbers, 1) == _raised(np.zeros(3, dtype=np.int64), 1) == 3
        assert numbers.tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match="too large"):
            ours(numbers, 1)
        assert typed(_raised, numbers, 1) is ours
    assert len(cast(Any, _raised).signatures) == 1


def test_a_kernel_is_kept_once_it_has_been_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept.py").write_text(
        "from cpdispatch.compile import kernel\n\n@kernel\ndef more(n):\n    return n + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    more = importlib.import_module("kept").more
    assert not is_kept(more)
    with uncached(more):
        assert not is_kept(more)
    assert more(1) == 2
    assert is_kept(more)


def test_nobody_reads_what_was_kept_for_other_types_or_of_older_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes keep what they compile at the same time, and a third one reads."""

    def file(sources: str) -> KernelFile:
        return KernelFile(str(tmp_path), "kernels.go-7.py311", sources)

    file("old").save("int", "old code for int")
    file("old").save("float", "old code for float")
    (tmp_path / "kernels.go-7.py311.part.1.nbc").touch()
    one, other, third = file("new"), file("new"), file("new")
    for each in (one, other):  # both have looked before either wrote
        monkeypatch.setattr(each, "_load_index", dict)
    seen = []
    for each, key in ((one, "int"), (other, "float")):
        write = each._save_data

        def looking(name: str, data: str, write: Any = write) -> None:
            seen.extend(third.load(key) for key in ("int", "float"))
            write(name, data)
            seen.extend(third.load(key) for key in ("int", "float"))

        monkeypatch.setattr(each, "_save_data", looking)
        each.save(key, f"code for {key}")
    assert set(seen) <= {None, "code for int"}
    assert [third.load(key) for key in ("int", "float")] == [None, "code for float"]
    third.save("int", "code for int")
    assert [file("new").load(key) for key in ("int", "float")] == ["code for int", "code for float"]
    assert file("old").load("int") is None
    assert len(list(tmp_path.glob("kernels.go-7.py311.*.nbc"))) == 3  # the part is another's


def test_a_kernel_is_compiled_anew_when_what_it_imports_has_changed(tmp_path: Path) -> None:
    """Both a kernel that becomes part of it and a constant: its own file stays as it was."""
    package = tmp_path / "parts"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("")
    step = "from cpdispatch.compile import kernel\n\n@kernel\ndef step(n):\n    return n + {}\n"
    (package / "inner" / "step.py").write_text(step.format(1))
    (package / "inner" / "times.py").write_text("TIMES = 1\n")
    (package / "steps.py").write_text(
        "from cpdispatch.compile import kernel\nfrom parts.inner import (\n    step,\n)\n"
        "from .inner.times import TIMES\n\nmore = step.step\n\n@kernel\n"
        "def steps(n):\n    return more(more(n)) * TIMES\n"
    )
    command = [sys.executable, "-c", "from parts.steps import steps; print(steps(1))"]

    def told() -> tuple[str, bool]:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        return done.stdout.strip(), "compiling" in done.stderr

    assert told() == ("3", True)
    assert told() == ("3", False)
    (package / "inner" / "step.py").write_text(step.format(100))
    assert told() == ("201", True)
    (package / "inner" / "times.py").write_text("TIMES = 2\n")
    assert told() == ("402", True)


PARTS = """
from cpdispatch.compile import allocating, kernel

@allocating
def part(n):
    if n == 7:
        raise ValueError("seven", n)
    print("part", n)
    return n + 1

@allocating
def whole(n):
    return part(n) // (n - 5)

@kernel
def of_numbers(n):
    return of_whole(n) + 1

@kernel
def of_whole(n):
    if n < 0:
        raise OverflowError("below zero")
    return n * 2

def told(function, number):
    try:
        print(function(number))
    except Exception as error:
        print(type(error).__name__, error)
"""
CALLS = """
import parts
for number in (6, 7, 5):
    parts.told(parts.whole, number)
for number in (1, -1):
    parts.told(parts.of_numbers, number)
    parts.told(parts.of_whole, number)
"""


def test_a_kernel_prints_and_fails_in_its_callers_as_on_its_own(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text(PARTS)
    expected = "\n".join(
        ("part 6", "7", "ValueError ('seven', 7)", "part 5",
         "ZeroDivisionError integer division by zero", "3", "2",
         "OverflowError below zero", "OverflowError below zero", "")
    )  # fmt: skip
    for kept in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", CALLS],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert done.stdout == expected
        assert ("compiling" in done.stderr) is not kept


def test_kernels_are_kept_with_the_sources_of_all_that_they_call() -> None:
    for each in kernels():
        own = Path(inspect.getfile(each.py_func))
        seen = set(sources.files(str(own)))
        for name in each.py_func.__code__.co_names:
            called = each.py_func.__globals__.get(name)
            if isinstance(called, Dispatcher):
                assert Path(inspect.getfile(called.py_func)) in seen, (each, called)


def test_garbage_is_collected_again_after_a_compilation() -> None:
    @kernel
    def fails(number: int) -> int:
        return number.no_such_attribute  # type: ignore[attr-defined,no-any-return]

    assert gc.isenabled()
    with uncached(fails), pytest.raises(Exception, match="no_such_attribute"):
        fails(1)
    assert gc.isenabled()
    gc.disable()
    try:
        with uncached(_doubled):
            assert _doubled(2.0, True) == 4.0  # type: ignore[arg-type]
        assert not gc.isenabled()
    finally:
        gc.enable()


def kernels() -> Iterator[Any]:
    """All functions of the package that numba compiles."""
    for found in pkgutil.walk_packages(cpdispatch.__path__, "cpdispatch."):
        path = Path(cast("FileFinder", found.module_finder).path, found.name.split(".")[-1])
        files = (path.with_suffix(".py"), path / "__init__.py")
        if not any(f.exists() and "cpdispatch.compile import" in f.read_text() for f in files):
            continue
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, Dispatcher) and value.py_func.__module__ == found.name:
                yield value


def returns_arrays(function: Any) -> bool:
    """Whether its annotation names more than numbers, truth values and tuples of these."""
    named = set(re.findall(r"[\w.]+", function.py_func.__annotations__["return"]))
    return not named <= {"tuple", "int", "float", "bool", "None", "...", "np.uint64"}


def test_where_references_are_not_counted_no_array_is_returned_or_taken_from_another() -> None:
    # What is returned without being counted would be freed while it is in use, and what is
    # taken over without being counted would never be freed.
    found = list(kernels())
    assert len(found) > 200
    uncounted = [each for each in found if not each.targetoptions["_nrt"]]
    assert len(uncounted) > 100
    for each in uncounted:
        is_merged = each.targetoptions.get("inline") == "always"
        assert is_merged or not returns_arrays(each), each
        code, known = each.py_func.__code__, each.py_func.__globals__
        for name in code.co_names:
            called = known.get(name)
            if isinstance(called, Dispatcher) and called.targetoptions["_nrt"]:
                assert not returns_arrays(called), (each, called)


class Parts(NamedTuple):
    """Two views of an array."""

    first: IntArray
    rest: IntArray


@merged
def _parts(numbers: IntArray) -> Parts:
    return Parts(numbers[:1], numbers[1:].reshape(numbers.shape[0] - 1, 1))


@kernel
def _first(numbers: IntArray) -> int:
    return int(_parts(numbers).first[0])


@allocating
def _rest(numbers: IntArray) -> IntArray:
    return _parts(numbers).rest.copy()


def test_views_that_a_merged_function_returns_are_counted_as_its_callers_do() -> None:
    numbers = np.arange(3)
    count = sys.getrefcount(numbers)
    with uncached(_first, _rest):
        for _ in range(9):
            assert (_first(numbers), *_rest(numbers)[:, 0]) == (0, 1, 2)
    assert sys.getrefcount(numbers) == count


def test_what_kernels_allocate_is_freed() -> None:
    told = subprocess.run(
        [sys.executable, "-c", REPLAY + "; ".join((
            "\nimport gc",
            "gc.collect()",
            "from numba.core.runtime import rtsys",
            "print(*rtsys.get_allocation_stats())",
        ))],
        capture_output=True, text=True, check=True, env={**os.environ, "NUMBA_NRT_STATS": "1"},
    )  # fmt: skip
    made, freed, *_ = map(int, told.stdout.splitlines()[-1].split())
    assert made > 1000
    assert made - freed < 50
