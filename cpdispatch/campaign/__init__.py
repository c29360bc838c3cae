"""Campaigns: many independent tasks on all cores of a machine, or on a Dask cluster.

Workers may be killed, and the campaign too: what is lost is done again. The results are the same
wherever they are made, and come in the order of the tasks.

Examples
--------
>>> from math import hypot
>>> from cpdispatch.campaign import Task, Workers, run
>>> run([Task("a", (3, 4)), Task("b", (5, 12))], hypot, workers=Workers(cores=1))
{'a': 5.0, 'b': 13.0}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpdispatch.campaign.tasks import (
    CampaignError,
    Done,
    Failed,
    Outcomes,
    Progress,
    Shared,
    Stop,
    Task,
    asked_to_stop,
    report,
    threads,
)
from cpdispatch.errors import InterruptedRunError, UsageError

if TYPE_CHECKING:
    from cpdispatch.campaign.store import Store

__all__ = [
    "FAILURES_MAX", "CampaignError", "Failed", "Shared", "Task", "Workers", "asked_to_stop",
    "completed", "report", "run", "threads",
]  # fmt: skip

FAILURES_MAX = 20
"""Where so many tasks fail before any is done, no new ones are begun: there is something wrong with
all.
"""


@dataclass(frozen=True, slots=True)
class Workers:
    """Where a campaign's tasks are done.

    Attributes
    ----------
    cores : int
        Worker processes on this machine; 0: as many as it has cores; 1: in this process. Fewer
        tasks may use several threads each, see `threads`.
    cluster : str or None
        Address of a Dask scheduler (tcp://host:8786), or the file that it wrote.
    """

    cores: int = 0
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.cores < 0:
            raise UsageError(f"--cores {self.cores}: 1 or more is needed, or 0 for all")
        if self.cores and self.cluster is not None:
            raise UsageError(
                f"--cores {self.cores} excludes --cluster {self.cluster}: its own workers say how "
                "many runs it makes at a time; leave one of the two out"
            )

    def do(
        self,
        tasks: Sequence[Task],
        function: Callable[..., Any],
        shared: Mapping[str, Any],
        stop: Stop,
        progress: Progress,
    ) -> Outcomes:
        """Each task with what came of it, as they are done."""
        if self.cluster is not None:
            from cpdispatch.campaign.cluster import on_cluster

            return on_cluster(tasks, function, shared, self.cluster, stop, progress)
        from cpdispatch.campaign.local import in_process, in_workers, sweep

        sweep()
        cores = self.cores or _cores()
        if cores == 1 or (len(tasks) == 1 and not self.cores):
            return in_process(tasks, function, shared, cores, stop, progress)
        return in_workers(tasks, function, shared, cores, stop, progress)


ALL_CORES = Workers()


def run(
    tasks: Sequence[Task],
    function: Callable[..., Any],
    *,
    shared: Mapping[str, Any] | None = None,
    workers: Workers = ALL_CORES,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress = lambda done, tasks: None,
    stop: Stop = lambda: False,
) -> dict[str, Any]:
    """Do all tasks, and return their results by key, in the order of the tasks.

    Parameters and exceptions are those of `completed`.
    """
    found = dict(
        completed(
            tasks, function, shared=shared, workers=workers, folder=folder, about=about,
            progress=progress, stop=stop,
        )
    )  # fmt: skip
    return {task.key: found[task.key] for task in tasks}


def completed(
    tasks: Sequence[Task],
    function: Callable[..., Any],
    *,
    shared: Mapping[str, Any] | None = None,
    workers: Workers = ALL_CORES,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress = lambda done, tasks: None,
    stop: Stop = lambda: False,
) -> Iterator[tuple[str, Any]]:
    """Do all tasks, and give the key and the result of each as soon as it is done.

    A task whose worker dies is done again, up to three times. One that fails does not hold up the
    others, whose results come before the exception.

    Parameters
    ----------
    tasks : sequence of Task
    function : callable
        ``function(*task.arguments)``, at the top of a module; its results can be pickled. It may
        call `report`, and `asked_to_stop` if it takes long.
    shared : mapping of str to object
        What a `Shared` in the arguments stands for: each worker gets these once, and the workers
        of one machine have one copy of the arrays in them.
    workers : Workers
        Where.
    folder : Path, optional
        Keeps the results: what is there already is not done again.
    about : mapping of str to JSON values
        With a folder: all that the results depend on beside the keys of the tasks, such as
        settings and checksums of the data. A folder with another one is refused.
    progress : callable
        Called with the number of tasks that are done, parts included, and of all.
    stop : callable
        Asked several times a second; when true, tasks are told to stop, what is done is kept.

    Raises
    ------
    CampaignError
        At the end, when tasks failed; in this process, a single task's error is raised as it is.
    InterruptedRunError
        When ``stop`` said so before the end.
    UsageError
        When the folder is of another campaign, or the cluster does not answer.
    """
    if len({task.key for task in tasks}) < len(tasks):
        raise ValueError("two tasks of a campaign have the same key")
    store = _store(function, folder, about)
    before = {task.key: done for task in tasks if store and (done := store.find(task.key))}
    for key, done in before.items():
        yield key, done.value
    left = [task for task in tasks if task.key not in before]
    progress(float(len(before)), len(tasks))
    if not left:
        return
    latch = _Latch(stop)
    outcomes = workers.do(
        left,
        function,
        shared or {},
        latch,
        lambda done, _: progress(len(before) + done, len(tasks)),
    )
    failed: dict[str, Failed] = {}
    over = len(before)
    for task, outcome in outcomes:
        if isinstance(outcome, Done):
            over += 1
            if store is not None:
                store.keep(task.key, outcome)
            yield task.key, outcome.value
        elif isinstance(outcome, Failed):
            failed[task.key] = outcome
            if len(failed) >= FAILURES_MAX and not over:
                latch.close()
    _check_end(tasks, over, failed, interrupted=latch.wished)


def _check_end(
    tasks: Sequence[Task], over: int, failed: Mapping[str, Failed], *, interrupted: bool
) -> None:
    """Raise at the end of a campaign of which not every task is done."""
    if interrupted and over + len(failed) < len(tasks):
        raise InterruptedRunError(f"interrupted: {over} of {len(tasks)} tasks are done")
    if failed:
        in_order = {task.key: failed[task.key] for task in tasks if task.key in failed}
        raise CampaignError(in_order, len(tasks), len(tasks) - over - len(failed))


def _store(
    function: Callable[..., Any], folder: Path | None, about: Mapping[str, Any] | None
) -> Store | None:
    """What keeps the results of a campaign, if anything does."""
    if folder is None:
        return None
    from cpdispatch.campaign.store import Store

    if about is None:
        raise ValueError("a campaign in a folder must say what it is about")
    return Store(folder, {"function": f"{function.__module__}.{function.__qualname__}", **about})


class _Latch:
    """A wish to stop, which stays; or an own decision to."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._closed = False
        self.wished = False

    def __call__(self) -> bool:
        self.wished = self.wished or self._stop()
        return self.wished or self._closed

    def close(self) -> None:
        """Stop without a wish."""
        self._closed = True


def _cores() -> int:
    """The cores that this process may use."""
    import joblib  # type: ignore[import-untyped]

    return int(joblib.cpu_count())
