from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# nohup has it ignored, which commands inherit: then no test could end one with it.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent

# No test depends on the clock: a busy machine, or a first call that compiles, is no failure.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def trace() -> Callable[[str], Path]:
    """The path of a public log by name, such as KTH-SP2-1996-2; the test is skipped without it."""
    folder = Path(os.environ.get("CPDISPATCH_TRACES", ROOT.parent / "shared" / "traces"))

    def find(name: str) -> Path:
        path = folder / f"{name}.swf.gz"
        if not path.exists():
            pytest.skip(f"no log {path}: set CPDISPATCH_TRACES to the folder that holds the logs")
        return path

    return find
