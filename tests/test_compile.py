from __future__ import annotations

import subprocess
import sys

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
