"""A plugin of pytest that runs no test twice.

The environment's variable PASSED names a file. Where it is not there, the tests that pass are
written to it at the end; where it is, they are left out.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILE = Path(os.environ["PASSED"])
passed: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed before."""
    if FILE.exists():
        before = set(FILE.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in before])
        items[:] = [item for item in items if item.nodeid not in before]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that passes."""
    if report.when == "call" and report.passed:
        passed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down what has passed: the process that hands tests out knows it of all."""
    if not hasattr(session.config, "workerinput") and not FILE.exists():
        FILE.write_text("\n".join(sorted(passed)) + "\n")
