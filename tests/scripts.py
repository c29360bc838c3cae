"""The scripts of the repository, in benchmarks/ and docs/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import cpdispatch

ROOT = Path(__file__).resolve().parent.parent
WITH_TESTS = f"import sys\nsys.path.append({str(ROOT)!r})\n"
"""With these lines before it, a script finds the tests."""


def not_as_installed() -> Path | None:
    """A file of the package that the installed one does not have, or has in another version."""
    installed = Path(cpdispatch.__path__[0])
    if installed == ROOT / "cpdispatch":
        return None
    for file in (ROOT / "cpdispatch").rglob("*.py"):
        other = installed / file.relative_to(ROOT / "cpdispatch")
        if not other.is_file() or other.read_bytes() != file.read_bytes():
            return file
    return None


def script(path: str) -> Any:
    """The module that a script is; it finds those beside it, as when it is run."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with mock.patch.object(sys, "path", [str(file.parent), *sys.path]):
        spec.loader.exec_module(module)
    return module
