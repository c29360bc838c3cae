"""What `cpdispatch.simulator` was called before: an import of this name works for one release."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import Any

from cpdispatch.errors import RenamedWarning
from cpdispatch.simulator import Run, Simulation, Watch, simulate

__all__ = ["Run", "Simulation", "Watch", "simulate"]

warnings.warn(
    "the package cpdispatch.simulate is now called cpdispatch.simulator", RenamedWarning, 2
)


class _Callable(ModuleType):
    """A module that can be called: ``cpdispatch.simulate`` is the function, too."""

    def __call__(self, *arguments: Any, **options: Any) -> Run:
        """Replay a workload, see `cpdispatch.simulator.simulate`."""
        return simulate(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
