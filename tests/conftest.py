from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import examples
from tests.scripts import ROOT, not_as_installed

# nohup has it ignored, which commands inherit: then no test could end one with it.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tests try what is installed, so that a file that is missing there is missed, and kernels are
# compiled once; so do the processes that they start, though these are in the folder of the sources.
os.environ["PYTHONSAFEPATH"] = "1"
if (left_out := not_as_installed()) is not None:
    pytest.exit(f"{left_out} is not as it is installed: pip install '.[test]', or -e", 4)

# No test depends on the clock: a busy machine, or a first call that compiles, is no failure.
settings.register_profile(
    "untimed", max_examples=examples(100), deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
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
