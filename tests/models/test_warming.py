from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from cpdispatch.models import warming

PLAYED = """
import gc
from numba.core.dispatcher import Dispatcher
from cpdispatch.models import engine, warming

def loaded():
    gc.unfreeze()  # else they would not be among the objects
    return {
        (one.py_func.__module__, one.py_func.__name__, signature)
        for one in gc.get_objects() if isinstance(one, Dispatcher)
        for signature in one.overloads if one.py_func.__module__.startswith("cpdispatch")
    }

warming.play_search()
search = loaded()
warming.play_bounds()
bounds = loaded() - search
engine.warm_up("hcp")
print(*sorted(name for _, name, _ in bounds))
print(*sorted(name for _, name, _ in loaded() - search - bounds))
"""


def test_the_two_plays_call_all_kernels_that_decisions_call() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAYED], capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    bounds, left = done.stdout.splitlines()
    assert {"climb", "latest_of", "_best_family", "_line"} <= set(bounds.split())
    assert left == ""


def test_another_process_compiles_the_bounds_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    start = subprocess.Popen

    def note(*given: Any, **more: Any) -> Any:
        begun.append(start(*given, **more))
        return begun[-1]

    monkeypatch.setattr(warming, "is_kept", lambda kernel: False)
    monkeypatch.setattr(warming.joblib, "cpu_count", lambda: 2)
    monkeypatch.setattr(warming.subprocess, "Popen", note)
    warming.compile_kernels()
    assert [process.returncode for process in begun] == [0]


@pytest.mark.parametrize("cores", [1, 2])
def test_one_process_compiles_all_where_there_is_no_other(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any, **more: Any) -> Any:
        assert cores > 1
        raise OSError("no more processes")

    played: list[str] = []
    monkeypatch.setattr(warming, "is_kept", lambda kernel: False)
    monkeypatch.setattr(warming.joblib, "cpu_count", lambda: cores)
    monkeypatch.setattr(warming.subprocess, "Popen", refused)
    monkeypatch.setattr(warming, "play_search", lambda: played.append("search"))
    monkeypatch.setattr(warming, "play_bounds", lambda: played.append("bounds"))
    warming.compile_kernels()
    assert played == ["search", "bounds"]


def test_nothing_is_played_when_the_cache_has_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> None:
        raise AssertionError("the kernels are kept already")

    monkeypatch.setattr(warming, "is_kept", lambda kernel: True)
    monkeypatch.setattr(warming, "play_search", play)
    monkeypatch.setattr(warming, "play_bounds", play)
    warming.compile_kernels()
