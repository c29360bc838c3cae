"""Libraries that only some commands need: imported when they are, with one clear error."""

from __future__ import annotations

import importlib
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
        library = module.partition(".")[0]
        raise UsageError(
            f"this needs {library}, which is not installed: pip install 'cpdispatch[{extra}]'"
        ) from error
