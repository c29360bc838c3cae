from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

from cpdispatch.compile import kernel, uncached

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
