"""Where the many simulations of a learner are done, and what goes on beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpdispatch.campaign import ALL_CORES, CampaignError, Shared, Task, Workers, completed
from cpdispatch.jobs import Workload
from cpdispatch.simulator.replay import fingerprint
from cpdispatch.system import System, system_as_dict


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
    show: Callable[[str], Callable[[float], None]] = lambda name: lambda share: None
    stop: Callable[[], bool] = lambda: False

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

        Raises
        ------
        CampaignError
            At the end, when tasks failed.
        """
        numbered = {f"{phase}-{n:05d}": task for n, task in enumerate(tasks)}
        done, failure = self.those_done(phase, function, common, numbered, about)
        if failure is not None:
            raise failure
        return list(done.values())

    def those_done(
        self,
        phase: str,
        function: Callable[..., Any],
        common: Any,
        tasks: Mapping[str, tuple[Any, ...]],
        about: Mapping[str, Any],
    ) -> tuple[dict[str, Any], CampaignError | None]:
        """Call ``function(common, *task)`` for each task, by its name.

        ``about`` says what the results depend on beside a task's name. The error of a single task
        is raised as it is.

        Returns
        -------
        results : dict
            Of the tasks that are done, in their order.
        failure : CampaignError or None
            Which of several failed, and why.
        """
        advance = self.show(phase)
        done: dict[str, Any] = {}
        failure = None
        outcomes = completed(
            [Task(name, (Shared("common"), *task)) for name, task in tasks.items()],
            function,
            shared={"common": common},
            workers=self.workers,
            folder=None if self.folder is None else self.folder / phase,
            about=about,
            progress=lambda over, tasks: advance(over / tasks),
            stop=self.stop,
        )
        try:
            done.update(outcomes)
        except CampaignError as error:
            failure = error
        return {name: done[name] for name in tasks if name in done}, failure


def about(workload: Workload, system: System, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the results of tasks depend on: the log, the system, the settings."""
    return {
        "log": fingerprint(workload),
        "system": system_as_dict(system),
        "settings": dict(settings),
    }


HERE = Place()
"""All cores of this machine; nothing is kept or shown."""
