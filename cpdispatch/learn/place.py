"""Where the many simulations of a learner are done, and what goes on beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpdispatch.campaign import ALL_CORES, Shared, Task, Workers, run
from cpdispatch.jobs import Workload
from cpdispatch.simulator.replay import fingerprint
from cpdispatch.simulator.run import system_as_dict
from cpdispatch.system import System


def _silent(name: str) -> Callable[[float], None]:
    """Nobody wants to know how far it is."""
    return lambda share: None


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Place:
    """Where tasks are done.

    Attributes
    ----------
    workers : Workers
        The cores of this machine, or a Dask cluster.
    folder : Path or None
        Keeps the results of tasks, so that what was interrupted goes on.
    show : callable
        Given the name of a phase, what is called with the share of it that is done, 0 to 1.
    stop : callable
        Asked now and then; when true, what is done is kept and `InterruptedRunError` raised.
    """

    workers: Workers = ALL_CORES
    folder: Path | None = None
    show: Callable[[str], Callable[[float], None]] = _silent
    stop: Callable[[], bool] = _never

    def each(
        self,
        phase: str,
        function: Callable[..., Any],
        common: Any,
        tasks: Sequence[tuple[Any, ...]],
        about: Mapping[str, Any],
    ) -> list[Any]:
        """Call ``function(common, *task)`` for each task; the results in the order of the tasks.

        ``about`` says what the results depend on beside a task's number.
        """
        advance = self.show(phase)
        done = run(
            [Task(f"{phase}-{n:05d}", (Shared("common"), *task)) for n, task in enumerate(tasks)],
            function,
            shared={"common": common},
            workers=self.workers,
            folder=None if self.folder is None else self.folder / phase,
            about=about,
            progress=lambda over, tasks: advance(over / tasks),
            stop=self.stop,
        )
        return list(done.values())


def about(workload: Workload, system: System, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the results of tasks depend on: the log, the system, the settings."""
    return {
        "log": fingerprint(workload),
        "system": system_as_dict(system),
        "settings": dict(settings),
    }


HERE = Place()
"""All cores of this machine; nothing is kept or shown."""
