from __future__ import annotations

import gc
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from cpdispatch.compile import is_kept, kernel, uncached

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
    assert len(cast(Any, _doubled).signatures) == 1


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
