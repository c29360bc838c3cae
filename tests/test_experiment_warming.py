from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from cpdispatch.experiment import warming
from cpdispatch.models import warming as of_models

PLAYED = """
import gc
from numba.core.dispatcher import Dispatcher
from cpdispatch.experiment import warming
from cpdispatch.models.warming import play_search
from cpdispatch.simulator import simulate
from cpdispatch.system import NAMED
from cpdispatch.workloads.generate import MIXES, generate

def loaded():
    gc.unfreeze()  # else they would not be among the objects
    return {
        (one.py_func.__name__, signature)
        for one in gc.get_objects() if isinstance(one, Dispatcher)
        for signature in one.overloads if one.py_func.__module__.startswith("cpdispatch")
    }

play_search()
search = loaded()
warming.play()
beside = loaded() - search
simulate(generate(MIXES["eurora"], 30), NAMED["eurora"], "hcp")
print(*sorted(name for name, _ in beside))
print(*sorted(name for name, _ in loaded() - search - beside))
"""


def test_the_two_plays_call_all_kernels_of_a_replay_of_a_model() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAYED], capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    beside, left = done.stdout.splitlines()
    assert {"climb", "follow", "go_on", "begin", "push", "leave"} <= set(beside.split())
    assert left == ""


def test_the_other_process_is_that_of_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    start = subprocess.Popen

    def note(*given: Any, **more: Any) -> Any:
        begun.append(start(*given, **more))
        return begun[-1]

    monkeypatch.setattr(of_models, "is_kept", lambda kernel: False)
    monkeypatch.setattr(of_models.joblib, "cpu_count", lambda: 2)
    monkeypatch.setattr(of_models.subprocess, "Popen", note)
    warming.compile_kernels()
    assert [process.returncode for process in begun] == [0]
    assert [process.args[-1] for process in begun] == [warming.HERE]
