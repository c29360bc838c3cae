"""Libraries that only some commands need: imported when they are, with one clear error."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from cpdispatch.errors import UsageError


def needed(module: str, extra: str = "learn") -> Any:
    """A module of an optional library.

    Raises
    ------
    UsageError
        When the library is not installed: the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _lacking(module.partition(".")[0], extra) from error


def check(library: str, extra: str = "learn") -> None:
    """Raise the error of `needed` where a library is not installed; unlike that, import nothing."""
    if find_spec(library) is None:
        raise _lacking(library, extra)


def _lacking(library: str, extra: str) -> UsageError:
    return UsageError(
        f"this needs {library}, which is not installed: pip install 'cpdispatch[{extra}]'"
    )
